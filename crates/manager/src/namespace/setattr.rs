//! `setattr`: mode, owner, length and times, in one durable operation at the drive.

use nasd_protocol::manager::{File, FileHandle, ManagerStatus, SetFileAttributes};
use nasd_types::SetAttributes;

use super::{Namespace, Outcome, failure};
use crate::caller::Caller;
use crate::locks::Wants;
use crate::objects::Wait;
use crate::permission;

impl Namespace {
    /// Changes a file's attributes, all that are given or none. Where somebody may lose a
    /// permission by it, all capabilities of the file are revoked, by the next access control
    /// version; the caller gets a new one.
    pub fn setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Outcome<File> {
        let _held = self.hold(Wants::new().write(file))?;
        let record = self.record(file)?;
        let now = self.objects.drive_time(file.drive);
        let planned = permission::plan_changes(&record, caller, changes, now)?;
        let new = planned.record;
        let names_record = names_more_than_size(changes) || new != record.next();
        let set = SetAttributes {
            access_control_version: planned.narrows.then(|| self.next_version(file)).transpose()?,
            logical_size: planned.size,
            fs_data_modify_time: planned.modify_time,
            fs_specific: names_record.then(|| new.to_bytes()),
            ..SetAttributes::default()
        };
        if set == SetAttributes::default() {
            let (record, attributes) = self.fresh(file)?;
            return self.file(caller, file, &record, &attributes);
        }
        let attributes = self.objects.setattr(file, &set, Wait::Patient).map_err(|error| {
            self.forget(file);
            failure("change the attributes", file, &error)
        })?;
        let new = if names_record { new } else { record };
        self.remember(file, new);
        self.file(caller, file, &new, &attributes)
    }
}

impl Namespace {
    /// The access control version that revokes all capabilities of the file there are. As others with a
    /// key of the drive may have raised it, what is remembered would not do: the next after that may be
    /// the present one, which revokes nothing. The caller holds the file's lock.
    pub(super) fn next_version(&self, file: FileHandle) -> Outcome<u64> {
        let (_, attributes) = self.fresh(file)?;
        // That would take as many changes as nobody can make: somebody has set it so.
        attributes.access_control_version.checked_add(1).ok_or(ManagerStatus::Io)
    }
}

/// Whether the change time must move, even if the new attributes are the old ones.
fn names_more_than_size(changes: &SetFileAttributes) -> bool {
    SetFileAttributes { size: None, ..*changes } != SetFileAttributes::default()
}
