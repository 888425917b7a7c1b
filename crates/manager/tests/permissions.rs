//! The rules of POSIX, rule by rule, through the operations.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "permissions/lists.rs"]
mod lists;
mod support;

use std::sync::Arc;

use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{File, FileHandle, ManagerStatus, RenameFlags, SetFileAttributes};
use nasd_types::{Rights, Timestamp};

use support::{open, root, walk};

use ManagerStatus::{Access, Exists, Invalid, IsDirectory, NotDirectory, Permission};

type Outcome = Result<(), ManagerStatus>;

const OWNER: u32 = 1000;
const GROUP: u32 = 2000;

fn owner() -> Caller {
    Caller { uid: OWNER, gid: GROUP, groups: vec![2001], peer: 0, ..Caller::default() }
}

fn member() -> Caller {
    Caller { uid: 1001, gid: 3000, groups: vec![GROUP], peer: 0, ..Caller::default() }
}

fn other() -> Caller {
    Caller { uid: 1002, gid: 3000, groups: vec![3001], peer: 0, ..Caller::default() }
}

struct Volume {
    namespace: Namespace,
    root: FileHandle,
}

impl Volume {
    /// A volume whose root anybody may write to.
    fn new() -> Volume {
        let namespace = open(Arc::new(MemoryDrives::new(2)));
        let root = namespace.root();
        let volume = Volume { namespace, root };
        volume.chmod(&support::root(), root, 0o777).unwrap();
        volume
    }

    fn file(&self, caller: &Caller, directory: FileHandle, name: &str, mode: u32) -> FileHandle {
        self.create(caller, directory, name, mode).unwrap().handle
    }

    fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &str,
        mode: u32,
    ) -> Result<File, ManagerStatus> {
        self.namespace.create(caller, directory, name.as_bytes(), mode, true)
    }

    fn directory(&self, caller: &Caller, name: &str, mode: u32) -> FileHandle {
        self.namespace.mkdir(caller, self.root, name.as_bytes(), mode).unwrap().handle
    }

    fn set(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: SetFileAttributes,
    ) -> Result<File, ManagerStatus> {
        self.namespace.setattr(caller, file, &changes)
    }

    fn chmod(&self, caller: &Caller, file: FileHandle, mode: u32) -> Result<u32, ManagerStatus> {
        let changes = SetFileAttributes { mode: Some(mode), ..Default::default() };
        self.set(caller, file, changes).map(|file| file.attributes.mode)
    }

    fn chown(
        &self,
        caller: &Caller,
        file: FileHandle,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<u32, ManagerStatus> {
        let changes = SetFileAttributes { uid, gid, ..Default::default() };
        self.set(caller, file, changes).map(|file| file.attributes.mode)
    }

    fn rights(&self, caller: &Caller, file: FileHandle) -> Rights {
        self.namespace.getattr(caller, file).unwrap().capability.capability.rights
    }

    fn mode(&self, file: FileHandle) -> u32 {
        self.namespace.getattr(&root(), file).unwrap().attributes.mode
    }
}

const READ: Rights = Rights::READ.union(Rights::GETATTR);
const WRITE: Rights = Rights::WRITE.union(Rights::FLUSH).union(Rights::GETATTR);
const BOTH: Rights = READ.union(WRITE);
const STAT: Rights = Rights::GETATTR;

