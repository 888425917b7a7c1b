//! Mending: what a component drive can't read any more, as its medium has lost it, is written there anew from the
//! other copies.
//!
//! Who meets it waits for that, and then finds what should be there: nobody decides by a copy that can't be read, and
//! no other copy is believed before the one that decides is the same.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_layout::{Column, Strip};
use nasd_protocol::Status;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, ByteRange, DriveId, ObjectId, ObjectName, PartitionId};

use crate::components::{Ask, Told};
use crate::data::{columns_of, regions_of};
use crate::giving::Write;
use crate::place::Place;
use crate::virtual_drive::{VirtualDrive, component, component_partition, unexpected};

/// What is written anew at a time, at multiples of it: a drive may have compressed so much together.
const PIECE: u64 = 64 << 10;

/// Bytes that are looked at at a time.
const STEP: u64 = 8 << 20;

/// Objects that are looked up at a time.
const PAGE: usize = 256;

/// Drives that have found out by themselves that they can't read something.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How many bad blocks each drive has told of.
    told: BTreeMap<DriveId, u64>,
    /// Those that are to be looked through, and from where on.
    waiting: BTreeMap<DriveId, ObjectName>,
}

/// Before all objects.
const START: ObjectName = ObjectName { partition: PartitionId(0), object: ObjectId::FIRST_OBJECT };

impl Suspects {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A drive has told how many blocks it has found bad since its start.
    pub(crate) fn heard(&self, drive: DriveId, bad_blocks: u64) {
        let mut known = self.lock();
        let before = known.told.insert(drive, bad_blocks).unwrap_or(0);
        if bad_blocks > before {
            known.waiting.insert(drive, START);
        }
    }

    /// Nothing is to be mended on others.
    pub(crate) fn keep(&self, drives: &[DriveId]) {
        let mut known = self.lock();
        known.told.retain(|drive, _| drives.contains(drive));
        known.waiting.retain(|drive, _| drives.contains(drive));
    }

    /// From where on a drive is to be looked through, if it is: who takes it does that.
    fn take(&self, drive: DriveId) -> Option<ObjectName> {
        self.lock().waiting.remove(&drive)
    }

    /// It could not be looked through further than that; unless it was removed, or has told of more, meanwhile.
    fn put_back(&self, drive: DriveId, at: ObjectName) {
        let mut known = self.lock();
        if known.told.contains_key(&drive) {
            known.waiting.entry(drive).or_insert(at);
        }
    }
}

/// Whether somebody has an object's lock for what is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// Nobody yet.
    Free,
    /// The caller.
    Held,
}

/// Whether a drive says that its medium has lost something.
pub(crate) fn is_damage(status: Status) -> bool {
    matches!(status, Status::Corrupt | Status::MediumError)
}

impl VirtualDrive {
    /// Does something with an object; once more, if a drive could not read of it what others have. `range` is what is
    /// read, or all.
    pub(crate) fn mending<T>(
        &self,
        name: ObjectName,
        range: Option<ByteRange>,
        lock: Lock,
        mut run: impl FnMut() -> Result<T, Status>,
    ) -> Result<T, Status> {
        match run() {
            Err(status) if is_damage(status) => {
                let all = ByteRange::new(0, u64::MAX);
                match self.mend(name, range.unwrap_or(all), lock) {
                    Ok(0) => Err(status),
                    Ok(_) => run(),
                    // What was met is no more than that it can't be mended now.
                    Err(other) => Err(other),
                }
            }
            told => told,
        }
    }

    /// Writes anew what drives can't read of a range that others have; how many bytes.
    pub(crate) fn mend(
        &self,
        name: ObjectName,
        range: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        let place = self.place(name)?;
        if !place.has_copies() {
            return Ok(0);
        }
        let whole = self.whole(name)?;
        let drives: Vec<DriveId> = place.settled(whole.version.is_spread()).collect();
        let mut bytes = 0;
        for drive in drives {
            bytes += self.mend_at(name, drive, range, lock)?;
        }
        Ok(bytes)
    }

    /// The same at one drive.
    fn mend_at(
        &self,
        name: ObjectName,
        drive: DriveId,
        range: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        let Attributes { logical_size: length, .. } = self.whole(name)?.attributes;
        let before = self.getattr_at(drive, name).map_err(|error| error.status())?;
        let range = range.intersection(&ByteRange::new(0, length));
        let range = pieces_around(range, length);
        let mut bytes = 0;
        for step in steps(range, STEP) {
            if self.is_readable(name, drive, step)? {
                continue;
            }
            for piece in steps(step, PIECE) {
                if !self.is_readable(name, drive, piece)? {
                    bytes += self.mend_piece(name, drive, piece, lock)?;
                }
            }
        }
        if bytes > 0 {
            self.set_times(name, drive, &before)?;
            tracing::warn!(%name, %drive, bytes, "what a drive could not read is written there anew");
        }
        Ok(bytes)
    }

