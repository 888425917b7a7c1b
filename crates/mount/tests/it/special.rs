//! Special files, names that change places, extended attributes.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nasd_mount::AccessTimes;

use crate::world::{World, as_user};

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn special_files_are_made_and_names_exchanged() {
    let world = World::new();
    let device = libc::makedev(8, 300);
    let kinds = [("fifo", libc::S_IFIFO, 0), ("block", libc::S_IFBLK, device)];
    for (name, kind, device) in kinds {
        let path = c(&world.path(name));
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mknod(path.as_ptr(), kind | 0o640, device) }, 0, "{name}");
    }
    assert!(fs::metadata(world.path("fifo")).unwrap().file_type().is_fifo());
    let block = fs::metadata(world.path("block")).unwrap();
    assert!(block.file_type().is_block_device() && block.rdev() == device);
    fs::write(world.path("file"), "data").unwrap();
    let (one, other) = (c(&world.path("file")), c(&world.path("fifo")));
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: both paths are C strings.
    let exchanged = unsafe { libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), flags) };
    assert_eq!(exchanged, 0);
    assert!(fs::metadata(world.path("file")).unwrap().file_type().is_fifo());
    assert_eq!(fs::read(world.path("fifo")).unwrap(), b"data");
    fs::remove_file(world.path("file")).unwrap();
    fs::remove_file(world.path("fifo")).unwrap();
}

#[test]
fn extended_attributes_are_kept() {
    let world = World::new();
    fs::write(world.path("a"), "").unwrap();
    let path = c(&world.path("a"));
    let set = |name: &std::ffi::CStr, value: &[u8], flags| {
        let (name, length) = (name.as_ptr(), value.len());
        // SAFETY: all pointers are to memory that lives through the call.
        let outcome =
            unsafe { libc::setxattr(path.as_ptr(), name, value.as_ptr().cast(), length, flags) };
        if outcome == 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
    };
    let get = |name: &std::ffi::CStr| {
        let mut value = [0_u8; 64];
        let (name, room) = (name.as_ptr(), value.len());
        // SAFETY: as above.
        let length =
            unsafe { libc::getxattr(path.as_ptr(), name, value.as_mut_ptr().cast(), room) };
        usize::try_from(length).ok().map(|length| value[..length].to_vec())
    };
    assert_eq!(get(c"user.color"), None);
    assert_eq!(set(c"user.color", b"red", libc::XATTR_REPLACE), Some(libc::ENODATA));
    assert_eq!(set(c"user.color", b"red", libc::XATTR_CREATE), None);
    assert_eq!(set(c"user.color", b"blue", libc::XATTR_CREATE), Some(libc::EEXIST));
    assert_eq!(get(c"user.color").as_deref(), Some(&b"red"[..]));
    assert_eq!(set(c"user.empty", b"", 0), None);
    let mut names = [0_u8; 64];
    // SAFETY: as above.
    let length = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), 64) };
    assert_eq!(usize::try_from(length), Ok(b"user.color\0user.empty\0".len()));
    // SAFETY: as above.
    assert_eq!(unsafe { libc::removexattr(path.as_ptr(), c"user.color".as_ptr()) }, 0);
    assert_eq!(get(c"user.color"), None);
}

fn exchange(one: &Path, other: &Path) {
    let (one, other) = (c(one), c(other));
    let (here, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: both paths are C strings.
    assert_eq!(unsafe { libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), flags) }, 0);
}

#[test]
fn open_files_and_directories_change_places() {
    let world = World::new();
    fs::create_dir_all(world.path("a/in")).unwrap();
    fs::create_dir(world.path("b")).unwrap();
    fs::write(world.path("a/in/file"), "one").unwrap();
    fs::write(world.path("b/file"), "two").unwrap();
    let mut open = fs::File::options().append(true).open(world.path("b/file")).unwrap();
    exchange(&world.path("a/in"), &world.path("b/file"));
    assert_eq!(fs::read(world.path("a/in")).unwrap(), b"two");
    assert_eq!(fs::read(world.path("b/file/file")).unwrap(), b"one");
    let parent = fs::metadata(world.path("b/file/..")).unwrap().ino();
    assert_eq!(parent, fs::metadata(world.path("b")).unwrap().ino());
    // It is its new name that is removed, and it stays open.
    open.write_all(b" more").unwrap();
    fs::remove_file(world.path("a/in")).unwrap();
    open.write_all(b" and more").unwrap();
    assert_eq!(open.metadata().unwrap().len(), 17);
    assert_eq!(fs::read(world.path("b/file/file")).unwrap(), b"one");
    fs::remove_dir(world.path("a")).unwrap();
}

/// Whoever writes: who may keep set-user-ID bits, and who may not.
#[test]
fn the_manager_is_asked_nothing_while_a_file_is_written() {
    for uid in [0, 1001] {
        let world = World::new();
        let path = world.path("file");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(b"begin").unwrap();
        let requests = || world.cell.manager_requests.load(Ordering::Relaxed);
        let before = as_user(uid, uid, || {
            // Of whoever is new it is asked once.
            file.metadata().unwrap();
            let before = requests();
            // Longer than the kernel believes attributes; the length is asked for in between.
            let end = Instant::now() + Duration::from_millis(2500);
            while Instant::now() < end {
                for _ in 0..20 {
                    file.write_all(&[7; 100]).unwrap();
                }
                file.metadata().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
            before
        });
        assert_eq!(requests(), before, "user {uid}");
    }
}

#[test]
fn access_times_are_told_by_the_rule_of_the_mount() {
    let rules = [AccessTimes::Never, AccessTimes::Relative, AccessTimes::Strict];
    for (rule, moves) in rules.into_iter().zip([[false; 2], [true, false], [true; 2]]) {
        let mut world = World::new();
        fs::write(world.path("file"), "text").unwrap();
        for expected in moves {
            world = {
                let cell = std::sync::Arc::clone(&world.cell);
                let access_time = |world: &World| {
                    let found = fs::metadata(world.path("file")).unwrap();
                    (found.atime(), found.atime_nsec())
                };
                let before = access_time(&world);
                world.stop().unwrap();
                let reader = World::on(&cell, |options| options.access_times = rule);
                assert_eq!(fs::read(reader.path("file")).unwrap(), b"text");
                reader.stop().unwrap();
                let after = World::on(&cell, |_| {});
                let moved = access_time(&after) > before;
                assert_eq!(moved, expected, "{rule:?}");
                after
            };
        }
    }
}
