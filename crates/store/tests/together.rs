//! Threads that work at once, each against a model of its own partition, while another does what a
//! background thread does, and partitions come and go under those who use them.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{CopyRange, OpenOptions, PartitionFormat, Store, StoreError};
use nasd_types::{ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp};
use world::*;

const CAPACITY: u64 = 64 << 20;
const WORKERS: u32 = 4;
const FLEETING: PartitionId = PartitionId(9);
const MIX: Mix =
    Mix { largest: 300_000, objects: 12, reserve: false, partitions: false, compare: true };

fn options() -> OpenOptions {
    small_cache(256)
}

fn patience() -> Duration {
    let seconds = std::env::var("NASD_MODEL_SECONDS").ok();
    Duration::from_secs(seconds.map_or(6, |text| text.parse().unwrap()))
}

/// Stops the others, however its owner ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a background thread does.
fn maintain(store: &Store, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        store.settle_when_due(Duration::from_millis(1)).unwrap();
        store.wait_for_dirty(Duration::from_millis(1));
        store.write_back(1 << 20).unwrap();
    }
}

/// The histories of a worker's own partition.
fn own(histories: &Histories, partition: PartitionId) -> Histories {
    let mut own = histories.clone();
    own.partitions.retain(|id, _| *id == partition);
    own.objects.retain(|name, _| name.partition == partition);
    own
}

#[test]
fn workers_with_models_of_their_own_agree_with_them() {
    let mut format = format_options();
    format.partitions = (1..=WORKERS)
        .map(|id| PartitionFormat { id: PartitionId(id), ..format.partitions[0].clone() })
        .collect();
    let (image, histories) = formatted(CAPACITY, &format);
    let device = Arc::new(FaultyDevice::over(image, FaultPlan::default()));
    let store = Store::open(device.clone(), &options()).unwrap();
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + patience());
    let steps = AtomicU64::new(0);
    let found: Vec<Histories> = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=WORKERS)
            .map(|id| {
                let histories = own(&histories, PartitionId(id));
                let (store, steps) = (&store, &steps);
                scope.spawn(move || {
                    let mut world = World::new(histories, u64::from(id), MIX);
                    while Instant::now() < deadline {
                        world.step(store).unwrap();
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                    world.histories().clone()
                })
            })
            .collect();
        let maintenance = scope.spawn(|| maintain(&store, &stop));
        let ended = Stop(&stop);
        let found = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        drop(ended);
        maintenance.join().unwrap();
        found
    });
    let mut all = histories;
    for one in found {
        all.objects.extend(one.objects);
    }
    all.compare(&store);
    // What was not flushed may be lost, and all else is there.
    device.crash();
    drop(store);
    let image = device.survivor(1);
    assert_clean(&image, "after work of several threads");
    let (_, store) = reopen(&image, &options());
    all.settle_flushed(&store);
    println!("{} steps", steps.into_inner());
}

/// What somebody who does not know that the partition goes may be told.
fn gone<T>(outcome: Result<T, StoreError>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(StoreError::NoSuchPartition(_) | StoreError::NoSuchObject(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Uses a partition until it is gone.
fn use_up(store: &Store, seed: u64) {
    let mut random = Random(seed);
    let initial = SetAttributes::default();
    while let Some((object, _)) = gone(store.create(FLEETING, &initial, Timestamp(2))) {
        let name = ObjectName { partition: FLEETING, object };
        let length = 1 + random.below(40_000) as usize;
        gone(write(store, name, random.below(9000), &vec![5; length]));
        match random.below(7) {
            0 => drop(gone(store.flush(&[name]))),
            1 => drop(gone(store.fastcopy(name, Timestamp(3)))),
            2 => drop(gone(store.remove(name))),
            3 => drop(gone(set_size(store, name, random.below(50_000)))),
            4 => {
                // Objects that were not in memory.
                let objects = gone(store.list(FLEETING, ObjectId(0), 30)).unwrap_or_default();
                for object in objects {
                    gone(write(store, ObjectName { partition: FLEETING, object }, 0, &[1; 9000]));
                }
            }
            5 => {
                let objects = gone(store.list(FLEETING, ObjectId(0), 30)).unwrap_or_default();
                if let Some(target) = random.pick(&objects).filter(|target| **target != object) {
                    let (partition, target) = (FLEETING, *target);
                    let (source, length) = (object, 1 << 20);
                    let offsets = [random.below(3) * 4096, random.below(3) * 4096];
                    let [source_offset, target_offset] = offsets;
                    let copy = CopyRange {
                        partition,
                        source,
                        source_offset,
                        target,
                        target_offset,
                        length,
                    };
                    gone(store.copy_range(&copy, Timestamp(4)));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn partitions_that_go_while_they_are_used_leave_nothing_behind() {
    let (image, _) = formatted(CAPACITY, &format_options());
    let device = Arc::new(FaultyDevice::over(image, FaultPlan::default()));
    let store = Store::open(device.clone(), &options()).unwrap();
    let (stop, deadline) = (AtomicBool::new(false), Instant::now() + patience());
    let mut rounds = 0;
    std::thread::scope(|scope| {
        let maintenance = scope.spawn(|| maintain(&store, &stop));
        let ended = Stop(&stop);
        while Instant::now() < deadline {
            match store.create_partition(FLEETING, Timestamp(1)) {
                Ok(()) => {}
                Err(StoreError::PartitionExists(_)) => {
                    std::thread::sleep(Duration::from_micros(300));
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            store.resize_partition(FLEETING, u64::MAX).unwrap();
            std::thread::scope(|users| {
                for user in 0..3 {
                    let store = &store;
                    users.spawn(move || use_up(store, rounds * 10 + user));
                }
                std::thread::sleep(Duration::from_micros(200 * (rounds % 50)));
                store.remove_partition(FLEETING).unwrap();
            });
            rounds += 1;
            if rounds % 20 == 0 {
                store.flush_all().unwrap();
            }
        }
        drop(ended);
        maintenance.join().unwrap();
    });
    finish_removals(&store);
    assert_eq!(store.read_only(), None);
    store.flush_all().unwrap();
    assert_clean(&device.live(), "after partitions went");
    check_space(&store);
    assert_eq!(store.space().used_bytes, 0);
    println!("{rounds} rounds");
    store.close().unwrap();
    let store = open(device, &options());
    assert_eq!(store.partitions(), [P1, P2]);
    check_space(&store);
}
