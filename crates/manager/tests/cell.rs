//! The manager behind its socket, with TLS, over drives behind theirs.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[allow(dead_code)] // Other tests use the rest.
#[path = "support/cell.rs"]
mod setup;
mod support;

use std::time::{Duration, Instant};

use nasd_client::{Authority, Caller, ClientError, DriveClient, ManagerClient};
use nasd_manager::acl::Acl;
use nasd_manager::directory::parse_directory;
use nasd_manager::file_record::FileRecord;
use nasd_manager::xattr::ACCESS_ACL;
use nasd_protocol::manager::{
    Device, File, FileAccess, FileType, ManagerStatus, NewMode, RenameFlags, SetFileAttributes,
    XattrFlags,
};
use nasd_protocol::{Status, manager::FileHandle};
use nasd_types::{Protection, Rights, Timestamp};

use setup::Cell;

const USER: u32 = 1000;

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: vec![] }
}

fn status_of(result: Result<File, ClientError>) -> ManagerStatus {
    result.unwrap_err().manager_status().unwrap()
}

/// A file as the holder of a capability has it.
struct Use {
    drive: DriveClient,
    handle: FileHandle,
    authority: Authority,
}

impl Use {
    fn of(cell: &Cell, file: &File) -> Use {
        let authority = Authority::capability(&file.capability, cell.protection());
        Use { drive: cell.drive_of(file), handle: file.handle, authority }
    }

    fn read(&self, length: usize) -> Result<Vec<u8>, Status> {
        let mut data = vec![0; length];
        let outcome = self.drive.read(&self.authority, self.handle.name(), 0, &mut data);
        data.truncate(outcome.map_err(|error| error.status().unwrap())?.length);
        Ok(data)
    }

    fn write(&self, data: &[u8]) -> Result<(), Status> {
        let outcome = self.drive.write(&self.authority, self.handle.name(), 0, data, true);
        outcome.map(|_| ()).map_err(|error| error.status().unwrap())
    }
}

/// A volume that anybody may write to; its root.
fn open_root(client: &ManagerClient) -> FileHandle {
    let root = client.volume(&Caller::ROOT, b"home").unwrap().root.handle;
    let changes = SetFileAttributes { mode: Some(0o777), ..Default::default() };
    client.setattr(&Caller::ROOT, root, &changes).unwrap();
    root
}

#[test]
fn a_file_goes_to_its_drive_and_back() {
    let cell = Cell::new(2);
    let client = cell.client("host:client");
    let volume = client.volume(&Caller::ROOT, b"").unwrap();
    assert_eq!((volume.name.as_bytes(), volume.drives.len()), (&b"home"[..], 2));
    assert_eq!(volume.protection, Protection::INTEGRITY_ARGS);
    let unknown = client.volume(&Caller::ROOT, b"other").unwrap_err();
    assert_eq!(unknown.manager_status(), Some(ManagerStatus::NotFound));
    let root = open_root(&client);

    let file = client.create(&user(USER), root, b"file", 0o640, true).unwrap();
    let data = vec![0x5a; 300_000];
    Use::of(&cell, &file).write(&data).unwrap();

    let found = client.lookup(&user(USER), root, b"file").unwrap();
    assert_eq!(found.attributes.size, 300_000);
    let (before, after) = (file.attributes.modify_time, found.attributes.modify_time);
    assert!(after > before, "{before:?} {after:?}");
    assert!(found.attributes.used_bytes >= 300_000);
    assert_eq!(Use::of(&cell, &found).read(1 << 20), Ok(data));

    // Truncation goes through the manager, and shows at the drive.
    let changes = SetFileAttributes { size: Some(5), ..Default::default() };
    let cut = client.setattr(&user(USER), file.handle, &changes).unwrap();
    assert_eq!(cut.attributes.size, 5);
    assert_eq!(Use::of(&cell, &found).read(1 << 20), Ok(vec![0x5a; 5]));

    // The attributes are the drive's; the record is in them.
    let used = Use::of(&cell, &found);
    let attributes = used.drive.getattr(&used.authority, file.handle.name()).unwrap();
    let record = FileRecord::parse(&attributes.fs_specific).unwrap();
    assert_eq!((record.mode, record.uid), (0o640, USER));
}

