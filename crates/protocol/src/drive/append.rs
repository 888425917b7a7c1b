//! `append`: bytes go where the object ends when the drive comes to it, all together, and once however
//! often that is asked for.

use nasd_types::{AppendToken, Attributes, ObjectName};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::wire::{Field, message};

/// The operation. Its data follows [`AppendArguments`] and is not part of them.
#[derive(Debug)]
pub enum Append {}

impl Operation for Append {
    const PROCEDURE: Procedure = Procedure::Append;
    type Arguments = AppendArguments;
    type Reply = Appended;
}

/// Arguments (`nasd_append_arguments`) up to their data, the length word included. Behind them
/// come `data_length` bytes and their padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendArguments {
    /// Which object.
    pub name: ObjectName,
    /// The same whenever the same append is asked for.
    pub token: AppendToken,
    /// How long ago it was asked for first, in nanoseconds; 0 if it is the first time.
    pub age_ns: u64,
    /// Bytes that follow, at least one.
    pub data_length: usize,
}

impl AppendArguments {
    /// Where in the encoded arguments `age_ns` is, which differs from try to try.
    pub const AGE_AT: std::ops::Range<usize> = 28..36;
}

impl XdrEncode for AppendArguments {
    fn encode(&self, out: &mut Encoder) {
        self.name.put(out);
        out.opaque_fixed(&self.token.0);
        out.u64(self.age_ns);
        out.length(self.data_length);
    }
}

/// Leaves the input at the first byte of the data.
impl XdrDecode for AppendArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(AppendArguments {
            name: Field::take(input)?,
            token: AppendToken(input.opaque_fixed()?),
            age_ns: input.u64()?,
            data_length: input.length(MAX_TRANSFER_BYTES)?,
        })
    }
}

message! {
    /// The answer (`nasd_appended`). The bytes are durable.
    pub struct Appended {
        /// Where the bytes went, now or when the same was asked for before.
        pub offset: u64,
        /// The object's attributes now.
        pub attributes: Attributes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};
    use nasd_xdr::to_bytes;

    #[test]
    fn the_age_is_where_it_is_said_to_be() {
        let name = ObjectName { partition: PartitionId(1), object: ObjectId(64) };
        let token = AppendToken([7; 16]);
        let arguments = AppendArguments { name, token, age_ns: 0x0102_0304, data_length: 1 };
        let bytes = to_bytes(&arguments);
        assert_eq!(bytes[AppendArguments::AGE_AT], arguments.age_ns.to_be_bytes());
    }
}
