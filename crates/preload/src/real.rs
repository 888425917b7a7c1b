//! The functions that this library stands in front of.
//!
//! Each is looked for when it is called first, not at the start: other libraries' constructors may call them before this one's.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, iovec, loff_t, mode_t, off_t, posix_spawn_file_actions_t, posix_spawnattr_t, size_t,
    ssize_t, stat, statx as Statx,
};

use crate::error::set_errno;

/// What a thread begins with.
pub(crate) type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// What a function answers that has failed.
pub(crate) trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for ssize_t {
    const FAILED: ssize_t = -1;
}

impl Failed for off_t {
    const FAILED: off_t = -1;
}

impl Failed for *mut c_void {
    const FAILED: *mut c_void = libc::MAP_FAILED;
}

impl Failed for () {
    const FAILED: () = ();
}

/// Where the next library has it. Two threads that look for it find the same.
fn find(place: &AtomicPtr<c_void>, name: &'static str) -> *mut c_void {
    let known = place.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: names end with a zero byte; this takes no memory of ours.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
    place.store(found, Ordering::Relaxed);
    found
}

/// Some are variadic in C. What stands there for further arguments is passed all the same: on x86-64 and on 64-bit ARM with Linux, integers and
/// pointers of a variadic function are in the same registers as those of any other.
macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $told:ty;)*) => {$(
        /// The C library's.
        ///
        /// # Safety
        ///
        /// As in C.
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $told {
            static PLACE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let at = find(&PLACE, concat!(stringify!($name), "\0"));
            if at.is_null() {
                set_errno(libc::ENOSYS);
                return <$told as Failed>::FAILED;
            }
            // SAFETY: this is its type in the C library; the caller answers for the arguments.
            unsafe {
                let function: unsafe extern "C" fn($($kind),*) -> $told = std::mem::transmute(at);
                function($($argument),*)
            }
        }
    )*};
}

functions! {
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t;
    __read_chk(fd: c_int, buffer: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t;
    pread(fd: c_int, buffer: *mut c_void, count: size_t, at: off_t) -> ssize_t;
    __pread_chk(fd: c_int, buffer: *mut c_void, count: size_t, at: off_t, room: size_t) -> ssize_t;
    pwrite(fd: c_int, buffer: *const c_void, count: size_t, at: off_t) -> ssize_t;
    readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    preadv(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t;
    preadv2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    dup(fd: c_int) -> c_int;
    dup2(fd: c_int, to: c_int) -> c_int;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom(first: c_int) -> ();
    fclose(stream: *mut FILE) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fstat(fd: c_int, told: *mut stat) -> c_int;
    __fxstat(version: c_int, fd: c_int, told: *mut stat) -> c_int;
    fstatat(at: c_int, path: *const c_char, told: *mut stat, flags: c_int) -> c_int;
    statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, told: *mut Statx) -> c_int;
    fsync(fd: c_int) -> c_int;
    fdatasync(fd: c_int) -> c_int;
    ftruncate(fd: c_int, length: off_t) -> c_int;
    fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int;
    posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int;
    sendfile(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t;
    copy_file_range(
        from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, count: size_t, flags: c_uint
    ) -> ssize_t;
    splice(
        from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, count: size_t, flags: c_uint
    ) -> ssize_t;
    pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void
    ) -> c_int;
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp(path: *const c_char, arguments: *const *const c_char) -> c_int;
    posix_spawn(
        pid: *mut libc::pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int;
    posix_spawnp(
        pid: *mut libc::pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: *const *mut c_char,
        environment: *const *mut c_char
    ) -> c_int;
}

/// As a system call: memory allocators call it before anything can be looked for.
///
/// # Safety
///
/// As in C.
pub(crate) unsafe fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller answers for it.
    let told = unsafe { libc::syscall(libc::SYS_mmap, at, length, protection, flags, fd, offset) };
    ptr::without_provenance_mut(told as usize)
}
