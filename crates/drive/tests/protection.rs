//! Every set of protection options that this version understands, with each suite, between a client and
//! a drive; and nobody's data are seen before they are proved.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::time::Duration;

use common::*;
use nasd_capability::{SecretKey, Suite};
use nasd_client::{Authority, ConnectOptions, DriveClient, RetryPolicy};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::drive::{
    GetattrArguments, PartitionKey, Procedure, ReadArguments, Sealed, SetattrArguments,
    SetpartitionkeyArguments, WriteArguments,
};
use nasd_protocol::{Region, Status};
use nasd_store::{OpenOptions, Store};
use nasd_types::{ObjectName, Protection, SetAttributes};

fn serve() -> (DriveServer, DriveClient) {
    let store = Store::open(new_device(), &OpenOptions::default()).unwrap();
    let options = DriveOptions { minimum_protection: Protection::NONE, ..DriveOptions::default() };
    let drive = Drive::new(store, options, Environment::system()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = DriveServer::start(drive, listener).unwrap();
    let retry = RetryPolicy::within(Duration::from_secs(20));
    let options = ConnectOptions { retry, ..ConnectOptions::default() };
    let client = DriveClient::tcp(server.address().to_string(), Some(DRIVE), &options);
    (server, client)
}

fn working(protection: Protection, suite: Suite) -> Authority {
    let key = SecretKey::new(key_of(WORKING_KEY));
    Authority::working_key(PARTITION, key, protection).with_suite(suite)
}

/// Every set, with every suite; with no protection there is no key.
fn all() -> impl Iterator<Item = (Protection, Suite)> {
    let sets = Protection::all_understood().filter(|set| !set.is_empty());
    sets.flat_map(|set| Suite::available().iter().map(move |suite| (set, *suite)))
}

#[test]
fn data_go_both_ways_under_every_protection_and_suite() {
    let (server, client) = serve();
    for (protection, suite) in all() {
        let authority = working(protection, suite);
        let made = client.create(&authority, PARTITION, &SetAttributes::default(), false).unwrap();
        let name = ObjectName { partition: PARTITION, object: made.object };
        // Small and of whole frames; not where a block begins; and as large as there is.
        for (round, (offset, length)) in
            [(0, 0), (3, 1), (7, 11), (100, 16_384), (4097, 70_000), (65_536, 65_536), (5, 4 << 20)]
                .into_iter()
                .enumerate()
        {
            let data = pattern(round as u32, length);
            let what = format!("{protection:?} {suite:?} {length} at {offset}");
            client.write(&authority, name, offset, &data, false).expect(&what);
            let mut into = vec![0; length];
            let outcome = client.read(&authority, name, offset, &mut into).expect(&what);
            assert!(outcome.length == length && into == data, "{what}");
            let (outcome, into) =
                client.begin_read(&authority, name, offset, vec![0; length]).wait();
            assert!(outcome.expect(&what).length == length && into == data, "{what}");
        }
        let regions =
            [Region { offset: 10, length: 30_000, stride: 50_000, count: 3 }, Region::single(1, 9)];
        let data = pattern(77, 90_009);
        let slices = [std::io::IoSlice::new(&data[..5]), std::io::IoSlice::new(&data[5..])];
        client.write_regions(&authority, name, &regions, &slices, false).unwrap();
        let mut into = vec![0; data.len()];
        client.read_regions(&authority, name, &regions, &mut into).unwrap();
        // The second region overlaps none of the first.
        assert!(into == data, "{protection:?} {suite:?}");
        assert_eq!(client.getattr(&authority, name).unwrap().logical_size, 5 + (4 << 20));
        let error = client.read(&authority, object(9_999_999), 0, &mut into).unwrap_err();
        assert_eq!(error.status(), Some(Status::NoSuchObject));
    }
    drop(client);
    server.shut_down(Duration::from_secs(5)).unwrap();
}

#[test]
fn private_data_are_encrypted_on_the_wire_and_plain_in_the_cache() {
    let drive = TestDrive::new();
    let private =
        Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA | Protection::PRIVACY_DATA;
    for &suite in Suite::available() {
        for length in [100, 200_000] {
            let name = drive.new_object();
            let data = pattern(5, length);
            let arguments = WriteArguments::single(name, 0, length, false);
            let request = Request::new(Procedure::Write, &arguments, Signer::working());
            let request = Request { data: &data, suite, protection: private, ..request };
            assert_eq!(drive.ask(&request).unwrap().status, None);
            let read = |protection| {
                let arguments = ReadArguments::single(name, 0, length as u64);
                let request = Request::new(Procedure::Read, &arguments, Signer::working());
                drive.ask(&Request { suite, protection, ..request }).unwrap()
            };
            let [first, second] = [read(private), read(private)];
            assert!(first.proved && second.proved);
            assert!(first.data == data && second.data == data);
            assert!(first.sent != data && first.sent != second.sent, "another nonce each time");
            assert!(read(Protection::INTEGRITY_ARGS).sent == data);
        }
    }
}

#[test]
fn private_data_that_were_altered_change_nothing() {
    let drive = TestDrive::new();
    let private =
        Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA | Protection::PRIVACY_DATA;
    for &suite in Suite::available() {
        for length in [8, 4096, 70_000] {
            let name = drive.object_with(&pattern(1, length));
            let data = pattern(2, length);
            let arguments = WriteArguments::single(name, 0, length, false);
            let request = Request::new(Procedure::Write, &arguments, Signer::working());
            let request = Request { data: &data, suite, protection: private, ..request };
            let flip_data = move |bytes: &mut Vec<u8>| bytes[length / 2] ^= 0x10;
            let flip_tag = |bytes: &mut Vec<u8>| bytes[47] ^= 1;
            let altered = [
                Request { tamper_data: Some(&flip_data), ..request.clone() },
                Request { tamper_verifier: Some(&flip_tag), ..request.clone() },
            ];
            for request in altered {
                assert_eq!(drive.refused(&request), Status::RefusedDigest);
            }
            let arguments = ReadArguments::single(name, 0, length as u64);
            let found = drive.by(Signer::working(), Procedure::Read, &arguments).data;
            assert!(found == pattern(1, length), "{suite:?} {length}");
        }
    }
}

const PRIVATE_ARGS: Protection = Protection::INTEGRITY_ARGS.union(Protection::PRIVACY_ARGS);

#[test]
fn privacy_of_arguments_is_neither_claimed_falsely_nor_forgotten() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let getattr = Request::new(Procedure::Getattr, &GetattrArguments { name }, Signer::working());
    // In the clear, though it says that it is private.
    let bare = Request { protection: PRIVATE_ARGS, wrapped: false, ..getattr.clone() };
    assert_eq!(drive.refused(&bare), Status::RefusedProtection);
    // Private, though it does not say so.
    let sealed = Sealed { sealed: vec![0; 400], data_length: 0 };
    let request = Request::new(Procedure::Private, &sealed, Signer::working());
    assert_eq!(drive.refused(&request), Status::RefusedProtection);
    // Encrypted by nobody who has the key; but the digest is right.
    let forged = Request { protection: PRIVATE_ARGS, wrapped: false, ..request };
    assert_eq!(drive.refused(&forged), Status::RefusedDigest);
    // By nobody's authority.
    let nobody = Signer { claimed: nasd_protocol::CredentialKey::None, secret: None };
    let request = Request { signer: nobody, ..forged };
    assert_eq!(drive.refused(&request), Status::RefusedKey);
}

