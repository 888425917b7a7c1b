//! Bringing pieces of several objects into the cache at once: what is there afterwards is what was
//! written, and nothing that stands in the way does harm.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use nasd_device::{FaultPlan, FileDevice, FileOptions};
use nasd_store::{Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName, Timestamp};

const MIB: u64 = 1 << 20;

/// Prefetches, and waits for that.
fn prefetch(store: &Store, wanted: &[(ObjectName, ByteRange)]) {
    let mut prefetch = store.prefetch();
    let located = wanted.iter().map(|(name, range)| (store.locate(*name).unwrap(), *range));
    let located: Vec<_> = located.collect();
    let there = (0..)
        .zip(&located)
        .filter_map(|(tag, (object, range))| Some((tag, object.as_ref()?, range)));
    let mut tags: Vec<usize> = Vec::new();
    for (tag, object, range) in there {
        prefetch.want(tag, object, *range);
        tags.push(tag);
    }
    let mut come = Vec::new();
    while come.len() < tags.len() {
        let some = prefetch.come(1);
        assert!(!some.is_empty());
        come.extend(some);
    }
    come.sort_unstable();
    assert_eq!(come, tags);
    assert!(prefetch.come(5).is_empty());
}

/// Objects of noise, of which each is as long as said, and what they hold.
fn fill(store: &Store, random: &mut Random, lengths: &[usize]) -> Vec<(ObjectName, Vec<u8>)> {
    let filled = lengths.iter().map(|&length| {
        let object = create(store, P1);
        let bytes = random.bytes(length);
        for (chunk, part) in (0..).zip(bytes.chunks(500_000)) {
            write(store, object, chunk * 500_000, part).unwrap();
        }
        (object, bytes)
    });
    let filled = filled.collect();
    store.flush_all().unwrap();
    filled
}

#[test]
fn frames_that_are_there_or_nowhere_count_as_none_that_are_read() {
    let (device, store) = faulty_store(64 * MIB, &small_cache(256));
    let objects = fill(&store, &mut Random(2), &[300_000]);
    drop(store);
    let store = open(device, &small_cache(256));
    let object = store.locate(objects[0].0).unwrap().unwrap();
    let mut prefetch = store.prefetch_hinted();
    for (offset, read) in [(0, 2), (0, 2), (1 << 30, 2), (131_072, 4)] {
        prefetch.want(0, &object, ByteRange::new(offset, 131_072));
        assert_eq!(prefetch.come(1), [0]);
        assert_eq!(prefetch.frames_read(), read);
    }
}

#[test]
fn what_was_wanted_is_in_the_cache_as_it_was_written() {
    let mut random = Random(1);
    for compression in [Compression::None, Compression::Lz4] {
        let (device, store) = faulty_store(64 * MIB, &small_cache(256));
        compress(&store, compression);
        // The second is kept in the tree, the third has a hole.
        let mut objects = fill(&store, &mut random, &[700_000, 300, 200_000, 0]);
        store.punch(objects[2].0, ByteRange::new(65_536, 65_536), Timestamp(9)).unwrap();
        objects[2].1[65_536..131_072].fill(0);
        store.flush_all().unwrap();
        drop(store);
        let store = open(device.clone(), &small_cache(256));
        let mut wanted = Vec::new();
        for _ in 0..40 {
            let (object, bytes) = random.pick(&objects).unwrap();
            let range = ByteRange::new(random.below(bytes.len() as u64 + 9000), 4096);
            wanted.push((*object, range));
        }
        prefetch(&store, &wanted);
        for (object, range) in &wanted {
            let bytes = &objects.iter().find(|(name, _)| name == object).unwrap().1;
            let (start, end) = (range.offset as usize, range.end() as usize);
            let expected = &bytes[start.min(bytes.len())..end.min(bytes.len())];
            if compression == Compression::None && bytes.len() > 300 && (*object != objects[2].0) {
                assert!(store.is_cached(*object, *range), "{object} {range:?}");
            }
            assert!(store.read(*object, *range).unwrap().to_vec() == expected);
        }
    }
}

