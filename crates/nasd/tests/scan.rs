//! `nasd scan` on whole cells: what drives tell is what reading the file and looking at it tells.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "support/memory.rs"]
mod memory;
mod support;

use std::fs;

use memory::output_and_memory;
use support::{CellOptions, TestCell};

/// Lines of a number, a name and a price: more than one answer holds, over many stripe units.
fn table() -> (String, Vec<(i64, String, f64)>) {
    let mut rows = Vec::new();
    let mut lines = String::from("id,name,price\n");
    for id in 0..400_000_i64 {
        let name = format!("name {}", id * 7919 % 1000);
        let price = (id * 31 % 10_007) as f64 / 4.0;
        lines += &format!("{id},{name},{price}\n");
        rows.push((id, name, price));
    }
    (lines, rows)
}

fn kinds() -> [CellOptions; 3] {
    [CellOptions::default(), CellOptions::striped(3, "raid0"), CellOptions::striped(3, "raid1")]
}

/// What is printed, and what is told of the work.
fn scan(cell: &TestCell, arguments: &[&str]) -> (String, String) {
    let told = cell.nasd(&[&["scan"], arguments].concat());
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.success(), "{arguments:?}: {said}");
    (String::from_utf8(told.stdout).unwrap(), said)
}

#[test]
fn drives_tell_what_reading_tells() {
    let (lines, rows) = table();
    for options in kinds() {
        let cell = TestCell::start(&options);
        fs::write(cell.path("table.csv"), &lines).unwrap();
        let cheap = rows.iter().filter(|(_, _, price)| *price < 5.0);
        let cheap: String =
            cheap.map(|(id, name, price)| format!("{id},{name},{price}\n")).collect();
        let cheap = format!("id,name,price\n{cheap}");
        let select = "select * from t where price < 5";
        let path = "main:/table.csv";
        let (printed, said) = scan(&cell, &[path, select, "--stats"]);
        assert!(printed == cheap, "{} bytes instead of {}", printed.len(), cheap.len());
        let bytes = lines.len();
        assert!(said.contains(&format!("looked at {bytes} bytes")), "{said}");
        assert!(said.contains(" 0 were read"), "{said}");
        let (printed, said) = scan(&cell, &[path, select, "--stats", "--here"]);
        assert!(printed == cheap && said.contains(&format!(" {bytes} were read")), "{said}");
        // All of it, which is more than one answer holds.
        assert!(scan(&cell, &[path]).0 == lines);
        let first = "select id, price from t where name like '%7' limit 2";
        assert_eq!(scan(&cell, &[path, first]).0, "id,price\n3,23.25\n13,100.75\n");
        let sums = "select count(*), sum(id) as ids, max(price), min(name) from t where id % 2 = 1";
        let ids: i64 = (0..400_000).filter(|id| id % 2 == 1).sum();
        let most = rows.iter().filter(|(id, ..)| id % 2 == 1).map(|(.., price)| *price);
        let most = most.fold(0.0, f64::max);
        let wanted = format!("count(*),ids,max(price),min(name)\n200000,{ids},{most},name 1\n");
        assert_eq!(scan(&cell, &[path, sums]).0, wanted);
        let top = "select id from t order by id desc limit 3";
        assert_eq!(scan(&cell, &[path, top]).0, "id\n399999\n399998\n399997\n");
        let groups = "select name, count(*) from t group by name";
        assert_eq!(scan(&cell, &[path, groups]).0.lines().count(), 1001);
        // Which takes more memory than a drive has, for as many groups as there may be.
        let floats = "select name, sum(price), avg(price * 2), sum(id / 3), avg(id / 7) from t group by name";
        let (told, said) = scan(&cell, &[path, floats, "--stats"]);
        assert!(said.contains(" 0 were read"), "{said}");
        assert!(told == scan(&cell, &[path, floats, "--here"]).0);
        // By what is not shown, and of equals by the keys.
        let ordered = format!("{groups} order by 2, max(id) desc limit 2");
        let wanted = "name,count(*)\nname 81,400\nname 162,400\n";
        assert_eq!(scan(&cell, &[path, &ordered]).0, wanted);
        let (told, _) = scan(&cell, &[path, sums, "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(
            (&told["rows"][0]["ids"], &told["work"]["records"]),
            (&ids.into(), &400_000.into())
        );
    }
}

/// What is printed for scripts, and where that can't be done.
#[test]
fn json_tells_what_lines_tell() {
    let cell = TestCell::start(&CellOptions::default());
    let towns = b"city,n,na me\nPatras,3,a\nArgos,1,b\nPatras,2,c\n";
    fs::write(cell.path("towns.csv"), towns).unwrap();
    fs::write(cell.path("latin.csv"), b"city,n\n\xc1rgos,1\n\xc0rgos,2\n").unwrap();
    let named = ["main:/towns.csv", "select \"na me\", \"city\" from t limit 1"];
    assert_eq!(scan(&cell, &named).0, "na me,city\na,Patras\n");
    let sums = "select \"city\", sum(n) as a, count(*) as b from t group by city";
    let (told, _) = scan(&cell, &["main:/towns.csv", sums, "--json"]);
    let rows = "\
        {\n  \"rows\": [\n    {\n      \"city\": \"Argos\",\n      \"a\": 1,\n      \"b\": 1\n    },\n    \
        {\n      \"city\": \"Patras\",\n      \"a\": 5,\n      \"b\": 2\n    }\n  ],\n  \"work\": {\n";
    assert!(told.starts_with(rows), "{told}");
    let lines = ["main:/towns.csv", "select city, n from t limit 2", "--json"];
    let (told, _) = scan(&cell, &lines);
    let rows = "{\n  \"rows\": [\n    \"Patras,3\",\n    \"Argos,1\"\n  ],\n  \"work\": {\n";
    assert!(told.starts_with(rows), "{told}");
    let none = ["main:/towns.csv", "select city from t where n > 7", "--json"];
    assert!(scan(&cell, &none).0.starts_with("{\n  \"rows\": [],\n  \"work\": {\n"));
    let fixed = ["main:/towns.csv", "--format", "fixed", "--columns", "x:text1"];
    for (arguments, word) in [
        (&["main:/towns.csv", "select city as x, count(*) as x from t group by city"][..], "AS"),
        (&["main:/latin.csv", "select city, count(*) from t group by city"], "not UTF-8"),
        (&["main:/latin.csv", "select city from t"], "not UTF-8"),
        (&["main:/latin.csv", "select city from t order by n limit 1"], "not UTF-8"),
        (&fixed, "rows of fixed records are bytes"),
    ] {
        let told = cell.nasd(&[&["scan", "--json"], arguments].concat());
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.status.code() == Some(1) && said.contains(word), "{arguments:?}: {said}");
        assert!(told.stdout.is_empty(), "{arguments:?}");
    }
    // Lines are as they are: names that repeat can be told apart by their places.
    scan(&cell, &["main:/towns.csv", "select city as x, count(*) as x from t group by city"]);
    let twice = ["main:/towns.csv", "select n as x, n as x from t limit 1", "--json"];
    assert!(scan(&cell, &twice).0.contains("\"3,3\""));
}

