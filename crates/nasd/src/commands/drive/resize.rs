//! `nasd drive resize`: a stopped drive gets more of its device, or less.

use super::{open_failed, open_stopped};
use crate::commands::Outcome;
use crate::commands::agree::agree;
use crate::commands::status::size;
use crate::output::{self, say};
use nasd_device::{BlockDevice, FileDevice, SECTOR_BYTES};
use nasd_store::{OpenOptions, ResizeError, Resized, Store};
use serde_json::json;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// Memory for data that is moved.
const CACHE_BYTES: usize = 17 << 20;

/// Lets the drive use `bytes` of its device. A file grows first, or is cut in the end, to that size; a
/// block device keeps its own.
///
/// # Errors
/// A device in use or too small, a drive whose contents do not fit, or a user who does not agree to
/// have it cut.
pub fn resize(path: &Path, bytes: u64, yes: bool, as_json: bool) -> Outcome {
    let bytes = bytes.next_multiple_of(SECTOR_BYTES as u64);
    let before = {
        let device = open_stopped(path, "resize")?;
        // What is no drive must not be grown or cut.
        Store::read_identity(&device).map_err(|error| open_failed(path, &error))?;
        device.capacity()
    };
    let is_file = !std::fs::metadata(path)?.file_type().is_block_device();
    if bytes < before {
        agree(&plan(path, before, bytes, is_file), yes)?;
    }
    if is_file && bytes > before {
        FileDevice::resize(path, bytes).map_err(|error| cant(path, &error.to_string()))?;
    }
    let resized = match resize_drive(path, bytes) {
        Ok(resized) => resized,
        Err(error) => {
            // The file goes back to its size, unless the drive may use what was added.
            if is_file && bytes > before && !matches!(error, Failure::Unknown(_)) {
                FileDevice::resize(path, before).map_err(|error| cant(path, &error.to_string()))?;
            }
            return Err(error.text().into());
        }
    };
    if is_file && bytes < before {
        FileDevice::resize(path, bytes).map_err(|error| {
            format!("the drive is smaller, and its file is not: {error}; run the same again")
        })?;
    }
    tell(path, resized, as_json)
}

/// Why the drive has not the size that was asked for.
enum Failure {
    /// It has its old one.
    Kept(String),
    /// It may have either.
    Unknown(String),
}

impl Failure {
    fn text(self) -> String {
        match self {
            Failure::Kept(text) | Failure::Unknown(text) => text,
        }
    }
}

fn resize_drive(path: &Path, bytes: u64) -> Result<Resized, Failure> {
    let device: Arc<dyn BlockDevice> =
        Arc::new(open_stopped(path, "resize").map_err(Failure::Kept)?);
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::default() };
    Store::resize(&device, &options, bytes).map_err(|error| {
        let text = cant(path, &format!("{error}{}", advice(&error)));
        match error {
            ResizeError::Superblock(_) => Failure::Unknown(text),
            _ => Failure::Kept(text),
        }
    })
}

/// What to do about it.
fn advice(error: &ResizeError) -> &'static str {
    match error {
        ResizeError::DeviceTooSmall { .. } => "; give the device more room first",
        ResizeError::DoesNotFit { .. } => "; remove something, or choose a larger --size",
        ResizeError::MetadataTooSmall { .. } => {
            "; choose a smaller --size, or format a new drive and copy"
        }
        ResizeError::Fragmented { .. } => "; choose a larger --size, or remove something",
        _ => "; run `nasd check` on it",
    }
}

fn cant(path: &Path, why: &str) -> String {
    format!("can't resize {}: {why}", path.display())
}

/// What of the device would be given up.
fn plan(path: &Path, before: u64, bytes: u64, is_file: bool) -> String {
    let (path, before, after) = (path.display(), size(before), size(bytes));
    let end = if is_file { "cut to" } else { "used up to" };
    format!(
        "what the drive on {path} of {before} has behind {after} would be moved, and the device be \
         {end} {after}"
    )
}

fn tell(path: &Path, resized: Resized, as_json: bool) -> Outcome {
    let Resized { before_bytes, after_bytes, moved_bytes } = resized;
    if as_json {
        return output::json(&json!({
            "image": path.display().to_string(),
            "before_bytes": before_bytes,
            "after_bytes": after_bytes,
            "moved_bytes": moved_bytes,
        }));
    }
    say!(
        "{}: the drive uses {} now, {} before; {} were moved",
        path.display(),
        size(after_bytes),
        size(before_bytes),
        size(moved_bytes)
    );
    Ok(())
}
