//! Hints: what was told is there when it is read, is right whatever happens meanwhile, and costs bounded memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nasd_types::ByteRange;

use super::{cell, eventually, new_file, pattern, root, settings};
use crate::{Clerk, ClerkError, FileHandle, OpenFile, OpenMode};

const PIECE: u64 = 1000;

fn file_of(clerk: &Clerk, name: &str, length: usize) -> FileHandle {
    let (file, handle) = new_file(clerk, name);
    file.write(0, &pattern(0, length)).unwrap();
    file.sync().unwrap();
    handle
}

fn open(clerk: &Clerk, handle: FileHandle, mode: OpenMode) -> OpenFile {
    clerk.open(&root(), handle, mode).unwrap().0
}

/// Every so manieth piece of a file, backwards.
fn pieces(count: u64, stride: u64) -> Vec<ByteRange> {
    (0..count).rev().map(|number| ByteRange::new(number * stride, PIECE)).collect()
}

#[test]
fn what_was_told_is_fetched_by_few_requests_and_read_without_any() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let handle = file_of(&clerk, "file", 1 << 20);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    let reads = &cell.drive(0).counters.reads;
    let ranges = pieces(100, 10_000);
    let hints = clerk.hints(&root()).unwrap();
    hints.add(&file, &ranges).unwrap();
    assert_eq!(hints.left(), 100);
    // The fake reads pieces one by one.
    eventually("it is fetched", || reads.load(Ordering::Relaxed) >= 100);
    let before = reads.load(Ordering::Relaxed);
    let mut into = vec![0; PIECE as usize];
    for range in &ranges {
        assert_eq!(file.read(range.offset, &mut into).unwrap(), into.len());
        assert!(into == pattern(range.offset, into.len()));
    }
    assert_eq!(reads.load(Ordering::Relaxed), before, "all of it had been fetched");
    assert_eq!(hints.left(), 0);
    // Each was for one read.
    file.read(0, &mut into).unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), before + 1);
}

#[test]
fn a_write_comes_before_what_was_fetched() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let handle = file_of(&clerk, "file", 100_000);
    let (file, _) = clerk.open(&root(), handle, OpenMode::READ_WRITE).unwrap();
    let reads = &cell.drive(0).counters.reads;
    let before = reads.load(Ordering::Relaxed);
    let hints = clerk.hints(&root()).unwrap();
    hints.add(&file, &pieces(3, 20_000)).unwrap();
    eventually("it is fetched", || reads.load(Ordering::Relaxed) >= before + 3);
    file.write(20_500, b"new").unwrap();
    let mut into = vec![0; PIECE as usize];
    for range in pieces(3, 20_000) {
        let mut expected = pattern(range.offset, into.len());
        if range.offset == 20_000 {
            expected[500..503].copy_from_slice(b"new");
        }
        file.read(range.offset, &mut into).unwrap();
        assert!(into == expected, "{range:?}");
    }
}

#[test]
fn an_open_sees_what_others_have_written_since_it_was_fetched() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let other = cell.clerk(settings());
    let handle = file_of(&clerk, "file", 50_000);
    let reads = &cell.drive(0).counters.reads;
    let hints = clerk.hints(&root()).unwrap();
    let mut into = vec![0; PIECE as usize];
    for round in 0..5_u8 {
        let before = reads.load(Ordering::Relaxed);
        hints.add_path(clerk.root(), b"file", Some(ByteRange::new(0, PIECE))).unwrap();
        eventually("it is fetched", || reads.load(Ordering::Relaxed) > before);
        if round % 2 == 1 {
            let theirs = open(&other, handle, OpenMode::WRITE);
            theirs.write(10, &[round; 5]).unwrap();
            theirs.sync().unwrap();
            theirs.close().unwrap();
        }
        let before = reads.load(Ordering::Relaxed);
        let file = open(&clerk, handle, OpenMode::READ);
        file.read(0, &mut into).unwrap();
        let written = if round % 2 == 1 { round } else { round.wrapping_sub(1) };
        let expected = if round == 0 { pattern(10, 5) } else { vec![written; 5] };
        assert_eq!(into[10..15], expected, "round {round}");
        if round % 2 == 0 {
            let asked = reads.load(Ordering::Relaxed) - before;
            assert_eq!(asked, 0, "round {round}: what is as it was is not fetched again");
        }
    }
}

#[test]
fn what_is_wrong_is_left_out_and_costs_little() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let handle = file_of(&clerk, "file", 8 << 20);
    let bytes = &cell.drive(0).counters.read_bytes;
    let before = bytes.load(Ordering::Relaxed);
    let hints = clerk.hints(&root()).unwrap();
    for path in [&b"missing"[..], b"", b".", b"file/below", b"\0", &[b'x'; 300]] {
        hints.add_path(clerk.root(), path, None).unwrap();
    }
    let file = open(&clerk, handle, OpenMode::READ);
    hints.add(&file, &[ByteRange::new(0, 8 << 20), ByteRange::new(1 << 40, 100)]).unwrap();
    eventually("it is fetched", || bytes.load(Ordering::Relaxed) > before);
    // Something else is read instead.
    let (other, _) = new_file(&clerk, "other");
    other.write(0, &pattern(7, 100)).unwrap();
    let mut into = vec![0; 100];
    other.read(0, &mut into).unwrap();
    assert!(into == pattern(7, 100));
    // No more than the first window, and one request beyond it.
    let fetched = bytes.load(Ordering::Relaxed) - before;
    assert!(fetched <= 3 << 20, "{fetched}");
    let writer = open(&clerk, handle, OpenMode::WRITE);
    let refused = hints.add(&writer, &[ByteRange::new(0, 1)]);
    assert_eq!(refused, Err(ClerkError::NotOpenForThis));
    drop(hints);
    drop(file);
    eventually("the thread of the stream ends", || Arc::strong_count(&clerk) == 1);
}

#[test]
fn no_more_hints_are_taken_than_can_be_kept() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    // Nothing is found while the manager is away, and so nothing is over.
    cell.set_manager_runs(false);
    let hints = clerk.hints(&root()).unwrap();
    let refused = (0..1 << 20).find_map(|_| hints.add_path(clerk.root(), b"file", None).err());
    assert_eq!(refused, Some(ClerkError::TooManyHints));
    drop(hints);
    cell.set_manager_runs(true);
}

#[test]
fn programs_that_share_the_work_need_not_read_in_order() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let names: Vec<String> = (0..200).map(|number| format!("file-{number}")).collect();
    let handles: Vec<_> = names.iter().map(|name| file_of(&clerk, name, 3000)).collect();
    let reads = &cell.drive(0).counters.reads;
    let before = reads.load(Ordering::Relaxed);
    let hints = clerk.hints(&root()).unwrap();
    for name in &names {
        hints.add_path(clerk.root(), name.as_bytes(), None).unwrap();
    }
    eventually("it is fetched", || reads.load(Ordering::Relaxed) >= before + 200);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (clerk, handles) = (&clerk, &handles);
            scope.spawn(move || {
                for handle in handles.iter().skip(worker).step_by(4) {
                    let file = open(clerk, *handle, OpenMode::READ);
                    let mut into = vec![0; 4000];
                    assert_eq!(file.read(0, &mut into).unwrap(), 3000);
                    assert!(into[..3000] == pattern(0, 3000));
                }
            });
        }
    });
    assert_eq!(hints.left(), 0);
}
