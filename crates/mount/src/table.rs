//! Open files and directories by the numbers that the kernel knows them by.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Things by number.
#[derive(Debug)]
pub(crate) struct Table<T> {
    next: AtomicU64,
    entries: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { next: AtomicU64::new(1), entries: RwLock::default() }
    }
}

impl<T> Table<T> {
    /// Keeps a thing; returns its number, which is never used again.
    pub(crate) fn insert(&self, entry: T) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(number, Arc::new(entry));
        number
    }

    /// Keeps a thing that has its number already.
    pub(crate) fn insert_at(&self, number: u64, entry: T) {
        self.next.fetch_max(number.saturating_add(1), Ordering::Relaxed);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(number, Arc::new(entry));
    }

    /// Everything, by number.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<T>)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(|(number, entry)| (*number, Arc::clone(entry))).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The thing with this number.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<T>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// Forgets a thing.
    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
