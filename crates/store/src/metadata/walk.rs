//! Walking the extents of all objects, for the scrub and for moving blocks.

use std::collections::BTreeSet;

use nasd_types::{ObjectId, ObjectName, PartitionId};
use redb::ReadableDatabase;

use super::record::{self, Extent, ExtentKey, LOGICAL_BLOCKS_MAX, Share};
use super::tables::{EXTENTS, MEMBERS};
use super::{Metadata, TreeError, overlapping};
use crate::free_map::Run;

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
        for Share { partition, family, .. } in self.shares(run)? {
            objects.extend(self.members(partition, family)?);
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