/// Rows are printed as they come, also for scripts: what is printed may be larger than memory.
#[test]
fn json_takes_little_memory() {
    let cell = TestCell::start(&CellOptions::default());
    let count = 6_000_000;
    let mut lines: String = (0..count).map(|id| format!("{id}\n")).collect();
    lines.insert_str(0, "id\n");
    fs::write(cell.path("numbers.csv"), &lines).unwrap();
    let (told, kib) = output_and_memory(&cell, &["scan", "--json", "main:/numbers.csv"]);
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    let rows = told["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[count - 1]), (count, &(count - 1).to_string().into()));
    assert!(kib < 300 << 10, "{kib} KiB");
    // What fails in the middle leaves no document, and is told.
    lines += "x\n";
    fs::write(cell.path("numbers.csv"), &lines).unwrap();
    let arguments = ["scan", "--json", "--strict", "main:/numbers.csv", "--columns", "id:int"];
    let told = cell.nasd(&[&arguments[..], &["select id from t"]].concat());
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.code() == Some(1) && said.contains("the record at byte"), "{said}");
    assert!(serde_json::from_slice::<serde_json::Value>(&told.stdout).is_err());
    assert!(told.stdout.starts_with(b"{\n  \"rows\": [\n    \"0\",\n"));
}

/// JSON lines and fixed records; and files that end without a line end, or in the middle of a record.
#[test]
fn other_formats_are_scanned_too() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid0"));
    let objects: String =
        (0..50_000).map(|id| format!("{{\"id\": {id}, \"tag\": \"t{}\"}}\n", id % 10)).collect();
    fs::write(cell.path("objects.jsonl"), objects.trim_end()).unwrap();
    let last = scan(&cell, &["main:/objects.jsonl", "select * from t where id = 49999"]).0;
    assert_eq!(last, "{\"id\": 49999, \"tag\": \"t9\"}\n");
    let groups =
        scan(&cell, &["main:/objects.jsonl", "select tag, count(*) from t group by tag"]).0;
    assert!(groups.starts_with("tag,count(*)\nt0,5000\n"), "{groups}");
    // Booleans as they are guessed, and as they are said to be.
    let objects = (0..50_000).map(|id| format!("{{\"id\": {id}, \"odd\": {}}}\n", id % 2 == 1));
    fs::write(cell.path("flags.jsonl"), objects.collect::<String>() + "{\"odd\": 1}\n").unwrap();
    for told in [&[][..], &["--columns", "id:int,odd:bool"]] {
        let (path, first) = ("main:/flags.jsonl", "select id, odd from t where not odd limit 2");
        assert_eq!(scan(&cell, &[&[path, first], told].concat()).0, "id,odd\n0,false\n2,false\n");
        let groups = "select odd, count(*) from t where id >= 0 group by odd";
        let (counted, said) = scan(&cell, &[&[path, groups, "--stats"], told].concat());
        assert_eq!(counted, "odd,count(*)\nfalse,25000\ntrue,25000\n");
        assert!(said.contains(" 0 were read"), "{said}");
    }
    let records: Vec<u8> = (0..300_000_u32)
        .flat_map(|id| [id.to_le_bytes(), (id % 100).to_le_bytes(), *b"abc\0"].concat())
        .collect();
    fs::write(cell.path("records"), &records[..records.len() - 5]).unwrap();
    let fixed = ["main:/records", "select count(*), max(id) from t where small = 3"];
    let how = ["--format", "fixed", "--columns", "id:u32,small:u32,text:text4"];
    let (counted, said) = scan(&cell, &[&fixed[..], &how].concat());
    assert_eq!(counted, "count(*),max(id)\n3000,299903\n");
    assert!(said.contains("passed over: 1"), "{said}");
    let selected =
        cell.nasd(&[&["scan", "main:/records", "select * from t where id < 2"], &how[..]].concat());
    assert_eq!(selected.stdout, records[..24]);
    fs::write(cell.path("empty.csv"), "id\n").unwrap();
    assert_eq!(scan(&cell, &["main:/empty.csv", "select count(*) from t"]).0, "count(*)\n0\n");
}

