//! What a user fears: processes that die under a mount, a manager that is away, a full drive.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use support::lines::{Mounted, done, facts};
use support::{
    CellOptions, TestCell, finish, make_tree, noise, scratch, shared, shell, signal, sync_tree,
    wait_until,
};

#[test]
fn what_was_synced_survives_the_kill_of_everything() {
    let mut cell = TestCell::start(&CellOptions::default());
    let source = scratch();
    make_tree(source.path(), 400);
    shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("tree")]);
    sync_tree(&cell.path("tree"));
    let synced = File::create(cell.path("synced")).unwrap();
    synced.write_all_at(&noise(3, 5 << 20), 0).unwrap();
    synced.sync_all().unwrap();
    fs::rename(cell.path("synced"), cell.path("renamed")).unwrap();
    fs::remove_dir_all(cell.path("tree/d7")).unwrap();
    shell("chmod 600 \"$1\"", &[&cell.path("renamed")]);
    // Changes of names and modes are durable when a directory is synced.
    File::open(cell.mountpoint()).unwrap().sync_all().unwrap();

    cell.kill_everything();
    drop(synced);
    cell.restart();
    assert!(fs::read(cell.path("renamed")).unwrap() == noise(3, 5 << 20));
    shell("test $(stat -c %a \"$1\") = 600", &[&cell.path("renamed")]);
    fs::remove_dir_all(source.path().join("d7")).unwrap();
    shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), &cell.path("tree")]);
    // And it goes on.
    fs::write(cell.path("after"), "x").unwrap();
    assert_eq!(fs::read_to_string(cell.path("after")).unwrap(), "x");
}

#[test]
fn a_drive_killed_during_tar_is_waited_for() {
    let cell = TestCell::start(&CellOptions::default());
    let source = scratch();
    make_tree(source.path(), 1_000);
    fs::write(source.path().join("big"), noise(9, 96 << 20)).unwrap();
    shell("cp -a \"$1\" \"$2\"", &[source.path(), &cell.path("tree")]);
    // Cold for this kernel: through the drives again.
    shell("sync; echo 3 > /proc/sys/vm/drop_caches", &[]);

    let archive = cell.directory.path().join("out.tar");
    let mut command = std::process::Command::new("tar");
    command.arg("-cf").arg(&archive).arg("-C").arg(cell.path("tree")).arg(".");
    let mut tar = command.spawn().unwrap();
    for round in 0..4 {
        thread::sleep(Duration::from_millis(150));
        let drive = if round % 2 == 0 { "drive-1.img" } else { "drive-2.img" };
        kill_drives(&cell, &[drive]);
    }
    let status = support::wait_for_exit(&mut tar);
    assert!(status.success(), "tar: {status}");
    let unpacked = scratch();
    shell("tar -xf \"$1\" -C \"$2\"", &[&archive, unpacked.path()]);
    shell("diff -r --no-dereference \"$1\" \"$2\"", &[source.path(), unpacked.path()]);
}

#[test]
fn a_drive_killed_under_a_writer_loses_nothing() {
    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    let mut file = File::create(&path).unwrap();
    let bytes = noise(11, 48 << 20);
    for (index, part) in bytes.chunks(1 << 20).enumerate() {
        file.write_all(part).unwrap();
        if index % 12 == 6 {
            kill_drives(&cell, &DRIVES);
        }
    }
    file.sync_all().unwrap();
    drop(file);
    shell("echo 3 > /proc/sys/vm/drop_caches", &[]);
    assert!(fs::read(&path).unwrap() == bytes, "acknowledged data was lost");
}

#[test]
fn an_open_file_goes_on_without_the_manager() {
    let cell = TestCell::start(&CellOptions::default());
    let path = cell.path("file");
    fs::write(&path, noise(1, 2 << 20)).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // What makes the name durable is the manager's.
    file.sync_all().unwrap();
    // Stopped rather than killed: it would be restarted at once, and a stopped manager proves
    // more, since calls to it would hang.
    let manager = cell.member("manager serve");
    signal(manager, "STOP");

    let started = Instant::now();
    let worker = thread::spawn(move || {
        for round in 0..50_u64 {
            let offset = round * 40_000;
            file.write_all_at(&noise(round, 30_000), offset).unwrap();
            file.sync_data().unwrap();
            let mut back = vec![0; 30_000];
            file.read_exact_at(&mut back, offset).unwrap();
            assert!(back == noise(round, 30_000));
        }
    });
    wait_until("the file was used without the manager", || worker.is_finished());
    assert!(started.elapsed() < Duration::from_secs(60));
    signal(manager, "CONT");
    worker.join().unwrap();
    // The close may tell the manager; with it back, all works.
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 << 20);
    fs::write(cell.path("another"), "x").unwrap();
}

