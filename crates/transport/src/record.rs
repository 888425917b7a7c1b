//! Records of a byte stream (RFC 5531 section 11): fragments are joined on the way, without copying
//! the bulk of them.
//!
//! A record is taken in pieces: `begin`, then its head into a vector as far as is wanted, then the
//! rest straight into the caller's buffers. Reading ahead is limited to [`BUFFER_BYTES`]; only those
//! bytes are ever copied from one place in memory to another.

use std::io::{self, IoSliceMut};

use crate::FrameError;
use crate::wire::Amount;

/// Bytes that may be received ahead of what was asked for: enough for several small calls, little
/// beside the smallest bulk transfer.
pub(crate) const BUFFER_BYTES: usize = 2048;

/// Bytes of a record mark.
pub(crate) const MARK_BYTES: usize = 4;

/// Most fragments of a record: libtirpc sends about 9000 bytes in each, which makes 500 of the
/// longest record. Without a limit, empty fragments would keep a reader busy for ever.
const MAX_FRAGMENTS: u32 = 4096;

const LAST_FRAGMENT: u32 = 1 << 31;

/// Where a reader stands, for whoever watches the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before the first byte of a record.
    Between,
    /// After it.
    Within,
}

/// Why no record could be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The bytes make no sense.
    Frame(FrameError),
    /// The connection failed.
    Io(io::Error),
    /// The source gave up at `Stage::Between`.
    Idle,
    /// The source gave up at `Stage::Within`.
    Slow,
}

impl From<FrameError> for ReadError {
    fn from(error: FrameError) -> Self {
        ReadError::Frame(error)
    }
}

/// Bytes, and patience: gives up with `ReadError::Idle` or `Slow` when it has waited long enough.
pub(crate) trait Source {
    /// Receives at least one byte; 0 is the end.
    fn receive(
        &mut self,
        stage: Stage,
        into: &mut [IoSliceMut<'_>],
        amount: Amount,
    ) -> Result<usize, ReadError>;
}

/// The state of reading one connection.
#[derive(Debug)]
pub(crate) struct RecordReader {
    buffer: Box<[u8; BUFFER_BYTES]>,
    start: usize,
    end: usize,
    /// Bytes of the present fragment that have not been taken.
    fragment_left: usize,
    last_fragment: bool,
    fragments: u32,
    /// Sum of the record's marks so far.
    record_bytes: usize,
    max_record_bytes: usize,
}

impl RecordReader {
    pub(crate) fn new(max_record_bytes: usize) -> Self {
        RecordReader {
            buffer: Box::new([0; BUFFER_BYTES]),
            start: 0,
            end: 0,
            fragment_left: 0,
            last_fragment: true,
            fragments: 0,
            record_bytes: 0,
            max_record_bytes,
        }
    }

    /// Whether the whole of the present record has been taken.
    pub(crate) fn at_end(&self) -> bool {
        self.fragment_left == 0 && self.last_fragment
    }

    /// What is left of the record, if its last fragment has begun.
    pub(crate) fn left(&self) -> Option<usize> {
        self.last_fragment.then_some(self.fragment_left)
    }

    /// Whether a whole small record is buffered, so that `begin` and `take_head` won't wait.
    pub(crate) fn has_buffered_record(&self) -> bool {
        let buffered = &self.buffer[self.start..self.end];
        match buffered.first_chunk::<MARK_BYTES>() {
            Some(mark) => {
                let length = (u32::from_be_bytes(*mark) & !LAST_FRAGMENT) as usize;
                buffered.len() - MARK_BYTES >= length
            }
            None => false,
        }
    }

    /// Waits for the next record. `false` if the connection ends instead, where it may.
    pub(crate) fn begin(&mut self, source: &mut impl Source) -> Result<bool, ReadError> {
        debug_assert!(self.at_end(), "the record before was not taken whole");
        self.fragments = 0;
        self.record_bytes = 0;
        if self.start == self.end && self.fill(source, Stage::Between)? == 0 {
            return Ok(false);
        }
        self.next_fragment(source)?;
        Ok(true)
    }

    /// Appends bytes of the record to `head` until it has `at_least` bytes more or the record ends;
    /// takes what is buffered beyond that too, up to `at_most`.
    pub(crate) fn take_head(
        &mut self,
        source: &mut impl Source,
        head: &mut Vec<u8>,
        at_least: usize,
        at_most: usize,
    ) -> Result<(), ReadError> {
        let before = head.len();
        while self.skip_to_bytes(source)? {
            let taken = head.len() - before;
            if taken >= at_most || (taken >= at_least && self.start == self.end) {
                break;
            }
            if self.start == self.end {
                self.fill_or_fail(source)?;
            }
            let count = (self.end - self.start).min(self.fragment_left).min(at_most - taken);
            head.extend_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            self.fragment_left -= count;
        }
        Ok(())
    }

