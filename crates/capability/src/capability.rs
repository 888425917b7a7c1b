//! The public half of a capability.
//!
//! Its layout is versioned by the domain string of [`crate::capability_key`]. What its holder took
//! away from it before he handed it on goes beside it, see [`crate::narrow`].

use nasd_types::{
    AuditId, ByteRange, DriveId, ObjectId, PartitionId, Protection, Rights, Timestamp,
};

/// Bytes of a capability in its canonical form, which is also its XDR form.
pub const CAPABILITY_BYTES: usize = 64;

/// What the holder of the matching key may do (`nasd_capability`; `capability_args` of Figure 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capability {
    /// The only drive that accepts it.
    pub drive: DriveId,
    /// The partition.
    pub partition: PartitionId,
    /// The object; 0 for operations on the partition, such as `create`.
    pub object: ObjectId,
    /// The bytes of the object that may be read and written.
    pub region: ByteRange,
    /// The operations allowed.
    pub rights: Rights,
    /// Refused from this instant of the drive's clock on; `Timestamp::MAX` never expires.
    pub expires: Timestamp,
    /// Chosen by the file manager, kept in audit records.
    pub audit_id: AuditId,
    /// The weakest protection with which it may be used.
    pub minimum_protection: Protection,
    /// Which working key it was minted with.
    pub key_epoch: u32,
}

impl Capability {
    /// The canonical form: the fields in the order of `specs/nasd.x`, big-endian.
    /// Every value of every field survives it, whether or not it has a meaning.
    pub fn to_bytes(&self) -> [u8; CAPABILITY_BYTES] {
        let mut bytes = [0; CAPABILITY_BYTES];
        bytes[0..8].copy_from_slice(&self.drive.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.partition.0.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.object.0.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.region.offset.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.region.length.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.rights.bits().to_be_bytes());
        bytes[40..48].copy_from_slice(&self.expires.0.to_be_bytes());
        bytes[48..56].copy_from_slice(&self.audit_id.0.to_be_bytes());
        bytes[56..60].copy_from_slice(&self.minimum_protection.bits().to_be_bytes());
        bytes[60..64].copy_from_slice(&self.key_epoch.to_be_bytes());
        bytes
    }

    /// From the canonical form. Any bytes are a capability; whether they are one that somebody
    /// minted is for the digest to tell. Unknown rights and options are kept as they are: an
    /// unknown right allows nothing, an unknown minimum option can't be met.
    pub fn from_bytes(bytes: &[u8; CAPABILITY_BYTES]) -> Self {
        Capability {
            drive: DriveId(word64(bytes, 0)),
            partition: PartitionId(word32(bytes, 8)),
            object: ObjectId(word64(bytes, 12)),
            // Not `ByteRange::new`, which would cut the length, and so change what was signed.
            region: ByteRange { offset: word64(bytes, 20), length: word64(bytes, 28) },
            rights: Rights::from_bits_retain(word32(bytes, 36)),
            expires: Timestamp(word64(bytes, 40)),
            audit_id: AuditId(word64(bytes, 48)),
            minimum_protection: Protection::from_bits_retain(word32(bytes, 56)),
            key_epoch: word32(bytes, 60),
        }
    }
}

fn word64(bytes: &[u8; CAPABILITY_BYTES], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}

fn word32(bytes: &[u8; CAPABILITY_BYTES], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}
