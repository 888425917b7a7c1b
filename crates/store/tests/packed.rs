//! Partitions that compress: the store against a model of byte vectors, with contents of which some
//! compress and some do not, and settings that change; what is saved, what a flipped bit does, and
//! what a power cut leaves.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice};
use nasd_store::{NoSpace, Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName, SeekTarget, SetAttributes, Timestamp};

const CODECS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];
const MIB: u64 = 1 << 20;

/// Contents that compress well, not at all, or in part.
fn bytes_of(random: &mut Random, length: usize) -> Vec<u8> {
    match random.below(5) {
        0 => random.bytes(length),
        1 => {
            // Noise and text by turns.
            let mut bytes = text(random, length);
            let noise = random.bytes(length);
            let step = 512 * (1 + random.below(20) as usize);
            for start in (0..length).step_by(2 * step) {
                let end = length.min(start + step);
                bytes[start..end].copy_from_slice(&noise[start..end]);
            }
            bytes
        }
        2 => vec![random.below(3) as u8; length],
        _ => text(random, length),
    }
}

fn text(random: &mut Random, length: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "block ",
        "extent ",
        "the ",
        "of ",
        "drive ",
        "object ",
        "is ",
        "a ",
        "partition ",
        "key ",
        "log ",
        "tree ",
        "and ",
        "cache ",
        "frame ",
        "write ",
    ];
    let mut bytes = Vec::with_capacity(length + 16);
    while bytes.len() < length {
        bytes.extend(WORDS[random.below(16) as usize].bytes());
    }
    bytes.truncate(length);
    bytes
}

struct Run {
    device: Arc<dyn BlockDevice>,
    store: Option<Store>,
    frames: usize,
    model: BTreeMap<ObjectName, Vec<u8>>,
    random: Random,
    refused: usize,
    largest: u64,
}

impl Run {
    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn object(&mut self) -> Option<ObjectName> {
        let names: Vec<ObjectName> = self.model.keys().copied().collect();
        self.random.pick(&names).copied()
    }

    /// Accepts nothing but success and the kinds of full that a small drive has.
    fn allowed<T>(&mut self, outcome: Result<T, StoreError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(StoreError::NoSpace(NoSpace::Data | NoSpace::Metadata)) => {
                self.refused += 1;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=4 => self.create(),
            5..=8 => self.remove(),
            9..=44 => self.write(),
            45..=64 => self.read(),
            65..=69 => self.resize(),
            70..=77 => self.punch(),
            78..=80 => self.copy(),
            81..=90 => self.flush(),
            91 => self.store().flush_all().unwrap(),
            92 => drop(self.store().write_back(100_000).unwrap()),
            93..=95 => self.required(),
            96 => self.seek(),
            97 => {
                let compression = CODECS[self.random.below(3) as usize];
                compress(self.store(), compression);
            }
            _ => self.reopen(),
        }
    }

    fn create(&mut self) {
        let partition = if self.random.below(2) == 0 { P1 } else { P2 };
        let made = self.store().create(partition, &SetAttributes::default(), Timestamp(5));
        if let Some((object, _)) = self.allowed(made) {
            self.model.insert(ObjectName { partition, object }, Vec::new());
        }
    }

    fn remove(&mut self) {
        if let Some(name) = self.object().filter(|_| self.model.len() > 4) {
            self.store().remove(name).unwrap();
            self.model.remove(&name);
        }
    }

    fn offset_and_length(&mut self) -> (u64, u64) {
        let offset = match self.random.below(3) {
            0 => self.random.below(self.largest) / BLOCK * BLOCK,
            _ => self.random.below(self.largest),
        };
        let length = match self.random.below(5) {
            0 => 1 + self.random.below(100),
            1 => BLOCK * (1 + self.random.below(4)),
            2 => 65536 * (1 + self.random.below(2)),
            _ => 1 + self.random.below(150_000),
        };
        (offset, length)
    }

