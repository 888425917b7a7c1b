//! A journal of appends: which place each has got, so that one that is asked for again gets no other.
//!
//! Pure bookkeeping of one journal, and its bytes. Entries are numbered in their order; the last ones lie in a ring of
//! slots, each by its number, so that a slot is never written for another entry before many have come. A place that
//! was given is never taken back: what is still under way of an append whose end is not known, from a striping manager
//! that has died too, goes there and nowhere else.

use std::collections::{BTreeSet, VecDeque};

use nasd_types::{AppendToken, ByteRange, ObjectId, Timestamp};

/// Slots of the ring.
pub(crate) const SLOTS: u64 = 128;

/// Bytes of a slot.
const SLOT_BYTES: usize = 64;

/// Bytes of the ring.
pub(crate) const BYTES: u64 = SLOTS * SLOT_BYTES as u64;

/// How long others wait for one whose append may have been made by half: he asks again soon, if he lives.
const GRACE_NS: u64 = 4_000_000_000;

/// Says that the bytes of a slot are an entry.
const MAGIC: [u8; 3] = *b"App";

/// What is known of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has its place; whether its bytes are there is not known, or not known yet.
    Begun,
    /// It was made, or others go by that it was.
    Made,
    /// It failed, and whoever asked was told so.
    Failed,
}

/// An append, and the place that it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) object: ObjectId,
    pub(crate) token: AppendToken,
    pub(crate) range: ByteRange,
    /// A checksum of its bytes.
    pub(crate) sum: u32,
    /// When it was asked for first; later than those before.
    time: Timestamp,
    pub(crate) outcome: Outcome,
    /// Since when its end has been waited for; not kept.
    open_since: Timestamp,
}

/// The appends to the objects of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    /// The oldest first, with their numbers.
    entries: VecDeque<(u64, Entry)>,
    next: u64,
    /// No append that was asked for later than this is missing.
    forgotten: Timestamp,
    /// Entries whose slots are not what they should be.
    unwritten: BTreeSet<u64>,
}

impl Journal {
    /// A journal as its bytes say, which may be cut off; `now` is when it is read.
    pub(crate) fn parse(bytes: &[u8], now: Timestamp) -> Journal {
        let mut entries = Vec::new();
        let mut forgotten = Timestamp(0);
        for slot in bytes.chunks(SLOT_BYTES).filter(|slot| slot.iter().any(|byte| *byte != 0)) {
            match decode(slot, now) {
                Some(entry) => entries.push(entry),
                // Whatever was there is not known any more.
                None => forgotten = now,
            }
        }
        entries.sort_unstable_by_key(|(number, _)| *number);
        let last = entries.last().map_or(0, |(number, _)| *number);
        // Those of a turn of the ring before have lost their neighbours.
        entries.retain(|(number, _)| number + SLOTS > last);
        if last >= SLOTS
            && let Some((_, oldest)) = entries.first()
        {
            forgotten = forgotten.max(oldest.time);
        }
        let mut journal = Journal { entries: entries.into(), forgotten, ..Journal::default() };
        journal.next = match journal.entries.is_empty() {
            true => 0,
            // The slot behind the last one may be written yet, by a striping manager that has died.
            false => last + 2,
        };
        journal.forget_overrun();
        journal
    }

    /// An entry that a striping manager which had died has written late, and whose place another one has got before
    /// that, is none.
    fn forget_overrun(&mut self) {
        let entries = self.entries.clone();
        self.entries.retain(|(number, entry)| {
            let overruns = |(other, later): &(u64, Entry)| {
                let is_there = !later.range.intersection(&entry.range).is_empty();
                later.object == entry.object && other > number && is_there
            };
            entry.outcome != Outcome::Begun || !entries.iter().any(overruns)
        });
    }

