//! The audit trail: what is in it, who may read it, and what it survives.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use nasd_capability::{Capability, Digest, KeyKind, Narrowing};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice};
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{
    AttributesReply, AuditArguments, AuditKind, AuditPage, AuditRecord, BatchArguments,
    BatchOperation, BlocksrequiredArguments, ComparepartitionArguments, CopypartitionArguments,
    CreateArguments, Created, CreatepartitionArguments, DriveInformation, FastcopyArguments,
    FlushArguments, FlushpartitionArguments, GetattrArguments, InitializeArguments, PartitionKey,
    Procedure, PunchArguments, ReadArguments, RemoveArguments, RemovepartitionArguments,
    ResizepartitionArguments, SeekArguments, SetattrArguments, SetpartitionArguments,
    SetpartitionkeyArguments, WriteArguments,
};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_store::{OpenOptions, Store};
use nasd_types::{
    AuditId, ByteRange, ObjectId, ObjectName, PartitionId, Protection, SeekTarget, SetAttributes,
    Timestamp,
};
use nasd_xdr::to_bytes;

const AUDIT: ObjectName =
    ObjectName { partition: PartitionId::AUDIT, object: ObjectId::FIRST_OBJECT };

/// The drive of these tests has room for 41 blocks of records: a thousandth of what it can store, of
/// which a quarter is for what is not proved.
const BYTES: u64 = 41 << 12;
const PROVED: usize = 31 * 64;
const CLAIMED: usize = 10 * 64;

fn page(drive: &TestDrive, wanted: &AuditArguments) -> AuditPage {
    drive.by(Signer::drive(), Procedure::Audit, wanted).take()
}

/// All records that are wanted, page by page, without those of asking for them.
fn records(drive: &TestDrive, wanted: &AuditArguments) -> Vec<AuditRecord> {
    let mut wanted = *wanted;
    let mut all = Vec::new();
    loop {
        let page = page(drive, &wanted);
        assert!(page.records.len() <= wanted.most as usize);
        let asked = |record: &AuditRecord| record.procedure == Procedure::Audit as u32;
        all.extend(page.records.into_iter().filter(|record| !asked(record)));
        if !page.more {
            return all;
        }
        wanted.after = page.next;
    }
}

fn of_requests(drive: &TestDrive) -> Vec<AuditRecord> {
    let mut found = records(drive, &AuditArguments::ALL);
    found.retain(|record| matches!(record.kind, AuditKind::Proved | AuditKind::Claimed));
    found
}

fn status(status: Status) -> u32 {
    status.into()
}

/// Counts for records what has come until now.
fn keep(drive: &TestDrive) {
    drive.server().drive().keep_audit_trail();
}

fn read(name: ObjectName, signer: Signer) -> Request<'static> {
    Request::new(Procedure::Read, &ReadArguments::single(name, 0, 8), signer)
}

/// Who minted a capability is told also of those to whom it was handed on, and where nobody on the
/// way could read it.
#[test]
fn it_tells_by_whose_capability_also_if_it_was_narrowed_or_sealed() {
    let drive = TestDrive::new();
    let (name, other) = (drive.object_with(b"contents"), drive.object_with(b"other"));
    let capability = drive.capability(name);
    let narrowing = Narrowing::of(&capability);
    for (number, signer) in [
        Signer::narrowed(&capability, &[narrowing]),
        Signer::sealed(&capability, &[]),
        Signer::sealed(&capability, &[narrowing; 8]),
    ]
    .into_iter()
    .enumerate()
    {
        let mut protection = Protection::INTEGRITY_ARGS;
        if signer.claimed.sealed_capability().is_some() {
            protection |= Protection::PRIVACY_CAPABILITY;
        }
        let ask = |name| Request { protection, ..read(name, signer.clone()) };
        assert_eq!(drive.ask(&ask(name)).unwrap().status, None);
        assert_eq!(drive.refused(&ask(other)), Status::RefusedObject);
        keep(&drive);
        let found = of_requests(&drive);
        for (kind, object) in [(AuditKind::Proved, name), (AuditKind::Claimed, other)] {
            let about = |record: &&AuditRecord| {
                let is_read = record.procedure == Procedure::Read as u32;
                is_read && record.kind == kind && record.object == object.object
            };
            let told: Vec<&AuditRecord> = found.iter().filter(about).collect();
            let all: u64 = told.iter().map(|record| u64::from(record.count)).sum();
            assert_eq!(all, number as u64 + 1, "{told:?}");
            assert!(told.iter().all(|record| record.audit_id == capability.audit_id), "{told:?}");
        }
    }
}

