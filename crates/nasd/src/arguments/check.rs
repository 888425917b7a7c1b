//! `nasd check`, as the user types it.

use clap::Args;
use std::path::PathBuf;

/// `nasd check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArguments {
    /// The device or file of a drive that is not being served.
    pub image: PathBuf,
    /// Mend what can be mended, once the plan has been shown and agreed to.
    #[arg(long)]
    pub repair: bool,
    /// Agree to the plan of --repair without being asked.
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// With --repair: make holes of blocks whose contents are lost, so that they read as zeros
    /// instead of failing.
    #[arg(long, requires = "repair")]
    pub punch: bool,
    /// Check everything but the contents of data blocks, which takes as long as reading them.
    #[arg(long)]
    pub no_data: bool,
}
