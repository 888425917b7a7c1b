//! `nasd volume`: name spaces of their own, with partitions of their own on the cell's drives.
//!
//! Partitions are made and removed by the drive keys in the cell's keyring, which the manager has no
//! use for; it is told afterwards, and gets what it needs (working keys) from the keyring.

use super::Outcome;
use super::agree::agree;
use super::files::{attach, detach};
use super::moving::{move_parts, remove_leftovers};
use super::partition::{set_up, summaries};
use super::snapshot::copy;
use super::spreading::{Asked, Spreading};
use super::status::size;
use crate::arguments::{DriveArguments, KeyName, Spread, Stripe, VolumeCommand};
use crate::drive_session::DriveSession;
use crate::output::{self, say};
use nasd_cell::session::{
    COMMAND_DEADLINE, STOPPED_PATIENCE, administrator_within, connect, for_command, manager,
};
use nasd_cell::{
    Cell, CellLock, DriveConfig, Keyring, PartitionKeys, VolumeConfig, VolumeTurn, begin_volume,
    check_volume_name, forget_volume, set_finished, set_volume_quota, virtual_drive,
};
use nasd_protocol::drive::{NO_QUOTA, SetstripingArguments};
use nasd_protocol::manager::{Name, VolumePart};
use nasd_types::{DriveId, Location, PartitionId, Personality};
use serde_json::json;
use std::error::Error;

/// Room is given in blocks of the drives.
const BLOCK_BYTES: u64 = 4096;

/// Runs a volume command.
///
/// # Errors
/// The command's own.
pub fn run(cell: &Cell, command: VolumeCommand, json: bool) -> Outcome {
    match command {
        VolumeCommand::Create { name, personality, quota, drives, spread } => {
            create(cell, &name, personality, quota, &drives, &spread)
        }
        VolumeCommand::List => list(cell, json),
        VolumeCommand::Show { name } => show(cell, &name, json),
        VolumeCommand::Snapshot { name, snapshot } => copy(cell, &name, &snapshot, true),
        VolumeCommand::Clone { name, clone } => copy(cell, &name, &clone, false),
        VolumeCommand::Move { name, from, to } => move_parts(cell, &name, from, to),
        VolumeCommand::Remove { name, yes, with_files } => remove(cell, &name, yes, with_files),
        VolumeCommand::Attach { path, volume } => attach(cell, &path, &volume),
        VolumeCommand::Detach { path } => detach(cell, &path),
        VolumeCommand::Resize { name, quota }
        | VolumeCommand::Quota { name, quota: Some(quota) } => resize(cell, &name, quota),
        VolumeCommand::Quota { name, quota: None } => show_quota(cell, &name, json),
    }
}

/// A drive of the cell by its drive key.
pub fn drive_session(cell: &Cell, drive: &DriveConfig) -> Result<DriveSession, Box<dyn Error>> {
    let named =
        DriveArguments { drive: drive.index.to_string(), key_file: None, key_kind: KeyName::Drive };
    DriveSession::open(cell.directory(), &named, None)
}

/// These drives, with what each can hold. Whoever is away is told before anything is done.
fn drive_sessions(
    cell: &Cell,
    drives: &[&DriveConfig],
) -> Result<Vec<(DriveSession, u64)>, Box<dyn Error>> {
    let open = |drive: &&DriveConfig| {
        let session = drive_session(cell, drive)?;
        let control = session.client.drive_control(&session.authority, drive.partition_id());
        let control = control.map_err(session.failed("ask for its size"))?;
        Ok((session, control.capacity_bytes))
    };
    drives.iter().map(open).collect()
}