/// What is told of several files is what is told of one that has the records of all.
#[test]
fn several_files_are_scanned_as_one() {
    let (lines, _) = table();
    let (header, records) = lines.split_once('\n').unwrap();
    let records: Vec<&str> = records.split_inclusive('\n').collect();
    for options in
        [CellOptions { drives: 3, ..CellOptions::default() }, CellOptions::striped(3, "raid0")]
    {
        let cell = TestCell::start(&options);
        fs::write(cell.path("all.csv"), &lines).unwrap();
        fs::create_dir_all(cell.path("set/below")).unwrap();
        // Short and long ones, one without a line end, one without records, and one with nothing.
        let ends = [0, 3, 200_000, 200_001, 200_001, 250_000, 400_000];
        let names = ["a.csv", "b.csv", "below/c.csv", "below/d.csv", "e.csv", "f.csv"];
        for (name, ends) in names.iter().zip(ends.windows(2)) {
            let file = format!("{header}\n{}", records[ends[0]..ends[1]].concat());
            fs::write(cell.path("set").join(name), file.trim_end()).unwrap();
        }
        fs::write(cell.path("set/g.csv"), "").unwrap();
        let paths = names.map(|name| format!("main:/set/{name}"));
        let paths: Vec<&str> =
            paths.iter().map(String::as_str).chain(["main:/set/g.csv"]).collect();
        let below = ["-r", "main:/set"];
        // Of which the shortest ones are read, 104 bytes.
        for query in [
            "select * from t where price < 3 or id > 399990",
            "select id from t",
            "select id, name from t where name like '%7' limit 25000",
            "select * from t where id >= 199999 limit 4",
            "select count(*), sum(id), avg(price), min(name) from t",
            "select name, count(*), avg(price) from t group by name",
            "select name, count(*) as n from t group by name order by n desc, name limit 3",
            "select id, price from t order by price limit 100",
            "select id from t order by name desc limit 5",
        ] {
            let (whole, said) = scan(&cell, &["main:/all.csv", query, "--stats"]);
            for place in [&[][..], &["--here"]] {
                for files in [&paths[..], &below] {
                    let (told, here) = scan(&cell, &[files, &[query, "--stats"], place].concat());
                    assert!(told == whole, "{query}: {} bytes, not {}", told.len(), whole.len());
                    let drives = here.contains(" 104 were read") && said.contains(" 0 were read");
                    assert!(
                        drives || !place.is_empty() || query == "select id from t",
                        "{query}: {here}"
                    );
                }
            }
        }
        let parts = ["--select", "count(*) AS n", "--where", "id < 10", "-r", "main:/set"];
        assert_eq!(scan(&cell, &parts).0, "n\n10\n");
    }
}

