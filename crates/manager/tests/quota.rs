//! A volume of the personality `afs` with a quota: its files never have a byte more, whoever writes, whatever fails; and what is accounted
//! for is what there is.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[allow(dead_code)] // Other tests use the rest.
#[path = "support/cell.rs"]
mod setup;
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::{Clerk, ClerkError, ClerkOptions, OpenFile, OpenMode, Settings};
use nasd_client::{Authority, Caller, ClientError, DriveClient, ManagerClient};
use nasd_protocol::Status;
use nasd_protocol::manager::{
    AttachArguments, Cut, EventsArguments, FileHandle, GetcapArguments, GetwcapArguments,
    ManagerStatus, Name, ReturncapArguments, SetFileAttributes, Writable,
};
use nasd_types::{ByteRange, DriveId, Personality};
use setup::{Cell, Keyring};

const LEASE: Duration = Duration::from_secs(6);
const SHORT_LEASE: Duration = Duration::from_secs(2);

fn cell(drives: u64, lease: Duration, quota: Option<u64>) -> Cell {
    Cell::with(drives, |config| {
        config.personality = Personality::Afs;
        config.sessions.lease = lease;
        config.quota = quota;
        config.root.mode = 0o777;
    })
}

/// Reads lengths at the drives, by their working keys.
#[derive(Clone)]
struct Lengths {
    drives: BTreeMap<DriveId, DriveClient>,
    keyring: Arc<Keyring>,
}

impl Lengths {
    fn of(cell: &Cell) -> Lengths {
        let drives = cell.drives.iter().map(|known| (known.id, cell.drive(known.id))).collect();
        Lengths { drives, keyring: Arc::clone(&cell.keyring) }
    }

    fn length(&self, file: FileHandle) -> u64 {
        let drive = &self.drives[&file.drive];
        let told =
            self.keyring.as_manager(file.drive, |manager| drive.getattr(manager, file.name()));
        match told {
            Ok(attributes) => attributes.logical_size,
            Err(ClientError::Drive(Status::NoSuchObject)) => 0,
            Err(error) => panic!("{error}"),
        }
    }

    /// Where files only grow that is no more than they have together when this returns.
    fn sum(&self, files: &[FileHandle]) -> u64 {
        files.iter().map(|file| self.length(*file)).sum()
    }
}

