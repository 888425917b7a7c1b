//! Several changes in one call: what they do, who may ask for them, and what survives.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;
#[path = "../../types/tests/random/mod.rs"]
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use nasd_capability::Capability;
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice};
use nasd_protocol::drive::{
    AttributesReply, AuditArguments, AuditPage, AuditRecord, BatchArguments, BatchDone,
    BatchOperation, BatchOutcome, Batched, GetattrArguments, Procedure,
};
use nasd_protocol::{CredentialKey, Status};
use nasd_store::Store;
use nasd_types::{
    ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights, SetAttributes,
};
use random::Random;

fn batch(operations: Vec<BatchOperation>) -> BatchArguments {
    BatchArguments { partition: PARTITION, durable: false, with_attributes: true, operations }
}

fn done(drive: &TestDrive, arguments: &BatchArguments) -> Vec<BatchOutcome> {
    let batched: Batched = drive.by(Signer::working(), Procedure::Batch, arguments).take();
    assert_eq!(batched.instance, drive.server().drive().instance());
    batched.outcomes
}

fn sized(bytes: u64) -> SetAttributes {
    SetAttributes {
        access_control_version: Some(5),
        logical_size: Some(bytes),
        ..SetAttributes::default()
    }
}

fn resized(bytes: u64) -> SetAttributes {
    SetAttributes { logical_size: Some(bytes), ..SetAttributes::default() }
}

fn size_of(drive: &TestDrive, object: ObjectId) -> Option<u64> {
    let name = ObjectName { partition: PARTITION, object };
    let answered = drive.by(Signer::working(), Procedure::Getattr, &GetattrArguments { name });
    if answered.status == Some(Status::NoSuchObject) {
        return None;
    }
    let reply: AttributesReply = answered.take();
    Some(reply.attributes.logical_size)
}

/// Random batches against a table of what there is: each operation sees those before it, and what fails
/// keeps none from being done.
#[test]
fn operations_are_done_in_order_and_each_for_itself() {
    let drive = TestDrive::new();
    let mut random = Random(7);
    let mut model: BTreeMap<ObjectId, u64> = BTreeMap::new();
    for _ in 0..300 {
        let known: Vec<ObjectId> = model.keys().copied().chain([ObjectId(1 << 50)]).collect();
        let operations: Vec<BatchOperation> = (0..random.index(12))
            .map(|_| {
                let (object, size) = (known[random.index(known.len())], random.next() % 99_999);
                match random.index(4) {
                    0 => BatchOperation::Create(None, sized(size)),
                    1 => BatchOperation::Remove(object),
                    2 => BatchOperation::Setattr(object, resized(size)),
                    _ => BatchOperation::Getattr(object),
                }
            })
            .collect();
        let arguments = BatchArguments {
            durable: random.index(4) == 0,
            with_attributes: random.index(2) == 0,
            ..batch(operations)
        };
        let outcomes = done(&drive, &arguments);
        assert_eq!(outcomes.len(), arguments.operations.len());
        for (operation, outcome) in arguments.operations.iter().zip(&outcomes) {
            let told = outcome.as_ref().map_err(|status| *status).map(|done| {
                let size = done.attributes.as_ref().map(|each| each.logical_size);
                (done.object, size)
            });
            let expected = expect(&mut model, operation, told.map(|(object, _)| object));
            let expected = expected.map(|(object, size)| {
                (object, size.filter(|_| operation.tells_attributes(arguments.with_attributes)))
            });
            // Sizes of what was changed twice in a durable batch are told as of its end.
            match (told, expected, arguments.durable) {
                (Ok((object, Some(_))), Ok((named, Some(_))), true) => assert_eq!(object, named),
                _ => assert_eq!(told, expected, "{operation:?}"),
            }
        }
    }
    for (object, size) in &model {
        assert_eq!(size_of(&drive, *object), Some(*size), "{object}");
    }
}

/// What an operation comes to on the table, where a create makes `made`.
fn expect(
    model: &mut BTreeMap<ObjectId, u64>,
    operation: &BatchOperation,
    made: Result<ObjectId, Status>,
) -> Result<(ObjectId, Option<u64>), Status> {
    match operation {
        BatchOperation::Create(_, initial) => {
            let (object, size) = (made?, initial.logical_size);
            assert_eq!(model.insert(object, size.unwrap()), None, "a new one");
            Ok((object, size))
        }
        BatchOperation::Remove(object) => {
            model.remove(object).map(|_| (*object, None)).ok_or(Status::NoSuchObject)
        }
        BatchOperation::Setattr(object, changes) => {
            let size = model.get_mut(object).ok_or(Status::NoSuchObject)?;
            *size = changes.logical_size.unwrap();
            Ok((*object, Some(*size)))
        }
        BatchOperation::Getattr(object) => {
            let size = model.get(object).ok_or(Status::NoSuchObject)?;
            Ok((*object, Some(*size)))
        }
    }
}

