//! Lists as AFS has them: a directory's list governs the files in it.
//!
//! Each file has a copy of its directory's list in its record, so that who may do what with it can be told from the record alone, by its
//! handle. A file gets it when it is made, or comes into the directory by another name; all files of a directory get it when the directory's
//! list is set:
//!
//! 1. The directory's record is changed, and with the same step of the journal it is noted that its files are to follow
//!    (`Step::Governing`). From then on whatever is made in it, or moved into it, has the new list.
//! 2. Each file gets the list by a store of the file manager's own (`crate::callback_service`): all capabilities for it are worthless from then
//!    on, and all callbacks are broken.
//! 3. When all have it, that is noted (`Step::Governed`), and whoever has set the list is answered.
//!
//! A file manager that starts goes on with what was noted and not finished, from the first file.
//!
//! So that each file is governed by one directory, a file in a directory with a list has names in that directory alone. One that has names
//! elsewhere, from before the directory had a list, is not governed by it. Who moves another's file between a directory that has a list and
//! one that has none, as whoever may change both could, would have made himself rights on it: that is left to copying (EXDEV).

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use nasd_protocol::manager::{FileHandle, FileType, ManagerStatus, RenameFlags};

use super::contents::Target;
use super::{Namespace, Outcome};
use crate::acl::Acl;
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::journal::Step;
use crate::locks::Wants;
use crate::permission;
use crate::xattr::{self, Attributes, Class};

/// A file of a directory, by one of its names.
pub(crate) type NamedFile = (Vec<u8>, FileHandle);

impl Namespace {
    /// Whether there are attributes of this class in the volume.
    pub(super) fn require_lists(&self, class: Class) -> Outcome<()> {
        let is_here = class != Class::AfsAcl || self.has_callbacks();
        if is_here { Ok(()) } else { Err(ManagerStatus::NotSupported) }
    }

    /// Whether the caller owns the volume's root: then he may change any list.
    pub(super) fn owns_volume(&self, caller: &Caller) -> Outcome<bool> {
        Ok(self.preload(self.root())?.uid == caller.uid)
    }

    /// Directories whose files are still to get their lists, and to whom nobody gives them.
    pub(crate) fn left_governing(&self) -> Vec<FileHandle> {
        let mut left: Vec<FileHandle> =
            self.journal.ledger(|ledger| ledger.governing.keys().copied().collect());
        if !left.is_empty() {
            let giving = self.giving_lists.lock().unwrap_or_else(PoisonError::into_inner);
            left.retain(|directory| !giving.contains_key(directory));
        }
        left
    }

    /// Whether files are still to get the list of their directory.
    pub(crate) fn gives_lists(&self) -> bool {
        self.journal.ledger(|ledger| !ledger.governing.is_empty())
    }

    /// The caller gives lists behind those who have set them, unless somebody else does.
    pub(crate) fn begin_to_tend_lists(self: &Arc<Self>) -> Option<TendingLists> {
        let is_tended = self.tends_lists.swap(true, Ordering::AcqRel);
        (!is_tended).then(|| TendingLists(Arc::clone(self)))
    }

