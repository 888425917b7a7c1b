//! Appends: at the end of the whole, once however often they are asked for, whoever dies
//! (docs/decisions/0011-appends-that-happen-once.md).
//!
//! An append gets its place before a byte of it is written: that is kept, durably, in the *journal* of its object's
//! group. The journal is an object like others, of which nobody else knows, with a number of the same group: so it is
//! on the drives that the objects are on, has as many copies, is given to drives that were away, and moves with them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_layout::Groups;
use nasd_protocol::Status;
use nasd_protocol::drive::Appended;
use nasd_store::Append;
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Timestamp, WriteOrder};

use crate::data::{columns_of, runs};
use crate::journal::{BYTES, Entry, Journal, Outcome};
use crate::mend::Lock;
use crate::place::Place;
use crate::turns;
use crate::virtual_drive::VirtualDrive;

/// The highest numbers that objects may have are those of journals.
const FIRST_JOURNAL: u64 = ObjectId::END.0 - Groups::MAX as u64;

/// Appends that are remembered in memory, of all groups.
const MOST: usize = 1 << 17;

/// The same of one.
const MOST_OF_ONE: usize = 1 << 13;

/// Whether an object is a journal.
pub(crate) fn is_journal(object: ObjectId) -> bool {
    object.0 >= FIRST_JOURNAL
}

/// The journals that were used in this life.
#[derive(Debug, Default)]
pub(crate) struct Journals(Mutex<BTreeMap<ObjectName, Arc<Mutex<Known>>>>);

/// What is known of a journal.
#[derive(Debug, Default)]
struct Known {
    /// None before it was read.
    journal: Option<Journal>,
    /// Whether there is such an object.
    is_there: bool,
}

impl Journals {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Arc<Mutex<Known>>>> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A journal, and how many of its entries are to be remembered.
    fn get(&self, name: ObjectName) -> (Arc<Mutex<Known>>, usize) {
        let mut all = self.lock();
        let one = Arc::clone(all.entry(name).or_default());
        (one, (MOST / all.len()).min(MOST_OF_ONE))
    }

    /// Nothing that was kept is to be believed.
    pub(crate) fn forget_all(&self) {
        self.lock().clear();
    }
}

/// What is to be done for an append that is asked for.
enum Found {
    /// It was made.
    Made(u64),
    /// It has this place; its bytes may be there, or not.
    Begun(u64),
    /// It has got this place just now.
    New(u64),
}

impl VirtualDrive {
    /// Appends; `now` is the virtual drive's clock.
    pub(crate) fn append_whole(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        now: Timestamp,
    ) -> Result<Appended, Status> {
        self.is_now(now);
        let _alone = self.lock(name);
        let attributes = self.whole(name)?.attributes;
        let journal = self.journal_of(name)?;
        let (known, most) = self.journals.get(journal);
        let found = {
            let mut known = self.lock_journal(&known);
            let kept = self.read_journal(journal, &mut known)?;
            let end = attributes.logical_size;
            let found = match find(kept, (name, append), end, now) {
                Err(Status::Busy) => {
                    self.look_for_open(name, kept, now);
                    find(kept, (name, append), end, now)?
                }
                found => found?,
            };
            if let Found::New(at) = found {
                kept.begin((name.object, append.token), (at, append.bytes), now, most);
            }
            found
        };
        let (at, is_new) = match found {
            Found::Made(offset) => return Ok(Appended { offset, attributes }),
            Found::Begun(at) => (at, false),
            Found::New(at) => (at, true),
        };
        let told = self
            .keep_begun(journal, &known)
            .and_then(|()| self.write_appended(name, append, at, is_new));
        let outcome = match &told {
            Ok(()) => Some(Outcome::Made),
            Err(status) if status.is_transient() => Some(Outcome::Begun),
            Err(_) if is_new && self.has_nothing_behind(name, at) => Some(Outcome::Failed),
            // Who asks again and fails for good does not keep others waiting for longer.
            Err(_) => None,
        };
        if let (Some(outcome), Some(kept)) = (outcome, &mut self.lock_journal(&known).journal) {
            kept.end((name.object, append.token), outcome, now);
        }
        told?;
        Ok(Appended { offset: at, attributes: self.getattr_whole(name)? })
    }

