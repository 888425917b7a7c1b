//! Replaying an entry of the log, which may change objects all over the tree.
//!
//! The pages that its changes need are read before they are needed, by several threads: else the drive
//! waited for one page at a time. And it is committed in parts, none of them durable, whose pages fit
//! the tree's cache: a commit reads again what it has changed and the cache does not have any more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use nasd_types::ObjectName;
use redb::{ReadTransaction, ReadableDatabase};

use super::apply::Effects;
use super::record::{self, ExtentKey, LogMark, groups};
use super::tables::{EXTENTS, OBJECTS, SMALL, SUMS};
use super::{Metadata, TreeError};
use crate::free_map::Run;
use crate::log::Change;

/// Changes that are looked ahead at: what they need fits the smallest cache.
const WINDOW: usize = 1024;

/// Changes that are committed together.
const COMMITTED: usize = 1024;

/// Changes that a thread takes at a time.
const PART: usize = 16;

/// Threads that read ahead.
const THREADS: usize = 8;

/// How far the changes have been applied.
#[derive(Default)]
struct Progress {
    applied: Mutex<usize>,
    moved: Condvar,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, applied: usize) {
        *self.lock() = applied;
        self.moved.notify_all();
    }

    /// Waits until change `at` is within the window, or behind what is applied.
    fn wait_for(&self, at: usize) {
        let far = |applied: &mut usize| at > applied.saturating_add(WINDOW);
        drop(self.moved.wait_while(self.lock(), far).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Lets nobody wait any more when it is dropped, whatever ended the changes.
struct Over<'a>(&'a Progress);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.set(usize::MAX);
    }
}

impl Metadata {
    /// Applies the changes of an entry of the log, and gives what each part of them did to `took`. A
    /// checkpoint has to follow.
    pub(crate) fn replay(
        &self,
        changes: &[Change],
        mark: LogMark,
        took: &mut dyn FnMut(Effects),
    ) -> Result<(), TreeError> {
        let (progress, next) = (Progress::default(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS.min(changes.len() / PART) {
                let ahead = || self.touch_parts(changes, &next, &progress);
                // Without them it only takes longer.
                let _ = thread::Builder::new().spawn_scoped(scope, ahead);
            }
            let _over = Over(&progress);
            for (number, part) in changes.chunks(COMMITTED).enumerate() {
                let mut transaction = self.begin()?;
                let effects = transaction.apply_noting(part.iter(), mark, &mut |applied| {
                    if applied.is_multiple_of(PART) {
                        progress.set(number * COMMITTED + applied);
                    }
                })?;
                transaction.commit()?;
                took(effects);
            }
            Ok(())
        })
    }

    /// Touches parts of the changes that no other thread does, until there are none.
    fn touch_parts(&self, changes: &[Change], next: &AtomicUsize, progress: &Progress) {
        let parts = changes.len().div_ceil(PART);
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= parts {
                return;
            }
            progress.wait_for(part * PART);
            let end = changes.len().min((part + 1) * PART);
            // Whoever applies the changes fails where this did.
            if self.touch(&changes[part * PART..end]).is_err() {
                return;
            }
        }
    }

    /// Reads what changes need, so that its pages are in the tree's cache.
    fn touch(&self, changes: &[Change]) -> Result<(), TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        for change in changes {
            match change {
                Change::PutObject(name, _) => touch_object(&read, *name)?,
                Change::RemoveObject(name) => {
                    touch_object(&read, *name)?;
                    touch_small(&read, *name)?;
                    touch_extents(&read, *name, 0)?;
                }
                Change::PutSmall(name, _) | Change::DropSmall(name) => {
                    touch_object(&read, *name)?;
                    touch_small(&read, *name)?;
                }
                Change::Clear { name, from, .. } => {
                    touch_object(&read, *name)?;
                    touch_extents(&read, *name, *from)?;
                }
                Change::Map { name, extent, .. } => {
                    touch_object(&read, *name)?;
                    touch_extents(&read, *name, extent.logical)?;
                    touch_sums(&read, extent.run())?;
                }
                Change::Clone { source, name, .. } => {
                    let source = ObjectName { object: *source, ..*name };
                    touch_object(&read, source)?;
                    touch_extents(&read, source, 0)?;
                }
                Change::Share(share) => {
                    let source = ObjectName { object: share.source, ..share.name };
                    touch_object(&read, source)?;
                    touch_extents(&read, source, share.from)?;
                    touch_object(&read, share.name)?;
                    touch_extents(&read, share.name, share.to)?;
                }
                Change::PutPartition(..)
                | Change::RemovePartition(_)
                | Change::CopyPartition { .. }
                | Change::PutDriveKeys(_)
                | Change::PutCounters(_)
                | Change::Appended(_)
                | Change::Move { .. } => {}
            }
        }
        Ok(())
    }
}

fn touch_object(read: &ReadTransaction, name: ObjectName) -> Result<(), TreeError> {
    read.open_table(OBJECTS)?.get(&record::object_key(name))?;
    Ok(())
}

fn touch_small(read: &ReadTransaction, name: ObjectName) -> Result<(), TreeError> {
    read.open_table(SMALL)?.get(&record::object_key(name))?;
    Ok(())
}

fn touch_extents(read: &ReadTransaction, name: ObjectName, from: u64) -> Result<(), TreeError> {
    let table = read.open_table(EXTENTS)?;
    let (first, last) = (record::extent_key(name, from), record::extent_key(name, u64::MAX));
    if let Some(entry) = table.range::<&ExtentKey>(&first..=&last)?.next() {
        entry?;
    }
    Ok(())
}

fn touch_sums(read: &ReadTransaction, run: Run) -> Result<(), TreeError> {
    let table = read.open_table(SUMS)?;
    for (group, ..) in groups(run) {
        table.get(group)?;
    }
    Ok(())
}
