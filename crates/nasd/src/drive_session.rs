//! Becoming the administrator of one running drive: where it is, and by which key it is asked.

use crate::arguments::{DriveArguments, KeyName};
use nasd_capability::SecretKey;
use nasd_cell::session::COMMAND_DEADLINE;
use nasd_cell::{
    Cell, CellError, DriveConfig, KeyPlace, KeyTurn, MasterKeys, master_keys_path, read_key_file,
};
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, RetryPolicy};
use nasd_types::{DriveId, PartitionId, Protection};
use std::error::Error;
use std::path::Path;

/// What every request by a key is protected with, so that no partition's minimum is missed; more where
/// the drive demands it.
const PROTECTION: Protection = Protection::SUPPORTED;

/// By which of its keys a drive is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Sets the drive key, or wipes the drive.
    Master,
    /// For everything else on the drive.
    Drive,
    /// For the partition and its objects; sets its working keys.
    Partition(PartitionId),
    /// For the partition's objects.
    Working(PartitionId),
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            By::Master => "master key",
            By::Drive => "drive key",
            By::Partition(_) => "partition key",
            By::Working(_) => "working key",
        })
    }
}

/// A running drive, asked by one of its keys.
pub struct DriveSession {
    /// The drive.
    pub client: DriveClient,
    /// By that key.
    pub authority: Authority,
    /// Which key that is.
    by: By,
    /// Which drive it is.
    pub drive: DriveId,
    /// How messages call it: as the user did.
    pub name: String,
    /// The cell, if the drive is one of its drives.
    pub cell: Option<(Cell, DriveConfig)>,
}

impl DriveSession {
    /// Finds the drive and asks it who it is. Partitions' keys are those of `partition`.
    ///
    /// # Errors
    /// A drive that nobody knows, a key that is not to be had, or a drive that does not answer.
    pub fn open(
        cell: &Path,
        arguments: &DriveArguments,
        partition: Option<PartitionId>,
    ) -> Result<Self, Box<dyn Error>> {
        let by = match (arguments.key_kind, partition) {
            (KeyName::Drive, _) => By::Drive,
            (KeyName::Partition, Some(partition)) => By::Partition(partition),
            (KeyName::Working, Some(partition)) => By::Working(partition),
            (_, None) => return Err("this takes the drive key: leave --key-kind away".into()),
        };
        let sessions = Self::by(cell, &arguments.drive, arguments.key_file.as_deref(), by)?;
        let last = sessions.len().saturating_sub(1);
        let mut tried = sessions.into_iter().enumerate();
        // While a key is being replaced, the drive says which it has.
        tried
            .find(|(index, session)| *index == last || !session.is_wrong())
            .map(|(_, session)| session)
            .ok_or_else(|| format!("there is no {by}").into())
    }

    /// Whether the drive says that the key is not the right one.
    fn is_wrong(&self) -> bool {
        let partition = match self.by {
            By::Partition(partition) | By::Working(partition) => Some(partition),
            By::Master | By::Drive => self.volume_partition(),
        };
        let Some(partition) = partition else { return false };
        let asked = match self.by {
            By::Partition(_) | By::Working(_) => {
                self.client.partition_control(&self.authority, partition).map(drop)
            }
            By::Master | By::Drive => {
                self.client.drive_control(&self.authority, partition).map(drop)
            }
        };
        matches!(asked, Err(ClientError::Refused(nasd_protocol::Status::RefusedDigest)))
    }

    /// Whether the drive proves to know another key, of the same kind as this session's.
    pub fn has(&self, key: SecretKey) -> bool {
        self.client.prove(&authority(self.by, key, self.authority.protection())).is_ok()
    }

    /// The same by any key; one session for each that it may be, the likeliest first.
    ///
    /// # Errors
    /// As [`DriveSession::open`].
    pub fn by(
        cell: &Path,
        name: &str,
        key_file: Option<&Path>,
        by: By,
    ) -> Result<Vec<Self>, Box<dyn Error>> {
        let (cell, address) = match find(cell, name)? {
            Found::Member(cell, drive) => {
                let address = drive.address.to_string();
                (Some((*cell, *drive)), address)
            }
            Found::Address(address) => (None, address),
        };
        let keys = match (key_file, &cell) {
            (Some(path), _) => vec![SecretKey::new(read_key_file(path)?)],
            (None, Some((cell, drive))) => keys_of(cell, drive, by)?,
            (None, None) => {
                let text =
                    format!("{name} is no drive of the cell: add --key-file FILE with its {by}");
                return Err(text.into());
            }
        };
        let expected = cell.as_ref().map(|(_, drive)| drive.drive_id());
        let options = ConnectOptions {
            retry: RetryPolicy::within(COMMAND_DEADLINE),
            ..ConnectOptions::default()
        };
        let client = DriveClient::tcp(address, expected, &options);
        let found = client.inquiry().map_err(|error| failed(name, by, "reach", &error))?;
        let drive = found.drive;
        let protection = PROTECTION | found.minimum_protection;
        let session = |key| DriveSession {
            client: client.clone(),
            authority: authority(by, key, protection),
            by,
            drive,
            name: name.to_owned(),
            cell: cell.clone(),
        };
        Ok(keys.into_iter().map(session).collect())
    }