#[test]
fn capabilities_allow_what_the_mode_allows() {
    let volume = Volume::new();
    // Mode, and rights of the group's member and of others. Owner and root may read and write.
    let table = [
        (0o600, STAT, STAT),
        (0o640, READ, STAT),
        (0o644, READ, READ),
        (0o660, BOTH, STAT),
        (0o622, WRITE, WRITE),
        (0o666, BOTH, BOTH),
        (0o711, READ, READ),
        (0o000, STAT, STAT),
        // The group's class counts for its member, even if others may more.
        (0o606, STAT, BOTH),
    ];
    for (number, (mode, of_member, of_other)) in table.into_iter().enumerate() {
        let file = volume.file(&owner(), volume.root, &format!("{number}"), mode);
        assert_eq!(volume.rights(&owner(), file), BOTH, "{mode:o}");
        assert_eq!(volume.rights(&root(), file), BOTH, "{mode:o}");
        assert_eq!(volume.rights(&member(), file), of_member, "{mode:o}");
        assert_eq!(volume.rights(&other(), file), of_other, "{mode:o}");
    }
    let directory = volume.directory(&owner(), "dir", 0o750);
    for (caller, rights) in [(root(), READ), (owner(), READ), (member(), READ), (other(), STAT)] {
        assert_eq!(volume.rights(&caller, directory), rights);
    }
    let link = volume.namespace.symlink(&owner(), volume.root, b"link", b"target").unwrap();
    assert_eq!(volume.rights(&other(), link.handle), READ);
    assert_eq!(link.attributes.size, 6);
}

#[test]
fn directories_are_searched_read_and_written_by_their_bits() {
    let volume = Volume::new();
    let names = &volume.namespace;
    let of_mode = |mode: u32| {
        let name = format!("{mode:o}");
        let directory = volume.directory(&owner(), &name, 0o777);
        volume.file(&owner(), directory, "file", 0o666);
        volume.chmod(&owner(), directory, mode).unwrap();
        directory
    };
    let look = |directory| names.lookup(&other(), directory, b"file").map(|_| ());
    let list = |directory| names.readdir(&other(), directory, 0, 10).map(|_| ());
    let make = |directory| volume.create(&other(), directory, "new", 0o600).map(|_| ());
    let remove = |directory| names.unlink(&other(), directory, b"file");
    for (mode, can_look, can_list, can_change) in [
        (0o770, false, false, false),
        (0o771, true, false, false),
        (0o774, false, true, false),
        (0o775, true, true, false),
        (0o773, true, false, true),
        (0o772, false, false, false),
        (0o777, true, true, true),
    ] {
        let directory = of_mode(mode);
        let expect = |can: bool| if can { Ok(()) } else { Err(Access) };
        assert_eq!(look(directory), expect(can_look), "{mode:o}");
        assert_eq!(list(directory), expect(can_list), "{mode:o}");
        assert_eq!(make(directory), expect(can_change), "{mode:o}");
        assert_eq!(remove(directory), expect(can_change), "{mode:o}");
    }
    // Root needs no bits.
    let closed = of_mode(0o000);
    names.lookup(&root(), closed, b"file").unwrap();
    names.readdir(&root(), closed, 0, 10).unwrap();
    names.unlink(&root(), closed, b"file").unwrap();
    // An existing name can be told to exist without permission to write.
    let read_only = of_mode(0o755);
    assert_eq!(volume.create(&other(), read_only, "file", 0o600).map(|_| ()), Err(Exists));
    names.create(&other(), read_only, b"file", 0o600, false).unwrap();
}

#[test]
fn sticky_directories_protect_names() {
    let volume = Volume::new();
    let names = &volume.namespace;
    let directory = volume.directory(&root(), "tmp", 0o1777);
    let file = |name: &str| volume.file(&owner(), directory, name, 0o666);
    let rename = |caller: &Caller, from: &str, to: &str| -> Outcome {
        let from = (directory, from.as_bytes());
        names.rename(caller, from, (directory, to.as_bytes()), RenameFlags::NONE)
    };
    file("mine");
    volume.file(&other(), directory, "theirs", 0o666);
    assert_eq!(names.unlink(&other(), directory, b"mine"), Err(Permission));
    assert_eq!(rename(&other(), "mine", "stolen"), Err(Permission));
    assert_eq!(rename(&other(), "theirs", "mine"), Err(Permission), "over another's");
    assert_eq!(rename(&other(), "theirs", "renamed"), Ok(()));
    assert_eq!(rename(&owner(), "mine", "still-mine"), Ok(()));
    assert_eq!(names.unlink(&owner(), directory, b"still-mine"), Ok(()));
    assert_eq!(names.unlink(&root(), directory, b"renamed"), Ok(()));
    // Its owner may remove anything.
    volume.chown(&root(), directory, Some(1002), None).unwrap();
    file("mine");
    assert_eq!(names.unlink(&other(), directory, b"mine"), Ok(()));
    let sub = names.mkdir(&owner(), directory, b"sub", 0o777).unwrap();
    assert!(sub.attributes.mode == 0o777);
    assert_eq!(names.rmdir(&member(), directory, b"sub"), Err(Permission));
}

