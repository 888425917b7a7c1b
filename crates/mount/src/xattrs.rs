//! Extended attributes and access control lists, and what a change of contents takes from a program.
//!
//! The kernel knows the lists (it was told so at the start): it asks for them, keeps them, and checks
//! them before it asks for anything else; the manager checks them once more. It leaves to us to take
//! the set-user-ID and set-group-ID bits from a file that is written, and asks for
//! `security.capability` only after it was told new attributes, and not at each write.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use nasd_clerk::{
    ClerkError, Extended, FileAttributes, FileType, ManagerStatus, Name, SetFileAttributes,
    XattrFlags,
};
use nasd_fuse::Errno;

use crate::attributes::errno;
use crate::callers::Who;
use crate::files::OpenedFile;
use crate::tree::Tree;

/// What lists are called.
const LISTS: &[u8] = b"system.posix_acl_";

/// What the kernel itself removes from a file that is written, whoever writes.
const CAPABILITY: &[u8] = b"security.capability";

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// An attribute's name as the clerk wants it.
fn xattr_name(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|_| Errno::ERANGE)
}

fn to_errno(error: ClerkError) -> Errno {
    errno(&error)
}

/// The mode without what a change of contents takes; nothing if it takes nothing. Set-group-ID
/// without group execution is not for execution, and stays.
fn without_set_ids(attributes: &FileAttributes) -> Option<u32> {
    if attributes.file_type != FileType::Regular {
        return None;
    }
    let mode = attributes.mode;
    let of_group = if mode & GROUP_EXECUTE != 0 { SET_GID } else { 0 };
    let without = mode & !(SET_UID | of_group);
    (without != mode).then_some(without)
}

impl Tree {
    /// Sets an attribute; `flags` are of setxattr(2).
    pub(crate) fn setxattr(
        &self,
        who: Who,
        ino: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        // Who is not in a file's group loses its set-group-ID bit by a list, without being refused.
        let is_list = name.as_bytes().starts_with(LISTS);
        let who = if is_list && who.uid != 0 { who.exactly() } else { who };
        let (handle, name, caller) = (self.handle(ino)?, xattr_name(name)?, self.callers.get(who));
        let flags = match i32::try_from(flags) {
            Ok(0) => XattrFlags::NONE,
            Ok(libc::XATTR_CREATE) => XattrFlags::CREATE,
            Ok(libc::XATTR_REPLACE) => XattrFlags::REPLACE,
            _ => return Err(Errno::EINVAL),
        };
        self.clerk.setxattr(&caller, handle, &name, value, flags).map(drop).map_err(to_errno)
    }

    /// An attribute's value.
    pub(crate) fn getxattr(&self, who: Who, ino: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let (handle, name, caller) = (self.handle(ino)?, xattr_name(name)?, self.callers.get(who));
        self.clerk.getxattr(&caller, handle, &name).map_err(to_errno)
    }

    /// The names of all attributes, each with a NUL.
    pub(crate) fn listxattr(&self, who: Who, ino: u64) -> Result<Vec<u8>, Errno> {
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        self.clerk.listxattr(&caller, handle).map_err(to_errno)
    }

    /// Removes an attribute.
    pub(crate) fn removexattr(&self, who: Who, ino: u64, name: &OsStr) -> Result<(), Errno> {
        // Of programs, the kernel lets only those with CAP_SETFCAP remove it; else it does so by itself.
        let is_kernels = name.as_bytes() == CAPABILITY;
        let caller = if is_kernels { self.root.clone() } else { self.callers.get(who) };
        let (handle, name) = (self.handle(ino)?, xattr_name(name)?);
        self.clerk.removexattr(&caller, handle, &name).map(drop).map_err(to_errno)
    }

    /// A file is about to be changed around the kernel's page cache, where the kernel leaves it to us
    /// to take `security.capability` away.
    pub(crate) fn drop_capability(&self, file: &OpenedFile) -> Result<(), Errno> {
        let handle = file.open.handle();
        let known = self.clerk.standing(&file.caller, handle).map_err(to_errno)?;
        let is_known = file.unprivileged.load(Ordering::Relaxed) == known.revision;
        if !known.extended.has(Extended::ATTRIBUTES) || is_known {
            return Ok(());
        }
        let name = Name::new(CAPABILITY).map_err(|_| Errno::ERANGE)?;
        let revision = match self.clerk.removexattr(&self.root, handle, &name) {
            Ok(changed) => changed.revision,
            Err(ClerkError::Manager(ManagerStatus::NoData)) => known.revision,
            Err(error) => return Err(to_errno(error)),
        };
        file.unprivileged.store(revision, Ordering::Relaxed);
        Ok(())
    }

    /// A file is about to be changed by somebody who may not keep its set-user-ID and set-group-ID
    /// bits.
    pub(crate) fn drop_set_ids(&self, file: &OpenedFile) -> Result<(), Errno> {
        let handle = file.open.handle();
        let known = self.clerk.standing(&file.caller, handle).map_err(to_errno)?;
        let Some(mode) = without_set_ids(&known) else {
            return Ok(());
        };
        let changes = SetFileAttributes { mode: Some(mode), ..SetFileAttributes::default() };
        // It goes whoever writes. But a user's own certificate speaks for nobody else.
        let changed = self.clerk.setattr(&self.root, handle, &changes);
        let changed = changed.or_else(|_| self.clerk.setattr(&file.caller, handle, &changes));
        changed.map_err(to_errno)?;
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(file.ino, -1, 0)
        {
            tracing::debug!(%error, "the kernel keeps the old mode for a second");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nasd_clerk::{Device, Extended, Timestamp};

    use super::*;

    #[test]
    fn writing_takes_what_makes_a_program_more_than_a_program() {
        let file = |file_type, mode| FileAttributes {
            file_type,
            mode,
            links: 1,
            uid: 1,
            gid: 2,
            size: 0,
            used_bytes: 0,
            access_time: Timestamp(0),
            modify_time: Timestamp(0),
            data_version: 0,
            change_time: Timestamp(0),
            create_time: Timestamp(0),
            device: Device::NONE,
            revision: 0,
            extended: Extended::NONE,
        };
        let after = |mode| without_set_ids(&file(FileType::Regular, mode));
        assert_eq!(after(0o644), None);
        assert_eq!(after(0o1777), None);
        assert_eq!(after(0o4755), Some(0o755));
        assert_eq!(after(0o6711), Some(0o711));
        assert_eq!(after(0o2744), None, "not for execution");
        assert_eq!(after(0o6744), Some(0o2744));
        assert_eq!(without_set_ids(&file(FileType::Directory, 0o6755)), None);
    }
}
