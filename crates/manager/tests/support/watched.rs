//! Drives with somebody who sees every call before it is done, and may fail it or hold it up.

use std::sync::Arc;

use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{NewObject, ObjectError, ObjectStore, Outcomes, Wait};
use nasd_protocol::drive::{BatchOperation, DriveControl, PartitionControl};
use nasd_protocol::manager::FileHandle;
use nasd_types::{Attributes, DriveId, ObjectId, PartitionId, SetAttributes, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Create,
    Remove,
    Getattr,
    Setattr,
    Read,
    Write(usize),
    Flush,
    Batch(usize),
    Control,
}

#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub what: What,
    pub drive: DriveId,
    pub object: Option<FileHandle>,
    pub wait: Wait,
}

type Watcher = dyn Fn(Seen) -> Result<(), ObjectError> + Send + Sync;

pub struct WatchedDrives {
    inner: Arc<MemoryDrives>,
    watcher: Box<Watcher>,
}

impl WatchedDrives {
    pub fn new(
        inner: Arc<MemoryDrives>,
        watcher: impl Fn(Seen) -> Result<(), ObjectError> + Send + Sync + 'static,
    ) -> WatchedDrives {
        WatchedDrives { inner, watcher: Box::new(watcher) }
    }

    fn on(&self, what: What, object: FileHandle, wait: Wait) -> Result<(), ObjectError> {
        (self.watcher)(Seen { what, drive: object.drive, object: Some(object), wait })
    }

    fn at(&self, what: What, drive: DriveId, wait: Wait) -> Result<(), ObjectError> {
        (self.watcher)(Seen { what, drive, object: None, wait })
    }
}

impl ObjectStore for WatchedDrives {
    fn drives(&self) -> Vec<DriveId> {
        self.inner.drives()
    }
    fn partition(&self, drive: DriveId) -> Option<PartitionId> {
        self.inner.partition(drive)
    }
    fn create(
        &self,
        drive: DriveId,
        initial: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<NewObject, ObjectError> {
        self.at(What::Create, drive, wait)?;
        self.inner.create(drive, initial, durable, wait)
    }
    fn remove(&self, object: FileHandle, durable: bool, wait: Wait) -> Result<(), ObjectError> {
        self.on(What::Remove, object, wait)?;
        self.inner.remove(object, durable, wait)
    }
    fn getattr(&self, object: FileHandle, wait: Wait) -> Result<Attributes, ObjectError> {
        self.on(What::Getattr, object, wait)?;
        self.inner.getattr(object, wait)
    }
    fn setattr(
        &self,
        object: FileHandle,
        changes: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<Attributes, ObjectError> {
        self.on(What::Setattr, object, wait)?;
        self.inner.setattr(object, changes, durable, wait)
    }
    fn blocks_required(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.on(What::Getattr, object, wait)?;
        self.inner.blocks_required(object, offset, length, wait)
    }
    fn read(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<Vec<u8>, ObjectError> {
        self.on(What::Read, object, wait)?;
        self.inner.read(object, offset, length, wait)
    }
    fn write(
        &self,
        object: FileHandle,
        offset: u64,
        data: &[u8],
        durable: bool,
        wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.on(What::Write(data.len()), object, wait)?;
        self.inner.write(object, offset, data, durable, wait)
    }
    fn flush(&self, drive: DriveId, objects: &[ObjectId], wait: Wait) -> Result<u64, ObjectError> {
        self.at(What::Flush, drive, wait)?;
        self.inner.flush(drive, objects, wait)
    }
    fn batch(
        &self,
        drive: DriveId,
        operations: &[BatchOperation],
        durable: bool,
        wait: Wait,
    ) -> Result<Outcomes, ObjectError> {
        self.at(What::Batch(operations.len()), drive, wait)?;
        self.inner.batch(drive, operations, durable, wait)
    }
    fn objects_from(
        &self,
        drive: DriveId,
        from: ObjectId,
        wait: Wait,
    ) -> Result<Vec<ObjectId>, ObjectError> {
        self.at(What::Control, drive, wait)?;
        self.inner.objects_from(drive, from, wait)
    }
    fn drive_control(&self, drive: DriveId) -> Result<DriveControl, ObjectError> {
        self.at(What::Control, drive, Wait::Brief)?;
        self.inner.drive_control(drive)
    }
    fn partition_control(&self, drive: DriveId) -> Result<PartitionControl, ObjectError> {
        self.at(What::Control, drive, Wait::Brief)?;
        self.inner.partition_control(drive)
    }
    fn drive_time(&self, drive: DriveId) -> Timestamp {
        self.inner.drive_time(drive)
    }
}
