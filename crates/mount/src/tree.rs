//! What is done for the kernel's requests about names and attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nasd_clerk::{
    Belief, Caller, Clerk, ClerkError, Device, Entry, FileAttributes, FileHandle, FileType,
    ManagerStatus, Name, NewMode, RenameFlags,
};
use nasd_fuse::{Attributes, Errno, Notifier};

use crate::accessed::Accesses;
use crate::attributes::{Changes, device_from_kernel, errno, time, to_kernel};
use crate::callers::{Callers, Who};
use crate::directories::OpenDirectory;
use crate::dispatch::Lane;
use crate::files::OpenedFile;
use crate::inodes::{Inodes, Numbers, version, with_tag};
use crate::lookers::Lookers;
use crate::names::{Gate, Told};
use crate::state::VolumeState;
use crate::table::Table;
use crate::{DataPath, MountError, MountOptions};

/// Bytes of a block, as `df` counts.
const BLOCK_BYTES: u64 = 4096;

/// A mounted volume.
pub(crate) struct Tree {
    pub(crate) clerk: Arc<Clerk>,
    pub(crate) inodes: Inodes,
    pub(crate) callers: Callers,
    /// For what happens to files whoever asks.
    pub(crate) root: Arc<Caller>,
    pub(crate) files: Table<OpenedFile>,
    pub(crate) directories: Table<OpenDirectory>,
    pub(crate) data_path: DataPath,
    pub(crate) accesses: Arc<Accesses>,
    pub(crate) lookers: Lookers,
    /// For those who tell the kernel of names.
    pub(crate) gate: Gate,
    /// Tells the kernel what it must not believe any more.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Whether the kernel knows of epochs of names, once it was asked.
    pub(crate) epochs: OnceLock<bool>,
    /// Whether the kernel looks at attributes before it believes what it has: as the mounted volume needs it.
    pub(crate) kernel_looks: bool,
    /// As which numbers programs are shown those of files.
    shown: Shown,
    /// Of a volume that is seen at a mount point: the number, as it is shown, of the directory that has it.
    above: AtomicU64,
}

/// As which numbers programs are shown those that the kernel has for files.
pub(crate) enum Shown {
    /// The same.
    Same,
    /// With this tag, which is the volume's wherever it is seen.
    Tagged(u16),
    /// As those of the mounted volume, which is seen once more.
    Mounted(Arc<Tree>),
}

/// What a name leads to.
pub(crate) enum Found {
    /// A file of the volume.
    File(Told),
    /// The root of another volume.
    MountPoint(MountPoint),
    /// There is no such name.
    Nothing(Absent),
}

/// A name that is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absent {
    /// By what that may be believed, if it may be, and since when.
    pub(crate) belief: Option<Belief>,
    pub(crate) noted: Instant,
}

/// A name at which another volume is seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountPoint {
    pub(crate) handle: FileHandle,
    /// By what the name may be believed, if it may be, and since when it is noted that the kernel knows it.
    pub(crate) belief: Option<Belief>,
    pub(crate) noted: Instant,
}

/// Room in the volume, in blocks of `block_bytes`.
pub(crate) struct Room {
    pub(crate) block_bytes: u32,
    pub(crate) blocks: u64,
    pub(crate) free_blocks: u64,
    pub(crate) files: u64,
    pub(crate) free_files: u64,
}

/// A name as the clerk wants it.
pub(crate) fn name_of(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|_| Errno::ENAMETOOLONG)
}

/// The mode without the kind of file.
pub(crate) fn permissions(mode: NewMode) -> NewMode {
    NewMode { mode: mode.mode & 0o7777, ..mode }
}

/// What kind of special file a mode asks for; `None` for a regular one.
fn special_type(mode: u32) -> Result<Option<FileType>, Errno> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Ok(None),
        libc::S_IFIFO => Ok(Some(FileType::Fifo)),
        libc::S_IFSOCK => Ok(Some(FileType::Socket)),
        libc::S_IFCHR => Ok(Some(FileType::CharacterDevice)),
        libc::S_IFBLK => Ok(Some(FileType::BlockDevice)),
        _ => Err(Errno::EINVAL),
    }
}

