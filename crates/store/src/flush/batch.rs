//! One flush, from taking the objects to letting them go.
//!
//! 1. *Take* each object, with its body locked: its attributes, its cuts, its dirty blocks. From here
//!    on changes count for the next flush. Since every write is made with the body locked, the flush
//!    has each write wholly or not at all.
//! 2. *Write* the dirty blocks to free places, and sync. Meanwhile their checksums are computed and
//!    the tree's transaction is *prepared*: cuts, new extents in place of old ones, records of objects.
//! 3. *Commit* the transaction, now that the data is durable. The tree syncs.
//! 4. *Let go*: what was written is clean, what was replaced is free.
//!
//! If step 2 fails to write, what was taken is dirty again and the caller learns why: another try
//! takes other places. If a sync or the commit fails, nobody can tell what the medium has, and the
//! store takes no more changes.

use std::sync::Arc;

use nasd_device::WriteRequest;
use nasd_types::ObjectId;
use nasd_types::ObjectName;
use nasd_types::limits::BLOCK_BYTES;

use super::Request;
use super::place::{block_count, fill_checksums, place};
use crate::frames::{Captured, FRAME_BLOCKS};
use crate::free_map::Run;
use crate::metadata::record::{Extent, ObjectRecord};
use crate::metadata::{Transaction, TreeError};
use crate::object::Object;
use crate::{NoSpace, Store, StoreError};

/// Blocks from which on it pays to have another thread write them while checksums are computed.
const OVERLAP_BLOCKS: u64 = 64;

/// A transaction that lacks nothing but its commit.
struct Prepared<'a> {
    transaction: Transaction<'a>,
    /// Blocks that each object that was taken has then.
    blocks_used: Vec<u64>,
}

/// How a flush failed.
enum Failure {
    /// Nothing has changed, and another try may succeed.
    Passing(StoreError),
    /// What is durable is not known any more.
    Fatal(StoreError),
}

impl From<TreeError> for Failure {
    fn from(error: TreeError) -> Self {
        Failure::Fatal(error.into())
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Passing(error) | Failure::Fatal(error) => error,
        }
    }
}

/// An object that a flush has taken.
struct Taken {
    object: Arc<Object>,
    record: ObjectRecord,
    removed: bool,
    was_in_tree: bool,
    cut: Option<u64>,
    promised_records: u64,
    hint: Option<u64>,
    frames: Vec<Captured>,
    places: Vec<Run>,
}

impl Store {
    /// Flushes what is asked for; how many blocks were written.
    pub(super) fn run_batch(&self, request: &Request) -> Result<u64, StoreError> {
        self.writable()?;
        let mut taken = self.take(request);
        let limit =
            self.identifiers.wanted_limit().filter(|_| request.identifiers || !taken.is_empty());
        if taken.is_empty() && limit.is_none() {
            return Ok(0);
        }
        let outcome = self.write_and_prepare(&mut taken, limit).and_then(|prepared| {
            let freed = prepared.transaction.commit()?;
            Ok((prepared.blocks_used, freed))
        });
        match outcome {
            Ok((blocks_used, freed)) => {
                if let Some(limit) = limit {
                    self.identifiers.committed(limit);
                }
                let blocks = taken.iter().map(|one| block_count(&one.frames)).sum();
                self.let_go(taken, blocks_used, &freed);
                Ok(blocks)
            }
            Err(failure) => {
                if let Failure::Fatal(error) = &failure {
                    self.latch(error);
                }
                self.put_back(taken);
                Err(failure.into())
            }
        }
    }

    /// Writes the limit of identifiers that gives back those not given out.
    pub(crate) fn give_back_identifiers(&self) -> Result<(), StoreError> {
        let mut transaction = self.metadata.begin()?;
        transaction.put_object_limit(self.identifiers.lowest_limit())?;
        transaction.commit()?;
        Ok(())
    }

