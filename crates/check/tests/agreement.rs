//! The store and the check agree on the format: whatever the store does, and wherever a power cut stops
//! it, the check finds nothing wrong; and what the check has repaired, the store opens.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

use std::sync::Arc;

use nasd_check::{Options, Outcome, RepairOptions, check, repair};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, MemoryDevice};
use nasd_store::{
    FormatOptions, OpenOptions, PartitionFormat, PartitionSettings, Store, StoreError, StoredKey,
    WriteData,
};
use nasd_types::{
    ByteRange, CellId, Compression, DriveId, ObjectName, PartitionId, SetAttributes, Timestamp,
};

const CAPACITY: u64 = 12 << 20;
const SEEDS: u64 = 10;
const NOW: Timestamp = Timestamp(5);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Bytes that compress, or don't.
    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let soft = self.below(2) == 0;
        let run = if soft { 200 } else { 1 };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let byte = self.below(256) as u8;
            bytes.extend(std::iter::repeat_n(byte, run));
        }
        bytes.truncate(length as usize);
        bytes
    }
}

fn formatted() -> Vec<u8> {
    let partition = |id| PartitionFormat {
        id: PartitionId(id),
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new([1; 32]),
        working_key: StoredKey::new([2; 32]),
        key_epoch: 7,
    };
    let options = FormatOptions {
        drive: DriveId(0xd1),
        cell: CellId([0xce; 16]),
        master_key: None,
        log_key: 0x6c6f_676b,
        drive_key: StoredKey::new([3; 32]),
        partitions: vec![partition(1), partition(2)],
        metadata_bytes: None,
        now: Timestamp(1),
    };
    let device = Arc::new(MemoryDevice::new(CAPACITY).unwrap());
    Store::format(device.clone(), &options).unwrap();
    device.image()
}

fn open_options() -> OpenOptions {
    OpenOptions { cache_bytes: 48 << 16, metadata_cache_bytes: 1 << 20, ..OpenOptions::default() }
}

