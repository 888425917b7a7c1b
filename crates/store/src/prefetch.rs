//! Bringing several pieces of several objects into the cache by one batch of transfers, so that the
//! device is asked for all of them at once.
//!
//! It only ever helps: whatever stands in the way (memory, a lock, a medium error) is left for the
//! read that comes after it, which waits, or tells.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLockReadGuard};

use nasd_device::Frame;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, ObjectName};

use crate::frames::{BlockSet, FRAME_BLOCKS, View, touched};
use crate::medium::{Load, Piece, mapped_blocks};
use crate::object::{Body, Object};
use crate::read::frame_parts;
use crate::{Store, StoreError};

/// The blocks that are wanted of the frames of an object.
type Wanted = BTreeMap<u64, BlockSet>;

/// A frame that is to be loaded.
struct Missing {
    /// Which of the objects.
    object: usize,
    /// What the cache has of it.
    view: View,
    blocks: BlockSet,
    pieces: Vec<Piece>,
}

impl Store {
    /// Brings what is wanted into the cache, as far as that is possible without waiting for anything
    /// but the medium. Nothing is told about what was found: `read` tells.
    pub fn prefetch(&self, wanted: &[(ObjectName, ByteRange)]) {
        let mut by_object: BTreeMap<ObjectName, Vec<ByteRange>> = BTreeMap::new();
        for (name, range) in wanted {
            by_object.entry(*name).or_default().push(*range);
        }
        let objects: Vec<(Arc<Object>, Vec<ByteRange>)> = by_object
            .into_iter()
            .filter_map(|(name, ranges)| Some((self.object(name).ok()?, ranges)))
            .collect();
        // Locked if that is possible at once: waiting for one with others locked could be for ever.
        let bodies: Vec<Option<RwLockReadGuard<'_, Body>>> = objects
            .iter()
            .map(|(object, _)| object.try_read().filter(|body| !body.removed && !body.small))
            .collect();
        let mut missing = Vec::new();
        for (index, ((object, ranges), body)) in objects.iter().zip(&bodies).enumerate() {
            let Some(body) = body else {
                continue;
            };
            let lacking = self.lacking(object, body, ranges).into_iter();
            missing.extend(lacking.filter_map(|(number, blocks)| {
                let found = self.on_medium(object, body, number, blocks).ok()??;
                let view = self.cache.frames(object).view(number, 0);
                let (pieces, blocks) = found;
                Some(Missing { object: index, view, blocks, pieces })
            }));
        }
        let Some(spare) = self.cache.try_allocate(missing.len()) else {
            return;
        };
        let load = |(frame, missing): (Frame, &Missing)| {
            let &Missing { blocks, view: View { number, .. }, .. } = missing;
            Load { number, blocks, frame }
        };
        let mut loads: Vec<Load> = spare.into_iter().zip(&missing).map(load).collect();
        let pieces: Vec<&[Piece]> = missing.iter().map(|frame| &frame.pieces[..]).collect();
        let Ok(loaded) = self.load_each(&mut loads, &pieces) else {
            return;
        };
        for ((frame, load), loaded) in missing.into_iter().zip(loads).zip(loaded) {
            if loaded {
                self.put_loaded(&objects[frame.object].0, frame.view, load);
            }
        }
    }

    /// The blocks of the ranges that the cache lacks.
    fn lacking(&self, object: &Object, body: &Body, ranges: &[ByteRange]) -> Wanted {
        let size = body.record.logical_size;
        let limit = self.transfer_limit() as u64;
        let mut wanted = Wanted::new();
        for range in ranges {
            let range = range.intersection(&ByteRange::new(0, size));
            if range.length > limit {
                continue;
            }
            for part in frame_parts(range.offset, range.length as usize) {
                *wanted.entry(part.number).or_default() |= touched(&part.range);
            }
        }
        let frames = self.cache.frames(object);
        for (number, blocks) in &mut wanted {
            *blocks &= !frames.states(*number).valid;
        }
        wanted.retain(|_, blocks| *blocks != 0);
        wanted
    }

    /// Where blocks of a frame are, and which of them there are; `None` if none of them is to be had
    /// as it lies on the medium.
    fn on_medium(
        &self,
        object: &Object,
        body: &Body,
        number: u64,
        blocks: BlockSet,
    ) -> Result<Option<(Vec<Piece>, BlockSet)>, StoreError> {
        let base = number * FRAME_BLOCKS as u64;
        let from = base + u64::from(blocks.trailing_zeros());
        let to = base + FRAME_BLOCKS as u64 - u64::from(blocks.leading_zeros());
        let pieces = self.metadata.pieces(object.name, from, to.min(body.live_end()))?;
        let pieces = body.living_pieces(pieces);
        let mapped = mapped_blocks(number, pieces.iter().map(|piece| &piece.extent)) & blocks;
        let packed = pieces.iter().any(|piece| piece.extent.is_packed());
        Ok((mapped != 0 && !packed).then_some((pieces, mapped)))
    }

    /// Into the cache, where it does not count as used before it is read.
    fn put_loaded(&self, object: &Arc<Object>, view: View, load: Load) {
        let bytes = u64::from(load.blocks.count_ones()) * BLOCK_BYTES as u64;
        self.tally.cache_miss_bytes.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        let Load { blocks, frame, .. } = load;
        let stamp = self.cache.stamp();
        let (_, new) = self.cache.frames(object).fill_more(view, frame, (blocks, 0), stamp);
        self.cache.admit(object, new.as_slice());
    }
}
