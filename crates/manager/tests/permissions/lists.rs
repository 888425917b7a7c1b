//! Access control lists of directories as AFS has them, through the operations: each takes the rights that it says, and no other.

use std::sync::Arc;

use nasd_manager::acl::Acl as PosixAcl;
use nasd_manager::namespace::Node;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::xattr::{ACCESS_ACL, AFS_ACL, AFS_ACL_FOR_ROOT, DEFAULT_ACL};

use nasd_manager::{Caller, Namespace};
use nasd_protocol::manager::{
    Device, Extended, File, FileHandle, FileType, ManagerStatus, MintArguments, NewMode,
    RenameFlags, SetFileAttributes, XattrFlags,
};
use nasd_types::{Personality, Rights};

use super::support::checker::check;
use super::support::{options, root};

use ManagerStatus::{Access, Busy, CrossDevice, Invalid, NoData, NotSupported, Permission};

type Outcome = Result<(), ManagerStatus>;

const OWNER: u32 = 1000;
const USER: u32 = 1001;

fn named(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: vec![2000], session: 1, ..Caller::default() }
}

struct Volume {
    drives: Arc<MemoryDrives>,
    names: Namespace,
}

impl Volume {
    /// A volume whose root anybody may write to.
    fn of(personality: Personality) -> Volume {
        let drives = Arc::new(MemoryDrives::new(2));
        let volume = Volume { names: open(&drives, personality), drives };
        let mode = SetFileAttributes { mode: Some(0o777), ..SetFileAttributes::default() };
        volume.names.setattr(&root(), volume.names.root(), &mode).unwrap();
        volume
    }

    fn new() -> Volume {
        Volume::of(Personality::Afs)
    }

    fn mkdir(&self, name: &str, list: &str) -> FileHandle {
        let mode = NewMode::from(0o755);
        let made = self.names.mkdir(&named(OWNER), self.names.root(), name.as_bytes(), mode);
        let directory = made.unwrap().handle;
        if !list.is_empty() {
            self.set(&root(), directory, list).unwrap();
        }
        directory
    }

    fn set(&self, caller: &Caller, directory: FileHandle, list: &str) -> Outcome {
        let names = &self.names;
        names.setxattr(caller, directory, AFS_ACL, list.as_bytes(), XattrFlags::NONE).map(drop)
    }

    fn list(&self, caller: &Caller, file: FileHandle) -> Result<String, ManagerStatus> {
        let told = self.names.getxattr(caller, file, AFS_ACL)?;
        Ok(String::from_utf8(told).unwrap())
    }

    fn make(&self, caller: &Caller, directory: FileHandle, name: &str, mode: u32) -> File {
        self.names.create(caller, directory, name.as_bytes(), mode, true).unwrap()
    }

    /// Nobody stores a file, as a whole file manager sees to it before anybody reads.
    fn settle(&self, file: FileHandle) {
        let (version, _) = self.names.object_version(file).unwrap();
        self.names.advance(file, version.next_multiple_of(2), false).unwrap();
    }

    /// The rights that ride on answers.
    fn rights(&self, caller: &Caller, file: FileHandle) -> Rights {
        self.settle(file);
        let told = self.names.getattr(caller, file);
        told.map_or(Rights::empty(), |file| file.capability.capability.rights)
    }

    fn rename(&self, caller: &Caller, from: (FileHandle, &str), to: (FileHandle, &str)) -> Outcome {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        self.names.rename(caller, from, to, RenameFlags::NONE)
    }
}

fn open(drives: &Arc<MemoryDrives>, personality: Personality) -> Namespace {
    let all = nasd_manager::objects::ObjectStore::drives(&**drives);
    Namespace::open(drives.clone(), nasd_manager::NamespaceOptions { personality, ..options(&all) })
        .unwrap()
}

/// A directory with a list, what is in it, and another one where the user may do everything.
struct Scene {
    volume: Volume,
    directory: FileHandle,
    file: FileHandle,
    elsewhere: FileHandle,
    /// Whose files are stored meanwhile.
    user: Caller,
}

