//! A volume of the personality `afs` with a real manager and real drives: who reads is told before what he has read is changed.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[allow(dead_code)] // Other tests use the rest.
#[path = "support/cell.rs"]
mod setup;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nasd_client::{Authority, Caller, ClientError, ManagerClient};
use nasd_manager::directory::parse_directory;
use nasd_protocol::ManagerStatus;
use nasd_protocol::manager::{
    AttachArguments, Begun, Cut, Event, EventsArguments, FileHandle, GetcapArguments,
    GetcapsArguments, GetwcapArguments, Readable, Readables, ReturncapArguments, Returned,
    SetFileAttributes, Writable,
};
use nasd_types::{DriveId, ObjectId, Personality};
use setup::Cell;

/// Where nothing is to end before the test does.
const LONG_LEASE: Duration = Duration::from_secs(60);

struct Client<'a> {
    cell: &'a Cell,
    manager: ManagerClient,
    seen: u64,
}

impl<'a> Client<'a> {
    fn attach(cell: &'a Cell) -> Client<'a> {
        let client = Client::without_session(cell);
        client.attach_again();
        client
    }

    /// One that is promised nothing, and so need not be told of anything.
    fn without_session(cell: &'a Cell) -> Client<'a> {
        Client { cell, manager: cell.client("host:one"), seen: 0 }
    }

    fn attach_again(&self) {
        let attach =
            AttachArguments { client: self.manager.number(), ..AttachArguments::default() };
        self.manager.attach(&Caller::ROOT, &attach).unwrap();
    }

    fn root(&self) -> FileHandle {
        self.manager.volume(&Caller::ROOT, b"home").unwrap().root.handle
    }

    fn make(&self, name: &str) -> FileHandle {
        let made = self.manager.create(&Caller::ROOT, self.root(), name.as_bytes(), 0o666, true);
        made.unwrap().reply.handle
    }

    /// Makes a file, and begins to store it with that.
    fn begins(&self, name: &str) -> Writable {
        let (root, name) = (self.root(), name.as_bytes());
        let made = self.manager.create_to_store(&Caller::ROOT, root, name, 0o666, true).unwrap();
        let Begun { version, end, time } = made.begun.unwrap();
        assert_eq!((made.promised, made.reply.attributes.size), (None, 0));
        Writable { file: made.reply, version, end, time, alone: true }
    }

    fn may_read(&self, file: FileHandle) -> Result<Readable, ClientError> {
        let client = self.manager.number();
        self.manager
            .get_capability(&Caller::ROOT, &GetcapArguments { file, client, contents: true })
    }

    fn may_write(&self, file: FileHandle, end: u64) -> Result<Writable, ClientError> {
        self.may_cut(file, end, None)
    }

    fn may_cut(
        &self,
        file: FileHandle,
        end: u64,
        cut: Option<Cut>,
    ) -> Result<Writable, ClientError> {
        let client = self.manager.number();
        let asked = GetwcapArguments { file, client, least_end: end, best_end: end, cut };
        self.manager.get_write_capability(&Caller::ROOT, &asked)
    }

    fn returns(&self, file: FileHandle, version: u64) -> Result<Returned, ClientError> {
        let client = self.manager.number();
        self.manager.return_capability(&Caller::ROOT, &ReturncapArguments { file, client, version })
    }

    /// What the drive has, by a capability that was given before.
    fn reads(&self, by: &Readable) -> Result<Vec<u8>, ClientError> {
        let authority = Authority::capability(&by.file.capability, self.cell.protection());
        let mut data = vec![0; 8192];
        let drive = self.cell.drive_of(&by.file);
        let outcome = drive.read(&authority, by.file.handle.name(), 0, &mut data)?;
        data.truncate(outcome.length);
        Ok(data)
    }

    fn writes(&self, by: &Writable, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        let authority = Authority::capability(&by.file.capability, self.cell.protection());
        let drive = self.cell.drive_of(&by.file);
        drive.write(&authority, by.file.handle.name(), offset, data, true).map(drop)
    }

    fn stores(&self, file: FileHandle, data: &[u8]) -> Returned {
        let writable = self.may_write(file, data.len() as u64).unwrap();
        self.writes(&writable, 0, data).unwrap();
        self.returns(file, writable.version).unwrap()
    }

    /// The next events; they are dealt with when this is called again.
    fn events(&mut self, wait: bool) -> Vec<Event> {
        let (client, seen) = (self.manager.number(), self.seen);
        let asked = EventsArguments { client, seen, open: Vec::new(), wait };
        let page = self.manager.events(&Caller::ROOT, &asked).unwrap();
        self.seen = page.first + page.events.len() as u64 - 1;
        page.events
    }
}

fn cell(lease: Duration) -> Cell {
    Cell::with(1, |config| {
        config.sessions.lease = lease;
        config.personality = Personality::Afs;
    })
}

/// Runs while the test goes on; tells when it is done.
fn beside<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> (thread::ScopedJoinHandle<'scope, T>, mpsc::Receiver<()>) {
    let (done, told) = mpsc::channel();
    let thread = scope.spawn(move || {
        let outcome = run();
        let _ = done.send(());
        outcome
    });
    (thread, told)
}

const A_WHILE: Duration = Duration::from_millis(100);

/// A client that asks for what it is told, and never says that it knows.
#[test]
fn who_lives_and_never_says_that_he_knows_is_not_waited_for_for_ever() {
    let lease = Duration::from_secs(1);
    let cell = cell(lease);
    let (reader, changer) = (Client::attach(&cell), Client::without_session(&cell));
    assert!(reader.may_read(reader.root()).unwrap().promised);
    thread::scope(|scope| {
        let (changing, done) = beside(scope, || changer.make("file"));
        let (client, open) = (reader.manager.number(), Vec::new());
        let ask = EventsArguments { client, seen: 0, open, wait: false };
        let refused = loop {
            let asked = Instant::now();
            match reader.manager.events(&Caller::ROOT, &ask) {
                Ok(_) => {
                    let is_done = done.recv_timeout(A_WHILE).is_ok();
                    assert!(!is_done || asked.elapsed() >= lease, "it may believe");
                }
                Err(refused) => break refused,
            }
        };
        let is_refused =
            |error: &ClientError| matches!(error, ClientError::Manager(ManagerStatus::NoSession));
        assert!(is_refused(&refused), "{refused}");
        assert!(is_refused(&reader.may_read(reader.root()).unwrap_err()));
        changing.join().unwrap();
    });
    reader.attach_again();
    assert!(reader.may_read(reader.root()).unwrap().promised);
}

#[test]
fn a_store_is_done_when_all_know_who_have_read_what_was_there() {
    let cell = cell(LONG_LEASE);
    let (writer, mut reader) = (Client::attach(&cell), Client::attach(&cell));
    let file = writer.make("file");
    assert!(writer.stores(file, b"before").promised);
    let before = reader.may_read(file).unwrap();
    assert!(before.promised && before.file.attributes.size == 6);
    assert_eq!(reader.reads(&before).unwrap(), b"before");

    let writable = writer.may_write(file, 5).unwrap();
    assert_eq!(writable.version, before.version + 1);
    assert!(reader.reads(&before).is_err(), "nobody reads what is half stored");
    thread::scope(|scope| {
        let waiting = Client { cell: &cell, manager: cell.client("host:one"), seen: 0 };
        waiting.attach_again();
        let (waits, told) = beside(scope, move || waiting.may_read(file).unwrap());
        writer.writes(&writable, 0, b"after").unwrap();
        assert!(writer.writes(&writable, 5, b"!").is_err(), "its region ends there");
        assert!(told.recv_timeout(A_WHILE).is_err());
        let (stores, stored) = beside(scope, || writer.returns(file, writable.version).unwrap());
        assert_eq!(reader.events(true), [Event::Broken(file, writable.version)]);
        assert!(stored.recv_timeout(A_WHILE).is_err() && told.recv_timeout(A_WHILE).is_err());
        assert_eq!(reader.events(false), []);
        let returned = stores.join().unwrap();
        assert!(returned.promised && returned.version == writable.version + 1);
        assert!(writer.writes(&writable, 0, b"later").is_err());
        let after = waits.join().unwrap();
        assert!(after.promised && after.version == returned.version);
        assert_eq!(reader.reads(&after).unwrap(), b"aftere");
    });
}

#[test]
fn who_stores_is_told_whether_anybody_is_to_be_told() {
    let cell = cell(LONG_LEASE);
    let (writer, mut reader) = (Client::attach(&cell), Client::attach(&cell));
    let file = writer.make("file");
    for _ in 0..2 {
        assert!(writer.may_write(file, 5).unwrap().alone, "its own callback does not count");
    }
    writer.stores(file, b"first");
    assert!(reader.may_read(file).unwrap().promised);
    let watched = writer.may_write(file, 5).unwrap();
    assert!(!watched.alone);
    thread::scope(|scope| {
        let (stores, _) = beside(scope, || writer.returns(file, watched.version).unwrap());
        assert_eq!(reader.events(true), [Event::Broken(file, watched.version)]);
        reader.events(false);
        assert!(stores.join().unwrap().promised);
    });
    assert!(writer.may_write(file, 5).unwrap().alone);
}

#[test]
fn a_file_is_cut_with_the_store_that_writes_it_anew() {
    let cell = cell(LONG_LEASE);
    let client = Client::attach(&cell);
    let file = client.make("file");
    let version = client.stores(file, b"something long").version;
    let cut = Some(Cut { length: 0, version });
    let writable = client.may_cut(file, 5, cut).unwrap();
    assert_eq!(writable.file.attributes.size, 0);
    client.writes(&writable, 0, b"short").unwrap();
    // Asked for once more, as the answer was lost: nothing is cut that was written since.
    let again = client.may_cut(file, 5, cut).unwrap();
    assert_eq!((again.version, again.file.attributes.size), (writable.version, 5));
    let returned = client.returns(file, writable.version).unwrap();
    assert_eq!(returned.file.attributes.size, 5);
    let is = |data: &[u8]| client.reads(&client.may_read(file).unwrap()).unwrap() == data;
    assert!(is(b"short"));
    // One that comes late begins a store, and cuts nothing.
    let late = client.may_cut(file, 5, cut).unwrap();
    assert_eq!(late.file.attributes.size, 5);
    let version = client.returns(file, late.version).unwrap().version;
    assert!(is(b"short"));
    // Who cuts to more than there is adds nothing.
    let longer = client.may_cut(file, 9, Some(Cut { length: 9, version })).unwrap();
    assert_eq!(longer.file.attributes.size, 5);
    let version = client.returns(file, longer.version).unwrap().version;
    let part = client.may_cut(file, 3, Some(Cut { length: 3, version })).unwrap();
    assert_eq!(part.file.attributes.size, 3);
    client.returns(file, part.version).unwrap();
    assert!(is(b"sho"));
}

#[test]
fn nobody_has_a_file_cut_in_a_version_that_it_does_not_have_yet() {
    let cell = cell(LONG_LEASE);
    let (client, other) = (Client::attach(&cell), Client::attach(&cell));
    let file = client.make("file");
    let version = client.stores(file, b"stored").version;
    let store = other.may_write(file, 6).unwrap();
    let cut = Some(Cut { length: 0, version: version + 2 });
    let (is_over, until) = (AtomicBool::new(false), Instant::now() + LONG_LEASE / 2);
    thread::scope(|scope| {
        for told in [&client, &other] {
            let mut told = Client { seen: 0, manager: told.manager.clone(), ..*told };
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    told.events(false);
                    thread::sleep(A_WHILE / 4);
                }
            });
        }
        let (early, done) = beside(scope, || client.may_cut(file, 6, cut).unwrap());
        assert!(done.recv_timeout(A_WHILE).is_err());
        // The other one may have begun by then.
        assert!(other.returns(file, store.version).unwrap().version >= version + 2);
        let writable = early.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!((writable.version, writable.file.attributes.size), (version + 3, 6));
    });
}