/// Waits until all is counted and settled, and compares that with what there is.
fn check_account(cell: &Cell, files: &[FileHandle]) {
    let deadline = Instant::now() + Duration::from_secs(25);
    let names = cell.manager.as_ref().unwrap().namespace();
    let lengths = Lengths::of(cell);
    loop {
        let (told, sum) = (names.accounted(), lengths.sum(files));
        if told == Some((sum, 0)) {
            return;
        }
        assert!(Instant::now() < deadline, "accounted for {told:?}, there is {sum}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A client that deals with all that it is told, and believes nothing.
struct Client {
    manager: ManagerClient,
    drives: Lengths,
    protection: nasd_types::Protection,
    is_over: Arc<AtomicBool>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

fn deal_with_events(manager: &ManagerClient, is_over: &AtomicBool) {
    let (client, mut seen) = (manager.number(), 0);
    while !is_over.load(Ordering::Acquire) {
        let asked = EventsArguments { client, seen, open: Vec::new(), wait: true };
        let Ok(page) = manager.events(&Caller::ROOT, &asked) else {
            return;
        };
        seen = page.first + page.events.len() as u64 - 1;
    }
}

impl Client {
    fn attach(cell: &Cell) -> Client {
        let manager = cell.client("host:one");
        let attach = AttachArguments { client: manager.number(), ..AttachArguments::default() };
        manager.attach(&Caller::ROOT, &attach).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        {
            let (manager, is_over) = (manager.clone(), Arc::clone(&is_over));
            thread::spawn(move || deal_with_events(&manager, &is_over));
        }
        Client { manager, drives: Lengths::of(cell), protection: cell.protection(), is_over }
    }

    fn root(&self) -> FileHandle {
        self.manager.volume(&Caller::ROOT, b"home").unwrap().root.handle
    }

    fn make(&self, name: &str) -> FileHandle {
        let made = self.manager.create(&Caller::ROOT, self.root(), name.as_bytes(), 0o666, true);
        made.unwrap().reply.handle
    }

    fn may_write(
        &self,
        file: FileHandle,
        least_end: u64,
        best_end: u64,
    ) -> Result<Writable, ManagerStatus> {
        let client = self.manager.number();
        let asked = GetwcapArguments { file, client, least_end, best_end, cut: None };
        self.ask(&asked)
    }

    fn ask(&self, asked: &GetwcapArguments) -> Result<Writable, ManagerStatus> {
        loop {
            match self.manager.get_write_capability(&Caller::ROOT, asked) {
                Ok(writable) => return Ok(writable),
                Err(ClientError::Manager(ManagerStatus::Busy)) => {}
                Err(ClientError::Manager(status)) => return Err(status),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Makes a file as long as that, by its last byte.
    fn extends(&self, by: &Writable, length: u64) -> Result<(), ClientError> {
        let authority = Authority::capability(&by.file.capability, self.protection);
        let drive = &self.drives.drives[&by.file.handle.drive];
        drive.write(&authority, by.file.handle.name(), length - 1, b"x", true).map(drop)
    }

    fn returns(&self, by: &Writable) -> u64 {
        let (file, version) = (by.file.handle, by.version);
        let returned = ReturncapArguments { file, client: self.manager.number(), version };
        self.manager.return_capability(&Caller::ROOT, &returned).unwrap().version
    }

    fn stores(&self, file: FileHandle, length: u64) -> Result<(), ManagerStatus> {
        let by = self.may_write(file, length, length)?;
        self.extends(&by, length).unwrap();
        self.returns(&by);
        Ok(())
    }

    fn resizes(&self, file: FileHandle, size: u64) -> Result<(), ManagerStatus> {
        let changes = SetFileAttributes { size: Some(size), ..SetFileAttributes::default() };
        match self.manager.setattr(&Caller::ROOT, file, &changes) {
            Ok(_) => Ok(()),
            Err(ClientError::Manager(status)) => Err(status),
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&self) -> (u64, u64) {
        let space = self.manager.space(&Caller::ROOT, b"home").unwrap();
        (space.total_bytes, space.free_bytes)
    }
}

/// Small numbers of a seed.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    *state >> 33
}

/// Looks at the drives until it is told to stop: the files, which only grow, never have more than that. Answers how often, and the most.
fn watch(lengths: &Lengths, files: &[FileHandle], limit: u64, is_over: &AtomicBool) -> (u64, u64) {
    let (mut looks, mut most) = (0, 0);
    while !is_over.load(Ordering::Acquire) {
        let sum = lengths.sum(files);
        assert!(sum <= limit, "{sum} of {limit}");
        (looks, most) = (looks + 1, sum.max(most));
    }
    (looks, most)
}

#[test]
fn many_clients_fill_a_volume_to_the_last_byte_and_no_further() {
    const CLIENTS: u64 = 16;
    const LIMIT: u64 = (20 << 20) + 12_345;
    let cell = cell(2, LEASE, Some(LIMIT));
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::attach(&cell)).collect();
    let files: Vec<FileHandle> =
        clients.iter().enumerate().map(|(at, client)| client.make(&format!("{at}"))).collect();
    let (lengths, is_over) = (Lengths::of(&cell), AtomicBool::new(false));
    let (stores, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&lengths, &files, LIMIT, &is_over));
        let fill = |at: usize| {
            let (client, file) = (&clients[at], files[at]);
            let (mut state, mut length) = (at as u64 + 99, 0);
            loop {
                let largest = if next(&mut state).is_multiple_of(3) { 1 << 20 } else { 5000 };
                let mut more = 1 + next(&mut state) % largest;
                let by = loop {
                    match client.may_write(file, length + more, u64::MAX >> 4) {
                        Ok(by) => break by,
                        Err(ManagerStatus::NoSpace) => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            let there = lengths.sum(&files);
                            assert!(there + more > LIMIT, "{there} and {more} of {LIMIT}");
                            if more == 1 {
                                return;
                            }
                            more = more.div_ceil(2);
                        }
                        Err(status) => panic!("{status}"),
                    }
                };
                assert!(by.end >= length + more);
                if next(&mut state).is_multiple_of(4) {
                    assert!(client.extends(&by, by.end + 1).is_err(), "its region ends there");
                    length = by.end;
                } else {
                    length += more;
                }
                client.extends(&by, length).unwrap();
                client.returns(&by);
                stores.fetch_add(1, Ordering::Relaxed);
            }
        };
        let threads: Vec<_> =
            (0..CLIENTS as usize).map(|at| scope.spawn(move || fill(at))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Ordering::Release);
        let looks = watcher.join().unwrap();
        println!("{stores:?} stores, {refused:?} refused, looks {looks:?}, {:?}", begun.elapsed());
    });
    assert_eq!(lengths.sum(&files), LIMIT);
    check_account(&cell, &files);
    assert_eq!(clients[0].free(), (LIMIT, 0));
}

#[test]
fn what_is_set_aside_comes_back_and_who_waits_for_it_gets_it() {
    const LIMIT: u64 = 1 << 20;
    let cell = cell(1, LEASE, Some(LIMIT));
    let (one, two) = (Client::attach(&cell), Client::attach(&cell));
    let (mine, other) = (one.make("mine"), two.make("other"));
    // He gets what he needs, and a part of what is free besides.
    let by = one.may_write(mine, 200_000, u64::MAX >> 4).unwrap();
    assert_eq!(by.end, 200_000 + (LIMIT - 200_000) / 4);
    assert!(!by.alone, "it is not done before the rest is back");
    assert_eq!(one.free(), (LIMIT, LIMIT - by.end));
    one.extends(&by, 100_000).unwrap();
    let need = LIMIT - 100_000;
    assert_eq!(two.may_write(other, LIMIT + 1, LIMIT + 1), Err(ManagerStatus::NoSpace));
    thread::scope(|scope| {
        let waits = scope.spawn(|| two.may_write(other, need, need).unwrap());
        thread::sleep(Duration::from_millis(500));
        assert!(!waits.is_finished());
        one.returns(&by);
        let by = waits.join().unwrap();
        assert_eq!(by.end, need);
        // What is there may be written over though all is taken.
        let over = one.may_write(mine, 10, u64::MAX >> 4).unwrap();
        assert_eq!(over.end, 100_000);
        one.returns(&over);
        two.extends(&by, by.end).unwrap();
        two.returns(&by);
    });
    assert_eq!(one.may_write(mine, 100_001, 100_001), Err(ManagerStatus::NoSpace));
    check_account(&cell, &[mine, other]);
}

#[test]
fn a_store_that_others_wait_for_is_not_prolonged_for_its_room() {
    const LIMIT: u64 = 1 << 20;
    let cell = cell(1, LEASE, Some(LIMIT));
    let (one, two) = (Client::attach(&cell), Client::attach(&cell));
    let (mine, other) = (one.make("mine"), two.make("other"));
    let by = one.may_write(mine, LIMIT, LIMIT).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        let waits = scope.spawn(|| two.may_write(other, 1000, 1000).unwrap());
        thread::sleep(Duration::from_millis(300));
        // He would go on for ever, but his time ends.
        let again = scope.spawn(|| one.may_write(mine, 10, 10));
        let got = waits.join().unwrap();
        println!("waited {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert!(one.extends(&by, LIMIT).is_err());
        two.extends(&got, 1000).unwrap();
        two.returns(&got);
        one.returns(&again.join().unwrap().unwrap());
    });
    check_account(&cell, &[mine, other]);
}

#[test]
fn what_is_cut_and_removed_comes_back() {
    const LIMIT: u64 = 1 << 20;
    let cell = cell(2, LEASE, Some(LIMIT));
    let client = Client::attach(&cell);
    let (first, second) = (client.make("first"), client.make("second"));
    client.stores(first, LIMIT - 10).unwrap();
    assert_eq!(client.stores(second, 11), Err(ManagerStatus::NoSpace));
    assert_eq!(client.resizes(second, 11), Err(ManagerStatus::NoSpace));
    client.resizes(second, 10).unwrap();
    check_account(&cell, &[first, second]);
    client.resizes(first, 100).unwrap();
    client.stores(second, LIMIT - 100).unwrap();
    check_account(&cell, &[first, second]);
    // Cut when it is opened, and written anew.
    let number = client.manager.number();
    let version = client.may_write(second, 0, 0).map(|by| client.returns(&by)).unwrap();
    let cut = GetwcapArguments {
        file: second,
        client: number,
        least_end: 50,
        best_end: 50,
        cut: Some(Cut { length: 0, version }),
    };
    let by = client.ask(&cut).unwrap();
    client.extends(&by, 50).unwrap();
    client.returns(&by);
    assert_eq!(client.free(), (LIMIT, LIMIT - 150));
    client.stores(second, LIMIT - 100).unwrap();
    client.manager.unlink(&Caller::ROOT, client.root(), b"second", None).unwrap();
    let third = client.make("third");
    client.stores(third, LIMIT - 100).unwrap();
    check_account(&cell, &[first, second, third]);
    // Removed while it is being stored: what was set aside comes back, too.
    client.resizes(third, 0).unwrap();
    let by = client.may_write(third, LIMIT - 100, LIMIT - 100).unwrap();
    client.extends(&by, 5000).unwrap();
    client.manager.unlink(&Caller::ROOT, client.root(), b"third", None).unwrap();
    let fourth = client.make("fourth");
    client.stores(fourth, LIMIT - 100).unwrap();
    assert!(client.extends(&by, 6000).is_err());
    check_account(&cell, &[first, second, third, fourth]);
}

#[test]
fn a_quota_may_change_and_begin_while_the_volume_is_used() {
    const LIMIT: u64 = 1 << 20;
    let cell = cell(2, LEASE, None);
    let names = cell.manager.as_ref().unwrap().namespace();
    let client = Client::attach(&cell);
    let (first, second) = (client.make("first"), client.make("second"));
    client.stores(first, 300_000).unwrap();
    assert_eq!(names.accounted(), None);
    assert!(client.free().0 > 64 << 20);
    let by = client.may_write(second, 10, u64::MAX >> 4).unwrap();
    client.extends(&by, 200_000).unwrap();
    names.set_quota(Some(LIMIT));
    check_account(&cell, &[first, second]);
    // Who has begun before has got too much.
    assert!(client.extends(&by, LIMIT * 2).is_err());
    let by = client.may_write(second, 200_001, u64::MAX >> 4).unwrap();
    assert!(by.end < LIMIT);
    client.extends(&by, by.end).unwrap();
    client.returns(&by);
    check_account(&cell, &[first, second]);
    // Below what is used nothing more is added, and all else goes on.
    names.set_quota(Some(100));
    assert_eq!(client.free(), (100, 0));
    assert_eq!(client.stores(first, 300_001), Err(ManagerStatus::NoSpace));
    client.stores(first, 300_000).unwrap();
    client.resizes(second, 10).unwrap();
    let number = client.manager.number();
    let asked = GetcapArguments { file: first, client: number, contents: false };
    assert!(client.manager.get_capability(&Caller::ROOT, &asked).is_ok());
    names.set_quota(Some(300_010 + 5));
    client.stores(second, 15).unwrap();
    assert_eq!(client.stores(second, 16), Err(ManagerStatus::NoSpace));
    check_account(&cell, &[first, second]);
    names.set_quota(None);
    client.stores(second, LIMIT * 2).unwrap();
}

struct Program {
    clerk: Arc<Clerk>,
    caller: Arc<Caller>,
}

impl Program {
    fn new(cell: &Cell) -> Program {
        let caller = Arc::new(Caller { uid: 0, gid: 0, groups: Vec::new() });
        let (address, tls) = (cell.manager_address.to_string(), cell.client_tls("host:one"));
        let volume = Name::new("home").unwrap();
        let mut options = ClerkOptions::new(address, tls, volume, Arc::clone(&caller));
        options.settings = Settings { deadline: Duration::from_secs(60), ..Settings::default() };
        Program { clerk: Arc::new(Clerk::connect(&options).unwrap()), caller }
    }

    fn make(&self, name: &str) -> FileHandle {
        let (root, name) = (self.clerk.root(), Name::new(name).unwrap());
        self.clerk.create(&self.caller, root, &name, 0o666, true).unwrap().handle
    }

    fn open(&self, file: FileHandle) -> OpenFile {
        self.clerk.open(&self.caller, file, OpenMode::READ_WRITE).unwrap().0
    }
}

const FULL: Result<(), ClerkError> = Err(ClerkError::Manager(ManagerStatus::NoSpace));

#[test]
fn programs_write_append_copy_and_punch_up_to_the_end() {
    const LIMIT: u64 = 1 << 20;
    let cell = cell(1, SHORT_LEASE, Some(LIMIT));
    let (one, two) = (Program::new(&cell), Program::new(&cell));
    let (file, log) = (one.make("file"), one.make("log"));
    let (open, appender, other) = (one.open(file), one.open(log), two.open(log));
    open.write(0, &[7; 400_000]).unwrap();
    open.close().unwrap();
    appender.append(&[1; 100_000]).unwrap();
    appender.sync().unwrap();
    // He does not know how long it is.
    other.append(&[2; 100_000]).unwrap();
    other.sync().unwrap();
    check_account(&cell, &[file, log]);
    let copied = appender.copy_range(200_000, (&open, 0), u64::MAX >> 8);
    assert_eq!(copied, Ok(400_000));
    check_account(&cell, &[file, log]);
    appender.punch(ByteRange::new(4096, 1 << 40)).unwrap();
    let left = LIMIT - 1_000_000;
    other.append(&vec![3; left as usize]).unwrap();
    other.sync().unwrap();
    check_account(&cell, &[file, log]);
    appender.append(b"x").unwrap();
    assert_eq!(appender.sync(), FULL);
    open.write(400_000, b"x").unwrap();
    assert_eq!(open.close(), FULL);
    open.write(399_999, b"x").unwrap();
    open.close().unwrap();
    check_account(&cell, &[file, log]);
}

fn rounds() -> u64 {
    std::env::var("NASD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Writes and appends to its own file until time is over, or until it has failed some times.
fn work(program: &Program, file: FileHandle, seed: u64, is_over: &AtomicBool) -> (u64, u64) {
    let (mut state, mut done, mut failed) = (seed, 0, 0);
    let open = program.open(file);
    let mut length = program.clerk.getattr_now(&program.caller, file).map_or(0, |told| told.size);
    while !is_over.load(Ordering::Acquire) {
        let largest = if next(&mut state).is_multiple_of(3) { 400_000 } else { 3000 };
        let data = vec![5; 1 + (next(&mut state) % largest) as usize];
        let written = match next(&mut state) % 2 {
            0 => open.append(&data),
            _ => open.write(length, &data),
        };
        match written.and_then(|()| open.close()) {
            Ok(()) => (length, done) = (length + data.len() as u64, done + 1),
            Err(_) => failed += 1,
        }
    }
    (done, failed)
}

#[test]
fn the_account_is_exact_though_managers_and_drives_die() {
    const CLIENTS: u64 = 16;
    const LIMIT: u64 = 6 << 20;
    let mut cell = cell(2, SHORT_LEASE, Some(LIMIT));
    let programs: Vec<Program> = (0..CLIENTS).map(|_| Program::new(&cell)).collect();
    let files: Vec<FileHandle> =
        programs.iter().enumerate().map(|(at, each)| each.make(&format!("{at}"))).collect();
    let lengths = Lengths::of(&cell);
    let mut state = 42;
    for round in 0..rounds() {
        let is_over = AtomicBool::new(false);
        let begun = Instant::now();
        thread::scope(|scope| {
            // A drive that was cut off may have less than it had, so that sums of moments apart may be too large: never.
            let watcher = scope.spawn(|| watch(&lengths, &files, LIMIT, &is_over));
            let (programs, files, is_over) = (&programs, &files, &is_over);
            let work = |at: usize| work(&programs[at], files[at], round * 100 + at as u64, is_over);
            let threads: Vec<_> =
                (0..CLIENTS as usize).map(|at| scope.spawn(move || work(at))).collect();
            for _ in 0..3 {
                thread::sleep(Duration::from_millis(200 + next(&mut state) % 900));
                match next(&mut state) % 2 {
                    0 => cell.restart_manager(),
                    _ => {
                        let at = (next(&mut state) % 2) as usize;
                        cell.drives[at].stop();
                        thread::sleep(Duration::from_millis(next(&mut state) % 200));
                        cell.drives[at].start();
                    }
                }
            }
            is_over.store(true, Ordering::Release);
            let all = threads.into_iter().map(|thread| thread.join().unwrap());
            let (done, failed) = all.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
            let looks = watcher.join().unwrap();
            println!("{done} stores, {failed} failed, looks {looks:?}, {:?}", begun.elapsed());
        });
        check_account(&cell, &files);
        cell.restart_manager();
        check_account(&cell, &files);
        // There is room again, at last.
        let root = programs[0].clerk.root();
        if lengths.sum(&files) > LIMIT * 3 / 4 {
            for (file, program) in files.iter().zip(&programs) {
                let cut = SetFileAttributes { size: Some(1), ..SetFileAttributes::default() };
                while program.clerk.setattr(&program.caller, *file, &cut).is_err() {}
            }
            check_account(&cell, &files);
        }
        assert!(programs[0].clerk.readdir(&programs[0].caller, root, 0, 100).is_ok());
    }
}

#[test]
fn no_file_begins_with_a_store_where_room_has_to_be_set_aside() {
    let limited = cell(1, Duration::from_secs(60), Some(1 << 20));
    let client = Client::attach(&limited);
    let begin = |client: &Client, name: &[u8]| {
        let made = client.manager.create_to_store(&Caller::ROOT, client.root(), name, 0o666, true);
        made.unwrap()
    };
    let made = begin(&client, b"file");
    assert!(made.begun.is_none() && made.promised == Some(0));
    // A store that has begun before there is a quota ends when files are counted.
    let free = cell(1, Duration::from_secs(60), None);
    let client = Client::attach(&free);
    let made = begin(&client, b"file");
    let (file, begun) = (made.reply.handle, made.begun.unwrap());
    let by = Writable {
        file: made.reply,
        version: begun.version,
        end: begun.end,
        time: begun.time,
        alone: true,
    };
    client.extends(&by, 5000).unwrap();
    let names = free.manager.as_ref().unwrap().namespace();
    names.set_quota(Some(1 << 20));
    let deadline = Instant::now() + Duration::from_secs(20);
    while names.accounted().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(names.accounted(), Some((5000, 0)));
    assert!(client.extends(&by, 9000).is_err(), "it was ended");
    assert!(client.stores(file, 2 << 20).is_err(), "there is no room for so much");
    client.stores(file, 6000).unwrap();
    check_account(&free, &[file]);
    assert!(begin(&client, b"other").begun.is_none());
}
