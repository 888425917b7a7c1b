//! The cached frames of one object: what is valid, what is dirty, what is being written.
//!
//! A frame holds 16 blocks, each of which is valid or not. A valid block is *clean* (as on the
//! medium), *dirty* (newer), or *being written* (a flush has taken it, and until the tree has what
//! that took there is nothing that could be read instead). A frame with dirty blocks or blocks
//! being written is pinned: it is not given up. Nor is one that somebody has said will be read.
//!
//! Frames are shared with whoever reads them. A write changes a frame only when nobody shares it,
//! and otherwise puts another one in its place. So a reader, a socket, or a flush that holds a frame
//! sees it as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use nasd_device::{FRAME_BYTES, Frame};
use nasd_types::limits::BLOCK_BYTES;

/// Blocks of a frame.
pub(crate) const FRAME_BLOCKS: usize = FRAME_BYTES / BLOCK_BYTES;

/// A set of blocks of one frame: bit `i` is block `i`.
pub(crate) type BlockSet = u16;

const _: () = assert!(FRAME_BLOCKS == BlockSet::BITS as usize);

/// How often a frame's uses are counted before it came up for eviction.
const HEAT_MAX: u8 = 3;

/// The blocks that a range of bytes of a frame touches.
pub(crate) fn touched(range: &Range<usize>) -> BlockSet {
    set(range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES))
}

/// The blocks that lie wholly within a range of bytes of a frame.
pub(crate) fn covered(range: &Range<usize>) -> BlockSet {
    set(range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES)
}

/// The set of the blocks of a range.
pub(crate) fn set(blocks: Range<usize>) -> BlockSet {
    if blocks.start >= blocks.end {
        return 0;
    }
    let below = |block: usize| ((1u32 << block) - 1) as BlockSet;
    below(blocks.end) & !below(blocks.start)
}

/// The runs of consecutive blocks of a set.
pub(crate) fn runs(set: BlockSet) -> impl Iterator<Item = Range<usize>> {
    let mut left = set;
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let start = left.trailing_zeros() as usize;
        let length = (left >> start).trailing_ones() as usize;
        left &= !self::set(start..start + length);
        Some(start..start + length)
    })
}

/// The bytes of a block of a frame.
pub(crate) fn block_bytes(block: usize) -> Range<usize> {
    block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES
}

#[derive(Debug)]
struct Slot {
    frame: Arc<Frame>,
    valid: BlockSet,
    dirty: BlockSet,
    writing: BlockSet,
    /// How many flushes have taken some of it that the tree does not have yet.
    taken: u32,
    /// Dirty blocks that replace nothing on the medium.
    fresh: BlockSet,
    /// Blocks that were used since the frame came in, or since its heat last rose.
    used: BlockSet,
    heat: u8,
    stamp: u64,
    /// Whether somebody has said that it will be read.
    hinted: bool,
}

/// The cached frames of one object, by number.
#[derive(Debug, Default)]
pub(crate) struct FrameMap {
    slots: BTreeMap<u64, Slot>,
    /// Frames with dirty blocks.
    dirty: BTreeSet<u64>,
    /// Frames with dirty blocks or blocks being written.
    pinned: usize,
    epoch: u64,
}

/// What the cache has of one frame.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) number: u64,
    pub(crate) frame: Option<Arc<Frame>>,
    pub(crate) valid: BlockSet,
}

impl View {
    /// Of a frame that the cache has nothing of, and is not to get.
    pub(crate) fn past(number: u64, frame: Frame, loaded: BlockSet) -> View {
        View { number, frame: Some(Arc::new(frame)), valid: loaded }
    }
}

/// Which blocks of a frame are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct States {
    pub(crate) valid: BlockSet,
    pub(crate) dirty: BlockSet,
    pub(crate) writing: BlockSet,
}

/// A frame that came in and has to be made known to the eviction policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewSlot {
    pub(crate) number: u64,
    pub(crate) stamp: u64,
}

/// Bytes for one frame.
pub(crate) enum Payload<'a> {
    /// They lie in a frame, at their place.
    Frame(Frame),
    /// They are to be copied; the frame is for when there is none yet, or it is shared.
    Copy(&'a [u8], Frame),
}