#[test]
fn it_tells_who_did_what_to_which_object() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    let signer = Signer::capability(&capability);
    for _ in 0..5 {
        assert_eq!(drive.ask(&read(name, signer.clone())).unwrap().status, None);
    }
    let other =
        drive.by(signer.clone(), Procedure::Getattr, &GetattrArguments { name: object(77) });
    assert_eq!(other.status, Some(Status::RefusedObject));
    let found = of_requests(&drive);
    let of = |procedure: Procedure| -> Vec<&AuditRecord> {
        found.iter().filter(|record| record.procedure == procedure as u32).collect()
    };
    let created = of(Procedure::Create);
    assert_eq!(created.len(), 1);
    assert_eq!(created[0].object, name.object, "the one that it made");
    assert_eq!((created[0].key, created[0].audit_id), (KeyKind::WorkingCurrent, AuditId(0)));
    assert_eq!(of(Procedure::Write)[0].object, name.object);
    let reads = of(Procedure::Read);
    assert_eq!(reads.len(), 1, "one record for what is alike: {reads:?}");
    let expected = AuditRecord {
        sequence: reads[0].sequence,
        first: drive.now(),
        span_ms: 0,
        count: 5,
        kind: AuditKind::Proved,
        procedure: Procedure::Read as u32,
        status: 0,
        key: KeyKind::Capability,
        partition: PARTITION,
        object: name.object,
        audit_id: AuditId(99),
    };
    assert_eq!(*reads[0], expected);
    let refused = of(Procedure::Getattr);
    assert_eq!(refused[0].kind, AuditKind::Claimed);
    assert_eq!(refused[0].status, status(Status::RefusedObject));
    assert_eq!((refused[0].object, refused[0].audit_id), (ObjectId(77), AuditId(99)));
}

/// Each reason to refuse is in the trail, as a claim.
#[test]
fn refusals_are_in_it() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    let signer = Signer::capability(&capability);
    let replayed = Request { nonce: Some(drive.fresh_nonce()), ..read(name, signer.clone()) };
    assert_eq!(drive.ask(&replayed).unwrap().status, None);
    let mut late = capability;
    late.expires = Timestamp(drive.now().0 - 1);
    let mut blind = capability;
    blind.rights = nasd_types::Rights::WRITE;
    let flip = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    let requests = [
        (Request { tamper_verifier: Some(&flip), ..read(name, signer) }, Status::RefusedDigest),
        (replayed, Status::RefusedReplay),
        (read(name, Signer::capability(&late)), Status::RefusedExpired),
        (read(name, Signer::capability(&blind)), Status::RefusedRights),
        (read(name, Signer::master()), Status::RefusedKey),
    ];
    for (request, expected) in &requests {
        assert_eq!(drive.refused(request), *expected);
        let wanted = AuditArguments { status: Some(status(*expected)), ..AuditArguments::ALL };
        let found = records(&drive, &wanted);
        assert_eq!(found.len(), 1, "{expected:?}");
        let kind = (found[0].kind, found[0].procedure, found[0].object);
        assert_eq!(kind, (AuditKind::Claimed, Procedure::Read as u32, name.object));
    }
}

/// Anybody may send a recorded inquiry once more: it tells nothing of who does.
#[test]
fn an_inquiry_that_passes_again_is_in_nobodys_name() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let signer = Signer::capability(&drive.capability(name));
    let nonce = Some(drive.fresh_nonce());
    let inquiry = Request { nonce, ..Request::new(Procedure::Inquiry, &(), signer) };
    for _ in 0..3 {
        assert!(drive.ask(&inquiry).unwrap().proved);
    }
    let private = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
    let once = Request { protection: private, nonce: Some(drive.fresh_nonce()), ..inquiry };
    assert_eq!(drive.ask(&once).unwrap().status, None);
    assert_eq!(drive.refused(&once), Status::RefusedReplay);
    let procedure = Procedure::Inquiry as u32;
    let found = of_requests(&drive);
    let found: Vec<(AuditKind, u32, u32)> = found
        .iter()
        .filter(|record| record.procedure == procedure)
        .map(|record| (record.kind, record.status, record.count))
        .collect();
    assert_eq!(found, [(AuditKind::Claimed, 0, 3), (AuditKind::Proved, 0, 1)]);
}

/// A holder of any capability may name in private whatever it likes: only what it may name is proved.
#[test]
fn private_refusals_are_claims() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let signer = Signer::capability(&drive.capability(name));
    let private = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
    let ask = |signer: &Signer, procedure, arguments, data| {
        let request = Request::new(procedure, &(), signer.clone());
        let request = Request { arguments, data, protection: private, ..request };
        drive.ask(&request).unwrap().failed()
    };
    let read = |name| to_bytes(&ReadArguments::single(name, 0, 8));
    let write = |name| to_bytes(&WriteArguments::single(name, 0, 8, false));
    let elsewhere = ObjectName { partition: OTHER_PARTITION, object: ObjectId(78) };
    let cut = |bytes: Vec<u8>| bytes[..16].to_vec();
    let cases: [(Procedure, Vec<u8>, &[u8], Status); 6] = [
        (Procedure::Read, read(object(71)), &[], Status::RefusedObject),
        (Procedure::Read, read(elsewhere), &[], Status::RefusedPartition),
        (Procedure::Read, cut(read(object(72))), &[], Status::BadArgument),
        (Procedure::Write, write(object(73)), &[0; 8], Status::RefusedObject),
        (Procedure::Write, write(object(74)), &[0; 4], Status::BadArgument),
        (Procedure::Private, read(object(75)), &[], Status::BadArgument),
    ];
    for (procedure, arguments, data, expected) in cases {
        assert_eq!(ask(&signer, procedure, arguments, data), expected, "{procedure:?}");
        let found = of_requests(&drive);
        let last = found.iter().max_by_key(|record| record.sequence).unwrap();
        let told = (last.kind, last.procedure, last.status, last.audit_id);
        assert_eq!(
            told,
            (AuditKind::Claimed, procedure as u32, status(expected), AuditId(99)),
            "{last:?}"
        );
    }
    // What fails by itself is proved, as in the clear.
    let missing = to_bytes(&GetattrArguments { name: object(76) });
    let failed = ask(&Signer::working(), Procedure::Getattr, missing, &[]);
    assert_eq!(failed, Status::NoSuchObject);
    let wanted = AuditArguments { status: Some(status(failed)), ..AuditArguments::ALL };
    assert_eq!(records(&drive, &wanted)[0].kind, AuditKind::Proved);
}

