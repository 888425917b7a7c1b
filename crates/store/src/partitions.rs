//! Partitions and the drive's own records: quotas, settings, keys, the clock (CMU-CS-97-118, Tables
//! 2 and 3). Each change is durable when it returns.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    Compression, ObjectId, ObjectName, PartitionId, Protection, SetAttributes, Timestamp,
};

use crate::flush::Request;
use crate::log::Change;
use crate::metadata::DriveRecords;
use crate::metadata::record::PartitionRecord;
use crate::object::initial_record;
use crate::space::Account;
use crate::{
    ClockState, DriveKeys, NoSpace, PartitionKeys, PartitionSettings, Store, StoreError, StoredKey,
};

/// Most partitions of a drive: `NASD_MAX_PARTITIONS` of specs/nasd.x, and the one of the audit trail.
pub(crate) const PARTITIONS_MAX: usize = 1024 + 1;

/// Objects of a partition that are removed in one log entry.
const REMOVED_AT_ONCE: usize = 256;

/// Of a partition that is copied room is promised for one part in so many more than it takes.
const COPY_SLACK: u64 = 64;

/// Blocks for a quota in bytes.
pub(crate) fn quota_blocks(bytes: u64) -> u64 {
    if bytes == u64::MAX { u64::MAX } else { bytes / BLOCK_BYTES as u64 }
}

#[derive(Debug)]
struct Known {
    keys: DriveKeys,
    clock: ClockState,
    minimum_protection: Protection,
    partitions: BTreeMap<PartitionId, Arc<PartitionRecord>>,
    /// Partitions whose objects are still to be removed.
    doomed: BTreeMap<PartitionId, Arc<PartitionRecord>>,
}

impl Known {
    /// Sets what `initialize` sets in the drive's counters; what they were.
    fn begin_anew(&mut self, clock: ClockState) -> (ClockState, Protection) {
        let before = (self.clock, self.minimum_protection);
        (self.clock, self.minimum_protection) = (clock, Protection::NONE);
        before
    }
}

/// What the drive knows about its partitions and itself.
#[derive(Debug)]
pub(crate) struct Partitions {
    known: RwLock<Known>,
    /// Held by whoever changes something, from looking at it until it is durable.
    changing: Mutex<()>,
}

impl Partitions {
    pub(crate) fn new(records: DriveRecords) -> Partitions {
        let shared = records.partitions.into_iter().map(|(id, record)| (id, Arc::new(record)));
        let (doomed, partitions) = shared.partition(|(_, record)| record.removing);
        let (clock, minimum_protection) =
            (records.counters.clock, records.counters.minimum_protection);
        let known = Known { keys: records.keys, clock, minimum_protection, partitions, doomed };
        Partitions { known: RwLock::new(known), changing: Mutex::new(()) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A partition that takes requests.
    pub(crate) fn get(&self, partition: PartitionId) -> Result<Arc<PartitionRecord>, StoreError> {
        let found = self.read().partitions.get(&partition).cloned();
        found.ok_or(StoreError::NoSuchPartition(partition))
    }

    /// Does something while the partition takes requests: its removal begins before or after it.
    pub(crate) fn while_there<T>(
        &self,
        partition: PartitionId,
        action: impl FnOnce() -> T,
    ) -> Result<T, StoreError> {
        let known = self.read();
        if !known.partitions.contains_key(&partition) {
            return Err(StoreError::NoSuchPartition(partition));
        }
        Ok(action())
    }

    fn put(&self, partition: PartitionId, record: PartitionRecord) {
        self.write().partitions.insert(partition, Arc::new(record));
    }
}

impl Store {
    /// The drive's partitions, in ascending order.
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.partitions.read().partitions.keys().copied().collect()
    }

    /// The keys of a partition.
    pub fn keys(&self, partition: PartitionId) -> Result<PartitionKeys, StoreError> {
        Ok(self.partitions.get(partition)?.keys.clone())
    }

    /// What is set about a partition.
    pub fn partition_settings(
        &self,
        partition: PartitionId,
    ) -> Result<PartitionSettings, StoreError> {
        Ok(self.partitions.get(partition)?.settings)
    }

    /// Whether new data of a partition may be compressed. Takes no copy of its keys, as the others do.
    pub(crate) fn compresses(&self, partition: PartitionId) -> bool {
        let known = self.partitions.read();
        let found = known.partitions.get(&partition);
        found.is_some_and(|found| found.settings.compression != Compression::None)
    }

    /// The drive's own keys.
    pub fn drive_keys(&self) -> DriveKeys {
        self.partitions.read().keys.clone()
    }

    /// What is kept about the drive's clock.
    pub fn clock(&self) -> ClockState {
        self.partitions.read().clock
    }

    /// The least protection of requests, for all of the drive.
    pub fn minimum_protection(&self) -> Protection {
        self.partitions.read().minimum_protection
    }

    /// Makes changes durable. The partitions are locked for change.
    fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.run_flush(Request { changes, settle: true, ..Request::default() })
    }

