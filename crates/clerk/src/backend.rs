//! What the clerk needs of the rest of the cell, in two narrow traits.
//!
//! `Names` is the file manager, `Objects` the drives. The real ones are in `remote`; tests use an
//! in-memory cell that loses data, restarts and refuses on demand (`fake`).

use std::sync::Arc;
use std::time::Duration;

use nasd_bulk_service::client::Way;
use nasd_capability::Capability;
use nasd_client::Authority;
use nasd_types::{
    AppendToken, Attributes, ByteRange, DriveId, ObjectName, Protection, Rights, Timestamp,
};

use crate::ClerkError;
use crate::extending::{ExtendedPart, ExtensionCall};
use crate::open_file::OpenMode;
use crate::wire::{
    Appended, AttachArguments, Attached, Caller, CellStatus, Changed, ClosedArguments, Copied, Cut,
    Device, DirectoryPage, EventsArguments, EventsPage, File, FileAccess, FileHandle, FilePage,
    FileType, HeldLock, IssuedCapability, LeaseArguments, LockAnswer, LockArguments, Name, NewMode,
    RangeToCopy, ReadOutcome, Readable, Readables, RenameFlags, Returned, SeekTarget,
    SetFileAttributes, SpaceInformation, UnlockArguments, Volume, Writable, Written, XattrFlags,
};

/// The right to work on one file's object, as the manager granted it to one caller.
#[derive(Debug)]
pub struct Grant {
    /// Whom it was granted to.
    pub caller: Arc<Caller>,
    /// The file.
    pub handle: FileHandle,
    /// Both halves of the capability.
    pub issued: IssuedCapability,
    /// The same, as the drive's client wants it.
    pub authority: Authority,
}

impl Grant {
    /// A grant to be used with at least this protection.
    pub fn new(
        caller: Arc<Caller>,
        handle: FileHandle,
        issued: IssuedCapability,
        protection: Protection,
    ) -> Self {
        let protection = protection | issued.capability.minimum_protection;
        let authority = Authority::capability(&issued, protection);
        Grant { caller, handle, issued, authority }
    }

    /// The drive that has the object: not always the one by which the file is known.
    pub fn drive(&self) -> DriveId {
        self.issued.capability.drive
    }

    /// The object, by its name on that drive.
    pub fn name(&self) -> ObjectName {
        let Capability { partition, object, .. } = self.issued.capability;
        ObjectName { partition, object }
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
    /// The number by which the manager knows changes of this client: its session has the same.
    fn client(&self) -> u64;
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
    /// Makes durable what was changed in the volume; `file` is any of its files.
    fn commit(&self, caller: &Caller, file: FileHandle) -> Result<(), ClerkError>;
    /// A regular file; without `exclusive`, an existing one is as good. Where there are callbacks, `stores` asks for the capability to store it, too.
    fn create(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: NewMode,
        exclusive: bool,
        stores: bool,
    ) -> Result<Changed<File>, ClerkError>;
    /// A directory.
    fn mkdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError>;
    /// A symbolic link; its target is the data of its object.
    fn symlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        target: &[u8],
    ) -> Result<Changed<File>, ClerkError>;
    /// A name at which another volume is seen; that one's name is the data of its object.
    fn mkmount(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        volume: &Name,
    ) -> Result<Changed<File>, ClerkError>;
    /// A regular file without a name, as one of a directory's, that is open at this client.
    fn tmpfile(
        &self,
        caller: &Caller,
        dir: FileHandle,
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError>;
    /// Removes a name that is not a directory's; the file that has it stays if it is `open` at this client.
    fn unlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClerkError>;
    /// Removes an empty directory.
    fn rmdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Changed<()>, ClerkError>;
    /// Moves a name, over an existing one unless the flags say no; the file that has that one stays if it
    /// is `open` at this client.
    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &Name),
        to: (FileHandle, &Name),
        flags: RenameFlags,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClerkError>;
    /// Another name for a file.
    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Changed<File>, ClerkError>;
    /// A named pipe, a socket's name, a device's, or a regular file.
    fn mknod(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        node: (FileType, Device),
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError>;
    /// The value of an extended attribute.
    fn getxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
    ) -> Result<Vec<u8>, ClerkError>;
    /// Sets an extended attribute.
    fn setxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<File, ClerkError>;
    /// The names of extended attributes, each with a zero byte behind it.
    fn listxattr(&self, caller: &Caller, file: FileHandle) -> Result<Vec<u8>, ClerkError>;
    /// Removes an extended attribute.
    fn removexattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
    ) -> Result<File, ClerkError>;
    /// Tells when files of the volume with this root were read.
    fn accessed(
        &self,
        caller: &Caller,
        root: FileHandle,
        accessed: &[FileAccess],
    ) -> Result<(), ClerkError>;
    /// Entries after `cookie`; 0 starts.
    fn readdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<DirectoryPage, ClerkError>;
    /// Files of a directory after `cookie`, with attributes and capabilities.
    fn readdirplus(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
    ) -> Result<FilePage, ClerkError>;
    /// A file's attributes, a capability to read it, and a callback; of a directory of which the `contents` are to be read, those are in its
    /// object then.
    fn get_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        contents: bool,
    ) -> Result<Readable, ClerkError>;
    /// The same of a file and of others on its drive, of those that nobody need be waited for with.
    fn get_capabilities(
        &self,
        caller: &Caller,
        file: FileHandle,
        neighbours: &[FileHandle],
    ) -> Result<Readables, ClerkError>;
    /// A capability to store a file, which is cut before: its region ends at the first number at least, and best at the second.
    fn get_write_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        end: (u64, u64),
        cut: Option<Cut>,
    ) -> Result<Writable, ClerkError>;
    /// A store under this version is done; when all know, the answer comes.
    fn return_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        version: u64,
    ) -> Result<Returned, ClerkError>;
    /// Room in the volume.
    fn space(&self, caller: &Caller) -> Result<SpaceInformation, ClerkError>;
    /// What `nasd status` shows.
    fn status(&self, caller: &Caller) -> Result<CellStatus, ClerkError>;
}

