//! Clerks on a volume of the personality `afs`, with a real manager and real drives: nobody reads what is older than what was stored, whatever
//! fails meanwhile.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[allow(dead_code)] // Other tests use the rest.
#[path = "support/cell.rs"]
mod setup;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nasd_clerk::{Clerk, ClerkError, ClerkOptions, OpenFile, OpenMode, RenameFlags, Settings};
use nasd_client::Caller;
use nasd_protocol::manager::{FileHandle, ManagerStatus, Name, SetFileAttributes};
use nasd_types::{ByteRange, Personality};
use setup::Cell;

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
        let caller = Arc::new(Caller { uid, gid: uid, groups: Vec::new() });
        let (address, tls) = (cell.manager_address.to_string(), cell.client_tls("host:one"));
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

/// So many rounds; 100,000 take about two minutes.
fn rounds() -> u64 {
    std::env::var("NASD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300)
}

/// Two clients, of which now one stores and the other reads, and now the other way round, while `harm` is done to the cell.
fn in_rounds(cell: &mut Cell, seed: u64, mut harm: impl FnMut(&mut Cell, u64)) {
    let (one, two) = (Client::new(cell), Client::new(cell));
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
        let mut state = seed;
        while !worker.is_finished() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            harm(cell, state >> 33);
        }
        worker.join().unwrap();
        let reads = watcher.join().unwrap();
        println!("{} rounds and {reads} reads in {:?}", rounds(), begun.elapsed());
    });
}

#[test]
fn nobody_reads_what_is_old() {
    in_rounds(&mut cell(1), 0, |_, _| thread::sleep(Duration::from_millis(1)));
}

#[test]
fn nobody_reads_what_is_old_though_drives_and_managers_die() {
    in_rounds(&mut cell(1), 7, |cell, random| {
        // In many rounds as often as in few, or they would be all pauses.
        thread::sleep(Duration::from_millis((20 + random % 200) * (1 + rounds() / 2000)));
        match random % 3 {
            0 => cell.restart_manager(),
            _ => {
                cell.drives[0].stop();
                thread::sleep(Duration::from_millis(random % 50));
                cell.drives[0].start();
            }
        }
    });
}
