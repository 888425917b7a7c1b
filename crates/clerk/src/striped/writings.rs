//! Which writes the maps belong to that the striping manager gives: those of an object under whatever maps are ended
//! together, and a map that was given before an end allows none after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nasd_client::Host;
use nasd_types::ObjectName;

use super::map::MOST;
use super::writing::Writing;

/// What is written of objects, whatever the maps.
pub(super) struct Writings {
    host: Arc<dyn Host>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    open: HashMap<ObjectName, Weak<Writing>>,
    last_end: Option<LastEnd>,
}

/// What has ended, of whatever object: when the last writes did, and the highest turn of any.
#[derive(Clone, Copy, Debug)]
struct LastEnd {
    at: Duration,
    turn: u64,
}

impl LastEnd {
    /// Whether a map may be one of those whose writes have ended, as its answer lay here meanwhile. That of another
    /// object may seem to be, and is asked for again. One that was asked for after the end never is, though the
    /// striping manager's clock, which turns begin with, may have been set back.
    fn may_be_of(&self, turn: u64, asked: Duration) -> bool {
        turn <= self.turn && asked <= self.at
    }
}

impl Writings {
    pub(super) fn new(host: Arc<dyn Host>) -> Writings {
        Writings { host, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Every change leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writes that may be made by a map, which was asked for then, by the host's clock: those of the object that
    /// have not ended, or a beginning of others. `turn` is that of the map, or 0 if it allows none of copies. `None`
    /// where the striping manager may have been told that there are no more by it.
    pub(super) fn under(
        &self,
        name: ObjectName,
        turn: u64,
        asked: Duration,
    ) -> Option<Arc<Writing>> {
        let mut known = self.lock();
        if turn != 0 && known.last_end.is_some_and(|end| end.may_be_of(turn, asked)) {
            return None;
        }
        let open = known.open.get(&name).and_then(Weak::upgrade);
        if let Some(open) = open.filter(|open| !open.has_ended()) {
            open.may_begin_at(turn);
            return Some(open);
        }
        if known.open.len() >= MOST {
            known.open.retain(|_, writing| writing.strong_count() > 0);
        }
        let writing = Arc::new(Writing::new(turn, self.host.elapsed()));
        known.open.insert(name, Arc::downgrade(&writing));
        Some(writing)
    }

    /// Ends writes if none is under way, all are durable, and nobody has written for so long before `now`: the turn
    /// of the last map that they may have been made by.
    pub(super) fn end(&self, writing: &Writing, idle: Duration, now: Duration) -> Option<u64> {
        let seen = writing.could_end(idle, now)?;
        // No map of a later turn joins them meanwhile.
        let mut known = self.lock();
        let turn = writing.end_as(seen)?;
        let before = known.last_end.map_or(0, |end| end.turn);
        known.last_end = Some(LastEnd { at: self.host.elapsed(), turn: turn.max(before) });
        Some(turn)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use nasd_types::{ObjectId, PartitionId, Timestamp};

    use super::*;

    pub(in super::super) const NAME: ObjectName =
        ObjectName { partition: PartitionId(1), object: ObjectId(77) };
    const OTHER: ObjectName = ObjectName { partition: PartitionId(1), object: ObjectId(78) };

    /// Time that passes when it is slept away.
    #[derive(Default)]
    pub(in super::super) struct Clock(AtomicU64);

    impl Host for Clock {
        fn elapsed(&self) -> Duration {
            Duration::from_nanos(self.0.load(Ordering::Relaxed))
        }

        fn wall_clock(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, duration: Duration) {
            self.0.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
        }

        fn random(&self) -> u64 {
            7
        }

        fn takes_turns(&self) -> bool {
            true
        }
    }

    fn writings() -> Writings {
        Writings::new(Arc::new(Clock::default()))
    }

    fn end(writings: &Writings, writing: &Writing) -> Option<u64> {
        writings.end(writing, Duration::ZERO, writings.host.elapsed())
    }

    #[test]
    fn maps_of_an_object_end_together_by_the_last_turn() {
        let writings = writings();
        let asked = writings.host.elapsed();
        let writing = writings.under(NAME, 5, asked).unwrap();
        let same = writings.under(NAME, 8, asked).unwrap();
        let earlier = writings.under(NAME, 6, asked).unwrap();
        assert!(Arc::ptr_eq(&writing, &same) && Arc::ptr_eq(&writing, &earlier));
        let reading = writings.under(NAME, 0, asked).unwrap();
        assert!(Arc::ptr_eq(&writing, &reading));
        let other = writings.under(OTHER, 9, asked).unwrap();
        assert!(!Arc::ptr_eq(&writing, &other));
        let under_way = writing.begin(asked);
        assert_eq!(end(&writings, &writing), None, "one is under way");
        drop(under_way);
        writing.flushed(writing.so_far());
        assert_eq!(end(&writings, &writing), Some(8));
        assert_eq!(end(&writings, &writing), None, "once");
    }

    #[test]
    fn a_map_that_was_given_before_an_end_and_seen_after_it_allows_nothing() {
        let writings = writings();
        let before = writings.host.elapsed();
        writings.host.sleep(Duration::from_nanos(1));
        let later = writings.under(NAME, 3, before).unwrap();
        assert_eq!(end(&writings, &later), Some(3));
        // Two were asked for at a time, and the later one's answer came first.
        assert!(writings.under(NAME, 2, before).is_none());
        assert!(writings.under(NAME, 3, before).is_none());
        // To read it serves as well as any.
        assert!(writings.under(NAME, 0, before).is_some());
        let fresh = writings.under(NAME, 4, before).expect("of this the end said nothing");
        assert!(!Arc::ptr_eq(&later, &fresh));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_map_old() {
        let writings = writings();
        let writing = writings.under(NAME, 1_000, writings.host.elapsed()).unwrap();
        assert_eq!(end(&writings, &writing), Some(1_000));
        writings.host.sleep(Duration::from_nanos(1));
        let after = writings.host.elapsed();
        assert!(writings.under(NAME, 7, after).is_some());
        // The turns of before still tell which maps are old.
        let other = writings.under(OTHER, 8, after).unwrap();
        writings.host.sleep(Duration::from_nanos(1));
        assert_eq!(end(&writings, &other), Some(8));
        assert!(writings.under(NAME, 999, after).is_none());
    }
}
