//! `nasd cp`: files and trees into the cell and out of it.

use super::{CellPath, Last, Session, at, is_missing, parse, shared};
use crate::commands::Outcome;
use crate::output::note;
use crate::shared_file::is_url_argument;
use indicatif::{ProgressBar, ProgressStyle};
use nasd_cell::{Cell, CellError};
use nasd_clerk::{Copied, FileType, Name, Route};
use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Copies `sources` to `destination`: into it, if it is a directory. One side is this machine's,
/// the other the cell's.
///
/// # Errors
/// The first file that can't be read or written, by name; what was copied before stays.
pub fn cp(
    open: impl Fn() -> Result<Cell, CellError>,
    sources: &[String],
    destination: &str,
    recursive: bool,
    route: Route,
) -> Outcome {
    if sources.iter().any(|source| is_url_argument(source)) || is_url_argument(destination) {
        return by_url(sources, destination);
    }
    let cell = &open()?;
    let progress = progress_bar();
    let copied = match CellPath::parse(destination) {
        Some(path) => {
            let mut session = None;
            let way = (route, Last::Through);
            let (session, path) = Session::for_path(&mut session, cell, path, way)?;
            session.copy_in(sources, &path, recursive, &progress)
        }
        None => copy_out((cell, route), sources, Path::new(destination), recursive, &progress),
    };
    progress.finish_and_clear();
    let skipped = copied?;
    if skipped > 0 {
        note!("nasd: {skipped} devices, sockets, FIFOs or mount points were left out");
    }
    Ok(())
}

/// Where capabilities' URLs are, one side is this machine's, and no cell is needed.
fn by_url(sources: &[String], destination: &str) -> Outcome {
    let is_local = |text: &str| !is_url_argument(text) && CellPath::parse(text).is_none();
    match sources {
        [source] if is_url_argument(destination) && is_local(source) => {
            shared::copy_in(Path::new(source), destination)
        }
        _ if sources.iter().all(|source| is_url_argument(source)) && is_local(destination) => {
            let destination = Path::new(destination);
            must_hold(sources.len(), destination.is_dir(), destination.display().to_string())?;
            sources.iter().try_for_each(|source| shared::copy_out(source, destination))
        }
        _ => Err("a URL is copied to or from a file of this machine, and one file goes to a URL; \
                  write ./NAME for a file of this machine whose name begins with @"
            .into()),
    }
}

/// Bytes so far and their rate, on a terminal; nothing in a pipe.
pub(super) fn progress_bar() -> ProgressBar {
    let progress = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bytes} {bytes_per_sec} {msg}") {
        progress.set_style(style);
    }
    progress
}

impl Session {
    /// From this machine to the cell; answers how many files were left out.
    fn copy_in(
        &self,
        sources: &[String],
        destination: &CellPath,
        recursive: bool,
        progress: &ProgressBar,
    ) -> Result<u64, Box<dyn Error>> {
        let into = self.is_directory(destination)?;
        must_hold(sources.len(), into, destination.to_string())?;
        let mut skipped = 0;
        for source in sources {
            if CellPath::parse(source).is_some() {
                return Err(within_the_cell(source));
            }
            let path = PathBuf::from(source);
            if path.is_dir() && !path.is_symlink() && !recursive {
                return Err(format!("{source} is a directory: add -r to copy it").into());
            }
            let target = match into {
                true => destination.join(name_of(&path)?.as_bytes()),
                false => destination.clone(),
            };
            let (parent, name): (_, Name) = self.parent(&target)?;
            progress.set_message(source.clone());
            let mut told = |bytes| progress.inc(bytes);
            let copied: Copied =
                self.clerk.copy_tree_in(&self.caller, &path, parent, &name, &mut told)?;
            skipped += copied.skipped;
        }
        Ok(skipped)
    }

    /// Whether there is a directory; a link to one counts.
    fn is_directory(&self, path: &CellPath) -> Result<bool, Box<dyn Error>> {
        match self.clerk.resolve(&self.caller, path.as_bytes(), true) {
            Ok(entry) => Ok(entry.attributes.file_type == FileType::Directory),
            Err(error) if is_missing(&error) => Ok(false),
            Err(error) => Err(at(path, error)),
        }
    }
}

/// From the cell to this machine.
fn copy_out(
    (cell, route): (&Cell, Route),
    sources: &[String],
    destination: &Path,
    recursive: bool,
    progress: &ProgressBar,
) -> Result<u64, Box<dyn Error>> {
    let into = destination.is_dir();
    must_hold(sources.len(), into, destination.display().to_string())?;
    let (mut skipped, mut session) = (0, None);
    for text in sources {
        let named = parse(text)?;
        let way = (route, Last::Through);
        let (session, source) = Session::for_path(&mut session, cell, named.clone(), way)?;
        let entry = session.resolve(&source)?;
        if entry.attributes.file_type == FileType::Directory && !recursive {
            return Err(format!("{source} is a directory: add -r to copy it").into());
        }
        let target = match (into, named.name()) {
            (true, Some(name)) => destination.join(OsStr::from_bytes(name)),
            _ => destination.to_owned(),
        };
        progress.set_message(text.clone());
        let mut told = |bytes| progress.inc(bytes);
        let copied =
            session.clerk.copy_tree_out(&session.caller, entry.handle, &target, &mut told)?;
        skipped += copied.skipped;
    }
    Ok(skipped)
}

fn must_hold(sources: usize, is_directory: bool, destination: String) -> Outcome {
    if sources > 1 && !is_directory {
        return Err(
            format!("{destination} is no directory, so only one source can go there").into()
        );
    }
    Ok(())
}

fn within_the_cell(source: &str) -> Box<dyn Error> {
    format!(
        "{source} and the destination are both in the cell: cp copies between this machine and \
         the cell; mount the volume to copy within it"
    )
    .into()
}

/// The last name of a local path. `..` and `.` have none of their own; where they lead to has.
fn name_of(path: &Path) -> Result<std::ffi::OsString, Box<dyn Error>> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_owned());
    }
    let whole = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let name = whole.file_name().ok_or_else(|| format!("{} has no name", path.display()))?;
    Ok(name.to_owned())
}