/// The drives that a new volume has parts on: those of these numbers, or all if there are none.
fn drives_for<'c>(
    cell: &'c Cell,
    numbers: &[u32],
    spread: &Spread,
) -> Result<Vec<&'c DriveConfig>, String> {
    let all = cell.config.drives.iter();
    let found: Vec<_> = match spread.stripe {
        None => cell.config.first_volume_drives().collect(),
        Some(Stripe::None) => all.filter(|drive| drive.stripe.is_none()).collect(),
        Some(_) => all.filter(|drive| drive.stripe.is_some()).take(1).collect(),
    };
    let is_wanted = |drive: &&DriveConfig| numbers.is_empty() || numbers.contains(&drive.index);
    let unknown = numbers.iter().find(|number| !found.iter().any(|drive| drive.index == **number));
    match (found.is_empty(), unknown) {
        (false, None) => Ok(found.into_iter().filter(is_wanted).collect()),
        (false, Some(number)) => {
            let there: Vec<String> = found.iter().map(|drive| drive.index.to_string()).collect();
            let there = there.join(", ");
            Err(format!("files of such a volume can't lie on drive {number}, but on: {there}"))
        }
        (true, _) => Err("the cell has no striping manager: a cell gets one when it is made, by \
                     `nasd up DIR --stripe raid0`"
            .to_owned()),
    }
}

/// With `afs` a file is one object of one drive: that keeps the order of what is done to it (specs/callbacks.md, "What has to be durable"),
/// which several drives together do not.
fn of_personality(spread: &Spread, personality: Personality) -> Result<Spread, &'static str> {
    match (personality, spread.stripe) {
        (Personality::Afs, Some(Stripe::Raid0 | Stripe::Raid1)) => Err(
            "files of volumes of the personality `afs` lie on one drive each: leave --stripe out, or take the \
                 personality `nfs`, whose files can be spread and kept more than once",
        ),
        (Personality::Afs, None) => Ok(Spread { stripe: Some(Stripe::None), ..spread.clone() }),
        _ => Ok(spread.clone()),
    }
}

/// How the files of a new volume are to be spread, if that is said.
fn spreading(cell: &Cell, spread: &Spread) -> Result<Option<Spreading>, Box<dyn Error>> {
    let Spread { stripe, width, unit, copies } = *spread;
    let Some(stripe) = stripe else { return Ok(None) };
    let drives = match stripe {
        Stripe::None => cell.config.drives.len() as u64,
        Stripe::Raid0 | Stripe::Raid1 => virtual_drive(&cell.config)?.1.members().count() as u64,
    };
    Ok(Asked { stripe, width, unit, copies }.over(drives)?)
}

/// Each drive's part of a quota, in proportion to what it can hold: whole blocks, together as many as
/// the quota has.
fn shares(quota: u64, capacities: &[u64]) -> Vec<u64> {
    if quota == NO_QUOTA {
        return vec![NO_QUOTA; capacities.len()];
    }
    let blocks = u128::from(quota / BLOCK_BYTES);
    let total: u128 = capacities.iter().map(|bytes| u128::from(*bytes)).sum::<u128>().max(1);
    let mut shares: Vec<u64> = capacities
        .iter()
        .map(|bytes| u64::try_from(blocks * u128::from(*bytes) / total).unwrap_or(0))
        .collect();
    let given: u64 = shares.iter().sum();
    let left = usize::try_from(u64::try_from(blocks).unwrap_or(0) - given).unwrap_or(0);
    shares.iter_mut().take(left).for_each(|share| *share += 1);
    shares.iter().map(|share| share * BLOCK_BYTES).collect()
}

/// The same, but no drive gets less than the volume uses there: the others make up for it. `None` where
/// more is in use than the quota.
fn shares_above(quota: u64, capacities: &[u64], used: &[u64]) -> Option<Vec<u64>> {
    let mut shares = shares(quota, capacities);
    if quota == NO_QUOTA {
        return Some(shares);
    }
    let used: Vec<u64> = used.iter().map(|bytes| bytes.next_multiple_of(BLOCK_BYTES)).collect();
    let mut lacking = 0u64;
    for (share, used) in shares.iter_mut().zip(&used) {
        lacking = lacking.saturating_add(used.saturating_sub(*share));
        *share = (*share).max(*used);
    }
    for (share, used) in shares.iter_mut().zip(&used) {
        let given = lacking.min(*share - used);
        *share -= given;
        lacking -= given;
    }
    (lacking == 0).then_some(shares)
}

