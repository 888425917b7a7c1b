//! What a cache keeps, of which version, and across restarts; whom it refuses.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_cache::{CHUNK_BYTES, Cache, CacheError, CacheOptions, Identity, MAX_NOTE_BYTES, Missing};
use nasd_types::{ByteRange, CellId};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use support::{contents, file, fill, identity, open};

const MIB: u64 = 1 << 20;

/// Who could write to it could put anything in front of others.
#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let around = tempfile::tempdir().unwrap();
    let directory = around.path().join("cache");
    let begin = || {
        let directory = Some(directory.clone());
        let options = CacheOptions { directory, disk_bytes: MIB, memory_bytes: MIB };
        Cache::open(options, &identity()).map(drop)
    };
    begin().unwrap();
    let set = |place: &std::path::Path, mode| {
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (place, mode) in [(&*directory, 0o777), (&*directory, 0o720), (around.path(), 0o707)] {
        let before = fs::metadata(place).unwrap().permissions().mode();
        set(place, mode);
        let refused = begin().unwrap_err();
        assert!(matches!(refused, CacheError::Unsafe { .. }), "{refused}");
        set(place, before);
        begin().unwrap();
    }
    set(around.path(), 0o1777);
    begin().unwrap();
    // Nor is a link followed that somebody has put there.
    let precious = around.path().join("precious");
    fs::write(&precious, "all of it").unwrap();
    fs::remove_file(directory.join("lock")).unwrap();
    std::os::unix::fs::symlink(&precious, directory.join("lock")).unwrap();
    begin().unwrap_err();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "all of it");
}

#[test]
fn what_was_put_is_read_in_any_pieces() {
    let directory = tempfile::tempdir().unwrap();
    let length = 2 * CHUNK_BYTES + 1000;
    let all: Vec<u8> =
        (0..3).flat_map(|n| contents(1, 4, n, nasd_cache::chunk_length(length, n))).collect();
    let check = |cache: &Cache| {
        for (offset, wanted) in [
            (0, 10),
            (CHUNK_BYTES - 5, 10),
            (5, 2 * CHUNK_BYTES),
            (length - 3, 10),
            (length, 9),
            (u64::MAX, 1),
        ] {
            let mut into = vec![0; wanted as usize];
            let filled = cache.read(&file(1), 4, offset, &mut into).unwrap();
            let end = offset.saturating_add(wanted).min(length);
            let expected = all.get(offset as usize..end as usize).unwrap_or_default();
            assert_eq!(&into[..filled], expected, "{wanted} at {offset}");
        }
    };
    {
        let cache = open(directory.path(), 64 * MIB, 64 * MIB);
        fill(&cache, 1, 4, length);
        check(&cache);
        assert_eq!(cache.version_of(&file(1)), Some((4, length)));
        assert_eq!(cache.summary().disk_hits, 0);
    }
    // By another process's eyes: from the disk, then from memory.
    let cache = open(directory.path(), 64 * MIB, 64 * MIB);
    assert_eq!(cache.version_of(&file(1)), Some((4, length)));
    check(&cache);
    assert_eq!(cache.summary().disk_hits, 3);
    assert_eq!(cache.chunk(&file(1), 4, 2).unwrap().len(), 1000);
    assert!(cache.chunk(&file(1), 4, 3).is_none());
    assert_eq!(cache.summary().disk_hits, 3);
    let listed: Vec<_> = cache.files().collect();
    assert!(listed.len() == 1 && listed[0].is_complete && listed[0].disk_bytes == length);
    // Another version, or length, knows nothing of it.
    assert_eq!(cache.read(&file(1), 5, 0, &mut [0]), Err(Missing::File));
    assert!(cache.begin(&file(1), 4, length) && cache.chunk(&file(1), 4, 0).is_some());
    assert!(cache.begin(&file(1), 6, length) && cache.chunk(&file(1), 6, 0).is_none());
    assert_eq!(cache.read(&file(1), 6, 9, &mut [0]), Err(Missing::Chunks(vec![0])));
    assert!(!cache.put(&file(1), 4, 0, vec![0; CHUNK_BYTES as usize]));
    assert!(!cache.put(&file(1), 6, 0, vec![0; 9]) && !cache.put(&file(1), 6, 3, vec![]));
    assert!(!cache.begin(&file(1), 8, u64::MAX) && cache.version_of(&file(1)).is_none());
}

#[test]
fn a_store_keeps_what_it_did_not_change() {
    let directory = tempfile::tempdir().unwrap();
    let length = 6 * CHUNK_BYTES;
    let cache = open(directory.path(), 64 * MIB, 64 * MIB);
    fill(&cache, 1, 2, length);
    cache.settle();
    assert!(!cache.advance(&file(1), 3, 4, length, &[]));
    let changed = [
        ByteRange::new(4 * CHUNK_BYTES, 1),
        ByteRange::new(0, 0),
        ByteRange::new(2 * CHUNK_BYTES - 1, 1),
    ];
    assert!(cache.advance(&file(1), 2, 4, length - 1, &changed));
    let check = |cache: &Cache| {
        assert_eq!(cache.version_of(&file(1)), Some((4, length - 1)));
        assert_eq!(cache.lacking(&file(1), 4, 0..6), [1, 4, 5]);
        for number in [0, 2, 3] {
            let found = cache.chunk(&file(1), 4, number).unwrap();
            assert_eq!(found[..], contents(1, 2, number, CHUNK_BYTES as usize));
        }
        assert!(cache.chunk(&file(1), 2, 0).is_none());
    };
    check(&cache);
    drop(cache);
    check(&open(directory.path(), 64 * MIB, 64 * MIB));
}

