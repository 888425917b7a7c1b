//! Settling that fails: the tree can't be read, or can't be made durable, while the log has entries that
//! it does not have. Nothing answered as durable is lost, what the entries took is neither dirty nor free,
//! reads go on, changes are refused, nothing is written any more, and the next open finds everything.
//!
//! In a normal run a sample is tried; with `NASD_LONG_TESTS` set, everything.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod world;

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::*;
use nasd_device::{
    BlockDevice, DeviceError, FailedSync, FaultPlan, FaultyDevice, Image, WriteRequest,
};
use nasd_store::{OpenOptions, PartitionFormat, Store, StoreError};
use nasd_types::{ByteRange, Compression, ObjectName, PartitionId, SetAttributes, Timestamp};
use world::*;

const CAPACITY: u64 = 64 << 20;
const MIX: Mix =
    Mix { largest: 150_000, objects: 50, reserve: false, partitions: false, compare: false };

/// Long enough for whatever is due.
const PATIENCE: Duration = Duration::from_secs(5);

/// Hardly any memory for the tree, so that it is read from the device again and again.
fn options() -> OpenOptions {
    OpenOptions { metadata_cache_bytes: 32 << 10, ..small_cache(400) }
}

/// A drive with objects, some of which share blocks, all of it in the durable tree.
fn prepared(seed: u64) -> (Image, Histories) {
    let (image, histories) = formatted(CAPACITY, &format_options());
    let (device, store) = reopen(&image, &small_cache(400));
    let mut world = World::new(histories, seed, MIX);
    (0..400).for_each(|_| world.step(&store).unwrap());
    world.flush_all(&store).unwrap();
    world.histories().all_durable();
    store.close().unwrap();
    let histories = world.histories().clone();
    (device.live(), histories)
}

/// Flushes that only the log has, of objects that are made, written, cut, punched and removed; some
/// changes that were not flushed, unless all are to be. Two flushes of an object that take blocks of the
/// same frame are always among them.
fn queue_up(world: &mut World, store: &Store, all: bool) {
    // What is copied is settled, and the copies and what they are made of change again.
    world.copy(store).unwrap();
    for _ in 0..60 {
        match world.random.below(100) {
            0..=9 => world.create(store),
            10..=17 => world.remove(store),
            18..=49 => world.write(store),
            50..=59 => world.resize(store),
            60..=73 => world.punch(store),
            74..=79 => world.set_version(store),
            _ => world.flush(store),
        }
        .unwrap();
    }
    let twice = world.object().unwrap();
    for version in 0..2 {
        change(world, store, twice, version);
        store.flush(&[twice]).unwrap();
        world.histories().durable(twice);
    }
    if all {
        let names: Vec<ObjectName> = world.histories().objects.keys().copied().collect();
        store.flush(&names).unwrap();
        world.histories().all_durable();
    }
}

/// Overwrites the beginning of an object.
fn change(world: &World, store: &Store, name: ObjectName, version: u8) {
    let bytes = vec![0xa0 | version; 5000];
    write(store, name, 0, &bytes).unwrap();
    let before = world.histories().now(name).clone();
    let mut after = before.bytes.to_vec();
    after.resize(after.len().max(bytes.len()), 0);
    after[..bytes.len()].copy_from_slice(&bytes);
    world.histories().change(name, Some(Content { bytes: Arc::new(after), ..before }));
}

/// Numbers of the superblock: the places of the log, the metadata region and the data.
fn places(image: &Image) -> [Range<u64>; 3] {
    let mut block = vec![0; 4096];
    image.read(0, &mut block);
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let (log, metadata, data) = (number(72), number(88), number(104));
    [log..log + number(80), metadata..metadata + number(96), data..data + number(112) * BLOCK]
}

/// Every number below `end`, or a sample of about `sample`.
fn numbers(end: u64, sample: u64, seed: u64) -> impl Iterator<Item = u64> {
    let stride = if long_tests() { 1 } else { (end / sample).max(1) };
    (0..end).skip((seed % stride) as usize).step_by(stride as usize)
}

fn seeds(first: u64) -> Range<u64> {
    first..first + if long_tests() { 12 } else { 3 }
}

