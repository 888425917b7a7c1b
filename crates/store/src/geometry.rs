//! Where the parts of a drive lie on its device.
//!
//! Superblock A, superblock B, the log, the metadata region, the data blocks. The sizes are chosen
//! when the device is formatted; only the number of data blocks can change.

use nasd_types::limits::{BLOCK_BYTES, MAX_OBJECT_BYTES};

use crate::FormatError;

/// Where the log begins, in bytes: behind both superblocks.
pub(crate) const LOG_OFFSET: u64 = 1 << 20;

/// One in this many bytes of the device is for the log, within the two bounds below.
const LOG_SHARE: u64 = 64;

/// The smallest log.
pub(crate) const LOG_MIN: u64 = 256 << 10;

/// The largest log: enough for seconds of small flushes, and little enough to replay in one.
pub(crate) const LOG_MAX: u64 = 64 << 20;

/// What the metadata region's size is a multiple of, up to `METADATA_SMALL_MAX`: see
/// `metadata::region` for what the remainder of 63 pages behind the first one is good for.
pub(crate) const METADATA_STEP: u64 = 64 * BLOCK_BYTES as u64;

/// The smallest metadata region.
pub(crate) const METADATA_MIN: u64 = 2 << 20;

/// Bytes of the tree's largest internal region: a metadata region up to this size is one of them.
pub(crate) const TREE_REGION_BYTES: u64 = 4 << 30;

/// The largest metadata region that is not made of whole tree regions.
pub(crate) const METADATA_SMALL_MAX: u64 = TREE_REGION_BYTES;

/// One in this many bytes of the device is for metadata, unless the caller chooses. A fully
/// fragmented device needs about 1.8 % for its extents, and the tree may fill a quarter of the
/// region (see `metadata::capacity`).
const METADATA_SHARE: u64 = 16;

/// The metadata region is at least one in this many bytes of the device: four times the checksums of
/// all data blocks, at three groups a page.
const CHECKSUMS_SHARE: u64 = 96;

/// The fewest data blocks that make sense.
pub(crate) const DATA_BLOCKS_MIN: u64 = 256;

/// Places and sizes, in bytes unless they count blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// What of the device is used.
    pub(crate) device_bytes: u64,
    /// First byte of the log.
    pub(crate) log_offset: u64,
    /// Length of the log.
    pub(crate) log_bytes: u64,
    /// First byte of the metadata region.
    pub(crate) metadata_offset: u64,
    /// Length of the metadata region.
    pub(crate) metadata_bytes: u64,
    /// First byte of data block 0.
    pub(crate) data_offset: u64,
    /// Number of data blocks.
    pub(crate) data_blocks: u64,
}

impl Geometry {
    /// Divides a device of `capacity` bytes, with a metadata region of about `metadata_bytes`.
    pub(crate) fn plan(
        capacity: u64,
        metadata_bytes: Option<u64>,
    ) -> Result<Geometry, FormatError> {
        let wanted = metadata_bytes.unwrap_or(capacity / METADATA_SHARE);
        // Room for the checksums of all data blocks is set aside (see `metadata::capacity`).
        let wanted = wanted.max(METADATA_MIN + capacity / CHECKSUMS_SHARE);
        let metadata_bytes = region_size(wanted);
        let log_bytes = (capacity / LOG_SHARE).clamp(LOG_MIN, LOG_MAX) / BLOCK_BYTES as u64
            * BLOCK_BYTES as u64;
        let metadata_offset = LOG_OFFSET + log_bytes;
        let data_offset = metadata_offset.saturating_add(metadata_bytes);
        let needed = data_offset.saturating_add(DATA_BLOCKS_MIN * BLOCK_BYTES as u64);
        if capacity < needed {
            return Err(FormatError::TooSmall { bytes: capacity, needed });
        }
        let data_blocks = (capacity - data_offset) / BLOCK_BYTES as u64;
        let device_bytes = data_offset + data_blocks * BLOCK_BYTES as u64;
        Ok(Geometry {
            device_bytes,
            log_offset: LOG_OFFSET,
            log_bytes,
            metadata_offset,
            metadata_bytes,
            data_offset,
            data_blocks,
        })
    }

