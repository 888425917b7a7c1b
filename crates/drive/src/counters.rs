//! What the drive counts since its start; told by its control object.

use std::sync::atomic::{AtomicU64, Ordering};

/// By what authority data was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A capability: a client.
    Capability,
    /// A key of the hierarchy: a file manager or an administrator.
    Key,
}

/// Bytes of data by authority.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    by_capability: AtomicU64,
    by_key: AtomicU64,
}

/// All counters. Each is right by itself; together they are not a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) read: Moved,
    pub(crate) written: Moved,
    requests: AtomicU64,
    refusals: AtomicU64,
}

impl Moved {
    pub(crate) fn add(&self, holder: Holder, bytes: usize) {
        let counter = match holder {
            Holder::Capability => &self.by_capability,
            Holder::Key => &self.by_key,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn by_capability(&self) -> u64 {
        self.by_capability.load(Ordering::Relaxed)
    }

    pub(crate) fn by_key(&self) -> u64 {
        self.by_key.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refusal(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }
}
