//! Numbers of new objects: each is given out once in the life of the virtual drive.
//!
//! What is kept is a limit below which all may have been given out, moved ahead in large steps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use nasd_layout::GroupId;
use nasd_types::ObjectId;

/// How far the limit moves at a time.
pub(crate) const STEP: u64 = 1 << 16;

/// Gives numbers out.
#[derive(Debug)]
pub(crate) struct Numbers {
    counter: Mutex<Counter>,
    turn: AtomicU64,
}

#[derive(Debug)]
struct Counter {
    next: u64,
    limit: u64,
}

impl Numbers {
    /// All below the limit may have been given out before.
    pub(crate) fn new(limit: u64) -> Numbers {
        Numbers { counter: Mutex::new(Counter { next: limit, limit }), turn: AtomicU64::new(limit) }
    }

    /// Another number each time, with no other meaning.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of a new object of a group, of so many groups. `keep` makes a new limit durable.
    pub(crate) fn draw<E>(
        &self,
        group: GroupId,
        groups: usize,
        keep: impl FnOnce(u64) -> Result<(), E>,
    ) -> Result<ObjectId, E> {
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        if counter.next >= counter.limit {
            let limit = counter.next + STEP;
            keep(limit)?;
            counter.limit = limit;
        }
        let number = counter.next;
        counter.next += 1;
        Ok(ObjectId(ObjectId::FIRST_NAMED.0 + number * groups as u64 + u64::from(group.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_given_out_twice_whenever_it_starts_anew() {
        let mut kept = 0;
        let mut seen = std::collections::HashSet::new();
        for life in 0..4 {
            let numbers = Numbers::new(kept);
            for draw in 0..100_000_u64 {
                let group = GroupId((numbers.turn() % 8) as u16);
                let failing: Result<ObjectId, ()> = numbers.draw(group, 8, |_| Err(()));
                let object = match failing {
                    Ok(object) => object,
                    Err(()) => numbers
                        .draw(group, 8, |limit| {
                            kept = limit;
                            Ok::<_, ()>(())
                        })
                        .unwrap(),
                };
                assert!(object.0 % 8 == u64::from(group.0) && object >= ObjectId::FIRST_NAMED);
                assert!(seen.insert(object), "{life} {draw}");
            }
        }
        assert_eq!(kept % STEP, 0);
    }
}
