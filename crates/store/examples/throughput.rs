//! What the store costs beside its device:
//! `cargo run --release -p nasd-store --example throughput -- FILE`.
//!
//! Makes two files, FILE and FILE.plain (384 MiB each), and removes them at the end. Plain transfers go
//! to the second through the device crate, the store is on the first. The rounds of a row alternate
//! between the two, and each row shows the median transfer of both, so that a disk whose speed varies
//! favours neither.

mod support;

use std::error::Error;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_device::{BlockDevice, FileDevice, FileOptions, Frame, FramePool};
use nasd_store::{FormatOptions, OpenOptions, Store, WriteData};
use nasd_types::{ByteRange, ObjectName, PartitionId, SetAttributes, Timestamp};

const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 384 * MIB;
/// Size of the objects that are read and of the area that plain transfers use.
const AREA_MIB: u64 = 128;
const ROUNDS: u64 = 8;
const LARGE_PER_ROUND: u64 = 16;
const SMALL_PER_ROUND: u64 = 100;
const PARTITION: PartitionId = PartitionId(1);

type Outcome<T> = Result<T, Box<dyn Error>>;
type Step<'a> = &'a mut dyn FnMut(u64) -> Outcome<()>;

fn main() -> Outcome<()> {
    let file = std::env::args().nth(1).ok_or("usage: throughput FILE")?;
    let paths = [PathBuf::from(&file), PathBuf::from(format!("{file}.plain"))];
    // `create` refuses files that exist, so what is removed below was made here.
    let devices = paths.each_ref().map(|path| filled(path));
    let outcome = match &devices {
        [Ok(store), Ok(plain)] => run(store.clone(), plain.clone()),
        [Err(error), _] | [_, Err(error)] => Err(error.to_string().into()),
    };
    for (path, device) in paths.iter().zip(devices) {
        if device.is_ok() {
            std::fs::remove_file(path)?;
        }
    }
    outcome
}

/// A new file with every block written, because a file system takes longer for the first time.
fn filled(path: &Path) -> Outcome<Arc<dyn BlockDevice>> {
    let options = FileOptions { allow_buffered: true, ..FileOptions::default() };
    let device = FileDevice::create(path, FILE_BYTES, options)?;
    println!("{device:?}");
    let pool = FramePool::new(16)?;
    let mut frames = pool.allocate_many(16).ok_or("no frames")?;
    frames.iter_mut().for_each(|frame| frame.fill(1));
    (0..FILE_BYTES / MIB).try_for_each(|index| write_plain(&device, index * MIB, &frames))?;
    device.sync()?;
    Ok(Arc::new(device))
}

fn write_plain(device: &dyn BlockDevice, offset: u64, frames: &[Frame]) -> Outcome<()> {
    let pieces: Vec<IoSlice<'_>> = frames.iter().map(|frame| IoSlice::new(&frame[..])).collect();
    Ok(device.write(offset, &pieces)?)
}

fn read_plain(device: &dyn BlockDevice, offset: u64, frames: &mut [Frame]) -> Outcome<()> {
    let mut pieces: Vec<IoSliceMut<'_>> =
        frames.iter_mut().map(|frame| IoSliceMut::new(&mut frame[..])).collect();
    Ok(device.read(offset, &mut pieces)?)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn timed(step: Step<'_>, first: u64, count: u64, times: &mut Vec<Duration>) -> Outcome<()> {
    for index in first..first + count {
        let start = Instant::now();
        step(index)?;
        times.push(start.elapsed());
    }
    Ok(())
}

fn show(name: &str, bytes: u64, each: Duration) {
    let speed = bytes as f64 / each.as_secs_f64() / 1e6;
    println!("{name:36} {speed:9.0} MB/s {:10.1} us", each.as_secs_f64() * 1e6);
}

/// One row: the same shape on the plain device and on the store, in alternating rounds.
fn row(name: &str, bytes: u64, count: u64, plain: Step<'_>, store: Step<'_>) -> Outcome<()> {
    let (mut plain_times, mut store_times) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        timed(plain, round * count, count, &mut plain_times)?;
        timed(store, round * count, count, &mut store_times)?;
    }
    let (plain, store) = (median(plain_times), median(store_times));
    show(&format!("{name}: device"), bytes, plain);
    show(&format!("{name}: store"), bytes, store);
    println!("{:36} {:9.2}", "  ratio of speeds", plain.as_secs_f64() / store.as_secs_f64());
    Ok(())
}

/// A block of the area, far from the one before.
fn scattered(index: u64) -> u64 {
    index.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (AREA_MIB * MIB / 4096) * 4096
}

fn options() -> (FormatOptions, OpenOptions) {
    (support::format_options(PARTITION, 0x6c6f_676b), OpenOptions::default())
}

fn create(store: &Store) -> Outcome<ObjectName> {
    let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2))?;
    Ok(ObjectName { partition: PARTITION, object })
}

