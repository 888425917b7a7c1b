//! Records of the drive and of its partitions.

use nasd_types::{Compression, PartitionId, Protection, Timestamp};

use super::{Checker, LOGICAL_BLOCKS_MAX, RecordError, seal};
use crate::layout::{Field, layout};
use crate::{
    ClockState, DriveKeys, KEY_BYTES, PartitionKeys, PartitionSettings, StoredKey, WorkingKey,
};

layout! {
    /// Value of the partitions table.
    pub(crate) mod partition {
        VERSION: 1,
        FLAGS: 1,
        CODEC: 1,
        RESERVED: 1,
        CHECKSUM: 4,
        QUOTA_BYTES: 8,
        OBJECTS: 8,
        CHARGED_BLOCKS: 8,
        CURRENT_EPOCH: 4,
        PREVIOUS_EPOCH: 4,
        PARTITION_KEY: 32,
        CURRENT_KEY: 32,
        PREVIOUS_KEY: 32,
        MINIMUM_PROTECTION: 4,
        RESERVED2: 4,
    }
}

const HAS_PARTITION_KEY: u8 = 1;
const HAS_CURRENT_KEY: u8 = 2;
const HAS_PREVIOUS_KEY: u8 = 4;
const IS_BEING_REMOVED: u8 = 8;

layout! {
    /// Value of the drive table under `DRIVE_KEYS`.
    pub(crate) mod drive_keys {
        VERSION: 1,
        FLAGS: 1,
        RESERVED: 2,
        CHECKSUM: 4,
        MASTER_KEY: 32,
        DRIVE_KEY: 32,
    }
}

const HAS_MASTER_KEY: u8 = 1;
const HAS_DRIVE_KEY: u8 = 2;

layout! {
    /// Value of the drive table under `DRIVE_COUNTERS`.
    pub(crate) mod drive_counters {
        VERSION: 1,
        MINIMUM_PROTECTION: 1,
        RESERVED: 2,
        CHECKSUM: 4,
        OBJECT_LIMIT: 8,
        CLOCK_OFFSET: 8,
        CLOCK_MARK: 8,
        SKEW_PAST: 8,
        SKEW_AHEAD: 8,
    }
}

layout! {
    /// Value of the drive table under `LOG_MARK`.
    pub(crate) mod log_mark {
        VERSION: 1,
        RESERVED: 3,
        CHECKSUM: 4,
        APPLIED_SEQUENCE: 8,
        NEXT_OFFSET: 8,
    }
}

/// Key of the drive's keys in the drive table.
pub(crate) const DRIVE_KEYS: u32 = 1;

/// Key of the drive's counters in the drive table.
pub(crate) const DRIVE_COUNTERS: u32 = 2;

/// Key of the log mark in the drive table.
pub(crate) const LOG_MARK: u32 = 3;

/// A partition's quota, keys and counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) quota_bytes: u64,
    pub(crate) keys: PartitionKeys,
    pub(crate) settings: PartitionSettings,
    /// It takes no requests, and its objects are being removed.
    pub(crate) removing: bool,
    pub(crate) objects: u64,
    pub(crate) charged_blocks: u64,
}

fn put_key(record: &mut [u8], field: Field, key: &StoredKey) {
    field.put(record, key.expose());
}

/// The key in a field, which has to be zeros when there is none.
fn take_key(
    checker: &Checker<'_>,
    record: &[u8],
    field: Field,
    present: bool,
) -> Result<Option<StoredKey>, RecordError> {
    checker.ensure(present || field.is_zero(record), "a key that is not there is not zero")?;
    Ok(present.then(|| StoredKey::new(field.array::<KEY_BYTES>(record))))
}

