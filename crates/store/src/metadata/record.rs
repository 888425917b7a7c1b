//! The records of the metadata tree: fixed layouts, versioned, each with a checksum that covers
//! its key too, so that a record can't stand in for another.
//!
//! Keys are big-endian, so that their order as bytes is their order as numbers; everything else is
//! little-endian. Parsing bounds every field before anything is computed with it: what is returned
//! is safe to use, whatever was on the medium.

use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};
use nasd_types::{FS_SPECIFIC_BYTES, ObjectId, ObjectName, PartitionId, Timestamp};

use crate::layout::{Field, layout};
use crate::{PartitionKeys, StoredKey, WorkingKey};

/// The version that every record carries in its first byte.
pub(crate) const RECORD_VERSION: u8 = 1;

/// Most blocks of one extent.
pub(crate) const EXTENT_BLOCKS_MAX: usize = 256;

/// First block number that no object reaches.
pub(crate) const LOGICAL_BLOCKS_MAX: u64 = MAX_OBJECT_BYTES / BLOCK_BYTES as u64;

/// A key of the objects table.
pub(crate) type ObjectKey = [u8; object_key::BYTES];

/// A key of the extents table.
pub(crate) type ExtentKey = [u8; extent_key::BYTES];

layout! {
    /// Key of the objects table (big-endian).
    pub(crate) mod object_key {
        PARTITION: 4,
        OBJECT: 8,
    }
}

layout! {
    /// Key of the extents table (big-endian).
    pub(crate) mod extent_key {
        PARTITION: 4,
        OBJECT: 8,
        LOGICAL: 8,
    }
}

layout! {
    /// Value of the objects table.
    pub(crate) mod object {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        ACCESS_CONTROL_VERSION: 8,
        NEARBY_OBJECT: 8,
        COPIED_OBJECT: 8,
        LOGICAL_SIZE: 8,
        BLOCKS_RESERVED: 8,
        BLOCKS_USED: 8,
        CREATE_TIME: 8,
        DATA_MODIFY_TIME: 8,
        ATTRIBUTE_MODIFY_TIME: 8,
        FS_DATA_MODIFY_TIME: 8,
        FS_ATTRIBUTE_MODIFY_TIME: 8,
        FS_SPECIFIC: 256,
    }
}

layout! {
    /// Head of a value of the extents table; four bytes of CRC32C per block follow.
    pub(crate) mod extent {
        VERSION: 1,
        RESERVED: 1,
        COUNT: 2,
        CHECKSUM: 4,
        PHYSICAL: 8,
    }
}

layout! {
    /// Value of the partitions table.
    pub(crate) mod partition {
        VERSION: 1,
        FLAGS: 1,
        RESERVED: 2,
        CHECKSUM: 4,
        QUOTA_BYTES: 8,
        CURRENT_EPOCH: 4,
        PREVIOUS_EPOCH: 4,
        PARTITION_KEY: 32,
        CURRENT_KEY: 32,
        PREVIOUS_KEY: 32,
    }
}

/// Bit of `partition::FLAGS`: there is a previous working key.
pub(crate) const HAS_PREVIOUS_KEY: u8 = 1;

layout! {
    /// Value of the drive table under `DRIVE_KEYS`.
    pub(crate) mod drive_keys {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        DRIVE_KEY: 32,
    }
}

layout! {
    /// Value of the drive table under `DRIVE_COUNTERS`.
    pub(crate) mod drive_counters {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        OBJECT_LIMIT: 8,
    }
}

/// Key of the drive's keys in the drive table.
pub(crate) const DRIVE_KEYS: u32 = 1;

/// Key of the drive's counters in the drive table.
pub(crate) const DRIVE_COUNTERS: u32 = 2;

const _: () = assert!(object::FS_SPECIFIC.size == FS_SPECIFIC_BYTES);
const _: () = assert!(EXTENT_BLOCKS_MAX <= u16::MAX as usize);

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} record {key:02x?}: {problem}")]
pub(crate) struct RecordError {
    kind: &'static str,
    key: Vec<u8>,
    problem: &'static str,
}

