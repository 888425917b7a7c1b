//! `symlink`: make a symbolic link. Its target is its data, read from the drive like any other.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Change, Changed, File, FileHandle, Name, Operation, Procedure};
use crate::limits::MAX_SYMLINK_BYTES;
use crate::wire::Field;

/// The operation.
#[derive(Debug)]
pub enum Symlink {}

impl Operation for Symlink {
    const PROCEDURE: Procedure = Procedure::Symlink;
    type Arguments = SymlinkArguments;
    type Reply = Changed<File>;
}

impl Change for Symlink {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.directory), None]
    }
}

/// Arguments (`nasd_symlink_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymlinkArguments {
    /// Where.
    pub directory: FileHandle,
    /// Its name.
    pub name: Name,
    /// What it points to; at most [`MAX_SYMLINK_BYTES`] bytes.
    pub target: Vec<u8>,
}

impl XdrEncode for SymlinkArguments {
    fn encode(&self, out: &mut Encoder) {
        self.directory.put(out);
        self.name.put(out);
        out.opaque(&self.target);
    }
}

impl XdrDecode for SymlinkArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(SymlinkArguments {
            directory: Field::take(input)?,
            name: Field::take(input)?,
            target: input.opaque(MAX_SYMLINK_BYTES)?.to_vec(),
        })
    }
}
