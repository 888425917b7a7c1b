//! What the clerk needs of the rest of the cell, in two narrow traits.
//!
//! `Names` is the file manager, `Objects` the drives. The real ones are in `remote`; tests use an
//! in-memory cell that loses data, restarts and refuses on demand (`fake`).

use std::sync::Arc;

use nasd_client::Authority;
use nasd_types::{Attributes, Protection, Rights, Timestamp};

use crate::ClerkError;
use crate::wire::{
    AttachArguments, Attached, Caller, CellStatus, ClosedArguments, DirectoryPage, EventsArguments,
    EventsPage, File, FileHandle, HeldLock, IssuedCapability, LockAnswer, LockArguments, Name,
    ReadOutcome, RenameFlags, SetFileAttributes, SpaceInformation, UnlockArguments, Volume,
    Written,
};

/// The right to work on one file's object, as the manager granted it to one caller.
#[derive(Debug)]
pub struct Grant {
    /// The file.
    pub handle: FileHandle,
    /// Both halves of the capability.
    pub issued: IssuedCapability,
    /// The same, as the drive's client wants it.
    pub authority: Authority,
}

impl Grant {
    /// A grant to be used with at least this protection.
    pub fn new(handle: FileHandle, issued: IssuedCapability, protection: Protection) -> Self {
        let protection = protection | issued.capability.minimum_protection;
        let authority = Authority::capability(&issued, protection);
        Grant { handle, issued, authority }
    }

    /// What the capability allows.
    pub fn rights(&self) -> Rights {
        self.issued.capability.rights
    }
}

/// The cell, as a clerk meets it.
pub struct Cell {
    /// The file manager.
    pub names: Arc<dyn Names>,
    /// The drives.
    pub objects: Arc<dyn Objects>,
    /// The file manager once more, for what outlives a call; without it there are no locks.
    pub sessions: Option<Arc<dyn Sessions>>,
}

/// Calls to the file manager (`specs/manager.x`), each on behalf of a caller. Every call waits for a manager that is away, up to the deadline it was made
/// with, and then fails with `ClerkError::Unreachable`.
pub trait Names: Send + Sync + 'static {
    /// The volume's root, drives and protection.
    fn volume(&self, caller: &Caller) -> Result<Volume, ClerkError>;
    /// The file of that name.
    fn lookup(&self, caller: &Caller, dir: FileHandle, name: &Name) -> Result<File, ClerkError>;
    /// Attributes, and a new capability.
    fn getattr(&self, caller: &Caller, file: FileHandle) -> Result<File, ClerkError>;
    /// Changes attributes; a size given cuts or extends the file, durably.
    fn setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Result<File, ClerkError>;
    /// A regular file; without `exclusive`, an existing one is as good.
    fn create(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: u32,
        exclusive: bool,
    ) -> Result<File, ClerkError>;
    /// A directory.
    fn mkdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: u32,
    ) -> Result<File, ClerkError>;
    /// A symbolic link; its target is the data of its object.
    fn symlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        target: &[u8],
    ) -> Result<File, ClerkError>;
    /// Removes a name that is not a directory's.
    fn unlink(&self, caller: &Caller, dir: FileHandle, name: &Name) -> Result<(), ClerkError>;
    /// Removes an empty directory.
    fn rmdir(&self, caller: &Caller, dir: FileHandle, name: &Name) -> Result<(), ClerkError>;
    /// Moves a name, over an existing one unless the flags say no.
    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &Name),
        to: (FileHandle, &Name),
        flags: RenameFlags,
    ) -> Result<(), ClerkError>;
    /// Another name for a file.
    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        dir: FileHandle,
        name: &Name,
    ) -> Result<File, ClerkError>;
    /// Entries after `cookie`; 0 starts.
    fn readdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<DirectoryPage, ClerkError>;
    /// Room in the volume.
    fn space(&self, caller: &Caller) -> Result<SpaceInformation, ClerkError>;
    /// What `nasd status` shows.
    fn status(&self, caller: &Caller) -> Result<CellStatus, ClerkError>;
}

/// Calls to the drives (`specs/nasd.x`). Every call waits for a drive that is away, up to the
/// deadline it was made with, and then fails with `ClerkError::Unreachable`; it takes care of
/// clocks and nonces, but not of refused capabilities.
pub trait Objects: Send + Sync + 'static {
    /// Reads into the start of `into`; shorter only at the end of the object.
    fn read(&self, grant: &Grant, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClerkError>;
    /// Writes all of `data`, at most 1 MiB.
    fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError>;
    /// Makes what was written before durable. Returns the drive's instance.
    fn flush(&self, grant: &Grant) -> Result<u64, ClerkError>;
    /// The object's attributes.
    fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError>;
    /// The time on the clock of the drive that the grant is for, as well as it is known without asking;
    /// this host's before anything was asked.
    fn drive_time(&self, grant: &Grant) -> Timestamp;
    /// The volume's drives, as the manager told; called before anything else, and when it changed.
    fn set_volume(&self, volume: &Volume);
}

/// The session calls of the file manager (`specs/manager.x`), each on behalf of the clerk itself.
pub trait Sessions: Send + Sync + 'static {
    /// Begins a session, or goes on with it at a manager that was started anew.
    fn attach(&self, arguments: &AttachArguments) -> Result<Attached, ClerkError>;
    /// Ends a session, and a call of `events` that waits.
    fn detach(&self, client: u64) -> Result<(), ClerkError>;
    /// Waits for something that the client should know, for a third of the lease at most.
    fn events(&self, arguments: &EventsArguments) -> Result<EventsPage, ClerkError>;
    /// Removed files are not open any more.
    fn closed(&self, arguments: &ClosedArguments) -> Result<(), ClerkError>;
    /// Takes a lock, or learns who has it.
    fn lock(&self, arguments: &LockArguments) -> Result<LockAnswer, ClerkError>;
    /// Lets go of locks, or of waiting for them.
    fn unlock(&self, arguments: &UnlockArguments) -> Result<(), ClerkError>;
    /// Who would be in the way of a lock.
    fn test_lock(&self, arguments: &LockArguments) -> Result<Option<HeldLock>, ClerkError>;
}
