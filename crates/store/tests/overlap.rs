//! Flushes that overlap: while one writes its data or is being logged, those behind it write theirs. What is answered
//! is durable, in the order of the flushes, whatever fails or is lost in between.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;
mod world;

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use common::*;
use nasd_device::{BlockDevice, DeviceError, FailedSync, FaultPlan, FaultyDevice, Image};
use nasd_store::{FormatOptions, Store, StoreError};
use nasd_types::{ObjectName, SetAttributes, Timestamp};
use world::*;

const CAPACITY: u64 = 64 << 20;

/// More than goes into an entry of the log.
const LONG: usize = 200_000;

/// Long enough for whatever does not wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Long enough for what must not happen, and would at once.
const MOMENT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    /// Whether entries of the log wait.
    holds: bool,
    /// Whether syncs wait.
    holds_syncs: bool,
    /// Whether entries of the log fail.
    fails: bool,
    /// Whether the device's driver panics.
    panics: bool,
    /// Whether the next write of something else waits.
    holds_next: bool,
    /// Whether one does.
    is_holding: bool,
    /// And whether it fails.
    fails_held: bool,
    /// Entries that have come.
    entries: usize,
    /// Other writes that have ended.
    others: usize,
    /// Syncs that have come.
    syncs: usize,
}

/// A device on which entries of the log, or a write of data, wait or fail when a test wants that.
#[derive(Debug)]
struct Gate {
    inner: Arc<FaultyDevice>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// A write of something that is not an entry waits, if it is to.
    fn hold(&self) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        if !std::mem::take(&mut state.holds_next) {
            return Ok(());
        }
        state.is_holding = true;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |state| state.is_holding).unwrap();
        if state.fails_held { Err(planned_failure()) } else { Ok(()) }
    }

    fn wait_until(&self, reached: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| !reached(state));
        let (state, timeout) = waited.unwrap();
        let found = format!("{state:?}");
        drop(state);
        if timeout.timed_out() {
            // Nobody waits for ever.
            self.change(|state| *state = State::default());
            panic!("{found}");
        }
    }
}

fn planned_failure() -> DeviceError {
    let source = io::Error::other("a planned failure");
    DeviceError::Medium { operation: "write", offset: 0, length: 0, source }
}

impl BlockDevice for Gate {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        if !from[0].starts_with(b"NASDlog2") {
            self.hold()?;
            let written = self.inner.write(offset, from);
            self.change(|state| state.others += 1);
            return written;
        }
        self.change(|state| state.entries += 1);
        let state = self.state.lock().unwrap();
        let state = self.changed.wait_while(state, |state| state.holds).unwrap();
        let (fails, panics) = (state.fails, state.panics);
        drop(state);
        assert!(!panics, "a planned panic");
        if fails {
            return Err(planned_failure());
        }
        self.inner.write(offset, from)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.change(|state| state.syncs += 1);
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.holds_syncs).unwrap());
        self.inner.sync()
    }
}

/// A store with two objects that are long and durable.
fn prepared() -> (Arc<Gate>, Store, [ObjectName; 2]) {
    let inner = Arc::new(FaultyDevice::zeroed(CAPACITY));
    // Nobody has to make room for records, and wait for a flush.
    let options = FormatOptions { metadata_bytes: Some(16 << 20), ..format_options() };
    Store::format(inner.clone(), &options).unwrap();
    let gate = Arc::new(Gate { inner, state: Mutex::default(), changed: Condvar::new() });
    // Nor in the cache.
    let store = open(gate.clone(), &small_cache(2500));
    let names = [create(&store, P1), create(&store, P1)];
    names.iter().for_each(|name| fill(&store, *name, 1));
    store.flush_all().unwrap();
    gate.change(|state| *state = State { holds: true, ..State::default() });
    (gate, store, names)
}

fn fill(store: &Store, name: ObjectName, value: u8) {
    write(store, name, 0, &[value; LONG]).unwrap();
}

fn holds(store: &Store, name: ObjectName) -> u8 {
    let found = contents(store, name).unwrap();
    assert_eq!(found, vec![found[0]; LONG], "{name} is torn");
    found[0]
}

