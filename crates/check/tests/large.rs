//! How much memory and time a check of a million objects takes. Not run by itself:
//! `cargo test -p nasd-check --release --test large -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

mod image;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use image::*;
use nasd_check::{Options, Outcome, check};
use nasd_device::{BlockDevice, FileDevice, FileOptions};
use redb::{Builder, StorageBackend, TableDefinition};

const OBJECTS: u64 = 1_000_000;
const METADATA: u64 = 1 << 30;
const DATA: u64 = METADATA_AT + METADATA;

/// The metadata region of a file.
#[derive(Debug)]
struct Region(File, AtomicU64);

impl StorageBackend for Region {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.1.load(Ordering::Relaxed))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(out, METADATA_AT + offset)
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        let made = self.1.load(Ordering::Relaxed) > 0;
        self.1.store(if made { length } else { METADATA }, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_all_at(data, METADATA_AT + offset)
    }
}

fn put<'k, K: redb::Key + 'static>(
    table: &mut redb::Table<'_, K, &'static [u8]>,
    key: K::SelfType<'k>,
    bytes: Vec<u8>,
    record: Vec<u8>,
) {
    table.insert(key, sealed(bytes, record).as_slice()).unwrap();
}

/// Objects of one block each, every one with zeros in it.
fn write(path: &Path) {
    let blocks = OBJECTS.next_multiple_of(128);
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(DATA + blocks * BLOCK as u64).unwrap();
    for place in [0, 512 << 10] {
        file.write_all_at(&superblock_of(1, METADATA, blocks), place).unwrap();
    }
    let region = Region(file, AtomicU64::new(0));
    let database = Builder::new().create_with_backend(region).unwrap();
    let begin = || {
        let mut transaction = database.begin_write().unwrap();
        transaction.set_two_phase_commit(true);
        transaction.set_quick_repair(true);
        transaction
    };
    let small: Vec<_> = Image::sample()
        .rows
        .into_iter()
        .filter(|row| ["ballast", "drive"].contains(&row.0.0))
        .collect();
    for name in ["ballast", "drive"] {
        let transaction = begin();
        for ((_, key), value) in small.iter().filter(|row| row.0.0 == name) {
            let table = TableDefinition::<u32, &[u8]>::new(name);
            let key = u32::from_be_bytes(key[..].try_into().unwrap());
            transaction.open_table(table).unwrap().insert(key, value.as_slice()).unwrap();
        }
        transaction.commit().unwrap();
    }
    let transaction = begin();
    fill(&transaction, blocks);
    transaction.commit().unwrap();
}

fn fill(transaction: &redb::WriteTransaction, blocks: u64) {
    {
        let mut drive =
            transaction.open_table(TableDefinition::<u32, &[u8]>::new("drive")).unwrap();
        let mut counters = vec![0; 48];
        counters[0] = 2;
        set64(&mut counters, 8, OBJECTS * 2);
        put(&mut drive, 2, short(2), counters);
        let mut table =
            transaction.open_table(TableDefinition::<u32, &[u8]>::new("partitions")).unwrap();
        put(&mut table, 1, short(1), partition_record(OBJECTS, OBJECTS));
    }
    let mut table =
        transaction.open_table(TableDefinition::<&[u8; 12], &[u8]>::new("objects")).unwrap();
    let mut extents =
        transaction.open_table(TableDefinition::<&[u8; 20], &[u8]>::new("extents")).unwrap();
    for number in 0..OBJECTS {
        let object = number + 4;
        let key = object_key(1, object);
        put(&mut table, key[..].try_into().unwrap(), key.clone(), object_record(4000, 1, 0));
        let key = extent_key(1, object, 0);
        // Not in the order of the objects.
        let physical = number * 7919 % OBJECTS;
        let record = extent_record(physical, 1, 1, 0, 0);
        put(&mut extents, key[..].try_into().unwrap(), key.clone(), record);
    }
    let mut sums = vec![0; 520];
    sums[0] = 2;
    let zeros = crc32c::crc32c(&[0; BLOCK]);
    (0..128).for_each(|index| set32(&mut sums, 8 + 4 * index, zeros));
    let mut table = transaction.open_table(TableDefinition::<u64, &[u8]>::new("sums")).unwrap();
    (0..blocks / 128).for_each(|group| put(&mut table, group, long(group), sums.clone()));
}

/// Peak resident memory in KiB, since it was last reset.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "measures"]
fn a_million_objects() {
    let path = std::env::temp_dir().join(format!("nasd-check-large-{}.img", std::process::id()));
    let start = Instant::now();
    write(&path);
    println!("written in {:?}", start.elapsed());
    // In a process of its own, whose memory is that of the check.
    for data in ["tables", "data"] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "one_check", "--nocapture"])
            .env("NASD_CHECK_IMAGE", &path)
            .env("NASD_CHECK_WHAT", data)
            .status()
            .unwrap();
        assert!(status.success());
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
#[ignore = "a part of the other"]
fn one_check() {
    let Ok(path) = std::env::var("NASD_CHECK_IMAGE") else { return };
    let data = std::env::var("NASD_CHECK_WHAT").is_ok_and(|what| what == "data");
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(path, FileOptions::default()).unwrap());
    let (before, start) = (peak(), Instant::now());
    let report = check(&device, &Options::default().with_data(data), &mut |_| {});
    println!("data {data}: {:?}, {} KiB above {before}", start.elapsed(), peak() - before);
    println!("{:?}", report.statistics);
    assert_eq!(report.outcome(), Outcome::Clean, "{report}");
}