fn create(
    cell: &Cell,
    name: &str,
    personality: Personality,
    quota: u64,
    numbers: &[u32],
    spread: &Spread,
) -> Outcome {
    check_volume_name(name)?;
    // A keyring that can't be read must be known before anything is made.
    cell.keyring()?;
    let drives = drives_for(cell, numbers, &of_personality(spread, personality)?)?;
    let spreading = spreading(cell, spread)?;
    let sessions = drive_sessions(cell, &drives)?;
    let mut taken = Vec::new();
    for (session, _) in &sessions {
        taken.extend(summaries(session)?.iter().map(|summary| summary.partition));
    }
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let drives: Vec<DriveId> = drives.iter().map(|drive| drive.drive_id()).collect();
    let volume = begin_volume(cell, name, personality, owner, &drives, &taken)?;
    let capacities: Vec<u64> = sessions.iter().map(|(_, bytes)| *bytes).collect();
    // With this personality the file manager counts bytes, and drives don't.
    let by_drives = if personality == Personality::Afs { NO_QUOTA } else { quota };
    if personality == Personality::Afs {
        set_volume_quota(cell, name, limited(quota))?;
    }
    let made = make_parts(cell, &volume, &sessions, &shares(by_drives, &capacities), spreading);
    if let Err(error) = made.and_then(|()| Ok(set_finished(cell, name, true)?)) {
        return Err(format!(
            "{error}\nthe volume {name} is not finished: `nasd volume remove {name}` takes away what \
             there is of it"
        )
        .into());
    }
    match tell_manager(cell)? {
        true => say!("volume {name} is there: `nasd mount --volume {name} MOUNTPOINT`"),
        false => say!("volume {name} will be there when the cell runs: `nasd up`"),
    }
    Ok(())
}

/// A quota, unless it is none.
fn limited(quota: u64) -> Option<u64> {
    (quota != NO_QUOTA).then_some(quota)
}

/// The quota that the file manager of this cell sees to, in a volume of the personality `afs`.
fn counted_quota(cell: &Cell, name: &str) -> Option<u64> {
    cell.config.other_volumes.iter().find(|volume| volume.name == name)?.quota_bytes
}

fn make_parts(
    cell: &Cell,
    volume: &VolumeConfig,
    sessions: &[(DriveSession, u64)],
    shares: &[u64],
    spreading: Option<Spreading>,
) -> Outcome {
    for (part, share) in volume.parts.iter().zip(shares) {
        let of_drive = sessions.iter().find(|(session, _)| session.drive == part.drive_id());
        let (session, _) = of_drive.ok_or("a drive was added to the cell meanwhile")?;
        make_part(session, cell, part.partition_id(), *share)?;
        if let Some(Spreading { unit, width, copies }) = spreading {
            let (width, copies) = (width.into(), copies.into());
            let striping =
                SetstripingArguments { partition: part.partition_id(), unit, width, copies };
            let set = session.client.set_striping(&session.authority, &striping);
            set.map_err(session.failed("spread its files so"))?;
        }
    }
    Ok(())
}

/// Makes a volume's partition on a drive, with keys that are in the keyring before the drive has them.
///
/// # Errors
/// If the drive refuses or does not answer, or the keyring can't be written.
pub fn make_part(
    session: &DriveSession,
    cell: &Cell,
    partition: PartitionId,
    quota: u64,
) -> Outcome {
    let keys = PartitionKeys::generate()?;
    let made = session.client.create_partition(&session.authority, partition);
    made.map_err(session.failed(format!("create partition {partition}")))?;
    furnish(session, cell, partition, quota, &keys)
}

