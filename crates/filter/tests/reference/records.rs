//! The records of a file and the values of their columns.

use super::{Trouble, V, json};
use nasd_filter::{Delimited, FieldKind, Format, Type};

/// A record and where it is.
pub struct Record<'a> {
    pub offset: u64,
    /// All its bytes, with the line end.
    pub raw: &'a [u8],
    /// A fixed record that the file's end cuts off.
    pub incomplete: bool,
}

impl Record<'_> {
    /// Without the line end.
    pub fn content(&self) -> &[u8] {
        match self.raw {
            [content @ .., b'\r', b'\n'] | [content @ .., b'\n'] => content,
            content => content,
        }
    }
}

pub fn records<'a>(format: &Format, file: &'a [u8], longest: usize) -> Vec<Record<'a>> {
    let mut offset = 0;
    if let Format::Fixed(fixed) = format {
        let size: usize = fixed.fields.iter().map(|field| field.kind.bytes()).sum();
        let chunks = file.chunks(size);
        return chunks
            .map(|raw| {
                let record = Record { offset, raw, incomplete: raw.len() < size };
                offset += raw.len() as u64;
                record
            })
            .collect();
    }
    let mut all = Vec::new();
    for raw in file.split_inclusive(|byte| *byte == b'\n') {
        all.push(Record { offset, raw, incomplete: false });
        offset += raw.len() as u64;
    }
    match format {
        Format::Delimited(format) => {
            if format.header && !all.is_empty() {
                all.remove(0);
            }
            if format.columns.len() > 1 {
                all.retain(|record| !record.content().is_empty() || record.raw.len() > longest);
            }
        }
        _ => all.retain(|record| {
            let is_blank = record.content().iter().all(|byte| b" \t\r".contains(byte));
            !is_blank || record.raw.len() > longest
        }),
    }
    all
}

/// The columns that are needed, the others NULL; `check`: the structure of the whole record too.
pub fn read_columns(
    format: &Format,
    record: &Record<'_>,
    needed: &[usize],
    check: bool,
) -> Result<Vec<V>, Trouble> {
    let mut columns = vec![V::Null; format.column_count()];
    match format {
        Format::Fixed(fixed) => {
            let mut start = 0;
            for (index, field) in fixed.fields.iter().enumerate() {
                let bytes = &record.raw[start..start + field.kind.bytes()];
                start += bytes.len();
                if needed.contains(&index) {
                    columns[index] = fixed_value(field.kind, bytes)?;
                }
            }
        }
        Format::Delimited(format) => {
            let fields = fields(format, record.content());
            let fields = match fields {
                Some(fields) => fields,
                // Only looked at once.
                None if check => return Err(Trouble::Bad),
                None => unreachable!("it was checked before"),
            };
            if fields.len() > format.columns.len() {
                return Err(Trouble::Bad);
            }
            for (index, text) in fields.iter().enumerate() {
                if needed.contains(&index) {
                    columns[index] = text_value(format.columns[index].kind, text)?;
                }
            }
        }
        // It has no bytes.
        Format::Columns(_) => return Err(Trouble::Bad),
        Format::JsonLines(format) => {
            let members = json::object(record.content()).ok_or(Trouble::Bad)?;
            for index in needed {
                let column = &format.columns[*index];
                let name = column.name.as_bytes();
                let mut found = members.iter().filter(|(other, _)| other == name);
                if let Some((_, member)) = found.next() {
                    columns[*index] = json::value(column.kind, member).ok_or(Trouble::Bad)?;
                }
                if found.next().is_some() {
                    return Err(Trouble::Bad);
                }
            }
        }
    }
    Ok(columns)
}

fn fixed_value(kind: FieldKind, bytes: &[u8]) -> Result<V, Trouble> {
    let little: Vec<u8> = match kind {
        FieldKind::Integer { big_endian: true, .. } | FieldKind::Float { big_endian: true, .. } => {
            bytes.iter().rev().copied().collect()
        }
        _ => bytes.to_vec(),
    };
    let unsigned = || little.iter().rev().fold(0_i128, |sum, byte| sum * 256 + i128::from(*byte));
    Ok(match kind {
        FieldKind::Integer { bytes, signed, .. } => {
            let mut value = unsigned();
            if signed && value >= 1 << (8 * u32::from(bytes) - 1) {
                value -= 1 << (8 * u32::from(bytes));
            }
            V::Int(i64::try_from(value).map_err(|_| Trouble::Bad)?)
        }
        FieldKind::Float { bytes: 4, .. } => V::Float(f32::from_bits(unsigned() as u32).into()),
        FieldKind::Float { .. } => V::Float(f64::from_bits(unsigned() as u64)),
        FieldKind::Text { .. } => V::Text(bytes.split(|byte| *byte == 0).next().unwrap().to_vec()),
    })
}

/// The fields of a line, one byte at a time.
fn fields(format: &Delimited, line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut fields = Vec::new();
    let mut at = 0;
    loop {
        let mut field = Vec::new();
        if format.quote.is_some() && line.get(at).copied() == format.quote {
            at += 1;
            loop {
                let byte = *line.get(at)?;
                at += 1;
                if Some(byte) == format.quote {
                    if line.get(at).copied() == format.quote {
                        at += 1;
                    } else {
                        break;
                    }
                }
                field.push(byte);
            }
            if at < line.len() && line[at] != format.delimiter {
                return None;
            }
        } else {
            while at < line.len() && line[at] != format.delimiter {
                field.push(line[at]);
                at += 1;
            }
        }
        fields.push(field);
        if at == line.len() {
            return Some(fields);
        }
        at += 1;
    }
}

fn text_value(kind: Type, text: &[u8]) -> Result<V, Trouble> {
    if text.is_empty() {
        return Ok(V::Null);
    }
    let number = std::str::from_utf8(text).map(|text| text.trim_matches(' '));
    match kind {
        Type::Text => Ok(V::Text(text.to_vec())),
        Type::Int => number.ok().and_then(|text| text.parse().ok()).map(V::Int).ok_or(Trouble::Bad),
        _ => number.ok().and_then(|text| text.parse().ok()).map(V::Float).ok_or(Trouble::Bad),
    }
}
