//! `nasd bulk`: directories are served, and big files copied, by the bulk service.

mod members;
mod secret;
mod serve;

use super::Outcome;
use crate::arguments::BulkCommand;
use std::path::Path;

/// Runs one of the commands.
///
/// # Errors
/// The command's own.
pub fn run(directory: &Path, command: BulkCommand) -> Outcome {
    match command {
        BulkCommand::Serve(arguments) => serve::serve(directory, &arguments),
        BulkCommand::Get(_) | BulkCommand::Put(_) => Err("not there yet".into()),
    }
}
