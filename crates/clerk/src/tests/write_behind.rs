//! Writing behind: few and large requests, durability, bounded memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::{cell, eventually, name, new_file, pattern, root, settings};
use crate::{OpenFile, OpenMode, SetFileAttributes, Settings, Timestamp};

#[test]
fn small_sequential_writes_leave_as_large_ones() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let (file, handle) = new_file(&clerk, "log");
    let data = pattern(0, 4 << 20);
    for (index, part) in data.chunks(4096).enumerate() {
        file.write(index as u64 * 4096, part).unwrap();
    }
    file.sync().unwrap();
    assert!(cell.drive(0).durable_bytes(handle.object).unwrap() == data);
    let writes = cell.drive(0).counters.writes.load(Ordering::Relaxed);
    assert!(writes <= 8, "{writes} requests for 4 MiB");
}

#[test]
fn a_small_file_costs_one_request() {
    let cell = cell(1);
    let idle = Duration::from_secs(3600);
    let clerk = cell.clerk(Settings { flush_after_idle: idle, ..Settings::default() });
    let (file, handle) = new_file(&clerk, "small");
    file.write(0, b"hello").unwrap();
    file.close().unwrap();
    let counters = &cell.drive(0).counters;
    assert_eq!(counters.writes.load(Ordering::Relaxed), 1, "others can read it");
    assert!(cell.drive(0).durable_bytes(handle.object).unwrap().is_empty());
    // A second close has nothing to do.
    file.close().unwrap();
    file.sync().unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"hello");
    file.sync().unwrap();
    assert_eq!(counters.writes.load(Ordering::Relaxed), 1);
    assert_eq!(counters.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn an_open_file_left_alone_becomes_durable() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "idle");
    file.write(0, b"draft").unwrap();
    eventually("a flush in the background", || {
        cell.drive(0).durable_bytes(handle.object).unwrap() == b"draft"
    });
    drop(file);
}

#[test]
fn a_file_dropped_without_close_becomes_durable() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "dropped");
    file.write(0, b"draft").unwrap();
    drop(file);
    eventually("a flush in the background", || {
        cell.drive(0).durable_bytes(handle.object).unwrap() == b"draft"
    });
}

#[test]
fn closing_the_clerk_makes_everything_durable() {
    let cell = cell(3);
    let clerk = cell.clerk(Settings::default());
    let files: Vec<_> = (0..9).map(|index| new_file(&clerk, &format!("f{index}"))).collect();
    for (file, _) in &files {
        file.write(0, &[7; 2_000_000]).unwrap();
    }
    clerk.close().unwrap();
    for (_, handle) in &files {
        assert_eq!(cell.drive_of(*handle).durable_bytes(handle.object).unwrap().len(), 2_000_000);
    }
}

#[test]
fn memory_is_bounded_while_a_drive_is_away_and_other_drives_go_on() {
    let cell = cell(2);
    let clerk = cell.clerk(settings());
    cell.place_on(0);
    let (dead, dead_handle) = new_file(&clerk, "dead");
    cell.place_on(1);
    let (living, living_handle) = new_file(&clerk, "living");
    cell.drive(0).set_reachable(false);
    let accepted = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for part in 0..16_u64 {
                dead.write(part << 20, &pattern(part << 20, 1 << 20)).unwrap();
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        });
        eventually("back-pressure", || accepted.load(Ordering::Relaxed) >= 4);
        thread::sleep(Duration::from_millis(100));
        assert_eq!(accepted.load(Ordering::Relaxed), 4, "the limit is 4 MiB a drive");
        for part in 0..16_u64 {
            living.write(part << 20, &pattern(part << 20, 1 << 20)).unwrap();
        }
        living.sync().unwrap();
        assert_eq!(accepted.load(Ordering::Relaxed), 4);
        cell.drive(0).set_reachable(true);
    });
    dead.sync().unwrap();
    for handle in [dead_handle, living_handle] {
        let durable = cell.drive_of(handle).durable_bytes(handle.object).unwrap();
        assert!(durable == pattern(0, 16 << 20));
    }
}

#[test]
fn many_files_share_the_memory_of_a_drive() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings {
        unflushed_bytes_per_drive: 1 << 20,
        flush_after_idle: Duration::from_secs(3600),
        ..settings()
    });
    let files: Vec<_> = (0..40).map(|index| new_file(&clerk, &format!("f{index}"))).collect();
    for (file, _) in &files {
        file.write(0, &[9; 100_000]).unwrap();
    }
    for (file, handle) in &files {
        file.sync().unwrap();
        assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), [9; 100_000]);
    }
}

