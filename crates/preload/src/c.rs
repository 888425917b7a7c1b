//! The bulk service for programs in C that know of it: see `include/nasd_bulk.h`, which says what each call does.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{PreloadError, set_errno};
use crate::exported::opens::open_mapped;
use crate::guard::Guard;
use crate::pool::{Job, Pool};
use crate::{process, real, table};

/// An open file.
pub struct NasdBulk(Pool);

thread_local! {
    /// What went wrong last in this thread.
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Notes what went wrong: the number, and the text.
fn fail(error: &PreloadError) -> c_int {
    let text = CString::new(error.to_string().replace('\0', " ")).unwrap_or_default();
    // A thread that ends has none any more.
    LAST.try_with(|last| *last.borrow_mut() = text).ok();
    let errno = error.errno();
    set_errno(errno);
    errno
}

/// What a call answers. No panic goes on in C.
fn answer<T>(otherwise: T, run: impl FnOnce() -> Result<T, PreloadError>) -> T {
    let told = match Guard::enter() {
        Some(_guard) if process::is_known() => {
            catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(PreloadError::Broken))
        }
        _ => Err(PreloadError::Unsupported("not from a signal handler or a child of vfork")),
    };
    told.unwrap_or_else(|error| {
        fail(&error);
        otherwise
    })
}

/// The file of a handle.
///
/// # Safety
///
/// It is none, or was opened and not closed.
unsafe fn pool<'a>(file: *const NasdBulk) -> Result<&'a Pool, PreloadError> {
    // SAFETY: the caller says so.
    unsafe { file.as_ref() }.map(|file| &file.0).ok_or(PreloadError::Access)
}

/// What is asked for, if it can be.
fn job(
    writes: bool,
    (buffer, count): (*mut c_void, usize),
    (offset, tag): (u64, u64),
) -> Result<Job, PreloadError> {
    let at = i64::try_from(offset).map_err(|_| PreloadError::Argument("no file is so long"))?;
    Ok(Job { writes, buffer, count, at, tag })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_open(
    path: *const c_char,
    flags: c_int,
    mode: c_uint,
) -> *mut NasdBulk {
    answer(std::ptr::null_mut(), || {
        // SAFETY: the caller answers for it.
        let (fd, file) = unsafe { open_mapped(path, flags, mode) }?;
        Ok(Box::into_raw(Box::new(NasdBulk(Pool::new(fd, file)))))
    })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_read(
    file: *mut NasdBulk,
    buffer: *mut c_void,
    count: usize,
    offset: u64,
) -> isize {
    // SAFETY: the caller answers for it.
    answer(-1, || unsafe { pool(file) }?.run(&job(false, (buffer, count), (offset, 0))?))
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_write(
    file: *mut NasdBulk,
    buffer: *const c_void,
    count: usize,
    offset: u64,
) -> isize {
    let buffer = buffer.cast_mut();
    // SAFETY: the caller answers for it.
    answer(-1, || unsafe { pool(file) }?.run(&job(true, (buffer, count), (offset, 0))?))
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_submit_read(
    file: *mut NasdBulk,
    buffer: *mut c_void,
    count: usize,
    offset: u64,
    tag: u64,
) -> c_int {
    answer(-1, || {
        // SAFETY: the caller answers for it.
        unsafe { pool(file) }?.begin(job(false, (buffer, count), (offset, tag))?)?;
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_submit_write(
    file: *mut NasdBulk,
    buffer: *const c_void,
    count: usize,
    offset: u64,
    tag: u64,
) -> c_int {
    answer(-1, || {
        let job = job(true, (buffer.cast_mut(), count), (offset, tag))?;
        // SAFETY: the caller answers for it.
        unsafe { pool(file) }?.begin(job)?;
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_wait(
    file: *mut NasdBulk,
    tag: *mut u64,
    result: *mut isize,
) -> c_int {
    answer(-1, || {
        if tag.is_null() || result.is_null() {
            return Err(PreloadError::Fault);
        }
        // SAFETY: the caller answers for it.
        let Some(ended) = unsafe { pool(file) }?.wait() else { return Ok(0) };
        let told = ended.outcome.unwrap_or_else(|error| -(fail(&error) as isize));
        // SAFETY: there is room for each.
        unsafe {
            tag.write(ended.tag);
            result.write(told);
        }
        Ok(1)
    })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_sync(file: *mut NasdBulk) -> c_int {
    answer(-1, || {
        // SAFETY: the caller answers for it.
        let pool = unsafe { pool(file) }?;
        pool.file().sync(pool.fd())?;
        // SAFETY: the descriptor is there as long as the file is open.
        if pool.file().stand_in().is_none() && unsafe { real::fsync(pool.fd()) } != 0 {
            return Err(crate::error::last_error().into());
        }
        Ok(0)
    })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_size(file: *mut NasdBulk) -> i64 {
    answer(-1, || {
        // SAFETY: the caller answers for it.
        let pool = unsafe { pool(file) }?;
        let size = pool.file().length(pool.fd())?;
        i64::try_from(size).map_err(|_| PreloadError::Argument("no file is so long"))
    })
}

/// See the header.
///
/// # Safety
///
/// As there.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn nasd_bulk_close(file: *mut NasdBulk) -> c_int {
    answer(-1, || {
        if file.is_null() {
            return Err(PreloadError::Access);
        }
        // SAFETY: it was made by `nasd_bulk_open`, and is closed once.
        let NasdBulk(pool) = *unsafe { Box::from_raw(file) };
        let fd = pool.fd();
        // Waits for what is under way.
        drop(pool);
        table::remove(fd);
        // SAFETY: nobody else knows of it.
        match unsafe { real::close(fd) } {
            0 => Ok(0),
            _ => Err(crate::error::last_error().into()),
        }
    })
}

/// See the header.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn nasd_bulk_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
