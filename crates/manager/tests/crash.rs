//! The manager dies, or a call is lost, at every single call to a drive, with and without a power
//! cut of the drives: what comes back is the old tree or the new one, whole.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::collections::HashSet;
use std::sync::Arc;

use nasd_manager::Namespace;
use nasd_manager::objects::ObjectStore;
use nasd_manager::objects::memory::{MemoryDrives, Snapshot};
use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus};

use support::checker::{Tree, check};
use support::faulty::{FaultyDrives, STOPS, Stop};
use support::operation::Op;
use support::{open, place, root, walk};

/// A tree with something of everything, spread over three drives.
fn set_up() -> Snapshot {
    let drives = Arc::new(MemoryDrives::new(3));
    let namespace = open(drives.clone());
    let caller = root();
    for path in ["a", "b", "a/sub", "a/sub/deep", "b/empty", "b/full"] {
        let (directory, name) = place(&namespace, path).unwrap();
        namespace.mkdir(&caller, directory, name, 0o755).unwrap();
    }
    for path in ["a/file", "a/other", "b/file", "b/full/x", "a/linked", "a/twin"] {
        let (directory, name) = place(&namespace, path).unwrap();
        namespace.create(&caller, directory, name, 0o644, true).unwrap();
    }
    for (old, new) in [("a/linked", "b/linked"), ("a/twin", "a/twin2")] {
        let (directory, name) = place(&namespace, new).unwrap();
        let file = walk(&namespace, old).unwrap().handle;
        namespace.link(&caller, file, directory, name).unwrap();
    }
    let (directory, name) = place(&namespace, "b/mount").unwrap();
    namespace.mkmount(&caller, directory, name, b"other").unwrap();
    // A directory of two blocks, so that some names are in different blocks.
    let big = namespace.mkdir(&caller, namespace.root(), b"big", 0o755).unwrap().handle;
    for number in 0..20 {
        let name = format!("{number:0>250}");
        namespace.create(&caller, big, name.as_bytes(), 0o600, true).unwrap();
    }
    assert_eq!(namespace.keep_house(), Default::default());
    drop(namespace);
    // A first manager has left nothing to do.
    assert_eq!(open(drives.clone()).keep_house(), Default::default());
    drives.snapshot()
}

fn big(number: usize) -> String {
    format!("big/{number:0>250}")
}

fn operations() -> Vec<(&'static str, Op)> {
    let path = str::to_owned;
    let create = |path| Op::Create { path, exclusive: true };
    let symlink = Op::Symlink { path: path("a/new"), target: path("../b/file") };
    let link = Op::Link { from: path("a/file"), to: path("b/again") };
    let rename = Op::rename;
    vec![
        ("create", create(path("a/new"))),
        ("create in a new block", create(format!("big/{}", "n".repeat(255)))),
        ("mkdir", Op::Mkdir(path("a/new"))),
        ("symlink", symlink),
        ("mkmount", Op::Mkmount { path: path("a/new"), volume: path("other") }),
        ("unlink a mount point", Op::Unlink(path("b/mount"))),
        ("move a mount point", rename("b/mount", "a/mount")),
        ("unlink", Op::Unlink(path("a/file"))),
        ("unlink one of two names", Op::Unlink(path("b/linked"))),
        ("unlink the last in a block", Op::Unlink(path("b/full/x"))),
        ("rmdir", Op::Rmdir(path("b/empty"))),
        ("link", link),
        ("chmod", Op::Chmod(path("a/file"), 0o400)),
        ("rename", rename("a/file", "a/renamed")),
        ("rename over", rename("a/file", "a/other")),
        ("rename over one of two names", rename("a/file", "a/twin")),
        ("rename one of two names over a file", rename("a/twin", "a/other")),
        ("rename between blocks", rename(&big(0), &big(19))),
        ("rename to another directory", rename("a/file", "b/renamed")),
        ("rename to another directory over", rename("a/file", "b/file")),
        ("rename to another directory over one of two", rename("a/file", "b/linked")),
        ("rename a directory", rename("a/sub", "a/moved")),
        ("move a directory", rename("a/sub", "b/moved")),
        ("move a directory over an empty one", rename("a/sub", "b/empty")),
        ("move a directory up", rename("a/sub/deep", "deep")),
    ]
}

fn tree_of(drives: &MemoryDrives, what: &str) -> Tree {
    let report = check(drives);
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
    assert_eq!(report.orphans, 0, "{what}: {:?}", report.orphan_handles);
    report.tree
}

