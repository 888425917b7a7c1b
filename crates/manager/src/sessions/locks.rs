//! Locks of all files, and who waits for them. Pure.
//!
//! A request that can't be granted may be queued. When locks go, those who have waited longest and
//! would get what they want now are told to ask again; they are not queued any more then, and what
//! they were told of may be gone once more when they ask.

use std::collections::{HashMap, HashSet, VecDeque};

use nasd_protocol::manager::{FileHandle, LockKind};

use nasd_protocol::range_locks::{LockOwner, LockRange, RangeLock, RangeLocks};

/// A file's locks of one kind.
pub type LockedFile = (FileHandle, LockKind);

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    /// The owner has the lock.
    Granted,
    /// Somebody else's is in the way.
    Denied(RangeLock),
    /// The same; the client will be told when to ask again.
    Queued(RangeLock),
    /// To wait would be for ever: the others wait for this owner.
    Deadlock,
    /// The client or the file has as many locks as are allowed.
    TooMany,
}

#[derive(Debug, Default)]
struct FileLocks {
    held: RangeLocks,
    queue: VecDeque<RangeLock>,
}

impl FileLocks {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// How many locks and waiting requests each client has here.
    fn tally(&self) -> HashMap<u64, usize> {
        let mut tally = HashMap::new();
        for lock in self.held.iter().chain(&self.queue) {
            *tally.entry(lock.owner.client).or_default() += 1;
        }
        tally
    }

    /// Takes those out of the queue who would get what they want, first come, first served.
    fn take_served(&mut self) -> Vec<u64> {
        if self.queue.is_empty() {
            return Vec::new();
        }
        let mut then = self.held.clone();
        let mut served = Vec::new();
        self.queue.retain(|waiter| {
            let waits = then.conflict(waiter).is_some();
            if !waits {
                then.set(*waiter);
                served.push(waiter.owner.client);
            }
            waits
        });
        served.sort_unstable();
        served.dedup();
        served
    }
}

/// Clients to be told that a lock may be had.
pub type Wakeups = Vec<(u64, LockedFile)>;

/// Most locks and waiting requests of one client.
pub const MAX_LOCKS_PER_CLIENT: usize = 1 << 16;

/// Most locks on one file: each request looks at all of them.
pub const MAX_LOCKS_PER_FILE: usize = 1 << 14;

/// What a client has in the table.
#[derive(Debug, Default)]
struct Share {
    /// Locks and waiting requests.
    count: usize,
    /// Where they are.
    files: HashSet<LockedFile>,
}

/// The locks of all files.
#[derive(Debug, Default)]
pub struct LockTable {
    files: HashMap<LockedFile, FileLocks>,
    clients: HashMap<u64, Share>,
}

impl LockTable {
    /// Asks for a lock; with `wait`, also for being told when to ask again.
    pub fn lock(
        &mut self,
        file: LockedFile,
        wanted: RangeLock,
        wait: bool,
    ) -> (LockAnswer, Wakeups) {
        if self.is_full(file, wanted.owner.client) {
            return (LockAnswer::TooMany, Vec::new());
        }
        let conflict = self.test(file, &wanted);
        if let Some(conflict) = conflict {
            if !wait {
                return (LockAnswer::Denied(conflict), Vec::new());
            }
            if file.1 == LockKind::Posix && self.would_wait_for_itself(file, &wanted) {
                return (LockAnswer::Deadlock, Vec::new());
            }
        }
        let wakeups = self.change(file, |locks| {
            let is_it = |waiter: &RangeLock| is_same_request(waiter, &wanted);
            match conflict {
                None => {
                    locks.queue.retain(|waiter| !is_it(waiter));
                    locks.held.set(wanted);
                }
                Some(_) if locks.queue.iter().any(is_it) => {}
                Some(_) => locks.queue.push_back(wanted),
            }
        });
        (conflict.map_or(LockAnswer::Granted, LockAnswer::Queued), wakeups)
    }

