//! The machine's clock is set while a drive runs, and while it is stopped: the drive goes on serving, and
//! nothing passes twice.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use nasd_capability::{Nonce, NonceSource, SecretKey, capability_key};
use nasd_client::{Authority, ConnectOptions, DriveClient, Host, SystemHost, TcpConnector};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice};
use nasd_drive::DriveOptions;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    DriveInformation, FlushpartitionArguments, GetattrArguments, Procedure, ReadArguments,
    SetattrArguments,
};
use nasd_protocol::manager::IssuedCapability;
use nasd_store::Store;
use nasd_transport::{ChannelError, ClientOptions, ServerOptions};
use nasd_types::{ObjectName, Protection, Rights, SetAttributes, Timestamp};

const DAY: i64 = 86_400;

/// Steps of a machine's clock, in seconds.
const STEPS: [i64; 6] = [-3650 * DAY, -3600, -2, 2, 3600, 3650 * DAY];

/// Longer than the drive takes to notice what time of day it is.
const NOTICED: Duration = Duration::from_millis(700);

/// A drive that bears any number of refusals.
fn patient() -> DriveOptions {
    let server = ServerOptions {
        unproved_in_a_row: 1 << 20,
        unproved_per_second: u32::MAX,
        ..DriveOptions::default().server
    };
    DriveOptions { server, ..DriveOptions::default() }
}

fn getattr(name: ObjectName, nonce: Nonce) -> Request<'static> {
    let request = Request::new(Procedure::Getattr, &GetattrArguments { name }, Signer::working());
    Request { nonce: Some(nonce), ..request }
}

fn is_refused_for_its_nonce(drive: &TestDrive, request: &Request<'_>) -> bool {
    let status = drive.ask(request).unwrap().status;
    matches!(status, Some(Status::RefusedReplay | Status::RefusedSkew))
}

/// The drive's clock, as anybody can ask it.
fn told(drive: &TestDrive, name: ObjectName) -> Timestamp {
    let old = getattr(name, Nonce { timestamp: Timestamp(1), unique: 1 });
    let refused = drive.ask(&old).unwrap();
    assert_eq!(refused.status, Some(Status::RefusedSkew));
    refused.verifier.nonce.timestamp
}

#[test]
fn a_step_of_the_machines_clock_stops_nothing_and_lets_nothing_pass_twice() {
    let drive = TestDrive::with(patient());
    let name = drive.object_with(b"contents");
    let mut recorded: Vec<Request<'_>> = Vec::new();
    let source = NonceSource::new(11);
    // A client that never asks the time again.
    let mut client = drive.now();
    for step in STEPS.into_iter().chain(STEPS.into_iter().rev()) {
        drive.jump.store(step * SECOND as i64, Ordering::Relaxed);
        std::thread::sleep(NOTICED);
        for _ in 0..5 {
            let request = getattr(name, source.draw(client));
            assert_eq!(drive.ask(&request).unwrap().status, None, "after a step of {step} s");
            recorded.push(request);
            for request in &recorded {
                assert!(is_refused_for_its_nonce(&drive, request), "after a step of {step} s");
            }
            drive.advance(SECOND);
            client = client.plus_ns(SECOND);
        }
        // It goes a little faster or slower than the client's, who asks now and then.
        assert!(told(&drive, name).distance_ns(client) < SECOND, "after a step of {step} s");
        client = told(&drive, name);
    }
}

#[test]
fn a_step_of_the_machines_clock_while_the_drive_is_stopped_lets_nothing_pass_twice() {
    for clean in [true, false] {
        let device: Arc<dyn BlockDevice> = new_device();
        let mut drive = TestDrive::on(Arc::clone(&device), patient(), START);
        let name = drive.object_with(b"contents");
        let flush = FlushpartitionArguments { partition: PARTITION };
        let flushed = drive.by(Signer::working(), Procedure::Flushpartition, &flush);
        assert_eq!(flushed.status, None);
        let mut recorded: Vec<Request<'_>> = Vec::new();
        for (round, step) in STEPS.into_iter().enumerate() {
            let source = NonceSource::new(round as u64);
            for _ in 0..5 {
                let request = getattr(name, source.draw(told(&drive, name)));
                assert_eq!(drive.ask(&request).unwrap().status, None);
                recorded.push(request);
                drive.advance(SECOND);
            }
            let at = (drive.now().0.cast_signed() + step * SECOND as i64).max(SECOND as i64);
            if clean {
                drive.server.take().unwrap().shut_down(Duration::from_secs(5)).unwrap();
            } else {
                // As a power cut would.
                drop(drive.server.take());
            }
            drive = TestDrive::starting(Arc::clone(&device), patient(), at.cast_unsigned());
            // As long as any of them could come into the window.
            for _ in 0..30 {
                for request in &recorded {
                    assert!(is_refused_for_its_nonce(&drive, request), "{step} s, clean: {clean}");
                }
                drive.advance(SECOND);
            }
        }
    }
}

