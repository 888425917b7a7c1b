//! Failures of write-behind reach those who wrote, once, and do not stick.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{cell, eventually, new_file, root, settings};
use crate::fake::FakeCell;
use crate::{ClerkError, OpenMode, Settings, Status};

const FULL: ClerkError = ClerkError::Drive(Status::NoSpace);

#[test]
fn a_full_drive_is_told_at_close_once() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "f");
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    file.write(0, &[1; 1000]).unwrap();
    assert_eq!(file.close(), Err(FULL));
    assert_eq!(FULL.errno(), libc::ENOSPC);
    assert_eq!(file.close(), Ok(()));
}

#[test]
fn a_full_drive_is_told_at_a_later_write_and_then_at_each() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "f");
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    let mut offset = 0;
    let refused = loop {
        match file.write(offset, &[1; 65_536]) {
            Ok(()) => offset += 65_536,
            Err(error) => break error,
        }
        assert!(offset < 16 << 20, "never told");
    };
    assert_eq!(refused, FULL);
    assert_eq!(file.write(offset, &[1; 100]), Err(FULL), "now each write is told of itself");
    assert_eq!(file.write(offset, &[1; 100]), Err(FULL));
}

#[test]
fn each_open_file_is_told_and_space_that_is_freed_is_used() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings { flush_after_idle: Duration::from_secs(3600), ..settings() });
    let (first, handle) = new_file(&clerk, "f");
    let (second, _) = clerk.open(&root(), handle, OpenMode::WRITE).unwrap();
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    first.write(0, &[1; 1000]).unwrap();
    assert_eq!(first.sync(), Err(FULL));
    assert_eq!(second.sync(), Err(FULL));
    assert_eq!(first.sync(), Ok(()));
    cell.drive(0).fail_writes(None);
    first.write(0, b"fits now").unwrap();
    first.sync().unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"fits now");
    let writes = cell.drive(0).counters.writes.load(Ordering::Relaxed);
    first.write(8, b"!").unwrap();
    assert_eq!(cell.drive(0).counters.writes.load(Ordering::Relaxed), writes, "behind again");
}

#[test]
fn a_background_failure_is_told_to_the_next_who_opens() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    cell.drive(0).fail_writes(Some(Status::MediumError));
    file.write(0, b"x").unwrap();
    drop(file);
    eventually("the background flush fails", || clerk.core.untold_failure().is_some());
    cell.drive(0).fail_writes(None);
    let (next, _) = clerk.open(&root(), handle, OpenMode::WRITE).unwrap();
    assert_eq!(next.sync(), Err(ClerkError::Drive(Status::MediumError)));
    assert_eq!(next.sync(), Ok(()));
}

#[test]
fn a_drive_that_stays_away_is_an_error_after_the_deadline() {
    let deadline = Duration::from_millis(200);
    let cell = FakeCell::new(1, deadline);
    let clerk = cell.clerk(Settings { deadline, ..settings() });
    let (file, _) = new_file(&clerk, "f");
    cell.drive(0).set_reachable(false);
    file.write(0, b"x").unwrap();
    let failure = file.close().unwrap_err();
    assert!(matches!(failure, ClerkError::Unreachable(_)));
    assert_eq!(failure.errno(), libc::EIO);
    cell.drive(0).set_reachable(true);
    file.write(0, b"y").unwrap();
    file.close().unwrap();
}

#[test]
fn a_drive_that_comes_back_in_time_is_only_a_pause() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    cell.drive(0).set_reachable(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            file.write(0, &[3; 100_000]).unwrap();
            file.close().unwrap();
            let mut back = vec![0; 100_000];
            assert_eq!(file.read(0, &mut back).unwrap(), 100_000);
            file.sync().unwrap();
        });
        std::thread::sleep(Duration::from_millis(150));
        cell.drive(0).crash();
        cell.drive(0).set_reachable(true);
    });
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), [3; 100_000]);
}

#[test]
fn a_file_is_as_long_as_the_drive_says_after_a_failure() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, b"kept").unwrap();
    file.sync().unwrap();
    cell.drive(0).fail_writes(Some(Status::NoSpace));
    file.write(4, &[1; 5000]).unwrap();
    assert_eq!(file.sync(), Err(FULL));
    assert_eq!(clerk.getattr(&root(), handle).unwrap().size, 4);
    assert_eq!(file.size(), 4);
    assert_eq!(file.read(0, &mut [0; 100]).unwrap(), 4);
}

#[test]
fn files_have_a_largest_size() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, _) = new_file(&clerk, "f");
    assert_eq!(file.write(1 << 62, b"x"), Err(ClerkError::TooLarge));
    assert_eq!(file.write(u64::MAX, b"x"), Err(ClerkError::TooLarge));
    assert_eq!(file.close(), Ok(()));
}
