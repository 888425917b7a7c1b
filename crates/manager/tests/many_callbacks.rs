//! Ten thousand clients that hold a million callbacks of one manager: how long it takes until those who hold one on a file know of a
//! store or a change of it, and what callbacks take in memory. The clients' connections are threads.
//! `cargo test -p nasd-manager --test many_callbacks -- --nocapture` prints what it measures.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nasd_afs::callbacks::Reading;
use nasd_manager::sessions::callbacks::{DriveWork, Turn};
use nasd_manager::sessions::hub::SessionHub;
use nasd_manager::sessions::{Claims, SessionError, SessionTimes, Sessions};
use nasd_protocol::manager::{Event, FileHandle};
use nasd_types::{DriveId, ObjectId, PartitionId};

/// Counts what is taken and not given back, with what an allocator keeps for itself of each piece.
struct Counting;

thread_local! {
    /// What each thread took less what it gave back: what other threads do does not count.
    static TAKEN: Cell<isize> = const { Cell::new(0) };
}

/// As glibc's does it: eight bytes more, in steps of sixteen.
const fn pieces(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16).cast_signed()
}

fn count(bytes: isize) {
    // A thread that ends has none any more.
    TAKEN.try_with(|taken| taken.set(taken.get() + bytes)).ok();
}

// SAFETY: everything is done by the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(pieces(layout.size()));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-pieces(layout.size()));
        // SAFETY: as the caller says.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What is measured is not to be disturbed by the other measurements.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MEMBER: &str = "host:simulated";
const CLIENTS: u64 = 10_000;
/// Clients that hold a callback on the file that is stored.
const HOLDERS: u64 = 1000;
/// Files that each client holds callbacks on besides.
const FILES: u64 = 100;
/// Nobody is given up here for being slow.
const LEASE: Duration = Duration::from_secs(3600);
/// Stores that end at once, of files that all those hold.
const AT_ONCE: u64 = 64;
const ROUNDS: usize = 11;
/// What is asked for of the quickest round, which no other program of the machine has slowed down; others may take a little longer.
const BAR: Duration = Duration::from_millis(100);

const fn file(number: u64) -> FileHandle {
    let (drive, partition) = (DriveId(number % 7), PartitionId(3));
    FileHandle { drive, partition, object: ObjectId(number) }
}

/// The file that is stored and changed.
const SHARED: FileHandle = file(u64::MAX);

/// With a session of each client: the first is 1.
fn hub_of(clients: u64) -> Arc<SessionHub> {
    let hub = Arc::new(SessionHub::new(SessionTimes { lease: LEASE }, HashSet::new()));
    for client in 1..=clients {
        hub.with(|all, now| all.attach(client, MEMBER, &Claims::default(), now)).unwrap();
    }
    hub
}

/// A client reads a file, whose drive answers at once.
fn read(hub: &SessionHub, client: u64, file: FileHandle) {
    let read = hub.with(|all, now| match all.may_read(client, MEMBER, file, now).unwrap() {
        Turn::Work(DriveWork::Ask(file)) => {
            all.found(file, Some(2));
            all.may_read(client, MEMBER, file, now).unwrap()
        }
        turn => turn,
    });
    assert!(matches!(read, Turn::Done(Reading::Promised(_))), "{read:?}");
}

/// Asks until there is an answer; drives do at once what they are told.
fn turn<T>(
    hub: &SessionHub,
    mut ask: impl FnMut(&mut Sessions, Duration) -> Result<Turn<T>, SessionError>,
) -> T {
    loop {
        match hub.turn(Instant::now() + LEASE, &mut ask).unwrap() {
            Turn::Done(answer) => return answer,
            Turn::Work(DriveWork::Ask(file)) => hub.with(|all, _| all.found(file, Some(2))),
            Turn::Work(DriveWork::Advance { file, to, .. }) => {
                hub.with(|all, now| all.advanced(file, to, now));
            }
            Turn::Wait => panic!("nobody is waited for so long"),
        }
    }
}

