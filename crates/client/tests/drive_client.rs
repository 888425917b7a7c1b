//! The drive client against a drive that authorizes as a real one does, over connections that
//! fail, and against somebody who alters what they carry.

mod support;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use nasd_capability::{Capability, NarrowError, Narrowing, SecretKey, Suite, capability_key};
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, RetryPolicy};
use nasd_protocol::drive::{BatchArguments, BatchDone, BatchOperation, Procedure};
use nasd_protocol::manager::IssuedCapability;
use nasd_protocol::{Region, Status};
use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, ObjectName, Protection, Rights, SetAttributes, Timestamp,
};

use support::drive::{DRIVE, FakeDrive, OBJECT, PARTITION, manager, working_key};
use support::{FakeHost, Fault, MORNING, options};

const ARGS: Protection = Protection::INTEGRITY_ARGS;
const DATA: Protection = ARGS.union(Protection::INTEGRITY_DATA);
const PRIVATE: Protection = DATA.union(Protection::PRIVACY_DATA);
const CONTENTS: &[u8] = b"some object's data";

fn setup() -> (Arc<FakeHost>, Arc<FakeDrive>, DriveClient) {
    let host = FakeHost::new();
    let drive = FakeDrive::new(&host);
    let client = drive.client(&options());
    (host, drive, client)
}

fn capability(rights: Rights) -> Capability {
    Capability {
        drive: DRIVE,
        partition: PARTITION,
        object: OBJECT.object,
        region: ByteRange::ALL,
        rights,
        expires: MORNING.plus_ns(3600 * Timestamp::SECOND_NS),
        audit_id: AuditId(1),
        minimum_protection: ARGS,
        key_epoch: 0,
    }
}

fn holder(rights: Rights, access_control_version: u64) -> Authority {
    let capability = capability(rights);
    let key = capability_key(&working_key(), &capability, access_control_version);
    Authority::capability(&IssuedCapability { capability, key, sealed: None }, ARGS)
}

fn read(client: &DriveClient, authority: &Authority) -> Result<Vec<u8>, ClientError> {
    let mut into = [0; 100];
    let outcome = client.read(authority, OBJECT, 0, &mut into)?;
    assert_eq!(outcome.logical_size, CONTENTS.len() as u64);
    Ok(into[..outcome.length].to_vec())
}

#[test]
fn every_operation_with_every_protection_and_suite() {
    for protection in [ARGS, DATA, PRIVATE] {
        for suite in Suite::available() {
            let (_, drive, client) = setup();
            let authority = manager(protection).with_suite(*suite);
            let initial = SetAttributes::default();
            let created = client.create(&authority, PARTITION, &initial, true).expect("created");
            let name = ObjectName { partition: PARTITION, object: created.object };
            let slices = [IoSlice::new(b"hello, "), IoSlice::new(b"world")];
            let written = client.write_vectored(&authority, name, 3, &slices, false).expect("ok");
            assert_eq!((written.length, written.logical_size, written.instance), (12, 15, 1));
            let mut into = [9; 5];
            let outcome = client.read(&authority, name, 10, &mut into).expect("read");
            assert_eq!((outcome.length, &into), (5, b"world"));
            let attributes = client.getattr(&authority, name).expect("attributes");
            assert_eq!(attributes.logical_size, 15);
            client.setattr(&authority, name, &initial, false).expect("set");
            let flushed = client.flush(&authority, PARTITION, &[name.object]).expect("flushed");
            assert_eq!(flushed.instance, 1);
            client.remove(&authority, name, true).expect("removed");
            let error = client.getattr(&authority, name).unwrap_err();
            assert_eq!(error.status(), Some(Status::NoSuchObject));
            assert_eq!(drive.state().connections, 1, "one caller needs one connection");
        }
    }
}

#[test]
fn regions_are_read_and_written_in_their_order() {
    let (_, drive, client) = setup();
    let authority = manager(DATA);
    let regions = [Region { offset: 0, length: 2, stride: 5, count: 2 }, Region::single(1, 1)];
    let mut into = [0; 5];
    let outcome = client.read_regions(&authority, OBJECT, &regions, &mut into).expect("read");
    assert_eq!((outcome.length, &into), (5, b"soobo"));
    let data = [IoSlice::new(b"ABC"), IoSlice::new(b"DE")];
    client.write_regions(&authority, OBJECT, &regions, &data, false).expect("written");
    assert_eq!(drive.state().objects[&OBJECT], b"AEme CDject's data");
}

