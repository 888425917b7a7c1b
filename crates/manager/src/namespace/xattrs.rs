//! Extended attributes and access control lists: read, set, listed and removed. What a directory's list as AFS has it means for the files in
//! it is `govern`'s.
//!
//! What does not fit into the record goes into an attribute object (`crate::xattr`): a new one for every
//! change, one of those that were made ahead, written durably before the record names it; the one before is
//! removed by the same change.

use nasd_afs::acl::Acl as AfsAcl;
use nasd_protocol::limits::MAX_XATTR_VALUE_BYTES;
use nasd_protocol::manager::{File, FileHandle, ManagerStatus, XattrFlags};
use nasd_types::SetAttributes;

use super::ahead::Kind;
use super::govern::mode_without;
use super::{Namespace, Outcome, failure};
use crate::acl::Acl;
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::journal::Step;
use crate::locks::Wants;
use crate::objects::Wait;
use crate::permission::{self, SET_GID};
use crate::xattr::{self, ACCESS_ACL, AFS_ACL, AFS_ACL_FOR_ROOT, Attributes, Class, DEFAULT_ACL};

/// All that a file has besides its mode.
pub(super) struct Extended {
    access: Option<Acl>,
    default: Option<Acl>,
    afs: Option<AfsAcl>,
    others: Attributes,
}

impl Namespace {
    /// The value of an extended attribute.
    pub fn getxattr(&self, caller: &Caller, file: FileHandle, name: &[u8]) -> Outcome<Vec<u8>> {
        let class = xattr::class_of(name)?;
        let _held = self.hold(Wants::new().read(file));
        let record = self.record(file)?;
        xattr::require_readable(class, &record, caller)?;
        let value = match class {
            Class::AccessAcl => record.access_acl().map(|acl| acl.to_xattr()),
            Class::DefaultAcl => record.inline.default_acl().map(|acl| acl.to_xattr()),
            Class::AfsAcl => record.afs_acl().map(|acl| acl.to_string().into_bytes()),
            _ => self.attributes_of(file, &record)?.remove(name),
        };
        value.ok_or(ManagerStatus::NoData)
    }

    /// The names of the extended attributes that the caller may know of, each with a zero byte behind it.
    pub fn listxattr(&self, caller: &Caller, file: FileHandle) -> Outcome<Vec<u8>> {
        let _held = self.hold(Wants::new().read(file));
        let record = self.record(file)?;
        permission::require_to_look(&record, caller)?;
        let (access, default, _) = record.inline.has();
        let lists = [(access, ACCESS_ACL), (default, DEFAULT_ACL)];
        // Files have it from their directory: who copies them need not copy it.
        let has_afs = record.is_directory() && record.afs_acl().is_some();
        let afs = if caller.is_root() { AFS_ACL_FOR_ROOT } else { AFS_ACL };
        let lists = lists.into_iter().chain([(has_afs, afs)]);
        let lists = lists.filter(|(there, _)| *there).map(|(_, name)| name.to_vec());
        let others = self.attributes_of(file, &record)?.into_keys();
        let is_listed = |name: &Vec<u8>| {
            xattr::class_of(name).is_ok_and(|class| xattr::is_listed(class, caller))
        };
        let mut names = Vec::new();
        for name in lists.chain(others.filter(is_listed)) {
            names.extend_from_slice(&name);
            names.push(0);
        }
        Ok(names)
    }

    /// Sets an extended attribute. An access control list sets the mode too, and takes back the
    /// capabilities that there are.
    pub fn setxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Outcome<File> {
        let class = xattr::class_of(name)?;
        if !flags.is_meaningful() {
            return Err(ManagerStatus::Invalid);
        }
        if value.len() > MAX_XATTR_VALUE_BYTES {
            return Err(ManagerStatus::TooBig);
        }
        self.require_lists(class)?;
        self.change_extended(caller, file, class, |record, extended| {
            require_flags(flags, extended.has(class, name))?;
            match class {
                Class::AccessAcl => match Acl::from_xattr(value)? {
                    Some(acl) => set_access(record, extended, caller, acl),
                    None => extended.access = None,
                },
                Class::DefaultAcl => set_default(record, extended, Acl::from_xattr(value)?)?,
                Class::AfsAcl => {
                    let acl = AfsAcl::from_text(value).map_err(|error| {
                        tracing::debug!(%error, "no access control list");
                        ManagerStatus::Invalid
                    })?;
                    extended.govern(record, Some(acl));
                }
                _ => drop(extended.others.insert(name.to_vec(), value.to_vec())),
            }
            Ok(())
        })
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, caller: &Caller, file: FileHandle, name: &[u8]) -> Outcome<File> {
        let class = xattr::class_of(name)?;
        self.require_lists(class)?;
        self.change_extended(caller, file, class, |_, extended| {
            if !extended.has(class, name) {
                return Err(ManagerStatus::NoData);
            }
            match class {
                Class::AccessAcl => extended.access = None,
                Class::DefaultAcl => extended.default = None,
                Class::AfsAcl => extended.afs = None,
                _ => drop(extended.others.remove(name)),
            }
            Ok(())
        })
    }