#[test]
fn who_dies_while_it_writes_delays_others_no_longer_than_its_lease() {
    let lease = Duration::from_secs(3);
    let cell = cell(lease);
    let (writer, reader) = (Client::attach(&cell), Client::attach(&cell));
    let file = writer.make("file");
    writer.stores(file, b"before");
    let writable = writer.may_write(file, 6).unwrap();
    writer.writes(&writable, 0, b"half").unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        let alive = scope.spawn(|| {
            let mut reader = Client { seen: 0, manager: reader.manager.clone(), ..reader };
            while begun.elapsed() < lease * 2 {
                reader.events(false);
                thread::sleep(A_WHILE);
            }
        });
        let readable = reader.may_read(file).unwrap();
        assert!(begun.elapsed() < lease * 2, "{:?}", begun.elapsed());
        assert_eq!(reader.reads(&readable).unwrap(), b"halfre");
        assert!(writer.writes(&writable, 0, b"late").is_err());
        alive.join().unwrap();
    });
}

#[test]
fn who_has_a_callback_is_told_of_changes_of_attributes_and_names() {
    let cell = cell(LONG_LEASE);
    let (other, mut reader) = (Client::without_session(&cell), Client::attach(&cell));
    let (file, root) = (other.make("file"), other.root());
    type Act = fn(&Client<'_>, FileHandle, FileHandle);
    let chmod: Act = |client, file, _| {
        let mode = SetFileAttributes { mode: Some(0o600), ..SetFileAttributes::default() };
        client.manager.setattr(&Caller::ROOT, file, &mode).unwrap();
    };
    let link: Act = |client, file, root| {
        client.manager.link(&Caller::ROOT, file, root, b"link").unwrap();
    };
    let create: Act = |client, _, _| {
        client.make("new");
    };
    let rename: Act = |client, _, root| {
        let moved = client.manager.rename(
            &Caller::ROOT,
            (root, b"file"),
            (root, b"moved"),
            nasd_protocol::manager::RenameFlags::NONE,
            None,
        );
        moved.unwrap();
    };
    let unlink: Act = |client, _, root| {
        client.manager.unlink(&Caller::ROOT, root, b"moved", None).unwrap();
    };
    for (act, watched) in
        [(chmod, file), (link, file), (link_is_told_of_in(root), root), (create, root)]
            .into_iter()
            .chain([(rename, file), (unlink, file)])
    {
        let before = reader.may_read(watched).unwrap();
        assert!(before.promised);
        thread::scope(|scope| {
            let (acts, done) = beside(scope, || act(&other, file, root));
            let mut told = Vec::new();
            while !told.contains(&Event::Changed(watched)) {
                assert!(done.recv_timeout(A_WHILE).is_err(), "{told:?}");
                told = reader.events(true);
            }
            reader.events(false);
            // There may be something more to deal with: a change of mode is a store, too.
            while !acts.is_finished() {
                reader.events(false);
                thread::sleep(Duration::from_millis(1));
            }
            acts.join().unwrap();
        });
    }
}

/// The second name is removed again, so that the file can lose its last one.
fn link_is_told_of_in(_root: FileHandle) -> fn(&Client<'_>, FileHandle, FileHandle) {
    |client, _, root| {
        client.manager.unlink(&Caller::ROOT, root, b"link", None).unwrap();
    }
}

#[test]
fn names_can_be_read_in_the_directory_s_object() {
    let cell = cell(LONG_LEASE);
    let client = Client::attach(&cell);
    for round in 0..3 {
        let file = client.make(&format!("file {round}"));
        let readable = client.may_read(client.root()).unwrap();
        let listed =
            parse_directory(readable.file.handle.object, &client.reads(&readable).unwrap());
        let listed = listed.unwrap();
        assert_eq!(listed.len(), round + 1);
        assert!(listed.iter().any(|entry| entry.handle == file));
    }
}

#[test]
fn a_manager_that_starts_anew_ends_what_was_left_half_done() {
    let mut cell = cell(Duration::from_secs(2));
    let (file, other, version) = {
        let client = Client::attach(&cell);
        let (file, other) = (client.make("file"), client.make("other"));
        client.stores(file, b"before");
        client.stores(other, b"untouched");
        let version = client.may_read(other).unwrap().version;
        let writable = client.may_write(file, 6).unwrap();
        client.writes(&writable, 0, b"half").unwrap();
        (file, other, version)
    };
    cell.restart_manager();
    let client = Client::attach(&cell);
    // The one before is waited for as long as its lease: that of the new one may be over, too.
    let readable = match client.may_read(file) {
        Err(ClientError::Manager(ManagerStatus::NoSession)) => {
            client.attach_again();
            client.may_read(file).unwrap()
        }
        told => told.unwrap(),
    };
    assert_eq!(client.reads(&readable).unwrap(), b"halfre");
    assert_eq!(client.may_read(other).unwrap().version, version, "what was read of it is good");
}

#[test]
fn a_drive_that_was_cut_off_is_told_again_what_it_has_lost() {
    let mut cell = cell(LONG_LEASE);
    let manager = cell.client("host:one");
    let (file, before) = {
        let client = Client { cell: &cell, manager: manager.clone(), seen: 0 };
        client.attach_again();
        let file = client.make("file");
        client.manager.commit(&Caller::ROOT, file).unwrap();
        (file, client.stores(file, b"stored"))
    };
    cell.drives[0].stop();
    cell.drives[0].start();
    let client = Client { cell: &cell, manager, seen: 0 };
    let readable = client.may_read(file).unwrap();
    assert_eq!(readable.version, before.version);
    assert_eq!(client.reads(&readable).unwrap(), b"stored");
}

#[test]
fn what_does_not_go_is_refused() {
    let cell = cell(LONG_LEASE);
    let client = Client::attach(&cell);
    let file = client.make("file");
    let is = |error: ClientError, status| {
        assert!(matches!(&error, ClientError::Manager(told) if *told == status), "{error}");
    };
    is(client.returns(file, 1).unwrap_err(), ManagerStatus::Invalid);
    is(client.returns(file, 2).unwrap_err(), ManagerStatus::Invalid);
    is(client.may_write(client.root(), 1).unwrap_err(), ManagerStatus::IsDirectory);
    is(client.may_write(file, u64::MAX).unwrap_err(), ManagerStatus::TooLarge);
    let stranger = GetcapArguments { file, client: 4711, contents: false };
    is(
        client.manager.get_capability(&Caller::ROOT, &stranger).unwrap_err(),
        ManagerStatus::NoSession,
    );
    let user = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
    let (number, root) = (client.manager.number(), client.root());
    let private = client.manager.create(&Caller::ROOT, root, b"private", 0o600, true).unwrap();
    let private = private.reply.handle;
    let asked =
        GetwcapArguments { file: private, client: number, least_end: 1, best_end: 1, cut: None };
    is(client.manager.get_write_capability(&user, &asked).unwrap_err(), ManagerStatus::Access);
    // Nor does he return what may be another one's store.
    let returned = ReturncapArguments { file: private, client: number, version: 1 };
    is(client.manager.return_capability(&user, &returned).unwrap_err(), ManagerStatus::Access);
    let readable = client
        .manager
        .get_capability(&user, &GetcapArguments { file: private, client: number, contents: false })
        .unwrap();
    assert!(client.reads(&readable).is_err(), "attributes are anybody's, contents are not");
    is(
        client.manager.forward_getattr(&Caller::ROOT, file).unwrap_err(),
        ManagerStatus::NotSupported,
    );

    let nfs = Cell::new(1);
    let client = Client::attach(&nfs);
    let file = client.make("file");
    is(client.may_read(file).unwrap_err(), ManagerStatus::NotSupported);
    is(client.may_write(file, 1).unwrap_err(), ManagerStatus::NotSupported);
    is(client.returns(file, 1).unwrap_err(), ManagerStatus::NotSupported);
}

#[test]
fn a_file_that_is_stored_can_be_removed_and_so_ends_the_store() {
    let cell = cell(LONG_LEASE);
    let client = Client::attach(&cell);
    let file = client.make("file");
    let writable = client.may_write(file, 6).unwrap();
    client.manager.unlink(&Caller::ROOT, client.root(), b"file", None).unwrap();
    let error = client.returns(file, writable.version).unwrap_err();
    assert!(matches!(error, ClientError::Manager(ManagerStatus::Stale)), "{error}");
}

#[test]
fn stores_of_many_clients_are_one_after_the_other() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 8;
    let cell = cell(LONG_LEASE);
    let file = Client::without_session(&cell).make("file");
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let cell = &cell;
            scope.spawn(move || {
                let (client, mut listener) = {
                    let client = Client::attach(cell);
                    let listener = Client { cell, manager: client.manager.clone(), seen: 0 };
                    (client, listener)
                };
                let (stop, stopped) = mpsc::channel::<()>();
                let listens: JoinHandle<()> = {
                    let manager = listener.manager.clone();
                    thread::spawn(move || {
                        let mut seen = 0;
                        while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                            let client = manager.number();
                            let asked =
                                EventsArguments { client, seen, open: Vec::new(), wait: true };
                            let page = manager.events(&Caller::ROOT, &asked).unwrap();
                            seen = page.first + page.events.len() as u64 - 1;
                        }
                    })
                };
                for round in 0..ROUNDS {
                    let text = [number as u8 * 16 + round as u8; 4096];
                    client.stores(file, &text);
                    let readable = client.may_read(file).unwrap();
                    if let Ok(data) = client.reads(&readable) {
                        assert!(data.iter().all(|byte| *byte == data[0]), "half of a store");
                    }
                }
                drop(stop);
                listener.seen = 0;
                client.manager.detach(&Caller::ROOT, client.manager.number()).unwrap_or(());
                drop(listens);
            });
        }
    });
}

