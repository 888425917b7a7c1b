//! The two superblocks: which of them counts, and where the parts of the drive lie.

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};
use std::io::IoSlice;

use crate::bytes::{
    BLOCK, BLOCK_LENGTH, all_zero, array, checksum_without, le32, le64, put32, put64, read_blocks,
};
use crate::finding::{Code, Subject};
use crate::sink::Sink;

const MAGIC: &[u8; 8] = b"NASDdisk";
const VERSION: u32 = 2;
/// Where each copy is.
pub(crate) const PLACES: [u64; 2] = [0, 512 << 10];
const LOG_OFFSET: u64 = 1 << 20;
const CHECKSUM_FIELD: usize = 12;
const FIELDS_END: usize = 128;

/// What a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) sequence: u64,
    pub(crate) drive: u64,
    pub(crate) cell: [u8; 16],
    pub(crate) formatted: u64,
    pub(crate) device_bytes: u64,
    pub(crate) log_offset: u64,
    pub(crate) log_bytes: u64,
    pub(crate) metadata_offset: u64,
    pub(crate) metadata_bytes: u64,
    pub(crate) data_offset: u64,
    pub(crate) data_blocks: u64,
    /// What tells the drive's log entries from contents that look like one. It never leaves here.
    pub(crate) log_key: u64,
}

/// What one copy turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    Valid(Superblock),
    NoMagic,
    OtherVersion(u32),
    Truncated { needed: u64 },
    Damaged(String),
}

impl Superblock {
    /// First byte of a data block on the device.
    pub(crate) fn byte_of(&self, block: u64) -> u64 {
        self.data_offset.saturating_add(block.saturating_mul(BLOCK))
    }

    /// The block as it is written.
    pub(crate) fn encode(&self) -> [u8; BLOCK_LENGTH] {
        let mut block = [0; BLOCK_LENGTH];
        block[..8].copy_from_slice(MAGIC);
        put32(&mut block, 8, VERSION);
        put64(&mut block, 16, self.sequence);
        put64(&mut block, 24, self.drive);
        block[32..48].copy_from_slice(&self.cell);
        put64(&mut block, 48, self.formatted);
        put32(&mut block, 56, BLOCK as u32);
        put64(&mut block, 64, self.device_bytes);
        put64(&mut block, 72, self.log_offset);
        put64(&mut block, 80, self.log_bytes);
        put64(&mut block, 88, self.metadata_offset);
        put64(&mut block, 96, self.metadata_bytes);
        put64(&mut block, 104, self.data_offset);
        put64(&mut block, 112, self.data_blocks);
        put64(&mut block, 120, self.log_key);
        let sum = checksum_without(&[], &block, CHECKSUM_FIELD);
        put32(&mut block, CHECKSUM_FIELD, sum);
        block
    }
}

/// Parses one copy for a device of `capacity` bytes; total over all bytes.
pub(crate) fn parse(block: &[u8], capacity: u64) -> Copy {
    if block.get(..8) != Some(MAGIC) {
        return Copy::NoMagic;
    }
    if block.len() != BLOCK_LENGTH
        || checksum_without(&[], block, CHECKSUM_FIELD) != le32(block, CHECKSUM_FIELD)
    {
        return Copy::Damaged("it does not match its checksum".to_owned());
    }
    let version = le32(block, 8);
    if version != VERSION {
        return Copy::OtherVersion(version);
    }
    let superblock = Superblock {
        sequence: le64(block, 16),
        drive: le64(block, 24),
        cell: array(block, 32),
        formatted: le64(block, 48),
        device_bytes: le64(block, 64),
        log_offset: le64(block, 72),
        log_bytes: le64(block, 80),
        metadata_offset: le64(block, 88),
        metadata_bytes: le64(block, 96),
        data_offset: le64(block, 104),
        data_blocks: le64(block, 112),
        log_key: le64(block, 120),
    };
    if u64::from(le32(block, 56)) != BLOCK {
        return Copy::Damaged(format!("it says a block has {} bytes", le32(block, 56)));
    }
    if le32(block, 60) != 0 || !all_zero(&block[FIELDS_END..]) {
        return Copy::Damaged("its reserved bytes are not zero".to_owned());
    }
    match senseless(&superblock) {
        Some(reason) => Copy::Damaged(reason.to_owned()),
        None if superblock.device_bytes > capacity => {
            Copy::Truncated { needed: superblock.device_bytes }
        }
        None => Copy::Valid(superblock),
    }
}

/// What of the geometry contradicts itself.
fn senseless(superblock: &Superblock) -> Option<&'static str> {
    let log = superblock.log_bytes;
    if superblock.log_offset != LOG_OFFSET
        || !log.is_multiple_of(BLOCK)
        || !(256 << 10..=64 << 20).contains(&log)
    {
        return Some("the log has no valid place or size");
    }
    if superblock.metadata_offset != LOG_OFFSET + log || !region_size(superblock.metadata_bytes) {
        return Some("the metadata region has no valid place or size");
    }
    let end = superblock.metadata_offset.checked_add(superblock.metadata_bytes);
    if end != Some(superblock.data_offset) {
        return Some("the data does not begin where the metadata region ends");
    }
    let data = superblock.data_blocks.checked_mul(BLOCK);
    let end = data.and_then(|bytes| bytes.checked_add(superblock.data_offset));
    if end != Some(superblock.device_bytes) || superblock.device_bytes > 1 << 62 {
        return Some("the data blocks do not fill the device");
    }
    None
}

