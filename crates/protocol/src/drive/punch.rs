//! `punch`: bytes read as zeros from now on, and the blocks that lie within them are free.

use nasd_types::ObjectName;
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{AttributesReply, Operation, Procedure};
use crate::region::{put_regions, take_regions};
use crate::wire::Field;
use crate::{Pieces, Region, Status, spread};

/// The operation.
#[derive(Debug)]
pub enum Punch {}

impl Operation for Punch {
    const PROCEDURE: Procedure = Procedure::Punch;
    type Arguments = PunchArguments;
    type Reply = AttributesReply;
}

/// Arguments (`nasd_punch_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PunchArguments {
    /// Which object. Its length stays.
    pub name: ObjectName,
    /// Answer only when the change would survive a power cut.
    pub durable: bool,
    /// What to punch out: of any length, as no data moves.
    pub regions: Vec<Region>,
}

impl PunchArguments {
    /// The pieces meant.
    ///
    /// # Errors
    ///
    /// As [`spread`].
    pub fn pieces(&self) -> Result<Pieces<'_>, Status> {
        spread(&self.regions)
    }
}

impl XdrEncode for PunchArguments {
    fn encode(&self, out: &mut Encoder) {
        self.name.put(out);
        out.bool(self.durable);
        put_regions(&self.regions, out);
    }
}

impl XdrDecode for PunchArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(PunchArguments {
            name: Field::take(input)?,
            durable: input.bool()?,
            regions: take_regions(input)?,
        })
    }
}