/// So many objects whose contents go into the log, two kilobytes each; fewer if the store takes no more.
fn crowd(store: &Store, objects: usize) -> Vec<ObjectName> {
    let make = |_| {
        let created = store.create(P1, &SetAttributes::default(), Timestamp(2));
        let name = ObjectName { partition: P1, object: created.ok()?.0 };
        write(store, name, 0, &[5; 2000]).ok()?;
        Some(name)
    };
    (0..objects).map_while(make).collect()
}

/// What a power cut leaves.
fn cut(gate: &Gate, seed: u64) -> Image {
    let image = gate.inner.survivor(seed);
    assert_clean(&image, "a power cut while flushes overlap");
    image
}

/// Begins a flush whose entry waits, and then one of the other object, and does something when that has
/// written, or tried to; both outcomes.
fn both(
    (gate, store, [one, other]): &(Arc<Gate>, Store, [ObjectName; 2]),
    meanwhile: impl FnOnce(),
) -> [Result<(), StoreError>; 2] {
    fill(store, *one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&[*one]));
        gate.wait_until(|state| state.entries == 1);
        let before = gate.state.lock().unwrap().others;
        fill(store, *other, 2);
        let later = scope.spawn(|| store.flush(&[*other]));
        gate.wait_until(|state| state.others > before);
        meanwhile();
        [first.join().unwrap(), later.join().unwrap()]
    })
}

#[test]
fn a_flush_writes_while_the_one_before_is_being_logged() {
    let world = prepared();
    let (gate, store, [one, other]) = &world;
    let outcomes = both(&world, || {
        thread::sleep(MOMENT);
        assert_eq!(gate.state.lock().unwrap().entries, 1, "the second one is logged too early");
        for seed in 0..20 {
            let (_, store) = reopen(&cut(gate, seed), &small_cache(400));
            assert_eq!([holds(&store, *one), holds(&store, *other)], [1, 1]);
        }
        gate.change(|state| state.holds = false);
    });
    outcomes.into_iter().for_each(Result::unwrap);
    gate.inner.crash();
    for seed in 0..20 {
        let (_, store) = reopen(&cut(gate, seed), &small_cache(400));
        assert_eq!([holds(&store, *one), holds(&store, *other)], [2, 2]);
    }
    assert_eq!([holds(store, *one), holds(store, *other)], [2, 2]);
}

/// Begins a flush whose data wait, and then one of the other object; does something when that has written its own, and
/// lets the first one go on, or fail; both outcomes.
fn both_write(
    (gate, store, [one, other]): &(Arc<Gate>, Store, [ObjectName; 2]),
    meanwhile: impl FnOnce(),
    fails: bool,
) -> [Result<(), StoreError>; 2] {
    gate.change(|state| (state.holds, state.holds_next) = (false, true));
    fill(store, *one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&[*one]));
        gate.wait_until(|state| state.is_holding);
        fill(store, *other, 2);
        let later = scope.spawn(|| store.flush(&[*other]));
        gate.wait_until(|state| state.others > 0);
        meanwhile();
        gate.change(|state| (state.is_holding, state.fails_held) = (false, fails));
        [first.join().unwrap(), later.join().unwrap()]
    })
}

#[test]
fn a_flush_writes_while_the_one_before_writes_and_is_logged_behind_it() {
    let world = prepared();
    let (gate, store, [one, other]) = &world;
    let meanwhile = || {
        thread::sleep(MOMENT);
        assert_eq!(gate.state.lock().unwrap().entries, 0, "the second one is logged first");
        for seed in 0..20 {
            let (_, store) = reopen(&cut(gate, seed), &small_cache(400));
            assert_eq!([holds(&store, *one), holds(&store, *other)], [1, 1]);
        }
    };
    both_write(&world, meanwhile, false).into_iter().for_each(Result::unwrap);
    assert_eq!(gate.state.lock().unwrap().entries, 2);
    assert_eq!([holds(store, *one), holds(store, *other)], [2, 2]);
    gate.inner.crash();
    let (_, store) = reopen(&cut(gate, 1), &small_cache(400));
    assert_eq!([holds(&store, *one), holds(&store, *other)], [2, 2]);
}

