//! What a filter has told, record by record.

use std::sync::Arc;

use nasd_clerk::{FileGrep, FileScan, OpenFile, ScanOptions, ScanRows};
use nasd_filter::{Checked, Format, Merged, Program, Value, delimited_row, first_rows, row_bytes};

use nasd_grep::Line;

use crate::error::SmasError;
use crate::filter::{Chosen, Shown};

/// Bytes of a number that is told by itself.
const NUMBER_BYTES: usize = 8;

/// Answers of a filter under way.
pub(crate) struct Answers {
    source: Source,
    rows: Rows,
}

/// Where more come from.
enum Source {
    Scan { scan: Box<FileScan>, shown: Shown },
    Grep(FileGrep),
    Over,
    Failed(SmasError),
}

/// Records that are there, one after the other.
struct Rows {
    /// Those that are left.
    left: ScanRows,
    framing: Framing,
    /// Whether they are lines of text.
    is_text: bool,
}

/// How one is told from the next.
enum Framing {
    /// All are of that length.
    Same {
        bytes: usize,
        /// They are records as they are in the file.
        is_record: bool,
    },
    /// As lines of this program are.
    Rows(Box<Checked>),
    /// They end with LF.
    Lines,
    /// Each is as long as it says here; the last one first.
    Lengths(Vec<usize>),
}

impl Answers {
    /// Begins a filter over all of a file.
    pub(crate) fn start(file: Arc<OpenFile>, chosen: Chosen) -> Result<Answers, SmasError> {
        let options = ScanOptions::default();
        let (source, framing) = match chosen {
            Chosen::Scan { checked, shown } => {
                let scan = Box::new(FileScan::start(file, &checked, options)?);
                (Source::Scan { scan, shown }, Framing::of(&checked))
            }
            Chosen::Grep(plan) => {
                (Source::Grep(FileGrep::start(file, &plan, options)?), Framing::Lines)
            }
        };
        let is_text = matches!(framing, Framing::Rows(_) | Framing::Lines);
        Ok(Answers { source, rows: Rows { left: ScanRows::default(), framing, is_text } })
    }

    /// The next record, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, SmasError> {
        if !self.find()? {
            return Ok(None);
        }
        Ok(Some(self.rows.take()))
    }

    /// Some of the records that are there, as many as lie behind each other and at least one, where each is as long as the others; `None`
    /// after the last one.
    pub(crate) fn next_some(&mut self) -> Result<Option<&[u8]>, SmasError> {
        self.same_bytes()?;
        if !self.find()? {
            return Ok(None);
        }
        Ok(Some(self.rows.left.take(usize::MAX)))
    }

    /// As many of them as there is room for in `into`, at least one: how many bytes they have.
    pub(crate) fn next_some_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, SmasError> {
        let record = self.same_bytes()?;
        if record > into.len() {
            return Err(SmasError::Room { record, room: into.len() });
        }
        if !self.find()? {
            return Ok(None);
        }
        let (mut filled, room) = (0, into.len() / record * record);
        while filled < room && !self.rows.left.is_empty() {
            let taken = self.rows.left.take(room - filled);
            into[filled..filled + taken.len()].copy_from_slice(taken);
            filled += taken.len();
        }
        Ok(Some(filled))
    }

    /// How long each record is, where all are of one length.
    fn same_bytes(&self) -> Result<usize, SmasError> {
        match self.rows.framing {
            Framing::Same { bytes, .. } if bytes > 0 => Ok(bytes),
            _ => Err(SmasError::Argument(
                "these are not of one length each: take them one by one".to_owned(),
            )),
        }
    }

    /// The same as [`next`](Self::next) into the start of `into`, where there is room for it: how many bytes it has. One that is text has a zero
    /// byte behind it there if that is asked for, which counts.
    pub(crate) fn next_into(
        &mut self,
        into: &mut [u8],
        with_zero: bool,
    ) -> Result<Option<usize>, SmasError> {
        if !self.find()? {
            return Ok(None);
        }
        let zero = usize::from(with_zero && self.rows.is_text);
        let record = self.rows.first().0.len() + zero;
        if record > into.len() {
            return Err(SmasError::Room { record, room: into.len() });
        }
        let found = self.rows.take();
        let (text, end) = into[..record].split_at_mut(found.len());
        text.copy_from_slice(found);
        end.fill(0);
        Ok(Some(record))
    }

    /// How much room the next record takes at most, where that follows from what was asked; `None` after the last one.
    pub(crate) fn next_bytes(&mut self) -> Result<Option<usize>, SmasError> {
        if !self.find()? {
            return Ok(None);
        }
        match self.rows.framing {
            Framing::Same { bytes, is_record: true } => Ok(Some(bytes)),
            Framing::Lengths(_) if !self.rows.is_text => Ok(Some(NUMBER_BYTES)),
            _ => Err(SmasError::Argument(
                "these are no records of the file, and no numbers: say how much room there is"
                    .to_owned(),
            )),
        }
    }

    /// Whether there is another record. What came before a failure is had before it is told, which it is from then on.
    fn find(&mut self) -> Result<bool, SmasError> {
        while self.rows.is_empty() {
            match &self.source {
                Source::Over => return Ok(false),
                Source::Failed(error) => return Err(error.clone()),
                Source::Scan { .. } | Source::Grep(_) => {}
            }
            if let Err(error) = self.ask() {
                self.source = Source::Failed(error);
            }
        }
        Ok(true)
    }

    /// Asks for more.
    fn ask(&mut self) -> Result<(), SmasError> {
        let rows = &mut self.rows.left;
        let is_over = match &mut self.source {
            Source::Scan { scan, .. } => !scan.next_part(rows)?,
            Source::Grep(grep) => {
                rows.clear();
                !grep.next_lines(&mut |line| put_line(rows, line))?
            }
            Source::Over | Source::Failed(_) => return Ok(()),
        };
        if !is_over {
            return Ok(());
        }
        match std::mem::replace(&mut self.source, Source::Over) {
            Source::Scan { scan, shown } => {
                let scanned = scan.finish(&mut |row| rows.put(row))?;
                self.rows.merged(scanned.merged, &shown)
            }
            // The last line may have no end.
            Source::Grep(grep) => {
                grep.finish(&mut |line| put_line(rows, line))?;
                Ok(())
            }
            Source::Over | Source::Failed(_) => Ok(()),
        }
    }
}

