//! Files that are removed while they are open.
//!
//! An object has no life without a name. So when the last name of an open file is removed or
//! replaced, the file gets a hidden name instead, and goes with its last closing ("silly rename",
//! as NFS clients do). A mount that dies leaves hidden names behind; the next one shows them, so
//! that they can be removed.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use nasd_clerk::{Caller, ClerkError, FileHandle, FileType, ManagerStatus, Name, RenameFlags};
use nasd_fuse::Errno;

use crate::attributes::errno;
use crate::tree::Tree;

/// What hidden names begin with.
pub(crate) const PREFIX: &str = ".nasd-deleted-";

/// Where a hidden file is, or may be.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directory.
    pub(crate) dir: FileHandle,
    /// The name.
    pub(crate) name: Name,
    /// Who put it there, and so may remove it.
    pub(crate) caller: Arc<Caller>,
}

impl Place {
    /// For the process that takes the mount over.
    pub(crate) fn to_known(&self) -> (FileHandle, Vec<u8>, Caller) {
        (self.dir, self.name.as_bytes().to_vec(), (*self.caller).clone())
    }

    /// From the process before.
    pub(crate) fn from_known((dir, name, caller): &(FileHandle, Vec<u8>, Caller)) -> Option<Self> {
        let name = Name::new(&**name).ok()?;
        Some(Place { dir: *dir, name, caller: Arc::new(caller.clone()) })
    }

    /// A new name that nobody else will choose.
    pub(crate) fn new(dir: FileHandle, caller: &Arc<Caller>) -> Result<Self, Errno> {
        // Each `RandomState` is seeded by the system's random numbers.
        let random = RandomState::new().build_hasher().finish();
        let name = Name::new(format!("{PREFIX}{random:016x}")).map_err(|_| Errno::ENAMETOOLONG)?;
        Ok(Place { dir, name, caller: Arc::clone(caller) })
    }
}

/// What was done for a file that may be open before its name goes.
pub(crate) enum Kept {
    /// Nothing: it is not open, or has other names.
    Not,
    /// It has a second, hidden name.
    Linked(Place),
    /// It has a hidden name instead of its own.
    Moved(Place),
}

impl Tree {
    /// Whether this name is one that this mount has hidden.
    pub(crate) fn is_hidden_name(&self, dir: FileHandle, name: &Name, ino: u64) -> bool {
        name.as_bytes().starts_with(PREFIX.as_bytes())
            && self.inodes.places(ino).iter().any(|place| place.dir == dir && place.name == *name)
    }

    /// Whether the file must be kept when this name goes.
    fn must_keep(&self, caller: &Arc<Caller>, ino: u64, handle: FileHandle) -> bool {
        if !self.inodes.is_open(ino) || self.inodes.is_hidden(ino) {
            return false;
        }
        let attributes = self.clerk.getattr_now(caller, handle);
        attributes.is_ok_and(|found| found.links <= 1 && found.file_type == FileType::Regular)
    }

    /// Removes the name of an open file by giving it a hidden one. False if there is no need to.
    pub(crate) fn hide_removed(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        ino: u64,
    ) -> Result<bool, Errno> {
        let Some(handle) = self.inodes.handle(ino) else {
            return Ok(false);
        };
        if !self.must_keep(caller, ino, handle) {
            return Ok(false);
        }
        let place = Place::new(dir, caller)?;
        self.clerk
            .rename(caller, (dir, name), (dir, &place.name), RenameFlags::NO_REPLACE)
            .map_err(|error| errno(&error))?;
        self.register(ino, place);
        Ok(true)
    }

    /// Gives an open file that is about to be replaced a hidden name besides its own.
    pub(crate) fn keep_replaced(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        ino: u64,
    ) -> Result<Kept, Errno> {
        let Some(handle) = self.inodes.handle(ino) else {
            return Ok(Kept::Not);
        };
        if !self.must_keep(caller, ino, handle) {
            return Ok(Kept::Not);
        }
        let place = Place::new(dir, caller)?;
        if self.clerk.link(caller, handle, dir, &place.name).is_ok() {
            return Ok(Kept::Linked(place));
        }
        // Links are refused: for a moment, there is no file of that name.
        self.clerk
            .rename(caller, (dir, name), (dir, &place.name), RenameFlags::NO_REPLACE)
            .map_err(|error| errno(&error))?;
        Ok(Kept::Moved(place))
    }

    /// The replacement was made.
    pub(crate) fn confirm_kept(self: &Arc<Self>, ino: u64, kept: Kept) {
        match kept {
            Kept::Not => {}
            Kept::Linked(place) | Kept::Moved(place) => self.register(ino, place),
        }
    }

    /// The replacement was not made: everything is as before.
    pub(crate) fn undo_kept(&self, dir: FileHandle, name: &Name, kept: Kept) {
        let outcome = match kept {
            Kept::Not => Ok(()),
            Kept::Linked(place) => self.clerk.unlink(&place.caller, place.dir, &place.name),
            Kept::Moved(place) => {
                let from = (place.dir, &place.name);
                self.clerk.rename(&place.caller, from, (dir, name), RenameFlags::NO_REPLACE)
            }
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, %name, "a hidden name is left over");
        }
    }

    fn register(self: &Arc<Self>, ino: u64, place: Place) {
        if !self.inodes.hide(ino, place) {
            // It was closed meanwhile.
            self.remove_hidden(ino);
        }
    }

    /// Removes a file that was kept, after its last closing.
    pub(crate) fn remove_hidden(&self, ino: u64) {
        for place in self.inodes.places(ino) {
            match self.clerk.unlink(&place.caller, place.dir, &place.name) {
                Ok(()) => break,
                Err(ClerkError::Manager(ManagerStatus::NotFound | ManagerStatus::Stale)) => {}
                Err(error) => {
                    tracing::warn!(%error, name = %place.name, "a removed file is left over");
                }
            }
        }
        self.inodes.forget_hidden(ino);
    }

    /// Moves hidden files out of a directory that is otherwise empty, so that it can be removed.
    /// False if it has other entries, or none of ours.
    pub(crate) fn clear_hidden(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        parent: FileHandle,
    ) -> Result<bool, ClerkError> {
        let hidden = self.inodes.all_hidden(Some(dir));
        if hidden.is_empty() {
            return Ok(false);
        }
        let limit = u32::try_from(hidden.len() + 1).unwrap_or(u32::MAX);
        let page = self.clerk.readdir(caller, dir, 0, limit)?;
        let number = |handle| self.inodes.number(handle);
        if !page.entries.iter().all(|e| self.is_hidden_name(dir, &e.name, number(e.handle))) {
            return Ok(false);
        }
        for ino in hidden {
            for place in self.inodes.places(ino).iter().filter(|place| place.dir == dir) {
                let Ok(new) = Place::new(parent, caller) else {
                    return Ok(false);
                };
                // First the note, then the move: who removes the file looks at both places.
                self.inodes.hide(ino, new.clone());
                let to = (parent, &new.name);
                match self.clerk.rename(caller, (dir, &place.name), to, RenameFlags::NO_REPLACE) {
                    Ok(()) | Err(ClerkError::Manager(ManagerStatus::NotFound)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }
}