#[test]
fn a_flush_behind_one_that_cannot_write_is_tried_again() {
    let world = prepared();
    let (gate, store, [one, other]) = &world;
    let [first, later] = both_write(&world, || (), true);
    assert!(first.is_err());
    later.unwrap();
    assert_eq!(gate.state.lock().unwrap().entries, 1);
    assert_eq!(store.read_only(), None);
    assert_eq!([holds(store, *one), holds(store, *other)], [2, 2]);
    let (_, after) = reopen(&cut(gate, 1), &small_cache(400));
    assert_eq!([holds(&after, *one), holds(&after, *other)], [1, 2]);
    store.flush(&[*one]).unwrap();
    gate.inner.crash();
    let (_, after) = reopen(&cut(gate, 1), &small_cache(400));
    assert_eq!([holds(&after, *one), holds(&after, *other)], [2, 2]);
}

#[test]
fn one_in_the_middle_that_cannot_write_leaves_the_one_before_alone() {
    let (gate, store, [one, other]) = prepared();
    let third = create(&store, P1);
    fill(&store, one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&[one]));
        gate.wait_until(|state| state.entries == 1);
        gate.change(|state| state.holds_next = true);
        fill(&store, other, 2);
        let second = scope.spawn(|| store.flush(&[other]));
        gate.wait_until(|state| state.is_holding);
        let before = gate.state.lock().unwrap().others;
        fill(&store, third, 2);
        fill(&store, one, 3);
        let later = scope.spawn(|| store.flush(&[one, third]));
        gate.wait_until(|state| state.others > before);
        let before = gate.state.lock().unwrap().others;
        gate.change(|state| (state.is_holding, state.fails_held) = (false, true));
        assert!(second.join().unwrap().is_err());
        // The youngest is tried again while the oldest is still being logged.
        gate.wait_until(|state| state.others > before);
        assert_eq!(gate.state.lock().unwrap().entries, 1);
        gate.change(|state| state.holds = false);
        first.join().unwrap().unwrap();
        later.join().unwrap().unwrap();
    });
    assert_eq!(store.read_only(), None);
    gate.inner.crash();
    let (_, store) = reopen(&cut(&gate, 1), &small_cache(400));
    assert_eq!([holds(&store, one), holds(&store, other), holds(&store, third)], [3, 1, 2]);
}

#[test]
fn what_was_taken_twice_is_written_by_another_try_when_the_first_cannot_write() {
    let (gate, store, [one, _]) = prepared();
    gate.change(|state| (state.holds, state.holds_next) = (false, true));
    fill(&store, one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&[one]));
        gate.wait_until(|state| state.is_holding);
        write(&store, one, 0, &[3; LONG / 2]).unwrap();
        let later = scope.spawn(|| store.flush(&[one]));
        gate.wait_until(|state| state.others > 0);
        gate.change(|state| (state.is_holding, state.fails_held) = (false, true));
        assert!(first.join().unwrap().is_err());
        later.join().unwrap().unwrap();
    });
    gate.inner.crash();
    let (_, store) = reopen(&cut(&gate, 1), &small_cache(400));
    let found = contents(&store, one).unwrap();
    assert_eq!(found, [vec![3; LONG / 2], vec![2; LONG / 2]].concat());
}

#[test]
fn who_flushes_what_is_being_flushed_waits_for_that() {
    let (gate, store, [one, _]) = prepared();
    fill(&store, one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&[one]));
        gate.wait_until(|state| state.entries == 1);
        // Nothing of it is dirty.
        let later = scope.spawn(|| store.flush(&[one]));
        let settled = scope.spawn(|| store.flush_all());
        thread::sleep(MOMENT);
        assert!(!later.is_finished() && !settled.is_finished());
        gate.change(|state| state.holds = false);
        for flush in [first, later, settled] {
            flush.join().unwrap().unwrap();
        }
    });
}

#[test]
fn who_flushes_what_is_being_flushed_fails_with_that() {
    for panics in [false, true] {
        let (gate, store, [one, _]) = prepared();
        fill(&store, one, 2);
        thread::scope(|scope| {
            let first = scope.spawn(|| store.flush(&[one]));
            gate.wait_until(|state| state.entries == 1);
            // They have nothing to write.
            let others = [scope.spawn(|| store.flush(&[one])), scope.spawn(|| store.flush_all())];
            thread::sleep(MOMENT);
            gate.change(|state| (state.holds, state.fails, state.panics) = (false, true, panics));
            assert!(first.join().map_or(panics, |flushed| flushed.is_err()));
            for other in others {
                assert!(other.join().unwrap().is_err(), "it is told that it is durable");
            }
        });
        assert!(store.read_only().is_some());
        assert_eq!(holds(&store, one), 2);
        gate.inner.crash();
        let (_, store) = reopen(&cut(&gate, 1), &small_cache(400));
        assert_eq!(holds(&store, one), 1);
    }
}

