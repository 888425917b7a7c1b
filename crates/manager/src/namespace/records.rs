//! Files' records, from memory, from the journal, or from the drives.
//!
//! The newest is in the journal until it is home, and in memory if that has room for it.
//! Only the manager changes a record, and only while it holds the file's lock alone. So what is put
//! into the cache under that lock, shared or not, stays true until the next change. Sizes and times are
//! not cached, since writers change them at the drive; nor is the access control version, since whoever
//! has a key of the drive may raise it.

use std::sync::{MutexGuard, PoisonError};

use nasd_protocol::drive::BatchOperation;
use nasd_protocol::manager::{FileHandle, ManagerStatus};
use nasd_types::{Attributes, DriveId, FsSpecific};

use super::{Namespace, Outcome, failure};
use crate::file_record::{FileRecord, RecordError};
use crate::handle::Shown;
use crate::journal::RecordImage;
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

    /// A file's record, and its attributes as the drive tells them now, with what is in the journal over
    /// them. The caller holds its lock.
    pub(super) fn fresh(&self, handle: FileHandle) -> Outcome<(FileRecord, Attributes)> {
        self.require_alive(handle)?;
        // It may come home while the drive is asked, before or after that looks.
        let before = self.journal.record(handle);
        let mut attributes = self.ask(handle)?;
        if let Some(newer) = self.journal.record(handle).or(before) {
            lay_over(newer, &mut attributes);
        }
        let record = parse(handle, &attributes.fs_specific)?;
        self.remember(handle, record);
        Ok((record, attributes))
    }

    /// A file's record, where its drive has told these attributes, and nothing was changed since. The caller holds its lock.
    pub(super) fn record_as_told(
        &self,
        handle: FileHandle,
        attributes: &Attributes,
    ) -> Outcome<FileRecord> {
        if let Some(known) = self.known(handle)? {
            return Ok(known);
        }
        let record = parse(handle, &attributes.fs_specific)?;
        self.remember(handle, record);
        Ok(record)
    }

    /// The same as [`Namespace::fresh`] of several files of a drive, without those of which the drive tells nothing now. The caller need
    /// hold no lock: nothing is put into the cache.
    pub(super) fn fresh_all(
        &self,
        drive: DriveId,
        files: &[FileHandle],
    ) -> Vec<(FileHandle, (FileRecord, Attributes))> {
        let alive = files.iter().copied().filter(|file| self.require_alive(*file).is_ok());
        let before: Vec<(FileHandle, Option<RecordImage>)> =
            alive.map(|file| (file, self.journal.record(file))).collect();
        let ask = |(file, _): &(FileHandle, _)| BatchOperation::Getattr(file.object);
        let asked: Vec<BatchOperation> = before.iter().map(ask).collect();
        let told = match self.objects.batch(drive, &asked, false, Wait::Brief) {
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%drive, %error, "the attributes of files are not told");
                return Vec::new();
            }
        };
        let mut fresh = Vec::with_capacity(told.len());
        for ((file, before), outcome) in before.into_iter().zip(told) {
            let Some(mut attributes) = outcome.ok().and_then(|done| done.attributes) else {
                continue;
            };
            self.note_times(drive, &attributes);
            if let Some(newer) = self.journal.record(file).or(before) {
                lay_over(newer, &mut attributes);
            }
            if let Ok(record) = parse(file, &attributes.fs_specific) {
                fresh.push((file, (record, attributes)));
            }
        }
        fresh
    }

    /// Attributes that the drive told of a file that was changed since, as they are now.
    pub(super) fn with_changes(
        &self,
        handle: FileHandle,
        mut attributes: Attributes,
    ) -> Attributes {
        if let Some(newer) = self.journal.record(handle) {
            lay_over(newer, &mut attributes);
        }
        attributes
    }

    /// Reads the record into the cache, so that it need not be read while more locks are held.
    pub(super) fn preload(&self, handle: FileHandle) -> Outcome<FileRecord> {
        let _held = self.hold(Wants::new().read(handle));
        self.record(handle)
    }

    /// The parent of a directory, whose position the caller holds, or does not rely on.
    pub(super) fn parent(&self, directory: FileHandle) -> Outcome<FileHandle> {
        let record = match self.known(directory)? {
            Some(known) => known,
            // Not put into the cache: the caller need not hold the lock for that.
            None => parse(directory, &self.ask(directory)?.fs_specific)?,
        };
        record.parent.ok_or(ManagerStatus::NotDirectory)
    }

    fn ask(&self, handle: FileHandle) -> Outcome<Attributes> {
        let attributes = self.objects.getattr(handle, Wait::Patient);
        let attributes =
            attributes.map_err(|error| failure("read the attributes", handle, &error))?;
        self.note_times(handle.drive, &attributes);
        Ok(attributes)
    }

    /// Puts a record into the cache. The caller holds the file's lock, or has just made it.
    pub(super) fn remember(&self, handle: FileHandle, record: FileRecord) {
        self.records().insert(handle, record, 1);
    }

    /// Takes a record out of the cache: nobody knows what the drive has now, or the file is gone.
    pub(super) fn forget(&self, handle: FileHandle) {
        self.records().remove(&handle);
        self.told.forget(handle);
    }

    pub(super) fn known(&self, handle: FileHandle) -> Outcome<Option<FileRecord>> {
        self.require_alive(handle)?;
        if let Some(known) = self.records().get(&handle) {
            return Ok(Some(*known));
        }
        match self.journal.record(handle) {
            Some(newer) => parse(handle, &newer.record).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn require_alive(&self, handle: FileHandle) -> Outcome<()> {
        self.require_possible(handle)?;
        if self.journal.ledger(|ledger| ledger.doomed.contains(&handle)) {
            Err(ManagerStatus::Stale)
        } else {
            Ok(())
        }
    }

    fn records(&self) -> MutexGuard<'_, Lru<FileHandle, FileRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn lay_over(newer: RecordImage, attributes: &mut Attributes) {
    let changed = attributes.fs_attribute_modify_time.max(newer.changed);
    attributes.fs_attribute_modify_time = changed;
    attributes.fs_data_modify_time = newer.modified.unwrap_or(attributes.fs_data_modify_time);
    attributes.fs_specific = newer.record;
}

fn parse(handle: FileHandle, bytes: &FsSpecific) -> Outcome<FileRecord> {
    FileRecord::parse(bytes).map_err(|error| match error {
        RecordError::NotAFile => ManagerStatus::Stale,
        RecordError::UnknownVersion(_) | RecordError::Damaged(_) => {
            tracing::error!(object = %Shown(handle), %error, "bad file record");
            ManagerStatus::Io
        }
    })
}
