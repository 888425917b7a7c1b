//! The command line, as the user types it. Each command's meaning is in `commands/`.

mod acl;
mod audit;
mod bulk;
mod cache;
mod cap;
mod check;
mod component;
mod grep;
mod helper;
mod hint;
mod key;
mod member;
mod object;
mod partition;
mod scan;
mod volume;

pub use acl::AclCommand;
pub use audit::{AuditTrailArguments, Ending, status_name, words};
pub use bulk::{BulkCommand, BulkCopyArguments, BulkPlayArguments, BulkServeArguments};
pub use cache::{CacheArguments, CacheCommand};
pub use cap::{CapCommand, RightsArguments};
pub use check::CheckArguments;
pub use component::{AddArguments, DrainArguments, StripingSetArguments};
pub use grep::{GrepArguments, MatchingArguments, ShowingArguments};
pub use helper::{MOUNT_NAME, MountHelper, UmountHelper, Wanted, helper_name};
pub use hint::HintArguments;
pub use key::{KeyArguments, KeyCommand, OwnCertificate};
pub use member::{HandedArguments, HostCommand, UserCommand};
pub use object::{
    AttributeArguments, ExtendOptions, FileRanges, ObjectCommand, ObjectPlace, RegionArguments,
};
pub use partition::{DriveArguments, KeyName, PartitionCommand};
pub use scan::{FormatArguments, RecordFormat, ScanArguments};
pub use volume::{Spread, VolumeCommand};