#[test]
fn reads_end_with_the_object() {
    let (_, _, client) = setup();
    for authority in [manager(DATA), holder(Rights::READ, 1)] {
        let mut into = [0; 8];
        let outcome = client.read(&authority, OBJECT, 14, &mut into).expect("read");
        assert_eq!((outcome.length, &into[..4]), (4, &b"data"[..]));
        let outcome = client.read(&authority, OBJECT, 1000, &mut into).expect("read");
        assert_eq!((outcome.length, outcome.logical_size), (0, 18));
        assert_eq!(client.read(&authority, OBJECT, 0, &mut []).expect("nothing").length, 0);
    }
}

#[test]
fn payload_is_not_copied() {
    let (_, drive, client) = setup();
    let authority = manager(DATA);
    let data = vec![7; 100_000];
    client.write(&authority, OBJECT, 0, &data, false).expect("written");
    assert_eq!(drive.state().payload_at, Some(data.as_ptr() as usize));
    let mut into = vec![0; 100_000];
    client.read(&authority, OBJECT, 0, &mut into).expect("read");
    assert_eq!(drive.state().payload_at, Some(into.as_ptr() as usize));
    assert_eq!(into, data);
}

#[test]
fn without_protection_nothing_is_proved() {
    let (_, drive, client) = setup();
    let minimum_protection = Protection::NONE;
    let capability = Capability { minimum_protection, ..capability(Rights::READ) };
    let issued = IssuedCapability { capability, key: SecretKey::new([0; 32]), sealed: None };
    let authority = Authority::capability(&issued, Protection::NONE);
    assert_eq!(read(&client, &authority).expect("on a drive that allows it"), CONTENTS);
    drive.script.then(&[Fault::DataAltered]);
    assert_ne!(read(&client, &authority).expect("nothing is checked"), CONTENTS);
}

#[test]
fn a_stale_capability_is_told_as_such() {
    let (_, _, client) = setup();
    let error = read(&client, &holder(Rights::WRITE, 1)).unwrap_err();
    assert!(matches!(error, ClientError::Refused(Status::RefusedRights)));
    let revoked = read(&client, &holder(Rights::READ, 0)).unwrap_err();
    assert!(matches!(revoked, ClientError::Refused(Status::RefusedDigest)));
    assert!(revoked.needs_new_capability() && !revoked.may_have_run());
}

#[test]
fn a_capability_is_narrowed_offline_and_not_widened() {
    let (_, _, client) = setup();
    let mut authority = holder(Rights::READ | Rights::WRITE, 1);
    let mut allowed = Narrowing::of(&authority.as_capability().expect("a capability"));
    for step in 1..=8 {
        allowed.rights = Rights::READ;
        allowed.region = ByteRange::new(0, 200 - step);
        authority = authority.narrowed(allowed).expect("within what there is");
        assert_eq!(read(&client, &authority).expect("allowed"), CONTENTS, "{step}");
    }
    assert_eq!(authority.narrowed(allowed).err(), Some(NarrowError::TooMany));
    let refused = client.write(&authority, OBJECT, 0, b"x", false).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(Status::RefusedRights)));
    let authority = holder(Rights::READ, 1);
    for wider in [
        Narrowing { rights: Rights::all(), ..allowed },
        Narrowing { expires: Timestamp::MAX, ..allowed },
    ] {
        assert_eq!(authority.narrowed(wider).err(), Some(NarrowError::Wider));
    }
    assert_eq!(manager(ARGS).narrowed(allowed).err(), Some(NarrowError::NotACapability));
}

#[test]
fn what_nobody_sealed_is_not_shown_where_nobody_may_read_it() {
    let (_, _, client) = setup();
    let capability = capability(Rights::READ);
    let key = capability_key(&working_key(), &capability, 1);
    let issued = IssuedCapability { capability, key, sealed: None };
    let authority = Authority::capability(&issued, ARGS | Protection::PRIVACY_CAPABILITY);
    assert!(matches!(read(&client, &authority).unwrap_err(), ClientError::NotSealed));
}

// ---- clocks and nonces

#[test]
fn the_drives_clock_is_learned_from_inquiry() {
    let (host, drive, client) = setup();
    assert_eq!(client.drive_time(), MORNING);
    drive.state().clock = MORNING.plus_ns(300 * Timestamp::SECOND_NS);
    assert_eq!(read(&client, &manager(ARGS)).expect("read"), CONTENTS);
    assert_eq!(drive.state().nonces.len(), 1, "no refusal");
    host.pass(Duration::from_secs(5));
    assert_eq!(client.drive_time(), MORNING.plus_ns(305 * Timestamp::SECOND_NS + 1_000));
}

