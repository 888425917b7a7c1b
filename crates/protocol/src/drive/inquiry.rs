//! `inquiry`: who the drive is and what it can do. The one operation that needs no authority.

use nasd_capability::Suite;
use nasd_types::{CellId, DriveId, PartitionId, Protection, Timestamp};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::{MAX_PARTITIONS, MAX_SUITES, MAX_TEXT_BYTES};
use crate::wire::{Field, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum Inquiry {}

impl Operation for Inquiry {
    const PROCEDURE: Procedure = Procedure::Inquiry;
    type Arguments = ();
    type Reply = DriveInformation;
}

/// What a drive tells anybody (`nasd_drive_information`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveInformation {
    /// The drive's name.
    pub drive: DriveId,
    /// The cell that it belongs to.
    pub cell: CellId,
    /// Who made it; at most [`MAX_TEXT_BYTES`] bytes, as the next two.
    pub vendor: String,
    /// What it is.
    pub model: String,
    /// Version of its software.
    pub revision: String,
    /// The drive's clock, by which nonces are stamped and capabilities expire.
    pub clock: Timestamp,
    /// Changes at each start of the drive.
    pub instance: u64,
    /// Algorithm suites, best first. Suites unknown here are left out by the decoder.
    pub suites: Vec<Suite>,
    /// Protection options that it understands.
    pub protections: Protection,
    /// The weakest protection that it accepts.
    pub minimum_protection: Protection,
    /// Most data bytes of one read or write.
    pub max_transfer: u32,
    /// Whether its objects are on other drives, which `map` tells.
    pub is_virtual: bool,
    /// Its partitions.
    pub partitions: Vec<PartitionId>,
}

impl XdrEncode for DriveInformation {
    fn encode(&self, out: &mut Encoder) {
        self.drive.put(out);
        self.cell.put(out);
        out.string(&self.vendor);
        out.string(&self.model);
        out.string(&self.revision);
        self.clock.put(out);
        out.u64(self.instance);
        out.array_with(&self.suites, |out, suite| out.u32(suite.code()));
        self.protections.put(out);
        self.minimum_protection.put(out);
        out.u32(self.max_transfer);
        self.is_virtual.put(out);
        put_array(&self.partitions, out);
    }
}

impl XdrDecode for DriveInformation {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DriveInformation {
            drive: Field::take(input)?,
            cell: Field::take(input)?,
            vendor: input.string(MAX_TEXT_BYTES)?.to_owned(),
            model: input.string(MAX_TEXT_BYTES)?.to_owned(),
            revision: input.string(MAX_TEXT_BYTES)?.to_owned(),
            clock: Field::take(input)?,
            instance: input.u64()?,
            suites: known_suites(input)?,
            protections: Field::take(input)?,
            minimum_protection: Field::take(input)?,
            max_transfer: input.u32()?,
            is_virtual: Field::take(input)?,
            partitions: take_array(input, MAX_PARTITIONS)?,
        })
    }
}

/// A newer drive may offer suites that this end has never heard of: it just won't choose them.
fn known_suites(input: &mut Decoder<'_>) -> Result<Vec<Suite>, XdrError> {
    let numbers: Vec<u32> = input.array(MAX_SUITES)?;
    Ok(numbers.into_iter().filter_map(Suite::from_code).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_suites_are_passed_over() {
        let mut out = Encoder::new();
        out.array(&[77_u32, 0]);
        let bytes = out.into_bytes();
        assert_eq!(known_suites(&mut Decoder::new(&bytes)), Ok(vec![Suite::Blake3]));
    }
}
