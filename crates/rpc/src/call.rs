//! The head of a call: everything in front of the procedure's arguments.

use nasd_xdr::{Decoder, Encoder, XdrEncode, XdrError};

use crate::{AcceptStatus, AuthStatus, Denial, OpaqueAuth, ReplyBody, ReplyHead};

/// The version of the RPC protocol itself (RFC 5531 section 9).
pub const RPC_VERSION: u32 = 2;

/// `msg_type` of a call (RFC 5531 section 9).
pub(crate) const MESSAGE_CALL: u32 = 0;

/// Longest possible call head in bytes: six words, and two full credentials.
pub const MAX_CALL_HEAD_BYTES: usize = 6 * 4 + 2 * (8 + crate::MAX_AUTH_BYTES);

/// The head of a call (RFC 5531 section 9, `rpc_msg` with `call_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHead<'a> {
    /// Transaction identifier: the reply repeats it.
    pub xid: u32,
    /// Program called.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of that version.
    pub procedure: u32,
    /// Who calls.
    pub credential: OpaqueAuth<'a>,
    /// The proof of it.
    pub verifier: OpaqueAuth<'a>,
}

/// Why the head of a call could not be taken apart. [`reply`](CallError::reply) says what to
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The bytes are no RPC message, or only the start of one
    /// ([`XdrError::is_truncated`]): nothing can be answered.
    #[error("the call is not an RPC message: {0}")]
    Malformed(#[from] XdrError),
    /// The message is not a call: nothing can be answered.
    #[error("message type {0} where a call should be")]
    NotACall(u32),
    /// Another version of RPC.
    #[error("RPC version {version} is not spoken here, only version {RPC_VERSION}")]
    RpcVersion {
        /// Transaction identifier of the call.
        xid: u32,
        /// The version that the caller speaks.
        version: u32,
    },
    /// The credential is longer than allowed, or badly padded.
    #[error("the credential is malformed: {error}")]
    Credential {
        /// Transaction identifier of the call.
        xid: u32,
        /// What is wrong with it.
        error: XdrError,
    },
    /// The verifier is longer than allowed, or badly padded.
    #[error("the verifier is malformed: {error}")]
    Verifier {
        /// Transaction identifier of the call.
        xid: u32,
        /// What is wrong with it.
        error: XdrError,
    },
}

impl CallError {
    /// The reply that RFC 5531 has for this error; `None` where the connection can only be closed.
    pub const fn reply(&self) -> Option<ReplyHead<'static>> {
        let (xid, denial) = match *self {
            CallError::Malformed(_) | CallError::NotACall(_) => return None,
            CallError::RpcVersion { xid, .. } => {
                (xid, Denial::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION })
            }
            CallError::Credential { xid, .. } => (xid, Denial::Auth(AuthStatus::BadCredential)),
            CallError::Verifier { xid, .. } => (xid, Denial::Auth(AuthStatus::BadVerifier)),
        };
        Some(ReplyHead { xid, body: ReplyBody::Denied(denial) })
    }

    /// Whether only the end of the head is missing: an incremental reader fetches more.
    pub const fn is_truncated(&self) -> bool {
        match self {
            CallError::Malformed(error) => error.is_truncated(),
            _ => false,
        }
    }
}

impl<'a> CallHead<'a> {
    /// Reads the head of a call; `input` then stands at the arguments
    /// ([`Decoder::position`] tells where that is).
    ///
    /// # Errors
    ///
    /// [`CallError`]; `is_truncated` of it tells that the input is only the start of a head.
    pub fn decode(input: &mut Decoder<'a>) -> Result<Self, CallError> {
        let xid = input.u32()?;
        let message = input.u32()?;
        if message != MESSAGE_CALL {
            return Err(CallError::NotACall(message));
        }
        let version = input.u32()?;
        if version != RPC_VERSION {
            return Err(CallError::RpcVersion { xid, version });
        }
        let (program, version, procedure) = (input.u32()?, input.u32()?, input.u32()?);
        let credential = OpaqueAuth::decode(input)
            .map_err(|error| blame(error, CallError::Credential { xid, error }))?;
        let verifier = OpaqueAuth::decode(input)
            .map_err(|error| blame(error, CallError::Verifier { xid, error }))?;
        Ok(CallHead { xid, program, version, procedure, credential, verifier })
    }

