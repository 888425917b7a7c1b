//! Filters mean what DuckDB means: random queries over random files of delimited text, and some over what is
//! special, are answered by both. What the README declares different is left out, in `duckdb/queries.rs` and
//! `duckdb/files.rs`. `make tools` installs DuckDB; without it the test fails. `NASD_DUCKDB_CASES` is
//! how many random queries there are.

#![allow(clippy::unwrap_used, reason = "compiled for tests alone")]

#[path = "duckdb/files.rs"]
mod files;
#[cfg(feature = "parquet")]
#[path = "duckdb/parquet.rs"]
mod parquet;
#[path = "duckdb/queries.rs"]
mod queries;
#[path = "generate/random.rs"]
mod random;

use files::File;
use nasd_filter::{
    Arrangement, Checked, Delimited, Fault, Fed, Format, Merge, MergeError, Merged, Options,
    Output, ParameterError, Piece, Plan, Scan, ScanError, Type, Value, sql,
};
use queries::{Compared, Maker, Query};
use random::Random;
use serde_json::json;
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Random queries over one random file.
const QUERIES_OF_A_FILE: usize = 10;

/// What a query comes to: its rows, or the class of DuckDB's error.
type Answer = Result<Vec<Vec<Value>>, String>;

/// As DuckDB calls an integer that overflows.
const OVERFLOW: &str = "OutOfRangeException";
/// And a pattern that ends with its escape character.
const PATTERN: &str = "SyntaxException";

#[test]
fn filters_mean_what_duckdb_means() {
    let mut all = directed();
    let cases = std::env::var("NASD_DUCKDB_CASES").ok().and_then(|text| text.parse().ok());
    for seed in 0..cases.unwrap_or(300_usize).div_ceil(QUERIES_OF_A_FILE) {
        let mut random = Random::new(seed as u64);
        let file = files::file(&mut random);
        let mut maker =
            Maker { columns: &file.format.columns, random: &mut random, overflows: false };
        let queries = (0..QUERIES_OF_A_FILE).map(|_| maker.query()).collect();
        all.push((file, queries));
    }
    let mut answers = duckdb(&all).into_iter();
    let mut different = String::new();
    let (mut count, mut failed) = (0, 0);
    for (file, queries) in &all {
        for query in queries {
            let theirs = answers.next().unwrap();
            count += 1;
            if let Err(why) = compare(query, ours(file, &query.ours), theirs) {
                failed += 1;
                tell(&mut different, file, query, &why);
            }
        }
    }
    assert!(failed == 0, "{failed} of {count} queries differ:\n{different}");
}

fn tell(text: &mut String, file: &File, query: &Query, why: &str) {
    // A few of them tell enough.
    if text.len() > 20_000 {
        return;
    }
    let _ = writeln!(text, "{}\n{}\n{why}", query.ours, query.duck);
    let bytes = &file.bytes[..file.bytes.len().min(1000)];
    let _ = writeln!(text, "over {:?} {:?}\n", file.format, String::from_utf8_lossy(bytes));
}

/// Asks DuckDB all queries.
fn duckdb(all: &[(File, Vec<Query>)]) -> Vec<Answer> {
    let directory = tempfile::tempdir().unwrap();
    let mut told = String::new();
    for (number, (file, queries)) in all.iter().enumerate() {
        let path = directory.path().join(number.to_string());
        fs::write(&path, &file.bytes).unwrap();
        let columns = file.format.columns.iter().map(|column| {
            let kind = match column.kind {
                Type::Int => "BIGINT",
                Type::Float => "DOUBLE",
                _ => "VARCHAR",
            };
            json!([column.name, kind])
        });
        let queries =
            queries.iter().map(|query| json!({"sql": query.duck, "optimized": query.optimized}));
        let line = json!({
            "path": path,
            "columns": columns.collect::<Vec<_>>(),
            "header": file.format.header,
            "delimiter": char::from(file.format.delimiter),
            "quote": file.format.quote.map(char::from).map(String::from).unwrap_or_default(),
            "line_end": file.line_end.escape_default().to_string(),
            "queries": queries.collect::<Vec<_>>(),
        });
        let _ = writeln!(told, "{line}");
    }
    run_duckdb(&told)
}

