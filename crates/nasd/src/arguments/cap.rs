//! `nasd cap`, as the user types it.

use super::parse_size;
use clap::{Args, Subcommand};
use nasd_cell::time::parse_duration;
use nasd_types::ByteRange;
use std::time::Duration;

/// `nasd cap`. A capability (CAP) is a URL or a text that `mint` printed. Given like that, it can be
/// seen in the list of processes while the command runs; `@FILE` reads it from a file, `env:NAME`
/// from an environment variable, `-` from the input.
#[derive(Debug, Subcommand)]
pub enum CapCommand {
    /// Print a URL that lets whoever has it use one file, with no account.
    Mint {
        /// VOLUME:/path.
        path: String,
        #[command(flatten)]
        rights: RightsArguments,
        /// For how long: 90s, 10m, 1h, 2d. No longer than the cell's working keys live.
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = parse_time)]
        lifetime: Duration,
        /// Only these bytes: OFFSET+LENGTH, as in 4K+1M.
        #[arg(long, value_name = "A+L", value_parser = parse_region)]
        region: Option<ByteRange>,
        /// Let nobody on the way read what the capability is for (PRIVACY_CAPABILITY).
        #[arg(long)]
        private: bool,
        /// Print the capability alone, without where it is good.
        #[arg(long)]
        text: bool,
    },
    /// Say what a capability allows. Nobody is asked.
    Show {
        /// CAP.
        cap: String,
    },
    /// Print the same capability with less allowed. Nobody is asked, and nobody can undo it.
    Attenuate {
        /// CAP.
        cap: String,
        #[command(flatten)]
        rights: RightsArguments,
        /// Only these bytes: OFFSET+LENGTH within those that it allows.
        #[arg(long, value_name = "A+L", value_parser = parse_region)]
        region: Option<ByteRange>,
        /// For how long from now, by this machine's clock.
        #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
        lifetime: Option<Duration>,
    },
    /// Make every capability of a file useless, whoever holds it. For its owner and root.
    Revoke {
        /// VOLUME:/path, or a CAP for the file.
        target: String,
    },
}

/// What is allowed.
#[derive(Debug, Clone, Copy, Args)]
pub struct RightsArguments {
    /// Allow reading.
    #[arg(long)]
    pub read: bool,
    /// Allow writing.
    #[arg(long)]
    pub write: bool,
}

/// As durations are written, but not none at all.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err(format!("`{text}` is over at once: write 90s, 10m, 1h or 2d")),
        lifetime => Ok(lifetime),
    }
}

/// `OFFSET+LENGTH`, with units as sizes have them.
pub fn parse_region(text: &str) -> Result<ByteRange, String> {
    let wrong = || format!("`{text}` is no region: write OFFSET+LENGTH, as in 0+4096 or 4K+1M");
    let (offset, length) = text.split_once('+').ok_or_else(wrong)?;
    let (offset, length) = (parse_size(offset)?, parse_size(length)?);
    if length == 0 || offset.checked_add(length).is_none() {
        return Err(wrong());
    }
    Ok(ByteRange::new(offset, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_regions() {
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2d"), Ok(Duration::from_secs(172_800)));
        for bad in ["", "1", "h", "0h", "-1h", "1.5h", "1w", "99999999999999999999d", "9\u{e9}"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_region("4K+1M"), Ok(ByteRange::new(4096, 1 << 20)));
        for bad in ["", "+", "1", "1+0", "+5", "-1+5", "18446744073709551615+1"] {
            assert!(parse_region(bad).is_err(), "{bad}");
        }
    }
}
