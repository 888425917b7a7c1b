//! Random operations on files, beside a byte array, while drives are killed and restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{Random, cell, new_file, root, settings};
use crate::fake::FakeCell;
use crate::{Clerk, FileHandle, OpenFile, OpenMode, SetFileAttributes};

const LONGEST: u64 = 3 << 20;

struct Model {
    clerk: Clerk,
    cell: Arc<FakeCell>,
    file: OpenFile,
    handle: FileHandle,
    bytes: Vec<u8>,
    /// From which bytes are copied into it.
    other: OpenFile,
    other_bytes: Vec<u8>,
    random: Random,
}

impl Model {
    fn new(seed: u64) -> Self {
        let cell = cell(1);
        let clerk = cell.clerk(settings());
        let (file, handle) = new_file(&clerk, "model");
        let (other, _) = new_file(&clerk, "other");
        let (bytes, other_bytes, random) = (Vec::new(), Vec::new(), Random::new(seed));
        Model { clerk, cell, file, handle, bytes, other, other_bytes, random }
    }

    /// Somewhere, often near a chunk boundary or the end of the file.
    fn place(&mut self) -> u64 {
        match self.random.below(4) {
            0 => self.random.below(LONGEST),
            1 => (1 << 20) - 50 + self.random.below(100),
            2 => self.bytes.len() as u64,
            _ => self.random.below(self.bytes.len() as u64 + 1),
        }
    }

    fn length(&mut self) -> usize {
        let limit = [16, 5000, 70_000, 1_500_000][self.random.below(4) as usize];
        1 + self.random.below(limit) as usize
    }

    fn write(&mut self) {
        let (offset, length) = (self.place(), self.length());
        let value = self.random.below(256) as u8;
        let data: Vec<u8> = (0..length).map(|at| value.wrapping_add((at >> 3) as u8)).collect();
        self.file.write(offset, &data).unwrap();
        let end = offset as usize + length;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[offset as usize..end].copy_from_slice(&data);
    }

    fn write_other(&mut self) {
        let (offset, length) = (self.random.below(LONGEST), self.length());
        let data = vec![self.random.below(256) as u8; length];
        self.other.write(offset, &data).unwrap();
        let end = offset as usize + length;
        self.other_bytes.resize(self.other_bytes.len().max(end), 0);
        self.other_bytes[offset as usize..end].copy_from_slice(&data);
    }

    /// From the other file, or within this one.
    fn copy(&mut self) {
        let (mut from, mut to, length) = (self.place(), self.place(), self.length() as u64);
        let within = self.random.below(3) == 0;
        if within && from.abs_diff(to) < length {
            return;
        }
        let end = from + length;
        while from < end {
            let source = if within { &self.file } else { &self.other };
            let copied = self.file.copy_range(to, (source, from), end - from).unwrap() as usize;
            let bytes = if within { &self.bytes } else { &self.other_bytes };
            let start = bytes.len().min(from as usize);
            assert!(copied <= bytes.len() - start);
            if copied == 0 {
                assert_eq!(start, bytes.len(), "only at its end");
                break;
            }
            let bytes = bytes[start..start + copied].to_vec();
            self.bytes.resize(self.bytes.len().max(to as usize + copied), 0);
            self.bytes[to as usize..][..copied].copy_from_slice(&bytes);
            (from, to) = (from + copied as u64, to + copied as u64);
        }
    }

    /// Sequential small writes, as a logger makes them.
    fn append_some(&mut self) {
        for _ in 0..self.random.below(30) {
            let length = 1 + self.random.below(3000) as usize;
            let value = self.random.below(256) as u8;
            self.file.write(self.bytes.len() as u64, &vec![value; length]).unwrap();
            self.bytes.resize(self.bytes.len() + length, value);
        }
    }

    fn read(&mut self) {
        let (offset, length) = (self.place(), self.length());
        let mut found = vec![0xee; length];
        let count = self.file.read(offset, &mut found).unwrap();
        let start = (offset as usize).min(self.bytes.len());
        let end = (start + length).min(self.bytes.len());
        assert_same(&found[..count], &self.bytes[start..end], offset);
    }

