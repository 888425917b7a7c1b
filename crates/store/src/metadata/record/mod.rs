//! The records of the metadata tree: fixed layouts, versioned, each with a checksum that covers
//! its key too, so that a record can't stand in for another.
//!
//! Keys are big-endian, so that their order as bytes is their order as numbers; everything else is
//! little-endian. Parsing bounds every field before anything is computed with it: what is returned
//! is safe to use, whatever was on the medium.

mod appended;
mod drive;
mod extents;
mod objects;
mod shares;

use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};
use nasd_types::{ObjectId, ObjectName, PartitionId};

use crate::layout::{Field, layout};

pub(crate) use appended::{Appended, Appends, DRIVE_APPENDS};
pub(crate) use drive::{
    Counters, DRIVE_COUNTERS, DRIVE_KEYS, LOG_MARK, LogMark, PartitionRecord, drive_counters,
    drive_keys, encode_drive_keys, parse_drive_keys, partition,
};
pub(crate) use extents::{Codec, EXTENT_BLOCKS_MAX, Extent, GROUP_BLOCKS, Sums, groups};
pub(crate) use objects::{ObjectRecord, SMALL_BYTES_MAX, encode_small, object, parse_small};
pub(crate) use shares::{FamilyRecord, Holder, SHARE_BLOCKS_MAX, Share};
#[cfg(test)]
pub(crate) use {
    appended::{append, appends},
    drive::log_mark,
    extents::{extent, sums},
    objects::small,
    shares::{family, holder, share},
};

/// The version that every record carries in its first byte.
pub(crate) const RECORD_VERSION: u8 = 2;

/// First block number that no object reaches.
pub(crate) const LOGICAL_BLOCKS_MAX: u64 = MAX_OBJECT_BYTES / BLOCK_BYTES as u64;

/// Bytes of share records that take the room of a record.
pub(crate) const SHARE_UNIT: usize = 32;

/// A key of the tables of objects, small contents, and families.
pub(crate) type ObjectKey = [u8; object_key::BYTES];

/// A key of the tables of extents and members.
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

/// Why a record can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} record {key:02x?}: {problem}")]
pub(crate) struct RecordError {
    kind: &'static str,
    key: Vec<u8>,
    problem: &'static str,
}

/// The key of an object.
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

/// The key of an object's extent at a block, or of a member of a family.
pub(crate) fn extent_key(name: ObjectName, logical: u64) -> ExtentKey {
    let mut key = [0; extent_key::BYTES];
    extent_key::PARTITION.put(&mut key, &name.partition.0.to_be_bytes());
    extent_key::OBJECT.put(&mut key, &name.object.0.to_be_bytes());
    extent_key::LOGICAL.put(&mut key, &logical.to_be_bytes());
    key
}

/// The object and block, or family and member, that a key names.
pub(crate) fn parse_extent_key(key: &ExtentKey) -> (ObjectName, u64) {
    let name = ObjectName {
        partition: PartitionId(u32::from_be_bytes(extent_key::PARTITION.array(key))),
        object: ObjectId(u64::from_be_bytes(extent_key::OBJECT.array(key))),
    };
    (name, u64::from_be_bytes(extent_key::LOGICAL.array(key)))
}

/// Checksum of key and record, the record's checksum field taken as zero.
fn checksum(key: &[u8], record: &[u8], field: Field) -> u32 {
    let sum = crc32c::crc32c(key);
    let sum = crc32c::crc32c_append(sum, &record[..field.offset]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &record[field.offset + field.size..])
}

/// Puts the version and the checksum into a record that is complete otherwise.
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

    fn zero(&self, record: &[u8], fields: &[Field]) -> Result<(), RecordError> {
        let clean = fields.iter().all(|field| field.is_zero(record));
        self.ensure(clean, "a reserved byte is not zero")
    }
}

#[cfg(test)]
mod tests;
