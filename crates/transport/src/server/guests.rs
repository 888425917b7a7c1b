//! Who is at the other ends of a server's connections, so that some can be shown the door.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::Identity;
use crate::wire::Wire;

/// Who is there, and the connection while it lives.
type Guest = (Identity, Weak<Wire>);

/// The connections with whom they are of. Cheap to clone: clones share them.
#[derive(Clone, Debug, Default)]
pub struct Guests {
    present: Arc<Mutex<Vec<Guest>>>,
}

impl Guests {
    /// A connection was made.
    pub(super) fn add(&self, identity: &Identity, wire: &Arc<Wire>) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are forgotten when the list would have to grow.
        if present.len() == present.capacity() {
            present.retain(|(_, wire)| wire.strong_count() > 0);
        }
        present.push((identity.clone(), Arc::downgrade(wire)));
    }

    /// Closes the connections of peers that may not stay; tells how many they were. What they have
    /// sent may still be executed.
    pub fn close_unless(&self, may_stay: impl Fn(&Identity) -> bool) -> usize {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let mut closed = 0;
        present.retain(|(identity, wire)| {
            let Some(wire) = wire.upgrade() else { return false };
            if may_stay(identity) {
                return true;
            }
            wire.close();
            closed += 1;
            false
        });
        closed
    }
}
