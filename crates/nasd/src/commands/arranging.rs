//! Which component drives a striping manager has, and how it uses them: as `cell.toml` says, while it serves too.

use nasd_capability::SecretKey;
use nasd_cell::{Cell, CellError, StripeConfig, WatchedCell};
use nasd_stripe::own::RemoteHolders;
use nasd_stripe::{Arrangement, ComponentDrive, RemoteComponents, Role, VirtualDrive};

/// The drives that the virtual drive is over.
///
/// # Errors
/// `Component` for one that there is not, `NoKeys` for one whose keys are not here.
pub fn component_drives(
    cell: &Cell,
    stripe: &StripeConfig,
) -> Result<Vec<ComponentDrive>, CellError> {
    let keyring = cell.keyring()?;
    let component = |index: &u32| {
        let drive = cell.config.drives.iter().find(|drive| drive.index == *index);
        let unknown = || CellError::Component(format!("the cell has no drive {index}"));
        let drive = drive.ok_or_else(unknown)?;
        let id = drive.drive_id();
        let keys = keyring.get(id);
        let keys = keys.ok_or_else(|| CellError::NoKeys(format!("drive {:016x}", id.0)))?;
        Ok(ComponentDrive {
            drive: id,
            address: drive.address.to_string(),
            drive_key: SecretKey::new(keys.drive_key),
        })
    };
    stripe.over.iter().map(component).collect()
}

/// How they are to be used.
pub fn arrangement(cell: &Cell, stripe: &StripeConfig) -> Arrangement {
    let with_role = |index: &u32, role: Role| {
        let drive = cell.config.drives.iter().find(|drive| drive.index == *index)?;
        Some((drive.drive_id(), role))
    };
    let spares = stripe.spares.iter().filter_map(|index| with_role(index, Role::Spare));
    let leaving = stripe.leaving.iter().filter_map(|index| with_role(index, Role::Leaving));
    let replace_after = stripe.replace_after().map(|after| after.as_nanos() as u64);
    Arrangement {
        roles: spares.chain(leaving).collect(),
        replace_after_ns: replace_after.unwrap_or(u64::MAX),
        rebuild_limit: stripe.rebuild_limit,
    }
}

/// Follows what `cell.toml` says.
pub struct Following<'a> {
    watched: WatchedCell,
    index: u32,
    virtual_drive: &'a VirtualDrive,
    components: &'a RemoteComponents,
    holders: &'a RemoteHolders,
}

impl<'a> Following<'a> {
    /// Of the virtual drive with that index. What has its objects, and what has its own state, is told.
    pub fn new(
        cell: &Cell,
        index: u32,
        virtual_drive: &'a VirtualDrive,
        (components, holders): (&'a RemoteComponents, &'a RemoteHolders),
    ) -> Self {
        Following { watched: WatchedCell::new(cell), index, virtual_drive, components, holders }
    }

    /// Does what it says now, if that has changed.
    pub fn follow(&mut self) {
        if let Err(error) = self.try_to_follow() {
            tracing::warn!(%error, "which component drives there are can't be told");
        }
    }

    fn try_to_follow(&mut self) -> Result<(), CellError> {
        let Some(cell) = self.watched.changed()? else { return Ok(()) };
        let found = cell.config.drives.iter().find(|drive| drive.index == self.index);
        let Some(stripe) = found.and_then(|drive| drive.stripe.as_ref()) else { return Ok(()) };
        let drives = component_drives(&cell, stripe)?;
        // No drive gets anything before it is known what it is for.
        self.virtual_drive.set_arrangement(arrangement(&cell, stripe));
        self.holders.set_drives(drives.clone());
        self.components.set_drives(drives);
        Ok(())
    }
}
