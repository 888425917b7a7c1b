//! The `nasd` command.

mod arguments;
mod commands;
mod descriptors;
mod detach;
mod drive_session;
mod fsck;
mod health;
mod host_names;
mod memory;
mod metrics;
mod notify;
mod output;
mod shared_file;
mod shutdown;
mod supervisor;

use crate::output::note;
use clap::Parser;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    if let Some(helper) = arguments::helper_name(&program) {
        return commands::helper::run(helper);
    }
    let arguments = arguments::Arguments::parse();
    start_log();
    descriptors::raise_limit();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note!("nasd: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Events go to standard error: the members' logs, or the terminal. `NASD_LOG` chooses what is
/// told, `NASD_LOG=debug` most.
fn start_log() {
    let filter =
        EnvFilter::try_from_env("NASD_LOG").unwrap_or_else(|_| EnvFilter::new("warn,nasd=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // There is nowhere else to tell them.
        .log_internal_errors(false)
        .init();
}
