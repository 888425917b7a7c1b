//! One flush, from taking the objects to letting them go.
//!
//! 1. *Take* each object, with its body locked: its attributes, its cuts, its dirty blocks. From here
//!    on changes count for the next flush. Since every write is made with the body locked, the flush
//!    has each write wholly or not at all.
//! 2. *Write* the dirty blocks to free places, and sync; or, if they are few, put them into
//! 3. the *log entry*, which is written and synced. The flush is durable.
//! 4. *Settle*: apply the entry's changes to the tree, and *let go*: what was written is clean, what
//!    was replaced is free.
//!
//! If step 2 fails to write, what was taken is dirty again and the caller learns why: another try
//! takes other places. If a sync or the log fails, nobody can tell what the medium has, and the
//! store takes no more changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nasd_device::WriteRequest;
use nasd_types::ObjectName;
use nasd_types::limits::BLOCK_BYTES;

use super::cluster::{self, Wish, list_order};
use super::place::{Placed, block_count, extents, requests, small_contents};
use super::{Copy, Request};
use crate::clears::Clears;
use crate::frames::{Captured, FRAME_BLOCKS};
use crate::free_map::Run;
use crate::log::Change;
use crate::metadata::record::{Counters, LogMark, ObjectRecord, SMALL_BYTES_MAX};
use crate::metadata::{Effects, TreeError};
use crate::object::{Body, Object};
use crate::{NoSpace, Store, StoreError};

/// Blocks from which on it pays to have another thread write them while checksums are computed.
const OVERLAP_BLOCKS: u64 = 64;

/// Most blocks of a flush that go into the log entry: one sequential write and one sync are quicker
/// than two of each.
const INLINE_BLOCKS: u64 = 16;

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

/// What happens to contents that are kept in the tree.
#[derive(Debug)]
enum Small {
    /// Nothing.
    Keep,
    /// They are these now.
    Put(Vec<u8>),
    /// There are none any more.
    Drop,
}

/// An object that a flush has taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) object: Arc<Object>,
    pub(super) record: ObjectRecord,
    removed: bool,
    pub(super) was_in_tree: bool,
    was_small: bool,
    small: Small,
    clears: Clears,
    promised_records: u64,
    pub(super) hint: Option<u64>,
    frames: Vec<Captured>,
    places: Vec<Run>,
}

impl Taken {
    /// Blocks that get places.
    fn blocks(&self) -> u64 {
        match self.small {
            Small::Put(_) => 0,
            Small::Keep | Small::Drop => block_count(&self.frames),
        }
    }
}

/// What is durable in the log, and to be applied to the tree.
#[derive(Debug)]
pub(super) struct Durable {
    taken: Vec<Taken>,
    changes: Vec<Change>,
    mark: LogMark,
}

