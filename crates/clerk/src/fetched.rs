//! Blocks of one file that are read ahead, or being so: pure bookkeeping.
//!
//! A block belongs to the open file whose stream asked for it, is dropped when consumed, when a
//! local write touches it, when its stream goes elsewhere, and when it gets old: between close and
//! open a reader may see old data, but not for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_types::ByteRange;

use crate::buffers::{BUFFER_BYTES, Buffer, BufferPool};

/// A block older than this is not used any more.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Names one fetch of one block, so that a late answer can't be mistaken for another's.
pub(crate) type FetchId = u64;

#[derive(Debug)]
enum State {
    /// Nobody has started yet: a reader that needs it now may do it.
    Queued(Buffer),
    /// On its way.
    Fetching,
    /// Here; shorter than the block where the file ends inside it.
    Ready { data: Arc<Buffer>, length: usize },
}

#[derive(Debug)]
struct Block {
    id: FetchId,
    owner: u64,
    length: usize,
    consumed: usize,
    born: Instant,
    state: State,
}

/// What is known about the bytes at some offset.
#[derive(Debug)]
pub(crate) enum Found {
    /// These bytes, from the offset on.
    Ready(Slice),
    /// On their way: wait.
    Fetching,
    /// Asked for, but nobody has started: fetch this block yourself.
    Queued(FetchId, u64),
    /// Nothing up to this offset.
    Gap(u64),
}

/// Part of a fetched block.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    data: Arc<Buffer>,
    start: usize,
    length: usize,
}

impl Slice {
    /// The bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data[self.start..self.start + self.length]
    }
}

/// A fetch that somebody has taken upon himself.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Names it in `finish`.
    pub(crate) id: FetchId,
    /// Where the block starts.
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) length: usize,
    /// Where it goes.
    pub(crate) buffer: Buffer,
}

/// The blocks of one file; they never overlap.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    blocks: BTreeMap<u64, Block>,
    next_id: FetchId,
}

impl Fetched {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Plans blocks for the parts of `range` that have none, as far as there are buffers. Returns
    /// what somebody must now fetch.
    pub(crate) fn plan(
        &mut self,
        range: ByteRange,
        owner: u64,
        buffers: &BufferPool,
        now: Instant,
    ) -> Vec<(FetchId, u64)> {
        let mut planned = Vec::new();
        let mut offset = range.offset;
        while offset < range.end() {
            if let Some((start, block)) = self.at(offset) {
                offset = start + block.length as u64;
                continue;
            }
            let boundary = offset - offset % BUFFER_BYTES as u64 + BUFFER_BYTES as u64;
            let next = self.blocks.range(offset..).next().map_or(u64::MAX, |(start, _)| *start);
            let end = boundary.min(range.end()).min(next);
            let Some(buffer) = buffers.try_take() else {
                break;
            };
            let id = self.next_id;
            self.next_id += 1;
            let length = (end - offset) as usize;
            let state = State::Queued(buffer);
            self.blocks.insert(offset, Block { id, owner, length, consumed: 0, born: now, state });
            planned.push((id, offset));
            offset = end;
        }
        planned
    }

    /// The block that holds `offset`.
    fn at(&self, offset: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.blocks.range(..=offset).next_back()?;
        (offset < start + block.length as u64).then_some((*start, block))
    }

    /// What there is at `offset`, up to `limit` bytes of it.
    pub(crate) fn find(&mut self, offset: u64, limit: usize, now: Instant) -> Found {
        let Some((start, block)) = self.at(offset) else {
            let next = self.blocks.range(offset..).next().map_or(u64::MAX, |(start, _)| *start);
            return Found::Gap(next);
        };
        let end = start + block.length as u64;
        match &block.state {
            State::Fetching => Found::Fetching,
            State::Queued(_) => Found::Queued(block.id, start),
            State::Ready { data, length } => {
                let skip = (offset - start) as usize;
                if skip >= *length || now.duration_since(block.born) > MAX_AGE {
                    // At the end of a short block the file may have grown since: ask the drive.
                    self.blocks.remove(&start);
                    return Found::Gap(end);
                }
                let length = (length - skip).min(limit);
                Found::Ready(Slice { data: Arc::clone(data), start: skip, length })
            }
        }
    }

    /// Notes that a reader has used `length` bytes at `offset`; a block used whole is dropped.
    pub(crate) fn consume(&mut self, offset: u64, length: usize) {
        let Some((start, block)) = self.blocks.range_mut(..=offset).next_back() else {
            return;
        };
        block.consumed += length;
        if let State::Ready { length: available, .. } = block.state
            && block.consumed >= available
        {
            let start = *start;
            self.blocks.remove(&start);
        }
    }

    /// Takes the fetch `id` of the block at `offset` upon the caller, unless another has it or it
    /// is not wanted any more.
    pub(crate) fn take(&mut self, id: FetchId, offset: u64) -> Option<Fetch> {
        let block = self.blocks.get_mut(&offset).filter(|block| block.id == id)?;
        if !matches!(block.state, State::Queued(_)) {
            return None;
        }
        let State::Queued(buffer) = std::mem::replace(&mut block.state, State::Fetching) else {
            return None;
        };
        Some(Fetch { id, offset, length: block.length, buffer })
    }

