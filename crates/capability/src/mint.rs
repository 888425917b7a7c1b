//! Minting: the secret half of a capability (`capability_key` of Figure 1).
//!
//! ```text
//! capability_key = BLAKE3 keyed by the working key of
//!     "nasd-capability1"  ||  canonical capability (64 bytes)  ||  access_control_version (8)
//! ```
//!
//! All parts have fixed lengths, so that the sum is unambiguous. The key epoch is among the
//! fields, so that a capability is bound to the working key that it says it was minted with. Both
//! suites use this function: a capability works with either.

use zeroize::Zeroize;

use crate::{Capability, SecretKey};

/// Separates this use of a working key from all others; the digit is the layout's version.
const DOMAIN: &[u8; 16] = b"nasd-capability1";

/// The key that belongs to `capability` as long as the object has that `access_control_version`
/// (0 where the capability names no object). Computed by whoever has the working key: the file
/// manager, who hands it to the client privately, and the drive, for every request.
pub fn capability_key(
    working: &SecretKey,
    capability: &Capability,
    access_control_version: u64,
) -> SecretKey {
    let mut hasher = blake3::Hasher::new_keyed(working.expose());
    hasher.update(DOMAIN);
    hasher.update(&capability.to_bytes());
    hasher.update(&access_control_version.to_be_bytes());
    let key = SecretKey::new(*hasher.finalize().as_bytes());
    hasher.zeroize();
    key
}
