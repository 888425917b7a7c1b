//! `nasd volume snapshot` and `nasd volume clone`: a volume that begins as another one is at one moment, and shares its blocks.
//!
//! The manager holds the volume still, every drive copies its partition at one stroke, and the volume goes on. The rest concerns the
//! copy alone: keys, and names that lead to its own files. Until that is done it is unfinished, and nobody serves it.

use super::Outcome;
use super::held::Held;
use super::partition::summaries;
use super::volume::{drive_session, furnish, tell_manager};
use crate::drive_session::DriveSession;
use crate::output::say;
use nasd_cell::session::administrator;
use nasd_cell::{
    Cell, DriveConfig, PartitionKeys, VolumeConfig, VolumePart, adopt_volume, begin_copy,
    check_volume_name, copied_volume, set_finished,
};
use nasd_protocol::drive::NO_QUOTA;
use nasd_types::PartitionId;
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// For how long the volume is held at most.
const HELD_MOST: Duration = Duration::from_secs(60);

/// How often it is told how far the names are.
const TOLD_EVERY: Duration = Duration::from_millis(200);

/// Makes a copy of a volume.
///
/// # Errors
/// The command's own.
pub fn copy(cell: &Cell, source: &str, name: &str, read_only: bool) -> Outcome {
    check_volume_name(name)?;
    // A keyring that can't be read must be known before anything is made.
    cell.keyring()?;
    if cell.config.volumes().any(|known| known == name) {
        return Err(format!("the cell has a volume `{name}` already").into());
    }
    let original = copied_volume(&cell.config, source)?;
    let sessions = sessions(cell, source, &original)?;
    let (mut taken, mut quotas) = (Vec::new(), Vec::new());
    for (session, part) in sessions.iter().zip(&original.parts) {
        let there = summaries(session)?;
        taken.extend(there.iter().map(|summary| summary.partition));
        let own = there.iter().find(|summary| summary.partition == part.partition_id());
        quotas.push(own.map_or(NO_QUOTA, |own| own.quota_bytes));
    }
    if read_only {
        quotas.fill(NO_QUOTA);
    }
    let administrator = administrator(cell)?;
    let held = Held::begin(&administrator, source, HELD_MOST)?;
    let (volume, parts) = begin_copy(cell, source, name, read_only, &taken)?;
    let copies = Copies { cell, volume: &volume, parts: &parts, sessions: &sessions };
    let made = copies.make(held).and_then(|held| copies.finish(&quotas).map(|()| held));
    let held = made.map_err(|error| {
        format!(
            "{error}\nthe volume {name} is not finished: `nasd volume remove {name}` takes away what there is of it"
        )
    })?;
    tell_manager(cell)?;
    let (kind, held) = (if read_only { "snapshot" } else { "clone" }, held.as_secs_f64());
    say!("{kind} {name} of {source} is there; {source} was held still for {held:.2} s at most");
    Ok(())
}

/// The drives that the volume lies on.
fn sessions(
    cell: &Cell,
    source: &str,
    original: &VolumeConfig,
) -> Result<Vec<DriveSession>, Box<dyn Error>> {
    let mut sessions = Vec::new();
    for part in &original.parts {
        let is_one = |drive: &&DriveConfig| drive.drive_id() == part.drive_id();
        let drive = cell.config.drives.iter().find(is_one);
        let drive = drive.ok_or("a drive was removed from the cell meanwhile")?;
        if drive.stripe.is_some() {
            return Err(format!(
                "the files of {source} are striped, and striped volumes can't be copied at one moment: copy the \
                 files (`nasd cp -r {source}:/ DIRECTORY`), or keep them in a volume that is made by `nasd volume create \
                 NAME --stripe none`"
            )
            .into());
        }
        sessions.push(drive_session(cell, drive)?);
    }
    Ok(sessions)
}

/// A volume that is being made, and what it is a copy of.
struct Copies<'a> {
    cell: &'a Cell,
    volume: &'a VolumeConfig,
    parts: &'a [VolumePart],
    sessions: &'a [DriveSession],
}

impl Copies<'_> {
    /// Has all drives copy their parts, at the same time, and lets the volume go on, whatever came of it.
    fn make(&self, held: Held<'_>) -> Result<Duration, Box<dyn Error>> {
        let made: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let mut begun = Vec::new();
            for ((session, source), target) in
                self.sessions.iter().zip(self.parts).zip(&self.volume.parts)
            {
                let (from, to) = (source.partition_id(), target.partition_id());
                begun.push(scope.spawn(move || copy_part(session, from, to)));
            }
            let fault = |_| Err("a thread has panicked".to_owned());
            begun.into_iter().map(|copying| copying.join().unwrap_or_else(fault)).collect()
        });
        let ended = held.end("the copy is worth nothing");
        made.into_iter().collect::<Result<Vec<()>, String>>()?;
        ended
    }

    /// Makes a volume of them.
    fn finish(&self, quotas: &[u64]) -> Outcome {
        for ((session, part), quota) in self.sessions.iter().zip(&self.volume.parts).zip(quotas) {
            furnish(session, self.cell, part.partition_id(), *quota, &PartitionKeys::generate()?)?;
        }
        let mut told = Instant::now();
        let shows = std::io::stderr().is_terminal();
        let mut progress = |directories: u64| {
            if shows && told.elapsed() > TOLD_EVERY {
                told = Instant::now();
                // That a terminal does not take it is no failure.
                let _ = write!(std::io::stderr(), "\rdirectories: {directories}");
            }
        };
        adopt_volume(self.cell, self.volume, self.parts, &mut progress)?;
        if shows {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        Ok(set_finished(self.cell, &self.volume.name, true)?)
    }
}

fn copy_part(session: &DriveSession, from: PartitionId, to: PartitionId) -> Result<(), String> {
    let copied = session.client.copy_partition(&session.authority, from, to);
    copied.map_err(session.failed(format!("copy partition {from} to {to}")))
}