impl Store {
    /// Makes durable what is asked for; how many blocks were written. What is left to do after
    /// that is left for `settle_last`.
    pub(super) fn run_batch(&self, request: &Request) -> Result<u64, StoreError> {
        self.writable()?;
        let mut taken = self.take(request);
        let limit =
            self.identifiers.wanted_limit().filter(|_| request.identifiers || !taken.is_empty());
        let idle = request.changes.is_empty() && request.copies.is_empty();
        if taken.is_empty() && limit.is_none() && idle {
            return Ok(0);
        }
        match self.write_and_log(&mut taken, request, limit) {
            Ok((changes, logged)) => {
                if let Some(limit) = limit {
                    self.identifiers.committed(limit);
                }
                let blocks = taken.iter().map(Taken::blocks).sum();
                let durable = Durable { taken, changes, mark: self.log.mark() };
                *self.queue.unsettled() = Some(durable);
                if !logged {
                    self.settle_last()?;
                    self.checkpoint_now()?;
                }
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

    /// Writes the limit that gives back identifiers that were not given out.
    pub(crate) fn give_back_identifiers(&self) -> Result<(), StoreError> {
        let counters =
            Counters { object_limit: self.identifiers.lowest_limit(), clock: self.clock() };
        let changes = vec![Change::PutCounters(counters)];
        self.run_flush(Request { changes, settle: true, ..Request::default() })
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
        body.clears_writing = std::mem::take(&mut body.clears);
        body.mapped_end = body.mapped_end.min(body.clears_writing.end());
        let was_small = body.small;
        let small = small_after(&body, &frames);
        body.small = match &small {
            Small::Keep => was_small,
            Small::Put(_) => true,
            Small::Drop => false,
        };
        if let Some(last) = frames.last().filter(|_| !matches!(small, Small::Put(_))) {
            let behind = FRAME_BLOCKS as u64 - u64::from(last.blocks.leading_zeros());
            body.mapped_end = body.mapped_end.max(last.number * FRAME_BLOCKS as u64 + behind);
        }
        Some(Taken {
            object: object.clone(),
            record: body.record.clone(),
            removed: body.removed,
            was_in_tree,
            was_small,
            small,
            clears: body.clears_writing.clone(),
            promised_records: std::mem::take(&mut body.promised_records),
            hint: body.placed_end,
            frames,
            places: Vec::new(),
        })
    }

    /// Writes what was taken so that it is durable. Returns the changes that the tree lacks, and
    /// whether they are in the log; if not, only the data is durable.
    fn write_and_log(
        &self,
        taken: &mut [Taken],
        request: &Request,
        limit: Option<u64>,
    ) -> Result<(Vec<Change>, bool), Failure> {
        let mut changes = request.changes.clone();
        for copy in &request.copies {
            changes.extend(self.copy_change(copy).map_err(Failure::Passing)?);
        }
        if let Some(object_limit) = limit {
            let clock = self.clock();
            changes.push(Change::PutCounters(Counters { object_limit, clock }));
        }
        self.allocate(taken)?;
        let blocks: u64 = taken.iter().map(Taken::blocks).sum();
        let room = self.log.entry_bytes_max() / 2 / BLOCK_BYTES;
        let inline = blocks <= INLINE_BLOCKS.min(room as u64);
        let placed = self.write_blocks(taken, blocks, inline)?;
        for (one, placed) in taken.iter().zip(placed) {
            changes_of(one, placed, &mut changes);
        }
        let entry = self.log.encode(&changes);
        if entry.len() > self.log.entry_bytes_max() {
            return Ok((changes, false));
        }
        if !self.log.has_room() {
            self.checkpoint_now().map_err(Failure::Fatal)?;
        }
        self.log.append(&*self.device, &entry).map_err(|error| Failure::Fatal(error.into()))?;
        self.tally.log_entries.fetch_add(1, Ordering::Relaxed);
        self.tally.log_bytes.fetch_add(entry.len() as u64, Ordering::Relaxed);
        Ok((changes, true))
    }

    /// A copy of an object as the tree has it, or nothing if it is gone.
    fn copy_change(&self, copy: &Copy) -> Result<Option<Change>, StoreError> {
        let Some(source) = self.metadata.object(copy.source)? else {
            return Ok(None);
        };
        let name = ObjectName { object: copy.target, ..copy.source };
        let record = Box::new(ObjectRecord {
            copied_object: copy.source.object,
            blocks_reserved: 0,
            blocks_used: 0,
            create_time: copy.now,
            data_modify_time: copy.now,
            attribute_modify_time: copy.now,
            ..source
        });
        Ok(Some(Change::Clone { source: copy.source.object, name, record }))
    }

    /// Gives every block its extent, and writes those that do not go to the log.
    fn write_blocks(
        &self,
        taken: &[Taken],
        blocks: u64,
        inline: bool,
    ) -> Result<Vec<Vec<Placed>>, Failure> {
        let place = || -> Vec<Vec<Placed>> {
            taken.iter().map(|one| extents(&one.frames, &one.places, inline)).collect()
        };
        if inline {
            return Ok(place());
        }
        let requests: Vec<WriteRequest<'_>> = taken
            .iter()
            .flat_map(|one| requests(&one.frames, &one.places, &self.geometry))
            .collect();
        self.tally.data_written_bytes.fetch_add(blocks * BLOCK_BYTES as u64, Ordering::Relaxed);
        if blocks < OVERLAP_BLOCKS {
            self.write_data(&requests)?;
            return Ok(place());
        }
        std::thread::scope(|scope| {
            let write = || self.write_data(&requests);
            let writer = std::thread::Builder::new().spawn_scoped(scope, write);
            let placed = place();
            match writer.map(|writer| writer.join()) {
                Ok(Ok(written)) => written?,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // No thread is to be had: then one after the other.
                Err(_) => self.write_data(&requests)?,
            }
            Ok(placed)
        })
    }

    fn allocate(&self, taken: &mut [Taken]) -> Result<(), Failure> {
        let listed = taken.iter().map(|one| (one.object.name, one.record.nearby_object));
        let listed: Vec<_> = listed.collect();
        let mut placed: cluster::Placed =
            listed.iter().map(|&(name, nearby)| (name, (nearby, None))).collect();
        for number in list_order(&listed) {
            let one = &mut taken[number];
            let blocks = one.blocks();
            if blocks == 0 {
                continue;
            }
            let places = match self.wish(one, &placed).map_err(Failure::Passing)? {
                Wish::Behind(end) => self.accounts().allocate(blocks, Some(end)),
                Wish::Near(end) => self.accounts().allocate_clustered(blocks, Some(end)),
                Wish::First => self.accounts().allocate_clustered(blocks, None),
                Wish::Anywhere => self.accounts().allocate(blocks, None),
            };
            // A free block was promised for every dirty one.
            debug_assert!(places.is_some());
            one.places = places.ok_or(Failure::Passing(StoreError::NoSpace(NoSpace::Data)))?;
            if let Some(last) = one.places.last() {
                placed.insert(one.object.name, (one.record.nearby_object, Some(last.end())));
            }
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

    /// Applies to the tree what is durable in the log alone. Whoever calls this leads.
    pub(super) fn settle_last(&self) -> Result<(), StoreError> {
        let Some(Durable { taken, changes, mark }) = self.queue.unsettled().take() else {
            return Ok(());
        };
        match self.apply(&changes, mark) {
            Ok(effects) => {
                self.let_go(taken, &effects);
                Ok(())
            }
            Err(error) => {
                let error = StoreError::from(error);
                self.latch(&error);
                self.put_back(taken);
                Err(error)
            }
        }
    }

    fn apply(&self, changes: &[Change], mark: LogMark) -> Result<Effects, TreeError> {
        let mut transaction = self.metadata.begin()?;
        let effects = transaction.apply(changes, mark)?;
        // Before anybody can find the extents.
        for (run, contents) in &effects.inlined {
            self.inlined.insert(*run, contents);
        }
        transaction.commit()?;
        Ok(effects)
    }

    /// What was taken is in the tree: clean, and charged for what it is.
    fn let_go(&self, taken: Vec<Taken>, effects: &Effects) {
        self.accounts().free(&effects.freed);
        for (&partition, &change) in &effects.shared {
            self.accounts().charge_shared(partition, change);
        }
        let mut others = effects.objects.clone();
        for one in taken {
            others.remove(&one.object.name);
            self.let_go_of(&one, effects);
        }
        // Whoever had found these blocks in the tree before has read them by now: he held the object's
        // body, which was locked alone since.
        self.inlined.forget(&effects.freed);
        // Sources of copies.
        for (name, settled) in others {
            if let (Some(settled), Ok(object)) = (settled, self.table.get(name)) {
                let mut body = object.write();
                (body.record.blocks_used, body.record.family) =
                    (settled.blocks_used, settled.family);
                let charge = body.charge_with(0);
                self.settle_charge(&object, &mut body, charge);
            }
        }
    }

    fn let_go_of(&self, one: &Taken, effects: &Effects) {
        let name = one.object.name;
        let mut body = one.object.write();
        self.cache.frames(&one.object).written(&one.frames);
        body.fresh_writing = 0;
        body.clears_writing = Clears::default();
        self.metadata.capacity.release(one.promised_records);
        if matches!(one.small, Small::Put(_)) {
            // The free block that was promised was not needed.
            self.accounts().forget_dirty(block_count(&one.frames));
        }
        if one.removed {
            self.settle_charge(&one.object, &mut body, 0);
            self.table.forget(name);
            return;
        }
        if let Some(Some(settled)) = effects.objects.get(&name) {
            body.record.blocks_used = settled.blocks_used;
            body.record.family = settled.family;
        }
        body.placed_end = one.places.last().map(Run::end).or(body.placed_end);
        let charge = body.charge_with(0);
        self.settle_charge(&one.object, &mut body, charge);
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
            let clears = std::mem::take(&mut body.clears_writing);
            body.clears.add_all(&clears);
            body.small = one.was_small;
            body.promised_records += one.promised_records;
            self.table.register(&one.object, &mut body);
        }
    }
}

/// What becomes of an object's small contents when these frames are written. The body has what the
/// tree will have otherwise.
fn small_after(body: &Body, frames: &[Captured]) -> Small {
    let size = body.record.logical_size;
    if body.removed {
        return Small::Keep;
    }
    if (1..=SMALL_BYTES_MAX as u64).contains(&size)
        && body.mapped_end == 0
        && let Some(contents) = small_contents(frames, size)
    {
        return Small::Put(contents);
    }
    if body.small && (!frames.is_empty() || body.clears_writing.contains(0)) {
        return Small::Drop;
    }
    Small::Keep
}

/// The changes that make one object what was taken of it.
fn changes_of(one: &Taken, placed: Vec<Placed>, changes: &mut Vec<Change>) {
    let name = one.object.name;
    if one.removed {
        changes.push(Change::RemoveObject(name));
        return;
    }
    changes.push(Change::PutObject(name, Box::new(one.record.clone())));
    for range in one.clears.ranges() {
        changes.push(Change::Clear { name, from: range.start, to: range.end });
    }
    match &one.small {
        Small::Keep => {}
        Small::Put(contents) => changes.push(Change::PutSmall(name, contents.clone())),
        Small::Drop => changes.push(Change::DropSmall(name)),
    }
    changes.extend(placed.into_iter().map(|Placed { extent, sums, contents }| Change::Map {
        name,
        extent,
        sums,
        contents,
    }));
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
            master_key: None,
            log_key: 7,
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
        store.settle().unwrap();
        let extents = store.metadata.extents(one, 0, 1000).unwrap();
        assert!(extents.len() <= 5, "{} extents", extents.len());
        assert_eq!(store.read(one, ByteRange::new(0, 200 * 4096)).unwrap().len(), 200 * 4096);
    }

    #[test]
    fn lists_of_small_objects_lie_together_whatever_comes_between() {
        let (_, store) = store();
        let mut list: Vec<ObjectName> = Vec::new();
        for index in 0..30 {
            let nearby = list.last().map(|last| last.object);
            let initial = SetAttributes { nearby_object: nearby, ..SetAttributes::default() };
            let (object, _) = store.create(PARTITION, &initial, Timestamp(2)).unwrap();
            let name = ObjectName { partition: PARTITION, object };
            // Some are kept in the tree, and have no place.
            write(&store, name, 0, if index % 5 == 4 { 100 } else { 10_000 });
            list.push(name);
            write(&store, create(&store), 0, 9000);
            if index % 3 == 0 {
                store.flush_all().unwrap();
            }
        }
        store.flush_all().unwrap();
        let (mut pieces, mut blocks, mut end) = (0, 0, None);
        for name in list {
            for extent in store.metadata.extents(name, 0, 100).unwrap() {
                pieces += u64::from(end != Some(extent.physical));
                blocks += extent.blocks;
                end = Some(extent.run().end());
            }
        }
        assert_eq!(blocks, 24 * 3);
        assert!(pieces <= 2, "{pieces} pieces");
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
