//! Sessions of clients with a real manager, over TLS: locks change hands, and die with their client.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

#[allow(dead_code)] // Other tests use the rest.
#[path = "support/cell.rs"]
mod setup;
mod support;

use std::thread;
use std::time::{Duration, Instant};

use nasd_client::{Caller, ClientError, ManagerClient, RetryPolicy};
use nasd_protocol::ManagerStatus;
use nasd_protocol::manager::{
    AttachArguments, Event, EventsArguments, FileHandle, HeldLock, LockAnswer, LockArguments,
    LockKind, LockMode, UnlockArguments,
};
use setup::Cell;

/// Where a test waits for its end.
const LEASE: Duration = Duration::from_secs(9);
/// Where nothing is to end before the test does.
const LONG_LEASE: Duration = Duration::from_secs(60);

struct Client {
    number: u64,
    manager: ManagerClient,
}

impl Client {
    fn attach(cell: &Cell, number: u64) -> Client {
        let manager = cell.client("host:one");
        let attach = AttachArguments { client: number, ..AttachArguments::default() };
        let attached = manager.attach(&Caller::ROOT, &attach).unwrap();
        assert_eq!(attached.lease, cell.config.sessions.lease.as_nanos() as u64);
        assert_eq!(attached.lost, []);
        Client { number, manager }
    }

    fn lock_of(&self, file: FileHandle) -> HeldLock {
        HeldLock {
            file,
            kind: LockKind::Posix,
            owner: 1,
            first: 0,
            last: 99,
            mode: LockMode::Exclusive,
            process: 4711,
        }
    }

    fn lock(&self, file: FileHandle, wait: bool) -> Result<LockAnswer, ClientError> {
        let lock = self.lock_of(file);
        self.manager.lock(&Caller::ROOT, &LockArguments { client: self.number, lock, wait })
    }

    fn events(&self, seen: u64) -> Result<Vec<Event>, ClientError> {
        let asked = EventsArguments { client: self.number, seen, open: Vec::new(), wait: true };
        self.manager.events(&Caller::ROOT, &asked).map(|page| page.events)
    }

    fn unlock(&self, file: FileHandle) {
        let HeldLock { kind, owner, first, last, .. } = self.lock_of(file);
        let client = self.number;
        let held = UnlockArguments { client, file, kind, owner, first, last, only_waiting: false };
        self.manager.unlock(&Caller::ROOT, &held).unwrap();
    }
}

fn cell(lease: Duration) -> (Cell, FileHandle) {
    let cell = Cell::with(1, |config| config.sessions.lease = lease);
    let root = cell.client("host:one").volume(&Caller::ROOT, b"home").unwrap().root.handle;
    let file = cell.client("host:one").create(&Caller::ROOT, root, b"file", 0o644, true).unwrap();
    (cell, file.handle)
}

#[test]
fn a_lock_goes_to_who_waits_for_it_at_once() {
    let (cell, file) = cell(LONG_LEASE);
    let most = Duration::from_millis(225);
    let mut quickest = Duration::MAX;
    // A machine that has other work as well may hold it up once.
    for first in [1, 3, 5, 7, 9] {
        quickest = quickest.min(time_until_free(&cell, file, first));
        if quickest < most {
            break;
        }
    }
    assert!(quickest < most, "{quickest:?}");
}

/// How long a client waits for a lock that another one gives back, the numbers of both being new.
fn time_until_free(cell: &Cell, file: FileHandle, first: u64) -> Duration {
    let (one, two) = (Client::attach(cell, first), Client::attach(cell, first + 1));
    assert_eq!(one.lock(file, false).unwrap(), LockAnswer::Granted);
    let expected = LockAnswer::Queued(one.lock_of(file));
    assert_eq!(two.lock(file, true).unwrap(), expected);
    let waiter = thread::spawn(move || {
        let mut events = two.events(0).unwrap();
        while events.is_empty() {
            events = two.events(0).unwrap();
        }
        assert_eq!(events, [Event::LockFree(file, LockKind::Posix)]);
        let told = Instant::now();
        assert_eq!(two.lock(file, true).unwrap(), LockAnswer::Granted);
        two.unlock(file);
        told
    });
    thread::sleep(Duration::from_millis(100));
    assert!(!waiter.is_finished());
    let freed = Instant::now();
    one.unlock(file);
    waiter.join().unwrap() - freed
}

#[test]
fn locks_of_a_client_that_died_are_free_within_its_lease() {
    let (cell, file) = cell(LEASE);
    let not_heard_before = Instant::now();
    let (one, two) = (Client::attach(&cell, 1), Client::attach(&cell, 2));
    assert_eq!(one.lock(file, false).unwrap(), LockAnswer::Granted);
    let died = Instant::now();
    let mut answer = two.lock(file, true).unwrap();
    while answer != LockAnswer::Granted {
        assert!(died.elapsed() < LEASE * 2);
        two.events(1).unwrap();
        answer = two.lock(file, true).unwrap();
    }
    let since = not_heard_before.elapsed();
    assert!(since >= LEASE, "{since:?}");
    let error = one.lock(file, false).unwrap_err();
    assert!(matches!(error, ClientError::Manager(ManagerStatus::NoSession)), "{error}");
    // Its number is still its own.
    let again =
        AttachArguments { client: 1, locks: vec![one.lock_of(file)], ..AttachArguments::default() };
    assert_eq!(one.manager.attach(&Caller::ROOT, &again).unwrap().lost, [0]);
}

#[test]
fn locks_outlive_the_manager() {
    let (mut cell, file) = cell(LEASE);
    let (one, two) = (Client::attach(&cell, 1), Client::attach(&cell, 2));
    assert_eq!(one.lock(file, false).unwrap(), LockAnswer::Granted);
    cell.restart_manager();
    let error = one.lock(file, false).unwrap_err();
    assert!(matches!(error, ClientError::Manager(ManagerStatus::NoSession)), "{error}");
    for (client, locks) in [(&two, Vec::new()), (&one, vec![one.lock_of(file)])] {
        let claims = AttachArguments { client: client.number, locks, ..AttachArguments::default() };
        assert_eq!(client.manager.attach(&Caller::ROOT, &claims).unwrap().lost, []);
    }
    // New locks are granted when nobody else may come back any more.
    let begin = Instant::now();
    thread::scope(|scope| {
        for client in [&one, &two] {
            scope.spawn(move || {
                while begin.elapsed() < LEASE {
                    assert_eq!(client.events(0).unwrap(), []);
                }
            });
        }
    });
    assert_eq!(two.lock(file, false).unwrap(), LockAnswer::Denied(one.lock_of(file)));
}

#[test]
fn a_manager_stops_at_once_although_clients_wait() {
    let (mut cell, _) = cell(LONG_LEASE);
    let one = Client::attach(&cell, 1);
    let manager = one.manager.with_retry(RetryPolicy::none());
    let waiting = thread::spawn(move || Client { number: 1, manager }.events(0));
    thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    assert!(cell.manager.take().unwrap().shut_down(Duration::from_secs(5)));
    // Nobody waited for the third of a lease that a client may wait.
    assert!(begin.elapsed() < LONG_LEASE / 30, "{:?}", begin.elapsed());
    waiting.join().unwrap().ok();
}
