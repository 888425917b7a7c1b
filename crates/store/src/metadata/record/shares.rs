//! Records of data blocks that several objects share.
//!
//! Objects that come from one another by `fastcopy` are a *family*. A run of data blocks that was ever
//! shared has a share record, with the number of extents that name it; the family counts the blocks
//! of its share records, and they are charged to it as a whole. So nobody has to be found when the
//! number of holders falls to one.

use nasd_types::{ObjectId, PartitionId};

use super::{Checker, LOGICAL_BLOCKS_MAX, ObjectKey, RecordError, seal};
use crate::free_map::Run;
use crate::layout::layout;

layout! {
    /// Value of the shares table.
    pub(crate) mod share {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        PARTITION: 4,
        BLOCKS: 4,
        COUNT: 4,
        RESERVED2: 4,
        FAMILY: 8,
    }
}

layout! {
    /// Value of the families table.
    pub(crate) mod family {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        SHARED_BLOCKS: 8,
        MEMBERS: 8,
    }
}

/// A run of data blocks that is, or was, shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) run: Run,
    /// Extents that name each of its blocks.
    pub(crate) count: u32,
    pub(crate) partition: PartitionId,
    pub(crate) family: ObjectId,
}

impl Share {
    /// The record's bytes.
    pub(crate) fn encode(&self) -> [u8; share::BYTES] {
        let mut record = [0; share::BYTES];
        share::PARTITION.put(&mut record, &self.partition.0.to_le_bytes());
        share::BLOCKS.put(&mut record, &(self.run.blocks as u32).to_le_bytes());
        share::COUNT.put(&mut record, &self.count.to_le_bytes());
        share::FAMILY.put(&mut record, &self.family.0.to_le_bytes());
        seal(&self.run.start.to_be_bytes(), &mut record, share::CHECKSUM);
        record
    }

    /// Reads a record found under `start`, on a device with `data_blocks` data blocks.
    pub(crate) fn parse(start: u64, record: &[u8], data_blocks: u64) -> Result<Share, RecordError> {
        let checker = Checker { kind: "share", key: &start.to_be_bytes() };
        checker.envelope(record, share::BYTES, share::CHECKSUM)?;
        checker.zero(record, &[share::RESERVED, share::RESERVED2])?;
        let run = Run { start, blocks: u64::from(share::BLOCKS.u32(record)) };
        let end = start.checked_add(run.blocks);
        let fits = run.blocks > 0 && end.is_some_and(|end| end <= data_blocks);
        checker.ensure(fits, "it reaches behind the device")?;
        let count = share::COUNT.u32(record);
        checker.ensure(count > 0, "nobody shares it")?;
        Ok(Share {
            run,
            count,
            partition: PartitionId(share::PARTITION.u32(record)),
            family: ObjectId(share::FAMILY.u64(record)),
        })
    }
}

/// What a family's objects have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyRecord {
    /// Blocks of its share records.
    pub(crate) shared_blocks: u64,
    /// Objects that belong to it.
    pub(crate) members: u64,
}

impl FamilyRecord {
    /// The record's bytes.
    pub(crate) fn encode(&self, key: &ObjectKey) -> [u8; family::BYTES] {
        let mut record = [0; family::BYTES];
        family::SHARED_BLOCKS.put(&mut record, &self.shared_blocks.to_le_bytes());
        family::MEMBERS.put(&mut record, &self.members.to_le_bytes());
        seal(key, &mut record, family::CHECKSUM);
        record
    }

    /// Reads a record found under `key`.
    pub(crate) fn parse(key: &ObjectKey, record: &[u8]) -> Result<FamilyRecord, RecordError> {
        let checker = Checker { kind: "family", key };
        checker.envelope(record, family::BYTES, family::CHECKSUM)?;
        checker.zero(record, &[family::RESERVED])?;
        let found = FamilyRecord {
            shared_blocks: family::SHARED_BLOCKS.u64(record),
            members: family::MEMBERS.u64(record),
        };
        let countable = found.shared_blocks <= LOGICAL_BLOCKS_MAX;
        checker.ensure(countable, "a count of blocks is above the limit")?;
        Ok(found)
    }
}