/// Has DuckDB do what lines of JSON say.
fn run_duckdb(told: &str) -> Vec<Answer> {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    fs::write(&list, told).unwrap();
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        .arg(package.join("tests/duckdb/run.py"))
        .arg(&list)
        .env("PYTHONPATH", package.join("../../target/tools/python"))
        .output()
        .unwrap();
    // Where DuckDB is missing it says so.
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(answer).collect()
}

/// A line of what DuckDB answers.
fn answer(line: &str) -> Answer {
    let told: serde_json::Value = serde_json::from_str(line).unwrap();
    if let Some(class) = told["error"].as_str() {
        // What an overflow and others that are expected say is of no interest.
        return Err(match class {
            OVERFLOW | PATTERN => class.to_owned(),
            _ => format!("{class}: {}", told["text"]),
        });
    }
    let value = |value: &serde_json::Value| match value.as_str() {
        None => Value::Null,
        Some(text) => match text.split_at(1) {
            ("i", text) => Value::HugeInt(text.parse().unwrap()),
            ("f", text) => Value::Float(text.parse().unwrap()),
            ("b", text) => Value::Bool(text == "true"),
            ("t", text) => Value::Text(text.as_bytes().to_vec()),
            // No value of ours is like this.
            _ => Value::Text(format!("\0{text}").into_bytes()),
        },
    };
    let rows = told["rows"].as_array().unwrap();
    Ok(rows.iter().map(|row| row.as_array().unwrap().iter().map(value).collect()).collect())
}

/// What the filter answers.
fn ours(file: &File, text: &str) -> Answer {
    let format = Format::Delimited(file.format.clone());
    let query = sql::parse(text, &format).map_err(|error| error.to_string())?;
    let plan = Plan { format, program: query.program, options: Options::default() };
    let checked = plan.check().map_err(|error| match error {
        ParameterError::Pattern => PATTERN.to_owned(),
        error => error.to_string(),
    })?;
    let places: Vec<usize> = query.columns.iter().map(|column| column.place).collect();
    let rows = run(&checked, &query.arrangement, &file.bytes).map_err(|error| match error {
        MergeError::Scan(ScanError::Record { fault: Fault::Overflow, .. }) => OVERFLOW.to_owned(),
        error => error.to_string(),
    })?;
    Ok(rows.into_iter().map(|row| places.iter().map(|&at| row[at].clone()).collect()).collect())
}

/// Runs a plan over a file in one piece; how files are cut is the matter of `cuts.rs`.
fn run(
    checked: &Checked,
    arrangement: &Arrangement,
    bytes: &[u8],
) -> Result<Vec<Vec<Value>>, MergeError> {
    let mut scan = checked.start();
    scan.begin_piece(Piece { offset: 0, starts_record: true, ends_file: true });
    let mut rows = Vec::new();
    drive(&mut scan, bytes, &mut rows, Scan::feed)?;
    drive(&mut scan, &[], &mut rows, |scan, _, output| scan.end_piece(output))?;
    assert_eq!(scan.report().bad, 0, "files have good records only");
    let mut partial = Vec::new();
    drive(&mut scan, &[], &mut partial, |scan, _, output| scan.finish(output))?;
    let mut merge = Merge::new(checked);
    merge.add(&partial)?;
    let mut merged = merge.finish();
    arrangement.arrange(&mut merged);
    Ok(match merged {
        Merged::Select => read_rows(checked, &rows),
        Merged::Aggregate(rows) => rows,
        Merged::Top(rows) => rows.iter().flat_map(|row| read_rows(checked, &row.row)).collect(),
    })
}

