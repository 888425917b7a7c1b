//! Other programs: they know only the ordinary way to a file that they are handed, so that those who know it are told of changes
//! first.

use std::ffi::{c_char, c_int};

use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::{hook, real, table};

fn tell_all() {
    if !table::is_empty() {
        hook::within::<c_int>(|| {
            table::tell_all();
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
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    tell_all();
    // SAFETY: the caller answers for it.
    unsafe { real::execve(path, arguments, environment) }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    tell_all();
    // SAFETY: the caller answers for it.
    unsafe { real::execv(path, arguments) }
}

/// As in C.
///
/// # Safety
///
/// As in C.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn execvp(path: *const c_char, arguments: *const *const c_char) -> c_int {
    tell_all();
    // SAFETY: the caller answers for it.
    unsafe { real::execvp(path, arguments) }
}

macro_rules! spawns {
    ($($name:ident)*) => {$(
        /// As in C.
        ///
        /// # Safety
        ///
        /// As in C.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            pid: *mut pid_t,
            path: *const c_char,
            actions: *const posix_spawn_file_actions_t,
            attributes: *const posix_spawnattr_t,
            arguments: *const *mut c_char,
            environment: *const *mut c_char,
        ) -> c_int {
            tell_all();
            // SAFETY: the caller answers for it.
            unsafe { real::$name(pid, path, actions, attributes, arguments, environment) }
        }
    )*};
}

spawns! { posix_spawn posix_spawnp }