/// Contents of blocks that a write covers only in part and that are not in the cache, by block
/// within the frame. Blocks that are not here are zeros.
pub(crate) type Edges = BTreeMap<usize, Box<[u8; BLOCK_BYTES]>>;

/// One frame's part of a write.
pub(crate) struct FrameWrite<'a> {
    pub(crate) number: u64,
    /// The bytes of the frame that are written.
    pub(crate) range: Range<usize>,
    pub(crate) payload: Payload<'a>,
    pub(crate) edges: Edges,
    /// Blocks that become dirty and replace nothing on the medium.
    pub(crate) fresh: BlockSet,
}

/// Blocks of one frame that a flush has taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) number: u64,
    /// Which of the frames that were there by this number.
    stamp: u64,
    pub(crate) blocks: BlockSet,
    /// Those that replace nothing on the medium.
    fresh: BlockSet,
}

impl Claim {
    /// All blocks of a frame.
    #[cfg(test)]
    pub(crate) fn whole(number: u64) -> Claim {
        Claim { number, stamp: 0, blocks: BlockSet::MAX, fresh: 0 }
    }
}

/// The same, with what was in them.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) claim: Claim,
    pub(crate) frame: Arc<Frame>,
}

/// How many blocks were dropped, by what they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) dirty: u64,
    pub(crate) fresh: u64,
}

impl Slot {
    /// A frame of blocks that are as on the medium.
    fn clean(frame: Frame, valid: BlockSet, used: BlockSet, stamp: u64) -> Slot {
        let frame = Arc::new(frame);
        let (dirty, writing, taken, fresh) = (0, 0, 0, 0);
        Slot { frame, valid, dirty, writing, taken, fresh, used, heat: 0, stamp, hinted: false }
    }

    fn view(&self, number: u64) -> View {
        View { number, frame: Some(self.frame.clone()), valid: self.valid }
    }

    fn is_pinned(&self) -> bool {
        self.dirty | self.writing != 0
    }

    /// One flush less has taken some of it.
    fn let_go(&mut self) {
        self.taken = self.taken.saturating_sub(1);
        if self.taken == 0 {
            self.writing = 0;
        }
    }

    /// Notes a use. Blocks used for the first time do not count: reading a frame in small pieces
    /// from one end to the other is one use, not many.
    fn touch(&mut self, blocks: BlockSet) {
        if self.used & blocks != 0 {
            self.heat = (self.heat + 1).min(HEAT_MAX);
            self.used = blocks;
        } else {
            self.used |= blocks;
        }
    }
}

fn copy_blocks(from: &[u8; FRAME_BYTES], into: &mut [u8; FRAME_BYTES], blocks: BlockSet) {
    for run in runs(blocks) {
        let bytes = run.start * BLOCK_BYTES..run.end * BLOCK_BYTES;
        into[bytes.clone()].copy_from_slice(&from[bytes]);
    }
}

/// What of a block lies before and behind a range of bytes.
fn outside(block: usize, range: &Range<usize>) -> [Range<usize>; 2] {
    let bytes = block_bytes(block);
    [
        bytes.start..range.start.clamp(bytes.start, bytes.end),
        range.end.clamp(bytes.start, bytes.end)..bytes.end,
    ]
}

/// The frame that a flush has taken some of, if it is still there: cut off and written anew, it is
/// another one.
fn taken_slot<'s>(slots: &'s mut BTreeMap<u64, Slot>, of: &Claim) -> Option<&'s mut Slot> {
    slots.get_mut(&of.number).filter(|slot| slot.stamp == of.stamp)
}

impl FrameMap {
    /// Frames with dirty blocks or blocks being written.
    pub(crate) fn pinned(&self) -> usize {
        self.pinned
    }

    /// Counts the changes of blocks on the medium, and of which there are: what was read before the
    /// last of them may not be what the object holds.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether nothing is cached.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether the frame that came in with this stamp is still there.
    pub(crate) fn has(&self, number: u64, stamp: u64) -> bool {
        self.slots.get(&number).is_some_and(|slot| slot.stamp == stamp)
    }

