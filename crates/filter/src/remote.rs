//! A scan that is asked for where the bytes are: what is asked, and the one buffer in which it is answered.
//!
//! Nothing is kept between two requests. An answer is, for each piece that was looked at, its [`Report`] in XDR, then its head,
//! its rows and its tail as they are, without padding; behind the last one the partial result of an Aggregate
//! or a Top. Where it is full the piece is cut, and the rest of it is asked for as a piece of its own. A piece whose
//! report is `done` is the last one, whatever was asked for behind it.

use crate::error::ScanError;
use crate::output::Output;
use crate::plan::{Checked, Plan, Program};
use crate::scan::{Fed, Piece, Report, Scan};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};
use std::ops::Range;
use thiserror::Error;

/// The number of the drives' extension that answers.
pub const EXTENSION: u32 = 2;
/// The revision of it that this is.
pub const REVISION: u32 = 1;

/// Bytes of a report.
pub const REPORT_BYTES: usize = 7 * 8 + 4 * 4;

/// Bytes of input between two looks at how large a partial result has become.
const LOOK_BYTES: u64 = 1 << 20;
/// Looks at its bound alone, at most, before its bytes are counted again.
const MOST_LOOKS: u32 = 16;

/// What is asked for besides the pieces (`nasd_scan_request`).
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Where the file ends, in bytes: a piece that ends there ends with a record.
    pub file_bytes: u64,
    /// What is to be done.
    pub plan: Plan,
}

impl XdrEncode for Request {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.file_bytes);
        self.plan.encode(out);
    }
}

impl XdrDecode for Request {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Request { file_bytes: input.u64()?, plan: Plan::decode(input)? })
    }
}

/// What comes after some bytes of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More of them.
    More,
    /// The piece was ended before this byte of the file, and the answer with it: there is no room for more.
    Full(u64),
    /// The piece is to be ended, and the answer with it: what there is to tell has become much.
    Enough,
    /// Nothing: the LIMIT is reached.
    Done,
}

/// Why an answer can't be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The scan failed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The partial result has no room in it.
    #[error("the partial result is larger than an answer")]
    Large,
}

/// An answer under way.
pub struct Answer {
    scan: Scan,
    file_bytes: u64,
    buffer: Vec<u8>,
    /// Bytes that pieces may take; the rest is for the partial result.
    pieces_room: usize,
    length: usize,
    /// Where the piece under way has its report.
    report_at: usize,
    /// Room in which a report is written, empty between two.
    report: Vec<u8>,
    piece: Piece,
    /// Bytes until the partial result is looked at again.
    look_in: u64,
    /// How many bytes it had when they were counted, and the bound of them then.
    counted: (usize, usize),
    /// Looks since.
    looks: u32,
}