/// What a private write is about is known also when it is refused for its data.
#[test]
fn a_private_write_with_other_data_is_in_it_under_its_name() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let arguments = WriteArguments::single(name, 0, 8, false);
    let signer = Signer::capability(&drive.capability(name));
    let request = Request::new(Procedure::Write, &arguments, signer);
    let flip = |bytes: &mut Vec<u8>| bytes[0] ^= 1;
    let protection = Protection::SUPPORTED;
    let request = Request { data: &[7; 8], protection, tamper_data: Some(&flip), ..request };
    assert_eq!(drive.refused(&request), Status::RefusedDigest);
    let wanted =
        AuditArguments { status: Some(status(Status::RefusedDigest)), ..AuditArguments::ALL };
    let found = records(&drive, &wanted);
    assert_eq!(found.len(), 1);
    let told = (found[0].kind, found[0].procedure, found[0].object, found[0].audit_id);
    assert_eq!(told, (AuditKind::Claimed, Procedure::Write as u32, name.object, AuditId(99)));
}

const PRIVATE: Protection = Protection::INTEGRITY_ARGS.union(Protection::PRIVACY_ARGS);

/// Somebody who asks in private for something about an object of his.
struct Private {
    name: ObjectName,
    signer: Signer,
    protection: Protection,
    /// Of the capability.
    audit_id: AuditId,
}

