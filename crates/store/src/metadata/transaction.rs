//! One durable change of the metadata tree.

use std::sync::Arc;

use nasd_types::ObjectName;
use redb::{Database, Durability, ReadableTable, Table, WriteTransaction};

use super::capacity::Capacity;
use super::record::{self, DRIVE_COUNTERS, EXTENT_BLOCKS_MAX, Extent, ExtentKey, ObjectRecord};
use super::region::Region;
use super::{DRIVE, EXTENTS, OBJECTS, TreeError, overlapping};
use crate::free_map::Run;

/// A transaction under way. Dropped without `commit`, it changes nothing.
pub(crate) struct Transaction<'a> {
    transaction: WriteTransaction,
    region: &'a Arc<Region>,
    capacity: &'a Capacity,
    data_blocks: u64,
    /// Blocks that no extent names any more once this is committed.
    freed: Vec<Run>,
    records_added: u64,
    records_removed: u64,
}

impl<'a> Transaction<'a> {
    pub(super) fn begin(
        database: &Database,
        region: &'a Arc<Region>,
        capacity: &'a Capacity,
        data_blocks: u64,
    ) -> Result<Transaction<'a>, TreeError> {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        Ok(Transaction {
            transaction,
            region,
            capacity,
            data_blocks,
            freed: Vec::new(),
            records_added: 0,
            records_removed: 0,
        })
    }

    /// Makes everything durable. Returns the blocks that are free from now on.
    pub(crate) fn commit(self) -> Result<Vec<Run>, TreeError> {
        self.transaction.commit()?;
        if let Some(failure) = self.region.failure() {
            return Err(TreeError::Io(std::io::Error::other(failure.to_owned())));
        }
        self.capacity.added(self.records_added.saturating_sub(self.records_removed));
        Ok(self.freed)
    }

    /// Writes an object's record.
    pub(crate) fn put_object(
        &mut self,
        name: ObjectName,
        record: &ObjectRecord,
    ) -> Result<(), TreeError> {
        let key = record::object_key(name);
        let mut table = self.transaction.open_table(OBJECTS)?;
        if table.insert(&key, &record.encode(&key)[..])?.is_none() {
            self.records_added += 1;
        }
        Ok(())
    }

    /// Removes an object with all of its extents. It need not exist.
    pub(crate) fn remove_object(&mut self, name: ObjectName) -> Result<(), TreeError> {
        let key = record::object_key(name);
        if self.transaction.open_table(OBJECTS)?.remove(&key)?.is_some() {
            self.records_removed += 1;
        }
        self.cut(name, 0)?;
        Ok(())
    }

    /// Removes the object's blocks from `first` on; how many there were.
    pub(crate) fn cut(&mut self, name: ObjectName, first: u64) -> Result<u64, TreeError> {
        let changes = self.extents()?.cut(name, first)?;
        let removed = changes.blocks_removed;
        changes.settle(self);
        Ok(removed)
    }

    /// Puts `extents` in place of whatever the object has there; how many blocks that were.
    /// They are in ascending order and do not overlap.
    pub(crate) fn replace(
        &mut self,
        name: ObjectName,
        extents: Vec<Extent>,
    ) -> Result<u64, TreeError> {
        let mut changes = Changes::default();
        {
            let mut table = self.extents()?;
            for extent in extents {
                table.replace(name, extent, &mut changes)?;
            }
        }
        let removed = changes.blocks_removed;
        changes.settle(self);
        Ok(removed)
    }

    /// Writes the identifier below which every one may have been given out.
    pub(crate) fn put_object_limit(&mut self, limit: u64) -> Result<(), TreeError> {
        let mut table = self.transaction.open_table(DRIVE)?;
        table.insert(DRIVE_COUNTERS, &record::encode_drive_counters(limit)[..])?;
        Ok(())
    }

    fn extents(&self) -> Result<ExtentTable<'_>, TreeError> {
        let table = self.transaction.open_table(EXTENTS)?;
        Ok(ExtentTable { table, data_blocks: self.data_blocks })
    }
}

