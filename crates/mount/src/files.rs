//! Open files: reading, writing and making durable.
//!
//! The kernel's page cache is used, so that mmap and small reads are fast. Its pages are kept
//! from one opening to the next only when the file's length and modification time are the same as
//! when the pages were read (close-to-open consistency, as with NFS).

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};

use nasd_clerk::{
    Caller, Entry, FileAttributes, FileHandle, FileType, LockKind, OpenFile, OpenMode, SeekTarget,
    SetFileAttributes,
};
use nasd_fuse::{Attributes, Errno, Fallocate, Opened, OpenedFlags};
use nasd_types::ByteRange;

use crate::DataPath;
use crate::attributes::errno;
use crate::callers::Who;
use crate::inodes::{self, Belief};
use crate::state::KnownOpening;
use crate::tree::{Tree, name_of};

thread_local! {
    /// Where reads are put together; it grows to the largest read.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file as one `open` made it.
pub(crate) struct OpenedFile {
    pub(crate) ino: u64,
    pub(crate) open: OpenFile,
    /// Who opened it.
    caller: Arc<Caller>,
    /// Opened to go around the kernel's page cache.
    direct: bool,
    /// Who has taken locks by it.
    pub(crate) lockers: Mutex<HashSet<(LockKind, u64)>>,
}

/// Counts an opening from before it is made, so that the file is not removed meanwhile.
struct Opening<'a> {
    tree: &'a Tree,
    ino: u64,
    writes: bool,
    made: bool,
}

impl<'a> Opening<'a> {
    fn begin(tree: &'a Tree, ino: u64, handle: FileHandle, mode: OpenMode) -> Self {
        tree.inodes.begin_open(ino, handle, mode.write);
        Opening { tree, ino, writes: mode.write, made: false }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.made && self.tree.inodes.end_open(self.ino, self.writes) {
            self.tree.remove_hidden(self.ino);
        }
    }
}

fn mode_of(flags: i32) -> OpenMode {
    match flags & libc::O_ACCMODE {
        libc::O_WRONLY => OpenMode::WRITE,
        libc::O_RDWR => OpenMode::READ_WRITE,
        _ => OpenMode::READ,
    }
}

impl OpenedFile {
    /// Shows up to `length` bytes to `use_data`; fewer only at the end of the file.
    pub(crate) fn read(
        &self,
        offset: u64,
        length: u32,
        use_data: impl FnOnce(&[u8]),
    ) -> Result<(), Errno> {
        SCRATCH.with_borrow_mut(|scratch| {
            let outcome = self.open.read_with(offset, length as usize, scratch, use_data);
            outcome.map_err(|error| errno(&error))
        })
    }

    /// Where data, or a hole, begins next; of `lseek` with `SEEK_DATA` or `SEEK_HOLE`.
    pub(crate) fn seek(&self, offset: u64, whence: u32) -> Result<u64, Errno> {
        let target = match i32::try_from(whence) {
            Ok(libc::SEEK_DATA) => SeekTarget::Data,
            Ok(libc::SEEK_HOLE) => SeekTarget::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let found = self.open.seek(offset, target).map_err(|error| errno(&error))?;
        found.ok_or(Errno::ENXIO)
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.open.sync().map_err(|error| errno(&error))
    }
}

fn punch(file: &OpenedFile, start: u64, end: u64) -> Result<(), Errno> {
    if start >= end {
        return Ok(());
    }
    let range = ByteRange::new(start, end - start);
    file.open.punch(range).map_err(|error| errno(&error))
}

impl Tree {
    /// Opens a file.
    pub(crate) fn open(&self, who: Who, ino: u64, flags: i32) -> Result<Opened, Errno> {
        let (handle, caller, mode) = (self.handle(ino)?, self.callers.get(who), mode_of(flags));
        let opening = Opening::begin(self, ino, handle, mode);
        let (open, attributes) =
            self.clerk.open(&caller, handle, mode).map_err(|error| errno(&error))?;
        self.correct(ino, &attributes, flags)?;
        Ok(self.opened(opening, (open, caller), &attributes, flags))
    }