    fn is_full(&self, file: LockedFile, client: u64) -> bool {
        let count = |locks: &FileLocks| locks.held.len() + locks.queue.len();
        self.clients.get(&client).is_some_and(|share| share.count >= MAX_LOCKS_PER_CLIENT)
            || self.files.get(&file).is_some_and(|locks| count(locks) >= MAX_LOCKS_PER_FILE)
    }

    /// Who would be in the way of such a lock.
    pub fn test(&self, file: LockedFile, wanted: &RangeLock) -> Option<RangeLock> {
        self.files.get(&file)?.held.conflict(wanted)
    }

    /// Lets go of an owner's locks on these bytes, and of its waiting requests within them.
    pub fn unlock(&mut self, file: LockedFile, owner: LockOwner, range: LockRange) -> Wakeups {
        if !self.files.contains_key(&file) {
            return Vec::new();
        }
        self.change(file, |locks| {
            locks.held.clear(owner, range);
            locks.queue.retain(|waiter| waiter.owner != owner || !range.contains(waiter.range));
        })
    }

    /// An owner does not wait any more for locks within these bytes.
    pub fn stop_waiting(
        &mut self,
        file: LockedFile,
        owner: LockOwner,
        range: LockRange,
    ) -> Wakeups {
        if !self.files.contains_key(&file) {
            return Vec::new();
        }
        self.change(file, |locks| {
            locks.queue.retain(|waiter| waiter.owner != owner || !range.contains(waiter.range));
        })
    }

    /// A client is gone, and with it all that it held and waited for.
    pub fn remove_client(&mut self, client: u64) -> Wakeups {
        let share = self.clients.remove(&client).unwrap_or_default();
        let mut wakeups = Vec::new();
        for file in share.files {
            wakeups.extend(self.change(file, |locks| {
                locks.held.clear_client(client);
                locks.queue.retain(|waiter| waiter.owner.client != client);
            }));
        }
        wakeups
    }

    /// A file is gone, and nobody has it open.
    pub fn remove_file(&mut self, handle: FileHandle) {
        for kind in [LockKind::Posix, LockKind::Flock] {
            if self.files.contains_key(&(handle, kind)) {
                self.change((handle, kind), |locks| *locks = FileLocks::default());
            }
        }
    }

    /// Locks that are held, and requests that wait.
    pub fn counts(&self) -> (usize, usize) {
        let of = |count: fn(&FileLocks) -> usize| self.files.values().map(count).sum();
        (of(|locks| locks.held.len()), of(|locks| locks.queue.len()))
    }

    /// Changes a file's locks, keeps the books, and tells who may be served now.
    fn change(&mut self, file: LockedFile, change: impl FnOnce(&mut FileLocks)) -> Wakeups {
        let locks = self.files.entry(file).or_default();
        let before = locks.tally();
        change(locks);
        let served = locks.take_served();
        let after = locks.tally();
        if locks.is_empty() {
            self.files.remove(&file);
        }
        for (client, count) in before {
            if let Some(share) = self.clients.get_mut(&client) {
                share.count -= count;
                share.files.remove(&file);
            }
        }
        for (client, count) in after {
            let share = self.clients.entry(client).or_default();
            share.count += count;
            share.files.insert(file);
        }
        served.into_iter().map(|client| (client, file)).collect()
    }

    /// Whether those in the way of a request wait, at last, for its owner.
    fn would_wait_for_itself(&self, file: LockedFile, wanted: &RangeLock) -> bool {
        let mut pending = self.owners_in_the_way(file, wanted);
        let mut seen: HashSet<LockOwner> = HashSet::new();
        while let Some(owner) = pending.pop() {
            if owner == wanted.owner {
                return true;
            }
            if !seen.insert(owner) {
                continue;
            }
            let places = self.clients.get(&owner.client).map(|share| &share.files);
            for place in places.into_iter().flatten().filter(|place| place.1 == LockKind::Posix) {
                let queue = self.files.get(place).map(|locks| &locks.queue).into_iter().flatten();
                for waiter in queue.filter(|waiter| waiter.owner == owner) {
                    pending.extend(self.owners_in_the_way(*place, waiter));
                }
            }
        }
        false
    }

