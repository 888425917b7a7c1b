//! Appends: in one piece whoever else appends, within their region, once by each token, and durable when
//! they are answered.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::thread;

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{Append, AppendDone, Store, StoreError};
use nasd_types::{AppendToken, ByteRange, Compression, ObjectName, Timestamp};

const CAPACITY: u64 = 32 << 20;

fn token(number: u64) -> AppendToken {
    let mut token = [0; AppendToken::BYTES];
    token[..8].copy_from_slice(&number.to_be_bytes());
    AppendToken(token)
}

fn append(
    store: &Store,
    name: ObjectName,
    number: u64,
    bytes: &[u8],
) -> Result<AppendDone, StoreError> {
    let append = Append { bytes, token: token(number), since: None, within: ByteRange::ALL };
    store.append(name, &append, Timestamp(20))
}

#[test]
fn appends_go_where_the_object_ends_and_are_made_once() {
    let (device, store) = faulty_store(CAPACITY, &small_cache(64));
    let name = create(&store, P1);
    write(&store, name, 0, b"head ").unwrap();
    assert_eq!(append(&store, name, 1, b"one ").unwrap().offset, 5);
    let done = append(&store, name, 2, b"two ").unwrap();
    assert_eq!((done.offset, done.attributes.logical_size), (9, 13));
    assert_eq!(done.attributes.fs_data_modify_time, Timestamp(20));
    // Once more: nothing is done, whatever came meanwhile.
    write(&store, name, 13, b"tail").unwrap();
    for _ in 0..2 {
        let again = append(&store, name, 1, b"one ").unwrap();
        assert_eq!((again.offset, again.attributes.logical_size), (5, 17));
    }
    // The same token is another append in another object, and none of another length.
    let other = create(&store, P1);
    assert_eq!(append(&store, other, 1, b"one ").unwrap().offset, 0);
    assert!(matches!(append(&store, name, 1, b"on"), Err(StoreError::TooLarge { .. })));
    assert!(matches!(append(&store, name, 3, b""), Err(StoreError::TooLarge { .. })));
    assert_eq!(contents(&store, name).unwrap(), b"head one two tail");
    // Durable without a flush, together with everything before it.
    device.crash();
    drop(store);
    let image = device.surviving_image(3);
    let store = open(Arc::new(FaultyDevice::new(image, FaultPlan::default())), &small_cache(64));
    assert_eq!(append(&store, name, 2, b"two ").unwrap().offset, 9);
    assert_eq!(append(&store, other, 1, b"one ").unwrap().offset, 0);
    assert!(contents(&store, name).unwrap().starts_with(b"head one two "));
}

#[test]
fn appends_stay_in_their_region() {
    let (_, store) = memory_store(CAPACITY, &small_cache(64));
    let name = create(&store, P1);
    write(&store, name, 0, &[1; 100]).unwrap();
    let within = |offset, length| {
        let within = ByteRange::new(offset, length);
        let append = Append { bytes: &[2; 10], token: token(offset), since: None, within };
        store.append(name, &append, Timestamp(20))
    };
    for (offset, length) in [(0, 109), (101, 1000), (0, 100), (200, 10)] {
        let refused = within(offset, length);
        assert!(matches!(refused, Err(StoreError::OutOfRegion { offset: 100, end: 110 })));
    }
    assert_eq!(contents(&store, name).unwrap(), [1; 100]);
    assert_eq!(within(100, 10).unwrap().offset, 100);
    assert!(matches!(within(109, 10), Err(StoreError::OutOfRegion { offset: 110, .. })));
    let most = nasd_types::limits::MAX_OBJECT_BYTES;
    set_size(&store, name, most - 5).unwrap();
    assert!(matches!(append(&store, name, 77, &[1; 6]), Err(StoreError::TooLarge { .. })));
    assert_eq!(append(&store, name, 78, &[1; 5]).unwrap().offset, most - 5);
}

