//! Many files, each read whole in an order that is told, as a model is trained (CMU-CS-97-118 section 4.6).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use nasd_clerk::Hints;

use super::prefetch::{BLOCK_BYTES, Prefetched, Random, word_at};
use crate::limits::disk::{DiskFile, Shape, Sync};
use crate::sampling::median;
use crate::workload::{Bench, MIB};
use crate::{BenchError, Row};

/// How often each is measured.
const ROUNDS: usize = 3;

/// Files of an epoch, and bytes of each.
const FILES: usize = 20_000;
const FILE_BYTES: usize = 100_000;

/// Where the last block of a file is that says where it is.
const LAST_BLOCK: usize = FILE_BYTES / BLOCK_BYTES * BLOCK_BYTES;

/// The medium is measured so long, on a file of so many bytes.
const MEDIUM_SECONDS: f64 = 2.0;
const MEDIUM_BYTES: u64 = 1 << 30;

/// Files that a worker reads before it takes the next ones.
const BATCH: usize = 64;

/// Files that are told ahead.
const TOLD_AHEAD: usize = 1024;

/// MB/s from a cold drive with hints, beside the same when the drive has all of them in its memory.
pub(super) fn by_one(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let options = ["--drives", "1", "--size", "6G", "--cache", "2560M"];
    measure(bench, name, &options, (2560 * MIB, 1))
}

/// The same, read by several, each a batch at a time.
pub(super) fn by_workers(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let options = ["--drives", "1", "--size", "6G", "--cache", "2560M"];
    measure(bench, name, &options, (2560 * MIB, 4))
}

/// The same, where each file lies on two drives.
pub(super) fn striped(bench: &Bench<'_>, name: &str) -> Result<Row, BenchError> {
    let drives = ["--drives", "2", "--size", "3G", "--cache", "1536M"];
    let options = [&drives[..], &["--stripe", "raid0", "--stripe-unit", "64K"]].concat();
    measure(bench, name, &options, (2 * 1536 * MIB, 1))
}

/// The drives have so many bytes of memory for a cache, and the files are read by so many.
fn measure(
    bench: &Bench<'_>,
    name: &str,
    options: &[&str],
    (cache_bytes, workers): (usize, usize),
) -> Result<Row, BenchError> {
    let mut cell = Prefetched::start_with(bench, name, options)?;
    for number in 0..FILES {
        cell.make(&format!("sample-{number}"), FILE_BYTES, number)?;
    }
    cell.client.clerk.sync_all()?;
    let (mut cold, mut warm, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        cell.forget(bench)?;
        cell.warm_up(bench, cache_bytes)?;
        let mut order: Vec<usize> = (0..FILES).collect();
        Random(round as u64).shuffle(&mut order);
        cold.push(read_files(&cell, &order, workers, true)?);
        cell.client = cell.cell.connect(&bench.target.cells)?;
        warm.push(read_files(&cell, &order, workers, false)?);
        cell.client = cell.cell.connect(&bench.target.cells)?;
        told.push(read_files(&cell, &order, workers, true)?);
    }
    drop(cell);
    let rate = |seconds: &mut [f64]| (FILES * FILE_BYTES) as f64 / median(seconds) / 1e6;
    let (warm, told) = (rate(&mut warm), rate(&mut told));
    let medium = medium(bench)?;
    let limit_name = format!(
        "without hints, when the drive has everything in memory; with them {told:.0} then, and the medium gives {medium:.0}"
    );
    Ok(Row::new(name, rate(&mut cold), "MB/s", warm, limit_name))
}

/// MB/s that the medium gives to whoever reads as much as a file at a time, as many at once as a client has of a drive's.
fn medium(bench: &Bench<'_>) -> Result<f64, BenchError> {
    let file = DiskFile::new(&bench.target.directory, MEDIUM_BYTES);
    // O_DIRECT wants whole blocks.
    let block = FILE_BYTES.next_multiple_of(BLOCK_BYTES);
    let seconds = Some(MEDIUM_SECONDS);
    let shape = Shape { pattern: "randread", block, depth: 4, sync: Sync::Never, seconds };
    Ok(file.measure(&shape)?.megabytes)
}

/// Opens and reads each of the files; in seconds.
fn read_files(
    cell: &Prefetched,
    order: &[usize],
    workers: usize,
    are_told: bool,
) -> Result<f64, BenchError> {
    let begun = Instant::now();
    let told = if are_told { order } else { &[] };
    let epoch =
        Epoch { cell, hints: cell.hints()?, told: Mutex::new(told), taken: AtomicUsize::new(0) };
    let batches: Vec<&[usize]> = order.chunks(BATCH).collect();
    thread::scope(|scope| {
        let work = || scope.spawn(|| epoch.work(&batches));
        let working: Vec<_> = (0..workers).map(|_| work()).collect();
        working.into_iter().try_for_each(|worker| {
            let failed = || BenchError::Cell("a worker panicked".to_owned());
            worker.join().map_err(|_| failed())?
        })
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// What workers share.
struct Epoch<'a> {
    cell: &'a Prefetched,
    hints: Hints,
    /// What is still to be told.
    told: Mutex<&'a [usize]>,
    /// Batches that somebody reads or has read.
    taken: AtomicUsize,
}

impl Epoch<'_> {
    fn work(&self, batches: &[&[usize]]) -> Result<(), BenchError> {
        let mut bytes = vec![0; FILE_BYTES];
        while let Some(batch) = batches.get(self.taken.fetch_add(1, Ordering::Relaxed)) {
            for &number in *batch {
                self.tell()?;
                self.read(number, &mut bytes)?;
            }
        }
        Ok(())
    }

    fn tell(&self) -> Result<(), BenchError> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        while self.hints.left() < TOLD_AHEAD
            && let Some((next, rest)) = told.split_first()
        {
            let root = self.cell.client.clerk.root();
            self.hints.add_path(root, format!("sample-{next}").as_bytes(), None)?;
            *told = rest;
        }
        Ok(())
    }

    fn read(&self, number: usize, bytes: &mut [u8]) -> Result<(), BenchError> {
        let file = self.cell.open(&format!("sample-{number}"))?;
        let length = file.read(0, bytes)?;
        let is_right = length == FILE_BYTES
            && [0, LAST_BLOCK].iter().all(|at| bytes[*at..at + 8] == word_at(number, *at));
        match is_right {
            true => Ok(()),
            false => Err(BenchError::WrongData { offset: 0 }),
        }
    }
}
