//! Making a new cell: keys, certificates, device files, and `cell.toml` last.

use super::config::{CellConfig, DriveConfig};
use super::keyring::{DriveKeys, Keyring, write_atomic};
use super::{Authority, Cell, CellError, keyring_path};
use nasd_device::FileDevice;
use nasd_store::{FormatOptions, PartitionFormat, Store};
use nasd_types::{CellId, DriveId, PartitionId, Timestamp};
use std::fs::DirBuilder;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The partition of each drive that holds the cell's volume.
const VOLUME_PARTITION: PartitionId = PartitionId(1);

/// What to make.
#[derive(Debug, Clone)]
pub struct NewCell {
    /// How many drives, where no devices are given.
    pub drives: u32,
    /// Real devices or files to use as drives instead; everything on them is lost.
    pub devices: Vec<PathBuf>,
    /// Bytes of each device file that is made.
    pub size_bytes: u64,
    /// Bytes of each drive's data cache.
    pub cache_bytes: u64,
    /// The address that manager and drives listen on.
    pub host: IpAddr,
    /// The manager's port; drive N listens on this plus N.
    pub base_port: u16,
    /// One of `PROTECTION_NAMES`.
    pub protection: String,
    /// The name of the volume.
    pub volume: String,
}

/// Makes the cell in `directory`, which must be empty or not exist. What an interrupted attempt
/// left there (a directory of ours without `cell.toml`) is made anew.
///
/// # Errors
/// `NotEmpty` where the directory holds other things; `NoRoom`, `Format` or `Io` otherwise.
pub fn create_cell(directory: &Path, new: &NewCell) -> Result<Cell, CellError> {
    prepare_directory(directory)?;
    let id = CellId(random_bytes()?);
    let authority = Authority::create(directory, id)?;
    authority.issue_manager()?;
    authority.issue_host(&host_name())?;

    let mut keyring = Keyring::default();
    let drives = new_drives(new)?;
    for drive in &drives {
        let keys = DriveKeys::generate()?;
        format_drive(directory, id, drive, &keys, new)?;
        keyring.insert(drive.drive_id(), &keys);
    }
    keyring.save(&keyring_path(directory))?;

    let manager = SocketAddr::new(new.host, new.base_port);
    let config = CellConfig::new(id, new.volume.clone(), &new.protection, manager, drives);
    let path = directory.join("cell.toml");
    let text = config
        .to_text()
        .map_err(|reason| CellError::Damaged { path: path.clone(), reason })?;
    write_atomic(&path, text.as_bytes(), 0o644)?;
    Cell::open(directory)
}

/// Names that only a cell's directory holds; anything else in it is somebody's file.
const OWN_NAMES: [&str; 6] = ["drives", "keyring.toml", "keyring.new", "log", "run", "tls"];

fn prepare_directory(directory: &Path) -> Result<(), CellError> {
    let create = |path: &Path, mode: u32| {
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path)
            .map_err(CellError::io("create", path))
    };
    create(directory, 0o755)?;
    let entries = std::fs::read_dir(directory).map_err(CellError::io("read", directory))?;
    for entry in entries {
        let entry = entry.map_err(CellError::io("read", directory))?;
        if !OWN_NAMES.iter().any(|name| entry.file_name() == *name) {
            return Err(CellError::NotEmpty(directory.to_owned()));
        }
    }
    create(&directory.join("drives"), 0o700)?;
    create(&directory.join("log"), 0o755)?;
    create(&directory.join("run"), 0o755)?;
    create(&directory.join("tls"), 0o755)
}

fn new_drives(new: &NewCell) -> Result<Vec<DriveConfig>, CellError> {
    let count = if new.devices.is_empty() { new.drives as usize } else { new.devices.len() };
    (1..=count as u32)
        .map(|index| {
            let device = match new.devices.get(index as usize - 1) {
                Some(device) => std::path::absolute(device).unwrap_or_else(|_| device.clone()),
                None => PathBuf::from(format!("drives/drive-{index}.img")),
            };
            let id = DriveId(u64::from_be_bytes(random_bytes()?));
            let address = SocketAddr::new(new.host, new.base_port.saturating_add(index as u16));
            Ok(DriveConfig::new(index, id, address, device, VOLUME_PARTITION, new.cache_bytes))
        })
        .collect()
}

fn format_drive(
    directory: &Path,
    cell: CellId,
    drive: &DriveConfig,
    keys: &DriveKeys,
    new: &NewCell,
) -> Result<(), CellError> {
    let path = directory.join(&drive.device);
    if new.devices.is_empty() {
        allocate(&path, new.size_bytes)?;
    }
    let failed = |reason: String| CellError::Format { path: path.clone(), reason };
    let device = FileDevice::open(&path).map_err(|error| failed(error.to_string()))?;
    let partition = PartitionFormat {
        id: VOLUME_PARTITION,
        quota_bytes: u64::MAX,
        partition_key: keys.partition_key,
        working_key: keys.working_key,
        key_epoch: keys.working_key_epoch,
    };
    let options = FormatOptions {
        drive: drive.drive_id(),
        cell,
        drive_key: keys.drive_key,
        partitions: vec![partition],
        now: now(),
    };
    Store::format(Arc::new(device), options).map_err(|error| failed(error.to_string()))
}

/// Makes a device file whose every byte is really there: a full host disk must not turn up later,
/// as a failed write of data that was already accepted.
fn allocate(path: &Path, size_bytes: u64) -> Result<(), CellError> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(CellError::io("create", path))?;
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&file, flags, 0, size_bytes).map_err(|errno| {
        let _ = std::fs::remove_file(path);
        CellError::NoRoom { path: path.to_owned(), size_bytes, source: errno.into() }
    })
}

fn random_bytes<const N: usize>() -> Result<[u8; N], CellError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(CellError::Random)?;
    Ok(bytes)
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.map_or(0, |since| since.as_nanos() as u64))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
