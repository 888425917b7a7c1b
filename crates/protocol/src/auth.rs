//! The security header: credentials and verifiers of the NASD authentication flavor.
//!
//! The *credential* of a call says by what authority it comes: which key, which algorithms and
//! protection options, and, if the key is a capability's, the capability, plain or sealed, with the
//! chain of its narrowings. The *verifier* of a call and of its reply has a nonce, a digest and,
//! where bulk data are covered, their tag. What the digests cover is told in
//! `nasd_capability::digest` and `docs/wire-protocol.md`.

use nasd_capability::{
    CAPABILITY_BYTES, Capability, Chain, Claim, DIGEST_BYTES, DataTag, Digest, KeyKind,
    MAX_NARROWINGS, NARROWING_BYTES, NONCE_BYTES, Narrowing, Nonce, SEALED_NONCE_BYTES,
    SealedCapability, Suite, TAG_BYTES,
};
use nasd_rpc::{AUTH_NONE, AuthStatus, OpaqueAuth};
use nasd_types::{PartitionId, Protection};
use nasd_xdr::{Decoder, Encoder, XdrDecode, XdrEncode, XdrError, from_bytes, to_bytes};

use crate::wire::{Field, field_by_xdr};

/// The flavor of NASD's credentials and verifiers: "NASD" in ASCII. Not registered with IANA.
pub const AUTH_FLAVOR: u32 = u32::from_be_bytes(*b"NASD");

/// Bytes of a sealed capability on the wire.
const SEALED_CAPABILITY_BYTES: usize = 8 + SEALED_NONCE_BYTES + CAPABILITY_BYTES + TAG_BYTES;

/// Longest body of a NASD credential, in bytes: the one with a sealed capability and as many
/// narrowings as there may be.
pub const MAX_CREDENTIAL_BYTES: usize =
    5 * 4 + SEALED_CAPABILITY_BYTES + 4 + MAX_NARROWINGS * NARROWING_BYTES;

// RFC 5531 limits it.
const _: () = assert!(MAX_CREDENTIAL_BYTES <= nasd_rpc::MAX_AUTH_BYTES);

/// Length of the body of a NASD verifier without a data tag, in bytes.
pub const VERIFIER_BYTES: usize = NONCE_BYTES + DIGEST_BYTES;

/// The same of one with a data tag.
pub const MAX_VERIFIER_BYTES: usize = VERIFIER_BYTES + DIGEST_BYTES;

/// Which key the digests are made with, and what goes with that kind of key.
///
/// Most capabilities are plain and not narrowed; the others are kept apart, so that they cost nothing
/// to those.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CredentialKey {
    /// No key: for `inquiry` alone.
    None,
    /// The master key.
    Master,
    /// The drive key.
    Drive,
    /// The key of this partition.
    Partition(PartitionId),
    /// The current working key of this partition.
    WorkingCurrent(PartitionId),
    /// The previous working key of this partition.
    WorkingPrevious(PartitionId),
    /// The secret half of this capability.
    Capability(Capability),
    /// The secret half of this capability after at least one narrowing.
    Narrowed(Box<Narrowed>),
    /// The secret half of this capability, which nobody on the way can read.
    Sealed(Box<Sealed>),
}

/// A capability and what its holders took away from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Narrowed {
    /// As it was minted.
    pub capability: Capability,
    /// Not empty.
    pub chain: Chain,
}

/// A capability that was sealed by who minted it, and what its holders took away from it, which
/// anybody on the way can read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sealed {
    /// The sealed form.
    pub capability: SealedCapability,
    /// May be empty.
    pub chain: Chain,
}

impl CredentialKey {
    /// The kind of key.
    pub const fn kind(&self) -> KeyKind {
        match self {
            CredentialKey::None => KeyKind::None,
            CredentialKey::Master => KeyKind::Master,
            CredentialKey::Drive => KeyKind::Drive,
            CredentialKey::Partition(_) => KeyKind::Partition,
            CredentialKey::WorkingCurrent(_) => KeyKind::WorkingCurrent,
            CredentialKey::WorkingPrevious(_) => KeyKind::WorkingPrevious,
            CredentialKey::Capability(_)
            | CredentialKey::Narrowed(_)
            | CredentialKey::Sealed(_) => KeyKind::Capability,
        }
    }

