//! Every refusal, each brought about by one wrong thing.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use common::*;
use nasd_capability::{Capability, NonceSource, Suite};
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{
    AttributesReply, CreateArguments, FlushArguments, GetattrArguments, Procedure, ReadArguments,
    ReadData, RemoveArguments, SetattrArguments, WriteArguments, Written,
};
use nasd_protocol::{CredentialKey, Region, Status};
use nasd_transport::{AuthStatus, ChannelError, ReplyError};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, Protection, Rights,
    SetAttributes, Timestamp,
};

fn read_with(signer: Signer, name: ObjectName, offset: u64, length: u64) -> Request<'static> {
    Request::new(Procedure::Read, &ReadArguments::single(name, offset, length), signer)
}

#[test]
fn a_right_request_passes_with_every_kind_of_key_and_every_suite() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    for signer in [
        Signer::capability(&drive.capability(name)),
        Signer::working(),
        Signer::key(CredentialKey::Partition(PARTITION), PARTITION_KEY),
        Signer::key(CredentialKey::Drive, DRIVE_KEY),
    ] {
        for &suite in Suite::available() {
            for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
                let request = read_with(signer.clone(), name, 0, 100);
                let answered = drive.ask(&Request { suite, protection, ..request }).unwrap();
                assert_eq!(answered.take::<ReadData>().data_length, 8);
                assert!(answered.proved);
                assert_eq!(answered.data, b"contents");
            }
        }
    }
}

#[test]
fn any_altered_field_of_a_capability_is_refused() {
    let drive = TestDrive::new();
    let (name, other) = (drive.object_with(b"contents"), drive.object_with(b"other"));
    let good = Capability {
        region: ByteRange::new(0, 100),
        rights: Rights::READ | Rights::GETATTR,
        ..drive.capability(name)
    };
    let cases = [
        (Capability { drive: DriveId(0xd2), ..good }, Status::RefusedDrive),
        (Capability { partition: OTHER_PARTITION, ..good }, Status::RefusedPartition),
        (Capability { object: other.object, ..good }, Status::RefusedObject),
        (Capability { region: ByteRange::new(0, 101), ..good }, Status::RefusedDigest),
        (Capability { region: ByteRange::new(1, 100), ..good }, Status::RefusedRegion),
        (Capability { rights: Rights::all(), ..good }, Status::RefusedDigest),
        (Capability { expires: Timestamp::MAX, ..good }, Status::RefusedDigest),
        (Capability { audit_id: AuditId(1), ..good }, Status::RefusedDigest),
        (Capability { minimum_protection: Protection::NONE, ..good }, Status::RefusedMinimum),
        (Capability { key_epoch: EPOCH + 1, ..good }, Status::RefusedEpoch),
        (Capability { key_epoch: EPOCH - 1, ..good }, Status::RefusedEpoch),
    ];
    for (shown, expected) in cases {
        let request = read_with(Signer::minted(&shown, &good, 5), name, 0, 8);
        assert_eq!(drive.refused(&request), expected, "{shown:?}");
    }
    // Shown for the other object: the capability of one is no use for the other.
    let other_shown = Capability { object: other.object, ..good };
    let request = read_with(Signer::minted(&other_shown, &good, 5), other, 0, 5);
    assert_eq!(drive.refused(&request), Status::RefusedDigest);
    assert_eq!(
        drive.ask(&read_with(Signer::capability(&good), name, 0, 8)).unwrap().data,
        b"contents"
    );
}

#[test]
fn an_expired_capability_is_refused_from_its_instant_on() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let expires = drive.now().plus_ns(10 * SECOND);
    let signer = Signer::capability(&Capability { expires, ..drive.capability(name) });
    drive.advance(10 * SECOND - 1);
    assert_eq!(drive.ask(&read_with(signer.clone(), name, 0, 8)).unwrap().status, None);
    drive.advance(1);
    assert_eq!(drive.refused(&read_with(signer, name, 0, 8)), Status::RefusedExpired);
}

