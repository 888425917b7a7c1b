//! Objects whose numbers are chosen by whoever makes them.

// A helper of a test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use nasd_capability::{Capability, SecretKey};
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    BatchArguments, BatchOperation, BatchOutcome, Batched, CreateArguments, Created,
    FastcopyArguments, FlushArguments, Procedure, ReadArguments, RemoveArguments,
};
use nasd_types::{ByteRange, DriveId, ObjectId, ObjectName, Protection, Rights, SetAttributes};

fn chosen(number: u64) -> ObjectName {
    object(ObjectId::FIRST_NAMED.0 + number)
}

fn create(name: ObjectName) -> CreateArguments {
    let initial = SetAttributes { access_control_version: Some(5), ..SetAttributes::default() };
    CreateArguments {
        partition: name.partition,
        object: Some(name.object),
        durable: false,
        initial,
    }
}

fn copy(name: ObjectName, copy: ObjectName) -> FastcopyArguments {
    FastcopyArguments { name, copy: Some(copy.object) }
}

fn client_of(drive: &TestDrive) -> DriveClient {
    let max_clock_offset = std::time::Duration::MAX;
    let options = ConnectOptions { max_clock_offset, ..ConnectOptions::default() };
    let address = drive.server().address().to_string();
    DriveClient::tcp(address, Some(DriveId(0xd1)), &options)
}

fn authority() -> Authority {
    let secret = SecretKey::new(key_of(WORKING_KEY));
    Authority::working_key(PARTITION, secret, Protection::INTEGRITY_ARGS)
}

fn batch(drive: &TestDrive, operations: Vec<BatchOperation>) -> Vec<BatchOutcome> {
    let arguments =
        BatchArguments { partition: PARTITION, durable: true, with_attributes: true, operations };
    let Batched { outcomes, .. } = drive.by(Signer::working(), Procedure::Batch, &arguments).take();
    outcomes
}

#[test]
fn holders_of_keys_choose() {
    let drive = TestDrive::new();
    let signers = [Signer::working(), Signer::partition(), Signer::drive()];
    for (number, signer) in (0..).step_by(2).zip(signers) {
        let (name, copied) = (chosen(number), chosen(number + 1));
        let made: Created = drive.by(signer.clone(), Procedure::Create, &create(name)).take();
        assert_eq!(made.object, name.object);
        drive.write(name, 0, b"contents");
        // What it is made with is what capabilities are checked against.
        let capability = Signer::capability(&drive.capability(name));
        let read = ReadArguments::single(name, 0, 8);
        assert_eq!(drive.by(capability, Procedure::Read, &read).status, None);
        let made: Created =
            drive.by(signer.clone(), Procedure::Fastcopy, &copy(name, copied)).take();
        assert_eq!((made.object, made.attributes.logical_size), (copied.object, 8));
        for exists in [name, copied] {
            let again = drive.by(signer.clone(), Procedure::Create, &create(exists));
            assert_eq!((again.failed(), again.proved), (Status::ObjectExists, true));
            let again = drive.by(signer.clone(), Procedure::Fastcopy, &copy(name, exists));
            assert_eq!(again.failed(), Status::ObjectExists);
        }
    }
    // The drive goes on choosing by itself.
    assert!(!drive.new_object().object.is_named());
}

#[test]
fn not_every_number_may_be_chosen() {
    let drive = TestDrive::new();
    let source = drive.new_object();
    for number in [0, 1, 4, source.object.0, ObjectId::FIRST_NAMED.0 - 1, 1 << 59, u64::MAX] {
        let name = object(number);
        let answered = drive.by(Signer::working(), Procedure::Create, &create(name));
        assert_eq!(answered.failed(), Status::BadArgument, "{name}");
        let answered = drive.by(Signer::working(), Procedure::Fastcopy, &copy(source, name));
        assert_eq!(answered.failed(), Status::BadArgument, "{name}");
        let operation = BatchOperation::Create(Some(name.object), SetAttributes::default());
        assert_eq!(batch(&drive, vec![operation]), [Err(Status::BadArgument)]);
    }
}

#[test]
fn holders_of_capabilities_do_not_choose() {
    let drive = TestDrive::new();
    let source = drive.object_with(b"contents");
    let rights = Rights::READ | Rights::GETATTR | Rights::CREATE;
    let of_source = Capability { rights, ..drive.capability(source) };
    let of_partition = Capability { object: ObjectId(0), region: ByteRange::ALL, ..of_source };
    let made: Created = drive.by(Signer::working(), Procedure::Create, &create(chosen(1))).take();
    // Whether there is such an object is not told either.
    for name in [chosen(0), object(9), ObjectName { object: made.object, ..source }] {
        let signer = Signer::minted(&of_partition, &of_partition, 0);
        let answered = drive.by(signer.clone(), Procedure::Create, &create(name));
        assert_eq!((answered.failed(), answered.proved), (Status::NotPermitted, true), "{name}");
        let of_source = Signer::capability(&of_source);
        let answered = drive.by(of_source, Procedure::Fastcopy, &copy(source, name));
        assert_eq!(answered.failed(), Status::NotPermitted, "{name}");
        let given = CreateArguments { object: None, ..create(name) };
        assert_eq!(drive.by(signer, Procedure::Create, &given).status, None);
    }
    assert_eq!(drive.server().drive().store().partition_space(PARTITION).unwrap().objects, 6);
}

