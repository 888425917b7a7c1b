//! What a file system does: one method for each kind of request.
//!
//! A method is called on a thread that reads requests, of which there are few. It may answer there
//! and then, or keep its `Reply` and answer later from another thread. What is not implemented is
//! answered with ENOSYS, which the kernel mostly takes for "never ask again".

use std::ffi::OsStr;

use crate::answer::{
    AttributesFor, Created, Done, Entry, LockFound, Offset, Opened, Polled, StatFs, Statx, Written,
};
use crate::buffer::Payload;
use crate::interrupts::Interruption;
use crate::reply::{Bytes, CopyReply, IoctlAnswer, Reply, Xattr};
use crate::request::{
    CopyFileRange, Fallocate, Ioctl, Lock, Read, Release, SetAttributes, StatxAsked, Write,
};
use crate::{Directory, Errno};

/// Who asks, and how that ends early.
#[derive(Clone, Debug)]
pub struct Context {
    /// The user.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// The thread that asks; 0 if it can't be seen from here.
    pub pid: u32,
    /// The group that what is made is to have, where the kernel tells: its directory's, of which
    /// the caller is a member.
    pub group: Option<u32>,
    /// Whether he still wants to wait.
    pub interruption: Interruption,
}

/// A name in a directory, to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewName<'a> {
    /// The directory.
    pub parent: u64,
    /// The name.
    pub name: &'a OsStr,
    /// Kind and permission bits; the umask is taken off already, unless that was declined at the
    /// start.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
}

