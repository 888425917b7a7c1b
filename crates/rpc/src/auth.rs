//! Credentials and verifiers as RPC carries them, and the flavors that RFC 5531 defines.

use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, from_bytes, to_bytes};

/// Flavor of the empty credential and verifier (RFC 5531 section 8.2).
pub const AUTH_NONE: u32 = 0;

/// Flavor of the Unix credential (RFC 5531 appendix A).
pub const AUTH_SYS: u32 = 1;

/// Longest body of a credential or verifier (RFC 5531 section 8.2).
pub const MAX_AUTH_BYTES: usize = 400;

/// Most supplementary groups of an AUTH_SYS credential (RFC 5531 appendix A).
pub const MAX_GROUPS: usize = 16;

/// Longest machine name of an AUTH_SYS credential, in bytes (RFC 5531 appendix A).
const MAX_MACHINE_BYTES: usize = 255;

/// A credential or a verifier: a flavor, and a body that only that flavor understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// Which flavor: [`AUTH_NONE`], [`AUTH_SYS`] or another registered number.
    pub flavor: u32,
    /// At most [`MAX_AUTH_BYTES`]; a receiver refuses more.
    pub body: &'a [u8],
}

impl OpaqueAuth<'static> {
    /// AUTH_NONE: no identity, no proof.
    pub const NONE: OpaqueAuth<'static> = OpaqueAuth { flavor: AUTH_NONE, body: &[] };
}

impl<'a> OpaqueAuth<'a> {
    /// Reads one; the body stays in the input.
    ///
    /// # Errors
    ///
    /// [`XdrError::TooLong`] above [`MAX_AUTH_BYTES`], `Truncated`, `Padding`.
    pub fn decode(input: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let flavor = input.u32()?;
        let body = input.opaque(MAX_AUTH_BYTES)?;
        Ok(OpaqueAuth { flavor, body })
    }

    /// Size of the encoding in bytes.
    pub const fn encoded_bytes(&self) -> usize {
        8 + nasd_xdr::xdr_padded(self.body.len())
    }
}

impl XdrEncode for OpaqueAuth<'_> {
    fn encode(&self, out: &mut Encoder) {
        debug_assert!(self.body.len() <= MAX_AUTH_BYTES, "the peer will refuse it");
        out.u32(self.flavor);
        out.opaque(self.body);
    }
}

/// Body of an AUTH_SYS credential: who the calling process is, as its host says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AuthSys {
    /// Anything the caller likes.
    pub stamp: u32,
    /// The caller's host name; at most 255 bytes.
    pub machine: String,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups; at most [`MAX_GROUPS`].
    pub groups: Vec<u32>,
}

impl AuthSys {
    /// The body for an [`OpaqueAuth`] of flavor [`AUTH_SYS`].
    pub fn to_body(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Reads the body of an [`OpaqueAuth`] of flavor [`AUTH_SYS`].
    ///
    /// # Errors
    ///
    /// Any [`XdrError`].
    pub fn from_body(body: &[u8]) -> Result<Self, XdrError> {
        from_bytes(body)
    }
}

impl XdrEncode for AuthSys {
    fn encode(&self, out: &mut Encoder) {
        out.u32(self.stamp);
        out.string(&self.machine);
        out.u32(self.uid);
        out.u32(self.gid);
        out.array(&self.groups);
    }
}

impl XdrDecode for AuthSys {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(AuthSys {
            stamp: input.u32()?,
            machine: input.string(MAX_MACHINE_BYTES)?.to_owned(),
            uid: input.u32()?,
            gid: input.u32()?,
            groups: input.array(MAX_GROUPS)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_auth_sys_fits_a_credential() {
        let largest = AuthSys {
            machine: "m".repeat(MAX_MACHINE_BYTES),
            groups: vec![7; MAX_GROUPS],
            ..AuthSys::default()
        };
        let body = largest.to_body();
        assert!(body.len() <= MAX_AUTH_BYTES);
        assert_eq!(AuthSys::from_body(&body), Ok(largest));
    }

    #[test]
    fn too_many_groups_are_refused() {
        let many = AuthSys { groups: vec![7; MAX_GROUPS + 1], ..AuthSys::default() };
        assert_eq!(
            AuthSys::from_body(&many.to_body()),
            Err(XdrError::TooLong { length: 17, limit: 16 })
        );
    }

    #[test]
    fn a_long_body_is_refused_before_it_is_there() {
        let bytes = to_bytes_of_length(401);
        let error = OpaqueAuth::decode(&mut Decoder::new(&bytes)).unwrap_err();
        assert_eq!(error, XdrError::TooLong { length: 401, limit: MAX_AUTH_BYTES });
    }

    fn to_bytes_of_length(length: u32) -> Vec<u8> {
        let mut out = Encoder::new();
        out.u32(AUTH_SYS);
        out.u32(length);
        out.into_bytes()
    }
}