    fn write(&mut self) {
        let Some(name) = self.object() else { return };
        let (offset, length) = self.offset_and_length();
        let bytes = bytes_of(&mut self.random, length as usize);
        let outcome = if self.random.below(2) == 0 {
            write(self.store(), name, offset, &bytes)
        } else {
            write_frames(self.store(), name, offset, &bytes)
        };
        if self.allowed(outcome).is_some() {
            let model = self.model.get_mut(&name).unwrap();
            let end = (offset + length) as usize;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&bytes);
        }
    }

    fn read(&mut self) {
        let Some(name) = self.object() else { return };
        let (offset, length) = self.offset_and_length();
        let data = self.store().read(name, ByteRange::new(offset, length)).unwrap();
        let model = &self.model[&name];
        let start = model.len().min(offset as usize);
        let end = model.len().min((offset + length) as usize);
        assert_eq!(data.logical_size, model.len() as u64);
        assert!(data.to_vec() == model[start..end], "{name} [{offset}, +{length})");
    }

    fn resize(&mut self) {
        let Some(name) = self.object() else { return };
        let size = match self.random.below(3) {
            0 => self.random.below(self.largest) / BLOCK * BLOCK,
            1 => self.random.below(1 + self.model[&name].len() as u64),
            _ => self.random.below(self.largest),
        };
        let outcome = set_size(self.store(), name, size);
        if self.allowed(outcome).is_some() {
            self.model.get_mut(&name).unwrap().resize(size as usize, 0);
        }
    }

    fn punch(&mut self) {
        let Some(name) = self.object() else { return };
        let (offset, length) = self.offset_and_length();
        let outcome = self.store().punch(name, ByteRange::new(offset, length), Timestamp(6));
        if self.allowed(outcome).is_some() {
            let model = self.model.get_mut(&name).unwrap();
            let start = model.len().min(offset as usize);
            let end = model.len().min((offset + length) as usize);
            model[start..end].fill(0);
        }
    }

    fn copy(&mut self) {
        let Some(name) = self.object().filter(|_| self.model.len() < 30) else { return };
        let outcome = self.store().fastcopy(name, Timestamp(7));
        if let Some((object, _)) = self.allowed(outcome) {
            self.model.insert(ObjectName { object, ..name }, self.model[&name].clone());
        }
    }

    fn flush(&mut self) {
        let names: Vec<ObjectName> = (0..3).filter_map(|_| self.object()).collect();
        self.store().flush(&names).unwrap();
    }

    /// No overwrite takes more than was told.
    fn required(&mut self) {
        let Some(name) = self.object() else { return };
        let (offset, length) = self.offset_and_length();
        self.store().flush_all().unwrap();
        let before = self.store().getattr(name).unwrap().blocks_used;
        let range = ByteRange::new(offset, length);
        let told = self.store().blocks_required(name, &mut std::iter::once(range)).unwrap();
        assert!(told.estimated <= told.maximum);
        let bytes = bytes_of(&mut self.random, length as usize);
        let outcome = write(self.store(), name, offset, &bytes);
        if self.allowed(outcome).is_some() {
            let model = self.model.get_mut(&name).unwrap();
            let end = (offset + length) as usize;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&bytes);
            self.store().flush_all().unwrap();
            let after = self.store().getattr(name).unwrap().blocks_used;
            assert!(after <= before + told.maximum, "{before} + {told:?} became {after}");
        }
    }

    /// What `seek` calls a hole is zeros.
    fn seek(&mut self) {
        let Some(name) = self.object() else { return };
        let model = &self.model[&name];
        let mut at = 0;
        while at < model.len() as u64 {
            let data = self.store().seek(name, at, SeekTarget::Data).unwrap();
            let end = data.unwrap_or(model.len() as u64);
            assert!(model[at as usize..end as usize].iter().all(|&byte| byte == 0));
            let Some(data) = data else { break };
            at = self.store().seek(name, data, SeekTarget::Hole).unwrap().unwrap();
        }
    }

    fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        if self.random.below(2) == 0 {
            store.close().unwrap();
        } else {
            store.flush_all().unwrap();
            check_space(&store);
            drop(store);
        }
        self.store = Some(open(self.device.clone(), &small_cache(self.frames)));
    }

    fn check_all(&mut self) {
        self.store().flush_all().unwrap();
        check_space(self.store());
        for (name, expected) in &self.model {
            let found = contents(self.store(), *name).unwrap();
            assert!(found == *expected, "{name} differs");
        }
    }
}

