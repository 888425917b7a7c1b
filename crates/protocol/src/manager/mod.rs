//! The file manager program, one file an operation (`specs/manager.x`).

pub mod accessed;
pub mod attach;
pub mod callbacks;
pub mod cell_status;
pub mod changed;
mod commit;
pub mod create;
pub mod enroll;
pub mod events;
pub mod file;
pub mod forward;
pub mod getattr;
pub mod lease;
mod link;
pub mod lock;
pub mod lookup;
pub mod member;
pub mod mint;
pub mod mkdir;
pub mod mkmount;
pub mod mknod;
pub mod mode;
pub mod name;
pub mod readdir;
mod readdirplus;
pub mod reload;
pub mod rename;
pub mod renew;
pub mod repair;
pub mod request;
pub mod revoke;
pub mod rmdir;
pub mod rotate;
pub mod setattr;
pub mod space;
pub mod statistics;
pub mod status;
pub mod symlink;
pub mod tmpfile;
pub mod unlink;
pub mod volume;
pub mod volumes;
pub mod xattr;

use nasd_xdr::{XdrDecode, XdrEncode, xdr_enum};

pub use accessed::{Accessed, AccessedArguments, FileAccess};
pub use attach::{
    Attach, AttachArguments, Attached, Closed, ClosedArguments, Detach, DetachArguments,
};
pub use callbacks::{
    Cut, Getcap, GetcapArguments, Getcaps, GetcapsArguments, Getwcap, GetwcapArguments, Readable,
    Readables, Returncap, ReturncapArguments, Returned, Writable,
};
pub use cell_status::{CellStatus, DriveStatus, StatusOperation};
pub use changed::{Begun, Changed, MAX_TOLD, ToldDirectory};
pub use commit::Commit;
pub use create::{Create, CreateFileArguments};
pub use enroll::{Enroll, EnrollArguments, Enrolled};
pub use events::{Event, Events, EventsArguments, EventsPage};
pub use file::{Device, Extended, File, FileAttributes, FileHandle, FileType, IssuedCapability};
pub use forward::{
    FORWARD_WRITE_HEAD_BYTES, ForwardAppend, ForwardAppendArguments, ForwardFlush, ForwardGetattr,
    ForwardPunch, ForwardPunchArguments, ForwardRead, ForwardReadArguments, ForwardSeek,
    ForwardSeekArguments, ForwardWrite, ForwardWriteArguments,
};
pub use getattr::Getattr;
pub use lease::{Lease, LeaseArguments, Leased};
pub use link::{Link, LinkArguments};
pub use lock::{
    HeldLock, InTheWay, Lock, LockAnswer, LockArguments, LockKind, LockMode, TestLock, Unlock,
    UnlockArguments,
};
pub use lookup::{Lookup, LookupArguments};
pub use member::{Member, MemberArguments, Membership};
pub use mint::{Mint, MintArguments, Minted};
pub use mkdir::{Mkdir, MkdirArguments};
pub use mkmount::{Mkmount, MkmountArguments};
pub use mknod::{Mknod, MknodArguments};
pub use mode::NewMode;
pub use name::{Name, NameTooLong};
pub use readdir::{DirectoryEntry, DirectoryPage, Readdir, ReaddirArguments};
pub use readdirplus::{FilePage, ListedFile, Readdirplus};
pub use reload::{Reload, ReloadArguments};
pub use rename::{Rename, RenameArguments, RenameFlags};
pub use renew::{Renew, RenewArguments};
pub use repair::{Repair, RepairAction, RepairArguments};
pub use request::{Change, Numbered, Request};
pub use revoke::Revoke;
pub use rmdir::{Rmdir, RmdirArguments};
pub use rotate::{Rotate, RotateArguments, Rotation, WorkingKeyState};
pub use setattr::{FileRange, SetFileArguments, SetFileAttributes, Setattr};
pub use space::{Space, SpaceInformation};
pub use statistics::{ClientStatistics, OperationStatistics, Statistics, StatisticsOperation};
pub use status::ManagerStatus;
pub use symlink::{Symlink, SymlinkArguments};
pub use tmpfile::{Tmpfile, TmpfileArguments};
pub use unlink::{Unlink, UnlinkArguments};
pub use volume::{DriveAddress, Volume, VolumeOperation};
pub use volumes::{
    HeldVolume, HoldVolume, HoldVolumeArguments, MovePart, MovePartArguments, ReleaseVolume,
    ReleaseVolumeArguments, ReloadVolumes, VolumeList, VolumePart, VolumePartList, VolumeParts,
    VolumeSummary, Volumes,
};
pub use xattr::{
    Getxattr, Listxattr, Removexattr, Setxattr, SetxattrArguments, XattrArguments, XattrFlags,
    XattrNames, XattrValue,
};