/// An object's attributes as the table keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    pub(crate) access_control_version: u64,
    pub(crate) nearby_object: ObjectId,
    pub(crate) copied_object: ObjectId,
    pub(crate) logical_size: u64,
    /// What `setattr` asked to reserve, in blocks.
    pub(crate) blocks_reserved: u64,
    pub(crate) blocks_used: u64,
    pub(crate) create_time: Timestamp,
    pub(crate) data_modify_time: Timestamp,
    pub(crate) attribute_modify_time: Timestamp,
    pub(crate) fs_data_modify_time: Timestamp,
    pub(crate) fs_attribute_modify_time: Timestamp,
    pub(crate) fs_specific: Box<[u8; FS_SPECIFIC_BYTES]>,
}

/// Blocks of an object that lie one after the other on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block within the object.
    pub(crate) logical: u64,
    /// First data block on the device.
    pub(crate) physical: u64,
    /// CRC32C of each block; never empty.
    pub(crate) checksums: Vec<u32>,
}

impl Extent {
    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.checksums.len() as u64
    }

    /// First block within the object behind the extent.
    pub(crate) fn end(&self) -> u64 {
        self.logical + self.blocks()
    }

    /// The part within `[from, to)`, if any.
    pub(crate) fn clip(&self, from: u64, to: u64) -> Option<Extent> {
        let start = self.logical.max(from);
        let end = self.end().min(to);
        if start >= end {
            return None;
        }
        let skip = start - self.logical;
        let checksums = self.checksums[skip as usize..(end - self.logical) as usize].to_vec();
        Some(Extent { logical: start, physical: self.physical + skip, checksums })
    }
}

/// A partition's quota and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) quota_bytes: u64,
    pub(crate) keys: PartitionKeys,
}

/// The key of an object's record.
pub(crate) fn object_key(name: ObjectName) -> ObjectKey {
    let mut key = [0; object_key::BYTES];
    object_key::PARTITION.put(&mut key, &name.partition.0.to_be_bytes());
    object_key::OBJECT.put(&mut key, &name.object.0.to_be_bytes());
    key
}

/// The object that a key names.
pub(crate) fn parse_object_key(key: &ObjectKey) -> ObjectName {
    ObjectName {
        partition: PartitionId(u32::from_be_bytes(object_key::PARTITION.array(key))),
        object: ObjectId(u64::from_be_bytes(object_key::OBJECT.array(key))),
    }
}

/// The key of an object's extent that begins at block `logical`.
pub(crate) fn extent_key(name: ObjectName, logical: u64) -> ExtentKey {
    let mut key = [0; extent_key::BYTES];
    extent_key::PARTITION.put(&mut key, &name.partition.0.to_be_bytes());
    extent_key::OBJECT.put(&mut key, &name.object.0.to_be_bytes());
    extent_key::LOGICAL.put(&mut key, &logical.to_be_bytes());
    key
}

/// The object and the first block that a key names.
pub(crate) fn parse_extent_key(key: &ExtentKey) -> (ObjectName, u64) {
    let name = ObjectName {
        partition: PartitionId(u32::from_be_bytes(extent_key::PARTITION.array(key))),
        object: ObjectId(u64::from_be_bytes(extent_key::OBJECT.array(key))),
    };
    (name, u64::from_be_bytes(extent_key::LOGICAL.array(key)))
}

fn checksum(key: &[u8], record: &[u8], field: Field) -> u32 {
    let sum = crc32c::crc32c(key);
    let sum = crc32c::crc32c_append(sum, &record[..field.offset]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &record[field.offset + field.size..])
}

/// Puts version and checksum into a record that is otherwise complete.
fn seal(key: &[u8], record: &mut [u8], field: Field) {
    record[0] = RECORD_VERSION;
    let sum = checksum(key, record, field);
    field.put(record, &sum.to_le_bytes());
}

/// What all records have in common.
struct Checker<'a> {
    kind: &'static str,
    key: &'a [u8],
}

