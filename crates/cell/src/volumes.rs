//! The cell's further volumes: what `cell.toml` says of them, how that changes, and how the manager
//! reads it.
//!
//! A volume that is made is in `cell.toml` before anything is made on a drive, as unfinished, and
//! one that is removed is unfinished until nothing of it is left: so a command that was interrupted
//! leaves nothing that nobody knows of. No manager serves an unfinished volume. Numbers of
//! partitions are never used again: handles of files that were lost must not lead to others.

use super::config::{CellConfig, VolumeConfig, VolumePart};
use super::create::update_config;
use super::{Cell, CellError, RingKeeper};
use nasd_manager::adopt::{Adopted, adopt_partitions};
use nasd_manager::{DriveConfig, ManagerConfig, RootOptions, TableError, VolumeTable};
use nasd_protocol::manager::Name;
use nasd_types::{DriveId, Location, PartitionId, Personality};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest name of a volume; it is a part of paths and of arguments.
const MAX_NAME_BYTES: usize = 64;

/// Whether a volume may be called so: VOLUME:/path must be told apart from other things.
///
/// # Errors
/// What may be.
pub fn check_volume_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins_well && name.len() <= MAX_NAME_BYTES && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!(
        "`{name}` is no name of a volume: those have letters, digits, `.`, `_` and `-`, begin with a \
         letter or digit, and have at most {MAX_NAME_BYTES} of them"
    ))
}

/// Writes a new volume down as unfinished: a partition on each of these drives, of a number that none of the
/// `taken` has, nor any partition before.
///
/// # Errors
/// `Volume` where there is one of that name; `Damaged` or `Io`.
pub fn begin_volume(
    cell: &Cell,
    name: &str,
    personality: Personality,
    owner: (u32, u32),
    drives: &[DriveId],
    taken: &[PartitionId],
) -> Result<VolumeConfig, CellError> {
    update_config(cell.directory(), |config| {
        if config.volumes().any(|known| known == name) {
            return Err(CellError::Volume(format!("the cell has a volume `{name}` already")));
        }
        let number = next_number(config, taken);
        config.last_partition = number.0;
        let parts = drives.iter().map(|drive| VolumePart::new(*drive, number));
        let parts: Vec<_> = parts.collect();
        let home = parts.first().map_or(DriveId(0), VolumePart::drive_id);
        let volume = VolumeConfig::new(name, personality, home, owner, parts);
        config.other_volumes.push(volume.clone());
        Ok(volume)
    })
}

/// Writes a new volume down as unfinished that is to be a copy of another one: on each of its drives that the cell still has another
/// partition, as [`begin_volume`] numbers them. Answers the parts of the other one, in the same order.
///
/// # Errors
/// `Volume` where there is one of that name, or none to copy; `Damaged` or `Io`.
pub fn begin_copy(
    cell: &Cell,
    source: &str,
    name: &str,
    read_only: bool,
    taken: &[PartitionId],
) -> Result<(VolumeConfig, Vec<VolumePart>), CellError> {
    update_config(cell.directory(), |config| {
        if config.volumes().any(|known| known == name) {
            return Err(CellError::Volume(format!("the cell has a volume `{name}` already")));
        }
        let original = copied_volume(config, source)?;
        let number = next_number(config, taken);
        config.last_partition = number.0;
        let (parts, last) = copied_parts(&original.parts, number);
        config.last_partition = last.0;
        let (home, owner) = (original.home_id(), original.owner());
        let mut copy = VolumeConfig::new(name, original.personality(), home, owner, parts);
        copy.read_only = read_only;
        copy.quota_bytes = original.quota_bytes.filter(|_| !read_only);
        config.other_volumes.push(copy.clone());
        Ok((copy, original.parts))
    })
}

/// The parts of a copy, all known by this number, and the highest number that they take: of a volume two parts may be on one drive, if they
/// were moved there.
fn copied_parts(parts: &[VolumePart], number: PartitionId) -> (Vec<VolumePart>, PartitionId) {
    let mut copies: Vec<VolumePart> = Vec::new();
    for part in parts {
        let drive = part.drive_id();
        let beside = copies.iter().filter(|copy| copy.drive_id() == drive).count() as u32;
        copies.push(part.copied_to(PartitionId(number.0.saturating_add(beside)), number));
    }
    let last = copies.iter().map(VolumePart::partition_id).max();
    (copies, last.unwrap_or(number))
}

