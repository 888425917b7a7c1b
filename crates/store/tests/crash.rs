//! Power cuts, enumerated: a scripted workload is cut at every sync and at many writes; of what was
//! not synced a seeded subset survives. After an open, everything flushed is there, everything else
//! is as before or after the last write of it, the space adds up, and work goes on.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use nasd_device::{FaultPlan, FaultyDevice};
use nasd_store::{OpenOptions, Store, StoreError};
use nasd_types::{ObjectId, ObjectName, SetAttributes, Timestamp};

const CAPACITY: u64 = 8 << 20;

/// What an object may be after a crash: `None` is absent.
type State = Option<Vec<u8>>;

/// The states of each object since the last flush that was answered, oldest first.
#[derive(Clone, Default)]
struct Histories(BTreeMap<ObjectName, Vec<State>>);

impl Histories {
    fn now(&self, name: ObjectName) -> &State {
        self.0[&name].last().unwrap()
    }

    fn change(&mut self, name: ObjectName, state: State) {
        self.0.entry(name).or_insert_with(|| vec![None]).push(state);
    }

    /// A flush was answered: older states are no longer possible.
    fn durable(&mut self, name: ObjectName) {
        if let Some(states) = self.0.get_mut(&name) {
            states.drain(..states.len() - 1);
        }
    }

    fn living(&self) -> Vec<ObjectName> {
        let living = self.0.iter().filter(|(_, states)| states.last().unwrap().is_some());
        living.map(|(name, _)| *name).collect()
    }
}

fn options() -> OpenOptions {
    small_cache(48)
}

/// Random work until it is done or the device fails.
fn work(
    store: &Store,
    random: &mut Random,
    steps: usize,
    histories: &mut Histories,
) -> Result<(), StoreError> {
    for _ in 0..steps {
        let living = histories.living();
        match random.below(20) {
            0..=2 => {
                let (object, _) = store.create(P1, &SetAttributes::default(), Timestamp(5))?;
                let name = name(P1, object.0);
                assert!(!histories.0.contains_key(&name), "{name} was given out before");
                histories.change(name, Some(Vec::new()));
            }
            3 => {
                if let Some(&name) = random.pick(&living).filter(|_| living.len() > 3) {
                    store.remove(name)?;
                    histories.change(name, None);
                }
            }
            4..=12 => {
                let Some(&name) = random.pick(&living) else {
                    continue;
                };
                let offset = random.below(100_000);
                let length = 1 + random.below(60_000);
                let bytes = random.bytes(length as usize);
                let mut after = histories.now(name).clone().unwrap();
                after.resize(after.len().max((offset + length) as usize), 0);
                after[offset as usize..][..length as usize].copy_from_slice(&bytes);
                write(store, name, offset, &bytes)?;
                histories.change(name, Some(after));
            }
            13..=14 => {
                let Some(&name) = random.pick(&living) else {
                    continue;
                };
                let mut after = histories.now(name).clone().unwrap();
                after.resize(random.below(100_000) as usize, 0);
                set_size(store, name, after.len() as u64)?;
                histories.change(name, Some(after));
            }
            15..=17 => {
                let names: Vec<ObjectName> =
                    (0..2).filter_map(|_| random.pick(&living).copied()).collect();
                store.flush(&names)?;
                names.into_iter().for_each(|name| histories.durable(name));
            }
            18 => drop(store.write_back(50_000)?),
            _ => {
                store.flush_all()?;
                let names: Vec<ObjectName> = histories.0.keys().copied().collect();
                names.into_iter().for_each(|name| histories.durable(name));
            }
        }
    }
    Ok(())
}

/// What the store has must be one of the possible states of each object; from then on it is the
/// only one.
fn check(store: &Store, histories: &mut Histories) {
    check_space(store);
    for listed in store.list(P1, ObjectId::FIRST_DYNAMIC, usize::MAX).unwrap() {
        assert!(histories.0.contains_key(&name(P1, listed.0)), "{listed} came from nowhere");
    }
    for (name, states) in &mut histories.0 {
        let found = match contents(store, *name) {
            Ok(bytes) => Some(bytes),
            Err(StoreError::NoSuchObject(_)) => None,
            Err(error) => panic!("{error}"),
        };
        assert!(
            states.contains(&found),
            "{name} with {:?} bytes is none of {:?}",
            found.as_ref().map(Vec::len),
            states.iter().map(|state| state.as_ref().map(Vec::len)).collect::<Vec<_>>()
        );
        *states = vec![found];
    }
}

fn formatted() -> Vec<u8> {
    let device = Arc::new(FaultyDevice::zeroed(CAPACITY));
    Store::format(device.clone(), &format_options()).unwrap();
    device.live_image()
}