#[test]
fn regions_hold_to_the_byte() {
    let drive = TestDrive::new();
    let name = drive.object_with(&[7; 100]);
    let region = ByteRange::new(10, 20);
    let signer = Signer::capability(&Capability { region, ..drive.capability(name) });
    for (offset, length, allowed) in [
        (10, 20, true),
        (9, 2, false),
        (29, 1, true),
        (29, 2, false),
        (30, 0, true),
        (0, 1000, false),
    ] {
        let answered = drive.ask(&read_with(signer.clone(), name, offset, length)).unwrap();
        let expected = if allowed { None } else { Some(Status::RefusedRegion) };
        assert_eq!(answered.status, expected, "{offset} {length}");
    }
    for (offset, expected) in [(10, None), (11, Some(Status::RefusedRegion))] {
        let arguments = WriteArguments::single(name, offset, 20, false);
        let request = Request::new(Procedure::Write, &arguments, signer.clone());
        let answered = drive.ask(&Request { data: &[8; 20], ..request }).unwrap();
        assert_eq!(answered.status, expected);
    }
    // A strided read whose last piece is outside.
    let regions = vec![Region { offset: 10, length: 1, stride: 10, count: 3 }];
    let arguments = ReadArguments { name, order: None, regions };
    let request = Request::new(Procedure::Read, &arguments, signer);
    assert_eq!(drive.refused(&request), Status::RefusedRegion);
    let outside = drive.ask(&read_with(Signer::working(), name, 0, 100)).unwrap().data;
    assert_eq!(outside[..10], [7; 10]);
    assert_eq!(outside[30..], [7; 70]);
}

#[test]
fn each_operation_needs_its_own_right() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let object = ObjectName { partition: PARTITION, object: name.object };
    let set = SetattrArguments { name: object, durable: false, changes: SetAttributes::default() };
    let operations = [
        (
            Rights::READ,
            Request::new(Procedure::Read, &ReadArguments::single(object, 0, 1), Signer::working()),
        ),
        (
            Rights::GETATTR,
            Request::new(Procedure::Getattr, &GetattrArguments { name: object }, Signer::working()),
        ),
        (Rights::SETATTR, Request::new(Procedure::Setattr, &set, Signer::working())),
        (
            Rights::FLUSH,
            Request::new(
                Procedure::Flush,
                &FlushArguments { partition: PARTITION, objects: vec![name.object] },
                Signer::working(),
            ),
        ),
        (
            Rights::WRITE,
            Request {
                data: b"c",
                ..Request::new(
                    Procedure::Write,
                    &WriteArguments::single(object, 0, 1, false),
                    Signer::working(),
                )
            },
        ),
        (
            Rights::REMOVE,
            Request::new(
                Procedure::Remove,
                &RemoveArguments { name: object, durable: false },
                Signer::working(),
            ),
        ),
    ];
    for (right, request) in &operations {
        let without = Rights::all() - *right;
        let capability = Capability { rights: without, ..drive.capability(name) };
        let request = Request { signer: Signer::capability(&capability), ..request.clone() };
        assert_eq!(drive.refused(&request), Status::RefusedRights, "{right:?}");
    }
    for (right, request) in operations {
        let capability = Capability { rights: right, ..drive.capability(name) };
        let request = Request { signer: Signer::capability(&capability), ..request };
        let answered = drive.ask(&request).unwrap();
        assert_eq!(answered.status, None, "{right:?}");
        assert!(answered.proved);
    }
}

#[test]
fn creating_needs_a_capability_of_the_partition() {
    let drive = TestDrive::new();
    let name = drive.new_object();
    let arguments = CreateArguments {
        partition: PARTITION,
        object: None,
        durable: true,
        initial: SetAttributes::default(),
    };
    let ask = |capability: &Capability, version| {
        let signer = Signer::minted(capability, capability, version);
        drive.ask(&Request::new(Procedure::Create, &arguments, signer)).unwrap().status
    };
    let of_object = drive.capability(name);
    assert_eq!(ask(&of_object, 5), Some(Status::RefusedObject));
    let of_partition = Capability { object: ObjectId(0), ..of_object };
    assert_eq!(ask(&of_partition, 0), None);
    assert_eq!(ask(&of_partition, 5), Some(Status::RefusedDigest));
    let without = Capability { rights: Rights::READ, ..of_partition };
    assert_eq!(ask(&without, 0), Some(Status::RefusedRights));
}

