//! Copies between objects over connections that break: each try proves its authority for the source anew.

mod support;

use nasd_capability::{Chain, SecretKey, capability_key};
use nasd_client::{Authority, ClientError};
use nasd_protocol::Status;
use nasd_protocol::drive::RangeToCopy;
use nasd_protocol::manager::IssuedCapability;
use nasd_types::{AuditId, ByteRange, ObjectId, ObjectName, Protection, Rights, Timestamp};

use support::drive::{DRIVE, FakeDrive, OBJECT, PARTITION, manager, working_key};
use support::{FakeHost, Fault, options};

const PLAIN: Protection = Protection::INTEGRITY_ARGS;
const SOURCE: ObjectName = ObjectName { partition: PARTITION, object: ObjectId(65) };

fn copy(length: u64) -> RangeToCopy {
    RangeToCopy { name: OBJECT, offset: 4, length, source: SOURCE.object, source_offset: 2 }
}

fn drive(host: &std::sync::Arc<FakeHost>) -> std::sync::Arc<FakeDrive> {
    let drive = FakeDrive::new(host);
    drive.state().objects.insert(SOURCE, b"0123456789".to_vec());
    drive
}

/// A capability for the source, with the key that a drive finds, or another.
fn capability(drive: &FakeDrive, key: Option<SecretKey>) -> Authority {
    capability_for(drive, SOURCE, PLAIN, key)
}

fn capability_for(
    drive: &FakeDrive,
    name: ObjectName,
    minimum_protection: Protection,
    key: Option<SecretKey>,
) -> Authority {
    let capability = nasd_capability::Capability {
        drive: DRIVE,
        partition: PARTITION,
        object: name.object,
        region: ByteRange::ALL,
        rights: Rights::READ | Rights::WRITE,
        expires: Timestamp::MAX,
        audit_id: AuditId(1),
        minimum_protection,
        key_epoch: 1,
    };
    let version = drive.state().access_control_version;
    let key = key.unwrap_or_else(|| capability_key(&working_key(), &capability, version));
    let issued = IssuedCapability { capability, key, sealed: None };
    Authority::delegated(&issued, Chain::default(), Protection::NONE)
}

#[test]
fn every_try_has_a_proof_of_its_own() {
    let host = FakeHost::new();
    let drive = drive(&host);
    let client = drive.client(&options());
    drive.script.then(&[Fault::ReplyLost, Fault::Lost, Fault::ReplyLost]);
    let source = capability(&drive, None);
    let done = client.copy_range(&manager(PLAIN), &source, &copy(5)).expect("copied");
    assert_eq!((done.length, done.attributes.logical_size), (5, 9));
    assert_eq!(drive.state().objects[&OBJECT], b"some23456");
    // Up to the source's end, and by a key.
    let done = client.copy_range(&manager(PLAIN), &manager(PLAIN), &copy(50)).expect("copied");
    assert_eq!(done.length, 8);
    // On a drive that trusts its network.
    let open = |name| capability_for(&drive, name, Protection::NONE, None);
    assert_eq!(
        client.copy_range(&open(OBJECT), &open(SOURCE), &copy(3)).expect("copied").length,
        3
    );
}

#[test]
fn a_wrong_key_for_the_source_is_refused() {
    let host = FakeHost::new();
    let drive = drive(&host);
    let client = drive.client(&options());
    let source = capability(&drive, Some(SecretKey::new([9; 32])));
    let error = client.copy_range(&manager(PLAIN), &source, &copy(5)).unwrap_err();
    assert!(matches!(error, ClientError::Refused(Status::RefusedDigest)), "{error}");
}
