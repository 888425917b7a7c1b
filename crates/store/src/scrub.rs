//! The scrub: reads every data block from the medium, little by little, and finds those that are
//! not what was written before somebody needs them.
//!
//! It goes through the extents in order of objects. For each few of them it holds the object's body
//! shared, as a read does, so that the blocks stay where they are; writes, removals and flushes go
//! on in between. It reads past the cache and leaves nothing in it. What only the log has so far is
//! skipped. Metadata is not its affair: every page of the tree is verified at each open.

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

use nasd_device::AlignedBuffer;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, PartitionId};

use crate::compress::unpack;
use crate::free_map::Run;
use crate::medium::{Piece, checksum};
use crate::metadata::record::{Codec, Extent};
use crate::{Store, StoreError};

/// Most blocks that are read while an object is locked (1 MiB).
const CHUNK_BLOCKS: u64 = 256;

/// Bad blocks that are remembered, so that each is told once a pass though several objects share it.
const REPORTED_MAX: usize = 1 << 16;

/// Where a scrub goes on. The default is the beginning of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubCursor {
    partition: PartitionId,
    object: ObjectId,
    block: u64,
    /// Bad data blocks that this pass has told.
    reported: BTreeSet<u64>,
}

/// What one step of a scrub did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    /// Bytes of data blocks that were read from the medium.
    pub read_bytes: u64,
    /// What is wrong; each block once a pass.
    pub findings: Vec<ScrubFinding>,
    /// Whether the pass ended: the next step begins another.
    pub finished: bool,
}

/// A data block that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// What is wrong with it.
    pub fault: ScrubFault,
    /// First byte of the block on the device.
    pub device_offset: u64,
    /// The objects that have it, in order; several if they share it.
    pub holders: Vec<ScrubHolder>,
}

/// Where a bad block is in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubHolder {
    /// The object.
    pub object: ObjectName,
    /// First byte of the object that the block has.
    pub offset: u64,
    /// How many bytes of the object are lost: a block's, or all of a compressed extent's.
    pub bytes: u64,
}

/// What is wrong with a data block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScrubFault {
    /// It does not match its checksum.
    #[error("it does not match its checksum")]
    Checksum,
    /// Every block of a compressed extent matches its checksum, and yet they make no sense.
    #[error("it is compressed and can't be decompressed")]
    Compressed,
    /// The device failed to read it.
    #[error("it can't be read: {0}")]
    Unreadable(String),
}

/// What reading an extent's blocks showed.
#[derive(Default)]
struct Read {
    blocks: u64,
    /// The bad ones.
    bad: Vec<(u64, ScrubFault)>,
}

impl ScrubCursor {
    fn name(&self) -> ObjectName {
        ObjectName { partition: self.partition, object: self.object }
    }

    fn go_to(&mut self, name: ObjectName, block: u64) {
        (self.partition, self.object, self.block) = (name.partition, name.object, block);
    }

    /// Leaves an object behind.
    fn skip(&mut self, name: ObjectName) {
        match name.object.0.checked_add(1) {
            Some(next) => self.go_to(ObjectName { object: ObjectId(next), ..name }, 0),
            None => {
                let partition = PartitionId(name.partition.0.saturating_add(1));
                self.go_to(ObjectName { partition, object: ObjectId(0) }, 0);
            }
        }
    }
}

