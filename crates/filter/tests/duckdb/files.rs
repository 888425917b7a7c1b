//! Files of delimited text, at random.

use super::random::Random;
use nasd_filter::{Column, Delimited, Type};

/// A file and its format.
pub struct File {
    pub format: Delimited,
    pub line_end: &'static str,
    pub bytes: Vec<u8>,
}

/// What a column may hold. The first letter of its name tells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Integers whose sums and products of a few are far from overflowing: `s`.
    SmallInts,
    /// Any integers: `i`.
    Ints,
    /// Any floats: `f`.
    Floats,
    /// Texts: `t`.
    Texts,
}

const HOLDS: &[Holds] = &[Holds::SmallInts, Holds::Ints, Holds::Floats, Holds::Texts];

pub const TEXTS: &[&str] = &[
    "a",
    "b",
    "ab",
    "abc",
    "B",
    "a,b",
    "a;b|c",
    "a\"b",
    "it's",
    "\"",
    "\"a\"",
    "\u{e9}",
    "e\u{301}",
    "\u{e9}a",
    "\u{1f600}",
    "a\u{1f600}b",
    "\u{fb01}",
    "\u{ffff}",
    " ",
    " a ",
    "%",
    "_",
    "a%b",
    "a_b",
    "\\",
    "a\\%",
    "!",
    "a!b",
    "NULL",
    "0",
    "nan",
    "aaaaaaaaaaaa",
    "aaaaaaaaaaaab",
    "a text that is longer than twelve bytes",
    "a text that is longer than twelve bytes, by some",
];

pub const SMALL_INTS: &[i64] = &[0, 0, 1, 1, 2, 3, 5, 7, 10, 100, 999, -1, -2, -3, -7, -1000];

pub const INTS: &[i64] = &[
    0,
    1,
    2,
    -1,
    -2,
    7,
    -1000,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    1 << 32,
    1 << 53,
    (1 << 53) + 1,
    -(1 << 53) - 1,
    1 << 62,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN + 1,
    i64::MIN,
];

pub const FLOATS: &[f64] = &[
    0.0,
    0.0,
    -0.0,
    1.0,
    1.0,
    -1.0,
    0.1,
    0.2,
    0.3,
    0.5,
    -0.5,
    1.5,
    2.0,
    3.0,
    -7.25,
    1e3,
    999.0,
    123456.789,
    1e15,
    1e16,
    -1e16,
    9007199254740992.0,
    9007199254740993.0,
    9223372036854775807.0,
    -9223372036854775808.0,
    1e100,
    -1e100,
    1e300,
    f64::MAX,
    f64::MIN_POSITIVE,
    5e-324,
    -1e-300,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
];

/// The characters of texts that are made of some.
const LETTERS: &[char] = &['a', 'a', 'b', '\u{e9}', '\u{1f600}', '%', '_', '!', '\\'];

impl Holds {
    const fn kind(self) -> Type {
        match self {
            Holds::SmallInts | Holds::Ints => Type::Int,
            Holds::Floats => Type::Float,
            Holds::Texts => Type::Text,
        }
    }

    const fn letter(self) -> char {
        match self {
            Holds::SmallInts => 's',
            Holds::Ints => 'i',
            Holds::Floats => 'f',
            Holds::Texts => 't',
        }
    }

    /// What the column of a name holds.
    pub fn of(name: &str) -> Holds {
        let named = HOLDS.iter().find(|holds| name.starts_with(holds.letter()));
        *named.unwrap_or(&Holds::Texts)
    }
}

/// A column by its name.
pub fn column(name: &str) -> Column {
    Column { name: name.to_owned(), kind: Holds::of(name).kind() }
}

/// A text: of the list, or of random characters. A LIKE is made of one too.
pub fn text(random: &mut Random) -> String {
    match random.one_in(2) {
        true => random.pick(TEXTS).to_owned(),
        false => (0..1 + random.below(6)).map(|_| random.pick(LETTERS)).collect(),
    }
}