fn run(seed: u64, capacity: u64, frames: usize, largest: u64, steps: usize) -> usize {
    println!("seed {seed}");
    let (device, store) = memory_store(capacity, &small_cache(frames));
    compress(&store, CODECS[1 + seed as usize % 2]);
    let model = [(name(P1, 4), Vec::new()), (name(P2, 4), Vec::new())].into();
    let random = Random(seed);
    let mut run = Run { device, store: Some(store), frames, model, random, refused: 0, largest };
    for step in 0..steps {
        run.step();
        if step % 200 == 199 {
            run.check_all();
        }
    }
    run.check_all();
    run.reopen();
    run.check_all();
    run.refused
}

#[test]
fn agrees_with_the_model_with_room_to_spare() {
    for seed in 0..6 {
        let refused = run(seed, 96 << 20, 24, 400_000, 1000);
        assert_eq!(refused, 0, "seed {seed}");
    }
}

#[test]
fn agrees_with_the_model_on_a_drive_that_is_often_full() {
    let refused: usize = (100..106).map(|seed| run(seed, 8 << 20, 40, 1_500_000, 1000)).sum();
    assert!(refused > 20, "the drive was full only {refused} times");
}

#[test]
fn agrees_with_the_model_when_everything_fits_the_cache() {
    for seed in 200..204 {
        run(seed, 96 << 20, 512, 250_000, 1200);
    }
}

/// What every test of one object starts with: 1 MiB of text, flushed, with the codec.
fn text_object(store: &Store, compression: Compression) -> (ObjectName, Vec<u8>) {
    compress(store, compression);
    let object = create(store, P1);
    let bytes = text(&mut Random(9), MIB as usize);
    write(store, object, 0, &bytes).unwrap();
    store.flush_all().unwrap();
    (object, bytes)
}

fn blocks_used(store: &Store, object: ObjectName) -> u64 {
    store.getattr(object).unwrap().blocks_used
}

#[test]
fn text_takes_less_than_half_and_noise_no_more_than_it_is() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (device, store) = memory_store(32 * MIB, &small_cache(80));
        let (object, bytes) = text_object(&store, compression);
        assert!(blocks_used(&store, object) < 128, "{} blocks", blocks_used(&store, object));
        let noise = create(&store, P1);
        let random = Random(5).bytes(MIB as usize);
        write(&store, noise, 0, &random).unwrap();
        store.flush_all().unwrap();
        assert_eq!(blocks_used(&store, noise), 256);
        check_space(&store);
        store.close().unwrap();
        let store = open(device, &small_cache(80));
        assert_eq!(contents(&store, object).unwrap(), bytes);
        assert_eq!(contents(&store, noise).unwrap(), random);
        // The setting is the partition's, and it is kept; what is stored stays as it is without it.
        assert_eq!(store.partition_settings(P1).unwrap().compression, compression);
        compress(&store, Compression::None);
        write(&store, object, 5, b"x").unwrap();
        let before = blocks_used(&store, object);
        store.flush_all().unwrap();
        let after = blocks_used(&store, object);
        assert!((1..=16).contains(&(before.abs_diff(after) + 1)), "{before} became {after}");
        check_space(&store);
    }
}

#[test]
fn a_change_of_a_part_rewrites_one_frame() {
    let (_, store) = memory_store(32 * MIB, &small_cache(80));
    let (object, mut bytes) = text_object(&store, Compression::Lz4);
    let before = store.statistics().data_written_bytes;
    let used = blocks_used(&store, object);
    write(&store, object, 3 * 65536 + 100, b"changed").unwrap();
    bytes[3 * 65536 + 100..][..7].copy_from_slice(b"changed");
    // Nobody sees the rest of it as a hole, or as anything else.
    assert_eq!(contents(&store, object).unwrap(), bytes);
    // The worst case is charged for until it is known better.
    assert!(blocks_used(&store, object) > used);
    store.flush_all().unwrap();
    assert!(blocks_used(&store, object).abs_diff(used) <= 1);
    assert!(store.statistics().data_written_bytes - before <= 16 * BLOCK);
    store.punch(object, ByteRange::new(5 * 65536, 5000), Timestamp(4)).unwrap();
    bytes[5 * 65536..][..5000].fill(0);
    set_size(&store, object, 9 * 65536 + 5).unwrap();
    bytes.truncate(9 * 65536 + 5);
    assert_eq!(contents(&store, object).unwrap(), bytes);
    store.flush_all().unwrap();
    assert_eq!(contents(&store, object).unwrap(), bytes);
    check_space(&store);
}