/// Calls until everything is taken.
fn drive(
    scan: &mut Scan,
    bytes: &[u8],
    into: &mut Vec<u8>,
    mut call: impl FnMut(&mut Scan, &[u8], &mut Output<'_>) -> Result<Fed, ScanError>,
) -> Result<Fed, ScanError> {
    let mut rest = bytes;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut output = Output::new(&mut buffer);
        let fed = call(scan, rest, &mut output);
        into.extend_from_slice(output.written());
        match fed? {
            Fed::Full { consumed } => rest = &rest[consumed..],
            fed => return Ok(fed),
        }
    }
}

/// Rows of a projection, or records: neither holds line ends but behind it.
fn read_rows(checked: &Checked, rows: &[u8]) -> Vec<Vec<Value>> {
    let Format::Delimited(format) = &checked.plan().format else {
        // Lines are as those of delimited text.
        let columns = Vec::new();
        let format = Delimited { delimiter: b',', quote: Some(b'"'), header: false, columns };
        return read_lines(checked, &format, rows);
    };
    read_lines(checked, format, rows)
}

fn read_lines(checked: &Checked, format: &Delimited, rows: &[u8]) -> Vec<Vec<Value>> {
    let mut lines: Vec<&[u8]> = rows.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines.pop(), Some(&[][..]), "every row has a line end");
    let projected = checked.plan().program.projection().is_some();
    let columns = || format.columns.iter().map(|column| column.kind).collect();
    // A top has what it is ordered by before the others.
    let mut kinds: Vec<Type> = if projected { checked.result_types() } else { columns() };
    if let (true, nasd_filter::Program::Top(_)) = (projected, &checked.plan().program) {
        kinds.remove(0);
    }
    let row = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut fields = fields(line, format.delimiter, format.quote, projected);
        assert!(fields.len() <= kinds.len(), "{}", String::from_utf8_lossy(line));
        fields.resize(kinds.len(), None);
        kinds.iter().zip(fields).map(|(kind, field)| read(*kind, field)).collect()
    };
    lines.into_iter().map(row).collect()
}

/// The fields of a line: none is NULL. In a projection quotes make an empty one a text, and are there even
/// if the format has none.
fn fields(line: &[u8], delimiter: u8, quote: Option<u8>, projected: bool) -> Vec<Option<Vec<u8>>> {
    let quote = if projected { quote.or(Some(b'"')) } else { quote };
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(line) = rest {
        let mut bytes = line.iter().copied().peekable();
        let (mut field, mut length) = (Vec::new(), 0);
        let quoted = quote.is_some() && bytes.peek().copied() == quote;
        if quoted {
            bytes.next();
            length += 1;
            while let Some(byte) = bytes.next() {
                length += 1;
                if Some(byte) == quote {
                    if bytes.peek().copied() != quote {
                        break;
                    }
                    bytes.next();
                    length += 1;
                }
                field.push(byte);
            }
        } else {
            field.extend(bytes.take_while(|byte| *byte != delimiter));
            length = field.len();
        }
        let null = field.is_empty() && !(quoted && projected);
        fields.push((!null).then_some(field));
        rest = match line.get(length) {
            None => None,
            Some(byte) => {
                assert_eq!(*byte, delimiter, "{}", String::from_utf8_lossy(line));
                Some(&line[length + 1..])
            }
        };
    }
    fields
}

fn read(kind: Type, field: Option<Vec<u8>>) -> Value {
    let Some(field) = field else {
        return Value::Null;
    };
    let text = std::str::from_utf8(&field).unwrap();
    match kind {
        Type::Bool => Value::Bool(text.parse().unwrap()),
        Type::Int => Value::HugeInt(text.trim().parse().unwrap()),
        Type::Float => Value::Float(text.trim().parse().unwrap()),
        Type::Text => Value::Text(field),
    }
}

