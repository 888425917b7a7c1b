//! The locks of one file: POSIX byte ranges or flock, by owner. Manager and clients keep them in the
//! same way; who waits for what is the manager's affair.
//!
//! As POSIX has it: an owner's own locks never conflict; locking a range that the owner holds partly
//! replaces that part; unlocking may cut a lock in two. flock is the same with one range, all of the
//! file, in a table of its own: the two kinds don't see each other, as on Linux.

use std::fmt;

use crate::manager::LockMode;

/// Who holds a lock: a client, and a number that it gave to the owner (an open file, a process).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner {
    /// The client.
    pub client: u64,
    /// The client's number for the owner.
    pub owner: u64,
}

/// Bytes from `first` to `last`, both of them in it; `u64::MAX` is the end of any file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRange {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

impl LockRange {
    /// All of a file.
    pub const ALL: LockRange = LockRange { first: 0, last: u64::MAX };

    /// The range, unless it ends before it begins.
    pub const fn new(first: u64, last: u64) -> Option<LockRange> {
        if first <= last { Some(LockRange { first, last }) } else { None }
    }

    const fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether all of the other is in this one.
    pub const fn contains(self, other: LockRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the other begins right behind this one.
    fn is_followed_by(self, other: LockRange) -> bool {
        self.last.checked_add(1) == Some(other.first)
    }
}

impl fmt::Display for LockRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..={}", self.first, self.last)
    }
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLock {
    /// By whom.
    pub owner: LockOwner,
    /// On which bytes.
    pub range: LockRange,
    /// How.
    pub mode: LockMode,
    /// The process, as its host numbers it: for whoever asks who is in the way.
    pub process: u32,
}

/// The locks of one kind on one file. Each owner's are sorted, disjoint, and as few as can be.
#[derive(Clone, Debug, Default)]
pub struct RangeLocks {
    /// Sorted by owner and first byte.
    held: Vec<RangeLock>,
}

impl RangeLocks {
    /// Whether nothing is locked.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many locks there are.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Everything that is held.
    pub fn iter(&self) -> impl Iterator<Item = &RangeLock> {
        self.held.iter()
    }

    /// The lock of another owner that is in the way; of several, the one that begins first.
    pub fn conflict(&self, wanted: &RangeLock) -> Option<RangeLock> {
        self.conflicts(wanted).min_by_key(|held| held.range.first).copied()
    }

    /// All locks of other owners that are in the way.
    pub fn conflicts(&self, wanted: &RangeLock) -> impl Iterator<Item = &RangeLock> {
        self.held.iter().filter(move |held| {
            held.owner != wanted.owner
                && held.range.overlaps(wanted.range)
                && (held.mode == LockMode::Exclusive || wanted.mode == LockMode::Exclusive)
        })
    }

    /// Takes a lock, in place of what its owner had on those bytes. Conflicts have been looked for.
    pub fn set(&mut self, lock: RangeLock) {
        self.clear(lock.owner, lock.range);
        let at = self.position(lock.owner, lock.range.first);
        self.held.insert(at, lock);
        self.join_neighbours(at);
    }

    /// Lets go of what an owner holds on these bytes; whether that was anything.
    pub fn clear(&mut self, owner: LockOwner, range: LockRange) -> bool {
        let touched = |held: &RangeLock| held.owner == owner && held.range.overlaps(range);
        if !self.held.iter().any(touched) {
            return false;
        }
        let mut kept = Vec::with_capacity(self.held.len() + 1);
        for held in self.held.drain(..) {
            if !touched(&held) {
                kept.push(held);
                continue;
            }
            // The bytes before and behind stay locked.
            if held.range.first < range.first {
                let range = LockRange { first: held.range.first, last: range.first - 1 };
                kept.push(RangeLock { range, ..held });
            }
            if held.range.last > range.last {
                let range = LockRange { first: range.last + 1, last: held.range.last };
                kept.push(RangeLock { range, ..held });
            }
        }
        self.held = kept;
        true
    }

