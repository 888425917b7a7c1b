//! Names, links, modes and users.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use nasd_clerk::fake::FakeCell;

use crate::world::{DEADLINE, World, as_user, listed, same_file};

fn errno<T: std::fmt::Debug>(outcome: io::Result<T>) -> i32 {
    outcome.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn files_and_directories_are_made_moved_and_removed() {
    let world = World::new();
    fs::create_dir_all(world.path("a/b/c")).unwrap();
    fs::write(world.path("a/b/file"), "text").unwrap();
    assert_eq!(listed(&world.path("a/b")), ["c", "file"]);
    assert_eq!(errno(fs::create_dir(world.path("a"))), libc::EEXIST);
    assert_eq!(errno(fs::remove_dir(world.path("a/b"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_file(world.path("a/b"))), libc::EISDIR);
    assert_eq!(errno(fs::remove_dir(world.path("a/b/file"))), libc::ENOTDIR);
    assert_eq!(errno(fs::read(world.path("none"))), libc::ENOENT);
    assert_eq!(errno(fs::rename(world.path("a"), world.path("a/b/c/d"))), libc::EINVAL);
    fs::rename(world.path("a/b"), world.path("moved")).unwrap();
    assert_eq!(fs::read_to_string(world.path("moved/file")).unwrap(), "text");
    assert_eq!(listed(&world.path("a")), [""; 0]);
    fs::remove_dir_all(world.path("moved")).unwrap();
    fs::remove_dir(world.path("a")).unwrap();
    assert_eq!(listed(world.root()), [""; 0]);
    let long = "n".repeat(256);
    assert_eq!(errno(fs::write(world.path(&long), "")), libc::ENAMETOOLONG);
    fs::write(world.path(&long[1..]), "fits").unwrap();
    assert_eq!(fs::read(world.path(&long[1..])).unwrap(), b"fits");
}

#[test]
fn links_and_symbolic_links() {
    let world = World::new();
    fs::write(world.path("a"), "text").unwrap();
    fs::hard_link(world.path("a"), world.path("b")).unwrap();
    assert_eq!(fs::metadata(world.path("a")).unwrap().nlink(), 2);
    assert!(same_file(&world.path("a"), &world.path("b")));
    fs::remove_file(world.path("a")).unwrap();
    assert_eq!(fs::metadata(world.path("b")).unwrap().nlink(), 1);
    assert_eq!(fs::read_to_string(world.path("b")).unwrap(), "text");
    symlink("b", world.path("s")).unwrap();
    assert_eq!(fs::read_link(world.path("s")).unwrap(), Path::new("b"));
    assert_eq!(fs::read_to_string(world.path("s")).unwrap(), "text");
    assert!(fs::symlink_metadata(world.path("s")).unwrap().is_symlink());
    let long = format!("/{}", "t".repeat(4000));
    symlink(&long, world.path("long")).unwrap();
    assert_eq!(fs::read_link(world.path("long")).unwrap(), Path::new(&long));
}

fn rename2(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let from = CString::new(from.as_os_str().as_bytes()).unwrap();
    let to = CString::new(to.as_os_str().as_bytes()).unwrap();
    let here = libc::AT_FDCWD;
    // SAFETY: both names are strings that end with a NUL and live during the call.
    match unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn rename_replaces_unless_told_otherwise() {
    let world = World::new();
    fs::write(world.path("a"), "a").unwrap();
    fs::write(world.path("b"), "b").unwrap();
    let (a, b) = (world.path("a"), world.path("b"));
    assert_eq!(errno(rename2(&a, &b, libc::RENAME_NOREPLACE)), libc::EEXIST);
    assert_eq!(errno(rename2(&a, &b, libc::RENAME_WHITEOUT)), libc::EINVAL);
    assert_eq!(listed(world.root()), ["a", "b"]);
    rename2(&a, &world.path("c"), libc::RENAME_NOREPLACE).unwrap();
    fs::rename(world.path("c"), &b).unwrap();
    assert_eq!(listed(world.root()), ["b"]);
    assert_eq!(fs::read_to_string(&b).unwrap(), "a");
    fs::hard_link(&b, &a).unwrap();
    fs::rename(&a, &b).unwrap();
    assert_eq!(listed(world.root()), ["a", "b"], "two names of one file: nothing is done");
}

#[test]
fn modes_and_owners_are_kept_and_the_umask_is_heeded() {
    let world = World::new();
    let mut options = File::options();
    options.write(true).create(true).mode(0o640).open(world.path("a")).unwrap();
    assert_eq!(fs::metadata(world.path("a")).unwrap().mode(), libc::S_IFREG | 0o640);
    fs::set_permissions(world.path("a"), fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(world.path("a")).unwrap().mode() & 0o7777, 0o4711);
    std::os::unix::fs::chown(world.path("a"), Some(1234), Some(4321)).unwrap();
    let metadata = fs::metadata(world.path("a")).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1234, 4321));
    fs::DirBuilder::new().mode(0o750).create(world.path("d")).unwrap();
    assert_eq!(fs::metadata(world.path("d")).unwrap().mode(), libc::S_IFDIR | 0o750);
}

#[test]
fn each_request_has_the_rights_of_its_own_user() {
    // SAFETY: has no preconditions.
    assert_eq!(unsafe { libc::geteuid() }, 0, "this test changes users, and so needs root");
    let world = World::new();
    fs::set_permissions(world.mount().mountpoint(), fs::Permissions::from_mode(0o777)).unwrap();
    let open_parent = fs::Permissions::from_mode(0o755);
    fs::set_permissions(world.root().parent().unwrap(), open_parent).ok();
    let path = world.path("private");
    as_user(1001, 1001, || {
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        fs::write(&path, "secret").unwrap();
    });
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (1001, 1001));
    as_user(1002, 1002, || {
        assert_eq!(errno(fs::read(&path)), libc::EACCES);
        assert_eq!(errno(fs::set_permissions(&path, metadata.permissions())), libc::EPERM);
    });
    as_user(1001, 1001, || assert_eq!(fs::read(&path).unwrap(), b"secret"));
}

#[test]
fn numbers_are_the_same_in_every_mount() {
    let world = World::new();
    fs::create_dir(world.path("d")).unwrap();
    for name in ["a", "b", "d/c"] {
        fs::write(world.path(name), name).unwrap();
    }
    let other = world.beside();
    for name in ["a", "b", "d", "d/c"] {
        let one = fs::metadata(world.path(name)).unwrap().ino();
        assert_eq!(one, fs::metadata(other.path(name)).unwrap().ino(), "{name}");
    }
    assert_eq!(fs::metadata(world.root()).unwrap().ino(), 1);
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let cell = FakeCell::new(2, DEADLINE);
    let world = World::on(&cell, |_| {});
    fs::write(world.path("a"), "text").unwrap();
    let fixed = World::on(&cell, |options| options.read_only = true);
    assert_eq!(fs::read(fixed.path("a")).unwrap(), b"text");
    assert_eq!(errno(fs::write(fixed.path("b"), "")), libc::EROFS);
    assert_eq!(errno(fs::remove_file(fixed.path("a"))), libc::EROFS);
    assert_eq!(errno(File::options().write(true).open(fixed.path("a"))), libc::EROFS);
}

#[test]
fn room_is_told() {
    let world = World::new();
    let path = CString::new(world.root().as_os_str().as_bytes()).unwrap();
    // SAFETY: all-zero bytes are a valid `statvfs`.
    let mut room: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the name ends with a NUL, and `room` may be written.
    assert_eq!(unsafe { libc::statvfs(path.as_ptr(), &mut room) }, 0);
    assert_eq!(room.f_blocks * room.f_frsize, 2 << 40);
    assert!(room.f_bavail > 0 && room.f_files > 0 && room.f_namemax == 255);
}
