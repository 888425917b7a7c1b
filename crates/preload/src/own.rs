//! Descriptors that the library has for itself: its sockets.
//!
//! Programs number their own, and some close all that they do not know. So these are high, and a program that closes one is told that
//! there is none.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

use crate::guard::Guard;
use crate::verify::borrowed;

/// How far below the highest number that there may be they begin.
const ROOM: u64 = 256;

/// No higher, wherever the limit is.
const HIGHEST: u64 = 1 << 16;

static OWN: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// All of them; [`count`] at the end.
pub(crate) fn lock() -> MutexGuard<'static, BTreeSet<c_int>> {
    // Nothing that can panic is done with it.
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn count(own: &BTreeSet<c_int>) {
    COUNT.store(own.len(), Ordering::Release);
}

/// Whether there are none.
pub(crate) fn is_empty() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// Where they begin, with such a limit.
fn first(limit: Option<u64>) -> c_int {
    let limit = limit.unwrap_or(HIGHEST).min(HIGHEST);
    // At most as large as the highest.
    limit.saturating_sub(ROOM).max(limit / 2) as c_int
}

/// Takes a new descriptor, which it moves out of the program's way if there is room.
pub(crate) fn settle(fd: c_int) -> c_int {
    let Some(descriptor) = borrowed(fd) else { return fd };
    let first = first(getrlimit(Resource::Nofile).current);
    let settled = match fcntl_dupfd_cloexec(descriptor, first) {
        Ok(moved) => {
            use std::os::fd::IntoRawFd;
            // SAFETY: it was just made, and nobody else knows of it.
            unsafe { rustix::io::close(fd) };
            moved.into_raw_fd()
        }
        Err(_) => {
            fcntl_setfd(descriptor, FdFlags::CLOEXEC).ok();
            fd
        }
    };
    let mut own = lock();
    own.insert(settled);
    count(&own);
    settled
}

/// Whether the library has it.
pub(crate) fn has(fd: c_int) -> bool {
    !is_empty() && lock().contains(&fd)
}

/// The same, asked by somebody who is not inside, and so must be for a moment.
pub(crate) fn has_for_others(fd: c_int) -> bool {
    Guard::enter().is_some_and(|_guard| has(fd))
}

/// The library closes it.
pub(crate) fn forget(fd: c_int) {
    if !is_empty() {
        let mut own = lock();
        own.remove(&fd);
        count(&own);
    }
}

/// The ranges of numbers between them.
pub(crate) fn gaps(first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
    gaps_between(&lock(), first, last)
}

fn gaps_between(own: &BTreeSet<c_int>, first: c_uint, last: c_uint) -> Vec<(c_uint, c_uint)> {
    let (mut gaps, mut at) = (Vec::new(), u64::from(first));
    for fd in own.iter().map(|fd| fd.unsigned_abs()).filter(|fd| (first..=last).contains(fd)) {
        if at < u64::from(fd) {
            gaps.push((at as c_uint, fd - 1));
        }
        at = u64::from(fd) + 1;
    }
    if at <= u64::from(last) {
        gaps.push((at as c_uint, last));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_high_and_within_the_limit() {
        assert_eq!(first(Some(1024)), 768);
        assert_eq!(first(Some(300)), 150);
        assert_eq!(first(Some(1 << 20)), 65_280);
        assert_eq!(first(None), 65_280);
        assert_eq!(first(Some(0)), 0);
    }

    #[test]
    fn what_is_closed_goes_around_them() {
        let own = BTreeSet::from([5, 6, 9]);
        assert_eq!(gaps_between(&own, 3, c_uint::MAX), [(3, 4), (7, 8), (10, c_uint::MAX)]);
        assert_eq!(gaps_between(&own, 5, 9), [(7, 8)]);
        assert_eq!(gaps_between(&own, 5, 6), []);
        assert_eq!(gaps_between(&own, 0, 3), [(0, 3)]);
        assert_eq!(gaps_between(&BTreeSet::new(), 1, 2), [(1, 2)]);
        assert_eq!(gaps_between(&own, 9, 3), []);
    }
}
