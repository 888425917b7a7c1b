//! The steps of Table 6 by hand. Each new key is in the keyring before the drive has it, beside the one
//! that it replaces: a command that was interrupted is given again, and goes on with the same key.

use super::new_key::{NewKey, right, set};
use crate::arguments::KeyArguments;
use crate::commands::Outcome;
use crate::drive_session::{By, DriveSession, key_turn};
use crate::output::say;
use nasd_cell::KeyPlace;
use nasd_types::PartitionId;
use std::error::Error;
use std::path::Path;

/// Sets the drive key, by the master key.
///
/// # Errors
/// If the master key is not to be had, or the drive refuses.
pub fn drive_key(cell: &Path, place: &KeyArguments) -> Outcome {
    let _turn = key_turn(cell, &place.drive)?;
    let sessions = sessions(cell, place, By::Master)?;
    give_drive_key(&sessions, place)?;
    say!("drive {} has a new drive key", place.drive);
    Ok(())
}

/// The same by these sessions.
///
/// # Errors
/// If the drive refuses.
pub fn give_drive_key(sessions: &[DriveSession], place: &KeyArguments) -> Outcome {
    let what = "set the drive key";
    let session = right(sessions, what)?;
    let new = NewKey::take(place, session, KeyPlace::Drive(session.drive), None)?;
    new.settle(set(session, what, |session| {
        session.client.set_drive_key(&session.authority, &new.key)
    }))
}

/// Sets a partition's key, by the drive key.
///
/// # Errors
/// If the drive key is not to be had, or the drive refuses.
pub fn partition_key(cell: &Path, place: &KeyArguments, partition: PartitionId) -> Outcome {
    let _turn = key_turn(cell, &place.drive)?;
    let sessions = sessions(cell, place, By::Drive)?;
    give_partition_key(&sessions, place, partition)?;
    say!("partition {partition} of drive {} has a new partition key", place.drive);
    Ok(())
}

/// The same by these sessions.
///
/// # Errors
/// If the drive refuses.
pub fn give_partition_key(
    sessions: &[DriveSession],
    place: &KeyArguments,
    partition: PartitionId,
) -> Outcome {
    let what = format!("set the key of partition {partition}");
    let session = right(sessions, &what)?;
    let which = match session.volume_partition() == Some(partition) {
        // The manager reads it from the keyring whenever it needs it.
        true => KeyPlace::VolumePartition(session.drive),
        false => KeyPlace::Partition(session.drive, partition),
    };
    let new = NewKey::take(place, session, which, Some(0))?;
    new.settle(set(session, &what, |session| {
        session.client.set_partition_key(&session.authority, partition, &new.key)
    }))
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
    let _turn = key_turn(cell, &place.drive)?;
    let sessions = sessions(cell, place, By::Partition(partition))?;
    let first = sessions.first().ok_or("there is no partition key")?;
    if first.volume_of(partition).is_some() {
        let text = "the manager sets the working keys of volumes' partitions: `nasd key rotate`";
        return Err(text.into());
    }
    if place.new_key_file.is_some() && epoch.is_none() {
        return Err("add --epoch N: a number above that of the present key".into());
    }
    let what = format!("set the working key of partition {partition}");
    let session = right(&sessions, &what)?;
    let new = NewKey::take(place, session, KeyPlace::Working(session.drive, partition), epoch)?;
    let epoch = new.epoch;
    new.settle(set(session, &what, |session| {
        session.client.set_working_key(&session.authority, partition, epoch, &new.key)
    }))?;
    say!("partition {partition} of drive {} has a new working key, epoch {epoch}", first.name);
    Ok(())
}

/// A drive by each key that it may have.
///
/// # Errors
/// As [`DriveSession::by`].
pub fn sessions(
    cell: &Path,
    place: &KeyArguments,
    by: By,
) -> Result<Vec<DriveSession>, Box<dyn Error>> {
    DriveSession::by(cell, &place.drive, place.key_file.as_deref(), by)
}
