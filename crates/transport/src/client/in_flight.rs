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

enum State {
    Sent { ticket: Ticket<PendingOf>, timeout: Duration },
    Ended(Reply),
}

impl InFlight {
    /// `ticket` is that of a call whose buffer is the memory of `into`.
    pub(super) fn sent(ticket: Ticket<PendingOf>, timeout: Duration, into: Vec<u8>) -> InFlight {
        InFlight { state: State::Sent { ticket, timeout }, into }
    }

    /// A call that has been answered.
    pub fn ended(reply: Reply, into: Vec<u8>) -> InFlight {
        InFlight { state: State::Ended(reply), into }
    }

    /// Waits for the reply, and gives the buffer back. Its contents are unspecified after an
    /// error.
    pub fn wait(self) -> (Result<Reply, ChannelError>, Vec<u8>) {
        let InFlight { state, into } = self;
        let result = match state {
            State::Sent { mut ticket, timeout } => Connection::finish(&mut ticket, timeout),
            State::Ended(reply) => Ok(reply),
        };
        (result, into)
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("room", &self.into.len()).finish_non_exhaustive()
    }
}
