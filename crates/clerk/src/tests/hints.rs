//! Hints: what was told is there when it is read, is right whatever happens meanwhile, and costs bounded memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nasd_prefetch::notice::{self, Notice};
use nasd_types::{ByteRange, DriveId};

use super::{cell, eventually, new_file, pattern, root, settings, user};
use crate::fake::FakeCell;
use crate::hinted;
use crate::wire::{ExtensionOutcome, SetFileAttributes, Status};
use crate::{Clerk, ClerkError, ExtendedPart, FileHandle, Hints, OpenFile, OpenMode, Settings};

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
fn the_end_of_a_stream_takes_nothing_from_who_has_hinted_the_same_after_a_write() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let handle = file_of(&clerk, "file", 50_000);
    let file = open(&clerk, handle, OpenMode::READ_WRITE);
    let reads = &cell.drive(0).counters.reads;
    let range = ByteRange::new(0, PIECE);
    let fetched = || {
        let before = reads.load(Ordering::Relaxed);
        let hints = clerk.hints(&root()).unwrap();
        hints.add(&file, &[range]).unwrap();
        eventually("it is fetched", || reads.load(Ordering::Relaxed) > before);
        hints
    };
    let first = fetched();
    file.write(500, b"new").unwrap();
    file.sync().unwrap();
    let _second = fetched();
    drop(first);
    let before = reads.load(Ordering::Relaxed);
    let mut into = vec![0; PIECE as usize];
    file.read(0, &mut into).unwrap();
    assert_eq!(&into[500..503], b"new");
    assert_eq!(reads.load(Ordering::Relaxed), before, "it had been fetched");
}

#[test]
fn an_open_sees_what_others_have_written_since_it_was_fetched() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let other = cell.clerk(settings());
    // All of it is hinted: nothing is read ahead, which would be counted as well.
    let handle = file_of(&clerk, "file", PIECE as usize);
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

#[test]
fn streams_are_limited_for_a_user_and_for_all() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let mut streams: Vec<_> = (0..16).map(|_| clerk.hints(&user(1)).unwrap()).collect();
    assert_eq!(clerk.hints(&user(1)).err(), Some(ClerkError::TooManyOwnStreams));
    streams.extend((0..16).map(|_| clerk.hints(&user(2)).unwrap()));
    assert_eq!(clerk.hints(&user(3)).err(), Some(ClerkError::TooManyStreams));
    streams.clear();
    eventually("what has ended makes room", || clerk.hints(&user(3)).is_ok());
}

#[test]
fn all_streams_together_hold_no_more_than_one_budget() {
    const BUDGET: u64 = 2 << 20;
    let cell = cell(1);
    let memory = Settings { read_ahead_bytes: 2 * BUDGET as usize, ..settings() };
    let clerk = Arc::new(cell.clerk(memory));
    let handle = file_of(&clerk, "large", 4 << 20);
    let file = open(&clerk, handle, OpenMode::READ);
    // Who has told first reads much, and nothing then: the rest stays.
    let first = clerk.hints(&root()).unwrap();
    let parts: Vec<_> = (0..200).map(|number| ByteRange::new(number * 20_000, 20_000)).collect();
    first.add(&file, &parts).unwrap();
    let mut into = vec![0; 20_000];
    for part in &parts[..50] {
        file.read(part.offset, &mut into).unwrap();
    }
    assert_eq!(first.left(), 150, "what is told is known at once");
    let held = || clerk.core().hints.held();
    eventually("it holds all that one may", || held() > BUDGET / 2 - 40_000);
    assert!(held() <= BUDGET / 2, "{}", held());
    let mut others = Vec::new();
    for number in 0..7 {
        let handle = file_of(&clerk, &format!("small-{number}"), 1 << 20);
        let bytes = &cell.drive(0).counters.read_bytes;
        let before = bytes.load(Ordering::Relaxed);
        let (hints, file) = (clerk.hints(&root()).unwrap(), open(&clerk, handle, OpenMode::READ));
        hints.add(&file, &parts[..50]).unwrap();
        eventually("others have a share too", || bytes.load(Ordering::Relaxed) > before + 100_000);
        assert!(held() <= BUDGET, "{}", held());
        others.push((hints, file));
    }
    drop((first, others));
    eventually("all is given back", || held() == 0);
}

