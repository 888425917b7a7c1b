//! Stores of files in a volume with callbacks that do not go as whoever began them thought.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::sessions::GivesUp;
use super::{cell, eventually, new_file, open, pattern, root, settings};
use crate::backend::Names;
use crate::fake::FakeCell;
use crate::wire::SetFileAttributes;
use crate::{Clerk, ClerkError, Interruptible, OpenMode, Settings, Status};

const CHUNK: usize = 1 << 20;

#[test]
fn who_is_interrupted_while_others_store_has_his_store_done_as_a_whole() {
    let cell = cell(1);
    cell.set_callbacks();
    let late = Duration::from_secs(3600);
    let clerk = cell.clerk(Settings {
        unflushed_bytes_per_drive: 64 << 20,
        flush_after_bytes: 32 << 20,
        flush_after_idle: late,
        ..settings()
    });
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, &[b'o'; 100]).unwrap();
    file.close().unwrap();
    let entry = clerk.lookup(&root(), clerk.root(), &super::name("f")).unwrap();
    let file = open(&clerk, &root(), entry);
    assert!(file.empty().unwrap().is_some());
    let text = pattern(0, 4 * CHUNK);
    for (at, part) in text.chunks(CHUNK).enumerate() {
        file.write((at * CHUNK) as u64, part).unwrap();
    }
    // The drive has acknowledged a part of it when it goes away, and the file manager with it.
    let drive = cell.drive(0);
    drive.set_delay(Duration::from_millis(100));
    let writes = || drive.counters.writes.load(Ordering::Relaxed);
    let (before, gives_up) = (writes(), Arc::new(GivesUp::default()));
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    thread::scope(|scope| {
        let closing = scope.spawn(|| request.run(|| file.close()));
        eventually("the last part is on its way", || writes() == before + 4);
        drive.set_reachable(false);
        cell.set_manager_runs(false);
        gives_up.0.store(true, Ordering::Relaxed);
        assert_eq!(closing.join().unwrap(), Err(ClerkError::Interrupted));
    });
    eventually("another thread goes on with it", || clerk.core.store_of(handle).is_none());
    // Its time is over, and somebody else has stored more than it has.
    cell.expire_capabilities();
    cell.stored_by_another(handle, &vec![b'b'; 6 * CHUNK]);
    drive.set_delay(Duration::ZERO);
    drive.set_reachable(true);
    cell.set_manager_runs(true);
    file.close().unwrap();
    assert!(drive.durable_bytes(handle.object).unwrap() == text, "all of it, and nothing else");
}

/// A clerk that stores nothing before it is told to.
fn patient(cell: &Arc<FakeCell>) -> Clerk {
    cell.set_callbacks();
    cell.clerk(Settings {
        unflushed_bytes_per_drive: 64 << 20,
        flush_after_bytes: 32 << 20,
        flush_after_idle: Duration::from_secs(3600),
        ..settings()
    })
}

#[test]
fn what_is_written_after_a_failure_was_told_is_stored_or_told_of() {
    let cell = cell(1);
    let clerk = patient(&cell);
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, &[b'o'; 1000]).unwrap();
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    cell.hold_returns(true);
    thread::scope(|scope| {
        let closing = scope.spawn(|| file.close());
        eventually("the store is being returned", || cell.returns_held() == 1);
        cell.drive(0).fail_writes(None);
        let other = clerk.open(&root(), handle, OpenMode::WRITE).unwrap().0;
        let writing = scope.spawn(move || {
            let told = [other.write(0, b"new"), other.write(0, b"new"), other.close()];
            (told, other.close())
        });
        eventually("it is taken", || clerk.core.open_file(handle).unwrap().lock().has_written());
        cell.hold_returns(false);
        assert_eq!(closing.join().unwrap(), Err(ClerkError::Drive(Status::NoSpace)));
        let (told, last) = writing.join().unwrap();
        assert_eq!(told[1..], [Ok(()), Ok(())], "what was told before is not told again: {told:?}");
        assert_eq!(last, Ok(()));
    });
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"new");
}

