//! Making changes durable: one flush at a time, shared by everybody who waits for one.
//!
//! Whoever wants something flushed adds it to the request that is being collected. When no flush
//! runs, the first of them becomes the leader: it takes the request, flushes it, and tells the
//! others; those who came meanwhile are the next request. So any number of concurrent flushes costs
//! one data write, one commit and two syncs for all of them together (group commit).
//!
//! A flush (see `batch`) takes the objects as they are, writes their dirty blocks to free places, or
//! few of them to the log, and appends an entry to the log. Then everybody gets an answer. That the
//! entry is applied to the tree comes after: by the leader if he has time, else by the next
//! leader or by the background thread, whoever comes first (see `settle`).

mod batch;
mod checkpoint;
mod cluster;
mod place;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, Timestamp};

use crate::log::Change;
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
    /// An entry that moves the limit of identifiers, whatever else there is.
    pub(crate) identifiers: bool,
    /// An entry that has the clock, whatever else there is.
    pub(crate) clock: bool,
    /// An entry that gives back identifiers that were not given out.
    pub(crate) give_back: bool,
    /// Copies to make of objects as the tree has them.
    pub(crate) copies: Vec<Copy>,
    /// Changes of partitions and of the drive.
    pub(crate) changes: Vec<Change>,
    /// The tree has everything when the request is done.
    pub(crate) settle: bool,
    /// And is durable by itself.
    pub(crate) checkpoint: bool,
}

/// A copy that shares its blocks with its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) source: ObjectName,
    pub(crate) target: ObjectId,
    pub(crate) now: Timestamp,
}

impl Request {
    fn merge(&mut self, other: Request) {
        self.all |= other.all;
        self.objects.extend(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.identifiers |= other.identifiers;
        self.clock |= other.clock;
        self.give_back |= other.give_back;
        self.copies.extend(other.copies);
        self.changes.extend(other.changes);
        self.settle |= other.settle;
        self.checkpoint |= other.checkpoint;
    }
}

#[derive(Debug, Default)]
struct Queue {
    collecting: Request,
    /// Number of the request that is being collected.
    number: u64,
    /// Requests with lower numbers are finished: what they ask for is durable, or failed.
    finished: u64,
    /// Of requests with lower numbers the tree has everything, too.
    settled: u64,
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
    /// What is durable in the log and not applied to the tree. Only the leader looks at it.
    unsettled: Mutex<Option<batch::Durable>>,
}

impl FlushQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unsettled(&self) -> MutexGuard<'_, Option<batch::Durable>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a flush is under way, or one is not applied to the tree.
    pub(crate) fn is_running(&self) -> bool {
        self.lock().running || self.has_unsettled()
    }

    /// Whether the tree lacks something that is durable.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.unsettled().is_some()
    }
}

/// The leader's duty to tell the others, kept even if it panics.
struct Leading<'a> {
    store: &'a Store,
    /// The number of the request, if there is one.
    number: Option<u64>,
    /// Whether all that was asked for was done.
    succeeded: bool,
}

impl<'a> Leading<'a> {
    /// What the request asks for is durable; the leader goes on leading. Those who asked for more
    /// wait for that.
    fn done(&mut self, written_blocks: u64) {
        if let Some(number) = self.number {
            let mut queue = self.store.queue.lock();
            queue.finished = number + 1;
            queue.written_blocks += written_blocks;
            self.store.queue.ended.notify_all();
        }
    }

    /// Leads without a request, when nobody else does any more.
    fn wait(store: &'a Store) -> Leading<'a> {
        let mut queue = store.queue.lock();
        while queue.running {
            queue = store.queue.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.running = true;
        Leading { store, number: None, succeeded: true }
    }
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
        if let Some(number) = self.number {
            queue.finished = number + 1;
            queue.settled = number + 1;
            if !self.succeeded {
                queue.failed.insert(number);
            }
            if queue.failed.len() > FAILURES_KEPT {
                queue.failed.pop_first();
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
            self.partitions.get(name.partition)?;
        }
        self.tally.flushes.fetch_add(1, Ordering::Relaxed);
        let objects = objects.iter().copied().collect();
        self.run_flush(Request { objects, ..Request::default() })
    }

    /// Makes everything durable.
    pub fn flush_all(&self) -> Result<(), StoreError> {
        self.tally.flushes.fetch_add(1, Ordering::Relaxed);
        self.run_flush(Request { all: true, settle: true, ..Request::default() })
    }

    /// Makes the longest dirty objects durable, until about `max_bytes` are written: a step for a
    /// background thread. Does nothing when nothing is dirty.
    pub fn write_back(&self, max_bytes: u64) -> Result<WriteBack, StoreError> {
        let before = self.queue.lock().written_blocks;
        self.run_flush(Request { bytes: max_bytes.max(1), settle: true, ..Request::default() })?;
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
        let wants_all = request.settle || request.checkpoint;
        while if wants_all { queue.settled } else { queue.finished } <= number {
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
        let mut leading = Leading { store: self, number: Some(number), succeeded: false };
        self.settle_last()?;
        let blocks = self.run_batch(request)?;
        leading.done(blocks);
        if request.settle || request.checkpoint {
            self.settle_last()?;
        }
        if request.checkpoint || self.log.is_half_full() {
            self.settle_last()?;
            self.checkpoint_now()?;
        }
        leading.succeeded = true;
        drop(leading);
        if self.queue.has_unsettled() {
            self.cache.wake_background();
        }
        Ok(())
    }

    /// Applies to the tree what is durable in the log alone; makes a checkpoint when it is time for
    /// one. For a background thread.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let leading = Leading::wait(self);
        self.settle_last()?;
        if self.log.is_half_full() {
            self.checkpoint_now()?;
        }
        drop(leading);
        Ok(())
    }

    /// Makes the tree durable, so that the next open has nothing to replay.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.run_flush(Request { checkpoint: true, ..Request::default() })
    }
}

/// What became of joining a request.
enum Joined {
    Done,
    Failed,
    /// This thread has to do it.
    Lead(u64, Request),
}
