//! The fields of a superblock, for people to read (docs/on-disk-format.md, section 2). Whether a copy
//! is valid is for the checker to say.

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError, SECTOR_BYTES};
use nasd_types::Timestamp;
use serde::Serialize;
use std::io::IoSliceMut;

/// First bytes of the two copies.
pub const OFFSETS: [u64; 2] = [0, 512 << 10];

/// What one copy says, sizes and places in bytes.
#[derive(Debug, Clone, Serialize)]
pub struct Superblock {
    /// Of everything on the device.
    pub version: u32,
    /// Counts the writes of the superblock.
    pub sequence: u64,
    /// Time of formatting.
    pub formatted_ns: u64,
    pub block_bytes: u32,
    /// What of the device is used.
    pub device_bytes: u64,
    pub log_offset: u64,
    pub log_bytes: u64,
    pub metadata_offset: u64,
    pub metadata_bytes: u64,
    pub data_offset: u64,
    pub data_blocks: u64,
}

impl Superblock {
    /// Reads the copy at `offset`, whatever it says.
    ///
    /// # Errors
    /// The device's.
    pub fn read(device: &dyn BlockDevice, offset: u64) -> Result<Self, DeviceError> {
        let mut block = AlignedBuffer::zeroed(SECTOR_BYTES);
        device.read(offset, &mut [IoSliceMut::new(&mut block)])?;
        Ok(Self::parse(&block))
    }

    fn parse(block: &[u8]) -> Self {
        let u32_at = |at: usize| number(&block[at..at + 4]) as u32;
        let u64_at = |at: usize| number(&block[at..at + 8]);
        Superblock {
            version: u32_at(8),
            sequence: u64_at(16),
            formatted_ns: u64_at(48),
            block_bytes: u32_at(56),
            device_bytes: u64_at(64),
            log_offset: u64_at(72),
            log_bytes: u64_at(80),
            metadata_offset: u64_at(88),
            metadata_bytes: u64_at(96),
            data_offset: u64_at(104),
            data_blocks: u64_at(112),
        }
    }

    /// When the drive was formatted.
    pub fn formatted(&self) -> Timestamp {
        Timestamp(self.formatted_ns)
    }
}

/// A little-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