#[test]
fn what_is_longer_than_a_share_is_not_fetched_over_and_over() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(Settings { read_ahead_bytes: 256 << 10, ..settings() }));
    let open = |number: u64| {
        let handle = file_of(&clerk, &format!("file-{number}"), 100_000);
        open(&clerk, handle, OpenMode::READ)
    };
    let files: Vec<OpenFile> = (0..8).map(open).collect();
    let bytes = &cell.drive(0).counters.read_bytes;
    let before = bytes.load(Ordering::Relaxed);
    let hinted = |file: &OpenFile| {
        let hints = clerk.hints(&root()).unwrap();
        hints.add(file, &[ByteRange::new(0, 100_000)]).unwrap();
        hints
    };
    let streams: Vec<Hints> = files.iter().map(hinted).collect();
    // Nobody reads yet. What was given back as streams began may be fetched twice.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(500) {
        let fetched = bytes.load(Ordering::Relaxed) - before;
        assert!(fetched < 2 * 8 * 100_000, "{fetched} bytes");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(streams.iter().all(|hints| hints.left() > 0));
    let mut into = vec![0; 5000];
    for at in (0..100_000).step_by(into.len()) {
        for file in &files {
            assert_eq!(file.read(at, &mut into).unwrap(), into.len());
            assert!(into == pattern(at, into.len()));
        }
    }
}

/// What drives were told.
type ToldToDrives = Arc<Mutex<Vec<(Notice, Vec<ByteRange>)>>>;

/// Drives that answer so to a call; and what they were told.
fn answering(
    cell: &FakeCell,
    answer: impl Fn(&[ByteRange], Notice) -> Result<Vec<ExtendedPart>, ClerkError>
    + Send
    + Sync
    + 'static,
) -> ToldToDrives {
    let told: ToldToDrives = Arc::default();
    let all = Arc::clone(&told);
    cell.set_extends(Arc::new(move |ranges, call| {
        let notice = Notice::decode(&call.arguments).unwrap();
        all.lock().unwrap().push((notice, ranges.to_vec()));
        answer(ranges, notice)
    }));
    told
}

/// That a drive has taken so many pieces of its own.
fn taken_by(drive: DriveId, pieces: Vec<ByteRange>, taken: usize) -> ExtendedPart {
    let position = pieces.last().map_or(0, ByteRange::end);
    let data = notice::encode_taken(u32::try_from(taken).unwrap());
    ExtendedPart { drive, pieces, outcome: ExtensionOutcome::Done, position, data }
}

/// Drives that take as many pieces of a call as `taken` says, or none if that is nothing; and what they were told.
fn told_to(
    cell: &FakeCell,
    taken: impl Fn(&[ByteRange], Notice) -> Option<usize> + Send + Sync + 'static,
) -> ToldToDrives {
    answering(cell, move |ranges, notice| {
        let taken = taken(ranges, notice).ok_or(ClerkError::Drive(Status::NoSuchExtension))?;
        Ok(vec![taken_by(DriveId::default(), ranges.to_vec(), taken)])
    })
}

/// A slow drive with one file, of which parts are hinted by name; as many as are not fetched at once.
fn slow_cell() -> (Arc<FakeCell>, Arc<Clerk>, FileHandle) {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let handle = file_of(&clerk, "file", 4 << 20);
    cell.drive(0).set_delay(Duration::from_millis(10));
    (cell, clerk, handle)
}

const PART: u64 = 10_000;

fn hint_parts(hints: &Hints, clerk: &Clerk, parts: Range<u64>) {
    for number in parts {
        let range = ByteRange::new(number * PART, PART);
        hints.add_path(clerk.root(), b"file", Some(range)).unwrap();
    }
}

#[test]
fn names_are_looked_up_side_by_side_and_taken_up_in_order() {
    let (cell, clerk, _) = slow_cell();
    let told = told_to(&cell, |ranges, _| Some(ranges.len()));
    cell.set_manager_runs(false);
    // What is cached needs no manager.
    let hints = clerk.hints(&user(7)).unwrap();
    hint_parts(&hints, &clerk, 0..300);
    eventually("many are asked for", || cell.manager_waiters.load(Ordering::Relaxed) >= 8);
    cell.set_manager_runs(true);
    let last = ByteRange::new(299 * PART, PART);
    let is_told = || told.lock().unwrap().iter().any(|(_, ranges)| ranges.contains(&last));
    eventually("all is told", is_told);
    let told: Vec<_> = told.lock().unwrap().iter().flat_map(|(_, ranges)| ranges.clone()).collect();
    assert!(told.is_sorted_by_key(|range| range.offset), "{told:?}");
}

