//! Scans: filters run at the drives that have a file's bytes, or here where those can't, and their answers become one result. So do those
//! of several files.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nasd_filter::remote::{Answer, EXTENSION, Part, REVISION, Request, read_answer};
use nasd_filter::{
    Checked, Counts, Fed, Join, MergeError, Merged, Output, Piece, Program, Report, ScanError,
};
use nasd_protocol::limits::MAX_TRANSFER_BYTES;
use nasd_types::ByteRange;
use thiserror::Error;

use crate::chunks::{Chunk, Chunks, Here, Job, Sizes, are_whole};
use crate::extending::ExtendedPart;
use crate::scan_rows::{Memory, ScanRows};
use crate::{ClerkError, OpenFile};

/// Chunks of a Select: of the first ones nearly as many bytes may come back.
const SELECT: Sizes = Sizes { first: 4 << 20, most: 32 << 20, here: 1 << 20 };

/// Those of partial results of which nobody knows how long they are: of few groups, or of as many as there are records.
const PARTIAL: Sizes = Sizes { first: 8 << 20, most: SUM_BYTES.1, here: 8 << 20 };

/// Bytes of a chunk of what is summed up, at least and at most: little comes back.
const SUM_BYTES: (u64, u64) = (8 << 20, 256 << 20);

/// Bytes of memory that a drive has for an answer in any case, unless it was told to have less.
const DRIVE_BYTES: usize = 16 << 20;

/// Groups for which a drive is asked at least: of fewer it would find more, mostly.
const LEAST_GROUPS: u32 = 1 << 10;

/// Bytes that there is room for at least when a scan writes.
const LEAST_ROOM: usize = 64 << 10;

/// Bytes that are read at a time where it is done here: what a processor has in its cache while it looks at them.
const READ_BYTES: usize = 1 << 20;

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
    /// The number of the first file with records that are none, as far as that is known.
    pub first_bad: Option<usize>,
}

/// Where the work of a scan was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes that drives looked at.
    pub drive_bytes: u64,
    /// Bytes that they told about those, as they came.
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

/// A scan under way: its rows, in the order of the files and in each file's own, then its result.
pub struct FileScan {
    checked: Checked,
    options: ScanOptions,
    /// Of the files that are worked on: what is taken is of the first one.
    files: VecDeque<Chunks<ScanJob>>,
    /// Files before that one.
    passed: usize,
    /// The first one with records that are none.
    first_bad: Option<usize>,
    join: Join,
    is_over: bool,
    work: Work,
}

struct ScanJob {
    checked: Checked,
    file_bytes: u64,
    /// Room that rows were in: new room would be cleared first, page by page.
    spare: Mutex<Vec<Given>>,
}

/// What was found of a chunk here.
struct Found {
    piece: Piece,
    end: u64,
    given: Given,
    report: Report,
    /// The partial result, or why there is none.
    result: Result<Vec<u8>, ScanError>,
}

impl Sizes {
    /// Chunks of what comes to little, so that all threads have some.
    pub(crate) fn of_sums(file_bytes: u64) -> Sizes {
        let (least, most) = SUM_BYTES;
        let bytes = (file_bytes / 8).clamp(least, most).next_multiple_of(least);
        Sizes { first: bytes, most: bytes, here: bytes }
    }
}

impl FileScan {
    /// Begins one over all of a file that is open for reading, with what was written and appended here.
    ///
    /// # Errors
    ///
    /// [`FileScanError::Thread`]; `NotOpenForThis`; `Interrupted`.
    pub fn start(
        file: Arc<OpenFile>,
        checked: &Checked,
        options: ScanOptions,
    ) -> Result<FileScan, FileScanError> {
        let mut scan = FileScan::of_none(checked, options);
        scan.add(file)?;
        Ok(scan)
    }

    /// One of no file yet: they are to be added in their order, some before they are taken, so that several drives are at work.
    pub fn of_none(checked: &Checked, options: ScanOptions) -> FileScan {
        let checked = checked.with_secret(secret());
        let join = Join::new(&checked);
        let is_over = join.left() == 0;
        let (files, work) = (VecDeque::new(), Work::default());
        FileScan { checked, options, files, passed: 0, first_bad: None, join, is_over, work }
    }