/// A flush that is durable and not in the tree yet is writing still: its blocks may be compressed.
#[test]
fn what_a_flush_is_writing_can_be_changed_in_part() {
    for change in 0..3 {
        let (device, store) = memory_store(32 * MIB, &small_cache(80));
        let (object, mut bytes) = text_object(&store, Compression::Zstd);
        let again = text(&mut Random(77), 65536);
        write(&store, object, 65536, &again).unwrap();
        bytes[65536..2 * 65536].copy_from_slice(&again);
        store.flush(&[object]).unwrap();
        match change {
            0 => {
                write(&store, object, 65536 + 9000, b"in the middle").unwrap();
                bytes[65536 + 9000..][..13].copy_from_slice(b"in the middle");
            }
            1 => {
                store.punch(object, ByteRange::new(65536, 8192), Timestamp(4)).unwrap();
                bytes[65536..65536 + 8192].fill(0);
            }
            _ => {
                set_size(&store, object, 65536 + 8192).unwrap();
                bytes.truncate(65536 + 8192);
            }
        }
        assert_eq!(contents(&store, object).unwrap(), bytes);
        // The tree has it now, and the change not.
        store.checkpoint().unwrap();
        assert_eq!(contents(&store, object).unwrap(), bytes);
        store.flush_all().unwrap();
        assert_eq!(contents(&store, object).unwrap(), bytes);
        check_space(&store);
        store.close().unwrap();
        let store = open(device, &small_cache(80));
        assert_eq!(contents(&store, object).unwrap(), bytes);
    }
}

#[test]
fn copies_share_what_is_compressed_until_it_is_changed() {
    let (_, store) = memory_store(32 * MIB, &small_cache(80));
    let (object, bytes) = text_object(&store, Compression::Zstd);
    let used = store.space().used_bytes;
    let (copy, _) = store.fastcopy(object, Timestamp(5)).unwrap();
    let copy = ObjectName { object: copy, ..object };
    assert_eq!(store.space().used_bytes, used);
    write(&store, copy, 70_000, b"copy").unwrap();
    store.punch(object, ByteRange::new(0, 4096), Timestamp(6)).unwrap();
    store.flush_all().unwrap();
    check_space(&store);
    let mut changed = bytes.clone();
    changed[70_000..70_004].copy_from_slice(b"copy");
    assert_eq!(contents(&store, copy).unwrap(), changed);
    let mut punched = bytes;
    punched[..4096].fill(0);
    assert_eq!(contents(&store, object).unwrap(), punched);
    // Two frames are no more shared.
    assert!(store.space().used_bytes - used <= 32 * BLOCK);
    store.remove(object).unwrap();
    store.remove(copy).unwrap();
    store.flush_all().unwrap();
    assert_eq!(store.space().used_bytes, 0);
}

