//! What the records of a file are: as the user says, or from its name and its first lines.

use super::files::Named;
use super::members::Members;
use crate::arguments::{FormatArguments, RecordFormat};
use nasd_clerk::OpenFile;
use nasd_filter::{
    Column, Delimited, Field, FieldKind, Fixed, Format, JsonLines, Type, guess_columns,
};
use std::error::Error;
use std::sync::Arc;

/// Bytes from which columns are guessed.
const SAMPLE_BYTES: usize = 1 << 20;

/// Files from which they are guessed, if there are records in these.
const SAMPLED_FILES: usize = 16;

/// Bytes in which the names of columns are looked for, where they are known.
const NAMES_BYTES: usize = 64 << 10;

/// Bytes by which a Parquet file is known.
const PARQUET: &[u8] = b"PAR1";

/// What is wrong with a file that can't be scanned with the first one.
pub const OTHER_COLUMNS: &str = "its columns are not those of the first file: scan it by itself";

const NO_COLUMNS: &str = "no columns are to be found in its first lines: say --columns";

/// How the records of a file are written.
pub fn kind_of(
    named: &Named,
    file: &OpenFile,
    arguments: &FormatArguments,
) -> Result<RecordFormat, Box<dyn Error>> {
    if let Some(told) = arguments.format.or_else(|| by_name(&named.path)) {
        return Ok(told);
    }
    let mut begin = [0; PARQUET.len()];
    file.read(0, &mut begin).map_err(|error| named.failed(&error))?;
    if begin == PARQUET {
        return Ok(RecordFormat::Parquet);
    }
    let why = "its name does not tell how its records are written: say --format";
    Err(named.failed(&why))
}

/// What the records of all files are.
#[derive(Debug)]
pub struct Found {
    pub format: Format,
    /// Where the columns are guessed from lines of JSON.
    members: Option<Members>,
    /// Whether the columns are guessed from lines of fields, and each file has to have those.
    is_guessed: bool,
}

impl Found {
    /// As the user says.
    fn said(format: Format) -> Found {
        Found { format, members: None, is_guessed: false }
    }

    /// Why there is no column of a name, if more is known of it.
    pub fn why_not(&self, name: &str) -> Option<&'static str> {
        Some(self.members.as_ref()?.why_not(name))
    }

    /// Fails if another file has other columns: the same program would mean something else there. Of what the user has said, of lines
    /// of JSON, and where no line names columns, that is told by the records.
    pub fn check_other(&self, named: &Named, file: &OpenFile) -> Result<(), Box<dyn Error>> {
        let Format::Delimited(lines) = &self.format else { return Ok(()) };
        if !self.is_guessed || !lines.header {
            return Ok(());
        }
        let Delimited { delimiter, quote, ref columns, .. } = *lines;
        let found = beginning_with_line(named, file)?;
        let names = guess_columns(first_line(&found).0, true, delimiter, quote, true);
        match found.is_empty() || same_names(&names, columns) {
            true => Ok(()),
            false => Err(named.failed(&OTHER_COLUMNS)),
        }
    }
}

fn same_names(some: &[Column], others: &[Column]) -> bool {
    some.len() == others.len() && some.iter().zip(others).all(|(one, other)| one.name == other.name)
}

