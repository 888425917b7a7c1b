//! What was read before it was asked for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nasd_types::ByteRange;

/// The reads ahead of one open file.
pub(super) struct Ahead<D> {
    state: Mutex<State<D>>,
    changed: Condvar,
}

struct State<D> {
    slots: Vec<Slot<D>>,
    /// Of the next slot.
    number: u64,
}

struct Slot<D> {
    number: u64,
    range: ByteRange,
    stage: Stage<D>,
}

enum Stage<D> {
    /// Nobody has begun yet.
    Waiting,
    Reading,
    Ready(D),
}

impl<D> Ahead<D> {
    pub(super) fn new() -> Ahead<D> {
        let state = State { slots: Vec::new(), number: 0 };
        Ahead { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        // Nothing that can panic is done with it but to drop what was read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are wanted, and no others. Tells which have to be begun.
    pub(super) fn plan(&self, wanted: &[ByteRange]) -> Vec<u64> {
        let mut state = self.lock();
        state.slots.retain(|slot| wanted.contains(&slot.range));
        let mut new = Vec::new();
        for range in wanted {
            if state.slots.iter().any(|slot| slot.range == *range) {
                continue;
            }
            let number = state.number;
            state.number += 1;
            state.slots.push(Slot { number, range: *range, stage: Stage::Waiting });
            new.push(number);
        }
        new
    }

    /// What is to be read for one that is begun; nothing if it is not wanted any more.
    pub(super) fn begin(&self, number: u64) -> Option<ByteRange> {
        let mut state = self.lock();
        let slot = state.slots.iter_mut().find(|slot| slot.number == number)?;
        slot.stage = Stage::Reading;
        Some(slot.range)
    }

    /// It was read, or can't be: whoever asks for it will be told why.
    pub(super) fn finish(&self, number: u64, read: Option<D>) {
        let mut state = self.lock();
        let Some(at) = state.slots.iter().position(|slot| slot.number == number) else {
            return;
        };
        match read {
            Some(read) => state.slots[at].stage = Stage::Ready(read),
            None => drop(state.slots.remove(at)),
        }
        self.changed.notify_all();
    }

    /// What was read of exactly that range, or is being read now, which is waited for.
    pub(super) fn take(&self, range: &ByteRange) -> Option<D> {
        let mut state = self.lock();
        loop {
            let at = state.slots.iter().position(|slot| slot.range == *range)?;
            if let Stage::Reading = state.slots[at].stage {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            return match state.slots.remove(at).stage {
                Stage::Ready(read) => Some(read),
                Stage::Waiting | Stage::Reading => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(number: u64) -> ByteRange {
        ByteRange::new(number * 10, 10)
    }

    #[test]
    fn what_is_wanted_is_begun_once_and_what_is_not_any_more_is_dropped() {
        let ahead = Ahead::new();
        assert_eq!(ahead.plan(&[range(1), range(2)]), [0, 1]);
        assert_eq!(ahead.begin(0), Some(range(1)));
        ahead.finish(0, Some("one"));
        assert_eq!(ahead.plan(&[range(1), range(2), range(3)]), [2]);
        assert_eq!(ahead.take(&range(1)), Some("one"));
        assert_eq!(ahead.take(&range(1)), None, "it is told once");
        // Who asks before anybody has begun does it himself.
        assert_eq!(ahead.take(&range(2)), None);
        assert_eq!(ahead.begin(1), None);
        // A wrong guess.
        assert_eq!(ahead.begin(2), Some(range(3)));
        assert_eq!(ahead.plan(&[range(9)]), [3]);
        ahead.finish(2, Some("three"));
        assert_eq!(ahead.take(&range(3)), None);
    }

    #[test]
    fn who_asks_for_what_is_being_read_waits_for_it() {
        let ahead = Ahead::new();
        ahead.plan(&[range(1), range(2)]);
        ahead.begin(0);
        ahead.begin(1);
        std::thread::scope(|scope| {
            let one = scope.spawn(|| ahead.take(&range(1)));
            let two = scope.spawn(|| ahead.take(&range(2)));
            ahead.finish(0, Some("one"));
            ahead.finish(1, None);
            assert_eq!(one.join().unwrap(), Some("one"));
            assert_eq!(two.join().unwrap(), None, "it could not be read");
        });
    }
}
