//! Reading and writing, and where a program is in a file.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, size_t, ssize_t};

use crate::error::{PreloadError, last_error};
use crate::mapped::{Mapped, Outcome};
use crate::parts::{listed, one};
use crate::{guard, hook, own, real};

/// Wishes for a transfer that need nothing: drives write durably, and what is asked for is fetched at once.
const NEEDLESS: c_int = libc::RWF_HIPRI;

/// The same for those whose data must be durable then.
const DURABLE: c_int = libc::RWF_DSYNC | libc::RWF_SYNC;

macro_rules! reads {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            buffer: *mut c_void,
            count: size_t,
            at: off_t,
        ) -> ssize_t {
            // SAFETY: the caller answers for it.
            unsafe {
                hook::mapped(fd, |file| file.read_at(fd, &one(buffer, count), at))
                    .unwrap_or_else(|| real::pread(fd, buffer, count, at))
            }
        }
    )*};
}

macro_rules! checked_reads {
    ($($name:ident)*) => {$(
        /// As in C; a buffer that is too small ends the program there.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            buffer: *mut c_void,
            count: size_t,
            at: off_t,
            room: size_t,
        ) -> ssize_t {
            // SAFETY: the caller answers for it.
            unsafe {
                hook::mapped(fd, |file| match count <= room {
                    true => file.read_at(fd, &one(buffer, count), at),
                    false => Ok(None),
                })
                .unwrap_or_else(|| real::__pread_chk(fd, buffer, count, at, room))
            }
        }
    )*};
}

macro_rules! writes {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            buffer: *const c_void,
            count: size_t,
            at: off_t,
        ) -> ssize_t {
            // SAFETY: the caller answers for it.
            unsafe {
                hook::mapped(fd, |file| file.write_at(fd, &one(buffer.cast_mut(), count), at))
                    .unwrap_or_else(|| real::pwrite(fd, buffer, count, at))
            }
        }
    )*};
}

/// Those of several pieces of memory, with flags or without.
macro_rules! vectors {
    ($($name:ident($($flags:ident)?) is $work:ident, else $real:ident;)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            parts: *const iovec,
            count: c_int,
            at: off_t
            $(, $flags: c_int)?
        ) -> ssize_t {
            #[allow(unused_mut, unused_assignments)]
            let mut given = Vector { fd, parts, count, at, flags: None };
            $(given.flags = Some($flags);)?
            // SAFETY: the caller answers for it.
            unsafe {
                hook::mapped(fd, |file| given.$work(file))
                    .unwrap_or_else(|| real::$real(fd, parts, count, at $(, $flags)?))
            }
        }
    )*};
}

reads! { pread pread64 }
checked_reads! { __pread_chk __pread64_chk }
writes! { pwrite pwrite64 }
vectors! {
    preadv() is read, else preadv;
    preadv64() is read, else preadv;
    preadv2(flags) is read, else preadv2;
    preadv64v2(flags) is read, else preadv2;
    pwritev() is write, else pwritev;
    pwritev64() is write, else pwritev;
    pwritev2(flags) is write, else pwritev2;
    pwritev64v2(flags) is write, else pwritev2;
}

/// What those are given.
struct Vector {
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    /// Where it has any.
    flags: Option<c_int>,
}

impl Vector {
    /// The pieces, where it can be done by bulk.
    ///
    /// # Safety
    ///
    /// There are so many.
    unsafe fn listed(&self, file: &Mapped) -> Outcome<&[iovec]> {
        if self.flags.unwrap_or(0) & !(NEEDLESS | DURABLE) != 0 {
            file.tell_changed(self.fd);
            return match file.stand_in() {
                Some(_) => Err(PreloadError::Unsupported("there are no such transfers by bulk")),
                None => Ok(None),
            };
        }
        // SAFETY: the caller says so.
        Ok(unsafe { listed(self.parts, self.count) })
    }

    /// An offset of -1 is where the program is, for those with flags alone; the kernel refuses it to others.
    unsafe fn read(&self, file: &Mapped) -> Outcome<ssize_t> {
        // SAFETY: the caller answers for it.
        unsafe {
            match self.listed(file)? {
                Some(parts) if self.at == -1 && self.flags.is_some() => file.read(self.fd, parts),
                Some(parts) => file.read_at(self.fd, parts, self.at),
                None => Ok(None),
            }
        }
    }