fn compare(query: &Query, ours: Answer, theirs: Answer) -> Result<(), String> {
    let (mut ours, mut theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(ours), Err(theirs)) if ours == theirs && [OVERFLOW, PATTERN].contains(&&*ours) => {
            return Ok(());
        }
        (ours, theirs) => {
            let shown = |answer: Answer| match answer {
                Ok(rows) => format!("{} rows", rows.len()),
                Err(text) => text,
            };
            return Err(format!("ours: {}, theirs: {}", shown(ours), shown(theirs)));
        }
    };
    if let Some(keys) = &query.keys {
        for rows in [&mut ours, &mut theirs] {
            rows.sort_by(|left, right| {
                let orders = keys.iter().map(|&key| order(&left[key], &right[key]));
                orders.fold(Ordering::Equal, Ordering::then)
            });
        }
    }
    if ours.len() != theirs.len() {
        return Err(format!("ours: {} rows, theirs: {} rows", ours.len(), theirs.len()));
    }
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let (shown, sizes) = theirs.split_at(ours.len());
        for (column, (left, right)) in ours.iter().zip(shown).enumerate() {
            let compared = query.columns.get(column).copied().unwrap_or(Compared::Exact);
            if !same(left, right, compared, sizes) {
                return Err(format!(
                    "row {number}, {compared:?}: ours {ours:?}, theirs {theirs:?}"
                ));
            }
        }
    }
    Ok(())
}

/// An order of the values of a column in which equal keys are equal.
fn order(left: &Value, right: &Value) -> Ordering {
    // Zeros have no sign here, and NaN none.
    let unsigned = |value: f64| if value == 0.0 || value.is_nan() { value.abs() } else { value };
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => unsigned(*left).total_cmp(&unsigned(*right)),
        (Value::Text(left), Value::Text(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Null, _) | (_, Value::Null) => (*left == Value::Null).cmp(&(*right == Value::Null)),
        (left, right) => integer(left).cmp(&integer(right)),
    }
}

fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::HugeInt(value) => Some(*value),
        _ => None,
    }
}

fn same(ours: &Value, theirs: &Value, compared: Compared, sizes: &[Value]) -> bool {
    match (ours, theirs) {
        (Value::Float(ours), Value::Float(theirs)) => {
            let exact = ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan());
            exact
                || match compared {
                    Compared::Exact => false,
                    Compared::Zeros => ours == theirs,
                    Compared::Average => (ours - theirs).abs() <= 1e-15 * theirs.abs(),
                    Compared::Sum(at) => match (&sizes[at], &sizes[at + 1]) {
                        // What is too large halfway is infinite for DuckDB, and NaN with an infinity of
                        // the other sign.
                        (Value::Float(f64::INFINITY), Value::Float(greatest)) => {
                            greatest.is_finite() || (ours.is_infinite() && theirs.is_nan())
                        }
                        (Value::Float(size), _) => (ours - theirs).abs() <= 1e-12 * size,
                        _ => false,
                    },
                }
        }
        (Value::Null, Value::Null) => true,
        (Value::Bool(ours), Value::Bool(theirs)) => ours == theirs,
        (Value::Text(ours), Value::Text(theirs)) => ours == theirs,
        (ours, theirs) => integer(ours).is_some() && integer(ours) == integer(theirs),
    }
}

/// Files and queries of what is special.
fn directed() -> Vec<(File, Vec<Query>)> {
    let mut all = vec![numbers(), logic(), texts(), groups(), orders(), records(), one_column()];
    // Patterns that end with their escape character are refused by both.
    all.push((texts().0, vec![exact("SELECT t LIKE 'a!' ESCAPE '!' FROM data")]));
    all
}

/// A query that both read alike, with a result to compare to the bit.
fn exact(text: &str) -> Query {
    let text = text.to_owned();
    // As the query is written, so that nothing that overflows is left out.
    Query { ours: text.clone(), duck: text, optimized: false, columns: vec![], keys: None }
}

/// A file without header; names begin with the letter of what the column holds.
fn file(names: &[&str], text: &str) -> File {
    let columns = names.iter().map(|name| files::column(name)).collect();
    let format = Delimited { delimiter: b',', quote: Some(b'"'), header: false, columns };
    File { format, line_end: "\n", bytes: text.as_bytes().to_vec() }
}

