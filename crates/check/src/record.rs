//! The records of the tables: their layouts, and the rules for each field by itself.

use crate::bytes::{all_zero, array, checksum_without, le32, le64, put32, put64};

/// Version of every record.
pub(crate) const VERSION: u8 = 2;
const CHECKSUM_FIELD: usize = 4;
pub(crate) const OBJECT_BYTES: usize = 360;
pub(crate) const PARTITION_BYTES: usize = 144;
pub(crate) const DRIVE_KEYS_BYTES: usize = 72;
pub(crate) const COUNTERS_BYTES: usize = 48;
const SMALL_HEADER: usize = 8;
pub(crate) const SMALL_MAX: usize = 2048;
const EXTENT_BYTES: usize = 32;
const SHARE_BYTES: usize = 32;
const HOLDER_BYTES: usize = 16;
/// Most partitions of a drive.
const HOLDERS_MAX: usize = 1025;
const FAMILY_BYTES: usize = 24;
const MARK_BYTES: usize = 24;
/// Data blocks that a sums record is about.
pub(crate) const GROUP: u64 = 128;
const SUMS_BYTES: usize = 8 + 4 * GROUP as usize;
/// Most blocks of an extent.
pub(crate) const EXTENT_MAX: u32 = 32768;
/// Blocks of the object that a compressed extent lies within.
const COMPRESSED_MAX: u32 = 16;
const OBJECT_SIZE_MAX: u64 = 1 << 62;
/// Blocks of the largest object.
pub(crate) const OBJECT_BLOCKS_MAX: u64 = 1 << 50;
/// Bits of MINIMUM_PROTECTION that have a meaning.
const PROTECTION: u32 = 0x1f;

pub(crate) type ObjectKey = [u8; 12];
pub(crate) type ExtentKey = [u8; 20];

pub(crate) fn object_key(partition: u32, object: u64) -> ObjectKey {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&partition.to_be_bytes());
    key[4..].copy_from_slice(&object.to_be_bytes());
    key
}

pub(crate) fn extent_key(partition: u32, object: u64, logical: u64) -> ExtentKey {
    let mut key = [0; 20];
    key[..12].copy_from_slice(&object_key(partition, object));
    key[12..].copy_from_slice(&logical.to_be_bytes());
    key
}

pub(crate) fn split_object(key: &[u8]) -> (u32, u64) {
    (u32::from_be_bytes(array(key, 0)), u64::from_be_bytes(array(key, 4)))
}

pub(crate) fn split_extent(key: &[u8]) -> (u32, u64, u64) {
    let (partition, object) = split_object(key);
    (partition, object, u64::from_be_bytes(array(key, 12)))
}

/// Why a record can't be taken as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Too short or too long.
    Length(usize),
    /// Damaged, or under a key that is not its own.
    Checksum,
    /// Another version.
    Version(u8),
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flaw::Length(length) => write!(f, "{length} bytes are no record"),
            Flaw::Checksum => f.write_str("its checksum does not match it under this key"),
            Flaw::Version(version) => write!(f, "version {version} is not known"),
        }
    }
}

/// Writes the checksum of a record into it.
pub(crate) fn seal(key: &[u8], mut record: Vec<u8>) -> Vec<u8> {
    let sum = checksum_without(key, &record, CHECKSUM_FIELD);
    put32(&mut record, CHECKSUM_FIELD, sum);
    record
}

/// Checks length, checksum and version, in this order.
pub(crate) fn open(
    key: &[u8],
    record: &[u8],
    lengths: std::ops::RangeInclusive<usize>,
) -> Result<(), Flaw> {
    if !lengths.contains(&record.len()) {
        return Err(Flaw::Length(record.len()));
    }
    if checksum_without(key, record, CHECKSUM_FIELD) != le32(record, CHECKSUM_FIELD) {
        return Err(Flaw::Checksum);
    }
    match record[0] {
        VERSION => Ok(()),
        other => Err(Flaw::Version(other)),
    }
}

/// A record with its reserved bytes looked at.
pub(crate) trait Record: Sized {
    /// Parses a record under its key. The second value tells whether reserved bytes are zero.
    fn decode(key: &[u8], record: &[u8]) -> Result<(Self, bool), Flaw>;
    /// The record with its checksum under that key.
    fn encode(&self, key: &[u8]) -> Vec<u8>;
}