    fn change_extended(
        &self,
        caller: &Caller,
        file: FileHandle,
        class: Class,
        change: impl FnOnce(&mut FileRecord, &mut Extended) -> Outcome<()>,
    ) -> Outcome<File> {
        self.once_with_file(caller, || {
            match self.try_change_extended(caller, file, class, change) {
                Ok((answer, sequence)) => self.wait_for(sequence).map(|()| answer),
                Err(status) => self.answered(Err(status), &[file]),
            }
        })
    }

    fn try_change_extended(
        &self,
        caller: &Caller,
        file: FileHandle,
        class: Class,
        change: impl FnOnce(&mut FileRecord, &mut Extended) -> Outcome<()>,
    ) -> Outcome<(File, u64)> {
        let owns_volume = class == Class::AfsAcl && self.owns_volume(caller)?;
        let _held = self.hold(Wants::new().write(file));
        let before = self.record(file)?;
        match xattr::require_settable(class, &before, caller) {
            Err(ManagerStatus::Permission) if owns_volume => {}
            settable => settable?,
        }
        self.change_held(caller, (file, &before), class, change)
    }

    /// Changes them for whoever may; he holds the file's lock.
    pub(super) fn change_held(
        &self,
        caller: &Caller,
        (file, before): (FileHandle, &FileRecord),
        class: Class,
        change: impl FnOnce(&mut FileRecord, &mut Extended) -> Outcome<()>,
    ) -> Outcome<(File, u64)> {
        let mut extended = Extended {
            access: before.access_acl(),
            default: before.inline.default_acl(),
            afs: before.afs_acl(),
            others: self.attributes_of(file, before)?,
        };
        let mut record = before.next();
        change(&mut record, &mut extended)?;
        let Extended { access, default, afs, others } = &extended;
        let packed = xattr::pack(access.as_ref(), default.as_ref(), afs.as_ref(), others)?;
        let touches_object =
            !class.is_list() || packed.object.is_some() != before.attribute_object.is_some();
        record.inline = packed.inline;
        record.attribute_object = match packed.object {
            Some(_) if !touches_object => before.attribute_object,
            Some(bytes) => Some(self.make_attribute_object(file, &bytes)?.object),
            None => None,
        };
        let narrows = class == Class::AccessAcl && may_narrow(before, &record);
        let done = self.set_extended(caller, file, (before, &record), narrows);
        if done.is_err() && record.attribute_object != before.attribute_object {
            // It was made for nothing.
            if let Some(object) = record.attribute_handle(file) {
                self.journal.enqueue(&[Step::Remove { object }]);
            }
        }
        done
    }

    /// Puts the new record, and with it the objects that come and go, into the journal. Answers the
    /// number to wait for.
    fn set_extended(
        &self,
        caller: &Caller,
        file: FileHandle,
        (before, record): (&FileRecord, &FileRecord),
        narrows: bool,
    ) -> Outcome<(File, u64)> {
        let (_, mut attributes) = self.fresh(file)?;
        if narrows
            && let Some(version) = self.revoking_version(attributes.access_control_version)?
        {
            let set = SetAttributes {
                access_control_version: Some(version),
                fs_specific: Some(record.to_bytes()),
                ..SetAttributes::default()
            };
            let done = self.objects.setattr(file, &set, true, Wait::Patient);
            attributes = done.map_err(|error| {
                self.forget(file);
                failure("set the extended attributes", file, &error)
            })?;
            self.note_times(file.drive, &attributes);
            self.told.forget(file);
        }
        let has_other_object = record.attribute_object != before.attribute_object;
        let object_of =
            |record: &FileRecord| record.attribute_handle(file).filter(|_| has_other_object);
        let sequence = self.change(&[], |draft| {
            object_of(record).into_iter().for_each(|object| draft.take_object(object));
            draft.set_record(file, record);
            object_of(before).into_iter().for_each(|object| draft.remove_object(object));
            if record.is_directory() && record.afs_acl() != before.afs_acl() {
                draft.govern(file, record.revision);
            }
            draft.answers(caller, Some(file));
            Ok(())
        })?;
        let attributes = self.with_changes(file, attributes);
        Ok((self.file(caller, file, record, &attributes)?, sequence))
    }

