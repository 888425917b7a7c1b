//! `nasd key init` and `readmit`: a drive begins anew; and a drive of the cell that has lost its keys
//! gets others, all of them.

use super::new_key::{NotSet, needs_new_key, right, set};
use super::set::{give_drive_key, give_partition_key, sessions};
use crate::arguments::KeyArguments;
use crate::commands::Outcome;
use crate::commands::agree::agree;
use crate::commands::partition::summaries;
use crate::commands::volume::make_part;
use crate::drive_session::{By, DriveSession, key_turn};
use crate::output::say;
use nasd_capability::SecretKey;
use nasd_cell::session::{COMMAND_DEADLINE, STOPPED_PATIENCE, administrator_within};
use nasd_cell::{
    Cell, CellError, CellLock, DriveConfig, Keyring, MasterKeys, VolumePart, now, read_key_file,
    renumber_part, renumber_partition,
};
use nasd_client::{Authority, ClockSettings};
use nasd_protocol::drive::{NO_QUOTA, PartitionState};
use nasd_protocol::manager::WorkingKeyState;
use nasd_types::{PartitionId, Timestamp};
use std::error::Error;
use std::path::Path;

/// How much older and newer than the drive's clock a nonce may be, after `init`.
const SKEW_PAST_NS: u64 = 10 * Timestamp::SECOND_NS;
const SKEW_AHEAD_NS: u64 = Timestamp::SECOND_NS;

/// The manager learns of partitions when it starts.
const RESTART: &str = "stop and start the cell, so that it is used: `nasd down`, `nasd up`";

/// Gives a drive a new master key, and nothing else is left on it. A drive of the cell is brought back
/// into it, empty.
///
/// # Errors
/// If nobody agrees, the master key is not to be had, or the drive refuses.
pub fn initialize(cell: &Path, place: &KeyArguments, yes: bool) -> Outcome {
    let _turn = key_turn(cell, &place.drive)?;
    let sessions = sessions(cell, place, By::Master)?;
    let first = sessions.first().ok_or("there is no master key")?;
    let (name, drive) = (first.name.clone(), first.drive);
    let lost = first.cell.as_ref().map_or_else(String::new, |(cell, drive)| lost(cell, drive));
    agree(&format!("everything on drive {name}{lost} and all its keys would be lost"), yes)?;
    let what = "initialize it";
    let session = right(&sessions, what)?;
    let new = match (&place.new_key_file, &first.cell) {
        (Some(path), _) => read_key_file(path)?,
        (None, Some((cell, _))) => {
            MasterKeys::update(cell.directory(), |masters| masters.draw(drive))?
        }
        (None, None) => return Err(needs_new_key(&name)),
    };
    let new = SecretKey::new(new);
    if session.has(new.clone()) {
        return Err(format!("drive {name} has this master key already: a new one is needed").into());
    }
    let settings =
        ClockSettings { clock: now(), skew_past: SKEW_PAST_NS, skew_ahead: SKEW_AHEAD_NS };
    let done =
        set(session, what, |session| session.client.initialize(&session.authority, &new, settings));
    match done {
        // A drive whose answer was lost does not know the old key any more: the new one tells.
        Err(NotSet::Unanswered(_)) if session.has(new) => {}
        done => done?,
    }
    let Some((of_cell, _)) = &first.cell else {
        say!("drive {name} is empty; set its drive key next: `nasd key set-drive {name}`");
        return Ok(());
    };
    if place.new_key_file.is_none() {
        MasterKeys::update(of_cell.directory(), |masters| {
            masters.forget_older(drive);
            Ok(())
        })?;
    }
    let by_new = KeyArguments {
        drive: place.drive.clone(),
        key_file: place.new_key_file.clone(),
        new_key_file: None,
    };
    take_in(cell, &by_new).map_err(|error| {
        format!(
            "{error}\ndrive {name} is empty, and not of the cell yet: `nasd key readmit {name}`"
        )
    })?;
    Ok(())
}

/// What of the cell is on a drive, as a part of a sentence.
fn lost(cell: &Cell, drive: &DriveConfig) -> String {
    let volumes: Vec<&str> = cell.config.volumes().collect();
    let volume = volumes.join(" and ");
    // The volume's root and its log are on the drive that the cell was made with first.
    match cell.config.drives.first().is_some_and(|home| home.drive_id() == drive.drive_id()) {
        true => format!(", the names of all files of {volume} too,"),
        false => format!(", files of {volume} too,"),
    }
}

/// Gives a drive of the cell another drive key and partition key, by the master key, and a partition
/// for the volume, if it has none. What is on the drive stays. Given again, it goes on where it was
/// interrupted.
///
/// # Errors
/// For a drive that is of no cell; if the master key is not to be had, or the drive refuses; if the
/// manager runs and can't change the working key.
pub fn readmit(cell: &Path, place: &KeyArguments) -> Outcome {
    let _turn = key_turn(cell, &place.drive)?;
    take_in(cell, place)
}

