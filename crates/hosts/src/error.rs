//! What keeps hosts from being made.

use std::path::PathBuf;

/// Each says what was tried and what came of it.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A program can't be run, or refuses.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// What was run.
        command: String,
        /// What it said, or why it could not be run.
        reason: String,
    },
    /// A process did not say that it is ready.
    #[error("{name} does not get ready:\n{log}")]
    NotReady {
        /// Which one.
        name: String,
        /// The end of its log.
        log: String,
    },
    /// A process did not end well.
    #[error("{name} did not end well ({how}):\n{log}")]
    BadEnd {
        /// Which one.
        name: String,
        /// How it ended.
        how: String,
        /// The end of its log.
        log: String,
    },
    /// The cell's files are not as they should be.
    #[error("{}: {reason}", .path.display())]
    Cell {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
