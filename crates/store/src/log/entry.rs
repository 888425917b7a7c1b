//! Entries of the log: changes behind a header (docs/on-disk-format.md, section 4). Pure.

use super::change::Change;
use crate::layout::layout;

/// The first bytes of an entry.
pub(crate) const MAGIC: [u8; 8] = *b"NASDlog2";

layout! {
    /// The header of an entry.
    pub(crate) mod log_entry {
        MAGIC: 8,
        CHECKSUM: 4,
        ENTRY_BYTES: 4,
        LOG_KEY: 8,
        SEQUENCE: 8,
        CHANGES: 4,
        RESERVED: 4,
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    /// Header and changes, without the padding.
    pub(crate) bytes: usize,
}

fn checksum(entry: &[u8]) -> u32 {
    let field = log_entry::CHECKSUM;
    let sum = crc32c::crc32c(&entry[..field.offset]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &entry[field.offset + field.size..])
}

/// The entry's bytes, without padding.
pub(crate) fn encode(key: u64, sequence: u64, changes: &[Change]) -> Vec<u8> {
    let mut entry = vec![0; log_entry::BYTES];
    for change in changes {
        change.encode(&mut entry);
    }
    let bytes = entry.len() as u32;
    log_entry::MAGIC.put(&mut entry, &MAGIC);
    log_entry::ENTRY_BYTES.put(&mut entry, &bytes.to_le_bytes());
    log_entry::LOG_KEY.put(&mut entry, &key.to_le_bytes());
    log_entry::SEQUENCE.put(&mut entry, &sequence.to_le_bytes());
    log_entry::CHANGES.put(&mut entry, &(changes.len() as u32).to_le_bytes());
    let sum = checksum(&entry);
    log_entry::CHECKSUM.put(&mut entry, &sum.to_le_bytes());
    entry
}

/// Reads the header at the start of `bytes`, if it is one of this log's entries.
pub(crate) fn parse_header(key: u64, bytes: &[u8]) -> Option<Header> {
    if bytes.len() < log_entry::BYTES || log_entry::MAGIC.of(bytes) != MAGIC {
        return None;
    }
    let length = log_entry::ENTRY_BYTES.u32(bytes) as usize;
    let own = log_entry::LOG_KEY.u64(bytes) == key;
    (own && length >= log_entry::BYTES)
        .then(|| Header { sequence: log_entry::SEQUENCE.u64(bytes), bytes: length })
}

/// Whether `entry`, which is as long as its header says, is whole.
pub(crate) fn is_whole(entry: &[u8]) -> bool {
    log_entry::CHECKSUM.u32(entry) == checksum(entry)
}

/// The changes of a whole entry, or what is wrong with them.
pub(crate) fn decode(entry: &[u8]) -> Result<Vec<Change>, String> {
    if !log_entry::RESERVED.is_zero(entry) {
        return Err("a reserved byte is not zero".to_owned());
    }
    let count = log_entry::CHANGES.u32(entry);
    let mut input = &entry[log_entry::BYTES..];
    let mut changes = Vec::new();
    while !input.is_empty() {
        changes.push(Change::decode(&mut input).map_err(|error| error.to_string())?);
    }
    if changes.len() as u64 != u64::from(count) {
        return Err("the number of changes is another one".to_owned());
    }
    Ok(changes)
}
