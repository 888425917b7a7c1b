//! The manager client against a manager whose connections fail.

mod support;

use std::time::Duration;

use nasd_client::{Caller, ClientError, RetryPolicy};
use nasd_protocol::ManagerStatus;
use nasd_protocol::manager::RenameFlags;

use support::manager::{FakeManager, ROOT};
use support::{FakeHost, Fault, options};

#[test]
fn calls_are_made_for_their_caller() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    let caller = Caller { uid: 5, gid: 6, groups: (0..20).collect() };
    client.create(&caller, ROOT, b"name", 0o644, true).expect("made");
    client.lookup(&Caller::ROOT, ROOT, b"name").expect("found");
    let state = manager.state();
    assert_eq!((state.callers[0].uid, state.callers[0].gid), (5, 6));
    assert_eq!(
        state.callers[0].groups,
        (0..16).collect::<Vec<_>>(),
        "as many as there is room for"
    );
    assert_eq!((state.callers[1].uid, state.callers[1].groups.len()), (0, 0));
}

#[test]
fn a_status_is_an_answer() {
    let manager = FakeManager::new(&FakeHost::new());
    let error = manager.client(&options()).lookup(&Caller::ROOT, ROOT, b"none").unwrap_err();
    assert_eq!(error.manager_status(), Some(ManagerStatus::NotFound));
    assert!(!error.may_have_run());
    assert_eq!(manager.state().executed, 1);
}

#[test]
fn calls_wait_for_a_manager_that_restarts() {
    let host = FakeHost::new();
    let manager = FakeManager::new(&host);
    let client = manager.client(&options());
    client.mkdir(&Caller::ROOT, ROOT, b"name", 0o755).expect("made");
    manager.script.then(&[Fault::Lost, Fault::Refused, Fault::Refused, Fault::ReplyLost]);
    client.lookup(&Caller::ROOT, ROOT, b"name").expect("found in the end");
    assert!(host.slept.lock().unwrap().len() >= 4);
}

#[test]
fn a_change_whose_answer_was_lost_is_made_once_and_succeeds() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    let caller = Caller::ROOT;
    let lose = || manager.script.then(&[Fault::ReplyLost]);
    lose();
    client.mkdir(&caller, ROOT, b"lock", 0o755).expect("made by the first try");
    lose();
    client.create(&caller, ROOT, b"file", 0o644, true).expect("the same");
    lose();
    client.create(&caller, ROOT, b"file", 0o644, false).expect("what is there is as good");
    lose();
    let exclusive = client.create(&caller, ROOT, b"file", 0o644, true).unwrap_err();
    assert!(matches!(exclusive, ClientError::Manager(ManagerStatus::Exists)), "{exclusive}");
    lose();
    client
        .rename(&caller, (ROOT, b"file"), (ROOT, b"else"), RenameFlags::NONE, None)
        .expect("moved");
    manager.script.then(&[Fault::TimedOut, Fault::ReplyLost]);
    client
        .rename(&caller, (ROOT, b"else"), (ROOT, b"x"), RenameFlags::EXCHANGE, None)
        .expect("once");
    assert!(manager.state().names.contains(&b"x"[..]), "a second exchange would undo the first");
    lose();
    client.unlink(&caller, ROOT, b"x", None).expect("removed by the first try");
}

#[test]
fn requests_say_which_ones_are_answered() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    for name in [b"a", b"b"] {
        manager.script.then(&[Fault::ReplyLost]);
        client.mkdir(&Caller::ROOT, ROOT, name, 0o755).expect("made");
    }
    let numbers: Vec<(u64, u64)> =
        manager.state().requests.iter().map(|each| (each.number, each.oldest)).collect();
    assert_eq!(numbers, [(1, 1), (1, 1), (2, 2), (2, 2)]);
}

#[test]
fn without_a_lost_reply_the_same_answers_are_certain() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    client.mkdir(&Caller::ROOT, ROOT, b"name", 0o755).expect("made");
    // This try was certainly not executed.
    manager.script.then(&[Fault::Lost]);
    let error = client.mkdir(&Caller::ROOT, ROOT, b"name", 0o755).unwrap_err();
    assert!(matches!(error, ClientError::Manager(ManagerStatus::Exists)), "{error}");
    let error = client.unlink(&Caller::ROOT, ROOT, b"none", None).unwrap_err();
    assert!(matches!(error, ClientError::Manager(ManagerStatus::NotFound)), "{error}");
}

#[test]
fn a_drive_that_is_away_is_waited_for() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    manager.state().answers = vec![ManagerStatus::Unavailable; 3];
    client.mkdir(&Caller::ROOT, ROOT, b"name", 0o755).expect("made in the end");
    manager.state().answers = vec![ManagerStatus::Unavailable; 1000];
    let error = client.lookup(&Caller::ROOT, ROOT, b"name").unwrap_err();
    assert_eq!(error.manager_status(), Some(ManagerStatus::Unavailable));
}

#[test]
fn no_patience_means_one_try() {
    let host = FakeHost::new();
    let manager = FakeManager::new(&host);
    let client = manager.client(&options()).with_retry(RetryPolicy::none());
    manager.script.then(&[Fault::Refused]);
    let error = client.lookup(&Caller::ROOT, ROOT, b"name").unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { tries: 1, may_have_run: false, .. }));
    host.pass(Duration::from_secs(1));
    manager.script.then(&[Fault::ReplyLost]);
    let error = client.lookup(&Caller::ROOT, ROOT, b"name").unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { may_have_run: true, .. }));
    assert!(host.slept.lock().unwrap().is_empty());
}

#[test]
fn what_is_too_long_is_not_sent() {
    let manager = FakeManager::new(&FakeHost::new());
    let client = manager.client(&options());
    let error = client.lookup(&Caller::ROOT, ROOT, &[b'x'; 256]).unwrap_err();
    assert_eq!(error.manager_status(), Some(ManagerStatus::NameTooLong));
    let error = client.symlink(&Caller::ROOT, ROOT, b"x", &[b'x'; 4096]).unwrap_err();
    assert_eq!(error.manager_status(), Some(ManagerStatus::NameTooLong));
    assert_eq!(manager.state().executed, 0);
}
