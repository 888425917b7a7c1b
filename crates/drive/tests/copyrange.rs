//! Copies from one object to another: what they copy, and that both authorities hold.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;

use common::*;
use nasd_capability::{Capability, Digest, Narrowing, Nonce, Suite, procedure_bytes};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice};
use nasd_protocol::drive::{
    AuditArguments, AuditKind, AuditPage, Copied, CopyrangeArguments, PROGRAM, Procedure,
    RangeToCopy, ReadArguments, RemoveArguments, SetattrArguments, SetpartitionArguments, VERSION,
};
use nasd_protocol::{Credential, CredentialKey, Status};
use nasd_store::Store;
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, Protection, Rights, SetAttributes,
};

const PLAIN: Protection = Protection::INTEGRITY_ARGS;
const PRIVATE: Protection = Protection::INTEGRITY_ARGS.union(Protection::PRIVACY_ARGS);

/// A copy, by two authorities; tests change what they are about.
#[derive(Clone)]
struct Copy {
    copy: RangeToCopy,
    target: Signer,
    protection: Protection,
    source: Signer,
    source_protection: Protection,
    source_suite: Suite,
    /// What the credential says instead.
    source_suite_number: Option<u32>,
    /// What the proof is made over instead.
    proved: Option<RangeToCopy>,
    nonce: Nonce,
    proved_nonce: Option<Nonce>,
}

impl Copy {
    /// By capabilities for everything on both objects.
    fn by_capabilities(drive: &TestDrive, copy: RangeToCopy) -> Copy {
        let capability = |name| Signer::capability(&drive.capability(name));
        Copy {
            copy,
            target: capability(copy.name),
            protection: PLAIN,
            source: capability(copy.source_name()),
            source_protection: PLAIN,
            source_suite: Suite::preferred(),
            source_suite_number: None,
            proved: None,
            nonce: drive.fresh_nonce(),
            proved_nonce: None,
        }
    }

    fn arguments(&self) -> CopyrangeArguments {
        let mut source_authority =
            Credential::new(self.source.claimed.clone(), self.source_suite, self.source_protection);
        if let Some(number) = self.source_suite_number {
            source_authority.suite_number = number;
        }
        let mut arguments = CopyrangeArguments {
            copy: self.proved.unwrap_or(self.copy),
            source_authority,
            source_proof: Digest::ZERO,
        };
        if let Some(keys) = self.source.keys(self.source_suite) {
            let procedure = procedure_bytes(PROGRAM, VERSION, Procedure::Copyrange.into());
            let nonce = self.proved_nonce.unwrap_or(self.nonce);
            let covered = arguments.to_covered();
            arguments.source_proof = keys.source_proof(&nonce, &[&procedure, &covered]);
        }
        CopyrangeArguments { copy: self.copy, ..arguments }
    }

    fn ask(&self, drive: &TestDrive) -> Answered {
        let request = Request::new(Procedure::Copyrange, &self.arguments(), self.target.clone());
        let (nonce, protection) = (Some(self.nonce), self.protection);
        drive.ask(&Request { nonce, protection, ..request }).unwrap()
    }
}

fn whole(source: ObjectName, target: ObjectName, length: u64) -> RangeToCopy {
    RangeToCopy { name: target, offset: 0, length, source: source.object, source_offset: 0 }
}

fn copied(drive: &TestDrive, copy: RangeToCopy) -> Copied {
    Copy::by_capabilities(drive, copy).ask(drive).take()
}

fn read(drive: &TestDrive, name: ObjectName) -> Vec<u8> {
    let arguments = ReadArguments::single(name, 0, 4 << 20);
    drive.by(Signer::working(), Procedure::Read, &arguments).data
}

#[test]
fn bytes_go_from_one_object_to_the_other() {
    let drive = TestDrive::new();
    let data = pattern(1, 300_001);
    let (source, target) = (drive.object_with(&data), drive.object_with(b"before"));
    let done = copied(&drive, whole(source, target, 1 << 40));
    assert_eq!((done.length, done.attributes.logical_size), (300_001, 300_001));
    assert!(read(&drive, target) == data);
    // Nothing is behind the source's end.
    let behind = RangeToCopy { source_offset: 300_001, ..whole(source, target, 5) };
    assert_eq!(copied(&drive, behind).length, 0);
    // Its blocks are the source's until either is written to.
    drive.write(source, 0, b"source");
    drive.write(target, 4096, b"target");
    let (mut of_source, mut of_target) = (data.clone(), data);
    of_source[..6].copy_from_slice(b"source");
    of_target[4096..4102].copy_from_slice(b"target");
    assert!(read(&drive, source) == of_source && read(&drive, target) == of_target);
    // Unlike places, and within one object.
    let odd = RangeToCopy { offset: 10, source_offset: 7, ..whole(source, target, 100_000) };
    assert_eq!(copied(&drive, odd).length, 100_000);
    of_target[10..100_010].copy_from_slice(&of_source[7..100_007]);
    assert!(read(&drive, target) == of_target);
    let within = RangeToCopy { offset: 400_000, ..whole(source, source, 1000) };
    assert_eq!(copied(&drive, within).attributes.logical_size, 401_000);
    assert_eq!(read(&drive, source)[400_000..], of_source[..1000]);
}

