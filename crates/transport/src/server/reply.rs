//! Sending replies: each by one vectored write, and several small ones together.

use std::io::{self, IoSlice};
use std::time::Instant;

use nasd_rpc::{CallHead, OpaqueAuth, ReplyHead, seal_record};
use nasd_xdr::{XdrEncode, xdr_pad};

use super::service::Answer;
use crate::AcceptStatus;
use crate::record::append_record_to;
use crate::wire::Wire;

/// Replies are held back for company only up to so many bytes.
const HELD_BYTES: usize = 256 << 10;

/// A reply that is ready to be sent.
#[derive(Debug)]
pub(super) struct ReadyReply<S> {
    /// Record mark, head, and results without bulk data.
    record: Vec<u8>,
    data: Vec<S>,
    /// Bytes of `data`, without the padding.
    data_length: usize,
}

impl<S: AsRef<[u8]>> ReadyReply<S> {
    /// Encodes an answer.
    pub(super) fn new(call: &CallHead<'_>, answer: Answer<S>) -> ReadyReply<S> {
        match answer {
            Answer::Results { verifier, results, data } => {
                let verifier = OpaqueAuth { flavor: verifier.flavor, body: &verifier.body };
                let head = call.accepted(verifier, AcceptStatus::Success);
                ReadyReply::with_results(&head, &results, data)
            }
            Answer::Rejected(status) => {
                debug_assert_ne!(status, AcceptStatus::Success, "it has results");
                ReadyReply::head_only(&call.accepted(OpaqueAuth::NONE, status))
            }
            Answer::Denied(status) => {
                ReadyReply::head_only(&call.denied(nasd_rpc::Denial::Auth(status)))
            }
        }
    }

    /// A reply without results.
    pub(super) fn head_only(head: &ReplyHead<'_>) -> ReadyReply<S> {
        ReadyReply::with_results(head, &[], Vec::new())
    }

    fn with_results(head: &ReplyHead<'_>, results: &[u8], data: Vec<S>) -> ReadyReply<S> {
        let data_length = data.iter().map(|segment| segment.as_ref().len()).sum();
        let mut record = append_record_to(Vec::with_capacity(128 + results.len()));
        head.encode(&mut record);
        let mut record = record.into_bytes();
        record.extend_from_slice(results);
        if seal_record(&mut record, data_length + xdr_pad(data_length)).is_err() {
            // A service that answers with 2 GiB is broken; its client learns that much.
            tracing::error!(data_length, "a reply is longer than a record can be");
            let verifier = OpaqueAuth::NONE;
            let status = AcceptStatus::SystemError;
            let body = nasd_rpc::ReplyBody::Accepted { verifier, status };
            return ReadyReply::head_only(&ReplyHead { xid: head.xid, body });
        }
        ReadyReply { record, data, data_length }
    }

    fn bytes(&self) -> usize {
        self.record.len() + self.data_length
    }

    fn push_slices<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        slices.push(IoSlice::new(&self.record));
        slices.extend(self.data.iter().map(|segment| IoSlice::new(segment.as_ref())));
        slices.push(IoSlice::new(&[0; 3][..xdr_pad(self.data_length)]));
    }
}

/// Replies that wait to be sent together.
#[derive(Debug)]
pub(super) struct Outbox<S> {
    replies: Vec<ReadyReply<S>>,
    bytes: usize,
}

impl<S: AsRef<[u8]>> Outbox<S> {
    pub(super) fn new() -> Self {
        Outbox { replies: Vec::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, reply: ReadyReply<S>) {
        self.bytes += reply.bytes();
        self.replies.push(reply);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Whether it holds so much that nothing should wait any longer.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= HELD_BYTES
    }

    /// Sends everything. Who calls must hold the connection's lock for sending.
    pub(super) fn send(&mut self, wire: &Wire, deadline: Instant) -> io::Result<()> {
        let count = self.replies.iter().map(|reply| reply.data.len() + 2).sum();
        let mut slices = Vec::with_capacity(count);
        for reply in &self.replies {
            reply.push_slices(&mut slices);
        }
        let result = wire.send_all(&mut slices, deadline);
        drop(slices);
        self.replies.clear();
        self.bytes = 0;
        result
    }
}
