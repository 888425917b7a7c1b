//! What tests of the cache share.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#![allow(dead_code, reason = "each test file uses its own part")]

use nasd_cache::{Cache, CacheOptions, FileKey, Identity, chunk_count, chunk_length};
use nasd_types::{CellId, DriveId, ObjectId, PartitionId};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Whose the caches are.
pub fn identity() -> Identity {
    Identity { cell: CellId([7; 16]), volume: "main".into() }
}

/// A file by number.
pub fn file(number: u64) -> FileKey {
    FileKey { drive: DriveId(3), partition: PartitionId(1), object: ObjectId(number) }
}

/// A cache in this directory.
pub fn open(directory: &Path, disk_bytes: u64, memory_bytes: u64) -> Cache {
    let directory = Some(directory.to_owned());
    Cache::open(CacheOptions { directory, disk_bytes, memory_bytes }, &identity()).unwrap()
}

/// A small generator of numbers that look random.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one (splitmix64).
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}

/// A chunk's contents, which tell by themselves what they are of.
pub fn contents(number: u64, seed: u64, chunk: u64, length: usize) -> Vec<u8> {
    let mut numbers = Numbers(number ^ seed.rotate_left(20) ^ chunk.rotate_left(40));
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        out.extend_from_slice(&numbers.draw().to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Caches all of a file.
pub fn fill(cache: &Cache, number: u64, version: u64, length: u64) {
    cache.begin(&file(number), version, length);
    for chunk in 0..chunk_count(length) {
        let bytes = contents(number, version, chunk, chunk_length(length, chunk));
        assert!(cache.put(&file(number), version, chunk, bytes));
    }
}

/// What the files of a directory take, as the system tells it, at one moment: one look at them all takes a while, in which some go and
/// others come, so two looks have to agree.
pub fn taken(directory: &Path) -> u64 {
    let look = || -> Vec<(PathBuf, u64)> {
        let all = parts(directory).into_iter();
        // One that goes meanwhile takes nothing.
        all.filter_map(|path| Some((path.clone(), std::fs::metadata(path).ok()?.blocks() * 512)))
            .collect()
    };
    let mut before = look();
    loop {
        let now = look();
        if now == before {
            return now.iter().map(|(_, bytes)| bytes).sum();
        }
        before = now;
    }
}

/// All heads and data files.
pub fn parts(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(directory).unwrap().flatten() {
        if folder.path().is_dir() {
            let files = std::fs::read_dir(folder.path()).unwrap();
            found.extend(files.flatten().map(|entry| entry.path()));
        }
    }
    found.sort();
    found
}

/// A copy of a cache directory as it is now: what a crash leaves.
pub fn snapshot(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::copy(from.join("identity"), to.join("identity")).unwrap();
    for path in parts(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        // It may go meanwhile.
        let _ = std::fs::copy(&path, &target);
    }
}
