//! The kernel's end: a descriptor of /dev/fuse, requests read from it, answers written to it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Measures;

/// `FUSE_DEV_IOC_CLONE`: read, 4 bytes, of the kind 229, number 0.
const CLONE: libc::c_ulong = 0x8004_e500;

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing, this time.
    Nothing,
    /// The file system is not mounted any more.
    Unmounted,
}

/// One descriptor. What was read from it must be answered through it.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
    /// Requests that were read and are not answered.
    in_flight: AtomicUsize,
    /// Somebody else has the requests now: nothing may be answered.
    abandoned: AtomicBool,
    /// Where answers are counted.
    pub(crate) measures: Arc<Measures>,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd, measures: Arc<Measures>) -> Self {
        let (in_flight, abandoned) = (AtomicUsize::new(0), AtomicBool::new(false));
        Device { fd, in_flight, abandoned, measures }
    }

    /// Another descriptor of the same mount, whose requests do not meet in one lock of the kernel.
    pub(crate) fn clone_of(original: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let number = original.as_raw_fd() as u32;
        // SAFETY: the call reads one u32, which lives until it returns; both descriptors are open.
        match unsafe { libc::ioctl(device.as_raw_fd(), CLONE as _, &number) } {
            0 => Ok(device.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(&self.fd, into) {
            Ok(length) => Ok(Received::Request(length)),
            Err(error) => match error.raw_os_error() {
                // Its caller has gone before it was read; a signal; no more room for a moment.
                libc::ENOENT | libc::EINTR | libc::EAGAIN => Ok(Received::Nothing),
                libc::ENODEV | libc::ECONNABORTED => Ok(Received::Unmounted),
                _ => Err(error.into()),
            },
        }
    }

    /// Whether there is a request that nobody has read.
    pub(crate) fn has_request(&self) -> bool {
        let mut wanted = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives until the call returns.
        let ready = unsafe { libc::poll(&mut wanted, 1, 0) };
        ready == 1 && wanted.revents & libc::POLLIN != 0
    }

    /// Sends a message whole.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.fd, parts)?;
        Ok(())
    }

    pub(crate) fn send_one(&self, message: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.fd, message)?;
        Ok(())
    }

    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Release);
    }

    /// Requests that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// From here on nothing is answered.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// The descriptor once more.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