/// A connection that listens, as a client's does, until the hub is closed.
fn listen(hub: &SessionHub, client: u64, known: &AtomicUsize, closing: &AtomicBool) {
    let mut seen = 0;
    while !closing.load(Ordering::Acquire) {
        hub.with(|all, now| all.acknowledge(client, MEMBER, seen, &[], now)).unwrap();
        let (first, events) = hub.wait_for_events(client, MEMBER).unwrap();
        let is_told = |event: &Event| matches!(event, Event::Broken(..) | Event::Changed(SHARED));
        assert!(events.iter().all(is_told));
        known.fetch_add(events.len(), Ordering::AcqRel);
        seen = first + events.len() as u64 - 1;
    }
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!("{what}: {median:?}, {least:?} to {most:?} (bar: {BAR:?})");
    assert!(least < BAR && median < 5 * BAR, "{what}: {least:?}, {median:?}");
}

/// Stores, and how long each took from when it was returned until everybody knew and it was done.
fn stores(hub: &SessionHub, known: &AtomicUsize) -> Vec<Duration> {
    let writer = HOLDERS + 1;
    let store = |round: usize| {
        let before = known.load(Ordering::Acquire);
        (1..=HOLDERS).for_each(|client| read(hub, client, SHARED));
        let version = turn(hub, |all, now| all.may_write(writer, MEMBER, SHARED, now));
        let (begun, mut is_noted) = (Instant::now(), false);
        let is_promised = turn(hub, |all, now| {
            all.returned((writer, MEMBER), SHARED, version, &mut is_noted, now)
        });
        let took = begun.elapsed();
        hub.with(|all, _| all.end_return(writer, SHARED, version));
        assert!(is_promised, "{round}");
        assert_eq!(known.load(Ordering::Acquire) - before, HOLDERS as usize);
        took
    };
    (0..ROUNDS).map(store).collect()
}

/// Some clients store a file each at once, all of which are held by all holders: how long until all is done.
fn stores_at_once(hub: &Arc<SessionHub>, known: &AtomicUsize) -> Duration {
    let before = known.load(Ordering::Acquire);
    let begin = |writer| {
        let file = file(writer * FILES);
        (1..=HOLDERS).for_each(|client| read(hub, client, file));
        (writer, file, turn(hub, |all, now| all.may_write(writer, MEMBER, file, now)))
    };
    let begun: Vec<_> = (HOLDERS + 1..=HOLDERS + AT_ONCE).map(begin).collect();
    let start = Instant::now();
    let end = |(writer, file, version)| {
        let hub = Arc::clone(hub);
        thread::spawn(move || {
            let mut is_noted = false;
            turn(&hub, |all, now| all.returned((writer, MEMBER), file, version, &mut is_noted, now))
        })
    };
    let ends: Vec<_> = begun.into_iter().map(end).collect();
    assert!(ends.into_iter().all(|end| end.join().unwrap()));
    let took = start.elapsed();
    assert_eq!(known.load(Ordering::Acquire) - before, (AT_ONCE * HOLDERS) as usize);
    took
}

/// Changes of its attributes by the manager, and how long each took until it could be made.
fn changes(hub: &SessionHub, known: &AtomicUsize) -> Vec<Duration> {
    let changer = HOLDERS + 1;
    let change = |_| {
        let before = known.load(Ordering::Acquire);
        (1..=HOLDERS).for_each(|client| read(hub, client, SHARED));
        let begun = Instant::now();
        drop(hub.change(changer, MEMBER, vec![SHARED]).unwrap());
        let took = begun.elapsed();
        assert_eq!(known.load(Ordering::Acquire) - before, HOLDERS as usize);
        took
    };
    (0..ROUNDS).map(change).collect()
}

