//! What one host writes and closes, the other sees when it opens; and what has not changed is
//! not fetched again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

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

/// While the kernel forgets pages for one opening, and has to wait for one that is being read, another opening does not
/// see those that come behind it.
#[test]
fn whoever_opens_a_file_waits_until_old_pages_are_forgotten() {
    const FAR: u64 = 4 << 20;
    let one = World::new();
    let two = one.beside();
    fs::write(two.path("a"), vec![1; 8 << 20]).unwrap();
    let read = |file: &File, offset| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        byte[0]
    };
    let kept = File::options().read(true).write(true).open(one.path("a")).unwrap();
    assert_eq!(read(&kept, FAR), 1);
    let writer = File::options().write(true).open(two.path("a")).unwrap();
    writer.write_all_at(&[2; 4096], FAR).unwrap();
    drop(writer);
    // So the kernel is not known to believe what is old.
    kept.write_all_at(&[3; 4096], FAR / 2).unwrap();
    let drive = one.cell.drive_of(one.handle("a"));
    drive.hold_reads(true);
    let pause = || thread::sleep(Duration::from_millis(200));
    let seen = thread::scope(|scope| {
        let first_page = scope.spawn(|| read(&kept, 0));
        pause();
        // Without a look at the name.
        let again = format!("/proc/self/fd/{}", kept.as_raw_fd());
        let open = move || read(&File::open(again).unwrap(), FAR);
        let openings = [scope.spawn(open.clone()), {
            pause();
            scope.spawn(open)
        }];
        pause();
        drive.hold_reads(false);
        assert_eq!(first_page.join().unwrap(), 1);
        openings.map(|opening| opening.join().unwrap())
    });
    assert_eq!(seen, [2, 2]);
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