    /// Puts all of a file behind those that there are, as `start` does. One behind what a LIMIT leaves is not looked at.
    ///
    /// # Errors
    ///
    /// As `start`.
    pub fn add(&mut self, file: Arc<OpenFile>) -> Result<(), FileScanError> {
        if !file.mode().read {
            return Err(ClerkError::NotOpenForThis.into());
        }
        if self.is_over {
            return Ok(());
        }
        let file_bytes = file.settled_size()?;
        let sizes = match &self.checked.plan().program {
            Program::Select(_) => SELECT,
            Program::Aggregate(aggregate) if aggregate.keys.is_empty() => {
                Sizes::of_sums(file_bytes)
            }
            Program::Aggregate(_) | Program::Top(_) => PARTIAL,
        };
        let job = ScanJob::new(self.checked.clone(), file_bytes);
        let here = self.options.here || file.is_rather_read(file_bytes);
        let chunks = Chunks::start((file, file_bytes), job, sizes, here);
        self.files.push_back(chunks.map_err(|error| FileScanError::Thread(error.to_string()))?);
        Ok(())
    }

    /// Whether no other file is needed, as a LIMIT is reached or something has failed.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Files that are worked on, but for those whose rows were all given.
    pub fn under_way(&self) -> usize {
        self.files.len()
    }

    /// Files whose rows were all given: the number of the one that rows are given of next, or that a failure is about.
    pub fn passed(&self) -> usize {
        self.passed
    }

    /// Gives the rows of the next part of a file, whole ones, in slices of some of them. Tells whether there may be more, without files
    /// that are added later; of what is no Select there are none.
    ///
    /// # Errors
    ///
    /// [`FileScanError`]; the scan is over then. `Cut` if the file has become shorter since it began: what was given is void.
    pub fn next_rows(&mut self, give: &mut dyn FnMut(&[u8])) -> Result<bool, FileScanError> {
        let mut rows = ScanRows::default();
        let more = self.next_part(&mut rows);
        rows.slices().for_each(give);
        self.reuse(&mut rows);
        more
    }

    /// The same rows in `rows`, in the memory that they came in; that of what was there before is used again. If it fails, they are those
    /// that came before.
    ///
    /// # Errors
    ///
    /// As [`next_rows`](Self::next_rows).
    pub fn next_part(&mut self, rows: &mut ScanRows) -> Result<bool, FileScanError> {
        self.reuse(rows);
        if self.is_over {
            return Ok(false);
        }
        let Some(chunks) = self.files.front_mut() else {
            return Ok(false);
        };
        let taken = match chunks.next() {
            Some(Ok(chunk)) => self.take(chunk, rows),
            Some(Err(error)) => Err(error.into()),
            None => self.end_file(rows),
        };
        self.is_over = !matches!(taken, Ok(true));
        if self.is_over {
            self.files.iter().for_each(Chunks::end);
        }
        if let (Ok(false), Some(chunks)) = (&taken, self.files.front()) {
            chunks.check_uncut()?;
        }
        Ok(taken? && !self.files.is_empty())
    }

    /// Nobody looks any more at these rows.
    fn reuse(&self, rows: &mut ScanRows) {
        let memory = rows.release();
        match (self.files.front(), memory) {
            (Some(chunks), Memory::Answers(answers)) => chunks.give_back(answers),
            (Some(chunks), Memory::Room(room)) => {
                chunks.job().spare().push(Given { room, ..Given::default() });
            }
            (None, _) => {}
        }
    }

    /// The first file is at its end. Tells whether more is needed.
    fn end_file(&mut self, rows: &mut ScanRows) -> Result<bool, FileScanError> {
        let Some(chunks) = self.files.front() else {
            return Ok(true);
        };
        chunks.end();
        chunks.check_uncut()?;
        let is_more = self.join.end_file(chunks.job().file_bytes, &mut |row| rows.put(row))?;
        self.files.pop_front();
        self.note_bad();
        self.passed += 1;
        Ok(is_more)
    }

    fn note_bad(&mut self) {
        if self.first_bad.is_none() && self.join.bad() > 0 {
            self.first_bad = Some(self.passed);
        }
    }

    /// What it has come to, after the rest of the rows.
    ///
    /// # Errors
    ///
    /// [`FileScanError`].
    pub fn finish(mut self, give: &mut dyn FnMut(&[u8])) -> Result<Scanned, FileScanError> {
        while self.next_rows(give)? {}
        self.note_bad();
        let (merged, counts) = self.join.finish(give)?;
        Ok(Scanned { merged, counts, work: self.work, first_bad: self.first_bad })
    }

