//! `nasd scan` of Parquet files on whole cells: only what is needed is read, and broken files are told.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs;
use std::sync::Arc;
use support::{CellOptions, TestCell};

const ROWS: i64 = 300_000;
const GROUP: i64 = 20_000;

/// Numbers, names and prices, some of which are missing; and a list, which nobody can scan.
fn table() -> Vec<u8> {
    let schema =
        "message m { required int64 id; required binary name (STRING); optional double price;
        repeated int32 list; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false);
    let mut bytes = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties.build())).unwrap();
    for first in (0..ROWS).step_by(GROUP as usize) {
        let ids: Vec<i64> = (first..first + GROUP).collect();
        let name = |id: &i64| ByteArray::from(format!("name {}", id * 7919 % 1000).into_bytes());
        let names: Vec<ByteArray> = ids.iter().map(name).collect();
        let there: Vec<i16> = ids.iter().map(|id| (id % 10 > 0).into()).collect();
        let prices = ids.iter().filter(|id| *id % 10 > 0).map(|id| *id as f64 / 4.0);
        let prices: Vec<f64> = prices.collect();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&ids, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<DoubleType>().write_batch(&prices, Some(&there), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let none = vec![0; ids.len()];
        column.typed::<Int32Type>().write_batch(&[], Some(&none), Some(&none)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

fn scan(cell: &TestCell, arguments: &[&str]) -> String {
    let told = cell.nasd(&[&["scan"], arguments].concat());
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success(), "{arguments:?}: {said}");
    String::from_utf8(told.stdout).unwrap()
}

fn work(cell: &TestCell, query: &str) -> serde_json::Value {
    let told = scan(cell, &["main:/table.parquet", query, "--json"]);
    serde_json::from_str(&told).unwrap()
}

#[test]
fn several_files_are_scanned_as_one() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid0"));
    fs::write(cell.path("a.parquet"), table()).unwrap();
    fs::copy(cell.path("a.parquet"), cell.path("b.parquet")).unwrap();
    let (one, both) = (["main:/a.parquet"], ["main:/a.parquet", "main:/b.parquet"]);
    let lines = |query| {
        let told = scan(&cell, &[&one[..], &[query]].concat());
        let (names, lines) = told.split_once('\n').unwrap();
        (names.to_owned(), lines.to_owned())
    };
    let (names, told) = lines("SELECT id, name FROM t WHERE price > 50000");
    let query = "SELECT id, name FROM t WHERE price > 50000";
    assert!(scan(&cell, &[&both[..], &[query]].concat()) == format!("{names}\n{told}{told}"));
    let limited = format!("{query} LIMIT {}", told.lines().count() + 1);
    let (all, first) =
        (scan(&cell, &[&both[..], &[&limited]].concat()), told.lines().next().unwrap());
    assert!(all == format!("{names}\n{told}{first}\n"));
    let sums = "SELECT count(*), sum(id), avg(price) FROM t";
    assert_eq!(lines(sums).1, "300000,44999850000,37500.0\n");
    let told = scan(&cell, &[&both[..], &[sums]].concat());
    assert_eq!(told, "count(*),sum(id),avg(price)\n600000,89999700000,37500.0\n");
    let top = "SELECT id FROM t WHERE id > 299997 ORDER BY name LIMIT 4";
    let told = scan(&cell, &[&both[..], &[top]].concat());
    let ids: Vec<&str> = told.lines().skip(1).collect();
    // Of equals those of the first file come first.
    assert!(ids.len() == 4 && ids[0] == ids[1] && ids[2] == ids[3], "{told}");
    let told = cell.nasd(&["scan", "main:/a.parquet", "main:/b.parquet", sums, "--stats"]);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(said.contains("30 of 30 groups of rows"), "{said}");
}

#[test]
fn only_the_columns_and_groups_that_are_needed_are_read() {
    let bytes = table();
    for options in [CellOptions::default(), CellOptions::striped(3, "raid0")] {
        let cell = TestCell::start(&options);
        fs::write(cell.path("table.parquet"), &bytes).unwrap();
        let path = "main:/table.parquet";
        let all = scan(&cell, &[path, "SELECT id, name, price FROM t"]);
        let line = |id: i64| match id % 10 {
            0 => format!("{id},name {},\n", id * 7919 % 1000),
            // A float that is whole has a point nevertheless.
            _ => format!("{id},name {},{:?}\n", id * 7919 % 1000, id as f64 / 4.0),
        };
        let lines: String = (0..ROWS).map(line).collect();
        assert!(all == format!("id,name,price\n{lines}"), "{} bytes", all.len());
        let first = scan(&cell, &[path, "SELECT id FROM t WHERE price > 50000 LIMIT 2"]);
        assert_eq!(first, "id\n200001\n200002\n");
        let top = scan(&cell, &[path, "SELECT id FROM t ORDER BY id DESC LIMIT 2"]);
        assert_eq!(top, "id\n299999\n299998\n");
        let groups = scan(&cell, &[path, "SELECT name, count(*) FROM t GROUP BY name"]);
        assert_eq!(groups.lines().count(), 1001);
        let told =
            work(&cell, "SELECT sum(id), count(price) FROM t WHERE id BETWEEN 30000 AND 49999");
        assert_eq!(
            told["rows"][0],
            serde_json::json!({"sum(id)": 799_990_000, "count(price)": 18_000})
        );
        assert_eq!(told["work"]["row_groups"], serde_json::json!({"all": 15, "looked_at": 2}));
        let read = |told: &serde_json::Value| told["work"]["read_bytes"].as_u64().unwrap();
        let names = work(&cell, "SELECT count(id), max(name), max(price) FROM t");
        assert!(read(&told) * 4 < read(&names), "{} of {}", read(&told), read(&names));
        assert!(read(&names) < bytes.len() as u64 + (64 << 10));
        let counted = work(&cell, "SELECT count(*) FROM t");
        assert!(counted["rows"][0]["count(*)"] == ROWS && read(&counted) <= 64 << 10);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told() {
    let bytes = table();
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("table.parquet"), &bytes).unwrap();
    // By its beginning.
    fs::write(cell.path("table"), &bytes).unwrap();
    assert_eq!(scan(&cell, &["main:/table", "SELECT max(id) FROM t"]), "max(id)\n299999\n");
    fs::write(cell.path("cut.parquet"), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(cell.path("lines.parquet"), "id,name\n1,a\n").unwrap();
    let mut broken = bytes.clone();
    broken[4..40].fill(0xff);
    fs::write(cell.path("broken.parquet"), &broken).unwrap();
    for (arguments, word) in [
        (&["main:/cut.parquet"][..], "no Parquet file"),
        (&["main:/lines.parquet"], "no Parquet file"),
        (&["main:/broken.parquet", "SELECT sum(id) FROM t"], "the Parquet file is broken"),
        (&["main:/table.parquet"], "column list can't be read: it is nested"),
        (&["main:/table.parquet", "SELECT list FROM t"], "column list can't be read: it is nested"),
        (&["main:/table.parquet", "SELECT no FROM t"], "there is no column no"),
        (&["main:/table.parquet", "SELECT id FROM t", "--columns", "id:int"], "says itself"),
        (
            &["main:/table.parquet", "SELECT id + 9223372036854775807 FROM t"],
            "record 1: an integer overflows",
        ),
    ] {
        let told = cell.nasd(&[&["scan"], arguments].concat());
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.status.code() == Some(1) && said.contains(word), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}
