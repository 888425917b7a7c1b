//! Changes of several objects: decided by one write to the intent log, then done step by step.
//!
//! ```text
//! all locks held -> write the intent (decided) -> steps -> clear the slot -> locks released
//! ```
//!
//! * The manager dies before the intent is durable: nothing has happened. After: the next manager
//!   does the steps at its start. It does no harm to do a step again, since nobody else touched
//!   the objects as long as the slot was not clear.
//! * A drive goes away in between: the steps that are left are written to the slot in place of
//!   all, and the change stays *pending*. Locks are released, and whoever next wants one of the
//!   objects left to be changed finishes the change first, or learns that the drive is away.
//! * The first step fails for good (no space): nothing has happened yet, and the slot is cleared.
//! * Whether the intent was written is unknown: the slot must be cleared before anybody touches
//!   the objects again; until then the change is pending as one to be given up.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus};
use nasd_types::{FsSpecific, SetAttributes};

use super::contents::NotChanged;
use super::{Namespace, Outcome, failure};
use crate::directory::Entry;
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::intent::{self, SLOT_BYTES, SLOTS, Step};
use crate::locks::Wants;
use crate::objects::{ObjectError, Wait};

/// How long to wait for a free slot: others are at work on theirs.
const SLOT_WAIT: Duration = Duration::from_secs(10);

/// A change that is decided but not done, or to be given up but still in the log.
#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    slot: usize,
    steps: Vec<Step>,
    give_up: bool,
}

impl Pending {
    fn subjects(&self) -> impl Iterator<Item = FileHandle> {
        self.steps.iter().map(Step::subject)
    }
}

/// The log's state in memory.
#[derive(Debug)]
pub(super) struct IntentLog {
    free: Mutex<Vec<usize>>,
    freed: Condvar,
    pending: Mutex<Vec<Pending>>,
    /// Length of `pending`: nearly always 0, and asked for by every operation.
    pending_count: AtomicUsize,
    next_number: AtomicU64,
}

/// A change of several objects that is not done.
#[derive(Debug)]
pub(super) enum NotCommitted {
    /// Nothing has happened, because this object's drive is away: wait without locks, try again.
    Away(FileHandle),
    /// Nothing has happened; this is the answer.
    Failed(ManagerStatus),
    /// It is decided, but must be finished without the caller's locks; its number.
    Unfinished(u64),
}

impl IntentLog {
    pub(super) fn new() -> Self {
        IntentLog {
            free: Mutex::new((0..SLOTS).rev().collect()),
            freed: Condvar::new(),
            pending: Mutex::new(Vec::new()),
            pending_count: AtomicUsize::new(0),
            next_number: AtomicU64::new(0),
        }
    }

    /// Whether a change of one of these is pending.
    pub(super) fn is_pending(&self, handles: impl Iterator<Item = FileHandle>) -> bool {
        self.pending_count.load(Ordering::Acquire) != 0 && self.find(handles).is_some()
    }

    fn find(&self, handles: impl Iterator<Item = FileHandle>) -> Option<Pending> {
        let handles: HashSet<FileHandle> = handles.collect();
        let pending = self.pending();
        pending.iter().find(|change| change.subjects().any(|one| handles.contains(&one))).cloned()
    }

    fn get(&self, number: u64) -> Option<Pending> {
        self.pending().iter().find(|change| change.number == number).cloned()
    }

