//! What the kernel is told without having asked.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::device::Device;
use crate::reply::finish;
use crate::wire::Writer;

/// Numbers of notifications; they stand where answers have their error.
mod code {
    pub(super) const INVAL_INODE: i32 = 2;
    pub(super) const INVAL_ENTRY: i32 = 3;
    pub(super) const STORE: i32 = 4;
    pub(super) const DELETE: i32 = 6;
    pub(super) const RESEND: i32 = 7;
    pub(super) const INC_EPOCH: i32 = 8;
}

/// Tells the kernel what it must not believe any more. Most of these fail with ENOENT when the
/// kernel knows nothing about it, which is as good; that is not told.
#[derive(Clone, Debug)]
pub struct Notifier {
    pub(crate) device: Arc<Device>,
}

fn notification(code: i32) -> Writer {
    let mut writer = Writer::new();
    writer.u32(0);
    writer.i32(code);
    writer.u64(0);
    writer
}

/// INVAL_INODE: node u64, offset i64, length i64.
fn inval_inode(node: u64, offset: i64, length: i64) -> Writer {
    let mut writer = notification(code::INVAL_INODE);
    writer.u64(node);
    writer.i64(offset);
    writer.i64(length);
    finish(writer, 0)
}

/// INVAL_ENTRY: parent u64, length of the name u32, flags u32 (1: it only expires), name, NUL.
fn inval_entry(parent: u64, name: &OsStr, expire_only: bool) -> Writer {
    let mut writer = notification(code::INVAL_ENTRY);
    writer.u64(parent);
    writer.u32(name.len() as u32);
    writer.u32(u32::from(expire_only));
    finish(writer, name.len() + 1)
}

/// DELETE: parent u64, child u64, length of the name u32, padding u32, name, NUL.
fn delete(parent: u64, child: u64, name: &OsStr) -> Writer {
    let mut writer = notification(code::DELETE);
    writer.u64(parent);
    writer.u64(child);
    writer.u32(name.len() as u32);
    writer.u32(0);
    finish(writer, name.len() + 1)
}

/// STORE: node u64, offset u64, size u32, padding u32, data.
fn store(node: u64, offset: u64, length: usize) -> Writer {
    let mut writer = notification(code::STORE);
    writer.u64(node);
    writer.u64(offset);
    writer.u32(length as u32);
    writer.u32(0);
    finish(writer, length)
}

impl Notifier {
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let slices: [IoSlice<'_>; 3] =
            std::array::from_fn(|at| IoSlice::new(parts.get(at).copied().unwrap_or_default()));
        match self.device.send(&slices) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            outcome => outcome,
        }
    }

    /// Attributes of a file are old, and its pages from `offset` on: `length` bytes, or all if that
    /// is 0. A negative offset is about attributes alone, and waits for no page.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn inval_inode(&self, node: u64, offset: i64, length: i64) -> io::Result<()> {
        self.send(&[inval_inode(node, offset, length).as_bytes()])
    }

    /// All names are old: each is looked up again before it is believed. Waits for nothing. (Since Linux 6.16.)
    ///
    /// # Errors
    ///
    /// `EINVAL` where the kernel does not know of it.
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.send(&[finish(notification(code::INC_EPOCH), 0).as_bytes()])
    }

    /// A name is old. With `expire_only` it is looked up again and stays if it is the same; else
    /// what is mounted or open beneath it goes from the tree.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn inval_entry(&self, parent: u64, name: &OsStr, expire_only: bool) -> io::Result<()> {
        let head = inval_entry(parent, name, expire_only);
        self.send(&[head.as_bytes(), name.as_bytes(), &[0]])
    }

    /// A name was removed, by somebody else.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn delete(&self, parent: u64, child: u64, name: &OsStr) -> io::Result<()> {
        self.send(&[delete(parent, child, name).as_bytes(), name.as_bytes(), &[0]])
    }

    /// These are a file's contents: the kernel's pages get them.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn store(&self, node: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        self.send(&[store(node, offset, data.len()).as_bytes(), data])
    }
}

/// The message that has everything come again that was read and not answered.
pub(crate) fn resend() -> Writer {
    finish(notification(code::RESEND), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reader;

    fn words(message: &Writer) -> Vec<u32> {
        let mut reader = Reader::new(message.as_bytes());
        std::iter::from_fn(|| reader.u32()).collect()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn notifications_have_their_places() {
        let name = OsStr::new("abc");
        assert_eq!(words(&inval_inode(5, -1, 0)), [40, 2, 0, 0, 5, 0, !0, !0, 0, 0]);
        assert_eq!(words(&inval_entry(5, name, true)), [36, 3, 0, 0, 5, 0, 3, 1]);
        assert_eq!(words(&delete(5, 6, name)), [44, 6, 0, 0, 5, 0, 6, 0, 3, 0]);
        assert_eq!(words(&store(5, 4096, 10)), [50, 4, 0, 0, 5, 0, 4096, 0, 10, 0]);
        assert_eq!(words(&finish(notification(code::RESEND), 0)), [16, 7, 0, 0]);
    }
}
