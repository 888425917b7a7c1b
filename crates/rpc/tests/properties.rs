//! Heads and records survive the wire however it is cut, and no bytes make the readers panic.

use nasd_rpc::{
    AcceptStatus, AuthStatus, AuthSys, CallHead, Denial, Expect, MAX_AUTH_BYTES, OpaqueAuth,
    PendingCalls, RecordMark, RecordParser, ReplyBody, ReplyHead,
};
use nasd_xdr::{Decoder, to_bytes};
use proptest::collection::vec;
use proptest::prelude::*;

fn accept_status() -> impl Strategy<Value = AcceptStatus> {
    prop_oneof![
        Just(AcceptStatus::Success),
        Just(AcceptStatus::ProgramUnavailable),
        any::<(u32, u32)>().prop_map(|(low, high)| AcceptStatus::ProgramMismatch { low, high }),
        Just(AcceptStatus::ProcedureUnavailable),
        Just(AcceptStatus::GarbageArguments),
        Just(AcceptStatus::SystemError),
    ]
}

fn denial() -> impl Strategy<Value = Denial> {
    prop_oneof![
        any::<(u32, u32)>().prop_map(|(low, high)| Denial::RpcMismatch { low, high }),
        prop::sample::select(AuthStatus::ALL).prop_map(Denial::Auth),
    ]
}

/// Bytes that often look like small numbers, so that decoders get past their first word.
fn plausible_bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![6 => Just(0_u8), 2 => 0..4_u8, 1 => any::<u8>()], 0..most)
}

proptest! {
    #[test]
    fn call_heads_survive(
        xid: u32, program: u32, version: u32, procedure: u32, flavors: (u32, u32),
        credential in vec(any::<u8>(), 0..=MAX_AUTH_BYTES),
        verifier in vec(any::<u8>(), 0..=MAX_AUTH_BYTES),
    ) {
        let credential = OpaqueAuth { flavor: flavors.0, body: &credential };
        let verifier = OpaqueAuth { flavor: flavors.1, body: &verifier };
        let head = CallHead { xid, program, version, procedure, credential, verifier };
        let bytes = to_bytes(&head);
        prop_assert!(bytes.len() <= nasd_rpc::MAX_CALL_HEAD_BYTES);
        let mut input = Decoder::new(&bytes);
        prop_assert_eq!(CallHead::decode(&mut input), Ok(head));
        prop_assert_eq!(input.remaining(), 0);
    }

    #[test]
    fn reply_heads_survive(
        xid: u32, flavor: u32, body in vec(any::<u8>(), 0..=MAX_AUTH_BYTES),
        status in accept_status(), denial in denial(), accepted: bool,
    ) {
        let verifier = OpaqueAuth { flavor, body: &body };
        let body = if accepted {
            ReplyBody::Accepted { verifier, status }
        } else {
            ReplyBody::Denied(denial)
        };
        let head = ReplyHead { xid, body };
        let bytes = to_bytes(&head);
        prop_assert!(bytes.len() <= nasd_rpc::MAX_REPLY_HEAD_BYTES);
        let mut input = Decoder::new(&bytes);
        prop_assert_eq!(ReplyHead::decode(&mut input), Ok(head));
        prop_assert_eq!(input.remaining(), 0);
    }

    #[test]
    fn any_bytes_give_a_head_or_an_error(mut bytes in plausible_bytes(120)) {
        if let Some(version) = bytes.get_mut(11) {
            *version = 2;
        }
        let mut input = Decoder::new(&bytes);
        match CallHead::decode(&mut input) {
            Ok(head) => prop_assert_eq!(to_bytes(&head), &bytes[..input.position()]),
            Err(error) => prop_assert!(!error.is_truncated() || error.reply().is_none()),
        }
        let mut input = Decoder::new(&bytes);
        if let Ok(head) = ReplyHead::decode(&mut input) {
            prop_assert_eq!(to_bytes(&head), &bytes[..input.position()]);
        }
        if let Ok(credential) = AuthSys::from_body(&bytes) {
            prop_assert_eq!(credential.to_body(), bytes);
        }
    }

    #[test]
    fn records_survive_any_fragments_and_any_reads(
        records in vec(vec(vec(any::<u8>(), 1..40), 1..5), 1..5),
        empty_tail: bool,
        reads in vec(1..50_usize, 1..20),
    ) {
        let stream = stream_of(&records, empty_tail);
        let mut parser = RecordParser::new(4 * 40);
        let (mut record, mut received, mut at) = (Vec::new(), Vec::new(), 0);
        for size in reads.iter().cycle() {
            if at == stream.len() {
                break;
            }
            let end = (at + size).min(stream.len());
            at += parser.push(&stream[at..end], &mut record).unwrap();
            if parser.expect() == Expect::End {
                prop_assert_eq!(parser.announced(), record.len());
                received.push(std::mem::take(&mut record));
                parser.restart();
            }
        }
        let sent: Vec<Vec<u8>> = records.iter().map(|fragments| fragments.concat()).collect();
        prop_assert_eq!(received, sent);
        prop_assert!(parser.is_at_start());
    }

    #[test]
    fn any_stream_ends_or_fails_within_the_limit(
        bytes in vec(prop_oneof![4 => Just(0_u8), 2 => Just(0x80_u8), 2 => 0..30_u8, 1 => any::<u8>()], 0..300),
        limit in 0..64_usize,
    ) {
        let mut parser = RecordParser::new(limit);
        let (mut record, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            match parser.push(&bytes[at..], &mut record) {
                Err(_) => break,
                Ok(taken) => at += taken,
            }
            prop_assert!(record.len() <= limit);
            if parser.expect() == Expect::End {
                parser.restart();
                record.clear();
            } else {
                prop_assert_eq!(at, bytes.len());
            }
        }
    }

    #[test]
    fn pending_calls_agree_with_a_model(
        first in prop_oneof![Just(u32::MAX - 3), any::<u32>()],
        steps in vec(prop_oneof![2 => Just(None), 1 => (0..40_usize).prop_map(Some)], 0..80),
    ) {
        let mut calls = PendingCalls::new(first, 16);
        let mut model: Vec<(u32, usize)> = Vec::new();
        for (serial, step) in steps.into_iter().enumerate() {
            match step {
                None => match calls.insert(serial) {
                    Ok(xid) => {
                        prop_assert!(model.iter().all(|&(other, _)| other != xid));
                        model.push((xid, serial));
                    }
                    Err(back) => prop_assert_eq!((back, model.len()), (serial, 16)),
                },
                Some(index) if index < model.len() => {
                    let (xid, value) = model.swap_remove(index);
                    prop_assert_eq!(calls.remove(xid), Some(value));
                    prop_assert_eq!(calls.remove(xid), None);
                }
                Some(_) => {}
            }
            prop_assert_eq!(calls.len(), model.len());
        }
    }
}

/// The records as a byte stream; with `empty_tail` each ends in an empty last fragment.
fn stream_of(records: &[Vec<Vec<u8>>], empty_tail: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    for fragments in records {
        for (index, fragment) in fragments.iter().enumerate() {
            let last = !empty_tail && index + 1 == fragments.len();
            let length = u32::try_from(fragment.len()).expect("fragments are short");
            stream.extend_from_slice(&RecordMark { last, length }.to_bytes());
            stream.extend_from_slice(fragment);
        }
        if empty_tail {
            stream.extend_from_slice(&RecordMark { last: true, length: 0 }.to_bytes());
        }
    }
    stream
}
