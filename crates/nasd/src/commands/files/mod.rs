//! `nasd ls|cat|cp|rm|mkdir|stat`: files without a mount. Paths of the cell are `VOLUME:/path`.

mod copy;
mod extend;
mod grep;
mod list;
mod mounts;
mod pieces;
mod remove;
mod scan;
mod shared;

pub use copy::cp;
pub use extend::extend;
pub use grep::grep;
pub use list::{ls, stat};
pub use mounts::{attach, detach};
pub use remove::rm;
pub use scan::scan;

use super::Outcome;
use crate::shared_file::is_url_argument;
use nasd_cell::session::{Connected, connect_by, for_command};
use nasd_cell::{Cell, CellError, CellPath};
use nasd_clerk::{
    Caller, Clerk, ClerkError, DirectoryEntry, Entry, FileHandle, FileType, ManagerStatus, Name,
    OpenMode, Route,
};
use std::error::Error;
use std::io::Write;
use std::sync::Arc;

/// Entries asked for at a time.
const PAGE_ENTRIES: u32 = 1024;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Mount points on one path at most: volumes may be seen in each other.
const MAX_MOUNT_POINTS: usize = 40;
/// Mode of directories that are made without a model.
const DIRECTORY_MODE: u32 = 0o755;

/// What a path means that ends at a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// The root of the volume that is seen there.
    Through,
    /// The mount point.
    Itself,
}

/// What a path leads to, by all mount points on it; one at its end stands for the root that is seen there.
///
/// # Errors
/// A path of nothing, or where the caller may not look, and a cell that is away.
pub(super) fn entry_through(cell: &Cell, path: CellPath) -> Result<Entry, Box<dyn Error>> {
    let mut session = None;
    let (session, path) =
        Session::for_path(&mut session, cell, path, (Route::Direct, Last::Through))?;
    session.resolve(&path)
}

/// A volume and who works on it.
pub struct Session {
    clerk: Arc<Clerk>,
    caller: Arc<Caller>,
    volume: String,
}

impl Session {
    /// Connects to the volume of a path.
    fn open(cell: &Cell, path: &CellPath) -> Result<Self, Box<dyn Error>> {
        Session::open_by(cell, path, Route::Direct)
    }

    /// The same, for data that go that way.
    fn open_by(cell: &Cell, path: &CellPath, route: Route) -> Result<Self, Box<dyn Error>> {
        let Connected { clerk, caller } = connect_by(cell, path.volume(), route, for_command())?;
        Ok(Session { clerk, caller, volume: path.volume().to_owned() })
    }

    /// The session that a path needs, and the path there: the one that there is, or one with its volume. Mount points on the way
    /// lead to other volumes; one at the end only if that is to be seen.
    fn for_path<'a>(
        present: &'a mut Option<Session>,
        cell: &Cell,
        path: CellPath,
        (route, last): (Route, Last),
    ) -> Result<(&'a Session, CellPath), Box<dyn Error>> {
        let mut here = path.clone();
        for _ in 0..MAX_MOUNT_POINTS {
            let of_it = |session: &Session| session.volume == here.volume();
            let session = match present.take().filter(of_it) {
                Some(session) => session,
                None if here == path => Session::open_by(cell, &here, route)?,
                None => Session::open_by(cell, &here, route)
                    .map_err(|error| format!("{path} leads to {here}: {error}"))?,
            };
            match session.further(&here, last)? {
                Some(further) => (here, *present) = (further, Some(session)),
                None => return Ok((present.insert(session), here)),
            }
        }
        Err(format!("{path} leads over more than {MAX_MOUNT_POINTS} mount points").into())
    }

    /// Where a path leads on to, if it leads over a mount point.
    fn further(&self, path: &CellPath, last: Last) -> Result<Option<CellPath>, Box<dyn Error>> {
        match self.clerk.resolve(&self.caller, path.as_bytes(), true) {
            Err(ClerkError::OtherVolume { volume, path }) => {
                Ok(Some(CellPath::of(&volume.to_string(), &path)))
            }
            Ok(entry)
                if last == Last::Through && entry.attributes.file_type == FileType::MountPoint =>
            {
                let volume = self.clerk.mounted_volume(&self.caller, entry.handle);
                let volume = volume.map_err(|error| at(path, error))?;
                Ok(Some(CellPath::of(&volume.to_string(), b"/")))
            }
            // What is wrong with it, whoever uses it is told.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn resolve(&self, path: &CellPath) -> Result<Entry, Box<dyn Error>> {
        self.clerk.resolve(&self.caller, path.as_bytes(), true).map_err(|error| at(path, error))
    }

    /// The directory that a path's last name is in.
    fn parent(&self, path: &CellPath) -> Result<(FileHandle, Name), Box<dyn Error>> {
        let (parent, name) = path.split().ok_or_else(|| format!("{path} is the root"))?;
        Ok((self.resolve(&parent)?.handle, name))
    }

    /// All entries of a directory.
    fn entries(&self, directory: FileHandle) -> Result<Vec<DirectoryEntry>, ClerkError> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let page = self.clerk.readdir(&self.caller, directory, cookie, PAGE_ENTRIES)?;
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            let is_last = page.end || page.entries.is_empty();
            let ordinary = |entry: &DirectoryEntry| !matches!(entry.name.as_bytes(), b"." | b"..");
            entries.extend(page.entries.into_iter().filter(ordinary));
            if is_last {
                return Ok(entries);
            }
        }
    }
}

