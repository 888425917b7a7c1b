//! Reads, writes and syncs that fail, one after the other through a mixed workload. What is told to
//! the caller is typed, nothing that failed half happens, nothing answered as durable is lost, and
//! the store either goes on or says that it takes no more changes.
//!
//! In a normal run a sample is tried; with `NASD_LONG_TESTS` set, everything.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::sync::Arc;

use common::*;
use nasd_device::{FailedSync, FaultPlan, FaultyDevice, Image};
use nasd_store::{OpenError, OpenOptions, Store, StoreError};
use world::*;

const CAPACITY: u64 = 10 << 20;
const STEPS: usize = 120;
const MIX: Mix =
    Mix { largest: 200_000, objects: 10, reserve: false, partitions: true, compare: true };

fn options() -> OpenOptions {
    small_cache(40)
}

/// What a run came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    errors: usize,
    read_only: bool,
}

fn assert_typed(error: &StoreError) {
    let known = matches!(
        error,
        StoreError::Medium(_)
            | StoreError::ReadOnly(_)
            | StoreError::Damaged(_)
            // A partition whose objects can't be removed any more.
            | StoreError::PartitionExists(_)
    );
    assert!(known, "{error:?}");
}

/// A device that has done nothing else yet, and what it holds.
fn started() -> (Image, Histories) {
    formatted(CAPACITY, &format_options())
}

/// Work on a device that follows a plan; then the plan ends, and everything must be in order.
fn run((image, histories): (Image, Histories), seed: u64, plan: FaultPlan) -> Outcome {
    let device = Arc::new(FaultyDevice::over(image, plan));
    let mut world = World::new(histories, seed, MIX);
    let mut outcome = Outcome::default();
    match Store::open(device.clone(), &options()) {
        Ok(store) => {
            for _ in 0..STEPS {
                if let Err(error) = world.step(&store) {
                    assert_typed(&error);
                    outcome.errors += 1;
                }
            }
            outcome.read_only = store.read_only().is_some();
            device.set_plan(FaultPlan::default());
            go_on(&store, &mut world, outcome.read_only);
            device.crash();
        }
        Err(error) => {
            outcome.errors += 1;
            assert!(matches!(error, OpenError::Device(_) | OpenError::Damaged(_)), "{error:?}");
            device.set_plan(FaultPlan::default());
        }
    }
    let image = device.survivor(seed);
    let histories = world.histories().clone();
    survive(&Picture { change: device.changes(), seed, image, histories }, &options(), MIX);
    outcome
}

/// With the device in order again: reading goes on in any case, changes unless the store refuses.
fn go_on(store: &Store, world: &mut World, read_only: bool) {
    world.histories().compare(store);
    if read_only {
        assert!(matches!(store.flush_all(), Err(StoreError::ReadOnly(_))));
        assert!(matches!(store.checkpoint(), Err(StoreError::ReadOnly(_))));
        let living = world.histories().living();
        for name in living {
            assert!(matches!(write(store, name, 0, b"x"), Err(StoreError::ReadOnly(_))));
        }
        return;
    }
    store.flush_all().unwrap();
    world.histories().all_durable();
    world.histories().settle_flushed(store);
    for _ in 0..20 {
        world.step(store).unwrap();
    }
    assert_eq!(store.read_only(), None);
}

/// Reads, writes and syncs of the workload when nothing fails.
fn count(seed: u64) -> (u64, u64, u64) {
    let (image, histories) = started();
    let device = Arc::new(FaultyDevice::over(image, FaultPlan::default()));
    let mut world = World::new(histories, seed, MIX);
    let store = Store::open(device.clone(), &options()).unwrap();
    (0..STEPS).for_each(|_| world.step(&store).unwrap());
    (device.reads(), device.writes(), device.syncs())
}

/// Every number below `end`, or a sample of about `sample`.
fn numbers(end: u64, sample: u64, seed: u64) -> impl Iterator<Item = u64> {
    let stride = if long_tests() { 1 } else { (end / sample).max(1) };
    (0..end).skip((seed % stride) as usize).step_by(stride as usize)
}

fn seeds(first: u64) -> std::ops::Range<u64> {
    first..first + if long_tests() { 6 } else { 2 }
}

#[test]
fn a_sync_that_fails_is_never_taken_for_durable() {
    for seed in seeds(100) {
        let (_, _, syncs) = count(seed);
        for at in numbers(syncs, 20, seed) {
            for failed_sync in [FailedSync::Keeps, FailedSync::Drops, FailedSync::DropsUnseen] {
                println!("seed {seed}, sync {at} of {syncs}, {failed_sync:?}");
                let failing_syncs = vec![at];
                let plan = FaultPlan { failing_syncs, failed_sync, seed, ..FaultPlan::default() };
                let outcome = run(started(), seed, plan);
                assert!(outcome.errors > 0 || at + 1 == syncs, "{outcome:?}");
            }
        }
    }
}

