//! `nasd user` and `nasd host`, as the user types them.

use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// `nasd user`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Let a person use the cell from anywhere, as one user: writes a directory to hand over.
    Add {
        /// How the person is called.
        name: String,
        /// The user number in the volume; by default that of NAME on this machine.
        #[arg(long)]
        uid: Option<u32>,
        #[command(flatten)]
        handed: HandedArguments,
    },
    /// Shut a person out, at once.
    Remove {
        /// How the person is called.
        name: String,
        /// Don't ask.
        #[arg(long)]
        yes: bool,
    },
    /// List the people of the cell.
    List,
}

/// `nasd host`.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Let a machine use the cell, for all of its users: writes a directory to take there.
    Add {
        /// The machine's name.
        name: String,
        #[command(flatten)]
        handed: HandedArguments,
    },
    /// Shut a machine out, at once.
    Remove {
        /// The machine's name.
        name: String,
        /// Don't ask.
        #[arg(long)]
        yes: bool,
    },
    /// List the machines of the cell.
    List,
}

/// What is handed over.
#[derive(Debug, Clone, Args)]
pub struct HandedArguments {
    /// Where it goes; by default a directory of that name in the cell's `members`.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How long the certificate is good: 12h, 30d; a year by default.
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::time::parse_duration)]
    pub validity: Option<Duration>,
}
