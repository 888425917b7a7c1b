//! A medium that lies or fails: planted corruption, failing transfers, foreign devices.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::*;
use nasd_device::{DeviceError, FaultPlan, FaultyDevice, FileDevice, FileOptions, MemoryDevice};
use nasd_store::{OpenError, Store, StoreError};
use nasd_types::ByteRange;

const MIB: u64 = 1 << 20;
/// Where the data blocks of a device of 16 MiB begin.
const DATA: u64 = 13 * MIB / 4;
const SUPERBLOCKS: [u64; 2] = [0, 512 << 10];

/// Where on the device the only block full of `value` lies.
fn find_block(image: &[u8], value: u8) -> u64 {
    let mut blocks = image.chunks(BLOCK as usize).enumerate();
    let (index, _) = blocks.find(|(_, block)| block.iter().all(|&b| b == value)).unwrap();
    index as u64 * BLOCK
}

#[test]
fn a_flipped_bit_in_data_is_found_named_and_never_cached() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    for block in 0..20 {
        write(&store, object, block * BLOCK, &[100 + block as u8; 4096]).unwrap();
    }
    store.flush_all().unwrap();
    drop(store);
    let at = find_block(&device.live_image(), 117);
    device.flip_bit(at + 1234, 5);
    let store = open(device.clone(), &small_cache(64));
    for _ in 0..2 {
        let error = store.read(object, ByteRange::new(0, 20 * BLOCK)).unwrap_err();
        assert!(
            matches!(error, StoreError::Corrupt { object: o, block: 17 } if o == object),
            "{error}"
        );
    }
    // A write of part of it would make the damage look whole.
    let error = write(&store, object, 17 * BLOCK + 5, b"x").unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { block: 17, .. }));
    let others = store.read(object, ByteRange::new(0, 17 * BLOCK)).unwrap();
    assert_eq!(others.len(), 17 * 4096);
    // The whole block written anew is good again.
    write(&store, object, 17 * BLOCK, &[9; 4096]).unwrap();
    store.flush_all().unwrap();
    drop(store);
    let store = open(device, &small_cache(64));
    assert_eq!(contents(&store, object).unwrap().len(), 20 * 4096);
}

#[test]
fn a_block_in_the_wrong_place_is_found() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, &[[1; 4096], [2; 4096]].concat()).unwrap();
    store.close().unwrap();
    let (one, two) = (find_block(&device.image(), 1), find_block(&device.image(), 2));
    device.poke(one, &[2; 4096]);
    device.poke(two, &[1; 4096]);
    let store = open(device, &small_cache(64));
    let error = store.read(object, ByteRange::new(BLOCK, BLOCK)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { block: 1, .. }));
}

#[test]
fn either_superblock_serves_and_the_other_is_repaired() {
    for place in SUPERBLOCKS {
        let (device, store) = memory_store(16 * MIB, &small_cache(64));
        let identity = store.identity();
        store.close().unwrap();
        let good = device.image();
        device.poke(place + 77, &[0xff]);
        assert_eq!(Store::read_identity(&*device).unwrap(), identity);
        open(device.clone(), &small_cache(64)).close().unwrap();
        let repaired = device.peek(place, 4096);
        assert_eq!(repaired, good[place as usize..][..4096]);
    }
}

#[test]
fn what_is_wrong_with_a_device_is_told_by_type() {
    let open = |device: Arc<MemoryDevice>| Store::open(device, &small_cache(64)).unwrap_err();
    let blank = Arc::new(MemoryDevice::new(16 * MIB).unwrap());
    assert!(matches!(open(blank), OpenError::NotNasd));
    let foreign = Arc::new(MemoryDevice::from_image(&Random(7).bytes(4 << 20)).unwrap());
    assert!(matches!(open(foreign), OpenError::NotNasd));
    let tiny = Arc::new(MemoryDevice::new(4096).unwrap());
    assert!(matches!(open(tiny), OpenError::NotNasd));

    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    store.close().unwrap();
    let good = device.image();
    SUPERBLOCKS.iter().for_each(|place| device.poke(place + 100, &[0xff]));
    assert!(matches!(open(device), OpenError::Damaged(_)));
    let short = Arc::new(MemoryDevice::from_image(&good[..good.len() - 4096]).unwrap());
    assert!(matches!(open(short), OpenError::Damaged(_)));
    let whole = Arc::new(MemoryDevice::from_image(&good).unwrap());
    let no_cache = Store::open(whole, &small_cache(15)).unwrap_err();
    assert!(matches!(no_cache, OpenError::Options(_)));
}

/// Flips bits all over the metadata region. Whatever happens, it is an answer: an error by type, or
/// the right contents.
#[test]
fn flipped_bits_in_metadata_are_found_when_the_store_opens() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let mut random = Random(5);
    let mut expected = Vec::new();
    for value in 0..60u8 {
        let object = create(&store, P1);
        write(&store, object, 0, &[value; 5000]).unwrap();
        expected.push((object, vec![value; 5000]));
    }
    store.close().unwrap();
    let good = device.image();
    let region = (MIB + MIB / 4) as usize..DATA as usize;
    let pages: Vec<usize> = region
        .step_by(4096)
        .filter(|&page| good[page..page + 4096].iter().any(|&byte| byte != 0))
        .collect();
    let mut found = 0;
    for &page in &pages {
        let mut image = good.clone();
        image[page + random.below(4096) as usize] ^= 1 << random.below(8);
        let device = Arc::new(MemoryDevice::from_image(&image).unwrap());
        match Store::open(device, &small_cache(64)) {
            Err(OpenError::Damaged(_)) => found += 1,
            Err(error) => panic!("page {page:#x}: {error}"),
            Ok(store) => {
                for (object, bytes) in &expected {
                    assert_eq!(contents(&store, *object).unwrap(), *bytes, "page {page:#x}");
                }
            }
        }
    }
    assert!(found > 5, "only {found} of {} pages mattered", pages.len());
}

