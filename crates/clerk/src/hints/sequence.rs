//! What will be read, in order, and how far that is: pure bookkeeping of a stream of hints.
//!
//! Each hint has a position. Those before `base` are over: they were read, or left out by whoever reads. He may be several
//! programs that share the work, so that what is read next need not be the next one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use nasd_protocol::limits::MAX_REGIONS;
use nasd_types::ByteRange;

use crate::hinted::PieceId;

/// Bytes that are fetched by one request, unless one hint has more.
const BATCH_BYTES: u64 = 256 << 10;

/// One part in this many of what may be held is room enough to fetch something: some at once cost fewer turns of threads.
const ROOM_SHARE: u64 = 16;

/// Hints of which a request is made up at most: as many as it may have rows.
const BATCH_HINTS: usize = MAX_REGIONS;

/// Bytes that are fetched and not read, at first; trust grows and shrinks between these.
const FIRST_WINDOW: u64 = 1 << 20;
const LEAST_WINDOW: u64 = 256 << 10;

/// What comes before the last one that was read, and was not, is left out when there are so many of it: as many as sixteen
/// programs have in hand that share the work in batches of 256, and some more.
const MOST_BEHIND: u64 = 6144;

/// Or when there are so many, or it takes half of the room, and so many others were read since one of it was.
const BEHIND_ONE: u64 = 512;
const MOST_QUIET: u64 = 64;

/// Programs that share the work are seen by where they read on, each not further than so many hints. So many of them are fetched
/// for, besides the one who is behind all others.
const NEAR: u64 = 16;
const MOST_STRAYS: usize = 32;

/// Hints behind one of them that are looked at.
const LOOK_AHEAD: u64 = 512;

/// How far ahead drives are told, in hints and in bytes.
const TOLD_HINTS: u64 = 4096;
const TOLD_BYTES: u64 = 64 << 20;

/// What a drive is told at once, at most. With few pieces, that are not split much, it is one request everywhere.
const CALL_HINTS: usize = 64;
const CALL_BYTES: u64 = 16 << 20;

/// Hints that begin before a read are looked for among so many.
const LOOK_BACK: usize = 4;

/// Of one read so many hints are over at most.
const MOST_OF_A_READ: usize = 4096;

#[derive(Clone, Debug)]
struct Hint<F, K> {
    file: F,
    key: K,
    range: ByteRange,
    is_over: bool,
    /// Whether it was fetched, or is being so, and counts in `held_bytes`.
    is_held: bool,
    /// Which piece of the file it is held by, if that is one for it.
    piece: Option<PieceId>,
}

impl<F: Clone, K> Hint<F, K> {
    /// It is held no more; what there is to release, if it was.
    fn let_go(&mut self) -> Option<Released<F>> {
        let (file, range, piece) = (self.file.clone(), self.range, self.piece.take());
        std::mem::take(&mut self.is_held).then_some(Released { file, range, piece })
    }
}

/// What is held no more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released<F> {
    pub(crate) file: F,
    pub(crate) range: ByteRange,
    pub(crate) piece: Option<PieceId>,
}

/// Hints of one file that follow each other and are to be fetched, and the position of each.
#[derive(Debug)]
pub(crate) struct Taken<F> {
    pub(crate) file: F,
    pub(crate) ranges: Vec<ByteRange>,
    pub(crate) positions: Vec<u64>,
}

/// Hints of one file that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch<F> {
    pub(crate) file: F,
    pub(crate) ranges: Vec<ByteRange>,
}

/// What the drives of a file are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call<F> {
    pub(crate) hints: Batch<F>,
    /// Its place among the calls.
    pub(crate) ordinal: u64,
}

/// How far a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// All calls before that are over.
    pub(crate) passed: u64,
    /// So many hints that are over were not read,
    pub(crate) skipped: u64,
    /// of so many.
    pub(crate) ended: u64,
}

impl Progress {
    /// The same, with the hints alone that are over since then.
    pub(crate) fn since(self, before: Progress) -> Progress {
        let (skipped, ended) = (self.skipped - before.skipped, self.ended - before.ended);
        Progress { skipped, ended, ..self }
    }
}