    /// The append of that token to that object, if it is remembered.
    pub(crate) fn find(&self, object: ObjectId, token: AppendToken) -> Option<Entry> {
        let mut entries = self.entries.iter().rev().map(|(_, entry)| *entry);
        let found = entries.find(|entry| entry.token == token && entry.object == object);
        found.filter(|entry| entry.outcome != Outcome::Failed)
    }

    /// Whether an append that was asked for first at that time, or later, may be one that is not remembered.
    pub(crate) fn may_have_forgotten(&self, since: Timestamp) -> bool {
        since <= self.forgotten
    }

    /// Where the next append to an object may go at the earliest: behind those whose end is not known. None as long as
    /// these are waited for.
    pub(crate) fn earliest(&self, object: ObjectId, now: Timestamp) -> Option<u64> {
        let mut earliest = 0;
        for entry in self.open(object) {
            if now.0 < entry.open_since.0.saturating_add(GRACE_NS) {
                return None;
            }
            earliest = earliest.max(entry.range.end());
        }
        Some(earliest)
    }

    /// The appends to an object whose end is not known.
    pub(crate) fn open(&self, object: ObjectId) -> Vec<Entry> {
        let its = self.entries.iter().map(|(_, entry)| *entry);
        its.filter(|it| it.object == object && it.outcome == Outcome::Begun).collect()
    }

    /// An append gets a place; so many are remembered, or as many as there are slots.
    pub(crate) fn begin(
        &mut self,
        (object, token): (ObjectId, AppendToken),
        (offset, bytes): (u64, &[u8]),
        now: Timestamp,
        most: usize,
    ) {
        let last = self.entries.back().map_or(Timestamp(0), |(_, last)| last.time);
        let (time, outcome) = (now.max(Timestamp(last.0.saturating_add(1))), Outcome::Begun);
        let (range, sum) = (ByteRange::new(offset, bytes.len() as u64), crc32c::crc32c(bytes));
        let entry = Entry { object, token, range, sum, time, outcome, open_since: now };
        self.entries.push_back((self.next, entry));
        self.unwritten.insert(self.next);
        self.next += 1;
        while self.entries.len() > most.max(SLOTS as usize)
            && let Some((_, oldest)) = self.entries.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.time);
        }
    }

    /// It is known what became of an append, or it is not, which others wait for since `now`.
    pub(crate) fn end(
        &mut self,
        (object, token): (ObjectId, AppendToken),
        outcome: Outcome,
        now: Timestamp,
    ) {
        let its = |(_, entry): &&mut (u64, Entry)| entry.token == token && entry.object == object;
        if let Some((number, entry)) = self.entries.iter_mut().rev().find(its) {
            entry.open_since = now;
            if entry.outcome != outcome {
                entry.outcome = outcome;
                self.unwritten.insert(*number);
            }
        }
    }

    /// Others go by that all appends to an object were made. Whether there was one of which the slots don't say so.
    pub(crate) fn close(&mut self, object: ObjectId) -> bool {
        let mut any = false;
        for (number, entry) in &mut self.entries {
            if entry.object != object {
                continue;
            }
            if entry.outcome == Outcome::Begun {
                entry.outcome = Outcome::Made;
                self.unwritten.insert(*number);
            }
            any |= self.unwritten.contains(number);
        }
        any
    }

    /// Whether an append that has got a place has it in the slots too.
    pub(crate) fn is_written(&self) -> bool {
        let is_begun = |(number, entry): &(u64, Entry)| {
            entry.outcome == Outcome::Begun && self.unwritten.contains(number)
        };
        !self.entries.iter().any(is_begun)
    }

    /// What is to be written, and where; nothing if all is.
    pub(crate) fn to_write(&self) -> Option<(u64, Vec<u8>)> {
        let slots = self.unwritten.iter().map(|number| number % SLOTS);
        let (first, last) = (slots.clone().min()?, slots.max()?);
        let mut bytes = vec![0; (last - first + 1) as usize * SLOT_BYTES];
        for (number, entry) in self.entries.iter().rev().take(SLOTS as usize) {
            let slot = number % SLOTS;
            if number + SLOTS >= self.next && (first..=last).contains(&slot) {
                let at = (slot - first) as usize * SLOT_BYTES;
                bytes[at..at + SLOT_BYTES].copy_from_slice(&encode(*number, entry));
            }
        }
        Some((first * SLOT_BYTES as u64, bytes))
    }

    /// All was written.
    pub(crate) fn written(&mut self) {
        self.unwritten.clear();
    }
}

