//! `nasd rm`.

use super::{CellPath, Session, at};
use crate::cell::Cell;
use crate::commands::Outcome;
use nasd_clerk::{ClerkError, FileHandle, FileType, Name};
use std::io::IsTerminal;

/// Removes files; with `recursive`, whole trees.
///
/// # Errors
/// A directory without `recursive`, the root, or a path that does not exist. A tree is not removed
/// without `yes` unless the user agrees on a terminal.
pub fn rm(cell: &Cell, paths: &[String], recursive: bool, yes: bool) -> Outcome {
    let session = Session::open(cell)?;
    for text in paths {
        let path = session.path(text)?;
        let (parent, name) = session.parent(&path)?;
        let entry = session
            .clerk
            .lookup(&session.caller, parent, &name)
            .map_err(|error| at(&path, error))?;
        let is_directory = entry.attributes.file_type == FileType::Directory;
        if is_directory && !recursive {
            return Err(format!("{path} is a directory: add -r to remove it").into());
        }
        if is_directory {
            agree(&path, yes)?;
            session.remove_tree(entry.handle).map_err(|error| at(&path, error))?;
        }
        session.remove_name(parent, &name, is_directory).map_err(|error| at(&path, error))?;
    }
    Ok(())
}

fn agree(path: &CellPath, yes: bool) -> Outcome {
    if yes {
        return Ok(());
    }
    let refusal = format!("{path} and everything in it would be removed: add --yes to agree");
    if !std::io::stdin().is_terminal() {
        return Err(refusal.into());
    }
    eprint!("remove {path} and everything in it? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("y") { Ok(()) } else { Err(refusal.into()) }
}

impl Session {
    fn remove_name(
        &self,
        parent: FileHandle,
        name: &Name,
        is_directory: bool,
    ) -> Result<(), ClerkError> {
        if is_directory {
            self.clerk.rmdir(&self.caller, parent, name)
        } else {
            self.clerk.unlink(&self.caller, parent, name)
        }
    }

    /// Empties a directory. Not recursive: a tree may be deeper than a stack.
    fn remove_tree(&self, root: FileHandle) -> Result<(), ClerkError> {
        // Directories in the order in which they were found: each after its parent.
        let mut found: Vec<(FileHandle, Option<(FileHandle, Name)>)> = vec![(root, None)];
        let mut next = 0;
        while next < found.len() {
            let directory = found[next].0;
            for entry in self.entries(directory)? {
                if entry.file_type == FileType::Directory {
                    found.push((entry.handle, Some((directory, entry.name))));
                } else {
                    self.remove_name(directory, &entry.name, false)?;
                }
            }
            next += 1;
        }
        for (_, place) in found.into_iter().rev() {
            if let Some((parent, name)) = place {
                self.remove_name(parent, &name, true)?;
            }
        }
        Ok(())
    }
}
