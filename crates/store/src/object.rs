//! An object in memory: its attributes as they are now, what of that is not durable yet, and its
//! cached frames.
//!
//! Every change is made here first. The metadata tree only ever has the state of the last commit; an
//! object whose state differs from that is *dirty* and registered with the table (see `table`) until
//! a flush takes it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, ObjectId, ObjectName, SetAttributes, Timestamp};

use crate::clears::Clears;
use crate::frames::FrameMap;
use crate::medium::Piece;
use crate::metadata::record::{Appended, Extent, ObjectRecord, SMALL_BYTES_MAX};

/// An object that was created or looked up.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) name: ObjectName,
    /// Copy of the attribute, to be had without waiting for a transfer.
    access_control_version: AtomicU64,
    /// Copy of `Body::removed`.
    removed: AtomicBool,
    body: RwLock<Body>,
    /// The data block behind the one that was placed last, where to go on; 0 is none.
    placed_end: AtomicU64,
    /// Locked through `Cache::frames`.
    pub(crate) frames: Mutex<FrameMap>,
}

/// What is locked shared for as long as data is read from the medium, and alone for changes.
#[derive(Debug)]
pub(crate) struct Body {
    /// Attributes. `blocks_used` is what the last commit left.
    pub(crate) record: ObjectRecord,
    /// The object is no more.
    pub(crate) removed: bool,
    /// The tree has a record of it, or will have when it has what flushes have taken.
    pub(crate) in_tree: bool,
    /// Its place among the dirty objects, if it is one.
    pub(crate) registered: Option<u64>,
    /// Dirty blocks that replace nothing on the medium.
    pub(crate) fresh: u64,
    /// Blocks that the tree has and that are dead: cut off since the last flush took the object.
    pub(crate) clears: Clears,
    /// What flushes have taken and the tree does not have yet.
    pub(crate) writing: Writing,
    /// The contents are in the tree, or will be when it has what flushes have taken.
    pub(crate) small: bool,
    /// No block from here on is in the tree.
    pub(crate) mapped_end: u64,
    /// What it is charged in `Space`, in blocks.
    pub(crate) charge: u64,
    /// Records promised in the metadata region and not yet taken by a flush.
    pub(crate) promised_records: u64,
    /// Appends that no flush has taken.
    pub(crate) appended: Vec<Appended>,
}

/// What flushes have taken of an object and the tree does not have yet.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    /// Blocks that replace nothing on the medium, and for which there will be some.
    placed: u64,
    /// The flushes, the oldest first.
    flushes: VecDeque<Flushing>,
}

/// What a flush has taken of an object.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// Blocks that replace nothing on the medium.
    pub(crate) fresh: u64,
    /// What was cut off since the flush before.
    pub(crate) clears: Clears,
    /// Blocks may be compressed.
    pub(crate) packing: bool,
    /// The contents go into the tree, and no block is written.
    pub(crate) small: bool,
}

impl Flushing {
    fn placed(&self) -> u64 {
        if self.small { 0 } else { self.fresh }
    }
}

impl Writing {
    /// One more flush has taken the object.
    pub(crate) fn push(&mut self, flush: Flushing) {
        self.placed += flush.placed();
        self.flushes.push_back(flush);
    }

    /// The tree has what the oldest of the flushes has taken.
    pub(crate) fn pop_oldest(&mut self) {
        let oldest = self.flushes.pop_front().unwrap_or_default();
        self.placed -= oldest.placed();
    }

    /// The youngest of the flushes has failed.
    pub(crate) fn pop_youngest(&mut self) -> Flushing {
        let youngest = self.flushes.pop_back().unwrap_or_default();
        self.placed -= youngest.placed();
        youngest
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.flushes.is_empty()
    }

    /// Blocks that replace nothing on the medium, that flushes need none for, and that are dirty again if those fail.
    fn at_hand(&self) -> u64 {
        let youngest = self.flushes.iter().rev().take_while(|flush| flush.placed() == 0);
        youngest.map(|flush| flush.fresh).max().unwrap_or(0)
    }

