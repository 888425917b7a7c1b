//! Writing data into the cache, with its space promised. Nothing here touches the medium, except to
//! read the rest of a block that is written in part.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nasd_device::{FRAME_BYTES, Frame, zeros};
use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};
use nasd_types::{ObjectId, ObjectName, Timestamp};

use crate::clears::Clears;
use crate::frames::{
    BlockSet, Edges, FRAME_BLOCKS, FrameWrite, Payload, States, block_bytes, covered, touched,
};
use crate::medium::mapped_blocks;
use crate::metadata::record::{Extent, ObjectRecord, SMALL_BYTES_MAX, Share};
use crate::object::{Body, Object};
use crate::read::{FramePart, frame_parts};
use crate::space::Demand;
use crate::{IncomingFrames, NoSpace, Store, StoreError, WriteData, Written};

/// How often a write makes room and tries again.
pub(crate) const ATTEMPTS: usize = 32;

/// Records beyond one a block that a run of written blocks may take, because it cuts an extent in
/// two, or two short.
pub(crate) const RECORDS_PER_WRITE: u64 = 2;

/// Bytes to be put into the cache, cut into frames.
pub(crate) struct Payloads<'a> {
    pub(crate) offset: u64,
    length: usize,
    source: Source<'a>,
}

pub(crate) enum Source<'a> {
    Frames(Vec<Frame>),
    /// The bytes, and a spare frame for each that they reach.
    Copy(&'a [u8], Vec<Frame>),
}

/// What one frame of a write will do.
struct Plan {
    part: FramePart,
    edges: Edges,
    fresh: BlockSet,
    newly_dirty: u64,
}

impl Store {
    /// Frames to receive `length` bytes into that will be written at `offset`. May wait for memory
    /// by writing dirty data back.
    pub fn frames_for_write(
        &self,
        offset: u64,
        length: usize,
    ) -> Result<IncomingFrames, StoreError> {
        self.check_transfer("a write", length as u64)?;
        check_end(offset, length)?;
        let frames = self.allocate_frames(frame_parts(offset, length).count())?;
        Ok(IncomingFrames { offset, length, frames })
    }

    /// Why there are no such frames, as far as that can be said without waiting until others give
    /// some back; `Ok` if there are some now.
    pub fn check_frames_for_write(&self, offset: u64, length: usize) -> Result<(), StoreError> {
        self.check_transfer("a write", length as u64)?;
        check_end(offset, length)?;
        let count = frame_parts(offset, length).count();
        self.allocate_frames_within(count, Duration::ZERO).map(drop)
    }

    /// Writes `data` at `offset`: all of it or nothing. What is accepted has its space promised;
    /// it is durable after a flush.
    pub fn write(
        &self,
        name: ObjectName,
        offset: u64,
        data: WriteData<'_>,
        now: Timestamp,
    ) -> Result<Written, StoreError> {
        let length = data.len();
        self.writable()?;
        self.check_transfer("a write", length as u64)?;
        check_end(offset, length)?;
        let object = self.object(name)?;
        let mut payloads = self.payloads(offset, data)?;
        self.help_write_back()?;
        let mut lacking = NoSpace::Data;
        let mut settled = self.backlog.settled();
        let mut spare: Vec<Frame> = Vec::new();
        for _ in 0..ATTEMPTS {
            let mut body = object.write();
            let tried = self.try_write(&object, &mut body, payloads, &mut spare, now)?;
            // Whoever waits for memory or room holds no object.
            drop(body);
            payloads = match tried {
                Tried::Done(written) => return Ok(written),
                Tried::Frames(count, payloads) => {
                    spare.extend(self.allocate_frames(count)?);
                    payloads
                }
                Tried::Lacking(what, payloads) => {
                    lacking = what;
                    self.make_room(what, &mut settled)?;
                    payloads
                }
            };
        }
        Err(StoreError::NoSpace(lacking))
    }

