//! Why a row could not be measured.

/// Each says what is missing or what failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program that measures a limit is not installed.
    #[error("the limit needs `{program}`, which is not installed: `make bench` installs it")]
    MissingProgram {
        /// Its name.
        program: &'static str,
    },
    /// It failed.
    #[error("`{program}` failed: {reason}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What it said.
        reason: String,
    },
    /// There is no such row.
    #[error("there is no row `{name}`; this version has: {known}")]
    NoSuchRow {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The drive refused or failed a request.
    #[error("the drive failed the measured request: {0}")]
    Drive(#[from] nasd_client::ClientError),
    /// The system does not tell what the drive's process used.
    #[error("this system does not tell the processor time of another process")]
    NoProcessorTime,
    /// What came back is not what was written.
    #[error("the data that was read back differs at byte {offset}")]
    WrongData {
        /// The first byte that differs.
        offset: u64,
    },
    /// The drive could not be started again.
    #[error("the drive does not start again: {0}")]
    Restart(String),
    /// The clerk could not do what is measured.
    #[error("a file of the measured cell failed: {0}")]
    Clerk(#[from] nasd_clerk::ClerkError),
    /// A cell, or a host for it, could not be started or stopped.
    #[error(transparent)]
    Host(#[from] nasd_hosts::HostError),
    /// Nobody could become a client of a cell.
    #[error("the measured cell can't be used: {0}")]
    Cell(String),
    /// The peers that the drive must bear could not be started.
    #[error("no crowd could be made (each of it takes a descriptor): {0}")]
    Crowd(String),
    /// A crate whose sources are copied and compiled is not there.
    #[error("the sources of {name} are not where cargo unpacks crates: `cargo fetch` brings them")]
    MissingSources {
        /// The crate and its version.
        name: &'static str,
    },
    /// A tree that was copied looks different from what was copied.
    #[error("the tree is not what was copied: {met}, and not {expected}")]
    OtherTree {
        /// What was found.
        met: String,
        /// What should be there.
        expected: String,
    },
    /// Something else of the system failed.
    #[error("{action}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl BenchError {
    /// Makes errors of the system into this one.
    pub(crate) fn io(action: &'static str) -> impl Fn(std::io::Error) -> BenchError {
        move |source| BenchError::Io { action, source }
    }
}
