//! Mounting, unmounting, and what may be in the way.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nasd_clerk::fake::FakeCell;
use nasd_mount::{Mount, MountError, MountOptions, unmount};

use crate::world::{DEADLINE, World, eventually, settings};

const CHILD: &str = "NASD_TEST_CHILD_MOUNTPOINT";

fn is_mounted(path: &std::path::Path) -> bool {
    let path = path.to_str().unwrap();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == Some(path))
}

fn start(path: impl Into<PathBuf>) -> Result<Mount, MountError> {
    let cell = FakeCell::new(1, DEADLINE);
    Mount::start(Arc::new(cell.clerk(settings())), MountOptions::new(path))
}

#[test]
fn the_mount_tells_what_it_is() {
    let world = World::new();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = world.root().to_str().unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(path)).unwrap();
    assert!(line.contains(" - fuse.nasd nasd "), "{line}");
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    assert!(line.contains("default_permissions"), "{line}");
}

#[test]
fn unmounting_from_outside_ends_the_wait() {
    let world = World::new();
    let path = world.root().to_owned();
    fs::write(world.path("a"), "text").unwrap();
    let cell = Arc::clone(&world.cell);
    let handle = world.handle("a");
    let waiting = thread::spawn(move || world.wait());
    assert!(is_mounted(&path));
    unmount(&path).unwrap();
    assert!(!is_mounted(&path));
    waiting.join().unwrap().unwrap();
    assert_eq!(cell.drive_of(handle).durable_bytes(handle.object).unwrap(), b"text");
    let again = unmount(&path);
    assert!(matches!(again, Err(MountError::NotMounted { .. })), "{again:?}");
}

#[test]
fn unmount_returns_after_the_serving_process_has_drained() {
    let cell = FakeCell::new(1, DEADLINE);
    let dir = tempfile::tempdir().unwrap();
    let clerk = Arc::new(cell.clerk(settings()));
    let mount = Mount::start(clerk, MountOptions::new(dir.path())).unwrap();
    let unmounting = thread::spawn({
        let path = dir.path().to_owned();
        move || unmount(&path)
    });
    eventually("the unmount", || !is_mounted(dir.path()));
    thread::sleep(Duration::from_millis(300));
    assert!(!unmounting.is_finished(), "the mount has not drained");
    mount.wait().unwrap();
    unmounting.join().unwrap().unwrap();
}

#[test]
fn a_busy_mount_is_not_unmounted_and_says_so() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    let busy = unmount(world.root());
    assert!(matches!(busy, Err(MountError::Busy(_))), "{busy:?}");
    file.write_all(b"works on").unwrap();
    drop(file);
    assert_eq!(fs::read(world.path("a")).unwrap(), b"works on");
    let path = world.root().to_owned();
    world.stop().unwrap();
    assert!(!is_mounted(&path));
}

#[test]
fn stopping_a_busy_mount_keeps_what_was_written() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    file.write_all(b"written").unwrap();
    let (cell, handle) = (Arc::clone(&world.cell), world.handle("a"));
    let stopper = world.mount().handle();
    let path = world.root().to_owned();
    let stopping = thread::spawn(move || stopper.stop());
    world.wait().unwrap();
    stopping.join().unwrap().unwrap();
    assert!(!is_mounted(&path));
    assert!(file.write_all(b"lost").is_err());
    assert_eq!(cell.drive_of(handle).durable_bytes(handle.object).unwrap(), b"written");
}

#[test]
fn stopping_twice_and_after_the_end_is_fine() {
    let world = World::new();
    let stopper = world.mount().handle();
    stopper.stop().unwrap();
    stopper.stop().unwrap();
    world.wait().unwrap();
    stopper.stop().unwrap();
}

#[test]
fn dropping_unmounts() {
    let dir = tempfile::tempdir().unwrap();
    let mount = start(dir.path()).unwrap();
    assert!(is_mounted(dir.path()));
    drop(mount);
    assert!(!is_mounted(dir.path()));
}

#[test]
fn what_is_in_the_way_is_told_by_type() {
    let dir = tempfile::tempdir().unwrap();
    let missing = start(dir.path().join("missing")).err().unwrap();
    assert!(matches!(missing, MountError::NoMountpoint(_)), "{missing}");
    assert!(missing.to_string().contains("mkdir -p"), "{missing}");
    fs::write(dir.path().join("file"), "").unwrap();
    let file = start(dir.path().join("file")).err().unwrap();
    assert!(matches!(file, MountError::NotDirectory(_)), "{file}");
    let world = World::new();
    let twice = start(world.root()).err().unwrap();
    assert!(matches!(twice, MountError::AlreadyMounted { .. }), "{twice}");
    assert!(world.path(".").is_dir(), "and the first one lives");
    let never = unmount(dir.path()).unwrap_err();
    assert!(matches!(never, MountError::NotMounted { .. }), "{never}");
    let proc = unmount(std::path::Path::new("/proc")).unwrap_err();
    assert!(proc.to_string().contains("type proc"), "{proc}");
}

/// Not a test: the process that `a_dead_mount_is_replaced` starts and that dies.
#[test]
#[ignore = "only run as a process of its own"]
fn child_that_dies() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    std::mem::forget(start(path).unwrap());
    std::process::abort();
}

fn leave_a_dead_mount(path: &std::path::Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mounting::child_that_dies", "--ignored"])
        .env(CHILD, path)
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
    let error = fs::metadata(path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN), "{error}");
}

#[test]
fn a_dead_mount_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    leave_a_dead_mount(dir.path());
    let mount = start(dir.path()).unwrap();
    fs::write(dir.path().join("a"), "alive").unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"alive");
    mount.stop().unwrap();
    assert!(!is_mounted(dir.path()), "and nothing is left below");
}

#[test]
fn a_dead_mount_can_be_unmounted() {
    let dir = tempfile::tempdir().unwrap();
    leave_a_dead_mount(dir.path());
    unmount(dir.path()).unwrap();
    assert!(!is_mounted(dir.path()));
}
