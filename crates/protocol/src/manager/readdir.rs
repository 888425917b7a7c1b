//! `readdir`: list a directory, a page at a time.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, xdr_padded};

use super::{FileHandle, FileType, Name, Operation, Procedure};
use crate::limits::MAX_ENTRIES;
use crate::wire::{message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Readdir {}

impl Operation for Readdir {
    const PROCEDURE: Procedure = Procedure::Readdir;
    type Arguments = ReaddirArguments;
    type Reply = DirectoryPage;
}

message! {
    /// Arguments (`nasd_readdir_arguments`).
    #[derive(Copy)]
    pub struct ReaddirArguments {
        /// Which directory.
        pub directory: FileHandle,
        /// 0, or the cookie of the last entry seen.
        pub cookie: u64,
        /// Most entries wanted.
        pub max_entries: u32,
    }
}

message! {
    /// A name in a directory (`nasd_directory_entry`).
    pub struct DirectoryEntry {
        /// Where to go on behind this entry.
        pub cookie: u64,
        /// The file.
        pub handle: FileHandle,
        /// What it is (`type`).
        pub file_type: FileType,
        /// Its name here.
        pub name: Name,
    }
}

impl DirectoryEntry {
    /// Size of the encoding in bytes, so that a page can be kept within a record.
    pub fn encoded_bytes(&self) -> usize {
        8 + 20 + 4 + 4 + xdr_padded(self.name.as_bytes().len())
    }
}

/// Part of a directory (`nasd_directory_page`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPage {
    /// Some entries, at most [`MAX_ENTRIES`].
    pub entries: Vec<DirectoryEntry>,
    /// Whether nothing follows them.
    pub end: bool,
}

impl XdrEncode for DirectoryPage {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.entries, out);
        out.bool(self.end);
    }
}

impl XdrDecode for DirectoryPage {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DirectoryPage { entries: take_array(input, MAX_ENTRIES)?, end: input.bool()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{DriveId, ObjectId, PartitionId};
    use nasd_xdr::to_bytes;

    #[test]
    fn an_entry_knows_its_size() {
        let handle =
            FileHandle { drive: DriveId(1), partition: PartitionId(2), object: ObjectId(3) };
        for length in [0, 1, 4, 255] {
            let name = Name::new(vec![b'n'; length]).unwrap();
            let entry = DirectoryEntry { cookie: 1, handle, file_type: FileType::Regular, name };
            assert_eq!(entry.encoded_bytes(), to_bytes(&entry).len());
        }
    }
}