/// A manager that answers nothing, until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn manager_of(cell: &TestCell) -> Stopped {
        let manager = cell.member("manager serve");
        signal(manager, "STOP");
        Stopped(manager)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

/// What a mount of a volume of the personality `afs` was told of, and what is to be the same as long as it may be believed.
struct Known<'a> {
    at: &'a Mounted,
    large: Vec<u8>,
}

impl<'a> Known<'a> {
    const FILES: u64 = 20;

    fn make(by: &Mounted, at: &'a Mounted) -> Known<'a> {
        fs::create_dir(by.join("folder")).unwrap();
        for number in 0..Known::FILES {
            fs::write(by.join(&format!("folder/{number}")), noise(number, 10_000)).unwrap();
        }
        let large = noise(99, 8 << 20);
        fs::write(by.join("large"), &large).unwrap();
        Known { at, large }
    }

    fn look(&self) {
        for number in 0..Known::FILES {
            let path = self.at.join(&format!("folder/{number}"));
            assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
            assert!(fs::read(&path).unwrap() == noise(number, 10_000));
        }
        let names = fs::read_dir(self.at.join("folder")).unwrap();
        assert_eq!(names.count() as u64, Known::FILES);
        assert!(!fs::exists(self.at.join("folder/not there")).unwrap());
        self.read_at(0);
    }

    /// A part of a file that is too long to be kept unless it is read from begin to end.
    fn read_at(&self, offset: u64) {
        let mut part = vec![0; 50_000];
        File::open(self.at.join("large")).unwrap().read_exact_at(&mut part, offset).unwrap();
        assert!(part == self.large[offset as usize..][..part.len()]);
    }
}

#[test]
fn what_clients_know_is_read_without_the_manager_and_only_closing_waits_for_it() {
    // A client may not have been heard of for a third of its lease of six seconds when the manager stops.
    const LEAST_OF_A_LEASE: Duration = Duration::from_millis(3500);
    let cell = shared::cell();
    let (one, two) = (shared::mounted(&cell, "one"), shared::mounted(&cell, "two"));
    let known = Known::make(&one, &two);
    // Who has just made a file may store it without asking.
    fs::write(one.join("written"), "before").unwrap();
    // A machine that has other work as well may be too slow, once.
    let is_read = (0..3).any(|round| {
        known.look();
        let text = format!("in round {round}");
        let mut written = OpenOptions::new().write(true).open(two.join("written")).unwrap();
        let stopped = Stopped::manager_of(&cell);
        let begun = Instant::now();
        written.write_all(text.as_bytes()).unwrap();
        let closing = thread::spawn(move || drop(written));
        let in_time = thread::scope(|scope| {
            let reading = scope.spawn(|| {
                // What the kernel knows, and then what the mount does; what nobody has read yet is at the drive.
                known.look();
                fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
                known.look();
                known.read_at(5 << 20);
            });
            while !reading.is_finished() && begun.elapsed() < LEAST_OF_A_LEASE {
                thread::sleep(Duration::from_millis(5));
            }
            let in_time = reading.is_finished();
            assert!(!in_time || !closing.is_finished(), "it was stored without the manager");
            drop(stopped);
            reading.join().unwrap();
            in_time
        });
        closing.join().unwrap();
        assert_eq!(fs::read_to_string(one.join("written")).unwrap(), text);
        in_time
    });
    assert!(is_read, "it was not read within a lease");
    known.look();
}

#[test]
fn a_manager_that_dies_is_restarted_and_nothing_is_lost() {
    let cell = TestCell::start(&CellOptions::default());
    for round in 0..3 {
        fs::write(cell.path(&format!("before-{round}")), noise(round, 10_000)).unwrap();
        signal(cell.member("manager serve"), "KILL");
        fs::write(cell.path(&format!("during-{round}")), noise(round, 10_000)).unwrap();
    }
    for round in 0..3 {
        for name in ["before", "during"] {
            let path = cell.path(&format!("{name}-{round}"));
            assert!(fs::read(&path).unwrap() == noise(round, 10_000), "{}", path.display());
        }
    }
}

/// A file of a volume that is about to be full, and how much of it was stored for sure.
struct Growing {
    path: PathBuf,
    seed: u64,
    stored: u64,
}

impl Growing {
    const LONGEST: usize = 4 << 20;

    fn new(at: &Mounted, seed: u64) -> Growing {
        let path = at.join(&format!("growing-{seed}"));
        File::create_new(&path).unwrap();
        Growing { path, seed, stored: 0 }
    }