#[test]
fn a_killed_drive_gets_everything_again_at_fsync() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings { flush_after_bytes: 1 << 30, ..Settings::default() });
    let (file, handle) = new_file(&clerk, "again");
    let data = pattern(0, 10 << 20);
    file.write(0, &data).unwrap();
    eventually("write-behind", || {
        cell.drive(0).counters.written_bytes.load(Ordering::Relaxed) >= 10 << 20
    });
    cell.drive(0).crash();
    assert!(cell.drive(0).durable_bytes(handle.object).unwrap().is_empty());
    let mut all = vec![0; data.len()];
    assert_eq!(file.read(0, &mut all).unwrap(), data.len());
    assert!(all == data, "a reader sees what the drive has lost");
    file.sync().unwrap();
    assert!(cell.drive(0).durable_bytes(handle.object).unwrap() == data);
}

#[test]
fn an_opening_shows_what_others_wrote_over_what_is_not_durable() {
    let cell = cell(1);
    let lazy = Settings { flush_after_idle: Duration::from_secs(3600), ..Settings::default() };
    let (ours, theirs) = (cell.clerk(lazy.clone()), cell.clerk(lazy));
    let (file, handle) = new_file(&ours, "f");
    file.write(0, &[b'a'; 10]).unwrap();
    ours.getattr_now(&root(), handle).unwrap();
    let (other, _) = theirs.open(&root(), handle, OpenMode::READ_WRITE).unwrap();
    other.write(2, b"bb").unwrap();
    other.sync().unwrap();
    file.write(10, b"c").unwrap();
    let contents = |file: &OpenFile| {
        let mut all = [0; 20];
        let length = file.read(0, &mut all).unwrap();
        String::from_utf8(all[..length].to_vec()).unwrap()
    };
    let (again, _) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    assert_eq!(contents(&again), "aabbaaaaaac", "what was not sent yet too");
    // A drive that is started anew has lost what was hidden.
    file.write(11, b"dd").unwrap();
    ours.getattr_now(&root(), handle).unwrap();
    let (again, _) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    cell.drive(0).crash();
    assert_eq!(contents(&again), "aaaaaaaaaacdd");
    cell.drive(0).crash();
    assert_eq!(ours.getattr_now(&root(), handle).unwrap().size, 13);
    file.sync().unwrap();
    assert_eq!(cell.drive(0).durable_bytes(handle.object).unwrap(), b"aaaaaaaaaacdd");
}

#[test]
fn whoever_notices_first_that_a_drive_started_anew_all_see_what_it_lost() {
    let cell = cell(1);
    let lazy = Settings { flush_after_idle: Duration::from_secs(3600), ..Settings::default() };
    let clerk = cell.clerk(lazy);
    let (file, handle) = new_file(&clerk, "f");
    file.write(0, &[b'a'; 10]).unwrap();
    clerk.getattr_now(&root(), handle).unwrap();
    let (again, _) = clerk.open(&root(), handle, OpenMode::READ).unwrap();
    cell.drive(0).hold_reads(true);
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut all = [0; 20];
            let length = again.read(0, &mut all).unwrap();
            all[..length].to_vec()
        });
        eventually("it reads", || cell.drive(0).counters.under_way.load(Ordering::Relaxed) > 0);
        cell.drive(0).crash();
        assert_eq!(clerk.getattr_now(&root(), handle).unwrap().size, 10);
        cell.drive(0).hold_reads(false);
        assert_eq!(reads.join().unwrap(), [b'a'; 10]);
    });
    // So does who looks a name up.
    clerk.open(&root(), handle, OpenMode::READ).unwrap();
    cell.drive(0).crash();
    let told = clerk.lookup(&root(), clerk.root(), &name("f")).unwrap();
    assert_eq!(told.attributes.size, 10);
}

#[test]
fn an_opening_with_older_attributes_leaves_no_length_shorter_than_what_was_written() {
    let cell = cell(1);
    let lazy = Settings { flush_after_idle: Duration::from_secs(3600), ..Settings::default() };
    let clerk = cell.clerk(lazy);
    let (file, handle) = new_file(&clerk, "f");
    let told = clerk.lookup(&root(), clerk.root(), &name("f")).unwrap();
    file.write(0, &[b'a'; 10]).unwrap();
    clerk.getattr_now(&root(), handle).unwrap();
    let (again, _) = clerk.open_known(&root(), &told, OpenMode::READ).unwrap();
    assert_eq!(again.size(), 10);
}

