//! Copies of ranges: what is shared takes no room, and what is not is copied all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod common;

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{CopyRange, Store, StoreError};
use nasd_types::{ByteRange, ObjectName, SeekTarget, Timestamp};

fn copy(
    store: &Store,
    (source, source_offset): (ObjectName, u64),
    (target, target_offset): (ObjectName, u64),
    length: u64,
) -> Result<u64, StoreError> {
    let (partition, source, target) = (source.partition, source.object, target.object);
    let copy = CopyRange { partition, source, source_offset, target, target_offset, length };
    store.copy_range(&copy, Timestamp(9))
}

fn used(store: &Store, name: ObjectName) -> u64 {
    store.flush_all().unwrap();
    store.partition_space(name.partition).unwrap().used_bytes
}

/// Copies to the end, as a client does.
fn copy_all(store: &Store, source: ObjectName, target: ObjectName, offset: u64) -> u64 {
    let mut done = 0;
    loop {
        match copy(store, (source, offset + done), (target, offset + done), u64::MAX >> 2).unwrap()
        {
            0 => return done,
            copied => done += copied,
        }
    }
}

fn noise(length: usize) -> Vec<u8> {
    Random(length as u64).bytes(length)
}

#[test]
fn whole_blocks_take_no_room_and_each_object_has_its_own_after_a_write() {
    let options = small_cache(96);
    let (device, store) = memory_store(32 << 20, &options);
    let (source, target) = (create(&store, P1), create(&store, P1));
    let bytes = noise(4_000_123);
    for (number, piece) in bytes.chunks(1 << 18).enumerate() {
        write(&store, source, (number << 18) as u64, piece).unwrap();
    }
    let before = used(&store, source);
    assert_eq!(copy_all(&store, source, target, 0), bytes.len() as u64);
    assert_eq!(used(&store, source), before + BLOCK, "all but the last block is shared");
    assert!(contents(&store, target).unwrap() == bytes);
    // Once more, into a part of itself.
    assert_eq!(copy(&store, (source, BLOCK), (target, BLOCK), 9 * BLOCK).unwrap(), 9 * BLOCK);
    write(&store, source, 5000, &[1; 10_000]).unwrap();
    write(&store, target, 100_000, &[2; 10]).unwrap();
    let (mut one, mut other) = (bytes.clone(), bytes);
    one[5000..15_000].fill(1);
    other[100_000..100_010].fill(2);
    store.close().unwrap();
    let store = open(device.clone(), &options);
    assert!(contents(&store, source).unwrap() == one);
    assert!(contents(&store, target).unwrap() == other);
    check_space(&store);
    store.remove(source).unwrap();
    assert!(contents(&store, target).unwrap() == other);
    store.remove(target).unwrap();
    assert_eq!(used(&store, source), 0);
}

#[test]
fn what_is_shared_is_durable_when_it_is_answered() {
    let options = small_cache(96);
    let (device, store) = faulty_store(32 << 20, &options);
    let (source, target) = (create(&store, P1), create(&store, P1));
    let bytes = noise(300 * 4096);
    write(&store, source, 0, &bytes[..1 << 20]).unwrap();
    write(&store, source, 1 << 20, &bytes[1 << 20..]).unwrap();
    assert_eq!(copy(&store, (source, 0), (target, 0), 1 << 30).unwrap(), 300 * 4096);
    // The power goes.
    device.crash();
    let survivor = FaultyDevice::over(device.survivor(1), FaultPlan::default());
    let store = open(std::sync::Arc::new(survivor), &options);
    assert!(contents(&store, target).unwrap() == bytes);
}

#[test]
fn ends_holes_and_crooked_ranges_are_copied_as_they_are() {
    let (_, store) = memory_store(32 << 20, &small_cache(96));
    let (source, target) = (create(&store, P1), create(&store, P1));
    let bytes = noise(50_000);
    write(&store, source, 1 << 20, &bytes).unwrap();
    set_size(&store, source, 3 << 20).unwrap();
    for (number, offset) in [0, 1, BLOCK, BLOCK + 17].into_iter().enumerate() {
        let target = if number == 3 { target } else { create(&store, P1) };
        write(&store, target, 0, &noise(100_000)).unwrap();
        let mut done = 0;
        while let copied @ 1.. =
            copy(&store, (source, done), (target, offset + done), u64::MAX >> 2).unwrap()
        {
            done += copied;
        }
        let found = contents(&store, target).unwrap();
        let expected = contents(&store, source).unwrap();
        assert!(found[offset as usize..] == expected, "at {offset}");
        assert!(found[..offset as usize] == noise(100_000)[..offset as usize]);
        let data = store.seek(target, offset.next_multiple_of(BLOCK), SeekTarget::Data).unwrap();
        assert_eq!(data.unwrap() / BLOCK, ((1 << 20) + offset) / BLOCK, "a hole goes before");
        assert!(store.getattr(target).unwrap().blocks_used < 20);
    }
    assert_eq!(copy(&store, (source, 3 << 20), (target, 0), 10).unwrap(), 0);
    assert_eq!(copy(&store, (source, u64::MAX >> 2), (target, 0), 10).unwrap(), 0);
}

#[test]
fn within_one_object_ranges_may_not_overlap() {
    let (_, store) = memory_store(32 << 20, &small_cache(96));
    let object = create(&store, P1);
    let bytes = noise(100_000);
    write(&store, object, 0, &bytes).unwrap();
    let overlap = copy(&store, (object, 0), (object, 4096), 4097).unwrap_err();
    assert!(matches!(overlap, StoreError::Overlapping(name) if name == object), "{overlap}");
    assert!(contents(&store, object).unwrap() == bytes, "nothing has changed");
    assert_eq!(copy(&store, (object, 0), (object, 8192), 8192).unwrap(), 8192);
    assert!(contents(&store, object).unwrap()[8192..16384] == bytes[..8192]);
    // Behind the end there is nothing to overlap with.
    assert_eq!(copy(&store, (object, 99_000), (object, 100_000), 5000).unwrap(), 1000);
}

#[test]
fn blocks_of_two_families_are_copied() {
    let (_, store) = memory_store(32 << 20, &small_cache(96));
    let of_family = |value: u8| {
        let object = create(&store, P1);
        write(&store, object, 0, &vec![value; 1 << 20]).unwrap();
        store.fastcopy(object, Timestamp(4)).unwrap();
        object
    };
    let (one, other) = (of_family(1), of_family(2));
    let before = used(&store, one);
    assert_eq!(copy_all(&store, one, other, 64 << 10), (1 << 20) - (64 << 10));
    assert_eq!(used(&store, one), before + (1 << 20) - (64 << 10));
    let found = store.read(other, ByteRange::new(60 << 10, 8 << 10)).unwrap().to_vec();
    assert!(found[..4096].iter().all(|&byte| byte == 2));
    assert!(found[4096..].iter().all(|&byte| byte == 1));
    check_space(&store);
}
