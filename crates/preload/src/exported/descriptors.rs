//! Descriptors: more of them for a file, and fewer.

use std::ffi::{c_int, c_uint, c_ulong};

use libc::FILE;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::{PreloadError, last_error, set_errno};
use crate::verify::borrowed;
use crate::{guard, hook, own, process, real, table};

/// The highest number of a descriptor.
const HIGHEST: c_uint = c_int::MAX as c_uint;

/// The flag of `close_range` that does not close.
const ONLY_AT_EXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;

/// Another descriptor is of what the first is of.
fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && to != from && !table::is_empty() {
        hook::within::<c_int>(|| {
            match table::find(from) {
                Some(file) => {
                    // Where there is nothing behind it, another program must not find that out by reading nothing.
                    if file.stand_in().is_some()
                        && let Some(to) = borrowed(to)
                    {
                        fcntl_setfd(to, FdFlags::CLOEXEC)?;
                    }
                    table::insert(to, file);
                }
                None => table::remove(to),
            }
            Ok(None)
        });
    }
    to
}

/// Whether a descriptor is the library's own, and somebody else uses its number.
fn is_taken(fd: c_int) -> bool {
    !own::is_empty() && !guard::is_inside() && process::is_known() && own::has_for_others(fd)
}

/// A descriptor may be about to be of something else: those who know its file are told of changes.
fn tell(fd: c_int) {
    let _ = hook::mapped::<c_int>(fd, |file| {
        file.tell_changed(fd);
        Ok(None)
    });
}

/// A descriptor is about to be closed, or is of something else.
fn leave(fd: c_int) {
    if !table::is_empty() {
        hook::within::<c_int>(|| {
            table::remove(fd);
            Ok(None)
        });
    }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller answers for it.
    copied(fd, unsafe { real::dup(fd) })
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if is_taken(to) {
        set_errno(libc::EBUSY);
        return -1;
    }
    tell(to);
    // SAFETY: the caller answers for it.
    let told = unsafe { real::dup2(fd, to) };
    if told >= 0 && fd != to {
        leave(to);
    }
    copied(fd, told)
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if is_taken(to) {
        set_errno(libc::EBUSY);
        return -1;
    }
    tell(to);
    // SAFETY: the caller answers for it.
    let told = unsafe { real::dup3(fd, to, flags) };
    if told >= 0 {
        leave(to);
    }
    copied(fd, told)
}

/// What comes before `fcntl`: the answer, or nothing where the kernel has it.
fn before_control(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    match command {
        libc::F_SETFL => hook::mapped(fd, |file| {
            let is_direct = argument as c_int & libc::O_DIRECT != 0;
            if file.stand_in().is_some() && argument as c_int & libc::O_APPEND != 0 {
                return Err(PreloadError::Argument("nothing is appended to what is not here"));
            }
            file.relax(!is_direct);
            file.tell_changed(fd);
            // What holds a file's place has no cache to be passed by.
            Ok(file.stand_in().map(|_| 0))
        }),
        // See `copied`.
        libc::F_SETFD => hook::mapped(fd, |file| Ok(file.stand_in().map(|_| 0))),
        _ => None,
    }
}

macro_rules! controls {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
            if let Some(told) = before_control(fd, command, argument) {
                return told;
            }
            // SAFETY: the caller answers for it.
            let told = unsafe { real::$name(fd, command, argument) };
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, told),
                _ => told,
            }
        }
    )*};
}

controls! { fcntl fcntl64 }

/// As in C: the other way to have a descriptor stay open in other programs.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let told = match request {
        libc::FIONCLEX => hook::mapped(fd, |file| Ok(file.stand_in().map(|_| 0))),
        _ => None,
    };
    // SAFETY: the caller answers for it.
    told.unwrap_or_else(|| unsafe { real::ioctl(fd, request, argument) })
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if guard::is_inside() {
        own::forget(fd);
    } else if is_taken(fd) {
        set_errno(libc::EBADF);
        return -1;
    } else {
        leave(fd);
    }
    // SAFETY: the caller answers for it.
    unsafe { real::close(fd) }
}

/// Closes all in a range but the library's own.
fn close_all(first: c_uint, last: c_uint, flags: c_int) -> Option<c_int> {
    hook::within(|| {
        let end = |fd: c_uint| c_int::try_from(fd.min(HIGHEST)).unwrap_or(c_int::MAX);
        table::within(end(first)..=end(last)).into_iter().for_each(table::remove);
        for (first, last) in own::gaps(first, last) {
            // SAFETY: it touches no memory.
            if unsafe { real::close_range(first, last, flags) } != 0 {
                return Err(last_error().into());
            }
        }
        Ok(Some(0))
    })
}

fn has_nothing() -> bool {
    own::is_empty() && table::is_empty()
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let told = match has_nothing() || first > last || flags & ONLY_AT_EXEC != 0 {
        true => None,
        false => close_all(first, last, flags),
    };
    // SAFETY: the caller answers for it.
    told.unwrap_or_else(|| unsafe { real::close_range(first, last, flags) })
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let from = first.max(0).unsigned_abs();
    if has_nothing() || close_all(from, c_uint::MAX, 0).is_none() {
        // SAFETY: the caller answers for it.
        unsafe { real::closefrom(first) }
    }
}

/// As in C. The C library closes its descriptor without calling `close`.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    // SAFETY: the caller answers for it.
    unsafe {
        if !table::is_empty() && !stream.is_null() {
            leave(libc::fileno(stream));
        }
        real::fclose(stream)
    }
}

/// As in C. Those that the library makes for itself are put where programs do not look.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the caller answers for it.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0 && guard::is_inside() { own::settle(fd) } else { fd }
}