/// A volume that may be copied, the cell's first or another one, with its parts on drives that the cell has.
///
/// # Errors
/// `Volume` where there is none, or it is not finished.
pub fn copied_volume(config: &CellConfig, name: &str) -> Result<VolumeConfig, CellError> {
    if name == config.volume {
        let part =
            |drive: &super::DriveConfig| VolumePart::new(drive.drive_id(), drive.partition_id());
        let parts: Vec<_> = config.first_volume_drives().map(part).collect();
        // Of the first volume, the first drive is the home.
        let home = config.drives.first().map_or(DriveId(0), super::DriveConfig::drive_id);
        return Ok(VolumeConfig::new(name, Personality::Nfs, home, (0, 0), parts));
    }
    let found = config.other_volumes.iter().find(|volume| volume.name == name);
    let mut found = found.cloned().ok_or_else(|| {
        CellError::Volume(format!(
            "the cell has no volume `{name}`: `nasd volume list` shows those that there are"
        ))
    })?;
    if found.unfinished {
        return Err(CellError::Volume(format!("the volume `{name}` is not finished")));
    }
    let is_there =
        |part: &VolumePart| config.drives.iter().any(|drive| drive.drive_id() == part.drive_id());
    found.parts.retain(is_there);
    Ok(found)
}

/// Makes a volume of partitions that are copies of those of another one, and have keys in the keyring. Tells `progress` how many
/// directories are done.
///
/// # Errors
/// `NoKeys`, `Volume` with what a drive says, `Damaged` or `Io`.
pub fn adopt_volume(
    cell: &Cell,
    volume: &VolumeConfig,
    source: &[VolumePart],
    progress: &mut dyn FnMut(u64),
) -> Result<Adopted, CellError> {
    let told = told(cell, &cell.keyring()?, volume)?;
    let config = ManagerConfig {
        protection: cell.config.protection(),
        ..ManagerConfig::new(cell.config.cell_id(), told.name, told.home, told.drives)
    };
    let made = source.iter().map(VolumePart::made);
    let source = made.map(|made| (made.drive, made.partition)).collect();
    adopt_partitions(&config, source, progress)
        .map_err(|error| CellError::Volume(error.to_string()))
}

/// A number that no partition of the cell has or had.
pub(super) fn next_number(config: &CellConfig, taken: &[PartitionId]) -> PartitionId {
    let of_volumes = config.other_volumes.iter().flat_map(|volume| &volume.parts);
    let left = config.other_volumes.iter().flat_map(|volume| &volume.leftovers);
    let highest = of_volumes
        .map(|part| part.partition_id().0)
        .chain(left.map(|left| left.location().partition.0))
        .chain(config.drives.iter().map(|drive| drive.partition_id().0))
        .chain(taken.iter().filter(|one| **one != PartitionId::AUDIT).map(|one| one.0))
        .chain([config.last_partition])
        .max();
    PartitionId(highest.unwrap_or(0).saturating_add(1))
}

/// Gives a volume another partition on a drive that has lost its own.
///
/// # Errors
/// `Volume` where it has none there; `Damaged` or `Io`.
pub fn renumber_part(
    cell: &Cell,
    name: &str,
    lost: Location,
    taken: &[PartitionId],
) -> Result<PartitionId, CellError> {
    update_config(cell.directory(), |config| {
        let number = next_number(config, taken);
        config.last_partition = number.0;
        let unknown = || CellError::Volume(format!("the cell has no volume `{name}`"));
        let volume = config.other_volumes.iter_mut().find(|each| each.name == name);
        let volume = volume.ok_or_else(unknown)?;
        let part = volume.parts.iter_mut().find(|part| part.location() == lost);
        let part = part.ok_or_else(unknown)?;
        *part = part.copied_to(number, number);
        Ok(number)
    })
}

/// Says that all of a volume is there, or that something is not there any more.
///
/// # Errors
/// `Volume` where it is not known; `Damaged` or `Io`.
pub fn set_finished(cell: &Cell, name: &str, finished: bool) -> Result<(), CellError> {
    update_config(cell.directory(), |config| {
        let volume = config.other_volumes.iter_mut().find(|volume| volume.name == name);
        let unknown = || CellError::Volume(format!("the cell has no volume `{name}`"));
        volume.ok_or_else(unknown)?.unfinished = !finished;
        Ok(())
    })
}

/// Writes down how many bytes the files of a volume of the personality `afs` may have; `None`: as many as there is room for.
///
/// # Errors
/// `Volume` where it is not known; `Damaged` or `Io`.
pub fn set_volume_quota(cell: &Cell, name: &str, quota: Option<u64>) -> Result<(), CellError> {
    update_config(cell.directory(), |config| {
        let volume = config.other_volumes.iter_mut().find(|volume| volume.name == name);
        let unknown = || CellError::Volume(format!("the cell has no volume `{name}`"));
        volume.ok_or_else(unknown)?.quota_bytes = quota;
        Ok(())
    })
}