impl PartitionRecord {
    /// The record's bytes.
    pub(crate) fn encode(&self, partition: PartitionId) -> [u8; partition::BYTES] {
        let mut record = [0; partition::BYTES];
        let mut flags = if self.removing { IS_BEING_REMOVED } else { 0 };
        if let Some(key) = &self.keys.partition {
            flags |= HAS_PARTITION_KEY;
            put_key(&mut record, partition::PARTITION_KEY, key);
        }
        if let Some(current) = &self.keys.current {
            flags |= HAS_CURRENT_KEY;
            partition::CURRENT_EPOCH.put(&mut record, &current.epoch.to_le_bytes());
            put_key(&mut record, partition::CURRENT_KEY, &current.key);
        }
        if let Some(previous) = &self.keys.previous {
            flags |= HAS_PREVIOUS_KEY;
            partition::PREVIOUS_EPOCH.put(&mut record, &previous.epoch.to_le_bytes());
            put_key(&mut record, partition::PREVIOUS_KEY, &previous.key);
        }
        partition::FLAGS.put(&mut record, &[flags]);
        partition::CODEC.put(&mut record, &[self.settings.compression as u8]);
        partition::QUOTA_BYTES.put(&mut record, &self.quota_bytes.to_le_bytes());
        partition::OBJECTS.put(&mut record, &self.objects.to_le_bytes());
        partition::CHARGED_BLOCKS.put(&mut record, &self.charged_blocks.to_le_bytes());
        let protection = self.settings.minimum_protection.bits();
        partition::MINIMUM_PROTECTION.put(&mut record, &protection.to_le_bytes());
        seal(&partition.0.to_be_bytes(), &mut record, partition::CHECKSUM);
        record
    }

    /// Reads a record found under `partition`.
    pub(crate) fn parse(
        partition: PartitionId,
        record: &[u8],
    ) -> Result<PartitionRecord, RecordError> {
        let checker = Checker { kind: "partition", key: &partition.0.to_be_bytes() };
        checker.envelope(record, partition::BYTES, partition::CHECKSUM)?;
        checker.zero(record, &[partition::RESERVED, partition::RESERVED2])?;
        let flags = partition::FLAGS.of(record)[0];
        let known = HAS_PARTITION_KEY | HAS_CURRENT_KEY | HAS_PREVIOUS_KEY | IS_BEING_REMOVED;
        checker.ensure(flags & !known == 0, "a reserved bit is not zero")?;
        let key = |field, bit| take_key(&checker, record, field, flags & bit != 0);
        let working = |field: Field, epoch: Field, bit| {
            let epoch = epoch.u32(record);
            key(field, bit).map(|key| key.map(|key| WorkingKey { epoch, key }))
        };
        let compression = Compression::from_number(partition::CODEC.of(record)[0])
            .ok_or_else(|| checker.fail("the codec is not known"))?;
        let protection = partition::MINIMUM_PROTECTION.u32(record);
        let minimum_protection = Protection::from_bits(protection)
            .ok_or_else(|| checker.fail("a protection option is not known"))?;
        let charged_blocks = partition::CHARGED_BLOCKS.u64(record);
        let countable = charged_blocks <= LOGICAL_BLOCKS_MAX;
        checker.ensure(countable, "a count of blocks is above the limit")?;
        Ok(PartitionRecord {
            quota_bytes: partition::QUOTA_BYTES.u64(record),
            keys: PartitionKeys {
                partition: key(partition::PARTITION_KEY, HAS_PARTITION_KEY)?,
                current: working(
                    partition::CURRENT_KEY,
                    partition::CURRENT_EPOCH,
                    HAS_CURRENT_KEY,
                )?,
                previous: working(
                    partition::PREVIOUS_KEY,
                    partition::PREVIOUS_EPOCH,
                    HAS_PREVIOUS_KEY,
                )?,
            },
            settings: PartitionSettings { compression, minimum_protection },
            removing: flags & IS_BEING_REMOVED != 0,
            objects: partition::OBJECTS.u64(record),
            charged_blocks,
        })
    }
}

/// The bytes of the record that keeps the drive's keys.
pub(crate) fn encode_drive_keys(keys: &DriveKeys) -> [u8; drive_keys::BYTES] {
    let mut record = [0; drive_keys::BYTES];
    let mut flags = 0;
    if let Some(key) = &keys.master {
        flags |= HAS_MASTER_KEY;
        put_key(&mut record, drive_keys::MASTER_KEY, key);
    }
    if let Some(key) = &keys.drive {
        flags |= HAS_DRIVE_KEY;
        put_key(&mut record, drive_keys::DRIVE_KEY, key);
    }
    drive_keys::FLAGS.put(&mut record, &[flags]);
    seal(&DRIVE_KEYS.to_be_bytes(), &mut record, drive_keys::CHECKSUM);
    record
}