/// A machine that takes its time of day from elsewhere.
struct WrongHost(SystemHost, Timestamp);

impl Host for WrongHost {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_clock(&self) -> Timestamp {
        self.1.plus_ns(u64::try_from(self.elapsed().as_nanos()).unwrap())
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

#[test]
fn clients_work_whatever_their_own_clock_shows() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    let working = SecretKey::new(key_of(WORKING_KEY));
    let key = capability_key(&working, &capability, 5);
    let holder = Authority::capability(
        &IssuedCapability { capability, key, sealed: None },
        Protection::INTEGRITY_ARGS,
    );
    let drive_key = SecretKey::new(key_of(DRIVE_KEY));
    let keeper = Authority::drive_key(drive_key, Protection::INTEGRITY_ARGS);
    let manager = Authority::working_key(PARTITION, working, Protection::INTEGRITY_ARGS);
    for wall in [0, START / 2, START - 3600 * SECOND, START + 3600 * SECOND, 2 * START] {
        for authority in [&holder, &keeper, &manager] {
            let address = drive.server().address().to_string();
            let connector = TcpConnector::new(address, ClientOptions::default());
            let host = WrongHost(SystemHost::new(), Timestamp(wall));
            let client = DriveClient::over(
                Arc::new(connector),
                Arc::new(host),
                Some(DRIVE),
                &ConnectOptions::default(),
            );
            let mut into = [0; 8];
            let outcome = client.read(authority, name, 0, &mut into).unwrap();
            assert_eq!(&into[..outcome.length], b"contents");
            assert!(client.drive_time().distance_ns(drive.now()) < 100 * SECOND);
        }
    }
}

#[test]
fn an_inquiry_by_a_key_is_answered_at_any_time_and_proves_its_answer() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    // For another operation, and expired: a question does nothing.
    let mut capability = drive.capability(name);
    capability.rights = Rights::CREATE;
    capability.expires = Timestamp(1);
    let signers =
        [Signer::capability(&capability), Signer::drive(), Signer::partition(), Signer::working()];
    for signer in signers {
        let mut seen = Vec::new();
        for timestamp in [1, drive.now().0, u64::MAX] {
            let nonce = Some(Nonce { timestamp: Timestamp(timestamp), unique: 7 });
            let request = Request::new(Procedure::Inquiry, &(), signer.clone());
            let request = Request { nonce, ..request };
            // As often as it is asked, but never with the same nonce.
            for _ in 0..3 {
                let answered = drive.ask(&request).unwrap();
                assert_eq!((answered.status, answered.proved), (None, true));
                assert!(!seen.contains(&answered.verifier.nonce));
                seen.push(answered.verifier.nonce);
                let told: DriveInformation = answered.take();
                assert_eq!(told.clock, drive.now());
            }
        }
    }
    // Who has no right digest is told so, and nothing else.
    let forged = Signer::minted(&capability, &capability, 6);
    let request = Request::new(Procedure::Inquiry, &(), forged);
    assert_eq!(drive.refused(&request), Status::RefusedDigest);
}

/// What passes above the mark may pass once more after the next start: so nothing may that does
/// anything.
#[test]
fn while_the_mark_cannot_be_moved_only_what_changes_nothing_is_served() {
    let device = Arc::new(FaultyDevice::zeroed(192 << 20));
    Store::format(device.clone(), &format_options()).unwrap();
    let drive = TestDrive::on(device.clone(), patient(), START);
    let name = drive.object_with(b"contents");
    let read = ReadArguments::single(name, 0, 8);
    let changes = SetAttributes { fs_specific: Some(Box::new([1; 256])), ..Default::default() };
    let set = SetattrArguments { name, durable: false, changes };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &set).status, None);
    device.set_plan(FaultPlan { unwritable: 0..u64::MAX, ..FaultPlan::default() });
    // Beyond any mark that was put before.
    drive.advance(100 * SECOND);
    assert_eq!(drive.by(Signer::working(), Procedure::Read, &read).data, b"contents");
    assert_eq!(
        drive.by(Signer::working(), Procedure::Getattr, &GetattrArguments { name }).status,
        None
    );
    let request = Request::new(Procedure::Setattr, &set, Signer::working());
    let refused = drive.ask(&request);
    assert!(matches!(refused, Err(ChannelError::Rejected { .. })), "{refused:?}");
    assert_eq!(drive.by(Signer::working(), Procedure::Read, &read).data, b"contents");
}
