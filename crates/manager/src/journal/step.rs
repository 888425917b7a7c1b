//! The steps that changes are made of. Each assigns something absolute: doing it twice, or again after
//! later ones that touch other things, is as good as once.
//!
//! ```text
//! 1 set name       directory (20), block (u32), slot (u8), handle (20), type (u8), name length (u8), name
//! 2 remove name    directory (20), block (u32), slot (u8)
//! 3 set record     object (20), change time (u64), modification time + 1 (u64, 0: the drive's),
//!                  length (u16), the record's bytes without the zeros at its end
//! 4 set data       object (20), length (u16), bytes
//! 5 take           object (20)
//! 6 remove         object (20)
//! 7 making         drive (u64)
//! 8 made           drive (u64), highest (u64), count (u16), object (u64) each
//! 9 outcome        peer (u32), client (u64), number (u64), oldest (u64), handle (20, or zeros)
//! 10 home          (what the area before holds is home)
//! 11 session       client (u64)
//! 12 session ended client (u64)
//! 13 orphan        object (20)
//! 14 nameless      object (20)
//! 15 named         object (20)
//! 16 governing     directory (20), revision (u64)
//! 17 governed      directory (20), revision (u64)
//! each behind its number (u8)
//! ```

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::{MAX_NAME_BYTES, MAX_SYMLINK_BYTES};
use nasd_types::{DriveId, FS_SPECIFIC_BYTES, FsSpecific, ObjectId, Timestamp};
use thiserror::Error;

use crate::bytes::Cursor;
use crate::directory::is_valid_name;
use crate::handle::{self, HANDLE_BYTES};

/// Most objects of one [`Step::Made`].
pub const MAX_MADE: usize = 4096;

/// Most bytes of one step.
pub const MAX_STEP_BYTES: usize = 1 + 8 + 8 + 2 + 8 * MAX_MADE;

const _: () = assert!(MAX_STEP_BYTES > 1 + HANDLE_BYTES + 2 + MAX_SYMLINK_BYTES);

/// A request that a client made once, however often it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestKey {
    /// The number of the peer's certificate.
    pub peer: u32,
    /// The number that the client drew for itself.
    pub client: u64,
    /// The request's number, which rises.
    pub number: u64,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// This slot of a directory holds this name.
    SetName {
        /// Which directory.
        directory: FileHandle,
        /// Which of its blocks.
        block: u32,
        /// Which of the block's slots.
        slot: u8,
        /// What it names.
        handle: FileHandle,
        /// What that is.
        file_type: FileType,
        /// The name.
        name: Vec<u8>,
    },
    /// This slot of a directory holds no name.
    RemoveName {
        /// Which directory.
        directory: FileHandle,
        /// Which of its blocks.
        block: u32,
        /// Which of the block's slots.
        slot: u8,
    },
    /// A file's record, and the times that go with it.
    SetRecord {
        /// Which file.
        object: FileHandle,
        /// When the record, or a directory's contents, were changed.
        changed: Timestamp,
        /// When its contents were changed, of what only the manager writes; `None` of a regular file.
        modified: Option<Timestamp>,
        /// The `fs_specific` attribute.
        record: Box<FsSpecific>,
    },
    /// An object's data, all of them.
    SetData {
        /// Which object.
        object: FileHandle,
        /// Its bytes, at most [`MAX_SYMLINK_BYTES`].
        data: Vec<u8>,
    },
    /// An object that was made ahead is a file now.
    Take {
        /// Which.
        object: FileHandle,
    },
    /// An object is no longer needed.
    Remove {
        /// Which.
        object: FileHandle,
    },
    /// Objects are about to be made ahead on a drive; their numbers are not known yet.
    Making {
        /// Where.
        drive: DriveId,
    },
    /// These were made ahead; nothing else is being made there.
    Made {
        /// Where.
        drive: DriveId,
        /// The highest number of all that were ever made there.
        highest: ObjectId,
        /// Which, at most [`MAX_MADE`].
        objects: Vec<ObjectId>,
    },
    /// A request was executed.
    Outcome {
        /// Which.
        request: RequestKey,
        /// Requests of the client below this number will not come again.
        oldest: u64,
        /// The file that the answer is about, if any.
        handle: Option<FileHandle>,
    },
    /// What the area before this one holds is where it belongs, or said again in this one.
    Home,
    /// A client has a session: it may hold locks, leases, and removed files open.
    Session {
        /// The number that it drew for itself.
        client: u64,
    },
    /// A client's session has ended.
    SessionEnded {
        /// Its number.
        client: u64,
    },
    /// A file has no name any more, and stays until nobody has it open.
    Orphan {
        /// Which.
        object: FileHandle,
    },
    /// It was made without a name, is there as long as an orphan, and may get a name.
    Nameless {
        /// Which file.
        object: FileHandle,
    },
    /// It has a name now.
    Named {
        /// Which file.
        object: FileHandle,
    },
    /// A directory's list as AFS has it was set, and the files in it are to get it.
    Governing {
        /// Which directory.
        directory: FileHandle,
        /// Of its record.
        revision: u64,
    },
    /// They have it: that of this revision, at least.
    Governed {
        /// Which directory.
        directory: FileHandle,
        /// Of its record.
        revision: u64,
    },
}