#[test]
fn nothing_is_logged_behind_a_flush_that_has_panicked() {
    let world = prepared();
    let (gate, store, [one, other]) = &world;
    fill(store, *one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&[*one]));
        gate.wait_until(|state| state.entries == 1);
        let before = gate.state.lock().unwrap().others;
        fill(store, *other, 2);
        let later = scope.spawn(|| store.flush(&[*other]));
        gate.wait_until(|state| state.others > before);
        gate.change(|state| (state.holds, state.panics) = (false, true));
        assert!(first.join().is_err());
        assert!(later.join().unwrap().is_err());
    });
    assert_eq!(gate.state.lock().unwrap().entries, 1);
    gate.inner.crash();
    let (_, store) = reopen(&cut(gate, 1), &small_cache(400));
    assert_eq!([holds(&store, *one), holds(&store, *other)], [1, 1]);
}

#[test]
fn both_fail_if_the_first_cannot_be_logged() {
    let world = prepared();
    let (gate, store, [one, other]) = &world;
    let outcomes = both(&world, || {
        gate.change(|state| (state.holds, state.fails) = (false, true));
    });
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert!(store.read_only().is_some());
    // What was written is there, as long as the drive runs.
    assert_eq!([holds(store, *one), holds(store, *other)], [2, 2]);
    assert!(store.flush(&[*one]).is_err());
    gate.inner.crash();
    let (_, store) = reopen(&cut(gate, 1), &small_cache(400));
    assert_eq!([holds(&store, *one), holds(&store, *other)], [1, 1]);
}

#[test]
fn both_fail_if_the_data_of_the_first_cannot_be_synced() {
    for failed_sync in [FailedSync::Keeps, FailedSync::Drops] {
        let (gate, store, [one, other]) = prepared();
        let failing_syncs = vec![gate.inner.syncs()];
        gate.inner.set_plan(FaultPlan { failing_syncs, failed_sync, ..FaultPlan::default() });
        gate.change(|state| (state.holds, state.holds_syncs) = (false, true));
        fill(&store, one, 2);
        thread::scope(|scope| {
            let first = scope.spawn(|| store.flush(&[one]));
            gate.wait_until(|state| state.syncs == 1);
            let before = gate.state.lock().unwrap().others;
            fill(&store, other, 2);
            let later = scope.spawn(|| store.flush(&[other]));
            gate.wait_until(|state| state.others > before);
            gate.change(|state| state.holds_syncs = false);
            assert!(first.join().unwrap().is_err());
            assert!(later.join().unwrap().is_err());
        });
        assert_eq!(gate.state.lock().unwrap().entries, 0);
        assert_eq!([holds(&store, one), holds(&store, other)], [2, 2]);
        gate.inner.crash();
        let (_, store) = reopen(&cut(&gate, 1), &small_cache(400));
        assert_eq!([holds(&store, one), holds(&store, other)], [1, 1]);
    }
}

#[test]
fn the_second_alone_fails_if_it_cannot_write() {
    let world = prepared();
    let (gate, store, [one, other]) = &world;
    // The data of the first are one write.
    let next = gate.inner.writes() + 1;
    gate.inner.set_plan(FaultPlan { failing_writes: vec![next], ..FaultPlan::default() });
    let outcomes = both(&world, || {
        thread::sleep(MOMENT);
        gate.change(|state| state.holds = false);
    });
    let [first, second] = outcomes;
    first.unwrap();
    assert!(second.is_err());
    assert!(store.read_only().is_none());
    store.flush(&[*other]).unwrap();
    gate.inner.crash();
    let (_, store) = reopen(&cut(gate, 1), &small_cache(400));
    assert_eq!([holds(&store, *one), holds(&store, *other)], [2, 2]);
}

