//! Searches for lines that match: they run at the drives that have a file's bytes, or here where those can't.

use std::fmt;
use std::sync::Arc;

use nasd_grep::remote::{EXTENSION, Part, REVISION, Request, read_answer};
use nasd_grep::{
    Bounds, Give, Join, JoinError, Line, Matcher, Next, Pattern, PatternError, Search, SearchError,
    Wanted,
};
use nasd_protocol::limits::MAX_TRANSFER_BYTES;
use nasd_types::ByteRange;
use thiserror::Error;

use crate::chunks::{Chunk, Chunks, Here, Job, Sizes, are_whole};
use crate::extending::ExtendedPart;
use crate::{ClerkError, OpenFile, ScanOptions, Work};

/// Chunks of which lines are wanted: of the first ones nearly as many bytes may come back.
const LINES: Sizes = Sizes { first: 16 << 20, most: 64 << 20, here: 16 << 20 };

/// Bytes of lines that each drive may tell in one answer. No drive is asked for more than one has.
const LINE_BYTES: usize = MAX_TRANSFER_BYTES;

/// The same where lines are only counted.
const COUNT_BYTES: usize = 2 << 20;

/// Files that are not larger are read: that is one answer, as asking is.
const SMALL_BYTES: u64 = 64 << 10;

/// Bytes that are read at a time where it is done here.
const READ_BYTES: usize = 1 << 20;

/// Why a search has no result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FileGrepError {
    /// The file can't be reached.
    #[error(transparent)]
    Clerk(#[from] ClerkError),
    /// What was told of it is no result.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A chunk can't be searched.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// A thread can't be started.
    #[error("no thread for a search: {0}")]
    Thread(String),
}

/// What is looked for, in any number of files.
#[derive(Clone, Debug)]
pub struct GrepPlan {
    pattern: Pattern,
    matcher: Matcher,
    wanted: Wanted,
}

/// What a search has come to, besides what was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grepped {
    /// How many lines are selected.
    pub selected: u64,
    /// How the work was done.
    pub work: Work,
}

/// A search under way: what is found, in the file's order.
pub struct FileGrep {
    chunks: Chunks<GrepJob>,
    join: Join,
    is_over: bool,
    work: Work,
}

struct GrepJob {
    plan: GrepPlan,
}

/// What was told of ranges here, one after the other.
type Found = Result<Vec<(ByteRange, Vec<u8>)>, SearchError>;

impl GrepPlan {
    /// Of a pattern.
    ///
    /// # Errors
    ///
    /// [`PatternError`].
    pub fn new(pattern: Pattern, wanted: Wanted) -> Result<GrepPlan, PatternError> {
        let matcher = pattern.compile(Bounds::LARGE)?;
        Ok(GrepPlan { pattern, matcher, wanted: wanted.plain() })
    }
}

impl FileGrep {
    /// Begins one over all of a file that is open for reading, with what was written and appended here.
    ///
    /// # Errors
    ///
    /// [`FileGrepError::Thread`]; `NotOpenForThis`; `Interrupted`.
    pub fn start(
        file: Arc<OpenFile>,
        plan: &GrepPlan,
        options: ScanOptions,
    ) -> Result<FileGrep, FileGrepError> {
        if !file.mode().read {
            return Err(ClerkError::NotOpenForThis.into());
        }
        let join = Join::new(&plan.matcher, &plan.wanted);
        let file_bytes = file.settled_size()?;
        let sizes = match plan.wanted.give {
            Give::Count => Sizes::of_sums(file_bytes),
            Give::Lines | Give::Matches => LINES,
        };
        let here = options.here || file_bytes <= SMALL_BYTES;
        let job = GrepJob { plan: plan.clone() };
        let chunks = Chunks::start((file, file_bytes), job, sizes, here);
        let chunks = chunks.map_err(|error| FileGrepError::Thread(error.to_string()))?;
        Ok(FileGrep { chunks, is_over: join.is_done(), join, work: Work::default() })
    }