/// Of numbers whose first ones are behind files that have none, or are all integers.
#[test]
fn columns_of_several_files_are_guessed_from_several() {
    let cell = TestCell::start(&CellOptions::default());
    let wide: Vec<String> = (0..1000).map(|column| format!("{column:0>100}")).collect();
    let (names, values) = (wide.join(","), vec!["1"; 1000].join(","));
    for (name, file) in [
        ("a.csv", "id,v\n"),
        ("b.csv", "id,v\n1,\n"),
        ("c.csv", "id,v\n2,9\n"),
        ("d.csv", "id,v\n3,100.5\n4,20"),
        ("e.csv", ""),
        ("wide.csv", &format!("{names}\n{values}\n")),
        ("also.csv", &format!("{names}\n{values}\n")),
        ("f.txt", "no records"),
    ] {
        fs::write(cell.path(name), file).unwrap();
    }
    let files = ["main:/a.csv", "main:/b.csv", "main:/c.csv", "main:/d.csv", "main:/e.csv"];
    for (query, wanted) in [
        ("select max(v), count(v), sum(id) from t", "max(v),count(v),sum(id)\n100.5,3,10\n"),
        ("select id from t where v > 15 order by v limit 5", "id\n4\n3\n"),
    ] {
        for files in [&files[..], &files[1..], &files[2..]] {
            let told = scan(&cell, &[files, &[query]].concat()).0;
            let missing = files.len() == 3 && query.contains("sum");
            assert_eq!(
                told,
                if missing { wanted.replace(",10\n", ",9\n") } else { wanted.to_owned() }
            );
        }
    }
    let both = ["main:/wide.csv", "main:/also.csv", "select count(*) from t"];
    assert_eq!(scan(&cell, &both).0, "count(*)\n2\n");
    // A line without an end is one, whatever is behind it.
    fs::write(cell.path("short.csv"), "id,v\n7,8").unwrap();
    let first = ["main:/short.csv", "main:/f.txt", "select id from t where v > 7 limit 1"];
    assert_eq!(scan(&cell, &first).0, "id\n7\n");
    // What is wrong with a file is nobody's matter who wants less.
    let first = ["main:/c.csv", "main:/f.txt", "select id from t limit 1"];
    assert_eq!(scan(&cell, &first).0, "id\n2\n");
    let told = cell.nasd(&["scan", "main:/c.csv", "main:/f.txt", "select id from t"]);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success() && said.contains("main:/f.txt: its name does not"), "{said}");
}

