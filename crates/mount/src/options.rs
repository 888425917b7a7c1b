//! How to mount.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nasd_clerk::Route;

use crate::AccessTimes;

/// How long a soft mount waits, unless `timeo` says otherwise.
const SOFT: Duration = Duration::from_secs(60);

/// Longer than any machine runs: a hundred years.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// How the data of files goes between applications and the clerk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataPath {
    /// Through the kernel's page cache, except for files that are opened with `O_DIRECT`.
    #[default]
    Cached,
    /// Around the page cache, except for memory mappings.
    Direct,
}

/// Where a mount tells what it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAddress {
    /// To whoever reaches this address.
    Tcp(SocketAddr),
    /// To whoever may open this socket.
    Unix(PathBuf),
}

impl MetricsAddress {
    /// `HOST:PORT`, by numbers, or the absolute path of a socket.
    pub fn parse(text: &str) -> Option<MetricsAddress> {
        if text.starts_with('/') {
            return Some(MetricsAddress::Unix(text.into()));
        }
        text.parse().ok().map(MetricsAddress::Tcp)
    }
}

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricsAddress::Tcp(address) => address.fmt(f),
            MetricsAddress::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Where contents of files are kept on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CachePlace {
    /// Where the user's caches are.
    #[default]
    Usual,
    /// In this directory.
    Directory(PathBuf),
    /// In memory alone.
    Memory,
}

impl CachePlace {
    fn parse(text: &str) -> Option<CachePlace> {
        match text {
            "memory" => Some(CachePlace::Memory),
            path if path.starts_with('/') => Some(CachePlace::Directory(path.into())),
            _ => None,
        }
    }
}

/// Bytes, as `512M` and the like.
fn bytes(text: &str) -> Option<u64> {
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (number, shift) = unit.unwrap_or((text, 0));
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Most bytes that a mount keeps of files' contents, if nothing is said.
const CACHE_DISK_BYTES: u64 = 4 << 30;
const CACHE_MEMORY_BYTES: u64 = 128 << 20;

/// How to mount a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The directory that becomes the volume's root.
    pub mountpoint: PathBuf,
    /// Nothing may be changed through this mount.
    pub read_only: bool,
    /// Users other than the one who mounts may use it; what they may do, their uid decides.
    pub allow_other: bool,
    /// Programs may not be run from the mount.
    pub no_exec: bool,
    /// Set-user-id programs run as their owner.
    pub allow_suid: bool,
    /// Device files lead to devices.
    pub allow_devices: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
    /// The way of data between applications and the clerk.
    pub data_path: DataPath,
    /// Their way between the clerk and the drives; for whoever makes the clerk.
    pub route: Route,
    /// Operations that run side by side without being handed to another thread; by default the
    /// number of processors, between 2 and 8.
    pub threads: Option<usize>,
    /// How long a program waits for a drive or the manager that is away before it gets an I/O
    /// error; none waits until it is back. Interrupting the program ends its wait either way.
    pub patience: Option<Duration>,
    /// Where to tell what is counted; for whoever serves that.
    pub metrics: Option<MetricsAddress>,
    /// What is kept of files' contents where the volume has callbacks; for whoever makes the clerk.
    pub cache: CachePlace,
    /// Most bytes of that on the disk.
    pub cache_disk_bytes: u64,
    /// Most bytes of that in memory.
    pub cache_memory_bytes: u64,
    /// What `df` and `mount` show as the source.
    pub source: String,
}

/// An `-o` option that the mount does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown mount option {0:?}; there are: {known}", known = MountOptions::KNOWN)]
pub struct UnknownOption(pub String);

impl MountOptions {
    const KNOWN: &'static str = "ro, rw, allow_other, private, suid, nosuid, exec, noexec, dev, \
        nodev, relatime, noatime, strictatime, defaults, cached, direct, path=direct, path=manager, \
        hard, soft, timeo=SECONDS, threads=N, metrics=HOST:PORT, metrics=/SOCKET, \
        cache=/DIRECTORY, cache=memory, cache_size=SIZE, cache_memory=SIZE";