/// What compresses now may not when it is overwritten: that is charged for before, so that a quota
/// holds.
#[test]
fn a_quota_holds_whatever_becomes_of_what_compressed() {
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (_, store) = memory_store(32 * MIB, &small_cache(80));
        compress(&store, compression);
        let quota = 100 * BLOCK;
        store.resize_partition(P1, quota).unwrap();
        let objects: Vec<ObjectName> = (0..3).map(|_| create(&store, P1)).collect();
        let (mut random, mut refused, mut highest) = (Random(4), 0, 0);
        for _ in 0..1500 {
            let object = *random.pick(&objects).unwrap();
            let offset = random.below(60 * BLOCK);
            let length = 1 + random.below(20 * BLOCK);
            match random.below(12) {
                0..=6 => {
                    let bytes = bytes_of(&mut random, length as usize);
                    match write(&store, object, offset, &bytes) {
                        Ok(_) => {}
                        Err(StoreError::NoSpace(NoSpace::Quota(P1))) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                7 => drop(store.punch(object, ByteRange::new(offset, length), Timestamp(6))),
                8 => drop(set_size(&store, object, offset)),
                9..=10 => store.flush(&[object]).unwrap(),
                _ => {
                    let used = store.partition_space(P1).unwrap().used_bytes;
                    assert!(used <= quota, "{used} of {quota} bytes");
                    highest = highest.max(used);
                }
            }
        }
        store.flush_all().unwrap();
        check_space(&store);
        assert!(refused > 20 && highest > quota / 10 * 9, "{refused} refused, {highest}");
    }
}

/// The same for what is overwritten while it is being written, and becomes less only then.
#[test]
fn a_quota_holds_for_what_is_overwritten_while_it_is_written() {
    let (_, store) = memory_store(32 * MIB, &small_cache(80));
    compress(&store, Compression::Lz4);
    store.resize_partition(P1, 16 * BLOCK).unwrap();
    let (object, other) = (create(&store, P1), create(&store, P1));
    write(&store, object, 0, &[7; 65536]).unwrap();
    store.flush(&[object]).unwrap();
    write(&store, object, 0, &Random(1).bytes(65536)).unwrap();
    // The tree has the first write now: one block.
    store.checkpoint().unwrap();
    let full = write(&store, other, 0, &Random(2).bytes(40_000));
    assert!(matches!(full, Err(StoreError::NoSpace(NoSpace::Quota(P1)))), "{full:?}");
    store.flush_all().unwrap();
    assert_eq!(store.partition_space(P1).unwrap().used_bytes, 16 * BLOCK);
    check_space(&store);
}

#[test]
fn blocks_required_goes_by_what_is_there() {
    let (_, store) = memory_store(32 * MIB, &small_cache(80));
    let (object, _) = text_object(&store, Compression::Lz4);
    let used = blocks_used(&store, object);
    let required = |offset, length| {
        let range = ByteRange::new(offset, length);
        store.blocks_required(object, &mut std::iter::once(range)).unwrap()
    };
    // One byte: the frame is written anew.
    let told = required(5, 1);
    assert!(told.maximum < 16 && told.maximum > 8, "{told:?}");
    assert!(told.estimated <= 2, "{told:?}");
    // All of it, and as much again.
    let told = required(0, 2 * MIB);
    assert_eq!(told.maximum, 512 - used);
    assert!(told.estimated.abs_diff(used) <= 2, "{told:?} with {used}");
    // New blocks are like the old ones.
    let told = required(4 * MIB, MIB);
    assert_eq!(told.maximum, 256);
    assert!(told.estimated.abs_diff(used) <= 2, "{told:?} with {used}");
    compress(&store, Compression::None);
    assert_eq!(required(4 * MIB, MIB).estimated, 256);
}

#[test]
fn a_frame_is_unpacked_once() {
    let (device, store) = faulty_store(32 * MIB, &small_cache(80));
    let (object, bytes) = text_object(&store, Compression::Lz4);
    store.close().unwrap();
    let store = open(device.clone(), &small_cache(80));
    let reads = |from: u64| {
        for block in (0..16).rev() {
            let at = from + block * BLOCK;
            let found = store.read(object, ByteRange::new(at, BLOCK)).unwrap().to_vec();
            assert_eq!(found, bytes[at as usize..][..BLOCK as usize]);
            assert!(store.is_cached(object, ByteRange::new(from, 65536)));
        }
    };
    reads(0);
    reads(7 * 65536);
    // Only what was asked for counts as missed.
    assert_eq!(store.statistics().cache_miss_bytes, 2 * BLOCK);
}

/// Where on the device the data blocks of compressed text are: the ones of an image that another
/// does not have.
fn changed_blocks(before: &[u8], after: &[u8]) -> Vec<u64> {
    const DATA: u64 = 13 * MIB / 4;
    let blocks = before.chunks(BLOCK as usize).zip(after.chunks(BLOCK as usize));
    let changed = blocks.enumerate().filter(|(_, (before, after))| before != after);
    changed.map(|(index, _)| index as u64 * BLOCK).filter(|&at| at >= DATA).collect()
}

#[test]
fn a_flipped_bit_in_a_compressed_block_is_found_and_named() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(80));
    compress(&store, Compression::Zstd);
    let (good, object) = (create(&store, P1), create(&store, P1));
    let bytes = text(&mut Random(3), 65536 * 3);
    write(&store, good, 0, &bytes).unwrap();
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    let before = device.live_image();
    write(&store, object, 0, &bytes).unwrap();
    store.close().unwrap();
    let blocks = changed_blocks(&before, &device.live_image());
    assert!(blocks.len() >= 3);
    device.flip_bit(blocks[0] + 99, 3);
    let store = open(device, &small_cache(80));
    let error = store.read(object, ByteRange::new(30_000, 10)).unwrap_err();
    assert!(
        matches!(error, StoreError::Corrupt { object: named, block } if named == object && block < 16),
        "{error}"
    );
    // A change of a part would make the rest look whole.
    assert!(matches!(write(&store, object, 5, b"x"), Err(StoreError::Corrupt { .. })));
    let punched = store.punch(object, ByteRange::new(0, 4096), Timestamp(4));
    assert!(matches!(punched, Err(StoreError::Corrupt { .. })));
    assert!(matches!(set_size(&store, object, 5), Err(StoreError::Corrupt { .. })));
    assert_eq!(contents(&store, good).unwrap(), bytes);
    let rest = store.read(object, ByteRange::new(65536, 2 * 65536)).unwrap();
    assert_eq!(rest.to_vec(), bytes[65536..]);
    // All of it written anew is good again.
    write(&store, object, 0, &bytes[..65536]).unwrap();
    store.flush_all().unwrap();
    assert_eq!(contents(&store, object).unwrap(), bytes);
    check_space(&store);
}