impl Private {
    fn write(&self, data: &'static [u8]) -> Request<'static> {
        let arguments = WriteArguments::single(self.name, 0, data.len(), false);
        let request = Request::new(Procedure::Write, &arguments, self.signer.clone());
        Request { data, protection: self.protection, ..request }
    }
}

/// By capabilities, by what was handed on, and by what is sealed, with as much protection as there is;
/// the last by a key.
fn in_private(drive: &TestDrive) -> [Private; 6] {
    [0, 1, 2, 3, 4, 5].map(|number| {
        let name = drive.object_with(b"contents");
        let audit_id = AuditId(200 + number);
        let capability = Capability { audit_id, ..drive.capability(name) };
        let narrowing = Narrowing::of(&capability);
        let sealed = Protection::PRIVACY_CAPABILITY;
        let (signer, protection) = match number {
            0 => (Signer::capability(&capability), PRIVATE),
            1 => (Signer::capability(&capability), Protection::SUPPORTED),
            2 => (Signer::narrowed(&capability, &[narrowing; 8]), PRIVATE),
            3 => (Signer::sealed(&capability, &[]), PRIVATE | sealed),
            4 => (Signer::sealed(&capability, &[narrowing]), Protection::UNDERSTOOD),
            _ => (Signer::working(), PRIVATE),
        };
        let audit_id = if number == 5 { AuditId(0) } else { audit_id };
        Private { name, signer, protection, audit_id }
    })
}

/// Procedure, arguments, data, and how it ends.
type Case = (Procedure, Vec<u8>, &'static [u8], Option<Status>);

/// Requests on an object.
fn about(name: ObjectName) -> Vec<Case> {
    let regions = vec![Region::single(0, 8)];
    let set = |changes| to_bytes(&SetattrArguments { name, durable: false, changes });
    let older = SetAttributes { access_control_version: Some(1), ..SetAttributes::default() };
    let size = SetAttributes { logical_size: Some(8), ..SetAttributes::default() };
    let (partition, objects) = (name.partition, vec![name.object]);
    let asked = BlocksrequiredArguments { name, regions: regions.clone() };
    let seek = SeekArguments { name, offset: 0, target: SeekTarget::Data };
    let punch = PunchArguments { name, durable: false, regions };
    let (bad, none) = (Some(Status::BadArgument), &[][..]);
    vec![
        (Procedure::Getattr, to_bytes(&GetattrArguments { name }), none, None),
        (Procedure::Read, to_bytes(&ReadArguments::single(name, 0, 8)), none, None),
        (Procedure::Write, to_bytes(&WriteArguments::single(name, 0, 8, false)), b"contents", None),
        (Procedure::Blocksrequired, to_bytes(&asked), none, None),
        (Procedure::Seek, to_bytes(&seek), none, None),
        (Procedure::Flush, to_bytes(&FlushArguments { partition, objects }), none, None),
        (Procedure::Punch, to_bytes(&punch), none, None),
        (Procedure::Setattr, set(size), none, None),
        // The operations themselves say so.
        (Procedure::Setattr, set(older), none, bad),
        (
            Procedure::Read,
            to_bytes(&ReadArguments { name, order: None, regions: vec![] }),
            none,
            bad,
        ),
    ]
}

/// Nobody on the way learns what a private call asks for, and how it ends; the trail tells it as of any.
#[test]
fn private_calls_are_in_it_as_what_they_asked_for() {
    let drive = TestDrive::new();
    for Private { name, signer, protection, audit_id } in in_private(&drive) {
        let key = signer.claimed.kind();
        let mut last = of_requests(&drive).len();
        for (procedure, arguments, data, expected) in about(name) {
            let request = Request::new(procedure, &(), signer.clone());
            let request = Request { arguments, data, protection, ..request };
            let answered = drive.ask(&request).unwrap();
            assert_eq!((answered.status, answered.proved), (expected, true), "{procedure:?}");
            let found = of_requests(&drive);
            assert_eq!(found.len(), last + 1, "{procedure:?} by {:?}", signer.claimed);
            last = found.len();
            let record = found.iter().max_by_key(|record| record.sequence).unwrap();
            let told = (record.kind, record.procedure, record.status, record.count);
            let ended = expected.map_or(0, status);
            assert_eq!(told, (AuditKind::Proved, procedure as u32, ended, 1), "{record:?}");
            assert_eq!((record.partition, record.object), (PARTITION, name.object), "{record:?}");
            assert_eq!((record.key, record.audit_id), (key, audit_id), "{record:?}");
        }
    }
}

/// The records of private calls of which nothing was decrypted: how often they were refused so, by
/// whose capability.
fn undecrypted(drive: &TestDrive, refused: Status) -> BTreeMap<AuditId, u32> {
    let mut counts = BTreeMap::new();
    for record in of_requests(drive) {
        if record.procedure != Procedure::Private as u32 {
            continue;
        }
        let told = (record.kind, record.status, record.partition, record.object);
        let nothing = (PartitionId(0), ObjectId(0));
        assert_eq!(told, (AuditKind::Claimed, status(refused), nothing.0, nothing.1), "{record:?}");
        *counts.entry(record.audit_id).or_default() += record.count;
    }
    counts
}

/// What is refused before it is decrypted is a private call and no more; and what it asked for, and had
/// done once, is there once.
#[test]
fn a_private_call_that_passes_again_is_refused_and_in_it() {
    let device = new_device();
    let mut drive = on(&device, START);
    let people = in_private(&drive);
    let requests: Vec<Request<'_>> = people
        .iter()
        .map(|who| Request { nonce: Some(drive.fresh_nonce()), ..who.write(b"replayed") })
        .collect();
    for (who, request) in people.iter().zip(&requests) {
        assert_eq!(drive.ask(request).unwrap().status, None);
        drive.write(who.name, 0, b"contents");
        for _ in 0..3 {
            assert_eq!(drive.refused(request), Status::RefusedReplay);
        }
        let found = undecrypted(&drive, Status::RefusedReplay);
        assert_eq!(found.get(&who.audit_id), Some(&3), "{:?}", who.signer.claimed);
        let wanted = AuditArguments { object: Some(who.name.object), ..AuditArguments::ALL };
        let mut written = records(&drive, &wanted);
        written.retain(|record| record.procedure == Procedure::Write as u32);
        // By whom it is the object's, and twice by the working key: before that and after.
        let own = |record: &&AuditRecord| record.audit_id == who.audit_id;
        let own: u32 = written.iter().filter(own).map(|record| record.count).sum();
        let expected = if who.audit_id == AuditId(0) { 3 } else { 1 };
        assert_eq!(own, expected, "{written:?}");
    }
    // Neither what passed nor what was said of it is forgotten when the drive starts anew.
    let now = drive.now().0;
    drive.server.take().unwrap().shut_down(Duration::from_secs(5)).unwrap();
    let drive = TestDrive::starting(device, patient(), now);
    drive.advance(5 * SECOND);
    for request in &requests {
        assert_eq!(drive.refused(request), Status::RefusedReplay);
    }
    let found = undecrypted(&drive, Status::RefusedReplay);
    let expected: BTreeMap<AuditId, u32> = people.iter().map(|who| (who.audit_id, 4)).collect();
    assert_eq!(found, expected);
    for who in &people {
        let data = drive.server().drive().store().read(who.name, ByteRange::new(0, 9)).unwrap();
        assert_eq!(data.to_vec(), b"contents", "{:?}", who.signer.claimed);
    }
}

/// Makes what was minted for these worth nothing.
type Ending = fn(&TestDrive, &[ObjectName]);

const ENDINGS: [(Ending, Status); 5] = [
    (
        |drive, names| {
            for &name in names {
                let access_control_version = Some(6);
                let changes = SetAttributes { access_control_version, ..Default::default() };
                let set = SetattrArguments { name, durable: false, changes };
                drive.by(Signer::working(), Procedure::Setattr, &set).take::<AttributesReply>();
            }
        },
        Status::RefusedDigest,
    ),
    (
        |drive, names| {
            for &name in names {
                let remove = RemoveArguments { name, durable: false };
                drive.by(Signer::working(), Procedure::Remove, &remove).take::<()>();
            }
        },
        Status::RefusedDigest,
    ),
    (
        |drive, _| {
            for epoch in [EPOCH + 1, EPOCH + 2] {
                let value = Signer::partition().seal(epoch as u8 + 40);
                let (partition, which) = (PARTITION, PartitionKey::Current);
                let set = SetpartitionkeyArguments { partition, which, epoch, value };
                drive.by(Signer::partition(), Procedure::Setpartitionkey, &set).take::<()>();
            }
        },
        Status::RefusedEpoch,
    ),
    (
        |drive, _| {
            let minimum_protection = Some(Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA);
            let (partition, compression) = (PARTITION, None);
            let set = SetpartitionArguments { partition, compression, minimum_protection };
            drive.by(Signer::drive(), Procedure::Setpartition, &set).take::<()>();
        },
        Status::RefusedMinimum,
    ),
    (|drive, _| drive.advance(3600 * SECOND), Status::RefusedExpired),
];

#[test]
fn a_private_call_after_a_revocation_is_refused_and_in_it() {
    for (ending, expected) in ENDINGS {
        let drive = TestDrive::new();
        // All but the key.
        let people = &in_private(&drive)[..5];
        for who in people {
            assert_eq!(drive.ask(&who.write(b"contents")).unwrap().status, None);
        }
        ending(&drive, &people.iter().map(|who| who.name).collect::<Vec<_>>());
        let mut told = BTreeMap::new();
        for who in people {
            assert_eq!(
                drive.refused(&who.write(b"too late")),
                expected,
                "{:?}",
                who.signer.claimed
            );
            let data = drive.server().drive().store().read(who.name, ByteRange::new(0, 9));
            assert!(data.is_err() || data.unwrap().to_vec() == b"contents", "{expected:?}");
            // Of a sealed one whose key is gone nobody knows whose it was.
            let is_sealed = who.signer.claimed.sealed_capability().is_some();
            let is_unreadable = expected == Status::RefusedEpoch && is_sealed;
            let audit_id = if is_unreadable { AuditId(0) } else { who.audit_id };
            *told.entry(audit_id).or_default() += 1;
        }
        assert_eq!(undecrypted(&drive, expected), told, "{expected:?}");
    }
}

/// A failure of the operation itself is proved, and has its status.
#[test]
fn failures_are_proved() {
    let drive = TestDrive::new();
    let missing = GetattrArguments { name: object(9999) };
    let answered = drive.by(Signer::working(), Procedure::Getattr, &missing);
    assert_eq!(answered.failed(), Status::NoSuchObject);
    let wanted =
        AuditArguments { status: Some(status(Status::NoSuchObject)), ..AuditArguments::ALL };
    let found = records(&drive, &wanted);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].object), (AuditKind::Proved, ObjectId(9999)));
}

