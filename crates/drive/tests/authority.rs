//! Who may do what beyond reading and writing: every other kind of key is refused.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use common::*;
use nasd_capability::{Capability, KeyKind};
use nasd_protocol::drive::{
    AuditArguments, BlocksrequiredArguments, ComparepartitionArguments, CopypartitionArguments,
    CreatepartitionArguments, FastcopyArguments, FlushpartitionArguments, InitializeArguments,
    PartitionKey, Procedure, PunchArguments, ReadArguments, RemovepartitionArguments,
    ResizepartitionArguments, SeekArguments, SetattrArguments, SetdriveArguments,
    SetdrivekeyArguments, SetpartitionArguments, SetpartitionkeyArguments,
};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{
    ByteRange, Compression, ObjectId, ObjectName, PartitionId, Protection, Rights, SeekTarget,
    SetAttributes, Timestamp,
};
use nasd_xdr::{XdrEncode, to_bytes};

/// A request without its signer.
struct Operation {
    procedure: Procedure,
    arguments: Vec<u8>,
}

fn operation(procedure: Procedure, arguments: &impl XdrEncode) -> Operation {
    Operation { procedure, arguments: to_bytes(arguments) }
}

impl Operation {
    fn by(&self, signer: Signer) -> Request<'static> {
        let request = Request::new(self.procedure, &(), signer);
        Request { arguments: self.arguments.clone(), ..request }
    }
}

fn set_key(partition: PartitionId, which: PartitionKey) -> Operation {
    let value = Signer::drive().seal(1);
    let arguments = SetpartitionkeyArguments { partition, which, epoch: EPOCH + 1, value };
    operation(Procedure::Setpartitionkey, &arguments)
}

fn comparison_of(partition: PartitionId) -> ComparepartitionArguments {
    ComparepartitionArguments { partition, base: Some(PARTITION), from: ObjectId(0), offset: 0 }
}

/// Each operation on a partition or the drive, and the kinds of keys that may ask for it.
fn administration(partition: PartitionId) -> Vec<(Operation, Vec<KeyKind>)> {
    let value = Signer::drive().seal(1);
    let settings = SetpartitionArguments {
        partition,
        compression: Some(Compression::None),
        minimum_protection: None,
    };
    let initialize = InitializeArguments {
        master: value,
        clock: Timestamp(START),
        skew_past: SECOND,
        skew_ahead: SECOND,
    };
    vec![
        (
            operation(Procedure::Createpartition, &CreatepartitionArguments { partition }),
            vec![KeyKind::Drive],
        ),
        (
            operation(
                Procedure::Copypartition,
                &CopypartitionArguments { partition, source: PARTITION },
            ),
            vec![KeyKind::Drive],
        ),
        (operation(Procedure::Comparepartition, &comparison_of(partition)), vec![KeyKind::Drive]),
        (
            operation(
                Procedure::Putobject,
                &put_of(ObjectName { partition, object: ObjectId(64) }),
            ),
            vec![KeyKind::Drive],
        ),
        (
            operation(
                Procedure::Resizepartition,
                &ResizepartitionArguments { partition, bytes: u64::MAX },
            ),
            vec![KeyKind::Drive],
        ),
        (set_key(partition, PartitionKey::Key), vec![KeyKind::Drive]),
        (set_key(partition, PartitionKey::Current), vec![KeyKind::Partition]),
        (set_key(partition, PartitionKey::Previous), vec![KeyKind::Partition]),
        (operation(Procedure::Setpartition, &settings), vec![KeyKind::Drive, KeyKind::Partition]),
        (operation(Procedure::Initialize, &initialize), vec![KeyKind::Master]),
        (operation(Procedure::Setdrivekey, &SetdrivekeyArguments { value }), vec![KeyKind::Master]),
        (
            operation(Procedure::Setdrive, &SetdriveArguments { minimum_protection: None }),
            vec![KeyKind::Drive],
        ),
        (operation(Procedure::Audit, &AuditArguments::ALL), vec![KeyKind::Drive]),
        (
            operation(
                Procedure::Audit,
                &AuditArguments { partition: Some(partition), ..AuditArguments::ALL },
            ),
            vec![KeyKind::Drive, KeyKind::Partition],
        ),
        (
            operation(Procedure::Removepartition, &RemovepartitionArguments { partition }),
            vec![KeyKind::Drive],
        ),
    ]
}

fn of_partition(drive: &TestDrive) -> Capability {
    drive.capability(ObjectName { partition: PARTITION, object: ObjectId(0) })
}

