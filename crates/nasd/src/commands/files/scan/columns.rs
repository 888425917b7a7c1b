//! What the records of a file are: as the user says, or from its name and its first lines.

use crate::arguments::{FormatArguments, RecordFormat};
use crate::commands::files::at;
use nasd_cell::CellPath;
use nasd_clerk::OpenFile;
use nasd_filter::{
    Column, Delimited, Field, FieldKind, Fixed, Format, JsonLines, MAX_COLUMNS, MAX_NAME_BYTES,
    Type, guess_columns,
};
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

/// The format of a file whose bytes are records.
pub fn format_of(
    path: &CellPath,
    file: &OpenFile,
    format: RecordFormat,
    arguments: &FormatArguments,
) -> Result<Format, Box<dyn Error>> {
    let columns = arguments.columns.as_deref();
    match format {
        RecordFormat::Fixed => {
            let told =
                columns.ok_or("fixed records need --columns, like id:u32,price:f64,name:text16")?;
            Ok(Format::Fixed(Fixed { fields: listed(told, field)? }))
        }
        RecordFormat::Jsonl => {
            let columns = match columns {
                Some(told) => listed(told, column)?,
                None => guess_members(&sample(path, file)?.0),
            };
            Ok(Format::JsonLines(JsonLines { columns: some(path, columns)? }))
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
            Ok(Format::Delimited(Delimited { delimiter, quote, header, columns }))
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

/// The members of the objects in the first lines: those that are numbers or texts, of the type that all have.
fn guess_members(sample: &[u8]) -> Vec<Column> {
    let mut found: BTreeMap<String, Option<Type>> = BTreeMap::new();
    for line in sample.split(|byte| *byte == b'\n') {
        // The last one may be cut.
        let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(line) else {
            continue;
        };
        for (name, value) in object {
            let kind = match value {
                serde_json::Value::Null => continue,
                serde_json::Value::Number(number) if number.is_i64() => Some(Type::Int),
                serde_json::Value::Number(_) => Some(Type::Float),
                serde_json::Value::String(_) => Some(Type::Text),
                _ => None,
            };
            let known = found.entry(name).or_insert(kind);
            *known = match (*known, kind) {
                (Some(Type::Int | Type::Float), Some(Type::Float))
                | (Some(Type::Float), Some(Type::Int)) => Some(Type::Float),
                (one, other) if one == other => one,
                // Of two kinds: those of one would be bad records.
                _ => None,
            };
        }
    }
    found.retain(|name, _| !name.is_empty() && name.len() <= MAX_NAME_BYTES);
    let known = found.into_iter().filter_map(|(name, kind)| Some(Column { name, kind: kind? }));
    known.take(MAX_COLUMNS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_of_the_type_that_all_have() {
        let sample =
            b"{\"a\":1,\"b\":\"x\",\"c\":[1],\"d\":1}\n{\"a\":2.5,\"b\":null,\"d\":\"y\"}\n{\"a\"";
        let columns = guess_members(sample);
        let found: Vec<(&str, Type)> =
            columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        assert_eq!(found, [("a", Type::Float), ("b", Type::Text)]);
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
