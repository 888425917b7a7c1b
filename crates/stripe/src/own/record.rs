//! A record of what the striping manager keeps, as it lies on a drive: docs/striping.md has the bytes.
//!
//! There are two places, written in turn: whatever becomes of a write, the other place has the record before.

use nasd_types::DriveId;
use nasd_xdr::{Decoder, Encoder, XdrError};

/// Says that the bytes are such a record, and of which version.
const MAGIC: &[u8; 8] = b"NASDown1";

/// Bytes of magic, length and checksum.
pub(crate) const HEAD_BYTES: usize = 8 + 8 + 4;

/// Longer than any record.
const MOST_BYTES: u64 = 1 << 30;

/// Most drives with copies that are read.
const MOST_COPIES: usize = 1024;

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Of the membership in which it was written.
    pub(crate) epoch: u32,
    /// One more than that of the record before.
    pub(crate) sequence: u64,
    /// Bytes of the device of the virtual drive's own store.
    pub(crate) device_bytes: u64,
    /// The drives with current copies when it was written.
    pub(crate) copies: Vec<DriveId>,
    /// What is kept, if anything ever was.
    pub(crate) state: Option<Vec<u8>>,
}

/// How many bytes the record that begins so has, if one does.
pub(crate) fn length_of(head: &[u8]) -> Option<usize> {
    let mut input = Decoder::new(head);
    let magic: [u8; 8] = input.opaque_fixed().ok()?;
    let length = input.u64().ok()?;
    let is_record = magic == *MAGIC && length >= HEAD_BYTES as u64 && length <= MOST_BYTES;
    is_record.then_some(length as usize)
}

impl Record {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut body = Encoder::new();
        body.u32(self.epoch);
        body.u64(self.sequence);
        body.u64(self.device_bytes);
        body.array_with(&self.copies, |body, drive| body.u64(drive.0));
        body.bool(self.state.is_some());
        if let Some(state) = &self.state {
            body.opaque(state);
        }
        let body = body.into_bytes();
        let mut out = Encoder::new();
        out.opaque_fixed(MAGIC);
        out.u64((HEAD_BYTES + body.len()) as u64);
        out.u32(crc32c::crc32c(&body));
        let mut bytes = out.into_bytes();
        bytes.extend(body);
        bytes
    }

    /// The record at the beginning of these bytes; `None` if there is none that is whole.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let body = bytes.get(..length_of(bytes)?)?;
        let (head, body) = body.split_at_checked(HEAD_BYTES)?;
        let checksum = u32::from_be_bytes(*head.last_chunk()?);
        if crc32c::crc32c(body) != checksum {
            return None;
        }
        Record::parse(body).ok().flatten()
    }

    fn parse(body: &[u8]) -> Result<Option<Record>, XdrError> {
        let mut input = Decoder::new(body);
        let epoch = input.u32()?;
        let (sequence, device_bytes) = (input.u64()?, input.u64()?);
        let copies: Vec<u64> = input.array(MOST_COPIES)?;
        let copies: Vec<DriveId> = copies.into_iter().map(DriveId).collect();
        let state = match input.bool()? {
            true => Some(input.opaque(MOST_BYTES as usize)?.to_vec()),
            false => None,
        };
        let is_whole = input.position() == body.len() && copies.is_sorted();
        Ok(is_whole.then_some(Record { epoch, sequence, device_bytes, copies, state }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            epoch: 7,
            sequence: 12,
            device_bytes: 256 << 20,
            copies: vec![DriveId(3), DriveId(0x1234_5678_9abc_def0)],
            state: Some(b"state".to_vec()),
        }
    }

    #[test]
    fn its_bytes_are_those_of_the_document() {
        let body = [
            &[0, 0, 0, 7][..],
            &[0, 0, 0, 0, 0, 0, 0, 12],
            &[0, 0, 0, 0, 0x10, 0, 0, 0],
            &[0, 0, 0, 2],
            &[0, 0, 0, 0, 0, 0, 0, 3],
            &[0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0],
            &[0, 0, 0, 1],
            &[0, 0, 0, 5, b's', b't', b'a', b't', b'e', 0, 0, 0],
        ]
        .concat();
        let checksum = crc32c::crc32c(&body);
        let head = [&b"NASDown1"[..], &[0, 0, 0, 0, 0, 0, 0, 76], &checksum.to_be_bytes()].concat();
        assert_eq!(record().to_bytes(), [head, body].concat());
    }

    #[test]
    fn it_survives_its_bytes_and_what_follows_them_does_not_matter() {
        for state in [None, Some(Vec::new()), Some(vec![9; 3000])] {
            let record = Record { state, ..record() };
            let bytes = record.to_bytes();
            assert_eq!(length_of(&bytes[..HEAD_BYTES]), Some(bytes.len()));
            let followed = [&bytes[..], &[0xff; 100]].concat();
            assert_eq!(Record::from_bytes(&followed), Some(record));
        }
    }

    #[test]
    fn no_part_of_one_is_one_nor_is_one_that_was_changed() {
        let bytes = record().to_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Record::from_bytes(&bytes[..end]), None, "{end}");
            // Written over another one, but not wholly.
            let other = Record { sequence: 10, state: Some(b"STATE".to_vec()), ..record() };
            let torn = [&bytes[..end], &other.to_bytes()[end..]].concat();
            let read = Record::from_bytes(&torn);
            assert!(read.is_none() || read == Some(other) || read == Some(record()), "{end}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_eq!(Record::from_bytes(&changed), None, "{at} {bit}");
            }
        }
        assert_eq!(Record::from_bytes(&[0; 4096]), None);
    }

    #[test]
    fn any_body_with_a_right_checksum_is_read_or_refused() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let sample = record().to_bytes();
        for _ in 0..20_000 {
            let mut body = sample[HEAD_BYTES..].to_vec();
            for _ in 0..1 + next() % 4 {
                let at = (next() % body.len() as u64) as usize;
                body[at] = [0, 1, 0x7f, 0xff, next() as u8][(next() % 5) as usize];
            }
            body.truncate((next() % (2 * body.len() as u64)) as usize);
            let length = (HEAD_BYTES + body.len()) as u64;
            let checksum = crc32c::crc32c(&body).to_be_bytes();
            let bytes = [&MAGIC[..], &length.to_be_bytes(), &checksum, &body].concat();
            if let Some(read) = Record::from_bytes(&bytes) {
                assert_eq!(read.to_bytes(), bytes, "it has one form");
            }
        }
    }
}
