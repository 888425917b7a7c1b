//! Locks on files and directories, taken all at once and in one order.
//!
//! An operation names what it reads and what it changes and gets all of it together, in the order
//! of handles, so that no two operations can wait for each other in a circle. Nobody asks for
//! more while holding some. A waiting writer goes before later readers.
//!
//! Each handle has two locks:
//! * [`Aspect::Contents`]: the file's record, and what a directory contains;
//! * [`Aspect::Position`]: where a directory lies, its `..`. Moving a directory to another parent
//!   holds it alone, and shares those of all directories above the new place, so that none of them
//!   can be moved below the first one meanwhile. Operations that create and remove names in those
//!   directories are not held up by that.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nasd_protocol::manager::FileHandle;

/// Which of a handle's locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Aspect {
    Contents,
    Position,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

type Key = (FileHandle, Aspect);

/// What an operation wants to hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants(Vec<(Key, Mode)>);

impl Wants {
    pub(crate) fn new() -> Self {
        Wants::default()
    }

    pub(crate) fn read(mut self, handle: FileHandle) -> Self {
        self.0.push(((handle, Aspect::Contents), Mode::Shared));
        self
    }

    pub(crate) fn write(mut self, handle: FileHandle) -> Self {
        self.0.push(((handle, Aspect::Contents), Mode::Exclusive));
        self
    }

    pub(crate) fn position(mut self, handle: FileHandle, mode: Mode) -> Self {
        self.0.push(((handle, Aspect::Position), mode));
        self
    }

    /// Whose contents are wanted.
    pub(crate) fn handles(&self) -> impl Iterator<Item = FileHandle> {
        let contents = self
            .0
            .iter()
            .filter(|((_, aspect), _)| *aspect == Aspect::Contents);
        contents.map(|((handle, _), _)| *handle)
    }

    /// In the order of taking, each once, in the stronger mode.
    fn ordered(mut self) -> Vec<(Key, Mode)> {
        self.0
            .sort_unstable_by(|one, other| (order(one.0), other.1).cmp(&(order(other.0), one.1)));
        self.0.dedup_by_key(|(key, _)| *key);
        self.0
    }
}

fn order((handle, aspect): Key) -> (u64, u32, u64, Aspect) {
    (handle.drive.0, handle.partition.0, handle.object.0, aspect)
}

#[derive(Debug, Default)]
struct State {
    readers: usize,
    writer: bool,
    waiting_writers: usize,
}

#[derive(Debug, Default)]
struct Lock {
    state: Mutex<State>,
    changed: Condvar,
}

impl Lock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, mode: Mode) {
        let wait = |state| {
            self.changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner)
        };
        let mut state = self.state();
        match mode {
            Mode::Shared => {
                while state.writer || state.waiting_writers > 0 {
                    state = wait(state);
                }
                state.readers += 1;
            }
            Mode::Exclusive => {
                state.waiting_writers += 1;
                while state.writer || state.readers > 0 {
                    state = wait(state);
                }
                state.waiting_writers -= 1;
                state.writer = true;
            }
        }
    }

    fn release(&self, mode: Mode) {
        let mut state = self.state();
        match mode {
            Mode::Shared => state.readers -= 1,
            Mode::Exclusive => state.writer = false,
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// All locks that somebody holds or waits for.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    locks: Mutex<HashMap<Key, Arc<Lock>>>,
}

/// Locks held until dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    table: &'a LockTable,
    locks: Vec<(Key, Mode, Arc<Lock>)>,
}

impl LockTable {
    /// Takes all that is wanted; waits as long as it takes.
    pub(crate) fn hold(&self, wants: Wants) -> Held<'_> {
        let mut held = Held {
            table: self,
            locks: Vec::new(),
        };
        for (key, mode) in wants.ordered() {
            let lock = {
                let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(locks.entry(key).or_default())
            };
            lock.take(mode);
            held.locks.push((key, mode, lock));
        }
        held
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.locks.lock().unwrap().len()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (key, mode, lock) in self.locks.drain(..) {
            lock.release(mode);
            let mut locks = self
                .table
                .locks
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // The table's reference and ours: nobody else has found it, and nobody can now.
            if Arc::strong_count(&lock) == 2 {
                locks.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn file(object: u64) -> FileHandle {
        FileHandle {
            drive: DriveId(1),
            partition: PartitionId(1),
            object: ObjectId(object),
        }
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let table = LockTable::default();
        let inside = [const { AtomicUsize::new(0) }; 3];
        std::thread::scope(|scope| {
            for worker in 0..6usize {
                let (table, inside) = (&table, &inside);
                scope.spawn(move || {
                    for turn in 0..500 {
                        let (one, other) = ((worker + turn) % 3, (worker * 7 + turn / 2) % 3);
                        // Orders differ on purpose; one of the two may be the same file.
                        let wants = Wants::new()
                            .write(file(one as u64))
                            .read(file(other as u64));
                        let held = table.hold(wants);
                        assert_eq!(inside[one].fetch_add(1, Ordering::SeqCst), 0);
                        assert_eq!(inside[one].fetch_sub(1, Ordering::SeqCst), 1);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn the_stronger_mode_is_taken_once() {
        let wants = Wants::new()
            .read(file(2))
            .write(file(1))
            .write(file(2))
            .read(file(2));
        let ordered = wants.ordered();
        assert_eq!(ordered.len(), 2);
        assert!(ordered.iter().all(|(_, mode)| *mode == Mode::Exclusive));
        assert_eq!(ordered[0].0.0, file(1));
    }

    #[test]
    fn position_and_contents_are_apart() {
        let table = LockTable::default();
        let _contents = table.hold(Wants::new().write(file(1)));
        let _position = table.hold(Wants::new().position(file(1), Mode::Exclusive));
    }
}
