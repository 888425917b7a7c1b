//! Scans: filters run at the drives that have a file's bytes, or here where those can't, and their answers become one result.
//!
//! The file is cut into chunks. Some threads have one each worked on; who wants the rows takes the chunks in the file's
//! order. So drives read and filter what comes next while an answer travels, and memory is bounded by the chunks that
//! are under way.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nasd_filter::remote::{EXTENSION, Part, REVISION, Request, read_answer};
use nasd_filter::{
    Checked, Counts, Fed, Join, MergeError, Merged, Output, Piece, Program, Report, ScanError,
};
use nasd_protocol::limits::{MAX_EXTENSION_BYTES, MAX_TRANSFER_BYTES};
use nasd_types::{ByteRange, Rights};
use thiserror::Error;

use crate::extending::{ExtendedPart, ExtensionCall};
use crate::wire::ExtensionOutcome;
use crate::{ClerkError, OpenFile};

/// Chunks that are worked on at a time.
const THREADS: usize = 3;

/// Chunks that may be there before the one that is wanted is.
const MOST_AHEAD: u64 = 4;

/// Bytes of a chunk of a Select: nearly as many may come back.
const SELECT_BYTES: u64 = 16 << 20;

/// Bytes of a chunk of what is summed up, at least and at most: little comes back.
const SUM_BYTES: (u64, u64) = (8 << 20, 256 << 20);

/// Bytes that are read at a time where it is done here.
const READ_BYTES: usize = 4 << 20;

/// Why a scan has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileScanError {
    /// The file can't be reached.
    #[error(transparent)]
    Clerk(#[from] ClerkError),
    /// What is in it can't be evaluated, or the result is beyond a bound of the plan.
    #[error(transparent)]
    Filter(#[from] MergeError),
    /// A thread can't be started.
    #[error("no thread for a scan: {0}")]
    Thread(String),
}

/// What a scan has come to, besides rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Scanned {
    /// Of an Aggregate or a Top.
    pub merged: Merged,
    /// How many records there were.
    pub counts: Counts,
    /// How the work was done.
    pub work: Work,
}

/// Where the work of a scan was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes that drives looked at.
    pub drive_bytes: u64,
    /// Bytes that they told about those.
    pub told_bytes: u64,
    /// Bytes that were read and looked at here.
    pub read_bytes: u64,
}

/// How a scan is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// All bytes are read and looked at here.
    pub here: bool,
}

/// A scan under way: its rows, in the file's order, then its result.
pub struct FileScan {
    shared: Arc<Shared>,
    /// Of them nothing is used; they end with it.
    _threads: Threads,
    join: Join,
    chunk: u64,
    is_over: bool,
    work: Work,
}

/// Those that have chunks worked on, until it is over.
struct Threads {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
}

struct Shared {
    file: Arc<OpenFile>,
    checked: Checked,
    arguments: Vec<u8>,
    file_bytes: u64,
    chunk_bytes: u64,
    job: u64,
    state: Mutex<State>,
    /// A chunk was taken, or is there, or it is over.
    changed: Condvar,
}

struct State {
    /// The first chunk that nobody works on.
    next: u64,
    /// The chunk that is wanted.
    wanted: u64,
    there: BTreeMap<u64, Result<Chunk, ClerkError>>,
    here: bool,
    is_over: bool,
}

/// What there is of a chunk.
enum Chunk {
    /// What drives told, whole and right.
    Told(Vec<ExtendedPart>),
    /// What was found here.
    Found(Found),
}

struct Found {
    piece: Piece,
    end: u64,
    given: Vec<u8>,
    report: Report,
    /// The partial result, or why there is none.
    result: Result<Vec<u8>, ScanError>,
}

