//! What answers to changes of names tell besides: the directories as they are afterwards.

use std::ops::Deref;

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{FileAttributes, FileHandle};
use crate::wire::{message, put_array, take_array};

/// Directories that one change is told of at most (`NASD_MAX_TOLD`).
pub const MAX_TOLD: usize = 2;

message! {
    /// A directory after a change (`nasd_told_directory`).
    #[derive(Copy)]
    pub struct ToldDirectory {
        /// Which.
        pub handle: FileHandle,
        /// Its attributes.
        pub attributes: FileAttributes,
    }
}

message! {
    /// A store that has begun with a file that was made (`nasd_begun`), of which nobody else need be told. The file comes with the capability for it.
    #[derive(Copy)]
    pub struct Begun {
        /// The object's access control version: that of this store.
        pub version: u64,
        /// Where the region of the capability ends, in bytes.
        pub end: u64,
        /// How long the store may take from now on if somebody else waits for it, in nanoseconds.
        pub time: u64,
    }
}

/// The answer to a change (`nasd_made`, `nasd_changed`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<R> {
    /// What was asked for.
    pub reply: R,
    /// The directories that were changed, as far as they can be told without asking a drive: at most
    /// [`MAX_TOLD`].
    pub directories: Vec<ToldDirectory>,
    /// Of a file that was made in a volume with callbacks: the client holds one on it, of this version.
    pub promised: Option<u64>,
    /// Or it stores the file: the capability that comes with it is to be returned, used or not.
    pub begun: Option<Begun>,
}

impl<R> Changed<R> {
    /// An answer that tells of no directory.
    pub const fn alone(reply: R) -> Changed<R> {
        Changed { reply, directories: Vec::new(), promised: None, begun: None }
    }
}

impl<R> Deref for Changed<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.reply
    }
}

impl<R: XdrEncode> XdrEncode for Changed<R> {
    fn encode(&self, out: &mut Encoder) {
        self.reply.encode(out);
        put_array(&self.directories, out);
        out.optional(self.promised.as_ref());
        out.optional(self.begun.as_ref());
    }
}

impl<R: XdrDecode> XdrDecode for Changed<R> {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Changed {
            reply: R::decode(input)?,
            directories: take_array(input, MAX_TOLD)?,
            promised: input.optional()?,
            begun: input.optional()?,
        })
    }
}
