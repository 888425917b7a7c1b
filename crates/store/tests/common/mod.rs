//! What the tests of the store share: small drives, a model of objects, a seeded random source.
// Each test uses a part of this; and a test that fails by panicking is a test that fails.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nasd_device::{BlockDevice, FaultyDevice, MemoryDevice};
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoreError, StoredKey};
use nasd_store::{PartitionSettings, WriteData, Written};
use nasd_types::{
    ByteRange, CellId, Compression, DriveId, ObjectId, ObjectName, PartitionId, SetAttributes,
    Timestamp,
};

pub const P1: PartitionId = PartitionId(1);
pub const P2: PartitionId = PartitionId(2);
pub const BLOCK: u64 = 4096;

/// Two partitions without quotas.
pub fn format_options() -> FormatOptions {
    let partition = |id, quota_bytes| PartitionFormat {
        id,
        quota_bytes,
        partition_key: StoredKey::new([1; 32]),
        working_key: StoredKey::new([2; 32]),
        key_epoch: 7,
    };
    FormatOptions {
        drive: DriveId(0xd1),
        cell: CellId([0xce; 16]),
        master_key: None,
        log_key: 0x6c6f_676b,
        drive_key: StoredKey::new([3; 32]),
        partitions: vec![partition(P1, u64::MAX), partition(P2, u64::MAX)],
        metadata_bytes: None,
        now: Timestamp(1),
    }
}

/// Both partitions compress from now on, or do no more.
pub fn compress(store: &Store, compression: Compression) {
    for partition in [P1, P2] {
        let settings = PartitionSettings { compression, ..PartitionSettings::default() };
        store.set_partition_settings(partition, settings).unwrap();
    }
}

/// A cache of `frames` frames.
pub fn small_cache(frames: usize) -> OpenOptions {
    OpenOptions {
        cache_bytes: frames << 16,
        metadata_cache_bytes: 1 << 20,
        buffer_patience: Duration::from_secs(20),
    }
}

pub fn memory_store(capacity: u64, options: &OpenOptions) -> (Arc<MemoryDevice>, Store) {
    let device = Arc::new(MemoryDevice::new(capacity).unwrap());
    Store::format(device.clone(), &format_options()).unwrap();
    let store = Store::open(device.clone(), options).unwrap();
    (device, store)
}

pub fn faulty_store(capacity: u64, options: &OpenOptions) -> (Arc<FaultyDevice>, Store) {
    let device = Arc::new(FaultyDevice::zeroed(capacity));
    Store::format(device.clone(), &format_options()).unwrap();
    let store = Store::open(device.clone(), options).unwrap();
    (device, store)
}

pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Store {
    Store::open(device, options).unwrap()
}

pub fn name(partition: PartitionId, object: u64) -> ObjectName {
    ObjectName { partition, object: ObjectId(object) }
}

pub fn create(store: &Store, partition: PartitionId) -> ObjectName {
    let (object, _) = store.create(partition, &SetAttributes::default(), Timestamp(2)).unwrap();
    ObjectName { partition, object }
}

pub fn write(
    store: &Store,
    name: ObjectName,
    offset: u64,
    bytes: &[u8],
) -> Result<Written, StoreError> {
    store.write(name, offset, WriteData::Slice(bytes), Timestamp(3))
}

/// Writes through frames received in place, as a server does.
pub fn write_frames(
    store: &Store,
    name: ObjectName,
    offset: u64,
    bytes: &[u8],
) -> Result<Written, StoreError> {
    let mut incoming = store.frames_for_write(offset, bytes.len())?;
    let mut rest = bytes;
    for piece in &mut incoming.io_slices_mut() {
        let (now, later) = rest.split_at(piece.len());
        piece.copy_from_slice(now);
        rest = later;
    }
    assert!(rest.is_empty());
    store.write(name, offset, WriteData::Frames(incoming), Timestamp(3))
}

/// The whole contents, read in pieces that any cache can take.
pub fn contents(store: &Store, name: ObjectName) -> Result<Vec<u8>, StoreError> {
    let size = store.getattr(name)?.logical_size;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        let data = store.read(name, ByteRange::new(bytes.len() as u64, 96 << 10))?;
        assert!(!data.is_empty());
        assert!(data.segments.iter().all(|segment| !segment.is_empty()));
        bytes.extend(data.to_vec());
    }
    Ok(bytes)
}

pub fn set_size(store: &Store, name: ObjectName, size: u64) -> Result<(), StoreError> {
    let changes = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
    store.setattr(name, &changes, Timestamp(4)).map(|_| ())
}

/// Every object with its contents.
pub fn everything(store: &Store) -> BTreeMap<ObjectName, Vec<u8>> {
    let mut found = BTreeMap::new();
    for partition in store.partitions() {
        for object in store.list(partition, ObjectId(0), usize::MAX).unwrap() {
            let name = ObjectName { partition, object };
            found.insert(name, contents(store, name).unwrap());
        }
    }
    found
}

/// With everything flushed: the sum of `blocks_used` over all objects is what is in use.
pub fn check_space(store: &Store) {
    let mut total = 0;
    for partition in store.partitions() {
        let objects = store.list(partition, ObjectId(0), usize::MAX).unwrap();
        let space = store.partition_space(partition).unwrap();
        assert_eq!(space.objects, objects.len() as u64);
        let mut charged = 0;
        for object in objects {
            let attributes = store.getattr(ObjectName { partition, object }).unwrap();
            total += attributes.blocks_used;
            charged += attributes.blocks_allocated;
        }
        assert_eq!(space.used_bytes, charged * BLOCK, "charges of {partition}");
    }
    let space = store.space();
    assert_eq!(space.used_bytes, total * BLOCK - space.common_bytes, "blocks in use");
}

/// SplitMix64: small, seeded, and the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.below(from.len() as u64) as usize])
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}