impl FileScan {
    /// Begins one over all of a file that is open for reading.
    ///
    /// # Errors
    ///
    /// [`FileScanError::Thread`]; `NotOpenForThis`.
    pub fn start(
        file: Arc<OpenFile>,
        checked: &Checked,
        options: ScanOptions,
    ) -> Result<FileScan, FileScanError> {
        if !file.mode().read {
            return Err(ClerkError::NotOpenForThis.into());
        }
        let file_bytes = file.size();
        let plan = checked.plan().clone();
        let is_select = matches!(plan.program, Program::Select(_));
        let (least, most) = SUM_BYTES;
        let chunk_bytes = match is_select {
            true => SELECT_BYTES,
            // So that all threads have some.
            false => (file_bytes / 8).clamp(least, most).next_multiple_of(least),
        };
        let state = State {
            next: 0,
            wanted: 0,
            there: BTreeMap::new(),
            here: options.here,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            file,
            checked: checked.clone(),
            arguments: nasd_xdr::to_bytes(&Request { file_bytes, plan }),
            file_bytes,
            chunk_bytes,
            job: new_job(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let join = Join::new(checked);
        let is_over = join.left() == 0;
        let work = Work::default();
        let count = file_bytes.div_ceil(chunk_bytes).min(THREADS as u64);
        let _threads = Threads::start(&shared, count)?;
        Ok(FileScan { shared, _threads, join, chunk: 0, is_over, work })
    }

    /// Gives the rows of the next part of the file, whole ones, in slices of some of them. Tells whether there may be more; of what is no
    /// Select there are none.
    ///
    /// # Errors
    ///
    /// [`FileScanError`]; the scan is over then.
    pub fn next_rows(&mut self, give: &mut dyn FnMut(&[u8])) -> Result<bool, FileScanError> {
        if self.is_over || self.chunk * self.shared.chunk_bytes >= self.shared.file_bytes {
            return Ok(false);
        }
        let chunk = self.shared.take(self.chunk);
        self.chunk += 1;
        let taken = chunk.map_err(FileScanError::from);
        let taken = taken.and_then(|chunk| self.take(chunk, give));
        self.is_over = !matches!(taken, Ok(true));
        taken
    }

    /// What it has come to, after the rest of the rows.
    ///
    /// # Errors
    ///
    /// [`FileScanError`].
    pub fn finish(mut self, give: &mut dyn FnMut(&[u8])) -> Result<Scanned, FileScanError> {
        while self.next_rows(give)? {}
        let (merged, counts) = self.join.finish(give)?;
        Ok(Scanned { merged, counts, work: self.work })
    }

    /// Joins what there is of the next chunk. Tells whether more is needed.
    fn take(&mut self, chunk: Chunk, give: &mut dyn FnMut(&[u8])) -> Result<bool, FileScanError> {
        match chunk {
            Chunk::Told(told) => {
                let (parts, results) = read_all(&told, self.shared.file_bytes)?;
                self.work.told_bytes += told.iter().map(|part| part.data.len() as u64).sum::<u64>();
                for part in &parts {
                    self.work.drive_bytes += part.end - part.piece.offset;
                    if !self.join.head(part, give)? || !self.join.rest(part, give)? {
                        return Ok(false);
                    }
                }
                for result in results {
                    self.join.add(result)?;
                }
                Ok(true)
            }
            Chunk::Found(found) => {
                self.work.read_bytes += found.end - found.piece.offset;
                if !self.join.head(&found.part(), give)? {
                    return Ok(false);
                }
                let found = match (&found.result, self.shared.checked.plan().limit()) {
                    // What is behind the LIMIT doesn't count.
                    (Err(_), Some(_)) => self.shared.find_less(&found, self.join.left())?,
                    _ => found,
                };
                let result = found.result.as_ref().map_err(|error| MergeError::from(*error))?;
                let more = self.join.rest(&found.part(), give)?;
                self.join.add(result)?;
                Ok(more)
            }
        }
    }
}

impl Threads {
    fn start(shared: &Arc<Shared>, count: u64) -> Result<Threads, FileScanError> {
        let mut threads = Threads { shared: Arc::clone(shared), handles: Vec::new() };
        for _ in 0..count {
            let shared = Arc::clone(shared);
            let started = thread::Builder::new().name("scan".into()).spawn(move || shared.work());
            let started = started.map_err(|error| FileScanError::Thread(error.to_string()));
            threads.handles.push(started?);
        }
        Ok(threads)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.handles.drain(..) {
            // One that panicked has said so.
            thread.join().ok();
        }
    }
}

impl fmt::Debug for FileScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileScan").field("chunk", &self.chunk).finish_non_exhaustive()
    }
}