/// The device that a special file leads to, if it leads to one.
fn device_of(special: FileType, number: u32) -> Device {
    match special {
        FileType::CharacterDevice | FileType::BlockDevice => device_from_kernel(number),
        _ => Device { major: 0, minor: 0 },
    }
}

impl Tree {
    /// The mounted volume.
    pub(crate) fn new(clerk: Arc<Clerk>, options: &MountOptions) -> Self {
        let kernel_looks = clerk.has_callbacks();
        Tree::with(clerk, options, kernel_looks, (Numbers::MOUNTED, Shown::Same))
    }

    /// A volume that is seen at a mount point, of a mount whose kernel looks at attributes before it believes what it has, or does not.
    pub(crate) fn with(
        clerk: Arc<Clerk>,
        options: &MountOptions,
        kernel_looks: bool,
        (numbers, shown): (Numbers, Shown),
    ) -> Self {
        let inodes = Inodes::new(&clerk.volume(), numbers);
        // Else the kernel would show what it has of files that others have stored.
        let goes_around = clerk.has_callbacks() && !kernel_looks;
        Tree {
            kernel_looks,
            shown,
            above: AtomicU64::new(0),
            clerk,
            inodes,
            callers: Callers::default(),
            root: Arc::new(Caller::default()),
            files: Table::default(),
            directories: Table::default(),
            data_path: if goes_around { DataPath::Direct } else { options.data_path },
            accesses: Arc::new(Accesses::new(options.access_times)),
            lookers: Lookers::default(),
            gate: Gate::default(),
            notifier: OnceLock::new(),
            epochs: OnceLock::new(),
        }
    }

    /// Does something for somebody; if he is refused, and his thread has other groups than the
    /// host's database gives him, once more with those.
    pub(crate) fn with_groups<T>(
        &self,
        who: Who,
        mut operation: impl FnMut(Who) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match operation(who) {
            Err(Errno::EACCES | Errno::EPERM) if self.callers.may_differ(who) => {
                operation(who.exactly())
            }
            outcome => outcome,
        }
    }

    /// The file with this number.
    pub(crate) fn handle(&self, ino: u64) -> Result<FileHandle, Errno> {
        self.inodes.handle(ino).ok_or(Errno::ESTALE)
    }

    /// Where operations on this file's attributes and data wait.
    pub(crate) fn lane(&self, ino: u64) -> Lane {
        self.inodes.handle(ino).map_or(Lane::Names, |handle| Lane::Drive(handle.drive))
    }

    /// The number of a file; asks the manager when its drive is new.
    pub(crate) fn number(&self, caller: &Arc<Caller>, handle: FileHandle) -> u64 {
        if !self.inodes.knows_drive(handle.drive)
            && let Ok(volume) = self.clerk.refresh_volume(caller)
        {
            self.inodes.learn_drives(&volume);
        }
        self.inodes.number(handle)
    }

    /// The number that programs are shown of a file.
    pub(crate) fn shown(&self, ino: u64) -> u64 {
        match &self.shown {
            Shown::Same => ino,
            Shown::Tagged(tag) => with_tag(ino, *tag),
            Shown::Mounted(mounted) => {
                self.inodes.handle(ino).map_or(ino, |handle| mounted.inodes.number(handle))
            }
        }
    }

    /// The same, whether the kernel knows the file or not.
    pub(crate) fn shown_of(&self, handle: FileHandle) -> u64 {
        match &self.shown {
            Shown::Mounted(mounted) => mounted.inodes.number(handle),
            _ => self.shown(self.inodes.number(handle)),
        }
    }

    /// The number that programs are shown of the directory above another.
    pub(crate) fn shown_above(&self, ino: u64) -> u64 {
        match self.above.load(Ordering::Relaxed) {
            above if above != 0 && ino == self.inodes.root_number() => above,
            _ => self.shown(self.inodes.parent(ino)),
        }
    }