    /// Number of dirty blocks.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        let dirty = self.dirty.iter().filter_map(|number| self.slots.get(number));
        dirty.map(|slot| u64::from(slot.dirty.count_ones())).sum()
    }

    /// The first blocks from `from` on that the medium does not have, or may not have.
    pub(crate) fn next_unwritten(&self, from: u64) -> Option<Range<u64>> {
        let frame = FRAME_BLOCKS as u64;
        for (number, slot) in self.slots.range(from / frame..) {
            let base = number * frame;
            let within = from.saturating_sub(base).min(frame) as usize;
            let pinned = (slot.dirty | slot.writing) & set(within..FRAME_BLOCKS);
            if let Some(run) = runs(pinned).next() {
                return Some(base + run.start as u64..base + run.end as u64);
            }
        }
        None
    }

    /// How many of the blocks `[from, to)` are dirty, or being written, and replace nothing.
    pub(crate) fn fresh_between(&self, from: u64, to: u64) -> u64 {
        let frame = FRAME_BLOCKS as u64;
        let slots = self.slots.range(from / frame..to.div_ceil(frame));
        slots
            .map(|(number, slot)| {
                let base = number * frame;
                let within = from.max(base) - base..to.min(base + frame) - base;
                let wanted = set(within.start as usize..within.end as usize);
                u64::from((slot.fresh & wanted).count_ones())
            })
            .sum()
    }

    /// What there is of a frame, of which `wanted` is being used. If not all of that is there, it
    /// will be looked at again or filled, and that counts as the use.
    pub(crate) fn view(&mut self, number: u64, wanted: BlockSet) -> View {
        match self.slots.get_mut(&number) {
            None => View { number, frame: None, valid: 0 },
            Some(slot) => {
                if slot.valid & wanted == wanted {
                    slot.touch(wanted);
                }
                slot.view(number)
            }
        }
    }

    /// Which blocks of a frame are in which state.
    pub(crate) fn states(&self, number: u64) -> States {
        self.slots.get(&number).map_or(States::default(), |slot| States {
            valid: slot.valid,
            dirty: slot.dirty,
            writing: slot.writing,
        })
    }

    /// Adds blocks that were read from the medium to what `have` shows of the frame. That is still
    /// as it was, but the cache may have given some of it up since, or may have got more.
    pub(crate) fn fill(
        &mut self,
        have: View,
        frame: Frame,
        loaded: BlockSet,
        stamp: u64,
    ) -> (View, Option<NewSlot>) {
        self.fill_more(have, frame, (loaded, loaded), stamp)
    }

    /// The same, if some of the blocks came along with those that are `used`.
    pub(crate) fn fill_more(
        &mut self,
        have: View,
        mut frame: Frame,
        (loaded, used): (BlockSet, BlockSet),
        stamp: u64,
    ) -> (View, Option<NewSlot>) {
        let View { number, frame: seen, valid: seen_valid } = have;
        let Some(slot) = self.slots.get_mut(&number) else {
            if let Some(seen) = seen {
                copy_blocks(&seen, &mut frame, seen_valid & !loaded);
            }
            let slot = Slot::clean(frame, seen_valid | loaded, used, stamp);
            let view = slot.view(number);
            self.slots.insert(number, slot);
            return (view, Some(NewSlot { number, stamp }));
        };
        let lost = seen_valid & !slot.valid & !loaded;
        if let Some(seen) = seen {
            copy_blocks(&seen, &mut frame, lost);
        }
        let new = (loaded | lost) & !slot.valid;
        // Into the frame that is there, if nobody shares it; else that into the new one.
        match Arc::get_mut(&mut slot.frame) {
            Some(there) => copy_blocks(&frame, there, new),
            None => {
                copy_blocks(&slot.frame, &mut frame, slot.valid);
                slot.frame = Arc::new(frame);
            }
        }
        slot.valid |= new;
        slot.touch(used);
        (slot.view(number), None)
    }

    /// Puts written bytes into the cache. Returns what has to be made known to the policy.
    pub(crate) fn write(&mut self, write: FrameWrite<'_>, stamp: u64) -> Option<NewSlot> {
        let FrameWrite { number, range, payload, edges, fresh } = write;
        let blocks = touched(&range);
        self.dirty.insert(number);
        let Some(slot) = self.slots.get_mut(&number) else {
            let mut frame = payload.into_frame(&range);
            complete(&mut frame, None, &range, &edges);
            let slot = Slot { dirty: blocks, fresh, ..Slot::clean(frame, blocks, blocks, stamp) };
            self.slots.insert(number, slot);
            self.pinned += 1;
            return Some(NewSlot { number, stamp });
        };
        if !slot.is_pinned() {
            self.pinned += 1;
        }
        slot.put(payload, &range, &edges);
        slot.valid |= blocks;
        slot.dirty |= blocks;
        slot.fresh |= fresh;
        slot.touch(blocks);
        None
    }

    /// Takes every dirty block for a flush.
    pub(crate) fn capture(&mut self) -> Vec<Captured> {
        let numbers = std::mem::take(&mut self.dirty);
        let mut captured = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Some(slot) = self.slots.get_mut(&number) else {
                continue;
            };
            let Slot { stamp, dirty: blocks, fresh, .. } = *slot;
            let claim = Claim { number, stamp, blocks, fresh };
            captured.push(Captured { claim, frame: slot.frame.clone() });
            slot.writing |= slot.dirty;
            slot.taken += 1;
            slot.dirty = 0;
            slot.fresh = 0;
        }
        captured
    }

    /// The tree has what a flush took. Blocks that other flushes have taken of the same frame go on
    /// counting as being written until the tree has what the last of those took.
    pub(crate) fn written(&mut self, claims: &[Claim]) {
        self.epoch += 1;
        for claim in claims {
            if let Some(slot) = taken_slot(&mut self.slots, claim) {
                self.pinned -= usize::from(slot.is_pinned());
                slot.let_go();
                self.pinned += usize::from(slot.is_pinned());
            }
        }
    }

    /// The youngest flush has failed to write what it took: it is dirty again. Returns how many blocks
    /// are that were not dirty anyway, and how many of all replace nothing on the medium that did not count
    /// as such anyway.
    pub(crate) fn revert(&mut self, claims: &[Claim]) -> Dropped {
        let mut back = Dropped::default();
        for claim in claims {
            let Some(slot) = taken_slot(&mut self.slots, claim) else {
                continue;
            };
            // What was cut off meanwhile is not being written any more.
            let again = slot.writing & claim.blocks;
            back.dirty += u64::from((again & !slot.dirty).count_ones());
            // One taken later may have had them too.
            back.fresh += u64::from((again & claim.fresh & !slot.fresh).count_ones());
            self.pinned -= usize::from(slot.is_pinned());
            slot.dirty |= again;
            slot.fresh |= again & claim.fresh;
            slot.let_go();
            self.pinned += usize::from(slot.is_pinned());
            if slot.dirty != 0 {
                self.dirty.insert(claim.number);
            }
        }
        back
    }

    /// Dirty blocks that replace nothing on the medium.
    #[cfg(test)]
    pub(crate) fn fresh_blocks(&self) -> u64 {
        self.slots.values().map(|slot| u64::from(slot.fresh.count_ones())).sum()
    }

    /// Blocks that replace nothing on the medium, because what they replaced has become less; how
    /// many of them are dirty.
    pub(crate) fn uncover(&mut self, number: u64, blocks: BlockSet) -> u64 {
        let Some(slot) = self.slots.get_mut(&number) else {
            return 0;
        };
        let uncovered = slot.dirty & blocks & !slot.fresh;
        slot.fresh |= uncovered;
        u64::from(uncovered.count_ones())
    }

    /// Makes blocks dirty as they are. `have` is what the cache had of their frame when `loaded`
    /// was read from the medium; together they have all of them.
    pub(crate) fn rewrite(
        &mut self,
        have: View,
        frame: Frame,
        loaded: BlockSet,
        (blocks, fresh): (BlockSet, BlockSet),
        stamp: u64,
    ) -> Option<NewSlot> {
        let number = have.number;
        let new = match self.states(number).valid & blocks == blocks {
            true => None,
            false => self.fill(have, frame, loaded, stamp).1,
        };
        if let Some(slot) = self.slots.get_mut(&number) {
            debug_assert!(slot.valid & blocks == blocks, "what is not there cannot be written");
            self.pinned += usize::from(!slot.is_pinned());
            slot.dirty |= blocks;
            slot.fresh |= fresh;
            self.dirty.insert(number);
        }
        new
    }

    /// Drops the blocks `[from, to)`.
    pub(crate) fn drop_blocks(&mut self, from: u64, to: u64) -> Dropped {
        self.epoch += 1;
        let mut dropped = Dropped::default();
        if from >= to {
            return dropped;
        }
        let frame = FRAME_BLOCKS as u64;
        let touched = from / frame..=(to - 1) / frame;
        let numbers: Vec<u64> = self.slots.range(touched).map(|(&number, _)| number).collect();
        for number in numbers {
            let base = number * frame;
            let within = from.max(base) - base..to.min(base + frame) - base;
            let gone = set(within.start as usize..within.end as usize);
            let Some(slot) = self.slots.get_mut(&number) else {
                continue;
            };
            self.pinned -= usize::from(slot.is_pinned());
            dropped.count(slot.dirty & gone, slot.fresh & gone);
            slot.valid &= !gone;
            slot.dirty &= !gone;
            slot.writing &= !gone;
            slot.fresh &= !gone;
            self.pinned += usize::from(slot.is_pinned());
            if slot.dirty == 0 {
                self.dirty.remove(&number);
            }
            if slot.valid == 0 {
                self.slots.remove(&number);
            }
        }
        dropped
    }

    /// Whether somebody has said that a frame will be read; until that is taken back it is not given up.
    pub(crate) fn set_hinted(&mut self, number: u64, hinted: bool) {
        if let Some(slot) = self.slots.get_mut(&number) {
            slot.hinted = hinted;
        }
    }

    /// Judges the frame that came in with this stamp, and gives it up if nothing speaks for it.
    /// The frame itself is returned, to be dropped when no lock is held.
    pub(crate) fn judge(&mut self, number: u64, stamp: u64) -> Judged {
        let Some(slot) = self.slots.get_mut(&number).filter(|slot| slot.stamp == stamp) else {
            return Judged::Gone;
        };
        if slot.is_pinned() || slot.hinted {
            return Judged::Kept;
        }
        if slot.heat > 0 {
            slot.heat -= 1;
            return Judged::Used;
        }
        match self.slots.remove(&number) {
            Some(slot) => Judged::Evicted(slot.frame),
            None => Judged::Gone,
        }
    }
}

