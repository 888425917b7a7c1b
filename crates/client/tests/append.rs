//! Appends over connections that break: each is done once, whatever became of its answers.

mod support;

use std::time::Duration;

use nasd_client::{Caller, ClientError};
use nasd_protocol::{ManagerStatus, Status};
use nasd_types::{AppendToken, Protection};

use support::drive::{FakeDrive, OBJECT, manager};
use support::manager::{FakeManager, ROOT};
use support::{FakeHost, Fault, options};

const DATA: Protection = Protection::INTEGRITY_ARGS.union(Protection::INTEGRITY_DATA);

#[test]
fn an_append_whose_answers_are_lost_is_made_once() {
    for protection in [Protection::INTEGRITY_ARGS, DATA, DATA.union(Protection::PRIVACY_DATA)] {
        let host = FakeHost::new();
        let drive = FakeDrive::new(&host);
        let client = drive.client(&options());
        let authority = manager(protection);
        let identity = (AppendToken([5; 16]), Duration::ZERO);
        drive.script.then(&[Fault::ReplyLost, Fault::Lost, Fault::ReplyLost]);
        let done = client.append(&authority, OBJECT, identity, b" and more").expect("appended");
        assert_eq!((done.offset, done.attributes.logical_size), (18, 27));
        let state = drive.state();
        assert_eq!(state.objects[&OBJECT], b"some object's data and more");
        // The first try is as young as can be, and each later one older than the one before.
        assert_eq!(state.append_ages[0], 0);
        assert!(state.append_ages.len() == 3, "{:?}", state.append_ages);
        assert!(state.append_ages.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

#[test]
fn an_earlier_call_counts_in_the_age() {
    let host = FakeHost::new();
    let drive = FakeDrive::new(&host);
    let client = drive.client(&options());
    let authority = manager(DATA);
    let identity = (AppendToken([5; 16]), Duration::from_secs(5));
    drive.script.then(&[Fault::ReplyLost]);
    client.append(&authority, OBJECT, identity, b"x").expect("appended");
    let ages = drive.state().append_ages.clone();
    assert_eq!(ages[0], 5_000_000_000);
    assert!(ages[1] > ages[0], "{ages:?}");
}

#[test]
fn what_is_not_known_is_told_so() {
    let host = FakeHost::new();
    let drive = FakeDrive::new(&host);
    let client = drive.client(&options());
    let authority = manager(DATA);
    let identity = (AppendToken([5; 16]), Duration::ZERO);
    // Nothing was sent before: nothing was done.
    drive.state().answers = vec![Status::Forgotten];
    let error = client.append(&authority, OBJECT, identity, b"x").unwrap_err();
    assert!(matches!(error, ClientError::Drive(Status::Forgotten)), "{error}");
    // Something may have been.
    drive.script.then(&[Fault::TimedOut]);
    drive.state().answers = vec![Status::Forgotten; 2];
    let error = client.append(&authority, OBJECT, identity, b"x").unwrap_err();
    assert!(error.may_have_run(), "{error}");
}

#[test]
fn what_goes_through_the_manager_ages_too() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    let append = |age| {
        let identity = (AppendToken([5; 16]), age);
        client.forward_append(&Caller::ROOT, ROOT, identity, b"and")
    };
    manager.script.then(&[Fault::Lost, Fault::ReplyLost]);
    manager.state().answers = vec![ManagerStatus::Unavailable];
    let done = append(Duration::ZERO).expect("appended");
    assert_eq!((done.offset, done.attributes.logical_size), (7, 10));
    let ages = std::mem::take(&mut manager.state().append_ages);
    // The first try was lost on its way there.
    assert!(ages.len() == 2 && ages[0] > 0 && ages[0] < ages[1], "{ages:?}");

    manager.script.then(&[Fault::ReplyLost]);
    append(Duration::from_secs(5)).expect("appended");
    let ages = std::mem::take(&mut manager.state().append_ages);
    assert!(ages[0] == 5_000_000_000 && ages[1] > ages[0], "{ages:?}");

    manager.state().answers = vec![ManagerStatus::Access];
    let error = append(Duration::ZERO).unwrap_err();
    assert!(matches!(error, ClientError::Manager(ManagerStatus::Access)), "{error}");
    assert_eq!(manager.state().append_ages, [0]);
    // What was tried before may have been done.
    manager.script.then(&[Fault::TimedOut]);
    manager.state().answers = vec![ManagerStatus::Access; 2];
    let error = append(Duration::ZERO).unwrap_err();
    assert!(error.may_have_run(), "{error}");
}