#[test]
fn files_with_other_records_are_not_scanned_together() {
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("a.csv"), "id,name\n1,x\n").unwrap();
    fs::write(cell.path("b.csv"), "name,id\ny,2\n").unwrap();
    fs::write(cell.path("c.jsonl"), "{\"id\":3}\n{\"id\":4,\"late\":1}").unwrap();
    fs::write(cell.path("d.jsonl"), "{\"id\":5,\"more\":true}\n").unwrap();
    fs::create_dir(cell.path("nothing")).unwrap();
    let count = "select count(*), max(id) from t";
    for (arguments, word) in [
        (&["main:/a.csv", "main:/b.csv", count][..], "main:/b.csv: its columns are not those"),
        (&["main:/a.csv", "main:/c.jsonl", count], "main:/c.jsonl: its records are not written as"),
        (&["main:/a.csv", "main:/gone.csv", count], "main:/gone.csv"),
        (&["-r", "main:/nothing"], "no file below"),
        (&[count], "nothing is to be scanned"),
        (&["main:/a.csv", count, "main:/b.csv"], "one query, behind all paths"),
        (&["main:/a.csv", count, "--limit", "1"], "as one text, or by --select"),
        (
            &["main:/c.jsonl", "main:/d.jsonl", "select nothing from t"],
            "no column nothing: no object in the first lines",
        ),
    ] {
        let told = cell.nasd(&[&["scan"], arguments].concat());
        let said = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(!told.status.success() && said.contains(word), "{arguments:?}: {said}");
    }
    let objects = ["main:/c.jsonl", "main:/d.jsonl", count];
    assert_eq!(scan(&cell, &objects).0, "count(*),max(id)\n3,5\n");
    let objects = ["main:/c.jsonl", "main:/d.jsonl", "select id from t where more"];
    assert_eq!(scan(&cell, &objects).0, "id\n5\n");
    // Of which the user says what all are.
    let same = ["main:/a.csv", "main:/b.csv", count, "--columns", "id:int,name:text"];
    let (told, said) = scan(&cell, &same);
    assert!(
        told == "count(*),max(id)\n1,1\n"
            && said.contains("passed over: 1, the first in main:/b.csv;"),
        "{told}{said}"
    );
}

/// A drive that is lost is one whose copy is looked at instead.
#[test]
fn a_scan_goes_on_without_a_drive() {
    let (lines, _) = table();
    let cell = TestCell::start(&CellOptions::striped(2, "raid1"));
    fs::write(cell.path("table.csv"), &lines).unwrap();
    support::sync_tree(&cell.mountpoint());
    let drive = cell.member("drive-1.img");
    support::signal(drive, "KILL");
    let counted = scan(&cell, &["main:/table.csv", "select count(*), sum(id) from t"]).0;
    assert_eq!(counted, "count(*),sum(id)\n400000,79999800000\n");
}

