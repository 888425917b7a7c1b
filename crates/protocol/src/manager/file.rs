//! Files as the file manager tells of them: handle, attributes and capability.

use nasd_capability::{Capability, SealedCapability, SecretKey};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, Timestamp};
use nasd_xdr::xdr_enum;

use crate::wire::{field_by_xdr, message};

message! {
    /// The object that is the file; this names it in the whole cell (`nasd_file_handle`).
    #[derive(Copy, Hash, PartialOrd, Ord)]
    pub struct FileHandle {
        /// The drive.
        pub drive: DriveId,
        /// The partition of that drive.
        pub partition: PartitionId,
        /// The object of that partition.
        pub object: ObjectId,
    }
}

impl FileHandle {
    /// The handle of an object on a drive.
    pub const fn new(drive: DriveId, name: ObjectName) -> Self {
        FileHandle { drive, partition: name.partition, object: name.object }
    }

    /// The object's name within its drive.
    pub const fn name(&self) -> ObjectName {
        ObjectName { partition: self.partition, object: self.object }
    }
}

xdr_enum! {
    /// What a file is (`nasd_file_type`).
    pub enum FileType {
        /// An ordinary file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A symbolic link.
        Symlink = 3,
    }
}

field_by_xdr!(FileType);

message! {
    /// A file's attributes as POSIX has them (`nasd_file_attributes`).
    #[derive(Copy)]
    pub struct FileAttributes {
        /// What it is (`type`).
        pub file_type: FileType,
        /// Permission bits, 07777.
        pub mode: u32,
        /// Names that it has.
        pub links: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
        /// Length in bytes.
        pub size: u64,
        /// Space that it takes, in bytes.
        pub used_bytes: u64,
        /// Last read of data.
        pub access_time: Timestamp,
        /// Last change of data.
        pub modify_time: Timestamp,
        /// Last change of data or attributes.
        pub change_time: Timestamp,
        /// When it was made.
        pub create_time: Timestamp,
    }
}

message! {
    /// Both halves of a capability (`nasd_issued_capability`).
    pub struct IssuedCapability {
        /// The public half, which goes to the drive.
        pub capability: Capability,
        /// The secret half, which never does.
        pub key: SecretKey,
        /// The public half for the drive's eyes alone, if it was asked for.
        pub sealed: Option<SealedCapability>,
    }
}

message! {
    /// A file, and the means to use it (`nasd_file`).
    pub struct File {
        /// Its name in the cell.
        pub handle: FileHandle,
        /// Its attributes now.
        pub attributes: FileAttributes,
        /// The rights that the caller has on it.
        pub capability: IssuedCapability,
    }
}
