//! Records of data blocks that several objects share.
//!
//! Objects that come from one another by `fastcopy` are a *family*. A run of data blocks that was ever
//! shared has a share record, with the number of extents that name it; the family counts the blocks
//! of its share records, and they are charged to it as a whole. So nobody has to be found when the
//! number of holders falls to one.
//!
//! A partition that is copied shares its blocks with the copy. Each partition that names a run is a *holder* of it, and is charged
//! for it as though nobody else had it: so nothing of a partition's own counts changes when another one is copied from it, or
//! removed.

use nasd_types::{ObjectId, PartitionId};

use super::{Checker, LOGICAL_BLOCKS_MAX, ObjectKey, RecordError, seal};
use crate::free_map::Run;
use crate::layout::layout;
use crate::partitions::PARTITIONS_MAX;

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
    /// What follows it for each further partition that holds the run.
    pub(crate) mod holder {
        PARTITION: 4,
        COUNT: 4,
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

/// A partition that holds shared blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) partition: PartitionId,
    /// Extents of the partition that name each of the blocks.
    pub(crate) count: u32,
    /// Whose members those belong to. 0 where the one extent's object is charged for them itself.
    pub(crate) family: ObjectId,
}

/// Most blocks of one share record, as their number has four bytes there.
pub(crate) const SHARE_BLOCKS_MAX: u64 = u32::MAX as u64;

/// A run of data blocks that is, or was, shared: of no more than [`SHARE_BLOCKS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) run: Run,
    /// In ascending order of partitions, at least one.
    pub(crate) holders: Vec<Holder>,
}

impl Share {
    /// What a partition holds of it.
    pub(crate) fn of(&self, partition: PartitionId) -> Option<Holder> {
        self.holders.iter().find(|holder| holder.partition == partition).copied()
    }

    /// Extents that name each of its blocks.
    pub(crate) fn count(&self) -> u64 {
        self.holders.iter().map(|holder| u64::from(holder.count)).sum()
    }

    /// The holders, of which one is that: none of its partition where its count is 0.
    pub(crate) fn with(&self, changed: Holder) -> Vec<Holder> {
        let others = self.holders.iter().filter(|other| other.partition != changed.partition);
        let mut holders: Vec<Holder> = others.copied().collect();
        if changed.count > 0 {
            let at = holders.partition_point(|other| other.partition < changed.partition);
            holders.insert(at, changed);
        }
        holders
    }

    /// Whether blocks with these holders need a record: not those that one extent names, of an object of no family.
    pub(crate) fn is_needed(holders: &[Holder]) -> bool {
        match holders {
            [] => false,
            [alone] => alone.family != ObjectId(0),
            _ => true,
        }
    }

    /// The record's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let further = self.holders.len().saturating_sub(1);
        let mut record = vec![0; share::BYTES + further * holder::BYTES];
        share::BLOCKS.put(&mut record, &(self.run.blocks as u32).to_le_bytes());
        for (number, one) in self.holders.iter().enumerate() {
            let (partition, count) = (one.partition.0.to_le_bytes(), one.count.to_le_bytes());
            let family = one.family.0.to_le_bytes();
            if number == 0 {
                share::PARTITION.put(&mut record, &partition);
                share::COUNT.put(&mut record, &count);
                share::FAMILY.put(&mut record, &family);
                continue;
            }
            let at = share::BYTES + (number - 1) * holder::BYTES;
            let part = &mut record[at..at + holder::BYTES];
            holder::PARTITION.put(part, &partition);
            holder::COUNT.put(part, &count);
            holder::FAMILY.put(part, &family);
        }
        seal(&self.run.start.to_be_bytes(), &mut record, share::CHECKSUM);
        record
    }

    /// Reads a record found under `start`, on a device with `data_blocks` data blocks.
    pub(crate) fn parse(start: u64, record: &[u8], data_blocks: u64) -> Result<Share, RecordError> {
        let checker = Checker { kind: "share", key: &start.to_be_bytes() };
        let further = record.len().saturating_sub(share::BYTES) / holder::BYTES;
        checker.ensure(further < PARTITIONS_MAX, "there are too many holders")?;
        checker.envelope(record, share::BYTES + further * holder::BYTES, share::CHECKSUM)?;
        checker.zero(record, &[share::RESERVED, share::RESERVED2])?;
        let run = Run { start, blocks: u64::from(share::BLOCKS.u32(record)) };
        let end = start.checked_add(run.blocks);
        let fits = run.blocks > 0 && end.is_some_and(|end| end <= data_blocks);
        checker.ensure(fits, "it reaches behind the device")?;
        let mut holders = Vec::with_capacity(1 + further);
        holders.push(Holder {
            partition: PartitionId(share::PARTITION.u32(record)),
            count: share::COUNT.u32(record),
            family: ObjectId(share::FAMILY.u64(record)),
        });
        holders.extend(record[share::BYTES..].chunks_exact(holder::BYTES).map(|part| Holder {
            partition: PartitionId(holder::PARTITION.u32(part)),
            count: holder::COUNT.u32(part),
            family: ObjectId(holder::FAMILY.u64(part)),
        }));
        checker.ensure(holders.iter().all(|one| one.count > 0), "nobody shares it")?;
        let in_order = holders.windows(2).all(|pair| pair[0].partition < pair[1].partition);
        checker.ensure(in_order, "its holders are not in order")?;
        let alone = |one: &Holder| one.family != ObjectId(0) || one.count == 1;
        let makes_sense = holders.iter().all(alone) && Share::is_needed(&holders);
        checker.ensure(makes_sense, "its holders belong to no family")?;
        Ok(Share { run, holders })
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
