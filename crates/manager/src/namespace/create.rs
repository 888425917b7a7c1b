//! `create`, `mkdir`, `mknod`, `symlink` and `mkmount`: an object that was made ahead gets a record and a name.
//!
//! The object is taken without any lock held, on a drive that placement chooses; the directory is
//! locked only to add the name. A symbolic link's target goes to its object first, not durably: the
//! journal has it too, and clients read it there.

use nasd_afs::callbacks::is_store;
use nasd_protocol::manager::{Device, File, FileHandle, FileType, ManagerStatus, NewMode};
use nasd_types::limits::MAX_SYMLINK_BYTES;
use nasd_types::{Attributes, Rights};

use super::ahead::Kind;
use super::callbacks::Beginning;
use super::lookup::require_name;
use super::{ATTEMPTS, Namespace, Outcome, failure};
use crate::caller::Caller;
use crate::file_record::FileRecord;
use crate::journal::Step;
use crate::locks::Wants;
use crate::objects::{NewObject, Wait};
use crate::permission::{self, Deed};

/// What is to be made.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    directory: FileHandle,
    name: &'a [u8],
    file_type: FileType,
    mode: NewMode,
    device: Device,
    /// A symbolic link's target, or the name of a mount point's volume.
    target: &'a [u8],
}

impl<'a> Wanted<'a> {
    fn new(directory: FileHandle, name: &'a [u8], file_type: FileType, mode: NewMode) -> Self {
        Wanted { directory, name, file_type, mode, device: Device::NONE, target: b"" }
    }
}

