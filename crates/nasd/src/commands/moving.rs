//! `nasd volume move`: what a volume has on one drive is on another one from now on, and nobody who uses it need know.
//!
//! The drive makes copies of its partition, which share its blocks. The first is copied over while the volume goes on, and then what each has that the one
//! before had not, until that is little. For the last of it the manager holds the volume still, and then has the part where it is by now: in the
//! same moment capabilities for where it was end, and clients that come with one get one for where it is. Files are known as before.
//!
//! Each partition that is made for that is written down before, so that the next command removes what one has left that was interrupted.

mod copying;

use super::Outcome;
use super::held::Held;
use super::partition::summaries;
use super::status::size;
use super::volume::{drive_session, furnish, remove_part, tell_manager};
use crate::drive_session::DriveSession;
use crate::output::{note, say};
use copying::{Copied, Copying};
use nasd_cell::session::administrator;
use nasd_cell::{
    Cell, DriveConfig, MoveNumbers, PartitionKeys, VolumePart, begin_move, copied_volume,
    doom_leftovers, forget_leftover,
};
use nasd_client::{ClientError, ManagerClient};
use nasd_protocol::drive::{NO_QUOTA, PartitionSummary};
use nasd_types::{Location, PartitionId};
use std::error::Error;
use std::time::{Duration, Instant};

/// A round that took no longer is the last one before the volume is held still.
const SHORT_ROUND: Duration = Duration::from_millis(500);

/// For how long it is held at most: what has changed since the last round, which was short, is copied long before.
const HELD_MOST: Duration = Duration::from_secs(15);

/// Rounds before it is held still in any case: what is written as fast as it is copied is not caught up with.
const ROUNDS_MAX: u32 = 12;

/// Moves what a volume has on one drive, by its number, to another one.
///
/// # Errors
/// The command's own.
pub fn move_parts(cell: &Cell, name: &str, from: u32, to: u32) -> Outcome {
    let is_striped = |drive: &&DriveConfig| drive.stripe.is_some();
    let (from, to) = (drive_of(cell, from)?, drive_of(cell, to)?);
    if from.index == to.index {
        return Err(format!("drive {} is where it is", to.index).into());
    }
    if let Some(drive) = [from, to].into_iter().find(is_striped) {
        return Err(format!(
            "drive {} is a virtual one: its files are moved by its striping manager (`nasd drive drain`)",
            drive.index
        )
        .into());
    }
    if name == cell.config.volume {
        return Err(format!(
            "{name} is the cell's first volume, which has a part on each drive that it was made with; other volumes \
             are moved"
        )
        .into());
    }
    remove_leftovers(cell, name)?;
    let volume = copied_volume(&cell.config, name)?;
    let parts: Vec<_> =
        volume.parts.iter().filter(|part| part.drive_id() == from.drive_id()).collect();
    if parts.is_empty() {
        return Err(format!("{name} has nothing on drive {}", from.index).into());
    }
    for part in parts {
        let moving = Moving::new(cell, name, part, (from, to))?;
        let moved = moving.run();
        // Also after a failure: what is there by then is nobody's.
        let removed = remove_leftovers(&Cell::open(cell.directory())?, name);
        let (copied, held) = moved?;
        if let Err(error) = removed {
            note!(
                "nasd: something is left over, which `nasd volume move` or `remove` of {name} takes away: {error}"
            );
        }
        say!(
            "{name}: what was on drive {} is on drive {}: {} objects and {} were copied, and it was held still for {:.2} s",
            from.index,
            to.index,
            copied.objects,
            size(copied.bytes),
            held.as_secs_f64()
        );
    }
    Ok(())
}

fn drive_of(cell: &Cell, index: u32) -> Result<&DriveConfig, String> {
    let found = cell.config.drives.iter().find(|drive| drive.index == index);
    found.ok_or_else(|| {
        let known: Vec<_> =
            cell.config.drives.iter().map(|drive| drive.index.to_string()).collect();
        format!("the cell has no drive {index}, but {}", known.join(", "))
    })
}

/// Removes the partitions that moves of a volume have left over.
///
/// # Errors
/// If one can't be removed now.
pub fn remove_leftovers(cell: &Cell, name: &str) -> Outcome {
    // One that the manager is just making a part of the volume is none of them, or does not become one any more.
    for left in doom_leftovers(cell, name)? {
        remove_part(cell, left)?;
        forget_leftover(cell, name, left)?;
    }
    Ok(())
}

/// A part of a volume that is being moved.
struct Moving<'a> {
    cell: &'a Cell,
    name: &'a str,
    administrator: ManagerClient,
    part: &'a VolumePart,
    /// What the drive says of it.
    summary: PartitionSummary,
    source: DriveSession,
    target: DriveSession,
    numbers: MoveNumbers,
}

