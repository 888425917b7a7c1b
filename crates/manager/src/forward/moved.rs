//! How much data went through the manager: in all, and to each drive since it was started.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes by direction.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    read: AtomicU64,
    written: AtomicU64,
}

impl Moved {
    pub(super) fn add_read(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that clients have read.
    pub(crate) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes that they have written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// Bytes that one drive counts too, until it starts anew.
#[derive(Debug, Default)]
pub(super) struct SinceStart(Mutex<(Option<u64>, u64)>);

impl SinceStart {
    /// So many bytes more, to or from a drive that shows this instance.
    pub(super) fn add(&self, instance: Option<u64>, bytes: usize) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0 != instance {
            *counted = (instance, 0);
        }
        counted.1 += bytes as u64;
    }

    /// How many, if the drive is still the same.
    pub(super) fn bytes(&self, instance: Option<u64>) -> u64 {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.0 == instance { counted.1 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_starts_anew_counts_from_zero() {
        let since = SinceStart::default();
        since.add(Some(1), 10);
        since.add(Some(1), 5);
        assert_eq!((since.bytes(Some(1)), since.bytes(Some(2))), (15, 0));
        since.add(Some(2), 7);
        assert_eq!(since.bytes(Some(2)), 7);
    }
}