use clap::{Args, Parser, Subcommand, ValueEnum};
use nasd_cell::parse_protection;
use nasd_clerk::Route;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Network-attached secure disks: clients move data straight to and from the drives, which check
/// every request alone.
#[derive(Debug, Parser)]
#[command(name = "nasd", version, max_term_width = 100)]
pub struct Arguments {
    /// The cell's directory.
    #[arg(long, global = true, value_name = "DIR", env = "NASD_CELL")]
    pub cell: Option<PathBuf>,
    /// Print facts as JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a cell in DIR at first use, start it, and print `ready` when it serves.
    Up(UpArguments),
    /// Stop a cell that runs in the background.
    Down {
        /// The cell's directory.
        dir: Option<PathBuf>,
    },
    /// Show drives, space, volumes, managers, health, and bytes by path.
    Status {
        /// Tell the state by the exit status: 0 for HEALTHY, 3 for WARNING, 4 for ERROR.
        #[arg(long)]
        check: bool,
    },
    /// Show what the cell does: requests, latency, data by client and drive, direct or through the manager.
    Top(TopArguments),
    /// Tell what a health code of `nasd status` means, and what to do.
    Explain {
        /// The code; without one, all are listed.
        code: Option<String>,
        /// Write docs/health.md.
        #[arg(long, hide = true)]
        document: bool,
    },
    /// Mount a volume of the cell.
    Mount(MountArguments),
    /// Unmount it: what was written is made durable first.
    Umount {
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
    /// List a directory: VOLUME:/path.
    Ls {
        /// Show mode, owner, size and time.
        #[arg(short, long)]
        long: bool,
        /// VOLUME:/path.
        path: String,
    },
    /// Print files. A capability's URL needs no account; `nasd cap` says how to hide it from others.
    Cat {
        /// VOLUME:/path of each, or a URL that `nasd cap mint` printed.
        #[arg(required = true)]
        paths: Vec<String>,
        /// The way of the data: straight from the drives, or through the manager.
        #[arg(long, value_enum, default_value_t)]
        path: DataRoute,
    },
    /// Copy files and trees, to or from the cell.
    Cp {
        /// Copy directories with everything in them.
        #[arg(short, long)]
        recursive: bool,
        /// The way of the data: straight to and from the drives, or through the manager.
        #[arg(long, value_enum, default_value_t)]
        path: DataRoute,
        /// What to copy: local paths, VOLUME:/path, or a URL that `nasd cap mint` printed.
        #[arg(required = true)]
        sources: Vec<String>,
        /// Where to: a local path, VOLUME:/path, or such a URL.
        destination: String,
    },
    /// Remove files.
    Rm {
        /// Remove directories with everything in them.
        #[arg(short, long)]
        recursive: bool,
        /// Don't ask before removing a tree.
        #[arg(long)]
        yes: bool,
        /// VOLUME:/path of each.
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Make directories.
    Mkdir {
        /// Make parents too, and don't mind what is there.
        #[arg(short, long)]
        parents: bool,
        /// VOLUME:/path of each.
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Have an extension of the drives that have files' bytes do something with them; prints what each drive told.
    Extend {
        /// VOLUME:/path of each; one may be there several times, with other ranges.
        #[arg(required = true)]
        paths: Vec<String>,
        #[command(flatten)]
        extension: ExtendOptions,
        #[command(flatten)]
        ranges: FileRanges,
    },
    /// Have the drives select from a structured file (CSV, JSON lines, fixed records), or sum it up, by SQL.
    Scan(ScanArguments),
    /// Have the drives search files for lines that match a regular expression; letters as those of grep.
    #[command(disable_help_flag = true)]
    Grep(GrepArguments),
    /// Tell a mount what will be read, in order, so that it is there when it is.
    Hint(HintArguments),
    /// Show what a file is and where it lies.
    Stat {
        /// VOLUME:/path.
        path: String,
    },
    /// Format, serve or inspect one drive.
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Make, show, resize and remove volumes: each a name space of its own.
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Manage the partitions of a running drive.
    #[command(subcommand)]
    Partition(PartitionCommand),
    /// Make, read, write and manage objects of a running drive.
    #[command(subcommand)]
    Object(ObjectCommand),
    /// Show and set the access control lists of directories, as AFS has them.
    #[command(subcommand)]
    Acl(AclCommand),
    /// Share single files by capabilities: make, show, narrow and revoke them.
    #[command(subcommand)]
    Cap(CapCommand),
    /// Show the keys of the cell and its drives, and change them.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Say which people may use the cell.
    #[command(subcommand)]
    User(UserCommand),
    /// Say which machines may use the cell.
    #[command(subcommand)]
    Host(HostCommand),
    /// Show who did what on the drives, and who was refused.
    Audit(AuditTrailArguments),
    /// Become a member of a cell, by the token that its owner has given.
    Join {
        /// The word that `nasd host add` or `nasd user add --token` printed. It is a secret, which
        /// the list of processes shows: `@FILE` reads it from a file, `env:NAME` from the
        /// environment, `-` from the input.
        token: String,
        /// Where the new member's directory goes; default is the cell's usual directory.
        dir: Option<PathBuf>,
    },
    /// Renew this member's certificate; it also comes by itself in time.
    Renew,
    /// Check the names of a volume against what its drives hold, and repair them, while it is in use.
    Fsck(FsckArguments),
    /// Check the device of a drive that is not being served, and repair it.
    Check(CheckArguments),
    /// Serve the file manager.
    #[command(subcommand)]
    Manager(ManagerCommand),
    /// Serve a virtual drive, over others of the cell.
    #[command(subcommand)]
    Striping(StripingCommand),
    /// Serve a directory to the cell, or copy big files, by the bulk service: at the speed of disk and wire.
    #[command(subcommand)]
    Bulk(BulkCommand),
    /// Show or empty what clients of volumes of the personality afs keep on this machine's disk.
    Cache(CacheArguments),
    /// Measure rows beside their limits.
    Bench(BenchArguments),
    /// Print the script that completes this command line in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the man page of a command, or write all of them into a directory.
    Man {
        /// The command, as `drive serve`; the main page if none is named.
        command: Vec<String>,
        /// Write every page there.
        #[arg(long, conflicts_with = "command")]
        dir: Option<PathBuf>,
    },
    /// Try it: a temporary cell, real files in and out, and a table of what happened.
    Demo(DemoArguments),
}

/// `nasd up`.
#[derive(Debug, Clone, Args)]
pub struct UpArguments {
    /// The cell's directory.
    pub dir: Option<PathBuf>,
    /// How many drives a new cell gets.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub drives: u32,
    /// Size of each new drive.
    #[arg(long, default_value = "8G", value_parser = parse_size)]
    pub size: u64,
    /// Use this device or file as a drive of the new cell (repeat it). All on it is lost.
    #[arg(long = "device", value_name = "PATH")]
    pub devices: Vec<PathBuf>,
    /// Needed with --device: agree that everything on the devices is lost.
    #[arg(long)]
    pub yes: bool,
    /// Data cache of each drive of a new cell; default is a quarter of this machine's memory for
    /// all of them together.
    #[arg(long, value_parser = parse_size)]
    pub cache: Option<u64>,
    /// The address that a new cell listens on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub host: IpAddr,
    /// The manager's port in a new cell; drive N gets this plus N. 7300, if not given.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub base_port: Option<u16>,
    /// How clients of a new cell protect requests and replies: none, integrity-args, integrity-data
    /// (of the arguments too), privacy-data (and integrity of all), privacy-args (and their
    /// integrity), or several joined by `+`.
    #[arg(long, default_value = "integrity-args", value_parser = parse_protection)]
    pub protection: String,
    /// How often the manager of a new cell changes the drives' working keys, which nobody notices:
    /// 12h, 7d, or `never`.
    #[arg(long, value_name = "INTERVAL", default_value = "1d", value_parser = interval)]
    pub rotate_keys_every: String,
    /// How files are spread over the drives of a new cell.
    #[arg(long, value_enum, default_value_t = Stripe::None)]
    pub stripe: Stripe,
    /// With --stripe: drives that a large file lies on; all, if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub stripe_width: Option<u16>,
    /// With --stripe: how much of a file lies on one drive before it goes on at the next; 512K, if not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub stripe_unit: Option<u64>,
    /// With --stripe raid1: how often each byte is kept; twice, if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=8))]
    pub copies: Option<u16>,
    /// Mount the volume here too.
    #[arg(long, value_name = "PATH")]
    pub mount: Option<PathBuf>,
    /// Each drive is as slow as a disk of 7200 turns a minute: for trying out and measuring.
    #[arg(long)]
    pub emulate_disk: bool,
    /// Serve metrics too, at /metrics: the manager's on this port, those of drive N on this port plus N.
    #[arg(long, value_name = "PORT")]
    pub metrics_base_port: Option<u16>,
    /// Return when it serves, and go on in the background.
    #[arg(long)]
    pub detach: bool,
}

/// How files are spread over drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stripe {
    /// Each file is on one drive; files are spread over all.
    None,
    /// Each large file is on many drives at once, for speed; what is on a drive that dies is lost.
    Raid0,
    /// The same, and every byte is on two of them: one drive may die.
    Raid1,
}

/// `nasd top`.
#[derive(Debug, Clone, Args)]
pub struct TopArguments {
    /// Show one interval, and end; with --json one object instead of one a line.
    #[arg(long)]
    pub once: bool,
    /// Seconds between two looks, from 0.1 to 86400.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Ask the drives' metrics for their latency: drive N's on this port plus N, as with `nasd up`.
    #[arg(long, value_name = "PORT")]
    pub metrics_base_port: Option<u16>,
}

/// The way that data of files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum DataRoute {
    /// Straight between this machine and the drives.
    #[default]
    Direct,
    /// Through the manager, for machines that can't reach the drives, and for comparison.
    Manager,
}

impl From<DataRoute> for Route {
    fn from(route: DataRoute) -> Route {
        match route {
            DataRoute::Direct => Route::Direct,
            DataRoute::Manager => Route::Manager,
        }
    }
}

/// `nasd mount`.
#[derive(Debug, Clone, Args)]
pub struct MountArguments {
    /// An empty directory.
    pub mountpoint: PathBuf,
    /// The volume; the cell's first if none is named.
    #[arg(long)]
    pub volume: Option<String>,
    /// Return when it is mounted, and go on in the background.
    #[arg(long)]
    pub detach: bool,
    /// Take a mount of this volume over from the process that serves it, while programs use it: for
    /// upgrades.
    #[arg(long)]
    pub takeover: bool,
    /// Options, separated by commas: hard (wait for a drive that is away until it is back, or the
    /// program is interrupted; the default), soft,timeo=SECONDS (an I/O error after that), ro, rw, allow_other, private, suid, nosuid, exec, noexec,
    /// dev, nodev, relatime (the default), noatime, strictatime (when reading moves access times), cached, direct (around the kernel's page cache), path=manager (data go through the manager, for
    /// machines that can't reach the drives), path=direct, threads=N, metrics=HOST:PORT or metrics=/SOCKET
    /// (serve there what the mount counts, as text for Prometheus); of a volume of the personality afs also cache=/DIRECTORY, cache_size=SIZE
    /// (what is kept of files on this machine's disk; 4G where `nasd cache` looks, if nothing is said), cache=memory (none there), cache_memory=SIZE (128M).
    #[arg(short = 'o', value_delimiter = ',')]
    pub options: Vec<String>,
    /// What `mount` and `df` show as the source.
    #[arg(long, hide = true)]
    pub source: Option<String>,
}

/// `nasd fsck`.
#[derive(Debug, Clone, Args)]
pub struct FsckArguments {
    /// The volume.
    pub volume: String,
    /// Repair what is found, after showing the plan and asking.
    #[arg(long)]
    pub repair: bool,
    /// Repair without asking.
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Remove files that no name leads to; else those with something in them get names in lost+found.
    #[arg(long, requires = "repair")]
    pub remove_orphans: bool,
}

/// `nasd drive`.
#[derive(Debug, Subcommand)]
pub enum DriveCommand {
    /// Make a device into a drive of the cell: adds it to cell.toml and keyring.toml.
    Format {
        /// A block device or a file.
        device: PathBuf,
        /// Make the file with this size if it does not exist.
        #[arg(long, value_parser = parse_size)]
        size: Option<u64>,
        /// Where the drive will listen; default is the next free port of the cell.
        #[arg(long)]
        address: Option<SocketAddr>,
        /// Bytes of its data cache; default is as for one more drive of the cell's machine.
        #[arg(long, value_parser = parse_size)]
        cache: Option<u64>,
        /// Agree that everything on the device is lost.
        #[arg(long)]
        yes: bool,
    },
    /// Add a drive to those that files are spread over, while the cell runs: what it is to have moves to it.
    Add(AddArguments),
    /// Move all that a drive has to the others, while the cell runs; one that is lost, too, where there are copies.
    Drain(DrainArguments),
    /// Forget a drive that has nothing any more.
    Remove {
        /// The drive's index in the cell, as `nasd status` shows it.
        index: u32,
    },
    /// Serve a formatted device.
    Serve(DriveServeArguments),
    /// Set what a running drive demands of all requests.
    Set {
        #[command(flatten)]
        drive: DriveArguments,
        /// Of capabilities and requests, whatever their partition. Raising it revokes what is weaker.
        #[arg(long, value_parser = parse_protection)]
        minimum_protection: String,
    },
    /// Let a stopped drive use more of its device, or less; a file grows or is cut to that size.
    Resize {
        /// The device of a drive that is not being served.
        device: PathBuf,
        /// Bytes of the device that it uses from then on.
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Agree that the device is cut, without being asked.
        #[arg(long)]
        yes: bool,
    },
    /// Show what a drive's device holds: geometry, log, space, partitions. Nothing is written.
    Inspect {
        /// The device of a drive that is not being served.
        device: PathBuf,
    },
}

/// `nasd drive serve`.
#[derive(Debug, Clone, Args)]
pub struct DriveServeArguments {
    /// The device.
    pub device: PathBuf,
    /// HOST:PORT.
    #[arg(long, default_value = "127.0.0.1:7301")]
    pub listen: SocketAddr,
    /// How many bytes a second are read back and compared with their checksums while the drive is
    /// idle; 0 for none.
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = parse_size)]
    pub scrub_rate: u64,
    /// Serve metrics here, at http://HOST:PORT/metrics, as text for Prometheus.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Bytes of data cache.
    #[arg(long, default_value = "256M", value_parser = parse_size)]
    pub cache: u64,
    /// Read from the device no more than so many bytes a second, to measure as with a slower one.
    #[arg(long, value_name = "BYTES", value_parser = parse_size, hide = true, conflicts_with = "emulate_disk")]
    pub device_rate: Option<u64>,
    /// The weakest protection that it accepts. With `none`, capabilities can be made up by anybody
    /// who can reach it.
    #[arg(long, default_value = "integrity-args", value_parser = parse_protection)]
    pub minimum_protection: String,
    /// Refuse a drive of another cell.
    #[arg(long, value_name = "CELL-ID")]
    pub expect_cell: Option<String>,
    /// Refuse another drive.
    #[arg(long, value_name = "DRIVE-ID")]
    pub expect_drive: Option<String>,
    /// Every read, write and sync takes as long as on a disk of 7200 turns a minute: for trying out and
    /// measuring.
    #[arg(long)]
    pub emulate_disk: bool,
}

