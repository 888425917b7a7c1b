//! What a user fears: processes that die under a mount, a manager that is away, a full drive.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use support::lines::Mounted;
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
    // A machine that has other work as well may be too slow, once.
    let is_read = (0..3).any(|round| {
        known.look();
        let text = format!("in round {round}");
        let mut written = File::create(two.join("written")).unwrap();
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
