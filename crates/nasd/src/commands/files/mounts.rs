//! `nasd volume attach` and `detach`: names at which other volumes are seen.

use super::{Last, Session, at, parse};
use crate::commands::Outcome;
use crate::output::say;
use nasd_cell::Cell;
use nasd_clerk::{ClerkError, FileType, ManagerStatus, Name, Route};

/// Makes a mount point.
///
/// # Errors
/// A volume that the cell does not have, a name that is taken, or a directory that the caller may not change.
pub fn attach(cell: &Cell, text: &str, volume: &str) -> Outcome {
    let mut session = None;
    let way = (Route::Direct, Last::Itself);
    let (session, path) = Session::for_path(&mut session, cell, parse(text)?, way)?;
    let (parent, name) = session.parent(&path)?;
    let made = session.clerk.mkmount(&session.caller, parent, &name, &Name::new(volume)?);
    made.map_err(|error| match error {
        ClerkError::Manager(ManagerStatus::NotFound) => format!(
            "the cell has no volume `{volume}`: `nasd volume list` shows those that there are"
        )
        .into(),
        ClerkError::Manager(ManagerStatus::Exists) => {
            format!("{path} is there already: name a path that is not").into()
        }
        error => at(&path, error),
    })?;
    say!("{path} leads to volume {volume}");
    Ok(())
}

/// Removes a mount point. The volume stays as it is.
///
/// # Errors
/// A path where there is none, or a directory that the caller may not change.
pub fn detach(cell: &Cell, text: &str) -> Outcome {
    let mut session = None;
    let way = (Route::Direct, Last::Itself);
    let (session, path) = Session::for_path(&mut session, cell, parse(text)?, way)?;
    let (parent, name) = session.parent(&path)?;
    let entry = session.clerk.lookup(&session.caller, parent, &name);
    let entry = entry.map_err(|error| at(&path, error))?;
    if entry.attributes.file_type != FileType::MountPoint {
        return Err(format!(
            "{path} is no mount point, and was left alone: `nasd rm` removes files, `nasd umount` what this machine has mounted"
        )
        .into());
    }
    let removed = session.clerk.unlink(&session.caller, parent, &name, None);
    removed.map_err(|error| at(&path, error))?;
    say!("{path} is removed; the volume is as it was");
    Ok(())
}