/// `nasd manager`.
#[derive(Debug, Subcommand)]
pub enum ManagerCommand {
    /// Serve the cell's volumes.
    Serve {
        /// Serve metrics here, at http://HOST:PORT/metrics, as text for Prometheus.
        #[arg(long, value_name = "HOST:PORT")]
        metrics: Option<SocketAddr>,
    },
}

/// `nasd striping`.
#[derive(Debug, Subcommand)]
pub enum StripingCommand {
    /// Serve a virtual drive of the cell.
    Serve(StripingServeArguments),
    /// Say when lost drives are replaced, and how fast drives are given what they lack.
    Set(StripingSetArguments),
    /// Write the device of the striping manager's own store to a new file, for `nasd check` and `nasd drive inspect`.
    Export {
        /// The file.
        file: PathBuf,
    },
}

/// `nasd striping serve`.
#[derive(Debug, Clone, Args)]
pub struct StripingServeArguments {
    /// The virtual drive's index in the cell.
    pub index: u32,
    /// Serve metrics here, at http://HOST:PORT/metrics, as text for Prometheus.
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<SocketAddr>,
}

/// `nasd bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArguments {
    /// Rows to measure; all that this version has, if none is named.
    pub rows: Vec<String>,
    /// Where the device file and the limits' files go: the disk that is measured.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Each drive is as slow as a disk of 7200 turns a minute; the limits are not.
    #[arg(long)]
    pub emulate_disk: bool,
    /// Run the Andrew benchmark once in this directory, of whichever file system, and print how long each phase took. It
    /// starts no drive and measures no rows.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rows", "dir", "emulate_disk", "plot"])]
    pub andrew: Option<PathBuf>,
    /// Draw the figures of the rows that differ in the number of clients alone into this directory.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
}

