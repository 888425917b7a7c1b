//! PRIVACY_CAPABILITY: a capability that the drive can read and nobody on the way.
//!
//! Whoever holds a capability has no working key, so that the file manager seals it when it mints
//! it, and its holder shows the sealed form. Partition and key epoch stay readable, as the drive must
//! find the key.
//!
//! ```text
//! nonce key, pad key, tag key = BLAKE3 derive_key of the working key, under [`NONCE`], [`PAD`], [`TAG`]
//! nonce  = keyed BLAKE3 by the nonce key of the capability (64 bytes), first 16 bytes
//! sealed = the capability XOR 64 bytes of keyed BLAKE3 by the pad key of nonce
//! tag    = keyed BLAKE3 by the tag key of partition || epoch || nonce || sealed, first 16 bytes
//! ```
//!
//! The nonce depends on all that is sealed, so that a pad is used twice only for the same
//! capability: two equal sealed forms are the same capability, and that is all that they tell. No
//! state is needed, and the drive can keep what it derived under the sealed bytes. The construction
//! serves both suites, as it needs nothing but the hash that keys are derived with anyway.

use nasd_types::PartitionId;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::key::Purpose;
use crate::{CAPABILITY_BYTES, Capability, SecretKey, TAG_BYTES};

/// Bytes of a sealed capability's nonce, `NASD_NONCE_BYTES`.
pub const SEALED_NONCE_BYTES: usize = 16;

static NONCE: Purpose = Purpose::new("nasd v1 sealed capability nonce");
static PAD: Purpose = Purpose::new("nasd v1 sealed capability pad");
static TAG: Purpose = Purpose::new("nasd v1 sealed capability tag");

/// A capability's public half in a form that only holders of the working key can read
/// (`nasd_sealed_capability`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SealedCapability {
    /// Whose working key it is sealed under.
    pub partition: PartitionId,
    /// Which one.
    pub key_epoch: u32,
    /// Made from the capability.
    pub nonce: [u8; SEALED_NONCE_BYTES],
    /// The capability under the pad.
    pub sealed: [u8; CAPABILITY_BYTES],
    /// Proves that it was sealed under that key.
    pub tag: [u8; TAG_BYTES],
}

/// What capabilities are sealed and opened with: made from a working key once.
#[derive(Clone, Debug)]
pub struct SealingKeys {
    nonce: SecretKey,
    pad: SecretKey,
    tag: SecretKey,
}

impl SealingKeys {
    /// Those of a working key.
    pub fn new(working: &SecretKey) -> SealingKeys {
        SealingKeys {
            nonce: NONCE.derive(working, &[]),
            pad: PAD.derive(working, &[]),
            tag: TAG.derive(working, &[]),
        }
    }

    /// Seals a capability that was minted with the same working key.
    pub fn seal(&self, capability: &Capability) -> SealedCapability {
        let mut plain = capability.to_bytes();
        let nonce = first_16(&self.nonce, &[&plain]);
        let sealed = self.padded(&plain, &nonce);
        plain.zeroize();
        let Capability { partition, key_epoch, .. } = *capability;
        let unproved = SealedCapability { partition, key_epoch, nonce, sealed, tag: [0; 16] };
        SealedCapability { tag: self.tag(&unproved), ..unproved }
    }

    /// The capability; `None` if it was not sealed with these keys, for that partition and epoch.
    pub fn open(&self, sealed: &SealedCapability) -> Option<Capability> {
        let is_right: bool = self.tag(sealed).ct_eq(&sealed.tag).into();
        if !is_right {
            return None;
        }
        let mut plain = self.padded(&sealed.sealed, &sealed.nonce);
        let capability = Capability::from_bytes(&plain);
        plain.zeroize();
        let is_what_it_says =
            (capability.partition, capability.key_epoch) == (sealed.partition, sealed.key_epoch);
        is_what_it_says.then_some(capability)
    }

    /// Puts the pad on, or takes it off.
    fn padded(
        &self,
        bytes: &[u8; CAPABILITY_BYTES],
        nonce: &[u8; SEALED_NONCE_BYTES],
    ) -> [u8; CAPABILITY_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(self.pad.expose());
        hasher.update(nonce);
        let mut padded = [0; CAPABILITY_BYTES];
        hasher.finalize_xof().fill(&mut padded);
        hasher.zeroize();
        padded.iter_mut().zip(bytes).for_each(|(pad, byte)| *pad ^= byte);
        padded
    }

    fn tag(&self, of: &SealedCapability) -> [u8; TAG_BYTES] {
        let (partition, epoch) = (of.partition.0.to_be_bytes(), of.key_epoch.to_be_bytes());
        first_16(&self.tag, &[&partition, &epoch, &of.nonce, &of.sealed])
    }
}

/// The first 16 bytes of keyed BLAKE3 of the parts, joined; all of them have fixed lengths.
fn first_16(key: &SecretKey, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(key.expose());
    for part in parts {
        hasher.update(part);
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    hasher.zeroize();
    first
}
