//! `nasd volume`, as the user types it.

use super::partition::parse_quota;
use crate::cell::Personality;
use clap::Subcommand;

/// `nasd volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume: a partition on each drive, and a root directory that is yours.
    Create {
        /// Its name: letters, digits, `.`, `_` and `-`.
        name: String,
        /// What those who share its files may rely on.
        #[arg(long, value_enum, default_value_t)]
        personality: Personality,
        /// How many bytes its files may take altogether: 512M, 10G, or `none` for no limit. Each
        /// drive has a share by its size.
        #[arg(long, default_value = "none", value_parser = parse_quota)]
        quota: u64,
    },
    /// List the volumes: what each may hold, and holds.
    List,
    /// Show where a volume lies.
    Show {
        /// Its name.
        name: String,
    },
    /// Remove a volume with all that is in it.
    Remove {
        /// Its name. The cell's first volume stays.
        name: String,
        /// Agree that the volume is lost, without being asked.
        #[arg(long)]
        yes: bool,
        /// Needed where there are files in it.
        #[arg(long)]
        with_files: bool,
    },
    /// Change how much a volume may hold.
    Resize {
        /// Its name.
        name: String,
        /// 512M, 10G, or `none` for no limit; not less than is in use.
        #[arg(long, value_parser = parse_quota)]
        quota: u64,
    },
}
