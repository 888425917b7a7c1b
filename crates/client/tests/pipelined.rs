//! Reads that are begun, and waited for later: what they bring, and what happens when they fail.

mod support;

use std::sync::Arc;

use nasd_client::{ClientError, ConnectOptions, DriveClient};
use nasd_protocol::Status;
use nasd_types::{ObjectId, ObjectName, Protection};
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
    for protection in [ARGS, ARGS | Protection::INTEGRITY_DATA] {
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