#[test]
fn set_group_id_directories_hand_their_group_down() {
    let volume = Volume::new();
    let names = &volume.namespace;
    let directory = volume.directory(&owner(), "shared", 0o777);
    volume.chown(&root(), directory, None, Some(GROUP)).unwrap();
    volume.chmod(&root(), directory, 0o2777).unwrap();
    let file = volume.create(&other(), directory, "file", 0o644).unwrap();
    assert_eq!((file.attributes.gid, file.attributes.mode), (GROUP, 0o644));
    let sub = names.mkdir(&other(), directory, b"sub", 0o755).unwrap();
    assert_eq!((sub.attributes.gid, sub.attributes.mode), (GROUP, 0o2755));
    // A program for a group that its maker is not in.
    let program = volume.create(&other(), directory, "program", 0o2755).unwrap();
    assert_eq!(program.attributes.mode, 0o755);
    let program = volume.create(&member(), directory, "program2", 0o2755).unwrap();
    assert_eq!(program.attributes.mode, 0o2755);
    // Elsewhere, files have their maker's group.
    let file = volume.create(&other(), volume.root, "plain", 0o644).unwrap();
    assert_eq!((file.attributes.uid, file.attributes.gid), (1002, 3000));
}

#[test]
fn chmod_is_for_owners() {
    let volume = Volume::new();
    let file = volume.file(&owner(), volume.root, "file", 0o644);
    assert_eq!(volume.chmod(&member(), file, 0o666), Err(Permission));
    assert_eq!(volume.chmod(&owner(), file, 0o4755), Ok(0o4755));
    assert_eq!(volume.chmod(&root(), file, 0o100_644), Ok(0o644), "type bits are not for setting");
    // Set-group-ID for a group that the owner is not in.
    volume.chown(&root(), file, None, Some(77)).unwrap();
    assert_eq!(volume.chmod(&owner(), file, 0o2755), Ok(0o755));
    assert_eq!(volume.chmod(&root(), file, 0o2755), Ok(0o2755));
}

#[test]
fn chown_is_for_root_and_chgrp_for_owners() {
    let volume = Volume::new();
    let new = |name: &str| volume.file(&owner(), volume.root, name, 0o6755);
    let file = new("file");
    assert_eq!(volume.chown(&owner(), file, Some(1002), None), Err(Permission));
    assert_eq!(volume.chown(&other(), file, Some(1002), None), Err(Permission));
    assert_eq!(volume.chown(&owner(), file, None, Some(4242)), Err(Permission));
    assert_eq!(volume.mode(file), 0o6755, "a refused change changes nothing");
    // To a group of one's own; programs lose their bits.
    assert_eq!(volume.chown(&owner(), file, None, Some(2001)), Ok(0o755));
    let file = new("again");
    assert_eq!(volume.chown(&owner(), file, Some(OWNER), None), Ok(0o755), "to oneself");
    let file = new("of-root");
    assert_eq!(volume.chown(&root(), file, Some(7), Some(8)), Ok(0o755));
    let attributes = volume.namespace.getattr(&root(), file).unwrap().attributes;
    assert_eq!((attributes.uid, attributes.gid), (7, 8));
    // Directories, and what is not executable, keep set-group-ID.
    let directory = volume.directory(&owner(), "dir", 0o755);
    volume.chmod(&owner(), directory, 0o2755).unwrap();
    assert_eq!(volume.chown(&owner(), directory, None, Some(2001)), Ok(0o2755));
    let file = volume.file(&owner(), volume.root, "lock", 0o644);
    volume.chmod(&owner(), file, 0o2644).unwrap();
    assert_eq!(volume.chown(&owner(), file, None, Some(2001)), Ok(0o2644));
}