/// What becomes of a frame that came up for eviction.
pub(crate) enum Judged {
    /// It is not there any more.
    Gone,
    /// It has dirty blocks, or blocks being written, or will be read.
    Kept,
    /// It was used.
    Used,
    /// It was given up.
    Evicted(Arc<Frame>),
}

impl Dropped {
    fn count(&mut self, dirty: BlockSet, fresh: BlockSet) {
        self.dirty += u64::from(dirty.count_ones());
        self.fresh += u64::from(fresh.count_ones());
    }
}

impl Payload<'_> {
    /// A frame that has the bytes at their place, and anything elsewhere.
    fn into_frame(self, range: &Range<usize>) -> Frame {
        match self {
            Payload::Frame(frame) => frame,
            Payload::Copy(bytes, mut frame) => {
                frame[range.clone()].copy_from_slice(bytes);
                frame
            }
        }
    }

    fn bytes<'b>(&'b self, range: &Range<usize>) -> &'b [u8] {
        match self {
            Payload::Frame(frame) => &frame[range.clone()],
            Payload::Copy(bytes, _) => bytes,
        }
    }
}

/// Fills what a new frame lacks: of blocks that are written in part the rest, and every other
/// valid block of the frame that it replaces.
fn complete(new: &mut Frame, old: Option<&Slot>, range: &Range<usize>, edges: &Edges) {
    let old_valid = old.map_or(0, |slot| slot.valid);
    let partial = touched(range) & !covered(range);
    for block in runs(partial).flatten() {
        for bytes in outside(block, range) {
            match (old, edges.get(&block)) {
                (Some(slot), _) if old_valid & set(block..block + 1) != 0 => {
                    new[bytes.clone()].copy_from_slice(&slot.frame[bytes]);
                }
                (_, Some(contents)) => {
                    let from = bytes.start - block * BLOCK_BYTES;
                    new[bytes.clone()].copy_from_slice(&contents[from..][..bytes.len()]);
                }
                (_, None) => new[bytes].fill(0),
            }
        }
    }
    if let Some(slot) = old {
        copy_blocks(&slot.frame, new, old_valid & !touched(range));
    }
}

