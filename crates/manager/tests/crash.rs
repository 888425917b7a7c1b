//! The manager dies, or a call is lost, at every single call to a drive, with and without a power
//! cut of the drives: what comes back is the old tree or the new one, whole.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::Arc;

use nasd_manager::Namespace;
use nasd_manager::objects::ObjectStore;
use nasd_manager::objects::memory::{MemoryDrives, Snapshot};
use nasd_protocol::manager::{FileType, ManagerStatus};

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
    // A directory of two blocks, so that some names are in different blocks.
    let big = namespace.mkdir(&caller, namespace.root(), b"big", 0o755).unwrap().handle;
    for number in 0..20 {
        let name = format!("{number:0>250}");
        namespace.create(&caller, big, name.as_bytes(), 0o600, true).unwrap();
    }
    drop(namespace);
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

fn tree_of(drives: &MemoryDrives, what: &str) -> (Tree, usize) {
    let report = check(drives);
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
    (report.tree, report.orphans)
}

/// The tree after the operation, and how many calls it takes, starting from a cold cache.
fn without_faults(start: &Snapshot, operation: &Op) -> (Tree, usize) {
    let drives = Arc::new(MemoryDrives::from_snapshot(start));
    let store = Arc::new(FaultyDrives::new(drives.clone(), usize::MAX, Stop::Before));
    let namespace = open(store.clone());
    operation.run(&namespace).unwrap();
    let (tree, orphans) = tree_of(&drives, "without faults");
    assert_eq!(orphans, 0);
    (tree, store.calls())
}

#[test]
fn old_or_new_after_every_stop() {
    let start = set_up();
    let (old, _) = tree_of(&MemoryDrives::from_snapshot(&start), "start");
    let opening = {
        let drives = Arc::new(MemoryDrives::from_snapshot(&start));
        let store = Arc::new(FaultyDrives::new(drives, usize::MAX, Stop::Before));
        drop(open(store.clone()));
        store.calls()
    };
    let mut cases = 0;
    for (name, operation) in operations() {
        let (new, calls) = without_faults(&start, &operation);
        assert_ne!(old, new, "{name}");
        for stop_at in opening..calls + 2 {
            for (stop, power_cut) in STOPS.iter().flat_map(|stop| [(*stop, false), (*stop, true)]) {
                let what = format!("{name}, call {stop_at}, {stop:?}, power cut {power_cut}");
                let drives = Arc::new(MemoryDrives::from_snapshot(&start));
                let store = Arc::new(FaultyDrives::new(drives.clone(), stop_at, stop));
                let namespace = open(store);
                // A lookup may be what fails: then the operation is not even begun.
                let answered = operation.run(&namespace).is_ok();
                if !stop.is_death() {
                    namespace.keep_house();
                    agree(&namespace, &drives, &what);
                    if power_cut {
                        go_on(&namespace, &drives, &what);
                        cases += 1;
                        continue;
                    }
                }
                drop(namespace);
                if power_cut {
                    drives.power_cut();
                }
                check_again(&drives, &what, answered, &old, &new);
                cases += 1;
            }
        }
    }
    assert!(cases > 1000, "only {cases}");
}

/// The running manager says what the drives hold.
fn agree(namespace: &Namespace, drives: &MemoryDrives, what: &str) -> Tree {
    let (tree, _) = tree_of(drives, what);
    let mut listed = 1;
    for (path, node) in &tree {
        let file = walk(namespace, path).unwrap_or_else(|| panic!("{what}: {path} is missing"));
        assert_eq!(file.attributes.links, node.links, "{what}: {path}");
        if node.file_type == FileType::Directory {
            let page = namespace.readdir(&root(), file.handle, 0, 1000).unwrap();
            listed += page.entries.len();
        }
    }
    assert_eq!(listed, tree.len(), "{what}");
    tree
}

