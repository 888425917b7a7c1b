//! The scrub: finds what rotted, names all who have it, and disturbs nobody.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{ScrubCursor, ScrubFault, ScrubFinding, ScrubHolder, Store, StoreError};
use nasd_types::{ByteRange, ObjectName, Timestamp};

const MIB: u64 = 1 << 20;

/// A whole pass in steps of `bytes`: what was found, and how many bytes were read.
fn pass(store: &Store, bytes: u64) -> (Vec<ScrubFinding>, u64) {
    let mut cursor = ScrubCursor::default();
    let (mut findings, mut read) = (Vec::new(), 0);
    loop {
        let step = store.scrub(&mut cursor, bytes).unwrap();
        findings.extend(step.findings);
        read += step.read_bytes;
        if step.finished {
            assert_eq!(cursor, ScrubCursor::default());
            return (findings, read);
        }
        assert!(step.read_bytes >= bytes);
    }
}

fn find_block(device: &FaultyDevice, value: u8) -> u64 {
    let image = device.live_image();
    let mut blocks = image.chunks(BLOCK as usize).enumerate();
    let (index, _) = blocks.find(|(_, block)| block.iter().all(|&b| b == value)).unwrap();
    index as u64 * BLOCK
}

fn holder(object: ObjectName, offset: u64) -> ScrubHolder {
    ScrubHolder { object, offset, bytes: BLOCK }
}

#[test]
fn a_pass_reads_every_block_once_whatever_the_steps_are() {
    let (_, store) = faulty_store(32 * MIB, &small_cache(64));
    for index in 0..30 {
        let object = create(&store, if index % 3 == 0 { P2 } else { P1 });
        write(&store, object, index * 7000, &vec![index as u8; 1 + 9000 * index as usize]).unwrap();
    }
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    let used = store.space().used_bytes;
    for bytes in [1, 50_000, u64::MAX] {
        assert_eq!(pass(&store, bytes), (vec![], used), "steps of {bytes}");
    }
    assert_eq!(store.statistics().scrubbed_blocks, 3 * used / BLOCK);
    assert_eq!(store.statistics().corrupt_blocks, 0);
}

#[test]
fn every_flipped_bit_is_found_with_its_object_and_offset() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let (one, two) = (create(&store, P1), create(&store, P2));
    for block in 0..20 {
        write(&store, one, block * BLOCK, &[100 + block as u8; 4096]).unwrap();
        write(&store, two, (block + 1000) * BLOCK, &[150 + block as u8; 4096]).unwrap();
    }
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(pass(&store, 100_000).0, []);
    let places = [103, 119, 157].map(|value| find_block(&device, value));
    places.iter().for_each(|at| device.flip_bit(at + 1234, 5));
    let expected = [holder(one, 3 * BLOCK), holder(one, 19 * BLOCK), holder(two, 1007 * BLOCK)];
    for steps in [1, u64::MAX] {
        let (findings, _) = pass(&store, steps);
        assert_eq!(findings.len(), 3);
        for ((finding, expected), place) in findings.iter().zip(expected).zip(places) {
            assert_eq!(finding.fault, ScrubFault::Checksum);
            assert_eq!((&finding.holders[..], finding.device_offset), (&[expected][..], place));
        }
    }
    assert_eq!(store.statistics().corrupt_blocks, 6);
    // Written anew, the block is good.
    write(&store, one, 3 * BLOCK, &[1; 4096]).unwrap();
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(pass(&store, MIB).0.len(), 2);
}

#[test]
fn all_who_share_a_bad_block_are_named_once() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    for block in 0..8 {
        write(&store, object, block * BLOCK, &[100 + block as u8; 4096]).unwrap();
    }
    store.flush_all().unwrap();
    let copy = |from: ObjectName| {
        let (object, _) = store.fastcopy(from, Timestamp(9)).unwrap();
        ObjectName { object, ..from }
    };
    let second = copy(object);
    let third = copy(second);
    // The second has a block of its own now.
    write(&store, second, 4 * BLOCK, &[7; 4096]).unwrap();
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    device.flip_bit(find_block(&device, 104), 0);
    device.flip_bit(find_block(&device, 105), 0);
    let (findings, _) = pass(&store, 1);
    let holders: Vec<Vec<ScrubHolder>> = findings.into_iter().map(|f| f.holders).collect();
    let all = [object, second, third];
    let expected = [
        vec![holder(object, 4 * BLOCK), holder(third, 4 * BLOCK)],
        all.map(|name| holder(name, 5 * BLOCK)).to_vec(),
    ];
    assert_eq!(holders, expected);
    assert_eq!(store.statistics().corrupt_blocks, 2);
}

