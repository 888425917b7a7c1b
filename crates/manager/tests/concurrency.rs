//! Many threads at once: nobody waits for ever, nothing is lost, the tree stays a tree.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nasd_manager::Namespace;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus, RenameFlags};

use support::checker::check;
use support::operation::Op;
use support::watched::{WatchedDrives, What};
use support::{Random, open, options, root, walk};

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| format!("/{}", random.pick(&["a", "b", "c", "d"]))).collect()
}

fn hammer(small_caches: bool) {
    let drives = Arc::new(MemoryDrives::new(3));
    let mut options = options(&drives.drives());
    if small_caches {
        (options.directory_cache_bytes, options.record_cache_entries) = (1, 1);
    }
    let namespace = Namespace::open(drives.clone(), options).unwrap();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (namespace, done) = (&namespace, &done);
            scope.spawn(move || {
                let mut random = Random(1000 + thread);
                for _ in 0..3000 {
                    match Op::random(&mut random, path).run(namespace) {
                        Ok(()) => {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        // Drives don't fail here, and names and objects belong together.
                        Err(status @ (ManagerStatus::Io | ManagerStatus::Unavailable)) => {
                            panic!("{status:?}")
                        }
                        Err(_) => {}
                    }
                }
            });
        }
    });
    assert!(done.load(Ordering::Relaxed) > 2000, "hardly anything worked");
    assert_eq!(namespace.keep_house(), Default::default());
    let report = check(&drives);
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let record =
        |orphan: &FileHandle| drives.getattr(*orphan, Wait::Brief).map(|it| it.fs_specific);
    let orphans: Vec<_> =
        report.orphan_handles.iter().map(|orphan| (orphan, record(orphan))).collect();
    assert!(orphans.is_empty(), "{orphans:?}");
    // The manager's memory says the same as the drives.
    for (path, node) in &report.tree {
        let file = walk(&namespace, path).unwrap();
        assert_eq!(file.attributes.links, node.links, "{path}");
        assert_eq!(file.attributes.file_type, node.file_type, "{path}");
    }
    drop(namespace);
    drives.power_cut();
    let next = open(drives.clone());
    let after = check(&drives);
    assert!(after.problems.is_empty() && after.tree == report.tree);
    assert_eq!((after.orphans, after.ahead.len()), (0, next.made_ahead().len()));
}

#[test]
fn threads_leave_a_tree() {
    hammer(false);
}

#[test]
fn threads_leave_a_tree_without_caches() {
    hammer(true);
}

/// A name that is replaced again and again is there at every moment.
#[test]
fn a_replaced_name_is_always_there() {
    let drives = Arc::new(MemoryDrives::new(2));
    let namespace = open(drives);
    let directory = namespace.root();
    namespace.create(&root(), directory, b"name", 0o644, true).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (namespace, stop) = (&namespace, &stop);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(move || {
                    let mut looks = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let found = namespace.lookup(&root(), directory, b"name");
                        assert_eq!(found.map(|file| file.attributes.size), Ok(0));
                        looks += 1;
                    }
                    looks
                })
            })
            .collect();
        for number in 0..2000 {
            let new = format!("new{number}");
            namespace.create(&root(), directory, new.as_bytes(), 0o644, true).unwrap();
            let (from, to) = ((directory, new.as_bytes()), (directory, &b"name"[..]));
            namespace.rename(&root(), from, to, RenameFlags::NONE).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>() > 0);
    });
}

/// One of many callers makes the name; all others are told that it is there.
#[test]
fn an_exclusive_name_has_one_maker() {
    let drives = Arc::new(MemoryDrives::new(2));
    let namespace = open(drives.clone());
    for round in 0..50 {
        let name = format!("lock{round}");
        let makers = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let directory = namespace.root();
                    match namespace.create(&root(), directory, name.as_bytes(), 0o600, true) {
                        Ok(_) => {
                            makers.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(status) => assert_eq!(status, ManagerStatus::Exists),
                    }
                });
            }
        });
        assert_eq!(makers.load(Ordering::SeqCst), 1);
    }
    assert_eq!(namespace.keep_house(), Default::default());
    assert_eq!(check(&drives).orphans, 0);
    let tree = check(&drives).tree;
    let files = tree.values().filter(|node| node.file_type == FileType::Regular);
    assert_eq!(files.count(), 50);
}

/// When the one who has made a directory is answered, others may be changing it: who looked into it without its lock could
/// keep what it was before, and a directory that is not empty would count as empty.
#[test]
fn whoever_makes_a_directory_does_not_look_into_it() {
    let drives = Arc::new(MemoryDrives::new(1));
    let mut options = options(&drives.drives());
    // Its contents don't stay in memory beside those of the one that it is in.
    options.directory_cache_bytes = 1;
    let read = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&read);
    let watched = WatchedDrives::new(drives, move |call| {
        if call.what == What::Read {
            seen.lock().unwrap().extend(call.object);
        }
        Ok(())
    });
    let namespace = Namespace::open(Arc::new(watched), options).unwrap();
    let made = namespace.mkdir(&root(), namespace.root(), b"new", 0o755).unwrap();
    assert!(!read.lock().unwrap().contains(&made.handle));
    let told = namespace.getattr(&root(), made.handle).unwrap();
    assert_eq!(made.attributes, told.attributes);
    assert!(read.lock().unwrap().contains(&made.handle), "it was in memory");
}