/// The power fails right after the answer.
#[test]
fn what_was_copied_survives_a_power_cut() {
    for (source_offset, length) in [(0, 50_000), (3, 40_000)] {
        let device = Arc::new(FaultyDevice::zeroed(64 << 20));
        let medium: Arc<dyn BlockDevice> = device.clone();
        Store::format(Arc::clone(&medium), &format_options()).unwrap();
        let drive = TestDrive::on(medium, patient(), START);
        let data = pattern(2, 50_000);
        let (source, target) = (drive.object_with(&data), drive.new_object());
        let copy = RangeToCopy { source_offset, ..whole(source, target, length) };
        assert_eq!(copied(&drive, copy).length, length);
        let (survivor, later) = (device.survivor(0), drive.now().0 + 20 * SECOND);
        drop(drive);
        let device = Arc::new(FaultyDevice::over(survivor, FaultPlan::default()));
        let drive = TestDrive::on(device, patient(), later);
        let expected = &data[source_offset as usize..][..length as usize];
        assert!(read(&drive, target) == expected, "{copy:?}");
    }
}

#[test]
fn what_can_not_be_is_refused_and_changes_nothing() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let fails = |copy: RangeToCopy| Copy::by_capabilities(&drive, copy).ask(&drive).failed();
    let good = whole(source, target, 9000);
    assert_eq!(fails(RangeToCopy { length: 0, ..good }), Status::BadArgument);
    let overlapping = RangeToCopy { offset: 100, ..whole(source, source, 9000) };
    assert_eq!(fails(overlapping), Status::BadArgument);
    assert_eq!(fails(RangeToCopy { offset: u64::MAX - 5, ..good }), Status::TooLarge);
    let control = RangeToCopy { source: ObjectId::PARTITION_CONTROL, ..good };
    assert_eq!(fails(control), Status::NotPermitted);
    let to_control = ObjectName { object: ObjectId::PARTITION_CONTROL, ..target };
    let to_control = Copy {
        target: Signer::working(),
        ..Copy::by_capabilities(&drive, RangeToCopy { name: to_control, ..good })
    };
    assert_eq!(to_control.ask(&drive).failed(), Status::NotPermitted);
    // By a key, a source that is not there is told so; by a capability it is a wrong digest.
    let missing = RangeToCopy { source: ObjectId(0xffff), ..good };
    assert_eq!(fails(missing), Status::RefusedDigest);
    let by_key = Copy { source: Signer::working(), ..Copy::by_capabilities(&drive, missing) };
    assert_eq!(by_key.ask(&drive).failed(), Status::NoSuchObject);
    assert_eq!(read(&drive, target), b"target");
    let by_key = Copy { source: Signer::working(), ..Copy::by_capabilities(&drive, good) };
    assert_eq!(by_key.ask(&drive).take::<Copied>().length, 9000);
}

#[test]
fn the_target_takes_the_right_to_write_there() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let good = Copy::by_capabilities(&drive, whole(source, target, 9000));
    let by = |capability: Capability| {
        Copy { target: Signer::capability(&capability), ..good.clone() }.ask(&drive)
    };
    let all = drive.capability(target);
    for (capability, status) in [
        (Capability { rights: Rights::all() - Rights::WRITE, ..all }, Status::RefusedRights),
        (Capability { region: ByteRange::new(0, 8999), ..all }, Status::RefusedRegion),
        (Capability { region: ByteRange::new(1, 1 << 40), ..all }, Status::RefusedRegion),
        (drive.capability(source), Status::RefusedObject),
    ] {
        let refused = by(capability);
        assert_eq!((refused.status, refused.proved), (Some(status), false));
    }
    assert_eq!(read(&drive, target), b"target");
    let just = Capability { rights: Rights::WRITE, region: ByteRange::new(0, 9000), ..all };
    assert_eq!(by(just).take::<Copied>().length, 9000);
}

