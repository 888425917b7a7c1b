//! Every set of protection options that this version understands, with each suite, between a client and
//! a drive; and nobody's data are seen before they are proved.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::time::Duration;

use common::*;
use nasd_capability::{SecretKey, Suite};
use nasd_client::{Authority, ConnectOptions, DriveClient, RetryPolicy};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::drive::{Procedure, ReadArguments, WriteArguments};
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
