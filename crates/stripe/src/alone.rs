//! Objects that nobody writes but the striping manager: how long they are, and when they were written last.
//!
//! A write through the virtual drive tells the length of the whole, which any component may have. Components need not be
//! asked for theirs while nobody else can have written them: what was learned at one write holds at the next. So a write to
//! a file manager's journal is one request to one drive, not one more to each.
//!
//! Nobody else can write who has no capability. None was given in this life of the striping manager to an object of which
//! nobody has asked for a map to write; those of another life are revoked by raising the version, when an object has been
//! written through the virtual drive often enough for that to be worth it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::{ObjectName, Timestamp};

use crate::recent::Recent;

/// After so many writes, with nobody asking for a map to write, the object is made the striping manager's own.
const WRITES: u32 = 16;

/// Most objects of which something is remembered.
const MOST: usize = 1 << 12;

/// What is known of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The instance of the virtual drive: with another one, what was not flushed may be lost.
    pub(crate) instance: u64,
    /// The generation of the places.
    pub(crate) generation: u64,
    pub(crate) length: u64,
    pub(crate) modified: Timestamp,
}

impl Known {
    /// Whether what is known holds at a write that came later.
    fn is_before(&self, written: &Known) -> bool {
        (self.instance, self.generation) == (written.instance, written.generation)
            && self.modified <= written.modified
    }
}

/// What to do after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: this is the whole.
    Known(Known),
    /// The components are to be asked.
    Ask,
    /// The same, after the version was raised.
    Claim,
}

#[derive(Clone, Copy, Debug)]
enum Standing {
    /// It was written so often.
    Counted(u32),
    /// Nobody else can write it.
    Alone(Option<Known>),
    /// Somebody else may.
    Shared,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Alone(Mutex<Recent<Standing>>);

impl Default for Alone {
    fn default() -> Alone {
        Alone(Mutex::new(Recent::new(MOST)))
    }
}

impl Alone {
    fn lock(&self) -> MutexGuard<'_, Recent<Standing>> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The striping manager has written an object, up to the `length` that is given, for who has the object's lock.
    pub(crate) fn wrote(&self, name: ObjectName, written: Known) -> Next {
        let mut all = self.lock();
        let (standing, next) = match all.get(name).unwrap_or(Standing::Counted(0)) {
            Standing::Alone(Some(known)) if known.is_before(&written) => {
                let known = Known { length: known.length.max(written.length), ..written };
                (Standing::Alone(Some(known)), Next::Known(known))
            }
            Standing::Alone(_) => (Standing::Alone(None), Next::Ask),
            Standing::Counted(count) if count + 1 >= WRITES => (Standing::Counted(0), Next::Claim),
            Standing::Counted(count) => (Standing::Counted(count + 1), Next::Ask),
            Standing::Shared => (Standing::Shared, Next::Ask),
        };
        all.put(name, standing);
        next
    }

    /// The version was raised since [`Next::Claim`] was told.
    pub(crate) fn claimed(&self, name: ObjectName) {
        let mut all = self.lock();
        // Who has got a capability meanwhile may have it of the new version.
        if let Some(Standing::Counted(_)) = all.get(name) {
            all.put(name, Standing::Alone(None));
        }
    }

    /// The components have told this since a write, for who has had the object's lock all the time. It is not
    /// remembered where another component was changed later: it may be written yet, and tell another time.
    pub(crate) fn learned(&self, name: ObjectName, written: Known, known: Known) {
        let mut all = self.lock();
        if let Some(Standing::Alone(_)) = all.get(name)
            && known.modified <= written.modified
        {
            all.put(name, Standing::Alone(Some(known)));
        }
    }

    /// Something is done to an object that is no write, or a write has failed, of which it is not known what was done, or
    /// will be yet: for who has its lock.
    pub(crate) fn changes(&self, name: ObjectName) {
        let mut all = self.lock();
        if let Some(Standing::Counted(_) | Standing::Alone(_)) = all.get(name) {
            all.put(name, Standing::Counted(0));
        }
    }

    /// A partition is no more.
    pub(crate) fn forget_all(&self) {
        self.lock().clear();
    }

    /// Somebody is given capabilities to write an object, of the version that it has now.
    pub(crate) fn shares(&self, name: ObjectName) {
        self.lock().put(name, Standing::Shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    fn name(object: u64) -> ObjectName {
        ObjectName { partition: PartitionId(1), object: ObjectId(object) }
    }

    fn written(length: u64) -> Known {
        Known { instance: 1, generation: 1, length, modified: Timestamp(5) }
    }

    fn learned(alone: &Alone, object: u64, length: u64) {
        alone.learned(name(object), written(length), written(length));
    }

    /// One that is claimed, and of which nothing is known.
    fn claimed(alone: &Alone, object: u64) {
        for _ in 1..WRITES {
            assert_eq!(alone.wrote(name(object), written(1)), Next::Ask);
        }
        assert_eq!(alone.wrote(name(object), written(1)), Next::Claim);
        alone.claimed(name(object));
        assert_eq!(alone.wrote(name(object), written(1)), Next::Ask);
    }

    #[test]
    fn what_was_learned_holds_until_somebody_else_may_write_or_something_else_is_done() {
        let alone = Alone::default();
        claimed(&alone, 1);
        learned(&alone, 1, 100);
        assert_eq!(alone.wrote(name(1), written(50)), Next::Known(written(100)));
        assert_eq!(alone.wrote(name(1), written(150)), Next::Known(written(150)));
        let restarted = Known { instance: 2, ..written(200) };
        assert_eq!(alone.wrote(name(1), restarted), Next::Ask);
        learned(&alone, 1, 200);
        let moved = Known { generation: 2, ..written(200) };
        assert_eq!(alone.wrote(name(1), moved), Next::Ask);
        learned(&alone, 1, 200);
        let earlier = Known { modified: Timestamp(4), ..written(200) };
        assert_eq!(alone.wrote(name(1), earlier), Next::Ask);
        // Another component has a later time, which is no more when that is written.
        alone.learned(name(1), earlier, written(200));
        assert_eq!(alone.wrote(name(1), written(200)), Next::Ask);
        learned(&alone, 1, 200);
        alone.changes(name(1));
        claimed(&alone, 1);
        learned(&alone, 1, 200);
        alone.forget_all();
        claimed(&alone, 1);
        learned(&alone, 1, 200);
        alone.shares(name(1));
        learned(&alone, 1, 300);
        for _ in 0..=WRITES {
            assert_eq!(alone.wrote(name(1), written(1)), Next::Ask);
        }
    }

    #[test]
    fn who_gets_a_capability_while_the_version_is_raised_is_not_overlooked() {
        let alone = Alone::default();
        for _ in 1..WRITES {
            alone.wrote(name(1), written(1));
        }
        assert_eq!(alone.wrote(name(1), written(1)), Next::Claim);
        alone.shares(name(1));
        alone.claimed(name(1));
        learned(&alone, 1, 1);
        assert_eq!(alone.wrote(name(1), written(1)), Next::Ask);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let alone = Alone::default();
        claimed(&alone, 0);
        learned(&alone, 0, 9);
        for object in 1..3 * MOST as u64 {
            alone.shares(name(object));
            assert_eq!(alone.wrote(name(0), written(1)), Next::Known(written(9)));
        }
        assert!(alone.lock().len() <= MOST);
    }
}
