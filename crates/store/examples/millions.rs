//! What two million objects cost: `cargo run --release -p nasd-store --example millions -- FILE [COUNT]`.
//!
//! Makes the file FILE (13 GiB), fills it with small objects, drops the store without closing it and opens
//! it again: once with the end of the fill in its log, and once with changes of objects all over it. Looks every
//! object up, and removes FILE at the end. Prints rates, the time of each open, what a copy of 1 GiB costs,
//! and the most memory that the process had in each phase.

mod support;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_device::{BlockDevice, FileDevice, FileOptions};
use nasd_store::{OpenOptions, Store, WriteData};
use nasd_types::{ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp};

const PARTITION: PartitionId = PartitionId(1);
const FILE_BYTES: u64 = 13 << 30;
/// One in this many objects has a data block of its own, the others have 100 bytes in the tree.
const WITH_BLOCK: u64 = 4;
/// Objects that are created between two flushes.
const BATCH: u64 = 20_000;
/// Objects that are listed at a time.
const LISTED: usize = 10_000;
/// Objects all over the table that are changed before a crash: their records go into the log without a checkpoint.
const SCATTERED: u64 = 50_000;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: millions FILE [COUNT]")?;
    let count = arguments.next().map_or(Ok(2_000_000), |count| count.parse())?;
    let path = Path::new(&file);
    // `create` refuses a file that exists, so what is removed below was made here.
    let options = FileOptions { allow_buffered: true, ..FileOptions::default() };
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(path, FILE_BYTES, options)?);
    println!("{device:?}");
    let outcome = run(&device, count);
    drop(device);
    std::fs::remove_file(path)?;
    outcome
}

fn run(device: &Arc<dyn BlockDevice>, count: u64) -> Outcome<()> {
    format(device)?;
    let options = OpenOptions::default();
    let cache = (options.cache_bytes + options.metadata_cache_bytes) >> 20;
    println!("caches {cache} MiB");
    let store = Store::open(device.clone(), &options)?;
    rates(&store)?;
    let first = fill(&store, count)?;
    copy(&store)?;
    let store = reopen(device, store, "the fill")?;
    look_up(&store)?;
    scatter(&store, first, count)?;
    let store = reopen(device, store, "changes all over")?;
    store.close()?;
    let start = Instant::now();
    let store = Store::open(device.clone(), &options)?;
    println!("open after a close: {:.2} s{}", start.elapsed().as_secs_f64(), peak()?);
    Ok(store.close()?)
}

/// Opens the store as after a crash behind `what`.
fn reopen(device: &Arc<dyn BlockDevice>, store: Store, what: &str) -> Outcome<Store> {
    drop(store);
    peak()?;
    let start = Instant::now();
    let store = Store::open(device.clone(), &OpenOptions::default())?;
    let (seconds, objects) =
        (start.elapsed().as_secs_f64(), store.partition_space(PARTITION)?.objects);
    println!("open after a crash behind {what}: {seconds:.2} s, {objects} objects{}", peak()?);
    Ok(store)
}

/// Asks for the attributes of every object.
fn look_up(store: &Store) -> Outcome<()> {
    let start = Instant::now();
    let (mut from, mut count) = (ObjectId(0), 0);
    loop {
        let found = store.list(PARTITION, from, LISTED)?;
        let Some(last) = found.last() else { break };
        from = ObjectId(last.0 + 1);
        count += found.len() as u64;
        for object in found {
            store.getattr(ObjectName { partition: PARTITION, object })?;
        }
    }
    rate("look up every object", count, start)
}

/// Changes objects all over the table, as many as go into the log without a checkpoint.
fn scatter(store: &Store, first: ObjectId, objects: u64) -> Outcome<()> {
    let step = (objects / SCATTERED).max(1);
    let start = Instant::now();
    for index in 0..objects / step {
        // A prime, so that none comes twice.
        let object = ObjectId(first.0 + (index * 7919 % (objects / step)) * step);
        let object = ObjectName { partition: PARTITION, object };
        let changes =
            SetAttributes { fs_data_modify_time: Some(Timestamp(9)), ..SetAttributes::default() };
        store.setattr(object, &changes, Timestamp(9))?;
        if index % BATCH == BATCH - 1 {
            store.flush_all()?;
        }
    }
    store.flush_all()?;
    rate("set attributes all over", objects / step, start)
}

fn format(device: &Arc<dyn BlockDevice>) -> Outcome<()> {
    let mut options = support::format_options(PARTITION, 7);
    options.metadata_bytes = Some((8 << 30) + 4096);
    Ok(Store::format(device.clone(), &options)?)
}

fn create(store: &Store) -> Outcome<ObjectName> {
    let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2))?;
    Ok(ObjectName { partition: PARTITION, object })
}

fn rate(what: &str, count: u64, start: Instant) -> Outcome<()> {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what}: {count} in {seconds:.2} s, {:.0}/s{}", count as f64 / seconds, peak()?);
    Ok(())
}

/// Creating and removing without a flush in between.
fn rates(store: &Store) -> Outcome<()> {
    const COUNT: u64 = 100_000;
    let start = Instant::now();
    let objects = (0..COUNT).map(|_| create(store)).collect::<Outcome<Vec<_>>>()?;
    rate("create, not flushed", COUNT, start)?;
    let start = Instant::now();
    objects.iter().try_for_each(|object| store.remove(*object))?;
    rate("remove what was not flushed", COUNT, start)?;
    let objects = (0..COUNT).map(|_| create(store)).collect::<Outcome<Vec<_>>>()?;
    let start = Instant::now();
    store.flush_all()?;
    rate("one flush of created", COUNT, start)?;
    let start = Instant::now();
    objects.iter().try_for_each(|object| store.remove(*object))?;
    rate("remove what was flushed", COUNT, start)?;
    let start = Instant::now();
    store.flush_all()?;
    rate("one flush of removed", COUNT, start)
}

fn fill(store: &Store, count: u64) -> Outcome<ObjectId> {
    let start = Instant::now();
    let mut first = None;
    for index in 0..count {
        let object = create(store)?;
        first.get_or_insert(object.object);
        let length = if index % WITH_BLOCK == 0 { 3000 } else { 100 };
        let bytes = [index as u8 | 1; 3000];
        store.write(object, 0, WriteData::Slice(&bytes[..length]), Timestamp(3))?;
        if index % BATCH == BATCH - 1 {
            store.flush_all()?;
        }
    }
    store.flush_all()?;
    rate("create and write, flushed now and then", count, start)?;
    Ok(first.ok_or("nothing to fill with")?)
}

fn copy(store: &Store) -> Outcome<()> {
    let object = create(store)?;
    let bytes = vec![5; 1 << 20];
    for index in 0..1024 {
        store.write(object, index << 20, WriteData::Slice(&bytes), Timestamp(3))?;
    }
    store.flush_all()?;
    let mut times = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        store.fastcopy(object, Timestamp(4))?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let (median, most) = (millis(times[times.len() / 2]), millis(times[times.len() - 1]));
    println!("fastcopy of 1 GiB: median {median:.2} ms, at most {most:.2} ms{}", peak()?);
    Ok(())
}

/// Says the most memory that the process had since this was asked last, where the kernel forgets it.
fn peak() -> Outcome<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no VmHWM")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no VmHWM")?.parse()?;
    // 5 is the peak; where that may not be written, it goes on being the process's.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    Ok(format!("; memory at most {} MiB", kib >> 10))
}
