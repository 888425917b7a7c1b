//! Files that are removed or replaced while they are open.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;

use crate::world::{World, eventually, listed};

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_removed_file_lives_until_it_is_closed() {
    let world = World::new();
    fs::write(world.path("a"), "before").unwrap();
    let file = File::options().read(true).write(true).open(world.path("a")).unwrap();
    let second = File::open(world.path("a")).unwrap();
    fs::remove_file(world.path("a")).unwrap();
    assert_eq!(listed(world.root()), [""; 0]);
    assert!(!world.path("a").exists());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"after!", 6).unwrap();
    file.sync_all().unwrap();
    assert_eq!(contents(&file), b"beforeafter!");
    fs::write(world.path("a"), "another").unwrap();
    assert_eq!(contents(&second), b"beforeafter!");
    assert_eq!(world.all_names(), ["a"], "other mounts see no more than this one");
    drop(file);
    assert_eq!(contents(&second), b"beforeafter!");
    drop(second);
    assert_eq!(world.all_names(), ["a"]);
    eventually("the removal", || world.cell.files() == 1);
    assert_eq!(fs::read(world.path("a")).unwrap(), b"another");
}

#[test]
fn a_replaced_file_lives_until_it_is_closed() {
    let world = World::new();
    fs::write(world.path("config"), "old").unwrap();
    let reader = File::open(world.path("config")).unwrap();
    fs::write(world.path("config.new"), "new").unwrap();
    fs::rename(world.path("config.new"), world.path("config")).unwrap();
    assert_eq!(fs::read(world.path("config")).unwrap(), b"new");
    assert_eq!(contents(&reader), b"old");
    assert_eq!(reader.metadata().unwrap().nlink(), 0);
    assert_eq!(listed(world.root()), ["config"]);
    assert_eq!(world.cell.files(), 2);
    drop(reader);
    eventually("the removal", || world.cell.files() == 1);
}

#[test]
fn replacing_is_never_seen_as_a_missing_name() {
    let world = World::new();
    let other = world.beside();
    fs::write(world.path("target"), "0").unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..60 {
                // Somebody has it open each time.
                let _open = File::open(world.path("target")).unwrap();
                fs::write(world.path("next"), number.to_string()).unwrap();
                fs::rename(world.path("next"), world.path("target")).unwrap();
            }
        });
        let root = other.clerk.root();
        let caller = std::sync::Arc::new(nasd_clerk::Caller::default());
        let name = nasd_clerk::Name::new("target").unwrap();
        while !writer.is_finished() {
            other.clerk.lookup(&caller, root, &name).expect("there is always one");
        }
    });
}

#[test]
fn a_file_with_another_name_is_just_unlinked() {
    let world = World::new();
    fs::write(world.path("a"), "text").unwrap();
    fs::hard_link(world.path("a"), world.path("b")).unwrap();
    let file = File::open(world.path("a")).unwrap();
    fs::remove_file(world.path("a")).unwrap();
    assert_eq!(world.all_names(), ["b"]);
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    fs::remove_file(world.path("b")).unwrap();
    assert_eq!(contents(&file), b"text", "and then kept");
    assert_eq!(world.all_names(), [""; 0]);
    drop(file);
    eventually("the removal", || world.cell.files() == 0);
}

#[test]
fn a_directory_with_removed_files_is_empty() {
    let world = World::new();
    fs::create_dir(world.path("d")).unwrap();
    let mut file = File::create(world.path("d/a")).unwrap();
    fs::remove_file(world.path("d/a")).unwrap();
    fs::write(world.path("d/b"), "in the way").unwrap();
    assert!(fs::remove_dir(world.path("d")).is_err());
    fs::remove_dir_all(world.path("d")).unwrap();
    file.write_all(b"still there").unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 11);
    assert_eq!(listed(world.root()), [""; 0]);
    drop(file);
    eventually("the removal", || world.cell.files() == 0);
}

#[test]
fn removed_files_go_with_the_mount() {
    let world = World::new();
    let file = File::create(world.path("a")).unwrap();
    fs::remove_file(world.path("a")).unwrap();
    let cell = std::sync::Arc::clone(&world.cell);
    assert_eq!(cell.files(), 1);
    // The mount is busy and is taken away.
    world.stop().unwrap();
    assert_eq!(cell.files(), 0);
    assert!(file.metadata().is_err());
}

#[test]
fn opening_and_removing_race_without_losing_open_files() {
    let world = World::new();
    thread::scope(|scope| {
        for thread in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for round in 0..50 {
                    let path = world.path(&format!("f{}", round % 3));
                    let text = format!("{thread}-{round}");
                    let Ok(mut file) =
                        File::options().read(true).write(true).create_new(true).open(&path)
                    else {
                        fs::remove_file(&path).ok();
                        continue;
                    };
                    file.write_all(text.as_bytes()).unwrap();
                    fs::remove_file(&path).ok();
                    assert_eq!(contents(&file), text.as_bytes());
                }
            });
        }
    });
    let left = listed(world.root()).len();
    assert_eq!(world.all_names().len(), left);
    eventually("all removals", || world.cell.files() == left);
}