#[test]
fn a_flush_of_others_objects_is_refused() {
    let drive = TestDrive::new();
    let (name, other) = (drive.object_with(b"1"), drive.object_with(b"2"));
    let signer = Signer::capability(&drive.capability(name));
    for objects in [vec![other.object], vec![name.object, other.object], vec![]] {
        let arguments = FlushArguments { partition: PARTITION, objects };
        let request = Request::new(Procedure::Flush, &arguments, signer.clone());
        assert_eq!(drive.refused(&request), Status::RefusedObject);
    }
}

#[test]
fn a_request_passes_once() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    for signer in [Signer::working(), Signer::capability(&drive.capability(name))] {
        let nonce = Some(drive.fresh_nonce());
        let read = Request { nonce, ..read_with(signer.clone(), name, 0, 8) };
        assert_eq!(drive.ask(&read).unwrap().status, None);
        for _ in 0..3 {
            assert_eq!(drive.refused(&read), Status::RefusedReplay);
        }
        let arguments = WriteArguments::single(name, 0, 30_000, false);
        let data = pattern(3, 30_000);
        for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
            let request = Request::new(Procedure::Write, &arguments, signer.clone());
            let nonce = Some(drive.fresh_nonce());
            let write = Request { nonce, data: &data, protection, ..request };
            assert_eq!(drive.ask(&write).unwrap().status, None);
            assert_eq!(drive.refused(&write), Status::RefusedReplay);
        }
    }
}

#[test]
fn of_many_copies_at_once_one_passes() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
        let arguments = WriteArguments::single(name, 0, 300_000, false);
        let data = pattern(4, 300_000);
        let request = Request {
            nonce: Some(drive.fresh_nonce()),
            data: &data,
            protection,
            ..Request::new(Procedure::Write, &arguments, Signer::working())
        };
        let passed = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| match drive.ask(&request).unwrap().status {
                    None => drop(passed.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
                    Some(status) => assert_eq!(status, Status::RefusedReplay),
                });
            }
        });
        assert_eq!(passed.into_inner(), 1);
    }
}

#[test]
fn nonces_outside_the_window_are_refused_with_the_drives_clock() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let source = NonceSource::new(77);
    let window = DriveOptions::default().window;
    let now = drive.now();
    for (timestamp, expected) in [
        (now, None),
        (Timestamp(now.0 - window.past_ns), None),
        (Timestamp(now.0 - window.past_ns - 1), Some(Status::RefusedSkew)),
        (now.plus_ns(window.ahead_ns), None),
        (now.plus_ns(window.ahead_ns + 1), Some(Status::RefusedSkew)),
        (Timestamp(0), Some(Status::RefusedSkew)),
        (Timestamp::MAX, Some(Status::RefusedSkew)),
    ] {
        let nonce = Some(source.draw(timestamp));
        let answered =
            drive.ask(&Request { nonce, ..read_with(Signer::working(), name, 0, 8) }).unwrap();
        assert_eq!(answered.status, expected, "{timestamp:?}");
        if expected.is_some() {
            assert_eq!(answered.verifier.nonce.timestamp, now);
        }
    }
}

#[test]
fn nonces_from_before_the_start_are_refused() {
    let device = new_device();
    let drive = TestDrive::on(std::sync::Arc::clone(&device), DriveOptions::default(), START);
    let name = drive.object_with(b"contents");
    let nonce = Some(drive.fresh_nonce());
    let request = Request { nonce, ..read_with(Signer::working(), name, 0, 8) };
    assert_eq!(drive.ask(&request).unwrap().status, None);
    let stopped = drive.now();
    let TestDrive { server, .. } = drive;
    server.unwrap().shut_down(std::time::Duration::from_secs(5)).unwrap();
    let again = TestDrive::on(device, DriveOptions::default(), stopped.0);
    again.clock.store(stopped.0 + SECOND, std::sync::atomic::Ordering::Relaxed);
    let answered = again.ask(&request).unwrap();
    assert_eq!(answered.status, Some(Status::RefusedReplay));
    // The refusal says when a request will pass.
    let told = answered.verifier.nonce.timestamp;
    let nonce = Some(NonceSource::new(5).draw(told));
    let request = Request { nonce, ..read_with(Signer::working(), name, 0, 8) };
    assert_eq!(again.ask(&request).unwrap().status, None);
}

