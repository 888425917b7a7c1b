//! The record of the appends that a drive remembers.

use std::collections::VecDeque;

use crate::bytes::{all_zero, array, le32, le64, put32, put64};
use crate::record::{Flaw, Record, VERSION, open, seal};

/// Key of the record in the drive table.
pub(crate) const APPENDS: u32 = 4;
const HEADER: usize = 24;
const APPEND_BYTES: usize = 48;
/// Most appends of the record.
const APPENDS_MAX: usize = 512;

/// One append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) partition: u32,
    pub(crate) length: u32,
    pub(crate) object: u64,
    pub(crate) token: [u8; 16],
    pub(crate) offset: u64,
    pub(crate) time: u64,
}

/// The last appends, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Appends {
    kept: VecDeque<Appended>,
    forgotten: u64,
}

impl Appends {
    /// Adds one, and forgets what is too much.
    pub(crate) fn push(&mut self, appended: Appended) {
        self.kept.push_back(appended);
        if self.kept.len() > APPENDS_MAX {
            let gone = self.kept.pop_front().map_or(0, |gone| gone.time);
            self.forgotten = self.forgotten.max(gone);
        }
    }
}

impl Record for Appends {
    fn decode(key: &[u8], record: &[u8]) -> Result<(Appends, bool), Flaw> {
        let longest = HEADER + APPENDS_MAX * APPEND_BYTES;
        open(key, record, HEADER..=longest)?;
        if record.len() != HEADER + le32(record, 16) as usize * APPEND_BYTES {
            return Err(Flaw::Length(record.len()));
        }
        let kept = record[HEADER..].chunks_exact(APPEND_BYTES).map(|bytes| Appended {
            partition: le32(bytes, 0),
            length: le32(bytes, 4),
            object: le64(bytes, 8),
            token: array(bytes, 16),
            offset: le64(bytes, 32),
            time: le64(bytes, 40),
        });
        let clean = all_zero(&record[1..4]) && all_zero(&record[20..24]);
        Ok((Appends { kept: kept.collect(), forgotten: le64(record, 8) }, clean))
    }

    fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut record = vec![0; HEADER + self.kept.len() * APPEND_BYTES];
        record[0] = VERSION;
        put64(&mut record, 8, self.forgotten);
        put32(&mut record, 16, self.kept.len() as u32);
        for (one, bytes) in self.kept.iter().zip(record[HEADER..].chunks_exact_mut(APPEND_BYTES)) {
            put32(bytes, 0, one.partition);
            put32(bytes, 4, one.length);
            put64(bytes, 8, one.object);
            bytes[16..32].copy_from_slice(&one.token);
            put64(bytes, 32, one.offset);
            put64(bytes, 40, one.time);
        }
        seal(key, record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(number: u64) -> Appended {
        let token = [number as u8; 16];
        Appended { partition: 1, length: 3, object: number, token, offset: number, time: number }
    }

    #[test]
    fn the_record_survives_its_bytes_and_forgets_what_is_too_much() {
        let key = APPENDS.to_be_bytes();
        let mut appends = Appends::default();
        (1..=APPENDS_MAX as u64 + 2).for_each(|number| appends.push(appended(number)));
        assert_eq!((appends.kept.len(), appends.forgotten), (APPENDS_MAX, 2));
        let record = appends.encode(&key);
        assert_eq!(Appends::decode(&key, &record), Ok((appends, true)));
        let short = record[..record.len() - APPEND_BYTES].to_vec();
        assert!(matches!(Appends::decode(&key, &seal(&key, short)), Err(Flaw::Length(_))));
        assert_eq!(Appends::decode(&[0; 4], &record), Err(Flaw::Checksum));
    }
}
