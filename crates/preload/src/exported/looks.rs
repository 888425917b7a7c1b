//! What a file is like: asked after whoever knows that was told of changes.

use std::ffi::{c_char, c_int, c_uint};

use libc::{stat, statx as Statx};
use nasd_protocol::bulk_desk::FileFacts;
use rustix::fs::AtFlags;

use crate::error::PreloadError;
use crate::mapped::Mapped;
use crate::verify::borrowed;
use crate::{hook, real};

/// The kernel counts space in these.
const SECTOR_BYTES: u64 = 512;

/// What programs are told to transfer at a time.
const PREFERRED_BYTES: u32 = 1 << 20;

/// How a file is that is not here.
struct Afar {
    facts: FileFacts,
    size: u64,
    /// Of what holds its place.
    inode: u64,
    device: (u32, u32),
}

impl Afar {
    fn of(fd: c_int, file: &Mapped) -> Result<Option<Afar>, PreloadError> {
        let (Some(facts), Some(place)) = (file.stand_in(), borrowed(fd)) else { return Ok(None) };
        let told = rustix::fs::statx(place, "", AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::INO)?;
        let device = (told.stx_dev_major, told.stx_dev_minor);
        Ok(Some(Afar { facts, size: file.size(fd)?, inode: told.stx_ino, device }))
    }

    fn mode(&self) -> u32 {
        libc::S_IFREG | self.facts.mode & 0o7777
    }

    fn seconds(&self) -> i64 {
        i64::try_from(self.facts.modify_time.seconds()).unwrap_or(i64::MAX)
    }

    fn stat(&self) -> stat {
        // SAFETY: it is made of numbers.
        let mut told: stat = unsafe { std::mem::zeroed() };
        told.st_dev = libc::makedev(self.device.0, self.device.1);
        told.st_ino = self.inode;
        told.st_mode = self.mode();
        told.st_nlink = 1;
        told.st_uid = self.facts.uid;
        told.st_gid = self.facts.gid;
        told.st_size = i64::try_from(self.size).unwrap_or(i64::MAX);
        told.st_blksize = PREFERRED_BYTES as _;
        told.st_blocks = i64::try_from(self.size.div_ceil(SECTOR_BYTES)).unwrap_or(i64::MAX);
        let nanoseconds = i64::from(self.facts.modify_time.subsecond_ns());
        (told.st_mtime, told.st_mtime_nsec) = (self.seconds(), nanoseconds);
        (told.st_ctime, told.st_ctime_nsec) = (self.seconds(), nanoseconds);
        (told.st_atime, told.st_atime_nsec) = (self.seconds(), nanoseconds);
        told
    }

    fn statx(&self) -> Statx {
        // SAFETY: it is made of numbers.
        let mut told: Statx = unsafe { std::mem::zeroed() };
        told.stx_mask = libc::STATX_BASIC_STATS;
        (told.stx_dev_major, told.stx_dev_minor) = self.device;
        told.stx_ino = self.inode;
        told.stx_mode = self.mode() as u16;
        told.stx_nlink = 1;
        told.stx_uid = self.facts.uid;
        told.stx_gid = self.facts.gid;
        told.stx_size = self.size;
        told.stx_blksize = PREFERRED_BYTES;
        told.stx_blocks = self.size.div_ceil(SECTOR_BYTES);
        told.stx_mtime.tv_sec = self.seconds();
        told.stx_mtime.tv_nsec = self.facts.modify_time.subsecond_ns();
        (told.stx_ctime, told.stx_atime) = (told.stx_mtime, told.stx_mtime);
        told
    }
}

/// Puts an answer where the program wants it.
///
/// # Safety
///
/// There is room, or nothing at all.
unsafe fn put<T>(at: *mut T, told: T) -> Result<Option<c_int>, PreloadError> {
    if at.is_null() {
        return Err(PreloadError::Fault);
    }
    // SAFETY: the caller says so.
    unsafe { at.write(told) };
    Ok(Some(0))
}

/// How the file of a descriptor is, where the kernel does not know.
unsafe fn look(fd: c_int, told: *mut stat) -> Option<c_int> {
    hook::mapped(fd, |file| {
        file.tell_changed(fd);
        match Afar::of(fd, file)? {
            // SAFETY: the caller answers for it.
            Some(afar) => unsafe { put(told, afar.stat()) },
            None => Ok(None),
        }
    })
}

/// Whether a path is that of the descriptor itself.
unsafe fn is_of_descriptor(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the caller answers for it.
    flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0)
}

macro_rules! looks {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, told: *mut stat) -> c_int {
            // SAFETY: the caller answers for it.
            unsafe { look(fd, told).unwrap_or_else(|| real::fstat(fd, told)) }
        }
    )*};
}

/// What programs call that were built with a C library before 2.33.
macro_rules! old_looks {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(version: c_int, fd: c_int, told: *mut stat) -> c_int {
            // SAFETY: the caller answers for it.
            unsafe { look(fd, told).unwrap_or_else(|| real::__fxstat(version, fd, told)) }
        }
    )*};
}

macro_rules! looks_at {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            at: c_int,
            path: *const c_char,
            told: *mut stat,
            flags: c_int,
        ) -> c_int {
            // SAFETY: the caller answers for it.
            unsafe {
                let known = if is_of_descriptor(path, flags) { look(at, told) } else { None };
                known.unwrap_or_else(|| real::fstatat(at, path, told, flags))
            }
        }
    )*};
}

looks! { fstat fstat64 }
old_looks! { __fxstat __fxstat64 }
looks_at! { fstatat fstatat64 }

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    told: *mut Statx,
) -> c_int {
    let look = || {
        hook::mapped(at, |file| {
            file.tell_changed(at);
            match Afar::of(at, file)? {
                // SAFETY: the caller answers for it.
                Some(afar) => unsafe { put(told, afar.statx()) },
                None => Ok(None),
            }
        })
    };
    // SAFETY: the caller answers for it.
    unsafe {
        let known = if is_of_descriptor(path, flags) { look() } else { None };
        known.unwrap_or_else(|| real::statx(at, path, flags, mask, told))
    }
}