    /// Whether the parts lie within a device of `capacity` bytes and do not overlap.
    pub(crate) fn check(&self, capacity: u64) -> Result<(), String> {
        let block = BLOCK_BYTES as u64;
        if self.device_bytes > capacity {
            return Err(format!(
                "formatted for {} bytes, and the device has {capacity}",
                self.device_bytes
            ));
        }
        let log_is_valid = self.log_offset == LOG_OFFSET
            && (LOG_MIN..=LOG_MAX).contains(&self.log_bytes)
            && self.log_bytes.is_multiple_of(block);
        if !log_is_valid {
            return Err("the log has no valid place or size".to_owned());
        }
        if self.metadata_offset != LOG_OFFSET + self.log_bytes
            || self.metadata_bytes != region_size(self.metadata_bytes)
        {
            return Err("the metadata region has no valid place or size".to_owned());
        }
        let metadata_end = self.metadata_offset.checked_add(self.metadata_bytes);
        if metadata_end != Some(self.data_offset) || !self.data_offset.is_multiple_of(block) {
            return Err("the data does not begin where the metadata region ends".to_owned());
        }
        let data_end = self
            .data_blocks
            .checked_mul(block)
            .and_then(|bytes| bytes.checked_add(self.data_offset));
        if data_end != Some(self.device_bytes) || self.device_bytes > MAX_OBJECT_BYTES {
            return Err("the data blocks do not fill the device".to_owned());
        }
        Ok(())
    }

    /// The same parts with as many data blocks as a device of `capacity` bytes has room for.
    pub(crate) fn resized(&self, capacity: u64) -> Result<Geometry, FormatError> {
        let block = BLOCK_BYTES as u64;
        let needed = self.data_offset + DATA_BLOCKS_MIN * block;
        if capacity < needed {
            return Err(FormatError::TooSmall { bytes: capacity, needed });
        }
        let data_blocks = (capacity.min(MAX_OBJECT_BYTES) - self.data_offset) / block;
        let device_bytes = self.data_offset + data_blocks * block;
        Ok(Geometry { device_bytes, data_blocks, ..*self })
    }

    /// First byte of a data block on the device.
    pub(crate) fn byte_of(&self, block: u64) -> u64 {
        debug_assert!(block < self.data_blocks);
        self.data_offset + block * BLOCK_BYTES as u64
    }
}

/// The valid size of a metadata region that is closest to `wanted`, from below where possible.
///
/// Beyond one tree region only whole tree regions (at least two) and the tree's header page are
/// valid, because the tree grows by whole regions from there on.
pub(crate) fn region_size(wanted: u64) -> u64 {
    if wanted < 2 * TREE_REGION_BYTES + BLOCK_BYTES as u64 {
        let steps = wanted.clamp(METADATA_MIN, METADATA_SMALL_MAX) / METADATA_STEP;
        steps * METADATA_STEP
    } else {
        wanted / TREE_REGION_BYTES * TREE_REGION_BYTES + BLOCK_BYTES as u64
    }
}

const _: () = assert!(METADATA_MIN.is_multiple_of(METADATA_STEP));
const _: () = assert!(METADATA_SMALL_MAX.is_multiple_of(METADATA_STEP));
const _: () = assert!(LOG_OFFSET.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(LOG_MIN.is_multiple_of(BLOCK_BYTES as u64));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_valid_and_fills_the_device() {
        for capacity in [5 << 20, 5_500_000, 64 << 20, 8 << 30, 100 << 30, 3 << 40, 1 << 50] {
            let geometry = Geometry::plan(capacity, None).unwrap();
            geometry.check(capacity).unwrap();
            assert!(capacity - geometry.device_bytes < BLOCK_BYTES as u64);
            assert!(geometry.check(geometry.device_bytes - 1).is_err());
        }
        assert!(Geometry::plan(3 << 20, None).is_err());
        assert!(Geometry::plan(1 << 30, Some(1 << 30)).is_err());
    }

    #[test]
    fn region_sizes_are_fixed_points() {
        for wanted in [0, 2 << 20, 3_333_333, 1 << 30, 4 << 30, 7 << 30, 9 << 30, 1 << 44] {
            let size = region_size(wanted);
            assert_eq!(region_size(size), size, "wanted {wanted}");
        }
        assert_eq!(region_size(7 << 30), 4 << 30);
        assert_eq!(region_size((8 << 30) + 4096), (8 << 30) + 4096);
        assert_eq!(region_size(11 << 30), (8 << 30) + 4096);
    }

    #[test]
    fn senseless_geometry_is_refused() {
        let good = Geometry::plan(64 << 20, None).unwrap();
        let bad = [
            Geometry { data_blocks: u64::MAX, ..good },
            Geometry { data_blocks: good.data_blocks + 1, ..good },
            Geometry { data_offset: good.data_offset + 1, ..good },
            Geometry { metadata_bytes: u64::MAX, ..good },
            Geometry { metadata_offset: 0, ..good },
            Geometry { log_offset: 0, ..good },
            Geometry { log_bytes: good.log_bytes + 1, ..good },
        ];
        for geometry in bad {
            assert!(geometry.check(64 << 20).is_err(), "{geometry:?}");
        }
    }
}
