//! Store and forward: a clerk whose data go through the manager, beside one whose data go straight to
//! the drives, over sockets.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[path = "support/cell.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod setup;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nasd_capability::SecretKey;
use nasd_clerk::{
    Clerk, ClerkError, ClerkOptions, Interruptible, Interrupts, OpenFile, OpenMode, Route,
    SeekTarget, Settings,
};
use nasd_client::{Authority, Caller, ClientError};
use nasd_manager::caller::peer_number;
use nasd_protocol::drive::AuditArguments;
use nasd_protocol::manager::{FileHandle, ManagerStatus, Name, SetFileAttributes};
use nasd_types::{AppendToken, AuditId, ByteRange, Protection};

use setup::{Cell, DRIVE_KEY};

const USER: u32 = 1000;
const OTHER: u32 = 1001;

/// A cell with a root for everybody.
fn cell(drives: u64) -> Cell {
    cell_with_room(drives, 64 << 20)
}

fn cell_with_room(drives: u64, forward_bytes: usize) -> Cell {
    Cell::with(drives, |config| {
        config.root.mode = 0o777;
        config.short_patience = Duration::from_millis(200);
        config.forward_bytes = forward_bytes;
    })
}

fn clerk(cell: &Cell, uid: u32, route: Route) -> (Arc<Clerk>, Arc<Caller>) {
    clerk_with(cell, uid, route, Duration::from_secs(60))
}

fn clerk_with(
    cell: &Cell,
    uid: u32,
    route: Route,
    deadline: Duration,
) -> (Arc<Clerk>, Arc<Caller>) {
    let caller = Arc::new(Caller { uid, gid: uid, groups: vec![] });
    let (address, volume) = (cell.manager_address.to_string(), name("home"));
    let tls = cell.client_tls("host:a");
    let mut options = ClerkOptions::new(address, tls, volume, Arc::clone(&caller));
    options.route = route;
    options.settings = Settings { deadline, ..Settings::default() };
    (Arc::new(Clerk::connect(&options).unwrap()), caller)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A new file of a clerk, open for reading and writing.
fn new_file(clerk: &Clerk, caller: &Arc<Caller>, called: &str) -> OpenFile {
    let made = clerk.create(caller, clerk.root(), &name(called), 0o600, true).unwrap();
    clerk.open(caller, made.handle, OpenMode::READ_WRITE).unwrap().0
}

fn open(clerk: &Clerk, caller: &Arc<Caller>, file: FileHandle) -> OpenFile {
    clerk.open(caller, file, OpenMode::READ_WRITE).unwrap().0
}

/// Bytes that differ from place to place.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ seed.wrapping_mul(97)) as u8).collect()
}

fn read_whole(file: &OpenFile, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length + 100];
    let got = file.read(0, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

#[test]
fn data_of_every_shape_go_through_and_are_the_same_on_both_ways() {
    let cell = cell(2);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let (near, _) = clerk(&cell, USER, Route::Direct);
    let file = new_file(&far, &caller, "file");
    let mut model = Vec::new();
    let mut random = 7_usize;
    for round in 0..60 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        let offset = (random >> 33) % 3_000_000;
        let length = [1, 4095, 4096, 70_001, 1 << 20, (2 << 20) + 13][round % 6];
        let data = pattern(round, length);
        file.write(offset as u64, &data).unwrap();
        model.resize(model.len().max(offset + length), 0);
        model[offset..offset + length].copy_from_slice(&data);
    }
    assert!(read_whole(&file, model.len()) == model, "unflushed");
    file.sync().unwrap();
    let direct = open(&near, &caller, file.handle());
    assert!(read_whole(&direct, model.len()) == model, "straight from the drive");
    // A clerk that has nothing of its own.
    let (fresh, _) = clerk(&cell, USER, Route::Manager);
    let fresh = open(&fresh, &caller, file.handle());
    assert!(read_whole(&fresh, model.len()) == model, "through the manager");
    assert_eq!(fresh.size(), model.len() as u64);
}

