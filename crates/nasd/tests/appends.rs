//! Programs that append numbered lines to the same files of a cell whose files are spread, while drives and the
//! striping manager are killed and come back: real processes, a real mount.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use support::beside::Beside;
use support::workers::{Gone, wait_for_state};
use support::{CellOptions, TestCell, wait_until};

const WRITERS: usize = 4;

/// A line that says whose it is, which one, and that it is whole; of very different lengths, over the ends of units.
fn line(writer: usize, number: usize) -> String {
    let length = [10, 300, 5_000, 70_000][number % 4] + number % 97;
    format!("{writer} {number} {}.\n", "x".repeat(length))
}

/// Appends lines until it is told to end; how many, which it counts meanwhile.
fn append(path: &Path, writer: usize, until: &AtomicBool, count: &AtomicUsize) -> usize {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    let mut number = 0;
    while !until.load(Ordering::Acquire) {
        file.write_all(line(writer, number).as_bytes()).unwrap();
        number += 1;
        count.store(number, Ordering::Release);
        // So some lines go one by one, and some together.
        if number.is_multiple_of(3) {
            file.sync_data().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    file.sync_all().unwrap();
    number
}

/// Each line is there, once, whole, and those of a writer are in their order.
fn check(path: &Path, written: &[usize]) {
    let text = String::from_utf8(std::fs::read(path).unwrap()).unwrap();
    let mut found = [0; WRITERS];
    for (at, told) in text.split_inclusive('\n').enumerate() {
        let writer: usize = told.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let wanted = line(writer, found[writer]);
        let shown = |text: &str| text.chars().take(40).collect::<String>();
        assert!(told == wanted, "line {at} is {:?}, not {:?}", shown(told), shown(&wanted));
        found[writer] += 1;
    }
    assert_eq!(found, written, "lines are lacking");
}

/// Programs append by two mounts while something happens, and all is there afterwards.
fn while_appending(cell: &TestCell, happens: impl FnOnce()) {
    let beside = Beside::mount(cell);
    let until = AtomicBool::new(false);
    let paths = |file: &str| [cell.path(file), beside.at.join(file)];
    let files = ["log-1", "log-2"].map(paths);
    let counts: [[AtomicUsize; WRITERS]; 2] = Default::default();
    let written = std::thread::scope(|scope| {
        let mut counts_of = counts.iter();
        let begun = files.each_ref().map(|paths| {
            let (until, counts) = (&until, counts_of.next().unwrap());
            let begin = move |writer: usize| {
                scope.spawn(move || append(&paths[writer % 2], writer, until, &counts[writer]))
            };
            (0..WRITERS).map(begin).collect::<Vec<_>>()
        });
        let told = catch_unwind(AssertUnwindSafe(|| {
            happens();
            let written = || counts.iter().flatten().all(|it| it.load(Ordering::Acquire) > 10);
            wait_until("each has written", written);
        }));
        until.store(true, Ordering::Release);
        let written = begun
            .map(|begun| begun.into_iter().map(|it| it.join().unwrap()).collect::<Vec<usize>>());
        if let Err(panic) = told {
            resume_unwind(panic);
        }
        written
    });
    for (paths, written) in files.iter().zip(&written) {
        assert!(written.iter().all(|count| *count > 10), "{written:?}");
        paths.iter().for_each(|path| check(path, written));
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(1500));
}

#[test]
fn appends_to_copies_happen_once_whoever_is_killed() {
    let mut cell = TestCell::start(&CellOptions::striped(4, "raid1 --stripe-unit 64K"));
    while_appending(&cell, || {
        for round in 0..3 {
            pause();
            cell.kill("striping serve");
            pause();
            cell.kill(&format!("drive-{}.img", round + 1));
            pause();
        }
        // One that is out for long, and the striping manager dies meanwhile.
        let gone = Gone::new(&cell, 2);
        wait_for_state(&cell, 2, "out");
        pause();
        cell.kill("striping serve");
        pause();
        gone.come_back();
        pause();
    });
    cell.kill_everything();
    cell.restart();
}

#[test]
fn appends_to_files_without_copies_happen_once_whoever_is_killed() {
    let cell = TestCell::start(&CellOptions::striped(3, "raid0 --stripe-unit 64K"));
    while_appending(&cell, || {
        for round in 0..3 {
            pause();
            cell.kill("striping serve");
            pause();
            cell.kill(&format!("drive-{}.img", round + 1));
            cell.kill("striping serve");
        }
        // Whoever appends waits for it.
        let gone = Gone::new(&cell, 2);
        pause();
        std::fs::rename(gone.image("hidden"), gone.image("img")).unwrap();
        pause();
    });
}
