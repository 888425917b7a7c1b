//! Pieces of one file that were fetched because somebody has said that he will read them: pure bookkeeping.
//!
//! Unlike what is read ahead (`fetched`) they are as long as was said, are kept until their turn is over, and outlive an
//! open of the file if that shows that nobody has written since: that the file is what it was before they were asked for. Those
//! that are old are used only when the drive has been asked whether that is so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_types::ByteRange;

use crate::wire::FileAttributes;

/// A piece older than this is not used any more, until it is known that it is as good as new.
const MAX_AGE: Duration = Duration::from_secs(5);

/// What a file is like at some moment. The version of its data nobody can set, unlike its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    data: u64,
    /// Bytes that it has.
    size: u64,
}

impl Version {
    /// What attributes tell of it.
    pub(crate) fn of(attributes: &FileAttributes) -> Version {
        Version { data: attributes.data_version, size: attributes.size }
    }
}

/// Names one fetch of one piece.
pub(crate) type PieceId = u64;

/// A piece that a hint is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) id: PieceId,
    /// Whether it is to be fetched: no other hint had it before.
    pub(crate) is_new: bool,
}

/// Some of the bytes that were read at once.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    bytes: Arc<Vec<u8>>,
    start: usize,
    length: usize,
}

impl Part {
    /// So many bytes from there on; none behind the end.
    pub(crate) fn new(bytes: Arc<Vec<u8>>, start: usize, length: usize) -> Part {
        let start = start.min(bytes.len());
        let length = length.min(bytes.len() - start);
        Part { bytes, start, length }
    }

    /// The bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    /// Bytes of memory that it keeps.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.bytes.capacity()
    }

    /// Of these the ones from there on, at most so many.
    fn from(&self, skip: usize, limit: usize) -> Part {
        let length = (self.length - skip).min(limit);
        Part { bytes: Arc::clone(&self.bytes), start: self.start + skip, length }
    }
}

#[derive(Debug)]
struct Piece {
    id: PieceId,
    length: u64,
    /// How many hints it is for.
    users: u32,
    /// When it was known last to be what is there.
    born: Instant,
    /// What the file was like before it was asked for, if that is known.
    version: Option<Version>,
    read: Read,
}

/// How far the reading of a piece is.
#[derive(Debug)]
enum Read {
    /// Nobody has asked a drive for it yet.
    Waiting,
    UnderWay,
    Done(Part),
}

/// What is known of the bytes at some offset.
#[derive(Debug)]
pub(crate) enum Found {
    /// These bytes, from the offset on.
    Ready(Part),
    /// On their way.
    Fetching,
    /// Some that are old: good if the file is still what it was, which is to be told by `keep`.
    Old,
    /// Nothing.
    None,
}

/// The pieces of one file; they never overlap.
#[derive(Debug, Default)]
pub(crate) struct Hinted {
    pieces: BTreeMap<u64, Piece>,
    next_id: PieceId,
    /// What the file was like when that was told last.
    version: Option<Version>,
}

impl Hinted {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn at(&self, offset: u64) -> Option<&Piece> {
        let (start, piece) = self.pieces.range(..=offset).next_back()?;
        (start + piece.length > offset).then_some(piece)
    }

    /// Whether a byte is there, or is to be fetched.
    pub(crate) fn has(&self, offset: u64) -> bool {
        self.at(offset).is_some()
    }

    /// Whether a byte is there, or on its way.
    pub(crate) fn is_coming(&self, offset: u64) -> bool {
        self.at(offset).is_some_and(|piece| !matches!(piece.read, Read::Waiting))
    }

    /// The file is like this.
    pub(crate) fn note(&mut self, version: Version) {
        self.version = Some(version);
    }

    /// A piece is wanted; `None` if it overlaps others, and is left to them.
    pub(crate) fn begin(&mut self, range: ByteRange, now: Instant) -> Option<Begun> {
        if let Some((start, piece)) = self.pieces.range_mut(..range.end()).next_back()
            && start + piece.length > range.offset
        {
            let is_same = *start == range.offset && piece.length == range.length;
            piece.users += u32::from(is_same);
            return is_same.then_some(Begun { id: piece.id, is_new: false });
        }
        let id = self.next_id;
        self.next_id += 1;
        let piece = Piece {
            id,
            length: range.length,
            users: 1,
            born: now,
            version: self.version,
            read: Read::Waiting,
        };
        self.pieces.insert(range.offset, piece);
        Some(Begun { id, is_new: true })
    }

    /// A drive is about to be asked for it; whether it is wanted still.
    pub(crate) fn ask(&mut self, offset: u64, id: PieceId) -> bool {
        let piece = self.pieces.get_mut(&offset).filter(|piece| piece.id == id);
        piece.map(|piece| piece.read = Read::UnderWay).is_some()
    }

