//! The device of the virtual drive's own store: a part of each copy, which is written everywhere and read anywhere.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use nasd_device::{BlockDevice, DeviceError, SECTOR_BYTES, WriteRequest};

use super::holders::{Part, Piece};
use super::{OwnError, OwnState, PIECE_BYTES};

/// See the module. What was written is durable at once: so that nothing has to be remembered of what a drive that was
/// started anew may have forgotten. It is written seldom.
#[derive(Debug)]
pub struct MirroredDevice(Arc<OwnState>);

impl MirroredDevice {
    /// The one of these copies.
    pub fn new(own: Arc<OwnState>) -> MirroredDevice {
        MirroredDevice(own)
    }

    fn check(&self, offset: u64, lengths: impl Iterator<Item = usize>) -> Result<u64, DeviceError> {
        let alignment = SECTOR_BYTES;
        let (mut length, mut is_aligned) = (0, offset.is_multiple_of(alignment as u64));
        for piece in lengths {
            length += piece as u64;
            is_aligned &= piece.is_multiple_of(alignment);
        }
        let capacity = self.capacity();
        match offset.checked_add(length) {
            _ if !is_aligned => Err(DeviceError::Unaligned { offset, length, alignment }),
            Some(end) if end <= capacity => Ok(length),
            _ => Err(DeviceError::OutOfBounds { offset, length, capacity }),
        }
    }
}

fn failed(operation: &'static str, (offset, length): (u64, u64), error: &OwnError) -> DeviceError {
    let source = std::io::Error::other(error.to_string());
    DeviceError::Medium { operation, offset, length, source }
}

impl BlockDevice for MirroredDevice {
    fn capacity(&self) -> u64 {
        self.0.device_bytes
    }

    fn alignment(&self) -> usize {
        SECTOR_BYTES
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let length = self.check(offset, into.iter().map(|piece| piece.len()))?;
        let mut at = offset;
        for piece in into {
            for part in piece.chunks_mut(PIECE_BYTES as usize) {
                let read = self.0.read_device(at, part.len());
                let data = read.map_err(|error| failed("read", (offset, length), &error))?;
                part.copy_from_slice(&data);
                at += part.len() as u64;
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let from = from.iter().map(|piece| IoSlice::new(piece)).collect();
        self.write_batch(&[WriteRequest { offset, from }])
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let mut joined = Vec::with_capacity(requests.len());
        for WriteRequest { offset, from } in requests {
            self.check(*offset, from.iter().map(|piece| piece.len()))?;
            joined.push((
                *offset,
                from.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>(),
            ));
        }
        let pieces: Vec<Piece<'_>> =
            joined.iter().flat_map(|(offset, data)| pieces(*offset, data)).collect();
        let Some(first) = pieces.first() else { return Ok(()) };
        let span = (first.offset, pieces.iter().map(|piece| piece.data.len() as u64).sum());
        self.0.write_device(&pieces).map_err(|error| failed("write", span, &error))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        // Each write is durable when it has ended. Whoever can't write any more is told here too.
        self.0.check().map_err(|error| failed("sync", (0, 0), &error))
    }
}

/// Data for a place on the device, in pieces of a size that can be sent.
pub(super) fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    data.chunks(PIECE_BYTES as usize).enumerate().map(move |(turn, data)| Piece {
        part: Part::Device,
        offset: offset + turn as u64 * PIECE_BYTES,
        data,
    })
}
