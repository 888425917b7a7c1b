//! `nasd cp`: files and trees into the cell, out of it, and within it.

use super::{CHUNK_BYTES, CellPath, DIRECTORY_MODE, FILE_MODE, Session, at, is_missing};
use crate::cell::Cell;
use crate::commands::Outcome;
use indicatif::{ProgressBar, ProgressStyle};
use nasd_clerk::{ClerkError, FileType, ManagerStatus, OpenFile, OpenMode};
use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

type Failure = Box<dyn Error>;

/// A file somewhere.
#[derive(Debug, Clone)]
enum Place {
    Local(PathBuf),
    Cell(CellPath),
}

/// What is at a place. Symbolic links are not followed.
struct Found {
    file_type: FileType,
    mode: u32,
    bytes: u64,
}

/// Copies `sources` to `destination`: into it, if it is a directory.
///
/// # Errors
/// The first file that can't be read or written, by name; what was copied before stays.
pub fn cp(cell: &Cell, sources: &[String], destination: &str, recursive: bool) -> Outcome {
    let session = Session::open(cell)?;
    let destination = session.place(destination)?;
    let into = session.is_directory(&destination)?;
    if sources.len() > 1 && !into {
        return Err(
            format!("{destination} is no directory, so only one source can go there").into()
        );
    }
    let progress = progress_bar();
    for source in sources {
        let source = session.place(source)?;
        let target = match (into, source.name()) {
            (true, Some(name)) => destination.join(&name),
            _ => destination.clone(),
        };
        session.copy_tree(source, target, recursive, &progress)?;
    }
    progress.finish_and_clear();
    Ok(())
}

/// Bytes so far and their rate, on a terminal; nothing in a pipe.
fn progress_bar() -> ProgressBar {
    let progress = ProgressBar::new_spinner();
    let template = "{spinner} {bytes} {bytes_per_sec} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style);
    }
    progress
}

impl Session {
    fn place(&self, text: &str) -> Result<Place, Failure> {
        match CellPath::parse(text) {
            Some(path) => Ok(Place::Cell(path.of_volume(&self.volume)?)),
            None => Ok(Place::Local(PathBuf::from(text))),
        }
    }

    /// Whether there is a directory; a link to one counts.
    fn is_directory(&self, place: &Place) -> Result<bool, Failure> {
        match place {
            Place::Local(path) => Ok(path.is_dir()),
            Place::Cell(path) => match self.clerk.resolve(&self.caller, path.as_bytes(), true) {
                Ok(entry) => Ok(entry.attributes.file_type == FileType::Directory),
                Err(error) if is_missing(&error) => Ok(false),
                Err(error) => Err(at(path, error)),
            },
        }
    }

    fn copy_tree(
        &self,
        source: Place,
        target: Place,
        recursive: bool,
        progress: &ProgressBar,
    ) -> Outcome {
        let mut pending = vec![(source, target)];
        while let Some((source, target)) = pending.pop() {
            let found = self.find(&source)?;
            progress.set_message(source.to_string());
            match found.file_type {
                FileType::Directory if !recursive => {
                    return Err(format!("{source} is a directory: add -r to copy it").into());
                }
                FileType::Directory => {
                    self.make_directory(&target, found.mode)?;
                    let children = self.children(&source)?;
                    let pair = |name: &Vec<u8>| (source.join(name), target.join(name));
                    pending.extend(children.iter().map(pair));
                }
                FileType::Symlink => self.make_link(&self.read_link(&source)?, &target)?,
                FileType::Regular => self.copy_data(&source, &target, &found, progress)?,
            }
        }
        Ok(())
    }

    fn find(&self, place: &Place) -> Result<Found, Failure> {
        match place {
            Place::Local(path) => {
                let metadata = std::fs::symlink_metadata(path).map_err(failed("read", path))?;
                let kind = metadata.file_type();
                let file_type = match (kind.is_dir(), kind.is_symlink(), kind.is_file()) {
                    (true, ..) => FileType::Directory,
                    (_, true, _) => FileType::Symlink,
                    (.., true) => FileType::Regular,
                    _ => return Err(format!("{place} is neither file, directory nor link").into()),
                };
                let mode = metadata.mode() & 0o7777;
                Ok(Found { file_type, mode, bytes: metadata.len() })
            }
            Place::Cell(path) => {
                let entry = self.clerk.resolve(&self.caller, path.as_bytes(), false);
                let attributes = entry.map_err(|error| at(path, error))?.attributes;
                let (file_type, mode) = (attributes.file_type, attributes.mode);
                Ok(Found { file_type, mode, bytes: attributes.size })
            }
        }
    }

    fn children(&self, directory: &Place) -> Result<Vec<Vec<u8>>, Failure> {
        match directory {
            Place::Local(path) => std::fs::read_dir(path)
                .map_err(failed("read", path))?
                .map(|entry| Ok(entry.map_err(failed("read", path))?.file_name().into_vec()))
                .collect(),
            Place::Cell(path) => {
                let handle = self.resolve(path)?.handle;
                let entries = self.entries(handle).map_err(|error| at(path, error))?;
                Ok(entries.into_iter().map(|entry| entry.name.as_bytes().to_vec()).collect())
            }
        }
    }