/// The format of files whose bytes are records.
pub fn format_of(
    beginnings: &mut Beginnings<'_>,
    arguments: &FormatArguments,
) -> Result<Found, Box<dyn Error>> {
    let columns = arguments.columns.as_deref();
    let kind = beginnings.kind;
    match kind {
        RecordFormat::Fixed => {
            let told =
                columns.ok_or("fixed records need --columns, like id:u32,price:f64,name:text16")?;
            Ok(Found::said(Format::Fixed(Fixed { fields: listed(told, field)? })))
        }
        RecordFormat::Jsonl => match columns {
            Some(told) => {
                let columns = listed(told, member)?;
                Ok(Found::said(Format::JsonLines(JsonLines { columns })))
            }
            None => {
                let sample = beginnings.sample(None)?;
                of_members(beginnings.of(&sample), Members::of(&sample.lines))
            }
        },
        RecordFormat::Parquet => Err("what a Parquet file has is no matter of its bytes".into()),
        RecordFormat::Csv | RecordFormat::Tsv => {
            let delimiter = delimiter(arguments, kind)?;
            let (quote, header) = (Some(b'"'), !arguments.no_header);
            let is_guessed = columns.is_none();
            let columns = match columns {
                Some(told) => listed(told, column)?,
                None => {
                    let names = |line: &[u8]| guess_columns(line, true, delimiter, quote, true);
                    let names: &Names<'_> = &names;
                    let sample = beginnings.sample(header.then_some(names))?;
                    let (lines, is_whole) = (&sample.lines, !sample.is_cut);
                    let columns = guess_columns(lines, is_whole, delimiter, quote, header);
                    if columns.is_empty() {
                        return Err(beginnings.of(&sample).failed(&NO_COLUMNS));
                    }
                    columns
                }
            };
            let format = Format::Delimited(Delimited { delimiter, quote, header, columns });
            Ok(Found { format, members: None, is_guessed })
        }
    }
}

/// The columns that a first line names.
type Names<'n> = dyn Fn(&[u8]) -> Vec<Column> + 'n;

/// Files of one kind that are opened as far as they are needed to find out what their records are.
pub struct Beginnings<'f> {
    pub kind: RecordFormat,
    files: &'f [Named],
    arguments: &'f FormatArguments,
    /// The first ones.
    opened: Vec<Arc<OpenFile>>,
}

