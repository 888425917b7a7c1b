//! The head of a reply: everything in front of the procedure's results.

use nasd_xdr::{Decoder, Encoder, UnknownValue, XdrDecode, XdrEncode, XdrError, xdr_enum};

use crate::OpaqueAuth;

/// `msg_type` of a reply (RFC 5531 section 9).
const MESSAGE_REPLY: u32 = 1;

/// `reply_stat` (RFC 5531 section 9).
const MESSAGE_ACCEPTED: u32 = 0;
const MESSAGE_DENIED: u32 = 1;

/// `reject_stat` (RFC 5531 section 9).
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// Longest possible reply head in bytes: three words, a full verifier, a status and two versions.
pub const MAX_REPLY_HEAD_BYTES: usize = 3 * 4 + 8 + crate::MAX_AUTH_BYTES + 3 * 4;

xdr_enum! {
    /// Why a credential or verifier was refused (RFC 5531 section 9, `auth_stat`).
    pub enum AuthStatus {
        /// Not a failure.
        Ok = 0,
        /// The credential is malformed.
        BadCredential = 1,
        /// The client must begin a new session.
        RejectedCredential = 2,
        /// The verifier is malformed.
        BadVerifier = 3,
        /// The verifier has expired or was seen before.
        RejectedVerifier = 4,
        /// Rejected for security reasons: the flavor is not accepted here.
        TooWeak = 5,
        /// The reply's verifier was wrong.
        InvalidResponse = 6,
        /// Reason unknown.
        Failed = 7,
        /// Kerberos version 4: generic error.
        KerberosGeneric = 8,
        /// Kerberos version 4: the time of the credential has expired.
        TimeExpired = 9,
        /// Kerberos version 4: problem with the ticket file.
        TicketFile = 10,
        /// Kerberos version 4: can't decode the authenticator.
        Decode = 11,
        /// Kerberos version 4: wrong network address in the ticket.
        NetworkAddress = 12,
        /// RPCSEC_GSS: no credentials for the user.
        GssCredentialProblem = 13,
        /// RPCSEC_GSS: problem with the context.
        GssContextProblem = 14,
    }
}

/// How a call was taken whose credential was accepted (RFC 5531 section 9, `accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// The procedure ran; its results follow.
    Success,
    /// This program is not served here.
    ProgramUnavailable,
    /// The program is served, in versions `low` to `high`.
    ProgramMismatch {
        /// Lowest version served.
        low: u32,
        /// Highest version served.
        high: u32,
    },
    /// The version has no such procedure.
    ProcedureUnavailable,
    /// The arguments could not be decoded.
    GarbageArguments,
    /// The server failed, out of memory for example.
    SystemError,
}

impl AcceptStatus {
    const fn number(self) -> u32 {
        match self {
            AcceptStatus::Success => 0,
            AcceptStatus::ProgramUnavailable => 1,
            AcceptStatus::ProgramMismatch { .. } => 2,
            AcceptStatus::ProcedureUnavailable => 3,
            AcceptStatus::GarbageArguments => 4,
            AcceptStatus::SystemError => 5,
        }
    }

    /// What a user can be told.
    pub const fn text(self) -> &'static str {
        match self {
            AcceptStatus::Success => "success",
            AcceptStatus::ProgramUnavailable => "the server does not serve this program",
            AcceptStatus::ProgramMismatch { .. } => {
                "the server speaks another version of this program"
            }
            AcceptStatus::ProcedureUnavailable => "the server does not know this procedure",
            AcceptStatus::GarbageArguments => "the server could not decode the arguments",
            AcceptStatus::SystemError => "the server failed",
        }
    }
}

impl XdrEncode for AcceptStatus {
    fn encode(&self, out: &mut Encoder) {
        out.u32(self.number());
        if let AcceptStatus::ProgramMismatch { low, high } = *self {
            out.u32(low);
            out.u32(high);
        }
    }
}

impl XdrDecode for AcceptStatus {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(match input.u32()? {
            0 => AcceptStatus::Success,
            1 => AcceptStatus::ProgramUnavailable,
            2 => AcceptStatus::ProgramMismatch { low: input.u32()?, high: input.u32()? },
            3 => AcceptStatus::ProcedureUnavailable,
            4 => AcceptStatus::GarbageArguments,
            5 => AcceptStatus::SystemError,
            value => {
                return Err(UnknownValue { enumeration: "AcceptStatus", value }.into());
            }
        })
    }
}

/// Why a call was not even looked at (RFC 5531 section 9, `rejected_reply`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The server speaks RPC versions `low` to `high`.
    #[error("the server speaks RPC versions {low} to {high}")]
    RpcMismatch {
        /// Lowest RPC version spoken.
        low: u32,
        /// Highest RPC version spoken.
        high: u32,
    },
    /// The credential or verifier was refused.
    #[error("the server refused the authentication: {0:?}")]
    Auth(AuthStatus),
}

