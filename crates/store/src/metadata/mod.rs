//! The metadata tree: redb on the metadata region, behind this one module. To the rest of the store the
//! tree is a few tables of records (see `record`) that are read at the last transaction's state, and
//! changed by one [`Transaction`] at a time. Transactions are not durable by themselves: what they
//! change is in the log before. A checkpoint makes all of them durable.

mod ahead;
mod apply;
pub(crate) mod capacity;
mod page;
mod recent;
pub(crate) mod record;
pub(crate) mod region;
mod tables;
#[cfg(test)]
mod tests;
mod transaction;
mod tree;
mod verify;
mod walk;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use nasd_device::BlockDevice;
use nasd_types::{ObjectId, ObjectName, PartitionId};
use redb::{Database, ReadableDatabase, ReadableTable};

pub(crate) use apply::{CopiedPartition, Effects};
pub(crate) use transaction::Transaction;

use crate::free_map::Run;
use crate::geometry::Geometry;
use crate::medium::Piece;
use crate::{DriveKeys, StoreError};
use capacity::Capacity;
use recent::Recent;
pub(crate) use recent::STRETCH_BLOCKS;
use record::{
    Appends, Counters, DRIVE_APPENDS, DRIVE_COUNTERS, DRIVE_KEYS, Extent, ExtentKey, FamilyRecord,
    GROUP_BLOCKS, LOG_MARK, LogMark, ObjectKey, ObjectRecord, PartitionRecord, RecordError, Share,
    Sums,
};
use region::{Region, RegionBackend};
use tables::{
    BALLAST, DRIVE, EXTENTS, FAMILIES, MEMBERS, OBJECTS, PARTITIONS, SHARES, SMALL, SUMS,
};
use tree::{Current, Reading};
use verify::Verified;

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

/// One part in this many of the memory for the tree is for records that were found last, the rest
/// for pages.
const RECENT_SHARE: usize = 4;

/// A failure of the tree.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// A record or page is not what was written.
    #[error("{0}")]
    Damaged(String),
    /// The device failed a transfer, now or before: after a read that failed, what is not in memory is
    /// not read any more until the next open.
    #[error("{0}")]
    Io(std::io::Error),
}

impl<E: Into<redb::Error>> From<E> for TreeError {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::Io(source) => TreeError::Io(source),
            redb::Error::PreviousIo => {
                TreeError::Io(std::io::Error::other("a read of the metadata tree failed before"))
            }
            other => TreeError::Damaged(other.to_string()),
        }
    }
}

/// What the tree says about the drive.
#[derive(Clone, Debug)]
pub(crate) struct DriveRecords {
    pub(crate) keys: DriveKeys,
    pub(crate) counters: Counters,
    pub(crate) mark: LogMark,
    pub(crate) partitions: Vec<(PartitionId, PartitionRecord)>,
    /// Of a drive that nobody has appended to yet there is no record.
    pub(crate) appends: Appends,
}

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
    /// Dropped before the database.
    severing: SeverOnDrop,
    /// As well.
    current: Current,
    recent: Recent,
    database: Database,
    /// Held shared while the tree is read. A transaction waits once, when it begins, until nobody
    /// reads a state before the last one; see `capacity` for what that is good for.
    readers: RwLock<()>,
    region: Arc<Region>,
    data_blocks: u64,
    pub(crate) capacity: Capacity,
}

/// A database that is dropped makes itself durable, without the data blocks that the log alone has.
/// It must not: what counts is the log.
struct SeverOnDrop(Arc<Region>);

impl Drop for SeverOnDrop {
    fn drop(&mut self) {
        self.0.sever("the store was dropped without being closed");
    }
}

/// What a new tree starts with.
pub(crate) struct InitialRecords {
    pub(crate) keys: DriveKeys,
    pub(crate) counters: Counters,
    pub(crate) partitions: Vec<(PartitionId, PartitionRecord)>,
    pub(crate) objects: Vec<(ObjectName, ObjectRecord)>,
}

