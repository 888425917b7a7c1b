//! What one mount does to names is seen by the other at once, and what is open stays open. No test waits for
//! anything to be noticed.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use support::beside::Beside;
use support::{CellOptions, TestCell, signal, wait_until};

fn options() -> CellOptions {
    CellOptions { drives: 1, size: "512M", cache: "64M", ..CellOptions::default() }
}

fn missing<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Both mounts' paths of a name.
fn both(cell: &TestCell, beside: &Beside, name: &str) -> [PathBuf; 2] {
    [cell.path(name), beside.at.join(name)]
}

/// Looks often enough that the directory is leased, and everything in it known.
fn know(directory: &Path) {
    for number in 0..4 {
        assert!(missing(fs::metadata(directory.join(format!("nothing-{number}")))));
    }
}

#[test]
fn what_one_mount_does_to_names_the_other_sees_at_once() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    fs::create_dir(cell.path("dir")).unwrap();
    let dirs = both(&cell, &beside, "dir");
    for round in 0..60 {
        let (here, there) = (&dirs[round % 2], &dirs[1 - round % 2]);
        let text = format!("round {round}");
        know(here);
        know(there);
        assert!(missing(fs::read(there.join("new"))), "round {round}");
        fs::write(here.join("new"), &text).unwrap();
        assert_eq!(fs::read_to_string(there.join("new")).unwrap(), text);
        // Over a name that is there and known.
        if round > 0 {
            assert_ne!(fs::read_to_string(there.join("kept")).unwrap(), text);
        }
        fs::rename(here.join("new"), here.join("kept")).unwrap();
        assert_eq!(fs::read_to_string(there.join("kept")).unwrap(), text);
        assert!(missing(fs::metadata(there.join("new"))));
        fs::create_dir(here.join("sub")).unwrap();
        fs::write(there.join("sub/file"), &text).unwrap();
        assert_eq!(fs::read_to_string(here.join("sub/file")).unwrap(), text);
        fs::remove_file(there.join("sub/file")).unwrap();
        assert!(missing(fs::metadata(here.join("sub/file"))));
        fs::remove_dir(here.join("sub")).unwrap();
        assert!(missing(fs::metadata(there.join("sub"))));
        fs::hard_link(there.join("kept"), there.join("link")).unwrap();
        assert_eq!(fs::read_to_string(here.join("link")).unwrap(), text);
        fs::remove_file(here.join("link")).unwrap();
        assert!(missing(fs::metadata(there.join("link"))));
    }
    drop(beside);
    cell.stop();
}

#[test]
fn both_mounts_make_names_in_one_directory_and_nobody_waits_for_long() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    fs::create_dir(cell.path("dir")).unwrap();
    let dirs = Arc::new(both(&cell, &beside, "dir"));
    dirs.iter().for_each(|dir| know(dir));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let dirs = Arc::clone(&dirs);
            thread::spawn(move || {
                let (here, there) = (&dirs[worker % 2], &dirs[1 - worker % 2]);
                let mut longest = Duration::ZERO;
                for number in 0..100 {
                    let (name, other) =
                        (format!("{worker}-{number}"), format!("{worker}+{number}"));
                    let begun = Instant::now();
                    let mut file = File::create_new(here.join(&name)).unwrap();
                    file.write_all(name.as_bytes()).unwrap();
                    drop(file);
                    fs::rename(there.join(&name), there.join(&other)).unwrap();
                    assert_eq!(fs::read_to_string(here.join(&other)).unwrap(), name);
                    longest = longest.max(begun.elapsed());
                }
                longest
            })
        })
        .collect();
    for worker in workers {
        let longest = worker.join().unwrap();
        assert!(
            longest < Duration::from_secs(4),
            "{longest:?}, though no lease had to end by itself"
        );
    }
    for dir in &*dirs {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 400);
    }
    drop(beside);
    cell.stop();
}

#[test]
fn a_file_that_the_other_mount_removes_stays_while_it_is_open() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let [here, there] = both(&cell, &beside, "file");
    let files = |path: &Path| {
        let space = rustix::fs::statvfs(path).unwrap();
        space.f_blocks - space.f_bfree
    };
    let room = files(&cell.mountpoint());
    let data = support::noise(7, 3 << 20);
    for by_rename in [false, true] {
        fs::write(&here, &data).unwrap();
        let open = OpenOptions::new().read(true).write(true).open(&there).unwrap();
        let mut head = vec![0; 4096];
        open.read_exact_at(&mut head, 0).unwrap();
        if by_rename {
            fs::write(here.with_extension("new"), "another").unwrap();
            fs::rename(here.with_extension("new"), &here).unwrap();
            assert_eq!(fs::read_to_string(&there).unwrap(), "another");
            fs::remove_file(&here).unwrap();
        } else {
            fs::remove_file(&here).unwrap();
        }
        assert!(missing(fs::metadata(&there)));
        // Through many rounds of what the manager does in the background.
        thread::sleep(Duration::from_secs(2));
        assert_eq!(open.metadata().unwrap().nlink(), 0);
        let mut all = vec![0; data.len()];
        open.read_exact_at(&mut all, 0).unwrap();
        assert!(all == data);
        open.write_all_at(b"more", 1 << 20).unwrap();
        open.sync_all().unwrap();
        open.read_exact_at(&mut head[..4], 1 << 20).unwrap();
        assert_eq!(&head[..4], b"more");
        drop(open);
    }
    wait_until("its room is free", || files(&cell.mountpoint()) <= room + 64);
    drop(beside);
    cell.stop();
}