#[test]
fn a_write_that_fails_is_told_and_loses_nothing() {
    for seed in seeds(200) {
        let (_, writes, _) = count(seed);
        let mut went_on = 0;
        for at in numbers(writes, 30, seed) {
            for partial_writes in [false, true] {
                println!("seed {seed}, write {at} of {writes}, partial {partial_writes}");
                let failing_writes = vec![at];
                let plan =
                    FaultPlan { failing_writes, partial_writes, seed, ..FaultPlan::default() };
                let outcome = run(started(), seed, plan);
                went_on += usize::from(outcome.errors > 0 && !outcome.read_only);
            }
        }
        assert!(went_on > 0, "every failing write made the store read-only");
    }
}

#[test]
fn a_read_that_fails_is_told_and_loses_nothing() {
    for seed in seeds(300) {
        let (reads, _, _) = count(seed);
        for at in numbers(reads, 30, seed) {
            println!("seed {seed}, read {at} of {reads}");
            let plan = FaultPlan { failing_reads: vec![at], seed, ..FaultPlan::default() };
            run(started(), seed, plan);
        }
    }
}

/// An object that no flush could write was never on the medium, so its removal is nothing to log.
#[test]
fn an_object_whose_flush_failed_leaves_no_trace() {
    let (image, _) = started();
    for flush_between in [false, true] {
        let device = Arc::new(FaultyDevice::over(image.clone(), FaultPlan::default()));
        let store = Store::open(device.clone(), &options()).unwrap();
        let kept = create(&store, P1);
        let object = create(&store, P1);
        write(&store, object, 0, &vec![7; 200_000]).unwrap();
        // DATA_OFFSET of the superblock.
        let data: [u8; 8] = device.live_image()[104..112].try_into().unwrap();
        let unwritable = u64::from_le_bytes(data)..CAPACITY;
        device.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
        let failed = store.flush(&[object]);
        assert!(matches!(failed, Err(StoreError::Medium(_))), "{failed:?}");
        assert_eq!(store.read_only(), None);
        device.set_plan(FaultPlan::default());
        if flush_between {
            store.flush(&[kept]).unwrap();
        }
        store.remove(object).unwrap();
        store.flush(&[kept, object]).unwrap();
        store.flush_all().unwrap();
        assert_clean(&device.live(), "after a removal");
        check_space(&store);
        assert_eq!(store.space().used_bytes, 0);
    }
}

/// Numbers of the superblock: the places of the log, the metadata region and the data.
fn places(image: &Image) -> [std::ops::Range<u64>; 3] {
    let mut block = vec![0; 4096];
    image.read(0, &mut block);
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let (log, metadata, data) = (number(72), number(88), number(104));
    [log..log + number(80), metadata..metadata + number(96), data..data + number(112) * BLOCK]
}

/// Flushed work on a drive, as a crash leaves it.
fn worked(seed: u64) -> (Image, Histories) {
    let (image, histories) = started();
    let device = Arc::new(FaultyDevice::over(image, FaultPlan::default()));
    let mut world = World::new(histories, seed, Mix { partitions: false, ..MIX });
    let store = Store::open(device.clone(), &options()).unwrap();
    (0..STEPS).for_each(|_| world.step(&store).unwrap());
    world.flush_all(&store).unwrap();
    device.crash();
    drop(store);
    let histories = world.histories().clone();
    (device.live(), histories)
}

/// Whatever place can't be read: the drive does not open and says why, or each object is there as
/// it was or says that it can't be read, and the others go on.
#[test]
fn bad_places_cost_what_lies_there_and_no_more() {
    let (image, histories) = worked(400);
    let (mut refused, mut lost) = ([0; 3], 0);
    for (kind, place) in places(&image).into_iter().enumerate() {
        let blocks = (place.end - place.start) / BLOCK;
        for block in numbers(blocks, 120, 7) {
            let start = place.start + block * BLOCK;
            println!("place {kind}, block {block} of {blocks}");
            let unreadable = start..start + BLOCK;
            let plan = FaultPlan { unreadable, ..FaultPlan::default() };
            let device = Arc::new(FaultyDevice::over(image.clone(), plan));
            let store = match Store::open(device.clone(), &options()) {
                Ok(store) => store,
                Err(OpenError::Device(_) | OpenError::Damaged(_)) => {
                    refused[kind] += 1;
                    continue;
                }
                Err(error) => panic!("{error:?}"),
            };
            let mut bad = Vec::new();
            for name in histories.living() {
                match read_object(&store, name) {
                    Ok(found) => assert!(found.as_ref() == Some(histories.now(name)), "{name}"),
                    Err(StoreError::Medium(_) | StoreError::Damaged(_)) => bad.push(name),
                    Err(error) => panic!("{error:?}"),
                }
            }
            lost += bad.len();
            for name in histories.living() {
                // Whole blocks, so that nothing of what can't be read is needed.
                let bytes = vec![6; histories.now(name).bytes.len().next_multiple_of(4096)];
                write(&store, name, 0, &bytes).unwrap();
                store.flush(&[name]).unwrap();
                assert!(contents(&store, name).unwrap() == bytes);
            }
            assert_eq!(store.read_only(), None);
        }
    }
    println!("refused {refused:?}, {lost} objects lost");
    assert!(refused[0] > 0 && refused[1] > 0 && refused[2] == 0 && lost > 0);
}
