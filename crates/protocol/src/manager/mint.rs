//! `mint`: a capability for one file that can be handed on, narrower than the caller's own.

use nasd_types::{ByteRange, DriveId, Rights};

use super::{FileHandle, IssuedCapability, Operation, Procedure};
use crate::limits::MAX_ADDRESS_BYTES;
use crate::wire::{Field, message, xdr_by_field};
use nasd_xdr::{Decoder, Encoder, XdrError};

/// The operation.
#[derive(Debug)]
pub enum Mint {}

impl Operation for Mint {
    const PROCEDURE: Procedure = Procedure::Mint;
    type Arguments = MintArguments;
    type Reply = Minted;
}

message! {
    /// The arguments (`nasd_mint_arguments`).
    #[derive(Copy)]
    pub struct MintArguments {
        /// For which file.
        pub file: FileHandle,
        /// What it must allow; the caller must be allowed as much.
        pub rights: Rights,
        /// The bytes that may be read and written.
        pub region_offset: u64,
        /// How many.
        pub region_length: u64,
        /// For how long, in nanoseconds; the answer may say less.
        pub lifetime: u64,
        /// Whether the sealed form is wanted too, for PRIVACY_CAPABILITY.
        pub sealed: bool,
    }
}

impl MintArguments {
    /// The bytes that may be read and written.
    pub const fn region(&self) -> ByteRange {
        ByteRange { offset: self.region_offset, length: self.region_length }
    }
}

/// The answer (`nasd_minted`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minted {
    /// Both halves.
    pub capability: IssuedCapability,
    /// The drive that accepts it.
    pub drive: DriveId,
    /// Where that is, `HOST:PORT`.
    pub address: String,
    /// The longest lifetime that is given, in nanoseconds: that of the working key.
    pub longest_lifetime: u64,
}

impl Field for Minted {
    fn put(&self, out: &mut Encoder) {
        self.capability.put(out);
        self.drive.put(out);
        out.string(&self.address);
        out.u64(self.longest_lifetime);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Minted {
            capability: Field::take(input)?,
            drive: Field::take(input)?,
            address: input.string(MAX_ADDRESS_BYTES)?.to_owned(),
            longest_lifetime: input.u64()?,
        })
    }
}

xdr_by_field!(Minted);
