//! Copies, holes, and how many blocks overwriting takes.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use common::*;
use nasd_capability::Capability;
use nasd_protocol::drive::{
    AttributesReply, BlocksRequired, BlocksrequiredArguments, Created, FastcopyArguments,
    GetattrArguments, Procedure, PunchArguments, ReadArguments, SeekArguments, SetattrArguments,
    Sought, WriteArguments,
};
use nasd_protocol::{Region, Status};
use nasd_types::{Attributes, ByteRange, ObjectId, ObjectName, Rights, SeekTarget, SetAttributes};

const BLOCK: u64 = 4096;

fn getattr(drive: &TestDrive, name: ObjectName) -> Attributes {
    let arguments = GetattrArguments { name };
    let reply: AttributesReply = drive.by(Signer::working(), Procedure::Getattr, &arguments).take();
    reply.attributes
}

fn read(drive: &TestDrive, name: ObjectName) -> Vec<u8> {
    let arguments = ReadArguments::single(name, 0, 4 << 20);
    drive.by(Signer::working(), Procedure::Read, &arguments).data
}

fn copy(drive: &TestDrive, source: ObjectName) -> Created {
    let arguments = FastcopyArguments { name: source, copy: None };
    drive.by(Signer::working(), Procedure::Fastcopy, &arguments).take()
}

fn punch(drive: &TestDrive, name: ObjectName, regions: Vec<Region>) -> Attributes {
    let arguments = PunchArguments { name, durable: true, regions };
    let reply: AttributesReply = drive.by(Signer::working(), Procedure::Punch, &arguments).take();
    reply.attributes
}

fn seek(drive: &TestDrive, signer: Signer, name: ObjectName, offset: u64) -> [Option<u64>; 2] {
    [SeekTarget::Data, SeekTarget::Hole].map(|target| {
        let arguments = SeekArguments { name, offset, target };
        let sought: Sought = drive.by(signer.clone(), Procedure::Seek, &arguments).take();
        sought.position
    })
}

fn required(drive: &TestDrive, name: ObjectName, regions: Vec<Region>) -> BlocksRequired {
    let arguments = BlocksrequiredArguments { name, regions };
    drive.by(Signer::working(), Procedure::Blocksrequired, &arguments).take()
}

fn flush(drive: &TestDrive) {
    drive.server().drive().store().flush_all().unwrap();
}

#[test]
fn a_copy_is_its_source_until_either_is_written_to() {
    let drive = TestDrive::new();
    let data = pattern(1, 300_000);
    let name = drive.object_with(&data);
    let changes = SetAttributes {
        access_control_version: Some(9),
        fs_specific: Some(Box::new([7; 256])),
        ..SetAttributes::default()
    };
    let set = SetattrArguments { name, durable: false, changes };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &set).status, None);
    drive.advance(SECOND);
    let Created { object, attributes } = copy(&drive, name);
    let copied = ObjectName { object, ..name };
    let source = getattr(&drive, name);
    assert_ne!(object, name.object);
    assert_eq!(attributes.copied_object, name.object);
    assert_eq!((attributes.logical_size, attributes.access_control_version), (300_000, 9));
    assert_eq!(*attributes.fs_specific, [7; 256]);
    assert_eq!((attributes.create_time, attributes.data_modify_time), (drive.now(), drive.now()));
    assert_eq!(attributes.fs_data_modify_time, source.fs_data_modify_time);
    assert_eq!(source.copied_object, ObjectId(0));
    assert!(read(&drive, copied) == data);
    drive.write(copied, 100, b"copy");
    drive.write(name, 200, b"source");
    let (mut of_copy, mut of_source) = (data.clone(), data);
    of_copy[100..104].copy_from_slice(b"copy");
    of_source[200..206].copy_from_slice(b"source");
    assert!(read(&drive, copied) == of_copy);
    assert!(read(&drive, name) == of_source);
    // What is missing can't be copied.
    let arguments = FastcopyArguments { name: self::object(0xffff), copy: None };
    let answered = drive.by(Signer::working(), Procedure::Fastcopy, &arguments);
    assert_eq!(answered.failed(), Status::NoSuchObject);
}

#[test]
fn copying_takes_no_more_than_its_rights() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let rights = Rights::READ | Rights::GETATTR | Rights::CREATE;
    let signer = Signer::capability(&Capability { rights, ..drive.capability(name) });
    let created: Created = drive
        .by(signer.clone(), Procedure::Fastcopy, &FastcopyArguments { name, copy: None })
        .take();
    // The copy has the source's version, but the capability is not for it.
    assert_eq!(created.attributes.access_control_version, 5);
    let copied = ObjectName { object: created.object, ..name };
    let request = Request::new(Procedure::Read, &ReadArguments::single(copied, 0, 1), signer);
    assert_eq!(drive.refused(&request), Status::RefusedObject);
}

