//! ONC RPC version 2 (RFC 5531): messages, record marking and call matching without sockets.
//!
//! A message travels as one *record*: fragments, each behind a four-byte mark ([`record`]). A call
//! has a [`CallHead`] and then the arguments of its procedure; a reply has a [`ReplyHead`] and then
//! the results. [`PendingCalls`] gives out transaction identifiers and finds the caller whose reply
//! has come.
//!
//! Heads borrow their credential and verifier from the record, so that taking a message apart
//! allocates nothing, and digests can be computed over the very bytes that came.
//!
//! Not here: sockets, time, and what any program's arguments mean.

mod auth;
mod call;
mod pending;
pub mod record;
mod reply;

pub use auth::{AUTH_NONE, AUTH_SYS, AuthSys, MAX_AUTH_BYTES, MAX_GROUPS, OpaqueAuth};
pub use call::{CallError, CallHead, MAX_CALL_HEAD_BYTES, RPC_VERSION};
pub use pending::PendingCalls;
pub use record::{
    Expect, RECORD_MARK_BYTES, RecordError, RecordMark, RecordParser, begin_record, seal_record,
};
pub use reply::{
    AcceptStatus, AuthStatus, Denial, MAX_REPLY_HEAD_BYTES, ReplyBody, ReplyError, ReplyHead,
};
