//! The drive's own minimum protection: set while it runs, kept, told, and in force at once.
#![allow(clippy::unwrap_used)] // Clippy knows only functions with #[test] for tests.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use nasd_drive::DriveOptions;
use nasd_protocol::drive::{
    DriveInformation, InitializeArguments, Procedure, ReadArguments, SetdriveArguments,
    SetpartitionArguments,
};
use nasd_protocol::{CredentialKey, Status};
use nasd_types::Protection;

const STRONG: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

fn set(drive: &TestDrive, minimum: Option<Protection>, protection: Protection) -> Answered {
    let arguments = SetdriveArguments { minimum_protection: minimum };
    let request = Request::new(Procedure::Setdrive, &arguments, Signer::drive());
    drive.ask(&Request { protection, ..request }).unwrap()
}

fn told(drive: &TestDrive) -> Protection {
    let request = Request::new(Procedure::Inquiry, &(), Signer::key(CredentialKey::None, 0));
    let request = Request { protection: Protection::NONE, ..request };
    let information: DriveInformation = drive.ask(&request).unwrap().take();
    information.minimum_protection
}

#[test]
fn raising_the_drives_minimum_cuts_off_what_is_weaker_at_once() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let weak = drive.capability(name);
    let mut strong = weak;
    strong.minimum_protection = STRONG;
    let read = |signer: Signer, protection| {
        let request = Request::new(Procedure::Read, &ReadArguments::single(name, 0, 8), signer);
        drive.ask(&Request { protection, ..request }).unwrap().status
    };
    assert_eq!(read(Signer::capability(&weak), Protection::INTEGRITY_ARGS), None);
    assert_eq!(told(&drive), Protection::INTEGRITY_ARGS);
    assert_eq!(set(&drive, Some(STRONG), Protection::INTEGRITY_ARGS).status, None);
    assert_eq!(told(&drive), STRONG);
    // A weak capability is refused however well it is protected, a strong one as it says.
    let refused = read(Signer::capability(&weak), Protection::INTEGRITY_ARGS);
    assert!(refused.is_some_and(is_of_protection), "{refused:?}");
    let refused = read(Signer::capability(&weak), STRONG);
    assert!(refused.is_some_and(is_of_protection), "{refused:?}");
    assert_eq!(read(Signer::capability(&strong), STRONG), None);
    // Keys too, that of the administrator among them.
    for signer in [Signer::working(), Signer::partition(), Signer::drive()] {
        let refused = read(signer.clone(), Protection::INTEGRITY_ARGS);
        assert!(refused.is_some_and(is_of_protection), "{refused:?}");
        assert_eq!(read(signer, STRONG), None);
    }
    let lowered = set(&drive, Some(Protection::NONE), Protection::INTEGRITY_ARGS).status;
    assert!(lowered.is_some_and(is_of_protection), "{lowered:?}");
    // Nothing to set changes nothing; and what it was started with stays in any case.
    assert_eq!(set(&drive, None, STRONG).status, None);
    assert_eq!(told(&drive), STRONG);
    assert_eq!(set(&drive, Some(Protection::NONE), STRONG).status, None);
    assert_eq!(told(&drive), Protection::INTEGRITY_ARGS);
    assert_eq!(read(Signer::capability(&weak), Protection::INTEGRITY_ARGS), None);
}

fn is_of_protection(status: Status) -> bool {
    matches!(status, Status::RefusedProtection | Status::RefusedMinimum)
}

#[test]
fn it_survives_restarts_and_power_cuts() {
    let device = new_device();
    let mut drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), START);
    assert_eq!(set(&drive, Some(STRONG), STRONG).status, None);
    for clean in [false, true] {
        let at = drive.now().0 + 20 * SECOND;
        let server = drive.server.take().unwrap();
        if clean {
            server.shut_down(Duration::from_secs(5)).unwrap();
        } else {
            drop(server);
        }
        drive = TestDrive::on(Arc::clone(&device), DriveOptions::default(), at);
        assert_eq!(told(&drive), STRONG, "clean: {clean}");
    }
}

#[test]
fn it_adds_to_the_partitions() {
    let drive = TestDrive::new();
    let name = drive.object_with(b"contents");
    let settings = SetpartitionArguments {
        partition: PARTITION,
        compression: None,
        minimum_protection: Some(STRONG),
    };
    assert_eq!(drive.by(Signer::drive(), Procedure::Setpartition, &settings).status, None);
    assert_eq!(set(&drive, Some(Protection::NONE), STRONG).status, None);
    let request = Request::new(
        Procedure::Read,
        &ReadArguments::single(name, 0, 8),
        Signer::capability(&drive.capability(name)),
    );
    let refused = drive.ask(&request).unwrap().status;
    assert!(refused.is_some_and(is_of_protection), "{refused:?}");
}

#[test]
fn only_the_drive_key_sets_it_and_only_to_what_can_be_met() {
    let drive = TestDrive::new();
    let arguments = SetdriveArguments { minimum_protection: Some(STRONG) };
    for signer in [Signer::master(), Signer::partition(), Signer::working()] {
        let request = Request::new(Procedure::Setdrive, &arguments, signer);
        assert_eq!(drive.refused(&request), Status::RefusedKey);
    }
    for cannot in [Protection::INTEGRITY_DATA, Protection::from_bits_retain(1 << 20)] {
        let answered = set(&drive, Some(cannot), Protection::INTEGRITY_ARGS);
        assert_eq!(answered.failed(), Status::BadArgument, "{cannot:?}");
    }
    assert_eq!(told(&drive), Protection::INTEGRITY_ARGS);
}

#[test]
fn initialize_leaves_none() {
    let drive = TestDrive::owned();
    assert_eq!(set(&drive, Some(STRONG), STRONG).status, None);
    let arguments = InitializeArguments {
        master: Signer::master().seal(80),
        clock: drive.now(),
        skew_past: 10 * SECOND,
        skew_ahead: SECOND,
    };
    let request = Request::new(Procedure::Initialize, &arguments, Signer::master());
    assert_eq!(drive.ask(&Request { protection: STRONG, ..request }).unwrap().status, None);
    assert_eq!(told(&drive), Protection::INTEGRITY_ARGS);
}