    /// Writes, or says what that takes.
    pub(crate) fn try_write<'a>(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        payloads: Payloads<'a>,
        spare: &mut Vec<Frame>,
        now: Timestamp,
    ) -> Result<Tried<'a>, StoreError> {
        if body.removed {
            return Err(self.gone(object.name));
        }
        let length = payloads.length as u64;
        let end = payloads.offset + length;
        if body.small && end > SMALL_BYTES_MAX as u64 {
            if spare.is_empty() {
                return Ok(Tried::Frames(1, payloads));
            }
            if let Err(what) = self.outgrow(object, body, spare)? {
                return Ok(Tried::Lacking(what, payloads));
            }
        }
        let rests = self.rests(object, body, &(payloads.offset..end))?;
        if rests.len() > spare.len() {
            return Ok(Tried::Frames(rests.len() - spare.len(), payloads));
        }
        if let Err(what) = self.write_rests(object, body, rests, spare)? {
            return Ok(Tried::Lacking(what, payloads));
        }
        if let Put::Lacking(what, payloads) = self.put(object, body, payloads)? {
            return Ok(Tried::Lacking(what, payloads));
        }
        if length > 0 {
            body.record.note_write(end, now);
            self.table.register(object, body);
        }
        Ok(Tried::Done(Written {
            logical_size: body.record.logical_size,
            fs_data_modify_time: body.record.fs_data_modify_time,
        }))
    }

    /// Bytes whose offset is not known yet: with frames for any.
    pub(crate) fn payloads_for_append<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<Payloads<'a>, StoreError> {
        // It reaches as many frames as it can where its first byte is the last one of a frame.
        let count = frame_parts(FRAME_BYTES as u64 - 1, bytes.len()).count();
        let source = Source::Copy(bytes, self.allocate_frames(count)?);
        Ok(Payloads { offset: 0, length: bytes.len(), source })
    }

    fn payloads<'a>(&self, offset: u64, data: WriteData<'a>) -> Result<Payloads<'a>, StoreError> {
        let length = data.len();
        let source = match data {
            WriteData::Frames(incoming) if incoming.offset != offset => {
                return Err(StoreError::Misplaced { expected: incoming.offset, found: offset });
            }
            WriteData::Frames(incoming) => Source::Frames(incoming.frames),
            WriteData::Slice(bytes) => {
                let count = frame_parts(offset, length).count();
                Source::Copy(bytes, self.allocate_frames(count)?)
            }
        };
        Ok(Payloads { offset, length, source })
    }

    /// A writer who finds too much dirty writes some back before it adds to it.
    pub(crate) fn help_write_back(&self) -> Result<(), StoreError> {
        let limit = self.cache.dirty_limit();
        while self.cache.pinned_bytes() > limit {
            self.clean(limit / 4)?;
        }
        Ok(())
    }

    /// Puts bytes into the cache, or says what is lacking and gives them back.
    fn put<'a>(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        payloads: Payloads<'a>,
    ) -> Result<Put<'a>, StoreError> {
        Ok(match self.put_all(object, body, vec![payloads])? {
            Ok(()) => Put::Done,
            Err((lacking, mut back)) => match back.pop() {
                Some(payloads) => Put::Lacking(lacking, payloads),
                None => Put::Done,
            },
        })
    }

    /// Puts several pieces, no two of which are in one block, into the cache: all or none.
    fn put_all<'a>(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        mut pieces: Vec<Payloads<'a>>,
    ) -> Result<Result<(), (NoSpace, Vec<Payloads<'a>>)>, StoreError> {
        pieces.retain(|piece| piece.length > 0);
        if pieces.is_empty() {
            return Ok(Ok(()));
        }
        let mut plans = Vec::with_capacity(pieces.len());
        let (mut dirty, mut fresh, mut records) = (0, 0, 0);
        for piece in &pieces {
            let plan = self.plan(object, body, piece.offset, piece.length)?;
            let newly_dirty: u64 = plan.iter().map(|part| part.newly_dirty).sum();
            fresh += plan.iter().map(|part| u64::from(part.fresh.count_ones())).sum::<u64>();
            records += if newly_dirty > 0 { newly_dirty + RECORDS_PER_WRITE } else { 0 };
            dirty += newly_dirty;
            plans.push(plan);
        }
        let charge = body.charge_with(fresh);
        let demand = Demand { charge_before: body.charge, charge_after: charge, dirty };
        if let Err(lacking) = self.promise(object.name.partition, demand, records) {
            return Ok(Err((lacking, pieces)));
        }
        body.charge = charge;
        body.fresh += fresh;
        body.promised_records += records;
        let mut new_slots = Vec::new();
        {
            let mut frames = self.cache.frames(object);
            for (Payloads { offset, length, source }, plan) in pieces.into_iter().zip(plans) {
                for (plan, payload) in plan.into_iter().zip(source.into_payloads(offset, length)) {
                    let Plan { part, edges, fresh, .. } = plan;
                    let FramePart { number, range } = part;
                    let write = FrameWrite { number, range, payload, edges, fresh };
                    new_slots.extend(frames.write(write, self.cache.stamp()));
                }
            }
        }
        self.cache.admit(object, &new_slots);
        Ok(Ok(()))
    }

    /// Finds out what a write changes: which blocks become dirty, which of them replace nothing, and
    /// what else is in blocks that are written in part.
    fn plan(
        &self,
        object: &Arc<Object>,
        body: &Body,
        offset: u64,
        length: usize,
    ) -> Result<Vec<Plan>, StoreError> {
        // Dirty blocks and blocks being written stay so for as long as the body is locked; clean
        // ones may be given up at any time.
        let states: Vec<States> = {
            let frames = self.cache.frames(object);
            frame_parts(offset, length).map(|part| frames.states(part.number)).collect()
        };
        let parts = || frame_parts(offset, length).zip(&states);
        let newly_dirty = |part: &FramePart, states: &States| touched(&part.range) & !states.dirty;
        let extents = if parts().any(|(part, states)| newly_dirty(&part, states) != 0) {
            let from = offset / BLOCK_BYTES as u64;
            let to = (offset + length as u64).div_ceil(BLOCK_BYTES as u64);
            self.replaceable(object, body, from, to)?
        } else {
            Vec::new()
        };
        let mut plans = Vec::new();
        for (part, states) in parts() {
            let newly_dirty = newly_dirty(&part, states);
            let mapped = mapped_blocks(part.number, &extents);
            // What is being written as small contents has no block that could be replaced.
            let placed = if body.small { 0 } else { states.writing };
            plans.push(Plan {
                edges: self.edges(object, body, &part)?,
                fresh: newly_dirty & !placed & !mapped,
                newly_dirty: u64::from(newly_dirty.count_ones()),
                part,
            });
        }
        Ok(plans)
    }

    /// Blocks within `[from, to)` whose data blocks are free once they are overwritten, as extents.
    /// Of compressed ones all are told, and as many blocks as there are data blocks.
    pub(crate) fn replaceable(
        &self,
        object: &Object,
        body: &Body,
        from: u64,
        to: u64,
    ) -> Result<Vec<Extent>, StoreError> {
        // A block whose other holders are gone is this object's alone.
        self.unshared(object, body, from..to, 1)
    }

    /// The same of blocks that at most so many extents share; with 0, of those that were never
    /// shared, for which the object itself is charged.
    pub(crate) fn unshared(
        &self,
        object: &Object,
        body: &Body,
        blocks: Range<u64>,
        holders: u32,
    ) -> Result<Vec<Extent>, StoreError> {
        let (from, to) = (blocks.start, blocks.end.min(body.live_end()));
        let extents = self.metadata.extents(object.name, from, to)?;
        let mut extents = body.living(extents);
        extents.iter_mut().for_each(|extent| *extent = extent.counted());
        if body.record.family == ObjectId(0) {
            return Ok(extents);
        }
        let mut alone = Vec::with_capacity(extents.len());
        for extent in extents {
            let run = extent.run();
            let mut shared = Clears::default();
            let shares = self.metadata.shares(run)?;
            // What other partitions have of it changes nothing in this one.
            let of_family = |share: &Share| share.of(object.name.partition);
            let of_family =
                |share: &Share| of_family(share).filter(|own| own.family != ObjectId(0));
            let is_shared = |share: &Share| of_family(share).is_some_and(|own| own.count > holders);
            for share in shares.into_iter().filter(is_shared) {
                let (start, end) = (share.run.start.max(run.start), share.run.end().min(run.end()));
                let logical = |physical: u64| extent.logical + (physical - run.start);
                shared.add(logical(start), logical(end));
            }
            alone.extend(shared.subtract(vec![extent]));
        }
        Ok(alone)
    }

    /// The contents of blocks that are written in part. Those that are zeros are left out.
    fn edges(
        &self,
        object: &Arc<Object>,
        body: &Body,
        part: &FramePart,
    ) -> Result<Edges, StoreError> {
        let mut edges = Edges::new();
        let partial = touched(&part.range) & !covered(&part.range);
        for within in crate::frames::runs(partial).flatten() {
            let block = part.number * FRAME_BLOCKS as u64 + within as u64;
            let start = block * BLOCK_BYTES as u64;
            // What lies behind the end of the object is zeros.
            let keeps_head = part.range.start > within * BLOCK_BYTES;
            let write_end = part.number * FRAME_BYTES as u64 + part.range.end as u64;
            let old_end = body.record.logical_size;
            if start >= old_end || (!keeps_head && write_end >= old_end) {
                continue;
            }
            if let Some(contents) = self.block(object, body, block)? {
                edges.insert(within, contents);
            }
        }
        Ok(edges)
    }

    /// The contents of one block, from wherever it is; `None` is a hole.
    pub(crate) fn block(
        &self,
        object: &Arc<Object>,
        body: &Body,
        block: u64,
    ) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, StoreError> {
        let number = block / FRAME_BLOCKS as u64;
        let within = (block % FRAME_BLOCKS as u64) as usize;
        let bit = crate::frames::set(within..within + 1);
        let view = self.cache.frames(object).view(number, 0);
        if let Some(frame) = view.frame.filter(|_| view.valid & bit != 0) {
            let mut contents = Box::new([0; BLOCK_BYTES]);
            contents.copy_from_slice(&frame[block_bytes(within)]);
            return Ok(Some(contents));
        }
        if body.is_cleared(block) {
            return Ok(None);
        }
        if body.small {
            return if block == 0 { self.load_small(object.name) } else { Ok(None) };
        }
        if block >= body.live_end() {
            return Ok(None);
        }
        self.load_block(object.name, block)
    }

    fn load_small(&self, name: ObjectName) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, StoreError> {
        Ok(self.metadata.small(name)?.map(|contents| {
            let mut block = Box::new([0; BLOCK_BYTES]);
            block[..contents.len()].copy_from_slice(&contents);
            block
        }))
    }

    /// Contents that are in the tree, and grow out of it, are written anew.
    pub(crate) fn outgrow(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        spare: &mut Vec<Frame>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        let bit = crate::frames::set(0..1);
        let is_dirty = self.cache.frames(object).states(0).dirty & bit != 0;
        if !body.small || is_dirty {
            return Ok(Ok(()));
        }
        let Some(contents) = self.block(object, body, 0)? else {
            return Ok(Ok(()));
        };
        self.overwrite(object, body, 0, &contents[..], std::mem::take(spare))
    }

    /// Puts zeros behind `size` in the last block of an object that is cut off there.
    pub(crate) fn clear_tail(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        size: u64,
        spare: Vec<Frame>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        let within = (size % BLOCK_BYTES as u64) as usize;
        if within == 0 || self.block(object, body, size / BLOCK_BYTES as u64)?.is_none() {
            return Ok(Ok(()));
        }
        self.overwrite(object, body, size, &zeros()[..BLOCK_BYTES - within], spare)
    }

    /// Writes bytes as part of another change, with a spare frame for each that they reach.
    pub(crate) fn overwrite(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        offset: u64,
        bytes: &[u8],
        spare: Vec<Frame>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        self.overwrite_all(object, body, vec![(offset, bytes, spare)])
    }

    /// As `overwrite`, with pieces in blocks of their own: all or none.
    pub(crate) fn overwrite_all(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        pieces: Vec<(u64, &[u8], Vec<Frame>)>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        let pieces = pieces.into_iter().map(|(offset, bytes, spare)| {
            let source = Source::Copy(bytes, spare);
            Payloads { offset, length: bytes.len(), source }
        });
        match self.put_all(object, body, pieces.collect())? {
            Ok(()) => {
                // Whatever becomes of the other change, this is dirty.
                self.table.register(object, body);
                Ok(Ok(()))
            }
            Err((lacking, _)) => Ok(Err(lacking)),
        }
    }
}

