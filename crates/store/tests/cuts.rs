//! Power cuts at every write and sync of a long mixed workload, and of what recovers from them: each
//! leaves a drive that the checker finds nothing wrong with, on which everything flushed is there
//! and each change since is there wholly or not at all.
//!
//! In a normal run a sample is tried; with `NASD_LONG_TESTS` set, everything.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{OpenError, OpenOptions, Store};
use world::*;

const CAPACITY: u64 = 12 << 20;

fn mix(seed: u64) -> Mix {
    let reserve = seed % 2 == 1;
    Mix { largest: 300_000, objects: 14, reserve, partitions: true, compare: false }
}

fn options() -> OpenOptions {
    small_cache(48)
}

/// Runs `steps` of random work on a recorder, with the store opened anew now and then.
fn work(device: &Arc<Recorder>, world: &mut World, steps: usize) -> Arc<Recorder> {
    let mut store = Store::open(device.clone(), &options()).unwrap();
    for _ in 0..steps {
        if world.random.below(60) == 0 {
            if world.random.below(2) == 0 {
                store.close().unwrap();
            } else {
                store.flush_all().unwrap();
                drop(store);
            }
            world.histories().all_durable();
            store = Store::open(device.clone(), &options()).unwrap();
        }
        world.step(&store).unwrap();
    }
    store.close().unwrap();
    world.histories().all_durable();
    device.picture();
    device.clone()
}

/// Pictures of crashes in a workload.
fn crashes(seed: u64, steps: usize, sample: (u64, u64), seeds: u64) -> Vec<Picture> {
    let (image, histories) = formatted(CAPACITY, &format_options());
    let histories = Arc::new(Mutex::new(histories));
    let device = Arc::new(Recorder::new(image, histories.clone(), sample, seeds));
    let mut world = World::shared(histories, seed, mix(seed));
    let device = work(&device, &mut world, steps);
    world.histories().compare(&reopen(&device.live(), &options()).1);
    let pictures = device.pictures();
    println!("workload {seed}: {} changes, {} crashes tried", device.changes(), pictures.len());
    pictures
}

/// The crashes of the recovery from a crash.
fn crashes_of_recovery(picture: &Picture, seeds: u64) -> Vec<Picture> {
    let histories = Arc::new(Mutex::new(picture.histories.clone()));
    let device = Arc::new(Recorder::new(picture.image.clone(), histories, (1, 0), seeds));
    drop(Store::open(device.clone(), &options()).unwrap());
    device.pictures()
}

#[test]
fn a_crash_at_any_change_keeps_what_was_flushed() {
    let started = Instant::now();
    let (workloads, stride, seeds) = if long_tests() { (0..12, 1, 3) } else { (0..3, 23, 2) };
    for workload in workloads {
        for picture in crashes(workload, 400, (stride, workload * 7), seeds) {
            println!("workload {workload}, {picture:?}");
            survive(&picture, &options(), mix(workload));
        }
    }
    println!("{:?}", started.elapsed());
}

#[test]
fn a_crash_while_recovering_from_a_crash_loses_nothing() {
    let (workloads, stride) = if long_tests() { (20..24, 5) } else { (20..21, 131) };
    for workload in workloads {
        for first in crashes(workload, 250, (stride, workload), 1) {
            for second in crashes_of_recovery(&first, 2) {
                println!("workload {workload}, {first:?}, then {second:?}");
                survive(&second, &options(), mix(workload));
            }
        }
    }
}

