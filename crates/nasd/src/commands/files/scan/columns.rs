//! What the records of a file are: as the user says, or from its name and its first lines.

use crate::arguments::{FormatArguments, RecordFormat};
use crate::commands::files::at;
use nasd_cell::CellPath;
use nasd_clerk::OpenFile;
use nasd_filter::{
    Column, Delimited, Field, FieldKind, Fixed, Format, JsonLines, MAX_COLUMNS, MAX_NAME_BYTES,
    Type, guess_columns,
};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::error::Error;

/// Bytes from which columns are guessed.
const SAMPLE_BYTES: usize = 1 << 20;

/// Bytes by which a Parquet file is known.
const PARQUET: &[u8] = b"PAR1";

/// How the records of a file are written.
pub fn kind_of(
    path: &CellPath,
    file: &OpenFile,
    arguments: &FormatArguments,
) -> Result<RecordFormat, Box<dyn Error>> {
    if let Some(told) = arguments.format.or_else(|| by_name(path)) {
        return Ok(told);
    }
    let mut begin = [0; PARQUET.len()];
    file.read(0, &mut begin).map_err(|error| at(path, error))?;
    if begin == PARQUET {
        return Ok(RecordFormat::Parquet);
    }
    Err(format!("{path}: its name does not tell how its records are written: say --format").into())
}

/// What the records of a file are.
#[derive(Debug)]
pub struct Found {
    pub format: Format,
    /// Why members of JSON lines that the first lines have are no columns, by their names.
    unguessed: BTreeMap<String, &'static str>,
}

impl Found {
    fn of(format: Format) -> Found {
        Found { format, unguessed: BTreeMap::new() }
    }

    /// Why there is no column of a name, if it is one that could not be guessed.
    pub fn why_not(&self, name: &str) -> Option<&'static str> {
        let found = self.unguessed.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, why)| *why)
    }
}

/// The format of a file whose bytes are records.
pub fn format_of(
    path: &CellPath,
    file: &OpenFile,
    format: RecordFormat,
    arguments: &FormatArguments,
) -> Result<Found, Box<dyn Error>> {
    let columns = arguments.columns.as_deref();
    match format {
        RecordFormat::Fixed => {
            let told =
                columns.ok_or("fixed records need --columns, like id:u32,price:f64,name:text16")?;
            Ok(Found::of(Format::Fixed(Fixed { fields: listed(told, field)? })))
        }
        RecordFormat::Jsonl => {
            let (columns, unguessed) = match columns {
                Some(told) => (listed(told, member)?, BTreeMap::new()),
                None => guess_members(&sample(path, file)?.0),
            };
            let format = Format::JsonLines(JsonLines { columns: some(path, columns)? });
            Ok(Found { format, unguessed })
        }
        RecordFormat::Parquet => Err("what a Parquet file has is no matter of its bytes".into()),
        RecordFormat::Csv | RecordFormat::Tsv => {
            let delimiter = delimiter(arguments, format)?;
            let (quote, header) = (Some(b'"'), !arguments.no_header);
            let columns = match columns {
                Some(told) => listed(told, column)?,
                None => {
                    let (sample, is_whole) = sample(path, file)?;
                    guess_columns(&sample, is_whole, delimiter, quote, header)
                }
            };
            let columns = some(path, columns)?;
            Ok(Found::of(Format::Delimited(Delimited { delimiter, quote, header, columns })))
        }
    }
}

