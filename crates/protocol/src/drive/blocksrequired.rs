//! `blocksrequired`: how many blocks more an object may take when regions of it are overwritten.

use nasd_types::ObjectName;
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::region::{put_regions, take_regions};
use crate::wire::{Field, message};
use crate::{Pieces, Region, Status, spread};

/// The operation.
#[derive(Debug)]
pub enum Blocksrequired {}

impl Operation for Blocksrequired {
    const PROCEDURE: Procedure = Procedure::Blocksrequired;
    type Arguments = BlocksrequiredArguments;
    type Reply = BlocksRequired;
}

/// Arguments (`nasd_blocksrequired_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocksrequiredArguments {
    /// Which object.
    pub name: ObjectName,
    /// What is to be overwritten: of any length, as no data moves.
    pub regions: Vec<Region>,
}

impl BlocksrequiredArguments {
    /// The pieces meant.
    ///
    /// # Errors
    ///
    /// As [`spread`].
    pub fn pieces(&self) -> Result<Pieces<'_>, Status> {
        spread(&self.regions)
    }
}

impl XdrEncode for BlocksrequiredArguments {
    fn encode(&self, out: &mut Encoder) {
        self.name.put(out);
        put_regions(&self.regions, out);
    }
}

impl XdrDecode for BlocksrequiredArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(BlocksrequiredArguments { name: Field::take(input)?, regions: take_regions(input)? })
    }
}

message! {
    /// The answer (`nasd_blocks_required`).
    #[derive(Copy)]
    pub struct BlocksRequired {
        /// Blocks, if new data compresses as the old does.
        pub estimated: u64,
        /// Blocks, whatever the new data is.
        pub maximum: u64,
    }
}