#[test]
fn who_has_an_entry_that_is_too_long_has_those_behind_try_again() {
    let (gate, store, [one, other]) = prepared();
    // More than a quarter of the log, which has 1 MiB.
    let mut names = crowd(&store, 150);
    names.push(one);
    let checkpoints = store.statistics().checkpoints;
    gate.change(|state| (state.holds, state.holds_next) = (false, true));
    fill(&store, one, 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| store.flush(&names));
        gate.wait_until(|state| state.is_holding);
        fill(&store, other, 2);
        let later = scope.spawn(|| store.flush(&[other]));
        gate.wait_until(|state| state.others > 0);
        gate.change(|state| state.is_holding = false);
        first.join().unwrap().unwrap();
        later.join().unwrap().unwrap();
    });
    assert_eq!(store.statistics().checkpoints, checkpoints + 1);
    assert_eq!(gate.state.lock().unwrap().entries, 1);
    gate.inner.crash();
    let (_, store) = reopen(&cut(&gate, 1), &small_cache(1000));
    assert_eq!([holds(&store, one), holds(&store, other)], [2, 2]);
    assert!(names[..150].iter().all(|name| contents(&store, *name).unwrap() == [5; 2000]));
}

#[test]
fn who_finds_no_room_in_the_log_has_those_behind_try_again() {
    let (gate, store, [one, other]) = prepared();
    let long = [one, other, create(&store, P1), create(&store, P1)];
    gate.change(|state| state.holds = false);
    for _ in 0..3 {
        store.flush(&crowd(&store, 45)).unwrap();
    }
    let used = store.statistics().log_bytes;
    assert!((290_000..380_000).contains(&used), "{used}: less than is time for a checkpoint");
    // Three of these are more than half of the log with that.
    let crowds: Vec<Vec<ObjectName>> =
        long.iter().map(|long| [crowd(&store, 60), vec![*long]].concat()).collect();
    long.iter().for_each(|name| fill(&store, *name, 2));
    let before = store.statistics();
    gate.change(|state| *state = State { holds_next: true, ..State::default() });
    thread::scope(|scope| {
        let mut flushes = Vec::new();
        for (number, names) in crowds.iter().enumerate() {
            flushes.push(scope.spawn(|| store.flush(names)));
            match number {
                0 => gate.wait_until(|state| state.is_holding),
                _ => gate.wait_until(|state| state.others >= number),
            }
        }
        assert_eq!(gate.state.lock().unwrap().entries, 0, "all four are under way");
        gate.change(|state| state.is_holding = false);
        flushes.into_iter().for_each(|flush| flush.join().unwrap().unwrap());
    });
    let after = store.statistics();
    assert_eq!(after.checkpoints, before.checkpoints + 1);
    assert_eq!(gate.state.lock().unwrap().entries, 4);
    // The last one was written twice.
    let written = (after.data_written_bytes - before.data_written_bytes) / (49 * 4096);
    assert_eq!(written, 5);
    gate.inner.crash();
    let (_, store) = reopen(&cut(&gate, 1), &small_cache(1000));
    assert_eq!(long.map(|name| holds(&store, name)), [2; 4]);
}

#[test]
fn checkpoints_come_while_flushes_overlap_and_little_is_written_twice() {
    const ROUNDS: usize = 150;
    let device = Arc::new(FaultyDevice::zeroed(CAPACITY));
    Store::format(device.clone(), &format_options()).unwrap();
    let store = open(device, &small_cache(1000));
    let before = store.statistics();
    thread::scope(|scope| {
        for number in 0..4 {
            let (store, name) = (&store, create(&store, P1));
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    fill(store, name, number);
                    store.flush(&[name]).unwrap();
                }
            });
        }
    });
    let after = store.statistics();
    let log = after.log_bytes - before.log_bytes;
    // One of its three eighths of a megabyte, and the last has not come.
    let least = (log / (384 << 10)).saturating_sub(2).max(1);
    let checkpoints = after.checkpoints - before.checkpoints;
    assert!(checkpoints >= least, "{checkpoints} for {log} bytes of the log");
    let written = after.data_written_bytes - before.data_written_bytes;
    let flushed = (4 * ROUNDS * LONG.next_multiple_of(4096)) as u64;
    assert!(written <= flushed + flushed / 20, "{written} of {flushed}");
}