impl Slot {
    /// Puts written bytes into the slot: into its frame when nobody shares that and less is copied
    /// that way, otherwise by a new frame.
    fn put(&mut self, payload: Payload<'_>, range: &Range<usize>, edges: &Edges) {
        let blocks = touched(range);
        let others = (self.valid & !blocks).count_ones() as usize * BLOCK_BYTES;
        let copy_in = match &payload {
            Payload::Frame(_) => range.len() < others,
            Payload::Copy(..) => true,
        };
        if copy_in && let Some(frame) = Arc::get_mut(&mut self.frame) {
            for block in runs(blocks & !covered(range) & !self.valid).flatten() {
                match edges.get(&block) {
                    Some(contents) => frame[block_bytes(block)].copy_from_slice(&contents[..]),
                    None => frame[block_bytes(block)].fill(0),
                }
            }
            frame[range.clone()].copy_from_slice(payload.bytes(range));
            return;
        }
        let mut frame = payload.into_frame(range);
        complete(&mut frame, Some(self), range, edges);
        self.frame = Arc::new(frame);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "ranges are what is compared")]
mod tests {
    use super::*;
    use nasd_device::FramePool;

    const B: usize = BLOCK_BYTES;

    fn filled(pool: &FramePool, value: u8) -> Frame {
        let mut frame = pool.allocate().unwrap();
        frame.fill(value);
        frame
    }

