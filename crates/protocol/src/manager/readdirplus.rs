//! `readdirplus`: list a directory with all that there is to know of each file.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{File, Name, Operation, Procedure, ReaddirArguments};
use crate::limits::MAX_FILES;
use crate::wire::{message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Readdirplus {}

impl Operation for Readdirplus {
    const PROCEDURE: Procedure = Procedure::Readdirplus;
    type Arguments = ReaddirArguments;
    type Reply = FilePage;
}

message! {
    /// A file in a directory (`nasd_listed_file`).
    pub struct ListedFile {
        /// Its name here.
        pub name: Name,
        /// What `lookup` would tell.
        pub file: File,
    }
}

/// Part of a directory (`nasd_file_page`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePage {
    /// Some files, at most [`MAX_FILES`]: those of the directory's next entries of which it costs little to tell
    /// everything. Directories are not among them.
    pub files: Vec<ListedFile>,
    /// Where to go on behind those entries.
    pub cookie: u64,
    /// Whether nothing follows them.
    pub end: bool,
}

impl XdrEncode for FilePage {
    fn encode(&self, out: &mut Encoder) {
        put_array(&self.files, out);
        out.u64(self.cookie);
        out.bool(self.end);
    }
}

impl XdrDecode for FilePage {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let files = take_array(input, MAX_FILES)?;
        Ok(FilePage { files, cookie: input.u64()?, end: input.bool()? })
    }
}
