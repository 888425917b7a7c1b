//! Changing a part of what is compressed. A compressed extent is stored as one stream, so it is
//! replaced as a whole: before a part of it is written, cut off or punched out, all of it is made
//! dirty, as it is. So of a compressed extent of the tree either no block is dirty or cut off, or all
//! of them are, even if the change is refused in the end.
//!
//! That includes the extents that flushes under way will put into the tree. They cannot be seen yet,
//! but they are made of runs of blocks that are being written, and those are all in the cache.
//!
//! A compressed extent has fewer data blocks than blocks. As far as accounts go its first blocks have
//! them, one each; the others replace nothing when they are written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use nasd_device::{FRAME_BYTES, Frame};
use nasd_types::{Compression, PartitionId};

use crate::frames::{BlockSet, FRAME_BLOCKS, View, covered, runs, set, touched};
use crate::medium::{Load, mapped_blocks};
use crate::metadata::record::{Codec, Extent};
use crate::object::{Body, Object};
use crate::space::Demand;
use crate::write::RECORDS_PER_WRITE;
use crate::{NoSpace, Store, StoreError};

/// The partitions that have compressed extents, or may get some.
#[derive(Debug, Default)]
pub(crate) struct PackedIn(RwLock<BTreeSet<PartitionId>>);

impl PackedIn {
    /// Whether the partition may have any.
    pub(crate) fn contains(&self, partition: PartitionId) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(&partition)
    }

    /// It may from now on.
    pub(crate) fn add(&self, partition: PartitionId) {
        if !self.contains(partition) {
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(partition);
        }
    }
}

/// Blocks of one frame that have to be written with a change, because it concerns some of them.
pub(crate) struct Rest {
    /// What the cache has of the frame.
    view: View,
    blocks: BlockSet,
    writing: BlockSet,
}

impl Extent {
    /// As far as accounts go, the blocks that have the data blocks.
    pub(crate) fn counted(&self) -> Extent {
        Extent { blocks: self.run().blocks, codec: Codec::Plain, ..*self }
    }
}

impl Store {
    /// By what a flush compresses in a partition.
    pub(crate) fn compression(&self, partition: PartitionId) -> Compression {
        let compression = match self.partitions.get(partition) {
            Ok(record) => record.settings.compression,
            // It is being removed.
            Err(_) => Compression::None,
        };
        if compression != Compression::None {
            self.packed_in.add(partition);
        }
        compression
    }

    /// What has to be written anew if the bytes of `range` are changed: the compressed extents that
    /// it touches and does not cover. They lie in at most two frames.
    pub(crate) fn rests(
        &self,
        object: &Object,
        body: &Body,
        range: &Range<u64>,
    ) -> Result<Vec<Rest>, StoreError> {
        if range.is_empty() || !self.packed_in.contains(object.name.partition) {
            return Ok(Vec::new());
        }
        let frame = FRAME_BYTES as u64;
        let (first, last) = (range.start / frame, (range.end - 1) / frame);
        let mut found = Vec::new();
        for number in [Some(first), Some(last).filter(|last| *last != first)].into_iter().flatten()
        {
            let base = number * frame;
            let start = (range.start.max(base) - base) as usize;
            let end = (range.end - base).min(frame) as usize;
            found.extend(self.rest(object, body, number, &(start..end))?);
        }
        Ok(found)
    }

    fn rest(
        &self,
        object: &Object,
        body: &Body,
        number: u64,
        range: &Range<usize>,
    ) -> Result<Option<Rest>, StoreError> {
        let (touched, covered) = (touched(range), covered(range));
        let (view, states) = {
            let mut frames = self.cache.frames(object);
            (frames.view(number, 0), frames.states(number))
        };
        if covered == BlockSet::MAX || touched & !states.dirty == 0 {
            return Ok(None);
        }
        let in_part = |blocks: BlockSet| blocks & touched != 0 && blocks & !covered != 0;
        let mut blocks = 0;
        if body.writing.is_packing() {
            let being_written = runs(states.writing).map(set);
            blocks = being_written.filter(|run| in_part(*run)).fold(0, |all, run| all | run);
        }
        for extent in self.packed(object, body, number)? {
            let extent = mapped_blocks(number, [&extent]);
            // One that is being replaced has been seen to.
            if in_part(extent) && extent & states.writing == 0 {
                blocks |= extent;
            }
        }
        blocks &= !states.dirty;
        Ok((blocks != 0).then_some(Rest { view, blocks, writing: states.writing }))
    }

    /// The compressed extents that the tree has in a frame, and that are not dead.
    fn packed(&self, object: &Object, body: &Body, number: u64) -> Result<Vec<Extent>, StoreError> {
        let base = number * FRAME_BLOCKS as u64;
        let end = (base + FRAME_BLOCKS as u64).min(body.live_end());
        let mut extents = self.metadata.extents(object.name, base, end)?;
        extents.retain(Extent::is_packed);
        Ok(body.living(extents))
    }

    /// Makes what has to be written with a change dirty. The change comes afterwards, with the body
    /// locked all the time. Takes a spare frame for each.
    pub(crate) fn write_rests(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        rests: Vec<Rest>,
        spare: &mut Vec<Frame>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        for rest in rests {
            let Some(frame) = spare.pop() else {
                return Err(StoreError::Busy);
            };
            if let Err(lacking) = self.write_rest(object, body, rest, frame)? {
                return Ok(Err(lacking));
            }
        }
        Ok(Ok(()))
    }

    fn write_rest(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        rest: Rest,
        frame: Frame,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        let Rest { view, blocks, writing } = rest;
        let number = view.number;
        let base = number * FRAME_BLOCKS as u64;
        let end = base + FRAME_BLOCKS as u64;
        let mut load = Load { number, blocks: blocks & !view.valid, frame };
        if load.blocks != 0 {
            let pieces = self.metadata.pieces(object.name, base, end.min(body.live_end()))?;
            let pieces = body.living_pieces(pieces);
            self.load(object.name, std::slice::from_mut(&mut load), &pieces)?;
        }
        let replaced = mapped_blocks(number, &self.replaceable(object, body, base, end)?);
        let fresh = blocks & !writing & !replaced;
        let dirty = u64::from(blocks.count_ones());
        let charge = body.charge_with(u64::from(fresh.count_ones()));
        let demand = Demand { charge_before: body.charge, charge_after: charge, dirty };
        let records = dirty + RECORDS_PER_WRITE;
        if let Err(lacking) = self.promise(object.name.partition, demand, records) {
            return Ok(Err(lacking));
        }
        body.charge = charge;
        body.fresh += u64::from(fresh.count_ones());
        body.promised_records += records;
        let stamp = self.cache.stamp();
        let new = {
            let mut frames = self.cache.frames(object);
            frames.rewrite(view, load.frame, load.blocks, (blocks, fresh), stamp)
        };
        self.cache.admit(object, new.as_slice());
        // Whatever becomes of the change, this is dirty.
        self.table.register(object, body);
        Ok(Ok(()))
    }
}
