//! How single fields look on the wire: also for types of other crates, for which the XDR traits
//! can't be implemented here. Messages are declared with [`message!`] and are made of fields.

use nasd_capability::{
    CAPABILITY_BYTES, Capability, Chain, Digest, KEY_BYTES, MAX_NARROWINGS, Narrowing, Nonce,
    SealedCapability, SealedKey, SecretKey,
};
use nasd_types::{
    AppendToken, Attributes, AuditId, ByteRange, CellId, Compression, DriveId, FS_SPECIFIC_BYTES,
    ObjectId, ObjectName, PartitionId, Personality, Protection, Rights, SeekTarget, SetAttributes,
    Timestamp, WriteOrder,
};
use nasd_xdr::{Decoder, Encoder, UnknownValue, XdrError};

/// A field of a message.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Encoder);
    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError>;
}

/// Declares a message: a struct whose encoding is its fields in the order of declaration, which is
/// that of the specification.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )+
        }

        impl $crate::wire::Field for $name {
            fn put(&self, out: &mut nasd_xdr::Encoder) {
                $( $crate::wire::Field::put(&self.$field, out); )+
            }

            fn take(input: &mut nasd_xdr::Decoder<'_>) -> Result<Self, nasd_xdr::XdrError> {
                // Fields of a struct expression are evaluated in the order in which they are written.
                Ok($name { $( $field: $crate::wire::Field::take(input)?, )+ })
            }
        }

        $crate::wire::xdr_by_field!($name);
    };
}
pub(crate) use message;

/// The XDR traits of a type that is a [`Field`].
macro_rules! xdr_by_field {
    ($($name:ty),+) => { $(
        impl nasd_xdr::XdrEncode for $name {
            fn encode(&self, out: &mut nasd_xdr::Encoder) {
                $crate::wire::Field::put(self, out);
            }
        }

        impl nasd_xdr::XdrDecode for $name {
            fn decode(input: &mut nasd_xdr::Decoder<'_>) -> Result<Self, nasd_xdr::XdrError> {
                $crate::wire::Field::take(input)
            }
        }
    )+ };
}
pub(crate) use xdr_by_field;

/// The reverse: an enumeration made with `xdr_enum!` as a [`Field`].
macro_rules! field_by_xdr {
    ($($name:ty),+) => { $(
        impl $crate::wire::Field for $name {
            fn put(&self, out: &mut nasd_xdr::Encoder) {
                nasd_xdr::XdrEncode::encode(self, out);
            }

            fn take(input: &mut nasd_xdr::Decoder<'_>) -> Result<Self, nasd_xdr::XdrError> {
                nasd_xdr::XdrDecode::decode(input)
            }
        }
    )+ };
}
pub(crate) use field_by_xdr;

field_by_xdr!(u32, u64, bool);

impl Field for WriteOrder {
    fn put(&self, out: &mut Encoder) {
        self.time.put(out);
        out.u64(self.unique);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(WriteOrder { time: Field::take(input)?, unique: input.u64()? })
    }
}

impl Field for Compression {
    fn put(&self, out: &mut Encoder) {
        out.u32(*self as u32);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let value = input.u32()?;
        let known = u8::try_from(value).ok().and_then(Compression::from_number);
        known.ok_or(UnknownValue { enumeration: "Compression", value }.into())
    }
}

impl Field for Personality {
    fn put(&self, out: &mut Encoder) {
        out.u32(*self as u32);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let value = input.u32()?;
        let unknown = UnknownValue { enumeration: "Personality", value };
        Personality::from_number(value).ok_or(unknown.into())
    }
}

impl Field for SeekTarget {
    fn put(&self, out: &mut Encoder) {
        out.u32(*self as u32);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match input.u32()? {
            0 => Ok(SeekTarget::Data),
            1 => Ok(SeekTarget::Hole),
            value => Err(UnknownValue { enumeration: "SeekTarget", value }.into()),
        }
    }
}

impl Field for SealedKey {
    fn put(&self, out: &mut Encoder) {
        out.opaque_fixed(&self.salt);
        out.opaque_fixed(&self.sealed);
        out.opaque_fixed(&self.tag);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(SealedKey {
            salt: input.opaque_fixed()?,
            sealed: input.opaque_fixed()?,
            tag: input.opaque_fixed()?,
        })
    }
}

macro_rules! newtypes {
    ($($name:ident as $word:ident),+ $(,)?) => { $(
        impl Field for $name {
            fn put(&self, out: &mut Encoder) {
                out.$word(self.0);
            }

            fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok($name(input.$word()?))
            }
        }
    )+ };
}

newtypes!(DriveId as u64, PartitionId as u32, ObjectId as u64, AuditId as u64, Timestamp as u64);

macro_rules! fixed_opaques {
    ($($name:ident),+) => { $(
        impl Field for $name {
            fn put(&self, out: &mut Encoder) {
                out.opaque_fixed(&self.0);
            }

            fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok($name(input.opaque_fixed()?))
            }
        }
    )+ };
}

fixed_opaques!(CellId, Digest, AppendToken);

impl Field for ByteRange {
    fn put(&self, out: &mut Encoder) {
        out.u64(self.offset);
        out.u64(self.length);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ByteRange::new(input.u64()?, input.u64()?))
    }
}

