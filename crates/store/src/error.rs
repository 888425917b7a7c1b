//! What can go wrong, by whose fault it is and by what the caller can do about it.

use nasd_device::DeviceError;
use nasd_types::{ObjectName, PartitionId};

/// Why an operation on an open store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The caller's: the drive has no such partition.
    #[error("there is no partition {0}")]
    NoSuchPartition(PartitionId),
    /// The caller's: the partition has no such object, or no longer.
    #[error("there is no object {0}")]
    NoSuchObject(ObjectName),
    /// The caller's: an identifier for a new object that is not one of those that may be chosen.
    #[error("{0} can't be chosen for a new object")]
    NotToBeChosen(ObjectName),
    /// The caller's: there is an object of the identifier that was chosen for a new one.
    #[error("there is an object {0} already")]
    ObjectExists(ObjectName),
    /// The caller's: the drive has such a partition already, or is still removing it.
    #[error("there is a partition {0} already")]
    PartitionExists(PartitionId),
    /// The caller's: a transfer or an object above a limit.
    #[error("{what} of {bytes} bytes is above the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// What was asked for, in bytes.
        bytes: u64,
        /// What is allowed, in bytes.
        limit: u64,
    },
    /// The caller's: an access control version below the present one, under which capabilities that were
    /// revoked would be good again.
    #[error(
        "the access control version of object {object} is {present}, and can't fall to {asked}"
    )]
    VersionFalls {
        /// The object.
        object: ObjectName,
        /// Its version.
        present: u64,
        /// What it was to be.
        asked: u64,
    },
    /// The caller's: a length that comes with an access control version which the object has already, as who asks for
    /// both has had them, and others may have written since.
    #[error(
        "object {object} has access control version {present} already, and is not as long as was asked for with it"
    )]
    VersionStays {
        /// The object.
        object: ObjectName,
        /// Its version.
        present: u64,
    },
    /// The caller's: frames that were laid out for one offset are written at another.
    #[error("data was received for offset {expected} and is written at {found}")]
    Misplaced {
        /// The offset that the frames were asked for.
        expected: u64,
        /// The offset of the write.
        found: u64,
    },
    /// The caller's: the end of the object is not where the caller may write.
    #[error("bytes {offset} to {end} are not in the region of the request")]
    OutOfRegion {
        /// Where the bytes would go.
        offset: u64,
        /// Behind the last of them.
        end: u64,
    },
    /// The caller's: bytes of an object were to be copied to where some of them are.
    #[error("the ranges of object {0} to copy from and to overlap")]
    Overlapping(ObjectName),
    /// The drive's: too many appends were made since one that is asked for again for it to be known
    /// whether that was made.
    #[error("whether the append was made before is not known any more")]
    Forgotten,
    /// Nobody's: the partition's quota, the data blocks or the metadata region are used up.
    #[error("no space left: {0}")]
    NoSpace(NoSpace),
    /// Nobody's: all frames of the cache are in use by transfers; the caller may try again.
    #[error("all buffers are in use")]
    Busy,
    /// The medium's: a data block does not match its checksum.
    #[error("object {object} is corrupt: block {block} does not match its checksum")]
    Corrupt {
        /// The object.
        object: ObjectName,
        /// The block within the object (in units of 4 KiB).
        block: u64,
    },
    /// The medium's: a metadata record is not what this version writes.
    #[error("metadata is damaged: {0}")]
    Damaged(String),
    /// The medium's: the device failed a transfer.
    #[error(transparent)]
    Medium(#[from] DeviceError),
    /// The medium's: a write or sync failed before, and the store takes no more changes.
    #[error("the store is read-only since a write to the device failed: {0}")]
    ReadOnly(String),
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoSpace {
    /// The partition's quota.
    #[error("the quota of partition {0} is used up")]
    Quota(PartitionId),
    /// The drive's data blocks.
    #[error("the drive is full")]
    Data,
    /// The metadata region.
    #[error("the drive's metadata region is full")]
    Metadata,
}

/// Why a device could not be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Nothing on the device says that it is a NASD drive.
    #[error("the device is not formatted as a NASD drive")]
    NotNasd,
    /// Written by another version of the format.
    #[error("the device has format version {found}, and this program understands {supported}")]
    WrongVersion {
        /// What the device says.
        found: u32,
        /// What this program reads and writes.
        supported: u32,
    },
    /// A NASD drive whose superblocks or metadata can't be trusted.
    #[error("the drive is damaged: {0}")]
    Damaged(String),
    /// The options make no sense.
    #[error("bad option: {0}")]
    Options(String),
    /// The device failed a transfer.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Why a device could not be formatted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The device has too few bytes.
    #[error("the device has {bytes} bytes; a drive needs at least {needed}")]
    TooSmall {
        /// What it has.
        bytes: u64,
        /// What is needed.
        needed: u64,
    },
    /// The options make no sense.
    #[error("bad option: {0}")]
    Options(String),
    /// The metadata region could not be made.
    #[error("cannot make the metadata region: {0}")]
    Metadata(String),
    /// The device failed a transfer.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
