//! How the examples format their drives.

use nasd_store::{FormatOptions, PartitionFormat, StoredKey};
use nasd_types::{CellId, DriveId, PartitionId, Timestamp};

/// A drive with one partition that may fill it.
pub fn format_options(partition: PartitionId, log_key: u64) -> FormatOptions {
    let key = StoredKey::new([1; 32]);
    let partition = PartitionFormat {
        id: partition,
        quota_bytes: u64::MAX,
        partition_key: key.clone(),
        working_key: key.clone(),
        key_epoch: 1,
    };
    FormatOptions {
        drive: DriveId(1),
        cell: CellId([1; 16]),
        master_key: None,
        log_key,
        drive_key: key,
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(1),
    }
}
