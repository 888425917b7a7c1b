//! `list`: the entries of a directory, a page at a time.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, xdr_padded};

use super::{DeskPath, FileFacts, Operation, Procedure};
use crate::limits::MAX_NAME_BYTES;
use crate::manager::{FileType, Name};
use crate::wire::{message, put_array, take_array};

/// Most entries of one answer.
pub const MAX_DESK_ENTRIES: usize = 1024;

/// The operation.
#[derive(Debug)]
pub enum List {}

impl Operation for List {
    const PROCEDURE: Procedure = Procedure::List;
    type Arguments = ListArguments;
    type Reply = Page;
}

message! {
    /// Arguments (`nasd_desk_list_arguments`).
    pub struct ListArguments {
        /// Which directory.
        pub path: DeskPath,
        /// 0, or that of the page before.
        pub cookie: u64,
        /// Most entries wanted; 0: any number.
        pub most: u32,
    }
}

message! {
    /// A name in a directory (`nasd_desk_entry`).
    pub struct Entry {
        /// It.
        pub name: Name,
        /// What it is (`type`). Links are not followed.
        pub file_type: FileType,
        /// How it is; nothing where the caller may not search the directory.
        pub facts: Option<FileFacts>,
    }
}

impl Entry {
    /// Most bytes of an encoded entry.
    pub const MOST_BYTES: usize = 4 + xdr_padded(MAX_NAME_BYTES) + 4 + 4 + 32;

    /// Size of the encoding in bytes, so that a page can be kept within a record.
    pub fn encoded_bytes(&self) -> usize {
        let facts = if self.facts.is_some() { 32 } else { 0 };
        4 + xdr_padded(self.name.as_bytes().len()) + 4 + 4 + facts
    }
}

/// Part of a directory (`nasd_desk_page`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Some entries, at most [`MAX_DESK_ENTRIES`].
    pub entries: Vec<Entry>,
    /// Where the next page begins.
    pub cookie: u64,
    /// Whether nothing follows them.
    pub end: bool,
}

impl XdrEncode for Page {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.entries, out);
        out.u64(self.cookie);
        out.bool(self.end);
    }
}

impl XdrDecode for Page {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let entries = take_array(input, MAX_DESK_ENTRIES)?;
        Ok(Page { entries, cookie: input.u64()?, end: input.bool()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::Timestamp;
    use nasd_xdr::{from_bytes, to_bytes};

    #[test]
    fn an_entry_knows_its_size() {
        let file_type = FileType::Regular;
        let (uid, gid, modify_time) = (1, 2, Timestamp(3));
        let facts = FileFacts { file_type, mode: 0o644, uid, gid, size: 4, modify_time };
        for length in [0, 1, 4, 255] {
            for facts in [None, Some(facts)] {
                let name = Name::new(vec![b'n'; length]).unwrap();
                let entry = Entry { name, file_type, facts };
                assert_eq!(entry.encoded_bytes(), to_bytes(&entry).len());
                assert!(entry.encoded_bytes() <= Entry::MOST_BYTES);
                let page = Page { entries: vec![entry; 3], cookie: 9, end: true };
                assert_eq!(from_bytes(&to_bytes(&page)), Ok(page));
            }
        }
    }
}
