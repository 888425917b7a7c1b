//! Copying a range of one object into another of its partition: whole blocks are shared, as `fastcopy`
//! shares objects (CMU-CS-97-118, section 2.3); what can't be shared is read and written.

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId, SeekTarget, Timestamp};

use crate::flush::{Request, ShareRange, Shared};
use crate::log::Share;
use crate::metadata::record::Extent;
use crate::write::check_end;
use crate::{Store, StoreError, WriteData};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks that one flush shares, at most: 1 GiB.
const SHARED_BLOCKS_MAX: u64 = 1 << 18;

/// Extents of the source, and as many of the target, with which one flush deals, at most.
const SHARED_EXTENTS_MAX: usize = 1024;

/// Bytes that one call reads and writes, at most.
const COPIED_BYTES_MAX: u64 = 64 << 20;

/// Bytes that are read and written at once.
const PIECE_BYTES: u64 = 256 << 10;

/// Pieces and holes that one call deals with, at most.
const PIECES_MAX: usize = 1024;

/// How often a range is to be shared whose objects keep changing.
const ATTEMPTS: usize = 3;

/// Records that an extent may add, of either object: its own, and those of the sharing.
const RECORDS_PER_EXTENT: u64 = 3;

/// Records that a range may add besides: its ends, and a family with its members.
const RECORDS_PER_RANGE: u64 = 8;

/// What is to be copied to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The partition of both objects.
    pub partition: PartitionId,
    /// The object that is copied from.
    pub source: ObjectId,
    /// Its first byte.
    pub source_offset: u64,
    /// The object that is copied to.
    pub target: ObjectId,
    /// Where the first byte goes.
    pub target_offset: u64,
    /// Bytes; those behind the source's end don't count.
    pub length: u64,
}

impl CopyRange {
    fn source(&self) -> ObjectName {
        ObjectName { partition: self.partition, object: self.source }
    }

    fn target(&self) -> ObjectName {
        ObjectName { partition: self.partition, object: self.target }
    }

    /// What is left of it when so many bytes are copied.
    fn behind(&self, done: u64) -> CopyRange {
        CopyRange {
            source_offset: self.source_offset + done,
            target_offset: self.target_offset + done,
            length: self.length - done,
            ..*self
        }
    }

    /// Whether blocks of the one object are blocks of the other one.
    fn is_aligned(&self) -> bool {
        self.source != self.target && self.source_offset % BLOCK == self.target_offset % BLOCK
    }

    fn overlaps(&self) -> bool {
        self.source == self.target && self.source_offset.abs_diff(self.target_offset) < self.length
    }
}

impl Store {
    /// Copies bytes that were written before the call from one object into another, or within one:
    /// how many, from the first one on. They are fewer than asked for where the source ends, and where
    /// one call would do too much; 0 only at the source's end. Holes stay holes. What shares
    /// its blocks is durable; the rest is after a flush, as what is written.
    pub fn copy_range(&self, copy: &CopyRange, now: Timestamp) -> Result<u64, StoreError> {
        self.writable()?;
        // Held, so that both stay in memory: what is shared is changed there, too.
        let (source, _target) = (self.object(copy.source())?, self.object(copy.target())?);
        let size = {
            let body = source.read();
            if body.removed {
                return Err(self.gone(copy.source()));
            }
            body.record.logical_size
        };
        let length = copy.length.min(size.saturating_sub(copy.source_offset));
        let copy = CopyRange { length, ..*copy };
        if copy.overlaps() {
            return Err(StoreError::Overlapping(copy.source()));
        }
        check_end(copy.target_offset, usize::try_from(length).unwrap_or(usize::MAX))?;
        let mut done = 0;
        match self.copy_pieces(&copy, now, &mut done) {
            // What was copied is told first; whoever goes on learns the rest.
            Err(_) if done > 0 => Ok(done),
            Err(error) => Err(error),
            Ok(()) => Ok(done),
        }
    }