impl Answer {
    /// Bytes that an answer must have room for: so that the bytes of one more record come through in any case. Rows that are longer
    /// than their records may not.
    pub fn least_bytes(checked: &Checked) -> usize {
        let plan = checked.plan();
        // The last line may get a line end.
        let piece = REPORT_BYTES + plan.options.longest_record as usize + 1;
        if is_select(plan) { piece } else { 2 * piece }
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(checked: &Checked, most: usize) -> usize {
        checked.memory_bytes() + most + REPORT_BYTES
    }

    /// One that is written to `buffer`, which has room for [`least_bytes`](Self::least_bytes) or more, and whatever in it. `secret`: as
    /// [`Checked::with_secret`]. Nothing is allocated after it.
    pub fn new(checked: &Checked, file_bytes: u64, buffer: Vec<u8>, secret: u64) -> Answer {
        let most = buffer.len();
        Answer {
            scan: checked.with_secret(secret).start(),
            file_bytes,
            buffer,
            pieces_room: if is_select(checked.plan()) { most } else { most / 2 },
            length: 0,
            report_at: 0,
            report: Vec::with_capacity(REPORT_BYTES),
            piece: Piece::default(),
            look_in: LOOK_BYTES,
            counted: (0, 0),
            looks: 0,
        }
    }

    /// Begins the piece whose first byte is `offset`, if there is room for it; tells whether. If there is none the answer
    /// ends before it.
    pub fn begin(&mut self, offset: u64) -> bool {
        if self.length + REPORT_BYTES > self.pieces_room {
            return false;
        }
        self.report_at = self.length;
        self.length += REPORT_BYTES;
        self.piece = Piece { offset, starts_record: false, ends_file: false };
        self.scan.begin_piece(self.piece);
        true
    }

    /// Takes the next bytes of the piece.
    ///
    /// # Errors
    ///
    /// [`ScanError`].
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Next, ScanError> {
        match self.write(|scan, output| scan.feed(bytes, output))? {
            Next::More if bytes.len() as u64 >= self.look_in => {
                self.look_in = LOOK_BYTES;
                Ok(if self.is_much() { Next::Enough } else { Next::More })
            }
            next => {
                self.look_in = self.look_in.saturating_sub(bytes.len() as u64);
                Ok(next)
            }
        }
    }

    /// Whether the partial result has become so large that the answer is to be ended: what the bytes up to the next look add has
    /// room too, unless they are nearly all new groups. Counting its bytes takes a look at each group, so that is done only
    /// where they may be too many; now and then in any case, as what is told of a known group may grow.
    fn is_much(&mut self) -> bool {
        let much = self.buffer.len() / 4;
        let bound = self.scan.result_bound();
        let (bytes, before) = self.counted;
        let may_be = bytes.saturating_add(bound.saturating_sub(before));
        self.looks += 1;
        if bound <= much || (may_be <= much && self.looks < MOST_LOOKS) {
            return false;
        }
        (self.counted, self.looks) = ((self.scan.result_bytes(), bound), 0);
        self.counted.0 > much
    }

    /// Ends the piece before byte `end` of the file, up to which it was fed; [`Next::More`] if there is room for all of it.
    ///
    /// # Errors
    ///
    /// [`ScanError`].
    pub fn end(&mut self, end: u64) -> Result<Next, ScanError> {
        if end >= self.file_bytes {
            self.scan.piece_ends_file();
        }
        let next = self.write(|scan, output| scan.end_piece(output))?;
        if !matches!(next, Next::Full(_)) {
            self.put_report();
        }
        Ok(next)
    }

    /// The whole of it, in the buffer.
    ///
    /// # Errors
    ///
    /// [`AnswerError`].
    pub fn finish(mut self) -> Result<Vec<u8>, AnswerError> {
        let mut output = Output::new(&mut self.buffer[self.length..]);
        let fed = self.scan.finish(&mut output)?;
        let length = self.length + output.len();
        if fed != Fed::All {
            return Err(AnswerError::Large);
        }
        self.buffer.truncate(length);
        Ok(self.buffer)
    }

    fn write(
        &mut self,
        call: impl FnOnce(&mut Scan, &mut Output<'_>) -> Result<Fed, ScanError>,
    ) -> Result<Next, ScanError> {
        let mut output = Output::new(&mut self.buffer[self.length..self.pieces_room]);
        let fed = call(&mut self.scan, &mut output)?;
        let cut = match fed {
            Fed::Full { .. } => Some(self.scan.end_early(&mut output)?),
            Fed::All | Fed::Done => None,
        };
        self.length += output.len();
        match (fed, cut) {
            (_, Some(position)) if position == self.piece.offset => {
                // Nothing of it is told.
                self.length = self.report_at;
                Ok(Next::Full(position))
            }
            (_, Some(position)) => {
                self.put_report();
                Ok(Next::Full(position))
            }
            (Fed::Done, None) => Ok(Next::Done),
            _ => Ok(Next::More),
        }
    }

    fn put_report(&mut self) {
        let mut report = Encoder::append_to(std::mem::take(&mut self.report));
        self.scan.report().encode(&mut report);
        let room = &mut self.buffer[self.report_at..self.report_at + REPORT_BYTES];
        room.copy_from_slice(report.as_bytes());
        self.report = report.into_bytes();
        self.report.clear();
    }
}

fn is_select(plan: &Plan) -> bool {
    matches!(plan.program, Program::Select(_))
}

/// What an answer tells of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The piece.
    pub piece: Piece,
    /// The byte of the file that it ends before.
    pub end: u64,
    /// What was found.
    pub report: Report,
    /// What is before the first record.
    pub head: &'a [u8],
    /// What was selected.
    pub rows: &'a [u8],
    /// What is behind the last record.
    pub tail: &'a [u8],
}

/// Reads an answer to a request for pieces of a file of `file_bytes`, which has come up to byte `position`: what it tells of each
/// piece, and the partial result.
///
/// # Errors
///
/// If it is none.
pub fn read_answer(
    pieces: impl IntoIterator<Item = Range<u64>>,
    position: u64,
    file_bytes: u64,
    data: &[u8],
) -> Result<(Vec<Part<'_>>, &[u8]), XdrError> {
    let mut input = Decoder::new(data);
    let mut parts = Vec::new();
    for piece in pieces.into_iter().take_while(|piece| piece.start < position) {
        let end = piece.end.min(position);
        let report: Report = XdrDecode::decode(&mut input)?;
        let mut take = |bytes: u64| {
            let bytes = usize::try_from(bytes).map_err(|_| XdrError::Invalid("a length"))?;
            input.take(bytes)
        };
        let (head, rows) = (take(report.head_bytes)?, take(report.row_bytes)?);
        let tail = take(report.tail_bytes)?;
        let ends_file = end >= file_bytes;
        let piece = Piece { offset: piece.start, starts_record: false, ends_file };
        parts.push(Part { piece, end, report, head, rows, tail });
        if report.done {
            break;
        }
    }
    Ok((parts, &data[input.position()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Expression;
    use crate::format::{Column, Delimited, Format, Type};
    use crate::plan::{Aggregate, Function, Item, Options};

    #[test]
    fn a_report_is_as_long_as_is_said() {
        assert_eq!(nasd_xdr::to_bytes(&Report::default()).len(), REPORT_BYTES);
    }

    /// Groups of texts, with what is told of an aggregate of each kind.
    fn answer(most: usize) -> Answer {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        let columns = vec![column("k", Type::Text), column("f", Type::Float)];
        let delimited = Delimited { delimiter: b',', quote: None, header: false, columns };
        let item = |function, at| Item { function, argument: Some(Expression::column(at)) };
        let items = vec![
            item(Function::Count, 0),
            item(Function::Min, 0),
            item(Function::Max, 1),
            item(Function::Avg, 1),
        ];
        let keys = vec![Expression::column(0)];
        let program = Program::Aggregate(Aggregate { filter: None, keys, items });
        let format = Format::Delimited(delimited);
        let plan = Plan { format, program, options: Options::default() };
        Answer::new(&plan.check().unwrap(), u64::MAX, vec![0xee; most], 1)
    }

    #[test]
    fn no_partial_result_has_more_bytes_than_its_bound() {
        let mut answer = answer(8 << 20);
        answer.begin(0);
        assert!(answer.scan.result_bytes() <= answer.scan.result_bound());
        for round in 0..50_i32 {
            let lines = (0..20).map(|line| {
                let key = "x".repeat((round * line) as usize % 70);
                format!("{key}{line},{}e{}\n", line * 7 + 1, (round * 13 + line) % 600 - 300)
            });
            let lines: Vec<String> = lines.collect();
            assert_eq!(answer.feed(lines.concat().as_bytes()), Ok(Next::More));
            assert!(answer.scan.result_bytes() <= answer.scan.result_bound());
        }
    }

    #[test]
    fn groups_are_looked_at_only_when_they_may_be_much() {
        let mut answer = answer(1 << 20);
        answer.begin(0);
        let lines = |from: u32, keys: u32| -> String {
            (0..200_000).map(|line| format!("{},1.5\n", from + line % keys)).collect()
        };
        // A few can't be.
        let few = lines(0, 10);
        assert!(few.len() as u64 >= LOOK_BYTES);
        for _ in 0..3 {
            assert_eq!(answer.feed(few.as_bytes()), Ok(Next::More));
            assert_eq!(answer.counted, (0, 0));
        }
        // Many may, and are not, which need not be found again for what is known.
        assert_eq!(answer.feed(lines(0, 1000).as_bytes()), Ok(Next::More));
        let counted = answer.counted;
        assert!(counted.0 > 0 && counted.0 < counted.1, "{counted:?}");
        for _ in 0..3 {
            assert_eq!(answer.feed(lines(0, 1000).as_bytes()), Ok(Next::More));
            assert_eq!((answer.counted, answer.looks > 0), (counted, true));
        }
        assert_eq!(answer.feed(lines(1000, 10_000).as_bytes()), Ok(Next::Enough));
    }
}