/// The longest value and the longest list go through both sockets; and a list of access control is one for
/// the drive too, by the capability that comes of it.
#[test]
fn extended_attributes_and_lists_go_all_the_way() {
    let cell = Cell::new(2);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let (me, none) = (user(USER), XattrFlags::NONE);
    let file = client.create(&me, root, b"file", 0o600, true).unwrap().handle;
    let longest: Vec<u8> = (0..65_536_u32).map(|at| at as u8).collect();
    client.setxattr(&me, file, b"user.longest", &longest, none).unwrap();
    assert_eq!(client.getxattr(&me, file, b"user.longest").unwrap(), longest);
    let error = client.setxattr(&me, file, b"user.b", &vec![0; 65_537], none).unwrap_err();
    assert_eq!(error.manager_status(), Some(ManagerStatus::TooBig));
    client.removexattr(&me, file, b"user.longest").unwrap();
    let names: Vec<String> = (0..256).map(|number| format!("user.{number:0>250}")).collect();
    for name in &names {
        client.setxattr(&me, file, name.as_bytes(), b"", none).unwrap();
    }
    let listed = client.listxattr(&me, file).unwrap();
    assert_eq!(listed.len(), 65_536);
    let error = client.setxattr(&me, file, b"user.b", b"", none).unwrap_err();
    assert_eq!(error.manager_status(), Some(ManagerStatus::NoSpace));

    let theirs = client.lookup(&user(8), root, b"file").unwrap();
    assert_eq!(Use::of(&cell, &theirs).read(1), Err(Status::RefusedRights));
    let acl = Acl { users: vec![(8, 6)], mask: Some(6), ..Acl::of_mode(0o600) };
    let list = acl.to_xattr();
    client.setxattr(&me, file, ACCESS_ACL, &list, none).unwrap();
    let theirs = client.lookup(&user(8), root, b"file").unwrap();
    let theirs = Use::of(&cell, &theirs);
    assert_eq!(theirs.write(b"data"), Ok(()));
    client.setxattr(&me, file, ACCESS_ACL, &list, none).unwrap();
    assert_eq!(theirs.read(4), Ok(b"data".to_vec()), "nobody may do less");
    client.removexattr(&me, file, ACCESS_ACL).unwrap();
    assert_eq!(theirs.read(4), Err(Status::RefusedDigest), "it was taken back");
    // A list that says what a mode says is a `chmod`: `cp -a` sets one on each file.
    let wider = client.setxattr(&me, file, ACCESS_ACL, &Acl::of_mode(0o664).to_xattr(), none);
    assert_eq!(wider.unwrap().attributes.mode, 0o664);
    let theirs = Use::of(&cell, &client.lookup(&user(8), root, b"file").unwrap());
    client.setxattr(&me, file, ACCESS_ACL, &Acl::of_mode(0o666).to_xattr(), none).unwrap();
    assert_eq!(theirs.read(4), Ok(b"data".to_vec()), "nobody may do less");
    client.setxattr(&me, file, ACCESS_ACL, &Acl::of_mode(0o660).to_xattr(), none).unwrap();
    assert_eq!(theirs.read(4), Err(Status::RefusedDigest), "others may do less");

    let fifo = (FileType::Fifo, Device::NONE);
    let mode = NewMode { mode: 0o666, umask: 0o022 };
    let made = client.mknod(&me, root, b"fifo", fifo, mode).unwrap();
    assert_eq!((made.attributes.file_type, made.attributes.mode), (FileType::Fifo, 0o644));
    let access = FileAccess { file, time: Timestamp::MAX };
    // The first file on a drive is made before its clock is known.
    let long_ago = SetFileAttributes { access_time: Some(Timestamp(7)), ..Default::default() };
    let before = client.setattr(&me, file, &long_ago).unwrap().attributes;
    client.accessed(&me, root, &[access]).unwrap();
    let after = client.getattr(&me, file).unwrap().attributes;
    assert!(after.access_time > before.access_time);
    assert_eq!(after.change_time, before.change_time, "to have been read is no change");
}

