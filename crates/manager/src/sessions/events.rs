//! What a client is told, in order, until it says that it has dealt with it. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use nasd_protocol::manager::Event;

/// Events that a client may be behind. One that lets more gather does not answer in time.
pub const MAX_BEHIND: usize = 1 << 16;

/// A client's events. They are numbered from 1.
#[derive(Debug, Default)]
pub struct Events {
    waiting: VecDeque<Event>,
    /// Number of the last event that was dealt with.
    done: u64,
    /// Up to which number they waited at which time, in order.
    seen_waiting: VecDeque<(u64, Duration)>,
}

impl Events {
    /// One more; its number.
    pub fn push(&mut self, event: Event) -> u64 {
        self.waiting.push_back(event);
        self.last()
    }

    /// Number of the last event.
    fn last(&self) -> u64 {
        self.done + self.waiting.len() as u64
    }

    /// Takes note of what waits at this time.
    pub fn note(&mut self, now: Duration) {
        let (last, noted) = (self.last(), self.seen_waiting.back().map_or(0, |(last, _)| *last));
        if last > self.done.max(noted) {
            self.seen_waiting.push_back((last, now));
        }
    }

    /// Since when the oldest event waits, as far as that was noted.
    pub fn waits_since(&self) -> Option<Duration> {
        self.seen_waiting.front().map(|(_, since)| *since)
    }

    /// The client has dealt with events up to this number; those are answered.
    pub fn acknowledge(&mut self, seen: u64) -> Vec<Event> {
        let count = seen.saturating_sub(self.done).min(self.waiting.len() as u64);
        self.done += count;
        while self.seen_waiting.front().is_some_and(|(last, _)| *last <= self.done) {
            self.seen_waiting.pop_front();
        }
        // Not more than there are.
        self.waiting.drain(..count as usize).collect()
    }

    /// Those that the client should deal with next, at most so many; the number of the first.
    pub fn next(&self, most: usize) -> (u64, Vec<Event>) {
        (self.done + 1, self.waiting.iter().take(most).copied().collect())
    }

    /// Whether the client has dealt with the event of that number.
    pub const fn is_done(&self, number: u64) -> bool {
        number <= self.done
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the client is so far behind that it must be given up.
    pub fn is_overdue(&self) -> bool {
        self.waiting.len() > MAX_BEHIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_protocol::manager::FileHandle;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn event(object: u64) -> Event {
        Event::Removed(FileHandle {
            drive: DriveId(1),
            partition: PartitionId(1),
            object: ObjectId(object),
        })
    }

    #[test]
    fn events_stay_until_they_are_acknowledged() {
        let mut events = Events::default();
        assert_eq!(
            (events.push(event(1)), events.push(event(2)), events.push(event(3))),
            (1, 2, 3)
        );
        assert_eq!(events.next(2), (1, vec![event(1), event(2)]));
        assert_eq!(events.next(2), (1, vec![event(1), event(2)]), "an answer may be lost");
        assert_eq!(events.acknowledge(2), [event(1), event(2)]);
        assert!(events.is_done(2) && !events.is_done(3));
        assert_eq!(events.acknowledge(1), [], "an old acknowledgement");
        assert_eq!(events.acknowledge(u64::MAX), [event(3)], "more than was told");
        assert!(events.is_empty() && !events.is_overdue());
        assert_eq!(events.push(event(4)), 4);
    }

    #[test]
    fn it_is_known_since_when_the_oldest_waits() {
        let at = Duration::from_secs;
        let mut events = Events::default();
        events.note(at(1));
        assert_eq!(events.waits_since(), None);
        events.push(event(1));
        events.push(event(2));
        for time in [2, 3] {
            events.note(at(time));
        }
        events.push(event(3));
        events.note(at(4));
        events.acknowledge(1);
        assert_eq!(events.waits_since(), Some(at(2)), "of the second");
        events.acknowledge(2);
        assert_eq!(events.waits_since(), Some(at(4)));
        events.acknowledge(3);
        events.note(at(5));
        assert_eq!(events.waits_since(), None);
        events.push(event(4));
        events.acknowledge(4);
        events.push(event(5));
        events.note(at(6));
        assert_eq!(events.waits_since(), Some(at(6)));
    }
}
