//! The log: which entries count, and what changes they hold.

use nasd_device::{BlockDevice, DeviceError};

use crate::appends::Appended;
use crate::bytes::{
    BLOCK, BLOCK_LENGTH, all_zero, array, checksum_without, le32, le64, read_blocks, read_bytes,
};
use crate::finding::Code;
use crate::record::{
    COUNTERS_BYTES, Counters, DRIVE_KEYS_BYTES, DriveKeys, Extent, Mark, OBJECT_BYTES, Object,
    PARTITION_BYTES, Partition, Record, SMALL_MAX, object_key,
};
use crate::replay::Move;
use crate::sink::Sink;
use crate::superblock::Superblock;

const MAGIC: &[u8; 8] = b"NASDlog2";
const CHECKSUM_FIELD: usize = 8;
const HEADER_BYTES: usize = 40;
const CHANGE_HEADER: usize = 16;
const MAP_BYTES: usize = 32;
/// Bytes of the log that a search reads at a time.
const SEARCH_BYTES: u64 = 1 << 20;

/// What one change does, to the object or partition that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    PutObject(Object),
    RemoveObject,
    Clear { from: u64, to: u64 },
    Map { logical: u64, extent: Extent, sums: Vec<u32>, inline: Option<u64> },
    PutSmall(Vec<u8>),
    DropSmall,
    Clone { source: u64, record: Object },
    PutPartition(Partition),
    RemovePartition,
    PutDriveKeys(DriveKeys),
    PutCounters(Counters),
    Move(Move),
    Appended(Appended),
    Share(Shared),
    CopyPartition { source: u32 },
}

/// Blocks of an object that another one gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    pub(crate) source: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) blocks: u64,
    pub(crate) time: u64,
}

/// A change and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) partition: u32,
    pub(crate) object: u64,
    pub(crate) action: Action,
}

/// A valid entry; `inline` of its changes counts from the start of `bytes`.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Within the log, in bytes.
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    /// Where the next entry is if it fits there.
    pub(crate) fn end(&self) -> u64 {
        self.offset + (self.bytes.len() as u64).next_multiple_of(BLOCK)
    }
}

/// Reads the log of one drive.
pub(crate) struct Log<'a> {
    device: &'a dyn BlockDevice,
    superblock: &'a Superblock,
}

impl<'a> Log<'a> {
    pub(crate) fn new(device: &'a dyn BlockDevice, superblock: &'a Superblock) -> Log<'a> {
        Log { device, superblock }
    }

    /// First byte on the device of a place in the log.
    pub(crate) fn byte_of(&self, offset: u64) -> u64 {
        self.superblock.log_offset + offset
    }

    /// The valid entry at a place, whatever its sequence.
    pub(crate) fn entry_at(&self, offset: u64) -> Result<Option<Entry>, DeviceError> {
        if !offset.is_multiple_of(BLOCK) || offset >= self.superblock.log_bytes {
            return Ok(None);
        }
        let head = read_blocks(self.device, self.byte_of(offset), BLOCK_LENGTH)?;
        let Some((length, sequence)) = self.header(&head, offset) else { return Ok(None) };
        let bytes = read_bytes(self.device, self.byte_of(offset), length)?;
        let right = checksum_without(&[], &bytes, CHECKSUM_FIELD) == le32(&bytes, CHECKSUM_FIELD);
        Ok(right.then_some(Entry { offset, sequence, bytes }))
    }

    /// Length and sequence, if this can be an entry of this drive at that place.
    fn header(&self, head: &[u8], offset: u64) -> Option<(usize, u64)> {
        let length = le32(head, 12) as usize;
        let fits = length >= HEADER_BYTES
            && offset
                .checked_add(length as u64)
                .is_some_and(|end| end <= self.superblock.log_bytes);
        let ours = head.get(..8) == Some(MAGIC) && le64(head, 16) == self.superblock.log_key;
        (ours && fits).then(|| (length, le64(head, 24)))
    }

    /// The entry with that sequence, at `offset` or at the start of the log.
    pub(crate) fn next(&self, offset: u64, sequence: u64) -> Result<Option<Entry>, DeviceError> {
        let first = self.entry_at(offset);
        if let Ok(Some(entry)) = &first
            && entry.sequence == sequence
        {
            return first;
        }
        let at_start = if offset == 0 { Ok(None) } else { self.entry_at(0) };
        match at_start {
            Ok(Some(entry)) if entry.sequence == sequence => Ok(Some(entry)),
            other => first.and(other).map(|_| None),
        }
    }

    /// Places and sequences of the valid entries with at least that sequence, anywhere.
    pub(crate) fn search(&self, least: u64) -> Result<Vec<(u64, u64)>, DeviceError> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.superblock.log_bytes {
            let length = SEARCH_BYTES.min(self.superblock.log_bytes - at);
            let piece = read_blocks(self.device, self.byte_of(at), length as usize)?;
            for (index, block) in piece.chunks_exact(BLOCK_LENGTH).enumerate() {
                let offset = at + index as u64 * BLOCK;
                let candidate = self.header(block, offset).is_some_and(|(_, seq)| seq >= least);
                if candidate && let Some(entry) = self.entry_at(offset)? {
                    found.push((offset, entry.sequence));
                }
            }
            at += length;
        }
        Ok(found)
    }

    /// Whether the rest of an entry's last block is zero.
    fn padding_is_zero(&self, entry: &Entry) -> bool {
        let end = entry.offset + entry.bytes.len() as u64;
        let length = (entry.end() - end) as usize;
        read_bytes(self.device, self.byte_of(end), length).is_ok_and(|bytes| all_zero(&bytes))
    }
}

