//! Files' records, from the drives or from memory.
//!
//! Only the manager changes a record, and only while it holds the file's lock alone. So what is put
//! into the cache under that lock, shared or not, stays true until the next change. Sizes and times are
//! not cached, since writers change them at the drive; nor is the access control version, since whoever
//! has a key of the drive may raise it.

use std::sync::{MutexGuard, PoisonError};

use nasd_protocol::manager::{FileHandle, ManagerStatus};
use nasd_types::Attributes;

use super::{Namespace, Outcome, failure};
use crate::file_record::{FileRecord, RecordError};
use crate::handle::Shown;
use crate::locks::Wants;
use crate::lru::Lru;
use crate::objects::Wait;

impl Namespace {
    /// A file's record. The caller holds its lock.
    pub(super) fn record(&self, handle: FileHandle) -> Outcome<FileRecord> {
        match self.known(handle)? {
            Some(known) => Ok(known),
            None => self.fresh(handle).map(|(record, _)| record),
        }
    }

    /// A directory's record. The caller holds its lock.
    pub(super) fn directory_record(&self, handle: FileHandle) -> Outcome<FileRecord> {
        let record = self.record(handle)?;
        if record.is_directory() { Ok(record) } else { Err(ManagerStatus::NotDirectory) }
    }

    /// A file's record and attributes as they are at the drive. The caller holds its lock.
    pub(super) fn fresh(&self, handle: FileHandle) -> Outcome<(FileRecord, Attributes)> {
        self.require_alive(handle)?;
        let (record, attributes) = self.read_attributes(handle)?;
        self.remember(handle, record);
        Ok((record, attributes))
    }

    /// Reads the record into the cache, so that it need not be read while more locks are held.
    pub(super) fn preload(&self, handle: FileHandle) -> Outcome<FileRecord> {
        let _held = self.hold(Wants::new().read(handle))?;
        self.record(handle)
    }

    /// The parent of a directory, whose position the caller holds, or does not rely on.
    pub(super) fn parent(&self, directory: FileHandle) -> Outcome<FileHandle> {
        let record = match self.known(directory)? {
            Some(known) => known,
            // Not put into the cache: the caller need not hold the lock for that.
            None => self.read_attributes(directory)?.0,
        };
        record.parent.ok_or(ManagerStatus::NotDirectory)
    }

    fn read_attributes(&self, handle: FileHandle) -> Outcome<(FileRecord, Attributes)> {
        let attributes = self
            .objects
            .getattr(handle, Wait::Patient)
            .map_err(|error| failure("read the attributes", handle, &error))?;
        let record = FileRecord::parse(&attributes.fs_specific).map_err(|error| match error {
            RecordError::NotAFile => ManagerStatus::Stale,
            RecordError::UnknownVersion(_) | RecordError::Damaged(_) => {
                tracing::error!(object = %Shown(handle), %error, "bad file record");
                ManagerStatus::Io
            }
        })?;
        Ok((record, attributes))
    }

    /// Puts a record into the cache. The caller holds the file's lock, or has just made it.
    pub(super) fn remember(&self, handle: FileHandle, record: FileRecord) {
        self.records().insert(handle, record, 1);
    }

    /// Takes a record out of the cache: nobody knows what the drive has now, or the file is gone.
    pub(super) fn forget(&self, handle: FileHandle) {
        self.records().remove(&handle);
    }

    pub(super) fn known(&self, handle: FileHandle) -> Outcome<Option<FileRecord>> {
        self.require_alive(handle)?;
        Ok(self.records().get(&handle).copied())
    }

    fn require_alive(&self, handle: FileHandle) -> Outcome<()> {
        self.require_possible(handle)?;
        if self.is_doomed(handle) { Err(ManagerStatus::Stale) } else { Ok(()) }
    }

    fn records(&self) -> MutexGuard<'_, Lru<FileHandle, FileRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
