//! Revocation by the access control version, while eight clients work as fast as they can: no request
//! that is sent after the answer to the change succeeds.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_capability::{SecretKey, capability_key};
use nasd_client::{Authority, ConnectOptions, DriveClient, RetryPolicy};
use nasd_drive::DriveOptions;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    FlushpartitionArguments, GetattrArguments, Procedure, ReadArguments, SetattrArguments,
    WriteArguments,
};
use nasd_protocol::manager::IssuedCapability;
use nasd_transport::{ClientOptions, Connection};
use nasd_types::{ObjectName, Protection, SetAttributes};

const OBJECT_BYTES: usize = 48 << 20;
const BLOCK: usize = 4096;
/// How many times the object's capabilities are revoked.
const ROUNDS: u64 = 6;
/// How long clients work at least before a capability is revoked, and after it, and with how many requests.
const BEFORE: Duration = Duration::from_millis(120);
const SUCCEED_BEFORE: usize = 100;
const AFTER: Duration = Duration::from_millis(80);
const TRIED_AFTER: usize = 50;
/// Requests of a client that has several on their way.
const DEPTH: usize = 16;

/// A request: when it was sent, and whether it succeeded.
struct Tried {
    sent: Instant,
    succeeded: bool,
}

/// How far all clients are.
#[derive(Default)]
struct Progress {
    succeeded: AtomicUsize,
    is_revoked: AtomicBool,
    /// Requests that were sent after `is_revoked` was seen, and are answered.
    tried_since: AtomicUsize,
    over: AtomicBool,
}

impl Progress {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    fn note(&self, was_revoked: bool, succeeded: bool) {
        self.succeeded.fetch_add(usize::from(succeeded), Ordering::Relaxed);
        self.tried_since.fetch_add(usize::from(was_revoked), Ordering::Relaxed);
    }
}