impl Checker<'_> {
    fn fail(&self, problem: &'static str) -> RecordError {
        RecordError { kind: self.kind, key: self.key.to_vec(), problem }
    }

    fn ensure(&self, condition: bool, problem: &'static str) -> Result<(), RecordError> {
        if condition { Ok(()) } else { Err(self.fail(problem)) }
    }

    /// Checks length, checksum and version, in the order in which they can be relied on.
    fn envelope(&self, record: &[u8], bytes: usize, field: Field) -> Result<(), RecordError> {
        self.ensure(record.len() == bytes, "the length is wrong")?;
        let sum = checksum(self.key, record, field);
        self.ensure(field.u32(record) == sum, "the checksum does not match")?;
        self.ensure(record[0] == RECORD_VERSION, "the version is not known")
    }
}

impl ObjectRecord {
    /// The record's bytes.
    pub(crate) fn encode(&self, key: &ObjectKey) -> [u8; object::BYTES] {
        let mut record = [0; object::BYTES];
        let numbers = [
            (object::ACCESS_CONTROL_VERSION, self.access_control_version),
            (object::NEARBY_OBJECT, self.nearby_object.0),
            (object::COPIED_OBJECT, self.copied_object.0),
            (object::LOGICAL_SIZE, self.logical_size),
            (object::BLOCKS_RESERVED, self.blocks_reserved),
            (object::BLOCKS_USED, self.blocks_used),
            (object::CREATE_TIME, self.create_time.0),
            (object::DATA_MODIFY_TIME, self.data_modify_time.0),
            (object::ATTRIBUTE_MODIFY_TIME, self.attribute_modify_time.0),
            (object::FS_DATA_MODIFY_TIME, self.fs_data_modify_time.0),
            (object::FS_ATTRIBUTE_MODIFY_TIME, self.fs_attribute_modify_time.0),
        ];
        for (field, number) in numbers {
            field.put(&mut record, &number.to_le_bytes());
        }
        object::FS_SPECIFIC.put(&mut record, &self.fs_specific[..]);
        seal(key, &mut record, object::CHECKSUM);
        record
    }

    /// Reads a record found under `key`.
    pub(crate) fn parse(key: &ObjectKey, record: &[u8]) -> Result<ObjectRecord, RecordError> {
        let checker = Checker { kind: "object", key };
        checker.envelope(record, object::BYTES, object::CHECKSUM)?;
        checker.ensure(object::RESERVED.is_zero(record), "a reserved byte is not zero")?;
        let logical_size = object::LOGICAL_SIZE.u64(record);
        checker.ensure(logical_size <= MAX_OBJECT_BYTES, "the size is above the limit")?;
        let blocks_reserved = object::BLOCKS_RESERVED.u64(record);
        let blocks_used = object::BLOCKS_USED.u64(record);
        let countable = blocks_reserved <= LOGICAL_BLOCKS_MAX && blocks_used <= LOGICAL_BLOCKS_MAX;
        checker.ensure(countable, "a count of blocks is above the limit")?;
        Ok(ObjectRecord {
            access_control_version: object::ACCESS_CONTROL_VERSION.u64(record),
            nearby_object: ObjectId(object::NEARBY_OBJECT.u64(record)),
            copied_object: ObjectId(object::COPIED_OBJECT.u64(record)),
            logical_size,
            blocks_reserved,
            blocks_used,
            create_time: Timestamp(object::CREATE_TIME.u64(record)),
            data_modify_time: Timestamp(object::DATA_MODIFY_TIME.u64(record)),
            attribute_modify_time: Timestamp(object::ATTRIBUTE_MODIFY_TIME.u64(record)),
            fs_data_modify_time: Timestamp(object::FS_DATA_MODIFY_TIME.u64(record)),
            fs_attribute_modify_time: Timestamp(object::FS_ATTRIBUTE_MODIFY_TIME.u64(record)),
            fs_specific: Box::new(object::FS_SPECIFIC.array(record)),
        })
    }
}

impl Extent {
    /// Bytes of the record of an extent of `blocks` blocks.
    pub(crate) const fn record_bytes(blocks: usize) -> usize {
        extent::BYTES + 4 * blocks
    }