/// Every two of the least, the greatest, and what is around zero and the integers that floats have.
fn numbers() -> (File, Vec<Query>) {
    let mut text = String::new();
    let ints = files::INTS.iter().map(i64::to_string).chain([String::new()]);
    let ints: Vec<String> = ints.collect();
    let floats = files::FLOATS.iter().map(|value| format!("{value:?}")).chain([String::new()]);
    let floats: Vec<String> = floats.collect();
    for left in &ints {
        for right in &ints {
            let _ = writeln!(text, "{left},{right},,");
        }
        for right in &floats {
            let _ = writeln!(text, "{left},,{right},");
        }
    }
    for left in &floats {
        for right in &floats {
            let _ = writeln!(text, ",,{left},{right}");
        }
    }
    let mut queries = Vec::new();
    for (left, right) in [("i", "i2"), ("i", "f"), ("f", "f2"), ("f", "i")] {
        queries.push(exact(&format!(
            "SELECT {left} = {right}, {left} <> {right}, {left} < {right}, {left} <= {right}, \
             {left} > {right}, {left} >= {right} FROM data"
        )));
        queries.push(exact(&format!("SELECT {left} / {right}, {left} % {right} FROM data")));
        let float = format!("({left} + 0e0)");
        queries.push(exact(&format!(
            "SELECT {float} + {right}, {float} - {right}, {float} * {right}, -{float} FROM data"
        )));
    }
    for operator in ["+", "-", "*", "//"] {
        queries.push(exact(&format!("SELECT i {operator} i2 FROM data")));
        for constant in ["0", "1", "-1", "2", "7", "-9223372036854775808", "NULL"] {
            let overflowing = format!("i {operator} {constant}");
            queries.push(exact(&format!("SELECT {overflowing} FROM data")));
            queries.push(exact(&format!("SELECT i, {overflowing} FROM data WHERE i < 1000")));
            queries.push(exact(&format!("SELECT sum({overflowing}) FROM data WHERE i > -1001")));
        }
    }
    for text in [
        "SELECT i // i2, i % i2 FROM data WHERE i2 <> -1",
        "SELECT i % -1, i % 7, i % -7, i % 0, i // 0, i // 7, i // -7 FROM data",
        "SELECT -i FROM data",
        "SELECT -i, - -i FROM data WHERE i > -9223372036854775808",
        "SELECT i BETWEEN i2 AND 9007199254740993, f BETWEEN f2 AND 1, f BETWEEN i AND 1.5 FROM data",
        "SELECT i IN (9007199254740993, NULL), i IN (9007199254740993, 1e0), f IN (9007199254740993, 0) FROM data",
        "SELECT f < 1.5, f + 0.1, f * 2, i * 1e0 FROM data",
        "SELECT count(i = i2), max(i = i2 AND f <> f2), min(i = i2 OR f = f2) FROM data",
    ] {
        queries.push(exact(text));
    }
    (file(&["i", "i2", "f", "f2"], &text), queries)
}

/// Every two of true, false and NULL.
fn logic() -> (File, Vec<Query>) {
    let values = ["1", "0", ""];
    let pairs = values.iter().flat_map(|left| values.iter().map(move |right| (left, right)));
    let lines: String = pairs.map(|(left, right)| format!("{left},{right}\n")).collect();
    let tests = "i = 1 AND i2 = 1, i = 1 OR i2 = 1, NOT i = 1, NOT (i = 1 AND i2 = 1), \
                 i = 1 AND i2 = 1 OR i = 0, NOT i = 1 OR i2 = 1, (i = 1) = (i2 = 1), (i = 1) < (i2 = 1), \
                 i IN (1, NULL), i NOT IN (1, NULL), i IN (NULL), NULL IN (1, 2), i IN (0, 1), \
                 i BETWEEN i2 AND 1, i NOT BETWEEN 1 AND i2, NULL BETWEEN i AND 1, i BETWEEN NULL AND 0, \
                 i IS NULL, i IS NOT NULL, (i = i2) IS NULL, NULL, NULL = NULL, NOT (NULL), i = NULL, \
                 NULL AND i = 1, NULL OR i = 1, TRUE, (i = 1) IN (TRUE)";
    let mut queries = vec![exact(&format!("SELECT {tests} FROM data"))];
    for test in
        ["i = 1", "NOT i = 1", "i IN (0, NULL)", "i NOT IN (0, NULL)", "NULL", "TRUE", "i <> i2"]
    {
        queries.push(exact(&format!("SELECT * FROM data WHERE {test}")));
        queries.push(exact(&format!("SELECT * FROM data WHERE i2 = 1 AND {test}")));
        queries.push(exact(&format!("SELECT * FROM data WHERE i2 = 1 OR {test}")));
    }
    (file(&["i", "i2"], &lines), queries)
}

