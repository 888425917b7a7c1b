//! What the kernel calls. Nothing is done here: each request is given to `dispatch`, and the
//! outcome to the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use nasd_clerk::NewMode;
use nasd_fuse::{
    Attributes, AttributesFor, Bytes, Context, CopyFileRange, CopyReply, Created, Directory, Done,
    Entry, Errno, Fallocate, Filesystem, InitFlags, Ioctl, IoctlAnswer, Listing, Lock, LockFound,
    NewName, Offset, Opened, OpenedFlags, Payload, Read, Release, Reply, SetAttributes, StatFs,
    Statx, StatxAsked, Wanted, Write, Written, Xattr,
};

use crate::attributes::Changes;
use crate::bulk_ways;
use crate::callers::Who;
use crate::dispatch::{Dispatcher, Lane};
use crate::files::OpenedFile;
use crate::forest::{Branch, Forest};
use crate::hint_streams;
use crate::inodes;
use crate::interrupts::Interrupter;
use crate::names::{Told, tell_mounted};
use crate::pages;
use crate::tree::{Found, MountPoint, Tree};
use crate::work_pool::run_guarded;

/// Largest request for data, in bytes.
const MAX_IO_BYTES: u32 = 1 << 20;

/// Read-ahead and other requests that no program waits for in person, at the same time. Many,
/// because those for a drive that is away must not hold up those for the others.
const MAX_BACKGROUND: u16 = 1024;

/// Longest name, in bytes.
const MAX_NAME_BYTES: u32 = 255;

/// What is wanted of the kernel, where it has it; whether there are callbacks.
pub(crate) fn wanted(has_callbacks: bool) -> Wanted {
    let mut flags = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::MAX_PAGES
        | InitFlags::INIT_EXT
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::ASYNC_DIO
        | InitFlags::POSIX_LOCKS
        | InitFlags::FLOCK_LOCKS
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::DONT_MASK
        | InitFlags::POSIX_ACL
        | InitFlags::SETXATTR_EXT
        // Else the kernel asks for `security.capability` at each write.
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::DIRECT_IO_ALLOW_MMAP
        | InitFlags::HAS_EXPIRE_ONLY
        | InitFlags::HAS_RESEND;
    if has_callbacks {
        // Who reads looks at the attributes first, and they are believed until we say otherwise.
        flags |= InitFlags::AUTO_INVAL_DATA;
        // Names are believed as long; but those that come with a listing are believed from when it is read, and not from when
        // it was asked for.
        flags -= InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO;
    }
    Wanted { flags, max_write: MAX_IO_BYTES, max_background: MAX_BACKGROUND }
}

/// The kernel's counterpart.
pub(crate) struct VolumeFilesystem {
    forest: Arc<Forest>,
    interrupter: Interrupter,
}

/// The volume that a request is about; where there is none any more, it is answered, and the method returns.
macro_rules! branch_of {
    ($self:ident, $node:expr, $reply:ident) => {
        match $self.forest.branch($node) {
            Ok(branch) => branch,
            Err(error) => return $reply.error(error),
        }
    };
}

fn who(context: &Context) -> Who {
    Who { uid: context.uid, gid: context.gid, thread: context.pid, exact: false }
}

fn new_mode(new: &NewName<'_>) -> NewMode {
    NewMode { mode: new.mode, umask: new.umask }
}

/// Tells the kernel of a file by its name.
fn answer_entry(tree: &Tree, reply: Reply<Entry>, told: Result<Told, Errno>) {
    match told {
        Ok(told) => tree.tell_name(&told, |entry| reply.send(Ok(entry))),
        Err(error) => {
            tree.doubt_names(error);
            reply.error(error);
        }
    }
}

/// Tells the kernel of a file that was made and opened.
fn answer_created(tree: &Tree, reply: Reply<Created>, made: Result<(Told, Opened), Errno>) {
    match made {
        Ok((told, opened)) => {
            tree.tell_name(&told, |entry| reply.send(Ok(Created { entry, opened })));
        }
        Err(error) => {
            tree.doubt_names(error);
            reply.error(error);
        }
    }
}