    /// The volume of the cell that has a partition of the drive.
    pub fn volume_of(&self, partition: PartitionId) -> Option<&str> {
        let (cell, _) = self.cell.as_ref()?;
        cell.config.volume_of(self.drive, partition)
    }

    /// The partition of the drive that holds the cell's first volume.
    pub fn volume_partition(&self) -> Option<PartitionId> {
        self.cell.as_ref().map(|(_, drive)| drive.partition_id())
    }

    /// Says what failed on this drive, why, and what to do.
    pub fn failed(&self, action: impl std::fmt::Display) -> impl FnOnce(ClientError) -> String {
        let (name, by) = (self.name.clone(), self.by);
        let action = action.to_string();
        move |error| failed(&name, by, &action, &error)
    }
}

fn failed(name: &str, by: By, action: &str, error: &ClientError) -> String {
    let advice = match (error, error.status()) {
        (ClientError::Unreachable { .. }, _) => {
            "; start it (`nasd up`, `nasd drive serve`), or correct its address".to_owned()
        }
        (_, Some(nasd_protocol::Status::RefusedDigest)) => format!(
            "\n(the key is not this drive's {by}: restore keyring.toml, or name the right --key-file)"
        ),
        (_, Some(nasd_protocol::Status::RefusedKey)) => {
            format!("\n(the drive may have no {by} yet: `nasd key` sets them)")
        }
        _ => String::new(),
    };
    format!("drive {name}: can't {action}: {error}{advice}")
}

fn authority(by: By, key: SecretKey, protection: Protection) -> Authority {
    match by {
        By::Master => Authority::master_key(key, protection),
        By::Drive => Authority::drive_key(key, protection),
        By::Partition(partition) => Authority::partition_key(partition, key, protection),
        By::Working(partition) => Authority::working_key(partition, key, protection),
    }
}

/// What a user meant by a drive.
enum Found {
    Member(Box<Cell>, Box<DriveConfig>),
    Address(String),
}

/// The turn to set keys of a drive; `None` for one that is of no cell, of whose keys nobody keeps any.
///
/// # Errors
/// A drive that nobody knows; a lock that can't be made.
pub fn key_turn(cell: &Path, name: &str) -> Result<Option<KeyTurn>, Box<dyn Error>> {
    match find(cell, name)? {
        Found::Member(cell, drive) => Ok(Some(KeyTurn::wait(&cell, drive.drive_id())?)),
        Found::Address(_) => Ok(None),
    }
}

fn find(directory: &Path, name: &str) -> Result<Found, Box<dyn Error>> {
    let is_address = name.contains(':');
    let cell = match Cell::open(directory) {
        Ok(cell) => cell,
        Err(CellError::NoCell(_)) if is_address => return Ok(Found::Address(name.to_owned())),
        Err(error) => return Err(error.into()),
    };
    let is_meant = |drive: &&DriveConfig| {
        let id = format!("{:016x}", drive.drive_id().0);
        name == id || name == drive.index.to_string() || name == drive.address.to_string()
    };
    if let Some(drive) = cell.config.drives.iter().find(is_meant).cloned() {
        return Ok(Found::Member(Box::new(cell), Box::new(drive)));
    }
    if is_address {
        return Ok(Found::Address(name.to_owned()));
    }
    let known: Vec<String> =
        cell.config.drives.iter().map(|drive| drive.index.to_string()).collect();
    let directory = cell.directory().display();
    Err(format!(
        "the cell in {directory} has no drive `{name}`; it has {}. Name one of them, its 16-digit \
         identifier, or HOST:PORT with --key-file",
        known.join(", ")
    )
    .into())
}

/// The keys of a drive of the cell that `by` may mean: several, while one replaces another.
fn keys_of(cell: &Cell, drive: &DriveConfig, by: By) -> Result<Vec<SecretKey>, Box<dyn Error>> {
    let id = drive.drive_id();
    let is_volumes = |partition| drive.partition_id() == partition;
    let place = match by {
        By::Master => {
            let keys = MasterKeys::load(cell.directory())?.of(id);
            if keys.is_empty() {
                let path = master_keys_path(cell.directory());
                let path = path.display();
                return Err(format!(
                    "{path} has no master key of drive {}: name a file with it by --key-file",
                    drive.index
                )
                .into());
            }
            return Ok(keys.into_iter().map(SecretKey::new).collect());
        }
        By::Working(partition) if is_volumes(partition) => {
            let unknown = || CellError::NoKeys(format!("drive {:016x}", id.0));
            let key = cell.keyring()?.get(id).ok_or_else(unknown)?.working_key;
            return Ok(vec![SecretKey::new(key)]);
        }
        By::Drive => KeyPlace::Drive(id),
        By::Partition(partition) if is_volumes(partition) => KeyPlace::VolumePartition(id),
        By::Partition(partition) => KeyPlace::Partition(id, partition),
        By::Working(partition) => KeyPlace::Working(id, partition),
    };
    Ok(cell.keyring()?.candidates(place)?)
}
