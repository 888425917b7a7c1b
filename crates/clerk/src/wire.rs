//! The types of lower crates that callers of this one meet, under one roof.

pub use nasd_client::interrupt::{Interruptible, Interrupts};
pub use nasd_client::{Caller, ReadOutcome};
pub use nasd_protocol::Status;
pub use nasd_protocol::drive::{Appended, Copied, ExtensionOutcome, RangeToCopy, Written};
pub use nasd_protocol::limits::MAX_CLAIMS;
pub use nasd_protocol::manager::{
    AttachArguments, Attached, Begun, CellStatus, Changed, ClosedArguments, Cut, Device,
    DirectoryEntry, DirectoryPage, DriveAddress, Event, EventsArguments, EventsPage, Extended,
    File, FileAccess, FileAttributes, FileHandle, FilePage, FileRange, FileType, HeldLock,
    IssuedCapability, LeaseArguments, ListedFile, LockAnswer, LockArguments, LockKind, LockMode,
    ManagerStatus, Name, NewMode, Readable, Readables, RenameFlags, Returned, SetFileAttributes,
    SpaceInformation, UnlockArguments, Volume, Writable, XattrFlags,
};
pub use nasd_types::SeekTarget;