    /// The extended attributes of a file, but for the lists. The caller holds its lock.
    fn attributes_of(&self, file: FileHandle, record: &FileRecord) -> Outcome<Attributes> {
        let Some(object) = record.attribute_handle(file) else {
            return Ok(record.inline.attributes());
        };
        let length = xattr::MAX_OBJECT_BYTES as u64 + 1;
        let bytes = self.objects.read(object, 0, length, Wait::Patient);
        let bytes = bytes.map_err(|error| {
            failure("read the extended attributes", object, &error);
            // The file is there: that is not what is stale.
            if error.is_unavailable() { ManagerStatus::Unavailable } else { ManagerStatus::Io }
        })?;
        xattr::parse_object(&bytes).ok_or_else(|| {
            tracing::error!(object = %Shown(object), "bad extended attributes");
            ManagerStatus::Io
        })
    }

    /// An object of these bytes on the drive of the file, durably: one that was made ahead.
    fn make_attribute_object(&self, file: FileHandle, bytes: &[u8]) -> Outcome<FileHandle> {
        let object = self.take_ahead_on(file.drive, Kind::Settled, Wait::Patient)?.handle;
        self.objects.write(object, 0, bytes, true, Wait::Patient).map_err(|error| {
            self.journal.enqueue(&[Step::Remove { object }]);
            failure("write the extended attributes", file, &error)
        })?;
        Ok(object)
    }
}

impl Extended {
    /// A list as AFS has it decides from now on, or none. Lists that say what the mode can't have no meaning beside it.
    pub(super) fn govern(&mut self, record: &mut FileRecord, list: Option<AfsAcl>) {
        if list.is_some() {
            if let Some(access) = self.access.take() {
                record.mode = mode_without(&access, record.mode);
            }
            self.default = None;
        }
        self.afs = list;
    }

    fn has(&self, class: Class, name: &[u8]) -> bool {
        match class {
            Class::AccessAcl => self.access.is_some(),
            Class::DefaultAcl => self.default.is_some(),
            Class::AfsAcl => self.afs.is_some(),
            _ => self.others.contains_key(name),
        }
    }
}

fn require_flags(flags: XattrFlags, is_there: bool) -> Outcome<()> {
    if flags.is_create() && is_there {
        return Err(ManagerStatus::Exists);
    }
    if flags.is_replace() && !is_there {
        return Err(ManagerStatus::NoData);
    }
    Ok(())
}

/// The mode is that of the list. As with `chmod`, who is not in the file's group can't leave it
/// set-group-ID.
fn set_access(record: &mut FileRecord, extended: &mut Extended, caller: &Caller, acl: Acl) {
    record.mode = record.mode & !0o777 | acl.mode_bits();
    if !caller.is_root() && !caller.is_in_group(record.gid) {
        record.mode &= !SET_GID;
    }
    extended.access = Some(acl).filter(|acl| !acl.is_minimal());
}

/// Whether somebody may do less by another access control list, or by the next change of the mode, and so must
/// ask again. Where there is no list before and after, the mode says it.
fn may_narrow(before: &FileRecord, after: &FileRecord) -> bool {
    let (old, new) = (before.access_acl(), after.access_acl());
    old != new || before.mode & !after.mode & 0o777 != 0
}

/// Only directories have one. It must go into the records of directories that are made in this one, as
/// their own list and as their default.
fn set_default(record: &FileRecord, extended: &mut Extended, acl: Option<Acl>) -> Outcome<()> {
    if acl.is_some() && !record.is_directory() {
        return Err(ManagerStatus::Access);
    }
    if let Some(acl) = &acl {
        xattr::pack(Some(acl), Some(acl), None, &Attributes::new())?;
    }
    extended.default = acl;
    Ok(())
}
