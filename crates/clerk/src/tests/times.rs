//! Modification times that were set: in order with writes, at no cost of their own, and kept like data.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nasd_types::Timestamp;

use super::{Random, cell, eventually, name, new_file, root, settings};
use crate::fake::FakeCell;
use crate::{Clerk, FileHandle, OpenFile, OpenMode, SetFileAttributes, Settings};

const LETTER: Timestamp = Timestamp(1_000_000_000_000_000_000);

/// A clerk that makes nothing durable by itself.
fn lazy() -> Settings {
    Settings { flush_after_idle: Duration::from_secs(3600), ..settings() }
}

fn set(clerk: &Clerk, handle: FileHandle, time: Timestamp) {
    let changes = SetFileAttributes { modify_time: Some(time), ..Default::default() };
    assert_eq!(clerk.setattr(&root(), handle, &changes).unwrap().modify_time, time);
}

fn time_of(clerk: &Clerk, handle: FileHandle) -> Timestamp {
    clerk.getattr_now(&root(), handle).unwrap().modify_time
}

fn flushes(cell: &FakeCell) -> u64 {
    cell.drive(0).counters.flushes.load(Ordering::Relaxed)
}

#[test]
fn a_file_that_is_copied_with_its_time_costs_no_flush() {
    let cell = cell(1);
    let clerk = cell.clerk(lazy());
    let (file, handle) = new_file(&clerk, "dated");
    file.write(0, b"old letter").unwrap();
    set(&clerk, handle, LETTER);
    file.close().unwrap();
    assert_eq!(flushes(&cell), 0);
    assert_eq!(cell.drive(0).counters.writes.load(Ordering::Relaxed), 1);
    assert_eq!(time_of(&clerk, handle), LETTER);
    file.sync().unwrap();
    assert_eq!(flushes(&cell), 1);
    assert_eq!(cell.drive(0).durable_time(handle.object), Some(LETTER));
    file.sync().unwrap();
    assert_eq!(flushes(&cell), 1, "there is nothing left to be made durable");
}

#[test]
fn a_drive_that_is_killed_before_fsync_has_the_time_after_it() {
    for kills_again in [false, true] {
        let cell = cell(1);
        let clerk = cell.clerk(lazy());
        let (file, handle) = new_file(&clerk, "dated");
        file.write(0, &[7; 3_000_000]).unwrap();
        set(&clerk, handle, LETTER);
        cell.drive(0).crash();
        if kills_again {
            // While everything is written again.
            cell.drive(0).crash_at_write(2);
        }
        file.sync().unwrap();
        assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), [7; 3_000_000]);
        assert_eq!(cell.drive(0).durable_time(handle.object), Some(LETTER));
        assert_eq!(time_of(&clerk, handle), LETTER);
    }
}

#[test]
fn the_time_of_a_file_that_nobody_has_written_to_is_kept_as_well() {
    let cell = cell(1);
    let clerk = cell.clerk(lazy());
    let (file, handle) = new_file(&clerk, "touched");
    for kills in [false, true] {
        let time = Timestamp(LETTER.0 + u64::from(kills));
        set(&clerk, handle, time);
        if kills {
            cell.drive(0).crash();
        }
        file.sync().unwrap();
        assert_eq!(cell.drive(0).durable_time(handle.object), Some(time));
    }
}

#[test]
fn a_file_that_is_not_open_gets_its_time_in_the_background() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "closed");
    file.write(0, b"x").unwrap();
    file.sync().unwrap();
    drop(file);
    set(&clerk, handle, LETTER);
    cell.drive(0).crash();
    eventually("the time is durable", || cell.drive(0).durable_time(handle.object) == Some(LETTER));
    eventually("nothing is kept", || clerk.core.undurable().1 == 0);
}

