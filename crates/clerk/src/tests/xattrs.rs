//! Extended attributes: for which no trip is made, and that nothing stale is told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{cell, eventually, name, new_file, root, settings, user};
use crate::fake::FakeCell;
use crate::{
    Clerk, ClerkError, Device, FileAccess, FileHandle, FileType, ManagerStatus, NewMode,
    RenameFlags, Settings, Timestamp, XattrFlags,
};

const NO_DATA: ClerkError = ClerkError::Manager(ManagerStatus::NoData);

fn patient() -> Settings {
    Settings { attribute_ttl: Duration::from_secs(3600), ..settings() }
}

fn asked(cell: &FakeCell) -> u64 {
    cell.manager_requests.load(Ordering::Relaxed)
}

fn get(clerk: &Clerk, handle: FileHandle, text: &str) -> Result<Vec<u8>, ClerkError> {
    clerk.getxattr(&root(), handle, &name(text))
}

#[test]
fn nobody_is_asked_for_what_a_file_has_none_of() {
    let cell = cell(1);
    let clerk = cell.clerk(patient());
    let (_, handle) = new_file(&clerk, "file");
    let acl = "system.posix_acl_access";
    clerk.getattr(&root(), handle).unwrap();
    let requests = asked(&cell);
    for text in [acl, "system.posix_acl_default", "security.capability", "user.a"] {
        assert_eq!(get(&clerk, handle, text), Err(NO_DATA), "{text}");
    }
    assert_eq!(clerk.listxattr(&root(), handle), Ok(Vec::new()));
    assert_eq!(asked(&cell), requests);
    // Its own changes are seen at once, with one trip for each value.
    let flags = XattrFlags::NONE;
    clerk.setxattr(&root(), handle, &name("security.a"), b"value", flags).unwrap();
    clerk.setxattr(&root(), handle, &name(acl), b"list", flags).unwrap();
    let requests = asked(&cell);
    for _ in 0..5 {
        assert_eq!(get(&clerk, handle, "security.a"), Ok(b"value".to_vec()));
        assert_eq!(get(&clerk, handle, acl), Ok(b"list".to_vec()));
        assert_eq!(get(&clerk, handle, "security.capability"), Err(NO_DATA));
    }
    assert_eq!(asked(&cell), requests + 3);
    clerk.removexattr(&root(), handle, &name(acl)).unwrap();
    assert_eq!(get(&clerk, handle, acl), Err(NO_DATA));
    let again = clerk.removexattr(&root(), handle, &name(acl));
    assert_eq!(again, Err(NO_DATA));
    assert_eq!(clerk.listxattr(&root(), handle), Ok(b"security.a\0".to_vec()));
}

#[test]
fn what_others_set_is_seen_when_attributes_are() {
    let cell = cell(1);
    let ttl = Duration::from_millis(20);
    let clerk = cell.clerk(Settings { attribute_ttl: ttl, ..settings() });
    let other = cell.clerk(settings());
    let (_, handle) = new_file(&clerk, "file");
    let flags = XattrFlags::NONE;
    for value in [&b"one"[..], b"two", b""] {
        other.setxattr(&user(7), handle, &name("security.a"), value, flags).unwrap();
        eventually("the value is seen", || {
            get(&clerk, handle, "security.a").as_deref() == Ok(value)
        });
    }
    other.removexattr(&root(), handle, &name("security.a")).unwrap();
    eventually("it is seen to be gone", || get(&clerk, handle, "security.a") == Err(NO_DATA));
}

#[test]
fn values_of_users_are_asked_for_each_time() {
    let cell = cell(1);
    let clerk = cell.clerk(patient());
    let (_, handle) = new_file(&clerk, "file");
    clerk.setxattr(&root(), handle, &name("user.a"), b"value", XattrFlags::CREATE).unwrap();
    let exists = clerk.setxattr(&root(), handle, &name("user.a"), b"", XattrFlags::CREATE);
    assert_eq!(exists.map(drop), Err(ClerkError::Manager(ManagerStatus::Exists)));
    let requests = asked(&cell);
    for _ in 0..3 {
        assert_eq!(get(&clerk, handle, "user.a"), Ok(b"value".to_vec()));
    }
    assert_eq!(asked(&cell), requests + 3, "who may read it is the manager's affair");
}

#[test]
fn special_files_exchanges_and_access_times_are_passed_on() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (caller, dir): (Arc<_>, _) = (root(), clerk.root());
    let device = Device { major: 8, minor: 1 };
    let node = (FileType::BlockDevice, device);
    let mode = NewMode { mode: 0o666, umask: 0o022 };
    let (disk, file) = (name("disk"), name("file"));
    let made = clerk.mknod(&caller, dir, &disk, node, mode).unwrap();
    assert_eq!((made.attributes.device, made.attributes.mode), (device, 0o644));
    let (_, handle) = new_file(&clerk, "file");
    clerk.rename(&caller, (dir, &disk), (dir, &file), RenameFlags::EXCHANGE, None).unwrap();
    assert_eq!(clerk.resolve(&caller, b"file", true).unwrap().handle, made.handle);
    assert_eq!(clerk.resolve(&caller, b"disk", true).unwrap().handle, handle);
    let before = clerk.getattr_now(&caller, handle).unwrap().access_time;
    let later = before.plus_ns(1_000);
    std::thread::sleep(Duration::from_millis(2));
    clerk.accessed(&caller, &[FileAccess { file: handle, time: later }]).unwrap();
    assert_eq!(clerk.getattr_now(&caller, handle).unwrap().access_time, later);
    clerk.accessed(&caller, &[FileAccess { file: handle, time: Timestamp(1) }]).unwrap();
    assert_eq!(clerk.getattr_now(&caller, handle).unwrap().access_time, later);
}
