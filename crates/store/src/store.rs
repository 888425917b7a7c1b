//! The open store: what its parts share, and what does not concern a single object.
//!
//! # Locks
//!
//! In this order; whoever holds one takes only later ones:
//!
//! 1. The body of one object (`Object::read`, `Object::write`). Held shared while data is read from
//!    the medium, so that the blocks stay where they are; held alone for every change. Nobody holds
//!    two of them, and nobody waits for a flush or for memory while holding one.
//! 2. A shard of the table, or the registry of dirty objects.
//! 3. The eviction policy.
//! 4. The frames of one object (`Cache::frames`), the accounts (`Store::accounts`), the identifiers,
//!    the appends, the flush queue, the backlog: held for a few instructions, never two at a time, but that whoever has
//!    frames may tell the background thread.
//!
//! The flushes under way (a few, see `flush::turns`) hold no lock while they write; whoever applies what
//! flushes left (one at a time, see `flush::settle`) holds none of these while the tree changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nasd_device::{BlockDevice, FRAME_BYTES, Frame};
use nasd_types::limits::{BLOCK_BYTES, MAX_TRANSFER_BYTES};
use nasd_types::{ObjectName, PartitionId};

use crate::cache::Cache;
use crate::flush::{Backlog, FlushQueue, Request};
use crate::geometry::Geometry;
use crate::identifiers::{Claims, Identifiers};
use crate::log::{Inlined, Log};
use crate::metadata::record::Appends;
use crate::metadata::{DriveRecords, Metadata};
use crate::object::Object;
use crate::packing::PackedIn;
use crate::partitions::Partitions;
use crate::space::Space as Accounts;
use crate::table::ObjectTable;
use crate::tally::Tally;
use crate::{Identity, NoSpace, OpenOptions, PartitionSpace, Space, StoreError};

/// How long one wait for frames lasts before it is tried again to free some.
const FRAME_WAIT: Duration = Duration::from_millis(20);

/// An open object store. All methods take `&self` and may be called from any number of threads.
pub struct Store {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) identity: Identity,
    pub(crate) partitions: Partitions,
    pub(crate) packed_in: PackedIn,
    pub(crate) metadata: Metadata,
    pub(crate) log: Log,
    /// Data blocks that the log alone has.
    pub(crate) inlined: Inlined,
    pub(crate) cache: Cache,
    pub(crate) table: ObjectTable,
    pub(crate) accounts: Mutex<Accounts>,
    pub(crate) identifiers: Identifiers,
    pub(crate) claims: Claims,
    /// The appends that were made last, durable or not.
    pub(crate) appends: Mutex<Appends>,
    pub(crate) queue: FlushQueue,
    pub(crate) backlog: Backlog,
    /// Why the store takes no more changes, once it does not.
    pub(crate) read_only: OnceLock<String>,
    pub(crate) options: OpenOptions,
    pub(crate) tally: Tally,
    /// The last entry of the log when there was nothing to do last.
    idle_since: AtomicU64,
}

/// What an open store begins with.
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) identity: Identity,
    pub(crate) log_key: u64,
    pub(crate) metadata: Metadata,
    pub(crate) records: DriveRecords,
    pub(crate) accounts: Accounts,
    pub(crate) packed_in: PackedIn,
    pub(crate) cache: Cache,
    pub(crate) options: OpenOptions,
}

/// What one step of writing back did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// Bytes of data written and made durable.
    pub written_bytes: u64,
    /// Bytes of the cache that are still dirty, in whole frames.
    pub dirty_bytes: u64,
}

impl Store {
    pub(crate) fn assemble(parts: Parts) -> Store {
        let Parts { device, geometry, identity, metadata, .. } = parts;
        let Parts { log_key, mut records, accounts, packed_in, cache, options, .. } = parts;
        Store {
            log: Log::new(log_key, &geometry, records.mark),
            inlined: Inlined::default(),
            identifiers: Identifiers::new(records.counters.object_limit),
            claims: Claims::default(),
            appends: Mutex::new(std::mem::take(&mut records.appends)),
            partitions: Partitions::new(records),
            packed_in,
            table: ObjectTable::new(),
            accounts: Mutex::new(accounts),
            queue: FlushQueue::default(),
            backlog: Backlog::default(),
            read_only: OnceLock::new(),
            tally: Tally::default(),
            idle_since: AtomicU64::new(0),
            device,
            geometry,
            identity,
            metadata,
            cache,
            options,
        }
    }