fn answer_attributes(tree: &Tree, reply: Reply<AttributesFor>, outcome: Result<Attributes, Errno>) {
    reply.send(outcome.map(|attributes| AttributesFor {
        valid: tree.attributes_valid(&attributes),
        attributes: tree.as_shown(attributes),
    }));
}

/// Where a write waits.
fn lane_of(file: &OpenedFile, write: &Write) -> Lane {
    let drive = file.open.handle().drive;
    match (file.goes_through_pages(write), file.is_about_pages(write)) {
        (true, _) => Lane::Writes(drive),
        (false, true) => Lane::Pages(drive),
        (false, false) => Lane::Drive(drive),
    }
}

fn answer_read(reply: Reply<Bytes>, file: &OpenedFile, offset: u64, size: u32) {
    let mut reply = Some(reply);
    let outcome = file.read(offset, size, |data| {
        if let Some(reply) = reply.take() {
            reply.bytes(data);
        }
    });
    if let (Err(error), Some(reply)) = (outcome, reply) {
        reply.error(error);
    }
}

/// Executes a write, and answers it.
fn execute_write(
    tree: &Arc<Tree>,
    dispatcher: &Dispatcher,
    file: &OpenedFile,
    (write, data, arrived): (&Write, &[u8], Instant),
    reply: Reply<Written>,
) {
    let taken = tree.write(file, write, data);
    if file.goes_through_pages(write) {
        pages::renew_written(tree, dispatcher, file, (write, arrived));
    }
    reply.send(taken.map(|()| Written(write.size)));
    if file.misplaces_pages(write) {
        pages::place_appended(tree, dispatcher, file, write);
    }
}

/// Tells the kernel of the root of another volume, by the name of a mount point in a directory.
fn answer_mount_point(
    forest: &Arc<Forest>,
    (branch, who): (&Arc<Branch>, Who),
    (dir, name, point): (u64, &OsStr, &MountPoint),
    reply: Reply<Entry>,
) {
    let (entering, root) = match forest.walk_over(branch, who, (dir, point)) {
        Ok(entered) => entered,
        Err(error) => return reply.error(error),
    };
    let (outer, inner, name) = (&branch.tree, &entering.0.tree, name.as_bytes());
    let number = inner.inodes.remember(dir, name, inner.clerk.root());
    outer.inodes.remember_mount_point(dir, name, number);
    tell_mounted((outer, point), (inner, &root), |entry| reply.send(Ok(entry)));
}

impl VolumeFilesystem {
    /// Volumes that nobody asks for anything yet.
    pub(crate) fn new(forest: Arc<Forest>) -> Self {
        VolumeFilesystem { forest, interrupter: Interrupter::default() }
    }

    /// Runs an operation on names.
    fn on_names(
        &self,
        context: &Context,
        branch: &Arc<Branch>,
        job: impl FnOnce(&Arc<Tree>) + Send + 'static,
    ) {
        self.on_lane(context, (branch, Lane::Names), job);
    }

    /// Runs an operation on a file's data or attributes.
    fn on_file(
        &self,
        context: &Context,
        (branch, node): (&Arc<Branch>, u64),
        job: impl FnOnce(&Arc<Tree>) + Send + 'static,
    ) {
        self.on_lane(context, (branch, branch.tree.lane(node)), job);
    }

    fn on_lane(
        &self,
        context: &Context,
        (branch, lane): (&Arc<Branch>, Lane),
        job: impl FnOnce(&Arc<Tree>) + Send + 'static,
    ) {
        let tree = Arc::clone(&branch.tree);
        let interruption = self.interrupter.interruptible(context);
        branch.dispatcher.run(lane, move || interruption.run(|| job(&tree)));
    }

