//! Files mapped into memory.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::ptr;

use crate::world::{World, pattern};

/// A shared mapping of the start of a file.
struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn new(file: &File, length: usize, writable: bool) -> Self {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping at a place that the system chooses touches nothing that is.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Mapping { start: start.cast(), length }
    }

    fn read(&self) -> Vec<u8> {
        // SAFETY: the mapping is `length` long and lives as long as `self`; it is read once, into
        // an array, so that it does not matter if others write it.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.to_vec()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.length);
        // SAFETY: it is within the mapping, which is writable in those tests that write.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len()) };
    }

    fn sync(&self) {
        // SAFETY: it is a mapping of this length.
        let status = unsafe { libc::msync(self.start.cast(), self.length, libc::MS_SYNC) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is a mapping of this length, and nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

#[test]
fn a_mapping_shows_what_is_written_by_others_and_before() {
    let world = World::new();
    let data = pattern(1, 1 << 20);
    fs::write(world.path("a"), &data).unwrap();
    let file = File::options().read(true).write(true).open(world.path("a")).unwrap();
    let mapping = Mapping::new(&file, data.len(), false);
    assert!(mapping.read() == data);
    file.write_all_at(b"changed", 70_000).unwrap();
    assert_eq!(&mapping.read()[70_000..70_007], b"changed");
}

#[test]
fn what_is_written_to_a_mapping_is_read_and_becomes_durable() {
    let world = World::new();
    let data = pattern(2, 1 << 20);
    fs::write(world.path("a"), &data).unwrap();
    let file = File::options().read(true).write(true).open(world.path("a")).unwrap();
    let mapping = Mapping::new(&file, data.len(), true);
    mapping.write(5000, b"by mmap");
    let mut bytes = [0; 7];
    file.read_exact_at(&mut bytes, 5000).unwrap();
    assert_eq!(&bytes, b"by mmap");
    mapping.sync();
    assert_eq!(&world.durable("a")[5000..5007], b"by mmap", "after msync");
    mapping.write(900_000, b"after close");
    drop(file);
    drop(mapping);
    let other = world.beside();
    world.clerk.sync_all().unwrap();
    let all = fs::read(other.path("a")).unwrap();
    assert_eq!(&all[900_000..900_011], b"after close");
    assert!(all[..5000] == data[..5000]);
}

#[test]
fn files_around_the_page_cache_can_be_mapped_too() {
    let world = World::new();
    let data = pattern(3, 256 << 10);
    fs::write(world.path("a"), &data).unwrap();
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_DIRECT);
    let file = options.open(world.path("a")).unwrap();
    let mapping = Mapping::new(&file, data.len(), true);
    assert!(mapping.read() == data);
    mapping.write(0, b"mapped");
    mapping.sync();
    let mut bytes = vec![0; 4096];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes[..6], b"mapped");
}
