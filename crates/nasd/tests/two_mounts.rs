//! Two real mounts of one volume, used at the same time without any waiting in between.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use support::beside::Beside;
use support::{CellOptions, TestCell, shell, wait_for_exit};

fn options() -> CellOptions {
    CellOptions { drives: 1, size: "512M", cache: "64M", ..CellOptions::default() }
}

/// A process that appends lines `WRITER NUMBER` and more to a file, one write(2) each.
fn appender(path: &Path, writer: &str, lines: u32) -> Child {
    let script = r#"
        n=0
        pad=$(printf '%060d' 0)
        while [ $n -lt "$3" ]; do
            echo "$2 $n $pad"
            n=$((n + 1))
        done >>"$1"
    "#;
    let mut command = Command::new("sh");
    command.arg("-ec").arg(script).arg("sh").arg(path).arg(writer).arg(lines.to_string());
    command.stdin(Stdio::null()).spawn().unwrap()
}

/// How many lines each writer has, which must all be whole and in their order.
fn check_lines(path: &Path, expected: &BTreeMap<String, u32>) {
    let text = fs::read_to_string(path).unwrap();
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 3, "not a whole line: {line:?}");
        let count = next.entry(words[0].to_owned()).or_default();
        assert_eq!(words[1], count.to_string(), "of writer {}", words[0]);
        assert!(words[2].len() >= 60 && words[2].bytes().all(|byte| byte == b'0'), "{line:?}");
        *count += 1;
    }
    assert!(text.ends_with('\n'));
    assert_eq!(next, *expected);
}

/// Runs processes on both mounts that append to one file, while `meanwhile` happens.
fn append_from_both(cell: &TestCell, beside: &Beside, lines: u32, meanwhile: impl FnOnce()) {
    append_by(&[cell.path("log"), beside.at.join("log")], lines, meanwhile);
}

/// The same by these paths of it.
fn append_by(paths: &[PathBuf], lines: u32, meanwhile: impl FnOnce()) {
    fs::write(&paths[0], "").unwrap();
    let mut expected = BTreeMap::new();
    let mut processes = Vec::new();
    for number in 0..6 {
        let writer = format!("w{number}");
        processes.push(appender(&paths[number % paths.len()], &writer, lines));
        expected.insert(writer, lines);
    }
    // And one that makes each line durable.
    let synced = thread::spawn({
        let path = paths[1].clone();
        move || {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            for number in 0..200 {
                file.write_all(format!("synced {number} {:0>60}\n", 0).as_bytes()).unwrap();
                file.sync_data().unwrap();
            }
        }
    });
    expected.insert("synced".to_owned(), 200);
    meanwhile();
    for process in &mut processes {
        assert!(wait_for_exit(process).success());
    }
    synced.join().unwrap();
    for path in paths {
        check_lines(path, &expected);
    }
}

#[test]
fn appends_from_two_mounts_keep_every_line() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    append_from_both(&cell, &beside, 4000, || ());
    // Each line by an opening of its own.
    shell(
        r#"for n in $(seq 0 99); do echo "a $n x" >>"$1/each"; echo "b $n x" >>"$2/each"; done"#,
        &[&cell.mountpoint(), &beside.at],
    );
    let text = fs::read_to_string(cell.path("each")).unwrap();
    let expected: String = (0..100).map(|n| format!("a {n} x\nb {n} x\n")).collect();
    assert_eq!(text, expected);
    drop(beside);
    cell.stop();
}

#[test]
fn appends_are_kept_while_the_drive_is_killed_again_and_again() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    append_from_both(&cell, &beside, 20_000, || {
        for _ in 0..4 {
            kill_member(&cell, "drive serve");
        }
    });
    drop(beside);
    cell.stop();
}

/// Kills one of the cell's processes in a moment, and waits for the next one in its place.
fn kill_member(cell: &TestCell, which: &str) {
    thread::sleep(std::time::Duration::from_millis(300));
    cell.kill_and_await(which);
}

