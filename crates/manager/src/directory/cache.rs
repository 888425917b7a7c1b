//! The directories in memory, up to a budget of bytes.
//!
//! A cell holds a directory's contents once they were read. Who reads or changes them holds the
//! directory's lock in the lock table; the lock in the cell only keeps two readers from reading
//! the same directory from the drive at a time. A cell that was forgotten while somebody uses it
//! stays right: whoever changes a directory holds its lock alone.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nasd_protocol::manager::FileHandle;

use super::Directory;
use crate::lru::Lru;

/// Weight of a cell whose directory was not read yet.
const EMPTY_CELL_BYTES: usize = 256;

/// One directory's place in the cache; `None` until it is read, and after a failed write.
#[derive(Debug, Default)]
pub(crate) struct DirectoryCell {
    pub(crate) contents: RwLock<Option<Directory>>,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct DirectoryCache {
    cells: Mutex<Lru<FileHandle, Arc<DirectoryCell>>>,
}

impl DirectoryCache {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        DirectoryCache { cells: Mutex::new(Lru::new(budget_bytes)) }
    }

    /// The directory's cell, made if need be.
    pub(crate) fn cell(&self, directory: FileHandle) -> Arc<DirectoryCell> {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(&directory) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(DirectoryCell::default());
        cells.insert(directory, Arc::clone(&cell), EMPTY_CELL_BYTES);
        cell
    }

    /// The directory's cell, if there is one; it becomes no newer by that.
    pub(crate) fn peek(&self, directory: FileHandle) -> Option<Arc<DirectoryCell>> {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.peek(&directory).map(Arc::clone)
    }

    /// Tells how much memory a directory takes now.
    pub(crate) fn charge(&self, directory: FileHandle, bytes: usize) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.reweigh(&directory, bytes.max(EMPTY_CELL_BYTES));
    }

    /// How many there are, and how many bytes they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        (cells.len(), cells.weight())
    }

    /// Forgets a directory that was removed.
    pub(crate) fn forget(&self, directory: FileHandle) {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner).remove(&directory);
    }
}