impl<'a> Moving<'a> {
    /// Looks whether it can be done, and writes down what will be made.
    fn new(
        cell: &'a Cell,
        name: &'a str,
        part: &'a VolumePart,
        (from, to): (&DriveConfig, &DriveConfig),
    ) -> Result<Self, Box<dyn Error>> {
        // One that does not run is found out before anything is made.
        let administrator = administrator(cell)?;
        if !tell_manager(cell)? {
            return Err("the cell does not run: `nasd up` starts it".into());
        }
        let (source, target) = (drive_session(cell, from)?, drive_session(cell, to)?);
        let there = summaries(&source)?;
        let is_part = |summary: &&PartitionSummary| summary.partition == part.partition_id();
        let summary = *there.iter().find(is_part).ok_or_else(|| {
            format!("drive {} has lost partition {}", from.index, part.partition_id())
        })?;
        let mut taken: Vec<PartitionId> = there.iter().map(|summary| summary.partition).collect();
        taken.extend(summaries(&target)?.iter().map(|summary| summary.partition));
        let room = target.client.drive_control(&target.authority, to.partition_id());
        let room = room.map_err(target.failed("ask for its room"))?;
        let free = room.capacity_bytes.saturating_sub(room.used_bytes);
        if free < summary.used_bytes {
            return Err(format!(
                "{name} takes {} on drive {}, and drive {} has {} free",
                size(summary.used_bytes),
                from.index,
                to.index,
                size(free)
            )
            .into());
        }
        let to = to.drive_id();
        let numbers = begin_move(cell, name, part.location(), to, &taken)?;
        Ok(Moving { cell, name, administrator, part, summary, source, target, numbers })
    }

    /// Moves it: what was copied, and for how long the volume was held still.
    fn run(&self) -> Result<(Copied, Duration), Box<dyn Error>> {
        let (target, partition) = (&self.target, self.numbers.target);
        let made = target.client.create_partition(&target.authority, partition);
        made.map_err(target.failed(format!("create partition {partition}")))?;
        furnish(target, self.cell, partition, NO_QUOTA, &PartitionKeys::generate()?)?;
        let PartitionSummary { compression, minimum_protection, .. } = self.summary;
        let set = target.client.set_partition(
            &target.authority,
            partition,
            Some(compression),
            Some(minimum_protection),
        );
        set.map_err(target.failed("set how it is kept"))?;
        let (mut copied, base) = self.copy_in_use()?;
        let held = Held::begin(&self.administrator, self.name, HELD_MOST)?;
        let moved = self.switch(&held, base);
        let took = held.end("it stays where it was");
        copied += moved?;
        Ok((copied, took?))
    }

    /// Copies what there is, while it changes: how much that was, and the copy after which it is to be compared.
    fn copy_in_use(&self) -> Result<(Copied, PartitionId), Box<dyn Error>> {
        let (mut all, mut base) = (Copied::default(), None);
        let mut next = self.numbers.copies.iter().cycle();
        for round in 1.. {
            let begun = Instant::now();
            let &copy = next.next().ok_or("there is no number for a copy")?;
            let source = &self.source;
            let made =
                source.client.copy_partition(&source.authority, self.summary.partition, copy);
            made.map_err(source.failed("copy the partition"))?;
            all += self.copy(copy, base)?;
            if let Some(old) = base.replace(copy) {
                let removed = source.client.remove_partition(&source.authority, old);
                removed.map_err(source.failed(format!("remove partition {old}")))?;
            }
            if begun.elapsed() <= SHORT_ROUND || round == ROUNDS_MAX {
                return Ok((all, copy));
            }
        }
        unreachable!("invariant: there is a last round")
    }

    /// Copies the last of it, and has the part where it is then. Nothing changes in the volume meanwhile.
    fn switch(&self, held: &Held<'_>, base: PartitionId) -> Result<Copied, Box<dyn Error>> {
        let copied = self.copy(self.summary.partition, Some(base))?;
        let (target, partition) = (&self.target, self.numbers.target);
        let quota = self.summary.quota_bytes;
        let sized = target.client.resize_partition(&target.authority, partition, quota);
        sized.map_err(
            target.failed("set the quota, as what shares its blocks where it is takes more here"),
        )?;
        let to = Location { drive: target.drive, partition };
        let moved = held.move_part(self.part.made().drive, to);
        moved.map_err(|error| self.not_moved(&error, to))?;
        Ok(copied)
    }

    /// Why the manager has not moved it, or that nobody knows.
    fn not_moved(&self, error: &ClientError, to: Location) -> String {
        let config = Cell::open(self.cell.directory()).map(|cell| cell.config);
        let is_there =
            config.is_ok_and(|config| config.volume_of(to.drive, to.partition).is_some());
        match is_there {
            true => format!(
                "{} is moved, but whether the manager knows is not known: {error}",
                self.name
            ),
            false => format!(
                "{} stays where it was: {error}; the manager's log says more, {}",
                self.name,
                self.cell.log_path("manager").display()
            ),
        }
    }

    /// Copies what a partition has that the base has not, durably.
    fn copy(
        &self,
        partition: PartitionId,
        base: Option<PartitionId>,
    ) -> Result<Copied, Box<dyn Error>> {
        let copying = Copying {
            source: &self.source,
            target: &self.target,
            from: partition,
            to: self.numbers.target,
        };
        copying.run(base)
    }
}
