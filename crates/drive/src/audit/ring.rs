//! A ring of records in an object of the store: the newest takes the place of the oldest.

use nasd_protocol::drive::AuditRecord;
use nasd_store::{Store, StoreError, WriteData};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{ByteRange, ObjectId, ObjectName, PartitionId, Timestamp};

use super::record::{RECORD_BYTES, encode, parse};

/// The object of both rings.
pub(super) const OBJECT: ObjectName =
    ObjectName { partition: PartitionId::AUDIT, object: ObjectId::FIRST_OBJECT };

/// Records that are read or written at a time: 64 KiB.
const AT_ONCE: u64 = 1024;

/// Records of a block.
const OF_A_BLOCK: u64 = (BLOCK_BYTES / RECORD_BYTES) as u64;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ring {
    /// Where it begins in the object, in bytes.
    start: u64,
    /// Its length, in records.
    length: u64,
    /// The place of the next record.
    next: u64,
}

impl Ring {
    /// Finds the place behind the newest record; returns its sequence number too, 0 if there is none.
    pub(super) fn open(store: &Store, start: u64, length: u64) -> Result<(Ring, u64), StoreError> {
        let ring = Ring { start, length, next: 0 };
        let mut newest = (0, 0);
        for place in (0..length).step_by(AT_ONCE as usize) {
            for (index, record) in ring.read(store, place, AT_ONCE)?.into_iter().enumerate() {
                if let Some(record) = record
                    && record.sequence > newest.0
                {
                    newest = (record.sequence, (place + index as u64 + 1) % length);
                }
            }
        }
        Ok((Ring { next: newest.1, ..ring }, newest.0))
    }

    /// Writes records behind the newest, and takes those that are written out of the list.
    pub(super) fn append(
        &mut self,
        store: &Store,
        records: &mut Vec<AuditRecord>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut skipped = 0;
        while !records.is_empty() {
            let count = (records.len() as u64).min(AT_ONCE).min(self.length - self.next) as usize;
            let bytes: Vec<u8> = records[..count].iter().flat_map(encode).collect();
            let offset = self.start + self.next * RECORD_BYTES as u64;
            match store.write(OBJECT, offset, WriteData::Slice(&bytes), now) {
                Ok(_) => {
                    records.drain(..count);
                    self.next = (self.next + count as u64) % self.length;
                }
                // A block that has rotted can't be added to: the next one may be good.
                Err(StoreError::Corrupt { .. }) if skipped < self.length => {
                    let behind = (self.next / OF_A_BLOCK + 1) * OF_A_BLOCK;
                    skipped += behind - self.next;
                    self.next = if behind < self.length { behind } else { 0 };
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The first records, at most so many, in ascending order, that are newer than number `after`
    /// and wanted.
    pub(super) fn find(
        &self,
        store: &Store,
        after: u64,
        most: usize,
        wanted: impl Fn(&AuditRecord) -> bool,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        let mut found = Vec::new();
        let mut at = self.first_after(store, after)?;
        while at < self.length && found.len() < most {
            let place = (self.next + at) % self.length;
            let count = AT_ONCE.min(self.length - place).min(self.length - at);
            let records = self.read(store, place, count)?.into_iter().flatten();
            found.extend(records.filter(|record| record.sequence > after && wanted(record)));
            at += count;
        }
        found.truncate(most);
        Ok(found)
    }

    /// How far from the oldest place the first record is that is newer than number `after`; a place
    /// before it where places are damaged.
    fn first_after(&self, store: &Store, after: u64) -> Result<u64, StoreError> {
        let (mut low, mut high) = (0, if after == 0 { 0 } else { self.length });
        while low < high {
            let middle = low.midpoint(high);
            let place = (self.next + middle) % self.length;
            let record = self.read(store, place, 1)?.into_iter().next().flatten();
            if record.is_some_and(|record| record.sequence > after) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // What was skipped because it had rotted keeps older records, or none.
        Ok(low.saturating_sub(OF_A_BLOCK))
    }

    /// What is in some places. One that never had a record, or whose record is damaged, has none.
    fn read(
        &self,
        store: &Store,
        place: u64,
        count: u64,
    ) -> Result<Vec<Option<AuditRecord>>, StoreError> {
        let count = count.min(self.length - place);
        let offset = self.start + place * RECORD_BYTES as u64;
        let range = ByteRange::new(offset, count * RECORD_BYTES as u64);
        match store.read(OBJECT, range) {
            Ok(data) => Ok(data.to_vec().as_chunks().0.iter().map(parse).collect()),
            // The rest of the trail is worth having all the same.
            Err(StoreError::Corrupt { .. }) => Ok(vec![None; count as usize]),
            Err(error) => Err(error),
        }
    }
}
