//! Paths that can't lead out of a directory.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};

/// A directory, within which names are looked up and out of which none leads: neither by `..`, nor by a link, nor by what is
/// moved meanwhile.
pub(crate) struct Confined {
    root: OwnedFd,
}

impl Confined {
    pub(crate) fn new(path: &Path) -> io::Result<Confined> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Confined { root: open(path, flags, Mode::empty())? })
    }

    /// The directory itself; only its path is open.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens what a path within it names; links may lead to other places within it.
    pub(crate) fn open(&self, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = match path {
            [] => b".",
            path => path,
        };
        let path = CString::new(path).map_err(|_| io::ErrorKind::InvalidInput)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        loop {
            match openat2(self.root.as_fd(), &path, flags, mode, resolve) {
                // Something was renamed meanwhile: whether that led out is not known.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }
}

/// Opens what one name in a directory is for. With `O_PATH` and `O_NOFOLLOW` that may be a link; otherwise a link is an
/// error. The name must be no path.
pub(crate) fn open_name(
    directory: impl AsFd,
    name: &[u8],
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match openat2(directory.as_fd(), name, flags, mode, resolve) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            outcome => return outcome,
        }
    }
}
