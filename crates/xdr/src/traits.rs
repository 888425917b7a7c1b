//! Types that know their own encoding.

use crate::{Decoder, Encoder, XdrError};

/// A type with an XDR encoding. Encoding can't fail: limits are kept by the types themselves or
/// checked by whoever fills them in, and checked again by the decoder at the other end.
pub trait XdrEncode {
    /// Appends the encoding of `self`.
    fn encode(&self, out: &mut Encoder);
}

/// A type that can be read back from its XDR encoding.
pub trait XdrDecode: Sized {
    /// Reads one value; leaves `input` just behind it.
    ///
    /// # Errors
    ///
    /// Any [`XdrError`] but `Trailing`. After an error the position of `input` has no meaning.
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError>;
}

/// The encoding of `value` alone, in a new vector.
pub fn to_bytes<T: XdrEncode + ?Sized>(value: &T) -> Vec<u8> {
    // Room for most messages' arguments: growing from nothing would take several steps.
    let mut out = Encoder::with_capacity(96);
    value.encode(&mut out);
    out.into_bytes()
}

/// Decodes `bytes`, which must hold exactly one value.
///
/// # Errors
///
/// Any [`XdrError`]; `Trailing` when bytes are left over.
pub fn from_bytes<T: XdrDecode>(bytes: &[u8]) -> Result<T, XdrError> {
    let mut input = Decoder::new(bytes);
    let value = T::decode(&mut input)?;
    input.finish()?;
    Ok(value)
}

/// `void`.
impl XdrEncode for () {
    fn encode(&self, _out: &mut Encoder) {}
}

/// `void`.
impl XdrDecode for () {
    fn decode(_input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(())
    }
}

impl XdrEncode for u32 {
    fn encode(&self, out: &mut Encoder) {
        out.u32(*self);
    }
}

impl XdrDecode for u32 {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u32()
    }
}

impl XdrEncode for u64 {
    fn encode(&self, out: &mut Encoder) {
        out.u64(*self);
    }
}

impl XdrDecode for u64 {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.u64()
    }
}

impl XdrEncode for bool {
    fn encode(&self, out: &mut Encoder) {
        out.bool(*self);
    }
}

impl XdrDecode for bool {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        input.bool()
    }
}

impl<T: XdrEncode + ?Sized> XdrEncode for &T {
    fn encode(&self, out: &mut Encoder) {
        (**self).encode(out);
    }
}
