//! Random operations on a volume and on a tree in memory: the same answers, and the same tree,
//! also after restarts and power cuts. No file's contents pass the manager on the way.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod support;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use nasd_manager::Namespace;
use nasd_manager::file_record::FileRecord;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::DriveId;

use support::checker::check;
use support::operation::Op;
use support::reference::Reference;
use support::watched::{WatchedDrives, What};
use support::{Random, options};

/// Names of several lengths, so that some directories have several blocks.
const NAMES: [&str; 6] = ["a", "b", "c", "dd", LONG, LONGER];
const LONG: &str = "longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglong";
const LONGER: &str = "x\u{fc}yx\u{fc}yx\u{fc}yx\u{fc}yx\u{fc}yx\u{fc}yx\u{fc}y";

fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(4);
    (0..depth).map(|_| format!("/{}", random.pick(&NAMES))).collect()
}

/// One operation, on both; the outcomes must be the same.
fn step(namespace: &Namespace, reference: &mut Reference, random: &mut Random) -> String {
    let operation = Op::random(random, path);
    let expected = reference.run(&operation);
    assert_eq!(operation.run(namespace), expected, "{operation:?}");
    format!("{operation:?}")
}

fn compare(drives: &MemoryDrives, reference: &Reference, what: &str) {
    let report = check(drives);
    assert!(report.problems.is_empty(), "{what}: {:#?}", report.problems);
    let expected = reference.paths();
    let paths: Vec<&String> = report.tree.keys().collect();
    assert_eq!(paths, expected.keys().collect::<Vec<_>>(), "{what}");
    for (path, (number, links)) in expected {
        let (node, expected) = (&report.tree[&path], reference.node(number));
        assert_eq!(node.links, links, "{what}: {path}");
        assert_eq!(node.file_type, expected.file_type, "{what}: {path}");
        assert_eq!(node.target, expected.target, "{what}: {path}");
        let attributes = expected
            .attributes
            .iter()
            .map(|(name, bytes)| (format!("trusted.{name}").into_bytes(), vec![*name; *bytes]));
        assert!(node.attributes.clone().into_iter().eq(attributes), "{what}: {path}");
    }
}

/// Objects whose data was read or written by the manager.
type Touched = Arc<Mutex<HashSet<FileHandle>>>;

fn watched(drives: &Arc<MemoryDrives>, touched: &Touched) -> Arc<dyn ObjectStore> {
    let touched = Arc::clone(touched);
    Arc::new(WatchedDrives::new(Arc::clone(drives), move |seen| {
        if matches!(seen.what, What::Read | What::Write(_)) {
            touched.lock().unwrap().extend(seen.object);
        }
        Ok(())
    }))
}

fn run(seed: u64, steps: usize, small_caches: bool) {
    let drives = Arc::new(MemoryDrives::new(3));
    let touched = Touched::default();
    let open = || {
        let objects = watched(&drives, &touched);
        let mut options = options(&objects.drives());
        if small_caches {
            (options.directory_cache_bytes, options.record_cache_entries) = (1, 1);
        }
        Namespace::open(objects, options).unwrap()
    };
    let mut namespace = open();
    let (mut reference, mut random) = (Reference::new(), Random(seed));
    let mut restarted = false;
    for number in 0..steps {
        let what = step(&namespace, &mut reference, &mut random);
        let what = format!("seed {seed}, step {number}, {what}");
        if random.below(40) == 0 {
            assert_eq!(namespace.keep_house(), Default::default(), "{what}");
            restarted = false;
            compare(&drives, &reference, &what);
            assert_eq!(check(&drives).orphans, 0, "{what}");
        }
        if random.below(60) == 0 {
            // What was answered survives the manager, and what was committed the drives as well.
            if random.below(2) == 0 || std::mem::take(&mut restarted) {
                namespace.commit().unwrap();
                drives.power_cut_of_some(seed * 1000 + number as u64);
            }
            drop(namespace);
            namespace = open();
            assert_eq!(namespace.keep_house(), Default::default(), "{what}");
            compare(&drives, &reference, &what);
            let report = check(&drives);
            assert_eq!(report.orphans, 0, "{what}");
            let ahead: HashSet<FileHandle> = report.ahead.into_iter().collect();
            assert_eq!(ahead, namespace.made_ahead().into_iter().collect(), "{what}");
        }
        if random.below(60) == 0 {
            // A drive starts anew under the manager.
            drives.restart(DriveId(1 + random.below(3) as u64), seed + number as u64);
            restarted = true;
        }
    }
    for object in touched.lock().unwrap().iter() {
        if let Ok(attributes) = drives.getattr(*object, Wait::Brief)
            && let Ok(record) = FileRecord::parse(&attributes.fs_specific)
        {
            assert_ne!(record.file_type, FileType::Regular, "file contents passed the manager");
        }
    }
}

#[test]
fn the_volume_is_the_tree() {
    for seed in 1..=12 {
        run(seed, 1500, false);
    }
}

#[test]
fn the_volume_is_the_tree_without_caches() {
    for seed in 21..=24 {
        run(seed, 800, true);
    }
}