    /// Runs an operation on an open file.
    fn on_open_file<T: 'static>(
        &self,
        context: &Context,
        (node, handle): (u64, u64),
        reply: Reply<T>,
        job: impl FnOnce(&Arc<Tree>, &OpenedFile, Reply<T>) + Send + 'static,
    ) {
        let branch = branch_of!(self, node, reply);
        let Some(file) = branch.tree.files.get(handle) else {
            return reply.error(Errno::EBADF);
        };
        let lane = Lane::Drive(file.open.handle().drive);
        self.on_lane(context, (&branch, lane), move |tree| job(tree, &file, reply));
    }

    /// Runs an operation that makes an entry.
    fn make(
        &self,
        context: &Context,
        node: u64,
        reply: Reply<Entry>,
        job: impl Fn(&Arc<Tree>, Who) -> Result<Told, Errno> + Send + 'static,
    ) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_names(context, &branch, move |tree| {
            answer_entry(tree, reply, tree.with_groups(who, |who| job(tree, who)));
        });
    }

    /// Runs an operation on names that has no result.
    fn change(
        &self,
        context: &Context,
        node: u64,
        reply: Reply<Done>,
        job: impl Fn(&Arc<Tree>, Who) -> Result<(), Errno> + Send + 'static,
    ) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_names(context, &branch, move |tree| {
            let done = tree.with_groups(who, |who| job(tree, who));
            if let Err(error) = done {
                tree.doubt_names(error);
            }
            reply.send(done.map(|()| Done));
        });
    }
}

