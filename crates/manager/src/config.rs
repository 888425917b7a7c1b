//! What a manager is told at its start. Where it comes from (files, arguments) is not its affair.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use nasd_client::{Network, TcpNetwork};
use nasd_protocol::limits::{MAX_ADDRESS_BYTES, MAX_DRIVES};
use nasd_protocol::manager::Name;
use nasd_types::{CellId, DriveId, Location, PartitionId, Personality, Protection};
use thiserror::Error;

use crate::keys::{KeptKeys, KeyKeeper};
use crate::membership::Membership;
use crate::namespace::RootOptions;
use crate::sessions::SessionTimes;

/// At what age working keys are changed, if nothing else is said.
const ROTATION_INTERVAL: Duration = Duration::from_secs(86_400);

/// A manager's configuration. [`ManagerConfig::new`] has the defaults.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// The cell.
    pub cell: CellId,
    /// The volume's name.
    pub volume: Name,
    /// The drive whose First Object holds the volume record, and which has the journal and the
    /// root. Must stay the same for the volume's life.
    pub home: DriveId,
    /// The volume's drives.
    pub drives: Vec<DriveConfig>,
    /// What clients are told to protect their requests with, the least with which capabilities may
    /// be used, and what the manager protects its own requests with.
    pub protection: Protection,
    /// How long a capability is good, at least.
    pub capability_lifetime: Duration,
    /// The root directory, when the volume is made.
    pub root: RootOptions,
    /// How the volume behaves for those who share its files. Must stay the same for the volume's life.
    pub personality: Personality,
    /// How many bytes the files of a volume of the personality `afs` may have altogether; `None`: as many as there is room for. In other
    /// volumes that is up to the drives.
    pub quota: Option<u64>,
    /// Nobody changes anything in it: it is a snapshot.
    pub read_only: bool,
    /// How long a call waits for a drive that is away. Less than clients wait for one answer.
    pub patience: Duration,
    /// How long it waits where there is another way, or others wait meanwhile.
    pub short_patience: Duration,
    /// Connections to each drive.
    pub drive_connections: usize,
    /// Connections to each drive for data that clients have forwarded.
    pub forward_connections: usize,
    /// Memory for such data on their way, in bytes.
    pub forward_bytes: usize,
    /// Memory for directories, in bytes.
    pub directory_cache_bytes: usize,
    /// How many files' records are kept in memory.
    pub record_cache_entries: usize,
    /// Length of each of the journal's two areas, in bytes, when the volume is made.
    pub journal_area_bytes: usize,
    /// How often free space is asked for, and deferred work tried again.
    pub housekeeping_interval: Duration,
    /// Where working keys are kept; without one they are never changed.
    pub keeper: Option<Arc<dyn KeyKeeper>>,
    /// Who belongs to the cell; without a ledger, who has a certificate of its authority.
    pub members: Option<Arc<dyn Membership>>,
    /// At what age working keys are changed; `None`: only when somebody asks for it.
    pub rotation_interval: Option<Duration>,
    /// The cell's further volumes; without a table there are none.
    pub table: Option<Arc<dyn VolumeTable>>,
    /// Times of clients' sessions.
    pub sessions: SessionTimes,
    /// By which drives are reached.
    pub network: Arc<dyn Network>,
}

/// A further volume of the cell. What is not said here is as for the first one.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Its name.
    pub name: Name,
    /// As [`ManagerConfig::home`].
    pub home: DriveId,
    /// Its partitions and their keys.
    pub drives: Vec<DriveConfig>,
    /// Where its working keys are kept.
    pub keeper: Option<Arc<dyn KeyKeeper>>,
    /// Its root directory, when it is made.
    pub root: RootOptions,
    /// As [`ManagerConfig::personality`].
    pub personality: Personality,
    /// As [`ManagerConfig::quota`].
    pub quota: Option<u64>,
    /// As [`ManagerConfig::read_only`].
    pub read_only: bool,
}

/// Where the cell's further volumes are written down.
pub trait VolumeTable: Debug + Send + Sync {
    /// All of them. Asked for at the start, and when an administrator says that they have changed.
    ///
    /// # Errors
    /// If that can't be told.
    fn volumes(&self) -> Result<Vec<VolumeConfig>, TableError>;

    /// Writes down, durably, that the part of a volume that files know by this drive is elsewhere from now on: what is told of that part then.
    ///
    /// # Errors
    /// If there is no such part, or nothing was prepared there for it; or if it can't be written. Then all stays as it was.
    fn move_part(
        &self,
        volume: &Name,
        drive: DriveId,
        to: Location,
    ) -> Result<DriveConfig, TableError>;
}

/// The table of volumes can't be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the table of volumes: {0}")]
pub struct TableError(pub String);

/// One of the volume's drives.
#[derive(Clone, Debug)]
pub struct DriveConfig {
    /// Its name, by which files are known that are there.
    pub id: DriveId,
    /// Where it answers, `HOST:PORT`; clients are told the same.
    pub address: String,
    /// Small, stable, unique in the cell.
    pub index: u32,
    /// The volume's partition, by which files are known that are there.
    pub partition: PartitionId,
    /// Where the partition is, if it was moved: files go on to be known by where it was made, and the address and the keys are of here.
    pub moved_to: Option<Location>,
    /// The partition's working keys.
    pub keys: KeptKeys,
}

impl DriveConfig {
    /// Where the objects are.
    pub fn location(&self) -> Location {
        self.moved_to.unwrap_or(Location { drive: self.id, partition: self.partition })
    }
}

