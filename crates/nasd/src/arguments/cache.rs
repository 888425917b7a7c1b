//! `nasd cache`, as the user types it.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `nasd cache`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CacheArguments {
    /// What to do with them; `show` if nothing is said.
    #[command(subcommand)]
    pub command: Option<CacheCommand>,
    /// As with `show`.
    pub directory: Option<PathBuf>,
}

/// The commands of `nasd cache`.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Show whose a cache is, what is in it, and whether it is in use.
    Show {
        /// The cache directory; all of this user's, if none is named, or with --cell those of that cell.
        directory: Option<PathBuf>,
    },
    /// Remove what is in a cache that nobody uses.
    Empty {
        /// Agree without being asked.
        #[arg(long)]
        yes: bool,
        /// The cache directory; all of this user's, if none is named, or with --cell those of that cell.
        directory: Option<PathBuf>,
    },
}
