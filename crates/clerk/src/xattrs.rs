//! Extended attributes, special files and access times, as far as the clerk saves trips for them.
//!
//! Programs ask for access control lists and labels of nearly every file that they look at, and most
//! files have none. A file's attributes tell which kinds it has (`Extended`), so that for the others
//! nobody is asked. What everybody may read is kept until the revision of the file's attributes
//! changes, also that there is none; these are as old as `Settings::attribute_ttl` allows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nasd_afs::acl;

use crate::ClerkError;
use crate::clerk::{Clerk, Entry};
use crate::wire::{
    Caller, Device, Extended, File, FileAccess, FileAttributes, FileHandle, FileType,
    ManagerStatus, Name, NewMode, XattrFlags,
};

/// Most values that are kept, and the longest of them in bytes.
const MOST_KEPT: usize = 4096;
const LONGEST_KEPT: usize = 1024;

/// Values that everybody may read, by file and name.
#[derive(Default)]
pub(crate) struct XattrCache(Mutex<HashMap<(FileHandle, Name), Kept>>);

struct Kept {
    /// Of the file's attributes when it was told.
    revision: u64,
    /// `None` is that there is none.
    value: Option<Vec<u8>>,
}

impl XattrCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<(FileHandle, Name), Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, file: FileHandle, name: &Name, revision: u64) -> Option<Option<Vec<u8>>> {
        let kept = self.lock();
        let found = kept.get(&(file, name.clone()))?;
        (found.revision == revision).then(|| found.value.clone())
    }

    fn put(&self, file: FileHandle, name: &Name, kept: Kept) {
        if kept.value.as_ref().is_some_and(|value| value.len() > LONGEST_KEPT) {
            return;
        }
        let mut all = self.lock();
        if all.len() >= MOST_KEPT {
            all.clear();
        }
        all.insert((file, name.clone()), kept);
    }
}

/// What the list as AFS has it that governs a file is called.
pub(crate) const AFS_ACL: &[u8] = acl::ATTRIBUTE.as_bytes();

/// The same for root.
const AFS_ACL_FOR_ROOT: &[u8] = acl::ATTRIBUTE_FOR_ROOT.as_bytes();

/// The kind that a name is of; and whether everybody may read it.
fn kind_of(name: &Name) -> (Extended, bool) {
    match name.as_bytes() {
        b"system.posix_acl_access" => (Extended::ACCESS_ACL, true),
        b"system.posix_acl_default" => (Extended::DEFAULT_ACL, true),
        AFS_ACL | AFS_ACL_FOR_ROOT => (Extended::AFS_ACL, false),
        name => (Extended::ATTRIBUTES, name.starts_with(b"security.")),
    }
}

impl Clerk {
    /// The value of an extended attribute, at most `Settings::attribute_ttl` old where it is one that
    /// everybody may read, or there is none.
    ///
    /// # Errors
    ///
    /// `Manager(NoData)` if there is none, or none that the caller may know of; and what the manager says.
    pub fn getxattr(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        name: &Name,
    ) -> Result<Vec<u8>, ClerkError> {
        let attributes = self.standing(caller, handle)?;
        let (kind, is_public) = kind_of(name);
        if !attributes.extended.has(kind) {
            return none();
        }
        // Where a list decides, not everybody may.
        let is_public = is_public && !attributes.extended.has(Extended::AFS_ACL);
        let revision = attributes.revision;
        if let Some(known) = self.xattrs.get(handle, name, revision).filter(|_| is_public) {
            return known.map_or_else(none, Ok);
        }
        let told = self.ask(|names| names.getxattr(caller, handle, name));
        let value = match &told {
            Ok(value) => Some(value.clone()),
            Err(ClerkError::Manager(ManagerStatus::NoData)) => None,
            Err(_) => return told,
        };
        if is_public {
            self.xattrs.put(handle, name, Kept { revision, value });
        }
        told
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn setxattr(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        name: &Name,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<FileAttributes, ClerkError> {
        self.core.end_given(handle)?;
        self.change_extended(caller, handle, |names| {
            names.setxattr(caller, handle, name, value, flags)
        })
    }

    /// The names of the extended attributes, each with a zero byte behind it.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn listxattr(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<Vec<u8>, ClerkError> {
        let FileAttributes { extended, file_type, .. } = self.standing(caller, handle)?;
        // What governs a file is told of its directory alone.
        let only_governed = extended == Extended::AFS_ACL && file_type != FileType::Directory;
        if extended == Extended::NONE || only_governed {
            return Ok(Vec::new());
        }
        self.ask(|names| names.listxattr(caller, handle))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    ///
    /// `Manager(NoData)` if there is none, and what the manager says.
    pub fn removexattr(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        name: &Name,
    ) -> Result<FileAttributes, ClerkError> {
        self.core.end_given(handle)?;
        self.change_extended(caller, handle, |names| names.removexattr(caller, handle, name))
    }

    fn change_extended(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
        ask: impl FnMut(&dyn crate::Names) -> Result<File, ClerkError>,
    ) -> Result<FileAttributes, ClerkError> {
        let changed = self.ask(ask);
        self.doubt_if_unknown(handle, &changed);
        let file = changed?;
        // Others may search a directory now, or not any more.
        self.core.known.end(file.handle);
        // The revision is another one, so that nothing that is kept counts any more.
        let entry = self.learn(caller, &file, Instant::now());
        self.core.changed_here(file.handle, &file.attributes);
        Ok(self.with_own_writes(entry).attributes)
    }

    /// A named pipe, a socket's name, a device's, or a regular file.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn mknod(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        node: (FileType, Device),
        mode: NewMode,
    ) -> Result<Entry, ClerkError> {
        self.make(caller, dir, name, |names| names.mknod(caller, dir, name, node, mode))
    }

    /// Tells that files were read, and when: their access times follow, as far as the caller may read
    /// them. Meant to be told of many at a time, now and then.
    ///
    /// # Errors
    ///
    /// What the manager says.
    pub fn accessed(
        &self,
        caller: &Arc<Caller>,
        accessed: &[FileAccess],
    ) -> Result<(), ClerkError> {
        self.ask(|names| names.accessed(caller, self.root(), accessed))?;
        for access in accessed {
            self.core.attributes.accessed(access.file, access.time);
            if let Some(promises) = self.core.promises() {
                promises.accessed(access.file, access.time);
            }
        }
        Ok(())
    }
}

fn none() -> Result<Vec<u8>, ClerkError> {
    Err(ClerkError::Manager(ManagerStatus::NoData))
}
