//! Numbers in bytes, and reading the device at any offset.

use std::io::IoSliceMut;

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};

/// Bytes of a block, as a number of the device's address space.
pub(crate) const BLOCK: u64 = 4096;
/// Bytes of a block, as a length in memory.
pub(crate) const BLOCK_LENGTH: usize = 4096;

/// A fixed piece of `bytes`; zeros where `bytes` ends, which callers rule out by length.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(from) = at.checked_add(N).and_then(|end| bytes.get(at..end)) {
        out.copy_from_slice(from);
    }
    out
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn all_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The checksum of `bytes` with the four bytes at `field` taken as zero, after `before`.
pub(crate) fn checksum_without(before: &[u8], bytes: &[u8], field: usize) -> u32 {
    let sum = crc32c::crc32c(before);
    let sum = crc32c::crc32c_append(sum, bytes.get(..field).unwrap_or_default());
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, bytes.get(field + 4..).unwrap_or_default())
}

/// The `length` bytes at `offset` of the device, which need not be aligned.
pub(crate) fn read_bytes(
    device: &dyn BlockDevice,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, DeviceError> {
    let start = offset / BLOCK * BLOCK;
    let skip = (offset - start) as usize;
    let buffer = read_blocks(device, start, skip + length)?;
    Ok(buffer[skip..skip + length].to_vec())
}

/// The blocks that hold `length` bytes from the block boundary `offset` on.
pub(crate) fn read_blocks(
    device: &dyn BlockDevice,
    offset: u64,
    length: usize,
) -> Result<AlignedBuffer, DeviceError> {
    let mut buffer = AlignedBuffer::zeroed(length);
    device.read(offset, &mut [IoSliceMut::new(&mut buffer)])?;
    Ok(buffer)
}
