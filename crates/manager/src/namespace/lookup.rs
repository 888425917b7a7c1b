//! `lookup` and `getattr`: what a name or a handle stands for, with a capability for it.

use nasd_protocol::manager::{File, FileHandle, FileType, ManagerStatus};

use super::contents::Target;
use super::{ATTEMPTS, Namespace, Outcome};
use crate::caller::Caller;
use crate::directory::is_valid_name;
use crate::handle::Shown;
use crate::locks::Wants;
use crate::permission::{self, Deed};

impl Namespace {
    /// A file by its handle. Anybody who has the handle may: as with NFS, the permissions of the
    /// directories above are checked when names are looked up; but a list as AFS has it counts for the files in its directory.
    pub fn getattr(&self, caller: &Caller, file: FileHandle) -> Outcome<File> {
        let answer = self.look(caller, file);
        self.answered(answer, &[file])
    }

    fn look(&self, caller: &Caller, file: FileHandle) -> Outcome<File> {
        let _held = self.hold(Wants::new().read(file));
        let (record, attributes) = self.latest(file)?;
        permission::require_to_look(&record, caller)?;
        self.file(caller, file, &record, &attributes)
    }

    /// A file by its name in a directory; `.` and `..` are the directory and its parent.
    pub fn lookup(&self, caller: &Caller, directory: FileHandle, name: &[u8]) -> Outcome<File> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let found = self.search(caller, directory, name);
            let found = found.and_then(|found| found.ok_or(ManagerStatus::NotFound));
            let found = self.answered(found, &[directory])?;
            match self.getattr(caller, found.handle) {
                // Between the two looks the name may have been removed, or given to another file.
                Err(ManagerStatus::Stale) if last != Some(found.handle) => {
                    last = Some(found.handle);
                }
                Err(ManagerStatus::Stale) => {
                    tracing::error!(object = %Shown(found.handle), "a name without its object");
                    return Err(ManagerStatus::Io);
                }
                answer => return answer,
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// Looks a name up in a directory that the caller may search.
    pub(super) fn search(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<Option<Target>> {
        let _held = self.hold(Wants::new().read(directory));
        let record = self.directory_record(directory)?;
        permission::require_to(&record, caller, Deed::Search)?;
        let special = match name {
            b"." => Some(directory),
            b".." => Some(record.parent.unwrap_or(self.root())),
            _ if !is_valid_name(name) => return Err(ManagerStatus::Invalid),
            _ => None,
        };
        match special {
            Some(handle) => Ok(Some(Target { handle, file_type: FileType::Directory })),
            None => self.find(directory, name),
        }
    }
}

/// Requires a name that a file can be given.
pub(super) fn require_name(name: &[u8]) -> Outcome<()> {
    if is_valid_name(name) {
        Ok(())
    } else if name.len() > nasd_types::limits::MAX_NAME_BYTES {
        Err(ManagerStatus::NameTooLong)
    } else {
        Err(ManagerStatus::Invalid)
    }
}
