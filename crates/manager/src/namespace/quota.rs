//! The quota of a volume of the personality `afs`, in bytes of its regular files, by escrow ([`nasd_afs::escrow`]).
//!
//! The account is in memory only. A file manager that starts, or is given a quota, counts all files. For that it ends the stores that an
//! earlier one has allowed, so that nobody makes a file longer that was counted; no store begins on a drive before its files are
//! counted, and no file is made longer before all are. What is counted is made durable at the drives before, as are the ends of stores: so the
//! account is exact whoever dies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use nasd_afs::callbacks::{Version, is_store};
use nasd_afs::escrow::{Escrow, Given, Wanted};
use nasd_protocol::drive::{BatchDone, BatchOperation};
use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::{Attributes, DriveId, ObjectId};

use super::ahead::mark;
use super::home::BATCH;
use super::{Namespace, Outcome};
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::objects::{ObjectError, Wait};

/// What somebody gets who wants to store a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// He may write up to there.
    Until(u64),
    /// The volume is full.
    Full,
    /// Something may come back that is set aside for others, or files are not counted yet.
    Wait,
    /// The file was removed since [`Namespace::ask_for_room`].
    Gone,
}

/// How many bytes the files of a volume may have, and have.
pub(super) struct Quota {
    /// None where there is no quota.
    account: Mutex<Option<Account>>,
    /// Held shared by whoever stores or removes, and alone to begin an account: nobody has asked before it for what he gets after that.
    beginning: RwLock<()>,
    /// Held by who removes files that are accounted for.
    removing: Mutex<()>,
}

struct Account {
    escrow: Escrow<FileHandle>,
    /// Drives whose files are not counted yet.
    uncounted: Vec<DriveId>,
    /// Lengths of files that are being removed, and that nobody could extend when that was looked at.
    leaving: HashMap<FileHandle, u64>,
    /// Files for which room is asked, by so many, with the length that they had a moment before; and whether they were removed since.
    asked_for: HashMap<FileHandle, (usize, bool)>,
}

impl Account {
    fn new(limit: u64, drives: Vec<DriveId>) -> Account {
        let (leaving, asked_for) = (HashMap::new(), HashMap::new());
        Account { escrow: Escrow::new(limit, 0), uncounted: drives, leaving, asked_for }
    }

    /// Nobody can extend a file any more, which has this length.
    fn settle(&mut self, file: FileHandle, length: u64) {
        // Whoever has waited for it has waited for a store that is over.
        self.escrow.give_up(file);
        self.escrow.settle(file, length);
        if let Some(leaving) = self.leaving.get_mut(&file) {
            *leaving = length;
        }
    }

    /// A file is no more.
    fn has_left(&mut self, file: FileHandle) {
        let length = self.leaving.remove(&file);
        if let Some((_, is_gone)) = self.asked_for.get_mut(&file) {
            *is_gone = true;
        }
        self.escrow.give_up(file);
        if self.escrow.has(file) {
            self.escrow.settle(file, 0);
        } else if let Some(length) = length {
            self.escrow.resized(file, length, 0);
        }
    }
}

/// Held by who asks for room for a file.
pub struct AskingForRoom<'a> {
    quota: &'a Quota,
    file: FileHandle,
}

impl Drop for AskingForRoom<'_> {
    fn drop(&mut self) {
        self.quota.with(|account| {
            if let Entry::Occupied(mut asked) = account.asked_for.entry(self.file) {
                asked.get_mut().0 -= 1;
                if asked.get().0 == 0 {
                    asked.remove();
                }
            }
        });
    }
}

/// Held by who removes files.
pub(super) struct Removal<'a> {
    _beginning: RwLockReadGuard<'a, ()>,
    _alone: Option<MutexGuard<'a, ()>>,
}

impl Quota {
    /// So many bytes on these drives, of which nothing is counted yet; `None` is no quota.
    pub(super) fn new(limit: Option<u64>, drives: Vec<DriveId>) -> Quota {
        let account = limit.map(|limit| Account::new(limit, drives));
        Quota { account: Mutex::new(account), beginning: RwLock::new(()), removing: Mutex::new(()) }
    }

    fn account(&self) -> MutexGuard<'_, Option<Account>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, run: impl FnOnce(&mut Account) -> T) -> Option<T> {
        self.account().as_mut().map(run)
    }
}

impl Namespace {
    /// Whether the files may have only so many bytes.
    pub fn has_quota(&self) -> bool {
        self.quota.account().is_some()
    }

    /// Another limit. Where there was none, whoever stores is waited for, and then everything is counted.
    pub fn set_quota(&self, limit: Option<u64>) {
        let limit = limit.filter(|_| self.has_callbacks());
        if let Some(limit) = limit
            && self.quota.with(|account| drop(account.escrow.set_limit(limit))).is_some()
        {
            return;
        }
        let _alone = self.quota.beginning.write().unwrap_or_else(PoisonError::into_inner);
        let account = limit.map(|limit| Account::new(limit, self.objects.drives()));
        *self.quota.account() = account;
    }