/// Runs the workload on `image` until the plan cuts it off; what survives.
fn cut(
    image: Vec<u8>,
    plan: FaultPlan,
    workload: u64,
    seed: u64,
    histories: &mut Histories,
) -> Vec<u8> {
    let device = Arc::new(FaultyDevice::new(image, plan));
    if let Ok(store) = Store::open(device.clone(), &options()) {
        let outcome = work(&store, &mut Random(workload), 60, histories);
        assert_eq!(outcome.is_err(), device.has_crashed(), "{outcome:?}");
        // Without an orderly close, which would sync more.
        device.crash();
        drop(store);
    }
    device.surviving_image(seed)
}

/// One crash, an open, a check, more work and another crash in it, another open and check.
fn crash_twice(image: &[u8], plan: FaultPlan, workload: u64, seed: u64) {
    let mut histories = Histories::default();
    let survived = cut(image.to_vec(), plan, workload, seed, &mut histories);
    let device = Arc::new(FaultyDevice::new(survived.clone(), FaultPlan::default()));
    let store = Store::open(device.clone(), &options()).unwrap();
    check(&store, &mut histories);
    device.crash();
    drop(store);
    let syncs = device.syncs();
    // Cut again, during the open or a little after it.
    let at = seed % (syncs + 6);
    let plan = FaultPlan { crash_at_sync: Some(at), ..FaultPlan::default() };
    let survived = cut(survived, plan, workload + 1000, seed + 1, &mut histories);
    let device = Arc::new(FaultyDevice::new(survived, FaultPlan::default()));
    let store = Store::open(device, &options()).unwrap();
    check(&store, &mut histories);
    work(&store, &mut Random(seed), 30, &mut histories).unwrap();
    store.flush_all().unwrap();
    check_space(&store);
    store.close().unwrap();
}

/// How many syncs and writes the whole workload takes.
fn count(image: &[u8], workload: u64) -> (u64, u64) {
    let device = Arc::new(FaultyDevice::new(image.to_vec(), FaultPlan::default()));
    let store = Store::open(device.clone(), &options()).unwrap();
    work(&store, &mut Random(workload), 60, &mut Histories::default()).unwrap();
    (device.syncs(), device.writes())
}

#[test]
fn a_crash_at_any_sync_keeps_what_was_flushed() {
    let image = formatted();
    for workload in 0..4 {
        let (syncs, _) = count(&image, workload);
        assert!(syncs > 10);
        for at in 0..=syncs {
            for seed in [workload * 1000 + at, workload * 1000 + at + 500] {
                println!("workload {workload}, sync {at} of {syncs}, seed {seed}");
                let plan = FaultPlan { crash_at_sync: Some(at), ..FaultPlan::default() };
                crash_twice(&image, plan, workload, seed);
            }
        }
    }
}

#[test]
fn a_crash_at_any_write_keeps_what_was_flushed() {
    let image = formatted();
    for workload in 10..12 {
        let (_, writes) = count(&image, workload);
        for at in 0..=writes {
            println!("workload {workload}, write {at} of {writes}");
            let plan = FaultPlan { crash_at_write: Some(at), ..FaultPlan::default() };
            crash_twice(&image, plan, workload, at);
        }
    }
}

#[test]
fn a_crash_while_formatting_leaves_no_drive_or_a_good_one() {
    let whole = {
        let device = Arc::new(FaultyDevice::zeroed(CAPACITY));
        Store::format(device.clone(), &format_options()).unwrap();
        device.syncs()
    };
    let (mut good, mut none) = (0, 0);
    for at in 0..=whole {
        for seed in 0..4 {
            // Over an older drive, whose remains must not be taken for the new one.
            let plan = FaultPlan { crash_at_sync: Some(at), ..FaultPlan::default() };
            let device = Arc::new(FaultyDevice::new(formatted(), plan));
            let mut options = format_options();
            options.drive = nasd_types::DriveId(0xd2);
            let outcome = Store::format(device.clone(), &options);
            let image = device.surviving_image(seed);
            let survivor = Arc::new(FaultyDevice::new(image, FaultPlan::default()));
            match Store::open(survivor, &self::options()) {
                Ok(store) => {
                    if outcome.is_ok() {
                        assert_eq!(store.identity().drive, options.drive);
                    }
                    check_space(&store);
                    good += 1;
                }
                Err(error) => {
                    assert!(outcome.is_err(), "{error}");
                    none += 1;
                }
            }
        }
    }
    assert!(good > 4 && none > 4, "{good} good, {none} none");
}
