//! Reading data blocks from the medium: in as few transfers as the extents allow, every block
//! checked against its checksum before anybody sees it.

use std::io::IoSliceMut;

use nasd_device::{AlignedBuffer, FRAME_BYTES, Frame, ReadRequest};
use nasd_types::ObjectName;
use nasd_types::limits::BLOCK_BYTES;

use crate::frames::{BlockSet, FRAME_BLOCKS, block_bytes, runs, set};
use crate::metadata::record::Extent;
use crate::{Store, StoreError};

/// Blocks of one frame that are to be read, and the frame they go to.
pub(crate) struct Load {
    pub(crate) number: u64,
    pub(crate) blocks: BlockSet,
    pub(crate) frame: Frame,
}

/// The checksum of a block.
pub(crate) fn checksum(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}

/// The blocks of a frame that some extent has.
pub(crate) fn mapped_blocks(number: u64, extents: &[Extent]) -> BlockSet {
    let base = number * FRAME_BLOCKS as u64;
    let end = base + FRAME_BLOCKS as u64;
    let first = extents.partition_point(|extent| extent.end() <= base);
    let mut blocks = 0;
    for extent in extents[first..].iter().take_while(|extent| extent.logical < end) {
        let from = extent.logical.max(base) - base;
        let to = extent.end().min(end) - base;
        blocks |= set(from as usize..to as usize);
    }
    blocks
}

/// The extent that has a block.
fn extent_of(block: u64, extents: &[Extent]) -> Option<&Extent> {
    let index = extents.partition_point(|extent| extent.end() <= block);
    extents.get(index).filter(|extent| extent.logical <= block)
}

impl Store {
    /// Reads blocks into frames. The extents, in order, have all of them; the object's body is
    /// locked.
    pub(crate) fn load(
        &self,
        name: ObjectName,
        loads: &mut [Load],
        extents: &[Extent],
    ) -> Result<(), StoreError> {
        let mut requests = Vec::new();
        let mut next_physical = None;
        for load in loads.iter_mut() {
            let base = load.number * FRAME_BLOCKS as u64;
            let mut rest: &mut [u8] = &mut load.frame[..];
            for (blocks, physical) in pieces(base, load.blocks, extents) {
                let consumed = FRAME_BYTES - rest.len();
                let (_, tail) = rest.split_at_mut(blocks.start * BLOCK_BYTES - consumed);
                let (piece, tail) = tail.split_at_mut(blocks.len() * BLOCK_BYTES);
                rest = tail;
                let piece = IoSliceMut::new(piece);
                if next_physical != Some(physical) || requests.is_empty() {
                    let offset = self.geometry.byte_of(physical);
                    requests.push(ReadRequest { offset, into: Vec::new() });
                }
                if let Some(request) = requests.last_mut() {
                    request.into.push(piece);
                }
                next_physical = Some(physical + blocks.len() as u64);
            }
        }
        self.device.read_batch(&mut requests)?;
        drop(requests);
        loads.iter().try_for_each(|load| verify(name, load, extents))
    }

    /// Reads one block; `None` is a hole.
    pub(crate) fn load_block(
        &self,
        name: ObjectName,
        block: u64,
    ) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, StoreError> {
        let extents = self.metadata.extents(name, block, block + 1)?;
        let Some(extent) = extents.first() else {
            return Ok(None);
        };
        let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
        let offset = self.geometry.byte_of(extent.physical);
        self.device.read(offset, &mut [IoSliceMut::new(&mut buffer)])?;
        if extent.checksums.first() != Some(&checksum(&buffer)) {
            return Err(StoreError::Corrupt { object: name, block });
        }
        let mut contents = Box::new([0; BLOCK_BYTES]);
        contents.copy_from_slice(&buffer);
        Ok(Some(contents))
    }
}

/// Cuts a set of blocks of a frame where it goes from one extent to the next, and tells where each
/// piece lies on the device.
fn pieces(base: u64, blocks: BlockSet, extents: &[Extent]) -> Vec<(std::ops::Range<usize>, u64)> {
    let mut found = Vec::new();
    for run in runs(blocks) {
        let mut start = run.start;
        while start < run.end {
            let logical = base + start as u64;
            let Some(extent) = extent_of(logical, extents) else {
                start += 1;
                continue;
            };
            let end = run.end.min((extent.end() - base) as usize);
            found.push((start..end, extent.physical + (logical - extent.logical)));
            start = end;
        }
    }
    found
}

fn verify(name: ObjectName, load: &Load, extents: &[Extent]) -> Result<(), StoreError> {
    let base = load.number * FRAME_BLOCKS as u64;
    for within in runs(load.blocks).flatten() {
        let block = base + within as u64;
        let expected = extent_of(block, extents)
            .map(|extent| extent.checksums[(block - extent.logical) as usize]);
        if expected != Some(checksum(&load.frame[block_bytes(within)])) {
            tracing::error!(object = %name, block, "a data block does not match its checksum");
            return Err(StoreError::Corrupt { object: name, block });
        }
    }
    Ok(())
}
