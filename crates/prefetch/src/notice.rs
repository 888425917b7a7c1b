//! What a client tells a drive: the arguments and the answer of the drive's extension `prefetch`.
//!
//! What a call says will be read are the pieces of the object that it names, in their order.

use nasd_xdr::{Decoder, Encoder, XdrError};

use crate::StreamId;

/// By which number the extension is asked for.
pub const NUMBER: u32 = 4;

/// What its arguments mean is what this revision says.
pub const REVISION: u32 = 1;

/// What a call of the extension tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// Whose hints they are: a number that nobody else can guess.
    pub stream: StreamId,
    /// The place of the call's pieces in the stream: all that has lower ordinals is read before them.
    pub ordinal: u64,
    /// All that has lower ordinals than this is over, wherever it was read from.
    pub passed: u64,
    /// So many of so many of those, since that was last told, were not read at all.
    pub skipped: (u64, u64),
    /// Whether the pieces will be read; if not, the call only tells the rest.
    pub is_hint: bool,
    /// Whether the stream is over: nothing more of it will be read.
    pub is_over: bool,
}

impl Notice {
    /// The arguments of the call: five unsigned hypers and two bools, in the order of the struct, with `skipped` as two hypers.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        out.u64(self.stream);
        out.u64(self.ordinal);
        out.u64(self.passed);
        out.u64(self.skipped.0);
        out.u64(self.skipped.1);
        out.bool(self.is_hint);
        out.bool(self.is_over);
        out.into_bytes()
    }

    /// Reads the arguments of a call.
    ///
    /// # Errors
    ///
    /// If they are no notice.
    pub fn decode(arguments: &[u8]) -> Result<Notice, XdrError> {
        let mut input = Decoder::new(arguments);
        let notice = Notice {
            stream: input.u64()?,
            ordinal: input.u64()?,
            passed: input.u64()?,
            skipped: (input.u64()?, input.u64()?),
            is_hint: input.bool()?,
            is_over: input.bool()?,
        };
        input.finish()?;
        Ok(notice)
    }
}

/// The answer: how many of the pieces were taken, from the first one on. The rest may be told later.
pub fn encode_taken(pieces: u32) -> Vec<u8> {
    let mut out = Encoder::new();
    out.u32(pieces);
    out.into_bytes()
}

/// Reads the answer.
///
/// # Errors
///
/// If it is none.
pub fn decode_taken(answer: &[u8]) -> Result<u32, XdrError> {
    let mut input = Decoder::new(answer);
    let pieces = input.u32()?;
    input.finish()?;
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_has_these_bytes() {
        let notice = Notice {
            stream: 0x0102_0304_0506_0708,
            ordinal: 9,
            passed: 7,
            skipped: (1, 4),
            is_hint: true,
            is_over: false,
        };
        let bytes = notice.encode();
        let expected = [
            [1, 2, 3, 4, 5, 6, 7, 8],
            [0, 0, 0, 0, 0, 0, 0, 9],
            [0, 0, 0, 0, 0, 0, 0, 7],
            [0, 0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0, 0, 0, 4],
            [0, 0, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
        assert_eq!(Notice::decode(&bytes), Ok(notice));
        for length in 0..bytes.len() {
            assert!(Notice::decode(&bytes[..length]).is_err());
        }
        assert!(Notice::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}