    fn take_slot(&self) -> Option<usize> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut free, _) = self
            .freed
            .wait_timeout_while(free, SLOT_WAIT, |free| free.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        free.pop()
    }

    fn free_slot(&self, slot: usize) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        self.freed.notify_one();
    }

    /// Takes note of a change found in the log at the start.
    pub(super) fn adopt(&self, slot: usize, steps: Vec<Step>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.retain(|other| *other != slot);
        drop(free);
        self.add_pending(slot, steps, false);
    }

    /// Numbers of all pending changes.
    pub(super) fn pending_numbers(&self) -> Vec<u64> {
        self.pending().iter().map(|change| change.number).collect()
    }

    fn add_pending(&self, slot: usize, steps: Vec<Step>, give_up: bool) -> u64 {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let mut pending = self.pending();
        pending.push(Pending { number, slot, steps, give_up });
        self.pending_count.store(pending.len(), Ordering::Release);
        number
    }

    /// The first steps of a pending change are done, and no longer in the log.
    fn shorten_pending(&self, number: u64, steps: &[Step]) {
        for change in self.pending().iter_mut().filter(|change| change.number == number) {
            change.steps = steps.to_vec();
        }
    }

    fn remove_pending(&self, change: &Pending) {
        let mut pending = self.pending();
        pending.retain(|other| other.number != change.number);
        self.pending_count.store(pending.len(), Ordering::Release);
        drop(pending);
        self.free_slot(change.slot);
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Namespace {
    /// Does a change of several objects, whose locks the caller holds alone. Waits briefly for
    /// drives, since others wait for the locks. The first step must be one that changes a
    /// directory; the one that may lack space.
    pub(super) fn commit(&self, steps: Vec<Step>) -> Result<(), NotCommitted> {
        let slot = self.log.take_slot();
        let slot = slot.ok_or(NotCommitted::Failed(ManagerStatus::Unavailable))?;
        if let Err(error) = self.write_slot(slot, &steps, Wait::Brief) {
            let status = failure("write the intent log", self.volume.log, &error);
            if !error.is_certain() {
                self.give_up(slot, steps);
                return Err(NotCommitted::Failed(status));
            }
            self.log.free_slot(slot);
            return Err(match error.is_unavailable() {
                true => NotCommitted::Away(self.volume.log),
                false => NotCommitted::Failed(status),
            });
        }
        let (done, error) = self.do_steps(&steps, Wait::Brief);
        match error {
            Some(error) if done == 0 && error.certain => {
                let subject = steps.first().map(Step::subject);
                self.give_up(slot, steps);
                Err(match subject {
                    Some(subject) if error.unavailable => NotCommitted::Away(subject),
                    _ => NotCommitted::Failed(error.status),
                })
            }
            _ => self.settle(slot, steps, done),
        }
    }

    /// Clears the slot of a change that is done, or writes to it what is left to be done.
    fn settle(&self, slot: usize, steps: Vec<Step>, done: usize) -> Result<(), NotCommitted> {
        let written = done > 0 && self.write_slot(slot, &steps[done..], Wait::Brief).is_ok();
        if written && done == steps.len() {
            self.log.free_slot(slot);
            return Ok(());
        }
        // Steps that are still in the log would be done again, so their objects stay blocked.
        let left = if written { steps[done..].to_vec() } else { steps };
        Err(NotCommitted::Unfinished(self.log.add_pending(slot, left, false)))
    }

    /// Clears a slot whose change shall not happen.
    fn give_up(&self, slot: usize, steps: Vec<Step>) {
        match self.write_slot(slot, &[], Wait::Brief) {
            Ok(()) => self.log.free_slot(slot),
            Err(error) => {
                failure("clear the intent log", self.volume.log, &error);
                self.log.add_pending(slot, steps, true);
            }
        }
    }

    /// Finishes the pending changes of what is wanted.
    pub(super) fn finish_pending(&self, wants: &Wants) -> Outcome<()> {
        if self.log.pending_count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        while let Some(change) = self.log.find(wants.handles()) {
            self.finish(change.number, Wait::Patient)?;
        }
        Ok(())
    }

    /// Finishes a pending change, unless somebody else has. Holds no locks before.
    pub(super) fn finish(&self, number: u64, wait: Wait) -> Outcome<()> {
        let Some(change) = self.log.get(number) else {
            return Ok(());
        };
        let _held = self.locks.hold(change.subjects().fold(Wants::new(), Wants::write));
        let Some(change) = self.log.get(number) else {
            return Ok(());
        };
        if !change.give_up {
            let (done, error) = self.do_steps(&change.steps, wait);
            if let Some(error) = error {
                let left = &change.steps[done..];
                if done > 0 && self.write_slot(change.slot, left, Wait::Brief).is_ok() {
                    self.log.shorten_pending(number, left);
                }
                return Err(error.status);
            }
        }
        self.write_slot(change.slot, &[], wait)
            .map_err(|error| failure("clear the intent log", self.volume.log, &error))?;
        self.log.remove_pending(&change);
        Ok(())
    }

    /// After a failed commit and without locks: finishes what was decided, or waits for the drive.
    /// `Ok(true)` means that the change is done, `Ok(false)` that it must be tried again.
    pub(super) fn after_failed_commit(&self, error: NotCommitted) -> Outcome<bool> {
        match error {
            NotCommitted::Failed(status) => Err(status),
            NotCommitted::Unfinished(number) => self.finish(number, Wait::Patient).map(|()| true),
            NotCommitted::Away(object) => self
                .objects
                .getattr(object, Wait::Patient)
                .map(|_| false)
                .map_err(|error| failure("reach the drive", object, &error)),
        }
    }

    fn write_slot(&self, slot: usize, steps: &[Step], wait: Wait) -> Result<(), ObjectError> {
        let offset = (slot * SLOT_BYTES) as u64;
        self.objects.write(self.volume.log, offset, &intent::encode(steps)[..], wait)
    }

    /// Does steps in order up to the first that fails; returns how many are done.
    fn do_steps(&self, steps: &[Step], wait: Wait) -> (usize, Option<NotChanged>) {
        for (done, step) in steps.iter().enumerate() {
            if let Err(error) = self.do_step(step, wait) {
                return (done, Some(error));
            }
        }
        (steps.len(), None)
    }

    /// Does a step, or finds that it is done. The same for a change under way and for one that an
    /// earlier manager has left.
    fn do_step(&self, step: &Step, wait: Wait) -> Result<(), NotChanged> {
        match step {
            Step::SetEntry { directory, name, handle, file_type } => {
                let entry = Entry { name, handle: *handle, file_type: *file_type };
                self.set_entry(*directory, &entry, wait)
            }
            Step::RemoveEntry { directory, name, handle } => {
                self.remove_entry(*directory, name, *handle, wait)
            }
            Step::SetRecord { object, record } => self.set_record(*object, record, wait),
            Step::RemoveObject { object } => {
                self.doom(*object);
                self.reap(*object, Wait::Brief);
                Ok(())
            }
        }
    }

    /// Makes a name name something, whatever it named before.
    fn set_entry(
        &self,
        directory: FileHandle,
        entry: &Entry<'_>,
        wait: Wait,
    ) -> Result<(), NotChanged> {
        self.change_directory(directory, wait, |contents| match contents.find(entry.name) {
            Some(found) if found == *entry => Ok(None),
            Some(_) => Ok(contents.plan_replace(entry)),
            None => contents.plan_insert(entry).map(Some).ok_or(ManagerStatus::NoSpace),
        })
    }

    /// Removes a name that names this.
    pub(super) fn remove_entry(
        &self,
        directory: FileHandle,
        name: &[u8],
        handle: FileHandle,
        wait: Wait,
    ) -> Result<(), NotChanged> {
        self.change_directory(directory, wait, |contents| {
            let names_it = contents.find(name).is_some_and(|found| found.handle == handle);
            Ok(if names_it { contents.plan_remove(name) } else { None })
        })
    }

    fn set_record(
        &self,
        object: FileHandle,
        record: &FsSpecific,
        wait: Wait,
    ) -> Result<(), NotChanged> {
        let changes =
            SetAttributes { fs_specific: Some(Box::new(*record)), ..SetAttributes::default() };
        match self.objects.setattr(object, &changes, wait) {
            Ok(_) => {
                if let Ok(parsed) = FileRecord::parse(record) {
                    self.remember(object, parsed);
                }
                Ok(())
            }
            Err(ObjectError::NoSuchObject) => {
                tracing::error!(object = %Shown(object), "a file to be changed is missing");
                Ok(())
            }
            Err(error) => {
                self.forget(object);
                Err(NotChanged {
                    status: failure("change the record", object, &error),
                    certain: error.is_certain(),
                    unavailable: error.is_unavailable(),
                })
            }
        }
    }
}

/// The step that makes `name` name a file.
pub(super) fn set_entry_step(
    directory: FileHandle,
    name: &[u8],
    handle: FileHandle,
    file_type: FileType,
) -> Step {
    Step::SetEntry { directory, name: name.to_vec(), handle, file_type }
}

/// The step that removes `name`, which names a file.
pub(super) fn remove_entry_step(directory: FileHandle, name: &[u8], handle: FileHandle) -> Step {
    Step::RemoveEntry { directory, name: name.to_vec(), handle }
}

/// The step that sets a file's record.
pub(super) fn set_record_step(object: FileHandle, record: &FileRecord) -> Step {
    Step::SetRecord { object, record: record.to_bytes() }
}