/// What of the log is not in the tables yet, one entry after the other.
pub(crate) struct Replayable<'a> {
    log: Log<'a>,
    /// How far was read: what the mark becomes when all of it is applied.
    pub(crate) mark: Mark,
    /// Set when the log ends for another reason than that nothing more was written.
    cut: bool,
    /// Set when the medium could not read a part of it.
    pub(crate) unreadable: bool,
}

impl<'a> Replayable<'a> {
    /// Starts behind the mark. Without one, the whole log counts as applied.
    pub(crate) fn new(log: Log<'a>, mark: Option<Mark>, sink: &mut Sink) -> Replayable<'a> {
        let bytes = log.superblock.log_bytes;
        let mut cut = false;
        let mark = match mark {
            Some(mark) if mark.next_offset > bytes || !mark.next_offset.is_multiple_of(BLOCK) => {
                let detail = format!("NEXT_OFFSET is {}", mark.next_offset);
                sink.drive(Code::LogMarkInvalid, detail);
                cut = true;
                Mark { next_offset: 0, ..mark }
            }
            Some(mark) => mark,
            None => {
                let found = log.search(0).unwrap_or_default();
                let applied = found.iter().map(|(_, sequence)| *sequence).max().unwrap_or(0);
                cut = true;
                Mark { applied, next_offset: 0 }
            }
        };
        Replayable { log, mark, cut, unreadable: false }
    }

    /// The next entry and its changes.
    pub(crate) fn next(&mut self, sink: &mut Sink) -> Option<(Entry, Vec<Change>)> {
        let wanted = self.mark.applied.checked_add(1)?;
        let entry = match self.log.next(self.mark.next_offset, wanted) {
            Ok(entry) => entry?,
            Err(error) => {
                sink.drive(Code::LogUnreadable, error.to_string());
                (self.cut, self.unreadable) = (true, true);
                return None;
            }
        };
        if !self.log.padding_is_zero(&entry) {
            let detail = format!("entry {wanted} at byte {} of the log", entry.offset);
            sink.drive(Code::LogPaddingNotZero, detail);
        }
        let (changes, flaw) = parse_changes(&entry.bytes);
        if let Some(flaw) = flaw {
            let detail = format!("entry {wanted} at byte {} of the log: {flaw}", entry.offset);
            sink.drive(Code::LogEntryMalformed, detail);
            self.cut = true;
            return None;
        }
        self.mark = Mark { applied: wanted, next_offset: entry.end() };
        Some((entry, changes))
    }

    /// Looks for entries behind the end that should not be there; their places.
    pub(crate) fn stragglers(&mut self, sink: &mut Sink) -> Vec<u64> {
        let next = self.mark.applied.saturating_add(1);
        let found = match self.log.search(next) {
            Ok(found) => found,
            Err(error) => {
                if !self.unreadable {
                    sink.drive(Code::LogUnreadable, error.to_string());
                }
                self.unreadable = true;
                return Vec::new();
            }
        };
        let higher = found.iter().filter(|(_, sequence)| *sequence > next);
        let count = higher.clone().count();
        if count > 0 && !self.cut {
            let highest = higher.map(|(_, sequence)| *sequence).max().unwrap_or(next);
            sink.drive(
                Code::LogEntryDamaged,
                format!(
                    "entry {next} is not there, and {count} later ones up to {highest} are: \
                     what they changed is lost"
                ),
            );
        }
        if count > 0 || self.cut {
            return found.into_iter().map(|(offset, _)| offset).collect();
        }
        Vec::new()
    }
}

/// Takes pieces off the front of an entry.
struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn record<T: Record>(&mut self, length: usize, key: &[u8]) -> Result<T, String> {
        let bytes = self.take(length).ok_or("a record is cut off")?;
        match T::decode(key, bytes) {
            Ok((record, true)) => Ok(record),
            Ok((_, false)) => Err("reserved bytes of a record are not zero".to_owned()),
            Err(flaw) => Err(format!("a record in it: {flaw}")),
        }
    }
}

