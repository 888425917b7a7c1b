//! Becoming the administrator of one running drive: where it is, and by which key it is asked.

use crate::arguments::DriveArguments;
use crate::cell::{Cell, CellError, DriveConfig, read_key_file};
use crate::session::COMMAND_DEADLINE;
use nasd_capability::SecretKey;
use nasd_client::{Authority, ClientError, ConnectOptions, DriveClient, RetryPolicy};
use nasd_types::{DriveId, PartitionId, Protection};
use std::error::Error;
use std::path::Path;

/// What every request by a key is protected with: the most that drives know, so that no minimum is
/// missed.
pub const PROTECTION: Protection = Protection::INTEGRITY_ARGS
    .union(Protection::INTEGRITY_DATA)
    .union(Protection::PRIVACY_ARGS)
    .union(Protection::PRIVACY_DATA);

/// A running drive, asked by its drive key.
pub struct DriveSession {
    /// The drive.
    pub client: DriveClient,
    /// By the drive key, which every operation on partitions and objects accepts.
    pub authority: Authority,
    /// Which drive it is.
    pub drive: DriveId,
    /// How messages call it: as the user did.
    pub name: String,
    /// The cell, if the drive is one of its drives.
    pub cell: Option<(Cell, DriveConfig)>,
}

impl DriveSession {
    /// Finds the drive and asks it who it is.
    ///
    /// # Errors
    /// A drive that nobody knows, a key that is not to be had, or a drive that does not answer.
    pub fn open(cell: &Path, arguments: &DriveArguments) -> Result<Self, Box<dyn Error>> {
        let name = arguments.drive.clone();
        let (cell, address) = match find(cell, &name)? {
            Found::Member(cell, drive) => {
                let address = drive.address.to_string();
                (Some((*cell, *drive)), address)
            }
            Found::Address(address) => (None, address),
        };
        let key = key_of(cell.as_ref(), arguments)?;
        let expected = cell.as_ref().map(|(_, drive)| drive.drive_id());
        let options = ConnectOptions {
            retry: RetryPolicy::within(COMMAND_DEADLINE),
            ..ConnectOptions::default()
        };
        let client = DriveClient::tcp(address, expected, &options);
        let drive = client.inquiry().map_err(|error| failed(&name, "reach", &error))?.drive;
        Ok(DriveSession {
            client,
            authority: Authority::drive_key(key, PROTECTION),
            drive,
            name,
            cell,
        })
    }

    /// The partition of the drive that holds the cell's volume.
    pub fn volume_partition(&self) -> Option<PartitionId> {
        self.cell.as_ref().map(|(_, drive)| drive.partition_id())
    }

    /// Says what failed on this drive, why, and what to do.
    pub fn failed(&self, action: impl std::fmt::Display) -> impl FnOnce(ClientError) -> String {
        let name = self.name.clone();
        let action = action.to_string();
        move |error| failed(&name, &action, &error)
    }
}

fn failed(name: &str, action: &str, error: &ClientError) -> String {
    let advice = match error {
        ClientError::Unreachable { .. } => {
            "; start it (`nasd up`, `nasd drive serve`), or correct its address"
        }
        ClientError::Refused(nasd_protocol::Status::RefusedDigest) => {
            "\n(the key is not this drive's drive key: restore keyring.toml, or name the right --key-file)"
        }
        _ => "",
    };
    format!("drive {name}: can't {action}: {error}{advice}")
}

/// What a user meant by a drive.
enum Found {
    Member(Box<Cell>, Box<DriveConfig>),
    Address(String),
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

fn key_of(
    cell: Option<&(Cell, DriveConfig)>,
    arguments: &DriveArguments,
) -> Result<SecretKey, Box<dyn Error>> {
    if let Some(path) = &arguments.key_file {
        return Ok(SecretKey::new(read_key_file(path)?));
    }
    let Some((cell, drive)) = cell else {
        let name = &arguments.drive;
        return Err(format!(
            "{name} is no drive of the cell: add --key-file FILE with its drive key"
        )
        .into());
    };
    let id = drive.drive_id();
    let keys =
        cell.keyring()?.get(id).ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", id.0)))?;
    Ok(SecretKey::new(keys.drive_key))
}