#[test]
fn blocks_that_cannot_be_read_are_found_one_by_one() {
    let (device, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    for block in 0..50 {
        write(&store, object, block * BLOCK, &[100 + block as u8; 4096]).unwrap();
    }
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    let at = find_block(&device, 117);
    device.set_plan(FaultPlan { unreadable: at..at + 2 * BLOCK, ..FaultPlan::default() });
    let (findings, _) = pass(&store, MIB);
    assert_eq!(findings.len(), 2);
    assert!(findings.iter().all(|f| matches!(f.fault, ScrubFault::Unreadable(_))));
    assert_eq!(findings[1].holders, [holder(object, 18 * BLOCK)]);
}

#[test]
fn nothing_leaves_the_cache_and_nothing_enters_it() {
    let (device, store) = faulty_store(32 * MIB, &small_cache(64));
    let (hot, cold) = (create(&store, P1), create(&store, P1));
    for index in 0..48 {
        write(&store, cold, index << 17, &vec![3; 1 << 17]).unwrap();
    }
    store.flush_all().unwrap();
    write(&store, hot, 0, &vec![4; 1 << 19]).unwrap();
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    contents(&store, hot).unwrap();
    let before: Vec<bool> =
        (0..96).map(|index| store.is_cached(cold, ByteRange::new(index << 16, 1 << 16))).collect();
    assert!(store.is_cached(hot, ByteRange::new(0, 1 << 19)));
    pass(&store, 1 << 18);
    let reads = device.reads();
    contents(&store, hot).unwrap();
    assert_eq!(device.reads(), reads, "what was cached still is");
    let after: Vec<bool> =
        (0..96).map(|index| store.is_cached(cold, ByteRange::new(index << 16, 1 << 16))).collect();
    assert_eq!(before, after);
}

#[test]
fn what_only_the_log_has_is_skipped() {
    let (_, store) = faulty_store(16 * MIB, &small_cache(64));
    let object = create(&store, P1);
    write(&store, object, 0, &[5; 3 * 4096]).unwrap();
    store.flush(&[object]).unwrap();
    // The cache is still the only other place; the medium has zeros there.
    let (findings, read) = pass(&store, MIB);
    assert_eq!((findings, read), (vec![], 0));
    store.checkpoint().unwrap();
    assert_eq!(pass(&store, MIB), (vec![], 3 * BLOCK));
}

#[test]
fn it_may_go_on_while_everything_changes() {
    let (_, store) = faulty_store(64 * MIB, &small_cache(128));
    let store = Arc::new(store);
    let done = AtomicBool::new(false);
    let (passes, bytes) = std::thread::scope(|scope| {
        for seed in 0..2 {
            let (store, done) = (store.clone(), &done);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut living: Vec<ObjectName> = Vec::new();
                for _ in 0..400 {
                    match random.below(8) {
                        0 => living.push(create(&store, P1)),
                        1 if living.len() > 10 => {
                            let index = random.below(living.len() as u64) as usize;
                            store.remove(living.swap_remove(index)).unwrap();
                        }
                        2 => store.flush_all().unwrap(),
                        3 => {
                            if let Some(&name) = random.pick(&living) {
                                let size = random.below(400_000);
                                set_size(&store, name, size).unwrap();
                            }
                        }
                        _ => {
                            if let Some(&name) = random.pick(&living) {
                                let length = 1 + random.below(200_000);
                                let bytes = random.bytes(length as usize);
                                write(&store, name, random.below(300_000), &bytes).unwrap();
                            }
                        }
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        let (mut passes, mut bytes) = (0, 0);
        while !done.load(Ordering::Relaxed) {
            let (findings, read) = pass(&store, 300_000);
            assert_eq!(findings, []);
            passes += 1;
            bytes += read;
        }
        (passes, bytes)
    });
    println!("{passes} passes, {bytes} bytes");
    assert!(bytes > 0);
}

#[test]
fn removed_objects_and_partitions_do_not_stop_it() {
    let (_, store) = faulty_store(16 * MIB, &small_cache(64));
    let objects: Vec<ObjectName> = (0..4).map(|_| create(&store, P1)).collect();
    for object in &objects {
        write(&store, *object, 0, &vec![1; 100_000]).unwrap();
    }
    store.flush_all().unwrap();
    store.checkpoint().unwrap();
    let mut cursor = ScrubCursor::default();
    store.scrub(&mut cursor, 50_000).unwrap();
    for object in &objects[..3] {
        // The tree still has them; memory says that they are gone.
        store.remove(*object).unwrap();
        assert!(matches!(store.getattr(*object), Err(StoreError::NoSuchObject(_))));
    }
    let step = store.scrub(&mut cursor, u64::MAX).unwrap();
    assert!(step.finished && step.findings.is_empty());
    assert_eq!(step.read_bytes, 100_000u64.next_multiple_of(BLOCK));
}