    fn make_directory(&self, place: &Place, mode: u32) -> Outcome {
        match place {
            Place::Local(path) => match std::fs::create_dir(path) {
                Err(_) if path.is_dir() => Ok(()),
                other => other.map_err(failed("create", path)),
            },
            Place::Cell(path) => {
                if path.name().is_none() {
                    return Ok(());
                }
                let (parent, name) = self.parent(path)?;
                let mode = if mode == 0 { DIRECTORY_MODE } else { mode };
                match self.clerk.mkdir(&self.caller, parent, &name, mode) {
                    Err(ClerkError::Manager(ManagerStatus::Exists))
                        if self.is_directory(place)? =>
                    {
                        Ok(())
                    }
                    other => other.map(drop).map_err(|error| at(path, error)),
                }
            }
        }
    }

    fn read_link(&self, place: &Place) -> Result<Vec<u8>, Failure> {
        match place {
            Place::Local(path) => {
                let target = std::fs::read_link(path).map_err(failed("read", path))?;
                Ok(target.into_os_string().into_vec())
            }
            Place::Cell(path) => {
                let entry = self.clerk.resolve(&self.caller, path.as_bytes(), false);
                let handle = entry.map_err(|error| at(path, error))?.handle;
                self.clerk.readlink(&self.caller, handle).map_err(|error| at(path, error))
            }
        }
    }

    fn make_link(&self, target: &[u8], place: &Place) -> Outcome {
        match place {
            Place::Local(path) => std::os::unix::fs::symlink(OsStr::from_bytes(target), path)
                .map_err(failed("create", path)),
            Place::Cell(path) => {
                let (parent, name) = self.parent(path)?;
                let made = self.clerk.symlink(&self.caller, parent, &name, target);
                made.map(drop).map_err(|error| at(path, error))
            }
        }
    }

    fn copy_data(
        &self,
        source: &Place,
        target: &Place,
        found: &Found,
        progress: &ProgressBar,
    ) -> Outcome {
        let mut from = self.open_source(source)?;
        let mut to = self.open_target(target, found.mode)?;
        let length = (CHUNK_BYTES as u64).min(found.bytes.max(1)) as usize;
        let (mut buffer, mut offset) = (vec![0; length], 0_u64);
        loop {
            let length = from.read(offset, &mut buffer).map_err(|e| format!("{source}: {e}"))?;
            if length == 0 {
                break;
            }
            to.write(offset, &buffer[..length]).map_err(|e| format!("{target}: {e}"))?;
            offset += length as u64;
            progress.inc(length as u64);
        }
        to.close().map_err(|error| format!("{target}: {error}").into())
    }

    fn open_source(&self, place: &Place) -> Result<Open, Failure> {
        match place {
            Place::Local(path) => File::open(path).map(Open::Local).map_err(failed("read", path)),
            Place::Cell(path) => {
                let entry = self.resolve(path)?;
                let opened = self.clerk.open_known(&self.caller, &entry, OpenMode::READ);
                let (file, _) = opened.map_err(|error| at(path, error))?;
                file.expect_sequential();
                Ok(Open::Cell(file))
            }
        }
    }

    fn open_target(&self, place: &Place, mode: u32) -> Result<Open, Failure> {
        match place {
            Place::Local(path) => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(mode);
                options.open(path).map(Open::Local).map_err(failed("write", path))
            }
            Place::Cell(path) => {
                let (parent, name) = self.parent(path)?;
                let mode = if mode == 0 { FILE_MODE } else { mode };
                let entry = self
                    .clerk
                    .create(&self.caller, parent, &name, mode, false)
                    .map_err(|error| at(path, error))?;
                if entry.attributes.size > 0 {
                    let empty =
                        nasd_clerk::SetFileAttributes { size: Some(0), ..Default::default() };
                    self.clerk
                        .setattr(&self.caller, entry.handle, &empty)
                        .map_err(|error| at(path, error))?;
                }
                let opened = self.clerk.open_known(&self.caller, &entry, OpenMode::WRITE);
                opened.map(|(file, _)| Open::Cell(file)).map_err(|error| at(path, error))
            }
        }
    }
}

/// A file open for reading or writing in sequence.
enum Open {
    Local(File),
    Cell(OpenFile),
}

impl Open {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
        match self {
            Open::Local(file) => Ok(file.read(buffer)?),
            Open::Cell(file) => Ok(file.read(offset, buffer)?),
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        match self {
            Open::Local(file) => Ok(file.write_all(data)?),
            Open::Cell(file) => Ok(file.write(offset, data)?),
        }
    }

    fn close(self) -> Result<(), Failure> {
        match self {
            Open::Local(_) => Ok(()),
            Open::Cell(file) => Ok(file.close()?),
        }
    }
}

impl Place {
    fn name(&self) -> Option<Vec<u8>> {
        match self {
            Place::Local(path) => {
                // `..` and `.` have no name of their own; the directory that they lead to has.
                let named = path.file_name().map(|name| name.as_bytes().to_vec());
                named.or_else(|| {
                    let path = path.canonicalize().ok()?;
                    path.file_name().map(|name| name.as_bytes().to_vec())
                })
            }
            Place::Cell(path) => path.name().map(<[u8]>::to_vec),
        }
    }

    fn join(&self, name: &[u8]) -> Place {
        match self {
            Place::Local(path) => Place::Local(path.join(OsStr::from_bytes(name))),
            Place::Cell(path) => Place::Cell(path.join(name)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Local(path) => write!(f, "{}", path.display()),
            Place::Cell(path) => write!(f, "{path}"),
        }
    }
}

fn failed<'a>(action: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> Failure + 'a {
    move |error| format!("can't {action} {}: {error}", path.display()).into()
}
