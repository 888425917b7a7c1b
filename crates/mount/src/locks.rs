//! Locks, as the kernel passes them on: `fcntl` and `flock` hold between all mounts of a volume.
//!
//! What others wrote under a lock is seen by whoever has it next: what was written is durable before
//! a lock is given back, and the kernel's pages of a file that has changed are dropped when a lock
//! was taken.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError};

use nasd_clerk::{Caller, HeldLock, LockKind, LockMode, LockRequest};
use nasd_fuse::{Errno, Lock, LockFound};

use crate::attributes::errno;
use crate::callers::Who;
use crate::files::OpenedFile;
use crate::inodes;
use crate::tree::Tree;

/// `F_RDLCK`, `F_WRLCK` and `F_UNLCK`, as the protocol has them.
const SHARED: u32 = libc::F_RDLCK as u32;
const EXCLUSIVE: u32 = libc::F_WRLCK as u32;
const UNLOCKED: u32 = libc::F_UNLCK as u32;

/// No lock is in the way.
const FREE: LockFound = LockFound { start: 0, end: 0, kind: UNLOCKED, pid: 0 };

/// The last byte that a lock can have in the protocol (`OFFSET_MAX`); it stands for the end.
const LAST: u64 = i64::MAX as u64;

fn request(file: &OpenedFile, lock: &Lock) -> LockRequest {
    LockRequest {
        file: file.open.handle(),
        kind: if lock.is_flock { LockKind::Flock } else { LockKind::Posix },
        owner: lock.owner,
        first: lock.start,
        last: if lock.end >= LAST { u64::MAX } else { lock.end },
        mode: if lock.kind == EXCLUSIVE { LockMode::Exclusive } else { LockMode::Shared },
        process: lock.pid,
    }
}

fn found(other: &HeldLock) -> LockFound {
    let kind = if other.mode == LockMode::Exclusive { EXCLUSIVE } else { SHARED };
    LockFound { start: other.first, end: other.last.min(LAST), kind, pid: other.process }
}

/// All locks of one kind that an owner may have on a file.
fn all_of(file: &OpenedFile, kind: LockKind, owner: u64) -> LockRequest {
    LockRequest {
        file: file.open.handle(),
        kind,
        owner,
        first: 0,
        last: u64::MAX,
        mode: LockMode::Shared,
        process: 0,
    }
}

impl Tree {
    /// The lock that would be in the way of another.
    pub(crate) fn get_lock(&self, file: &OpenedFile, lock: &Lock) -> Result<LockFound, Errno> {
        let other = self.clerk.test_lock(&request(file, lock)).map_err(|error| errno(&error))?;
        Ok(other.as_ref().map_or(FREE, found))
    }

    /// Takes a lock or gives it back; with `wait`, when it is to be had.
    pub(crate) fn set_lock(
        &self,
        who: Who,
        file: &OpenedFile,
        lock: &Lock,
        wait: bool,
    ) -> Result<(), Errno> {
        let asked = request(file, lock);
        match lock.kind {
            UNLOCKED => self.clerk.unlock(&asked).map_err(|error| errno(&error)),
            SHARED | EXCLUSIVE => {
                let caller = self.callers.get(who);
                let other =
                    self.clerk.lock(&caller, &asked, wait).map_err(|error| errno(&error))?;
                if other.is_some() {
                    return Err(Errno::EAGAIN);
                }
                file.lockers().insert((asked.kind, lock.owner));
                self.look_anew(&caller, file);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// After a lock was taken: others may have written under it.
    fn look_anew(&self, caller: &Arc<Caller>, file: &OpenedFile) {
        match self.clerk.getattr_now(caller, file.open.handle()) {
            Ok(now) => self.forget_older_pages(file.ino, inodes::version(&now), true),
            Err(_) => self.forget_pages(file.ino, 0, 0),
        }
    }

    /// A process has closed a descriptor: its `fcntl` locks on the file end, as POSIX has it.
    pub(crate) fn end_locks_of(&self, file: &OpenedFile, owner: u64) {
        self.end_locks(file, LockKind::Posix, owner);
    }

    /// The last descriptor of an opening is closed: what was locked by it, and is still, ends.
    pub(crate) fn end_all_locks(&self, file: &OpenedFile) {
        let lockers = std::mem::take(&mut *file.lockers());
        for (kind, owner) in lockers {
            self.end_locks(file, kind, owner);
        }
    }

    fn end_locks(&self, file: &OpenedFile, kind: LockKind, owner: u64) {
        if let Err(error) = self.clerk.unlock(&all_of(file, kind, owner)) {
            tracing::debug!(%error, "the lock ends with the session");
        }
    }
}

impl OpenedFile {
    /// Who has taken locks by this opening.
    fn lockers(&self) -> MutexGuard<'_, HashSet<(LockKind, u64)>> {
        self.lockers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