    /// The record's bytes. The extent has 1 to `EXTENT_BLOCKS_MAX` blocks.
    pub(crate) fn encode(&self, key: &ExtentKey) -> Vec<u8> {
        debug_assert!((1..=EXTENT_BLOCKS_MAX).contains(&self.checksums.len()));
        let mut record = vec![0; Extent::record_bytes(self.checksums.len())];
        extent::COUNT.put(&mut record, &(self.checksums.len() as u16).to_le_bytes());
        extent::PHYSICAL.put(&mut record, &self.physical.to_le_bytes());
        for (bytes, sum) in record[extent::BYTES..].chunks_exact_mut(4).zip(&self.checksums) {
            bytes.copy_from_slice(&sum.to_le_bytes());
        }
        seal(key, &mut record, extent::CHECKSUM);
        record
    }

    /// Reads a record found under `key` on a device of `data_blocks` data blocks.
    pub(crate) fn parse(
        key: &ExtentKey,
        record: &[u8],
        data_blocks: u64,
    ) -> Result<Extent, RecordError> {
        let checker = Checker { kind: "extent", key };
        checker.ensure(record.len() >= extent::BYTES, "the length is wrong")?;
        let count = extent::COUNT.u16(record) as usize;
        checker.ensure((1..=EXTENT_BLOCKS_MAX).contains(&count), "the count is out of range")?;
        checker.envelope(record, Extent::record_bytes(count), extent::CHECKSUM)?;
        checker.ensure(extent::RESERVED.is_zero(record), "a reserved byte is not zero")?;
        let (_, logical) = parse_extent_key(key);
        let logical_end = logical.checked_add(count as u64);
        checker.ensure(
            logical_end.is_some_and(|end| end <= LOGICAL_BLOCKS_MAX),
            "it lies behind the largest object",
        )?;
        let physical = extent::PHYSICAL.u64(record);
        let physical_end = physical.checked_add(count as u64);
        checker.ensure(
            physical_end.is_some_and(|end| end <= data_blocks),
            "it lies behind the last data block",
        )?;
        let sums = record[extent::BYTES..].chunks_exact(4);
        let checksums =
            sums.map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])).collect();
        Ok(Extent { logical, physical, checksums })
    }
}

impl PartitionRecord {
    /// The record's bytes.
    pub(crate) fn encode(&self, partition: PartitionId) -> [u8; partition::BYTES] {
        let mut record = [0; partition::BYTES];
        partition::QUOTA_BYTES.put(&mut record, &self.quota_bytes.to_le_bytes());
        if let Some(key) = &self.keys.partition {
            partition::PARTITION_KEY.put(&mut record, key.expose());
        }
        if let Some(current) = &self.keys.current {
            partition::CURRENT_EPOCH.put(&mut record, &current.epoch.to_le_bytes());
            partition::CURRENT_KEY.put(&mut record, current.key.expose());
        }
        if let Some(previous) = &self.keys.previous {
            partition::FLAGS.put(&mut record, &[HAS_PREVIOUS_KEY]);
            partition::PREVIOUS_EPOCH.put(&mut record, &previous.epoch.to_le_bytes());
            partition::PREVIOUS_KEY.put(&mut record, previous.key.expose());
        }
        seal(&partition.0.to_be_bytes(), &mut record, partition::CHECKSUM);
        record
    }

    /// Reads a record found under `partition`.
    pub(crate) fn parse(
        partition: PartitionId,
        record: &[u8],
    ) -> Result<PartitionRecord, RecordError> {
        let checker = Checker { kind: "partition", key: &partition.0.to_be_bytes() };
        checker.envelope(record, partition::BYTES, partition::CHECKSUM)?;
        let flags = partition::FLAGS.of(record)[0];
        let clean = partition::RESERVED.is_zero(record) && flags & !HAS_PREVIOUS_KEY == 0;
        checker.ensure(clean, "a reserved bit is not zero")?;
        let previous = (flags & HAS_PREVIOUS_KEY != 0).then(|| WorkingKey {
            epoch: partition::PREVIOUS_EPOCH.u32(record),
            key: StoredKey::new(partition::PREVIOUS_KEY.array(record)),
        });
        let current = WorkingKey {
            epoch: partition::CURRENT_EPOCH.u32(record),
            key: StoredKey::new(partition::CURRENT_KEY.array(record)),
        };
        let partition_key = StoredKey::new(partition::PARTITION_KEY.array(record));
        Ok(PartitionRecord {
            quota_bytes: partition::QUOTA_BYTES.u64(record),
            keys: PartitionKeys {
                partition: Some(partition_key),
                current: Some(current),
                previous,
            },
        })
    }
}