#[test]
fn what_is_encrypted_may_make_no_sense() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    for suite in Suite::available() {
        let ask = |procedure, arguments: Vec<u8>, data: &[u8]| {
            let request = Request::new(procedure, &(), Signer::working());
            let request = Request { arguments, data, protection: PRIVATE_ARGS, ..request };
            drive.ask(&Request { suite: *suite, ..request }).unwrap().failed()
        };
        let read = nasd_xdr::to_bytes(&ReadArguments::single(name, 0, 8));
        let write = nasd_xdr::to_bytes(&WriteArguments::single(name, 0, 8, false));
        for (procedure, arguments, data) in [
            (Procedure::Null, vec![], &[][..]),
            (Procedure::Private, read.clone(), &[]),
            (Procedure::Getattr, vec![1, 2, 3, 4], &[]),
            (Procedure::Getattr, vec![], &[]),
            (Procedure::Read, read, b"datadata"),
            (Procedure::Write, write.clone(), b"data"),
            (Procedure::Write, write[..8].to_vec(), b"datadata"),
        ] {
            let status = ask(procedure, arguments, data);
            assert_eq!(status, Status::BadArgument, "{procedure:?} {suite:?}");
        }
        let found =
            drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, 0, 9));
        assert_eq!(found.data, b"contents");
    }
}

