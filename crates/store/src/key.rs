//! Keys as the store keeps them: bytes that it neither uses nor shows.

use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A secret key of the hierarchy of CMU-CS-97-118, Table 6. Wiped when dropped, never printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct StoredKey([u8; KEY_BYTES]);

impl StoredKey {
    /// Takes the key's bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> StoredKey {
        StoredKey(bytes)
    }

    /// The key's bytes, for whoever computes with them.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredKey(..)")
    }
}

/// A working key and its epoch, which capabilities name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingKey {
    /// Counts the partition's working keys.
    pub epoch: u32,
    /// The key.
    pub key: StoredKey,
}

/// The keys of one partition. A partition that was just created has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionKeys {
    /// Sets the working keys.
    pub partition: Option<StoredKey>,
    /// Makes and checks capabilities.
    pub current: Option<WorkingKey>,
    /// Still checks capabilities made before the last change of keys.
    pub previous: Option<WorkingKey>,
}

/// The keys of the drive itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveKeys {
    /// Sets the drive key, and initializes the drive.
    pub master: Option<StoredKey>,
    /// Manages partitions, and sets their keys.
    pub drive: Option<StoredKey>,
}
