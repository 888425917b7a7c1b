//! The thread that scrubs: at a modest rate, and giving way to requests.
//!
//! It reads a piece, rests as long as the rate asks for, and while requests keep coming rests longer,
//! up to [`BUSY_FACTOR`] times: a drive that is never idle is scrubbed too, only slower. What it finds
//! is logged and counted; the last pass that ended is remembered.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_store::{ScrubCursor, ScrubFinding};
use nasd_types::Timestamp;

use crate::Drive;
use crate::stopping::Stopping;

/// Pieces that are read in a second, if the rate makes them large enough.
const PIECES_PER_SECOND: u64 = 4;

/// The smallest piece, in bytes.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// The largest piece, in bytes.
const PIECE_BYTES_MAX: u64 = 16 << 20;

/// By how much requests may slow the scrub down.
const BUSY_FACTOR: u32 = 8;

/// Findings of one piece that are logged; the rest is only counted.
const LOGGED_MAX: usize = 16;

/// Pause after metadata could not be read: the next objects will most likely fail again.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// A pass of the scrub over everything that the drive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPass {
    /// When it began, by the drive's clock.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Bytes of data blocks that were read.
    pub read_bytes: u64,
    /// Data blocks that are not what was written.
    pub bad_blocks: u64,
    /// Objects whose metadata could not be read, so that they were skipped.
    pub skipped: u64,
}

/// What the scrub did since the drive's start.
#[derive(Debug, Default)]
pub(crate) struct ScrubProgress {
    read_bytes: AtomicU64,
    bad_blocks: AtomicU64,
    passes: AtomicU64,
    last: Mutex<Option<ScrubPass>>,
}

impl ScrubProgress {
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn bad_blocks(&self) -> u64 {
        self.bad_blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }

    /// The last pass that ended.
    pub(crate) fn last(&self) -> Option<ScrubPass> {
        // A whole value is put in its place.
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, pass: ScrubPass) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(pass);
        self.passes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts the thread, unless the drive is not to be scrubbed.
pub(crate) fn start(
    drive: Arc<Drive>,
    stopping: Arc<Stopping>,
) -> io::Result<Option<JoinHandle<()>>> {
    if drive.options.scrub_bytes_per_second == 0 {
        return Ok(None);
    }
    let thread = thread::Builder::new().name("nasd-scrub".to_owned());
    thread.spawn(move || scrub(&drive, &stopping)).map(Some)
}

/// Scrubs until the drive stops.
fn scrub(drive: &Drive, stopping: &Stopping) {
    let rate = drive.options.scrub_bytes_per_second;
    let piece = (rate / PIECES_PER_SECOND).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
    let rest_of = |bytes: u64| Duration::from_secs_f64(bytes as f64 / rate as f64);
    // The drive has other things to do when it starts.
    let mut rest = rest_of(piece);
    loop {
        let began = Instant::now();
        let mut pass = new_pass(drive);
        let mut cursor = ScrubCursor::default();
        loop {
            if pause(drive, stopping, rest) {
                return;
            }
            let start = Instant::now();
            let finished = match drive.store.scrub(&mut cursor, piece) {
                Ok(step) => {
                    note(drive, &mut pass, step.read_bytes, &step.findings);
                    rest = rest_of(step.read_bytes).saturating_sub(start.elapsed());
                    step.finished
                }
                Err(error) => {
                    tracing::error!(%error, "the scrub skips what it can't find");
                    pass.skipped += 1;
                    rest = FAILURE_PAUSE;
                    false
                }
            };
            if finished {
                break;
            }
        }
        end(drive, pass);
        rest = drive.options.scrub_every.saturating_sub(began.elapsed()).max(rest_of(piece));
    }
}

fn new_pass(drive: &Drive) -> ScrubPass {
    let now = drive.environment.now();
    ScrubPass { started: now, ended: now, read_bytes: 0, bad_blocks: 0, skipped: 0 }
}

/// Rests, and for longer while requests come. Whether the drive stops.
fn pause(drive: &Drive, stopping: &Stopping, rest: Duration) -> bool {
    for _ in 0..BUSY_FACTOR {
        let before = drive.counters.requests();
        if stopping.wait(rest) {
            return true;
        }
        if drive.counters.requests() == before {
            break;
        }
    }
    false
}

fn note(drive: &Drive, pass: &mut ScrubPass, read_bytes: u64, findings: &[ScrubFinding]) {
    let bad = findings.len() as u64;
    pass.read_bytes += read_bytes;
    pass.bad_blocks += bad;
    drive.scrub.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
    drive.scrub.bad_blocks.fetch_add(bad, Ordering::Relaxed);
    for finding in findings.iter().take(LOGGED_MAX) {
        let ScrubFinding { fault, device_offset, holders } = finding;
        for holder in holders {
            let (object, offset) = (holder.object, holder.offset);
            tracing::error!(%object, offset, device_offset, "a data block is bad: {fault}");
        }
    }
    if findings.len() > LOGGED_MAX {
        tracing::error!(blocks = findings.len() - LOGGED_MAX, "and more bad data blocks");
    }
}

fn end(drive: &Drive, pass: ScrubPass) {
    let pass = ScrubPass { ended: drive.environment.now(), ..pass };
    let ScrubPass { read_bytes, bad_blocks, skipped, .. } = pass;
    if bad_blocks > 0 || skipped > 0 {
        tracing::warn!(read_bytes, bad_blocks, skipped, "a pass of the scrub ended");
    } else {
        tracing::info!(read_bytes, "a pass of the scrub ended and found nothing");
    }
    drive.scrub.ended(pass);
}
