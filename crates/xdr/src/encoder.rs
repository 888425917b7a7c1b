//! Writing XDR: appends to a vector that it owns and hands back.

use crate::{XdrEncode, xdr_pad};

/// Appends XDR items to a byte vector.
///
/// To use a vector again, or to put something in front (a record mark, say), start from
/// [`Encoder::append_to`] and take the vector back with [`Encoder::into_bytes`].
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// With an empty vector.
    pub fn new() -> Self {
        Self::default()
    }

    /// With an empty vector that has room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Encoder { bytes: Vec::with_capacity(bytes) }
    }

    /// Appends to `bytes`, which keeps what it holds.
    pub fn append_to(bytes: Vec<u8>) -> Self {
        Encoder { bytes }
    }

    /// Everything so far, what the vector held at first included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Hands the vector back.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// `unsigned int`.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// `int`.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// `unsigned hyper`.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// `hyper`.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// `bool`.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// The count in front of an opaque, a string or an array.
    ///
    /// # Panics
    ///
    /// Above `u32::MAX`: no limit of any specification is so high, so it is a bug of the caller.
    #[inline]
    pub fn length(&mut self, length: usize) {
        // Every limit in specs/*.x is far below 2^32, and callers keep to them.
        self.u32(u32::try_from(length).expect("invariant: lengths are limited far below 2^32"));
    }

    /// `opaque[n]`: the bytes and their padding, no length.
    #[inline]
    pub fn opaque_fixed(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.bytes.extend_from_slice(&[0; 3][..xdr_pad(data.len())]);
    }

    /// `opaque<>`: length, bytes and padding.
    #[inline]
    pub fn opaque(&mut self, data: &[u8]) {
        self.length(data.len());
        self.opaque_fixed(data);
    }

    /// `string<>`: coded like an opaque.
    pub fn string(&mut self, text: &str) {
        self.opaque(text.as_bytes());
    }

    /// `type *name`: whether it is there, then the value.
    pub fn optional<T: XdrEncode>(&mut self, value: Option<&T>) {
        self.optional_with(value, |out, value| value.encode(out));
    }

    /// The same for a type that has no [`XdrEncode`]: `encode` writes the value.
    pub fn optional_with<T>(&mut self, value: Option<T>, encode: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            encode(self, value);
        }
    }

    /// `type name<>`: count and elements.
    pub fn array<T: XdrEncode>(&mut self, elements: &[T]) {
        self.array_with(elements, |out, element| element.encode(out));
    }

    /// The same for a type that has no [`XdrEncode`]: `encode` writes one element.
    pub fn array_with<T>(&mut self, elements: &[T], mut encode: impl FnMut(&mut Self, &T)) {
        self.length(elements.len());
        for element in elements {
            encode(self, element);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_their_bytes() {
        let mut out = Encoder::new();
        out.u32(1);
        out.i32(-2);
        out.u64(3);
        out.i64(-1);
        out.bool(true);
        out.opaque(b"abcde");
        out.opaque_fixed(b"xy");
        out.string("");
        let expected = [
            &[0, 0, 0, 1][..],
            &[0xff, 0xff, 0xff, 0xfe],
            &[0, 0, 0, 0, 0, 0, 0, 3],
            &[0xff; 8],
            &[0, 0, 0, 1],
            &[0, 0, 0, 5, b'a', b'b', b'c', b'd', b'e', 0, 0, 0],
            &[b'x', b'y', 0, 0],
            &[0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(out.into_bytes(), expected);
    }

    #[test]
    fn appends_to_what_is_there() {
        let mut out = Encoder::append_to(vec![9; 4]);
        out.optional(Some(&7_u32));
        out.optional::<u32>(None);
        out.array(&[1_u32, 2]);
        let words: Vec<u8> = out.as_bytes().chunks(4).map(|word| word[3]).collect();
        assert_eq!(words, [9, 1, 7, 0, 2, 1, 2]);
        assert_eq!(out.len(), 28);
        assert!(!out.is_empty());
    }
}
