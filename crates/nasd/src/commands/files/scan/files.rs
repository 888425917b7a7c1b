//! The files of a scan, in their order: those that are named, and those below directories by their names.

use super::super::{CellPath, Session, at, parse};
use nasd_cell::Cell;
use nasd_clerk::{FileHandle, FileType, OpenFile, OpenMode};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

/// A file that is not open yet.
pub struct Named {
    session: Arc<Session>,
    handle: FileHandle,
    /// As people write it.
    pub path: String,
}

impl Named {
    /// Opens it for reading.
    ///
    /// # Errors
    /// One that can't be opened.
    pub fn open(&self) -> Result<Arc<OpenFile>, Box<dyn Error>> {
        let Session { clerk, caller, .. } = &*self.session;
        let opened = clerk.open(caller, self.handle, OpenMode::READ);
        let (file, _) = opened.map_err(|error| self.failed(&error))?;
        Ok(Arc::new(file))
    }

    /// A failure, with the path.
    pub fn failed(&self, error: &dyn std::fmt::Display) -> Box<dyn Error> {
        format!("{}: {error}", self.path).into()
    }
}

/// What paths mean.
///
/// # Errors
/// A path that is none, and one that leads nowhere or to a directory, of which nobody said that all below is meant; and where
/// there is no file at all.
pub fn find(cell: &Cell, paths: &[String], recursive: bool) -> Result<Vec<Named>, Box<dyn Error>> {
    let paths: Vec<CellPath> = paths.iter().map(|path| parse(path)).collect::<Result<_, _>>()?;
    let (mut sessions, mut found) = (BTreeMap::new(), Vec::new());
    for path in &paths {
        let session = match sessions.get(path.volume()) {
            Some(session) => Arc::clone(session),
            None => {
                let session = Arc::new(Session::open(cell, path)?);
                sessions.insert(path.volume(), Arc::clone(&session));
                session
            }
        };
        let entry = session.resolve(path)?;
        match entry.attributes.file_type {
            FileType::Directory if recursive => below(&session, entry.handle, path, &mut found)?,
            FileType::Directory => {
                return Err(format!("{path}: is a directory: say -r for all files below it").into());
            }
            _ => {
                let path = path.to_string();
                found.push(Named { session, handle: entry.handle, path });
            }
        }
    }
    match found.is_empty() {
        true => Err("there is no file below these directories".into()),
        false => Ok(found),
    }
}

/// The files below a directory, by their names.
fn below(
    session: &Arc<Session>,
    directory: FileHandle,
    start: &CellPath,
    found: &mut Vec<Named>,
) -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for item in session.clerk.walk(&session.caller, directory, false) {
        let item = item.map_err(|error| at(start, error))?;
        if item.file_type == FileType::Regular {
            files.push((item.path, item.handle));
        }
    }
    files.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let start = start.to_string();
    let start = start.trim_end_matches('/');
    found.extend(files.into_iter().map(|(path, handle)| Named {
        session: Arc::clone(session),
        handle,
        path: format!("{start}/{}", String::from_utf8_lossy(&path)),
    }));
    Ok(())
}