    fn absent(number: u64) -> View {
        View { number, frame: None, valid: 0 }
    }

    fn put(map: &mut FrameMap, pool: &FramePool, range: Range<usize>, value: u8) {
        let bytes = vec![value; range.len()];
        // What the spare frame had before must never show.
        let payload = Payload::Copy(&bytes, filled(pool, 0xee));
        let fresh = touched(&range) & !map.states(0).dirty;
        map.write(FrameWrite { number: 0, range, payload, edges: Edges::new(), fresh }, 1);
    }

    /// The first byte of each run of equal bytes in the valid blocks, with its length.
    fn shape(map: &mut FrameMap) -> Vec<(u8, usize)> {
        let view = map.view(0, 0);
        let mut found: Vec<(u8, usize)> = Vec::new();
        let Some(frame) = view.frame else {
            return found;
        };
        for &byte in runs(view.valid).flatten().flat_map(|block| &frame[block_bytes(block)]) {
            match found.last_mut() {
                Some((last, count)) if *last == byte => *count += 1,
                _ => found.push((byte, 1)),
            }
        }
        found
    }

    fn claims(map: &mut FrameMap) -> Vec<Claim> {
        map.capture().into_iter().map(|captured| captured.claim).collect()
    }

    #[test]
    fn sets_and_runs() {
        assert_eq!(set(0..16), 0xffff);
        assert_eq!((set(3..3), set(15..16)), (0, 0x8000));
        assert_eq!(runs(0b1000_0000_0110_0001).collect::<Vec<_>>(), [0..1, 5..7, 15..16]);
        assert!(runs(0xffff).eq(std::iter::once(0..16)));
        assert_eq!((touched(&(1..B + 1)), covered(&(1..B + 1))), (0b11, 0));
        assert_eq!((touched(&(0..B)), covered(&(0..3 * B - 1))), (0b1, 0b11));
        assert_eq!(outside(1, &(B + 5..B + 9)), [B..B + 5, B + 9..2 * B]);
        assert_eq!(outside(1, &(0..B + 9)), [B..B, B + 9..2 * B]);
    }

