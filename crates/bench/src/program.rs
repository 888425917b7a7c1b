//! Programs of the system that are run to their ends.

use std::process::{Command, Stdio};

use crate::BenchError;

/// Runs a program that says nothing that matters unless it fails.
///
/// # Errors
///
/// That it can't be run, or what it says on its standard error when it fails.
pub(crate) fn run_program(name: &'static str, mut command: Command) -> Result<(), BenchError> {
    let failed = |reason| BenchError::Program { program: name, reason };
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(format!("{}: {}", output.status, said.trim())))
        }
    }
}