#[test]
fn who_makes_a_file_holds_a_callback_on_it() {
    let cell = cell(LONG_LEASE);
    let (mut maker, other) = (Client::attach(&cell), Client::attach(&cell));
    let made = maker.manager.create(&Caller::ROOT, maker.root(), b"file", 0o666, true).unwrap();
    let file = made.reply.handle;
    assert_eq!(made.promised, Some(0));
    assert_eq!(other.may_read(file).unwrap().version, 0);
    let again = maker.manager.create(&Caller::ROOT, maker.root(), b"file", 0o666, false).unwrap();
    assert_eq!((again.reply.handle, again.promised), (file, None), "it was there");
    thread::scope(|scope| {
        let (stores, done) = beside(scope, || other.stores(file, b"text"));
        assert_eq!(maker.events(true), [Event::Broken(file, 1)]);
        assert!(done.recv_timeout(A_WHILE).is_err());
        maker.events(false);
        assert!(stores.join().unwrap().promised);
    });
}

#[test]
fn a_drive_that_has_what_was_stored_has_the_version_that_it_was_stored_under() {
    let mut cell = cell(LONG_LEASE);
    let manager = cell.client("host:one");
    let file = {
        let client = Client { cell: &cell, manager: manager.clone(), seen: 0 };
        client.attach_again();
        client.make("file")
    };
    let mut least = 0;
    for round in 0..8_u8 {
        {
            let client = Client { cell: &cell, manager: manager.clone(), seen: 0 };
            client.stores(file, &[round; 9000]);
            let writable = client.may_write(file, 9000).unwrap();
            client.writes(&writable, 0, &[round; 9000]).unwrap();
            least = writable.version;
        }
        cell.drives[0].stop();
        cell.drives[0].start();
        let drive = cell.drive(DriveId(1));
        let told = cell.keyring.as_manager(DriveId(1), |key| drive.getattr(key, file.name()));
        let told = told.unwrap();
        assert!(told.access_control_version >= least, "{} {least}", told.access_control_version);
        let client = Client { cell: &cell, manager: manager.clone(), seen: 0 };
        client.returns(file, least).unwrap();
    }
    assert_eq!(least, 8 * 4 - 1);
}

