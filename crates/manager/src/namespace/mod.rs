//! The name space: directories, files and symbolic links over the objects of several drives.
//!
//! One file an operation, or a family of them; all take a [`crate::Caller`] and answer as
//! `specs/manager.x` says. What they share:
//!
//! * `records`: files' own attributes, read from the drives and cached where that is safe;
//! * `contents`: directories, which are read whole and changed one block at a time;
//! * `change`: a change of several files, from its plan to the journal;
//! * `once`: a request that is sent again is not executed again;
//! * `answer`: what is told of a file, with its capability;
//! * `ahead`: objects that are made before anybody needs them;
//! * `govern`: the access control lists of directories as AFS has them, which the files in them have copies of;
//! * `home`: how what is in the journal comes to the objects, and what nothing names is removed;
//! * `quota`: how many bytes the files of a volume of the personality `afs` may have.
//!
//! Rules that all keep to:
//! * A change is planned and done in memory while its locks are held, and takes its place in the
//!   journal then. Locks are released before anybody waits for the drive.
//! * Nothing is answered before the home drive has what the answer depends on: a change waits for
//!   itself, and so for all before it; who only looks waits for the last change of what it has looked at.
//! * Locks are taken all at once (`crate::locks`). What a change needs to know is read before,
//!   one lock at a time, and checked again when all are held: so nobody waits for a drive while
//!   holding locks on files of others, other than to change them.
//! * What is in the journal and may not be home lies over whatever is read from the drives.

mod accessed;
mod ahead;
mod answer;
mod callbacks;
mod change;
mod contents;
mod create;
mod govern;
mod home;
mod housekeeping;
mod link;
mod lookup;
mod measures;
mod once;
mod orphans;
mod quota;
mod readdir;
mod records;
mod rename;
mod repair;
mod setattr;
mod share;
mod space;
mod start;
mod told;
mod unlink;
mod xattrs;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use nasd_afs::callbacks::Version;
use nasd_protocol::drive::PartitionControl;
use nasd_protocol::manager::{FileHandle, ManagerStatus};
use nasd_types::{CellId, DriveId, Location, ObjectId, PartitionId, Personality};

use crate::directory::DirectoryCache;
use crate::file_record::FileRecord;
use crate::handle::Shown;
use crate::journal::{Journal, JournalError};
use crate::keys::WorkingKeys;
use crate::locks::{Held, LockTable, Wants};
use crate::lru::Lru;
use crate::mint::{Mint, MintOptions};
use crate::objects::{ObjectError, ObjectStore, Wait};
use crate::placement::Placement;
use crate::standstill::Standstill;
use crate::volume::VolumeRecord;

pub(crate) use ahead::BEGUN_VERSION;
pub use callbacks::{Beginning, Look, Storing};
pub use create::{Created, Node};
pub(crate) use govern::{NamedFile, TendingLists};
pub use housekeeping::Backlog;
pub use measures::Cached;
pub use orphans::Orphaned;
pub use quota::Room;
pub use start::StartError;

use ahead::Pool;
use once::Running;
use quota::Quota;
use told::Told;

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
    /// How it behaves for those who share its files.
    pub personality: Personality,
    /// How many bytes its files may have, in a volume of the personality `afs`; `None`: as many as there is room for.
    pub quota: Option<u64>,
    /// Nobody changes anything in it.
    pub read_only: bool,
    /// The drives' working keys.
    pub keys: Arc<WorkingKeys>,
    /// How capabilities are minted.
    pub mint: MintOptions,
    /// Memory for directories, in bytes.
    pub directory_cache_bytes: usize,
    /// How many files' records are kept.
    pub record_cache_entries: usize,
    /// Length of each of the journal's two areas, in bytes, when the volume is made.
    pub journal_area_bytes: usize,
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
    told: Told,
    directories: DirectoryCache,
    placement: Placement,
    /// What the drives told last of their partitions.
    controls: Mutex<HashMap<DriveId, PartitionControl>>,
    journal: Journal,
    /// Shared by whoever changes something in memory and puts it into the journal; held alone to see
    /// what all that is in the journal has come to.
    gate: RwLock<()>,
    /// Held by who brings things home.
    going_home: Mutex<()>,
    pool: Pool,
    running: Running,
    /// Files that have lost their names, until those are told who may have them open; and the session that
    /// removed them, which has not.
    orphaned: Mutex<Vec<Orphaned>>,
    mint: Mint,
    personality: Personality,
    read_only: bool,
    /// Where those go in who may change something.
    door: Arc<Standstill>,
    quota: Quota,
    keys: Arc<WorkingKeys>,
    /// Versions of files that were just made, until those who made them are promised news of them.
    made: Mutex<HashMap<FileHandle, Version>>,
    /// Directories whose files are being given their lists, and by how many.
    giving_lists: Mutex<HashMap<FileHandle, usize>>,
    /// Somebody gives lists behind those who have set them.
    tends_lists: AtomicBool,
    /// Drives on which all that the file manager before this one has done is durable.
    settled: Mutex<HashSet<DriveId>>,
}