#[test]
fn capabilities_end_with_what_they_are_for() {
    let cell = Cell::new(2);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let file = client.create(&user(USER), root, b"file", 0o640, true).unwrap();
    Use::of(&cell, &file).write(b"data").unwrap();

    // A group's member may read, others nothing but the attributes.
    let member = Caller { uid: 7, gid: 7, groups: vec![USER] };
    let theirs = client.lookup(&member, root, b"file").unwrap();
    assert_eq!(theirs.capability.capability.rights, Rights::READ | Rights::GETATTR);
    let theirs = Use::of(&cell, &theirs);
    assert_eq!(theirs.read(10), Ok(b"data".to_vec()));
    assert_eq!(theirs.write(b"x"), Err(Status::RefusedRights));
    let other = client.lookup(&user(8), root, b"file").unwrap();
    assert_eq!(Use::of(&cell, &other).read(10), Err(Status::RefusedRights));

    // chmod revokes what was given before, and gives a new one.
    let changes = SetFileAttributes { mode: Some(0o600), ..Default::default() };
    let mine = client.setattr(&user(USER), file.handle, &changes).unwrap();
    assert_eq!(theirs.read(10), Err(Status::RefusedDigest));
    let mine = Use::of(&cell, &mine);
    assert_eq!(mine.read(10), Ok(b"data".to_vec()));

    // The file's last name goes, and the object soon after.
    client.unlink(&user(USER), root, b"file", None).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while mine.read(10) != Err(Status::RefusedDigest) {
        assert!(Instant::now() < deadline, "it is never removed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let gone = status_of(client.getattr(&user(USER), file.handle));
    assert_eq!(gone, ManagerStatus::Stale);
}

#[test]
fn capabilities_expire_and_are_renewed() {
    let cell = Cell::with(1, |config| config.capability_lifetime = Duration::from_secs(5));
    let client = cell.client("host:client");
    let root = open_root(&client);
    let file = client.create(&user(USER), root, b"file", 0o640, true).unwrap();
    assert_eq!(Use::of(&cell, &file).write(b"data"), Ok(()));
    // A drive that has just started tells a clock up to a second ahead of that of expiry.
    std::thread::sleep(Duration::from_millis(7000));
    assert_eq!(Use::of(&cell, &file).read(10), Err(Status::RefusedExpired));
    let renewed = client.getattr(&user(USER), file.handle).unwrap();
    assert_eq!(Use::of(&cell, &renewed).read(10), Ok(b"data".to_vec()));
}

#[test]
fn no_data_passes_the_manager_and_the_drives_know() {
    let cell = Cell::new(2);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let caller = user(USER);
    let data = vec![1; 1 << 20];
    for number in 0..8 {
        let name = format!("file{number}");
        let file = client.create(&caller, root, name.as_bytes(), 0o644, true).unwrap();
        let authority = Authority::capability(&file.capability, cell.protection());
        let drive = cell.drive_of(&file);
        drive.write(&authority, file.handle.name(), 0, &data, true).unwrap();
    }
    let status = client.status(&caller).unwrap();
    assert_eq!(status.volume.as_bytes(), b"home");
    assert_eq!(status.file_data_bytes, 0);
    assert!(status.requests >= 10);
    assert!(status.client_bytes_received > 0 && status.client_bytes_received < 100_000);
    assert!(status.client_bytes_sent > 0 && status.client_bytes_sent < 100_000);
    let controls: Vec<_> =
        status.drives.iter().map(|drive| drive.control.clone().unwrap()).collect();
    let written: u64 = controls.iter().map(|control| control.capability_bytes_written).sum();
    assert_eq!(written, 8 << 20, "clients' data is counted as such");
    assert!(controls.iter().all(|control| control.capability_bytes_written > 0), "spread");
    let by_key: u64 = controls.iter().map(|control| control.key_bytes_written).sum();
    assert!(by_key > 0 && by_key < 1 << 20, "the manager's own writes are apart: {by_key}");
    let space = client.space(&caller, b"home").unwrap();
    assert!(space.free_bytes > 0 && space.total_bytes > space.free_bytes);
    assert!(space.files >= 8);
}

#[test]
fn clients_can_read_directories_by_themselves() {
    let cell = Cell::new(2);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let caller = user(USER);
    let directory = client.mkdir(&caller, root, b"dir", 0o700).unwrap();
    for number in 0..200 {
        let name = format!("a file with quite a long name, number {number}");
        client.create(&caller, directory.handle, name.as_bytes(), 0o644, true).unwrap();
    }
    let page = client.readdir(&caller, directory.handle, 0, 1000).unwrap();
    assert!(page.end);
    // Names come home with the next housekeeping.
    cell.manager.as_ref().unwrap().namespace().keep_house();
    let drive = cell.drive_of(&directory);
    let authority = Authority::capability(&directory.capability, cell.protection());
    let mut data = vec![0; 1 << 20];
    let outcome = drive.read(&authority, directory.handle.name(), 0, &mut data).unwrap();
    let entries = parse_directory(directory.handle.object, &data[..outcome.length]).unwrap();
    assert_eq!(entries.len(), 200);
    for (entry, told) in entries.iter().zip(&page.entries) {
        assert_eq!((entry.cookie, &entry.name[..]), (told.cookie, told.name.as_bytes()));
        assert_eq!((entry.handle, entry.file_type), (told.handle, told.file_type));
    }
    // Who may not list it gets no right to read it, and nobody gets one to write it.
    let other = client.lookup(&user(7), root, b"dir").unwrap();
    let authority = Authority::capability(&other.capability, cell.protection());
    let refused = drive.read(&authority, other.handle.name(), 0, &mut data).unwrap_err();
    assert_eq!(refused.status(), Some(Status::RefusedRights));
    // A symbolic link's target is its data.
    let link = client.symlink(&caller, root, b"link", b"dir/x").unwrap();
    assert_eq!((link.attributes.file_type, link.attributes.size), (FileType::Symlink, 5));
    let link = client.lookup(&user(7), root, b"link").unwrap();
    let authority = Authority::capability(&link.capability, cell.protection());
    let outcome = cell.drive_of(&link).read(&authority, link.handle.name(), 0, &mut data).unwrap();
    assert_eq!(&data[..outcome.length], b"dir/x");
}

#[test]
fn certificates_say_for_whom_one_speaks() {
    let cell = Cell::new(1);
    let host = cell.client("host:client");
    let root = open_root(&host);
    let me = cell.client("user:1000");
    // Claims to be in root's group; its certificate does not say so.
    let claims = Caller { uid: USER, gid: 0, groups: vec![0, 4] };
    let file = me.create(&claims, root, b"mine", 0o640, true).unwrap();
    assert_eq!((file.attributes.uid, file.attributes.gid), (USER, USER));
    assert_eq!(file.capability.capability.audit_id.0 >> 32, u64::from(USER));
    for claimed in [0, 1001] {
        let refused = me.create(&user(claimed), root, b"theirs", 0o644, true);
        assert!(refused.is_err(), "user {claimed} by a certificate of another");
    }
    assert!(me.lookup(&claims, root, b"theirs").is_err());
    host.create(&user(1001), root, b"theirs", 0o644, true).unwrap();
}

#[test]
fn a_manager_that_was_killed_finds_everything() {
    let mut cell = Cell::new(3);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let caller = user(USER);
    for number in 0..30 {
        let directory =
            client.mkdir(&caller, root, format!("d{number}").as_bytes(), 0o755).unwrap();
        client.create(&caller, directory.handle, b"file", 0o644, true).unwrap();
        if number % 3 == 0 {
            let from = (directory.handle, &b"file"[..]);
            client.rename(&caller, from, (root, b"moved"), RenameFlags::NONE, None).unwrap();
        }
    }
    cell.restart_manager();
    cell.drives.iter_mut().for_each(|drive| {
        drive.stop();
        drive.start();
    });
    for number in 0..30 {
        let directory = client.lookup(&caller, root, format!("d{number}").as_bytes()).unwrap();
        let found = client.lookup(&caller, directory.handle, b"file").map(|_| ());
        assert_eq!(found.is_ok(), number % 3 != 0, "{found:?}");
    }
    client.lookup(&caller, root, b"moved").unwrap();
    let again = client.volume(&caller, b"home").unwrap();
    assert_eq!((again.root.handle, again.root.attributes.links), (root, 32));
    assert!(cell.manager.take().unwrap().shut_down(Duration::from_secs(5)));
}

#[test]
fn a_drive_that_restarts_is_waited_for_and_others_go_on() {
    let mut cell = Cell::new(2);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let caller = user(USER);
    // Files on both drives, so that there is one that needs the drive that is stopped.
    let files: Vec<File> = (0..4)
        .map(|number| client.create(&caller, root, format!("f{number}").as_bytes(), 0o644, true))
        .map(|made| made.unwrap().reply)
        .collect();
    let far = files.iter().position(|file| file.handle.drive.0 == 2).unwrap();
    let near = files.iter().position(|file| file.handle.drive.0 == 1).unwrap();
    cell.drives[1].stop();

    let started = Instant::now();
    let status = client.status(&caller).unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    let reachable: Vec<bool> = status.drives.iter().map(|drive| drive.reachable).collect();
    assert_eq!(reachable, [true, false]);
    assert!(status.drives[1].control.is_none());

    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..6).map(|_| scope.spawn(|| client.getattr(&caller, files[far].handle))).collect();
        std::thread::sleep(Duration::from_millis(100));
        for number in 0..20 {
            let started = Instant::now();
            client.getattr(&caller, files[near].handle).unwrap();
            let name = format!("new{number}");
            let new = client.create(&caller, root, name.as_bytes(), 0o644, true).unwrap();
            assert_eq!(new.handle.drive.0, 1);
            client.unlink(&caller, root, name.as_bytes(), None).unwrap();
            assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        }
        assert!(waiting.iter().any(|waiter| !waiter.is_finished()));
        cell.drives[1].start();
        for waiter in waiting {
            waiter.join().unwrap().unwrap();
        }
    });
}