/// Every two texts, and patterns that are special.
fn texts() -> (File, Vec<Query>) {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut lines = String::new();
    for left in files::TEXTS {
        for right in files::TEXTS {
            let _ = writeln!(lines, "{},{}", quoted(left), quoted(right));
        }
    }
    let mut queries = vec![
        exact("SELECT t = t2, t < t2, t <= t2, t > t2, t >= t2, t <> t2 FROM data"),
        exact("SELECT t BETWEEN 'a' AND t2, t IN ('a', 'B', ''), '', t2 FROM data"),
        exact("SELECT min(t), max(t), count(t), count(*), count(), min('x') FROM data"),
    ];
    for pattern in [
        "",
        "%",
        "%%",
        "_",
        "__",
        "_%",
        "%_",
        "a%",
        "%a",
        "%a%",
        "a_",
        "_a",
        "%_a%",
        "a%b",
        "%a%b%",
        "a%_b",
        "\u{e9}",
        "_\u{301}",
        "e_",
        "%\u{1f600}%",
        "\\",
        "%\\%",
        "!%",
        "a!%b",
        "!_",
        "%!%%",
        "!!",
        "%it''s%",
        "%aaab",
        "aaa%",
        "%aa_aa%",
        "a text that is longer%bytes",
        "%than twelve%",
        "%,%",
        "%\"%",
    ] {
        queries
            .push(exact(&format!("SELECT t LIKE '{pattern}', t NOT LIKE '{pattern}' FROM data")));
        if pattern != "!_" {
            queries.push(exact(&format!("SELECT t FROM data WHERE t LIKE '{pattern}' ESCAPE '!'")));
        }
    }
    queries.push(exact("SELECT t FROM data WHERE t LIKE '!_' ESCAPE '!'"));
    (file(&["t", "t2"], &lines), queries)
}

/// Groups of NULL, of NaN and of both zeros; nothing to add up, and more than 64 bits.
fn groups() -> (File, Vec<Query>) {
    let lines = "1,0.0,a\n2,-0.0,\n9223372036854775807,nan,b\n9223372036854775807,NaN,a\n\
                 -9223372036854775808,,\n,,c\n9223372036854775807,-nan,\u{e9}\n3,-0.0,a\n,inf,b\n";
    let all = "count(*), count(i), count(f), count(t), sum(i), min(i), max(i), min(t), max(t)";
    let mut queries = Vec::new();
    for key in ["f", "t", "i", "i % 2", "i > 2", "f IS NULL", "t LIKE 'a'", "-f"] {
        let text = format!("SELECT {key}, {all} FROM data GROUP BY {key}");
        queries.push(Query { columns: vec![Compared::Zeros], keys: Some(vec![0]), ..exact(&text) });
    }
    for text in [
        format!("SELECT {all}, avg(f), sum(f), min(f), max(f) FROM data"),
        format!("SELECT {all}, avg(i), sum(f) FROM data WHERE FALSE"),
        format!("SELECT i, {all} FROM data WHERE i IS NULL AND t = 'x' GROUP BY i"),
        "SELECT avg(f), sum(f), min(f), max(f), avg(i), min(i < 2), max(i < 2) FROM data WHERE f = 0".to_owned(),
        "SELECT sum(i) FROM data WHERE i > 0".to_owned(),
    ] {
        queries.push(Query { columns: vec![Compared::Zeros; 13], ..exact(&text) });
    }
    for (items, end, duck) in [
        ("t, count(*)", "ORDER BY count(*) DESC", ", t"),
        ("t, count(*) AS n", "ORDER BY N, 1 DESC", ""),
        ("t AS i, max(i) AS t", "ORDER BY t DESC LIMIT 3", ", 1"),
        ("t, max(i)", "ORDER BY max(f), min(i) DESC LIMIT 4", ", t"),
        ("count(i)", "ORDER BY t DESC NULLS LAST LIMIT 2", ""),
        ("t", "ORDER BY 1 DESC LIMIT 0", ""),
    ] {
        let text = format!("SELECT {items} FROM data GROUP BY t {end}");
        let theirs = match end.split_once(" LIMIT") {
            Some((order, limit)) => text.replace(end, &format!("{order}{duck} LIMIT{limit}")),
            None => format!("{text}{duck}"),
        };
        queries.push(Query { duck: theirs, ..exact(&text) });
    }
    let limited = "SELECT t, sum(i) FROM data GROUP BY t";
    let duck = format!("{limited} ORDER BY t LIMIT 3");
    queries.push(Query { duck, ..exact(&format!("{limited} LIMIT 3")) });
    (file(&["i", "f", "t"], lines), queries)
}

