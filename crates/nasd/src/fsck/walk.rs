//! One pass: the list of objects, the walk from the root, and what both tell together.

use super::{Counted, Finding, OrphanType, Place, Seen, View};
use nasd_protocol::manager::{FileHandle, FileType};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

/// What is known of a file that was reached.
struct Reached {
    path: String,
    names: u32,
    seen: Seen,
}

struct Walk<'a> {
    view: &'a dyn View,
    findings: Vec<Finding>,
    reached: BTreeMap<FileHandle, Reached>,
    counted: Counted,
    /// Directories whose names are still to be looked at.
    pending: Vec<(FileHandle, String)>,
}

/// Looks at all of the volume once.
///
/// # Errors
/// As [`View`].
pub fn pass(view: &dyn View) -> Result<(Counted, Vec<Finding>), Box<dyn Error>> {
    // First: what is made from now on is not in it.
    let objects = view.objects()?;
    let root = view.root();
    let mut walk = Walk {
        view,
        findings: Vec::new(),
        reached: BTreeMap::new(),
        counted: Counted { objects: objects.len() as u64, ..Counted::default() },
        pending: vec![(root, String::new())],
    };
    let seen = view.file(root)?;
    walk.reached.insert(root, Reached { path: "/".to_owned(), names: 1, seen });
    if view.parent(root)? != Some(root) {
        let path = "/".to_owned();
        walk.findings.push(Finding::WrongParent { path, directory: root, parent: root });
    }
    walk.go()?;
    walk.counted.incomplete = walk.findings.iter().any(|finding| {
        matches!(finding, Finding::UnreadableDirectory { .. } | Finding::UnreadableRecord { .. })
    });
    if !walk.counted.incomplete {
        walk.count_names();
        let orphans = walk.orphans(&objects)?;
        walk.findings.extend(orphans);
    }
    walk.findings.sort();
    Ok((walk.counted, walk.findings))
}

impl Walk<'_> {
    fn go(&mut self) -> Result<(), Box<dyn Error>> {
        while let Some((directory, path)) = self.pending.pop() {
            self.counted.directories += 1;
            match self.view.entries(directory)? {
                None => {
                    let path = if path.is_empty() { "/".to_owned() } else { path };
                    self.findings.push(Finding::UnreadableDirectory { path, directory });
                }
                Some(entries) => {
                    for entry in entries {
                        let name = entry.name.as_bytes().to_vec();
                        let below = format!("{path}/{}", entry.name);
                        let place = Place { directory, name, path: below };
                        self.name(place, entry.handle, entry.file_type)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A name that leads to a file.
    fn name(
        &mut self,
        place: Place,
        file: FileHandle,
        file_type: FileType,
    ) -> Result<(), Box<dyn Error>> {
        if let Some(known) = self.reached.get_mut(&file) {
            known.names += 1;
            if file_type == FileType::Directory {
                // The name that its `..` agrees with is the one that stays.
                let at_home = self.view.parent(file)? == Some(place.directory);
                if !at_home {
                    self.findings.push(Finding::SecondName { place, directory: file });
                }
            }
            return Ok(());
        }
        let seen = self.view.file(file)?;
        match seen {
            Seen::Nothing => self.findings.push(Finding::DanglingName { place, file }),
            Seen::Unreadable => {
                self.reached.insert(file, Reached { path: place.path.clone(), names: 1, seen });
                self.findings.push(Finding::UnreadableRecord { place, file });
            }
            Seen::File { file_type: real, .. } => {
                let path = place.path.clone();
                self.reached.insert(file, Reached { path: path.clone(), names: 1, seen });
                if real == FileType::Directory {
                    self.directory(&place, file)?;
                } else {
                    self.counted.files += 1;
                }
                if real != file_type {
                    self.findings.push(Finding::WrongType { place, file });
                }
            }
        }
        Ok(())
    }

    fn directory(&mut self, place: &Place, directory: FileHandle) -> Result<(), Box<dyn Error>> {
        let parent = self.view.parent(directory)?;
        if parent != Some(place.directory) {
            let elsewhere = match parent {
                Some(parent) => self.has_name_of(parent, directory)?,
                None => false,
            };
            self.findings.push(match elsewhere {
                true => Finding::SecondName { place: place.clone(), directory },
                false => Finding::WrongParent {
                    path: place.path.clone(),
                    directory,
                    parent: place.directory,
                },
            });
        }
        self.pending.push((directory, place.path.clone()));
        Ok(())
    }

    /// Whether a directory has a name for a file.
    fn has_name_of(&self, directory: FileHandle, file: FileHandle) -> Result<bool, Box<dyn Error>> {
        let is_directory =
            matches!(self.view.file(directory)?, Seen::File { file_type: FileType::Directory, .. });
        if !is_directory {
            return Ok(false);
        }
        let entries = self.view.entries(directory)?.unwrap_or_default();
        Ok(entries.iter().any(|entry| entry.handle == file))
    }

    fn count_names(&mut self) {
        for (file, reached) in &self.reached {
            let Seen::File { file_type, links, .. } = reached.seen else { continue };
            if file_type != FileType::Directory && links != reached.names {
                self.findings.push(Finding::WrongLinks {
                    path: reached.path.clone(),
                    file: *file,
                    counts: links,
                    names: reached.names,
                });
            }
        }
    }

    /// The objects that nothing leads to, but for those that another of them leads to.
    fn orphans(&self, objects: &BTreeSet<FileHandle>) -> Result<Vec<Finding>, Box<dyn Error>> {
        let mut lost = BTreeMap::new();
        let mut below = BTreeSet::new();
        for object in objects.iter().filter(|object| !self.reached.contains_key(object)) {
            if self.view.is_held(*object)? {
                continue;
            }
            let kind = match self.view.file(*object)? {
                Seen::File { file_type: FileType::Directory, size, .. } => {
                    let entries = self.view.entries(*object)?.unwrap_or_default();
                    below.extend(entries.iter().map(|entry| entry.handle));
                    Some((OrphanType::Directory, size))
                }
                Seen::File { size, .. } => Some((OrphanType::File, size)),
                Seen::Nothing | Seen::Unreadable => None,
            };
            lost.insert(*object, kind);
        }
        let tops = lost.into_iter().filter(|(object, _)| !below.contains(object));
        Ok(tops.map(|(object, kind)| Finding::Orphan { object, kind }).collect())
    }
}
