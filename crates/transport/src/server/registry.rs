//! The connections that a server has, so that they can be counted, closed and waited for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::wire::Wire;

/// A connection must have been idle so long to be closed for a new one.
const EVICTABLE_IDLE_MS: u64 = 1000;

/// What the registry knows of a connection.
#[derive(Debug)]
struct Entry {
    /// `None` during a TLS handshake, which has a time-out of its own.
    wire: Option<Arc<Wire>>,
    idle_ms: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    /// No new connection is wanted.
    closed: bool,
    connections: HashMap<u64, Entry>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Mutex<Entries>,
    changed: Condvar,
}

/// A connection's place among `max_connections`; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    registry: Arc<Registry>,
    number: u64,
    pub(super) idle_ms: Arc<AtomicU64>,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new connection. When all are taken, the connection that has been idle longest
    /// is closed for it; `None` if there is none: the new one must go.
    pub(super) fn enter(self: &Arc<Self>, max_connections: usize) -> Option<Place> {
        let mut entries = self.lock();
        if entries.closed {
            return None;
        }
        if entries.connections.len() >= max_connections {
            let number = entries.longest_idle()?;
            // Its threads go on to their end; its place is free now.
            if let Some(wire) = entries.connections.remove(&number).and_then(|entry| entry.wire) {
                tracing::debug!("closed an idle connection: too many are open");
                wire.close();
            }
        }
        let number = entries.next;
        entries.next += 1;
        let idle_ms = Arc::new(AtomicU64::new(0));
        let entry = Entry { wire: None, idle_ms: Arc::clone(&idle_ms) };
        entries.connections.insert(number, entry);
        Some(Place { registry: Arc::clone(self), number, idle_ms })
    }

    pub(super) fn count(&self) -> usize {
        self.lock().connections.len()
    }

    /// Lets no connection in any more, and none receive more than it has.
    pub(super) fn drain(&self) {
        let mut entries = self.lock();
        entries.closed = true;
        for wire in entries.connections.values().filter_map(|entry| entry.wire.as_ref()) {
            wire.stop_receiving();
        }
    }

    /// Waits until every connection that calls could have come from has ended; `false` at the
    /// deadline.
    pub(super) fn wait_empty(&self, deadline: Instant) -> bool {
        let mut entries = self.lock();
        while entries.connections.values().any(|entry| entry.wire.is_some()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            entries =
                self.changed.wait_timeout(entries, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends every connection now.
    pub(super) fn close_all(&self) {
        for wire in self.lock().connections.values().filter_map(|entry| entry.wire.as_ref()) {
            wire.close();
        }
    }
}

impl Entries {
    fn longest_idle(&self) -> Option<u64> {
        let idle = |entry: &Entry| entry.idle_ms.load(Ordering::Relaxed);
        let (number, entry) = self.connections.iter().max_by_key(|(_, entry)| idle(entry))?;
        (idle(entry) >= EVICTABLE_IDLE_MS).then_some(*number)
    }
}

impl Place {
    /// Tells which socket it is. `false` if the server has stopped meanwhile.
    pub(super) fn occupy(&self, wire: &Arc<Wire>) -> bool {
        let mut entries = self.registry.lock();
        if entries.closed {
            return false;
        }
        if let Some(entry) = entries.connections.get_mut(&self.number) {
            entry.wire = Some(Arc::clone(wire));
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.lock().connections.remove(&self.number);
        self.registry.changed.notify_all();
    }
}
