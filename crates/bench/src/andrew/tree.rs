//! The source tree that the Andrew benchmark copies, looks at, reads and compiles.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::BLOCK_BYTES;
use crate::BenchError;

/// Two crates with real C in them, of the versions that `Cargo.lock` names, and what the tree calls them: whoever has built
/// this project has their sources.
const CRATES: &[(&str, &str)] =
    &[("zstd-sys-2.1.2+zstd.1.5.7", "zstd-sys"), ("ring-0.17.14", "ring")];

/// What cargo writes into a directory when it has unpacked a crate: no part of the sources.
const CARGO_FILES: &[&str] = &[".cargo-ok", ".cargo_vcs_info.json"];

/// Files of our own beside the crates, by which they are compiled.
const OWN_FILES: &[(&str, &str)] =
    &[("Makefile", include_str!("Makefile")), ("main.c", include_str!("main.c"))];

/// Bytes, lines, files and directories of a tree: what each phase must have met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Directories, the topmost not counted.
    pub directories: u64,
    /// Files.
    pub files: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Ends of lines in all files.
    pub lines: u64,
}

/// A directory with the sources, and what there is in it by paths within it. It is gone when this is dropped.
#[derive(Debug)]
pub struct SourceTree {
    root: PathBuf,
    pub(super) directories: Vec<PathBuf>,
    pub(super) files: Vec<PathBuf>,
    pub(super) contents: Contents,
}

impl SourceTree {
    /// Gathers the sources in a new directory, which should be on a disk of this machine, and reads all of them once, so that
    /// they are in its memory.
    ///
    /// # Errors
    ///
    /// A crate that cargo has not fetched, or a directory that can't be made.
    pub fn gather(root: &Path) -> Result<SourceTree, BenchError> {
        let failed = BenchError::io("can't gather the sources");
        fs::create_dir(root).map_err(&failed)?;
        let mut tree = SourceTree {
            root: root.to_owned(),
            directories: Vec::new(),
            files: Vec::new(),
            contents: Contents::default(),
        };
        for (name, text) in OWN_FILES {
            fs::write(root.join(name), text).map_err(&failed)?;
            tree.files.push(PathBuf::from(name));
        }
        for (crate_name, name) in CRATES {
            let from = unpacked(crate_name)?;
            tree.add(&from, Path::new(name)).map_err(&failed)?;
        }
        tree.contents = tree.count().map_err(&failed)?;
        Ok(tree)
    }

    /// Copies a directory, in the order of names.
    fn add(&mut self, from: &Path, to: &Path) -> std::io::Result<()> {
        fs::create_dir(self.path(to))?;
        self.directories.push(to.to_owned());
        let mut entries = fs::read_dir(from)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let to = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                self.add(&entry.path(), &to)?;
            } else if !CARGO_FILES.iter().any(|name| entry.file_name() == *name) {
                fs::copy(entry.path(), self.path(&to))?;
                self.files.push(to);
            }
        }
        Ok(())
    }

    fn count(&self) -> std::io::Result<Contents> {
        let mut contents = Contents {
            directories: self.directories.len() as u64,
            files: self.files.len() as u64,
            ..Contents::default()
        };
        let mut buffer = vec![0; BLOCK_BYTES];
        for file in &self.files {
            let (bytes, lines) = read_whole(&self.path(file), &mut buffer)?;
            contents.bytes += bytes;
            contents.lines += lines;
        }
        Ok(contents)
    }

    /// Makes a new directory with the same in it.
    pub(crate) fn copy_to(&self, into: &Path) -> Result<(), BenchError> {
        super::make_directories(self, into)?;
        super::copy(self, into, &mut vec![0; BLOCK_BYTES])
    }

    /// What is in it.
    pub fn contents(&self) -> Contents {
        self.contents
    }

    /// Where a part of it is.
    pub(super) fn path(&self, within: &Path) -> PathBuf {
        self.root.join(within)
    }
}

impl Drop for SourceTree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Reads a file to its end; its bytes and its ends of lines.
pub(super) fn read_whole(path: &Path, buffer: &mut [u8]) -> std::io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let (mut bytes, mut lines) = (0, 0);
    loop {
        let length = file.read(buffer)?;
        if length == 0 {
            return Ok((bytes, lines));
        }
        bytes += length as u64;
        lines += buffer[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
}

/// The sources of a crate where cargo has unpacked them.
fn unpacked(crate_name: &'static str) -> Result<PathBuf, BenchError> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let registries = home.and_then(|home| fs::read_dir(home.join("registry/src")).ok());
    let mut places = registries.into_iter().flatten().flatten();
    places
        .find_map(|registry| {
            Some(registry.path().join(crate_name)).filter(|sources| sources.is_dir())
        })
        .ok_or(BenchError::MissingSources { name: crate_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_are_those_that_are_built_with() {
        let lock = include_str!("../../../../Cargo.lock");
        for (crate_name, name) in CRATES {
            let version = &crate_name[name.len() + 1..];
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
            assert!(lock.contains(&entry), "Cargo.lock has another {name} than {version}");
        }
    }
}
