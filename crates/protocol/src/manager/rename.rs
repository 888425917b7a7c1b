//! `rename`: move a name, within a directory or to another.

use nasd_xdr::{Decoder, Encoder, XdrError};

use super::{Change, Changed, FileHandle, Name, Operation, Procedure};
use crate::wire::{Field, message};

/// The operation.
#[derive(Debug)]
pub enum Rename {}

impl Operation for Rename {
    const PROCEDURE: Procedure = Procedure::Rename;
    type Arguments = RenameArguments;
    type Reply = Changed<()>;
}

impl Change for Rename {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.from_directory), Some(arguments.to_directory)]
    }

    fn names(arguments: &Self::Arguments) -> [Option<(FileHandle, &Name)>; 2] {
        let from = (arguments.from_directory, &arguments.from_name);
        [Some(from), Some((arguments.to_directory, &arguments.to_name))]
    }

    fn keeps(arguments: &Self::Arguments) -> Option<FileHandle> {
        arguments.open
    }
}

/// How to rename: the bits of `flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct RenameFlags(pub u32);

impl RenameFlags {
    /// Replace what has the new name.
    pub const NONE: RenameFlags = RenameFlags(0);
    /// Fail if the new name is taken (`NASD_RENAME_NO_REPLACE`).
    pub const NO_REPLACE: RenameFlags = RenameFlags(1);
    /// Give what has the new name the old one; both must be there (`NASD_RENAME_EXCHANGE`).
    pub const EXCHANGE: RenameFlags = RenameFlags(2);

    /// Whether the new name must be free.
    pub const fn is_no_replace(self) -> bool {
        self.0 & Self::NO_REPLACE.0 != 0
    }

    /// Whether the two names change places.
    pub const fn is_exchange(self) -> bool {
        self.0 & Self::EXCHANGE.0 != 0
    }

    /// Whether all bits have a meaning, and that together.
    pub const fn is_meaningful(self) -> bool {
        self.0 <= Self::EXCHANGE.0
    }
}

/// Unknown bits are kept, so that they can be refused as `Invalid`.
impl Field for RenameFlags {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.0);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(RenameFlags(input.u32()?))
    }
}

message! {
    /// Arguments (`nasd_rename_arguments`).
    pub struct RenameArguments {
        /// Where the name is.
        pub from_directory: FileHandle,
        /// The name.
        pub from_name: Name,
        /// Where it goes.
        pub to_directory: FileHandle,
        /// The new name.
        pub to_name: Name,
        /// How.
        pub flags: RenameFlags,
        /// What has the new name, if the client has it open: it stays until it is closed.
        pub open: Option<FileHandle>,
    }
}
