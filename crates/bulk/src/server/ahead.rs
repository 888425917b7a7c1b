//! What was read before it was asked for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_types::ByteRange;

/// Reads that are made at a time, or bytes of them, whichever is more: the medium is to have enough to do, also while some of them
/// have come together and are being checked.
const AT_A_TIME: (usize, u64) = (3, 3 << 19);

/// The same before any was had: what is wanted first is to come first, as somebody waits for it.
const AT_FIRST: (usize, u64) = (1, 1 << 20);

/// The same of all connections together, which have one medium, or a few more where several begin at the same moment. Each may make
/// one whatever the others do.
const ALL_AT_A_TIME: (usize, u64) = (4, 3 << 20);

/// A read that takes longer hangs. (Tests may be held up.)
const HANGS_AFTER: Duration = Duration::from_secs(if cfg!(test) { 20 } else { 1 });

/// The reads ahead that are made now for all connections of a server.
#[derive(Debug, Default)]
pub(super) struct AllReads {
    /// When each was begun, and its bytes.
    begun: Mutex<Vec<(Instant, u64)>>,
}

impl AllReads {
    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, u64)>> {
        // Nothing that can panic is done with it.
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keep the medium busy, and bytes of them. One that hangs keeps others from nothing.
    pub(super) fn load(&self) -> (usize, u64) {
        let now = Instant::now();
        let begun = self.lock();
        let lively =
            begun.iter().filter(|(since, _)| now.saturating_duration_since(*since) < HANGS_AFTER);
        lively.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes))
    }

    fn begin(&self, since: Instant, bytes: u64) {
        self.lock().push((since, bytes));
    }

    fn end(&self, since: Instant, bytes: u64) {
        let mut begun = self.lock();
        if let Some(at) = begun.iter().position(|one| *one == (since, bytes)) {
            begun.swap_remove(at);
        }
    }
}

/// A read that was begun. It is to be [finished](Ahead::finish).
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(super) struct BegunRead {
    number: u64,
    since: Instant,
    pub(super) range: ByteRange,
}

/// The reads ahead of one open file.
pub(super) struct Ahead<'a, D> {
    all: &'a AllReads,
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

    /// Whether one more may be read beside these, while all connections together have so many.
    fn has_room(&self, load: (usize, u64), of_all: (usize, u64)) -> bool {
        let is_less = |(count, bytes), (reads, length)| count < reads || bytes < length;
        let most = if self.was_had { AT_A_TIME } else { AT_FIRST };
        is_less(load, most) && (load.0 == 0 || is_less(of_all, ALL_AT_A_TIME))
    }
}

