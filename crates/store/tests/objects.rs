//! One operation at a time: what it does to data, attributes, space, and after an open.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use nasd_device::{AlignedBuffer, BlockDevice, MemoryDevice};
use nasd_store::{FormatOptions, NoSpace, Store, StoreError, WriteData};
use nasd_types::{ByteRange, Compression, ObjectId, SetAttributes, Timestamp};

const MIB: u64 = 1 << 20;

#[test]
fn a_formatted_drive_is_who_it_was_made() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    assert_eq!(store.partitions(), [P1, P2]);
    assert_eq!(store.drive_keys().drive.unwrap().expose(), &[3; 32]);
    let keys = store.keys(P1).unwrap();
    let current = keys.current.unwrap();
    assert_eq!((current.epoch, current.key.expose()), (7, &[2; 32]));
    assert_eq!((keys.partition.unwrap().expose(), keys.previous), (&[1; 32], None));
    assert!(matches!(store.keys(nasd_types::PartitionId(9)), Err(StoreError::NoSuchPartition(_))));
    assert_eq!(store.list(P1, ObjectId(0), 10).unwrap(), [ObjectId::FIRST_OBJECT]);
    assert_eq!(store.getattr(name(P1, 4)).unwrap().create_time, Timestamp(1));
    let identity = store.identity();
    store.close().unwrap();
    assert_eq!(Store::read_identity(&*device).unwrap(), identity);
}

/// Not its start alone: the file system under a device may have to note the first write of each block.
#[test]
fn formatting_writes_all_of_the_log() {
    let device = MemoryDevice::new(1024 * MIB).unwrap();
    let log = MIB..17 * MIB;
    let mut stale = AlignedBuffer::zeroed(MIB as usize);
    stale.fill(0xaa);
    for offset in (0..20 * MIB).step_by(MIB as usize) {
        device.write(offset, &[IoSlice::new(&stale)]).unwrap();
    }
    let device = Arc::new(device);
    Store::format(device.clone(), &format_options()).unwrap();
    let mut log_bytes = AlignedBuffer::zeroed((log.end - log.start) as usize);
    log_bytes.fill(1);
    device.read(log.start, &mut [IoSliceMut::new(&mut log_bytes)]).unwrap();
    assert!(log_bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn what_is_written_is_read_before_and_after_a_flush_and_an_open() {
    let (device, store) = memory_store(64 * MIB, &small_cache(128));
    let object = create(&store, P1);
    let mut random = Random(1);
    let bytes = random.bytes(3 * MIB as usize + 77);
    for (offset, piece) in (0..).step_by(500_000).zip(bytes.chunks(500_000)) {
        write_frames(&store, object, offset, piece).unwrap();
    }
    assert_eq!(contents(&store, object).unwrap(), bytes);
    store.flush(&[object]).unwrap();
    assert_eq!(contents(&store, object).unwrap(), bytes);
    check_space(&store);
    store.close().unwrap();
    let store = open(device, &small_cache(128));
    assert!(!store.is_cached(object, ByteRange::new(0, 100)));
    assert_eq!(contents(&store, object).unwrap(), bytes);
    assert!(store.is_cached(object, ByteRange::new(0, 100_000)));
    check_space(&store);
}

#[test]
fn holes_read_as_zeros_and_take_no_space() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 1_000_000, b"end").unwrap();
    write(&store, object, 5000, b"middle").unwrap();
    let mut expected = vec![0; 1_000_003];
    expected[1_000_000..].copy_from_slice(b"end");
    expected[5000..5006].copy_from_slice(b"middle");
    assert_eq!(contents(&store, object).unwrap(), expected);
    store.flush_all().unwrap();
    assert_eq!(store.getattr(object).unwrap().blocks_used, 2);
    check_space(&store);
    drop(store);
    let store = open(device, &small_cache(64));
    assert_eq!(contents(&store, object).unwrap(), expected);
}

