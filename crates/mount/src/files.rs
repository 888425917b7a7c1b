//! Open files: reading, writing and making durable.
//!
//! The kernel's page cache is used, so that mmap and small reads are fast. Its pages are kept
//! from one opening to the next only when the file's length and modification time are the same as
//! when the pages were read (close-to-open consistency, as with NFS).

use std::cell::RefCell;
use std::ffi::OsStr;
use std::sync::Arc;

use nasd_clerk::{
    Caller, Entry, FileAttributes, FileHandle, FileType, OpenFile, OpenMode, SetFileAttributes,
};
use nasd_fuse::{Attributes, Errno, Opened, OpenedFlags};

use crate::DataPath;
use crate::attributes::errno;
use crate::callers::Who;
use crate::inodes::{self, Belief};
use crate::tree::{Tree, name_of};

thread_local! {
    /// Where reads are put together; it grows to the largest read.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A file as one `open` made it.
pub(crate) struct OpenedFile {
    pub(crate) ino: u64,
    pub(crate) open: OpenFile,
    /// Opened to go around the kernel's page cache.
    direct: bool,
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

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.open.sync().map_err(|error| errno(&error))
    }
}

impl Tree {
    /// Opens a file.
    pub(crate) fn open(&self, who: Who, ino: u64, flags: i32) -> Result<Opened, Errno> {
        let (handle, caller, mode) = (self.handle(ino)?, self.callers.get(who), mode_of(flags));
        let opening = Opening::begin(self, ino, handle, mode);
        let (open, attributes) =
            self.clerk.open(&caller, handle, mode).map_err(|error| errno(&error))?;
        self.correct(ino, &attributes, flags)?;
        Ok(self.opened(opening, open, &attributes, flags))
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
            // Somebody else has just made it; the kernel looks again and follows it.
            FileType::Symlink => return Err(Errno::ESTALE),
        }
        let ino = self.number(&caller, entry.handle);
        let open_mode = mode_of(flags);
        let opening = Opening::begin(self, ino, entry.handle, open_mode);
        if flags & libc::O_TRUNC != 0 && entry.attributes.size > 0 {
            entry.attributes = self.cut(&caller, &entry)?;
        }
        let (open, attributes) =
            self.clerk.open_known(&caller, &entry, open_mode).map_err(|error| errno(&error))?;
        let opened = self.opened(opening, open, &attributes, flags);
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
        open: OpenFile,
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
        let handle = self.files.insert(OpenedFile { ino, open, direct });
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

    /// What close does: everything written is durable, or the failure is told. A file that nobody
    /// can open again need not be durable.
    pub(crate) fn flush(&self, file: &OpenedFile) -> Result<(), Errno> {
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
        if self.inodes.end_open(file.ino, file.open.mode().write) {
            file.open.discard();
            self.remove_hidden(file.ino);
        }
    }
}