#[test]
fn appends_through_the_manager_and_straight_keep_every_line() {
    let mut cell = TestCell::start(&options());
    let far = ["one", "two"].map(|name| Beside::mount_as(&cell, name, &["-o", "path=manager"]));
    let paths = [cell.path("log"), far[0].at.join("log"), far[1].at.join("log")];
    append_by(&paths, 8000, || {
        for which in ["drive serve", "manager", "drive serve", "manager"] {
            kill_member(&cell, which);
        }
    });
    drop(far);
    cell.stop();
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_was_appended_is_there_at_once_for_everybody_on_the_mount() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let (path, there) = (cell.path("seen"), beside.at.join("seen"));
    fs::write(&path, "head ").unwrap();
    // Through the page cache, with a page that ends in the middle.
    let mut cached = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert_eq!(contents(&mut cached), b"head ");
    let mut appending = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    let mut expected = b"head ".to_vec();
    for number in 0..200 {
        let line = format!("{number} {}\n", "x".repeat(number * 7));
        appending.write_all(line.as_bytes()).unwrap();
        expected.extend_from_slice(line.as_bytes());
        assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
        assert!(contents(&mut cached) == expected, "after line {number}");
        assert!(contents(&mut appending) == expected, "after line {number}");
    }
    // The other mount has appended since, of which this one's kernel knows nothing.
    OpenOptions::new().append(true).open(&there).unwrap().write_all(b"other ").unwrap();
    appending.write_all(b"own ").unwrap();
    expected.extend_from_slice(b"other own ");
    assert!(contents(&mut cached) == expected);
    // A write with its place goes there, whatever was appended.
    cached.write_all_at(b"HEAD", 0).unwrap();
    appending.write_all(b"end").unwrap();
    expected[..4].copy_from_slice(b"HEAD");
    expected.extend_from_slice(b"end");
    assert!(contents(&mut appending) == expected);
    appending.sync_all().unwrap();
    cached.sync_all().unwrap();
    assert!(fs::read(&there).unwrap() == expected);
    drop(beside);
    cell.stop();
}

#[test]
fn an_opening_that_is_made_to_append_afterwards_appends() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let (path, there) = (cell.path("later"), beside.at.join("later"));
    fs::write(&path, "one ").unwrap();
    let mut file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert_eq!(contents(&mut file), b"one ");
    OpenOptions::new().append(true).open(&there).unwrap().write_all(b"two ").unwrap();
    // SAFETY: the descriptor is open, and the call takes no pointer.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
    assert_eq!(set, 0);
    file.write_all(b"three ").unwrap();
    assert_eq!(contents(&mut file), b"one two three ");
    file.sync_all().unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"one two three ");
    drop(file);
    drop(beside);
    cell.stop();
}

#[test]
fn new_names_and_truncates_are_seen_at_the_next_open() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let here = |name: &str| cell.path(name);
    let there = |name: &str| beside.at.join(name);
    for round in 0..20 {
        let (made, moved) = (format!("made-{round}"), format!("moved-{round}"));
        let text = format!("round {round} {}", "x".repeat(round * 300));
        fs::write(here(&made), &text).unwrap();
        assert_eq!(fs::read_to_string(there(&made)).unwrap(), text);
        fs::rename(here(&made), here(&moved)).unwrap();
        assert_eq!(fs::read_to_string(there(&moved)).unwrap(), text, "round {round}");
        let file = OpenOptions::new().write(true).open(there(&moved)).unwrap();
        file.set_len(5).unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(here(&moved)).unwrap(), "round");
        let file = OpenOptions::new().write(true).open(here(&moved)).unwrap();
        file.set_len(9).unwrap();
        drop(file);
        assert_eq!(fs::read(there(&moved)).unwrap(), b"round\0\0\0\0");
    }
    drop(beside);
    cell.stop();
}

/// A process that adds rows to a database, one transaction each.
fn writer(database: &Path, number: u32, rows: u32) -> Child {
    let script = r#"
import sqlite3, sys
path, number, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
base = sqlite3.connect(path, timeout=100, isolation_level=None)
for row in range(rows):
    base.execute("begin immediate")
    seen = base.execute("select count(*) from rows where writer = ?", (number,)).fetchone()[0]
    assert seen == row, (seen, row)
    base.execute("insert into rows values (?, ?, ?)", (number, row, "x" * (row * 37 % 3000)))
    base.execute("update total set rows = rows + 1")
    base.execute("commit")
"#;
    let mut command = Command::new("python3");
    command.arg("-c").arg(script).arg(database).arg(number.to_string()).arg(rows.to_string());
    command.stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_sqlite_database_that_two_mounts_write_to_stays_whole() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let databases: [PathBuf; 2] = [cell.path("base"), beside.at.join("base")];
    let ask = |database: &Path, question: &str| {
        let output = Command::new("python3")
            .args(["-c", "import sqlite3, sys; print(sqlite3.connect(sys.argv[1], timeout=100, isolation_level=None).execute(sys.argv[2]).fetchall())"])
            .arg(database)
            .arg(question)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", support::text(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    ask(&databases[0], "create table rows (writer, number, text)");
    ask(&databases[0], "create table total (rows)");
    ask(&databases[0], "insert into total values (0)");
    let mut writers: Vec<Child> =
        (0..4).map(|number| writer(&databases[number as usize % 2], number, 60)).collect();
    for writer in &mut writers {
        assert!(wait_for_exit(writer).success());
    }
    for database in &databases {
        assert_eq!(ask(database, "pragma integrity_check"), "[('ok',)]");
        assert_eq!(ask(database, "select rows from total"), "[(240,)]");
        assert_eq!(ask(database, "select count(*) from rows"), "[(240,)]");
    }
    drop(beside);
    cell.stop();
}

/// Writes and syncs.
fn put(path: &Path, bytes: &[u8], offset: u64) -> File {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    file.sync_all().unwrap();
    file
}

/// A byte, as an open shows it that is made now.
fn byte(path: &Path, offset: u64) -> u8 {
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, offset).unwrap();
    byte[0]
}