#[test]
fn holes_lengths_and_attributes_are_the_drives() {
    let cell = cell(1);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let (near, _) = clerk(&cell, USER, Route::Direct);
    let file = new_file(&far, &caller, "file");
    file.write(0, &pattern(1, 300_000)).unwrap();
    file.sync().unwrap();
    file.punch(ByteRange::new(65_536, 131_072)).unwrap();
    assert_eq!(file.seek(0, SeekTarget::Hole).unwrap(), Some(65_536));
    assert_eq!(file.seek(65_536, SeekTarget::Data).unwrap(), Some(196_608));
    assert_eq!(file.seek(300_000, SeekTarget::Data).unwrap(), None);
    let bytes = read_whole(&open(&near, &caller, file.handle()), 300_000);
    assert!(bytes[65_536..196_608].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[196_608..], pattern(1, 300_000)[196_608..]);
    let cut = SetFileAttributes { size: Some(5), ..SetFileAttributes::default() };
    far.setattr(&caller, file.handle(), &cut).unwrap();
    assert_eq!(read_whole(&file, 300_000), pattern(1, 5));
    let [told, direct] = [&far, &near].map(|clerk| clerk.getattr_now(&caller, file.handle()));
    let (told, direct) = (told.unwrap(), direct.unwrap());
    assert_eq!((told.size, told.modify_time), (direct.size, direct.modify_time));
    assert_eq!((told.size, told.used_bytes), (5, direct.used_bytes));
}

#[test]
fn who_moved_what_is_counted_apart() {
    let cell = cell(2);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let (near, _) = clerk(&cell, USER, Route::Direct);
    let data = pattern(3, 1 << 20);
    let file = new_file(&far, &caller, "far");
    file.write(0, &data).unwrap();
    file.sync().unwrap();
    let (again, _) = clerk(&cell, USER, Route::Manager);
    assert!(read_whole(&open(&again, &caller, file.handle()), data.len()) == data);
    let file = new_file(&near, &caller, "near");
    file.write(0, &data).unwrap();
    file.sync().unwrap();
    let status = cell.client("host:a").status(&caller).unwrap();
    let forwarded: u64 = status.drives.iter().map(|drive| drive.forwarded_bytes).sum();
    let moved: u64 = status
        .drives
        .iter()
        .filter_map(|drive| drive.control.as_ref())
        .map(|control| control.capability_bytes_read + control.capability_bytes_written)
        .sum();
    assert_eq!(status.file_data_bytes, 2 << 20);
    assert_eq!((forwarded, moved - forwarded), (2 << 20, 1 << 20));
    assert!(status.client_bytes_received < 1 << 20, "data are not among these");
    assert!(status.client_bytes_sent < 1 << 20);
}

fn status_of<T: std::fmt::Debug>(result: Result<T, ClientError>) -> ManagerStatus {
    result.unwrap_err().manager_status().unwrap()
}

