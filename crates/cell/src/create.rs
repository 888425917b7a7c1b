//! Making a new cell: keys, certificates, device files, and `cell.toml` last.

use super::components::stripe_mut;
use super::config::{CellConfig, DriveConfig, StripeConfig};
use super::files::write_atomic;
use super::keyring::{DriveKeys, Keyring};
use super::master_keys::MasterKeys;
use super::{
    Authority, Cell, CellError, Member, MemberKind, Members, Usage, VALIDITY, identity,
    keyring_path, now,
};
use nasd_device::{DeviceError, FileDevice, FileOptions};
use nasd_store::{FormatOptions, PartitionFormat, Store, StoredKey};
use nasd_types::{CellId, DriveId, PartitionId};
use rustix::fs::FlockOperation;
use std::fs::{DirBuilder, OpenOptions};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The partition of each drive that holds the cell's volume.
const VOLUME_PARTITION: PartitionId = PartitionId(1);

/// Size of the device of a virtual drive: keys, settings and the audit trail are all that is on it.
const VIRTUAL_BYTES: u64 = 256 << 20;

/// Its cache.
const VIRTUAL_CACHE_BYTES: u64 = 64 << 20;

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
    /// See [`super::protection`].
    pub protection: String,
    /// The name of the volume.
    pub volume: String,
    /// How often the manager changes working keys: `1d`, or `never`.
    pub rotate_keys_every: String,
    /// Make a virtual drive over all others, which has the volume: `over` is filled in.
    pub stripe: Option<StripeConfig>,
}

/// Says that the directory holds an attempt at making a cell, and nothing that anybody was told is
/// there. The first thing to be made, and removed when `cell.toml` is written.
const MARKER: &str = ".creating";

/// Makes the cell in `directory`, which must be empty or not exist. What an interrupted attempt
/// left there is made anew; anything else is left alone.
///
/// # Errors
/// `NotEmpty` where the directory holds other things; `NoRoom`, `Format` or `Io` otherwise.
pub fn create_cell(directory: &Path, new: &NewCell) -> Result<Cell, CellError> {
    prepare_directory(directory)?;
    let id = CellId(random_bytes()?);
    let authority = Authority::create(directory, id)?;
    forget_members(directory)?;
    authority.issue_files("manager", "manager", Usage::Manager, VALIDITY)?;
    first_members(directory, &authority)?;

    let mut keyring = Keyring::default();
    let mut master_keys = MasterKeys::new();
    let mut drives = new_drives(new)?;
    if let Some(stripe) = &new.stripe {
        let drive = virtual_drive(&mut drives, stripe, new)?;
        drives.push(drive);
    }
    for drive in &drives {
        let keys = DriveKeys::generate()?;
        let master = master_keys.draw(drive.drive_id())?;
        let size = match drive.stripe {
            Some(_) => Some(VIRTUAL_BYTES),
            None => new.devices.is_empty().then_some(new.size_bytes),
        };
        format_drive(directory, id, drive, &keys, master, size)?;
        keyring.insert(drive.drive_id(), &keys);
    }
    master_keys.save(directory)?;
    keyring.save(&keyring_path(directory))?;

    let manager = SocketAddr::new(new.host, new.base_port);
    let mut config = CellConfig::new(id, new.volume.clone(), &new.protection, manager, drives);
    config.manager.rotate_keys_every = new.rotate_keys_every.clone();
    save_config(directory, &config)?;
    let marker = directory.join(MARKER);
    std::fs::remove_file(&marker).map_err(CellError::io("remove", &marker))?;
    Cell::open(directory)
}

/// How the cell's first administrator is called: whoever owns its directory.
pub(super) const OWNER: &str = "owner";

/// Those of an interrupted attempt have certificates of another authority.
fn forget_members(directory: &Path) -> Result<(), CellError> {
    let path = Members::path(directory);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CellError::io("remove", &path)(error))
        }
        _ => Ok(()),
    }
}

/// This machine, and whoever owns the cell's directory.
fn first_members(directory: &Path, authority: &Authority) -> Result<(), CellError> {
    let host = host_name();
    for (file, name, kind) in
        [("host", host.as_str(), MemberKind::Host), ("admin", OWNER, MemberKind::Admin)]
    {
        let identity = identity(name, kind, None);
        let issued = authority.issue_files(file, &identity, Usage::Client, VALIDITY)?;
        let add = |members: &mut Members| {
            members.add(Member::new(name, kind, None, &issued));
            Ok(())
        };
        Members::update(directory, add)?;
    }
    Ok(())
}

/// Gives a cell that was made before there was a ledger of members its first one. Certificates that
/// were given out until then count no more: this machine gets a new one, others join anew.
///
/// # Errors
/// `Certificate` or `Io`.
pub fn complete_cell(cell: &Cell) -> Result<(), CellError> {
    let directory = cell.directory();
    if Members::path(directory).exists() {
        return Ok(());
    }
    let authority = Authority::open(directory, cell.config.cell_id())?;
    authority.issue_files("manager", "manager", Usage::Manager, VALIDITY)?;
    first_members(directory, &authority)
}