/// Threads that write and flush each an object of its own until the power is cut.
fn work_until_cut(seed: u64) {
    const THREADS: u64 = 5;
    let device = Arc::new(FaultyDevice::zeroed(CAPACITY));
    Store::format(device.clone(), &format_options()).unwrap();
    let store = open(device.clone(), &small_cache(400));
    let names: Vec<ObjectName> = (0..THREADS).map(|_| create(&store, P1)).collect();
    names.iter().for_each(|name| fill(&store, *name, 0));
    store.flush_all().unwrap();
    let flushed: Vec<AtomicU64> = names.iter().map(|_| AtomicU64::new(0)).collect();
    let crash_at_change = Some(device.changes() + Random(seed).below(250));
    device.set_plan(FaultPlan { crash_at_change, seed, ..FaultPlan::default() });
    thread::scope(|scope| {
        for (number, (name, flushed)) in (0..).zip(names.iter().zip(&flushed)) {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(seed * THREADS + number);
                for round in 1..=255 {
                    let written = write(store, *name, 0, &[round; LONG]);
                    // Some short ones, which go another way, are between them.
                    let written = written.and_then(|_| match random.below(3) {
                        0 => store.flush(&[*name]).and_then(|()| {
                            write(store, *name, 0, &[round; 100])?;
                            store.flush(&[*name])
                        }),
                        _ => store.flush(&[*name]),
                    });
                    if written.is_err() {
                        return;
                    }
                    flushed.store(round.into(), Ordering::SeqCst);
                    // Now and then an entry is too long.
                    if random.below(60) == 0 && store.flush(&crowd(store, 150)).is_err() {
                        return;
                    }
                    if random.below(40) == 0 && store.checkpoint().is_err() {
                        return;
                    }
                }
            });
        }
    });
    drop(store);
    for draw in 0..3 {
        let image = device.survivor(seed * 3 + draw);
        assert_clean(&image, "a power cut");
        let (_, store) = reopen(&image, &small_cache(400));
        for (name, flushed) in names.iter().zip(&flushed) {
            let (found, least) = (u64::from(holds(&store, *name)), flushed.load(Ordering::SeqCst));
            assert!(found == least || found == least + 1, "{found}, and {least} was flushed");
        }
    }
}

#[test]
fn what_several_threads_have_flushed_outlives_a_power_cut() {
    let seeds = std::env::var_os("NASD_LONG_TESTS").map_or(60, |_| 2000);
    (0..seeds).for_each(work_until_cut);
}

/// The blocks that an object takes, as far as it has them, or will have without another write.
fn blocks(store: &Store, name: ObjectName) -> u64 {
    store.getattr(name).unwrap().blocks_used
}

#[test]
fn an_object_that_outgrows_the_tree_while_it_goes_there_counts_for_all_its_blocks() {
    const ALL: u64 = (LONG as u64 + 4).div_ceil(4096);
    for is_taken_again in [false, true] {
        let (gate, store, [other, _]) = prepared();
        let name = create(&store, P1);
        write(&store, name, 0, b"head").unwrap();
        assert_eq!(blocks(&store, name), 0, "it will go into the tree");
        // A flush without data to write lets no other one take anything.
        fill(&store, other, 2);
        thread::scope(|scope| {
            let first = scope.spawn(|| store.flush(&[name, other]));
            gate.wait_until(|state| state.entries == 1);
            assert_eq!(blocks(&store, name), 0);
            write(&store, name, 4, &[2; LONG]).unwrap();
            assert_eq!(blocks(&store, name), ALL);
            let later = is_taken_again.then(|| {
                let before = gate.state.lock().unwrap().others;
                let later = scope.spawn(|| store.flush(&[name]));
                gate.wait_until(|state| state.others > before);
                assert_eq!(blocks(&store, name), ALL);
                later
            });
            gate.change(|state| state.holds = false);
            first.join().unwrap().unwrap();
            later.into_iter().for_each(|later| later.join().unwrap().unwrap());
        });
        assert_eq!(blocks(&store, name), ALL);
        store.checkpoint().unwrap();
        assert_eq!(blocks(&store, name), ALL, "the tree has what the first flush took");
        store.flush_all().unwrap();
        store.checkpoint().unwrap();
        assert_eq!(blocks(&store, name), ALL);
    }
}
