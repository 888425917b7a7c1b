//! Records of extents, and of the checksums of data blocks.

use nasd_types::Compression;

use super::{Checker, ExtentKey, LOGICAL_BLOCKS_MAX, RecordError, parse_extent_key, seal};
use crate::frames::FRAME_BLOCKS;
use crate::free_map::Run;
use crate::layout::layout;

/// Most blocks of one extent.
pub(crate) const EXTENT_BLOCKS_MAX: u64 = 32768;

/// Data blocks whose checksums are in one record.
pub(crate) const GROUP_BLOCKS: u64 = 128;

layout! {
    /// Value of the extents table.
    pub(crate) mod extent {
        VERSION: 1,
        CODEC: 1,
        RESERVED: 2,
        CHECKSUM: 4,
        PHYSICAL: 8,
        BLOCKS: 4,
        STORED: 4,
        LENGTH: 4,
        RESERVED2: 4,
    }
}

layout! {
    /// Head of a value of the sums table; four bytes for each block of the group follow.
    pub(crate) mod sums {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
    }
}

/// Bytes of a sums record.
const SUMS_BYTES: usize = sums::BYTES + 4 * GROUP_BLOCKS as usize;

/// How an extent's blocks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// As they are, one data block each.
    Plain,
    /// As one compressed stream.
    Packed {
        /// By which codec; not `Compression::None`.
        compression: Compression,
        /// Data blocks that it takes.
        stored: u32,
        /// Bytes of the stream.
        length: u32,
    },
}

/// Blocks of an object that lie one after the other on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first block, within the object.
    pub(crate) logical: u64,
    /// How many blocks of the object.
    pub(crate) blocks: u64,
    /// The first data block.
    pub(crate) physical: u64,
    /// How they are stored.
    pub(crate) codec: Codec,
}

impl Extent {
    /// The block behind the last, within the object.
    pub(crate) fn end(&self) -> u64 {
        self.logical + self.blocks
    }

    /// The data blocks.
    pub(crate) fn run(&self) -> Run {
        let blocks = match self.codec {
            Codec::Plain => self.blocks,
            Codec::Packed { stored, .. } => u64::from(stored),
        };
        Run { start: self.physical, blocks }
    }

    /// Whether it is compressed.
    pub(crate) fn is_packed(&self) -> bool {
        self.codec != Codec::Plain
    }

    /// Whether `next` goes on where this ends, within the object and on the device.
    pub(crate) fn is_continued_by(&self, next: &Extent) -> bool {
        let is_plain = !self.is_packed() && !next.is_packed();
        is_plain && self.end() == next.logical && self.run().end() == next.physical
    }

    /// What of it lies within the blocks `[from, to)`: all of it if it is compressed and touched.
    pub(crate) fn clip(&self, from: u64, to: u64) -> Option<Extent> {
        let (start, end) = (self.logical.max(from), self.end().min(to));
        if start >= end {
            return None;
        }
        if self.is_packed() {
            return Some(*self);
        }
        let physical = self.physical + (start - self.logical);
        Some(Extent { logical: start, blocks: end - start, physical, codec: Codec::Plain })
    }

    /// The record's bytes.
    pub(crate) fn encode(&self, key: &ExtentKey) -> [u8; extent::BYTES] {
        let mut record = [0; extent::BYTES];
        let (codec, stored, length) = match self.codec {
            Codec::Plain => (0, self.blocks as u32, 0),
            Codec::Packed { compression, stored, length } => (compression as u8, stored, length),
        };
        extent::CODEC.put(&mut record, &[codec]);
        extent::PHYSICAL.put(&mut record, &self.physical.to_le_bytes());
        extent::BLOCKS.put(&mut record, &(self.blocks as u32).to_le_bytes());
        extent::STORED.put(&mut record, &stored.to_le_bytes());
        extent::LENGTH.put(&mut record, &length.to_le_bytes());
        seal(key, &mut record, extent::CHECKSUM);
        record
    }

