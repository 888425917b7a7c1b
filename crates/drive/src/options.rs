//! How a drive is run.

use std::time::Duration;

use nasd_capability::WindowOptions;
use nasd_protocol::drive::Medium;
use nasd_transport::ServerOptions;
use nasd_types::Protection;

/// How a drive is run; the defaults suit most.
#[derive(Clone, Debug)]
pub struct DriveOptions {
    /// The weakest protection that the drive accepts in capabilities and requests. Less than
    /// `INTEGRITY_ARGS` is for networks on which nobody can be an enemy.
    pub minimum_protection: Protection,
    /// How far clocks may be apart, and how many senders are remembered against replay.
    pub window: WindowOptions,
    /// Most keys that are kept derived: about 400 bytes each.
    pub cached_keys: usize,
    /// Most memory for data that are encrypted and on their way to whoever asked for them, in bytes, and
    /// at least one transfer's. Whoever asks for more meanwhile is answered that the drive is busy.
    pub encrypted_bytes: usize,
    /// Memory that extensions are granted, all calls together, in bytes. Half as much may be kept besides, of answers that were sent.
    pub extension_bytes: usize,
    /// How much dirty data is written back at a time, in bytes.
    pub write_back_bytes: u64,
    /// How long the thread that writes back waits for dirty data before it looks around.
    pub write_back_patience: Duration,
    /// How much data the scrub reads back, verified against its checksums, in bytes a second while
    /// the drive is idle; 0 is no scrub.
    pub scrub_bytes_per_second: u64,
    /// A pass of the scrub begins at the earliest so long after the one before.
    pub scrub_every: Duration,
    /// What `inquiry` tells as the vendor; at most 64 bytes, as the next two.
    pub vendor: String,
    /// What `inquiry` tells as the model.
    pub model: String,
    /// What `inquiry` tells as the version of the software.
    pub revision: String,
    /// What the store's device is, as its control object tells.
    pub medium: Medium,
    /// Limits of connections.
    pub server: ServerOptions,
}

impl Default for DriveOptions {
    fn default() -> Self {
        DriveOptions {
            minimum_protection: Protection::INTEGRITY_ARGS,
            window: WindowOptions::default(),
            cached_keys: 16 << 10,
            encrypted_bytes: 256 << 20,
            extension_bytes: 64 << 20,
            write_back_bytes: 16 << 20,
            write_back_patience: Duration::from_millis(500),
            scrub_bytes_per_second: 8 << 20,
            scrub_every: Duration::from_secs(24 * 3600),
            vendor: "NASD".to_owned(),
            model: "software drive".to_owned(),
            revision: env!("CARGO_PKG_VERSION").to_owned(),
            medium: Medium::Unknown,
            server: ServerOptions { name: "nasd-drive".to_owned(), ..ServerOptions::default() },
        }
    }
}