    /// As long as this is held a volume without a quota gets none.
    pub fn under_quota(&self) -> RwLockReadGuard<'_, ()> {
        self.quota.beginning.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether files of this drive may be stored already.
    pub fn is_counted(&self, drive: DriveId) -> bool {
        !self.quota.with(|account| account.uncounted.contains(&drive)).unwrap_or(false)
    }

    /// The limit, and what of it nobody has or may take; nothing where there is no quota.
    pub(super) fn quota_left(&self) -> Option<(u64, u64)> {
        self.quota.with(|account| (account.escrow.limit(), account.escrow.free()))
    }

    /// What the files have together, and what is set aside; nothing where there is no quota, or not all are counted.
    pub fn accounted(&self) -> Option<(u64, u64)> {
        let told = self.quota.with(|account| {
            let sums = (account.escrow.used(), account.escrow.escrowed());
            account.uncounted.is_empty().then_some(sums)
        });
        told.flatten()
    }

    /// A file's length while somebody is about to store it under this version; or the version that its drive has.
    pub fn length_under(
        &self,
        file: FileHandle,
        version: Version,
    ) -> Outcome<Result<u64, Version>> {
        let _held = self.hold(Wants::new().read(file));
        let (_, attributes) = self.fresh(file)?;
        let at_drive = attributes.access_control_version;
        Ok(if at_drive == version { Ok(attributes.logical_size) } else { Err(at_drive) })
    }

