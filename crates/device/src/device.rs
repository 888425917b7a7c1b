//! The one trait through which the store sees its medium.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};

use crate::read_queue::PlainReads;
use crate::{DeviceError, ReadQueue};

/// One read of a batch: `into` is filled from `offset` on.
pub struct ReadRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// Where the bytes go, in order.
    pub into: Vec<IoSliceMut<'a>>,
}

/// One write of a batch: `from` goes to `offset` on.
pub struct WriteRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// The bytes, in order.
    pub from: Vec<IoSlice<'a>>,
}

/// What is to be done while writes are under way. It is given what keeps them so.
pub type Meanwhile<'a> = &'a mut dyn FnMut(&mut dyn FnMut());

/// A medium of fixed size that is read and written in aligned pieces.
///
/// Offsets, lengths and memory of every transfer are multiples of [`alignment`](Self::alignment);
/// [`SECTOR_BYTES`](crate::SECTOR_BYTES) always is one. Writes are durable only after a `sync`
/// that began when they had ended; until then a crash may keep any subset of them.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Size of the medium in bytes; it never changes while the device is open.
    fn capacity(&self) -> u64;

    /// What offsets, lengths and memory addresses of transfers are multiples of, in bytes:
    /// a power of two, at most [`SECTOR_BYTES`](crate::SECTOR_BYTES).
    fn alignment(&self) -> usize;

    /// Fills `into` with the bytes at `offset`.
    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError>;

    /// Writes `from` at `offset`.
    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError>;

    /// Serves every request, in any order. On an error, any part may have been read.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        requests.iter_mut().try_for_each(|request| self.read(request.offset, &mut request.into))
    }

    /// A queue of reads that go on by themselves, where the device has one; if not, each is done when
    /// it is begun.
    fn read_queue(&self) -> Box<dyn ReadQueue + '_> {
        Box::new(PlainReads::new(self))
    }

    /// Whether the reads of a queue go on by themselves.
    fn has_deep_queue(&self) -> bool {
        false
    }

    /// Serves every request, in any order. On an error, any part may have been written.
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        requests.iter().try_for_each(|request| self.write(request.offset, &request.from))
    }

    /// As [`write_batch`](Self::write_batch), and runs `meanwhile` on the calling thread, exactly
    /// once and whatever becomes of the writes: while they are under way, where the device can
    /// do that. A device that takes only so many at a time gets others whenever `meanwhile` calls
    /// what it is given, which it should do every millisecond or more often. When
    /// `meanwhile` panics, the panic goes on once no write is under way any more; any part may have
    /// been written.
    fn write_batch_with(
        &self,
        requests: &[WriteRequest<'_>],
        meanwhile: Meanwhile<'_>,
    ) -> Result<(), DeviceError> {
        meanwhile(&mut || ());
        self.write_batch(requests)
    }

    /// Returns when every write that ended before the call is durable.
    fn sync(&self) -> Result<(), DeviceError>;
}

/// Refuses a transfer that leaves the device; returns its length in bytes.
pub(crate) fn check_bounds(offset: u64, length: u64, capacity: u64) -> Result<(), DeviceError> {
    match offset.checked_add(length) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(DeviceError::OutOfBounds { offset, length, capacity }),
    }
}

/// Refuses a transfer whose offset, or any of whose pieces, is not aligned.
pub(crate) fn check_alignment<'a>(
    offset: u64,
    pieces: impl Iterator<Item = &'a [u8]>,
    alignment: usize,
) -> Result<u64, DeviceError> {
    let mask = alignment - 1;
    let mut length = 0u64;
    let mut aligned = offset & mask as u64 == 0;
    for piece in pieces {
        length += piece.len() as u64;
        aligned &= piece.len() & mask == 0 && piece.as_ptr().addr() & mask == 0;
    }
    if aligned { Ok(length) } else { Err(DeviceError::Unaligned { offset, length, alignment }) }
}