#[test]
fn a_clock_that_was_set_is_learned_from_the_refusal() {
    for offset_s in [-50_i64, 200] {
        let (host, drive, client) = setup();
        let authority = manager(ARGS);
        read(&client, &authority).expect("read");
        drive.state().clock = Timestamp(MORNING.0.wrapping_add_signed(offset_s * 1_000_000_000));
        assert_eq!(read(&client, &authority).expect("read"), CONTENTS);
        assert_eq!(drive.state().nonces.len(), 3, "one refusal");
        assert!(host.slept.lock().unwrap().is_empty(), "a fresh nonce needs no wait");
    }
}

#[test]
fn a_restarted_drive_costs_one_refusal() {
    let (_, drive, client) = setup();
    let authority = manager(ARGS);
    read(&client, &authority).expect("read");
    drive.restart();
    assert_eq!(read(&client, &authority).expect("read"), CONTENTS);
    let nonces = drive.state().nonces.clone();
    assert_eq!(nonces.len(), 3);
    assert_ne!(nonces[1].sender(), nonces[2].sender());
    let written = client.write(&authority, OBJECT, 0, b"x", false).expect("written");
    assert_eq!(written.instance, 2);
    assert_eq!(drive.state().nonces.len(), 4);
}

#[test]
fn the_new_instance_is_known_after_a_reconnect() {
    let (_, drive, client) = setup();
    let authority = manager(ARGS);
    read(&client, &authority).expect("read");
    assert_eq!(client.information().expect("connected").instance, 1);
    drive.restart();
    drive.script.then(&[Fault::Lost]);
    read(&client, &authority).expect("read");
    assert_eq!(client.information().expect("connected").instance, 2);
    assert_eq!(client.inquiry().expect("asked").instance, 2);
}

/// Ten years.
const FAR: u64 = 10 * 365 * 86_400 * Timestamp::SECOND_NS;

#[test]
fn clients_with_a_wrong_clock_learn_the_drives() {
    let minute = 60 * Timestamp::SECOND_NS;
    for clock in [MORNING.0 / 2, MORNING.0 - 11 * minute, MORNING.0 + 11 * minute, MORNING.0 + FAR]
    {
        for authority in [manager(ARGS), manager(DATA), holder(Rights::all(), 1)] {
            let (_, drive, client) = setup();
            drive.state().clock = Timestamp(clock);
            drive.restart();
            // Of a capability that has expired by then the drive says so, in time.
            let expired = authority.as_capability().is_some() && clock > MORNING.0 + 60 * minute;
            match read(&client, &authority) {
                Ok(contents) => assert!(!expired && contents == CONTENTS),
                Err(error) => {
                    assert!(expired, "{error}");
                    assert_eq!(error.status(), Some(Status::RefusedExpired));
                }
            }
            assert_eq!(drive.state().proofs, 1);
            assert!(client.drive_time().distance_ns(Timestamp(clock)) < 2 * Timestamp::SECOND_NS);
            // Once is enough, also over another connection.
            drive.restart();
            let _ = read(&client, &authority);
            assert_eq!(drive.state().proofs, 1);
        }
    }
}

#[test]
fn without_a_key_the_clock_is_not_learned_and_not_needed() {
    let (_, drive, client) = setup();
    drive.state().clock = MORNING.plus_ns(FAR);
    assert!(client.inquiry().expect("told").clock > MORNING.plus_ns(FAR));
    assert_eq!(client.drive_time(), MORNING);
    assert_eq!(drive.state().proofs, 0);
    // A capability that is worth nothing can't prove a clock either.
    let error = read(&client, &holder(Rights::all(), 77)).unwrap_err();
    assert_eq!(error.status(), Some(Status::RefusedDigest));
    assert_eq!(client.drive_time(), MORNING);
}