#[test]
fn what_is_cut_off_never_comes_back() {
    // Once with the old bytes in the cache only, once on the medium, once in both.
    for (flush_before, flush_between, reopen) in
        [(false, false, false), (true, false, false), (true, true, false), (true, true, true)]
    {
        let (device, mut store) = memory_store(16 * MIB, &small_cache(64));
        let object = create(&store, P1);
        write(&store, object, 0, &[1; 100_000]).unwrap();
        if flush_before {
            store.flush_all().unwrap();
        }
        set_size(&store, object, 50_001).unwrap();
        if flush_between {
            store.flush_all().unwrap();
        }
        if reopen {
            drop(store);
            store = open(device.clone(), &small_cache(64));
        }
        set_size(&store, object, 100_000).unwrap();
        write(&store, object, 99_999, &[2]).unwrap();
        let mut expected = vec![0; 100_000];
        expected[..50_001].fill(1);
        expected[99_999] = 2;
        assert_eq!(contents(&store, object).unwrap(), expected);
        store.flush_all().unwrap();
        assert_eq!(store.getattr(object).unwrap().blocks_used, 13 + 1);
        check_space(&store);
        drop(store);
        let store = open(device, &small_cache(64));
        assert_eq!(contents(&store, object).unwrap(), expected);
    }
}

#[test]
fn removed_objects_are_gone_and_their_space_is_free() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let kept = create(&store, P1);
    let flushed = create(&store, P1);
    let fresh = create(&store, P2);
    for object in [kept, flushed, fresh] {
        write(&store, object, 0, &[7; 20_000]).unwrap();
    }
    store.flush(&[kept, flushed]).unwrap();
    store.remove(flushed).unwrap();
    store.remove(fresh).unwrap();
    for gone in [flushed, fresh] {
        assert!(matches!(store.remove(gone), Err(StoreError::NoSuchObject(n)) if n == gone));
        assert!(matches!(store.getattr(gone), Err(StoreError::NoSuchObject(_))));
        assert!(matches!(write(&store, gone, 0, b"x"), Err(StoreError::NoSuchObject(_))));
        assert!(store.read(gone, ByteRange::ALL).is_err());
        assert_eq!(store.access_control_version(gone).unwrap(), None);
    }
    store.flush(&[flushed, fresh]).unwrap();
    check_space(&store);
    assert_eq!(store.space().used_bytes, 5 * BLOCK);
    drop(store);
    let store = open(device, &small_cache(64));
    assert_eq!(store.list(P1, ObjectId(5), 9).unwrap(), [kept.object]);
    assert_eq!(store.list(P2, ObjectId(5), 9).unwrap(), []);
    check_space(&store);
}

#[test]
fn identifiers_are_never_used_again() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let first = create(&store, P1);
    assert_eq!(first.object, ObjectId::FIRST_DYNAMIC);
    store.remove(first).unwrap();
    let second = create(&store, P1);
    assert!(second.object > first.object);
    // Not flushed, so it is lost; its identifier is not.
    drop(store);
    let store = open(device.clone(), &small_cache(64));
    assert!(store.getattr(second).is_err());
    let third = create(&store, P2);
    assert!(third.object > second.object);
    store.close().unwrap();
    let store = open(device, &small_cache(64));
    let fourth = create(&store, P1);
    assert_eq!(fourth.object.0, third.object.0 + 1, "an orderly close gives the rest back");
}

