//! `private`: any other call, of which nobody on the way sees procedure, arguments, status or results
//! (PRIVACY_ARGS of Table 7).
//!
//! ```text
//! sealed arguments = encryption of: procedure (4) || arguments as an opaque<> || padding
//! sealed results   = encryption of: results as an opaque<> || padding
//! ```
//!
//! Both are padded with zeros to a multiple of [`PRIVATE_UNIT_BYTES`], which is as long as what nearly
//! every procedure has for arguments, and for results: so their length tells neither which it is,
//! nor whether it succeeded. Bulk data follow behind their length as in `read` and `write`, and end
//! the message; there are none of most procedures.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::MAX_TRANSFER_BYTES;

/// What is encrypted is as long as a multiple of this (`NASD_PRIVATE_UNIT`): the attributes of an
/// object fit once.
pub const PRIVATE_UNIT_BYTES: usize = 384;

/// Bytes of the tag behind what is encrypted (`NASD_DIGEST_BYTES`).
const TAG_BYTES: usize = 16;

/// Longest sealed arguments or results (`NASD_MAX_SEALED`), in bytes.
pub const MAX_SEALED_BYTES: usize = 170 * PRIVATE_UNIT_BYTES + TAG_BYTES;

/// Bytes of the results before the data where what is encrypted fits into one unit, as that of every
/// `read` does, successful or not: status, sealed results with their length word, length word.
pub const PRIVATE_RESULT_HEAD_BYTES: usize = 4 + 4 + PRIVATE_UNIT_BYTES + TAG_BYTES + 4;

/// The operation. The data of its call and its reply is not part of either.
#[derive(Debug)]
pub enum Private {}

impl Operation for Private {
    const PROCEDURE: Procedure = Procedure::Private;
    type Arguments = Sealed;
    type Reply = Sealed;
}

/// Arguments, and the answer (`nasd_sealed`), up to the data, their length word included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// What is encrypted, and the tag.
    pub sealed: Vec<u8>,
    /// Bytes that follow.
    pub data_length: usize,
}

impl XdrEncode for Sealed {
    fn encode(&self, out: &mut Encoder) {
        out.opaque(&self.sealed);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for Sealed {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Sealed {
            sealed: input.opaque(MAX_SEALED_BYTES)?.to_vec(),
            data_length: input.length(MAX_TRANSFER_BYTES)?,
        })
    }
}

/// What is encrypted of a call whose arguments, without bulk data, are these.
pub fn wrap_arguments(procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut out = Encoder::with_capacity(PRIVATE_UNIT_BYTES + TAG_BYTES);
    out.u32(procedure);
    out.opaque(arguments);
    padded(out)
}

/// Procedure and arguments of a call.
///
/// # Errors
///
/// Any [`XdrError`]: nobody encodes a call so.
pub fn unwrap_arguments(bytes: &[u8]) -> Result<(u32, &[u8]), XdrError> {
    let mut input = Decoder::new(bytes);
    let procedure = input.u32()?;
    let arguments = input.opaque(MAX_SEALED_BYTES)?;
    check_padding(bytes, input.rest())?;
    Ok((procedure, arguments))
}

/// What is encrypted of a reply whose results, without bulk data, are these.
pub fn wrap_results(results: &[u8]) -> Vec<u8> {
    let mut out = Encoder::with_capacity(PRIVATE_UNIT_BYTES + TAG_BYTES);
    out.opaque(results);
    padded(out)
}

/// The results of a reply.
///
/// # Errors
///
/// Any [`XdrError`]: no drive encodes a reply so.
pub fn unwrap_results(bytes: &[u8]) -> Result<&[u8], XdrError> {
    let mut input = Decoder::new(bytes);
    let results = input.opaque(MAX_SEALED_BYTES)?;
    check_padding(bytes, input.rest())?;
    Ok(results)
}

fn padded(out: Encoder) -> Vec<u8> {
    let mut bytes = out.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(PRIVATE_UNIT_BYTES), 0);
    bytes
}

/// There is only one way to encode a message.
fn check_padding(bytes: &[u8], padding: &[u8]) -> Result<(), XdrError> {
    let is_whole = bytes.len().is_multiple_of(PRIVATE_UNIT_BYTES);
    if is_whole && padding.len() < PRIVATE_UNIT_BYTES && padding.iter().all(|byte| *byte == 0) {
        Ok(())
    } else {
        Err(XdrError::Invalid("what is encrypted is padded with zeros to the next unit"))
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::SetAttributes;
    use nasd_xdr::from_bytes;

    use super::*;
    use crate::drive::{AttributesReply, CreateArguments, Created, ReadData};
    use crate::{Status, encode_result};

    #[test]
    fn what_was_wrapped_comes_back_and_its_length_tells_nothing() {
        for length in [0, 4, 24, 360, 376] {
            let bytes = vec![7; length];
            let arguments = wrap_arguments(5, &bytes);
            assert_eq!(unwrap_arguments(&arguments), Ok((5, &bytes[..])));
            let results = wrap_results(&bytes);
            assert_eq!(unwrap_results(&results), Ok(&bytes[..]));
            assert_eq!((arguments.len(), results.len()), (PRIVATE_UNIT_BYTES, PRIVATE_UNIT_BYTES));
            for wrong in [&results[..results.len() - 1], &[&results[..], &[0; 384]].concat(), &[]] {
                assert!(unwrap_results(wrong).is_err(), "{}", wrong.len());
            }
            let mut spoilt = wrap_results(&bytes[..length.min(300)]);
            *spoilt.last_mut().expect("a unit") = 1;
            assert!(unwrap_results(&spoilt).is_err());
        }
        assert_eq!(wrap_results(&[7; 381]).len(), 2 * PRIVATE_UNIT_BYTES);
    }

    #[test]
    fn attributes_fit_into_a_unit() {
        let AttributesReply { attributes } = from_bytes(&[1; 356]).expect("their length");
        let set = SetAttributes {
            access_control_version: Some(1),
            nearby_object: Some(nasd_types::ObjectId(1)),
            logical_size: Some(1),
            blocks_allocated: Some(1),
            block_size: Some(4096),
            fs_data_modify_time: Some(attributes.create_time),
            fs_attribute_modify_time: Some(attributes.create_time),
            fs_specific: Some(attributes.fs_specific.clone()),
        };
        let create = CreateArguments {
            partition: nasd_types::PartitionId(1),
            object: None,
            durable: true,
            initial: set,
        };
        assert_eq!(wrap_arguments(2, &nasd_xdr::to_bytes(&create)).len(), PRIVATE_UNIT_BYTES);
        let length = |encode: &dyn Fn(&mut Encoder)| {
            let mut out = Encoder::new();
            encode(&mut out);
            wrap_results(&out.into_bytes()).len()
        };
        let read = ReadData {
            logical_size: 1,
            fs_data_modify_time: attributes.create_time,
            data_length: 3,
        };
        let created = Created { object: nasd_types::ObjectId(1), attributes: attributes.clone() };
        let lengths = [
            length(&|out| {
                encode_result::<_, Status>(
                    &Ok(AttributesReply { attributes: attributes.clone() }),
                    out,
                )
            }),
            length(&|out| encode_result::<_, Status>(&Ok(created.clone()), out)),
            length(&|out| encode_result::<_, Status>(&Ok(read), out)),
            length(&|out| encode_result::<(), Status>(&Err(Status::NoSuchObject), out)),
        ];
        assert_eq!(lengths, [PRIVATE_UNIT_BYTES; 4]);
    }
}