#[test]
fn what_is_written_later_moves_the_time_and_ends_that_it_is_kept() {
    let cell = cell(1);
    let clerk = cell.clerk(lazy());
    let (file, handle) = new_file(&clerk, "rewritten");
    let cut = SetFileAttributes { size: Some(1), ..Default::default() };
    let shorten = |_: &OpenFile| {
        assert_eq!(clerk.setattr(&root(), handle, &cut).unwrap().size, 1);
    };
    let writes: [&dyn Fn(&OpenFile); 3] =
        [&|file| file.write(3, b"new").unwrap(), &|file| file.append(b"new").unwrap(), &shorten];
    for write in writes {
        file.write(0, b"old").unwrap();
        set(&clerk, handle, LETTER);
        write(&file);
        cell.drive(0).crash();
        file.sync().unwrap();
        assert!(cell.drive(0).durable_time(handle.object) > Some(LETTER));
        assert!(time_of(&clerk, handle) > LETTER);
    }
}

#[test]
fn the_last_time_counts_and_a_new_one_with_a_length_too() {
    let cell = cell(1);
    let clerk = cell.clerk(lazy());
    let (file, handle) = new_file(&clerk, "twice");
    file.write(0, b"0123456789").unwrap();
    set(&clerk, handle, LETTER);
    let later = Timestamp(LETTER.0 + 5);
    let changes =
        SetFileAttributes { size: Some(4), modify_time: Some(later), ..Default::default() };
    let attributes = clerk.setattr(&root(), handle, &changes).unwrap();
    assert_eq!((attributes.size, attributes.modify_time), (4, later));
    cell.drive(0).crash();
    file.sync().unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"0123");
    assert_eq!(cell.drive(0).durable_time(handle.object), Some(later));
}

#[test]
fn a_removed_file_is_no_failure_though_its_time_was_set() {
    let cell = cell(1);
    let clerk = cell.clerk(lazy());
    let (file, handle) = new_file(&clerk, "gone");
    file.write(0, b"x").unwrap();
    set(&clerk, handle, LETTER);
    drop(file);
    clerk.unlink(&root(), clerk.root(), &name("gone"), None).unwrap();
    clerk.close().unwrap();
}

#[test]
fn a_file_that_is_opened_again_is_not_taken_for_one_that_others_have_changed() {
    let cell = cell(1);
    let clerk = cell.clerk(lazy());
    let (file, handle) = new_file(&clerk, "reopened");
    file.write(0, b"old").unwrap();
    set(&clerk, handle, LETTER);
    file.close().unwrap();
    drop(clerk.open(&root(), handle, OpenMode::READ).unwrap());
    assert_eq!(flushes(&cell), 0);
}

#[test]
fn drives_that_are_killed_at_any_time_lose_no_time() {
    for seed in 400..412 {
        let cell = cell(1);
        let clerk = cell.clerk(settings());
        let (file, handle) = new_file(&clerk, "model");
        let mut random = Random::new(seed);
        let mut expected = None;
        std::thread::scope(|scope| {
            let stop = Arc::new(());
            let killer = {
                let (stop, cell) = (Arc::downgrade(&stop), &cell);
                let mut random = Random::new(seed + 1000);
                scope.spawn(move || {
                    while stop.upgrade().is_some() {
                        std::thread::sleep(Duration::from_micros(300 + random.below(5000)));
                        cell.drive(0).crash();
                    }
                })
            };
            for round in 0..120 {
                match random.below(5) {
                    0 | 1 => {
                        file.write(random.below(10_000), &[round as u8; 3000]).unwrap();
                        expected = None;
                    }
                    2 | 3 => {
                        let time = Timestamp(LETTER.0 + round);
                        set_whatever_is_told(&clerk, handle, time);
                        expected = Some(time);
                    }
                    _ => {
                        file.sync().unwrap();
                        if let Some(expected) = expected {
                            assert_eq!(cell.drive(0).durable_time(handle.object), Some(expected));
                        }
                    }
                }
            }
            drop(stop);
            killer.join().unwrap();
        });
        file.sync().unwrap();
        if let Some(expected) = expected {
            assert_eq!(cell.drive(0).durable_time(handle.object), Some(expected), "seed {seed}");
        }
    }
}

/// The drive may be killed before it is asked what it has.
fn set_whatever_is_told(clerk: &Clerk, handle: FileHandle, time: Timestamp) {
    let changes = SetFileAttributes { modify_time: Some(time), ..Default::default() };
    clerk.setattr(&root(), handle, &changes).unwrap();
}
