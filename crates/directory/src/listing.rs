//! All names of a directory, from the bytes of its object.

use std::collections::HashSet;

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::ObjectId;
use nasd_types::limits::BLOCK_BYTES;

use crate::{DirectoryBlock, DirectoryError};

/// Cookies 1 and 2 are left to clients, for `.` and `..`; 0 is the beginning.
pub const RESERVED_COOKIES: u64 = 2;

/// A directory has no more blocks than can be numbered in a cookie.
const MAX_BLOCKS: u64 = u32::MAX as u64;

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Continue after this entry by giving its cookie back. Good as long as the entry lives.
    pub cookie: u64,
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub handle: FileHandle,
    /// The named file's type.
    pub file_type: FileType,
}

/// The cookie of an entry in this slot of this block.
pub const fn cookie(block: u32, slot: u8) -> u64 {
    ((block as u64) << 8 | slot as u64) + RESERVED_COOKIES + 1
}

/// The entries of a whole directory object, in the order of their cookies. Blocks of zeros, which were never written, have none.
///
/// # Errors
/// What is wrong with the bytes, and in which block.
pub fn parse_listing(object: ObjectId, data: &[u8]) -> Result<Vec<Listed>, DirectoryError> {
    let length = data.len() as u64;
    let (blocks, []) = data.as_chunks::<BLOCK_BYTES>() else {
        return Err(DirectoryError::PartialBlock { length });
    };
    if blocks.len() as u64 > MAX_BLOCKS {
        return Err(DirectoryError::TooLarge { blocks: blocks.len() as u64 });
    }
    let mut listed: Vec<Listed> = Vec::new();
    for (number, bytes) in (0_u32..).zip(blocks) {
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let block = DirectoryBlock::parse(object, number, bytes)?;
        listed.extend(block.entries().map(|(slot, entry)| Listed {
            cookie: cookie(number, slot),
            name: entry.name.to_vec(),
            handle: entry.handle,
            file_type: entry.file_type,
        }));
    }
    let mut seen = HashSet::with_capacity(listed.len());
    for entry in &listed {
        if !seen.insert(&entry.name[..]) {
            let place = entry.cookie - RESERVED_COOKIES - 1;
            let (block, slot) = ((place >> 8) as u32, place as u8);
            return Err(DirectoryError::DuplicateName { block, slot });
        }
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, PartitionId};

    use super::*;
    use crate::Entry;

    const DIRECTORY: ObjectId = ObjectId(0x41);

    fn entry(name: &[u8], object: u64) -> Entry<'_> {
        let handle =
            FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) };
        Entry { name, handle, file_type: FileType::Regular }
    }

    fn block(number: u32, names: &[&str]) -> Vec<u8> {
        let mut block = DirectoryBlock::empty(DIRECTORY, number);
        for (object, name) in (100..).zip(names) {
            assert!(block.insert(&entry(name.as_bytes(), object)).is_some());
        }
        block.bytes().to_vec()
    }

    #[test]
    fn names_are_told_in_the_order_of_their_cookies() {
        let data = [block(0, &["b", "a"]), vec![0; BLOCK_BYTES], block(2, &["c"])].concat();
        let listed = parse_listing(DIRECTORY, &data).unwrap();
        let told: Vec<(u64, &[u8])> =
            listed.iter().map(|entry| (entry.cookie, &entry.name[..])).collect();
        assert_eq!(told, [(3, &b"b"[..]), (4, b"a"), (3 + 512, b"c")]);
        assert_eq!(parse_listing(DIRECTORY, &[]), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let whole = block(0, &["a"]);
        let is_refused = |data: &[u8]| parse_listing(DIRECTORY, data).is_err();
        assert!(is_refused(&whole[1..]) && is_refused(&vec![1; BLOCK_BYTES]));
        assert!(is_refused(&[whole.clone(), block(1, &["a"])].concat()), "twice");
        assert!(parse_listing(ObjectId(0x42), &whole).is_err(), "another one's");
        // Whatever is changed, nothing else goes wrong.
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = parse_listing(DIRECTORY, &damaged);
            }
        }
    }
}