    fn mend_piece(
        &self,
        name: ObjectName,
        drive: DriveId,
        piece: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        match self.give_range(name, drive, Write::All, piece, lock) {
            Err(status) if is_damage(status) => {}
            given => return given,
        }
        // Others have lost something of it too, but not the same, it may be.
        let mut bytes = 0;
        for block in steps(piece, BLOCK_BYTES as u64) {
            if !self.is_readable(name, drive, block)? {
                match self.give_block(name, drive, block, lock) {
                    Err(status) if is_damage(status) => {
                        tracing::error!(%name, %drive, ?block, "no drive can read this");
                    }
                    given => bytes += given?,
                }
            }
        }
        Ok(bytes)
    }

    /// Writes one block anew, or what of it the whole has.
    fn give_block(
        &self,
        name: ObjectName,
        drive: DriveId,
        block: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        match self.give_range(name, drive, Write::All, block, lock) {
            Err(status) if is_damage(status) => match self.cut_before(name, drive, block, lock)? {
                true => self.give_range(name, drive, Write::All, block, lock),
                false => Err(status),
            },
            given => given,
        }
    }

    /// A component that a write which failed elsewhere has left longer than the whole has more in its last block than
    /// is given to it, and can't write a part of what it can't read: it ends before that block then. Nobody reads
    /// copies that may differ but those that decide, of which it is none. Whether it was so.
    fn cut_before(
        &self,
        name: ObjectName,
        drive: DriveId,
        block: ByteRange,
        lock: Lock,
    ) -> Result<bool, Status> {
        let _alone = (lock == Lock::Free).then(|| self.lock(name));
        let place = self.place_to_change(name)?;
        let whole = self.whole(name)?;
        let had = self.getattr_at(drive, name).map_err(|error| error.status())?;
        let end = whole.attributes.logical_size;
        let is_last = block.offset < end && end <= block.end();
        let decides = place.home() == drive;
        if !is_last || decides || had.logical_size <= end || !whole.version.has_writers() {
            return Ok(false);
        }
        self.cut_one(name, &place, whole.version, (drive, block.offset)).map(|()| true)
    }

    /// Whether a drive can read what it has of a range.
    fn is_readable(
        &self,
        name: ObjectName,
        drive: DriveId,
        range: ByteRange,
    ) -> Result<bool, Status> {
        let place = self.place(name)?;
        let version = self.seen_version(name)?.ok_or(Status::NoSuchObject)?;
        for (_, strips) in columns_held(&place, version.is_spread(), drive, range) {
            let (regions, length) = regions_of(&strips);
            let ask = Ask::Read { name: component(name), order: None, regions, length };
            match self.components.ask_one(drive, ask).map_err(|error| error.status()) {
                Ok(_) => {}
                Err(status) if is_damage(status) => return Ok(false),
                Err(status) => return Err(status),
            }
        }
        Ok(true)
    }

    /// Looks through all that a drive has which has told of bad blocks, and writes anew what it can't read. Whether
    /// one was looked through. To be called now and then, by one thread.
    pub fn mend_suspects(&self) -> bool {
        let waiting: Vec<DriveId> = self.suspects.lock().waiting.keys().copied().collect();
        // One that is away does not keep the others waiting.
        waiting.into_iter().any(|drive| !self.is_silent(drive) && self.mend_suspect(drive))
    }

    /// The same for one of them: whether it was looked through.
    fn mend_suspect(&self, drive: DriveId) -> bool {
        let Some(mut at) = self.suspects.take(drive) else { return false };
        match self.mend_drive(drive, &mut at) {
            Ok(bytes) => tracing::info!(%drive, bytes, "bad blocks of a drive were looked for"),
            Err(status) => {
                tracing::debug!(%drive, %status, %at, "bad blocks can't be looked for yet");
                // What was looked at is not looked at again.
                self.suspects.put_back(drive, at);
                return false;
            }
        }
        true
    }

    /// Looks through what a drive has from an object on, which becomes the one that comes next.
    fn mend_drive(&self, drive: DriveId, at: &mut ObjectName) -> Result<u64, Status> {
        let partitions: Vec<PartitionId> = {
            let state = self.state();
            let guarded = state.partitions.iter().filter(|(_, record)| record.has_copies());
            guarded.map(|(partition, _)| *partition).collect()
        };
        let mut bytes = 0;
        let start = at.partition;
        for partition in partitions.into_iter().filter(|partition| *partition >= start) {
            if partition > at.partition {
                *at = ObjectName { partition, ..START };
            }
            loop {
                let (from, most) = (at.object, PAGE);
                let list = Ask::List { partition: component_partition(partition), from, most };
                let objects = match self.components.ask_one(drive, list) {
                    Ok(Told::Objects(objects)) => objects,
                    Ok(other) => return Err(unexpected(&other).status()),
                    Err(error) if error.status() == Status::NoSuchPartition => break,
                    Err(error) => return Err(error.status()),
                };
                for object in &objects {
                    bytes += self.mend_object(ObjectName { partition, object: *object }, drive)?;
                    at.object = ObjectId(object.0 + 1);
                }
                if objects.len() < PAGE {
                    break;
                }
            }
        }
        Ok(bytes)
    }

