//! External Data Representation (RFC 4506): bounded, allocation-aware coding without I/O.
//!
//! [`Encoder`] appends to a byte vector; [`Decoder`] walks over a byte slice. Every item takes a
//! multiple of four bytes, big-endian, padded with zeros. The decoder is strict, because two
//! readings of one message are how checks are got round: padding that is not zero, a boolean other
//! than 0 and 1, an enumeration value without a meaning and bytes left over are all errors.
//!
//! The decoder is also frugal: a length or a count that a peer wrote is compared with its limit and
//! with the bytes that are really there *before* anything is allocated for it.
//!
//! Not here: floating point (no NASD message has it), and any knowledge of particular messages.

mod decoder;
mod encoder;
mod enumeration;
mod error;
mod traits;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use enumeration::UnknownValue;
pub use error::XdrError;
pub use traits::{XdrDecode, XdrEncode, from_bytes, to_bytes};

/// Bytes of the basic unit: every item's size is a multiple of it (RFC 4506 section 3).
pub const UNIT_BYTES: usize = 4;

/// Zero bytes that follow `length` bytes of opaque data, 0 to 3 (RFC 4506 section 3).
pub const fn xdr_pad(length: usize) -> usize {
    (UNIT_BYTES - length % UNIT_BYTES) % UNIT_BYTES
}

/// `length` rounded up to whole units; saturates at `usize::MAX`.
pub const fn xdr_padded(length: usize) -> usize {
    length.saturating_add(xdr_pad(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_fills_the_unit() {
        for (length, pad) in [(0, 0), (1, 3), (2, 2), (3, 1), (4, 0), (5, 3), (usize::MAX, 1)] {
            assert_eq!(xdr_pad(length), pad, "{length}");
        }
        assert_eq!(xdr_padded(5), 8);
        assert_eq!(xdr_padded(usize::MAX), usize::MAX);
    }
}
