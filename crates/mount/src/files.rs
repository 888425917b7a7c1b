//! Open files: reading, writing and making durable.
//!
//! The kernel's page cache is used for reading, so that mmap and small reads are fast. Its pages are kept
//! from one opening to the next only when the file's length and modification time are the same as
//! when the pages were read (close-to-open consistency, as with NFS). Who opens a file for writing alone goes
//! around it (`docs/decisions/0012-reads-are-cached-writes-are-not.md`).

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use nasd_clerk::{
    Caller, Entry, FileAttributes, FileHandle, FileRange, FileType, LockKind, NewMode, OpenFile,
    OpenMode, SeekTarget, SetFileAttributes,
};
use nasd_fuse::{Errno, Fallocate, Opened, OpenedFlags, Write, WriteFlags};
use nasd_types::ByteRange;

use crate::DataPath;
use crate::attributes::errno;
use crate::callers::Who;
use crate::hint_streams::StreamOfHints;
use crate::inodes::{self, PagesHeld};
use crate::names::Told;
use crate::pages::ON_ITS_WAY;
use crate::state::KnownOpening;
use crate::tree::{Tree, name_of, permissions};

thread_local! {
    /// Where reads are put together; it grows to the largest read.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file as one `open` made it.
pub(crate) struct OpenedFile {
    pub(crate) ino: u64,
    pub(crate) open: OpenFile,
    /// Who opened it.
    pub(crate) caller: Arc<Caller>,
    /// Opened to go around the kernel's page cache.
    direct: bool,
    /// From before it was known to whoever opened it.
    pub(crate) since: Instant,
    /// Reading by it moves the file's access time (there is no `O_NOATIME`).
    moves_time: bool,
    /// Something was read by it.
    was_read: AtomicBool,
    /// The revision of the file that was found, or made, to be without `security.capability`; 0 for none.
    pub(crate) unprivileged: AtomicU64,
    /// Who has taken locks by it.
    pub(crate) lockers: Mutex<HashSet<(LockKind, u64)>>,
    pub(crate) hints: StreamOfHints,
    /// Pages that the kernel may have for it.
    pub(crate) pages: PagesHeld,
    /// Whoever has it may write past the mount.
    pub(crate) may_write_past: AtomicBool,
    /// Held by who asks whether he may.
    pub(crate) asking_to_write_past: Mutex<()>,
    /// The kernel may have had all of the file when it was opened.
    is_in_pages: bool,
}

/// Counts an opening from before it is made, so that the file is not removed meanwhile.
pub(crate) struct Opening<'a> {
    tree: &'a Tree,
    ino: u64,
    handle: FileHandle,
    mode: OpenMode,
    made: bool,
}

impl<'a> Opening<'a> {
    pub(crate) fn begin(tree: &'a Tree, ino: u64, handle: FileHandle, mode: OpenMode) -> Self {
        tree.inodes.begin_open(ino, handle, mode);
        Opening { tree, ino, handle, mode, made: false }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.made && self.tree.inodes.end_open(self.ino, self.mode) {
            self.tree.clerk.closed(self.handle);
        }
    }
}

pub(crate) fn mode_of(flags: i32) -> OpenMode {
    match flags & libc::O_ACCMODE {
        libc::O_WRONLY => OpenMode::WRITE,
        libc::O_RDWR => OpenMode::READ_WRITE,
        _ => OpenMode::READ,
    }
}

/// Whether reads and writes by an opening go around the page cache.
fn goes_around(flags: i32, may_be_mapped: bool) -> bool {
    let writes_only = flags & libc::O_ACCMODE == libc::O_WRONLY;
    // What is appended has no place that the kernel could know, and so no page. What is only written needs none,
    // but pages that somebody may be writing to must not come to the drive after it with what they had before.
    flags & (libc::O_DIRECT | libc::O_APPEND) != 0 || (writes_only && !may_be_mapped)
}

