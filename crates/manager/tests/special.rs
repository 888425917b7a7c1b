//! Named pipes, sockets and devices; names that change places; times of what is renamed and read.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::Arc;

use nasd_manager::namespace::Node;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{
    Device, FileAccess, FileAttributes, FileHandle, FileType, ManagerStatus, NewMode, RenameFlags,
    SetFileAttributes,
};
use nasd_types::{Rights, Timestamp};

use support::{open, root, user, walk};

use ManagerStatus::{Access, Exists, Invalid, IsDirectory, NotEmpty, NotFound, Permission, Stale};

fn volume() -> Namespace {
    let names = open(Arc::new(MemoryDrives::new(2)));
    let open = SetFileAttributes { mode: Some(0o777), ..Default::default() };
    names.setattr(&root(), names.root(), &open).unwrap();
    names
}

fn node(file_type: FileType, major: u32, minor: u32) -> Node {
    Node { file_type, mode: NewMode::from(0o666), device: Device { major, minor } }
}

fn attributes(names: &Namespace, path: &str) -> FileAttributes {
    walk(names, path).unwrap().attributes
}

#[test]
fn special_files_are_names_alone() {
    let names = volume();
    let dir = names.root();
    for (name, file_type) in [("fifo", FileType::Fifo), ("socket", FileType::Socket)] {
        let made = names.mknod(&user(7), dir, name.as_bytes(), node(file_type, 3, 4)).unwrap();
        assert_eq!(made.attributes.file_type, file_type);
        assert_eq!(made.attributes.device, Device::NONE, "it is no device");
        assert_eq!(made.capability.capability.rights, Rights::GETATTR);
        let cut = SetFileAttributes { size: Some(0), ..Default::default() };
        assert_eq!(names.setattr(&user(7), made.handle, &cut).map(drop), Err(Invalid));
    }
    for (name, file_type) in [("disk", FileType::BlockDevice), ("tty", FileType::CharacterDevice)] {
        let refused = names.mknod(&user(7), dir, name.as_bytes(), node(file_type, 8, 1));
        assert_eq!(refused.map(drop), Err(Permission));
        names.mknod(&root(), dir, name.as_bytes(), node(file_type, 0xfff, 0xf_ffff)).unwrap();
        let found = attributes(&names, name);
        assert_eq!((found.file_type, found.links), (file_type, 1));
        assert_eq!(found.device, Device { major: 0xfff, minor: 0xf_ffff });
        let again = names.mknod(&user(7), dir, name.as_bytes(), node(file_type, 8, 1));
        assert_eq!(again.map(drop), Err(Exists), "that there is one is told first");
    }
    let whiteout = node(FileType::CharacterDevice, 0, 0);
    names.mknod(&user(7), dir, b"whiteout", whiteout).unwrap();
    let file = names.mknod(&user(7), dir, b"file", node(FileType::Regular, 1, 1)).unwrap();
    assert!(file.capability.capability.rights.contains(Rights::WRITE));
    let directory = names.mknod(&root(), dir, b"d", node(FileType::Directory, 0, 0));
    assert_eq!(directory.map(drop), Err(Permission));
    // They are renamed, linked and removed like others.
    let fifo = walk(&names, "fifo").unwrap().handle;
    names.link(&user(7), fifo, dir, b"pipe").unwrap();
    names.rename(&user(7), (dir, b"pipe"), (dir, b"tty"), RenameFlags::NONE).unwrap();
    assert_eq!(attributes(&names, "tty").file_type, FileType::Fifo);
    names.unlink(&user(7), dir, b"fifo").unwrap();
    assert_eq!(attributes(&names, "tty").links, 1);
}

struct Tree {
    names: Namespace,
    a: FileHandle,
    b: FileHandle,
}

/// `a/file`, `a/sub/deep`, `b/other` and `b/dir`, of user 7.
fn tree() -> Tree {
    let names = volume();
    let me = user(7);
    let a = names.mkdir(&me, names.root(), b"a", 0o755).unwrap().handle;
    let b = names.mkdir(&me, names.root(), b"b", 0o755).unwrap().handle;
    names.create(&me, a, b"file", 0o600, true).unwrap();
    let sub = names.mkdir(&me, a, b"sub", 0o755).unwrap().handle;
    names.mkdir(&me, sub, b"deep", 0o755).unwrap();
    names.create(&me, b, b"other", 0o640, true).unwrap();
    names.mkdir(&me, b, b"dir", 0o755).unwrap();
    Tree { names, a, b }
}