impl Scene {
    fn new(rights: &str) -> Scene {
        let volume = Volume::new();
        let directory = volume.mkdir("directory", &format!("user:{USER} {rights}"));
        let elsewhere = volume.mkdir("elsewhere", &format!("user:{USER} all"));
        let file = volume.make(&root(), directory, "file", 0o666).handle;
        volume.make(&root(), directory, "second", 0o666);
        let outside = volume.make(&root(), elsewhere, "outside", 0o666).handle;
        let names = &volume.names;
        names.mkdir(&root(), directory, b"empty", 0o755).unwrap();
        names.setxattr(&root(), file, b"user.a", b"x", XattrFlags::NONE).unwrap();
        let user = Caller { stores: vec![file, outside], ..named(USER) };
        volume.settle(file);
        Scene { volume, directory, file, elsewhere, user }
    }
}

type Deed = (&'static str, &'static str, fn(&Scene) -> Outcome);

/// What takes which rights.
const DEEDS: &[Deed] = &[
    ("look a name up", "l", |s| s.volume.names.lookup(&s.user, s.directory, b"file").map(drop)),
    ("look up what is not there", "l", |s| {
        match s.volume.names.lookup(&s.user, s.directory, b"nothing") {
            Err(ManagerStatus::NotFound) => Ok(()),
            other => other.map(drop),
        }
    }),
    ("list", "l", |s| s.volume.names.readdir(&s.user, s.directory, 0, 100).map(drop)),
    ("list with attributes", "l", |s| {
        s.volume.names.readdirplus(&s.user, s.directory, 0, 100).map(drop)
    }),
    ("get attributes", "l", |s| s.volume.names.getattr(&s.user, s.file).map(drop)),
    ("read the names at the drive", "l", |s| holds(s, s.directory, Rights::READ)),
    ("read", "lr", |s| holds(s, s.file, Rights::READ)),
    ("have read by others", "lr", |s| {
        let asked = MintArguments {
            file: s.file,
            rights: Rights::READ,
            region_offset: 0,
            region_length: 1,
            lifetime: 1,
            sealed: false,
        };
        s.volume.names.mint(&s.user, &asked).map(drop)
    }),
    ("list attributes", "l", |s| s.volume.names.listxattr(&s.user, s.file).map(drop)),
    ("read an attribute of the system's", "l", |s| {
        match s.volume.names.getxattr(&s.user, s.file, b"security.a") {
            Err(ManagerStatus::NoData) => Ok(()),
            other => other.map(drop),
        }
    }),
    ("know of locks", "l", |s| s.volume.names.require_lockable(&s.user, s.file, false)),
    ("lock", "lk", |s| s.volume.names.require_lockable(&s.user, s.file, true)),
    ("read an attribute", "lr", |s| s.volume.names.getxattr(&s.user, s.file, b"user.a").map(drop)),
    ("write", "lw", |s| s.volume.names.may_be_stored(&s.user, s.file)),
    ("cut", "lw", |s| set(s, SetFileAttributes { size: Some(0), ..Default::default() })),
    ("chmod", "lw", |s| set(s, SetFileAttributes { mode: Some(0o600), ..Default::default() })),
    ("touch", "lw", |s| {
        let (access_time_now, modify_time_now) = (true, true);
        set(s, SetFileAttributes { access_time_now, modify_time_now, ..Default::default() })
    }),
    ("set an attribute", "lw", |s| {
        let flags = XattrFlags::NONE;
        s.volume.names.setxattr(&s.user, s.file, b"user.b", b"y", flags).map(drop)
    }),
    ("create", "li", |s| {
        s.volume.names.create(&s.user, s.directory, b"new", 0o600, true).map(drop)
    }),
    ("make a file without a name", "li", |s| {
        s.volume.names.tmpfile(&s.user, s.directory, 0o600).map(drop)
    }),
    ("mkdir", "li", |s| s.volume.names.mkdir(&s.user, s.directory, b"new", 0o700).map(drop)),
    ("symlink", "li", |s| s.volume.names.symlink(&s.user, s.directory, b"new", b"x").map(drop)),
    ("mkfifo", "li", |s| {
        let node = Node { file_type: FileType::Fifo, mode: 0o600.into(), device: Device::NONE };
        s.volume.names.mknod(&s.user, s.directory, b"new", node).map(drop)
    }),
    ("link", "li", |s| s.volume.names.link(&s.user, s.file, s.directory, b"new").map(drop)),
    ("unlink", "ld", |s| s.volume.names.unlink(&s.user, s.directory, b"file")),
    ("rmdir", "ld", |s| s.volume.names.rmdir(&s.user, s.directory, b"empty")),
    ("rename", "lid", |s| s.volume.rename(&s.user, (s.directory, "file"), (s.directory, "new"))),
    ("rename over", "lid", |s| {
        s.volume.rename(&s.user, (s.directory, "file"), (s.directory, "second"))
    }),
    ("move out", "ld", |s| s.volume.rename(&s.user, (s.directory, "file"), (s.elsewhere, "new"))),
    ("move a directory out", "ld", |s| {
        s.volume.rename(&s.user, (s.directory, "empty"), (s.elsewhere, "new"))
    }),
    ("move in", "li", |s| s.volume.rename(&s.user, (s.elsewhere, "outside"), (s.directory, "new"))),
    ("move in over", "lid", |s| {
        s.volume.rename(&s.user, (s.elsewhere, "outside"), (s.directory, "file"))
    }),
    ("exchange", "lid", |s| {
        let (here, there) = ((s.directory, &b"file"[..]), (s.elsewhere, &b"outside"[..]));
        s.volume.names.rename(&s.user, here, there, RenameFlags::EXCHANGE)
    }),
    ("see the list", "l", |s| s.volume.list(&s.user, s.directory).map(drop)),
    ("set the list", "la", |s| s.volume.set(&s.user, s.directory, "anyuser l")),
    ("remove the list", "la", |s| {
        s.volume.names.removexattr(&s.user, s.directory, AFS_ACL).map(drop)
    }),
];

