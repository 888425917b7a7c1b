//! Appends: in one piece, within the capability's region, once by each token however often and however
//! protected they come, also from a drive that was killed.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;

use common::*;
use nasd_capability::Capability;
use nasd_device::BlockDevice;
use nasd_drive::DriveOptions;
use nasd_protocol::Status;
use nasd_protocol::drive::{
    AppendArguments, Appended, AuditArguments, AuditPage, Procedure, ReadArguments,
};
use nasd_types::{AppendToken, ByteRange, ObjectName, Protection, Rights};

const DATA: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

fn arguments(name: ObjectName, token: u8, age_ns: u64, data: &[u8]) -> AppendArguments {
    AppendArguments { name, token: AppendToken([token; 16]), age_ns, data_length: data.len() }
}

fn request<'a>(arguments: &AppendArguments, data: &'a [u8], signer: Signer) -> Request<'a> {
    Request { data, ..Request::new(Procedure::Append, arguments, signer) }
}

fn append(drive: &TestDrive, name: ObjectName, token: u8, data: &[u8]) -> Appended {
    let arguments = arguments(name, token, 0, data);
    drive.ask(&request(&arguments, data, Signer::working())).unwrap().take()
}

fn read(drive: &TestDrive, name: ObjectName) -> Vec<u8> {
    let arguments = ReadArguments::single(name, 0, 4 << 20);
    drive.by(Signer::working(), Procedure::Read, &arguments).data
}

#[test]
fn with_every_protection_bytes_go_to_the_end_once() {
    let drive = TestDrive::new();
    let private = DATA.union(Protection::PRIVACY_ARGS);
    let protections =
        [Protection::INTEGRITY_ARGS, DATA, private, private.union(Protection::PRIVACY_DATA)];
    for protection in protections {
        let name = drive.object_with(b"head ");
        let signer = || Signer::capability(&drive.capability(name));
        let mut expected = b"head ".to_vec();
        for (token, length) in [(1, 1), (2, 17_000), (3, 300_000), (4, 5)] {
            let data = pattern(token, length);
            let token = token as u8;
            let first = arguments(name, token, 0, &data);
            let request = Request { protection, ..request(&first, &data, signer()) };
            let done: Appended = drive.ask(&request).unwrap().take();
            assert_eq!(done.offset, expected.len() as u64, "{protection:?}");
            expected.extend_from_slice(&data);
            assert_eq!(done.attributes.logical_size, expected.len() as u64);
            // The answer was lost, and whoever asked asks again.
            let again = arguments(name, token, 7_000_000, &data);
            let request = Request { protection, ..self::request(&again, &data, signer()) };
            let again: Appended = drive.ask(&request).unwrap().take();
            assert_eq!((again.offset, again.attributes), (done.offset, done.attributes));
        }
        assert!(read(&drive, name) == expected, "{protection:?}");
    }
}

#[test]
fn a_capability_holds_for_what_is_appended() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[1; 100]);
    let ask = |capability: Capability| {
        let arguments = arguments(name, 9, 0, &[2; 10]);
        drive.ask(&request(&arguments, &[2; 10], Signer::capability(&capability))).unwrap()
    };
    let whole = drive.capability(name);
    for region in [ByteRange::new(0, 109), ByteRange::new(0, 100), ByteRange::new(101, 1 << 40)] {
        // Known when the object is locked, and so proved.
        let refused = ask(Capability { region, ..whole });
        assert_eq!(refused.failed(), Status::RefusedRegion, "{region}");
    }
    let rights = Rights::all() - Rights::WRITE;
    assert_eq!(ask(Capability { rights, ..whole }).status, Some(Status::RefusedRights));
    let other = drive.new_object();
    let of_other = drive.capability(other);
    assert_eq!(ask(of_other).status, Some(Status::RefusedObject));
    assert_eq!(read(&drive, name), [1; 100]);
    let done: Appended = ask(Capability { region: ByteRange::new(100, 10), ..whole }).take();
    assert_eq!(done.offset, 100);
}

#[test]
fn what_makes_no_sense_is_told_to_those_with_authority() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"x");
    let ask = |name, data: &[u8]| {
        let arguments = arguments(name, 3, 0, data);
        drive.ask(&request(&arguments, data, Signer::working())).unwrap().failed()
    };
    assert_eq!(ask(name, &[]), Status::BadArgument);
    assert_eq!(ask(object(0xffff), b"y"), Status::NoSuchObject);
    for number in 1..4 {
        assert_eq!(ask(object(number), b"y"), Status::NotPermitted);
    }
    // Another append by a token that was used.
    append(&drive, name, 3, b"yy");
    assert_eq!(ask(name, b"y"), Status::TooLarge);
    assert_eq!(read(&drive, name), b"xyy");
}

#[test]
fn a_drive_that_was_killed_knows_what_it_has_appended() {
    let device: Arc<dyn BlockDevice> = new_device();
    let drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    let name = drive.object_with(b"");
    drive.server().drive().store().flush_all().unwrap();
    assert_eq!(append(&drive, name, 1, b"one ").offset, 0);
    let end = drive.now().0;
    drop(drive);
    let drive = TestDrive::on(device, DriveOptions::default(), end + 600 * SECOND);
    let again = arguments(name, 1, 90 * SECOND, b"one ");
    let again: Appended = drive.ask(&request(&again, b"one ", Signer::working())).unwrap().take();
    assert_eq!(again.offset, 0);
    assert_eq!(append(&drive, name, 2, b"two").offset, 4);
    assert_eq!(read(&drive, name), b"one two");
}

#[test]
fn too_many_appends_later_it_is_not_known_any_more() {
    let drive = TestDrive::new();
    let (name, other) = (drive.object_with(b""), drive.object_with(b""));
    append(&drive, name, 1, b"one");
    drive.advance(SECOND);
    for number in 0..600_u32 {
        let mut token = [0; 16];
        token[..4].copy_from_slice(&number.to_be_bytes());
        let arguments =
            AppendArguments { token: AppendToken(token), ..arguments(other, 0, 0, b"x") };
        let _: Appended = drive.ask(&request(&arguments, b"x", Signer::working())).unwrap().take();
    }
    let ask = |token, age_ns| {
        let arguments = arguments(name, token, age_ns, b"one");
        drive.ask(&request(&arguments, b"one", Signer::working())).unwrap()
    };
    assert_eq!(ask(1, 2 * SECOND).failed(), Status::Forgotten);
    // The first time nothing can have been forgotten.
    let first: Appended = ask(7, 0).take();
    assert_eq!(first.offset, 3);
    assert_eq!(read(&drive, name), b"oneone");
}

#[test]
fn the_audit_trail_has_it() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"");
    let arguments = arguments(name, 1, 0, b"one");
    let by = Signer::capability(&drive.capability(name));
    let _: Appended = drive.ask(&request(&arguments, b"one", by)).unwrap().take();
    let page: AuditPage = drive.by(Signer::drive(), Procedure::Audit, &AuditArguments::ALL).take();
    let of =
        |record: &&nasd_protocol::drive::AuditRecord| record.procedure == Procedure::Append as u32;
    let record = page.records.iter().find(of).unwrap();
    assert_eq!((record.object, record.status), (name.object, 0));
    assert_eq!(record.audit_id, drive.capability(name).audit_id);
}