/// Forgets a volume of which nothing is left.
///
/// # Errors
/// `Damaged` or `Io`.
pub fn forget_volume(cell: &Cell, name: &str) -> Result<(), CellError> {
    update_config(cell.directory(), |config| {
        config.other_volumes.retain(|volume| volume.name != name);
        Ok(())
    })
}

/// `cell.toml` and the keyring, as the manager's table of volumes: read anew each time.
#[derive(Debug)]
pub struct CellTable {
    directory: PathBuf,
}

impl CellTable {
    /// Of this cell.
    pub fn new(cell: &Cell) -> CellTable {
        CellTable { directory: cell.directory().to_owned() }
    }

    fn read(&self) -> Result<Vec<nasd_manager::VolumeConfig>, CellError> {
        let cell = Cell::open(&self.directory)?;
        if cell.config.other_volumes.is_empty() {
            return Ok(Vec::new());
        }
        let keyring = cell.keyring()?;
        let finished = cell.config.other_volumes.iter().filter(|volume| !volume.unfinished);
        finished.map(|volume| told(&cell, &keyring, volume)).collect()
    }
}

fn told(
    cell: &Cell,
    keyring: &super::Keyring,
    volume: &VolumeConfig,
) -> Result<nasd_manager::VolumeConfig, CellError> {
    let mut drives = Vec::new();
    let mut partitions = BTreeMap::new();
    for part in &volume.parts {
        // A drive that is of the cell no more has taken its part with it.
        let Some(told) = told_part(&cell.config, keyring, part)? else { continue };
        partitions.insert(told.id, told.location());
        drives.push(told);
    }
    let name = Name::new(&volume.name).map_err(|error| CellError::Volume(error.to_string()))?;
    let keeper = RingKeeper::of_volume(cell.keyring_path(), partitions);
    let (uid, gid) = volume.owner();
    let root = RootOptions { uid, gid, ..RootOptions::default() };
    let keeper: Arc<dyn nasd_manager::keys::KeyKeeper> = Arc::new(keeper);
    let home = volume.home_id();
    let (personality, quota) = (volume.personality(), volume.quota_bytes);
    let (keeper, read_only) = (Some(keeper), volume.read_only);
    Ok(nasd_manager::VolumeConfig {
        name,
        home,
        drives,
        keeper,
        root,
        personality,
        quota,
        read_only,
    })
}

/// A part of a volume, as a manager is told of it; `None` where its drive is none of the cell's.
pub(super) fn told_part(
    config: &CellConfig,
    keyring: &super::Keyring,
    part: &VolumePart,
) -> Result<Option<DriveConfig>, CellError> {
    let (at, made) = (part.location(), part.made());
    let Location { drive: id, partition } = at;
    let no_keys = || CellError::NoKeys(format!("partition {partition} of drive {id}"));
    let Some(drive) = config.drives.iter().find(|drive| drive.drive_id() == id) else {
        return Ok(None);
    };
    Ok(Some(DriveConfig {
        id: made.drive,
        address: drive.address.to_string(),
        index: part.made_index().unwrap_or(drive.index),
        partition: made.partition,
        moved_to: part.made_index().map(|_| at),
        keys: keyring.volume_keys(id, partition).ok_or_else(no_keys)?,
    }))
}

impl VolumeTable for CellTable {
    fn volumes(&self) -> Result<Vec<nasd_manager::VolumeConfig>, TableError> {
        self.read().map_err(|error| TableError(error.to_string()))
    }

