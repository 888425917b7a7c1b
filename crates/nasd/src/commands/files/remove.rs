//! `nasd rm`.

use super::{CellPath, Session, at};
use crate::cell::Cell;
use crate::commands::Outcome;
use nasd_clerk::FileType;
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
        }
        session
            .clerk
            .remove_tree(&session.caller, parent, &name)
            .map_err(|error| at(&path, error))?;
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
