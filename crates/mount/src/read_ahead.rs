//! Lets the kernel read ahead far enough to keep a network busy.
//!
//! At mount time a file system can only lower the kernel's default of 128 KiB; root may raise it
//! afterwards.

/// How far the kernel reads ahead, in KiB: four requests of the largest size.
const READ_AHEAD_KIB: u32 = 4096;

/// Raises the read-ahead of the mount with this device number, if this process may.
pub(crate) fn raise(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, path, "the kernel's read-ahead stays small");
    }
}