#[test]
fn the_access_control_version_only_rises() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let revoked = Signer::capability(&drive.capability(name));
    let set = |version, logical_size| {
        let changes = SetAttributes {
            access_control_version: Some(version),
            logical_size,
            ..SetAttributes::default()
        };
        let arguments = SetattrArguments { name, durable: false, changes };
        drive.by(Signer::working(), Procedure::Setattr, &arguments).status
    };
    let get = || {
        let answered = drive.by(Signer::working(), Procedure::Getattr, &GetattrArguments { name });
        let reply: AttributesReply = answered.take();
        (reply.attributes.access_control_version, reply.attributes.logical_size)
    };
    assert_eq!(set(7, None), None);
    for version in [0, 5, 6] {
        // Nothing of the change is made, either.
        assert_eq!(set(version, Some(1)), Some(Status::BadArgument), "{version}");
        assert_eq!(get(), (7, 8));
        let read =
            Request::new(Procedure::Read, &ReadArguments::single(name, 0, 8), revoked.clone());
        assert_eq!(drive.refused(&read), Status::RefusedDigest, "it was un-revoked by {version}");
    }
    // The same once more is the same: a reply may have been lost.
    assert_eq!(set(7, None), None);
    assert_eq!(set(8, Some(4)), None);
    assert_eq!(get(), (8, 4));
}

#[test]
fn a_new_access_control_version_revokes() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    let signer = Signer::capability(&capability);
    assert_eq!(drive.ask(&read_with(signer.clone(), name, 0, 8)).unwrap().status, None);
    let changes = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let arguments = SetattrArguments { name, durable: false, changes };
    let reply: AttributesReply =
        drive.ask(&Request::new(Procedure::Setattr, &arguments, Signer::working())).unwrap().take();
    assert_eq!(reply.attributes.access_control_version, 6);
    assert_eq!(drive.refused(&read_with(signer, name, 0, 8)), Status::RefusedDigest);
    let renewed = Signer::minted(&capability, &capability, 6);
    assert_eq!(drive.ask(&read_with(renewed, name, 0, 8)).unwrap().status, None);
}

#[test]
fn weaker_protection_than_demanded_is_refused() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let strict = Capability { minimum_protection: Protection::SUPPORTED, ..drive.capability(name) };
    let request = read_with(Signer::capability(&strict), name, 0, 8);
    assert_eq!(drive.refused(&request), Status::RefusedProtection);
    let request = Request { protection: Protection::SUPPORTED, ..request };
    assert_eq!(drive.ask(&request).unwrap().status, None);
    for protection in [
        Protection::NONE,
        Protection::INTEGRITY_DATA,
        Protection::INTEGRITY_ARGS | Protection::PRIVACY_DATA,
        Protection::PRIVACY_ARGS,
        Protection::from_bits_retain(1 | 1 << 20),
    ] {
        for signer in [Signer::working(), Signer::capability(&drive.capability(name))] {
            let request = Request { protection, ..read_with(signer, name, 0, 8) };
            assert_eq!(drive.refused(&request), Status::RefusedProtection, "{protection:?}");
        }
    }
}

#[test]
fn no_protection_is_for_drives_that_trust_their_network() {
    let trusting = DriveOptions { minimum_protection: Protection::NONE, ..DriveOptions::default() };
    let drive = TestDrive::with(trusting);
    let name = drive.object_with(b"contents");
    let capability = Capability { minimum_protection: Protection::NONE, ..drive.capability(name) };
    let claimed = CredentialKey::Capability(capability);
    let signer = Signer { claimed, secret: None };
    let unprotected =
        |request: Request<'static>| Request { protection: Protection::NONE, ..request };
    let answered = drive.ask(&unprotected(read_with(signer.clone(), name, 0, 8))).unwrap();
    assert_eq!((answered.status, answered.data.as_slice()), (None, &b"contents"[..]));
    let arguments = WriteArguments::single(name, 0, 4, false);
    let request = unprotected(Request::new(Procedure::Write, &arguments, signer));
    let written: Written = drive.ask(&Request { data: b"CONT", ..request }).unwrap().take();
    assert_eq!(written.length, 4);
    // A key is never believed without a proof.
    for claimed in [
        CredentialKey::Drive,
        CredentialKey::WorkingCurrent(PARTITION),
        CredentialKey::Partition(PARTITION),
    ] {
        let signer = Signer { claimed, secret: None };
        let request = unprotected(read_with(signer, name, 0, 8));
        assert_eq!(drive.refused(&request), Status::RefusedProtection);
    }
    // Nor is nobody.
    let signer = Signer { claimed: CredentialKey::None, secret: None };
    let request = unprotected(read_with(signer, name, 0, 8));
    assert_eq!(drive.refused(&request), Status::RefusedKey);
}

