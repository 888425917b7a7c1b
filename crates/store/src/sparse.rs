//! Holes: punching them, finding them, and how many blocks filling them takes.

use std::sync::Arc;

use nasd_device::{Frame, zeros};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, ByteRange, Compression, ObjectName, SeekTarget, Timestamp};

use crate::clears::Clears;
use crate::metadata::record::{Extent, LOGICAL_BLOCKS_MAX};
use crate::object::{Body, Object};
use crate::{BlocksRequired, NoSpace, Store, StoreError};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Extents that are looked at together.
const EXTENTS_AT_ONCE: usize = 64;

/// How often a change makes room and tries again.
const ATTEMPTS: usize = 8;

impl Store {
    /// Makes the bytes of `range` read as zeros, and frees the blocks that lie within, also of what is
    /// reserved. The size stays.
    pub fn punch(
        &self,
        name: ObjectName,
        range: ByteRange,
        now: Timestamp,
    ) -> Result<Attributes, StoreError> {
        self.writable()?;
        let object = self.object(name)?;
        let mut settled = self.backlog.settled();
        for _ in 0..ATTEMPTS {
            // Had before the lock: whoever waits for memory must not hold one.
            let mut spare = self.allocate_frames(4)?;
            let mut body = object.write();
            if body.removed {
                return Err(self.gone(name));
            }
            if body.record.blocks_reserved > 0 && !body.writing.is_empty() {
                // What was flushed counts as what the object has.
                drop(body);
                self.settle_accounts();
                body = object.write();
                if body.removed {
                    return Err(self.gone(name));
                }
            }
            let range = range.intersection(&ByteRange::new(0, body.record.logical_size));
            let shared = self.shared_blocks(name, &body)?;
            if range.is_empty() {
                return Ok(body.attributes(shared));
            }
            match self.try_punch(&object, &mut body, range, &mut spare)? {
                Ok(()) => {
                    body.record.note_change(now);
                    self.table.register(&object, &mut body);
                    return Ok(body.attributes(shared));
                }
                Err(lacking) => {
                    drop(body);
                    self.make_room(lacking, &mut settled)?;
                }
            }
        }
        Err(StoreError::NoSpace(NoSpace::Data))
    }

    fn try_punch(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        range: ByteRange,
        spare: &mut Vec<Frame>,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        // Behind the end there are zeros anyway, so the last block goes as a whole.
        let end = if range.end() == body.record.logical_size {
            range.end().next_multiple_of(BLOCK)
        } else {
            range.end()
        };
        let rests = self.rests(object, body, &(range.offset..end))?;
        if let Err(lacking) = self.write_rests(object, body, rests, spare)? {
            return Ok(Err(lacking));
        }
        let (from, to) = (range.offset.div_ceil(BLOCK), end / BLOCK);
        let edges = if from > to {
            // Within one block.
            [range.offset..end, 0..0]
        } else {
            [range.offset..from * BLOCK, to * BLOCK..end]
        };
        let mut pieces = Vec::new();
        for edge in edges {
            let Some(frame) = spare.pop().filter(|_| !edge.is_empty()) else {
                continue;
            };
            let bytes = &zeros()[..(edge.end - edge.start) as usize];
            if self.block(object, body, edge.start / BLOCK)?.is_some() {
                pieces.push((edge.start, bytes, vec![frame]));
            }
        }
        // Both or none, so that a punch that finds no room does nothing.
        if !pieces.is_empty()
            && let Err(lacking) = self.overwrite_all(object, body, pieces)?
        {
            return Ok(Err(lacking));
        }
        if from < to {
            if let Err(lacking) = self.give_back_reserved(object, body, from, to)? {
                return Ok(Err(lacking));
            }
            self.drop_cached(object, body, from, to);
            if from < body.mapped_end || (body.small && from == 0) {
                body.clears.add(from, to.min(LOGICAL_BLOCKS_MAX));
            }
        }
        Ok(Ok(()))
    }

    /// Takes the blocks that an object has from `from` to `to` from what is reserved for it. Which blocks
    /// that are not there yet were meant by a reservation is not known: those stay reserved.
    fn give_back_reserved(
        &self,
        object: &Arc<Object>,
        body: &mut Body,
        from: u64,
        to: u64,
    ) -> Result<Result<(), NoSpace>, StoreError> {
        let reserved = body.record.blocks_reserved;
        if reserved == 0 {
            return Ok(Ok(()));
        }
        let mut count = Count::default();
        self.count_required(object, body, from, to, &mut count)?;
        Ok(self.reserve(object, body, reserved.saturating_sub(count.charged)))
    }

