//! `nasd key show`: which keys there are. The keyring says it all; no drive is asked.

use crate::commands::Outcome;
use crate::output::{self, say};
use nasd_cell::time::spoken;
use nasd_cell::{Cell, Keyring, MasterKeys, Seal, now};
use nasd_manager::keys::KeptKeys;
use nasd_types::{DriveId, Timestamp};
use serde::Serialize;
use std::time::Duration;

/// A drive's keys, as `--json` tells them.
#[derive(Debug, Serialize)]
struct Described {
    drive: String,
    /// Its number in the cell; `null` for a drive that is not of the cell any more.
    index: Option<u32>,
    /// Whether its master key is in the cell's directory, where it should not stay.
    master_key_here: bool,
    working_key_epoch: u32,
    /// Seconds; `null` if that is not known.
    working_key_age: Option<u64>,
    /// Seconds until it is changed; 0 if that is due, `null` if never.
    next_rotation: Option<u64>,
    /// A change is begun that the drive has not confirmed.
    pending: bool,
    /// Changes that must come so that capabilities given out before are worthless.
    owed_changes: u32,
}

/// Shows the keys.
///
/// # Errors
/// A keyring that can't be read.
pub fn show(cell: &Cell, json: bool) -> Outcome {
    let keyring = cell.keyring()?;
    let masters = MasterKeys::load(cell.directory())?;
    let interval = cell.config.rotation_interval();
    let describe = |drive: DriveId| {
        let kept = keyring.working_keys(drive)?;
        let here = !masters.of(drive).is_empty();
        Some(describe(cell, drive, here, &kept, interval))
    };
    let drives: Vec<Described> = keyring.drives().into_iter().filter_map(describe).collect();
    let partitions = keyring.partitions();
    if json {
        let partitions: Vec<_> = partitions
            .iter()
            .map(|(drive, partition, epoch)| {
                serde_json::json!({
                    "drive": format!("{:016x}", drive.0),
                    "partition": partition.to_string(),
                    "working_key_epoch": epoch,
                    "volume": cell.config.volume_of(*drive, *partition),
                })
            })
            .collect();
        return output::json(&serde_json::json!({
            "sealed_by": sealed_by(&keyring),
            "rotate_keys_every": cell.config.manager.rotate_keys_every,
            "drives": drives,
            "partitions": partitions,
        }));
    }
    say!("{:<18} {:<26} {:>5}  {:<12} next change", "drive", "keys", "epoch", "age");
    for drive in &drives {
        say!("{}", drive.line());
    }
    for (drive, partition, epoch) in &partitions {
        let place = format!("{:016x}", drive.0);
        let keys = format!("partition {partition}, working");
        let by = cell.config.volume_of(*drive, *partition);
        let by = by.map_or_else(|| "by hand".to_owned(), |volume| format!("with volume {volume}"));
        say!("{place:<18} {keys:<26} {epoch:>5}  {:<12} {by}", "");
    }
    match sealed_by(&keyring) {
        Some(by) => say!("the keyring is sealed by a {by}"),
        None => say!("the keyring is not sealed"),
    }
    if drives.iter().any(|drive| drive.master_key_here) {
        say!("master-keys.toml is in the cell's directory: move it to where no network reaches");
    }
    Ok(())
}

/// `passphrase` or `credential`; nothing if the keyring is not sealed.
fn sealed_by(keyring: &Keyring) -> Option<&'static str> {
    keyring.seal().map(|seal| match seal {
        Seal::Passphrase { .. } => "passphrase",
        Seal::Credential { .. } => "credential",
    })
}

fn describe(
    cell: &Cell,
    drive: DriveId,
    master_key_here: bool,
    kept: &KeptKeys,
    interval: Option<Duration>,
) -> Described {
    let now = now();
    let age = (kept.changed != Timestamp(0))
        .then(|| now.seconds().saturating_sub(kept.changed.seconds()));
    let left = |interval: Duration| match age {
        Some(age) if !kept.is_due(Some(interval), now) => interval.as_secs().saturating_sub(age),
        _ => 0,
    };
    let is_owed = kept.owed > 0 || kept.pending.is_some();
    Described {
        drive: format!("{:016x}", drive.0),
        index: cell.config.drives.iter().find(|each| each.drive_id() == drive).map(|d| d.index),
        master_key_here,
        working_key_epoch: kept.current.epoch,
        working_key_age: age,
        next_rotation: if is_owed { Some(0) } else { interval.map(left) },
        pending: kept.pending.is_some(),
        owed_changes: kept.owed,
    }
}

impl Described {
    fn line(&self) -> String {
        let keys = "drive, partition, working";
        let age = self.working_key_age.map_or_else(|| "unknown".to_owned(), spoken);
        let next = match self.next_rotation {
            None => "never".to_owned(),
            Some(0) => "due".to_owned(),
            Some(seconds) => format!("in {}", spoken(seconds)),
        };
        let pending = if self.pending { ", begun" } else { "" };
        let (drive, epoch) = (&self.drive, self.working_key_epoch);
        format!("{drive:<18} {keys:<26} {epoch:>5}  {age:<12} {next}{pending}")
    }
}
