//! Reading data blocks from the medium: in as few transfers as the extents allow, every block
//! checked against its checksum before anybody sees it.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::atomic::Ordering;

use nasd_device::{AlignedBuffer, FRAME_BYTES, Frame, ReadPart, ReadRequest};
use nasd_types::ObjectName;
use nasd_types::limits::BLOCK_BYTES;

use crate::compress::unpack;
use crate::frames::{BlockSet, FRAME_BLOCKS, block_bytes, runs, set};
use crate::free_map::Run;
use crate::geometry::Geometry;
use crate::log::InlinedBlock;
use crate::metadata::record::{Codec, Extent};
use crate::{Store, StoreError};

/// Blocks of one frame that are to be read, and the frame they go to.
pub(crate) struct Load {
    pub(crate) number: u64,
    pub(crate) blocks: BlockSet,
    pub(crate) frame: Frame,
}

impl Load {
    /// Puts what the medium does not have yet in place of what was read, and checks everything; the
    /// first block of the object that is not what was written.
    pub(crate) fn complete(
        &mut self,
        parts: &[Part<'_>],
        inlined: &BTreeMap<u64, InlinedBlock>,
    ) -> Option<u64> {
        overlay(self, parts, inlined);
        bad_block(self, parts)
    }

    fn parts<'p>(&self, pieces: &'p [Piece]) -> Vec<Part<'p>> {
        parts(self.number * FRAME_BLOCKS as u64, self.blocks, pieces)
    }
}

/// An extent, with the checksum of each of its data blocks.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) extent: Extent,
    pub(crate) sums: Vec<u32>,
}

/// Blocks of a frame that lie one after the other on the device.
pub(crate) struct Part<'p> {
    /// Within the frame.
    blocks: std::ops::Range<usize>,
    physical: u64,
    sums: &'p [u32],
}

/// The checksum of a block.
pub(crate) fn checksum(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}

/// The blocks of a frame that some extent has; extents are in order.
pub(crate) fn mapped_blocks<'e>(
    number: u64,
    extents: impl IntoIterator<Item = &'e Extent>,
) -> BlockSet {
    let base = number * FRAME_BLOCKS as u64;
    let end = base + FRAME_BLOCKS as u64;
    let mut blocks = 0;
    for extent in extents.into_iter().take_while(|extent| extent.logical < end) {
        let from = extent.logical.max(base) - base;
        let to = extent.end().min(end).max(base) - base;
        blocks |= set(from as usize..to as usize);
    }
    blocks
}

/// Cuts a set of blocks of a frame where it goes from one extent to the next, and tells where each
/// part lies on the device. Compressed extents are left out.
pub(crate) fn parts<'p>(base: u64, blocks: BlockSet, pieces: &'p [Piece]) -> Vec<Part<'p>> {
    let first = pieces.partition_point(|piece| piece.extent.end() <= base);
    let mut found = Vec::with_capacity(1);
    for piece in &pieces[first..] {
        let Extent { logical, physical, .. } = piece.extent;
        let end = base + FRAME_BLOCKS as u64;
        if logical >= end {
            break;
        }
        if piece.extent.is_packed() {
            continue;
        }
        let within = logical.max(base) - base..piece.extent.end().min(end) - base;
        let wanted = blocks & set(within.start as usize..within.end as usize);
        for blocks in runs(wanted) {
            let skip = base + blocks.start as u64 - logical;
            let sums = &piece.sums[skip as usize..][..blocks.len()];
            found.push(Part { blocks, physical: physical + skip, sums });
        }
    }
    found
}