    /// The usual way: writable, and for everybody if root mounts it.
    pub fn new(mountpoint: impl Into<PathBuf>) -> Self {
        // SAFETY: has no preconditions and can't fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        MountOptions {
            mountpoint: mountpoint.into(),
            read_only: false,
            allow_other: is_root,
            no_exec: false,
            allow_suid: false,
            allow_devices: false,
            access_times: AccessTimes::default(),
            data_path: DataPath::default(),
            route: Route::default(),
            threads: None,
            patience: None,
            metrics: None,
            cache: CachePlace::Usual,
            cache_disk_bytes: CACHE_DISK_BYTES,
            cache_memory_bytes: CACHE_MEMORY_BYTES,
            source: "nasd".into(),
        }
    }

    /// Applies a list of options as `mount -o` has them, separated by commas.
    ///
    /// # Errors
    ///
    /// The first option that is not known.
    pub fn apply(&mut self, list: &str) -> Result<(), UnknownOption> {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            self.apply_one(option).ok_or_else(|| UnknownOption(option.to_owned()))?;
        }
        Ok(())
    }

    fn apply_one(&mut self, option: &str) -> Option<()> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "private" => self.allow_other = false,
            "suid" => self.allow_suid = true,
            "nosuid" => self.allow_suid = false,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "cached" => self.data_path = DataPath::Cached,
            "direct" => self.data_path = DataPath::Direct,
            "dev" => self.allow_devices = true,
            "nodev" => self.allow_devices = false,
            "relatime" => self.access_times = AccessTimes::Relative,
            "noatime" => self.access_times = AccessTimes::Never,
            "strictatime" => self.access_times = AccessTimes::Strict,
            "defaults" => {}
            "hard" => self.patience = None,
            "soft" => self.patience = Some(self.patience.unwrap_or(SOFT)),
            option => match option.split_once('=')? {
                ("path", "direct") => self.route = Route::Direct,
                ("path", "manager") => self.route = Route::Manager,
                ("metrics", address) => self.metrics = Some(MetricsAddress::parse(address)?),
                ("cache", place) => self.cache = CachePlace::parse(place)?,
                ("cache_size", size) => self.cache_disk_bytes = bytes(size)?,
                ("cache_memory", size) => self.cache_memory_bytes = bytes(size)?,
                ("threads", number) => self.threads = Some(number.parse().ok()?),
                ("timeo" | "timeout", seconds) => {
                    self.patience = Some(Duration::from_secs(seconds.parse().ok()?));
                }
                _ => return None,
            },
        }
        Some(())
    }

    /// How long the clerk is to wait for what is away.
    pub fn deadline(&self) -> Duration {
        self.patience.unwrap_or(FOREVER)
    }

    /// Operations that run without being handed to another thread.
    pub(crate) fn inline_threads(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(2, usize::from);
        self.threads.unwrap_or_else(|| processors().max(2)).clamp(1, 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_mount() {
        let mut options = MountOptions::new("/mnt");
        assert!((2..=8).contains(&options.inline_threads()));
        options.apply("ro,noexec, direct,threads=3,noatime").unwrap();
        assert!(options.read_only && options.no_exec && !options.allow_devices);
        assert_eq!(options.access_times, AccessTimes::Never);
        options.apply("strictatime,dev").unwrap();
        assert!(options.access_times == AccessTimes::Strict && options.allow_devices);
        options.apply("relatime,nodev").unwrap();
        assert!(options.access_times == AccessTimes::Relative && !options.allow_devices);
        assert_eq!((options.data_path, options.inline_threads()), (DataPath::Direct, 3));
        options.apply("").unwrap();
        assert_eq!(options.deadline(), FOREVER, "hard");
        options.apply("soft").unwrap();
        assert_eq!(options.deadline(), SOFT);
        options.apply("timeo=5,soft").unwrap();
        assert_eq!(options.deadline(), Duration::from_secs(5));
        options.apply("hard").unwrap();
        assert_eq!(options.patience, None);
        options.apply("cache=/var/cache/nasd,cache_size=2G,cache_memory=512K").unwrap();
        assert_eq!(options.cache, CachePlace::Directory("/var/cache/nasd".into()));
        assert_eq!((options.cache_disk_bytes, options.cache_memory_bytes), (2 << 30, 512 << 10));
        options.apply("cache=memory").unwrap();
        assert_eq!(options.cache, CachePlace::Memory);
        for wrong in ["cache=here", "cache_size=much", "cache_size=99999999T", "cache_memory="] {
            assert!(options.apply(wrong).is_err(), "{wrong}");
        }
        options.apply("path=manager").unwrap();
        assert_eq!((options.route, options.data_path), (Route::Manager, DataPath::Direct));
        options.apply("cached,path=direct").unwrap();
        assert_eq!((options.route, options.data_path), (Route::Direct, DataPath::Cached));
        options.apply("metrics=[::1]:9300").unwrap();
        assert_eq!(options.metrics, Some(MetricsAddress::Tcp("[::1]:9300".parse().unwrap())));
        options.apply("metrics=/run/nasd/mount.metrics").unwrap();
        assert_eq!(options.metrics.as_ref().unwrap().to_string(), "/run/nasd/mount.metrics");
        assert!(options.apply("metrics=9300").is_err() && options.apply("metrics=").is_err());
        assert!(options.apply("path=").is_err() && options.apply("path=both").is_err());
        assert_eq!(options.apply("rw,nonsense"), Err(UnknownOption("nonsense".into())));
        assert!(options.apply("threads=x").is_err());
        assert!(options.apply("timeo=").is_err() && options.apply("timeo").is_err());
    }
}