/// The bytes of the record that keeps the drive key.
pub(crate) fn encode_drive_keys(drive_key: &StoredKey) -> [u8; drive_keys::BYTES] {
    let mut record = [0; drive_keys::BYTES];
    drive_keys::DRIVE_KEY.put(&mut record, drive_key.expose());
    seal(&DRIVE_KEYS.to_be_bytes(), &mut record, drive_keys::CHECKSUM);
    record
}

/// Reads the record that keeps the drive key.
pub(crate) fn parse_drive_keys(record: &[u8]) -> Result<StoredKey, RecordError> {
    let checker = Checker { kind: "drive keys", key: &DRIVE_KEYS.to_be_bytes() };
    checker.envelope(record, drive_keys::BYTES, drive_keys::CHECKSUM)?;
    checker.ensure(drive_keys::RESERVED.is_zero(record), "a reserved byte is not zero")?;
    Ok(StoredKey::new(drive_keys::DRIVE_KEY.array(record)))
}

/// The bytes of the record that keeps the counters.
pub(crate) fn encode_drive_counters(object_limit: u64) -> [u8; drive_counters::BYTES] {
    let mut record = [0; drive_counters::BYTES];
    drive_counters::OBJECT_LIMIT.put(&mut record, &object_limit.to_le_bytes());
    seal(&DRIVE_COUNTERS.to_be_bytes(), &mut record, drive_counters::CHECKSUM);
    record
}

