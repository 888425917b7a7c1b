//! Bulk ways of open files of a mount: what is moved past the mount is what the mount shows, and the other way round.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use nasd_bulk_service::client::{BulkError, StripedFile, Way};
use nasd_protocol::Status;
use nasd_protocol::bulk::Options;
use support::{CellOptions, TestCell, noise, text, wait_until};

const WAY: u64 = 0xfe80_4e49;
const CHANGED: u64 = 0x4e4a;

const READ: u32 = 1;
const WRITE: u32 = 2;

/// Longer than a stripe of three units, and no multiple of anything.
const LENGTH: usize = (5 << 20) + 123;

fn direct(path: &Path, writes: bool) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(writes).custom_flags(libc::O_DIRECT);
    options.open(path).unwrap()
}

/// What the mount tells of the way to an open file.
fn way(file: &File, wanted: u32) -> io::Result<Way> {
    let mut room = vec![0_u8; 16_000];
    room[..4].copy_from_slice(&wanted.to_le_bytes());
    // SAFETY: the descriptor is open, and the memory is as long as the request's number says.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), WAY as libc::Ioctl, room.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = u32::from_le_bytes(*room.first_chunk().unwrap()) as usize;
    Ok(Way::from_text(std::str::from_utf8(&room[4..][..length]).unwrap()).unwrap())
}

