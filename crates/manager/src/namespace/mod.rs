//! The name space: directories, files and symbolic links over the objects of several drives.
//!
//! One file an operation, or a family of them; all take a [`crate::Caller`] and answer as
//! `specs/manager.x` says. What they share:
//!
//! * `records`: files' own attributes, read from the drives and cached where that is safe;
//! * `contents`: directories, read and changed one block at a time;
//! * `commit`: changes of several objects, decided by the intent log;
//! * `answer`: what is told of a file, with its capability.
//!
//! Rules that all keep to:
//! * What an operation changes is durable at the drives when it is answered, in an order that
//!   leaves no name without its object: the object comes before its name and goes after it.
//! * Locks are taken all at once (`crate::locks`). What a change needs to know is read before,
//!   one lock at a time, and checked again when all are held: so nobody waits for a drive while
//!   holding locks on files of others, other than to change them.
//! * Whoever has changed an object and can't tell whether the drive did it forgets what it knew of
//!   that object.

mod accessed;
mod answer;
mod commit;
mod contents;
mod create;
mod housekeeping;
mod link;
mod lookup;
mod readdir;
mod records;
mod rename;
mod repair;
mod setattr;
mod share;
mod space;
mod start;
mod unlink;
mod xattrs;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use nasd_protocol::drive::PartitionControl;
use nasd_protocol::manager::{FileHandle, ManagerStatus};
use nasd_types::{CellId, DriveId, ObjectId};

use crate::directory::DirectoryCache;
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::keys::WorkingKeys;
use crate::locks::{Held, LockTable, Wants};
use crate::lru::Lru;
use crate::mint::{Mint, MintOptions};
use crate::objects::{ObjectError, ObjectStore};
use crate::placement::Placement;
use crate::volume::VolumeRecord;

pub use create::Node;
pub use housekeeping::Backlog;
pub use start::StartError;

use commit::IntentLog;

/// An operation's outcome.
pub type Outcome<T> = Result<T, ManagerStatus>;

/// How often an operation begins anew when others have changed what it had looked at.
const ATTEMPTS: usize = 64;

/// What a volume is, and how it is served.
#[derive(Clone, Debug)]
pub struct NamespaceOptions {
    /// The cell that it belongs to.
    pub cell: CellId,
    /// Its name, 1 to 255 bytes.
    pub volume: Vec<u8>,
    /// The drive whose partition's First Object holds the volume record.
    pub home: DriveId,
    /// The root directory, when the volume is made.
    pub root: RootOptions,
    /// The drives' working keys.
    pub keys: Arc<WorkingKeys>,
    /// How capabilities are minted.
    pub mint: MintOptions,
    /// Memory for directories, in bytes.
    pub directory_cache_bytes: usize,
    /// How many files' records are kept.
    pub record_cache_entries: usize,
}

/// The root directory of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootOptions {
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Default for RootOptions {
    fn default() -> Self {
        RootOptions { mode: 0o755, uid: 0, gid: 0 }
    }
}

/// A volume's name space. Operations may be called from many threads at a time.
pub struct Namespace {
    objects: Arc<dyn ObjectStore>,
    volume: VolumeRecord,
    locks: LockTable,
    records: Mutex<Lru<FileHandle, FileRecord>>,
    directories: DirectoryCache,
    placement: Placement,
    /// What the drives told last of their partitions.
    controls: Mutex<HashMap<DriveId, PartitionControl>>,
    log: IntentLog,
    /// Objects without a name that could not be removed yet: gone, as far as anybody is told.
    doomed: Mutex<HashSet<FileHandle>>,
    mint: Mint,
}

impl Namespace {
    /// The root directory.
    pub fn root(&self) -> FileHandle {
        self.volume.root
    }

    /// The volume's name.
    pub fn name(&self) -> &[u8] {
        &self.volume.name
    }

    /// Takes locks, having finished what an earlier change of the same files left to be done.
    fn hold(&self, wants: Wants) -> Outcome<Held<'_>> {
        for _ in 0..ATTEMPTS {
            self.finish_pending(&wants)?;
            let held = self.locks.hold(wants.clone());
            if !self.log.is_pending(wants.handles()) {
                return Ok(held);
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// Whether a handle that a client sent could be of this volume at all.
    fn require_possible(&self, handle: FileHandle) -> Outcome<()> {
        let ours = self.objects.partition(handle.drive) == Some(handle.partition)
            && handle.object >= ObjectId::FIRST_DYNAMIC;
        if ours { Ok(()) } else { Err(ManagerStatus::Stale) }
    }
}

/// What a client is told of a drive's failure; the log is told the rest.
fn failure(what: &str, object: FileHandle, error: &ObjectError) -> ManagerStatus {
    match error {
        ObjectError::NoSuchObject => ManagerStatus::Stale,
        ObjectError::NoSpace => ManagerStatus::NoSpace,
        ObjectError::ReadOnly => ManagerStatus::ReadOnly,
        ObjectError::Unavailable { .. } => {
            tracing::warn!(object = %Shown(object), %error, "could not {what}");
            ManagerStatus::Unavailable
        }
        ObjectError::Refused(_) | ObjectError::Fault(_) => {
            tracing::error!(object = %Shown(object), %error, "could not {what}");
            ManagerStatus::Io
        }
    }
}