impl Tree {
    fn exchange(
        &self,
        caller: &Caller,
        from: (FileHandle, &str),
        to: (FileHandle, &str),
    ) -> Outcome {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        self.names.rename(caller, from, to, RenameFlags::EXCHANGE)
    }
}

type Outcome = Result<(), ManagerStatus>;

#[test]
fn two_names_change_places() {
    let Tree { names, a, b } = &tree();
    let of = |path: &str| walk(names, path).unwrap().handle;
    let exchange = |from: (FileHandle, &[u8]), to: (FileHandle, &[u8])| {
        names.rename(&user(7), from, to, RenameFlags::EXCHANGE)
    };
    let (file, other, sub, dir) = (of("a/file"), of("b/other"), of("a/sub"), of("b/dir"));
    exchange((*a, b"file"), (*b, b"other")).unwrap();
    assert_eq!((of("a/file"), of("b/other")), (other, file));
    // A directory and a file: each is what it was, and knows where it is.
    exchange((*a, b"sub"), (*b, b"other")).unwrap();
    assert_eq!((of("a/sub"), of("b/other"), of("b/other/..")), (file, sub, *b));
    assert_eq!((attributes(names, "a").links, attributes(names, "b").links), (2, 4));
    exchange((*b, b"other"), (*b, b"dir")).unwrap();
    assert_eq!((of("b/other"), of("b/dir"), of("b/dir/deep/..")), (dir, sub, sub));
    // With itself, and within one directory.
    exchange((*b, b"dir"), (*b, b"dir")).unwrap();
    exchange((*a, b"sub"), (*a, b"file")).unwrap();
    assert_eq!((of("a/sub"), of("a/file")), (other, file));
}

#[test]
fn exchanges_keep_to_the_rules() {
    let tree = tree();
    let (me, stranger) = (user(7), user(9));
    let (a, b, top) = (tree.a, tree.b, tree.names.root());
    let sub = walk(&tree.names, "a/sub").unwrap().handle;
    assert_eq!(tree.exchange(&me, (a, "none"), (b, "other")), Err(NotFound));
    assert_eq!(tree.exchange(&me, (a, "file"), (b, "none")), Err(NotFound));
    let both = RenameFlags(3);
    assert_eq!(tree.names.rename(&me, (a, b"file"), (b, b"other"), both), Err(Invalid));
    // Nothing goes into itself, from either side.
    assert_eq!(tree.exchange(&me, (top, "a"), (sub, "deep")), Err(Invalid));
    assert_eq!(tree.exchange(&me, (sub, "deep"), (top, "a")), Err(Invalid));
    assert_eq!(tree.exchange(&stranger, (a, "file"), (b, "other")), Err(Access));
    // A sticky directory protects both.
    let sticky = SetFileAttributes { mode: Some(0o1777), ..Default::default() };
    tree.names.setattr(&root(), top, &sticky).unwrap();
    tree.names.create(&stranger, top, b"theirs", 0o600, true).unwrap();
    tree.names.create(&me, top, b"mine", 0o600, true).unwrap();
    assert_eq!(tree.exchange(&stranger, (top, "theirs"), (top, "mine")), Err(Permission));
    assert_eq!(tree.exchange(&stranger, (top, "mine"), (top, "theirs")), Err(Permission));
    assert_eq!(tree.exchange(&root(), (top, "mine"), (top, "theirs")), Ok(()));
}

#[test]
fn nothing_replaces_a_directory_above_it() {
    let tree = tree();
    let (me, sub) = (user(7), walk(&tree.names, "a/sub").unwrap().handle);
    let rename = |from: (FileHandle, &[u8]), to: (FileHandle, &[u8])| {
        tree.names.rename(&me, from, to, RenameFlags::NONE)
    };
    let top = tree.names.root();
    assert_eq!(rename((sub, b"deep"), (top, b"a")), Err(NotEmpty));
    assert_eq!(rename((tree.a, b"file"), (top, b"a")), Err(NotEmpty));
    assert_eq!(rename((top, b"a"), (sub, b"deep")), Err(Invalid));
    assert_eq!(rename((tree.a, b"file"), (tree.b, b"dir")), Err(IsDirectory));
}

