//! Which descriptors are of mapped files. Several may be of one.
//!
//! Its lock is held for moments, by threads that are inside the library: neither a signal handler nor a transfer waits for it for long.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::mapped::Mapped;

type Files = BTreeMap<c_int, Arc<Mapped>>;

static FILES: RwLock<Files> = RwLock::new(BTreeMap::new());

/// How many there are: most programs have none, and are to lose no time.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn read() -> RwLockReadGuard<'static, Files> {
    // Nothing that can panic is done with it.
    FILES.read().unwrap_or_else(PoisonError::into_inner)
}

/// All of them, for whoever changes them; they are counted at the end by [`count`].
pub(crate) fn write() -> RwLockWriteGuard<'static, Files> {
    FILES.write().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn count(files: &Files) {
    COUNT.store(files.len(), Ordering::Release);
}

/// Whether there are none.
pub(crate) fn is_empty() -> bool {
    COUNT.load(Ordering::Acquire) == 0
}

/// The file that a descriptor is of. One that is of something else by now is forgotten.
pub(crate) fn find(fd: c_int) -> Option<Arc<Mapped>> {
    let found = Arc::clone(read().get(&fd)?);
    if found.is_of(fd) {
        return Some(found);
    }
    let mut files = write();
    // Somebody may have mapped it anew meanwhile.
    let is_same = files.get(&fd).is_some_and(|now| Arc::ptr_eq(now, &found));
    let gone = if is_same { files.remove(&fd) } else { None };
    count(&files);
    drop(files);
    drop(gone);
    None
}

/// A descriptor is of a file from here on.
pub(crate) fn insert(fd: c_int, file: Arc<Mapped>) {
    let mut files = write();
    let before = files.insert(fd, file);
    count(&files);
    drop(files);
    // Its connections are closed where nobody waits.
    drop(before);
}

/// A descriptor is about to be closed, or is of something else: those who know its file are told of changes.
pub(crate) fn remove(fd: c_int) {
    drop(find(fd).inspect(|file| file.tell_changed(fd)));
    let mut files = write();
    let gone = files.remove(&fd);
    count(&files);
    drop(files);
    drop(gone);
}

/// The descriptors in a range.
pub(crate) fn within(range: RangeInclusive<c_int>) -> Vec<c_int> {
    read().range(range).map(|(fd, _)| *fd).collect()
}

/// Tells all who know a file that it was changed, if it was.
pub(crate) fn tell_all() {
    for fd in within(0..=c_int::MAX) {
        drop(find(fd).inspect(|file| file.tell_changed(fd)));
    }
}
