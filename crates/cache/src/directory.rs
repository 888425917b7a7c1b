//! Where things lie in a cache directory, and the calls that read and change them.

use crate::head::MAX_HEAD_BYTES;
use crate::identity::open_plain;
use crate::key::FileKey;
use crate::{BLOCK_BYTES, CHUNK_BYTES};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const HEAD: &str = "head";
const DATA: &str = "data";

/// The two files that a cached file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What is there, and its checksums.
    Head,
    /// Chunks, each at its own offset.
    Data,
}

/// A cache directory.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

/// Bytes in whole blocks, as space on the disk is counted.
pub fn in_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

impl Directory {
    /// One that was prepared before.
    pub fn new(path: &Path) -> Self {
        Directory { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directories that files are in: by the lowest byte of the object's number.
    pub fn folders(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..=u8::MAX).map(|low| self.path.join(format!("{low:02x}")))
    }

    /// Where a part of a file is.
    pub fn part(&self, file: &FileKey, part: Part) -> PathBuf {
        let name = if part == Part::Head { HEAD } else { DATA };
        self.path.join(format!("{:02x}", file.object.0 as u8)).join(format!("{file}.{name}"))
    }

    /// The part whose name this is, in a directory of [`Directory::folders`].
    pub fn parse(folder: &Path, name: &str) -> Option<(FileKey, Part)> {
        let (key, part) = name.split_once('.')?;
        let file = FileKey::parse(key)?;
        let part =
            [(HEAD, Part::Head), (DATA, Part::Data)].into_iter().find(|(n, _)| *n == part)?.1;
        let at_home = folder.file_name()?.to_str()? == format!("{:02x}", file.object.0 as u8);
        at_home.then_some((file, part))
    }

    /// The bytes of a head, and when it was written or used.
    pub fn read_head(&self, file: &FileKey) -> io::Result<(Vec<u8>, SystemTime)> {
        let opened = open_plain(&self.part(file, Part::Head))?;
        let found = opened.metadata()?;
        if !found.is_file() || found.len() > MAX_HEAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no head"));
        }
        let mut bytes = Vec::with_capacity(found.len() as usize + 1);
        opened.take(MAX_HEAD_BYTES).read_to_end(&mut bytes)?;
        Ok((bytes, found.modified()?))
    }

    /// Writes a head over what is there.
    pub fn write_head(&self, file: &FileKey, bytes: &[u8]) -> io::Result<()> {
        let opened = self.open_to_write(file, Part::Head)?;
        opened.write_all_at(bytes, 0)?;
        opened.set_len(bytes.len() as u64)
    }

    /// Fills `into` with the beginning of a chunk.
    pub fn read_chunk(&self, file: &FileKey, number: u64, into: &mut [u8]) -> io::Result<()> {
        open_plain(&self.part(file, Part::Data))?.read_exact_at(into, number * CHUNK_BYTES)
    }

    /// Writes a chunk.
    pub fn write_chunk(&self, file: &FileKey, number: u64, bytes: &[u8]) -> io::Result<()> {
        self.open_to_write(file, Part::Data)?.write_all_at(bytes, number * CHUNK_BYTES)
    }

    /// Gives back the space of some chunks.
    pub fn punch(&self, file: &FileKey, first: u64, count: u64) -> io::Result<()> {
        let opened = self.open_to_write(file, Part::Data)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&opened, hole, first * CHUNK_BYTES, count * CHUNK_BYTES)?)
    }

    /// Cuts the contents of a file behind this length, and behind the last chunk that is of use.
    pub fn cut(&self, file: &FileKey, length: u64) -> io::Result<()> {
        self.open_to_write(file, Part::Data)?.set_len(length)
    }

    /// Removes a part, if it is there.
    pub fn remove(&self, file: &FileKey, part: Part) -> io::Result<()> {
        match fs::remove_file(self.part(file, part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Tells for the next start that a file was used.
    pub fn mark_used(&self, file: &FileKey, when: SystemTime) -> io::Result<()> {
        open_plain(&self.part(file, Part::Head))?.set_modified(when)
    }

    fn open_to_write(&self, file: &FileKey, part: Part) -> io::Result<File> {
        let path = self.part(file, part);
        let mut options = OpenOptions::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        options.create(true).truncate(false).write(true).mode(0o600).custom_flags(flags);
        match (options.open(&path), path.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                match DirBuilder::new().mode(0o700).create(folder) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => options.open(&path),
                }
            }
            (opened, _) => opened,
        }
    }
}
