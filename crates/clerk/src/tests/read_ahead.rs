//! Reading ahead: right bytes, few requests, bounded memory.

use std::sync::atomic::Ordering;
use std::thread;

use super::{Random, cell, eventually, name, new_file, open, pattern, read_all, root, settings};
use crate::{Clerk, FileHandle, OpenMode, Settings};

fn big_file(clerk: &Clerk, text: &str, length: usize) -> FileHandle {
    let (file, handle) = new_file(clerk, text);
    for (index, part) in pattern(0, length).chunks(1 << 20).enumerate() {
        file.write((index as u64) << 20, part).unwrap();
    }
    file.sync().unwrap();
    handle
}

#[test]
fn sequential_reads_of_any_size_are_right() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let length = (9 << 20) + 12_345;
    let handle = big_file(&clerk, "big", length);
    let expected = pattern(0, length);
    for step in [3000, 4096, 65_536, 131_072, 300_000, 1 << 20, 5 << 20] {
        let (file, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
        assert!(read_all(&file, step) == expected, "step {step}");
    }
}

#[test]
fn a_sequential_reader_asks_for_each_byte_once_and_in_large_requests() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let length = 16 << 20;
    let handle = big_file(&clerk, "big", length);
    let counters = &cell.drive(0).counters;
    let (reads, bytes) =
        (counters.reads.load(Ordering::Relaxed), counters.read_bytes.load(Ordering::Relaxed));
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    read_all(&file, 4096);
    let reads = counters.reads.load(Ordering::Relaxed) - reads;
    let bytes = counters.read_bytes.load(Ordering::Relaxed) - bytes;
    assert_eq!(bytes, length as u64);
    assert!(reads < 40, "{reads} requests");
}

#[test]
fn requests_of_a_sequential_reader_overlap() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let length = 16 << 20;
    let handle = big_file(&clerk, "big", length);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    let mut part = vec![0; 128 << 10];
    for index in 0..length / part.len() {
        if index == 31 {
            // Has 6 MiB read ahead, in several requests: later, one of them might be left and waited for alone.
            cell.drive(0).gather(3);
        }
        let offset = index * part.len();
        assert_eq!(file.read(offset as u64, &mut part).unwrap(), part.len());
        assert!(part == pattern(offset as u64, part.len()));
    }
}

#[test]
fn long_reads_are_split_and_side_by_side() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let length = 8 << 20;
    let handle = big_file(&clerk, "big", length);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    cell.drive(0).gather(4);
    let mut all = vec![0; length];
    assert_eq!(file.read(0, &mut all).unwrap(), length);
    assert!(all == pattern(0, length));
}

#[test]
fn random_and_mixed_readers_get_the_right_bytes() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings { read_ahead_bytes: 6 << 20, ..settings() });
    let length = 5 << 20;
    let handle = big_file(&clerk, "big", length);
    let expected = pattern(0, length);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    thread::scope(|scope| {
        for reader in 0..4_u64 {
            let (file, expected) = (&file, &expected);
            scope.spawn(move || {
                let mut random = Random::new(400 + reader);
                let mut scratch = Vec::new();
                for _ in 0..30 {
                    let mut at = random.below(length as u64);
                    for _ in 0..random.below(12) {
                        let count = 1 + random.below(200_000) as usize;
                        let end = (at as usize + count).min(length);
                        let wanted =
                            &expected[(at as usize).min(length)..end.max(at as usize).min(length)];
                        let same = file.read_with(at, count, &mut scratch, |data| data == wanted);
                        assert!(same.unwrap(), "at {at}, {count} bytes");
                        at += count as u64;
                    }
                }
            });
        }
    });
}

#[test]
fn what_was_read_ahead_does_not_hide_later_writes() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let length = 2 << 20;
    let handle = big_file(&clerk, "big", length);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ_WRITE).unwrap();
    let mut part = vec![0; 65_536];
    file.read(0, &mut part).unwrap();
    file.read(65_536, &mut part).unwrap();
    file.write(200_000, &[0xab; 1000]).unwrap();
    file.sync().unwrap();
    let mut back = vec![0; 1000];
    file.read(200_000, &mut back).unwrap();
    assert!(back == [0xab; 1000]);
    let mut expected = pattern(0, length);
    expected[200_000..201_000].fill(0xab);
    assert!(read_all(&file, 65_536) == expected);
}

#[test]
fn what_was_read_ahead_does_not_hide_earlier_writes() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let handle = big_file(&clerk, "big", 2 << 20);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ_WRITE).unwrap();
    file.write(300_000, &[0xab; 1000]).unwrap();
    // This reads ahead over the write, which the drive does not have yet.
    let mut part = vec![0; 65_536];
    let reads = &cell.drive(0).counters.reads;
    let before = reads.load(Ordering::Relaxed);
    file.read(0, &mut part).unwrap();
    file.read(65_536, &mut part).unwrap();
    eventually("read-ahead", || reads.load(Ordering::Relaxed) >= before + 2);
    file.sync().unwrap();
    let mut back = vec![0; 1000];
    file.read(300_000, &mut back).unwrap();
    assert!(back == [0xab; 1000]);
}

#[test]
fn an_open_sees_what_another_client_has_closed() {
    let cell = cell(1);
    let (ours, theirs) = (cell.clerk(settings()), cell.clerk(settings()));
    let handle = big_file(&ours, "big", 1 << 20);
    let (mine, _) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    read_all(&mine, 65_536);
    let entry = theirs.lookup(&root(), theirs.root(), &name("big")).unwrap();
    let other = open(&theirs, &root(), entry);
    other.write(0, b"news").unwrap();
    other.write(1 << 20, b"and more").unwrap();
    other.close().unwrap();
    let (again, attributes) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    assert_eq!(attributes.size, (1 << 20) + 8);
    let all = read_all(&again, 65_536);
    assert_eq!((&all[..4], &all[1 << 20..]), (&b"news"[..], &b"and more"[..]));
}

#[test]
fn a_file_that_grows_elsewhere_is_followed() {
    let cell = cell(1);
    let (ours, theirs) = (cell.clerk(settings()), cell.clerk(settings()));
    let (log, handle) = new_file(&theirs, "log");
    log.write(0, &[1; 5000]).unwrap();
    log.sync().unwrap();
    let (tail, _) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    let mut part = vec![0; 4096];
    assert_eq!(tail.read(0, &mut part).unwrap(), 4096);
    assert_eq!(tail.read(4096, &mut part).unwrap(), 904);
    assert_eq!(tail.read(5000, &mut part).unwrap(), 0);
    log.write(5000, &[2; 300]).unwrap();
    log.sync().unwrap();
    assert_eq!(tail.read(5000, &mut part).unwrap(), 300);
    assert_eq!(part[..300], [2; 300]);
}

#[test]
fn holes_and_the_end_of_the_file() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "sparse");
    let mut part = vec![0xee; 100];
    assert_eq!(file.read(0, &mut part).unwrap(), 0);
    file.write(5 << 30, b"far").unwrap();
    assert_eq!(file.read(1 << 20, &mut part).unwrap(), 100);
    assert_eq!(part, [0; 100]);
    assert_eq!(file.read((5 << 30) - 50, &mut part).unwrap(), 53);
    assert_eq!(&part[50..53], b"far");
    file.sync().unwrap();
    assert_eq!(file.read((5 << 30) - 50, &mut part).unwrap(), 53);
    assert_eq!(file.read(u64::MAX - 5, &mut part).unwrap(), 0);
}