#[test]
fn two_changes_are_two_versions_of_the_data_though_the_clock_has_not_moved() {
    let (_, store) = memory_store(16 * MIB, &small_cache(64));
    let now = Timestamp(200);
    let (object, _) = store.create(P1, &SetAttributes::default(), now).unwrap();
    let object = name(P1, object.0);
    let located = store.locate(object).unwrap().unwrap();
    let mut versions = vec![located.data_version().unwrap().0];
    let mut changed = |done: Result<(), StoreError>| {
        done.unwrap();
        versions.push(located.data_version().unwrap().0);
    };
    let cut = |size| SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
    changed(store.write(object, 0, WriteData::Slice(b"abc"), now).map(drop));
    changed(store.write(object, 0, WriteData::Slice(b"ABC"), now).map(drop));
    changed(store.punch(object, ByteRange::new(0, 1), now).map(drop));
    changed(store.setattr(object, &cut(2), now).map(drop));
    changed(store.setattr(object, &cut(3), now).map(drop));
    assert_eq!(versions, [200, 201, 202, 203, 204, 205]);
    let told = store.getattr(object).unwrap();
    assert_eq!((told.data_modify_time, told.fs_data_modify_time), (Timestamp(205), now));
}

#[test]
fn attributes_move_as_table_5_says() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let initial = SetAttributes {
        access_control_version: Some(5),
        nearby_object: Some(ObjectId(4)),
        fs_specific: Some(Box::new([9; 256])),
        ..SetAttributes::default()
    };
    let (object, made) = store.create(P1, &initial, Timestamp(100)).unwrap();
    let object = name(P1, object.0);
    assert_eq!(made, store.getattr(object).unwrap());
    assert_eq!((made.access_control_version, made.nearby_object), (5, ObjectId(4)));
    assert_eq!((made.logical_size, made.blocks_used, made.block_size), (0, 0, 4096));
    let times = |a: &nasd_types::Attributes| {
        [
            a.create_time,
            a.data_modify_time,
            a.attribute_modify_time,
            a.fs_data_modify_time,
            a.fs_attribute_modify_time,
        ]
        .map(|time| time.0)
    };
    assert_eq!(times(&made), [100; 5]);

    let written = store.write(object, 0, WriteData::Slice(b"abc"), Timestamp(200)).unwrap();
    assert_eq!((written.logical_size, written.fs_data_modify_time), (3, Timestamp(200)));
    assert_eq!(times(&store.getattr(object).unwrap()), [100, 200, 100, 200, 100]);

    let touch = SetAttributes {
        fs_data_modify_time: Some(Timestamp(7)),
        access_control_version: Some(6),
        ..SetAttributes::default()
    };
    let set = store.setattr(object, &touch, Timestamp(300)).unwrap();
    assert_eq!(times(&set), [100, 200, 300, 7, 300]);
    assert_eq!(store.access_control_version(object).unwrap(), Some(6));

    let cut = SetAttributes {
        logical_size: Some(1),
        fs_attribute_modify_time: Some(Timestamp(8)),
        ..SetAttributes::default()
    };
    assert_eq!(
        times(&store.setattr(object, &cut, Timestamp(400)).unwrap()),
        [100, 400, 400, 400, 8]
    );
    let same = SetAttributes { logical_size: Some(1), ..SetAttributes::default() };
    assert_eq!(
        times(&store.setattr(object, &same, Timestamp(500)).unwrap()),
        [100, 400, 500, 400, 500]
    );

    let before = store.getattr(object).unwrap();
    let nothing = store.write(object, 50, WriteData::Slice(b""), Timestamp(600)).unwrap();
    assert_eq!(nothing.logical_size, 1);
    assert_eq!(store.getattr(object).unwrap(), before);

    store.flush(&[object]).unwrap();
    let durable = store.getattr(object).unwrap();
    drop(store);
    let store = open(device, &small_cache(64));
    assert_eq!(store.getattr(object).unwrap(), durable);
    assert_eq!(durable.fs_specific[..], [9; 256]);
    assert_eq!(store.access_control_version(object).unwrap(), Some(6));
}

