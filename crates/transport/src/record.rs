//! Records of a byte stream (RFC 5531 section 11): fragments are joined on the way, without copying
//! the bulk of them.
//!
//! A record is taken in pieces: `begin`, then its head into a vector as far as is wanted, then the
//! rest straight into the caller's buffers. Reading ahead is limited, to [`BUFFER_BYTES`] at first
//! and much less where bulk data is expected; only those bytes are ever copied from one place in
//! memory to another. A connection whose peer keeps the buffer full reads farther ahead, up to the
//! limit that its owner sets.

use std::io::{self, IoSliceMut};

use nasd_rpc::{Expect, RECORD_MARK_BYTES, RecordMark, RecordParser};
use nasd_xdr::Encoder;

use crate::FrameError;
use crate::wire::Amount;

/// Bytes that may be received ahead of what was asked for: enough for many small calls at once, or
/// for a small transfer in one receive.
pub(crate) const BUFFER_BYTES: usize = 8192;

/// How much of a record is taken for its head at first: more than most heads have, and little to
/// copy where bulk data follows.
pub(crate) const FIRST_HEAD_BYTES: usize = 512;

/// The same behind a record with bulk data: another one is likely to follow, of which no more than
/// the head should be copied.
const AFTER_BULK_BYTES: usize = 1024;

/// From so many bytes on a record is one with bulk data.
const BULK_RECORD_BYTES: usize = 16 << 10;

/// Less than this is not worth a receive of its own.
const SMALL_BYTES: usize = 8192;

/// As [`nasd_rpc::begin_record`], but behind what a vector holds.
pub(crate) fn append_record_to(mut bytes: Vec<u8>) -> Encoder {
    bytes.extend_from_slice(&[0; RECORD_MARK_BYTES]);
    Encoder::append_to(bytes)
}

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

/// What is to be had of a connection without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// A whole record.
    Record,
    /// A part of one.
    Part,
    /// Nothing.
    Nothing,
    /// The connection has ended.
    End,
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
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// How much of the buffer is used at present.
    ahead: usize,
    /// How much the buffer may grow to.
    most_ahead: usize,
    /// Whether the last receive filled the whole buffer.
    is_full: bool,
    parser: RecordParser,
}

impl RecordReader {
    /// For records of at most `max_record_bytes`, reading at most `most_ahead` bytes ahead.
    pub(crate) fn new(max_record_bytes: usize, most_ahead: usize) -> Self {
        RecordReader {
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            ahead: BUFFER_BYTES,
            most_ahead,
            is_full: false,
            parser: RecordParser::new(max_record_bytes),
        }
    }

    /// Whether the whole of the present record has been taken.
    pub(crate) fn at_end(&self) -> bool {
        self.parser.expect() == Expect::End
    }

    /// What is left of the record, if its last fragment has begun.
    pub(crate) fn left(&self) -> Option<usize> {
        match self.parser.expect() {
            Expect::Body(left) if self.parser.is_last() => Some(left),
            Expect::End => Some(0),
            _ => None,
        }
    }

    /// Whether a whole record of one fragment is buffered, so that taking it will not wait.
    pub(crate) fn has_buffered_record(&self) -> bool {
        let buffered = &self.buffer[self.start..self.end];
        buffered.first_chunk::<RECORD_MARK_BYTES>().is_some_and(|mark| {
            let mark = RecordMark::from_bytes(*mark);
            mark.last && buffered.len() - RECORD_MARK_BYTES >= mark.length as usize
        })
    }

