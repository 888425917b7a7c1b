//! `enroll`: a new member gets its certificate, by a one-time token.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError};

use super::{Operation, Procedure};
use crate::limits::{
    MAX_CELL_TEXT_BYTES, MAX_CERTIFICATE_BYTES, MAX_PUBLIC_KEY_BYTES, MAX_TOKEN_BYTES,
};

/// The operation: the only one that a peer without a certificate may ask for. It has no caller.
#[derive(Debug)]
pub enum Enroll {}

impl Operation for Enroll {
    const PROCEDURE: Procedure = Procedure::Enroll;
    type Arguments = EnrollArguments;
    type Reply = Enrolled;
}

/// Who wants in (`nasd_enroll_arguments`).
#[derive(Clone, PartialEq, Eq)]
pub struct EnrollArguments {
    /// The token's secret; at most [`MAX_TOKEN_BYTES`] bytes.
    pub secret: Vec<u8>,
    /// The public key that the certificate is for: a point of P-256, uncompressed.
    pub public_key: Vec<u8>,
}

impl std::fmt::Debug for EnrollArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EnrollArguments(hidden)")
    }
}

impl XdrEncode for EnrollArguments {
    fn encode(&self, out: &mut Encoder) {
        out.opaque(&self.secret);
        out.opaque(&self.public_key);
    }
}

impl XdrDecode for EnrollArguments {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(EnrollArguments {
            secret: input.opaque(MAX_TOKEN_BYTES)?.to_vec(),
            public_key: input.opaque(MAX_PUBLIC_KEY_BYTES)?.to_vec(),
        })
    }
}

/// The answer (`nasd_enrolled`): texts, as they are in the files of a member's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enrolled {
    /// Which of the directory's certificates it is: `host` or `user`.
    pub member: String,
    /// The certificate, in PEM.
    pub certificate: String,
    /// The cell's authority, in PEM.
    pub authority: String,
    /// The cell, as `cell.toml` tells of it.
    pub cell: String,
}

impl XdrEncode for Enrolled {
    fn encode(&self, out: &mut Encoder) {
        out.string(&self.member);
        out.string(&self.certificate);
        out.string(&self.authority);
        out.string(&self.cell);
    }
}

impl XdrDecode for Enrolled {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Enrolled {
            member: input.string(MAX_TOKEN_BYTES)?.to_owned(),
            certificate: input.string(MAX_CERTIFICATE_BYTES)?.to_owned(),
            authority: input.string(MAX_CERTIFICATE_BYTES)?.to_owned(),
            cell: input.string(MAX_CELL_TEXT_BYTES)?.to_owned(),
        })
    }
}
