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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::*;
use nasd_device::{
    BlockDevice, DeviceError, FailedSync, FaultPlan, FaultyDevice, Image, WriteRequest,
};
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoreError};
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
    prepared_with(seed, None)
}

fn prepared_with(seed: u64, metadata_bytes: Option<u64>) -> (Image, Histories) {
    let format = FormatOptions { metadata_bytes, ..format_options() };
    let (image, histories) = formatted(CAPACITY, &format);
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
    let sure = histories.objects.iter().filter(|(name, _)| !histories.unsure.contains(name));
    for (name, states) in sure {
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
    if seed.is_multiple_of(2) {
        device.crash();
    }
    drop(store);
    assert_eq!(device.changes(), changes, "nothing is written any more");
    let image = if seed.is_multiple_of(2) { device.survivor(seed) } else { device.live() };
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
            world.copy_as(store, None)
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
                if store.read_only().is_none() && store.settle_when_due(PATIENCE).is_ok() {
                    // That was when all was settled.
                    continue;
                }
                failed += 1;
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

/// Has the cache give up whatever it can.
fn press(store: &Store) {
    let mut held = Vec::new();
    loop {
        match store.frames_for_write(0, 4 << 16) {
            Ok(frames) => held.push(frames),
            Err(StoreError::Busy) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(!held.is_empty());
}

/// Nothing but the cache has what was flushed and can't be settled, so it is read from there however much
/// else the cache is wanted for.
#[test]
fn what_cannot_be_settled_stays_in_the_cache() {
    for seed in seeds(1200) {
        let (image, histories) = prepared(seed);
        let options = OpenOptions { buffer_patience: Duration::from_millis(50), ..options() };
        let (device, store) = reopen(&image, &options);
        let mut world = World::new(histories, seed, MIX);
        queue_up(&mut world, &store, true);
        let mut names = Vec::new();
        for number in 0..9 {
            // On top of each other, and behind what there is.
            let name = world.histories().living()[number % 4];
            change(&world, &store, name, number as u8);
            store.flush(&[name]).unwrap();
            world.histories().durable(name);
            names.push(name);
        }
        let [_, unreadable, _] = places(&image);
        device.set_plan(FaultPlan { unreadable, ..FaultPlan::default() });
        assert_told(&store.settle_when_due(PATIENCE).unwrap_err());
        press(&store);
        for name in names {
            let found = store.read(name, ByteRange::new(0, 5000)).unwrap().to_vec();
            assert!(found == world.histories().now(name).bytes[..5000], "{name}");
        }
        check_failed(&device, store, &world, (Tree::Gone, true), seed);
    }
}

/// A change that reads the tree for its answer does so before it is made.
#[test]
fn a_change_that_says_that_it_failed_was_not_made() {
    let (image, histories) = prepared(1100);
    let family: Vec<ObjectName> = histories
        .living()
        .into_iter()
        .filter(|name| {
            histories.now(*name).copied.0 != 0 && histories.now(*name).bytes.len() > 9000
        })
        .collect();
    let punch = |store: &Store, name| store.punch(name, ByteRange::new(0, 9000), Timestamp(9));
    let version = SetAttributes { access_control_version: Some(1 << 40), ..Default::default() };
    let (mut failed, mut made) = (0, 0);
    for (index, name) in family.iter().copied().enumerate() {
        for at in [0, 1, 2, 5, 30] {
            let (device, store) = reopen(&image, &options());
            // It is in memory, and the tree is not.
            let before = read_object(&store, name).unwrap().unwrap();
            let failing_reads = vec![device.reads() + at];
            device.set_plan(FaultPlan { failing_reads, ..FaultPlan::default() });
            let outcome = match index % 2 {
                0 => store.setattr(name, &version, Timestamp(9)),
                _ => punch(&store, name),
            };
            let now = store.access_control_version(name).unwrap();
            // Holes are looked for in the tree.
            let data = store.read(name, ByteRange::new(0, 9000)).map(|data| data.to_vec());
            let data = data.inspect_err(assert_told).ok();
            if outcome.is_err() {
                failed += 1;
                assert_eq!(now, Some(before.version), "{name}");
                assert!(data.is_none_or(|data| data == before.bytes[..9000]), "{name}");
            } else {
                made += 1;
                let is_set = now == version.access_control_version;
                assert!(is_set || data.is_none_or(|data| data == [0; 9000]), "{name}");
            }
        }
    }
    assert!(failed > 0 && made > 0, "{failed} failed, {made} were made");
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

/// A flush that compresses settles itself; what it made durable is there although it says that it failed.
#[test]
fn a_flush_that_compresses_and_cannot_settle_loses_nothing() {
    for seed in seeds(900) {
        let (image, histories) = prepared(seed);
        let started = || {
            let (device, store) = reopen(&image, &options());
            compress(&store, Compression::Lz4);
            let mut world = World::new(histories.clone(), seed, MIX);
            queue_up(&mut world, &store, true);
            (0..10).for_each(|_| world.write(&store).unwrap());
            let names = world.histories().living();
            (device, store, world, names)
        };
        let (device, store, _, names) = started();
        let before = device.reads();
        store.flush(&names).unwrap();
        let reads = device.reads() - before;
        for at in numbers(reads, 5, seed) {
            println!("seed {seed}, read {at} of {reads}");
            let (device, store, world, names) = started();
            let failing_reads = vec![device.reads() + at];
            device.set_plan(FaultPlan { failing_reads, ..FaultPlan::default() });
            assert_told(&store.flush(&names).unwrap_err());
            if store.read_only().is_none() {
                store.settle_when_due(PATIENCE).unwrap_err();
            }
            check_failed(&device, store, &world, (Tree::Gone, false), seed + at);
        }
    }
}

/// What does not fit the log is durable only with the tree.
#[test]
fn a_flush_too_large_for_the_log_fails_with_the_tree() {
    let seed = 1000;
    let prepared = prepared_with(seed, Some(16 << 20));
    let begun = || {
        let (device, store, world) = started(&prepared, seed, true);
        for _ in 0..1500 {
            let name = create(&store, P1);
            world.histories().change(name, Some(Content::empty()));
        }
        (device, store, world)
    };
    let (device, store, _) = begun();
    let before = (device.reads(), device.writes(), device.syncs(), store.statistics().log_entries);
    store.flush_all().unwrap();
    assert_eq!(store.statistics().log_entries, before.3, "the log has it");
    let [reads, writes, syncs] =
        [device.reads() - before.0, device.writes() - before.1, device.syncs() - before.2];
    let of = |end: u64, kind: usize| numbers(end, 6, seed).map(move |at| (kind, at));
    for (kind, at) in of(reads, 0).chain(of(writes, 1)).chain(of(syncs, 2)) {
        println!("{} {at} of {reads}, {writes}, {syncs}", ["read", "write", "sync"][kind]);
        let (device, store, world) = begun();
        let fails = |which: usize, done: u64| if kind == which { vec![done + at] } else { vec![] };
        device.set_plan(FaultPlan {
            failing_reads: fails(0, device.reads()),
            failing_writes: fails(1, device.writes()),
            failing_syncs: fails(2, device.syncs()),
            failed_sync: FailedSync::Drops,
            ..FaultPlan::default()
        });
        assert_told(&store.flush_all().unwrap_err());
        if store.read_only().is_none() {
            store.settle_when_due(PATIENCE).unwrap_err();
        }
        let tree = if kind == 0 { Tree::Gone } else { Tree::Readable };
        check_failed(&device, store, &world, (tree, false), seed + at);
    }
}

const WORKERS: u32 = 4;

/// Stops the others, however its owner ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The histories of a worker's own partition.
fn own(histories: &Histories, partition: PartitionId) -> Histories {
    let mut own = histories.clone();
    own.partitions.retain(|id, _| *id == partition);
    own.objects.retain(|name, _| name.partition == partition);
    own
}

/// Works in a partition of its own until the store takes no more changes, and counts what it did.
fn work(store: &Store, histories: Histories, seed: u64, done: &AtomicU64) -> Histories {
    let mut world = World::new(histories, seed, Mix { compare: true, objects: 20, ..MIX });
    let mut refused = 0;
    let begun = Instant::now();
    // Who is sure of no object any more has been refused often enough.
    while refused < 20 && !world.is_at_a_loss() {
        assert!(begun.elapsed() < 4 * PATIENCE, "the store goes on");
        match world.step(store) {
            Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
            Err(error) => {
                assert_told(&error);
                refused += usize::from(matches!(error, StoreError::ReadOnly(_)));
            }
        }
    }
    world.histories().clone()
}

/// Many flush at once, and share flushes, when settling fails.
fn fail_under_work(image: &Image, histories: &Histories, seed: u64, plan: FaultPlan) {
    let (device, store) = reopen(image, &options());
    let stop = AtomicBool::new(false);
    let done: [AtomicU64; WORKERS as usize] = Default::default();
    let kept_tree = plan.unreadable.is_empty();
    let mut all = histories.clone();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=WORKERS)
            .map(|id| {
                let (own, store) = (own(histories, PartitionId(id)), &store);
                let done = &done[id as usize - 1];
                scope.spawn(move || work(store, own, seed * 10 + u64::from(id), done))
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Told to those who want changes.
                let _ = store.settle_when_due(Duration::from_millis(1));
                let _ = store.write_back(1 << 20);
            }
        });
        let _ended = Stop(&stop);
        // Each has objects by then, however slow the machine is.
        let enough = 100 + seed * 50;
        let is_early =
            |id: usize| done[id].load(Ordering::Relaxed) < enough && !workers[id].is_finished();
        while (0..workers.len()).any(is_early) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let failing_syncs = plan.failing_syncs.iter().map(|at| at + device.syncs()).collect();
        device.set_plan(FaultPlan { failing_syncs, ..plan });
        for worker in workers {
            let one = worker.join().unwrap();
            all.objects.extend(one.objects);
            all.copies.extend(one.copies);
            all.unsure.extend(one.unsure);
        }
    });
    let world = World::new(all, seed, MIX);
    let tree = if kept_tree { Tree::Readable } else { Tree::Gone };
    check_failed(&device, store, &world, (tree, false), seed);
}

#[test]
fn those_who_flush_at_once_lose_nothing_that_was_answered() {
    let mut format = format_options();
    format.partitions = (1..=WORKERS)
        .map(|id| PartitionFormat { id: PartitionId(id), ..format.partitions[0].clone() })
        .collect();
    let (image, histories) = formatted(CAPACITY, &format);
    let [_, metadata, _] = places(&image);
    for seed in 0..if long_tests() { 100 } else { 8 } {
        println!("seed {seed}");
        let unreadable = metadata.clone();
        fail_under_work(&image, &histories, seed, FaultPlan { unreadable, ..FaultPlan::default() });
        let unwritable = metadata.clone();
        fail_under_work(&image, &histories, seed, FaultPlan { unwritable, ..FaultPlan::default() });
        let plan = FaultPlan { failing_syncs: vec![seed % 5], seed, ..FaultPlan::default() };
        let failed_sync = FailedSync::Drops;
        fail_under_work(&image, &histories, seed, FaultPlan { failed_sync, ..plan });
    }
}

/// A drive with very many objects.
fn crowded() -> (Image, Vec<ObjectName>) {
    let format = FormatOptions { metadata_bytes: Some(256 << 20), ..format_options() };
    let (image, _) = formatted(1 << 30, &format);
    let (device, store) = reopen(&image, &crowded_options());
    let names: Vec<ObjectName> = (0..60_000).map(|_| create(&store, P1)).collect();
    store.close().unwrap();
    (device.live(), names)
}

fn crowded_options() -> OpenOptions {
    OpenOptions { metadata_cache_bytes: 1 << 20, ..small_cache(400) }
}

fn set_version(store: &Store, name: ObjectName, version: u64) {
    let access_control_version = Some(version);
    let changes = SetAttributes { access_control_version, ..SetAttributes::default() };
    store.setattr(name, &changes, Timestamp(6)).unwrap();
}

fn version(store: &Store, name: ObjectName) -> Option<u64> {
    store.access_control_version(name).unwrap()
}

/// So much of the tree changes that some of it leaves memory before a checkpoint.
fn change_many(store: &Store, names: &[ObjectName]) {
    let changed: Vec<ObjectName> = names.iter().copied().step_by(5).collect();
    for part in changed.chunks(2000) {
        part.iter().for_each(|name| set_version(store, *name, 5));
        store.flush(part).unwrap();
    }
}

/// That the tree can't be written is told before the log is full of what can't be brought into it.
#[test]
fn a_tree_that_cannot_leave_memory_takes_no_more_changes() {
    let (image, names) = crowded();
    let (device, store) = reopen(&image, &crowded_options());
    change_many(&store, &names);
    let [_, unwritable, _] = places(&image);
    let checkpoints = store.statistics().checkpoints;
    device.set_plan(FaultPlan { unwritable, ..FaultPlan::default() });
    assert_told(&store.settle_when_due(PATIENCE).unwrap_err());
    assert_eq!(store.statistics().checkpoints, checkpoints);
    assert_read_only(store.flush(&names[..1]));
    assert_read_only(write(&store, names[1], 0, b"x"));
    let check = |store: &Store| {
        for (number, name) in names.iter().enumerate() {
            assert_eq!(version(store, *name), Some(if number % 5 == 0 { 5 } else { 0 }), "{name}");
        }
    };
    device.set_plan(FaultPlan::default());
    let changes = device.changes();
    check(&store);
    drop(store);
    assert_eq!(device.changes(), changes, "nothing is written any more");
    let image = device.live();
    assert_clean(&image, "after the tree could not be written");
    let (_, store) = reopen(&image, &crowded_options());
    check(&store);
}

/// Pages of the tree that left memory early may be lost with any sync that fails; they are not read then.
#[test]
fn what_left_memory_is_not_read_after_a_sync_that_failed() {
    let (image, names) = crowded();
    let (device, store) = reopen(&image, &crowded_options());
    change_many(&store, &names);
    store.settle_when_due(PATIENCE).unwrap();
    set_version(&store, names[0], 7);
    let (failing_syncs, failed_sync) = (vec![device.syncs()], FailedSync::Drops);
    device.set_plan(FaultPlan { failing_syncs, failed_sync, ..FaultPlan::default() });
    assert_told(&store.flush(&names[..1]).unwrap_err());
    let mut refused = 0;
    for (number, name) in names.iter().enumerate().skip(1) {
        match store.access_control_version(*name) {
            Ok(found) => assert_eq!(found, Some(if number % 5 == 0 { 5 } else { 0 }), "{name}"),
            Err(error) => {
                assert_told(&error);
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "nothing had left");
    drop(store);
    let image = device.live();
    assert_clean(&image, "after a sync failed");
    let (_, store) = reopen(&image, &crowded_options());
    assert_eq!(version(&store, names[5]), Some(5));
}
