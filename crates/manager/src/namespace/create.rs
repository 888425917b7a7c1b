//! `create`, `mkdir`, `mknod` and `symlink`: a new object first, and then its name.
//!
//! The object is made without any lock held, on a drive that placement chooses; the directory is
//! locked only for the one write that adds the name. A manager that dies in between leaves an
//! object without a name.

use nasd_protocol::manager::{Device, File, FileHandle, FileType, ManagerStatus, NewMode};
use nasd_types::limits::MAX_SYMLINK_BYTES;
use nasd_types::{DriveId, SetAttributes};

use super::contents::NotChanged;
use super::lookup::require_name;
use super::{ATTEMPTS, Namespace, Outcome, failure};
use crate::caller::Caller;
use crate::directory::Entry;
use crate::file_record::FileRecord;
use crate::locks::Wants;
use crate::objects::{NewObject, ObjectError, Wait};
use crate::permission::{self, EXECUTE, WRITE};

/// What is to be made.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    directory: FileHandle,
    name: &'a [u8],
    file_type: FileType,
    mode: NewMode,
    device: Device,
    /// A symbolic link's target.
    target: &'a [u8],
}

impl<'a> Wanted<'a> {
    fn new(directory: FileHandle, name: &'a [u8], file_type: FileType, mode: NewMode) -> Self {
        Wanted { directory, name, file_type, mode, device: Device::NONE, target: b"" }
    }
}

/// What `mknod` makes.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// What it is.
    pub file_type: FileType,
    /// Its permission bits.
    pub mode: NewMode,
    /// Of a device, which.
    pub device: Device,
}