impl<'a, D> Ahead<'a, D> {
    pub(super) fn new(all: &'a AllReads) -> Ahead<'a, D> {
        let state = State { slots: Vec::new(), number: 0, was_had: false };
        Ahead { all, state: Mutex::new(state), changed: Condvar::new() }
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
        let (mut load, mut of_all) = (state.load(), self.all.load());
        let waiting = state.slots.iter().filter(|slot| matches!(slot.stage, Stage::Waiting));
        let begun = waiting.take_while(|slot| {
            let may_begin = state.has_room(load, of_all);
            for (count, bytes) in [&mut load, &mut of_all] {
                *count += 1;
                *bytes += slot.range.length;
            }
            may_begin
        });
        begun.count()
    }

    /// The next one, to be read now; nothing if none is left, or enough are being read: whoever reads these asks again.
    pub(super) fn begin(&self) -> Option<BegunRead> {
        let mut state = self.lock();
        if !state.has_room(state.load(), self.all.load()) {
            return None;
        }
        let slot = state.slots.iter_mut().find(|slot| matches!(slot.stage, Stage::Waiting))?;
        slot.stage = Stage::Reading;
        let since = Instant::now();
        self.all.begin(since, slot.range.length);
        Some(BegunRead { number: slot.number, since, range: slot.range })
    }

    /// It was read, or can't be: whoever asks for it will be told why.
    pub(super) fn finish(&self, begun: BegunRead, read: Option<D>) {
        let BegunRead { number, since, range } = begun;
        self.all.end(since, range.length);
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

    /// Begins as many as may be.
    fn begin_all<D>(ahead: &Ahead<'_, D>) -> Vec<BegunRead> {
        std::iter::from_fn(|| ahead.begin()).collect()
    }

    fn ranges(begun: &[BegunRead]) -> Vec<ByteRange> {
        begun.iter().map(|begun| begun.range).collect()
    }

    /// A reader who has had the first of these, and wants the others.
    fn reads_on<'a>(all: &'a AllReads, wanted: &[ByteRange]) -> Ahead<'a, &'static str> {
        let ahead = Ahead::new(all);
        ahead.plan(&wanted[..1]);
        ahead.finish(ahead.begin().unwrap(), Some("first"));
        assert_eq!(ahead.take(&wanted[0]), Some("first"));
        ahead.plan(&wanted[1..]);
        ahead
    }

    #[test]
    fn what_is_wanted_is_begun_once_and_what_is_not_any_more_is_dropped() {
        let all = AllReads::default();
        let ahead = Ahead::new(&all);
        assert_eq!(ahead.plan(&[range(1), range(2)]), 2);
        let one = ahead.begin().unwrap();
        assert_eq!(one.range, range(1));
        ahead.finish(one, Some("one"));
        assert_eq!(ahead.plan(&[range(1), range(2), range(3)]), 2, "nobody has begun with one");
        assert_eq!(ahead.take(&range(1)), Some("one"));
        assert_eq!(ahead.take(&range(1)), None, "it is told once");
        // Who asks before anybody has begun does it himself.
        assert_eq!(ahead.take(&range(2)), None);
        let three = ahead.begin().unwrap();
        assert_eq!((three.range, ahead.begin()), (range(3), None));
        // A wrong guess.
        assert_eq!(ahead.plan(&[range(9)]), 1);
        ahead.finish(three, Some("three"));
        assert_eq!(ahead.take(&range(3)), None);
        assert_eq!(ranges(&begin_all(&ahead)), [range(9)]);
    }

    #[test]
    fn no_more_are_begun_than_keep_the_medium_busy() {
        let all = AllReads::default();
        let long = |number: u64| ByteRange::new(number << 20, 1 << 20);
        let ahead = Ahead::new(&all);
        assert_eq!(ahead.plan(&[long(0), long(1), long(2), long(3)]), 1);
        let mut begun = begin_all(&ahead);
        assert_eq!(ranges(&begun), [long(0)], "the first one first");
        ahead.finish(begun.remove(0), Some("zero"));
        let mut begun = begin_all(&ahead);
        assert_eq!(ranges(&begun), [long(1)], "nobody has come");
        assert_eq!(ahead.take(&long(0)), Some("zero"));
        assert_eq!(ahead.plan(&[long(1), long(2), long(3), long(4)]), 2);
        assert_eq!(ranges(&begin_all(&ahead)), [long(2), long(3)]);
        ahead.finish(begun.remove(0), Some("one"));
        assert_eq!(ranges(&begin_all(&ahead)), [long(4)]);
    }

    #[test]
    fn of_short_ones_as_many_are_begun_as_make_up_the_bytes() {
        let all = AllReads::default();
        let wanted: Vec<ByteRange> =
            (0..9).map(|number| ByteRange::new(number << 18, 1 << 18)).collect();
        assert_eq!(begin_all(&reads_on(&all, &wanted)).len(), 6);
        let short = Ahead::<()>::new(&all);
        short.plan(&[range(0), range(1), range(2), range(3)]);
        assert_eq!(begin_all(&short).len(), 4);
    }

    #[test]
    fn connections_share_what_the_medium_can_do_and_each_may_begin_one() {
        let all = AllReads::default();
        let long: Vec<ByteRange> =
            (0..9).map(|number| ByteRange::new(number << 21, 1 << 21)).collect();
        let readers: Vec<_> = (0..3).map(|_| reads_on(&all, &long)).collect();
        let begun: Vec<_> = readers.iter().map(begin_all).collect();
        assert_eq!(begun.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1]);
        assert_eq!(readers[1].plan(&long[1..]), 0, "nobody more is needed");
        // Of one that has ended nothing counts when what it had begun is over.
        readers[0].plan(&[]);
        for begun in begun.into_iter().next().unwrap() {
            readers[0].finish(begun, None);
        }
        assert_eq!(readers[1].plan(&long[1..]), 2);
        assert_eq!(begin_all(&readers[1]).len(), 2);
        assert_eq!(all.load(), (4, 4 << 21));
    }

    #[test]
    fn what_hangs_in_one_connection_keeps_others_from_nothing() {
        let all = AllReads::default();
        let long: Vec<ByteRange> =
            (0..9).map(|number| ByteRange::new(number << 21, 1 << 21)).collect();
        let long_ago = Instant::now().checked_sub(HANGS_AFTER).unwrap();
        (0..9).for_each(|_| all.begin(long_ago, 1 << 21));
        assert_eq!(begin_all(&reads_on(&all, &long)).len(), 3);
        (0..9).for_each(|_| all.end(long_ago, 1 << 21));
        assert_eq!(all.lock().len(), 3);
    }

    #[test]
    fn who_asks_for_what_is_being_read_waits_for_it() {
        let all = AllReads::default();
        let ahead = Ahead::new(&all);
        ahead.plan(&[range(1), range(2)]);
        let (one, two) = (ahead.begin().unwrap(), ahead.begin().unwrap());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| ahead.take(&range(1)));
            let second = scope.spawn(|| ahead.take(&range(2)));
            ahead.finish(one, Some("one"));
            ahead.finish(two, None);
            assert_eq!(first.join().unwrap(), Some("one"));
            assert_eq!(second.join().unwrap(), None, "it could not be read");
        });
    }
}
