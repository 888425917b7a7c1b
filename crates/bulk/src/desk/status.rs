//! What an error of the file system is to whoever asked.

use nasd_protocol::bulk_desk::DeskStatus;
use rustix::io::Errno;

/// The status for an error number. What is nobody's fault but the system's is logged.
pub(super) fn status_of(error: Errno) -> DeskStatus {
    match error {
        Errno::PERM => DeskStatus::Permission,
        Errno::NOENT => DeskStatus::NotFound,
        Errno::ACCESS => DeskStatus::Access,
        Errno::BUSY | Errno::TXTBSY => DeskStatus::Busy,
        Errno::EXIST => DeskStatus::Exists,
        Errno::XDEV => DeskStatus::CrossDevice,
        Errno::NOTDIR => DeskStatus::NotDirectory,
        Errno::ISDIR => DeskStatus::IsDirectory,
        Errno::INVAL => DeskStatus::Invalid,
        Errno::FBIG => DeskStatus::TooLarge,
        Errno::NOSPC | Errno::DQUOT => DeskStatus::NoSpace,
        Errno::ROFS => DeskStatus::ReadOnly,
        Errno::MLINK => DeskStatus::TooManyLinks,
        Errno::NAMETOOLONG => DeskStatus::NameTooLong,
        Errno::NOTEMPTY => DeskStatus::NotEmpty,
        Errno::LOOP => DeskStatus::Loop,
        Errno::OPNOTSUPP => DeskStatus::NotSupported,
        error => {
            tracing::error!(%error, "the file system failed a client of the bulk desk");
            DeskStatus::Io
        }
    }
}
