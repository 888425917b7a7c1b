//! What the kernel calls. Nothing is done here: each request is given to `dispatch`, and the
//! outcome to the kernel.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::attributes::{Changes, nothing};
use crate::callers::Who;
use crate::dispatch::{Dispatcher, Lane};
use crate::files::OpenedFile;
use crate::tree::Tree;
use crate::work_pool::run_guarded;

/// How long the kernel may believe names and attributes.
const TTL: Duration = Duration::from_secs(1);

/// How long the kernel may believe that there is no such name.
const NEGATIVE_TTL: Duration = Duration::from_millis(100);

/// Largest request for data, in bytes.
const MAX_IO_BYTES: u32 = 1 << 20;

/// Read-ahead and other requests that no program waits for in person, at the same time. Many,
/// because those for a drive that is away must not hold up those for the others.
const MAX_BACKGROUND: u16 = 1024;

/// Longest name, in bytes.
const MAX_NAME_BYTES: u32 = 255;

/// Abilities of the kernel that are used where it has them.
const WANTED: [InitFlags; 4] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

/// The kernel's counterpart.
pub(crate) struct VolumeFilesystem {
    pub(crate) tree: Arc<Tree>,
    pub(crate) dispatcher: Arc<Dispatcher>,
}

fn who(request: &Request) -> Who {
    Who { uid: request.uid(), gid: request.gid() }
}

