//! What authorized operations do, through the real client.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use nasd_capability::{SecretKey, Suite};
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, RetryPolicy};
use nasd_drive::{Drive, DriveOptions, DriveServer, Environment};
use nasd_protocol::drive::{DriveControl, PartitionControl, Procedure, ReadArguments, ReadData};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_store::{OpenOptions, Store};
use nasd_types::{CellId, ObjectId, ObjectName, PartitionId, Protection, SetAttributes, Timestamp};
use nasd_xdr::from_bytes;

/// A drive with the system's clock, for the real client.
struct Real {
    server: DriveServer,
    client: DriveClient,
    authority: Authority,
}

impl Real {
    fn new() -> Real {
        Real::with(Protection::INTEGRITY_ARGS)
    }

    fn with(protection: Protection) -> Real {
        let open = OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() };
        let store = Store::open(new_device(), &open).unwrap();
        let drive = Drive::new(store, DriveOptions::default(), Environment::system()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = DriveServer::start(drive, listener).unwrap();
        let options = ConnectOptions {
            retry: RetryPolicy::within(Duration::from_secs(20)),
            ..ConnectOptions::default()
        };
        let client = DriveClient::tcp(server.address().to_string(), Some(DRIVE), &options);
        let secret = SecretKey::new(key_of(WORKING_KEY));
        let authority = Authority::working_key(PARTITION, secret, protection);
        Real { server, client, authority }
    }

    fn create(&self) -> ObjectName {
        let created = self
            .client
            .create(&self.authority, PARTITION, &SetAttributes::default(), false)
            .unwrap();
        ObjectName { partition: PARTITION, object: created.object }
    }

    fn read(&self, name: ObjectName, offset: u64, length: usize) -> Vec<u8> {
        let mut into = vec![0xee; length];
        let outcome = self.client.read(&self.authority, name, offset, &mut into).unwrap();
        into.truncate(outcome.length);
        into
    }
}

fn status_of<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Status {
    match result.unwrap_err() {
        ClientError::Drive(status) | ClientError::Refused(status) => status,
        other => panic!("{other}"),
    }
}

#[test]
fn inquiry_tells_who_the_drive_is() {
    let real = Real::new();
    let information = real.client.inquiry().unwrap();
    assert_eq!((information.drive, information.cell), (DRIVE, CellId([0xce; 16])));
    assert_eq!(information.partitions, [PARTITION, OTHER_PARTITION]);
    assert_eq!(information.suites, Suite::available());
    assert_eq!(information.instance, real.server.drive().instance());
    assert_eq!(information.minimum_protection, Protection::INTEGRITY_ARGS);
    assert_eq!(information.max_transfer, 4 << 20);
}

#[test]
fn data_comes_back_as_written_under_every_protection() {
    for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
        let real = Real::with(protection);
        for (offset, length) in [
            (0, 1),
            (0, 4096),
            (5, 16_384),
            (3, 16_385),
            (65_535, 2),
            (100, 65_536),
            (65_536, 131_072),
            (4097, 1_000_003),
            (1 << 40, 70_000),
            (0, 4 << 20),
        ] {
            let name = real.create();
            let data = pattern(offset as u32, length);
            let written = real.client.write(&real.authority, name, offset, &data, false).unwrap();
            assert_eq!(written.length, length as u64);
            assert_eq!(written.logical_size, offset + length as u64);
            assert!(real.read(name, offset, length) == data, "{offset} {length}");
            if (1..1000).contains(&offset) {
                assert_eq!(real.read(name, 0, offset as usize), vec![0; offset as usize]);
            }
        }
    }
}

