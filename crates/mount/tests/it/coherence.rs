//! What one host writes and closes, the other sees when it opens; and what has not changed is
//! not fetched again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::world::{World, pattern};

#[test]
fn an_open_sees_what_was_closed_elsewhere() {
    let one = World::new();
    let two = one.beside();
    fs::write(one.path("a"), "first").unwrap();
    assert_eq!(fs::read_to_string(two.path("a")).unwrap(), "first");
    for round in 0..20 {
        // Longer, shorter and of the same length, at once after the other has looked.
        let text = "x".repeat(5 + round % 3) + &round.to_string();
        assert!(fs::metadata(two.path("a")).unwrap().is_file());
        fs::write(one.path("a"), &text).unwrap();
        assert_eq!(fs::read_to_string(two.path("a")).unwrap(), text, "round {round}");
        fs::write(two.path("a"), text.to_uppercase()).unwrap();
        assert_eq!(fs::read_to_string(one.path("a")).unwrap(), text.to_uppercase());
    }
}

#[test]
fn an_appender_continues_where_the_other_host_stopped() {
    let one = World::new();
    let two = one.beside();
    let mut expected = String::new();
    for round in 0..10 {
        for world in [&one, &two] {
            let mut file =
                File::options().append(true).create(true).open(world.path("log")).unwrap();
            file.write_all(format!("{round}\n").as_bytes()).unwrap();
            expected += &format!("{round}\n");
        }
    }
    assert_eq!(fs::read_to_string(one.path("log")).unwrap(), expected);
}

#[test]
fn unchanged_data_stays_in_the_kernels_cache() {
    let one = World::new();
    let two = one.beside();
    let data = pattern(1, 1 << 20);
    fs::write(one.path("a"), &data).unwrap();
    assert!(fs::read(two.path("a")).unwrap() == data);
    assert!(fs::read(two.path("a")).unwrap() == data);
    let before = two.reads();
    for _ in 0..5 {
        assert!(fs::read(two.path("a")).unwrap() == data);
    }
    assert_eq!(two.reads(), before, "no drive was asked for data");
    let changed = pattern(2, 1 << 20);
    fs::write(one.path("a"), &changed).unwrap();
    assert!(fs::read(two.path("a")).unwrap() == changed);
}

#[test]
fn a_file_that_is_open_shows_changes_once_its_attributes_do() {
    let one = World::new();
    let two = one.beside();
    fs::write(one.path("a"), "before").unwrap();
    let file = File::open(two.path("a")).unwrap();
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 0).unwrap();
    fs::write(one.path("a"), "after!").unwrap();
    crate::world::eventually("the change", || {
        file.metadata().unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes == *b"after!"
    });
    let mut rest = String::new();
    (&file).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "after!");
}

#[test]
fn own_writes_do_not_cost_the_kernels_pages() {
    let world = World::new();
    let data = pattern(1, 4 << 20);
    fs::write(world.path("a"), &data).unwrap();
    let file = File::options().read(true).write(true).open(world.path("a")).unwrap();
    let mut bytes = vec![0; data.len()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let before = world.reads();
    for round in 0..20 {
        file.write_all_at(&[round; 100], u64::from(round) * 5000).unwrap();
        file.metadata().unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[usize::from(round) * 5000], round);
    }
    assert_eq!(world.reads(), before);
}

#[test]
fn names_made_elsewhere_are_seen_soon() {
    let one = World::new();
    let two = one.beside();
    assert!(!two.path("a").exists());
    fs::write(one.path("a"), "text").unwrap();
    crate::world::eventually("the name", || two.path("a").exists());
    fs::remove_file(one.path("a")).unwrap();
    crate::world::eventually("the removal", || !two.path("a").exists());
}

#[test]
fn an_opening_that_is_made_to_append_is_read_by_others() {
    let world = World::new();
    fs::write(world.path("a"), "start").unwrap();
    let file = File::options().read(true).write(true).open(world.path("a")).unwrap();
    let reader = File::open(world.path("a")).unwrap();
    // SAFETY: the descriptor is open.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
    assert_eq!(status, 0);
    for _ in 0..3 {
        file.write_all_at(b"+more", 0).unwrap();
    }
    crate::world::eventually("all", || {
        let length = reader.metadata().unwrap().len() as usize;
        let mut bytes = vec![0; length];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        bytes == b"start+more+more+more"
    });
}
