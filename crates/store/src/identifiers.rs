//! Object identifiers: each is given out once in the life of the drive.
//!
//! The tree keeps a limit below which every identifier may have been given out. Identifiers are
//! given out only below it, and an open starts at it, so that a create that a crash undoes still
//! uses its identifier up. The limit moves ahead in steps, mostly with commits that happen anyway.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::ObjectId;

/// How far the limit moves at a time.
const STEP: u64 = 4096;

/// The limit is moved with any commit when fewer are left.
const LOW: u64 = STEP / 2;

#[derive(Debug)]
struct Counter {
    next: u64,
    limit: u64,
}

/// Gives identifiers out.
#[derive(Debug)]
pub(crate) struct Identifiers(Mutex<Counter>);

impl Identifiers {
    /// Starts at the limit that the tree has.
    pub(crate) fn new(limit: u64) -> Identifiers {
        Identifiers(Mutex::new(Counter { next: limit, limit }))
    }

    fn counter(&self) -> MutexGuard<'_, Counter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new identifier, or `None` when a commit has to move the limit first.
    pub(crate) fn take(&self) -> Option<ObjectId> {
        let mut counter = self.counter();
        if counter.next >= counter.limit {
            return None;
        }
        counter.next += 1;
        Some(ObjectId(counter.next - 1))
    }

    /// The limit that the next commit should write, if it should write one.
    pub(crate) fn wanted_limit(&self) -> Option<u64> {
        let counter = self.counter();
        let left = counter.limit - counter.next;
        (left < LOW).then(|| counter.next.saturating_add(STEP))
    }

    /// The durable limit.
    pub(crate) fn limit(&self) -> u64 {
        self.counter().limit
    }

    /// The limit that would give back everything that was not given out.
    pub(crate) fn lowest_limit(&self) -> u64 {
        self.counter().next
    }

    /// A commit wrote this limit.
    pub(crate) fn committed(&self, limit: u64) {
        let mut counter = self.counter();
        counter.limit = counter.limit.max(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_given_out_at_or_above_the_durable_limit() {
        let identifiers = Identifiers::new(64);
        assert_eq!(identifiers.take(), None);
        let limit = identifiers.wanted_limit().unwrap();
        assert_eq!(identifiers.take(), None, "wanted is not yet durable");
        identifiers.committed(limit);
        assert_eq!(identifiers.wanted_limit(), None);
        for expected in 64..limit {
            assert_eq!(identifiers.take(), Some(ObjectId(expected)));
        }
        assert_eq!(identifiers.take(), None);
        assert_eq!(identifiers.lowest_limit(), limit);
    }
}
