//! Making changes durable: one flush at a time, shared by everybody who waits for one.
//!
//! Whoever wants something flushed adds it to the request that is being collected. When no flush
//! runs, the first of them becomes the leader: it takes the request, flushes it, and tells the
//! others; those who came meanwhile are the next request. So any number of concurrent flushes costs
//! one data write, one commit and two syncs for all of them together (group commit).
//!
//! A flush (see `batch`) takes the objects as they are, writes their dirty blocks to free places,
//! syncs, and commits the tree, which syncs again. Only then does anybody get an answer.

mod batch;
mod place;

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nasd_types::ObjectName;
use nasd_types::limits::BLOCK_BYTES;

use crate::store::WriteBack;
use crate::{Store, StoreError};

/// Failed flushes that are remembered until those who waited for them have looked.
const FAILURES_KEPT: usize = 64;

/// What is to be flushed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// Everything.
    pub(crate) all: bool,
    /// These objects.
    pub(crate) objects: BTreeSet<ObjectName>,
    /// The longest dirty objects, until about so many bytes are written.
    pub(crate) bytes: u64,
    /// A commit that moves the limit of identifiers, whatever else there is.
    pub(crate) identifiers: bool,
}

impl Request {
    fn merge(&mut self, other: Request) {
        self.all |= other.all;
        self.objects.extend(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.identifiers |= other.identifiers;
    }
}

#[derive(Debug, Default)]
struct Queue {
    collecting: Request,
    /// Number of the request that is being collected.
    number: u64,
    /// Requests with lower numbers are finished.
    finished: u64,
    running: bool,
    /// Which of the finished ones failed.
    failed: BTreeSet<u64>,
    /// Blocks written by all of them.
    written_blocks: u64,
}

/// Where flushes meet.
#[derive(Debug, Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
    ended: Condvar,
}

impl FlushQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a flush is under way.
    pub(crate) fn is_running(&self) -> bool {
        self.lock().running
    }
}

/// The leader's duty to tell the others, kept even if it panics.
struct Leading<'a> {
    store: &'a Store,
    number: u64,
    written_blocks: Option<u64>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the batch had taken is not durable and not dirty either, so the next flush would
            // find nothing to do and call it done. There must be no next one.
            self.store.latch(&"a flush failed unexpectedly");
        }
        let mut queue = self.store.queue.lock();
        queue.running = false;
        queue.finished = self.number + 1;
        match self.written_blocks {
            Some(blocks) => queue.written_blocks += blocks,
            None => {
                queue.failed.insert(self.number);
                if queue.failed.len() > FAILURES_KEPT {
                    queue.failed.pop_first();
                }
            }
        }
        self.store.queue.ended.notify_all();
    }
}

impl Store {
    /// Makes these objects, as they are at the call, durable: data, attributes, creation, removal.
    /// Objects that do not exist (any more) are durably absent afterwards.
    pub fn flush(&self, objects: &[ObjectName]) -> Result<(), StoreError> {
        for name in objects {
            self.partition(name.partition)?;
        }
        let objects = objects.iter().copied().collect();
        self.run_flush(Request { objects, ..Request::default() })
    }

    /// Makes everything durable.
    pub fn flush_all(&self) -> Result<(), StoreError> {
        self.run_flush(Request { all: true, ..Request::default() })
    }

    /// Makes the longest dirty objects durable, until about `max_bytes` are written: a step for a
    /// background thread. Does nothing when nothing is dirty.
    pub fn write_back(&self, max_bytes: u64) -> Result<WriteBack, StoreError> {
        let before = self.queue.lock().written_blocks;
        self.run_flush(Request { bytes: max_bytes.max(1), ..Request::default() })?;
        let blocks = self.queue.lock().written_blocks - before;
        Ok(WriteBack {
            written_bytes: blocks * BLOCK_BYTES as u64,
            dirty_bytes: self.cache.dirty_bytes(),
        })
    }

    /// Adds to the request that is being collected, and returns when that is done. The body of no
    /// object may be locked.
    pub(crate) fn run_flush(&self, request: Request) -> Result<(), StoreError> {
        loop {
            self.writable()?;
            match self.join(&request) {
                Joined::Done => return Ok(()),
                // The leader has the reason. If it is met again by trying again, this thread
                // learns it as a leader.
                Joined::Failed => {}
                Joined::Lead(number, collected) => return self.lead(number, &collected),
            }
        }
    }

    /// Adds to the request that is being collected, and waits until it is done or a leader is wanted.
    fn join(&self, request: &Request) -> Joined {
        let mut queue = self.queue.lock();
        let number = queue.number;
        queue.collecting.merge(request.clone());
        while queue.finished <= number {
            if !queue.running {
                // Requests finish in order, so the one being collected is this one.
                queue.running = true;
                queue.number += 1;
                return Joined::Lead(number, std::mem::take(&mut queue.collecting));
            }
            queue = self.queue.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.failed.contains(&number) { Joined::Failed } else { Joined::Done }
    }

    fn lead(&self, number: u64, request: &Request) -> Result<(), StoreError> {
        let mut leading = Leading { store: self, number, written_blocks: None };
        let written = self.run_batch(request)?;
        leading.written_blocks = Some(written);
        Ok(())
    }
}

/// What became of joining a request.
enum Joined {
    Done,
    Failed,
    /// This thread has to do it.
    Lead(u64, Request),
}
