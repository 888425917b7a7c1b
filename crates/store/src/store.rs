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
//!    the flush queue: held for a few instructions, never two at a time.
//!
//! The flush under way (one at a time, see `flush`) holds no lock while it writes and commits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nasd_device::{BlockDevice, FRAME_BYTES, Frame};
use nasd_types::limits::{BLOCK_BYTES, MAX_TRANSFER_BYTES};
use nasd_types::{ObjectName, PartitionId};

use crate::cache::Cache;
use crate::flush::FlushQueue;
use crate::geometry::Geometry;
use crate::identifiers::Identifiers;
use crate::metadata::Metadata;
use crate::metadata::record::PartitionRecord;
use crate::object::Object;
use crate::space::Space as Accounts;
use crate::table::ObjectTable;
use crate::{
    Identity, NoSpace, OpenOptions, PartitionKeys, PartitionSpace, Space, StoreError, StoredKey,
};

/// How long one wait for frames lasts before it is tried again to free some.
const FRAME_WAIT: Duration = Duration::from_millis(20);

/// An open object store. All methods take `&self` and may be called from any number of threads.
pub struct Store {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) identity: Identity,
    pub(crate) drive_key: StoredKey,
    pub(crate) partitions: BTreeMap<PartitionId, PartitionRecord>,
    pub(crate) metadata: Metadata,
    pub(crate) cache: Cache,
    pub(crate) table: ObjectTable,
    pub(crate) accounts: Mutex<Accounts>,
    pub(crate) identifiers: Identifiers,
    pub(crate) queue: FlushQueue,
    /// Why the store takes no more changes, once it does not.
    pub(crate) read_only: OnceLock<String>,
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
    /// Makes everything durable and closes the metadata, so that the next `open` is quick.
    /// A store that is dropped instead keeps what was flushed.
    pub fn close(self) -> Result<(), StoreError> {
        self.flush_all()?;
        self.give_back_identifiers()?;
        Ok(self.metadata.close()?)
    }

    /// Who the drive is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The drive key (Table 6).
    pub fn drive_key(&self) -> StoredKey {
        self.drive_key.clone()
    }

    /// The keys of a partition.
    pub fn keys(&self, partition: PartitionId) -> Result<PartitionKeys, StoreError> {
        Ok(self.partition(partition)?.keys.clone())
    }

    /// The drive's partitions, in ascending order.
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.partitions.keys().copied().collect()
    }

    /// The drive's space.
    pub fn space(&self) -> Space {
        let accounts = self.accounts();
        Space {
            capacity_bytes: accounts.capacity() * BLOCK_BYTES as u64,
            used_bytes: accounts.used() * BLOCK_BYTES as u64,
            free_bytes: accounts.chargeable() * BLOCK_BYTES as u64,
            cache_bytes: self.cache.bytes(),
        }
    }

    /// One partition's space.
    pub fn partition_space(&self, partition: PartitionId) -> Result<PartitionSpace, StoreError> {
        let quota_bytes = self.partition(partition)?.quota_bytes;
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

    /// Why the store takes no more changes; `None` while it does.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.get().map(String::as_str)
    }

    /// Waits until there is enough dirty data that a background thread should write some back, or
    /// until `patience` is over; returns how many bytes are dirty.
    pub fn wait_for_dirty(&self, patience: Duration) -> u64 {
        self.cache.wait_for_dirty(patience)
    }

    pub(crate) fn partition(&self, partition: PartitionId) -> Result<&PartitionRecord, StoreError> {
        self.partitions.get(&partition).ok_or(StoreError::NoSuchPartition(partition))
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
    }

    /// The object of that name, in memory. It may have been removed.
    pub(crate) fn object(&self, name: ObjectName) -> Result<Arc<Object>, StoreError> {
        self.partition(name.partition)?;
        loop {
            let ticket = match self.table.get(name) {
                Ok(object) => return Ok(object),
                Err(ticket) => ticket,
            };
            let record = self.metadata.object(name)?.ok_or(StoreError::NoSuchObject(name))?;
            let loaded = Arc::new(Object::loaded(name, record));
            if let Some(object) = self.table.insert_loaded(loaded, ticket) {
                return Ok(object);
            }
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
        let deadline = Instant::now() + self.options.buffer_patience;
        loop {
            if let Some(frames) = self.cache.try_allocate(count) {
                return Ok(frames);
            }
            if self.cache.dirty_bytes() > 0 && self.read_only.get().is_none() {
                self.write_back((count * FRAME_BYTES) as u64)?;
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
    pub(crate) fn make_room(&self, lacking: NoSpace) -> Result<(), StoreError> {
        let hopeful = match lacking {
            // Only what was cut off or removed in the partition gives something back.
            NoSpace::Quota(partition) => {
                let dirty = self.table.dirty_of(partition);
                dirty.iter().any(|object| {
                    let body = object.read();
                    body.removed || body.cut.is_some() || body.cut_writing.is_some()
                })
            }
            NoSpace::Data => self.table.dirty_count() > 0 || self.queue.is_running(),
            NoSpace::Metadata => self.table.dirty_count() > 0 || !self.metadata.capacity.is_exact(),
        };
        if !hopeful {
            return Err(StoreError::NoSpace(lacking));
        }
        self.flush_all()?;
        if lacking == NoSpace::Metadata {
            self.metadata.measure()?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({} on {:?})", self.identity.drive, self.device)
    }
}