    /// The files that are open.
    pub(crate) fn known_openings(&self) -> Vec<KnownOpening> {
        let known = |(number, file): (u64, Arc<OpenedFile>)| {
            let (OpenMode { read, write }, caller) = (file.open.mode(), (*file.caller).clone());
            KnownOpening { number, ino: file.ino, caller, read, write, direct: file.direct }
        };
        self.files.all().into_iter().map(known).collect()
    }

    /// Whether somebody may have a lock, which belongs to this process's session at the manager.
    pub(crate) fn has_locks(&self) -> bool {
        let has = |file: &OpenedFile| {
            let lockers = file.lockers.lock();
            !lockers.unwrap_or_else(PoisonError::into_inner).is_empty()
        };
        self.files.all().iter().any(|(_, file)| has(file))
    }

    /// Opens a file that the process before had open. It stays open although whoever opened it might
    /// not be let in any more.
    pub(crate) fn reopen(&self, known: &KnownOpening) -> Result<(), Errno> {
        let (handle, mode, ino) = (self.handle(known.ino)?, known.mode(), known.ino);
        let caller = Arc::new(known.caller.clone());
        let root = Arc::new(Caller { uid: 0, gid: 0, groups: Vec::new() });
        let mut opening = Opening::begin(self, ino, handle, mode);
        let opened = self.clerk.open(&caller, handle, mode);
        let opened = opened.or_else(|_| self.clerk.open(&root, handle, mode));
        let (open, _) = opened.map_err(|error| errno(&error))?;
        opening.made = true;
        let (direct, lockers) = (known.direct, Mutex::default());
        let file = OpenedFile { ino, open, caller, direct, lockers };
        self.files.insert_at(known.number, file);
        Ok(())
    }

    /// The kernel believes attributes that are up to a second old; who opens a file must see what
    /// others had written and closed before.
    fn correct(&self, ino: u64, attributes: &FileAttributes, flags: i32) -> Result<(), Errno> {
        let belief = self.inodes.belief(ino, inodes::version(attributes));
        if belief == Belief::Good {
            return Ok(());
        }
        if let Some(notifier) = self.notifier.get()
            // A negative offset is about attributes only: no page is waited for.
            && let Err(error) = notifier.inval_inode(ino, -1, 0)
        {
            tracing::debug!(%error, "the kernel keeps old attributes for a second");
        }
        let appends = flags & libc::O_APPEND != 0;
        if appends && belief == Belief::OtherLength && self.inodes.may_refuse(ino) {
            // Before it reads, the kernel now asks; before it appends, it does not. But it looks
            // the name up again and repeats the opening after this error.
            return Err(Errno::ESTALE);
        }
        Ok(())
    }

