//! What came since the trail was last written, counted by kind.
//!
//! Each request is counted, so that this must cost next to nothing: threads that serve connections
//! are spread over shards, and the next request of a thread is mostly like the one before it. What
//! is kept is bounded: requests of more kinds than that are counted together, those of strangers by
//! themselves.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nasd_types::{NameHashing, Timestamp};

use super::subject::Subject;

/// More than there are processors in most machines.
const SHARDS: usize = 32;

/// Kinds of requests that a shard tells apart: those with a right digest, and the others, which
/// strangers can make up.
const KINDS: [usize; 2] = [1024, 64];

/// What requests that are counted together have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) subject: Subject,
    /// 0 is success.
    pub(super) status: u16,
    /// Whether the digest was right.
    pub(super) proved: bool,
}

/// How many, and when they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) requests: u64,
}

impl Count {
    pub(super) fn merge(&mut self, other: Count) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.requests = self.requests.saturating_add(other.requests);
    }
}

/// All that came since the last time, by kind, in about the order in which they came first; and what was not told apart, by whether it was proved.
#[derive(Debug, Default)]
pub(super) struct Drained {
    pub(super) kinds: Vec<(Kind, Count)>,
    pub(super) lost: [Option<Count>; 2],
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tally {
    shards: Box<[Mutex<Shard>]>,
}

/// On cache lines of its own, as its neighbours are other processors'.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    counted: Vec<(Kind, Count)>,
    places: HashMap<Kind, usize, NameHashing>,
    /// Where in `counted` the last request was.
    recent: usize,
    /// Kinds that are told apart, by whether they were proved.
    kinds: [usize; 2],
    lost: [Option<Count>; 2],
}

/// Index of what is bounded by whether it was proved.
pub(super) fn class(proved: bool) -> usize {
    usize::from(!proved)
}

/// Adds to a count that may be none yet.
pub(super) fn add(sum: &mut Option<Count>, count: Count) {
    match sum {
        Some(sum) => sum.merge(count),
        None => *sum = Some(count),
    }
}

impl Tally {
    /// `seed` is another one in each process, so that nobody can choose names that collide.
    pub(super) fn new(seed: u64) -> Tally {
        let shard = || {
            Mutex::new(Shard {
                counted: Vec::new(),
                places: HashMap::with_hasher(NameHashing::new(seed)),
                recent: 0,
                kinds: [0; 2],
                lost: [None; 2],
            })
        };
        Tally { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    /// Counts a request.
    pub(super) fn count(&self, kind: &Kind, now: Timestamp) {
        self.count_many(kind, 1, now);
    }

    /// Counts so many.
    pub(super) fn count_many(&self, kind: &Kind, requests: u64, now: Timestamp) {
        let shard = &self.shards[shard_of_thread()];
        let count = Count { first: now, last: now, requests };
        shard.lock().unwrap_or_else(PoisonError::into_inner).count(kind, count);
    }

    /// Takes what was counted.
    pub(super) fn drain(&self) -> Drained {
        let mut all = Drained::default();
        let mut places: HashMap<Kind, usize> = HashMap::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let (counted, lost) = shard.take();
            drop(shard);
            for (kind, count) in counted {
                let place = *places.entry(kind).or_insert(all.kinds.len());
                match all.kinds.get_mut(place) {
                    Some((_, sum)) => sum.merge(count),
                    None => all.kinds.push((kind, count)),
                }
            }
            for (sum, lost) in all.lost.iter_mut().zip(lost) {
                lost.into_iter().for_each(|count| add(sum, count));
            }
        }
        all.kinds.sort_by_key(|(_, count)| count.first);
        all
    }
}

impl Shard {
    fn count(&mut self, kind: &Kind, count: Count) {
        let place = match self.counted.get(self.recent) {
            Some((recent, _)) if recent == kind => Some(self.recent),
            _ => self.places.get(kind).copied(),
        };
        if let Some(place) = place {
            self.recent = place;
            self.counted[place].1.merge(count);
            return;
        }
        let class = class(kind.proved);
        if self.kinds[class] >= KINDS[class] {
            return add(&mut self.lost[class], count);
        }
        self.kinds[class] += 1;
        self.recent = self.counted.len();
        self.places.insert(*kind, self.recent);
        self.counted.push((*kind, count));
    }

    /// Takes all; the memory stays, as there will be as much again.
    fn take(&mut self) -> (Vec<(Kind, Count)>, [Option<Count>; 2]) {
        let room = Vec::with_capacity(self.counted.len());
        self.places.clear();
        self.recent = 0;
        self.kinds = [0; 2];
        (std::mem::replace(&mut self.counted, room), std::mem::take(&mut self.lost))
    }
}

/// The shard of the calling thread: connections take them in turn, and threads that are of none.
fn shard_of_thread() -> usize {
    static DRAWN: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// For which connection it was drawn.
        static SHARD: Cell<(Option<u64>, usize)> = const { Cell::new((None, usize::MAX)) };
    }
    let job = nasd_transport::job_of_thread();
    SHARD.with(|known| {
        let (of, shard) = known.get();
        if of == job && shard != usize::MAX {
            return shard;
        }
        let shard = DRAWN.fetch_add(1, Ordering::Relaxed) % SHARDS;
        known.set((job, shard));
        shard
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_capability::KeyKind;
    use nasd_types::{AuditId, ObjectId, PartitionId};

    fn kind(object: u64, proved: bool) -> Kind {
        let subject = Subject {
            audit_id: AuditId(1),
            object: ObjectId(object),
            partition: PartitionId(1),
            procedure: 6,
            key: KeyKind::Capability,
        };
        Kind { subject, status: 0, proved }
    }

    #[test]
    fn what_is_alike_is_counted_together() {
        let tally = Tally::new(7);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for time in 0..1000 {
                        tally.count(&kind(time % 3, true), Timestamp(100 + time));
                    }
                });
            }
        });
        let drained = tally.drain();
        assert_eq!(drained.kinds.len(), 3);
        let sum: u64 = drained.kinds.iter().map(|(_, count)| count.requests).sum();
        assert_eq!(sum, 4000);
        let (first, count) = drained.kinds[0];
        assert_eq!(first, kind(0, true));
        assert_eq!((count.first, count.last), (Timestamp(100), Timestamp(1099)));
        assert!(tally.drain().kinds.is_empty());
    }

    #[test]
    fn strangers_take_no_room_from_others() {
        let tally = Tally::new(7);
        for object in 0..10_000 {
            tally.count(&kind(object, false), Timestamp(object));
        }
        for object in 0..1_000 {
            tally.count(&kind(object, true), Timestamp(object));
        }
        let drained = tally.drain();
        let of = |proved| drained.kinds.iter().filter(|(kind, _)| kind.proved == proved).count();
        assert_eq!(of(true), 1_000);
        assert_eq!(of(false), KINDS[1]);
        assert_eq!(drained.lost[0], None);
        let lost = drained.lost[1].unwrap();
        assert_eq!(lost.requests, 10_000 - KINDS[1] as u64);
        assert_eq!(lost.last, Timestamp(9_999));
        // There is room again.
        tally.count(&kind(5, false), Timestamp(1));
        assert_eq!(tally.drain().kinds.len(), 1);
    }
}