#[test]
fn notes_are_of_a_version() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 64 * MIB, 64 * MIB);
    cache.begin(&file(1), 2, 0);
    assert!(cache.set_note(&file(1), 2, b"mode 644".to_vec()));
    assert!(!cache.set_note(&file(1), 3, b"x".to_vec()));
    assert!(!cache.set_note(&file(1), 2, vec![0; MAX_NOTE_BYTES + 1]));
    cache.begin(&file(2), 2, 0);
    assert!(cache.set_note(&file(2), 2, vec![5; MAX_NOTE_BYTES]));
    fill(&cache, 3, 2, 10);
    assert!(cache.set_note(&file(3), 2, b"gone".to_vec()));
    assert!(cache.set_note(&file(3), 2, b"".to_vec()));
    drop(cache);
    // Once without memory to keep them in.
    for memory in [0, MIB] {
        let cache = open(directory.path(), 64 * MIB, memory);
        assert_eq!(cache.note(&file(1), 2).as_deref(), Some(&b"mode 644"[..]));
        assert_eq!(cache.note(&file(2), 2).unwrap()[..], [5; MAX_NOTE_BYTES]);
        assert_eq!(cache.note(&file(3), 2), None);
        assert_eq!(cache.note(&file(1), 3), None);
        assert!(cache.begin(&file(4), 2, 5) && cache.put(&file(4), 2, 0, vec![1; 5]));
        cache.settle();
        // The table changes and the note stays.
        assert!(cache.set_note(&file(4), 2, b"four".to_vec()));
        cache.settle();
        assert_eq!(cache.note(&file(4), 2).as_deref(), Some(&b"four"[..]));
        cache.forget(&file(4));
    }
    let cache = open(directory.path(), 64 * MIB, MIB);
    assert!(cache.version_of(&file(4)).is_none());
    assert!(cache.advance(&file(1), 2, 4, 0, &[]) && cache.note(&file(1), 4).is_none());
    cache.clear();
    cache.settle();
    assert_eq!((cache.summary().files, cache.summary().disk_bytes), (0, 0));
    assert!(support::parts(directory.path()).is_empty());
}

#[test]
fn a_cache_without_a_directory_is_in_memory() {
    let options = CacheOptions { directory: None, disk_bytes: 0, memory_bytes: 4 * MIB };
    let cache = Cache::open(options, &identity()).unwrap();
    fill(&cache, 1, 2, 3 * CHUNK_BYTES);
    cache.set_note(&file(1), 2, b"n".to_vec());
    cache.settle();
    assert!(cache.chunk(&file(1), 2, 2).is_some() && cache.note(&file(1), 2).is_some());
    let summary = cache.summary();
    assert!(!summary.disk_works && summary.disk_bytes == 0 && summary.files == 1);
}

#[test]
fn a_directory_is_of_one_volume_and_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("cell/main");
    let options =
        CacheOptions { directory: Some(place.clone()), disk_bytes: MIB, memory_bytes: MIB };
    let cache = open(&place, MIB, MIB);
    let told = Cache::open(options.clone(), &identity()).unwrap_err();
    let ours = std::process::id();
    assert!(matches!(&told, CacheError::InUse { process: Some(p), .. } if *p == ours), "{told}");
    assert!(told.to_string().contains("in use by process"), "{told}");
    assert!(nasd_cache::inspect(&place).unwrap().in_use);
    assert!(matches!(nasd_cache::empty(&place), Err(CacheError::InUse { .. })));
    drop(cache);
    for other in [
        Identity { volume: "scratch".into(), ..identity() },
        Identity { cell: CellId([8; 16]), ..identity() },
    ] {
        let told = Cache::open(options.clone(), &other).unwrap_err();
        assert!(matches!(&told, CacheError::OtherOwner { .. }), "{told}");
        assert!(told.to_string().contains("volume main of cell 0707"), "{told}");
    }
    drop(open(&place, MIB, MIB));
    // A stranger's directory, which nothing is done to.
    let stranger = directory.path().join("home");
    fs::create_dir(&stranger).unwrap();
    fs::write(stranger.join("letter"), "dear").unwrap();
    let options = CacheOptions { directory: Some(stranger.clone()), ..options };
    let told = Cache::open(options, &identity()).unwrap_err();
    assert!(matches!(&told, CacheError::NotACache { .. }), "{told}");
    assert!(matches!(nasd_cache::empty(&stranger), Err(CacheError::NotACache { .. })));
    assert_eq!(fs::read_dir(&stranger).unwrap().count(), 1);
}

#[test]
fn a_command_sees_and_empties_it() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join(identity().cell.to_string()).join("main");
    let cache = open(&place, 64 * MIB, MIB);
    (0..20).for_each(|number| fill(&cache, number, 2, 5000));
    cache.settle();
    let seen = nasd_cache::inspect(&place).unwrap();
    assert_eq!((seen.files, seen.process), (20, Some(std::process::id())));
    assert_eq!(seen.bytes, cache.summary().disk_bytes);
    assert_eq!(seen.identity, identity());
    drop(cache);
    assert_eq!(nasd_cache::find(root.path()).unwrap(), std::slice::from_ref(&place));
    let foreign = place.join("13").join("notes.txt");
    fs::write(&foreign, "mine").unwrap();
    let emptied = nasd_cache::empty(&place).unwrap();
    assert_eq!((emptied.files, emptied.bytes), (20, seen.bytes));
    let seen = nasd_cache::inspect(&place).unwrap();
    assert_eq!((seen.files, seen.bytes, seen.in_use), (0, 0, false));
    assert!(foreign.exists(), "what is not the cache's stays");
    drop(open(&place, MIB, MIB));
    assert!(nasd_cache::find(&root.path().join("none")).unwrap().is_empty());
    assert!(nasd_cache::inspect(&root.path().join("none")).is_err());
}
