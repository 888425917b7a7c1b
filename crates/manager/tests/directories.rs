//! Attributes of directories, which kernels ask for after each change of a name.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nasd_capability::capability_key;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_protocol::manager::{File, FileAttributes, SetFileAttributes};

use support::watched::{WatchedDrives, What};
use support::{open, root, working_key};

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