#[test]
fn what_single_calls_refuse_is_refused_in_a_batch() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    let set = |changes| BatchOperation::Setattr(name.object, changes);
    let other = SetAttributes { block_size: Some(512), ..SetAttributes::default() };
    let older = SetAttributes { access_control_version: Some(1), ..SetAttributes::default() };
    let operations = vec![
        BatchOperation::Create(None, other.clone()),
        set(other),
        set(older),
        BatchOperation::Remove(ObjectId::FIRST_OBJECT),
        BatchOperation::Remove(ObjectId::DRIVE_CONTROL),
        BatchOperation::Setattr(ObjectId::PARTITION_CONTROL, SetAttributes::default()),
        BatchOperation::Getattr(ObjectId::DRIVE_CONTROL),
        BatchOperation::Getattr(ObjectId::FIRST_OBJECT),
    ];
    let statuses: Vec<Option<Status>> =
        done(&drive, &batch(operations)).into_iter().map(Result::err).collect();
    let (settable, never) = (Some(Status::NotAdjustable), Some(Status::NotPermitted));
    let bad = Some(Status::BadArgument);
    assert_eq!(statuses, [settable, settable, bad, never, never, never, never, None]);
}

#[test]
fn only_holders_of_keys_for_the_partition_may_ask() {
    let drive = TestDrive::owned();
    let name = drive.new_object();
    let arguments = batch(vec![BatchOperation::Remove(name.object)]);
    let request = |signer| Request::new(Procedure::Batch, &arguments, signer);
    let whole = Capability {
        object: ObjectId(0),
        region: ByteRange::ALL,
        rights: Rights::all(),
        ..drive.capability(name)
    };
    for signer in [
        Signer::capability(&drive.capability(name)),
        Signer::minted(&whole, &whole, 0),
        Signer::master(),
    ] {
        assert_eq!(drive.refused(&request(signer)), Status::RefusedKey);
    }
    let elsewhere = Signer::key(CredentialKey::WorkingCurrent(OTHER_PARTITION), WORKING_KEY + 10);
    assert_eq!(drive.refused(&request(elsewhere)), Status::RefusedKey);
    let forged = Signer::key(CredentialKey::WorkingCurrent(PARTITION), WORKING_KEY + 1);
    assert_eq!(drive.refused(&request(forged)), Status::RefusedDigest);
    assert_eq!(size_of(&drive, name.object), Some(0), "nothing was done");
    for signer in [Signer::working(), Signer::partition(), Signer::drive()] {
        let asked = batch(vec![BatchOperation::Getattr(name.object)]);
        let request = Request::new(Procedure::Batch, &asked, signer);
        for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
            let answered = drive.ask(&Request { protection, ..request.clone() }).unwrap();
            assert_eq!((answered.status, answered.proved), (None, true));
        }
    }
    let nowhere = BatchArguments { partition: PartitionId(77), ..batch(vec![]) };
    let answered = drive.by(Signer::drive(), Procedure::Batch, &nowhere);
    assert_eq!(answered.failed(), Status::NoSuchPartition);
}

/// What one answer can't hold is not begun.
#[test]
fn what_cannot_be_answered_is_not_done() {
    let drive = TestDrive::new();
    let create = BatchOperation::Create(None, SetAttributes::default());
    let most = BatchArguments::fitting(&vec![create.clone(); 1024], true);
    let asked = batch(vec![create.clone(); most + 1]);
    let answered = drive.by(Signer::working(), Procedure::Batch, &asked);
    assert_eq!(answered.failed(), Status::TooLarge);
    assert_eq!(drive.server().drive().store().partition_space(PARTITION).unwrap().objects, 1);
    assert_eq!(done(&drive, &batch(vec![create.clone(); most])).len(), most);
    let many = BatchArguments { with_attributes: false, ..batch(vec![create; 1024]) };
    let outcomes = done(&drive, &many);
    let made: BTreeSet<ObjectId> =
        outcomes.iter().map(|each| each.as_ref().unwrap().object).collect();
    assert_eq!(made.len(), 1024);
    assert!(outcomes.iter().all(|each| each.as_ref().unwrap().attributes.is_none()));
}

