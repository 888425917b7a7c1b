//! `fcntl` and `flock` between two mounts of a volume, and what is seen under them.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::world::World;

/// A lock on some bytes, as `fcntl` has it.
fn range(kind: i32, start: i64, length: i64) -> libc::flock {
    // SAFETY: a structure of numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = start;
    lock.l_len = length;
    lock
}

fn control(file: &File, command: i32, lock: &mut libc::flock) -> Result<(), i32> {
    // SAFETY: the descriptor is open, and the structure is the one that the commands want.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), command, lock) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

/// Open file description locks: owners are openings, so that one process can have several.
fn lock(file: &File, kind: i32, start: i64, length: i64) -> Result<(), i32> {
    control(file, libc::F_OFD_SETLK, &mut range(kind, start, length))
}

fn lock_when_free(file: &File, kind: i32, start: i64, length: i64) -> Result<(), i32> {
    control(file, libc::F_OFD_SETLKW, &mut range(kind, start, length))
}

fn flock(file: &File, operation: i32) -> Result<(), i32> {
    // SAFETY: the descriptor is open.
    let outcome = unsafe { libc::flock(file.as_raw_fd(), operation) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
}

fn open(world: &World) -> File {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(world.path("f"))
        .unwrap()
}

#[test]
fn byte_ranges_hold_between_mounts() {
    let one = World::new();
    let two = one.beside();
    let (here, there) = (open(&one), open(&two));
    assert_eq!(lock(&here, libc::F_WRLCK, 10, 10), Ok(()));
    assert_eq!(lock(&there, libc::F_WRLCK, 19, 1), Err(libc::EAGAIN));
    assert_eq!(lock(&there, libc::F_RDLCK, 19, 1), Err(libc::EAGAIN));
    assert_eq!(lock(&there, libc::F_WRLCK, 20, 0), Ok(()), "to the end");
    let mut other = range(libc::F_WRLCK, 0, 0);
    control(&here, libc::F_OFD_GETLK, &mut other).unwrap();
    assert_eq!((i32::from(other.l_type), other.l_start, other.l_len), (libc::F_WRLCK, 20, 0));
    assert_eq!(lock(&here, libc::F_RDLCK, 10, 10), Ok(()), "a weaker one");
    assert_eq!(lock(&there, libc::F_RDLCK, 0, 20), Ok(()));
    assert_eq!(lock(&here, libc::F_UNLCK, 0, 0), Ok(()));
    assert_eq!(lock(&there, libc::F_WRLCK, 0, 0), Ok(()));
    drop(there);
    let begin = Instant::now();
    while lock(&here, libc::F_WRLCK, 0, 0).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "closing unlocks");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn flock_holds_between_mounts_and_waits() {
    let one = World::new();
    let two = one.beside();
    let (here, there) = (open(&one), open(&two));
    assert_eq!(flock(&here, libc::LOCK_SH), Ok(()));
    assert_eq!(flock(&there, libc::LOCK_SH), Ok(()));
    assert_eq!(flock(&there, libc::LOCK_EX | libc::LOCK_NB), Err(libc::EAGAIN));
    // The two kinds don't see each other.
    assert_eq!(lock(&there, libc::F_WRLCK, 0, 0), Ok(()));
    assert_eq!(flock(&there, libc::LOCK_UN), Ok(()));
    let waiter = thread::spawn(move || flock(&there, libc::LOCK_EX));
    thread::sleep(Duration::from_millis(100));
    assert!(!waiter.is_finished());
    assert_eq!(flock(&here, libc::LOCK_UN), Ok(()));
    assert_eq!(waiter.join().unwrap(), Ok(()));
}

#[test]
fn a_counter_under_a_lock_counts_every_turn() {
    const TURNS: u64 = 60;
    let one = World::new();
    let two = one.beside();
    fs::write(one.path("f"), 0u64.to_le_bytes()).unwrap();
    let count = |world: &World| {
        let file = open(world);
        for _ in 0..TURNS {
            lock_when_free(&file, libc::F_WRLCK, 0, 0).unwrap();
            let mut number = [0; 8];
            file.read_exact_at(&mut number, 0).unwrap();
            let next = u64::from_le_bytes(number) + 1;
            file.write_all_at(&next.to_le_bytes(), 0).unwrap();
            lock(&file, libc::F_UNLCK, 0, 0).unwrap();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| count(&one));
        scope.spawn(|| count(&two));
    });
    let number = fs::read(one.path("f")).unwrap();
    assert_eq!(u64::from_le_bytes(number.try_into().unwrap()), 2 * TURNS);
}

#[test]
fn a_process_that_waits_for_a_lock_can_be_killed() {
    let one = World::new();
    let two = one.beside();
    let here = open(&one);
    assert_eq!(flock(&here, libc::LOCK_EX), Ok(()));
    let mut waiter = std::process::Command::new("flock")
        .arg(two.path("f"))
        .args(["-c", "true"])
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(200));
    assert!(waiter.try_wait().unwrap().is_none(), "it waits");
    waiter.kill().unwrap();
    let begin = Instant::now();
    assert!(!waiter.wait().unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(flock(&here, libc::LOCK_UN), Ok(()));
    assert_eq!(flock(&open(&two), libc::LOCK_EX | libc::LOCK_NB), Ok(()));
}