#[test]
fn administration_is_for_its_own_kind_of_key() {
    let drive = TestDrive::new();
    let capability = of_partition(&drive);
    let signers = [
        Signer::key(CredentialKey::None, DRIVE_KEY),
        Signer::master(),
        Signer::drive(),
        Signer::partition(),
        Signer::working(),
        Signer::key(CredentialKey::WorkingPrevious(PARTITION), WORKING_KEY),
        Signer::minted(&capability, &capability, 0),
    ];
    for (operation, allowed) in administration(PARTITION) {
        for signer in &signers {
            let kind = signer.claimed.kind();
            if !allowed.contains(&kind) {
                let status = drive.refused(&operation.by(signer.clone()));
                assert_eq!(status, Status::RefusedKey, "{:?} by {kind:?}", operation.procedure);
            }
        }
        // Not even with the right kind of key, if it is a wrong one.
        for kind in allowed {
            let signer = match kind {
                KeyKind::Partition => Signer::key(CredentialKey::Partition(PARTITION), 77),
                KeyKind::Drive => Signer::key(CredentialKey::Drive, 77),
                // There is no master key.
                _ => Signer::master(),
            };
            let expected = match kind {
                KeyKind::Master => Status::RefusedKey,
                _ => Status::RefusedDigest,
            };
            assert_eq!(drive.refused(&operation.by(signer)), expected);
        }
    }
    assert_eq!(drive.server().drive().partitions(), [PARTITION, OTHER_PARTITION]);
}

#[test]
fn a_partitions_key_is_for_that_partition() {
    let drive = TestDrive::new();
    for (operation, allowed) in administration(OTHER_PARTITION) {
        if allowed.contains(&KeyKind::Partition) {
            assert_eq!(drive.refused(&operation.by(Signer::partition())), Status::RefusedKey);
        }
    }
    let flush = FlushpartitionArguments { partition: OTHER_PARTITION };
    let flush = operation(Procedure::Flushpartition, &flush);
    for signer in [Signer::partition(), Signer::working()] {
        assert_eq!(drive.refused(&flush.by(signer)), Status::RefusedKey);
    }
}

#[test]
fn without_protection_no_key_is_believed() {
    let drive = TestDrive::new();
    for (operation, _) in administration(PARTITION) {
        for claimed in
            [CredentialKey::Master, CredentialKey::Drive, CredentialKey::Partition(PARTITION)]
        {
            let signer = Signer { claimed, secret: None };
            let request = Request { protection: Protection::NONE, ..operation.by(signer) };
            let status = drive.refused(&request);
            assert!(
                matches!(status, Status::RefusedKey | Status::RefusedProtection),
                "{:?}: {status:?}",
                operation.procedure
            );
        }
    }
}

#[test]
fn flushing_a_partition_needs_a_capability_for_it() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let flush = FlushpartitionArguments { partition: PARTITION };
    let flush = operation(Procedure::Flushpartition, &flush);
    let of_object = Signer::capability(&drive.capability(name));
    assert_eq!(drive.refused(&flush.by(of_object)), Status::RefusedObject);
    let without = Capability { rights: Rights::all() - Rights::FLUSH, ..of_partition(&drive) };
    let signer = Signer::minted(&without, &without, 0);
    assert_eq!(drive.refused(&flush.by(signer)), Status::RefusedRights);
    let with = Capability { rights: Rights::FLUSH, ..of_partition(&drive) };
    for signer in
        [Signer::minted(&with, &with, 0), Signer::working(), Signer::partition(), Signer::drive()]
    {
        assert_eq!(drive.ask(&flush.by(signer)).unwrap().status, None);
    }
    let nowhere = FlushpartitionArguments { partition: PartitionId(77) };
    let answered = drive.by(Signer::drive(), Procedure::Flushpartition, &nowhere);
    assert_eq!(answered.failed(), Status::NoSuchPartition);
}

/// Each operation on an object that comes after Table 1's first, and the rights that it needs.
fn on_object(name: ObjectName) -> Vec<(Operation, Rights)> {
    let regions = vec![Region::single(10, 20)];
    let copying = Rights::READ | Rights::GETATTR | Rights::CREATE;
    vec![
        (operation(Procedure::Fastcopy, &FastcopyArguments { name, copy: None }), copying),
        (
            operation(
                Procedure::Blocksrequired,
                &BlocksrequiredArguments { name, regions: regions.clone() },
            ),
            Rights::GETATTR,
        ),
        (
            operation(Procedure::Punch, &PunchArguments { name, durable: false, regions }),
            Rights::WRITE,
        ),
        (
            operation(
                Procedure::Seek,
                &SeekArguments { name, offset: 10, target: SeekTarget::Data },
            ),
            Rights::READ,
        ),
    ]
}

