//! Callers of extensions that go away before they are answered: what they had begun is stopped, and gives back what it had.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nasd_drive::{Description, Extension, ExtensionCall, ExtensionError, Reach, Told};
use nasd_protocol::cancelling;
use nasd_protocol::drive::{
    DriveControl, ExtendArguments, Extended, ExtensionOutcome, ExtensionWork, Procedure,
    ReadArguments, SetattrArguments,
};
use nasd_protocol::{Region, Status};
use nasd_types::{ObjectId, ObjectName, Protection, Rights, SetAttributes};
use nasd_xdr::from_bytes;

const NUMBER: u32 = 4001;

/// Far more than a call needs to hear that its caller has gone, on a machine that does much else.
const SOON: Duration = Duration::from_secs(2);

/// One that is at work for as long as it is told, in milliseconds, takes so many MiB of memory, and tells as much as it may.
#[derive(Default)]
struct Lasts {
    stopped: AtomicUsize,
    ended: AtomicUsize,
    may_end: AtomicBool,
}

impl Lasts {
    fn arguments(milliseconds: u32, mebibytes: u8) -> Vec<u8> {
        [&milliseconds.to_be_bytes()[..], &[mebibytes]].concat()
    }
}

impl Extension for Lasts {
    fn description(&self) -> Description {
        Description {
            number: NUMBER,
            name: "lasts",
            revision: 1,
            rights: Rights::READ,
            parameters: "",
        }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        Ok(usize::from(call.arguments[4]) << 20)
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let begun = Instant::now();
        let milliseconds = u32::from_be_bytes(call.arguments[..4].try_into().unwrap());
        reach.read(call.pieces[0])?;
        let may_end = || self.may_end.load(Ordering::Relaxed);
        while begun.elapsed() < Duration::from_millis(milliseconds.into()) && !may_end() {
            if let Err(stopped) = reach.go_on() {
                self.stopped.fetch_add(1, Ordering::Relaxed);
                return Err(stopped);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(Told { position: call.end(), data: vec![7; call.most] })
    }
}

fn work(drive: &TestDrive) -> ExtensionWork {
    let name = ObjectName { partition: PARTITION, object: ObjectId::DRIVE_CONTROL };
    let control = ReadArguments::single(name, 0, 1 << 16);
    let told = drive.by(Signer::drive(), Procedure::Read, &control).data;
    from_bytes::<DriveControl>(&told).unwrap().extension_work
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < 5 * SOON, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn asked(name: ObjectName, job: u64, arguments: Vec<u8>) -> ExtendArguments {
    ExtendArguments {
        name,
        regions: vec![Region::single(0, 1000)],
        rights: Rights::READ,
        extension: NUMBER,
        revision: 1,
        job,
        bytes_left: 1000 + 100 * job,
        most: 1000,
        arguments,
    }
}

/// Sends a call over a connection of its own.
fn call(
    drive: &TestDrive,
    name: ObjectName,
    job: u64,
    arguments: Vec<u8>,
    hidden: bool,
) -> TcpStream {
    let arguments = asked(name, job, arguments);
    let request = Request::new(Procedure::Extend, &arguments, Signer::working());
    let protection = if hidden {
        Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS
    } else {
        request.protection
    };
    drive.ask_without_taking(&Request { protection, ..request }, 1)
}

#[test]
fn what_runs_and_waits_is_told_and_stopped_when_its_callers_go() {
    let lasts = Arc::new(Lasts::default());
    let drive = TestDrive::extended(vec![Arc::clone(&lasts) as Arc<dyn Extension>]);
    let name = drive.object_with(&pattern(1, 5000));
    let (first, second) = (Lasts::arguments(600_000, 40), Lasts::arguments(600_000, 30));
    let running = call(&drive, name, 7, first, false);
    wait_until("it runs", || work(&drive).jobs.iter().any(|job| job.running == 1));
    let waiting = call(&drive, name, 8, second.clone(), false);
    wait_until("both are told", || work(&drive).jobs.len() == 2);
    let told = work(&drive);
    assert_eq!((told.memory_bytes, told.granted_bytes), (64 << 20, 40 << 20));
    let jobs: Vec<_> = told
        .jobs
        .iter()
        .map(|job| (job.job, job.running, job.waiting, job.bytes_left, job.memory_bytes))
        .collect();
    assert_eq!(jobs, [(7, 1, 0, 1700, 40 << 20), (8, 0, 1, 1800, 0)]);
    let job = told.jobs[0];
    assert_eq!((job.extension, job.partition, job.object), (NUMBER, name.partition, name.object));
    assert_eq!(job.object_bytes, 5000);
    assert!(job.age > 0);

    // Who waits takes nobody's place once he has gone,
    drop(waiting);
    wait_until("who waits is forgotten", || work(&drive).jobs.len() == 1);
    // and who runs makes room for others.
    let waiting = call(&drive, name, 9, second, false);
    wait_until("it waits", || work(&drive).jobs.len() == 2);
    drop(running);
    wait_until("the next one runs", || work(&drive).granted_bytes == 30 << 20);
    assert_eq!(lasts.stopped.load(Ordering::Relaxed), 1);
    drop(waiting);
    wait_until("all is over", || work(&drive).granted_bytes == 0);
    assert_eq!(work(&drive).jobs, []);
    assert_eq!(lasts.ended.load(Ordering::Relaxed), 0);
}

#[test]
fn a_job_that_is_given_up_is_stopped_though_its_caller_is_there() {
    let lasts = Arc::new(Lasts::default());
    let drive = TestDrive::extended(vec![Arc::clone(&lasts) as Arc<dyn Extension>]);
    let name = drive.object_with(&pattern(1, 5000));
    let extend = |arguments: &ExtendArguments| -> Extended {
        drive.by(Signer::working(), Procedure::Extend, arguments).take()
    };
    let long = || asked(name, 7, Lasts::arguments(600_000, 40));
    let cancel = |job, extension| ExtendArguments {
        extension: cancelling::NUMBER,
        revision: cancelling::REVISION,
        ..asked(name, job, cancelling::encode(extension))
    };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| extend(&long()));
        wait_until("it runs", || work(&drive).granted_bytes > 0);
        let waiting = scope.spawn(|| extend(&long()));
        wait_until("it waits", || work(&drive).jobs.iter().any(|job| job.waiting == 1));
        // Another job, and another extension's of that number, are other things.
        for other in [cancel(8, NUMBER), cancel(7, NUMBER + 1)] {
            assert_eq!(extend(&other).outcome, ExtensionOutcome::Done);
        }
        // So is a job of another caller that has drawn the same number.
        let other = Signer::capability(&drive.capability(name));
        assert_eq!(drive.by(other, Procedure::Extend, &cancel(7, NUMBER)).status, None);
        let told = work(&drive).jobs;
        assert_eq!((told.len(), told[0].running, told[0].waiting), (1, 1, 1));
        let told = extend(&cancel(7, NUMBER));
        assert_eq!((told.outcome, told.position), (ExtensionOutcome::Done, 1000));
        for call in [running, waiting] {
            assert_eq!(call.join().unwrap().outcome, ExtensionOutcome::Stopped);
        }
    });
    wait_until("its memory is free", || work(&drive).granted_bytes == 0);
    // What comes late is not begun.
    assert_eq!(extend(&long()).outcome, ExtensionOutcome::Stopped);
    assert_eq!(lasts.stopped.load(Ordering::Relaxed), 1);
    let short = asked(name, 9, Lasts::arguments(0, 1));
    assert_eq!(extend(&short).outcome, ExtensionOutcome::Done);
    let refused = ExtendArguments { arguments: vec![1], ..cancel(7, NUMBER) };
    assert_eq!(extend(&refused).outcome, ExtensionOutcome::Refused);
}