    /// Lets go of everything of a client; whether that was anything.
    pub fn clear_client(&mut self, client: u64) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.owner.client != client);
        self.held.len() != before
    }

    fn position(&self, owner: LockOwner, first: u64) -> usize {
        self.held.partition_point(|held| (held.owner, held.range.first) < (owner, first))
    }

    /// Makes one lock of those before and behind that are alike.
    fn join_neighbours(&mut self, at: usize) {
        let alike = |one: &RangeLock, next: &RangeLock| {
            one.owner == next.owner
                && one.mode == next.mode
                && one.process == next.process
                && one.range.is_followed_by(next.range)
        };
        if at + 1 < self.held.len() && alike(&self.held[at], &self.held[at + 1]) {
            self.held[at].range.last = self.held[at + 1].range.last;
            self.held.remove(at + 1);
        }
        if at > 0 && alike(&self.held[at - 1], &self.held[at]) {
            self.held[at - 1].range.last = self.held[at].range.last;
            self.held.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;
    const OWNERS: u64 = 3;

    fn owner(number: u64) -> LockOwner {
        LockOwner { client: number / 2, owner: number }
    }

    fn lock(number: u64, first: u64, last: u64, exclusive: bool) -> RangeLock {
        let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        RangeLock { owner: owner(number), range: LockRange { first, last }, mode, process: 1 }
    }

    /// The same, byte by byte.
    #[derive(Default)]
    struct Naive(std::collections::HashMap<(u64, u64), LockMode>);

    impl Naive {
        fn conflicts(&self, wanted: &RangeLock) -> bool {
            (wanted.range.first..=wanted.range.last).any(|byte| {
                (0..OWNERS).any(|other| {
                    let held = self.0.get(&(other, byte));
                    owner(other) != wanted.owner
                        && held.is_some_and(|mode| {
                            *mode == LockMode::Exclusive || wanted.mode == LockMode::Exclusive
                        })
                })
            })
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_single_bytes(
            steps in prop::collection::vec((0..OWNERS, 0..BYTES, 0..BYTES, 0..4u8), 1..60)
        ) {
            let (mut locks, mut naive) = (RangeLocks::default(), Naive::default());
            for (who, one, other, what) in steps {
                let wanted = lock(who, one.min(other), one.max(other), what == 0);
                let bytes = wanted.range.first..=wanted.range.last;
                if what == 3 {
                    let had = bytes.clone().any(|byte| naive.0.contains_key(&(who, byte)));
                    prop_assert_eq!(locks.clear(wanted.owner, wanted.range), had);
                    bytes.for_each(|byte| {
                        naive.0.remove(&(who, byte));
                    });
                    continue;
                }
                prop_assert_eq!(locks.conflict(&wanted).is_some(), naive.conflicts(&wanted));
                if locks.conflict(&wanted).is_none() {
                    locks.set(wanted);
                    bytes.for_each(|byte| {
                        naive.0.insert((who, byte), wanted.mode);
                    });
                }
                for who in 0..OWNERS {
                    for byte in 0..BYTES {
                        let of = |held: &&RangeLock| held.owner == owner(who)
                            && held.range.overlaps(LockRange { first: byte, last: byte });
                        let held: Vec<&RangeLock> = locks.iter().filter(of).collect();
                        prop_assert!(held.len() <= 1);
                        let expected = naive.0.get(&(who, byte));
                        prop_assert_eq!(held.first().map(|held| &held.mode), expected);
                    }
                }
                let pairs = locks.held.windows(2);
                for pair in pairs.filter(|pair| pair[0].owner == pair[1].owner) {
                    prop_assert!(pair[0].range.last < pair[1].range.first);
                    let joinable = pair[0].range.is_followed_by(pair[1].range);
                    prop_assert!(!joinable || pair[0].mode != pair[1].mode);
                }
            }
        }
    }

    #[test]
    fn the_end_of_the_file_is_no_overflow() {
        let mut locks = RangeLocks::default();
        locks.set(lock(1, 10, u64::MAX, true));
        assert!(locks.clear(owner(1), LockRange { first: 20, last: u64::MAX }));
        assert_eq!(locks.held, [lock(1, 10, 19, true)]);
        locks.set(lock(1, 20, u64::MAX, true));
        assert_eq!(locks.held, [lock(1, 10, u64::MAX, true)]);
        assert!(locks.clear(owner(1), LockRange::ALL));
        assert!(locks.is_empty() && !locks.clear(owner(1), LockRange::ALL));
    }

    #[test]
    fn a_client_that_goes_leaves_nothing() {
        let mut locks = RangeLocks::default();
        (0..4).for_each(|number| locks.set(lock(number, number * 10, number * 10 + 5, true)));
        assert!(locks.clear_client(0));
        assert_eq!(locks.len(), 2);
        assert!(!locks.clear_client(0));
        assert_eq!(LockRange::new(3, 2), None);
    }
}
