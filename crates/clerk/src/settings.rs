//! How a clerk behaves: limits and times, with their defaults.

use std::path::PathBuf;
use std::time::Duration;

/// The way that data of files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Route {
    /// Straight between this host and the drives.
    #[default]
    Direct,
    /// Through the file manager, which stores and forwards them: for hosts that can't reach the
    /// drives, and for comparison.
    Manager,
}

/// Limits and times of a clerk. The defaults are for a mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long an operation waits for a drive or the manager that is away, before it fails.
    pub deadline: Duration,
    /// How old attributes and names may be when they are used without asking.
    pub attribute_ttl: Duration,
    /// Bytes that may be written and not yet durable, for each drive. A virtual drive has the share of up to
    /// four of those behind it, here and in `flush_after_bytes`, and of two in `requests_per_drive`.
    pub unflushed_bytes_per_drive: u64,
    /// Bytes of one file that may be written and not yet durable before a flush is begun.
    pub flush_after_bytes: u64,
    /// A file that has not been written for this long is flushed in the background.
    pub flush_after_idle: Duration,
    /// Bytes of buffers for read-ahead.
    pub read_ahead_bytes: usize,
    /// Requests that may be in flight to one drive for write-behind, and as many for read-ahead.
    pub requests_per_drive: usize,
    /// Files of up to so many bytes are read by scans: to ask drives would take as long.
    pub read_to_scan_bytes: u64,
    /// Whether to have a session with the manager: for locks between clients, and so that files
    /// that others remove stay while they are open here. Short commands need none.
    pub session: bool,
    /// What is kept of files' contents where the volume has callbacks.
    pub cache: CacheSettings,
}

/// How much is kept of files' contents, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Where on this machine's disk; nowhere, if nothing is said.
    pub directory: Option<PathBuf>,
    /// Most bytes there.
    pub disk_bytes: u64,
    /// Most bytes in memory.
    pub memory_bytes: u64,
}

impl Default for CacheSettings {
    fn default() -> Self {
        CacheSettings { directory: None, disk_bytes: 0, memory_bytes: 64 << 20 }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            deadline: Duration::from_secs(600),
            attribute_ttl: Duration::from_secs(1),
            unflushed_bytes_per_drive: 128 << 20,
            flush_after_bytes: 32 << 20,
            flush_after_idle: Duration::from_secs(1),
            read_ahead_bytes: 64 << 20,
            requests_per_drive: 4,
            read_to_scan_bytes: 16 << 10,
            session: true,
            cache: CacheSettings::default(),
        }
    }
}
