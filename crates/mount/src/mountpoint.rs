//! Makes sure that a mountpoint can be mounted on; takes away what a dead process left there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::MountError;
use crate::mountinfo::{self, MountEntry};
use crate::unmount::{self, How};

/// A mount that does not answer for this long is alive, but hangs.
const ANSWER: Duration = Duration::from_secs(3);

/// The absolute path of a mountpoint that is ready to be mounted on.
pub(crate) fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    if !Path::new("/dev/fuse").exists() {
        return Err(MountError::NoFuse("/dev/fuse does not exist".into()));
    }
    let path = absolute(path).map_err(|error| explain(path, error))?;
    while let Some(entry) = mountinfo::mounted_at(&path).map_err(|error| explain(&path, error))? {
        if !is_dead_mount(&entry) {
            return Err(MountError::AlreadyMounted { path, what: entry.file_system });
        }
        tracing::warn!(path = %path.display(), "taking away a mount whose process has died");
        unmount::detach(&path, How::Lazily)
            .map_err(|error| MountError::Unmount { path: path.clone(), error })?;
    }
    match fs::metadata(&path) {
        Ok(metadata) if metadata.is_dir() => Ok(path),
        Ok(_) => Err(MountError::NotDirectory(path)),
        Err(error) => Err(explain(&path, error)),
    }
}

/// The absolute path without symbolic links, also when a dead mount is there.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if is_dead(&error) => {
            let path = std::path::absolute(path)?;
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
                _ => Err(error),
            }
        }
        outcome => outcome,
    }
}

fn explain(path: &Path, error: io::Error) -> MountError {
    match error.kind() {
        io::ErrorKind::NotFound => MountError::NoMountpoint(path.to_owned()),
        io::ErrorKind::NotADirectory => MountError::NotDirectory(path.to_owned()),
        _ => MountError::Mountpoint { path: path.to_owned(), error },
    }
}

/// "Transport endpoint is not connected": nobody serves the mount any more.
fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Whether the process that served a mount is gone.
fn is_dead_mount(entry: &MountEntry) -> bool {
    if !entry.is_fuse() {
        return false;
    }
    let (tell, told) = mpsc::channel();
    let path = entry.path.clone();
    // A thread of its own, because a process that hangs does not answer at all.
    let asking = thread::Builder::new().name("nasd-probe".into()).spawn(move || {
        // Not its attributes: the kernel may have those in its cache for another second.
        let dead = fs::read_dir(&path).is_err_and(|error| is_dead(&error));
        // Nobody waits for an answer that comes too late.
        let _ = tell.send(dead);
    });
    asking.is_ok() && told.recv_timeout(ANSWER).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountpoints_that_will_not_do_are_told_apart() {
        let missing = prepare(Path::new("/no/such/directory"));
        assert!(matches!(missing, Err(MountError::NoMountpoint(_))), "{missing:?}");
        let file = prepare(Path::new("/proc/self/status"));
        assert!(matches!(file, Err(MountError::NotDirectory(_))), "{file:?}");
        let mounted = prepare(Path::new("/proc"));
        assert!(matches!(mounted, Err(MountError::AlreadyMounted { .. })), "{mounted:?}");
    }
}
