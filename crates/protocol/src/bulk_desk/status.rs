//! How an operation of the desk fails (`nasd_desk_status`).

use std::fmt;

use nasd_xdr::xdr_enum;

use crate::result::Failure;

/// EIO on Linux.
const EIO: i32 = 5;

xdr_enum! {
    /// Why the desk did not do what was asked; each is one POSIX error for the application. Success is
    /// not among them: see [`crate::result`]. Numbers and names are those of [`crate::ManagerStatus`]
    /// where the meaning is.
    pub enum DeskStatus {
        /// EPERM: only the owner or root may.
        Permission = 1,
        /// ENOENT: no such name.
        NotFound = 2,
        /// EIO: the file system failed; the server's log says how.
        Io = 5,
        /// EACCES: the mode does not allow it.
        Access = 13,
        /// EBUSY: the system uses it.
        Busy = 16,
        /// EEXIST: the name is taken.
        Exists = 17,
        /// EXDEV: out of the directory that is served, or to another file system.
        CrossDevice = 18,
        /// ENOTDIR: not a directory.
        NotDirectory = 20,
        /// EISDIR: a directory.
        IsDirectory = 21,
        /// EINVAL: the request has no meaning.
        Invalid = 22,
        /// EFBIG: above the largest file.
        TooLarge = 27,
        /// ENOSPC: no space.
        NoSpace = 28,
        /// EROFS: the directory is served, or mounted, read-only.
        ReadOnly = 30,
        /// EMLINK: too many links.
        TooManyLinks = 31,
        /// ENAMETOOLONG: the name is too long.
        NameTooLong = 36,
        /// ENOTEMPTY: the directory is not empty.
        NotEmpty = 39,
        /// ELOOP: too many symbolic links.
        Loop = 40,
        /// EOPNOTSUPP: no ordinary file.
        NotSupported = 95,
        /// Names change all the time; try again.
        Unavailable = 500,
    }
}

impl Failure for DeskStatus {}

impl DeskStatus {
    /// Whether the caller asked for something wrong, so that asking again is no use.
    pub const fn is_callers_fault(self) -> bool {
        !matches!(
            self,
            DeskStatus::Io
                | DeskStatus::NoSpace
                | DeskStatus::ReadOnly
                | DeskStatus::Busy
                | DeskStatus::Unavailable
        )
    }

    /// Whether the same request may pass later, with nothing changed by the caller.
    pub const fn is_transient(self) -> bool {
        matches!(self, DeskStatus::Unavailable)
    }

    /// The error number for an application on Linux. `Unavailable` is EIO: whoever asks for it
    /// has given up trying again.
    pub const fn errno(self) -> i32 {
        match self {
            DeskStatus::Unavailable => EIO,
            other => other as i32,
        }
    }
}

/// What failed, and what to do about it where that is not plain.
impl fmt::Display for DeskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeskStatus::Permission => "only the owner or root may do this",
            DeskStatus::NotFound => "there is no file of this name",
            DeskStatus::Io => "the server's file system failed; see the server's log",
            DeskStatus::Access => "the file's mode does not allow this",
            DeskStatus::Busy => "the server's system uses this; nothing can take its place",
            DeskStatus::Exists => "the name is taken",
            DeskStatus::CrossDevice => {
                "this leads out of the directory that is served, or to another file system"
            }
            DeskStatus::NotDirectory => "not a directory",
            DeskStatus::IsDirectory => "is a directory",
            DeskStatus::Invalid => "the request has no meaning; correct it",
            DeskStatus::TooLarge => "above the largest size of a file",
            DeskStatus::NoSpace => "no space is left; remove something or raise the quota",
            DeskStatus::ReadOnly => "the directory is served read-only",
            DeskStatus::TooManyLinks => "the directory has as many links as it can",
            DeskStatus::NameTooLong => "the name is too long; names have at most 255 bytes",
            DeskStatus::NotEmpty => "the directory is not empty",
            DeskStatus::Loop => "too many symbolic links on the way; correct them",
            DeskStatus::NotSupported => "not an ordinary file; only those are served",
            DeskStatus::Unavailable => "the name changes all the time; try again later",
        })
    }
}

impl std::error::Error for DeskStatus {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManagerStatus;

    #[test]
    fn every_status_is_an_error_number_and_has_a_text() {
        for &status in DeskStatus::ALL {
            assert!((1..200).contains(&status.errno()), "{status:?}");
            assert!(!status.to_string().is_empty());
            assert!(!(status.is_transient() && status.is_callers_fault()), "{status:?}");
        }
    }

    #[test]
    fn what_the_manager_says_too_has_the_same_number() {
        for &status in DeskStatus::ALL {
            if let Ok(other) = ManagerStatus::try_from(u32::from(status)) {
                assert_eq!(format!("{status:?}"), format!("{other:?}"));
            }
        }
    }
}