/// Gives a partition keys that are in the keyring before the drive has them.
///
/// # Errors
/// As [`make_part`].
pub fn furnish(
    session: &DriveSession,
    cell: &Cell,
    partition: PartitionId,
    quota: u64,
    keys: &PartitionKeys,
) -> Outcome {
    Keyring::update(&cell.keyring_path(), |ring| {
        ring.insert_partition(session.drive, partition, keys);
        Ok(())
    })?;
    Ok(set_up(session, partition, quota, keys)?)
}

/// Has the manager read the table of volumes; `false` if none runs.
pub fn tell_manager(cell: &Cell) -> Result<bool, Box<dyn Error>> {
    let is_up = CellLock::holder(&cell.lock_path()).is_some();
    let patience = if is_up { COMMAND_DEADLINE } else { STOPPED_PATIENCE };
    match administrator_within(cell, patience)?.reload_volumes() {
        Ok(_) => Ok(true),
        Err(error) if !is_up && error.is_nobody_there() => Ok(false),
        Err(error) => Err(format!(
            "the manager does not know it yet: {error}; see its log, {}",
            cell.log_path("manager").display()
        )
        .into()),
    }
}

fn list(cell: &Cell, as_json: bool) -> Outcome {
    let (client, caller) = manager(cell)?;
    let list = client.volumes(&caller)?.volumes;
    let mut facts = Vec::new();
    for volume in &list {
        let space = match volume.serving {
            true => Some(client.space(&caller, volume.name.as_bytes())?),
            false => None,
        };
        facts.push(json!({
            "name": volume.name.to_string(),
            "personality": volume.personality.name(),
            "read_only": volume.read_only,
            "state": if volume.serving { "served" } else { "waits for a drive" },
            "total_bytes": space.map(|space| space.total_bytes),
            "free_bytes": space.map(|space| space.free_bytes),
            "objects": space.map(|space| space.files),
            "free_objects": space.map(|space| space.free_files),
        }));
    }
    // What is being made or removed, where that is known.
    for volume in cell.config.other_volumes.iter().filter(|volume| volume.unfinished) {
        facts.push(json!({
            "name": volume.name,
            "personality": volume.personality().name(),
            "read_only": volume.read_only,
            "state": "unfinished",
            "total_bytes": null,
            "free_bytes": null,
            "objects": null,
            "free_objects": null,
        }));
    }
    if as_json {
        return output::json(&json!({ "volumes": facts }));
    }
    say!(
        "{:<20} {:<12} {:>10} {:>10} {:>9}  state",
        "volume",
        "personality",
        "used",
        "size",
        "objects"
    );
    for volume in &facts {
        let number = |key: &str| volume[key].as_u64();
        let total = number("total_bytes");
        let used = total.map(|total| total.saturating_sub(number("free_bytes").unwrap_or(0)));
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), size);
        let objects = number("objects").map_or_else(|| "?".to_owned(), |count| count.to_string());
        let word = |key: &str| volume[key].as_str().unwrap_or_default();
        let (name, personality, state) = (word("name"), word("personality"), word("state"));
        let (used, total) = (bytes(used), bytes(total));
        let state = match volume["read_only"].as_bool() {
            Some(true) => format!("{state}, read-only"),
            _ => state.to_owned(),
        };
        say!("{name:<20} {personality:<12} {used:>10} {total:>10} {objects:>9}  {state}");
    }
    Ok(())
}