    /// Joins what there is of the next chunk. Tells whether more is needed.
    fn take(&mut self, chunk: Chunk<Found>, rows: &mut ScanRows) -> Result<bool, FileScanError> {
        match chunk {
            Chunk::Told(told, came) => {
                self.work.told_bytes += came.bytes;
                let more = self.take_told(&told, rows);
                rows.hold(Memory::Answers(told.into_iter().map(|part| part.data).collect()));
                more
            }
            Chunk::Found(found) => self.take_found(found, rows),
        }
    }

    fn take_told(
        &mut self,
        told: &[ExtendedPart],
        rows: &mut ScanRows,
    ) -> Result<bool, FileScanError> {
        let Some(chunks) = self.files.front() else {
            return Ok(false);
        };
        // What drives do takes no room here.
        chunks.job().spare().clear();
        let (parts, results) = read_all(told, chunks.job().file_bytes)?;
        let memory: Vec<&[u8]> = told.iter().map(|part| part.data.as_slice()).collect();
        for part in &parts {
            self.work.drive_bytes += part.end - part.piece.offset;
            let mut put = |slice: &[u8]| rows.put_held(&memory, slice);
            if !self.join.head(part, &mut put)? || !self.join.rest(part, &mut put)? {
                return Ok(false);
            }
        }
        for result in results {
            self.join.add(result)?;
        }
        Ok(true)
    }

    fn take_found(&mut self, found: Found, rows: &mut ScanRows) -> Result<bool, FileScanError> {
        let Some(chunks) = self.files.front() else {
            return Ok(false);
        };
        self.work.read_bytes += found.end - found.piece.offset;
        if !self.join.head(&found.part(), &mut |row| rows.put(row))? {
            return Ok(false);
        }
        let found = match (&found.result, self.checked.plan().limit()) {
            // What is behind the LIMIT doesn't count.
            (Err(_), Some(_)) => find_less(chunks, &found, self.join.left())?,
            _ => found,
        };
        let result = found.result.as_ref().map_err(|error| MergeError::from(*error))?;
        let memory = [found.given.bytes()];
        let more = self.join.rest(&found.part(), &mut |slice| rows.put_held(&memory, slice));
        let added = self.join.add(result);
        rows.hold(Memory::Room(found.given.room));
        let more = more?;
        added?;
        Ok(more)
    }

    /// Whether the places of groups in tables are nobody's to foresee.
    #[cfg(test)]
    pub(crate) fn has_secret(&self) -> bool {
        self.files.iter().all(|chunks| chunks.job().checked.has_secret())
            && self.join.checked().has_secret()
    }
}

/// The same with what is left of the LIMIT.
fn find_less(chunks: &Chunks<ScanJob>, found: &Found, left: u64) -> Result<Found, FileScanError> {
    let range = ByteRange::new(found.piece.offset, found.end - found.piece.offset);
    let job = chunks.job();
    // A plan with another limit is as right as it was.
    let Ok(checked) = job.checked.plan().with_limit(left).check() else {
        return Err(MergeError::OtherProgram.into());
    };
    let less = ScanJob::new(checked, job.file_bytes);
    let here = Here { file: &chunks.file().part(range), range, is_over: &|| false };
    Ok(less.find(&here, &mut Vec::new())?)
}

impl fmt::Debug for FileScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileScan").field("work", &self.work).finish_non_exhaustive()
    }
}

impl Found {
    fn part(&self) -> Part<'_> {
        let Found { piece, end, ref given, report, .. } = *self;
        let (head, rest) = given.bytes().split_at(report.head_bytes as usize);
        // One that failed has told no tail.
        let (rows, tail) = rest.split_at(rest.len().min(report.row_bytes as usize));
        Part { piece, end, report, head, rows, tail }
    }
}

/// What the places of groups in tables depend on in this process, so that nobody can make a file that is slow to group.
pub(crate) fn secret() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static SECRET: OnceLock<u64> = OnceLock::new();
    *SECRET.get_or_init(|| RandomState::new().hash_one(0))
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