/// What became of trying to write.
pub(crate) enum Tried<'a> {
    Done(Written),
    /// So many spare frames more are needed.
    Frames(usize, Payloads<'a>),
    Lacking(NoSpace, Payloads<'a>),
}

enum Put<'a> {
    Done,
    Lacking(NoSpace, Payloads<'a>),
}

impl<'a> Source<'a> {
    /// One payload for each frame, in order.
    fn into_payloads(self, offset: u64, length: usize) -> Vec<Payload<'a>> {
        match self {
            Source::Frames(frames) => frames.into_iter().map(Payload::Frame).collect(),
            Source::Copy(bytes, spare) => {
                let mut rest = bytes;
                crate::data::ranges(offset, length)
                    .zip(spare)
                    .map(|(range, frame)| {
                        let (now, later) = rest.split_at(range.len());
                        rest = later;
                        Payload::Copy(now, frame)
                    })
                    .collect()
            }
        }
    }
}

impl ObjectRecord {
    /// Bytes up to `end` were written.
    pub(crate) fn note_write(&mut self, end: u64, now: Timestamp) {
        self.logical_size = self.logical_size.max(end);
        self.note_change(now);
    }

    /// Data have changed. It is another time for each change, as it is what tells versions of the data apart: parts of one request,
    /// and whatever the clock does not tell apart, are changed one after the other.
    pub(crate) fn note_change(&mut self, now: Timestamp) {
        self.data_modify_time = now.max(self.data_modify_time.plus_ns(1));
        self.fs_data_modify_time = now;
    }
}

pub(crate) fn check_end(offset: u64, length: usize) -> Result<u64, StoreError> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= MAX_OBJECT_BYTES => Ok(end),
        end => {
            let bytes = end.unwrap_or(u64::MAX);
            Err(StoreError::TooLarge { what: "an object", bytes, limit: MAX_OBJECT_BYTES })
        }
    }
}
