//! The steps of Table 6 by hand. Each new key is in a file before the drive has it, beside the one
//! that it replaces: a command that was interrupted is given again, and goes on with the same key.

use crate::arguments::KeyArguments;
use crate::cell::{Cell, DriveConfig, KeyPlace, Keyring, MasterKeys, now, read_key_file};
use crate::commands::Outcome;
use crate::commands::agree::agree;
use crate::drive_session::{By, DriveSession};
use crate::output::say;
use nasd_capability::SecretKey;
use nasd_client::{ClientError, ClockSettings};
use nasd_protocol::Status;
use nasd_types::{PartitionId, Timestamp};
use std::error::Error;
use std::path::Path;

/// How much older and newer than the drive's clock a nonce may be, after `init`.
const SKEW_PAST_NS: u64 = 10 * Timestamp::SECOND_NS;
const SKEW_AHEAD_NS: u64 = Timestamp::SECOND_NS;

/// Gives a drive a new master key, and nothing else is left on it.
///
/// # Errors
/// If nobody agrees, the master key is not to be had, or the drive refuses.
pub fn initialize(cell: &Path, place: &KeyArguments, yes: bool) -> Outcome {
    let sessions = sessions(cell, place, By::Master)?;
    let first = sessions.first().ok_or("there is no master key")?;
    let (name, drive) = (first.name.clone(), first.drive);
    let volume = first.cell.as_ref().map(|(cell, _)| cell.config.volume.clone());
    let volume = volume.map_or(String::new(), |volume| format!(", files of {volume} too,"));
    agree(&format!("everything on drive {name}{volume} and all its keys would be lost"), yes)?;
    let new = match (&place.new_key_file, &first.cell) {
        (Some(path), _) => read_key_file(path)?,
        (None, Some((cell, _))) => {
            MasterKeys::update(cell.directory(), |masters| masters.draw(drive))?
        }
        (None, None) => return Err(needs_new_key(&name)),
    };
    let new = SecretKey::new(new);
    let settings =
        ClockSettings { clock: now(), skew_past: SKEW_PAST_NS, skew_ahead: SKEW_AHEAD_NS };
    by_any(&sessions, "initialize it", |session| {
        session.client.initialize(&session.authority, &new, settings)
    })?;
    if let (None, Some((cell, _))) = (&place.new_key_file, &first.cell) {
        MasterKeys::update(cell.directory(), |masters| {
            masters.forget_older(drive);
            Ok(())
        })?;
    }
    say!("drive {name} is empty; set its drive key next: `nasd key set-drive {name}`");
    Ok(())
}

/// Sets the drive key, by the master key.
///
/// # Errors
/// If the master key is not to be had, or the drive refuses.
pub fn drive_key(cell: &Path, place: &KeyArguments) -> Outcome {
    let sessions = sessions(cell, place, By::Master)?;
    let first = sessions.first().ok_or("there is no master key")?;
    let new = NewKey::take(place, first, KeyPlace::Drive(first.drive))?;
    by_any(&sessions, "set the drive key", |session| {
        session.client.set_drive_key(&session.authority, &new.key)
    })?;
    new.keep()?;
    say!("drive {} has a new drive key", first.name);
    Ok(())
}

/// Sets a partition's key, by the drive key.
///
/// # Errors
/// If the drive key is not to be had, or the drive refuses.
pub fn partition_key(cell: &Path, place: &KeyArguments, partition: PartitionId) -> Outcome {
    let sessions = sessions(cell, place, By::Drive)?;
    let first = sessions.first().ok_or("there is no drive key")?;
    let which = match first.volume_partition() == Some(partition) {
        // The manager reads it from the keyring whenever it needs it.
        true => KeyPlace::VolumePartition(first.drive),
        false => KeyPlace::Partition(first.drive, partition),
    };
    let new = NewKey::take(place, first, which)?;
    by_any(&sessions, &format!("set the key of partition {partition}"), |session| {
        session.client.set_partition_key(&session.authority, partition, &new.key)
    })?;
    new.keep()?;
    say!("partition {partition} of drive {} has a new partition key", first.name);
    Ok(())
}

