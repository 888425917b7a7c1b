//! What the manager needs of drives. The name space is written against this trait alone.
//!
//! [`memory`] keeps objects in memory, with power cuts, for tests; [`remote`] talks to drives.

mod contents;
pub mod memory;
pub mod remote;

use nasd_protocol::drive::{BatchDone, BatchOperation, DriveControl, PartitionControl};
use nasd_protocol::manager::FileHandle;
use nasd_types::{
    Attributes, DriveId, Location, ObjectId, PartitionId, Protection, SetAttributes, Timestamp,
};
use thiserror::Error;

/// Why an operation on an object failed, by what the manager can do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ObjectError {
    /// There is no such object, partition or drive.
    #[error("no such object")]
    NoSuchObject,
    /// The drive or the partition is full.
    #[error("no space")]
    NoSpace,
    /// The drive has stopped writing.
    #[error("the drive is read-only")]
    ReadOnly,
    /// The drive can't be reached.
    #[error("the drive is away: {reason}")]
    Unavailable {
        /// What was seen of that.
        reason: String,
        /// Whether it may have done what was asked, or may do it yet.
        maybe_done: bool,
    },
    /// The drive refused the manager, or is not the one that was meant; nothing was done.
    #[error("the drive refused: {0}")]
    Refused(String),
    /// The drive failed; whether it did what was asked is unknown.
    #[error("the drive failed: {0}")]
    Fault(String),
}

impl ObjectError {
    /// Whether the drive certainly did not do what was asked.
    pub fn is_certain(&self) -> bool {
        match self {
            ObjectError::NoSuchObject
            | ObjectError::NoSpace
            | ObjectError::ReadOnly
            | ObjectError::Refused(_) => true,
            ObjectError::Unavailable { maybe_done, .. } => !maybe_done,
            ObjectError::Fault(_) => false,
        }
    }

    /// Whether another attempt may go better.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, ObjectError::Unavailable { .. })
    }
}

/// How long to wait for a drive that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As the retry policy says: a drive may be starting anew.
    Patient,
    /// Shortly: there is another way, or others wait for what we hold.
    Brief,
}

/// A new object.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// Its handle.
    pub handle: FileHandle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// How the operations of a batch ended, one for each, in their order.
pub type Outcomes = Vec<Result<BatchDone, ObjectError>>;

/// The objects of the volume: those of one partition of each of its drives. Operations of several
/// threads may be under way at a time.
pub trait ObjectStore: Send + Sync {
    /// The volume's drives.
    fn drives(&self) -> Vec<DriveId>;

    /// The volume's partition of a drive; `None` for other drives.
    fn partition(&self, drive: DriveId) -> Option<PartitionId>;

    /// Where the volume's part is that files know by this drive; `None` for other drives.
    fn location(&self, drive: DriveId) -> Option<Location> {
        self.partition(drive).map(|partition| Location { drive, partition })
    }

    /// Makes an object on a drive. With `durable` it survives a power cut when this returns.
    fn create(
        &self,
        drive: DriveId,
        initial: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<NewObject, ObjectError>;

    /// Removes an object; it may come back after a power cut unless `durable`.
    fn remove(&self, object: FileHandle, durable: bool, wait: Wait) -> Result<(), ObjectError>;

    /// Reads the attributes.
    fn getattr(&self, object: FileHandle, wait: Wait) -> Result<Attributes, ObjectError>;

    /// Changes attributes; answers all of them.
    fn setattr(
        &self,
        object: FileHandle,
        changes: &SetAttributes,
        durable: bool,
        wait: Wait,
    ) -> Result<Attributes, ObjectError>;

    /// How many blocks more an object takes, at most, when `length` bytes from `offset` on are overwritten.
    fn blocks_required(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<u64, ObjectError>;

    /// The weakest protection that the drive accepts for the volume's partition, as far as it is known
    /// without asking.
    fn minimum_protection(&self, _drive: DriveId) -> Protection {
        Protection::NONE
    }

    /// Reads `length` bytes from `offset`, fewer at the object's end.
    fn read(
        &self,
        object: FileHandle,
        offset: u64,
        length: u64,
        wait: Wait,
    ) -> Result<Vec<u8>, ObjectError>;

    /// Writes, whole or not at all. `data` is one transfer at most. Answers the drive's *instance*,
    /// which is another one after each start: unless `durable`, what was written is safe when a
    /// [`flush`](Self::flush) has answered with the same one.
    fn write(
        &self,
        object: FileHandle,
        offset: u64,
        data: &[u8],
        durable: bool,
        wait: Wait,
    ) -> Result<u64, ObjectError>;

    /// Makes the data and attributes of some objects of a drive durable as they are, at most
    /// `MAX_FLUSH_OBJECTS`; without any, those of the volume's whole partition. Answers the drive's instance.
    fn flush(&self, drive: DriveId, objects: &[ObjectId], wait: Wait) -> Result<u64, ObjectError>;

    /// Does many operations on objects of a drive in order, each for itself; with `durable`, what was done
    /// survives a power cut when this returns. Attributes are told of what was made or asked about.
    fn batch(
        &self,
        drive: DriveId,
        operations: &[BatchOperation],
        durable: bool,
        wait: Wait,
    ) -> Result<Outcomes, ObjectError>;

    /// The objects of the volume's partition from this number on, in order.
    fn objects_from(
        &self,
        drive: DriveId,
        from: ObjectId,
        wait: Wait,
    ) -> Result<Vec<ObjectId>, ObjectError>;

    /// What the drive tells about itself; waits briefly.
    fn drive_control(&self, drive: DriveId) -> Result<DriveControl, ObjectError>;

    /// What the drive tells about the volume's partition; waits briefly.
    fn partition_control(&self, drive: DriveId) -> Result<PartitionControl, ObjectError>;

    /// The time on the drive's clock, as well as it is known without asking.
    fn drive_time(&self, drive: DriveId) -> Timestamp;

    /// The present, for the times of files on a drive. A drive's clock may be ahead for minutes, after a
    /// crash (see the security model); times of files must not be.
    fn file_time(&self, drive: DriveId) -> Timestamp {
        self.drive_time(drive)
    }
}
