//! Extended attributes and access control lists, through the operations: Linux's rules, one by one, and
//! what they leave on the drives.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use nasd_manager::acl::Acl;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_manager::xattr::{ACCESS_ACL, DEFAULT_ACL};
use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{
    Device, Extended, FileHandle, FileType, ManagerStatus, NewMode, SetFileAttributes, XattrFlags,
};
use nasd_types::Rights;

use support::checker::check;
use support::{Random, open, root};

use ManagerStatus::{Access, Exists, Invalid, NoData, NoSpace, NotSupported, Permission, TooBig};

fn owner() -> Caller {
    Caller { uid: 1000, gid: 2000, groups: vec![2001], peer: 0, ..Caller::default() }
}

fn other() -> Caller {
    Caller { uid: 1002, gid: 3000, groups: vec![3001], peer: 0, ..Caller::default() }
}

struct Volume {
    drives: Arc<MemoryDrives>,
    names: Namespace,
}

impl Volume {
    fn new() -> Volume {
        let drives = Arc::new(MemoryDrives::new(2));
        let names = open(drives.clone());
        let open = SetFileAttributes { mode: Some(0o777), ..Default::default() };
        names.setattr(&root(), names.root(), &open).unwrap();
        Volume { drives, names }
    }

    fn file(&self, name: &str, mode: u32) -> FileHandle {
        self.names.create(&owner(), self.names.root(), name.as_bytes(), mode, true).unwrap().handle
    }

    fn directory(&self, name: &str, mode: u32) -> FileHandle {
        self.names.mkdir(&owner(), self.names.root(), name.as_bytes(), mode).unwrap().handle
    }

    fn set(&self, caller: &Caller, file: FileHandle, name: &[u8], value: &[u8]) -> Outcome {
        self.names.setxattr(caller, file, name, value, XattrFlags::NONE).map(drop)
    }

    fn get(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
    ) -> Result<Vec<u8>, ManagerStatus> {
        self.names.getxattr(caller, file, name)
    }

