//! One flush, from taking the objects to letting them go.
//!
//! 1. *Take* each object, with its body locked: its attributes, its cuts, its dirty blocks. From here
//!    on changes count for the next flush. Since every write is made with the body locked, the flush
//!    has each write wholly or not at all.
//! 2. *Compress* them, in partitions that want it. *Write* them to free places; or, if they are few, put
//!    them into the log entry.
//!    While one writes to places, the next may begin, with the exceptions that `turns` has.
//! 3. *Log*, when all flushes before have ended: what was written to its place is synced, and then the entry
//!    is written and synced. The flush is durable.
//! 4. *Settle* (see `settle`), later: the tree gets what the entry has.
//!
//! If step 2 fails to write, what was taken is dirty again and the caller learns why: another try
//! takes other places. If a sync or the log fails, nobody can tell what the medium has, and the
//! store takes no more changes. Either way those behind put back first what they have taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nasd_device::WriteRequest;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Compression, ObjectName};

use super::cluster::{self, Wish, list_order};
use super::place::{
    Dealer, Part, Piece, Placed, block_count, data_blocks, extents, parts, requests, small_contents,
};
use super::turns::Leading;
use super::{Copy, Failure, Request};
use crate::clears::Clears;
use crate::frames::{BlockSet, Captured, Claim, FRAME_BLOCKS};
use crate::free_map::Run;
use crate::log::Change;
use crate::metadata::record::{Appended, Counters, LogMark, ObjectRecord, SMALL_BYTES_MAX};
use crate::object::{Body, Flushing, Object};
use crate::{NoSpace, Store, StoreError};

/// Most blocks of a flush that go into the log entry: one sequential write and one sync are quicker
/// than two of each.
const INLINE_BLOCKS: u64 = 16;

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
    pub(super) removed: bool,
    pub(super) was_in_tree: bool,
    was_small: bool,
    small: Small,
    clears: Clears,
    pub(super) promised_records: u64,
    appended: Vec<Appended>,
    pub(super) claims: Vec<Claim>,
    /// What was in them, until that is written.
    frames: Vec<Captured>,
    compression: Compression,
    /// What the blocks are stored as, and where, until that is written.
    parts: Vec<Part>,
    pieces: Vec<Piece>,
    pub(super) places: Vec<Run>,
    /// What the object's placed end was before, once it has places.
    placed_behind: Option<u64>,
    /// Of frames with compressed blocks those that have no data block to themselves.
    pub(super) shrunk: Vec<(u64, BlockSet)>,
}

impl Taken {
    /// Blocks that get places.
    fn blocks(&self) -> u64 {
        match self.small {
            Small::Put(_) => 0,
            Small::Keep | Small::Drop => block_count(&self.claims),
        }
    }

    /// Data blocks that they take.
    pub(super) fn placed_blocks(&self) -> u64 {
        self.places.iter().map(|run| run.blocks).sum()
    }
}

/// What is durable in the log, and to be applied to the tree.
#[derive(Debug)]
pub(super) struct Durable {
    pub(super) taken: Vec<Taken>,
    pub(super) changes: Vec<Change>,
    pub(super) mark: LogMark,
}

impl Durable {
    /// Frames that the cache has to keep until the tree has what is in them.
    pub(super) fn frames(&self) -> usize {
        self.taken.iter().map(|one| one.claims.len()).sum()
    }
}

/// Whether something that was taken may be compressed.
fn is_packed(taken: &[Taken]) -> bool {
    taken.iter().any(|one| one.compression != Compression::None && !one.claims.is_empty())
}