/// Operations go on while both drives are killed and started again and again: no answer is taken
/// back.
#[test]
fn answers_survive_drives_that_are_killed() {
    let mut cell = Cell::new(2);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let caller = user(USER);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let (client, caller, stop) = (&client, &caller, &stop);
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for number in 0.. {
                        if stop.load(std::sync::atomic::Ordering::Relaxed) {
                            break;
                        }
                        let name = format!("w{worker}-{number}");
                        // A try whose answer was lost is not executed again.
                        client.create(caller, root, name.as_bytes(), 0o644, true).unwrap();
                        let to = format!("w{worker}-{number}-renamed");
                        let (from, to_) = ((root, name.as_bytes()), (root, to.as_bytes()));
                        client.rename(caller, from, to_, RenameFlags::NONE, None).unwrap();
                        done.push(to);
                        // As many objects as a drive has room for would soon be made.
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    done
                })
            })
            .collect();
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(150));
            let drive = &mut cell.drives[round % 2];
            drive.stop();
            std::thread::sleep(Duration::from_millis(100));
            drive.start();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let results = workers.into_iter().map(|worker| worker.join().unwrap());
        results.flatten().collect::<Vec<String>>()
    });
    assert!(!done.is_empty());
    cell.restart_manager();
    for name in &done {
        client
            .lookup(&caller, root, name.as_bytes())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Not a test: prints how many operations a second the whole way takes, for one client and eight.
#[test]
#[ignore = "a measurement"]
fn rates() {
    let cell = Cell::new(4);
    let client = cell.client("host:client");
    let root = open_root(&client);
    let caller = user(USER);
    let run = |what: &str, threads: usize, count: usize, call: &(dyn Fn(String) + Sync)| {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    (0..count).for_each(|number| call(format!("{thread}-{number}")));
                });
            }
        });
        let rate = (threads * count) as f64 / started.elapsed().as_secs_f64();
        eprintln!("{what} x{threads}: {rate:.0}/s");
    };
    for (threads, count) in [(1, 1000), (8, 250)] {
        let made = |name: String| {
            client.create(&caller, root, name.as_bytes(), 0o644, true).unwrap();
        };
        run("create", threads, count, &made);
        let seen = |name: String| {
            client.lookup(&caller, root, name.as_bytes()).unwrap();
        };
        run("lookup", threads, count, &seen);
        let renamed = |name: String| {
            let new = format!("{name}-");
            let (from, to) = ((root, name.as_bytes()), (root, new.as_bytes()));
            client.rename(&caller, from, to, RenameFlags::NONE, None).unwrap();
        };
        run("rename", threads, count, &renamed);
        let removed = |name: String| {
            client.unlink(&caller, root, format!("{name}-").as_bytes(), None).unwrap();
        };
        run("unlink", threads, count, &removed);
    }
}