#[test]
fn of_an_interrupted_store_that_has_failed_in_part_nothing_is_stored_later() {
    let cell = cell(1);
    let clerk = patient(&cell);
    let (file, handle) = new_file(&clerk, "f");
    let text = pattern(0, 4 * CHUNK);
    for (at, part) in text.chunks(CHUNK).enumerate() {
        file.write((at * CHUNK) as u64, part).unwrap();
    }
    // One of four has no room, and the drive goes away before the others are durable.
    let drive = cell.drive(0);
    drive.set_capacity(3 * CHUNK as u64 + 100);
    drive.set_delay(Duration::from_millis(100));
    let state = clerk.core.open_file(handle).unwrap();
    let gives_up = Arc::new(GivesUp::default());
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    thread::scope(|scope| {
        let closing = scope.spawn(|| request.run(|| file.close()));
        eventually("a part has failed", || state.lock().errors.count() > 0);
        drive.set_reachable(false);
        cell.set_manager_runs(false);
        gives_up.0.store(true, Ordering::Relaxed);
        closing.join().unwrap().unwrap_err();
    });
    cell.expire_capabilities();
    cell.stored_by_another(handle, b"of another");
    drive.set_capacity(1 << 30);
    drive.set_delay(Duration::ZERO);
    drive.set_reachable(true);
    cell.set_manager_runs(true);
    file.close().unwrap_err();
    file.close().unwrap();
    eventually("all is settled", || state.lock().is_settled());
    assert!(drive.durable_bytes(handle.object).unwrap() == b"of another");
}

#[test]
fn a_store_that_may_be_lost_is_not_said_to_be_done() {
    let cell = cell(1);
    let clerk = patient(&cell);
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, &[b'o'; 1000]).unwrap();
    cell.drive(0).fail_writes(Some(Status::MediumError));
    cell.drive(0).fail_flushes(Some(Status::MediumError));
    assert_eq!(file.close(), Err(ClerkError::Drive(Status::MediumError)));
    assert_eq!(cell.returned(handle), 0, "the file manager ends it, and makes that durable");
    cell.drive(0).fail_writes(None);
    cell.drive(0).fail_flushes(None);
    file.write(0, b"again").unwrap();
    file.close().unwrap();
    assert_eq!((cell.returned(handle), file.close()), (1, Ok(())));
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"again");
}

#[test]
fn who_stores_sees_what_others_have_changed_meanwhile() {
    let cell = cell(1);
    let clerk = patient(&cell);
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, &[b'o'; 1000]).unwrap();
    cell.hold_returns(true);
    thread::scope(|scope| {
        let closing = scope.spawn(|| file.close());
        eventually("the store is being returned", || cell.returns_held() == 1);
        let mode = |mode| SetFileAttributes { mode: Some(mode), ..SetFileAttributes::default() };
        cell.setattr(&root(), handle, &mode(0o640)).unwrap();
        clerk.core.promises().unwrap().changed(handle);
        let told = clerk.getattr(&root(), handle).unwrap();
        assert_eq!((told.mode & 0o777, told.size), (0o640, 1000));
        cell.hold_returns(false);
        closing.join().unwrap().unwrap();
    });
}

#[test]
fn a_store_is_whole_also_after_one_that_has_failed() {
    let cell = cell(1);
    cell.set_callbacks();
    let late = Duration::from_secs(3600);
    let clerk = cell.clerk(Settings { flush_after_idle: late, ..settings() });
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, b"old and good").unwrap();
    file.close().unwrap();
    let drive = cell.drive(0);
    drive.fail_writes(Some(Status::NoSpace));
    file.write(0, b"never").unwrap();
    assert_eq!(file.close(), Err(ClerkError::Drive(Status::NoSpace)));
    drive.fail_writes(None);
    let writes = || drive.counters.writes.load(Ordering::Relaxed);
    let before = writes();
    file.write(0, b"new").unwrap();
    file.append(b"!").unwrap();
    assert_eq!(writes(), before, "others would see a part of it");
    file.close().unwrap();
    assert_eq!(drive.durable_bytes(handle.object).unwrap(), b"new and good!");
}

