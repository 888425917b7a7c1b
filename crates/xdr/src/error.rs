//! What can be wrong with encoded bytes. All of it is the sender's fault.

use crate::UnknownValue;

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// The bytes end before the item does. A reader that has only the start of a message may
    /// fetch more and decode again; for a whole message it is an error of the sender.
    #[error("the message ends {missing} bytes before its item does")]
    Truncated {
        /// How many bytes more this item needs, at least.
        missing: usize,
    },
    /// Bytes are left over after the last item.
    #[error("{0} bytes follow the end of the message")]
    Trailing(usize),
    /// The fill bytes of an opaque are not zero.
    #[error("padding is not zero")]
    Padding,
    /// A boolean, or the mark of an optional, is neither 0 nor 1.
    #[error("{0} is not a boolean")]
    Boolean(u32),
    /// A variable-length item is longer than its specification allows.
    #[error("length {length} is above the limit of {limit}")]
    TooLong {
        /// What the message says: bytes of an opaque, or elements of an array.
        length: u32,
        /// What the specification allows.
        limit: usize,
    },
    /// A string that must be UTF-8 is not.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// An enumeration has no such value.
    #[error(transparent)]
    Unknown(#[from] UnknownValue),
    /// Fields contradict one another, or one has a value without a meaning; the text says which.
    #[error("{0}")]
    Invalid(&'static str),
}

impl XdrError {
    /// Whether more bytes could make it decode: what an incremental reader asks.
    pub const fn is_truncated(&self) -> bool {
        matches!(self, XdrError::Truncated { .. })
    }
}
