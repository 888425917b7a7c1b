//! Clerks on a volume of the personality `afs`, with a real manager and real drives: nobody reads what is older than what was stored, whatever
//! fails meanwhile.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[allow(dead_code)] // Other tests use the rest.
#[path = "support/cell.rs"]
mod setup;
mod support;
#[path = "support/wire.rs"]
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::{
    Clerk, ClerkError, ClerkOptions, LockRequest, OpenFile, OpenMode, RenameFlags, Settings,
};
use nasd_client::{Authority, Caller, ClientError, DriveClient};
use nasd_metrics::Page;
use nasd_protocol::manager::{
    File, FileHandle, LockKind, LockMode, ManagerStatus, Name, SetFileAttributes, XattrFlags,
};
use nasd_types::{ByteRange, Personality, Protection};
use setup::Cell;
use wire::Wire;

/// Where a test waits for its end.
const LEASE: Duration = Duration::from_secs(2);

fn cell(drives: u64) -> Cell {
    Cell::with(drives, |config| {
        config.personality = Personality::Afs;
        config.sessions.lease = LEASE;
        config.root.mode = 0o777;
    })
}

struct Client {
    clerk: Arc<Clerk>,
    caller: Arc<Caller>,
}

impl Client {
    fn new(cell: &Cell) -> Client {
        Client::of(cell, 0)
    }

    fn of(cell: &Cell, uid: u32) -> Client {
        Client::by(cell, uid, cell.manager_address)
    }

    /// One that reaches the file manager by that address.
    fn by(cell: &Cell, uid: u32, address: SocketAddr) -> Client {
        let caller = Arc::new(Caller { uid, gid: uid, groups: Vec::new() });
        let (address, tls) = (address.to_string(), cell.client_tls("host:one"));
        let volume = Name::new("home").unwrap();
        let mut options = ClerkOptions::new(address, tls, volume, Arc::clone(&caller));
        options.settings = Settings { deadline: Duration::from_secs(60), ..Settings::default() };
        Client { clerk: Arc::new(Clerk::connect(&options).unwrap()), caller }
    }

    fn make(&self, name: &str) -> FileHandle {
        let root = self.clerk.root();
        let made = self.clerk.create(&self.caller, root, &named(name), 0o666, true);
        made.unwrap().handle
    }

    /// Makes a file and opens it for writing, as programs do.
    fn begins(&self, name: &str) -> OpenFile {
        let root = self.clerk.root();
        let made = self.clerk.create_to_store(&self.caller, root, &named(name), 0o666, true);
        self.open(made.unwrap().handle, OpenMode::READ_WRITE)
    }

    fn open(&self, file: FileHandle, mode: OpenMode) -> OpenFile {
        self.clerk.open(&self.caller, file, mode).unwrap().0
    }

    fn find(&self, name: &str) -> Result<FileHandle, ClerkError> {
        let root = self.clerk.root();
        Ok(self.clerk.lookup(&self.caller, root, &named(name))?.handle)
    }

    fn stores(&self, file: FileHandle, data: &[u8]) {
        let open = self.open(file, OpenMode::WRITE);
        open.write(0, data).unwrap();
        open.close().unwrap();
    }

    fn reads(&self, file: FileHandle) -> Vec<u8> {
        read(&self.open(file, OpenMode::READ))
    }

    fn names(&self) -> Vec<String> {
        let page = self.clerk.readdir(&self.caller, self.clerk.root(), 0, 1000).unwrap();
        assert!(page.end);
        let text = |name: &Name| String::from_utf8(name.as_bytes().to_vec()).unwrap();
        let mut names: Vec<String> = page.entries.iter().map(|entry| text(&entry.name)).collect();
        names.sort();
        names
    }
}