    /// Makes everything durable and closes the metadata, so that the next `open` is quick.
    /// A store that is dropped instead keeps what was flushed.
    pub fn close(self) -> Result<(), StoreError> {
        self.flush_all()?;
        // No identifier is given out any more.
        self.run_flush(Request { give_back: true, checkpoint: true, ..Request::default() })?;
        Ok(self.metadata.close()?)
    }

    /// Who the drive is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The drive's space.
    pub fn space(&self) -> Space {
        self.settle_accounts();
        let accounts = self.accounts();
        Space {
            capacity_bytes: accounts.capacity() * BLOCK_BYTES as u64,
            used_bytes: accounts.used() * BLOCK_BYTES as u64,
            free_bytes: accounts.chargeable() * BLOCK_BYTES as u64,
            common_bytes: accounts.common() * BLOCK_BYTES as u64,
            cache_bytes: self.cache.bytes(),
            log_bytes: self.geometry.log_bytes,
            free_objects: self.metadata.capacity.free_objects(),
        }
    }

    /// One partition's space.
    pub fn partition_space(&self, partition: PartitionId) -> Result<PartitionSpace, StoreError> {
        let quota_bytes = self.partitions.get(partition)?.quota_bytes;
        self.settle_accounts();
        let accounts = self.accounts();
        let account = accounts.account(partition);
        let left = account.quota_blocks.saturating_sub(account.charged);
        Ok(PartitionSpace {
            partition,
            quota_bytes,
            used_bytes: account.charged * BLOCK_BYTES as u64,
            free_bytes: left.min(accounts.chargeable()) * BLOCK_BYTES as u64,
            objects: account.objects,
        })
    }

    /// Whether a flush is under way, or one is not applied to the tree.
    fn is_flushing(&self) -> bool {
        self.queue.is_running() || !self.backlog.is_empty()
    }

    /// What was flushed counts for what it is. If that fails, the accounts are as they were.
    pub(crate) fn settle_accounts(&self) {
        if !self.backlog.is_empty() {
            let _ = self.settle_all();
        }
    }

