//! `unlink` and `rmdir`: the name goes first, durably, and then its object.

use nasd_protocol::manager::{FileHandle, ManagerStatus};

use super::commit::{NotCommitted, remove_entry_step, set_record_step};
use super::contents::Target;
use super::lookup::require_name;
use super::{ATTEMPTS, Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::locks::Wants;
use crate::objects::Wait;
use crate::permission::{self, EXECUTE, WRITE};

/// What came of one attempt.
enum Attempt {
    Done,
    /// Done, but for the object, which nothing names any more.
    Removed(FileHandle),
    /// Others have changed what it looked at.
    Again,
    NotCommitted(NotCommitted),
}

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
        self.remove(caller, directory, name, Kind::Unlink)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, caller: &Caller, directory: FileHandle, name: &[u8]) -> Outcome<()> {
        match name {
            b"." => return Err(ManagerStatus::Invalid),
            b".." => return Err(ManagerStatus::NotEmpty),
            _ => {}
        }
        self.remove(caller, directory, name, Kind::Rmdir)
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
            let found = self.search(caller, directory, name)?.ok_or(ManagerStatus::NotFound)?;
            self.look_at(found)?;
            match self.try_remove(caller, directory, name, found, kind)? {
                Attempt::Done => return Ok(()),
                Attempt::Removed(object) => {
                    self.reap(object, Wait::Brief);
                    return Ok(());
                }
                Attempt::Again => {}
                Attempt::NotCommitted(error) => {
                    if self.after_failed_commit(error)? {
                        return Ok(());
                    }
                }
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// Reads what must be known of a file into memory, before more locks are held than its own.
    pub(super) fn look_at(&self, target: Target) -> Outcome<()> {
        let _held = self.hold(Wants::new().read(target.handle))?;
        match self.record(target.handle) {
            Ok(record) if record.is_directory() => {
                self.read_directory(target.handle, |_| ()).map(|_| ())
            }
            Ok(_) | Err(ManagerStatus::Stale) => Ok(()),
            Err(status) => Err(status),
        }
    }

    fn try_remove(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        target: Target,
        kind: Kind,
    ) -> Outcome<Attempt> {
        let victim = target.handle;
        let _held = self.hold(Wants::new().write(directory).write(victim))?;
        let parent = self.directory_record(directory)?;
        if self.find(directory, name)? != Some(target) {
            return Ok(Attempt::Again);
        }
        permission::require(&parent, caller, WRITE | EXECUTE)?;
        let Some(record) = self.record_if_any(victim)? else {
            tracing::error!(object = %Shown(victim), "removing a name without its object");
            return self.remove_last_name(directory, name, victim);
        };
        permission::require_removable(&parent, &record, caller)?;
        match (kind, record.is_directory()) {
            (Kind::Unlink, true) => return Err(ManagerStatus::IsDirectory),
            (Kind::Rmdir, false) => return Err(ManagerStatus::NotDirectory),
            (Kind::Rmdir, true) => self.require_empty(victim)?,
            (Kind::Unlink, false) => {}
        }
        if record.is_directory() || record.links == 1 {
            let attempt = self.remove_last_name(directory, name, victim)?;
            self.doom_attributes(victim, &record);
            return Ok(attempt);
        }
        let record = FileRecord { links: record.links - 1, ..record.next() };
        let steps =
            vec![remove_entry_step(directory, name, victim), set_record_step(victim, &record)];
        Ok(match self.commit(steps) {
            Ok(()) => Attempt::Done,
            Err(error) => Attempt::NotCommitted(error),
        })
    }

    fn remove_last_name(
        &self,
        directory: FileHandle,
        name: &[u8],
        victim: FileHandle,
    ) -> Outcome<Attempt> {
        self.remove_entry(directory, name, victim, Wait::Patient).map_err(|error| error.status)?;
        self.doom(victim);
        Ok(Attempt::Removed(victim))
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
