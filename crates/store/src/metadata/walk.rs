//! Walking the extents of all objects, for the scrub and for moving blocks.

use std::collections::BTreeSet;

use nasd_types::{ObjectId, ObjectName, PartitionId};
use redb::{ReadableDatabase, ReadableTable};

use super::record::{self, Extent, ExtentKey, LOGICAL_BLOCKS_MAX, ObjectKey, Share};
use super::tables::{EXTENTS, FAMILIES, MEMBERS, OBJECTS, SHARES, SMALL};
use super::{Metadata, TreeError, capacity, overlapping};
use crate::free_map::Run;

/// What an extent of a partition that is copied may add: the copy's, and a share record of two holders.
const RECORDS_PER_COPIED_EXTENT: u64 = 3 * capacity::RECORD;

impl Metadata {
    /// The first block of any object that an extent has, from block `block` of object `name` on, in
    /// order of objects.
    pub(crate) fn next_mapped(
        &self,
        name: ObjectName,
        block: u64,
    ) -> Result<Option<(ObjectName, u64)>, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(EXTENTS)?;
        let at = overlapping(&table, name, block, block.saturating_add(1), self.data_blocks)?;
        if !at.is_empty() {
            return Ok(Some((name, block)));
        }
        let from = record::extent_key(name, block);
        match table.range::<&ExtentKey>(&from..)?.next() {
            Some(entry) => Ok(Some(record::parse_extent_key(entry?.0.value()))),
            None => Ok(None),
        }
    }

    /// Every extent that names a block of `run`, which `owner` does; in order of objects.
    pub(crate) fn holders(
        &self,
        owner: ObjectName,
        run: Run,
    ) -> Result<Vec<(ObjectName, Extent)>, TreeError> {
        let mut objects = BTreeSet::from([owner]);
        let mut alone = BTreeSet::new();
        for holder in self.shares(run)?.into_iter().flat_map(|share: Share| share.holders) {
            match holder.family {
                ObjectId(0) => drop(alone.insert(holder.partition)),
                family => objects.extend(self.members(holder.partition, family)?),
            }
        }
        alone.remove(&owner.partition);
        for partition in alone {
            objects.extend(self.naming(partition, run)?);
        }
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(EXTENTS)?;
        let mut found = Vec::new();
        for object in objects {
            let extents = overlapping(&table, object, 0, LOGICAL_BLOCKS_MAX, self.data_blocks)?;
            let names =
                |extent: &Extent| extent.run().start < run.end() && run.start < extent.run().end();
            found.extend(extents.into_iter().filter(names).map(|extent| (object, extent)));
        }
        Ok(found)
    }

    /// The objects of a partition with an extent that names a block of `run`.
    fn naming(&self, partition: PartitionId, run: Run) -> Result<BTreeSet<ObjectName>, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(EXTENTS)?;
        let key = |object, logical| record::extent_key(ObjectName { partition, object }, logical);
        let (first, last) = (key(ObjectId(0), 0), key(ObjectId(u64::MAX), u64::MAX));
        let mut found = BTreeSet::new();
        for entry in table.range::<&ExtentKey>(&first..=&last)? {
            let (key, value) = entry?;
            let of = Extent::parse(key.value(), value.value(), self.data_blocks)?.run();
            if of.start < run.end() && run.start < of.end() {
                found.insert(record::parse_extent_key(key.value()).0);
            }
        }
        Ok(found)
    }

    /// Room that the records of a partition take, in the units of `capacity`.
    pub(crate) fn records_of(&self, partition: PartitionId) -> Result<u64, TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        let name = |object| ObjectName { partition, object };
        let (first, last) = (name(ObjectId(0)), name(ObjectId(u64::MAX)));
        let (from, to) = (record::object_key(first), record::object_key(last));
        let mut records = 0;
        for (table, each) in
            [(OBJECTS, capacity::OBJECT), (SMALL, capacity::SMALL), (FAMILIES, capacity::RECORD)]
        {
            let table = read.open_table(table)?;
            records += each * table.range::<&ObjectKey>(&from..=&to)?.count() as u64;
        }
        let (from, to) = (record::extent_key(first, 0), record::extent_key(last, u64::MAX));
        for (table, each) in [(EXTENTS, RECORDS_PER_COPIED_EXTENT), (MEMBERS, capacity::RECORD)] {
            let table = read.open_table(table)?;
            records += each * table.range::<&ExtentKey>(&from..=&to)?.count() as u64;
        }
        Ok(records)
    }

    /// Blocks that partitions are charged for, beyond those that there are: of each that several hold, all but one.
    pub(crate) fn common_blocks(&self) -> Result<u64, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(SHARES)?;
        let mut blocks = 0;
        for entry in table.iter()? {
            let (key, value) = entry?;
            let share = Share::parse(key.value(), value.value(), self.data_blocks)?;
            blocks += (share.holders.len() as u64 - 1) * share.run.blocks;
        }
        Ok(blocks)
    }

    /// An object that has an extent with this data block.
    pub(crate) fn owner(&self, block: u64) -> Result<Option<(ObjectName, Extent)>, TreeError> {
        let mut found = None;
        self.scan_extents(&mut |name, extent| {
            let run = extent.run();
            if found.is_none() && (run.start..run.end()).contains(&block) {
                found = Some((name, *extent));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The most data blocks that the metadata region can serve, beside what it has to keep as it is.
    pub(crate) fn data_blocks_max(&self) -> Result<u64, TreeError> {
        self.measure()?;
        Ok(self.capacity.data_blocks_max(self.region.pages()))
    }

    fn members(
        &self,
        partition: PartitionId,
        family: ObjectId,
    ) -> Result<Vec<ObjectName>, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(MEMBERS)?;
        let of = ObjectName { partition, object: family };
        let (first, last) = (record::extent_key(of, 0), record::extent_key(of, u64::MAX));
        let mut found = Vec::new();
        for entry in table.range::<&ExtentKey>(&first..=&last)? {
            let object = ObjectId(record::parse_extent_key(entry?.0.value()).1);
            found.push(ObjectName { partition, object });
        }
        Ok(found)
    }
}
