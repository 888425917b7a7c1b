//! Store and forward: what clients ask of drives, asked of the file manager, through which the data
//! then passes. It is the way of a server-attached disk, for clients that can't reach the drives and
//! for comparison.
//!
//! The manager does it by a capability of the kind that it would hand to the caller, and keeps no data:
//! what is not durable at the drive is the client's to keep, by the drive's `instance`.

use nasd_types::{AppendToken, SeekTarget};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{FileHandle, Operation, Procedure};
use crate::drive::{Appended, AttributesReply, Flushed, ReadData, Sought, Written};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::wire::{Field, message};

/// Bytes of arguments of a write before its data, the length word included.
pub const FORWARD_WRITE_HEAD_BYTES: usize = 20 + 8 + 4 + 4;

/// Reads data. As with the drive's `read`, the data follows [`ReadData`] and is not part of it.
#[derive(Debug)]
pub enum ForwardRead {}

impl Operation for ForwardRead {
    const PROCEDURE: Procedure = Procedure::ForwardRead;
    type Arguments = ForwardReadArguments;
    type Reply = ReadData;
}

message! {
    /// Arguments of a read (`nasd_forward_read_arguments`).
    #[derive(Copy)]
    pub struct ForwardReadArguments {
        /// Which file.
        pub file: FileHandle,
        /// From which byte on.
        pub offset: u64,
        /// How many bytes, at most [`MAX_TRANSFER_BYTES`].
        pub length: u32,
    }
}

/// Writes data, which follows [`ForwardWriteArguments`] and is not part of them.
#[derive(Debug)]
pub enum ForwardWrite {}

impl Operation for ForwardWrite {
    const PROCEDURE: Procedure = Procedure::ForwardWrite;
    type Arguments = ForwardWriteArguments;
    type Reply = Written;
}

/// Arguments of a write (`nasd_forward_write_arguments`) up to its data, the length word included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardWriteArguments {
    /// Which file.
    pub file: FileHandle,
    /// Where the data goes.
    pub offset: u64,
    /// Answer only when the data would survive a power cut.
    pub durable: bool,
    /// Bytes that follow.
    pub data_length: usize,
}

impl XdrEncode for ForwardWriteArguments {
    fn encode(&self, out: &mut Encoder) {
        self.file.put(out);
        out.u64(self.offset);
        out.bool(self.durable);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for ForwardWriteArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ForwardWriteArguments {
            file: Field::take(input)?,
            offset: input.u64()?,
            durable: input.bool()?,
            data_length: input.length(MAX_TRANSFER_BYTES)?,
        })
    }
}

/// Appends data, which follows [`ForwardAppendArguments`] and is not part of them: all together, durably,
/// and once however often that is asked for.
#[derive(Debug)]
pub enum ForwardAppend {}

impl Operation for ForwardAppend {
    const PROCEDURE: Procedure = Procedure::ForwardAppend;
    type Arguments = ForwardAppendArguments;
    type Reply = Appended;
}

/// Arguments of an append (`nasd_forward_append_arguments`) up to its data, the length word included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardAppendArguments {
    /// Which file.
    pub file: FileHandle,
    /// The same whenever the same append is asked for.
    pub token: AppendToken,
    /// How long ago it was asked for first, in nanoseconds; 0 if it is the first time.
    pub age_ns: u64,
    /// Bytes that follow, at least one.
    pub data_length: usize,
}

impl ForwardAppendArguments {
    /// Bytes before the data, the length word included.
    pub const HEAD_BYTES: usize = Self::AGE_AT.end + 4;
    /// Where in the encoded arguments `age_ns` is, which differs from try to try.
    pub const AGE_AT: std::ops::Range<usize> = 36..44;
}

impl XdrEncode for ForwardAppendArguments {
    fn encode(&self, out: &mut Encoder) {
        self.file.put(out);
        out.opaque_fixed(&self.token.0);
        out.u64(self.age_ns);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for ForwardAppendArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ForwardAppendArguments {
            file: Field::take(input)?,
            token: AppendToken(input.opaque_fixed()?),
            age_ns: input.u64()?,
            data_length: input.length(MAX_TRANSFER_BYTES)?,
        })
    }
}

/// Makes what was written to a file durable.
#[derive(Debug)]
pub enum ForwardFlush {}

impl Operation for ForwardFlush {
    const PROCEDURE: Procedure = Procedure::ForwardFlush;
    type Arguments = FileHandle;
    type Reply = Flushed;
}

/// Reads the attributes that the drive keeps of a file's object.
#[derive(Debug)]
pub enum ForwardGetattr {}

impl Operation for ForwardGetattr {
    const PROCEDURE: Procedure = Procedure::ForwardGetattr;
    type Arguments = FileHandle;
    type Reply = AttributesReply;
}

/// Makes bytes within a file read as zeros, and frees their blocks.
#[derive(Debug)]
pub enum ForwardPunch {}

impl Operation for ForwardPunch {
    const PROCEDURE: Procedure = Procedure::ForwardPunch;
    type Arguments = ForwardPunchArguments;
    type Reply = ();
}

message! {
    /// Arguments of a punch (`nasd_forward_punch_arguments`).
    #[derive(Copy)]
    pub struct ForwardPunchArguments {
        /// Which file.
        pub file: FileHandle,
        /// The first byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// Answer only when it would survive a power cut.
        pub durable: bool,
    }
}

/// Finds where data, or a hole, begins next.
#[derive(Debug)]
pub enum ForwardSeek {}

impl Operation for ForwardSeek {
    const PROCEDURE: Procedure = Procedure::ForwardSeek;
    type Arguments = ForwardSeekArguments;
    type Reply = Sought;
}

message! {
    /// Arguments of a seek (`nasd_forward_seek_arguments`).
    #[derive(Copy)]
    pub struct ForwardSeekArguments {
        /// Which file.
        pub file: FileHandle,
        /// From which byte on.
        pub offset: u64,
        /// What to look for.
        pub target: SeekTarget,
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, ObjectId, PartitionId};
    use nasd_xdr::to_bytes;

    use super::*;

    const FILE: FileHandle =
        FileHandle { drive: DriveId(1), partition: PartitionId(2), object: ObjectId(64) };

    #[test]
    fn the_age_of_an_append_and_its_data_are_where_they_are_said_to_be() {
        let (token, age_ns) = (AppendToken([7; 16]), 0x0102_0304);
        let append = ForwardAppendArguments { file: FILE, token, age_ns, data_length: 4 };
        let bytes = to_bytes(&append);
        assert_eq!(bytes.len(), ForwardAppendArguments::HEAD_BYTES);
        assert_eq!(bytes[ForwardAppendArguments::AGE_AT], age_ns.to_be_bytes());
    }

    #[test]
    fn the_data_of_a_write_begins_where_it_is_said_to() {
        let file = FILE;
        let write = ForwardWriteArguments { file, offset: 3, durable: true, data_length: 4 };
        assert_eq!(to_bytes(&write).len(), FORWARD_WRITE_HEAD_BYTES);
    }
}
