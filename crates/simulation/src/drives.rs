//! Component drives: real ones, on devices in memory that lose what was not synced when they crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nasd_capability::{SecretKey, WindowOptions};
use nasd_device::{BlockDevice, FaultPlan, FaultyDevice, Image};
use nasd_drive::{Drive, DriveOptions, Environment};
use nasd_store::{FormatOptions, OpenOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{CellId, DriveId, PartitionId};

use crate::network::{Cables, EPOCH, NodeId, Serving};
use crate::plan::Sabotage;
use crate::random::Random;
use crate::sabotage::{BadCopier, Forgetful};
use crate::serving::ServedHere;
use crate::turns::{Time, lock};
use crate::watching::{Watch, Watched};

/// Bytes of a device.
const DEVICE_BYTES: u64 = 24 << 20;

/// Bytes of its cache.
pub const CACHE_BYTES: usize = 8 << 20;

/// Bytes of the cache of one of which only small files are read: to make a cache takes longer than all else that a run does.
const SMALL_CACHE_BYTES: usize = 1 << 20;

/// The virtual drive's partition.
pub const PARTITION: PartitionId = PartitionId(1);

/// Its partition key.
pub const PARTITION_KEY: [u8; 32] = [2; 32];

/// Its working key.
pub const WORKING_KEY: [u8; 32] = [3; 32];

/// A device that is formatted for a drive, with these partitions.
fn formatted(drive: DriveId, partitions: Vec<PartitionFormat>) -> Image {
    let device = Arc::new(FaultyDevice::zeroed(DEVICE_BYTES));
    let options = FormatOptions {
        drive,
        cell: CellId([1; 16]),
        master_key: None,
        log_key: 0x6c6f_676b ^ drive.0,
        drive_key: StoredKey::new(drive_key(drive)),
        partitions,
        metadata_bytes: None,
        now: EPOCH,
    };
    let medium: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    Store::format(medium, &options).expect("invariant: a new device can be formatted");
    device.live()
}

/// The same, made once for all runs.
pub fn image_of(drive: DriveId, has_partition: bool) -> Image {
    static KNOWN: Mutex<BTreeMap<(u64, bool), Image>> = Mutex::new(BTreeMap::new());
    let mut known = lock(&KNOWN);
    let image = known.entry((drive.0, has_partition)).or_insert_with(|| {
        let partition = PartitionFormat {
            id: PARTITION,
            quota_bytes: u64::MAX,
            partition_key: StoredKey::new(PARTITION_KEY),
            working_key: StoredKey::new(WORKING_KEY),
            key_epoch: 1,
        };
        formatted(drive, if has_partition { vec![partition] } else { Vec::new() })
    });
    image.clone()
}

fn drive_key(drive: DriveId) -> [u8; 32] {
    [drive.0 as u8; 32]
}

/// Opens a drive on a device.
pub fn open(
    time: &Arc<Time>,
    device: &Arc<FaultyDevice>,
    (skew, cache_bytes): (u64, usize),
    mut random: Random,
) -> Result<Drive, String> {
    let options = OpenOptions {
        cache_bytes,
        metadata_cache_bytes: 1 << 20,
        buffer_patience: Duration::from_millis(1),
    };
    let medium: Arc<dyn BlockDevice> = Arc::clone(device) as Arc<dyn BlockDevice>;
    let store = Store::open(medium, &options).map_err(|error| error.to_string())?;
    let (clock, elapsed) = (Arc::clone(time), Arc::clone(time));
    let start = random.draw();
    let random = Mutex::new(random);
    let environment = Environment::new(
        move || EPOCH.plus_ns(skew + clock.now().as_nanos() as u64),
        move || elapsed.now() + Duration::from_nanos(start >> 32),
        move || lock(&random).draw(),
    );
    let window = WindowOptions { senders: 64, ..WindowOptions::default() };
    let options = DriveOptions { window, cached_keys: 64, ..DriveOptions::default() };
    Drive::new(store, options, environment).map_err(|error| error.to_string())
}

/// One component drive.
pub struct ComponentDrive {
    /// Its number.
    pub drive: DriveId,
    /// Where it is.
    pub node: NodeId,
    cables: Arc<Cables>,
    skew: u64,
    cache_bytes: usize,
    sabotage: Sabotage,
    watch: Option<Arc<dyn Watch>>,
    inner: Mutex<Inner>,
}

struct Inner {
    device: Arc<FaultyDevice>,
    /// The device when the drive was started.
    at_start: Image,
    running: Option<Arc<Drive>>,
    random: Random,
}

impl ComponentDrive {
    /// A new one, which runs.
    pub fn new(
        cables: &Arc<Cables>,
        drive: DriveId,
        faults: (u64, Sabotage),
        random: Random,
    ) -> ComponentDrive {
        let image = (image_of(drive, false), CACHE_BYTES);
        ComponentDrive::over(image, cables, drive, (faults, None), random)
    }

    /// The same, with a partition that a file manager may use, and somebody who looks at what it does.
    pub fn with_partition(
        cables: &Arc<Cables>,
        drive: DriveId,
        faults: (u64, Sabotage),
        watch: Arc<dyn Watch>,
        random: Random,
    ) -> ComponentDrive {
        let image = (image_of(drive, true), SMALL_CACHE_BYTES);
        ComponentDrive::over(image, cables, drive, (faults, Some(watch)), random)
    }

    fn over(
        (at_start, cache_bytes): (Image, usize),
        cables: &Arc<Cables>,
        drive: DriveId,
        ((skew, sabotage), watch): ((u64, Sabotage), Option<Arc<dyn Watch>>),
        random: Random,
    ) -> ComponentDrive {
        let device = Arc::new(FaultyDevice::over(at_start.clone(), FaultPlan::default()));
        let inner = Inner { device, at_start, running: None, random };
        let node = cables.node();
        let cables = Arc::clone(cables);
        let made = ComponentDrive {
            drive,
            node,
            cables,
            skew,
            cache_bytes,
            sabotage,
            watch,
            inner: Mutex::new(inner),
        };
        made.start();
        made
    }

    /// Its drive key.
    pub fn key(&self) -> SecretKey {
        SecretKey::new(drive_key(self.drive))
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        lock(&self.inner).running.is_some()
    }

    /// The drive, while it runs.
    pub fn running(&self) -> Option<Arc<Drive>> {
        lock(&self.inner).running.clone()
    }

    /// How many requests it has refused, since it was started last, as a capability had expired.
    pub fn expired(&self) -> u64 {
        const COUNTED: &str = "nasd_refusals_total{reason=\"expired\"} ";
        let told = self.running().map(|drive| drive.metrics()).unwrap_or_default();
        let count = told.lines().find_map(|line| line.strip_prefix(COUNTED));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Starts it, unless it runs.
    pub fn start(&self) {
        let mut inner = lock(&self.inner);
        if inner.running.is_some() {
            return;
        }
        let random = inner.random.fork();
        match open(&self.cables.time, &inner.device, (self.skew, self.cache_bytes), random) {
            Ok(drive) => {
                let drive = Arc::new(drive);
                inner.running = Some(Arc::clone(&drive));
                let own = (self.drive, Arc::clone(&drive));
                let served = match self.sabotage {
                    Sabotage::ForgetsWrites => Forgetful::serving(drive),
                    Sabotage::MakesEmptyCopies => BadCopier::serving(drive),
                    _ => ServedHere::serving(drive),
                };
                let served = match &self.watch {
                    Some(watch) => Watched::serving(own, served, watch),
                    None => served,
                };
                self.cables.set_serving(self.node, Serving::AtOnce(served));
            }
            Err(error) => {
                self.cables.time.fail(format!("{} can't be started: {error}", self.drive))
            }
        }
    }

    /// Ends it at once, by a power cut: what was not made durable is lost, or a part of it. With `is_silent` its host does
    /// not tell.
    pub fn crash(&self, is_silent: bool) {
        let mut inner = lock(&self.inner);
        if inner.running.take().is_none() {
            return;
        }
        inner.device.crash();
        let seed = inner.random.draw();
        let survivor = match self.sabotage {
            Sabotage::LosesWhatIsDurable => inner.at_start.clone(),
            _ => inner.device.survivor(seed),
        };
        inner.at_start = survivor.clone();
        inner.device = Arc::new(FaultyDevice::over(survivor, FaultPlan::default()));
        let serving = if is_silent { Serving::Silent } else { Serving::Refuses };
        self.cables.set_serving(self.node, serving);
    }

    /// Does what a drive does in the background.
    pub fn write_back(&self) {
        if let Some(drive) = self.running() {
            drive.keep_clock();
            // What fails here is met by a flush.
            let _ = drive.store().write_back(1 << 20);
        }
    }
}