/// RPC program number, from the range that RFC 5531 leaves to users (0x20000000-0x3fffffff).
pub const PROGRAM: u32 = 0x2004_5302;

/// Version of the program.
pub const VERSION: u32 = 1;

xdr_enum! {
    /// Procedures of the file manager program.
    pub enum Procedure {
        /// Does nothing.
        Null = 0,
        /// Where a volume is and what is needed to use it.
        Volume = 1,
        /// Find a name in a directory.
        Lookup = 2,
        /// Read a file's attributes; also renews a capability.
        Getattr = 3,
        /// Change a file's attributes.
        Setattr = 4,
        /// Make a regular file.
        Create = 5,
        /// Make a directory.
        Mkdir = 6,
        /// Make a symbolic link.
        Symlink = 7,
        /// Remove a name that is not a directory's.
        Unlink = 8,
        /// Remove an empty directory.
        Rmdir = 9,
        /// Move a name.
        Rename = 10,
        /// Give a file another name.
        Link = 11,
        /// List a directory.
        Readdir = 12,
        /// Space of a volume.
        Space = 13,
        /// The state of the cell.
        Status = 14,
        /// New working keys at the drives.
        Rotate = 15,
        /// Make a capability that can be handed on.
        Mint = 16,
        /// Make every capability of a file useless.
        Revoke = 17,
        /// Read the ledger of members and the certificates anew.
        Reload = 18,
        /// Become a member by a one-time token.
        Enroll = 19,
        /// A new certificate for a member's.
        Renew = 20,
        /// Make durable what was changed in a volume.
        Commit = 21,
        /// Whether a certificate is a present member's.
        Member = 22,
        /// Which volumes the cell has.
        Volumes = 40,
        /// Where a volume lies, and how much it takes there.
        Volumeparts = 41,
        /// Read the cell's table of volumes anew.
        Reloadvolumes = 42,
        /// Repair the name space in one place.
        Repair = 43,
        /// Begin a session.
        Attach = 60,
        /// End a session.
        Detach = 61,
        /// Be told what a client should know.
        Events = 62,
        /// Removed files are not open any more.
        Closed = 63,
        /// Take a lock.
        Lock = 64,
        /// Let go of locks.
        Unlock = 65,
        /// Who would be in the way of a lock.
        TestLock = 66,
        /// Whether what is told of a directory may be believed.
        Lease = 67,
        /// Read data of a file by the way of the manager.
        ForwardRead = 70,
        /// Write data of a file in this way.
        ForwardWrite = 71,
        /// Make it durable.
        ForwardFlush = 72,
        /// Read the attributes of a file's object in this way.
        ForwardGetattr = 73,
        /// Make a hole in this way.
        ForwardPunch = 74,
        /// Look for data, or a hole, in this way.
        ForwardSeek = 75,
        /// Append data to a file in this way.
        ForwardAppend = 76,
        /// What the manager has counted.
        Statistics = 79,
        /// Make a named pipe, a socket's name or a device's.
        Mknod = 80,
        /// Read an extended attribute.
        Getxattr = 81,
        /// Set an extended attribute.
        Setxattr = 82,
        /// Tell the names of extended attributes.
        Listxattr = 83,
        /// Remove an extended attribute.
        Removexattr = 84,
        /// Tell when files were read.
        Accessed = 85,
        /// List a directory with the attributes of files, and capabilities.
        Readdirplus = 86,
        /// Make a file without a name.
        Tmpfile = 87,
        /// A capability to read a file, and a callback.
        Getcap = 100,
        /// A capability to write a file.
        Getwcap = 101,
        /// A store is done.
        Returncap = 102,
        /// Capabilities to read several files, and callbacks.
        Getcaps = 103,
        /// Make a name at which another volume is seen.
        Mkmount = 110,
        /// Nothing changes in a volume for a moment.
        Holdvolume = 120,
        /// A volume that was held goes on.
        Releasevolume = 121,
        /// A part of a volume that is held is elsewhere.
        Movepart = 122,
    }
}

/// An operation of the file manager: ties its procedure to the types of its arguments and reply.
/// The result on the wire is a `Result<Reply, ManagerStatus>` ([`crate::encode_result`]).
pub trait Operation {
    /// The procedure's number.
    const PROCEDURE: Procedure;
    /// What follows the head of the call.
    type Arguments: XdrEncode + XdrDecode;
    /// What follows the status 0 in the reply.
    type Reply: XdrEncode + XdrDecode;
}