#[test]
fn what_is_returned_is_durable_also_where_nothing_was_written() {
    let cell = cell(1);
    cell.set_callbacks();
    let late = Duration::from_secs(3600);
    let clerk = cell.clerk(Settings { flush_after_idle: late, ..settings() });
    let (file, _) = new_file(&clerk, "f");
    file.write(0, b"old").unwrap();
    file.close().unwrap();
    let drive = cell.drive(0);
    drive.fail_writes(Some(Status::MediumError));
    let flushes = || drive.counters.flushes.load(Ordering::Relaxed);
    for _ in 0..2 {
        let before = flushes();
        // The last write is the flush, and fails.
        file.write(0, b"never").unwrap();
        assert_eq!(file.close(), Err(ClerkError::Drive(Status::MediumError)));
        assert_eq!(flushes(), before + 2);
    }
}

#[test]
fn what_has_failed_is_durable_before_it_is_returned_also_where_nobody_waits_for_it() {
    let cell = cell(1);
    let clerk = patient(&cell);
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, b"never").unwrap();
    let drive = cell.drive(0);
    drive.fail_writes(Some(Status::NoSpace));
    drive.fail_flushes(Some(Status::Busy));
    let gives_up = Arc::new(GivesUp::default());
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    thread::scope(|scope| {
        let closing = scope.spawn(|| request.run(|| file.close()));
        let flushes = || drive.counters.flushes.load(Ordering::Relaxed);
        eventually("the drive is asked again and again", || flushes() > 5);
        gives_up.0.store(true, Ordering::Relaxed);
        closing.join().unwrap().unwrap_err();
    });
    drive.fail_writes(None);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(cell.returned(handle), 0, "nothing says that it is durable");
    drive.fail_flushes(None);
    eventually("it is returned", || cell.returned(handle) == 1);
    // What is written after that was told has not failed with it.
    assert_eq!(file.write(0, b"new"), Err(ClerkError::Drive(Status::NoSpace)));
    file.write(0, b"new").unwrap();
    file.close().unwrap();
    assert_eq!(drive.durable_bytes(handle.object).unwrap(), b"new");
}

#[test]
fn what_could_not_be_written_is_not_read_afterwards() {
    let cell = cell(1);
    let clerk = patient(&cell);
    cell.promise();
    let (file, handle) = new_file(&clerk, "f");
    let file = {
        drop(file);
        clerk.open(&root(), handle, OpenMode::READ_WRITE).unwrap().0
    };
    let reads = || {
        let mut data = [0; 5];
        assert_eq!(file.read(0, &mut data), Ok(5));
        data
    };
    file.write(0, b"first").unwrap();
    file.close().unwrap();
    assert_eq!(reads(), *b"first");
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    file.write(0, b"never").unwrap();
    assert_eq!(file.close(), Err(ClerkError::Drive(Status::NoSpace)));
    assert_eq!(reads(), *b"first");
}

#[test]
fn who_repeats_what_was_interrupted_is_told_where_nobody_can_say_that_it_is_durable() {
    let cell = cell(1);
    let clerk = patient(&cell);
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, b"text").unwrap();
    cell.hold_returns(true);
    let gives_up = Arc::new(GivesUp::default());
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    thread::scope(|scope| {
        let closing = scope.spawn(|| request.run(|| file.close()));
        eventually("it is being returned", || cell.returns_held() == 1);
        // The file manager goes away, and then nobody waits any more.
        cell.set_manager_runs(false);
        gives_up.0.store(true, Ordering::Relaxed);
        cell.hold_returns(false);
        assert_eq!(closing.join().unwrap(), Err(ClerkError::Interrupted));
    });
    cell.drive(0).fail_flushes(Some(Status::MediumError));
    cell.set_manager_runs(true);
    let state = clerk.core.open_file(handle).unwrap();
    eventually("somebody goes on with it", || state.lock().is_settled());
    assert_eq!(file.close(), Err(ClerkError::Drive(Status::MediumError)));
    assert_eq!(cell.returned(handle), 1, "only the one that was not answered");
}
