//! Copies of ranges, and of whole partitions: what is shared takes no room, and what is not is copied all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

mod common;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice};
use nasd_store::{CopyRange, ScrubCursor, Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName, PartitionId, SeekTarget, Timestamp};
use world::{assert_clean, finish_removals};

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

const COPY: PartitionId = PartitionId(7);

/// The contents of a partition's objects, by number.
fn of(store: &Store, partition: PartitionId) -> BTreeMap<u64, Vec<u8>> {
    let all = everything(store).into_iter().filter(|(name, _)| name.partition == partition);
    all.map(|(name, bytes)| (name.object.0, bytes)).collect()
}

fn copied(store: &Store, name: ObjectName) -> ObjectName {
    assert!(store.getattr(name).is_ok());
    ObjectName { partition: COPY, ..name }
}

/// A partition with small, large, sparse, shared and compressed contents.
fn filled(store: &Store) -> Vec<ObjectName> {
    let mut random = Random(5);
    let mut names = Vec::new();
    for number in 0..40 {
        let name = create(store, P1);
        match number % 4 {
            0 => drop(write(store, name, 0, &random.bytes(100)).unwrap()),
            1 => drop(write(store, name, 3 << 16, &random.bytes(90_000)).unwrap()),
            2 => drop(write(store, name, 0, &vec![number as u8; 100_000]).unwrap()),
            _ => drop(write(store, name, 5, &random.bytes(20_000)).unwrap()),
        }
        names.push(name);
        if number == 20 {
            store.flush_all().unwrap();
            let (copy, _) = store.fastcopy(names[1], Timestamp(4)).unwrap();
            names.push(ObjectName { object: copy, ..names[1] });
            compress(store, Compression::Lz4);
        }
    }
    names
}

#[test]
fn a_copied_partition_is_the_same_and_takes_no_room() {
    let (device, store) = faulty_store(32 << 20, &small_cache(64));
    let names = filled(&store);
    let before = of(&store, P1);
    store.flush_all().unwrap();
    let attributes = store.getattr(names[1]).unwrap();
    let (space, charged) = (store.space(), store.partition_space(P1).unwrap());
    store.copy_partition(P1, COPY).unwrap();
    assert_eq!(of(&store, COPY), before);
    assert_eq!(store.getattr(copied(&store, names[1])).unwrap(), attributes);
    assert_eq!(store.space().used_bytes, space.used_bytes);
    assert_eq!(store.space().free_bytes, space.free_bytes);
    let of_copy = store.partition_space(COPY).unwrap();
    assert_eq!((of_copy.used_bytes, of_copy.objects), (charged.used_bytes, charged.objects));
    assert_eq!(store.partition_space(P1).unwrap(), charged);
    assert!(store.keys(COPY).unwrap().current.is_none());
    check_space(&store);
    // It is durable, and the log alone has it.
    device.crash();
    drop(store);
    let image = device.survivor(1);
    assert_clean(&image, "after a crash");
    let (_, store) = world::reopen(&image, &small_cache(64));
    assert_eq!((of(&store, P1), of(&store, COPY)), (before.clone(), before));
    assert_eq!(store.space().used_bytes, space.used_bytes);
    check_space(&store);
    store.close().unwrap();
}

#[test]
fn what_becomes_of_one_does_not_concern_the_other() {
    for removes_source in [false, true] {
        let (device, store) = faulty_store(32 << 20, &small_cache(64));
        let empty = store.space().used_bytes;
        let names = filled(&store);
        store.copy_partition(P1, COPY).unwrap();
        let before = of(&store, COPY);
        // The copy of a copy has three holders.
        store.copy_partition(COPY, PartitionId(8)).unwrap();
        for (number, name) in names.iter().enumerate() {
            let at = if removes_source { copied(&store, *name) } else { *name };
            match number % 3 {
                0 => drop(write(&store, at, 4097, &[1; 30_000]).unwrap()),
                1 => store.remove(at).unwrap(),
                _ => set_size(&store, at, 5000).unwrap(),
            }
        }
        store.flush_all().unwrap();
        assert_eq!(of(&store, PartitionId(8)), before);
        let (gone, kept) = if removes_source { (P1, COPY) } else { (COPY, P1) };
        if !removes_source {
            assert_eq!(of(&store, COPY), before);
        }
        let of_kept = of(&store, kept);
        store.remove_partition(gone).unwrap();
        finish_removals(&store);
        assert_eq!((of(&store, kept), of(&store, PartitionId(8))), (of_kept, before.clone()));
        check_space(&store);
        store.remove_partition(kept).unwrap();
        finish_removals(&store);
        assert_eq!(of(&store, PartitionId(8)), before);
        store.checkpoint().unwrap();
        check_space(&store);
        assert_eq!(store.space().common_bytes, 0, "there is one holder left");
        store.remove_partition(PartitionId(8)).unwrap();
        finish_removals(&store);
        assert_eq!(store.space().used_bytes, empty);
        store.close().unwrap();
        assert_clean(&device.live(), "with nothing left");
    }
}

#[test]
fn partitions_that_share_can_be_copied_within_moved_and_scrubbed() {
    let (device, store) = faulty_store(64 << 20, &small_cache(64));
    let ballast = create(&store, P2);
    for part in 0..48 {
        write(&store, ballast, part << 19, &vec![9; 1 << 19]).unwrap();
    }
    store.flush_all().unwrap();
    let names = filled(&store);
    store.copy_partition(P1, COPY).unwrap();
    let before = of(&store, P1);
    // Families within, of what others hold as well.
    for partition in [P1, COPY] {
        let source = ObjectName { partition, ..names[3] };
        let (copy, _) = store.fastcopy(source, Timestamp(5)).unwrap();
        assert_eq!(
            contents(&store, ObjectName { object: copy, partition }).unwrap(),
            before[&source.object.0]
        );
        let target = create(&store, partition);
        copy_all(&store, ObjectName { partition, ..names[5] }, target, 0);
        store.remove(source).unwrap();
    }
    store.flush_all().unwrap();
    check_space(&store);
    assert_clean(&device.live(), "with families");
    let everywhere = everything(&store);
    store.remove(ballast).unwrap();
    store.close().unwrap();
    let everywhere: BTreeMap<_, _> =
        everywhere.into_iter().filter(|(name, _)| *name != ballast).collect();
    // What is behind the new end moves, with those who hold it.
    let shared: Arc<dyn BlockDevice> = device.clone();
    let resized = Store::resize(&shared, &small_cache(64), 24 << 20).unwrap();
    assert!(resized.moved_bytes > 0);
    let image = device.live();
    assert_clean(&image, "after it was made smaller");
    // A bad block is told of all who have it.
    let (device, store) = world::reopen(&image, &small_cache(16));
    assert!(everything(&store) == everywhere);
    check_space(&store);
    let blocks = device.live_image();
    let mut blocks = blocks.chunks(BLOCK as usize).enumerate();
    let (bad, _) = blocks.find(|(_, block)| block.iter().all(|byte| *byte == 2)).unwrap();
    device.flip_bit(bad as u64 * BLOCK, 0);
    let step = store.scrub(&mut ScrubCursor::default(), u64::MAX).unwrap();
    let holders: Vec<_> = step.findings[0].holders.iter().map(|holder| holder.object).collect();
    assert_eq!(holders, [names[2], ObjectName { partition: COPY, ..names[2] }]);
}
