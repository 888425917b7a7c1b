//! Whether a descriptor is still what it was when it was mapped: programs, and the C library itself, can close or replace one
//! without this library.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, statx};
use rustix::io::Errno;

/// What tells a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// A descriptor as the kernel knows it.
///
/// The caller's program may close it at any time: the kernel says so then.
pub(crate) fn borrowed(fd: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: it is not -1, and nothing is done with it that relies on its being open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// What is asked before each transfer; a file system that is somewhere else is not asked for it.
impl Identity {
    pub(crate) fn of(fd: c_int) -> Result<(Identity, FileType), Errno> {
        let fd = borrowed(fd).ok_or(Errno::BADF)?;
        // Not all that statx knows, so that a server need not be asked.
        let mask = StatxFlags::TYPE | StatxFlags::INO;
        let told = statx(fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, mask)?;
        let device = (told.stx_dev_major, told.stx_dev_minor);
        let kind = FileType::from_raw_mode(u32::from(told.stx_mode));
        Ok((Identity { device, inode: told.stx_ino }, kind))
    }
}

/// The flags that say how transfers go.
const MEANINGFUL: OFlags =
    OFlags::DIRECT.union(OFlags::APPEND).union(OFlags::ACCMODE).union(OFlags::PATH);

/// How a descriptor was opened, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner(OFlags);

impl Manner {
    pub(crate) fn of(fd: c_int) -> Result<Manner, Errno> {
        let fd = borrowed(fd).ok_or(Errno::BADF)?;
        Ok(Manner(fcntl_getfl(fd)?.intersection(MEANINGFUL)))
    }

    /// Whether transfers pass by all caches, at offsets of the program's.
    pub(crate) fn is_direct(self) -> bool {
        self.0.contains(OFlags::DIRECT) && !self.0.intersects(OFlags::APPEND | OFlags::PATH)
    }

    /// Read, write.
    pub(crate) fn access(self) -> (bool, bool) {
        let access = self.0.intersection(OFlags::ACCMODE);
        (access != OFlags::WRONLY, access == OFlags::WRONLY || access == OFlags::RDWR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn another_file_is_told_from_the_first() {
        let directory = crate::testing::scratch();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        std::fs::write(&one, "x").unwrap();
        std::fs::write(&other, "x").unwrap();
        let open = |path| File::open(path).unwrap();
        let (first, again, second) = (open(&one), open(&one), open(&other));
        let of = |file: &File| Identity::of(file.as_raw_fd()).unwrap();
        assert_eq!(of(&first), of(&again));
        assert_ne!(of(&first), of(&second));
        assert_eq!(of(&first).1, FileType::RegularFile);
        assert_eq!(of(&open(&directory.path().to_path_buf())).1, FileType::Directory);
        assert_eq!(Identity::of(-1), Err(Errno::BADF));
        assert_eq!(Manner::of(-1), Err(Errno::BADF));
    }

    #[test]
    fn how_it_is_open_is_told() {
        let directory = crate::testing::scratch();
        let path = directory.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let open = |options: &mut OpenOptions, flags| {
            let file = options.custom_flags(flags).open(&path).unwrap();
            Manner::of(file.as_raw_fd()).unwrap()
        };
        let manner = open(OpenOptions::new().read(true), libc::O_DIRECT);
        assert!(manner.is_direct());
        assert_eq!(manner.access(), (true, false));
        let manner = open(OpenOptions::new().write(true), libc::O_DIRECT);
        assert_eq!(manner.access(), (false, true));
        assert_eq!(open(OpenOptions::new().read(true).write(true), 0).access(), (true, true));
        assert!(!open(OpenOptions::new().read(true), 0).is_direct());
        assert!(!open(OpenOptions::new().append(true), libc::O_DIRECT).is_direct());
    }
}