    /// Whether any of the flushes may compress blocks.
    pub(crate) fn is_packing(&self) -> bool {
        self.flushes.iter().any(|flush| flush.packing)
    }

    /// Whether it is known only when the tree has them what the object holds then.
    pub(crate) fn frees_blocks(&self) -> bool {
        self.is_packing() || self.clears_any()
    }

    /// Whether any of the flushes drops blocks.
    pub(crate) fn clears_any(&self) -> bool {
        self.clears().any(|clears| !clears.is_empty())
    }

    fn clears(&self) -> impl Iterator<Item = &Clears> {
        self.flushes.iter().map(|flush| &flush.clears)
    }

    /// The block from which on everything is cut off.
    fn end(&self) -> u64 {
        self.clears().map(Clears::end).min().unwrap_or(u64::MAX)
    }
}

impl Object {
    /// An object that the tree has.
    pub(crate) fn loaded(name: ObjectName, record: ObjectRecord) -> Object {
        let mapped_end = match (record.blocks_used, record.family) {
            (0, ObjectId(0)) => 0,
            _ => record.logical_size.div_ceil(BLOCK_BYTES as u64),
        };
        let charge = record.charge();
        let small = record.small;
        Object::new(name, Body { mapped_end, charge, small, ..Body::absent(record) }.in_tree())
    }

    /// An object that was created just now.
    pub(crate) fn created(name: ObjectName, record: ObjectRecord, charge: u64) -> Object {
        Object::new(name, Body { charge, ..Body::absent(record) })
    }

    fn new(name: ObjectName, body: Body) -> Object {
        Object {
            name,
            access_control_version: AtomicU64::new(body.record.access_control_version),
            removed: AtomicBool::new(false),
            body: RwLock::new(body),
            placed_end: AtomicU64::new(0),
            frames: Mutex::new(FrameMap::default()),
        }
    }

    /// Locks the body shared.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Body> {
        // A panic while the body was locked leaves it as consistent as each of its statements.
        self.body.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the body shared if that is possible at once.
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, Body>> {
        self.body.try_read().ok()
    }

    /// Locks the body alone.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Body> {
        self.body.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The attribute of that name, or `None` when the object was removed.
    pub(crate) fn access_control_version(&self) -> Option<u64> {
        if self.removed.load(Ordering::Acquire) {
            return None;
        }
        Some(self.access_control_version.load(Ordering::Acquire))
    }

    /// The data block behind the one that was placed last since the object is in memory.
    pub(crate) fn placed_end(&self) -> Option<u64> {
        Some(self.placed_end.load(Ordering::Relaxed)).filter(|end| *end != 0)
    }

    /// Blocks were placed that end in front of this data block; 0 if none were. Returns what was so before.
    pub(crate) fn set_placed_end(&self, end: u64) -> u64 {
        self.placed_end.swap(end, Ordering::Relaxed)
    }

    /// What was placed up to `end` is not there: it is as it was before, unless more was placed behind it.
    pub(crate) fn unset_placed_end(&self, end: u64, before: u64) {
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.placed_end.compare_exchange(end, before, set, read);
    }

    /// Copies what can be had without the lock, after a change of `body`.
    pub(crate) fn publish(&self, body: &Body) {
        self.access_control_version.store(body.record.access_control_version, Ordering::Release);
        self.removed.store(body.removed, Ordering::Release);
    }
}

impl Body {
    fn absent(record: ObjectRecord) -> Body {
        Body {
            record,
            removed: false,
            in_tree: false,
            registered: None,
            fresh: 0,
            clears: Clears::default(),
            writing: Writing::default(),
            small: false,
            mapped_end: 0,
            charge: 0,
            promised_records: 0,
            appended: Vec::new(),
        }
    }

    fn in_tree(mut self) -> Body {
        self.in_tree = true;
        self
    }

    /// Whether the contents, as they are now, go into the tree rather than into blocks.
    pub(crate) fn goes_into_tree(&self) -> bool {
        (1..=SMALL_BYTES_MAX as u64).contains(&self.record.logical_size)
            && self.mapped_end.min(self.clears.end()) == 0
    }