/// The same as parts of a read into that frame.
pub(crate) fn read_parts(geometry: &Geometry, parts: &[Part<'_>]) -> Vec<ReadPart> {
    let mut reads: Vec<ReadPart> = Vec::with_capacity(parts.len());
    for part in parts {
        let offset = geometry.byte_of(part.physical);
        let range = part.blocks.start * BLOCK_BYTES..part.blocks.end * BLOCK_BYTES;
        match reads.last_mut() {
            Some(ReadPart { offset: before, range: there })
                if there.end == range.start && *before + there.len() as u64 == offset =>
            {
                there.end = range.end;
            }
            _ => reads.push(ReadPart { offset, range }),
        }
    }
    reads
}

impl Store {
    /// Reads blocks into frames. The extents, in order, have all of them; the object's body is
    /// locked.
    pub(crate) fn load(
        &self,
        name: ObjectName,
        loads: &mut [Load],
        pieces: &[Piece],
    ) -> Result<(), StoreError> {
        let placed: Vec<Vec<Part<'_>>> = loads.iter().map(|load| load.parts(pieces)).collect();
        let inlined = self.read_placed(loads, &placed)?;
        for (load, parts) in loads.iter_mut().zip(&placed) {
            if let Some(block) = load.complete(parts, &inlined) {
                return Err(self.corrupt(name, block));
            }
        }
        for piece in pieces.iter().filter(|piece| piece.extent.is_packed()) {
            self.load_packed(name, loads, piece)?;
        }
        Ok(())
    }

    /// Reads from the medium; what is not there yet is returned.
    fn read_placed(
        &self,
        loads: &mut [Load],
        placed: &[Vec<Part<'_>>],
    ) -> Result<BTreeMap<u64, InlinedBlock>, StoreError> {
        // Before the medium is read: a block that is brought home afterwards is as good from here.
        let inlined = self.inlined_of(placed.iter().flatten());
        self.read_parts(loads, placed)?;
        Ok(inlined)
    }

    /// What of the parts the medium does not have yet.
    pub(crate) fn inlined_of<'p>(
        &self,
        parts: impl IntoIterator<Item = &'p Part<'p>>,
    ) -> BTreeMap<u64, InlinedBlock> {
        if self.inlined.count() == 0 {
            return BTreeMap::new();
        }
        let parts = parts.into_iter();
        let runs = parts.map(|part| Run { start: part.physical, blocks: part.sums.len() as u64 });
        runs.flat_map(|run| self.inlined.within(run)).collect()
    }

    fn read_parts(&self, loads: &mut [Load], placed: &[Vec<Part<'_>>]) -> Result<(), StoreError> {
        let mut requests: Vec<ReadRequest<'_>> = Vec::with_capacity(loads.len());
        let mut next_physical = None;
        for (load, parts) in loads.iter_mut().zip(placed) {
            let mut rest: &mut [u8] = &mut load.frame[..];
            for part in parts {
                let consumed = FRAME_BYTES - rest.len();
                let (_, tail) = rest.split_at_mut(part.blocks.start * BLOCK_BYTES - consumed);
                let (piece, tail) = tail.split_at_mut(part.blocks.len() * BLOCK_BYTES);
                rest = tail;
                if next_physical != Some(part.physical) || requests.is_empty() {
                    let offset = self.geometry.byte_of(part.physical);
                    requests.push(ReadRequest { offset, into: Vec::with_capacity(1) });
                }
                if let Some(request) = requests.last_mut() {
                    request.into.push(IoSliceMut::new(piece));
                }
                next_physical = Some(part.physical + part.blocks.len() as u64);
            }
        }
        if !requests.is_empty() {
            self.device.read_batch(&mut requests)?;
        }
        Ok(())
    }

    /// What to answer when a block is not what was written.
    fn corrupt(&self, object: ObjectName, block: u64) -> StoreError {
        tracing::error!(%object, block, "a data block does not match its checksum");
        self.tally.corrupt_blocks.fetch_add(1, Ordering::Relaxed);
        StoreError::Corrupt { object, block }
    }

    /// The data blocks of an extent, as they are stored and checked.
    fn stored(&self, name: ObjectName, piece: &Piece) -> Result<AlignedBuffer, StoreError> {
        let run = piece.extent.run();
        let inlined = self.inlined.within(run);
        let mut buffer = AlignedBuffer::zeroed(run.blocks as usize * BLOCK_BYTES);
        if (inlined.len() as u64) < run.blocks {
            let offset = self.geometry.byte_of(run.start);
            self.device.read(offset, &mut [IoSliceMut::new(&mut buffer)])?;
        }
        for (at, block) in inlined {
            let start = (at - run.start) as usize * BLOCK_BYTES;
            buffer[start..start + BLOCK_BYTES].copy_from_slice(block.bytes());
        }
        let blocks = buffer.chunks_exact(BLOCK_BYTES);
        match blocks.zip(&piece.sums).position(|(block, sum)| checksum(block) != *sum) {
            Some(bad) => Err(self.corrupt(name, piece.extent.logical + bad as u64)),
            None => Ok(buffer),
        }
    }

    /// The contents of a compressed extent.
    fn unpacked(&self, name: ObjectName, piece: &Piece) -> Result<Vec<u8>, StoreError> {
        let stored = self.stored(name, piece)?;
        let Codec::Packed { compression, length, .. } = piece.extent.codec else {
            return Ok(stored.to_vec());
        };
        let bytes = piece.extent.blocks as usize * BLOCK_BYTES;
        unpack(compression, &stored[..length as usize], bytes)
            .ok_or_else(|| self.corrupt(name, piece.extent.logical))
    }

    /// Copies what frames want of a compressed extent.
    fn load_packed(
        &self,
        name: ObjectName,
        loads: &mut [Load],
        piece: &Piece,
    ) -> Result<(), StoreError> {
        let number = piece.extent.logical / FRAME_BLOCKS as u64;
        let base = number * FRAME_BLOCKS as u64;
        let wanted = mapped_blocks(number, [&piece.extent]);
        let Some(load) = loads.iter_mut().find(|load| load.number == number) else {
            return Ok(());
        };
        if load.blocks & wanted == 0 {
            return Ok(());
        }
        let contents = self.unpacked(name, piece)?;
        for within in runs(load.blocks & wanted).flatten() {
            let start = (base + within as u64 - piece.extent.logical) as usize * BLOCK_BYTES;
            load.frame[block_bytes(within)].copy_from_slice(&contents[start..start + BLOCK_BYTES]);
        }
        Ok(())
    }

    /// Reads one block; `None` is a hole.
    pub(crate) fn load_block(
        &self,
        name: ObjectName,
        block: u64,
    ) -> Result<Option<Box<[u8; BLOCK_BYTES]>>, StoreError> {
        let pieces = self.metadata.pieces(name, block, block + 1)?;
        let Some(piece) = pieces.first() else {
            return Ok(None);
        };
        let contents = self.unpacked(name, piece)?;
        let start = (block - piece.extent.logical) as usize * BLOCK_BYTES;
        let mut found = Box::new([0; BLOCK_BYTES]);
        found.copy_from_slice(&contents[start..start + BLOCK_BYTES]);
        Ok(Some(found))
    }
}

/// The first block that is not what its checksum says.
fn bad_block(load: &Load, parts: &[Part<'_>]) -> Option<u64> {
    let mut blocks = parts.iter().flat_map(|part| part.blocks.clone().zip(part.sums));
    let bad = |&(within, sum): &(usize, &u32)| checksum(&load.frame[block_bytes(within)]) != *sum;
    let (within, _) = blocks.find(bad)?;
    Some(load.number * FRAME_BLOCKS as u64 + within as u64)
}

/// Puts what the medium does not have yet in place of what was read.
fn overlay(load: &mut Load, parts: &[Part<'_>], inlined: &BTreeMap<u64, InlinedBlock>) {
    if inlined.is_empty() {
        return;
    }
    for part in parts {
        for (within, physical) in part.blocks.clone().zip(part.physical..) {
            if let Some(block) = inlined.get(&physical) {
                load.frame[block_bytes(within)].copy_from_slice(block.bytes());
            }
        }
    }
}