    fn truncate(&mut self) {
        let size = self.place();
        let changes = SetFileAttributes { size: Some(size), ..Default::default() };
        let attributes = self.clerk.setattr(&root(), self.handle, &changes).unwrap();
        assert_eq!(attributes.size, size);
        self.bytes.resize(size as usize, 0);
    }

    fn check_durable(&mut self) {
        self.file.sync().unwrap();
        let durable = self.cell.drive(0).durable_bytes(self.handle.object).unwrap();
        assert_eq!(durable.len(), self.bytes.len());
        assert_same(&durable, &self.bytes, 0);
    }

    fn reopen(&mut self) {
        self.file.close().unwrap();
        self.file = self.clerk.open(&root(), self.handle, OpenMode::READ_WRITE).unwrap().0;
        assert_eq!(self.file.size(), self.bytes.len() as u64);
    }

    fn step(&mut self, crashes: bool) {
        match self.random.below(24) {
            20 => self.write_other(),
            21..24 => self.copy(),
            0..8 => self.write(),
            8..10 => self.append_some(),
            10..15 => self.read(),
            15 => self.truncate(),
            16 => self.check_durable(),
            17 => self.reopen(),
            18 => {
                let size = self.clerk.getattr(&root(), self.handle).unwrap().size;
                assert_eq!(size, self.bytes.len() as u64);
            }
            _ if crashes && self.random.below(2) == 0 => self.cell.drive(0).crash(),
            _ if crashes => {
                let count = 1 + self.random.below(3);
                self.cell.drive(0).crash_at_write(count);
            }
            _ => {}
        }
    }
}

fn assert_same(found: &[u8], expected: &[u8], offset: u64) {
    assert_eq!(found.len(), expected.len(), "length at {offset}");
    if let Some(at) = (0..found.len()).find(|at| found[*at] != expected[*at]) {
        panic!("differs at {}: {} instead of {}", offset + at as u64, found[at], expected[at]);
    }
}

#[test]
fn files_are_as_written() {
    for seed in 0..12 {
        let mut model = Model::new(seed);
        for _ in 0..150 {
            model.step(false);
        }
        model.check_durable();
    }
}

#[test]
fn a_drive_that_is_killed_between_operations_loses_nothing() {
    for seed in 100..125 {
        let mut model = Model::new(seed);
        for _ in 0..150 {
            model.step(true);
        }
        model.check_durable();
    }
}

#[test]
fn a_drive_that_is_killed_at_any_time_loses_nothing() {
    for seed in 200..208 {
        let mut model = Model::new(seed);
        let stop = Arc::new(AtomicBool::new(false));
        let killer = {
            let (cell, stop) = (Arc::clone(&model.cell), Arc::clone(&stop));
            let mut random = Random::new(seed + 1000);
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_micros(200 + random.below(6000)));
                    cell.drive(0).crash();
                }
            })
        };
        for _ in 0..150 {
            model.step(false);
        }
        stop.store(true, Ordering::Relaxed);
        killer.join().unwrap();
        model.check_durable();
    }
}

#[test]
fn several_writers_of_one_file_lose_nothing() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "shared");
    let part = 700_000;
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (clerk, cell, file) = (&clerk, &cell, &file);
            scope.spawn(move || {
                let own = clerk.open(&root(), handle, OpenMode::READ_WRITE).unwrap().0;
                let mut random = Random::new(300 + writer);
                for round in 0..40_u64 {
                    let offset = writer * part + random.below(part - 20_000);
                    let data = vec![(round + 1) as u8; 1 + random.below(20_000) as usize];
                    own.write(offset, &data).unwrap();
                    let mut back = vec![0; data.len()];
                    assert_eq!(file.read(offset, &mut back).unwrap(), data.len());
                    assert_same(&back, &data, offset);
                    if random.below(8) == 0 {
                        own.sync().unwrap();
                    }
                    if random.below(16) == 0 {
                        cell.drive(0).crash();
                    }
                }
                own.sync().unwrap();
            });
        }
    });
    let size = file.size() as usize;
    let mut all = vec![0; size];
    assert_eq!(file.read(0, &mut all).unwrap(), size);
    assert_same(&cell.drive(0).durable_bytes(handle.object).unwrap(), &all, 0);
}
