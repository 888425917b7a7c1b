//! Telling a mount what will be read: the other side of `hint_streams`, for programs (`docs/hints.md`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nasd_types::ByteRange;

use crate::hint_streams::{COMMAND, HEAD_BYTES, REQUEST_BYTES};

/// Hints to be told at once, in the order in which they were put here.
#[derive(Clone, Debug, Default)]
pub struct HintRequest {
    text: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl HintRequest {
    /// Adds a part of the file at a path from the directory that this is told to, or all of it; of a file that it is told to,
    /// the path is empty. Whether there was room.
    pub fn push(&mut self, path: &[u8], range: Option<ByteRange>) -> bool {
        let ByteRange { offset, length } = range.unwrap_or_default();
        let mut line = format!("{offset} {length} ").into_bytes();
        line.extend_from_slice(path);
        line.push(0);
        let fits = self.text.len() + line.len() <= REQUEST_BYTES - HEAD_BYTES;
        if fits {
            self.text.extend(line);
            self.ends.push(self.text.len());
        }
        fits
    }

    /// Whether there is nothing to be told.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Tells an open file or directory of a mount; what was taken is left out from here on. The hints are good until that is
    /// closed by all who have it open.
    ///
    /// # Errors
    ///
    /// `ENOTTY` (or another) from what is not on a mount of ours; `EAGAIN` while as many hints are known as can be; `EDQUOT` and
    /// `EBUSY` while the user, or all users, have as many files and directories with hints open as they may; `EINVAL` of an empty
    /// request.
    pub fn tell(&mut self, to: &File) -> io::Result<()> {
        let mut request = [0_u8; REQUEST_BYTES];
        request[..HEAD_BYTES].copy_from_slice(&(self.text.len() as u32).to_le_bytes());
        request[HEAD_BYTES..HEAD_BYTES + self.text.len()].copy_from_slice(&self.text);
        // SAFETY: the kernel reads as many bytes as the command says, which the array has.
        let taken =
            unsafe { libc::ioctl(to.as_raw_fd(), COMMAND as libc::Ioctl, request.as_ptr()) };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        let taken = taken.min(self.ends.len());
        if let Some(last) = taken.checked_sub(1) {
            let end = self.ends[last];
            self.text.drain(..end);
            self.ends.drain(..taken);
            self.ends.iter_mut().for_each(|left| *left -= end);
        }
        Ok(())
    }
}
