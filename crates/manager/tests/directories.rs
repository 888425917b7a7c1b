//! Attributes of directories, which kernels ask for after each change of a name.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nasd_capability::capability_key;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{
    File, FileAttributes, FileHandle, ListedFile, ManagerStatus, SetFileAttributes,
};

use support::watched::{WatchedDrives, What};
use support::{open, root, user, working_key};

#[test]
fn a_directory_in_use_is_asked_of_its_drive_once_in_a_while() {
    let drives = Arc::new(MemoryDrives::new(1));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let namespace = open(Arc::new(WatchedDrives::new(drives, move |seen| {
        count.fetch_add(usize::from(seen.what == What::Getattr), Ordering::SeqCst);
        Ok(())
    })));
    let directory = namespace.mkdir(&root(), namespace.root(), b"d", 0o755).unwrap().handle;
    let mut before = namespace.getattr(&root(), directory).unwrap().attributes;
    asked.store(0, Ordering::SeqCst);
    let count = 300;
    for number in 0..count {
        let name = format!("f{number}");
        if number % 3 < 2 {
            let _ = namespace.create(&root(), directory, name.as_bytes(), 0o644, true).unwrap();
        } else {
            let before = format!("f{}", number - 1);
            namespace.unlink(&root(), directory, before.as_bytes()).unwrap();
        }
        if number % 50 == 0 {
            namespace.keep_house();
        }
        let now = namespace.getattr(&root(), directory).unwrap().attributes;
        assert!(now.modify_time > before.modify_time, "{number}");
        assert!(now.change_time > before.change_time, "{number}");
        before = now;
    }
    assert!(asked.load(Ordering::SeqCst) < count / 10, "{asked:?} times");
}

/// Whether a capability is good with the version that the drive has now.
fn assert_good(file: File, drives: &MemoryDrives) {
    let directory = file.handle;
    let version = drives.getattr(directory, Wait::Brief).unwrap().access_control_version;
    let working = working_key(directory.drive);
    let issued = file.capability;
    assert_eq!(issued.key, capability_key(&working, &issued.capability, version));
}

#[test]
fn what_is_remembered_of_a_directory_is_what_its_drive_has() {
    let drives = Arc::new(MemoryDrives::new(2));
    let namespace = open(drives.clone());
    let directory = namespace.mkdir(&root(), namespace.root(), b"d", 0o700).unwrap().handle;
    let told = |file| namespace.getattr(&root(), file).unwrap();
    told(directory);
    namespace.mkdir(&root(), directory, b"below", 0o700).unwrap();
    assert_eq!(told(directory).attributes.links, 3);
    let set = |mode| {
        let changes = SetFileAttributes { mode: Some(mode), ..SetFileAttributes::default() };
        namespace.setattr(&root(), directory, &changes).unwrap();
        told(directory)
    };
    assert_eq!(set(0o755).attributes.mode, 0o755);
    // Who may have lost a permission has lost the old capability with it, and gets a good one.
    assert_eq!(set(0o500).attributes.mode, 0o500);
    assert_good(told(directory), &drives);
    namespace.keep_house();
    namespace.revoke(&root(), directory).unwrap();
    assert_good(told(directory), &drives);
    // The same attributes as another manager reads from the drives.
    let known: FileAttributes = told(directory).attributes;
    drop(namespace);
    let other = open(drives);
    let found = other.getattr(&root(), directory).unwrap().attributes;
    assert_eq!(FileAttributes { used_bytes: found.used_bytes, ..known }, found);
}

/// All files that a listing tells of, page after page.
fn listed(
    namespace: &Namespace,
    caller: &Caller,
    directory: FileHandle,
    most: u32,
) -> Vec<ListedFile> {
    let (mut files, mut cookie) = (Vec::new(), 0);
    loop {
        let page = namespace.readdirplus(caller, directory, cookie, most).unwrap();
        assert!(page.files.len() <= most as usize);
        files.extend(page.files);
        cookie = page.cookie;
        if page.end {
            return files;
        }
    }
}

#[test]
fn a_listing_with_attributes_tells_what_a_lookup_of_each_tells() {
    let drives = Arc::new(MemoryDrives::new(2));
    let namespace = open(drives.clone());
    let directory = namespace.mkdir(&root(), namespace.root(), b"d", 0o755).unwrap().handle;
    for number in 0..300 {
        let name = format!("f{number}");
        let made =
            namespace.create(&root(), directory, name.as_bytes(), 0o600 | (number % 8), true);
        let made = made.unwrap();
        drives.write(made.handle, 0, &vec![7; number as usize], false, Wait::Brief).unwrap();
    }
    namespace.mkdir(&root(), directory, b"below", 0o700).unwrap();
    namespace.symlink(&root(), directory, b"link", b"f1").unwrap();
    for home in [false, true] {
        if home {
            namespace.keep_house();
        }
        for caller in [root(), user(5)] {
            let files = listed(&namespace, &caller, directory, 1000);
            assert_eq!(files.len(), 301, "all but the directory");
            for ListedFile { name, file } in &files {
                let found = namespace.lookup(&caller, directory, name.as_bytes()).unwrap();
                assert_eq!((file.handle, file.attributes), (found.handle, found.attributes));
                let (told, other) = (&file.capability.capability, &found.capability.capability);
                assert_eq!((told.rights, told.object), (other.rights, other.object));
            }
            assert_eq!(listed(&namespace, &caller, directory, 7).len(), 301);
        }
    }
    let closed = SetFileAttributes { mode: Some(0o744), ..SetFileAttributes::default() };
    namespace.setattr(&root(), directory, &closed).unwrap();
    let refused = namespace.readdirplus(&user(5), directory, 0, 10);
    assert_eq!(refused, Err(ManagerStatus::Access), "who may list, and not search");
    assert_eq!(namespace.readdirplus(&root(), directory, 0, 0), Err(ManagerStatus::Invalid));
}

#[test]
fn a_listing_leaves_out_what_is_on_a_drive_that_is_away() {
    let drives = Arc::new(MemoryDrives::new(2));
    let namespace = open(drives.clone());
    let directory = namespace.mkdir(&root(), namespace.root(), b"d", 0o755).unwrap().handle;
    let made: Vec<FileHandle> = (0..20)
        .map(|number| {
            let name = format!("f{number}");
            namespace.create(&root(), directory, name.as_bytes(), 0o600, true).unwrap().handle
        })
        .collect();
    let away = made.iter().map(|file| file.drive).find(|drive| *drive != directory.drive).unwrap();
    drives.set_away(away, true);
    let files = listed(&namespace, &root(), directory, 1000);
    let near = made.iter().filter(|file| file.drive != away).count();
    assert!(near > 0 && files.len() == near, "{} of {near}", files.len());
}
