//! Secret keys and their hierarchy (CMU-CS-97-118, Table 6).
//!
//! A key is 32 random bytes. Keys are not derived downwards from the master key: each level is set
//! by the one above, so that replacing a key says nothing about its successor. What is derived
//! (with BLAKE3's `derive_key`, and never from a tag of a MAC) are the sub-keys that one key needs
//! for its several purposes, see [`derive`].
//!
//! A new key travels sealed (see [`crate::seal`]) under the key that has authority over it.

use std::fmt;
use std::sync::OnceLock;

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};
use subtle::{Choice, ConstantTimeEq};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::Refusal;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A secret key. Wiped when dropped, compared in constant time, and never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SecretKey([u8; KEY_BYTES]);

impl SecretKey {
    /// From 32 bytes, which must come from a good random source or from [`derive`].
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        SecretKey(bytes)
    }

    /// The bytes, to store or send them. Callers must take care that they don't leak.
    pub const fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl From<[u8; KEY_BYTES]> for SecretKey {
    fn from(bytes: [u8; KEY_BYTES]) -> Self {
        SecretKey(bytes)
    }
}

impl ConstantTimeEq for SecretKey {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.ct_eq(other).into()
    }
}

impl Eq for SecretKey {}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(hidden)")
    }
}

/// A key for one purpose, from a key that has several.
///
/// This is BLAKE3's `derive_key` with `purpose` as its context string, over the parent's 32 bytes
/// followed by `salt`. `purpose` must be a constant of the program, unique to the purpose; the
/// parent has a fixed length, so that parent and salt can't run into each other.
pub fn derive(parent: &SecretKey, purpose: &'static str, salt: &[u8]) -> SecretKey {
    finish_derivation(blake3::Hasher::new_derive_key(purpose), parent, salt)
}

/// What keys are derived for. The hash of its context string, which is half of the work of deriving
/// one, is made once.
pub(crate) struct Purpose {
    context: &'static str,
    hashed: OnceLock<ContextKey>,
}

impl Purpose {
    /// `context` as in [`derive`].
    pub(crate) const fn new(context: &'static str) -> Purpose {
        Purpose { context, hashed: OnceLock::new() }
    }

    /// As [`derive`].
    pub(crate) fn derive(&self, parent: &SecretKey, salt: &[u8]) -> SecretKey {
        let hashed = self.hashed.get_or_init(|| hash_derive_key_context(self.context));
        finish_derivation(blake3::Hasher::new_from_context_key(hashed), parent, salt)
    }
}

fn finish_derivation(mut hasher: blake3::Hasher, parent: &SecretKey, salt: &[u8]) -> SecretKey {
    hasher.update(parent.expose());
    hasher.update(salt);
    let key = SecretKey(*hasher.finalize().as_bytes());
    hasher.zeroize();
    key
}

/// Which key a request is authorized with (`nasd_key_kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u32)]
pub enum KeyKind {
    /// No key: NO_PROTECTION, for inquiry alone.
    #[default]
    None = 0,
    /// Sets the drive key and initializes the drive, and nothing else.
    Master = 1,
    /// The drive administrator's: manipulates partitions, sets partition keys, any object.
    Drive = 2,
    /// The file manager's long-lived key: sets working keys, any object of its partition.
    Partition = 3,
    /// What capabilities are minted with now.
    WorkingCurrent = 4,
    /// What capabilities were minted with in the period before.
    WorkingPrevious = 5,
    /// The secret half of a capability.
    Capability = 6,
}

impl KeyKind {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The kind with that number on the wire.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => KeyKind::None,
            1 => KeyKind::Master,
            2 => KeyKind::Drive,
            3 => KeyKind::Partition,
            4 => KeyKind::WorkingCurrent,
            5 => KeyKind::WorkingPrevious,
            6 => KeyKind::Capability,
            _ => return None,
        })
    }

    /// Whether the credential must say which partition's key it is.
    pub const fn is_of_a_partition(self) -> bool {
        matches!(self, KeyKind::Partition | KeyKind::WorkingCurrent | KeyKind::WorkingPrevious)
    }
}

/// A set of key kinds: those with which an operation may be authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct KeyKinds(u8);