/// What an ORDER BY is about.
fn orders() -> (File, Vec<Query>) {
    let lines = "1,0.0,b\n2,,a\n3,nan,\n,-0.0,a\n-5,inf,\u{e9}\n4,-inf,B\n,,b\n2,1.5,a\n";
    let mut queries = Vec::new();
    for (items, order) in [
        ("*", "f"),
        ("*", "t"),
        ("*", "i"),
        ("*", "-i"),
        ("*", "i > 1"),
        ("t", "f"),
        ("*", "2"),
        ("t, i", "1"),
        ("t, i + 1", "2"),
        // The name of a result comes before that of a column.
        ("-i AS f, t", "f"),
        ("-i AS F, t", "f"),
        ("-i AS next, t", "next"),
    ] {
        for direction in ["", " ASC", " DESC", " DESC NULLS LAST", " NULLS LAST"] {
            for limit in [0, 1, 3, 5, 100] {
                let text = format!("SELECT {items} FROM data ORDER BY {order}{direction}");
                let duck = format!("{text}, rowid LIMIT {limit}");
                queries.push(Query { duck, ..exact(&format!("{text} LIMIT {limit}")) });
            }
        }
    }
    // A key is a column, if there is one of the name.
    for (items, key) in [("-i AS next", "next"), ("-i", "1"), ("i AS n, f AS t", "1, f")] {
        let text = format!("SELECT {items}, count(*) FROM data GROUP BY {key}");
        queries.push(Query {
            columns: vec![Compared::Zeros; 2],
            keys: Some(vec![0, 1]),
            ..exact(&text)
        });
    }
    (file(&["i", "f", "t"], lines), queries)
}

/// Lines in all their forms.
fn records() -> (File, Vec<Query>) {
    let lines = "1,2.5,a\n\n\"1\",\"2.5\",\"a\"\n,,\n\"\",\"\",\"\"\n 1 , 2.5 , a \n+1,+2.5,\"a\"\"b\"\n\
                 1\n1,2.5\n,,x\n007,1e400,\"a,b\"\n-0,-1e400,\"\"\"\"\n1,1e-400,\"\"\"a\"\"\"\n1,.5,a\n1,5.,a\n";
    let queries = [
        "SELECT * FROM data",
        "SELECT t, f, i FROM data",
        "SELECT count(*), count(i), count(f), count(t) FROM data",
        "SELECT * FROM data WHERE t = ' a ' OR t = 'a\"b'",
        "SELECT i, f FROM data WHERE t IS NULL",
    ];
    (file(&["i", "f", "t"], lines), queries.map(exact).into())
}

/// Of one column an empty line is NULL.
fn one_column() -> (File, Vec<Query>) {
    let queries =
        ["SELECT * FROM data", "SELECT count(*), count(t) FROM data", "SELECT t FROM data LIMIT 3"];
    (file(&["t"], "a\n\n\"\"\n b\n\n"), queries.map(exact).into())
}
