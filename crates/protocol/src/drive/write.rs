//! `write`: data of an object, to one or several regions. Also extends the object.

use nasd_types::{ObjectName, Timestamp, WriteOrder};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::region::{put_regions, take_regions};
use crate::wire::{Field, message};
use crate::{Pieces, Region, Status, expand};

/// The operation. Its data follows [`WriteArguments`] and is not part of them.
#[derive(Debug)]
pub enum Write {}

impl Operation for Write {
    const PROCEDURE: Procedure = Procedure::Write;
    type Arguments = WriteArguments;
    type Reply = Written;
}

/// Arguments (`nasd_write_arguments`) up to their data, the length word included. Behind them
/// come `data_length` bytes and their padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteArguments {
    /// Which object.
    pub name: ObjectName,
    /// Answer only when the data would survive a power cut, as though a flush had followed.
    pub durable: bool,
    /// Of a write that goes to several drives: not done where a later one was, of any of its bytes.
    pub order: Option<WriteOrder>,
    /// Where the bytes go, in their order.
    pub regions: Vec<Region>,
    /// Bytes that follow.
    pub data_length: usize,
}

impl WriteArguments {
    /// A contiguous write.
    pub fn single(name: ObjectName, offset: u64, data_length: usize, durable: bool) -> Self {
        let regions = vec![Region::single(offset, data_length as u64)];
        WriteArguments { name, durable, order: None, regions, data_length }
    }

    /// The pieces that the data goes to, which together are as long as the data.
    ///
    /// # Errors
    ///
    /// As [`expand`]; also [`Status::BadArgument`] if the data has another length.
    pub fn pieces(&self) -> Result<Pieces<'_>, Status> {
        let pieces = expand(&self.regions)?;
        if pieces.total_bytes() == self.data_length { Ok(pieces) } else { Err(Status::BadArgument) }
    }
}

impl XdrEncode for WriteArguments {
    fn encode(&self, out: &mut Encoder) {
        self.name.put(out);
        out.bool(self.durable);
        self.order.put(out);
        put_regions(&self.regions, out);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for WriteArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(WriteArguments {
            name: Field::take(input)?,
            durable: input.bool()?,
            order: Field::take(input)?,
            regions: take_regions(input)?,
            data_length: input.length(MAX_TRANSFER_BYTES)?,
        })
    }
}

message! {
    /// The answer (`nasd_written`).
    #[derive(Copy)]
    pub struct Written {
        /// The drive's instance: see `flush`.
        pub instance: u64,
        /// Bytes written: all of them.
        pub length: u64,
        /// The object's length now.
        pub logical_size: u64,
        /// Its file system data time now.
        pub fs_data_modify_time: Timestamp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    #[test]
    fn data_and_regions_must_have_one_length() {
        let name = ObjectName { partition: PartitionId(1), object: ObjectId(64) };
        let mut arguments = WriteArguments::single(name, 7, 10, false);
        assert_eq!(arguments.pieces().unwrap().total_bytes(), 10);
        arguments.data_length = 11;
        assert_eq!(arguments.pieces(), Err(Status::BadArgument));
    }
}
