//! The store against a plain model, with every operation there is: random histories on drives with
//! room to spare, on drives that are often full, and on drives whose log and metadata are tiny.
//!
//! `NASD_MODEL_SECONDS` says for how long; without it, each test takes some seconds.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{FormatOptions, OpenOptions, Store};
use nasd_types::{ObjectId, ObjectName, SetAttributes, Timestamp};
use world::*;

/// A kind of drive and of work on it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    capacity: u64,
    metadata: Option<u64>,
    frames: usize,
    quota: u64,
    mix: Mix,
}

impl Shape {
    fn format(&self) -> FormatOptions {
        let mut options = format_options();
        options.metadata_bytes = self.metadata;
        options.partitions[0].quota_bytes = self.quota;
        options
    }

    fn open(&self) -> OpenOptions {
        small_cache(self.frames)
    }
}

const ROOMY: Shape = Shape {
    capacity: 48 << 20,
    metadata: None,
    frames: 32,
    quota: u64::MAX,
    mix: Mix { largest: 400_000, objects: 30, reserve: false, partitions: true, compare: true },
};

/// Full all the time.
const FULL: Shape = Shape {
    capacity: 6 << 20,
    metadata: None,
    frames: 40,
    quota: 1 << 20,
    mix: Mix { largest: 900_000, objects: 60, reserve: true, partitions: false, compare: true },
};

/// Many small objects in the smallest metadata region.
const CROWDED: Shape = Shape {
    capacity: 16 << 20,
    metadata: Some(2 << 20),
    frames: 32,
    quota: u64::MAX,
    mix: Mix { largest: 6000, objects: 4000, reserve: false, partitions: false, compare: true },
};

struct Run {
    shape: Shape,
    device: Arc<FaultyDevice>,
    store: Option<Store>,
    world: World,
}

impl Run {
    fn new(shape: Shape, seed: u64) -> Run {
        println!("seed {seed}");
        let (image, histories) = formatted(shape.capacity, &shape.format());
        let device = Arc::new(FaultyDevice::over(image, FaultPlan::default()));
        let store = Some(Store::open(device.clone(), &shape.open()).unwrap());
        Run { shape, device, store, world: World::new(histories, seed, shape.mix) }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        if self.world.random.below(2) == 0 {
            store.close().unwrap();
        } else {
            store.flush_all().unwrap();
            drop(store);
        }
        self.world.histories().all_durable();
        self.store = Some(Store::open(self.device.clone(), &self.shape.open()).unwrap());
    }

    /// Everything is as the model says, in memory, on the medium, and in the books.
    fn check(&mut self) {
        let store = self.store.as_ref().unwrap();
        store.flush_all().unwrap();
        self.world.histories().all_durable();
        self.world.histories().settle_flushed(store);
        assert_clean(&self.device.live(), "after a flush of everything");
        assert_eq!(store.read_only(), None);
    }

    fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.world.random.below(150) == 0 {
                self.reopen();
            }
            let store = self.store.as_ref().unwrap();
            self.world.step(store).unwrap();
        }
    }

    /// Removes everything; then all there is is free, and can be used again.
    fn empty(&mut self) {
        let names = self.world.histories().living();
        for name in names.into_iter().filter(|name| name.object != ObjectId::FIRST_OBJECT) {
            self.store().remove(name).unwrap();
            self.world.histories().change(name, None);
        }
        for partition in self.store().partitions() {
            let first = ObjectName { partition, object: ObjectId::FIRST_OBJECT };
            let changes = SetAttributes {
                logical_size: Some(0),
                blocks_allocated: Some(0),
                ..SetAttributes::default()
            };
            self.store().setattr(first, &changes, Timestamp(4)).unwrap();
            let mut histories = self.world.histories();
            let before = histories.now(first).clone();
            histories.change(first, Some(Content { bytes: Arc::default(), ..before }));
        }
        self.check();
        assert_eq!(self.store().space().used_bytes, 0);
    }
}

/// Runs seed after seed until the time is over; how often space ran out, by kind.
fn run(shape: Shape, first_seed: u64, least: u64, steps: usize, normal: Duration) -> [usize; 3] {
    let seconds = std::env::var("NASD_MODEL_SECONDS").ok();
    let patience = seconds.map_or(normal, |text| Duration::from_secs(text.parse().unwrap()));
    let started = Instant::now();
    let mut refused = [0; 3];
    let mut seed = first_seed;
    while seed < first_seed + least || started.elapsed() < patience {
        let mut run = Run::new(shape, seed);
        for _ in 0..steps.div_ceil(150) {
            run.steps(150);
            run.check();
        }
        run.reopen();
        run.check();
        run.empty();
        run.steps(150);
        run.check();
        run.world.refused.iter().zip(&mut refused).for_each(|(one, all)| *all += one);
        seed += 1;
    }
    println!("seeds {first_seed} to {seed}, refused {refused:?}, {:?}", started.elapsed());
    refused
}

#[test]
fn agrees_with_the_model_with_room_to_spare() {
    let refused = run(ROOMY, 0, 2, 900, Duration::from_secs(8));
    assert_eq!(refused[1..], [0, 0]);
}

#[test]
fn agrees_with_the_model_on_a_drive_that_is_always_full() {
    let refused = run(FULL, 1000, 4, 900, Duration::from_secs(8));
    assert!(refused[0] > 10 && refused[1] > 10, "{refused:?}");
}

#[test]
fn agrees_with_the_model_when_metadata_runs_out() {
    let refused = run(CROWDED, 2000, 3, 9000, Duration::from_secs(8));
    assert!(refused[2] > 10, "{refused:?}");
}