    /// Why the store takes no more changes; `None` while it does.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.get().map(String::as_str)
    }

    /// Does what is left for a background thread (partitions that were removed are emptied, and the
    /// log is, in time), until there is enough dirty data that it should write some back, or
    /// `patience` is over; returns how many bytes are dirty.
    pub fn wait_for_dirty(&self, patience: Duration) -> u64 {
        let deadline = Instant::now() + patience;
        loop {
            // An error has made the store read-only, which whoever writes learns.
            let tidy = self.tidy_up();
            let over = Instant::now() >= deadline;
            let dirty = self.unwritten_bytes();
            if over && tidy.is_ok() && dirty == 0 {
                self.checkpoint_when_idle();
            }
            if tidy.is_err() || over || dirty >= self.cache.background_limit() {
                return dirty;
            }
            self.cache.wait_for_work(deadline);
        }
    }

    /// For a background thread: has the system give the cache memory ahead of its use, which takes longer
    /// than a small read. Waits until there is something to do, at most for `patience`.
    pub fn prepare_cache(&self, patience: Duration) {
        self.cache.prepare(patience);
    }

    /// Empties the log when nothing was appended to it since this was called last, so that the next
    /// open is quick.
    fn checkpoint_when_idle(&self) {
        let now = self.log.mark().applied;
        let before = self.idle_since.swap(now, Ordering::Relaxed);
        if now == before && self.log.used() > 0 && self.read_only.get().is_none() {
            // An error has made the store read-only, which whoever writes learns.
            let _ = self.checkpoint();
        }
    }

    fn tidy_up(&self) -> Result<(), StoreError> {
        if self.has_doomed() {
            self.remove_doomed()?;
            self.cache.wake_background();
        }
        Ok(())
    }

    pub(crate) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Each method of the accounts leaves them whole.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses changes once a write has failed.
    pub(crate) fn writable(&self) -> Result<(), StoreError> {
        match self.read_only.get() {
            Some(reason) => Err(StoreError::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// Takes no more changes from now on.
    pub(crate) fn latch(&self, reason: &dyn std::fmt::Display) {
        // Only the first reason is kept: it is the cause of the others.
        let _ = self.read_only.set(reason.to_string());
        // The tree must not become durable with what may not be true.
        self.metadata.sever(&reason.to_string());
    }

    /// The object of that name, in memory. It may have been removed.
    pub(crate) fn object(&self, name: ObjectName) -> Result<Arc<Object>, StoreError> {
        loop {
            let ticket = match self.table.get(name) {
                Ok(object) => return Ok(object),
                Err(ticket) => ticket,
            };
            self.partitions.get(name.partition)?;
            let record = self.metadata.object(name)?.ok_or_else(|| self.gone(name))?;
            let loaded = Arc::new(Object::loaded(name, record));
            // Whoever removes the partition finds it in the table.
            let insert = || self.table.insert_loaded(loaded, ticket);
            if let Some(object) = self.partitions.while_there(name.partition, insert)? {
                return Ok(object);
            }
        }
    }

    /// Why an object is not there that was, or might have been: its partition may have gone with it, while what was
    /// in memory of it is still being let go of.
    pub(crate) fn gone(&self, name: ObjectName) -> StoreError {
        match self.partitions.get(name.partition) {
            Ok(_) => StoreError::NoSuchObject(name),
            Err(gone) => gone,
        }
    }

    /// Most bytes of one transfer.
    pub(crate) fn transfer_limit(&self) -> usize {
        MAX_TRANSFER_BYTES.min(self.cache.transfer_bytes())
    }

    pub(crate) fn check_transfer(&self, what: &'static str, bytes: u64) -> Result<(), StoreError> {
        let limit = self.transfer_limit() as u64;
        if bytes <= limit { Ok(()) } else { Err(StoreError::TooLarge { what, bytes, limit }) }
    }

    /// `count` frames. Gives clean frames up, writes dirty ones back, and waits for readers, in this
    /// order. No body of an object may be locked.
    pub(crate) fn allocate_frames(&self, count: usize) -> Result<Vec<Frame>, StoreError> {
        self.allocate_frames_within(count, self.options.buffer_patience)
    }

    /// The same with another patience.
    pub(crate) fn allocate_frames_within(
        &self,
        count: usize,
        patience: Duration,
    ) -> Result<Vec<Frame>, StoreError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(frames) = self.cache.try_allocate(count) {
                return Ok(frames);
            }
            if self.cache.pinned_bytes() > 0 && self.read_only.get().is_none() {
                self.clean((count * FRAME_BYTES) as u64)?;
                if let Some(frames) = self.cache.try_allocate(count) {
                    return Ok(frames);
                }
            }
            if Instant::now() >= deadline {
                return Err(StoreError::Busy);
            }
            self.cache.wait_for_frames(count, FRAME_WAIT);
        }
    }

    /// Tries to make room after a promise was refused. When nothing can help, that is the answer.
    /// `settled` is what the backlog said before the promise was asked for: if something was settled
    /// since, there may be room already.
    pub(crate) fn make_room(&self, lacking: NoSpace, settled: &mut u64) -> Result<(), StoreError> {
        let hopeful = match lacking {
            // Only what was cut off or removed in the partition gives something back.
            NoSpace::Quota(partition) => {
                self.partitions.get(partition)?;
                let dirty = self.table.dirty_of(partition);
                dirty.iter().any(|object| {
                    let body = object.read();
                    body.removed || !body.clears.is_empty() || body.writing.clears_any()
                }) || self.is_flushing()
            }
            NoSpace::Data => self.table.dirty_count() > 0 || self.is_flushing(),
            NoSpace::Metadata => {
                self.table.dirty_count() > 0
                    || self.is_flushing()
                    || self.metadata.capacity.is_worth_measuring()
            }
        };
        if !hopeful && self.backlog.settled() == *settled {
            return Err(StoreError::NoSpace(lacking));
        }
        self.flush_all()?;
        if lacking == NoSpace::Metadata && self.metadata.capacity.is_worth_measuring() {
            self.metadata.measure()?;
        }
        *settled = self.backlog.settled();
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({} on {:?})", self.identity.drive, self.device)
    }
}