/// A record that is kept as its bytes, because most of them only pass through.
macro_rules! raw_record {
    ($(#[$doc:meta])* $name:ident $length:ident $($reserved:expr),*) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name(Vec<u8>);

        impl Record for $name {
            fn decode(key: &[u8], record: &[u8]) -> Result<(Self, bool), Flaw> {
                open(key, record, $length..=$length)?;
                let mut copy = record.to_vec();
                // Set anew by `encode`, and no part of what the record says.
                copy[CHECKSUM_FIELD..CHECKSUM_FIELD + 4].fill(0);
                let clean = [$($reserved),*].into_iter().all(|range| all_zero(&record[range]));
                for range in [$($reserved),*] {
                    copy[range].fill(0);
                }
                Ok(($name(copy), clean))
            }

            fn encode(&self, key: &[u8]) -> Vec<u8> {
                seal(key, self.0.clone())
            }
        }
    };
}

fn zeroed(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[0] = VERSION;
    bytes
}

raw_record! {
    /// Attributes of an object.
    Object OBJECT_BYTES 2..4
}
raw_record! {
    /// A partition.
    Partition PARTITION_BYTES 3..4, 140..144
}
raw_record! {
    /// The drive's keys.
    DriveKeys DRIVE_KEYS_BYTES 2..4
}
raw_record! {
    /// The drive's counters.
    Counters COUNTERS_BYTES 2..4
}

impl Object {
    /// A record with every field zero.
    pub(crate) fn empty() -> Object {
        Object(zeroed(OBJECT_BYTES))
    }
    pub(crate) fn is_small(&self) -> bool {
        self.0[1] & 1 != 0
    }
    pub(crate) fn set_small(&mut self, small: bool) {
        self.0[1] = u8::from(small);
    }
    /// Flags without a meaning.
    pub(crate) fn stray_flags(&self) -> u8 {
        self.0[1] & !1
    }
    pub(crate) fn size(&self) -> u64 {
        le64(&self.0, 32)
    }
    pub(crate) fn set_size(&mut self, size: u64) {
        put64(&mut self.0, 32, size);
    }
    pub(crate) fn size_is_valid(&self) -> bool {
        self.size() <= OBJECT_SIZE_MAX
    }
    /// Blocks of the object up to its size.
    pub(crate) fn blocks(&self) -> u64 {
        self.size().div_ceil(crate::bytes::BLOCK)
    }
    pub(crate) fn used(&self) -> u64 {
        le64(&self.0, 48)
    }
    pub(crate) fn set_used(&mut self, blocks: u64) {
        put64(&mut self.0, 48, blocks);
    }
    /// What it costs its partition, apart from shared blocks.
    pub(crate) fn charge(&self) -> u64 {
        self.used().max(le64(&self.0, 40))
    }
    pub(crate) fn set_reserved(&mut self, blocks: u64) {
        put64(&mut self.0, 40, blocks);
    }
    pub(crate) fn family(&self) -> u64 {
        le64(&self.0, 56)
    }
    pub(crate) fn set_family(&mut self, family: u64) {
        put64(&mut self.0, 56, family);
    }
    /// Bytes up to `end` were written at that time.
    pub(crate) fn note_write(&mut self, end: u64, time: u64) {
        self.set_size(self.size().max(end));
        put64(&mut self.0, 72, time);
        put64(&mut self.0, 88, time);
    }
}

impl Partition {
    /// A record with every field zero.
    pub(crate) fn empty() -> Partition {
        Partition(zeroed(PARTITION_BYTES))
    }
    pub(crate) fn objects(&self) -> u64 {
        le64(&self.0, 16)
    }
    pub(crate) fn set_objects(&mut self, objects: u64) {
        put64(&mut self.0, 16, objects);
    }
    pub(crate) fn charged(&self) -> u64 {
        le64(&self.0, 24)
    }
    pub(crate) fn set_charged(&mut self, blocks: u64) {
        put64(&mut self.0, 24, blocks);
    }
    pub(crate) fn set_no_quota(&mut self) {
        put64(&mut self.0, 8, u64::MAX);
    }
    /// Makes it that of a copy: without keys and limit.
    pub(crate) fn set_copied(&mut self, charged: u64) {
        self.0[1] = 0;
        self.0[32..136].fill(0);
        self.set_no_quota();
        self.set_charged(charged);
    }
    pub(crate) fn is_being_removed(&self) -> bool {
        self.0[1] & 8 != 0
    }

    /// Sets what can't be to the closest that can be; names the first such field.
    pub(crate) fn tidy(&mut self) -> Option<&'static str> {
        let mut found = None;
        if self.0[1] & !15 != 0 {
            self.0[1] &= 15;
            found = Some("FLAGS has bits without a meaning");
        }
        if self.0[2] > 2 {
            self.0[2] = 0;
            found = Some("CODEC is not known");
        }
        if le32(&self.0, 136) & !PROTECTION != 0 {
            let known = le32(&self.0, 136) & PROTECTION;
            put32(&mut self.0, 136, known);
            found = Some("MINIMUM_PROTECTION has bits without a meaning");
        }
        for (bit, at) in [(1, 40), (2, 72), (4, 104)] {
            if self.0[1] & bit == 0 && !all_zero(&self.0[at..at + 32]) {
                self.0[at..at + 32].fill(0);
                found = Some("a key that is not there is not zero");
            }
        }
        found
    }
}