    fn move_part(
        &self,
        volume: &Name,
        drive: DriveId,
        to: Location,
    ) -> Result<DriveConfig, TableError> {
        let cell = Cell::open(&self.directory);
        let moved = cell.and_then(|cell| super::moving::end_move(&cell, volume, drive, to));
        moved.map_err(|error| TableError(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cell;
    use crate::{Keyring, PartitionKeys};
    use nasd_manager::keys::KeptKeys;

    fn all(cell: &Cell) -> Vec<DriveId> {
        cell.config.drives.iter().map(|drive| drive.drive_id()).collect()
    }

    #[test]
    fn names_can_be_told_from_paths_and_options() {
        for good in ["a", "main", "2nd", "a.b_c-d", &"x".repeat(64)] {
            check_volume_name(good).unwrap();
        }
        for bad in ["", "-a", ".a", "a:b", "a/b", "a b", "\u{e9}", &"x".repeat(65)] {
            assert!(check_volume_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_never_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        let begin = |name| {
            begin_volume(&cell, name, Personality::Nfs, (0, 0), &all(&cell), &[PartitionId(4)])
        };
        let first = begin("a").unwrap();
        assert!(first.unfinished && first.parts.iter().all(|part| part.partition_id().0 == 5));
        assert!(matches!(begin("a"), Err(CellError::Volume(_))));
        assert!(matches!(begin(&cell.config.volume), Err(CellError::Volume(_))));
        forget_volume(&cell, "a").unwrap();
        let number = begin("b").unwrap().parts[0].partition_id();
        assert_eq!(number, PartitionId(6));
        let lost = Location { drive: cell.config.drives[0].drive_id(), partition: number };
        assert_eq!(renumber_part(&cell, "b", lost, &[]).unwrap(), PartitionId(7));
        assert!(renumber_part(&cell, "b", lost, &[]).is_err());
    }

    #[test]
    fn a_copy_has_the_same_drives_and_says_whether_it_may_be_changed() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        let begin = |source, name, read_only| begin_copy(&cell, source, name, read_only, &[]);
        let first = cell.config.volume.clone();
        let (snapshot, source) = begin(&first, "monday", true).unwrap();
        let drives = |parts: &[VolumePart]| -> Vec<DriveId> {
            parts.iter().map(VolumePart::drive_id).collect()
        };
        assert_eq!(drives(&snapshot.parts), drives(&source));
        assert_eq!(snapshot.home_id(), cell.config.drives[0].drive_id());
        assert_eq!(source[0].partition_id(), cell.config.drives[0].partition_id());
        assert!(snapshot.unfinished && snapshot.read_only);
        assert_ne!(snapshot.parts[0], source[0]);
        // One that is not finished is not copied.
        assert!(matches!(begin("monday", "tuesday", false), Err(CellError::Volume(_))));
        assert!(matches!(begin("nothing", "tuesday", false), Err(CellError::Volume(_))));
        assert!(matches!(begin(&first, "monday", true), Err(CellError::Volume(_))));
        set_finished(&cell, "monday", true).unwrap();
        let (clone, source) = begin("monday", "trial", false).unwrap();
        assert_eq!((clone.read_only, source), (false, snapshot.parts));
        // Files from before there were snapshots say nothing of it.
        let text = std::fs::read_to_string(directory.path().join("cell.toml")).unwrap();
        assert_eq!(text.matches("read_only = true").count(), 1, "{text}");
        assert_eq!(text.matches("read_only").count(), 1, "{text}");
    }

    #[test]
    fn managers_are_told_of_finished_volumes_and_keep_their_keys() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell(directory.path());
        let table = CellTable::new(&cell);
        let volume = begin_volume(&cell, "a", Personality::Nfs, (5, 6), &all(&cell), &[]).unwrap();
        let keys = PartitionKeys::generate().unwrap();
        Keyring::update(&cell.keyring_path(), |ring| {
            volume.parts.iter().for_each(|part| {
                ring.insert_partition(part.drive_id(), part.partition_id(), &keys);
            });
            Ok(())
        })
        .unwrap();
        assert!(table.volumes().unwrap().is_empty());
        set_finished(&cell, "a", true).unwrap();
        assert_eq!(table.volumes().unwrap()[0].quota, None);
        set_volume_quota(&cell, "a", Some(7)).unwrap();
        assert_eq!(table.volumes().unwrap()[0].quota, Some(7));
        assert!(set_volume_quota(&cell, "b", None).is_err());
        let told = table.volumes().unwrap().remove(0);
        assert_eq!((told.root.uid, told.root.gid, told.drives.len()), (5, 6, volume.parts.len()));
        let (drive, keeper) = (told.drives[0].clone(), told.keeper.unwrap());
        assert_eq!(drive.keys.current.key.expose(), &keys.working_key);
        let next = nasd_manager::keys::WorkingKey { epoch: 2, key: drive.keys.current.key.clone() };
        let kept = KeptKeys {
            pending: Some(next.clone()),
            changed: nasd_types::Timestamp::from_parts(77, 0),
            owed: 2,
            ..drive.keys.clone()
        };
        keeper.keep(drive.id, &kept).unwrap();
        assert_eq!(table.volumes().unwrap()[0].drives[0].keys, kept);
        let kept = KeptKeys { current: next, pending: None, owed: 0, ..kept };
        keeper.keep(drive.id, &kept).unwrap();
        assert_eq!(table.volumes().unwrap()[0].drives[0].keys, kept);
        assert_eq!(keeper.partition_keys(drive.id).unwrap()[0].expose(), &keys.partition_key);
        // The first volume's keys are others.
        let of_first = cell.keyring().unwrap().working_keys(drive.id).unwrap();
        assert_ne!(of_first.current, kept.current);
        assert!(keeper.keep(DriveId(0), &kept).is_err());
        forget_volume(&cell, "a").unwrap();
        assert!(table.volumes().unwrap().is_empty());
    }
}