    /// The volume is seen in a directory with this number.
    pub(crate) fn set_above(&self, shown: u64) {
        self.above.store(shown, Ordering::Relaxed);
    }

    /// The same attributes with the number that programs are shown.
    pub(crate) fn as_shown(&self, attributes: Attributes) -> Attributes {
        Attributes { node: self.shown(attributes.node), ..attributes }
    }

    /// Attributes for the kernel.
    pub(crate) fn present(&self, ino: u64, attributes: &FileAttributes) -> Attributes {
        self.inodes.tell(ino, attributes);
        let mut attr = to_kernel(ino, attributes);
        if let Some(accessed) = self.accesses.time_of(ino) {
            attr.access_time = attr.access_time.max(time(accessed));
        }
        attr
    }

    /// The kernel is about to be told attributes that were asked for. If somebody else has written,
    /// it must not believe its pages. (It could find that out by itself, but then its own writes
    /// would cost it the pages, too.)
    fn notice(&self, ino: u64, attributes: &FileAttributes) {
        if attributes.file_type == FileType::Regular
            && self.inodes.was_changed_elsewhere(ino, version(attributes))
        {
            // Only if it may have older ones: when it is told to forget pages, it drops the attributes of answers
            // that it had asked for before, as of this one, and would keep the old length.
            self.forget_older_pages(ino, version(attributes), false);
        }
    }

    /// The kernel is told of an entry.
    fn enter(
        &self,
        caller: &Arc<Caller>,
        parent: u64,
        name: &Name,
        entry: &Entry,
    ) -> Result<Told, Errno> {
        let ino = self.number(caller, entry.handle);
        let (mut attributes, mut age) = (entry.attributes, entry.age);
        if self.inodes.is_written(ino) {
            // What the manager was told may be older than what was written here meanwhile; and
            // the kernel appends at the length that it is told.
            let now = self.clerk.getattr_now(caller, entry.handle);
            (attributes, age) = (now.map_err(|error| errno(&error))?, Duration::ZERO);
        }
        let is_new = self.inodes.known(entry.handle).is_none();
        self.inodes.remember(parent, name.as_bytes(), entry.handle);
        self.notice(ino, &attributes);
        Ok(Told::now(self.present(ino, &attributes), age, entry.belief).if_new(is_new))
    }