/// See the module. Files are known by `F`, and looked for by `K`.
#[derive(Debug)]
pub(crate) struct Sequence<F, K> {
    hints: VecDeque<Hint<F, K>>,
    /// The position of the first of `hints`.
    base: u64,
    /// The positions, in order, of those that are not over, by where they begin.
    places: HashMap<K, BTreeMap<u64, VecDeque<u64>>>,
    /// Behind the last position that was read.
    front: u64,
    /// Everything before it was fetched, or need not be.
    fetched: u64,
    /// Everything before it was told to drives, or need not be.
    told: u64,
    told_bytes: u64,
    held_bytes: u64,
    /// Of these, what comes before `front`.
    behind_bytes: u64,
    window: u64,
    most_window: u64,
    /// Hints that were read since one was that lay before `front`.
    quiet: u64,
    /// Of `hints`, how many are over.
    over: usize,
    /// Where some go on who read what is not fetched in its turn; the latest ones last.
    strays: VecDeque<u64>,
    /// Where each of the calls that are not over ends.
    calls: VecDeque<u64>,
    calls_passed: u64,
    skipped: u64,
    ended: u64,
}

impl<F: Clone + PartialEq, K: Clone + Eq + Hash> Sequence<F, K> {
    /// Nothing is known. At most so many bytes are fetched and not read.
    pub(crate) fn new(most_window: u64) -> Self {
        let most_window = most_window.max(LEAST_WINDOW);
        Sequence {
            hints: VecDeque::new(),
            base: 0,
            places: HashMap::new(),
            front: 0,
            fetched: 0,
            told: 0,
            told_bytes: 0,
            held_bytes: 0,
            behind_bytes: 0,
            window: FIRST_WINDOW.min(most_window),
            most_window,
            quiet: 0,
            over: 0,
            strays: VecDeque::new(),
            calls: VecDeque::new(),
            calls_passed: 0,
            skipped: 0,
            ended: 0,
        }
    }

    /// A range of a file will be read, after all that was told before.
    pub(crate) fn push(&mut self, file: F, key: K, range: ByteRange) {
        let position = self.base + self.hints.len() as u64;
        let starts = self.places.entry(key.clone()).or_default();
        starts.entry(range.offset).or_default().push_back(position);
        self.hints.push_back(Hint {
            file,
            key,
            range,
            is_over: false,
            is_held: false,
            piece: None,
        });
    }

    /// Whether so much may be fetched that it is worth a request, if more than `limit` bytes may not be held.
    pub(crate) fn has_room(&self, limit: u64) -> bool {
        let most = self.window.min(limit);
        let least = (most / ROOM_SHARE).max(BATCH_BYTES.min(most / 4));
        most.saturating_sub(self.held_bytes) >= least
    }

    /// Bytes that are fetched, or being so, and not over.
    pub(crate) fn held(&self) -> u64 {
        self.held_bytes
    }

    /// No more is to be held than so much: what would be read last is let go, and fetched again when there is room.
    pub(crate) fn trim(&mut self, limit: u64) -> Vec<Released<F>> {
        let mut released = Vec::new();
        let (mut at, front) = (self.base + self.hints.len() as u64, self.front);
        while self.held_bytes > limit && at > self.base {
            at -= 1;
            let Some(hint) = self.hint(at) else { break };
            if let Some(over) = hint.let_go() {
                let length = over.range.length;
                self.held_bytes -= length;
                self.behind_bytes -= if at < front { length } else { 0 };
                self.fetched = self.fetched.min(at);
                released.push(over);
            }
        }
        released
    }

    /// Hints that are known: those that are not over, and some that are.
    pub(crate) fn len(&self) -> usize {
        self.hints.len()
    }

    /// Hints that are not over.
    pub(crate) fn left(&self) -> usize {
        self.hints.len() - self.over
    }

    /// Hints that are known behind all that is fetched in its turn.
    pub(crate) fn ahead(&self) -> usize {
        let fetched = self.fetched.max(self.base) - self.base;
        self.hints.len().saturating_sub(fetched as usize)
    }

    fn hint(&mut self, position: u64) -> Option<&mut Hint<F, K>> {
        let index = position.checked_sub(self.base)?;
        self.hints.get_mut(usize::try_from(index).ok()?)
    }