impl Metadata {
    /// Makes a new tree in the region and closes it.
    pub(crate) fn create(
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        records: &InitialRecords,
    ) -> Result<(), TreeError> {
        let region = Region::fresh(device, geometry);
        let database = Database::builder()
            .set_cache_size(4 << 20)
            .create_with_backend(RegionBackend(region.clone()))?;
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut ballast = transaction.open_table(BALLAST)?;
            let text = BALLAST_TEXT.repeat(BALLAST_BYTES / BALLAST_TEXT.len());
            for number in 0..BALLAST_RECORDS {
                ballast.insert(number, &text[..])?;
            }
            let mut drive = transaction.open_table(DRIVE)?;
            drive.insert(DRIVE_KEYS, &record::encode_drive_keys(&records.keys)[..])?;
            drive.insert(DRIVE_COUNTERS, &records.counters.encode()[..])?;
            drive.insert(LOG_MARK, &LogMark::default().encode()[..])?;
            let mut partitions = transaction.open_table(PARTITIONS)?;
            for (partition, record) in &records.partitions {
                partitions.insert(partition.0, &record.encode(*partition)[..])?;
            }
            let mut objects = transaction.open_table(OBJECTS)?;
            for (name, record) in &records.objects {
                let key = record::object_key(*name);
                objects.insert(&key, &record.encode(&key)[..])?;
            }
            for empty in [SMALL, FAMILIES] {
                transaction.open_table(empty)?;
            }
            for empty in [EXTENTS, MEMBERS] {
                transaction.open_table(empty)?;
            }
            for empty in [SUMS, SHARES] {
                transaction.open_table(empty)?;
            }
        }
        transaction.commit()?;
        database.close()?;
        match region.failure() {
            Some(failure) => Err(TreeError::Io(std::io::Error::other(failure.to_owned()))),
            None => check_ballast(&RegionBackend(region)),
        }
    }

    /// Opens the tree of a formatted device: at the last checkpoint, after a crash. Every page is
    /// verified. Some that were read for that are kept until [`Metadata::opened`].
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        cache_bytes: usize,
    ) -> Result<Metadata, TreeError> {
        let region = Region::existing(device, geometry);
        let verified = verify::verify(&region)?;
        let reading_ahead = region.read_ahead();
        let backend = RegionBackend(region.clone());
        let recent_bytes = cache_bytes / RECENT_SHARE;
        let repaired = Arc::new(AtomicBool::new(false));
        let noted = repaired.clone();
        let database = Database::builder()
            .set_cache_size(cache_bytes - recent_bytes)
            .set_check_integrity_on_open(verified.is_none())
            .set_repair_callback(move |_| noted.store(true, Ordering::Relaxed))
            .create_with_backend(backend.clone())?;
        if repaired.load(Ordering::Relaxed) {
            // The repair left no state of the allocator, without which the next open repairs too.
            tracing::warn!("the metadata tree was repaired");
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            transaction.commit()?;
        }
        if let Some(failure) = region.failure() {
            return Err(TreeError::Io(std::io::Error::other(failure.to_owned())));
        }
        check_ballast(&backend)?;
        let capacity = Capacity::new(region.pages(), geometry.data_blocks);
        drop(reading_ahead);
        let metadata = Metadata {
            severing: SeverOnDrop(region.clone()),
            current: Current::default(),
            recent: Recent::new(recent_bytes),
            database,
            readers: RwLock::new(()),
            region,
            data_blocks: geometry.data_blocks,
            capacity,
        };
        match verified {
            Some(Verified { counted, kept }) => {
                metadata.capacity.measured(counted, Duration::ZERO);
                metadata.region.keep(kept);
            }
            None => metadata.measure()?,
        }
        Ok(metadata)
    }

    /// Gives up what was kept for opening the store.
    pub(crate) fn opened(&self) {
        self.region.keep(HashMap::new());
    }

    /// Closes the tree in order, so that nothing has to be repaired at the next open.
    pub(crate) fn close(self) -> Result<(), TreeError> {
        let Metadata { severing, current, database, region, .. } = self;
        drop(current);
        database.close()?;
        // Nothing is written from here on; only the failure counts.
        let failure = region.failure().map(str::to_owned);
        drop(severing);
        match failure {
            Some(failure) => Err(TreeError::Io(std::io::Error::other(failure))),
            None => Ok(()),
        }
    }

    /// Writes nothing to the device any more, as after a power cut.
    pub(crate) fn sever(&self, reason: &str) {
        self.region.sever(reason);
    }

    /// A sync of the device has failed, whoever asked for it: it may have taken back what the tree wrote.
    pub(crate) fn note_failed_sync(&self) {
        self.region.note_failed_sync();
    }

    /// Fails once a write or sync of the tree has failed, so that nothing more becomes durable.
    pub(crate) fn check_writable(&self) -> Result<(), TreeError> {
        match self.region.failure() {
            Some(failure) => Err(TreeError::Io(std::io::Error::other(failure.to_owned()))),
            None => Ok(()),
        }
    }

    /// Counts the tree's pages, for `capacity`.
    pub(crate) fn measure(&self) -> Result<(), TreeError> {
        let _ahead = self.region.read_ahead();
        let _reading = self.reading();
        let begin = Instant::now();
        let read = self.database.begin_read()?;
        let mut pages = 0;
        for table in [OBJECTS, SMALL, FAMILIES] {
            pages += pages_of(&read.open_table(table)?)?;
        }
        for table in [EXTENTS, MEMBERS] {
            pages += pages_of(&read.open_table(table)?)?;
        }
        pages += pages_of(&read.open_table(SHARES)?)?;
        self.capacity.measured(pages, begin.elapsed());
        Ok(())
    }

    fn reading(&self) -> RwLockReadGuard<'_, ()> {
        self.readers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tree as the last transaction left it.
    fn tree(&self) -> Result<Reading<'_>, TreeError> {
        self.current.read(&self.database, self.reading())
    }

    /// Begins a transaction; waits for the one before it, and for readers of the state before that.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>, TreeError> {
        let alone = self.readers.write().unwrap_or_else(PoisonError::into_inner);
        self.current.forget();
        drop(alone);
        Transaction::begin(self)
    }

    /// An object's record.
    pub(crate) fn object(&self, name: ObjectName) -> Result<Option<ObjectRecord>, TreeError> {
        let key = record::object_key(name);
        let tree = self.tree()?;
        let Some(guard) = tree.objects()?.get(&key)? else {
            return Ok(None);
        };
        Ok(Some(ObjectRecord::parse(&key, guard.value())?))
    }

    /// Contents that are kept whole in the tree.
    pub(crate) fn small(&self, name: ObjectName) -> Result<Option<Vec<u8>>, TreeError> {
        let key = record::object_key(name);
        let tree = self.tree()?;
        let Some(guard) = tree.small()?.get(&key)? else {
            return Ok(None);
        };
        Ok(Some(record::parse_small(&key, guard.value())?.to_vec()))
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
        let (first, last) = (from / STRETCH_BLOCKS, (to - 1) / STRETCH_BLOCKS);
        if last - first > 1 {
            return self.extents_in_tree(name, from, to);
        }
        let mut found: Vec<Extent> = Vec::with_capacity(1);
        for stretch in first..=last {
            let Ok(known) = self.stretch(name, stretch) else {
                // What is damaged there need not be what is asked for.
                return self.extents_in_tree(name, from, to);
            };
            let skipped = known.partition_point(|extent| extent.end() <= from);
            for extent in known[skipped..].iter().map_while(|extent| extent.clip(from, to)) {
                match found.last_mut() {
                    Some(before) if before.is_continued_by(&extent) => {
                        before.blocks += extent.blocks;
                    }
                    _ => found.push(extent),
                }
            }
        }
        Ok(found)
    }

    /// The extents of a stretch of the object.
    fn stretch(&self, name: ObjectName, stretch: u64) -> Result<Arc<[Extent]>, TreeError> {
        if let Some(known) = self.recent.extents(name, stretch) {
            return Ok(known);
        }
        let ticket = self.recent.ticket();
        let from = stretch * STRETCH_BLOCKS;
        let to = from.saturating_add(STRETCH_BLOCKS);
        let found: Arc<[Extent]> = self.extents_in_tree(name, from, to)?.into();
        self.recent.keep_extents((name, stretch), found.clone(), ticket);
        Ok(found)
    }

    /// The same as [`Metadata::extents`], from the tree.
    fn extents_in_tree(
        &self,
        name: ObjectName,
        from: u64,
        to: u64,
    ) -> Result<Vec<Extent>, TreeError> {
        overlapping(self.tree()?.extents()?, name, from, to, self.data_blocks)
            .map(|extents| extents.iter().filter_map(|extent| extent.clip(from, to)).collect())
    }

    /// Up to `most` whole extents from the one that has block `from`, or begins behind it, on.
    pub(crate) fn extents_from(
        &self,
        name: ObjectName,
        from: u64,
        most: usize,
    ) -> Result<Vec<Extent>, TreeError> {
        let tree = self.tree()?;
        let table = tree.extents()?;
        let mut found = overlapping(table, name, from, from.saturating_add(1), self.data_blocks)?;
        let behind = found.last().map_or(from, Extent::end);
        let (first, last) = (record::extent_key(name, behind), record::extent_key(name, u64::MAX));
        for entry in table.range::<&ExtentKey>(&first..=&last)?.take(most) {
            let (key, value) = entry?;
            found.push(Extent::parse(key.value(), value.value(), self.data_blocks)?);
        }
        Ok(found)
    }

    /// What of the object's extents lies within the blocks `[from, to)`, with the checksums of their
    /// data blocks. The object's body is locked, so that the blocks stay its own.
    pub(crate) fn pieces(
        &self,
        name: ObjectName,
        from: u64,
        to: u64,
    ) -> Result<Vec<Piece>, TreeError> {
        let with_sums = |extent: Extent| {
            let mut sums = Vec::with_capacity(extent.run().blocks as usize);
            for (group, within, blocks) in record::groups(extent.run()) {
                sums.extend_from_slice(&self.group(group)?[within..within + blocks]);
            }
            Ok(Piece { extent, sums })
        };
        self.extents(name, from, to)?.into_iter().map(with_sums).collect()
    }

    /// The same for somebody who will not come back soon.
    pub(crate) fn pieces_in_passing(
        &self,
        name: ObjectName,
        from: u64,
        to: u64,
    ) -> Result<Vec<Piece>, TreeError> {
        let tree = self.tree()?;
        let sums = tree.sums()?;
        let with_sums = |extent: &Extent| {
            let extent = extent.clip(from, to)?;
            Some(sums_of(sums, extent.run()).map(|sums| Piece { extent, sums }))
        };
        let extents = overlapping(tree.extents()?, name, from, to, self.data_blocks)?;
        extents.iter().filter_map(with_sums).collect()
    }

    /// The checksums of a group of data blocks.
    fn group(&self, group: u64) -> Result<Arc<[u32; GROUP_BLOCKS as usize]>, TreeError> {
        if let Some(known) = self.recent.sums(group) {
            return Ok(known);
        }
        let ticket = self.recent.ticket();
        let found = Arc::new(group_of(self.tree()?.sums()?, group)?.0);
        self.recent.keep_sums(group, found.clone(), ticket);
        Ok(found)
    }

    /// The checksums of a run of data blocks.
    pub(crate) fn sums(&self, run: Run) -> Result<Vec<u32>, TreeError> {
        sums_of(self.tree()?.sums()?, run)
    }

    /// The object's last extent.
    pub(crate) fn last_extent(&self, name: ObjectName) -> Result<Option<Extent>, TreeError> {
        let tree = self.tree()?;
        let (first, last) = (record::extent_key(name, 0), record::extent_key(name, u64::MAX));
        let Some(entry) = tree.extents()?.range::<&ExtentKey>(&first..=&last)?.next_back() else {
            return Ok(None);
        };
        let (key, value) = entry?;
        Ok(Some(Extent::parse(key.value(), value.value(), self.data_blocks)?))
    }

    /// The share records that have a block of `run`, in order.
    pub(crate) fn shares(&self, run: Run) -> Result<Vec<Share>, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(SHARES)?;
        let mut found = Vec::new();
        if let Some(entry) = table.range(..run.start)?.next_back() {
            let (key, value) = entry?;
            let share = Share::parse(key.value(), value.value(), self.data_blocks)?;
            if share.run.end() > run.start {
                found.push(share);
            }
        }
        for entry in table.range(run.start..run.end())? {
            let (key, value) = entry?;
            found.push(Share::parse(key.value(), value.value(), self.data_blocks)?);
        }
        Ok(found)
    }

    /// A family's record and its member with the lowest number.
    pub(crate) fn family(
        &self,
        name: ObjectName,
    ) -> Result<Option<(FamilyRecord, ObjectId)>, TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        let key = record::object_key(name);
        let families = read.open_table(FAMILIES)?;
        let Some(guard) = families.get(&key)? else {
            return Ok(None);
        };
        let record = FamilyRecord::parse(&key, guard.value())?;
        let members = read.open_table(MEMBERS)?;
        let (first, last) = (record::extent_key(name, 0), record::extent_key(name, u64::MAX));
        match members.range::<&ExtentKey>(&first..=&last)?.next() {
            Some(entry) => {
                let head = record::parse_extent_key(entry?.0.value()).1;
                Ok(Some((record, ObjectId(head))))
            }
            None => Err(TreeError::Damaged(format!("the family {name} has no members"))),
        }
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

    /// Up to `most` objects of a partition from `from` on with their records, and whether these are the last.
    pub(crate) fn records(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<(Vec<(ObjectId, ObjectRecord)>, bool), TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(OBJECTS)?;
        let key = |object| record::object_key(ObjectName { partition, object });
        let (first, last) = (key(from), key(ObjectId(u64::MAX)));
        let mut found = Vec::new();
        for entry in table.range::<&ObjectKey>(&first..=&last)?.take(most) {
            let (key, value) = entry?;
            let key = key.value();
            found.push((
                record::parse_object_key(key).object,
                ObjectRecord::parse(key, value.value())?,
            ));
        }
        let are_all = found.len() < most;
        Ok((found, are_all))
    }

    /// The object of a partition with the highest number of those that drives give out.
    pub(crate) fn highest_given(
        &self,
        partition: PartitionId,
    ) -> Result<Option<ObjectId>, TreeError> {
        let _reading = self.reading();
        let table = self.database.begin_read()?.open_table(OBJECTS)?;
        let key = |object| record::object_key(ObjectName { partition, object });
        let (first, last) = (key(ObjectId(0)), key(ObjectId(ObjectId::FIRST_NAMED.0 - 1)));
        match table.range::<&ObjectKey>(&first..=&last)?.next_back() {
            Some(entry) => Ok(Some(record::parse_object_key(entry?.0.value()).object)),
            None => Ok(None),
        }
    }

    /// What the tree says about the drive.
    pub(crate) fn drive(&self) -> Result<DriveRecords, TreeError> {
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        let drive = read.open_table(DRIVE)?;
        let missing = || TreeError::Damaged("a record of the drive table is missing".to_owned());
        let keys = drive.get(DRIVE_KEYS)?.ok_or_else(missing)?;
        let counters = drive.get(DRIVE_COUNTERS)?.ok_or_else(missing)?;
        let mark = drive.get(LOG_MARK)?.ok_or_else(missing)?;
        let appends = match drive.get(DRIVE_APPENDS)? {
            Some(record) => Appends::parse(record.value())?,
            None => Appends::default(),
        };
        let mut partitions = Vec::new();
        for entry in read.open_table(PARTITIONS)?.iter()? {
            let (key, value) = entry?;
            let partition = PartitionId(key.value());
            partitions.push((partition, PartitionRecord::parse(partition, value.value())?));
        }
        Ok(DriveRecords {
            keys: record::parse_drive_keys(keys.value())?,
            counters: Counters::parse(counters.value())?,
            mark: LogMark::parse(mark.value())?,
            partitions,
            appends,
        })
    }

    /// Shows every extent to `visit`, in order of objects and of blocks within each.
    pub(crate) fn scan_extents(
        &self,
        visit: &mut dyn FnMut(ObjectName, &Extent) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        let _ahead = self.region.read_ahead();
        let _reading = self.reading();
        let read = self.database.begin_read()?;
        for entry in read.open_table(EXTENTS)?.iter()? {
            let (key, value) = entry?;
            let extent = Extent::parse(key.value(), value.value(), self.data_blocks)?;
            visit(record::parse_extent_key(key.value()).0, &extent)?;
        }
        Ok(())
    }
}