/// The tree's header says where everything is. A wrong bit is found, or it means nothing.
#[test]
fn flipped_bits_in_the_header_of_metadata_are_found_when_the_store_opens() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, &[7; 5000]).unwrap();
    store.flush_all().unwrap();
    let crashed = device.live();
    store.close().unwrap();
    for (good, name) in [(crashed, "crashed"), (device.live(), "closed")] {
        let mut opened = 0;
        for bit in (0..8 * 320u32).step_by(3) {
            let device = Arc::new(FaultyDevice::over(good.clone(), FaultPlan::default()));
            device.flip_bit(MIB + MIB / 4 + u64::from(bit / 8), bit % 8);
            match Store::open(device, &small_cache(64)) {
                Err(OpenError::Damaged(_)) => (),
                Err(error) => panic!("{name}, bit {bit}: {error}"),
                Ok(store) => {
                    assert_eq!(contents(&store, object).unwrap(), [7; 5000], "{name}, bit {bit}");
                    opened += 1;
                }
            }
        }
        assert!((30..700).contains(&opened), "{name}: {opened} bits mean nothing");
    }
}

#[test]
fn a_second_open_of_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let options = FileOptions { allow_buffered: true, ..FileOptions::default() };
    let device = Arc::new(FileDevice::create(&path, 16 * MIB, options).unwrap());
    Store::format(device.clone(), &format_options()).unwrap();
    let store = open(device, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, b"kept").unwrap();
    let second = FileDevice::open(&path, options).unwrap_err();
    assert!(matches!(second, DeviceError::InUse { path: named } if named == path));
    store.close().unwrap();
    let device = Arc::new(FileDevice::open(&path, options).unwrap());
    assert_eq!(contents(&open(device, &small_cache(64)), object).unwrap(), b"kept");
}

fn data_writes_fail(device: &FaultyDevice) {
    let unwritable = DATA..16 * MIB;
    device.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
}

#[test]
fn a_failed_data_write_is_told_and_can_be_tried_again() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    // More than goes into the log.
    write(&store, object, 0, &[1; 150_000]).unwrap();
    store.flush_all().unwrap();
    write(&store, object, 10_000, &[2; 150_000]).unwrap();
    set_size(&store, object, 140_000).unwrap();
    let other = create(&store, P1);
    let removed = create(&store, P1);
    store.flush(&[removed]).unwrap();
    store.remove(removed).unwrap();
    data_writes_fail(&device);
    for _ in 0..3 {
        assert!(matches!(store.flush_all(), Err(StoreError::Medium(_))));
    }
    assert!(store.read_only().is_none());
    let mut expected = vec![1; 140_000];
    expected[10_000..].fill(2);
    assert_eq!(contents(&store, object).unwrap(), expected);
    write(&store, object, 139_999, b"!").unwrap();
    expected[139_999] = b'!';
    device.set_plan(FaultPlan::default());
    store.flush_all().unwrap();
    check_space(&store);
    drop(store);
    let store = open(device, &small_cache(64));
    assert_eq!(contents(&store, object).unwrap(), expected);
    assert!(store.getattr(other).is_ok() && store.getattr(removed).is_err());
    check_space(&store);
}

#[test]
fn a_failed_sync_or_commit_makes_the_store_read_only_and_readable() {
    // The first sync of a flush is for data, if it is more than goes into the log; the second is the
    // log's.
    for failing in [0, 1] {
        let (device, store) = faulty_store(16 * MIB, &small_cache(64));
        let object = create(&store, P1);
        write(&store, object, 0, &[1; 90_000]).unwrap();
        store.flush_all().unwrap();
        let cold = create(&store, P1);
        write(&store, cold, 0, &[5; 90_000]).unwrap();
        store.flush_all().unwrap();
        write(&store, object, 100, &[2; 90_000]).unwrap();
        let failing_syncs = vec![device.syncs() + failing];
        device.set_plan(FaultPlan { failing_syncs, ..FaultPlan::default() });
        assert!(matches!(store.flush(&[object]), Err(StoreError::Medium(_))));
        assert!(store.read_only().unwrap().contains("planned fault"));
        assert!(matches!(store.flush_all(), Err(StoreError::ReadOnly(_))));
        assert!(matches!(write(&store, object, 0, b"x"), Err(StoreError::ReadOnly(_))));
        assert!(matches!(store.remove(object), Err(StoreError::ReadOnly(_))));
        assert!(matches!(set_size(&store, object, 1), Err(StoreError::ReadOnly(_))));
        let mut expected = vec![2; 90_100];
        expected[..100].fill(1);
        assert_eq!(contents(&store, object).unwrap(), expected);
        assert_eq!(contents(&store, cold).unwrap(), [5; 90_000]);
        assert!(matches!(store.close(), Err(StoreError::ReadOnly(_))));
        let store = open(device, &small_cache(64));
        let found = contents(&store, object).unwrap();
        assert!(found == expected || found == [1; 90_000]);
        check_space(&store);
    }
}

#[test]
fn an_unreadable_block_is_the_mediums_fault() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, &[1; 4096]).unwrap();
    store.close().unwrap();
    let store = open(device.clone(), &small_cache(64));
    let unreadable = DATA..16 * MIB;
    device.set_plan(FaultPlan { unreadable, ..FaultPlan::default() });
    let error = store.read(object, ByteRange::new(0, 1)).unwrap_err();
    assert!(matches!(error, StoreError::Medium(DeviceError::Medium { operation: "read", .. })));
    device.set_plan(FaultPlan::default());
    assert_eq!(contents(&store, object).unwrap(), [1; 4096]);
}