/// The first so many bytes, and how many these are.
fn whole(rest: &[u8], bytes: usize) -> (&[u8], usize) {
    let record = &rest[..bytes.min(rest.len())];
    (record, record.len())
}

fn put_line(rows: &mut ScanRows, line: Line<'_>) {
    rows.put(line.text);
    rows.put(b"\n");
}

impl Framing {
    fn of(checked: &Checked) -> Framing {
        let plan = checked.plan();
        match &plan.format {
            _ if matches!(plan.program, Program::Aggregate(_)) => Framing::Lengths(Vec::new()),
            // Bytes that may be anything.
            Format::Fixed(_) => Framing::Same {
                bytes: row_bytes(checked),
                is_record: plan.program.projection().is_none(),
            },
            Format::Delimited(_) | Format::JsonLines(_) | Format::Columns(_) => {
                Framing::Rows(Box::new(checked.clone()))
            }
        }
    }
}

impl Rows {
    fn is_empty(&self) -> bool {
        match &self.framing {
            // Some may have no bytes.
            Framing::Lengths(lengths) => lengths.is_empty(),
            _ => self.left.is_empty(),
        }
    }

    /// The first of those that are left, and how many bytes it takes with its end.
    fn first(&self) -> (&[u8], usize) {
        let rest = self.left.first();
        let row = match &self.framing {
            Framing::Same { bytes, .. } => return whole(rest, *bytes),
            Framing::Lengths(lengths) => return whole(rest, lengths.last().copied().unwrap_or(0)),
            Framing::Rows(checked) => first_rows(checked, rest, 1),
            Framing::Lines => {
                let end = rest.iter().position(|byte| *byte == b'\n');
                &rest[..end.map_or(rest.len(), |end| end + 1)]
            }
        };
        let text = row.strip_suffix(b"\n").unwrap_or(row);
        match self.framing {
            Framing::Rows(_) => (text.strip_suffix(b"\r").unwrap_or(text), row.len()),
            _ => (text, row.len()),
        }
    }

    /// The first of them, which is no more among them.
    fn take(&mut self) -> &[u8] {
        let (text, with_end) = self.first();
        let (text, with_end) = (text.len(), with_end);
        if let Framing::Lengths(lengths) = &mut self.framing {
            lengths.pop();
        }
        &self.left.take(with_end)[..text]
    }

    /// Puts in what is told at the end.
    fn merged(&mut self, mut merged: Merged, shown: &Shown) -> Result<(), SmasError> {
        if let Shown::Columns { arrangement, .. } = shown {
            arrangement.arrange(&mut merged);
        }
        match merged {
            Merged::Select => {}
            Merged::Top(rows) => {
                rows.iter().for_each(|top| self.left.put(&top.row));
            }
            Merged::Aggregate(groups) => {
                let mut lengths = Vec::with_capacity(groups.len());
                self.is_text = shown.is_text(&groups);
                for group in &groups {
                    if let Some(row) = shown.row(group)? {
                        self.left.put(&row);
                        lengths.push(row.len());
                    }
                }
                lengths.reverse();
                self.framing = Framing::Lengths(lengths);
            }
        }
        Ok(())
    }
}