    /// Receives what has come, without waiting, behind what is buffered. Only between two records.
    pub(crate) fn read_ahead(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> Ahead {
        if self.has_buffered_record() {
            return Ahead::Record;
        }
        self.leave_record();
        if self.start == self.end {
            self.grow_if_full();
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let room = self.end..self.ahead.max(self.end);
        if room.is_empty() {
            return Ahead::Part;
        }
        match receive(&mut self.buffer[room]) {
            Ok(count) if count > 0 => {
                self.end += count;
                self.is_full = self.end == self.buffer.len();
                if self.has_buffered_record() { Ahead::Record } else { Ahead::Part }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.end == 0 {
                    Ahead::Nothing
                } else {
                    Ahead::Part
                }
            }
            Ok(_) | Err(_) => Ahead::End,
        }
    }

    /// Begins anew behind the record that was taken.
    fn leave_record(&mut self) {
        if !self.parser.is_at_start() {
            let was_bulk = self.parser.announced() >= BULK_RECORD_BYTES;
            self.ahead = if was_bulk { AFTER_BULK_BYTES } else { self.buffer.len() };
            self.parser.restart();
        }
    }

    fn grow_if_full(&mut self) {
        if self.is_full && self.buffer.len() < self.most_ahead {
            // All at once: whoever fills so much once will do so again.
            self.buffer = vec![0; self.most_ahead].into_boxed_slice();
            self.ahead = self.most_ahead;
        }
    }

    /// Waits for the next record. `false` if the connection ends instead, where it may.
    pub(crate) fn begin(&mut self, source: &mut impl Source) -> Result<bool, ReadError> {
        self.leave_record();
        if self.start == self.end && self.fill(source, Stage::Between)? == 0 {
            return Ok(false);
        }
        self.take_mark(source)?;
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
        let mut taken = 0;
        while taken < at_most && (taken < at_least || self.start < self.end) {
            let left = self.fragment_left(source)?;
            if left == 0 {
                break;
            }
            if self.start == self.end {
                self.fill_or_fail(source)?;
            }
            let count = (self.end - self.start).min(left).min(at_most - taken);
            head.extend_from_slice(&self.buffer[self.start..self.start + count]);
            self.consume_buffered(count);
            taken += count;
        }
        Ok(())
    }

    /// Fills `into` with the next bytes of the record; `false` if it ends before.
    pub(crate) fn take_into(
        &mut self,
        source: &mut impl Source,
        mut into: &mut [IoSliceMut<'_>],
    ) -> Result<bool, ReadError> {
        IoSliceMut::advance_slices(&mut into, 0); // drops empty slices in front
        while !into.is_empty() {
            let left = self.fragment_left(source)?;
            if left == 0 {
                return Ok(false);
            }
            let count = if self.start < self.end {
                let count = (self.end - self.start).min(left).min(into[0].len());
                into[0][..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
                self.consume_buffered(count);
                count
            } else if left < SMALL_BYTES && left < self.ahead {
                // What follows comes along: for many small records that is worth the copy.
                self.fill_or_fail(source)?;
                continue;
            } else {
                let count = receive_straight(source, into, left)?;
                self.parser.consumed(count);
                count
            };
            IoSliceMut::advance_slices(&mut into, count);
        }
        Ok(true)
    }

    /// Throws the rest of the record away.
    pub(crate) fn skip_rest(&mut self, source: &mut impl Source) -> Result<(), ReadError> {
        loop {
            let left = self.fragment_left(source)?;
            if left == 0 {
                return Ok(());
            }
            if self.start == self.end {
                self.fill_or_fail(source)?;
            }
            self.consume_buffered((self.end - self.start).min(left));
        }
    }

    /// Bytes of the present fragment that have not been taken, after going on to the next fragment
    /// if need be; 0 at the end of the record.
    fn fragment_left(&mut self, source: &mut impl Source) -> Result<usize, ReadError> {
        loop {
            match self.parser.expect() {
                Expect::Body(left) => return Ok(left),
                Expect::End => return Ok(0),
                Expect::Mark(_) => self.take_mark(source)?,
            }
        }
    }

    /// Takes a record mark. The parser refuses one that announces too much, before anything is
    /// allocated for it.
    fn take_mark(&mut self, source: &mut impl Source) -> Result<(), ReadError> {
        while let Expect::Mark(_) = self.parser.expect() {
            if self.start == self.end {
                self.fill_or_fail(source)?;
            }
            let bytes = &self.buffer[self.start..self.end];
            self.start += self.parser.mark(bytes).map_err(FrameError::Record)?;
        }
        Ok(())
    }

    /// Receives into the buffer, which must be empty.
    fn fill(&mut self, source: &mut impl Source, stage: Stage) -> Result<usize, ReadError> {
        debug_assert_eq!(self.start, self.end, "bytes would be lost");
        self.grow_if_full();
        let mut room = [IoSliceMut::new(&mut self.buffer[..self.ahead])];
        let count = source.receive(stage, &mut room, Amount::Some)?;
        self.start = 0;
        self.end = count;
        self.is_full = count == self.buffer.len();
        Ok(count)
    }

    fn fill_or_fail(&mut self, source: &mut impl Source) -> Result<(), ReadError> {
        match self.fill(source, Stage::Within)? {
            0 => Err(FrameError::Truncated.into()),
            _ => Ok(()),
        }
    }

    fn consume_buffered(&mut self, count: usize) {
        self.start += count;
        self.parser.consumed(count);
    }
}

/// Receives the next `left` bytes, or fewer, where they are wanted, past the buffer.
fn receive_straight(
    source: &mut impl Source,
    into: &mut [IoSliceMut<'_>],
    left: usize,
) -> Result<usize, ReadError> {
    let mut room = 0;
    let fits = |slice: &&IoSliceMut<'_>| {
        room += slice.len();
        room <= left
    };
    let whole = into.iter().take_while(fits).count();
    let count = if whole > 0 {
        source.receive(Stage::Within, &mut into[..whole], Amount::All)?
    } else {
        // The fragment ends inside the first slice.
        let part = &mut into[0][..left];
        source.receive(Stage::Within, &mut [IoSliceMut::new(part)], Amount::All)?
    };
    if count == 0 { Err(FrameError::Truncated.into()) } else { Ok(count) }
}