impl Client<'_> {
    fn may_read_all(
        &self,
        file: FileHandle,
        neighbours: &[FileHandle],
    ) -> Result<Readables, ClientError> {
        let (client, neighbours) = (self.manager.number(), neighbours.to_vec());
        let asked = GetcapsArguments { file, client, neighbours };
        self.manager.get_capabilities(&Caller::ROOT, &asked)
    }
}

fn handles(told: &Readables) -> Vec<FileHandle> {
    assert!(told.neighbours.iter().all(|each| each.promised));
    let mut handles: Vec<FileHandle> =
        told.neighbours.iter().map(|each| each.file.handle).collect();
    handles.sort();
    handles
}

#[test]
fn one_question_brings_callbacks_on_several_files() {
    let cell = cell(LONG_LEASE);
    let (writer, mut reader) = (Client::attach(&cell), Client::attach(&cell));
    let files: Vec<FileHandle> = (0..6).map(|number| writer.make(&format!("{number}"))).collect();
    files.iter().for_each(|file| drop(writer.stores(*file, b"before")));
    let directory = {
        let made = writer.manager.mkdir(&Caller::ROOT, writer.root(), b"directory", 0o777);
        made.unwrap().reply.handle
    };
    let elsewhere = FileHandle { drive: DriveId(77), ..files[1] };
    let nothing = FileHandle { object: ObjectId(1 << 40), ..files[1] };
    let control = FileHandle { object: ObjectId::PARTITION_CONTROL, ..files[1] };
    // Somebody stores it: who asks for another one does not wait for that, and does not keep him from going on.
    let writable = writer.may_write(files[5], 5).unwrap();
    let others = [&files[..], &files[1..3], &[directory, elsewhere, nothing, control]].concat();
    let told = reader.may_read_all(files[0], &others).unwrap();
    assert!(told.file.promised && told.file.file.handle == files[0]);
    assert_eq!(handles(&told), files[1..5]);
    for each in &told.neighbours {
        assert_eq!(
            (reader.reads(each).unwrap(), each.file.attributes.size),
            (b"before".to_vec(), 6)
        );
    }
    assert!(writer.may_write(files[5], 9).is_ok_and(|again| again.version == writable.version));
    // Each is a callback as any other.
    thread::scope(|scope| {
        let (stores, stored) = beside(scope, || writer.stores(files[3], b"after"));
        let events = reader.events(true);
        assert_eq!(events, [Event::Broken(files[3], told.file.version + 1)]);
        assert!(stored.recv_timeout(A_WHILE).is_err());
        assert_eq!(reader.events(false), []);
        assert!(stores.join().unwrap().promised);
    });
    assert!(
        told.neighbours
            .iter()
            .all(|each| { reader.reads(each).is_ok() != (each.file.handle == files[3]) })
    );
}