impl DriveKeys {
    /// Sets what can't be to the closest that can be; names the first such field.
    pub(crate) fn tidy(&mut self) -> Option<&'static str> {
        let mut found = None;
        if self.0[1] & !3 != 0 {
            self.0[1] &= 3;
            found = Some("FLAGS has bits without a meaning");
        }
        for (bit, at) in [(1, 8), (2, 40)] {
            if self.0[1] & bit == 0 && !all_zero(&self.0[at..at + 32]) {
                self.0[at..at + 32].fill(0);
                found = Some("a key that is not there is not zero");
            }
        }
        found
    }
}

impl Counters {
    /// A record with every field zero.
    pub(crate) fn empty() -> Counters {
        Counters(zeroed(COUNTERS_BYTES))
    }
    pub(crate) fn object_limit(&self) -> u64 {
        le64(&self.0, 8)
    }

    /// Sets what can't be to the closest that can be; names the first such field.
    pub(crate) fn tidy(&mut self) -> Option<&'static str> {
        let known = PROTECTION as u8;
        if self.0[1] & !known == 0 {
            return None;
        }
        self.0[1] &= known;
        Some("MINIMUM_PROTECTION has bits without a meaning")
    }

    /// Sets OBJECT_LIMIT well above what is known to have been given out, because the rest of what
    /// was is not known, and no identifier may name two objects.
    pub(crate) fn skip_identifiers(&mut self, known: u64) {
        put64(&mut self.0, 8, known.saturating_add(1 << 32));
    }
}

/// Small contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Small(pub(crate) Vec<u8>);

impl Record for Small {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Small, bool), Flaw> {
        open(key, record, SMALL_HEADER..=usize::MAX)?;
        Ok((Small(record[SMALL_HEADER..].to_vec()), all_zero(&record[1..4])))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; SMALL_HEADER];
        record[0] = VERSION;
        record.extend_from_slice(&self.0);
        seal(key, record)
    }
}

/// Blocks of an object and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) codec: u8,
    pub(crate) physical: u64,
    pub(crate) blocks: u32,
    pub(crate) stored: u32,
    pub(crate) length: u32,
}

impl Extent {
    pub(crate) fn plain(physical: u64, blocks: u32) -> Extent {
        Extent { codec: 0, physical, blocks, stored: blocks, length: 0 }
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.codec != 0
    }

    /// What of it can't be, when it begins at that block of its object.
    pub(crate) fn flaw(&self, logical: u64) -> Option<&'static str> {
        if self.blocks == 0 || self.blocks > EXTENT_MAX {
            return Some("BLOCKS is out of range");
        }
        if logical.checked_add(u64::from(self.blocks)).is_none_or(|end| end > OBJECT_BLOCKS_MAX) {
            return Some("it reaches behind the largest object");
        }
        if !self.is_compressed() {
            let plain = self.stored == self.blocks && self.length == 0;
            return (!plain).then_some("STORED or LENGTH is wrong for an extent without a codec");
        }
        if self.codec > 2 {
            return Some("CODEC is not known");
        }
        if self.blocks < 2 || self.blocks > COMPRESSED_MAX {
            return Some("BLOCKS is out of range for a compressed extent");
        }
        if self.stored == 0 || self.stored >= self.blocks {
            return Some("STORED is not less than BLOCKS");
        }
        if self.length == 0 || self.length.div_ceil(4096) != self.stored {
            return Some("LENGTH does not fit STORED");
        }
        let unit = u64::from(COMPRESSED_MAX);
        let last = logical + u64::from(self.blocks) - 1;
        (logical / unit != last / unit).then_some("it crosses a multiple of 16 blocks")
    }

    /// The part of a plain extent that begins `skip` blocks behind its start.
    pub(crate) fn part(&self, skip: u64, blocks: u64) -> Extent {
        Extent::plain(self.physical.saturating_add(skip), blocks as u32)
    }
}

