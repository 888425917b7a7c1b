//! How a call fails, by what the caller can do about it.

use std::time::Duration;

use nasd_protocol::{ManagerStatus, Status};
use nasd_rpc::Denial;
use nasd_transport::{
    AcceptStatus, AuthStatus, BreakReason, ChannelError, Execution, FrameError, ReplyError,
    TlsError,
};
use nasd_types::DriveId;
use thiserror::Error;

/// Why a call failed.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// The drive did not accept the caller's authority. Nothing was done. Mostly a new capability
    /// helps: see [`Status::needs_new_capability`].
    #[error("the drive refused the request: {0}")]
    Refused(Status),

    /// The drive could not do what was asked; or the request is so wrong that it was not sent.
    #[error("the drive answered: {0}")]
    Drive(Status),

    /// The file manager did not do what was asked.
    #[error("the file manager answered: {0}")]
    Manager(ManagerStatus),

    /// An earlier try of this call got no reply and may have been executed; a later one was
    /// answered with this status, which may be its own doing: the token that `enroll` finds used may
    /// be used by itself.
    #[error("the connection was lost during the call, and then the file manager answered: {0}")]
    Uncertain(ManagerStatus),

    /// An earlier try of a change to a drive got no reply, or one that anybody may have sent, and may
    /// have been executed; the last one failed so, which tells nothing of the earlier one.
    #[error("an earlier try may have been executed, and the last failed: {0}")]
    Unsettled(Box<ClientError>),

    /// PRIVACY_CAPABILITY was asked for, but nobody sealed the capability, so that it was not sent.
    #[error(
        "the capability was not sealed by who minted it, so that it can't be kept from readers on \
         the way: ask for a sealed one, or do without PRIVACY_CAPABILITY"
    )]
    NotSealed,

    /// The server could not be reached, or did not answer, until the deadline.
    #[error("{server} is away: gave up after {} s and {tries} tries: {last}", taken.as_secs())]
    Unreachable {
        /// Its address.
        server: String,
        /// How long the call took.
        taken: Duration,
        /// How often it was tried.
        tries: u32,
        /// Whether one of the tries may have been executed.
        may_have_run: bool,
        /// How the last try failed.
        last: Box<TransportError>,
    },

    /// Whoever the call was made for does not want to wait any more. See [`crate::interrupt`].
    #[error("interrupted while {server} was away")]
    Interrupted {
        /// Its address.
        server: String,
        /// Whether one of the tries may have been executed.
        may_have_run: bool,
    },

    /// The two ends don't trust each other's certificates, or can't speak TLS with each other.
    #[error("no secure connection to {server}: {source}")]
    Untrusted {
        /// Its address.
        server: String,
        /// What is wrong, and with whose certificate.
        source: TlsError,
    },

    /// The file manager does not take calls by this certificate, or not on this user's behalf.
    #[error(
        "{server} does not let this member in: its certificate has ended, was removed from the \
         cell, or is another user's; the cell's owner can add it anew"
    )]
    NotAdmitted {
        /// Its address.
        server: String,
    },

    /// The server's answer makes no sense: another version, or another program. Whether the call
    /// was executed is unknown.
    #[error("{server} does not keep to the protocol: {why}")]
    Protocol {
        /// Its address.
        server: String,
        /// What is wrong.
        why: String,
    },

    /// The reply was not made with the key of the request: it was altered, or made up, on its way.
    /// Whether the request was executed is unknown.
    #[error("the reply of {server} is forged or damaged: its digest is wrong")]
    BadReplyDigest {
        /// The drive's address.
        server: String,
    },

    /// There is another drive at the address.
    #[error("{server} is drive {found}, not {expected}: correct the cell's list of drives")]
    WrongDrive {
        /// The address.
        server: String,
        /// Which drive was meant.
        expected: DriveId,
        /// Which drive is there.
        found: DriveId,
    },

    /// The drive offers no suite of algorithms that this host can run, or not the one demanded.
    #[error("{server} offers no suite of algorithms that can be used here")]
    NoCommonSuite {
        /// Its address.
        server: String,
    },

    /// More than one request may carry. Nothing was sent.
    #[error("{amount} in one request; the limit is {limit}: split it")]
    TooLarge {
        /// Bytes, or objects to flush.
        amount: usize,
        /// The most.
        limit: usize,
    },
}

impl ClientError {
    /// What the drive answered, if it did.
    pub fn status(&self) -> Option<Status> {
        match self {
            ClientError::Refused(status) | ClientError::Drive(status) => Some(*status),
            ClientError::Unsettled(last) => last.status(),
            _ => None,
        }
    }

    /// What the file manager answered, if it did.
    pub fn manager_status(&self) -> Option<ManagerStatus> {
        match self {
            ClientError::Manager(status) | ClientError::Uncertain(status) => Some(*status),
            _ => None,
        }
    }

    /// Whether a new capability from the file manager may help.
    pub fn needs_new_capability(&self) -> bool {
        self.status().is_some_and(Status::needs_new_capability)
    }