    /// Makes a file, if there is none of that name, and opens it.
    pub(crate) fn create(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(Attributes, Opened), Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let exclusive = flags & libc::O_EXCL != 0;
        let made = self.clerk.create(&caller, dir, &name, mode & 0o7777, exclusive);
        let mut entry = made.map_err(|error| errno(&error))?;
        match entry.attributes.file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::EISDIR),
            // Somebody else has just made it; the kernel looks again, and follows or opens it.
            _ => return Err(Errno::ESTALE),
        }
        let ino = self.number(&caller, entry.handle);
        let open_mode = mode_of(flags);
        let opening = Opening::begin(self, ino, entry.handle, open_mode);
        if flags & libc::O_TRUNC != 0 && entry.attributes.size > 0 {
            entry.attributes = self.cut(&caller, &entry)?;
        }
        let (open, attributes) =
            self.clerk.open_known(&caller, &entry, open_mode).map_err(|error| errno(&error))?;
        let opened = self.opened(opening, (open, caller), &attributes, flags);
        self.inodes.remember(parent, name.as_bytes(), entry.handle);
        Ok((self.present(ino, &attributes), opened))
    }

    /// Somebody else has just made the file and written to it.
    fn cut(&self, caller: &Arc<Caller>, entry: &Entry) -> Result<FileAttributes, Errno> {
        let changes = SetFileAttributes { size: Some(0), ..SetFileAttributes::default() };
        let cut = self.clerk.setattr(caller, entry.handle, &changes);
        cut.map_err(|error| errno(&error))
    }

    fn opened(
        &self,
        mut opening: Opening<'_>,
        (open, caller): (OpenFile, Arc<Caller>),
        attributes: &FileAttributes,
        flags: i32,
    ) -> Opened {
        opening.made = true;
        let ino = opening.ino;
        let direct = flags & libc::O_DIRECT != 0 || self.data_path == DataPath::Direct;
        let mut answer = OpenedFlags::empty();
        if direct {
            answer |= OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES;
        } else if self.inodes.cache(ino, inodes::version(attributes)) {
            answer |= OpenedFlags::KEEP_CACHE;
        }
        if !opening.writes {
            // Closing it has nothing to tell.
            answer |= OpenedFlags::NOFLUSH;
        }
        let handle =
            self.files.insert(OpenedFile { ino, open, caller, direct, lockers: Mutex::default() });
        Opened { handle, flags: answer }
    }

    /// Takes all of `data`.
    pub(crate) fn write(
        &self,
        file: &OpenedFile,
        offset: u64,
        data: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        file.open.write(offset, data).map_err(|error| errno(&error))?;
        self.inodes.written(file.ino, offset.saturating_add(data.len() as u64));
        if file.direct && flags & (libc::O_DSYNC | libc::O_SYNC) != 0 {
            // For others, the kernel asks by itself.
            return file.sync();
        }
        Ok(())
    }

    /// Makes room for a part of a file, or frees it, or makes it zero; of fallocate(2).
    pub(crate) fn fallocate(
        &self,
        who: Who,
        file: &OpenedFile,
        asked: &Fallocate,
    ) -> Result<(), Errno> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        let end = asked.offset.checked_add(asked.length).ok_or(Errno::EFBIG)?;
        let caller = self.callers.get(who);
        let found = self.clerk.getattr_now(&caller, file.open.handle());
        let size = found.map_err(|error| errno(&error))?.size;
        let grows = asked.mode & KEEP == 0 && end > size;
        match asked.mode & !KEEP {
            libc::FALLOC_FL_ZERO_RANGE => punch(file, asked.offset, end.min(size))?,
            libc::FALLOC_FL_PUNCH_HOLE if asked.mode == PUNCH => {
                punch(file, asked.offset, end.min(size))?;
            }
            // Nothing is reserved, but what can't be there is refused.
            0 if end.saturating_sub(size) > 0 => self.check_room(who, end - size)?,
            0 => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
        if grows {
            // Unlike a change of length, this can't cut off what somebody appends meanwhile.
            file.open.write(end - 1, &[0]).map_err(|error| errno(&error))?;
        }
        self.inodes.written(file.ino, if grows { end } else { 0 });
        Ok(())
    }

    fn check_room(&self, who: Who, bytes: u64) -> Result<(), Errno> {
        let space = self.clerk.space(&self.callers.get(who)).map_err(|error| errno(&error))?;
        if bytes > space.free_bytes { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// What close does: everything written is durable, or the failure is told. A file that nobody
    /// can open again need not be durable.
    pub(crate) fn flush(&self, file: &OpenedFile, lock_owner: u64) -> Result<(), Errno> {
        self.end_locks_of(file, lock_owner);
        if self.inodes.is_hidden(file.ino) {
            return Ok(());
        }
        file.open.close().map_err(|error| errno(&error))
    }

    /// The last reference to an opening is gone.
    pub(crate) fn release(&self, number: u64) {
        let Some(file) = self.files.remove(number) else {
            return;
        };
        self.end_all_locks(&file);
        if self.inodes.end_open(file.ino, file.open.mode().write) {
            file.open.discard();
            self.remove_hidden(file.ino);
        }
    }
}