fn named(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn read(open: &OpenFile) -> Vec<u8> {
    let mut data = vec![0; 1 << 20];
    let length = open.read(0, &mut data).unwrap();
    data.truncate(length);
    data
}

#[test]
fn what_was_stored_is_read_by_all_also_where_it_is_open() {
    let cell = cell(2);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    let file = one.make("file");
    one.stores(file, b"first");
    let open = two.open(file, OpenMode::READ);
    assert_eq!(read(&open), b"first");
    for round in 0..20 {
        let text = format!("this is number {round}");
        one.stores(file, text.as_bytes());
        assert_eq!(read(&open), text.as_bytes());
        two.stores(file, b"another");
        assert_eq!(one.reads(file)[..7], *b"another");
        one.stores(file, text.as_bytes());
    }
}

#[test]
fn what_was_closed_is_what_all_see_whoever_looks_first() {
    let cell = cell(2);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    for round in 0..60_usize {
        let file = one.make(&format!("file {round}"));
        let mut data = vec![round as u8; 1 + round * 1000];
        let open = one.open(file, OpenMode::WRITE);
        open.write(0, &data).unwrap();
        if round % 3 == 0 {
            // It goes on when all is durable.
            open.sync().unwrap();
            open.write(data.len() as u64, b"more").unwrap();
            data.extend_from_slice(b"more");
        }
        open.close().unwrap();
        open.close().unwrap();
        match round % 4 {
            0 => assert!(two.reads(file) == data),
            1 => assert!(one.reads(file) == data),
            2 => {
                let told = one.clerk.getattr_now(&one.caller, file).unwrap();
                assert_eq!(told.size, data.len() as u64);
            }
            _ => {
                one.stores(file, b"!");
                data[0] = b'!';
            }
        }
        let told = [&one, &two].map(|it| it.clerk.getattr_now(&it.caller, file).unwrap());
        assert_eq!(told[0], told[1]);
        assert!([&one, &two].iter().all(|client| client.reads(file) == data));
        if round % 5 == 0 {
            let cut = SetFileAttributes { size: Some(1), ..SetFileAttributes::default() };
            one.stores(file, b"what is cut at once");
            one.clerk.setattr(&one.caller, file, &cut).unwrap();
            assert!([&one, &two].iter().all(|client| client.reads(file) == b"w"));
        }
    }
    let unwritten = one.make("unwritten");
    one.stores(unwritten, b"stored");
    one.clerk.close().unwrap();
    assert_eq!(two.reads(unwritten), b"stored");
}

#[test]
fn what_is_known_is_not_asked_for() {
    let cell = cell(1);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    let file = one.make("file");
    one.stores(file, b"something");
    let requests = || {
        let text = cell.manager.as_ref().unwrap().metrics();
        let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        let all = text.lines().filter(|line| line.starts_with("nasd_manager_requests_total{"));
        let of_names = all.filter(|line| !line.contains("\"events\"") && !line.contains("ttach"));
        of_names.filter_map(count).sum::<u64>()
    };
    let look = |client: &Client| {
        assert_eq!(client.find("file"), Ok(file));
        assert_eq!(client.find("nothing"), Err(ClerkError::Manager(ManagerStatus::NotFound)));
        assert_eq!(client.clerk.getattr_now(&client.caller, file).unwrap().size, 9);
        assert_eq!(client.names(), ["file"]);
        drop(client.open(file, OpenMode::READ));
    };
    for client in [&one, &two] {
        look(client);
        let before = requests();
        for _ in 0..100 {
            look(client);
        }
        assert_eq!(requests(), before);
    }
}

/// How often the file manager was asked for this since it has started.
fn asked(cell: &Cell, operation: &str) -> u64 {
    let text = cell.manager.as_ref().unwrap().metrics();
    let of_it = |line: &&str| {
        line.starts_with("nasd_manager_requests_total{")
            && line.contains(&format!("\"{operation}\""))
    };
    text.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_new_file_is_stored_without_asking_before() {
    let cell = cell(2);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    for round in 0..30_usize {
        let data = vec![round as u8; 1 + round * 3000];
        let open = one.begins(&format!("file {round}"));
        // What it writes it reads, and knows the length of.
        assert_eq!(read(&open), b"");
        open.write(0, &data).unwrap();
        assert!(read(&open) == data);
        let told = one.clerk.getattr_now(&one.caller, open.handle()).unwrap();
        assert_eq!(told.size, data.len() as u64);
        open.close().unwrap();
        let reader = if round % 2 == 0 { &one } else { &two };
        assert!(reader.reads(open.handle()) == data);
        if round % 3 == 0 {
            two.stores(open.handle(), b"!");
            assert_eq!(one.reads(open.handle())[0], b'!');
        }
    }
    assert_eq!(asked(&cell, "getwcap"), 10, "those of the other client alone");
    // Who appends finds the end, and who cuts it has cut it.
    let open = one.begins("appended");
    open.append(b"some").unwrap();
    open.append(b"thing").unwrap();
    open.close().unwrap();
    assert_eq!(two.reads(open.handle()), b"something");
    let open = one.begins("cut");
    open.write(0, b"not this").unwrap();
    let cut = SetFileAttributes { size: Some(3), ..SetFileAttributes::default() };
    one.clerk.setattr(&one.caller, open.handle(), &cut).unwrap();
    open.close().unwrap();
    assert_eq!(two.reads(open.handle()), b"not");
}

#[test]
fn who_looks_at_a_new_file_does_not_wait_long_for_one_who_does_not_store_it() {
    /// More than a client keeps what it does not use; less than the file manager lets it.
    const SOON: Duration = Duration::from_secs(4);
    let cell = cell(1);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    let soon = |what: &str, look: &dyn Fn()| {
        let begun = Instant::now();
        look();
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
    };
    let touched = one.begins("touched");
    touched.close().unwrap();
    soon("touched", &|| assert_eq!(two.reads(touched.handle()), b""));
    let kept = one.begins("kept open");
    soon("kept open", &|| assert_eq!(two.reads(kept.handle()), b""));
    kept.write(0, b"later").unwrap();
    kept.close().unwrap();
    assert_eq!(two.reads(kept.handle()), b"later");
    // What is written and not stored others do not see, nor wait for.
    let slow = one.begins("slow");
    slow.write(0, b"not yet").unwrap();
    soon("slow", &|| assert_eq!(two.reads(slow.handle()), b""));
    assert_eq!(read(&slow), b"not yet");
    slow.close().unwrap();
    assert_eq!(two.reads(slow.handle()), b"not yet");
    // Nor does the client that has made it wait for itself, whatever it asks for.
    let root = one.clerk.root();
    let own = one.begins("own");
    let mode = SetFileAttributes { mode: Some(0o600), ..SetFileAttributes::default() };
    soon("mode", &|| assert!(one.clerk.setattr(&one.caller, own.handle(), &mode).is_ok()));
    let own = one.begins("renamed");
    soon("renamed", &|| {
        let (from, to) = (named("renamed"), named("moved"));
        let (from, to) = ((root, &from), (root, &to));
        one.clerk.rename(&one.caller, from, to, RenameFlags::NONE, Some(own.handle())).unwrap();
        assert_eq!(two.find("moved"), Ok(own.handle()));
    });
    let gone = one.begins("removed");
    let open = Some(gone.handle());
    soon("removed", &|| {
        one.clerk.unlink(&one.caller, root, &named("removed"), open).unwrap();
        assert!(two.find("removed").is_err());
    });
    gone.write(0, b"to nobody").unwrap();
    drop(gone);
    // Another user of the same client.
    let shared = one.begins("shared");
    let user = Arc::new(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    soon("another user", &|| {
        let open = one.clerk.open(&user, shared.handle(), OpenMode::READ_WRITE).unwrap().0;
        assert_eq!(read(&open), b"");
        open.write(0, b"theirs").unwrap();
        open.close().unwrap();
    });
    assert_eq!(two.reads(shared.handle()), b"theirs");
    one.clerk.close().unwrap();
}

#[test]
fn a_new_file_is_seen_empty_or_whole() {
    let cell = cell(2);
    let clients = [Client::new(&cell), Client::new(&cell), Client::new(&cell)];
    let closed = AtomicU64::new(0);
    const FILES: u64 = 150;
    thread::scope(|scope| {
        let (maker, closed) = (&clients[0], &closed);
        scope.spawn(move || {
            for number in 1..=FILES {
                let open = maker.begins(&format!("new {number}"));
                if number % 7 == 0 {
                    thread::sleep(Duration::from_millis(300));
                }
                open.write(0, &encoded(number)).unwrap();
                open.close().unwrap();
                closed.store(number, Ordering::SeqCst);
            }
        });
        for looker in &clients[1..] {
            scope.spawn(move || {
                while closed.load(Ordering::SeqCst) < FILES {
                    let done = closed.load(Ordering::SeqCst);
                    for number in [done, done + 1] {
                        let Ok(file) = looker.find(&format!("new {number}")) else {
                            assert!(number == 0 || number > done, "{number} is stored");
                            continue;
                        };
                        let data = looker.reads(file);
                        let is_empty = data.is_empty() && number > done;
                        assert!(is_empty || data == encoded(number), "{number}: {}", data.len());
                    }
                }
            });
        }
    });
}

#[test]
fn names_and_attributes_are_as_the_others_have_left_them() {
    let cell = cell(1);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    let root = one.clerk.root();
    let mode = |client: &Client, file| client.clerk.getattr(&client.caller, file).unwrap().mode;
    for (actor, other) in [(&one, &two), (&two, &one), (&one, &two)] {
        assert_eq!(other.names(), [""; 0]);
        let file = actor.make("file");
        assert_eq!((other.find("file"), other.names().len()), (Ok(file), 1));
        actor
            .clerk
            .rename(
                &actor.caller,
                (root, &named("file")),
                (root, &named("moved")),
                RenameFlags::NONE,
                None,
            )
            .unwrap();
        assert_eq!(other.find("moved"), Ok(file));
        assert!(other.find("file").is_err() && actor.find("file").is_err());
        assert_eq!(mode(other, file), 0o666);
        let change = SetFileAttributes { mode: Some(0o640), ..SetFileAttributes::default() };
        actor.clerk.setattr(&actor.caller, file, &change).unwrap();
        assert_eq!((mode(other, file), mode(actor, file)), (0o640, 0o640));
        let links = |client: &Client| client.clerk.getattr(&client.caller, file).unwrap().links;
        actor.clerk.link(&actor.caller, file, root, &named("link")).unwrap();
        assert_eq!((links(other), links(actor)), (2, 2));
        actor.clerk.unlink(&actor.caller, root, &named("link"), None).unwrap();
        assert_eq!((links(other), links(actor)), (1, 1));
        actor.clerk.unlink(&actor.caller, root, &named("moved"), None).unwrap();
        assert_eq!((other.names(), actor.names()), (vec![], vec![]));
    }
}

#[test]
fn every_way_to_change_a_file_is_a_store() {
    let cell = cell(1);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    let (file, other) = (one.make("file"), one.make("other"));
    one.stores(file, &[7; 20_000]);
    one.stores(other, &[8; 20_000]);
    let open = two.open(file, OpenMode::READ);
    assert_eq!(read(&open), [7; 20_000]);
    let writer = one.open(file, OpenMode::READ_WRITE);
    writer.punch(ByteRange::new(4096, 4096)).unwrap();
    assert_eq!(read(&open)[4096..8192], [0; 4096]);
    let source = one.open(other, OpenMode::READ);
    assert_eq!(writer.copy_range(0, (&source, 0), 4096), Ok(4096));
    assert_eq!(read(&open)[..4096], [8; 4096]);
    let cut = SetFileAttributes { size: Some(100), ..SetFileAttributes::default() };
    one.clerk.setattr(&one.caller, file, &cut).unwrap();
    assert_eq!(read(&open), [8; 100]);
    writer.append(b"end").unwrap();
    assert_eq!(read(&open).len(), 100, "it is not stored");
    assert_eq!(one.clerk.getattr(&one.caller, file).unwrap().size, 103, "who wrote knows of it");
    writer.sync().unwrap();
    assert_eq!(read(&open)[100..], *b"end");
    writer.write(50, b"middle").unwrap();
    let mut own = [0; 6];
    assert_eq!((writer.read(50, &mut own), &own), (Ok(6), b"middle"));
    assert_eq!(read(&open)[50..56], [8; 6], "it is not stored");
    writer.close().unwrap();
    assert_eq!(read(&open)[50..56], *b"middle");
}

#[test]
fn what_is_written_is_stored_in_parts_where_there_is_much_of_it() {
    let cell = cell(1);
    let (one, two) = (Client::new(&cell), Client::new(&cell));
    let file = one.make("file");
    let open = one.open(file, OpenMode::WRITE);
    let part: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    for number in 0..100 {
        open.write(number << 20, &part).unwrap();
    }
    open.close().unwrap();
    let reader = two.open(file, OpenMode::READ);
    let mut data = vec![0; 1 << 20];
    for number in 0..100 {
        assert_eq!(reader.read(number << 20, &mut data), Ok(1 << 20));
        assert!(data == part, "{number}");
    }
    assert_eq!(two.clerk.getattr(&two.caller, file).unwrap().size, 100 << 20);
}

#[test]
fn nothing_that_is_appended_is_lost_whoever_appends_meanwhile() {
    const CLIENTS: usize = 3;
    const EACH: usize = 20;
    let cell = cell(1);
    let clients: Vec<Client> = (0..CLIENTS).map(|_| Client::new(&cell)).collect();
    let file = clients[0].make("log");
    thread::scope(|scope| {
        for (number, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                let open = client.open(file, OpenMode::WRITE);
                for line in 0..EACH {
                    open.append(format!("{number} {line:05}\n").as_bytes()).unwrap();
                    open.close().unwrap();
                }
            });
        }
    });
    let text = String::from_utf8(clients[0].reads(file)).unwrap();
    assert_eq!(text.lines().count(), CLIENTS * EACH);
    for number in 0..CLIENTS {
        let prefix = number.to_string();
        let lines = text.lines().filter(|line| line.starts_with(&prefix));
        let expected = (0..EACH).map(|line| format!("{number} {line:05}"));
        assert!(lines.eq(expected), "{text}");
    }
}

#[test]
fn who_may_not_write_is_told_so_when_he_opens_or_stores() {
    let cell = cell(1);
    let (owner, other) = (Client::new(&cell), Client::of(&cell, 1000));
    let file = owner.make("file");
    let change = SetFileAttributes { mode: Some(0o644), ..SetFileAttributes::default() };
    owner.clerk.setattr(&owner.caller, file, &change).unwrap();
    let refused = other.clerk.open(&other.caller, file, OpenMode::WRITE);
    assert!(matches!(refused, Err(ClerkError::Access)));
    let own = other.make("own");
    let open = other.open(own, OpenMode::WRITE);
    open.write(0, b"text").unwrap();
    let given = SetFileAttributes { uid: Some(0), mode: Some(0o600), ..Default::default() };
    owner.clerk.setattr(&owner.caller, own, &given).unwrap();
    assert_eq!(open.close(), Err(ClerkError::Manager(ManagerStatus::Access)));
    assert_eq!(owner.reads(own), b"");
}

/// A number, and the same number again at the end of a few blocks: half of a store would have two.
fn encoded(number: u64) -> Vec<u8> {
    let mut data = vec![0; 9000];
    data[..8].copy_from_slice(&number.to_le_bytes());
    data[8992..].copy_from_slice(&number.to_le_bytes());
    data
}

fn decoded(data: &[u8]) -> (u64, u64) {
    let at = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    (at(0), at(8992))
}

/// So many rounds; 100,000 take some minutes.
fn rounds() -> u64 {
    std::env::var("NASD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Two clients, of which now one stores and the other reads, and now the other way round, while `harm` is done to the cell, and
/// to their ways to the file manager; it tells whether any was.
fn in_rounds(cell: &mut Cell, seed: u64, mut harm: impl FnMut(&mut Cell, &[Wire; 2], u64) -> bool) {
    let wires = [Wire::to(cell.manager_address), Wire::to(cell.manager_address)];
    let [one, two] = [0, 1].map(|client: usize| Client::by(cell, 0, wires[client].address));
    let file = one.make("number");
    one.stores(file, &encoded(0));
    let (stored, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    thread::scope(|scope| {
        let (stored, is_over) = (&stored, &is_over);
        let (one, two) = (&one, &two);
        // Reads all the time, by an opening that is never closed.
        let watcher = scope.spawn(move || {
            let open = two.open(file, OpenMode::READ);
            let mut seen = 0;
            let mut reads = 0_u64;
            while !is_over.load(Ordering::Acquire) {
                let least = stored.load(Ordering::Acquire).max(seen);
                let (first, last) = decoded(&read(&open));
                assert_eq!(first, last, "half of a store");
                let before = stored.load(Ordering::Acquire);
                assert!(first >= least, "read {first} after {least}, seen {seen}, stored {before}");
                seen = first;
                reads += 1;
            }
            reads
        });
        let worker = scope.spawn(move || {
            let readers = [two.open(file, OpenMode::READ), one.open(file, OpenMode::READ)];
            for round in 1..=rounds() {
                let (writer, reader) = match round % 3 {
                    0 => (two, &readers[1]),
                    _ => (one, &readers[0]),
                };
                writer.stores(file, &encoded(round));
                stored.store(round, Ordering::Release);
                assert_eq!(decoded(&read(reader)), (round, round));
            }
            is_over.store(true, Ordering::Release);
        });
        let (mut state, mut harms) = (seed, 0);
        while !worker.is_finished() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            harms += u64::from(harm(cell, &wires, state >> 33));
        }
        worker.join().unwrap();
        let reads = watcher.join().unwrap();
        println!("{} rounds, {reads} reads, harm {harms} times, {:?}", rounds(), begun.elapsed());
    });
}

#[test]
fn nobody_reads_what_is_old() {
    in_rounds(&mut cell(1), 0, |_, _, _| {
        thread::sleep(Duration::from_millis(1));
        false
    });
}

/// A client that reads the file of the rounds, stores a part of it that nobody looks at, and is never heard of again in the midst.
fn one_that_dies(cell: &Cell) {
    let wire = Wire::to(cell.manager_address);
    let client = Client::by(cell, 0, wire.address);
    let file = client.find("number").unwrap();
    let (reader, writer) = (client.open(file, OpenMode::READ), client.open(file, OpenMode::WRITE));
    read(&reader);
    let store = thread::spawn(move || {
        writer.write(4000, b"of one that dies").unwrap();
        let _ = writer.close();
    });
    thread::sleep(Duration::from_millis(2));
    wire.fall_silent();
    // What it waits for never comes: its threads are left to themselves.
    std::mem::forget((store, reader, client));
}

#[test]
fn nobody_reads_what_is_old_though_drives_managers_and_clients_die() {
    in_rounds(&mut cell(1), 7, |cell, wires, random| {
        // In many rounds as often as in few, or they would be all pauses.
        thread::sleep(Duration::from_millis((20 + random % 200) * (1 + rounds() / 10_000)));
        let (kind, how) = (random % 6, random / 6);
        match kind {
            0 => cell.restart_manager(),
            1 | 2 => {
                cell.drives[0].stop();
                thread::sleep(Duration::from_millis(how % 50));
                cell.drives[0].start();
            }
            3 => one_that_dies(cell),
            _ => {
                let wire = &wires[how as usize % 2];
                if kind == 4 {
                    wire.cut()
                } else {
                    wire.fall_silent()
                }
                // Also longer than a lease.
                thread::sleep(Duration::from_millis(how % 2500));
                wire.heal();
            }
        }
        true
    });
}

/// A directory of the volume, with a list as AFS has it.
fn listed(cell: &Cell, name: &str, list: &str) -> (Client, FileHandle) {
    let root = Client::new(cell);
    let made = root.clerk.mkdir(&root.caller, root.clerk.root(), &named(name), 0o755).unwrap();
    root.govern(made.handle, list).unwrap();
    (root, made.handle)
}

impl Client {
    fn govern(&self, directory: FileHandle, list: &str) -> Result<(), ClerkError> {
        let (name, flags) = (named("system.nasd_acl"), XattrFlags::NONE);
        let set = self.clerk.setxattr(&self.caller, directory, &name, list.as_bytes(), flags);
        set.map(drop)
    }

    fn list_of(&self, file: FileHandle) -> Result<String, ClerkError> {
        let told = self.clerk.getxattr(&self.caller, file, &named("system.nasd_acl"))?;
        Ok(String::from_utf8(told).unwrap())
    }

    fn may_open(&self, file: FileHandle, mode: OpenMode) -> Result<(), ClerkError> {
        self.clerk.open(&self.caller, file, mode).map(drop)
    }

    fn lists(&self, directory: FileHandle) -> Result<usize, ClerkError> {
        Ok(self.clerk.readdir(&self.caller, directory, 0, 1000)?.entries.len())
    }

    fn make_in(&self, directory: FileHandle, name: &str) -> Result<FileHandle, ClerkError> {
        let made = self.clerk.create(&self.caller, directory, &named(name), 0o644, true);
        Ok(made?.handle)
    }
}

fn is_refused<T: std::fmt::Debug>(outcome: Result<T, ClerkError>) {
    let access =
        matches!(outcome, Err(ClerkError::Access | ClerkError::Manager(ManagerStatus::Access)));
    assert!(access, "{outcome:?}");
}

/// What was given to somebody who reads, and how much the drive lets him read by that.
struct Given {
    file: File,
    drive: DriveClient,
    protection: Protection,
}

impl Given {
    fn to(cell: &Cell, caller: &Caller, file: FileHandle) -> Given {
        let file = cell.client("host:one").getattr(caller, file).unwrap();
        Given { drive: cell.drive_of(&file), protection: cell.protection(), file }
    }

    fn reads(&self) -> Option<usize> {
        let authority = Authority::capability(&self.file.capability, self.protection);
        match self.drive.read(&authority, self.file.handle.name(), 0, &mut [0; 100]) {
            Err(ClientError::Refused(_)) => None,
            outcome => Some(outcome.unwrap().length),
        }
    }
}

#[test]
fn who_loses_a_right_has_lost_it_when_the_list_is_set() {
    let cell = cell(2);
    let (root, directory) = listed(&cell, "governed", "user:1001 rl\nuser:1002 rl");
    let file = root.make_in(directory, "file").unwrap();
    root.stores(file, b"for all");
    // Two users of one machine, and one of another.
    let here = Client::of(&cell, 1001);
    let beside = Client {
        clerk: Arc::clone(&here.clerk),
        caller: Arc::new(Caller { uid: 1002, gid: 1002, groups: Vec::new() }),
    };
    let there = Client::of(&cell, 1001);
    let open: Vec<OpenFile> =
        [&here, &beside, &there].map(|client| client.open(file, OpenMode::READ)).into();
    open.iter().for_each(|open| assert_eq!(read(open), b"for all"));
    for client in [&here, &beside, &there] {
        assert_eq!(client.lists(directory), Ok(1));
        is_refused(client.may_open(file, OpenMode::WRITE));
        is_refused(client.make_in(directory, "new"));
        let refused = Err(ClerkError::Manager(ManagerStatus::Permission));
        assert_eq!(client.govern(directory, "anyuser all"), refused);
    }
    let given = Given::to(&cell, &here.caller, file);
    assert_eq!(given.reads(), Some(7));
    // He may read no more, who reads beside him may.
    root.govern(directory, "user:1001 l\nuser:1002 rl").unwrap();
    assert_eq!(given.reads(), None, "the capability is worthless");
    let mut data = [0; 100];
    for at in [0, 2] {
        is_refused(open[at].read(0, &mut data));
    }
    root.stores(file, b"for one");
    assert_eq!(read(&open[1]), b"for one");
    assert_eq!(beside.reads(file), b"for one");
    for client in [&here, &there] {
        is_refused(client.may_open(file, OpenMode::READ));
        assert_eq!(
            client.clerk.lookup(&client.caller, directory, &named("file")).unwrap().handle,
            file
        );
        assert_eq!(client.lists(directory), Ok(1));
    }
    for at in [0, 2] {
        is_refused(open[at].read(0, &mut data));
    }
    // Nor see anything of it, though the names are known on the machine.
    root.govern(directory, "user:1002 rlw").unwrap();
    assert!(beside.clerk.lookup(&beside.caller, directory, &named("file")).is_ok());
    assert_eq!((beside.lists(directory), beside.reads(file)), (Ok(1), b"for one".to_vec()));
    for client in [&here, &there] {
        is_refused(client.clerk.lookup(&client.caller, directory, &named("file")));
        is_refused(client.clerk.lookup(&client.caller, directory, &named("nothing")));
        is_refused(client.lists(directory));
        is_refused(client.list_of(directory));
    }
    beside.stores(file, b"by one");
    assert_eq!(root.reads(file)[..6], *b"by one");
    // What is given again is there again.
    root.govern(directory, "anyuser rl").unwrap();
    open.iter().for_each(|open| assert_eq!(read(open)[..6], *b"by one"));
    is_refused(beside.may_open(file, OpenMode::WRITE));
}

#[test]
fn what_is_moved_in_is_governed_and_what_moves_out_is_not() {
    let cell = cell(1);
    let (root, directory) = listed(&cell, "governed", "user:1002 rl");
    let other = Client::of(&cell, 1001);
    let file = root.make("outside");
    root.stores(file, b"open to all");
    let open = other.open(file, OpenMode::READ);
    assert_eq!(read(&open), b"open to all");
    let given = Given::to(&cell, &other.caller, file);
    assert_eq!(given.reads(), Some(11));
    let (outside, name) = (root.clerk.root(), named("outside"));
    let rename = |from, to| {
        let none = RenameFlags::NONE;
        root.clerk.rename(&root.caller, (from, &name), (to, &name), none, None).unwrap();
    };
    rename(outside, directory);
    assert_eq!(given.reads(), None);
    is_refused(open.read(0, &mut [0; 100]));
    is_refused(other.may_open(file, OpenMode::READ));
    assert_eq!(Client::of(&cell, 1002).reads(file), b"open to all");
    rename(directory, outside);
    assert_eq!(
        (read(&open), other.reads(file)),
        (b"open to all".to_vec(), b"open to all".to_vec())
    );
    // A file that was in the directory before it was given a list follows it, too; and one whose list is removed.
    let (second, free) = (Client::new(&cell), listed(&cell, "free", "").1);
    let remove = |directory| {
        second.clerk.removexattr(&second.caller, directory, &named("system.nasd_acl")).unwrap();
    };
    remove(free);
    let file = second.make_in(free, "file").unwrap();
    second.stores(file, b"as before");
    assert_eq!(other.reads(file), b"as before");
    second.govern(free, "user:1002 rl").unwrap();
    is_refused(other.may_open(file, OpenMode::READ));
    remove(free);
    assert_eq!(other.reads(file), b"as before");
    is_refused(other.may_open(file, OpenMode::WRITE));
}

#[test]
fn a_quota_may_begin_while_files_under_two_lists_are_exchanged() {
    let cell = cell(1);
    let names = cell.manager.as_ref().unwrap().namespace();
    let (root, one) = listed(&cell, "one", "user:1002 rl");
    let two = listed(&cell, "two", "user:1003 rl").1;
    let files = [one, two].map(|directory| root.make_in(directory, "file").unwrap());
    files.iter().for_each(|file| root.stores(*file, b"its own"));
    // Who holds a callback on the first one, and is silent since, is waited for.
    let wire = Wire::to(cell.manager_address);
    let silent = Client::by(&cell, 0, wire.address);
    files.iter().for_each(|file| drop(silent.reads(*file)));
    wire.fall_silent();
    let begun = Instant::now();
    thread::scope(|scope| {
        let exchanging = scope.spawn(|| {
            let (name, exchange) = (named("file"), RenameFlags::EXCHANGE);
            root.clerk.rename(&root.caller, (one, &name), (two, &name), exchange, None)
        });
        thread::sleep(LEASE / 4);
        let limiting = scope.spawn(|| names.set_quota(Some(1 << 30)));
        while !(exchanging.is_finished() && limiting.is_finished()) {
            if begun.elapsed() > 20 * LEASE {
                eprintln!("who exchanges and who limits wait for one another");
                // They would be waited for.
                std::process::abort();
            }
            thread::sleep(Duration::from_millis(10));
        }
        exchanging.join().unwrap().unwrap();
    });
    root.stores(files[0], b"another");
    wire.heal();
}

#[test]
fn locks_take_their_right() {
    let cell = cell(1);
    let (root, directory) = listed(&cell, "governed", "user:1001 rlk\nuser:1002 rl");
    let file = root.make_in(directory, "file").unwrap();
    let (kind, mode) = (LockKind::Flock, LockMode::Shared);
    let asked = LockRequest { file, kind, owner: 1, first: 0, last: u64::MAX, mode, process: 1 };
    let (one, two) = (Client::of(&cell, 1001), Client::of(&cell, 1002));
    assert_eq!(one.clerk.lock(&one.caller, &asked, false), Ok(None));
    is_refused(two.clerk.lock(&two.caller, &asked, false));
    root.govern(directory, "user:1002 rlk").unwrap();
    assert_eq!(two.clerk.lock(&two.caller, &asked, false), Ok(None));
    assert_eq!(one.clerk.unlock(&asked), Ok(()), "what one has he may give back");
}

/// The file manager is killed while it gives the files of a directory its list: they have it all the same, when whoever has set it is
/// answered, and also if he is not there any more.
#[test]
fn a_list_is_given_to_all_files_though_the_manager_dies() {
    const FILES: usize = 60;
    let mut cell = cell(2);
    let (root, directory) = listed(&cell, "governed", "anyuser rl");
    let files: Vec<FileHandle> =
        (0..FILES).map(|at| root.make_in(directory, &format!("f{at}")).unwrap()).collect();
    let root = Arc::new(root);
    for round in 0..6_u64 {
        let list = format!("anyuser rl\nuser:{} rlidwk\n", 2000 + round);
        let given = files.iter().filter(|file| root.list_of(**file).unwrap() == list).count();
        assert_eq!(given, 0);
        let setting = {
            let (root, list) = (Arc::clone(&root), list.clone());
            // In odd rounds somebody whose machine is not waited for.
            let setter = if round % 2 == 0 { root } else { Arc::new(Client::new(&cell)) };
            thread::spawn(move || setter.govern(directory, &list))
        };
        thread::sleep(Duration::from_millis(2 + 7 * round));
        cell.restart_manager();
        let begun = Instant::now();
        if round % 2 == 0 {
            setting.join().unwrap().unwrap();
        }
        loop {
            let given = files.iter().filter(|file| root.list_of(**file).unwrap() == list).count();
            if given == FILES {
                break;
            }
            // Whoever was answered has the word of the manager.
            assert!(round % 2 == 1, "round {round}: {given} of {FILES}");
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: {given} of {FILES}");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(root.list_of(directory), Ok(list));
    }
}

/// Who walks through a directory is told of several files at once, while others store them and change their attributes.
#[test]
fn who_walks_through_a_directory_sees_nothing_older_than_what_was_stored() {
    const FILES: usize = 40;
    let cell = cell(2);
    let (writer, changer) = (Client::new(&cell), Client::new(&cell));
    let name = |number: usize| format!("file {number}");
    let files: Vec<FileHandle> = (0..FILES).map(|number| writer.make(&name(number))).collect();
    for file in &files {
        writer.stores(*file, &encoded(0));
    }
    let stored: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let changed: Vec<AtomicU64> = (0..FILES).map(|_| AtomicU64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for turn in 0..2 {
            let walker = Client::new(&cell);
            let (stored, changed, is_over, name) = (&stored, &changed, &is_over, &name);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(walker.names().len(), FILES);
                    for step in 0..FILES {
                        let number = if turn == 0 { step } else { step * 7 % FILES };
                        let contents = stored[number].load(Ordering::SeqCst);
                        let revision = changed[number].load(Ordering::SeqCst);
                        let root = walker.clerk.root();
                        let found =
                            walker.clerk.lookup(&walker.caller, root, &named(&name(number)));
                        let found = found.unwrap();
                        assert!(found.attributes.revision >= revision);
                        let (begin, end) = decoded(&walker.reads(found.handle));
                        assert!(begin == end && begin >= contents, "{begin} {end} {contents}");
                    }
                }
            });
        }
        scope.spawn(|| {
            for round in 0..rounds() as usize {
                let number = round * 11 % FILES;
                let mode = Some(if round % 2 == 0 { 0o644 } else { 0o666 });
                let change = SetFileAttributes { mode, ..SetFileAttributes::default() };
                let told = changer.clerk.setattr(&changer.caller, files[number], &change).unwrap();
                changed[number].fetch_max(told.revision, Ordering::SeqCst);
            }
        });
        for round in 1..=rounds() {
            let number = (round * 13) as usize % FILES;
            writer.stores(files[number], &encoded(round));
            stored[number].store(round, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// What a clerk has counted.
fn counted(client: &Client, what: &str) -> u64 {
    let mut page = Page::default();
    client.clerk.put_metrics(&mut page);
    let text = page.into_text();
    let line = text.lines().find(|line| line.starts_with(&format!("{what} ")));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap()
}

#[test]
fn files_of_a_directory_are_asked_for_together_where_more_than_one_is_wanted() {
    const FILES: usize = 100;
    let cell = cell(1);
    let maker = Client::new(&cell);
    for number in 0..FILES {
        maker.stores(maker.make(&format!("file {number:03}")), b"text");
    }
    let asked_for = |client: &Client, number: usize| {
        let questions = || counted(client, "nasd_clerk_attribute_misses_total");
        let before = questions();
        let file = client.find(&format!("file {number:03}")).unwrap();
        assert_eq!(client.reads(file), b"text");
        questions() - before
    };
    // Who wants one pays for one.
    let one = Client::new(&cell);
    assert_eq!(asked_for(&one, 50), 1);
    assert_eq!(counted(&one, "nasd_clerk_callbacks"), 2, "on the directory and the file");
    // Who wants another is given more.
    assert_eq!(asked_for(&one, 30), 1);
    let each: Vec<u64> = (31..47).map(|number| asked_for(&one, number)).collect();
    // Those that the file manager is just bringing home are left out.
    assert!(each.iter().sum::<u64>() <= 4, "{each:?}");
    // Who lists the directory is given them at once, and ever more of them.
    let all = Client::new(&cell);
    assert_eq!(all.names().len(), FILES);
    let questions: Vec<u64> = (0..FILES).map(|number| asked_for(&all, number)).collect();
    assert_eq!(questions[0], 1);
    assert!((3..=10).contains(&questions.iter().sum::<u64>()), "{questions:?}");
}