    /// Takes the objects that the request names and that are dirty.
    fn take(&self, request: &Request) -> Vec<Taken> {
        let mut objects = Vec::new();
        if request.all {
            objects = self.table.dirty();
        } else {
            objects.extend(request.objects.iter().filter_map(|name| self.table.get(*name).ok()));
            if request.bytes > 0 {
                objects.extend(self.longest_dirty(request.bytes));
            }
        }
        // In order of names, as the tree has them; those named twice are dirty only once.
        objects.sort_by_key(|object| object.name);
        objects.iter().filter_map(|object| self.take_object(object)).collect()
    }

    fn longest_dirty(&self, bytes: u64) -> Vec<Arc<Object>> {
        let mut left = bytes;
        let mut objects = Vec::new();
        for object in self.table.dirty() {
            let dirty = self.cache.frames(&object).dirty_blocks() * BLOCK_BYTES as u64;
            objects.push(object);
            // An object without dirty data costs a record.
            left = left.saturating_sub(dirty.max(512));
            if left == 0 {
                break;
            }
        }
        objects
    }

    fn take_object(&self, object: &Arc<Object>) -> Option<Taken> {
        let mut body = object.write();
        if !self.table.unregister(&mut body) {
            return None;
        }
        let frames = self.cache.frames(object).capture();
        let was_in_tree = body.in_tree;
        body.in_tree = true;
        body.fresh_writing = std::mem::take(&mut body.fresh);
        body.cut_writing = body.cut.take();
        if let Some(cut) = body.cut_writing {
            body.mapped_end = body.mapped_end.min(cut);
        }
        if let Some(last) = frames.last() {
            let behind = FRAME_BLOCKS as u64 - u64::from(last.blocks.leading_zeros());
            body.mapped_end = body.mapped_end.max(last.number * FRAME_BLOCKS as u64 + behind);
        }
        Some(Taken {
            object: object.clone(),
            record: body.record.clone(),
            removed: body.removed,
            was_in_tree,
            cut: body.cut_writing,
            promised_records: std::mem::take(&mut body.promised_records),
            hint: body.placed_end,
            frames,
            places: Vec::new(),
        })
    }