#[test]
fn what_a_drive_did_not_take_is_told_again() {
    let (cell, clerk, _) = slow_cell();
    let full = AtomicBool::new(true);
    let told = told_to(&cell, move |ranges, notice| {
        let is_full = notice.ordinal > 0 || full.swap(false, Ordering::Relaxed);
        Some(ranges.len() - usize::from(is_full && notice.ordinal == 0))
    });
    let hints = clerk.hints(&root()).unwrap();
    hint_parts(&hints, &clerk, 0..400);
    let calls = |ordinal| {
        let told = told.lock().unwrap();
        let of = told.iter().filter(|(notice, _)| notice.is_hint && notice.ordinal == ordinal);
        of.map(|(_, ranges)| ranges.clone()).collect::<Vec<_>>()
    };
    eventually("what comes behind is told in the end", || !calls(1).is_empty());
    let first = calls(0);
    assert_eq!(first.len(), 2);
    assert_eq!(first[0], first[1]);
}

#[test]
fn a_drive_hears_that_what_it_was_told_is_over_though_there_is_nothing_else_to_tell() {
    let (cell, clerk, handle) = slow_cell();
    let told = told_to(&cell, |ranges, _| Some(ranges.len()));
    let hints = clerk.hints(&root()).unwrap();
    hint_parts(&hints, &clerk, 0..300);
    let last = ByteRange::new(299 * PART, PART);
    let is_told = || told.lock().unwrap().iter().any(|(_, ranges)| ranges.contains(&last));
    eventually("all is told", is_told);
    cell.drive(0).set_delay(Duration::ZERO);
    let (file, mut into) = (open(&clerk, handle, OpenMode::READ), vec![0; PART as usize]);
    for number in 0..300 {
        file.read(number * PART, &mut into).unwrap();
    }
    let calls = told.lock().unwrap().iter().filter(|(notice, _)| notice.is_hint).count() as u64;
    eventually("it is heard", || {
        let told = told.lock().unwrap();
        told.iter().any(|(notice, _)| !notice.is_hint && !notice.is_over && notice.passed == calls)
    });
}

/// Answers of two drives behind a virtual one: the first has what comes before part 200 of the file, the second one the rest.
fn by_halves(ranges: &[ByteRange]) -> Vec<ExtendedPart> {
    let halves = ranges.chunk_by(|one, next| is_of_second(one) == is_of_second(next));
    let answer = |pieces: &[ByteRange]| {
        let drive = DriveId(100 + u64::from(is_of_second(&pieces[0])));
        taken_by(drive, pieces.to_vec(), pieces.len())
    };
    halves.map(answer).collect()
}

fn is_of_second(range: &ByteRange) -> bool {
    range.offset >= 200 * PART
}

#[test]
fn all_drives_behind_a_virtual_one_hear_how_far_the_stream_is() {
    let (cell, clerk, handle) = slow_cell();
    let told = answering(&cell, |ranges, _| Ok(by_halves(ranges)));
    let hints = clerk.hints(&root()).unwrap();
    // Two streams of calls: none is of both drives.
    hint_parts(&hints, &clerk, 0..200);
    let is_told = |part: u64| {
        let range = ByteRange::new(part * PART, PART);
        told.lock().unwrap().iter().any(|(_, ranges)| ranges.contains(&range))
    };
    eventually("the first drive is told", || is_told(199));
    hint_parts(&hints, &clerk, 200..400);
    eventually("the second drive is told", || is_told(399));
    cell.drive(0).set_delay(Duration::ZERO);
    let (file, mut into) = (open(&clerk, handle, OpenMode::READ), vec![0; PART as usize]);
    for number in 0..400 {
        file.read(number * PART, &mut into).unwrap();
    }
    let calls = told.lock().unwrap().iter().filter(|(notice, _)| notice.is_hint).count() as u64;
    for second in [false, true] {
        eventually("it is heard", || {
            let told = told.lock().unwrap();
            let news = |notice: &Notice| !notice.is_hint && !notice.is_over;
            let of_it = |ranges: &[ByteRange]| ranges.iter().any(|it| is_of_second(it) == second);
            let is_it = |(notice, ranges): &(Notice, Vec<ByteRange>)| {
                news(notice) && notice.passed == calls && of_it(ranges)
            };
            told.iter().any(is_it)
        });
    }
}