    /// Fills all of `into` with the next bytes of the record.
    pub(crate) fn take_into(
        &mut self,
        source: &mut impl Source,
        mut into: &mut [IoSliceMut<'_>],
    ) -> Result<(), ReadError> {
        IoSliceMut::advance_slices(&mut into, 0); // drops empty slices in front
        while !into.is_empty() {
            if !self.skip_to_bytes(source)? {
                return Err(FrameError::Truncated.into());
            }
            let count = if self.start < self.end {
                self.copy_buffered(&mut into[0])
            } else {
                self.receive_straight(source, into)?
            };
            self.fragment_left -= count;
            IoSliceMut::advance_slices(&mut into, count);
        }
        Ok(())
    }

    /// Throws the rest of the record away.
    pub(crate) fn skip_rest(&mut self, source: &mut impl Source) -> Result<(), ReadError> {
        while self.skip_to_bytes(source)? {
            if self.start == self.end {
                self.fill_or_fail(source)?;
            }
            let count = (self.end - self.start).min(self.fragment_left);
            self.start += count;
            self.fragment_left -= count;
        }
        Ok(())
    }

    /// Goes on to the next fragment that has bytes; `false` at the end of the record.
    fn skip_to_bytes(&mut self, source: &mut impl Source) -> Result<bool, ReadError> {
        while self.fragment_left == 0 {
            if self.last_fragment {
                return Ok(false);
            }
            self.next_fragment(source)?;
        }
        Ok(true)
    }

    /// Reads a record mark, and checks what it announces before anything is allocated for it.
    fn next_fragment(&mut self, source: &mut impl Source) -> Result<(), ReadError> {
        while self.end - self.start < MARK_BYTES {
            self.fill_or_fail(source)?;
        }
        let mut mark = [0; MARK_BYTES];
        mark.copy_from_slice(&self.buffer[self.start..self.start + MARK_BYTES]);
        self.start += MARK_BYTES;
        let mark = u32::from_be_bytes(mark);
        self.last_fragment = mark & LAST_FRAGMENT != 0;
        self.fragment_left = (mark & !LAST_FRAGMENT) as usize;
        self.fragments += 1;
        self.record_bytes += self.fragment_left;
        if self.record_bytes > self.max_record_bytes {
            let limit = self.max_record_bytes;
            return Err(FrameError::TooLong { bytes: self.record_bytes, limit }.into());
        }
        if self.fragments > MAX_FRAGMENTS {
            return Err(FrameError::Fragments.into());
        }
        Ok(())
    }

    /// Receives into the free part of the buffer.
    fn fill(&mut self, source: &mut impl Source, stage: Stage) -> Result<usize, ReadError> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let mut room = [IoSliceMut::new(&mut self.buffer[self.end..])];
        let count = source.receive(stage, &mut room, Amount::Some)?;
        self.end += count;
        Ok(count)
    }

    fn fill_or_fail(&mut self, source: &mut impl Source) -> Result<(), ReadError> {
        match self.fill(source, Stage::Within)? {
            0 => Err(FrameError::Truncated.into()),
            _ => Ok(()),
        }
    }

    fn copy_buffered(&mut self, into: &mut [u8]) -> usize {
        let count = (self.end - self.start).min(self.fragment_left).min(into.len());
        into[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        count
    }

    /// Receives what belongs to this fragment where it is wanted, past the buffer.
    fn receive_straight(
        &mut self,
        source: &mut impl Source,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<usize, ReadError> {
        let mut room = 0;
        let mut whole = 0;
        for slice in into.iter() {
            if room + slice.len() > self.fragment_left {
                break;
            }
            room += slice.len();
            whole += 1;
        }
        let count = if whole > 0 {
            source.receive(Stage::Within, &mut into[..whole], Amount::All)?
        } else {
            // The fragment ends inside the first slice.
            let part = &mut into[0][..self.fragment_left];
            source.receive(Stage::Within, &mut [IoSliceMut::new(part)], Amount::All)?
        };
        if count == 0 { Err(FrameError::Truncated.into()) } else { Ok(count) }
    }
}
