//! Records of objects, and of contents that are small enough to be kept here.

use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{FS_SPECIFIC_BYTES, ObjectId, Timestamp};

use super::{Checker, LOGICAL_BLOCKS_MAX, ObjectKey, RecordError, seal};
use crate::layout::layout;

/// Most bytes of contents that are kept whole in the tree.
pub(crate) const SMALL_BYTES_MAX: usize = 2048;

layout! {
    /// Value of the objects table.
    pub(crate) mod object {
        VERSION: 1,
        FLAGS: 1,
        RESERVED: 2,
        CHECKSUM: 4,
        ACCESS_CONTROL_VERSION: 8,
        NEARBY_OBJECT: 8,
        COPIED_OBJECT: 8,
        LOGICAL_SIZE: 8,
        BLOCKS_RESERVED: 8,
        BLOCKS_USED: 8,
        FAMILY: 8,
        CREATE_TIME: 8,
        DATA_MODIFY_TIME: 8,
        ATTRIBUTE_MODIFY_TIME: 8,
        FS_DATA_MODIFY_TIME: 8,
        FS_ATTRIBUTE_MODIFY_TIME: 8,
        FS_SPECIFIC: 256,
    }
}

/// Bit of `object::FLAGS`: the contents are in the table of small ones.
const IS_SMALL: u8 = 1;

layout! {
    /// Head of a value of the small table; the contents follow.
    pub(crate) mod small {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
    }
}

/// An object's attributes and what kind of contents it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectRecord {
    pub(crate) access_control_version: u64,
    pub(crate) nearby_object: ObjectId,
    pub(crate) copied_object: ObjectId,
    pub(crate) logical_size: u64,
    pub(crate) blocks_reserved: u64,
    /// Data blocks that it alone holds.
    pub(crate) blocks_used: u64,
    /// Whose shared blocks it may hold; 0 is none.
    pub(crate) family: ObjectId,
    /// The contents are in the table of small ones.
    pub(crate) small: bool,
    pub(crate) create_time: Timestamp,
    pub(crate) data_modify_time: Timestamp,
    pub(crate) attribute_modify_time: Timestamp,
    pub(crate) fs_data_modify_time: Timestamp,
    pub(crate) fs_attribute_modify_time: Timestamp,
    pub(crate) fs_specific: Box<[u8; FS_SPECIFIC_BYTES]>,
}

impl ObjectRecord {
    /// Blocks that the object is charged for.
    pub(crate) fn charge(&self) -> u64 {
        self.blocks_reserved.max(self.blocks_used)
    }

    /// The record's bytes.
    pub(crate) fn encode(&self, key: &ObjectKey) -> [u8; object::BYTES] {
        let mut record = [0; object::BYTES];
        object::FLAGS.put(&mut record, &[if self.small { IS_SMALL } else { 0 }]);
        let numbers = [
            (object::ACCESS_CONTROL_VERSION, self.access_control_version),
            (object::NEARBY_OBJECT, self.nearby_object.0),
            (object::COPIED_OBJECT, self.copied_object.0),
            (object::LOGICAL_SIZE, self.logical_size),
            (object::BLOCKS_RESERVED, self.blocks_reserved),
            (object::BLOCKS_USED, self.blocks_used),
            (object::FAMILY, self.family.0),
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
        checker.zero(record, &[object::RESERVED])?;
        let flags = object::FLAGS.of(record)[0];
        checker.ensure(flags & !IS_SMALL == 0, "a reserved bit is not zero")?;
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
            family: ObjectId(object::FAMILY.u64(record)),
            small: flags & IS_SMALL != 0,
            create_time: Timestamp(object::CREATE_TIME.u64(record)),
            data_modify_time: Timestamp(object::DATA_MODIFY_TIME.u64(record)),
            attribute_modify_time: Timestamp(object::ATTRIBUTE_MODIFY_TIME.u64(record)),
            fs_data_modify_time: Timestamp(object::FS_DATA_MODIFY_TIME.u64(record)),
            fs_attribute_modify_time: Timestamp(object::FS_ATTRIBUTE_MODIFY_TIME.u64(record)),
            fs_specific: Box::new(object::FS_SPECIFIC.array(record)),
        })
    }
}

/// The bytes of the record that keeps small contents.
pub(crate) fn encode_small(key: &ObjectKey, contents: &[u8]) -> Vec<u8> {
    let mut record = vec![0; small::BYTES];
    record.extend_from_slice(contents);
    seal(key, &mut record, small::CHECKSUM);
    record
}

/// Reads small contents found under `key`.
pub(crate) fn parse_small<'a>(key: &ObjectKey, record: &'a [u8]) -> Result<&'a [u8], RecordError> {
    let checker = Checker { kind: "small", key };
    let length = record.len().saturating_sub(small::BYTES);
    checker.ensure((1..=SMALL_BYTES_MAX).contains(&length), "the length is wrong")?;
    checker.envelope(record, small::BYTES + length, small::CHECKSUM)?;
    checker.zero(record, &[small::RESERVED])?;
    Ok(&record[small::BYTES..])
}
