//! `attach`, `detach`: a client's session with the file manager.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::lock::HeldLock;
use super::{FileHandle, Operation, Procedure};
use crate::limits::MAX_CLAIMS;
use crate::wire::{message, put_array, take_array};

/// The operation that begins a session, or goes on with it at a manager that was started anew.
#[derive(Debug)]
pub enum Attach {}

impl Operation for Attach {
    const PROCEDURE: Procedure = Procedure::Attach;
    type Arguments = AttachArguments;
    type Reply = Attached;
}

/// Arguments (`nasd_attach_arguments`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AttachArguments {
    /// A number that the client has drawn for itself at its start, not 0.
    pub client: u64,
    /// Locks that it holds, at most [`MAX_CLAIMS`].
    pub locks: Vec<HeldLock>,
    /// Removed files that it has open, at most [`MAX_CLAIMS`].
    pub open: Vec<FileHandle>,
}

impl XdrEncode for AttachArguments {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.client);
        put_array(&self.locks, out);
        put_array(&self.open, out);
    }
}

impl XdrDecode for AttachArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(AttachArguments {
            client: input.u64()?,
            locks: take_array(input, MAX_CLAIMS)?,
            open: take_array(input, MAX_CLAIMS)?,
        })
    }
}

/// The answer (`nasd_attached`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Attached {
    /// Which start of the manager this is.
    pub instance: u64,
    /// How long the session lives without being heard of, in nanoseconds.
    pub lease: u64,
    /// Which of the claimed locks, by their place, the client does not hold.
    pub lost: Vec<u32>,
}

impl XdrEncode for Attached {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.instance);
        out.u64(self.lease);
        put_array(&self.lost, out);
    }
}

impl XdrDecode for Attached {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Attached {
            instance: input.u64()?,
            lease: input.u64()?,
            lost: take_array(input, MAX_CLAIMS)?,
        })
    }
}

/// The operation that ends a session and all that it holds.
#[derive(Debug)]
pub enum Detach {}

impl Operation for Detach {
    const PROCEDURE: Procedure = Procedure::Detach;
    type Arguments = DetachArguments;
    type Reply = ();
}

message! {
    /// Arguments (`nasd_detach_arguments`).
    #[derive(Copy)]
    pub struct DetachArguments {
        /// The client.
        pub client: u64,
    }
}

/// The operation that tells which removed files a client has closed.
#[derive(Debug)]
pub enum Closed {}

impl Operation for Closed {
    const PROCEDURE: Procedure = Procedure::Closed;
    type Arguments = ClosedArguments;
    type Reply = ();
}

/// Arguments (`nasd_closed_arguments`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ClosedArguments {
    /// The client.
    pub client: u64,
    /// The files, at most [`MAX_CLAIMS`].
    pub files: Vec<FileHandle>,
}

impl XdrEncode for ClosedArguments {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.client);
        put_array(&self.files, out);
    }
}

impl XdrDecode for ClosedArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ClosedArguments { client: input.u64()?, files: take_array(input, MAX_CLAIMS)? })
    }
}
