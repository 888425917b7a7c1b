//! Delegation: a capability that is narrowed offline, and handed on.
//!
//! Whoever holds a capability's key can make another capability that allows less, without asking
//! anyone: a *narrowing* says what is left, and the key of the narrowed capability is made from the
//! key of the one before it.
//!
//! ```text
//! key[0]   = the capability's key, see [`crate::capability_key`]
//! key[i+1] = BLAKE3 keyed by key[i] of "nasd-narrowing-1" || narrowing (28 bytes)
//! ```
//!
//! The receiver gets the public half (the capability as it was minted, and the chain of narrowings)
//! and the last key; he can't find the keys before it, so that he can take no narrowing back. The
//! drive makes the same chain of keys from the working key, and needs nobody for that.
//!
//! A narrowing says all of rights, region and expiry, and must lie within what was there before: a
//! chain that widens anything is refused rather than cut down, so that what a credential says last is
//! what it allows. Drive, partition, object, minimum protection, audit identifier and key epoch are
//! the capability's own and can't be said anew.

use std::fmt;

use nasd_types::{ByteRange, Rights, Timestamp};

use crate::{Capability, Refusal, SecretKey};

/// Most narrowings of one capability.
pub const MAX_NARROWINGS: usize = 8;

/// Bytes of a narrowing in its canonical form, which is also its XDR form.
pub const NARROWING_BYTES: usize = 28;

/// Separates this use of a capability's key from all others; the digit is the layout's version.
const DOMAIN: &[u8; 16] = b"nasd-narrowing-1";

/// What a narrowed capability still allows (`nasd_narrowing`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Narrowing {
    /// The operations allowed.
    pub rights: Rights,
    /// The bytes of the object that may be read and written.
    pub region: ByteRange,
    /// Refused from this instant of the drive's clock on.
    pub expires: Timestamp,
}

impl Narrowing {
    /// The one that takes nothing away: all that `capability` allows.
    pub const fn of(capability: &Capability) -> Narrowing {
        let Capability { rights, region, expires, .. } = *capability;
        Narrowing { rights, region, expires }
    }

    /// Whether this allows nothing that `wider` does not.
    pub fn is_within(&self, wider: &Narrowing) -> bool {
        wider.rights.contains(self.rights)
            && wider.region.contains(&self.region)
            && self.expires <= wider.expires
    }

    /// The canonical form: the fields in the order of `specs/nasd.x`, big-endian.
    pub fn to_bytes(&self) -> [u8; NARROWING_BYTES] {
        let mut bytes = [0; NARROWING_BYTES];
        bytes[0..4].copy_from_slice(&self.rights.bits().to_be_bytes());
        bytes[4..12].copy_from_slice(&self.region.offset.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.region.length.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.expires.0.to_be_bytes());
        bytes
    }

    /// From the canonical form. Any bytes are a narrowing.
    pub fn from_bytes(bytes: &[u8; NARROWING_BYTES]) -> Narrowing {
        let word64 =
            |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        let rights = bytes.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        Narrowing {
            rights: Rights::from_bits_retain(rights),
            // As it came, since this is what the key was made with.
            region: ByteRange { offset: word64(4), length: word64(12) },
            expires: Timestamp(word64(20)),
        }
    }

    /// The key of the narrowed capability, from the key of the one that is narrowed.
    pub fn key(&self, before: &SecretKey) -> SecretKey {
        let mut hasher = blake3::Hasher::new_keyed(before.expose());
        hasher.update(DOMAIN);
        hasher.update(&self.to_bytes());
        let key = SecretKey::new(*hasher.finalize().as_bytes());
        zeroize::Zeroize::zeroize(&mut hasher);
        key
    }
}

/// Narrowings in the order in which they were made, at most [`MAX_NARROWINGS`].
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Chain(Vec<Narrowing>);

impl Chain {
    /// A chain of these.
    ///
    /// # Errors
    ///
    /// [`NarrowError::TooMany`]. Whether it widens is for [`effective`] to tell.
    pub fn new(narrowings: Vec<Narrowing>) -> Result<Chain, NarrowError> {
        if narrowings.len() > MAX_NARROWINGS {
            return Err(NarrowError::TooMany);
        }
        Ok(Chain(narrowings))
    }

    /// The narrowings.
    pub fn as_slice(&self) -> &[Narrowing] {
        &self.0
    }

    /// This chain with one narrowing more.
    ///
    /// # Errors
    ///
    /// [`NarrowError`] where a drive would refuse the chain of that capability.
    pub fn narrowed(&self, root: &Capability, by: Narrowing) -> Result<Chain, NarrowError> {
        let present = effective(root, &self.0).map_err(|_| NarrowError::Wider)?;
        if !by.is_within(&Narrowing::of(&present)) {
            return Err(NarrowError::Wider);
        }
        let mut narrowings = self.0.clone();
        narrowings.push(by);
        Chain::new(narrowings)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a capability could not be narrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarrowError {
    /// It was narrowed [`MAX_NARROWINGS`] times.
    #[error("a capability can be narrowed {MAX_NARROWINGS} times, and this one was")]
    TooMany,
    /// The narrowing allows a right, a byte or a time that the capability does not.
    #[error("what was asked for is more than the capability allows")]
    Wider,
    /// It is a key that is used for itself.
    #[error("only capabilities can be narrowed, and this is a key")]
    NotACapability,
}

/// What a capability allows at the end of a chain of narrowings.
///
/// # Errors
///
/// [`Refusal::Chain`] if one of them allows what the one before it does not, or if there are more
/// than [`MAX_NARROWINGS`].
pub fn effective(root: &Capability, narrowings: &[Narrowing]) -> Result<Capability, Refusal> {
    let mut allowed = Narrowing::of(root);
    if narrowings.len() > MAX_NARROWINGS {
        return Err(Refusal::Chain);
    }
    for narrowing in narrowings {
        if !narrowing.is_within(&allowed) {
            return Err(Refusal::Chain);
        }
        allowed = *narrowing;
    }
    let Narrowing { rights, region, expires } = allowed;
    Ok(Capability { rights, region, expires, ..*root })
}

/// The key at the end of a chain, from the capability's own.
pub fn narrowed_key(root: SecretKey, narrowings: &[Narrowing]) -> SecretKey {
    narrowings.iter().fold(root, |key, narrowing| narrowing.key(&key))
}