/// The changes of an entry, and what is wrong with it. Total over all bytes.
pub(crate) fn parse_changes(bytes: &[u8]) -> (Vec<Change>, Option<String>) {
    let mut changes = Vec::new();
    if le32(bytes, 36) != 0 {
        return (changes, Some("its reserved bytes are not zero".to_owned()));
    }
    let mut parser = Parser { bytes, at: HEADER_BYTES };
    for number in 0..le32(bytes, 32) {
        match parse_change(&mut parser) {
            Ok(change) => changes.push(change),
            Err(flaw) => return (changes, Some(format!("change {number}: {flaw}"))),
        }
    }
    let rest = bytes.len().saturating_sub(parser.at);
    let flaw = (rest > 0).then(|| format!("{rest} bytes are behind its last change"));
    (changes, flaw)
}

fn parse_change(parser: &mut Parser<'_>) -> Result<Change, String> {
    const CUT: &str = "it is cut off";
    let head = parser.take(CHANGE_HEADER).ok_or(CUT)?;
    let (kind, partition, object) = (head[0], le32(head, 4), le64(head, 8));
    if !all_zero(&head[1..4]) {
        return Err("reserved bytes are not zero".to_owned());
    }
    let concerns_object = matches!(kind, 1..=7 | 13 | 14);
    if concerns_object == (object == 0) || (matches!(kind, 10..=12) && partition != 0) {
        return Err(format!("kind {kind} names partition {partition}, object {object}"));
    }
    let key = object_key(partition, object);
    let action = match kind {
        1 => Action::PutObject(parser.record(OBJECT_BYTES, &key)?),
        2 => Action::RemoveObject,
        3 => {
            let body = parser.take(16).ok_or(CUT)?;
            Action::Clear { from: le64(body, 0), to: le64(body, 8) }
        }
        4 => parse_map(parser)?,
        5 => {
            let length = le32(parser.take(4).ok_or(CUT)?, 0) as usize;
            if !(1..=SMALL_MAX).contains(&length) {
                return Err(format!("small contents of {length} bytes"));
            }
            Action::PutSmall(parser.take(length).ok_or(CUT)?.to_vec())
        }
        6 => Action::DropSmall,
        7 => {
            let source = le64(parser.take(8).ok_or(CUT)?, 0);
            Action::Clone { source, record: parser.record(OBJECT_BYTES, &key)? }
        }
        8 => Action::PutPartition(parser.record(PARTITION_BYTES, &partition.to_be_bytes())?),
        9 => Action::RemovePartition,
        10 => Action::PutDriveKeys(parser.record(DRIVE_KEYS_BYTES, &1u32.to_be_bytes())?),
        11 => Action::PutCounters(parser.record(COUNTERS_BYTES, &2u32.to_be_bytes())?),
        12 => {
            let body = parser.take(24).ok_or(CUT)?;
            Action::Move(Move { from: le64(body, 0), to: le64(body, 8), blocks: le64(body, 16) })
        }
        13 => {
            let body = parser.take(40).ok_or(CUT)?;
            if !all_zero(&body[36..40]) {
                return Err("reserved bytes are not zero".to_owned());
            }
            let length = le32(body, 32);
            let (offset, time) = (le64(body, 16), le64(body, 24));
            let token = array(body, 0);
            Action::Appended(Appended { partition, length, object, token, offset, time })
        }
        14 => {
            let body = parser.take(40).ok_or(CUT)?;
            let [source, from, to, blocks, time] = [0, 8, 16, 24, 32].map(|at| le64(body, at));
            Action::Share(Shared { source, from, to, blocks, time })
        }
        15 => Action::CopyPartition { source: le32(parser.take(4).ok_or(CUT)?, 0) },
        _ => return Err(format!("kind {kind} is not known")),
    };
    Ok(Change { partition, object, action })
}