#[test]
fn drives_hear_the_end_of_what_nobody_has_answered() {
    let (cell, clerk, _) = slow_cell();
    // One of those behind a virtual drive is away: what the others have answered is not known here.
    let told = answering(&cell, |_, _| Err(ClerkError::Unreachable("away".to_owned())));
    let hints = clerk.hints(&root()).unwrap();
    hint_parts(&hints, &clerk, 0..300);
    eventually("it is told", || !told.lock().unwrap().is_empty());
    drop(hints);
    eventually("it is told the end", || {
        told.lock().unwrap().iter().any(|(notice, _)| notice.is_over)
    });
}

#[test]
fn drives_hear_the_end_by_what_they_have_answered_though_a_later_call_was_lost() {
    let (cell, clerk, _) = slow_cell();
    let told = answering(&cell, |ranges, notice| match notice.ordinal {
        0 => Ok(by_halves(ranges)),
        _ => Err(ClerkError::Drive(Status::NoSuchObject)),
    });
    let hints = clerk.hints(&root()).unwrap();
    hint_parts(&hints, &clerk, 0..300);
    eventually("it is told more", || {
        told.lock().unwrap().iter().any(|(notice, _)| notice.ordinal > 0)
    });
    drop(hints);
    let first = || {
        let told = told.lock().unwrap();
        told.iter().find(|(notice, _)| notice.is_hint && notice.ordinal == 0).unwrap().1.clone()
    };
    eventually("it is told the end", || {
        let first = first();
        told.lock().unwrap().iter().any(|(notice, ranges)| notice.is_over && *ranges == first)
    });
}

#[test]
fn a_drive_hears_what_comes_next_while_it_is_busy() {
    let (cell, clerk, handle) = slow_cell();
    let busy = Arc::clone(&cell);
    let told = told_to(&cell, move |ranges, _| {
        busy.drive(0).set_delay(Duration::from_secs(1));
        Some(ranges.len())
    });
    // More requests than a drive has at a time, and each takes a minute from then on.
    let parts: Vec<_> = (0..2000).map(|number| ByteRange::new(number * 2 * PIECE, PIECE)).collect();
    let hints = clerk.hints(&root()).unwrap();
    hints.add(&open(&clerk, handle, OpenMode::READ), &parts).unwrap();
    let last = parts[parts.len() - 1];
    let is_told = || told.lock().unwrap().iter().any(|(_, ranges)| ranges.contains(&last));
    eventually("all is told", is_told);
}

/// Slow drives with one file each.
fn two_slow_drives() -> (Arc<FakeCell>, Arc<Clerk>, Vec<FileHandle>) {
    let cell = cell(2);
    let clerk = Arc::new(cell.clerk(settings()));
    let mut files = Vec::new();
    for number in 0..2 {
        cell.place_on(number);
        files.push(file_of(&clerk, &format!("file-{number}"), 4 << 20));
        cell.drive(number).set_delay(Duration::from_millis(10));
    }
    (cell, clerk, files)
}

/// Hints of the first file, in its first half, and then of the second one, in the other.
fn hint_of_each(clerk: &Arc<Clerk>, files: Vec<FileHandle>) -> Hints {
    let hints = clerk.hints(&root()).unwrap();
    for (file, begin) in files.into_iter().zip([0, 2 << 20]) {
        let parts: Vec<_> =
            (0..200).map(|number| ByteRange::new(begin + number * PART, PART)).collect();
        hints.add(&open(clerk, file, OpenMode::READ), &parts).unwrap();
    }
    hints
}