    /// The file of that name; `None` if there is none.
    pub(crate) fn lookup(&self, who: Who, parent: u64, name: &OsStr) -> Result<Found, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        match self.clerk.lookup(&caller, dir, &name) {
            Ok(Entry { handle, attributes, belief, .. })
                if attributes.file_type == FileType::MountPoint =>
            {
                Ok(Found::MountPoint(MountPoint { handle, belief, noted: Instant::now() }))
            }
            Ok(entry) => {
                if entry.attributes.file_type != FileType::Directory {
                    self.lookers.looks(parent);
                }
                self.enter(&caller, parent, &name, &entry).map(Found::File)
            }
            Err(ClerkError::Manager(ManagerStatus::NotFound)) => {
                self.inodes.forget_name(parent, name.as_bytes());
                let belief = self.clerk.believes_absent(&caller, dir, &name);
                Ok(Found::Nothing(Absent { belief, noted: Instant::now() }))
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// Attributes as of now.
    pub(crate) fn getattr(&self, who: Who, ino: u64) -> Result<Attributes, Errno> {
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        let attributes =
            self.clerk.getattr_leased(&caller, handle).map_err(|error| errno(&error))?;
        self.notice(ino, &attributes);
        Ok(self.present(ino, &attributes))
    }

    /// Changes attributes.
    pub(crate) fn setattr(
        &self,
        who: Who,
        ino: u64,
        changes: Changes,
    ) -> Result<Attributes, Errno> {
        if let Some(attributes) = self.empty(who, ino, changes)? {
            return Ok(self.present(ino, &attributes));
        }
        let Some(changes) = changes.to_clerk() else {
            return self.getattr(who, ino);
        };
        // Who is not in a file's group loses its set-group-id bit without being refused.
        let sets_group =
            changes.gid.is_some() || changes.mode.is_some_and(|mode| mode & 0o2000 != 0);
        let who = if sets_group && who.uid != 0 { who.exactly() } else { who };
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        let changed = self.clerk.setattr(&caller, handle, &changes);
        if changed.is_ok() && (changes.access_time.is_some() || changes.access_time_now) {
            self.accesses.forget(ino);
        }
        Ok(self.present(ino, &changed.map_err(|error| errno(&error))?))
    }

    /// Cuts an open file to nothing, where others need not see that before they see what is written then. Where it is opened to be cut (`O_TRUNC`)
    /// the kernel does not say by which opening: it asks for that first.
    fn empty(&self, who: Who, ino: u64, changes: Changes) -> Result<Option<FileAttributes>, Errno> {
        if !changes.empties() || !self.clerk.has_callbacks() {
            return Ok(None);
        }
        let file = match changes.opened {
            Some(opened) => self.files.get(opened),
            None => {
                let all = self.files.all().into_iter().map(|(_, file)| file);
                let of_caller = |file: &Arc<OpenedFile>| {
                    file.ino == ino && file.open.mode().write && file.caller.uid == who.uid
                };
                all.filter(of_caller).max_by_key(|file| file.since)
            }
        };
        match file.filter(|file| file.ino == ino && file.open.mode().write) {
            Some(file) => file.open.empty().map_err(|error| errno(&error)),
            None => Ok(None),
        }
    }

    /// Where a symbolic link leads.
    pub(crate) fn readlink(&self, who: Who, ino: u64) -> Result<Vec<u8>, Errno> {
        let (handle, caller) = (self.handle(ino)?, self.callers.get(who));
        self.was_read(ino, handle, &caller);
        self.clerk.readlink(&caller, handle).map_err(|error| errno(&error))
    }

    /// Somebody reads a file, a directory or a symbolic link.
    pub(crate) fn was_read(&self, ino: u64, handle: FileHandle, caller: &Arc<Caller>) {
        if let Some(times) = self.inodes.times(ino) {
            self.accesses.read(ino, handle, caller, times);
        }
    }

    /// A directory.
    pub(crate) fn mkdir(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        mode: NewMode,
    ) -> Result<Told, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let made = self.clerk.mkdir(&caller, dir, &name, permissions(mode));
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// A regular file that is not opened, or a FIFO, a socket or a device.
    pub(crate) fn mknod(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        (mode, device): (NewMode, u32),
    ) -> Result<Told, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let made = match special_type(mode.mode)? {
            None => self.clerk.create(&caller, dir, &name, permissions(mode), true),
            Some(special) => {
                let node = (special, device_of(special, device));
                self.clerk.mknod(&caller, dir, &name, node, permissions(mode))
            }
        };
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// A symbolic link.
    pub(crate) fn symlink(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
    ) -> Result<Told, Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let made = self.clerk.symlink(&caller, dir, &name, target.as_bytes());
        self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)
    }

    /// Another name for a file.
    pub(crate) fn link(
        &self,
        who: Who,
        ino: u64,
        parent: u64,
        name: &OsStr,
    ) -> Result<Told, Errno> {
        let (file, dir, name) = (self.handle(ino)?, self.handle(parent)?, name_of(name)?);
        let caller = self.callers.get(who);
        let made = self.clerk.link(&caller, file, dir, &name);
        let told = self.enter(&caller, parent, &name, &made.map_err(|error| errno(&error))?)?;
        self.got_name(ino, file);
        Ok(told)
    }

    /// Removes a name; an open file lives on.
    pub(crate) fn unlink(&self, who: Who, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let open = self.inodes.open_child(parent, name.as_bytes());
        let unlinked = self.clerk.unlink(&caller, dir, &name, open.map(|(_, file)| file));
        unlinked.map_err(|error| errno(&error))?;
        self.inodes.forget_name(parent, name.as_bytes());
        self.lost_name(&caller, open);
        Ok(())
    }