    /// The first offset from `offset` on that has what is looked for; `None` when `offset` is at or
    /// behind the object's end, or there is no more data. The end of an object is a hole.
    pub fn seek(
        &self,
        name: ObjectName,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, StoreError> {
        let object = self.object(name)?;
        let body = object.read();
        if body.removed {
            return Err(self.gone(name));
        }
        let size = body.record.logical_size;
        if offset >= size {
            return Ok(None);
        }
        let last = size.div_ceil(BLOCK);
        let mut block = offset / BLOCK;
        loop {
            let data = self.next_data(&object, &body, block, last)?;
            match target {
                SeekTarget::Data => {
                    let found = data.map(|data| (data.start * BLOCK).max(offset));
                    return Ok(found.filter(|&found| found < size));
                }
                SeekTarget::Hole => match data {
                    Some(data) if data.start <= block => block = data.end,
                    _ => return Ok(Some((block * BLOCK).max(offset).min(size))),
                },
            }
            if block >= last {
                return Ok(Some(size));
            }
        }
    }

    /// The first blocks from `from` on that are not a hole, as far as they are known to go on.
    fn next_data(
        &self,
        object: &Object,
        body: &Body,
        from: u64,
        last: u64,
    ) -> Result<Option<std::ops::Range<u64>>, StoreError> {
        let cached = self.cache.frames(object).next_unwritten(from);
        if body.small {
            let small = (from == 0 && !body.is_cleared(0)).then_some(0..1);
            return Ok(earlier(small, cached));
        }
        let mut at = from;
        let end = last.min(body.live_end());
        while at < end {
            let extents = self.metadata.extents_from(object.name, at, EXTENTS_AT_ONCE)?;
            let Some(behind) = extents.last().map(Extent::end) else {
                break;
            };
            let living = body.living(extents);
            let found = living.iter().find(|extent| extent.end() > at && extent.logical < end);
            if let Some(extent) = found {
                let stored = extent.logical.max(at)..extent.end();
                return Ok(earlier(Some(stored), cached));
            }
            at = behind.max(at + 1);
        }
        Ok(cached)
    }

    /// How many blocks more the object may take when these ranges are overwritten with anything
    /// (CMU-CS-97-118, section 2.3).
    pub fn blocks_required(
        &self,
        name: ObjectName,
        ranges: &mut dyn Iterator<Item = ByteRange>,
    ) -> Result<BlocksRequired, StoreError> {
        let object = self.object(name)?;
        let compresses =
            self.partitions.get(name.partition)?.settings.compression != Compression::None;
        let mut body = object.read();
        if !body.writing.is_empty() {
            // What was flushed counts as what the object has.
            drop(body);
            self.settle_accounts();
            body = object.read();
        }
        if body.removed {
            return Err(self.gone(name));
        }
        let mut blocks = Clears::default();
        for range in ranges {
            blocks.add(range.offset / BLOCK, range.end().div_ceil(BLOCK).min(LOGICAL_BLOCKS_MAX));
        }
        let (mut count, mut found) = (Count::default(), Vec::new());
        for range in blocks.ranges() {
            let to = range.end.min(body.live_end());
            found.extend(body.living(self.metadata.extents(name, range.start, to)?));
        }
        // What is compressed is written anew as a whole.
        found.iter().filter(|extent| extent.is_packed()).for_each(|extent| {
            blocks.add(extent.logical, extent.end());
        });
        for range in blocks.ranges() {
            self.count_required(&object, &body, range.start, range.end, &mut count)?;
        }
        if !compresses {
            return Ok(count.answer(1, 1));
        }
        if found.is_empty() {
            found = self.metadata.extents_from(name, 0, EXTENTS_AT_ONCE)?;
        }
        let (plain, stored) = found.iter().fold((0, 0), |(plain, stored), extent| {
            (plain + extent.blocks, stored + extent.run().blocks)
        });
        Ok(count.answer(stored, plain))
    }

    fn count_required(
        &self,
        object: &Object,
        body: &Body,
        from: u64,
        to: u64,
        count: &mut Count,
    ) -> Result<(), StoreError> {
        // What goes into the tree has no blocks, and will have none without another write.
        let charged = match body.goes_into_tree() {
            true => 0,
            false => self.cache.frames(object).fresh_between(from, to),
        };
        let replaced = self.unshared(object, body, from..to, 0)?;
        let replaced: u64 = replaced.iter().map(|extent| extent.blocks).sum();
        count.blocks += to - from;
        count.charged += charged + replaced;
        count.new += (to - from).saturating_sub(charged + replaced);
        Ok(())
    }
}

/// What blocks that are to be overwritten have now.
#[derive(Debug, Default)]
struct Count {
    blocks: u64,
    /// Data blocks that they have alone, or that the object is charged for already.
    charged: u64,
    /// Blocks without such a data block.
    new: u64,
}

impl Count {
    /// If `plain` blocks of the object take `stored` data blocks, and new data compresses as the old
    /// does.
    fn answer(&self, stored: u64, plain: u64) -> BlocksRequired {
        let maximum = self.new;
        let scaled = u128::from(self.blocks) * u128::from(stored);
        let estimated = match u64::try_from(scaled.div_ceil(u128::from(plain.max(1)))) {
            Ok(after) if plain > 0 => after.saturating_sub(self.charged),
            _ => maximum,
        };
        BlocksRequired { estimated: estimated.min(maximum), maximum }
    }
}

/// Whichever begins first; if both begin at the same block, the longer one.
fn earlier(
    one: Option<std::ops::Range<u64>>,
    other: Option<std::ops::Range<u64>>,
) -> Option<std::ops::Range<u64>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one.start < other.start {
            one
        } else if other.start < one.start {
            other
        } else {
            one.start..one.end.max(other.end)
        }),
        (one, other) => one.or(other),
    }
}