/// A copy from a `source` by each wrong authority there is, and how it is refused.
fn wrong_sources(drive: &TestDrive, good: &Copy) -> Vec<(Copy, Status)> {
    let source = good.copy.source_name();
    let all = drive.capability(source);
    let by =
        |capability: Capability| Copy { source: Signer::capability(&capability), ..good.clone() };
    let key = |claimed, number| Copy { source: Signer::key(claimed, number), ..good.clone() };
    let wider = Narrowing { rights: Rights::all(), ..Narrowing::of(&all) };
    let few = Capability { rights: Rights::READ, ..all };
    let other = ObjectName { partition: OTHER_PARTITION, ..source };
    vec![
        (by(Capability { rights: Rights::all() - Rights::READ, ..all }), Status::RefusedRights),
        (by(Capability { region: ByteRange::new(0, 8191), ..all }), Status::RefusedRegion),
        (by(Capability { region: ByteRange::new(1, 1 << 40), ..all }), Status::RefusedRegion),
        (by(drive.capability(good.copy.name)), Status::RefusedObject),
        (by(drive.capability(other)), Status::RefusedPartition),
        (by(Capability { drive: DriveId(9), ..all }), Status::RefusedDrive),
        (by(Capability { expires: drive.now(), ..all }), Status::RefusedExpired),
        (by(Capability { key_epoch: EPOCH + 1, ..all }), Status::RefusedEpoch),
        (Copy { source: Signer::minted(&all, &few, 5), ..good.clone() }, Status::RefusedDigest),
        (Copy { source: Signer::minted(&all, &all, 4), ..good.clone() }, Status::RefusedDigest),
        (Copy { source: Signer::narrowed(&few, &[wider]), ..good.clone() }, Status::RefusedChain),
        (key(CredentialKey::None, 0), Status::RefusedKey),
        (key(CredentialKey::Master, MASTER_KEY), Status::RefusedKey),
        (key(CredentialKey::WorkingCurrent(OTHER_PARTITION), 13), Status::RefusedKey),
        (key(CredentialKey::WorkingCurrent(PARTITION), 99), Status::RefusedDigest),
        (Copy { source_suite_number: Some(77), ..good.clone() }, Status::RefusedSuite),
        (Copy { source_protection: Protection::NONE, ..good.clone() }, Status::RefusedProtection),
        // The arguments that it is among can be read on their way.
        (Copy { source_protection: PRIVATE, ..good.clone() }, Status::RefusedProtection),
        (
            Copy { source_protection: PLAIN | Protection::PRIVACY_CAPABILITY, ..good.clone() },
            Status::RefusedProtection,
        ),
    ]
}

#[test]
fn every_check_holds_for_the_source() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let good = Copy::by_capabilities(&drive, whole(source, target, 8192));
    for protection in [PLAIN, PRIVATE] {
        for (number, (wrong, status)) in wrong_sources(&drive, &good).into_iter().enumerate() {
            if protection == PRIVATE && wrong.source_protection == PRIVATE {
                continue;
            }
            let wrong = Copy { protection, nonce: drive.fresh_nonce(), ..wrong };
            assert_eq!(wrong.ask(&drive).failed(), status, "case {number}, {protection:?}");
        }
    }
    assert_eq!(read(&drive, target), b"target");
    // Without a key of its own, nobody is told anything.
    let outer = Copy { target: Signer::key(CredentialKey::Drive, 99), ..good.clone() };
    assert_eq!(outer.ask(&drive).status, Some(Status::RefusedDigest));
    let just = Capability {
        rights: Rights::READ,
        region: ByteRange::new(0, 8192),
        ..drive.capability(source)
    };
    let just = Copy { source: Signer::capability(&just), ..good };
    assert_eq!(just.ask(&drive).take::<Copied>().length, 8192);
}

#[test]
fn a_proof_is_good_for_one_copy() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let third = drive.object_with(b"third");
    let good = Copy::by_capabilities(&drive, whole(source, target, 4096));
    for copy in [
        RangeToCopy { length: 4095, ..good.copy },
        RangeToCopy { offset: 1, ..good.copy },
        RangeToCopy { source_offset: 1, ..good.copy },
        RangeToCopy { name: third, ..good.copy },
    ] {
        let taken = Copy { copy, proved: Some(good.copy), ..Copy::by_capabilities(&drive, copy) };
        assert_eq!(taken.ask(&drive).failed(), Status::RefusedDigest, "{copy:?}");
    }
    let proved_nonce = Some(good.nonce);
    let later = Copy { nonce: drive.fresh_nonce(), proved_nonce, ..good.clone() };
    assert_eq!(later.ask(&drive).failed(), Status::RefusedDigest);
    assert_eq!(good.ask(&drive).take::<Copied>().length, 4096);
    assert_eq!(good.ask(&drive).status, Some(Status::RefusedReplay));
    assert_eq!(read(&drive, third), b"third");
}

