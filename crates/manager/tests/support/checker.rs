//! Reads the drives by itself, by the published formats, and says what the tree is and what is
//! wrong with it.

use std::collections::{BTreeMap, HashMap, HashSet};

use nasd_manager::directory::parse_directory;
use nasd_manager::file_record::FileRecord;
use nasd_manager::objects::memory::MemoryDrives;
use nasd_manager::objects::{ObjectStore, Wait};
use nasd_manager::volume::VolumeRecord;
use nasd_manager::xattr::{Attributes, parse_object};
use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::ObjectId;

use super::HOME;

/// What a path leads to. Files that two paths lead to have the same number, given in the order of
/// paths, so that trees of different drives can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub file_type: FileType,
    pub number: usize,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u32,
    pub target: Vec<u8>,
    pub attributes: Attributes,
}

pub type Tree = BTreeMap<String, Node>;

#[derive(Debug, Default)]
pub struct Report {
    pub tree: Tree,
    pub problems: Vec<String>,
    pub orphans: usize,
    pub orphan_handles: Vec<FileHandle>,
    /// Objects that were made ahead, and are no files yet.
    pub ahead: Vec<FileHandle>,
}

pub fn check(drives: &MemoryDrives) -> Report {
    let (mut report, reached) = check_reached(drives);
    let is_orphan =
        |object: &FileHandle| object.object != ObjectId::FIRST_OBJECT && !reached.contains(object);
    let is_ahead = |object: &FileHandle| {
        let found = drives.getattr(*object, Wait::Brief);
        found.is_ok_and(|found| found.fs_specific.starts_with(b"NFSA\0"))
    };
    let unnamed = drives.objects().into_iter().filter(is_orphan);
    (report.ahead, report.orphan_handles) = unnamed.partition(is_ahead);
    report.orphans = report.orphan_handles.len();
    report
}

/// The same of any drives, without what no name leads to.
pub fn check_tree(drives: &dyn ObjectStore) -> Report {
    check_reached(drives).0
}

fn check_reached(drives: &dyn ObjectStore) -> (Report, HashSet<FileHandle>) {
    let first = FileHandle {
        drive: HOME,
        partition: drives.partition(HOME).unwrap(),
        object: ObjectId::FIRST_OBJECT,
    };
    let data = read(drives, first);
    let volume = VolumeRecord::parse(&data).expect("a volume record");
    let mut checker = Checker {
        drives,
        report: Report::default(),
        names: HashMap::new(),
        attributes: HashSet::new(),
    };
    checker.directory("", volume.root, volume.root);
    let mut reached: HashSet<FileHandle> = checker.names.keys().copied().collect();
    reached.extend(&checker.attributes);
    reached.extend([first, volume.root, volume.log]);
    (checker.finish(), reached)
}

fn read(drives: &dyn ObjectStore, object: FileHandle) -> Vec<u8> {
    let size = drives.getattr(object, Wait::Brief).map_or(0, |found| found.logical_size);
    drives.read(object, 0, size, Wait::Brief).unwrap_or_default()
}

/// A name as text. What is none is written so that another name has another path: no name has a zero.
fn readable(name: &[u8]) -> String {
    let escaped = || format!("\0{}", name.escape_ascii());
    std::str::from_utf8(name).map_or_else(|_| escaped(), str::to_owned)
}

struct Checker<'a> {
    drives: &'a dyn ObjectStore,
    report: Report,
    /// Names seen of each file that is no directory.
    names: HashMap<FileHandle, Vec<String>>,
    /// Objects of extended attributes.
    attributes: HashSet<FileHandle>,
}

impl Checker<'_> {
    fn problem(&mut self, text: String) {
        self.report.problems.push(text);
    }

    fn directory(&mut self, path: &str, directory: FileHandle, parent: FileHandle) {
        let Some(record) = self.record(path, directory) else {
            return;
        };
        if record.parent != Some(parent) {
            self.problem(format!("`{path}`: its .. is {:?}, not {parent:?}", record.parent));
        }
        let entries = match parse_directory(directory.object, &read(self.drives, directory)) {
            Ok(entries) => entries,
            Err(error) => return self.problem(format!("`{path}`: {error}")),
        };
        let is_directory = |file_type| file_type == FileType::Directory;
        let below = entries.iter().filter(|entry| is_directory(entry.file_type)).count();
        let number = self.report.tree.len();
        self.add((path, directory), &record, number, 2 + below as u32, Vec::new());
        for entry in entries {
            let path = format!("{path}/{}", readable(&entry.name));
            if is_directory(entry.file_type) {
                if self.names.insert(entry.handle, Vec::new()).is_some() {
                    self.problem(format!("`{path}` is a second name of a directory"));
                } else {
                    self.directory(&path, entry.handle, directory);
                }
                continue;
            }
            let Some(record) = self.record(&path, entry.handle) else {
                continue;
            };
            if record.file_type != entry.file_type {
                self.problem(format!("`{path}` is a {:?}", record.file_type));
            }
            let target = match record.file_type {
                FileType::Symlink | FileType::MountPoint => read(self.drives, entry.handle),
                _ => Vec::new(),
            };
            self.add((&path, entry.handle), &record, 0, record.links, target);
            self.names.entry(entry.handle).or_default().push(path);
        }
    }

    fn record(&mut self, path: &str, file: FileHandle) -> Option<FileRecord> {
        let attributes = match self.drives.getattr(file, Wait::Brief) {
            Ok(attributes) => attributes,
            Err(error) => {
                self.problem(format!("`{path}` names nothing: {error}"));
                return None;
            }
        };
        match FileRecord::parse(&attributes.fs_specific) {
            Ok(record) => {
                if let Some(object) = record.attribute_handle(file)
                    && self.attributes.insert(object)
                    && parse_object(&read(self.drives, object)).is_none()
                {
                    self.problem(format!("`{path}`: its extended attributes are missing"));
                }
                Some(record)
            }
            Err(error) => {
                self.problem(format!("`{path}`: {error}"));
                None
            }
        }
    }

    fn add(
        &mut self,
        (path, file): (&str, FileHandle),
        record: &FileRecord,
        number: usize,
        links: u32,
        target: Vec<u8>,
    ) {
        let attributes = match record.attribute_handle(file) {
            Some(object) => parse_object(&read(self.drives, object)).unwrap_or_default(),
            None => record.inline.attributes(),
        };
        let node = Node {
            file_type: record.file_type,
            number,
            mode: record.mode,
            owner: (record.uid, record.gid),
            links,
            target,
            attributes,
        };
        self.report.tree.insert(path.to_owned(), node);
    }

    /// Counts names, and numbers files.
    fn finish(mut self) -> Report {
        let mut by_path: BTreeMap<String, FileHandle> = BTreeMap::new();
        for (handle, names) in &self.names {
            for name in names {
                by_path.insert(name.clone(), *handle);
            }
            let Some(first) = names.first() else { continue };
            let links = self.report.tree[first].links as usize;
            if links != names.len() {
                let text = format!("`{first}` has {} names and counts {links}", names.len());
                self.report.problems.push(text);
            }
        }
        let mut numbers = HashMap::new();
        for (path, handle) in by_path {
            let next = numbers.len() + 1;
            let number = *numbers.entry(handle).or_insert(next);
            if let Some(node) = self.report.tree.get_mut(&path) {
                node.number = number;
            }
        }
        for node in self.report.tree.values_mut() {
            if node.file_type == FileType::Directory {
                node.number = 0;
            }
        }
        self.report
    }
}