#[test]
fn a_thousand_who_hold_a_callback_are_told() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let hub = hub_of(CLIENTS);
    for client in 1..=CLIENTS {
        (0..FILES).for_each(|number| read(&hub, client, file(client * FILES + number)));
    }
    let (known, closing) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let listener = |client| {
        let (hub, known, closing) = (Arc::clone(&hub), Arc::clone(&known), Arc::clone(&closing));
        let small = thread::Builder::new().stack_size(128 << 10);
        small.spawn(move || listen(&hub, client, &known, &closing)).unwrap()
    };
    let listeners: Vec<_> = (1..=HOLDERS).map(listener).collect();
    let held = hub.with(|all, _| all.counts()).callbacks;
    println!("{CLIENTS} clients, {held} callbacks, {HOLDERS} listen");
    let (stored, changed) = (stores(&hub, &known), changes(&hub, &known));
    let at_once = stores_at_once(&hub, &known);
    closing.store(true, Ordering::Release);
    hub.close();
    listeners.into_iter().for_each(|listener| listener.join().unwrap());
    tell("a store, from its return until it is done", stored);
    tell("a change, until it may be made", changed);
    println!("{AT_ONCE} stores of files that those hold, at once: {at_once:?} until all are done");
    assert!(at_once < 30 * BAR, "{at_once:?}");
}

/// Bytes that each callback takes, of so many clients that hold so many each, shared with so many others; and each that is broken, with
/// the event that tells of it.
fn bytes_each(clients: u64, files: u64, holders: u64) -> (usize, usize) {
    let hub = hub_of(clients);
    let before = TAKEN.get();
    for client in 1..=clients {
        let group = (client - 1) / holders * files;
        (0..files).for_each(|number| read(&hub, client, file(group + number)));
    }
    let count = (clients * files) as usize;
    assert_eq!(hub.with(|all, _| all.counts()).callbacks, count);
    let held = TAKEN.get() - before;
    for number in 0..clients.div_ceil(holders) * files {
        hub.with(|all, now| {
            let file = file(number);
            assert!(matches!(all.may_store(file, now), Ok(Turn::Work(_))));
            all.advanced(file, 3, now);
            assert!(matches!(all.may_store(file, now), Ok(Turn::Done(3))));
            all.end_store(file, 3);
            assert!(matches!(all.settled(file, 3), Turn::Work(_)));
            all.advanced(file, 4, now);
        });
    }
    let broken = TAKEN.get() - before;
    (held.unsigned_abs().div_ceil(count), broken.unsigned_abs().div_ceil(count))
}

/// Clients, files that each holds a callback on, and clients that hold one on each file. Tables double: a little beyond that is the
/// worst.
const SPREADS: [(u64, u64, u64); 9] = [
    (CLIENTS, FILES, 1),
    (CLIENTS, 113, 1),
    (1, 120_000, 1),
    (CLIENTS, FILES, 2),
    (CLIENTS, FILES, 1000),
    (CLIENTS, 1, 1),
    (CLIENTS, 2, 1),
    (CLIENTS, 17, 1),
    (CLIENTS, 1, 1000),
];

#[test]
fn a_session_without_callbacks_takes_little() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = TAKEN.get();
    let hub = hub_of(CLIENTS);
    let bytes = (TAKEN.get() - before).unsigned_abs().div_ceil(CLIENTS as usize);
    println!("a session takes {bytes} bytes, without callbacks and events");
    assert_eq!(hub.with(|all, _| all.counts()).sessions, CLIENTS as usize);
    assert!(bytes < 1000, "{bytes}");
}

#[test]
fn a_callback_takes_less_than_200_bytes() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for (clients, files, holders) in SPREADS {
        let (held, broken) = bytes_each(clients, files, holders);
        println!(
            "{clients} clients, {files} files each, {holders} hold each: {held} bytes a callback (bar: 200); \
             {broken} while all are broken and nobody has been told"
        );
        assert!(held < 200, "{held}");
    }
}
