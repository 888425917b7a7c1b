//! Errors of a channel, by what the caller can do about them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

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

    /// The server answered that it did not execute the call (RFC 5531 section 9).
    #[error("{address} rejected the call: {reason}")]
    Rejected {
        /// Who answered.
        address: SocketAddr,
        /// With what.
        reason: Rejection,
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
            ChannelError::Connect { .. }
            | ChannelError::Rejected { .. }
            | ChannelError::TooLong { .. } => Execution::Never,
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
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The record mark announces, or the fragments add up to, more than the limit.
    #[error("a record of at least {bytes} bytes is above the limit of {limit}")]
    TooLong {
        /// What was announced.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The connection ended inside a record.
    #[error("the connection ended inside a record")]
    Truncated,
    /// Too many fragments without content.
    #[error("a record of too many fragments")]
    Fragments,
    /// The RPC header is not one.
    #[error("not an RPC message: {0}")]
    Message(String),
    /// The bulk data's length word disagrees with the record's length.
    #[error("{announced} bytes of data were announced, {present} are in the record")]
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
    /// Results longer than any reply's head may be.
    #[error("results of more than {limit} bytes without bulk data")]
    ResultsTooLong {
        /// The limit.
        limit: usize,
    },
}

/// A server's answer that a call was not executed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Rejection {
    /// The server has no such program.
    #[error("program unavailable")]
    ProgramUnavailable,
    /// The server has other versions of the program.
    #[error("program version unsupported; it has {low} to {high}")]
    ProgramMismatch {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// The program has no such procedure.
    #[error("procedure unavailable")]
    ProcedureUnavailable,
    /// The arguments can't be decoded.
    #[error("arguments not understood")]
    GarbageArguments,
    /// The server lacks a resource.
    #[error("the server failed")]
    SystemError,
    /// Another version of RPC itself.
    #[error("RPC version unsupported")]
    RpcMismatch,
    /// The credential or the verifier is refused (`auth_stat` of RFC 5531).
    #[error("authentication refused (auth_stat {0})")]
    Authentication(u32),
}
