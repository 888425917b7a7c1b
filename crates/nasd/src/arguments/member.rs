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
    /// Let a machine use the cell, for all of its users: prints a one-time token, with which the
    /// machine joins (`nasd join`).
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
    /// Write a directory to take there, instead of printing a token; a person's goes to the
    /// cell's `members` by default.
    #[arg(long, value_name = "DIR", conflicts_with = "token")]
    pub out: Option<PathBuf>,
    /// Print a one-time token, with which the person joins, instead of writing a directory.
    #[arg(long)]
    pub token: bool,
    /// How long the token is good.
    #[arg(long, value_name = "DURATION", default_value = "1h",
          value_parser = nasd_cell::time::parse_validity)]
    pub token_for: Duration,
    /// Where the manager is for who joins, HOST:PORT, if it is not what `cell.toml` says.
    #[arg(long, value_name = "HOST:PORT")]
    pub manager: Option<String>,
    /// How long the certificate is good: 12h, 30d; a year by default.
    #[arg(long = "for", value_name = "DURATION", value_parser = nasd_cell::time::parse_validity)]
    pub validity: Option<Duration>,
}
