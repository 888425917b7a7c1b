//! `getxattr`, `setxattr`, `listxattr`, `removexattr`: extended attributes and access control lists.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Change, File, FileHandle, Name, Operation, Procedure};
use crate::limits::{MAX_XATTR_LIST_BYTES, MAX_XATTR_VALUE_BYTES};
use crate::wire::{Field, message};

/// Reads one.
#[derive(Debug)]
pub enum Getxattr {}

impl Operation for Getxattr {
    const PROCEDURE: Procedure = Procedure::Getxattr;
    type Arguments = XattrArguments;
    type Reply = XattrValue;
}

/// Sets one.
#[derive(Debug)]
pub enum Setxattr {}

impl Operation for Setxattr {
    const PROCEDURE: Procedure = Procedure::Setxattr;
    type Arguments = SetxattrArguments;
    type Reply = File;
}

impl Change for Setxattr {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.file), None]
    }
}

/// Tells the names of all that the caller may know of.
#[derive(Debug)]
pub enum Listxattr {}

impl Operation for Listxattr {
    const PROCEDURE: Procedure = Procedure::Listxattr;
    type Arguments = FileHandle;
    type Reply = XattrNames;
}

/// Removes one.
#[derive(Debug)]
pub enum Removexattr {}

impl Operation for Removexattr {
    const PROCEDURE: Procedure = Procedure::Removexattr;
    type Arguments = XattrArguments;
    type Reply = File;
}

impl Change for Removexattr {
    fn touches(arguments: &Self::Arguments) -> [Option<FileHandle>; 2] {
        [Some(arguments.file), None]
    }
}

message! {
    /// Arguments of reading and removing (`nasd_xattr_arguments`).
    pub struct XattrArguments {
        /// Of which file.
        pub file: FileHandle,
        /// Which attribute, with its class: `user.` and so on.
        pub name: Name,
    }
}

/// What must be so (the bits of `flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct XattrFlags(pub u32);

impl XattrFlags {
    /// Nothing.
    pub const NONE: XattrFlags = XattrFlags(0);
    /// There is none of this name (`NASD_XATTR_CREATE`).
    pub const CREATE: XattrFlags = XattrFlags(1);
    /// There is one (`NASD_XATTR_REPLACE`).
    pub const REPLACE: XattrFlags = XattrFlags(2);

    /// Whether it must not be there.
    pub const fn is_create(self) -> bool {
        self.0 & Self::CREATE.0 != 0
    }

    /// Whether it must be there.
    pub const fn is_replace(self) -> bool {
        self.0 & Self::REPLACE.0 != 0
    }

    /// Whether all bits have a meaning.
    pub const fn is_meaningful(self) -> bool {
        self.0 & !(Self::CREATE.0 | Self::REPLACE.0) == 0
    }
}

/// Unknown bits are kept, so that they can be refused as `Invalid`.
impl Field for XattrFlags {
    fn put(&self, out: &mut Encoder) {
        out.u32(self.0);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(XattrFlags(input.u32()?))
    }
}

/// Arguments of setting (`nasd_setxattr_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetxattrArguments {
    /// Of which file.
    pub file: FileHandle,
    /// Which attribute.
    pub name: Name,
    /// What must be so.
    pub flags: XattrFlags,
    /// Its value; of an access control list as Linux tells it.
    pub value: Vec<u8>,
}

impl XdrEncode for SetxattrArguments {
    fn encode(&self, out: &mut Encoder) {
        self.file.put(out);
        self.name.put(out);
        self.flags.put(out);
        out.opaque(&self.value);
    }
}

impl XdrDecode for SetxattrArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(SetxattrArguments {
            file: Field::take(input)?,
            name: Field::take(input)?,
            flags: Field::take(input)?,
            value: input.opaque(MAX_XATTR_VALUE_BYTES)?.to_vec(),
        })
    }
}

/// The answer of reading (`nasd_xattr_value`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrValue {
    /// The value.
    pub value: Vec<u8>,
}

impl XdrEncode for XattrValue {
    fn encode(&self, out: &mut Encoder) {
        out.opaque(&self.value);
    }
}

impl XdrDecode for XattrValue {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(XattrValue { value: input.opaque(MAX_XATTR_VALUE_BYTES)?.to_vec() })
    }
}

/// The answer of listing (`nasd_xattr_names`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrNames {
    /// The names, each with a zero byte behind it: as `listxattr` of Linux tells them.
    pub names: Vec<u8>,
}

impl XdrEncode for XattrNames {
    fn encode(&self, out: &mut Encoder) {
        out.opaque(&self.names);
    }
}

impl XdrDecode for XattrNames {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(XattrNames { names: input.opaque(MAX_XATTR_LIST_BYTES)?.to_vec() })
    }
}