    /// Writes all dirty blocks and makes them durable, and prepares the transaction.
    fn write_and_prepare(
        &self,
        taken: &mut [Taken],
        limit: Option<u64>,
    ) -> Result<Prepared<'_>, Failure> {
        self.allocate(taken)?;
        let taken = &*taken;
        let mut requests: Vec<WriteRequest<'_>> = Vec::new();
        let placed: Vec<Vec<Extent>> = taken
            .iter()
            .map(|one| place(&one.frames, &one.places, &self.geometry, &mut requests))
            .collect();
        let blocks: u64 = taken.iter().map(|one| block_count(&one.frames)).sum();
        if blocks < OVERLAP_BLOCKS {
            self.write_data(&requests)?;
            return self.prepare(taken, placed, limit);
        }
        std::thread::scope(|scope| {
            let write = || self.write_data(&requests);
            let writer = std::thread::Builder::new().spawn_scoped(scope, write);
            let prepared = self.prepare(taken, placed, limit);
            match writer.map(|writer| writer.join()) {
                Ok(Ok(written)) => written?,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // No thread is to be had: then one after the other.
                Err(_) => self.write_data(&requests)?,
            }
            prepared
        })
    }

    fn allocate(&self, taken: &mut [Taken]) -> Result<(), Failure> {
        for one in taken.iter_mut() {
            let blocks = block_count(&one.frames);
            if blocks == 0 {
                continue;
            }
            let hint = self.placement_hint(one).map_err(Failure::Passing)?;
            let places = self.accounts().allocate(blocks, hint);
            // A free block was promised for every dirty one.
            debug_assert!(places.is_some());
            one.places = places.ok_or(Failure::Passing(StoreError::NoSpace(NoSpace::Data)))?;
        }
        Ok(())
    }

    fn write_data(&self, requests: &[WriteRequest<'_>]) -> Result<(), Failure> {
        if requests.is_empty() {
            return Ok(());
        }
        self.device.write_batch(requests).map_err(|error| Failure::Passing(error.into()))?;
        // A second sync could succeed without what the first one lost.
        self.device.sync().map_err(|error| Failure::Fatal(error.into()))
    }

    /// Where an object's blocks should go: behind those placed last, else behind its last extent,
    /// else behind its neighbour's.
    fn placement_hint(&self, one: &Taken) -> Result<Option<u64>, StoreError> {
        if one.hint.is_some() {
            return Ok(one.hint);
        }
        let name = one.object.name;
        if one.was_in_tree
            && let Some(end) = self.last_end(name)?
        {
            return Ok(Some(end));
        }
        match one.record.nearby_object {
            ObjectId(0) => Ok(None),
            nearby => self.last_end(ObjectName { object: nearby, ..name }),
        }
    }

    fn last_end(&self, name: ObjectName) -> Result<Option<u64>, StoreError> {
        let last = self.metadata.last_extent(name)?;
        Ok(last.map(|extent| extent.physical + extent.blocks()))
    }

    /// Everything of the transaction but its commit. Without that, it changes nothing.
    fn prepare(
        &self,
        taken: &[Taken],
        placed: Vec<Vec<Extent>>,
        limit: Option<u64>,
    ) -> Result<Prepared<'_>, Failure> {
        let mut transaction = self.metadata.begin()?;
        let mut blocks_used = Vec::with_capacity(taken.len());
        for (one, mut extents) in taken.iter().zip(placed) {
            let name = one.object.name;
            if one.removed {
                transaction.remove_object(name)?;
                blocks_used.push(0);
                continue;
            }
            let mut gone = match one.cut {
                Some(first) => transaction.cut(name, first)?,
                None => 0,
            };
            if !extents.is_empty() {
                fill_checksums(&one.frames, &mut extents);
                gone += transaction.replace(name, extents)?;
            }
            let used = one.record.blocks_used + block_count(&one.frames);
            let used = used.checked_sub(gone).ok_or_else(|| {
                TreeError::Damaged(format!("object {name} has more blocks than it should"))
            })?;
            let record = ObjectRecord { blocks_used: used, ..one.record.clone() };
            transaction.put_object(name, &record)?;
            blocks_used.push(used);
        }
        if let Some(limit) = limit {
            transaction.put_object_limit(limit)?;
        }
        Ok(Prepared { transaction, blocks_used })
    }

    /// What was taken is durable: clean, and charged for what it is.
    fn let_go(&self, taken: Vec<Taken>, blocks_used: Vec<u64>, freed: &[Run]) {
        self.accounts().free(freed);
        for (one, blocks_used) in taken.into_iter().zip(blocks_used) {
            let mut body = one.object.write();
            self.cache.frames(&one.object).written(&one.frames);
            body.fresh_writing = 0;
            body.cut_writing = None;
            self.metadata.capacity.release(one.promised_records);
            if one.removed {
                self.settle_charge(&one.object, &mut body, 0);
                self.table.forget(one.object.name);
                continue;
            }
            body.record.blocks_used = blocks_used;
            body.placed_end = one.places.last().map(Run::end).or(body.placed_end);
            let charge = body.charge_with(0);
            self.settle_charge(&one.object, &mut body, charge);
        }
    }

    /// What was taken was not written: it is dirty again, and its places are free.
    fn put_back(&self, taken: Vec<Taken>) {
        for one in taken {
            let mut body = one.object.write();
            let back = self.cache.frames(&one.object).revert(&one.frames);
            // Blocks that have places gave their promise of a free one up for them; for others it
            // still stands, even for those that were cut off or written again meanwhile.
            if one.places.is_empty() {
                self.accounts().forget_dirty(block_count(&one.frames) - back.dirty);
            } else {
                self.accounts().take_back(&one.places, back.dirty);
            }
            body.fresh_writing = 0;
            body.fresh += back.fresh;
            body.cut = [body.cut, body.cut_writing.take()].into_iter().flatten().min();
            body.promised_records += one.promised_records;
            self.table.register(&one.object, &mut body);
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_device::{FaultPlan, FaultyDevice};
    use nasd_types::{ByteRange, PartitionId, SetAttributes, Timestamp};

    use super::*;
    use crate::{FormatOptions, OpenOptions, PartitionFormat, StoredKey, WriteData};

    const PARTITION: PartitionId = PartitionId(1);

    fn store() -> (Arc<FaultyDevice>, Store) {
        let key = StoredKey::new([1; 32]);
        let partition = PartitionFormat {
            id: PARTITION,
            quota_bytes: u64::MAX,
            partition_key: key.clone(),
            working_key: key.clone(),
            key_epoch: 1,
        };
        let options = FormatOptions {
            drive: nasd_types::DriveId(1),
            cell: nasd_types::CellId([1; 16]),
            drive_key: key,
            partitions: vec![partition],
            metadata_bytes: None,
            now: Timestamp(1),
        };
        let device = Arc::new(FaultyDevice::zeroed(16 << 20));
        Store::format(device.clone(), &options).unwrap();
        let open = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() };
        (device.clone(), Store::open(device, &open).unwrap())
    }

    fn create(store: &Store) -> ObjectName {
        let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2)).unwrap();
        ObjectName { partition: PARTITION, object }
    }

    fn write(store: &Store, name: ObjectName, offset: u64, length: usize) {
        let bytes = vec![7; length];
        store.write(name, offset, WriteData::Slice(&bytes), Timestamp(3)).unwrap();
    }

    fn set_size(store: &Store, name: ObjectName, size: u64) {
        let changes = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
        store.setattr(name, &changes, Timestamp(4)).unwrap();
    }

    /// With nothing dirty, nothing is promised to anybody.
    fn assert_idle(store: &Store) {
        assert_eq!(store.table.dirty_count(), 0);
        assert_eq!(store.cache.dirty_bytes(), 0);
        assert_eq!(store.accounts().dirty(), 0, "blocks promised to dirty ones");
        assert_eq!(store.metadata.capacity.promised(), 0, "records promised");
    }

    #[test]
    fn every_promise_is_settled_however_the_flush_went() {
        let (device, store) = store();
        let objects: Vec<ObjectName> = (0..4).map(|_| create(&store)).collect();
        for failing in [false, true, false, true] {
            for (index, &object) in (0..).zip(&objects) {
                write(&store, object, index * 5000, 100_000);
                set_size(&store, object, 60_000);
                write(&store, object, 200_000, 10);
            }
            let gone = create(&store);
            write(&store, gone, 0, 50_000);
            store.remove(gone).unwrap();
            let removed = create(&store);
            write(&store, removed, 0, 50_000);
            if failing {
                let unwritable = store.geometry.data_offset..16 << 20;
                device.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
                store.flush_all().unwrap_err();
                store.remove(removed).unwrap();
                write(&store, objects[0], 0, 5000);
                set_size(&store, objects[1], 10);
                store.flush_all().unwrap_err();
                device.set_plan(FaultPlan::default());
            } else {
                store.flush(&[removed]).unwrap();
                store.remove(removed).unwrap();
            }
            store.flush_all().unwrap();
            assert_idle(&store);
        }
        for object in objects {
            store.remove(object).unwrap();
        }
        store.flush_all().unwrap();
        assert_idle(&store);
        assert_eq!(store.space().used_bytes, 0);
        assert_eq!(store.partition_space(PARTITION).unwrap().used_bytes, 0);
    }

    #[test]
    fn files_that_grow_by_small_flushes_stay_in_one_piece() {
        let (_, store) = store();
        let (one, two) = (create(&store), create(&store));
        for index in 0..200 {
            write(&store, one, index * 4096, 4096);
            store.flush(&[one]).unwrap();
            if index < 4 {
                // Its neighbour is placed once, in the way.
                write(&store, two, index * 4096, 4096);
                store.flush(&[two]).unwrap();
            }
        }
        let extents = store.metadata.extents(one, 0, 1000).unwrap();
        assert!(extents.len() <= 5, "{} extents", extents.len());
        assert_eq!(store.read(one, ByteRange::new(0, 200 * 4096)).unwrap().len(), 200 * 4096);
    }

    #[test]
    fn scattered_small_writes_leave_as_one() {
        let (device, store) = store();
        let object = create(&store);
        for index in 0..100 {
            write(&store, object, index * 3 * 4096, 4096);
        }
        let before = device.writes();
        store.flush_all().unwrap();
        // One for the data; the others are pages of the tree.
        assert!(device.writes() - before < 12, "{} writes", device.writes() - before);
    }
}
