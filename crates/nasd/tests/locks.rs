//! Locks between two mounts of a real cell: also when a mount is killed, or the manager.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use support::beside::Beside;
use support::{CellOptions, TestCell, signal, wait_until};

/// As long as a client may be without being heard of; see the manager's sessions.
const LEASE: Duration = Duration::from_secs(6);

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

/// Whether somebody else could have the lock at once.
fn is_free(path: &Path) -> bool {
    open(path).try_lock().is_ok()
}

#[test]
fn locks_hold_between_mounts_and_end_with_the_process_of_a_mount() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "256M",
        cache: "32M",
        ..CellOptions::default()
    });
    let mut beside = Beside::mount(&cell);
    let (here, there) = (cell.path("lock"), beside.at.join("lock"));
    fs::write(&here, "").unwrap();
    // The manager has just started.
    wait_until("a lock can be had", || is_free(&here));
    let holder = open(&there);
    holder.lock().unwrap();
    assert!(!is_free(&here));
    drop(holder);
    wait_until("a lock that was closed is free", || is_free(&here));
    let holder = open(&there);
    holder.lock().unwrap();
    beside.kill();
    let killed = Instant::now();
    assert!(!is_free(&here), "nobody knows yet that it is dead");
    wait_until("the lock of a mount that was killed is free", || is_free(&here));
    assert!(killed.elapsed() < LEASE + Duration::from_secs(3), "{:?}", killed.elapsed());
    drop(holder);
    drop(beside);
    cell.stop();
}

#[test]
fn locks_outlive_the_manager() {
    let mut cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "256M",
        cache: "32M",
        ..CellOptions::default()
    });
    let beside = Beside::mount(&cell);
    let (here, there) = (cell.path("lock"), beside.at.join("lock"));
    fs::write(&here, "").unwrap();
    let holder = open(&there);
    holder.lock().unwrap();
    let manager = cell.member("manager");
    signal(manager, "KILL");
    let is_another = |(pid, line): &(u32, String)| line.contains("manager") && *pid != manager;
    wait_until("another manager", || cell.members().iter().any(is_another));
    // It waits until it is sure that nobody has it, and then it knows that somebody does.
    assert!(!is_free(&here));
    drop(holder);
    wait_until("it is free", || is_free(&here));
    drop(beside);
    cell.stop();
}
