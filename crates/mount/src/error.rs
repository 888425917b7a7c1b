//! What can go wrong with mounting and unmounting, and what to do then.

use std::io;
use std::path::PathBuf;

use nasd_clerk::ClerkError;

/// Why a mount could not begin or end as asked. Each text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mountpoint does not exist.
    #[error("mountpoint {} does not exist; make it: mkdir -p {}", .0.display(), .0.display())]
    NoMountpoint(PathBuf),
    /// The mountpoint is not a directory.
    #[error("mountpoint {} is not a directory; name an empty directory", .0.display())]
    NotDirectory(PathBuf),
    /// The mountpoint can't be used by this user.
    #[error("mountpoint {}: {error}; choose a directory that is yours", .path.display())]
    Mountpoint {
        /// Where to mount.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Something is mounted there already.
    #[error(
        "{} has a {what} file system mounted already; unmount it (nasd umount, or umount) or \
         name another directory", .path.display()
    )]
    AlreadyMounted {
        /// Where to mount.
        path: PathBuf,
        /// Type of the file system that is there.
        what: String,
    },
    /// This machine has no FUSE, or does not let this process use it.
    #[error(
        "FUSE is not available: {0}; load the module (modprobe fuse), or give the container \
         --device /dev/fuse and --cap-add SYS_ADMIN"
    )]
    NoFuse(String),
    /// Users other than root need the helper that is installed set-user-id.
    #[error("fusermount3 is not installed; install the package fuse3, or mount as root")]
    NoHelper,
    /// Other users may not be let in.
    #[error(
        "only root may let other users in (allow_other), unless /etc/fuse.conf has a line \
         user_allow_other; mount without allow_other"
    )]
    AllowOther,
    /// The system refuses for another reason.
    #[error("cannot mount {}: {error}", .path.display())]
    Refused {
        /// Where to mount.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Nothing of ours is mounted there.
    #[error("{} is not a nasd mount{instead}; see: findmnt -t fuse.nasd", .path.display())]
    NotMounted {
        /// What was to be unmounted.
        path: PathBuf,
        /// Empty, or what is there instead.
        instead: String,
    },
    /// Files of the mount are in use.
    #[error(
        "{} is busy: a program has a file open in it or works in it; find it with \
         fuser -vm {}, end it, and try again", .0.display(), .0.display()
    )]
    Busy(PathBuf),
    /// The system refuses to unmount.
    #[error("cannot unmount {}: {error}", .path.display())]
    Unmount {
        /// What was to be unmounted.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is unmounted, but its process still waits for drives to take what was written.
    #[error(
        "{} is unmounted, but its process still waits for a drive to take what was written; \
         leave it running and see: nasd status", .0.display()
    )]
    StillDraining(PathBuf),
    /// The process that serves the mount does not hand it over.
    #[error("the mount at {} can't be taken over: {error}; unmount it, and mount anew", .path.display())]
    TakeOver {
        /// The mount.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The mount that was to be taken over is of another volume.
    #[error("the mount is of another volume; name that one")]
    OtherVolume,
    /// Something that applications have written did not reach the drives.
    #[error("not everything that was written has reached the drives: {0}")]
    Drain(#[from] ClerkError),
    /// The loop that serves the kernel failed.
    #[error("serving the mount failed: {0}")]
    Serve(io::Error),
}