/// All that is to be done is done, and no object is there but those that a name or the manager knows.
fn settled(namespace: &Namespace, drives: &MemoryDrives, what: &str) -> Tree {
    assert_eq!(namespace.keep_house(), Default::default(), "{what}");
    let tree = tree_of(drives, what);
    let ahead: HashSet<FileHandle> = check(drives).ahead.into_iter().collect();
    assert_eq!(ahead, namespace.made_ahead().into_iter().collect(), "{what}: made for nobody");
    agree(namespace, &tree, what);
    tree
}

/// The manager says what the drives hold.
fn agree(namespace: &Namespace, tree: &Tree, what: &str) {
    let mut listed = 1;
    for (path, node) in tree {
        let file = walk(namespace, path).unwrap_or_else(|| panic!("{what}: {path} is missing"));
        assert_eq!(file.attributes.links, node.links, "{what}: {path}");
        if node.file_type == FileType::Directory {
            let page = namespace.readdir(&root(), file.handle, 0, 1000).unwrap();
            listed += page.entries.len();
        }
    }
    assert_eq!(listed, tree.len(), "{what}");
}

/// An operation, what makes it durable, and what brings it home; whether it was answered, and whether it
/// was made durable.
fn whole(namespace: &Namespace, operation: &Op) -> (bool, bool) {
    let answered = operation.run(namespace).is_ok();
    let committed = answered && namespace.commit().is_ok();
    namespace.keep_house();
    (answered, committed)
}

/// The tree after the operation, and how many calls it takes, starting from a cold cache.
fn without_faults(start: &Snapshot, operation: &Op) -> (Tree, usize) {
    let drives = Arc::new(MemoryDrives::from_snapshot(start));
    let store = Arc::new(FaultyDrives::new(drives.clone(), usize::MAX, Stop::Before));
    let namespace = open(store.clone());
    assert_eq!(whole(&namespace, operation), (true, true));
    let calls = store.calls();
    (settled(&namespace, &drives, "without faults"), calls)
}

#[test]
fn old_or_new_after_every_stop() {
    let start = set_up();
    let opening = {
        let drives = Arc::new(MemoryDrives::from_snapshot(&start));
        let store = Arc::new(FaultyDrives::new(drives, usize::MAX, Stop::Before));
        drop(open(store.clone()));
        store.calls()
    };
    let old = tree_of(&MemoryDrives::from_snapshot(&start), "start");
    let mut cases = 0;
    for (name, operation) in operations() {
        let (new, calls) = without_faults(&start, &operation);
        assert_ne!(old, new, "{name}");
        for stop_at in opening..calls + 1 {
            for (stop, power_cut) in STOPS.iter().flat_map(|stop| [(*stop, false), (*stop, true)]) {
                let what = format!("{name}, call {stop_at}, {stop:?}, power cut {power_cut}");
                let drives = Arc::new(MemoryDrives::from_snapshot(&start));
                let store = Arc::new(FaultyDrives::new(drives.clone(), stop_at, stop));
                let namespace = open(store);
                // A lookup may be what fails: then the operation is not even begun.
                let (answered, committed) = whole(&namespace, &operation);
                let tree = if stop.is_death() {
                    drop(namespace);
                    if power_cut {
                        drives.power_cut_of_some(cases);
                    }
                    settled(&open(drives.clone()), &drives, &what)
                } else {
                    settled(&namespace, &drives, &what)
                };
                let difference = difference(&tree, &old, &new);
                assert!(tree == new || tree == old, "{what}: neither: {difference}");
                let is_safe = if power_cut { committed } else { answered };
                assert!(!is_safe || tree == new, "{what}: answered, but lost");
                if cases % 4 == 0 {
                    go_on(&drives, &what);
                }
                cases += 1;
            }
        }
    }
    assert!(cases > 1000, "only {cases}");
}

/// The next manager goes on from there, and so does the one after it.
fn go_on(drives: &Arc<MemoryDrives>, what: &str) {
    let before = tree_of(drives, what);
    let namespace = open(drives.clone());
    let made = namespace.mkdir(&root(), namespace.root(), b"later", 0o755).expect(what);
    namespace.create(&root(), made.handle, b"file", 0o644, true).expect(what);
    namespace.commit().expect(what);
    drop(namespace);
    drives.power_cut();
    let mut after = settled(&open(drives.clone()), drives, what);
    assert!(after.remove("/later/file").is_some() && after.remove("/later").is_some(), "{what}");
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before), "{what}");
}

