//! What can go wrong with a cache directory as a whole. Damage of what lies in it is no error: it is dropped.

use crate::Identity;
use std::io;
use std::path::{Path, PathBuf};

/// A cache directory can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// A living process has it.
    #[error(
        "the cache in {} is in use{}: unmount first, or name another directory", .directory.display(),
        .process.map(|process| format!(" by process {process}")).unwrap_or_default()
    )]
    InUse {
        /// The cache directory.
        directory: PathBuf,
        /// The process, where it has told.
        process: Option<u32>,
    },
    /// It was made for another cell or volume.
    #[error(
        "the cache in {} is of {found}, not of {wanted}: name another directory, or remove this one",
        .directory.display()
    )]
    OtherOwner {
        /// The cache directory.
        directory: PathBuf,
        /// What it was made for.
        found: Identity,
        /// What it was to be used for.
        wanted: Identity,
    },
    /// There are other things in it, which a cache must not touch.
    #[error(
        "{} is no cache directory ({reason}): name one that is empty, or that is not there yet",
        .directory.display()
    )]
    NotACache {
        /// The directory.
        directory: PathBuf,
        /// Why it is none.
        reason: String,
    },
    /// Somebody else could put files into the directory.
    #[error(
        "{} can't be trusted as a cache, as {reason}: name a directory of your own that nobody else may write to",
        .directory.display()
    )]
    Unsafe {
        /// The directory.
        directory: PathBuf,
        /// Who, and where.
        reason: String,
    },
    /// A later version of this program has made it.
    #[error(
        "the cache in {} has format {found}, and this program knows {known}: use a later program, or remove the directory",
        .directory.display()
    )]
    Format {
        /// The cache directory.
        directory: PathBuf,
        /// Its format.
        found: u32,
        /// The one that is known.
        known: u32,
    },
    /// The system refused something.
    #[error("can't {action} {}: {source}; look at the permissions and the room there, or name another directory", .path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The thread that writes could not be started.
    #[error(
        "can't start the thread that writes the cache: {source}; look at the limit on processes (ulimit -u)"
    )]
    Thread {
        /// What the system said.
        source: io::Error,
    },
}

impl CacheError {
    /// An error of the system, of an action on a path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError {
        move |source| CacheError::Io { action, path: path.to_owned(), source }
    }
}
