//! What the `fs_specific` attribute of a file's object holds: whatever a file has that the drive
//! does not keep by itself.
//!
//! ```text
//!  0  "NFSR"             4  version (u16)         6  type (u8)      7  zero
//!  8  mode (u32)        12  uid (u32)            16  gid (u32)     20  links (u32)
//! 24  access time (u64, nanoseconds since 1970)
//! 32  parent directory's handle, 20 bytes; zeros unless this is a directory
//! 52  revision (u64)
//! 60  a device's major number (u32), 64 its minor number (u32); zeros of what is no device
//! 68  attribute object (u64) on the same drive, 0 for none
//! 76  creation time (u64, nanoseconds since 1970; 0: the object's)
//! 84  bytes of lists and attributes that follow (u16); 86 these (`crate::xattr`); then zeros
//! ```
//!
//! In version 1, which is read as well, there are zeros from 52 on. What is written has version 2.
//!
//! Numbers are little-endian. A directory keeps the number of its links nowhere: it is 2 and one
//! for each entry that is a directory. Length, modification and change times are attributes of
//! the object that the drive keeps.

use nasd_afs::acl::Acl as AfsAcl;
use nasd_protocol::manager::{Device, FileHandle, FileType};
use nasd_types::{FS_SPECIFIC_BYTES, FsSpecific, ObjectId, Timestamp};
use thiserror::Error;

