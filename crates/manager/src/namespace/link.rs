//! `link`: another name for a file, and one more in its count, by the intent log.

use nasd_protocol::manager::{File, FileHandle, ManagerStatus};

use super::commit::{NotCommitted, set_entry_step, set_record_step};
use super::lookup::require_name;
use super::{ATTEMPTS, Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::Wants;

/// Most names of a file.
pub const MAX_LINKS: u32 = 65_000;

impl Namespace {
    /// Gives a file, not a directory, another name.
    pub fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<File> {
        if !matches!(name, b"." | b"..") {
            require_name(name)?;
        }
        for _ in 0..ATTEMPTS {
            if self.preload(file)?.is_directory() {
                return Err(ManagerStatus::Permission);
            }
            match self.try_link(caller, file, directory, name)? {
                Ok(()) => return self.getattr(caller, file),
                Err(error) => {
                    if self.after_failed_commit(error)? {
                        return self.getattr(caller, file);
                    }
                }
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    fn try_link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<Result<(), NotCommitted>> {
        let _held = self.hold(Wants::new().write(directory).write(file))?;
        self.require_addable_held(caller, directory, name)?;
        let record = self.record(file)?;
        if record.links >= MAX_LINKS {
            return Err(ManagerStatus::TooManyLinks);
        }
        let linked = FileRecord { links: record.links + 1, ..record.next() };
        Ok(self.commit(vec![
            set_entry_step(directory, name, file, record.file_type),
            set_record_step(file, &linked),
        ]))
    }
}