#[test]
fn what_is_asked_for_again_too_late_is_refused_rather_than_made_twice() {
    let (_, store) = memory_store(CAPACITY, &small_cache(64));
    let name = create(&store, P1);
    let ask = |number, since, now| {
        let within = ByteRange::ALL;
        let append = Append { bytes: b"line\n", token: token(number), since, within };
        store.append(name, &append, Timestamp(now))
    };
    for number in 0..600 {
        ask(number, None, 1000 + number).unwrap();
    }
    let size = store.getattr(name).unwrap().logical_size;
    // 88 are not remembered any more.
    assert!(matches!(ask(5, Some(Timestamp(1005)), 2000), Err(StoreError::Forgotten)));
    assert!(matches!(ask(9999, Some(Timestamp(1087)), 2000), Err(StoreError::Forgotten)));
    assert_eq!(ask(88, Some(Timestamp(1088)), 2000).unwrap().offset, 88 * 5);
    assert_eq!(ask(599, Some(Timestamp(1599)), 2000).unwrap().offset, 599 * 5);
    assert_eq!(store.getattr(name).unwrap().logical_size, size);
    // One that was asked for since is known not to have been made.
    assert_eq!(ask(9999, Some(Timestamp(1088)), 2000).unwrap().offset, size);
}

#[test]
fn appends_of_many_threads_are_whole_and_none_is_lost() {
    for compression in [Compression::None, Compression::Lz4] {
        let (device, store) = faulty_store(CAPACITY, &small_cache(64));
        compress(&store, compression);
        let name = create(&store, P1);
        let line = |thread: u64, number: u64| {
            let length = 20 + (thread * 7919 + number * 104_729) as usize % 9000;
            let mut line = format!("{thread} {number} ").into_bytes();
            line.resize(length, b'a' + thread as u8);
            line.push(b'\n');
            line
        };
        thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..60 {
                        let bytes = line(thread, number);
                        append(store, name, thread << 32 | number, &bytes).unwrap();
                        if number % 7 == 0 {
                            append(store, name, thread << 32 | number, &bytes).unwrap();
                        }
                    }
                });
            }
        });
        device.crash();
        drop(store);
        let device = FaultyDevice::new(device.surviving_image(1), FaultPlan::default());
        let store = open(Arc::new(device), &small_cache(64));
        let bytes = contents(&store, name).unwrap();
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        lines.sort_unstable();
        let expected = (0..4).flat_map(|thread| (0..60).map(move |number| line(thread, number)));
        let mut expected: Vec<Vec<u8>> = expected.collect();
        expected.sort_unstable();
        assert!(lines == expected, "{} lines", lines.len());
    }
}

#[test]
fn an_append_that_finds_no_room_does_nothing() {
    let (_, store) = memory_store(CAPACITY, &small_cache(64));
    let name = create(&store, P1);
    write(&store, name, 0, &[1; 5000]).unwrap();
    store.flush(&[name]).unwrap();
    store.resize_partition(P1, 3 * BLOCK).unwrap();
    let refused = append(&store, name, 1, &[2; 9000]);
    assert!(matches!(refused, Err(StoreError::NoSpace(_))), "{refused:?}");
    assert_eq!(contents(&store, name).unwrap(), [1; 5000]);
    // What found no room is tried anew by the same token.
    store.resize_partition(P1, u64::MAX).unwrap();
    assert_eq!(append(&store, name, 1, &[2; 9000]).unwrap().offset, 5000);
}

#[test]
fn a_failed_flush_is_made_good_by_asking_again() {
    let (device, store) = faulty_store(CAPACITY, &small_cache(64));
    let name = create(&store, P1);
    store.flush_all().unwrap();
    // Large enough to be written to its place, which fails once.
    let bytes = vec![3; 200_000];
    // DATA_OFFSET of the superblock.
    let data: [u8; 8] = device.live_image()[104..112].try_into().unwrap();
    let unwritable = u64::from_le_bytes(data)..CAPACITY;
    device.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
    assert!(matches!(append(&store, name, 1, &bytes), Err(StoreError::Medium(_))));
    device.set_plan(FaultPlan::default());
    let done = append(&store, name, 1, &bytes).unwrap();
    assert_eq!((done.offset, done.attributes.logical_size), (0, 200_000));
    assert_eq!(contents(&store, name).unwrap(), bytes);
}
