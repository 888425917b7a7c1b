//! What drives told of directories not long ago.
//!
//! Kernels ask for a directory's attributes after each change of its names. Only the manager writes to a
//! directory's object, so what it was told once stays true with its own changes laid over, all but the
//! access control version, which whoever has a key of the drive may raise, and how much room it takes.
//! So the drive is asked again after a moment.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_protocol::manager::FileHandle;
use nasd_types::{Attributes, FsSpecific, Timestamp};

use super::{Namespace, Outcome};
use crate::file_record::FileRecord;
use crate::lru::Lru;

/// How long what a drive told is good.
const MOMENT: Duration = Duration::from_secs(1);

/// Directories that are remembered at most.
const MAX_TOLD: usize = 1024;

/// What was told of directories, with what was changed since.
#[derive(Debug)]
pub(super) struct Told(Mutex<Lru<FileHandle, (Attributes, Instant)>>);

impl Default for Told {
    fn default() -> Self {
        Told(Mutex::new(Lru::new(MAX_TOLD)))
    }
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, Lru<FileHandle, (Attributes, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, directory: FileHandle) -> Option<Attributes> {
        let mut told = self.lock();
        let (attributes, when) = told.get(&directory)?;
        (when.elapsed() < MOMENT).then(|| attributes.clone())
    }

    /// A record was changed, and what goes with it.
    pub(super) fn change(
        &self,
        file: FileHandle,
        record: &FsSpecific,
        changed: Timestamp,
        modified: Option<Timestamp>,
    ) {
        let mut told = self.lock();
        if let Some((mut attributes, when)) = told.remove(&file) {
            attributes.fs_attribute_modify_time = attributes.fs_attribute_modify_time.max(changed);
            attributes.fs_data_modify_time = modified.unwrap_or(attributes.fs_data_modify_time);
            attributes.fs_specific.copy_from_slice(record);
            told.insert(file, (attributes, when), 1);
        }
    }

    /// The drive was told something else.
    pub(super) fn forget(&self, file: FileHandle) {
        self.lock().remove(&file);
    }
}

impl Namespace {
    /// A directory's record and attributes, if the drive told of it a moment ago. The caller holds its lock.
    pub(super) fn told_of(&self, directory: FileHandle) -> Option<(FileRecord, Attributes)> {
        let attributes = self.told.get(directory)?;
        let record = self.known(directory).ok()??;
        Some((record, attributes))
    }

    /// A file's record and attributes, of a directory perhaps as they were a moment ago in what the manager
    /// does not change. The caller holds its lock.
    pub(super) fn latest(&self, handle: FileHandle) -> Outcome<(FileRecord, Attributes)> {
        if let Some(told) = self.told_of(handle) {
            return Ok(told);
        }
        let asked = Instant::now();
        let (record, attributes) = self.fresh(handle)?;
        if record.is_directory() {
            self.told.lock().insert(handle, (attributes.clone(), asked), 1);
        }
        Ok((record, attributes))
    }
}
