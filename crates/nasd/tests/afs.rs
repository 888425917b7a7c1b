//! A volume of the personality `afs`, by the real program on real mounts: what one has stored all others see, and what they have read they keep.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "afs/lists.rs"]
mod lists;
mod support;

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::lines::{Mounted, done, facts};
use support::noise;
use support::shared::{cell, mounted, mounted_with, unmounted};

fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_one_mount_stores_the_other_sees_at_once() {
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    for round in 0..50 {
        let (writer, reader) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        fs::write(writer.join("file"), format!("this is number {round}")).unwrap();
        let read = fs::read_to_string(reader.join("file")).unwrap();
        assert_eq!(read, format!("this is number {round}"));
        fs::create_dir(writer.join("directory")).unwrap();
        fs::write(writer.join("directory/inner"), noise(round, 3000)).unwrap();
        assert_eq!(names(&reader.0), ["directory", "file"]);
        assert_eq!(fs::read(reader.join("directory/inner")).unwrap(), noise(round, 3000));
        fs::rename(reader.join("directory/inner"), reader.join("moved")).unwrap();
        assert!(!writer.join("directory/inner").exists() && writer.join("moved").exists());
        fs::set_permissions(writer.join("moved"), PermissionsExt::from_mode(0o600)).unwrap();
        let mode = fs::metadata(reader.join("moved")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_file(reader.join("moved")).unwrap();
        fs::remove_dir(writer.join("directory")).unwrap();
        assert_eq!(names(&reader.0), ["file"]);
    }
}

#[test]
fn who_has_a_file_open_or_mapped_sees_what_others_store_in_it() {
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    fs::write(one.join("file"), [b'0'; 8192]).unwrap();
    let mut open = fs::File::open(two.join("file")).unwrap();
    let mut all = Vec::new();
    open.read_to_end(&mut all).unwrap();
    assert_eq!(all, [b'0'; 8192]);
    for digit in b'1'..=b'9' {
        // Without a new length, so that nothing but the contents tells.
        let writer = OpenOptions::new().write(true).open(one.join("file")).unwrap();
        writer.write_all_at(&[digit; 8192], 0).unwrap();
        drop(writer);
        let mut all = Vec::new();
        open.seek(SeekFrom::Start(0)).unwrap();
        open.read_to_end(&mut all).unwrap();
        assert_eq!(all, [digit; 8192]);
    }
    // What is written is not seen by others before it is stored.
    let writer = OpenOptions::new().write(true).open(one.join("file")).unwrap();
    writer.write_all_at(b"new", 0).unwrap();
    let start = |path: PathBuf| fs::read(path).unwrap()[..3].to_vec();
    assert_eq!((start(two.join("file")), start(one.join("file"))), (b"999".into(), b"new".into()));
    writer.sync_all().unwrap();
    assert_eq!(start(two.join("file")), b"new");
}

#[test]
fn what_was_read_is_there_after_a_restart_and_not_read_again() {
    const FILES: u64 = 40;
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    for number in 0..FILES {
        fs::write(one.join(&format!("f{number}")), noise(number, 200_000)).unwrap();
    }
    let direct = || facts(&cell, "status")["bytes"]["direct"].as_u64().unwrap();
    // All are as long as they were made, but for the one that is written anew.
    let read_all = |at: &Mounted, length_of_3: usize| {
        let before = direct();
        for number in 0..FILES {
            let read = fs::read(at.join(&format!("f{number}"))).unwrap();
            let length = if number == 3 { length_of_3 } else { 200_000 };
            assert!(read == noise(number, length), "f{number} of {} bytes", read.len());
        }
        direct() - before
    };
    assert!(read_all(&two, 200_000) >= FILES * 200_000);
    unmounted(&cell, two);
    let shown =
        facts(&cell, &format!("cache show {}", cell.directory.path().join("cache-two").display()));
    assert!(shown.to_string().contains("shared"), "{shown}");
    fs::write(one.join("f3"), noise(3, 1000)).unwrap();
    let two = mounted(&cell, "two");
    let again = read_all(&two, 1000);
    assert!(again < FILES * 200_000 / 4, "{again} bytes were read again");
    unmounted(&cell, two);
    let cache = cell.directory.path().join("cache-two");
    done(&cell, &format!("cache empty --yes {}", cache.display()));
    let two = mounted(&cell, "two");
    assert!(read_all(&two, 1000) >= (FILES - 1) * 200_000);
}

/// Kills the process of a mount. Where it was, nothing can be done any more.
fn kill(at: &Mounted) {
    let path = at.0.display().to_string();
    let found = Command::new("pgrep").args(["-f", &format!("mount {path} ")]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    for pid in found.split_whitespace() {
        let killed = Command::new("kill").args(["-9", pid]).status().unwrap();
        assert!(killed.success());
    }
}

#[test]
fn what_was_closed_is_there_when_the_mount_is_killed() {
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    let stored: Vec<Vec<u8>> = (0..20).map(|seed| noise(seed, 10_000)).collect();
    for (number, data) in stored.iter().enumerate() {
        fs::write(one.join(&format!("f{number}")), data).unwrap();
    }
    kill(&one);
    let begun = Instant::now();
    for (number, data) in stored.iter().enumerate() {
        assert!(fs::read(two.join(&format!("f{number}"))).unwrap() == *data, "{number}");
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// How many requests of a kind a mount has had, as it tells at this socket.
fn requests(socket: &Path, operation: &str) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let name = format!("nasd_mount_request_seconds_count{{operation=\"{operation}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
}

#[test]
fn what_a_mount_has_of_short_files_its_kernel_need_not_ask_for() {
    let cell = cell();
    let socket = cell.directory.path().join("metrics");
    let one = mounted_with(&cell, "one", &format!("metrics={}", socket.display()));
    let two = mounted(&cell, "two");
    let data = |name: &str, round| noise(round, 1 + name.len() * 9_999);
    let names = ["a", "bb", "cccccccccccc"];
    for round in 0..4 {
        for name in names {
            fs::write(one.join(name), data(name, round)).unwrap();
            assert_eq!(fs::metadata(one.join(name)).unwrap().len(), data(name, round).len() as u64);
        }
        let before = requests(&socket, "read");
        for name in names {
            assert!(fs::read(one.join(name)).unwrap() == data(name, round));
        }
        let looked = requests(&socket, "getattr") + requests(&socket, "statx");
        for name in names {
            assert!(fs::metadata(one.join(name)).unwrap().is_file());
        }
        let looks = requests(&socket, "getattr") + requests(&socket, "statx") - looked;
        if round == 0 {
            assert_eq!((requests(&socket, "read") - before, looks), (0, 0), "all is known");
        }
        // What others store then is not hidden by that.
        fs::write(two.join("bb"), data("bb", round + 10)).unwrap();
        assert!(fs::read(one.join("bb")).unwrap() == data("bb", round + 10));
        fs::write(two.join("bb"), "").unwrap();
        assert_eq!(fs::read(one.join("bb")).unwrap(), b"");
    }
}

#[test]
fn who_has_just_made_a_file_sees_what_becomes_of_its_names() {
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    let links = |file: &fs::File| file.metadata().unwrap().nlink();
    for round in 0..20 {
        let path = |at: &Mounted, name: &str| at.join(&format!("{name}-{round}"));
        // By oneself, as programs do that lock by the number of links; and by another mount.
        for by in [&one, &two] {
            let mut file = fs::File::create_new(path(&one, "file")).unwrap();
            assert_eq!(links(&file), 1);
            fs::hard_link(path(by, "file"), path(by, "link")).unwrap();
            assert_eq!(links(&file), 2, "round {round}");
            fs::remove_file(path(by, "file")).unwrap();
            assert_eq!(links(&file), 1);
            fs::rename(path(by, "link"), path(by, "moved")).unwrap();
            file.write_all(b"text").unwrap();
            drop(file);
            assert_eq!(fs::read(path(&two, "moved")).unwrap(), b"text");
            fs::remove_file(path(by, "moved")).unwrap();
        }
    }
}

/// Whether kernels can be told that all names are old (Linux 6.16).
fn has_epochs() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(16))
}

#[test]
fn a_name_that_is_not_there_is_not_asked_for_and_is_there_once_another_mount_has_made_it() {
    let cell = cell();
    let socket = cell.directory.path().join("metrics");
    let one = mounted_with(&cell, "one", &format!("metrics={}", socket.display()));
    let two = mounted(&cell, "two");
    type Make = fn(&Path, &Path);
    let makes: [(&str, Make); 5] = [
        ("file", |at, _| fs::write(at, "made").unwrap()),
        ("directory", |at, _| fs::create_dir(at).unwrap()),
        ("moved", |at, other| fs::rename(other, at).unwrap()),
        ("linked", |at, other| fs::hard_link(other, at).unwrap()),
        ("symbolic", |at, _| std::os::unix::fs::symlink("elsewhere", at).unwrap()),
    ];
    let is_there = |at: &Path| fs::symlink_metadata(at).is_ok();
    for round in 0..8 {
        let inside = format!("inside-{round}");
        fs::create_dir(one.join(&inside)).unwrap();
        for (name, make) in makes {
            let (here, there) = (one.join(&inside).join(name), two.join(&inside).join(name));
            let other = two.join(&format!("other-{round}-{name}"));
            fs::write(&other, "other").unwrap();
            let looks = || (0..50).filter(|_| is_there(&here)).count();
            assert_eq!(looks(), 0);
            let before = requests(&socket, "lookup");
            assert_eq!(looks(), 0);
            let asked = requests(&socket, "lookup") - before;
            assert!(asked < 25 || !has_epochs(), "{asked} of 50 in round {round}");
            // Also by who looks all the time while it is made.
            let is_made = AtomicBool::new(false);
            thread::scope(|scope| {
                let looking = scope.spawn(|| {
                    while !is_made.load(Ordering::Acquire) {
                        is_there(&here);
                    }
                    assert!(is_there(&here), "{name} in round {round}");
                });
                make(&there, &other);
                is_made.store(true, Ordering::Release);
                looking.join().unwrap();
            });
            assert!(is_there(&here));
        }
        fs::remove_file(two.join(&inside).join("file")).unwrap();
        assert!(!is_there(&one.join(&inside).join("file")));
        fs::write(one.join(&inside).join("file"), "again").unwrap();
        assert!(is_there(&two.join(&inside).join("file")));
    }
}

#[test]
fn a_time_of_access_is_seen_soon_and_at_once_where_that_is_wanted() {
    let cell = cell();
    let relative = mounted(&cell, "one");
    let strict = mounted_with(&cell, "two", "strictatime");
    let accessed = |path: &Path| fs::metadata(path).unwrap().accessed().unwrap();
    for (mount, waits) in [(&relative, true), (&strict, false)] {
        let path = mount.join(if waits { "relative" } else { "strict" });
        fs::write(&path, "text").unwrap();
        let before = accessed(&path);
        assert_eq!(fs::read(&path).unwrap(), b"text");
        let begun = Instant::now();
        while waits && accessed(&path) == before && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(accessed(&path) > before);
    }
}

#[test]
fn a_mount_that_is_killed_while_it_stores_holds_up_nobody_for_long() {
    let cell = cell();
    let (one, two) = (mounted(&cell, "one"), mounted(&cell, "two"));
    fs::write(one.join("file"), "before").unwrap();
    assert_eq!(fs::read(two.join("file")).unwrap(), b"before");
    let mut open = OpenOptions::new().write(true).open(one.join("file")).unwrap();
    open.write_all(b"after").unwrap();
    kill(&one);
    drop(open);
    let begun = Instant::now();
    fs::write(two.join("file"), "others go on").unwrap();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(fs::read(two.join("file")).unwrap(), b"others go on");
}

#[test]
fn commands_know_of_it_and_work_with_it() {
    let cell = cell();
    let list = facts(&cell, "volume list");
    let shared = list["volumes"].as_array().unwrap().iter().find(|all| all["name"] == "shared");
    assert_eq!(shared.unwrap()["personality"], "afs");
    assert_eq!(facts(&cell, "volume show shared")["personality"], "afs");
    let file = cell.directory.path().join("local");
    fs::write(&file, noise(1, 300_000)).unwrap();
    done(&cell, &format!("cp {} shared:/copy", file.display()));
    done(&cell, "mkdir shared:/directory");
    assert!(done(&cell, "ls shared:/").contains("copy"));
    let one = mounted(&cell, "one");
    assert_eq!(fs::read(one.join("copy")).unwrap(), noise(1, 300_000));
    let back = cell.directory.path().join("back");
    fs::write(one.join("copy"), noise(2, 5000)).unwrap();
    done(&cell, &format!("cp shared:/copy {}", back.display()));
    assert_eq!(fs::read(back).unwrap(), noise(2, 5000));
    done(&cell, "rm shared:/copy");
    assert!(!one.join("copy").exists());
}
