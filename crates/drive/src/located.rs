//! The object that a thread's last request was for: the next one mostly is for the same, and looking
//! it up in the store's table costs several locked instructions each time.
//!
//! What is kept here is the object itself, which the store does not replace by another while somebody
//! holds it; and a removed one is not taken. So this says nothing that the table would not.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use nasd_store::{Located, StoreError};
use nasd_types::{ByteRange, ObjectName};

use crate::Drive;

/// Which of the drives of this process one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriveNumber(u64);

impl DriveNumber {
    pub(crate) fn next() -> DriveNumber {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DriveNumber(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

thread_local! {
    static LAST: RefCell<Option<(DriveNumber, Located)>> = const { RefCell::new(None) };
}

impl Drive {
    /// Calls `use_it` with the object if it is the one of the thread's last request.
    fn with_last<T>(&self, name: ObjectName, use_it: impl FnOnce(&Located) -> T) -> Option<T> {
        LAST.with_borrow(|last| match last {
            Some((drive, found))
                if *drive == self.number && found.name() == name && !found.is_removed() =>
            {
                Some(use_it(found))
            }
            _ => None,
        })
    }

    /// Finds an object; `Ok(None)` when there is no such object (or partition).
    pub(crate) fn locate(&self, name: ObjectName) -> Result<Option<Located>, StoreError> {
        if let Some(found) = self.with_last(name, Located::clone) {
            return Ok(Some(found));
        }
        let found = self.store.locate(name)?;
        if let Some(found) = &found {
            let before = LAST.replace(Some((self.number, found.clone())));
            // Not before the new one is in its place.
            drop(before);
        }
        Ok(found)
    }

    /// As [`nasd_store::Store::is_cached`].
    pub(crate) fn is_cached(&self, name: ObjectName, range: ByteRange) -> bool {
        let known = self.with_last(name, |found| self.store.is_cached_in(found, range));
        known.unwrap_or_else(|| self.store.is_cached(name, range))
    }
}