    /// Bytes of a file were read; those hints whose turn is over by that, and that were fetched.
    pub(crate) fn note_read(&mut self, key: &K, range: ByteRange) -> Vec<Released<F>> {
        let mut released = Vec::new();
        for position in self.read_by(key, range) {
            let is_late = position < self.front;
            self.move_front(position + 1);
            self.move_stray(position);
            self.quiet = if is_late { 0 } else { self.quiet + 1 };
            let Some(hint) = self.hint(position) else { continue };
            let was_over = std::mem::replace(&mut hint.is_over, true);
            let length = hint.range.length;
            if let Some(over) = hint.let_go() {
                self.held_bytes -= length;
                self.behind_bytes -= length;
                released.push(over);
            }
            self.over += usize::from(!was_over);
            self.window = (self.window + 2 * length).min(self.most_window);
        }
        self.advance(&mut released);
        released
    }

    /// All of a file was had without a read that shows here. Its next hints are over that are of it from its begin on, one part
    /// behind the other; those that are fetched.
    pub(crate) fn note_had(&mut self, key: &K) -> Vec<Released<F>> {
        let first = self.places.get(key).and_then(|starts| starts.get(&0)?.front().copied());
        let Some(mut position) = first else { return Vec::new() };
        let mut had = ByteRange::new(0, 0);
        while let Some(hint) = self.hint(position)
            && hint.key == *key
            && hint.range.offset == had.end()
            && !hint.is_over
        {
            had.length += hint.range.length;
            position += 1;
        }
        self.note_read(key, had)
    }

    /// Something was read before a position.
    fn move_front(&mut self, front: u64) {
        while self.front < front {
            if let Some(hint) = self.hint(self.front)
                && hint.is_held
            {
                self.behind_bytes += hint.range.length;
            }
            self.front += 1;
        }
    }

    /// A hint is read: if that is not about to be fetched in its turn, somebody goes on there.
    fn move_stray(&mut self, position: u64) {
        let is_of = |next: &u64| (*next..*next + NEAR).contains(&position);
        self.strays.retain(|next| !is_of(next));
        if position >= self.fetched.max(self.base) + NEAR {
            if self.strays.len() >= MOST_STRAYS {
                self.strays.pop_front();
            }
            self.strays.push_back(position + 1);
        }
    }

    /// Whether somebody reads elsewhere than in the turn in which things are fetched.
    pub(crate) fn has_strays(&self) -> bool {
        !self.strays.is_empty()
    }

    /// The positions of the hints that a read makes over, which are known no more by where they begin.
    fn read_by(&mut self, key: &K, range: ByteRange) -> Vec<u64> {
        let Some(starts) = self.places.get(key) else { return Vec::new() };
        let before = starts.range(..=range.offset).rev().take(LOOK_BACK);
        let within = starts
            .range(range.offset.saturating_add(1)..range.end().max(range.offset.saturating_add(1)));
        let first =
            |(offset, positions): (&u64, &VecDeque<u64>)| Some((*offset, *positions.front()?));
        let candidates: Vec<(u64, u64)> =
            before.chain(within.take(MOST_OF_A_READ)).filter_map(first).collect();
        let is_over = |&(_, position): &(u64, u64)| {
            let index = position.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
            let hint = index.and_then(|index| self.hints.get(index));
            hint.is_some_and(|hint| {
                hint.range.end() <= range.end() && hint.range.end() > range.offset
            })
        };
        let over: Vec<(u64, u64)> = candidates.into_iter().filter(is_over).collect();
        over.iter().for_each(|&(offset, position)| self.forget(key, offset, position));
        over.into_iter().map(|(_, position)| position).collect()
    }

    fn forget(&mut self, key: &K, offset: u64, position: u64) {
        let Some(starts) = self.places.get_mut(key) else { return };
        if let Some(positions) = starts.get_mut(&offset) {
            positions.retain(|known| *known != position);
            if positions.is_empty() {
                starts.remove(&offset);
            }
        }
        if starts.is_empty() {
            self.places.remove(key);
        }
    }