fn show(cell: &Cell, name: &str, as_json: bool) -> Outcome {
    let (client, caller) = manager(cell)?;
    let wire = Name::new(name)?;
    let parts = client.volume_parts(&caller, &wire).map_err(|error| unknown(name, &error))?.parts;
    let volumes = client.volumes(&caller)?.volumes;
    let summary = volumes.iter().find(|volume| volume.name == wire);
    let personality = summary.map(|volume| volume.personality).unwrap_or_default();
    let read_only = summary.is_some_and(|volume| volume.read_only);
    let index = |drive: DriveId| {
        let known = cell.config.drives.iter().find(|known| known.drive_id() == drive);
        known.map_or_else(|| format!("{:016x}", drive.0), |known| known.index.to_string())
    };
    let quota = counted_quota(cell, name).or_else(|| total_quota(&parts));
    if as_json {
        let parts: Vec<_> = parts
            .iter()
            .map(|part| {
                json!({
                    "drive": format!("{:016x}", part.drive.0),
                    "index": index(part.drive),
                    "partition": part.partition.to_string(),
                    "reachable": part.reachable,
                    "quota_bytes": (part.quota_bytes != NO_QUOTA).then_some(part.quota_bytes),
                    "used_bytes": part.used_bytes,
                    "free_bytes": part.free_bytes,
                    "objects": part.objects,
                })
            })
            .collect();
        return output::json(&json!({
            "name": name,
            "personality": personality.name(),
            "read_only": read_only,
            "quota_bytes": quota,
            "parts": parts,
        }));
    }
    let quota = quota.map_or_else(|| "none".to_owned(), size);
    let kind = if read_only { ", read-only" } else { "" };
    say!("volume {name}, personality {personality}{kind}, quota {quota}");
    let (drive, partition) = ("drive", "partition");
    say!(
        "{drive:<17} {partition:<10} {:>10} {:>10} {:>10} {:>9}",
        "used",
        "quota",
        "free",
        "objects"
    );
    for part in &parts {
        let (drive, partition) = (index(part.drive), part.partition.to_string());
        if !part.reachable {
            say!("{drive:<17} {partition:<10} does not answer");
            continue;
        }
        let quota =
            if part.quota_bytes == NO_QUOTA { "none".into() } else { size(part.quota_bytes) };
        let (used, free) = (size(part.used_bytes), size(part.free_bytes));
        say!("{drive:<17} {partition:<10} {used:>10} {quota:>10} {free:>10} {:>9}", part.objects);
    }
    Ok(())
}

/// How much a volume may hold, and how much there is room for: by its quota, or by its drives where they have less. What is used
/// does not follow from that.
fn show_quota(cell: &Cell, name: &str, as_json: bool) -> Outcome {
    let (client, caller) = manager(cell)?;
    let parts = client.volume_parts(&caller, &Name::new(name)?);
    let parts = parts.map_err(|error| unknown(name, &error))?.parts;
    let free = client.space(&caller, name.as_bytes())?.free_bytes;
    let quota = counted_quota(cell, name).or_else(|| total_quota(&parts));
    if as_json {
        return output::json(&json!({ "name": name, "quota_bytes": quota, "free_bytes": free }));
    }
    say!("volume {name}: {}, room for {}", shown(quota.unwrap_or(NO_QUOTA)), size(free));
    Ok(())
}

/// The sum of the partitions' sizes; `None` where one has no limit, or can't be asked.
fn total_quota(parts: &[VolumePart]) -> Option<u64> {
    parts.iter().try_fold(0u64, |sum, part| {
        let known = part.reachable && part.quota_bytes != NO_QUOTA;
        known.then(|| sum.saturating_add(part.quota_bytes))
    })
}

fn unknown(name: &str, error: &nasd_client::ClientError) -> String {
    match error {
        nasd_client::ClientError::Manager(nasd_protocol::ManagerStatus::NotFound) => {
            format!(
                "the cell has no volume `{name}`: `nasd volume list` shows those that there are"
            )
        }
        other => other.to_string(),
    }
}

/// The further volume of that name.
fn known<'a>(cell: &'a Cell, name: &str) -> Result<&'a VolumeConfig, String> {
    let found = cell.config.other_volumes.iter().find(|volume| volume.name == name);
    found.ok_or_else(|| {
        format!("the cell has no volume `{name}`: `nasd volume list` shows those that there are")
    })
}

