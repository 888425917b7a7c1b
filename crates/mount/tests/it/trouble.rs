//! Drives and managers that are away, full or broken.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::Status;
use nasd_clerk::fake::FakeCell;

use crate::world::{DEADLINE, World, pattern};

/// Closes a file and tells how that went, which `drop` does not.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor is owned by nobody any more.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a file on the drive of this number.
fn place(world: &World, drive: usize, name: &str, data: &[u8]) {
    world.cell.place_on(drive);
    fs::write(world.path(name), data).unwrap();
}

#[test]
fn a_drive_that_is_away_does_not_freeze_the_files_of_others() {
    let world = World::on(&FakeCell::new(2, DEADLINE), |options| options.threads = Some(2));
    let data = pattern(1, 4 << 20);
    place(&world, 0, "near", &data);
    place(&world, 1, "far", &data);
    place(&world, 1, "far2", b"x");
    // Nothing of them is in the kernel's cache of this mount.
    let other = world.beside();
    let far = File::open(other.path("far")).unwrap();
    let far2 = File::open(other.path("far2")).unwrap();
    thread::sleep(Duration::from_millis(1100));
    world.cell.drive(1).set_reachable(false);
    thread::scope(|scope| {
        // More than there are session threads.
        let mut stuck = Vec::new();
        for number in 0..24 {
            let (far, far2) = (&far, &far2);
            stuck.push(scope.spawn(move || {
                if number % 2 == 0 {
                    let mut bytes = vec![0; 65536];
                    far.read_exact_at(&mut bytes, number * 131_072).is_ok()
                } else {
                    // Their attributes are too old to be believed.
                    far2.metadata().is_ok()
                }
            }));
        }
        thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        assert!(fs::read(other.path("near")).unwrap() == data);
        world.cell.place_on(0);
        fs::write(other.path("new"), &data).unwrap();
        fs::rename(other.path("new"), other.path("newer")).unwrap();
        assert_eq!(fs::read_dir(other.root()).unwrap().count(), 4);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(stuck.iter().all(|one| !one.is_finished()), "they wait");
        world.cell.drive(1).set_reachable(true);
        assert!(stuck.into_iter().all(|one| one.join().unwrap()), "and go on");
    });
}

#[test]
fn operations_wait_for_a_manager_that_is_away_and_open_files_go_on() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    // From here on its name is durable.
    file.sync_all().unwrap();
    world.cell.set_manager_runs(false);
    file.write_all(&[1; 100_000]).unwrap();
    file.sync_all().unwrap();
    let path = world.path("b");
    let making = thread::spawn(move || fs::write(path, "made"));
    thread::sleep(Duration::from_millis(200));
    assert!(!making.is_finished());
    file.write_all(&[2; 100_000]).unwrap();
    file.sync_all().unwrap();
    world.cell.set_manager_runs(true);
    making.join().unwrap().unwrap();
    assert_eq!(fs::read(world.path("b")).unwrap(), b"made");
}

#[test]
fn a_full_drive_is_told_to_the_writer() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    let drive = world.cell.drive_of(world.handle("a"));
    drive.set_capacity(1 << 20);
    file.write_all(&[1; 100_000]).unwrap();
    file.sync_all().unwrap();
    let data = vec![2; 8 << 20];
    let written = file.write_all(&data).and_then(|()| file.sync_all());
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    close(file).unwrap();
    let mut file = File::options().append(true).open(world.path("a")).unwrap();
    let written = file.write_all(&data);
    let closed = close(file);
    let error = written.and(closed).expect_err("write or close tells");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    drive.set_capacity(u64::MAX);
    fs::write(world.path("a"), "fits again").unwrap();
    assert_eq!(world.durable("a"), b"fits again");
}

#[test]
fn a_broken_drive_is_told_by_fsync_and_by_close() {
    let world = World::new();
    let mut by_fsync = File::create(world.path("a")).unwrap();
    let mut by_close = File::create(world.path("b")).unwrap();
    for drive in 0..2 {
        world.cell.drive(drive).fail_writes(Some(Status::MediumError));
    }
    by_fsync.write_all(b"lost").unwrap();
    assert_eq!(by_fsync.sync_all().unwrap_err().raw_os_error(), Some(libc::EIO));
    by_close.write_all(b"lost").unwrap();
    assert_eq!(close(by_close).unwrap_err().raw_os_error(), Some(libc::EIO));
    for drive in 0..2 {
        world.cell.drive(drive).fail_writes(None);
    }
    by_fsync.write_all(b" kept").unwrap();
    by_fsync.sync_all().unwrap();
}

#[test]
fn a_drive_that_stays_away_is_an_error_in_the_end() {
    let cell = FakeCell::new(1, Duration::from_millis(300));
    let world = World::on(&cell, |_| {});
    fs::write(world.path("a"), pattern(1, 1 << 20)).unwrap();
    let other = world.beside();
    let file = File::open(other.path("a")).unwrap();
    cell.drive(0).set_reachable(false);
    let mut bytes = [0; 4096];
    let read = file.read_at(&mut bytes, 0);
    assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EIO));
    cell.drive(0).set_reachable(true);
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes[..] == pattern(1, 4096));
}

#[test]
fn writes_go_on_when_capabilities_expire() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    let data = pattern(1, 2 << 20);
    for part in data.chunks(300_000) {
        file.write_all(part).unwrap();
        file.sync_all().unwrap();
        world.cell.expire_capabilities();
    }
    assert!(fs::read(world.path("a")).unwrap() == data);
}

#[test]
fn small_writes_are_gathered_before_they_are_sent() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    for _ in 0..1000 {
        file.write_all(&[3; 1000]).unwrap();
    }
    drop(file);
    let counters = &world.cell.drive_of(world.handle("a")).counters;
    let writes = counters.writes.load(Ordering::Relaxed);
    assert!(writes < 100, "{writes} requests for 1000 writes");
}

#[test]
fn stopping_waits_for_what_is_written() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    let drive_number =
        usize::from(!std::ptr::eq(world.cell.drive_of(world.handle("a")), world.cell.drive(0)));
    let cell = std::sync::Arc::clone(&world.cell);
    let handle = world.handle("a");
    file.write_all(b"unsent").unwrap();
    cell.drive(drive_number).set_reachable(false);
    file.write_all(b" and more").unwrap();
    let (tell, told) = mpsc::channel();
    let stopping = thread::spawn(move || tell.send(world.stop()));
    assert!(told.recv_timeout(Duration::from_secs(4)).is_err(), "it waits for the drive");
    cell.drive(drive_number).set_reachable(true);
    stopping.join().unwrap().unwrap();
    told.recv().unwrap().unwrap();
    let durable = cell.drive(drive_number).durable_bytes(handle.object).unwrap();
    assert_eq!(durable, b"unsent and more");
}