/// One more drive for a cell.
#[derive(Debug, Clone)]
pub struct AddedDrive {
    /// A block device or a file; everything on it is lost. A file among those of the cell's other drives, if not
    /// given.
    pub device: Option<PathBuf>,
    /// Make the file, with this size.
    pub size_bytes: Option<u64>,
    /// Where it will listen; the next free port of the cell, if not given.
    pub address: Option<SocketAddr>,
    /// Bytes of its data cache.
    pub cache_bytes: u64,
    /// What for.
    pub role: Added,
}

/// What a drive is added for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// A part of the cell's first volume.
    Volume,
    /// A share of what the virtual drive holds.
    Component,
    /// To take the place of another component drive.
    Spare,
}

/// Formats a device for the cell, and writes it into the cell's files.
///
/// # Errors
/// `NoRoom` or `Format` if the device can't be used; `Io` if the files can't be written.
pub fn add_drive(cell: &Cell, added: &AddedDrive) -> Result<DriveConfig, CellError> {
    let directory = cell.directory();
    // Making a device may take long, and whoever serves the cell may have to change its file meanwhile; two drives
    // that are added at once take turns.
    let _alone = lock_file(&directory.join("adding.lock"))?;
    let mut config = CellConfig::load(&directory.join("cell.toml"))?;
    let drive = make_drive(cell, &mut config, added)?;
    update_config(directory, |config| {
        if added.role != Added::Volume {
            let stripe = stripe_mut(config)?;
            stripe.over.push(drive.index);
            stripe.spares.extend((added.role == Added::Spare).then_some(drive.index));
        }
        config.drives.push(drive.clone());
        Ok(drive)
    })
}

/// Formats the device of a drive that is to be one of the cell's, and keeps its keys.
fn make_drive(
    cell: &Cell,
    config: &mut CellConfig,
    added: &AddedDrive,
) -> Result<DriveConfig, CellError> {
    let directory = cell.directory();
    // A keyring that can't be read must be known before anything is overwritten.
    cell.keyring()?;
    let (index, address) = config.next_drive();
    let device = match &added.device {
        Some(device) => std::path::absolute(device).unwrap_or_else(|_| device.clone()),
        None => PathBuf::from(format!("drives/drive-{index}.img")),
    };
    if added.role != Added::Volume {
        stripe_mut(config)?;
    }
    let mut drive = DriveConfig::new(
        index,
        DriveId(u64::from_be_bytes(random_bytes()?)),
        added.address.unwrap_or(address),
        device,
        VOLUME_PARTITION,
        added.cache_bytes,
    );
    let keys = DriveKeys::generate()?;
    let master = MasterKeys::update(directory, |masters| masters.draw(drive.drive_id()))?;
    let size = added.size_bytes;
    if let Err(error) = format_drive(directory, config.cell_id(), &drive, &keys, master, size) {
        MasterKeys::update(directory, |masters| {
            masters.forget(drive.drive_id());
            Ok(())
        })?;
        return Err(error);
    }
    Keyring::update(&keyring_path(directory), |keyring| {
        keyring.insert(drive.drive_id(), &keys);
        Ok(())
    })?;
    drive.in_first_volume = added.role == Added::Volume;
    Ok(drive)
}

/// Gives a drive of the cell that has lost its partition of the volume another one, whose number none
/// had before: handles of files that were lost must never lead to others. Nor is it one of `taken`, which
/// are on the drive: their keys may be anywhere.
///
/// # Errors
/// `NoKeys` for a drive that is none of the cell's; `Damaged` or `Io`.
pub fn renumber_partition(
    cell: &Cell,
    drive: DriveId,
    taken: &[PartitionId],
) -> Result<PartitionId, CellError> {
    update_config(cell.directory(), |config| {
        let by_hand = cell.keyring()?.partitions();
        let last = config.last_partition;
        let of_drive = config.drives.iter_mut().find(|each| each.drive_id() == drive);
        let of_drive =
            of_drive.ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", drive.0)))?;
        let others = by_hand.iter().filter(|(of, ..)| *of == drive).map(|(_, number, _)| number.0);
        let others = others.chain(taken.iter().map(|number| number.0));
        let highest = others.chain([of_drive.partition_id().0, last]).max().unwrap_or(0);
        let next = PartitionId(highest.saturating_add(1));
        of_drive.set_partition(next);
        Ok(next)
    })
}

/// Changes `cell.toml` while nobody else does so.
///
/// # Errors
/// As [`CellConfig::load`], or what the change itself says, and then nothing is changed; `Io`.
pub(super) fn update_config<T>(
    directory: &Path,
    change: impl FnOnce(&mut CellConfig) -> Result<T, CellError>,
) -> Result<T, CellError> {
    // Not the directory itself: the change may need its lock, which is the keyring's.
    let _alone = lock_file(&directory.join("cell.lock"))?;
    let mut config = CellConfig::load(&directory.join("cell.toml"))?;
    let told = change(&mut config)?;
    save_config(directory, &config)?;
    Ok(told)
}