#[test]
fn neighbours_are_told_as_they_are_after_any_change() {
    let cell = cell(LONG_LEASE);
    let (changer, reader) = (Client::without_session(&cell), Client::attach(&cell));
    let files: Vec<FileHandle> = (0..3).map(|number| changer.make(&format!("{number}"))).collect();
    for round in 1..20_u32 {
        let told = reader.may_read_all(files[0], &files[1..]).unwrap();
        assert_eq!(handles(&told), files[1..]);
        // The first is stored, as mode and owner decide who may do what; the second is not.
        let change = SetFileAttributes { mode: Some(0o600 + round), ..Default::default() };
        // Else the changes would wait for it.
        reader.manager.detach(&Caller::ROOT, reader.manager.number()).unwrap();
        changer.manager.setattr(&Caller::ROOT, files[1], &change).unwrap();
        let name = format!("link {round}");
        changer.manager.link(&Caller::ROOT, files[2], changer.root(), name.as_bytes()).unwrap();
        reader.attach_again();
        let told = reader.may_read_all(files[0], &files[1..]).unwrap();
        let of = |file: FileHandle| {
            let found = told.neighbours.iter().find(|each| each.file.handle == file);
            found.unwrap().file.attributes
        };
        assert_eq!((of(files[1]).mode, of(files[2]).links), (0o600 + round, 1 + round));
    }
}