use crate::acl::Acl;
use crate::bytes::{Cursor, put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::handle;
use crate::xattr::{INLINE_BYTES, Inline};

/// First bytes of the record.
pub const MAGIC: [u8; 4] = *b"NFSR";

/// Version of the record.
pub const VERSION: u16 = 2;

/// The version before, which ends with the parent.
const FIRST_VERSION: u16 = 1;

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
const AT_REVISION: usize = AT_PARENT + handle::HANDLE_BYTES;
const AT_MAJOR: usize = 60;
const AT_MINOR: usize = 64;
const AT_ATTRIBUTE_OBJECT: usize = 68;
const AT_CREATE_TIME: usize = 76;
const AT_INLINE_BYTES: usize = 84;
const AT_INLINE: usize = 86;

const _: () = assert!(AT_INLINE + INLINE_BYTES == FS_SPECIFIC_BYTES);

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
    /// Rises with each change of the record.
    pub revision: u64,
    /// Which device it is; zeros of what is none.
    pub device: Device,
    /// Where its extended attributes are that do not fit here, on the same drive.
    pub attribute_object: Option<ObjectId>,
    /// When the file was made, out of an object that was there before; zero where the object
    /// was made with it.
    pub create_time: Timestamp,
    /// Its access control lists, and the other attributes if they fit.
    pub inline: Inline,
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
        put_u64(to, AT_REVISION, self.revision);
        put_u32(to, AT_MAJOR, self.device.major);
        put_u32(to, AT_MINOR, self.device.minor);
        put_u64(to, AT_ATTRIBUTE_OBJECT, self.attribute_object.map_or(0, |object| object.0));
        put_u64(to, AT_CREATE_TIME, self.create_time.0);
        let inline = self.inline.bytes();
        put_u16(to, AT_INLINE_BYTES, inline.len() as u16);
        to[AT_INLINE..AT_INLINE + inline.len()].copy_from_slice(inline);
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
        if version != VERSION && version != FIRST_VERSION {
            return Err(RecordError::UnknownVersion(version));
        }
        let file_type = handle::file_type_from_byte(bytes[AT_TYPE])
            .ok_or(RecordError::Damaged("unknown type"))?;
        let mode = u32_at(bytes, AT_MODE);
        if mode & !MODE_BITS != 0 {
            return Err(RecordError::Damaged("mode out of range"));
        }
        let links = u32_at(bytes, AT_LINKS);
        // A regular file that others have open may have lost its name.
        if links == 0 && file_type != FileType::Regular {
            return Err(RecordError::Damaged("no links"));
        }
        let parent = match file_type {
            FileType::Directory => handle::take(&mut Cursor::new(&bytes[AT_PARENT..AT_REVISION])),
            _ => None,
        };
        let record = FileRecord {
            file_type,
            mode,
            uid: u32_at(bytes, AT_UID),
            gid: u32_at(bytes, AT_GID),
            links,
            access_time: Timestamp(u64_at(bytes, AT_ACCESS_TIME)),
            parent,
            revision: 0,
            device: Device::NONE,
            attribute_object: None,
            create_time: Timestamp::default(),
            inline: Inline::EMPTY,
        };
        if version == FIRST_VERSION { Ok(record) } else { record.with_second_part(bytes) }
    }

    /// Adds what version 2 has more.
    fn with_second_part(self, bytes: &FsSpecific) -> Result<FileRecord, RecordError> {
        let device = Device { major: u32_at(bytes, AT_MAJOR), minor: u32_at(bytes, AT_MINOR) };
        if device != Device::NONE && !self.file_type.is_device() {
            return Err(RecordError::Damaged("a device's number of what is no device"));
        }
        let length = usize::from(u16_at(bytes, AT_INLINE_BYTES));
        let inline = bytes[AT_INLINE..].get(..length).and_then(Inline::parse);
        let inline = inline.ok_or(RecordError::Damaged("attributes without a meaning"))?;
        let object = u64_at(bytes, AT_ATTRIBUTE_OBJECT);
        let attribute_object = (object != 0).then_some(ObjectId(object));
        let revision = u64_at(bytes, AT_REVISION);
        let create_time = Timestamp(u64_at(bytes, AT_CREATE_TIME));
        Ok(FileRecord { revision, device, attribute_object, create_time, inline, ..self })
    }

    /// The record of a new file, with one name and nothing that is not given.
    pub fn new(file_type: FileType, mode: u32, (uid, gid): (u32, u32)) -> FileRecord {
        FileRecord {
            file_type,
            mode,
            uid,
            gid,
            links: 1,
            access_time: Timestamp::default(),
            parent: None,
            revision: 0,
            device: Device::NONE,
            attribute_object: None,
            create_time: Timestamp::default(),
            inline: Inline::EMPTY,
        }
    }

    /// The record to change: all as it is, with the next revision.
    #[must_use]
    pub fn next(&self) -> FileRecord {
        FileRecord { revision: self.revision.saturating_add(1), ..*self }
    }

    /// The handle of its attribute object, if the file lies at `handle`.
    pub fn attribute_handle(&self, handle: FileHandle) -> Option<FileHandle> {
        self.attribute_object.map(|object| FileHandle { object, ..handle })
    }

    /// Its access control list, if it has more than its mode.
    pub fn access_acl(&self) -> Option<Acl> {
        self.inline.access_acl(self.mode)
    }

    /// The list as AFS has it that governs it: a directory's own, or that of the directory of any other file.
    pub fn afs_acl(&self) -> Option<AfsAcl> {
        self.inline.afs_acl()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether another volume is seen there.
    pub fn is_mount_point(&self) -> bool {
        self.file_type == FileType::MountPoint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::{Attributes, pack};
    use nasd_types::{DriveId, PartitionId};

    fn sample() -> FileRecord {
        let acl = Acl { users: vec![(1000, 5)], mask: Some(7), ..Acl::of_mode(0o750) };
        let attributes = Attributes::from([(b"user.a".to_vec(), b"xy".to_vec())]);
        FileRecord {
            access_time: Timestamp(0x0102_0304_0506_0708),
            parent: Some(FileHandle {
                drive: DriveId(0x1122_3344_5566_7788),
                partition: PartitionId(3),
                object: ObjectId(65),
            }),
            revision: 9,
            create_time: Timestamp(0x0102_0304_0506_0700),
            inline: pack(Some(&acl), None, None, &attributes).unwrap().inline,
            ..FileRecord::new(FileType::Directory, 0o2755, (1000, 100))
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let bytes = sample().to_bytes();
        let hex: String = bytes[..107].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4e46535202000200ed050000e80300006400000001000000\
             0807060504030201\
             8877665544332211030000004100000000000000\
             09000000000000000000000000000000\
             00000000000000000007060504030201\
             1500\
             01080501e80300000500\
             030602757365722e617879"
        );
        assert!(crate::document::shows(&hex));
        assert!(bytes[107..].iter().all(|byte| *byte == 0));
        assert_eq!(FileRecord::parse(&bytes), Ok(sample()));
    }

    #[test]
    fn the_version_before_is_read() {
        let mut bytes = FileRecord { inline: Inline::EMPTY, ..sample() }.to_bytes();
        bytes[4] = 1;
        // What it has there means nothing.
        bytes[52..].fill(0xff);
        let read = FileRecord::parse(&bytes).unwrap();
        let create_time = Timestamp::default();
        assert_eq!(
            read,
            FileRecord { inline: Inline::EMPTY, revision: 0, create_time, ..sample() }
        );
        assert_eq!(read.to_bytes()[4], 2, "what is written is of this version");
    }

    #[test]
    fn every_field_survives() {
        let device = FileRecord {
            device: Device { major: 0xfff, minor: 0xf_ffff },
            attribute_object: Some(ObjectId(77)),
            ..FileRecord::new(FileType::CharacterDevice, 0o620, (1, 2))
        };
        let of_type = |file_type: &FileType| FileRecord {
            parent: sample().parent.filter(|_| *file_type == FileType::Directory),
            ..FileRecord::new(*file_type, 0o644, (3, 4))
        };
        let types = FileType::ALL.iter().map(of_type);
        for record in types.chain([device, device.next()]) {
            assert_eq!(FileRecord::parse(&record.to_bytes()), Ok(record));
        }
        assert_eq!(device.next().revision, 1);
    }

    #[test]
    fn damage_is_told_apart() {
        let parse = |change: &dyn Fn(&mut FsSpecific)| {
            let mut bytes = sample().to_bytes();
            change(&mut bytes);
            FileRecord::parse(&bytes)
        };
        assert_eq!(FileRecord::parse(&[0; 256]), Err(RecordError::NotAFile));
        assert_eq!(parse(&|bytes| bytes[4] = 3), Err(RecordError::UnknownVersion(3)));
        assert!(matches!(parse(&|bytes| bytes[6] = 0), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[10] = 1), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[20] = 0), Err(RecordError::Damaged(_))));
        let removed = FileRecord { links: 0, ..FileRecord::new(FileType::Regular, 0o644, (3, 4)) };
        assert_eq!(FileRecord::parse(&removed.to_bytes()), Ok(removed));
        assert!(matches!(parse(&|bytes| bytes[60] = 1), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[84] = 22), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[85] = 1), Err(RecordError::Damaged(_))));
        assert!(matches!(parse(&|bytes| bytes[86] = 4), Err(RecordError::Damaged(_))));
        for at in 52..256 {
            for value in [0, 1, 0x7f, 0xff] {
                // Damage may look like other attributes; nothing panics.
                let _ = parse(&|bytes| bytes[at] = value);
            }
        }
    }
}
