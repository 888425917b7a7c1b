//! Mount points: names at which another volume of the cell is seen. A clerk is of one volume, so whoever wants to go on gets
//! another clerk, for the volume that is told here.

use std::sync::Arc;

use crate::ClerkError;
use crate::clerk::{Clerk, Entry};
use crate::wire::{Caller, FileHandle, FileType, ManagerStatus, Name};

impl Clerk {
    /// Makes a name at which another volume is seen.
    ///
    /// # Errors
    ///
    /// What the manager says: `Manager(NotFound)` if the cell has no such volume, `Manager(Exists)` if the name is taken.
    pub fn mkmount(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        volume: &Name,
    ) -> Result<Entry, ClerkError> {
        self.make(caller, dir, name, |names| names.mkmount(caller, dir, name, volume))
    }

    /// The name of the volume that is seen at a mount point.
    ///
    /// # Errors
    ///
    /// What the drive says; `Manager(Invalid)` for something else than a mount point.
    pub fn mounted_volume(
        &self,
        caller: &Arc<Caller>,
        handle: FileHandle,
    ) -> Result<Name, ClerkError> {
        let name = self.target(caller, handle, FileType::MountPoint)?;
        match name.is_empty() {
            // It would be the cell's first volume, which nobody has named.
            true => Err(ClerkError::Manager(ManagerStatus::Io)),
            false => Name::new(&name).map_err(|_| ClerkError::NameTooLong),
        }
    }
}