impl Namespace {
    /// A regular file. If the name is taken: an error if `exclusive`, else what is there.
    pub fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
        exclusive: bool,
    ) -> Outcome<File> {
        let wanted = Wanted::new(directory, name, FileType::Regular, mode.into());
        for _ in 0..ATTEMPTS {
            match self.make(caller, &wanted) {
                Err(ManagerStatus::Exists) if !exclusive => {
                    match self.lookup(caller, directory, name) {
                        // It has just been removed again.
                        Err(ManagerStatus::NotFound) => {}
                        answer => return answer,
                    }
                }
                answer => return answer,
            }
        }
        Err(ManagerStatus::Unavailable)
    }

    /// A directory.
    pub fn mkdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
    ) -> Outcome<File> {
        self.make(caller, &Wanted::new(directory, name, FileType::Directory, mode.into()))
    }

    /// A named pipe, a socket's name, a device's for root, or a regular file.
    pub fn mknod(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        node: Node,
    ) -> Outcome<File> {
        let Node { file_type, mode, device } = node;
        // What is found where root's own file systems lie over others: it stands for nothing.
        let is_whiteout = file_type == FileType::CharacterDevice && device == Device::NONE;
        let is_allowed = !file_type.is_device() || is_whiteout || caller.is_root();
        match file_type {
            FileType::Directory => return Err(ManagerStatus::Permission),
            FileType::Symlink => return Err(ManagerStatus::Invalid),
            _ if is_allowed => {}
            _ => {
                // Who may not make the name at all is told that.
                self.require_addable(caller, directory, name)?;
                return Err(ManagerStatus::Permission);
            }
        }
        let device = if file_type.is_device() { device } else { Device::NONE };
        let wanted = Wanted { device, ..Wanted::new(directory, name, file_type, mode) };
        self.make(caller, &wanted)
    }

    /// A symbolic link; its target is its object's data.
    pub fn symlink(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        target: &[u8],
    ) -> Outcome<File> {
        if target.is_empty() || target.contains(&0) {
            return Err(ManagerStatus::Invalid);
        }
        if target.len() > MAX_SYMLINK_BYTES {
            return Err(ManagerStatus::NameTooLong);
        }
        let wanted = Wanted::new(directory, name, FileType::Symlink, NewMode::default());
        self.make(caller, &Wanted { target, ..wanted })
    }

    fn make(&self, caller: &Caller, wanted: &Wanted<'_>) -> Outcome<File> {
        let directory = self.require_addable(caller, wanted.directory, wanted.name)?;
        let parent = (wanted.file_type == FileType::Directory).then_some(wanted.directory);
        let made = permission::new_record(&directory, caller, wanted.file_type, wanted.mode);
        let mut record = FileRecord { parent, device: wanted.device, ..made };
        let new = self.make_object(wanted, &mut record)?;
        self.remember(new.handle, record);
        if record.is_directory() {
            self.adopt_empty_directory(new.handle);
        }
        let entry = Entry { name: wanted.name, handle: new.handle, file_type: wanted.file_type };
        if let Err(error) = self.add_name(caller, wanted.directory, &entry) {
            self.forget(new.handle);
            // If the name may be there, so must be its object.
            if error.certain {
                self.doom(new.handle);
                self.reap(new.handle, Wait::Brief);
            }
            return Err(error.status);
        }
        self.file(caller, new.handle, &record, &new.attributes)
    }

    /// Requires that the caller may add a name that is not there yet; answers the directory's
    /// record.
    fn require_addable(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<FileRecord> {
        let _held = self.hold(Wants::new().read(directory))?;
        self.require_addable_held(caller, directory, name)
    }

    /// The same for who holds the directory's lock.
    pub(super) fn require_addable_held(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<FileRecord> {
        let record = self.directory_record(directory)?;
        permission::require(&record, caller, EXECUTE)?;
        if matches!(name, b"." | b"..") {
            return Err(ManagerStatus::Exists);
        }
        require_name(name)?;
        if self.find(directory, name)?.is_some() {
            return Err(ManagerStatus::Exists);
        }
        permission::require(&record, caller, WRITE)?;
        Ok(record)
    }

    fn add_name(
        &self,
        caller: &Caller,
        directory: FileHandle,
        entry: &Entry<'_>,
    ) -> Result<(), NotChanged> {
        let _held = self.hold(Wants::new().write(directory)).map_err(NotChanged::for_certain)?;
        self.require_addable_held(caller, directory, entry.name)
            .map_err(NotChanged::for_certain)?;
        self.change_directory(directory, Wait::Patient, |contents| {
            contents.plan_insert(entry).map(Some).ok_or(ManagerStatus::NoSpace)
        })
    }

    /// Makes the object, on the first of the drives in placement's order that takes it.
    fn make_object(&self, wanted: &Wanted<'_>, record: &mut FileRecord) -> Outcome<NewObject> {
        let order = self.placement.choose();
        // Where there is no other drive, this one is worth waiting for.
        let wait = if order.len() == 1 { Wait::Patient } else { Wait::Brief };
        let mut worst = None;
        for drive in &order {
            match self.make_object_on(*drive, wanted, record, wait) {
                Ok(new) => return Ok(new),
                Err(error) => {
                    self.placement.exclude(*drive);
                    let status = failure("make an object", drive_of(*drive), &error);
                    // Space can be made; a drive may come back; nothing helps against the rest.
                    if worst != Some(ManagerStatus::NoSpace) {
                        worst = Some(status);
                    }
                }
            }
        }
        match (worst, order.first()) {
            (Some(ManagerStatus::Unavailable), Some(drive)) if wait == Wait::Brief => self
                .make_object_on(*drive, wanted, record, Wait::Patient)
                .map_err(|error| failure("make an object", drive_of(*drive), &error)),
            (status, _) => Err(status.unwrap_or(ManagerStatus::Io)),
        }
    }

    fn make_object_on(
        &self,
        drive: DriveId,
        wanted: &Wanted<'_>,
        record: &mut FileRecord,
        wait: Wait,
    ) -> Result<NewObject, ObjectError> {
        record.access_time = self.objects.drive_time(drive);
        let near = wanted.directory;
        let initial = SetAttributes {
            nearby_object: (near.drive == drive).then_some(near.object),
            fs_specific: Some(record.to_bytes()),
            ..SetAttributes::default()
        };
        if wanted.target.is_empty() {
            return self.objects.create(drive, &initial, true, wait);
        }
        // Writing the target durably makes the object durable too.
        let new = self.objects.create(drive, &initial, false, wait)?;
        let written = self
            .objects
            .write(new.handle, 0, wanted.target, wait)
            .and_then(|()| self.objects.getattr(new.handle, wait));
        match written {
            Ok(attributes) => Ok(NewObject { handle: new.handle, attributes }),
            Err(error) => {
                self.doom(new.handle);
                self.reap(new.handle, Wait::Brief);
                Err(error)
            }
        }
    }
}

/// Stands for the drive in messages.
fn drive_of(drive: DriveId) -> FileHandle {
    FileHandle { drive, partition: Default::default(), object: Default::default() }
}
