//! The same records in Parquet files, with groups of few rows so that many of them are passed over; and files that DuckDB
//! writes.

#[allow(dead_code, reason = "another test uses all of it")]
#[path = "../columns/scan.rs"]
mod scan;
#[allow(dead_code, reason = "another test uses all of it")]
#[path = "../columns/write.rs"]
mod write;

use super::queries::{Maker, Query};
use super::random::Random;
use super::{Answer, File, OVERFLOW, PATTERN, compare, directed, duckdb, exact, files, read_rows};
use nasd_filter::{Fault, MergeError, Merged, Options, ScanError, Type, Value};
use parquet::file::properties::WriterProperties;
use scan::{Memory, Wrong, checked};
use serde_json::json;
use std::fmt::Write as _;
use write::{CODECS, Data};

/// Comparisons and what stands beside them, by which groups of rows are passed over.
const CONDITIONS: &[&str] = &["=", "<>", "<", "<=", ">", ">="];

#[test]
fn filters_mean_the_same_of_parquet() {
    let mut all = directed();
    let cases = std::env::var("NASD_DUCKDB_CASES").ok().and_then(|text| text.parse().ok());
    for seed in 0..cases.unwrap_or(300_usize).div_ceil(20) {
        let mut random = Random::new(1_000_000 + seed as u64);
        let file = files::file(&mut random);
        let mut maker =
            Maker { columns: &file.format.columns, random: &mut random, overflows: false };
        let mut queries: Vec<Query> = (0..10).map(|_| maker.query()).collect();
        queries.extend((0..10).map(|_| bounded(&file, &mut random)));
        all.push((file, queries));
    }
    for (_, queries) in &mut all {
        // By which the records are known.
        queries.insert(0, exact("SELECT * FROM data"));
    }
    let mut answers = duckdb(&all).into_iter();
    let mut different = String::new();
    let mut random = Random::new(7);
    for (file, queries) in &all {
        let records = answers.next().unwrap().unwrap();
        let memory = Memory::new(write(file, &records, &mut random));
        for query in &queries[1..] {
            let theirs = answers.next().unwrap();
            if let Err(why) = compare(query, ours(&memory, &query.ours), theirs) {
                let _ = writeln!(different, "{}\n{}\n{why}", query.ours, query.duck);
            }
        }
    }
    let different: String = different.chars().take(20_000).collect();
    assert!(different.is_empty(), "{different}");
}

/// A query whose WHERE bounds columns.
fn bounded(file: &File, random: &mut Random) -> Query {
    let mut operand = || {
        let column = random.pick(&file.format.columns);
        let mut constant = || match (files::Holds::of(&column.name), random.below(2)) {
            (files::Holds::Texts, _) => format!("'{}'", files::text(random).replace('\'', "''")),
            (files::Holds::Floats, 0) => format!("{:e}", random.pick(&[0.5, -0.5, 1e16, -1e300])),
            (_, 0) => random.pick(files::SMALL_INTS).to_string(),
            _ => random.pick(&files::INTS[..10]).to_string(),
        };
        let (low, high) = (constant(), constant());
        let name = column.name;
        match random.below(10) {
            0 => format!("{name} IS NULL"),
            1 => format!("{name} IS NOT NULL"),
            2 | 3 => format!("{name} BETWEEN {low} AND {high}"),
            4 => format!("{low} {} {name}", random.pick(CONDITIONS)),
            _ => format!("{name} {} {low}", random.pick(CONDITIONS)),
        }
    };
    let condition = match operand() {
        one if one.len() % 2 == 0 => format!("{one} AND {}", operand()),
        one => one,
    };
    exact(&format!("SELECT * FROM data WHERE {condition}"))
}

