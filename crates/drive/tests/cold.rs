//! Small reads of what is not in memory, many under way on one connection.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::changes::{CHANGES, Change, in_private, set_working_key};
use common::*;
use nasd_device::{BlockDevice, DeviceError, FRAME_BYTES, FrameRead, ReadEnd, ReadQueue};
use nasd_drive::DriveOptions;
use nasd_protocol::Status;
use nasd_protocol::drive::{Procedure, ReadArguments, SetattrArguments};
use nasd_transport::{ClientOptions, Connection};
use nasd_types::{ByteRange, ObjectName, Protection, SetAttributes};
use nasd_xdr::to_bytes;

const BYTES: usize = 3 << 20;
/// Reads of so many bytes wait alone.
const LARGE: usize = 128 << 10;

/// A device whose queues of reads give nothing back while the gate is shut; nor does it by itself where
/// much is read, which only data are.
struct Gated {
    inner: Arc<dyn BlockDevice>,
    is_shut: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

struct GatedReads<'d> {
    inner: Mutex<Box<dyn ReadQueue + 'd>>,
    is_shut: &'d AtomicBool,
    begun: &'d AtomicUsize,
}

impl fmt::Debug for Gated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gated")
    }
}

impl BlockDevice for Gated {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn read(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let bytes: usize = into.iter().map(|piece| piece.len()).sum();
        if bytes >= FRAME_BYTES && self.is_shut.load(Ordering::SeqCst) {
            self.begun.fetch_add(1, Ordering::SeqCst);
            while self.is_shut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        self.inner.write(offset, from)
    }

    fn read_queue(&self) -> Box<dyn ReadQueue + '_> {
        let inner = Mutex::new(self.inner.read_queue());
        Box::new(GatedReads { inner, is_shut: &self.is_shut, begun: &self.begun })
    }

    fn has_deep_queue(&self) -> bool {
        true
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.inner.sync()
    }
}

impl ReadQueue for GatedReads<'_> {
    fn begin(&mut self, read: FrameRead) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.inner.get_mut().unwrap().begin(read);
    }

    fn under_way(&self) -> usize {
        self.inner.lock().unwrap().under_way()
    }

    fn ended(&mut self, least: usize) -> Vec<ReadEnd> {
        while self.is_shut.load(Ordering::SeqCst) {
            if least == 0 {
                return Vec::new();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inner.get_mut().unwrap().ended(least)
    }
}

fn bump(drive: &TestDrive, name: ObjectName) {
    let changes = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let arguments = SetattrArguments { name, changes, durable: false };
    let answered = drive.by(Signer::working(), Procedure::Setattr, &arguments);
    assert!(answered.status.is_none() && answered.proved);
}

#[test]
fn each_gets_what_it_asked_for_or_is_refused() {
    let (drive, objects) = cold(new_device(), &[BYTES, 100, 70_000]);
    std::thread::scope(|scope| {
        for thread in 0..12_usize {
            let (drive, objects) = (&drive, &objects);
            scope.spawn(move || {
                for round in 0..60_usize {
                    let number = thread * 7919 + round * 104_729;
                    let (name, bytes) = &objects[if round % 5 == 0 { number % 3 } else { 0 }];
                    let offset = number * 4099 % (bytes.len() + 5000);
                    let arguments = ReadArguments::single(*name, offset as u64, 4096);
                    let signer = Signer::capability(&drive.capability(*name));
                    let request = Request::new(Procedure::Read, &arguments, signer);
                    if round % 7 == 3 {
                        let tamper = |bytes: &mut Vec<u8>| bytes[20] ^= 1;
                        let forged = Request { tamper_verifier: Some(&tamper), ..request };
                        assert_eq!(drive.refused(&forged), Status::RefusedDigest);
                        continue;
                    }
                    let answered = drive.ask(&request).unwrap();
                    assert!(answered.status.is_none() && answered.proved, "{answered:?}");
                    let range = offset.min(bytes.len())..(offset + 4096).min(bytes.len());
                    assert!(answered.data == bytes[range], "{name} at {offset}");
                }
            });
        }
    });
}

/// Refusals that are proved come from somebody with a key: more of them than a stranger may cause.
#[test]
fn a_private_reader_who_is_refused_with_proof_is_no_stranger() {
    let device = Gated { inner: new_device(), is_shut: Arc::default(), begun: Arc::default() };
    let (drive, objects) = cold(Arc::new(device), &[BYTES]);
    let name = objects[0].0;
    assert!(drive.by(Signer::working(), Procedure::Read, &read_at(name, 0)).status.is_none());
    let mut capability = drive.capability(name);
    capability.region = ByteRange::new(0, 4096);
    let request =
        Request::new(Procedure::Read, &read_at(name, 1 << 20), Signer::capability(&capability));
    let protection = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
    let request = Request { protection, ..request };
    let channel = Connection::tcp(drive.server().address(), &ClientOptions::default()).unwrap();
    // From an address of which others have proved themselves, 16 times as many may come.
    let most = 16 * DriveOptions::default().server.unproved_in_a_row;
    for _ in 0..most + 100 {
        let answered = drive.ask_over(&channel, &request).unwrap();
        assert_eq!(answered.failed(), Status::RefusedRegion);
    }
}

fn read_at(name: ObjectName, offset: u64) -> ReadArguments {
    ReadArguments::single(name, offset, 4096)
}

/// What is not in memory, by one that waits together with others, or alone.
fn read_cold(name: ObjectName, length: usize) -> ReadArguments {
    ReadArguments::single(name, 1 << 20, length as u64)
}

/// A drive with a gate at its medium, through which a read goes when it opens.
struct Held {
    drive: TestDrive,
    name: ObjectName,
    bytes: Vec<u8>,
    is_shut: Arc<AtomicBool>,
    begun: Arc<AtomicUsize>,
}

impl Held {
    fn new() -> Held {
        let (is_shut, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (inner, gate) = (new_device(), Arc::clone(&is_shut));
        let device = Gated { inner, is_shut: gate, begun: Arc::clone(&begun) };
        let (drive, mut objects) = cold(Arc::new(device), &[BYTES]);
        let (name, bytes) = objects.remove(0);
        // Known, and cold but for its first frame.
        assert!(drive.by(Signer::working(), Procedure::Read, &read_at(name, 0)).status.is_none());
        Held { drive, name, bytes, is_shut, begun }
    }

    /// What the request is answered if that is done while it waits for the medium.
    fn ask(&self, request: &Request<'_>, change: Change) -> Answered {
        self.begun.store(0, Ordering::SeqCst);
        self.is_shut.store(true, Ordering::SeqCst);
        let channel =
            Connection::tcp(self.drive.server().address(), &ClientOptions::default()).unwrap();
        // A stranger's calls don't wait together.
        let known = Request { arguments: to_bytes(&read_at(self.name, 0)), ..request.clone() };
        assert!(self.drive.ask_over(&channel, &known).unwrap().status.is_none());
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| self.drive.ask_over(&channel, request).unwrap());
            while self.begun.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            change(&self.drive, self.name);
            self.is_shut.store(false, Ordering::SeqCst);
            asked.join().unwrap()
        })
    }
}