impl Shown {
    fn is_text(&self, groups: &[Vec<Value>]) -> bool {
        let is_text = |group: &Vec<Value>| matches!(group.first(), Some(Value::Text(_)));
        matches!(self, Shown::Columns { .. }) || groups.iter().any(is_text)
    }

    /// A group as it is told; what is NULL is not.
    fn row(&self, group: &[Value]) -> Result<Option<Vec<u8>>, SmasError> {
        match self {
            Shown::Value => value_bytes(group.first().unwrap_or(&Value::Null)),
            Shown::Columns { places, marks: (delimiter, quote), .. } => {
                let values = places.iter().filter_map(|place| group.get(*place));
                let mut row = delimited_row(values, *delimiter, *quote);
                // Its end is no part of it, as of other lines.
                row.pop_if(|end| *end == b'\n');
                Ok(Some(row))
            }
        }
    }
}

/// The bytes of a value that is told by itself, as programs have it in memory.
#[allow(clippy::host_endian_bytes, reason = "they stay on this machine")]
fn value_bytes(value: &Value) -> Result<Option<Vec<u8>>, SmasError> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(value) => i64::from(*value).to_ne_bytes().to_vec(),
        Value::Int(value) => value.to_ne_bytes().to_vec(),
        Value::HugeInt(value) => {
            i64::try_from(*value).map_err(|_| SmasError::Sum(*value))?.to_ne_bytes().to_vec()
        }
        Value::Float(value) => value.to_ne_bytes().to_vec(),
        Value::Text(text) => text.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use nasd_filter::{Arrangement, Column, Delimited, Options, Plan, Select, Type};

    use super::*;

    fn rows(framing: Framing, bytes: &[u8]) -> Rows {
        let mut left = ScanRows::default();
        left.put(bytes);
        Rows { left, framing, is_text: true }
    }

    fn all(mut rows: Rows) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !rows.is_empty() {
            found.push(rows.take().to_vec());
        }
        found
    }

    /// A table with a quote, and whether its rows are put together anew.
    fn table(is_projected: bool) -> Checked {
        let columns = vec![Column { name: "a".to_owned(), kind: Type::Text }];
        let format = Delimited { delimiter: b',', quote: Some(b'"'), header: false, columns };
        let projection = is_projected.then(|| vec![nasd_filter::Expression::Column(0)]);
        let program = Program::Select(Select { filter: None, projection, limit: None });
        let format = Format::Delimited(format);
        Plan { format, program, options: Options::default() }.check().unwrap()
    }

    #[test]
    fn rows_are_told_apart_whatever_is_in_them() {
        let projected = Framing::Rows(Box::new(table(true)));
        let found = all(rows(projected, b"one\n\"two\nlines, \"\"\"\n\nlast"));
        assert_eq!(found, [&b"one"[..], b"\"two\nlines, \"\"\"", b"", b"last"]);
        let lines = Framing::Rows(Box::new(table(false)));
        assert_eq!(all(rows(lines, b"a\"b\r\nc\n")), [&b"a\"b"[..], b"c"]);
        assert_eq!(all(rows(Framing::Lines, b"\n\na\r\n")), [&b""[..], b"", b"a\r"]);
        let same = Framing::Same { bytes: 2, is_record: true };
        assert_eq!(all(rows(same, b"a\n\n\n")), [b"a\n", b"\n\n"]);
        let lengths = Framing::Lengths(vec![0, 3, 0]);
        assert_eq!(all(rows(lengths, b"a\nb")), [&b""[..], b"a\nb", b""]);
    }

    #[test]
    fn values_are_told_as_they_are_in_memory() {
        let value = |value| Shown::Value.row(&[value]);
        assert_eq!(value(Value::Null).unwrap(), None);
        assert_eq!(value(Value::HugeInt(-1)).unwrap(), Some(vec![0xff; 8]));
        assert!(matches!(value(Value::HugeInt(1 << 64)), Err(SmasError::Sum(_))));
        assert_eq!(value(Value::Float(0.0)).unwrap(), Some(vec![0; 8]));
        assert_eq!(value(Value::Text(Vec::new())).unwrap(), Some(Vec::new()));
        let group = [Value::Text(b"a,b".to_vec()), Value::Int(7)];
        let row = |delimiter| {
            let (places, arrangement) = (vec![1, 0], Arrangement::default());
            let shown = Shown::Columns { places, arrangement, marks: (delimiter, b'"') };
            shown.row(&group).unwrap().unwrap()
        };
        assert_eq!(row(b','), b"7,\"a,b\"");
        assert_eq!(row(b'\t'), b"7\ta,b");
    }
}