    /// Reads a record found under `key`, on a device with `data_blocks` data blocks.
    pub(crate) fn parse(
        key: &ExtentKey,
        record: &[u8],
        data_blocks: u64,
    ) -> Result<Extent, RecordError> {
        let checker = Checker { kind: "extent", key };
        checker.envelope(record, extent::BYTES, extent::CHECKSUM)?;
        checker.zero(record, &[extent::RESERVED, extent::RESERVED2])?;
        let found = Extent::from_fields(
            parse_extent_key(key).1,
            extent::PHYSICAL.u64(record),
            extent::CODEC.of(record)[0],
            [extent::BLOCKS, extent::STORED, extent::LENGTH].map(|field| field.u32(record)),
        );
        let found = found.map_err(|problem| checker.fail(problem))?;
        let end = found.physical.checked_add(found.run().blocks);
        checker
            .ensure(end.is_some_and(|end| end <= data_blocks), "it reaches behind the device")?;
        Ok(found)
    }

    /// An extent of these numbers (blocks, stored, length), if they make sense. Where it lies on the
    /// device is not checked.
    pub(crate) fn from_fields(
        logical: u64,
        physical: u64,
        codec: u8,
        [blocks, stored, length]: [u32; 3],
    ) -> Result<Extent, &'static str> {
        let blocks = u64::from(blocks);
        let end = logical.checked_add(blocks);
        if end.is_none_or(|end| end > LOGICAL_BLOCKS_MAX) {
            return Err("it reaches behind the largest object");
        }
        let compression = Compression::from_number(codec).ok_or("the codec is not known")?;
        let codec = if compression == Compression::None {
            if !(1..=EXTENT_BLOCKS_MAX).contains(&blocks)
                || u64::from(stored) != blocks
                || length > 0
            {
                return Err("a number of blocks makes no sense");
            }
            Codec::Plain
        } else {
            let frame = FRAME_BLOCKS as u64;
            let within =
                (2..=frame).contains(&blocks) && logical / frame == (logical + blocks - 1) / frame;
            let bytes = nasd_types::limits::BLOCK_BYTES as u32;
            let shorter =
                stored >= 1 && u64::from(stored) < blocks && length.div_ceil(bytes) == stored;
            if !within || !shorter {
                return Err("a compressed extent makes no sense");
            }
            Codec::Packed { compression, stored, length }
        };
        Ok(Extent { logical, blocks, physical, codec })
    }
}

/// The checksums of a group of data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sums(pub(crate) [u32; GROUP_BLOCKS as usize]);

impl Sums {
    /// The record's bytes.
    pub(crate) fn encode(&self, group: u64) -> [u8; SUMS_BYTES] {
        let mut record = [0; SUMS_BYTES];
        for (bytes, sum) in record[sums::BYTES..].chunks_exact_mut(4).zip(&self.0) {
            bytes.copy_from_slice(&sum.to_le_bytes());
        }
        seal(&group.to_be_bytes(), &mut record, sums::CHECKSUM);
        record
    }

    /// Reads a record found under `group`.
    pub(crate) fn parse(group: u64, record: &[u8]) -> Result<Sums, RecordError> {
        let checker = Checker { kind: "sums", key: &group.to_be_bytes() };
        checker.envelope(record, SUMS_BYTES, sums::CHECKSUM)?;
        checker.zero(record, &[sums::RESERVED])?;
        let mut found = [0; GROUP_BLOCKS as usize];
        for (sum, bytes) in found.iter_mut().zip(record[sums::BYTES..].chunks_exact(4)) {
            let mut four = [0; 4];
            four.copy_from_slice(bytes);
            *sum = u32::from_le_bytes(four);
        }
        Ok(Sums(found))
    }
}

/// Cuts a run of data blocks where it goes from one group to the next: the group, the place of the
/// piece's first block in it, and how many blocks.
pub(crate) fn groups(run: Run) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut start = run.start;
    std::iter::from_fn(move || {
        if start >= run.end() {
            return None;
        }
        let group = start / GROUP_BLOCKS;
        let within = start % GROUP_BLOCKS;
        let blocks = (GROUP_BLOCKS - within).min(run.end() - start);
        start += blocks;
        Some((group, within as usize, blocks as usize))
    })
}