#[test]
fn a_drive_that_takes_no_hints_keeps_none_from_others() {
    let (cell, clerk, files) = two_slow_drives();
    let told = told_to(&cell, |ranges, _| (ranges[0].offset >= 2 << 20).then_some(ranges.len()));
    let _hints = hint_of_each(&clerk, files);
    let has = |is_first: bool| {
        let told = told.lock().unwrap();
        told.iter().filter(|(_, ranges)| (ranges[0].offset < 2 << 20) == is_first).count()
    };
    eventually("both are told", || has(true) >= 1 && has(false) >= 3);
    assert_eq!(has(true), 1, "the first one has said that it takes none");
}

#[test]
fn a_drive_that_has_no_room_keeps_nothing_from_others() {
    let (cell, clerk, files) = two_slow_drives();
    let told =
        told_to(&cell, |ranges, _| Some(if ranges[0].offset < 2 << 20 { 0 } else { ranges.len() }));
    let _hints = hint_of_each(&clerk, files);
    let last = ByteRange::new((2 << 20) + 199 * PART, PART);
    let is_told = || told.lock().unwrap().iter().any(|(_, ranges)| ranges.contains(&last));
    eventually("the other one is told of all", is_told);
}

#[test]
fn a_stream_that_has_ended_makes_room_though_a_drive_does_not_hear_of_it() {
    let (cell, clerk, _) = slow_cell();
    let hears = Arc::new((Mutex::new(false), Condvar::new()));
    let has_heard = Arc::new(AtomicBool::new(false));
    let (drive_hears, drive_has_heard) = (Arc::clone(&hears), Arc::clone(&has_heard));
    let told = told_to(&cell, move |ranges, notice| {
        if notice.is_over {
            let (hears, changed) = &*drive_hears;
            drop(changed.wait_while(hears.lock().unwrap(), |hears| !*hears).unwrap());
            drive_has_heard.store(true, Ordering::Release);
        }
        Some(ranges.len())
    });
    let mut streams: Vec<_> = (0..16).map(|_| clerk.hints(&root()).unwrap()).collect();
    hint_parts(&streams[0], &clerk, 0..300);
    eventually("it is told", || !told.lock().unwrap().is_empty());
    streams.clear();
    let is_being_told = || told.lock().unwrap().iter().any(|(notice, _)| notice.is_over);
    eventually("it is being told the end", is_being_told);
    eventually("there is room", || {
        let room: Vec<_> = (0..16).map_while(|_| clerk.hints(&root()).ok()).collect();
        room.len() == 16
    });
    assert!(!has_heard.load(Ordering::Acquire));
    *hears.0.lock().unwrap() = true;
    hears.1.notify_all();
    eventually("it hears of it in the end", || has_heard.load(Ordering::Acquire));
}

#[test]
fn all_drives_that_were_told_anything_hear_the_end_though_one_is_being_told_then() {
    let (cell, clerk, _) = slow_cell();
    let answers = Arc::new((Mutex::new(false), Condvar::new()));
    let drive_answers = Arc::clone(&answers);
    let told = told_to(&cell, move |ranges, notice| {
        let (answers, changed) = &*drive_answers;
        let waits = |answers: &mut bool| notice.ordinal == 1 && !*answers;
        drop(changed.wait_while(answers.lock().unwrap(), waits).unwrap());
        // What it can't hear any more it has heard before.
        (notice.ordinal == 0).then_some(ranges.len())
    });
    let hints = clerk.hints(&root()).unwrap();
    hint_parts(&hints, &clerk, 0..300);
    let second = || told.lock().unwrap().iter().any(|(notice, _)| notice.ordinal == 1);
    eventually("it is being told more", second);
    drop(hints);
    *answers.0.lock().unwrap() = true;
    answers.1.notify_all();
    let is_told = || told.lock().unwrap().iter().any(|(notice, _)| notice.is_over);
    eventually("it is told the end", is_told);
}

#[test]
fn hints_of_parts_of_a_file_leave_it_read_ahead_where_there_are_none() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let handle = file_of(&clerk, "file", 4 << 20);
    // Somebody has told of a byte here and there.
    let hints = clerk.hints(&root()).unwrap();
    let bytes: Vec<_> = (0..64).map(|number| ByteRange::new((number << 16) + 7, 1)).collect();
    hints.add(&open(&clerk, handle, OpenMode::READ), &bytes).unwrap();
    let counters = &cell.drive(0).counters;
    eventually("they are fetched", || counters.reads.load(Ordering::Relaxed) >= 64);
    let before = counters.reads.load(Ordering::Relaxed);
    let (file, mut into) = (open(&clerk, handle, OpenMode::READ), vec![0; 4096]);
    for offset in (0..4 << 20).step_by(into.len()) {
        assert_eq!(file.read(offset, &mut into).unwrap(), into.len());
        assert!(into == pattern(offset, into.len()));
    }
    let asked = counters.reads.load(Ordering::Relaxed) - before;
    assert!(asked < 200, "{asked} requests for 1024 reads");
}