    /// Whose key it is, for the kinds that partitions have; else 0 (`key_partition`).
    pub const fn partition(&self) -> PartitionId {
        match self {
            CredentialKey::Partition(partition)
            | CredentialKey::WorkingCurrent(partition)
            | CredentialKey::WorkingPrevious(partition) => *partition,
            _ => PartitionId(0),
        }
    }

    /// A capability after these narrowings.
    pub fn narrowed(capability: Capability, chain: Chain) -> CredentialKey {
        if chain.as_slice().is_empty() {
            CredentialKey::Capability(capability)
        } else {
            CredentialKey::Narrowed(Box::new(Narrowed { capability, chain }))
        }
    }

    /// A sealed capability after these narrowings.
    pub fn sealed(capability: SealedCapability, chain: Chain) -> CredentialKey {
        CredentialKey::Sealed(Box::new(Sealed { capability, chain }))
    }

    /// The capability as it was minted, if its key is used and it is not sealed.
    pub fn capability(&self) -> Option<&Capability> {
        match self {
            CredentialKey::Capability(capability) => Some(capability),
            CredentialKey::Narrowed(narrowed) => Some(&narrowed.capability),
            _ => None,
        }
    }

    /// The sealed form of the capability, if that is shown.
    pub fn sealed_capability(&self) -> Option<&SealedCapability> {
        match self {
            CredentialKey::Sealed(sealed) => Some(&sealed.capability),
            _ => None,
        }
    }

    /// What its holders took away from the capability.
    pub fn narrowings(&self) -> &[Narrowing] {
        match self {
            CredentialKey::Narrowed(narrowed) => narrowed.chain.as_slice(),
            CredentialKey::Sealed(sealed) => sealed.chain.as_slice(),
            _ => &[],
        }
    }

    /// From the fields of the wire, which must not contradict one another.
    fn from_fields(
        kind: KeyKind,
        partition: PartitionId,
        shown: Option<CredentialKey>,
    ) -> Result<Self, XdrError> {
        const CONTRADICTION: XdrError = XdrError::Invalid(
            "a capability is present exactly with its key kind, a key partition only with a \
             partition's key",
        );
        let key = match (kind, shown) {
            (KeyKind::None, None) => CredentialKey::None,
            (KeyKind::Master, None) => CredentialKey::Master,
            (KeyKind::Drive, None) => CredentialKey::Drive,
            (KeyKind::Partition, None) => CredentialKey::Partition(partition),
            (KeyKind::WorkingCurrent, None) => CredentialKey::WorkingCurrent(partition),
            (KeyKind::WorkingPrevious, None) => CredentialKey::WorkingPrevious(partition),
            (KeyKind::Capability, Some(capability)) => capability,
            _ => return Err(CONTRADICTION),
        };
        if key.partition() == partition { Ok(key) } else { Err(CONTRADICTION) }
    }
}

/// By what authority a call comes (`nasd_credential`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credential {
    /// Which key.
    pub key: CredentialKey,
    /// The number of the algorithm suite; [`suite`](Self::suite) says which it is, if any.
    pub suite_number: u32,
    /// How this request and its reply are protected. Unknown options are kept, to be refused.
    pub protection: Protection,
}

impl Credential {
    /// No authority, no protection: all that AUTH_NONE says.
    pub const NONE: Credential = Credential {
        key: CredentialKey::None,
        suite_number: Suite::Blake3.code(),
        protection: Protection::NONE,
    };

    /// A credential of a suite that is known here.
    pub const fn new(key: CredentialKey, suite: Suite, protection: Protection) -> Self {
        Credential { key, suite_number: suite.code(), protection }
    }

    /// The algorithm suite; `None` if it is unknown here.
    pub const fn suite(&self) -> Option<Suite> {
        Suite::from_code(self.suite_number)
    }