#[test]
fn renames_and_links_move_the_change_time_of_the_file() {
    let tree = tree();
    let (names, me) = (&tree.names, user(7));
    let file = walk(names, "a/file").unwrap().handle;
    let now = || names.getattr(&me, file).unwrap().attributes;
    let mut last = now();
    let mut expect_change = |what: &str| {
        let found = now();
        assert!(found.change_time > last.change_time, "{what}");
        assert_eq!(found.modify_time, last.modify_time, "{what}");
        assert!(found.revision > last.revision, "{what}");
        last = found;
    };
    names.rename(&me, (tree.a, b"file"), (tree.a, b"again"), RenameFlags::NONE).unwrap();
    expect_change("renamed in its directory");
    names.rename(&me, (tree.a, b"again"), (tree.b, b"file"), RenameFlags::NONE).unwrap();
    expect_change("moved to another");
    names.rename(&me, (tree.b, b"file"), (tree.b, b"other"), RenameFlags::EXCHANGE).unwrap();
    expect_change("exchanged");
    names.link(&me, file, tree.a, b"second").unwrap();
    expect_change("linked");
    names.unlink(&me, tree.a, b"second").unwrap();
    expect_change("unlinked");
    let chmod = SetFileAttributes { mode: Some(0o600), ..Default::default() };
    names.setattr(&me, file, &chmod).unwrap();
    expect_change("the mode set to what it was");
}

#[test]
fn access_times_rise_and_never_fall() {
    let tree = tree();
    let (names, me, reader) = (&tree.names, user(7), user(9));
    let file = walk(names, "b/other").unwrap().handle;
    let now = || names.getattr(&me, file).unwrap().attributes;
    let before = now();
    let later = before.access_time.plus_ns(10);
    let told = |caller: &Caller, time| {
        names.accessed(caller, &[FileAccess { file, time }]).unwrap();
        now().access_time
    };
    assert_eq!(told(&reader, later), before.access_time, "who may not read it is passed over");
    assert_eq!(told(&me, later), later);
    assert_eq!(told(&me, before.access_time), later, "it never falls");
    assert!(told(&me, Timestamp::MAX) < Timestamp(u64::MAX / 2), "no further than the present");
    let after = now();
    assert_eq!((after.change_time, after.modify_time), (before.change_time, before.modify_time));
    assert!(after.revision > before.revision);
    // What is gone does not keep the others from it.
    let gone = FileHandle { object: nasd_types::ObjectId(1 << 40), ..file };
    let sub = walk(names, "a/sub").unwrap().handle;
    let time = Timestamp::MAX;
    let both = [FileAccess { file: gone, time }, FileAccess { file: sub, time }];
    let before = attributes(names, "a/sub").access_time;
    names.accessed(&me, &both).unwrap();
    assert!(attributes(names, "a/sub").access_time > before);
    assert_eq!(names.getattr(&me, gone).map(drop), Err(Stale));
}

/// As Linux tells them apart: times that are given, the present one, and the present one of both.
#[test]
fn times_are_set_as_linux_allows() {
    let tree = tree();
    let names = &tree.names;
    let writable = SetFileAttributes { mode: Some(0o666), ..Default::default() };
    let (file, closed) =
        (walk(names, "a/file").unwrap().handle, walk(names, "b/other").unwrap().handle);
    names.setattr(&user(7), file, &writable).unwrap();
    let set = |caller: &Caller, file, changes: SetFileAttributes| {
        names.setattr(caller, file, &changes).map(drop)
    };
    let none = SetFileAttributes::default();
    let both = SetFileAttributes { access_time_now: true, modify_time_now: true, ..none };
    let one = SetFileAttributes { access_time_now: true, ..none };
    let given = SetFileAttributes { modify_time: Some(Timestamp(5)), ..none };
    let writer = user(9);
    assert_eq!(set(&writer, file, both), Ok(()));
    assert_eq!(set(&writer, closed, both), Err(Access));
    assert_eq!(set(&writer, file, one), Err(Permission));
    assert_eq!(set(&writer, file, given), Err(Permission));
    assert_eq!(set(&user(7), file, given), Ok(()));
    assert_eq!(set(&root(), closed, one), Ok(()));
    let cut = SetFileAttributes { size: Some(3), modify_time_now: true, ..none };
    assert_eq!(set(&writer, file, cut), Ok(()));
}
