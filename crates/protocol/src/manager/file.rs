//! Files as the file manager tells of them: handle, attributes and capability.

use nasd_capability::{Capability, SealedCapability, SecretKey};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrError, xdr_enum};

use crate::wire::{Field, field_by_xdr, message};

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
        /// A named pipe.
        Fifo = 4,
        /// A socket of the local kind.
        Socket = 5,
        /// A block device.
        BlockDevice = 6,
        /// A character device.
        CharacterDevice = 7,
        /// A mount point: another volume is seen there.
        MountPoint = 8,
    }
}

field_by_xdr!(FileType);

impl FileType {
    /// Whether it stands for a device, by its numbers.
    pub const fn is_device(self) -> bool {
        matches!(self, FileType::BlockDevice | FileType::CharacterDevice)
    }

    /// Whether it is a mere name for the kernels of its clients, and has no contents.
    pub const fn is_special(self) -> bool {
        self.is_device() || matches!(self, FileType::Fifo | FileType::Socket)
    }
}

message! {
    /// The numbers of a device (`nasd_device`).
    #[derive(Copy, Default, Hash)]
    pub struct Device {
        /// Which driver.
        pub major: u32,
        /// Which of its devices.
        pub minor: u32,
    }
}

impl Device {
    /// What is no device.
    pub const NONE: Device = Device { major: 0, minor: 0 };
}

/// Which kinds of extended attributes a file has (the bits of `extended`): who knows that it has none
/// need not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Extended(pub u32);

impl Extended {
    /// None.
    pub const NONE: Extended = Extended(0);
    /// An access control list (`NASD_HAS_ACCESS_ACL`).
    pub const ACCESS_ACL: Extended = Extended(1);
    /// A list that files made in a directory begin with (`NASD_HAS_DEFAULT_ACL`).
    pub const DEFAULT_ACL: Extended = Extended(2);
    /// Others (`NASD_HAS_ATTRIBUTES`).
    pub const ATTRIBUTES: Extended = Extended(4);
    /// A list as AFS has it governs the file (`NASD_HAS_AFS_ACL`): the mode grants all that it grants to anybody.
    pub const AFS_ACL: Extended = Extended(8);
    /// The mode of the directory does not tell who may look names up (`NASD_NAMES_BY_CALLER`): the file manager is to be asked for each caller.
    pub const NAMES_BY_CALLER: Extended = Extended(16);

    /// Whether all of these are there.
    pub const fn has(self, kinds: Extended) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, kinds: Extended) -> Extended {
        Extended(self.0 | kinds.0)
    }
}

/// Unknown bits are kept: who does not know them asks.
impl Field for Extended {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.0);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Extended(input.u32()?))
    }
}

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
        /// Another one after each change of data: see `nasd_types::Attributes`.
        pub data_version: u64,
        /// When it was made.
        pub create_time: Timestamp,
        /// Which device it is.
        pub device: Device,
        /// Rises with each change of what the manager keeps of the file: who has attributes of two
        /// origins knows which are newer.
        pub revision: u64,
        /// Which extended attributes there are.
        pub extended: Extended,
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
