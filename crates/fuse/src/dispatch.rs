//! From a request's bytes to the file system's method.

use std::sync::Arc;

use crate::buffer::{Payload, RequestBuffer};
use crate::device::Device;
use crate::filesystem::{Context, Filesystem, NewName};
use crate::interrupts::{Interruption, Interrupts};
use crate::reply::{CopyReply, Reply, failure};
use crate::request::{Header, Operation, ParseError, Request};
use crate::{Done, Errno};

/// Everything that requests of one descriptor need.
pub(crate) struct Dispatch<'a, F> {
    pub(crate) filesystem: &'a F,
    pub(crate) device: &'a Arc<Device>,
    pub(crate) interrupts: &'a Arc<Interrupts>,
}

impl<F: Filesystem> Dispatch<'_, F> {
    /// Runs the request of `length` bytes in this buffer.
    pub(crate) fn run(&self, slot: &mut Option<RequestBuffer>, length: usize) {
        let message = slot.as_ref().map_or(&[][..], |buffer| buffer.message(length));
        let Request { header, operation } = match Request::parse(message) {
            Ok(request) => request,
            Err(error) => return self.refuse(&error),
        };
        match operation {
            // Without an answer.
            Operation::Forget { count } => self.filesystem.forget(header.node, count),
            Operation::BatchForget { list } => {
                list.for_each(|one| self.filesystem.forget(one.node, one.count));
            }
            Operation::Interrupt { unique } => self.interrupts.interrupt(unique),
            Operation::NotifyReply { offset, data } => {
                self.filesystem.retrieved(header.node, offset, data);
            }
            Operation::Write { write, .. } => {
                let context = self.context(&header);
                let reply = self.reply(&header);
                let payload = Payload::new(slot, write.size);
                self.filesystem.write(&context, header.node, write, payload, reply);
            }
            operation => {
                let context = self.context(&header);
                self.data_operation(&context, &header, operation);
            }
        }
    }

    fn context(&self, header: &Header) -> Context {
        let interrupts = Arc::clone(self.interrupts);
        Context {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            group: header.group,
            interruption: Interruption { unique: header.unique, interrupts },
        }
    }

    fn reply<A>(&self, header: &Header) -> Reply<A> {
        self.device.begin();
        Reply::new(header, self.device)
    }

    #[cold]
    fn refuse(&self, error: &ParseError) {
        let (unique, number) = match *error {
            ParseError::Unknown { unique, .. } => (unique, Errno::ENOSYS),
            ParseError::Length { unique, .. } | ParseError::Arguments { unique, .. } => {
                (unique, Errno::EIO)
            }
            ParseError::NoHeader(_) => {
                tracing::error!(%error, "the kernel sent nonsense");
                return;
            }
        };
        tracing::warn!(%error, "a request that is not understood");
        if let Err(error) = self.device.send_one(failure(unique, number).as_bytes()) {
            tracing::debug!(%error, unique, "refusing a request");
        }
    }

    /// What is frequent: attributes, data, open files.
    fn data_operation(&self, context: &Context, header: &Header, operation: Operation<'_>) {
        let (fs, node) = (self.filesystem, header.node);
        match operation {
            Operation::Lookup { name } => fs.lookup(context, node, name, self.reply(header)),
            Operation::GetAttributes { handle } => {
                fs.get_attributes(context, node, handle, self.reply(header));
            }
            Operation::Statx(asked) => fs.statx(context, node, asked, self.reply(header)),
            Operation::SetAttributes(changes) => {
                fs.set_attributes(context, node, changes, self.reply(header));
            }
            Operation::Open { flags } => fs.open(context, node, flags, self.reply(header)),
            Operation::Read(read) => fs.read(context, node, read, self.reply(header)),
            Operation::Flush { handle, lock_owner } => {
                fs.flush(context, node, handle, lock_owner, self.reply(header));
            }
            Operation::Release(release) => {
                fs.release(context, node, release, self.reply(header));
            }
            Operation::Fsync { handle, data_only } => {
                fs.fsync(context, node, handle, data_only, self.reply(header));
            }
            Operation::Fallocate(asked) => fs.fallocate(context, node, asked, self.reply(header)),
            Operation::Seek { handle, offset, whence } => {
                fs.seek(context, node, handle, (offset, whence), self.reply(header));
            }
            Operation::CopyFileRange { copy, wide } => {
                let reply = CopyReply { reply: self.reply(header), wide };
                fs.copy_file_range(context, node, copy, reply);
            }
            operation => self.name_operation(context, header, operation),
        }
    }

    /// Names and directories.
    fn name_operation(&self, context: &Context, header: &Header, operation: Operation<'_>) {
        let (fs, node) = (self.filesystem, header.node);
        let new = |name, mode, umask| NewName { parent: node, name, mode, umask };
        match operation {
            Operation::Create { name, mode, umask, flags } => {
                fs.create(context, new(name, mode, umask), flags, self.reply(header));
            }
            Operation::Tmpfile { mode, umask, flags } => {
                fs.tmpfile(context, new("".as_ref(), mode, umask), flags, self.reply(header));
            }
            Operation::MakeNode { name, mode, device, umask } => {
                fs.make_node(context, new(name, mode, umask), device, self.reply(header));
            }
            Operation::MakeDirectory { name, mode, umask } => {
                fs.make_directory(context, new(name, mode, umask), self.reply(header));
            }
            Operation::Symlink { name, target } => {
                fs.symlink(context, new(name, 0o777, 0), target, self.reply(header));
            }
            Operation::ReadLink => fs.read_link(context, node, self.reply(header)),
            Operation::Unlink { name } => fs.unlink(context, node, name, self.reply(header)),
            Operation::RemoveDirectory { name } => {
                fs.remove_directory(context, node, name, self.reply(header));
            }
            Operation::Rename { name, to_node, to_name, flags } => {
                fs.rename(context, (node, name), (to_node, to_name), flags, self.reply(header));
            }
            Operation::Link { node: file, name } => {
                fs.link(context, file, (node, name), self.reply(header));
            }
            Operation::OpenDirectory { flags } => {
                fs.open_directory(context, node, flags, self.reply(header));
            }
            Operation::ReadDirectory(read) => {
                fs.read_directory(context, node, read, self.reply(header));
            }
            Operation::ReadDirectoryPlus(read) => {
                fs.read_directory_plus(context, node, read, self.reply(header));
            }
            Operation::ReleaseDirectory(release) => {
                fs.release_directory(context, node, release, self.reply(header));
            }
            Operation::FsyncDirectory { handle, data_only } => {
                fs.fsync_directory(context, node, handle, data_only, self.reply(header));
            }
            operation => self.other_operation(context, header, operation),
        }
    }

    fn other_operation(&self, context: &Context, header: &Header, operation: Operation<'_>) {
        let (fs, node) = (self.filesystem, header.node);
        match operation {
            Operation::StatFs => fs.stat_fs(context, node, self.reply(header)),
            Operation::SyncFs => fs.sync_all(context, self.reply(header)),
            Operation::SetXattr { name, value, flags, .. } => {
                fs.set_xattr(context, node, name, value, flags, self.reply(header));
            }
            Operation::GetXattr { name, size } => {
                fs.get_xattr(context, node, name, size, self.reply(header));
            }
            Operation::ListXattr { size } => {
                fs.list_xattr(context, node, size, self.reply(header));
            }
            Operation::RemoveXattr { name } => {
                fs.remove_xattr(context, node, name, self.reply(header));
            }
            Operation::Access { mask } => fs.access(context, node, mask, self.reply(header)),
            Operation::GetLock(lock) => fs.get_lock(context, node, lock, self.reply(header)),
            Operation::SetLock(lock) => {
                fs.set_lock(context, node, lock, false, self.reply(header));
            }
            Operation::SetLockWait(lock) => {
                fs.set_lock(context, node, lock, true, self.reply(header));
            }
            Operation::Ioctl { ioctl, data } => {
                fs.ioctl(context, node, ioctl, data, self.reply(header));
            }
            Operation::Poll { handle, wakeup, .. } => {
                fs.poll(context, handle, wakeup, self.reply(header));
            }
            Operation::Destroy => {
                fs.destroy();
                self.reply(header).ok(&Done);
            }
            // INIT comes once, before; the others were taken out above.
            _ => self.reply::<Done>(header).error(Errno::EIO),
        }
    }
}