impl Store {
    /// Makes durable what is asked for; how many blocks were written. What is left to do after
    /// that is left for `settle_all`.
    pub(super) fn run_batch(
        &self,
        request: &Request,
        leading: &mut Leading<'_>,
    ) -> Result<u64, Failure> {
        self.writable().map_err(Failure::Passing)?;
        let mut taken = self.take(request);
        let limit =
            self.identifiers.wanted_limit().filter(|_| request.identifiers || !taken.is_empty());
        let idle = request.changes.is_empty()
            && request.copies.is_empty()
            && request.shares.is_empty()
            && !request.clock
            && !request.give_back;
        if taken.is_empty() && limit.is_none() && idle {
            return Ok(0);
        }
        let written = self.write_taken(&mut taken, request, limit, leading);
        let logged = written.and_then(|(changes, are_placed)| {
            let is_logged = self.log_changes(&changes, are_placed, leading)?;
            Ok((changes, is_logged))
        });
        match logged {
            Ok((changes, logged)) => {
                if let Some(limit) = limit {
                    self.identifiers.committed(limit);
                }
                let blocks = taken.iter().map(Taken::blocks).sum();
                let packed = is_packed(&taken);
                self.backlog.push(Durable { taken, changes, mark: self.log.mark() });
                if packed || !logged {
                    self.settle_all().map_err(Failure::Fatal)?;
                }
                if !logged {
                    self.checkpoint_now().map_err(Failure::Fatal)?;
                }
                Ok(blocks)
            }
            Err(failure) => {
                if let Failure::Fatal(error) = &failure {
                    self.metadata.note_failed_sync();
                    self.latch(error);
                }
                leading.fail_those_behind();
                // What could not be written to its places goes to those behind them.
                self.put_back(taken, !matches!(failure, Failure::Passing(_)));
                Err(failure)
            }
        }
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
            // An object without dirty data costs a record, and as much time as a block: whoever needs the
            // tree to be complete waits for all of them.
            left = left.saturating_sub(dirty.max(BLOCK_BYTES as u64));
            if left == 0 {
                break;
            }
        }
        objects
    }

    fn take_object(&self, object: &Arc<Object>) -> Option<Taken> {
        let compression = self.compression(object.name.partition);
        let mut body = object.write();
        if !self.table.unregister(&mut body) {
            return None;
        }
        let frames = self.cache.frames(object).capture();
        let was_in_tree = body.in_tree;
        body.in_tree = true;
        let fresh = std::mem::take(&mut body.fresh);
        let clears = std::mem::take(&mut body.clears);
        body.mapped_end = body.mapped_end.min(clears.end());
        let was_small = body.small;
        let small = small_after(&body, &frames, &clears);
        body.small = match &small {
            Small::Keep => was_small,
            Small::Put(_) => true,
            Small::Drop => false,
        };
        if let Some(last) = frames.last().filter(|_| !matches!(small, Small::Put(_))) {
            let behind = FRAME_BLOCKS as u64 - u64::from(last.claim.blocks.leading_zeros());
            body.mapped_end = body.mapped_end.max(last.claim.number * FRAME_BLOCKS as u64 + behind);
        }
        let compression = match &small {
            Small::Put(_) => Compression::None,
            Small::Keep | Small::Drop => compression,
        };
        let packing = compression != Compression::None && !frames.is_empty();
        let goes_into_tree = matches!(small, Small::Put(_));
        let taken = Flushing { fresh, clears: clears.clone(), packing, small: goes_into_tree };
        body.writing.push(taken);
        Some(Taken {
            object: object.clone(),
            record: body.record.clone(),
            removed: body.removed,
            was_in_tree,
            was_small,
            small,
            clears,
            promised_records: std::mem::take(&mut body.promised_records),
            appended: std::mem::take(&mut body.appended),
            claims: frames.iter().map(|captured| captured.claim).collect(),
            frames,
            compression,
            parts: Vec::new(),
            pieces: Vec::new(),
            places: Vec::new(),
            placed_behind: None,
            shrunk: Vec::new(),
        })
    }

    /// Writes the data of what was taken to their places, if they are not few, which go with the changes.
    /// Returns these, which the tree lacks, and whether data were written.
    fn write_taken(
        &self,
        taken: &mut [Taken],
        request: &Request,
        limit: Option<u64>,
        leading: &mut Leading<'_>,
    ) -> Result<(Vec<Change>, bool), Failure> {
        // Copies come first: what they are made of is what the tree has, and what is removed here is
        // there still.
        let mut changes = Vec::with_capacity(request.copies.len() + request.changes.len());
        for copy in &request.copies {
            changes.extend(self.copy_change(copy).map_err(Failure::Passing)?);
        }
        changes.extend(self.share_changes(request, taken).map_err(Failure::Passing)?);
        changes.extend(request.changes.iter().cloned());
        if limit.is_some() || request.clock || request.give_back {
            // Here and nowhere else, so that no entry has an older limit than the one before it.
            let object_limit = match limit {
                Some(limit) => limit,
                None if request.give_back => self.identifiers.lowest_limit(),
                None => self.identifiers.limit(),
            };
            let (clock, minimum_protection) = (self.clock(), self.minimum_protection());
            let counters = Counters { object_limit, clock, minimum_protection };
            changes.push(Change::PutCounters(counters));
        }
        self.allocate(taken)?;
        let blocks: u64 = taken.iter().map(Taken::placed_blocks).sum();
        let room = self.log.entry_bytes_max() / 2 / BLOCK_BYTES;
        let inline = blocks <= INLINE_BLOCKS.min(room as u64);
        // What is being applied may have failed meanwhile.
        self.writable().map_err(Failure::Passing)?;
        leading.check_those_before()?;
        // Nobody takes blocks of an object that may be packed before the tree has it; and who is to make a
        // checkpoint has to be alone.
        let may_overlap = request.is_plain() && !is_packed(taken) && !self.log.wants_checkpoint();
        let placed = self.write_blocks(taken, blocks, inline, &mut || {
            if may_overlap {
                leading.let_others_begin();
            }
        })?;
        for (one, placed) in taken.iter_mut().zip(placed) {
            changes_of(one, placed, &mut changes);
            one.pieces.clear();
            one.shrunk = one.parts.drain(..).filter_map(|part| part.shrunk()).collect();
            one.frames.clear();
        }
        Ok((changes, !inline))
    }

    /// Makes the data durable, if any were written to their places, and the changes; whether these are in the
    /// log. If not, they are too many for an entry, and the flush is alone.
    fn log_changes(
        &self,
        changes: &[Change],
        are_placed: bool,
        leading: &mut Leading<'_>,
    ) -> Result<bool, Failure> {
        leading.turn_to_log()?;
        // Nobody may allocate while blocks are brought home, or where the tree frees some that it may need after
        // a crash. It is seldom that there are any behind, unless the log is small: who finds it nearly that full
        // lets none begin.
        if !self.log.has_room() {
            leading.be_alone();
            self.settle_and_checkpoint().map_err(Failure::Fatal)?;
        }
        let entry = self.log.encode(changes);
        let fits = entry.len() <= self.log.entry_bytes_max();
        if !fits {
            leading.be_alone();
        }
        if are_placed {
            // A second sync could succeed without what the first one lost.
            self.device.sync().map_err(|error| Failure::Fatal(error.into()))?;
        }
        if !fits {
            return Ok(false);
        }
        let appended = self.log.append(&*self.device, &entry);
        appended.map_err(|error| Failure::Fatal(error.into()))?;
        self.tally.log_entries.fetch_add(1, Ordering::Relaxed);
        self.tally.log_bytes.fetch_add(entry.len() as u64, Ordering::Relaxed);
        Ok(true)
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

    /// Gives every block its extent, and writes those that do not go to the log; calls `begun` when those
    /// writes are on their way.
    fn write_blocks(
        &self,
        taken: &[Taken],
        blocks: u64,
        inline: bool,
        begun: &mut dyn FnMut(),
    ) -> Result<Vec<Vec<Placed>>, Failure> {
        let place = |step: &mut dyn FnMut()| -> Vec<Vec<Placed>> {
            taken.iter().map(|one| extents(&one.parts, &one.pieces, inline, step)).collect()
        };
        if inline {
            return Ok(place(&mut || ()));
        }
        let requests: Vec<WriteRequest<'_>> = taken
            .iter()
            .flat_map(|one| requests(&one.parts, &one.pieces, &self.geometry))
            .collect();
        self.tally.data_written_bytes.fetch_add(blocks * BLOCK_BYTES as u64, Ordering::Relaxed);
        let mut placed = Vec::new();
        // The checksums are computed while the device writes.
        let written = self.device.write_batch_with(&requests, &mut |step| {
            begun();
            placed = place(step);
        });
        written.map_err(|error| Failure::Passing(error.into()))?;
        Ok(placed)
    }

    fn allocate(&self, taken: &mut [Taken]) -> Result<(), Failure> {
        let listed = taken.iter().map(|one| (one.object.name, one.record.nearby_object));
        let listed: Vec<_> = listed.collect();
        let mut placed: cluster::Placed =
            listed.iter().map(|&(name, nearby)| (name, (nearby, None))).collect();
        for number in list_order(&listed) {
            let one = &mut taken[number];
            if one.blocks() == 0 {
                continue;
            }
            let wish = self.wish(one, &placed).map_err(Failure::Passing)?;
            self.allocate_one(one, wish)?;
            if let Some(last) = one.places.last() {
                placed.insert(one.object.name, (one.record.nearby_object, Some(last.end())));
                // The next flush may come before this one is durable.
                one.placed_behind = Some(one.object.set_placed_end(last.end()));
            }
        }
        Ok(())
    }

    /// Finds places for an object's blocks. A free block was promised for every dirty one. What
    /// compressed ones do not need of that stays promised until the flush is over: if it fails,
    /// they need it again.
    fn allocate_one(&self, one: &mut Taken, wish: Wish) -> Result<(), Failure> {
        let lacking = || Failure::Passing(StoreError::NoSpace(NoSpace::Data));
        one.parts = parts(&one.frames, one.compression);
        let places = self.allocate_as(data_blocks(&one.parts), wish);
        debug_assert!(places.is_some());
        one.places = places.ok_or_else(lacking)?;
        let mut dealer = Dealer::default();
        let more = match dealer.deal(&mut one.parts, &one.places) {
            0 => Vec::new(),
            blocks => self.allocate_as(blocks, wish).ok_or_else(lacking)?,
        };
        one.pieces = dealer.finish(&one.parts, &more);
        one.places.extend(more);
        Ok(())
    }

    fn allocate_as(&self, blocks: u64, wish: Wish) -> Option<Vec<Run>> {
        let mut accounts = self.accounts();
        match wish {
            Wish::Behind(end) => accounts.allocate(blocks, Some(end)),
            Wish::Near(end) => accounts.allocate_clustered(blocks, Some(end)),
            Wish::First => accounts.allocate_clustered(blocks, None),
            Wish::Anywhere => accounts.allocate(blocks, None),
        }
    }

    /// What was taken was not written: it is dirty again, and its places are free.
    pub(super) fn put_back(&self, taken: Vec<Taken>, to_the_same_places: bool) {
        for one in taken {
            if to_the_same_places
                && let (Some(end), Some(last)) = (one.placed_behind, one.places.last())
            {
                one.object.unset_placed_end(last.end(), end);
            }
            let mut body = one.object.write();
            let back = self.cache.frames(&one.object).revert(&one.claims);
            // For every place a promise of a free block was given up. The other promises still
            // stand, even those for blocks that were cut off or written again meanwhile.
            let left = block_count(&one.claims) - one.placed_blocks();
            {
                let mut accounts = self.accounts();
                accounts.take_back(&one.places, back.dirty);
                accounts.forget_dirty(left);
            }
            body.fresh += back.fresh;
            let flush = body.writing.pop_youngest();
            body.clears.add_all(&flush.clears);
            body.small = one.was_small;
            body.in_tree = one.was_in_tree;
            body.promised_records += one.promised_records;
            body.appended.splice(..0, one.appended);
            if body.removed && !body.in_tree {
                // Nothing of it is on the medium.
                self.table.unregister(&mut body);
                self.give_up(&one.object, &mut body);
            } else {
                let charge = body.charge_with(0);
                self.settle_charge(&one.object, &mut body, charge);
                self.table.register(&one.object, &mut body);
            }
        }
    }
}