/// Reads the record that keeps the counters: the identifier below which every one may have been
/// given out.
pub(crate) fn parse_drive_counters(record: &[u8]) -> Result<u64, RecordError> {
    let checker = Checker { kind: "drive counters", key: &DRIVE_COUNTERS.to_be_bytes() };
    checker.envelope(record, drive_counters::BYTES, drive_counters::CHECKSUM)?;
    checker.ensure(drive_counters::RESERVED.is_zero(record), "a reserved byte is not zero")?;
    let limit = drive_counters::OBJECT_LIMIT.u64(record);
    checker.ensure(limit >= ObjectId::FIRST_DYNAMIC.0, "the limit is within the reserved ones")?;
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: ObjectName = ObjectName { partition: PartitionId(3), object: ObjectId(77) };

    fn object_record() -> ObjectRecord {
        ObjectRecord {
            access_control_version: 1,
            nearby_object: ObjectId(2),
            copied_object: ObjectId(3),
            logical_size: 4,
            blocks_reserved: 5,
            blocks_used: 6,
            create_time: Timestamp(7),
            data_modify_time: Timestamp(8),
            attribute_modify_time: Timestamp(9),
            fs_data_modify_time: Timestamp(10),
            fs_attribute_modify_time: Timestamp(11),
            fs_specific: Box::new([12; FS_SPECIFIC_BYTES]),
        }
    }

    fn extent() -> Extent {
        Extent { logical: 100, physical: 900, checksums: (0..256).collect() }
    }

    fn partition_record(previous: Option<WorkingKey>) -> PartitionRecord {
        let current = WorkingKey { epoch: 5, key: StoredKey::new([2; 32]) };
        let keys = PartitionKeys { partition: StoredKey::new([1; 32]), current, previous };
        PartitionRecord { quota_bytes: 1 << 40, keys }
    }

    #[test]
    fn records_survive_their_bytes() {
        let key = object_key(NAME);
        let record = object_record();
        assert_eq!(ObjectRecord::parse(&key, &record.encode(&key)), Ok(record));
        let key = extent_key(NAME, 100);
        assert_eq!(Extent::parse(&key, &extent().encode(&key), 1156), Ok(extent()));
        for previous in [None, Some(WorkingKey { epoch: 4, key: StoredKey::new([3; 32]) })] {
            let record = partition_record(previous);
            let bytes = record.encode(PartitionId(3));
            assert_eq!(PartitionRecord::parse(PartitionId(3), &bytes), Ok(record));
        }
        let key = StoredKey::new([9; 32]);
        assert_eq!(parse_drive_keys(&encode_drive_keys(&key)), Ok(key));
        assert_eq!(parse_drive_counters(&encode_drive_counters(5000)), Ok(5000));
    }

    #[test]
    fn keys_sort_as_numbers() {
        assert!(extent_key(NAME, 255) < extent_key(NAME, 256));
        let next = ObjectName { object: ObjectId(78), ..NAME };
        assert!(extent_key(NAME, u64::MAX) < extent_key(next, 0));
        assert_eq!(parse_extent_key(&extent_key(NAME, 300)), (NAME, 300));
        assert_eq!(parse_object_key(&object_key(NAME)), NAME);
    }

    #[test]
    fn every_flipped_bit_and_every_other_length_is_found() {
        fn check(bytes: &[u8], parses: impl Fn(&[u8]) -> bool) {
            assert!(parses(bytes));
            for at in 0..bytes.len() {
                let mut bad = bytes.to_vec();
                bad[at] ^= 1 << (at % 8);
                assert!(!parses(&bad), "byte {at}");
                assert!(!parses(&bytes[..at]), "cut at {at}");
            }
            assert!(!parses(&[bytes, &[0]].concat()));
        }
        let key = object_key(NAME);
        check(&object_record().encode(&key), |b| ObjectRecord::parse(&key, b).is_ok());
        let key = extent_key(NAME, 100);
        check(&extent().encode(&key), |b| Extent::parse(&key, b, 1 << 40).is_ok());
        let bytes = partition_record(None).encode(PartitionId(1));
        check(&bytes, |b| PartitionRecord::parse(PartitionId(1), b).is_ok());
        let drive_key = StoredKey::new([9; 32]);
        check(&encode_drive_keys(&drive_key), |b| parse_drive_keys(b).is_ok());
        check(&encode_drive_counters(5000), |b| parse_drive_counters(b).is_ok());
    }

    #[test]
    fn a_record_under_another_key_is_found() {
        let bytes = object_record().encode(&object_key(NAME));
        let other = object_key(ObjectName { object: ObjectId(78), ..NAME });
        assert!(ObjectRecord::parse(&other, &bytes).is_err());
        let bytes = extent().encode(&extent_key(NAME, 100));
        assert!(Extent::parse(&extent_key(NAME, 101), &bytes, 1 << 40).is_err());
    }

    #[test]
    fn fields_out_of_bounds_are_refused_though_the_checksum_matches() {
        let key = object_key(NAME);
        let large = ObjectRecord { logical_size: MAX_OBJECT_BYTES + 1, ..object_record() };
        assert!(ObjectRecord::parse(&key, &large.encode(&key)).is_err());
        let many = ObjectRecord { blocks_used: u64::MAX, ..object_record() };
        assert!(ObjectRecord::parse(&key, &many.encode(&key)).is_err());
        let key = extent_key(NAME, 100);
        assert!(Extent::parse(&key, &extent().encode(&key), 1155).is_err(), "past the device");
        let far = Extent { physical: u64::MAX - 3, ..extent() };
        assert!(Extent::parse(&key, &far.encode(&key), u64::MAX).is_err());
        let end = extent_key(NAME, LOGICAL_BLOCKS_MAX - 255);
        assert!(Extent::parse(&end, &extent().encode(&end), 1 << 40).is_err());
        let overflow = extent_key(NAME, u64::MAX);
        assert!(Extent::parse(&overflow, &extent().encode(&overflow), 1 << 40).is_err());
    }

    #[test]
    fn clipping_keeps_blocks_and_checksums_together() {
        let whole = extent();
        let part = whole.clip(110, 120).unwrap();
        assert_eq!((part.logical, part.physical), (110, 910));
        assert_eq!(part.checksums, (10..20).collect::<Vec<u32>>());
        assert_eq!(whole.clip(0, u64::MAX), Some(whole.clone()));
        assert_eq!(whole.clip(356, 400), None);
        assert_eq!(whole.clip(0, 100), None);
    }
}
