//! Bringing pieces of objects into the cache while the caller does something else.
//!
//! Of pieces that are wanted before they are waited for, each frame is read once, and each piece has
//! come as soon as its own frames have. No lock is held meanwhile: what changes on the
//! medium under a read makes that read useless, and it is dropped (`FrameMap::epoch`).
//!
//! It only ever helps: whatever stands in the way (memory, a lock, a medium error, compression) is
//! left for the read that comes after it, which waits, or tells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nasd_device::{FrameRead, ReadEnd, ReadQueue};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, ObjectName};
use slab::Slab;

use crate::cache::CachePressure;
use crate::frames::{BlockSet, FRAME_BLOCKS, View, touched};
use crate::log::InlinedBlock;
use crate::medium::{Load, Part, Piece, mapped_blocks, parts, read_parts};
use crate::object::Object;
use crate::read::frame_parts;
use crate::{Located, Store};

/// A piece that somebody waits for.
#[derive(Debug)]
struct Wanted {
    tag: usize,
    /// Frames that it still lacks.
    frames: usize,
}

/// The place of a wanted piece, and its range.
type Asked = (usize, ByteRange);

/// What is wanted of the frames of an object, and by which of the wanted pieces.
type ByFrame = BTreeMap<u64, (BlockSet, Vec<usize>)>;

/// A frame that is being read.
#[derive(Debug)]
struct Coming {
    object: Arc<Object>,
    /// What the cache had of it.
    view: View,
    /// How often the object's blocks had changed on the medium by then.
    epoch: u64,
    blocks: BlockSet,
    pieces: Vec<Piece>,
    inlined: BTreeMap<u64, InlinedBlock>,
    /// Places of the wanted pieces that lack it.
    waiters: Vec<usize>,
}

impl Coming {
    /// Where the blocks lie.
    fn parts(&self) -> Vec<Part<'_>> {
        parts(self.view.number * FRAME_BLOCKS as u64, self.blocks, &self.pieces)
    }
}

/// See the module.
pub struct Prefetch<'s> {
    store: &'s Store,
    queue: Box<dyn ReadQueue + 's>,
    /// What was asked for and not looked for yet.
    asked: Vec<(usize, Arc<Object>, ByteRange)>,
    wanted: Slab<Wanted>,
    coming: Slab<Coming>,
    /// Pieces for which nothing more can be done.
    come: Vec<usize>,
    /// Frames that have come from the medium.
    frames_read: u64,
    /// Whether somebody waits for what is wanted, and not only will.
    is_awaited: bool,
}

impl Store {
    /// For pieces that are waited for. Nothing is wanted yet.
    pub fn prefetch(&self) -> Prefetch<'_> {
        self.prefetch_for(true)
    }

    /// For pieces that somebody has said he will read.
    pub fn prefetch_hinted(&self) -> Prefetch<'_> {
        self.prefetch_for(false)
    }

    /// A frame of an object is not given up, if it is in the cache, until that is taken back: it will be read.
    pub fn set_hinted(&self, object: &Located, frame: u64, hinted: bool) {
        self.cache.frames(&object.0).set_hinted(frame, hinted);
    }

    /// What a frame of the cache is worth to those who use it.
    pub fn cache_pressure(&self) -> CachePressure {
        self.cache.pressure()
    }

    fn prefetch_for(&self, is_awaited: bool) -> Prefetch<'_> {
        Prefetch {
            is_awaited,
            store: self,
            queue: self.device.read_queue(),
            asked: Vec::new(),
            wanted: Slab::new(),
            coming: Slab::new(),
            come: Vec::new(),
            frames_read: 0,
        }
    }

    /// Whether it makes sense to [`prefetch`](Self::prefetch) pieces of an object: the device reads
    /// while the caller does something else, the object itself need not be read first, and what is
    /// written to it is not compressed.
    pub fn can_prefetch(&self, name: ObjectName) -> bool {
        self.device.has_deep_queue()
            && !self.compresses(name.partition)
            && self.table.get(name).is_ok_and(|object| {
                object.try_read().is_some_and(|body| !body.small && !body.removed)
            })
    }
}

