//! Calls whose end takes its time: who gets buffers for it, and what is looked at again when all has
//! come.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::time::Duration;

use common::changes::{CHANGES, in_private, raise_minimum, set_working_key};
use common::*;
use nasd_capability::Capability;
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{
    GetattrArguments, Procedure, ReadArguments, RemoveArguments, SetattrArguments, WriteArguments,
};
use nasd_protocol::{CredentialKey, Status};
use nasd_transport::ServerOptions;
use nasd_types::{ObjectName, Protection, SetAttributes};
use nasd_xdr::to_bytes;

const BOTH: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);
const LARGE: usize = 4 << 20;

fn write<'a>(name: ObjectName, data: &'a [u8], signer: Signer, by: Protection) -> Request<'a> {
    let arguments = WriteArguments::single(name, 0, data.len(), false);
    let request = Request::new(Procedure::Write, &arguments, signer);
    Request { data, protection: by, ..request }
}

fn contents(drive: &TestDrive, name: ObjectName, length: usize) -> Vec<u8> {
    let arguments = ReadArguments::single(name, 0, length as u64);
    let request = Request::new(Procedure::Read, &arguments, Signer::partition());
    drive.ask(&Request { protection: BOTH, ..request }).unwrap().data
}

#[test]
fn a_write_whose_capability_is_worth_nothing_when_its_data_have_come_changes_nothing() {
    for (what, change, expected) in CHANGES {
        for (length, by) in [(4096, Protection::INTEGRITY_ARGS), (200_000, BOTH)] {
            let drive = TestDrive::new();
            let name = drive.object_with(&pattern(1, length));
            let signer = Signer::capability(&drive.capability(name));
            let data = pattern(2, length);
            let request = write(name, &data, signer, by);
            let answered = drive.ask_in_two_parts(&request, || change(&drive, name));
            assert_eq!(answered, (*expected, expected.is_none()), "{what}, {length}");
            let kept = pattern(if expected.is_none() { 2 } else { 1 }, length);
            let kept = if *what == "removal" { Vec::new() } else { kept };
            assert!(contents(&drive, name, length) == kept, "{what}, {length}");
        }
    }
}

#[test]
fn a_private_write_whose_capability_is_worth_nothing_when_its_data_have_come_changes_nothing() {
    for (what, change, expected) in CHANGES {
        let drive = TestDrive::new();
        let name = drive.object_with(&pattern(1, 4096));
        let data = pattern(2, 4096);
        let signer = Signer::capability(&drive.capability(name));
        let private = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
        let request = write(name, &data, signer, private);
        let answered = drive.ask_in_two_parts(&request, || change(&drive, name));
        assert_eq!(answered, in_private(*expected), "{what}");
        let kept = pattern(if expected.is_none() { 2 } else { 1 }, 4096);
        let kept = if *what == "removal" { Vec::new() } else { kept };
        assert!(contents(&drive, name, 4096) == kept, "{what}");
    }
}

/// Private calls whose arguments are decrypted before anything tells that they have come whole.
fn private_calls(name: ObjectName) -> [(Procedure, Vec<u8>); 4] {
    let changes = SetAttributes { logical_size: Some(1), ..SetAttributes::default() };
    [
        (Procedure::Getattr, to_bytes(&GetattrArguments { name })),
        (Procedure::Read, to_bytes(&ReadArguments::single(name, 0, 8))),
        (Procedure::Setattr, to_bytes(&SetattrArguments { name, changes, durable: false })),
        (Procedure::Remove, to_bytes(&RemoveArguments { name, durable: false })),
    ]
}

