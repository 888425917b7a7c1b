//! How a transfer fails, by what the caller can do about it.

use std::io;
use std::time::Duration;

use nasd_protocol::Status;
use nasd_protocol::bulk::{PacketError, SealError};
use thiserror::Error;

/// Why a transfer, or an open, failed.
#[derive(Debug, Error)]
pub enum BulkError {
    /// The server did not accept the authority. Nothing was done. Mostly a new capability helps.
    #[error("{server} refused the request: {status}")]
    Refused {
        /// Its address.
        server: String,
        /// Why.
        status: Status,
    },

    /// The server could not do what was asked.
    #[error("{server} answered: {status}")]
    Failed {
        /// Its address.
        server: String,
        /// Why.
        status: Status,
    },

    /// The server could not be reached, or was lost again and again, until patience was over.
    #[error("{server} is away: gave up after {} s: {last}", taken.as_secs())]
    Unreachable {
        /// Its address.
        server: String,
        /// How long it was tried.
        taken: Duration,
        /// What went wrong at last.
        last: io::Error,
    },

    /// Whoever answers does not speak this protocol.
    #[error("{server} does not keep to the protocol: {why}")]
    Protocol {
        /// Its address.
        server: String,
        /// What is wrong.
        why: String,
    },

    /// An answer was not made by whoever has the key.
    #[error("an answer of {server} is forged or damaged: its digest is wrong")]
    Forged {
        /// Its address.
        server: String,
    },

    /// A transfer is not as the server's device wants it.
    #[error(
        "offset {offset} and length {length} must be multiples of {alignment} bytes: the server passes its cache by"
    )]
    Unaligned {
        /// In the file.
        offset: u64,
        /// In bytes.
        length: u64,
        /// What both must be multiples of.
        alignment: u64,
    },

    /// The server has started anew since something was written that was not made durable.
    #[error(
        "{server} has started anew since the last sync: what was written meanwhile may be lost, and has to be written again"
    )]
    MayBeLost {
        /// Its address.
        server: String,
    },

    /// There is another file in the place of the one that was open.
    #[error("the file at {server} was replaced by another one since it was opened: open it again")]
    Replaced {
        /// Its address.
        server: String,
    },

    /// Several servers have bytes of the file, and its length is not theirs to set.
    #[error("the file lies on several drives: its length is set by the file manager")]
    Spread,

    /// No suite of algorithms is common.
    #[error("this host can't run the algorithms that are demanded for {server}")]
    NoSuite {
        /// Its address.
        server: String,
    },
}

impl BulkError {
    /// Whether another capability may be accepted where this one was not.
    pub fn needs_new_capability(&self) -> bool {
        match self {
            BulkError::Refused { status, .. } => status.needs_new_capability(),
            // It was moved to another drive.
            BulkError::Failed { status, .. } => *status == Status::NoSuchObject,
            _ => false,
        }
    }
}

/// Why one try came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another connection may do better.
    Lost(io::Error),
    /// The same, as the server says.
    Later(BulkError),
    /// It will not.
    Final(BulkError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Lost(error)
    }
}

impl From<BulkError> for Failure {
    fn from(error: BulkError) -> Self {
        Failure::Final(error)
    }
}

impl Failure {
    pub(super) fn protocol(server: &str, why: impl Into<String>) -> Failure {
        BulkError::Protocol { server: server.to_owned(), why: why.into() }.into()
    }

    pub(super) fn packet(server: &str, error: PacketError) -> Failure {
        Failure::protocol(server, error.to_string())
    }

    pub(super) fn seal(server: &str, _error: SealError) -> Failure {
        BulkError::Forged { server: server.to_owned() }.into()
    }
}
