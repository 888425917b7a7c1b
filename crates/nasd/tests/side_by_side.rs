//! Programs that write, map and read the same files of one mount at the same time: what was written is read by
//! whoever reads next, by whichever opening.
//!
//! Each writer has pages of its own in each file, and fills them with numbers that grow.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{ptr, thread};

use support::beside::Beside;
use support::{CellOptions, TestCell, noise};

fn options() -> CellOptions {
    CellOptions { drives: 2, size: "512M", cache: "64M", ..CellOptions::default() }
}

/// A small generator: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

const FILES: u64 = 3;
const WRITERS: u64 = 4;
const MAPPERS: u64 = 3;
const PAGES: u64 = 16;
const PAGE: usize = 4096;
const REGION: u64 = PAGES * PAGE as u64;

/// A shared, writable mapping of a part of a file.
struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn new(file: &File, offset: u64, length: usize) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, offset) = (file.as_raw_fd(), i64::try_from(offset).unwrap());
        // SAFETY: a new mapping at a place that the system chooses touches nothing that is.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, offset)
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapping { start: start.cast(), length }
    }

    fn read(&self, offset: usize) -> [u8; PAGE] {
        assert!(offset + PAGE <= self.length);
        // SAFETY: it is within the mapping, which lives as long as `self`; bytes are copied once, so that it does
        // not matter if others write them.
        unsafe { self.start.add(offset).cast::<[u8; PAGE]>().read_unaligned() }
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.length);
        // SAFETY: it is within the mapping, which is writable.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len()) };
    }

    fn sync(&self) {
        // SAFETY: it is a mapping of this length.
        let status = unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is a mapping of this length, and nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// What pages must have at least.
struct Written(Vec<AtomicU64>);

impl Written {
    fn new() -> Self {
        let pages = FILES * (WRITERS + MAPPERS) * PAGES;
        Written((0..pages).map(|_| AtomicU64::new(0)).collect())
    }

    fn page(&self, file: u64, region: u64, page: u64) -> &AtomicU64 {
        &self.0[((file * (WRITERS + MAPPERS) + region) * PAGES + page) as usize]
    }

    /// The writers' pages of a file; what is mapped has its place without any call.
    fn of_file(&self, file: u64) -> Vec<u64> {
        let page = |at| self.page(file, at / PAGES, at % PAGES).load(Ordering::SeqCst);
        (0..WRITERS * PAGES).map(page).collect()
    }
}

/// How long it goes on: enough to find what was wrong most of the time, and more if somebody wants more.
fn duration() -> Duration {
    let seconds = std::env::var("NASD_SIDE_BY_SIDE_SECONDS");
    Duration::from_secs(seconds.map_or(4, |text| text.parse().unwrap()))
}

fn filled(number: u64, pages: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PAGE / 8 * pages as usize)
}

/// The smallest and the largest number in a page.
fn numbers(page: &[u8]) -> (u64, u64) {
    let numbers = page.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    numbers.fold((u64::MAX, 0), |(low, high), number| (low.min(number), high.max(number)))
}

fn read_page(file: &File, region: u64, page: u64) -> (u64, u64) {
    let mut bytes = [0; PAGE];
    file.read_exact_at(&mut bytes, region * REGION + page * PAGE as u64).unwrap();
    numbers(&bytes)
}

fn path(at: &Path, file: u64) -> PathBuf {
    at.join(format!("file{file}"))
}

fn write(at: &Path, written: &Written, region: u64, end: Instant) {
    let (mut random, mut number) = (Random(region), 0);
    while Instant::now() < end {
        let (name, also_reads) = (random.below(FILES), random.below(2) == 0);
        let file = File::options().read(also_reads).write(true).open(path(at, name)).unwrap();
        let mut last = 0;
        for _ in 0..=random.below(4) {
            let page = random.below(PAGES);
            let count = 1 + random.below(PAGES - page);
            number += 1;
            file.write_all_at(&filled(number, count), region * REGION + page * PAGE as u64)
                .unwrap();
            (page..page + count)
                .for_each(|page| written.page(name, region, page).store(number, Ordering::SeqCst));
            if also_reads {
                let read = read_page(&file, region, page);
                assert_eq!(read, (number, number), "by the opening that wrote it");
            }
            last = page;
        }
        drop(file);
        let read = read_page(&File::open(path(at, name)).unwrap(), region, last);
        assert_eq!(read, (number, number), "by an opening after it");
    }
}

