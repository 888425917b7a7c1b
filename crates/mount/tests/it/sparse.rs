//! Holes: made, found, and filled, in order with what is written.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::world::{World, pattern};

const MIB: usize = 1 << 20;

fn fallocate(file: &File, mode: i32, offset: usize, length: usize) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn seek(file: &File, offset: usize, whence: i32) -> io::Result<usize> {
    // SAFETY: the descriptor is open.
    match unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) } {
        -1 => Err(io::Error::last_os_error()),
        found => Ok(found as usize),
    }
}

fn open(world: &World, name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(world.path(name)).unwrap()
}

#[test]
fn holes_are_punched_and_found() {
    let world = World::new();
    let file = open(&world, "a");
    let mut data = pattern(5, 4 * MIB);
    file.write_all_at(&data, 0).unwrap();
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // What was written just now goes first, and what is written afterwards stays.
    fallocate(&file, punch, MIB, 2 * MIB).unwrap();
    data[MIB..3 * MIB].fill(0);
    file.write_all_at(b"new", 2 * MIB as u64).unwrap();
    data[2 * MIB..2 * MIB + 3].copy_from_slice(b"new");
    assert!(fs::read(world.path("a")).unwrap() == data);
    assert_eq!(seek(&file, 0, libc::SEEK_HOLE).unwrap(), MIB);
    assert_eq!(seek(&file, MIB, libc::SEEK_DATA).unwrap(), 2 * MIB);
    assert_eq!(seek(&file, 3 * MIB, libc::SEEK_HOLE).unwrap(), 4 * MIB);
    let beyond = seek(&file, 4 * MIB, libc::SEEK_DATA).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::ENXIO));
    file.sync_all().unwrap();
    assert!(world.durable("a") == data);
    let drive = world.cell.drive_of(world.handle("a"));
    drive.crash();
    assert!(fs::read(world.beside().path("a")).unwrap() == data, "nothing came back");
}

#[test]
fn ranges_are_made_zero_and_files_longer() {
    let world = World::new();
    let file = open(&world, "a");
    file.write_all_at(&[7; 10_000], 0).unwrap();
    fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 5000, 10_000).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 15_000);
    fallocate(&file, libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE, 14_000, 9000).unwrap();
    fallocate(&file, 0, 0, 20_000).unwrap();
    assert_eq!(file.metadata().unwrap().size(), 20_000);
    fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 0, 30_000).unwrap();
    let mut wanted = vec![7; 5000];
    wanted.resize(20_000, 0);
    assert!(fs::read(world.path("a")).unwrap() == wanted);
    let refused = |mode| fallocate(&file, mode, 0, 4096).unwrap_err().raw_os_error();
    assert_eq!(refused(libc::FALLOC_FL_COLLAPSE_RANGE), Some(libc::EOPNOTSUPP));
    assert_eq!(refused(libc::FALLOC_FL_INSERT_RANGE), Some(libc::EOPNOTSUPP));
}
