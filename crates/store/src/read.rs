//! Reading data: from the cache where it is there, from the medium into the cache otherwise, or past it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nasd_device::{FRAME_BYTES, Frame};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, ObjectName};

use crate::cache::FramesGuard;
use crate::frames::{BlockSet, FRAME_BLOCKS, FrameMap, View, set, touched};
use crate::medium::{Load, Piece, mapped_blocks};
use crate::metadata::STRETCH_BLOCKS;
use crate::object::{Body, Object};
use crate::{ReadData, Segment, Store, StoreError};

/// How far pieces are apart that are looked for together, at most.
const GROUP_BYTES: u64 = 4 << 20;

/// One frame's part of a range of bytes.
#[derive(Clone, Debug)]
pub(crate) struct FramePart {
    pub(crate) number: u64,
    /// The bytes of the frame.
    pub(crate) range: Range<usize>,
}

/// Cuts a range of an object into frames.
pub(crate) fn frame_parts(offset: u64, length: usize) -> impl Iterator<Item = FramePart> {
    let first = offset / FRAME_BYTES as u64;
    (first..)
        .zip(crate::data::ranges(offset, length))
        .map(|(number, range)| FramePart { number, range })
}

/// What becomes of what was read from the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// It is in the cache from then on.
    Cached,
    /// It is only told.
    Past,
}

/// An object that was found, so that it need not be looked for again. It may be removed at any time.
#[derive(Clone)]
pub struct Located(pub(crate) Arc<Object>);

impl Located {
    /// Which object it is.
    pub fn name(&self) -> ObjectName {
        self.0.name
    }

    /// The attribute that the authority check needs: `None` when the object was removed. Takes no lock
    /// that a transfer holds.
    pub fn access_control_version(&self) -> Option<u64> {
        self.0.access_control_version()
    }

    /// Another number when its data or its length have changed; `None` when it was removed. Waits for a write of it that is being
    /// done.
    pub fn data_version(&self) -> Option<(u64, u64)> {
        let body = self.0.read();
        (!body.removed).then(|| version_of(&body))
    }
}

impl std::fmt::Debug for Located {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Located({})", self.0.name)
    }
}

fn version_of(body: &Body) -> (u64, u64) {
    (body.record.data_modify_time.0, body.record.logical_size)
}

impl Store {
    /// Reads past the cache: what is there is used, and what is read otherwise takes no room there from others: only a frame that is
    /// there in part gets what it lacks. With the version of the data that were read ([`Located::data_version`]).
    pub fn read_past(
        &self,
        found: &Located,
        range: ByteRange,
    ) -> Result<(ReadData, (u64, u64)), StoreError> {
        self.read_object(&found.0, &[range], Keep::Past)
    }

    /// Has it in memory where the blocks of `range` are, and their checksums, as they will be read soon.
    pub fn find_blocks(&self, found: &Located, range: ByteRange) {
        let Located(object) = found;
        let to = range.end().div_ceil(BLOCK_BYTES as u64);
        let mut from = range.offset / BLOCK_BYTES as u64;
        while from < to {
            // As many as are kept of what is looked up at once; and whoever writes waits no longer.
            let next = (from / STRETCH_BLOCKS + 2) * STRETCH_BLOCKS;
            let body = object.read();
            if body.removed {
                return;
            }
            // Whoever reads them is told of what is wrong.
            if let Err(error) = self.source(object, &body, from, next.min(to)) {
                tracing::debug!(%error, object = %object.name, "its blocks are not found");
                return;
            }
            from = next;
        }
    }

    /// Reads what `range` has in common with the object.
    pub fn read(&self, name: ObjectName, range: ByteRange) -> Result<ReadData, StoreError> {
        Ok(self.read_object(&self.object(name)?, &[range], Keep::Cached)?.0)
    }

    /// The same of an object that was found before.
    pub fn read_located(&self, found: &Located, range: ByteRange) -> Result<ReadData, StoreError> {
        Ok(self.read_object(&found.0, &[range], Keep::Cached)?.0)
    }

    /// Reads several pieces, one after the other, up to and with the first one that runs into the end of the
    /// object.
    pub fn read_pieces(
        &self,
        name: ObjectName,
        pieces: &[ByteRange],
    ) -> Result<ReadData, StoreError> {
        Ok(self.read_object(&self.object(name)?, pieces, Keep::Cached)?.0)
    }

