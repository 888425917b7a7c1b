//! Files of the cell's directory: written whole or not at all, and secrets for their owner's eyes alone.
//!
//! A file is written beside its place, as `NAME.PROCESS-NUMBER.new`, and moved there when it is
//! durable. Whoever writes it has it locked, so that what a killed process has left, and a secret may
//! be in it, can be told from what somebody is writing: the next writing in a cell's directory removes it.

use super::CellError;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How such files end.
const SUFFIX: &str = ".new";

/// How often a writing begins anew whose file somebody has taken for a dead one's.
const ATTEMPTS: u32 = 8;

/// The text of a file that only its owner may read. Wipe it after use.
///
/// # Errors
/// `ExposedSecret` or `Io`.
pub fn read_private(path: &Path) -> Result<String, CellError> {
    let metadata = std::fs::metadata(path).map_err(CellError::io("read", path))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(CellError::ExposedSecret(path.to_owned()));
    }
    std::fs::read_to_string(path).map_err(CellError::io("read", path))
}

/// Waits until nobody else changes the directory's files in this way; held until it is dropped.
///
/// # Errors
/// `Io`.
pub(super) fn lock_directory(directory: &Path) -> Result<std::fs::File, CellError> {
    let locked = std::fs::File::open(directory).map_err(CellError::io("open", directory))?;
    rustix::fs::flock(&locked, FlockOperation::LockExclusive)
        .map_err(|errno| CellError::io("lock", directory)(errno.into()))?;
    Ok(locked)
}

/// Writes a file that only its owner may read, as [`write_atomic`].
///
/// # Errors
/// `Io` where it can't be written.
pub fn write_private(path: &Path, contents: &[u8]) -> Result<(), CellError> {
    write_atomic(path, contents, 0o600)
}

/// Writes a file whole or not at all: beside its place, synced, then renamed into place. In a cell's own
/// directories it removes what others have left there that were killed at this.
///
/// # Errors
/// `Io` where it can't be written.
pub(super) fn write_atomic(path: &Path, contents: &[u8], mode: u32) -> Result<(), CellError> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = try_write(path, contents, mode);
        // Between its making and its locking, others may take the file for a dead one's.
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            continue;
        }
        break;
    }
    outcome.map_err(CellError::io("write", path))?;
    if let Some(directory) = path.parent().filter(|directory| is_cells_own(directory)) {
        remove_stale(directory);
    }
    Ok(())
}

/// Whether a directory is a cell's, or the one with its certificates: in others, which the user has
/// chosen, files of such names may be anybody's.
fn is_cells_own(directory: &Path) -> bool {
    let has_cell = |directory: &Path| directory.join("cell.toml").is_file();
    has_cell(directory) || directory.ends_with("tls") && directory.parent().is_some_and(has_cell)
}

fn try_write(path: &Path, contents: &[u8], mode: u32) -> std::io::Result<()> {
    // Nobody else has it, not even for a file beside this one of which only the extension differs.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{number}{SUFFIX}", std::process::id()));
    let new = path.with_file_name(name);
    let write = || -> std::io::Result<()> {
        // A process of that number may have left the file; its mode must not be inherited.
        let _ = std::fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

/// Removes what was left in a directory by those who were killed while they wrote a file. That it
/// can't be removed is no reason to do nothing else.
pub fn remove_stale(directory: &Path) {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, directory = %directory.display(), "not looked through");
            return;
        }
    };
    let names = entries.flatten().filter(|entry| is_unfinished(&entry.file_name()));
    for path in names.map(|entry| entry.path()) {
        match remove_unlocked(&path) {
            Ok(false) => {}
            Ok(true) => tracing::info!(path = %path.display(), "removed a file that was left over"),
            Err(error) => tracing::warn!(%error, path = %path.display(), "a file was left over"),
        }
    }
}

/// Whether a name is one that [`write_atomic`] gives: `NAME.PROCESS-NUMBER.new`.
fn is_unfinished(name: &std::ffi::OsStr) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let unfinished = || {
        let (name, numbers) = name.to_str()?.strip_suffix(SUFFIX)?.rsplit_once('.')?;
        let (process, number) = numbers.split_once('-')?;
        Some(!name.is_empty() && is_number(process) && is_number(number))
    };
    unfinished().unwrap_or(false)
}

/// Removes a file, unless somebody has it locked; tells whether it did.
fn remove_unlocked(path: &PathBuf) -> std::io::Result<bool> {
    let mut options = OpenOptions::new();
    // A link would lead elsewhere; one who opens a pipe would wait.
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        // It is in its place by now.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    }
    // Renamed since, and another of that name begun.
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.ino() == file.metadata()?.ino() => {}
        _ => return Ok(false),
    }
    std::fs::remove_file(path).map(|()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_writes_any_more_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let stale = ["keyring.toml.77-0.new", "ca.key.4194304-12.new", "a.b.1-1.new"];
        let kept = [
            "keyring.toml",
            "notes.new",
            "x.1-2.new.txt",
            "x.1-2",
            ".1-2.new",
            "x.-2.new",
            "x.1-.new",
            "x.1-2-3.new",
            "x.+1-2.new",
            "in-use.9-9.new",
        ];
        for name in stale.iter().chain(&kept) {
            std::fs::write(path(name), "secret").unwrap();
        }
        std::os::unix::fs::symlink(path("keyring.toml"), path("link.1-1.new")).unwrap();
        std::fs::create_dir(path("directory.1-1.new")).unwrap();
        let in_use = File::open(path("in-use.9-9.new")).unwrap();
        rustix::fs::flock(&in_use, FlockOperation::LockExclusive).unwrap();
        // In a directory of the user's nothing is.
        write_private(&path("another.toml"), b"x").unwrap();
        assert!(stale.iter().all(|name| path(name).exists()));
        std::fs::write(path("cell.toml"), "").unwrap();
        write_private(&path("another.toml"), b"x").unwrap();
        for name in stale {
            assert!(!path(name).exists(), "{name}");
        }
        for name in kept.iter().chain(&["another.toml", "link.1-1.new", "directory.1-1.new"]) {
            assert!(path(name).exists(), "{name}");
        }
        for (directory, is_own) in [("tls", true), ("members", false)] {
            std::fs::create_dir(path(directory)).unwrap();
            let left = path(directory).join("host.key.77-0.new");
            std::fs::write(&left, "secret").unwrap();
            write_private(&path(directory).join("host.key"), b"x").unwrap();
            assert_eq!(left.exists(), !is_own, "{directory}");
        }
        drop(in_use);
        remove_stale(directory.path());
        assert!(!path("in-use.9-9.new").exists());
    }

    #[test]
    fn writers_at_the_same_time_do_not_remove_each_others_files() {
        let directory = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = directory.path().join(format!("file-{writer}"));
                scope.spawn(move || {
                    for round in 0..100 {
                        let contents = format!("{writer} {round}");
                        write_private(&path, contents.as_bytes()).unwrap();
                        assert_eq!(std::fs::read_to_string(&path).unwrap(), contents);
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 8);
    }
}