#[test]
fn many_regions_make_one_transfer() {
    let real = Real::new();
    let name = real.create();
    let image = pattern(9, 400_000);
    real.client.write(&real.authority, name, 0, &image, false).unwrap();
    let regions = [
        Region { offset: 1000, length: 10, stride: 100, count: 50 },
        Region::single(0, 5),
        Region { offset: 60_000, length: 20_000, stride: 70_000, count: 4 },
    ];
    let bytes = |image: &[u8]| -> Vec<u8> {
        let mut bytes = Vec::new();
        for region in &regions {
            for piece in 0..u64::from(region.count) {
                let start = (region.offset + piece * region.stride) as usize;
                bytes.extend_from_slice(&image[start..start + region.length as usize]);
            }
        }
        bytes
    };
    let mut into = vec![0; 80_505];
    let outcome = real.client.read_regions(&real.authority, name, &regions, &mut into).unwrap();
    assert_eq!(outcome.length, 80_505);
    assert!(into == bytes(&image));

    let data = pattern(10, 80_505);
    let slices = [IoSlice::new(&data[..33_333]), IoSlice::new(&data[33_333..])];
    real.client.write_regions(&real.authority, name, &regions, &slices, false).unwrap();
    let now = real.read(name, 0, 400_000);
    assert!(bytes(&now) == data);
    let untouched = |image: &[u8]| image[100_000..120_000].to_vec();
    assert!(untouched(&now) == untouched(&image));
}

#[test]
fn reads_end_where_the_object_does() {
    let real = Real::new();
    let name = real.create();
    assert_eq!(real.read(name, 0, 100), b"");
    real.client.write(&real.authority, name, 0, b"0123456789", false).unwrap();
    assert_eq!(real.read(name, 4, 100), b"456789");
    assert_eq!(real.read(name, 10, 100), b"");
    assert_eq!(real.read(name, 1 << 61, 100), b"");
    assert_eq!(real.read(name, 5, 0), b"");
}

#[test]
fn attributes_objects_and_their_end() {
    let real = Real::new();
    let name = real.create();
    let mut fs_specific = Box::new([0; 256]);
    fs_specific[7] = 7;
    let changes = SetAttributes {
        fs_specific: Some(fs_specific.clone()),
        logical_size: Some(5000),
        ..SetAttributes::default()
    };
    let set = real.client.setattr(&real.authority, name, &changes, true).unwrap();
    assert_eq!((set.fs_specific[7], set.logical_size), (7, 5000));
    assert_eq!(real.client.getattr(&real.authority, name).unwrap(), set);
    assert_eq!(real.read(name, 0, 6000), vec![0; 5000]);
    let flushed = real.client.flush(&real.authority, PARTITION, &[name.object]).unwrap();
    assert_eq!(flushed.instance, real.server.drive().instance());
    real.client.remove(&real.authority, name, true).unwrap();
    assert_eq!(status_of(real.client.getattr(&real.authority, name)), Status::NoSuchObject);
    assert_eq!(
        status_of(real.client.write(&real.authority, name, 0, b"x", false)),
        Status::NoSuchObject
    );
    real.client.flush(&real.authority, PARTITION, &[]).unwrap();
}

#[test]
fn control_objects_are_read_and_not_written() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[1; 5000]);
    let capability = Signer::capability(&drive.capability(name));
    let read = |signer: Signer, name, length| {
        let arguments = ReadArguments::single(name, 0, length);
        drive.ask(&Request::new(Procedure::Read, &arguments, signer)).unwrap()
    };
    read(capability, name, 5000);
    read(Signer::working(), name, 2000);
    drive.refused(&Request::new(
        Procedure::Read,
        &ReadArguments::single(name, 0, 1),
        Signer::key(CredentialKey::Drive, 50),
    ));

    let control = read(Signer::working(), object(1), 100_000);
    assert_eq!(control.take::<ReadData>().logical_size, control.data.len() as u64);
    let decoded: DriveControl = from_bytes(&control.data).unwrap();
    assert_eq!((decoded.drive, decoded.clock), (DRIVE, drive.now()));
    assert_eq!(decoded.started, Timestamp(START));
    assert_eq!((decoded.capability_bytes_read, decoded.capability_bytes_written), (5000, 0));
    assert_eq!((decoded.key_bytes_read, decoded.key_bytes_written), (2000, 5000));
    // This one is not answered yet.
    assert_eq!((decoded.requests, decoded.refusals), (5, 1));
    let ids: Vec<PartitionId> =
        decoded.partitions.iter().map(|summary| summary.partition).collect();
    assert_eq!(ids, [PARTITION, OTHER_PARTITION]);

    let partition = read(Signer::working(), object(2), 100_000);
    let decoded: PartitionControl = from_bytes(&partition.data).unwrap();
    assert_eq!(decoded.summary.partition, PARTITION);
    assert!(decoded.free_bytes > 0);
    // A part of it.
    let signer = Signer::key(CredentialKey::Drive, DRIVE_KEY);
    assert_eq!(read(signer, object(1), 8).data, 0xd1_u64.to_be_bytes());
}

