//! A disk with an arm that serves many commands, in the order in which it gets to them.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nasd_device::{
    AlignedBuffer, BlockDevice, DeviceError, FaultPlan, FaultyDevice, FramePool, FrameRead,
    MemoryDevice, ReadEnd, ReadPart, ReadQueue, ReadRequest, SeekModel, SeekStatistics,
    SeekingDevice, WriteRequest,
};

const GIB: u64 = 1 << 30;
const CAPACITY: u64 = 64 * GIB;
const SECTOR: usize = 4096;
/// What nobody waits for comes by then on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A disk that sleeps, but not for long.
const QUICK: SeekModel = SeekModel {
    revolution: Duration::from_micros(400),
    shortest_seek: Duration::from_micros(40),
    longest_seek: Duration::from_micros(800),
    overhead: Duration::from_micros(10),
    ..SeekModel::DISK_7200.sleeping()
};

type Disk = SeekingDevice<MemoryDevice>;

fn disk(model: SeekModel) -> Disk {
    SeekingDevice::new(MemoryDevice::new(CAPACITY).unwrap(), model)
}

/// Offsets all over the device, aligned to a sector.
fn scattered(seed: u64, count: usize) -> Vec<u64> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (state >> 20) % (CAPACITY / SECTOR as u64) * SECTOR as u64
    };
    (0..count).map(|_| draw()).collect()
}

fn begin(queue: &mut dyn ReadQueue, pool: &FramePool, tag: usize, offset: u64) {
    let parts = vec![ReadPart { offset, range: 0..SECTOR }];
    queue.begin(FrameRead { tag, frame: pool.allocate().unwrap(), parts });
}

fn read(device: &dyn BlockDevice, offset: u64) -> Result<AlignedBuffer, DeviceError> {
    let mut buffer = AlignedBuffer::zeroed(SECTOR);
    device.read(offset, &mut [IoSliceMut::new(&mut buffer)]).map(|()| buffer)
}

fn write(device: &dyn BlockDevice, offset: u64, byte: u8) {
    let mut buffer = AlignedBuffer::zeroed(SECTOR);
    buffer.fill(byte);
    device.write(offset, &[IoSlice::new(&buffer)]).unwrap();
}

