//! Scans of Parquet files: of the groups of rows that may have what is wanted the columns that are needed are read, and looked at here.
//!
//! Some threads have one group each; who wants the result takes it in the file's order. Each column is read ahead of what is decoded.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nasd_filter::parquet::{GroupJoin, GroupScan, ParquetError, ParquetFile, ReadAt, Rows};
use nasd_filter::{Checked, Format, MergeError};
use nasd_types::ByteRange;
use thiserror::Error;

use crate::scanning::secret;
use crate::{ClerkError, OpenFile, Scanned, Work};

/// Groups that are worked on at a time.
const THREADS: u64 = 3;

/// Groups that may be done before the one that is wanted is.
const MOST_AHEAD: usize = 6;

/// Slices of rows of a group, of a mebibyte and some, that may be there before they are wanted.
const SLICES_AHEAD: usize = 2;

/// Bytes that groups which are worked on may have decoded, all together.
const DECODED_BYTES: u64 = 2 << 30;

/// Why a scan of a Parquet file has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParquetScanError {
    /// The file can't be reached.
    #[error(transparent)]
    Clerk(#[from] ClerkError),
    /// It is no Parquet file that can be scanned.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// What is in it can't be evaluated, or the result is beyond a bound of the plan.
    #[error(transparent)]
    Filter(#[from] MergeError),
    /// A thread can't be started.
    #[error("no thread for a scan: {0}")]
    Thread(String),
}

/// A Parquet file whose end was read.
pub struct OpenParquet {
    file: Arc<OpenFile>,
    parquet: Arc<ParquetFile>,
    bytes: Arc<Bytes>,
}

/// A scan under way: its rows, in the file's order, then its result.
pub struct ParquetScan {
    shared: Arc<Shared>,
    /// What those tell that are not taken yet, of each group.
    told: VecDeque<Receiver<Told>>,
    so_far: ParquetSoFar,
    is_over: bool,
    threads: Vec<JoinHandle<()>>,
}

/// What some files have come to, each behind the one before.
pub struct ParquetSoFar {
    join: GroupJoin,
    read_bytes: u64,
}

/// What is told of a group, in this order.
enum Told {
    Rows(Rows),
    Rest(Box<Result<GroupScan, ParquetError>>),
}

struct Shared {
    file: Arc<OpenFile>,
    parquet: Arc<ParquetFile>,
    bytes: Arc<Bytes>,
    checked: Checked,
    state: Mutex<State>,
    /// A group was taken, or it is over.
    changed: Condvar,
}

struct State {
    /// Groups that nobody works on yet.
    left: VecDeque<(usize, SyncSender<Told>)>,
    /// Groups that were begun and not taken.
    ahead: usize,
    is_over: bool,
}

/// What reading a file comes to.
#[derive(Default)]
struct Bytes {
    read: AtomicU64,
    /// Why it has failed first.
    failed: Mutex<Option<ClerkError>>,
}

/// Somebody who reads a part of the file from its begin to its end.
struct Part {
    file: OpenFile,
    bytes: Arc<Bytes>,
}

impl Part {
    fn new(file: &OpenFile, range: ByteRange, bytes: &Arc<Bytes>) -> Part {
        Part { file: file.part(range), bytes: Arc::clone(bytes) }
    }
}

impl ReadAt for Part {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), String> {
        match self.file.read(offset, into) {
            Ok(length) if length == into.len() => {
                self.bytes.read.fetch_add(length as u64, Ordering::Relaxed);
                Ok(())
            }
            Ok(_) => Err("the file is shorter than it was".to_owned()),
            Err(error) => {
                let text = error.to_string();
                let mut failed = self.bytes.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
                Err(text)
            }
        }
    }
}

impl Bytes {
    /// Where reading has failed that is the error.
    fn error(&self, error: ParquetError) -> ParquetScanError {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match (&error, &*failed) {
            (ParquetError::Read(_), Some(failed)) => failed.clone().into(),
            _ => error.into(),
        }
    }
}