#[test]
fn a_call_is_stopped_soon_however_its_caller_goes() {
    let lasts = Arc::new(Lasts::default());
    let drive = TestDrive::extended(vec![Arc::clone(&lasts) as Arc<dyn Extension>]);
    let name = drive.object_with(&pattern(1, 5000));
    let ways: [fn(&TcpStream); 3] = [
        |_| {},
        |socket| socket.shutdown(Shutdown::Write).unwrap(),
        // As a killed client's system does.
        |socket| rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO)).unwrap(),
    ];
    let mut longest = Duration::ZERO;
    for (number, go) in ways.into_iter().enumerate().cycle().take(6) {
        let hidden = lasts.stopped.load(Ordering::Relaxed) % 2 == 1;
        let socket = call(&drive, name, 1, Lasts::arguments(600_000, 1), hidden);
        wait_until("it runs", || work(&drive).granted_bytes > 0);
        let gone = Instant::now();
        go(&socket);
        // One that has only ended its side is there all the while.
        let kept = (number == 1).then(|| socket.try_clone().unwrap());
        drop(socket);
        wait_until("it is stopped", || work(&drive).granted_bytes == 0);
        longest = longest.max(gone.elapsed());
        drop(kept);
    }
    assert!(longest < SOON, "{longest:?}");
    assert_eq!(lasts.stopped.load(Ordering::Relaxed), 6);
}

