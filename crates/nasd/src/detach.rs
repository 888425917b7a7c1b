//! Going on in the background: the same command again, in a session of its own.

use crate::notify;
use crate::supervisor::log_tail;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Why the background process does not serve.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// The process could not be made.
    #[error("can't go on in the background: {0}")]
    Spawn(#[from] std::io::Error),
    /// It ended before it was ready.
    #[error("{tail}\n(the log of the background process is {})", .log.display())]
    Died {
        /// The log's last lines.
        tail: String,
        /// The log.
        log: std::path::PathBuf,
    },
}

/// Runs this program with `arguments` in a new session, its errors in `log`, and returns when it
/// prints a
/// line that begins with `ready`, with that line.
///
/// # Errors
/// `Spawn` or `Died`.
pub fn run_detached(arguments: &[OsString], log: &Path) -> Result<String, DetachError> {
    // A log of its own for each run: the tail of an older one would explain nothing.
    let errors = OpenOptions::new().create(true).write(true).truncate(true).open(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    // This program may have been called by another name, which means something.
    command.arg0("nasd").env_remove(notify::VARIABLE);
    // SAFETY: between fork and exec only setsid is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
    let mut child = command.spawn()?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with("ready") {
                return Ok(line);
            }
        }
    }
    let _ = child.wait();
    Err(DetachError::Died { tail: log_tail(log), log: log.to_owned() })
}
