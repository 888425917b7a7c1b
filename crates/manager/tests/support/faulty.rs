//! Drives behind which the manager dies at a chosen call, or that fail single calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{NewObject, ObjectError, ObjectStore, Outcomes, Wait};
use nasd_protocol::drive::{BatchOperation, DriveControl, PartitionControl};
use nasd_protocol::manager::FileHandle;
use nasd_types::{Attributes, DriveId, ObjectId, PartitionId, SetAttributes, Timestamp};

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The call is not done, and none after it.
    Before,
    /// The call is done but never answered, and none after it is done.
    After,
    /// The call is done in the drive's memory alone, never answered, and none after it is done.
    AfterInMemory,
    /// Half of the call is done, if it is a batch, but never answered, and none after it is done.
    Half,
    /// This call alone is not done, and its answer says that it may have been.
    LostOnce,
    /// This call alone is done, and its answer says that it may have been.
    DoneOnce,
    /// This call alone is not done, and is known not to be: the drive was away.
    AwayOnce,
}

pub const STOPS: [Stop; 7] = [
    Stop::Before,
    Stop::After,
    Stop::AfterInMemory,
    Stop::Half,
    Stop::LostOnce,
    Stop::DoneOnce,
    Stop::AwayOnce,
];

impl Stop {
    /// Whether the manager is dead from then on.
    pub fn is_death(self) -> bool {
        matches!(self, Stop::Before | Stop::After | Stop::AfterInMemory | Stop::Half)
    }
}

pub struct FaultyDrives {
    inner: Arc<MemoryDrives>,
    calls: AtomicUsize,
    stop_at: usize,
    stop: Stop,
    dead: AtomicBool,
}

impl FaultyDrives {
    /// The call with number `stop_at`, counted from 0, is the one.
    pub fn new(inner: Arc<MemoryDrives>, stop_at: usize, stop: Stop) -> FaultyDrives {
        FaultyDrives {
            inner,
            calls: AtomicUsize::new(0),
            stop_at,
            stop,
            dead: AtomicBool::new(false),
        }
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub fn dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    fn run<T>(&self, call: impl FnOnce() -> Result<T, ObjectError>) -> Result<T, ObjectError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        let lost =
            |maybe_done| Err(ObjectError::Unavailable { reason: "fault".to_owned(), maybe_done });
        if self.dead() {
            return lost(true);
        }
        if number != self.stop_at {
            return call();
        }
        match self.stop {
            Stop::Before | Stop::Half => self.dead.store(true, Ordering::SeqCst),
            Stop::After => {
                self.dead.store(true, Ordering::SeqCst);
                let _ = call();
            }
            Stop::AfterInMemory => {
                self.dead.store(true, Ordering::SeqCst);
                self.inner.set_volatile(true);
                let _ = call();
                self.inner.set_volatile(false);
            }
            Stop::LostOnce => {}
            Stop::DoneOnce => {
                let _ = call();
            }
            Stop::AwayOnce => return lost(false),
        }
        lost(true)
    }
}

impl ObjectStore for FaultyDrives {
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
        self.run(|| self.inner.create(drive, initial, durable, wait))
    }
    fn remove(&self, object: FileHandle, durable: bool, wait: Wait) -> Result<(), ObjectError> {
        self.run(|| self.inner.remove(object, durable, wait))
    }
    fn getattr(&self, object: FileHandle, wait: Wait) -> Result<Attributes, ObjectError> {
        self.run(|| self.inner.getattr(object, wait))
    }
    fn setattr(
        &self,
        object: FileHandle,
        changes: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<Attributes, ObjectError> {
        self.run(|| self.inner.setattr(object, changes, durable, wait))
    }
    fn blocks_required(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.run(|| self.inner.blocks_required(object, offset, length, wait))
    }
    fn read(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<Vec<u8>, ObjectError> {
        self.run(|| self.inner.read(object, offset, length, wait))
    }
    fn write(
        &self,
        object: FileHandle,
        offset: u64,
        data: &[u8],
        durable: bool,
        wait: Wait,
    ) -> Result<u64, ObjectError> {
        self.run(|| self.inner.write(object, offset, data, durable, wait))
    }
    fn flush(&self, drive: DriveId, objects: &[ObjectId], wait: Wait) -> Result<u64, ObjectError> {
        self.run(|| self.inner.flush(drive, objects, wait))
    }
    fn batch(
        &self,
        drive: DriveId,
        operations: &[BatchOperation],
        durable: bool,
        wait: Wait,
    ) -> Result<Outcomes, ObjectError> {
        if self.stop == Stop::Half && self.calls() == self.stop_at && !self.dead() {
            let _ = self.inner.batch(drive, &operations[..operations.len() / 2], durable, wait);
        }
        self.run(|| self.inner.batch(drive, operations, durable, wait))
    }
    fn objects_from(
        &self,
        drive: DriveId,
        from: ObjectId,
        wait: Wait,
    ) -> Result<Vec<ObjectId>, ObjectError> {
        self.run(|| self.inner.objects_from(drive, from, wait))
    }
    fn drive_control(&self, drive: DriveId) -> Result<DriveControl, ObjectError> {
        self.run(|| self.inner.drive_control(drive))
    }
    fn partition_control(&self, drive: DriveId) -> Result<PartitionControl, ObjectError> {
        self.run(|| self.inner.partition_control(drive))
    }
    fn drive_time(&self, drive: DriveId) -> Timestamp {
        self.inner.drive_time(drive)
    }
}
