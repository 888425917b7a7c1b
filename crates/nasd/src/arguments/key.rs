//! `nasd key`, as the user types it.

use super::partition::parse_partition;
use clap::{Args, Subcommand, ValueEnum};
use nasd_types::PartitionId;
use std::path::PathBuf;

/// `nasd key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Show which keys there are: epochs, ages, what comes next. Never a key itself.
    Show,
    /// Have the manager change the working keys of all drives.
    Rotate {
        /// Twice, so that no capability given out before is good any more. Clients that may have
        /// new ones get them by themselves.
        #[arg(long)]
        now: bool,
    },
    /// Replace the cell's authority: first a new one beside the old, then, when all members have
    /// renewed their certificates (`nasd renew`), in its place.
    RotateAuthority {
        /// The second step: trust the new one alone.
        #[arg(long)]
        finish: bool,
        /// Agree that members without a new certificate are shut out.
        #[arg(long, requires = "finish")]
        yes: bool,
    },
    /// Give the cell's own administrator or machine another certificate, and shut out whoever has
    /// an earlier one, at once: for one that was stolen.
    RotateCertificate {
        /// Whose.
        #[arg(value_enum)]
        whose: OwnCertificate,
        /// Agree that mounts of this machine, which go by the certificate that they have read, are
        /// shut out too.
        #[arg(long)]
        yes: bool,
    },
    /// Encrypt the keyring, under a passphrase or a systemd credential. The cell must be stopped.
    Seal {
        /// Under the systemd credential of this name, instead of a passphrase.
        #[arg(long, value_name = "NAME")]
        credential: Option<String>,
    },
    /// Keep the keyring unencrypted again. The cell must be stopped.
    Unseal,
    /// Initialize a drive: a new master key, by the present one. Everything on the drive is lost. A
    /// drive of the cell comes back into it, empty.
    Init {
        #[command(flatten)]
        place: KeyArguments,
        /// Agree that everything on the drive is lost.
        #[arg(long)]
        yes: bool,
    },
    /// Give a drive of the cell that lost its keys others, by its master key: drive key, partition
    /// key, and, if they are gone, the volume's partition and its working key. Nothing is lost.
    Readmit {
        /// A drive of the cell by its number or its 16-digit identifier.
        drive: String,
        /// A file with its master key, if master-keys.toml is not in the cell's directory.
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Set a drive's drive key, by its master key.
    SetDrive {
        #[command(flatten)]
        place: KeyArguments,
    },
    /// Set a partition's key, by the drive key.
    SetPartition {
        #[command(flatten)]
        place: KeyArguments,
        /// Which partition.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
    },
    /// Set the working key of a partition that was made by hand, by its partition key. The one
    /// before becomes the previous one.
    SetWorking {
        #[command(flatten)]
        place: KeyArguments,
        /// Which partition.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
        /// Its epoch, above that of the one before: needed with --new-key-file.
        #[arg(long, requires = "new_key_file")]
        epoch: Option<u32>,
    },
}

/// Certificates that are in the cell's own directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OwnCertificate {
    /// The administrator's (`tls/admin.key`): changes keys and members.
    Admin,
    /// This machine's (`tls/host.key`): speaks for all of its users.
    Host,
}

/// A running drive, by which key it is asked, and which it gets.
#[derive(Debug, Clone, Args)]
pub struct KeyArguments {
    /// A drive of the cell by its number or its 16-digit identifier; or HOST:PORT of any drive,
    /// with --key-file and --new-key-file.
    pub drive: String,
    /// A file with the key that has authority over the new one, 64 hexadecimal digits, that nobody
    /// else can read. By default it comes from the cell's keyring; the master key from
    /// master-keys.toml, while that is in the cell's directory.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// A file with the new key, likewise. By default it is drawn at random. For a drive of the cell
    /// either is kept in the keyring; a new master key that is drawn, in master-keys.toml.
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,
}
