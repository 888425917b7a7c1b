//! The keyring as the manager uses it: working keys on their way to the drives are in it before
//! any drive has them.

use super::{CellError, KeyPlace, Keyring};
use nasd_capability::SecretKey;
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_types::{DriveId, Location};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

/// Keeps working keys in `keyring.toml`.
#[derive(Debug)]
pub struct RingKeeper {
    path: PathBuf,
    /// Where the parts of a further volume are, by the drives as its files know them; `None` for the cell's first.
    parts: Option<RwLock<BTreeMap<DriveId, Location>>>,
}

impl RingKeeper {
    /// Of the cell's first volume, in this keyring.
    pub fn new(path: PathBuf) -> Self {
        RingKeeper { path, parts: None }
    }

    /// Of a further volume.
    pub fn of_volume(path: PathBuf, parts: BTreeMap<DriveId, Location>) -> Self {
        RingKeeper { path, parts: Some(RwLock::new(parts)) }
    }

    /// Where its part is that is known by a drive, if it is a further volume's.
    fn part(&self, drive: DriveId) -> Result<Option<Location>, KeeperError> {
        let Some(parts) = &self.parts else { return Ok(None) };
        let known = parts.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&drive).copied().map(Some).ok_or_else(|| told(no_keys(drive)))
    }
}

fn no_keys(drive: DriveId) -> CellError {
    CellError::NoKeys(format!("drive {:016x}", drive.0))
}

fn told(error: CellError) -> KeeperError {
    KeeperError(error.to_string())
}

impl KeyKeeper for RingKeeper {
    fn keep(&self, drive: DriveId, keys: &KeptKeys) -> Result<(), KeeperError> {
        let part = self.part(drive)?;
        let change = |ring: &mut Keyring| {
            let set = match part {
                None => ring.set_working_keys(drive, keys),
                Some(at) => ring.set_volume_keys(at.drive, at.partition, keys),
            };
            if set { Ok(()) } else { Err(no_keys(drive)) }
        };
        Keyring::update(&self.path, change).map_err(told)
    }

    fn partition_keys(&self, drive: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        let mut keyring = Keyring::load(&self.path).map_err(told)?;
        let place = match self.part(drive)? {
            None => KeyPlace::VolumePartition(drive),
            Some(at) => KeyPlace::Partition(at.drive, at.partition),
        };
        keyring.candidates(place).map_err(told)
    }

    fn relocated(&self, drive: DriveId, to: Location) {
        if let Some(parts) = &self.parts {
            parts.write().unwrap_or_else(PoisonError::into_inner).insert(drive, to);
        }
    }
}