    #[test]
    fn partial_blocks_are_zeros_or_edges_around_what_is_written() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 10..20, 1);
        assert_eq!(shape(&mut map), [(0, 10), (1, 10), (0, B - 20)]);
        let edges = Edges::from([(2, Box::new([7; B]))]);
        let range = 2 * B + 4..2 * B + 8;
        let payload = Payload::Frame(filled(&pool, 3));
        map.write(FrameWrite { number: 0, range, payload, edges, fresh: 0 }, 2);
        let tail = [(0, 10), (1, 10), (0, B - 20), (7, 4), (3, 4), (7, B - 8)];
        assert_eq!(shape(&mut map), tail);
        assert_eq!(map.states(0), States { valid: 0b101, dirty: 0b101, writing: 0 });
        assert_eq!((map.pinned(), map.dirty_blocks(), pool.free_frames()), (1, 2, 7));
    }

    #[test]
    fn whoever_holds_a_frame_sees_it_as_it_was() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..2 * B, 1);
        let held = map.view(0, 0).frame.unwrap();
        put(&mut map, &pool, 100..200, 2);
        assert!(held[..2 * B].iter().all(|&byte| byte == 1));
        assert_eq!(shape(&mut map), [(1, 100), (2, 100), (1, 2 * B - 200)]);
        drop(held);
        // Nobody shares it now: it is changed where it is.
        let before = map.view(0, 0).frame.unwrap().as_ptr();
        put(&mut map, &pool, 0..50, 3);
        assert_eq!(map.view(0, 0).frame.unwrap().as_ptr(), before);
    }

    #[test]
    fn a_whole_frame_is_adopted_and_a_few_bytes_of_one_are_not() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..FRAME_BYTES, 1);
        let mut write = |value, range: Range<usize>| {
            let frame = filled(&pool, value);
            let address = frame.as_ptr();
            let payload = Payload::Frame(frame);
            map.write(FrameWrite { number: 0, range, payload, edges: Edges::new(), fresh: 0 }, 2);
            map.view(0, 0).frame.unwrap().as_ptr() == address
        };
        assert!(write(2, 0..FRAME_BYTES));
        assert!(!write(3, 0..B));
        assert_eq!(shape(&mut map), [(3, B), (2, 15 * B)]);
    }

    #[test]
    fn a_flush_has_what_it_took_and_what_comes_after_is_dirty_again() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..2 * B, 1);
        let captured = map.capture();
        let taken = [captured[0].claim];
        assert_eq!((taken[0].blocks, taken[0].fresh), (0b11, 0b11));
        assert_eq!(map.states(0), States { valid: 0b11, dirty: 0, writing: 0b11 });
        assert!(matches!(map.judge(0, 1), Judged::Kept));
        put(&mut map, &pool, 0..B, 2);
        assert_eq!(captured[0].frame[0], 1);
        map.written(&taken);
        assert_eq!(map.states(0), States { valid: 0b11, dirty: 0b01, writing: 0 });
        assert_eq!(map.pinned(), 1);
        let again = claims(&mut map);
        map.written(&again);
        assert_eq!(map.pinned(), 0);
        assert_eq!(shape(&mut map), [(2, B), (1, B)]);
    }

    #[test]
    fn what_several_flushes_took_is_kept_until_the_last_of_them_is_in_the_tree() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..2 * B, 1);
        let first = claims(&mut map);
        put(&mut map, &pool, B..3 * B, 2);
        let second = claims(&mut map);
        assert_eq!((second[0].blocks, map.pinned()), (0b110, 1));
        map.written(&first);
        assert_eq!(map.states(0), States { valid: 0b111, dirty: 0, writing: 0b111 });
        put(&mut map, &pool, 0..B, 3);
        let third = claims(&mut map);
        // The third one fails while the second is not in the tree.
        assert_eq!(map.revert(&third).dirty, 1);
        assert_eq!(map.states(0), States { valid: 0b111, dirty: 0b1, writing: 0b111 });
        map.written(&second);
        assert_eq!(map.states(0), States { valid: 0b111, dirty: 0b1, writing: 0 });
        let fourth = claims(&mut map);
        // Cut off and written anew, it is another frame, about which the fourth says nothing.
        assert_eq!(map.drop_blocks(0, u64::MAX).dirty, 0);
        let payload = Payload::Copy(&[4; B], filled(&pool, 0));
        map.write(FrameWrite { number: 0, range: 0..B, payload, edges: Edges::new(), fresh: 0 }, 9);
        let fifth = claims(&mut map);
        map.written(&fourth);
        assert_eq!(map.states(0), States { valid: 0b1, dirty: 0, writing: 0b1 });
        map.written(&fifth);
        assert_eq!((map.states(0).writing, map.pinned()), (0, 0));
    }

    #[test]
    fn a_failed_flush_gives_back_what_is_still_there() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..4 * B, 1);
        let taken = claims(&mut map);
        assert_eq!(map.drop_blocks(3, u64::MAX), Dropped { dirty: 0, fresh: 0 });
        let range = 0..B;
        let payload = Payload::Copy(&[2; B], filled(&pool, 0));
        map.write(FrameWrite { number: 0, range, payload, edges: Edges::new(), fresh: 0 }, 2);
        // Three of four are left, one of them was written again.
        assert_eq!(map.revert(&taken), Dropped { dirty: 2, fresh: 3 });
        assert_eq!(map.states(0), States { valid: 0b111, dirty: 0b111, writing: 0 });
        assert_eq!(map.capture()[0].claim.fresh, 0b111);
    }

    #[test]
    fn two_failed_flushes_give_back_once_what_both_had() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..2 * B, 1);
        let first = claims(&mut map);
        // Cut off and written anew, while the frame stays for the other block.
        assert_eq!(map.drop_blocks(1, 2), Dropped { dirty: 0, fresh: 0 });
        put(&mut map, &pool, B..2 * B, 2);
        let second = claims(&mut map);
        assert_eq!((second[0].blocks, second[0].fresh), (0b10, 0b10));
        assert_eq!(map.revert(&second), Dropped { dirty: 1, fresh: 1 });
        assert_eq!(map.revert(&first), Dropped { dirty: 1, fresh: 1 });
        assert_eq!(map.states(0), States { valid: 0b11, dirty: 0b11, writing: 0 });
        assert_eq!((map.fresh_blocks(), map.pinned()), (2, 1));
    }

    #[test]
    fn cuts_count_what_they_drop() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        put(&mut map, &pool, 0..4 * B, 1);
        assert_eq!(map.drop_blocks(3, u64::MAX), Dropped { dirty: 1, fresh: 1 });
        assert_eq!(map.states(0).valid, 0b111);
        assert_eq!(map.drop_blocks(0, u64::MAX), Dropped { dirty: 3, fresh: 3 });
        assert_eq!((map.pinned(), map.is_empty(), pool.free_frames()), (0, true, 8));
        assert!(map.capture().is_empty());
    }

    #[test]
    fn blocks_that_are_read_join_those_that_are_there_or_were() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        let (seen, new) = map.fill(absent(0), filled(&pool, 1), 0b1, 5);
        assert_eq!(new, Some(NewSlot { number: 0, stamp: 5 }));
        assert!(matches!(map.judge(0, 5), Judged::Evicted(_)));
        let (view, new) = map.fill(seen, filled(&pool, 2), 0b10, 6);
        assert_eq!((view.valid, new.map(|slot| slot.stamp)), (0b11, Some(6)));
        assert_eq!(shape(&mut map), [(1, B), (2, B)]);
        // Another reader, who saw nothing, adds to it, and does not undo a write.
        put(&mut map, &pool, 0..B, 9);
        let (view, new) = map.fill(absent(0), filled(&pool, 4), 0b101, 7);
        assert_eq!((view.valid, new), (0b111, None));
        assert_eq!(shape(&mut map), [(9, B), (2, B), (4, B)]);
    }

    #[test]
    fn only_coming_back_to_a_block_makes_a_frame_hot() {
        let pool = FramePool::new(8).unwrap();
        let mut map = FrameMap::default();
        map.fill(absent(0), filled(&pool, 1), 1, 5);
        for block in 1..16 {
            map.view(0, set(block..block + 1));
        }
        map.view(0, 1);
        assert!(matches!(map.judge(0, 4), Judged::Gone), "another frame of that number");
        assert!(matches!(map.judge(0, 5), Judged::Used));
        assert!(matches!(map.judge(0, 5), Judged::Evicted(_)));
    }
}
