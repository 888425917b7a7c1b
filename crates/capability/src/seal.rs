//! Keys on their way to a drive: sealed under the key that authorizes the request.
//!
//! ```text
//! pad     = BLAKE3 derive_key "nasd v1 sealed key pad" of the authorizing key (32) || salt (16)
//! tag key = BLAKE3 derive_key "nasd v1 sealed key tag" of the same
//! sealed  = key XOR pad
//! tag     = keyed BLAKE3 with the tag key of salt || sealed, first 16 bytes
//! ```
//!
//! The salt is drawn at random for each sealing, so that no pad is used twice; it need not be
//! secret. One construction serves both suites, as it needs nothing but the hash that keys are
//! derived with anyway. The request's digest covers all of this with the other arguments; the tag is
//! there so that a drive whose key has changed in between never takes garbage for a key.

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use crate::key::derive;
use crate::{KEY_BYTES, SecretKey};

/// Bytes of a salt, `NASD_SALT_BYTES`.
pub const SALT_BYTES: usize = 16;

/// Bytes of a tag, `NASD_TAG_BYTES`.
pub const TAG_BYTES: usize = 16;

/// The context strings of the derivations.
const PAD: &str = "nasd v1 sealed key pad";
const TAG: &str = "nasd v1 sealed key tag";

/// A key that can be shown to anybody (`nasd_sealed_key`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedKey {
    /// Drawn for this sealing.
    pub salt: [u8; SALT_BYTES],
    /// The key under the pad.
    pub sealed: [u8; KEY_BYTES],
    /// Proves that it was sealed under the key that opens it.
    pub tag: [u8; TAG_BYTES],
}

impl SealedKey {
    /// Seals `key` under another. `salt` must never have been used with `under` before: 128 random
    /// bits.
    pub fn seal(key: &SecretKey, under: &SecretKey, salt: [u8; SALT_BYTES]) -> SealedKey {
        let sealed = padded(key.expose(), under, &salt);
        SealedKey { salt, sealed, tag: tag(under, &salt, &sealed) }
    }

    /// The key, if it was sealed under `under`.
    pub fn open(&self, under: &SecretKey) -> Option<SecretKey> {
        let is_right: bool = tag(under, &self.salt, &self.sealed).ct_eq(&self.tag).into();
        let mut bytes = padded(&self.sealed, under, &self.salt);
        let key = SecretKey::new(bytes);
        bytes.zeroize();
        is_right.then_some(key)
    }
}

/// Puts the pad on, or takes it off.
fn padded(bytes: &[u8; KEY_BYTES], under: &SecretKey, salt: &[u8; SALT_BYTES]) -> [u8; KEY_BYTES] {
    let pad = derive(under, PAD, salt);
    let mut padded = *bytes;
    padded.iter_mut().zip(pad.expose()).for_each(|(byte, pad)| *byte ^= pad);
    padded
}

fn tag(under: &SecretKey, salt: &[u8; SALT_BYTES], sealed: &[u8; KEY_BYTES]) -> [u8; TAG_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(derive(under, TAG, salt).expose());
    hasher.update(salt);
    hasher.update(sealed);
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..TAG_BYTES]);
    hasher.zeroize();
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDER: SecretKey = SecretKey::new([7; 32]);

    #[test]
    fn what_was_sealed_opens_under_the_same_key_alone() {
        let key = SecretKey::new(std::array::from_fn(|index| index as u8));
        let sealed = SealedKey::seal(&key, &UNDER, [9; 16]);
        assert_eq!(sealed.open(&UNDER), Some(key.clone()));
        assert_eq!(sealed.open(&SecretKey::new([8; 32])), None);
        assert_ne!(&sealed.sealed, key.expose());
        let again = SealedKey::seal(&key, &UNDER, [10; 16]);
        assert_ne!(again.sealed, sealed.sealed, "another salt is another pad");
    }

    #[test]
    fn a_flipped_bit_anywhere_is_found() {
        let sealed = SealedKey::seal(&SecretKey::new([1; 32]), &UNDER, [9; 16]);
        for bit in 0..128 {
            let mut salted = sealed;
            salted.salt[bit / 8] ^= 1 << (bit % 8);
            let mut tagged = sealed;
            tagged.tag[bit / 8] ^= 1 << (bit % 8);
            assert_eq!((salted.open(&UNDER), tagged.open(&UNDER)), (None, None), "{bit}");
        }
        for bit in 0..256 {
            let mut altered = sealed;
            altered.sealed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(altered.open(&UNDER), None, "{bit}");
        }
    }
}
