//! PRIVACY_CAPABILITY: the drive reads what nobody on the way can.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use common::*;
use nasd_capability::{Capability, Narrowing, SealedCapability, SealingKeys, SecretKey, Suite};
use nasd_protocol::drive::{Procedure, ReadArguments, SetattrArguments};
use nasd_protocol::{CredentialKey, Status};
use nasd_transport::{ClientOptions, Connection};
use nasd_types::{
    AuditId, ByteRange, ObjectName, PartitionId, Protection, Rights, SetAttributes, Timestamp,
};

const PRIVATE: Protection = Protection::INTEGRITY_ARGS.union(Protection::PRIVACY_CAPABILITY);

fn read_by(signer: Signer, name: ObjectName) -> Request<'static> {
    let arguments = ReadArguments::single(name, 0, 8);
    Request { protection: PRIVATE, ..Request::new(Procedure::Read, &arguments, signer) }
}

/// Shows a sealed form other than that of the capability whose key is used.
fn showing(sealed: SealedCapability, capability: &Capability) -> Signer {
    let claimed = CredentialKey::sealed(sealed, Default::default());
    Signer { claimed, ..Signer::capability(capability) }
}

fn sealed_form(capability: &Capability) -> SealedCapability {
    *Signer::sealed(capability, &[]).claimed.sealed_capability().unwrap()
}

#[test]
fn a_sealed_capability_allows_what_the_plain_one_does() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = Capability { rights: Rights::READ, ..drive.capability(name) };
    let narrowing = Narrowing { region: ByteRange::new(0, 8), ..Narrowing::of(&capability) };
    for chain in [vec![], vec![narrowing], vec![narrowing; 8]] {
        for &suite in Suite::available() {
            for protection in [PRIVATE, PRIVATE | Protection::INTEGRITY_DATA] {
                // By keys that are derived anew, and by those that were kept.
                for _ in 0..2 {
                    let signer = Signer::sealed(&capability, &chain);
                    let request = Request { suite, protection, ..read_by(signer, name) };
                    let answered = drive.ask(&request).unwrap();
                    assert_eq!((answered.status, answered.proved), (None, true));
                    assert_eq!(answered.data, b"contents");
                }
            }
        }
    }
    // The checks are the same, and told the same, whether or not it was seen before.
    let other = drive.object_with(b"other");
    let arguments = nasd_protocol::drive::RemoveArguments { name, durable: false };
    for capability in [capability, Capability { audit_id: AuditId(1), ..capability }] {
        let signer = Signer::sealed(&capability, &[]);
        assert_eq!(drive.refused(&read_by(signer.clone(), other)), Status::RefusedObject);
        let remove = Request::new(Procedure::Remove, &arguments, signer);
        let remove = Request { protection: PRIVATE, ..remove };
        assert_eq!(drive.refused(&remove), Status::RefusedRights);
        let late = Capability { expires: drive.now(), ..capability };
        let expired = read_by(Signer::sealed(&late, &[]), name);
        assert_eq!(drive.refused(&expired), Status::RefusedExpired);
    }
}

#[test]
fn the_option_and_the_sealed_form_go_together() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    let plain = read_by(Signer::capability(&capability), name);
    assert_eq!(drive.refused(&plain), Status::RefusedProtection, "it was shown to everybody");
    let sealed = read_by(Signer::sealed(&capability, &[]), name);
    for protection in [
        Protection::INTEGRITY_ARGS,
        Protection::INTEGRITY_ARGS | Protection::INTEGRITY_DATA,
        Protection::PRIVACY_CAPABILITY,
        Protection::NONE,
    ] {
        let request = Request { protection, ..sealed.clone() };
        assert_eq!(drive.refused(&request), Status::RefusedProtection, "{protection:?}");
    }
    assert_eq!(drive.refused(&read_by(Signer::working(), name)), Status::RefusedProtection);
    // Who demands it gets it.
    let strict = Capability { minimum_protection: PRIVATE, ..capability };
    let plain = Request::new(
        Procedure::Read,
        &ReadArguments::single(name, 0, 8),
        Signer::capability(&strict),
    );
    assert_eq!(drive.refused(&plain), Status::RefusedProtection);
    let private = read_by(Signer::sealed(&strict, &[]), name);
    assert_eq!(drive.ask(&private).unwrap().data, b"contents");
}