impl Field for ObjectName {
    fn put(&self, out: &mut Encoder) {
        self.partition.put(out);
        self.object.put(out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(ObjectName { partition: Field::take(input)?, object: Field::take(input)? })
    }
}

/// Unknown bits are kept, so that they can be refused with the status that says why, and so that
/// a capability's key can be computed.
macro_rules! sets {
    ($($name:ident),+) => { $(
        impl Field for $name {
            fn put(&self, out: &mut Encoder) {
                out.u32(self.bits());
            }

            fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
                Ok($name::from_bits_retain(input.u32()?))
            }
        }
    )+ };
}

sets!(Protection, Rights);

/// The canonical form, over which capability keys are computed, is the XDR form.
impl Field for Capability {
    fn put(&self, out: &mut Encoder) {
        out.opaque_fixed(&self.to_bytes());
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.opaque_fixed::<CAPABILITY_BYTES>().map(|bytes| Capability::from_bytes(&bytes))
    }
}

/// The canonical form, with which the keys of narrowed capabilities are computed, is the XDR form.
impl Field for Narrowing {
    fn put(&self, out: &mut Encoder) {
        out.opaque_fixed(&self.to_bytes());
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.opaque_fixed().map(|bytes| Narrowing::from_bytes(&bytes))
    }
}

impl Field for Chain {
    fn put(&self, out: &mut Encoder) {
        put_array(self.as_slice(), out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let narrowings = take_array(input, MAX_NARROWINGS)?;
        Chain::new(narrowings).map_err(|_| XdrError::Invalid("too many narrowings"))
    }
}

impl Field for SealedCapability {
    fn put(&self, out: &mut Encoder) {
        self.partition.put(out);
        out.u32(self.key_epoch);
        out.opaque_fixed(&self.nonce);
        out.opaque_fixed(&self.sealed);
        out.opaque_fixed(&self.tag);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(SealedCapability {
            partition: Field::take(input)?,
            key_epoch: input.u32()?,
            nonce: input.opaque_fixed()?,
            sealed: input.opaque_fixed()?,
            tag: input.opaque_fixed()?,
        })
    }
}

impl Field for Nonce {
    fn put(&self, out: &mut Encoder) {
        self.timestamp.put(out);
        out.u64(self.unique);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Nonce { timestamp: Field::take(input)?, unique: input.u64()? })
    }
}

impl Field for SecretKey {
    fn put(&self, out: &mut Encoder) {
        out.opaque_fixed(self.expose());
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.opaque_fixed::<KEY_BYTES>().map(SecretKey::new)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Encoder) {
        out.optional_with(self.as_ref(), |out, value| value.put(out));
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.optional_with(T::take)
    }
}

impl<const N: usize> Field for Box<[u8; N]> {
    fn put(&self, out: &mut Encoder) {
        out.opaque_fixed(&self[..]);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.opaque_fixed().map(Box::new)
    }
}

impl Field for Attributes {
    fn put(&self, out: &mut Encoder) {
        out.u64(self.access_control_version);
        self.nearby_object.put(out);
        self.copied_object.put(out);
        out.u64(self.logical_size);
        out.u64(self.blocks_allocated);
        out.u64(self.blocks_used);
        out.u32(self.block_size);
        self.create_time.put(out);
        self.data_modify_time.put(out);
        out.u64(self.data_version);
        self.attribute_modify_time.put(out);
        self.fs_data_modify_time.put(out);
        self.fs_attribute_modify_time.put(out);
        self.fs_specific.put(out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Attributes {
            access_control_version: input.u64()?,
            nearby_object: Field::take(input)?,
            copied_object: Field::take(input)?,
            logical_size: input.u64()?,
            blocks_allocated: input.u64()?,
            blocks_used: input.u64()?,
            block_size: input.u32()?,
            create_time: Field::take(input)?,
            data_modify_time: Field::take(input)?,
            data_version: input.u64()?,
            attribute_modify_time: Field::take(input)?,
            fs_data_modify_time: Field::take(input)?,
            fs_attribute_modify_time: Field::take(input)?,
            fs_specific: Field::take(input)?,
        })
    }
}

impl Field for SetAttributes {
    fn put(&self, out: &mut Encoder) {
        self.access_control_version.put(out);
        self.nearby_object.put(out);
        self.logical_size.put(out);
        self.blocks_allocated.put(out);
        self.block_size.put(out);
        self.fs_data_modify_time.put(out);
        self.fs_attribute_modify_time.put(out);
        self.fs_specific.put(out);
    }

    fn take(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(SetAttributes {
            access_control_version: Field::take(input)?,
            nearby_object: Field::take(input)?,
            logical_size: Field::take(input)?,
            blocks_allocated: Field::take(input)?,
            block_size: Field::take(input)?,
            fs_data_modify_time: Field::take(input)?,
            fs_attribute_modify_time: Field::take(input)?,
            fs_specific: Field::take(input)?,
        })
    }
}

/// Appends `type name<>`.
pub(crate) fn put_array<T: Field>(elements: &[T], out: &mut Encoder) {
    out.array_with(elements, |out, element| element.put(out));
}

/// Reads `type name<limit>`.
pub(crate) fn take_array<T: Field>(
    input: &mut Decoder<'_>,
    limit: usize,
) -> Result<Vec<T>, XdrError> {
    input.array_with(limit, T::take)
}

const _: () = assert!(FS_SPECIFIC_BYTES.is_multiple_of(nasd_xdr::UNIT_BYTES));