/// What a client could ask for that does not heed what it was told.
#[test]
fn nobody_gets_what_he_could_not_get_from_the_drive() {
    let cell = cell(1);
    let (far, owner) = clerk(&cell, USER, Route::Manager);
    let file = new_file(&far, &owner, "file");
    file.write(0, b"secret").unwrap();
    file.sync().unwrap();
    let handle = file.handle();
    let client = cell.client("host:b");
    let other = Caller { uid: OTHER, gid: OTHER, groups: vec![] };
    let mut bytes = [0; 6];
    assert_eq!(
        status_of(client.forward_read(&other, handle, 0, &mut bytes)),
        ManagerStatus::Access
    );
    assert_eq!(bytes, [0; 6]);
    let write = |caller: &Caller| client.forward_write(caller, handle, 0, b"public", true);
    assert_eq!(status_of(write(&other)), ManagerStatus::Access);
    let append = |caller: &Caller, file| {
        let identity = (AppendToken([7; 16]), Duration::ZERO);
        client.forward_append(caller, file, identity, b"public")
    };
    assert_eq!(status_of(append(&other, handle)), ManagerStatus::Access);
    assert_eq!(status_of(client.forward_flush(&other, handle)), ManagerStatus::Access);
    let range = ByteRange::new(0, 6);
    assert_eq!(status_of(client.forward_punch(&other, handle, range, true)), ManagerStatus::Access);
    let seek = client.forward_seek(&other, handle, 0, SeekTarget::Data);
    assert_eq!(status_of(seek), ManagerStatus::Access);

    // What is opened to him, and closed again, is so at once.
    let mode = |mode| SetFileAttributes { mode: Some(mode), ..SetFileAttributes::default() };
    far.setattr(&owner, handle, &mode(0o604)).unwrap();
    assert_eq!(client.forward_read(&other, handle, 0, &mut bytes).unwrap().length, 6);
    assert_eq!(&bytes, b"secret");
    assert_eq!(status_of(write(&other)), ManagerStatus::Access, "to read");
    assert_eq!(status_of(append(&other, handle)), ManagerStatus::Access, "to read");
    far.setattr(&owner, handle, &mode(0o600)).unwrap();
    assert_eq!(
        status_of(client.forward_read(&other, handle, 0, &mut bytes)),
        ManagerStatus::Access
    );

    // Names are the manager's alone to write, whoever asks; and what is no file is none.
    let root = far.root();
    let over = client.forward_write(&Caller::ROOT, root, 0, b"x", true);
    assert_eq!(status_of(over), ManagerStatus::Access);
    assert_eq!(status_of(append(&Caller::ROOT, root)), ManagerStatus::Access);
    let none = FileHandle { object: nasd_types::ObjectId(1 << 40), ..handle };
    assert_eq!(status_of(client.forward_getattr(&owner, none)), ManagerStatus::Stale);
    let record = FileHandle { object: nasd_types::ObjectId::FIRST_OBJECT, ..handle };
    let read = client.forward_read(&Caller::ROOT, record, 0, &mut bytes);
    assert_eq!(status_of(read), ManagerStatus::Stale);

    // A person's certificate speaks for nobody else.
    let person = cell.client(&format!("user:{OTHER}"));
    let refused = person.forward_read(&owner, handle, 0, &mut bytes).unwrap_err();
    assert!(matches!(refused, ClientError::NotAdmitted { .. }), "{refused}");
}

/// Lines of a writer, as it appends them one by one.
fn line(writer: usize, number: usize) -> Vec<u8> {
    let mut line = format!("{writer} {number} {}", "x".repeat(number * 37 % 700)).into_bytes();
    line.push(b'\n');
    line
}

#[test]
fn appends_by_either_way_keep_every_line() {
    let mut cell = cell(1);
    let clerks = [Route::Manager, Route::Manager, Route::Direct].map(|way| clerk(&cell, USER, way));
    let caller = &clerks[0].1;
    let handle = new_file(&clerks[0].0, caller, "log").handle();
    const LINES: usize = 300;
    thread::scope(|scope| {
        for (writer, (clerk, caller)) in clerks.iter().enumerate() {
            let file = open(clerk, caller, handle);
            scope.spawn(move || {
                for number in 0..LINES {
                    file.append(&line(writer, number)).unwrap();
                    if number % 10 == 0 {
                        file.sync().unwrap();
                    }
                }
                file.sync().unwrap();
            });
        }
        thread::sleep(Duration::from_millis(150));
        cell.restart_manager();
        thread::sleep(Duration::from_millis(150));
        cell.drives[0].stop();
        cell.drives[0].start();
    });
    let (fresh, _) = clerk(&cell, USER, Route::Manager);
    let length: usize = (0..3).flat_map(|w| (0..LINES).map(move |n| line(w, n).len())).sum();
    let text = read_whole(&open(&fresh, caller, handle), length);
    assert_eq!(text.len(), length);
    let mut next = [0; 3];
    for found in text.split_inclusive(|byte| *byte == b'\n') {
        let writer = usize::from(found[0] - b'0');
        assert_eq!(found, line(writer, next[writer]), "whole, and in its order");
        next[writer] += 1;
    }
    assert_eq!(next, [LINES; 3]);
}