/// The same for whoever has the turn.
fn take_in(cell: &Path, place: &KeyArguments) -> Outcome {
    let by_master = sessions(cell, place, By::Master)?;
    let first = by_master.first().ok_or("there is no master key")?;
    let name = &first.name;
    let Some((of_cell, drive)) = &first.cell else {
        return Err(format!("{name} is no drive of the cell: `nasd drive format` adds one").into());
    };
    give_drive_key(&by_master, place)?;
    restore_parts(of_cell, place, drive)?;
    let by_drive = DriveSession::by(cell, &place.drive, None, By::Drive)?;
    let session = by_drive.first().ok_or("there is no drive key")?;
    let found = summaries(session)?;
    let of_volume = found.iter().find(|summary| summary.partition == drive.partition_id());
    let Some(of_volume) = of_volume else {
        let taken: Vec<PartitionId> = found.iter().map(|summary| summary.partition).collect();
        let partition = make_partition(session, of_cell, &taken)?;
        // From another reading of the cell's files, which name the new partition now.
        let by_drive = DriveSession::by(cell, &place.drive, None, By::Drive)?;
        let session = by_drive.first().ok_or("there is no drive key")?;
        give_partition_key(&by_drive, place, partition)?;
        give_working_key(session, of_cell, partition)?;
        say!("drive {name} is a drive of the cell, and empty");
        say!("{RESTART}");
        return Ok(());
    };
    if of_volume.state != PartitionState::Ready {
        // Whoever made it may have been interrupted before it had room for anything.
        give_room(session, of_volume.partition)?;
    }
    give_partition_key(&by_drive, place, of_volume.partition)?;
    if of_volume.state != PartitionState::Ready {
        give_working_key(session, of_cell, of_volume.partition)?;
    }
    let is_known = change_working_key(of_cell, drive)?;
    say!("drive {name} is a drive of the cell, with new keys");
    say!(
        "capabilities that were made by its working keys of before end with `nasd key rotate --now`"
    );
    if !is_known {
        say!("{RESTART}");
    }
    Ok(())
}

/// The same for the cell's further volumes: a partition that is there gets a new key, one that is lost
/// is made anew, with keys of its own and without a limit of room.
fn restore_parts(cell: &Cell, place: &KeyArguments, drive: &DriveConfig) -> Outcome {
    let id = drive.drive_id();
    for volume in &cell.config.other_volumes {
        for part in volume.parts.iter().filter(|part| part.drive_id() == id) {
            restore_part(cell, place, (&volume.name, part))?;
        }
    }
    Ok(())
}

/// The same for one of them.
fn restore_part(cell: &Cell, place: &KeyArguments, (volume, part): (&str, &VolumePart)) -> Outcome {
    let by_drive = DriveSession::by(cell.directory(), &place.drive, None, By::Drive)?;
    let session = by_drive.first().ok_or("there is no drive key")?;
    let found = summaries(session)?;
    let ready = PartitionState::Ready;
    let old = part.location();
    if found.iter().any(|there| there.partition == old.partition && there.state == ready) {
        return give_partition_key(&by_drive, place, old.partition);
    }
    let taken: Vec<PartitionId> = found.iter().map(|there| there.partition).collect();
    let partition = renumber_part(cell, volume, old, &taken)?;
    make_part(session, cell, partition, NO_QUOTA)?;
    Keyring::update(&cell.keyring_path(), |ring| {
        ring.remove_partition(old.drive, old.partition);
        Ok(())
    })?;
    Ok(())
}

/// Another partition for the volume's part, of a number that is none of those taken on the drive.
fn make_partition(
    session: &DriveSession,
    cell: &Cell,
    taken: &[PartitionId],
) -> Result<PartitionId, Box<dyn Error>> {
    let partition = renumber_partition(cell, session.drive, taken)?;
    let (client, authority) = (&session.client, &session.authority);
    let made = client.create_partition(authority, partition);
    made.map_err(session.failed(format!("create partition {partition}")))?;
    give_room(session, partition)?;
    Ok(partition)
}

/// A new partition has no room; the volume's may take what the drive has.
fn give_room(session: &DriveSession, partition: PartitionId) -> Outcome {
    let sized = session.client.resize_partition(&session.authority, partition, NO_QUOTA);
    Ok(sized.map_err(session.failed("set the quota"))?)
}

/// A working key, in the keyring before the drive has it, for the volume's partition, which has none.
fn give_working_key(session: &DriveSession, cell: &Cell, partition: PartitionId) -> Outcome {
    let drive = session.drive;
    let (of_drive, working) = Keyring::update(&cell.keyring_path(), |ring| {
        let working = ring.redraw_working_key(drive)?;
        Ok((ring.get(drive), working))
    })?;
    let of_drive = of_drive.ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", drive.0)))?;
    let by = SecretKey::new(of_drive.partition_key);
    let by = Authority::partition_key(partition, by, session.authority.protection());
    let set = session.client.set_working_key(&by, partition, working.epoch, &working.key);
    Ok(set.map_err(session.failed("set the working key"))?)
}

/// Has the manager go on with the next working key, as it has those of its drives in memory; `false` if
/// it can't, because it knows of another partition. One that does not run reads them from the keyring.
fn change_working_key(cell: &Cell, drive: &DriveConfig) -> Result<bool, Box<dyn Error>> {
    let is_up = CellLock::holder(&cell.lock_path()).is_some();
    let patience = if is_up { COMMAND_DEADLINE } else { STOPPED_PATIENCE };
    match administrator_within(cell, patience)?.rotate(false) {
        Ok(rotated) => {
            let of_drive = |state: &&WorkingKeyState| state.drive == drive.drive_id();
            Ok(rotated.drives.iter().find(of_drive).is_some_and(|state| state.done))
        }
        Err(error) if !is_up && error.is_nobody_there() => Ok(true),
        Err(error) => Err(format!(
            "its working key is not changed: {error}; give `nasd key rotate`, or stop and start \
             the cell"
        )
        .into()),
    }
}