impl<'f> Beginnings<'f> {
    /// Of files, of which the first one is open.
    pub fn new(
        files: &'f [Named],
        first: Arc<OpenFile>,
        arguments: &'f FormatArguments,
    ) -> Result<Beginnings<'f>, Box<dyn Error>> {
        let kind = kind_of(&files[0], &first, arguments)?;
        Ok(Beginnings { kind, files, arguments, opened: vec![first] })
    }

    /// The files that were opened.
    pub fn into_opened(self) -> Vec<Arc<OpenFile>> {
        self.opened
    }

    /// The first file that is in a sample.
    fn of(&self, sample: &Sample) -> &'f Named {
        &self.files[sample.first.unwrap_or(0)]
    }

    fn open(&mut self, index: usize) -> Result<Arc<OpenFile>, Box<dyn Error>> {
        if let Some(file) = self.opened.get(index) {
            return Ok(Arc::clone(file));
        }
        let named = &self.files[index];
        let file = named.open()?;
        check_kind(self.kind, named, &file, self.arguments)?;
        self.opened.push(Arc::clone(&file));
        Ok(file)
    }

    /// The first lines as if all files were one, from a few files at least and as far as there are records. Where a line with the names of
    /// columns begins each, it is there once.
    fn sample(&mut self, names: Option<&Names<'_>>) -> Result<Sample, Box<dyn Error>> {
        let mut sample = Sample::default();
        for index in 0..self.files.len() {
            if sample.is_enough(index) {
                break;
            }
            match self.add_to(&mut sample, index, names) {
                Ok(()) => {}
                // It is told when it is its turn, if that comes.
                Err(_) if sample.has_records => {
                    self.opened.truncate(index);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        match sample.lines.is_empty() {
            true => {
                let why = "it is empty, so that no columns are to be found: say --columns";
                Err(self.files[0].failed(&why))
            }
            false => Ok(sample),
        }
    }

    /// Puts the beginning of a file behind what there is.
    fn add_to(
        &mut self,
        sample: &mut Sample,
        index: usize,
        names: Option<&Names<'_>>,
    ) -> Result<(), Box<dyn Error>> {
        let (file, named) = (self.open(index)?, &self.files[index]);
        let room = SAMPLE_BYTES - sample.lines.len();
        let (beginning, is_whole) = beginning(named, &file, room)?;
        if beginning.is_empty() {
            return Ok(());
        }
        let Some(names) = names else {
            sample.push(index, &beginning, is_whole);
            sample.has_records = true;
            return Ok(());
        };
        let (line, records) = first_line(&beginning);
        match &sample.names {
            None => {
                sample.names = Some(names(line));
                sample.push(index, &beginning, is_whole);
            }
            Some(known) => {
                let whole = beginning_with_line(named, &file)?;
                if !same_names(&names(first_line(&whole).0), known) {
                    return Err(named.failed(&OTHER_COLUMNS));
                }
                sample.push(index, records, is_whole);
            }
        }
        sample.has_records |= !records.is_empty();
        Ok(())
    }
}

/// The first lines of some files.
#[derive(Default)]
struct Sample {
    lines: Vec<u8>,
    /// The last one is cut.
    is_cut: bool,
    /// The columns that the first line of each file names.
    names: Option<Vec<Column>>,
    /// There is more than those.
    has_records: bool,
    /// The first file with some.
    first: Option<usize>,
}

impl Sample {
    /// Whether another file is not needed.
    fn is_enough(&self, files: usize) -> bool {
        let are_many = files >= SAMPLED_FILES && self.has_records;
        self.is_cut || are_many || self.lines.len() >= SAMPLE_BYTES
    }

    fn push(&mut self, index: usize, lines: &[u8], is_whole: bool) {
        self.first.get_or_insert(index);
        self.is_cut = !is_whole;
        // Whatever comes behind it, the last line is whole.
        if !self.lines.is_empty() && !self.lines.ends_with(b"\n") {
            self.lines.push(b'\n');
        }
        self.lines.extend_from_slice(lines);
    }
}

/// Fails if the records of a file are written in another way than those of the first.
pub fn check_kind(
    kind: RecordFormat,
    named: &Named,
    file: &OpenFile,
    arguments: &FormatArguments,
) -> Result<(), Box<dyn Error>> {
    match kind_of(named, file, arguments)? == kind {
        true => Ok(()),
        false => {
            let why = "its records are not written as those of the first file: scan it by itself, or say --format";
            Err(named.failed(&why))
        }
    }
}

fn of_members(named: &Named, mut members: Members) -> Result<Found, Box<dyn Error>> {
    let columns = std::mem::take(&mut members.columns);
    if columns.is_empty() {
        let why = match members.has_objects {
            true => NO_COLUMNS,
            false => {
                "none of its first lines is a JSON object: each record is one, in a line by itself"
            }
        };
        return Err(named.failed(&why));
    }
    let format = Format::JsonLines(JsonLines { columns });
    Ok(Found { format, members: Some(members), is_guessed: false })
}

fn by_name(path: &str) -> Option<RecordFormat> {
    let name = path.to_ascii_lowercase();
    match name.rsplit_once('.')?.1 {
        "csv" => Some(RecordFormat::Csv),
        "tsv" => Some(RecordFormat::Tsv),
        "jsonl" | "ndjson" => Some(RecordFormat::Jsonl),
        "parquet" => Some(RecordFormat::Parquet),
        _ => None,
    }
}

fn delimiter(arguments: &FormatArguments, format: RecordFormat) -> Result<u8, String> {
    match (arguments.delimiter, format) {
        (Some(told), _) => {
            u8::try_from(told).map_err(|_| format!("--delimiter: `{told}` is not ASCII"))
        }
        (None, RecordFormat::Tsv) => Ok(b'\t'),
        (None, _) => Ok(b','),
    }
}

/// A line with its end, and what is behind it.
fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    bytes.split_at(end.map_or(bytes.len(), |at| at + 1))
}

/// A beginning in which the first line is whole, but for one that is as long as all that is looked at.
fn beginning_with_line(named: &Named, file: &OpenFile) -> Result<Vec<u8>, Box<dyn Error>> {
    let (found, is_whole) = beginning(named, file, NAMES_BYTES)?;
    match is_whole || found.contains(&b'\n') {
        true => Ok(found),
        false => Ok(beginning(named, file, SAMPLE_BYTES)?.0),
    }
}

/// So many bytes of the beginning of the file, and whether that is all.
fn beginning(
    named: &Named,
    file: &OpenFile,
    bytes: usize,
) -> Result<(Vec<u8>, bool), Box<dyn Error>> {
    let mut sample = vec![0; bytes];
    let length = file.read(0, &mut sample).map_err(|error| named.failed(&error))?;
    sample.truncate(length);
    Ok((sample, length as u64 == file.size()))
}

/// Columns of `NAME:TYPE,...`.
fn listed<T>(
    text: &str,
    column: impl Fn(&str, &str) -> Option<T>,
) -> Result<Vec<T>, Box<dyn Error>> {
    let columns = text.split(',').map(|told| {
        let found = told.trim().rsplit_once(':').and_then(|(name, kind)| column(name, kind));
        found.ok_or_else(|| format!("--columns: `{told}` is no NAME:TYPE of this format").into())
    });
    columns.collect()
}

fn column(name: &str, kind: &str) -> Option<Column> {
    let kind = match kind {
        "int" => Type::Int,
        "float" => Type::Float,
        "text" => Type::Text,
        _ => return None,
    };
    Some(Column { name: name.to_owned(), kind })
}

/// A column of JSON lines, which have booleans too.
fn member(name: &str, kind: &str) -> Option<Column> {
    match kind {
        "bool" => Some(Column { name: name.to_owned(), kind: Type::Bool }),
        kind => column(name, kind),
    }
}

fn field(name: &str, kind: &str) -> Option<Field> {
    let (plain, big_endian) = match kind.strip_suffix("be") {
        Some(plain) => (plain, true),
        None => (kind, false),
    };
    let integer = |bytes, signed| FieldKind::Integer { bytes, signed, big_endian };
    let kind = match plain {
        "i8" => integer(1, true),
        "i16" => integer(2, true),
        "i32" => integer(4, true),
        "i64" => integer(8, true),
        "u8" => integer(1, false),
        "u16" => integer(2, false),
        "u32" => integer(4, false),
        "u64" => integer(8, false),
        "f32" => FieldKind::Float { bytes: 4, big_endian },
        "f64" => FieldKind::Float { bytes: 8, big_endian },
        _ => FieldKind::Text { bytes: kind.strip_prefix("text")?.parse().ok()? },
    };
    Some(Field { name: name.to_owned(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_sample_are_whole_whatever_comes_behind_them() {
        let mut sample = Sample::default();
        for (index, lines) in ["a,b\n1,2", "3,4\n", "5,6"].into_iter().enumerate() {
            sample.push(index, lines.as_bytes(), true);
        }
        assert_eq!(sample.lines, b"a,b\n1,2\n3,4\n5,6");
        assert_eq!((sample.first, sample.is_cut), (Some(0), false));
    }

    #[test]
    fn fields_are_as_they_are_named() {
        assert_eq!(listed("ok:bool", member).unwrap()[0].kind, Type::Bool);
        assert_eq!(listed("n:int", member).unwrap()[0].kind, Type::Int);
        for wrong in [listed("ok:boolean", member), listed("ok:bool", column)] {
            assert!(wrong.is_err());
        }
        let fields = listed("id:u32,price:f64be,name:text16", field).unwrap();
        let bytes: Vec<usize> = fields.iter().map(|field| field.kind.bytes()).collect();
        assert_eq!(bytes, [4, 8, 16]);
        for wrong in ["id", "id:u33", "name:text", "id:u32,,x:i8", "name:text16be"] {
            assert!(listed(wrong, field).is_err(), "{wrong}");
        }
    }
}
