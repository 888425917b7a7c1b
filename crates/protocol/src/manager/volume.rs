//! `volume`: where a volume's root is, and the drives that its files are on.

use nasd_types::{CellId, DriveId, Personality, Protection};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{File, Name, Operation, Procedure};
use crate::limits::{MAX_ADDRESS_BYTES, MAX_DRIVES};
use crate::wire::{Field, put_array, take_array};

/// The operation.
#[derive(Debug)]
pub enum VolumeOperation {}

impl Operation for VolumeOperation {
    const PROCEDURE: Procedure = Procedure::Volume;
    type Arguments = Name;
    type Reply = Volume;
}

/// Where a drive answers (`nasd_drive_address`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveAddress {
    /// The drive.
    pub drive: DriveId,
    /// `HOST:PORT`; at most [`MAX_ADDRESS_BYTES`] bytes.
    pub address: String,
    /// Small, stable, unique in the cell.
    pub index: u32,
}

impl Field for DriveAddress {
    fn put(&self, out: &mut Encoder) {
        self.drive.put(out);
        out.string(&self.address);
        out.u32(self.index);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(DriveAddress {
            drive: Field::take(input)?,
            address: input.string(MAX_ADDRESS_BYTES)?.to_owned(),
            index: input.u32()?,
        })
    }
}

/// The answer (`nasd_volume`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The cell.
    pub cell: CellId,
    /// The volume's name.
    pub name: Name,
    /// Its root directory.
    pub root: File,
    /// The drives that its files are on, at most [`MAX_DRIVES`].
    pub drives: Vec<DriveAddress>,
    /// Protection options that clients should use.
    pub protection: Protection,
    /// How it behaves for those who share its files.
    pub personality: Personality,
    /// Nobody changes anything in it.
    pub read_only: bool,
}

impl XdrEncode for Volume {
    fn encode(&self, out: &mut Encoder) {
        self.cell.put(out);
        self.name.put(out);
        self.root.put(out);
        put_array(&self.drives, out);
        self.protection.put(out);
        self.personality.put(out);
        self.read_only.put(out);
    }
}

impl XdrDecode for Volume {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Volume {
            cell: Field::take(input)?,
            name: Field::take(input)?,
            root: Field::take(input)?,
            drives: take_array(input, MAX_DRIVES)?,
            protection: Field::take(input)?,
            personality: Field::take(input)?,
            read_only: Field::take(input)?,
        })
    }
}