impl XdrEncode for Denial {
    fn encode(&self, out: &mut Encoder) {
        match *self {
            Denial::RpcMismatch { low, high } => {
                out.u32(RPC_MISMATCH);
                out.u32(low);
                out.u32(high);
            }
            Denial::Auth(status) => {
                out.u32(AUTH_ERROR);
                status.encode(out);
            }
        }
    }
}

impl XdrDecode for Denial {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match input.u32()? {
            RPC_MISMATCH => Ok(Denial::RpcMismatch { low: input.u32()?, high: input.u32()? }),
            AUTH_ERROR => Ok(Denial::Auth(input.enumeration()?)),
            value => Err(UnknownValue { enumeration: "Denial", value }.into()),
        }
    }
}

/// Accepted or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// The credential was accepted.
    Accepted {
        /// The server's proof.
        verifier: OpaqueAuth<'a>,
        /// How it went; results follow only after [`AcceptStatus::Success`].
        status: AcceptStatus,
    },
    /// The call was denied; nothing follows.
    Denied(Denial),
}

/// The head of a reply (RFC 5531 section 9, `rpc_msg` with `reply_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead<'a> {
    /// That of the call.
    pub xid: u32,
    /// What became of it.
    pub body: ReplyBody<'a>,
}

/// Why a reply has no results. The call itself may or may not have had an effect only with
/// `SystemError`; with all others it had none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Accepted, but not successful.
    #[error("{}", .0.text())]
    Rejected(AcceptStatus),
    /// Denied.
    #[error(transparent)]
    Denied(#[from] Denial),
}

impl<'a> ReplyHead<'a> {
    /// Reads the head of a reply; `input` then stands at the results.
    ///
    /// # Errors
    ///
    /// Any [`XdrError`]; [`XdrError::Invalid`] if the message is not a reply.
    pub fn decode(input: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let xid = input.u32()?;
        if input.u32()? != MESSAGE_REPLY {
            return Err(XdrError::Invalid("the message is not a reply"));
        }
        let body = match input.u32()? {
            MESSAGE_ACCEPTED => ReplyBody::Accepted {
                verifier: OpaqueAuth::decode(input)?,
                status: AcceptStatus::decode(input)?,
            },
            MESSAGE_DENIED => ReplyBody::Denied(Denial::decode(input)?),
            value => {
                return Err(UnknownValue { enumeration: "ReplyBody", value }.into());
            }
        };
        Ok(ReplyHead { xid, body })
    }

    /// The server's verifier, if results follow.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if none do.
    pub const fn success(&self) -> Result<OpaqueAuth<'a>, ReplyError> {
        match self.body {
            ReplyBody::Accepted { verifier, status: AcceptStatus::Success } => Ok(verifier),
            ReplyBody::Accepted { status, .. } => Err(ReplyError::Rejected(status)),
            ReplyBody::Denied(denial) => Err(ReplyError::Denied(denial)),
        }
    }
}

impl XdrEncode for ReplyHead<'_> {
    fn encode(&self, out: &mut Encoder) {
        out.u32(self.xid);
        out.u32(MESSAGE_REPLY);
        match &self.body {
            ReplyBody::Accepted { verifier, status } => {
                out.u32(MESSAGE_ACCEPTED);
                verifier.encode(out);
                status.encode(out);
            }
            ReplyBody::Denied(denial) => {
                out.u32(MESSAGE_DENIED);
                denial.encode(out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_xdr::to_bytes;

    fn words(head: &ReplyHead<'_>) -> Vec<u32> {
        to_bytes(head).chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn bytes_are_those_of_the_rfc() {
        let accepted = |status| ReplyHead {
            xid: 5,
            body: ReplyBody::Accepted { verifier: OpaqueAuth::NONE, status },
        };
        let denied = |denial| ReplyHead { xid: 5, body: ReplyBody::Denied(denial) };
        assert_eq!(words(&accepted(AcceptStatus::Success)), [5, 1, 0, 0, 0, 0]);
        assert_eq!(
            words(&accepted(AcceptStatus::ProgramMismatch { low: 1, high: 4 })),
            [5, 1, 0, 0, 0, 2, 1, 4]
        );
        assert_eq!(words(&denied(Denial::RpcMismatch { low: 2, high: 2 })), [5, 1, 1, 0, 2, 2]);
        assert_eq!(words(&denied(Denial::Auth(AuthStatus::TooWeak))), [5, 1, 1, 1, 5]);
    }

    #[test]
    fn only_success_has_results() {
        let verifier = OpaqueAuth { flavor: 7, body: b"abcd" };
        let head = |status| ReplyHead { xid: 1, body: ReplyBody::Accepted { verifier, status } };
        assert_eq!(head(AcceptStatus::Success).success(), Ok(verifier));
        assert_eq!(
            head(AcceptStatus::SystemError).success(),
            Err(ReplyError::Rejected(AcceptStatus::SystemError))
        );
    }

    #[test]
    fn a_call_is_not_a_reply() {
        assert_eq!(
            ReplyHead::decode(&mut Decoder::new(&[0; 64])),
            Err(XdrError::Invalid("the message is not a reply"))
        );
    }
}