impl OpenParquet {
    /// Reads what the end of a file tells about it, which is open for reading.
    ///
    /// # Errors
    ///
    /// [`ParquetScanError`]: `NotOpenForThis`; and if it is no Parquet file.
    pub fn open(file: Arc<OpenFile>) -> Result<OpenParquet, ParquetScanError> {
        if !file.mode().read {
            return Err(ClerkError::NotOpenForThis.into());
        }
        let (size, bytes) = (file.settled_size()?, Arc::default());
        let reader = Part::new(&file, ByteRange::new(size, 0), &bytes);
        let parquet = ParquetFile::open(&reader, size).map_err(|error| bytes.error(error))?;
        Ok(OpenParquet { file, parquet: Arc::new(parquet), bytes })
    }

    /// Its columns that can be read.
    pub fn format(&self) -> Format {
        self.parquet.format()
    }

    /// Names of the others, and why each can't be.
    pub fn unreadable(&self) -> &[(String, String)] {
        self.parquet.unreadable()
    }

    /// How many groups of rows it has.
    pub fn groups(&self) -> usize {
        self.parquet.groups()
    }

    /// Begins a scan of it.
    ///
    /// # Errors
    ///
    /// [`ParquetScanError::Thread`].
    pub fn scan(&self, checked: &Checked) -> Result<ParquetScan, ParquetScanError> {
        self.scan_behind(checked, ParquetSoFar::none(checked))
    }

    /// The same behind what other files, with the same columns, have come to by the same program.
    ///
    /// # Errors
    ///
    /// As `scan`.
    pub fn scan_behind(
        &self,
        checked: &Checked,
        so_far: ParquetSoFar,
    ) -> Result<ParquetScan, ParquetScanError> {
        let checked = checked.with_secret(secret());
        let mut groups = Vec::new();
        for group in 0..self.parquet.groups() {
            if self.parquet.may_select(&checked, group)? {
                groups.push(group);
            }
        }
        let decoded = groups.iter().map(|group| self.parquet.decoded_bytes(&checked, *group));
        let at_a_time = DECODED_BYTES / decoded.max().unwrap_or(0).max(1);
        let threads = at_a_time.clamp(1, THREADS).min(groups.len() as u64);
        let channels = groups.iter().map(|_| sync_channel(SLICES_AHEAD));
        let (senders, told): (Vec<_>, VecDeque<_>) = channels.unzip();
        let left = groups.into_iter().zip(senders).collect();
        let shared = Arc::new(Shared {
            file: Arc::clone(&self.file),
            parquet: Arc::clone(&self.parquet),
            bytes: Arc::clone(&self.bytes),
            checked,
            state: Mutex::new(State { left, ahead: 0, is_over: false }),
            changed: Condvar::new(),
        });
        let mut scan = ParquetScan { shared, told, so_far, is_over: false, threads: Vec::new() };
        for _ in 0..threads {
            scan.start_thread()?;
        }
        Ok(scan)
    }
}

impl ParquetScan {
    fn start_thread(&mut self) -> Result<(), ParquetScanError> {
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new().name("groups".into()).spawn(move || shared.run());
        self.threads.push(started.map_err(|error| ParquetScanError::Thread(error.to_string()))?);
        Ok(())
    }

    /// Gives some of the next rows, whole ones. Tells whether there may be more; of what is no Select there are none.
    ///
    /// # Errors
    ///
    /// [`ParquetScanError`]; the scan is over then.
    pub fn next_rows(&mut self, give: &mut dyn FnMut(&[u8])) -> Result<bool, ParquetScanError> {
        if self.is_over || self.so_far.is_over() {
            return Ok(false);
        }
        let Some(first) = self.told.front() else {
            return Ok(false);
        };
        let told = first.recv();
        let taken = self.take(told.ok(), give);
        self.is_over = taken.is_err();
        taken.map(|()| true)
    }

    /// What it has come to, after the rest of the rows.
    ///
    /// # Errors
    ///
    /// [`ParquetScanError`].
    pub fn finish(self, give: &mut dyn FnMut(&[u8])) -> Result<Scanned, ParquetScanError> {
        self.end_file(give)?.finish()
    }

