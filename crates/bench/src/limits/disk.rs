//! The device with O_DIRECT, by `fio`, on a file beside that of the drive.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::output_of;
use crate::BenchError;

const PROGRAM: &str = "fio";

/// Bytes that a limit moves where it is measured once.
const DISK_BYTES: u64 = 1 << 30;

/// How `fio` is to move data; always with O_DIRECT.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// `read`, `write`, `randread`, `randwrite`; or `rw`, of which what is written is told.
    pub(crate) pattern: &'static str,
    /// Bytes of a request.
    pub(crate) block: usize,
    /// Requests in flight.
    pub(crate) depth: usize,
    /// When what was written must be durable.
    pub(crate) sync: Sync,
    /// How long; `None` is once over the whole file.
    pub(crate) seconds: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// For reads.
    Never,
    /// Once, at the end, which counts.
    AtEnd,
    /// After each write.
    Each,
}

/// What `fio` measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    /// MB/s.
    pub(crate) megabytes: f64,
    /// Requests a second.
    pub(crate) requests: f64,
}

/// A file of its own for `fio`, removed when dropped.
#[derive(Debug)]
pub(crate) struct DiskFile {
    path: PathBuf,
    bytes: u64,
}

impl DiskFile {
    pub(crate) fn new(directory: &Path, bytes: u64) -> DiskFile {
        DiskFile { path: directory.join("fio-limit.bin"), bytes }
    }

    /// Runs `fio` on the file, which it writes in full first if it is not there yet: blocks that
    /// were never written would cost the file system extra work.
    pub(crate) fn measure(&self, shape: &Shape) -> Result<Speed, BenchError> {
        let mut arguments = vec![
            "--name=limit".to_owned(),
            format!("--filename={}", self.path.display()),
            format!("--rw={}", shape.pattern),
            format!("--bs={}", shape.block),
            format!("--size={}", self.bytes),
            "--direct=1".to_owned(),
            format!("--ioengine={}", if shape.depth == 1 { "psync" } else { "libaio" }),
            format!("--iodepth={}", shape.depth),
            "--overwrite=1".to_owned(),
            "--randrepeat=0".to_owned(),
            "--output-format=json".to_owned(),
        ];
        match shape.sync {
            Sync::Never => {}
            Sync::AtEnd => arguments.push("--end_fsync=1".to_owned()),
            Sync::Each => arguments.push("--fdatasync=1".to_owned()),
        }
        if let Some(seconds) = shape.seconds {
            arguments.push("--time_based".to_owned());
            arguments.push(format!("--runtime={}ms", (seconds * 1e3) as u64));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = output_of(PROGRAM, &arguments)?;
        let failed = |reason: String| BenchError::Program { program: PROGRAM, reason };
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))?;
        let direction = if shape.pattern.contains("read") { "read" } else { "write" };
        let result = &report["jobs"][0][direction];
        match (result["bw_bytes"].as_f64(), result["iops"].as_f64()) {
            (Some(bytes), Some(requests)) => Ok(Speed { megabytes: bytes / 1e6, requests }),
            _ => Err(failed("no result in its report".to_owned())),
        }
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sequential 1 MiB O_DIRECT writes, eight in flight, with a final fsync, in MB/s, by `fio`.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub fn disk_write(directory: &Path) -> Result<f64, BenchError> {
    once(directory, "write", Sync::AtEnd)
}

/// Sequential 1 MiB O_DIRECT reads, eight in flight, in MB/s, by `fio`.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub fn disk_read(directory: &Path) -> Result<f64, BenchError> {
    once(directory, "read", Sync::Never)
}

/// What is written when as much is read at the same time: 1 MiB O_DIRECT, eight in flight, with a final fsync, in MB/s.
///
/// # Errors
/// `MissingProgram` or `Program`.
pub(crate) fn disk_read_and_written(directory: &Path) -> Result<f64, BenchError> {
    once(directory, "rw", Sync::AtEnd)
}

fn once(directory: &Path, pattern: &'static str, sync: Sync) -> Result<f64, BenchError> {
    let shape = Shape { pattern, block: 1 << 20, depth: 8, sync, seconds: None };
    Ok(DiskFile::new(directory, DISK_BYTES).measure(&shape)?.megabytes)
}