/// Calls to the drives (`specs/nasd.x`), whichever way they go. Every call waits for a drive that is away, up to the
/// deadline it was made with, and then fails with `ClerkError::Unreachable`; it takes care of
/// clocks and nonces, but not of refused capabilities.
pub trait Objects: Send + Sync + 'static {
    /// Reads into the start of `into`; shorter only at the end of the object.
    fn read(&self, grant: &Grant, offset: u64, into: &mut [u8]) -> Result<ReadOutcome, ClerkError>;
    /// Writes all of `data`, at most 1 MiB; with `durable`, as though a flush had followed.
    fn write(
        &self,
        grant: &Grant,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<Written, ClerkError>;
    /// Writes all of `data`, at most 1 MiB, where the object ends, durably; once, however often the
    /// same token comes, which came first so long ago (zero if it never did).
    fn append(
        &self,
        grant: &Grant,
        identity: (AppendToken, Duration),
        data: &[u8],
    ) -> Result<Appended, ClerkError>;
    /// Makes what was written before durable. Returns the drive's instance.
    fn flush(&self, grant: &Grant) -> Result<u64, ClerkError>;
    /// The object's attributes.
    fn getattr(&self, grant: &Grant) -> Result<Attributes, ClerkError>;
    /// Makes bytes within the object's length read as zeros, durably, and frees their blocks.
    fn punch(&self, grant: &Grant, range: ByteRange) -> Result<(), ClerkError>;
    /// Copies bytes of another object of the drive into the one of the first grant, durably; fewer than
    /// asked for where the source ends, or where a call would do too much.
    fn copy_range(
        &self,
        target: &Grant,
        source: &Grant,
        copy: &RangeToCopy,
    ) -> Result<Copied, ClerkError>;
    /// Where data, or a hole, begins at or after `offset`; `None` if not before the object's end.
    fn seek(
        &self,
        grant: &Grant,
        offset: u64,
        target: SeekTarget,
    ) -> Result<Option<u64>, ClerkError>;
    /// Reads several pieces, one after the other, up to and with the first one that runs into the end of the object.
    fn read_pieces(
        &self,
        grant: &Grant,
        pieces: &[ByteRange],
    ) -> Result<(ReadOutcome, Vec<u8>), ClerkError>;
    /// Has extensions of the drives that have the bytes do something with some ranges of the object, in ascending order: what each
    /// has told, its parts in order. `NoSuchExtension` where a drive lacks it, or is not reached directly.
    fn extend(
        &self,
        grant: &Grant,
        ranges: &[ByteRange],
        call: &ExtensionCall,
    ) -> Result<Vec<ExtendedPart>, ClerkError>;
    /// The time on the clock of the drive that the grant is for, as well as it is known without asking;
    /// this host's before anything was asked. Zero where capabilities are not shown to the drive, so that
    /// none need be renewed in time.
    fn drive_time(&self, grant: &Grant) -> Timestamp;
    /// The volume's drives, as the manager told; called before anything else, and when it changed.
    fn set_volume(&self, volume: &Volume);
    /// Over how many drives the largest files of a drive lie that was met so far, if it is a virtual one.
    fn breadth(&self, drive: DriveId) -> u32;
    /// The way to the object's bytes by the bulk protocol, for who has the file open in this mode: nothing where they are kept more
    /// than once, or drives are not reached directly. `is_anew` where the last one was refused.
    fn bulk_way(
        &self,
        grant: &Grant,
        mode: OpenMode,
        is_anew: bool,
    ) -> Result<Option<Way>, ClerkError>;
    /// How often drives were found to have started anew, so that they may have lost what is not durable: another number when something
    /// was read from one that has. `None` where that is not told.
    fn restarts(&self) -> Option<u64>;
}

/// The session calls of the file manager (`specs/manager.x`), each on behalf of the clerk itself, but for taking locks.
pub trait Sessions: Send + Sync + 'static {
    /// Begins a session, or goes on with it at a manager that was started anew.
    fn attach(&self, arguments: &AttachArguments) -> Result<Attached, ClerkError>;
    /// Ends a session, and a call of `events` that waits.
    fn detach(&self, client: u64) -> Result<(), ClerkError>;
    /// Waits for something that the client should know, for a third of the lease at most.
    fn events(&self, arguments: &EventsArguments) -> Result<EventsPage, ClerkError>;
    /// Removed files are not open any more.
    fn closed(&self, arguments: &ClosedArguments) -> Result<(), ClerkError>;
    /// Whether what is told of a directory from now on may be believed.
    fn lease(&self, arguments: &LeaseArguments) -> Result<bool, ClerkError>;
    /// Takes a lock, or learns who has it.
    fn lock(&self, caller: &Caller, arguments: &LockArguments) -> Result<LockAnswer, ClerkError>;
    /// Lets go of locks, or of waiting for them.
    fn unlock(&self, arguments: &UnlockArguments) -> Result<(), ClerkError>;
    /// Who would be in the way of a lock.
    fn test_lock(&self, arguments: &LockArguments) -> Result<Option<HeldLock>, ClerkError>;
}