/// What was done to the extents table.
#[derive(Default)]
struct Changes {
    freed: Vec<Run>,
    blocks_removed: u64,
    records_added: u64,
    records_removed: u64,
}

impl Changes {
    fn settle(self, transaction: &mut Transaction<'_>) {
        transaction.freed.extend(self.freed);
        transaction.records_added += self.records_added;
        transaction.records_removed += self.records_removed;
    }
}

/// The extents table, open for change.
struct ExtentTable<'t> {
    table: Table<'t, &'static ExtentKey, &'static [u8]>,
    data_blocks: u64,
}

impl ExtentTable<'_> {
    fn insert(
        &mut self,
        name: ObjectName,
        extent: &Extent,
        changes: &mut Changes,
    ) -> Result<(), TreeError> {
        let key = record::extent_key(name, extent.logical);
        if self.table.insert(&key, &extent.encode(&key)[..])?.is_none() {
            changes.records_added += 1;
        }
        Ok(())
    }

    fn remove(
        &mut self,
        name: ObjectName,
        extent: &Extent,
        changes: &mut Changes,
    ) -> Result<(), TreeError> {
        self.table.remove(&record::extent_key(name, extent.logical))?;
        changes.records_removed += 1;
        Ok(())
    }

    /// Removes whatever lies within `[from, to)`, and keeps the rest of extents that reach out.
    fn clear(
        &mut self,
        name: ObjectName,
        from: u64,
        to: u64,
        changes: &mut Changes,
    ) -> Result<(), TreeError> {
        for old in overlapping(&self.table, name, from, to, self.data_blocks)? {
            let Some(gone) = old.clip(from, to) else {
                continue;
            };
            changes.freed.push(Run { start: gone.physical, blocks: gone.blocks() });
            changes.blocks_removed += gone.blocks();
            let left = old.clip(old.logical, from);
            // A left part takes the place of the old record under the same key.
            if left.is_none() {
                self.remove(name, &old, changes)?;
            }
            for part in [left, old.clip(to, old.end())].into_iter().flatten() {
                self.insert(name, &part, changes)?;
            }
        }
        Ok(())
    }

    fn cut(mut self, name: ObjectName, first: u64) -> Result<Changes, TreeError> {
        let mut changes = Changes::default();
        self.clear(name, first, record::LOGICAL_BLOCKS_MAX, &mut changes)?;
        Ok(changes)
    }

    /// Puts `new` in place of whatever is there. Where it continues the extent before it, on the
    /// device too, the two become one, so that small appends do not leave a record each.
    fn replace(
        &mut self,
        name: ObjectName,
        mut new: Extent,
        changes: &mut Changes,
    ) -> Result<(), TreeError> {
        self.clear(name, new.logical, new.end(), changes)?;
        if let Some(before) = self.before(name, new.logical)? {
            let adjacent = before.end() == new.logical
                && before.physical + before.blocks() == new.physical
                && before.checksums.len() + new.checksums.len() <= EXTENT_BLOCKS_MAX;
            if adjacent {
                let mut checksums = before.checksums;
                checksums.append(&mut new.checksums);
                new = Extent { logical: before.logical, physical: before.physical, checksums };
            }
        }
        self.insert(name, &new, changes)
    }

    /// The last extent that begins before block `logical`.
    fn before(&self, name: ObjectName, logical: u64) -> Result<Option<Extent>, TreeError> {
        let (first, end) = (record::extent_key(name, 0), record::extent_key(name, logical));
        let Some(entry) = self.table.range::<&ExtentKey>(&first..&end)?.next_back() else {
            return Ok(None);
        };
        let (key, value) = entry?;
        Ok(Some(Extent::parse(key.value(), value.value(), self.data_blocks)?))
    }
}