#[test]
fn an_append_that_is_asked_for_again_is_made_once() {
    let mut cell = cell(1);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let file = new_file(&far, &caller, "log");
    file.write(0, b"head ").unwrap();
    file.sync().unwrap();
    let append = |cell: &Cell, token, age, data: &[u8]| {
        let identity = (AppendToken([token; 16]), age);
        let client = cell.client("host:a");
        client.forward_append(&caller, file.handle(), identity, data)
    };
    let begun = Instant::now();
    let first = append(&cell, 1, Duration::ZERO, b"one ").unwrap();
    assert_eq!((first.offset, first.attributes.logical_size), (5, 9));
    let other = append(&cell, 2, Duration::ZERO, b"two ").unwrap();
    assert_eq!(other.offset, 9);
    cell.restart_manager();
    cell.drives[0].stop();
    cell.drives[0].start();
    let again = append(&cell, 1, begun.elapsed(), b"one ").unwrap();
    assert_eq!((again.offset, again.attributes.logical_size), (5, 13));
    assert_eq!(read_whole(&open(&far, &caller, file.handle()), 13), b"head one two ");

    // Another length by the same token, and nothing at all, are nonsense.
    let longer = append(&cell, 1, begun.elapsed(), b"three");
    assert_eq!(status_of(longer), ManagerStatus::TooLarge);
    assert_eq!(status_of(append(&cell, 3, Duration::ZERO, b"")), ManagerStatus::Invalid);
}

/// The drive knows on whose behalf it was asked.
#[test]
fn the_drives_audit_trail_names_the_user() {
    let cell = cell(1);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let file = new_file(&far, &caller, "file");
    file.write(0, b"data").unwrap();
    file.sync().unwrap();
    let drive = cell.drive(file.handle().drive);
    let by = Authority::drive_key(SecretKey::new(DRIVE_KEY), Protection::INTEGRITY_ARGS);
    let who = AuditId(u64::from(USER) << 32 | u64::from(peer_number("host:a")));
    let wanted = AuditArguments { audit_id: Some(who), ..AuditArguments::ALL };
    let end = Instant::now() + Duration::from_secs(20);
    while drive.audit(&by, &wanted).unwrap().records.is_empty() {
        assert!(Instant::now() < end, "no record of the user");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_a_drive_forgot_is_written_again() {
    let mut cell = cell(1);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let file = new_file(&far, &caller, "file");
    let data = pattern(4, 6 << 20);
    file.write(0, &data).unwrap();
    // It has reached the drive by now, most of it, and is not durable.
    let mut back = vec![0; 1 << 20];
    file.read(0, &mut back).unwrap();
    cell.drives[0].stop();
    cell.drives[0].start();
    file.sync().unwrap();
    cell.drives[0].stop();
    cell.drives[0].start();
    let (near, _) = clerk(&cell, USER, Route::Direct);
    assert!(read_whole(&open(&near, &caller, file.handle()), data.len()) == data);
}

/// Files on each of two drives.
fn on_both_drives(clerk: &Clerk, caller: &Arc<Caller>) -> [OpenFile; 2] {
    let mut found = [None, None];
    for number in 0.. {
        let file = new_file(clerk, caller, &format!("file{number}"));
        let place = file.handle().drive.0 as usize - 1;
        file.write(0, &pattern(place, 100_000)).unwrap();
        file.sync().unwrap();
        found[place].get_or_insert(file);
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.map(Option::unwrap)
}

#[test]
fn a_drive_that_is_away_is_waited_for_and_the_other_goes_on() {
    let mut cell = cell(2);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let files = on_both_drives(&far, &caller);
    let soft = Duration::from_secs(6);
    let (soft, _) = clerk_with(&cell, USER, Route::Manager, soft);
    let [away, other] = files.each_ref().map(|file| open(&soft, &caller, file.handle()));
    cell.drives[0].stop();
    let began = Instant::now();
    let mut bytes = [0; 4096];
    let error = away.read(0, &mut bytes).unwrap_err();
    assert_eq!(error.errno(), 5, "{error}");
    let taken = began.elapsed();
    assert!(taken > Duration::from_secs(4) && taken < Duration::from_secs(20), "{taken:?}");
    assert_eq!(other.read(0, &mut bytes).unwrap(), 4096);
    assert_eq!(bytes[..], pattern(1, 4096));

    // A clerk that waits for as long as it takes.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut bytes = [0; 4096];
            files[0].read(50_000, &mut bytes).map(|got| bytes[..got].to_vec())
        });
        thread::sleep(Duration::from_millis(500));
        assert!(!waiting.is_finished(), "it waits");
        cell.drives[0].start();
        assert_eq!(waiting.join().unwrap().unwrap(), pattern(0, 100_000)[50_000..54_096]);
    });
}

