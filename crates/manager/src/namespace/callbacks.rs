//! What the personality `afs` needs of a name space: the versions of objects at their drives, and capabilities to read and to store
//! that are good for one version each (`specs/callbacks.md`).

use std::sync::PoisonError;

use nasd_afs::callbacks::{Version, is_store};
use nasd_protocol::drive::{BatchDone, BatchOperation};
use nasd_protocol::manager::{File, FileHandle, FileType, ManagerStatus};
use nasd_types::{Attributes, ByteRange, DriveId, Personality, Rights, SetAttributes};

use super::{Namespace, Outcome, failure};
use crate::caller::Caller;
use crate::journal::RecordImage;
use crate::locks::Wants;
use crate::objects::{ObjectError, Wait};
use crate::permission;

/// What a client may do for itself in a volume of this personality without storing.
const LOOKING: Rights = Rights::READ.union(Rights::GETATTR);

/// What a file looks like to who wants to read it under a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// So, and the capability is good for that version.
    Now(Box<File>),
    /// The drive has another version.
    Elsewhere(Version),
}

/// What was known of a file when its drive was asked for its version: its record in the journal, and which time that was.
type Asking = (Option<RecordImage>, u64);

/// How far a capability to store reaches, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storing {
    /// The store's version.
    pub version: Version,
    /// The first byte that may not be written.
    pub end: u64,
    /// In nanoseconds from now on.
    pub lifetime_ns: u64,
}

/// What a client may store from the moment when it is made.
pub trait Beginning {
    /// An object with an odd version, which nobody knows of, is about to become a file: whether whoever makes it may write under that from now on.
    fn may_begin(&self, file: FileHandle, version: Version) -> bool;

    /// It does not become one.
    fn has_not_begun(&self, file: FileHandle);
}

impl Namespace {
    /// How the volume behaves for those who share its files.
    pub const fn personality(&self) -> Personality {
        self.personality
    }

    /// Whether clients keep what they read, and are told before it changes.
    pub fn has_callbacks(&self) -> bool {
        self.personality == Personality::Afs
    }

    /// A file was made, of which nobody else knows yet.
    pub(super) fn note_made(&self, file: FileHandle, version: Version) {
        if self.has_callbacks() {
            self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(file, version);
        }
    }

    /// The version of a file that was just made; told once.
    pub fn take_made(&self, file: FileHandle) -> Option<Version> {
        if !self.has_callbacks() {
            return None;
        }
        self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(&file)
    }

    /// The version that a file's drive has, and the object's length. Where the drive may yet get something of the file manager before this one, nothing is told
    /// before it takes a key that the other did not have; nor before what that one has done there is durable: it may have died between setting a version
    /// and seeing to it that what was written before is there as long as the version.
    ///
    /// Whoever looks at the file under that version a moment later need not have the drive asked once more.
    pub fn object_version(&self, file: FileHandle) -> Outcome<(Version, u64)> {
        self.require_possible(file)?;
        if !self.is_fenced(file.drive) {
            return Err(ManagerStatus::Unavailable);
        }
        self.settle_drive(file.drive)
            .map_err(|error| failure("make durable what was there", file, &error))?;
        let asking = self.begin_to_ask(file);
        let told = self.objects.getattr(file, Wait::Patient);
        told.map(|attributes| self.note_asked(file, attributes, asking))
            .map_err(|error| failure("read the version", file, &error))
    }