#[test]
fn nor_shorter_than_what_was_made_durable_since() {
    let cell = cell(1);
    let clerk = cell.clerk(Settings::default());
    let (file, handle) = new_file(&clerk, "f");
    let told = clerk.lookup(&root(), clerk.root(), &name("f")).unwrap();
    file.write(0, &[b'a'; 20]).unwrap();
    file.sync().unwrap();
    assert_eq!(told.attributes.size, 0);
    let (again, _) = clerk.open_known(&root(), &told, OpenMode::READ).unwrap();
    assert_eq!(again.size(), 20);
    file.write(0, b"b").unwrap();
    clerk.getattr_now(&root(), handle).unwrap();
    let (again, _) = clerk.open_known(&root(), &told, OpenMode::READ).unwrap();
    assert_eq!(again.size(), 20);
}

#[test]
fn an_opening_by_attributes_shows_how_short_others_made_what_ends_behind_own_bytes() {
    let cell = cell(1);
    let lazy = Settings { flush_after_idle: Duration::from_secs(3600), ..Settings::default() };
    let (ours, theirs) = (cell.clerk(lazy.clone()), cell.clerk(lazy));
    let (file, handle) = new_file(&ours, "f");
    file.write(0, &[b'a'; 10]).unwrap();
    ours.getattr_now(&root(), handle).unwrap();
    let (other, _) = theirs.open(&root(), handle, OpenMode::READ_WRITE).unwrap();
    other.write(19, b"b").unwrap();
    other.sync().unwrap();
    let (again, _) = ours.open(&root(), handle, OpenMode::READ).unwrap();
    assert_eq!(again.size(), 20);
    let shorter = SetFileAttributes { size: Some(12), ..Default::default() };
    theirs.setattr(&root(), handle, &shorter).unwrap();
    let told = ours.lookup(&root(), ours.root(), &name("f")).unwrap();
    let (again, _) = ours.open_known(&root(), &told, OpenMode::READ).unwrap();
    assert_eq!(again.size(), 12);
}

#[test]
fn set_times_stand_over_earlier_writes() {
    let cell = cell(1);
    let clerk = cell.clerk(settings());
    let (file, handle) = new_file(&clerk, "dated");
    file.write(0, b"old letter").unwrap();
    let then = Timestamp::from_parts(1_000_000_000, 0);
    let changes = SetFileAttributes { modify_time: Some(then), ..Default::default() };
    assert_eq!(clerk.setattr(&root(), handle, &changes).unwrap().modify_time, then);
    file.close().unwrap();
    assert_eq!(clerk.getattr_now(&root(), handle).unwrap().modify_time, then);
}

#[test]
fn attributes_show_own_writes_at_once_and_those_of_others_after_a_while() {
    let cell = cell(1);
    let (ours, theirs) = (cell.clerk(settings()), cell.clerk(settings()));
    let (file, handle) = new_file(&ours, "f");
    file.write(0, &[1; 3000]).unwrap();
    assert_eq!(ours.getattr(&root(), handle).unwrap().size, 3000);
    let entry = ours.lookup(&root(), ours.root(), &name("f")).unwrap();
    assert_eq!(entry.attributes.size, 3000);
    file.close().unwrap();
    let (other, _) = theirs.open(&root(), handle, OpenMode::WRITE).unwrap();
    other.write(3000, &[2; 1000]).unwrap();
    other.close().unwrap();
    eventually("the attributes' age", || ours.getattr(&root(), handle).unwrap().size == 4000);
}

#[test]
fn a_discarded_file_is_not_written() {
    let cell = cell(1);
    let idle = Duration::from_secs(3600);
    let clerk = cell.clerk(Settings { flush_after_idle: idle, ..Settings::default() });
    let (file, handle) = new_file(&clerk, "temporary");
    file.write(0, &[1; 5000]).unwrap();
    file.discard();
    clerk.unlink(&root(), clerk.root(), &name("temporary"), None).unwrap();
    clerk.close().unwrap();
    assert_eq!(cell.drive(0).counters.writes.load(Ordering::Relaxed), 0);
    assert!(cell.drive(0).durable_bytes(handle.object).is_none());
}
