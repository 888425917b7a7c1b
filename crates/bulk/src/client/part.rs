//! Parts of a transfer, and what became of them.

use std::ops::RangeInclusive;

use nasd_types::ByteRange;

use super::{BulkError, Completed, Queue};

/// Parts of one transfer that are under way over one connection at a time: of short ones as many as make up the bytes, so that a
/// server that is far away is not waited for with each.
const PARTS: RangeInclusive<usize> = 4..=16;
const PARTS_BYTES: usize = 2 << 20;

/// How many parts of so many bytes are under way at a time.
fn at_a_time(part_bytes: usize) -> usize {
    (PARTS_BYTES / part_bytes.max(1)).clamp(*PARTS.start(), *PARTS.end())
}

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
        let most = at_a_time(part.length());
        match part {
            Part::Into(_) => queue.read(at, part),
            Part::From(_) => queue.write(at, part),
        }
        if queue.under_way() >= most
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

    /// How many bytes were transferred from that offset on, up to the first one that was lacking: the file may have become longer
    /// since.
    pub(super) fn into_length_from(self, offset: u64) -> Result<usize, BulkError> {
        let first = self.lacking.iter().map(|range| range.offset).min();
        let length = first.map_or(self.bytes, |first| (first - offset) as usize);
        self.failure.map_or(Ok(length), Err)
    }

    /// What was not there to be read.
    pub(super) fn into_lacking(self) -> Result<Vec<ByteRange>, BulkError> {
        self.failure.map_or(Ok(self.lacking), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_short_parts_more_are_under_way() {
        let most = [0, 4096, 256 << 10, 512 << 10, 4 << 20].map(at_a_time);
        assert_eq!(most, [16, 16, 8, 4, 4]);
    }

    #[test]
    fn what_comes_behind_something_lacking_does_not_count() {
        let mut memory = [0; 30];
        let mut tally = Tally::default();
        for (part, (offset, length)) in memory.chunks_mut(10).zip([(100, 10), (110, 4), (120, 10)])
        {
            let buffer = Part::Into(part);
            tally.take(Completed { offset, buffer, outcome: Ok(length) });
        }
        assert_eq!(tally.into_length_from(100).unwrap(), 14);
    }
}
