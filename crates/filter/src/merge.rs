//! Puts together what the scans of a file's pieces gave: the records between two pieces, partial results,
//! and rows up to a LIMIT.

use crate::aggregate::{Groups, Value};
use crate::error::MergeError;
use crate::expression::{Expression, Literal};
use crate::fixed::computed_bytes;
use crate::format::Format;
use crate::output::Output;
use crate::plan::{Checked, Program};
use crate::scan::{Fed, Piece, Report, Scan};
use crate::top::{Top, TopRow};

/// Bytes that a seam's rows are moved in.
const STEP_BYTES: usize = 16 << 10;

/// The records that cross the ends of pieces: the tail of one joined with the head of the next, and run.
///
/// Pieces come in the file's order, without gaps; of each first its head, then its tail. Between the two
/// the piece's own rows have their place.
pub struct Seams {
    scan: Scan,
    /// Where the record under way begins in the file, if one is.
    open: Option<u64>,
    /// Where the last piece ended; `None` before the first.
    end: Option<u64>,
    /// It ended the file.
    is_at_end: bool,
    records: u64,
    selected: u64,
    bad: u64,
}

impl Seams {
    /// For the pieces of one file.
    pub fn new(checked: &Checked) -> Seams {
        let scan = checked.start();
        Seams { scan, open: None, end: None, is_at_end: false, records: 0, selected: 0, bad: 0 }
    }

    /// Joins the head of the next piece, the first `report.head_bytes` of its output, with what is under
    /// way: gives the rows of the record that ends with it, which come before the piece's own. When that
    /// reaches a LIMIT, tells so.
    ///
    /// # Errors
    ///
    /// [`MergeError::Scan`] if that record can't be evaluated, [`MergeError::Pieces`] if the pieces are
    /// not one after the other.
    pub fn head(
        &mut self,
        piece: Piece,
        report: &Report,
        head: &[u8],
    ) -> Result<(Vec<u8>, Fed), MergeError> {
        let mut rows = Vec::new();
        match self.end {
            Some(end) if end != piece.offset => {
                return Err(MergeError::Pieces("there is a gap between them"));
            }
            None if report.head_bytes > 0 => {
                return Err(MergeError::Pieces("the first begins within a record"));
            }
            _ if self.is_at_end => {
                return Err(MergeError::Pieces("one is behind the end of the file"));
            }
            // Bytes of a record that nobody has the begin of.
            _ if self.open.is_none() && report.head_bytes > 0 => {
                return Err(MergeError::Pieces("one begins within a record that did not begin"));
            }
            _ => {}
        }
        let headless = report.head_bytes == 0 && !report.all_head;
        if headless && self.open == Some(piece.offset) {
            // The piece begins with a record, and nothing of it is before.
            self.drive(&[], &mut rows, |scan, _, output| scan.end_piece(output))?;
            self.open = None;
        }
        if self.open.is_none() {
            return Ok((rows, Fed::All));
        }
        self.feed(head, &mut rows)?;
        if report.head_overlong {
            self.scan.overlong()?;
            if !report.all_head {
                self.feed(b"\n", &mut rows)?;
            }
        }
        if report.all_head && !piece.ends_file {
            return Ok((rows, Fed::All));
        }
        if report.all_head {
            self.scan.piece_ends_file();
        }
        let fed = self.close(&mut rows)?;
        Ok((rows, fed))
    }

    /// Takes the tail of the same piece, the last `report.tail_bytes` of its output. The piece ends at byte
    /// `end` of the file.
    ///
    /// # Errors
    ///
    /// As `head`, which was called before.
    pub fn tail(
        &mut self,
        piece: Piece,
        end: u64,
        report: &Report,
        tail: &[u8],
    ) -> Result<(), MergeError> {
        self.end = Some(end);
        self.is_at_end = piece.ends_file;
        if self.open.is_some() || piece.ends_file || report.done {
            // All head, the file's end, or the LIMIT.
            return Ok(());
        }
        let offset = report.tail_offset;
        self.scan.begin_piece(Piece { offset, starts_record: true, ends_file: false });
        self.open = Some(offset);
        if report.tail_overlong {
            self.scan.overlong()?;
        }
        // The beginning of a record gives no rows.
        self.feed(tail, &mut Vec::new())?;
        Ok(())
    }

    /// The file ends with the last piece, which didn't know: the rows of what is under way.
    ///
    /// # Errors
    ///
    /// As `head`.
    pub fn end(&mut self) -> Result<Vec<u8>, MergeError> {
        let mut rows = Vec::new();
        if self.open.is_some() {
            self.scan.piece_ends_file();
            self.close(&mut rows)?;
        }
        Ok(rows)
    }

    /// The next piece is the first one of another file; `end` has told of this one's last record.
    pub fn next_file(&mut self) {
        (self.end, self.is_at_end) = (None, false);
    }

    /// The partial result of these records; empty for a Select.
    ///
    /// # Errors
    ///
    /// [`MergeError::Scan`] when the scan has failed, or a record is under way still.
    pub fn finish(&mut self) -> Result<Vec<u8>, MergeError> {
        let mut result = Vec::new();
        self.drive(&[], &mut result, |scan, _, output| scan.finish(output))?;
        Ok(result)
    }

