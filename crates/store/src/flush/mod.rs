//! Making changes durable: flushes one after the other, each shared by everybody who waits for one.
//!
//! Whoever wants something flushed adds it to the request that is being collected. When the flush before is
//! writing, and lets others begin, or has ended, the first of them becomes the leader: it takes the request, flushes it, and
//! tells the others; those who came meanwhile are the next request. So any number of concurrent flushes costs
//! one data write, one commit and two syncs for all of them together (group commit), and the device does not
//! rest: while a flush is being logged, those behind it write their data (see `turns`).
//!
//! A flush (see `batch`) takes the objects as they are, writes their dirty blocks to free places, or
//! few of them to the log, and appends an entry to the log. Then everybody gets an answer. That the
//! entry is applied to the tree comes later, together with others (see `settle`).

mod batch;
mod checkpoint;
mod cluster;
mod place;
mod settle;
mod share;
mod turns;

pub(crate) use settle::Backlog;
pub(crate) use share::{ShareRange, Shared};
pub(crate) use turns::FlushQueue;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use nasd_device::FRAME_BYTES;
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ObjectId, ObjectName, Timestamp};

use self::turns::{Joined, Leading};
use crate::log::Change;
use crate::store::WriteBack;
use crate::{Store, StoreError};

/// A flush settles before it goes on when one frame of the cache in this many waits for that.
const BACKLOG_SHARE: usize = 4;

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
    /// An entry that has the clock and the drive's minimum protection, whatever else there is.
    pub(crate) clock: bool,
    /// An entry that gives back identifiers that were not given out.
    pub(crate) give_back: bool,
    /// Copies to make of objects as the tree has them.
    pub(crate) copies: Vec<Copy>,
    /// Ranges of objects, as the tree has them, that other objects are to share.
    pub(crate) shares: Vec<ShareRange>,
    /// Changes of partitions and of the drive.
    pub(crate) changes: Vec<Change>,
    /// The tree has everything when the request is done.
    pub(crate) settle: bool,
    /// And is durable by itself.
    pub(crate) checkpoint: bool,
}

/// How a flush failed.
enum Failure {
    /// Nothing has changed, and another try may succeed.
    Passing(StoreError),
    /// What is durable is not known any more, or is more than the tree can be made to have. The store has
    /// taken its last change.
    Fatal(StoreError),
    /// Nothing has changed: one before it failed, or had to be alone, and this one is to be tried again.
    WithAnother,
}

/// A copy that shares its blocks with its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) source: ObjectName,
    pub(crate) target: ObjectId,
    pub(crate) now: Timestamp,
}

impl Request {
    /// Whether it asks for objects to be durable, and for nothing else, so that it does not matter
    /// whether the tree has what was asked for before.
    fn is_plain(&self) -> bool {
        let more = self.clock || self.give_back || self.settle || self.checkpoint;
        let plain = self.copies.is_empty() && self.shares.is_empty();
        !more && plain && self.changes.is_empty()
    }

    fn merge(&mut self, other: Request) {
        self.all |= other.all;
        self.objects.extend(other.objects);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.identifiers |= other.identifiers;
        self.clock |= other.clock;
        self.give_back |= other.give_back;
        self.copies.extend(other.copies);
        self.shares.extend(other.shares);
        self.changes.extend(other.changes);
        self.settle |= other.settle;
        self.checkpoint |= other.checkpoint;
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
        let before = self.queue.written_blocks();
        self.run_flush(Request { bytes: max_bytes.max(1), ..Request::default() })?;
        let blocks = self.queue.written_blocks() - before;
        let written_bytes = blocks * BLOCK_BYTES as u64;
        Ok(WriteBack { written_bytes, dirty_bytes: self.unwritten_bytes() })
    }

    /// The same, and gives the cache back what it kept until the tree had what was written.
    pub(crate) fn clean(&self, bytes: u64) -> Result<(), StoreError> {
        self.write_back(bytes)?;
        self.settle_all()
    }

    /// Bytes of the cache that are dirty, in whole frames, and that no flush has written.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        let kept = (self.backlog.frames() * FRAME_BYTES) as u64;
        self.cache.pinned_bytes().saturating_sub(kept)
    }

    /// Adds to the request that is being collected, and returns when that is done. The body of no
    /// object may be locked.
    pub(crate) fn run_flush(&self, request: Request) -> Result<(), StoreError> {
        loop {
            self.writable()?;
            match self.queue.join(&request) {
                Joined::Done => return Ok(()),
                // The leader has the reason. If it is met again by trying again, this thread
                // learns it as a leader.
                Joined::Failed => {}
                Joined::Lead(number, collected) => match self.lead(number, &collected) {
                    Ok(()) => return Ok(()),
                    Err(Failure::Passing(error) | Failure::Fatal(error)) => return Err(error),
                    Err(Failure::WithAnother) => {}
                },
            }
        }
    }

    fn lead(&self, number: u64, request: &Request) -> Result<(), Failure> {
        let mut leading = Leading::new(self, number);
        if !request.is_plain() {
            leading.turn_to_log()?;
        }
        leading.check_those_before()?;
        // What waits to be applied is kept in the cache.
        let takes_room = self.backlog.frames() > self.cache.frames_total() / BACKLOG_SHARE;
        if !request.is_plain() || self.backlog.is_full() || takes_room {
            self.settle_all().map_err(Failure::Fatal)?;
        }
        let blocks = self.run_batch(request, &mut leading)?;
        leading.done(blocks)?;
        if request.settle || request.checkpoint {
            self.settle_all().map_err(Failure::Fatal)?;
        }
        // When it is time for a checkpoint, the next flush lets nobody begin, and makes it.
        if (request.checkpoint || self.log.wants_checkpoint()) && leading.is_alone() {
            self.settle_and_checkpoint().map_err(Failure::Fatal)?;
        }
        leading.succeed();
        Ok(())
    }

    /// Empties the log. Whoever calls this leads, alone.
    fn settle_and_checkpoint(&self) -> Result<(), StoreError> {
        self.settle_all()?;
        self.checkpoint_now()
    }

    /// Makes the tree durable, so that the next open has nothing to replay.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.run_flush(Request { checkpoint: true, ..Request::default() })
    }
}