#[test]
fn truncate_needs_write_permission() {
    let volume = Volume::new();
    let truncate = |caller: &Caller, file, size| {
        let changes = SetFileAttributes { size: Some(size), ..Default::default() };
        volume.set(caller, file, changes).map(|file| file.attributes)
    };
    let file = volume.file(&owner(), volume.root, "file", 0o644);
    assert_eq!(truncate(&other(), file, 5).map(|_| ()), Err(Access));
    let attributes = truncate(&owner(), file, 5).unwrap();
    assert_eq!(attributes.size, 5);
    // As with NFS: the file may have been open when it was made read-only.
    volume.chmod(&owner(), file, 0o444).unwrap();
    assert_eq!(truncate(&owner(), file, 6).unwrap().size, 6);
    volume.chmod(&owner(), file, 0o6777).unwrap();
    assert_eq!(truncate(&other(), file, 1).unwrap().mode, 0o777, "set-user-ID goes");
    volume.chmod(&owner(), file, 0o6777).unwrap();
    assert_eq!(truncate(&root(), file, 1).unwrap().mode, 0o6777);
    let too_large = truncate(&owner(), file, (1 << 62) + 1).map(|_| ());
    assert_eq!(too_large, Err(ManagerStatus::TooLarge));
    assert_eq!(truncate(&root(), volume.root, 0).map(|_| ()), Err(IsDirectory));
    let link = volume.namespace.symlink(&owner(), volume.root, b"link", b"to").unwrap().handle;
    assert_eq!(truncate(&owner(), link, 0).map(|_| ()), Err(Invalid));
}

#[test]
fn times_are_set_by_owners_and_to_now_by_writers() {
    let volume = Volume::new();
    let file = volume.file(&owner(), volume.root, "file", 0o622);
    let then = Timestamp(42);
    let exact = SetFileAttributes { modify_time: Some(then), ..Default::default() };
    let now =
        SetFileAttributes { access_time_now: true, modify_time_now: true, ..Default::default() };
    let both = SetFileAttributes { modify_time: Some(then), modify_time_now: true, ..exact };
    assert_eq!(volume.set(&other(), file, exact).map(|_| ()), Err(Permission));
    let set = volume.set(&owner(), file, exact).unwrap().attributes;
    assert_eq!(set.modify_time, then);
    assert!(set.change_time > then, "the change time can't be set back");
    let touched = volume.set(&other(), file, now).unwrap().attributes;
    assert!(touched.modify_time > then && touched.access_time == touched.modify_time);
    assert_eq!(volume.set(&owner(), file, both).map(|_| ()), Err(Invalid));
    volume.chmod(&owner(), file, 0o600).unwrap();
    assert_eq!(volume.set(&other(), file, now).map(|_| ()), Err(Access));
    let access = SetFileAttributes { access_time: Some(Timestamp(7)), ..Default::default() };
    let set = volume.set(&owner(), file, access).unwrap().attributes;
    assert_eq!(set.access_time, Timestamp(7));
    assert_eq!(set.modify_time, touched.modify_time);
}

#[test]
fn moving_a_directory_needs_permission_to_write_it() {
    let volume = Volume::new();
    let names = &volume.namespace;
    let directory = volume.directory(&owner(), "dir", 0o755);
    volume.directory(&root(), "to", 0o777);
    let to = walk(names, "to").unwrap().handle;
    let rename = |to_directory: FileHandle, caller: &Caller| {
        let from = (volume.root, &b"dir"[..]);
        names.rename(caller, from, (to_directory, b"new"), RenameFlags::NONE)
    };
    assert_eq!(rename(to, &other()), Err(Access), "its .. would change");
    volume.chmod(&owner(), directory, 0o777).unwrap();
    assert_eq!(rename(to, &other()), Ok(()));
    let below = names.lookup(&root(), directory, b"..").unwrap();
    assert_eq!(below.handle, to);
}