fn by_name(path: &CellPath) -> Option<RecordFormat> {
    let name = path.to_string().to_ascii_lowercase();
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

fn some(path: &CellPath, columns: Vec<Column>) -> Result<Vec<Column>, String> {
    match columns.is_empty() {
        true => {
            Err(format!("{path}: no columns are to be found in its first lines: say --columns"))
        }
        false => Ok(columns),
    }
}

/// The beginning of the file, and whether that is all.
fn sample(path: &CellPath, file: &OpenFile) -> Result<(Vec<u8>, bool), Box<dyn Error>> {
    let mut sample = vec![0; SAMPLE_BYTES];
    let length = file.read(0, &mut sample).map_err(|error| at(path, error))?;
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

/// What the values of a member have been so far, but for NULL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guess {
    Of(Type),
    Nested,
    Several,
}

impl Guess {
    /// What a value is; `None` for NULL, which may be any.
    fn of(value: &Json) -> Option<Guess> {
        Some(match value {
            Json::Null => return None,
            Json::Bool(_) => Guess::Of(Type::Bool),
            Json::Number(number) if number.is_i64() => Guess::Of(Type::Int),
            Json::Number(_) => Guess::Of(Type::Float),
            Json::String(_) => Guess::Of(Type::Text),
            Json::Array(_) | Json::Object(_) => Guess::Nested,
        })
    }

    fn with(self, other: Guess) -> Guess {
        use Type::{Float, Int};
        match (self, other) {
            (one, other) if one == other => one,
            (Guess::Of(Int | Float), Guess::Of(Int | Float)) => Guess::Of(Float),
            // Those of one would be bad records.
            _ => Guess::Several,
        }
    }

    /// The type of the column that it is, or why it is none.
    const fn kind(self) -> Result<Type, &'static str> {
        match self {
            Guess::Of(kind) => Ok(kind),
            Guess::Nested => Err("its values are objects or arrays"),
            Guess::Several => {
                Err("its values are of several kinds, of which --columns can say one")
            }
        }
    }
}

/// The members of the objects in the first lines that are of one type, and why the others are no columns.
fn guess_members(sample: &[u8]) -> (Vec<Column>, BTreeMap<String, &'static str>) {
    let mut found: BTreeMap<String, Guess> = BTreeMap::new();
    for line in sample.split(|byte| *byte == b'\n') {
        // The last one may be cut.
        let Ok(Json::Object(object)) = serde_json::from_slice(line) else {
            continue;
        };
        for (name, value) in object {
            if let Some(guess) = Guess::of(&value) {
                found.entry(name).and_modify(|known| *known = known.with(guess)).or_insert(guess);
            }
        }
    }
    let (mut columns, mut unguessed) = (Vec::new(), BTreeMap::new());
    for (name, guess) in found {
        match guess.kind() {
            Ok(kind) if !name.is_empty() && name.len() <= MAX_NAME_BYTES => {
                columns.push(Column { name, kind });
            }
            Ok(_) => {}
            Err(why) => {
                unguessed.insert(name, why);
            }
        }
    }
    columns.truncate(MAX_COLUMNS);
    (columns, unguessed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_of_the_type_that_all_have() {
        let sample =
            b"{\"a\":1,\"b\":\"x\",\"c\":[1],\"d\":1}\n{\"a\":2.5,\"b\":null,\"d\":\"y\"}\n{\"a\"";
        let (columns, unguessed) = guess_members(sample);
        let found: Vec<(&str, Type)> =
            columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        assert_eq!(found, [("a", Type::Float), ("b", Type::Text)]);
        assert_eq!(unguessed.keys().collect::<Vec<_>>(), ["c", "d"]);
        assert!(unguessed["c"].contains("arrays") && unguessed["d"].contains("several kinds"));
    }

    #[test]
    fn members_may_be_booleans() {
        let sample = b"{\"a\":true,\"b\":null,\"c\":true,\"d\":1,\"e\":{}}\n\
            {\"a\":null,\"b\":false,\"c\":1,\"d\":false,\"e\":true}\n{\"a\":false,\"f\":null}\n";
        let (columns, unguessed) = guess_members(sample);
        let found: Vec<(&str, Type)> =
            columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        assert_eq!(found, [("a", Type::Bool), ("b", Type::Bool)]);
        assert_eq!(unguessed.keys().collect::<Vec<_>>(), ["c", "d", "e"]);
        assert!(unguessed.values().all(|why| why.contains("several kinds")));
        assert_eq!(listed("ok:bool", member).unwrap()[0].kind, Type::Bool);
        assert_eq!(listed("n:int", member).unwrap()[0].kind, Type::Int);
        for wrong in [listed("ok:boolean", member), listed("ok:bool", column)] {
            assert!(wrong.is_err());
        }
    }

    #[test]
    fn fields_are_as_they_are_named() {
        let fields = listed("id:u32,price:f64be,name:text16", field).unwrap();
        let bytes: Vec<usize> = fields.iter().map(|field| field.kind.bytes()).collect();
        assert_eq!(bytes, [4, 8, 16]);
        for wrong in ["id", "id:u33", "name:text", "id:u32,,x:i8", "name:text16be"] {
            assert!(listed(wrong, field).is_err(), "{wrong}");
        }
    }
}