    /// The same of an object that was found before.
    pub fn read_pieces_located(
        &self,
        found: &Located,
        pieces: &[ByteRange],
    ) -> Result<ReadData, StoreError> {
        Ok(self.read_object(&found.0, pieces, Keep::Cached)?.0)
    }

    /// The same if that needs neither the device nor a lock that somebody holds, as far as can be told
    /// quickly; `None` if it may.
    pub fn read_cached(
        &self,
        found: &Located,
        range: ByteRange,
    ) -> Option<Result<ReadData, StoreError>> {
        let Located(object) = found;
        let body = object.try_read()?;
        let range = match self.readable(object, &body, range) {
            Ok(range) => range,
            Err(error) => return Some(Err(error)),
        };
        let segments = match self.cached_segment(object, &range) {
            Some(segment) => vec![segment],
            None => {
                let frames = self.cache.frames(object);
                if !is_in_memory(&body, &frames, &range) {
                    return None;
                }
                segments(&views(frames, &frames_of(&[range])), &range)
            }
        };
        Some(Ok(self.read_data(&body, range.length, segments)))
    }

    fn read_object(
        &self,
        object: &Arc<Object>,
        pieces: &[ByteRange],
        keep: Keep,
    ) -> Result<(ReadData, (u64, u64)), StoreError> {
        let mut spare: Vec<Frame> = Vec::new();
        let mut given = 0;
        loop {
            let body = object.read();
            let pieces = self.readable_pieces(object, &body, pieces)?;
            let length = pieces.iter().map(|piece| piece.length).sum();
            if let [range] = &pieces[..]
                && let Some(segment) = self.cached_segment(object, range)
            {
                return Ok((self.read_data(&body, length, vec![segment]), version_of(&body)));
            }
            match self.read_groups(object, &body, &pieces, (&mut spare, keep))? {
                Some(segments) => {
                    return Ok((self.read_data(&body, length, segments), version_of(&body)));
                }
                None => drop(body),
            }
            // Who waits for memory holds none: readers that wait for each other would wait for good.
            let most: usize = groups(&pieces).map(|group| frames_of(group).len()).sum();
            let most = most.min(self.cache.most_at_once());
            if given == most {
                // Very many pieces far apart, for a small cache.
                return Err(StoreError::Busy);
            }
            given = most;
            spare.clear();
            spare = self.allocate_frames(most)?;
        }
    }