#[test]
fn filters_combine() {
    let drive = TestDrive::new();
    let names = [drive.object_with(b"first"), drive.object_with(b"second")];
    for (number, name) in names.iter().enumerate() {
        for audit in [10, 20] {
            let mut capability = drive.capability(*name);
            capability.audit_id = AuditId(audit + number as u64);
            let answered = drive.ask(&read(*name, Signer::capability(&capability))).unwrap();
            assert_eq!(answered.status, None);
            keep(&drive);
            drive.advance(SECOND);
        }
    }
    let all = AuditArguments::ALL;
    let end = drive.now();
    let find = |wanted: AuditArguments| -> Vec<u64> {
        let found = records(&drive, &wanted);
        let reads = found.iter().filter(|record| record.procedure == Procedure::Read as u32);
        reads.map(|record| record.audit_id.0).collect()
    };
    assert_eq!(find(all), [10, 20, 11, 21]);
    assert_eq!(find(AuditArguments { audit_id: Some(AuditId(20)), ..all }), [20]);
    assert_eq!(find(AuditArguments { object: Some(names[1].object), ..all }), [11, 21]);
    assert_eq!(find(AuditArguments { partition: Some(PARTITION), ..all }).len(), 4);
    assert_eq!(find(AuditArguments { partition: Some(OTHER_PARTITION), ..all }), [0; 0]);
    assert_eq!(find(AuditArguments { status: Some(0), ..all }).len(), 4);
    assert_eq!(find(AuditArguments { status: Some(108), ..all }), [0; 0]);
    let from = Timestamp(end.0 - 2 * SECOND);
    assert_eq!(find(AuditArguments { from, ..all }), [11, 21]);
    assert_eq!(find(AuditArguments { to: from, ..all }), [10, 20]);
    let object = Some(names[0].object);
    assert_eq!(find(AuditArguments { object, from, ..all }), [0; 0]);
    // In pages of one; asking for them is about no partition, so that there are not ever more.
    let one = AuditArguments { most: 1, partition: Some(PARTITION), ..all };
    assert_eq!(find(one), [10, 20, 11, 21]);
    let last = records(&drive, &all).last().unwrap().sequence;
    assert_eq!(find(AuditArguments { after: last, ..all }), [0; 0]);
}

/// The drive key reads all of it, a partition key what is of its partition, and nobody else anything.
#[test]
fn who_may_read_it() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let other = ObjectName { partition: OTHER_PARTITION, object: ObjectId::FIRST_OBJECT };
    let getattr = GetattrArguments { name: other };
    assert_eq!(drive.by(Signer::drive(), Procedure::Getattr, &getattr).status, None);
    let own = AuditArguments { partition: Some(PARTITION), ..AuditArguments::ALL };
    let page: AuditPage = drive.by(Signer::partition(), Procedure::Audit, &own).take();
    assert!(page.records.iter().any(|record| record.object == name.object));
    assert!(page.records.iter().all(|record| record.partition == PARTITION));
    let not_its_own = AuditArguments { partition: Some(OTHER_PARTITION), ..AuditArguments::ALL };
    for wanted in [not_its_own, AuditArguments::ALL] {
        let request = Request::new(Procedure::Audit, &wanted, Signer::partition());
        assert_eq!(drive.refused(&request), Status::RefusedKey);
    }
    let of_partition = drive.capability(ObjectName { object: ObjectId(0), ..name });
    for signer in
        [Signer::working(), Signer::minted(&of_partition, &of_partition, 0), Signer::master()]
    {
        for wanted in [own, AuditArguments::ALL] {
            let request = Request::new(Procedure::Audit, &wanted, signer.clone());
            assert_eq!(drive.refused(&request), Status::RefusedKey);
        }
    }
    for (most, expected) in [(0, Status::BadArgument), (1025, Status::TooLarge)] {
        let wanted = AuditArguments { most, ..AuditArguments::ALL };
        assert_eq!(drive.by(Signer::drive(), Procedure::Audit, &wanted).failed(), expected);
    }
}