/// `nasd demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArguments {
    /// The tree to copy in; default: the Rust library's sources or /usr/include.
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Where the temporary cell goes; needs room for the files.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Size of the generated file.
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    pub big_file: u64,
}

/// An interval as `cell.toml` has it.
fn interval(text: &str) -> Result<String, String> {
    nasd_cell::time::parse_interval(text).map(|_| text.to_owned())
}

/// How long is waited between two looks.
fn seconds(text: &str) -> Result<Duration, String> {
    let told = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let wrong = || format!("`{text}` is no number of seconds from 0.1 to 86400");
    told.map(Duration::from_secs_f64).ok_or_else(wrong)
}

/// Bytes from `512`, `64K`, `10M`, `8G` or `1T` (powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is no size: write 512M, 8G or 1T"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn who_looks_on_waits_some_time_between_two_looks() {
        let parsed = |interval: &str| {
            let words =
                ["nasd", "top", "--once", &format!("--interval={interval}")].map(str::to_owned);
            Arguments::try_parse_from(words).map(drop).map_err(|error| error.to_string())
        };
        for wrong in ["inf", "nan", "1e300", "0", "-1", "abc", ""] {
            let told = parsed(wrong).unwrap_err();
            assert!(told.contains("seconds"), "{wrong}: {told}");
        }
        assert_eq!([parsed("0.1"), parsed("86400")], [Ok(()), Ok(())]);
    }

    #[test]
    fn a_device_is_made_slow_in_one_way_alone() {
        let parsed = |more: &[&str]| {
            let serve = ["nasd", "drive", "serve", "device", "--cell", "cell"];
            Arguments::try_parse_from(serve.iter().chain(more)).map(drop)
        };
        let both = parsed(&["--device-rate", "1G", "--emulate-disk"]).unwrap_err();
        assert_eq!(both.kind(), clap::error::ErrorKind::ArgumentConflict);
        for one in [&["--device-rate", "1G"][..], &["--emulate-disk"]] {
            assert!(parsed(one).err().is_none_or(|error| error.kind() != both.kind()));
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("1k"), Ok(1024));
        for bad in ["", "G", "-1", "1.5G", "99999999999999T", "8GB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
