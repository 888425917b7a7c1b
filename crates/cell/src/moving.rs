//! A part of a volume that is moved to another drive: what `cell.toml` says of it.
//!
//! Partitions that are made for it are written down before they are there, as leftovers, so that a command that was interrupted leaves nothing that
//! nobody knows of. The moment at which the part is elsewhere is one writing of the file, by the manager, which holds the volume still
//! then; where the part was is left over from then on.

use super::config::{CellConfig, Leftover, VolumeConfig, VolumePart};
use super::create::update_config;
use super::volumes::{next_number, told_part};
use super::{Cell, CellError};
use nasd_manager::DriveConfig;
use nasd_protocol::manager::Name;
use nasd_types::{DriveId, Location, PartitionId};

/// Partitions that are made for a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveNumbers {
    /// What the part is to be, on the other drive.
    pub target: PartitionId,
    /// What is copied from, on the drive that has the part, one after another: none is used again, as a drive takes a while to forget one
    /// that is removed.
    pub copies: Vec<PartitionId>,
}

/// Writes down partitions for a move of a part, with so many copies of it at most, as leftovers, of numbers that none of the `taken` has, nor
/// any partition before.
///
/// # Errors
/// `Volume` where the volume has no such part, or leftovers that were not removed; `Damaged` or `Io`.
pub fn begin_move(
    cell: &Cell,
    name: &str,
    part: Location,
    to: DriveId,
    (copies, taken): (u32, &[PartitionId]),
) -> Result<MoveNumbers, CellError> {
    update_config(cell.directory(), |config| {
        let first = next_number(config, taken);
        let number = |more: u32| PartitionId(first.0.saturating_add(more));
        let copies = (1..=copies).map(number).collect();
        let numbers = MoveNumbers { target: first, copies };
        config.last_partition = numbers.copies.last().unwrap_or(&first).0;
        let volume = volume_mut(config, name)?;
        part_mut(volume, part)?;
        if !volume.leftovers.is_empty() {
            let text = format!("a part of {name} is being moved, or was and is not removed yet");
            return Err(CellError::Volume(text));
        }
        let copies = numbers.copies.iter().map(|copy| Location { partition: *copy, ..part });
        let target = Location { drive: to, partition: numbers.target };
        volume.leftovers = copies.chain([target]).map(Leftover::new).collect();
        Ok(numbers)
    })
}

/// Writes down that a part, known by the drive where it was made, is from now on what a move has prepared: what the manager is told of it.
///
/// # Errors
/// `Volume` where there is no such part, or nothing was prepared there; `NoKeys`, `Damaged` or `Io`.
pub(super) fn end_move(
    cell: &Cell,
    name: &Name,
    made: DriveId,
    to: Location,
) -> Result<DriveConfig, CellError> {
    let keyring = cell.keyring()?;
    update_config(cell.directory(), |config| {
        let wrong = |what: &str| CellError::Volume(format!("volume {name}: {what}"));
        let unchanged = config.clone();
        let index_of = |drive: DriveId| {
            let found = unchanged.drives.iter().find(|known| known.drive_id() == drive);
            found.map(|known| known.index)
        };
        let volume = volume_mut(config, &name.to_string())?;
        // One that somebody is removing is as good as none, whether it is there still or not.
        let at_target = |left: &Leftover| left.location() == to && !left.doomed;
        let Some(prepared) = volume.leftovers.iter().position(at_target) else {
            return Err(wrong("nothing was prepared there"));
        };
        let is_meant = |part: &&mut VolumePart| part.made().drive == made;
        let part = volume.parts.iter_mut().find(is_meant);
        let part = part.ok_or_else(|| wrong("it has no such part"))?;
        let from = part.location();
        let index = index_of(from.drive).ok_or_else(|| wrong("its drive is none of the cell's"))?;
        *part = part.moved_to(to, index);
        let told = told_part(&unchanged, &keyring, part)?;
        let told = told.ok_or_else(|| wrong("the other drive is none of the cell's"))?;
        volume.leftovers[prepared] = Leftover::new(from);
        Ok(told)
    })
}

