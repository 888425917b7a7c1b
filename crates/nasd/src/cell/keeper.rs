//! The keyring as the manager uses it: working keys on their way to the drives are in it before
//! any drive has them.

use super::{CellError, KeyPlace, Keyring};
use nasd_capability::SecretKey;
use nasd_manager::keys::{KeeperError, KeptKeys, KeyKeeper};
use nasd_types::DriveId;
use std::path::PathBuf;

/// Keeps working keys in `keyring.toml`.
#[derive(Debug)]
pub struct RingKeeper {
    path: PathBuf,
}

impl RingKeeper {
    /// In this keyring.
    pub fn new(path: PathBuf) -> Self {
        RingKeeper { path }
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
        let change = |ring: &mut Keyring| match ring.set_working_keys(drive, keys) {
            true => Ok(()),
            false => Err(no_keys(drive)),
        };
        Keyring::update(&self.path, change).map_err(told)
    }

    fn partition_keys(&self, drive: DriveId) -> Result<Vec<SecretKey>, KeeperError> {
        let mut keyring = Keyring::load(&self.path).map_err(told)?;
        keyring.candidates(KeyPlace::VolumePartition(drive)).map_err(told)
    }
}