/// The manager that has lost a call goes on removing what the call was about; what it says then is
/// what the next manager finds, after a power cut.
fn go_on(namespace: &Namespace, drives: &Arc<MemoryDrives>, what: &str) {
    for directory in ["a", "b", "big"] {
        let Some(directory) = walk(namespace, directory) else {
            continue;
        };
        let page = namespace.readdir(&root(), directory.handle, 0, 1000).unwrap();
        for entry in page.entries.iter().filter(|one| one.file_type != FileType::Directory) {
            let file = namespace.getattr(&root(), entry.handle).expect(what);
            // Files of several names would go through the log, and cover up what is left there.
            if file.attributes.links > 1 {
                continue;
            }
            namespace.unlink(&root(), directory.handle, entry.name.as_bytes()).expect(what);
        }
    }
    let before = agree(namespace, drives, what);
    drives.power_cut();
    let next = open(drives.clone());
    assert_eq!(agree(&next, drives, what), before, "{what}");
}

fn check_again(drives: &Arc<MemoryDrives>, what: &str, answered: bool, old: &Tree, new: &Tree) {
    let namespace = open(drives.clone());
    let (tree, orphans) = tree_of(drives, what);
    agree(&namespace, drives, what);
    assert!(tree == *new || tree == *old, "{what}: neither: {}", difference(&tree, old, new));
    assert!(!answered || tree == *new, "{what}: answered, but lost");
    assert!(orphans <= 1, "{what}: {orphans} orphans");
    // And it goes on from there.
    let made = namespace.mkdir(&root(), namespace.root(), b"later", 0o755).unwrap();
    namespace.create(&root(), made.handle, b"file", 0o644, true).unwrap();
    assert_eq!(namespace.keep_house(), Default::default(), "{what}");
    drives.power_cut();
    let (later, _) = tree_of(drives, what);
    assert!(later.contains_key("/later/file"), "{what}");
    // What was seen is there still. A mode that nobody was promised may have been lost.
    let names = |tree: &Tree| -> Vec<(String, usize)> {
        let kept = tree.iter().filter(|(path, _)| !path.starts_with("/later"));
        kept.map(|(path, node)| (path.clone(), node.number)).collect()
    };
    assert_eq!(names(&later), names(&tree), "{what}");
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
            let (tree, orphans) = tree_of(&drives, "made");
            assert_eq!(tree.len(), 2);
            assert!(orphans <= 2, "{stop_at} {stop:?}");
        }
    }
}

/// The next manager dies too, while it finishes what the first one has left.
#[test]
fn old_or_new_after_two_stops() {
    let start = set_up();
    let (old, _) = tree_of(&MemoryDrives::from_snapshot(&start), "start");
    let wanted = ["move a directory over an empty one", "link"];
    for (name, operation) in operations().into_iter().filter(|(name, _)| wanted.contains(name)) {
        let (new, calls) = without_faults(&start, &operation);
        // What comes before the log is the business of the other test.
        for stop_at in calls.saturating_sub(8)..calls {
            for stop in STOPS.into_iter().filter(|stop| stop.is_death()) {
                let drives = Arc::new(MemoryDrives::from_snapshot(&start));
                let store = Arc::new(FaultyDrives::new(drives.clone(), stop_at, stop));
                let options = support::options(&drives.drives());
                if let Ok(namespace) = Namespace::open(store, options) {
                    let _ = operation.run(&namespace);
                }
                let between = drives.snapshot();
                for second in 0..40 {
                    for stop in [Stop::Before, Stop::AfterInMemory] {
                        let drives = Arc::new(MemoryDrives::from_snapshot(&between));
                        let store = Arc::new(FaultyDrives::new(drives.clone(), second, stop));
                        let _ = Namespace::open(store.clone(), support::options(&drives.drives()));
                        drives.power_cut();
                        let what = format!("{name}, {stop_at}, then {second} {stop:?}");
                        check_again(&drives, &what, false, &old, &new);
                        if store.calls() < second {
                            break;
                        }
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
    drives.set_away(files[far].drive, true);
    namespace.unlink(&root(), root_directory, format!("{far}").as_bytes()).unwrap();
    let left = namespace.keep_house();
    assert_eq!((left.objects, left.changes), (1, 0));
    drives.set_away(files[far].drive, false);
    let gone = namespace.getattr(&root(), files[far]).map(|file| file.handle);
    assert_eq!(gone, Err(ManagerStatus::Stale), "gone for everybody before it is removed");
    assert_eq!(check(&drives).orphans, 1);
    assert_eq!(namespace.keep_house(), Default::default());
    assert_eq!(check(&drives).orphans, 0);
}