    /// Somebody gives the files of a directory its list.
    pub(crate) fn begin_to_govern(&self, directory: FileHandle) -> Giving<'_> {
        let mut giving = self.giving_lists.lock().unwrap_or_else(PoisonError::into_inner);
        *giving.entry(directory).or_default() += 1;
        Giving { names: self, directory }
    }

    /// The revision in which a directory's list was set that its files are still to get.
    pub(crate) fn governing(&self, directory: FileHandle) -> Option<u64> {
        self.journal.ledger(|ledger| ledger.governing.get(&directory).copied())
    }

    /// The files of a directory that are no directories, each by one of its names.
    pub(crate) fn files_to_govern(&self, directory: FileHandle) -> Outcome<Vec<NamedFile>> {
        let _held = self.hold(Wants::new().read(directory));
        self.directory_record(directory)?;
        let listing =
            self.read_directory(directory, |contents| contents.list(0, usize::MAX, usize::MAX))?;
        let mut seen = BTreeSet::new();
        let files = listing.entries.into_iter();
        let files = files.filter(|entry| entry.file_type != FileType::Directory);
        let once = files.filter(|entry| seen.insert(entry.handle));
        Ok(once.map(|entry| (entry.name, entry.handle)).collect())
    }

    /// Gives a file its directory's list. Nothing is done where it is not in the directory any more, or has names elsewhere. The caller stores the file.
    pub(crate) fn govern(&self, directory: FileHandle, (name, file): &NamedFile) -> Outcome<()> {
        let file = *file;
        match self.preload(file) {
            Ok(_) => {}
            Err(ManagerStatus::Stale) => return Ok(()),
            Err(status) => return Err(status),
        }
        let sequence = {
            let _held = self.hold(Wants::new().read(directory).write(file));
            let list = self.directory_record(directory)?.afs_acl();
            let Some(record) = self.record_if_any(file)? else {
                return Ok(());
            };
            if !self.is_wholly_in(directory, name, file, &record)? {
                return Ok(());
            }
            let nobody = Caller::default();
            let governed = self.change_held(&nobody, (file, &record), Class::AfsAcl, |to, all| {
                all.govern(to, list);
                Ok(())
            });
            governed?.1
        };
        self.wait_for(sequence)
    }

    /// Whether all names of a file are in a directory, where one of them was this. The caller holds both locks.
    fn is_wholly_in(
        &self,
        directory: FileHandle,
        name: &[u8],
        file: FileHandle,
        record: &FileRecord,
    ) -> Outcome<bool> {
        let leads_there = self.find(directory, name)?.is_some_and(|found| found.handle == file);
        if leads_there && record.links == 1 {
            return Ok(true);
        }
        Ok(record.links > 0 && self.names_in(directory, file)? == record.links as usize)
    }

    /// How many names of a directory a file has. The caller holds the directory's lock.
    fn names_in(&self, directory: FileHandle, file: FileHandle) -> Outcome<usize> {
        self.read_directory(directory, |contents| contents.names_of(file))
    }

    /// All files of a directory have its list, that of this revision at least.
    pub(crate) fn note_governed(&self, directory: FileHandle, revision: u64) -> Outcome<()> {
        let sequence = self.journal.enqueue(&[Step::Governed { directory, revision }]);
        self.wait_for(sequence)
    }

    /// Requires that a file may get another name in a directory; answers its record with the directory's list. The caller holds both locks.
    ///
    /// # Errors
    /// `CrossDevice` where a list governs the file or the directory, and the file has names elsewhere.
    pub(super) fn require_linkable(
        &self,
        (file, record): (FileHandle, &FileRecord),
        (directory, above): (FileHandle, &FileRecord),
    ) -> Outcome<FileRecord> {
        let is_governed = record.afs_acl().is_some() || above.afs_acl().is_some();
        if is_governed && self.names_in(directory, file)? != record.links as usize {
            return Err(ManagerStatus::CrossDevice);
        }
        governed_by(above, record)
    }

    /// Files whose rights a rename changes, as names lead now: they are to be stored by the file manager meanwhile.
    pub(crate) fn files_to_store(
        &self,
        (from_directory, from_name): (FileHandle, &[u8]),
        (to_directory, to_name): (FileHandle, &[u8]),
        flags: RenameFlags,
    ) -> Vec<FileHandle> {
        let mut files: Vec<FileHandle> =
            self.leads_to(from_directory, from_name).into_iter().collect();
        if flags.is_exchange() {
            files.extend(self.leads_to(to_directory, to_name));
        }
        // In one order, as others may store the same.
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// Whoever gives lists behind those who have set them.
pub(crate) struct TendingLists(Arc<Namespace>);

impl TendingLists {
    /// The volume.
    pub(crate) fn names(&self) -> &Namespace {
        &self.0
    }
}

impl Drop for TendingLists {
    fn drop(&mut self) {
        self.0.tends_lists.store(false, Ordering::Release);
    }
}

/// Somebody who gives the files of a directory its list.
pub(crate) struct Giving<'a> {
    names: &'a Namespace,
    directory: FileHandle,
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        let mut giving = self.names.giving_lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = giving.get_mut(&self.directory) {
            *count -= 1;
            if *count == 0 {
                giving.remove(&self.directory);
            }
        }
    }
}

/// A file's record with the list of a directory, or without one if it has none.
///
/// # Errors
/// `CrossDevice` where the record has no room for that with the attributes that are in it: a copy has.
pub(super) fn governed_by(directory: &FileRecord, record: &FileRecord) -> Outcome<FileRecord> {
    if record.is_directory() || record.afs_acl() == directory.afs_acl() {
        return Ok(*record);
    }
    let (mut governed, list) = (*record, directory.afs_acl());
    let mut access = record.access_acl();
    if list.is_some()
        && let Some(access) = access.take()
    {
        governed.mode = mode_without(&access, record.mode);
    }
    let others: Attributes = record.inline.attributes();
    let packed = xattr::pack(access.as_ref(), None, list.as_ref(), &others)?;
    if packed.object.is_some() {
        return Err(ManagerStatus::CrossDevice);
    }
    governed.inline = packed.inline;
    Ok(governed)
}

/// The mode of what has a POSIX list no more: so that it gives nobody more than that did where the mode counts again, the group's bits are what
/// the group had.
pub(super) fn mode_without(access: &Acl, mode: u32) -> u32 {
    let group = access.group & access.mask.unwrap_or(7);
    mode & !0o070 | u32::from(group) << 3
}

/// Requires that a file may be moved from one directory to another, whose lists govern what may be done with it; answers its record there.
///
/// # Errors
/// `CrossDevice` where it is to be copied instead; `Busy` where capabilities for it are to end by the move, and the caller does not store it.
pub(super) fn require_movable(
    caller: &Caller,
    (target, record): (Target, &FileRecord),
    (old, new): (&FileRecord, &FileRecord),
) -> Outcome<FileRecord> {
    // A directory's list may have been set a moment ago, so that its files have another one yet, or still.
    let is_governed = record.afs_acl().is_some() || old.afs_acl().is_some();
    let will_be_governed = new.afs_acl().is_some();
    if record.is_directory() || (!is_governed && !will_be_governed) {
        return Ok(*record);
    }
    let changes_rules = is_governed != will_be_governed;
    if record.links > 1 || (changes_rules && !permission::is_owner(record, caller)) {
        return Err(ManagerStatus::CrossDevice);
    }
    let governed = governed_by(new, record)?;
    if governed.inline != record.inline && !caller.stores.contains(&target.handle) {
        return Err(ManagerStatus::Busy);
    }
    Ok(governed)
}