    fn list(&self, caller: &Caller, file: FileHandle) -> Vec<String> {
        let names = self.names.listxattr(caller, file).unwrap();
        let text = String::from_utf8(names).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    fn mode(&self, file: FileHandle) -> u32 {
        self.names.getattr(&root(), file).unwrap().attributes.mode
    }

    fn rights(&self, caller: &Caller, file: FileHandle) -> Rights {
        self.names.getattr(caller, file).unwrap().capability.capability.rights
    }
}

type Outcome = Result<(), ManagerStatus>;

#[test]
fn each_class_has_its_rules() {
    let volume = Volume::new();
    let file = volume.file("file", 0o640);
    let of = |caller: &Caller, name: &[u8]| {
        (volume.set(caller, file, name, b"v"), volume.get(caller, file, name).map(drop))
    };
    assert_eq!(of(&owner(), b"user.a"), (Ok(()), Ok(())));
    assert_eq!(of(&other(), b"user.a"), (Err(Access), Err(Access)));
    assert_eq!(of(&root(), b"trusted.a"), (Ok(()), Ok(())));
    assert_eq!(of(&owner(), b"trusted.a"), (Err(Permission), Err(NoData)));
    assert_eq!(of(&root(), b"security.a"), (Ok(()), Ok(())));
    assert_eq!(of(&other(), b"security.a"), (Err(Permission), Ok(())));
    assert_eq!(of(&root(), b"system.a"), (Err(NotSupported), Err(NotSupported)));
    assert_eq!(of(&root(), b"user."), (Err(Invalid), Err(Invalid)));
    assert_eq!(volume.list(&root(), file), ["security.a", "trusted.a", "user.a"]);
    assert_eq!(volume.list(&other(), file), ["security.a", "user.a"]);
    // What is no regular file and no directory has none of users'.
    let names = &volume.names;
    let node = |file_type| nasd_manager::namespace::Node {
        file_type,
        mode: NewMode::from(0o666),
        device: Device::NONE,
    };
    let fifo = names.mknod(&owner(), names.root(), b"fifo", node(FileType::Fifo)).unwrap().handle;
    let link = names.symlink(&owner(), names.root(), b"link", b"file").unwrap().handle;
    for file in [fifo, link] {
        assert_eq!(volume.set(&owner(), file, b"user.a", b"v"), Err(Permission));
        assert_eq!(volume.get(&owner(), file, b"user.a"), Err(NoData));
        assert_eq!(volume.set(&root(), file, b"security.a", b"v"), Ok(()));
    }
    // In a directory that is shared only its owner has some.
    let shared = volume.directory("shared", 0o1777);
    assert_eq!(volume.set(&other(), shared, b"user.a", b"v"), Err(Permission));
    assert_eq!(volume.set(&owner(), shared, b"user.a", b"v"), Ok(()));
}

#[test]
fn flags_and_limits() {
    let volume = Volume::new();
    let file = volume.file("file", 0o600);
    let with = |flags, name: &str, value: &[u8]| {
        volume.names.setxattr(&owner(), file, name.as_bytes(), value, flags).map(drop)
    };
    assert_eq!(with(XattrFlags::REPLACE, "user.a", b""), Err(NoData));
    assert_eq!(with(XattrFlags::CREATE, "user.a", b""), Ok(()));
    assert_eq!(with(XattrFlags::CREATE, "user.a", b"x"), Err(Exists));
    assert_eq!(with(XattrFlags::REPLACE, "user.a", b"x"), Ok(()));
    assert_eq!(with(XattrFlags(4), "user.a", b"y"), Err(Invalid));
    assert_eq!(volume.get(&owner(), file, b"user.a"), Ok(b"x".to_vec()));
    assert_eq!(with(XattrFlags::NONE, "user.b", &vec![7; 65_537]), Err(TooBig));
    assert_eq!(with(XattrFlags::NONE, "user.b", &vec![7; 65_536]), Ok(()));
    assert_eq!(volume.get(&owner(), file, b"user.b"), Ok(vec![7; 65_536]));
    assert_eq!(volume.get(&owner(), file, b"user.a"), Ok(b"x".to_vec()), "moved with it");
    let last =
        (0..40).map(|number| with(XattrFlags::NONE, &format!("user.{number}"), &[0; 60_000]));
    assert_eq!(last.collect::<Vec<_>>().last(), Some(&Err(NoSpace)));
    assert_eq!(volume.names.removexattr(&owner(), file, b"user.zz").map(drop), Err(NoData));
    for name in volume.list(&owner(), file) {
        volume.names.removexattr(&owner(), file, name.as_bytes()).unwrap();
    }
    assert_eq!(volume.names.getattr(&owner(), file).unwrap().attributes.extended, Extended::NONE);
    assert_eq!(check(&volume.drives).orphans, 0, "objects of attributes are removed");
}

/// Random attributes of a few files against a table, with restarts and power cuts in between.
#[test]
fn they_survive_what_the_files_survive() {
    let volume = Volume::new();
    let Volume { drives, mut names } = volume;
    let files: Vec<FileHandle> = (0..3)
        .map(|name| {
            names.create(&owner(), names.root(), &[b'a' + name], 0o600, true).unwrap().handle
        })
        .collect();
    let mut model: BTreeMap<(FileHandle, Vec<u8>), Vec<u8>> = BTreeMap::new();
    let mut random = Random(11);
    for step in 0..600 {
        let file = *random.pick(&files);
        let name = format!("user.{}", random.below(6)).into_bytes();
        let value = vec![step as u8; *random.pick(&[0, 5, 40, 120, 5000])];
        if random.below(3) == 0 {
            let removed = names.removexattr(&owner(), file, &name).map(drop);
            let expected = model.remove(&(file, name)).map(drop).ok_or(NoData);
            assert_eq!(removed, expected);
        } else {
            names.setxattr(&owner(), file, &name, &value, XattrFlags::NONE).unwrap();
            model.insert((file, name), value);
        }
        if random.below(60) == 0 {
            names.commit().unwrap();
            drop(names);
            drives.power_cut();
            names = open(drives.clone());
            // What was removed may come back without a name.
            for orphan in check(&drives).orphan_handles {
                drives.remove(orphan, true, Wait::Brief).unwrap();
            }
        }
        let file = *random.pick(&files);
        let all: Vec<u8> = model
            .keys()
            .filter(|(of, _)| *of == file)
            .flat_map(|(_, name)| [&name[..], b"\0"].concat())
            .collect();
        assert_eq!(names.listxattr(&owner(), file).unwrap(), all, "step {step}");
        for ((of, name), value) in &model {
            assert_eq!(names.getxattr(&owner(), *of, name).as_ref(), Ok(value), "step {step}");
        }
    }
    for name in [b"a", b"b", b"c"] {
        names.unlink(&owner(), names.root(), name).unwrap();
    }
    assert_eq!(check(&drives).orphans, 0, "they go with their file");
}

fn acl(users: &[(u32, u8)], mask: u8) -> Acl {
    Acl { users: users.to_vec(), mask: Some(mask), ..Acl::of_mode(0o640) }
}

#[test]
fn a_list_gives_and_takes_and_sets_the_mode() {
    let volume = Volume::new();
    let file = volume.file("file", 0o600);
    let (read, write) = (Rights::READ | Rights::GETATTR, Rights::WRITE | Rights::FLUSH);
    assert_eq!(volume.rights(&other(), file), Rights::GETATTR);
    let list = acl(&[(1002, 6)], 7);
    assert_eq!(volume.set(&other(), file, ACCESS_ACL, &list.to_xattr()), Err(Permission));
    assert_eq!(volume.set(&owner(), file, ACCESS_ACL, &list.to_xattr()), Ok(()));
    assert_eq!(volume.mode(file), 0o670, "the group's bits are the mask");
    assert_eq!(volume.rights(&other(), file), read | write);
    let told = Acl::from_xattr(&volume.get(&other(), file, ACCESS_ACL).unwrap());
    assert_eq!(told, Ok(Some(list)));
    assert_eq!(volume.list(&other(), file), ["system.posix_acl_access"]);
    // chmod sets the mask, and with it what the user by name may; the capability before is worthless.
    let version = |file| volume.drives.getattr(file, Wait::Brief).unwrap().access_control_version;
    let before = version(file);
    let changes = SetFileAttributes { mode: Some(0o640), ..Default::default() };
    volume.names.setattr(&owner(), file, &changes).unwrap();
    assert!(version(file) > before);
    assert_eq!(volume.rights(&other(), file), read);
    let told = Acl::from_xattr(&volume.get(&owner(), file, ACCESS_ACL).unwrap()).unwrap().unwrap();
    assert_eq!((told.users, told.mask, told.group), (vec![(1002, 6)], Some(4), 4));
    // A list that says no more than a mode is none.
    let minimal = Acl::of_mode(0o604).to_xattr();
    assert_eq!(volume.set(&owner(), file, ACCESS_ACL, &minimal), Ok(()));
    assert_eq!(volume.mode(file), 0o604);
    assert_eq!(volume.get(&owner(), file, ACCESS_ACL), Err(NoData));
    assert_eq!(volume.list(&owner(), file), Vec::<String>::new());
    // What is no list, and where none can be.
    assert_eq!(volume.set(&owner(), file, ACCESS_ACL, b"list"), Err(NotSupported));
    assert_eq!(volume.set(&owner(), file, ACCESS_ACL, &[2, 0, 0, 0, 1]), Err(Invalid));
    assert_eq!(volume.set(&owner(), file, DEFAULT_ACL, &minimal), Err(Access));
    assert_eq!(volume.set(&owner(), file, DEFAULT_ACL, &[2, 0, 0, 0]), Ok(()));
    let many: Vec<(u32, u8)> = (0..60).map(|user| (user, 7)).collect();
    assert_eq!(volume.set(&owner(), file, ACCESS_ACL, &acl(&many, 7).to_xattr()), Err(NoSpace));
    let root = volume.names.root();
    let link = volume.names.symlink(&owner(), root, b"link", b"file").unwrap().handle;
    assert_eq!(volume.set(&owner(), link, ACCESS_ACL, &minimal), Err(NotSupported));
}

#[test]
fn files_begin_with_their_directorys_default_list() {
    let volume = Volume::new();
    let names = &volume.names;
    let directory = volume.directory("dir", 0o777);
    let default = Acl { users: vec![(1002, 7)], mask: Some(7), ..Acl::of_mode(0o770) };
    assert_eq!(volume.set(&owner(), directory, DEFAULT_ACL, &default.to_xattr()), Ok(()));
    assert_eq!(volume.mode(directory), 0o777, "it says nothing of the directory itself");
    let asked = NewMode { mode: 0o666, umask: 0o077 };
    let file = names.create(&owner(), directory, b"file", asked, true).unwrap();
    // The mask of the process does not count.
    assert_eq!(file.attributes.mode, 0o660);
    assert_eq!(file.attributes.extended, Extended::ACCESS_ACL);
    let told = Acl::from_xattr(&volume.get(&owner(), file.handle, ACCESS_ACL).unwrap());
    let expected = Acl { owner: 6, mask: Some(6), ..default.clone() };
    assert_eq!(told, Ok(Some(expected)));
    assert!(volume.rights(&other(), file.handle).contains(Rights::READ | Rights::WRITE));
    // A directory hands it on.
    let asked = NewMode { mode: 0o755, umask: 0o077 };
    let sub = names.mkdir(&owner(), directory, b"sub", asked).unwrap();
    assert_eq!(sub.attributes.mode, 0o750);
    let both = Extended::ACCESS_ACL.with(Extended::DEFAULT_ACL);
    assert_eq!(sub.attributes.extended, both);
    assert_eq!(volume.get(&owner(), sub.handle, DEFAULT_ACL), Ok(default.to_xattr()));
    // A list without names leaves a mode and nothing else; links have none; elsewhere the mask counts.
    volume.set(&owner(), directory, DEFAULT_ACL, &Acl::of_mode(0o750).to_xattr()).unwrap();
    let plain = names.create(&owner(), directory, b"plain", asked, true).unwrap();
    assert_eq!((plain.attributes.mode, plain.attributes.extended), (0o750, Extended::NONE));
    let link = names.symlink(&owner(), directory, b"link", b"x").unwrap();
    assert_eq!((link.attributes.mode, link.attributes.extended), (0o777, Extended::NONE));
    let elsewhere = names.create(&owner(), names.root(), b"file", asked, true).unwrap();
    assert_eq!(elsewhere.attributes.mode, 0o700);
    names.removexattr(&owner(), directory, DEFAULT_ACL).unwrap();
    let after = names.create(&owner(), directory, b"after", asked, true).unwrap();
    assert_eq!(after.attributes.mode, 0o700);
}

/// The longest default list that can be set is handed down, level by level, and nothing of it is lost.
#[test]
fn the_longest_default_list_goes_all_the_way_down() {
    let volume = Volume::new();
    let of = |count: u32| Acl {
        users: (0..count / 2).map(|user| (user, 7)).collect(),
        groups: (0..count - count / 2).map(|group| (group, 5)).collect(),
        mask: Some(7),
        ..Acl::of_mode(0o770)
    };
    let mut directory = volume.directory("top", 0o777);
    let set = |count| volume.set(&owner(), directory, DEFAULT_ACL, &of(count).to_xattr());
    assert_eq!(set(16), Err(NoSpace));
    assert_eq!(set(15), Ok(()));
    for _ in 0..3 {
        directory = volume.names.mkdir(&owner(), directory, b"sub", 0o777).unwrap().handle;
        assert_eq!(volume.get(&owner(), directory, DEFAULT_ACL), Ok(of(15).to_xattr()));
        assert_eq!(volume.get(&owner(), directory, ACCESS_ACL), Ok(of(15).to_xattr()));
    }
}

#[test]
fn change_times_and_revisions_move() {
    let volume = Volume::new();
    let file = volume.file("file", 0o600);
    let attributes = || volume.names.getattr(&owner(), file).unwrap().attributes;
    let mut last = attributes();
    let mut expect_change = |what: &str| {
        let now = attributes();
        assert!(now.change_time > last.change_time, "{what}");
        assert!(now.revision > last.revision, "{what}");
        assert_eq!(now.modify_time, last.modify_time, "{what}");
        last = now;
    };
    volume.set(&owner(), file, b"user.a", b"v").unwrap();
    expect_change("an attribute is set");
    volume.set(&owner(), file, b"user.a", b"v").unwrap();
    expect_change("it is set to what it was");
    volume.names.removexattr(&owner(), file, b"user.a").unwrap();
    expect_change("it is removed");
    volume.set(&owner(), file, ACCESS_ACL, &acl(&[(7, 7)], 7).to_xattr()).unwrap();
    expect_change("a list is set");
}