#[test]
fn punched_bytes_read_as_zeros_and_their_blocks_are_free() {
    let drive = TestDrive::new();
    let mut data = pattern(2, 40 * BLOCK as usize);
    let name = drive.object_with(&data);
    flush(&drive);
    let before = getattr(&drive, name);
    drive.advance(SECOND);
    let regions = vec![
        Region::single(2 * BLOCK + 100, 3 * BLOCK),
        Region { offset: 10 * BLOCK, length: BLOCK, stride: 2 * BLOCK, count: 5 },
        Region::single(30 * BLOCK, 1 << 40),
    ];
    let after = punch(&drive, name, regions);
    data[2 * BLOCK as usize + 100..5 * BLOCK as usize + 100].fill(0);
    for piece in 0..5 {
        let start = (10 + 2 * piece) * BLOCK as usize;
        data[start..start + BLOCK as usize].fill(0);
    }
    data[30 * BLOCK as usize..].fill(0);
    assert!(read(&drive, name) == data);
    assert_eq!(after.logical_size, before.logical_size);
    // Each of the seven pieces is a change of its own, and so another version.
    let times = (after.fs_data_modify_time, after.data_modify_time);
    assert_eq!(times, (drive.now(), drive.now().plus_ns(6)));
    // It is durable, so that its blocks are free, as the answer says.
    let freed = before.blocks_used - after.blocks_used;
    assert!(freed >= 2 + 5 + 10, "{freed}");
    assert_eq!(getattr(&drive, name).blocks_used, after.blocks_used);
    let changes = SetAttributes { logical_size: Some(4 * BLOCK), ..SetAttributes::default() };
    let set = SetattrArguments { name, durable: true, changes };
    let cut: AttributesReply = drive.by(Signer::working(), Procedure::Setattr, &set).take();
    assert!(cut.attributes.blocks_used < after.blocks_used);
    assert_eq!(getattr(&drive, name).blocks_used, cut.attributes.blocks_used);
    data.truncate(4 * BLOCK as usize);
    // Nothing is left to be punched in what is not there.
    punch(&drive, name, vec![Region::single(1 << 50, 1 << 50)]);
    assert!(read(&drive, name) == data);
}

#[test]
fn data_and_holes_are_found() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    let seek_all = |offset| seek(&drive, Signer::working(), name, offset);
    assert_eq!(seek_all(0), [None, None]);
    drive.write(name, 10 * BLOCK, &pattern(3, 2 * BLOCK as usize));
    drive.write(name, 20 * BLOCK, b"end");
    for flushed in [false, true] {
        if flushed {
            flush(&drive);
        }
        assert_eq!(seek_all(0), [Some(10 * BLOCK), Some(0)]);
        assert_eq!(seek_all(10 * BLOCK + 5), [Some(10 * BLOCK + 5), Some(12 * BLOCK)]);
        assert_eq!(seek_all(12 * BLOCK), [Some(20 * BLOCK), Some(12 * BLOCK)]);
        assert_eq!(seek_all(20 * BLOCK), [Some(20 * BLOCK), Some(20 * BLOCK + 3)]);
        assert_eq!(seek_all(20 * BLOCK + 3), [None, None]);
        assert_eq!(seek_all(u64::MAX), [None, None]);
    }
    let set = |changes| {
        let set = SetattrArguments { name, durable: false, changes };
        assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &set).status, None);
    };
    set(SetAttributes { logical_size: Some(30 * BLOCK), ..SetAttributes::default() });
    assert_eq!(seek_all(22 * BLOCK), [None, Some(22 * BLOCK)]);
}

#[test]
fn a_capability_sees_no_further_than_its_region() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    drive.write(name, 10 * BLOCK, &pattern(3, 2 * BLOCK as usize));
    let sees = |end, offset| {
        let region = ByteRange::new(0, end);
        let capability = Capability { region, ..drive.capability(name) };
        seek(&drive, Signer::capability(&capability), name, offset)
    };
    assert_eq!(sees(u64::MAX, 0), [Some(10 * BLOCK), Some(0)]);
    assert_eq!(sees(10 * BLOCK + 1, 0), [Some(10 * BLOCK), Some(0)]);
    assert_eq!(sees(10 * BLOCK, 0), [None, Some(0)]);
    assert_eq!(sees(12 * BLOCK, 11 * BLOCK), [Some(11 * BLOCK), None]);
}

#[test]
fn overwriting_what_is_shared_takes_blocks() {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(4, 20 * BLOCK as usize));
    flush(&drive);
    let whole = vec![Region::single(0, 20 * BLOCK)];
    let alone = required(&drive, name, whole.clone());
    assert!(alone.estimated <= alone.maximum);
    copy(&drive, name);
    let shared = required(&drive, name, whole);
    assert!(shared.maximum >= alone.maximum + 20, "{alone:?} {shared:?}");
    assert!(shared.estimated >= 20);
    // A hole takes all of it; and regions may be of any length.
    let empty = drive.new_object();
    let large = required(&drive, empty, vec![Region::single(0, 1 << 40)]);
    assert!(large.maximum >= (1 << 40) / BLOCK);
    let some =
        required(&drive, empty, vec![Region { offset: 0, length: 1, stride: BLOCK, count: 7 }]);
    assert!(some.maximum >= 7 && some.maximum < 100, "{some:?}");
    // What it says suffices.
    let reserve = SetAttributes { blocks_allocated: Some(7), ..SetAttributes::default() };
    let set = SetattrArguments { name: empty, durable: true, changes: reserve };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &set).status, None);
    let arguments = WriteArguments::single(empty, 0, 7 * BLOCK as usize, true);
    let data = pattern(5, 7 * BLOCK as usize);
    let request = Request::new(Procedure::Write, &arguments, Signer::working());
    assert_eq!(drive.ask(&Request { data: &data, ..request }).unwrap().status, None);
}

#[test]
fn a_missing_object_is_told_to_holders_of_keys() {
    let drive = TestDrive::new();
    let name = object(0xffff);
    let signer = Signer::capability(&drive.capability(name));
    let regions = vec![Region::single(0, 1)];
    let punch = PunchArguments { name, durable: false, regions };
    let request = Request::new(Procedure::Punch, &punch, signer);
    assert_eq!(drive.refused(&request), Status::RefusedDigest);
}