#[test]
fn a_batch_makes_chosen_objects_beside_others() {
    let drive = TestDrive::new();
    let make = |chosen: Option<ObjectName>| {
        BatchOperation::Create(chosen.map(|name| name.object), SetAttributes::default())
    };
    let operations = vec![
        make(Some(chosen(7))),
        make(None),
        make(Some(chosen(7))),
        BatchOperation::Remove(chosen(7).object),
        // It never was durable, so that nothing is left of it.
        make(Some(chosen(7))),
        BatchOperation::Getattr(chosen(7).object),
    ];
    let outcomes = batch(&drive, operations);
    let made: Vec<Result<ObjectId, Status>> =
        outcomes.into_iter().map(|outcome| outcome.map(|done| done.object)).collect();
    let (named, given) = (Ok(chosen(7).object), made[1]);
    assert_eq!(made, [named, given, Err(Status::ObjectExists), named, named, named]);
    assert!(!given.unwrap().is_named());
}

#[test]
fn chosen_objects_are_listed_and_gone_when_that_is_durable() {
    let drive = TestDrive::new();
    let names = [chosen(0), chosen(5), object(ObjectId::END.0 - 1)];
    for name in names {
        let made: Created = drive.by(Signer::working(), Procedure::Create, &create(name)).take();
        assert_eq!(made.object, name.object);
    }
    let list = |from: ObjectId| -> Vec<ObjectId> {
        let contents = object(ObjectId::PARTITION_CONTENTS.0);
        let length = 80.min(8 * (ObjectId::END.0 - from.0));
        let arguments = ReadArguments::single(contents, 8 * from.0, length);
        let answered = drive.by(Signer::working(), Procedure::Read, &arguments);
        assert_eq!(answered.status, None);
        let numbers =
            answered.data.chunks(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
        numbers.map(ObjectId).collect()
    };
    let objects = names.map(|name| name.object);
    assert_eq!(list(ObjectId(5)), objects);
    assert_eq!(list(objects[2]), objects[2..]);
    assert_eq!(list(ObjectId(ObjectId::END.0 - 1)), objects[2..]);
    let client = client_of(&drive);
    let listed = |from| -> Vec<ObjectId> {
        client.objects_from(&authority(), PARTITION, from).map(Result::unwrap).collect()
    };
    assert_eq!(listed(ObjectId(0)), [&[ObjectId::FIRST_OBJECT], &objects[..]].concat());
    assert_eq!(listed(objects[2]), objects[2..]);
    assert_eq!(listed(ObjectId::END), []);
    let flush = FlushArguments { partition: PARTITION, objects: objects.to_vec() };
    assert_eq!(drive.by(Signer::working(), Procedure::Flush, &flush).status, None);
    let remove = RemoveArguments { name: names[1], durable: false };
    assert_eq!(drive.by(Signer::working(), Procedure::Remove, &remove).status, None);
    let again = || drive.by(Signer::working(), Procedure::Create, &create(names[1]));
    assert_eq!(again().failed(), Status::ObjectExists);
    drive.server().drive().store().flush_all().unwrap();
    assert_eq!(again().take::<Created>().object, objects[1]);
}

#[test]
fn clients_choose() {
    let drive = TestDrive::new();
    let (client, authority) = (client_of(&drive), authority());
    let initial = SetAttributes { logical_size: Some(77), ..SetAttributes::default() };
    let make = || client.create_named(&authority, chosen(1), &initial, true);
    let made = make().unwrap();
    assert_eq!((made.object, made.attributes.logical_size), (chosen(1).object, 77));
    let copy = || client.fastcopy_named(&authority, chosen(1), chosen(2).object);
    let copied = copy().unwrap();
    assert_eq!(copied.object, chosen(2).object);
    assert_eq!(copied.attributes.copied_object, made.object);
    for again in [make(), copy()] {
        let error = again.unwrap_err();
        assert!(matches!(error, ClientError::Drive(Status::ObjectExists)), "{error}");
    }
    let missing = client.fastcopy_named(&authority, chosen(9), chosen(3).object).unwrap_err();
    assert_eq!(missing.status(), Some(Status::NoSuchObject));
}