#[test]
fn a_read_whose_capability_is_worth_nothing_when_the_medium_answers_gets_nothing() {
    let private = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
    for (what, change, expected) in CHANGES {
        let cases = [Protection::INTEGRITY_ARGS, private].map(|by| [(by, 4096), (by, LARGE)]);
        for (protection, length) in cases.into_iter().flatten() {
            if length == LARGE && ["access control version", "removal"].contains(what) {
                // Whoever changes the object waits for such a read.
                continue;
            }
            let held = Held::new();
            let signer = Signer::capability(&held.drive.capability(held.name));
            let request = Request::new(Procedure::Read, &read_cold(held.name, length), signer);
            let answered = held.ask(&Request { protection, ..request }, *change);
            let wanted = match protection == private {
                true => in_private(*expected),
                false => (*expected, expected.is_none()),
            };
            let case = format!("{what}, {protection:?}, {length} bytes");
            assert_eq!((answered.status, answered.proved), wanted, "{case}");
            let data = if expected.is_none() { &held.bytes[1 << 20..][..length] } else { &[] };
            assert!(answered.data == data, "{case}");
        }
    }
}

#[test]
fn a_read_by_a_key_that_is_replaced_when_the_medium_answers_gets_nothing() {
    for length in [4096, LARGE] {
        let by_key =
            |name| Request::new(Procedure::Read, &read_cold(name, length), Signer::working());
        let held = Held::new();
        let another = |drive: &TestDrive, _| set_working_key(drive, EPOCH + 1, 50);
        let refused = held.ask(&by_key(held.name), another);
        assert_eq!((refused.status, refused.proved), (Some(Status::RefusedDigest), false));
    }
    // An access control version says nothing about a key.
    let held = Held::new();
    let request = Request::new(Procedure::Read, &read_cold(held.name, 4096), Signer::working());
    let answered = held.ask(&request, bump);
    assert!(answered.proved && answered.data == held.bytes[1 << 20..][..4096]);
}

#[test]
fn a_capability_that_is_revoked_while_its_read_waits_gets_nothing() {
    let (is_shut, begun) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let (inner, gate) = (new_device(), Arc::clone(&is_shut));
    let device: Arc<dyn BlockDevice> =
        Arc::new(Gated { inner, is_shut: gate, begun: Arc::clone(&begun) });
    let (drive, objects) = cold(device, &[BYTES, BYTES]);
    let read = |name: ObjectName, offset: u64, signer: Signer| {
        Request::new(Procedure::Read, &ReadArguments::single(name, offset, 4096), signer)
    };
    let by_capability = |name| Signer::capability(&drive.capability(name));
    for (name, _) in &objects {
        // Known, and cold but for its first frame.
        drive.ask(&read(*name, 0, by_capability(*name))).unwrap();
    }
    let (revoked, other) = (objects[0].0, objects[1].0);
    is_shut.store(true, Ordering::SeqCst);
    begun.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let ask = |name, offset, signer| {
            let drive = &drive;
            scope.spawn(move || drive.ask(&read(name, offset, signer)).unwrap())
        };
        let refused = ask(revoked, 1 << 20, by_capability(revoked));
        let with_key = ask(revoked, 2 << 20, Signer::working());
        let untouched = ask(other, 1 << 20, by_capability(other));
        while begun.load(Ordering::SeqCst) < 3 {
            std::thread::sleep(Duration::from_millis(1));
        }
        bump(&drive, revoked);
        is_shut.store(false, Ordering::SeqCst);
        let refused = refused.join().unwrap();
        assert_eq!((refused.status, refused.data.len()), (Some(Status::RefusedDigest), 0));
        assert!(!refused.proved);
        assert!(with_key.join().unwrap().data == objects[0].1[2 << 20..][..4096]);
        assert!(untouched.join().unwrap().data == objects[1].1[1 << 20..][..4096]);
    });
}