#[test]
fn what_was_written_by_who_sets_the_time_back_is_seen_at_the_next_open() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let (here, there) = (cell.path("file"), beside.at.join("file"));
    fs::write(&there, [b'0'; 65536]).unwrap();
    for round in b'1'..b'6' {
        let time = fs::metadata(&there).unwrap().modified().unwrap();
        assert_eq!(byte(&here, 10), round - 1);
        let file = put(&there, &[round; 65536], 0);
        file.set_modified(time).unwrap();
        drop(file);
        assert_eq!(byte(&here, 10), round);
        assert_eq!(fs::metadata(&here).unwrap().modified().unwrap(), time);
    }
    drop(beside);
    cell.stop();
}

/// Somebody writes over what another one wrote who has not made it durable, writes more, and opens it anew.
fn write_over_what_is_not_durable(options: &CellOptions) {
    let mut cell = TestCell::start(options);
    let beside = Beside::mount(&cell);
    for (round, sets_time_back) in [(0, false), (1, true)] {
        let (here, there) = (cell.path(&format!("{round}")), beside.at.join(format!("{round}")));
        let own = File::create(&here).unwrap();
        own.write_all_at(&[b'a'; 4 << 20], 0).unwrap();
        let time = own.metadata().unwrap().modified().unwrap();
        for (written, at) in [(b'b', 0), (b'c', 3 << 20), (b'd', 0)] {
            let other = put(&there, &[written; 4096], at);
            if sets_time_back {
                other.set_modified(time).unwrap();
            }
            drop(other);
            own.write_all_at(&[b'e'; 100], 5 << 20).unwrap();
            own.metadata().unwrap();
            assert_eq!(byte(&here, at + 10) as char, written as char);
        }
        assert_eq!(byte(&here, 1 << 20), b'a');
        own.sync_all().unwrap();
        drop(own);
        for path in [&here, &there] {
            let bytes = [0, 1 << 20, 3 << 20, 5 << 20].map(|at| byte(path, at));
            assert_eq!(bytes, *b"dace");
        }
    }
    drop(beside);
    cell.stop();
}

#[test]
fn what_others_write_over_bytes_that_are_not_durable_is_seen_at_the_next_open() {
    write_over_what_is_not_durable(&options());
}

#[test]
fn so_it_is_in_files_on_several_drives() {
    write_over_what_is_not_durable(&CellOptions::striped(2, "raid0 --stripe-unit 64K"));
}

#[test]
fn what_was_written_to_drives_whose_clocks_are_behind_is_seen_at_the_next_open() {
    const UNIT: u64 = 64 << 10;
    let mut cell = TestCell::start(&CellOptions {
        size: "512M",
        ..CellOptions::striped(2, "raid0 --stripe-unit 64K")
    });
    let beside = Beside::mount(&cell);
    let (here, there) = (cell.path("file"), beside.at.join("file"));
    fs::write(&there, [b'0'; 2 * UNIT as usize]).unwrap();
    File::open(&there).unwrap().sync_all().unwrap();
    // Its clock goes on at a mark, which is ahead, and is as the other one only when minutes have passed.
    cell.kill_and_await("drive-1");
    for unit in [0, 1] {
        for round in b'a'..b'd' {
            // The other drive is written to as well, so that it may have the later time.
            for (at, written) in [(1 - unit, round - 32), (unit, round)] {
                drop(put(&there, &[written; 4096], at * UNIT));
                assert_eq!(byte(&here, at * UNIT) as char, written as char, "unit {at}");
            }
        }
    }
    drop(beside);
    cell.stop();
}
