//! What can be wrong with a cell's directory.

use std::io;
use std::path::PathBuf;

/// Each says what failed, why, and the next step.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// There is no cell in the directory.
    #[error("there is no cell in {}: make one with `nasd up {}`, or name another with --cell DIR",
            .0.display(), .0.display())]
    NoCell(PathBuf),
    /// The directory holds other things.
    #[error("{} is not empty, and has no cell.toml: choose another directory for a new cell, or \
             restore cell.toml if a cell was there", .0.display())]
    NotEmpty(PathBuf),
    /// A file of the cell can't be understood.
    #[error("{} can't be understood: {reason}; restore it from a copy", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("can't {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The device file of a new drive does not fit.
    #[error("there is no room for a drive of {size_bytes} bytes at {}: {source}; \
             give a smaller --size, fewer --drives, or another directory", .path.display())]
    NoRoom {
        /// The device file.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
        /// Why it failed.
        source: io::Error,
    },
    /// A new drive could not be formatted.
    #[error("can't format {}: {reason}", .path.display())]
    Format {
        /// The device.
        path: PathBuf,
        /// Why it failed.
        reason: String,
    },
    /// A component drive can't be added, changed or removed.
    #[error("{0}")]
    Component(String),
    /// A volume can't be made, changed or removed.
    #[error("{0}")]
    Volume(String),
    /// The secret file is open to others.
    #[error("{} can be read by others: run `chmod 600 {}`", .0.display(), .0.display())]
    ExposedSecret(PathBuf),
    /// A certificate could not be made.
    #[error("can't make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The machine gave no random numbers.
    #[error("the system's random number generator failed: {0}")]
    Random(getrandom::Error),
    /// Another process runs the cell.
    #[error("the cell in {} is running already{}; stop it with `nasd down {}`",
            .directory.display(),
            .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(),
            .directory.display())]
    Running {
        /// The cell's directory.
        directory: PathBuf,
        /// The process.
        pid: Option<u32>,
    },
    /// Somebody can't become a member, or is none.
    #[error("{name}: {why}")]
    Member {
        /// As the user wrote it.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A change of the authority was interrupted.
    #[error(
        "the old authority can't go yet: {0}; give `nasd key rotate-authority` again, then \
             --finish"
    )]
    Unfinished(String),
    /// The keyring is sealed, and can't be opened or sealed so.
    #[error("the keyring is sealed: {0}")]
    Sealed(String),
    /// A key is on its way to a drive, which may have it or not.
    #[error(
        "{0}: a change to another key was begun, which the drive may have; finish it first: give the \
         command with the same key, or without --new-key-file"
    )]
    Begun(String),
    /// The keyring lacks a drive's keys.
    #[error("keyring.toml has no keys of {0}: restore it from a copy")]
    NoKeys(String),
}

impl CellError {
    /// Wraps an I/O error with what was tried on which file.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| CellError::Io { action, path, source }
    }
}
