//! `setattr`: mode, owner, length and times.
//!
//! What is only in the record goes to the journal. What the drive keeps goes there at once, in order
//! with what clients write: length and modification time of a file's data, and the access control
//! version that revokes capabilities, which must be in force when the change is answered. The record
//! goes along in the same operation: all of that happens, or none.

use nasd_protocol::manager::{
    File, FileHandle, FileRange, FileType, ManagerStatus, SetFileAttributes,
};
use nasd_types::{Attributes, SetAttributes};

use super::{Namespace, Outcome, failure};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::objects::Wait;
use crate::permission::{self, Changes};

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
        self.once_with_file(caller, || {
            let (answer, sequence) = match self.try_setattr(caller, file, changes) {
                Ok(done) => done,
                Err(status) => return self.answered(Err(status), &[file]),
            };
            self.wait_for(sequence)?;
            Ok(answer)
        })
    }

    fn try_setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Outcome<(File, u64)> {
        let _held = self.hold(Wants::new().write(file));
        let record = self.record(file)?;
        let now = self.objects.file_time(file.drive);
        let planned = permission::plan_changes(&record, caller, changes, now)?;
        let stores = caller.stores.contains(&file);
        if self.has_callbacks() && !stores && (planned.narrows || planned.size.is_some()) {
            // Whoever holds a callback is to be told first, and nobody may read or write by what he was given before.
            return Err(ManagerStatus::Busy);
        }
        let is_touched = planned.record != record.next() || names_more_than_size(changes);
        let new = if is_touched { planned.record } else { record };
        // Of what only the manager writes it is the journal's, as the contents are.
        let modified = planned.modify_time.filter(|_| record.file_type != FileType::Regular);
        let (attributes, has_changed) = self.change_at_drive(file, &planned, &new)?;
        let is_lagging = self.journal.record(file).is_some();
        let sequence = if is_touched || (has_changed && is_lagging) {
            self.change(&[], |draft| {
                draft.set_record_and_time(file, &new, modified);
                draft.answers(caller, Some(file));
                Ok(())
            })?
        } else {
            self.journal.changed_at(file)
        };
        let attributes = self.with_changes(file, attributes);
        Ok((self.file(caller, file, &new, &attributes)?, sequence))
    }

    /// Sets what the drive keeps, at once. Answers the attributes that it has then, and whether there was
    /// any of that.
    fn change_at_drive(
        &self,
        file: FileHandle,
        planned: &Changes,
        new: &FileRecord,
    ) -> Outcome<(Attributes, bool)> {
        let modify_time = planned.modify_time.filter(|_| new.file_type == FileType::Regular);
        let (mut version, mut cuts) = (None, false);
        // Who sets nothing but a time need not know what is there before.
        let asks_for_room = planned.size.is_some() || planned.reserve.is_some();
        let mut blocks_allocated = None;
        if modify_time.is_none() || asks_for_room || planned.narrows {
            let (_, present) = self.fresh(file)?;
            if planned.narrows {
                version = self.revoking_version(present.access_control_version)?;
            } else if !asks_for_room && modify_time.is_none() {
                return Ok((present, false));
            }
            cuts = planned.size.is_some_and(|size| size < present.logical_size);
            if let Some(range) = planned.reserve {
                blocks_allocated = Some(self.reservation(file, range, &present)?);
            }
        }
        let set = SetAttributes {
            access_control_version: version,
            logical_size: planned.size,
            blocks_allocated,
            fs_data_modify_time: modify_time,
            fs_specific: Some(new.to_bytes()),
            ..SetAttributes::default()
        };
        // Nothing is lost by a power cut that makes a file longer, or as long as it was. A time that was
        // set is kept by who has set it until it is durable, as data are, and the record by the journal.
        let durable = version.is_some() || cuts || (self.has_callbacks() && modify_time.is_some());
        let attributes =
            self.objects.setattr(file, &set, durable, Wait::Patient).map_err(|error| {
                self.forget(file);
                failure("change the attributes", file, &error)
            })?;
        self.note_times(file.drive, &attributes);
        self.told.forget(file);
        Ok((attributes, true))
    }

    /// How many blocks must be reserved for a file so that a part of it can be written as well. A drive
    /// keeps their number, not which they are: what is reserved already and not yet written is taken for
    /// another part, as long as the file has as many blocks that it lacks.
    fn reservation(
        &self,
        file: FileHandle,
        range: FileRange,
        present: &Attributes,
    ) -> Outcome<u64> {
        let lacking = |offset, length| {
            let required = self.objects.blocks_required(file, offset, length, Wait::Patient);
            required.map_err(|error| failure("ask for room", file, &error))
        };
        let (used, reserved) = (present.blocks_used, present.blocks_allocated);
        let more = lacking(range.offset, range.length)?;
        if reserved <= used {
            return Ok(used.saturating_add(more));
        }
        let end = present.logical_size.max(range.offset.saturating_add(range.length));
        let whole = used.saturating_add(lacking(0, end)?);
        Ok(reserved.saturating_add(more).min(whole).max(reserved))
    }
}

/// Whether the change time must move, even if the new attributes are the old ones.
fn names_more_than_size(changes: &SetFileAttributes) -> bool {
    SetFileAttributes { size: None, ..*changes } != SetFileAttributes::default()
}