    /// The same of this file and those before it, for who scans another one behind it.
    ///
    /// # Errors
    ///
    /// [`ParquetScanError`].
    pub fn end_file(
        mut self,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<ParquetSoFar, ParquetScanError> {
        while self.next_rows(give)? {}
        let none = ParquetSoFar::none(&self.shared.checked);
        let mut so_far = std::mem::replace(&mut self.so_far, none);
        so_far.join.end_file(self.shared.parquet.records());
        so_far.read_bytes += self.shared.bytes.read.load(Ordering::Relaxed);
        Ok(so_far)
    }

    /// How many groups of rows are looked at, if it is not over before that.
    pub fn groups(&self) -> usize {
        self.told.len()
    }

    fn take(
        &mut self,
        told: Option<Told>,
        give: &mut dyn FnMut(&[u8]),
    ) -> Result<(), ParquetScanError> {
        match told {
            Some(Told::Rows(rows)) => self.so_far.join.rows(&rows, give),
            Some(Told::Rest(rest)) => {
                self.told.pop_front();
                self.shared.lock().ahead -= 1;
                self.shared.changed.notify_all();
                let scan = (*rest).map_err(|error| self.shared.bytes.error(error))?;
                self.so_far.join.rest(&scan)?;
            }
            None => {
                let why = "the work on a group of rows has panicked: see the log".to_owned();
                return Err(ClerkError::Protocol(why).into());
            }
        }
        Ok(())
    }
}

impl ParquetSoFar {
    /// None yet, for a program.
    pub fn none(checked: &Checked) -> ParquetSoFar {
        ParquetSoFar { join: GroupJoin::new(&checked.with_secret(secret())), read_bytes: 0 }
    }

    /// Whether the LIMIT is reached: no other file is needed.
    pub fn is_over(&self) -> bool {
        self.join.is_over()
    }

    /// The result.
    ///
    /// # Errors
    ///
    /// [`ParquetScanError::Filter`].
    pub fn finish(self) -> Result<Scanned, ParquetScanError> {
        let (merged, counts) = self.join.finish()?;
        let work = Work { read_bytes: self.read_bytes, ..Work::default() };
        Ok(Scanned { merged, counts, work, first_bad: None })
    }
}

impl Drop for ParquetScan {
    fn drop(&mut self) {
        // Who waits to tell something has nobody to tell it to then.
        self.told.clear();
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            thread.join().ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread does.
    fn run(&self) {
        while let Some((group, sender)) = self.next() {
            let rest = self.scan(group, &sender);
            // Whether anybody wants it is told by the state.
            sender.send(Told::Rest(Box::new(rest))).ok();
        }
    }

    fn next(&self) -> Option<(usize, SyncSender<Told>)> {
        let mut state = self.lock();
        while !state.is_over && state.ahead >= MOST_AHEAD {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_over {
            return None;
        }
        let next = state.left.pop_front()?;
        state.ahead += 1;
        Some(next)
    }

    fn scan(&self, group: usize, sender: &SyncSender<Told>) -> Result<GroupScan, ParquetError> {
        let ranges = self.parquet.ranges(&self.checked, group)?;
        let readers = ranges.into_iter().map(|range| self.reader(range)).collect();
        let mut give = |rows| sender.send(Told::Rows(rows)).is_ok();
        self.parquet.scan_group(&self.checked, group, readers, &mut give)
    }

    fn reader(&self, range: Range<u64>) -> Box<dyn ReadAt> {
        let range = ByteRange::new(range.start, range.end - range.start);
        let part = Part::new(&self.file, range, &self.bytes);
        // All columns are on their way while the first is waited for; whoever reads is told what is wrong.
        part.file.read(range.offset, &mut []).ok();
        Box::new(part)
    }
}

impl fmt::Debug for OpenParquet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenParquet").field("parquet", &self.parquet).finish_non_exhaustive()
    }
}

impl fmt::Debug for ParquetScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetScan").field("groups", &self.groups()).finish_non_exhaustive()
    }
}