/// Whether the bytes go where the file ends, and not where the kernel thinks that it does: other clients
/// may have written since it was told. What comes from pages that were mapped has its place.
fn is_append(write: &Write) -> bool {
    write.flags & libc::O_APPEND != 0 && !write.write_flags.contains(WriteFlags::CACHE)
}

impl OpenedFile {
    fn new(
        ino: u64,
        (open, caller): (OpenFile, Arc<Caller>),
        (direct, pages): (bool, PagesHeld),
        moves_time: bool,
    ) -> Self {
        let (was_read, lockers) = (AtomicBool::new(false), Mutex::default());
        let unprivileged = AtomicU64::new(0);
        OpenedFile {
            ino,
            open,
            caller,
            direct,
            since: Instant::now(),
            moves_time,
            was_read,
            unprivileged,
            lockers,
            hints: StreamOfHints::default(),
            pages,
            may_write_past: AtomicBool::new(false),
            asking_to_write_past: Mutex::default(),
            is_in_pages: false,
        }
    }

    /// Whether reads and writes by it go around the kernel's page cache.
    pub(crate) fn goes_around_the_cache(&self) -> bool {
        self.direct
    }

    /// Whether the kernel has the bytes of a write in a page, and so nobody may wait for the page here. What was
    /// mapped by an opening is written by it, though it goes around the cache otherwise.
    pub(crate) fn is_about_pages(&self, write: &Write) -> bool {
        !self.direct || write.write_flags.contains(WriteFlags::CACHE)
    }

    /// Whether the bytes of a write were put into pages on their way from a program.
    pub(crate) fn goes_through_pages(&self, write: &Write) -> bool {
        !self.direct && !write.write_flags.contains(WriteFlags::CACHE)
    }

