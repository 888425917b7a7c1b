//! Calls that are begun, and waited for later: what they bring, and what happens when they fail.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use nasd_client::{ClientError, ConnectOptions, DriveClient};
use nasd_protocol::Status;
use nasd_types::{ObjectId, ObjectName, Protection, SetAttributes};
use support::drive::{FakeDrive, OBJECT, PARTITION, manager};
use support::{FakeHost, Fault};

const ARGS: Protection = Protection::INTEGRITY_ARGS;
const CONTENTS: &[u8] = b"some object's data";

fn setup() -> (Arc<FakeDrive>, DriveClient) {
    let drive = FakeDrive::new(&FakeHost::new());
    let client = drive.client(&ConnectOptions::default());
    (drive, client)
}

#[test]
fn reads_bring_the_same_as_those_of_one_call_in_any_order() {
    let (_, client) = setup();
    for protection in [ARGS, ARGS | Protection::INTEGRITY_DATA, Protection::SUPPORTED] {
        let authority = manager(protection);
        let begun: Vec<_> = (0..CONTENTS.len() as u64)
            .map(|offset| client.begin_read(&authority, OBJECT, offset, vec![0; 4]))
            .collect();
        for (offset, read) in begun.into_iter().enumerate().rev() {
            let (outcome, data) = read.wait();
            let outcome = outcome.expect("read");
            let expected = &CONTENTS[offset..CONTENTS.len().min(offset + 4)];
            assert_eq!(&data[..outcome.length], expected);
            assert_eq!((outcome.logical_size, data.len()), (CONTENTS.len() as u64, 4));
        }
    }
}

#[test]
fn a_read_whose_connection_breaks_is_made_again() {
    for fault in [Fault::Refused, Fault::Lost, Fault::ReplyLost, Fault::TimedOut] {
        let (drive, client) = setup();
        let authority = manager(ARGS);
        if fault != Fault::Refused {
            client.inquiry().expect("connected");
        }
        drive.script.then(&[fault]);
        let (outcome, data) = client.begin_read(&authority, OBJECT, 5, vec![0; 6]).wait();
        assert_eq!(outcome.expect("read").length, 6);
        assert_eq!(data, b"object");
    }
}

#[test]
fn a_nonce_that_the_drive_does_not_like_is_replaced() {
    let (drive, client) = setup();
    let authority = manager(ARGS);
    client.inquiry().expect("connected");
    drive.restart();
    let (outcome, data) = client.begin_read(&authority, OBJECT, 0, vec![0; 4]).wait();
    assert_eq!(outcome.expect("read").length, 4);
    assert_eq!(data, b"some");
}

#[test]
fn an_error_gives_the_buffer_back() {
    let (drive, client) = setup();
    let authority = manager(ARGS);
    let missing = ObjectName { partition: PARTITION, object: ObjectId(1000) };
    let (outcome, data) = client.begin_read(&authority, missing, 0, vec![0; 7]).wait();
    assert!(matches!(outcome, Err(ClientError::Drive(Status::NoSuchObject))), "{outcome:?}");
    assert_eq!(data.len(), 7);
    let too_much = client.max_transfer() + 1;
    let (outcome, data) = client.begin_read(&authority, OBJECT, 0, vec![0; too_much]).wait();
    assert!(matches!(outcome, Err(ClientError::TooLarge { .. })), "{outcome:?}");
    assert_eq!(data.len(), too_much);
    drive.script.then(&[Fault::ResultsAltered]);
    let (outcome, _) = client.begin_read(&authority, OBJECT, 0, vec![0; 4]).wait();
    assert!(matches!(outcome, Err(ClientError::BadReplyDigest { .. })), "{outcome:?}");
}

#[test]
fn objects_are_made_and_removed_by_calls_that_are_waited_for_later() {
    let (drive, client) = setup();
    let authority = manager(ARGS);
    let initial = SetAttributes::default();
    let begun: Vec<_> =
        (0..20).map(|_| client.begin_create(&authority, PARTITION, &initial, false)).collect();
    let made: BTreeSet<ObjectId> =
        begun.into_iter().rev().map(|create| create.wait().expect("made").object).collect();
    assert_eq!(made.len(), 20);
    let name = |&object: &ObjectId| ObjectName { partition: PARTITION, object };
    let begun: Vec<_> =
        made.iter().map(|object| client.begin_remove(&authority, name(object), false)).collect();
    begun.into_iter().for_each(|remove| remove.wait().expect("removed"));
    for object in &made {
        let error = client.begin_remove(&authority, name(object), false).wait().unwrap_err();
        assert!(matches!(error, ClientError::Drive(Status::NoSuchObject)), "{error}");
    }
    // A new nonce, and another connection.
    drive.restart();
    client.begin_create(&authority, PARTITION, &initial, true).wait().expect("made");
    drive.script.then(&[Fault::Lost]);
    client.begin_create(&authority, PARTITION, &initial, true).wait().expect("made");
    drive.script.then(&[Fault::ResultsAltered]);
    let error = client.begin_create(&authority, PARTITION, &initial, true).wait().unwrap_err();
    assert!(matches!(error, ClientError::BadReplyDigest { .. }), "{error}");
}

#[test]
fn an_object_that_a_begun_try_removed_counts_as_removed() {
    let (drive, client) = setup();
    let authority = manager(ARGS);
    client.inquiry().expect("connected");
    drive.script.then(&[Fault::ReplyLost]);
    client.begin_remove(&authority, OBJECT, true).wait().expect("removed");
    assert!(client.begin_remove(&authority, OBJECT, true).wait().is_err());
}