/// Writes down that all leftovers of a volume are going to be removed, so that none of them becomes a part of it from now on, whoever is
/// moving one: which they are.
///
/// # Errors
/// `Volume` where there is no such volume; `Damaged` or `Io`.
pub fn doom_leftovers(cell: &Cell, name: &str) -> Result<Vec<Location>, CellError> {
    update_config(cell.directory(), |config| {
        let volume = volume_mut(config, name)?;
        volume.leftovers.iter_mut().for_each(|left| left.doomed = true);
        Ok(volume.leftovers.iter().map(Leftover::location).collect())
    })
}

/// Forgets a partition that was left over, and is removed.
///
/// # Errors
/// `Damaged` or `Io`.
pub fn forget_leftover(cell: &Cell, name: &str, at: Location) -> Result<(), CellError> {
    update_config(cell.directory(), |config| {
        let volume = volume_mut(config, name)?;
        volume.leftovers.retain(|left| left.location() != at);
        Ok(())
    })
}

fn volume_mut<'a>(
    config: &'a mut CellConfig,
    name: &str,
) -> Result<&'a mut VolumeConfig, CellError> {
    let found = config.other_volumes.iter_mut().find(|volume| volume.name == name);
    found.ok_or_else(|| CellError::Volume(format!("the cell has no volume `{name}`")))
}

