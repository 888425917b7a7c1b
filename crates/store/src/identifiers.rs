//! Object identifiers: each is given out once in the life of the drive.
//!
//! The tree keeps a limit below which every identifier may have been given out. Identifiers are
//! given out only below it, and an open starts at it, so that a create that a crash undoes still
//! uses its identifier up. The limit moves ahead in steps, mostly with commits that happen anyway.
//!
//! Those from `ObjectId::FIRST_NAMED` on are chosen by holders of keys, who see to that themselves. What is
//! seen to here is that two of them never make objects of one identifier at a time.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nasd_types::{ObjectId, ObjectName};

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
        if counter.next >= counter.limit || counter.next >= ObjectId::FIRST_NAMED.0 {
            return None;
        }
        counter.next += 1;
        Some(ObjectId(counter.next - 1))
    }

    /// None below this one is given out any more. Whether the durable limit is that high already; if not, a commit has to move it.
    pub(crate) fn pass(&self, end: ObjectId) -> bool {
        let mut counter = self.counter();
        counter.next = counter.next.max(end.0);
        counter.limit >= counter.next
    }

    /// The limit that the next commit should write, if it should write one.
    pub(crate) fn wanted_limit(&self) -> Option<u64> {
        let counter = self.counter();
        let left = counter.limit.saturating_sub(counter.next);
        (left < LOW).then(|| counter.next.saturating_add(STEP))
    }

    /// Whether those that the drive gives out are used up, so that no commit helps.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.counter().next >= ObjectId::FIRST_NAMED.0
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

/// Chosen identifiers of objects that are being made.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    names: Mutex<HashSet<ObjectName>>,
    /// One of them is nobody's any more.
    dropped: Condvar,
}

impl Claims {
    /// Claims an identifier. Waits for whoever has claimed it: only then is it known whether there is an
    /// object.
    pub(crate) fn take(&self, name: ObjectName) -> Claim<'_> {
        let mut names = self.names();
        while !names.insert(name) {
            names = self.dropped.wait(names).unwrap_or_else(PoisonError::into_inner);
        }
        Claim { claims: self, name }
    }

    fn names(&self) -> MutexGuard<'_, HashSet<ObjectName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to make an object of an identifier, as long as this is kept.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    claims: &'a Claims,
    name: ObjectName,
}

impl Claim<'_> {
    /// The identifier.
    pub(crate) fn object(&self) -> ObjectId {
        self.name.object
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.names().remove(&self.name);
        self.claims.dropped.notify_all();
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

    #[test]
    fn none_is_given_out_that_was_passed_by() {
        let identifiers = Identifiers::new(64);
        assert!(identifiers.pass(ObjectId(64)) && !identifiers.pass(ObjectId(9000)));
        assert_eq!(identifiers.take(), None, "that is not yet durable");
        let limit = identifiers.wanted_limit().unwrap();
        assert!(limit >= 9000);
        identifiers.committed(limit);
        assert!(identifiers.pass(ObjectId(9000)) && identifiers.pass(ObjectId(0)));
        assert_eq!(identifiers.take(), Some(ObjectId(9000)));
        assert_eq!(identifiers.lowest_limit(), 9001);
    }

    #[test]
    fn none_is_given_out_that_may_be_chosen() {
        let identifiers = Identifiers::new(ObjectId::FIRST_NAMED.0 - 1);
        identifiers.committed(identifiers.wanted_limit().unwrap());
        assert!(!identifiers.is_exhausted());
        assert_eq!(identifiers.take(), Some(ObjectId(ObjectId::FIRST_NAMED.0 - 1)));
        assert_eq!(identifiers.take(), None);
        assert!(identifiers.is_exhausted());
        assert!(Identifiers::new(u64::MAX).is_exhausted());
    }

    #[test]
    fn a_claim_is_waited_for() {
        let claims = Claims::default();
        let name = |object| ObjectName { partition: nasd_types::PartitionId(1), object };
        let (one, other) = (name(ObjectId::FIRST_NAMED), name(ObjectId(7)));
        let first = claims.take(one);
        assert_eq!(claims.take(other).object(), other.object);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _second = claims.take(one);
                order.lock().unwrap().push("second");
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            order.lock().unwrap().push("first");
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), ["first", "second"]);
        assert!(claims.names().is_empty());
    }
}
