//! The bytes of a head: what the cache has of one file, and the checksums of it (`docs/cache-format.md`).

use crate::key::FileKey;
use crate::{CHUNK_BYTES, MAX_NOTE_BYTES, chunk_count};
use nasd_types::limits::MAX_OBJECT_BYTES;
use nasd_types::{CellId, DriveId, ObjectId, PartitionId};
use xxhash_rust::xxh3::xxh3_128;

const MAGIC: [u8; 4] = *b"NCHE";
const FORMAT: u16 = 1;
/// Where the note begins.
const NOTE_AT: usize = 72;
const ENTRY_BYTES: usize = 24;
const SUM_BYTES: usize = 16;

/// Longest head that is read, in bytes: that of a file of which 2.7 million chunks are there.
pub const MAX_HEAD_BYTES: u64 = 64 << 20;

/// What the cache has of one file, at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The cell of the cache.
    pub cell: CellId,
    /// The file.
    pub file: FileKey,
    /// The version that all of it is of.
    pub version: u64,
    /// The file's length under that version.
    pub length: u64,
    /// What the caller has noted, if he has.
    pub note: Vec<u8>,
    /// Numbers and checksums of the chunks that are there, in ascending order.
    pub chunks: Vec<(u64, u128)>,
}

/// The checksum of a chunk's contents.
pub fn checksum(contents: &[u8]) -> u128 {
    xxh3_128(contents)
}

impl Head {
    /// How long it is, in bytes.
    pub fn encoded_length(note: usize, chunks: usize) -> u64 {
        (NOTE_AT + note + chunks * ENTRY_BYTES + SUM_BYTES) as u64
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let length = Self::encoded_length(self.note.len(), self.chunks.len());
        let mut out = Vec::with_capacity(length as usize);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&(self.note.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.cell.0);
        out.extend_from_slice(&self.file.drive.0.to_le_bytes());
        out.extend_from_slice(&self.file.partition.0.to_le_bytes());
        out.extend_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&self.file.object.0.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&(self.chunks.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.note);
        for (number, sum) in &self.chunks {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&sum.to_le_bytes());
        }
        let sum = xxh3_128(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// The head that these bytes are; else what is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Head, &'static str> {
        let Some(end) = bytes.len().checked_sub(SUM_BYTES).filter(|end| *end >= NOTE_AT) else {
            return Err("it is too short");
        };
        if array::<4>(bytes, 0) != MAGIC {
            return Err("it does not begin as heads do");
        }
        if u16::from_le_bytes(array(bytes, 4)) != FORMAT {
            return Err("its format is unknown");
        }
        if u128::from_le_bytes(array(bytes, end)) != xxh3_128(&bytes[..end]) {
            return Err("its checksum is wrong");
        }
        if u64::from(u32::from_le_bytes(array(bytes, 36))) != CHUNK_BYTES {
            return Err("its chunks have another size");
        }
        let note = u16::from_le_bytes(array(bytes, 6)) as usize;
        let entries = word(bytes, 64);
        let length = word(bytes, 56);
        let room = end.checked_sub(NOTE_AT + note).ok_or("its note is too long")?;
        let fits = entries.checked_mul(ENTRY_BYTES as u64) == Some(room as u64);
        if note > MAX_NOTE_BYTES || !fits {
            return Err("its parts do not fill it");
        }
        let table = &bytes[NOTE_AT + note..end];
        let chunks: Vec<(u64, u128)> = table
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| (word(entry, 0), u128::from_le_bytes(array(entry, 8))))
            .collect();
        if length > MAX_OBJECT_BYTES {
            return Err("no file is as long");
        }
        let ascending = chunks.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ascending || chunks.last().is_some_and(|last| last.0 >= chunk_count(length)) {
            return Err("its chunks are not in order");
        }
        Ok(Head {
            cell: CellId(array(bytes, 8)),
            file: FileKey {
                drive: DriveId(word(bytes, 24)),
                partition: PartitionId(u32::from_le_bytes(array(bytes, 32))),
                object: ObjectId(word(bytes, 40)),
            },
            version: word(bytes, 48),
            length,
            note: bytes[NOTE_AT..NOTE_AT + note].to_vec(),
            chunks,
        })
    }
}

/// Bytes from a place that is there.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests;
