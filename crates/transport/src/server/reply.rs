//! Sending replies: each by one vectored write, and several small ones together.

use std::io::{self, IoSlice};

use nasd_rpc::{Denial, OpaqueAuth, ReplyBody, ReplyHead, seal_record};
use nasd_xdr::{XdrEncode, xdr_pad};

use super::service::Answer;
use crate::AcceptStatus;
use crate::record::{FIRST_HEAD_BYTES, append_record_to};
use crate::wire::{Patience, Wire};

/// Replies are held back for company only up to so many bytes.
const HELD_BYTES: usize = 256 << 10;

/// Heads are kept in one vector that is used again, unless it has grown beyond this.
const KEPT_BYTES: usize = 64 << 10;

/// A reply that waits.
#[derive(Debug)]
struct Waiting<S> {
    /// Where its record mark, head, and results without bulk data end in `Outbox::heads`; they
    /// begin where those of the reply before it end.
    head_end: usize,
    data: Vec<S>,
    /// Bytes of `data`, without the padding.
    data_length: usize,
}

/// Replies that wait to be sent together.
#[derive(Debug)]
pub(super) struct Outbox<S> {
    heads: Vec<u8>,
    replies: Vec<Waiting<S>>,
    bytes: usize,
}

impl<S: AsRef<[u8]>> Outbox<S> {
    pub(super) fn new() -> Self {
        Outbox { heads: Vec::new(), replies: Vec::new(), bytes: 0 }
    }

    /// Adds the answer to a call.
    pub(super) fn push(&mut self, xid: u32, answer: Answer<S>) {
        match answer {
            Answer::Results { verifier, results, data } => {
                let (verifier, status) = (verifier.as_opaque(), AcceptStatus::Success);
                let body = ReplyBody::Accepted { verifier, status };
                self.push_results(&ReplyHead { xid, body }, &results, data);
            }
            Answer::Rejected(status) => {
                debug_assert_ne!(status, AcceptStatus::Success, "it has results");
                let body = ReplyBody::Accepted { verifier: OpaqueAuth::NONE, status };
                self.push_head(&ReplyHead { xid, body });
            }
            Answer::Denied(status) => {
                let body = ReplyBody::Denied(Denial::Auth(status));
                self.push_head(&ReplyHead { xid, body });
            }
        }
    }

    /// Adds a reply without results.
    pub(super) fn push_head(&mut self, head: &ReplyHead<'_>) {
        self.push_results(head, &[], Vec::new());
    }

    fn push_results(&mut self, head: &ReplyHead<'_>, results: &[u8], data: Vec<S>) {
        let data_length: usize = data.iter().map(|segment| segment.as_ref().len()).sum();
        let start = self.heads.len();
        if self.heads.capacity() == 0 {
            // Whatever a head needs, at once.
            self.heads.reserve(FIRST_HEAD_BYTES);
        }
        let mut record = append_record_to(std::mem::take(&mut self.heads));
        head.encode(&mut record);
        self.heads = record.into_bytes();
        self.heads.extend_from_slice(results);
        let following = data_length + xdr_pad(data_length);
        if seal_record(&mut self.heads[start..], following).is_err() {
            // A service that answers with 2 GiB is broken; its client learns that much.
            tracing::error!(data_length, "a reply is longer than a record can be");
            self.heads.truncate(start);
            let verifier = OpaqueAuth::NONE;
            let status = AcceptStatus::SystemError;
            let body = ReplyBody::Accepted { verifier, status };
            return self.push_head(&ReplyHead { xid: head.xid, body });
        }
        let head_end = self.heads.len();
        self.bytes += head_end - start + data_length;
        self.replies.push(Waiting { head_end, data, data_length });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Whether it holds so much that nothing should wait any longer.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= HELD_BYTES
    }

    /// Sends everything. Who calls must hold the connection's lock for sending.
    pub(super) fn send(&mut self, wire: &Wire, patience: &Patience) -> io::Result<()> {
        let result = self.send_slices(wire, patience);
        self.replies.clear();
        self.heads.clear();
        self.heads.shrink_to(KEPT_BYTES);
        self.bytes = 0;
        result
    }

    fn send_slices(&self, wire: &Wire, patience: &Patience) -> io::Result<()> {
        if let [reply] = &self.replies[..]
            && let [data] = &reply.data[..]
        {
            // As most replies to a read alone: it needs no memory for the list.
            let pad = IoSlice::new(&[0; 3][..xdr_pad(reply.data_length)]);
            let mut slices = [IoSlice::new(&self.heads), IoSlice::new(data.as_ref()), pad];
            return wire.send_all(&mut slices, patience);
        }
        let count = self.replies.iter().map(|reply| reply.data.len() + 2).sum();
        let mut slices = Vec::with_capacity(count);
        let mut start = 0;
        for reply in &self.replies {
            slices.push(IoSlice::new(&self.heads[start..reply.head_end]));
            slices.extend(reply.data.iter().map(|segment| IoSlice::new(segment.as_ref())));
            let pad = xdr_pad(reply.data_length);
            if pad > 0 {
                slices.push(IoSlice::new(&[0; 3][..pad]));
            }
            start = reply.head_end;
        }
        wire.send_all(&mut slices, patience)
    }
}
