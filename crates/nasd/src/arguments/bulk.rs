//! `nasd bulk`, as the user types it.

use super::cap::parse_time;
use super::parse_size;
use clap::{Args, Subcommand};
use nasd_cell::{parse_protection, protection_named};
use nasd_types::Protection;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of the largest block: what a server takes at once, and some.
const MOST_BLOCK: u64 = 1 << 30;

/// `nasd bulk`.
#[derive(Debug, Subcommand)]
pub enum BulkCommand {
    /// Serve the files of an ordinary directory to members of the cell; prints `ready HOST:PORT DIR` when it serves.
    Serve(BulkServeArguments),
    /// Copy big files and trees to this machine, past caches and over several connections at once.
    #[command(after_help = PLACES)]
    Get(BulkCopyArguments),
    /// Copy big files and trees from this machine in the same way. What is copied is durable when it returns.
    #[command(after_help = PLACES)]
    Put(BulkCopyArguments),
    /// Read several files in step, frame by frame at a given rate, and tell which frames were late or dropped.
    #[command(after_help = PLACES)]
    Play(BulkPlayArguments),
}

/// What names a place.
const PLACES: &str = "\
Places:
  VOLUME:/path                    a file of the cell
  bulk://HOST:PORT/path           a file of `nasd bulk serve`, by a certificate of the cell;
                                  bulk://NAME@HOST:PORT/path only where that machine of the cell serves it
  bulk+insecure://HOST:PORT/path  the same of one that serves --anyone: nothing is proved
  nasd://HOST:PORT/NAME#...       what a URL of `nasd cap mint` is for; @FILE and env:NAME say where it is
  -                               the standard input or output
  anything else                   a file of this machine; write ./NAME if it looks like one of these";

/// `nasd bulk serve`.
#[derive(Debug, Clone, Args)]
pub struct BulkServeArguments {
    /// The directory. Nothing outside of it is served, wherever links lead.
    pub dir: PathBuf,
    /// HOST:PORT; 0.0.0.0 serves other machines too, port 0 is any that is free.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7788")]
    pub listen: SocketAddr,
    /// Let nobody change anything.
    #[arg(long)]
    pub read_only: bool,
    /// Let root of other machines be root here; else it is nobody.
    #[arg(long)]
    pub trust_root: bool,
    /// INSECURE: let anybody who can reach the port do what the user nobody may, without TLS and without a cell.
    #[arg(long, conflicts_with = "trust_root")]
    pub anyone: bool,
    /// How long a ticket for a file is good: 90s, 10m, 1h, 2d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_time)]
    pub lifetime: Duration,
    /// How long one is good at most for which more was asked.
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse_time)]
    pub longest_lifetime: Duration,
    /// The weakest protection of requests: integrity-args, integrity-data (of the data too), privacy-data (and integrity of
    /// all), privacy-args, or several joined by `+`.
    #[arg(long, default_value = "integrity-args", value_parser = protection, conflicts_with = "anyone")]
    pub minimum_protection: Protection,
}

/// `nasd bulk get` and `nasd bulk put`.
#[derive(Debug, Clone, Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct BulkCopyArguments {
    /// Copy directories with everything in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// How many parts are under way at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub streams: u16,
    /// Bytes of one read or write.
    #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = parse_block)]
    pub block: u64,
    /// Go on where a transfer was interrupted that was begun with --resume, if the source is the same still.
    #[arg(long)]
    pub resume: bool,
    /// Read what was written back, and compare its BLAKE3 checksum with what was read.
    #[arg(long)]
    pub checksum: bool,
    /// How requests are protected besides what the server demands: integrity-args, integrity-data, privacy-data,
    /// privacy-args, or several joined by `+`.
    #[arg(long, value_name = "OPTIONS", value_parser = protection)]
    pub protection: Option<Protection>,
    /// How long a server is waited for that is away: 90s, 10m.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub patience: Duration,
    /// What to copy, and at last where to: into that, if it is a directory.
    #[arg(required = true, value_name = "SOURCE... DESTINATION")]
    places: Vec<String>,
}

impl BulkCopyArguments {
    /// What to copy.
    pub fn sources(&self) -> &[String] {
        self.places.split_last().map_or(&[], |(_, sources)| sources)
    }

    /// Where to.
    pub fn destination(&self) -> &str {
        self.places.last().map_or("", String::as_str)
    }
}

/// `nasd bulk play`.
#[derive(Debug, Clone, Args)]
pub struct BulkPlayArguments {
    /// Bytes of a frame.
    #[arg(long, value_name = "SIZE", default_value = "1536K", value_parser = parse_block)]
    pub frame: u64,
    /// Frames a second.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rate: u32,
    /// How long; files that end before begin again at their first frame. Without it, until the shortest one ends.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub duration: Option<Duration>,
    /// Frames of each file that are read before they are shown.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub ahead: u64,
    /// Write the frames of the first file to DIR/0, of the second to DIR/1, and so on, each when it is shown; these may be FIFOs.
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// How requests are protected besides what the server demands; see `nasd bulk get`.
    #[arg(long, value_name = "OPTIONS", value_parser = protection)]
    pub protection: Option<Protection>,
    /// How long a server is waited for that is away.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub patience: Duration,
    /// The files: places as below, but for the input and files of this machine.
    #[arg(required = true)]
    pub files: Vec<String>,
}

fn protection(names: &str) -> Result<Protection, String> {
    let names = parse_protection(names)?;
    protection_named(&names).ok_or_else(|| format!("`{names}` is no protection"))
}

/// Blocks are whole pages, so that devices take them as they are.
fn parse_block(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes.is_multiple_of(4096) && (4096..=MOST_BLOCK).contains(&bytes) => Ok(bytes),
        _ => Err(format!("`{text}` is no block: write a multiple of 4K up to 1G, as 4M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_pages() {
        assert_eq!((parse_block("4M"), parse_block("4096")), (Ok(4 << 20), Ok(4096)));
        for wrong in ["0", "1", "4095", "1000", "2G", "-4K", ""] {
            assert!(parse_block(wrong).is_err(), "{wrong}");
        }
    }
}