fn map(at: &Path, region: u64, end: Instant) {
    let (mut random, mut number) = (Random(region), 0);
    while Instant::now() < end {
        let name = random.below(FILES);
        let file = File::options().read(true).write(true).open(path(at, name)).unwrap();
        let mapping = Mapping::new(&file, region * REGION, REGION as usize);
        drop(file);
        let mut last = 0;
        for _ in 0..=random.below(5) {
            last = random.below(PAGES);
            number += 1;
            let start = last as usize * PAGE;
            mapping.write(start, &filled(number, 1));
            if random.below(3) == 0 {
                mapping.sync();
            }
            let read = numbers(&mapping.read(start));
            assert_eq!(read, (number, number), "in the mapping");
        }
        mapping.sync();
        drop(mapping);
        let read = read_page(&File::open(path(at, name)).unwrap(), region, last);
        assert_eq!(read, (number, number), "by an opening after the mapping's end");
    }
}

/// Reads all of a file, by an opening for that, or by one that was there before.
fn read(at: &Path, written: &Written, (seed, keeps_open): (u64, bool), end: Instant) {
    let open = |name: u64| File::open(path(at, name)).unwrap();
    let kept: Vec<File> = (0..FILES).map(open).collect();
    let mut random = Random(seed);
    let mut bytes = vec![0; (WRITERS * REGION) as usize];
    while Instant::now() < end {
        let name = random.below(FILES);
        let least = written.of_file(name);
        match keeps_open {
            true => kept[name as usize].read_exact_at(&mut bytes, 0).unwrap(),
            false => open(name).read_exact_at(&mut bytes, 0).unwrap(),
        }
        for (at, (page, least)) in bytes.chunks_exact(PAGE).zip(least).enumerate() {
            let (lowest, _) = numbers(page);
            assert!(lowest >= least, "page {at}: {lowest}, not {least}; kept open: {keeps_open}");
        }
    }
}

fn run(at: &Path) {
    for name in 0..FILES {
        fs::write(path(at, name), vec![0; ((WRITERS + MAPPERS) * REGION) as usize]).unwrap();
    }
    let (written, end) = (Written::new(), Instant::now() + duration());
    let written = &written;
    thread::scope(|scope| {
        for region in 0..WRITERS {
            scope.spawn(move || write(at, written, region, end));
        }
        for region in WRITERS..WRITERS + MAPPERS {
            scope.spawn(move || map(at, region, end));
        }
        for reader in [(100, true), (101, false), (102, true), (103, false)] {
            scope.spawn(move || read(at, written, reader, end));
        }
    });
}

#[test]
fn what_was_written_is_read_through_the_page_cache() {
    let mut cell = TestCell::start(&options());
    run(&cell.mountpoint());
    cell.stop();
}

#[test]
fn what_was_written_is_read_around_the_page_cache() {
    let mut cell = TestCell::start(&options());
    let direct = Beside::mount_as(&cell, "direct", &["-o", "direct"]);
    run(&direct.at);
    drop(direct);
    cell.stop();
}

/// The kernel writes a mapping's pages by the opening that was mapped, also if that goes around the cache.
#[test]
fn pages_are_written_back_by_an_opening_that_goes_around_the_cache() {
    let mut cell = TestCell::start(&options());
    let mut expected = noise(1, 1 << 20);
    fs::write(cell.path("a"), &expected).unwrap();
    let around = File::options().write(true).open(cell.path("a")).unwrap();
    let reader = File::open(cell.path("a")).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(cell.path("a")).unwrap();
    let mapping = Mapping::new(&file, 0, expected.len());
    drop(file);
    for round in 0..50_u8 {
        mapping.write(usize::from(round) * PAGE, &[round; PAGE]);
        around.write_all_at(&[round; PAGE], 200 * PAGE as u64).unwrap();
        mapping.sync();
        expected[usize::from(round) * PAGE..][..PAGE].fill(round);
    }
    drop((mapping, around));
    expected[200 * PAGE..][..PAGE].fill(49);
    let mut bytes = vec![0; expected.len()];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected);
    drop(reader);
    cell.stop();
}