    /// What the checks of `nasd_capability::admit` look at; a sealed capability must be opened for it.
    pub fn claim(&self) -> Claim<'_> {
        Claim {
            key: self.key.kind(),
            key_partition: self.key.partition(),
            suite: self.suite(),
            protection: self.protection,
            capability: self.key.capability(),
            narrowings: self.key.narrowings(),
            was_sealed: self.key.sealed_capability().is_some(),
        }
    }

    /// The body of the RPC credential. It is the same for every call by this authority.
    pub fn to_body(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// The credential of a call. AUTH_NONE is [`Credential::NONE`].
    ///
    /// # Errors
    ///
    /// [`AuthError`]; its [`auth_status`](AuthError::auth_status) is what to answer.
    pub fn from_opaque(credential: &OpaqueAuth<'_>) -> Result<Self, AuthError> {
        match credential.flavor {
            AUTH_FLAVOR => from_bytes(credential.body).map_err(AuthError::Credential),
            AUTH_NONE if credential.body.is_empty() => Ok(Credential::NONE),
            flavor => Err(AuthError::Flavor(flavor)),
        }
    }
}

/// What of a capability a credential shows: `nasd_shown`.
const SHOWN_NOTHING: u32 = 0;
const SHOWN_CAPABILITY: u32 = 1;
const SHOWN_SEALED: u32 = 2;

impl XdrEncode for Credential {
    fn encode(&self, out: &mut Encoder) {
        out.u32(self.key.kind().code());
        out.u32(self.suite_number);
        self.protection.put(out);
        self.key.partition().put(out);
        match &self.key {
            CredentialKey::Capability(capability) => {
                out.u32(SHOWN_CAPABILITY);
                capability.put(out);
                Chain::default().put(out);
            }
            CredentialKey::Narrowed(narrowed) => {
                out.u32(SHOWN_CAPABILITY);
                narrowed.capability.put(out);
                narrowed.chain.put(out);
            }
            CredentialKey::Sealed(sealed) => {
                out.u32(SHOWN_SEALED);
                sealed.capability.put(out);
                sealed.chain.put(out);
            }
            _ => out.u32(SHOWN_NOTHING),
        }
    }
}

impl XdrDecode for Credential {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let kind =
            KeyKind::from_code(input.u32()?).ok_or(XdrError::Invalid("unknown kind of key"))?;
        let suite_number = input.u32()?;
        let protection = Field::take(input)?;
        let partition = Field::take(input)?;
        let shown = match input.u32()? {
            SHOWN_NOTHING => None,
            SHOWN_CAPABILITY => {
                Some(CredentialKey::narrowed(Field::take(input)?, Field::take(input)?))
            }
            SHOWN_SEALED => Some(CredentialKey::sealed(Field::take(input)?, Field::take(input)?)),
            _ => return Err(XdrError::Invalid("unknown form of a capability")),
        };
        let key = CredentialKey::from_fields(kind, partition, shown)?;
        Ok(Credential { key, suite_number, protection })
    }
}

field_by_xdr!(Credential);

/// The proof that goes with a credential, and the drive's in its reply (`nasd_verifier`, and
/// `nasd_data_verifier` where bulk data are covered).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// Fresh for each message. In a refusal its timestamp is the drive's clock.
    pub nonce: Nonce,
    /// Zeros with NO_PROTECTION and in refusals.
    pub digest: Digest,
    /// The tag of the bulk data, which the digest covers: there exactly when bulk data are covered.
    pub data_tag: Option<DataTag>,
}

/// The body of a verifier, as long as it is.
#[derive(Clone, Copy, Debug)]
pub struct VerifierBody {
    bytes: [u8; MAX_VERIFIER_BYTES],
    length: usize,
}

impl std::ops::Deref for VerifierBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Verifier {
    /// Nothing proved: what AUTH_NONE says.
    pub const NONE: Verifier = Verifier {
        nonce: Nonce { timestamp: nasd_types::Timestamp(0), unique: 0 },
        digest: Digest::ZERO,
        data_tag: None,
    };

    /// Of a message whose bulk data, if it has any, are not covered.
    pub const fn plain(nonce: Nonce, digest: Digest) -> Verifier {
        Verifier { nonce, digest, data_tag: None }
    }

    /// The body of the RPC verifier.
    pub fn to_body(&self) -> VerifierBody {
        let mut bytes = [0; MAX_VERIFIER_BYTES];
        bytes[..NONCE_BYTES].copy_from_slice(&self.nonce.to_bytes());
        bytes[NONCE_BYTES..VERIFIER_BYTES].copy_from_slice(&self.digest.0);
        let length = match &self.data_tag {
            Some(tag) => {
                bytes[VERIFIER_BYTES..].copy_from_slice(&tag.0);
                MAX_VERIFIER_BYTES
            }
            None => VERIFIER_BYTES,
        };
        VerifierBody { bytes, length }
    }

