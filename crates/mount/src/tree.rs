//! What is done for the kernel's requests about names and attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use nasd_clerk::{
    Caller, Clerk, ClerkError, Entry, FileAttributes, FileHandle, FileType, ManagerStatus, Name,
    RenameFlags,
};
use nasd_fuse::{Attributes, Errno, Notifier};

use crate::DataPath;
use crate::attributes::{Changes, errno, to_kernel};
use crate::callers::{Callers, Who};
use crate::directories::OpenDirectory;
use crate::dispatch::Lane;
use crate::files::OpenedFile;
use crate::inodes::{Inodes, version};
use crate::table::Table;

/// Bytes of a block, as `df` counts.
const BLOCK_BYTES: u64 = 4096;

/// A mounted volume.
pub(crate) struct Tree {
    pub(crate) clerk: Arc<Clerk>,
    pub(crate) inodes: Inodes,
    pub(crate) callers: Callers,
    pub(crate) files: Table<OpenedFile>,
    pub(crate) directories: Table<OpenDirectory>,
    pub(crate) data_path: DataPath,
    /// Tells the kernel what it must not believe any more.
    pub(crate) notifier: OnceLock<Notifier>,
}

/// Room in the volume, in blocks of `block_bytes`.
pub(crate) struct Room {
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) free_blocks: u64,
    pub(crate) files: u64,
}

/// A name as the clerk wants it.
pub(crate) fn name_of(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|_| Errno::ENAMETOOLONG)
}

impl Tree {
    pub(crate) fn new(clerk: Arc<Clerk>, data_path: DataPath) -> Self {
        let inodes = Inodes::new(&clerk.volume());
        Tree {
            clerk,
            inodes,
            callers: Callers::default(),
            files: Table::default(),
            directories: Table::default(),
            data_path,
            notifier: OnceLock::new(),
        }
    }

    /// The file with this number.
    pub(crate) fn handle(&self, ino: u64) -> Result<FileHandle, Errno> {
        self.inodes.handle(ino).ok_or(Errno::ESTALE)
    }

    /// Where operations on this file's attributes and data wait.
    pub(crate) fn lane(&self, ino: u64) -> Lane {
        self.inodes.handle(ino).map_or(Lane::Names, |handle| Lane::Drive(handle.drive))
    }

    /// The number of a file; asks the manager when its drive is new.
    pub(crate) fn number(&self, caller: &Arc<Caller>, handle: FileHandle) -> u64 {
        if !self.inodes.knows_drive(handle.drive)
            && let Ok(volume) = self.clerk.refresh_volume(caller)
        {
            self.inodes.learn_drives(&volume);
        }
        self.inodes.number(handle)
    }

    /// Attributes for the kernel. A file that has only a hidden name has none.
    pub(crate) fn present(&self, ino: u64, attributes: &FileAttributes) -> Attributes {
        self.inodes.tell(ino, version(attributes));
        let mut attr = to_kernel(ino, attributes);
        if self.inodes.is_hidden(ino) {
            attr.links = attr.links.saturating_sub(1);
        }
        attr
    }

    /// The kernel is about to be told attributes that were asked for. If somebody else has written,
    /// it must not believe its pages. (It could find that out by itself, but then its own writes
    /// would cost it the pages, too.)
    fn notice(&self, ino: u64, attributes: &FileAttributes) {
        if attributes.file_type == FileType::Regular
            && self.inodes.was_changed_elsewhere(ino, version(attributes))
            && let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.inval_inode(ino, 0, 0)
        {
            tracing::debug!(%error, "the kernel keeps old pages until the next open");
        }
    }

    /// The kernel is told of an entry.
    fn enter(
        &self,
        caller: &Arc<Caller>,
        parent: u64,
        name: &Name,
        entry: &Entry,
    ) -> Result<Attributes, Errno> {
        let ino = self.number(caller, entry.handle);
        let mut attributes = entry.attributes;
        if self.inodes.is_written(ino) {
            // What the manager was told may be older than what was written here meanwhile; and
            // the kernel appends at the length that it is told.
            let now = self.clerk.getattr_now(caller, entry.handle);
            attributes = now.map_err(|error| errno(&error))?;
        }
        self.inodes.remember(parent, name.as_bytes(), entry.handle);
        self.notice(ino, &attributes);
        Ok(self.present(ino, &attributes))
    }