/// A drive over an older one, whose remains must not be taken for the new one's.
#[test]
fn a_crash_while_formatting_leaves_no_drive_or_the_new_one() {
    let (old, _) = formatted(CAPACITY, &format_options());
    let mut format = format_options();
    format.drive = nasd_types::DriveId(0xd2);
    let (_, histories) = formatted(CAPACITY, &format);
    let shared = Arc::new(Mutex::new(histories));
    let device = Arc::new(Recorder::new(old, shared, (1, 0), if long_tests() { 8 } else { 3 }));
    Store::format(device.clone(), &format).unwrap();
    device.picture();
    let (mut new, mut none) = (0, 0);
    for picture in device.pictures() {
        println!("format, {picture:?}");
        let survivor = FaultyDevice::over(picture.image.clone(), FaultPlan::default());
        match Store::open(Arc::new(survivor), &options()) {
            Ok(store) if store.identity().drive == format.drive => {
                // Superblock B may be missing as long as A is there.
                drop(store);
                survive(&repaired(&picture), &options(), mix(0));
                new += 1;
            }
            // Both superblocks, the log and the tree are overwritten before the first sync.
            Ok(_) => assert!(picture.change <= 4, "the old drive is there after {picture:?}"),
            Err(OpenError::NotNasd | OpenError::Damaged(_)) => none += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(new > 2 && none > 2, "{new} new, {none} none");
}

/// What an open leaves of a picture: a superblock that was missing is there.
fn repaired(picture: &Picture) -> Picture {
    let (device, store) = reopen(&picture.image, &options());
    store.close().unwrap();
    Picture { image: device.live(), ..picture.clone() }
}

/// One operation on a drive with something on it, cut at every change.
fn cut_all_of(what: &str, prepare: u64, action: impl FnOnce(&mut World, Store)) {
    let (image, histories) = formatted(CAPACITY, &format_options());
    let histories = Arc::new(Mutex::new(histories));
    let mix = Mix { partitions: false, reserve: false, ..mix(prepare) };
    let seeds = if long_tests() { 8 } else { 2 };
    let quiet = Arc::new(Recorder::new(image, histories.clone(), (1, 0), 0));
    let mut world = World::shared(histories.clone(), prepare, mix);
    let store = Store::open(quiet.clone(), &options()).unwrap();
    (0..60).for_each(|_| world.step(&store).unwrap());
    store.close().unwrap();
    world.histories().all_durable();
    let device = Arc::new(Recorder::new(quiet.live(), histories, (1, 0), seeds));
    let store = Store::open(device.clone(), &options()).unwrap();
    action(&mut world, store);
    device.picture();
    let pictures = device.pictures();
    println!("{what}: {} changes", device.changes());
    for picture in pictures {
        println!("{what}, {picture:?}");
        survive(&picture, &options(), mix);
    }
}

#[test]
fn a_crash_in_a_close_keeps_each_change_or_not() {
    cut_all_of("close", 40, |world, store| {
        (0..25).for_each(|_| world.write(&store).unwrap());
        store.close().unwrap();
    });
}

#[test]
fn a_crash_while_copies_are_made_and_written_keeps_both_sides() {
    cut_all_of("copy", 41, |world, store| {
        for _ in 0..6 {
            world.copy(&store).unwrap();
            world.write(&store).unwrap();
            world.punch(&store).unwrap();
        }
        world.flush_all(&store).unwrap();
        store.checkpoint().unwrap();
    });
}

#[test]
fn a_crash_while_a_partition_is_removed_leaves_all_of_it_or_nothing() {
    let many = if long_tests() { 300 } else { 30 };
    cut_all_of("remove", 42, |world, store| {
        for index in 0..many {
            let object = create(&store, P2);
            world.histories().change(object, Some(Content::empty()));
            write(&store, object, 0, &vec![3; 1 + index * 50]).unwrap();
            let bytes = Arc::new(vec![3; 1 + index * 50]);
            world.histories().change(object, Some(Content { bytes, ..Content::empty() }));
        }
        world.flush_all(&store).unwrap();
        world.histories().partitions.get_mut(&P2).unwrap().push(None);
        store.remove_partition(P2).unwrap();
        world.histories().drop_partition(P2);
        world.histories().doomed.insert(P2);
        finish_removals(&store);
        store.checkpoint().unwrap();
    });
}