fn holds(scene: &Scene, file: FileHandle, right: Rights) -> Outcome {
    if scene.volume.rights(&scene.user, file).contains(right) { Ok(()) } else { Err(Access) }
}

fn set(scene: &Scene, changes: SetFileAttributes) -> Outcome {
    scene.volume.names.setattr(&scene.user, scene.file, &changes).map(drop)
}

#[test]
fn each_operation_takes_its_rights_and_no_others() {
    for (what, required, deed) in DEEDS {
        let scene = Scene::new(required);
        assert_eq!(deed(&scene), Ok(()), "{what} with {required}");
        scene.volume.names.keep_house();
        assert_eq!(check(&scene.volume.drives).problems, Vec::<String>::new(), "{what}");
        for missing in required.chars() {
            let rest: String = "rlidwka".chars().filter(|right| *right != missing).collect();
            let refused = deed(&Scene::new(&rest));
            assert!(
                matches!(refused, Err(Access | Permission)),
                "{what} without {missing}: {refused:?}"
            );
            // A negative entry takes it as well, whatever others give.
            let scene = Scene::new("all");
            let list = format!("anyuser all\nuser:{USER} all\n-group:2000 {missing}\n");
            scene.volume.set(&root(), scene.directory, &list).unwrap();
            for file in ["file", "second"] {
                // As the files of the directory get it in a whole file manager.
                let at = (scene.directory, file);
                let root = Caller { stores: vec![scene.file], ..root() };
                let second = scene.volume.names.lookup(&root, scene.directory, b"second").unwrap();
                let root = Caller { stores: vec![scene.file, second.handle], ..root };
                scene.volume.rename(&root, at, (scene.elsewhere, "moved")).unwrap();
                scene.volume.rename(&root, (scene.elsewhere, "moved"), at).unwrap();
            }
            let refused = deed(&scene);
            assert!(
                matches!(refused, Err(Access | Permission)),
                "{what} with -{missing}: {refused:?}"
            );
        }
    }
}