impl Record for Extent {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Extent, bool), Flaw> {
        open(key, record, EXTENT_BYTES..=EXTENT_BYTES)?;
        let extent = Extent {
            codec: record[1],
            physical: le64(record, 8),
            blocks: le32(record, 16),
            stored: le32(record, 20),
            length: le32(record, 24),
        };
        Ok((extent, all_zero(&record[2..4]) && all_zero(&record[28..32])))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; EXTENT_BYTES];
        record[0] = VERSION;
        record[1] = self.codec;
        put64(&mut record, 8, self.physical);
        put32(&mut record, 16, self.blocks);
        put32(&mut record, 20, self.stored);
        put32(&mut record, 24, self.length);
        seal(key, record)
    }
}

/// Checksums of a group of data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums(pub(crate) Vec<u32>);

impl Sums {
    pub(crate) fn zeros() -> Sums {
        Sums(vec![0; GROUP as usize])
    }
}

impl Record for Sums {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Sums, bool), Flaw> {
        open(key, record, SUMS_BYTES..=SUMS_BYTES)?;
        let sums = (0..GROUP as usize).map(|index| le32(record, 8 + 4 * index)).collect();
        Ok((Sums(sums), all_zero(&record[1..4])))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; SUMS_BYTES];
        record[0] = VERSION;
        for (index, sum) in self.0.iter().enumerate() {
            put32(&mut record, 8 + 4 * index, *sum);
        }
        seal(key, record)
    }
}

/// A partition that holds shared data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) partition: u32,
    pub(crate) count: u32,
    /// 0: the one extent's object is charged for them.
    pub(crate) family: u64,
}

/// A run of shared data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) blocks: u32,
    /// In order of partitions.
    pub(crate) holders: Vec<Holder>,
}

/// What one of several holders is.
pub(crate) fn held_by(holders: &[Holder], partition: u32) -> Option<Holder> {
    holders.iter().find(|holder| holder.partition == partition).copied()
}

/// Whether blocks with these holders have to have a share record.
pub(crate) fn is_shared(holders: &[Holder]) -> bool {
    holders.len() > 1 || holders.iter().any(|holder| holder.family != 0)
}

/// Holders, of which one becomes another; without it where nothing is left of it.
pub(crate) fn with_holder(holders: &[Holder], changed: Holder) -> Vec<Holder> {
    let mut holders = holders.to_vec();
    holders.retain(|holder| holder.partition != changed.partition);
    holders.extend((changed.count > 0).then_some(changed));
    holders.sort_by_key(|holder| holder.partition);
    holders
}

impl Share {
    /// Whether the holders can be such.
    pub(crate) fn makes_sense(&self) -> bool {
        let in_order = self.holders.windows(2).all(|two| two[0].partition < two[1].partition);
        let each =
            self.holders.iter().all(|one| one.count > 0 && (one.family != 0 || one.count == 1));
        self.blocks > 0 && in_order && each && is_shared(&self.holders)
    }
}

impl Record for Share {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Share, bool), Flaw> {
        let longest = SHARE_BYTES + (HOLDERS_MAX - 1) * HOLDER_BYTES;
        open(key, record, SHARE_BYTES..=longest)?;
        if !(record.len() - SHARE_BYTES).is_multiple_of(HOLDER_BYTES) {
            return Err(Flaw::Length(record.len()));
        }
        let (partition, count, family) = (le32(record, 8), le32(record, 16), le64(record, 24));
        let mut holders = vec![Holder { partition, count, family }];
        holders.extend(record[SHARE_BYTES..].chunks_exact(HOLDER_BYTES).map(|part| Holder {
            partition: le32(part, 0),
            count: le32(part, 4),
            family: le64(part, 8),
        }));
        let share = Share { blocks: le32(record, 12), holders };
        Ok((share, all_zero(&record[1..4]) && all_zero(&record[20..24])))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let further = self.holders.len().saturating_sub(1);
        let mut record = vec![0; SHARE_BYTES + further * HOLDER_BYTES];
        record[0] = VERSION;
        put32(&mut record, 12, self.blocks);
        for (number, one) in self.holders.iter().enumerate() {
            let at = match number {
                0 => [8, 16, 24],
                _ => [0, 4, 8].map(|field| SHARE_BYTES + (number - 1) * HOLDER_BYTES + field),
            };
            put32(&mut record, at[0], one.partition);
            put32(&mut record, at[1], one.count);
            put64(&mut record, at[2], one.family);
        }
        seal(key, record)
    }
}

