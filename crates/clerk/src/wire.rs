//! The types of lower crates that callers of this one meet, under one roof.

pub use nasd_client::interrupt::{Interruptible, Interrupts};
pub use nasd_client::{Caller, ReadOutcome};
pub use nasd_protocol::Status;
pub use nasd_protocol::drive::Written;
pub use nasd_protocol::limits::MAX_CLAIMS;
pub use nasd_protocol::manager::{
    AttachArguments, Attached, CellStatus, ClosedArguments, Event, EventsArguments, EventsPage,
    HeldLock, LockAnswer, LockArguments, LockKind, LockMode, UnlockArguments, DirectoryEntry, DirectoryPage, DriveAddress, File, FileAttributes, FileHandle,
    FileType, IssuedCapability, ManagerStatus, Name, RenameFlags, SetFileAttributes,
    SpaceInformation, Volume,
};