impl Found {
    fn part(&self) -> Part<'_> {
        let Found { piece, end, ref given, report, .. } = *self;
        let (head, rest) = given.split_at(report.head_bytes as usize);
        // One that failed has told no tail.
        let (rows, tail) = rest.split_at(rest.len().min(report.row_bytes as usize));
        Part { piece, end, report, head, rows, tail }
    }
}

/// What drives told of a chunk, in the file's order, and the partial results.
fn read_all(
    told: &[ExtendedPart],
    file_bytes: u64,
) -> Result<(Vec<Part<'_>>, Vec<&[u8]>), ClerkError> {
    let (mut parts, mut results) = (Vec::new(), Vec::new());
    for part in told {
        let pieces = part.pieces.iter().map(|piece| piece.offset..piece.end());
        let read = read_answer(pieces, part.position, file_bytes, &part.data);
        let (read, result) = read.map_err(|error| {
            ClerkError::Protocol(format!(
                "drive {} does not answer a scan right: {error}",
                part.drive
            ))
        })?;
        parts.extend(read);
        results.push(result);
    }
    parts.sort_by_key(|part| part.piece.offset);
    Ok((parts, results))
}

/// Whether the parts are all of a range, up to its end or a LIMIT.
fn are_whole(parts: &[Part<'_>], range: ByteRange) -> bool {
    let mut at = range.offset;
    for part in parts {
        if part.piece.offset != at {
            return false;
        }
        if part.report.done {
            return true;
        }
        at = part.end;
    }
    at == range.end()
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// The next chunk, when it is there.
    fn take(&self, wanted: u64) -> Result<Chunk, ClerkError> {
        let mut state = self.lock();
        state.wanted = wanted;
        self.changed.notify_all();
        loop {
            if let Some(chunk) = state.there.remove(&wanted) {
                return chunk;
            }
            state = self.wait(state);
        }
    }

    /// What a thread does.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            let range = self.range(state.next);
            if state.is_over || range.is_empty() {
                return;
            }
            if state.next >= state.wanted + MOST_AHEAD {
                state = self.wait(state);
                continue;
            }
            let (number, here) = (state.next, state.here);
            state.next += 1;
            drop(state);
            // Who waits for the chunk must hear of it in any case.
            let done = catch_unwind(AssertUnwindSafe(|| self.do_chunk(range, here)));
            let bug = || ClerkError::Protocol("a scan has panicked: see the log".to_owned());
            let chunk = done.unwrap_or_else(|_| Err(bug()));
            state = self.lock();
            // What was left to this clerk once will be so again, mostly.
            state.here |= matches!(chunk, Ok(Chunk::Found(_)));
            state.there.insert(number, chunk);
            self.changed.notify_all();
        }
    }

    fn range(&self, number: u64) -> ByteRange {
        let all = ByteRange::new(0, self.file_bytes);
        ByteRange::new(number * self.chunk_bytes, self.chunk_bytes).intersection(&all)
    }

    /// A chunk, from drives if that goes.
    fn do_chunk(&self, range: ByteRange, here: bool) -> Result<Chunk, ClerkError> {
        if !here && self.arguments.len() <= MAX_EXTENSION_BYTES {
            match self.ask(range) {
                Ok(Some(told)) => return Ok(Chunk::Told(told)),
                Ok(None) => {}
                // A drive may have gone: a read finds another one that has the bytes.
                Err(error) => tracing::debug!(%error, "a scan goes on without its drive"),
            }
        }
        Ok(Chunk::Found(self.find(range, &self.checked)?))
    }

    /// What drives tell of a range, if they tell of all of it.
    fn ask(&self, range: ByteRange) -> Result<Option<Vec<ExtendedPart>>, ClerkError> {
        let call = ExtensionCall {
            extension: (EXTENSION, REVISION),
            rights: Rights::READ,
            most: MAX_TRANSFER_BYTES,
            arguments: self.arguments.clone(),
            job: self.job,
            bytes_left: self.file_bytes - range.offset,
        };
        let told = self.file.extend(range, &call)?;
        if let Some(part) = told.iter().find(|part| part.outcome != ExtensionOutcome::Done) {
            let text = String::from_utf8_lossy(&part.data);
            tracing::debug!(drive = %part.drive, %text, "a drive leaves a scan to its client");
            return Ok(None);
        }
        let are_whole =
            read_all(&told, self.file_bytes).is_ok_and(|(parts, _)| are_whole(&parts, range));
        Ok(are_whole.then_some(told))
    }

    /// Looks at a range here.
    fn find(&self, range: ByteRange, checked: &Checked) -> Result<Found, ClerkError> {
        let ends_file = range.end() == self.file_bytes;
        let piece = Piece { offset: range.offset, starts_record: false, ends_file };
        let mut scan = checked.start();
        let mut given = Vec::new();
        let mut failed = None;
        scan.begin_piece(piece);
        let (mut at, mut scratch) = (range.offset, Vec::new());
        while at < range.end() && failed.is_none() && !self.lock().is_over {
            let length = READ_BYTES.min(usize::try_from(range.end() - at).unwrap_or(READ_BYTES));
            let fed = self.file.read_with(at, length, &mut scratch, |bytes| {
                // A file that was cut meanwhile ends with zeros, as it does at the drives.
                let missing = vec![0; length - bytes.len()];
                let fed = feed(&mut given, bytes, |bytes, output| scan.feed(bytes, output));
                match fed {
                    Ok(false) => {
                        feed(&mut given, &missing, |bytes, output| scan.feed(bytes, output))
                    }
                    fed => fed,
                }
            })?;
            match fed {
                Ok(true) => break,
                Ok(false) => at += length as u64,
                Err(error) => failed = Some(error),
            }
        }
        let result = match failed {
            Some(error) => Err(error),
            None => feed(&mut given, &[], |_, output| scan.end_piece(output)),
        };
        let report = scan.report();
        let mut partial = Vec::new();
        let result = result
            .and_then(|_| feed(&mut partial, &[], |_, output| scan.finish(output)))
            .map(|_| partial);
        Ok(Found { piece, end: range.end(), given, report, result })
    }

    /// The same with what is left of the LIMIT.
    fn find_less(&self, found: &Found, left: u64) -> Result<Found, FileScanError> {
        let range = ByteRange::new(found.piece.offset, found.end - found.piece.offset);
        // A plan with another limit is as right as it was.
        let Ok(less) = self.checked.plan().with_limit(left).check() else {
            return Err(MergeError::OtherProgram.into());
        };
        Ok(self.find(range, &less)?)
    }
}

/// Calls until everything is taken, appending what is written. Tells whether the LIMIT is reached.
fn feed(
    into: &mut Vec<u8>,
    bytes: &[u8],
    mut call: impl FnMut(&[u8], &mut Output<'_>) -> Result<Fed, ScanError>,
) -> Result<bool, ScanError> {
    let mut rest = bytes;
    loop {
        let before = into.len();
        // As much as may be selected, so that once is enough mostly.
        into.resize(before + rest.len() + (64 << 10), 0);
        let mut output = Output::new(&mut into[before..]);
        let fed = call(rest, &mut output);
        let written = output.len();
        into.truncate(before + written);
        match fed? {
            Fed::Full { consumed } => rest = &rest[consumed..],
            fed => return Ok(fed == Fed::Done),
        }
    }
}

/// Unlike those of other scans of this process.
fn new_job() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    u64::from(std::process::id()) << 32 | NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff_ffff
}
