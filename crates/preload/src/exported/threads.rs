//! Threads: those that the library begins are inside it from their beginning to their end, and take no signals, which are for the
//! program's own.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{pthread_attr_t, pthread_t};

use crate::guard::{self, Guard};
use crate::real::{self, Start};

/// What a thread of the library's begins with.
struct Beginning {
    start: Start,
    argument: *mut c_void,
}

extern "C" fn begin(beginning: *mut c_void) -> *mut c_void {
    // SAFETY: it is that of `pthread_create` below, which has left it to this thread.
    let Beginning { start, argument } = *unsafe { Box::from_raw(beginning.cast::<Beginning>()) };
    std::mem::forget(Guard::enter());
    start(argument)
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !guard::is_inside() {
        // SAFETY: the caller answers for it.
        return unsafe { real::pthread_create(thread, attributes, start, argument) };
    }
    let beginning = Box::into_raw(Box::new(Beginning { start, argument })).cast();
    // SAFETY: both sets are there; the thread has the rest.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let told = real::pthread_create(thread, attributes, begin, beginning);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        if told != 0 {
            drop(Box::from_raw(beginning.cast::<Beginning>()));
        }
        told
    }
}