    /// Whether the bytes of a write are in pages where the kernel thought that the file ends: an opening that goes
    /// through the page cache was made to append afterwards (fcntl(2)).
    pub(crate) fn misplaces_pages(&self, write: &Write) -> bool {
        is_append(write) && !self.direct
    }

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
        self.correct(ino, &attributes);
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
        let mut opening = Opening::begin(self, ino, handle, mode);
        let opened = self.clerk.open(&caller, handle, mode);
        let opened = opened.or_else(|_| self.clerk.open(&self.root, handle, mode));
        let (open, _) = opened.map_err(|error| errno(&error))?;
        opening.made = true;
        let told = self.inodes.tell_open(ino, mode, known.direct);
        let mut file = OpenedFile::new(ino, (open, caller), told, true);
        // Its writes may have met with what the process before did.
        file.since = file.since.checked_sub(ON_ITS_WAY).unwrap_or(file.since);
        self.files.insert_at(known.number, file);
        Ok(())
    }

    /// The kernel believes attributes that are up to a second old; who opens a file must see what
    /// others had written and closed before.
    pub(crate) fn correct(&self, ino: u64, attributes: &FileAttributes) {
        if !self.inodes.is_believed(ino, inodes::version(attributes))
            && let Some(notifier) = self.notifier.get()
            // A negative offset is about attributes only: no page is waited for.
            && let Err(error) = notifier.inval_inode(ino, -1, 0)
        {
            tracing::debug!(%error, "the kernel keeps old attributes for a second");
        }
    }

    /// Makes a file, if there is none of that name, and opens it.
    pub(crate) fn create(
        &self,
        who: Who,
        parent: u64,
        name: &OsStr,
        mode: NewMode,
        flags: i32,
    ) -> Result<(Told, Opened), Errno> {
        let (dir, name, caller) = (self.handle(parent)?, name_of(name)?, self.callers.get(who));
        let exclusive = flags & libc::O_EXCL != 0;
        let made = match mode_of(flags).write {
            true => self.clerk.create_to_store(&caller, dir, &name, permissions(mode), exclusive),
            false => self.clerk.create(&caller, dir, &name, permissions(mode), exclusive),
        };
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
        let attributes = self.present(ino, &attributes);
        Ok((Told::now(attributes, entry.age, entry.belief), opened))
    }

    /// Somebody else has just made the file and written to it.
    fn cut(&self, caller: &Arc<Caller>, entry: &Entry) -> Result<FileAttributes, Errno> {
        let changes = SetFileAttributes { size: Some(0), ..SetFileAttributes::default() };
        let cut = self.clerk.setattr(caller, entry.handle, &changes);
        cut.map_err(|error| errno(&error))
    }

    pub(crate) fn opened(
        &self,
        mut opening: Opening<'_>,
        (open, caller): (OpenFile, Arc<Caller>),
        attributes: &FileAttributes,
        flags: i32,
    ) -> Opened {
        opening.made = true;
        let ino = opening.ino;
        let may_be_mapped = self.inodes.may_be_mapped_for_writing(ino);
        let direct = self.data_path == DataPath::Direct || goes_around(flags, may_be_mapped);
        let (direct, pages) = self.inodes.tell_open(ino, opening.mode, direct);
        let has_pages = pages.may_be();
        let version = inodes::version(attributes);
        let mut is_in_pages = !direct && self.inodes.may_have_pages_of(ino, version);
        match !direct && opening.mode == OpenMode::READ {
            true => is_in_pages |= self.ready_pages(ino, version, &open),
            false => self.forget_older_pages(ino, version, has_pages),
        }
        // Those that are left are good; also those that mappings have beside an opening around the cache.
        let mut answer = OpenedFlags::KEEP_CACHE;
        if direct {
            answer |= OpenedFlags::DIRECT_IO;
        }
        if self.data_path == DataPath::Direct || flags & libc::O_DIRECT != 0 {
            // Openings that go through the page cache wait until such writes are done.
            answer |= OpenedFlags::PARALLEL_DIRECT_WRITES;
        }
        if !opening.mode.write {
            // Closing it has nothing to tell.
            answer |= OpenedFlags::NOFLUSH;
        }
        let moves_time = flags & libc::O_NOATIME == 0;
        let mut file = OpenedFile::new(ino, (open, caller), (direct, pages), moves_time);
        file.is_in_pages = is_in_pages;
        let handle = self.files.insert(file);
        Opened { handle, flags: answer }
    }

    /// Takes all of `data`. Whoever reads through the page cache sees it when this returns.
    pub(crate) fn write(&self, file: &OpenedFile, write: &Write, data: &[u8]) -> Result<(), Errno> {
        let end = write.offset.saturating_add(data.len() as u64);
        if file.direct && write.write_flags.contains(WriteFlags::CACHE) {
            self.inodes.note_mapping(file.ino, &file.pages);
        }
        if write.write_flags.contains(WriteFlags::KILL_SUIDGID) {
            self.drop_set_ids(file)?;
        }
        if file.direct {
            self.drop_capability(file)?;
        }
        if is_append(write) {
            file.open.append(data).map_err(|error| errno(&error))?;
        } else {
            file.open.write(write.offset, data).map_err(|error| errno(&error))?;
        }
        self.inodes.written(file.ino, end);
        if file.is_about_pages(write) {
            return Ok(());
        }
        if self.inodes.is_open_twice(file.ino) {
            // A page that somebody reads meanwhile by another opening must not stay without this.
            self.forget_pages(file.ino, write.offset, data.len() as u64);
        }
        if write.flags & (libc::O_DSYNC | libc::O_SYNC) != 0 {
            // For others, the kernel asks by itself.
            return file.sync();
        }
        Ok(())
    }

    /// Reserves room for a part of a file, or frees it, or makes it zero; of fallocate(2).
    pub(crate) fn fallocate(
        &self,
        who: Who,
        file: &OpenedFile,
        asked: &Fallocate,
    ) -> Result<(), Errno> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
        let end = asked.offset.checked_add(asked.length).ok_or(Errno::EFBIG)?;
        if who.uid != 0 {
            self.drop_set_ids(file)?;
        }
        let caller = self.callers.get(who);
        let reserve = Some(FileRange { offset: asked.offset, length: asked.length });
        let reserve = SetFileAttributes { reserve, ..SetFileAttributes::default() };
        let reserve = || self.clerk.setattr(&caller, file.open.handle(), &reserve);
        let found = self.clerk.getattr_now(&caller, file.open.handle());
        let size = found.map_err(|error| errno(&error))?.size;
        let grows = asked.mode & KEEP == 0 && end > size;
        match asked.mode & !KEEP {
            libc::FALLOC_FL_ZERO_RANGE => {
                punch(file, asked.offset, end.min(size))?;
                reserve().map_err(|error| errno(&error))?;
            }
            libc::FALLOC_FL_PUNCH_HOLE if asked.mode == PUNCH => {
                punch(file, asked.offset, end.min(size))?;
            }
            0 => drop(reserve().map_err(|error| errno(&error))?),
            _ => return Err(Errno::EOPNOTSUPP),
        }
        if grows {
            // Unlike a change of length, this can't cut off what somebody appends meanwhile.
            file.open.write(end - 1, &[0]).map_err(|error| errno(&error))?;
        }
        self.inodes.written(file.ino, if grows { end } else { 0 });
        Ok(())
    }

    /// Copies from file to file at their drive; of copy_file_range(2). Where that can't be done, the kernel
    /// reads and writes. It has written its pages of both, and drops those of the target.
    pub(crate) fn copy_range(
        &self,
        who: Who,
        (source, source_offset): (&OpenedFile, u64),
        (target, offset): (&OpenedFile, u64),
        length: u64,
    ) -> Result<u64, Errno> {
        if who.uid != 0 {
            self.drop_set_ids(target)?;
        }
        self.drop_capability(target)?;
        self.read_by(source);
        let copied = target.open.copy_range(offset, (&source.open, source_offset), length);
        let copied = copied.map_err(|error| errno(&error))?;
        self.inodes.written(target.ino, offset.saturating_add(copied));
        Ok(copied)
    }

    /// The kernel reads by an opening, for whom it says; it does not for pages.
    pub(crate) fn note_pages_read(&self, file: &OpenedFile, reader: Option<u64>) {
        if file.direct && reader.is_none() {
            self.inodes.note_mapping(file.ino, &file.pages);
        }
    }

    /// A file is being read by an opening.
    pub(crate) fn read_by(&self, file: &OpenedFile) {
        file.was_read.store(true, Ordering::Relaxed);
        if file.moves_time {
            self.was_read(file.ino, file.open.handle(), &file.caller);
        }
    }

    /// What close does: everything written is durable, or the failure is told. A file that nobody
    /// can open again need not be durable.
    pub(crate) fn flush(&self, file: &OpenedFile, lock_owner: u64) -> Result<(), Errno> {
        self.end_locks_of(file, lock_owner);
        if self.inodes.is_nameless(file.ino) {
            return Ok(());
        }
        file.open.close().map_err(|error| errno(&error))
    }

    /// The last reference to an opening is gone.
    pub(crate) fn release(&self, number: u64) {
        let Some(file) = self.files.remove(number) else {
            return;
        };
        self.end_bulk_way(&file);
        // Before what may take its time: others wait for that.
        self.inodes.end_told(file.ino, &file.pages);
        self.end_all_locks(&file);
        let mode = file.open.mode();
        if mode.read && !mode.write && !file.was_read.load(Ordering::Relaxed) {
            // The kernel had all the pages that were wanted.
            self.read_by(&file);
            if file.is_in_pages {
                file.open.note_had_elsewhere();
            }
        }
        if self.inodes.end_open(file.ino, mode) {
            file.open.discard();
            self.clerk.closed(file.open.handle());
        }
    }
}
