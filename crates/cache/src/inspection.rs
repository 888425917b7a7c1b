//! Cache directories as a command sees them, whether or not somebody uses them.

use crate::CacheError;
use crate::directory::{Directory, Part};
use crate::identity::{self, Identity};
use crate::key::FileKey;
use crate::lock::DirectoryLock;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a cache directory has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The directory.
    pub directory: PathBuf,
    /// Whose it is.
    pub identity: Identity,
    /// Files of which something is there.
    pub files: u64,
    /// Bytes that they take on the disk.
    pub bytes: u64,
    /// Whether a living process uses it.
    pub in_use: bool,
    /// Which one, where it has told.
    pub process: Option<u32>,
}

/// What was removed from a cache directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Emptied {
    /// Files.
    pub files: u64,
    /// Bytes that they took on the disk.
    pub bytes: u64,
}

/// Looks at a cache directory, which may be in use. Nothing is changed, and no contents are verified.
///
/// # Errors
/// What is no cache directory, or can't be read.
pub fn inspect(directory: &Path) -> Result<Inspection, CacheError> {
    let identity = identity_of(directory)?;
    let (mut files, mut bytes) = (0, 0);
    each_part(directory, |_, part, taken| {
        files += u64::from(part == Part::Head);
        bytes += taken;
        Ok(())
    })?;
    let holder = DirectoryLock::holder(directory);
    Ok(Inspection {
        directory: directory.to_owned(),
        identity,
        files,
        bytes,
        in_use: holder.is_some(),
        process: holder.flatten(),
    })
}

/// Removes all contents from a cache directory that nobody uses. What is not the cache's stays.
///
/// # Errors
/// A directory that is in use, or no cache directory; what the system refuses.
pub fn empty(directory: &Path) -> Result<Emptied, CacheError> {
    identity_of(directory)?;
    let _lock = DirectoryLock::acquire(directory)?;
    let place = Directory::new(directory);
    let mut emptied = Emptied::default();
    each_part(directory, |file, part, taken| {
        place.remove(file, part).map_err(CacheError::io("remove", &place.part(file, part)))?;
        emptied.files += u64::from(part == Part::Head);
        emptied.bytes += taken;
        Ok(())
    })?;
    for folder in place.folders() {
        // With something of a stranger's in it, it stays.
        let _ = fs::remove_dir(folder);
    }
    Ok(emptied)
}

/// The cache directories below a root, as [`default_root`](crate::default_root), in the order of their paths.
///
/// # Errors
/// A root that can't be read; that there is none is no error.
pub fn find(root: &Path) -> Result<Vec<PathBuf>, CacheError> {
    let mut found = Vec::new();
    for cell in folders(root)? {
        // Whoever may not look there has nothing there.
        let volumes = folders(&cell).unwrap_or_default();
        found.extend(volumes.into_iter().filter(|at| at.join(identity::IDENTITY_FILE).exists()));
    }
    found.sort();
    Ok(found)
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, CacheError> {
    let list = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list.map_err(CacheError::io("read", path))?,
    };
    Ok(list.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}

fn identity_of(directory: &Path) -> Result<Identity, CacheError> {
    if !directory.is_dir() {
        let reason = "there is no such directory".to_owned();
        return Err(CacheError::NotACache { directory: directory.to_owned(), reason });
    }
    Identity::read(directory)?.ok_or_else(|| CacheError::NotACache {
        directory: directory.to_owned(),
        reason: format!("it has no file `{}`", identity::IDENTITY_FILE),
    })
}

/// Each file of the cache, and what it takes.
fn each_part(
    directory: &Path,
    mut visit: impl FnMut(&FileKey, Part, u64) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    for folder in Directory::new(directory).folders() {
        let list = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            list => list.map_err(CacheError::io("read", &folder))?,
        };
        for entry in list.flatten() {
            let name = entry.file_name();
            let ours = name.to_str().and_then(|name| Directory::parse(&folder, name));
            // One that went meanwhile takes nothing.
            if let (Some((file, part)), Ok(found)) = (ours, entry.metadata())
                && !found.is_dir()
            {
                visit(&file, part, found.blocks() * 512)?;
            }
        }
    }
    Ok(())
}
