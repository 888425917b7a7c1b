//! What can go wrong, by whose fault it is, and the one table to POSIX errors.

use nasd_client::ClientError;
use nasd_client::interrupt::Interrupted;
use nasd_types::DriveId;

use crate::wire::{ManagerStatus, Name, Status};

/// Why the clerk could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClerkError {
    /// The file manager said no.
    #[error("{0}")]
    Manager(ManagerStatus),
    /// A drive said no, or failed.
    #[error("{0}")]
    Drive(Status),
    /// A drive or the manager was away for longer than the deadline; the text says which.
    #[error("{0}")]
    Unreachable(String),
    /// A drive or the manager can't be talked with: another version, a wrong digest or
    /// certificate, a clock too far off; the text says which and why.
    #[error("{0}")]
    Protocol(String),
    /// Another drive is where one was reached; the text says where. What the volume had there may have been moved.
    #[error("{0}")]
    WrongDrive(String),
    /// A handle names a drive that the volume does not have.
    #[error("drive {0} is not one of the volume's")]
    UnknownDrive(DriveId),
    /// The caller's rights on the file do not allow this kind of opening.
    #[error("the file may not be opened in this way")]
    Access,
    /// The file was not opened for this.
    #[error("the file is not open for this")]
    NotOpenForThis,
    /// The owner has lost a lock on the file: the manager did not hear of this client for too long,
    /// and others may have changed what the lock was to protect.
    #[error("a lock on the file was lost")]
    LockLost,
    /// The clerk was told to have no session, which locks need.
    #[error("without a session there are no locks between clients")]
    NoSession,
    /// The volume has callbacks, and data were to go through the file manager.
    #[error(
        "files of a volume of the personality afs can't be read through the file manager: reach the drives directly"
    )]
    NotThroughManager,
    /// Whoever waited for what is away was interrupted.
    #[error("interrupted while waiting")]
    Interrupted,
    /// Somebody has cut the file while all of it was looked at: what was told of it is not what it had.
    #[error("the file is shorter than it was")]
    Cut,
    /// The offset or length is above what an object can have.
    #[error("beyond the largest possible file")]
    TooLarge,
    /// As many hints are known as can be.
    #[error("as many hints are known as can be: tell the rest when some are over")]
    TooManyHints,
    /// There are as many streams of hints as a clerk can have.
    #[error(
        "there are as many streams of hints as can be: wait until another program has ended its own"
    )]
    TooManyStreams,
    /// The user has as many streams of hints as one may have.
    #[error("this user has as many streams of hints as one may have: end one of them first")]
    TooManyOwnStreams,
    /// Bytes can't go from one file to the other without a trip through this client: the files are of
    /// different drives, or the drives are reached by way of the manager.
    #[error("the files are not of one drive that is reached directly")]
    Apart,
    /// The path leads over a mount point.
    #[error("the path leads into another volume: say {volume}:/{}", String::from_utf8_lossy(path))]
    OtherVolume {
        /// That volume.
        volume: Name,
        /// The path in it, from its root, without a slash in front.
        path: Vec<u8>,
    },
    /// The name is longer than 255 bytes, or a symbolic link's target longer than 4095.
    #[error("the name is too long")]
    NameTooLong,
    /// The name is empty, or has a slash or a NUL in it.
    #[error("that is not a name")]
    BadName,
}

impl ClerkError {
    /// The POSIX error that an application gets.
    pub fn errno(&self) -> i32 {
        match self {
            ClerkError::Manager(status) => status.errno(),
            ClerkError::Drive(status) => drive_errno(*status),
            ClerkError::Unreachable(_)
            | ClerkError::Protocol(_)
            | ClerkError::WrongDrive(_)
            | ClerkError::LockLost
            | ClerkError::Cut => libc::EIO,
            ClerkError::Interrupted => libc::EINTR,
            ClerkError::NoSession => libc::ENOLCK,
            ClerkError::NotThroughManager => libc::EOPNOTSUPP,
            ClerkError::UnknownDrive(_) => libc::ESTALE,
            ClerkError::Access => libc::EACCES,
            ClerkError::NotOpenForThis => libc::EBADF,
            ClerkError::TooLarge => libc::EFBIG,
            ClerkError::TooManyHints => libc::EAGAIN,
            ClerkError::TooManyStreams => libc::EBUSY,
            ClerkError::TooManyOwnStreams => libc::EDQUOT,
            ClerkError::Apart | ClerkError::OtherVolume { .. } => libc::EXDEV,
            ClerkError::NameTooLong => libc::ENAMETOOLONG,
            ClerkError::BadName => libc::EINVAL,
        }
    }