#[test]
fn a_removed_file_that_is_open_outlives_the_manager() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let [here, there] = both(&cell, &beside, "file");
    fs::write(&here, "data").unwrap();
    let open = File::open(&there).unwrap();
    fs::remove_file(&here).unwrap();
    File::open(cell.mountpoint()).unwrap().sync_all().unwrap();
    for _ in 0..2 {
        signal(cell.member("manager serve"), "KILL");
        // Everything waits for the next one, which knows its clients and does not wait for others.
        let begun = Instant::now();
        fs::write(cell.path("other"), "x").unwrap();
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        assert_eq!(fs::read_to_string(beside.at.join("other")).unwrap(), "x");
        thread::sleep(Duration::from_secs(1));
        let mut text = [0; 4];
        open.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"data");
        assert_eq!(open.metadata().unwrap().nlink(), 0);
    }
    drop((open, beside));
    cell.stop();
}

/// Blocks in use, as the mount tells.
fn room(at: &Path) -> u64 {
    let space = rustix::fs::statvfs(at).unwrap();
    space.f_blocks - space.f_bfree
}

/// Removed, replaced and made without a name, all by the mount that has them open.
fn nameless(cell: &TestCell) -> Vec<File> {
    let (directory, mut options) = (cell.path("d"), File::options());
    options.read(true).write(true);
    fs::create_dir(&directory).unwrap();
    let open = |name: &str| {
        let file = options.clone().create_new(true).open(directory.join(name)).unwrap();
        file.write_all_at(&support::noise(5, 2 << 20), 0).unwrap();
        file
    };
    let files = vec![open("removed"), open("replaced"), {
        let file = options.custom_flags(libc::O_TMPFILE).mode(0o600).open(&directory).unwrap();
        file.write_all_at(&support::noise(5, 2 << 20), 0).unwrap();
        file
    }];
    fs::remove_file(directory.join("removed")).unwrap();
    fs::write(directory.join("other"), "other").unwrap();
    fs::rename(directory.join("other"), directory.join("replaced")).unwrap();
    files
}

fn assert_whole(files: &[File]) {
    let data = support::noise(5, 2 << 20);
    for (number, file) in files.iter().enumerate() {
        let mut found = vec![0; data.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == data, "{number}");
        assert_eq!(file.metadata().unwrap().nlink(), 0, "{number}");
    }
}

#[test]
fn what_has_no_name_where_it_is_open_has_none_elsewhere() {
    let mut cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let before = room(&cell.mountpoint());
    let files = nameless(&cell);
    let there = beside.at.join("d");
    let names = |path: &Path| {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&there), names(&cell.path("d"))),
        (vec!["replaced".into()], vec!["replaced".into()])
    );
    assert_eq!(fs::read_to_string(there.join("replaced")).unwrap(), "other");
    // The other mount finds the directory empty when it has removed that.
    fs::remove_dir_all(&there).unwrap();
    assert_whole(&files);
    for file in &files {
        file.write_all_at(b"more", 3 << 20).unwrap();
        file.sync_all().unwrap();
        file.set_len(2 << 20).unwrap();
    }
    signal(cell.member("manager serve"), "KILL");
    fs::write(cell.path("x"), "x").unwrap();
    thread::sleep(Duration::from_secs(1));
    assert_whole(&files);
    let checked = cell.nasd(&["fsck", "main"]);
    assert!(checked.status.success(), "{}", support::text(&checked));
    fs::remove_file(cell.path("x")).unwrap();
    assert!(room(&cell.mountpoint()) > before + 1000);
    drop(files);
    wait_until("their room is free", || room(&cell.mountpoint()) <= before + 64);
    drop(beside);
    cell.stop();
}

#[test]
fn what_has_no_name_ends_with_the_mount_that_has_it_open() {
    let cell = TestCell::start(&options());
    let beside = Beside::mount(&cell);
    let before = room(&beside.at);
    let files = nameless(&cell);
    files.iter().for_each(|file| file.sync_all().unwrap());
    assert!(room(&beside.at) > before + 1000);
    signal(cell.member("mount"), "KILL");
    drop(files);
    fs::remove_dir_all(beside.at.join("d")).unwrap();
    wait_until("their room is free", || room(&beside.at) <= before + 64);
    assert_eq!(fs::read_dir(&beside.at).unwrap().count(), 0);
}