impl Store {
    /// Verifies data blocks from `cursor` on until at least `max_bytes` were read or the pass ends,
    /// and moves the cursor. May be called at any time, from one thread or several with cursors
    /// of their own.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] or [`StoreError::Medium`] if the metadata of an object can't be read;
    /// the next step goes on behind that object. Bad data blocks are findings, not errors.
    pub fn scrub(&self, cursor: &mut ScrubCursor, max_bytes: u64) -> Result<ScrubStep, StoreError> {
        let mut step = ScrubStep::default();
        let mut buffer = AlignedBuffer::zeroed(CHUNK_BLOCKS as usize * BLOCK_BYTES);
        while step.read_bytes < max_bytes {
            let next = self.metadata.next_mapped(cursor.name(), cursor.block);
            let found = next.inspect_err(|_| cursor.skip(cursor.name()))?;
            let Some((name, block)) = found else {
                *cursor = ScrubCursor::default();
                step.finished = true;
                break;
            };
            match self.scrub_object(name, block, cursor, &mut buffer, &mut step) {
                // Removed meanwhile.
                Err(StoreError::NoSuchObject(_) | StoreError::NoSuchPartition(_)) => {
                    cursor.skip(name);
                }
                Err(error) => {
                    cursor.skip(name);
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(step)
    }

    /// Verifies a few blocks of an object.
    fn scrub_object(
        &self,
        name: ObjectName,
        block: u64,
        cursor: &mut ScrubCursor,
        buffer: &mut AlignedBuffer,
        step: &mut ScrubStep,
    ) -> Result<(), StoreError> {
        let object = self.object(name)?;
        // Until the end of this, blocks that the extents name are not given to anybody else.
        let body = object.read();
        if body.removed {
            return Err(self.gone(name));
        }
        let end = block.saturating_add(CHUNK_BLOCKS);
        let pieces = self.metadata.pieces_in_passing(name, block, end)?;
        // A compressed extent may reach farther, and is read whole.
        cursor.go_to(name, pieces.last().map_or(end, |last| last.extent.end().max(end)));
        for piece in body.living_pieces(pieces) {
            let read = self.scrub_piece(&piece, buffer);
            step.read_bytes += read.blocks * BLOCK_BYTES as u64;
            self.tally.scrubbed_blocks.fetch_add(read.blocks, Ordering::Relaxed);
            for (at, fault) in read.bad {
                if cursor.reported.contains(&at) {
                    continue;
                }
                if cursor.reported.len() < REPORTED_MAX {
                    cursor.reported.insert(at);
                }
                self.tally.corrupt_blocks.fetch_add(1, Ordering::Relaxed);
                let holders = self.scrub_holders(name, at)?;
                let device_offset = self.geometry.byte_of(at);
                step.findings.push(ScrubFinding { fault, device_offset, holders });
            }
        }
        Ok(())
    }

    /// Reads an extent's data blocks and compares them with their checksums.
    fn scrub_piece(&self, piece: &Piece, buffer: &mut AlignedBuffer) -> Read {
        let run = piece.extent.run();
        // Before the medium is read: those that are brought home meanwhile are skipped all the same.
        let skipped: BTreeSet<u64> =
            self.inlined.within(run).into_iter().map(|(at, _)| at).collect();
        let mut read = Read::default();
        if skipped.len() as u64 >= run.blocks {
            return read;
        }
        let bytes = run.blocks as usize * BLOCK_BYTES;
        let into = &mut buffer[..bytes];
        let unreadable = self.scrub_read(run, into);
        for (index, at) in (run.start..run.end()).enumerate() {
            if skipped.contains(&at) {
                continue;
            }
            read.blocks += 1;
            let block = &into[index * BLOCK_BYTES..][..BLOCK_BYTES];
            if let Some((_, why)) = unreadable.iter().find(|(bad, _)| *bad == at) {
                read.bad.push((at, ScrubFault::Unreadable(why.clone())));
            } else if checksum(block) != piece.sums[index] {
                read.bad.push((at, ScrubFault::Checksum));
            }
        }
        if let Codec::Packed { compression, length, .. } = piece.extent.codec
            && read.bad.is_empty()
            && skipped.is_empty()
        {
            let whole = piece.extent.blocks as usize * BLOCK_BYTES;
            if unpack(compression, &into[..length as usize], whole).is_none() {
                read.bad.push((run.start, ScrubFault::Compressed));
            }
        }
        read
    }

    /// Reads a run; which of its blocks could not be read, and why.
    fn scrub_read(&self, run: Run, into: &mut [u8]) -> Vec<(u64, String)> {
        let offset = self.geometry.byte_of(run.start);
        if self.device.read(offset, &mut [IoSliceMut::new(into)]).is_ok() {
            return Vec::new();
        }
        let mut unreadable = Vec::new();
        for (at, block) in (run.start..run.end()).zip(into.chunks_exact_mut(BLOCK_BYTES)) {
            let offset = self.geometry.byte_of(at);
            if let Err(error) = self.device.read(offset, &mut [IoSliceMut::new(block)]) {
                unreadable.push((at, error.to_string()));
            }
        }
        unreadable
    }

    /// Who has a data block that `owner` has.
    fn scrub_holders(&self, owner: ObjectName, at: u64) -> Result<Vec<ScrubHolder>, StoreError> {
        let extents = self.metadata.holders(owner, Run { start: at, blocks: 1 })?;
        Ok(extents.into_iter().map(|(object, extent)| holder(object, &extent, at)).collect())
    }
}

fn holder(object: ObjectName, extent: &Extent, at: u64) -> ScrubHolder {
    let block = BLOCK_BYTES as u64;
    if extent.is_packed() {
        let (offset, bytes) = (extent.logical * block, extent.blocks * block);
        return ScrubHolder { object, offset, bytes };
    }
    let within = extent.logical + (at - extent.physical);
    ScrubHolder { object, offset: within * block, bytes: block }
}