/// Who can hold the end of a private call back must not be able to keep an authority by that.
#[test]
fn a_private_call_whose_capability_is_worth_nothing_when_it_ends_does_nothing() {
    let private = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
    for (what, change, expected) in CHANGES {
        for which in 0..4 {
            let drive = TestDrive::new();
            let name = drive.object_with(&pattern(1, 100));
            let signer = Signer::capability(&drive.capability(name));
            let (procedure, arguments) = private_calls(name)[which].clone();
            let request = Request::new(procedure, &(), signer);
            let request = Request { arguments, protection: private, ..request };
            let slow = drive.begin_in_fragments(&request);
            change(&drive, name);
            let expected = in_private(*expected);
            assert_eq!(slow.finish(), expected, "{what}, {procedure:?}");
            if expected.0.is_some() && *what != "removal" {
                assert!(contents(&drive, name, 101) == pattern(1, 100), "{what}, {procedure:?}");
            }
        }
    }
}

#[test]
fn a_private_call_by_a_key_that_is_replaced_before_it_ends_does_nothing() {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(1, 100));
    let arguments = RemoveArguments { name, durable: false };
    let request = Request::new(Procedure::Remove, &arguments, Signer::working());
    let protection = Protection::INTEGRITY_ARGS | Protection::PRIVACY_ARGS;
    let slow = drive.begin_in_fragments(&Request { protection, ..request });
    set_working_key(&drive, EPOCH + 1, 50);
    assert_eq!(slow.finish(), (Some(Status::RefusedDigest), false));
    assert!(contents(&drive, name, 101) == pattern(1, 100));
}

#[test]
fn a_write_by_a_key_that_is_replaced_when_its_data_have_come_changes_nothing() {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(1, 4096));
    let data = pattern(2, 4096);
    let request = write(name, &data, Signer::working(), BOTH);
    let change = || set_working_key(&drive, EPOCH + 1, 50);
    let refused = drive.ask_in_two_parts(&request, change);
    assert_eq!(refused, (Some(Status::RefusedDigest), false));
    assert!(contents(&drive, name, 4096) == pattern(1, 4096));
    let previous = Signer::key(CredentialKey::WorkingPrevious(PARTITION), WORKING_KEY);
    assert_eq!(drive.ask(&write(name, &data, previous, BOTH)).unwrap().status, None);
}

#[test]
fn a_weaker_write_is_cut_off_by_a_minimum_that_is_raised_meanwhile() {
    let drive = TestDrive::new();
    let name = drive.object_with(&pattern(1, 4096));
    let data = pattern(2, 4096);
    let request = write(name, &data, Signer::working(), Protection::INTEGRITY_ARGS);
    let refused = drive.ask_in_two_parts(&request, || raise_minimum(&drive, BOTH));
    assert_eq!(refused, (Some(Status::RefusedProtection), false));
    assert!(contents(&drive, name, 4096) == pattern(1, 4096));
}

/// Small writes, and those of a frame and more, in place and in pieces.
#[test]
fn other_data_than_were_announced_change_nothing() {
    let drive = TestDrive::new();
    for length in [8, 4096, 70_000] {
        let name = drive.object_with(&pattern(1, length));
        let data = pattern(2, length);
        let flip = move |bytes: &mut Vec<u8>| bytes[length - 1] ^= 1;
        let request = write(name, &data, Signer::working(), BOTH);
        let request = Request { tamper_data: Some(&flip), ..request };
        assert_eq!(drive.refused(&request), Status::RefusedDigest);
        assert!(contents(&drive, name, length) == pattern(1, length), "{length}");
    }
}

/// A drive with 64 MiB of cache that is patient for longer than these tests last.
fn patient() -> TestDrive {
    TestDrive::with(patient_options())
}

fn patient_options() -> DriveOptions {
    let server =
        ServerOptions { peer_timeout: Duration::from_secs(60), ..DriveOptions::default().server };
    DriveOptions { server, ..DriveOptions::default() }
}

