//! `unlink` and `rmdir`: a name goes, and with the last one its object.

use nasd_protocol::manager::{FileHandle, ManagerStatus};

use super::contents::Target;
use super::lookup::require_name;
use super::{ATTEMPTS, Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::locks::Wants;
use crate::permission::{self, Deed};

/// Which of the two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unlink,
    Rmdir,
}

impl Namespace {
    /// Removes a name that is not a directory's, and the file with its last name.
    pub fn unlink(&self, caller: &Caller, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        if matches!(name, b"." | b"..") {
            return Err(ManagerStatus::IsDirectory);
        }
        self.once_without(caller, || self.remove(caller, directory, name, Kind::Unlink))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        match name {
            b"." => return Err(ManagerStatus::Invalid),
            b".." => return Err(ManagerStatus::NotEmpty),
            _ => {}
        }
        self.once_without(caller, || self.remove(caller, directory, name, Kind::Rmdir))
    }

    fn remove(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        kind: Kind,
    ) -> Outcome<()> {
        require_name(name)?;
        for _ in 0..ATTEMPTS {
            let removed = self.search(caller, directory, name).and_then(|found| {
                let found = found.ok_or(ManagerStatus::NotFound)?;
                self.look_at(found)?;
                self.try_remove(caller, directory, name, found, kind)
            });
            match removed {
                Ok(Some(sequence)) => return self.wait_for(sequence),
                Ok(None) => {}
                Err(status) => return self.answered(Err(status), &[directory]),
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// Reads what must be known of a file into memory, before more locks are held than its own.
    pub(super) fn look_at(&self, target: Target) -> Outcome<()> {
        let _held = self.hold(Wants::new().read(target.handle));
        match self.record(target.handle) {
            Ok(record) if record.is_directory() => {
                self.read_directory(target.handle, |_| ()).map(|_| ())
            }
            Ok(_) | Err(ManagerStatus::Stale) => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// `None` if others have changed what it looked at.
    fn try_remove(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        target: Target,
        kind: Kind,
    ) -> Outcome<Option<u64>> {
        let victim = target.handle;
        let _held = self.hold(Wants::new().write(directory).write(victim));
        let parent = self.directory_record(directory)?;
        if self.find(directory, name)? != Some(target) {
            return Ok(None);
        }
        permission::require_to(&parent, caller, Deed::Delete)?;
        let record = self.record_if_any(victim)?;
        match &record {
            None => tracing::error!(object = %Shown(victim), "removing a name without its object"),
            Some(record) => {
                permission::require_removable(&parent, record, caller)?;
                match (kind, record.is_directory()) {
                    (Kind::Unlink, true) => return Err(ManagerStatus::IsDirectory),
                    (Kind::Rmdir, false) => return Err(ManagerStatus::NotDirectory),
                    (Kind::Rmdir, true) => self.require_empty(victim)?,
                    (Kind::Unlink, false) => {}
                }
            }
        }
        let other_names = record.filter(|record| !record.is_directory() && record.links > 1);
        let sequence = self.change(&[directory], |draft| {
            draft.remove_name(directory, name)?;
            match other_names {
                Some(record) => {
                    let links = record.links - 1;
                    draft.set_record(victim, &FileRecord { links, ..record.next() });
                }
                None => draft.remove_name_of(caller, victim, record.as_ref()),
            }
            draft.touch(directory, &parent);
            draft.answers(caller, None);
            Ok(())
        })?;
        Ok(Some(sequence))
    }

    /// A file's record; `None` if there is no such object. The caller holds its lock.
    pub(super) fn record_if_any(&self, file: FileHandle) -> Outcome<Option<FileRecord>> {
        match self.record(file) {
            Ok(record) => Ok(Some(record)),
            Err(ManagerStatus::Stale) => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Requires a directory without names. The caller holds its lock.
    pub(super) fn require_empty(&self, directory: FileHandle) -> Outcome<()> {
        match self.read_directory(directory, |contents| contents.is_empty())? {
            true => Ok(()),
            false => Err(ManagerStatus::NotEmpty),
        }
    }
}
