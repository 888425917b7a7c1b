//! The types of lower crates that callers of this one meet, under one roof.

pub use nasd_client::{Caller, ReadOutcome};
pub use nasd_protocol::Status;
pub use nasd_protocol::drive::Written;
pub use nasd_protocol::manager::{
    CellStatus, Device, DirectoryEntry, DirectoryPage, DriveAddress, Extended, File, FileAccess,
    FileAttributes, FileHandle, FileType, IssuedCapability, ManagerStatus, Name, NewMode,
    RenameFlags, SetFileAttributes, SpaceInformation, Volume, XattrFlags,
};
