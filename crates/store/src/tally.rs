//! Counts of what the store did, for whoever watches it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Statistics, Store};

/// The counts. Each moves on its own.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) read_bytes: AtomicU64,
    pub(crate) cache_miss_bytes: AtomicU64,
    pub(crate) data_written_bytes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_entries: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) corrupt_blocks: AtomicU64,
    pub(crate) scrubbed_blocks: AtomicU64,
}

impl Store {
    /// What the store did since it was opened.
    pub fn statistics(&self) -> Statistics {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let tally = &self.tally;
        let cache_miss_bytes = get(&tally.cache_miss_bytes);
        Statistics {
            cache_hit_bytes: get(&tally.read_bytes).saturating_sub(cache_miss_bytes),
            cache_miss_bytes,
            data_written_bytes: get(&tally.data_written_bytes),
            log_bytes: get(&tally.log_bytes),
            log_entries: get(&tally.log_entries),
            flushes: get(&tally.flushes),
            checkpoints: get(&tally.checkpoints),
            dirty_bytes: self.unwritten_bytes(),
            corrupt_blocks: get(&tally.corrupt_blocks),
            scrubbed_blocks: get(&tally.scrubbed_blocks),
        }
    }
}