/// Waits until nobody else has the lock of that file; held until it is dropped.
fn lock_file(path: &Path) -> Result<std::fs::File, CellError> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let lock = options.open(path).map_err(CellError::io("open", path))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| CellError::io("lock", path)(errno.into()))?;
    Ok(lock)
}

fn save_config(directory: &Path, config: &CellConfig) -> Result<(), CellError> {
    let path = directory.join("cell.toml");
    let damaged = |reason: String| CellError::Damaged { path: path.clone(), reason };
    let text = config.to_text().map_err(damaged)?;
    write_atomic(&path, text.as_bytes(), 0o644)
}

fn prepare_directory(directory: &Path) -> Result<(), CellError> {
    let create = |path: &Path, mode: u32| {
        DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(path)
            .map_err(CellError::io("create", path))
    };
    create(directory, 0o755)?;
    let marker = directory.join(MARKER);
    let mut entries = std::fs::read_dir(directory).map_err(CellError::io("read", directory))?;
    if entries.next().is_some() && !marker.exists() {
        return Err(CellError::NotEmpty(directory.to_owned()));
    }
    std::fs::write(&marker, "").map_err(CellError::io("write", &marker))?;
    let drives = directory.join("drives");
    match std::fs::remove_dir_all(&drives) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(CellError::io("remove", &drives)(error));
        }
        _ => create(&drives, 0o700)?,
    }
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

/// A virtual drive over all others, on which the volume is in their place. Its device is made in a file; the first start of
/// its striping manager moves it to the others.
fn virtual_drive(
    drives: &mut [DriveConfig],
    stripe: &StripeConfig,
    new: &NewCell,
) -> Result<DriveConfig, CellError> {
    drives.iter_mut().for_each(|drive| drive.in_first_volume = false);
    let index = drives.len() as u32 + 1;
    let id = DriveId(u64::from_be_bytes(random_bytes()?));
    let address = SocketAddr::new(new.host, new.base_port.saturating_add(index as u16));
    let device = PathBuf::from(format!("drives/striping-{index}.img"));
    let cache_bytes = VIRTUAL_CACHE_BYTES;
    let mut drive = DriveConfig::new(index, id, address, device, VOLUME_PARTITION, cache_bytes);
    let over = drives.iter().map(|drive| drive.index).collect();
    drive.stripe = Some(StripeConfig { over, ..stripe.clone() });
    Ok(drive)
}

fn format_drive(
    directory: &Path,
    cell: CellId,
    drive: &DriveConfig,
    keys: &DriveKeys,
    master: [u8; 32],
    make_with_size: Option<u64>,
) -> Result<(), CellError> {
    let path = directory.join(&drive.device);
    let failed = |reason: String| CellError::Format { path: path.clone(), reason };
    let device = match make_with_size {
        Some(size_bytes) => make_device_file(&path, size_bytes)?,
        None => FileDevice::open(&path, FileOptions::default())
            .map_err(|error| failed(error.to_string()))?,
    };
    let partition = PartitionFormat {
        id: drive.partition_id(),
        quota_bytes: u64::MAX,
        partition_key: StoredKey::new(keys.partition_key),
        working_key: StoredKey::new(keys.working_key),
        key_epoch: keys.working_key_epoch,
    };
    let options = FormatOptions {
        drive: drive.drive_id(),
        cell,
        master_key: Some(StoredKey::new(master)),
        log_key: u64::from_le_bytes(random_bytes()?),
        drive_key: StoredKey::new(keys.drive_key),
        partitions: vec![partition],
        metadata_bytes: None,
        now: now(),
    };
    Store::format(Arc::new(device), &options).map_err(|error| failed(error.to_string()))
}

/// Makes a device file whose every byte is really there: a full host disk must not turn up later,
/// as a failed write of data that was already accepted.
fn make_device_file(path: &Path, size_bytes: u64) -> Result<FileDevice, CellError> {
    FileDevice::create(path, size_bytes, FileOptions::default()).map_err(|error| match error {
        DeviceError::Open { source, .. } => {
            CellError::NoRoom { path: path.to_owned(), size_bytes, source }
        }
        other => CellError::Format { path: path.to_owned(), reason: other.to_string() },
    })
}

fn random_bytes<const N: usize>() -> Result<[u8; N], CellError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(CellError::Random)?;
    Ok(bytes)
}

/// This machine's name, as far as it can be a member's.
fn host_name() -> String {
    let uname = rustix::system::uname();
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() || byte == b'.' { byte } else { b'-' };
    let name: Vec<u8> = uname.nodename().to_bytes().iter().take(64).map(|b| plain(*b)).collect();
    let name = String::from_utf8_lossy(&name).trim_matches(['.', '-']).to_owned();
    if name.is_empty() { "host".to_owned() } else { name }
}
