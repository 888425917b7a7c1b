//! `accessed`: files were read, as clients tell now and then.

use nasd_types::Timestamp;
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{FileHandle, Operation, Procedure};
use crate::limits::MAX_ACCESSED;
use crate::wire::{Field, message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Accessed {}

impl Operation for Accessed {
    const PROCEDURE: Procedure = Procedure::Accessed;
    type Arguments = AccessedArguments;
    type Reply = ();
}

message! {
    /// A file that was read (`nasd_access`).
    #[derive(Copy)]
    pub struct FileAccess {
        /// Which.
        pub file: FileHandle,
        /// When. What is later than the present is taken for the present.
        pub time: Timestamp,
    }
}

/// Arguments (`nasd_accessed_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessedArguments {
    /// The root of the volume that all of them are of.
    pub root: FileHandle,
    /// At most [`MAX_ACCESSED`].
    pub accessed: Vec<FileAccess>,
}

impl XdrEncode for AccessedArguments {
    fn encode(&self, out: &mut Encoder) {
        self.root.put(out);
        put_array(&self.accessed, out);
    }
}

impl XdrDecode for AccessedArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(AccessedArguments {
            root: Field::take(input)?,
            accessed: take_array(input, MAX_ACCESSED)?,
        })
    }
}
