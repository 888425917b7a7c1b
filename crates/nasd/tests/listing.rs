//! Listings whose files are looked at: all there is to know comes with the names, and is as true as if each file had
//! been asked for.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;

use support::beside::Beside;
use support::{CellOptions, TestCell, wait_until};

fn roomy() -> CellOptions {
    CellOptions { cache: "64M", ..CellOptions::default() }
}

/// Mode, links, length and time of each name, as one who lists and looks is told.
fn look(directory: &Path) -> BTreeMap<String, (u32, u64, u64, i64)> {
    let told = fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let found = fs::symlink_metadata(entry.path()).unwrap();
        let told = (found.mode(), found.nlink(), found.len(), found.mtime_nsec());
        (entry.file_name().into_string().unwrap(), told)
    });
    told.collect()
}

/// How many requests of a kind a mount has had, as it tells at this socket.
fn count(socket: &Path, operation: &str) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let name = format!("nasd_mount_request_seconds_count{{operation=\"{operation}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |count| count.parse().unwrap())
}

/// A directory with files of all kinds.
fn make_files(directory: &Path, count: usize) {
    fs::create_dir(directory).unwrap();
    for number in 0..count {
        let path = directory.join(format!("file-{number:04}"));
        fs::write(&path, vec![b'x'; number]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + number as u32 % 8)).unwrap();
    }
    for number in 0..10 {
        fs::create_dir(directory.join(format!("dir-{number}"))).unwrap();
        symlink("x".repeat(number + 1), directory.join(format!("link-{number}"))).unwrap();
        let file = directory.join(format!("file-{number:04}"));
        fs::hard_link(file, directory.join(format!("name-{number}"))).unwrap();
    }
}

#[test]
fn who_looks_at_what_he_lists_is_told_at_once() {
    let mut cell = TestCell::start(&roomy());
    make_files(&cell.path("d"), 700);
    let expected = look(&cell.path("d"));
    assert_eq!(expected.len(), 730);
    assert_eq!(expected["file-0003"].0 & 0o7777, 0o603);
    assert_eq!((expected["file-0003"].1, expected["file-0300"].1), (2, 1));
    let socket = cell.directory.path().join("metrics");
    let options = format!("metrics={}", socket.display());
    let beside = Beside::mount_as(&cell, "beside", &["-o", &options]);
    wait_until("the metrics", || socket.exists());
    for _ in 0..4 {
        assert_eq!(look(&beside.at.join("d")), expected);
    }
    // Of the first names and of directories names alone are told; and who is slow has to ask for names again.
    let lookups = count(&socket, "lookup");
    assert!(lookups < 1400, "{lookups} for 2920 looks");
    assert!(count(&socket, "readdirplus") >= 8);
    // Who does not look is not told, and so the kernel does not ask for it.
    let before = count(&socket, "readdirplus");
    for _ in 0..3 {
        assert_eq!(fs::read_dir(beside.at.join("d")).unwrap().count(), 730);
    }
    assert!(count(&socket, "readdirplus") - before <= 6);
    drop(beside);
    cell.stop();
}

#[test]
fn what_was_listed_is_seen_to_change() {
    let mut cell = TestCell::start(&roomy());
    make_files(&cell.path("d"), 100);
    let beside = Beside::mount(&cell);
    let (here, there) = (cell.path("d"), beside.at.join("d"));
    for round in 0..20 {
        let before = look(&there);
        assert_eq!(before, look(&there));
        // Names are seen at once.
        let (old, new) = (format!("file-{:04}", 20 + round), format!("new-{round}"));
        fs::rename(here.join(&old), here.join(&new)).unwrap();
        let missing = fs::symlink_metadata(there.join(&old)).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert_eq!(fs::symlink_metadata(there.join(&new)).unwrap().len(), 20 + round);
        // And what is in a file by whoever opens it.
        fs::write(here.join(&new), format!("round {round}")).unwrap();
        let mut text = String::new();
        let mut file = File::open(there.join(&new)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, format!("round {round}"));
        assert_eq!(file.metadata().unwrap().len(), text.len() as u64);
        assert_eq!(look(&there)[&new].2, text.len() as u64);
    }
    // Attributes after a moment, at the latest.
    look(&there);
    fs::set_permissions(here.join("file-0050"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(here.join("file-0051"), "longer than it was before, by far: so many bytes").unwrap();
    wait_until("what changed", || {
        let now = look(&there);
        now["file-0050"].0 & 0o7777 == 0o444 && now["file-0051"].2 == 48
    });
    drop(beside);
    cell.stop();
}

#[test]
fn own_writes_are_in_what_is_listed() {
    let mut cell = TestCell::start(&roomy());
    make_files(&cell.path("d"), 50);
    let directory = cell.path("d");
    for round in 0..30_u64 {
        look(&directory);
        let open = File::options().append(true).open(directory.join("file-0001")).unwrap();
        (&open).write_all(b"+").unwrap();
        assert_eq!(look(&directory)["file-0001"].2, 2 + round, "while it is open");
        drop(open);
        assert_eq!(look(&directory)["file-0001"].2, 2 + round, "when it is closed");
        fs::write(directory.join("file-0002"), vec![b'y'; round as usize]).unwrap();
        assert_eq!(look(&directory)["file-0002"].2, round);
        let link = directory.join("one-more");
        fs::hard_link(directory.join("file-0030"), &link).unwrap();
        assert_eq!(look(&directory)["file-0030"].1, 2);
        fs::remove_file(&link).unwrap();
        assert_eq!(look(&directory)["file-0030"].1, 1);
    }
    cell.stop();
}
