//! `accessed`: access times, as clients tell now and then when files were read.

use nasd_protocol::manager::{FileAccess, ManagerStatus};

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::permission::{self, EXECUTE, READ};

impl Namespace {
    /// Moves the access times of files that the caller may read, forward alone, and no further than
    /// to the present. It is no change of a file: the change time stays. Files that are gone, or that
    /// he may not read, are passed over.
    pub fn accessed(&self, caller: &Caller, accessed: &[FileAccess]) -> Outcome<()> {
        if self.read_only {
            // As a file system does that is mounted so.
            return Ok(());
        }
        for access in accessed {
            match self.move_access_time(caller, *access) {
                Ok(()) | Err(ManagerStatus::Stale | ManagerStatus::Access) => {}
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }

    fn move_access_time(&self, caller: &Caller, access: FileAccess) -> Outcome<()> {
        let FileAccess { file, time } = access;
        let time = time.min(self.objects.file_time(file.drive));
        let known = self.preload(file)?;
        let may_read = [READ, EXECUTE].iter().any(|one| permission::permits(&known, caller, *one));
        if !may_read && !permission::is_owner(&known, caller) {
            return Err(ManagerStatus::Access);
        }
        if time <= known.access_time {
            return Ok(());
        }
        let _held = self.hold(Wants::new().write(file));
        let (record, attributes) = self.fresh(file)?;
        if time <= record.access_time {
            return Ok(());
        }
        let record = FileRecord { access_time: time, ..record.next() };
        // It is worth no wait: it comes with what is written next.
        self.change(&[], |draft| {
            draft.set_access_time(file, &record, attributes.fs_attribute_modify_time);
            Ok(())
        })?;
        Ok(())
    }
}
