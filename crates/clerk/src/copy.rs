//! Copying files and trees between this host and the volume.
//!
//! Data moves in large requests, several in flight: into the volume by write-behind, out of it by
//! read-ahead. A file that was copied in is durable when the copy returns.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ClerkError;
use crate::clerk::Clerk;
use crate::open_file::OpenMode;
use crate::wire::{Caller, FileHandle, FileType, ManagerStatus, Name, SetFileAttributes};

/// Bytes moved at once.
const STEP: usize = 1 << 20;

/// Why a copy stopped.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The volume's side failed.
    #[error("{path}: {source}")]
    Volume {
        /// Which file, as far as it is known.
        path: String,
        /// How.
        source: ClerkError,
    },
    /// This host's side failed.
    #[error("{}: {source}", path.display())]
    Local {
        /// Which file.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub links: u64,
    /// Devices, sockets and pipes, which were left out.
    pub skipped: u64,
    /// Bytes of data.
    pub bytes: u64,
}

fn local(path: &Path) -> impl FnOnce(io::Error) -> CopyError + '_ {
    move |source| CopyError::Local { path: path.to_owned(), source }
}

fn volume(path: &[u8]) -> impl FnOnce(ClerkError) -> CopyError + '_ {
    move |source| CopyError::Volume { path: String::from_utf8_lossy(path).into_owned(), source }
}

