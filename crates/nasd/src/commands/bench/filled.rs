//! A drive with very many objects, killed and started again.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use nasd_bench::{Memory, make_objects};
use nasd_client::{ClientError, ConnectOptions, DriveClient};
use nasd_device::{BlockDevice, FileDevice, FileOptions};
use nasd_store::{OpenOptions, Store, WriteData};
use nasd_types::{ObjectName, SetAttributes, Timestamp};

use super::{BenchDrive, PARTITION};

/// Takes the metadata region and a data block for one object in `WITH_BLOCK`.
const DEVICE_BYTES: u64 = 12 << 30;
/// The tree of two million objects is a gigabyte, and may fill a quarter.
const METADATA_BYTES: u64 = (8 << 30) + 4096;
/// The cache that drives have where nothing else is asked for.
const CACHE_BYTES: u64 = 256 << 20;
/// The others have their 100 bytes in the tree.
const WITH_BLOCK: u64 = 4;
/// Objects that are made between two flushes.
const BATCH: u64 = 20_000;
/// Objects that are made before each kill, so that there is something to recover.
const LATEST: usize = 2000;

/// Fills a drive, half of it over the network, kills and starts it `times` times; the seconds of each start, and its most memory.
pub(super) fn open_filled(
    directory: &Path,
    objects: u64,
    times: usize,
    emulate_disk: bool,
) -> Result<(Vec<f64>, Option<Memory>), Box<dyn Error>> {
    let made =
        BenchDrive::create(directory, "filled", DEVICE_BYTES, CACHE_BYTES, Some(METADATA_BYTES))?;
    let mut drive = Removed(made.emulating_disk(emulate_disk));
    let path = drive.0.path.clone();
    fill(Arc::new(FileDevice::open(&path, FileOptions::default())?), objects / 2)?;
    let drive = &mut drive.0;
    let mut seconds = Vec::new();
    drive.start()?;
    make(drive, usize::try_from(objects - objects / 2)?)?;
    for _ in 0..times {
        make(drive, LATEST)?;
        drive.kill();
        let start = Instant::now();
        drive.start()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok((seconds, drive.peak_memory()))
}

/// Makes objects over the network, so that the drive's memory for them counts.
fn make(drive: &BenchDrive, objects: usize) -> Result<(), ClientError> {
    let client = DriveClient::tcp(&drive.address, Some(drive.name), &ConnectOptions::default());
    let manager = drive.manager();
    make_objects(&client, &manager, PARTITION, objects)?;
    client.flush_partition(&manager, PARTITION).map(drop)
}

/// Its file is removed when it is dropped: no other row needs the room.
struct Removed(BenchDrive);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.kill();
        let _ = std::fs::remove_file(&self.0.path);
    }
}

/// Makes the objects without the network, and leaves the drive as a crash would.
fn fill(device: Arc<dyn BlockDevice>, objects: u64) -> Result<(), Box<dyn Error>> {
    let store = Store::open(device, &OpenOptions::default())?;
    for index in 0..objects {
        let (object, _) = store.create(PARTITION, &SetAttributes::default(), Timestamp(2))?;
        let object = ObjectName { partition: PARTITION, object };
        let length = if index % WITH_BLOCK == 0 { 3000 } else { 100 };
        let bytes = [index as u8 | 1; 3000];
        store.write(object, 0, WriteData::Slice(&bytes[..length]), Timestamp(3))?;
        if index % BATCH == BATCH - 1 {
            store.flush_all()?;
        }
    }
    Ok(store.flush_all()?)
}
