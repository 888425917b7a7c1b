//! `nasd cache` on directories that the library has made: shown, in use, emptied.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_cache::{Cache, CacheOptions, FileKey, Identity};
use nasd_types::{CellId, DriveId, ObjectId, PartitionId};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use support::{finish, nasd, text};

fn run(root: &Path, words: &[&str], directory: Option<&Path>) -> Output {
    let mut command = nasd();
    command.env("NASD_CACHE", root).arg("cache").args(words).args(directory);
    finish(command)
}

fn json(root: &Path, words: &[&str], directory: Option<&Path>) -> Value {
    let output = run(root, words, directory);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

/// A cache of this volume with three files, in use.
fn cache(root: &Path, volume: &str) -> (PathBuf, Cache) {
    let identity = Identity { cell: CellId([0xc1; 16]), volume: volume.into() };
    let place = root.join(identity.cell.to_string()).join(volume);
    let options =
        CacheOptions { directory: Some(place.clone()), disk_bytes: 1 << 20, memory_bytes: 1 << 20 };
    let cache = Cache::open(options, &identity).unwrap();
    for object in 64..67 {
        let file =
            FileKey { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) };
        cache.begin(&file, 2, 5000);
        assert!(cache.put(&file, 2, 0, vec![1; 5000]));
    }
    cache.settle();
    (place, cache)
}

#[test]
fn caches_are_shown_and_emptied() {
    let directory = support::scratch();
    let root = directory.path();
    let output = run(root, &[], None);
    assert!(output.status.success() && text(&output).contains("no cache"), "{}", text(&output));
    assert_eq!(json(root, &["show", "--json"], None)["caches"], serde_json::json!([]));

    let (main, in_use) = cache(root, "main");
    let (scratch, _) = cache(root, "scratch");
    let facts = json(root, &["--json"], None);
    let found = &facts["caches"];
    assert_eq!(found.as_array().unwrap().len(), 2, "{facts}");
    assert_eq!((&found[0]["volume"], &found[0]["in_use"]), (&"main".into(), &true.into()));
    assert_eq!(found[0]["process"], std::process::id());
    assert_eq!((&found[1]["files"], &found[1]["in_use"]), (&3.into(), &false.into()));
    assert_eq!(found[1]["bytes"], 3 * (8192 + 4096));
    assert_eq!(found[1]["cell"], "c1".repeat(16));
    assert_eq!(json(root, &["show", "--json"], Some(&scratch))["caches"][0], found[1]);
    let shown = text(&run(root, &[], Some(&main)));
    for word in ["volume main of cell c1c1", "3 files", "36.0 KiB", "in use by process"] {
        assert!(shown.contains(word), "no `{word}` in {shown}");
    }

    // Nobody agrees; then all but what is in use is emptied.
    let output = run(root, &["empty"], None);
    assert!(!output.status.success() && text(&output).contains("--yes"), "{}", text(&output));
    assert_eq!(json(root, &["--json"], None), facts);
    let output = run(root, &["empty", "--yes"], None);
    let printed = text(&output);
    assert!(!output.status.success() && printed.contains("unmount first"), "{printed}");
    assert!(printed.contains("removed 3 files"), "{printed}");
    assert_eq!(json(root, &["--json"], Some(&scratch))["caches"][0]["files"], 0);
    assert_eq!(json(root, &["--json"], Some(&main))["caches"][0]["files"], 3);
    drop(in_use);
    let emptied = json(root, &["empty", "--yes", "--json"], Some(&main));
    assert_eq!(emptied["emptied"][0]["files"], 3, "{emptied}");
}

#[test]
fn what_is_no_cache_is_left_alone() {
    let directory = support::scratch();
    let photos = directory.path().join("photos");
    std::fs::create_dir_all(photos.join("00")).unwrap();
    std::fs::write(photos.join("00/one.jpg"), "mine").unwrap();
    for words in [&["show"][..], &["empty", "--yes"]] {
        let output = run(directory.path(), words, Some(&photos));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("is no cache directory"), "{}", text(&output));
    }
    assert_eq!(std::fs::read(photos.join("00/one.jpg")).unwrap(), b"mine");
    let output = run(directory.path(), &["--cell", "/nowhere/at/all"], None);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