/// Random work until it is done or the device fails. That a drive is full, or a partition not wholly
/// removed yet, is no failure.
fn work(store: &Store, random: &mut Random, steps: usize) -> Result<(), StoreError> {
    let mut living: Vec<ObjectName> = Vec::new();
    for partition in store.partitions() {
        let objects = store.list(partition, nasd_types::ObjectId(0), usize::MAX)?;
        living.extend(objects.into_iter().map(|object| ObjectName { partition, object }));
    }
    for _ in 0..steps {
        let name = living[random.below(living.len() as u64) as usize];
        let done = step(store, random, name, &mut living);
        match done {
            Ok(()) | Err(StoreError::NoSpace(_) | StoreError::PartitionExists(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn step(
    store: &Store,
    random: &mut Random,
    name: ObjectName,
    living: &mut Vec<ObjectName>,
) -> Result<(), StoreError> {
    let offset = random.below(120_000);
    match random.below(24) {
        0..=2 => {
            let partition = PartitionId(1 + random.below(2) as u32);
            let (object, _) = store.create(partition, &SetAttributes::default(), NOW)?;
            living.push(ObjectName { partition, object });
        }
        3 if name.object.0 >= 64 => {
            store.remove(name)?;
            living.retain(|other| *other != name);
        }
        4..=9 => {
            let length = 1 + random.below(60_000);
            let bytes = random.bytes(length);
            store.write(name, offset, WriteData::Slice(&bytes), NOW)?;
        }
        10 | 11 => {
            let length = 1 + random.below(2000);
            let bytes = random.bytes(length);
            store.write(name, 0, WriteData::Slice(&bytes), NOW)?;
        }
        12 | 13 => {
            let size = Some(if random.below(3) == 0 { random.below(1000) } else { offset });
            let changes = SetAttributes { logical_size: size, ..SetAttributes::default() };
            store.setattr(name, &changes, NOW)?;
        }
        14 => drop(store.punch(name, ByteRange::new(offset, 1 + random.below(50_000)), NOW)?),
        15 | 16 => {
            let (object, _) = store.fastcopy(name, NOW)?;
            living.push(ObjectName { object, ..name });
        }
        17 => {
            let codec = [Compression::None, Compression::Lz4, Compression::Zstd];
            let compression = codec[random.below(3) as usize];
            let settings = PartitionSettings { compression, ..PartitionSettings::default() };
            store.set_partition_settings(name.partition, settings)?;
        }
        18 => drop(store.write_back(50_000)?),
        19..=21 => store.flush(&[name])?,
        22 if random.below(4) == 0 => {
            let partition = PartitionId(9);
            if store.partitions().contains(&partition) {
                store.remove_partition(partition)?;
                living.retain(|other| other.partition != partition);
            } else {
                store.create_partition(partition, NOW)?;
                let object = nasd_types::ObjectId::FIRST_OBJECT;
                living.push(ObjectName { partition, object });
            }
        }
        _ => store.flush_all()?,
    }
    Ok(())
}

/// What the check says of an image must be nothing but notes.
fn must_be_clean(image: &[u8], name: &str) {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_image(image).unwrap());
    let report = check(&device, &Options::default(), &mut |_| {});
    assert_eq!(report.outcome(), Outcome::Clean, "{name}: {report}");
}

#[test]
fn what_the_store_leaves_is_clean_wherever_it_is_cut() {
    let start = formatted();
    must_be_clean(&start, "formatted");
    for seed in 0..SEEDS {
        let mut image = start.clone();
        for cut in 0..4u64 {
            let mut random = Random(seed * 1000 + cut);
            let at = random.below(60);
            let plan = FaultPlan { crash_at_sync: Some(at), ..FaultPlan::default() };
            let device = Arc::new(FaultyDevice::new(image, plan));
            let name = format!("seed {seed}, cut {cut} at sync {at}");
            match Store::open(device.clone(), &open_options()) {
                Ok(store) => {
                    let done = work(&store, &mut random, 80);
                    assert!(done.is_ok() || device.has_crashed(), "{name}: {done:?}");
                    device.crash();
                    drop(store);
                }
                Err(error) => assert!(device.has_crashed(), "{name}: {error}"),
            }
            image = device.surviving_image(seed + cut);
            must_be_clean(&image, &name);
        }
        let device = Arc::new(MemoryDevice::from_image(&image).unwrap());
        let store = Store::open(device.clone(), &open_options()).unwrap();
        store.close().unwrap();
        must_be_clean(&device.image(), &format!("seed {seed}, closed"));
        // Shrunk to the least that there is, with a power cut now and then.
        for cut in [2, 4, 6, 8, u64::MAX] {
            let plan = FaultPlan { crash_at_sync: Some(cut), ..FaultPlan::default() };
            let faulty = Arc::new(FaultyDevice::new(device.image(), plan));
            let shared: Arc<dyn BlockDevice> = faulty.clone();
            let done = Store::resize(&shared, &open_options(), CAPACITY - (7 << 20) - (768 << 10));
            faulty.crash();
            let name = format!("seed {seed}, shrunk until sync {cut}: {done:?}");
            must_be_clean(&faulty.surviving_image(seed), &name);
        }
    }
}

#[test]
fn the_store_opens_what_was_repaired() {
    let start = formatted();
    for seed in 0..SEEDS {
        let mut random = Random(seed + 77);
        let device = Arc::new(FaultyDevice::new(start.clone(), FaultPlan::default()));
        let store = Store::open(device.clone(), &open_options()).unwrap();
        work(&store, &mut random, 80).unwrap();
        device.crash();
        drop(store);
        let mut image = device.surviving_image(seed);
        for _ in 0..=random.below(3) {
            // Superblocks excepted: of the rest, what is not zero.
            let used: Vec<usize> = (256..image.len() / 4096)
                .filter(|block| image[block * 4096..][..4096].iter().any(|byte| *byte != 0))
                .collect();
            let block = used[random.below(used.len() as u64) as usize];
            image[block * 4096 + random.below(4096) as usize] ^= 1 << random.below(8);
        }
        let memory = Arc::new(MemoryDevice::from_image(&image).unwrap());
        let device: Arc<dyn BlockDevice> = memory.clone();
        let options = RepairOptions::default().with_punch(true);
        let repaired = repair(&device, &options, &mut |_| {}).unwrap();
        if repaired.outcome() == Outcome::Damaged {
            continue;
        }
        let store = Store::open(device, &open_options());
        let store = store.unwrap_or_else(|error| panic!("seed {seed}: {error}: {repaired}"));
        work(&store, &mut random, 40).unwrap();
        store.close().unwrap();
        must_be_clean(&memory.image(), &format!("seed {seed}, repaired and used"));
    }
}