#[test]
fn whose_capability_is_revoked_meanwhile_is_told_nothing() {
    let lasts = Arc::new(Lasts::default());
    let drive = TestDrive::extended(vec![Arc::clone(&lasts) as Arc<dyn Extension>]);
    let name = drive.object_with(&pattern(1, 5000));
    let capability = drive.capability(name);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            let arguments = asked(name, 7, Lasts::arguments(600_000, 1));
            let by = Signer::capability(&capability);
            drive.refused(&Request::new(Procedure::Extend, &arguments, by))
        });
        wait_until("it runs", || work(&drive).jobs.iter().any(|job| job.running == 1));
        let changes =
            SetAttributes { access_control_version: Some(1_000), ..SetAttributes::default() };
        let revoke = SetattrArguments { name, changes, durable: false };
        assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &revoke).status, None);
        lasts.may_end.store(true, Ordering::Relaxed);
        assert_eq!(told.join().unwrap(), Status::RefusedDigest);
    });
}

/// What is granted of memory while answers are not read that are sent with some protection.
fn check_that_unread_answers_count(protection: Option<Protection>) {
    const ANSWER: u32 = 4 << 20;
    let lasts = Arc::new(Lasts::default());
    let drive = TestDrive::extended(vec![Arc::clone(&lasts) as Arc<dyn Extension>]);
    let name = drive.object_with(&pattern(1, 5000));
    let long = ExtendArguments { most: ANSWER, ..asked(name, 1, Lasts::arguments(0, 4)) };
    // More than the system takes for somebody who reads nothing.
    let calls = 6;
    let request = Request::new(Procedure::Extend, &long, Signer::working());
    let protection = protection.unwrap_or(request.protection);
    let socket = drive.ask_without_taking(&Request { protection, ..request }, calls);
    wait_until("all are answered", || lasts.ended.load(Ordering::Relaxed) == calls);
    wait_until("nothing runs", || work(&drive).jobs.is_empty());
    // The last one may just be encrypted.
    for _ in 0..100 {
        let granted = work(&drive).granted_bytes;
        assert!(granted >= u64::from(ANSWER), "{granted}");
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(socket);
    wait_until("its memory is free", || work(&drive).granted_bytes == 0);
}

#[test]
fn an_answer_that_is_not_read_is_counted_until_its_caller_goes() {
    check_that_unread_answers_count(None);
}

#[test]
fn so_is_one_that_is_encrypted() {
    let private = Protection::PRIVACY_ARGS | Protection::PRIVACY_DATA;
    let integrity = Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA;
    check_that_unread_answers_count(Some(integrity | private));
}

#[test]
fn a_drive_that_is_stopped_ends_the_calls_that_it_has() {
    let lasts = Arc::new(Lasts::default());
    let mut drive = TestDrive::extended(vec![Arc::clone(&lasts) as Arc<dyn Extension>]);
    let name = drive.object_with(&pattern(1, 5000));
    let socket = call(&drive, name, 1, Lasts::arguments(500, 1), false);
    wait_until("it runs", || work(&drive).granted_bytes > 0);
    drive.server.take().unwrap().shut_down(5 * SOON).unwrap();
    assert_eq!(lasts.ended.load(Ordering::Relaxed), 1);
    drop(socket);
}
