//! The keyring as the manager uses it: working keys on their way to the drives are in it before
//! any drive has them.

use super::{CellError, KeyPlace, Keyring};
use nasd_capability::SecretKey;
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_types::{DriveId, PartitionId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Keeps working keys in `keyring.toml`.
#[derive(Debug)]
pub struct RingKeeper {
    path: PathBuf,
    /// The partitions of a further volume; `None` for the cell's first.
    partitions: Option<BTreeMap<DriveId, PartitionId>>,
}

impl RingKeeper {
    /// Of the cell's first volume, in this keyring.
    pub fn new(path: PathBuf) -> Self {
        RingKeeper { path, partitions: None }
    }

    /// Of a further volume.
    pub fn of_volume(path: PathBuf, partitions: BTreeMap<DriveId, PartitionId>) -> Self {
        RingKeeper { path, partitions: Some(partitions) }
    }

    /// Its partition of a drive, if it is a further volume's.
    fn partition(&self, drive: DriveId) -> Result<Option<PartitionId>, KeeperError> {
        match &self.partitions {
            None => Ok(None),
            Some(known) => match known.get(&drive) {
                Some(partition) => Ok(Some(*partition)),
                None => Err(told(no_keys(drive))),
            },
        }
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
        let partition = self.partition(drive)?;
        let change = |ring: &mut Keyring| {
            let set = match partition {
                None => ring.set_working_keys(drive, keys),
                Some(partition) => ring.set_volume_keys(drive, partition, keys),
            };
            if set { Ok(()) } else { Err(no_keys(drive)) }
        };
        Keyring::update(&self.path, change).map_err(told)
    }

    fn partition_keys(&self, drive: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        let mut keyring = Keyring::load(&self.path).map_err(told)?;
        let place = match self.partition(drive)? {
            None => KeyPlace::VolumePartition(drive),
            Some(partition) => KeyPlace::Partition(drive, partition),
        };
        keyring.candidates(place).map_err(told)
    }
}