#[test]
fn new_files_and_directories_have_the_list_of_where_they_are_made() {
    let volume = Volume::new();
    let list = format!("user:{OWNER} rlidwka\nuser:{USER} rlik\n");
    let directory = volume.mkdir("directory", &list);
    let user = named(USER);
    let below = volume.names.mkdir(&user, directory, b"below", 0o700).unwrap().handle;
    let file = volume.make(&user, below, "file", 0o600).handle;
    assert_eq!(volume.list(&root(), below), Ok(list.clone()));
    assert_eq!(volume.list(&root(), file), Ok(list.clone()));
    // It is a copy.
    volume.set(&root(), directory, "anyuser l").unwrap();
    assert_eq!(volume.list(&root(), below), Ok(list));
    // All of it is there after the manager was started anew.
    volume.names.commit().unwrap();
    let Volume { drives, names } = volume;
    drop(names);
    drives.power_cut();
    let volume = Volume { names: open(&drives, Personality::Afs), drives };
    assert_eq!(volume.list(&root(), directory), Ok("anyuser l\n".to_owned()));
    let names = |caller: &Caller, file| {
        let told = volume.names.listxattr(caller, file).unwrap();
        told.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
    };
    let (to_root, to_user): (Vec<_>, Vec<_>) = (names(&root(), below), names(&user, below));
    assert_eq!((to_root, to_user), (vec![AFS_ACL_FOR_ROOT.to_vec()], vec![AFS_ACL.to_vec()]));
    assert_eq!(names(&root(), file), Vec::<Vec<u8>>::new(), "files have it from their directory");
    // Without a list, modes count again; what is made then has none.
    volume.names.removexattr(&root(), directory, AFS_ACL_FOR_ROOT).unwrap();
    assert_eq!(volume.list(&root(), directory), Err(NoData));
    let plain = volume.make(&named(OWNER), directory, "plain", 0o640);
    assert_eq!((plain.attributes.mode, plain.attributes.extended), (0o640, Extended::NONE));
    assert_eq!(volume.rights(&user, plain.handle), Rights::GETATTR);
}

#[test]
fn the_owners_bits_of_a_mode_limit_everybody_but_him() {
    let volume = Volume::new();
    let directory = volume.mkdir("directory", &format!("anyuser all\nuser:{OWNER} all"));
    let (owner, user) = (named(OWNER), named(USER));
    for (mode, reads, writes) in [
        (0o600, true, true),
        (0o477, true, false),
        (0o277, false, true),
        (0o077, false, false),
        (0o100, true, false),
    ] {
        let file = volume.make(&owner, directory, &format!("{mode:o}"), mode);
        assert_eq!(volume.rights(&user, file.handle).contains(Rights::READ), reads, "{mode:o}");
        assert_eq!(volume.names.may_be_stored(&user, file.handle).is_ok(), writes, "{mode:o}");
        // He could change the mode, and may write to the end what he has made read-only.
        assert!(volume.rights(&owner, file.handle).contains(Rights::READ), "{mode:o}");
        assert_eq!(volume.names.may_be_stored(&owner, file.handle), Ok(()), "{mode:o}");
        let shown = volume.names.getattr(&user, file.handle).unwrap().attributes;
        let each = mode >> 6 & 7;
        assert_eq!(shown.mode, each << 6 | each << 3 | each, "{mode:o}");
        assert!(shown.extended.has(Extended::AFS_ACL));
        // What was shown does not come to count by a chmod.
        let more = SetFileAttributes { mode: Some(shown.mode | 0o100), ..Default::default() };
        let owner = Caller { stores: vec![file.handle], ..owner.clone() };
        volume.names.setattr(&owner, file.handle, &more).unwrap();
        volume.names.removexattr(&root(), directory, AFS_ACL).unwrap();
        let name = format!("{mode:o}");
        volume.rename(&owner, (directory, &name), (volume.names.root(), &name)).unwrap();
        let bare = volume.names.getattr(&owner, file.handle).unwrap().attributes;
        assert_eq!(bare.mode & 0o077, mode & 0o077 & shown.mode, "{mode:o}");
        volume.set(&root(), directory, &format!("anyuser all\nuser:{OWNER} all")).unwrap();
    }
}

#[test]
fn who_puts_a_file_there_may_fill_it_and_nobody_else() {
    let volume = Volume::new();
    let directory = volume.mkdir("drop", &format!("user:{OWNER} all\nanyuser li"));
    let (user, other) = (named(USER), named(1002));
    let file = volume.make(&user, directory, "letter", 0o644);
    assert!(volume.rights(&user, file.handle).contains(Rights::READ));
    assert_eq!(volume.names.may_be_stored(&user, file.handle), Ok(()));
    assert_eq!(volume.names.may_be_stored(&other, file.handle), Err(Access));
    assert!(!volume.rights(&other, file.handle).contains(Rights::READ));
    assert_eq!(volume.names.unlink(&user, directory, b"letter"), Err(Access));
    assert!(volume.rights(&named(OWNER), file.handle).contains(Rights::READ));
}