#[test]
fn forged_clocks_do_not_draw_requests_from_the_future() {
    let (host, drive, client) = setup();
    drive.state().forged_clock = Some(MORNING.plus_ns(3600 * Timestamp::SECOND_NS));
    let skew = u32::from(Status::RefusedSkew);
    for round in 0..50 {
        let told = MORNING.plus_ns((round % 7) * FAR);
        drive.script.then(&[Fault::ForgedAt(skew, told), Fault::Lost]);
        assert_eq!(read(&client, &manager(ARGS)).expect("read"), CONTENTS);
        host.pass(std::time::Duration::from_secs(1));
        let clock = drive.state().clock;
        drive.state().clock = clock.plus_ns(Timestamp::SECOND_NS);
    }
    // However often it is said: never more than ten minutes ahead, and of what was proved.
    let limit = 600 * Timestamp::SECOND_NS;
    let state = drive.state();
    let latest = state.nonces.iter().map(|nonce| nonce.timestamp).max().expect("some");
    assert!(latest <= state.clock.plus_ns(limit), "{latest:?}");
    assert!(state.proofs > 0);
}

#[test]
fn a_forged_answer_to_the_question_for_the_clock_is_no_proof() {
    let (_, drive, client) = setup();
    read(&client, &manager(ARGS)).expect("read");
    let far = MORNING.plus_ns(FAR);
    let skew = u32::from(Status::RefusedSkew);
    // The drive's answers never come: all that comes is forged.
    drive.script.then(&vec![Fault::ForgedAt(skew, far); 5]);
    let error = read(&client, &manager(ARGS)).unwrap_err();
    assert_eq!(error.status(), Some(Status::RefusedSkew));
    assert!(client.drive_time() < MORNING.plus_ns(Timestamp::SECOND_NS));
    assert_eq!(read(&client, &manager(ARGS)).expect("read"), CONTENTS);
}

#[test]
fn endless_refusals_of_nonces_are_given_up() {
    let (_, drive, client) = setup();
    for status in [Status::RefusedSkew, Status::RefusedReplay] {
        let forged = Fault::Forged(u32::from(status));
        drive.script.then(&vec![forged; 5]);
        let error = read(&client, &manager(ARGS)).unwrap_err();
        assert_eq!(error.status(), Some(status));
    }
    assert_eq!(read(&client, &manager(ARGS)).expect("read"), CONTENTS);
}

// ---- replies that were altered

#[test]
fn altered_replies_are_found_out() {
    let faults = [
        Fault::ResultsAltered,
        Fault::DigestMissing,
        Fault::Forged(u32::from(Status::NoSuchObject)),
        Fault::OldReply,
    ];
    for fault in faults {
        for protection in [ARGS, DATA, PRIVATE] {
            let (_, drive, client) = setup();
            let authority = manager(protection);
            read(&client, &authority).expect("read");
            drive.script.then(std::slice::from_ref(&fault));
            let error = read(&client, &authority).unwrap_err();
            assert!(matches!(error, ClientError::BadReplyDigest { .. }), "{fault:?}: {error}");
            assert!(error.may_have_run());
            read(&client, &authority).expect("the next is all right");
        }
    }
}

#[test]
fn altered_data_are_found_out_where_asked_for() {
    let (_, drive, client) = setup();
    drive.script.then(&[Fault::DataAltered, Fault::DataAltered]);
    let error = read(&client, &manager(DATA)).unwrap_err();
    assert!(matches!(error, ClientError::BadReplyDigest { .. }));
    assert_ne!(read(&client, &manager(ARGS)).expect("only the arguments are covered"), CONTENTS);
}