    /// The same.
    unsafe fn write(&self, file: &Mapped) -> Outcome<ssize_t> {
        // SAFETY: the caller answers for it.
        let told = unsafe {
            match self.listed(file)? {
                Some(parts) if self.at == -1 && self.flags.is_some() => {
                    file.write(self.fd, parts)?
                }
                Some(parts) => file.write_at(self.fd, parts, self.at)?,
                None => None,
            }
        };
        if told.is_some() && self.flags.unwrap_or(0) & DURABLE != 0 {
            file.sync(self.fd)?;
        }
        Ok(told)
    }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller answers for it.
    unsafe {
        hook::mapped(fd, |file| file.read(fd, &one(buffer, count)))
            .unwrap_or_else(|| real::read(fd, buffer, count))
    }
}

/// As in C; a buffer that is too small ends the program there.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    // SAFETY: the caller answers for it.
    unsafe {
        hook::mapped(fd, |file| match count <= room {
            true => file.read(fd, &one(buffer, count)),
            false => Ok(None),
        })
        .unwrap_or_else(|| real::__read_chk(fd, buffer, count, room))
    }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the caller answers for it.
    unsafe {
        hook::mapped(fd, |file| file.write(fd, &one(buffer.cast_mut(), count)))
            .unwrap_or_else(|| real::write(fd, buffer, count))
    }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller answers for it.
    unsafe {
        hook::mapped(fd, |file| match listed(parts, count) {
            Some(parts) => file.read(fd, parts),
            None => Ok(None),
        })
        .unwrap_or_else(|| real::readv(fd, parts, count))
    }
}

/// As in C. The library's own sockets are written to by this too, and a server that has gone must not end the program by a
/// signal.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller answers for it.
    unsafe {
        if !own::is_empty() && guard::is_inside() && own::has(fd) {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = parts.cast_mut();
            message.msg_iovlen = count as _;
            return libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL);
        }
        hook::mapped(fd, |file| match listed(parts, count) {
            Some(parts) => file.write(fd, parts),
            None => Ok(None),
        })
        .unwrap_or_else(|| real::writev(fd, parts, count))
    }
}

/// Where a program wants to go in a file, where the kernel can't know it.
fn place(fd: c_int, offset: off_t, whence: c_int, file: &Mapped) -> Outcome<u64> {
    let is_here = file.stand_in().is_none();
    let to = match whence {
        libc::SEEK_END => file.length(fd)?.checked_add_signed(offset),
        libc::SEEK_DATA | libc::SEEK_HOLE if !is_here => {
            let (size, at) = (file.length(fd)?, u64::try_from(offset).unwrap_or(u64::MAX));
            if at >= size {
                return Err(PreloadError::BehindEnd);
            }
            Some(if whence == libc::SEEK_DATA { at } else { size })
        }
        _ => return Ok(None),
    };
    to.map(Some).ok_or(PreloadError::Argument("there is no such place in a file"))
}

/// Goes somewhere in a mapped file, when nobody else does.
fn seek(fd: c_int, offset: off_t, whence: c_int, file: &Mapped) -> Outcome<off_t> {
    let _held = file.hold_position();
    if !matches!(whence, libc::SEEK_SET | libc::SEEK_CUR) {
        file.tell_changed(fd);
    }
    let (offset, whence) = match place(fd, offset, whence, file)? {
        Some(to) => {
            let wrong = |_| PreloadError::Argument("no file is so long");
            (off_t::try_from(to).map_err(wrong)?, libc::SEEK_SET)
        }
        None => (offset, whence),
    };
    // SAFETY: nothing of the program's memory is touched.
    match unsafe { real::lseek(fd, offset, whence) } {
        to if to >= 0 => Ok(Some(to)),
        _ => Err(last_error().into()),
    }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the caller answers for it.
    hook::mapped(fd, |file| seek(fd, offset, whence, file))
        .unwrap_or_else(|| unsafe { real::lseek(fd, offset, whence) })
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: the caller answers for it.
    unsafe { lseek(fd, offset, whence) }
}