/// Objects that share blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) shared: u64,
    pub(crate) members: u64,
}

impl Record for Family {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Family, bool), Flaw> {
        open(key, record, FAMILY_BYTES..=FAMILY_BYTES)?;
        let family = Family { shared: le64(record, 8), members: le64(record, 16) };
        Ok((family, all_zero(&record[1..4])))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; FAMILY_BYTES];
        record[0] = VERSION;
        put64(&mut record, 8, self.shared);
        put64(&mut record, 16, self.members);
        seal(key, record)
    }
}

/// How far the log is in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) applied: u64,
    pub(crate) next_offset: u64,
}

impl Record for Mark {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Mark, bool), Flaw> {
        open(key, record, MARK_BYTES..=MARK_BYTES)?;
        let mark = Mark { applied: le64(record, 8), next_offset: le64(record, 16) };
        Ok((mark, all_zero(&record[1..4])))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; MARK_BYTES];
        record[0] = VERSION;
        put64(&mut record, 8, self.applied);
        put64(&mut record, 16, self.next_offset);
        seal(key, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_all(key: &[u8], bytes: &[u8]) {
        let _ = Object::decode(key, bytes);
        let _ = Partition::decode(key, bytes).map(|(mut record, _)| record.tidy());
        let _ = DriveKeys::decode(key, bytes).map(|(mut record, _)| record.tidy());
        let _ = Counters::decode(key, bytes);
        let _ = Small::decode(key, bytes);
        let _ = Extent::decode(key, bytes).map(|(extent, _)| extent.flaw(u64::MAX));
        let _ = Sums::decode(key, bytes);
        let _ = Share::decode(key, bytes);
        let _ = Family::decode(key, bytes);
        let _ = Mark::decode(key, bytes);
        let _ = crate::appends::Appends::decode(key, bytes);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(
            key in prop::collection::vec(any::<u8>(), 0..24),
            bytes in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            decode_all(&key, &bytes);
        }

        #[test]
        fn any_sealed_bytes_are_decoded_without_a_panic(
            length in prop::sample::select(vec![24usize, 32, 48, 72, 144, 360, 520, 8]),
            seed in prop::collection::vec(any::<u8>(), 600),
        ) {
            let mut bytes = seed[..length].to_vec();
            bytes[0] = VERSION;
            decode_all(&[1, 2, 3, 4], &seal(&[1, 2, 3, 4], bytes));
        }

        #[test]
        fn an_extent_survives_its_record_and_no_other_key(
            physical in any::<u64>(), blocks in any::<u32>(), object in any::<u64>(),
        ) {
            let key = extent_key(1, object, 5);
            let extent = Extent::plain(physical, blocks);
            let record = extent.encode(&key);
            prop_assert_eq!(Extent::decode(&key, &record), Ok((extent, true)));
            let other = extent_key(1, object, 6);
            prop_assert_eq!(Extent::decode(&other, &record), Err(Flaw::Checksum));
        }
    }

    #[test]
    fn extents_keep_their_rules() {
        let good = Extent { codec: 1, physical: 0, blocks: 16, stored: 2, length: 5000 };
        assert_eq!(good.flaw(16), None);
        assert!(good.flaw(17).is_some(), "it crosses a unit");
        for bad in [
            Extent { codec: 3, ..good },
            Extent { blocks: 17, ..good },
            Extent { blocks: 1, ..good },
            Extent { stored: 16, ..good },
            Extent { length: 4096, ..good },
            Extent { codec: 0, ..good },
            Extent::plain(0, 0),
            Extent::plain(0, EXTENT_MAX + 1),
        ] {
            assert!(bad.flaw(0).is_some(), "{bad:?}");
        }
        assert!(Extent::plain(0, 1).flaw(u64::MAX).is_some());
    }

    #[test]
    fn reserved_bytes_are_seen_and_zeroed() {
        let key = object_key(1, 4);
        let mut bytes = Object::empty().encode(&key);
        bytes[2] = 1;
        let (object, clean) = Object::decode(&key, &seal(&key, bytes)).unwrap();
        assert!(!clean);
        assert_eq!(Object::decode(&key, &object.encode(&key)).unwrap(), (object, true));
    }
}
