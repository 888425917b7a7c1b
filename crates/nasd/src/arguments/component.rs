//! `nasd drive add` and `drain`, and `nasd striping set`, as the user types them.

use clap::Args;
use nasd_cell::time::parse_interval;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::parse_size;

/// `nasd drive add`.
#[derive(Debug, Args)]
pub struct AddArguments {
    /// A block device or a file; a file in the cell's directory is made if none is given.
    pub device: Option<PathBuf>,
    /// Make the file with this size if it does not exist; default is 8 GiB.
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// Where the drive will listen; default is the next free port of the cell.
    #[arg(long)]
    pub address: Option<SocketAddr>,
    /// Bytes of its data cache; default is as for one more drive of the cell's machine.
    #[arg(long, value_parser = parse_size)]
    pub cache: Option<u64>,
    /// It gets nothing until another drive has been out for some time, and takes its place then.
    #[arg(long)]
    pub spare: bool,
    /// Agree that everything on the device is lost.
    #[arg(long)]
    pub yes: bool,
    /// Return when it has its share.
    #[arg(long)]
    pub wait: bool,
}

/// `nasd drive drain`.
#[derive(Debug, Args)]
pub struct DrainArguments {
    /// The drive's index in the cell, as `nasd status` shows it.
    pub index: u32,
    /// It is to keep its share after all.
    #[arg(long)]
    pub cancel: bool,
    /// Return when nothing is left there.
    #[arg(long)]
    pub wait: bool,
}

/// `nasd striping set`.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct StripingSetArguments {
    /// For how long a drive is out before a spare takes its place: 10m, 2h, or `never`.
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    pub replace_after: Option<String>,
    /// How many bytes a second are looked at, at most, to give drives what they lack; 0 for as many as can be.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub rebuild_limit: Option<u64>,
}

fn interval(text: &str) -> Result<String, String> {
    parse_interval(text).map(|_| text.to_owned())
}