#[test]
fn owners_and_root_may_always_administer() {
    let volume = Volume::new();
    let directory = volume.mkdir("directory", "");
    let (owner, user) = (named(OWNER), named(USER));
    assert_eq!(volume.set(&user, directory, "anyuser all"), Err(Permission));
    assert_eq!(volume.set(&owner, directory, ""), Ok(()), "nobody may do anything");
    assert_eq!(volume.names.readdir(&owner, directory, 0, 1).map(drop), Err(Access));
    assert_eq!(volume.list(&owner, directory), Ok(String::new()));
    assert_eq!(volume.list(&user, directory), Err(Access));
    assert_eq!(volume.set(&owner, directory, &format!("user:{USER} la")), Ok(()));
    assert_eq!(volume.set(&user, directory, &format!("user:{USER} rla")), Ok(()));
    let owner_of_volume = Caller { uid: 7, ..Caller::default() };
    assert_eq!(volume.set(&owner_of_volume, directory, "anyuser l"), Err(Permission));
    let give = SetFileAttributes { uid: Some(7), ..Default::default() };
    let root = Caller { stores: vec![volume.names.root()], ..root() };
    volume.names.setattr(&root, volume.names.root(), &give).unwrap();
    assert_eq!(volume.set(&owner_of_volume, directory, "anyuser l"), Ok(()));
    assert_eq!(volume.set(&user, directory, "anyuser all"), Err(Permission), "he lost it");
    assert_eq!(volume.set(&root, directory, "nonsense"), Err(Invalid));
    let file = volume.make(&root, directory, "file", 0o644).handle;
    assert_eq!(
        volume.set(&root, file, "anyuser l"),
        Err(NotSupported),
        "files have their directory's"
    );
}

#[test]
fn volumes_of_nfs_have_none() {
    let volume = Volume::of(Personality::Nfs);
    let directory = volume.mkdir("directory", "");
    for caller in [root(), named(OWNER)] {
        assert_eq!(volume.set(&caller, directory, "anyuser l"), Err(NotSupported));
        let removed = volume.names.removexattr(&caller, directory, AFS_ACL).map(drop);
        assert_eq!(removed, Err(NotSupported));
        assert_eq!(volume.list(&caller, directory), Err(NoData));
    }
}

#[test]
fn lists_of_posix_give_way() {
    let volume = Volume::new();
    let directory = volume.mkdir("directory", "");
    let owner = named(OWNER);
    let acl =
        |mask| PosixAcl { users: vec![(USER, 7)], mask: Some(mask), ..PosixAcl::of_mode(0o750) };
    let names = &volume.names;
    for name in [ACCESS_ACL, DEFAULT_ACL] {
        names.setxattr(&owner, directory, name, &acl(7).to_xattr(), XattrFlags::NONE).unwrap();
    }
    assert_eq!(names.getattr(&owner, directory).unwrap().attributes.mode, 0o770);
    volume.set(&owner, directory, "anyuser rl").unwrap();
    for name in [ACCESS_ACL, DEFAULT_ACL] {
        assert_eq!(names.getxattr(&owner, directory, name), Err(NoData));
        let set = names.setxattr(&owner, directory, name, &acl(7).to_xattr(), XattrFlags::NONE);
        assert_eq!(set.map(drop), Err(NotSupported));
    }
    let file = names.create(&root(), directory, b"file", 0o644, true).unwrap().handle;
    let set = names.setxattr(&root(), file, ACCESS_ACL, &acl(7).to_xattr(), XattrFlags::NONE);
    assert_eq!(set.map(drop), Err(NotSupported));
    names.removexattr(&owner, directory, AFS_ACL).unwrap();
    let attributes = names.getattr(&owner, directory).unwrap().attributes;
    assert_eq!((attributes.mode, attributes.extended), (0o750, Extended::NONE), "the group had 5");
}

