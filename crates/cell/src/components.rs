//! The component drives of a cell's virtual drive, as `cell.toml` names them: those who serve the cell follow it.

use super::config::{CellConfig, DriveConfig, StateCopies, StripeConfig};
use super::create::update_config;
use super::keyring::Keyring;
use super::{Cell, CellError, keyring_path};

/// The virtual drive of a cell, and what it is made of.
///
/// # Errors
/// `Component` where the cell has none, or several.
pub fn virtual_drive(config: &CellConfig) -> Result<(&DriveConfig, &StripeConfig), CellError> {
    let mut found = config.drives.iter().filter_map(|drive| Some((drive, drive.stripe.as_ref()?)));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(CellError::Component(
            "the files of this cell lie on one drive each, which stay where they are: `nasd up --stripe \
             raid1` makes a cell whose drives come and go"
                .to_owned(),
        )),
        _ => Err(CellError::Component("the cell has several virtual drives".to_owned())),
    }
}

/// A component drive by its index.
///
/// # Errors
/// `Component` for any other drive.
pub fn component(config: &CellConfig, index: u32) -> Result<&DriveConfig, CellError> {
    let (of, stripe) = virtual_drive(config)?;
    let found = config.drives.iter().find(|drive| drive.index == index);
    found.filter(|drive| stripe.over.contains(&drive.index)).ok_or_else(|| {
        let known: Vec<String> = stripe.over.iter().map(u32::to_string).collect();
        CellError::Component(format!(
            "drive {index} is none of those that {} is over: {}",
            of.member(),
            known.join(", ")
        ))
    })
}

/// Changes how the virtual drive uses its component drives.
///
/// # Errors
/// As [`virtual_drive`], or what the change itself says; `Damaged` or `Io`.
pub fn change_stripe(
    cell: &Cell,
    change: impl FnOnce(&mut StripeConfig) -> Result<(), CellError>,
) -> Result<(), CellError> {
    update_config(cell.directory(), |config| change(stripe_mut(config)?))
}

pub(super) fn stripe_mut(config: &mut CellConfig) -> Result<&mut StripeConfig, CellError> {
    virtual_drive(config)?;
    let found = config.drives.iter_mut().find_map(|drive| drive.stripe.as_mut());
    found.ok_or_else(|| CellError::Component("the cell has no virtual drive".to_owned()))
}

/// Says that other component drives have the striping manager's own state, if what was said of it before is of that
/// epoch; `false` if it is of another.
///
/// # Errors
/// `Component` for a virtual drive that there is not; `Damaged` or `Io`.
pub fn replace_state_copies(
    cell: &Cell,
    index: u32,
    before: u32,
    with: &StateCopies,
) -> Result<bool, CellError> {
    update_config(cell.directory(), |config| {
        let found = config.drives.iter_mut().find(|drive| drive.index == index);
        let unknown = || CellError::Component(format!("the cell has no virtual drive {index}"));
        let stripe = found.and_then(|drive| drive.stripe.as_mut()).ok_or_else(unknown)?;
        let is_as_thought = stripe.state.epoch == before;
        if is_as_thought {
            stripe.state = with.clone();
        }
        Ok(is_as_thought)
    })
}

/// A drive of which nothing is needed any more is none of the cell's from now on. The spares in `used` have taken
/// the places of others, and keep these.
///
/// # Errors
/// `Component` for one that is no component drive, or that a volume has a part on, or the striping manager its own
/// state; `Damaged` or `Io`.
pub fn forget_component(cell: &Cell, index: u32, used: &[u32]) -> Result<DriveConfig, CellError> {
    let forgotten = update_config(cell.directory(), |config| {
        let drive = component(config, index)?.clone();
        let is_there = |part: &super::config::VolumePart| part.drive_id() == drive.drive_id();
        let volume = config.other_volumes.iter().find(|volume| volume.parts.iter().any(is_there));
        if let Some(volume) = volume {
            let name = &volume.name;
            let text = format!("the volume `{name}` has a part of its own on drive {index}");
            return Err(CellError::Component(text));
        }
        let stripe = stripe_mut(config)?;
        if stripe.state.copies.contains(&index) {
            let text = format!("the striping manager has a copy of its own state on drive {index}");
            return Err(CellError::Component(text));
        }
        stripe.over.retain(|other| *other != index);
        stripe.leaving.retain(|other| *other != index);
        stripe.spares.retain(|other| *other != index && !used.contains(other));
        config.drives.retain(|other| other.index != index);
        Ok(drive)
    })?;
    Keyring::update(&keyring_path(cell.directory()), |keyring| {
        keyring.remove(forgotten.drive_id());
        Ok(())
    })?;
    Ok(forgotten)
}