impl Filesystem for VolumeFilesystem {
    fn lookup(&self, context: &Context, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        let (who, name, branch) = (who(context), name.to_owned(), branch_of!(self, parent, reply));
        let (forest, from) = (Arc::clone(&self.forest), Arc::clone(&branch));
        self.on_names(context, &branch, move |tree| {
            match tree.with_groups(who, |who| tree.lookup(who, parent, &name)) {
                Ok(Found::File(told)) => answer_entry(tree, reply, Ok(told)),
                Ok(Found::MountPoint(point)) => {
                    answer_mount_point(&forest, (&from, who), (parent, &name, &point), reply);
                }
                Ok(Found::Nothing(absent)) => {
                    tree.tell_absent(absent, |entry| reply.send(Ok(entry)));
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn forget(&self, node: u64, count: u64) {
        if let Ok(branch) = self.forest.branch(node) {
            branch.tree.inodes.forget(node, count);
            self.forest.end_if_unused(node);
        }
    }

    fn get_attributes(
        &self,
        context: &Context,
        node: u64,
        _handle: Option<u64>,
        reply: Reply<AttributesFor>,
    ) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_file(context, (&branch, node), move |tree| {
            let found = tree.with_groups(who, |who| tree.getattr(who, node));
            answer_attributes(tree, reply, found);
        });
    }

    fn statx(&self, context: &Context, node: u64, _asked: StatxAsked, reply: Reply<Statx>) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_file(context, (&branch, node), move |tree| {
            let found = tree.with_groups(who, |who| tree.getattr(who, node));
            reply.send(found.map(|attributes| Statx {
                valid: tree.attributes_valid(&attributes),
                attributes: tree.as_shown(attributes),
            }));
        });
    }

    fn set_attributes(
        &self,
        context: &Context,
        node: u64,
        changes: SetAttributes,
        reply: Reply<AttributesFor>,
    ) {
        let (who, changes) = (who(context), Changes::from(changes));
        let branch = branch_of!(self, node, reply);
        let lane = match (branch.tree.lane(node), changes.size) {
            // Until its length is set, the kernel writes no page of the file.
            (Lane::Drive(drive), Some(_)) => Lane::Writes(drive),
            (lane, _) => lane,
        };
        self.on_lane(context, (&branch, lane), move |tree| {
            let changed = tree.with_groups(who, |who| tree.setattr(who, node, changes));
            answer_attributes(tree, reply, changed);
        });
    }

    fn read_link(&self, context: &Context, node: u64, reply: Reply<Bytes>) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_file(context, (&branch, node), move |tree| {
            match tree.with_groups(who, |who| tree.readlink(who, node)) {
                Ok(target) => reply.bytes(&target),
                Err(error) => reply.error(error),
            }
        });
    }

    fn make_node(&self, context: &Context, new: NewName<'_>, device: u32, reply: Reply<Entry>) {
        let (parent, mode, name) = (new.parent, new_mode(&new), new.name.to_owned());
        let device = (mode, device);
        self.make(context, parent, reply, move |tree, who| tree.mknod(who, parent, &name, device));
    }

    fn make_directory(&self, context: &Context, new: NewName<'_>, reply: Reply<Entry>) {
        let (parent, mode, name) = (new.parent, new_mode(&new), new.name.to_owned());
        self.make(context, parent, reply, move |tree, who| tree.mkdir(who, parent, &name, mode));
    }

    fn unlink(&self, context: &Context, parent: u64, name: &OsStr, reply: Reply<Done>) {
        let name = name.to_owned();
        self.change(context, parent, reply, move |tree, who| tree.unlink(who, parent, &name));
    }

    fn remove_directory(&self, context: &Context, parent: u64, name: &OsStr, reply: Reply<Done>) {
        let name = name.to_owned();
        self.change(context, parent, reply, move |tree, who| tree.rmdir(who, parent, &name));
    }

    fn symlink(&self, context: &Context, new: NewName<'_>, target: &OsStr, reply: Reply<Entry>) {
        let (parent, name) = (new.parent, new.name.to_owned());
        let target = target.to_owned();
        self.make(context, parent, reply, move |tree, who| {
            tree.symlink(who, parent, &name, &target)
        });
    }

    fn rename(
        &self,
        context: &Context,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
        reply: Reply<Done>,
    ) {
        let (from_name, to_name) = (from.1.to_owned(), to.1.to_owned());
        let (from, to) = (from.0, to.0);
        if inodes::tag(from) != inodes::tag(to) {
            return reply.error(Errno::EXDEV);
        }
        self.change(context, from, reply, move |tree, who| {
            tree.rename(who, (from, &from_name), (to, &to_name), flags)
        });
    }

    fn link(&self, context: &Context, node: u64, to: (u64, &OsStr), reply: Reply<Entry>) {
        let (parent, name) = (to.0, to.1.to_owned());
        if inodes::tag(node) != inodes::tag(parent) {
            return reply.error(Errno::EXDEV);
        }
        self.make(context, parent, reply, move |tree, who| tree.link(who, node, parent, &name));
    }

    fn open(&self, context: &Context, node: u64, flags: i32, reply: Reply<Opened>) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_file(context, (&branch, node), move |tree| {
            reply.send(tree.with_groups(who, |who| tree.open(who, node, flags)))
        });
    }

    fn create(&self, context: &Context, new: NewName<'_>, flags: i32, reply: Reply<Created>) {
        let (who, parent, name) = (who(context), new.parent, new.name.to_owned());
        let (mode, branch) = (new_mode(&new), branch_of!(self, parent, reply));
        self.on_names(context, &branch, move |tree| {
            let made = tree.with_groups(who, |who| tree.create(who, parent, &name, mode, flags));
            answer_created(tree, reply, made);
        });
    }

    fn tmpfile(&self, context: &Context, new: NewName<'_>, flags: i32, reply: Reply<Created>) {
        let (who, parent, mode) = (who(context), new.parent, new_mode(&new));
        let branch = branch_of!(self, parent, reply);
        self.on_names(context, &branch, move |tree| {
            let made = tree.with_groups(who, |who| tree.tmpfile(who, parent, mode, flags));
            let nameless = |(attributes, opened)| (Told::nameless(attributes), opened);
            answer_created(tree, reply, made.map(nameless));
        });
    }

    fn read(&self, context: &Context, node: u64, read: Read, reply: Reply<Bytes>) {
        let branch = branch_of!(self, node, reply);
        let Some(file) = branch.tree.files.get(read.handle) else {
            return reply.error(Errno::EBADF);
        };
        branch.tree.note_pages_read(&file, read.lock_owner);
        // What an opening that goes around the cache reads may be for a mapping's page.
        let lane = Lane::Pages(file.open.handle().drive);
        self.on_lane(context, (&branch, lane), move |tree| {
            tree.read_by(&file);
            answer_read(reply, &file, read.offset, read.size);
        });
    }

    fn write(
        &self,
        context: &Context,
        node: u64,
        write: Write,
        data: Payload<'_>,
        reply: Reply<Written>,
    ) {
        let branch = branch_of!(self, node, reply);
        let Some(file) = branch.tree.files.get(write.handle) else {
            return reply.error(Errno::EBADF);
        };
        let arrived = Instant::now();
        let interruption = self.interrupter.interruptible(context);
        if let Some(_permit) = branch.dispatcher.enter() {
            return run_guarded(|| {
                let (tree, dispatcher) = (&branch.tree, &branch.dispatcher);
                interruption.run(|| {
                    execute_write(tree, dispatcher, &file, (&write, &data, arrived), reply)
                });
            });
        }
        let (lane, data) = (lane_of(&file, &write), data.into_owned());
        let (tree, dispatcher) = (Arc::clone(&branch.tree), Arc::clone(&branch.dispatcher));
        let job = move || {
            interruption
                .run(|| execute_write(&tree, &dispatcher, &file, (&write, &data, arrived), reply));
        };
        branch.dispatcher.submit(lane, Box::new(job));
    }

    fn flush(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        lock_owner: u64,
        reply: Reply<Done>,
    ) {
        self.on_open_file(context, (node, handle), reply, move |tree, file, reply| {
            reply.send(tree.flush(file, lock_owner).map(|()| Done));
        });
    }

    fn get_lock(&self, context: &Context, node: u64, lock: Lock, reply: Reply<LockFound>) {
        let branch = branch_of!(self, node, reply);
        let file = branch.tree.files.get(lock.handle).ok_or(Errno::EBADF);
        self.on_names(context, &branch, move |tree| {
            reply.send(file.and_then(|file| tree.get_lock(&file, &lock)));
        });
    }

    fn set_lock(&self, context: &Context, node: u64, lock: Lock, wait: bool, reply: Reply<Done>) {
        let branch = branch_of!(self, node, reply);
        let file = branch.tree.files.get(lock.handle).ok_or(Errno::EBADF);
        let who = who(context);
        let set = move |tree: &Arc<Tree>| {
            let done = file.and_then(|file| {
                tree.with_groups(who, |who| tree.set_lock(who, &file, &lock, wait))
            });
            reply.send(done.map(|()| Done));
        };
        if !wait {
            return self.on_names(context, &branch, set);
        }
        // Whoever has the lock may need the other threads to be able to give it back.
        let tree = Arc::clone(&branch.tree);
        let interruption = self.interrupter.interruptible(context);
        let job = move || interruption.run(|| set(&tree));
        branch.dispatcher.submit(Lane::Locks, Box::new(job));
    }

    fn fsync(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        _data_only: bool,
        reply: Reply<Done>,
    ) {
        self.on_open_file(context, (node, handle), reply, move |_, file, reply| {
            reply.send(file.sync().map(|()| Done));
        });
    }

    fn release(&self, _context: &Context, node: u64, release: Release, reply: Reply<Done>) {
        reply.ok(&Done);
        let Ok(branch) = self.forest.branch(node) else {
            return;
        };
        let nameless = branch.tree.inodes.is_nameless(node);
        let lane = if nameless { Lane::Names } else { branch.tree.lane(node) };
        let (tree, forest) = (Arc::clone(&branch.tree), Arc::clone(&self.forest));
        branch.dispatcher.run(lane, move || {
            tree.release(release.handle);
            forest.end_if_unused(node);
        });
    }

    fn ioctl(
        &self,
        context: &Context,
        node: u64,
        ioctl: Ioctl,
        data: &[u8],
        reply: Reply<IoctlAnswer>,
    ) {
        let (who, data) = (who(context), data.to_vec());
        match ioctl.command {
            hint_streams::COMMAND => {}
            bulk_ways::WAY => {
                let opened = (node, ioctl.handle);
                return self.on_open_file(
                    context,
                    opened,
                    reply,
                    move |tree, file, reply| match tree.bulk_way(file, &data) {
                        Ok(way) => reply.result(0, &way),
                        Err(error) => reply.error(error),
                    },
                );
            }
            bulk_ways::CHANGED => {
                let opened = (node, ioctl.handle);
                return self.on_open_file(
                    context,
                    opened,
                    reply,
                    move |tree, file, reply| match tree.changed_by_bulk(file) {
                        Ok(()) => reply.result(0, &[]),
                        Err(error) => reply.error(error),
                    },
                );
            }
            _ => return reply.error(Errno::ENOTTY),
        }
        let answer = |reply: Reply<IoctlAnswer>, taken| match taken {
            Ok(taken) => reply.result(taken, &[]),
            Err(error) => reply.error(error),
        };
        if ioctl.flags & hint_streams::OF_A_DIRECTORY == 0 {
            let opened = (node, ioctl.handle);
            return self.on_open_file(context, opened, reply, move |tree, file, reply| {
                answer(reply, tree.hint_file(file, &data));
            });
        }
        let branch = branch_of!(self, node, reply);
        let Some(directory) = branch.tree.directories.get(ioctl.handle) else {
            return reply.error(Errno::EBADF);
        };
        self.on_names(context, &branch, move |tree| {
            answer(reply, tree.hint_directory(&directory, who, &data));
        });
    }

    fn fallocate(&self, context: &Context, node: u64, asked: Fallocate, reply: Reply<Done>) {
        let who = who(context);
        self.on_open_file(context, (node, asked.handle), reply, move |tree, file, reply| {
            reply.send(tree.fallocate(who, file, &asked).map(|()| Done));
        });
    }

    fn seek(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        from: (u64, u32),
        reply: Reply<Offset>,
    ) {
        self.on_open_file(context, (node, handle), reply, move |_, file, reply| {
            reply.send(file.seek(from.0, from.1).map(Offset));
        });
    }

    fn copy_file_range(&self, context: &Context, node: u64, copy: CopyFileRange, reply: CopyReply) {
        if inodes::tag(node) != inodes::tag(copy.to_node) {
            return reply.error(Errno::EXDEV);
        }
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        let (source, target) =
            (branch.tree.files.get(copy.handle), branch.tree.files.get(copy.to_handle));
        let (Some(source), Some(target)) = (source, target) else {
            return reply.error(Errno::EBADF);
        };
        let lane = Lane::Drive(source.open.handle().drive);
        self.on_lane(context, (&branch, lane), move |tree| {
            let (from, to) = ((&*source, copy.offset), (&*target, copy.to_offset));
            match tree.copy_range(who, from, to, copy.length) {
                Ok(bytes) => reply.ok(bytes),
                Err(error) => reply.error(error),
            }
        });
    }

    fn open_directory(&self, context: &Context, node: u64, _flags: i32, reply: Reply<Opened>) {
        let Branch { tree, .. } = &*branch_of!(self, node, reply);
        let opened = tree.opendir(who(context), node);
        // Where there are callbacks, the kernel keeps names as long as the directory's times are the same, of which it is told when they are not;
        // but it gives them to whoever the mode lets list the directory.
        let flags = match tree.may_keep_listing(node) && tree.kernel_looks {
            true => OpenedFlags::CACHE_DIR | OpenedFlags::KEEP_CACHE,
            false => OpenedFlags::empty(),
        };
        reply.send(opened.map(|handle| Opened { handle, flags }));
    }

    fn read_directory(&self, context: &Context, node: u64, read: Read, reply: Reply<Directory>) {
        let branch = branch_of!(self, node, reply);
        let Some(directory) = branch.tree.directories.get(read.handle) else {
            return reply.error(Errno::EBADF);
        };
        self.on_names(context, &branch, move |tree| {
            let mut listing = Listing::new(read.size);
            match tree.readdir(&directory, read.offset, &mut listing) {
                Ok(()) => reply.listing(&listing),
                Err(error) => reply.error(error),
            }
        });
    }

    fn read_directory_plus(
        &self,
        context: &Context,
        node: u64,
        read: Read,
        reply: Reply<Directory>,
    ) {
        let branch = branch_of!(self, node, reply);
        let Some(directory) = branch.tree.directories.get(read.handle) else {
            return reply.error(Errno::EBADF);
        };
        self.on_names(context, &branch, move |tree| {
            match tree.readdir_plus(&directory, read.offset, read.size) {
                Ok(files) => {
                    let mut listing = Listing::new(read.size);
                    tree.tell_names(|entry| {
                        files.tell(tree, &mut listing, entry);
                        reply.listing(&listing);
                    });
                }
                Err(error) => reply.error(error),
            }
        });
    }

    fn release_directory(
        &self,
        _context: &Context,
        node: u64,
        release: Release,
        reply: Reply<Done>,
    ) {
        if let Ok(branch) = self.forest.branch(node) {
            branch.tree.directories.remove(release.handle);
            self.forest.end_if_unused(node);
        }
        reply.ok(&Done);
    }

    fn fsync_directory(
        &self,
        context: &Context,
        node: u64,
        _handle: u64,
        _data_only: bool,
        reply: Reply<Done>,
    ) {
        let branch = branch_of!(self, node, reply);
        self.on_names(context, &branch, move |tree| reply.send(tree.commit().map(|()| Done)));
    }

    fn stat_fs(&self, context: &Context, node: u64, reply: Reply<StatFs>) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_names(context, &branch, move |tree| {
            reply.send(tree.statfs(who).map(|room| StatFs {
                blocks: room.blocks,
                free_blocks: room.free_blocks,
                available_blocks: room.free_blocks,
                files: room.files.saturating_add(room.free_files),
                free_files: room.free_files,
                block_bytes: room.block_bytes,
                name_bytes: MAX_NAME_BYTES,
            }));
        });
    }