/// The power fails right after the answer: what was to be durable is there, and what was removed is not.
#[test]
fn what_was_durable_survives_a_power_cut() {
    let device = Arc::new(FaultyDevice::zeroed(64 << 20));
    let medium: Arc<dyn BlockDevice> = device.clone();
    Store::format(Arc::clone(&medium), &format_options()).unwrap();
    let drive = TestDrive::on(medium, patient(), START);
    let gone = drive.new_object();
    let mut operations = vec![BatchOperation::Create(None, sized(100)); 50];
    operations.push(BatchOperation::Remove(gone.object));
    operations.push(BatchOperation::Setattr(ObjectId::FIRST_OBJECT, resized(77)));
    let durable = BatchArguments { durable: true, ..batch(operations.clone()) };
    let flushes = drive.server().drive().store().statistics().flushes;
    let outcomes = done(&drive, &durable);
    assert_eq!(drive.server().drive().store().statistics().flushes - flushes, 1, "one for all");
    let lost = done(&drive, &batch(operations[..50].to_vec()));
    let (survivor, later) = (device.survivor(0), drive.now().0 + 20 * SECOND);
    drop(drive);
    let device = Arc::new(FaultyDevice::over(survivor, FaultPlan::default()));
    let drive = TestDrive::on(device, patient(), later);
    for outcome in &outcomes[..50] {
        assert_eq!(size_of(&drive, outcome.as_ref().unwrap().object), Some(100));
    }
    assert_eq!(size_of(&drive, gone.object), None);
    assert_eq!(size_of(&drive, ObjectId::FIRST_OBJECT), Some(77));
    for outcome in &lost {
        assert_eq!(size_of(&drive, outcome.as_ref().unwrap().object), None);
    }
}

/// One record for each kind and way to end, beside that of the call.
#[test]
fn the_audit_trail_tells_how_many_of_each_kind() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    let asked = batch(vec![
        BatchOperation::Create(None, SetAttributes::default()),
        BatchOperation::Create(None, SetAttributes::default()),
        BatchOperation::Setattr(name.object, resized(9)),
        BatchOperation::Remove(ObjectId(1 << 40)),
        BatchOperation::Remove(ObjectId(1 << 41)),
        BatchOperation::Remove(name.object),
    ]);
    drive.advance(10 * SECOND);
    let from = drive.now();
    done(&drive, &asked);
    let wanted = AuditArguments { from, ..AuditArguments::ALL };
    let page: AuditPage = drive.by(Signer::drive(), Procedure::Audit, &wanted).take();
    let told =
        |record: &AuditRecord| (record.procedure, record.status, record.count, record.object);
    let told: BTreeSet<_> = page.records.iter().map(told).collect();
    let missing = u32::from(Status::NoSuchObject);
    let none = ObjectId(0);
    let expected = [
        (Procedure::Batch as u32, 0, 1, none),
        (Procedure::Create as u32, 0, 2, none),
        (Procedure::Setattr as u32, 0, 1, name.object),
        (Procedure::Remove as u32, missing, 2, none),
        (Procedure::Remove as u32, 0, 1, name.object),
    ];
    assert_eq!(told, BTreeSet::from(expected));
}

#[test]
fn a_client_cuts_what_it_wants_into_batches() {
    let drive = TestDrive::new();
    let address = drive.server().address().to_string();
    let options = ConnectOptions { max_clock_offset: Duration::MAX, ..ConnectOptions::default() };
    let client = DriveClient::tcp(address, Some(DriveId(0xd1)), &options);
    let secret = nasd_capability::SecretKey::new(key_of(WORKING_KEY));
    let authority = Authority::working_key(PARTITION, secret, Protection::INTEGRITY_ARGS);
    let record = SetAttributes { fs_specific: Some(Box::new([7; 256])), ..sized(1) };
    let operations = vec![BatchOperation::Create(None, record); 500];
    let too_many = client.batch(&authority, &batch(operations.clone())).unwrap_err();
    assert!(matches!(too_many, ClientError::TooLarge { amount: 500, .. }), "{too_many}");
    let (mut rest, mut made) = (&operations[..], 0);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(BatchArguments::fitting(rest, true));
        let batched = client.batch(&authority, &batch(now.to_vec())).unwrap();
        for outcome in batched.outcomes {
            let BatchDone { attributes, .. } = outcome.unwrap();
            assert_eq!(*attributes.unwrap().fs_specific, [7; 256]);
            made += 1;
        }
        rest = later;
    }
    assert_eq!(made, 500);
}
