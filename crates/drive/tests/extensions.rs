//! Extensions: what they may reach, who may have them do something, and what bad ones do to others.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;

use common::*;
use nasd_capability::Capability;
use nasd_drive::{Checksum, Description, Extension, ExtensionCall, ExtensionError, Reach, Told};
use nasd_protocol::drive::{
    DriveControl, ExtendArguments, Extended, Extension as Listed, ExtensionOutcome, Procedure,
    ReadArguments,
};
use nasd_protocol::{Region, Status};
use nasd_types::{ByteRange, ObjectId, ObjectName, Rights};
use nasd_xdr::from_bytes;

/// More than any object here has.
const ALL: ByteRange = ByteRange { offset: 0, length: 1 << 40 };

/// A call of the checksums of parts.
fn checksums(name: ObjectName, range: ByteRange, part_bytes: u32) -> ExtendArguments {
    ExtendArguments {
        name,
        regions: vec![Region::single(range.offset, range.length)],
        rights: Rights::READ,
        extension: Checksum::NUMBER,
        revision: Checksum::REVISION,
        job: 7,
        bytes_left: range.length,
        most: 1 << 16,
        arguments: Checksum::arguments(part_bytes),
    }
}

fn call(drive: &TestDrive, signer: Signer, arguments: &ExtendArguments) -> (Extended, Vec<u8>) {
    let answered = drive.by(signer, Procedure::Extend, arguments);
    assert!(answered.proved, "{:?}", answered.status);
    let data = answered.data.clone();
    let extended: Extended = answered.take();
    assert_eq!(extended.data_length, data.len());
    (extended, data)
}

fn status(drive: &TestDrive, signer: Signer, arguments: &ExtendArguments) -> Option<Status> {
    drive.by(signer, Procedure::Extend, arguments).status
}

fn sums(bytes: &[u8], part_bytes: usize) -> Vec<u8> {
    bytes.chunks(part_bytes).flat_map(|part| crc32c::crc32c(part).to_be_bytes()).collect()
}

#[test]
fn a_drive_lists_its_extensions_and_runs_them() {
    let drive = TestDrive::extended(vec![Arc::new(Bad)]);
    let control = ReadArguments::single(
        ObjectName { partition: PARTITION, object: ObjectId::DRIVE_CONTROL },
        0,
        1 << 16,
    );
    let told = drive.by(Signer::drive(), Procedure::Read, &control).data;
    let listed = from_bytes::<DriveControl>(&told).unwrap().extensions;
    let checksum = Listed { number: 1, name: "checksum".to_owned(), revision: 1 };
    let bad = Listed { number: BAD, name: "bad".to_owned(), revision: 3 };
    assert_eq!(listed, [checksum, bad]);

    let data = pattern(3, 9_500_000);
    let name = drive.object_with(&data[..4_000_000]);
    drive.write(name, 4_000_000, &data[4_000_000..8_000_000]);
    drive.write(name, 8_000_000, &data[8_000_000..]);
    let working = Signer::working;
    let (extended, all) = call(&drive, working(), &checksums(name, ALL, 0));
    assert_eq!(all, sums(&data, data.len()));
    let done = ExtensionOutcome::Done;
    let data_length = all.len();
    assert_eq!(extended, Extended { outcome: done, position: ALL.end(), data_length });
    let range = ByteRange::new(5000, 3_000_000);
    let (extended, parts) = call(&drive, working(), &checksums(name, range, 70_000));
    assert_eq!((extended.position, &parts), (range.end(), &sums(&data[5000..3_005_000], 70_000)));
    // As much as there is room for, and the rest when that is asked for.
    let first = ExtendArguments { most: 18, ..checksums(name, range, 70_000) };
    let (extended, told) = call(&drive, working(), &first);
    assert_eq!((extended.position, &told[..]), (5000 + 4 * 70_000, &parts[..16]));
    let rest = ByteRange::new(extended.position, range.end() - extended.position);
    let (_, told) = call(&drive, working(), &checksums(name, rest, 70_000));
    assert_eq!(told, parts[16..]);
    // Pieces have parts of their own.
    let regions = vec![Region { offset: 100, length: 50, stride: 1000, count: 3 }];
    let rows = ExtendArguments { regions, ..checksums(name, ALL, 30) };
    let wanted = [100, 1100, 2100].map(|at| sums(&data[at..at + 50], 30)).concat();
    assert_eq!(call(&drive, working(), &rows).1, wanted);
    // Of what is behind the end there is nothing.
    let behind = checksums(name, ByteRange::new(9_499_999, 100), 50);
    assert_eq!(call(&drive, working(), &behind).1, sums(&data[9_499_999..], 50));
}

