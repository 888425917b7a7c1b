//! Directories: a published format that clients may parse, and its in-memory index.
//!
//! `docs/directory-format.md` is the format's description. [`block`] holds the bytes of one block,
//! `table` a whole directory with its index, `cache` the directories that are in memory.

pub mod block;
mod cache;
mod error;
pub(crate) mod overlay;
mod table;
#[cfg(test)]
mod tests;

pub use block::{DirectoryBlock, Entry};
pub use error::DirectoryError;
pub use table::{Change, Directory, Listed, Listing};

pub(crate) use cache::{DirectoryCache, DirectoryCell};

use nasd_types::ObjectId;
use nasd_types::limits::MAX_NAME_BYTES;

/// Parses a whole directory object for reading, as a client may: entries in the order of their
/// cookies.
///
/// # Errors
/// What is wrong with the bytes, and in which block.
pub fn parse_directory(object: ObjectId, data: &[u8]) -> Result<Vec<Listed>, DirectoryError> {
    Ok(Directory::parse(object, data)?.list(0, usize::MAX, usize::MAX).entries)
}

/// Whether `name` can be a directory entry: 1 to 255 bytes, no slash, no NUL, neither `.` nor `..`.
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}