fn outcomes(ends: impl IntoIterator<Item = ReadEnd>) -> BTreeMap<usize, Result<(), DeviceError>> {
    ends.into_iter().map(|end| (end.tag, end.outcome)).collect()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_reads_together_take_less_than_half_as_long_as_one_by_one() {
    let pool = FramePool::new(32).unwrap();
    let (single, together) = (disk(SeekModel::DISK_7200), disk(SeekModel::DISK_7200));
    let mut queue = together.read_queue();
    let mut ends = Vec::new();
    for (tag, offset) in scattered(1, 320).into_iter().enumerate() {
        read(&single, offset).unwrap();
        if queue.under_way() == 32 {
            assert_eq!(queue.ended(0).len(), 0, "no time has passed");
            ends.extend(outcomes(queue.ended(1)));
        }
        begin(&mut *queue, &pool, tag, offset);
    }
    ends.extend(outcomes(queue.ended(32)));
    assert!(ends.len() == 320 && ends.iter().all(|(_, outcome)| outcome.is_ok()));
    assert!(together.has_deep_queue() && together.statistics().transfers == 320);
    let (single, together) = (single.elapsed(), together.elapsed());
    assert!(together * 2 < single, "{together:?} and {single:?}");
}

#[test]
fn a_disk_that_knows_one_command_serves_them_as_they_come() {
    let pool = FramePool::new(32).unwrap();
    let model = SeekModel { commands: 1, ..SeekModel::DISK_7200 };
    let (single, queued) = (disk(model), disk(model));
    let mut queue = queued.read_queue();
    for (tag, offset) in scattered(2, 32).into_iter().enumerate() {
        read(&single, offset).unwrap();
        begin(&mut *queue, &pool, tag, offset);
    }
    for tag in 0..32 {
        let [end] = &queue.ended(1)[..] else { panic!("one at a time") };
        assert_eq!(end.tag, tag);
    }
    assert_eq!(single.statistics(), queued.statistics());
}

#[test]
fn nobody_waits_for_ever_while_others_are_nearer() {
    let pool = FramePool::new(16).unwrap();
    let device = disk(SeekModel::DISK_7200);
    let (mut far, mut near) = (device.read_queue(), device.read_queue());
    read(&device, 0).unwrap();
    begin(&mut *far, &pool, 0, CAPACITY / 2);
    let mut begun = 0;
    // There is always one that goes on where the head is.
    while device.statistics().seeks < 2 {
        while near.under_way() < 8 {
            begun += 1;
            begin(&mut *near, &pool, begun, begun as u64 * SECTOR as u64);
        }
        assert!(!near.ended(1).is_empty());
        assert!(device.elapsed() < Duration::from_secs(2), "one waits after {begun} others");
    }
    assert!(begun > 100, "those that are nearer come first: {begun}");
    assert_eq!(far.ended(1).len(), 1);
}

#[test]
fn adjacent_reads_need_one_seek_whatever_their_order() {
    let pool = FramePool::new(16).unwrap();
    let device = disk(SeekModel::DISK_7200);
    let mut queue = device.read_queue();
    let at = |number: u64| GIB + number * SECTOR as u64;
    begin(&mut *queue, &pool, 0, at(0));
    assert_eq!(queue.ended(1).len(), 1);
    for number in [3, 1, 4, 2] {
        begin(&mut *queue, &pool, number, at(number as u64));
    }
    // Parts of one read are commands of their own.
    let parts = (5..8).map(|number| ReadPart { offset: at(number), range: 0..SECTOR });
    let parts = parts
        .zip([0, 8192, 16384])
        .map(|(part, start)| ReadPart { range: start..start + SECTOR, ..part });
    queue.begin(FrameRead { tag: 9, frame: pool.allocate().unwrap(), parts: parts.collect() });
    assert_eq!(queue.ended(5).len(), 5);
    let SeekStatistics { transfers, seeks, .. } = device.statistics();
    assert_eq!((transfers, seeks), (8, 1));
}

/// Reads of two queues, with writes, batches and syncs in between.
fn mix(device: &Disk, pool: &FramePool) -> Vec<usize> {
    let (mut one, mut other) = (device.read_queue(), device.read_queue());
    let mut order = Vec::new();
    for (round, offsets) in scattered(3, 400).chunks(8).enumerate() {
        begin(&mut *one, pool, 2 * round, offsets[0]);
        begin(&mut *other, pool, 2 * round + 1, offsets[1]);
        write(device, offsets[2], 1);
        let mut buffers = AlignedBuffer::zeroed(4 * SECTOR);
        let (first, second) = buffers.split_at_mut(2 * SECTOR);
        let into = |bytes| vec![IoSliceMut::new(bytes)];
        let first = ReadRequest { offset: offsets[3] & !8191, into: into(first) };
        let second = ReadRequest { offset: offsets[4] & !8191, into: into(second) };
        device.read_batch(&mut [first, second]).unwrap();
        order.extend(one.ended(round % 2).into_iter().map(|end| end.tag));
        device.sync().unwrap();
        let from = |at: usize| vec![IoSlice::new(&buffers[at * SECTOR..][..SECTOR])];
        let requests = [5, 6].map(|at| WriteRequest { offset: offsets[at], from: from(at - 5) });
        let mut calls = 0;
        device.write_batch_with(&requests, &mut |_| calls += 1).unwrap();
        assert_eq!(calls, 1);
        order.extend(other.ended(usize::from(round % 5 == 0)).into_iter().map(|end| end.tag));
    }
    order.extend(one.ended(usize::MAX).into_iter().map(|end| end.tag));
    order.extend(other.ended(usize::MAX).into_iter().map(|end| end.tag));
    order
}

#[test]
fn counted_time_and_order_are_the_same_in_every_run() {
    let pool = FramePool::new(200).unwrap();
    let run = || {
        let device = disk(SeekModel::DISK_7200);
        (mix(&device, &pool), device.statistics())
    };
    let (order, statistics) = run();
    assert_eq!((order.clone(), statistics), run());
    assert_eq!((statistics.transfers, statistics.syncs), (50 * 7, 50));
    let mut sorted = order;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..100), "each read ends once");
}

#[test]
fn a_queue_that_is_dropped_waits_for_what_the_disk_knows() {
    let pool = FramePool::new(40).unwrap();
    for model in [SeekModel::DISK_7200, QUICK] {
        let device = disk(model);
        let mut other = device.read_queue();
        begin(&mut *other, &pool, 0, GIB);
        let mut queue = device.read_queue();
        for (tag, offset) in scattered(4, 39).into_iter().enumerate() {
            begin(&mut *queue, &pool, tag, offset);
        }
        drop(queue);
        assert_eq!(pool.free_frames(), 39, "all but the other's");
        let SeekStatistics { transfers, .. } = device.statistics();
        // Some of 39 have not even been told to the disk; where time passes, more may have been. The
        // other's may be served last.
        assert!((31..=40).contains(&transfers), "{transfers}");
        assert!(model.sleeps || transfers <= 32);
        assert_eq!(other.ended(1).len(), 1);
    }
}