    /// What of the pieces there is to be read.
    fn readable_pieces(
        &self,
        object: &Object,
        body: &Body,
        pieces: &[ByteRange],
    ) -> Result<Vec<ByteRange>, StoreError> {
        let mut readable = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let range = self.readable(object, body, *piece)?;
            readable.push(range);
            if range.length < piece.length {
                break;
            }
        }
        Ok(readable)
    }

    /// The bytes of all pieces; `None` if there are not enough spare frames to load what is missing.
    fn read_groups(
        &self,
        object: &Arc<Object>,
        body: &Body,
        pieces: &[ByteRange],
        (spare, keep): (&mut Vec<Frame>, Keep),
    ) -> Result<Option<Vec<Segment>>, StoreError> {
        let mut found = Vec::new();
        for group in groups(pieces) {
            let wanted = frames_of(group);
            let mut views = views(self.cache.frames(object), &wanted);
            if !self.fill(object, body, &wanted, &mut views, (&mut *spare, keep))? {
                return Ok(None);
            }
            group.iter().for_each(|piece| found.extend(segments(&views, piece)));
        }
        Ok(Some(found))
    }

    /// What of a range there is to be read.
    fn readable(
        &self,
        object: &Object,
        body: &Body,
        range: ByteRange,
    ) -> Result<ByteRange, StoreError> {
        if body.removed {
            return Err(self.gone(object.name));
        }
        let range = range.intersection(&ByteRange::new(0, body.record.logical_size));
        self.check_transfer("a read", range.length)?;
        Ok(range)
    }

    /// What was read, which is counted.
    fn read_data(&self, body: &Body, length: u64, segments: Vec<Segment>) -> ReadData {
        self.tally.read_bytes.fetch_add(length, Ordering::Relaxed);
        ReadData {
            segments,
            logical_size: body.record.logical_size,
            fs_data_modify_time: body.record.fs_data_modify_time,
        }
    }

    /// A range that lies within one frame, if all of it is in the cache: what most reads are.
    fn cached_segment(&self, object: &Object, range: &ByteRange) -> Option<Segment> {
        let (number, start) =
            (range.offset / FRAME_BYTES as u64, (range.offset % FRAME_BYTES as u64) as usize);
        let length = range.length as usize;
        if length == 0 || length > FRAME_BYTES - start {
            return None;
        }
        let wanted = touched(&(start..start + length));
        let view = self.cache.frames(object).view(number, wanted);
        let frame = view.frame.filter(|_| view.valid & wanted == wanted)?;
        Some(Segment::of_frame(frame, start..start + length))
    }

    /// Whether `read` would answer without touching the device, as far as can be told quickly.
    pub fn is_cached(&self, name: ObjectName, range: ByteRange) -> bool {
        let Ok(object) = self.table.get(name) else {
            return false;
        };
        let Some(body) = object.try_read() else {
            return false;
        };
        let range = range.intersection(&ByteRange::new(0, body.record.logical_size));
        if range.length > self.transfer_limit() as u64 {
            return false;
        }
        is_in_memory(&body, &self.cache.frames(&object), &range)
    }

    /// Where those of the blocks `[from, to)` are that the tree has.
    fn source(
        &self,
        object: &Object,
        body: &Body,
        from: u64,
        to: u64,
    ) -> Result<Source, StoreError> {
        if body.small {
            let wanted = from == 0 && !body.is_cleared(0);
            let contents = if wanted { self.metadata.small(object.name)? } else { None };
            return Ok(match contents {
                Some(contents) => Source::Small(contents),
                None => Source::Pieces(Vec::new()),
            });
        }
        let pieces = self.metadata.pieces(object.name, from, to.min(body.live_end()))?;
        Ok(Source::Pieces(body.living_pieces(pieces)))
    }

    fn count_misses(&self, missed: impl Iterator<Item = BlockSet>) {
        let blocks: u32 = missed.map(BlockSet::count_ones).sum();
        let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
        self.tally.cache_miss_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Loads what the views lack of these blocks of their frames, and the medium has: then every block of them
    /// that is not valid is a hole. Needs a spare frame for each frame that it loads blocks of; tells whether there
    /// were enough.
    fn fill(
        &self,
        object: &Arc<Object>,
        body: &Body,
        wanted: &[(u64, BlockSet)],
        views: &mut [View],
        (spare, keep): (&mut Vec<Frame>, Keep),
    ) -> Result<bool, StoreError> {
        let missing: Vec<BlockSet> =
            wanted.iter().zip(&*views).map(|((_, blocks), view)| blocks & !view.valid).collect();
        let Some((from, to)) = bounds(views, &missing) else {
            return Ok(true);
        };
        let source = self.source(object, body, from, to)?;
        let wanted: Vec<(usize, BlockSet)> = views
            .iter()
            .zip(missing)
            .map(|(view, missing)| missing & source.mapped(view.number))
            .enumerate()
            .filter(|(_, blocks)| *blocks != 0)
            .collect();
        if spare.len() < wanted.len() {
            return Ok(false);
        }
        let mut loads: Vec<Load> = wanted
            .iter()
            .zip(spare.drain(..wanted.len()))
            .map(|(&(index, blocks), frame)| {
                let View { number, valid, .. } = views[index];
                let blocks = blocks | (source.packed_with(number, blocks) & !valid);
                Load { number, blocks, frame }
            })
            .collect();
        match &source {
            Source::Pieces(pieces) => self.load(object.name, &mut loads, pieces)?,
            Source::Small(contents) => loads.iter_mut().for_each(|load| {
                load.frame[..BLOCK_BYTES].fill(0);
                load.frame[..contents.len()].copy_from_slice(contents);
            }),
        }
        self.count_misses(wanted.iter().map(|(_, blocks)| *blocks));
        let mut new_slots = Vec::new();
        {
            let mut frames = self.cache.frames(object);
            for ((index, used), load) in wanted.into_iter().zip(loads) {
                let stamp = self.cache.stamp();
                // Taken out of the list, so that it does not count as somebody who shares the frame.
                let have = std::mem::take(&mut views[index]);
                if keep == Keep::Past && have.frame.is_none() {
                    views[index] = View::past(have.number, load.frame, load.blocks);
                    continue;
                }
                let (view, new) = frames.fill_more(have, load.frame, (load.blocks, used), stamp);
                views[index] = view;
                new_slots.extend(new);
            }
        }
        self.cache.admit(object, &new_slots);
        Ok(true)
    }
}