    /// Whether the call, or an earlier try of it, may have taken effect although it failed. A refusal
    /// is taken for the drive's own: see [`ClientError::has_not_run`].
    pub fn may_have_run(&self) -> bool {
        match self {
            ClientError::Unreachable { may_have_run, .. }
            | ClientError::Interrupted { may_have_run, .. } => *may_have_run,
            ClientError::Uncertain(_)
            | ClientError::Unsettled(_)
            | ClientError::Protocol { .. }
            | ClientError::BadReplyDigest { .. } => true,
            // Faults of the drive and its medium may come in the middle of a write.
            ClientError::Drive(status) => !status.is_callers_fault(),
            ClientError::Manager(status) => !status.is_callers_fault(),
            _ => false,
        }
    }

    /// Whether nobody listens at the server's address: its machine says so.
    pub fn is_nobody_there(&self) -> bool {
        let ClientError::Unreachable { last, may_have_run: false, .. } = self else { return false };
        match last.as_ref() {
            TransportError::Channel(ChannelError::Connect { source, .. }) => {
                source.kind() == std::io::ErrorKind::ConnectionRefused
            }
            _ => false,
        }
    }

    /// Whether the call was certainly not executed, and will not be, whoever may be on the way to the
    /// drive: nothing was sent, or the drive has proved that it answers so. What is told without a
    /// proof, as most refusals are, anybody may have said who has let the request pass.
    pub fn has_not_run(&self) -> bool {
        match self {
            ClientError::Drive(status) => status.is_callers_fault() && !is_told_to_anybody(*status),
            ClientError::Unreachable { may_have_run, last, .. } => {
                !may_have_run && !last.is_unproved_answer()
            }
            ClientError::Untrusted { .. }
            | ClientError::WrongDrive { .. }
            | ClientError::NoCommonSuite { .. }
            | ClientError::NotSealed
            | ClientError::TooLarge { .. } => true,
            _ => false,
        }
    }
}

/// Whether a drive answers so before it knows by whom it is asked.
pub(crate) fn is_told_to_anybody(status: Status) -> bool {
    let about_the_request = [Status::BadArgument, Status::TooLarge, Status::Busy];
    status.refusal().is_some() || about_the_request.contains(&status)
}

/// Why one try did not reach the server, or brought no answer.
#[derive(Clone, Debug, Error)]
pub enum TransportError {
    /// The server's name has no address.
    #[error("cannot find {address}: {why}")]
    Resolve {
        /// The name.
        address: String,
        /// What the system said.
        why: String,
    },
    /// Another caller was making a connection, and it took too long.
    #[error("no connection in time")]
    NoConnectionInTime,
    /// Whoever knows that the server is away has had it given up.
    #[error("it is not waited for any more")]
    GivenUp,
    /// The connection failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The server has too much to do.
    #[error("the server is busy")]
    Busy,
    /// The file manager waits for a drive that is away.
    #[error("the file manager waits for a drive that is away")]
    DriveAway,
}

impl TransportError {
    /// Whether the call may have been executed.
    pub fn may_have_run(&self) -> bool {
        match self {
            TransportError::Channel(error) => error.execution() == Execution::Possible,
            TransportError::DriveAway => true,
            _ => false,
        }
    }

    /// Whether this is what anybody may have answered to a request that has passed.
    pub(crate) fn is_unproved_answer(&self) -> bool {
        let is_rejected = matches!(self, TransportError::Channel(ChannelError::Rejected { .. }));
        is_rejected || matches!(self, TransportError::Busy)
    }

    /// The error to give up with at once, if trying again is no use.
    pub(crate) fn hopeless(&self, server: &str) -> Option<ClientError> {
        let TransportError::Channel(error) = self else {
            return None;
        };
        let protocol = |why: String| ClientError::Protocol { server: server.to_owned(), why };
        match error {
            ChannelError::Connect { .. } | ChannelError::TimedOut { .. } => None,
            ChannelError::Tls { source, .. } => untrusted(source, server),
            ChannelError::Broken { reason, .. } => match reason.as_ref() {
                BreakReason::Tls(source) => untrusted(source, server),
                // The server died in the middle of a reply.
                BreakReason::Protocol(FrameError::Truncated) => None,
                BreakReason::Protocol(error) => Some(protocol(error.to_string())),
                _ => None,
            },
            // A drive without room for a write answers so, as it can't prove anything without it.
            ChannelError::Rejected {
                reason: ReplyError::Rejected(AcceptStatus::SystemError),
                ..
            } => None,
            ChannelError::Rejected {
                reason: ReplyError::Denied(Denial::Auth(AuthStatus::TooWeak)),
                ..
            } => Some(ClientError::NotAdmitted { server: server.to_owned() }),
            ChannelError::Rejected { .. } => Some(protocol(error.to_string())),
            ChannelError::TooLong { bytes, limit } => {
                Some(ClientError::TooLarge { amount: *bytes, limit: *limit })
            }
        }
    }
}

fn untrusted(source: &TlsError, server: &str) -> Option<ClientError> {
    match source {
        TlsError::Interrupted { .. } => None,
        _ => Some(ClientError::Untrusted { server: server.to_owned(), source: source.clone() }),
    }
}