    /// Lets go of what is over, and of what was left out.
    fn advance(&mut self, released: &mut Vec<Released<F>>) {
        while let Some(first) = self.hints.front() {
            // What was read before it was known here is never over: it must not take all the room.
            let is_much = self.base + BEHIND_ONE < self.front
                || (first.is_held && self.behind_bytes > self.window / 2);
            let is_left_out =
                self.base + MOST_BEHIND < self.front || (is_much && self.quiet >= MOST_QUIET);
            if !first.is_over && !is_left_out {
                break;
            }
            let Some(mut hint) = self.hints.pop_front() else { break };
            self.base += 1;
            self.ended += 1;
            if hint.is_over {
                self.over -= 1;
                continue;
            }
            self.skipped += 1;
            self.forget(&hint.key, hint.range.offset, self.base - 1);
            self.window = self.window.saturating_sub(4 * hint.range.length).max(LEAST_WINDOW);
            if let Some(over) = hint.let_go() {
                self.held_bytes -= over.range.length;
                self.behind_bytes -= over.range.length;
                released.push(over);
            }
        }
        let told = self.told.max(self.base).max(self.fetched);
        while self.calls.front().is_some_and(|end| *end <= self.base.max(self.fetched)) {
            self.calls.pop_front();
            self.calls_passed += 1;
        }
        self.told = told;
    }

    /// What to fetch next, if there is room for it, of which more than `limit` bytes may not be held; it counts as fetched from
    /// now on. Each of those who read has a share of the window.
    pub(crate) fn next_batch(&mut self, limit: u64) -> Option<Taken<F>> {
        self.fetched = self.fetched.max(self.base);
        while let Some(hint) = self.hint(self.fetched)
            && (hint.is_over || hint.is_held)
        {
            self.fetched += 1;
        }
        let fetched = self.fetched;
        self.strays.retain(|next| *next > fetched);
        let share = self.window / (self.strays.len() as u64 + 1);
        let mut room = limit.min(self.window).saturating_sub(self.held_bytes);
        let mut of_strays = 0;
        for index in 0..self.strays.len() {
            let (held, at) = self.ahead_of(self.strays[index]);
            of_strays += held;
            if held > share / 2 {
                // Later, and more at once.
                continue;
            }
            let first = self.hint(at).map_or(0, |hint| hint.range.length);
            // Each has one hint at least, if there is room at all.
            let own = share.saturating_sub(held).max(if held == 0 { first } else { 0 }).min(room);
            if let Some((batch, _)) = self.batch_from(at, own) {
                return Some(batch);
            }
        }
        if !self.strays.is_empty() {
            let held = self.held_bytes.saturating_sub(of_strays);
            room = room.min(share.saturating_sub(held));
        }
        // One that is longer than the window is fetched when nothing else is held.
        if self.held_bytes == 0
            && let Some(first) = self.hint(fetched).map(|hint| hint.range.length)
            && first <= limit
        {
            room = room.max(first);
        }
        let (batch, end) = self.batch_from(fetched, room)?;
        self.fetched = end;
        Some(batch)
    }

    /// What was taken at these positions is held by these pieces.
    pub(crate) fn note_pieces(&mut self, pieces: impl Iterator<Item = (u64, Option<PieceId>)>) {
        for (position, piece) in pieces {
            if let Some(hint) = self.hint(position) {
                hint.piece = piece;
            }
        }
    }

    /// How many bytes are held behind a position, and the first of these positions that is to be fetched.
    fn ahead_of(&mut self, from: u64) -> (u64, u64) {
        let mut held = 0;
        for position in from..from + LOOK_AHEAD {
            match self.hint(position) {
                Some(hint) if hint.is_held => held += hint.range.length,
                Some(hint) if hint.is_over => {}
                _ => return (held, position),
            }
        }
        (held, u64::MAX)
    }

    /// What of one file follows from a position on, and where that ends: it has as many bytes as there is room for at most.
    fn batch_from(&mut self, begin: u64, room: u64) -> Option<(Taken<F>, u64)> {
        let mut batch: Option<Taken<F>> = None;
        let (mut bytes, mut at, front) = (0, begin, self.front);
        while let Some(hint) = self.hint(at) {
            let length = hint.range.length;
            if hint.is_over || hint.is_held {
                at += 1;
                continue;
            }
            let fits = match &batch {
                Some(batch) => {
                    batch.file == hint.file
                        && bytes + length <= BATCH_BYTES
                        && batch.ranges.len() < BATCH_HINTS
                }
                None => true,
            };
            if bytes + length > room || !fits {
                break;
            }
            hint.is_held = true;
            let (file, range) = (hint.file.clone(), hint.range);
            let empty = || Taken { file, ranges: Vec::new(), positions: Vec::new() };
            let batch = batch.get_or_insert_with(empty);
            batch.ranges.push(range);
            batch.positions.push(at);
            bytes += length;
            self.held_bytes += length;
            self.behind_bytes += if at < front { length } else { 0 };
            at += 1;
        }
        Some((batch?, at))
    }

