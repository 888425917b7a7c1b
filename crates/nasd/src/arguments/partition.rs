//! `nasd partition`, as the user types it; and how any command names a running drive and its key.

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use nasd_cell::parse_protection;
use nasd_types::{Compression, PartitionId};
use std::path::PathBuf;

/// A running drive, and by which key it is asked.
#[derive(Debug, Clone, Args)]
pub struct DriveArguments {
    /// A drive of the cell by its number or its 16-digit identifier; or HOST:PORT of any drive,
    /// with --key-file.
    pub drive: String,
    /// A file with the key, 64 hexadecimal digits, that nobody else can read. By default the key
    /// comes from the cell's keyring.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// By which key the drive is asked; a partition's keys are good for its objects alone.
    #[arg(long, value_enum, default_value_t = KeyName::Drive)]
    pub key_kind: KeyName,
}

/// A kind of key by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KeyName {
    /// The administrator's: for everything on the drive.
    Drive,
    /// The partition's, which sets its working keys.
    Partition,
    /// The partition's current working key.
    Working,
}

/// `nasd partition`.
#[derive(Debug, Subcommand)]
pub enum PartitionCommand {
    /// List the partitions of a drive: keys, quota, use, settings.
    List {
        #[command(flatten)]
        drive: DriveArguments,
    },
    /// Make a partition, give it new keys, and keep them in the cell's keyring.
    Create {
        #[command(flatten)]
        drive: DriveArguments,
        /// Its number, chosen by you.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
        /// How many bytes its objects may take: 512M, 10G, or `none` for no limit.
        #[arg(long, default_value = "none", value_parser = parse_quota)]
        quota: u64,
        /// Keep its keys in this keyring file instead; made if it is not there. Needed for a drive
        /// that is not of the cell.
        #[arg(long, value_name = "FILE")]
        keyring: Option<PathBuf>,
    },
    /// Remove a partition with all its objects and keys.
    Remove {
        #[command(flatten)]
        drive: DriveArguments,
        /// Which.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
        /// Agree that all its objects are lost.
        #[arg(long)]
        yes: bool,
    },
    /// Set how many bytes the objects of a partition may take.
    Resize {
        #[command(flatten)]
        drive: DriveArguments,
        /// Which.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
        /// 512M, 10G, or `none` for no limit; not less than is in use.
        #[arg(long, value_parser = parse_quota)]
        quota: u64,
    },
    /// Make everything in a partition durable.
    Flush {
        #[command(flatten)]
        drive: DriveArguments,
        /// Which.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
    },
    /// Set how new data is compressed, and the weakest protection that is accepted.
    #[command(group = ArgGroup::new("settings").required(true).multiple(true))]
    Set {
        #[command(flatten)]
        drive: DriveArguments,
        /// Which.
        #[arg(value_parser = parse_partition)]
        partition: PartitionId,
        /// Of data written from now on.
        #[arg(long, value_enum, group = "settings")]
        compression: Option<CompressionName>,
        /// Of capabilities and requests. Raising it revokes what is weaker.
        #[arg(long, value_parser = parse_protection, group = "settings")]
        minimum_protection: Option<String>,
    },
}

/// A codec by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionName {
    /// Data is stored as it is.
    None,
    /// Quick both ways.
    Lz4,
    /// Smaller.
    Zstd,
}

impl CompressionName {
    /// The codec.
    pub fn codec(self) -> Compression {
        match self {
            CompressionName::None => Compression::None,
            CompressionName::Lz4 => Compression::Lz4,
            CompressionName::Zstd => Compression::Zstd,
        }
    }
}

/// A partition from `7`, or from `p7` (hexadecimal) as it is printed.
pub fn parse_partition(text: &str) -> Result<PartitionId, String> {
    let number = parse_identifier(text, 'p').and_then(|number| u32::try_from(number).ok());
    let wrong =
        || format!("`{text}` is no partition: write a number such as 2, or p2 as it is printed");
    let number = number.filter(|number| *number != 0).map(PartitionId);
    number.filter(|partition| *partition != PartitionId::AUDIT).ok_or_else(wrong)
}

/// A number in decimal; or in hexadecimal behind `letter` or `0x`.
pub(super) fn parse_identifier(text: &str, letter: char) -> Option<u64> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.strip_prefix(letter).or_else(|| text.strip_prefix("0x")) {
        Some(hexadecimal) if digits(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        None if digits(text) => text.parse().ok(),
        _ => None,
    }
}

/// A quota in bytes; all ones for `none`.
pub(super) fn parse_quota(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(nasd_protocol::drive::NO_QUOTA);
    }
    super::parse_size(text).map_err(|error| format!("{error}, or `none` for no limit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_numbers_or_as_printed() {
        for (text, number) in [("2", 2), ("p2", 2), ("pff", 255), ("0x10", 16), ("10", 10)] {
            assert_eq!(parse_partition(text), Ok(PartitionId(number)), "{text}");
        }
        for bad in
            ["", "p", "0", "-1", "+1", "p+1", "ff", "o2", "4294967296", "p1ffffffff", "pffffffff"]
        {
            assert!(parse_partition(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn quotas() {
        assert_eq!(parse_quota("none"), Ok(u64::MAX));
        assert_eq!(parse_quota("1M"), Ok(1 << 20));
        assert!(parse_quota("all").is_err());
    }
}
