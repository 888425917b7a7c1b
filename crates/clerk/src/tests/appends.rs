//! Appending: behind everything, in one piece, once, and few requests for many lines.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use super::{cell, eventually, name, new_file, open, read_all, root, settings};
use crate::{Entry, OpenMode, SetFileAttributes, Settings, Status};

fn appends(cell: &crate::fake::FakeCell) -> u64 {
    cell.drive(0).counters.appends.load(Ordering::Relaxed)
}

#[test]
fn many_small_appends_leave_as_few_large_ones() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let (file, handle) = new_file(&clerk, "log");
    let mut expected = Vec::new();
    for number in 0..20_000 {
        let line = format!("line {number} of the log\n");
        file.append(line.as_bytes()).unwrap();
        expected.extend_from_slice(line.as_bytes());
    }
    file.sync().unwrap();
    assert!(cell.drive(0).durable_bytes(handle.object).unwrap() == expected);
    assert!(appends(&cell) <= 4, "{} requests", appends(&cell));
    assert_eq!(cell.drive(0).counters.writes.load(Ordering::Relaxed), 0);
}

#[test]
fn everything_else_comes_behind_what_was_appended() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let (file, handle) = new_file(&clerk, "order");
    file.write(0, b"written ").unwrap();
    file.append(b"appended ").unwrap();
    // By a second opening of the same clerk, too.
    let (other, attributes) = clerk.open(&root(), handle, OpenMode::READ_WRITE).unwrap();
    assert_eq!(attributes.size, 17);
    other.append(b"again ").unwrap();
    let mut into = [0; 100];
    assert_eq!(file.read(0, &mut into).unwrap(), 23);
    assert_eq!(&into[..23], b"written appended again ");
    file.append(b"last").unwrap();
    assert_eq!(clerk.getattr_now(&root(), handle).unwrap().size, 27);
    // A write that nobody has sent is in front of what is appended after it.
    file.write(27, b" + ").unwrap();
    file.append(b"end").unwrap();
    assert_eq!(read_all(&other, 100), b"written appended again last + end");
    file.append(b"gone").unwrap();
    let cut = SetFileAttributes { size: Some(7), ..SetFileAttributes::default() };
    assert_eq!(clerk.setattr(&root(), handle, &cut).unwrap().size, 7);
    file.append(b"!").unwrap();
    file.write(0, b"W").unwrap();
    file.sync().unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"Written!");
}

#[test]
fn attributes_told_on_the_way_have_what_was_appended() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let (file, handle) = new_file(&clerk, "told");
    file.append(b"four").unwrap();
    let found = clerk.lookup(&root(), clerk.root(), &name("told")).unwrap();
    assert_eq!(found.attributes.size, 4);
    file.append(b"more").unwrap();
    let mode = SetFileAttributes { mode: Some(0o600), ..SetFileAttributes::default() };
    assert_eq!(clerk.setattr(&root(), handle, &mode).unwrap().size, 8);
}

#[test]
fn an_append_whose_answer_was_lost_with_the_drive_is_made_once() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "once");
    file.append(b"first ").unwrap();
    file.sync().unwrap();
    cell.drive(0).lose_answers(3);
    file.append(b"second ").unwrap();
    // Nobody waits for the answers that are lost; the background asks again.
    for _ in 0..3 {
        let _ = file.sync();
        file.append(b"third ").unwrap();
    }
    eventually("everything is durable", || file.sync().is_ok());
    let all = b"first second third third third ";
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), all);
}

#[test]
fn two_clerks_append_whole_lines_and_lose_none() {
    let cell = cell(1);
    let first = cell.clerk(settings());
    let (_, handle) = new_file(&first, "shared");
    thread::scope(|scope| {
        for writer in 0..3 {
            let cell = &cell;
            scope.spawn(move || {
                let clerk = cell.clerk(settings());
                let asked = Instant::now();
                let entry = Entry::now(handle, first_attributes(&clerk, handle), asked);
                let file = open(&clerk, &root(), entry);
                for number in 0..500 {
                    file.append(format!("{writer} {number}\n").as_bytes()).unwrap();
                    if number % 97 == writer {
                        file.sync().unwrap();
                    }
                }
                file.close().unwrap();
            });
        }
    });
    let bytes = cell.drive(0).durable_bytes(handle.object).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    for writer in 0..3 {
        let start = format!("{writer} ");
        let own: Vec<&str> = text.lines().filter(|line| line.starts_with(&start)).collect();
        let expected: Vec<String> = (0..500).map(|number| format!("{writer} {number}")).collect();
        assert_eq!(own, expected);
    }
    assert_eq!(text.lines().count(), 1500);
}

fn first_attributes(clerk: &crate::Clerk, handle: crate::FileHandle) -> crate::FileAttributes {
    clerk.getattr_now(&root(), handle).unwrap()
}

#[test]
fn a_failure_is_told_and_later_appends_at_once() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "failing");
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    file.append(b"lost").unwrap();
    let error = file.sync().unwrap_err();
    assert_eq!(error.errno(), libc::ENOSPC);
    file.sync().unwrap();
    let error = file.append(b"refused").unwrap_err();
    assert_eq!(error.errno(), libc::ENOSPC);
    cell.drive(0).fail_writes(None);
    file.append(b"kept").unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"kept");
    file.close().unwrap();
}

#[test]
fn an_idle_file_becomes_durable_and_a_removed_one_is_forgotten() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "idle");
    file.append(b"draft").unwrap();
    eventually("a flush in the background", || {
        cell.drive(0).durable_bytes(handle.object).unwrap() == b"draft"
    });
    let before = appends(&cell);
    file.append(b"never").unwrap();
    file.discard();
    file.sync().unwrap();
    assert_eq!(appends(&cell), before);
}
