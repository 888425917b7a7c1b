//! The store against a model of byte vectors: seeded random operations on a small drive with a tiny
//! cache, so that frames are given up all the time and space runs out now and then.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use nasd_device::BlockDevice;
use nasd_store::{NoSpace, Store, StoreError};
use nasd_types::{ByteRange, ObjectId, ObjectName, SetAttributes, Timestamp};

type Model = BTreeMap<ObjectName, Vec<u8>>;

struct Run {
    device: Arc<dyn BlockDevice>,
    store: Option<Store>,
    frames: usize,
    model: Model,
    random: Random,
    refused: usize,
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

    fn step(&mut self, largest: u64) {
        match self.random.below(100) {
            0..=7 => self.create(),
            8..=11 => self.remove(),
            12..=59 => self.write(largest),
            60..=84 => self.read(largest),
            85..=91 => self.resize(largest),
            92..=95 => self.flush(),
            96 => self.store().flush_all().unwrap(),
            97 => drop(self.store().write_back(100_000).unwrap()),
            98 => self.check_list(),
            _ => self.reopen(),
        }
    }

    fn create(&mut self) {
        let partition = if self.random.below(2) == 0 { P1 } else { P2 };
        let size = self.random.below(3) * 1000;
        let initial = SetAttributes { logical_size: Some(size), ..SetAttributes::default() };
        let made = self.store().create(partition, &initial, Timestamp(5));
        if let Some((object, _)) = self.allowed(made) {
            let fresh = self.model.insert(ObjectName { partition, object }, vec![0; size as usize]);
            assert!(fresh.is_none(), "{object} was given out twice");
        }
    }

    fn remove(&mut self) {
        if let Some(name) = self.object().filter(|_| self.model.len() > 4) {
            self.store().remove(name).unwrap();
            self.model.remove(&name);
        }
    }

    fn write(&mut self, largest: u64) {
        let Some(name) = self.object() else { return };
        let offset = match self.random.below(4) {
            0 => self.random.below(largest) / BLOCK * BLOCK,
            1 => self.model[&name].len() as u64,
            _ => self.random.below(largest),
        };
        let length = match self.random.below(4) {
            0 => self.random.below(100),
            1 => BLOCK * (1 + self.random.below(20)),
            2 => 65536 * (1 + self.random.below(2)),
            _ => self.random.below(200_000),
        };
        let bytes = self.random.bytes(length as usize);
        let outcome = if self.random.below(2) == 0 {
            write(self.store(), name, offset, &bytes)
        } else {
            write_frames(self.store(), name, offset, &bytes)
        };
        if self.allowed(outcome).is_some() && length > 0 {
            let model = self.model.get_mut(&name).unwrap();
            let end = (offset + length) as usize;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&bytes);
        }
    }

    fn read(&mut self, largest: u64) {
        let Some(name) = self.object() else { return };
        let (offset, length) = (self.random.below(largest), self.random.below(150_000));
        let data = self.store().read(name, ByteRange::new(offset, length)).unwrap();
        let model = &self.model[&name];
        let start = model.len().min(offset as usize);
        let end = model.len().min((offset + length) as usize);
        assert_eq!(data.logical_size, model.len() as u64);
        assert!(data.to_vec() == model[start..end], "{name} [{offset}, +{length})");
    }

    fn resize(&mut self, largest: u64) {
        let Some(name) = self.object() else { return };
        let size = match self.random.below(3) {
            0 => self.random.below(largest) / BLOCK * BLOCK,
            1 => self.random.below(1 + self.model[&name].len() as u64),
            _ => self.random.below(largest),
        };
        let outcome = set_size(self.store(), name, size);
        if self.allowed(outcome).is_some() {
            self.model.get_mut(&name).unwrap().resize(size as usize, 0);
        }
    }

    fn flush(&mut self) {
        let names: Vec<ObjectName> = (0..3).filter_map(|_| self.object()).collect();
        self.store().flush(&names).unwrap();
    }

    fn check_list(&mut self) {
        for partition in [P1, P2] {
            let listed = self.store().list(partition, ObjectId(0), usize::MAX).unwrap();
            let names = self.model.keys().filter(|name| name.partition == partition);
            assert_eq!(listed, names.map(|name| name.object).collect::<Vec<_>>());
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
        self.check_list();
        for (name, expected) in &self.model {
            let found = contents(self.store(), *name).unwrap();
            assert!(found == *expected, "{name} differs");
        }
    }
}

fn run(seed: u64, capacity: u64, frames: usize, largest: u64, steps: usize) -> usize {
    println!("seed {seed}");
    let (device, store) = memory_store(capacity, &small_cache(frames));
    let model = [(name(P1, 4), Vec::new()), (name(P2, 4), Vec::new())].into();
    let mut run =
        Run { device, store: Some(store), frames, model, random: Random(seed), refused: 0 };
    for step in 0..steps {
        run.step(largest);
        if step % 400 == 399 {
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
        let refused = run(seed, 96 << 20, 24, 600_000, 1200);
        assert_eq!(refused, 0, "seed {seed}");
    }
}

#[test]
fn agrees_with_the_model_on_a_drive_that_is_often_full() {
    let refused: usize = (100..106).map(|seed| run(seed, 12 << 20, 40, 900_000, 1500)).sum();
    assert!(refused > 20, "the drive was full only {refused} times");
}

#[test]
fn agrees_with_the_model_when_everything_fits_the_cache() {
    for seed in 200..203 {
        run(seed, 96 << 20, 512, 400_000, 1500);
    }
}