fn pages_of(table: &impl redb::ReadableTableMetadata) -> Result<u64, TreeError> {
    let stats = table.stats()?;
    Ok(stats.leaf_pages() + stats.branch_pages())
}

fn sums_of(
    table: &impl ReadableTable<u64, &'static [u8]>,
    run: Run,
) -> Result<Vec<u32>, TreeError> {
    let mut found = Vec::with_capacity(run.blocks as usize);
    for (group, within, blocks) in record::groups(run) {
        found.extend_from_slice(&group_of(table, group)?.0[within..within + blocks]);
    }
    Ok(found)
}

fn group_of(table: &impl ReadableTable<u64, &'static [u8]>, group: u64) -> Result<Sums, TreeError> {
    match table.get(group)? {
        Some(guard) => Ok(Sums::parse(group, guard.value())?),
        None => {
            let first = group * GROUP_BLOCKS;
            Err(TreeError::Damaged(format!("the checksums of data blocks {first}.. are missing")))
        }
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
    // Backwards, as the extent that begins before `from` may reach into the range.
    let (first, end) = (record::extent_key(name, 0), record::extent_key(name, to));
    let mut before = table.range::<&ExtentKey>(&first..&end)?;
    while let Some(entry) = before.next_back() {
        let (key, value) = entry?;
        let extent = Extent::parse(key.value(), value.value(), data_blocks)?;
        if extent.end() > from {
            found.push(extent);
        }
        if extent.logical <= from {
            break;
        }
    }
    found.reverse();
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