#[test]
fn forged_seals_are_refused() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let capability = drive.capability(name);
    let good = sealed_form(&capability);
    let refused = |sealed| drive.refused(&read_by(showing(sealed, &capability), name));
    for bit in 0..8 * 16 {
        let mut nonce = good;
        nonce.nonce[bit / 8] ^= 1 << (bit % 8);
        let mut tag = good;
        tag.tag[bit / 8] ^= 1 << (bit % 8);
        assert_eq!([refused(nonce), refused(tag)], [Status::RefusedDigest; 2], "{bit}");
    }
    for bit in 0..8 * 64 {
        let mut sealed = good;
        sealed.sealed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(refused(sealed), Status::RefusedDigest, "{bit}");
    }
    let cases = [
        // Another partition's key does not open it, and there is no third partition.
        (SealedCapability { partition: OTHER_PARTITION, ..good }, Status::RefusedDigest),
        (SealedCapability { partition: PartitionId(9), ..good }, Status::RefusedKey),
        (SealedCapability { key_epoch: EPOCH - 1, ..good }, Status::RefusedEpoch),
        (SealedCapability { key_epoch: EPOCH + 1, ..good }, Status::RefusedEpoch),
        // Sealed by somebody who has not the working key.
        (SealingKeys::new(&SecretKey::new([77; 32])).seal(&capability), Status::RefusedDigest),
        // Another capability, rightly sealed: the key is not its own.
        (sealed_form(&Capability { rights: Rights::READ, ..capability }), Status::RefusedDigest),
    ];
    for (sealed, expected) in cases {
        assert_eq!(refused(sealed), expected, "{sealed:?}");
    }
    assert_eq!(drive.ask(&read_by(showing(good, &capability), name)).unwrap().status, None);
    // What is kept of the right one helps none of the others.
    for (sealed, expected) in cases {
        assert_eq!(refused(sealed), expected, "{sealed:?}");
    }
}

#[test]
fn a_new_access_control_version_revokes_what_was_opened() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let signer = Signer::sealed(&drive.capability(name), &[]);
    assert_eq!(drive.ask(&read_by(signer.clone(), name)).unwrap().status, None);
    let changes = SetAttributes { access_control_version: Some(6), ..SetAttributes::default() };
    let arguments = SetattrArguments { name, durable: false, changes };
    assert_eq!(drive.by(Signer::working(), Procedure::Setattr, &arguments).status, None);
    assert_eq!(drive.refused(&read_by(signer, name)), Status::RefusedDigest);
}

/// Passes on what comes, both ways, and keeps it.
fn relay(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&seen);
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let drive = TcpStream::connect(to).unwrap();
        let pass = |mut from: TcpStream, mut to: TcpStream, keeps: Arc<Mutex<Vec<u8>>>| {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                keeps.lock().unwrap().extend_from_slice(&buffer[..count]);
                to.write_all(&buffer[..count]).unwrap();
            }
            let _ = to.shutdown(Shutdown::Both);
        };
        let (there, back) = (client.try_clone().unwrap(), drive.try_clone().unwrap());
        let too = Arc::clone(&keeps);
        let answers = std::thread::spawn(move || pass(drive, client, too));
        pass(there, back, keeps);
        answers.join().unwrap();
    });
    (address, seen)
}

#[test]
fn nothing_of_a_sealed_capability_is_on_the_wire() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    // Fields that nothing else looks like. What the arguments name anyway, and partition and epoch,
    // by which the key is found, are left out of what is sought.
    let capability = Capability {
        region: ByteRange::new(0, 0x00fa_ce0f_f5e7_1234),
        expires: Timestamp(drive.now().0 + 0x00ab_cdef_0123),
        audit_id: AuditId(0xdead_beef_0bad_f00d),
        ..drive.capability(name)
    };
    let bytes = capability.to_bytes();
    let secrets = [&bytes[0..8], &bytes[28..36], &bytes[40..48], &bytes[48..56]];
    for private in [false, true] {
        let (address, seen) = relay(drive.server().address());
        let channel = Connection::tcp(address, &ClientOptions::default()).unwrap();
        for _ in 0..3 {
            let signer = match private {
                true => Signer::sealed(&capability, &[]),
                false => Signer::capability(&capability),
            };
            let protection = if private { PRIVATE } else { Protection::INTEGRITY_ARGS };
            let request = Request { protection, ..read_by(signer, name) };
            assert_eq!(drive.ask_over(&channel, &request).unwrap().data, b"contents");
        }
        drop(channel);
        let seen = seen.lock().unwrap();
        let shows = |secret: &[u8]| seen.windows(secret.len()).any(|window| window == secret);
        assert!(shows(b"contents"), "the relay sees all");
        for secret in secrets {
            assert_eq!(shows(secret), !private, "{secret:02x?}");
        }
    }
}
