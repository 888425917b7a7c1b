//! How fast a cache is: opening one with many files, and reads from memory and from the disk.
//!
//! A second run tells how much memory is taken, as it begins with none.
//! `cargo run --release -p nasd-cache --example figures -- DIRECTORY`

#![allow(clippy::unwrap_used, reason = "a measurement that can not be made has failed")]

use nasd_cache::{CHUNK_BYTES, Cache, CacheOptions, FileKey, Identity};
use nasd_types::{CellId, DriveId, ObjectId, PartitionId};
use std::path::Path;
use std::time::Instant;

const FILES: u64 = 10_000;
const CHUNKS: u64 = 1024;
const GIB: u64 = 1 << 30;

fn file(number: u64) -> FileKey {
    FileKey { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(number) }
}

fn open(directory: &Path, memory_bytes: u64) -> Cache {
    let directory = Some(directory.to_owned());
    let identity = Identity { cell: CellId([1; 16]), volume: "main".into() };
    Cache::open(CacheOptions { directory, disk_bytes: 4 * GIB, memory_bytes }, &identity).unwrap()
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
}

fn rate(what: &str, bytes: u64, begun: Instant) {
    let seconds = begun.elapsed().as_secs_f64();
    println!("{what}: {:.0} MB/s", bytes as f64 / seconds / 1e6);
}

fn read_all(cache: &Cache, what: &str) {
    let mut into = vec![0; CHUNK_BYTES as usize];
    let begun = Instant::now();
    for number in 0..CHUNKS {
        cache.read(&file(0), 2, number * CHUNK_BYTES, &mut into).unwrap();
    }
    rate(what, CHUNKS * CHUNK_BYTES, begun);
}

fn write_many(directory: &Path) {
    let cache = open(directory, GIB);
    let begun = Instant::now();
    for number in 0..FILES {
        cache.begin(&file(number), 2, 9000);
        cache.put(&file(number), 2, 0, vec![number as u8; 9000]);
        cache.set_note(&file(number), 2, vec![1; 100]);
        if number % 500 == 0 {
            cache.settle();
        }
    }
    drop(cache);
    println!("{FILES} files written: {:?}", begun.elapsed());
}

fn main() {
    let root = std::env::args_os().nth(1).expect("a directory");
    let directory = Path::new(&root).join("many");
    if !directory.exists() {
        write_many(&directory);
    }
    let (begun, before) = (Instant::now(), resident());
    let cache = open(&directory, 0);
    println!("{} files opened: {:?}", cache.summary().files, begun.elapsed());
    println!("memory for what is known of a file: {} bytes", (resident() - before) * 1024 / FILES);
    let begun = Instant::now();
    let found = (0..FILES).filter(|number| cache.chunk(&file(*number), 2, 0).is_some()).count();
    println!("{found} small files from the disk: {:?} each", begun.elapsed() / FILES as u32);
    drop(cache);

    let directory = Path::new(&root).join("long");
    let cache = open(&directory, GIB);
    cache.begin(&file(0), 2, CHUNKS * CHUNK_BYTES);
    let begun = Instant::now();
    for number in 0..CHUNKS {
        cache.put(&file(0), 2, number, vec![number as u8; CHUNK_BYTES as usize]);
        if number % 32 == 0 {
            cache.settle();
        }
    }
    cache.settle();
    rate("written", CHUNKS * CHUNK_BYTES, begun);
    read_all(&cache, "read from memory, copied");
    let begun = Instant::now();
    (0..CHUNKS).for_each(|number| assert!(cache.chunk(&file(0), 2, number).is_some()));
    println!("chunk from memory, not copied: {:?} each", begun.elapsed() / CHUNKS as u32);
    drop(cache);
    read_all(&open(&directory, 0), "read from the disk, through the system's cache");
    read_all(&open(&directory, GIB), "the same, and kept in memory");
}