#[test]
fn who_may_not_read_a_neighbour_gets_no_capability_to_read_it() {
    let cell = cell(LONG_LEASE);
    let (maker, reader) = (Client::without_session(&cell), Client::attach(&cell));
    let (first, private) = (maker.make("first"), maker.make("private"));
    let change = SetFileAttributes { mode: Some(0o600), ..SetFileAttributes::default() };
    maker.manager.setattr(&Caller::ROOT, private, &change).unwrap();
    let user = Caller { uid: 1000, gid: 1000, groups: Vec::new() };
    let client = reader.manager.number();
    let asked = GetcapsArguments { file: first, client, neighbours: vec![private] };
    let told = reader.manager.get_capabilities(&user, &asked).unwrap();
    assert!(reader.reads(&told.file).is_ok());
    assert!(told.neighbours.iter().all(|each| reader.reads(each).is_err()));
    // Nothing is promised to who has no session.
    let stranger = GetcapsArguments { client: 4711, ..asked };
    assert!(matches!(
        reader.manager.get_capabilities(&user, &stranger),
        Err(ClientError::Manager(ManagerStatus::NoSession))
    ));
}

#[test]
fn neighbours_of_a_file_that_is_gone_are_not_held_up_by_that() {
    let cell = cell(LONG_LEASE);
    let (writer, reader) = (Client::attach(&cell), Client::attach(&cell));
    let other = writer.make("other");
    let gone = FileHandle { object: ObjectId(1 << 40), ..other };
    let refused = reader.may_read_all(gone, &[other]).unwrap_err();
    assert!(matches!(refused, ClientError::Manager(ManagerStatus::Stale)), "{refused}");
    assert!(reader.may_read_all(other, &[gone]).unwrap().neighbours.is_empty());
    assert!(reader.may_read(other).unwrap().promised);
}