/// Whether the tree can be read at all after what failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tree {
    Readable,
    /// What is not in memory can't be.
    Gone,
}

fn assert_read_only<T: std::fmt::Debug>(outcome: Result<T, StoreError>) {
    assert!(matches!(outcome, Err(StoreError::ReadOnly(_))), "{outcome:?}");
}

/// Whoever wants a change is told that there are none any more.
fn refuses_changes(store: &Store, histories: &Histories) {
    let living = histories.living();
    for &name in &living {
        assert_read_only(write(store, name, 0, b"x"));
        assert_read_only(store.flush(&[name]));
    }
    let name = living[0];
    assert_read_only(set_size(store, name, 1));
    assert_read_only(store.punch(name, ByteRange::new(0, 1), Timestamp(9)));
    assert_read_only(store.remove(name));
    assert_read_only(store.create(P1, &SetAttributes::default(), Timestamp(9)));
    assert_read_only(store.fastcopy(name, Timestamp(9)));
    assert_read_only(store.flush_all());
    assert_read_only(store.flush_partition(P1));
    assert_read_only(store.write_back(1 << 20));
    assert_read_only(store.checkpoint());
    assert_read_only(store.set_clock(store.clock()));
    assert_read_only(store.create_partition(PartitionId(77), Timestamp(9)));
    assert_read_only(store.remove_partition(P2));
}