    /// It has come, as it was at that time or later, or not. What was dropped meanwhile is forgotten.
    pub(crate) fn finish(
        &mut self,
        (offset, id): (u64, PieceId),
        read: Option<Part>,
        asked: Instant,
    ) {
        let Some(piece) = self.pieces.get_mut(&offset).filter(|piece| piece.id == id) else {
            return;
        };
        match read {
            Some(read) => (piece.born, piece.read) = (asked, Read::Done(read)),
            None => drop(self.pieces.remove(&offset)),
        }
    }

    /// What there is at `offset`, at most so many bytes.
    pub(crate) fn find(&mut self, offset: u64, limit: usize, now: Instant) -> Found {
        let Some((&start, piece)) = self.pieces.range(..=offset).next_back() else {
            return Found::None;
        };
        if offset >= start + piece.length {
            return Found::None;
        }
        match &piece.read {
            Read::Waiting => {
                self.give_up_waiting(ByteRange::new(start, offset + limit as u64 - start));
                Found::None
            }
            Read::UnderWay => Found::Fetching,
            Read::Done(part) => {
                let skip = (offset - start) as usize;
                let is_old = now.duration_since(piece.born) > MAX_AGE;
                // Where the file had ended it may have grown since: the drive is asked.
                if skip >= part.length || (is_old && piece.version.is_none()) {
                    self.pieces.remove(&start);
                    return Found::None;
                }
                if is_old {
                    return Found::Old;
                }
                Found::Ready(part.from(skip, limit))
            }
        }
    }

    /// Whoever wants pieces now for which nobody has asked asks himself, for all at once: others may be in front of them.
    fn give_up_waiting(&mut self, range: ByteRange) {
        let is_waiting = |piece: &Piece| matches!(piece.read, Read::Waiting);
        let next = self.pieces.range(range.offset..range.end());
        let given_up = next.take_while(|(_, piece)| is_waiting(piece));
        let starts: Vec<u64> = given_up.map(|(start, _)| *start).collect();
        starts.iter().for_each(|start| drop(self.pieces.remove(start)));
    }

    /// Where the next piece begins behind an offset.
    pub(crate) fn next_after(&self, offset: u64) -> u64 {
        self.pieces.range(offset + 1..).next().map_or(u64::MAX, |(start, _)| *start)
    }

    /// The turn of a hint is over that was for that piece. Where it was dropped, another one may be there, which is not its.
    pub(crate) fn over(&mut self, offset: u64, id: PieceId) {
        if let Some(piece) = self.pieces.get_mut(&offset).filter(|piece| piece.id == id) {
            piece.users -= 1;
            if piece.users == 0 {
                self.pieces.remove(&offset);
            }
        }
    }

    /// The file is like this now: what was asked for when it was like that is as good as new, all else is dropped.
    pub(crate) fn keep(&mut self, version: Version, now: Instant) {
        self.version = Some(version);
        self.pieces.retain(|_, piece| {
            piece.born = now;
            piece.version == Some(version)
        });
    }

    /// A local write or truncation touches `range`.
    pub(crate) fn drop_overlapping(&mut self, range: ByteRange) {
        if !self.pieces.is_empty() {
            self.pieces.retain(|start, piece| {
                ByteRange::new(*start, piece.length).intersection(&range).is_empty()
            });
        }
    }

