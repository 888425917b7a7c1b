//! The superblock: who the drive is and where its parts lie. Two copies, each with a checksum.
//!
//! The copies are written one after the other with a sync between them, so that a crash leaves at
//! least one of them whole. A reader takes the valid one with the higher sequence number.

use std::io::{IoSlice, IoSliceMut};

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{CellId, DriveId, Timestamp};

use crate::OpenError;
use crate::geometry::Geometry;
use crate::layout::layout;

/// The first bytes of a superblock.
pub(crate) const MAGIC: [u8; 8] = *b"NASDdisk";

/// The version of everything on the device. Raised with every change that an older program could
/// not read.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// Where the two copies lie, in bytes. They are far enough apart that one misplaced or oversized
/// write does not take both.
pub(crate) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 512 << 10];

layout! {
    /// A superblock; the rest of its block is zero.
    pub(crate) mod field {
        MAGIC: 8,
        VERSION: 4,
        CHECKSUM: 4,
        SEQUENCE: 8,
        DRIVE: 8,
        CELL: 16,
        FORMATTED: 8,
        BLOCK_SIZE: 4,
        RESERVED: 4,
        DEVICE_BYTES: 8,
        LOG_OFFSET: 8,
        LOG_BYTES: 8,
        METADATA_OFFSET: 8,
        METADATA_BYTES: 8,
        DATA_OFFSET: 8,
        DATA_BLOCKS: 8,
        LOG_KEY: 8,
    }
}

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) sequence: u64,
    pub(crate) drive: DriveId,
    pub(crate) cell: CellId,
    pub(crate) formatted: Timestamp,
    pub(crate) geometry: Geometry,
    /// Tells the log's entries from what looks like one.
    pub(crate) log_key: u64,
}

/// Why a block is not a usable superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// Another program's data, or zeros.
    NoMagic,
    /// The checksum does not match.
    Checksum,
    /// Of another version.
    Version(u32),
    /// The checksum matches, but a field makes no sense.
    Field(String),
}

/// What was found in the two places.
pub(crate) struct Found {
    /// The newest valid superblock.
    pub(crate) superblock: Superblock,
    /// The place (0 or 1) whose copy is missing, damaged or older.
    pub(crate) stale: Option<usize>,
}

fn checksum(block: &[u8; BLOCK_BYTES]) -> u32 {
    let mut copy = *block;
    field::CHECKSUM.put(&mut copy, &[0; 4]);
    crc32c::crc32c(&copy)
}