fn part_mut(volume: &mut VolumeConfig, at: Location) -> Result<&mut VolumePart, CellError> {
    let name = volume.name.clone();
    let found = volume.parts.iter_mut().find(|part| part.location() == at);
    found.ok_or_else(|| CellError::Volume(format!("the volume `{name}` has no such part")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cell_of;
    use crate::{Keyring, PartitionKeys, begin_copy, begin_volume, set_finished};
    use nasd_types::Personality;

    fn config_of(cell: &Cell) -> CellConfig {
        CellConfig::load(&cell.directory().join("cell.toml")).unwrap()
    }

    /// Moves the only part of `a` to this drive.
    fn moved(cell: &Cell, to: DriveId) -> Result<DriveConfig, CellError> {
        let part = config_of(cell).other_volumes[0].parts[0].clone();
        let numbers = begin_move(cell, "a", part.location(), to, (2, &[]))?;
        let target = Location { drive: to, partition: numbers.target };
        Keyring::update(&cell.keyring_path(), |ring| {
            ring.insert_partition(to, numbers.target, &PartitionKeys::generate()?);
            Ok(())
        })?;
        let cell = Cell::open(cell.directory())?;
        end_move(&cell, &Name::new("a").unwrap(), part.made().drive, target)
    }

    #[test]
    fn files_are_known_by_where_the_part_was_made_wherever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell_of(directory.path(), 2);
        let [here, there] = [0, 1].map(|at| cell.config.drives[at].drive_id());
        let begun = begin_volume(&cell, "a", Personality::Afs, (0, 0), &[here], &[]).unwrap();
        set_finished(&cell, "a", true).unwrap();
        let made = begun.parts[0].location();
        let told = moved(&cell, there).unwrap();
        assert_eq!((told.id, told.partition), (made.drive, made.partition));
        assert_eq!(told.index, cell.config.drives[0].index);
        assert_eq!(told.address, cell.config.drives[1].address.to_string());
        let at = told.location();
        assert!(at.drive == there && at.partition != made.partition);
        // What it was copied from, and where it was, is to be removed before it is moved again.
        let left = config_of(&cell).other_volumes[0].leftovers.clone();
        assert_eq!(left.len(), 3);
        assert!(left.contains(&Leftover::new(made)) && !left.contains(&Leftover::new(at)));
        assert!(matches!(moved(&cell, here), Err(CellError::Volume(_))));
        left.iter().for_each(|left| forget_leftover(&cell, "a", left.location()).unwrap());
        // Back again it is another partition, and known as before.
        let back = moved(&cell, here).unwrap();
        assert_eq!((back.id, back.partition), (made.drive, made.partition));
        assert!(back.location().drive == here && back.location().partition != made.partition);
        let volume = &config_of(&cell).other_volumes[0];
        assert_eq!((volume.parts[0].made(), volume.home_id()), (made, here));
        assert_eq!(config_of(&cell).volume_of(here, back.location().partition), Some("a"));
        assert_eq!(config_of(&cell).volume_of(here, made.partition), None);
    }

    #[test]
    fn a_copy_of_what_was_moved_onto_one_drive_has_a_number_for_each_part() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell_of(directory.path(), 2);
        let [here, there] = [0, 1].map(|at| cell.config.drives[at].drive_id());
        begin_volume(&cell, "a", Personality::Nfs, (0, 0), &[here, there], &[]).unwrap();
        set_finished(&cell, "a", true).unwrap();
        moved(&cell, there).unwrap();
        let (copy, source) = begin_copy(&cell, "a", "b", true, &[]).unwrap();
        assert_eq!(source.len(), 2);
        assert!(copy.parts.iter().all(|part| part.drive_id() == there));
        assert_ne!(copy.parts[0].partition_id(), copy.parts[1].partition_id());
        let made: Vec<DriveId> = copy.parts.iter().map(|part| part.made().drive).collect();
        assert_eq!(made, [here, there]);
        let next = begin_volume(&cell, "c", Personality::Nfs, (0, 0), &[here], &[]).unwrap();
        let highest = copy.parts.iter().map(VolumePart::partition_id).max().unwrap();
        assert!(next.parts[0].partition_id() > highest);
    }

    #[test]
    fn nothing_is_moved_to_what_somebody_is_removing() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell_of(directory.path(), 2);
        let [here, there] = [0, 1].map(|at| cell.config.drives[at].drive_id());
        let begun = begin_volume(&cell, "a", Personality::Afs, (0, 0), &[here], &[]).unwrap();
        let made = begun.parts[0].location();
        let numbers = begin_move(&cell, "a", made, there, (2, &[])).unwrap();
        let target = Location { drive: there, partition: numbers.target };
        Keyring::update(&cell.keyring_path(), |ring| {
            ring.insert_partition(there, numbers.target, &PartitionKeys::generate()?);
            Ok(())
        })
        .unwrap();
        let doomed = doom_leftovers(&cell, "a").unwrap();
        assert!(doomed.len() == 3 && doomed.contains(&target) && !doomed.contains(&made));
        let cell = Cell::open(directory.path()).unwrap();
        let ended = end_move(&cell, &Name::new("a").unwrap(), here, target);
        assert!(matches!(ended, Err(CellError::Volume(_))), "{ended:?}");
        assert_eq!(config_of(&cell).other_volumes[0].parts[0].location(), made);
        assert!(matches!(doom_leftovers(&cell, "b"), Err(CellError::Volume(_))));
    }

    #[test]
    fn each_copy_has_a_number_of_its_own_and_is_left_over() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell_of(directory.path(), 2);
        let [here, there] = [0, 1].map(|at| cell.config.drives[at].drive_id());
        let begun = begin_volume(&cell, "a", Personality::Afs, (0, 0), &[here], &[]).unwrap();
        let made = begun.parts[0].location();
        let taken = [PartitionId(30)];
        let numbers = begin_move(&cell, "a", made, there, (12, &taken)).unwrap();
        let mut all = numbers.copies.clone();
        all.push(numbers.target);
        all.sort();
        all.dedup();
        assert!(all.len() == 13 && all.iter().all(|number| *number > taken[0]));
        assert_eq!(config_of(&cell).last_partition, all[12].0);
        let left = config_of(&cell).other_volumes[0].leftovers.clone();
        assert_eq!(left.len(), 13);
        let at = |partition: &PartitionId| Location { drive: here, partition: *partition };
        assert!(numbers.copies.iter().all(|copy| left.contains(&Leftover::new(at(copy)))));
    }

    #[test]
    fn nothing_is_moved_to_where_nothing_was_prepared() {
        let directory = tempfile::tempdir().unwrap();
        let cell = cell_of(directory.path(), 2);
        let [here, there] = [0, 1].map(|at| cell.config.drives[at].drive_id());
        begin_volume(&cell, "a", Personality::Nfs, (0, 0), &[here], &[]).unwrap();
        let before = config_of(&cell).to_text().unwrap();
        let target = Location { drive: there, partition: PartitionId(77) };
        let name = Name::new("a").unwrap();
        assert!(matches!(end_move(&cell, &name, here, target), Err(CellError::Volume(_))));
        for volume in ["a", "b"] {
            let begun = begin_move(&cell, volume, target, here, (2, &[]));
            assert!(matches!(begun, Err(CellError::Volume(_))));
        }
        assert_eq!(config_of(&cell).to_text().unwrap(), before);
    }
}