/// States that an object may be in after a crash: those since the last flush of it.
type States = BTreeMap<ObjectName, Vec<Vec<u8>>>;

fn crash_work(store: &Store, random: &mut Random, states: &mut States) -> Result<(), StoreError> {
    for _ in 0..40 {
        let names: Vec<ObjectName> = states.keys().copied().collect();
        let name = names[random.below(names.len() as u64) as usize];
        let mut now = states[&name].last().unwrap().clone();
        let (offset, length) = (random.below(100_000), 1 + random.below(60_000));
        let end = (offset + length) as usize;
        match random.below(10) {
            0..=4 => {
                let bytes = bytes_of(random, length as usize);
                now.resize(now.len().max(end), 0);
                now[offset as usize..end].copy_from_slice(&bytes);
                write(store, name, offset, &bytes)?;
            }
            5 => {
                store.punch(name, ByteRange::new(offset, length), Timestamp(8))?;
                let (start, end) = (now.len().min(offset as usize), now.len().min(end));
                now[start..end].fill(0);
            }
            6 => {
                now.resize(offset as usize, 0);
                set_size(store, name, offset)?;
            }
            7..=8 => {
                store.flush(&[name])?;
                states.insert(name, vec![now]);
                continue;
            }
            _ => {
                store.flush_all()?;
                states.values_mut().for_each(|states| drop(states.drain(..states.len() - 1)));
                continue;
            }
        }
        states.get_mut(&name).unwrap().push(now);
    }
    Ok(())
}

#[test]
fn a_power_cut_leaves_what_was_flushed() {
    let device = Arc::new(FaultyDevice::zeroed(8 << 20));
    Store::format(device.clone(), &format_options()).unwrap();
    let store = open(device.clone(), &small_cache(48));
    compress(&store, Compression::Lz4);
    let names: Vec<ObjectName> = (0..4).map(|_| create(&store, P1)).collect();
    store.close().unwrap();
    let image = device.live_image();
    let start = || names.iter().map(|&name| (name, vec![Vec::new()])).collect::<States>();
    for workload in 0..3 {
        let device = Arc::new(FaultyDevice::new(image.clone(), FaultPlan::default()));
        let store = open(device.clone(), &small_cache(48));
        crash_work(&store, &mut Random(workload), &mut start()).unwrap();
        for at in 0..=device.syncs() {
            println!("workload {workload}, sync {at}");
            let plan = FaultPlan { crash_at_sync: Some(at), ..FaultPlan::default() };
            let device = Arc::new(FaultyDevice::new(image.clone(), plan));
            let mut states = start();
            if let Ok(store) = Store::open(device.clone(), &small_cache(48)) {
                let outcome = crash_work(&store, &mut Random(workload), &mut states);
                assert_eq!(outcome.is_err(), device.has_crashed(), "{outcome:?}");
                device.crash();
            }
            let survived = device.surviving_image(at);
            let device = Arc::new(FaultyDevice::new(survived, FaultPlan::default()));
            let store = open(device, &small_cache(48));
            check_space(&store);
            for (name, states) in &mut states {
                let found = contents(&store, *name).unwrap();
                assert!(states.contains(&found), "{name} with {} bytes", found.len());
                *states = vec![found];
            }
            crash_work(&store, &mut Random(at), &mut states).unwrap();
            store.flush_all().unwrap();
            check_space(&store);
            for (name, states) in &states {
                assert_eq!(contents(&store, *name).unwrap(), *states.last().unwrap());
            }
        }
    }
}