    /// The verifier of a call or reply. AUTH_NONE is [`Verifier::NONE`].
    ///
    /// # Errors
    ///
    /// [`AuthError`]; its [`auth_status`](AuthError::auth_status) is what a drive answers.
    pub fn from_opaque(verifier: &OpaqueAuth<'_>) -> Result<Self, AuthError> {
        match verifier.flavor {
            AUTH_FLAVOR => from_bytes(verifier.body).map_err(AuthError::Verifier),
            AUTH_NONE if verifier.body.is_empty() => Ok(Verifier::NONE),
            flavor => Err(AuthError::Flavor(flavor)),
        }
    }

    /// Makes sure that there is a data tag exactly when bulk data are covered.
    ///
    /// # Errors
    ///
    /// [`AuthError::Verifier`] if that is not so.
    pub fn check_data_tag(&self, is_covered: bool) -> Result<(), AuthError> {
        const MISMATCH: XdrError =
            XdrError::Invalid("a data tag is present exactly when bulk data are covered");
        if self.data_tag.is_some() == is_covered {
            Ok(())
        } else {
            Err(AuthError::Verifier(MISMATCH))
        }
    }
}

impl XdrEncode for Verifier {
    fn encode(&self, out: &mut Encoder) {
        out.opaque_fixed(&self.to_body());
    }
}

/// Its length says whether there is a data tag.
impl XdrDecode for Verifier {
    fn decode(input: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let nonce = Field::take(input)?;
        let digest = Field::take(input)?;
        let has_tag = input.remaining() >= DIGEST_BYTES;
        let data_tag = if has_tag { Some(DataTag(input.opaque_fixed()?)) } else { None };
        Ok(Verifier { nonce, digest, data_tag })
    }
}

/// Why a credential or verifier says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// A flavor other than NASD's and AUTH_NONE, or an AUTH_NONE that has a body.
    #[error("authentication flavor {0} is not accepted here")]
    Flavor(u32),
    /// The body of a NASD credential makes no sense.
    #[error("the NASD credential is malformed: {0}")]
    Credential(XdrError),
    /// The body of a NASD verifier makes no sense.
    #[error("the NASD verifier is malformed: {0}")]
    Verifier(XdrError),
}

impl AuthError {
    /// What to answer a call whose credential or verifier it is.
    pub const fn auth_status(self) -> AuthStatus {
        match self {
            AuthError::Flavor(_) => AuthStatus::TooWeak,
            AuthError::Credential(_) => AuthStatus::BadCredential,
            AuthError::Verifier(_) => AuthStatus::BadVerifier,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::Timestamp;

    fn capability() -> Capability {
        Capability::from_bytes(&std::array::from_fn(|index| index as u8))
    }

    fn chain(count: usize) -> Chain {
        let narrowing = Narrowing::of(&capability());
        Chain::new(vec![narrowing; count]).unwrap()
    }

    fn sealed() -> SealedCapability {
        let keys = nasd_capability::SealingKeys::new(&nasd_capability::SecretKey::new([1; 32]));
        keys.seal(&capability())
    }

    #[test]
    fn a_ninth_narrowing_and_an_unknown_form_are_malformed() {
        let key = CredentialKey::narrowed(capability(), chain(8));
        let body = Credential::new(key, Suite::Aegis, Protection::INTEGRITY_ARGS).to_body();
        let count_at = 20 + CAPABILITY_BYTES;
        let mut longer = [&body[..], &[0; 28]].concat();
        longer[count_at + 3] = 9;
        let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: &longer };
        let error = Credential::from_opaque(&opaque).unwrap_err();
        assert_eq!(error.auth_status(), AuthStatus::BadCredential);
        let mut unknown = body;
        unknown[19] = 3;
        assert!(from_bytes::<Credential>(&unknown).is_err());
    }

    #[test]
    fn credentials_survive_and_fit() {
        let partition = PartitionId(9);
        for key in [
            CredentialKey::None,
            CredentialKey::Master,
            CredentialKey::Drive,
            CredentialKey::Partition(partition),
            CredentialKey::WorkingCurrent(partition),
            CredentialKey::WorkingPrevious(partition),
            CredentialKey::Capability(capability()),
            CredentialKey::narrowed(capability(), chain(1)),
            CredentialKey::narrowed(capability(), chain(8)),
            CredentialKey::sealed(sealed(), chain(0)),
            CredentialKey::sealed(sealed(), chain(8)),
        ] {
            let kind = key.kind();
            let credential = Credential::new(key, Suite::Aegis, Protection::INTEGRITY_ARGS);
            let body = credential.to_body();
            assert!(body.len() <= MAX_CREDENTIAL_BYTES);
            let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: &body };
            assert_eq!(Credential::from_opaque(&opaque), Ok(credential.clone()));
            assert_eq!(credential.claim().key, kind);
        }
        let longest = CredentialKey::sealed(sealed(), chain(8));
        let longest = Credential::new(longest, Suite::Aegis, Protection::INTEGRITY_ARGS);
        assert_eq!(longest.to_body().len(), MAX_CREDENTIAL_BYTES);
    }