/// Ends the clients, also where the test fails: they would be waited for.
struct Ends<'a>(&'a Progress);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Waits for so long, and until more than so many are counted, however slow the machine is.
fn wait_for(count: &AtomicUsize, more_than: usize, least: Duration) {
    let began = Instant::now();
    while began.elapsed() < least || count.load(Ordering::Relaxed) <= more_than {
        assert!(began.elapsed() < Duration::from_secs(60), "the clients don't come on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An object that is not in the cache, so that reads wait for the medium, many of them together.
fn cold_object() -> (TestDrive, ObjectName) {
    let device = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let name = drive.new_object();
    let data = pattern(1, 4 << 20);
    for offset in (0..OBJECT_BYTES).step_by(data.len()) {
        drive.write(name, offset as u64, &data);
    }
    let flush = FlushpartitionArguments { partition: PARTITION };
    assert!(drive.by(Signer::working(), Procedure::Flushpartition, &flush).status.is_none());
    drop(drive);
    (TestDrive::on(device, DriveOptions::default(), START + 3600 * SECOND), name)
}

/// Where a client reads next.
fn scattered(client: usize, number: usize) -> u64 {
    let blocks = OBJECT_BYTES / BLOCK;
    ((client * 7919 + number * 104_729) % blocks * BLOCK) as u64
}

/// Half of each kind of clients make private calls.
fn protection_of(client: usize) -> Protection {
    match client % 4 {
        0 | 1 => Protection::INTEGRITY_ARGS,
        _ => Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS,
    }
}

/// One request after the other: reads, writes and getattrs.
fn one_by_one(
    drive: &TestDrive,
    name: ObjectName,
    signer: &Signer,
    client: usize,
    progress: &Progress,
) -> Vec<Tried> {
    let protection = protection_of(client);
    let address = drive.server().address();
    let connect = || Connection::tcp(address, &ClientOptions::default()).unwrap();
    let mut channel = connect();
    let mut tried = Vec::new();
    let data = vec![7; BLOCK];
    while !progress.is_over() {
        let offset = scattered(client, tried.len());
        let request = match tried.len() % 3 {
            0 => {
                let arguments = ReadArguments::single(name, offset, BLOCK as u64);
                Request::new(Procedure::Read, &arguments, signer.clone())
            }
            1 => {
                let arguments = WriteArguments::single(name, offset, BLOCK, false);
                let write = Request::new(Procedure::Write, &arguments, signer.clone());
                Request { data: &data, ..write }
            }
            _ => Request::new(Procedure::Getattr, &GetattrArguments { name }, signer.clone()),
        };
        let request = Request { protection, ..request };
        let was_revoked = progress.is_revoked();
        let sent = Instant::now();
        let status = match drive.ask_over(&channel, &request) {
            Ok(answer) => answer.status,
            // Whoever is refused a thousand times in a row loses his connection.
            Err(error) => {
                let refused = tried.iter().rev().take_while(|tried: &&Tried| !tried.succeeded);
                assert!(refused.count() >= 1000, "{error:?}");
                channel = connect();
                continue;
            }
        };
        assert!(matches!(status, None | Some(Status::RefusedDigest)), "{status:?}");
        let succeeded = status.is_none();
        progress.note(was_revoked, succeeded);
        tried.push(Tried { sent, succeeded });
    }
    tried
}

/// Many reads on their way at once, which wait for the medium together.
fn pipelined(
    drive: &TestDrive,
    name: ObjectName,
    authority: &Authority,
    client: usize,
    progress: &Progress,
) -> Vec<Tried> {
    let options =
        ConnectOptions { connections: 1, retry: RetryPolicy::none(), ..ConnectOptions::default() };
    let address = drive.server().address().to_string();
    let reader = DriveClient::tcp(address, Some(DRIVE), &options);
    let mut tried = Vec::new();
    let mut under_way = VecDeque::new();
    let mut begun = 0;
    while !progress.is_over() || !under_way.is_empty() {
        while !progress.is_over() && under_way.len() < DEPTH {
            begun += 1;
            let offset = scattered(client, begun);
            let was_revoked = progress.is_revoked();
            let sent = Instant::now();
            let read = reader.begin_read(authority, name, offset, vec![0; BLOCK]);
            under_way.push_back((was_revoked, sent, read));
        }
        if let Some((was_revoked, sent, read)) = under_way.pop_front() {
            let succeeded = read.wait().0.is_ok();
            progress.note(was_revoked, succeeded);
            tried.push(Tried { sent, succeeded });
        }
    }
    tried
}

/// Lets the clients work with a capability of `version`, raises that, and returns when the answer was
/// there with all that was tried.
fn revoke_under_load(drive: &TestDrive, name: ObjectName, version: u64) -> (Instant, Vec<Tried>) {
    let capability = drive.capability(name);
    let signer = Signer::minted(&capability, &capability, version);
    let key = capability_key(&SecretKey::new(key_of(WORKING_KEY)), &capability, version);
    let issued = IssuedCapability { capability, key, sealed: None };
    let authority = |client| Authority::capability(&issued, protection_of(client));
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let (signer, progress) = (&signer, &progress);
        let ends = Ends(progress);
        let clients: Vec<_> = (0..8)
            .map(|client| (client, authority(client)))
            .map(|(client, authority)| {
                scope.spawn(move || match client % 2 {
                    0 => one_by_one(drive, name, signer, client, progress),
                    _ => pipelined(drive, name, &authority, client, progress),
                })
            })
            .collect();
        wait_for(&progress.succeeded, SUCCEED_BEFORE, BEFORE);
        let access_control_version = Some(version + 1);
        let changes = SetAttributes { access_control_version, ..SetAttributes::default() };
        let arguments = SetattrArguments { name, durable: false, changes };
        let answered = drive.by(Signer::working(), Procedure::Setattr, &arguments);
        let revoked = Instant::now();
        assert!(answered.status.is_none() && answered.proved);
        progress.is_revoked.store(true, Ordering::Relaxed);
        wait_for(&progress.tried_since, TRIED_AFTER, AFTER);
        drop(ends);
        (revoked, clients.into_iter().flat_map(|client| client.join().unwrap()).collect())
    })
}

#[test]
fn nothing_that_is_sent_after_the_answer_succeeds() {
    let (drive, name) = cold_object();
    for version in 5..5 + ROUNDS {
        let (revoked, tried) = revoke_under_load(&drive, name, version);
        let (before, after): (Vec<_>, Vec<_>) =
            tried.into_iter().partition(|tried| tried.sent <= revoked);
        let succeeded = |tried: &[Tried]| tried.iter().filter(|tried| tried.succeeded).count();
        assert!(
            succeeded(&before) > SUCCEED_BEFORE,
            "{} of {} before",
            succeeded(&before),
            before.len()
        );
        assert!(after.len() > TRIED_AFTER, "{} after", after.len());
        assert_eq!(succeeded(&after), 0, "of {} that were sent after the answer", after.len());
    }
}
