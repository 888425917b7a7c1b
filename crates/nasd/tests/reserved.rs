//! Room that fallocate(2) has reserved: it is taken from the volume, and is there when it is needed.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use support::{CellOptions, TestCell, noise};

const MIB: u64 = 1 << 20;

/// Drives, how files are spread over them, and by how many bytes parts of it may be larger than the whole.
const KINDS: [(u32, &str, u64); 4] = [
    (1, "", 0),
    (3, "raid0 --stripe-unit 16K", MIB / 4),
    (2, "raid1 --stripe-unit 16K", MIB / 4),
    (4, "raid1 --stripe-unit 16K", MIB / 4),
];

fn cell(drives: u32, stripe: &str) -> TestCell {
    let options = match stripe {
        "" => CellOptions { drives, ..CellOptions::default() },
        _ => CellOptions::striped(drives, stripe),
    };
    let cell = TestCell::start(&CellOptions { size: "512M", cache: "32M", ..options });
    assert!(cell.nasd(&["volume", "resize", "main", "--quota", "48M"]).status.success());
    cell
}

fn made(cell: &TestCell, name: &str) -> fs::File {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).open(cell.path(name)).unwrap()
}

fn free(cell: &TestCell) -> i64 {
    let told = rustix::fs::statvfs(cell.mountpoint()).unwrap();
    (told.f_bavail * told.f_frsize) as i64
}

/// That a file takes so many bytes, or somewhat more.
fn takes(file: &fs::File, bytes: u64, more: u64) {
    let taken = file.metadata().unwrap().blocks() * 512;
    assert!((bytes..=bytes + more).contains(&taken), "{taken} bytes instead of {bytes}");
}

/// Writes until there is no room.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let full = loop {
        match file.write_all(&noise(1, MIB as usize)).and_then(|()| file.sync_all()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
}

#[test]
fn what_is_reserved_can_be_written_when_a_volume_is_full() {
    for (drives, stripe, more) in KINDS {
        println!("{drives} drives, {stripe}");
        let mut cell = cell(drives, stripe);
        let (whole, ahead) = (made(&cell, "whole"), made(&cell, "ahead"));
        let before = free(&cell);
        fallocate(&whole, FallocateFlags::empty(), 0, 8 * MIB).unwrap();
        fallocate(&ahead, FallocateFlags::KEEP_SIZE, 0, 4 * MIB).unwrap();
        assert_eq!(
            (whole.metadata().unwrap().len(), ahead.metadata().unwrap().len()),
            (8 * MIB, 0)
        );
        takes(&whole, 8 * MIB, more);
        takes(&ahead, 4 * MIB, more);
        let reserved = before - free(&cell);
        assert!(reserved.abs_diff(12 * MIB as i64) < MIB, "{reserved} bytes are reserved");
        fill(&cell.path("filler"));
        let refused = fallocate(&whole, FallocateFlags::empty(), 8 * MIB, 2 * MIB).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::NOSPC);
        assert_eq!(whole.metadata().unwrap().len(), 8 * MIB);
        for (file, length) in [(&whole, 8 * MIB), (&ahead, 4 * MIB)] {
            let data = noise(length, length as usize);
            file.write_all_at(&data, 0).unwrap();
            file.sync_all().unwrap();
            let mut read = vec![0; data.len()];
            file.read_exact_at(&mut read, 0).unwrap();
            assert!(read == data, "{length} bytes");
        }
        let checked = cell.nasd(&["fsck", "main"]);
        assert!(checked.status.success(), "{}", support::text(&checked));
        cell.stop();
    }
}

#[test]
fn what_is_reserved_piece_by_piece_adds_up_and_comes_back() {
    for (drives, stripe, more) in KINDS {
        println!("{drives} drives, {stripe}");
        let mut cell = cell(drives, stripe);
        let file = made(&cell, "file");
        let before = free(&cell);
        for piece in 0..4 {
            fallocate(&file, FallocateFlags::empty(), piece * MIB, MIB).unwrap();
        }
        takes(&file, 4 * MIB, more);
        assert_eq!(file.metadata().unwrap().len(), 4 * MIB);
        // Once more is not more.
        fallocate(&file, FallocateFlags::empty(), MIB, 2 * MIB).unwrap();
        takes(&file, 4 * MIB, more);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        file.write_all_at(&noise(3, MIB as usize), 0).unwrap();
        fallocate(&file, punch, MIB / 2, MIB).unwrap();
        file.sync_all().unwrap();
        // What was not written yet stays reserved.
        takes(&file, 7 * MIB / 2, more);
        fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 2 * MIB).unwrap();
        file.sync_all().unwrap();
        takes(&file, 4 * MIB, more);
        file.set_len(MIB).unwrap();
        file.sync_all().unwrap();
        takes(&file, MIB, more);
        drop(file);
        fs::remove_file(cell.path("file")).unwrap();
        support::wait_until("room is back", || before - free(&cell) < MIB as i64 / 4);
        cell.stop();
    }
}
