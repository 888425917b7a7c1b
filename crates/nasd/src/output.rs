//! Facts on the standard output, whose reader may have gone (`| head`): then the command ends.

use crate::commands::Outcome;
use serde::Serialize;
use std::io::{self, Write};

/// Prints a line to the standard output.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

pub(crate) use say;

/// Prints a line to the standard error, for people: nothing is to be done if nobody takes it.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::note_line(format_args!($($text)*)) };
}

pub(crate) use note;

/// Prints a line; see [`note`]. It is written at once, so that nobody sees half of it, whoever else writes there or ends us.
pub fn note_line(text: std::fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Prints a line; see [`say`].
pub fn line(text: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}") {
        stop(&error, 1);
    }
}

/// Prints facts for scripts.
///
/// # Errors
/// Facts that JSON can't tell; none of ours.
pub fn json(facts: &impl Serialize) -> Outcome {
    say!("{}", serde_json::to_string_pretty(facts)?);
    Ok(())
}

/// Ends the command if what was written has not been taken.
pub fn stop_if_gone(written: io::Result<()>) {
    stop_if_gone_with(written, 1);
}

/// The same, with an exit status.
pub fn stop_if_gone_with(written: io::Result<()>, status: i32) {
    if let Err(error) = written {
        stop(&error, status);
    }
}

/// Ends the command, whose output nobody takes.
fn stop(error: &io::Error, status: i32) -> ! {
    if error.kind() != io::ErrorKind::BrokenPipe {
        note!("nasd: can't write to the standard output: {error}");
    }
    std::process::exit(status);
}
