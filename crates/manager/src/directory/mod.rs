//! Directories: a published format that clients may parse, and its in-memory index.
//!
//! `docs/directory-format.md` is the format's description. [`nasd_directory`] has the bytes of one block,
//! `table` a whole directory with its index, `cache` the directories that are in memory.

mod cache;
pub(crate) mod overlay;
mod table;
#[cfg(test)]
mod tests;

pub use nasd_directory::{DirectoryBlock, DirectoryError, Entry, Listed, block, is_valid_name};
pub use table::{Change, Directory, Listing};

pub(crate) use cache::{DirectoryCache, DirectoryCell};

use nasd_types::ObjectId;

/// Parses a whole directory object for reading, as a client may: entries in the order of their
/// cookies.
///
/// # Errors
/// What is wrong with the bytes, and in which block.
pub fn parse_directory(object: ObjectId, data: &[u8]) -> Result<Vec<Listed>, DirectoryError> {
    Ok(Directory::parse(object, data)?.list(0, usize::MAX, usize::MAX).entries)
}
