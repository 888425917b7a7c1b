//! Errors as the kernel tells them to programs.

use std::fmt;
use std::io;

/// A POSIX error number, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! numbers {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "` of errno(3).")]
                pub const $name: Errno = Errno(libc::$name);
            )*
        }
    };
}

numbers! {
    EACCES EAGAIN EBADF EBUSY EEXIST EFBIG EINTR EINVAL EIO EISDIR ELOOP ENAMETOOLONG ENFILE ENODATA ENODEV
    ENOENT ENOSPC ENOSYS ENOTDIR ENOTEMPTY ENOTTY ENXIO EOPNOTSUPP EPERM EPROTO ERANGE EROFS ESTALE EXDEV
}

impl Errno {
    /// From a number of errno(3). What can't be one is `EIO`.
    pub const fn from_raw(number: i32) -> Errno {
        // The kernel takes these, and nothing else, for errors.
        if number > 0 && number < 4096 { Errno(number) } else { Errno(libc::EIO) }
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}