    /// Somebody is about to ask a file's length, and for room with that ([`Namespace::room_for`]), under [`Namespace::under_quota`]: what was removed meanwhile
    /// must not be counted as though it were there.
    pub fn ask_for_room(&self, file: FileHandle) -> AskingForRoom<'_> {
        self.quota.with(|account| account.asked_for.entry(file).or_default().0 += 1);
        AskingForRoom { quota: &self.quota, file }
    }

    /// Sets aside what somebody needs to store a file. That counts until [`Namespace::settle_length`].
    pub fn room_for(&self, file: FileHandle, wanted: Wanted) -> Room {
        let room = self.quota.with(|account| {
            if account.asked_for.get(&file).is_some_and(|(_, is_gone)| *is_gone) {
                return Room::Gone;
            }
            if !account.uncounted.is_empty() && wanted.least_end > wanted.length {
                return Room::Wait;
            }
            let answers = account.escrow.ask(file, wanted);
            // Others who have waited ask again.
            match answers.into_iter().find(|(of, _)| *of == file) {
                Some((_, Given::Until(end))) => Room::Until(end),
                Some((_, Given::Full)) => Room::Full,
                None => Room::Wait,
            }
        });
        room.unwrap_or(Room::Until(wanted.best_end))
    }

    /// A file is about to be cut for a store that begins: what it has stays set aside for who stores.
    pub(super) fn hold_length(&self, file: FileHandle, length: u64) {
        let wanted = Wanted { length, least_end: length, best_end: length };
        self.quota.with(|account| {
            if !account.escrow.has(file) {
                drop(account.escrow.ask(file, wanted));
            }
        });
    }

    /// It is cut at its drive, durably.
    pub(super) fn note_cut(&self, file: FileHandle, length: u64) {
        self.quota.with(|account| drop(account.escrow.resized(file, length, length)));
    }

    /// Removes what is to be removed, before somebody is told that the volume is full. Whether there was anything.
    pub fn make_room(&self) -> bool {
        !self.doomed_is_empty() && self.remove_doomed().is_ok()
    }

    /// Nobody waits for room for a file any more.
    pub fn give_up_room(&self, file: FileHandle) {
        self.quota.with(|account| drop(account.escrow.give_up(file)));
    }

    /// Whose stores hold what somebody waits for.
    pub fn hold_room(&self) -> Vec<FileHandle> {
        self.quota.with(|account| account.escrow.to_recall()).unwrap_or_default()
    }

    /// The store of a file is over at its drive, where the file has this length, durably.
    pub fn settle_length(&self, file: FileHandle, length: u64) {
        self.quota.with(|account| account.settle(file, length));
    }

    /// After a store came to nothing: what was set aside for a file that was removed meanwhile comes back.
    pub fn settle_if_gone(&self, file: FileHandle) {
        if self.has_quota()
            && self.objects.getattr(file, Wait::Brief) == Err(ObjectError::NoSuchObject)
        {
            self.have_left(&[file]);
        }
    }

    /// A file is not at its drive any more.
    pub fn has_left(&self, file: FileHandle) {
        self.have_left(&[file]);
    }

    /// Whoever is about to remove files of a drive holds this; nothing where that is for later, because they are not counted yet.
    pub(super) fn begin_removal(&self, drive: DriveId) -> Option<Removal<'_>> {
        // Who is here may hold it already, and another one may wait for all to be done.
        let beginning = self.quota.beginning.try_read().ok()?;
        let alone = self
            .has_quota()
            .then(|| self.quota.removing.lock().unwrap_or_else(PoisonError::into_inner));
        let removal = Removal { _beginning: beginning, _alone: alone };
        self.is_counted(drive).then_some(removal)
    }

    /// Takes note of what comes back when files are removed.
    pub(super) fn note_leaving(
        &self,
        drive: DriveId,
        files: &[FileHandle],
    ) -> Result<(), ObjectError> {
        let unknown = self.quota.with(|account| {
            let is_unknown = |file: &&FileHandle| !account.leaving.contains_key(file);
            files.iter().filter(is_unknown).copied().collect::<Vec<_>>()
        });
        let Some(unknown) = unknown.filter(|files| !files.is_empty()) else {
            return Ok(());
        };
        let objects: Vec<ObjectId> = unknown.iter().map(|file| file.object).collect();
        for (file, attributes) in self.regular_files(drive, &objects)? {
            self.quota.with(|account| account.leaving.insert(file, attributes.logical_size));
        }
        Ok(())
    }

    /// Files are removed at their drives.
    pub(super) fn have_left(&self, files: &[FileHandle]) {
        self.quota.with(|account| files.iter().for_each(|file| account.has_left(*file)));
    }

    /// Counts the files of drives that are not counted yet, as far as these answer. Called by one thread.
    pub fn count_files(&self) {
        let uncounted = self.quota.with(|account| account.uncounted.clone()).unwrap_or_default();
        for drive in uncounted {
            match self.count_files_of(drive) {
                Ok(Some(bytes)) => {
                    tracing::debug!(%drive, bytes, "the files of a drive are counted");
                    self.quota.with(|account| {
                        if account.uncounted.contains(&drive) {
                            account.uncounted.retain(|other| *other != drive);
                            account.escrow.counted(bytes);
                        }
                    });
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%drive, %error, "files can't be counted yet"),
            }
        }
    }

    /// The bytes of all files of a drive, when nobody can extend them; nothing if it may still get something of another file manager, or a file
    /// would have to be changed while somebody holds the volume.
    fn count_files_of(&self, drive: DriveId) -> Result<Option<u64>, ObjectError> {
        if !self.is_fenced(drive) {
            return Ok(None);
        }
        // Also what this one has done, which was not to be durable while there was no quota: a file that was cut must not be longer again.
        self.flush_all(drive, Wait::Brief)?;
        let objects = self.objects.objects_from(drive, ObjectId::FIRST_DYNAMIC, Wait::Brief)?;
        // Nobody has ever been able to write what is no file yet.
        let ahead = self.journal.ledger(|ledger| {
            ledger.ahead.get(&drive).map(|ahead| ahead.objects.clone()).unwrap_or_default()
        });
        let objects: Vec<ObjectId> =
            objects.into_iter().filter(|object| !ahead.contains(object)).collect();
        let mut bytes = 0_u64;
        for objects in objects.chunks(BATCH) {
            for (file, attributes) in self.regular_files(drive, objects)? {
                let version = attributes.access_control_version;
                let length = if is_store(version) {
                    let Some(_inside) = self.door.try_enter() else {
                        return Ok(None);
                    };
                    // Of an earlier file manager, or of one without a quota. What was written stays.
                    self.advance(file, version.saturating_add(1), true)?
                } else {
                    attributes.logical_size
                };
                bytes = bytes.saturating_add(length);
            }
        }
        Ok(Some(bytes))
    }

    /// The regular files among some objects of a drive.
    fn regular_files(
        &self,
        drive: DriveId,
        objects: &[ObjectId],
    ) -> Result<Vec<(FileHandle, Attributes)>, ObjectError> {
        let partition = self.objects.partition(drive).ok_or(ObjectError::NoSuchObject)?;
        let operations: Vec<BatchOperation> =
            objects.iter().map(|object| BatchOperation::Getattr(*object)).collect();
        let mut files = Vec::new();
        for outcome in self.objects.batch(drive, &operations, false, Wait::Brief)? {
            match outcome {
                Ok(BatchDone { object, attributes: Some(attributes) }) => {
                    let file = FileHandle { drive, partition, object };
                    if self.is_regular(file, &attributes) {
                        files.push((file, attributes));
                    }
                }
                Ok(_) | Err(ObjectError::NoSuchObject) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    /// Whether an object is a regular file's. Its record may be in the journal; of one that was removed before it came home nothing is known
    /// but that somebody has stored it.
    fn is_regular(&self, file: FileHandle, attributes: &Attributes) -> bool {
        let in_journal = self.journal.record(file).map(|image| image.record);
        let record = in_journal.as_ref().unwrap_or(&attributes.fs_specific);
        match FileRecord::parse(record) {
            Ok(record) => record.file_type == FileType::Regular,
            Err(_) => attributes.fs_specific == mark() && attributes.access_control_version > 0,
        }
    }
}
