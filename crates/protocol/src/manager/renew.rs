//! `renew`: a member gets a new certificate for the one that it shows.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Enrolled, Operation, Procedure};
use crate::limits::MAX_PUBLIC_KEY_BYTES;

/// The operation. By a host's or user's certificate; it has no caller.
#[derive(Debug)]
pub enum Renew {}

impl Operation for Renew {
    const PROCEDURE: Procedure = Procedure::Renew;
    type Arguments = RenewArguments;
    type Reply = Enrolled;
}

/// For which key (`nasd_renew_arguments`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewArguments {
    /// The public key that the certificate is for: a point of P-256, uncompressed.
    pub public_key: Vec<u8>,
}

impl XdrEncode for RenewArguments {
    fn encode(&self, out: &mut Encoder) {
        out.opaque(&self.public_key);
    }
}

impl XdrDecode for RenewArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(RenewArguments { public_key: input.opaque(MAX_PUBLIC_KEY_BYTES)?.to_vec() })
    }
}
