//! How much of a volume is in memory.

use std::sync::PoisonError;

use super::Namespace;

/// What the caches hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Files' records.
    pub records: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes that these take.
    pub directory_bytes: u64,
}

impl Namespace {
    /// What the caches hold now.
    pub fn cached(&self) -> Cached {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner).len();
        let (directories, bytes) = self.directories.size();
        Cached {
            records: records as u64,
            directories: directories as u64,
            directory_bytes: bytes as u64,
        }
    }
}
