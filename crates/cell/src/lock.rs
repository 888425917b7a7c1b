//! One process runs a cell: it holds `run/up.lock`, which also tells its process number.

use super::{Cell, CellError};
use nasd_types::DriveId;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Held while the cell runs; released by the system however the process ends.
#[derive(Debug)]
pub struct CellLock {
    _file: File,
}

impl CellLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// `Running` where another process has it; `Io` otherwise.
    pub fn acquire(path: &Path) -> Result<Self, CellError> {
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(CellError::io("open", path))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(CellError::Running { directory: cell_of(path), pid: read_pid(&mut file) });
        }
        let write = |file: &mut File| -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(CellError::io("write", path))?;
        Ok(CellLock { _file: file })
    }

    /// The number of the process that holds the lock, if one does.
    pub fn holder(path: &Path) -> Option<u32> {
        let mut file = OpenOptions::new().read(true).open(path).ok()?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => None,
            Err(_) => read_pid(&mut file),
        }
    }

    /// Waits until nobody holds the lock; false if somebody still does at the end.
    pub fn wait_released(path: &Path, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while Self::holder(path).is_some() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// Held by a command from before it reads the keys of a drive until it knows which the drive has: of two
/// at once, one would take the other's key on its way for its own, and forget it.
#[derive(Debug)]
pub struct KeyTurn {
    _file: File,
}

impl KeyTurn {
    /// Waits for it.
    ///
    /// # Errors
    /// `Io` where the lock can't be made.
    pub fn wait(cell: &Cell, drive: DriveId) -> Result<Self, CellError> {
        let directory = cell.directory().join("run");
        std::fs::create_dir_all(&directory).map_err(CellError::io("create", &directory))?;
        let path = directory.join(format!("keys-{:016x}.lock", drive.0));
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(CellError::io("open", &path))?;
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if let Err(rustix::io::Errno::WOULDBLOCK) = locked {
            eprintln!("nasd: waiting for another command that sets keys of this drive");
            rustix::fs::flock(&file, FlockOperation::LockExclusive)
                .map_err(|errno| CellError::io("lock", &path)(errno.into()))?;
        } else {
            locked.map_err(|errno| CellError::io("lock", &path)(errno.into()))?;
        }
        Ok(KeyTurn { _file: file })
    }
}

/// Held by a command that moves or removes a volume: of two at once, one would take away what the other one makes.
#[derive(Debug)]
pub struct VolumeTurn {
    _file: File,
}

impl VolumeTurn {
    /// Takes it, and does not wait where somebody has it. Whoever has it reads `cell.toml` anew.
    ///
    /// # Errors
    /// `Volume` where there is no such volume, or somebody has it; `Io` where the lock can't be made.
    pub fn take(cell: &Cell, volume: &str) -> Result<Self, CellError> {
        if !cell.config.other_volumes.iter().any(|known| known.name == volume) {
            let list = "`nasd volume list` shows those that there are";
            return Err(CellError::Volume(format!("the cell has no volume `{volume}`: {list}")));
        }
        let directory = cell.directory().join("run");
        std::fs::create_dir_all(&directory).map_err(CellError::io("create", &directory))?;
        let path = directory.join(format!("volume-{volume}.lock"));
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(CellError::io("open", &path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(VolumeTurn { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(CellError::Volume(format!(
                "another command moves or removes {volume}: try again when it is done"
            ))),
            Err(errno) => Err(CellError::io("lock", &path)(errno.into())),
        }
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn cell_of(lock: &Path) -> PathBuf {
    lock.parent().and_then(Path::parent).unwrap_or(lock).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("up.lock");
        assert_eq!(CellLock::holder(&path), None);
        let lock = CellLock::acquire(&path).unwrap();
        assert_eq!(CellLock::holder(&path), Some(std::process::id()));
        assert!(matches!(CellLock::acquire(&path), Err(CellError::Running { .. })));
        drop(lock);
        assert!(CellLock::wait_released(&path, Duration::ZERO));
        CellLock::acquire(&path).unwrap();
    }

    #[test]
    fn one_command_at_a_time_moves_or_removes_a_volume() {
        let directory = tempfile::tempdir().unwrap();
        let cell = crate::testing::cell(directory.path());
        assert!(matches!(VolumeTurn::take(&cell, "a"), Err(CellError::Volume(_))));
        for name in ["a", "b"] {
            let personality = nasd_types::Personality::Nfs;
            crate::begin_volume(&cell, name, personality, (0, 0), &[], &[]).unwrap();
        }
        let cell = Cell::open(directory.path()).unwrap();
        let turn = VolumeTurn::take(&cell, "a").unwrap();
        assert!(matches!(VolumeTurn::take(&cell, "a"), Err(CellError::Volume(_))));
        VolumeTurn::take(&cell, "b").unwrap();
        drop(turn);
        VolumeTurn::take(&cell, "a").unwrap();
    }

    #[test]
    fn commands_that_set_keys_of_one_drive_wait_for_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let cell = crate::testing::cell(directory.path());
        std::fs::create_dir_all(directory.path().join("run")).unwrap();
        let first = KeyTurn::wait(&cell, DriveId(1)).unwrap();
        let _other = KeyTurn::wait(&cell, DriveId(2)).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let cell = &cell;
            scope.spawn(move || sender.send(KeyTurn::wait(cell, DriveId(1)).is_ok()).unwrap());
            assert!(done.recv_timeout(Duration::from_millis(100)).is_err());
            drop(first);
            assert_eq!(done.recv_timeout(Duration::from_secs(60)), Ok(true));
        });
    }
}
