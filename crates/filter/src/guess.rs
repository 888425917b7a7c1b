//! What the columns of delimited text may be, from its beginning, for people who don't want to say.

use crate::format::{Column, MAX_COLUMNS, MAX_NAME_BYTES, Type};
use crate::number::{parse_float, parse_int};
use std::collections::BTreeSet;

/// The columns of delimited text that begins with `sample`, of which the last line is left out if it is cut: named by the
/// first line if that is a header, else `c1`, `c2` and so on; of the narrowest type that all values have which there are,
/// and text where there are none. That the rest of the file is alike is not sure.
pub fn guess_columns(
    sample: &[u8],
    is_whole: bool,
    delimiter: u8,
    quote: Option<u8>,
    header: bool,
) -> Vec<Column> {
    // A byte order mark is no part of a name.
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").filter(|_| header).unwrap_or(sample);
    let end = memchr::memrchr(b'\n', sample).map_or(0, |end| end + 1);
    let sample = if is_whole { sample } else { &sample[..end] };
    let mut lines = sample.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        fields(line.strip_suffix(b"\r").unwrap_or(line), delimiter, quote)
    });
    let mut names = if header { lines.next().unwrap_or_default() } else { Vec::new() };
    // One more than there may be, so that somebody notices.
    names.truncate(MAX_COLUMNS + 1);
    // What is the case so far: nothing was there, all are integers, all are numbers.
    let mut kinds: Vec<Option<Type>> = vec![None; names.len()];
    for line in lines {
        if line.len() > kinds.len() && !header {
            kinds.resize(line.len().min(MAX_COLUMNS + 1), None);
        }
        for (kind, field) in kinds.iter_mut().zip(&line) {
            *kind = wider(*kind, field);
        }
    }
    let told = unlike(&names);
    let columns = kinds.iter().enumerate().map(|(index, kind)| {
        let name = told.get(index).cloned().flatten();
        // Those that the file names come first.
        let mut free = (index + 1..).map(|number| format!("c{number}"));
        let named = |name: &String| told.iter().flatten().any(|other| other == name);
        let name = name.or_else(|| free.find(|name| !named(name))).unwrap_or_default();
        Column { name, kind: kind.unwrap_or(Type::Text) }
    });
    let mut columns: Vec<Column> = columns.collect();
    // Two may have counted on to the same one.
    let mut seen = BTreeSet::new();
    for column in &mut columns {
        while !seen.insert(column.name.clone()) {
            column.name.push('_');
        }
    }
    columns
}

/// The names that can be used, of which none is twice.
fn unlike(names: &[Vec<u8>]) -> Vec<Option<String>> {
    let mut seen = BTreeSet::new();
    let names = names.iter().map(|name| {
        let name = std::str::from_utf8(name).ok()?;
        let is_usable = !name.is_empty() && name.len() <= MAX_NAME_BYTES && seen.insert(name);
        is_usable.then(|| name.to_owned())
    });
    names.collect()
}

fn wider(kind: Option<Type>, field: &[u8]) -> Option<Type> {
    match kind {
        _ if field.is_empty() => kind,
        None | Some(Type::Int) if parse_int(field).is_some() => Some(Type::Int),
        None | Some(Type::Int | Type::Float) if parse_float(field).is_some() => Some(Type::Float),
        _ => Some(Type::Text),
    }
}

/// The fields of a line, as scans take them.
fn fields(line: &[u8], delimiter: u8, quote: Option<u8>) -> Vec<Vec<u8>> {
    let mut fields = vec![Vec::new()];
    let (mut quoted, mut at) = (false, 0);
    while let Some(&byte) = line.get(at) {
        let begins = fields.last().is_none_or(Vec::is_empty) && !quoted;
        let starts_field = at == 0 || line[at - 1] == delimiter;
        at += 1;
        match byte {
            _ if Some(byte) == quote && quoted => match line.get(at) {
                Some(&next) if next == byte => {
                    at += 1;
                    fields.last_mut().iter_mut().for_each(|field| field.push(byte));
                }
                _ => quoted = false,
            },
            _ if Some(byte) == quote && begins && starts_field => quoted = true,
            _ if byte == delimiter && !quoted => fields.push(Vec::new()),
            _ => fields.last_mut().iter_mut().for_each(|field| field.push(byte)),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(sample: &str, header: bool) -> Vec<(String, Type)> {
        let columns = guess_columns(sample.as_bytes(), false, b',', Some(b'"'), header);
        columns.into_iter().map(|column| (column.name, column.kind)).collect()
    }

    fn column(name: &str, kind: Type) -> (String, Type) {
        (name.to_owned(), kind)
    }

    #[test]
    fn the_narrowest_type_that_all_values_have() {
        let sample =
            "id,\"a,b\",price,note,id,\n1,x,1.5,,7,\r\n-2,3,2,,,\n,\"\",,,nan,\n3.5 is cut";
        let expected = [
            column("id", Type::Int),
            column("a,b", Type::Text),
            column("price", Type::Float),
            column("note", Type::Text),
            column("c5", Type::Float),
            column("c6", Type::Text),
        ];
        assert_eq!(guessed(sample, true), expected);
        let expected = [column("c1", Type::Int), column("c2", Type::Text)];
        assert_eq!(guessed("1\n2,\"a\"\"b,\"\n", false), expected);
        let names = |header| -> Vec<String> {
            guessed(header, true).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names("c2,\n"), ["c2", "c3"]);
        assert_eq!(names(",c1,,c1,\u{ff}\n"), ["c2", "c1", "c3", "c4", "\u{ff}"]);
        assert_eq!(names(",c1,\n"), ["c2", "c1", "c3"]);
        assert_eq!(names("\u{feff}id,x\n"), ["id", "x"]);
        assert_eq!(names(&format!("{}\n", "x,".repeat(5000))).len(), MAX_COLUMNS + 1);
        assert_eq!(guessed("", true), []);
        assert_eq!(guessed("no line end", true), []);
    }
}
