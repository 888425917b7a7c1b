//! What becomes of a request while it waits, for its data or for the medium: whatever makes its capability
//! worth nothing, and what does not.

use nasd_protocol::Status;
use nasd_protocol::drive::{
    PartitionKey, Procedure, RemoveArguments, SetattrArguments, SetpartitionArguments,
    SetpartitionkeyArguments,
};
use nasd_types::{ObjectName, Protection, SetAttributes};

use super::{EPOCH, PARTITION, SECOND, Signer, TestDrive};

const BOTH: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

/// What the drive is asked to do while a request waits.
pub type Change = fn(&TestDrive, ObjectName);

fn set_version(drive: &TestDrive, name: ObjectName) {
    let changes = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let arguments = SetattrArguments { name, changes, durable: false };
    assert!(drive.by(Signer::partition(), Procedure::Setattr, &arguments).status.is_none());
}

pub fn set_working_key(drive: &TestDrive, epoch: u32, number: u8) {
    let value = Signer::partition().seal(number);
    let which = PartitionKey::Current;
    let arguments = SetpartitionkeyArguments { partition: PARTITION, which, epoch, value };
    assert!(drive.by(Signer::partition(), Procedure::Setpartitionkey, &arguments).status.is_none());
}

pub fn raise_minimum(drive: &TestDrive, minimum: Protection) {
    let arguments = SetpartitionArguments {
        partition: PARTITION,
        compression: None,
        minimum_protection: Some(minimum),
    };
    assert!(drive.by(Signer::partition(), Procedure::Setpartition, &arguments).status.is_none());
}

/// A capability that may become the previous working key's, and whatever makes it worth nothing.
pub const CHANGES: &[(&str, Change, Option<Status>)] = &[
    ("nothing", |_, _| (), None),
    ("another working key", |drive, _| set_working_key(drive, EPOCH + 1, 50), None),
    ("access control version", set_version, Some(Status::RefusedDigest)),
    (
        "two other working keys",
        |drive, _| {
            set_working_key(drive, EPOCH + 1, 50);
            set_working_key(drive, EPOCH + 2, 51);
        },
        Some(Status::RefusedEpoch),
    ),
    ("minimum", |drive, _| raise_minimum(drive, BOTH), Some(Status::RefusedMinimum)),
    ("expiry", |drive, _| drive.advance(3600 * SECOND), Some(Status::RefusedExpired)),
    (
        "removal",
        |drive, name| {
            let arguments = RemoveArguments { name, durable: false };
            let removed = drive.by(Signer::partition(), Procedure::Remove, &arguments);
            assert!(removed.status.is_none());
        },
        Some(Status::RefusedDigest),
    ),
];

/// What is wrong with a private call itself, rather than with its key, is told in private.
pub fn in_private(expected: Option<Status>) -> (Option<Status>, bool) {
    let tells = [None, Some(Status::RefusedMinimum), Some(Status::RefusedExpired)];
    (expected, tells.contains(&expected))
}