impl Prefetch<'_> {
    /// Wants a range of an object, known by `tag` from here on. Nothing is waited for.
    pub fn want(&mut self, tag: usize, object: &Located, range: ByteRange) {
        self.asked.push((tag, object.0.clone(), range));
    }

    /// Frames that have been read from the medium since this was made. What was there already, and what can't be read, is
    /// none.
    pub fn frames_read(&self) -> u64 {
        self.frames_read
    }

    /// What has come, by its tags, in the cache if that was possible; waits until `least` have, or
    /// all. Nothing is told about what was found: `read` tells.
    pub fn come(&mut self, least: usize) -> Vec<usize> {
        self.begin();
        loop {
            let lacking = least.saturating_sub(self.come.len());
            if !self.coming.is_empty() {
                for end in self.queue.ended(lacking.min(1)) {
                    self.put(end);
                }
            }
            if self.come.len() >= least || self.coming.is_empty() {
                return std::mem::take(&mut self.come);
            }
        }
    }

    /// Begins to read what was asked for.
    fn begin(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let mut by_object: BTreeMap<ObjectName, (Arc<Object>, Vec<Asked>)> = BTreeMap::new();
        for (tag, object, range) in self.asked.drain(..) {
            let place = self.wanted.insert(Wanted { tag, frames: 0 });
            let of_object = by_object.entry(object.name).or_insert_with(|| (object, Vec::new()));
            of_object.1.push((place, range));
        }
        for (object, ranges) in by_object.into_values() {
            for coming in self.store.coming(&object, &ranges) {
                self.begin_frame(coming);
            }
            for (place, _) in ranges {
                // One that lacks nothing, or can't be helped.
                self.note_frames(place, 0);
            }
        }
    }

    fn begin_frame(&mut self, mut coming: Coming) {
        let Some(frame) = self.store.cache.try_allocate(1).and_then(|mut frames| frames.pop())
        else {
            return;
        };
        let placed = coming.parts();
        let parts = read_parts(&self.store.geometry, &placed);
        // Before the medium is read: a block that is brought home afterwards is as good from here.
        let inlined = self.store.inlined_of(&placed);
        coming.inlined = inlined;
        for &place in &coming.waiters {
            if let Some(wanted) = self.wanted.get_mut(place) {
                wanted.frames += 1;
            }
        }
        let tag = self.coming.insert(coming);
        self.queue.begin(FrameRead { tag, frame, parts });
    }

    /// Puts a frame that has come into the cache, where it does not count as used before it is read.
    fn put(&mut self, end: ReadEnd) {
        let Some(coming) = self.coming.try_remove(end.tag) else {
            return;
        };
        for &place in &coming.waiters {
            self.note_frames(place, 1);
        }
        if end.outcome.is_err() {
            return;
        }
        self.frames_read += 1;
        let number = coming.view.number;
        let mut load = Load { number, blocks: coming.blocks, frame: end.frame };
        if load.complete(&coming.parts(), &coming.inlined).is_some() {
            // Whoever reads it tells.
            return;
        }
        let Coming { object, view, epoch, blocks, .. } = coming;
        let stamp = self.store.cache.stamp();
        let mut frames = self.store.cache.frames(&object);
        if frames.epoch() != epoch {
            return;
        }
        let (_, new) = frames.fill_more(view, load.frame, (blocks, 0), stamp);
        drop(frames);
        let bytes = u64::from(blocks.count_ones()) * BLOCK_BYTES as u64;
        self.store.tally.cache_miss_bytes.fetch_add(bytes, Ordering::Relaxed);
        match self.is_awaited {
            true => self.store.cache.admit(&object, new.as_slice()),
            false => drop(self.store.cache.admit_quietly(&object, new.as_slice())),
        }
    }

    /// So many of a piece's frames have come, or will not.
    fn note_frames(&mut self, place: usize, frames: usize) {
        let Some(wanted) = self.wanted.get_mut(place) else {
            return;
        };
        wanted.frames -= frames;
        if wanted.frames == 0
            && let Some(wanted) = self.wanted.try_remove(place)
        {
            self.come.push(wanted.tag);
        }
    }
}

impl Store {
    /// What is to be read of an object so that the cache has the ranges.
    fn coming(&self, object: &Arc<Object>, ranges: &[Asked]) -> Vec<Coming> {
        // Locked if that is possible at once, and not for as long as anything is read.
        let Some(body) = object.try_read().filter(|body| !body.removed && !body.small) else {
            return Vec::new();
        };
        let (epoch, lacking) = self.lacking(object, body.record.logical_size, ranges);
        let coming = lacking.into_iter().filter_map(|(number, (blocks, waiters))| {
            let base = number * FRAME_BLOCKS as u64;
            let from = base + u64::from(blocks.trailing_zeros());
            let to = base + FRAME_BLOCKS as u64 - u64::from(blocks.leading_zeros());
            let end = to.min(body.live_end());
            let pieces = body.living_pieces(self.metadata.pieces(object.name, from, end).ok()?);
            let mapped = mapped_blocks(number, pieces.iter().map(|piece| &piece.extent)) & blocks;
            if mapped == 0 || pieces.iter().any(|piece| piece.extent.is_packed()) {
                return None;
            }
            let view = self.cache.frames(object).view(number, 0);
            let (object, inlined) = (object.clone(), BTreeMap::new());
            Some(Coming { object, view, epoch, blocks: mapped, pieces, inlined, waiters })
        });
        coming.collect()
    }

    /// The blocks of the ranges that the cache lacks, and how often those on the medium had changed
    /// then.
    fn lacking(&self, object: &Object, size: u64, ranges: &[Asked]) -> (u64, ByFrame) {
        let limit = self.transfer_limit() as u64;
        let mut lacking = ByFrame::new();
        let frames = self.cache.frames(object);
        for (place, range) in ranges {
            let range = range.intersection(&ByteRange::new(0, size));
            if range.length > limit {
                continue;
            }
            for part in frame_parts(range.offset, range.length as usize) {
                let blocks = touched(&part.range) & !frames.states(part.number).valid;
                if blocks != 0 {
                    let of_frame = lacking.entry(part.number).or_default();
                    of_frame.0 |= blocks;
                    of_frame.1.push(*place);
                }
            }
        }
        (frames.epoch(), lacking)
    }
}