    /// All pieces are so much older.
    #[cfg(test)]
    pub(crate) fn age(&mut self, by: Duration) {
        let older = |piece: &mut Piece| piece.born -= by;
        self.pieces.values_mut().for_each(older);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: Version = Version { data: 7, size: 1000 };

    fn begin(hinted: &mut Hinted, range: ByteRange, now: Instant) -> PieceId {
        let begun = hinted.begin(range, now).unwrap();
        assert!(begun.is_new);
        begun.id
    }

    fn come(hinted: &mut Hinted, range: ByteRange, bytes: &[u8]) -> PieceId {
        let now = Instant::now();
        hinted.note(VERSION);
        let id = begin(hinted, range, now);
        assert!(hinted.ask(range.offset, id));
        assert!(matches!(hinted.find(range.offset, 1, now), Found::Fetching));
        let part = Part::new(Arc::new(bytes.to_vec()), 0, bytes.len());
        hinted.finish((range.offset, id), Some(part), now);
        id
    }

    fn found(hinted: &mut Hinted, offset: u64, limit: usize) -> Option<Vec<u8>> {
        match hinted.find(offset, limit, Instant::now()) {
            Found::Ready(part) => Some(part.data().to_vec()),
            _ => None,
        }
    }

    #[test]
    fn a_piece_is_there_until_the_turn_of_its_last_hint_is_over() {
        let mut hinted = Hinted::default();
        let range = ByteRange::new(10, 4);
        let id = come(&mut hinted, range, b"abcd");
        let again = hinted.begin(range, Instant::now());
        assert_eq!(again, Some(Begun { id, is_new: false }), "it is there");
        assert!(hinted.begin(ByteRange::new(8, 4), Instant::now()).is_none(), "it overlaps");
        assert_eq!(found(&mut hinted, 11, 2).as_deref(), Some(&b"bc"[..]));
        assert_eq!(found(&mut hinted, 9, 2), None);
        assert_eq!((hinted.next_after(0), hinted.next_after(10)), (10, u64::MAX));
        hinted.over(10, id + 1);
        hinted.over(10, id);
        assert_eq!(found(&mut hinted, 13, 9).as_deref(), Some(&b"d"[..]));
        assert_eq!(found(&mut hinted, 14, 9), None);
        hinted.over(10, id);
        assert!(hinted.is_empty());
    }

    #[test]
    fn the_end_of_a_hint_takes_nothing_that_came_after_its_piece_was_dropped() {
        let mut hinted = Hinted::default();
        let range = ByteRange::new(10, 4);
        let old = come(&mut hinted, range, b"abcd");
        hinted.drop_overlapping(ByteRange::new(12, 1));
        let new = come(&mut hinted, range, b"abXd");
        hinted.over(10, old);
        assert_eq!(found(&mut hinted, 10, 4).as_deref(), Some(&b"abXd"[..]));
        hinted.over(10, new);
        assert!(hinted.is_empty());
    }

    #[test]
    fn what_is_old_or_of_another_version_is_not_used() {
        let mut hinted = Hinted::default();
        come(&mut hinted, ByteRange::new(0, 2), b"ab");
        come(&mut hinted, ByteRange::new(5, 2), b"xy");
        let later = Instant::now() + MAX_AGE + Duration::from_secs(1);
        assert!(matches!(hinted.find(0, 1, later), Found::Old));
        hinted.keep(VERSION, later);
        assert!(matches!(hinted.find(5, 1, later), Found::Ready(_)));
        hinted.keep(Version { data: 8, ..VERSION }, later);
        assert!(hinted.is_empty());
        // What is on its way may be of either: what was asked for later is of the newer one.
        let way = |hinted: &mut Hinted, offset| {
            let id = begin(hinted, ByteRange::new(offset, 2), later);
            assert!(hinted.ask(offset, id));
            id
        };
        let other = Version { data: 6, ..VERSION };
        hinted.note(VERSION);
        let old = way(&mut hinted, 20);
        hinted.note(other);
        let new = way(&mut hinted, 30);
        hinted.keep(other, later);
        let part = Part::new(Arc::new(b"pq".to_vec()), 0, 2);
        hinted.finish((20, old), Some(part.clone()), later);
        hinted.finish((30, new), Some(part), later);
        assert!(matches!(hinted.find(20, 1, later), Found::None));
        assert!(matches!(hinted.find(30, 1, later), Found::Ready(_)));
    }

    #[test]
    fn what_no_drive_was_asked_for_is_whoever_reads_it_first() {
        let (mut hinted, now) = (Hinted::default(), Instant::now());
        let [first, second, third, fourth] =
            [4, 6, 8, 10].map(|offset| begin(&mut hinted, ByteRange::new(offset, 2), now));
        assert!(hinted.ask(8, third));
        assert!(hinted.has(4) && hinted.has(5) && !hinted.has(3) && !hinted.has(12));
        assert!(!hinted.is_coming(5) && hinted.is_coming(9));
        // All of them at once, as far as they wait.
        assert!(matches!(hinted.find(5, 100, now), Found::None));
        assert_eq!(hinted.next_after(5), 8);
        assert!(!hinted.ask(4, first) && !hinted.ask(6, second), "they are not wanted any more");
        assert!(matches!(hinted.find(8, 100, now), Found::Fetching));
        assert!(hinted.ask(10, fourth));
    }

    #[test]
    fn a_write_drops_what_it_touches_even_on_its_way() {
        let mut hinted = Hinted::default();
        come(&mut hinted, ByteRange::new(0, 2), b"ab");
        let id = begin(&mut hinted, ByteRange::new(4, 2), Instant::now());
        hinted.drop_overlapping(ByteRange::new(1, 4));
        let part = Part::new(Arc::new(b"old!".to_vec()), 2, 9);
        assert_eq!(part.data(), b"d!");
        hinted.finish((4, id), Some(part), Instant::now());
        assert!(hinted.is_empty());
        // The end of the file is asked for again.
        come(&mut hinted, ByteRange::new(0, 4), b"ab");
        assert_eq!(found(&mut hinted, 2, 1), None);
        assert!(hinted.is_empty());
    }
}