#[test]
fn private_data_that_were_altered_are_wiped() {
    for suite in Suite::available() {
        let (_, drive, client) = setup();
        let authority = manager(PRIVATE).with_suite(*suite);
        drive.script.then(&[Fault::DataAltered]);
        let mut into = [7; 100];
        let error = client.read(&authority, OBJECT, 0, &mut into).unwrap_err();
        assert!(matches!(error, ClientError::BadReplyDigest { .. }));
        let (private, rest) = into.split_at(CONTENTS.len());
        assert!(private.iter().all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 7));
        drive.script.then(&[Fault::DataAltered]);
        let (outcome, into) = client.begin_read(&authority, OBJECT, 0, vec![7; 100]).wait();
        assert!(matches!(outcome, Err(ClientError::BadReplyDigest { .. })));
        assert!(into[..CONTENTS.len()].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_forged_refusal_is_a_refusal_and_no_more() {
    let (_, drive, client) = setup();
    drive.script.then(&[Fault::Forged(u32::from(Status::RefusedExpired))]);
    let error = read(&client, &manager(ARGS)).unwrap_err();
    assert!(error.needs_new_capability());
    drive.script.then(&[Fault::Forged(u32::from(Status::TooLarge))]);
    let error = read(&client, &manager(ARGS)).unwrap_err();
    assert!(matches!(error, ClientError::Drive(Status::TooLarge)), "{error}");
    drive.script.then(&[Fault::Forged(4711)]);
    let error = read(&client, &manager(ARGS)).unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
}

#[test]
fn only_what_is_proved_says_that_a_change_was_not_made() {
    let refused = Fault::Forged(u32::from(Status::RefusedDigest));
    let skewed = Fault::Forged(u32::from(Status::RefusedSkew));
    let busy = Fault::Forged(u32::from(Status::Busy));
    let lost = Fault::ReplyLost;
    let never = Fault::Lost;
    for (faults, other_drive, has_not_run) in [
        (std::slice::from_ref(&refused), false, false),
        (&[Fault::Forged(u32::from(Status::BadArgument))], false, false),
        (std::slice::from_ref(&never), true, true),
        (&[lost.clone(), never.clone()], true, false),
        (&[lost.clone(), refused.clone()], false, false),
        (&[skewed.clone(), never.clone()], true, false),
        (&[busy, never.clone()], true, false),
    ] {
        let (_, drive, client) = setup();
        let authority = manager(ARGS);
        client.prove(&authority).expect("connected");
        drive.script.then(faults);
        if other_drive {
            drive.state().id = DriveId(0xbad);
        }
        let error = client.remove_partition(&authority, PARTITION).unwrap_err();
        assert_eq!(error.has_not_run(), has_not_run, "{faults:?}: {error}");
    }
    // A proved answer settles what was lost before it.
    let (_, drive, client) = setup();
    drive.state().answers = vec![Status::StaleEpoch];
    let error = client.remove_partition(&manager(ARGS), PARTITION).unwrap_err();
    assert!(matches!(error, ClientError::Drive(Status::StaleEpoch)) && error.has_not_run());
}

#[test]
fn a_key_is_proved_or_it_is_not() {
    let (_, drive, client) = setup();
    client.prove(&manager(ARGS)).expect("the drive's own");
    client.prove(&manager(PRIVATE | Protection::PRIVACY_ARGS)).expect("the drive's own");
    let wrong = Authority::working_key(PARTITION, SecretKey::new([4; 32]), ARGS);
    let error = client.prove(&wrong).unwrap_err();
    assert!(matches!(error, ClientError::Refused(Status::RefusedDigest)), "{error}");
    assert!(drive.state().executed.iter().all(|done| *done == Procedure::Inquiry));
}

// ---- connections

#[test]
fn another_drive_at_the_address_is_told() {
    let (host, drive, client) = setup();
    read(&client, &manager(ARGS)).expect("read");
    drive.state().id = DriveId(0xbad);
    drive.script.then(&[Fault::Lost]);
    let error = read(&client, &manager(ARGS)).unwrap_err();
    let found = match error {
        ClientError::WrongDrive { expected, found, .. } => (expected, found),
        other => panic!("{other}"),
    };
    assert_eq!(found, (DRIVE, DriveId(0xbad)));
    drive.state().id = DRIVE;
    host.pass(Duration::from_secs(1));
    read(&client, &manager(ARGS)).expect("the right one is back");
}

#[test]
fn a_lost_connection_is_made_anew_and_every_try_has_a_nonce_of_its_own() {
    let (host, drive, client) = setup();
    let authority = manager(DATA);
    drive.script.then(&[Fault::Refused, Fault::Refused, Fault::ReplyLost, Fault::Lost]);
    assert_eq!(read(&client, &authority).expect("read"), CONTENTS);
    let nonces = &drive.state().nonces;
    assert_eq!(nonces.len(), 2);
    assert_ne!(nonces[0], nonces[1]);
    assert_eq!(drive.state.try_lock().map(|state| state.connections).unwrap_or(3), 3);
    let slept = host.slept.lock().unwrap();
    assert_eq!(slept.len(), 4);
    assert!(slept.windows(2).all(|pair| pair[0] < pair[1]), "{slept:?}");
}

#[test]
fn a_drive_that_stays_away_is_given_up_at_the_deadline() {
    let (host, drive, client) = setup();
    drive.script.then(&vec![Fault::Refused; 1000]);
    let started = host.wall_clock_ns();
    let error = read(&client, &manager(ARGS)).unwrap_err();
    let took = host.wall_clock_ns() - started;
    assert!((1_000_000_000..1_100_000_000).contains(&took), "{took}");
    match error {
        ClientError::Unreachable { tries, may_have_run, server, .. } => {
            assert!((5..20).contains(&tries), "{tries}");
            assert!(!may_have_run);
            assert_eq!(server, "drive.test:2049");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_hanging_drive_is_given_up_one_time_out_after_the_deadline() {
    let (host, drive, client) = setup();
    let retry = RetryPolicy::within(Duration::from_secs(2));
    drive.script.then(&vec![Fault::TimedOut; 1000]);
    let error = read(&client.with_retry(retry), &manager(ARGS)).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { may_have_run: true, .. }), "{error}");
    assert!(host.wall_clock_ns() - MORNING.0 <= 4_200_000_000);
}

#[test]
fn a_drive_that_is_given_up_is_not_called_until_it_is_said_again() {
    let (host, drive, client) = setup();
    let authority = manager(ARGS);
    read(&client, &authority).expect("over a connection that is there from then on");
    drive.script.then(&[Fault::ReplyLost]);
    let clone = client.clone();
    host.when_asleep(move || clone.give_up());
    let error = read(&client, &authority).unwrap_err();
    assert!(
        matches!(error, ClientError::Unreachable { tries: 2, may_have_run: true, .. }),
        "{error}"
    );
    assert_eq!(host.slept.lock().unwrap().len(), 1, "there was no other try");
    let executed = drive.state().executed.len();
    for client in [&client, &client.with_retry(RetryPolicy::within(Duration::from_secs(9)))] {
        let error = read(client, &authority).unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { may_have_run: false, .. }), "{error}");
        assert!(error.to_string().contains("not waited for"), "{error}");
        assert!(client.is_given_up());
    }
    assert_eq!(drive.state().executed.len(), executed);
    assert_eq!(host.slept.lock().unwrap().len(), 1);
    client.call_again();
    read(&client, &authority).expect("it is called again");
}

#[test]
fn nonsense_is_not_asked_for_again() {
    let (_, drive, client) = setup();
    drive.script.then(&[Fault::Garbage]);
    let error = read(&client, &manager(ARGS)).unwrap_err();
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
    assert_eq!(drive.state().executed.len(), 1);
    read(&client, &manager(ARGS)).expect("over another connection");
}

#[test]
fn a_busy_drive_is_asked_again() {
    let (host, drive, client) = setup();
    drive.state().answers = vec![Status::Busy, Status::Busy];
    read(&client, &manager(ARGS)).expect("read");
    assert_eq!(host.slept.lock().unwrap().len(), 2);
    drive.state().answers = vec![Status::NoSpace];
    let error = client.write(&manager(ARGS), OBJECT, 0, b"x", false).unwrap_err();
    assert!(matches!(error, ClientError::Drive(Status::NoSpace)));
}

#[test]
fn a_drive_without_room_is_asked_again() {
    let (host, drive, client) = setup();
    drive.script.then(&[Fault::ServerFailed, Fault::Forged(u32::from(Status::Busy))]);
    client.write(&manager(DATA), OBJECT, 0, b"x", false).expect("written");
    assert_eq!(host.slept.lock().unwrap().len(), 2);
    assert_eq!(drive.state().connections, 1, "the connection is all right");
}

// ---- operations that are executed twice

#[test]
fn an_object_removed_by_a_lost_try_counts_as_removed() {
    let (_, drive, client) = setup();
    drive.script.then(&[Fault::ReplyLost]);
    client.remove(&manager(ARGS), OBJECT, true).expect("removed");
    assert_eq!(drive.state().executed, [Procedure::Remove, Procedure::Remove]);
    let again = client.remove(&manager(ARGS), OBJECT, true).unwrap_err();
    assert_eq!(again.status(), Some(Status::NoSuchObject));
    // A try that was certainly not executed proves nothing.
    drive.script.then(&[Fault::Lost]);
    assert!(client.remove(&manager(ARGS), OBJECT, true).is_err());
}

fn batch(operations: Vec<BatchOperation>) -> BatchArguments {
    BatchArguments { partition: PARTITION, durable: true, with_attributes: false, operations }
}

#[test]
fn a_batch_that_makes_nothing_is_sent_again() {
    let (_, drive, client) = setup();
    drive.script.then(&[Fault::ReplyLost, Fault::Lost]);
    let (object, missing) = (OBJECT.object, ObjectId(1 << 40));
    let asked =
        batch(vec![BatchOperation::Remove(object), BatchOperation::Setattr(missing, initial())]);
    let batched = client.batch(&manager(ARGS), &asked).expect("answered");
    assert_eq!(drive.state().executed, [Procedure::Batch, Procedure::Batch]);
    let removed = BatchDone { object, attributes: None };
    assert_eq!(batched.outcomes, [Ok(removed), Err(Status::NoSuchObject)]);
    // What no earlier try can have removed was not there.
    let again = client.batch(&manager(ARGS), &asked).expect("answered");
    assert_eq!(again.outcomes, [Err(Status::NoSuchObject), Err(Status::NoSuchObject)]);
}

/// Who makes objects learns how many there may be: as many as were asked for, or none.
#[test]
fn a_batch_that_makes_objects_is_not_sent_again_once_it_may_have_been_executed() {
    let (_, drive, client) = setup();
    let asked = batch(vec![BatchOperation::Create(None, initial()); 3]);
    drive.script.then(&[Fault::Refused, Fault::Lost]);
    let made = client.batch(&manager(ARGS), &asked).expect("answered");
    assert_eq!(made.outcomes.len(), 3);
    for fault in [Fault::ReplyLost, Fault::TimedOut] {
        let before = drive.state().objects.len();
        drive.script.then(&[fault]);
        let error = client.batch(&manager(ARGS), &asked).unwrap_err();
        assert!(error.may_have_run() && !error.has_not_run(), "{error}");
        assert_eq!(drive.state().objects.len(), before + 3);
    }
    let too_many = batch(vec![BatchOperation::Create(None, initial()); 2000]);
    assert!(client.batch(&manager(ARGS), &too_many).unwrap_err().has_not_run());
}

fn chosen(number: u64) -> ObjectName {
    ObjectName { partition: PARTITION, object: ObjectId(ObjectId::FIRST_NAMED.0 + number) }
}

fn is_taken(error: &ClientError) -> bool {
    matches!(error, ClientError::Drive(Status::ObjectExists)) && error.has_not_run()
}

#[test]
fn an_object_made_by_a_lost_try_is_ones_own_if_one_chose_its_number() {
    let (_, drive, client) = setup();
    let make =
        |number, durable| client.create_named(&manager(ARGS), chosen(number), &initial(), durable);
    assert_eq!(make(1, true).expect("made").object, chosen(1).object);
    assert!(is_taken(&make(1, true).unwrap_err()));
    for (number, durable) in [(2, false), (3, true)] {
        drive.state().executed.clear();
        drive.script.then(&[Fault::ReplyLost]);
        let made = make(number, durable).expect("made");
        assert_eq!(made.object, chosen(number).object);
        let looked = [Procedure::Flush, Procedure::Getattr];
        let looked = if durable { &looked[..] } else { &looked[1..] };
        let expected = [&[Procedure::Create, Procedure::Create], looked].concat();
        assert_eq!(drive.state().executed, expected);
        assert!(is_taken(&make(number, durable).unwrap_err()));
    }
    // A try that was certainly not executed has made nothing.
    drive.script.then(&[Fault::Lost, Fault::Refused]);
    assert!(is_taken(&make(3, false).unwrap_err()));
    // Of one that was answered as anybody could nobody knows.
    drive.script.then(&[Fault::Forged(u32::from(Status::Busy))]);
    let error = make(3, false).unwrap_err();
    assert!(matches!(error, ClientError::Unsettled(_)) && !error.has_not_run(), "{error}");
    assert_eq!(error.status(), Some(Status::ObjectExists));
    // Nor of one that was lost, when the drive then fails.
    drive.script.then(&[Fault::ReplyLost]);
    drive.state().answers = vec![Status::NoSpace; 2];
    let error = make(4, false).unwrap_err();
    assert!(error.may_have_run() && !error.has_not_run(), "{error}");
}

#[test]
fn a_copy_made_by_a_lost_try_is_ones_own_if_one_chose_its_number() {
    let (_, drive, client) = setup();
    let copy = |number| client.fastcopy_named(&manager(ARGS), OBJECT, chosen(number).object);
    assert_eq!(copy(1).expect("copied").object, chosen(1).object);
    assert!(is_taken(&copy(1).unwrap_err()));
    drive.script.then(&[Fault::ReplyLost]);
    drive.state().executed.clear();
    assert_eq!(copy(2).expect("copied").object, chosen(2).object);
    let expected = [Procedure::Fastcopy, Procedure::Fastcopy, Procedure::Getattr];
    assert_eq!(drive.state().executed, expected);
    let objects = drive.state().objects.clone();
    assert_eq!(objects[&chosen(2)], objects[&OBJECT]);
}

#[test]
fn a_batch_that_makes_objects_of_chosen_numbers_is_sent_again() {
    let (_, drive, client) = setup();
    let make = |number| BatchOperation::Create(Some(chosen(number).object), initial());
    let made = |number| Ok(BatchDone { object: chosen(number).object, attributes: None });
    for (numbers, durable) in [([1, 2], true), ([3, 4], false)] {
        drive.script.then(&[Fault::ReplyLost]);
        drive.state().executed.clear();
        let asked = BatchArguments { durable, ..batch(numbers.map(make).to_vec()) };
        let batched = client.batch(&manager(ARGS), &asked).expect("answered");
        assert_eq!(batched.outcomes, numbers.map(made));
        let executed = drive.state().executed.clone();
        let flushed: &[Procedure] = if durable { &[Procedure::Flush] } else { &[] };
        assert_eq!(executed, [&[Procedure::Batch, Procedure::Batch], flushed].concat());
        let again = client.batch(&manager(ARGS), &asked).expect("answered");
        assert_eq!(again.outcomes, numbers.map(|_| Err(Status::ObjectExists)));
    }
    // One object that the drive gives a number is enough to make it unclear what there is.
    drive.script.then(&[Fault::ReplyLost]);
    let mixed = batch(vec![make(5), BatchOperation::Create(None, initial())]);
    assert!(client.batch(&manager(ARGS), &mixed).unwrap_err().may_have_run());
}

fn initial() -> SetAttributes {
    SetAttributes::default()
}

#[test]
fn writes_are_written_again() {
    let (_, drive, client) = setup();
    drive.script.then(&[Fault::ReplyLost, Fault::TimedOut]);
    let patient = client.with_retry(RetryPolicy::default());
    patient.write(&manager(DATA), OBJECT, 0, b"SOME", true).expect("written");
    assert_eq!(drive.state().executed.len(), 3);
    assert!(drive.state().objects[&OBJECT].starts_with(b"SOME object"));
}

#[test]
fn no_patience_means_one_try() {
    let (host, drive, client) = setup();
    let client = client.with_retry(RetryPolicy::none());
    drive.script.then(&[Fault::ReplyLost]);
    let error = client.create(&manager(ARGS), PARTITION, &SetAttributes::default(), true);
    assert!(error.unwrap_err().may_have_run());
    assert_eq!(drive.state().executed.len(), 1);
    assert!(host.slept.lock().unwrap().is_empty());
}

// ---- limits and suites

#[test]
fn what_is_too_large_is_not_sent() {
    let (_, drive, client) = setup();
    drive.state().max_transfer = 8192;
    client.inquiry().expect("asked");
    assert_eq!(client.max_transfer(), 8192);
    let authority = manager(ARGS);
    let limit = 8192;
    let error = client.write(&authority, OBJECT, 0, &[0; 8193], false).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { amount: 8193, limit: 8192 }), "{error}");
    let error = client.read(&authority, OBJECT, 0, &mut vec![0; limit + 1]).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }));
    let error = client.flush(&authority, PARTITION, &[ObjectId(64); 1025]).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { amount: 1025, limit: 1024 }));
    let huge = [Region { offset: 0, length: u64::MAX, stride: u64::MAX, count: u32::MAX }];
    let error = client.read_regions(&authority, OBJECT, &huge, &mut []).unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }));
    let regions = [Region::single(0, 10)];
    assert!(client.read_regions(&authority, OBJECT, &regions, &mut [0; 9]).is_err());
    assert!(client.write_regions(&authority, OBJECT, &regions, &[], false).is_err());
    assert!(drive.state().executed.is_empty());
}

#[test]
fn suites_are_agreed_upon() {
    let (_, drive, client) = setup();
    drive.state().suites = vec![Suite::Blake3];
    read(&client, &manager(ARGS)).expect("with what the drive has");
    let error = read(&client, &manager(ARGS).with_suite(Suite::Aegis)).unwrap_err();
    assert!(matches!(error, ClientError::NoCommonSuite { .. }));
}

#[test]
fn many_threads_share_two_connections() {
    let (_, drive, _) = setup();
    let client = drive.client(&ConnectOptions::default());
    let authority = manager(ARGS);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!(read(&client, &authority).expect("read"), CONTENTS);
                }
            });
        }
    });
    let state = drive.state();
    assert!((1..=2).contains(&state.connections), "{}", state.connections);
    assert_eq!(state.executed.len(), 1600);
    assert_eq!(state.nonces.len(), 1600, "no request was refused");
}
