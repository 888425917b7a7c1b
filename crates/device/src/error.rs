//! What can go wrong with a device, by whose fault it is.

use std::io;
use std::path::PathBuf;

/// A failure of a device or of its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Somebody else has the file or block device open as a drive, mounted, or locked.
    #[error("{} is in use by another process", .path.display())]
    InUse {
        /// The file or block device.
        path: PathBuf,
    },
    /// The file system has no O_DIRECT, and the options did not allow to go without.
    #[error(
        "{} is on a file system without direct I/O (O_DIRECT); use a block device or another \
         file system, or allow buffered I/O",
        .path.display()
    )]
    NoDirectIo {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", .path.display())]
    NotADevice {
        /// The path that was given.
        path: PathBuf,
    },
    /// Opening, creating or sizing the file failed.
    #[error("cannot open {}: {source}", .path.display())]
    Open {
        /// The file or block device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Changing the size of a file failed; it is as it was, unless it was to shrink.
    #[error("cannot resize {} to {bytes} bytes: {source}", .path.display())]
    Resize {
        /// The file.
        path: PathBuf,
        /// The size that was asked for, in bytes.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A block device has the size that it has.
    #[error("{} is a block device; its size cannot be changed here", .path.display())]
    FixedSize {
        /// The block device.
        path: PathBuf,
    },
    /// The kernel refused io_uring, and the options asked for it.
    #[error(
        "the kernel refuses io_uring for {} (see the sysctl kernel.io_uring_disabled): {source}",
        .path.display()
    )]
    NoRing {
        /// The file or block device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device wants a larger alignment than frames and blocks have.
    #[error("{} wants I/O aligned to {alignment} bytes; at most 4096 is supported", .path.display())]
    Alignment {
        /// The file or block device.
        path: PathBuf,
        /// What it wants, in bytes.
        alignment: usize,
    },
    /// A transfer outside the device.
    #[error("transfer of {length} bytes at {offset} is outside the device of {capacity} bytes")]
    OutOfBounds {
        /// First byte of the transfer.
        offset: u64,
        /// Bytes of the transfer.
        length: u64,
        /// Bytes of the device.
        capacity: u64,
    },
    /// A transfer whose offset, length or memory is not aligned.
    #[error("transfer of {length} bytes at {offset} is not aligned to {alignment} bytes")]
    Unaligned {
        /// First byte of the transfer.
        offset: u64,
        /// Bytes of the transfer.
        length: u64,
        /// What was needed, in bytes.
        alignment: usize,
    },
    /// The medium failed a transfer.
    #[error("{operation} of {length} bytes at {offset} failed: {source}")]
    Medium {
        /// `read`, `write` or `sync`.
        operation: &'static str,
        /// First byte of the transfer.
        offset: u64,
        /// Bytes of the transfer.
        length: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Memory for frames could not be had.
    #[error("cannot map {bytes} bytes of memory for frames: {source}")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
}
