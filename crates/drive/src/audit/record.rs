//! The bytes of the trail: docs/on-disk-format.md, "The audit trail". Integers are little-endian, as
//! everywhere on the medium.

use nasd_capability::KeyKind;
use nasd_protocol::drive::{AuditKind, AuditRecord};
use nasd_types::{AuditId, FS_SPECIFIC_BYTES, ObjectId, PartitionId, Timestamp};

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 64;

const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 4;
const MAGIC: &[u8; 8] = b"NASDaudt";
const HEADER_BYTES: usize = 32;

/// The record's bytes.
pub(super) fn encode(record: &AuditRecord) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &[VERSION, u32::from(record.kind) as u8, record.key.code() as u8]);
    put(8, &record.sequence.to_le_bytes());
    put(16, &record.first.0.to_le_bytes());
    put(24, &record.span_ms.to_le_bytes());
    put(28, &record.count.to_le_bytes());
    put(32, &record.audit_id.0.to_le_bytes());
    put(40, &record.object.0.to_le_bytes());
    put(48, &record.partition.0.to_le_bytes());
    put(52, &(record.procedure as u16).to_le_bytes());
    put(54, &(record.status as u16).to_le_bytes());
    let sum = checksum(&bytes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads a record; `None` for a place that has none, or one that is damaged.
pub(super) fn parse(bytes: &[u8; RECORD_BYTES]) -> Option<AuditRecord> {
    if bytes[0] != VERSION || le32(bytes, CHECKSUM_AT) != checksum(bytes) {
        return None;
    }
    Some(AuditRecord {
        sequence: le64(bytes, 8),
        first: Timestamp(le64(bytes, 16)),
        span_ms: le32(bytes, 24),
        count: le32(bytes, 28),
        kind: AuditKind::try_from(u32::from(bytes[1])).ok()?,
        procedure: le32(bytes, 52) & 0xffff,
        status: le32(bytes, 52) >> 16,
        key: KeyKind::from_code(u32::from(bytes[2]))?,
        partition: PartitionId(le32(bytes, 48)),
        object: ObjectId(le64(bytes, 40)),
        audit_id: AuditId(le64(bytes, 32)),
    })
}

/// How long the rings are: kept in the attribute `fs_specific` of their object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Records of the ring of what was proved.
    pub(super) proved: u64,
    /// Records of the other one, which lies behind it.
    pub(super) claimed: u64,
}

impl Sizes {
    /// Bytes of both.
    pub(super) const fn bytes(&self) -> u64 {
        (self.proved + self.claimed) * RECORD_BYTES as u64
    }

    pub(super) fn encode(&self) -> Box<[u8; FS_SPECIFIC_BYTES]> {
        let mut bytes = Box::new([0; FS_SPECIFIC_BYTES]);
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[16..24].copy_from_slice(&self.proved.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.claimed.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..HEADER_BYTES]);
        bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` for what is no such thing, or can't be.
    pub(super) fn parse(bytes: &[u8; FS_SPECIFIC_BYTES]) -> Option<Sizes> {
        let is_one = bytes[..8] == *MAGIC
            && bytes[8] == VERSION
            && le32(bytes, HEADER_BYTES) == crc32c::crc32c(&bytes[..HEADER_BYTES]);
        let sizes = Sizes { proved: le64(bytes, 16), claimed: le64(bytes, 24) };
        let sane = |records: u64| (1..=1 << 32).contains(&records);
        (is_one && sane(sizes.proved) && sane(sizes.claimed)).then_some(sizes)
    }
}

fn checksum(bytes: &[u8; RECORD_BYTES]) -> u32 {
    let mut copy = *bytes;
    copy[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    crc32c::crc32c(&copy)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> AuditRecord {
        AuditRecord {
            sequence: u64::MAX - 5,
            first: Timestamp(1_700_000_000_123_456_789),
            span_ms: 998,
            count: 1_000_000,
            kind: AuditKind::Claimed,
            procedure: 22,
            status: 301,
            key: KeyKind::Capability,
            partition: PartitionId(0xfedc_ba98),
            object: ObjectId(0x1122_3344_5566_7788),
            audit_id: AuditId(0x0000_03e8_aabb_ccdd),
        }
    }

    #[test]
    fn records_survive_their_bytes() {
        let bytes = encode(&record());
        assert_eq!(parse(&bytes), Some(record()));
        assert_eq!(parse(&[0; RECORD_BYTES]), None);
        for bit in 0..RECORD_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn sizes_survive_their_bytes() {
        let sizes = Sizes { proved: 1536, claimed: 512 };
        let bytes = sizes.encode();
        assert_eq!(Sizes::parse(&bytes), Some(sizes));
        assert_eq!(sizes.bytes(), 128 << 10);
        assert_eq!(Sizes::parse(&[0; FS_SPECIFIC_BYTES]), None);
        for bit in 0..(HEADER_BYTES + 4) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Sizes::parse(&damaged), None, "bit {bit}");
        }
    }
}
