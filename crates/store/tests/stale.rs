//! A hunt for reads that go by a state of the metadata that is no more: where an object's blocks lie,
//! and their checksums, are kept in memory. Objects are much longer than the data cache, so that
//! most reads go to the medium; and somebody always reads while they are changed.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_store::{Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName, Timestamp};

/// Longest object, in blocks: several of the stretches whose extents are kept together.
const BLOCKS: u64 = 512;

/// An object and what it must hold.
struct Known {
    name: ObjectName,
    bytes: Vec<u8>,
}

impl Known {
    fn new(store: &Store) -> Known {
        Known { name: create(store, P1), bytes: Vec::new() }
    }

    /// A range that reaches over the end at times, and is mostly short.
    fn range(&self, random: &mut Random) -> (u64, u64) {
        let offset = random.below(BLOCKS * BLOCK);
        let most = if random.below(4) == 0 { 100 * BLOCK } else { 3 * BLOCK };
        let (offset, length) = (offset, 1 + random.below(most));
        match random.below(2) {
            0 => (offset / BLOCK * BLOCK, length.next_multiple_of(BLOCK)),
            _ => (offset, length),
        }
    }

    fn write(&mut self, store: &Store, random: &mut Random) {
        let (offset, length) = self.range(random);
        let bytes = random.bytes(length as usize);
        if random.below(2) == 0 {
            write(store, self.name, offset, &bytes).unwrap();
        } else {
            write_frames(store, self.name, offset, &bytes).unwrap();
        }
        let end = (offset + length) as usize;
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[offset as usize..end].copy_from_slice(&bytes);
    }

    fn punch(&mut self, store: &Store, random: &mut Random) {
        let (offset, length) = self.range(random);
        store.punch(self.name, ByteRange::new(offset, length), Timestamp(5)).unwrap();
        let size = self.bytes.len();
        let hole = (offset as usize).min(size)..((offset + length) as usize).min(size);
        self.bytes[hole].fill(0);
    }

    fn resize(&mut self, store: &Store, random: &mut Random) {
        let size = random.below(BLOCKS * BLOCK);
        set_size(store, self.name, size).unwrap();
        self.bytes.resize(size as usize, 0);
    }

    fn copy(&self, store: &Store) -> Known {
        let (object, _) = store.fastcopy(self.name, Timestamp(6)).unwrap();
        Known { name: ObjectName { object, ..self.name }, bytes: self.bytes.clone() }
    }

    fn check(&self, store: &Store, random: &mut Random) {
        let (offset, length) = self.range(random);
        let size = self.bytes.len();
        let found = store.read(self.name, ByteRange::new(offset, length)).unwrap().to_vec();
        let range = (offset as usize).min(size)..((offset + length) as usize).min(size);
        assert!(found == self.bytes[range.clone()], "{} differs within {range:?}", self.name);
    }
}

/// Changes objects of its own and compares them with what they must be.
fn changer(store: &Store, names: &Mutex<Vec<ObjectName>>, stop: &AtomicBool, seed: u64) {
    let mut random = Random(seed);
    let mut objects = vec![Known::new(store)];
    while !stop.load(Ordering::Relaxed) {
        let index = random.below(objects.len() as u64) as usize;
        match random.below(20) {
            0..8 => objects[index].write(store, &mut random),
            8 | 9 => objects[index].punch(store, &mut random),
            10 => objects[index].resize(store, &mut random),
            11 if objects.len() < 4 => {
                let copy = objects[index].copy(store);
                objects.push(copy);
            }
            12 if objects.len() > 2 => {
                let gone = objects.swap_remove(index).name;
                store.remove(gone).unwrap();
                let read = store.read(gone, ByteRange::new(0, BLOCK));
                assert!(matches!(read, Err(StoreError::NoSuchObject(_))));
            }
            13..16 => store.flush(&[objects[index].name]).unwrap(),
            16 => store.flush_all().unwrap(),
            _ => {}
        }
        *names.lock().unwrap() = objects.iter().map(|known| known.name).collect();
        for known in &objects {
            known.check(store, &mut random);
        }
    }
}

/// Reads anything, so that where it lies is looked up while it changes.
fn reader(store: &Store, names: &[Mutex<Vec<ObjectName>>], stop: &AtomicBool, seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let names = random.pick(names).unwrap().lock().unwrap().clone();
        let Some(&name) = random.pick(&names) else {
            continue;
        };
        let offset = random.below(BLOCKS) * BLOCK;
        match store.read(name, ByteRange::new(offset, BLOCK)) {
            Ok(_) => reads += 1,
            Err(StoreError::NoSuchObject(_)) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    reads
}

fn hunt(duration: Duration, compression: Compression, seed: u64) {
    let (device, store) = memory_store(64 << 20, &small_cache(32));
    compress(&store, compression);
    let stop = AtomicBool::new(false);
    let names = [const { Mutex::new(Vec::new()) }; 2];
    let reads = std::thread::scope(|scope| {
        let (store, stop, names) = (&store, &stop, &names);
        let changers: Vec<_> = (names.iter().zip(seed..))
            .map(|(names, seed)| scope.spawn(move || changer(store, names, stop, seed)))
            .collect();
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                store.wait_for_dirty(Duration::from_millis(2));
            }
        });
        let readers: Vec<_> = (seed + 50..seed + 52)
            .map(|seed| scope.spawn(move || reader(store, names, stop, seed)))
            .collect();
        let end = Instant::now() + duration;
        let failed = || changers.iter().any(|changer| changer.is_finished());
        while Instant::now() < end && !failed() {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        changers.into_iter().for_each(|changer| changer.join().unwrap());
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    assert!(reads > 100, "only {reads} reads");
    store.flush_all().unwrap();
    check_space(&store);
    let before = everything(&store);
    drop(store);
    assert!(everything(&open(device, &small_cache(32))) == before);
}

#[test]
fn no_read_goes_by_what_is_no_more() {
    hunt(Duration::from_secs(4), Compression::None, 1);
}

#[test]
fn no_read_goes_by_what_is_no_more_when_it_is_compressed() {
    hunt(Duration::from_secs(3), Compression::Lz4, 100);
}
