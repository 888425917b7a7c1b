//! Results: a status word, and behind 0 what was asked for.
//!
//! Every result of `specs/*.x` is a union of this form; a result that is a status alone has `()`
//! behind the 0. In Rust it is a `Result`, so that a failure can't carry an answer, and the status
//! enums have no value for success.

use nasd_xdr::{Decoder, Encoder, UnknownValue, XdrDecode, XdrEncode, XdrError};

/// The status word of success (`NASD_OK`, `NASDM_OK`).
pub const OK: u32 = 0;

/// A status other than success: [`crate::Status`] of drives, [`crate::ManagerStatus`] of the file
/// manager.
pub trait Failure: Copy + Into<u32> + TryFrom<u32, Error = UnknownValue> {}

impl Failure for crate::Status {}
impl Failure for crate::ManagerStatus {}

/// Appends a result.
pub fn encode_result<T: XdrEncode, F: Failure>(result: &Result<T, F>, out: &mut Encoder) {
    match result {
        Ok(value) => {
            out.u32(OK);
            value.encode(out);
        }
        Err(failure) => out.u32((*failure).into()),
    }
}

/// Reads a result: the inner `Result` is what the server said.
///
/// # Errors
///
/// Any [`XdrError`]: the server said nothing that makes sense.
pub fn decode_result<T: XdrDecode, F: Failure>(
    input: &mut Decoder<'_>,
) -> Result<Result<T, F>, XdrError> {
    match input.u32()? {
        OK => T::decode(input).map(Ok),
        failure => Ok(Err(F::try_from(failure)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManagerStatus, Status};

    #[test]
    fn success_and_failure_survive() {
        for result in [Ok(7_u32), Err(Status::NoSuchObject)] {
            let mut out = Encoder::new();
            encode_result(&result, &mut out);
            let bytes = out.into_bytes();
            assert_eq!(decode_result(&mut Decoder::new(&bytes)), Ok(result));
        }
    }

    #[test]
    fn an_unknown_status_is_not_guessed_at() {
        let bytes = 4711_u32.to_be_bytes();
        let drive = decode_result::<(), Status>(&mut Decoder::new(&bytes));
        let manager = decode_result::<(), ManagerStatus>(&mut Decoder::new(&bytes));
        assert!(matches!(drive, Err(XdrError::Unknown(_))));
        assert!(matches!(manager, Err(XdrError::Unknown(_))));
    }
}