/// A file system. Nodes and handles are its own numbers; node 1 is the root.
#[allow(unused_variables, reason = "the names tell what the arguments are")]
pub trait Filesystem: Send + Sync + 'static {
    /// Where a name leads.
    fn lookup(&self, context: &Context, parent: u64, name: &OsStr, reply: Reply<Entry>) {
        reply.error(Errno::ENOSYS);
    }
    /// The kernel forgets what it was told `count` times.
    fn forget(&self, node: u64, count: u64) {}
    /// Attributes.
    fn get_attributes(
        &self,
        context: &Context,
        node: u64,
        handle: Option<u64>,
        reply: Reply<AttributesFor>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// Attributes, with the time of making.
    fn statx(&self, context: &Context, node: u64, asked: StatxAsked, reply: Reply<Statx>) {
        reply.error(Errno::ENOSYS);
    }
    /// Changes attributes.
    fn set_attributes(
        &self,
        context: &Context,
        node: u64,
        changes: SetAttributes,
        reply: Reply<AttributesFor>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// Where a symbolic link leads.
    fn read_link(&self, context: &Context, node: u64, reply: Reply<Bytes>) {
        reply.error(Errno::ENOSYS);
    }
    /// Makes a symbolic link.
    fn symlink(&self, context: &Context, new: NewName<'_>, target: &OsStr, reply: Reply<Entry>) {
        reply.error(Errno::ENOSYS);
    }
    /// Makes a file of any kind but a directory.
    fn make_node(&self, context: &Context, new: NewName<'_>, device: u32, reply: Reply<Entry>) {
        reply.error(Errno::ENOSYS);
    }
    /// Makes a directory.
    fn make_directory(&self, context: &Context, new: NewName<'_>, reply: Reply<Entry>) {
        reply.error(Errno::ENOSYS);
    }
    /// Removes a name.
    fn unlink(&self, context: &Context, parent: u64, name: &OsStr, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// Removes a directory.
    fn remove_directory(&self, context: &Context, parent: u64, name: &OsStr, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// Moves a name; `flags` are of renameat2(2).
    fn rename(
        &self,
        context: &Context,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
        reply: Reply<Done>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// Another name for a file.
    fn link(&self, context: &Context, node: u64, to: (u64, &OsStr), reply: Reply<Entry>) {
        reply.error(Errno::ENOSYS);
    }
    /// Opens a file.
    fn open(&self, context: &Context, node: u64, flags: i32, reply: Reply<Opened>) {
        reply.error(Errno::ENOSYS);
    }
    /// Makes a file, if there is none of that name, and opens it.
    fn create(&self, context: &Context, new: NewName<'_>, flags: i32, reply: Reply<Created>) {
        reply.error(Errno::ENOSYS);
    }
    /// Makes a file without a name, in this directory, and opens it.
    fn tmpfile(&self, context: &Context, new: NewName<'_>, flags: i32, reply: Reply<Created>) {
        reply.error(Errno::EOPNOTSUPP);
    }
    /// Reads.
    fn read(&self, context: &Context, node: u64, read: Read, reply: Reply<Bytes>) {
        reply.error(Errno::ENOSYS);
    }
    /// Writes. `data` can be kept without a copy.
    fn write(
        &self,
        context: &Context,
        node: u64,
        write: Write,
        data: Payload<'_>,
        reply: Reply<Written>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// A descriptor of an open file is closed; others may be left.
    fn flush(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        lock_owner: u64,
        reply: Reply<Done>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// An open file is closed. Nobody waits for the answer.
    fn release(&self, context: &Context, node: u64, release: Release, reply: Reply<Done>) {
        reply.ok(&Done);
    }
    /// Makes what was written durable.
    fn fsync(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        data_only: bool,
        reply: Reply<Done>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// Opens a directory.
    fn open_directory(&self, context: &Context, node: u64, flags: i32, reply: Reply<Opened>) {
        reply.error(Errno::ENOSYS);
    }
    /// Lists a directory.
    fn read_directory(&self, context: &Context, node: u64, read: Read, reply: Reply<Directory>) {
        reply.error(Errno::ENOSYS);
    }
    /// Lists a directory, with attributes.
    fn read_directory_plus(
        &self,
        context: &Context,
        node: u64,
        read: Read,
        reply: Reply<Directory>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// A directory is closed.
    fn release_directory(
        &self,
        context: &Context,
        node: u64,
        release: Release,
        reply: Reply<Done>,
    ) {
        reply.ok(&Done);
    }
    /// Makes the names of a directory durable.
    fn fsync_directory(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        data_only: bool,
        reply: Reply<Done>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// Makes everything durable.
    fn sync_all(&self, context: &Context, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// Room.
    fn stat_fs(&self, context: &Context, node: u64, reply: Reply<StatFs>) {
        reply.error(Errno::ENOSYS);
    }
    /// Sets an extended attribute; `flags` are of setxattr(2).
    fn set_xattr(
        &self,
        context: &Context,
        node: u64,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        reply: Reply<Done>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// An extended attribute, for room of `size` bytes.
    fn get_xattr(
        &self,
        context: &Context,
        node: u64,
        name: &OsStr,
        size: u32,
        reply: Reply<Xattr>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// The names of extended attributes, each with a NUL, for room of `size` bytes.
    fn list_xattr(&self, context: &Context, node: u64, size: u32, reply: Reply<Xattr>) {
        reply.error(Errno::ENOSYS);
    }
    /// Removes an extended attribute.
    fn remove_xattr(&self, context: &Context, node: u64, name: &OsStr, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// Whether the caller may, where the kernel does not check that itself.
    fn access(&self, context: &Context, node: u64, mask: u32, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// A lock that would be in the way.
    fn get_lock(&self, context: &Context, node: u64, lock: Lock, reply: Reply<LockFound>) {
        reply.error(Errno::ENOSYS);
    }
    /// Takes or frees a lock; with `wait`, when it is free.
    fn set_lock(&self, context: &Context, node: u64, lock: Lock, wait: bool, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// A control call.
    fn ioctl(
        &self,
        context: &Context,
        node: u64,
        ioctl: Ioctl,
        data: &[u8],
        reply: Reply<IoctlAnswer>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// What is ready; `wakeup` names who wants to know when that changes.
    fn poll(&self, context: &Context, handle: u64, wakeup: u64, reply: Reply<Polled>) {
        reply.error(Errno::ENOSYS);
    }
    /// Reserves, frees or zeroes a part of a file.
    fn fallocate(&self, context: &Context, node: u64, asked: Fallocate, reply: Reply<Done>) {
        reply.error(Errno::ENOSYS);
    }
    /// The next data or hole: `SEEK_DATA` or `SEEK_HOLE` of lseek(2).
    fn seek(
        &self,
        context: &Context,
        node: u64,
        handle: u64,
        from: (u64, u32),
        reply: Reply<Offset>,
    ) {
        reply.error(Errno::ENOSYS);
    }
    /// Copies from file to file.
    fn copy_file_range(&self, context: &Context, node: u64, copy: CopyFileRange, reply: CopyReply) {
        reply.error(Errno::ENOSYS);
    }
    /// Pages that a notification asked for.
    fn retrieved(&self, node: u64, offset: u64, data: &[u8]) {}
    /// The mount is gone; nothing more will be asked.
    fn destroy(&self) {}
}
