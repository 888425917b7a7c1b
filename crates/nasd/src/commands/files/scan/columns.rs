//! What the records of a file are: as the user says, or from its name and its first lines.

use super::files::Named;
use super::members::Members;
use crate::arguments::{FormatArguments, RecordFormat};
use nasd_clerk::OpenFile;
use nasd_filter::{
    Column, Delimited, Field, FieldKind, Fixed, Format, JsonLines, Type, guess_columns,
};
use std::error::Error;

/// Bytes from which columns are guessed.
const SAMPLE_BYTES: usize = 1 << 20;

/// Bytes in which the names of columns are looked for, where they are known.
const NAMES_BYTES: usize = 64 << 10;

/// Bytes by which a Parquet file is known.
const PARQUET: &[u8] = b"PAR1";

/// What is wrong with a file that can't be scanned with the first one.
pub const OTHER_COLUMNS: &str = "its columns are not those of the first file: scan it by itself";

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

/// What the records of a file are.
#[derive(Debug)]
pub struct Found {
    pub format: Format,
    /// Where the columns are guessed from lines of JSON.
    members: Option<Members>,
    /// Whether the columns are said by the file's first line.
    is_named_there: bool,
}

impl Found {
    /// As the user says.
    fn said(format: Format) -> Found {
        Found { format, members: None, is_named_there: false }
    }

    /// Why there is no column of a name, if more is known of it.
    pub fn why_not(&self, name: &str) -> Option<&'static str> {
        Some(self.members.as_ref()?.why_not(name))
    }

    /// Fails if another file has other columns: the same program would mean something else there. Of what the user has said, and of lines
    /// of JSON, that is told by the records.
    pub fn check_other(&self, named: &Named, file: &OpenFile) -> Result<(), Box<dyn Error>> {
        let Format::Delimited(lines) = &self.format else { return Ok(()) };
        if !self.is_named_there {
            return Ok(());
        }
        let (sample, is_whole) = sample(named, file, NAMES_BYTES)?;
        if sample.is_empty() {
            return Ok(());
        }
        let Delimited { delimiter, quote, header, ref columns } = *lines;
        let found = guess_columns(&sample, is_whole, delimiter, quote, header);
        let are_same = found.len() == columns.len()
            && found.iter().zip(columns).all(|(found, known)| found.name == known.name);
        match are_same {
            true => Ok(()),
            false => Err(named.failed(&OTHER_COLUMNS)),
        }
    }
}

/// The format of a file whose bytes are records; `None` if it has none to guess it from.
pub fn format_of(
    named: &Named,
    file: &OpenFile,
    format: RecordFormat,
    arguments: &FormatArguments,
) -> Result<Option<Found>, Box<dyn Error>> {
    let columns = arguments.columns.as_deref();
    let told = columns.is_some() || format == RecordFormat::Fixed;
    if !told && file.size() == 0 {
        return Ok(None);
    }
    let found = match format {
        RecordFormat::Fixed => {
            let told =
                columns.ok_or("fixed records need --columns, like id:u32,price:f64,name:text16")?;
            Found::said(Format::Fixed(Fixed { fields: listed(told, field)? }))
        }
        RecordFormat::Jsonl => match columns {
            Some(told) => {
                Found::said(Format::JsonLines(JsonLines { columns: listed(told, member)? }))
            }
            None => of_members(named, Members::of(&sample(named, file, SAMPLE_BYTES)?.0))?,
        },
        RecordFormat::Parquet => {
            return Err("what a Parquet file has is no matter of its bytes".into());
        }
        RecordFormat::Csv | RecordFormat::Tsv => {
            let delimiter = delimiter(arguments, format)?;
            let (quote, header) = (Some(b'"'), !arguments.no_header);
            let (columns, is_named_there) = match columns {
                Some(told) => (listed(told, column)?, false),
                None => {
                    let (sample, is_whole) = sample(named, file, SAMPLE_BYTES)?;
                    (guess_columns(&sample, is_whole, delimiter, quote, header), true)
                }
            };
            if columns.is_empty() {
                let why = "no columns are to be found in its first lines: say --columns";
                return Err(named.failed(&why));
            }
            let format = Format::Delimited(Delimited { delimiter, quote, header, columns });
            Found { format, members: None, is_named_there }
        }
    };
    Ok(Some(found))
}

fn of_members(named: &Named, mut members: Members) -> Result<Found, Box<dyn Error>> {
    let columns = std::mem::take(&mut members.columns);
    if columns.is_empty() {
        let why = match members.has_objects {
            true => "no columns are to be found in its first lines: say --columns",
            false => {
                "none of its first lines is a JSON object: each record is one, in a line by itself"
            }
        };
        return Err(named.failed(&why));
    }
    let format = Format::JsonLines(JsonLines { columns });
    Ok(Found { format, members: Some(members), is_named_there: false })
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

/// So many bytes of the beginning of the file, and whether that is all.
fn sample(named: &Named, file: &OpenFile, bytes: usize) -> Result<(Vec<u8>, bool), Box<dyn Error>> {
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
