//! Locks between clerks, and removed files that are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{cell, eventually, name, new_file, root, settings};
use crate::wire::{FileHandle, LockKind, LockMode};
use crate::{ClerkError, Interruptible, Interrupts, LockRequest, OpenMode};

fn request(file: FileHandle, owner: u64, first: u64, last: u64) -> LockRequest {
    let (kind, mode) = (LockKind::Posix, LockMode::Exclusive);
    LockRequest { file, kind, owner, first, last, mode, process: 1 }
}

/// Somebody who interrupts in the end.
#[derive(Default)]
pub(super) struct GivesUp(pub(super) AtomicBool);

impl Interrupts for GivesUp {
    fn wait(&self, _request: u64, limit: Duration) -> bool {
        let given_up = self.0.load(Ordering::Relaxed);
        if !given_up {
            thread::sleep(limit);
        }
        given_up
    }
}

#[test]
fn a_lock_goes_from_one_clerk_to_the_other() {
    let cell = cell(1);
    let (one, two) = (cell.clerk(settings()), Arc::new(cell.clerk(settings())));
    let file = new_file(&one, "file").1;
    let asked = request(file, 1, 0, 9);
    assert_eq!(one.lock(&root(), &asked, false), Ok(None));
    let other = two.lock(&root(), &request(file, 1, 9, 9), false).unwrap().unwrap();
    assert_eq!((other.first, other.last, other.process), (0, 9, 1));
    assert_eq!(two.test_lock(&request(file, 1, 10, 20)), Ok(None));
    let waiter = {
        let two = Arc::clone(&two);
        thread::spawn(move || two.lock(&root(), &request(file, 1, 5, 5), true))
    };
    thread::sleep(Duration::from_millis(50));
    assert!(!waiter.is_finished());
    one.unlock(&asked).unwrap();
    assert_eq!(waiter.join().unwrap(), Ok(None));
    assert_eq!(cell.locks_held(), 1);
    drop(two);
    assert_eq!(cell.locks_held(), 0, "a clerk that ends lets go");
}

#[test]
fn waiting_can_be_given_up() {
    let cell = cell(1);
    let (one, two) = (cell.clerk(settings()), cell.clerk(settings()));
    let file = new_file(&one, "file").1;
    assert_eq!(one.lock(&root(), &request(file, 1, 0, 9), false), Ok(None));
    let gives_up = Arc::new(GivesUp::default());
    let request = Interruptible::new(1, Arc::clone(&gives_up) as _);
    let outcome = thread::scope(|scope| {
        let wait = || request.run(|| two.lock(&root(), &self::request(file, 1, 0, 0), true));
        let waiter = scope.spawn(wait);
        thread::sleep(Duration::from_millis(100));
        gives_up.0.store(true, Ordering::Relaxed);
        waiter.join().unwrap()
    });
    assert_eq!(outcome, Err(ClerkError::Interrupted));
    assert_eq!(cell.locks_held(), 1);
}

#[test]
fn locks_are_claimed_from_a_manager_that_was_started_anew() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let file = new_file(&clerk, "file").1;
    for (owner, byte) in [(1, 0), (2, 5), (3, 9)] {
        assert_eq!(clerk.lock(&root(), &request(file, owner, byte, byte), false), Ok(None));
    }
    clerk.unlock(&request(file, 2, 0, 100)).unwrap();
    cell.forget_sessions();
    eventually("two locks are claimed", || cell.locks_held() == 2);
    let other = cell.clerk(settings());
    assert!(other.lock(&root(), &request(file, 1, 9, 9), false).unwrap().is_some());
    assert_eq!(other.lock(&root(), &request(file, 1, 5, 5), false), Ok(None));
}

#[test]
fn what_was_written_under_a_lock_is_seen_under_the_next() {
    let cell = cell(1);
    let (one, two) = (cell.clerk(settings()), cell.clerk(settings()));
    let file = new_file(&one, "file").1;
    let (here, _) = one.open(&root(), file, OpenMode::READ_WRITE).unwrap();
    let (there, _) = two.open(&root(), file, OpenMode::READ_WRITE).unwrap();
    for round in 0..20u8 {
        let (clerk, open) = if round % 2 == 0 { (&one, &here) } else { (&two, &there) };
        let asked = request(file, 1, 0, 0);
        assert_eq!(clerk.lock(&root(), &asked, true), Ok(None));
        let mut byte = [0];
        let length = open.read(0, &mut byte).unwrap();
        assert_eq!((length, byte[0]), (usize::from(round > 0), round));
        open.write(0, &[round + 1]).unwrap();
        clerk.unlock(&asked).unwrap();
    }
}

#[test]
fn a_removed_file_stays_while_another_clerk_has_it_open() {
    let cell = cell(1);
    let (one, two) = (cell.clerk(settings()), cell.clerk(settings()));
    let file = new_file(&one, "file").1;
    let (open, _) = two.open(&root(), file, OpenMode::READ_WRITE).unwrap();
    open.write(0, b"still here").unwrap();
    open.sync().unwrap();
    one.unlink(&root(), one.root(), &name("file"), None).unwrap();
    thread::sleep(Duration::from_millis(100));
    let mut text = [0; 10];
    assert_eq!(open.read(0, &mut text), Ok(10));
    assert_eq!(&text, b"still here");
    cell.forget_sessions();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(open.read(0, &mut text), Ok(10), "it was claimed");
    drop(open);
    let gone = || matches!(two.getattr_now(&root(), file), Err(ClerkError::Manager(_)));
    eventually("the file is gone", gone);
}

#[test]
fn without_a_session_there_are_no_locks() {
    let cell = cell(1);
    let clerk = cell.clerk(crate::Settings { session: false, ..settings() });
    let file = new_file(&clerk, "file").1;
    let error = clerk.lock(&root(), &request(file, 1, 0, 0), false);
    assert_eq!(error, Err(ClerkError::NoSession));
}

#[test]
fn what_others_wrote_before_a_lock_is_seen_under_it() {
    let cell = cell(1);
    let (one, two) = (cell.clerk(settings()), cell.clerk(settings()));
    let (here, file) = new_file(&one, "file");
    // Closed, and not durable: it is kept in case the drive loses it.
    let again = one.open(&root(), file, OpenMode { read: true, write: true }).unwrap().0;
    here.write(0, b"first").unwrap();
    here.close().unwrap();
    let there = two.open(&root(), file, OpenMode { read: true, write: true }).unwrap().0;
    let asked = request(file, 1, 0, 9);
    assert_eq!(two.lock(&root(), &asked, false), Ok(None));
    there.write(0, b"other").unwrap();
    two.unlock(&asked).unwrap();
    assert_eq!(one.lock(&root(), &asked, false), Ok(None));
    let mut data = [0; 5];
    assert_eq!(again.read(0, &mut data), Ok(5));
    assert_eq!(&data, b"other");
}