/// A path of the cell, from the command line.
fn parse(text: &str) -> Result<CellPath, String> {
    if is_url_argument(text) {
        // What is in it is a key.
        return Err("capability URLs are taken by `nasd cat`, `cp` and `cap` alone".to_owned());
    }
    let wrong = || format!("`{text}` is no path of the cell: write VOLUME:/path");
    CellPath::parse(text).ok_or_else(wrong)
}

/// An error with the path that it is about.
fn at(path: &CellPath, error: ClerkError) -> Box<dyn Error> {
    format!("{path}: {error}").into()
}

fn is_missing(error: &ClerkError) -> bool {
    matches!(error, ClerkError::Manager(ManagerStatus::NotFound))
}

/// `nasd cat`.
///
/// # Errors
/// A path that is no file, or whose data can't be read.
pub fn cat(open: impl Fn() -> Result<Cell, CellError>, paths: &[String], route: Route) -> Outcome {
    let (mut cell, mut session) = (None, None);
    let mut output = std::io::stdout().lock();
    for text in paths {
        let wants_more = if is_url_argument(text) {
            shared::print(text, &mut output)?
        } else {
            let path = parse(text)?;
            let cell = match &mut cell {
                Some(cell) => cell,
                none => none.insert(open()?),
            };
            let way = (route, Last::Through);
            let (session, path) = Session::for_path(&mut session, cell, path, way)?;
            session.print(&path, &mut output)?
        };
        if !wants_more {
            break;
        }
    }
    Ok(())
}

impl Session {
    /// Prints a file. Whether the reader wants more after it.
    fn print(&self, path: &CellPath, output: &mut impl Write) -> Result<bool, Box<dyn Error>> {
        let entry = self.resolve(path)?;
        let (file, _) = self
            .clerk
            .open_known(&self.caller, &entry, OpenMode::READ)
            .map_err(|error| at(path, error))?;
        file.expect_sequential();
        let (mut buffer, mut offset) = (vec![0; CHUNK_BYTES], 0);
        loop {
            let length = file.read(offset, &mut buffer).map_err(|error| at(path, error))?;
            if length == 0 {
                break;
            }
            if let Err(error) = output.write_all(&buffer[..length]) {
                // A reader that has seen enough is no failure.
                let enough = error.kind() == std::io::ErrorKind::BrokenPipe;
                return if enough { Ok(false) } else { Err(error.into()) };
            }
            offset += length as u64;
        }
        Ok(true)
    }
}

/// `nasd mkdir`.
///
/// # Errors
/// A name that exists (without `parents`), or a parent that does not (without `parents`).
pub fn mkdir(cell: &Cell, paths: &[String], parents: bool) -> Outcome {
    let mut session = None;
    for text in paths {
        let path = parse(text)?;
        let way = (Route::Direct, if parents { Last::Through } else { Last::Itself });
        let (session, path) = Session::for_path(&mut session, cell, path, way)?;
        if parents {
            session.make_parents(&path)?;
        } else {
            let (parent, name) = session.parent(&path)?;
            session
                .clerk
                .mkdir(&session.caller, parent, &name, DIRECTORY_MODE)
                .map_err(|error| at(&path, error))?;
        }
    }
    Ok(())
}

impl Session {
    /// Makes a directory and those above it that do not exist; returns it.
    fn make_parents(&self, path: &CellPath) -> Result<Entry, Box<dyn Error>> {
        match self.clerk.resolve(&self.caller, path.as_bytes(), true) {
            Ok(entry) => return Ok(entry),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(at(path, error)),
        }
        let Some((parent, name)) = path.split() else {
            return self.resolve(path);
        };
        let parent = self.make_parents(&parent)?.handle;
        match self.clerk.mkdir(&self.caller, parent, &name, DIRECTORY_MODE) {
            Ok(entry) => Ok(entry),
            // Somebody else made it meanwhile.
            Err(ClerkError::Manager(ManagerStatus::Exists)) => self.resolve(path),
            Err(error) => Err(at(path, error)),
        }
    }
}