    /// The file of that name; `None` if there is none.
    pub(crate) fn lookup(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
    ) -> Result<Option<Attributes>, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        match self.clerk.lookup(&caller, dir, &name) {
            Ok(entry) => self.enter(&caller, parent, &name, &entry).map(Some),
            Err(ClerkError::Manager(ManagerStatus::NotFound)) => {
                self.inodes.forget_name(parent, name.as_bytes());
                Ok(None)
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// Attributes as of now.
    pub(crate) fn getattr(&self, who: Who, ino: u64) -> Result<Attributes, Errno> {
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        let attributes = self.clerk.getattr_now(&caller, handle).map_err(|error| errno(&error))?;
        self.notice(ino, &attributes);
        Ok(self.present(ino, &attributes))
    }

    /// Changes attributes.
    pub(crate) fn setattr(
        &self,
        who: Who,
        ino: u64,
        changes: Changes,
    ) -> Result<Attributes, Errno> {
        let Some(changes) = changes.to_clerk() else {
            return self.getattr(who, ino);
        };
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        let changed = self.clerk.setattr(&caller, handle, &changes);
        Ok(self.present(ino, &changed.map_err(|error| errno(&error))?))
    }

    /// Where a symbolic link leads.
    pub(crate) fn readlink(&self, who: Who, ino: u64) -> Result<Vec<u8>, Errno> {
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        self.clerk.readlink(&caller, handle).map_err(|error| errno(&error))
    }

    /// A directory.
    pub(crate) fn mkdir(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        mode: u32,
    ) -> Result<Attributes, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let made = self.clerk.mkdir(&caller, dir, &name, mode & 0o7777);
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// A regular file that is not opened.
    pub(crate) fn mknod(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        mode: u32,
    ) -> Result<Attributes, Errno> {
        if mode & libc::S_IFMT != libc::S_IFREG && mode & libc::S_IFMT != 0 {
            return Err(Errno::EPERM);
        }
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let made = self.clerk.create(&caller, dir, &name, mode & 0o7777, true);
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// A symbolic link.
    pub(crate) fn symlink(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<Attributes, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let made = self.clerk.symlink(&caller, dir, &name, target.as_bytes());
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// Another name for a file.
    pub(crate) fn link(
        &self,
        who: Who,
        ino: u64,
        parent: u64,
        name: &OsStr,
    ) -> Result<Attributes, Errno> {
        let (file, dir, name) = (self.handle(ino)?, self.handle(parent)?, name_of(name)?);
        let caller = self.callers.get(who);
        let made = self.clerk.link(&caller, file, dir, &name);
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// Removes a name; an open file lives on.
    pub(crate) fn unlink(
        self: &Arc<Self>,
        who: Who,
        parent: u64,
        name: &OsStr,
    ) -> Result<(), Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let kept = match self.inodes.child(parent, name.as_bytes()) {
            Some(ino) => self.hide_removed(&caller, dir, &name, ino)?,
            None => false,
        };
        if !kept {
            self.clerk.unlink(&caller, dir, &name).map_err(|error| errno(&error))?;
        }
        self.inodes.forget_name(parent, name.as_bytes());
        Ok(())
    }

    /// Removes an empty directory; one that has only hidden files is empty.
    pub(crate) fn rmdir(&self, who: Who, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let mut outcome = self.clerk.rmdir(&caller, dir, &name);
        if matches!(outcome, Err(ClerkError::Manager(ManagerStatus::NotEmpty)))
            && let Some(ino) = self.inodes.child(parent, name.as_bytes())
            && let Some(victim) = self.inodes.handle(ino)
            && self.clear_hidden(&caller, victim, dir).unwrap_or(false)
        {
            outcome = self.clerk.rmdir(&caller, dir, &name);
        }
        outcome.map_err(|error| errno(&error))?;
        self.inodes.forget_name(parent, name.as_bytes());
        Ok(())
    }

    /// Moves a name. A file that is replaced while it is open lives on.
    pub(crate) fn rename(
        self: &Arc<Self>,
        who: Who,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let no_replace = flags != 0;
        let flags = if no_replace { RenameFlags::NO_REPLACE } else { RenameFlags::NONE };
        let (from_dir, from_name) = (self.handle(from.0)?, name_of(from.1)?);
        let (to_dir, to_name) = (self.handle(to.0)?, name_of(to.1)?);
        let caller = self.callers.get(who);
        let source = self.inodes.child(from.0, from_name.as_bytes());
        let target = self.inodes.child(to.0, to_name.as_bytes());
        let kept = match target.filter(|target| !no_replace && source != Some(*target)) {
            Some(ino) => Some((ino, self.keep_replaced(&caller, to_dir, &to_name, ino)?)),
            None => None,
        };
        let places = ((from_dir, &from_name), (to_dir, &to_name));
        let outcome = self.clerk.rename(&caller, places.0, places.1, flags);
        match (&outcome, kept) {
            (Ok(()), Some((ino, kept))) => self.confirm_kept(ino, kept),
            (Err(_), Some((_, kept))) => self.undo_kept(to_dir, &to_name, kept),
            (_, None) => {}
        }
        outcome.map_err(|error| errno(&error))?;
        self.inodes.rename((from.0, from_name.as_bytes()), (to.0, to_name.as_bytes()));
        Ok(())
    }

    /// Room in the volume.
    pub(crate) fn statfs(&self, who: Who) -> Result<Room, Errno> {
        let space = self.clerk.space(&self.callers.get(who)).map_err(|error| errno(&error))?;
        Ok(Room {
            block_bytes: BLOCK_BYTES as u32,
            blocks: space.total_bytes / BLOCK_BYTES,
            free_blocks: space.free_bytes / BLOCK_BYTES,
            files: space.files,
        })
    }

    /// After the mount is gone: removes what was kept for open files, and hands everything that
    /// was written to the drives.
    pub(crate) fn drain(&self) -> Result<(), ClerkError> {
        self.files.clear();
        self.directories.clear();
        for ino in self.inodes.all_hidden(None) {
            self.remove_hidden(ino);
        }
        self.clerk.close()
    }
}
