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
use nasd_store::{OpenOptions, Store};
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
