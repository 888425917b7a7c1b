//! `nasd cat URL`, `nasd cp URL FILE` and `nasd cp FILE URL`: one file by a capability, with no account
//! and no cell.

use super::CHUNK_BYTES;
use super::copy::progress_bar;
use crate::commands::Outcome;
use crate::shared_file::SharedFile;
use nasd_types::Rights;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Passes on all that a URL allows to be read; `sink` says whether it wants more.
fn read_all(
    shared: &SharedFile,
    mut sink: impl FnMut(&[u8]) -> Result<bool, Box<dyn std::error::Error>>,
) -> Outcome {
    let (mut buffer, mut offset) = (vec![0; CHUNK_BYTES], shared.allowed.region.offset);
    loop {
        let length = shared.read(offset, &mut buffer)?;
        if length == 0 || !sink(&buffer[..length])? {
            return Ok(());
        }
        offset += length as u64;
    }
}

/// Prints what a URL allows to be read. Whether the reader wants more after it.
///
/// # Errors
/// That the URL is not good any more, or the drive's.
pub fn print(argument: &str, output: &mut impl Write) -> Result<bool, Box<dyn std::error::Error>> {
    let shared = SharedFile::from_argument(argument)?;
    let mut wants_more = true;
    read_all(&shared, |bytes| {
        if let Err(error) = output.write_all(bytes) {
            // A reader that has seen enough is no failure.
            wants_more = false;
            let enough = error.kind() == std::io::ErrorKind::BrokenPipe;
            return if enough { Ok(false) } else { Err(error.into()) };
        }
        Ok(true)
    })?;
    Ok(wants_more)
}

/// Copies what is behind a URL to a file, or into a directory.
///
/// # Errors
/// As [`print`]; and a name that is none for a file of this machine.
pub fn copy_out(argument: &str, destination: &Path) -> Outcome {
    let shared = SharedFile::from_argument(argument)?;
    let target = target_of(&shared.name, destination)?;
    let progress = progress_bar();
    progress.set_message(shared.display_name());
    // Made when the first bytes have come: a URL that is not good destroys nothing.
    let mut file = None;
    let failed = |error: std::io::Error| format!("{}: {error}", target.display());
    let copied = read_all(&shared, |bytes| {
        let file = match &mut file {
            Some(file) => file,
            none => none.insert(File::create(&target).map_err(failed)?),
        };
        file.write_all(bytes).map_err(failed)?;
        progress.inc(bytes.len() as u64);
        Ok(true)
    });
    progress.finish_and_clear();
    copied?;
    if file.is_none() {
        File::create(&target).map_err(failed)?;
    }
    Ok(())
}

/// Where a file of that name goes. The name is whatever somebody wrote into a URL.
fn target_of(name: &[u8], destination: &Path) -> Result<PathBuf, String> {
    if !destination.is_dir() {
        return Ok(destination.to_owned());
    }
    let is_safe =
        !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0);
    if !is_safe {
        return Err(format!(
            "`{}` in the URL is no name for a file: say which file of {} to write",
            name.escape_ascii(),
            destination.display()
        ));
    }
    Ok(destination.join(OsStr::from_bytes(name)))
}

/// Writes a file to where a URL allows it.
///
/// # Errors
/// As [`print`]; and a file that does not fit what the URL allows.
pub fn copy_in(source: &Path, argument: &str) -> Outcome {
    let shared = SharedFile::from_argument(argument)?;
    let failed = |error: std::io::Error| format!("{}: {error}", source.display());
    let mut file = File::open(source).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(
            format!("{} is no regular file: only one can go to a URL", source.display()).into()
        );
    }
    must_fit(&shared, metadata.len(), source)?;
    let progress = progress_bar();
    progress.set_message(source.display().to_string());
    let (mut buffer, mut written) = (vec![0; CHUNK_BYTES], 0);
    while written < metadata.len() {
        let room = usize::try_from(metadata.len() - written).unwrap_or(usize::MAX);
        let length = file.read(&mut buffer[..room.min(CHUNK_BYTES)]).map_err(failed)?;
        if length == 0 {
            return Err(format!("{} became shorter while it was copied", source.display()).into());
        }
        let is_last = written + length as u64 == metadata.len();
        shared.write(shared.allowed.region.offset + written, &buffer[..length], is_last)?;
        written += length as u64;
        progress.inc(length as u64);
    }
    progress.finish_and_clear();
    Ok(())
}

/// A capability for writing changes no file's length but upwards, so that what is there must not be
/// longer than what is written over it.
fn must_fit(shared: &SharedFile, length: u64, source: &Path) -> Outcome {
    shared.require(Rights::WRITE, "writing")?;
    let (region, name) = (shared.allowed.region, shared.display_name());
    if length > region.length {
        return Err(format!(
            "{} has {length} bytes, and the URL of {name} allows {}",
            source.display(),
            region.length
        )
        .into());
    }
    let end = region.offset + length;
    let there = shared.length()?.min(region.end());
    if there > end {
        return Err(format!(
            "{name} has {} bytes more than {}, and a URL can't make a file shorter: nothing was \
             written",
            there - end,
            source.display()
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_a_url_does_not_leave_the_directory() {
        let directory = std::env::temp_dir();
        for name in [&b".."[..], b".", b"", b"../x", b"/etc/passwd", b"a\0b"] {
            assert!(target_of(name, &directory).is_err(), "{}", name.escape_ascii());
        }
        assert_eq!(target_of(b"a b", &directory), Ok(directory.join("a b")));
        let file = directory.join("no-such-directory").join("file");
        assert_eq!(target_of(b"..", &file), Ok(file));
    }
}