impl ScanJob {
    fn new(checked: Checked, file_bytes: u64) -> ScanJob {
        ScanJob { checked, file_bytes, spare: Mutex::default() }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Given>> {
        // Nothing that can panic is done with it.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job for ScanJob {
    type Found = Found;

    const EXTENSION: (u32, u32) = (EXTENSION, REVISION);

    fn arguments(&self) -> Vec<u8> {
        let plan = self.checked.plan().clone();
        nasd_xdr::to_bytes(&Request { file_bytes: self.file_bytes, plan })
    }

    fn lesser_arguments(&self) -> Vec<Vec<u8>> {
        let (plan, mut all) = (self.checked.plan(), Vec::new());
        let mut plan = match &plan.program {
            Program::Aggregate(program) if !program.keys.is_empty() => plan.clone(),
            _ => return all,
        };
        let mut bytes = Answer::memory_bytes(&self.checked, self.most());
        while bytes > DRIVE_BYTES && plan.options.groups > LEAST_GROUPS {
            plan.options.groups = (plan.options.groups / 4).max(LEAST_GROUPS);
            // A plan with another bound is as right as it was.
            let Ok(checked) = plan.check() else { break };
            bytes = Answer::memory_bytes(&checked, self.most());
            let request = Request { file_bytes: self.file_bytes, plan: plan.clone() };
            all.push(nasd_xdr::to_bytes(&request));
        }
        all
    }

    fn most(&self) -> usize {
        MAX_TRANSFER_BYTES
    }

    fn is_whole(&self, told: &[ExtendedPart], range: ByteRange) -> bool {
        let tell = |part: &Part<'_>| (part.piece.offset, part.end, part.report.done);
        read_all(told, self.file_bytes)
            .is_ok_and(|(parts, _)| are_whole(parts.iter().map(tell), range))
    }

    fn bytes(found: &Found) -> Option<u64> {
        let is_partial = found.result.as_ref().is_ok_and(|result| !result.is_empty());
        (!is_partial).then_some(found.given.length as u64)
    }

    fn find(&self, here: &Here<'_>, scratch: &mut Vec<u8>) -> Result<Found, ClerkError> {
        let Here { file, range, is_over } = *here;
        let ends_file = range.end() == self.file_bytes;
        let piece = Piece { offset: range.offset, starts_record: false, ends_file };
        let mut scan = self.checked.start();
        let mut given = self.spare().pop().unwrap_or_default().cleared(range.length);
        let mut failed = None;
        scan.begin_piece(piece);
        let mut at = range.offset;
        while at < range.end() && failed.is_none() && !is_over() {
            let length = READ_BYTES.min(usize::try_from(range.end() - at).unwrap_or(READ_BYTES));
            let fed = file.read_with(at, length, scratch, |bytes| {
                let fed = given.feed(bytes, |bytes, output| scan.feed(bytes, output));
                (bytes.len() == length || fed == Ok(true)).then_some(fed).ok_or(ClerkError::Cut)
            })??;
            match fed {
                Ok(true) => break,
                Ok(false) => at += length as u64,
                Err(error) => failed = Some(error),
            }
        }
        let result = match failed {
            Some(error) => Err(error),
            None => given.feed(&[], |_, output| scan.end_piece(output)),
        };
        let report = scan.report();
        let mut partial = Given::default();
        let result = result.and_then(|_| partial.feed(&[], |_, output| scan.finish(output)));
        let result = result.map(|_| partial.bytes().to_vec());
        Ok(Found { piece, end: range.end(), given, report, result })
    }
}

/// What a scan has written so far, and room for more.
#[derive(Default)]
struct Given {
    room: Vec<u8>,
    length: usize,
    /// Bytes that there will mostly be at most.
    most: usize,
}

impl Given {
    /// Calls until everything is taken. Tells whether the LIMIT is reached.
    fn feed(
        &mut self,
        bytes: &[u8],
        mut call: impl FnMut(&[u8], &mut Output<'_>) -> Result<Fed, ScanError>,
    ) -> Result<bool, ScanError> {
        let mut rest = bytes;
        loop {
            if self.room.len() - self.length < LEAST_ROOM {
                self.grow();
            }
            let mut output = Output::new(&mut self.room[self.length..]);
            let fed = call(rest, &mut output);
            self.length += output.len();
            match fed? {
                Fed::Full { consumed } => {
                    rest = &rest[consumed..];
                    self.grow();
                }
                fed => return Ok(fed == Fed::Done),
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    /// Makes more room: new memory costs time where it is touched first, so no more than will be wanted, as it seems.
    fn grow(&mut self) {
        let now = self.room.len();
        let twice = 2 * now + LEAST_ROOM;
        let wanted = if now < self.most { twice.min(self.most) } else { twice };
        self.room.resize(wanted.max(self.length + LEAST_ROOM), 0);
    }

    /// The room alone, for what is told of so many bytes.
    fn cleared(mut self, bytes: u64) -> Given {
        self.length = 0;
        // What is selected is mostly no longer than what it is of.
        self.most =
            usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes.saturating_add(2 * LEAST_ROOM));
        self
    }
}
