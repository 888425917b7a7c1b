//! The intent log: changes of several objects that must happen together.
//!
//! The log is an object of [`SLOTS`] slots of 4096 bytes, one for each change under way. A change
//! is written to a free slot, durably, before its first step is done; from then on it is decided,
//! and whoever finds it there does its steps and clears the slot. Every step may be done again.
//!
//! ```text
//!  0  "NINT"        4  version (u16)      6  number of steps (u16), 0 in a clear slot
//!  8  length of the steps in bytes (u32)  12  zero (u32)
//! 16  the steps, one after the other:
//!     1 set entry      directory (20), handle (20), type (u8), name length (u8), name
//!     2 remove entry   directory (20), handle (20), name length (u8), name
//!     3 set record     object (20), record (256)
//!     4 remove object  object (20)
//!     each behind its number (u8)
//! ..  zeros
//! ```
//!
//! Numbers are little-endian. A slot that was never written, behind the object's end or all
//! zeros, is clear.

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::{BLOCK_BYTES, MAX_NAME_BYTES};
use nasd_types::{FS_SPECIFIC_BYTES, FsSpecific};
use thiserror::Error;

use crate::bytes::{Cursor, put_u16, put_u32, u16_at, u32_at};
use crate::directory::is_valid_name;
use crate::handle::{self, HANDLE_BYTES};

/// Changes that can be under way at a time.
pub const SLOTS: usize = 64;

/// Bytes of a slot.
pub const SLOT_BYTES: usize = BLOCK_BYTES;

/// Most steps of a change.
pub const MAX_STEPS: usize = 6;

const MAGIC: [u8; 4] = *b"NINT";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 16;

/// Bytes of the longest step.
const LONGEST_STEP: usize = 1 + 2 * HANDLE_BYTES + 2 + MAX_NAME_BYTES;

const _: () = assert!(LONGEST_STEP > 1 + HANDLE_BYTES + FS_SPECIFIC_BYTES);
const _: () = assert!(HEAD_BYTES + MAX_STEPS * LONGEST_STEP <= SLOT_BYTES);

/// One step of a change. Doing it twice is as good as once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make `name` in `directory` name `handle`, whatever it named before.
    SetEntry {
        /// Where.
        directory: FileHandle,
        /// The name.
        name: Vec<u8>,
        /// What it shall name.
        handle: FileHandle,
        /// What that is.
        file_type: FileType,
    },
    /// Remove `name` from `directory`, if it names `handle`.
    RemoveEntry {
        /// Where.
        directory: FileHandle,
        /// The name.
        name: Vec<u8>,
        /// What it names.
        handle: FileHandle,
    },
    /// Set a file's record.
    SetRecord {
        /// Which file.
        object: FileHandle,
        /// Its `fs_specific` attribute.
        record: Box<FsSpecific>,
    },
    /// Remove an object that nothing names any more.
    RemoveObject {
        /// Which.
        object: FileHandle,
    },
}

impl Step {
    /// The file or directory that the step changes.
    pub fn subject(&self) -> FileHandle {
        match self {
            Step::SetEntry { directory, .. } | Step::RemoveEntry { directory, .. } => *directory,
            Step::SetRecord { object, .. } | Step::RemoveObject { object } => *object,
        }
    }
}

/// A slot that can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IntentError {
    /// Something else is in the log.
    #[error("the intent log holds something else")]
    NotAnIntent,
    /// A later version.
    #[error("the intent log has version {0}, this program knows {VERSION}")]
    UnknownVersion(u16),
    /// A field has no meaning.
    #[error("the intent log is damaged")]
    Damaged,
}

/// The bytes of a slot with these steps, at most [`MAX_STEPS`]; without any, of a clear slot.
pub fn encode(steps: &[Step]) -> Box<[u8; SLOT_BYTES]> {
    let mut bytes = Box::new([0; SLOT_BYTES]);
    let mut body = Vec::with_capacity(SLOT_BYTES);
    for step in &steps[..steps.len().min(MAX_STEPS)] {
        encode_step(step, &mut body);
    }
    bytes[..4].copy_from_slice(&MAGIC);
    put_u16(&mut bytes[..], 4, VERSION);
    put_u16(&mut bytes[..], 6, steps.len() as u16);
    put_u32(&mut bytes[..], 8, body.len() as u32);
    bytes[HEAD_BYTES..HEAD_BYTES + body.len()].copy_from_slice(&body);
    bytes
}

fn encode_step(step: &Step, out: &mut Vec<u8>) {
    match step {
        Step::SetEntry { directory, name, handle, file_type } => {
            out.push(1);
            push_handle(out, *directory);
            push_handle(out, *handle);
            out.push(handle::file_type_to_byte(*file_type));
            push_name(out, name);
        }
        Step::RemoveEntry { directory, name, handle } => {
            out.push(2);
            push_handle(out, *directory);
            push_handle(out, *handle);
            push_name(out, name);
        }
        Step::SetRecord { object, record } => {
            out.push(3);
            push_handle(out, *object);
            out.extend_from_slice(&record[..]);
        }
        Step::RemoveObject { object } => {
            out.push(4);
            push_handle(out, *object);
        }
    }
}

