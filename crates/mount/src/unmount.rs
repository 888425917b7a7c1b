//! Unmounting, by the system call or, for users other than root, by the helper `fusermount3`.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::MountError;
use crate::mountinfo;
use crate::mountpoint;
use crate::presence::Watch;

/// A mount that is busy for a moment is tried again this long.
const BUSY: Duration = Duration::from_secs(1);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// How long is waited for the serving process to hand everything to the drives. One that waits for
/// a drive that is away goes on, without the mount.
const DRAIN: Duration = Duration::from_secs(30);

/// How to take a mount away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Only if nobody uses it.
    Cleanly,
    /// From the tree at once; those who have files open keep them.
    Lazily,
    /// From the tree at once; those who have files open lose them.
    Forcibly,
}

/// Unmounts the volume at `path`. When this returns without an error, it is gone, and the process
/// that served it has handed everything to the drives.
///
/// # Errors
///
/// `NotMounted`, `Busy`, `StillDraining`, and `Unmount` for what else the system may say.
pub fn unmount(path: &Path) -> Result<(), MountError> {
    let refused = |error| MountError::Unmount { path: path.to_owned(), error };
    let path = match mountpoint::absolute(path) {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let instead = " (there is no such directory)".into();
            return Err(MountError::NotMounted { path: path.to_owned(), instead });
        }
        Err(error) => return Err(refused(error)),
    };
    let entry = mountinfo::mounted_at(&path).map_err(refused)?;
    let Some(entry) = entry.as_ref().filter(|entry| entry.is_ours()) else {
        let instead = entry.map(|entry| format!(" but one of type {}", entry.file_system));
        return Err(MountError::NotMounted { path, instead: instead.unwrap_or_default() });
    };
    let watch = Watch::begin(&entry.device);
    detach_when_idle(&path, BUSY)?;
    match watch {
        Some(watch) if !watch.wait(DRAIN) => Err(MountError::StillDraining(path)),
        _ => Ok(()),
    }
}

/// Unmounts cleanly; tries again for `patience` while it is busy.
pub(crate) fn detach_when_idle(path: &Path, patience: Duration) -> Result<(), MountError> {
    let end = Instant::now() + patience;
    loop {
        match detach(path, How::Cleanly) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if Instant::now() >= end {
                    return Err(MountError::Busy(path.to_owned()));
                }
                thread::sleep(PAUSE);
            }
            Err(error) => {
                return Err(MountError::Unmount { path: path.to_owned(), error });
            }
        }
    }
}

/// Takes the topmost mount at `path` away.
pub(crate) fn detach(path: &Path, how: How) -> io::Result<()> {
    let text = CString::new(path.as_os_str().as_bytes())?;
    let flags = match how {
        How::Cleanly => libc::UMOUNT_NOFOLLOW,
        How::Lazily => libc::UMOUNT_NOFOLLOW | libc::MNT_DETACH,
        How::Forcibly => libc::UMOUNT_NOFOLLOW | libc::MNT_DETACH | libc::MNT_FORCE,
    };
    // SAFETY: `text` is a string that ends with a NUL and lives until the call returns.
    if unsafe { libc::umount2(text.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EPERM) {
        return detach_with_helper(path, how);
    }
    Err(error)
}

fn detach_with_helper(path: &Path, how: How) -> io::Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u");
    if how != How::Cleanly {
        helper.arg("-z");
    }
    let output = helper.arg("--").arg(path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if text.contains("busy") {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    Err(io::Error::other(text))
}

/// Has the kernel hand over the pages that programs have changed by mmap, for `patience` at most.
pub(crate) fn write_out(path: &Path, patience: Duration) {
    let path = path.to_owned();
    let (tell, told) = mpsc::channel();
    // A thread of its own, because a drive that is away may hold it up for long.
    let writing = thread::Builder::new().name("nasd-write-out".into()).spawn(move || {
        if let Ok(root) = File::open(&path) {
            // SAFETY: the descriptor is open for the whole call.
            unsafe { libc::syncfs(root.as_raw_fd()) };
        }
        // Nobody waits for an answer that comes too late.
        let _ = tell.send(());
    });
    if writing.is_ok() && told.recv_timeout(patience).is_err() {
        tracing::warn!("changes made by mmap may be lost");
    }
}

/// Ends the connection of a mount to its process: whoever waits in it gets an error.
pub(crate) fn abort(device: &str) -> io::Result<()> {
    let minor = device.rsplit(':').next().unwrap_or(device);
    std::fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1")
}
