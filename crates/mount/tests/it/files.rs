//! Data: what is written is read back, at every length and place.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::thread;

use nasd_clerk::fake::FakeCell;
use nasd_mount::DataPath;

use crate::world::{DEADLINE, Random, World, pattern};

#[test]
fn a_large_file_is_read_back_and_durable_after_fsync() {
    let world = World::new();
    let data = pattern(1, 40 << 20);
    let mut file = File::create(world.path("big")).unwrap();
    for part in data.chunks((1 << 20) + 4097) {
        file.write_all(part).unwrap();
    }
    drop(file);
    assert!(world.durable("big") == data, "fsync makes durable");
    assert!(fs::read(world.path("big")).unwrap() == data, "through the page cache");
    let other = world.beside();
    assert!(fs::read(other.path("big")).unwrap() == data, "from the drives");
    assert_eq!(fs::metadata(other.path("big")).unwrap().len(), data.len() as u64);
}

#[test]
fn fsync_makes_durable_while_open() {
    let world = World::new();
    let mut file = File::create(world.path("log")).unwrap();
    file.write_all(b"first").unwrap();
    file.sync_data().unwrap();
    assert_eq!(world.durable("log"), b"first");
    file.write_all(b" second").unwrap();
    let reader = File::open(world.path("log")).unwrap();
    reader.sync_all().unwrap();
    assert_eq!(world.durable("log"), b"first second", "fsync is about the file, not the opening");
}

#[test]
fn a_drive_that_restarts_loses_nothing() {
    let world = World::new();
    let mut file = File::create(world.path("a")).unwrap();
    let data = pattern(2, 3 << 20);
    file.write_all(&data).unwrap();
    world.cell.drive_of(world.handle("a")).crash();
    file.sync_all().unwrap();
    assert!(world.durable("a") == data);
}

#[test]
fn holes_and_ends_are_zeros() {
    let world = World::new();
    let path = world.path("sparse");
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    file.seek(SeekFrom::Start(10 << 20)).unwrap();
    file.write_all(b"end").unwrap();
    let mut bytes = vec![1; 4096];
    file.read_exact_at(&mut bytes, 5 << 20).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().unwrap().len(), (10 << 20) + 3);
    file.set_len(100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100);
    file.write_all_at(&[7; 100], 0).unwrap();
    file.set_len(50).unwrap();
    file.set_len(5000).unwrap();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 5000);
    assert!(bytes[..50].iter().all(|byte| *byte == 7), "what was not cut");
    assert!(bytes[50..].iter().all(|byte| *byte == 0), "what was cut does not come back");
    drop(file);
    assert!(world.durable("sparse") == bytes);
    let truncated = File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(truncated.metadata().unwrap().len(), 0);
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn appends_from_two_handles_and_threads_do_not_overwrite_each_other() {
    let world = World::new();
    let path = world.path("log");
    thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut file =
                    File::options().append(true).create(true).truncate(false).open(path).unwrap();
                for number in 0..200 {
                    // The length differs, so that a write at a wrong place is noticed.
                    let line = format!("{writer} {number} {}\n", "x".repeat(number % 50));
                    assert_eq!(file.write(line.as_bytes()).unwrap(), line.len());
                    if number % 50 == 0 {
                        fs::metadata(path).unwrap();
                    }
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    for writer in 0..4 {
        let mine = text.lines().filter(|line| line.starts_with(&format!("{writer} ")));
        let numbers: Vec<usize> =
            mine.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
        assert!(numbers.iter().copied().eq(0..200), "writer {writer}: {numbers:?}");
    }
    assert_eq!(text.lines().count(), 800);
    assert!(world.durable("log") == text.as_bytes());
}

/// Does the same to a file and to an array, and compares.
fn model(world: &World, name: &str, flags: i32, seed: u64) {
    let path = world.path(name);
    let open = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        options.open(&path).unwrap()
    };
    let mut random = Random(seed);
    let mut model: Vec<u8> = Vec::new();
    let mut file = open();
    for step in 0..300 {
        let offset = random.below(300_000) as usize;
        let length = 1 + random.below(if step % 10 == 0 { 200_000 } else { 5_000 }) as usize;
        match random.below(10) {
            0..=3 => {
                let data = pattern(seed + step, length);
                file.write_all_at(&data, offset as u64).unwrap();
                model.resize(model.len().max(offset + length), 0);
                model[offset..offset + length].copy_from_slice(&data);
            }
            4..=6 => {
                let mut bytes = vec![0xee; length];
                let got = file.read_at(&mut bytes, offset as u64).unwrap();
                let end = model.len().min(offset + length);
                let expected = model.get(offset..end).unwrap_or_default();
                assert!(bytes[..got] == *expected, "seed {seed} step {step}: read at {offset}");
            }
            7 => {
                file.set_len(offset as u64).unwrap();
                model.resize(offset, 0);
            }
            8 => file.sync_all().unwrap(),
            _ => {
                drop(file);
                file = open();
            }
        }
        let size = file.metadata().unwrap().len();
        assert_eq!(size, model.len() as u64, "seed {seed} step {step}");
    }
    drop(file);
    assert!(world.durable(name) == model, "seed {seed}");
    assert!(fs::read(world.beside().path(name)).unwrap() == model, "seed {seed}");
}

