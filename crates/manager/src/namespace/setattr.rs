//! `setattr`: mode, owner, length and times, in one durable operation at the drive.

use nasd_protocol::manager::{File, FileHandle, SetFileAttributes};
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
        let (record, version) = match self.known(file)? {
            Some(known) => (known.record, known.access_control_version),
            None => {
                let (record, attributes) = self.fresh(file)?;
                (record, attributes.access_control_version)
            }
        };
        let now = self.objects.drive_time(file.drive);
        let planned = permission::plan_changes(&record, caller, changes, now)?;
        // A revocation must rise above what the drive has, even if somebody set that meanwhile.
        let version = match planned.narrows {
            true => self.fresh(file)?.1.access_control_version,
            false => version,
        };
        let new = planned.record;
        let set = SetAttributes {
            access_control_version: planned.narrows.then(|| version.wrapping_add(1)),
            logical_size: planned.size,
            fs_data_modify_time: planned.modify_time,
            fs_specific: (new != record || names_more_than_size(changes)).then(|| new.to_bytes()),
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
        self.remember(file, new, attributes.access_control_version);
        self.file(caller, file, &new, &attributes)
    }
}

/// Whether the change time must move, even if the new attributes are the old ones.
fn names_more_than_size(changes: &SetFileAttributes) -> bool {
    SetFileAttributes { size: None, ..*changes } != SetFileAttributes::default()
}
