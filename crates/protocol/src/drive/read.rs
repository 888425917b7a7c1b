//! `read`: data of an object, from one or several regions.

use nasd_types::{ObjectName, Timestamp, WriteOrder};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::region::{put_regions, take_regions};
use crate::wire::Field;
use crate::{Pieces, Region, Status, expand};

/// Bytes of a successful result before its data: the status, and [`ReadData`] with its length
/// word. A result of any other length is a failure's status alone.
pub const READ_RESULT_HEAD_BYTES: usize = 4 + 8 + 8 + 4;

/// The operation. Its reply's data follows [`ReadData`] and is not part of it.
#[derive(Debug)]
pub enum Read {}

impl Operation for Read {
    const PROCEDURE: Procedure = Procedure::Read;
    type Arguments = ReadArguments;
    type Reply = ReadData;
}

/// Arguments (`nasd_read_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadArguments {
    /// Which object.
    pub name: ObjectName,
    /// Of a read that is written elsewhere: earlier writes of these bytes are not done any more.
    pub order: Option<WriteOrder>,
    /// Which bytes, in the order in which they are to come.
    pub regions: Vec<Region>,
}

impl ReadArguments {
    /// A contiguous read.
    pub fn single(name: ObjectName, offset: u64, length: u64) -> Self {
        ReadArguments { name, order: None, regions: vec![Region::single(offset, length)] }
    }

    /// The pieces asked for.
    ///
    /// # Errors
    ///
    /// As [`expand`].
    pub fn pieces(&self) -> Result<Pieces<'_>, Status> {
        expand(&self.regions)
    }
}

impl XdrEncode for ReadArguments {
    fn encode(&self, out: &mut Encoder) {
        self.name.put(out);
        self.order.put(out);
        put_regions(&self.regions, out);
    }
}

impl XdrDecode for ReadArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ReadArguments {
            name: Field::take(input)?,
            order: Field::take(input)?,
            regions: take_regions(input)?,
        })
    }
}

/// The answer (`nasd_read_data`) up to its data, the length word included. Behind it come
/// `data_length` bytes and their padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadData {
    /// The object's length.
    pub logical_size: u64,
    /// Its file system data time.
    pub fs_data_modify_time: Timestamp,
    /// Bytes that follow; fewer than asked for only where a piece runs into the end of the object
    /// ([`Pieces::within`]).
    pub data_length: usize,
}

impl XdrEncode for ReadData {
    fn encode(&self, out: &mut Encoder) {
        out.u64(self.logical_size);
        self.fs_data_modify_time.put(out);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for ReadData {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ReadData {
            logical_size: input.u64()?,
            fs_data_modify_time: Field::take(input)?,
            data_length: input.length(MAX_TRANSFER_BYTES)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_result;

    #[test]
    fn the_data_of_a_result_begins_where_it_is_said_to() {
        let read = ReadData { logical_size: 1, fs_data_modify_time: Timestamp(2), data_length: 3 };
        let mut out = Encoder::new();
        encode_result::<_, Status>(&Ok(read), &mut out);
        assert_eq!(out.len(), READ_RESULT_HEAD_BYTES);
    }
}