impl Clerk {
    /// Copies all of `source` to the file `name`, which is made or emptied first. `progress` is
    /// told the bytes of each step. Returns their sum.
    ///
    /// # Errors
    ///
    /// `Volume` and `Local`; the file may be there in part.
    pub fn copy_in(
        &self,
        caller: &Arc<Caller>,
        source: &Path,
        dir: FileHandle,
        name: &Name,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, CopyError> {
        let mut input = fs::File::open(source).map_err(local(source))?;
        let mode = input.metadata().map_err(local(source))?.permissions().mode() & 0o777;
        let named = || volume(name.as_bytes());
        let entry = self.create(caller, dir, name, mode, false).map_err(named())?;
        if entry.attributes.file_type != FileType::Regular {
            return Err(named()(ClerkError::Manager(ManagerStatus::IsDirectory)));
        }
        if entry.attributes.size > 0 {
            let empty = SetFileAttributes { size: Some(0), ..SetFileAttributes::default() };
            self.setattr(caller, entry.handle, &empty).map_err(named())?;
        }
        let (file, _) = self.open(caller, entry.handle, OpenMode::WRITE).map_err(named())?;
        let mut step = vec![0; STEP];
        let mut total = 0;
        loop {
            let count = read_step(&mut input, &mut step).map_err(local(source))?;
            if count == 0 {
                break;
            }
            file.write(total, &step[..count]).map_err(named())?;
            total += count as u64;
            progress(count as u64);
        }
        file.close().map_err(named())?;
        Ok(total)
    }

    /// Copies all of a file to `target`, which is made or emptied first.
    ///
    /// # Errors
    ///
    /// `Volume` and `Local`; the target may be there in part.
    pub fn copy_out(
        &self,
        caller: &Arc<Caller>,
        file: FileHandle,
        target: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, CopyError> {
        let named = || volume(target.as_os_str().as_bytes());
        let attributes = self.getattr(caller, file).map_err(named())?;
        let mut output = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(attributes.mode & 0o777)
            .open(target)
            .map_err(local(target))?;
        let write = |data: &[u8]| output.write_all(data).map_err(local(target));
        self.read_out(caller, file, named, write, progress)
    }

    /// Shows all of a file to `sink`, from start to end, in large pieces.
    ///
    /// # Errors
    ///
    /// `Volume`, and what the sink says.
    pub fn copy_to(
        &self,
        caller: &Arc<Caller>,
        file: FileHandle,
        sink: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, CopyError> {
        let output = Path::new("output");
        let write = |data: &[u8]| sink.write_all(data).map_err(local(output));
        self.read_out(caller, file, || volume(b"input"), write, progress)
    }

    fn read_out<N: FnOnce(ClerkError) -> CopyError>(
        &self,
        caller: &Arc<Caller>,
        file: FileHandle,
        named: impl Fn() -> N,
        mut write: impl FnMut(&[u8]) -> Result<(), CopyError>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, CopyError> {
        let (input, _) = self.open(caller, file, OpenMode::READ).map_err(named())?;
        input.expect_sequential();
        let mut scratch = Vec::new();
        let mut total = 0;
        loop {
            let step = input
                .read_with(total, STEP, &mut scratch, |data| {
                    write(data).map(|()| data.len() as u64)
                })
                .map_err(named())??;
            total += step;
            progress(step);
            if step < STEP as u64 {
                return Ok(total);
            }
        }
    }

    /// Copies a file or a tree of this host into a directory of the volume, as `name`. What is
    /// there already is overwritten; directories are merged. Symbolic links are copied as such.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn copy_tree_in(
        &self,
        caller: &Arc<Caller>,
        source: &Path,
        dir: FileHandle,
        name: &Name,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Copied, CopyError> {
        let mut copied = Copied::default();
        let mut rest = vec![(source.to_owned(), dir, name.clone())];
        while let Some((source, dir, name)) = rest.pop() {
            let named = || volume(source.as_os_str().as_bytes());
            let kind = fs::symlink_metadata(&source).map_err(local(&source))?.file_type();
            if kind.is_dir() {
                let made = self.directory(caller, dir, &name).map_err(named())?;
                copied.directories += 1;
                for child in fs::read_dir(&source).map_err(local(&source))? {
                    let child = child.map_err(local(&source))?;
                    let name = name_of(&child.file_name()).map_err(named())?;
                    rest.push((child.path(), made, name));
                }
            } else if kind.is_symlink() {
                let target = fs::read_link(&source).map_err(local(&source))?;
                self.replace_symlink(caller, dir, &name, target.as_os_str()).map_err(named())?;
                copied.links += 1;
            } else if kind.is_file() {
                copied.bytes += self.copy_in(caller, &source, dir, &name, progress)?;
                copied.files += 1;
            } else {
                copied.skipped += 1;
            }
        }
        Ok(copied)
    }

    /// Copies a file or a tree of the volume to `target` on this host. What is there already is
    /// overwritten; directories are merged.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub fn copy_tree_out(
        &self,
        caller: &Arc<Caller>,
        file: FileHandle,
        target: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Copied, CopyError> {
        let mut copied = Copied::default();
        let named = || volume(target.as_os_str().as_bytes());
        let start = self.getattr(caller, file).map_err(named())?;
        self.copy_one_out(caller, file, start.file_type, target, &mut copied, progress)?;
        if start.file_type == FileType::Directory {
            for item in self.walk(caller, file, false) {
                let item = item.map_err(named())?;
                let to = target.join(OsStr::from_bytes(&item.path));
                let kind = item.file_type;
                self.copy_one_out(caller, item.handle, kind, &to, &mut copied, progress)?;
            }
        }
        Ok(copied)
    }

    fn copy_one_out(
        &self,
        caller: &Arc<Caller>,
        file: FileHandle,
        file_type: FileType,
        target: &Path,
        copied: &mut Copied,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), CopyError> {
        match file_type {
            FileType::Directory => {
                let made = fs::create_dir(target);
                match made {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists && target.is_dir() => {}
                    made => made.map_err(local(target))?,
                }
                copied.directories += 1;
            }
            FileType::Symlink => {
                let named = volume(target.as_os_str().as_bytes());
                let link = self.readlink(caller, file).map_err(named)?;
                if fs::symlink_metadata(target).is_ok_and(|found| found.is_symlink()) {
                    fs::remove_file(target).map_err(local(target))?;
                }
                std::os::unix::fs::symlink(OsStr::from_bytes(&link), target)
                    .map_err(local(target))?;
                copied.links += 1;
            }
            FileType::Regular => {
                copied.bytes += self.copy_out(caller, file, target, progress)?;
                copied.files += 1;
            }
            // The other volume's files are copied by who says so.
            FileType::MountPoint => copied.skipped += 1,
            _ => {
                let special =
                    io::Error::new(ErrorKind::Unsupported, "special files are not copied");
                return Err(local(target)(special));
            }
        }
        Ok(())
    }

    /// A directory of that name, made unless it is there.
    fn directory(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
    ) -> Result<FileHandle, ClerkError> {
        match self.mkdir(caller, dir, name, 0o755) {
            Err(ClerkError::Manager(ManagerStatus::Exists)) => {
                let found = self.lookup(caller, dir, name)?;
                match found.attributes.file_type {
                    FileType::Directory => Ok(found.handle),
                    _ => Err(ClerkError::Manager(ManagerStatus::NotDirectory)),
                }
            }
            made => made.map(|entry| entry.handle),
        }
    }

    fn replace_symlink(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        target: &OsStr,
    ) -> Result<(), ClerkError> {
        match self.symlink(caller, dir, name, target.as_bytes()) {
            Err(ClerkError::Manager(ManagerStatus::Exists)) => {
                self.unlink(caller, dir, name, None)?;
                self.symlink(caller, dir, name, target.as_bytes()).map(drop)
            }
            made => made.map(drop),
        }
    }
}

fn name_of(name: &OsStr) -> Result<Name, ClerkError> {
    Name::new(name.as_bytes()).map_err(|_| ClerkError::NameTooLong)
}

/// Fills the step, unless the input ends.
fn read_step(input: &mut fs::File, step: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < step.len() {
        match input.read(&mut step[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
