//! Tests of the whole clerk on a cell in memory.

mod appends;
mod capabilities;
mod chunks;
mod copies;
mod extends;
mod failures;
mod hints;
mod listing;
mod model;
mod names;
mod pending_model;
mod read_ahead;
mod scans;
mod sessions;
mod stores;
mod times;
mod write_behind;
mod xattrs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fake::FakeCell;
use crate::{Caller, Clerk, Entry, FileHandle, Name, OpenFile, OpenMode, Settings};

/// Settings with small limits and short times.
pub(super) fn settings() -> Settings {
    Settings {
        deadline: Duration::from_secs(20),
        unflushed_bytes_per_drive: 4 << 20,
        flush_after_bytes: 1 << 20,
        flush_after_idle: Duration::from_millis(50),
        read_to_scan_bytes: 0,
        ..Settings::default()
    }
}

pub(super) fn cell(drives: usize) -> Arc<FakeCell> {
    FakeCell::new(drives, Duration::from_secs(20))
}

pub(super) fn root() -> Arc<Caller> {
    Arc::new(Caller::default())
}

pub(super) fn user(uid: u32) -> Arc<Caller> {
    Arc::new(Caller { uid, gid: uid, groups: Vec::new() })
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A new file, open for reading and writing by root.
pub(super) fn new_file(clerk: &Clerk, text: &str) -> (OpenFile, FileHandle) {
    let caller = root();
    let entry = clerk.create(&caller, clerk.root(), &name(text), 0o666, true).unwrap();
    (open(clerk, &caller, entry), entry.handle)
}

pub(super) fn open(clerk: &Clerk, caller: &Arc<Caller>, entry: Entry) -> OpenFile {
    clerk.open(caller, entry.handle, OpenMode::READ_WRITE).unwrap().0
}

/// Bytes that tell their own place in the file.
pub(super) fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..offset + length as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

/// Reads everything from `offset` on, `step` bytes at a time.
pub(super) fn read_all(file: &OpenFile, step: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = vec![0; step];
    loop {
        let count = file.read(all.len() as u64, &mut part).unwrap();
        all.extend_from_slice(&part[..count]);
        if count < step {
            return all;
        }
    }
}

/// Waits until `done`, and fails if that takes too long.
pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Random numbers from a seed (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    /// From a seed that is told, so that a failure can be repeated.
    pub(super) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % limit
    }
}
