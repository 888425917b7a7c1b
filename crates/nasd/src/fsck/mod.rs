//! The name space of a volume against its drives: what a walk from the root reaches, and what the
//! drives hold. Pure but for the trait by which the volume is seen.
//!
//! The volume may be in use. The objects are listed before the walk, so what is made meanwhile is no
//! orphan; and only what two passes find is reported, since names move while one is under way.

mod repair;
#[cfg(test)]
mod tests;
mod walk;

pub use repair::{Orphans, plan};

use nasd_protocol::manager::{DirectoryEntry, FileHandle, FileType};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

/// What can be told of a volume, or why it can't.
pub type Told<T> = Result<T, Box<dyn Error>>;

/// A volume as it is looked at.
pub trait View {
    /// The root directory.
    fn root(&self) -> FileHandle;

    /// All objects that the drives hold for the volume, but for the volume record.
    ///
    /// # Errors
    /// A drive that is away: without its list nothing can be said.
    fn objects(&self) -> Told<BTreeSet<FileHandle>>;

    /// What the manager knows of a file.
    ///
    /// # Errors
    /// Where that can't be told at all.
    fn file(&self, file: FileHandle) -> Told<Seen>;

    /// The names in a directory; `None` if its contents can't be understood.
    ///
    /// # Errors
    /// Where that can't be told at all.
    fn entries(&self, directory: FileHandle) -> Told<Option<Vec<DirectoryEntry>>>;

    /// What `..` of a directory is, whether or not there is such an object.
    ///
    /// # Errors
    /// Where that can't be told at all.
    fn parent(&self, directory: FileHandle) -> Told<Option<FileHandle>>;

    /// Whether the manager has a use for an object that no name leads to.
    ///
    /// # Errors
    /// Where that can't be told.
    fn is_held(&self, object: FileHandle) -> Told<bool>;
}

/// What there is of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A file with these facts.
    File {
        /// What it is.
        file_type: FileType,
        /// How many names it says that it has.
        links: u32,
        /// Bytes.
        size: u64,
    },
    /// No object, or one that was never made a file.
    Nothing,
    /// An object whose record can't be understood, or on a drive that fails.
    Unreadable,
}

/// A name and the directory that it is in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The directory.
    pub directory: FileHandle,
    /// The name.
    pub name: Vec<u8>,
    /// The whole path, for people.
    pub path: String,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A name leads to nothing.
    DanglingName {
        /// The name.
        place: Place,
        /// What it names.
        file: FileHandle,
    },
    /// A file whose record can't be understood.
    UnreadableRecord {
        /// A name of it.
        place: Place,
        /// The file.
        file: FileHandle,
    },
    /// A directory whose contents can't be understood: what is in it is not reached.
    UnreadableDirectory {
        /// Where it is.
        path: String,
        /// The directory.
        directory: FileHandle,
    },
    /// A name says that the file is of another type than it is.
    WrongType {
        /// The name.
        place: Place,
        /// The file.
        file: FileHandle,
    },
    /// A file counts other names than it has.
    WrongLinks {
        /// One of its paths.
        path: String,
        /// The file.
        file: FileHandle,
        /// What it counts.
        counts: u32,
        /// How many names lead to it.
        names: u32,
    },
    /// A directory's `..` is not the directory that it is in.
    WrongParent {
        /// Where it is.
        path: String,
        /// The directory.
        directory: FileHandle,
        /// The directory that it is in.
        parent: FileHandle,
    },
    /// A directory has several names.
    SecondName {
        /// The one too many.
        place: Place,
        /// The directory.
        directory: FileHandle,
    },
    /// No name leads to an object.
    Orphan {
        /// The object.
        object: FileHandle,
        /// What it is, if it can be told.
        kind: Option<(OrphanType, u64)>,
    },
}

/// What an orphan is. Names within an orphan directory lead to the rest of its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrphanType {
    /// A directory, with all that is in it.
    Directory,
    /// Any other file.
    File,
}

impl Finding {
    /// What scripts call it.
    pub fn name(&self) -> &'static str {
        match self {
            Finding::DanglingName { .. } => "dangling-name",
            Finding::UnreadableRecord { .. } => "unreadable-record",
            Finding::UnreadableDirectory { .. } => "unreadable-directory",
            Finding::WrongType { .. } => "wrong-type",
            Finding::WrongLinks { .. } => "wrong-links",
            Finding::WrongParent { .. } => "wrong-parent",
            Finding::SecondName { .. } => "second-name",
            Finding::Orphan { .. } => "orphan",
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finding::DanglingName { place, file } => {
                write!(f, "{} leads to nothing ({})", place.path, shown(*file))
            }
            Finding::UnreadableRecord { place, file } => {
                write!(f, "{}: the record of {} can't be understood", place.path, shown(*file))
            }
            Finding::UnreadableDirectory { path, directory } => {
                write!(f, "{path}: the contents of {} can't be understood", shown(*directory))
            }
            Finding::WrongType { place, .. } => {
                write!(f, "{} is of another type than its name says", place.path)
            }
            Finding::WrongLinks { path, counts, names, .. } => {
                write!(f, "{path} counts {counts} names and has {names}")
            }
            Finding::WrongParent { path, .. } => write!(f, "{path}: its `..` leads elsewhere"),
            Finding::SecondName { place, .. } => {
                write!(f, "{} is one name too many of a directory", place.path)
            }
            Finding::Orphan { object, kind } => {
                let what = match kind {
                    Some((OrphanType::Directory, _)) => "a directory".to_owned(),
                    Some((OrphanType::File, size)) => format!("a file of {size} bytes"),
                    None => "nothing that can be understood".to_owned(),
                };
                write!(f, "no name leads to {}: {what}", shown(*object))
            }
        }
    }
}

/// An object, for people.
pub fn shown(object: FileHandle) -> String {
    format!("object {} of drive {:016x}", object.object, object.drive.0)
}

/// What was looked at.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Directories that a name leads to.
    pub directories: u64,
    /// Other files.
    pub files: u64,
    /// Objects at the drives.
    pub objects: u64,
    /// Something can't be read: what it leads to is not known, so nothing is said of orphans and of
    /// counts of names.
    pub incomplete: bool,
}

/// Looks twice, and tells what both passes found.
///
/// # Errors
/// Where something can't be told at all, as when a drive is away.
pub fn check(view: &dyn View) -> Result<(Counted, Vec<Finding>), Box<dyn Error>> {
    let (counted, first) = walk::pass(view)?;
    if first.is_empty() {
        return Ok((counted, Vec::new()));
    }
    let (counted, second) = walk::pass(view)?;
    Ok((counted, second.into_iter().filter(|finding| first.contains(finding)).collect()))
}

/// How many there are of each kind.
pub fn summary(findings: &[Finding]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        *counts.entry(finding.name()).or_default() += 1;
    }
    counts
}
