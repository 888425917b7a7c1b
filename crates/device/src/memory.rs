//! A device in memory: for tests, and as the medium under a [`FaultyDevice`](crate::FaultyDevice).

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use crate::device::{check_alignment, check_bounds};
use crate::{BlockDevice, DeviceError, SECTOR_BYTES};

/// A device whose contents live in memory. Pages never written cost nothing, so that a test can
/// have a device of many gigabytes.
pub struct MemoryDevice {
    contents: RwLock<Mapping>,
    capacity: u64,
}

/// A private anonymous mapping that reserves no memory.
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping owns its memory alone, like a `Box<[u8]>`.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for Mapping {}

impl MemoryDevice {
    /// A device of `capacity` zero bytes, rounded up to whole sectors.
    pub fn new(capacity: u64) -> Result<MemoryDevice, DeviceError> {
        let length = usize::try_from(capacity.max(1).next_multiple_of(SECTOR_BYTES as u64))
            .unwrap_or(usize::MAX);
        let contents = RwLock::new(Mapping::new(length)?);
        Ok(MemoryDevice { contents, capacity: length as u64 })
    }

    /// A device that holds `image`, rounded up to whole sectors with zeros.
    pub fn from_image(image: &[u8]) -> Result<MemoryDevice, DeviceError> {
        let device = MemoryDevice::new(image.len() as u64)?;
        device.poke(0, image);
        Ok(device)
    }

    /// A copy of the whole contents.
    pub fn image(&self) -> Vec<u8> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner).bytes().to_vec()
    }

    /// Overwrites bytes at any offset, aligned or not: for planting corruption.
    ///
    /// # Panics
    /// When the range leaves the device.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        contents.bytes_mut()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Bytes at any offset, aligned or not.
    ///
    /// # Panics
    /// When the range leaves the device.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        contents.bytes()[offset as usize..][..length].to_vec()
    }
}

impl Mapping {
    fn new(length: usize) -> Result<Mapping, DeviceError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping touches no memory that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            let source = std::io::Error::last_os_error();
            return Err(DeviceError::Memory { bytes: length, source });
        }
        let start =
            NonNull::new(start.cast()).expect("invariant: mmap never maps address zero by itself");
        Ok(Mapping { start, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `length` zero-initialized bytes that the mapping owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `length` zero-initialized bytes that the mapping owns, borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and no borrow outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl BlockDevice for MemoryDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn alignment(&self) -> usize {
        // As strict as the strictest disk, so that tests in memory find what a disk would refuse.
        SECTOR_BYTES
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let length = check_alignment(offset, into.iter().map(|piece| &**piece), SECTOR_BYTES)?;
        check_bounds(offset, length, self.capacity)?;
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let mut from = &contents.bytes()[offset as usize..];
        for piece in into {
            let (now, later) = from.split_at(piece.len());
            piece.copy_from_slice(now);
            from = later;
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let length = check_alignment(offset, from.iter().map(|piece| &**piece), SECTOR_BYTES)?;
        check_bounds(offset, length, self.capacity)?;
        let mut contents = self.contents.write().unwrap_or_else(PoisonError::into_inner);
        let mut at = offset as usize;
        for piece in from {
            contents.bytes_mut()[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AlignedBuffer;

    #[test]
    fn reads_back_what_was_written_in_other_pieces() {
        let device = MemoryDevice::new(64 << 10).unwrap();
        let mut first = AlignedBuffer::zeroed(4096);
        let mut second = AlignedBuffer::zeroed(8192);
        first.fill(1);
        second.fill(2);
        device.write(4096, &[IoSlice::new(&first), IoSlice::new(&second)]).unwrap();
        let mut whole = AlignedBuffer::zeroed(16384);
        device.read(0, &mut [IoSliceMut::new(&mut whole)]).unwrap();
        assert!(whole[..4096].iter().all(|&byte| byte == 0));
        assert!(whole[4096..8192].iter().all(|&byte| byte == 1));
        assert!(whole[8192..].iter().all(|&byte| byte == 2));
    }

    #[test]
    fn refuses_what_is_outside_or_unaligned() {
        let device = MemoryDevice::new(8192).unwrap();
        let buffer = AlignedBuffer::zeroed(8192);
        let outside = device.write(4096, &[IoSlice::new(&buffer)]);
        assert!(matches!(outside, Err(DeviceError::OutOfBounds { .. })));
        let far = device.write(u64::MAX - 4095, &[IoSlice::new(&buffer)]);
        assert!(matches!(far, Err(DeviceError::OutOfBounds { .. })));
        let short = device.write(0, &[IoSlice::new(&buffer[..100])]);
        assert!(matches!(short, Err(DeviceError::Unaligned { .. })));
        let odd = device.write(512, &[IoSlice::new(&buffer[..4096])]);
        assert!(matches!(odd, Err(DeviceError::Unaligned { .. })));
    }

    #[test]
    fn large_devices_cost_only_what_is_written() {
        let device = MemoryDevice::new(1 << 40).unwrap();
        let buffer = AlignedBuffer::zeroed(4096);
        device.write((1 << 40) - 4096, &[IoSlice::new(&buffer)]).unwrap();
    }
}