impl Namespace {
    /// The root directory.
    pub fn root(&self) -> FileHandle {
        self.volume.root
    }

    /// Whether nobody changes anything in it: it is a snapshot.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Where those go in who may change something.
    pub(crate) const fn door(&self) -> &Arc<Standstill> {
        &self.door
    }

    /// Does what the manager does by itself, and can do later as well: not while somebody holds the volume. What is done in one go should be short,
    /// as whoever wants to hold the volume waits for it.
    ///
    /// # Errors
    /// `Busy` where somebody holds it.
    fn unless_held<T>(&self, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let _inside = self.door.try_enter().ok_or(ManagerStatus::Busy)?;
        work()
    }

    /// Brings home all that is in the journal, and makes all of the volume durable at its drives.
    ///
    /// # Errors
    /// `Unavailable` if that can't be, as a drive is away; and others.
    pub(crate) fn bring_all_home(&self) -> Outcome<()> {
        self.bring_most_home()?;
        match self.journal.has_changes() || self.journal.going().is_some() {
            true => Err(ManagerStatus::Unavailable),
            false => Ok(()),
        }
    }

    /// The same of what there is now, while there may be more all the time.
    ///
    /// # Errors
    /// `Unavailable` if that can't be, as a drive is away; and others.
    pub(crate) fn bring_most_home(&self) -> Outcome<()> {
        self.bring_home()?;
        self.commit()?;
        for drive in self.objects.drives() {
            let flushed = self.objects.flush(drive, &[], Wait::Patient);
            flushed.map_err(|error| failure("make the volume durable", self.volume.log, &error))?;
        }
        Ok(())
    }

    /// Its partitions.
    pub(crate) fn parts(&self) -> Vec<(DriveId, PartitionId)> {
        let drives = self.objects.drives().into_iter();
        drives.filter_map(|drive| Some((drive, self.objects.partition(drive)?))).collect()
    }

    /// The volume's name.
    pub fn name(&self) -> &[u8] {
        &self.volume.name
    }

    /// Takes locks.
    fn hold(&self, wants: Wants) -> Held<'_> {
        self.locks.hold(wants)
    }

    /// Returns when the home drive has a change, and all before it.
    fn wait_for(&self, sequence: u64) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            match self.journal.written(sequence) {
                Ok(()) => return Ok(()),
                Err(JournalError::Full) => self.bring_home()?,
                Err(JournalError::Drive(error)) => {
                    return Err(failure("write the journal", self.volume.log, &error));
                }
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// An outcome that nobody has changed anything for, but that may depend on changes of these.
    fn answered<T>(&self, outcome: Outcome<T>, about: &[FileHandle]) -> Outcome<T> {
        let changed = about.iter().map(|file| self.journal.changed_at(*file)).max();
        self.wait_for(changed.unwrap_or(0))?;
        outcome
    }

    /// Makes all that was answered until now durable: returns when it would survive a power cut.
    ///
    /// # Errors
    /// `Unavailable` and others, if the volume's home does not take it; it may be tried again.
    pub fn commit(&self) -> Outcome<()> {
        let sequence = self.journal.sequence();
        for _ in 0..ATTEMPTS {
            match self.journal.durable(sequence) {
                Ok(()) => return Ok(()),
                Err(JournalError::Full) => self.bring_home()?,
                Err(JournalError::Drive(error)) => {
                    return Err(failure("flush the journal", self.volume.log, &error));
                }
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// Whether a file is of this volume, if it is anywhere.
    pub fn has(&self, file: FileHandle) -> bool {
        self.objects.partition(file.drive) == Some(file.partition)
    }

    /// Where a file's object is, if it is of this volume.
    pub fn location(&self, file: FileHandle) -> Option<Location> {
        self.objects.location(file.drive)
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