    /// Stores so much more; of files with an odd number by appending.
    fn grow(&mut self, data: &[u8], count: usize) -> std::io::Result<()> {
        let part = &data[self.stored as usize..][..count];
        let mut file = match self.seed % 2 {
            0 => OpenOptions::new().write(true).open(&self.path)?,
            _ => OpenOptions::new().append(true).open(&self.path)?,
        };
        match self.seed % 2 {
            0 => file.write_all_at(part, self.stored)?,
            _ => file.write_all(part)?,
        }
        file.sync_all()?;
        self.stored += count as u64;
        Ok(())
    }
}

/// Grows files of a mount by turns until there is room for no byte more; tells all how much was stored.
fn fill(at: &Mounted, first: u64, all: &AtomicU64) -> Vec<Growing> {
    let mut files: Vec<Growing> = (first..first + 4).map(|seed| Growing::new(at, seed)).collect();
    let data: Vec<Vec<u8>> = files.iter().map(|file| noise(file.seed, Growing::LONGEST)).collect();
    let mut count = 20_011;
    for turn in (0..files.len()).cycle() {
        match files[turn].grow(&data[turn], count) {
            Ok(()) => {
                all.fetch_add(count as u64, Ordering::AcqRel);
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                if count == 1 {
                    break;
                }
                count = count.div_ceil(2);
            }
        }
    }
    files
}

/// Makes a file. What `close` says nobody would be told.
fn store(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(data)?;
    file.sync_all()
}

/// The bytes of all files in the root of a volume.
fn lengths(at: &Mounted) -> u64 {
    let entries = fs::read_dir(&at.0).unwrap();
    entries.map(|entry| fs::metadata(entry.unwrap().path()).unwrap().len()).sum()
}

/// Waits until that is what there is room for, as all are told: `df` in whole blocks.
fn wait_for_room(cell: &TestCell, at: &Mounted, quota: u64, room: u64) {
    wait_until("there is that room", || {
        let told = facts(cell, "volume quota shared");
        let df = rustix::fs::statvfs(&at.0).unwrap();
        told["quota_bytes"] == quota
            && told["free_bytes"] == room
            && (df.f_blocks, df.f_bavail) == (quota / df.f_frsize, room / df.f_frsize)
    });
}

#[test]
fn a_quota_is_kept_to_the_byte_while_managers_are_killed() {
    const QUOTA: u64 = 12 << 20;
    let cell = shared::cell();
    done(&cell, "volume quota shared 12M");
    let mounts = ["one", "two", "three"].map(|called| shared::mounted(&cell, called));
    // Whoever writes sees what he has not stored yet, too.
    let other = shared::mounted(&cell, "other");
    let stored = AtomicU64::new(0);
    let grown: Vec<Growing> = thread::scope(|scope| {
        let (mut filling, stored) = (Vec::new(), &stored);
        for (first, at) in [0, 4, 8].into_iter().zip(&mounts) {
            filling.push(scope.spawn(move || fill(at, first, stored)));
        }
        // Also when there is hardly any room left.
        for part in [10, 40, 70, 99] {
            let is_stored = || stored.load(Ordering::Acquire) >= QUOTA / 100 * part;
            wait_until("so much is stored", is_stored);
            cell.kill_and_await("manager serve");
            let has = lengths(&other);
            assert!(has <= QUOTA, "{has} bytes");
        }
        filling.into_iter().flat_map(|filling| filling.join().unwrap()).collect()
    });
    // Whoever was refused a byte was so with all others' taken.
    assert_eq!(lengths(&mounts[1]), QUOTA);
    for file in &grown {
        let found = fs::read(&file.path).unwrap();
        let expected = noise(file.seed, found.len());
        assert!(found.len() as u64 >= file.stored && found == expected, "{:?}", file.path);
    }
    wait_for_room(&cell, &mounts[2], QUOTA, 0);
    let removed = fs::metadata(&grown[1].path).unwrap().len();
    fs::remove_file(&grown[1].path).unwrap();
    wait_for_room(&cell, &mounts[2], QUOTA, removed);
    cell.kill_and_await("manager serve");
    wait_for_room(&cell, &mounts[0], QUOTA, removed);
    let (fits, refused) = (mounts[2].join("fits"), mounts[1].join("refused"));
    store(&fits, &noise(100, removed as usize)).unwrap();
    let full = store(&refused, b"x").unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    assert_eq!(lengths(&mounts[0]), QUOTA);
    wait_for_room(&cell, &mounts[1], QUOTA, 0);
}

#[test]
fn a_full_cell_says_so_and_keeps_what_it_has() {
    let cell = TestCell::start(&CellOptions {
        drives: 1,
        size: "96M",
        cache: "16M",
        ..CellOptions::default()
    });
    fs::write(cell.path("keep"), noise(5, 3 << 20)).unwrap();
    let mut file = File::create(cell.path("fill")).unwrap();
    let part = noise(6, 1 << 20);
    let error = (0..200).find_map(|_| file.write_all(&part).and_then(|()| file.sync_data()).err());
    let error = error.expect("200 MiB do not fit into 96 MiB");
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC, not {error}");
    drop(file);
    assert!(fs::read(cell.path("keep")).unwrap() == noise(5, 3 << 20));
    // Room comes back when the file goes.
    fs::remove_file(cell.path("fill")).unwrap();
    wait_until("there is room again", || fs::write(cell.path("again"), noise(8, 20 << 20)).is_ok());
    assert!(fs::read(cell.path("again")).unwrap() == noise(8, 20 << 20));
}

#[test]
fn a_mount_whose_process_was_killed_is_replaced() {
    let cell = TestCell::start(&CellOptions::default());
    fs::write(cell.path("file"), "kept").unwrap();
    signal(cell.member("mount"), "KILL");
    wait_until("the mount is back", || {
        fs::read_to_string(cell.path("file")).is_ok_and(|text| text == "kept")
    });
    let output = finish({
        let mut command = std::process::Command::new("ls");
        command.arg(cell.mountpoint());
        command
    });
    assert!(output.status.success());
}

#[test]
fn a_mount_that_was_unmounted_stays_so() {
    let cell = TestCell::start(&CellOptions::default());
    let output = cell.nasd(&["umount".as_ref(), cell.mountpoint().as_os_str()]);
    assert!(output.status.success(), "{}", support::text(&output));
    let is_there = || cell.members().iter().any(|(_, line)| line.contains("mount"));
    wait_until("it has ended", || !is_there());
    thread::sleep(Duration::from_millis(500));
    assert!(!is_there(), "it came back");
}

const DRIVES: [&str; 2] = ["drive-1.img", "drive-2.img"];

/// Kills drives of a cell with two, and waits until others have taken their places.
fn kill_drives(cell: &TestCell, drives: &[&str]) {
    let killed: Vec<u32> = drives.iter().map(|drive| cell.member(drive)).collect();
    killed.iter().for_each(|drive| signal(*drive, "KILL"));
    wait_until("both drives are back", || {
        // Those that were killed are seen for a while yet.
        let members = cell.members().into_iter().filter(|(pid, _)| !killed.contains(pid));
        members.filter(|(_, line)| line.contains("drive serve")).count() == DRIVES.len()
    });
}

/// Written and dated a moment ago: nothing of it is durable yet.
fn dated(cell: &TestCell, name: &str, time: SystemTime) -> File {
    let mut file = File::create(cell.path(name)).unwrap();
    file.write_all(&noise(5, 300_000)).unwrap();
    file.set_modified(time).unwrap();
    file
}

#[test]
fn modification_times_survive_the_drives() {
    let mut cell = TestCell::start(&CellOptions::default());
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let time_of = |cell: &TestCell, name: &str| {
        shell("echo 3 > /proc/sys/vm/drop_caches", &[]);
        fs::metadata(cell.path(name)).unwrap().modified().unwrap()
    };
    // The client lives: the drive gets everything again, at fsync, or by itself a moment later.
    let synced = dated(&cell, "synced", time);
    let left_alone = dated(&cell, "left alone", time);
    drop(dated(&cell, "closed", time));
    fs::write(cell.path("touched"), "x").unwrap();
    sync_tree(&cell.mountpoint());
    let again = dated(&cell, "again", time);
    File::open(cell.path("touched")).unwrap().set_modified(time).unwrap();
    kill_drives(&cell, &DRIVES);
    synced.sync_all().unwrap();
    again.sync_all().unwrap();
    File::open(cell.path("touched")).unwrap().sync_all().unwrap();
    thread::sleep(Duration::from_secs(4));
    kill_drives(&cell, &DRIVES);
    let names = ["synced", "left alone", "closed", "touched", "again"];
    for name in names {
        assert_eq!(time_of(&cell, name), time, "{name}");
    }
    drop((synced, left_alone, again));
    // And everything dies.
    let last = dated(&cell, "last", time);
    last.sync_all().unwrap();
    cell.kill_everything();
    drop(last);
    cell.restart();
    for name in names.into_iter().chain(["last"]) {
        assert_eq!(time_of(&cell, name), time, "{name}");
        let length = if name == "touched" { 1 } else { 300_000 };
        assert_eq!(fs::metadata(cell.path(name)).unwrap().len(), length, "{name}");
    }
}
