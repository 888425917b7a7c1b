//! The machine's clock is set while a drive runs, and while it is stopped: the drive goes on serving, and
//! nothing passes twice.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use nasd_capability::{Nonce, NonceSource};
use nasd_device::BlockDevice;
use nasd_drive::DriveOptions;
use nasd_protocol::Status;
use nasd_protocol::drive::{FlushpartitionArguments, GetattrArguments, Procedure};
use nasd_transport::ServerOptions;
use nasd_types::{ObjectName, Timestamp};

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
