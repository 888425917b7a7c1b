//! An object for tests of extensions.

use nasd_device::{BlockDevice, FileDevice, FileOptions};
use nasd_protocol::limits::MAX_TRANSFER_BYTES;
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey, WriteData};
use nasd_types::{CellId, DriveId, ObjectName, PartitionId, SetAttributes, Timestamp};
use std::sync::Arc;

/// An object that begins with some bytes, and has zeros behind them up to so many.
pub(super) fn object_of(data: &[u8], bytes: u64) -> (Store, ObjectName) {
    let folder = tempfile::tempdir().unwrap();
    let file = FileOptions { allow_buffered: true, ..FileOptions::default() };
    let device = FileDevice::create(folder.path().join("medium"), 64 << 20, file).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let (partition, key, now) = (PartitionId(1), || StoredKey::new([1; 32]), Timestamp(1));
    let format = FormatOptions {
        drive: DriveId(1),
        cell: CellId([1; 16]),
        master_key: None,
        log_key: 1,
        drive_key: key(),
        partitions: vec![PartitionFormat {
            id: partition,
            quota_bytes: u64::MAX,
            partition_key: key(),
            working_key: key(),
            key_epoch: 1,
        }],
        metadata_bytes: None,
        now,
    };
    Store::format(Arc::clone(&device), &format).unwrap();
    let store = Store::open(device, &OpenOptions::default()).unwrap();
    let attributes = SetAttributes { logical_size: Some(bytes), ..SetAttributes::default() };
    let (object, _) = store.create(partition, &attributes, now).unwrap();
    let name = ObjectName { partition, object };
    for (part, offset) in data.chunks(MAX_TRANSFER_BYTES).zip((0..).step_by(MAX_TRANSFER_BYTES)) {
        store.write(name, offset, WriteData::Slice(part), now).unwrap();
    }
    (store, name)
}