    #[test]
    fn contradictions_are_refused() {
        let body = Credential::new(CredentialKey::Drive, Suite::Blake3, Protection::NONE).to_body();
        for (kind, partition) in [(6, 0), (2, 1), (7, 0)] {
            let mut body = body.clone();
            body[3] = kind;
            body[15] = partition;
            let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: &body };
            let error = Credential::from_opaque(&opaque).unwrap_err();
            assert_eq!(error.auth_status(), AuthStatus::BadCredential);
        }
        let with_capability = [&body[..16], &[0, 0, 0, 1], &[0; 64 + 4]].concat();
        assert!(from_bytes::<Credential>(&with_capability).is_err());
        let longer = [&body[..], &[0; 4]].concat();
        assert_eq!(from_bytes::<Credential>(&longer), Err(XdrError::Trailing(4)));
    }

    #[test]
    fn what_a_newer_client_may_send_can_be_refused_by_name() {
        let mut body = Credential::NONE.to_body();
        (body[7], body[8]) = (200, 0x80);
        let credential: Credential = from_bytes(&body).unwrap();
        assert_eq!((credential.suite(), credential.suite_number), (None, 200));
        assert!(!Protection::SUPPORTED.contains(credential.protection));
    }

    #[test]
    fn no_authentication_is_no_authority() {
        assert_eq!(Credential::from_opaque(&OpaqueAuth::NONE), Ok(Credential::NONE));
        assert_eq!(Verifier::from_opaque(&OpaqueAuth::NONE), Ok(Verifier::NONE));
        let sys = OpaqueAuth { flavor: nasd_rpc::AUTH_SYS, body: &[] };
        let error = Credential::from_opaque(&sys).unwrap_err();
        assert_eq!(error.auth_status(), AuthStatus::TooWeak);
    }

    #[test]
    fn verifiers_survive() {
        let nonce = Nonce { timestamp: Timestamp(1), unique: 2 };
        let plain = Verifier::plain(nonce, Digest([3; 16]));
        let with_tag = Verifier { data_tag: Some(DataTag([4; 16])), ..plain };
        for (verifier, length) in [(plain, VERIFIER_BYTES), (with_tag, MAX_VERIFIER_BYTES)] {
            let body = verifier.to_body();
            assert_eq!((to_bytes(&verifier), body.len()), (body.to_vec(), length));
            let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: &body };
            assert_eq!(Verifier::from_opaque(&opaque), Ok(verifier));
            let is_covered = verifier.data_tag.is_some();
            assert_eq!(verifier.check_data_tag(is_covered), Ok(()));
            let error = verifier.check_data_tag(!is_covered).unwrap_err();
            assert_eq!(error.auth_status(), AuthStatus::BadVerifier);
        }
        let body = [&with_tag.to_body()[..], &[0; 4]].concat();
        for length in [0, 16, 28, 36, 44, 52] {
            let opaque = OpaqueAuth { flavor: AUTH_FLAVOR, body: &body[..length] };
            let error = Verifier::from_opaque(&opaque).unwrap_err();
            assert_eq!(error.auth_status(), AuthStatus::BadVerifier, "{length}");
        }
    }
}