#[test]
fn writers_without_a_key_get_no_buffers() {
    let drive = patient();
    let name = drive.object_with(&pattern(1, 100));
    let data = pattern(3, LARGE);
    let made_up = Capability { object: nasd_types::ObjectId(99_999), ..drive.capability(name) };
    let shown = drive.capability(name);
    let wrong = Capability { expires: shown.expires.plus_ns(1), ..shown };
    let strangers = [
        Signer::key(CredentialKey::WorkingCurrent(PARTITION), 77),
        Signer::capability(&made_up),
        Signer::minted(&shown, &wrong, 5),
    ];
    // Of each of them more than the cache holds; and each has a digest that is not the right one.
    let mut stuck = Vec::new();
    for signer in strangers {
        for by in [BOTH, Protection::INTEGRITY_ARGS].repeat(6) {
            let target = if signer.claimed == CredentialKey::Capability(made_up) {
                ObjectName { partition: PARTITION, object: made_up.object }
            } else {
                name
            };
            stuck.push(drive.begin_slowly(&write(target, &data, signer.clone(), by)));
        }
    }
    // Those with a key find all of the cache there is.
    let holders: Vec<_> = (0..8)
        .map(|_| {
            let name = drive.object_with(b"");
            (name, drive.begin_slowly(&write(name, &data, Signer::working(), BOTH)))
        })
        .collect();
    for (name, slow) in holders {
        assert_eq!(slow.finish(), (None, true));
        assert!(contents(&drive, name, LARGE) == data);
    }
    for slow in stuck {
        assert_eq!(slow.finish(), (Some(Status::RefusedDigest), false));
    }
    assert!(contents(&drive, name, 100) == pattern(1, 100));
}

#[test]
fn a_writer_with_a_key_for_whom_there_is_no_buffer_is_told_so_with_proof() {
    let drive = patient();
    let data = pattern(3, LARGE);
    let name = drive.object_with(b"");
    // As much as the cache is large, held by those who have a key.
    let stuck: Vec<_> =
        (0..16).map(|_| drive.begin_slowly(&write(name, &data, Signer::working(), BOTH))).collect();
    for by in [BOTH, Protection::INTEGRITY_ARGS] {
        // The drive may not have heard of the last of them yet.
        let begun = std::time::Instant::now();
        let busy = loop {
            let answered = drive.ask(&write(name, &data, Signer::working(), by)).unwrap();
            if answered.status.is_some() {
                break answered.failed();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{by:?}: there is always more");
        };
        assert_eq!(busy, Status::Busy, "{by:?}");
        // To a stranger nothing is told of it.
        let stranger = Signer::key(CredentialKey::WorkingCurrent(PARTITION), 77);
        assert_eq!(drive.refused(&write(name, &data, stranger, by)), Status::RefusedDigest);
    }
    drop(stuck);
    let begun = std::time::Instant::now();
    while drive.ask(&write(name, &data, Signer::working(), BOTH)).unwrap().status.is_some() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the buffers do not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Who asks for encrypted data and does not take them keeps memory; how much is limited.
#[test]
fn readers_who_do_not_take_encrypted_data_get_no_more_memory_than_there_is() {
    let drive = TestDrive::with(DriveOptions { encrypted_bytes: 32 << 20, ..patient_options() });
    let name = drive.object_with(&pattern(1, LARGE));
    let arguments = ReadArguments::single(name, 0, LARGE as u64);
    let request = Request::new(Procedure::Read, &arguments, Signer::working());
    let private = BOTH | Protection::PRIVACY_DATA;
    let request = Request { protection: private, ..request };
    assert!(drive.ask(&request).unwrap().data == pattern(1, LARGE));
    let begun = std::time::Instant::now();
    // Some of them may find too little to be stuck, as others are just being answered.
    let mut stuck = Vec::new();
    let busy = loop {
        stuck.push(drive.ask_without_taking(&request, 6));
        let answered = drive.ask(&request).unwrap();
        if answered.status.is_some() {
            break answered.failed();
        }
        assert!(stuck.len() < 100, "there is always more");
    };
    assert_eq!(busy, Status::Busy);
    // What needs no memory is answered.
    assert!(contents(&drive, name, LARGE) == pattern(1, LARGE));
    drop(stuck);
    while drive.ask(&request).unwrap().status.is_some() {
        assert!(begun.elapsed() < Duration::from_secs(40), "the memory does not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}
