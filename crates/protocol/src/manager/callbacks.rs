//! `getcap`, `getcaps`, `getwcap`, `returncap`: the calls of the `afs` personality (CMU-CS-97-118, section 3.2, and
//! `specs/callbacks.md`).

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{File, FileHandle, Operation, Procedure};
use crate::limits::MAX_NEIGHBOURS;
use crate::wire::{message, put_array, take_array};

/// The operation: a file's attributes, a capability to read it, and a callback.
#[derive(Debug)]
pub enum Getcap {}

impl Operation for Getcap {
    const PROCEDURE: Procedure = Procedure::Getcap;
    type Arguments = GetcapArguments;
    type Reply = Readable;
}

/// The operation: the same of a file, and of others that are probably wanted next.
#[derive(Debug)]
pub enum Getcaps {}

impl Operation for Getcaps {
    const PROCEDURE: Procedure = Procedure::Getcaps;
    type Arguments = GetcapsArguments;
    type Reply = Readables;
}

/// The operation: a capability to write a file.
#[derive(Debug)]
pub enum Getwcap {}

impl Operation for Getwcap {
    const PROCEDURE: Procedure = Procedure::Getwcap;
    type Arguments = GetwcapArguments;
    type Reply = Writable;
}

/// The operation: a store is done.
#[derive(Debug)]
pub enum Returncap {}

impl Operation for Returncap {
    const PROCEDURE: Procedure = Procedure::Returncap;
    type Arguments = ReturncapArguments;
    type Reply = Returned;
}

message! {
    /// Arguments (`nasd_getcap_arguments`).
    #[derive(Copy)]
    pub struct GetcapArguments {
        /// Which file.
        pub file: FileHandle,
        /// The client's session.
        pub client: u64,
        /// Whether what a directory contains is to be in its object when this is answered.
        pub contents: bool,
    }
}

message! {
    /// The answer (`nasd_readable`).
    pub struct Readable {
        /// The file as it is now, with a capability to read it if the caller may.
        pub file: File,
        /// The object's access control version, under which contents are to be kept.
        pub version: u64,
        /// Whether the client is told before any of that changes. If not, somebody is changing its attributes or names.
        pub promised: bool,
    }
}

/// Arguments (`nasd_getcaps_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetcapsArguments {
    /// Which file.
    pub file: FileHandle,
    /// The client's session.
    pub client: u64,
    /// Others on the same drive, at most [`MAX_NEIGHBOURS`].
    pub neighbours: Vec<FileHandle>,
}

impl XdrEncode for GetcapsArguments {
    fn encode(&self, out: &mut Encoder) {
        self.file.encode(out);
        out.u64(self.client);
        put_array(&self.neighbours, out);
    }
}

impl XdrDecode for GetcapsArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (file, client) = (FileHandle::decode(input)?, input.u64()?);
        Ok(GetcapsArguments { file, client, neighbours: take_array(input, MAX_NEIGHBOURS)? })
    }
}

/// The answer (`nasd_readables`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readables {
    /// As `getcap` tells it.
    pub file: Readable,
    /// Those of the others of which that can be told without waiting for anybody, all promised.
    pub neighbours: Vec<Readable>,
}

impl XdrEncode for Readables {
    fn encode(&self, out: &mut Encoder) {
        self.file.encode(out);
        put_array(&self.neighbours, out);
    }
}

impl XdrDecode for Readables {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let file = Readable::decode(input)?;
        Ok(Readables { file, neighbours: take_array(input, MAX_NEIGHBOURS)? })
    }
}

message! {
    /// What a file is cut to as a store begins (`nasd_cut`), if the file has that version still: so a request that comes late, or twice, cuts
    /// nothing of what was stored since. The length in the answer tells whether it was done.
    #[derive(Copy)]
    pub struct Cut {
        /// The length that the file has then, durably, in bytes.
        pub length: u64,
        /// The object's access control version before the store.
        pub version: u64,
    }
}

message! {
    /// Arguments (`nasd_getwcap_arguments`).
    #[derive(Copy)]
    pub struct GetwcapArguments {
        /// Which file.
        pub file: FileHandle,
        /// The client's session.
        pub client: u64,
        /// Where the region has to end at least, in bytes.
        pub least_end: u64,
        /// Where it would best end.
        pub best_end: u64,
        /// What the file is cut to before anything is written.
        pub cut: Option<Cut>,
    }
}

message! {
    /// The answer (`nasd_writable`).
    pub struct Writable {
        /// The file as it is now, with a capability to read it, and to write it up to `end`.
        pub file: File,
        /// The object's access control version: that of this store.
        pub version: u64,
        /// Where the region ends, in bytes.
        pub end: u64,
        /// How long the store may take from now on if somebody else waits for it, in nanoseconds.
        pub time: u64,
        /// Nobody else holds a callback: the store is done when all of it is durable, and is returned after that, so that others
        /// wait no longer.
        pub alone: bool,
    }
}

message! {
    /// Arguments (`nasd_returncap_arguments`).
    #[derive(Copy)]
    pub struct ReturncapArguments {
        /// Which file.
        pub file: FileHandle,
        /// The client's session.
        pub client: u64,
        /// The store's version.
        pub version: u64,
    }
}

message! {
    /// The answer (`nasd_returned`), once everybody who held a callback knows.
    pub struct Returned {
        /// The file as it is now, with a capability to read it.
        pub file: File,
        /// The object's access control version now.
        pub version: u64,
        /// Whether the client holds a callback of that version: what it has stored is what the file is.
        pub promised: bool,
    }
}
