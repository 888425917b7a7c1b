//! What an eavesdropper sees: everything between a client and a drive is recorded, and searched for what
//! the protection promises to hide.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;
#[path = "../../types/tests/random/mod.rs"]
mod random;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use nasd_capability::{SecretKey, Suite};
use nasd_client::{Authority, ConnectOptions, DriveClient, RetryPolicy};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_store::{OpenOptions, Store};
use nasd_types::{ObjectId, ObjectName, Protection, SetAttributes};
use random::Random;

const MARKER_BYTES: usize = 64;

/// A TCP relay that keeps all that passes, in both directions.
struct Relay {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    fn to(drive: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(drive)) = (client, TcpStream::connect(drive)) else { return };
                for (from, to) in [(&client, &drive), (&drive, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let kept = Arc::clone(&kept);
                    std::thread::spawn(move || pass(from, to, &kept));
                }
            }
        });
        Relay { address, seen }
    }

    /// All that passed since the last time.
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // Kept before it is passed on, so that whoever has an answer finds it here. The two directions
        // are cut into one another only where one waits for the other.
        kept.lock().unwrap().extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn contains(capture: &[u8], marker: &[u8]) -> bool {
    capture.windows(marker.len()).any(|window| window == marker)
}

fn marker(random: &mut Random) -> [u8; MARKER_BYTES] {
    let mut bytes = [0; MARKER_BYTES];
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_be_bytes()));
    bytes
}