/// What a request can do to a partition or an object: nothing of it reaches the trail.
fn attempts() -> Vec<(Procedure, Vec<u8>)> {
    let partition = PartitionId::AUDIT;
    let name = AUDIT;
    let initial = SetAttributes::default();
    vec![
        (Procedure::Read, to_bytes(&ReadArguments::single(name, 0, 64))),
        (Procedure::Getattr, to_bytes(&GetattrArguments { name })),
        (Procedure::Remove, to_bytes(&RemoveArguments { name, durable: true })),
        (
            Procedure::Setattr,
            to_bytes(&SetattrArguments {
                name,
                durable: true,
                changes: SetAttributes { logical_size: Some(0), ..SetAttributes::default() },
            }),
        ),
        (
            Procedure::Create,
            to_bytes(&CreateArguments { partition, object: None, durable: true, initial }),
        ),
        (Procedure::Flush, to_bytes(&FlushArguments { partition, objects: vec![name.object] })),
        (Procedure::Flushpartition, to_bytes(&FlushpartitionArguments { partition })),
        (Procedure::Createpartition, to_bytes(&CreatepartitionArguments { partition })),
        (
            Procedure::Copypartition,
            to_bytes(&CopypartitionArguments { partition, source: PARTITION }),
        ),
        (
            Procedure::Comparepartition,
            to_bytes(&ComparepartitionArguments {
                partition,
                base: None,
                from: ObjectId(0),
                offset: 0,
            }),
        ),
        (Procedure::Putobject, to_bytes(&put_of(name))),
        (Procedure::Removepartition, to_bytes(&RemovepartitionArguments { partition })),
        (Procedure::Resizepartition, to_bytes(&ResizepartitionArguments { partition, bytes: 0 })),
        (
            Procedure::Setpartition,
            to_bytes(&SetpartitionArguments {
                partition,
                compression: None,
                minimum_protection: Some(Protection::NONE),
            }),
        ),
        (Procedure::Fastcopy, to_bytes(&FastcopyArguments { name, copy: None })),
        (
            Procedure::Batch,
            to_bytes(&BatchArguments {
                partition,
                durable: true,
                with_attributes: true,
                operations: vec![BatchOperation::Remove(name.object)],
            }),
        ),
        (
            Procedure::Audit,
            to_bytes(&AuditArguments { partition: Some(partition), ..AuditArguments::ALL }),
        ),
    ]
}

#[test]
fn no_key_reaches_it_over_the_network() {
    let drive = TestDrive::new();
    drive.object_with(b"contents");
    keep(&drive);
    let before = of_requests(&drive);
    let signers = [
        Signer::drive(),
        Signer::key(CredentialKey::Partition(PartitionId::AUDIT), PARTITION_KEY),
        Signer::key(CredentialKey::WorkingCurrent(PartitionId::AUDIT), WORKING_KEY),
        Signer::capability(&drive.capability(AUDIT)),
    ];
    for signer in signers {
        for (procedure, arguments) in attempts() {
            let request = Request { arguments, ..Request::new(procedure, &(), signer.clone()) };
            let status = drive.refused(&request);
            assert_eq!(status, Status::RefusedKey, "{procedure:?}");
        }
        let data = &[0; 64][..];
        let arguments = WriteArguments::single(AUDIT, 0, data.len(), true);
        let request = Request::new(Procedure::Write, &arguments, signer);
        assert_eq!(drive.refused(&Request { data, ..request }), Status::RefusedKey);
    }
    let inquiry: DriveInformation = drive.by(Signer::drive(), Procedure::Inquiry, &()).take();
    assert_eq!(inquiry.partitions, [PARTITION, OTHER_PARTITION]);
    let after = of_requests(&drive);
    assert!(before.iter().all(|record| after.contains(record)), "nothing is lost");
}

fn on(device: &Arc<dyn BlockDevice>, at: u64) -> TestDrive {
    TestDrive::on(Arc::clone(device), DriveOptions::default(), at)
}

