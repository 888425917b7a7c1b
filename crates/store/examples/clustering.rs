//! What `nearby_object` is good for: `cargo run --release -p nasd-store --example clustering`.
//!
//! On a simulated disk of 7200 turns a minute: a history leaves holes all over the drive, then lists of
//! small objects grow side by side, with others in between and a flush now and then. Then each list is
//! read in its order, with a cold cache. Once the members name the one before them as their
//! `nearby_object`, once not; all else is the same. The times are those of the simulated disk.

mod support;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use nasd_device::{BlockDevice, MemoryDevice, SeekModel, SeekingDevice};
use nasd_store::{OpenOptions, Store, WriteData};
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp};

const PARTITION: PartitionId = PartitionId(1);
const DRIVE_BYTES: u64 = 768 << 20;
const LISTS: usize = 16;
const MEMBERS: usize = 64;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Disk = SeekingDevice<MemoryDevice>;

fn main() -> Outcome<()> {
    println!("{LISTS} lists of {MEMBERS} objects of 8 to 64 KiB, read in order:");
    println!("{:>14} {:>10} {:>8} {:>12} {:>10}", "history", "clustered", "seeks", "not", "seeks");
    for (what, history) in [("none", 0), ("half removed", 2), ("a third kept", 3)] {
        let (with, seeks_with) = measure(history, true)?;
        let (without, seeks_without) = measure(history, false)?;
        let ratio = without.as_secs_f64() / with.as_secs_f64();
        let (with, without) = (with.as_secs_f64(), without.as_secs_f64());
        println!(
            "{what:>14} {with:>8.2} s {seeks_with:>8} {without:>10.2} s {seeks_without:>10}   {ratio:.1} times"
        );
    }
    Ok(())
}

/// Time and seeks to read all lists.
fn measure(history: u64, clustered: bool) -> Outcome<(Duration, u64)> {
    let disk: Arc<Disk> =
        Arc::new(SeekingDevice::new(MemoryDevice::new(DRIVE_BYTES)?, SeekModel::DISK_7200));
    let device: Arc<dyn BlockDevice> = disk.clone();
    format(&device)?;
    let options = OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() };
    let store = Store::open(device.clone(), &options)?;
    let mut random = 1;
    if history > 0 {
        make_holes(&store, history, &mut random)?;
    }
    let lists = make_lists(&store, clustered, &mut random)?;
    store.close()?;
    let store = Store::open(device, &options)?;
    // Pages of the tree are not what is measured.
    for object in lists.iter().flatten() {
        store.getattr(*object)?;
    }
    let before = disk.statistics();
    for object in lists.iter().flatten() {
        store.read(*object, ByteRange::new(0, 64 << 10))?;
    }
    let after = disk.statistics();
    Ok((after.elapsed() - before.elapsed(), after.seeks - before.seeks))
}

/// SplitMix64.
fn draw(random: &mut u64, bound: u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *random;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % bound
}

fn put(store: &Store, nearby: ObjectId, bytes: u64) -> Outcome<ObjectName> {
    let initial = SetAttributes { nearby_object: Some(nearby), ..SetAttributes::default() };
    let (object, _) = store.create(PARTITION, &initial, Timestamp(2))?;
    let name = ObjectName { partition: PARTITION, object };
    let data = vec![7; bytes as usize];
    store.write(name, 0, WriteData::Slice(&data), Timestamp(3))?;
    Ok(name)
}

/// Fills most of the drive with objects of 4 KiB to 1 MiB, and removes some of them.
fn make_holes(store: &Store, history: u64, random: &mut u64) -> Outcome<()> {
    let mut objects = Vec::new();
    while store.space().free_bytes > DRIVE_BYTES / 16 {
        let bytes = 4096 << draw(random, 9);
        objects.push(put(store, ObjectId(0), bytes)?);
        if draw(random, 8) == 0 {
            store.flush_all()?;
        }
    }
    store.flush_all()?;
    for object in objects {
        // Of two every other goes, of three two go.
        if draw(random, history) > 0 {
            store.remove(object)?;
        }
    }
    Ok(store.flush_all()?)
}

/// Lists that grow by turns, with other objects in between.
fn make_lists(store: &Store, clustered: bool, random: &mut u64) -> Outcome<Vec<Vec<ObjectName>>> {
    let mut lists: Vec<Vec<ObjectName>> = vec![Vec::new(); LISTS];
    for _ in 0..MEMBERS {
        for list in &mut lists {
            let last = list.last().map_or(ObjectId(0), |name| name.object);
            let nearby = if clustered { last } else { ObjectId(0) };
            list.push(put(store, nearby, 8192 + draw(random, 56 << 10))?);
            put(store, ObjectId(0), 4096 << draw(random, 5))?;
            if draw(random, 8) == 0 {
                store.flush_all()?;
            }
        }
    }
    store.flush_all()?;
    Ok(lists)
}

fn format(device: &Arc<dyn BlockDevice>) -> Outcome<()> {
    let options = support::format_options(PARTITION, 7);
    Ok(Store::format(device.clone(), &options)?)
}
