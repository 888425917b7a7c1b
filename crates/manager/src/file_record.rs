//! What the `fs_specific` attribute of a file's object holds: whatever a file has that the drive
//! does not keep by itself.
//!
//! ```text
//!  0  "NFSR"             4  version (u16)         6  type (u8)      7  zero
//!  8  mode (u32)        12  uid (u32)            16  gid (u32)     20  links (u32)
//! 24  access time (u64, nanoseconds since 1970)
//! 32  parent directory's handle, 20 bytes; zeros unless this is a directory
//! 52  zeros up to 256
//! ```
//!
//! Numbers are little-endian. A directory keeps the number of its links nowhere: it is 2 and one
//! for each entry that is a directory. Length, modification and change times are attributes of
//! the object that the drive keeps.

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::{FS_SPECIFIC_BYTES, FsSpecific, Timestamp};
use thiserror::Error;

use crate::bytes::{Cursor, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::handle;

/// First bytes of the record.
pub const MAGIC: [u8; 4] = *b"NFSR";

/// Version of the record.
pub const VERSION: u16 = 1;

/// Permission bits of a mode: set-user-ID, set-group-ID, sticky, and three times rwx.
pub const MODE_BITS: u32 = 0o7777;

const AT_VERSION: usize = 4;
const AT_TYPE: usize = 6;
const AT_MODE: usize = 8;
const AT_UID: usize = 12;
const AT_GID: usize = 16;
const AT_LINKS: usize = 20;
const AT_ACCESS_TIME: usize = 24;
const AT_PARENT: usize = 32;
const RECORD_BYTES: usize = AT_PARENT + handle::HANDLE_BYTES;

const _: () = assert!(RECORD_BYTES <= FS_SPECIFIC_BYTES);

/// A file's own attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// What kind of file it is.
    pub file_type: FileType,
    /// Permission bits, within [`MODE_BITS`].
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of the file; for a directory always 1 here, see the module.
    pub links: u32,
    /// As last set: reads go to the drives and don't move it.
    pub access_time: Timestamp,
    /// A directory's parent, the root's being itself; `None` for other files.
    pub parent: Option<FileHandle>,
}

/// Bytes that are no record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The object is not a file of a volume.
    #[error("the object is not a file")]
    NotAFile,
    /// Written by a later version.
    #[error("the file's record has version {0}, this program knows {VERSION}")]
    UnknownVersion(u16),
    /// A field has no meaning.
    #[error("the file's record is damaged: {0}")]
    Damaged(&'static str),
}

impl FileRecord {
    /// The bytes of the attribute.
    pub fn to_bytes(&self) -> Box<FsSpecific> {
        let mut bytes = Box::new([0; FS_SPECIFIC_BYTES]);
        let to = &mut bytes[..];
        to[..MAGIC.len()].copy_from_slice(&MAGIC);
        put_u16(to, AT_VERSION, VERSION);
        to[AT_TYPE] = handle::file_type_to_byte(self.file_type);
        put_u32(to, AT_MODE, self.mode);
        put_u32(to, AT_UID, self.uid);
        put_u32(to, AT_GID, self.gid);
        put_u32(to, AT_LINKS, self.links);
        put_u64(to, AT_ACCESS_TIME, self.access_time.0);
        if let Some(parent) = self.parent {
            handle::put(to, AT_PARENT, parent);
        }
        bytes
    }

    /// From the bytes of the attribute.
    ///
    /// # Errors
    /// `NotAFile` where no record is, the others where one is that can't be understood.
    pub fn parse(bytes: &FsSpecific) -> Result<FileRecord, RecordError> {
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(RecordError::NotAFile);
        }
        let version = u16_at(bytes, AT_VERSION);
        if version != VERSION {
            return Err(RecordError::UnknownVersion(version));
        }
        let file_type = handle::file_type_from_byte(bytes[AT_TYPE])
            .ok_or(RecordError::Damaged("unknown type"))?;
        let mode = u32_at(bytes, AT_MODE);
        if mode & !MODE_BITS != 0 {
            return Err(RecordError::Damaged("mode out of range"));
        }
        let links = u32_at(bytes, AT_LINKS);
        if links == 0 {
            return Err(RecordError::Damaged("no links"));
        }
        let parent = match file_type {
            FileType::Directory => handle::take(&mut Cursor::new(&bytes[AT_PARENT..RECORD_BYTES])),
            _ => None,
        };
        Ok(FileRecord {
            file_type,
            mode,
            uid: u32_at(bytes, AT_UID),
            gid: u32_at(bytes, AT_GID),
            links,
            access_time: Timestamp(u64_at(bytes, AT_ACCESS_TIME)),
            parent,
        })
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn sample() -> FileRecord {
        FileRecord {
            file_type: FileType::Directory,
            mode: 0o2755,
            uid: 1000,
            gid: 100,
            links: 1,
            access_time: Timestamp(0x0102_0304_0506_0708),
            parent: Some(FileHandle {
                drive: DriveId(0x1122_3344_5566_7788),
                partition: PartitionId(3),
                object: ObjectId(65),
            }),
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let bytes = sample().to_bytes();
        let hex: String = bytes[..52].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4e46535201000200ed050000e80300006400000001000000\
             0807060504030201\
             8877665544332211030000004100000000000000"
        );
        assert!(crate::document::shows(&hex));
        assert!(bytes[52..].iter().all(|byte| *byte == 0));
        assert_eq!(FileRecord::parse(&bytes), Ok(sample()));
    }

    #[test]
    fn damage_is_told_apart() {
        let parse = |change: &dyn Fn(&mut FsSpecific)| {
            let mut bytes = sample().to_bytes();
            change(&mut bytes);
            FileRecord::parse(&bytes)
        };
        assert_eq!(FileRecord::parse(&[0; 256]), Err(RecordError::NotAFile));
        assert_eq!(parse(&|bytes| bytes[4] = 2), Err(RecordError::UnknownVersion(2)));
        assert!(matches!(parse(&|bytes| bytes[6] = 0), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[10] = 1), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[20] = 0), Err(RecordError::Damaged(_))));
    }
}
