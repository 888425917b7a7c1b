//! Names and paths.

use std::sync::atomic::Ordering;

use super::{cell, name, new_file, root, settings, user};
use crate::{ClerkError, FileType, ManagerStatus, OpenMode, RenameFlags};

#[test]
fn paths_are_resolved_through_links() {
    let cell = cell(2);
    let clerk = cell.clerk(settings());
    let caller = root();
    let a = clerk.mkdir(&caller, clerk.root(), &name("a"), 0o755).unwrap();
    let b = clerk.mkdir(&caller, a.handle, &name("b"), 0o755).unwrap();
    let file = clerk.create(&caller, b.handle, &name("f"), 0o644, true).unwrap();
    clerk.symlink(&caller, a.handle, &name("up"), b"../a/b").unwrap();
    clerk.symlink(&caller, clerk.root(), &name("abs"), b"/a/up/f").unwrap();
    clerk.symlink(&caller, clerk.root(), &name("loop"), b"loop").unwrap();
    let resolve = |path: &str, follow| clerk.resolve(&caller, path.as_bytes(), follow);
    for path in ["a/b/f", "/a//b/./f", "/a/up/f", "abs", "a/b/../b/f", "/../a/b/f"] {
        assert_eq!(resolve(path, true).unwrap().handle, file.handle, "{path}");
    }
    assert_eq!(resolve("abs", false).unwrap().attributes.file_type, FileType::Symlink);
    assert_eq!(resolve("/", true).unwrap().handle, clerk.root());
    let invalid = ClerkError::Manager(ManagerStatus::Invalid);
    assert_eq!(resolve("loop/x", true), Err(invalid));
    assert_eq!(resolve("a/none", true), Err(ClerkError::Manager(ManagerStatus::NotFound)));
    assert_eq!(resolve("a/b/f/x", true), Err(ClerkError::Manager(ManagerStatus::NotDirectory)));
}

#[test]
fn own_changes_of_names_are_seen_at_once() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let caller = root();
    let (_, handle) = new_file(&clerk, "old");
    assert_eq!(clerk.resolve(&caller, b"old", true).unwrap().handle, handle);
    let dir = clerk.root();
    let (old, new) = (name("old"), name("new"));
    clerk.rename(&caller, (dir, &old), (dir, &new), RenameFlags::NONE, None).unwrap();
    assert!(clerk.resolve(&caller, b"old", true).is_err());
    assert_eq!(clerk.resolve(&caller, b"new", true).unwrap().handle, handle);
    let (_, other) = new_file(&clerk, "old");
    assert_eq!(clerk.resolve(&caller, b"old", true).unwrap().handle, other);
    let exists = clerk.rename(&caller, (dir, &old), (dir, &new), RenameFlags::NO_REPLACE, None);
    assert_eq!(exists, Err(ClerkError::Manager(ManagerStatus::Exists)));
    clerk.unlink(&caller, dir, &new, None).unwrap();
    assert!(clerk.resolve(&caller, b"new", true).is_err());
}

#[test]
fn readlink_is_for_symbolic_links() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let link = clerk.symlink(&root(), clerk.root(), &name("l"), b"some/where").unwrap();
    assert_eq!(clerk.readlink(&user(9), link.handle).unwrap(), b"some/where");
    let (_, handle) = new_file(&clerk, "f");
    assert!(clerk.readlink(&root(), handle).is_err());
    let long = clerk.symlink(&root(), clerk.root(), &name("long"), &[b'x'; 5000]);
    assert_eq!(long, Err(ClerkError::NameTooLong));
}

#[test]
fn directories_are_read_in_pages() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    for index in 0..25 {
        new_file(&clerk, &format!("f{index}"));
    }
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let page = clerk.readdir(&root(), clerk.root(), cookie, 10).unwrap();
        names.extend(page.entries.iter().map(|entry| entry.name.clone()));
        if page.end {
            break;
        }
        cookie = page.entries.last().unwrap().cookie;
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 25);
}

#[test]
fn a_chmod_by_another_client_is_seen() {
    let cell = cell(1);
    let (ours, theirs) = (cell.clerk(settings()), cell.clerk(settings()));
    let (file, handle) = new_file(&ours, "f");
    file.write(0, b"x").unwrap();
    file.close().unwrap();
    assert_eq!(ours.getattr_now(&root(), handle).unwrap().mode, 0o666);
    let changes = crate::SetFileAttributes { mode: Some(0o600), ..Default::default() };
    theirs.setattr(&root(), handle, &changes).unwrap();
    assert_eq!(ours.getattr_now(&root(), handle).unwrap().mode, 0o600);
    let (_, attributes) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    assert_eq!(attributes.mode, 0o600);
}

#[test]
fn of_a_directory_only_the_manager_is_asked() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let dir = clerk.mkdir(&root(), clerk.root(), &name("d"), 0o755).unwrap().handle;
    let before = clerk.getattr_now(&root(), dir).unwrap();
    clerk.create(&root(), dir, &name("f"), 0o644, true).unwrap();
    let after = clerk.getattr_now(&root(), dir).unwrap();
    assert!(after.change_time >= before.change_time);
    assert_eq!(cell.drive(0).counters.getattrs.load(Ordering::Relaxed), 0);
    let file = clerk.lookup(&root(), dir, &name("f")).unwrap().handle;
    clerk.getattr_now(&root(), file).unwrap();
    assert_eq!(cell.drive(0).counters.getattrs.load(Ordering::Relaxed), 1, "of a file, the drive");
}

#[test]
fn paths_over_mount_points_tell_where_they_go_on() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let caller = root();
    let dir = clerk.mkdir(&caller, clerk.root(), &name("dir"), 0o755).unwrap();
    let point = clerk.mkmount(&caller, dir.handle, &name("there"), &name("other")).unwrap();
    clerk.symlink(&caller, clerk.root(), &name("way"), b"dir/there/a").unwrap();
    assert_eq!(clerk.mounted_volume(&user(9), point.handle), Ok(name("other")));
    let resolve = |path: &str| clerk.resolve(&caller, path.as_bytes(), true);
    assert_eq!(resolve("dir/there/").unwrap().handle, point.handle, "the mount point itself");
    assert_eq!(resolve("dir/there/..").unwrap().handle, dir.handle);
    assert_eq!(resolve("dir/there/../there").unwrap().handle, point.handle);
    for (path, rest) in [("dir/there/x", "x"), ("/dir/there//x/../y", "x/../y"), ("way/b", "a/b")] {
        let expected = ClerkError::OtherVolume { volume: name("other"), path: rest.into() };
        assert_eq!(resolve(path), Err(expected), "{path}");
    }
    assert!(clerk.mounted_volume(&caller, dir.handle).is_err());
    assert!(clerk.readlink(&caller, point.handle).is_err(), "it is no symbolic link");
    let opened = clerk.open(&caller, point.handle, OpenMode::READ).map(drop);
    assert_eq!(opened, Err(ClerkError::Manager(ManagerStatus::IsDirectory)));
    // Of a tree that is removed, it goes, and what is seen there stays.
    assert_eq!(clerk.remove_tree(&caller, clerk.root(), &name("dir")), Ok(2));
}
