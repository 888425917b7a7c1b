//! A small drive for the tests in this crate's own files.

use std::sync::Arc;

use nasd_device::FaultyDevice;
use nasd_types::{CellId, DriveId, PartitionId, Timestamp};

use crate::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};

/// The only partition.
pub(crate) const PARTITION: PartitionId = PartitionId(1);

/// A device of 16 MiB with a drive on it.
pub(crate) fn formatted() -> Arc<FaultyDevice> {
    let key = StoredKey::new([1; 32]);
    let partition = PartitionFormat {
        id: PARTITION,
        quota_bytes: u64::MAX,
        partition_key: key.clone(),
        working_key: key.clone(),
        key_epoch: 1,
    };
    let options = FormatOptions {
        drive: DriveId(1),
        cell: CellId([1; 16]),
        master_key: None,
        log_key: 7,
        drive_key: key,
        partitions: vec![partition],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    let device = Arc::new(FaultyDevice::zeroed(16 << 20));
    Store::format(device.clone(), &options).unwrap();
    device
}

/// Opens it with a cache of 4 MiB.
pub(crate) fn open(device: &Arc<FaultyDevice>) -> Store {
    let options = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::default() };
    Store::open(device.clone(), &options).unwrap()
}

/// With nothing dirty, nothing is promised to anybody.
pub(crate) fn assert_idle(store: &Store) {
    assert_eq!(store.table.dirty_count(), 0);
    assert_eq!(store.cache.pinned_bytes(), 0);
    assert_eq!(store.accounts().dirty(), 0, "blocks promised to dirty ones");
    assert_eq!(store.metadata.capacity.promised(), 0, "records promised");
}