#[test]
fn a_read_that_fails_is_told_and_takes_no_time() {
    let pool = FramePool::new(8).unwrap();
    for model in [SeekModel::DISK_7200, QUICK] {
        let inner = FaultyDevice::zeroed(1 << 20);
        let unreadable = 4096..8192;
        inner.set_plan(FaultPlan { unreadable, ..FaultPlan::default() });
        let device = SeekingDevice::new(inner, model);
        let mut queue = device.read_queue();
        for (tag, offset) in [8192, 4096, 0, 1 << 20, u64::MAX - 4095, 17].into_iter().enumerate() {
            begin(&mut *queue, &pool, tag, offset);
        }
        let mut all = BTreeMap::new();
        while queue.under_way() > 0 {
            all.extend(outcomes(queue.ended(1)));
        }
        let fail: Vec<bool> = all.into_values().map(|outcome| outcome.is_err()).collect();
        assert_eq!(fail, [false, true, false, true, true, true]);
        assert_eq!(device.statistics().transfers, 2);
        read(&device, 4096).unwrap_err();
        let buffer = AlignedBuffer::zeroed(SECTOR);
        let bad = [WriteRequest { offset: 1 << 20, from: vec![IoSlice::new(&buffer)] }];
        device.write_batch(&bad).unwrap_err();
        device.write_batch_with(&bad, &mut |_| ()).unwrap_err();
        assert_eq!(device.statistics().transfers, 2);
    }
}

#[test]
fn a_panic_while_writes_are_under_way_leaves_a_disk_that_works() {
    for model in [SeekModel::DISK_7200, QUICK] {
        let device = disk(model);
        let buffer = AlignedBuffer::zeroed(SECTOR);
        let write = [WriteRequest { offset: GIB, from: vec![IoSlice::new(&buffer)] }];
        let panics = || device.write_batch_with(&write, &mut |_| panic!("planned"));
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        read(&device, 0).unwrap();
    }
}

#[test]
fn reads_go_on_while_their_owner_does_something_else() {
    let pool = FramePool::new(64).unwrap();
    let device = disk(SeekModel::DISK_7200.sleeping());
    let offsets = scattered(5, 20);
    offsets.iter().zip(1..).for_each(|(&offset, byte)| write(device.inner(), offset, byte));
    let mut queue = device.read_queue();
    let begun = Instant::now();
    for (tag, &offset) in offsets.iter().enumerate() {
        begin(&mut *queue, &pool, tag, offset);
    }
    wait_until("nobody waits, and they end", || device.statistics().transfers == 20);
    assert!(begun.elapsed() >= device.elapsed(), "time passes really");
    let ends = queue.ended(0);
    assert_eq!((ends.len(), queue.under_way()), (20, 0));
    for end in ends {
        assert_eq!((end.frame[0], end.frame[SECTOR - 1]), (end.tag as u8 + 1, end.tag as u8 + 1));
        end.outcome.unwrap();
    }
}

#[test]
fn plain_calls_of_others_have_their_turn_among_reads() {
    let pool = FramePool::new(64).unwrap();
    let device = disk(SeekModel::DISK_7200.sleeping());
    let mut queue = device.read_queue();
    for (tag, offset) in scattered(6, 30).into_iter().enumerate() {
        begin(&mut *queue, &pool, tag, offset);
    }
    std::thread::scope(|scope| {
        // Another thread, while the owner does nothing.
        let plain = scope.spawn(|| {
            write(&device, GIB, 7);
            device.sync().unwrap();
            read(&device, GIB).unwrap()
        });
        assert_eq!(plain.join().unwrap()[0], 7);
    });
    assert_eq!(device.statistics().syncs, 1);
    assert_eq!(outcomes(queue.ended(30)).len(), 30);
    assert_eq!(device.statistics().transfers, 32);
}

#[test]
fn every_thread_gets_its_own_and_none_sleeps_on() {
    let pool = FramePool::new(64).unwrap();
    let device = disk(QUICK);
    let (stop, counted) = (AtomicBool::new(false), 8 * 60 * 3);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            // One who only looks takes nothing from those who wait.
            while !stop.load(Ordering::Relaxed) {
                assert!(device.statistics().transfers <= counted);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        let threads: Vec<_> = (0..8)
            .map(|thread: usize| {
                let (device, pool) = (&device, &pool);
                scope.spawn(move || {
                    let own = thread as u64 * GIB;
                    let mut queue = device.read_queue();
                    for round in 0..60 {
                        let offset = own + (round * 7919 % 1000) * SECTOR as u64;
                        write(device, offset, thread as u8);
                        begin(&mut *queue, pool, 0, offset);
                        if round % 10 == 0 {
                            device.sync().unwrap();
                        }
                        assert_eq!(read(device, offset).unwrap()[0], thread as u8);
                        let ends = queue.ended(1);
                        assert!(ends.len() == 1 && ends[0].frame[0] == thread as u8);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        looking.join().unwrap();
    });
    let SeekStatistics { transfers, syncs, .. } = device.statistics();
    assert_eq!((transfers, syncs), (counted, 8 * 6));
}