    fn set_xattr(
        &self,
        context: &Context,
        node: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        reply: Reply<Done>,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.change(context, node, reply, move |tree, who| {
            tree.setxattr(who, node, &name, &value, flags)
        });
    }

    fn get_xattr(
        &self,
        context: &Context,
        node: u64,
        name: &OsStr,
        size: u32,
        reply: Reply<Xattr>,
    ) {
        let (who, name, branch) = (who(context), name.to_owned(), branch_of!(self, node, reply));
        self.on_names(context, &branch, move |tree| {
            match tree.with_groups(who, |who| tree.getxattr(who, node, &name)) {
                Ok(value) => reply.value(size, &value),
                Err(error) => reply.error(error),
            }
        });
    }

    fn list_xattr(&self, context: &Context, node: u64, size: u32, reply: Reply<Xattr>) {
        let (who, branch) = (who(context), branch_of!(self, node, reply));
        self.on_names(context, &branch, move |tree| {
            match tree.with_groups(who, |who| tree.listxattr(who, node)) {
                Ok(names) => reply.value(size, &names),
                Err(error) => reply.error(error),
            }
        });
    }

    fn remove_xattr(&self, context: &Context, node: u64, name: &OsStr, reply: Reply<Done>) {
        let name = name.to_owned();
        self.change(context, node, reply, move |tree, who| tree.removexattr(who, node, &name));
    }
}