#[test]
fn it_survives_a_restart() {
    let device = new_device();
    let mut drive = on(&device, START);
    let name = drive.object_with(b"contents");
    let mut before = of_requests(&drive);
    drive.server.take().unwrap().shut_down(Duration::from_secs(5)).unwrap();
    let end = drive.now().0;
    let drive = on(&device, end);
    let all = records(&drive, &AuditArguments::ALL);
    before.retain(|record| !all.contains(record));
    assert_eq!(before, []);
    let kinds: Vec<AuditKind> = all
        .iter()
        .map(|record| record.kind)
        .filter(|kind| !matches!(kind, AuditKind::Proved | AuditKind::Claimed))
        .collect();
    assert_eq!(kinds, [AuditKind::Started, AuditKind::Stopped, AuditKind::Started]);
    drive.advance(2 * SECOND);
    let getattr = GetattrArguments { name };
    assert_eq!(drive.by(Signer::working(), Procedure::Getattr, &getattr).status, None);
    let again = records(&drive, &AuditArguments::ALL);
    assert!(again.len() > all.len());
    let numbers: BTreeSet<u64> = again.iter().map(|record| record.sequence).collect();
    assert_eq!(numbers.len(), again.len(), "no number twice");
    assert!(again.is_sorted_by_key(|record| record.sequence));
}

/// Power cuts between a second and the next: what was kept is there, each time.
#[test]
fn it_survives_power_cuts() {
    let mut device = Arc::new(FaultyDevice::zeroed(64 << 20));
    let opened: Arc<dyn BlockDevice> = device.clone();
    Store::format(opened, &format_options()).unwrap();
    let mut kept: Vec<AuditRecord> = Vec::new();
    let mut at = START;
    for cut in 0..6 {
        let medium: Arc<dyn BlockDevice> = device.clone();
        let drive = on(&medium, at);
        let all = records(&drive, &AuditArguments::ALL);
        for record in &kept {
            assert!(all.contains(record), "cut {cut}: {record:?} is lost");
        }
        let numbers: BTreeSet<u64> = all.iter().map(|record| record.sequence).collect();
        assert_eq!(numbers.len(), all.len(), "cut {cut}: no number twice");
        for round in 0..3 {
            drive.object_with(&pattern(round, 100));
            drive.advance(SECOND);
            keep(&drive);
        }
        kept = of_requests(&drive);
        keep(&drive);
        // This may be lost.
        drive.object_with(b"late");
        // The drive's clock may lead by less than that.
        at = drive.now().0 + 20 * SECOND;
        let survivor = device.survivor(cut);
        drop(drive);
        device = Arc::new(FaultyDevice::over(survivor, FaultPlan::default()));
    }
    let opened: Arc<dyn BlockDevice> = device;
    assert!(Store::open(opened, &OpenOptions::default()).unwrap().partitions().len() == 3);
}

/// Refused requests for ever other objects: they push one another out, and nothing else.
#[test]
fn strangers_do_not_push_out_what_is_proved() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    assert_eq!(drive.ask(&read(name, Signer::capability(&capability))).unwrap().status, None);
    let mine = AuditArguments { audit_id: Some(AuditId(99)), ..AuditArguments::ALL };
    let proved = |record: &AuditRecord| record.kind == AuditKind::Proved;
    let before: Vec<_> = records(&drive, &mine).into_iter().filter(proved).collect();
    assert_eq!(before.len(), 1);
    for number in 0..4_000_u64 {
        let mut forged = capability;
        forged.object = ObjectId(1_000 + number);
        // They even say that they are the same user.
        let signer = Signer::key(CredentialKey::Capability(forged), 77);
        let request = read(ObjectName { object: forged.object, ..name }, signer);
        let answered = drive.ask(&request).unwrap();
        assert_eq!(answered.verifier.digest, Digest::ZERO);
        if number % 50 == 0 {
            drive.advance(SECOND / 10);
            keep(&drive);
        }
    }
    let after: Vec<_> = records(&drive, &mine).into_iter().filter(proved).collect();
    assert_eq!(after, before);
    let claims = records(&drive, &mine);
    let claims = claims.iter().filter(|record| record.kind == AuditKind::Claimed).count();
    assert!((100..=CLAIMED).contains(&claims), "{claims}");
    let all = records(&drive, &AuditArguments::ALL);
    let lost: u32 = all
        .iter()
        .filter(|record| record.kind == AuditKind::ClaimedLost)
        .map(|record| record.count)
        .sum();
    // Some of those that were not told apart have been pushed out too.
    assert!(lost == 0 || lost < 4_000);
}

/// What is in the rings never takes more than it may, and the newest is there.
#[test]
fn it_is_bounded() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let mut capability = drive.capability(name);
    for number in 0..5_000 {
        capability.audit_id = AuditId(number);
        let answered = drive.ask(&read(name, Signer::capability(&capability))).unwrap();
        assert_eq!(answered.status, None);
        if number % 500 == 0 {
            keep(&drive);
        }
    }
    let wanted = AuditArguments { most: 100, object: Some(name.object), ..AuditArguments::ALL };
    let found = records(&drive, &wanted);
    assert!(found.len() <= PROVED, "{}", found.len());
    let ids: Vec<u64> = found.iter().map(|record| record.audit_id.0).collect();
    let from = 5_000 - ids.len() as u64;
    assert!(ids.iter().copied().eq(from..5_000), "the newest, in order");
    assert!(found.len() > 1000, "{}", found.len());
    let space = drive.server().drive().store().partition_space(PartitionId::AUDIT).unwrap();
    assert_eq!(space.used_bytes, BYTES);
}