    /// What the object has to be charged if `fresh` more blocks became fresh.
    pub(crate) fn charge_with(&self, fresh: u64) -> u64 {
        // The one block of contents that go into the tree counts once, however often it was written meanwhile: it is
        // the first of those that are dirty.
        let dirty = (self.fresh + fresh).max(self.writing.at_hand());
        self.record.blocks_reserved.max(self.record.blocks_used + self.writing.placed + dirty)
    }

    /// Blocks of the tree that count as the object's end here: those in front of every cut.
    pub(crate) fn live_end(&self) -> u64 {
        self.mapped_end.min(self.clears.end()).min(self.writing.end())
    }

    /// Whether the tree's block is dead.
    pub(crate) fn is_cleared(&self, block: u64) -> bool {
        self.clears.contains(block) || self.writing.clears().any(|clears| clears.contains(block))
    }

    /// The same, with checksums.
    pub(crate) fn living_pieces(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        if self.clears.is_empty() && !self.writing.clears_any() {
            return pieces;
        }
        let mut left = Vec::with_capacity(pieces.len());
        for piece in pieces {
            for extent in self.living(vec![piece.extent]) {
                let skip = (extent.physical - piece.extent.physical) as usize;
                let sums = piece.sums[skip..][..extent.run().blocks as usize].to_vec();
                left.push(Piece { extent, sums });
            }
        }
        left
    }

    /// What of extents that the tree has is not dead.
    pub(crate) fn living(&self, extents: Vec<Extent>) -> Vec<Extent> {
        let all = self.writing.clears().chain([&self.clears]);
        all.fold(extents, |left, clears| clears.subtract(left))
    }

    /// The attributes as `getattr` tells them, of an object for which so many blocks count that it shares
    /// with its family.
    pub(crate) fn attributes(&self, shared: u64) -> Attributes {
        let record = &self.record;
        // Contents that go into the tree take no blocks.
        let dirty = if self.goes_into_tree() { 0 } else { self.fresh };
        let blocks_used = record.blocks_used + dirty + self.writing.placed;
        let allocated = record.blocks_reserved.max(blocks_used);
        let blocks_used = blocks_used + shared;
        let blocks_allocated = allocated.max(blocks_used);
        Attributes { blocks_allocated, blocks_used, ..attributes_of(record) }
    }
}

/// What the record says, with what is reserved alone as what is allocated.
pub(crate) fn attributes_of(record: &ObjectRecord) -> Attributes {
    Attributes {
        access_control_version: record.access_control_version,
        nearby_object: record.nearby_object,
        copied_object: record.copied_object,
        logical_size: record.logical_size,
        blocks_allocated: record.blocks_reserved,
        blocks_used: record.blocks_used,
        block_size: BLOCK_BYTES as u32,
        create_time: record.create_time,
        data_modify_time: record.data_modify_time,
        data_version: record.data_modify_time.0,
        attribute_modify_time: record.attribute_modify_time,
        fs_data_modify_time: record.fs_data_modify_time,
        fs_attribute_modify_time: record.fs_attribute_modify_time,
        fs_specific: record.fs_specific.clone(),
    }
}

/// The attributes that a new object starts with.
pub(crate) fn initial_record(initial: &SetAttributes, now: Timestamp) -> ObjectRecord {
    ObjectRecord {
        access_control_version: initial.access_control_version.unwrap_or_default(),
        nearby_object: initial.nearby_object.unwrap_or_default(),
        copied_object: ObjectId::default(),
        logical_size: initial.logical_size.unwrap_or_default(),
        blocks_reserved: initial.blocks_allocated.unwrap_or_default(),
        blocks_used: 0,
        family: ObjectId::default(),
        small: false,
        create_time: now,
        data_modify_time: now,
        attribute_modify_time: now,
        fs_data_modify_time: initial.fs_data_modify_time.unwrap_or(now),
        fs_attribute_modify_time: initial.fs_attribute_modify_time.unwrap_or(now),
        fs_specific: initial
            .fs_specific
            .clone()
            .unwrap_or_else(|| Box::new([0; nasd_types::FS_SPECIFIC_BYTES])),
    }
}