#[test]
fn who_makes_a_file_may_store_it_with_that() {
    let cell = cell(LONG_LEASE);
    let (maker, other) = (Client::attach(&cell), Client::attach(&cell));
    for text in [&b"stored"[..], b""] {
        let begun = maker.begins(&format!("file {}", text.len()));
        let file = begun.file.handle;
        assert!(begun.version % 2 == 1 && begun.end > 1 << 40);
        thread::scope(|scope| {
            let (reads, done) = beside(scope, || other.may_read(file).unwrap());
            assert!(done.recv_timeout(A_WHILE).is_err(), "it waits for the store");
            if !text.is_empty() {
                maker.writes(&begun, 0, text).unwrap();
            }
            let returned = maker.returns(file, begun.version).unwrap();
            assert!(returned.promised && returned.version == begun.version + 1);
            assert_eq!(returned.file.attributes.size, text.len() as u64);
            let readable = reads.join().unwrap();
            assert_eq!((other.reads(&readable).unwrap(), readable.version), (text.to_vec(), 2));
        });
        assert!(maker.writes(&begun, 0, b"late").is_err());
    }
}

#[test]
fn a_file_begins_with_a_store_only_where_that_may_be() {
    let cell = cell(LONG_LEASE);
    let (maker, stranger) = (Client::attach(&cell), Client::without_session(&cell));
    let create = |client: &Client<'_>, name: &[u8], exclusive| {
        let root = client.root();
        client.manager.create_to_store(&Caller::ROOT, root, name, 0o666, exclusive).unwrap()
    };
    let begun = maker.begins("file");
    let again = create(&maker, b"file", false);
    assert_eq!((again.reply.handle, again.begun, again.promised), (begun.file.handle, None, None));
    let made = create(&stranger, b"other", true);
    assert_eq!((made.begun, made.promised), (None, None), "it has no session");
    // Who does not ask for that is promised what the file is.
    let made = maker.manager.create(&Caller::ROOT, maker.root(), b"third", 0o666, true).unwrap();
    assert_eq!((made.begun, made.promised), (None, Some(0)));
    assert!(maker.manager.create_to_store(&Caller::ROOT, maker.root(), b"file", 0, true).is_err());
    let directory = maker.manager.mkdir(&Caller::ROOT, maker.root(), b"d", 0o777).unwrap();
    assert_eq!((directory.begun, directory.promised), (None, Some(0)));
    // What was refused is used for the next one.
    assert_eq!(maker.begins("fourth").version, 1);
    maker.manager.unlink(&Caller::ROOT, maker.root(), b"fourth", None).unwrap();
    assert!(maker.manager.create_to_store(&Caller::ROOT, maker.root(), b"fourth", 0, true).is_ok());
}