/// Whether every block of a range of an object is in its frames, or in none as there is nothing there.
fn is_in_memory(body: &Body, frames: &FrameMap, range: &ByteRange) -> bool {
    let mapped = body.small || range.offset < body.live_end() * BLOCK_BYTES as u64;
    frame_parts(range.offset, range.length as usize).all(|part| {
        let wanted = touched(&part.range);
        !mapped || frames.states(part.number).valid & wanted == wanted
    })
}

fn views(mut frames: FramesGuard<'_>, wanted: &[(u64, BlockSet)]) -> Vec<View> {
    wanted.iter().map(|(number, blocks)| frames.view(*number, *blocks)).collect()
}

/// Pieces that lie near each other, and are looked for together: those of one frame need that only once.
fn groups(pieces: &[ByteRange]) -> impl Iterator<Item = &[ByteRange]> {
    let mut rest = pieces;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let (mut start, mut end) = (first.offset, first.end());
        let is_near = |piece: &&ByteRange| {
            start = start.min(piece.offset);
            end = end.max(piece.end());
            end - start <= GROUP_BYTES
        };
        let count = 1 + rest[1..].iter().take_while(is_near).count();
        let (group, others) = rest.split_at(count);
        rest = others;
        Some(group)
    })
}

/// The frames that some pieces touch, in order, and which blocks of each.
fn frames_of(pieces: &[ByteRange]) -> Vec<(u64, BlockSet)> {
    let parts = pieces.iter().flat_map(|piece| frame_parts(piece.offset, piece.length as usize));
    let mut frames: Vec<_> = parts.map(|part| (part.number, touched(&part.range))).collect();
    frames.sort_unstable_by_key(|(number, _)| *number);
    frames.dedup_by(|(number, blocks), (kept, all)| {
        let is_same = number == kept;
        if is_same {
            *all |= *blocks;
        }
        is_same
    });
    frames
}

/// Where blocks are that the cache does not have.
enum Source {
    /// On the medium.
    Pieces(Vec<Piece>),
    /// In the tree, all of them: the first block.
    Small(Vec<u8>),
}

impl Source {
    /// The blocks of a frame that are there.
    fn mapped(&self, number: u64) -> BlockSet {
        match self {
            Source::Pieces(pieces) => {
                mapped_blocks(number, pieces.iter().map(|piece| &piece.extent))
            }
            Source::Small(_) => BlockSet::from(number == 0),
        }
    }

    /// All blocks of a frame that are compressed together with one of `wanted`. Once they are
    /// unpacked they are as good as read.
    fn packed_with(&self, number: u64, wanted: BlockSet) -> BlockSet {
        let Source::Pieces(pieces) = self else {
            return 0;
        };
        let packed = pieces.iter().map(|piece| &piece.extent).filter(|extent| extent.is_packed());
        packed
            .map(|extent| mapped_blocks(number, [extent]))
            .filter(|extent| extent & wanted != 0)
            .fold(0, |all, extent| all | extent)
    }
}

/// The blocks of the object from the first to behind the last that is missing.
fn bounds(views: &[View], missing: &[BlockSet]) -> Option<(u64, u64)> {
    let mut blocks = views.iter().zip(missing).filter(|(_, missing)| **missing != 0);
    let (first, lowest) = blocks.next()?;
    let (last, highest) = blocks.next_back().unwrap_or((first, lowest));
    let from = first.number * FRAME_BLOCKS as u64 + u64::from(lowest.trailing_zeros());
    let to = (last.number + 1) * FRAME_BLOCKS as u64 - u64::from(highest.leading_zeros());
    Some((from, to))
}

/// The bytes of a range out of the views of its frames, which are in order; what is not valid is zeros.
fn segments(views: &[View], range: &ByteRange) -> Vec<Segment> {
    let mut found = Vec::new();
    let first = range.offset / FRAME_BYTES as u64;
    let at = views.partition_point(|view| view.number < first);
    for (part, view) in frame_parts(range.offset, range.length as usize).zip(&views[at..]) {
        let mut start = part.range.start;
        while start < part.range.end {
            let block = start / BLOCK_BYTES;
            let valid = view.valid & set(block..block + 1) != 0;
            // To the end of the run of blocks that are valid, or are not.
            let same = if valid { view.valid } else { !view.valid };
            let blocks = (u32::from(same) >> block).trailing_ones() as usize;
            let end = part.range.end.min((block + blocks) * BLOCK_BYTES);
            found.push(match &view.frame {
                Some(frame) if valid => Segment::of_frame(frame.clone(), start..end),
                _ => Segment::of_zeros(end - start),
            });
            start = end;
        }
    }
    found
}