/// Whoever cuts and revokes, and asks once more for it, may be answered before the first request comes.
#[test]
fn a_length_comes_once_with_its_version() {
    let (_device, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, &[1; 9000]).unwrap();
    let cut = SetAttributes {
        access_control_version: Some(7),
        logical_size: Some(100),
        ..SetAttributes::default()
    };
    let set = |changes: &SetAttributes| store.setattr(object, changes, Timestamp(3));
    assert_eq!(set(&cut).unwrap().logical_size, 100);
    assert_eq!(set(&cut).unwrap().logical_size, 100, "it was done already");
    write(&store, object, 50, &[2; 9000]).unwrap();
    let late = set(&cut).unwrap_err();
    assert!(matches!(late, StoreError::VersionStays { present: 7, .. }), "{late}");
    assert_eq!(store.getattr(object).unwrap().logical_size, 9050);
    let other = SetAttributes { access_control_version: Some(8), ..cut };
    assert_eq!(set(&other).unwrap().logical_size, 100);
}

#[test]
fn who_uses_a_file_does_not_notice_that_capabilities_are_revoked() {
    let (_, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    let before = store.getattr(object).unwrap();
    let revoked = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let later = Timestamp(before.attribute_modify_time.0 + 50);
    let after = store.setattr(object, &revoked, later).unwrap();
    assert_eq!(after.attribute_modify_time, later);
    assert_eq!(after.fs_attribute_modify_time, before.fs_attribute_modify_time);
    let changed = SetAttributes { fs_specific: Some(Box::new([1; 256])), ..revoked };
    assert_eq!(store.setattr(object, &changed, later).unwrap().fs_attribute_modify_time, later);
}

#[test]
fn what_a_reader_holds_stays_as_it_was() {
    let (_, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, &[1; 70_000]).unwrap();
    let held = store.read(object, ByteRange::new(0, 70_000)).unwrap();
    write(&store, object, 10, &[2; 10]).unwrap();
    write_frames(&store, object, 0, &[3; 65_536]).unwrap();
    set_size(&store, object, 5).unwrap();
    store.flush_all().unwrap();
    store.remove(object).unwrap();
    assert_eq!(held.to_vec(), vec![1; 70_000]);
}

#[test]
fn quota_and_reservation_are_kept() {
    let device = std::sync::Arc::new(nasd_device::MemoryDevice::new(32 * MIB).unwrap());
    let mut options: FormatOptions = format_options();
    options.partitions[0].quota_bytes = 100 * BLOCK + 5;
    Store::format(device.clone(), &options).unwrap();
    let store = open(device.clone(), &small_cache(64));
    let object = create(&store, P1);
    let other = create(&store, P1);
    write(&store, object, 0, &[1; 90 * 4096]).unwrap();
    let refused = write(&store, other, 0, &[1; 11 * 4096]);
    assert!(matches!(refused, Err(StoreError::NoSpace(NoSpace::Quota(P1)))));
    assert_eq!(store.getattr(other).unwrap().logical_size, 0, "all or nothing");
    write(&store, other, 0, &[1; 10 * 4096]).unwrap();
    // Overwriting takes nothing, in the cache or on the medium.
    write(&store, object, 0, &[2; 90 * 4096]).unwrap();
    store.flush_all().unwrap();
    write(&store, object, 4096, &[3; 80 * 4096]).unwrap();
    let space = store.partition_space(P1).unwrap();
    assert_eq!((space.used_bytes, space.free_bytes), (100 * BLOCK, 0));
    // A removal not yet durable is made durable to have its space.
    store.remove(other).unwrap();
    let reserve = SetAttributes { blocks_allocated: Some(97), ..SetAttributes::default() };
    let attributes = store.setattr(object, &reserve, Timestamp(5)).unwrap();
    assert_eq!((attributes.blocks_allocated, attributes.blocks_used), (97, 90));
    let third = create(&store, P1);
    assert!(write(&store, third, 0, &[1; 4 * 4096]).is_err());
    write(&store, object, 90 * BLOCK, &[1; 7 * 4096]).unwrap();
    write(&store, third, 0, &[1; 3 * 4096]).unwrap();
    store.flush_all().unwrap();
    check_space(&store);
    drop(store);
    check_space(&open(device, &small_cache(64)));
}

#[test]
fn a_full_drive_still_takes_overwrites_and_gives_space_back() {
    let (device, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    let mut random = Random(2);
    let mut size = 0;
    let full = loop {
        match write_frames(&store, object, size, &random.bytes(200_000)) {
            Ok(_) => size += 200_000,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::NoSpace(NoSpace::Data)));
    assert!(size > 11 * MIB);
    let more = write(&store, object, size + 3 * 65536, &[1; 60 * 4096]);
    assert!(matches!(more, Err(StoreError::NoSpace(_))));
    let mut expected = contents(&store, object).unwrap();
    // Everything is written anew twice over, in pieces and at random places.
    for _ in 0..120 {
        let offset = random.below(size - 200_000);
        let bytes = random.bytes(200_000);
        write(&store, object, offset, &bytes).unwrap();
        expected[offset as usize..][..200_000].copy_from_slice(&bytes);
    }
    assert!(contents(&store, object).unwrap() == expected);
    store.flush_all().unwrap();
    check_space(&store);
    set_size(&store, object, size / 2).unwrap();
    let other = create(&store, P2);
    for offset in 0..20 {
        write(&store, other, offset * 200_000, &random.bytes(200_000)).unwrap();
    }
    store.flush_all().unwrap();
    check_space(&store);
    drop(store);
    let store = open(device, &small_cache(64));
    expected.truncate(size as usize / 2);
    assert!(contents(&store, object).unwrap() == expected);
}

#[test]
fn a_full_metadata_region_says_so_and_stays_usable() {
    // Little metadata for 500 MiB of data: small objects fill the first long before the second.
    let device = std::sync::Arc::new(nasd_device::MemoryDevice::new(500 * MIB).unwrap());
    let options = FormatOptions { metadata_bytes: Some(2 * MIB), ..format_options() };
    Store::format(device.clone(), &options).unwrap();
    let store = open(device.clone(), &small_cache(64));
    let mut made = Vec::new();
    let full = loop {
        match store.create(P1, &SetAttributes::default(), Timestamp(2)) {
            Ok((object, _)) => made.push(name(P1, object.0)),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::NoSpace(NoSpace::Metadata)), "{full}");
    assert!(made.len() > 500, "only {} objects", made.len());
    assert!(store.read_only().is_none());
    for &object in &made[..made.len() / 2] {
        store.remove(object).unwrap();
    }
    for _ in 0..50 {
        let object = create(&store, P1);
        write(&store, object, 0, b"data").unwrap();
    }
    store.flush_all().unwrap();
    check_space(&store);
    store.close().unwrap();
    check_space(&open(device, &small_cache(64)));
}

#[test]
fn limits_are_refused_by_name() {
    let (_, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    let far = write(&store, object, u64::MAX - 2, b"abc");
    assert!(matches!(far, Err(StoreError::TooLarge { what: "an object", .. })));
    let far = write(&store, object, (1 << 62) - 2, b"abc");
    assert!(matches!(far, Err(StoreError::TooLarge { what: "an object", .. })));
    assert!(set_size(&store, object, (1 << 62) + 1).is_err());
    let large = store.frames_for_write(0, 5 << 20);
    assert!(matches!(large, Err(StoreError::TooLarge { what: "a write", .. })));
    let frames = store.frames_for_write(4096, 100).unwrap();
    let moved = store.write(object, 8192, WriteData::Frames(frames), Timestamp(1));
    assert!(matches!(moved, Err(StoreError::Misplaced { expected: 4096, found: 8192 })));
    // The largest object is fine, sparse.
    write(&store, object, (1 << 62) - 3, b"abc").unwrap();
    let end = store.read(object, ByteRange::new((1 << 62) - 5, 100)).unwrap();
    assert_eq!(end.to_vec(), b"\0\0abc");
    assert!(matches!(store.read(object, ByteRange::ALL), Err(StoreError::TooLarge { .. })));
    store.flush_all().unwrap();
    assert!(store.read(object, ByteRange::new(1 << 62, 5)).unwrap().is_empty());
}

#[test]
fn what_a_write_would_take_does_not_depend_on_when_the_tree_gets_what_was_flushed() {
    for compression in [Compression::None, Compression::Lz4] {
        let (_, store) = memory_store(64 * MIB, &small_cache(64));
        compress(&store, compression);
        let object = create(&store, P1);
        let noise = Random(4).bytes(25 * 4096);
        write(&store, object, 0, &noise).unwrap();
        store.flush(&[object]).unwrap();
        write(&store, object, 3 * 4096, &noise[..5 * 4096]).unwrap();
        store.flush(&[object]).unwrap();
        let required = || {
            let mut ranges = [ByteRange::new(0, 30 * 4096)].into_iter();
            store.blocks_required(object, &mut ranges).unwrap().maximum
        };
        let before = required();
        store.checkpoint().unwrap();
        assert_eq!((before, required()), (5, 5), "{compression:?}");
    }
}

#[test]
fn what_is_used_and_what_a_write_would_take_are_all_of_it_together() {
    const ALL: u64 = 10;
    for length in [4, 3000] {
        let (_, store) = memory_store(64 * MIB, &small_cache(64));
        let object = create(&store, P1);
        write(&store, object, 0, &vec![1; length]).unwrap();
        let sum = || {
            let mut ranges = [ByteRange::new(0, ALL * 4096)].into_iter();
            let required = store.blocks_required(object, &mut ranges).unwrap();
            store.getattr(object).unwrap().blocks_used + required.maximum
        };
        assert_eq!(sum(), ALL, "{length}, dirty");
        store.flush(&[object]).unwrap();
        assert_eq!(sum(), ALL, "{length}, flushed");
        write(&store, object, 0, &vec![2; length]).unwrap();
        assert_eq!(sum(), ALL, "{length}, dirty again");
        store.checkpoint().unwrap();
        assert_eq!(sum(), ALL, "{length}, in the tree");
    }
}

#[test]
fn writing_back_makes_room_and_the_waiter_is_told() {
    let (_, store) = memory_store(64 * MIB, &small_cache(64));
    assert_eq!(store.wait_for_dirty(Duration::from_millis(1)), 0);
    let nothing = store.write_back(1).unwrap();
    assert_eq!((nothing.written_bytes, nothing.dirty_bytes), (0, 0));
    let objects: Vec<_> = (0..4).map(|_| create(&store, P1)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(store.wait_for_dirty(Duration::from_secs(60)) >= 8 << 16));
        for &object in &objects {
            write(&store, object, 0, &vec![1; 4 << 16]).unwrap();
        }
    });
    let step = store.write_back(1).unwrap();
    assert_eq!(step.written_bytes, 4 << 16, "the longest dirty object, whole");
    assert_eq!(step.dirty_bytes, 12 << 16);
    let rest = store.write_back(u64::MAX).unwrap();
    assert_eq!((rest.written_bytes, rest.dirty_bytes), (12 << 16, 0));
}

#[test]
fn all_buffers_held_by_readers_is_busy_not_a_hang() {
    let mut options = small_cache(16);
    options.buffer_patience = Duration::from_millis(50);
    let (_, store) = memory_store(64 * MIB, &options);
    let object = create(&store, P1);
    for offset in 0..20 {
        write(&store, object, offset << 16, &vec![1; 1 << 16]).unwrap();
    }
    store.flush_all().unwrap();
    let mut held = Vec::new();
    let busy = (0..20u64).find_map(|frame| {
        match store.read(object, ByteRange::new(frame << 16, 1 << 16)) {
            Ok(data) => {
                held.push(data);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert!(matches!(busy, Some(StoreError::Busy)));
    drop(held);
    store.read(object, ByteRange::new(0, 1 << 16)).unwrap();
}

#[test]
fn a_scan_leaves_what_is_read_often_in_the_cache() {
    let (device, store) = memory_store(64 * MIB, &small_cache(64));
    let (hot, large) = (create(&store, P1), create(&store, P1));
    for frame in 0..16 {
        write(&store, hot, frame << 16, &vec![1; 1 << 16]).unwrap();
    }
    for frame in 0..256 {
        write(&store, large, frame << 16, &vec![2; 1 << 16]).unwrap();
    }
    store.close().unwrap();
    let store = open(device, &small_cache(64));
    for _ in 0..3 {
        for frame in 0..16 {
            store.read(hot, ByteRange::new(frame << 16, 1 << 16)).unwrap();
        }
    }
    // Block by block, which touches each frame 16 times.
    for block in 0..256 * 16 {
        store.read(large, ByteRange::new(block * BLOCK, BLOCK)).unwrap();
    }
    let cached = (0..16).filter(|frame| store.is_cached(hot, ByteRange::new(frame << 16, 1 << 16)));
    assert_eq!(cached.count(), 16);
}

/// Dirty objects take memory that the cache does not count.
#[test]
fn who_changes_or_removes_very_many_objects_helps_to_write_back() {
    let (_, store) = faulty_store(512 << 20, &small_cache(64));
    let objects: Vec<_> = (0..9_500).map(|_| create(&store, P1)).collect();
    store.flush_all().unwrap();
    let entries = || store.statistics().log_entries;
    let before = entries();
    let changes = SetAttributes { fs_data_modify_time: Some(Timestamp(7)), ..Default::default() };
    for object in &objects {
        store.setattr(*object, &changes, Timestamp(7)).unwrap();
    }
    assert!(entries() > before, "after changes");
    store.flush_all().unwrap();
    let before = entries();
    for object in &objects {
        store.remove(*object).unwrap();
    }
    assert!(entries() > before, "after removals");
}

/// Also while what was in memory of them is not let go of.
#[test]
fn objects_of_a_removed_partition_are_gone_with_it() {
    let (_, store) = memory_store(16 * MIB, &small_cache(64));
    let object = create(&store, P2);
    write_frames(&store, object, 0, b"data").unwrap();
    store.remove_partition(P2).unwrap();
    let gone = |error| assert!(matches!(error, StoreError::NoSuchPartition(P2)), "{error}");
    gone(store.getattr(object).unwrap_err());
    gone(store.read(object, ByteRange::new(0, 4)).unwrap_err());
    gone(write_frames(&store, object, 0, b"more").unwrap_err());
}

#[test]
fn a_reservation_goes_with_what_is_cut_off_or_punched() {
    let (_, store) = memory_store(16 * MIB, &small_cache(64));
    for flushed in [false, true] {
        let object = create(&store, P1);
        let reserved = || store.getattr(object).unwrap().blocks_allocated;
        let reserve = SetAttributes { blocks_allocated: Some(100), ..SetAttributes::default() };
        store.setattr(object, &reserve, Timestamp(5)).unwrap();
        write(&store, object, 0, &[1; 40 * 4096]).unwrap();
        if flushed {
            store.flush_all().unwrap();
        }
        let punched = |from: u64, blocks: u64| {
            store
                .punch(object, ByteRange::new(from * BLOCK, blocks * BLOCK), Timestamp(6))
                .unwrap();
            reserved()
        };
        // What was punched already, and what is not written, stays.
        assert_eq!((punched(10, 20), punched(10, 20), punched(30, 50)), (80, 80, 70));
        set_size(&store, object, 200 * BLOCK).unwrap();
        assert_eq!(reserved(), 70, "a longer object");
        set_size(&store, object, 60 * BLOCK + 1).unwrap();
        assert_eq!(reserved(), 61);
        store.flush_all().unwrap();
        assert_eq!(store.getattr(object).unwrap().blocks_used, 10);
        set_size(&store, object, 5 * BLOCK).unwrap();
        store.flush_all().unwrap();
        assert_eq!((reserved(), store.getattr(object).unwrap().blocks_used), (5, 5));
        check_space(&store);
    }
}