/// What is refused after a private call was decrypted is told with proof, and the call passes once.
#[test]
fn private_calls_are_refused_in_private_and_pass_once() {
    let drive = TestDrive::new();
    let (name, other) = (drive.object_with(b"contents"), drive.object_with(b"other"));
    let mut capability = drive.capability(name);
    capability.rights = nasd_types::Rights::READ | nasd_types::Rights::WRITE;
    capability.region = nasd_types::ByteRange::new(0, 100);
    let ask = |procedure, arguments: Vec<u8>, data: &[u8]| {
        let nonce = Some(drive.fresh_nonce());
        let request = Request::new(procedure, &(), Signer::capability(&capability));
        let request = Request { arguments, data, nonce, protection: PRIVATE_ARGS, ..request };
        let status = drive.ask(&request).unwrap().failed();
        assert_eq!(drive.refused(&request), Status::RefusedReplay, "{procedure:?}");
        status
    };
    let read = |name, offset| nasd_xdr::to_bytes(&ReadArguments::single(name, offset, 8));
    let write = |name, offset| nasd_xdr::to_bytes(&WriteArguments::single(name, offset, 8, false));
    let key = SetpartitionkeyArguments {
        partition: PARTITION,
        which: PartitionKey::Current,
        epoch: 99,
        value: Signer::partition().seal(1),
    };
    assert_eq!(ask(Procedure::Read, read(other, 0), &[]), Status::RefusedObject);
    assert_eq!(ask(Procedure::Read, read(name, 93), &[]), Status::RefusedRegion);
    assert_eq!(ask(Procedure::Write, write(other, 0), b"datadata"), Status::RefusedObject);
    assert_eq!(ask(Procedure::Write, write(name, 93), b"datadata"), Status::RefusedRegion);
    let getattr = nasd_xdr::to_bytes(&GetattrArguments { name });
    assert_eq!(ask(Procedure::Getattr, getattr, &[]), Status::RefusedRights);
    let key = nasd_xdr::to_bytes(&key);
    assert_eq!(ask(Procedure::Setpartitionkey, key, &[]), Status::RefusedKey);
    let found = drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, 0, 9));
    assert_eq!(found.data, b"contents");
}

#[test]
fn a_private_write_that_is_revoked_while_its_data_come_changes_nothing() {
    let drive = TestDrive::new();
    for length in [4096, 200_000] {
        let name = drive.object_with(&pattern(1, length));
        let data = pattern(2, length);
        let arguments = WriteArguments::single(name, 0, length, false);
        let signer = Signer::capability(&drive.capability(name));
        let request = Request::new(Procedure::Write, &arguments, signer);
        let protection = Protection::SUPPORTED;
        let request = Request { data: &data, protection, ..request };
        let refused = drive.ask_in_two_parts(&request, || {
            let changes =
                SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
            let arguments = SetattrArguments { name, changes, durable: false };
            let answered = drive.by(Signer::working(), Procedure::Setattr, &arguments);
            assert_eq!(answered.status, None);
        });
        assert_eq!(refused, (Some(Status::RefusedDigest), false));
        let read = ReadArguments::single(name, 0, length as u64);
        assert!(drive.by(Signer::working(), Procedure::Read, &read).data == pattern(1, length));
    }
}
