//! Attributes known, and how the drive's part is merged into the manager's.
//!
//! The manager tells all attributes; the drive tells length, use and times by itself, and 256
//! bytes that only the manager reads. So the drive's answer is enough as long as those bytes have
//! not changed since the manager told. Each change of them moves the drive's
//! `fs_attribute_modify_time`, and the manager tells as `change_time` the later of that time and
//! the data's, as they stood when it asked. So a later time than that means that the manager must
//! be asked again. A directory's links come from its data, so there the data must not have changed
//! either.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_types::{Attributes, Timestamp};

use crate::wire::{FileAttributes, FileHandle, FileType};

/// Files whose attributes are kept at most.
const MAX_KNOWN: usize = 1 << 16;

#[derive(Clone, Debug)]
struct Known {
    attributes: FileAttributes,
    /// Change time when the manager told: newer attribute changes are not in here.
    told: Timestamp,
    /// The drive's time of the last change that only the manager can tell of, once the drive has
    /// told it.
    stamp: Option<Timestamp>,
    /// When the request was made that told; `None` when that is known to be out of date.
    fetched: Option<Instant>,
}

/// What is known of many files.
#[derive(Debug, Default)]
pub(crate) struct AttributeCache {
    known: Mutex<HashMap<FileHandle, Known>>,
}

impl AttributeCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<FileHandle, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager has told, in answer to a request made at `asked`.
    pub(crate) fn told(&self, handle: FileHandle, attributes: &FileAttributes, asked: Instant) {
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            let mut ages: Vec<Option<Instant>> =
                known.values().map(|entry| entry.fetched).collect();
            let middle = ages.len() / 2;
            let (_, median, _) = ages.select_nth_unstable(middle);
            let median = *median;
            known.retain(|_, entry| entry.fetched > median);
        }
        let entry = Known {
            attributes: *attributes,
            told: attributes.change_time,
            stamp: None,
            fetched: Some(asked),
        };
        known.insert(handle, entry);
    }

    /// Attributes not older than `ttl`.
    pub(crate) fn fresh(&self, handle: FileHandle, ttl: Duration) -> Option<FileAttributes> {
        let known = self.lock();
        let entry = known.get(&handle)?;
        let fetched = entry.fetched?;
        (fetched.elapsed() < ttl).then_some(entry.attributes)
    }

    /// The drive has told, in answer to a request made at `asked`. Nothing, when the manager must
    /// be asked.
    pub(crate) fn merge(
        &self,
        handle: FileHandle,
        drive: &Attributes,
        asked: Instant,
    ) -> Option<FileAttributes> {
        let mut known = self.lock();
        let entry = known.get_mut(&handle)?;
        let changed_at = drive.fs_attribute_modify_time.max(drive.data_modify_time);
        let changed = match entry.attributes.file_type {
            FileType::Directory => changed_at,
            _ => drive.fs_attribute_modify_time,
        };
        if entry.stamp.map_or(changed > entry.told, |stamp| changed != stamp) {
            return None;
        }
        entry.stamp = Some(changed);
        let attributes = &mut entry.attributes;
        attributes.size = drive.logical_size;
        attributes.used_bytes = drive.blocks_used.saturating_mul(u64::from(drive.block_size));
        attributes.modify_time = drive.fs_data_modify_time;
        attributes.change_time = changed_at;
        entry.fetched = Some(asked);
        Some(entry.attributes)
    }

    /// Files were read: their access times rise, of which drives tell nothing.
    pub(crate) fn accessed(&self, handle: FileHandle, time: Timestamp) {
        if let Some(entry) = self.lock().get_mut(&handle) {
            let known = &mut entry.attributes.access_time;
            *known = time.max(*known);
        }
    }

    /// Length and times have changed: they must be asked for.
    pub(crate) fn expire(&self, handle: FileHandle) {
        if let Some(entry) = self.lock().get_mut(&handle) {
            entry.fetched = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, FS_SPECIFIC_BYTES, ObjectId, PartitionId};

    use super::*;
    use crate::wire::{Device, Extended};

    const HANDLE: FileHandle =
        FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(70) };

    fn told(change_time: u64) -> FileAttributes {
        FileAttributes {
            file_type: FileType::Regular,
            mode: 0o640,
            links: 1,
            uid: 1,
            gid: 2,
            size: 0,
            used_bytes: 0,
            access_time: Timestamp(1),
            modify_time: Timestamp(1),
            change_time: Timestamp(change_time),
            create_time: Timestamp(1),
            device: Device::NONE,
            revision: 0,
            extended: Extended::NONE,
        }
    }

    fn drive(attribute_time: u64, size: u64) -> Attributes {
        Attributes {
            access_control_version: 1,
            nearby_object: ObjectId(0),
            copied_object: ObjectId(0),
            logical_size: size,
            blocks_allocated: 0,
            blocks_used: 2,
            block_size: 4096,
            create_time: Timestamp(1),
            data_modify_time: Timestamp(50),
            attribute_modify_time: Timestamp(50),
            fs_data_modify_time: Timestamp(50),
            fs_attribute_modify_time: Timestamp(attribute_time),
            fs_specific: Box::new([0; FS_SPECIFIC_BYTES]),
        }
    }

    #[test]
    fn the_drive_tells_length_and_times_while_the_rest_is_unchanged() {
        let cache = AttributeCache::default();
        let now = Instant::now();
        assert!(cache.merge(HANDLE, &drive(5, 10), now).is_none(), "nothing known");
        cache.told(HANDLE, &told(10), now);
        let merged = cache.merge(HANDLE, &drive(10, 7), now).unwrap();
        assert_eq!((merged.size, merged.used_bytes, merged.mode), (7, 8192, 0o640));
        assert_eq!((merged.modify_time, merged.change_time), (Timestamp(50), Timestamp(50)));
        assert!(cache.merge(HANDLE, &drive(10, 9), now).is_some());
        assert!(cache.merge(HANDLE, &drive(11, 9), now).is_none(), "a chmod by somebody");
    }

    #[test]
    fn only_the_manager_tells_of_a_directory_that_has_changed() {
        let cache = AttributeCache::default();
        let now = Instant::now();
        let directory = FileAttributes { file_type: FileType::Directory, ..told(50) };
        cache.told(HANDLE, &directory, now);
        assert!(cache.merge(HANDLE, &drive(10, 9), now).is_some());
        let mut newer = drive(10, 9);
        newer.data_modify_time = Timestamp(51);
        assert!(cache.merge(HANDLE, &newer, now).is_none(), "a mkdir by somebody");
    }

    #[test]
    fn old_attributes_are_not_used() {
        let cache = AttributeCache::default();
        cache.told(HANDLE, &told(10), Instant::now());
        assert!(cache.fresh(HANDLE, Duration::from_secs(60)).is_some());
        assert!(cache.fresh(HANDLE, Duration::ZERO).is_none());
        cache.expire(HANDLE);
        assert!(cache.fresh(HANDLE, Duration::from_secs(60)).is_none());
    }
}
