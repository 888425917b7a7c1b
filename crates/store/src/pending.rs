//! Operations that are being written.

use nasd_types::{Attributes, ByteRange, ObjectId, ObjectName, PartitionId, SeekTarget, Timestamp};

use crate::{
    BlocksRequired, ClockState, DriveKeys, PartitionKeys, PartitionSettings, Statistics, Store,
    StoreError, StoredKey,
};

fn pending<T>() -> Result<T, StoreError> {
    Err(StoreError::Damaged("not written yet".to_owned()))
}

#[allow(missing_docs, unused_variables)]
impl Store {
    /// Makes a copy that shares the source's blocks, durable when this returns. Attributes are the
    /// source's, but for copied_object, the drive's own times (now) and blocks_used.
    pub fn fastcopy(
        &self,
        source: ObjectName,
        now: Timestamp,
    ) -> Result<(ObjectId, Attributes), StoreError> {
        pending()
    }

    /// Makes the bytes of `range` read as zeros and frees the blocks that lie within. The size stays.
    pub fn punch(
        &self,
        name: ObjectName,
        range: ByteRange,
        now: Timestamp,
    ) -> Result<Attributes, StoreError> {
        pending()
    }

    /// The first offset from `offset` on that has what is looked for; `None` when `offset` is at or
    /// behind the object's end, or there is no more data.
    pub fn seek(
        &self,
        name: ObjectName,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, StoreError> {
        pending()
    }

    /// How many blocks more the object may take when these ranges are overwritten (section 2.3).
    pub fn blocks_required(
        &self,
        name: ObjectName,
        ranges: &mut dyn Iterator<Item = ByteRange>,
    ) -> Result<BlocksRequired, StoreError> {
        pending()
    }

    /// Makes a partition without room and without keys, with its First Object; durable.
    pub fn create_partition(
        &self,
        partition: PartitionId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        pending()
    }

    /// Removes a partition with all its objects: durable when this returns, though their blocks may
    /// be freed a little later.
    pub fn remove_partition(&self, partition: PartitionId) -> Result<(), StoreError> {
        pending()
    }

    /// Sets the quota in bytes (`u64::MAX` is none); durable. Refused below what is in use
    /// (`StoreError::NoSpace(NoSpace::Quota)`).
    pub fn resize_partition(&self, partition: PartitionId, bytes: u64) -> Result<(), StoreError> {
        pending()
    }

    /// Makes everything of the partition durable.
    pub fn flush_partition(&self, partition: PartitionId) -> Result<(), StoreError> {
        self.partition(partition)?;
        self.flush_all()
    }

    pub fn partition_settings(
        &self,
        partition: PartitionId,
    ) -> Result<PartitionSettings, StoreError> {
        pending()
    }

    /// Durable.
    pub fn set_partition_settings(
        &self,
        partition: PartitionId,
        settings: PartitionSettings,
    ) -> Result<(), StoreError> {
        pending()
    }

    /// Durable.
    pub fn set_partition_keys(
        &self,
        partition: PartitionId,
        keys: &PartitionKeys,
    ) -> Result<(), StoreError> {
        pending()
    }

    pub fn drive_keys(&self) -> DriveKeys {
        DriveKeys { master: None, drive: Some(self.drive_key()) }
    }

    /// Durable.
    pub fn set_drive_keys(&self, keys: &DriveKeys) -> Result<(), StoreError> {
        pending()
    }

    /// Table 3: a new master key, no other key, no partition, a new clock; durable when this returns.
    pub fn initialize(&self, master: &StoredKey, clock: ClockState) -> Result<(), StoreError> {
        pending()
    }

    pub fn clock(&self) -> ClockState {
        ClockState::default()
    }

    /// Durable.
    pub fn set_clock(&self, clock: ClockState) -> Result<(), StoreError> {
        pending()
    }

    pub fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}