    fn copy_pieces(
        &self,
        copy: &CopyRange,
        now: Timestamp,
        done: &mut u64,
    ) -> Result<(), StoreError> {
        let (mut may_share, mut room) = (copy.is_aligned(), COPIED_BYTES_MAX);
        for _ in 0..PIECES_MAX {
            let rest = copy.behind(*done);
            if rest.length == 0 || room == 0 {
                break;
            }
            let into = rest.source_offset % BLOCK;
            if may_share && into == 0 && rest.length >= BLOCK {
                let blocks = (rest.length / BLOCK).min(SHARED_BLOCKS_MAX);
                let shared = self.share(&rest, blocks, now)?;
                *done += shared * BLOCK;
                if shared > 0 && shared < rest.length / BLOCK {
                    break;
                }
                may_share = shared > 0;
                continue;
            }
            // Up to where blocks can be shared.
            let most = if may_share { BLOCK - into } else { PIECE_BYTES };
            let length = rest.length.min(most).min(room);
            let copied = self.copy_piece(&CopyRange { length, ..rest }, rest.length, now)?;
            if copied == 0 {
                break;
            }
            *done += copied;
            room -= copied.min(room);
        }
        Ok(())
    }

    /// Reads and writes at most the range; or leaves a hole, which may go on for `most` bytes.
    fn copy_piece(&self, copy: &CopyRange, most: u64, now: Timestamp) -> Result<u64, StoreError> {
        let (source, target) = (copy.source(), copy.target());
        let data = self.seek(source, copy.source_offset, SeekTarget::Data)?;
        let hole = data.map_or(most, |data| (data - copy.source_offset).min(most));
        if hole >= BLOCK {
            return self.copy_hole(&CopyRange { length: hole, ..*copy }, now);
        }
        let end = self.seek(source, copy.source_offset + hole, SeekTarget::Hole)?;
        let length = end.map_or(copy.length, |end| copy.length.min(end - copy.source_offset));
        let range = ByteRange::new(copy.source_offset, length);
        let bytes = self.read(source, range)?.to_vec();
        if !bytes.is_empty() {
            self.write(target, copy.target_offset, WriteData::Slice(&bytes), now)?;
        }
        Ok(bytes.len() as u64)
    }

    /// Drops what the target has there, up to its end; from there on its last byte is written, so that it
    /// ends there.
    fn copy_hole(&self, copy: &CopyRange, now: Timestamp) -> Result<u64, StoreError> {
        let target = copy.target();
        let end = copy.target_offset + copy.length;
        let size = self.object(target)?.read().record.logical_size;
        // Each of the two wholly or not at all.
        if copy.target_offset < size {
            let length = copy.length.min(size - copy.target_offset);
            self.punch(target, ByteRange::new(copy.target_offset, length), now)?;
            return Ok(length);
        }
        self.write(target, end - 1, WriteData::Slice(&[0]), now)?;
        Ok(copy.length)
    }

    /// Shares whole blocks: how many, of at most so many; 0 if they have to be copied.
    fn share(&self, copy: &CopyRange, blocks: u64, now: Timestamp) -> Result<u64, StoreError> {
        let (from, to) = (copy.source_offset / BLOCK, copy.target_offset / BLOCK);
        for _ in 0..ATTEMPTS {
            // What is shared is what the tree has.
            let objects = [copy.source(), copy.target()].into();
            self.run_flush(Request { objects, settle: true, ..Request::default() })?;
            let found = self.metadata.extents(copy.source(), from, from + blocks)?;
            let replaced = self.metadata.extents(copy.target(), to, to + blocks)?;
            let few = |extents: &[Extent], first: u64| {
                extents.get(SHARED_EXTENTS_MAX).map_or(blocks, |extent| extent.logical - first)
            };
            let blocks = few(&found, from).min(few(&replaced, to));
            let extents =
                found.len().min(SHARED_EXTENTS_MAX) + replaced.len().min(SHARED_EXTENTS_MAX);
            let share =
                Share { source: copy.source, from, name: copy.target(), to, blocks, time: now };
            let range = ShareRange::new(share, extents);
            let records = RECORDS_PER_RANGE + RECORDS_PER_EXTENT * extents as u64;
            self.promise_records(copy.target(), records)?;
            let shares = vec![range.clone()];
            let flushed = self.run_flush(Request { shares, settle: true, ..Request::default() });
            self.metadata.capacity.release(records);
            flushed?;
            match range.outcome() {
                Shared::Blocks(blocks) => return Ok(blocks),
                Shared::Refused => return Ok(0),
                Shared::Busy => {}
            }
        }
        Ok(0)
    }
}