/// A step that can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StepError {
    /// A number that stands for no step.
    #[error("step {0} is not known")]
    Unknown(u8),
    /// A field has no meaning.
    #[error("a step of kind {kind} is damaged")]
    Damaged {
        /// The step's number.
        kind: u8,
    },
}

impl Step {
    /// Adds the bytes of the step. Longer names, data and lists than allowed are cut.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Step::SetName { directory, block, slot, handle, file_type, name } => {
                put_place(out, 1, *directory, *block, *slot);
                push_handle(out, *handle);
                out.push(handle::file_type_to_byte(*file_type));
                let name = &name[..name.len().min(MAX_NAME_BYTES)];
                out.push(name.len() as u8);
                out.extend_from_slice(name);
            }
            Step::RemoveName { directory, block, slot } => {
                put_place(out, 2, *directory, *block, *slot);
            }
            Step::SetRecord { object, changed, modified, record } => {
                put_object(out, 3, *object);
                out.extend_from_slice(&changed.0.to_le_bytes());
                let modified = modified.map_or(0, |modified| modified.0.saturating_add(1));
                out.extend_from_slice(&modified.to_le_bytes());
                let used = record.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
                put_bytes(out, &record[..used]);
            }
            Step::SetData { object, data } => {
                put_object(out, 4, *object);
                put_bytes(out, &data[..data.len().min(MAX_SYMLINK_BYTES)]);
            }
            Step::Take { object } => put_object(out, 5, *object),
            Step::Remove { object } => put_object(out, 6, *object),
            Step::Making { drive } => {
                out.push(7);
                out.extend_from_slice(&drive.0.to_le_bytes());
            }
            Step::Made { drive, highest, objects } => {
                let objects = &objects[..objects.len().min(MAX_MADE)];
                out.push(8);
                out.extend_from_slice(&drive.0.to_le_bytes());
                out.extend_from_slice(&highest.0.to_le_bytes());
                out.extend_from_slice(&(objects.len() as u16).to_le_bytes());
                objects.iter().for_each(|object| out.extend_from_slice(&object.0.to_le_bytes()));
            }
            Step::Outcome { request, oldest, handle } => {
                out.push(9);
                out.extend_from_slice(&request.peer.to_le_bytes());
                for number in [request.client, request.number, *oldest] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                push_handle(out, handle.unwrap_or(NO_HANDLE));
            }
            Step::Home => out.push(10),
            Step::Session { client } => put_client(out, 11, *client),
            Step::SessionEnded { client } => put_client(out, 12, *client),
            Step::Orphan { object } => put_object(out, 13, *object),
            Step::Nameless { object } => put_object(out, 14, *object),
            Step::Named { object } => put_object(out, 15, *object),
            Step::Governing { directory, revision } => {
                put_object(out, 16, *directory);
                out.extend_from_slice(&revision.to_le_bytes());
            }
            Step::Governed { directory, revision } => {
                put_object(out, 17, *directory);
                out.extend_from_slice(&revision.to_le_bytes());
            }
        }
    }

    /// The bytes of several steps.
    pub fn encode_all<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<u8> {
        let mut bytes = Vec::new();
        steps.into_iter().for_each(|step| step.encode(&mut bytes));
        bytes
    }

    /// Where to cut steps of more than `limit` bytes so that the first part has as many of them as
    /// fit, or one; `None` if all fit.
    pub fn boundary(bytes: &[u8], limit: usize) -> Option<usize> {
        if bytes.len() <= limit {
            return None;
        }
        let mut cursor = Cursor::new(bytes);
        let mut last = 0;
        while let Some(kind) = cursor.u8() {
            take_step(kind, &mut cursor)?;
            let at = bytes.len() - cursor.left();
            if at > limit && last > 0 {
                return Some(last);
            }
            last = at;
        }
        None
    }

    /// All steps in these bytes.
    ///
    /// # Errors
    /// What is wrong with the first one that can't be understood.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Step>, StepError> {
        let mut cursor = Cursor::new(bytes);
        let mut steps = Vec::new();
        while let Some(kind) = cursor.u8() {
            if !(1..=LAST_KIND).contains(&kind) {
                return Err(StepError::Unknown(kind));
            }
            steps.push(take_step(kind, &mut cursor).ok_or(StepError::Damaged { kind })?);
        }
        Ok(steps)
    }
}

