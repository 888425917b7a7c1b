//! `nasd rm`.

use super::{Last, Session, at, parse};
use crate::commands::Outcome;
use crate::commands::agree::agree;
use nasd_cell::Cell;
use nasd_clerk::Route;
use nasd_clerk::{ClerkError, FileType};
use nasd_protocol::ManagerStatus;

/// Removes files; with `recursive`, whole trees. Of a mount point only that goes, and nothing of the volume that is seen there.
///
/// # Errors
/// A directory without `recursive`, the root, or a path that does not exist. A tree is not removed
/// without `yes` unless the user agrees on a terminal.
pub fn rm(cell: &Cell, paths: &[String], recursive: bool, yes: bool) -> Outcome {
    let mut session = None;
    for text in paths {
        let way = (Route::Direct, Last::Itself);
        let (session, path) = Session::for_path(&mut session, cell, parse(text)?, way)?;
        let (parent, name) = session.parent(&path)?;
        let entry = match session.clerk.lookup(&session.caller, parent, &name) {
            // The file's drive has lost it: a name is left, which says that it fails.
            Err(ClerkError::Manager(ManagerStatus::Io)) => {
                let removed = session.clerk.unlink(&session.caller, parent, &name, None);
                removed.map_err(|error| at(&path, error))?;
                continue;
            }
            found => found.map_err(|error| at(&path, error))?,
        };
        let is_directory = entry.attributes.file_type == FileType::Directory;
        if is_directory && !recursive {
            return Err(format!("{path} is a directory: add -r to remove it").into());
        }
        if is_directory {
            agree(&format!("{path} and everything in it would be removed"), yes)?;
        }
        session
            .clerk
            .remove_tree(&session.caller, parent, &name)
            .map_err(|error| at(&path, error))?;
    }
    Ok(())
}
