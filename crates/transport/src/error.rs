//! Errors of a channel, by what the caller can do about them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nasd_rpc::{AcceptStatus, CallError, RecordError, ReplyError};
use nasd_xdr::XdrError;
use thiserror::Error;

use crate::tls::TlsError;

/// Whether a call that failed may have taken effect at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Certainly not: it may be sent again.
    Never,
    /// Perhaps: only an operation that may be done twice can be sent again blindly.
    Possible,
}

/// Why a call, or the making of a connection, failed.
#[derive(Clone, Debug, Error)]
pub enum ChannelError {
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Whom to.
        address: SocketAddr,
        /// What the system said.
        source: Arc<io::Error>,
    },

    /// The two ends don't trust each other, or one of them does not speak TLS.
    #[error("secure connection to {address}: {source}")]
    Tls {
        /// Whom to.
        address: SocketAddr,
        /// What was wrong, and with whose certificate.
        source: TlsError,
        /// Whether the call may have been executed.
        execution: Execution,
    },

    /// The connection broke, or had already been closed.
    #[error("connection to {address} lost: {reason}")]
    Broken {
        /// Whom to.
        address: SocketAddr,
        /// Why it broke.
        reason: Arc<BreakReason>,
        /// Whether the call may have been executed.
        execution: Execution,
    },

    /// No reply within the call's time-out.
    #[error("no reply from {address} within {} ms", after.as_millis())]
    TimedOut {
        /// Whom to.
        address: SocketAddr,
        /// The call's time-out.
        after: Duration,
        /// Whether the call may have been executed.
        execution: Execution,
    },

    /// The server answered without results (RFC 5531 section 9).
    #[error("{address} rejected the call: {reason}")]
    Rejected {
        /// Who answered.
        address: SocketAddr,
        /// With what.
        reason: ReplyError,
    },

    /// The call itself is longer than a record may be. Nothing was sent.
    #[error("a call of {bytes} bytes is above the limit of {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl ChannelError {
    /// Whether the call may have been executed.
    pub fn execution(&self) -> Execution {
        match self {
            ChannelError::Connect { .. } | ChannelError::TooLong { .. } => Execution::Never,
            ChannelError::Rejected {
                reason: ReplyError::Rejected(AcceptStatus::SystemError),
                ..
            } => Execution::Possible,
            ChannelError::Rejected { .. } => Execution::Never,
            ChannelError::Tls { execution, .. }
            | ChannelError::Broken { execution, .. }
            | ChannelError::TimedOut { execution, .. } => *execution,
        }
    }
}

/// Why a connection can't be used any more.
#[derive(Debug, Error)]
pub enum BreakReason {
    /// The server closed it, at the end of a record.
    #[error("closed by the server")]
    ClosedByPeer,
    /// This end closed it, because an earlier call had timed out.
    #[error("closed after a call timed out")]
    ClosedAfterTimeout,
    /// This end closed it, because the server is given up.
    #[error("closed, as the server is not waited for any longer")]
    GivenUp,
    /// This end closed it: the server stopped in the middle of a reply.
    #[error("the server stopped in the middle of a reply")]
    Stalled,
    /// The system failed it.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// TLS failed after the connection was made.
    #[error("{0}")]
    Tls(#[source] TlsError),
    /// The server's bytes are not replies.
    #[error("the server broke the protocol: {0}")]
    Protocol(#[source] FrameError),
}

/// Why a record was not understood. Both ends close the connection.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// A record mark is wrong, or announces more than the limit.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The connection ended inside a record.
    #[error("the connection ended inside a record")]
    Truncated,
    /// The call's header is none, and nothing can be answered.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The reply's header is none.
    #[error("not an RPC reply: {0}")]
    Reply(XdrError),
    /// A reply to a call that was not made.
    #[error("a reply to no call (xid {0:#010x})")]
    UnknownCall(u32),
    /// The bulk data's length word disagrees with the record's length.
    #[error("{announced} bytes of data were announced, {present} (padded) are in the record")]
    DataLength {
        /// By the length word.
        announced: usize,
        /// By the record mark.
        present: usize,
    },
    /// More bulk data than the caller's buffer holds.
    #[error("{announced} bytes of data for a buffer of {room}")]
    DataTooLong {
        /// By the length word.
        announced: usize,
        /// What the caller can take.
        room: usize,
    },
    /// Arguments or results longer than they may be without bulk data.
    #[error("a message of more than {limit} bytes without its bulk data")]
    HeadTooLong {
        /// The limit.
        limit: usize,
    },
}
