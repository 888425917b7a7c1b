//! Whatever has happened to the files of a cache: nothing panics, and no wrong byte is served.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use nasd_cache::{CHUNK_BYTES, Cache, chunk_count, chunk_length};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{Numbers, contents, file, fill, open, parts, snapshot};

const MIB: u64 = 1 << 20;
const FILES: u64 = 4;
const NOTE: &[u8] = b"a note";

/// Lengths of the files: one chunk and a part, less than one, none, and several.
fn length(number: u64) -> u64 {
    [CHUNK_BYTES + 5000, 9000, 0, 3 * CHUNK_BYTES][number as usize]
}

fn make(directory: &Path) {
    let cache = open(directory, 64 * MIB, 0);
    for number in 0..FILES {
        fill(&cache, number, 2, length(number));
        cache.set_note(&file(number), 2, NOTE.to_vec());
    }
}

/// Asserts that all that is served is right, and returns how many chunks and notes that is.
fn served(cache: &Cache) -> u64 {
    let mut count = 0;
    for number in 0..FILES {
        let Some((version, told)) = cache.version_of(&file(number)) else { continue };
        assert_eq!((version, told), (2, length(number)), "file {number}");
        for chunk in 0..chunk_count(told) {
            if let Some(found) = cache.chunk(&file(number), version, chunk) {
                let wanted = contents(number, 2, chunk, chunk_length(told, chunk));
                assert!(found[..] == wanted, "chunk {chunk} of file {number}");
                count += 1;
            }
        }
        if let Some(note) = cache.note(&file(number), version) {
            assert_eq!(&note[..], NOTE);
            count += 1;
        }
    }
    count
}

const ALL: u64 = 2 + 1 + 3 + FILES;

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    make(&good);
    assert_eq!(served(&open(&good, 64 * MIB, 0)), ALL);
    let mut numbers = Numbers(1);
    for part in parts(&good) {
        let bytes = fs::metadata(&part).unwrap().len();
        let name = part.strip_prefix(&good).unwrap();
        let is_head = part.extension().is_some_and(|extension| extension == "head");
        let places: Vec<u64> = if is_head {
            (0..bytes).step_by(3).collect()
        } else {
            [0, 1, bytes / 2, bytes - 1, numbers.below(bytes)].into()
        };
        for at in places {
            let copy = directory.path().join("copy");
            snapshot(&good, &copy);
            let opened = OpenOptions::new().read(true).write(true).open(copy.join(name)).unwrap();
            let mut byte = [0];
            opened.read_exact_at(&mut byte, at).unwrap();
            opened.write_all_at(&[byte[0] ^ (1 << numbers.below(8))], at).unwrap();
            let cache = open(&copy, 64 * MIB, 0);
            assert!(served(&cache) < ALL, "byte {at} of {}", name.display());
            assert_eq!(cache.summary().damaged, 1);
            drop(cache);
            // What was damaged has gone, and is missed no more.
            let cache = open(&copy, 64 * MIB, 0);
            served(&cache);
            assert_eq!(cache.summary().damaged, 0);
            drop(cache);
            fs::remove_dir_all(&copy).unwrap();
        }
    }
}

#[test]
fn whole_files_of_noise_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let good = directory.path().join("good");
    make(&good);
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let copy = directory.path().join("copy");
        snapshot(&good, &copy);
        let all = parts(&copy);
        let outside = directory.path().join("outside");
        fs::write(&outside, "somebody else's").unwrap();
        for _ in 0..1 + numbers.below(4) {
            let victim = &all[numbers.below(all.len() as u64) as usize];
            let is_link = fs::symlink_metadata(victim).is_ok_and(|found| found.is_symlink());
            if is_link {
                // What it leads to is not to be harmed, by this test neither.
                continue;
            }
            let bytes = fs::metadata(victim).map_or(0, |found| found.len());
            match numbers.below(7) {
                0 => fs::write(victim, contents(seed, 1, 1, numbers.below(9000) as usize)).unwrap(),
                1 => OpenOptions::new()
                    .write(true)
                    .open(victim)
                    .map(|file| file.set_len(numbers.below(bytes.max(1))).unwrap())
                    .unwrap_or_default(),
                2 => {
                    // Another file's bytes in its place.
                    let other = &all[numbers.below(all.len() as u64) as usize];
                    let _ = fs::copy(other, victim);
                }
                3 => {
                    let _ = fs::remove_file(victim);
                }
                4 => {
                    // Something else of that name.
                    let _ = fs::remove_file(victim);
                    let _ = fs::create_dir(victim);
                }
                5 => {
                    let _ = fs::remove_file(victim);
                    let _ = std::os::unix::fs::symlink(&outside, victim);
                }
                _ => {
                    let _ = OpenOptions::new().write(true).open(victim).map(|file| {
                        let at = numbers.below(bytes.max(1));
                        file.write_all_at(&contents(seed, 2, 2, 600), at).unwrap();
                    });
                }
            }
        }
        let cache = open(&copy, 64 * MIB, 0);
        served(&cache);
        // And it can all be cached again, unless something stands in the way.
        for number in 0..FILES {
            fill(&cache, number, 2, length(number));
        }
        cache.settle();
        served(&cache);
        drop(cache);
        served(&open(&copy, 64 * MIB, 0));
        assert_eq!(fs::read(&outside).unwrap(), b"somebody else's", "{seed}");
        fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn a_strangers_files_stay() {
    let directory = tempfile::tempdir().unwrap();
    make(directory.path());
    fs::create_dir_all(directory.path().join("ff")).unwrap();
    fs::create_dir(directory.path().join("photos")).unwrap();
    let strange = ["ff/notes.txt", "photos/one.jpg", "01/x.head", "readme"];
    for name in strange {
        fs::write(directory.path().join(name), "mine").unwrap();
    }
    let cache = open(directory.path(), 64 * MIB, 0);
    assert_eq!(served(&cache), ALL);
    cache.clear();
    drop(cache);
    for name in strange {
        assert_eq!(fs::read(directory.path().join(name)).unwrap(), b"mine", "{name}");
    }
}

/// What is in the directory at any moment is what a crash leaves.
#[test]
fn a_crash_at_any_moment_leaves_right_bytes_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let live = directory.path().join("live");
    let cache = open(&live, 4 * MIB, 0);
    let mut numbers = Numbers(5);
    // Contents tell the version that they came with; here versions only rise.
    for version in 1..40u64 {
        for number in 0..3 {
            let length = CHUNK_BYTES * (1 + numbers.below(4));
            fill(&cache, number, version, length);
        }
        if version % 3 == 0 {
            cache.settle();
        }
        let copy = directory.path().join("copy");
        snapshot(&live, &copy);
        let found = open(&copy, 4 * MIB, 0);
        for cached in found.files().collect::<Vec<_>>() {
            for chunk in 0..chunk_count(cached.length) {
                if let Some(bytes) = found.chunk(&cached.file, cached.version, chunk) {
                    let number = cached.file.object.0;
                    let wanted = contents(number, cached.version, chunk, bytes.len());
                    assert!(bytes[..] == wanted, "{cached:?}");
                }
            }
        }
        drop(found);
        fs::remove_dir_all(&copy).unwrap();
    }
}