fn serve() -> DriveServer {
    let store = Store::open(new_device(), &OpenOptions::default()).unwrap();
    let options = DriveOptions { minimum_protection: Protection::NONE, ..DriveOptions::default() };
    let drive = Drive::new(store, options, Environment::system()).unwrap();
    DriveServer::start(drive, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
}

/// What was sent and received, for the search.
struct Markers {
    /// In data that were written, and read again.
    written: [u8; MARKER_BYTES],
    /// In data that were read, and written by other ways.
    read: [u8; MARKER_BYTES],
    /// In attributes that were set.
    set: [u8; MARKER_BYTES],
    /// In attributes that were read, and set by other ways.
    got: [u8; MARKER_BYTES],
}

/// A message of some length with the marker in its middle.
fn around(marker: &[u8; MARKER_BYTES], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    bytes[length / 2..length / 2 + MARKER_BYTES].copy_from_slice(marker);
    bytes
}

fn attributes_with(marker: &[u8; MARKER_BYTES]) -> SetAttributes {
    let fs_specific = around(marker, 256).try_into().unwrap();
    SetAttributes { fs_specific: Some(Box::new(fs_specific)), ..SetAttributes::default() }
}

fn work(drive: &DriveServer, by: &DriveClient, authority: &Authority, markers: &Markers) {
    let options = ConnectOptions::default();
    let direct = DriveClient::tcp(drive.address().to_string(), Some(DRIVE), &options);
    let key = SecretKey::new(key_of(WORKING_KEY));
    let unseen = Authority::working_key(PARTITION, key, Protection::INTEGRITY_ARGS);
    let attributes = attributes_with(&markers.got);
    let object = direct.create(&unseen, PARTITION, &attributes, false).unwrap().object;
    let name = ObjectName { partition: PARTITION, object };
    for length in [200, 5000, 200_000] {
        by.write(authority, name, 7, &around(&markers.written, length), false).unwrap();
        let mut into = vec![0; length];
        by.read(authority, name, 7, &mut into).unwrap();
        assert!(into == around(&markers.written, length));
        direct.write(&unseen, name, 7, &around(&markers.read, length), false).unwrap();
        by.read(authority, name, 7, &mut into).unwrap();
        assert!(into == around(&markers.read, length));
        let (outcome, into) = by.begin_read(authority, name, 7, vec![0; length]).wait();
        assert!(outcome.unwrap().length == length && into == around(&markers.read, length));
    }
    let found = by.getattr(authority, name).unwrap().fs_specific;
    assert!(found[..] == around(&markers.got, 256)[..]);
    by.setattr(authority, name, &attributes_with(&markers.set), false).unwrap();
    by.create(authority, PARTITION, &attributes_with(&markers.set), false).unwrap();
    by.getattr(authority, ObjectName { object: ObjectId(1 << 40), ..name }).unwrap_err();
}

#[test]
fn what_is_private_is_in_no_capture_and_what_is_not_is() {
    let drive = serve();
    let relay = Relay::to(drive.address());
    let mut random = Random(0x6e61_7364);
    for set in Protection::all_understood().filter(|set| !set.is_empty()) {
        for &suite in Suite::available() {
            let options = ConnectOptions {
                retry: RetryPolicy::within(Duration::from_secs(20)),
                ..ConnectOptions::default()
            };
            let client = DriveClient::tcp(relay.address.to_string(), Some(DRIVE), &options);
            let key = SecretKey::new(key_of(WORKING_KEY));
            let authority = Authority::working_key(PARTITION, key, set).with_suite(suite);
            let [written, read, set_there, got] = [(); 4].map(|()| marker(&mut random));
            let markers = Markers { written, read, set: set_there, got };
            relay.take();
            work(&drive, &client, &authority, &markers);
            let capture = relay.take();
            assert!(capture.len() > 800_000, "{} bytes", capture.len());
            let hides_data = set.contains(Protection::PRIVACY_DATA);
            let hides_args = set.contains(Protection::PRIVACY_ARGS);
            let Markers { written, read, set: set_there, got } = markers;
            for (what, marker, hidden) in [
                ("data written", written, hides_data),
                ("data read", read, hides_data),
                ("attributes set", set_there, hides_args),
                ("attributes read", got, hides_args),
            ] {
                assert_eq!(contains(&capture, &marker), !hidden, "{what}: {set:?} {suite:?}");
            }
            // Procedure numbers: behind the last of them come credential and verifier of our flavor.
            let head = |procedure: u32| {
                let words = [0x2004_5301, 1, procedure, 0x4e41_5344];
                words.map(u32::to_be_bytes).concat()
            };
            for procedure in [2, 4, 5, 6, 7] {
                let seen = contains(&capture, &head(procedure));
                assert_eq!(seen, !hides_args, "procedure {procedure}: {set:?} {suite:?}");
            }
            assert_eq!(contains(&capture, &head(23)), hides_args, "{set:?} {suite:?}");
        }
    }
}

/// Of a private call nothing but its data tells which it is, or how it ended.
#[test]
fn private_replies_are_of_one_length() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let missing = object(1 << 40);
    let mut capability = drive.capability(name);
    capability.rights = nasd_types::Rights::READ;
    use nasd_protocol::drive::{GetattrArguments, Procedure, ReadArguments, RemoveArguments};
    let ask = |procedure, arguments: &dyn Fn() -> Request<'static>| {
        let set = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
        let request = Request { protection: set, procedure, ..arguments() };
        let answered = drive.ask(&request).unwrap();
        assert!(answered.proved, "{procedure:?} {:?}", answered.status);
        (answered.status, answered.sent_results.len())
    };
    let working = Signer::working;
    let holder = || Signer::capability(&capability);
    let read = |name, signer: Signer, offset| {
        let arguments = ReadArguments::single(name, offset, 0);
        Request::new(Procedure::Read, &arguments, signer)
    };
    let getattr =
        |name, signer| Request::new(Procedure::Getattr, &GetattrArguments { name }, signer);
    let remove = |name, signer| {
        Request::new(Procedure::Remove, &RemoveArguments { name, durable: false }, signer)
    };
    use nasd_protocol::Status;
    let cases = [
        (ask(Procedure::Read, &|| read(name, working(), 0)), None),
        (ask(Procedure::Read, &|| read(missing, working(), 0)), Some(Status::NoSuchObject)),
        (ask(Procedure::Read, &|| read(missing, holder(), 0)), Some(Status::RefusedObject)),
        (ask(Procedure::Getattr, &|| getattr(name, working())), None),
        (ask(Procedure::Getattr, &|| getattr(name, holder())), Some(Status::RefusedRights)),
        (ask(Procedure::Remove, &|| remove(name, holder())), Some(Status::RefusedRights)),
        (ask(Procedure::Remove, &|| remove(missing, working())), Some(Status::NoSuchObject)),
        (ask(Procedure::Remove, &|| remove(name, working())), None),
    ];
    for ((status, length), expected) in cases {
        assert_eq!((status, length), (expected, 412));
    }
}
