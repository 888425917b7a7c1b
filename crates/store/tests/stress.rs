//! Many threads at once. Each block of the shared objects carries who wrote it and which round it
//! was, so that a reader can tell whether what it sees was ever written.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_store::{Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName};

const BLOCKS: u64 = 96;

/// A block that tells its object, its place and its round in every word.
fn stamped(object: ObjectName, block: u64, round: u64) -> Vec<u8> {
    let word = (object.object.0 << 40) | (block << 24) | round;
    word.to_le_bytes().repeat(512)
}

fn round_of(object: ObjectName, block: u64, bytes: &[u8]) -> u64 {
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks(8).all(|chunk| chunk == word.to_le_bytes()), "a block is torn");
    if word == 0 {
        return 0;
    }
    assert_eq!((word >> 40, (word >> 24) & 0xffff), (object.object.0, block), "a stray block");
    word & 0xff_ffff
}

/// Writes rounds of whole runs of blocks.
fn writer(store: &Store, object: ObjectName, lowest: &AtomicU64, stop: &AtomicBool, seed: u64) {
    let mut random = Random(seed);
    let mut round = 1;
    while !stop.load(Ordering::Relaxed) {
        // Every round writes every block, so that a reader knows the lowest round it may see.
        let mut block = 0;
        while block < BLOCKS {
            let count = (1 + random.below(40)).min(BLOCKS - block);
            let bytes: Vec<u8> =
                (block..block + count).flat_map(|b| stamped(object, b, round)).collect();
            if random.below(2) == 0 {
                write(store, object, block * BLOCK, &bytes).unwrap();
            } else {
                write_frames(store, object, block * BLOCK, &bytes).unwrap();
            }
            block += count;
        }
        lowest.store(round, Ordering::Release);
        if random.below(3) == 0 {
            store.flush(&[object]).unwrap();
        }
        round += 1;
    }
}

fn reader(store: &Store, objects: &[(ObjectName, AtomicU64)], stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let (object, lowest) = random.pick(objects).unwrap();
        let first = random.below(BLOCKS);
        let count = (1 + random.below(32)).min(BLOCKS - first);
        let floor = lowest.load(Ordering::Acquire);
        let data = store.read(*object, ByteRange::new(first * BLOCK, count * BLOCK)).unwrap();
        let bytes = data.to_vec();
        let rounds: Vec<u64> = (first..)
            .zip(bytes.chunks_exact(BLOCK as usize))
            .map(|(block, bytes)| round_of(*object, block, bytes))
            .collect();
        assert!(rounds.iter().all(|&round| round >= floor), "{rounds:?} below {floor}");
        reads += 1;
    }
    reads
}

/// Creates, writes, checks and removes objects of its own.
fn churner(store: &Store, stop: &AtomicBool, seed: u64) {
    let mut random = Random(seed);
    while !stop.load(Ordering::Relaxed) {
        let object = create(store, P2);
        let length = 1 + random.below(150_000) as usize;
        let bytes = random.bytes(length);
        write(store, object, 0, &bytes).unwrap();
        if random.below(2) == 0 {
            store.flush(&[object]).unwrap();
        }
        assert!(contents(store, object).unwrap() == bytes);
        let size = random.below(bytes.len() as u64);
        set_size(store, object, size).unwrap();
        assert!(contents(store, object).unwrap() == bytes[..size as usize]);
        if random.below(8) > 0 {
            store.remove(object).unwrap();
            let gone = store.read(object, ByteRange::new(0, 1));
            assert!(matches!(gone, Err(StoreError::NoSuchObject(_))));
        } else {
            set_size(store, object, 0).unwrap();
        }
    }
}

fn stress(capacity: u64, frames: usize, duration: Duration, compression: Compression) {
    let (device, store) = memory_store(capacity, &small_cache(frames));
    compress(&store, compression);
    let objects: Vec<(ObjectName, AtomicU64)> =
        (0..3).map(|_| (create(&store, P1), AtomicU64::new(0))).collect();
    for (object, _) in &objects {
        set_size(&store, *object, BLOCKS * BLOCK).unwrap();
    }
    let stop = AtomicBool::new(false);
    let reads = std::thread::scope(|scope| {
        for (seed, (object, lowest)) in objects.iter().enumerate() {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || writer(store, *object, lowest, stop, seed as u64));
        }
        for seed in 10..12 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || churner(store, stop, seed));
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                store.settle_when_due(Duration::from_millis(3)).unwrap();
                store.wait_for_dirty(Duration::from_millis(2));
                store.write_back(1 << 20).unwrap();
            }
        });
        let readers: Vec<_> = (20..23)
            .map(|seed| {
                let (store, stop, objects) = (&store, &stop, &objects);
                scope.spawn(move || reader(store, objects, stop, seed))
            })
            .collect();
        let end = Instant::now() + duration;
        while Instant::now() < end && !readers.iter().any(|reader| reader.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert!(reads > 100, "only {reads} reads");
    store.flush_all().unwrap();
    check_space(&store);
    let before = everything(&store);
    drop(store);
    let store = open(device, &small_cache(frames));
    check_space(&store);
    assert!(everything(&store) == before);
}

#[test]
fn threads_never_see_what_was_not_written_with_a_tiny_cache() {
    stress(64 << 20, 48, Duration::from_secs(4), Compression::None);
}

#[test]
fn threads_never_see_what_was_not_written_with_a_large_cache() {
    stress(64 << 20, 1024, Duration::from_secs(2), Compression::None);
}

#[test]
fn threads_never_see_what_was_not_written_when_it_is_compressed() {
    stress(64 << 20, 48, Duration::from_secs(3), Compression::Lz4);
    stress(64 << 20, 1024, Duration::from_secs(1), Compression::Zstd);
}

#[test]
fn flushes_that_meet_share_their_commits() {
    let (device, store) = faulty_store(32 << 20, &small_cache(256));
    let objects: Vec<ObjectName> = (0..8).map(|_| create(&store, P1)).collect();
    store.flush_all().unwrap();
    let before = device.syncs();
    const ROUNDS: u64 = 50;
    std::thread::scope(|scope| {
        for &object in &objects {
            let store = &store;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    write(store, object, 0, &stamped(object, 0, round)).unwrap();
                    store.flush(&[object]).unwrap();
                }
            });
        }
    });
    let syncs = device.syncs() - before;
    // Alone each would take two.
    assert!(syncs < 2 * 8 * ROUNDS, "{syncs} syncs for {} flushes", 8 * ROUNDS);
    println!("{syncs} syncs for {} flushes", 8 * ROUNDS);
    drop(store);
    let store = open(device, &small_cache(256));
    for object in objects {
        assert_eq!(round_of(object, 0, &contents(&store, object).unwrap()), ROUNDS - 1);
    }
}