/// What becomes of an object's small contents when these frames are written. The body has what the
/// tree will have otherwise; `clears` is what was cut off since it was taken last.
fn small_after(body: &Body, frames: &[Captured], clears: &Clears) -> Small {
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
    if body.small && (!frames.is_empty() || clears.contains(0)) {
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
    // Behind what was appended: both are durable, or neither.
    changes.extend(one.appended.iter().map(|appended| Change::Appended(*appended)));
}

#[cfg(test)]
mod tests {
    use nasd_device::{FaultPlan, FaultyDevice};
    use nasd_types::{ByteRange, SetAttributes, Timestamp};

    use super::*;
    use crate::testing::{PARTITION, assert_idle, formatted, open};
    use crate::{PartitionSettings, WriteData};

    fn store() -> (Arc<FaultyDevice>, Store) {
        let device = formatted();
        let store = open(&device);
        (device, store)
    }

    fn create(store: &Store) -> ObjectName {
        let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2)).unwrap();
        ObjectName { partition: PARTITION, object }
    }

    fn write(store: &Store, name: ObjectName, offset: u64, length: usize) {
        let bytes = vec![7; length];
        store.write(name, offset, WriteData::Slice(&bytes), Timestamp(3)).unwrap();
    }

    /// Bytes that do not compress.
    fn write_noise(store: &Store, name: ObjectName, offset: u64, length: u32) {
        let mut state = length;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let bytes: Vec<u8> = (0..length).map(|_| byte()).collect();
        store.write(name, offset, WriteData::Slice(&bytes), Timestamp(3)).unwrap();
    }

    fn set_size(store: &Store, name: ObjectName, size: u64) {
        let changes = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
        store.setattr(name, &changes, Timestamp(4)).unwrap();
    }

    fn charge(store: &Store, name: ObjectName) -> u64 {
        store.object(name).unwrap().read().charge
    }

    #[test]
    fn small_contents_are_charged_for_once_however_often_they_are_written() {
        let (device, store) = store();
        let name = create(&store);
        for round in 0..10 {
            write(&store, name, 0, 100);
            assert_eq!(charge(&store, name), 1, "{round}");
            store.flush(&[name]).unwrap();
            assert_eq!(charge(&store, name), 1, "{round}: the tree does not have them yet");
        }
        write(&store, name, 50, 4096);
        assert_eq!(charge(&store, name), 2, "they have outgrown the tree");
        store.flush(&[name]).unwrap();
        store.checkpoint().unwrap();
        assert_eq!((charge(&store, name), device.writes() > 0), (2, true));
    }

    #[test]
    fn every_promise_is_settled_however_the_flush_went() {
        for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
            let (device, store) = store();
            let settings = PartitionSettings { compression, ..PartitionSettings::default() };
            store.set_partition_settings(PARTITION, settings).unwrap();
            flushes_that_fail_and_do_not(&device, &store);
        }
    }

    fn flushes_that_fail_and_do_not(device: &FaultyDevice, store: &Store) {
        let objects: Vec<ObjectName> = (0..4).map(|_| create(store)).collect();
        for failing in [false, true, false, true] {
            for (index, &object) in (0..).zip(&objects) {
                write(store, object, index * 5000, 100_000);
                set_size(store, object, 60_000);
                write(store, object, 200_000, 10);
                if index == 2 {
                    // What of this is compressed is changed while it is being written.
                    store.flush(&[object]).unwrap();
                    write(store, object, 70_000, 100);
                    store.punch(object, ByteRange::new(0, 5000), Timestamp(5)).unwrap();
                }
                write_noise(store, object, 300_000, 150_000);
            }
            let gone = create(store);
            write(store, gone, 0, 50_000);
            store.remove(gone).unwrap();
            let removed = create(store);
            write(store, removed, 0, 50_000);
            if failing {
                let unwritable = store.geometry.data_offset..16 << 20;
                device.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
                store.flush_all().unwrap_err();
                store.remove(removed).unwrap();
                write(store, objects[0], 0, 5000);
                set_size(store, objects[1], 10);
                store.flush_all().unwrap_err();
                device.set_plan(FaultPlan::default());
            } else {
                store.flush(&[removed]).unwrap();
                store.remove(removed).unwrap();
            }
            store.flush_all().unwrap();
            assert_idle(store);
        }
        for object in objects {
            store.remove(object).unwrap();
        }
        store.flush_all().unwrap();
        assert_idle(store);
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
        store.settle_all().unwrap();
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