    /// Removes an empty directory. Mount points are removed by nobody who takes them for directories.
    pub(crate) fn rmdir(&self, who: Who, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let is_mount_point = || self.inodes.is_mount_point(parent, name.as_bytes());
        self.clerk.rmdir(&caller, dir, &name).map_err(|error| match errno(&error) {
            Errno::ENOTDIR if is_mount_point() => Errno::EBUSY,
            errno => errno,
        })?;
        self.inodes.forget_name(parent, name.as_bytes());
        Ok(())
    }

    /// Moves a name. A file that is replaced while it is open lives on.
    pub(crate) fn rename(
        &self,
        who: Who,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Result<(), Errno> {
        let flags = match flags {
            0 => RenameFlags::NONE,
            libc::RENAME_NOREPLACE => RenameFlags::NO_REPLACE,
            libc::RENAME_EXCHANGE => RenameFlags::EXCHANGE,
            _ => return Err(Errno::EINVAL),
        };
        let (from_dir, from_name) = (self.handle(from.0)?, name_of(from.1)?);
        let (to_dir, to_name) = (self.handle(to.0)?, name_of(to.1)?);
        let caller = self.callers.get(who);
        let target = self.inodes.open_child(to.0, to_name.as_bytes());
        // Otherwise nothing loses its name.
        let open = target.filter(|_| flags == RenameFlags::NONE);
        let places = ((from_dir, &from_name), (to_dir, &to_name));
        let kept = open.map(|(_, file)| file);
        let renamed = self.clerk.rename(&caller, places.0, places.1, flags, kept);
        renamed.map_err(|error| errno(&error))?;
        let names = ((from.0, from_name.as_bytes()), (to.0, to_name.as_bytes()));
        match flags.is_exchange() {
            true => self.inodes.exchange(names.0, names.1),
            false => self.inodes.rename(names.0, names.1),
        }
        self.lost_name(&caller, open);
        Ok(())
    }

    /// Room in the volume.
    pub(crate) fn statfs(&self, who: Who) -> Result<Room, Errno> {
        let space = self.clerk.space(&self.callers.get(who)).map_err(|error| errno(&error))?;
        Ok(Room {
            block_bytes: BLOCK_BYTES as u32,
            blocks: space.total_bytes / BLOCK_BYTES,
            free_blocks: space.free_bytes / BLOCK_BYTES,
            files: space.files,
            free_files: space.free_files,
        })
    }

    /// Makes durable what was changed of names and attributes through this mount.
    pub(crate) fn commit(&self) -> Result<(), Errno> {
        self.clerk.commit().map_err(|error| errno(&error))
    }

    /// What the process that takes the mount over has to know.
    pub(crate) fn export(&self) -> VolumeState {
        VolumeState {
            root: Some(self.clerk.root()),
            files: self.inodes.known_files(),
            openings: self.known_openings(),
            listings: self.known_listings(),
            kept: self.clerk.kept(),
        }
    }

    /// Takes over from the process before. What can't be opened again stays unknown, and its users
    /// get errors.
    pub(crate) fn import(&self, state: &VolumeState) -> Result<(), MountError> {
        if state.root != Some(self.clerk.root()) {
            return Err(MountError::OtherVolume);
        }
        self.take_over(state);
        Ok(())
    }

    /// The same, of this volume for certain.
    pub(crate) fn take_over(&self, state: &VolumeState) {
        state.files.iter().for_each(|file| self.inodes.know(file));
        for opening in &state.openings {
            if let Err(error) = self.reopen(opening) {
                tracing::warn!(%error, ino = opening.ino, "a file is not open any more");
            }
        }
        state.listings.iter().for_each(|listing| self.reopen_directory(*listing));
        self.claim_nameless(&state.kept);
    }

    /// Another process serves the mount: nothing but this one's memory is given up.
    pub(crate) fn leave(&self) -> Result<(), ClerkError> {
        self.files.clear();
        self.directories.clear();
        self.clerk.close()
    }

    /// After the mount is gone: hands everything that was written to the drives. What was kept for open files
    /// ends with the session.
    pub(crate) fn drain(&self) -> Result<(), ClerkError> {
        self.files.clear();
        self.directories.clear();
        self.clerk.close()
    }
}
