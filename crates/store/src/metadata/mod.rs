//! The metadata tree: which objects there are, where their blocks lie, who may come in.
//!
//! This module and its children are the only ones that know redb. To the rest of the store the
//! tree is a few tables of records (see `record`) that are read at the last commit's state, and
//! changed by one durable [`Transaction`] at a time. There are no other commits: what is not yet
//! durable lives in the store's memory, so the tree always is what the medium will be after a
//! crash, and a block that no extent of the tree names is free.

pub(crate) mod capacity;
pub(crate) mod record;
pub(crate) mod region;
#[cfg(test)]
mod tests;
mod transaction;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use nasd_device::BlockDevice;
use nasd_types::{ObjectId, ObjectName, PartitionId};
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

pub(crate) use transaction::Transaction;

use crate::geometry::Geometry;
use crate::{StoreError, StoredKey};
use capacity::Capacity;
use record::{
    DRIVE_COUNTERS, DRIVE_KEYS, Extent, ExtentKey, ObjectKey, ObjectRecord, PartitionRecord,
    RecordError,
};
use region::{Region, RegionBackend};

type ObjectsTable = TableDefinition<'static, &'static ObjectKey, &'static [u8]>;
type ExtentsTable = TableDefinition<'static, &'static ExtentKey, &'static [u8]>;
type NumberedTable = TableDefinition<'static, u32, &'static [u8]>;

pub(crate) const OBJECTS: ObjectsTable = TableDefinition::new("objects");
pub(crate) const EXTENTS: ExtentsTable = TableDefinition::new("extents");
pub(crate) const PARTITIONS: NumberedTable = TableDefinition::new("partitions");
pub(crate) const DRIVE: NumberedTable = TableDefinition::new("drive");
pub(crate) const BALLAST: NumberedTable = TableDefinition::new("ballast");

/// Ballast records: each fills a page of the tree.
const BALLAST_RECORDS: u32 = 8;

/// What ballast is made of, so that it can be found again.
const BALLAST_TEXT: &[u8; 16] = b"NASD ballast...\n";

/// Bytes of a ballast record: more than half a page, so that no two share one.
const BALLAST_BYTES: usize = 3072;

/// Pages at the end of the region among which at least one must be ballast. The tree hands out
/// its smallest free runs first, and a region of `k * 64` pages, less the tree's header page,
/// ends in free runs of 32, 16, 8, 4, 2 and 1 pages.
const BALLAST_WINDOW: u64 = 64;

/// A failure of the tree.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// The device failed a read, or a record or page is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// The device failed a transfer.
    #[error("{0}")]
    Io(std::io::Error),
}

impl<E: Into<redb::Error>> From<E> for TreeError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Io(source) => TreeError::Io(source),
            other => TreeError::Damaged(other.to_string()),
        }
    }
}

/// The drive key, the identifier limit and the partitions.
pub(crate) type DriveRecords = (StoredKey, u64, Vec<(PartitionId, PartitionRecord)>);

impl From<RecordError> for TreeError {
    fn from(error: RecordError) -> Self {
        TreeError::Damaged(error.to_string())
    }
}

impl From<TreeError> for StoreError {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Damaged(what) => StoreError::Damaged(what),
            TreeError::Io(source) => StoreError::Medium(nasd_device::DeviceError::Medium {
                operation: "metadata access",
                offset: 0,
                length: 0,
                source,
            }),
        }
    }
}

/// The open tree.
pub(crate) struct Metadata {
    database: Database,
    /// Held shared while the tree is read. A transaction waits once, when it begins, until nobody
    /// reads a state before the last one; see `capacity` for what that is good for.
    readers: RwLock<()>,
    region: Arc<Region>,
    data_blocks: u64,
    pub(crate) capacity: Capacity,
}

/// What a new tree starts with.
pub(crate) struct InitialRecords<'a> {
    pub(crate) drive_key: &'a StoredKey,
    pub(crate) object_limit: u64,
    pub(crate) partitions: Vec<(PartitionId, PartitionRecord)>,
    pub(crate) objects: Vec<(ObjectName, ObjectRecord)>,
}

/// What a scan of the whole tree tells its caller, record by record.
pub(crate) trait Visitor {
    /// An object.
    fn object(&mut self, name: ObjectName, record: &ObjectRecord) -> Result<(), TreeError>;
    /// An extent; in order of objects and of blocks within each.
    fn extent(&mut self, name: ObjectName, extent: &Extent) -> Result<(), TreeError>;
}