    /// Makes a partition without room and without keys, with its First Object.
    pub fn create_partition(
        &self,
        partition: PartitionId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        self.require_absent(partition)?;
        let record = PartitionRecord {
            quota_bytes: 0,
            keys: PartitionKeys::default(),
            settings: PartitionSettings::default(),
            removing: false,
            objects: 0,
            charged_blocks: 0,
        };
        let first = ObjectName { partition, object: ObjectId::FIRST_OBJECT };
        let object = initial_record(&SetAttributes::default(), now);
        self.commit(vec![
            Change::PutPartition(partition, Box::new(record.clone())),
            Change::PutObject(first, Box::new(object)),
        ])?;
        let account = Account { quota_blocks: 0, charged: 0, objects: 1 };
        self.accounts().add_partition(partition, account);
        self.partitions.put(partition, record);
        Ok(())
    }

    /// There is no such partition, and there may be one more. The partitions are locked for change.
    fn require_absent(&self, partition: PartitionId) -> Result<(), StoreError> {
        let known = self.partitions.read();
        if known.partitions.contains_key(&partition) || known.doomed.contains_key(&partition) {
            return Err(StoreError::PartitionExists(partition));
        }
        if known.partitions.len() + known.doomed.len() >= PARTITIONS_MAX {
            let (bytes, limit) = (PARTITIONS_MAX as u64 + 1, PARTITIONS_MAX as u64);
            return Err(StoreError::TooLarge { what: "a number of partitions", bytes, limit });
        }
        Ok(())
    }