/// The highest number of a step.
const LAST_KIND: u8 = 17;

const NO_HANDLE: FileHandle =
    FileHandle { drive: DriveId(0), partition: nasd_types::PartitionId(0), object: ObjectId(0) };

fn push_handle(out: &mut Vec<u8>, handle: FileHandle) {
    let at = out.len();
    out.resize(at + HANDLE_BYTES, 0);
    handle::put(out, at, handle);
}

fn put_object(out: &mut Vec<u8>, kind: u8, object: FileHandle) {
    out.push(kind);
    push_handle(out, object);
}

fn put_client(out: &mut Vec<u8>, kind: u8, client: u64) {
    out.push(kind);
    out.extend_from_slice(&client.to_le_bytes());
}

fn put_place(out: &mut Vec<u8>, kind: u8, directory: FileHandle, block: u32, slot: u8) {
    put_object(out, kind, directory);
    out.extend_from_slice(&block.to_le_bytes());
    out.push(slot);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let length = usize::from(cursor.u16()?);
    cursor.take(length)
}

fn take_step(kind: u8, cursor: &mut Cursor<'_>) -> Option<Step> {
    Some(match kind {
        1 => take_set_name(cursor)?,
        2 => {
            let directory = handle::take(cursor)?;
            Step::RemoveName { directory, block: cursor.u32()?, slot: cursor.u8()? }
        }
        3 => {
            let object = handle::take(cursor)?;
            let (changed, modified) = (Timestamp(cursor.u64()?), cursor.u64()?);
            let modified = modified.checked_sub(1).map(Timestamp);
            let used = take_bytes(cursor).filter(|used| used.last() != Some(&0))?;
            let mut record = Box::new([0; FS_SPECIFIC_BYTES]);
            record.get_mut(..used.len())?.copy_from_slice(used);
            Step::SetRecord { object, changed, modified, record }
        }
        4 => {
            let object = handle::take(cursor)?;
            let data = take_bytes(cursor).filter(|data| data.len() <= MAX_SYMLINK_BYTES)?;
            Step::SetData { object, data: data.to_vec() }
        }
        5 => Step::Take { object: handle::take(cursor)? },
        6 => Step::Remove { object: handle::take(cursor)? },
        7 => Step::Making { drive: DriveId(cursor.u64()?) },
        8 => {
            let (drive, highest) = (DriveId(cursor.u64()?), ObjectId(cursor.u64()?));
            let count = usize::from(cursor.u16()?);
            if count > MAX_MADE {
                return None;
            }
            let objects = (0..count).map(|_| cursor.u64().map(ObjectId)).collect::<Option<_>>()?;
            Step::Made { drive, highest, objects }
        }
        9 => {
            let peer = cursor.u32()?;
            let (client, number) = (cursor.u64()?, cursor.u64()?);
            let oldest = cursor.u64()?;
            let handle = Some(handle::take(cursor)?).filter(|handle| *handle != NO_HANDLE);
            Step::Outcome { request: RequestKey { peer, client, number }, oldest, handle }
        }
        10 => Step::Home,
        11 => Step::Session { client: cursor.u64()? },
        12 => Step::SessionEnded { client: cursor.u64()? },
        13 => Step::Orphan { object: handle::take(cursor)? },
        14 => Step::Nameless { object: handle::take(cursor)? },
        15 => Step::Named { object: handle::take(cursor)? },
        16 => Step::Governing { directory: handle::take(cursor)?, revision: cursor.u64()? },
        17 => Step::Governed { directory: handle::take(cursor)?, revision: cursor.u64()? },
        _ => return None,
    })
}

