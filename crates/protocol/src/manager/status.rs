//! How an operation of the file manager fails (`nasd_manager_status`).

use std::fmt;

use nasd_xdr::xdr_enum;

/// EIO on Linux.
const EIO: i32 = 5;

xdr_enum! {
    /// Why the file manager did not do what was asked; each is one POSIX error for the
    /// application. Success is not among them: see [`crate::result`].
    pub enum ManagerStatus {
        /// EPERM: only the owner or root may.
        Permission = 1,
        /// ENOENT: no such name.
        NotFound = 2,
        /// EIO: a drive failed; the manager's log says how.
        Io = 5,
        /// E2BIG: longer than a value can be.
        TooBig = 7,
        /// EACCES: the mode does not allow it.
        Access = 13,
        /// EEXIST: the name is taken.
        Exists = 17,
        /// EXDEV: the files lie on different drives, or other access control lists govern them.
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
        /// EROFS: the volume or a drive is read-only.
        ReadOnly = 30,
        /// EMLINK: too many links.
        TooManyLinks = 31,
        /// EDEADLK: to wait for the lock would be for ever.
        Deadlock = 35,
        /// ENAMETOOLONG: the name is too long.
        NameTooLong = 36,
        /// ENOLCK: no more locks.
        NoLocks = 37,
        /// ENOTEMPTY: the directory is not empty.
        NotEmpty = 39,
        /// ENODATA: no such extended attribute.
        NoData = 61,
        /// EOPNOTSUPP: this file can't have it.
        NotSupported = 95,
        /// ESTALE: the handle names nothing any more.
        Stale = 116,
        /// A drive is away; try again.
        Unavailable = 500,
        /// There is no such session, or no more: attach.
        NoSession = 501,
        /// Clients of the manager before this one may hold what is asked for; try again.
        Grace = 502,
        /// Another client stores the file; try again.
        Busy = 503,
    }
}

impl ManagerStatus {
    /// Whether the caller asked for something wrong, so that asking again is no use.
    pub const fn is_callers_fault(self) -> bool {
        !matches!(
            self,
            ManagerStatus::Io
                | ManagerStatus::NoSpace
                | ManagerStatus::ReadOnly
                | ManagerStatus::Unavailable
                | ManagerStatus::Grace
                | ManagerStatus::Busy
                | ManagerStatus::NoLocks
        )
    }

    /// Whether the same request may pass later, with nothing changed by the caller.
    pub const fn is_transient(self) -> bool {
        matches!(self, ManagerStatus::Unavailable | ManagerStatus::Grace | ManagerStatus::Busy)
    }

    /// The error number for an application on Linux. `Unavailable` is EIO: whoever asks for it
    /// has given up trying again.
    pub const fn errno(self) -> i32 {
        match self {
            ManagerStatus::Unavailable
            | ManagerStatus::NoSession
            | ManagerStatus::Grace
            | ManagerStatus::Busy => EIO,
            other => other as i32,
        }
    }
}

/// What failed, and what to do about it where that is not plain.
impl fmt::Display for ManagerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ManagerStatus::Permission => "only the owner or root may do this",
            ManagerStatus::NotFound => "there is no file of this name",
            ManagerStatus::Io => "a drive failed; see the file manager's log",
            ManagerStatus::TooBig => "longer than a value can be",
            ManagerStatus::CrossDevice => {
                "the files lie on different drives, or under different access control lists; copy the data"
            },
            ManagerStatus::NoData => "the file has no attribute of this name",
            ManagerStatus::NotSupported => "this file can't have it",
            ManagerStatus::Access => "the file's mode or access control list does not allow this",
            ManagerStatus::Exists => "the name is taken",
            ManagerStatus::NotDirectory => "not a directory",
            ManagerStatus::IsDirectory => "is a directory",
            ManagerStatus::Invalid => "the request has no meaning; correct it",
            ManagerStatus::TooLarge => "above the largest size of a file",
            ManagerStatus::NoSpace => "no space is left; remove something or raise the quota",
            ManagerStatus::ReadOnly => {
                "read-only: a snapshot, or a drive that stopped writing (see its log)"
            }
            ManagerStatus::TooManyLinks => "the file has as many names as it can",
            ManagerStatus::Deadlock => "whoever holds the lock waits for this one",
            ManagerStatus::NoLocks => "there are as many locks as can be; let go of some",
            ManagerStatus::NameTooLong => "the name is too long; names have at most 255 bytes",
            ManagerStatus::NotEmpty => "the directory is not empty",
            ManagerStatus::Stale => "the file is gone; look its name up again",
            ManagerStatus::Unavailable => "a drive is away; try again later",
            ManagerStatus::NoSession => "the session has ended, and with it all locks; begin anew",
            ManagerStatus::Grace => "the file manager has just started; try again soon",
            ManagerStatus::Busy => "another client stores the file; try again soon",
        })
    }
}

impl std::error::Error for ManagerStatus {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_an_error_number_and_has_a_text() {
        for &status in ManagerStatus::ALL {
            assert!((1..200).contains(&status.errno()), "{status:?}");
            assert!(!status.to_string().is_empty());
            assert!(!(status.is_transient() && status.is_callers_fault()), "{status:?}");
        }
        assert_eq!(ManagerStatus::NotEmpty.errno(), 39);
        assert_eq!(ManagerStatus::Unavailable.errno(), 5);
    }
}