#[test]
fn an_unknown_suite_is_refused() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    for suite_number in [2, 77, u32::MAX] {
        let request = read_with(Signer::working(), name, 0, 8);
        let request = Request { suite_number: Some(suite_number), ..request };
        assert_eq!(drive.refused(&request), Status::RefusedSuite);
    }
}

#[test]
fn keys_of_others_are_refused() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let cases = [
        // The master key is not for objects.
        (Signer::key(CredentialKey::Master, DRIVE_KEY), Status::RefusedKey),
        (Signer::key(CredentialKey::None, DRIVE_KEY), Status::RefusedKey),
        // Another partition's key, honestly shown and dishonestly.
        (
            Signer::key(CredentialKey::WorkingCurrent(OTHER_PARTITION), WORKING_KEY + 10),
            Status::RefusedKey,
        ),
        (
            Signer::key(CredentialKey::WorkingCurrent(PARTITION), WORKING_KEY + 10),
            Status::RefusedDigest,
        ),
        (Signer::key(CredentialKey::Partition(PARTITION), WORKING_KEY), Status::RefusedDigest),
        (Signer::key(CredentialKey::Drive, 99), Status::RefusedDigest),
        // There is no previous working key yet.
        (Signer::key(CredentialKey::WorkingPrevious(PARTITION), WORKING_KEY), Status::RefusedKey),
    ];
    for (signer, expected) in cases {
        let claimed = signer.claimed.clone();
        assert_eq!(drive.refused(&read_with(signer, name, 0, 8)), expected, "{claimed:?}");
    }
    let nowhere = ObjectName { partition: PartitionId(9), object: name.object };
    let signer = Signer::key(CredentialKey::WorkingCurrent(PartitionId(9)), WORKING_KEY);
    assert_eq!(drive.refused(&read_with(signer, nowhere, 0, 8)), Status::RefusedKey);
    let signer = Signer::key(CredentialKey::Drive, DRIVE_KEY);
    let answered = drive.ask(&read_with(signer, nowhere, 0, 8)).unwrap();
    assert_eq!(answered.failed(), Status::NoSuchPartition);
}

#[test]
fn a_missing_object_and_a_wrong_digest_look_alike() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let missing = object(0xffff);
    let forged = Signer::minted(&drive.capability(name), &drive.capability(missing), 5);
    let at_existing = drive.ask(&read_with(forged, name, 0, 8)).unwrap();
    let at_missing = drive
        .ask(&read_with(Signer::capability(&drive.capability(missing)), missing, 0, 8))
        .unwrap();
    assert_eq!(at_existing.status, Some(Status::RefusedDigest));
    assert_eq!(at_existing.status, at_missing.status);
    assert_eq!(at_existing.results, at_missing.results);
    assert_eq!(at_existing.verifier.digest, at_missing.verifier.digest);
    assert_eq!(at_existing.verifier.nonce.timestamp, at_missing.verifier.nonce.timestamp);
    // A holder of a key is told.
    let answered = drive.ask(&read_with(Signer::working(), missing, 0, 8)).unwrap();
    assert_eq!(answered.failed(), Status::NoSuchObject);
    // So for writes, whose data is received before anything is told.
    let data = pattern(1, 100_000);
    for (signer, target) in [
        (Signer::minted(&drive.capability(name), &drive.capability(missing), 5), name),
        (Signer::capability(&drive.capability(missing)), missing),
    ] {
        for protection in [Protection::INTEGRITY_ARGS, Protection::SUPPORTED] {
            let arguments = WriteArguments::single(target, 0, data.len(), false);
            let request = Request::new(Procedure::Write, &arguments, signer.clone());
            let request = Request { data: &data, protection, ..request };
            assert_eq!(drive.refused(&request), Status::RefusedDigest);
        }
    }
    assert_eq!(drive.ask(&read_with(Signer::working(), name, 0, 100)).unwrap().data, b"contents");
}

