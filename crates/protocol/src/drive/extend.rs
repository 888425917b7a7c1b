//! `extend`: has one of the drive's extensions do something with an object (CMU-CS-97-118 sections 2.2 and 3.4).

use nasd_types::{ObjectName, Rights};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, xdr_enum};

use super::{Operation, Procedure};
use crate::limits::{MAX_EXTENSION_BYTES, MAX_TRANSFER_BYTES};
use crate::region::{put_regions, take_regions};
use crate::wire::{Field, field_by_xdr};
use crate::{Pieces, Region, Status, spread};

/// Bytes of a successful result before its data: the status, and [`Extended`] with its length word.
pub const EXTEND_RESULT_HEAD_BYTES: usize = 4 + 4 + 8 + 4;

/// The operation. Its reply's data follows [`Extended`] and is not part of it.
#[derive(Debug)]
pub enum Extend {}

impl Operation for Extend {
    const PROCEDURE: Procedure = Procedure::Extend;
    type Arguments = ExtendArguments;
    type Reply = Extended;
}

/// Arguments (`nasd_extend_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendArguments {
    /// Which object.
    pub name: ObjectName,
    /// The bytes of it that the extension may reach: pieces of any length, in ascending order.
    pub regions: Vec<Region>,
    /// What it may do with them: the authority that is shown must allow as much.
    pub rights: Rights,
    /// Which extension, as the drive's control object names it.
    pub extension: u32,
    /// Of which revision. Another one is another extension.
    pub revision: u32,
    /// The same in all calls that are parts of one job, drawn by the caller.
    pub job: u64,
    /// Bytes that the job has still to look at, those of this call among them: who has least goes first.
    pub bytes_left: u64,
    /// Most bytes of data that the answer may have.
    pub most: u32,
    /// What the extension is told.
    pub arguments: Vec<u8>,
}

impl ExtendArguments {
    /// The pieces that the extension may reach.
    ///
    /// # Errors
    ///
    /// As [`spread`].
    pub fn pieces(&self) -> Result<Pieces<'_>, Status> {
        spread(&self.regions)
    }
}

impl XdrEncode for ExtendArguments {
    fn encode(&self, out: &mut Encoder) {
        self.name.put(out);
        put_regions(&self.regions, out);
        self.rights.put(out);
        out.u32(self.extension);
        out.u32(self.revision);
        out.u64(self.job);
        out.u64(self.bytes_left);
        out.u32(self.most);
        out.opaque(&self.arguments);
    }
}

impl XdrDecode for ExtendArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ExtendArguments {
            name: Field::take(input)?,
            regions: take_regions(input)?,
            rights: Field::take(input)?,
            extension: input.u32()?,
            revision: input.u32()?,
            job: input.u64()?,
            bytes_left: input.u64()?,
            most: input.u32()?,
            arguments: input.opaque(MAX_EXTENSION_BYTES)?.to_vec(),
        })
    }
}

xdr_enum! {
    /// What became of a call of an extension (`nasd_extension_outcome`).
    pub enum ExtensionOutcome {
        /// It was done, as far as `position` tells.
        Done = 0,
        /// The extension does not take these arguments: the data are a text that says why.
        Refused = 1,
        /// What it met is not what it can work with: the data are a text that says why, `position` where.
        Failed = 2,
        /// It took longer, or wanted more, than an extension may: the data are a text.
        Stopped = 3,
    }
}
field_by_xdr!(ExtensionOutcome);

/// The answer (`nasd_extended`) up to its data, the length word included. Behind it come
/// `data_length` bytes and their padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// What became of it.
    pub outcome: ExtensionOutcome,
    /// The first byte of the object that was not looked at: of the pieces, those from there on are to be asked for again.
    /// Not before the first of them.
    pub position: u64,
    /// Bytes that follow.
    pub data_length: usize,
}

impl XdrEncode for Extended {
    fn encode(&self, out: &mut Encoder) {
        self.outcome.put(out);
        out.u64(self.position);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for Extended {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Extended {
            outcome: Field::take(input)?,
            position: input.u64()?,
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
        let outcome = ExtensionOutcome::Done;
        let extended = Extended { outcome, position: 2, data_length: 3 };
        let mut out = Encoder::new();
        encode_result::<_, Status>(&Ok(extended), &mut out);
        assert_eq!(out.len(), EXTEND_RESULT_HEAD_BYTES);
    }
}
