//! `link`: another name for a file, and one more in its count.

use nasd_protocol::manager::{File, FileHandle, ManagerStatus};

use super::lookup::require_name;
use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::Wants;

/// Most names of a file.
pub const MAX_LINKS: u32 = 65_000;

impl Namespace {
    /// Gives a file another name; not a directory, nor a mount point, which is one for those who walk over it.
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
        self.once_with_file(caller, || {
            let linked = match self.preload(file) {
                Ok(record) if record.is_directory() || record.is_mount_point() => {
                    Err(ManagerStatus::Permission)
                }
                Ok(_) => self.try_link(caller, file, directory, name),
                Err(status) => Err(status),
            };
            match linked {
                Ok(sequence) => self.wait_for(sequence)?,
                Err(status) => return self.answered(Err(status), &[directory, file]),
            }
            self.getattr(caller, file)
        })
    }

    fn try_link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<u64> {
        let _held = self.hold(Wants::new().write(directory).write(file));
        let above = self.require_addable_held(caller, directory, name)?;
        let record = self.record(file)?;
        let is_nameless = record.links == 0 && self.is_nameless(file);
        if record.links == 0 && !is_nameless {
            // It was removed, and is only waited for until it is closed.
            return Err(ManagerStatus::NotFound);
        }
        if record.links >= MAX_LINKS {
            return Err(ManagerStatus::TooManyLinks);
        }
        self.require_room(directory)?;
        let governed = self.require_linkable((file, &record), (directory, &above))?;
        let linked = FileRecord { links: record.links + 1, ..governed.next() };
        self.change(&[directory], |draft| {
            draft.set_name(directory, name, file, record.file_type)?;
            draft.set_record(file, &linked);
            if is_nameless {
                draft.name_nameless(file);
            }
            draft.touch(directory, &above);
            draft.answers(caller, Some(file));
            Ok(())
        })
    }
}
