//! File handles and types as the manager's formats on the drives keep them.

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId};

use crate::bytes::{Cursor, put_u32, put_u64};

/// Bytes of a handle: drive (8), partition (4), object (8), little-endian.
pub const HANDLE_BYTES: usize = 20;

/// Writes a handle at `at`.
pub fn put(bytes: &mut [u8], at: usize, handle: FileHandle) {
    put_u64(bytes, at, handle.drive.0);
    put_u32(bytes, at + 8, handle.partition.0);
    put_u64(bytes, at + 12, handle.object.0);
}

/// Takes a handle.
pub fn take(cursor: &mut Cursor<'_>) -> Option<FileHandle> {
    Some(FileHandle {
        drive: DriveId(cursor.u64()?),
        partition: PartitionId(cursor.u32()?),
        object: ObjectId(cursor.u64()?),
    })
}

/// The object's name within its drive.
pub fn object_name(handle: FileHandle) -> ObjectName {
    ObjectName { partition: handle.partition, object: handle.object }
}

/// The number of a type.
pub fn file_type_to_byte(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::Symlink => 3,
        FileType::Fifo => 4,
        FileType::Socket => 5,
        FileType::BlockDevice => 6,
        FileType::CharacterDevice => 7,
        FileType::MountPoint => 8,
    }
}

/// The type with that number.
pub fn file_type_from_byte(byte: u8) -> Option<FileType> {
    match byte {
        1 => Some(FileType::Regular),
        2 => Some(FileType::Directory),
        3 => Some(FileType::Symlink),
        4 => Some(FileType::Fifo),
        5 => Some(FileType::Socket),
        6 => Some(FileType::BlockDevice),
        7 => Some(FileType::CharacterDevice),
        8 => Some(FileType::MountPoint),
        _ => None,
    }
}

/// A handle for messages to people: drive, partition and object.
pub struct Shown(pub FileHandle);

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0.drive, object_name(self.0))
    }
}