/// A Parquet file of records.
fn write(file: &File, records: &[Vec<Value>], random: &mut Random) -> Vec<u8> {
    let mut schema = "message m {".to_owned();
    let mut columns = Vec::new();
    for (at, column) in file.format.columns.iter().enumerate() {
        let values = records.iter().map(|record| &record[at]);
        let (kind, data) = match column.kind {
            Type::Int => ("int64 {}", Data::Longs(values.map(int).collect())),
            Type::Float => ("double {}", Data::Doubles(values.map(float).collect())),
            _ => ("binary {} (STRING)", Data::Texts(values.map(text).collect())),
        };
        let _ = write!(schema, "optional {};", kind.replace("{}", &column.name));
        columns.push(data);
    }
    schema.push('}');
    let properties = WriterProperties::builder()
        .set_compression(random.pick(CODECS)())
        .set_dictionary_enabled(random.one_in(2));
    let group = random.pick(&[1, 2, 3, 10, 2000]).max(records.len() / 100);
    write::file(&schema, &columns, group, properties)
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::HugeInt(value) => Some(i64::try_from(*value).unwrap()),
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

/// What the filter answers.
fn ours(memory: &Memory, text: &str) -> Answer {
    let file = memory.open().map_err(|error| error.to_string())?;
    let told = |wrong: Wrong| match wrong {
        Wrong::Scan(MergeError::Scan(ScanError::Row { fault: Fault::Overflow, .. })) => {
            OVERFLOW.to_owned()
        }
        Wrong::Query(text) if text.contains("escape character") => PATTERN.to_owned(),
        other => format!("{other:?}"),
    };
    let checked = checked(&file, text, Options::default()).map_err(told)?;
    let query = nasd_filter::sql::parse(text, &file.format()).map_err(|error| error.to_string())?;
    let places: Vec<usize> = query.columns.iter().map(|column| column.place).collect();
    let found = scan::scan(memory, &file, &checked).map_err(told)?;
    assert_eq!(found.counts.bad, 0, "files have good records only");
    let mut merged = found.merged;
    query.arrangement.arrange(&mut merged);
    let rows = match merged {
        Merged::Select => read_rows(&checked, &found.rows),
        Merged::Aggregate(rows) => rows,
        Merged::Top(rows) => rows.iter().flat_map(|row| read_rows(&checked, &row.row)).collect(),
    };
    Ok(rows.into_iter().map(|row| places.iter().map(|&at| row[at].clone()).collect()).collect())
}

/// Files as DuckDB writes them, in all its ways.
#[test]
fn what_duckdb_writes_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let records = "SELECT i AS id, i % 5 = 0 AS flag, (i * 7919 % 1000)::INTEGER AS small, \
        CASE WHEN i % 3 > 0 THEN i / 8.0 END::DOUBLE AS half, 'name ' || i % 100 AS name, \
        (i / 100.0)::DECIMAL(9, 2) AS price, DATE '2020-01-01' + (i % 1000)::INTEGER AS day, \
        TIMESTAMP '2020-01-01 00:00:00' + to_milliseconds(i * 500) AS moment, \
        i::UINTEGER AS wide, i::TINYINT % 8::TINYINT AS tiny, i::FLOAT AS single \
        FROM range(0, 10000) t(i)"
        .replace("i::TINYINT % 8::TINYINT", "(i % 100)::TINYINT");
    let queries = [
        "SELECT id, small, name, half, flag FROM data WHERE id > 9990",
        "SELECT count(*), sum(id), min(small), max(name), avg(half), count(half) FROM data",
        "SELECT small, wide, tiny, single FROM data WHERE id BETWEEN 4000 AND 4010",
        "SELECT count(*) FROM data WHERE flag = TRUE AND half IS NOT NULL AND name LIKE '%7'",
        "SELECT flag, count(*), max(id) FROM data GROUP BY flag",
    ];
    // What is a text here is cast there.
    let cast = [(
        "SELECT price, day, moment FROM data WHERE day >= '2022-01-01' AND id > 9000 LIMIT 40",
        "SELECT price::DOUBLE, day::VARCHAR, moment::VARCHAR FROM data WHERE day >= '2022-01-01' AND id > 9000 LIMIT 40",
    )];
    let queries = queries.iter().map(|query| exact(query));
    let queries: Vec<Query> = queries
        .chain(cast.map(|(ours, duck)| Query { duck: duck.to_owned(), ..exact(ours) }))
        .map(|query| Query { keys: query.ours.contains("GROUP").then(|| vec![0]), ..query })
        .collect();
    let (mut told, mut paths) = (String::new(), Vec::new());
    for codec in ["uncompressed", "snappy", "zstd", "gzip", "lz4_raw"] {
        for version in ["V1", "V2"] {
            let path = directory.path().join(format!("{codec}-{version}.parquet"));
            let options = format!(
                "FORMAT parquet, COMPRESSION {codec}, PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048"
            );
            let asked = queries.iter().map(|query| json!({"sql": query.duck, "optimized": true}));
            let line = json!({
                "write": path, "records": records, "options": options,
                "queries": asked.collect::<Vec<_>>(),
            });
            let _ = writeln!(told, "{line}");
            paths.push(path);
        }
    }
    let mut answers = super::run_duckdb(&told).into_iter();
    for path in paths {
        let memory = Memory::new(std::fs::read(&path).unwrap());
        let groups = memory.open().unwrap().groups();
        assert!(groups > 2, "{groups}");
        for query in &queries {
            let compared = compare(query, ours(&memory, &query.ours), answers.next().unwrap());
            assert_eq!(compared, Ok(()), "{} of {}", query.ours, path.display());
        }
    }
}