impl KeyKinds {
    /// No authority needed: `inquiry`, whose answer any kind of key may prove.
    pub const ANYONE: KeyKinds = KeyKinds::OBJECT.with(KeyKind::None).with(KeyKind::Master);
    /// Operations on objects (Table 1): all but the master key.
    pub const OBJECT: KeyKinds = KeyKinds(0)
        .with(KeyKind::Drive)
        .with(KeyKind::Partition)
        .with(KeyKind::WorkingCurrent)
        .with(KeyKind::WorkingPrevious)
        .with(KeyKind::Capability);

    /// Operations on many objects of a partition at a time: whoever has a key for all of them.
    pub const PARTITION: KeyKinds = KeyKinds(0)
        .with(KeyKind::Drive)
        .with(KeyKind::Partition)
        .with(KeyKind::WorkingCurrent)
        .with(KeyKind::WorkingPrevious);

    /// Operations that only this kind of key may ask for.
    pub const fn only(kind: KeyKind) -> Self {
        KeyKinds(0).with(kind)
    }

    /// The set with `kind` added.
    pub const fn with(self, kind: KeyKind) -> Self {
        KeyKinds(self.0 | 1 << kind.code())
    }

    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: KeyKind) -> bool {
        self.0 & 1 << kind.code() != 0
    }
}

/// A working key and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingKey {
    /// Rises with each of the partition's working keys; a public field of the capabilities minted
    /// with it.
    pub epoch: u32,
    /// The key.
    pub key: SecretKey,
}

/// A partition's pair of working keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingKeys {
    /// What capabilities are minted with now.
    pub current: WorkingKey,
    /// Keeps the capabilities of the period before alive. Dropping it revokes them all.
    pub previous: Option<WorkingKey>,
}

impl WorkingKeys {
    /// The key with which a capability of that epoch was minted; [`Refusal::Epoch`] if it is gone.
    pub fn of_epoch(&self, epoch: u32) -> Result<&SecretKey, Refusal> {
        if epoch == self.current.epoch {
            return Ok(&self.current.key);
        }
        match &self.previous {
            Some(previous) if epoch == previous.epoch => Ok(&previous.key),
            _ => Err(Refusal::Epoch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_the_key() {
        let key = SecretKey::new([0xa5; 32]);
        assert_eq!(format!("{key:?}"), "SecretKey(hidden)");
    }

    #[test]
    fn purpose_and_salt_separate_derived_keys() {
        let parent = SecretKey::new([7; 32]);
        let key = derive(&parent, "nasd test one", b"salt");
        assert_ne!(key, derive(&parent, "nasd test two", b"salt"));
        assert_ne!(key, derive(&parent, "nasd test one", b"sal"));
        assert_ne!(key, derive(&SecretKey::new([8; 32]), "nasd test one", b"salt"));
        assert_eq!(key, derive(&parent, "nasd test one", b"salt"));
        let purpose = Purpose::new("nasd test one");
        assert_eq!(key, purpose.derive(&parent, b"salt"));
        assert_eq!(key, purpose.derive(&parent, b"salt"));
    }

    #[test]
    fn kinds_survive_the_wire_and_sets_hold_what_was_put_in() {
        for code in 0..7 {
            let kind = KeyKind::from_code(code).expect("a kind of the wire");
            assert_eq!(kind.code(), code);
            assert_eq!(KeyKinds::default().with(kind), KeyKinds(1 << code));
        }
        assert_eq!(KeyKind::from_code(7), None);
        assert!(!KeyKinds::OBJECT.contains(KeyKind::None));
        assert!(!KeyKinds::OBJECT.contains(KeyKind::Master));
        assert!(KeyKinds::ANYONE.contains(KeyKind::Master));
        assert!(KeyKinds::ANYONE.contains(KeyKind::None));
    }

    #[test]
    fn only_two_epochs_are_known() {
        let (old, new) = (SecretKey::new([1; 32]), SecretKey::new([2; 32]));
        let working = |epoch, key: &SecretKey| WorkingKey { epoch, key: key.clone() };
        let mut keys = WorkingKeys { current: working(5, &new), previous: Some(working(3, &old)) };
        assert_eq!(keys.of_epoch(5), Ok(&new));
        assert_eq!(keys.of_epoch(3), Ok(&old));
        for gone in [0, 2, 4, 6, u32::MAX] {
            assert_eq!(keys.of_epoch(gone), Err(Refusal::Epoch));
        }
        keys.previous = None;
        assert_eq!(keys.of_epoch(3), Err(Refusal::Epoch));
    }
}