#[test]
fn each_operation_on_an_object_needs_its_rights() {
    let drive = TestDrive::new();
    let (name, other) = (drive.object_with(&[1; 100]), drive.object_with(&[2; 100]));
    for (operation, rights) in on_object(name) {
        for right in rights.iter() {
            let without = Capability { rights: Rights::all() - right, ..drive.capability(name) };
            let refused = drive.refused(&operation.by(Signer::capability(&without)));
            assert_eq!(refused, Status::RefusedRights, "{:?} {right:?}", operation.procedure);
        }
        let of_other = Signer::capability(&drive.capability(other));
        assert_eq!(drive.refused(&operation.by(of_other)), Status::RefusedObject);
        let of_partition = of_partition(&drive);
        let of_partition = Signer::minted(&of_partition, &of_partition, 0);
        assert_eq!(drive.refused(&operation.by(of_partition)), Status::RefusedObject);
        let forged = Signer::minted(&drive.capability(name), &drive.capability(other), 5);
        assert_eq!(drive.refused(&operation.by(forged)), Status::RefusedDigest);
        let expired = Capability { expires: drive.now(), ..drive.capability(name) };
        let refused = drive.refused(&operation.by(Signer::capability(&expired)));
        assert_eq!(refused, Status::RefusedExpired);
    }
}

#[test]
fn regions_hold_for_every_operation() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[1; 100]);
    for (operation, _) in on_object(name) {
        for region in [ByteRange::new(11, 100), ByteRange::new(0, 9), ByteRange::new(1 << 40, 1)] {
            let capability = Capability { region, ..drive.capability(name) };
            let refused = drive.refused(&operation.by(Signer::capability(&capability)));
            assert_eq!(refused, Status::RefusedRegion, "{:?} {region}", operation.procedure);
        }
    }
    // A copy shows all that there may ever be.
    let copy = operation(Procedure::Fastcopy, &FastcopyArguments { name, copy: None });
    let region = ByteRange::new(0, MAX_OBJECT_BYTES - 1);
    let capability = Capability { region, ..drive.capability(name) };
    let refused = drive.refused(&copy.by(Signer::capability(&capability)));
    assert_eq!(refused, Status::RefusedRegion);
    // As a new size cuts off, or adds, all behind it.
    let changes = SetAttributes { logical_size: Some(50), ..SetAttributes::default() };
    let cut = operation(Procedure::Setattr, &SetattrArguments { name, durable: false, changes });
    for region in [ByteRange::new(51, MAX_OBJECT_BYTES), ByteRange::new(0, MAX_OBJECT_BYTES - 1)] {
        let capability = Capability { region, ..drive.capability(name) };
        let refused = drive.refused(&cut.by(Signer::capability(&capability)));
        assert_eq!(refused, Status::RefusedRegion, "{region}");
    }
    // One byte too far.
    for regions in
        [vec![Region::single(10, 21)], vec![Region { offset: 10, length: 1, stride: 20, count: 2 }]]
    {
        let region = ByteRange::new(10, 20);
        let capability = Capability { region, ..drive.capability(name) };
        let signer = Signer::capability(&capability);
        let punch = PunchArguments { name, durable: false, regions: regions.clone() };
        let punch = Request::new(Procedure::Punch, &punch, signer.clone());
        assert_eq!(drive.refused(&punch), Status::RefusedRegion);
        let required = BlocksrequiredArguments { name, regions };
        let required = Request::new(Procedure::Blocksrequired, &required, signer);
        assert_eq!(drive.refused(&required), Status::RefusedRegion);
    }
    let read = ReadArguments::single(name, 0, 100);
    let read = drive.ask(&Request::new(Procedure::Read, &read, Signer::working())).unwrap();
    assert_eq!(read.data, [1; 100]);
}

#[test]
fn what_the_drive_makes_up_is_neither_copied_nor_punched() {
    let drive = TestDrive::new();
    for number in 1..4 {
        for (operation, _) in on_object(object(number)) {
            let answered = drive.ask(&operation.by(Signer::working())).unwrap();
            assert_eq!(answered.failed(), Status::NotPermitted, "{:?}", operation.procedure);
        }
    }
}

#[test]
fn regions_without_a_meaning_are_told_to_those_with_authority() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[1; 100]);
    for (regions, expected) in [
        (vec![], Status::BadArgument),
        (vec![Region { count: 0, ..Region::single(0, 1) }], Status::BadArgument),
        (vec![Region { offset: 0, length: 2, stride: 1, count: 2 }], Status::BadArgument),
        (vec![Region::single(1, MAX_OBJECT_BYTES)], Status::TooLarge),
        (vec![Region { offset: 0, length: 1, stride: 2, count: 5000 }], Status::TooLarge),
    ] {
        let punch = PunchArguments { name, durable: false, regions: regions.clone() };
        let required = BlocksrequiredArguments { name, regions };
        for operation in
            [operation(Procedure::Punch, &punch), operation(Procedure::Blocksrequired, &required)]
        {
            let signer = Signer::capability(&drive.capability(name));
            assert_eq!(drive.ask(&operation.by(signer)).unwrap().failed(), expected);
            let forged = Signer::minted(&drive.capability(name), &drive.capability(name), 4);
            assert_eq!(drive.refused(&operation.by(forged)), Status::RefusedDigest);
        }
    }
}
