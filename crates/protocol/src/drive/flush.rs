//! `flush`: make objects' data and attributes durable.
//!
//! A writer keeps what it wrote until a flush answers with the instance with which the write was
//! answered. Another instance means that the drive started anew in between and may have lost the
//! data, which must be written again.

use nasd_types::{ObjectId, PartitionId};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::MAX_FLUSH_OBJECTS;
use crate::wire::{Field, message, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Flush {}

impl Operation for Flush {
    const PROCEDURE: Procedure = Procedure::Flush;
    type Arguments = FlushArguments;
    type Reply = Flushed;
}

/// Arguments (`nasd_flush_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushArguments {
    /// The partition of all of them.
    pub partition: PartitionId,
    /// Which objects, at most [`MAX_FLUSH_OBJECTS`]; none means the whole partition.
    pub objects: Vec<ObjectId>,
}

impl XdrEncode for FlushArguments {
    fn encode(&self, out: &mut Encoder) {
        self.partition.put(out);
        put_array(&self.objects, out);
    }
}

impl XdrDecode for FlushArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(FlushArguments {
            partition: Field::take(input)?,
            objects: take_array(input, MAX_FLUSH_OBJECTS)?,
        })
    }
}

message! {
    /// The answer (`nasd_flushed`).
    #[derive(Copy)]
    pub struct Flushed {
        /// The drive's instance, which changes at each start.
        pub instance: u64,
    }
}
