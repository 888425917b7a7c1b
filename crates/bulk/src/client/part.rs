//! Parts of a transfer, and what became of them.

use nasd_types::ByteRange;

use super::{BulkError, Completed, Queue};

/// Parts of one transfer that are under way over one connection at a time.
const PARTS: usize = 4;

/// A part of what is read into, or written from.
pub(super) enum Part<'a> {
    Into(&'a mut [u8]),
    From(&'a [u8]),
}

impl Part<'_> {
    pub(super) fn length(&self) -> usize {
        self.as_ref().len()
    }
}

impl AsRef<[u8]> for Part<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Part::Into(bytes) => bytes,
            Part::From(bytes) => bytes,
        }
    }
}

impl AsMut<[u8]> for Part<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Part::Into(bytes) => bytes,
            // Nobody reads into what is written from.
            Part::From(_) => &mut [],
        }
    }
}

/// What became of the parts of a transfer so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    bytes: usize,
    failure: Option<BulkError>,
    /// What was not there to be read.
    lacking: Vec<ByteRange>,
}

impl Tally {
    /// Begins a part, and waits for another one if too many are under way.
    pub(super) fn begin<'d>(&mut self, queue: &mut Queue<'_, Part<'d>>, at: u64, part: Part<'d>) {
        match part {
            Part::Into(_) => queue.read(at, part),
            Part::From(_) => queue.write(at, part),
        }
        if queue.under_way() >= PARTS
            && let Some(completed) = queue.wait()
        {
            self.take(completed);
        }
    }

    /// Waits for all parts.
    pub(super) fn end(&mut self, queue: &mut Queue<'_, Part<'_>>) {
        while let Some(completed) = queue.wait() {
            self.take(completed);
        }
    }

    fn take(&mut self, completed: Completed<Part<'_>>) {
        match completed.outcome {
            Ok(length) => {
                self.bytes += length;
                let lacking = (completed.buffer.length() - length) as u64;
                if lacking > 0 {
                    let from = completed.offset + length as u64;
                    self.lacking.push(ByteRange::new(from, lacking));
                }
            }
            Err(error) => drop(self.failure.get_or_insert(error)),
        }
    }

    /// How many bytes were transferred.
    pub(super) fn into_result(self) -> Result<usize, BulkError> {
        self.failure.map_or(Ok(self.bytes), Err)
    }

    /// What was not there to be read.
    pub(super) fn into_lacking(self) -> Result<Vec<ByteRange>, BulkError> {
        self.failure.map_or(Ok(self.lacking), Err)
    }
}