/// Reads the record that keeps the drive's keys.
pub(crate) fn parse_drive_keys(record: &[u8]) -> Result<DriveKeys, RecordError> {
    let checker = Checker { kind: "drive keys", key: &DRIVE_KEYS.to_be_bytes() };
    checker.envelope(record, drive_keys::BYTES, drive_keys::CHECKSUM)?;
    checker.zero(record, &[drive_keys::RESERVED])?;
    let flags = drive_keys::FLAGS.of(record)[0];
    let known = HAS_MASTER_KEY | HAS_DRIVE_KEY;
    checker.ensure(flags & !known == 0, "a reserved bit is not zero")?;
    let key = |field, bit| take_key(&checker, record, field, flags & bit != 0);
    Ok(DriveKeys {
        master: key(drive_keys::MASTER_KEY, HAS_MASTER_KEY)?,
        drive: key(drive_keys::DRIVE_KEY, HAS_DRIVE_KEY)?,
    })
}

/// What the drive counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Every identifier below may have been given out.
    pub(crate) object_limit: u64,
    pub(crate) clock: ClockState,
    /// The least protection of all requests.
    pub(crate) minimum_protection: Protection,
}

const _: () = assert!(Protection::all().bits() <= u8::MAX as u32);

impl Counters {
    /// The record's bytes.
    pub(crate) fn encode(&self) -> [u8; drive_counters::BYTES] {
        let mut record = [0; drive_counters::BYTES];
        // There are fewer than eight options.
        let minimum = self.minimum_protection.bits() as u8;
        drive_counters::MINIMUM_PROTECTION.put(&mut record, &[minimum]);
        drive_counters::OBJECT_LIMIT.put(&mut record, &self.object_limit.to_le_bytes());
        drive_counters::CLOCK_OFFSET.put(&mut record, &self.clock.offset.to_le_bytes());
        drive_counters::CLOCK_MARK.put(&mut record, &self.clock.mark.0.to_le_bytes());
        drive_counters::SKEW_PAST.put(&mut record, &self.clock.skew_past_ns.to_le_bytes());
        drive_counters::SKEW_AHEAD.put(&mut record, &self.clock.skew_ahead_ns.to_le_bytes());
        seal(&DRIVE_COUNTERS.to_be_bytes(), &mut record, drive_counters::CHECKSUM);
        record
    }

    /// Reads the record.
    pub(crate) fn parse(record: &[u8]) -> Result<Counters, RecordError> {
        let checker = Checker { kind: "drive counters", key: &DRIVE_COUNTERS.to_be_bytes() };
        checker.envelope(record, drive_counters::BYTES, drive_counters::CHECKSUM)?;
        checker.zero(record, &[drive_counters::RESERVED])?;
        let offset = i64::from_le_bytes(drive_counters::CLOCK_OFFSET.array(record));
        let mark = Timestamp(drive_counters::CLOCK_MARK.u64(record));
        let minimum = u32::from(drive_counters::MINIMUM_PROTECTION.of(record)[0]);
        let minimum_protection = Protection::from_bits(minimum)
            .ok_or_else(|| checker.fail("a protection option is not known"))?;
        Ok(Counters {
            object_limit: drive_counters::OBJECT_LIMIT.u64(record),
            clock: ClockState {
                offset,
                mark,
                skew_past_ns: drive_counters::SKEW_PAST.u64(record),
                skew_ahead_ns: drive_counters::SKEW_AHEAD.u64(record),
            },
            minimum_protection,
        })
    }
}

/// Up to where the log is in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogMark {
    /// Sequence number of the last entry that is.
    pub(crate) applied: u64,
    /// Where in the log, in bytes, the next one is if it fits there.
    pub(crate) next_offset: u64,
}

impl LogMark {
    /// The record's bytes.
    pub(crate) fn encode(&self) -> [u8; log_mark::BYTES] {
        let mut record = [0; log_mark::BYTES];
        log_mark::APPLIED_SEQUENCE.put(&mut record, &self.applied.to_le_bytes());
        log_mark::NEXT_OFFSET.put(&mut record, &self.next_offset.to_le_bytes());
        seal(&LOG_MARK.to_be_bytes(), &mut record, log_mark::CHECKSUM);
        record
    }

    /// Reads the record.
    pub(crate) fn parse(record: &[u8]) -> Result<LogMark, RecordError> {
        let checker = Checker { kind: "log mark", key: &LOG_MARK.to_be_bytes() };
        checker.envelope(record, log_mark::BYTES, log_mark::CHECKSUM)?;
        checker.zero(record, &[log_mark::RESERVED])?;
        Ok(LogMark {
            applied: log_mark::APPLIED_SEQUENCE.u64(record),
            next_offset: log_mark::NEXT_OFFSET.u64(record),
        })
    }
}