/// More kinds in a second than are told apart: how many were not is told. There are fewer than there are
/// places, so that none is pushed out however many seconds they take.
#[test]
fn what_was_not_told_apart_is_counted() {
    const FORGED: u32 = CLAIMED as u32 - 100;
    let drive = TestDrive::new();
    for number in 0..u64::from(FORGED) {
        let mut forged = drive.capability(object(number));
        forged.audit_id = AuditId(number);
        let request = read(object(number), Signer::key(CredentialKey::Capability(forged), 77));
        assert!(drive.ask(&request).unwrap().status.is_some());
    }
    let all = records(&drive, &AuditArguments::ALL);
    let of = |kind| -> u32 {
        let found = all.iter().filter(|record| record.kind == kind);
        found.map(|record| record.count).sum()
    };
    assert!(of(AuditKind::ClaimedLost) > 0);
    assert_eq!(of(AuditKind::ClaimedLost) + of(AuditKind::Claimed), FORGED);
    assert_eq!(of(AuditKind::ProvedLost), 0);
}

#[test]
fn a_full_drive_still_writes_it() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    let data = pattern(1, 4 << 20);
    let full = (0..).find_map(|number| {
        let arguments = WriteArguments::single(name, number << 22, data.len(), true);
        let request = Request::new(Procedure::Write, &arguments, Signer::working());
        drive.ask(&Request { data: &data, ..request }).unwrap().status
    });
    assert_eq!(full, Some(Status::NoSpace));
    for number in 0..200 {
        let mut capability = drive.capability(name);
        capability.audit_id = AuditId(1_000 + number);
        let request = read(name, Signer::capability(&capability));
        assert_eq!(drive.ask(&request).unwrap().status, None);
        keep(&drive);
    }
    let wanted = AuditArguments { audit_id: Some(AuditId(1_000)), ..AuditArguments::ALL };
    assert_eq!(records(&drive, &wanted).len(), 1);
    let (used, failed) = {
        let store = drive.server().drive().store();
        (store.partition_space(PartitionId::AUDIT).unwrap().used_bytes, store.read_only())
    };
    assert_eq!((used, failed), (BYTES, None));
}

/// `initialize` removes it, as all else, and is the first thing that the new one has.
#[test]
fn initialize_begins_a_new_one() {
    let drive = TestDrive::owned();
    let name = drive.object_with(b"contents");
    keep(&drive);
    let last = of_requests(&drive).last().unwrap().sequence;
    let value = Signer::master().seal(80);
    let arguments = InitializeArguments {
        master: value,
        clock: drive.now(),
        skew_past: 10 * SECOND,
        skew_ahead: SECOND,
    };
    assert_eq!(drive.by(Signer::master(), Procedure::Initialize, &arguments).status, None);
    drive.advance(2 * SECOND);
    let master = Signer::key(CredentialKey::Master, 80);
    let key = nasd_protocol::drive::SetdrivekeyArguments { value: master.seal(DRIVE_KEY) };
    assert_eq!(drive.by(master, Procedure::Setdrivekey, &key).status, None);
    // The old one is removed in the background.
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        keep(&drive);
        let partitions = drive.server().drive().store().partitions();
        if partitions == [PartitionId::AUDIT] {
            break;
        }
        assert!(std::time::Instant::now() < patience, "{partitions:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let all = records(&drive, &AuditArguments::ALL);
    assert!(all.iter().all(|record| record.sequence > last && record.object != name.object));
    let initialized = all.iter().find(|each| each.procedure == Procedure::Initialize as u32);
    let initialized = initialized.expect("it is in the new trail");
    assert_eq!((initialized.key, initialized.kind), (KeyKind::Master, AuditKind::Proved));
}

/// A failing device: what was kept is told, and so is what can't be written any more.
#[test]
fn it_is_told_also_when_it_cannot_be_written() {
    let device = Arc::new(FaultyDevice::zeroed(64 << 20));
    let opened: Arc<dyn BlockDevice> = device.clone();
    Store::format(Arc::clone(&opened), &format_options()).unwrap();
    let drive = on(&opened, START);
    let name = drive.object_with(b"contents");
    keep(&drive);
    device.set_plan(FaultPlan { unwritable: 0..u64::MAX, ..FaultPlan::default() });
    let getattr = GetattrArguments { name };
    for _ in 0..3 {
        assert_eq!(drive.by(Signer::working(), Procedure::Getattr, &getattr).status, None);
        keep(&drive);
    }
    let found = of_requests(&drive);
    let count = |procedure| -> u32 {
        let of = found.iter().filter(|record| record.procedure == procedure as u32);
        of.map(|record| record.count).sum()
    };
    assert_eq!(count(Procedure::Write), 1);
    assert_eq!(count(Procedure::Getattr), 3);
}

/// A drive that was formatted before there was a trail gets one, and a crash while it is made is no
/// harm.
#[test]
fn a_drive_without_one_gets_one() {
    let device = new_device();
    {
        let options = OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() };
        let store = Store::open(Arc::clone(&device), &options).unwrap();
        assert_eq!(store.partitions(), [PARTITION, OTHER_PARTITION]);
        // As far as a power cut let it get.
        store.create_partition(PartitionId::AUDIT, Timestamp(START)).unwrap();
    }
    let drive = on(&device, START);
    let created: Created = drive
        .by(
            Signer::working(),
            Procedure::Create,
            &CreateArguments {
                partition: PARTITION,
                object: None,
                durable: false,
                initial: SetAttributes::default(),
            },
        )
        .take();
    let found = of_requests(&drive);
    assert!(found.iter().any(|record| record.object == created.object));
    assert_eq!(drive.clock.load(Ordering::Relaxed), drive.now().0);
}