#[test]
fn a_file_is_governed_by_one_directory() {
    let volume = Volume::new();
    let (one, two) = (volume.mkdir("one", "anyuser all"), volume.mkdir("two", "anyuser all"));
    let (plain, user) = (volume.names.root(), named(USER));
    let file = volume.make(&user, one, "file", 0o666).handle;
    let link = |file, directory, name: &str| {
        volume.names.link(&user, file, directory, name.as_bytes()).map(drop)
    };
    assert_eq!(link(file, two, "file"), Err(CrossDevice));
    assert_eq!(link(file, plain, "linked"), Err(CrossDevice));
    assert_eq!(link(file, one, "again"), Ok(()));
    let moves = |from: (FileHandle, &str), to: (FileHandle, &str)| volume.rename(&user, from, to);
    assert_eq!(moves((one, "again"), (two, "again")), Err(CrossDevice), "it has two names");
    volume.names.unlink(&user, one, b"again").unwrap();
    assert_eq!(moves((one, "file"), (two, "file")), Ok(()), "the lists are the same");
    let free = volume.make(&user, plain, "free", 0o666).handle;
    assert_eq!(link(free, one, "free"), Err(CrossDevice));
    assert_eq!(link(free, plain, "twice"), Ok(()));
    assert_eq!(moves((plain, "free"), (one, "free")), Err(CrossDevice));
    // A file without a name gets one where it was made.
    let nameless = volume.names.tmpfile(&user, one, 0o600).unwrap().handle;
    assert_eq!(link(nameless, one, "named"), Ok(()));
    // Who moves what is his own is not suspected; capabilities end by it.
    let own = volume.make(&user, plain, "own", 0o666).handle;
    assert_eq!(moves((plain, "own"), (one, "own")), Err(Busy));
    let storing = Caller { stores: vec![own], ..user.clone() };
    assert_eq!(volume.rename(&storing, (plain, "own"), (one, "own")), Ok(()));
    assert_eq!(volume.list(&root(), own), Ok("anyuser rlidwka\n".to_owned()));
    let thief = Caller { stores: vec![own], ..named(1002) };
    assert_eq!(volume.rename(&thief, (one, "own"), (plain, "own")), Err(CrossDevice));
    assert_eq!(volume.rename(&storing, (one, "own"), (plain, "own")), Ok(()));
    assert_eq!(volume.list(&root(), own), Err(NoData));
    // Directories take their lists along.
    assert_eq!(moves((plain, "two"), (one, "two")), Ok(()));
    assert_eq!(volume.list(&root(), two), Ok("anyuser rlidwka\n".to_owned()));
}

#[test]
fn modes_are_shown_that_let_everybody_through_who_may() {
    let volume = Volume::new();
    let by_caller = Extended::AFS_ACL.with(Extended::NAMES_BY_CALLER);
    for (list, mode, extended) in [
        ("anyuser rl", 0o555, Extended::AFS_ACL),
        ("user:1000 all", 0o700, Extended::AFS_ACL),
        ("user:1000 all\nanyuser l", 0o755, Extended::AFS_ACL),
        ("", 0, Extended::AFS_ACL),
        ("user:1000 all\ngroup:5 rl", 0o755, by_caller),
        ("user:1001 rlidwk", 0o077, by_caller),
        ("anyuser rl\n-user:1001 l", 0o555, by_caller),
        ("user:1000 all\nauthuser rl", 0o755, by_caller),
    ] {
        let directory = volume.mkdir(&format!("of {list}"), "anyuser l");
        volume.set(&root(), directory, list).unwrap();
        let shown = volume.names.getattr(&root(), directory).unwrap().attributes;
        assert_eq!((shown.mode, shown.extended), (mode, extended), "{list}");
    }
}

#[test]
fn who_may_write_a_file_of_another_one_does_not_make_it_run_as_him() {
    const SET_IDS: u32 = 0o6000;
    let scene = Scene::new("rlw");
    let Scene { volume, directory, user, .. } = &scene;
    let names = &volume.names;
    volume.set(&root(), *directory, &format!("user:{OWNER} all\nuser:{USER} rlw\n")).unwrap();
    let owner = named(OWNER);
    let file = volume.make(&owner, *directory, "program", 0o755).handle;
    let set = |caller: &Caller, mode: u32| {
        let caller = Caller { stores: vec![file], ..caller.clone() };
        let changes = SetFileAttributes { mode: Some(mode), ..SetFileAttributes::default() };
        names.setattr(&caller, file, &changes).unwrap().attributes.mode & 0o7777
    };
    // In the group of the file, so that this alone would not hinder him.
    let mallory = Caller { groups: vec![OWNER, 2000], ..user.clone() };
    assert_eq!(set(&mallory, 0o6755) & SET_IDS, 0);
    assert_eq!(set(&owner, 0o6755) & SET_IDS, SET_IDS, "the owner may");
    assert_eq!(set(&mallory, 0o6711) & SET_IDS, SET_IDS, "what is so may stay");
    assert_eq!(set(&mallory, 0o0755) & SET_IDS, 0, "he may take it away");
    assert_eq!(set(&root(), 0o4755) & SET_IDS, 0o4000);
}