    /// The same of several files of a drive, in one request; nothing of those that are not told now.
    pub fn object_versions(
        &self,
        drive: DriveId,
        files: &[FileHandle],
    ) -> Vec<Option<(Version, u64)>> {
        if !self.is_fenced(drive) {
            return vec![None; files.len()];
        }
        let asking: Vec<Asking> = files.iter().map(|file| self.begin_to_ask(*file)).collect();
        let operations: Vec<BatchOperation> =
            files.iter().map(|file| BatchOperation::Getattr(file.object)).collect();
        let ask = |()| self.objects.batch(drive, &operations, false, Wait::Brief);
        let told = match self.settle_drive(drive).and_then(ask) {
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%drive, %error, "the versions of files are not told");
                return vec![None; files.len()];
            }
        };
        let note = |file: &FileHandle, asking: Asking, done: Option<BatchDone>| {
            Some(self.note_asked(*file, done?.attributes?, asking))
        };
        let told = asking.into_iter().zip(told);
        files.iter().zip(told).map(|(file, (asking, told))| note(file, asking, told.ok())).collect()
    }

    /// A drive is about to be asked for a file's version.
    fn begin_to_ask(&self, file: FileHandle) -> Asking {
        // In this order: a record that is changed after this is noted there.
        let number = self.told.asks(file);
        (self.journal.record(file), number)
    }

    /// It has told that, and all else.
    fn note_asked(
        &self,
        file: FileHandle,
        attributes: Attributes,
        asking: Asking,
    ) -> (Version, u64) {
        let told = (attributes.access_control_version, attributes.logical_size);
        // Who stores may have written since.
        if !is_store(told.0) {
            self.note_advanced(file, attributes, asking);
        }
        told
    }

    /// Makes durable what the file manager before this one has done on a drive, once.
    fn settle_drive(&self, drive: DriveId) -> Result<(), ObjectError> {
        let is_settled =
            self.settled.lock().unwrap_or_else(PoisonError::into_inner).contains(&drive);
        // Who comes meanwhile does the same, as he would wait for it anyway: nobody waits for somebody who waits for a drive that is away.
        if is_settled { Ok(()) } else { self.flush_all(drive, Wait::Patient) }
    }

    /// Makes durable all that a drive has.
    pub(super) fn flush_all(&self, drive: DriveId, wait: Wait) -> Result<(), ObjectError> {
        self.objects.flush(drive, &[], wait)?;
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).insert(drive);
        Ok(())
    }

    /// Whether a drive takes nothing more of the file manager before this one.
    pub(super) fn is_fenced(&self, drive: DriveId) -> bool {
        self.keys.is_fenced(drive)
    }

    /// Sets the version of a file at its drive. Answers the object's length at that moment.
    ///
    /// An odd one need not be durable: what is written under it comes later in the drive's log. Nor need an even one that ends a store
    /// which was made durable before. `durable` is for stores that were left half done: readers keep what is there.
    ///
    /// # Errors
    /// `NoSuchObject` if the file is gone, `Refused` if the drive has a higher version, and others.
    pub fn advance(
        &self,
        file: FileHandle,
        to: Version,
        durable: bool,
    ) -> Result<u64, ObjectError> {
        self.advance_and_cut(file, to, None, durable)
    }

    /// The same of a file that is cut to `length` if it is longer, durably with the version, and once: the drive does not cut what has
    /// the version already.
    ///
    /// # Errors
    /// As [`Namespace::advance`].
    pub fn advance_and_cut(
        &self,
        file: FileHandle,
        to: Version,
        length: Option<u64>,
        durable: bool,
    ) -> Result<u64, ObjectError> {
        let mut set =
            SetAttributes { access_control_version: Some(to), ..SetAttributes::default() };
        if let Some(length) = length {
            let present = self.objects.getattr(file, Wait::Patient)?.logical_size;
            self.hold_length(file, present);
            set.logical_size = Some(length).filter(|length| *length < present);
        }
        let is_durable = durable || length.is_some();
        let number = self.told.advances(file);
        let before = (self.journal.record(file), number);
        let attributes = self.objects.setattr(file, &set, is_durable, Wait::Patient)?;
        if length.is_some() {
            self.note_cut(file, attributes.logical_size);
            self.note_times(file.drive, &attributes);
        }
        if durable {
            self.objects.flush(file.drive, &[file.object], Wait::Patient)?;
        }
        let now = attributes.logical_size;
        self.note_advanced(file, attributes, before);
        Ok(now)
    }

    /// A file as it is under a version that the caller was promised. If somebody is to read there what a directory contains, it is at
    /// its drive then.
    pub fn look_under(
        &self,
        caller: &Caller,
        file: FileHandle,
        version: Version,
        contents: bool,
    ) -> Outcome<Look> {
        let (looked, is_directory) = {
            let _held = self.hold(Wants::new().read(file));
            let (record, attributes) = self.latest_under(file, version)?;
            let at_drive = attributes.access_control_version;
            if at_drive != version {
                return Ok(Look::Elsewhere(at_drive));
            }
            permission::require_to_look(&record, caller)?;
            (self.file(caller, file, &record, &attributes)?, record.is_directory())
        };
        if contents && is_directory {
            self.bring_names_home(file)?;
        }
        self.answered(Ok(Look::Now(Box::new(looked))), &[file])
    }

    /// The same where nobody is waited for, and no drive asked: it has told of the file a moment ago.
    pub fn look_if_told(
        &self,
        caller: &Caller,
        file: FileHandle,
        version: Version,
    ) -> Option<File> {
        let looked = {
            let _held = self.locks.try_hold(Wants::new().read(file))?;
            let (record, attributes) = self.told_under(file, version).ok()??;
            permission::require_to_look(&record, caller).ok()?;
            // More would have to be read of a directory.
            if record.is_directory() {
                return None;
            }
            self.file(caller, file, &record, &attributes).ok()?
        };
        self.answered(Ok(looked), &[file]).ok()
    }

    /// Sees to it that the object of a directory has the names that the directory has now.
    fn bring_names_home(&self, directory: FileHandle) -> Outcome<()> {
        let before = self.journal.slots(directory);
        if before.is_empty() {
            return Ok(());
        }
        self.bring_home()?;
        // What a drive that is away lacks stays in the journal, and who reads there when it is back must not take what it has for all.
        let left = self.journal.slots(directory);
        match before.iter().any(|(place, name)| left.get(place) == Some(name)) {
            true => Err(ManagerStatus::Unavailable),
            false => Ok(()),
        }
    }

    /// A file that the caller may store, with a capability for that.
    pub fn look_to_store(
        &self,
        caller: &Caller,
        file: FileHandle,
        storing: &Storing,
    ) -> Outcome<Look> {
        let _held = self.hold(Wants::new().write(file));
        let (record, attributes) = self.latest_under(file, storing.version)?;
        self.require_storable(caller, &record)?;
        if attributes.access_control_version != storing.version {
            return Ok(Look::Elsewhere(attributes.access_control_version));
        }
        let mut told = self.file(caller, file, &record, &attributes)?;
        let rights = permission::rights(&record, caller);
        let region = ByteRange::new(0, storing.end);
        told.capability = self.minted(file.drive, |drive| {
            let expires = drive.time.plus_ns(storing.lifetime_ns);
            let allowed = (rights, region, expires);
            self.mint.issue_until(file, storing.version, allowed, caller, drive)
        })?;
        Ok(Look::Now(Box::new(told)))
    }

    /// Whether the caller may store a file at all, before anybody else is disturbed.
    pub fn may_be_stored(&self, caller: &Caller, file: FileHandle) -> Outcome<()> {
        let record = self.preload(file)?;
        self.require_storable(caller, &record)
    }

    fn require_storable(
        &self,
        caller: &Caller,
        record: &crate::file_record::FileRecord,
    ) -> Outcome<()> {
        match record.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(ManagerStatus::IsDirectory),
            _ => return Err(ManagerStatus::Invalid),
        }
        match permission::rights(record, caller).contains(Rights::WRITE) {
            true => Ok(()),
            false => Err(ManagerStatus::Access),
        }
    }

    /// Whether the caller may lock a file, or only know of its locks.
    pub fn require_lockable(&self, caller: &Caller, file: FileHandle, takes: bool) -> Outcome<()> {
        if !self.has_callbacks() {
            return Ok(());
        }
        match self.preload(file) {
            Ok(record) if takes => permission::require_to_lock(&record, caller),
            Ok(record) => permission::require_to_look(&record, caller),
            // Who has it open may lock it to the end.
            Err(ManagerStatus::Stale) => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// What a name leads to at this moment, if that can be told.
    pub fn leads_to(&self, directory: FileHandle, name: &[u8]) -> Option<FileHandle> {
        let _held = self.hold(Wants::new().read(directory));
        self.directory_record(directory).ok()?;
        self.find(directory, name).ok()?.map(|found| found.handle)
    }

    /// Whether a file is removed, with all capabilities for it.
    pub fn is_removed(&self, file: FileHandle) -> bool {
        self.require_alive(file).is_err()
    }

    /// Which of the rights on an object of this version ride on answers.
    pub(super) fn given_rights(&self, rights: Rights, version: Version) -> Rights {
        match self.personality {
            _ if self.read_only => rights & LOOKING,
            Personality::Nfs => rights,
            // Nobody sees what is half stored.
            Personality::Afs if is_store(version) => rights & Rights::GETATTR,
            Personality::Afs => rights & LOOKING,
        }
    }

    /// The version that revokes all capabilities of a file. Where there are callbacks, the change is a store, which ends them.
    pub(super) fn revoking_version(&self, present: Version) -> Outcome<Option<Version>> {
        match self.personality {
            // There is none after the last. That would take as many changes as nobody can make: somebody has set it so.
            Personality::Nfs => present.checked_add(1).map(Some).ok_or(ManagerStatus::Io),
            Personality::Afs => Ok(None),
        }
    }
}
