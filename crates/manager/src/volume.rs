//! The volume record: where a volume's name space begins, in a partition's First Object.
//!
//! ```text
//!  0  "NASDVOL2" (the last byte is the version)
//!  8  cell identifier, 16 bytes
//! 24  root directory's handle, 20 bytes        44  journal's handle, 20 bytes
//! 64  name length (u16)                        66  name, up to 255 bytes
//! 328 length of each of the journal's two areas (u64)
//! ..  zeros up to 512
//! ```
//!
//! Numbers are little-endian. The record is written once, in one durable write, after the objects
//! that it names are durable: a manager that dies before leaves at most two objects that nothing
//! names, and the next one begins anew.

use nasd_protocol::manager::FileHandle;
use nasd_types::CellId;
use nasd_types::limits::MAX_NAME_BYTES;
use thiserror::Error;

use crate::bytes::{Cursor, put_u16, put_u64, u16_at, u64_at};
use crate::handle;
use crate::journal::{MAX_AREA_BYTES, MIN_AREA_BYTES};

/// Bytes of the record.
pub const VOLUME_RECORD_BYTES: usize = 512;

const MAGIC: &[u8; 8] = b"NASDVOL2";
const AT_CELL: usize = 8;
const AT_ROOT: usize = 24;
const AT_LOG: usize = 44;
const AT_NAME_LENGTH: usize = 64;
const AT_NAME: usize = 66;
const AT_AREA: usize = 328;

const _: () = assert!(AT_NAME + MAX_NAME_BYTES <= AT_AREA);

/// What a First Object says of the volume that begins there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// The cell that it belongs to.
    pub cell: CellId,
    /// The volume's name, 1 to 255 bytes.
    pub name: Vec<u8>,
    /// Its root directory.
    pub root: FileHandle,
    /// Its journal.
    pub log: FileHandle,
    /// Length of each of the journal's two areas, in bytes.
    pub journal_area_bytes: usize,
}

/// A First Object that holds no volume record, or a bad one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VolumeError {
    /// Something else is in the object.
    #[error("the partition's First Object holds something that is not a volume record")]
    NotAVolume,
    /// Another version: an earlier one, whose changes went to an intent log, or a later one.
    #[error(
        "the volume record has version `{0}`, this program knows `2`: copy the files off with the \
         program that wrote it"
    )]
    UnknownVersion(char),
    /// A field has no meaning.
    #[error("the volume record is damaged: {0}")]
    Damaged(&'static str),
}

impl VolumeRecord {
    /// The bytes of the record; a name longer than allowed is cut.
    pub fn to_bytes(&self) -> [u8; VOLUME_RECORD_BYTES] {
        let mut bytes = [0; VOLUME_RECORD_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[AT_CELL..AT_ROOT].copy_from_slice(&self.cell.0);
        handle::put(&mut bytes, AT_ROOT, self.root);
        handle::put(&mut bytes, AT_LOG, self.log);
        let length = self.name.len().min(MAX_NAME_BYTES);
        put_u16(&mut bytes, AT_NAME_LENGTH, length as u16);
        bytes[AT_NAME..AT_NAME + length].copy_from_slice(&self.name[..length]);
        put_u64(&mut bytes, AT_AREA, self.journal_area_bytes as u64);
        bytes
    }

    /// From the First Object's data.
    ///
    /// # Errors
    /// `NotAVolume` where no record is, the others where one is that can't be understood.
    pub fn parse(data: &[u8]) -> Result<VolumeRecord, VolumeError> {
        if data.len() < MAGIC.len() || data[..7] != MAGIC[..7] {
            return Err(VolumeError::NotAVolume);
        }
        if data[7] != MAGIC[7] {
            return Err(VolumeError::UnknownVersion(char::from(data[7])));
        }
        if data.len() < VOLUME_RECORD_BYTES {
            return Err(VolumeError::Damaged("too short"));
        }
        let length = usize::from(u16_at(data, AT_NAME_LENGTH));
        if length == 0 || length > MAX_NAME_BYTES {
            return Err(VolumeError::Damaged("the name's length is out of range"));
        }
        let mut cell = CellId::default();
        cell.0.copy_from_slice(&data[AT_CELL..AT_ROOT]);
        let short = VolumeError::Damaged("too short");
        let mut handles = Cursor::new(&data[AT_ROOT..AT_NAME_LENGTH]);
        let root = handle::take(&mut handles).ok_or(short.clone())?;
        let log = handle::take(&mut handles).ok_or(short)?;
        let area = u64_at(data, AT_AREA);
        let journal_area_bytes = usize::try_from(area)
            .ok()
            .filter(|area| (MIN_AREA_BYTES..=MAX_AREA_BYTES).contains(area))
            .ok_or(VolumeError::Damaged("the journal's length is out of range"))?;
        let name = data[AT_NAME..AT_NAME + length].to_vec();
        Ok(VolumeRecord { cell, name, root, log, journal_area_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn sample() -> VolumeRecord {
        let handle = |object| FileHandle {
            drive: DriveId(0x1122_3344_5566_7788),
            partition: PartitionId(1),
            object: ObjectId(object),
        };
        VolumeRecord {
            cell: CellId([0xc0; 16]),
            name: b"home".to_vec(),
            root: handle(65),
            log: handle(64),
            journal_area_bytes: 0x40_0000,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let bytes = sample().to_bytes();
        let hex: String = bytes[..70].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4e415344564f4c32c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0\
             8877665544332211010000004100000000000000\
             8877665544332211010000004000000000000000\
             0400686f6d65"
        );
        assert!(crate::document::shows(&hex));
        assert_eq!(bytes[328..336], [0, 0, 0x40, 0, 0, 0, 0, 0]);
        assert_eq!(VolumeRecord::parse(&bytes), Ok(sample()));
    }

    #[test]
    fn other_contents_are_told_apart() {
        let bytes = sample().to_bytes();
        assert_eq!(VolumeRecord::parse(b""), Err(VolumeError::NotAVolume));
        assert_eq!(VolumeRecord::parse(&[0; 512]), Err(VolumeError::NotAVolume));
        assert!(matches!(VolumeRecord::parse(&bytes[..511]), Err(VolumeError::Damaged(_))));
        let mut later = bytes;
        later[7] = b'1';
        assert_eq!(VolumeRecord::parse(&later), Err(VolumeError::UnknownVersion('1')));
        let mut unnamed = bytes;
        unnamed[64] = 0;
        assert!(matches!(VolumeRecord::parse(&unnamed), Err(VolumeError::Damaged(_))));
        let mut huge = bytes;
        huge[335] = 1;
        assert!(matches!(VolumeRecord::parse(&huge), Err(VolumeError::Damaged(_))));
    }
}