impl Metadata {
    /// Makes a new tree in the region and closes it.
    pub(crate) fn create(
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        records: &InitialRecords<'_>,
    ) -> Result<(), TreeError> {
        let region = Region::fresh(device, geometry);
        let database = Database::builder()
            .set_cache_size(4 << 20)
            .create_with_backend(RegionBackend(region.clone()))?;
        let transaction = database.begin_write()?;
        {
            let mut ballast = transaction.open_table(BALLAST)?;
            let text = BALLAST_TEXT.repeat(BALLAST_BYTES / BALLAST_TEXT.len());
            for number in 0..BALLAST_RECORDS {
                ballast.insert(number, &text[..])?;
            }
            let mut drive = transaction.open_table(DRIVE)?;
            drive.insert(DRIVE_KEYS, &record::encode_drive_keys(records.drive_key)[..])?;
            let counters = record::encode_drive_counters(records.object_limit);
            drive.insert(DRIVE_COUNTERS, &counters[..])?;
            let mut partitions = transaction.open_table(PARTITIONS)?;
            for (partition, record) in &records.partitions {
                partitions.insert(partition.0, &record.encode(*partition)[..])?;
            }
            let mut objects = transaction.open_table(OBJECTS)?;
            for (name, record) in &records.objects {
                let key = record::object_key(*name);
                objects.insert(&key, &record.encode(&key)[..])?;
            }
            transaction.open_table(EXTENTS)?;
        }
        transaction.commit()?;
        database.close()?;
        match region.failure() {
            Some(failure) => Err(TreeError::Io(std::io::Error::other(failure.to_owned()))),
            None => check_ballast(&RegionBackend(region)),
        }
    }

    /// Opens the tree of a formatted device. Every page is verified; after a crash the last
    /// durable commit is what is found.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        cache_bytes: usize,
    ) -> Result<Metadata, TreeError> {
        let region = Region::existing(device, geometry);
        let backend = RegionBackend(region.clone());
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .set_check_integrity_on_open(true)
            .create_with_backend(backend.clone())?;
        if let Some(failure) = region.failure() {
            return Err(TreeError::Io(std::io::Error::other(failure.to_owned())));
        }
        check_ballast(&backend)?;
        let capacity = Capacity::new(region.pages());
        let metadata = Metadata {
            database,
            readers: RwLock::new(()),
            region,
            data_blocks: geometry.data_blocks,
            capacity,
        };
        metadata.measure()?;
        Ok(metadata)
    }

    /// Closes the tree in order, so that nothing has to be repaired at the next open.
    pub(crate) fn close(self) -> Result<(), TreeError> {
        self.database.close()?;
        match self.region.failure() {
            Some(failure) => Err(TreeError::Io(std::io::Error::other(failure.to_owned()))),
            None => Ok(()),
        }
    }

    /// Counts the tree's pages, for `capacity`.
    pub(crate) fn measure(&self) -> Result<(), TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        let mut pages = 0;
        let objects = redb::ReadableTableMetadata::stats(&read.open_table(OBJECTS)?)?;
        let extents = redb::ReadableTableMetadata::stats(&read.open_table(EXTENTS)?)?;
        for stats in [objects, extents] {
            pages += stats.leaf_pages() + stats.branch_pages();
        }
        self.capacity.measured(pages);
        Ok(())
    }

    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.readers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a transaction; waits for the one before it, and for readers of the state before that.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>, TreeError> {
        drop(self.readers.write().unwrap_or_else(PoisonError::into_inner));
        Transaction::begin(&self.database, &self.region, &self.capacity, self.data_blocks)
    }

    fn extents_table(&self) -> Result<ReadOnlyTable<&'static ExtentKey, &'static [u8]>, TreeError> {
        Ok(self.database.begin_read()?.open_table(EXTENTS)?)
    }

    /// An object's record.
    pub(crate) fn object(&self, name: ObjectName) -> Result<Option<ObjectRecord>, TreeError> {
        let _reading = self.reading();
        let key = record::object_key(name);
        let table = self.database.begin_read()?.open_table(OBJECTS)?;
        let Some(guard) = table.get(&key)? else {
            return Ok(None);
        };
        Ok(Some(ObjectRecord::parse(&key, guard.value())?))
    }

    /// What of the object's extents lies within the blocks `[from, to)`, in order.
    pub(crate) fn extents(
        &self,
        name: ObjectName,
        from: u64,
        to: u64,
    ) -> Result<Vec<Extent>, TreeError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let _reading = self.reading();
        let table = self.extents_table()?;
        overlapping(&table, name, from, to, self.data_blocks)
            .map(|extents| extents.iter().filter_map(|extent| extent.clip(from, to)).collect())
    }

    /// The object's last extent.
    pub(crate) fn last_extent(&self, name: ObjectName) -> Result<Option<Extent>, TreeError> {
        let _reading = self.reading();
        let table = self.extents_table()?;
        let (first, last) = (record::extent_key(name, 0), record::extent_key(name, u64::MAX));
        let Some(entry) = table.range::<&ExtentKey>(&first..=&last)?.next_back() else {
            return Ok(None);
        };
        let (key, value) = entry?;
        Ok(Some(Extent::parse(key.value(), value.value(), self.data_blocks)?))
    }

    /// Up to `most` objects of a partition from `from` on.
    pub(crate) fn list(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<Vec<ObjectId>, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(OBJECTS)?;
        let key = |object| record::object_key(ObjectName { partition, object });
        let (first, last) = (key(from), key(ObjectId(u64::MAX)));
        let mut found = Vec::new();
        for entry in table.range::<&ObjectKey>(&first..=&last)?.take(most) {
            found.push(record::parse_object_key(entry?.0.value()).object);
        }
        Ok(found)
    }

    /// The drive key, the identifier limit and the partitions.
    pub(crate) fn drive(&self) -> Result<DriveRecords, TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        let drive = read.open_table(DRIVE)?;
        let missing = || TreeError::Damaged("a record of the drive table is missing".to_owned());
        let keys = drive.get(DRIVE_KEYS)?.ok_or_else(missing)?;
        let drive_key = record::parse_drive_keys(keys.value())?;
        let counters = drive.get(DRIVE_COUNTERS)?.ok_or_else(missing)?;
        let object_limit = record::parse_drive_counters(counters.value())?;
        let mut partitions = Vec::new();
        for entry in read.open_table(PARTITIONS)?.iter()? {
            let (key, value) = entry?;
            let partition = PartitionId(key.value());
            partitions.push((partition, PartitionRecord::parse(partition, value.value())?));
        }
        Ok((drive_key, object_limit, partitions))
    }

    /// Shows every object and then every extent to `visitor`.
    pub(crate) fn scan(&self, visitor: &mut dyn Visitor) -> Result<(), TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        for entry in read.open_table(OBJECTS)?.iter()? {
            let (key, value) = entry?;
            let record = ObjectRecord::parse(key.value(), value.value())?;
            visitor.object(record::parse_object_key(key.value()), &record)?;
        }
        for entry in read.open_table(EXTENTS)?.iter()? {
            let (key, value) = entry?;
            let extent = Extent::parse(key.value(), value.value(), self.data_blocks)?;
            visitor.extent(record::parse_extent_key(key.value()).0, &extent)?;
        }
        Ok(())
    }
}