#[test]
fn what_cannot_be_had_is_left_for_the_read() {
    let (device, store) = faulty_store(64 * MIB, &small_cache(64));
    let objects = fill(&store, &mut Random(2), &[1_500_000, 1_500_000]);
    let [(one, bytes), (other, _)] = &objects[..] else { panic!() };
    let gone = create(&store, P1);
    store.flush_all().unwrap();
    store.remove(gone).unwrap();
    drop(store);
    // A bit of the sixth block of one of them.
    let image = device.live_image();
    let at =
        image.windows(64).position(|window| window == &bytes[5 * 4096..5 * 4096 + 64]).unwrap();
    device.flip_bit(at as u64, 3);
    let store = open(device.clone(), &small_cache(64));
    let block = |index: u64| ByteRange::new(index * 4096, 4096);
    let absent = name(P1, 1 << 40);
    let wanted = [
        (*one, block(5)),
        (*one, block(40)),
        (*other, block(5)),
        (absent, block(0)),
        (gone, block(0)),
        (*other, ByteRange::new(u64::MAX - 10, u64::MAX)),
        // More than a transfer may have.
        (*other, ByteRange::ALL),
    ];
    prefetch(&store, &wanted);
    assert!(!store.is_cached(*one, block(5)));
    assert!(store.is_cached(*one, block(40)) && store.is_cached(*other, block(5)));
    let error = store.read(*one, block(5)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { object, block: 5 } if object == *one), "{error}");
    // A device that fails fails the reads alone.
    device.set_plan(FaultPlan { unreadable: 0..64 * MIB, ..FaultPlan::default() });
    prefetch(&store, &[(*one, block(80)), (*other, block(80))]);
    let failed = store.read(*other, block(80)).map(|read| read.len());
    assert!(matches!(failed, Err(StoreError::Medium(_))), "{failed:?}");
    device.set_plan(FaultPlan::default());
    assert!(store.read(*one, block(80)).unwrap().to_vec() == bytes[80 * 4096..81 * 4096]);
}

#[test]
fn writers_readers_and_those_who_prefetch_do_not_wait_for_one_another_for_ever() {
    let (_, store) = memory_store(64 * MIB, &small_cache(64));
    together(store);
    // Through a queue of the device, if the kernel here has such.
    let folder = tempfile::tempdir().unwrap();
    let file = FileOptions { allow_buffered: true, ..FileOptions::default() };
    let device = FileDevice::create(folder.path().join("medium"), 64 * MIB, file).unwrap();
    let device = Arc::new(device);
    Store::format(device.clone(), &format_options()).unwrap();
    // So few frames that most of what is read was given up before.
    together(open(device, &small_cache(32)));
}

fn together(store: Store) {
    let store = Arc::new(store);
    let objects: Vec<ObjectName> = (0..4).map(|_| create(&store, P1)).collect();
    // Every byte of a block is the same.
    for &object in &objects {
        write(&store, object, 0, &[0; 100 * 4096]).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (store, objects, over) = (&store, &objects, &over);
            scope.spawn(move || {
                let mut random = Random(seed);
                while !over.load(Ordering::Relaxed) {
                    let wanted: Vec<_> = (0..8)
                        .map(|_| {
                            let object = *random.pick(objects).unwrap();
                            (object, ByteRange::new(random.below(100) * 4096, 4096))
                        })
                        .collect();
                    prefetch(store, &wanted);
                    for (object, range) in wanted {
                        let bytes = store.read(object, range).unwrap().to_vec();
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mix");
                    }
                }
            });
        }
        let mut random = Random(77);
        for value in 1..=200 {
            for &object in &objects {
                let block = random.below(100);
                write(&store, object, block * 4096, &[value; 4096]).unwrap();
                store.flush(&[object]).unwrap();
                let read = store.read(object, ByteRange::new(block * 4096, 4096)).unwrap();
                assert!(read.to_vec() == [value; 4096], "not what was written last");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}
