//! What can go wrong, and the number that a program is told.

use std::ffi::c_int;

use nasd_bulk_service::client::{BulkError, WayError};
use nasd_bulk_service::desk::DeskError;
use nasd_cell::CellError;
use nasd_clerk::ClerkError;
use rustix::io::Errno;
use thiserror::Error;

/// Why something was not done by bulk.
#[derive(Debug, Error)]
pub enum PreloadError {
    /// The bulk service could not do it.
    #[error(transparent)]
    Bulk(#[from] BulkError),
    /// The desk of a server gave no ticket.
    #[error(transparent)]
    Desk(#[from] DeskError),
    /// The mount gave no authority.
    #[error("the mount tells no way to the file's bytes: {0}")]
    NotGranted(Errno),
    /// The mount answered something else.
    #[error("the mount tells no way to the file's bytes: {0}")]
    Way(#[from] WayError),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(Errno),
    /// This host is in no cell.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// Nothing to show to a server.
    #[error("no certificate: {0}")]
    Certificate(String),
    /// A buffer is nowhere.
    #[error("a buffer is at no address that memory is at")]
    Fault,
    /// The file was not opened for that.
    #[error("the file was not opened for this")]
    Access,
    /// Offset, length or flags.
    #[error("{0}")]
    Argument(&'static str),
    /// It can't be done with this file.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Nothing is there any more.
    #[error("there is nothing at or behind this offset")]
    BehindEnd,
    /// No memory.
    #[error("no memory for the bytes of several buffers")]
    Memory,
    /// Something written may be lost.
    #[error("the server has started anew since something was written: it has to be written again")]
    Lost,
    /// The server has another file in the place of the one that was opened.
    #[error("another file has taken the place of the one that was opened: open it again")]
    Replaced,
    /// This library failed.
    #[error("the library has failed")]
    Broken,
}

impl From<Errno> for PreloadError {
    fn from(error: Errno) -> Self {
        PreloadError::Kernel(error)
    }
}

impl PreloadError {
    /// The number for `errno`.
    pub fn errno(&self) -> c_int {
        match self {
            PreloadError::Bulk(error) => bulk_errno(error),
            PreloadError::Desk(DeskError::NotAdmitted { .. } | DeskError::Untrusted { .. }) => {
                libc::EACCES
            }
            PreloadError::Desk(DeskError::Path(_)) => libc::ENAMETOOLONG,
            PreloadError::Desk(error) => error.status().map_or(libc::EIO, |status| status.errno()),
            PreloadError::NotGranted(error) | PreloadError::Kernel(error) => error.raw_os_error(),
            PreloadError::Cell(_) | PreloadError::Certificate(_) => libc::EACCES,
            PreloadError::Way(_) | PreloadError::Lost | PreloadError::Broken => libc::EIO,
            PreloadError::Replaced => libc::ESTALE,
            PreloadError::Fault => libc::EFAULT,
            PreloadError::Access => libc::EBADF,
            PreloadError::Argument(_) => libc::EINVAL,
            PreloadError::Unsupported(_) => libc::EOPNOTSUPP,
            PreloadError::BehindEnd => libc::ENXIO,
            PreloadError::Memory => libc::ENOMEM,
        }
    }

    /// Whether the kernel's way to the file may do better.
    pub(crate) fn is_of_the_way(&self) -> bool {
        match self {
            PreloadError::Bulk(error) => match error {
                BulkError::Refused { .. }
                | BulkError::Protocol { .. }
                | BulkError::Forged { .. }
                | BulkError::Replaced { .. }
                | BulkError::NoSuite { .. } => true,
                BulkError::Failed { .. } => error.needs_new_capability(),
                BulkError::Unreachable { .. }
                | BulkError::Unaligned { .. }
                | BulkError::MayBeLost { .. }
                | BulkError::Spread => false,
            },
            PreloadError::Desk(_)
            | PreloadError::NotGranted(_)
            | PreloadError::Way(_)
            | PreloadError::Cell(_)
            | PreloadError::Certificate(_)
            | PreloadError::Replaced => true,
            _ => false,
        }
    }
}

/// Statuses of drives are what they are through a mount.
fn bulk_errno(error: &BulkError) -> c_int {
    match error {
        BulkError::Refused { status, .. } | BulkError::Failed { status, .. } => {
            ClerkError::Drive(*status).errno()
        }
        BulkError::Unaligned { .. } => libc::EINVAL,
        BulkError::Replaced { .. } => libc::ESTALE,
        BulkError::Spread => libc::EOPNOTSUPP,
        BulkError::Unreachable { .. }
        | BulkError::Protocol { .. }
        | BulkError::Forged { .. }
        | BulkError::MayBeLost { .. }
        | BulkError::NoSuite { .. } => libc::EIO,
    }
}

/// This thread's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = number };
}

/// Why the C library's function has failed that was called last.
pub(crate) fn last_error() -> Errno {
    // Others are none that the kernel has.
    let number = Some(errno()).filter(|number| (1..4096).contains(number));
    Errno::from_raw_os_error(number.unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_protocol::Status;
    use std::time::Duration;

    fn failed(status: Status) -> PreloadError {
        BulkError::Failed { server: "s".to_owned(), status }.into()
    }

    #[test]
    fn programs_are_told_what_a_mount_would_tell() {
        assert_eq!(failed(Status::NoSpace).errno(), libc::ENOSPC);
        assert_eq!(failed(Status::TooLarge).errno(), libc::EFBIG);
        assert_eq!(failed(Status::MediumError).errno(), libc::EIO);
        assert_eq!(PreloadError::NotGranted(Errno::BUSY).errno(), libc::EBUSY);
        let last = std::io::ErrorKind::TimedOut.into();
        let away = BulkError::Unreachable { server: "s".to_owned(), taken: Duration::ZERO, last };
        let away = PreloadError::from(away);
        assert_eq!(away.errno(), libc::EIO);
        assert!(!away.is_of_the_way() && !failed(Status::NoSpace).is_of_the_way());
        assert!(failed(Status::NoSuchObject).is_of_the_way());
    }

    #[test]
    fn errno_is_set() {
        set_errno(libc::EXDEV);
        assert_eq!(errno(), libc::EXDEV);
    }
}