#[test]
fn links_need_no_permission_on_the_file_but_must_not_be_directories() {
    let volume = Volume::new();
    let names = &volume.namespace;
    let file = volume.file(&owner(), volume.root, "file", 0o600);
    let linked = names.link(&other(), file, volume.root, b"link").unwrap();
    assert_eq!(linked.attributes.links, 2);
    let directory = volume.directory(&owner(), "dir", 0o755);
    let link = |caller: &Caller, name: &[u8]| names.link(caller, directory, volume.root, name);
    assert_eq!(link(&root(), b"again").map(|_| ()), Err(Permission));
    let closed = names.link(&other(), file, directory, b"x").map(|_| ());
    assert_eq!(closed, Err(Access));
    let not_a_directory = names.link(&other(), file, file, b"x").map(|_| ());
    assert_eq!(not_a_directory, Err(NotDirectory));
}

/// Whoever has the drive's key may revoke by himself; the manager learns of it when it matters.
#[test]
fn narrowing_revokes_what_was_raised_behind_the_managers_back() {
    use nasd_manager::objects::{ObjectError, ObjectStore, Wait};
    let drives = Arc::new(MemoryDrives::new(1));
    let namespace = open(drives.clone());
    let file = namespace.create(&root(), namespace.root(), b"file", 0o666, true).unwrap().handle;
    let version = || drives.getattr(file, Wait::Brief).unwrap().access_control_version;
    let raise = |version| {
        let changes = nasd_types::SetAttributes {
            access_control_version: Some(version),
            ..nasd_types::SetAttributes::default()
        };
        drives.setattr(file, &changes, true, Wait::Brief)
    };
    let before = version();
    raise(before + 1).unwrap();
    let changes = SetFileAttributes { mode: Some(0o600), ..Default::default() };
    namespace.setattr(&root(), file, &changes).unwrap();
    assert_eq!(version(), before + 2, "the version that was raised is still good");
    assert!(matches!(raise(before), Err(ObjectError::Refused(_))), "it falls");
    // There is none after the last.
    raise(u64::MAX).unwrap();
    let changes = SetFileAttributes { mode: Some(0o400), ..Default::default() };
    assert!(namespace.setattr(&root(), file, &changes).is_err());
}

#[test]
fn narrowing_revokes_and_widening_does_not() {
    let drives = Arc::new(MemoryDrives::new(2));
    let namespace = open(drives.clone());
    let root_directory = namespace.root();
    let file = namespace.create(&root(), root_directory, b"file", 0o666, true).unwrap();
    let version = || {
        use nasd_manager::objects::{ObjectStore, Wait};
        drives.getattr(file.handle, Wait::Brief).unwrap().access_control_version
    };
    let key = |answer: &File| (answer.capability.capability, answer.capability.key.clone());
    let set = |changes| namespace.setattr(&root(), file.handle, &changes).unwrap();
    let (first, before) = (key(&file), version());
    set(SetFileAttributes { mode: Some(0o777), ..Default::default() });
    set(SetFileAttributes { size: Some(9), access_time_now: true, ..Default::default() });
    assert_eq!(version(), before);
    let narrowed = set(SetFileAttributes { mode: Some(0o755), ..Default::default() });
    assert_eq!(version(), before + 1);
    assert_ne!(key(&narrowed).1, first.1, "the new capability has another key");
    let given = set(SetFileAttributes { uid: Some(5), ..Default::default() });
    assert_eq!(version(), before + 2);
    // What the answer gives is good with the version that the drive has now.
    let expected = nasd_capability::capability_key(
        &support::working_key(file.handle.drive),
        &given.capability.capability,
        version(),
    );
    assert_eq!(given.capability.key, expected);
    let again = namespace.getattr(&root(), file.handle).unwrap();
    assert_eq!(again.capability.key, expected, "who asks again gets the same capability");
}
