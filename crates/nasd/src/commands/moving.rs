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
    Cell, DriveConfig, MoveNumbers, PartitionKeys, VolumePart, VolumeTurn, begin_move,
    copied_volume, doom_leftovers, forget_leftover,
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
    let (from, to) = (drive_of(cell, from)?, drive_of(cell, to)?);
    check_movable(cell, name, (from, to))?;
    let _turn = VolumeTurn::take(cell, name)?;
    let cell = &Cell::open(cell.directory())?;
    // It has to know where the volume is by now, before what was left over where it was goes.
    if !tell_manager(cell)? {
        return Err("the cell does not run: `nasd up` starts it".into());
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
        let (copied, held) = match moved {
            Ok(told) => told,
            Err(error) => return Err(moving.clear_up(error)),
        };
        if let Err(error) = remove_leftovers(&Cell::open(cell.directory())?, name) {
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

/// Whether the volume can be moved from one of these drives to the other, as far as the cell knows.
fn check_movable(cell: &Cell, name: &str, (from, to): (&DriveConfig, &DriveConfig)) -> Outcome {
    let is_striped = |drive: &&DriveConfig| drive.stripe.is_some();
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
    remove_doomed(cell, name, doom_leftovers(cell, name)?)
}

fn remove_doomed(cell: &Cell, name: &str, doomed: Vec<Location>) -> Outcome {
    for left in doomed {
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
        let numbers = begin_move(cell, name, part.location(), to, (ROUNDS_MAX, &taken))?;
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
        let last = self.numbers.copies.last();
        for &copy in &self.numbers.copies {
            let begun = Instant::now();
            let source = &self.source;
            let made =
                source.client.copy_partition(&source.authority, self.summary.partition, copy);
            made.map_err(source.failed("copy the partition"))?;
            all += self.copy(copy, base)?;
            if let Some(old) = base.replace(copy) {
                let removed = source.client.remove_partition(&source.authority, old);
                removed.map_err(source.failed(format!("remove partition {old}")))?;
            }
            if begun.elapsed() <= SHORT_ROUND || Some(&copy) == last {
                return Ok((all, copy));
            }
        }
        Err("there is no number for a copy".into())
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

    /// After a failure: removes what was made, which is nobody's, unless the part is elsewhere by now. Answers what the user is told.
    fn clear_up(&self, error: Box<dyn Error>) -> Box<dyn Error> {
        let name = self.name;
        // What is doomed does not become a part any more: so it is known after that whether it has.
        let cleared = doom_leftovers(self.cell, name).map_err(Into::into).and_then(|doomed| {
            let to = Location { drive: self.target.drive, partition: self.numbers.target };
            let cell = Cell::open(self.cell.directory())?;
            match cell.config.volume_of(to.drive, to.partition) {
                // The manager may have failed before it knew.
                Some(_) => Err("it may still be in use where it was".into()),
                None => remove_doomed(&cell, name, doomed),
            }
        });
        match cleared {
            Ok(()) => error,
            Err(left) => format!(
                "{error}\nsomething is left over, which `nasd volume move` or `remove` of {name} takes away: {left}"
            )
            .into(),
        }
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