/// Whether a metadata region may have this many bytes.
fn region_size(bytes: u64) -> bool {
    const WHOLE: u64 = 4 << 30;
    if bytes <= WHOLE {
        bytes >= 2 << 20 && bytes.is_multiple_of(256 << 10)
    } else {
        let whole = bytes - BLOCK;
        whole.is_multiple_of(WHOLE) && whole / WHOLE >= 2
    }
}

/// Reads both copies and says which superblock counts; `None` when the check can't go on.
/// The second value tells which copies a repair writes anew.
pub(crate) fn choose(device: &dyn BlockDevice, sink: &mut Sink) -> Option<(Superblock, [bool; 2])> {
    let copies = PLACES.map(|place| {
        if device.capacity() < place + BLOCK {
            return Copy::NoMagic;
        }
        match read_blocks(device, place, BLOCK_LENGTH) {
            Ok(block) => parse(&block, device.capacity()),
            Err(error) => Copy::Damaged(error.to_string()),
        }
    });
    match copies {
        [Copy::Valid(a), Copy::Valid(b)] => Some(of_two(a, b, sink)),
        [Copy::Valid(a), other] => {
            sink.drive(Code::SuperblockBDamaged, describe(&other));
            Some((a, [false, true]))
        }
        [other, Copy::Valid(b)] => {
            sink.drive(Code::SuperblockADamaged, describe(&other));
            Some((b, [true, false]))
        }
        [Copy::NoMagic, Copy::NoMagic] => {
            sink.drive(Code::NotADrive, "the device was never formatted, or is overwritten");
            None
        }
        [a, b] => {
            none_valid(&a, &b, device.capacity(), sink);
            None
        }
    }
}

fn of_two(a: Superblock, b: Superblock, sink: &mut Sink) -> (Superblock, [bool; 2]) {
    if a == b {
        return (a, [false, false]);
    }
    let detail = format!("A has sequence {}, B {}", a.sequence, b.sequence);
    match a.sequence.cmp(&b.sequence) {
        std::cmp::Ordering::Greater => {
            sink.drive(Code::SuperblockBOlder, detail);
            (a, [false, true])
        }
        std::cmp::Ordering::Less => {
            sink.drive(Code::SuperblockAOlder, detail);
            (b, [true, false])
        }
        std::cmp::Ordering::Equal => {
            sink.drive(Code::SuperblockConflict, detail);
            (a, [false, true])
        }
    }
}

fn none_valid(a: &Copy, b: &Copy, capacity: u64, sink: &mut Sink) {
    let detail = format!("A: {}; B: {}", describe(a), describe(b));
    for copy in [a, b] {
        match copy {
            Copy::OtherVersion(version) => {
                let detail = format!("it has version {version}, this program knows {VERSION}");
                return sink.drive(Code::UnknownVersion, detail);
            }
            Copy::Truncated { needed } => {
                let detail = format!("formatted for {needed} bytes, and the device has {capacity}");
                return sink.drive(Code::DeviceTruncated, detail);
            }
            _ => {}
        }
    }
    sink.add(Code::SuperblocksDamaged, Subject::Drive, detail);
}

fn describe(copy: &Copy) -> String {
    match copy {
        Copy::Valid(_) => "valid".to_owned(),
        Copy::NoMagic => "it has no magic".to_owned(),
        Copy::OtherVersion(version) => format!("it has version {version}"),
        Copy::Truncated { needed } => format!("it was formatted for {needed} bytes"),
        Copy::Damaged(reason) => reason.clone(),
    }
}

/// Writes the copies that `stale` marks, syncing after each.
pub(crate) fn rewrite(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    stale: [bool; 2],
) -> Result<(), DeviceError> {
    let mut block = AlignedBuffer::zeroed(BLOCK_LENGTH);
    block.copy_from_slice(&superblock.encode());
    for (place, stale) in PLACES.into_iter().zip(stale) {
        if stale {
            device.write(place, &[IoSlice::new(&block)])?;
            device.sync()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Superblock {
        let data_offset = (1 << 20) + (256 << 10) + (2 << 20);
        Superblock {
            sequence: 3,
            drive: 7,
            cell: [1; 16],
            formatted: 9,
            device_bytes: data_offset + 512 * BLOCK,
            log_offset: 1 << 20,
            log_bytes: 256 << 10,
            metadata_offset: (1 << 20) + (256 << 10),
            metadata_bytes: 2 << 20,
            data_offset,
            data_blocks: 512,
            log_key: 11,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let superblock = sample();
        let capacity = superblock.device_bytes;
        assert_eq!(parse(&superblock.encode(), capacity), Copy::Valid(superblock.clone()));
        let parsed = parse(&superblock.encode(), capacity - 1);
        assert_eq!(parsed, Copy::Truncated { needed: capacity });
    }

    #[test]
    fn region_sizes_follow_the_rule() {
        for good in [2 << 20, 4 << 30, (8 << 30) + 4096, (12 << 30) + 4096] {
            assert!(region_size(good), "{good}");
        }
        for bad in [0, 1 << 20, (2 << 20) + 4096, (4 << 30) + 4096, 8 << 30, u64::MAX] {
            assert!(!region_size(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let mut bytes = bytes;
            parse(&bytes, 1 << 30);
            if bytes.len() >= 8 {
                bytes[..8].copy_from_slice(MAGIC);
            }
            parse(&bytes, 1 << 30);
        }

        #[test]
        fn a_flipped_bit_is_damage(bit in 64..BLOCK_LENGTH * 8) {
            let mut block = sample().encode();
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(matches!(parse(&block, 1 << 30), Copy::Damaged(_)));
        }
    }
}