#[test]
fn revoking_the_source_ends_it() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let copy = whole(source, target, 4096);
    assert_eq!(copied(&drive, copy).length, 4096);
    let changes = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let set = SetattrArguments { name: source, durable: false, changes };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &set).status, None);
    let revoked = Copy::by_capabilities(&drive, copy);
    assert_eq!(revoked.ask(&drive).failed(), Status::RefusedDigest);
    let remove = RemoveArguments { name: source, durable: false };
    assert_eq!(drive.by(Signer::working(), Procedure::Remove, &remove).status, None);
    let removed = Copy::by_capabilities(&drive, copy);
    assert_eq!(removed.ask(&drive).failed(), Status::RefusedDigest);
}

#[test]
fn both_may_be_sealed_narrowed_and_private() {
    let drive = TestDrive::new();
    let source = drive.object_with(&pattern(3, 9000));
    for suite in [Suite::Blake3, Suite::preferred()] {
        for (protection, source_protection) in [
            (PRIVATE, PLAIN),
            (PRIVATE, PRIVATE),
            (PLAIN, PLAIN | Protection::PRIVACY_CAPABILITY),
            (PRIVATE, PRIVATE | Protection::PRIVACY_CAPABILITY),
            (PLAIN, PLAIN | Protection::INTEGRITY_DATA | Protection::PRIVACY_DATA),
        ] {
            let target = drive.new_object();
            let capability = drive.capability(source);
            let narrowings = [Narrowing { rights: Rights::READ, ..Narrowing::of(&capability) }];
            let sealed = source_protection.contains(Protection::PRIVACY_CAPABILITY);
            let source_signer = match sealed {
                true => Signer::sealed(&capability, &narrowings),
                false => Signer::narrowed(&capability, &narrowings),
            };
            let copy = Copy {
                protection,
                source: source_signer,
                source_protection,
                source_suite: suite,
                ..Copy::by_capabilities(&drive, whole(source, target, 9000))
            };
            assert_eq!(copy.ask(&drive).take::<Copied>().length, 9000);
            assert!(read(&drive, target) == pattern(3, 9000));
        }
    }
}

#[test]
fn a_partitions_minimum_holds_for_the_source() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let minimum = PLAIN | Protection::INTEGRITY_DATA;
    let set = SetpartitionArguments {
        partition: PARTITION,
        compression: None,
        minimum_protection: Some(minimum),
    };
    assert_eq!(drive.by(Signer::drive(), Procedure::Setpartition, &set).status, None);
    let strong = |name| Capability { minimum_protection: minimum, ..drive.capability(name) };
    let weak = Copy {
        target: Signer::capability(&strong(target)),
        protection: minimum,
        ..Copy::by_capabilities(&drive, whole(source, target, 9000))
    };
    assert_eq!(weak.ask(&drive).failed(), Status::RefusedMinimum);
    let good = Copy {
        source: Signer::capability(&strong(source)),
        source_protection: minimum,
        nonce: drive.fresh_nonce(),
        ..weak
    };
    assert_eq!(good.ask(&drive).take::<Copied>().length, 9000);
}

#[test]
fn the_audit_trail_tells_of_both() {
    let drive = TestDrive::new();
    let (source, target) = (drive.object_with(&[1; 9000]), drive.object_with(b"target"));
    let by = |name, id| {
        Signer::capability(&Capability { audit_id: AuditId(id), ..drive.capability(name) })
    };
    let good = Copy {
        target: by(target, 1),
        source: by(source, 2),
        ..Copy::by_capabilities(&drive, whole(source, target, 9000))
    };
    assert_eq!(good.ask(&drive).take::<Copied>().length, 9000);
    let (source_of_another, nonce) = (by(target, 3), drive.fresh_nonce());
    let wrong = Copy { source: source_of_another, nonce, ..good };
    assert_eq!(wrong.ask(&drive).failed(), Status::RefusedObject);
    let page: AuditPage = drive.by(Signer::drive(), Procedure::Audit, &AuditArguments::ALL).take();
    let mut told: Vec<_> = page
        .records
        .iter()
        .filter(|record| record.procedure == Procedure::Copyrange as u32)
        .map(|record| (record.audit_id.0, record.object, record.kind, record.status))
        .collect();
    told.sort_by_key(|&(id, _, _, status)| (id, status));
    let refused = u32::from(Status::RefusedObject);
    assert_eq!(
        told,
        [
            (1, target.object, AuditKind::Proved, 0),
            (1, target.object, AuditKind::Proved, refused),
            (2, source.object, AuditKind::Proved, 0),
            (3, source.object, AuditKind::Claimed, refused),
        ]
    );
}