/// Whole extents of the object that have a block within `[from, to)`, in order.
fn overlapping(
    table: &impl ReadableTable<&'static ExtentKey, &'static [u8]>,
    name: ObjectName,
    from: u64,
    to: u64,
    data_blocks: u64,
) -> Result<Vec<Extent>, TreeError> {
    let mut found = Vec::new();
    if from >= to {
        return Ok(found);
    }
    // The extent that begins before `from` may reach into the range.
    let (first, start) = (record::extent_key(name, 0), record::extent_key(name, from));
    if let Some(entry) = table.range::<&ExtentKey>(&first..&start)?.next_back() {
        let (key, value) = entry?;
        let extent = Extent::parse(key.value(), value.value(), data_blocks)?;
        if extent.end() > from {
            found.push(extent);
        }
    }
    let end = record::extent_key(name, to);
    for entry in table.range::<&ExtentKey>(&start..&end)? {
        let (key, value) = entry?;
        found.push(Extent::parse(key.value(), value.value(), data_blocks)?);
    }
    Ok(found)
}

/// Makes sure that the end of the region is held by ballast (see `region`).
fn check_ballast(backend: &RegionBackend) -> Result<(), TreeError> {
    let pages = backend.0.pages();
    if !pages.is_multiple_of(BALLAST_WINDOW) {
        // Whole tree regions: nothing to hold.
        return Ok(());
    }
    let page_bytes = nasd_types::limits::BLOCK_BYTES;
    let mut window = vec![0; page_bytes * BALLAST_WINDOW as usize];
    let offset = (pages - BALLAST_WINDOW) * page_bytes as u64;
    redb::StorageBackend::read(backend, offset, &mut window).map_err(TreeError::Io)?;
    let half = BALLAST_TEXT.repeat(BALLAST_BYTES / BALLAST_TEXT.len() / 2);
    let held = window.chunks_exact(page_bytes).any(|page| {
        page.windows(BALLAST_TEXT.len())
            .position(|bytes| bytes == BALLAST_TEXT)
            .is_some_and(|at| page[at..].starts_with(&half))
    });
    if held {
        Ok(())
    } else {
        Err(TreeError::Damaged("the region's ballast is missing".to_owned()))
    }
}
