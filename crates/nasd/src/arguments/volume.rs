//! `nasd volume`, as the user types it.

use super::partition::parse_quota;
use super::{Stripe, parse_size};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use nasd_types::Personality;

/// How the files of a new volume are spread; as those of the cell's first volume, if nothing is said.
#[derive(Debug, Clone, Args)]
pub struct Spread {
    /// Spread large files over many drives, with or without copies, or not. A cell that was made with
    /// `nasd up --stripe` can.
    #[arg(long, value_enum)]
    pub stripe: Option<Stripe>,
    /// Drives that a large file lies on; all, if not given.
    #[arg(long, value_name = "N", requires = "stripe", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub width: Option<u16>,
    /// How much of a file lies on one drive before it goes on at the next; 512K, if not given.
    #[arg(long, value_name = "SIZE", requires = "stripe", value_parser = parse_size)]
    pub unit: Option<u64>,
    /// With raid1: how often each byte is kept; twice, if not given.
    #[arg(long, value_name = "N", requires = "stripe", value_parser = clap::value_parser!(u16).range(2..=8))]
    pub copies: Option<u16>,
}

/// `nasd volume`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume: a partition on each of its drives, and a root directory that is yours.
    Create {
        /// Its name: letters, digits, `.`, `_` and `-`.
        name: String,
        /// What those who share its files may rely on: with `nfs`, that who opens a file sees what others have closed before;
        /// with `afs`, that nobody ever sees what was there before it was stored, though all keep what they have read.
        #[arg(long, default_value = "nfs", value_parser = personality())]
        personality: Personality,
        /// How many bytes its files may take altogether: 512M, 10G, or `none` for no limit. Each
        /// drive has a share by its size; with `afs` there are no shares, and it is the files' lengths that count.
        #[arg(long, default_value = "none", value_parser = parse_quota)]
        quota: u64,
        /// The drives that its files lie on, by their numbers: 1,3. All that the cell has, if not given.
        #[arg(long, value_name = "N,...", value_delimiter = ',')]
        drives: Vec<u32>,
        #[command(flatten)]
        spread: Spread,
    },
    /// List the volumes: what each may hold, and holds.
    List,
    /// Show where a volume lies.
    Show {
        /// Its name.
        name: String,
    },
    /// Make a volume that is for good what another one is at this moment, and can't be changed. Both share what they have in common,
    /// so that it takes next to no room.
    Snapshot {
        /// The volume.
        name: String,
        /// The new one's name.
        snapshot: String,
    },
    /// Make a volume that begins with what another one, or a snapshot, has at this moment. Both share what they have in common.
    Clone {
        /// The volume, or snapshot.
        name: String,
        /// The new one's name.
        clone: String,
    },
    /// Move what a volume has on one drive to another one, while it is in use: files stay what they are, open or not.
    Move {
        /// Its name.
        name: String,
        /// The drive that it is on, by its number.
        #[arg(long, value_name = "DRIVE")]
        from: u32,
        /// The drive that it is to be on.
        #[arg(long, value_name = "DRIVE")]
        to: u32,
    },
    /// Show how much a volume may hold and what is left of it, or change that, as `resize` does.
    Quota {
        /// Its name.
        name: String,
        /// The new one: 512M, 10G, or `none` for no limit.
        #[arg(value_parser = parse_quota)]
        quota: Option<u64>,
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
    /// Make a name in a volume at which another volume of the cell is seen, by mounts and by `nasd ls`, `cp` and others.
    Attach {
        /// The name, which must not be there yet: VOLUME:/path.
        path: String,
        /// The other volume.
        volume: String,
    },
    /// Remove a name at which a volume is seen. That volume, and all that is in it, stays as it is.
    Detach {
        /// The name: VOLUME:/path.
        path: String,
    },
    /// Change how much a volume may hold.
    Resize {
        /// Its name.
        name: String,
        /// 512M, 10G, or `none` for no limit; not less than is in use, except with `afs`.
        #[arg(long, value_parser = parse_quota)]
        quota: u64,
    },
}

fn personality() -> impl TypedValueParser<Value = Personality> {
    PossibleValuesParser::new(Personality::ALL.map(Personality::name))
        .try_map(|text| text.parse::<Personality>())
}
