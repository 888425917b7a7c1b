//! How a job of an extension is given up by its caller, whose connection stays: by a call of the drive's extension `cancel`.
//!
//! The call names the job and the object as the calls of the job do, under an authority of the same caller. Its arguments are an XDR unsigned
//! int: the extension that does the job. The answer has no data.

use nasd_xdr::{Decoder, Encoder, XdrError};

/// By which number the extension is asked for.
pub const NUMBER: u32 = 5;

/// What its arguments mean is what this revision says.
pub const REVISION: u32 = 1;

/// The arguments of a call that gives up a job of an extension.
pub fn encode(extension: u32) -> Vec<u8> {
    let mut out = Encoder::new();
    out.u32(extension);
    out.into_bytes()
}

/// The extension that does the job, of the arguments of a call.
///
/// # Errors
///
/// If they are none.
pub fn decode(arguments: &[u8]) -> Result<u32, XdrError> {
    let mut input = Decoder::new(arguments);
    let extension = input.u32()?;
    input.finish()?;
    Ok(extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back_and_nothing_else_is_taken() {
        assert_eq!(encode(0x0102_0304), [1, 2, 3, 4]);
        assert_eq!(decode(&encode(2)), Ok(2));
        assert!(decode(&[]).is_err() && decode(&[0; 8]).is_err());
    }
}