fn parse_map(parser: &mut Parser<'_>) -> Result<Action, String> {
    const CUT: &str = "a map is cut off";
    let body = parser.take(MAP_BYTES).ok_or(CUT)?;
    let logical = le64(body, 0);
    let extent = Extent {
        physical: le64(body, 8),
        blocks: le32(body, 16),
        stored: le32(body, 20),
        length: le32(body, 24),
        codec: body[28],
    };
    if !all_zero(&body[30..32]) || body[29] > 1 {
        return Err("a map's INLINE or reserved bytes are not valid".to_owned());
    }
    if let Some(flaw) = extent.flaw(logical) {
        return Err(format!("a map's extent: {flaw}"));
    }
    let stored = extent.stored as usize;
    let sums = parser.take(4 * stored).ok_or(CUT)?;
    let sums = (0..stored).map(|index| le32(sums, 4 * index)).collect();
    let inline = match body[29] {
        1 => {
            let at = parser.at as u64;
            parser.take(stored * BLOCK_LENGTH).ok_or(CUT)?;
            Some(at)
        }
        _ => None,
    };
    Ok(Action::Map { logical, extent, sums, inline })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(changes: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[32..36].copy_from_slice(&changes.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn change(kind: u8, object: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind, 0, 0, 0, 1, 0, 0, 0];
        bytes.extend_from_slice(&object.to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn a_small_change_is_parsed_and_nothing_may_follow() {
        let mut body = change(5, 64, &3u32.to_le_bytes());
        body.extend_from_slice(b"abc");
        let (changes, flaw) = parse_changes(&entry(1, &body));
        assert_eq!(flaw, None);
        assert_eq!(changes[0].action, Action::PutSmall(b"abc".to_vec()));
        body.push(0);
        assert!(parse_changes(&entry(1, &body)).1.is_some());
        assert!(parse_changes(&entry(2, &body)).1.is_some());
    }

    #[test]
    fn a_map_with_blocks_says_where_they_are() {
        let mut map = vec![0; MAP_BYTES];
        map[8] = 9;
        map[16] = 1;
        map[20] = 1;
        map[29] = 1;
        map.extend_from_slice(&7u32.to_le_bytes());
        map.extend_from_slice(&[5; 4096]);
        let (changes, flaw) = parse_changes(&entry(1, &change(4, 64, &map)));
        assert_eq!(flaw, None);
        let inline = Some((HEADER_BYTES + CHANGE_HEADER + MAP_BYTES + 4) as u64);
        let sums = vec![7];
        let extent = Extent::plain(9, 1);
        assert_eq!(changes[0].action, Action::Map { logical: 0, extent, sums, inline });
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(
            count in 0u32..5, kind in 0u8..17, object in any::<u64>(),
            body in prop::collection::vec(any::<u8>(), 0..900),
            head in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            parse_changes(&head);
            parse_changes(&entry(count, &body));
            parse_changes(&entry(count, &change(kind, object, &body)));
        }
    }
}