    fn owners_in_the_way(&self, file: LockedFile, wanted: &RangeLock) -> Vec<LockOwner> {
        let Some(locks) = self.files.get(&file) else {
            return Vec::new();
        };
        locks.held.conflicts(wanted).map(|held| held.owner).collect()
    }
}

fn is_same_request(one: &RangeLock, other: &RangeLock) -> bool {
    (one.owner, one.range, one.mode) == (other.owner, other.range, other.mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_protocol::manager::LockMode;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn file(object: u64) -> LockedFile {
        let handle =
            FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) };
        (handle, LockKind::Posix)
    }

    fn lock(client: u64, first: u64, last: u64) -> RangeLock {
        let owner = LockOwner { client, owner: client };
        RangeLock { owner, range: LockRange { first, last }, mode: LockMode::Exclusive, process: 0 }
    }

    #[test]
    fn those_who_wait_are_told_in_their_order() {
        let mut table = LockTable::default();
        assert_eq!(table.lock(file(1), lock(1, 0, 9), true).0, LockAnswer::Granted);
        for client in 2..5 {
            let (answer, _) = table.lock(file(1), lock(client, 5, 7), true);
            assert_eq!(answer, LockAnswer::Queued(lock(1, 0, 9)));
            // Asking again does not queue again.
            table.lock(file(1), lock(client, 5, 7), true);
        }
        assert_eq!(table.counts(), (1, 3));
        let owner = lock(1, 0, 0).owner;
        assert_eq!(table.unlock(file(1), owner, LockRange::ALL), [(2, file(1))]);
        assert_eq!(table.lock(file(1), lock(2, 5, 7), true).0, LockAnswer::Granted);
        // The third gives up, the second dies: the fourth is next.
        table.unlock(file(1), lock(3, 0, 0).owner, LockRange::ALL);
        assert_eq!(table.remove_client(2), [(4, file(1))]);
        assert_eq!(table.counts(), (0, 0));
    }

    #[test]
    fn kinds_and_files_are_apart() {
        let mut table = LockTable::default();
        let flock = (file(1).0, LockKind::Flock);
        assert_eq!(table.lock(file(1), lock(1, 0, 9), false).0, LockAnswer::Granted);
        assert_eq!(table.lock(flock, lock(2, 0, 9), false).0, LockAnswer::Granted);
        assert_eq!(table.lock(file(2), lock(2, 0, 9), false).0, LockAnswer::Granted);
        assert_eq!(table.lock(file(1), lock(2, 9, 9), false).0, LockAnswer::Denied(lock(1, 0, 9)));
        assert_eq!(table.test(file(1), &lock(2, 10, 20)), None);
        table.remove_file(file(1).0);
        assert_eq!(table.counts(), (1, 0));
    }

    #[test]
    fn a_circle_of_waiting_is_refused() {
        let mut table = LockTable::default();
        for client in 1..4 {
            assert_eq!(table.lock(file(client), lock(client, 0, 0), true).0, LockAnswer::Granted);
        }
        assert!(matches!(table.lock(file(2), lock(1, 0, 0), true).0, LockAnswer::Queued(_)));
        assert!(matches!(table.lock(file(3), lock(2, 0, 0), true).0, LockAnswer::Queued(_)));
        assert_eq!(table.lock(file(1), lock(3, 0, 0), true).0, LockAnswer::Deadlock);
        assert!(matches!(table.lock(file(1), lock(3, 0, 0), false).0, LockAnswer::Denied(_)));
    }

    #[test]
    fn a_weaker_lock_lets_others_in() {
        let mut table = LockTable::default();
        let shared = |client| RangeLock { mode: LockMode::Shared, ..lock(client, 0, 9) };
        assert_eq!(table.lock(file(1), lock(1, 0, 9), false).0, LockAnswer::Granted);
        assert!(matches!(table.lock(file(1), shared(2), true).0, LockAnswer::Queued(_)));
        let (answer, wakeups) = table.lock(file(1), shared(1), false);
        assert_eq!((answer, wakeups), (LockAnswer::Granted, vec![(2, file(1))]));
        assert_eq!(table.lock(file(1), shared(2), true).0, LockAnswer::Granted);
    }
}