    /// A successful reply's head to this call, or another accepted one.
    pub const fn accepted<'v>(
        &self,
        verifier: OpaqueAuth<'v>,
        status: AcceptStatus,
    ) -> ReplyHead<'v> {
        ReplyHead { xid: self.xid, body: ReplyBody::Accepted { verifier, status } }
    }

    /// A denying reply's head to this call.
    pub const fn denied(&self, denial: Denial) -> ReplyHead<'static> {
        ReplyHead { xid: self.xid, body: ReplyBody::Denied(denial) }
    }
}

/// A cut message stays `Malformed`, so that there is one place to ask whether more bytes help.
const fn blame(error: XdrError, otherwise: CallError) -> CallError {
    if error.is_truncated() { CallError::Malformed(error) } else { otherwise }
}

impl XdrEncode for CallHead<'_> {
    fn encode(&self, out: &mut Encoder) {
        out.u32(self.xid);
        out.u32(MESSAGE_CALL);
        out.u32(RPC_VERSION);
        out.u32(self.program);
        out.u32(self.version);
        out.u32(self.procedure);
        self.credential.encode(out);
        self.verifier.encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_xdr::to_bytes;

    const HEAD: CallHead<'static> = CallHead {
        xid: 0x0102_0304,
        program: 100_003,
        version: 3,
        procedure: 1,
        credential: OpaqueAuth { flavor: 9, body: &[1, 2, 3, 4, 5] },
        verifier: OpaqueAuth::NONE,
    };

    #[test]
    fn bytes_are_those_of_the_rfc() {
        let words = [0x0102_0304_u32, 0, 2, 100_003, 3, 1, 9, 5, 0x0102_0304, 0x0500_0000, 0, 0];
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(to_bytes(&HEAD), expected);
    }

    #[test]
    fn every_start_of_a_head_asks_for_more() {
        let bytes = to_bytes(&HEAD);
        for cut in 0..bytes.len() {
            let error = CallHead::decode(&mut Decoder::new(&bytes[..cut])).unwrap_err();
            assert!(error.is_truncated(), "cut at {cut}: {error}");
            assert_eq!(error.reply(), None);
        }
        let mut input = Decoder::new(&bytes);
        assert_eq!(CallHead::decode(&mut input), Ok(HEAD));
        assert_eq!(input.finish(), Ok(()));
    }

    #[test]
    fn errors_have_the_replies_of_the_rfc() {
        let mut other_version = to_bytes(&HEAD);
        other_version[11] = 3;
        let error = CallHead::decode(&mut Decoder::new(&other_version)).unwrap_err();
        let denial = Denial::RpcMismatch { low: 2, high: 2 };
        assert_eq!(error.reply(), Some(HEAD.denied(denial)));

        let mut a_reply = to_bytes(&HEAD);
        a_reply[7] = 1;
        let error = CallHead::decode(&mut Decoder::new(&a_reply)).unwrap_err();
        assert_eq!((error, error.reply()), (CallError::NotACall(1), None));

        let mut padded = to_bytes(&HEAD);
        padded[39] = 1;
        let error = CallHead::decode(&mut Decoder::new(&padded)).unwrap_err();
        let denial = Denial::Auth(AuthStatus::BadCredential);
        assert_eq!(error.reply(), Some(HEAD.denied(denial)));

        let mut long = to_bytes(&HEAD);
        long[46] = 2; // a verifier of 512 bytes
        let error = CallHead::decode(&mut Decoder::new(&long)).unwrap_err();
        let denial = Denial::Auth(AuthStatus::BadVerifier);
        assert_eq!(error.reply(), Some(HEAD.denied(denial)));
    }
}