#[test]
fn links_are_followed_as_far_as_they_lead_to_the_same_place_for_whoever_reads() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let directory =
        clerk.mkdir(&root(), clerk.root(), &super::name("set"), 0o777_u32).unwrap().handle;
    file_of(&clerk, "file", 3000);
    let make = |text: &str, target: &[u8]| {
        clerk.symlink(&root(), directory, &super::name(text), target).unwrap();
    };
    make("near", b"../file");
    make("far", b"/file");
    let bytes = &cell.drive(0).counters.read_bytes;
    let hints = clerk.hints(&root()).unwrap();
    hints.add_path(clerk.root(), b"set/far", None).unwrap();
    hints.add_path(clerk.root(), b"set/near", None).unwrap();
    eventually("one is known", || hints.left() == 1);
    eventually("and fetched", || bytes.load(Ordering::Relaxed) >= 3000);
}

/// Hints the beginning of a file, and waits until it is fetched.
fn fetch_beginning(cell: &FakeCell, clerk: &Clerk, hints: &Hints) {
    let reads = &cell.drive(0).counters.reads;
    let before = reads.load(Ordering::Relaxed);
    hints.add_path(clerk.root(), b"file", Some(ByteRange::new(0, PIECE))).unwrap();
    eventually("it is fetched", || reads.load(Ordering::Relaxed) > before);
}

#[test]
fn who_reads_slowly_has_nothing_fetched_twice_and_sees_what_others_write() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let other = cell.clerk(settings());
    let handle = file_of(&clerk, "file", 50_000);
    let counters = &cell.drive(0).counters;
    let hints = clerk.hints(&root()).unwrap();
    let (file, mut into) = (open(&clerk, handle, OpenMode::READ), vec![0; PIECE as usize]);
    for is_changed in [false, true] {
        fetch_beginning(&cell, &clerk, &hints);
        let state = clerk.core().file(handle);
        eventually("it has come", || {
            let found = state.lock().hinted.find(0, 1, Instant::now());
            matches!(found, hinted::Found::Ready(_))
        });
        state.lock().hinted.age(Duration::from_secs(60));
        if is_changed {
            let theirs = open(&other, handle, OpenMode::WRITE);
            theirs.write(10, b"theirs").unwrap();
            theirs.sync().unwrap();
        }
        let (reads, asked) = (&counters.reads, &counters.getattrs);
        let before = (reads.load(Ordering::Relaxed), asked.load(Ordering::Relaxed));
        file.read(0, &mut into).unwrap();
        let after = (reads.load(Ordering::Relaxed), asked.load(Ordering::Relaxed));
        assert_eq!(after, (before.0 + u64::from(is_changed), before.1 + 1));
        assert_eq!(&into[10..16] == b"theirs", is_changed);
    }
}

#[test]
fn an_open_sees_what_was_written_by_who_sets_the_time_of_the_file_back() {
    let cell = cell(1);
    let clerk = Arc::new(cell.clerk(settings()));
    let other = cell.clerk(settings());
    let handle = file_of(&clerk, "file", 50_000);
    let hints = clerk.hints(&root()).unwrap();
    let before = other.getattr_now(&root(), handle).unwrap().modify_time;
    fetch_beginning(&cell, &clerk, &hints);
    let theirs = open(&other, handle, OpenMode::WRITE);
    theirs.write(10, b"theirs").unwrap();
    theirs.sync().unwrap();
    let back = SetFileAttributes { modify_time: Some(before), ..SetFileAttributes::default() };
    other.setattr(&root(), handle, &back).unwrap();
    let mut into = vec![0; PIECE as usize];
    let file = open(&clerk, handle, OpenMode::READ);
    file.read(0, &mut into).unwrap();
    assert_eq!(&into[10..16], b"theirs");
}