fn remove(cell: &Cell, name: &str, yes: bool, with_files: bool) -> Outcome {
    if name == cell.config.volume {
        return Err(format!(
            "{name} is the cell's first volume, which stays as long as the cell: `nasd rm` removes files"
        )
        .into());
    }
    let _turn = VolumeTurn::take(cell, name)?;
    let cell = &Cell::open(cell.directory())?;
    let volume = known(cell, name)?;
    if !volume.unfinished {
        let entries = entries(cell, name)?;
        if entries > 0 && !with_files {
            return Err(format!(
                "there are {entries} names in the root of {name}: add --with-files to remove \
                 everything in it too"
            )
            .into());
        }
    }
    agree(&plan(cell, volume)?, yes)?;
    // What has changed while the user thought about it is removed as it is now.
    let cell = &Cell::open(cell.directory())?;
    let volume = known(cell, name)?;
    // From now on nobody serves it, and whatever happens, this command can be given again.
    set_finished(cell, name, false)?;
    tell_manager(cell)?;
    remove_leftovers(cell, name)?;
    for part in &volume.parts {
        remove_part(cell, part.location())?;
    }
    forget_volume(cell, name)?;
    say!("volume {name} is removed");
    Ok(())
}

/// Takes a partition of a volume from its drive, if it has it and is one of the cell's, and its keys from the keyring.
///
/// # Errors
/// If the drive refuses or does not answer, or the keyring can't be written.
pub fn remove_part(cell: &Cell, at: Location) -> Outcome {
    let Location { drive, partition } = at;
    if let Some(drive) = cell.config.drives.iter().find(|known| known.drive_id() == drive) {
        let session = drive_session(cell, drive)?;
        if summaries(&session)?.iter().any(|there| there.partition == partition) {
            let removed = session.client.remove_partition(&session.authority, partition);
            removed.map_err(session.failed(format!("remove partition {partition}")))?;
        }
    }
    Keyring::update(&cell.keyring_path(), |ring| {
        ring.remove_partition(drive, partition);
        Ok(())
    })?;
    Ok(())
}

/// How many names its root has; an error where that can't be told.
fn entries(cell: &Cell, name: &str) -> Result<usize, Box<dyn Error>> {
    let connected = connect(cell, name, for_command())?;
    let page = connected.clerk.readdir(&connected.caller, connected.clerk.root(), 0, 1024)?;
    let own = |name: &[u8]| name != b"." && name != b"..";
    Ok(page.entries.iter().filter(|entry| own(entry.name.as_bytes())).count())
}

/// What would be lost.
fn plan(cell: &Cell, volume: &VolumeConfig) -> Result<String, Box<dyn Error>> {
    let mut lines = Vec::new();
    for part in &volume.parts {
        let drive = cell.config.drives.iter().find(|drive| drive.drive_id() == part.drive_id());
        let Some(drive) = drive else { continue };
        let there = summaries(&drive_session(cell, drive)?)?;
        if let Some(there) = there.iter().find(|there| there.partition == part.partition_id()) {
            let (used, index) = (size(there.used_bytes), drive.index);
            let (partition, objects) = (there.partition, there.objects);
            lines
                .push(format!("  drive {index}: partition {partition}, {objects} objects, {used}"));
        }
    }
    Ok(format!("volume {} would be lost:\n{}\nwith all its files", volume.name, lines.join("\n")))
}