fn take_set_name(cursor: &mut Cursor<'_>) -> Option<Step> {
    let directory = handle::take(cursor)?;
    let (block, slot) = (cursor.u32()?, cursor.u8()?);
    let handle = handle::take(cursor)?;
    let file_type = handle::file_type_from_byte(cursor.u8()?)?;
    let length = usize::from(cursor.u8()?);
    let name = cursor.take(length).filter(|name| is_valid_name(name))?.to_vec();
    Some(Step::SetName { directory, block, slot, handle, file_type, name })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nasd_types::PartitionId;

    pub(in crate::journal) fn handle(object: u64) -> FileHandle {
        FileHandle { drive: DriveId(1), partition: PartitionId(2), object: ObjectId(object) }
    }

    pub(in crate::journal) fn all_steps() -> Vec<Step> {
        let mut record = Box::new([0; FS_SPECIFIC_BYTES]);
        record[..80].fill(7);
        vec![
            Step::SetName {
                directory: handle(1),
                block: 0x0102_0304,
                slot: 5,
                handle: handle(2),
                file_type: FileType::Directory,
                name: vec![b'n'; 255],
            },
            Step::RemoveName { directory: handle(3), block: 9, slot: 255 },
            Step::SetRecord {
                object: handle(2),
                changed: Timestamp(5),
                modified: Some(Timestamp(6)),
                record,
            },
            Step::SetRecord {
                object: handle(2),
                changed: Timestamp(5),
                modified: None,
                record: Box::new([1; FS_SPECIFIC_BYTES]),
            },
            Step::SetData { object: handle(2), data: vec![b'd'; MAX_SYMLINK_BYTES] },
            Step::Take { object: handle(2) },
            Step::Remove { object: handle(9) },
            Step::Making { drive: DriveId(4) },
            Step::Made {
                drive: DriveId(4),
                highest: ObjectId(70),
                objects: vec![ObjectId(65), ObjectId(70)],
            },
            Step::Outcome {
                request: RequestKey { peer: 1, client: 2, number: 3 },
                oldest: 2,
                handle: Some(handle(2)),
            },
            Step::Outcome {
                request: RequestKey { peer: 1, client: 2, number: 4 },
                oldest: 2,
                handle: None,
            },
            Step::Home,
            Step::Session { client: 5 },
            Step::Session { client: 6 },
            Step::SessionEnded { client: 5 },
            Step::Orphan { object: handle(11) },
            Step::Nameless { object: handle(12) },
            Step::Named { object: handle(12) },
            Step::Governing { directory: handle(13), revision: 1 << 40 },
            Step::Governing { directory: handle(14), revision: 7 },
            Step::Governed { directory: handle(13), revision: 1 << 40 },
        ]
    }

    #[test]
    fn steps_survive() {
        let bytes = Step::encode_all(&all_steps());
        assert_eq!(Step::decode_all(&bytes), Ok(all_steps()));
        assert_eq!(Step::decode_all(&[]), Ok(Vec::new()));
        for step in all_steps() {
            let bytes = Step::encode_all([&step]);
            assert!(bytes.len() <= MAX_STEP_BYTES);
            for length in 1..bytes.len() {
                assert!(Step::decode_all(&bytes[..length]).is_err(), "{step:?} cut to {length}");
            }
        }
    }

    #[test]
    fn what_is_no_step_is_refused() {
        assert_eq!(Step::decode_all(&[0]), Err(StepError::Unknown(0)));
        assert_eq!(Step::decode_all(&[18]), Err(StepError::Unknown(18)));
        let name = Step::SetName {
            directory: handle(1),
            block: 0,
            slot: 0,
            handle: handle(2),
            file_type: FileType::Regular,
            name: b"a".to_vec(),
        };
        let bytes = Step::encode_all([&name]);
        let damaged = |at: usize, value: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            Step::decode_all(&bytes)
        };
        assert_eq!(damaged(46, 0xff), Err(StepError::Damaged { kind: 1 }), "the type");
        assert_eq!(damaged(48, b'/'), Err(StepError::Damaged { kind: 1 }), "the name");
        let mut long = Step::encode_all([&Step::SetData { object: handle(1), data: vec![0; 9] }]);
        long[21..23].copy_from_slice(&4096u16.to_le_bytes());
        long.resize(23 + 4096, 0);
        assert_eq!(Step::decode_all(&long), Err(StepError::Damaged { kind: 4 }));
    }
}