fn push_handle(out: &mut Vec<u8>, handle: FileHandle) {
    let at = out.len();
    out.resize(at + HANDLE_BYTES, 0);
    handle::put(out, at, handle);
}

fn push_name(out: &mut Vec<u8>, name: &[u8]) {
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    out.push(name.len() as u8);
    out.extend_from_slice(name);
}

/// The steps in a slot; none in a clear one.
///
/// # Errors
/// What is wrong with the slot.
pub fn decode(bytes: &[u8]) -> Result<Vec<Step>, IntentError> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(Vec::new());
    }
    if bytes.len() < HEAD_BYTES || bytes[..4] != MAGIC {
        return Err(IntentError::NotAnIntent);
    }
    let version = u16_at(bytes, 4);
    if version != VERSION {
        return Err(IntentError::UnknownVersion(version));
    }
    let (count, length) = (usize::from(u16_at(bytes, 6)), u32_at(bytes, 8) as usize);
    let body = bytes[HEAD_BYTES..].get(..length).ok_or(IntentError::Damaged)?;
    if count > MAX_STEPS {
        return Err(IntentError::Damaged);
    }
    let mut cursor = Cursor::new(body);
    let steps: Option<Vec<Step>> = (0..count).map(|_| decode_step(&mut cursor)).collect();
    match steps {
        Some(steps) if cursor.is_empty() => Ok(steps),
        _ => Err(IntentError::Damaged),
    }
}

fn decode_step(cursor: &mut Cursor<'_>) -> Option<Step> {
    Some(match cursor.u8()? {
        1 => {
            let (directory, handle) = (handle::take(cursor)?, handle::take(cursor)?);
            let file_type = handle::file_type_from_byte(cursor.u8()?)?;
            Step::SetEntry { directory, name: take_name(cursor)?, handle, file_type }
        }
        2 => {
            let (directory, handle) = (handle::take(cursor)?, handle::take(cursor)?);
            Step::RemoveEntry { directory, name: take_name(cursor)?, handle }
        }
        3 => {
            let object = handle::take(cursor)?;
            let record = cursor.take(FS_SPECIFIC_BYTES)?.try_into().ok()?;
            Step::SetRecord { object, record: Box::new(record) }
        }
        4 => Step::RemoveObject { object: handle::take(cursor)? },
        _ => return None,
    })
}

fn take_name(cursor: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let length = usize::from(cursor.u8()?);
    cursor.take(length).filter(|name| is_valid_name(name)).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};

    fn handle(object: u64) -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(2), object: ObjectId(object) }
    }

    fn all_steps() -> Vec<Step> {
        vec![
            Step::SetEntry {
                directory: handle(1),
                name: vec![b'n'; 255],
                handle: handle(2),
                file_type: FileType::Directory,
            },
            Step::RemoveEntry { directory: handle(3), name: b"x".to_vec(), handle: handle(2) },
            Step::SetRecord { object: handle(2), record: Box::new([7; 256]) },
            Step::RemoveObject { object: handle(9) },
        ]
    }

    #[test]
    fn steps_survive() {
        let bytes = encode(&all_steps());
        assert_eq!(decode(&bytes[..]), Ok(all_steps()));
        assert_eq!(decode(&encode(&[])[..]), Ok(Vec::new()));
        assert_eq!(decode(&[0; SLOT_BYTES]), Ok(Vec::new()));
        assert_eq!(decode(&[]), Ok(Vec::new()));
    }

    #[test]
    fn the_head_is_that_of_the_document() {
        let bytes = encode(&[Step::RemoveObject { object: handle(0x41) }]);
        let hex: String = bytes[..37].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "4e494e54010001001500000000000000\
             040100000000000000020000004100000000000000"
        );
        assert!(crate::document::shows(&hex));
    }

    #[test]
    fn no_damage_panics() {
        let good = encode(&all_steps());
        assert_eq!(decode(&[1; 64]), Err(IntentError::NotAnIntent));
        for at in 0..900 {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                // Damage of a handle or a record can't be seen; all else must be an error.
                let _ = decode(&bytes[..]);
            }
        }
        for length in [1, 15, 16, 17, 100] {
            assert!(decode(&good[..length]).is_err());
        }
        let mut counted = good.clone();
        counted[6] = 7;
        assert_eq!(decode(&counted[..]), Err(IntentError::Damaged));
        let mut later = good;
        later[4] = 2;
        assert_eq!(decode(&later[..]), Err(IntentError::UnknownVersion(2)));
    }
}