fn tell_of_changes(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the request has no memory.
    match unsafe { libc::ioctl(file.as_raw_fd(), CHANGED as libc::Ioctl) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn options(wanted: u32) -> Options {
    let mut options = Options::empty();
    options.set(Options::READ, wanted & READ != 0);
    options.set(Options::WRITE, wanted & WRITE != 0);
    options
}

fn open(way: &Way, wanted: u32) -> Result<StripedFile, BulkError> {
    way.open(options(wanted), Duration::from_secs(20), 0)
}

fn read_all(file: &StripedFile, length: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; length + 9999];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

/// Others take their places.
fn kill_all_drives(cell: &TestCell) {
    for drive in ["drive-1", "drive-2", "drive-3"] {
        if cell.members().iter().any(|(_, line)| line.contains(drive)) {
            cell.kill_and_await(drive);
        }
    }
}

fn errno(outcome: io::Result<Way>) -> Option<i32> {
    outcome.map(|_| ()).unwrap_err().raw_os_error()
}

fn both_ways_agree(cell: &TestCell, width: usize) {
    let path = cell.path("file");
    let mut bytes = noise(1, LENGTH);
    std::fs::write(&path, &bytes).unwrap();
    let file = direct(&path, true);
    let told = way(&file, READ | WRITE).unwrap();
    assert_eq!(told.components.len(), width);
    let bulk = open(&told, READ | WRITE).unwrap();
    assert!(read_all(&bulk, LENGTH) == bytes, "what was written before");
    // Somebody who opens it while it may be written sees what is, each time that he looks.
    let other = File::open(&path).unwrap();
    for (number, (offset, length)) in
        [(0, 1), (524_287, 3), (1_000_001, 2_500_000), (LENGTH - 3, 700_000)]
            .into_iter()
            .enumerate()
    {
        let new = noise(10 + number as u64, length);
        bulk.write_at(&new, offset as u64).unwrap();
        bytes.resize(bytes.len().max(offset + length), 0);
        bytes[offset..offset + length].copy_from_slice(&new);
        let mut seen = vec![0; length];
        other.read_exact_at(&mut seen, offset as u64).unwrap();
        assert!(seen == new, "write {number} is seen by who has opened it meanwhile");
    }
    tell_of_changes(&file).unwrap();
    assert_eq!(other.metadata().unwrap().len(), bytes.len() as u64);
    // What comes by the mount is there for the way.
    let new = noise(99, 300_000);
    file.write_all_at(&new, 77).unwrap();
    bytes[77..77 + new.len()].copy_from_slice(&new);
    // Behind the end there is a hole, over all drives.
    bulk.write_at(b"end", (bytes.len() + 3_000_000) as u64).unwrap();
    bytes.resize(bytes.len() + 3_000_000, 0);
    bytes.extend(b"end");
    assert!(read_all(&bulk, bytes.len()) == bytes);
    assert_eq!(bulk.size().unwrap(), bytes.len() as u64);
    let mut middle = vec![1; 2_000_000];
    let hole = bytes.len() - 2_500_000;
    assert_eq!(bulk.read_at(&mut middle, hole as u64).unwrap(), middle.len());
    assert!(middle.iter().all(|byte| *byte == 0));
    assert_eq!(bulk.read_at(&mut middle, bytes.len() as u64 + 5).unwrap(), 0);
    bulk.sync().unwrap();
    drop((bulk, file, other));
    // Nobody told of the last changes; the opening's end did.
    wait_until("the mount shows all of it", || std::fs::read(&path).unwrap() == bytes);
}

#[test]
fn both_ways_agree_on_one_drive() {
    both_ways_agree(&TestCell::start(&CellOptions::default()), 1);
}

#[test]
fn both_ways_agree_on_several_drives() {
    both_ways_agree(&TestCell::start(&CellOptions::striped(3, "raid0")), 3);
}

#[test]
fn what_a_drive_has_answered_is_not_lost_with_it() {
    for options in [CellOptions::default(), CellOptions::striped(3, "raid0")] {
        let cell = TestCell::start(&options);
        let path = cell.path("file");
        std::fs::write(&path, noise(3, LENGTH)).unwrap();
        let file = direct(&path, true);
        let told = way(&file, READ | WRITE).unwrap();
        let bulk = open(&told, READ | WRITE).unwrap();
        let bytes = noise(4, LENGTH);
        bulk.write_at(&bytes, 0).unwrap();
        kill_all_drives(&cell);
        bulk.sync().unwrap();
        bulk.sync_all().unwrap();
        assert!(read_all(&bulk, LENGTH) == bytes);
        file.sync_all().unwrap();
        drop((bulk, file));
        assert!(std::fs::read(&path).unwrap() == bytes);
    }
}

#[test]
fn what_others_write_by_the_mount_is_read_by_the_way() {
    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    std::fs::write(&path, noise(1, 1 << 20)).unwrap();
    let file = direct(&path, false);
    let bulk = open(&way(&file, READ).unwrap(), READ).unwrap();
    let other = OpenOptions::new().write(true).open(&path).unwrap();
    for number in 0..20_u64 {
        let new = noise(number, 9000);
        other.write_all_at(&new, number * 40_000).unwrap();
        let mut seen = vec![0; new.len()];
        assert_eq!(bulk.read_at(&mut seen, number * 40_000).unwrap(), new.len());
        assert!(seen == new, "write {number}");
    }
}

#[test]
fn there_is_no_way_where_it_could_not_be_kept_right() {
    let copies = TestCell::start(&CellOptions::striped(2, "raid1"));
    std::fs::write(copies.path("file"), noise(1, LENGTH)).unwrap();
    let copied = direct(&copies.path("file"), true);
    assert_eq!(errno(way(&copied, READ)), Some(libc::EOPNOTSUPP));
    assert_eq!(errno(way(&copied, WRITE)), Some(libc::EOPNOTSUPP));

    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    std::fs::write(&path, noise(1, LENGTH)).unwrap();
    let cached = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert_eq!(errno(way(&cached, READ)), Some(libc::EOPNOTSUPP));
    let file = direct(&path, true);
    // The other opening may have pages.
    assert_eq!(errno(way(&file, WRITE)), Some(libc::EBUSY));
    assert!(way(&file, READ).is_ok());
    assert_eq!(tell_of_changes(&file).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    drop(cached);
    wait_until("the other one is closed", || way(&file, WRITE).is_ok());
    assert!(way(&file, 3).is_ok(), "it has one for writing already");
    assert!(way(&file, 7).is_ok(), "and another one");
    for nonsense in [0, 4, 8] {
        assert_eq!(errno(way(&file, nonsense)), Some(libc::EINVAL));
    }
}

#[test]
fn an_opening_that_was_closed_a_moment_ago_is_in_nobodys_way() {
    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    std::fs::write(&path, noise(1, LENGTH)).unwrap();
    for number in 0..100 {
        if number % 3 == 0 {
            // By way of the kernel's cache.
            assert_eq!(std::fs::read(&path).unwrap().len(), LENGTH);
        }
        let file = direct(&path, true);
        way(&file, READ | WRITE).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
}

/// Gets a way to read and write, at some moment when others may ask as well.
fn way_of_one(file: &File) -> Way {
    let mut told = None;
    wait_until("there is a way", || {
        told = way(file, READ | WRITE).ok();
        told.is_some()
    });
    told.unwrap()
}

#[test]
fn several_openings_may_be_written_past_the_mount() {
    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    let mut bytes = noise(1, LENGTH);
    std::fs::write(&path, &bytes).unwrap();
    // The kernel has no pages for who only writes.
    let beside = OpenOptions::new().write(true).open(&path).unwrap();
    let files = [direct(&path, true), direct(&path, true)];
    assert_eq!(errno(way(&files[0], WRITE)), Some(libc::EBUSY), "the other one may be mapped");
    let told = std::thread::scope(|scope| {
        let asking = files.each_ref().map(|file| scope.spawn(|| way_of_one(file)));
        asking.map(|asking| asking.join().unwrap())
    });
    let late = direct(&path, true);
    let told = [told[0].clone(), told[1].clone(), way(&late, READ | WRITE).unwrap()];
    let reader = File::open(&path).unwrap();
    let bulk = told.map(|told| open(&told, READ | WRITE).unwrap());
    for (number, bulk) in bulk.iter().enumerate().cycle().take(12) {
        let (at, new) = (number * 1_000_001, noise(20 + number as u64, 300_000));
        bulk.write_at(&new, at as u64).unwrap();
        bytes[at..at + new.len()].copy_from_slice(&new);
        let by_mount = noise(30 + number as u64, 100_000);
        beside.write_all_at(&by_mount, at as u64 + 400_000).unwrap();
        bytes[at + 400_000..at + 500_000].copy_from_slice(&by_mount);
        let mut seen = vec![0; bytes.len()];
        reader.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == bytes, "by the mount, after {number}");
    }
    for bulk in &bulk {
        assert!(read_all(bulk, LENGTH) == bytes);
    }
    drop((reader, bulk));
    let more = direct(&path, true);
    way_of_one(&more);
    // What one of them has mapped would stay as it is.
    assert_eq!(first_by_mapping(&files[0]), bytes[0]);
    let last = direct(&path, true);
    assert_eq!(errno(way(&last, WRITE)), Some(libc::EBUSY));
    drop((files, late, beside, more));
    way_of_one(&last);
    assert!(std::fs::read(&path).unwrap() == bytes);
}

/// A file's first byte, by a mapping for the moment.
fn first_by_mapping(file: &File) -> u8 {
    let (anywhere, flags) = (std::ptr::null_mut(), libc::MAP_PRIVATE);
    // SAFETY: the kernel finds a place for it.
    let page = unsafe { libc::mmap(anywhere, 4096, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert!(page != libc::MAP_FAILED, "{}", io::Error::last_os_error());
    // SAFETY: there are so many bytes, and nobody else knows of them.
    unsafe {
        let first = page.cast::<u8>().read_volatile();
        libc::munmap(page, 4096);
        first
    }
}

#[test]
fn a_way_allows_what_the_opening_does() {
    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    let bytes = noise(1, LENGTH);
    std::fs::write(&path, &bytes).unwrap();
    let armed = std::fs::Permissions::from_mode(0o4755);
    std::fs::set_permissions(&path, armed).unwrap();
    let file = direct(&path, false);
    assert_eq!(errno(way(&file, WRITE)), Some(libc::EBADF));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o4755, "who may only read changes nothing");
    let told = way(&file, READ).unwrap();
    let refused = open(&told, READ | WRITE).map(|_| ()).unwrap_err();
    assert!(
        matches!(refused, BulkError::Refused { status: Status::RefusedRights, .. }),
        "{refused}"
    );
    // What was given is taken back with everything that was: whoever may, gets another one.
    let bulk = open(&told, READ).unwrap();
    let revoked = cell.nasd(&["cap", "revoke", "main:/file"]);
    assert!(revoked.status.success(), "{}", text(&revoked));
    let mut byte = [0];
    let refused = bulk.read_at(&mut byte, 0).unwrap_err();
    assert!(refused.needs_new_capability(), "{refused}");
    wait_until("there is another one", || {
        way(&file, READ)
            .is_ok_and(|told| open(&told, READ).is_ok_and(|bulk| read_all(&bulk, LENGTH) == bytes))
    });
}