    /// What to tell drives next, of what comes behind all that is fetched.
    pub(crate) fn next_call(&mut self) -> Option<Call<F>> {
        let begin = self.told.max(self.fetched).max(self.base);
        self.told = begin;
        let ahead = begin - self.fetched.max(self.base);
        if ahead == 0 {
            self.told_bytes = 0;
        }
        if ahead >= TOLD_HINTS || self.told_bytes >= TOLD_BYTES {
            return None;
        }
        let mut hints: Option<Batch<F>> = None;
        let (mut bytes, mut end) = (0, 0);
        while let Some(hint) = self.hint(self.told) {
            let range = hint.range;
            if hint.is_over || hint.is_held {
                // Somebody has read it before its turn, or it is fetched for him.
                self.told += 1;
                continue;
            }
            let fits = match &hints {
                Some(hints) => {
                    hints.file == hint.file
                        && range.offset >= end
                        && bytes + range.length <= CALL_BYTES
                        && hints.ranges.len() < CALL_HINTS
                }
                None => true,
            };
            if !fits {
                break;
            }
            let file = hint.file.clone();
            hints.get_or_insert_with(|| Batch { file, ranges: Vec::new() }).ranges.push(range);
            (bytes, end) = (bytes + range.length, range.end());
            self.told += 1;
        }
        let hints = hints?;
        self.told_bytes += bytes;
        let ordinal = self.calls_passed + self.calls.len() as u64;
        self.calls.push_back(self.told);
        Some(Call { hints, ordinal })
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        Progress { passed: self.calls_passed, skipped: self.skipped, ended: self.ended }
    }

