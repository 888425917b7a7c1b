//! One process uses a cache directory at a time: it holds the file `lock`, which also tells its number.

use crate::CacheError;
use crate::identity::{LOCK_FILE, open_plain};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// How often the lock is tried: who only looks whether it is held has it for an instant.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// Held as long as the cache is used; the system releases it however the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// Takes it.
    pub fn acquire(directory: &Path) -> Result<Self, CacheError> {
        let path = directory.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(CacheError::io("open", &path))?;
        for tried in 1.. {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if tried < TRIES => std::thread::sleep(BETWEEN_TRIES),
                Err(Errno::WOULDBLOCK) => {
                    let process = process_in(&mut file);
                    return Err(CacheError::InUse { directory: directory.to_owned(), process });
                }
                Err(error) => return Err(CacheError::io("lock", &path)(error.into())),
            }
        }
        // For people to read: a full disk keeps nobody from the lock.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(DirectoryLock { _file: file })
    }

    /// Whether some process has it, and which.
    pub fn holder(directory: &Path) -> Option<Option<u32>> {
        let mut file = open_plain(&directory.join(LOCK_FILE)).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Some(process_in(&mut file)),
            _ => None,
        }
    }
}

fn process_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
