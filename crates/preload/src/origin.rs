//! Where a file's authority comes from, and what there is behind the descriptor that a program has.

use std::ffi::c_int;

use nasd_bulk_service::client::StripedFile;
use nasd_protocol::bulk_desk::FileFacts;

use crate::error::PreloadError;

/// Who says where a file's bytes are, and lets them be had.
pub(crate) trait Origin: Send + Sync {
    /// Opens it at its servers, by a new authority; `is_anew` where the one before was refused.
    fn open(&self, fd: c_int, is_anew: bool) -> Result<StripedFile, PreloadError>;

    /// Tells whoever else knows the file that it was changed.
    fn tell_changed(&self, fd: c_int);

    /// Whether who opens it anew may be given another file: servers find it by its path.
    fn may_be_another(&self) -> bool {
        false
    }

    /// How the file was when it was opened, where the descriptor is not of the file itself, but holds its place.
    fn stand_in(&self) -> Option<FileFacts> {
        None
    }
}