/// A file with good records only. What others mean is told under Records in the README: DuckDB refuses the
/// file, or looks at more of the record.
pub fn file(random: &mut Random) -> File {
    let (delimiter, quote) =
        random.pick(&[(b',', Some(b'"')), (b'\t', None), (b';', Some(b'\'')), (b'|', Some(b'"'))]);
    let columns: Vec<Column> = (0..1 + random.below(7))
        .map(|index| {
            let holds = random.pick(HOLDS);
            column(&format!("{}{index}", holds.letter()))
        })
        .collect();
    let header = random.one_in(2);
    let line_end = random.pick(&["\n", "\n", "\r\n"]);
    let mut bytes = Vec::new();
    if header {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        bytes.extend(names.join(&char::from(delimiter).to_string()).bytes());
        bytes.extend(line_end.bytes());
    }
    let format = Delimited { delimiter, quote, header, columns };
    // More than a batch of filters, and than one of DuckDB's.
    let count = random.pick(&[0, 1, 5, 20, 60, 60, 60, 60, 60, 5000]);
    for number in 0..count {
        let record = record(random, &format);
        bytes.extend(record.bytes());
        // The last line may have no end.
        if number + 1 < count || record.is_empty() || !random.one_in(3) {
            bytes.extend(line_end.bytes());
        }
    }
    File { format, line_end, bytes }
}

/// A line without its end.
fn record(random: &mut Random, format: &Delimited) -> String {
    let mut count = format.columns.len();
    if random.one_in(12) {
        // Missing fields are NULL.
        count = 1 + random.below(count);
    }
    let mut line = String::new();
    for (index, column) in format.columns[..count].iter().enumerate() {
        if index > 0 {
            line.push(char::from(format.delimiter));
        }
        let value = match random.below(8) {
            0 => String::new(),
            _ => value(random, Holds::of(&column.name)),
        };
        put_field(random, format, &value, &mut line);
    }
    line
}

fn value(random: &mut Random, holds: Holds) -> String {
    match holds {
        Holds::SmallInts => int(random, SMALL_INTS),
        Holds::Ints => int(random, INTS),
        Holds::Floats => float(random),
        Holds::Texts => text(random),
    }
}

/// Not like `1.5`, `1e3`, `0x10` and `1_000`, which DuckDB takes for integers.
fn int(random: &mut Random, list: &[i64]) -> String {
    let value = random.pick(list);
    match random.below(20) {
        0 => format!(" {value}"),
        1 => format!("{value} "),
        2 if value >= 0 => format!("+{value}"),
        3 if value >= 0 => format!("00{value}"),
        4 if value == 0 => "-0".to_owned(),
        _ => value.to_string(),
    }
}

fn float(random: &mut Random) -> String {
    let value = random.pick(FLOATS);
    match random.below(20) {
        0 => format!("{value:e}"),
        1 => format!(" {value:?}"),
        2 => format!("{value:?} "),
        3 => random.pick(&["Infinity", "-INF", "NaN", "infinity", "nan", "+inf"]).to_owned(),
        4 => random.pick(&["1.", ".5", "-.25", "+2.5", "1E3", "1e+3", "2.5E-2", "007"]).to_owned(),
        5 => random.pick(INTS).to_string(),
        6 => format!("{}.{}", random.below(1000), random.below(100)),
        _ => format!("{value:?}"),
    }
}

fn put_field(random: &mut Random, format: &Delimited, value: &str, line: &mut String) {
    let delimiter = char::from(format.delimiter);
    let Some(quote) = format.quote.map(char::from) else {
        line.extend(value.chars().filter(|character| *character != delimiter));
        return;
    };
    // Spaces before a quote DuckDB passes over.
    let must = value.contains(delimiter) || value.trim_start().starts_with(quote);
    if must || random.one_in(6) {
        let doubled = value.replace(quote, &format!("{quote}{quote}"));
        line.push_str(&format!("{quote}{doubled}{quote}"));
    } else {
        line.push_str(value);
    }
}
