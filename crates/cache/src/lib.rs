//! A client's cache of file contents, on local disk and in memory, validated by version.
//!
//! Whoever reads files from drives keeps here what he has read, as *chunks* of [`CHUNK_BYTES`]. Each file is cached under one
//! version: contents of another are never served. What the version is, and whether it is still the file's, is the
//! caller's to know; the cache knows nothing of drives, managers or sockets.
//!
//! A cache directory is one cell's and one volume's, and one process uses it at a time. Nothing in it is waited for to be durable: what a
//! crash or anything else has damaged is found by its checksum, and is as if it had never been there
//! (`docs/cache-format.md`).

#![forbid(unsafe_code)]

mod cache;
mod directory;
mod error;
mod head;
mod identity;
mod inspection;
mod key;
mod load;
mod lock;
mod state;
mod two_queue;
mod writer;

pub use cache::{Cache, CacheOptions, Missing};
pub use error::CacheError;
pub use identity::{Identity, default_directory, default_root};
pub use inspection::{Emptied, Inspection, empty, find, inspect};
pub use key::FileKey;
pub use state::{CacheSummary, CachedFile};

/// Bytes of a chunk; the last one of a file is as long as what is left.
pub const CHUNK_BYTES: u64 = 256 << 10;

/// Longest note of a file, in bytes.
pub const MAX_NOTE_BYTES: usize = 4096;

/// Most files that a cache knows; beyond, those that were not used for long are forgotten.
pub const MAX_FILES: usize = 1 << 17;

/// Most bytes of contents that wait to be written to the disk, beside those that the memory limit is about.
pub const QUEUE_BYTES: u64 = 16 << 20;

/// What is counted in memory for each chunk or note, beside its bytes.
pub const ITEM_BYTES: u64 = 128;

/// Space on the disk is counted in these.
pub const BLOCK_BYTES: u64 = 4096;

/// How many chunks a file of this length has.
pub const fn chunk_count(length: u64) -> u64 {
    length.div_ceil(CHUNK_BYTES)
}

/// How long a chunk of a file of this length is; 0 if there is no such chunk.
pub const fn chunk_length(length: u64, number: u64) -> usize {
    let left = match number.checked_mul(CHUNK_BYTES) {
        Some(start) => length.saturating_sub(start),
        None => 0,
    };
    (if left < CHUNK_BYTES { left } else { CHUNK_BYTES }) as usize
}