#[test]
fn what_the_drive_makes_up_cannot_be_changed() {
    let real = Real::new();
    for number in 1..4 {
        let name = object(number);
        let authority = &real.authority;
        let write = real.client.write(authority, name, 0, b"x", false);
        assert_eq!(status_of(write), Status::NotPermitted);
        let large = real.client.write(authority, name, 0, &[0; 100_000], false);
        assert_eq!(status_of(large), Status::NotPermitted);
        let set = real.client.setattr(authority, name, &SetAttributes::default(), false);
        assert_eq!(status_of(set), Status::NotPermitted);
        assert_eq!(status_of(real.client.getattr(authority, name)), Status::NotPermitted);
        assert_eq!(status_of(real.client.remove(authority, name, false)), Status::NotPermitted);
    }
    // The first object is ordinary.
    let first = ObjectName { partition: PARTITION, object: ObjectId::FIRST_OBJECT };
    real.client.write(&real.authority, first, 0, b"root", true).unwrap();
    assert_eq!(real.read(first, 0, 10), b"root");
}

#[test]
fn requests_without_a_meaning_are_told_to_those_with_authority() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let regions = |regions: Vec<Region>| ReadArguments { name, order: None, regions };
    for (arguments, expected) in [
        (regions(vec![]), Status::BadArgument),
        (regions(vec![Region { count: 0, ..Region::single(0, 1) }]), Status::BadArgument),
        (regions(vec![Region::single(0, (4 << 20) + 1)]), Status::TooLarge),
        (regions(vec![Region::single(u64::MAX, 2)]), Status::TooLarge),
    ] {
        let signer = Signer::capability(&drive.capability(name));
        let request = Request::new(Procedure::Read, &arguments, signer);
        assert_eq!(drive.ask(&request).unwrap().failed(), expected);
        let signer = Signer::minted(&drive.capability(name), &drive.capability(name), 4);
        let request = Request::new(Procedure::Read, &arguments, signer);
        assert_eq!(drive.refused(&request), Status::RefusedDigest);
    }
    // Regions and data of different lengths.
    let data = pattern(0, 50_000);
    for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
        let arguments = nasd_protocol::drive::WriteArguments {
            order: None,
            name,
            durable: false,
            regions: vec![Region::single(0, 49_999)],
            data_length: 50_000,
        };
        let request = Request::new(Procedure::Write, &arguments, Signer::working());
        let request = Request { data: &data, protection, ..request };
        assert_eq!(drive.ask(&request).unwrap().failed(), Status::BadArgument);
    }
}

#[test]
fn a_clean_stop_keeps_what_was_not_flushed() {
    let device = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let data = pattern(5, 3_000_000);
    let name = drive.object_with(&data);
    let instance = drive.server().drive().instance();
    let end = drive.now().0;
    let TestDrive { server, .. } = drive;
    server.unwrap().shut_down(Duration::from_secs(5)).unwrap();
    let again = TestDrive::on(device, DriveOptions::default(), end);
    assert_ne!(again.server().drive().instance(), instance);
    let arguments = ReadArguments::single(name, 0, data.len() as u64);
    let request = Request::new(Procedure::Read, &arguments, Signer::working());
    assert!(again.ask(&request).unwrap().data == data);
}

#[test]
fn many_clients_at_once_see_their_own_data() {
    let real = Real::with(Protection::SUPPORTED);
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let real = &real;
            scope.spawn(move || {
                let name = real.create();
                for round in 0..20 {
                    let length = 1 + (round * 37_111 + thread * 991) % 600_000;
                    let data = pattern((thread * 100 + round) as u32, length);
                    let offset = (round * 4099) as u64;
                    real.client
                        .write(&real.authority, name, offset, &data, round % 7 == 0)
                        .unwrap();
                    assert!(real.read(name, offset, length) == data, "{thread} {round}");
                }
                real.client.remove(&real.authority, name, false).unwrap();
            });
        }
    });
}