#[test]
fn an_extension_is_allowed_what_its_caller_is() {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(1, 10_000));
    let other = drive.object_with(b"other");
    let capability = Capability {
        rights: Rights::READ,
        region: ByteRange::new(1000, 2000),
        ..drive.capability(name)
    };
    let by = |capability: &Capability| Signer::capability(capability);
    let inside = checksums(name, ByteRange::new(1000, 2000), 0);
    call(&drive, by(&capability), &inside);
    let refused = |capability: &Capability, arguments: &ExtendArguments, status| {
        let request = Request::new(Procedure::Extend, arguments, by(capability));
        assert_eq!(drive.refused(&request), status);
    };
    for range in [ByteRange::new(999, 10), ByteRange::new(2990, 11), ALL] {
        refused(&capability, &checksums(name, range, 0), Status::RefusedRegion);
    }
    let elsewhere = ExtendArguments { name: other, ..inside.clone() };
    refused(&capability, &elsewhere, Status::RefusedObject);
    let cannot_read = Capability { rights: Rights::all() - Rights::READ, ..capability };
    refused(&cannot_read, &inside, Status::RefusedRights);
    // Nor does it help to say that it needs nothing.
    let without = ExtendArguments { rights: Rights::empty(), ..inside.clone() };
    assert_eq!(status(&drive, by(&cannot_read), &without), Some(Status::NotPermitted));
    let more = ExtendArguments { rights: Rights::READ | Rights::WRITE, ..inside };
    refused(&capability, &more, Status::RefusedRights);
}

#[test]
fn what_is_not_there_or_has_no_meaning_is_told() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let working = Signer::working;
    let asked = checksums(name, ALL, 0);
    for (extension, revision) in [(2, 1), (1, 2), (0, 0)] {
        let arguments = ExtendArguments { extension, revision, ..asked.clone() };
        assert_eq!(status(&drive, working(), &arguments), Some(Status::NoSuchExtension));
    }
    let missing = ExtendArguments { name: object(0xffff), ..asked.clone() };
    assert_eq!(status(&drive, working(), &missing), Some(Status::NoSuchObject));
    let contents = ObjectName { partition: PARTITION, object: ObjectId::PARTITION_CONTENTS };
    let synthetic = ExtendArguments { name: contents, ..asked.clone() };
    assert_eq!(status(&drive, Signer::drive(), &synthetic), Some(Status::NotPermitted));
    let (one, other) = (Region::single(0, 10), Region::single(5, 10));
    for regions in [vec![], vec![other, one], vec![one, other]] {
        let arguments = ExtendArguments { regions, ..asked.clone() };
        assert_eq!(status(&drive, working(), &arguments), Some(Status::BadArgument));
    }
    for arguments in [vec![], vec![0; 3], vec![0; 8]] {
        let (extended, text) =
            call(&drive, working(), &ExtendArguments { arguments, ..asked.clone() });
        assert_eq!(extended.outcome, ExtensionOutcome::Refused);
        assert_eq!(String::from_utf8(text).unwrap(), "its arguments are one unsigned int");
    }
}

const BAD: u32 = 4000;

/// An extension that does what it is told, all of which is bad.
struct Bad;

impl Extension for Bad {
    fn description(&self) -> Description {
        Description { number: BAD, name: "bad", revision: 3, rights: Rights::READ }
    }

    fn check(&self, call: &ExtensionCall) -> Result<usize, ExtensionError> {
        match &call.arguments[..] {
            b"memory" => Ok(usize::MAX),
            b"check" => panic!("it was told to"),
            _ => Ok(1 << 20),
        }
    }

    fn run(&self, call: &ExtensionCall, reach: &mut Reach) -> Result<Told, ExtensionError> {
        let (begin, position) = (call.pieces[0].offset, call.end());
        match &call.arguments[..] {
            b"panic" => panic!("it was told to"),
            b"too long" => Ok(Told { position, data: vec![0; call.most + 1] }),
            b"backwards" => Ok(Told { position: begin - 1, data: vec![] }),
            b"outside" => {
                let before = ByteRange::new(begin - 1, 1);
                reach.read(before).map(|_| Told::default())
            }
            b"much" => reach.read(ByteRange::new(begin, 5 << 20)).map(|_| Told::default()),
            b"failed" => Err(ExtensionError::Failed { position: 12, text: "no number".to_owned() }),
            _ => Ok(Told { position, data: b"well".to_vec() }),
        }
    }
}

#[test]
fn bad_extensions_harm_nobody_but_their_callers() {
    let drive = TestDrive::extended(vec![Arc::new(Bad)]);
    let name = drive.object_with(&pattern(1, 6 << 20)[..4 << 20]);
    drive.write(name, 4 << 20, &pattern(2, 2 << 20));
    let told = |what: &[u8]| ExtendArguments {
        extension: BAD,
        revision: 3,
        arguments: what.to_vec(),
        ..checksums(name, ByteRange::new(8, 6 << 20), 0)
    };
    let fails = |what: &[u8]| status(&drive, Signer::working(), &told(what));
    for _ in 0..3 {
        for what in [&b"panic"[..], b"check", b"too long", b"backwards"] {
            assert_eq!(fails(what), Some(Status::DriveFault), "{what:?}");
        }
        assert_eq!(fails(b"outside"), Some(Status::NotPermitted));
        assert_eq!(fails(b"much"), Some(Status::TooLarge));
    }
    let (extended, text) = call(&drive, Signer::working(), &told(b"memory"));
    assert_eq!(extended.outcome, ExtensionOutcome::Refused);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("bytes of memory, and the drive has"), "{text}");
    let (extended, text) = call(&drive, Signer::working(), &told(b"failed"));
    assert_eq!((extended.outcome, extended.position), (ExtensionOutcome::Failed, 12));
    assert_eq!(text, b"no number");
    assert_eq!(call(&drive, Signer::working(), &told(b"")).1, b"well");
    // All else goes on.
    assert_eq!(
        drive.by(Signer::working(), Procedure::Read, &ReadArguments::single(name, 0, 8)).status,
        None
    );
}