/// The bytes of a slot: what is there, the entry, and a checksum of both.
fn encode(number: u64, entry: &Entry) -> [u8; SLOT_BYTES] {
    let outcome = match entry.outcome {
        Outcome::Begun => 0,
        Outcome::Made => 1,
        Outcome::Failed => 2_u8,
    };
    let mut bytes = [0; SLOT_BYTES];
    bytes[..3].copy_from_slice(&MAGIC);
    bytes[3] = outcome;
    bytes[4..8].copy_from_slice(&entry.sum.to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    bytes[16..24].copy_from_slice(&entry.object.0.to_be_bytes());
    bytes[24..40].copy_from_slice(&entry.token.0);
    bytes[40..48].copy_from_slice(&entry.range.offset.to_be_bytes());
    bytes[48..52].copy_from_slice(&(entry.range.length as u32).to_be_bytes());
    bytes[52..60].copy_from_slice(&entry.time.0.to_be_bytes());
    let sum = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The entry of a slot, with its number, if it is one.
fn decode(bytes: &[u8], now: Timestamp) -> Option<(u64, Entry)> {
    let u64_at = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    let u32_at = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let is_sound = bytes.len() == SLOT_BYTES
        && bytes.starts_with(&MAGIC)
        && u32_at(60) == Some(crc32c::crc32c(&bytes[..60]));
    if !is_sound {
        return None;
    }
    let outcome = match bytes[3] {
        0 => Outcome::Begun,
        1 => Outcome::Made,
        2 => Outcome::Failed,
        _ => return None,
    };
    let entry = Entry {
        object: ObjectId(u64_at(16)?),
        token: AppendToken(bytes.get(24..40)?.try_into().ok()?),
        range: ByteRange::new(u64_at(40)?, u32_at(48)?.into()),
        sum: u32_at(4)?,
        time: Timestamp(u64_at(52)?),
        outcome,
        open_since: now,
    };
    Some((u64_at(8)?, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId(5);

    fn token(number: u64) -> AppendToken {
        AppendToken(u128::from(number).to_be_bytes())
    }

    fn seconds(count: u64) -> Timestamp {
        Timestamp(count * 1_000_000_000)
    }

    fn range(number: u64) -> ByteRange {
        ByteRange::new(10 * number, 10)
    }

    fn data(number: u64) -> (u64, &'static [u8]) {
        (10 * number, b"0123456789")
    }

    /// Writes what is to be written.
    fn write(journal: &mut Journal, bytes: &mut [u8]) {
        if let Some((at, changed)) = journal.to_write() {
            bytes[at as usize..][..changed.len()].copy_from_slice(&changed);
        }
        journal.written();
    }

    #[test]
    fn what_was_written_is_known_to_the_next_life_and_nothing_is_taken_for_new_that_may_not_be() {
        let mut bytes = vec![0; BYTES as usize];
        let mut journal = Journal::default();
        let mut made = 0;
        for life in 0..5 {
            for _ in 0..70 {
                journal.begin((OBJECT, token(made)), data(made), seconds(100 + made), 0);
                assert!(!journal.is_written());
                write(&mut journal, &mut bytes);
                assert!(journal.is_written());
                journal.end((OBJECT, token(made)), Outcome::Made, seconds(100 + made));
                made += 1;
            }
            // Only the last one's end is not written.
            journal = Journal::parse(&bytes, seconds(1000));
            let kept = (0..made).filter(|number| journal.find(OBJECT, token(*number)).is_some());
            let first = kept.clone().next().unwrap();
            assert_eq!(kept.count() as u64, made - first, "{life}");
            assert!(made - first >= made.min(SLOTS - 5), "{life}: {first}");
            let begun =
                |number| journal.find(OBJECT, token(number)).unwrap().outcome == Outcome::Begun;
            assert!((first..made).all(|number| begun(number) == (number == made - 1)), "{life}");
            assert!((0..first).all(|number| journal.may_have_forgotten(seconds(100 + number))));
            assert!(!journal.may_have_forgotten(seconds(100 + made - 1)));
            journal.close(OBJECT);
        }
    }

    #[test]
    fn who_may_have_got_a_place_keeps_it() {
        let mut journal = Journal::default();
        assert_eq!(journal.earliest(OBJECT, seconds(1)), Some(0));
        journal.begin((OBJECT, token(1)), data(1), seconds(10), 0);
        assert_eq!(journal.earliest(OBJECT, seconds(13)), None, "he is waited for");
        assert_eq!(journal.earliest(ObjectId(6), seconds(13)), Some(0));
        assert_eq!(journal.earliest(OBJECT, seconds(14)), Some(20), "not for ever");
        journal.end((OBJECT, token(1)), Outcome::Begun, seconds(20));
        assert_eq!(journal.earliest(OBJECT, seconds(23)), None, "he has asked again");
        journal.end((OBJECT, token(1)), Outcome::Made, seconds(20));
        assert_eq!(journal.earliest(OBJECT, seconds(20)), Some(0));
        journal.begin((OBJECT, token(2)), data(2), seconds(30), 0);
        journal.end((OBJECT, token(2)), Outcome::Failed, seconds(30));
        assert_eq!(journal.find(OBJECT, token(2)), None, "and may get another one");
        assert_eq!(journal.earliest(OBJECT, seconds(30)), Some(0));
        journal.begin((OBJECT, token(3)), data(2), seconds(30), 0);
        assert!(journal.close(OBJECT) && !journal.close(ObjectId(6)));
        assert!(journal.close(OBJECT), "as it is not written");
        journal.written();
        assert!(!journal.close(OBJECT));
        assert_eq!(journal.find(OBJECT, token(3)).unwrap().outcome, Outcome::Made);
    }

    #[test]
    fn an_entry_that_comes_late_is_not_believed() {
        let mut bytes = vec![0; BYTES as usize];
        let mut first = Journal::default();
        first.begin((OBJECT, token(1)), data(1), seconds(1), 0);
        write(&mut first, &mut bytes);
        first.end((OBJECT, token(1)), Outcome::Made, seconds(1));
        // Its next write is under way when it dies.
        let mut second = Journal::parse(&bytes, seconds(2));
        first.begin((OBJECT, token(2)), data(2), seconds(1), 0);
        second.begin((OBJECT, token(3)), data(2), seconds(2), 0);
        write(&mut second, &mut bytes);
        write(&mut first, &mut bytes);
        let third = Journal::parse(&bytes, seconds(3));
        assert_eq!(third.find(OBJECT, token(2)), None);
        assert_eq!(third.find(OBJECT, token(3)).unwrap().range, range(2));
    }

    #[test]
    fn what_a_slot_has_lost_counts_as_forgotten() {
        let mut bytes = vec![0; BYTES as usize];
        let mut journal = Journal::default();
        journal.begin((OBJECT, token(1)), data(1), seconds(1), 0);
        write(&mut journal, &mut bytes);
        for byte in 0..SLOT_BYTES {
            let mut bad = bytes.clone();
            bad[byte] ^= 4;
            let read = Journal::parse(&bad, seconds(9));
            assert_eq!(read.find(OBJECT, token(1)), None, "{byte}");
            assert!(read.may_have_forgotten(seconds(9)), "{byte}");
        }
        let short = Journal::parse(&bytes[..SLOT_BYTES], seconds(9));
        assert!(short.find(OBJECT, token(1)).is_some());
    }
}
