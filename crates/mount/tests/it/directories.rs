//! Listing large directories.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::world::{World, listed};

const ENTRIES: usize = 5000;

#[test]
fn what_stays_is_listed_once_whatever_comes_and_goes() {
    let world = World::new();
    let dir = world.path("d");
    fs::create_dir(&dir).unwrap();
    for number in 0..ENTRIES {
        File::create(dir.join(format!("stay{number}"))).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..2 {
            let (dir, done) = (&dir, &done);
            scope.spawn(move || {
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    let path = dir.join(format!("go{thread}-{number}"));
                    File::create(&path).unwrap();
                    if number % 2 == 0 {
                        fs::remove_file(&path).unwrap();
                    }
                    number += 1;
                }
            });
        }
        let outcome = thread::scope(|inner| {
            let lists: Vec<_> = (0..3).map(|_| inner.spawn(|| check_listing(&dir))).collect();
            lists.into_iter().map(|list| list.join()).collect::<Result<Vec<()>, _>>()
        });
        done.store(true, Ordering::Relaxed);
        outcome.expect("three good listings");
    });
}

fn check_listing(dir: &std::path::Path) {
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file());
        let name = entry.file_name().into_string().unwrap();
        assert!(seen.insert(name.clone()), "{name} is listed twice");
    }
    let stay = seen.iter().filter(|name| name.starts_with("stay")).count();
    assert_eq!(stay, ENTRIES);
}

#[test]
fn a_directory_can_be_emptied_while_it_is_listed() {
    let world = World::new();
    for number in 0..2500 {
        File::create(world.path(&format!("f{number}"))).unwrap();
    }
    for entry in fs::read_dir(world.root()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(listed(world.root()), [""; 0]);
}

#[test]
fn rewinding_lists_anew() {
    let world = World::new();
    fs::write(world.path("a"), "").unwrap();
    let path = std::ffi::CString::new(world.root().to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a NUL; the stream is used only while it is open.
    unsafe {
        let stream = libc::opendir(path.as_ptr());
        assert!(!stream.is_null());
        let count = || {
            let mut count = 0;
            while !libc::readdir(stream).is_null() {
                count += 1;
            }
            count
        };
        assert_eq!(count(), 3, "with . and ..");
        fs::write(world.path("b"), "").unwrap();
        libc::rewinddir(stream);
        assert_eq!(count(), 4);
        libc::closedir(stream);
    }
}