    /// One object of those that a drive has a component of; what lies there wrongly is none.
    fn mend_object(&self, name: ObjectName, drive: DriveId) -> Result<u64, Status> {
        let (mut at, mut bytes) = (0, 0);
        while let Some((step, written)) = self.mend_step(name, drive, at)? {
            bytes += written;
            at = step.end();
            // Who has what may change between two steps.
            self.throttle(step.length);
            if self.rebuild.is_over() {
                return Err(Status::Busy);
            }
        }
        Ok(bytes)
    }

    /// What of it comes next from a position on, if anything, and how many bytes of that were written anew.
    fn mend_step(
        &self,
        name: ObjectName,
        drive: DriveId,
        at: u64,
    ) -> Result<Option<(ByteRange, u64)>, Status> {
        let _steady = self.steady();
        let length = match self.whole(name) {
            Ok(whole)
                if self.place(name)?.settled(whole.version.is_spread()).any(|d| d == drive) =>
            {
                whole.attributes.logical_size
            }
            Ok(_) | Err(Status::NoSuchObject) => return Ok(None),
            Err(status) => return Err(status),
        };
        let step = ByteRange::new(at, STEP.min(length.saturating_sub(at)));
        if step.is_empty() {
            return Ok(None);
        }
        match self.mend_at(name, drive, step, Lock::Free) {
            Ok(written) => Ok(Some((step, written))),
            Err(Status::NoSuchObject) => Ok(None),
            Err(status) if is_damage(status) => {
                tracing::error!(%name, %drive, ?step, "a drive can't read what no other has");
                Ok(Some((step, 0)))
            }
            Err(status) => Err(status),
        }
    }
}

/// What a drive has of a range, by columns.
pub(crate) fn columns_held(
    place: &Place,
    is_spread: bool,
    drive: DriveId,
    range: ByteRange,
) -> Vec<(Column, Vec<Strip>)> {
    let columns = match place.is_striped(is_spread) {
        true => columns_of(place, range),
        false => {
            let ByteRange { offset, length } = range;
            vec![(Column(0), vec![Strip { offset, length, stride: length, count: 1 }])]
        }
    };
    let held: Vec<Column> = place.columns_on(drive).collect();
    columns.into_iter().filter(|(column, _)| held.contains(column)).collect()
}

/// The pieces that a range lies in, up to the end of the whole.
fn pieces_around(range: ByteRange, length: u64) -> ByteRange {
    let from = range.offset / PIECE * PIECE;
    let end = range.end().div_ceil(PIECE).saturating_mul(PIECE).min(length);
    ByteRange::new(from, end.saturating_sub(from))
}

/// Parts of a range that end at multiples of `size`.
pub(crate) fn steps(range: ByteRange, size: u64) -> impl Iterator<Item = ByteRange> {
    let mut at = range.offset;
    std::iter::from_fn(move || {
        let end = ((at / size + 1) * size).min(range.end());
        let step = ByteRange::new(at, end.saturating_sub(at));
        at = end;
        (step.length > 0).then_some(step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_anew_is_whole_pieces() {
        let piece = |offset, length| ByteRange::new(offset, length);
        assert_eq!(pieces_around(piece(70_000, 10), 1 << 20), piece(PIECE, PIECE));
        assert_eq!(pieces_around(piece(65_535, 2), 100_000), piece(0, 100_000));
        assert_eq!(pieces_around(piece(5, 0), 100), piece(0, 100));
        let cut: Vec<_> = steps(piece(60_000, 100_000), PIECE).collect();
        assert_eq!(cut, [piece(60_000, 5536), piece(PIECE, PIECE), piece(2 * PIECE, 28_928)]);
        assert_eq!(steps(piece(7, 0), PIECE).count(), 0);
    }

    #[test]
    fn who_is_removed_while_it_is_looked_through_is_not_looked_through_any_more() {
        let (suspects, drive, other) = (Suspects::default(), DriveId(7), DriveId(8));
        let further = ObjectName { object: ObjectId(START.object.0 + 9), ..START };
        suspects.heard(drive, 3);
        assert_eq!(suspects.take(drive), Some(START));
        assert_eq!(suspects.take(drive), None, "another one does");
        suspects.put_back(drive, further);
        assert_eq!(suspects.take(drive), Some(further));
        suspects.heard(drive, 4);
        suspects.put_back(drive, further);
        assert_eq!(suspects.take(drive), Some(START), "more was found meanwhile");
        suspects.keep(&[other]);
        suspects.put_back(drive, further);
        assert_eq!(suspects.take(drive), None);
    }
}
