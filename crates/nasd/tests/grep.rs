//! `nasd grep` on whole cells: what is found is what grep finds in the same files.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "support/memory.rs"]
mod memory;
mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use memory::output_and_memory;
use support::{CellOptions, TestCell};

/// Lines that cross units and answers, short and long ones, the last without an end.
fn text() -> String {
    let mut text = String::new();
    for number in 0..600_000_u64 {
        let word = ["error", "Warning", "debug", "info", ""][(number * 7919 % 97 % 5) as usize];
        text += &format!("{number} {word} {}\n", "x".repeat((number * 31 % 71) as usize));
        if number % 5000 == 0 {
            text += &format!("a long line {} end\n\n", "y".repeat(100_000));
        }
    }
    text += "the last one, error";
    text
}

fn kinds() -> [CellOptions; 3] {
    [CellOptions::default(), CellOptions::striped(3, "raid0"), CellOptions::striped(3, "raid1")]
}

/// Of the system's grep, in a directory. Letters without a place are bytes.
fn grep(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("grep");
    if !arguments.contains(&"-F") {
        command.arg("-E");
    }
    command.args(arguments).current_dir(directory).env("LC_ALL", "C");
    command.output().unwrap()
}

/// The same of a cell's volume, whose names are shown as grep's.
fn nasd(cell: &TestCell, arguments: &[&str]) -> (Vec<u8>, Option<i32>, String) {
    let Output { status, stdout, stderr } = cell.nasd(&[&["grep"], arguments].concat());
    let said = String::from_utf8_lossy(&stderr).into_owned();
    let text = String::from_utf8(stdout).unwrap().replace("main:/", "");
    (text.into_bytes(), status.code(), said)
}