/// A configuration that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// No drives, or too many.
    #[error("a volume has 1 to {MAX_DRIVES} drives, not {0}")]
    DriveCount(usize),
    /// Two drives with the same name or index.
    #[error("drive {0} is there twice, or shares its index with another")]
    Duplicate(DriveId),
    /// An address that clients could not be told.
    #[error("the address of drive {0} has more than {MAX_ADDRESS_BYTES} bytes")]
    Address(DriveId),
    /// The home is none of the drives.
    #[error("the volume's home, drive {0}, is not among its drives")]
    Home(DriveId),
    /// Options that can't go together, or that this version does not know.
    #[error("the protection options make no sense: {0:?}")]
    Protection(Protection),
    /// A capability must outlive the request it is for.
    #[error("capabilities must be good for a second at least")]
    Lifetime,
    /// Keys that are changed all the time.
    #[error("working keys must be good for a millisecond at least")]
    RotationInterval,
}

impl ManagerConfig {
    /// A configuration with the defaults: arguments protected, capabilities for ten minutes, ten
    /// seconds of patience, 64 MiB of directories, working keys that are changed daily.
    pub fn new(cell: CellId, volume: Name, home: DriveId, drives: Vec<DriveConfig>) -> Self {
        ManagerConfig {
            cell,
            volume,
            home,
            drives,
            protection: Protection::INTEGRITY_ARGS,
            capability_lifetime: Duration::from_secs(600),
            root: RootOptions::default(),
            personality: Personality::Nfs,
            quota: None,
            read_only: false,
            patience: Duration::from_secs(10),
            short_patience: Duration::from_secs(1),
            drive_connections: 2,
            forward_connections: 4,
            forward_bytes: 128 << 20,
            directory_cache_bytes: 64 << 20,
            record_cache_entries: 1 << 16,
            journal_area_bytes: 4 << 20,
            housekeeping_interval: Duration::from_secs(5),
            keeper: None,
            members: None,
            rotation_interval: Some(ROTATION_INTERVAL),
            table: None,
            sessions: SessionTimes::default(),
            network: TcpNetwork::shared(),
        }
    }

    /// The configuration of a further volume.
    #[must_use]
    pub fn of_volume(&self, volume: &VolumeConfig) -> ManagerConfig {
        ManagerConfig {
            volume: volume.name.clone(),
            home: volume.home,
            drives: volume.drives.clone(),
            keeper: volume.keeper.clone(),
            root: volume.root,
            personality: volume.personality,
            quota: volume.quota,
            read_only: volume.read_only,
            ..self.clone()
        }
    }

    /// Checks what can be checked without the drives.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.drives.is_empty() || self.drives.len() > MAX_DRIVES {
            return Err(ConfigError::DriveCount(self.drives.len()));
        }
        for (position, drive) in self.drives.iter().enumerate() {
            let twin = |other: &DriveConfig| other.id == drive.id || other.index == drive.index;
            if self.drives[..position].iter().any(twin) {
                return Err(ConfigError::Duplicate(drive.id));
            }
            if drive.address.len() > MAX_ADDRESS_BYTES {
                return Err(ConfigError::Address(drive.id));
            }
        }
        if !self.drives.iter().any(|drive| drive.id == self.home) {
            return Err(ConfigError::Home(self.home));
        }
        if !self.protection.is_understood() {
            return Err(ConfigError::Protection(self.protection));
        }
        if self.capability_lifetime < Duration::from_secs(1) {
            return Err(ConfigError::Lifetime);
        }
        if self.rotation_interval.is_some_and(|interval| interval < Duration::from_millis(1)) {
            return Err(ConfigError::RotationInterval);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_capability::SecretKey;

    fn config(drives: &[(u64, u32)]) -> ManagerConfig {
        let drive = |(id, index): &(u64, u32)| DriveConfig {
            id: DriveId(*id),
            address: "localhost:1".to_owned(),
            index: *index,
            partition: PartitionId(1),
            moved_to: None,
            keys: KeptKeys::new(1, SecretKey::new([1; 32])),
        };
        let volume = Name::new("home").unwrap();
        let drives = drives.iter().map(drive).collect();
        ManagerConfig::new(CellId::default(), volume, DriveId(1), drives)
    }

    #[test]
    fn senseless_configurations_are_refused() {
        assert_eq!(config(&[(1, 0), (2, 1)]).check(), Ok(()));
        assert_eq!(config(&[]).check(), Err(ConfigError::DriveCount(0)));
        assert_eq!(config(&[(1, 0), (1, 1)]).check(), Err(ConfigError::Duplicate(DriveId(1))));
        assert_eq!(config(&[(1, 0), (2, 0)]).check(), Err(ConfigError::Duplicate(DriveId(2))));
        assert_eq!(config(&[(2, 0)]).check(), Err(ConfigError::Home(DriveId(1))));
        let mut alone = config(&[(1, 0)]);
        alone.protection = Protection::INTEGRITY_DATA;
        assert!(matches!(alone.check(), Err(ConfigError::Protection(_))));
        let mut brief = config(&[(1, 0)]);
        brief.capability_lifetime = Duration::ZERO;
        assert_eq!(brief.check(), Err(ConfigError::Lifetime));
        let mut restless = config(&[(1, 0)]);
        restless.rotation_interval = Some(Duration::ZERO);
        assert_eq!(restless.check(), Err(ConfigError::RotationInterval));
    }
}