    /// All that was fetched and is not over.
    pub(crate) fn end(&mut self) -> Vec<Released<F>> {
        let hints = std::mem::take(&mut self.hints);
        self.places.clear();
        (self.held_bytes, self.behind_bytes, self.over) = (0, 0, 0);
        hints.into_iter().filter_map(|mut hint| hint.let_go()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 16 << 20;

    fn sequence(hints: &[(u32, u64, u64)]) -> Sequence<u32, u32> {
        let mut sequence = Sequence::new(MOST);
        for &(file, offset, length) in hints {
            sequence.push(file, file, ByteRange::new(offset, length));
        }
        sequence
    }

    fn ranges(pieces: &[(u64, u64)]) -> Vec<ByteRange> {
        pieces.iter().map(|&(offset, length)| ByteRange::new(offset, length)).collect()
    }

    #[test]
    fn hints_of_one_file_are_fetched_together_and_in_order() {
        let mut sequence = sequence(&[(1, 50, 5), (1, 10, 5), (2, 0, 9), (1, 10, 5)]);
        let next = |sequence: &mut Sequence<u32, u32>| {
            sequence.next_batch(u64::MAX).map(|batch| (batch.file, batch.ranges))
        };
        assert_eq!(next(&mut sequence), Some((1, ranges(&[(50, 5), (10, 5)]))));
        assert_eq!(next(&mut sequence), Some((2, ranges(&[(0, 9)]))));
        assert_eq!(next(&mut sequence), Some((1, ranges(&[(10, 5)]))));
        assert_eq!(next(&mut sequence), None);
        assert_eq!(sequence.held_bytes, 24);
        // A read of the same bytes is of the first of two hints.
        let range = ByteRange::new(10, 5);
        sequence.note_pieces([(0, None), (1, Some(7)), (3, Some(8))].into_iter());
        assert_eq!(sequence.note_read(&1, range), [Released { file: 1, range, piece: Some(7) }]);
        assert_eq!(sequence.len(), 4, "the first one is not over");
        assert_eq!(sequence.note_read(&1, ByteRange::new(0, 100)).len(), 2);
        assert_eq!(sequence.len(), 2);
        assert!(sequence.note_read(&1, range).is_empty());
        assert!(sequence.note_read(&2, ByteRange::new(0, 8)).is_empty(), "not to its end");
        assert_eq!(sequence.note_read(&2, ByteRange::new(8, 1)).len(), 1);
        assert_eq!((sequence.len(), sequence.held_bytes), (0, 0));
        assert!(sequence.places.is_empty());
    }

    #[test]
    fn no_more_is_held_than_the_window_which_grows_with_use() {
        let hints: Vec<_> = (0..1000).map(|file| (file, 0, 100_000)).collect();
        let mut sequence = sequence(&hints);
        let fetch = |sequence: &mut Sequence<u32, u32>| {
            std::iter::from_fn(|| sequence.next_batch(u64::MAX)).count()
        };
        assert_eq!(fetch(&mut sequence), 10);
        let mut most = 0;
        for file in 0..900 {
            assert_eq!(sequence.note_read(&file, ByteRange::new(0, 100_000)).len(), 1);
            fetch(&mut sequence);
            most = most.max(sequence.held_bytes);
        }
        assert!((MOST - 100_000..=MOST).contains(&most), "{most}");
        assert_eq!(sequence.window, MOST);
    }

    #[test]
    fn what_is_left_out_is_let_go_and_trusted_less() {
        let hints: Vec<_> = (0..9000).map(|file| (file, 0, 10_000)).collect();
        let mut sequence = sequence(&hints);
        while sequence.next_batch(u64::MAX).is_some() {}
        let held = sequence.held_bytes;
        let released = sequence.note_read(&8000, ByteRange::new(0, 10_000));
        assert_eq!(released.len() as u64 * 10_000, held);
        assert_eq!((sequence.held_bytes, sequence.window), (0, LEAST_WINDOW));
        assert_eq!(sequence.base, 8001 - MOST_BEHIND);
        // What is told again is read then, and not what was left out.
        sequence.push(5, 5, ByteRange::new(0, 10_000));
        let again = sequence.base + sequence.hints.len() as u64 - 1;
        assert_eq!(sequence.places[&5][&0], [again]);
        // Who goes on there has it fetched, and who comes later to what is left too.
        let batches: Vec<u32> =
            std::iter::from_fn(|| sequence.next_batch(u64::MAX)).map(|batch| batch.file).collect();
        assert!(batches.contains(&8001) && batches.contains(&(8001 - MOST_BEHIND as u32)));
        let released = sequence.note_read(&8001, ByteRange::new(0, u64::MAX >> 1));
        assert!(released.iter().any(|over| over.file == 8001));
    }

    #[test]
    fn what_is_left_out_makes_room_when_nobody_has_read_of_it_for_a_while() {
        let hints: Vec<_> = (0..3000).map(|file| (file, 0, 10_000)).collect();
        let mut sequence = sequence(&hints);
        let mut hits = 0;
        for file in 2000..2300 {
            while sequence.next_batch(u64::MAX).is_some() {}
            hits += sequence.note_read(&file, ByteRange::new(0, 10_000)).len();
        }
        assert!(hits >= 200, "{hits}");
    }

    /// Some programs, each of which reads a batch of files from begin to end and then takes the next that nobody has; how many of the
    /// files were fetched before they were read.
    fn share(readers: usize, batch: u32, bytes: u64) -> usize {
        const FILES: u32 = 16_384;
        let hints: Vec<_> = (0..FILES).map(|file| (file, 0, bytes)).collect();
        let mut sequence = sequence(&hints);
        let mut next = 0;
        let mut take = || {
            next += batch;
            next - batch..next.min(FILES)
        };
        let mut turns: Vec<_> = (0..readers).map(|_| take()).collect();
        let (mut hits, mut random) = (0, 1_u64);
        while turns.iter().any(|turn| turn.start < turn.end) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let turn = &mut turns[(random >> 33) as usize % readers];
            let Some(file) = turn.next() else { continue };
            if turn.start == turn.end && next < FILES {
                next += batch;
                *turn = next - batch..next.min(FILES);
            }
            hits += usize::from(sequence.hint(file.into()).is_some_and(|hint| hint.is_held));
            sequence.note_read(&file, ByteRange::new(0, bytes));
            while sequence.next_batch(u64::MAX).is_some() {}
            assert!(sequence.held_bytes <= MOST);
        }
        assert_eq!((sequence.len(), sequence.held_bytes, sequence.behind_bytes), (0, 0, 0));
        hits
    }

    #[test]
    fn many_programs_share_the_reading_in_large_batches() {
        for (readers, bytes) in [(1, 100_000), (4, 100_000), (16, 10_000), (16, 100_000)] {
            let hits = share(readers, 256, bytes);
            assert!(hits > 15_000, "{readers} readers, {bytes} bytes: {hits}");
        }
    }

    #[test]
    fn drives_are_told_what_comes_behind_and_what_is_over() {
        let rows: Vec<_> = (0..200).map(|row| (1, row * 1000, 100)).collect();
        let mut sequence = sequence(&rows);
        sequence.push(1, 1, ByteRange::new(0, 100));
        let call = sequence.next_call().unwrap();
        assert_eq!((call.ordinal, sequence.progress()), (0, Progress::default()));
        assert_eq!(call.hints.ranges.len(), CALL_HINTS);
        let more: Vec<_> = std::iter::from_fn(|| sequence.next_call()).collect();
        let lengths: Vec<_> = more.iter().map(|call| call.hints.ranges.len()).collect();
        assert_eq!(lengths, [64, 64, 8, 1], "backwards is another call");
        assert_eq!(more[3].ordinal, 4);
        // What is fetched here is over for the drives; reads make it so.
        let fetched = std::iter::from_fn(|| sequence.next_batch(u64::MAX));
        assert_eq!(fetched.map(|batch| batch.ranges.len()).sum::<usize>(), 201);
        sequence.note_read(&1, ByteRange::new(0, 100));
        sequence.push(2, 2, ByteRange::new(0, 100));
        let call = sequence.next_call().unwrap();
        let progress = Progress { passed: 5, skipped: 0, ended: 1 };
        assert_eq!((call.ordinal, sequence.progress()), (5, progress));
        assert_eq!(progress.since(progress), Progress { passed: 5, skipped: 0, ended: 0 });
    }

    #[test]
    fn what_was_read_before_it_was_known_holds_up_nobody() {
        let (mut sequence, mut told, mut hits) = (Sequence::new(MOST), 0, 0);
        for file in 0..20_000 {
            // Whoever reads tells little ahead.
            while sequence.left() < 100 && told < 20_000 {
                sequence.push(told, told, ByteRange::new(0, 1000));
                told += 1;
            }
            while sequence.next_batch(MOST).is_some() {}
            // Of one in a hundred nothing was heard.
            if file % 100 > 0 {
                hits += sequence.note_read(&file, ByteRange::new(0, 1000)).len();
            }
            assert!(sequence.len() <= MOST_BEHIND as usize + 200);
        }
        assert!(hits > 19_000, "{hits}");
    }

    #[test]
    fn what_was_had_elsewhere_is_over_if_all_of_the_file_was_to_be_read() {
        let mut sequence =
            sequence(&[(1, 0, 10), (1, 10, 10), (1, 20, 5), (2, 50, 10), (2, 0, 10), (1, 0, 10)]);
        assert_eq!(sequence.next_batch(u64::MAX).unwrap().ranges.len(), 3);
        assert_eq!(sequence.note_had(&1).len(), 3);
        assert_eq!((sequence.len(), sequence.held()), (3, 0));
        // Who looks at the begin of a file may still read others of its parts.
        assert_eq!(sequence.note_had(&2), []);
        assert_eq!(sequence.places[&2].keys().copied().collect::<Vec<_>>(), [50]);
        assert_eq!(sequence.note_had(&3), []);
    }

    #[test]
    fn drives_are_told_so_far_ahead_and_no_further() {
        let hints: Vec<_> = (0..10_000).map(|file| (file, 0, 1)).collect();
        let mut small = sequence(&hints);
        assert_eq!(std::iter::from_fn(|| small.next_call()).count() as u64, TOLD_HINTS);
        let hints: Vec<_> = (0..100).map(|file| (file, 0, 8 << 20)).collect();
        let mut large = sequence(&hints);
        assert_eq!(std::iter::from_fn(|| large.next_call()).count(), 8);
        assert_eq!(large.end(), []);
        assert_eq!(large.len(), 0);
    }
}
