//! The record of the appends that were made last, by which one that is asked for again is known.

use std::collections::VecDeque;

use nasd_types::{AppendToken, ObjectId, ObjectName, PartitionId, Timestamp};

use super::{Checker, RecordError, seal};
use crate::layout::layout;

/// Appends of the whole drive that are remembered.
pub(crate) const APPENDS_KEPT: usize = 512;

/// Key of the record in the drive table.
pub(crate) const DRIVE_APPENDS: u32 = 4;

layout! {
    /// Head of the value of the drive table under `DRIVE_APPENDS`; the appends follow, the oldest first.
    pub(crate) mod appends {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        FORGOTTEN: 8,
        COUNT: 4,
        RESERVED2: 4,
    }
}

layout! {
    /// One append in that record.
    pub(crate) mod append {
        PARTITION: 4,
        LENGTH: 4,
        OBJECT: 8,
        TOKEN: 16,
        OFFSET: 8,
        TIME: 8,
    }
}

/// An append that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) name: ObjectName,
    pub(crate) token: AppendToken,
    /// Where its bytes went, and how many there were.
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// When, by the drive's clock.
    pub(crate) time: Timestamp,
}

/// The appends that were made last, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Appends {
    kept: VecDeque<Appended>,
    /// No append that was made later than this is missing.
    forgotten: Timestamp,
}

impl Appends {
    /// Remembers one, and forgets the oldest if there are too many.
    pub(crate) fn push(&mut self, appended: Appended) {
        self.kept.push_back(appended);
        while self.kept.len() > APPENDS_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.time);
        }
    }

    /// The append of that token to that object, if it is remembered.
    pub(crate) fn find(&self, name: ObjectName, token: &AppendToken) -> Option<Appended> {
        let mut kept = self.kept.iter().rev();
        kept.find(|kept| kept.token == *token && kept.name == name).copied()
    }

    /// Those to an object, the oldest first.
    pub(crate) fn to(&self, name: ObjectName) -> impl Iterator<Item = &Appended> {
        self.kept.iter().filter(move |kept| kept.name == name)
    }

    /// Whether an append that was made at that time, or later, may be one that is not remembered.
    pub(crate) fn may_have_forgotten(&self, since: Timestamp) -> bool {
        since <= self.forgotten
    }

    /// The record's bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut record = vec![0; appends::BYTES];
        appends::FORGOTTEN.put(&mut record, &self.forgotten.0.to_le_bytes());
        appends::COUNT.put(&mut record, &(self.kept.len() as u32).to_le_bytes());
        for one in &self.kept {
            let mut bytes = [0; append::BYTES];
            append::PARTITION.put(&mut bytes, &one.name.partition.0.to_le_bytes());
            append::LENGTH.put(&mut bytes, &one.length.to_le_bytes());
            append::OBJECT.put(&mut bytes, &one.name.object.0.to_le_bytes());
            append::TOKEN.put(&mut bytes, &one.token.0);
            append::OFFSET.put(&mut bytes, &one.offset.to_le_bytes());
            append::TIME.put(&mut bytes, &one.time.0.to_le_bytes());
            record.extend_from_slice(&bytes);
        }
        seal(&DRIVE_APPENDS.to_be_bytes(), &mut record, appends::CHECKSUM);
        record
    }

    /// Reads the record.
    pub(crate) fn parse(record: &[u8]) -> Result<Appends, RecordError> {
        let checker = Checker { kind: "appends", key: &DRIVE_APPENDS.to_be_bytes() };
        checker.ensure(record.len() >= appends::BYTES, "the length is wrong")?;
        let count = appends::COUNT.u32(record) as usize;
        checker.ensure(count <= APPENDS_KEPT, "there are too many appends")?;
        checker.envelope(record, appends::BYTES + count * append::BYTES, appends::CHECKSUM)?;
        checker.zero(record, &[appends::RESERVED, appends::RESERVED2])?;
        let kept = record[appends::BYTES..].chunks_exact(append::BYTES).map(|bytes| Appended {
            name: ObjectName {
                partition: PartitionId(append::PARTITION.u32(bytes)),
                object: ObjectId(append::OBJECT.u64(bytes)),
            },
            token: AppendToken(append::TOKEN.array(bytes)),
            offset: append::OFFSET.u64(bytes),
            length: append::LENGTH.u32(bytes),
            time: Timestamp(append::TIME.u64(bytes)),
        });
        let forgotten = Timestamp(appends::FORGOTTEN.u64(record));
        Ok(Appends { kept: kept.collect(), forgotten })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appended(number: u64) -> Appended {
        let mut token = [0; AppendToken::BYTES];
        token[..8].copy_from_slice(&number.to_le_bytes());
        Appended {
            name: ObjectName { partition: PartitionId(1), object: ObjectId(number % 3) },
            token: AppendToken(token),
            offset: 10 * number,
            length: 10,
            time: Timestamp(1000 + number),
        }
    }

    #[test]
    fn the_last_ones_are_kept_and_survive_their_bytes() {
        let mut appends = Appends::default();
        assert_eq!(Appends::parse(&appends.encode()), Ok(appends.clone()));
        let last = APPENDS_KEPT as u64 + 9;
        (0..=last).for_each(|number| appends.push(appended(number)));
        for number in 0..=last {
            let one = appended(number);
            let kept = number > last - APPENDS_KEPT as u64;
            assert_eq!(appends.find(one.name, &one.token), kept.then_some(one), "{number}");
            // What is missing is never taken for one that was not made.
            assert!(kept || appends.may_have_forgotten(one.time), "{number}");
        }
        assert!(!appends.may_have_forgotten(appended(last).time));
        let other = ObjectName { partition: PartitionId(2), ..appended(last).name };
        assert_eq!(appends.find(other, &appended(last).token), None);
        let bytes = appends.encode();
        assert_eq!(Appends::parse(&bytes), Ok(appends));
        for length in 0..bytes.len() {
            assert!(Appends::parse(&bytes[..length]).is_err(), "{length}");
        }
        for byte in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[byte] ^= 4;
            assert!(Appends::parse(&bad).is_err(), "{byte}");
        }
    }
}
