//! Attributes known, and how the drive's part is merged into the manager's.
//!
//! The manager tells all attributes; the drive tells length, use and times by itself, and 256
//! bytes that only the manager reads. So of a regular file the drive's answer is enough as long as those
//! bytes have not changed since the manager told. Each change of them moves the file's change time, and
//! the drive's `fs_attribute_modify_time` with it as soon as the change has come to the drive (a moment later).
//! So a later time there than the manager told means that he must be asked again. Of directories and other files,
//! which only the manager writes, he is asked always.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_types::{Attributes, Timestamp};

use crate::wire::{FileAttributes, FileHandle, FileType};

/// Files whose attributes are kept at most.
const MAX_KNOWN: usize = 1 << 16;

/// Files of which it is kept at most that what was told of them is not true any more.
const MAX_FORGOTTEN: usize = 1 << 12;

#[derive(Clone, Debug)]
struct Known {
    attributes: FileAttributes,
    /// Change time when the manager told: newer attribute changes are not in here.
    told: Timestamp,
    /// When the request was made that told; `None` when that is known to be out of date.
    fetched: Option<Instant>,
    /// When the request was made that last told what the manager keeps, or that it is unchanged.
    confirmed: Instant,
    /// When length and times were last known to change: who had asked before may not be told them as they are.
    expired: Option<Instant>,
}

impl Known {
    fn fetched(&self, asked: Instant) -> Option<Instant> {
        self.expired.is_none_or(|expired| expired < asked).then_some(asked)
    }
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<FileHandle, Known>,
    /// When files were forgotten: answers to what was asked before are not kept. Of files that are not here any more,
    /// it was before `forgotten_all`.
    forgotten: HashMap<FileHandle, Instant>,
    forgotten_all: Option<Instant>,
}

impl State {
    /// What was asked before is not to be kept.
    fn overtake(&mut self, handle: FileHandle, now: Instant) {
        if self.forgotten.len() >= MAX_FORGOTTEN {
            self.forgotten.clear();
            self.forgotten_all = Some(now);
        }
        self.forgotten.insert(handle, now);
    }

    fn is_overtaken(&self, handle: FileHandle, asked: Instant) -> bool {
        let by = |forgotten: Option<&Instant>| forgotten.is_some_and(|at| *at >= asked);
        by(self.forgotten.get(&handle)) || by(self.forgotten_all.as_ref())
    }
}

/// What is known of many files.
#[derive(Debug, Default)]
pub(crate) struct AttributeCache {
    state: Mutex<State>,
}

impl AttributeCache {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manager has told, in answer to a request made at `asked`; in answer to a change by this clerk, now. What
    /// was told later is not overwritten.
    pub(crate) fn told(&self, handle: FileHandle, attributes: &FileAttributes, asked: Instant) {
        let state = &mut *self.lock();
        let is_overtaken = state.is_overtaken(handle, asked);
        let known = &mut state.known;
        let before = known.get(&handle);
        if is_overtaken || before.is_some_and(|entry| entry.confirmed > asked) {
            return;
        }
        let expired = before.and_then(|entry| entry.expired);
        if known.len() >= MAX_KNOWN {
            let mut ages: Vec<Option<Instant>> =
                known.values().map(|entry| entry.fetched).collect();
            let middle = ages.len() / 2;
            let (_, median, _) = ages.select_nth_unstable(middle);
            let median = *median;
            known.retain(|_, entry| entry.fetched > median);
            // With them goes when they had expired.
            state.forgotten_all = Some(Instant::now());
        }
        let mut entry = Known {
            attributes: *attributes,
            told: attributes.change_time,
            fetched: None,
            confirmed: asked,
            expired,
        };
        entry.fetched = entry.fetched(asked);
        known.insert(handle, entry);
    }

    /// The answer to a change of a directory by this clerk has told. It may have been overtaken by the answer to a
    /// later change.
    pub(crate) fn told_directory(&self, handle: FileHandle, attributes: &FileAttributes) {
        let is_overtaken = |known: &Known| known.told > attributes.change_time;
        let overtaken = self.lock().known.get(&handle).is_some_and(is_overtaken);
        if !overtaken {
            self.told(handle, attributes, Instant::now());
        }
    }

    /// Attributes not older than `ttl`, and how old they are.
    pub(crate) fn fresh(
        &self,
        handle: FileHandle,
        ttl: Duration,
    ) -> Option<(FileAttributes, Duration)> {
        let state = self.lock();
        let entry = state.known.get(&handle)?;
        let age = entry.fetched?.elapsed();
        (age < ttl).then_some((entry.attributes, age))
    }

    /// The drive has told, in answer to a request made at `asked`. Nothing, when the manager must
    /// be asked.
    pub(crate) fn merge(
        &self,
        handle: FileHandle,
        drive: &Attributes,
        asked: Instant,
    ) -> Option<FileAttributes> {
        let mut state = self.lock();
        let entry = state.known.get_mut(&handle)?;
        if entry.attributes.file_type != FileType::Regular
            || drive.fs_attribute_modify_time > entry.told
        {
            return None;
        }
        let attributes = &mut entry.attributes;
        attributes.size = drive.logical_size;
        let blocks = drive.blocks_allocated.max(drive.blocks_used);
        attributes.used_bytes = blocks.saturating_mul(u64::from(drive.block_size));
        // An object that was made before its file, and was not written to yet, is as old as the file.
        let is_untouched = drive.fs_data_modify_time == drive.create_time;
        attributes.modify_time = match is_untouched {
            true => attributes.create_time,
            false => drive.fs_data_modify_time,
        };
        attributes.change_time = entry.told.max(drive.data_modify_time);
        attributes.data_version = drive.data_version;
        entry.fetched = entry.fetched(asked);
        entry.confirmed = asked;
        Some(entry.attributes)
    }

