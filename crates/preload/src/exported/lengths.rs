//! Durability and lengths, and what the kernel does with a file's bytes itself.

use std::ffi::{c_int, c_uint, c_void};

use libc::{loff_t, off_t, size_t, ssize_t};

use crate::error::{PreloadError, errno, set_errno};
use crate::{hook, real};

const NOT_HERE: &str = "the file is not here: it is read and written alone";

macro_rules! syncs {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int) -> c_int {
            let told = hook::mapped(fd, |file| {
                file.sync(fd)?;
                Ok(file.stand_in().map(|_| 0))
            });
            // SAFETY: the caller answers for it.
            told.unwrap_or_else(|| unsafe { real::$name(fd) })
        }
    )*};
}

macro_rules! truncates {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, length: off_t) -> c_int {
            let told = hook::mapped(fd, |file| {
                file.tell_changed(fd);
                if file.stand_in().is_none() {
                    return Ok(None);
                }
                let wrong = |_| PreloadError::Argument("no file has a length below 0");
                file.set_size(fd, u64::try_from(length).map_err(wrong)?)?;
                Ok(Some(0))
            });
            // SAFETY: the caller answers for it.
            told.unwrap_or_else(|| unsafe { real::ftruncate(fd, length) })
        }
    )*};
}

macro_rules! allocates {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            fd: c_int,
            mode: c_int,
            offset: off_t,
            length: off_t,
        ) -> c_int {
            let told = hook::mapped(fd, |file| {
                file.tell_changed(fd);
                match file.stand_in() {
                    Some(_) => Err(PreloadError::Unsupported(NOT_HERE)),
                    None => Ok(None),
                }
            });
            // SAFETY: the caller answers for it.
            told.unwrap_or_else(|| unsafe { real::fallocate(fd, mode, offset, length) })
        }
    )*};
}

macro_rules! posix_allocates {
    ($($name:ident)*) => {$(
        /// As in C: its answer is the number of an error.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, offset: off_t, length: off_t) -> c_int {
            let before = errno();
            let told = hook::mapped(fd, |file| {
                file.tell_changed(fd);
                match file.stand_in() {
                    Some(_) => Err(PreloadError::Unsupported(NOT_HERE)),
                    None => Ok(None),
                }
            });
            match told {
                // SAFETY: the caller answers for it.
                None => unsafe { real::posix_fallocate(fd, offset, length) },
                Some(0) => 0,
                Some(_) => {
                    let error = errno();
                    set_errno(before);
                    error
                }
            }
        }
    )*};
}

/// Memory that is no file's is asked for all the time, and by allocators before anything else.
macro_rules! maps {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            at: *mut c_void,
            length: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            if fd >= 0
                && flags & libc::MAP_ANONYMOUS == 0
                && let Some(refused) = told_of_its_length(fd)
            {
                return refused;
            }
            // SAFETY: the caller answers for it.
            let mapped = unsafe { real::mmap(at, length, protection, flags, fd, offset) };
            if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 && mapped != libc::MAP_FAILED {
                // What is changed there, and what is written by bulk, would not be seen by each other.
                hook::mapped(fd, |file| {
                    file.end();
                    Ok(None::<c_int>)
                });
            }
            mapped
        }
    )*};
}

macro_rules! sends {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            to: c_int,
            from: c_int,
            at: *mut off_t,
            count: size_t,
        ) -> ssize_t {
            // SAFETY: the caller answers for it.
            told_of_both(from, to).unwrap_or_else(|| unsafe { real::sendfile(to, from, at, count) })
        }
    )*};
}

syncs! { fsync fdatasync }
truncates! { ftruncate ftruncate64 }
allocates! { fallocate fallocate64 }
posix_allocates! { posix_fallocate posix_fallocate64 }
maps! { mmap mmap64 }
sends! { sendfile sendfile64 }

/// Before the kernel maps a file into memory: there are no pages behind the end of which it knows, and it asks nobody.
fn told_of_its_length(fd: c_int) -> Option<*mut c_void> {
    hook::mapped(fd, |file| match file.stand_in() {
        Some(_) => Err(PreloadError::Argument(NOT_HERE)),
        None => {
            // If nobody answers, it is the kernel's to say so.
            let _ = file.length(fd);
            Ok(None)
        }
    })
}

/// Before the kernel moves bytes from one to the other.
fn told_of_both(from: c_int, to: c_int) -> Option<ssize_t> {
    hook::told(from, NOT_HERE).or_else(|| hook::told(to, NOT_HERE))
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut loff_t,
    to: c_int,
    to_at: *mut loff_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller answers for it.
    told_of_both(from, to)
        .unwrap_or_else(|| unsafe { real::copy_file_range(from, from_at, to, to_at, count, flags) })
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut loff_t,
    to: c_int,
    to_at: *mut loff_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller answers for it.
    told_of_both(from, to)
        .unwrap_or_else(|| unsafe { real::splice(from, from_at, to, to_at, count, flags) })
}
