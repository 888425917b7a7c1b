//! Limits are kept at all times, whatever many threads do; a disk that can't be written leaves the cache in memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_cache::{CHUNK_BYTES, chunk_length};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{Numbers, contents, file, fill, identity, open, parts, taken};

const MIB: u64 = 1 << 20;

#[test]
fn the_disk_has_no_more_than_it_may() {
    let directory = tempfile::tempdir().unwrap();
    let limit = 5 * MIB;
    let cache = open(directory.path(), limit, 2 * MIB);
    let mut numbers = Numbers(3);
    for number in 0..150 {
        let bytes = if number % 3 == 0 { numbers.below(2 * MIB) } else { numbers.below(9000) };
        fill(&cache, number, 2, bytes);
        cache.set_note(&file(number), 2, vec![1; numbers.below(4000) as usize]);
        if number % 10 == 0 {
            cache.settle();
            assert_eq!(cache.summary().queued_bytes, 0);
        }
        let summary = cache.summary();
        assert!(summary.disk_bytes <= limit && summary.memory_bytes <= 2 * MIB, "{summary:?}");
        assert!(taken(directory.path()) <= limit);
    }
    cache.settle();
    let summary = cache.summary();
    assert!(summary.evicted > 50 && summary.disk_bytes > limit / 2, "{summary:?}");
    // The accounts are exact.
    assert_eq!(summary.disk_bytes, taken(directory.path()));
    drop(cache);
    // A lower limit holds from the start on.
    let cache = open(directory.path(), MIB, 2 * MIB);
    assert!(cache.summary().disk_bytes <= MIB && taken(directory.path()) <= MIB);
    assert!(cache.summary().disk_bytes > MIB / 2);
    cache.clear();
    cache.settle();
    assert_eq!((cache.summary().disk_bytes, parts(directory.path()).len()), (0, 0));
}

#[test]
fn a_long_file_does_not_push_out_what_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 16 * MIB, 0);
    let often: Vec<u64> = (0..10).collect();
    for number in &often {
        fill(&cache, *number, 2, 100_000);
    }
    drop(cache);
    let cache = open(directory.path(), 16 * MIB, 0);
    cache.begin(&file(99), 2, 400 * CHUNK_BYTES);
    for chunk in 0..400 {
        cache.put(&file(99), 2, chunk, contents(99, 2, chunk, CHUNK_BYTES as usize));
        cache.settle();
    }
    assert!(often.iter().all(|number| cache.chunk(&file(*number), 2, 0).is_some()));
    assert!(cache.summary().evicted > 300);
}

#[test]
fn many_threads_use_it() {
    let directory = tempfile::tempdir().unwrap();
    let cache = open(directory.path(), 3 * MIB, MIB);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|thread| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut numbers = Numbers(thread);
                    let mut served = 0;
                    for _ in 0..1500 {
                        let number = numbers.below(8);
                        // Versions of these files differ in their lengths, so that one tells the other.
                        let version = 1 + numbers.below(3);
                        let length = CHUNK_BYTES + version * 10_000;
                        let chunk = numbers.below(2);
                        let bytes = chunk_length(length, chunk);
                        match numbers.below(8) {
                            0 => {
                                cache.begin(&file(number), version, length);
                            }
                            1 if numbers.below(4) == 0 => cache.forget(&file(number)),
                            2 => {
                                cache.set_note(&file(number), version, vec![version as u8; 40]);
                            }
                            3 | 4 => {
                                let data = contents(number, version, chunk, bytes);
                                cache.put(&file(number), version, chunk, data);
                            }
                            5 => {
                                if let Some(note) = cache.note(&file(number), version) {
                                    assert_eq!(note[..], [version as u8; 40]);
                                }
                            }
                            _ => {
                                if let Some(found) = cache.chunk(&file(number), version, chunk) {
                                    assert!(found[..] == contents(number, version, chunk, bytes));
                                    served += 1;
                                }
                            }
                        }
                    }
                    served
                })
            })
            .collect();
        let (cache, done) = (&cache, &done);
        let watcher = scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let summary = cache.summary();
                assert!(summary.disk_bytes <= summary.disk_limit, "{summary:?}");
                assert!(summary.memory_bytes <= summary.memory_limit, "{summary:?}");
            }
        });
        let served: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        assert!(served > 0);
    });
    cache.settle();
    assert_eq!(cache.summary().damaged, 0, "nothing was damaged but by the test's own threads");
    assert_eq!(cache.summary().disk_bytes, taken(directory.path()));
}

#[test]
fn a_disk_that_can_not_be_written_leaves_it_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("cache");
    let cache = open(&place, 64 * MIB, 4 * MIB);
    fill(&cache, 1, 2, 1000);
    cache.settle();
    assert!(cache.summary().disk_works);
    fs::remove_dir_all(&place).unwrap();
    for number in 2..9 {
        fill(&cache, number, 2, 1000);
        cache.set_note(&file(number), 2, b"note".to_vec());
    }
    cache.settle();
    let summary = cache.summary();
    assert!(!summary.disk_works && summary.writes == 1, "{summary:?}");
    for number in 1..9 {
        assert!(cache.chunk(&file(number), 2, 0).is_some(), "file {number}");
    }
    assert!(cache.note(&file(8), 2).is_some());
}

/// A file system of 2 MiB, of which the cache may have more than there is. Needs the right to mount.
#[test]
fn a_full_disk_leaves_it_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("small");
    fs::create_dir(&place).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m", "none"])
        .arg(&place)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: tmpfs can't be mounted here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let cache = open(&place.join("cache"), 64 * MIB, 16 * MIB);
        fill(&cache, 1, 2, 6 * MIB);
        fill(&cache, 2, 2, 1000);
        cache.settle();
        let summary = cache.summary();
        assert!(!summary.disk_works && summary.writes_left_out > 0, "{summary:?}");
        for chunk in 0..24 {
            assert!(cache.chunk(&file(1), 2, chunk).is_some(), "chunk {chunk}");
        }
        drop(cache);
        let cache = open(&place.join("cache"), 64 * MIB, 16 * MIB);
        for chunk in 0..24 {
            if let Some(found) = cache.chunk(&file(1), 2, chunk) {
                assert!(found[..] == contents(1, 2, chunk, CHUNK_BYTES as usize));
            }
        }
        assert_eq!(identity().volume, "main");
    });
    let unmounted = std::process::Command::new("umount").arg(&place).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    outcome.unwrap();
}