    /// Whether no drive has a byte of an object from a place on, after all have answered who were to write there: its
    /// place can be another one's then.
    fn has_nothing_behind(&self, name: ObjectName, at: u64) -> bool {
        let Ok(place) = self.place(name) else { return false };
        let Ok(version) = self.known_version(name) else { return false };
        let ends_before = |drive: &DriveId| {
            self.getattr_at(*drive, name).is_ok_and(|told| told.logical_size <= at)
        };
        place.holders(version.is_spread()).iter().all(ends_before)
    }

    /// Looks whether appends that others have begun were made. If not, those come back, if they live.
    fn look_for_open(&self, name: ObjectName, journal: &mut Journal, now: Timestamp) {
        for Entry { token, range, sum, .. } in journal.open(name.object) {
            let read = || self.read_range(name, range);
            // What can't be read now may be there.
            let Ok(read) = self.mending(name, Some(range), Lock::Held, read) else { continue };
            if read.data.len() as u64 == range.length && crc32c::crc32c(&read.data) == sum {
                journal.end((name.object, token), Outcome::Made, now);
            }
        }
    }

    /// A journal is read and written by who has it, while others wait.
    fn lock_journal<'a>(&self, known: &'a Mutex<Known>) -> MutexGuard<'a, Known> {
        turns::lock(known, &*self.components)
    }

    /// No place is used before it is kept.
    fn keep_begun(&self, journal: ObjectName, known: &Mutex<Known>) -> Result<(), Status> {
        let mut known = self.lock_journal(known);
        match &known.journal {
            Some(kept) if kept.is_written() => Ok(()),
            _ => self.write_journal(journal, &mut known),
        }
    }

    /// Writes the bytes of an append where they belong. Whether some of them are there already is not known unless it is
    /// new; then what others have written there since stays.
    fn write_appended(
        &self,
        name: ObjectName,
        append: &Append<'_>,
        at: u64,
        is_new: bool,
    ) -> Result<(), Status> {
        let range = ByteRange::new(at, append.bytes.len() as u64);
        let make = |place: &Place, order: Option<WriteOrder>| match is_new {
            true => Ok(Cow::Borrowed(append.bytes)),
            false => {
                let mut bytes = self.read_to_write(name, place, range, order)?;
                // It was all zeros before.
                for (byte, appended) in bytes.iter_mut().zip(append.bytes) {
                    if *byte == 0 {
                        *byte = *appended;
                    }
                }
                Ok(Cow::Owned(bytes))
            }
        };
        self.write_made(name, range, true, make).map(drop)
    }

    /// What is there of a range that is about to be written with the same order.
    fn read_to_write(
        &self,
        name: ObjectName,
        place: &Place,
        range: ByteRange,
        order: Option<WriteOrder>,
    ) -> Result<Vec<u8>, Status> {
        let columns = columns_of(place, range);
        let mut bytes = vec![0; range.length as usize];
        let there = self.read_columns(name, place, &columns, order)?;
        for ((_, strips), mut there) in columns.iter().zip(there) {
            let mut rest = &mut there[..];
            for run in runs(strips) {
                let (now, later) = rest.split_at_mut(run.length as usize);
                bytes[(run.offset - range.offset) as usize..][..now.len()].copy_from_slice(now);
                rest = later;
            }
        }
        Ok(bytes)
    }

    /// Before an object gets another length: an append whose end is not known comes before that, and nothing of it
    /// afterwards. For who has the object's lock.
    pub(crate) fn close_appends(&self, name: ObjectName) -> Result<(), Status> {
        let journal = self.journal_of(name)?;
        let (known, _) = self.journals.get(journal);
        let mut known = self.lock_journal(&known);
        if self.read_journal(journal, &mut known)?.close(name.object) {
            self.write_journal(journal, &mut known)?;
        }
        Ok(())
    }

    /// Keeps that appends were made whose places were kept before: a striping manager that is started anew need not look
    /// for them then.
    pub(crate) fn tend_journals(&self) {
        let all: Vec<_> = {
            let all = self.journals.lock();
            all.iter().map(|(name, known)| (*name, Arc::clone(known))).collect()
        };
        for (name, known) in all {
            // Who is using one does it himself.
            let Ok(mut known) = known.try_lock() else { continue };
            if let Err(status) = self.write_journal(name, &mut known) {
                tracing::debug!(%name, %status, "that appends were made can't be kept yet");
            }
        }
    }

    /// The journal of an object's group.
    fn journal_of(&self, name: ObjectName) -> Result<ObjectName, Status> {
        let state = self.state();
        let record = state.partitions.get(&name.partition).ok_or(Status::NoSuchPartition)?;
        let group = record.groups.group_of(name.object);
        Ok(ObjectName { object: ObjectId(FIRST_JOURNAL + u64::from(group.0)), ..name })
    }

    /// A journal, which is read if it has not been in this life. Whoever has it has an object's lock.
    fn read_journal<'a>(
        &self,
        name: ObjectName,
        known: &'a mut Known,
    ) -> Result<&'a mut Journal, Status> {
        if known.journal.is_none() {
            let _alone = self.lock(name);
            let range = ByteRange::new(0, BYTES);
            let read = || self.read_range(name, range);
            let journal = match self.mending(name, Some(range), Lock::Held, read) {
                Ok(read) => {
                    known.is_there = true;
                    Journal::parse(&read.data, self.now())
                }
                Err(Status::NoSuchObject) => Journal::default(),
                Err(status) => return Err(status),
            };
            known.journal = Some(journal);
        }
        Ok(known.journal.get_or_insert_default())
    }

    /// Makes what a journal knows durable.
    fn write_journal(&self, name: ObjectName, known: &mut Known) -> Result<(), Status> {
        let Some(journal) = &mut known.journal else { return Ok(()) };
        let Some((at, bytes)) = journal.to_write() else { return Ok(()) };
        let _alone = self.lock(name);
        if !known.is_there {
            self.create_named(name)?;
            known.is_there = true;
        }
        let range = ByteRange::new(at, bytes.len() as u64);
        match self.write_made(name, range, true, |_, _| Ok(Cow::Borrowed(&bytes))) {
            Ok(_) => {
                journal.written();
                Ok(())
            }
            Err(Status::NoSuchObject) => {
                // Somebody has removed it who may. What it knew is not believed any more.
                *known = Known::default();
                Err(Status::Busy)
            }
            Err(status) => Err(status),
        }
    }

    /// Removes the journals of a partition that has no objects but those.
    pub(crate) fn remove_journals(&self, partition: PartitionId) -> Result<(), Status> {
        let groups = {
            let state = self.state();
            let record = state.partitions.get(&partition).ok_or(Status::NoSuchPartition)?;
            record.groups.count() as u64
        };
        let first = ObjectName { partition, object: ObjectId(FIRST_JOURNAL) };
        let objects: Vec<ObjectId> =
            (0..groups).map(|group| ObjectId(first.object.0 + group)).collect();
        self.learn_versions(partition, &objects);
        for object in objects {
            let name = ObjectName { object, ..first };
            if self.versions.get(name).is_some() {
                self.remove_whole(name, true)?;
            }
        }
        self.journals.forget_all();
        Ok(())
    }
}

/// What an append is to a journal, by which the object ends at `end` at the latest.
fn find(
    journal: &Journal,
    (name, append): (ObjectName, &Append<'_>),
    end: u64,
    now: Timestamp,
) -> Result<Found, Status> {
    let length = append.bytes.len() as u64;
    match journal.find(name.object, append.token) {
        Some(entry) if entry.range.length != length => return Err(Status::TooLarge),
        Some(entry) if entry.outcome == Outcome::Made => {
            return Ok(Found::Made(entry.range.offset));
        }
        Some(entry) => return Ok(Found::Begun(entry.range.offset)),
        None => {}
    }
    if append.since.is_some_and(|since| journal.may_have_forgotten(since)) {
        return Err(Status::Forgotten);
    }
    // Who may have a place in front of it comes first.
    let at = end.max(journal.earliest(name.object, now).ok_or(Status::Busy)?);
    let range = ByteRange::new(at, length);
    if range.end() > MAX_OBJECT_BYTES {
        return Err(Status::TooLarge);
    }
    match append.within.contains(&range) {
        true => Ok(Found::New(at)),
        false => Err(Status::RefusedRegion),
    }
}