#[test]
fn random_operations_do_as_with_an_array() {
    let world = World::new();
    for seed in 10..14 {
        model(&world, &format!("m{seed}"), 0, seed);
    }
}

#[test]
fn random_operations_around_the_page_cache_do_as_with_an_array() {
    let world = World::new();
    model(&world, "o_direct", libc::O_DIRECT, 20);
    model(&world, "o_dsync", libc::O_DIRECT | libc::O_DSYNC, 21);
    let direct = World::on(&FakeCell::new(2, DEADLINE), |options| {
        options.data_path = DataPath::Direct;
    });
    model(&direct, "direct", 0, 22);
}

#[test]
fn o_dsync_writes_are_durable_when_they_return() {
    let world = World::new();
    for (name, flags) in [("cached", libc::O_DSYNC), ("direct", libc::O_SYNC | libc::O_DIRECT)] {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).custom_flags(flags);
        let file = options.open(world.path(name)).unwrap();
        file.write_all_at(&[5; 4096], 0).unwrap();
        assert_eq!(world.durable(name), [5; 4096], "{name}");
    }
}

#[test]
fn many_threads_with_files_of_their_own_and_one_shared() {
    let world = World::new();
    let shared = File::create(world.path("shared")).unwrap();
    shared.set_len(16 * 100_000).unwrap();
    thread::scope(|scope| {
        for number in 0..16_u64 {
            let (world, shared) = (&world, &shared);
            scope.spawn(move || {
                let data = pattern(number, 100_000);
                for round in 0..10 {
                    let path = world.path(&format!("t{number}-{round}"));
                    fs::write(&path, &data).unwrap();
                    assert!(fs::read(&path).unwrap() == data);
                    let part = round * 10_000..(round + 1) * 10_000;
                    let offset = number * 100_000 + part.start as u64;
                    shared.write_all_at(&data[part], offset).unwrap();
                    if round % 2 == 0 {
                        fs::remove_file(&path).unwrap();
                    }
                }
            });
        }
    });
    drop(shared);
    let all: Vec<u8> = (0..16).flat_map(|number| pattern(number, 100_000)).collect();
    assert!(world.durable("shared") == all);
    assert_eq!(fs::read_dir(world.root()).unwrap().count(), 16 * 5 + 1);
}

#[test]
fn length_times_and_space_are_told() {
    let world = World::new();
    let path = world.path("a");
    fs::write(&path, [1; 10_000]).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 10_000);
    assert!(metadata.blocks() > 0);
    let age = metadata.modified().unwrap().elapsed().unwrap_or_default();
    assert!(age.as_secs() < 60);
    let file = File::options().write(true).open(&path).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    file.set_times(fs::FileTimes::new().set_modified(then).set_accessed(then)).unwrap();
    drop(file);
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.modified().unwrap(), then);
    assert_eq!(metadata.accessed().unwrap(), then);
    let mut text = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut text).unwrap();
    assert_eq!(text, [1; 10_000]);
}
