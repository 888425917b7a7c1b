//! The published format of directories (`docs/directory-format.md`): blocks of names, as the file manager writes them and clients
//! read them.

pub mod block;
pub mod bytes;
mod error;
pub mod handle;
mod listing;

pub use block::{DirectoryBlock, Entry};
pub use error::DirectoryError;
pub use listing::{Listed, cookie, parse_listing};

use nasd_types::limits::MAX_NAME_BYTES;

/// Whether `name` can be a directory entry: 1 to 255 bytes, no slash, no NUL, neither `.` nor `..`.
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}
