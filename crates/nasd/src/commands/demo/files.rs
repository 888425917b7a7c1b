//! The files of the demonstration: a tree of the user's, and one that is made up.

use std::error::Error;
use std::fs::{File, FileType};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// How many files, and how many bytes in them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Their lengths' sum.
    pub bytes: u64,
}

/// A directory tree as it was when it was listed.
pub struct Tree {
    root: PathBuf,
    entries: Vec<(PathBuf, FileType)>,
    total: Copied,
}

const CHUNK_BYTES: usize = 1 << 20;

impl Tree {
    /// Lists a tree.
    ///
    /// # Errors
    /// If a directory can't be read or holds no file.
    pub fn list(root: &Path) -> Result<Self, Box<dyn Error>> {
        let unreadable = |path: &Path, error| format!("can't read {}: {error}", path.display());
        let (mut entries, mut total) = (Vec::new(), Copied::default());
        let mut pending = vec![PathBuf::new()];
        while let Some(relative) = pending.pop() {
            let directory = root.join(&relative);
            let listing =
                std::fs::read_dir(&directory).map_err(|error| unreadable(&directory, error))?;
            for entry in listing {
                let entry = entry.map_err(|error| unreadable(&directory, error))?;
                let (path, kind) = (relative.join(entry.file_name()), entry.file_type()?);
                if kind.is_dir() {
                    pending.push(path.clone());
                } else if kind.is_file() {
                    total.files += 1;
                    total.bytes += entry.metadata()?.len();
                }
                entries.push((path, kind));
            }
        }
        if total.files == 0 {
            return Err(format!("{} holds no files", root.display()).into());
        }
        Ok(Tree { root: root.to_owned(), entries, total })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Regular files in it.
    pub fn files(&self) -> u64 {
        self.total.files
    }

    /// Bytes in them.
    pub fn bytes(&self) -> u64 {
        self.total.bytes
    }

    /// Compares every file, link and directory with the copy's.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self, copy: &Path) -> Result<Copied, Box<dyn Error>> {
        for (relative, kind) in &self.entries {
            let (ours, theirs) = (self.root.join(relative), copy.join(relative));
            let same = if kind.is_file() {
                checksum(&ours)? == checksum(&theirs)?
            } else if kind.is_symlink() {
                std::fs::read_link(&ours)? == std::fs::read_link(&theirs)?
            } else {
                std::fs::symlink_metadata(&theirs)?.is_dir() == kind.is_dir()
            };
            if !same {
                return Err(format!("{} came back different", relative.display()).into());
            }
        }
        Ok(self.total)
    }
}

/// BLAKE3 of a file.
///
/// # Errors
/// If it can't be read.
pub fn checksum(path: &Path) -> Result<[u8; 32], Box<dyn Error>> {
    let failed = |error| format!("can't read {}: {error}", path.display());
    let mut file = File::open(path).map_err(failed)?;
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; CHUNK_BYTES]);
    loop {
        let length = file.read(&mut buffer).map_err(failed)?;
        if length == 0 {
            return Ok(*hasher.finalize().as_bytes());
        }
        hasher.update(&buffer[..length]);
    }
}

/// Writes `bytes` made-up bytes, syncs them, and answers with their BLAKE3.
///
/// # Errors
/// If the file can't be written.
pub fn generate(path: &Path, bytes: u64) -> Result<[u8; 32], Box<dyn Error>> {
    let failed = |error| format!("can't write {}: {error}", path.display());
    let mut file = File::create(path).map_err(failed)?;
    let (mut hasher, mut buffer) = (blake3::Hasher::new(), vec![0; CHUNK_BYTES]);
    // Extendable output of a fixed seed: incompressible, and the same on every run.
    let mut source = blake3::Hasher::new().update(b"nasd demonstration").finalize_xof();
    let mut left = bytes;
    while left > 0 {
        let part = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        source.fill(&mut buffer[..part]);
        hasher.update(&buffer[..part]);
        file.write_all(&buffer[..part]).map_err(failed)?;
        left -= part as u64;
    }
    file.sync_all().map_err(failed)?;
    Ok(*hasher.finalize().as_bytes())
}
