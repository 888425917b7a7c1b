//! Memory that an answer takes until it has been sent: whoever does not read it keeps it in use.

use std::fmt;
use std::sync::Arc;

use nasd_types::AuditId;

use super::reach::give_room;
use super::workers::Shared;

/// What is granted for an answer, and the answer; given back when this is dropped.
pub struct Granted {
    shared: Arc<Shared>,
    caller: AuditId,
    bytes: usize,
    data: Vec<u8>,
}

impl Granted {
    /// Of bytes that the queue has counted as those of an answer.
    pub(super) fn new(shared: Arc<Shared>, caller: AuditId, bytes: usize) -> Granted {
        Granted { shared, caller, bytes, data: Vec::new() }
    }

    /// With what it is granted for.
    #[must_use]
    pub fn holding(mut self, data: Vec<u8>) -> Granted {
        self.data = data;
        self
    }

    /// As much, where what it was granted for lies somewhere else now.
    #[must_use]
    pub fn emptied(mut self) -> Granted {
        give_room(&self.shared.spare, std::mem::take(&mut self.data));
        self
    }
}

impl AsRef<[u8]> for Granted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        give_room(&self.shared.spare, std::mem::take(&mut self.data));
        if self.bytes > 0 {
            self.shared.sent(self.caller, self.bytes);
        }
    }
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Granted({} bytes)", self.bytes)
    }
}