impl Superblock {
    /// The block's bytes.
    pub(crate) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        field::MAGIC.put(&mut block, &MAGIC);
        field::VERSION.put(&mut block, &FORMAT_VERSION.to_le_bytes());
        field::SEQUENCE.put(&mut block, &self.sequence.to_le_bytes());
        field::DRIVE.put(&mut block, &self.drive.0.to_le_bytes());
        field::CELL.put(&mut block, &self.cell.0);
        field::FORMATTED.put(&mut block, &self.formatted.0.to_le_bytes());
        field::BLOCK_SIZE.put(&mut block, &(BLOCK_BYTES as u32).to_le_bytes());
        field::DEVICE_BYTES.put(&mut block, &self.geometry.device_bytes.to_le_bytes());
        field::LOG_OFFSET.put(&mut block, &self.geometry.log_offset.to_le_bytes());
        field::LOG_BYTES.put(&mut block, &self.geometry.log_bytes.to_le_bytes());
        field::METADATA_OFFSET.put(&mut block, &self.geometry.metadata_offset.to_le_bytes());
        field::METADATA_BYTES.put(&mut block, &self.geometry.metadata_bytes.to_le_bytes());
        field::DATA_OFFSET.put(&mut block, &self.geometry.data_offset.to_le_bytes());
        field::DATA_BLOCKS.put(&mut block, &self.geometry.data_blocks.to_le_bytes());
        field::LOG_KEY.put(&mut block, &self.log_key.to_le_bytes());
        let sum = checksum(&block);
        field::CHECKSUM.put(&mut block, &sum.to_le_bytes());
        block
    }

    /// Reads a block found on a device of `capacity` bytes.
    pub(crate) fn parse(block: &[u8; BLOCK_BYTES], capacity: u64) -> Result<Superblock, Invalid> {
        if field::MAGIC.of(block) != MAGIC {
            return Err(Invalid::NoMagic);
        }
        if field::CHECKSUM.u32(block) != checksum(block) {
            return Err(Invalid::Checksum);
        }
        // After the checksum: a flipped bit in the version is damage, not another version.
        let version = field::VERSION.u32(block);
        if version != FORMAT_VERSION {
            return Err(Invalid::Version(version));
        }
        if field::BLOCK_SIZE.u32(block) != BLOCK_BYTES as u32 {
            return Err(Invalid::Field("the block size is not 4096".to_owned()));
        }
        let geometry = Geometry {
            device_bytes: field::DEVICE_BYTES.u64(block),
            log_offset: field::LOG_OFFSET.u64(block),
            log_bytes: field::LOG_BYTES.u64(block),
            metadata_offset: field::METADATA_OFFSET.u64(block),
            metadata_bytes: field::METADATA_BYTES.u64(block),
            data_offset: field::DATA_OFFSET.u64(block),
            data_blocks: field::DATA_BLOCKS.u64(block),
        };
        geometry.check(capacity).map_err(Invalid::Field)?;
        Ok(Superblock {
            sequence: field::SEQUENCE.u64(block),
            drive: DriveId(field::DRIVE.u64(block)),
            cell: CellId(field::CELL.array(block)),
            formatted: Timestamp(field::FORMATTED.u64(block)),
            geometry,
            log_key: field::LOG_KEY.u64(block),
        })
    }
}

fn read_place(device: &dyn BlockDevice, place: usize) -> Result<[u8; BLOCK_BYTES], DeviceError> {
    let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
    device.read(SUPERBLOCK_OFFSETS[place], &mut [IoSliceMut::new(&mut buffer)])?;
    let mut block = [0; BLOCK_BYTES];
    block.copy_from_slice(&buffer);
    Ok(block)
}

/// Finds the superblock of a device.
pub(crate) fn find(device: &dyn BlockDevice) -> Result<Found, OpenError> {
    if device.capacity() < SUPERBLOCK_OFFSETS[1] + BLOCK_BYTES as u64 {
        return Err(OpenError::NotNasd);
    }
    // A place that can't be read is as bad as one that is damaged: the other may serve.
    let places = [0, 1].map(|place| read_place(device, place));
    let mut outcomes = Vec::with_capacity(2);
    for read in places {
        outcomes.push(match read {
            Ok(block) => Superblock::parse(&block, device.capacity()),
            Err(error) => Err(Invalid::Field(error.to_string())),
        });
    }
    match (&outcomes[0], &outcomes[1]) {
        (Ok(a), Ok(b)) if a == b => Ok(Found { superblock: *a, stale: None }),
        (Ok(a), Ok(b)) if a.sequence >= b.sequence => Ok(Found { superblock: *a, stale: Some(1) }),
        (Ok(a), Err(_)) => Ok(Found { superblock: *a, stale: Some(1) }),
        (_, Ok(b)) => Ok(Found { superblock: *b, stale: Some(0) }),
        (Err(a), Err(b)) => Err(worst(a, b)),
    }
}

/// The answer when neither copy is usable: what is most certainly so comes first.
fn worst(a: &Invalid, b: &Invalid) -> OpenError {
    let both = [a, b];
    if both.iter().all(|invalid| **invalid == Invalid::NoMagic) {
        return OpenError::NotNasd;
    }
    for invalid in both {
        if let Invalid::Version(found) = invalid {
            return OpenError::WrongVersion { found: *found, supported: FORMAT_VERSION };
        }
    }
    OpenError::Damaged(format!("superblock A: {}; superblock B: {}", a.reason(), b.reason()))
}

