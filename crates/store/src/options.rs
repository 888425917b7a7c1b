//! What a store is formatted and opened with, and what it tells about itself.

use std::time::Duration;

use nasd_types::{CellId, Compression, DriveId, PartitionId, Protection, Timestamp};

use crate::StoredKey;

/// What `format` writes.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The drive's name, drawn at random by the caller.
    pub drive: DriveId,
    /// The installation it belongs to.
    pub cell: CellId,
    /// The master key (Table 6), if the drive is to have one.
    pub master_key: Option<StoredKey>,
    /// The drive key (Table 6).
    pub drive_key: StoredKey,
    /// The partitions; each starts with one empty object, `ObjectId::FIRST_OBJECT`.
    pub partitions: Vec<PartitionFormat>,
    /// Bytes of the metadata region; `None` chooses by the size of the device.
    pub metadata_bytes: Option<u64>,
    /// The time of formatting.
    pub now: Timestamp,
    /// Drawn at random by the caller, and known to nobody else: tells the log's own entries from
    /// what clients wrote.
    pub log_key: u64,
}

/// One partition to format.
#[derive(Clone, Debug)]
pub struct PartitionFormat {
    /// Its number on the drive.
    pub id: PartitionId,
    /// Most bytes that its objects may take, in whole blocks; `u64::MAX` is no quota.
    pub quota_bytes: u64,
    /// Sets the working keys.
    pub partition_key: StoredKey,
    /// Makes and checks capabilities.
    pub working_key: StoredKey,
    /// The epoch of `working_key`.
    pub key_epoch: u32,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Memory for data: cache, and transfers under way. A transfer may take a quarter of it, so
    /// with less than 17 MiB the largest ones are refused as too large.
    pub cache_bytes: usize,
    /// Memory for the metadata tree: three quarters for its pages, the rest for extents and checksums
    /// that were found in it last.
    pub metadata_cache_bytes: usize,
    /// How long a transfer waits for buffers before it is answered with `Busy`.
    pub buffer_patience: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            cache_bytes: 256 << 20,
            metadata_cache_bytes: 32 << 20,
            buffer_patience: Duration::from_secs(10),
        }
    }
}

/// Who a drive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The drive's name.
    pub drive: DriveId,
    /// The installation it belongs to.
    pub cell: CellId,
}

/// The drive's space. The first four count data blocks; `used_bytes + free_bytes` may be less than the
/// capacity, by what objects have reserved and what writes still under way were promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What objects can take in all.
    pub capacity_bytes: u64,
    /// What objects hold on the device.
    pub used_bytes: u64,
    /// What a writer could still store.
    pub free_bytes: u64,
    /// What several partitions hold, once for each but one: by so much what partitions are charged for is more than what there is.
    pub common_bytes: u64,
    /// Memory for data.
    pub cache_bytes: u64,
    /// Length of the log.
    pub log_bytes: u64,
    /// How many objects more the metadata region has room for, about, if they have little data.
    pub free_objects: u64,
}

/// One partition's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSpace {
    /// The partition.
    pub partition: PartitionId,
    /// Most that its objects may take; `u64::MAX` is no quota.
    pub quota_bytes: u64,
    /// What its objects hold, have reserved, or were promised.
    pub used_bytes: u64,
    /// What a writer could still store: what is left of the quota and of the drive.
    pub free_bytes: u64,
    /// How many objects there are.
    pub objects: u64,
}

/// What of a partition can be set besides its quota and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionSettings {
    /// For data written from now on.
    pub compression: Compression,
    /// The least protection of requests on its objects.
    pub minimum_protection: Protection,
}

/// What the store keeps about the drive's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockState {
    /// The drive's clock less the machine's, in nanoseconds.
    pub offset: i64,
    /// The drive's clock had been at most here when the mark was made durable; it never starts
    /// below.
    pub mark: Timestamp,
    /// How much older than the clock a request may be, in nanoseconds; 0 is the drive's own choice.
    pub skew_past_ns: u64,
    /// How much newer, if `skew_past_ns` is not 0.
    pub skew_ahead_ns: u64,
}

/// How many blocks more an object may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlocksRequired {
    /// If new data compresses as the old does.
    pub estimated: u64,
    /// Whatever the new data is.
    pub maximum: u64,
}

/// What the store did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of reads that the cache had.
    pub cache_hit_bytes: u64,
    /// Bytes that were read from the medium for reads.
    pub cache_miss_bytes: u64,
    /// Data bytes written to their places on the medium.
    pub data_written_bytes: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Entries written to the log: each is one device sync shared by all who waited.
    pub log_entries: u64,
    /// Flushes asked for.
    pub flushes: u64,
    /// Checkpoints of the metadata tree.
    pub checkpoints: u64,
    /// Bytes of the cache that are dirty.
    pub dirty_bytes: u64,
    /// Blocks found that did not match their checksum.
    pub corrupt_blocks: u64,
    /// Blocks that the scrub has read and found good.
    pub scrubbed_blocks: u64,
}
