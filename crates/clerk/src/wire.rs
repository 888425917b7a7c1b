//! The types of lower crates that callers of this one meet, under one roof.

pub use nasd_client::interrupt::{Interruptible, Interrupts};
pub use nasd_client::{Caller, ReadOutcome};
pub use nasd_protocol::Status;
pub use nasd_protocol::drive::Written;
pub use nasd_protocol::manager::{
    CellStatus, DirectoryEntry, DirectoryPage, DriveAddress, File, FileAttributes, FileHandle,
    FileType, IssuedCapability, ManagerStatus, Name, RenameFlags, SetFileAttributes,
    SpaceInformation, Volume,
};
pub use nasd_types::SeekTarget;
