//! Locks on files and directories, taken all at once and in one order.
//!
//! An operation names what it reads and what it changes, and gets all of it together. While one of
//! its locks is not to be had it waits for that one and holds none of the others: whoever holds it
//! may be waiting for a drive that is away, and the other files have nothing to do with that. An
//! operation that finds one lock or another taken time and again takes them in the order of
//! handles at last, waiting for each; as all do that in the same order, and nobody asks for more
//! while holding some, nobody waits in a circle. A waiting writer goes before later readers.
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

/// How often an operation lets go of what it has before it insists.
const POLITE_ROUNDS: usize = 32;

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

    /// In the order of taking, each once, in the stronger mode.
    fn ordered(mut self) -> Vec<(Key, Mode)> {
        self.0.sort_unstable_by(|one, other| (order(one.0), other.1).cmp(&(order(other.0), one.1)));
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
        let wait = |state| self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
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

    fn try_take(&self, mode: Mode) -> bool {
        let mut state = self.state();
        match mode {
            Mode::Shared if state.writer || state.waiting_writers > 0 => false,
            Mode::Shared => {
                state.readers += 1;
                true
            }
            Mode::Exclusive if state.writer || state.readers > 0 => false,
            Mode::Exclusive => {
                state.writer = true;
                true
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
        let wanted = wants.ordered();
        let mut taken = None;
        for _ in 0..POLITE_ROUNDS {
            let mut held = Held { table: self, locks: Vec::with_capacity(wanted.len()) };
            if let Some(position) = taken {
                held.take(wanted[position]);
            }
            let others = (0..wanted.len()).filter(|position| Some(*position) != taken);
            taken = others.into_iter().find(|position| !held.try_take(wanted[*position]));
            if taken.is_none() {
                return held;
            }
        }
        let mut held = Held { table: self, locks: Vec::with_capacity(wanted.len()) };
        wanted.into_iter().for_each(|want| held.take(want));
        held
    }

    /// The same if nothing has to be waited for.
    pub(crate) fn try_hold(&self, wants: Wants) -> Option<Held<'_>> {
        let wanted = wants.ordered();
        let mut held = Held { table: self, locks: Vec::with_capacity(wanted.len()) };
        wanted.into_iter().all(|want| held.try_take(want)).then_some(held)
    }

    fn lock(&self, key: Key) -> Arc<Lock> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(key).or_default())
    }

    /// Takes a lock that nobody holds or waits for out of the table.
    fn tidy(&self, key: Key, lock: &Arc<Lock>) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // The table's reference and the caller's: nobody else has found it, and nobody can now.
        if Arc::strong_count(lock) == 2 {
            locks.remove(&key);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.locks.lock().map_or(0, |locks| locks.len())
    }
}

impl Held<'_> {
    fn take(&mut self, (key, mode): (Key, Mode)) {
        let lock = self.table.lock(key);
        lock.take(mode);
        self.locks.push((key, mode, lock));
    }

    fn try_take(&mut self, (key, mode): (Key, Mode)) -> bool {
        let lock = self.table.lock(key);
        let taken = lock.try_take(mode);
        if taken {
            self.locks.push((key, mode, lock));
        } else {
            self.table.tidy(key, &lock);
        }
        taken
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (key, mode, lock) in self.locks.drain(..) {
            lock.release(mode);
            self.table.tidy(key, &lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn file(object: u64) -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) }
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
                        let wants = Wants::new().write(file(one as u64)).read(file(other as u64));
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
        let wants = Wants::new().read(file(2)).write(file(1)).write(file(2)).read(file(2));
        let ordered = wants.ordered();
        assert_eq!(ordered.len(), 2);
        assert!(ordered.iter().all(|(_, mode)| *mode == Mode::Exclusive));
        assert_eq!(ordered[0].0.0, file(1));
    }

    #[test]
    fn nothing_is_held_while_waiting() {
        let table = LockTable::default();
        let busy = table.hold(Wants::new().write(file(2)));
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| drop(table.hold(Wants::new().write(file(1)).write(file(2)))));
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(table.hold(Wants::new().write(file(1))));
            assert!(!waiter.is_finished());
            drop(busy);
        });
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn who_does_not_wait_gets_all_or_nothing() {
        let table = LockTable::default();
        let busy = table.hold(Wants::new().write(file(2)));
        assert!(table.try_hold(Wants::new().read(file(1)).read(file(2))).is_none());
        assert!(table.try_hold(Wants::new().write(file(1))).is_some());
        drop(busy);
        let one = table.try_hold(Wants::new().read(file(2)));
        assert!(one.is_some() && table.try_hold(Wants::new().read(file(2))).is_some());
        drop(one);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn position_and_contents_are_apart() {
        let table = LockTable::default();
        let _contents = table.hold(Wants::new().write(file(1)));
        let _position = table.hold(Wants::new().position(file(1), Mode::Exclusive));
    }
}