    /// Whether the drive could tell them: the manager has told before, and not of a directory or the like.
    pub(crate) fn is_of_drive(&self, handle: FileHandle) -> bool {
        let state = self.lock();
        let known = state.known.get(&handle);
        known.is_some_and(|entry| entry.attributes.file_type == FileType::Regular)
    }

    /// Attributes of which what the manager keeps (mode, owner, which extended attributes there are)
    /// is not older than `ttl`; length and times may be. Writes do not make it older.
    pub(crate) fn standing(&self, handle: FileHandle, ttl: Duration) -> Option<FileAttributes> {
        let state = self.lock();
        let entry = state.known.get(&handle)?;
        (entry.confirmed.elapsed() < ttl).then_some(entry.attributes)
    }

    /// Files were read: their access times rise, of which drives tell nothing.
    pub(crate) fn accessed(&self, handle: FileHandle, time: Timestamp) {
        if let Some(entry) = self.lock().known.get_mut(&handle) {
            let known = &mut entry.attributes.access_time;
            *known = time.max(*known);
        }
    }

    /// What only the manager tells has changed: he must be asked.
    pub(crate) fn forget(&self, handle: FileHandle) {
        let mut state = self.lock();
        state.known.remove(&handle);
        state.overtake(handle, Instant::now());
    }

    /// Length and times have changed: they must be asked for.
    pub(crate) fn expire(&self, handle: FileHandle) {
        let (mut state, now) = (self.lock(), Instant::now());
        match state.known.get_mut(&handle) {
            Some(entry) => (entry.fetched, entry.expired) = (None, Some(now)),
            None => state.overtake(handle, now),
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
            data_version: 1,
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
            data_version: 50,
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
        assert_eq!(merged.data_version, 50);
        assert!(cache.merge(HANDLE, &drive(10, 9), now).is_some());
        assert!(cache.merge(HANDLE, &drive(11, 9), now).is_none(), "a chmod by somebody");
    }

    #[test]
    fn only_the_manager_tells_of_directories() {
        let cache = AttributeCache::default();
        let now = Instant::now();
        let directory = FileAttributes { file_type: FileType::Directory, ..told(50) };
        cache.told(HANDLE, &directory, now);
        assert!(cache.merge(HANDLE, &drive(10, 9), now).is_none());
    }

    /// What was changed is at the drive a moment later, and nothing of it goes back meanwhile.
    #[test]
    fn the_drive_may_lag_behind_the_manager() {
        let cache = AttributeCache::default();
        let now = Instant::now();
        cache.told(HANDLE, &told(90), now);
        for at_drive in [10, 90] {
            let merged = cache.merge(HANDLE, &drive(at_drive, 7), now).unwrap();
            assert_eq!((merged.change_time, merged.modify_time), (Timestamp(90), Timestamp(50)));
        }
        let mut untouched = drive(90, 0);
        untouched.fs_data_modify_time = untouched.create_time;
        cache.told(HANDLE, &FileAttributes { create_time: Timestamp(80), ..told(90) }, now);
        let merged = cache.merge(HANDLE, &untouched, now).unwrap();
        assert_eq!(merged.modify_time, Timestamp(80), "it was made ahead");
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

    #[test]
    fn answers_that_were_overtaken_are_not_believed() {
        let cache = AttributeCache::default();
        let minute = Duration::from_secs(60);
        let asked = Instant::now();
        cache.told(HANDLE, &told(10), asked);
        cache.expire(HANDLE);
        cache.told(HANDLE, &told(10), asked);
        assert!(cache.fresh(HANDLE, minute).is_none(), "it was written meanwhile");
        assert!(cache.merge(HANDLE, &drive(10, 7), asked).is_some());
        assert!(cache.fresh(HANDLE, minute).is_none());
        cache.told(HANDLE, &told(10), Instant::now());
        assert!(cache.fresh(HANDLE, minute).is_some());
        let asked = Instant::now();
        cache.forget(HANDLE);
        cache.told(HANDLE, &told(10), asked);
        assert!(cache.standing(HANDLE, minute).is_none());
        for object in 0..=MAX_FORGOTTEN as u64 {
            cache.forget(FileHandle { object: ObjectId(1000 + object), ..HANDLE });
        }
        cache.told(HANDLE, &told(10), asked);
        assert!(cache.standing(HANDLE, minute).is_none(), "also when many others were forgotten");
        cache.told(HANDLE, &told(10), Instant::now());
        assert!(cache.fresh(HANDLE, minute).is_some());
    }

    #[test]
    fn a_write_leaves_what_the_manager_keeps_as_it_is_known() {
        let cache = AttributeCache::default();
        let minute = Duration::from_secs(60);
        let Some(long_ago) = Instant::now().checked_sub(2 * minute) else { return };
        cache.told(HANDLE, &told(10), long_ago);
        assert!(cache.standing(HANDLE, minute).is_none());
        assert!(cache.merge(HANDLE, &drive(10, 7), Instant::now()).is_some());
        cache.expire(HANDLE);
        assert!(cache.fresh(HANDLE, minute).is_none());
        assert_eq!(cache.standing(HANDLE, minute).map(|known| known.mode), Some(0o640));
        assert!(cache.standing(HANDLE, Duration::ZERO).is_none());
    }
}