    /// Whether a new capability may help: the one that was shown is expired, revoked, or made with
    /// a key that is gone; or for a drive where the object is no more. A missing object looks the same, and the manager will tell.
    pub(crate) fn wants_new_capability(&self) -> bool {
        match self {
            ClerkError::Drive(status) => status.needs_new_capability(),
            ClerkError::WrongDrive(_) => true,
            _ => false,
        }
    }

    /// Whether it may help to ask where the volume's drives are.
    pub(crate) fn wants_volume(&self) -> bool {
        matches!(self, ClerkError::UnknownDrive(_) | ClerkError::WrongDrive(_))
    }

    /// Whether a capability does not allow what it was used for.
    pub(crate) fn is_refused_right(&self) -> bool {
        *self == ClerkError::Drive(Status::RefusedRights)
    }

    /// Whether there is no such file any more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(
            self,
            ClerkError::Manager(ManagerStatus::Stale) | ClerkError::Drive(Status::NoSuchObject)
        )
    }

    /// Whether the same request may succeed a little later.
    pub(crate) fn is_momentary(&self) -> bool {
        match self {
            ClerkError::Drive(status) => status.is_transient(),
            ClerkError::Manager(status) => status.is_transient(),
            _ => false,
        }
    }
}

impl From<Interrupted> for ClerkError {
    fn from(_: Interrupted) -> Self {
        ClerkError::Interrupted
    }
}

impl From<ClientError> for ClerkError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(status) | ClientError::Drive(status) => ClerkError::Drive(status),
            ClientError::Manager(status) | ClientError::Uncertain(status) => {
                ClerkError::Manager(status)
            }
            ClientError::Unreachable { .. } => ClerkError::Unreachable(error.to_string()),
            ClientError::WrongDrive { .. } => ClerkError::WrongDrive(error.to_string()),
            ClientError::Interrupted { .. } => ClerkError::Interrupted,
            ClientError::TooLarge { .. } => ClerkError::TooLarge,
            ClientError::Unsettled(_)
            | ClientError::Untrusted { .. }
            | ClientError::NotAdmitted { .. }
            | ClientError::Protocol { .. }
            | ClientError::BadReplyDigest { .. }
            | ClientError::NotSealed
            | ClientError::NoCommonSuite { .. } => ClerkError::Protocol(error.to_string()),
        }
    }
}

/// A drive's statuses, when they reach an application at all.
fn drive_errno(status: Status) -> i32 {
    match status {
        Status::NoSuchPartition | Status::NoSuchObject => libc::ESTALE,
        Status::NotPermitted => libc::EPERM,
        Status::NoSuchExtension => libc::EOPNOTSUPP,
        Status::TooLarge => libc::EFBIG,
        Status::RefusedRights
        | Status::RefusedRegion
        | Status::RefusedProtection
        | Status::RefusedMinimum
        | Status::RefusedChain => libc::EACCES,
        Status::NoSpace => libc::ENOSPC,
        Status::ReadOnly => libc::EROFS,
        Status::BadArgument
        | Status::PartitionExists
        | Status::ObjectExists
        | Status::NotAdjustable
        | Status::StaleEpoch
        | Status::BadKey
        | Status::RefusedSkew
        | Status::RefusedReplay
        | Status::RefusedExpired
        | Status::RefusedDrive
        | Status::RefusedObject
        | Status::RefusedDigest
        | Status::RefusedKey
        | Status::RefusedSuite
        | Status::RefusedEpoch
        | Status::RefusedPartition
        | Status::Busy
        | Status::DriveFault
        | Status::Forgotten
        | Status::OutOfOrder
        | Status::MediumError
        | Status::Corrupt => libc::EIO,
    }
}