    /// Records that were looked at, selected, and bad.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.records, self.selected, self.bad)
    }

    fn close(&mut self, rows: &mut Vec<u8>) -> Result<Fed, MergeError> {
        let fed = self.drive(&[], rows, |scan, _, output| scan.end_piece(output))?;
        self.open = None;
        let report = self.scan.report();
        // A record that is whole leaves nothing behind it.
        if report.tail_bytes > 0 || report.tail_overlong {
            return Err(MergeError::Pieces("a head does not end with its record"));
        }
        self.records += report.records;
        self.selected += report.selected;
        self.bad += report.bad;
        Ok(fed)
    }

    fn feed(&mut self, bytes: &[u8], rows: &mut Vec<u8>) -> Result<Fed, MergeError> {
        self.drive(bytes, rows, Scan::feed)
    }

    /// Calls until everything is taken, moving what is written to `rows`.
    fn drive(
        &mut self,
        bytes: &[u8],
        rows: &mut Vec<u8>,
        mut call: impl FnMut(&mut Scan, &[u8], &mut Output<'_>) -> Result<Fed, crate::ScanError>,
    ) -> Result<Fed, MergeError> {
        let mut rest = bytes;
        let mut buffer = vec![0; STEP_BYTES];
        loop {
            let mut output = Output::new(&mut buffer);
            let fed = call(&mut self.scan, rest, &mut output)?;
            rows.extend_from_slice(output.written());
            match fed {
                Fed::Full { consumed } => rest = &rest[consumed..],
                _ => return Ok(fed),
            }
        }
    }
}

/// Adds up partial results of an Aggregate or a Top.
pub struct Merge {
    state: State,
}

enum State {
    Select,
    Aggregate(Box<Groups>),
    Top(Box<Top>),
}

/// What an Aggregate or a Top comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Merged {
    /// Of a Select there is nothing to merge: its rows are the result.
    Select,
    /// A row for each group: the keys, then the items; in the order of the keys, NULL last.
    Aggregate(Vec<Vec<Value>>),
    /// The records, in order.
    Top(Vec<TopRow>),
}

impl Merge {
    /// Of nothing yet.
    pub fn new(checked: &Checked) -> Merge {
        let state = match &checked.plan().program {
            Program::Select(_) => State::Select,
            Program::Aggregate(program) => {
                State::Aggregate(Box::new(Groups::new(checked, program)))
            }
            Program::Top(program) => State::Top(Box::new(Top::new(checked, program))),
        };
        Merge { state }
    }

    /// Adds a partial result; in any order.
    ///
    /// # Errors
    ///
    /// [`MergeError`]; the merge is void then.
    pub fn add(&mut self, partial: &[u8]) -> Result<(), MergeError> {
        match &mut self.state {
            State::Select if partial.is_empty() => Ok(()),
            State::Select => Err(MergeError::OtherProgram),
            State::Aggregate(groups) => groups.merge(partial),
            State::Top(top) => top.merge(partial),
        }
    }

    /// What is added now is of a file behind one of so many bytes, and all before it.
    pub fn next_file(&mut self, bytes: u64) {
        if let State::Top(top) = &mut self.state {
            top.next_file(bytes);
        }
    }

    /// The result.
    pub fn finish(self) -> Merged {
        match self.state {
            State::Select => Merged::Select,
            State::Aggregate(groups) => Merged::Aggregate(groups.rows()),
            State::Top(mut top) => Merged::Top(top.rows()),
        }
    }
}

/// The first `count` rows of a Select's or a Top's output; all if there are not more. With pieces in the
/// file's order this keeps a LIMIT over several scans.
pub fn first_rows<'a>(checked: &Checked, rows: &'a [u8], count: u64) -> &'a [u8] {
    // A row has a byte at least.
    if count >= rows.len() as u64 {
        return rows;
    }
    let plan = checked.plan();
    let projected = plan.program.projection().is_some();
    let quote = match &plan.format {
        Format::Fixed(_) => {
            let bytes = (row_bytes(checked) as u64).saturating_mul(count);
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            return &rows[..bytes.min(rows.len())];
        }
        // Lines of the file hold no line end, whatever their quotes.
        _ if !projected => None,
        Format::Delimited(format) => Some(format.quote.unwrap_or(b'"')),
        Format::JsonLines(_) | Format::Columns(_) => Some(b'"'),
    };
    let (mut left, mut quoted) = (count, false);
    for (at, &byte) in rows.iter().enumerate() {
        if left == 0 {
            return &rows[..at];
        }
        if Some(byte) == quote {
            quoted = !quoted;
        } else if byte == b'\n' && !quoted {
            left -= 1;
        }
    }
    rows
}

/// Bytes of each row of fixed records, which are all the same; 0 of other formats.
pub fn row_bytes(checked: &Checked) -> usize {
    let Format::Fixed(fixed) = &checked.plan().format else {
        return 0;
    };
    let Some(projection) = checked.plan().program.projection() else {
        return fixed.record_bytes();
    };
    let outputs = &checked.code().outputs;
    let outcomes = &outputs[outputs.len() - projection.len()..];
    let bytes = outcomes.iter().zip(projection).map(|(outcome, expression)| match outcome.column {
        Some(column) => fixed.fields[column].kind.bytes(),
        None => match expression {
            Expression::Literal(Literal::Text(text)) => computed_bytes(outcome.kind, text.len()),
            _ => computed_bytes(outcome.kind, 0),
        },
    });
    bytes.sum()
}