    /// Makes a partition that has all objects of another one, with the same identifiers and attributes, and shares their blocks; durable
    /// when this returns, and all of it or nothing. It has what was done in the source before the call, and of what is done
    /// meanwhile each change wholly or not at all. It has no keys and no limit, and nothing is reserved for its objects.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchPartition`] for the source, [`StoreError::PartitionExists`] and [`StoreError::TooLarge`] as
    /// [`Store::create_partition`] has them, [`StoreError::NoSpace`] where the metadata has no room for as many records again.
    pub fn copy_partition(
        &self,
        source: PartitionId,
        target: PartitionId,
    ) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        self.partitions.get(source)?;
        self.require_absent(target)?;
        // What is copied is what the tree has.
        self.flush_all()?;
        // Somebody may add to it until it is copied.
        let records = self.metadata.records_of(source)?;
        let records = records + records / COPY_SLACK + COPY_SLACK;
        let any = ObjectName { partition: source, object: ObjectId::FIRST_OBJECT };
        self.promise_records(any, records)?;
        let copied = self.commit(vec![Change::CopyPartition { source, target }]);
        self.metadata.capacity.release(records);
        copied?;
        if self.packed_in.contains(source) {
            self.packed_in.add(target);
        }
        let known = self.metadata.drive()?.partitions;
        let record = known.into_iter().find(|(partition, _)| *partition == target);
        let (_, record) = record.ok_or(StoreError::NoSuchPartition(target))?;
        self.partitions.put(target, record);
        Ok(())
    }

    fn change_partition(
        &self,
        partition: PartitionId,
        change: impl FnOnce(&mut PartitionRecord),
    ) -> Result<(), StoreError> {
        let mut record = PartitionRecord::clone(&*self.partitions.get(partition)?);
        change(&mut record);
        self.commit(vec![Change::PutPartition(partition, Box::new(record.clone()))])?;
        self.partitions.put(partition, record);
        Ok(())
    }

    /// Sets the quota in bytes (`u64::MAX` is none). Refused below what is in use.
    pub fn resize_partition(&self, partition: PartitionId, bytes: u64) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        let before = self.partitions.get(partition)?.quota_bytes;
        let set = |bytes| self.accounts().set_quota(partition, quota_blocks(bytes));
        let mut settled = self.backlog.settled();
        if let Err(lacking) = set(bytes) {
            // What was removed and not flushed still counts.
            self.make_room(lacking, &mut settled)?;
            set(bytes).map_err(StoreError::NoSpace)?;
        }
        let changed = self.change_partition(partition, |record| record.quota_bytes = bytes);
        if changed.is_err() {
            // It is as it was: nobody was charged above the smaller of the two meanwhile, or the
            // quota counts from the next charge on.
            let _ = set(before);
        }
        changed
    }

    /// Sets what can be set about a partition.
    pub fn set_partition_settings(
        &self,
        partition: PartitionId,
        settings: PartitionSettings,
    ) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        self.change_partition(partition, |record| record.settings = settings)
    }

    /// Sets all of a partition's keys.
    pub fn set_partition_keys(
        &self,
        partition: PartitionId,
        keys: &PartitionKeys,
    ) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        self.change_partition(partition, |record| record.keys = keys.clone())
    }

    /// Sets the drive's own keys.
    pub fn set_drive_keys(&self, keys: &DriveKeys) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        self.commit(vec![Change::PutDriveKeys(keys.clone())])?;
        self.partitions.write().keys = keys.clone();
        Ok(())
    }

    /// Sets what is kept about the drive's clock.
    pub fn set_clock(&self, clock: ClockState) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        let before = std::mem::replace(&mut self.partitions.write().clock, clock);
        // What is durable is what is set when the entry is made.
        let set = self.run_flush(Request { clock: true, settle: true, ..Request::default() });
        if set.is_err() {
            self.partitions.write().clock = before;
        }
        set
    }

    /// Sets the least protection of requests, for all of the drive.
    pub fn set_minimum_protection(&self, minimum: Protection) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        let before = std::mem::replace(&mut self.partitions.write().minimum_protection, minimum);
        let set = self.run_flush(Request { clock: true, settle: true, ..Request::default() });
        if set.is_err() {
            self.partitions.write().minimum_protection = before;
        }
        set
    }

    /// Makes everything of the partition durable. All partitions are as cheap as one: they share
    /// the one log entry.
    pub fn flush_partition(&self, partition: PartitionId) -> Result<(), StoreError> {
        self.partitions.get(partition)?;
        self.flush_all()
    }

    /// Removes a partition with all its objects. When this returns that is durable; blocks may
    /// be freed a little later.
    pub fn remove_partition(&self, partition: PartitionId) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        let record = PartitionRecord::clone(&*self.partitions.get(partition)?);
        let doomed = PartitionRecord { removing: true, keys: PartitionKeys::default(), ..record };
        self.commit(vec![Change::PutPartition(partition, Box::new(doomed.clone()))])?;
        self.doom(partition, doomed);
        self.cache.wake_background();
        Ok(())
    }

    /// Takes no more requests for a partition: its objects are gone for everybody.
    fn doom(&self, partition: PartitionId, record: PartitionRecord) {
        {
            let mut known = self.partitions.write();
            known.partitions.remove(&partition);
            known.doomed.insert(partition, Arc::new(record));
        }
        for object in self.table.all_of(partition) {
            let mut body = object.write();
            if !body.removed {
                self.make_removed(&object, &mut body);
            }
        }
    }

    /// Table 3: a new master key, no other key, no partition, a new clock, no minimum protection.
    pub fn initialize(&self, master: &StoredKey, clock: ClockState) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        let keys = DriveKeys { master: Some(master.clone()), drive: None };
        let doomed: Vec<(PartitionId, PartitionRecord)> = {
            let known = self.partitions.read();
            let doomed = known.partitions.iter().map(|(&partition, record)| {
                let record = PartitionRecord::clone(record);
                let keys = PartitionKeys::default();
                (partition, PartitionRecord { removing: true, keys, ..record })
            });
            doomed.collect()
        };
        let mut changes = vec![Change::PutDriveKeys(keys.clone())];
        changes.extend(
            doomed.iter().map(|(partition, record)| {
                Change::PutPartition(*partition, Box::new(record.clone()))
            }),
        );
        let before = self.partitions.write().begin_anew(clock);
        let request = Request { changes, clock: true, settle: true, ..Request::default() };
        if let Err(error) = self.run_flush(request) {
            let mut known = self.partitions.write();
            (known.clock, known.minimum_protection) = before;
            return Err(error);
        }
        self.partitions.write().keys = keys;
        for (partition, record) in doomed {
            self.doom(partition, record);
        }
        self.cache.wake_background();
        Ok(())
    }

    /// Whether there are partitions whose objects are still to be removed.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.partitions.read().doomed.is_empty()
    }

    /// Removes some objects of a partition that is being removed, and in the end its record.
    pub(crate) fn remove_doomed(&self) -> Result<(), StoreError> {
        let _changing = self.partitions.changing();
        let Some(partition) = self.partitions.read().doomed.keys().next().copied() else {
            return Ok(());
        };
        // Those in memory that were dirty go first, with their promises.
        self.flush_all()?;
        let objects = self.metadata.list(partition, ObjectId(0), REMOVED_AT_ONCE)?;
        if objects.is_empty() {
            self.commit(vec![Change::RemovePartition(partition)])?;
            self.accounts().remove_partition(partition);
            self.partitions.write().doomed.remove(&partition);
            return Ok(());
        }
        let names = objects.into_iter().map(|object| ObjectName { partition, object });
        self.commit(names.map(Change::RemoveObject).collect())
    }
}

impl From<NoSpace> for StoreError {
    fn from(lacking: NoSpace) -> Self {
        StoreError::NoSpace(lacking)
    }
}