/// Says that its request was interrupted, once it was.
struct Flag(AtomicBool);

impl Interrupts for Flag {
    fn wait(&self, _request: u64, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while Instant::now() < end && !self.0.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5).min(limit));
        }
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn who_waits_for_drive_or_manager_can_be_interrupted() {
    let mut cell = cell(1);
    let (far, caller) = clerk_with(&cell, USER, Route::Manager, Duration::from_secs(3600));
    let file = new_file(&far, &caller, "file");
    file.write(0, &pattern(1, 100_000)).unwrap();
    file.sync().unwrap();
    for manager_too in [false, true] {
        cell.drives[0].stop();
        if manager_too {
            cell.manager = None;
        }
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let request = Interruptible::new(1, flag.clone());
        thread::scope(|scope| {
            let read = || request.run(|| file.read(0, &mut [0; 100]));
            let waiting = scope.spawn(read);
            thread::sleep(Duration::from_millis(400));
            assert!(!waiting.is_finished());
            flag.0.store(true, Ordering::SeqCst);
            let began = Instant::now();
            assert_eq!(waiting.join().unwrap(), Err(ClerkError::Interrupted));
            assert!(began.elapsed() < Duration::from_secs(10));
        });
        cell.drives[0].start();
        cell.restart_manager();
        assert_eq!(file.read(0, &mut [0; 100]), Ok(100));
    }
}

#[test]
fn many_at_a_time_get_through_little_memory() {
    let cell = cell_with_room(2, 6 << 20);
    let (far, caller) = clerk(&cell, USER, Route::Manager);
    let files: Vec<OpenFile> =
        (0..6).map(|number| new_file(&far, &caller, &format!("file{number}"))).collect();
    thread::scope(|scope| {
        for (number, file) in files.iter().enumerate() {
            scope.spawn(move || {
                let data = pattern(number, 8 << 20);
                for (at, part) in data.chunks(1 << 20).enumerate() {
                    file.write((at << 20) as u64, part).unwrap();
                }
                file.sync().unwrap();
            });
        }
    });
    let client = cell.client("host:a");
    thread::scope(|scope| {
        for reader in 0..12 {
            let (client, caller, file) = (&client, &caller, files[reader % 6].handle());
            scope.spawn(move || {
                let mut bytes = vec![0; 3 << 20];
                for offset in [0, 5 << 20] {
                    client.forward_read(caller, file, offset, &mut bytes).unwrap();
                    let expected = pattern(reader % 6, 8 << 20);
                    assert!(bytes[..] == expected[offset as usize..][..3 << 20]);
                }
            });
        }
    });
    let more = client.forward_read(&caller, files[0].handle(), 0, &mut vec![0; (4 << 20) + 1]);
    assert!(matches!(more, Err(ClientError::TooLarge { .. })));
}