#[test]
fn what_has_no_meaning_is_told() {
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("a.csv"), "id,name\n1,x\ny,z\n9223372036854775807,w\n").unwrap();
    fs::write(cell.path("plain"), "").unwrap();
    let mixed =
        "{\"id\":1,\"mixed\":true,\"list\":[1]}\n{\"id\":2,\"mixed\":\"yes\",\"list\":[]}\n";
    fs::write(cell.path("mixed.jsonl"), mixed).unwrap();
    fs::create_dir(cell.path("below")).unwrap();
    fs::write(cell.path("marked.csv"), "\u{feff}id,name\n1,x\n").unwrap();
    let underscores = format!("select id from t where name like '%{}'", "_".repeat(2000));
    for (arguments, word) in [
        (&["main:/a.csv", "select nothing from t"][..], "no column nothing"),
        (&["main:/a.csv", "selekt"], "sql parser error"),
        (&["main:/a.csv", "select * from t order by id"], "ORDER BY without LIMIT"),
        (&["main:/a.csv", "select * from t where name + 1 > 2"], "does not take"),
        (&["main:/gone.csv"], "main:/gone.csv"),
        (&["main:/below", "--format", "csv", "--columns", "id:int"], "main:/below: is a directory"),
        (&["main:/plain"], "--format"),
        (&["main:/plain", "--format", "csv"], "--columns"),
        (&["main:/plain", "--format", "fixed"], "--columns"),
        (&["main:/a.csv", "--columns", "id:number"], "NAME:TYPE"),
        (&["main:/a.csv", "--columns", "id:bool,name:text"], "`id:bool` is no NAME:TYPE"),
        (&["main:/mixed.jsonl", "select mixed from t"], "several kinds, of which --columns"),
        (&["main:/mixed.jsonl", "select list from t"], "column list: its values are objects or"),
        (
            &["main:/a.csv", "select id from t", "--columns", "id:int,name:text", "--strict"],
            "the record at byte 12",
        ),
        (&["main:/a.csv", "select id + 1 from t", "--columns", "id:int,name:text"], "overflow"),
        (&["main:/a.csv", "--delimiter", "x"], "delimiter"),
        (
            &["main:/a.csv", "select name, count(*) from t group by name", "--groups", "1"],
            "more groups than the 1 of --groups: say a higher number",
        ),
        (
            &["main:/a.csv", "select name, count(*) from t group by name", "--memory", "2"],
            "more than the 2 bytes of --memory: give more",
        ),
        (&["main:/a.csv", "--groups", "0"], "--groups is 0, not 1 to"),
        (&["main:/a.csv", "--longest-record", "0"], "--longest-record is 0, not 1 to"),
        (&["main:/a.csv", &underscores], "leave some `_` out, or say a shorter --longest-record"),
        (&["main:/a.csv", "select * from t limit -1"], "a LIMIT that is no number of records"),
        (&["main:/a.csv", "select * from t order by id limit 9999999"], "LIMIT behind ORDER BY is"),
    ] {
        for place in [&[][..], &["--here"]] {
            let told = cell.nasd(&[&["scan"], arguments, place].concat());
            let said = String::from_utf8_lossy(&told.stderr).into_owned();
            assert!(!told.status.success() && said.contains(word), "{arguments:?}: {said}");
        }
    }
    let told = cell.nasd(&["extend", "main:/below", "checksum"]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("main:/below: is a directory"));
    // A byte order mark belongs to the first line.
    for (options, count) in [(&[][..], "1"), (&["--no-header"], "2")] {
        let query = &["scan", "main:/marked.csv", "select count(*) from t"][..];
        let told = cell.nasd(&[query, options].concat());
        assert_eq!(String::from_utf8_lossy(&told.stdout).lines().next_back(), Some(count));
    }
    // The first lines are not like the others: those are passed over, and that is told.
    let told = cell.nasd(&[
        "scan",
        "main:/a.csv",
        "select count(id) from t",
        "--columns",
        "id:int,name:text",
    ]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("passed over"));
    assert_eq!(String::from_utf8_lossy(&told.stdout), "count(id)\n2\n");
}