fn difference(tree: &Tree, old: &Tree, new: &Tree) -> String {
    let lines = |name: &str, other: &Tree| {
        let gone = other.iter().filter(|(path, node)| tree.get(*path) != Some(node));
        let come = tree.iter().filter(|(path, node)| other.get(*path) != Some(node));
        let gone: Vec<_> = gone.map(|(path, node)| format!("  -{name} {path} {node:?}")).collect();
        let come: Vec<_> = come.map(|(path, node)| format!("  +{name} {path} {node:?}")).collect();
        [gone, come].concat().join("\n")
    };
    format!("\n{}\n{}", lines("old", old), lines("new", new))
}

#[test]
fn making_the_volume_can_be_cut_anywhere() {
    for stop_at in 0..20 {
        for (stop, power_cut) in [(Stop::Before, false), (Stop::After, false), (Stop::After, true)]
        {
            let drives = Arc::new(MemoryDrives::new(2));
            let store = Arc::new(FaultyDrives::new(drives.clone(), stop_at, stop));
            let options = support::options(&[support::HOME]);
            let _ = Namespace::open(store, options);
            if power_cut {
                drives.power_cut();
            }
            let namespace = open(drives.clone());
            namespace.create(&root(), namespace.root(), b"file", 0o644, true).unwrap();
            namespace.keep_house();
            let report = check(&drives);
            assert_eq!((report.tree.len(), report.problems), (2, Vec::new()));
            // The journal and the root of a volume that was not begun.
            assert!(report.orphans <= 2, "{stop_at} {stop:?}");
        }
    }
}

/// The next manager dies too, while it finishes what the first one has left.
#[test]
fn old_or_new_after_two_stops() {
    let start = set_up();
    let old = tree_of(&MemoryDrives::from_snapshot(&start), "start");
    let wanted = ["move a directory over an empty one", "link", "create"];
    for (name, operation) in operations().into_iter().filter(|(name, _)| wanted.contains(name)) {
        let (new, calls) = without_faults(&start, &operation);
        // What comes before the journal is the business of the other test.
        for stop_at in calls.saturating_sub(10)..calls {
            let drives = Arc::new(MemoryDrives::from_snapshot(&start));
            let store = Arc::new(FaultyDrives::new(drives.clone(), stop_at, Stop::After));
            whole(&open(store), &operation);
            let between = drives.snapshot();
            for second in 0..40 {
                for stop in [Stop::Before, Stop::AfterInMemory, Stop::Half] {
                    let drives = Arc::new(MemoryDrives::from_snapshot(&between));
                    let store = Arc::new(FaultyDrives::new(drives.clone(), second, stop));
                    let _ = Namespace::open(store.clone(), support::options(&drives.drives()));
                    drives.power_cut_of_some(second as u64);
                    let what = format!("{name}, {stop_at}, then {second} {stop:?}");
                    let tree = settled(&open(drives.clone()), &drives, &what);
                    assert!(
                        tree == new || tree == old,
                        "{what}: {}",
                        difference(&tree, &old, &new)
                    );
                    if store.calls() < second {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_on_a_drive_that_is_away_is_removed_later() {
    let drives = Arc::new(MemoryDrives::new(3));
    let namespace = open(drives.clone());
    let root_directory = namespace.root();
    let make = |number: usize| {
        let name = format!("{number}");
        namespace.create(&root(), root_directory, name.as_bytes(), 0o644, true).unwrap().handle
    };
    let files: Vec<_> = (0..3).map(make).collect();
    let far = files.iter().position(|file| file.drive != support::HOME).unwrap();
    assert_eq!(namespace.keep_house(), Default::default());
    drives.set_away(files[far].drive, true);
    namespace.unlink(&root(), root_directory, format!("{far}").as_bytes()).unwrap();
    let left = namespace.keep_house();
    assert_eq!(left.objects, 1);
    drives.set_away(files[far].drive, false);
    let gone = namespace.getattr(&root(), files[far]).map(|file| file.handle);
    assert_eq!(gone, Err(ManagerStatus::Stale), "gone for everybody before it is removed");
    assert_eq!(check(&drives).orphans, 1);
    assert_eq!(namespace.keep_house(), Default::default());
    assert_eq!(check(&drives).orphans, 0);
}