    /// The fetch brought `length` bytes, or failed. Data of a block that was dropped meanwhile is
    /// forgotten.
    pub(crate) fn finish(&mut self, fetch: Fetch, length: Option<usize>, now: Instant) {
        let Some(block) = self.blocks.get_mut(&fetch.offset).filter(|block| block.id == fetch.id)
        else {
            return;
        };
        match length {
            Some(length) => {
                block.born = now;
                block.state = State::Ready { data: Arc::new(fetch.buffer), length };
            }
            None => drop(self.blocks.remove(&fetch.offset)),
        }
    }

    /// A local write or truncation touches `range`.
    pub(crate) fn drop_overlapping(&mut self, range: ByteRange) {
        if !self.blocks.is_empty() {
            self.blocks.retain(|start, block| {
                ByteRange::new(*start, block.length as u64).intersection(&range).is_empty()
            });
        }
    }

    /// The stream of `owner` went elsewhere, or the open file was closed.
    pub(crate) fn drop_owner(&mut self, owner: u64) {
        self.blocks.retain(|_, block| block.owner != owner);
    }

    /// The stream of `owner` has passed `offset`.
    pub(crate) fn drop_before(&mut self, owner: u64, offset: u64) {
        let passed: Vec<u64> = self
            .blocks
            .range(..offset)
            .take_while(|(start, block)| **start + block.length as u64 <= offset)
            .filter(|(_, block)| block.owner == owner)
            .map(|(start, _)| *start)
            .collect();
        for start in passed {
            self.blocks.remove(&start);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(fetched: &mut Fetched, offset: u64) -> Option<Slice> {
        match fetched.find(offset, usize::MAX, Instant::now()) {
            Found::Ready(slice) => Some(slice),
            _ => None,
        }
    }

    #[test]
    fn blocks_are_planned_around_those_that_exist() {
        let pool = BufferPool::new(16 * BUFFER_BYTES);
        let mut fetched = Fetched::default();
        let now = Instant::now();
        let first = fetched.plan(ByteRange::new(100, 1000), 1, &pool, now);
        assert_eq!(first.len(), 1);
        let second = fetched.plan(ByteRange::new(0, 3 << 20), 1, &pool, now);
        let offsets: Vec<u64> = second.iter().map(|(_, offset)| *offset).collect();
        assert_eq!(offsets, [0, 1100, 1 << 20, 2 << 20]);
        assert!(fetched.plan(ByteRange::new(0, 3 << 20), 1, &pool, now).is_empty());
    }

    #[test]
    fn a_late_answer_for_a_dropped_block_is_forgotten() {
        let pool = BufferPool::new(4 * BUFFER_BYTES);
        let mut fetched = Fetched::default();
        let now = Instant::now();
        let (id, offset) = fetched.plan(ByteRange::new(0, 4096), 1, &pool, now)[0];
        let fetch = fetched.take(id, offset).unwrap();
        assert!(fetched.take(id, offset).is_none(), "only one may take it");
        fetched.drop_overlapping(ByteRange::new(10, 1));
        let (newer, _) = fetched.plan(ByteRange::new(0, 4096), 1, &pool, now)[0];
        fetched.finish(fetch, Some(4096), now);
        assert!(ready(&mut fetched, 0).is_none());
        let fetch = fetched.take(newer, 0).unwrap();
        fetched.finish(fetch, Some(4096), now);
        assert_eq!(ready(&mut fetched, 96).unwrap().data().len(), 4000);
    }

    #[test]
    fn the_end_of_a_short_block_is_asked_for_again() {
        let pool = BufferPool::new(4 * BUFFER_BYTES);
        let mut fetched = Fetched::default();
        let now = Instant::now();
        let (id, offset) = fetched.plan(ByteRange::new(0, 4096), 1, &pool, now)[0];
        let fetch = fetched.take(id, offset).unwrap();
        fetched.finish(fetch, Some(100), now);
        assert_eq!(ready(&mut fetched, 0).unwrap().data().len(), 100);
        assert!(ready(&mut fetched, 100).is_none());
        assert!(fetched.is_empty());
    }

    #[test]
    fn old_and_consumed_blocks_go() {
        let pool = BufferPool::new(4 * BUFFER_BYTES);
        let mut fetched = Fetched::default();
        let now = Instant::now();
        for (id, offset) in fetched.plan(ByteRange::new(0, 2 << 20), 1, &pool, now) {
            let fetch = fetched.take(id, offset).unwrap();
            fetched.finish(fetch, Some(BUFFER_BYTES), now);
        }
        fetched.consume(0, BUFFER_BYTES);
        assert!(ready(&mut fetched, 0).is_none());
        let later = now + MAX_AGE + Duration::from_secs(1);
        assert!(matches!(fetched.find(1 << 20, 1, later), Found::Gap(_)));
        assert!(fetched.is_empty());
    }
}