/// Reads give what was written last, or say why not.
fn reads_what_was_written(store: &Store, histories: &Histories, tree: Tree) {
    if tree == Tree::Readable {
        histories.compare(store);
        return;
    }
    let mut readable = 0;
    for (name, states) in &histories.objects {
        let expected = states.last().unwrap();
        match read_object(store, *name) {
            Ok(found) => {
                assert!(found == *expected, "{name} is {found:?}, not {expected:?}");
                readable += 1;
            }
            Err(StoreError::Medium(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(readable > 0, "nothing can be read any more");
}

/// A background thread finds nothing to do, but for looking once at what came last.
fn leaves_nobody_busy(store: &Store) {
    let failed = (0..4).filter(|_| store.settle_when_due(Duration::from_millis(2)).is_err());
    assert!(failed.count() <= 1, "a background thread tries again and again");
}

/// All that holds once settling has failed, and then after another open.
fn check_failed(
    device: &FaultyDevice,
    store: Store,
    world: &World,
    (tree, flushed): (Tree, bool),
    seed: u64,
) {
    device.set_plan(FaultPlan { seed, ..FaultPlan::default() });
    assert!(store.read_only().is_some());
    let changes = device.changes();
    let histories = world.histories().clone();
    let space = store.space();
    refuses_changes(&store, &histories);
    reads_what_was_written(&store, &histories, tree);
    leaves_nobody_busy(&store);
    if flushed {
        assert_eq!(store.wait_for_dirty(Duration::ZERO), 0, "what is durable is not dirty");
    }
    assert_eq!(store.space(), space);
    reads_what_was_written(&store, &histories, tree);
    if seed % 2 == 0 {
        device.crash();
    }
    drop(store);
    assert_eq!(device.changes(), changes, "nothing is written any more");
    let image = if seed % 2 == 0 { device.survivor(seed) } else { device.live() };
    survive(&Picture { change: changes, seed, image, histories }, &options(), MIX);
}

/// Those who settle.
#[derive(Clone, Copy, Debug)]
enum Settler {
    Background,
    FlushAll,
    Copy,
    Clock,
    Checkpoint,
    /// Whose own answer does not depend on it.
    Space,
}

const SETTLERS: [Settler; 6] = [
    Settler::Background,
    Settler::FlushAll,
    Settler::Copy,
    Settler::Clock,
    Settler::Checkpoint,
    Settler::Space,
];

/// Has the backlog settled; the model is told of what may have been made.
fn settle(by: Settler, world: &mut World, store: &Store) -> Result<(), StoreError> {
    match by {
        Settler::Background => store.settle_when_due(PATIENCE),
        Settler::FlushAll => world.flush_all(store),
        Settler::Copy => {
            world.mix.objects = usize::MAX;
            world.copy(store)
        }
        Settler::Clock => store.set_clock(store.clock()),
        Settler::Checkpoint => store.checkpoint(),
        Settler::Space => {
            store.space();
            store.read_only().map_or(Ok(()), |why| Err(StoreError::ReadOnly(why.to_owned())))
        }
    }
}

fn assert_told(error: &StoreError) {
    let known = matches!(error, StoreError::Medium(_) | StoreError::ReadOnly(_));
    assert!(known, "{error:?}");
}

/// A drive with a backlog, before anything fails.
fn started(
    (image, histories): &(Image, Histories),
    seed: u64,
    all: bool,
) -> (Arc<FaultyDevice>, Store, World) {
    let (device, store) = reopen(image, &options());
    let mut world = World::new(histories.clone(), seed, MIX);
    queue_up(&mut world, &store, all);
    assert_eq!(store.read_only(), None);
    (device, store, world)
}

/// Reads, writes and syncs that settling takes when nothing fails.
fn count(prepared: &(Image, Histories), seed: u64, all: bool, by: Settler) -> [u64; 3] {
    let (device, store, mut world) = started(prepared, seed, all);
    let done = || [device.reads(), device.writes(), device.syncs()];
    let before = done();
    settle(by, &mut world, &store).unwrap();
    let after = done();
    [0, 1, 2].map(|kind| after[kind] - before[kind])
}

#[test]
fn a_tree_that_cannot_be_read_costs_nothing_that_was_durable() {
    let mut failed = 0;
    for seed in seeds(500) {
        let prepared = prepared(seed);
        for (by, all) in SETTLERS.into_iter().zip([true, false].into_iter().cycle()) {
            let [reads, ..] = count(&prepared, seed, all, by);
            assert!(reads > 3, "{by:?} reads {reads} times");
            for at in numbers(reads, 4, seed) {
                println!("seed {seed}, {by:?}, read {at} of {reads}");
                let (device, store, mut world) = started(&prepared, seed, all);
                let failing_reads = vec![device.reads() + at];
                device.set_plan(FaultPlan { failing_reads, ..FaultPlan::default() });
                match settle(by, &mut world, &store) {
                    Err(error) => assert_told(&error),
                    // What failed was none of the tree's.
                    Ok(()) => continue,
                }
                failed += 1;
                if store.read_only().is_none() {
                    // That was before it came to settling.
                    store.settle_when_due(PATIENCE).unwrap_err();
                }
                check_failed(&device, store, &world, (Tree::Gone, all), seed + at);
            }
        }
    }
    assert!(failed > 30, "{failed}");
}

#[test]
fn a_tree_that_cannot_be_made_durable_costs_nothing_that_was() {
    for seed in seeds(600) {
        let prepared = prepared(seed);
        for (by, all) in [(Settler::Checkpoint, true), (Settler::Checkpoint, false)] {
            let [_, writes, syncs] = count(&prepared, seed, all, by);
            assert!(writes > 3 && syncs > 0, "{writes} writes, {syncs} syncs");
            let fails = |plan: FaultPlan, at: u64| {
                println!("seed {seed}, {plan:?}");
                let (device, store, mut world) = started(&prepared, seed, all);
                let behind =
                    |numbers: &[u64], done: u64| numbers.iter().map(|n| n + done).collect();
                device.set_plan(FaultPlan {
                    failing_writes: behind(&plan.failing_writes, device.writes()),
                    failing_syncs: behind(&plan.failing_syncs, device.syncs()),
                    ..plan
                });
                assert_told(&settle(by, &mut world, &store).unwrap_err());
                check_failed(&device, store, &world, (Tree::Readable, all), seed + at);
            };
            for at in numbers(writes, 6, seed) {
                let partial_writes = at % 2 == 0;
                let failing_writes = vec![at];
                fails(
                    FaultPlan { failing_writes, partial_writes, seed, ..FaultPlan::default() },
                    at,
                );
            }
            for at in 0..syncs {
                for failed_sync in [FailedSync::Keeps, FailedSync::Drops, FailedSync::DropsUnseen] {
                    let failing_syncs = vec![at];
                    fails(
                        FaultPlan { failing_syncs, failed_sync, seed, ..FaultPlan::default() },
                        at,
                    );
                }
            }
        }
    }
}

/// A flush that fails leaves the entries before it where they are, and nobody applies them any more.
#[test]
fn a_flush_that_fails_leaves_what_waits_to_be_settled() {
    for seed in seeds(700) {
        let prepared = prepared(seed);
        let [log, ..] = places(&prepared.0);
        for syncing in [false, true] {
            println!("seed {seed}, syncing {syncing}");
            let (device, store, world) = started(&prepared, seed, true);
            let name = world.histories().living()[0];
            change(&world, &store, name, 7);
            let failing_syncs = if syncing { vec![device.syncs()] } else { Vec::new() };
            let unwritable = if syncing { 0..0 } else { log.clone() };
            device.set_plan(FaultPlan { failing_syncs, unwritable, ..FaultPlan::default() });
            let failed = store.flush(&[name]);
            assert!(matches!(failed, Err(StoreError::Medium(_))), "{failed:?}");
            check_failed(&device, store, &world, (Tree::Readable, false), seed);
        }
    }
}

/// A device whose writes to a place wait there for as long as that is shut.
#[derive(Debug)]
struct Gate {
    inner: FaultyDevice,
    door: Mutex<Door>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Door {
    shut: Range<u64>,
    waiting: usize,
}

impl Gate {
    fn over(image: Image) -> Gate {
        let inner = FaultyDevice::over(image, FaultPlan::default());
        Gate { inner, door: Mutex::default(), moved: Condvar::new() }
    }

    fn shut(&self, place: Range<u64>) {
        self.door.lock().unwrap().shut = place;
        self.moved.notify_all();
    }

    fn wait_for_writer(&self) {
        let door = self.door.lock().unwrap();
        let none = |door: &mut Door| door.waiting == 0;
        let (door, _) = self.moved.wait_timeout_while(door, PATIENCE, none).unwrap();
        assert!(door.waiting > 0, "nobody writes there");
    }

    fn pass(&self, offset: u64) {
        let mut door = self.door.lock().unwrap();
        door.waiting += 1;
        self.moved.notify_all();
        let mut door = self.moved.wait_while(door, |door| door.shut.contains(&offset)).unwrap();
        door.waiting -= 1;
    }
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
        self.pass(offset);
        self.inner.write(offset, from)
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        requests.iter().for_each(|request| self.pass(request.offset));
        self.inner.write_batch(requests)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }
}

/// A flush that is on its way when settling fails is durable all the same, and its entry stays behind
/// those that could not be applied. What those replaced is not free for it.
#[test]
fn a_flush_under_way_while_settling_fails_is_durable() {
    for seed in seeds(800) {
        let (image, histories) = prepared(seed);
        let [log, metadata, data] = places(&image);
        for (length, place) in [(9000, log.clone()), (100_000, log), (100_000, data)] {
            println!("seed {seed}, {length} bytes wait at {place:?}");
            let gate = Arc::new(Gate::over(image.clone()));
            let store = Store::open(gate.clone(), &options()).unwrap();
            let mut world = World::new(histories.clone(), seed, MIX);
            queue_up(&mut world, &store, true);
            let name = world.histories().living()[0];
            let bytes = vec![0x77; length];
            write(&store, name, 0, &bytes).unwrap();
            let before = world.histories().now(name).clone();
            let mut after = before.bytes.to_vec();
            after.resize(after.len().max(length), 0);
            after[..length].copy_from_slice(&bytes);
            gate.shut(place);
            std::thread::scope(|scope| {
                let flush = scope.spawn(|| store.flush(&[name]));
                gate.wait_for_writer();
                let unreadable = metadata.clone();
                gate.inner.set_plan(FaultPlan { unreadable, ..FaultPlan::default() });
                assert_told(&store.settle_when_due(PATIENCE).unwrap_err());
                gate.shut(0..0);
                flush.join().unwrap().unwrap();
            });
            let content = Content { bytes: Arc::new(after), ..before };
            world.histories().objects.insert(name, vec![Some(content)]);
            check_failed(&gate.inner, store, &world, (Tree::Gone, true), seed);
        }
    }
}