fn resize(cell: &Cell, name: &str, quota: u64) -> Outcome {
    let is_counted =
        |volume: &&VolumeConfig| volume.name == name && volume.personality() == Personality::Afs;
    if cell.config.other_volumes.iter().any(|volume| is_counted(&volume)) {
        return resize_counted(cell, name, quota);
    }
    let drives: Vec<&DriveConfig> = match name == cell.config.volume {
        true => cell.config.first_volume_drives().collect(),
        false => {
            let parts = &known(cell, name)?.parts;
            let has_part =
                |drive: &DriveConfig| parts.iter().any(|part| part.drive_id() == drive.drive_id());
            cell.config.drives.iter().filter(|drive| has_part(drive)).collect()
        }
    };
    let sessions = drive_sessions(cell, &drives)?;
    let partitions_of = |drive: &DriveSession| -> Result<Vec<PartitionId>, String> {
        if name == cell.config.volume {
            return Ok(drive.volume_partition().into_iter().collect());
        }
        let parts = known(cell, name)?.parts.iter();
        let there = parts.filter(|part| part.drive_id() == drive.drive);
        Ok(there.map(|part| part.partition_id()).collect())
    };
    let mut parts = Vec::new();
    for (session, capacity) in &sessions {
        let there = partitions_of(session)?;
        parts.extend(there.into_iter().map(|partition| (session, partition, *capacity)));
    }
    let capacities: Vec<u64> = parts.iter().map(|(.., capacity)| *capacity).collect();
    let mut used = Vec::new();
    for (session, partition, _) in &parts {
        let there = summaries(session)?;
        let there = there.iter().find(|there| there.partition == *partition);
        used.push(there.map_or(0, |there| there.used_bytes));
    }
    let shares = shares_above(quota, &capacities, &used).ok_or_else(|| {
        let used = size(used.iter().sum());
        format!("{used} of {name} are in use: remove files first, or leave it more room")
    })?;
    for ((session, partition, _), share) in parts.iter().zip(shares) {
        let sized = session.client.resize_partition(&session.authority, *partition, share);
        sized.map_err(session.failed(format!("resize partition {partition}")))?;
    }
    say!("volume {name}: {}", shown(quota));
    Ok(())
}

fn shown(quota: u64) -> String {
    if quota == NO_QUOTA { "no limit".to_owned() } else { size(quota) }
}

/// Changes what the file manager sees to. It may be less than is in use: then only nothing more is added.
fn resize_counted(cell: &Cell, name: &str, quota: u64) -> Outcome {
    set_volume_quota(cell, name, limited(quota))?;
    match tell_manager(cell)? {
        true => say!("volume {name}: {}", shown(quota)),
        false => say!("volume {name}: {} when the cell runs: `nasd up`", shown(quota)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_less_than_is_in_use() {
        let even = [1 << 30, 1 << 30];
        assert_eq!(shares_above(8192, &even, &[0, 0]), Some(vec![4096, 4096]));
        assert_eq!(shares_above(16384, &even, &[12_000, 1]), Some(vec![12288, 4096]));
        assert_eq!(shares_above(16384, &even, &[1, 12_000]), Some(vec![4096, 12288]));
        assert_eq!(shares_above(16384, &even, &[12_000, 4097]), None);
        assert_eq!(shares_above(NO_QUOTA, &even, &[1, 1]), Some(vec![NO_QUOTA, NO_QUOTA]));
    }

    #[test]
    fn shares_are_blocks_in_proportion_and_lose_nothing() {
        assert_eq!(shares(NO_QUOTA, &[1, 2]), [NO_QUOTA, NO_QUOTA]);
        assert_eq!(shares(12 << 20, &[1 << 30, 1 << 30]), [6 << 20, 6 << 20]);
        assert_eq!(shares(12 << 20, &[1 << 30, 2 << 30]), [4 << 20, 8 << 20]);
        for quota in [0, 1, 4096, 4097, 10 << 30, u64::MAX - 1] {
            for capacities in
                [vec![5], vec![1, 1, 1], vec![u64::MAX; 4], vec![0, 0], vec![7, 1 << 40]]
            {
                let shares = shares(quota, &capacities);
                let sum: u128 = shares.iter().map(|share| u128::from(*share)).sum();
                let none = capacities.iter().all(|bytes| *bytes == 0);
                let whole = u128::from(quota / BLOCK_BYTES * BLOCK_BYTES);
                assert!(none || sum == whole, "{quota} {capacities:?} {shares:?}");
            }
        }
    }
}