fn answer_entry(reply: ReplyEntry, outcome: Result<FileAttr, Errno>) {
    match outcome {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn answer_attr(reply: ReplyAttr, outcome: Result<FileAttr, Errno>) {
    match outcome {
        Ok(attr) => reply.attr(&TTL, &attr),
        Err(error) => reply.error(error),
    }
}

fn answer_empty(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn answer_read(reply: ReplyData, file: &OpenedFile, offset: u64, size: u32) {
    let mut reply = Some(reply);
    let outcome = file.read(offset, size, |data| {
        if let Some(reply) = reply.take() {
            reply.data(data);
        }
    });
    if let (Err(error), Some(reply)) = (outcome, reply) {
        reply.error(error);
    }
}

fn answer_write(reply: ReplyWrite, outcome: Result<(), Errno>, length: usize) {
    match outcome {
        // Requests are far shorter than 4 GiB.
        Ok(()) => reply.written(length as u32),
        Err(error) => reply.error(error),
    }
}

impl VolumeFilesystem {
    /// Runs an operation on names.
    fn on_names(&self, job: impl FnOnce(&Arc<Tree>) + Send + 'static) {
        let tree = Arc::clone(&self.tree);
        self.dispatcher.run(Lane::Names, move || job(&tree));
    }

    /// Runs an operation on a file's data or attributes.
    fn on_file(&self, ino: INodeNo, job: impl FnOnce(&Arc<Tree>) + Send + 'static) {
        let tree = Arc::clone(&self.tree);
        self.dispatcher.run(self.tree.lane(ino.0), move || job(&tree));
    }

    /// Runs an operation on an open file; without one, `job` answers that.
    fn on_open_file(
        &self,
        fh: FileHandle,
        job: impl FnOnce(&Arc<Tree>, Result<&OpenedFile, Errno>) + Send + 'static,
    ) {
        let tree = Arc::clone(&self.tree);
        let Some(file) = tree.files.get(fh.0) else {
            return job(&tree, Err(Errno::EBADF));
        };
        let lane = Lane::Drive(file.open.handle().drive);
        self.dispatcher.run(lane, move || job(&tree, Ok(&file)));
    }
}

impl Filesystem for VolumeFilesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if config.add_capabilities(flag).is_err() {
                tracing::debug!(?flag, "the kernel can't do this");
            }
        }
        // Each of these tells the nearest value that would do, and keeps the old one.
        let _ = config.set_max_write(MAX_IO_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (who, name) = (who(request), name.to_owned());
        self.on_names(move |tree| match tree.lookup(who, parent.0, &name) {
            Ok(Some(attr)) => reply.entry(&TTL, &attr, Generation(0)),
            Ok(None) => reply.entry(&NEGATIVE_TTL, &nothing(), Generation(0)),
            Err(error) => reply.error(error),
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.tree.inodes.forget(ino.0, count);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let who = who(request);
        self.on_file(ino, move |tree| answer_attr(reply, tree.getattr(who, ino.0)));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        access_time: Option<TimeOrNow>,
        modify_time: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let who = who(request);
        let changes = Changes { mode, uid, gid, size, access_time, modify_time };
        self.on_file(ino, move |tree| answer_attr(reply, tree.setattr(who, ino.0, changes)));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let who = who(request);
        self.on_file(ino, move |tree| match tree.readlink(who, ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let (who, name) = (who(request), name.to_owned());
        self.on_names(move |tree| {
            answer_entry(reply, tree.mknod(who, parent.0, &name, mode));
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (who, name) = (who(request), name.to_owned());
        self.on_names(move |tree| {
            answer_entry(reply, tree.mkdir(who, parent.0, &name, mode));
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (who, name) = (who(request), name.to_owned());
        self.on_names(move |tree| answer_empty(reply, tree.unlink(who, parent.0, &name)));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (who, name) = (who(request), name.to_owned());
        self.on_names(move |tree| answer_empty(reply, tree.rmdir(who, parent.0, &name)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (who, name, target) = (who(request), name.to_owned(), target.as_os_str().to_owned());
        self.on_names(move |tree| {
            answer_entry(reply, tree.symlink(who, parent.0, &name, &target));
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (who, name, new_name) = (who(request), name.to_owned(), new_name.to_owned());
        self.on_names(move |tree| {
            let (from, to) = ((parent.0, &*name), (new_parent.0, &*new_name));
            answer_empty(reply, tree.rename(who, from, to, flags));
        });
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (who, name) = (who(request), new_name.to_owned());
        self.on_names(move |tree| {
            answer_entry(reply, tree.link(who, ino.0, new_parent.0, &name));
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let who = who(request);
        self.on_file(ino, move |tree| match tree.open(who, ino.0, flags) {
            Ok(opened) => reply.opened(FileHandle(opened.number), opened.flags),
            Err(error) => reply.error(error),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (who, name, flags) = (who(request), name.to_owned(), OpenFlags(flags));
        self.on_names(move |tree| match tree.create(who, parent.0, &name, mode, flags) {
            Ok((attr, opened)) => {
                let number = FileHandle(opened.number);
                reply.created(&TTL, &attr, Generation(0), number, opened.flags);
            }
            Err(error) => reply.error(error),
        });
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.on_open_file(fh, move |_, file| match file {
            Ok(file) => answer_read(reply, file, offset, size),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.tree.files.get(fh.0) else {
            return reply.error(Errno::EBADF);
        };
        if let Some(_permit) = self.dispatcher.enter() {
            // Here the data need not be copied once more.
            return run_guarded(|| {
                let written = self.tree.write(&file, offset, data, flags);
                answer_write(reply, written, data.len());
            });
        }
        let (tree, data) = (Arc::clone(&self.tree), data.to_vec());
        let write = move || {
            let written = tree.write(&file, offset, &data, flags);
            answer_write(reply, written, data.len());
        };
        self.dispatcher.submit(self.tree.lane(ino.0), Box::new(write));
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.on_open_file(fh, move |tree, file| {
            answer_empty(reply, file.and_then(|file| tree.flush(file)));
        });
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.on_open_file(fh, move |_, file| {
            answer_empty(reply, file.and_then(OpenedFile::sync));
        });
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
        if self.tree.inodes.is_hidden(ino.0) {
            self.on_names(move |tree| tree.release(fh.0));
        } else {
            self.on_file(ino, move |tree| tree.release(fh.0));
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.tree.opendir(who(request), ino.0) {
            Ok(number) => reply.opened(FileHandle(number), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(directory) = self.tree.directories.get(fh.0) else {
            return reply.error(Errno::EBADF);
        };
        self.on_names(move |tree| match tree.readdir(&directory, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.tree.directories.remove(fh.0);
        reply.ok();
    }

    /// Names are durable when they are answered.
    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn statfs(&self, request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let who = who(request);
        self.on_names(move |tree| match tree.statfs(who) {
            Ok(room) => reply.statfs(
                room.blocks,
                room.free_blocks,
                room.free_blocks,
                room.files.saturating_add(room.free_blocks),
                room.free_blocks,
                room.block_bytes,
                MAX_NAME_BYTES,
                room.block_bytes,
            ),
            Err(error) => reply.error(error),
        });
    }

    /// There are no extended attributes; the kernel asks once.
    fn getxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