/// Writes a MiB as a server does: received in place.
fn write_mib(store: &Store, object: ObjectName, index: u64) -> Outcome<()> {
    let mut incoming = store.frames_for_write(index * MIB, MIB as usize)?;
    // What a socket would have put there, at no more than one touch of each frame.
    incoming.io_slices_mut().iter_mut().for_each(|piece| piece[0] = index as u8);
    store.write(object, index * MIB, WriteData::Frames(incoming), Timestamp(3))?;
    Ok(())
}

fn write_small(store: &Store, object: ObjectName, index: u64) -> Outcome<()> {
    store.write(object, index * 4096, WriteData::Slice(&[5; 4096]), Timestamp(4))?;
    Ok(())
}

fn read(store: &Store, object: ObjectName, offset: u64, length: u64) -> Outcome<()> {
    let data = store.read(object, ByteRange::new(offset, length))?;
    if data.len() as u64 == length { Ok(()) } else { Err("a short read".into()) }
}

fn run(device: Arc<dyn BlockDevice>, plain: Arc<dyn BlockDevice>) -> Outcome<()> {
    let (format, open) = options();
    Store::format(device.clone(), &format)?;
    let store = Store::open(device.clone(), &open)?;
    let object = write_rows(&store, &*plain)?;
    store.close()?;
    let store = Store::open(device.clone(), &open)?;
    read_rows(&store, object, &*plain)?;
    drop(store);
    let store = Store::open(device, &open)?;
    small_rows(&store, object, &*plain)?;
    Ok(store.close()?)
}

/// Returns the object that was written.
fn write_rows(store: &Store, plain: &dyn BlockDevice) -> Outcome<ObjectName> {
    let pool = FramePool::new(16)?;
    let frames = pool.allocate_many(16).ok_or("no frames")?;
    // Once around, so that every frame of the cache has been touched before it is timed.
    let scratch = create(store)?;
    (0..open_mib()).try_for_each(|index| write_mib(store, scratch, index % 64))?;
    store.remove(scratch)?;
    store.flush_all()?;
    let object = create(store)?;
    row(
        "write 1 MiB and flush",
        MIB,
        LARGE_PER_ROUND,
        &mut |index| {
            write_plain(plain, index * MIB, &frames)?;
            Ok(plain.sync()?)
        },
        &mut |index| {
            write_mib(store, object, index)?;
            Ok(store.flush(&[object])?)
        },
    )?;
    let burst = create(store)?;
    row(
        "write 16 MiB, then flush",
        LARGE_PER_ROUND * MIB,
        1,
        &mut |_| {
            (0..LARGE_PER_ROUND).try_for_each(|i| write_plain(plain, i * MIB, &frames))?;
            Ok(plain.sync()?)
        },
        &mut |_| {
            (0..LARGE_PER_ROUND).try_for_each(|i| write_mib(store, burst, i))?;
            Ok(store.flush(&[burst])?)
        },
    )?;
    store.remove(burst)?;
    Ok(object)
}

fn open_mib() -> u64 {
    OpenOptions::default().cache_bytes as u64 / MIB
}

fn read_rows(store: &Store, object: ObjectName, plain: &dyn BlockDevice) -> Outcome<()> {
    let pool = FramePool::new(16)?;
    let mut frames = pool.allocate_many(16).ok_or("no frames")?;
    row(
        "read 1 MiB, cold",
        MIB,
        LARGE_PER_ROUND,
        &mut |index| read_plain(plain, index * MIB, &mut frames),
        &mut |index| read(store, object, index * MIB, MIB),
    )?;
    for (name, bytes) in [("read 1 MiB, cached: store", MIB), ("read 4 KiB, cached: store", 4096)] {
        let mut times = Vec::new();
        let step: Step<'_> = &mut |index| read(store, object, index % 64 * bytes, bytes);
        timed(step, 0, 100_000, &mut times)?;
        show(name, bytes, median(times));
    }
    Ok(())
}

fn small_rows(store: &Store, object: ObjectName, plain: &dyn BlockDevice) -> Outcome<()> {
    let pool = FramePool::new(1)?;
    let mut frame = pool.allocate().ok_or("no frames")?;
    row(
        "read 4 KiB, scattered and cold",
        4096,
        SMALL_PER_ROUND,
        &mut |index| {
            let into = &mut [IoSliceMut::new(&mut frame[..4096])];
            Ok(plain.read(scattered(index), into)?)
        },
        &mut |index| read(store, object, scattered(index), 4096),
    )?;
    let small = create(store)?;
    row(
        "write 4 KiB and flush",
        4096,
        SMALL_PER_ROUND,
        &mut |index| {
            plain.write(index * 4096, &[IoSlice::new(&frame[..4096])])?;
            Ok(plain.sync()?)
        },
        &mut |index| {
            write_small(store, small, index)?;
            Ok(store.flush(&[small])?)
        },
    )?;
    let mut times = Vec::new();
    timed(&mut |index| write_small(store, small, index % 16), 0, 100_000, &mut times)?;
    show("write 4 KiB, cached: store", 4096, median(times));
    let mut times = Vec::new();
    timed(&mut |_| create(store).map(|_| ()), 0, 5000, &mut times)?;
    show("create: store", 0, median(times));
    Ok(())
}