#[test]
fn altered_bytes_of_a_request_are_refused() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 1;
    for signer in [Signer::working(), Signer::capability(&drive.capability(name))] {
        let request = read_with(signer.clone(), name, 0, 8);
        // The verifier: digest, and the nonce's unique part.
        for at in [8, 15, 16, 31] {
            let tamper = flip(at);
            let request = Request { tamper_verifier: Some(&tamper), ..request.clone() };
            assert_eq!(drive.refused(&request), Status::RefusedDigest, "verifier byte {at}");
        }
        // The arguments: offset and length of the region.
        for at in [16 + 7, 16 + 15] {
            let tamper = flip(at);
            let request = Request { tamper_arguments: Some(&tamper), ..request.clone() };
            assert_eq!(drive.refused(&request), Status::RefusedDigest, "argument byte {at}");
        }
        // The protection asked for.
        let tamper = flip(11);
        let tampered = Request { tamper_credential: Some(&tamper), ..request.clone() };
        assert_eq!(drive.refused(&tampered), Status::RefusedProtection);
        let stronger = |bytes: &mut Vec<u8>| bytes[11] |= 2;
        let tampered = Request { tamper_credential: Some(&stronger), ..request.clone() };
        assert_eq!(drive.refused(&tampered), Status::RefusedDigest);
    }
}

#[test]
fn data_integrity_finds_a_flipped_byte_and_nothing_is_applied() {
    let drive = TestDrive::new();
    for length in [1, 100, 16_384, 16_385, 65_536, 300_001, 4 << 20] {
        let before = pattern(1, length);
        let name = drive.object_with(&before);
        let after = pattern(2, length);
        let signer = Signer::capability(&drive.capability(name));
        for at in [0, length / 2, length - 1] {
            let tamper = move |bytes: &mut Vec<u8>| bytes[at] ^= 0x40;
            let arguments = WriteArguments::single(name, 0, length, false);
            let request = Request {
                data: &after,
                protection: Protection::SUPPORTED,
                tamper_data: Some(&tamper),
                ..Request::new(Procedure::Write, &arguments, signer.clone())
            };
            assert_eq!(drive.refused(&request), Status::RefusedDigest);
            let read = drive.ask(&read_with(signer.clone(), name, 0, length as u64)).unwrap();
            assert!(read.data == before, "changed by a refused write");
            // Without INTEGRITY_DATA it is not found: that is what the option is for.
            if at == 0 && length == 100 {
                let request = Request { protection: Protection::INTEGRITY_ARGS, ..request };
                assert_eq!(drive.ask(&request).unwrap().status, None);
                drive.write(name, 0, &before);
            }
        }
    }
}

#[test]
fn strange_authentication_is_denied() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let request = read_with(Signer::working(), name, 0, 8);
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(12);
    let longer = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&[0; 4]);
    let unknown_kind = |bytes: &mut Vec<u8>| bytes[3] = 9;
    for tamper in [&cut as &(dyn Fn(&mut Vec<u8>) + Sync), &longer, &unknown_kind] {
        let request = Request { tamper_credential: Some(tamper), ..request.clone() };
        assert_eq!(denied(drive.ask(&request)), AuthStatus::BadCredential);
    }
    for tamper in [&cut as &(dyn Fn(&mut Vec<u8>) + Sync), &longer] {
        let request = Request { tamper_verifier: Some(tamper), ..request.clone() };
        assert_eq!(denied(drive.ask(&request)), AuthStatus::BadVerifier);
    }
}

fn denied(result: Result<Answered, ChannelError>) -> AuthStatus {
    match result {
        Err(ChannelError::Rejected { reason: ReplyError::Denied(denial), .. }) => match denial {
            nasd_rpc::Denial::Auth(status) => status,
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
    }
}