/// What a request to make a regular file has come to.
#[derive(Clone, Debug)]
pub struct Created {
    /// The file.
    pub file: File,
    /// That request has made it, now or when it came before.
    pub is_new: bool,
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
        self.once_with_file(caller, || {
            self.create_once(caller, &wanted, exclusive, None).map(|created| created.file)
        })
    }

    /// The same where whoever makes it may begin to store it with that. A volume that has no quota gets none meanwhile.
    pub fn create_to_store(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: impl Into<NewMode>,
        exclusive: bool,
        beginning: &dyn Beginning,
    ) -> Outcome<Created> {
        let wanted = Wanted::new(directory, name, FileType::Regular, mode.into());
        let again = |handle: Option<FileHandle>| {
            let file = self.getattr(caller, handle.ok_or(ManagerStatus::Io)?)?;
            Ok(Created { file, is_new: true })
        };
        self.once(caller, || self.create_once(caller, &wanted, exclusive, Some(beginning)), again)
    }

    fn create_once(
        &self,
        caller: &Caller,
        wanted: &Wanted<'_>,
        exclusive: bool,
        beginning: Option<&dyn Beginning>,
    ) -> Outcome<Created> {
        for _ in 0..ATTEMPTS {
            match self.make_beginning(caller, wanted, beginning) {
                Err(ManagerStatus::Exists) if !exclusive => {
                    match self.lookup(caller, wanted.directory, wanted.name) {
                        // It has just been removed again.
                        Err(ManagerStatus::NotFound) => {}
                        answer => return answer.map(|file| Created { file, is_new: false }),
                    }
                }
                answer => return answer.map(|file| Created { file, is_new: true }),
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
        let wanted = Wanted::new(directory, name, FileType::Directory, mode.into());
        self.once_with_file(caller, || self.make(caller, &wanted))
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
            FileType::Symlink | FileType::MountPoint => return Err(ManagerStatus::Invalid),
            _ if is_allowed => {}
            _ => {
                // Who may not make the name at all is told that.
                self.require_addable(caller, directory, name)?;
                return Err(ManagerStatus::Permission);
            }
        }
        let device = if file_type.is_device() { device } else { Device::NONE };
        let wanted = Wanted { device, ..Wanted::new(directory, name, file_type, mode) };
        self.once_with_file(caller, || self.make(caller, &wanted))
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
        let wanted = Wanted { target, ..wanted };
        self.once_with_file(caller, || self.make(caller, &wanted))
    }

    /// A name at which another volume is seen; that one's name is its object's data. Whether there is such a volume is the
    /// caller's to look.
    pub fn mkmount(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        volume: &[u8],
    ) -> Outcome<File> {
        require_name(volume)?;
        let wanted = Wanted::new(directory, name, FileType::MountPoint, NewMode::default());
        let wanted = Wanted { target: volume, ..wanted };
        self.once_with_file(caller, || self.make(caller, &wanted))
    }

    /// A regular file without a name, as one of this directory's. It is there while the caller's session
    /// has it open, or until it gets a name.
    pub fn tmpfile(
        &self,
        caller: &Caller,
        directory: FileHandle,
        mode: impl Into<NewMode>,
    ) -> Outcome<File> {
        if caller.session == 0 {
            // Nobody could say when it is closed.
            return Err(ManagerStatus::Grace);
        }
        let mode = mode.into();
        self.once_with_file(caller, || self.make_nameless(caller, directory, mode))
    }

    fn make_nameless(
        &self,
        caller: &Caller,
        directory: FileHandle,
        mode: NewMode,
    ) -> Outcome<File> {
        let above = {
            let _held = self.hold(Wants::new().read(directory));
            let above = self.directory_record(directory)?;
            permission::require_to(&above, caller, Deed::Insert)?;
            above
        };
        self.require_room(directory)?;
        let new = self.take_ahead(Kind::Settled)?;
        let wanted = Wanted::new(directory, b"", FileType::Regular, mode);
        let record = FileRecord { links: 0, ..self.new_record(caller, &above, &wanted, &new)? };
        let sequence = self.change(&[], |draft| {
            draft.take_nameless(caller, new.handle, &record);
            draft.answers(caller, Some(new.handle));
            Ok(())
        })?;
        self.wait_for(sequence)?;
        self.new_file(caller, new.handle, &record, &as_made(&new, &record, &wanted))
    }

    /// The record of an object that becomes a file of a directory.
    fn new_record(
        &self,
        caller: &Caller,
        directory: &FileRecord,
        wanted: &Wanted<'_>,
        new: &NewObject,
    ) -> Outcome<FileRecord> {
        let parent = (wanted.file_type == FileType::Directory).then_some(wanted.directory);
        let made = permission::new_record(directory, caller, wanted.file_type, wanted.mode)?;
        Ok(FileRecord {
            parent,
            device: wanted.device,
            access_time: self.objects.file_time(new.handle.drive),
            create_time: self.time_on(new.handle.drive),
            ..made
        })
    }

    fn make(&self, caller: &Caller, wanted: &Wanted<'_>) -> Outcome<File> {
        self.make_beginning(caller, wanted, None)
    }

    /// Makes what whoever makes it may begin to store with that.
    fn make_beginning(
        &self,
        caller: &Caller,
        wanted: &Wanted<'_>,
        beginning: Option<&dyn Beginning>,
    ) -> Outcome<File> {
        let addable = self.require_addable(caller, wanted.directory, wanted.name);
        let directory = match addable {
            Ok(directory) => directory,
            Err(status) => return self.answered(Err(status), &[wanted.directory]),
        };
        self.require_room(wanted.directory)?;
        // It may not go into a record; then nothing was begun.
        let record = permission::new_record(&directory, caller, wanted.file_type, wanted.mode)?;
        let may_write = permission::rights(&record, caller).contains(Rights::WRITE);
        let (new, begun) = self.take_to_make(beginning.filter(|_| may_write))?;
        if let Err(status) = self.put_target(&new, wanted.target) {
            self.journal.enqueue(&[Step::Remove { object: new.handle }]);
            return Err(status);
        }
        match self.add_name(caller, wanted, &new) {
            Ok((record, sequence)) => {
                self.wait_for(sequence)?;
                self.new_file(caller, new.handle, &record, &as_made(&new, &record, wanted))
            }
            Err(status) => {
                self.forget(new.handle);
                self.directories.forget(new.handle);
                if let Some(begun) = begun {
                    begun.has_not_begun(new.handle);
                }
                // Of one that has begun somebody may have set the version.
                match wanted.target.is_empty() && begun.is_none() {
                    true => self.give_back(new),
                    false => {
                        self.journal.enqueue(&[Step::Remove { object: new.handle }]);
                    }
                }
                self.answered(Err(status), &[wanted.directory])
            }
        }
    }

    /// An object to be made into a file; and by whom a store of it has begun, if it has: nobody else can know of the object.
    fn take_to_make<'a>(
        &self,
        beginning: Option<&'a dyn Beginning>,
    ) -> Outcome<(NewObject, Option<&'a dyn Beginning>)> {
        // Where there is room for no more of them, there may be others yet.
        if let Some(beginning) = beginning
            && let Ok(new) = self.take_ahead(Kind::Begun)
        {
            if beginning.may_begin(new.handle, new.attributes.access_control_version) {
                return Ok((new, Some(beginning)));
            }
            self.give_back(new);
        }
        Ok((self.take_ahead(Kind::Settled)?, None))
    }

    /// Writes a symbolic link's target, or the name of a mount point's volume.
    fn put_target(&self, new: &NewObject, target: &[u8]) -> Outcome<()> {
        if target.is_empty() {
            return Ok(());
        }
        let written = self.objects.write(new.handle, 0, target, false, Wait::Brief);
        written.map(|_| ()).map_err(|error| failure("write the target", new.handle, &error))
    }

    /// Requires that the caller may add a name that is not there yet; answers the directory's
    /// record.
    fn require_addable(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
    ) -> Outcome<FileRecord> {
        let _held = self.hold(Wants::new().read(directory));
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
        permission::require_to(&record, caller, Deed::Search)?;
        if matches!(name, b"." | b"..") {
            return Err(ManagerStatus::Exists);
        }
        require_name(name)?;
        if self.find(directory, name)?.is_some() {
            return Err(ManagerStatus::Exists);
        }
        permission::require_to(&record, caller, Deed::Insert)?;
        Ok(record)
    }

    /// Adds the name; answers the record, as it is by the directory's lists of that moment, and the number to wait for.
    fn add_name(
        &self,
        caller: &Caller,
        wanted: &Wanted<'_>,
        new: &NewObject,
    ) -> Outcome<(FileRecord, u64)> {
        let (directory, file) = (wanted.directory, new.handle);
        let _held = self.hold(Wants::new().write(directory));
        let above = self.require_addable_held(caller, directory, wanted.name)?;
        let record = self.new_record(caller, &above, wanted, new)?;
        if record.is_directory() {
            self.adopt_empty_directory(file);
        }
        let sequence = self.change(&[directory], |draft| {
            draft.set_name(directory, wanted.name, file, record.file_type)?;
            draft.take(file, &record, wanted.target);
            draft.touch(directory, &above);
            draft.answers(caller, Some(file));
            Ok(())
        })?;
        // Nobody else can have come upon it yet.
        if record.is_directory() {
            self.note_made_directory(file, as_made(new, &record, wanted));
        } else if is_store(new.attributes.access_control_version) {
            self.told.made(file, as_made(new, &record, wanted));
        }
        Ok((record, sequence))
    }
}

/// The attributes of a new file.
fn as_made(new: &NewObject, record: &FileRecord, wanted: &Wanted<'_>) -> Attributes {
    let mut attributes = new.attributes.clone();
    attributes.fs_attribute_modify_time = record.create_time;
    attributes.fs_specific = record.to_bytes();
    if record.file_type != FileType::Regular {
        attributes.fs_data_modify_time = record.create_time;
    }
    if !wanted.target.is_empty() {
        attributes.logical_size = wanted.target.len() as u64;
    }
    attributes
}