impl Invalid {
    fn reason(&self) -> &str {
        match self {
            Invalid::NoMagic => "it does not begin as one",
            Invalid::Checksum => "its checksum does not match",
            Invalid::Version(_) => "it is of another version",
            Invalid::Field(reason) => reason,
        }
    }
}

/// Writes one copy and makes it durable.
pub(crate) fn write_place(
    device: &dyn BlockDevice,
    place: usize,
    block: &[u8; BLOCK_BYTES],
) -> Result<(), DeviceError> {
    let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
    buffer.copy_from_slice(block);
    device.write(SUPERBLOCK_OFFSETS[place], &[IoSlice::new(&buffer)])?;
    device.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_device::MemoryDevice;

    const CAPACITY: u64 = 64 << 20;

    fn sample(sequence: u64) -> Superblock {
        Superblock {
            sequence,
            drive: DriveId(0x1122_3344_5566_7788),
            cell: CellId([7; 16]),
            formatted: Timestamp(99),
            geometry: Geometry::plan(CAPACITY, None).unwrap(),
            log_key: 0x1234,
        }
    }

    fn device(copies: [Option<[u8; BLOCK_BYTES]>; 2]) -> MemoryDevice {
        let device = MemoryDevice::new(CAPACITY).unwrap();
        for (offset, copy) in SUPERBLOCK_OFFSETS.into_iter().zip(copies) {
            if let Some(block) = copy {
                device.poke(offset, &block);
            }
        }
        device
    }

    #[test]
    fn survives_its_bytes() {
        let superblock = sample(3);
        assert_eq!(Superblock::parse(&superblock.encode(), CAPACITY), Ok(superblock));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = sample(3).encode();
        for byte in 0..BLOCK_BYTES {
            let mut bad = good;
            bad[byte] ^= 1 << (byte % 8);
            assert!(Superblock::parse(&bad, CAPACITY).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn a_device_smaller_than_formatted_is_refused() {
        let block = sample(1).encode();
        assert!(matches!(Superblock::parse(&block, CAPACITY - 4096), Err(Invalid::Field(_))));
    }

    #[test]
    fn the_newer_valid_copy_counts() {
        let (old, new) = (sample(1), sample(2));
        let mut broken = new.encode();
        broken[200] ^= 1;
        let cases = [
            (Some(new.encode()), Some(new.encode()), new, None),
            (Some(old.encode()), Some(new.encode()), new, Some(0)),
            (Some(new.encode()), Some(old.encode()), new, Some(1)),
            (Some(broken), Some(old.encode()), old, Some(0)),
            (Some(old.encode()), Some(broken), old, Some(1)),
            (None, Some(old.encode()), old, Some(0)),
        ];
        for (a, b, expected, stale) in cases {
            let found = find(&device([a, b])).unwrap();
            assert_eq!(found.superblock, expected);
            assert_eq!(found.stale, stale);
        }
    }

    #[test]
    fn what_is_wrong_with_both_is_told() {
        assert!(matches!(find(&device([None, None])), Err(OpenError::NotNasd)));
        let mut broken = sample(1).encode();
        broken[200] ^= 1;
        let damaged = find(&device([Some(broken), Some(broken)]));
        assert!(matches!(damaged, Err(OpenError::Damaged(_))));
        let mut other = sample(1).encode();
        field::VERSION.put(&mut other, &9u32.to_le_bytes());
        let sum = checksum(&other);
        field::CHECKSUM.put(&mut other, &sum.to_le_bytes());
        let version = find(&device([Some(other), None]));
        assert!(matches!(
            version,
            Err(OpenError::WrongVersion { found: 9, supported: FORMAT_VERSION })
        ));
    }
}