    /// Gives what is found in the next part of the file. Tells whether there may be more.
    ///
    /// # Errors
    ///
    /// [`FileGrepError`]; the search is over then. `Cut` if the file has become shorter since it began: what was given is void.
    pub fn next_lines(&mut self, give: &mut dyn FnMut(Line<'_>)) -> Result<bool, FileGrepError> {
        if self.is_over {
            return Ok(false);
        }
        let taken = match self.chunks.next() {
            Some(Ok(chunk)) => self.take(chunk, give).map(|()| true),
            Some(Err(error)) => Err(error.into()),
            None => Ok(false),
        };
        self.is_over = self.join.is_done() || !matches!(taken, Ok(true));
        if self.is_over {
            self.chunks.end();
        }
        if self.is_over && taken.is_ok() {
            self.chunks.check_uncut()?;
        }
        taken
    }

    /// What it has come to, after the rest of what is found.
    ///
    /// # Errors
    ///
    /// [`FileGrepError`].
    pub fn finish(mut self, give: &mut dyn FnMut(Line<'_>)) -> Result<Grepped, FileGrepError> {
        while self.next_lines(give)? {}
        self.join.finish(give);
        Ok(Grepped { selected: self.join.selected(), work: self.work })
    }

    fn take(
        &mut self,
        chunk: Chunk<Found>,
        give: &mut dyn FnMut(Line<'_>),
    ) -> Result<(), FileGrepError> {
        match chunk {
            Chunk::Told(told, came) => {
                for part in read_all(&told)? {
                    self.work.drive_bytes += part.end - part.offset;
                    if !self.join.add(&part, give)? {
                        break;
                    }
                }
                self.work.told_bytes += came.bytes;
                self.chunks.give_back(told.into_iter().map(|part| part.data));
            }
            Chunk::Found(found) => {
                for (range, data) in found? {
                    self.work.read_bytes += range.length;
                    for part in read(&[range], range.end(), &data)? {
                        self.join.add(&part, give)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FileGrep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileGrep").field("work", &self.work).finish_non_exhaustive()
    }
}

/// What drives told of a chunk, in the file's order.
fn read_all(told: &[ExtendedPart]) -> Result<Vec<Part<'_>>, ClerkError> {
    let mut parts = Vec::new();
    for part in told {
        parts.extend(read(&part.pieces, part.position, &part.data)?);
    }
    parts.sort_by_key(|part| part.offset);
    Ok(parts)
}

fn read<'a>(
    pieces: &[ByteRange],
    position: u64,
    data: &'a [u8],
) -> Result<Vec<Part<'a>>, ClerkError> {
    let pieces = pieces.iter().map(|piece| piece.offset..piece.end());
    let wrong = |error| ClerkError::Protocol(format!("a search is not answered right: {error}"));
    read_answer(pieces, position, data).map_err(wrong)
}

impl Job for GrepJob {
    type Found = Found;

    const EXTENSION: (u32, u32) = (EXTENSION, REVISION);

    fn arguments(&self) -> Vec<u8> {
        let GrepPlan { pattern, wanted, .. } = &self.plan;
        nasd_xdr::to_bytes(&Request { pattern: pattern.clone(), wanted: *wanted })
    }

    fn most(&self) -> usize {
        match self.plan.wanted.give {
            Give::Count => COUNT_BYTES,
            Give::Lines | Give::Matches => LINE_BYTES,
        }
    }

    fn is_whole(&self, told: &[ExtendedPart], range: ByteRange) -> bool {
        let tell = |part: &Part<'_>| (part.offset, part.end, part.report.done);
        read_all(told).is_ok_and(|parts| are_whole(parts.iter().map(tell), range))
    }

    fn bytes(found: &Found) -> Option<u64> {
        let data = |(_, data): &(ByteRange, Vec<u8>)| data.len() as u64;
        Some(found.as_ref().map_or(0, |found| found.iter().map(data).sum()))
    }

    fn find(&self, here: &Here<'_>, scratch: &mut Vec<u8>) -> Result<Found, ClerkError> {
        let Here { range, is_over, .. } = *here;
        let mut found = Vec::new();
        let mut at = range.offset;
        while at < range.end() && !is_over() {
            let rest = ByteRange::new(at, range.end() - at);
            match self.find_some(&Here { range: rest, ..*here }, scratch)? {
                Ok((position, data)) => {
                    found.push((ByteRange::new(at, position - at), data));
                    at = position;
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(found))
    }
}

impl GrepJob {
    /// Looks at a range until the answer is full: what is told, and of what before which byte.
    fn find_some(
        &self,
        here: &Here<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Result<(u64, Vec<u8>), SearchError>, ClerkError> {
        let Here { file, range, is_over } = *here;
        // No line in it is longer than that.
        let longest = usize::try_from(range.length).unwrap_or(usize::MAX);
        let most = Search::least_bytes(longest);
        let mut search = Search::new(&self.plan.matcher, &self.plan.wanted, longest, most);
        search.begin(range.offset);
        let mut at = range.offset;
        while at < range.end() && !is_over() {
            let length = READ_BYTES.min(usize::try_from(range.end() - at).unwrap_or(READ_BYTES));
            let fed = file.read_with(at, length, scratch, |bytes| {
                let next = search.feed(bytes);
                match next {
                    Ok(Next::More) if bytes.len() < length => Err(ClerkError::Cut),
                    next => Ok(next),
                }
            })??;
            match fed {
                Ok(Next::More) => at += length as u64,
                Ok(Next::Full(position)) => return Ok(Ok((position, search.finish()))),
                Ok(Next::Done) => return Ok(Ok((range.end(), search.finish()))),
                Err(error) => return Ok(Err(error)),
            }
        }
        let position = match search.end() {
            Next::Full(position) => position,
            Next::More | Next::Done => range.end(),
        };
        Ok(Ok((position, search.finish())))
    }
}