/// Compares, with files as the last arguments.
fn compare(cell: &TestCell, directory: &Path, options: &[&str], files: &[&str]) {
    let expected = grep(directory, &[options, files].concat());
    let paths: Vec<String> = files.iter().map(|file| format!("main:/{file}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let (found, status, said) = nasd(cell, &[options, &paths].concat());
    let is_same = found == expected.stdout;
    let lengths = (found.len(), expected.stdout.len());
    assert!(is_same, "{options:?} {files:?}: bytes {lengths:?}: {said}");
    assert_eq!(status, expected.status.code(), "{options:?} {files:?}: {said}");
}

#[test]
fn drives_find_what_grep_finds() {
    let text = text();
    for kind in kinds() {
        let cell = TestCell::start(&kind);
        let directory = cell.mountpoint();
        fs::write(cell.path("log"), &text).unwrap();
        for options in [
            &["error"][..],
            &["-c", "error"],
            &["-n", "^5999[0-9]+ (error|debug)"],
            &["-n", "-C", "2", "100 Warning"],
            &["-n", "-B", "3", "-A", "1", "a long line"],
            &["-c", "-v", "x"],
            &["-n", "-v", "-m", "7", "^[0-9]+ (error|debug|info) x*$"],
            &["-o", "-n", "[0-9]{4}1 W[a-z]+"],
            &["-i", "-c", "WARNING"],
            &["-w", "-c", "100"],
            &["-x", "-n", ""],
            &["-F", "-n", "ne, e"],
            &["-l", "debug"],
            &["-L", "debug"],
            &["-q", "debug"],
            &["-c", "no such thing"],
            &["-e", "^7 ", "-e", "^9 "],
            &["-c", "-o", "debug"],
            &["-o", "-m", "3", "7*"],
        ] {
            compare(&cell, &directory, options, &["log"]);
        }
        fs::write(cell.path("other"), "one\nerror\ntwo\n").unwrap();
        for options in [
            &["-c", "-A", "1", "error"][..],
            &["-A", "1", "-m", "1", "error"],
            &["-l", "-C", "1", "two"],
        ] {
            compare(&cell, &directory, options, &["log", "other"]);
        }
        let path = "main:/log";
        // Drives do it, whether lines are wanted or how many there are.
        for options in [&["-c", "error"][..], &["-n", "the last one"], &["-o", "[0-9]+ error"]] {
            let (_, _, said) = nasd(&cell, &[options, &[path, "--stats"]].concat());
            assert!(said.contains(&format!("looked at {} bytes", text.len())), "{said}");
            assert!(said.contains(" 0 were read"), "{said}");
        }
        let (here, _, said) = nasd(&cell, &["-n", "-C", "1", "a long", path, "--stats", "--here"]);
        assert_eq!(here, grep(&directory, &["-n", "-C", "1", "a long", "log"]).stdout);
        assert!(said.contains(&format!(" {} were read", text.len())), "{said}");
    }
}

#[test]
fn trees_are_searched_in_order() {
    let cell = TestCell::start(&CellOptions::striped(2, "raid0"));
    let directory = cell.mountpoint();
    for number in 0..300 {
        let place = cell.path(&format!("tree/{}", number % 7));
        fs::create_dir_all(&place).unwrap();
        let lines = format!("first {number}\nneedle {}\nlast\n", number % 3).repeat(number % 40);
        fs::write(place.join(format!("file {number}")), lines).unwrap();
    }
    fs::write(cell.path("tree/binary"), b"needle 1\0\nneedle 1\n").unwrap();
    let sorted = |bytes: &[u8]| {
        let mut lines: Vec<String> =
            String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for options in [&["-r", "needle 1"][..], &["-r", "-c", "needle 1"], &["-r", "-l", "needle 2"]] {
        let expected = grep(&directory, &[options, &["tree"]].concat());
        let (found, status, said) = nasd(&cell, &[options, &["main:/tree"]].concat());
        // The system's says it in other words, and on the standard error.
        let found: Vec<String> =
            sorted(&found).into_iter().filter(|line| !line.starts_with("Binary")).collect();
        let expected_lines = sorted(&expected.stdout);
        let expected_lines: Vec<String> =
            expected_lines.into_iter().filter(|line| !line.contains("inary file")).collect();
        assert_eq!(found, expected_lines, "{options:?}: {said}");
        assert_eq!(status, Some(0), "{said}");
    }
    let (found, _, _) = nasd(&cell, &["-r", "needle 1", "main:/tree"]);
    let found = String::from_utf8(found).unwrap();
    assert!(found.contains("Binary file tree/binary matches"), "it has a zero byte");
    // What is of a file stays together.
    let mut names: Vec<&str> = found.lines().filter_map(|line| line.split(':').next()).collect();
    names.dedup();
    let mut different = names.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(names.len(), different.len());
}

#[test]
fn what_is_wrong_is_told() {
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("file"), "one\ntwo\n").unwrap();
    fs::create_dir(cell.path("directory")).unwrap();
    for (arguments, status, text) in [
        (&["(", "main:/file"][..], 2, "the pattern: "),
        (&[r"\Aone", "main:/file"], 2, "use ^ and $"),
        (&["one"], 2, "nothing is to be searched"),
        (&["one", "file"], 2, "no path of the cell"),
        (&["one", "main:/missing", "main:/file"], 2, "main:/missing: "),
        (&["one", "main:/directory"], 2, "say -r"),
        (&["three", "main:/file"], 1, ""),
        (&["-C", "20000", "one", "main:/file"], 2, "at most 10000 lines"),
    ] {
        let (_, code, said) = nasd(&cell, arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {said}");
        assert!(said.contains(text), "{arguments:?}: {said}");
    }
    // The others are searched all the same.
    let (found, ..) = nasd(&cell, &["one", "main:/missing", "main:/file"]);
    assert_eq!(found, b"file:one\n");
    let (told, ..) = nasd(&cell, &["--json", "-n", "t", "main:/file"]);
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told[0]["lines"][0]["text"], "two");
    assert_eq!(told[0]["lines"][0]["number"], 2);
}

/// Lines are printed as they come, also for scripts: what is printed may be larger than memory.
#[test]
fn json_is_told_as_it_comes() {
    let cell = TestCell::start(&CellOptions::default());
    let count = 1_500_000;
    let lines: String = (0..count).map(|number| format!("line {number}\n")).collect();
    fs::write(cell.path("long"), &lines).unwrap();
    fs::write(cell.path("none"), "nothing\n").unwrap();
    fs::write(cell.path("short"), b"a line of \xff\nline \"2\"\n").unwrap();
    let files = ["main:/short", "main:/missing", "main:/none", "main:/long", "main:/short"];
    let arguments = [&["grep", "--json", "-n", "line"], &files[..]].concat();
    let (told, kib) = output_and_memory(&cell, &arguments);
    let short = "\
        [\n  {\n    \"lines\": [\n      \
        {\n        \"number\": 1,\n        \"selected\": true,\n        \"text\": \"a line of \u{fffd}\"\n      },\n      \
        {\n        \"number\": 2,\n        \"selected\": true,\n        \"text\": \"line \\\"2\\\"\"\n      }\n    ],\n    \
        \"path\": \"main:/short\"\n  },\n  {\n";
    assert!(told.starts_with(short.as_bytes()));
    assert!(told.ends_with(b"    ],\n    \"path\": \"main:/short\"\n  }\n]\n"));
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    let found = told.as_array().unwrap();
    assert_eq!((found.len(), &found[1]["path"]), (3, &"main:/long".into()));
    let found = found[1]["lines"].as_array().unwrap();
    let last = format!("line {}", count - 1);
    assert_eq!((found.len(), &found[count - 1]["text"]), (count, &last.into()));
    assert!(kib < 300 << 10, "{kib} KiB");
    let (told, status, said) = nasd(&cell, &[&["--json", "-c", "line"], &files[..]].concat());
    assert!(status == Some(2) && said.contains("main:/missing: "), "{said}");
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told[2], serde_json::json!({ "path": "long", "count": count }));
    for (arguments, status) in
        [(["--json", "what", "main:/long"], 1), (["--json", "-qc", "line"], 0)]
    {
        let (told, found, _) = nasd(&cell, &[&arguments[..], &["main:/short"]].concat());
        assert_eq!((&told[..], found), (&b"[]\n"[..], Some(status)));
    }
}

/// A line in which finding each match takes long is left to the client, and nothing of the others is lost.
#[test]
fn lines_that_drives_leave_are_searched_here() {
    for options in [CellOptions::default(), CellOptions::striped(3, "raid0")] {
        let cell = TestCell::start(&options);
        // Of small files drives are not asked.
        let (others, long) = ("others\n".repeat(100_000), "a".repeat(40_000));
        fs::write(cell.path("long"), format!("{others}first a\n{long}\nlast a\n")).unwrap();
        let (found, status, said) = nasd(&cell, &["-o", "--stats", "a.*x|a", "main:/long"]);
        // It is told as it is: its matches would take more.
        let told = said.split(" and told ").nth(1).and_then(|rest| rest.split(',').next());
        let told: usize = told.and_then(|bytes| bytes.parse().ok()).expect("what drives told");
        assert!((long.len()..2 * long.len()).contains(&told), "{said}");
        assert_eq!(status, Some(0), "{said}");
        // Of the last line there are two.
        assert!(found == "a\n".repeat(1 + 40_000 + 2).into_bytes(), "{} bytes", found.len());
    }
}
