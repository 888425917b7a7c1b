//! What was read before it was asked for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nasd_types::ByteRange;

/// Reads that are made at a time, or bytes of them, whichever is more: the medium is to have enough to do, also while some of them
/// have come together and are being checked.
const AT_A_TIME: (usize, u64) = (3, 3 << 19);

/// The same before any was had: what is wanted first is to come first, as somebody waits for it.
const AT_FIRST: (usize, u64) = (1, 1 << 20);

/// The reads ahead of one open file.
pub(super) struct Ahead<D> {
    state: Mutex<State<D>>,
    changed: Condvar,
}

struct State<D> {
    slots: Vec<Slot<D>>,
    /// Of the next slot.
    number: u64,
    /// Something that was read ahead was asked for.
    was_had: bool,
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

impl<D> State<D> {
    /// What is being read: how many, and bytes of them.
    fn load(&self) -> (usize, u64) {
        let reading = self.slots.iter().filter(|slot| matches!(slot.stage, Stage::Reading));
        reading.fold((0, 0), |(count, bytes), slot| (count + 1, bytes + slot.range.length))
    }

    /// Whether one more may be read beside these.
    fn has_room(&self, (count, bytes): (usize, u64)) -> bool {
        let (reads, length) = if self.was_had { AT_A_TIME } else { AT_FIRST };
        count < reads || bytes < length
    }
}

impl<D> Ahead<D> {
    pub(super) fn new() -> Ahead<D> {
        let state = State { slots: Vec::new(), number: 0, was_had: false };
        Ahead { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        // Nothing that can panic is done with it but to drop what was read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are wanted, and no others. Tells how many may be read now at a time besides those that are being read: for more than
    /// that nobody is needed.
    pub(super) fn plan(&self, wanted: &[ByteRange]) -> usize {
        let mut state = self.lock();
        state.slots.retain(|slot| wanted.contains(&slot.range));
        for range in wanted {
            if state.slots.iter().any(|slot| slot.range == *range) {
                continue;
            }
            let number = state.number;
            state.number += 1;
            state.slots.push(Slot { number, range: *range, stage: Stage::Waiting });
        }
        let mut load = state.load();
        let waiting = state.slots.iter().filter(|slot| matches!(slot.stage, Stage::Waiting));
        let begun = waiting.take_while(|slot| {
            let may_begin = state.has_room(load);
            load = (load.0 + 1, load.1 + slot.range.length);
            may_begin
        });
        begun.count()
    }

    /// The next one, to be read now, and its number; nothing if none is left, or enough are being read: whoever reads these asks again.
    pub(super) fn begin(&self) -> Option<(u64, ByteRange)> {
        let mut state = self.lock();
        if !state.has_room(state.load()) {
            return None;
        }
        let slot = state.slots.iter_mut().find(|slot| matches!(slot.stage, Stage::Waiting))?;
        slot.stage = Stage::Reading;
        Some((slot.number, slot.range))
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
        // Whoever is woken wants the lock at once.
        drop(state);
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
                Stage::Ready(read) => {
                    state.was_had = true;
                    Some(read)
                }
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
        assert_eq!(ahead.plan(&[range(1), range(2)]), 2);
        assert_eq!(ahead.begin(), Some((0, range(1))));
        ahead.finish(0, Some("one"));
        assert_eq!(ahead.plan(&[range(1), range(2), range(3)]), 2, "nobody has begun with one");
        assert_eq!(ahead.take(&range(1)), Some("one"));
        assert_eq!(ahead.take(&range(1)), None, "it is told once");
        // Who asks before anybody has begun does it himself.
        assert_eq!(ahead.take(&range(2)), None);
        assert_eq!(ahead.begin(), Some((2, range(3))));
        assert_eq!(ahead.begin(), None);
        // A wrong guess.
        assert_eq!(ahead.plan(&[range(9)]), 1);
        ahead.finish(2, Some("three"));
        assert_eq!(ahead.take(&range(3)), None);
        assert_eq!(ahead.begin(), Some((3, range(9))));
    }

    #[test]
    fn no_more_are_begun_than_keep_the_medium_busy() {
        let long = |number: u64| ByteRange::new(number << 20, 1 << 20);
        let ahead = Ahead::new();
        assert_eq!(ahead.plan(&[long(0), long(1), long(2), long(3)]), 1);
        assert_eq!(
            (ahead.begin(), ahead.begin()),
            (Some((0, long(0))), None),
            "the first one first"
        );
        ahead.finish(0, Some("zero"));
        assert_eq!((ahead.begin(), ahead.begin()), (Some((1, long(1))), None), "nobody has come");
        assert_eq!(ahead.take(&long(0)), Some("zero"));
        assert_eq!(ahead.plan(&[long(1), long(2), long(3), long(4)]), 2);
        assert_eq!((ahead.begin(), ahead.begin()), (Some((2, long(2))), Some((3, long(3)))));
        assert_eq!(ahead.begin(), None);
        ahead.finish(1, Some("one"));
        assert_eq!(ahead.begin(), Some((4, long(4))));
        // Of shorter ones as many as make up the bytes.
        let quarter = |number: u64| ByteRange::new(number << 18, 1 << 18);
        let quarters = Ahead::new();
        quarters.plan(&[quarter(0)]);
        quarters.begin();
        quarters.finish(0, Some("zero"));
        assert_eq!(quarters.take(&quarter(0)), Some("zero"));
        let wanted: Vec<ByteRange> = (1..9).map(quarter).collect();
        assert_eq!(quarters.plan(&wanted), 6);
        let begun = std::iter::from_fn(|| quarters.begin());
        assert_eq!(begun.count(), 6);
        let short = Ahead::<()>::new();
        short.plan(&[range(0), range(1), range(2), range(3)]);
        assert!((0..4).all(|_| short.begin().is_some()));
    }

    #[test]
    fn who_asks_for_what_is_being_read_waits_for_it() {
        let ahead = Ahead::new();
        ahead.plan(&[range(1), range(2)]);
        ahead.begin();
        ahead.begin();
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