/// Sets the working key of a partition made by hand, by its partition key.
///
/// # Errors
/// For the volume's partition, whose keys the manager changes; if the partition key is not to be
/// had, or the drive refuses.
pub fn working_key(
    cell: &Path,
    place: &KeyArguments,
    partition: PartitionId,
    epoch: Option<u32>,
) -> Outcome {
    let sessions = sessions(cell, place, By::Partition(partition))?;
    let first = sessions.first().ok_or("there is no partition key")?;
    if first.volume_partition() == Some(partition) {
        let text =
            "the manager sets the working keys of the volume's partitions: `nasd key rotate`";
        return Err(text.into());
    }
    let known = known_epoch(first, partition)?;
    let epoch = match (epoch, known) {
        (Some(epoch), _) => epoch,
        (None, Some(known)) if place.new_key_file.is_none() => known + 1,
        _ => return Err("add --epoch N: a number above that of the present key".into()),
    };
    let new = NewKey::take(place, first, KeyPlace::Working(first.drive, partition))?;
    by_any(&sessions, &format!("set the working key of partition {partition}"), |session| {
        session.client.set_working_key(&session.authority, partition, epoch, &new.key)
    })?;
    new.keep()?;
    say!("partition {partition} of drive {} has a new working key, epoch {epoch}", first.name);
    Ok(())
}

fn known_epoch(
    session: &DriveSession,
    partition: PartitionId,
) -> Result<Option<u32>, Box<dyn Error>> {
    let Some((cell, drive)) = &session.cell else { return Ok(None) };
    let keys = cell.keyring()?.partition(drive.drive_id(), partition);
    Ok(keys.map(|keys| keys.working_key_epoch))
}

fn sessions(
    cell: &Path,
    place: &KeyArguments,
    by: By,
) -> Result<Vec<DriveSession>, Box<dyn Error>> {
    DriveSession::by(cell, &place.drive, place.key_file.as_deref(), by)
}

/// Does it by the first key that is right.
fn by_any(
    sessions: &[DriveSession],
    what: &str,
    set: impl Fn(&DriveSession) -> Result<(), ClientError>,
) -> Outcome {
    let mut outcome = Err("there is no key".into());
    for session in sessions {
        match set(session) {
            Ok(()) => return Ok(()),
            Err(error) => {
                let is_wrong = matches!(error, ClientError::Refused(Status::RefusedDigest));
                outcome = Err(session.failed(what)(error).into());
                if !is_wrong {
                    break;
                }
            }
        }
    }
    outcome
}

/// A new key on its way to the drive.
struct NewKey<'a> {
    key: SecretKey,
    /// Where it is kept, unless the user has it in a file.
    kept: Option<(&'a Cell, KeyPlace)>,
}

impl<'a> NewKey<'a> {
    fn take(
        place: &KeyArguments,
        session: &'a DriveSession,
        which: KeyPlace,
    ) -> Result<Self, Box<dyn Error>> {
        if let Some(path) = &place.new_key_file {
            return Ok(NewKey { key: SecretKey::new(read_key_file(path)?), kept: None });
        }
        let cell: &(Cell, DriveConfig) =
            session.cell.as_ref().ok_or_else(|| needs_new_key(&session.name))?;
        let key = Keyring::update(&cell.0.keyring_path(), |ring| ring.begin(which))?;
        Ok(NewKey { key: SecretKey::new(key), kept: Some((&cell.0, which)) })
    }

    /// The drive has it.
    fn keep(&self) -> Outcome {
        if let Some((cell, which)) = self.kept {
            Keyring::update(&cell.keyring_path(), |ring| ring.finish(which))?;
        }
        Ok(())
    }
}

fn needs_new_key(name: &str) -> Box<dyn Error> {
    format!("{name} is no drive of the cell: add --new-key-file FILE with the new key").into()
}
