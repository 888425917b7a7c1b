//! A call that was begun and is not waited for yet.

use std::fmt;
use std::time::Duration;

use super::connection::{Connection, PendingOf};
use super::pending::Ticket;
use crate::{ChannelError, Reply};

/// A call under way, and the buffer for its bulk data. Dropping it gives the reply up, but not the
/// call: the server executes it all the same.
pub struct InFlight {
    // In this order: the ticket's drop waits for whoever is receiving into the buffer.
    state: State,
    into: Vec<u8>,
}

/// What a call of another kind of channel is waited for by: how it ended, with its data in the buffer.
pub type Awaited = Box<dyn FnOnce(&mut Vec<u8>) -> Result<Reply, ChannelError> + Send>;

enum State {
    Awaited(Awaited),
    Sent { ticket: Ticket<PendingOf>, timeout: Duration },
    Ended(Result<Reply, ChannelError>),
}

impl InFlight {
    /// `ticket` is that of a call whose buffer is the memory of `into`.
    pub(super) fn sent(ticket: Ticket<PendingOf>, timeout: Duration, into: Vec<u8>) -> InFlight {
        InFlight { state: State::Sent { ticket, timeout }, into }
    }

    /// A call that has been answered.
    pub fn ended(reply: Reply, into: Vec<u8>) -> InFlight {
        InFlight { state: State::Ended(Ok(reply)), into }
    }

    /// A call of another kind of channel, which knows how to wait for it.
    pub fn awaited(wait: Awaited, into: Vec<u8>) -> InFlight {
        InFlight { state: State::Awaited(wait), into }
    }

    /// Whether [`wait`](Self::wait) will not wait. Nothing is received by asking.
    pub fn is_done(&mut self) -> bool {
        if let State::Sent { ticket, timeout } = &mut self.state
            && let Some(result) = Connection::poll(ticket, *timeout)
        {
            self.state = State::Ended(result);
        }
        matches!(self.state, State::Ended(_))
    }

    /// Waits until the reply has come, or that of some other call on the same connection: who keeps
    /// many under way need not know which ends first. Calls that are done already do not count, and
    /// have to be taken first ([`is_done`](Self::is_done) tells them), or a further reply is waited
    /// for. While another thread receives for this connection, the reply itself is waited for. Each
    /// wait may last as long as the call's whole time-out.
    pub fn wait_for_some(&mut self) {
        if let State::Sent { ticket, timeout } = &mut self.state
            && let Some(result) = Connection::advance(ticket, *timeout)
        {
            self.state = State::Ended(result);
        }
    }

    /// Waits for the reply, and gives the buffer back. Its contents are unspecified after an
    /// error.
    pub fn wait(self) -> (Result<Reply, ChannelError>, Vec<u8>) {
        let InFlight { state, mut into } = self;
        let result = match state {
            State::Awaited(wait) => wait(&mut into),
            State::Sent { mut ticket, timeout } => Connection::finish(&mut ticket, timeout),
            State::Ended(result) => result,
        };
        (result, into)
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("room", &self.into.len()).finish_non_exhaustive()
    }
}
