//! What comes between a program's call and the C library.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{PreloadError, errno, set_errno};
use crate::guard::Guard;
use crate::mapped::{Mapped, Outcome};
use crate::real::Failed;
use crate::{process, table};

/// Runs something of the library's own: nothing where the C library is to be called. No panic goes on in C, and `errno`
/// changes only where something has failed.
pub(crate) fn within<T: Failed>(run: impl FnOnce() -> Outcome<T>) -> Option<T> {
    let _guard = Guard::enter()?;
    if !process::is_known() {
        return None;
    }
    let before = errno();
    let told = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(PreloadError::Broken));
    match told {
        Ok(told) => {
            set_errno(before);
            told
        }
        Err(error) => {
            set_errno(error.errno());
            Some(T::FAILED)
        }
    }
}

/// Does a call's work where its descriptor is of a mapped file.
pub(crate) fn mapped<T: Failed>(
    fd: c_int,
    run: impl FnOnce(&Arc<Mapped>) -> Outcome<T>,
) -> Option<T> {
    if table::is_empty() {
        return None;
    }
    within(|| match table::find(fd) {
        Some(file) => run(&file),
        None => Ok(None),
    })
}

/// Tells those who know a file what was changed, before a call that goes to them. Where there is nobody behind the descriptor, it is
/// refused.
pub(crate) fn told<T: Failed>(fd: c_int, refusal: &'static str) -> Option<T> {
    mapped(fd, |file| {
        if file.stand_in().is_some() {
            return Err(PreloadError::Argument(refusal));
        }
        file.tell_changed(fd);
        Ok(None)
    })
}