#[test]
fn who_makes_a_file_and_dies_delays_others_no_longer_than_its_lease() {
    let lease = Duration::from_secs(2);
    let cell = cell(lease);
    let (maker, other) = (Client::attach(&cell), Client::attach(&cell));
    let begun = maker.begins("file");
    maker.writes(&begun, 0, b"half").unwrap();
    let since = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Client { seen: 0, manager: other.manager.clone(), ..other };
            while since.elapsed() < lease * 2 {
                other.events(false);
                thread::sleep(A_WHILE);
            }
        });
        let readable = other.may_read(begun.file.handle).unwrap();
        assert!(since.elapsed() < lease * 2, "{:?}", since.elapsed());
        assert_eq!((other.reads(&readable).unwrap(), readable.version), (b"half".to_vec(), 2));
        assert!(maker.writes(&begun, 0, b"late").is_err());
    });
}

#[test]
fn a_manager_that_starts_anew_ends_what_files_have_begun_with() {
    let mut cell = cell(Duration::from_secs(2));
    let files = {
        let maker = Client::attach(&cell);
        let (used, unused) = (maker.begins("used"), maker.begins("unused"));
        maker.writes(&used, 0, b"half").unwrap();
        maker.manager.commit(&Caller::ROOT, used.file.handle).unwrap();
        [used, unused]
    };
    cell.restart_manager();
    let client = Client::attach(&cell);
    for (begun, expected) in files.iter().zip([&b"half"[..], b""]) {
        let file = begun.file.handle;
        let readable = loop {
            match client.may_read(file) {
                Err(ClientError::Manager(ManagerStatus::NoSession)) => client.attach_again(),
                told => break told.unwrap(),
            }
        };
        assert_eq!((client.reads(&readable).unwrap(), readable.version), (expected.to_vec(), 2));
        assert!(client.writes(begun, 0, b"late").is_err());
        client.stores(file, b"anew");
    }
}
