//! A volume in memory, with one defect planted for each finding.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use super::*;
use nasd_protocol::manager::{Name, RepairAction};
use nasd_types::{DriveId, ObjectId, PartitionId};
use std::cell::{Cell, RefCell};

/// What a file of the volume is.
#[derive(Clone)]
struct Node {
    file_type: FileType,
    links: u32,
    parent: Option<u64>,
    entries: Vec<(&'static str, u64, FileType)>,
    readable: bool,
}

#[derive(Clone, Default)]
struct Memory {
    nodes: BTreeMap<u64, Node>,
    held: BTreeSet<u64>,
    /// Something that is only there in the first pass.
    passing: RefCell<Option<u64>>,
    passes: Cell<u32>,
}

fn handle(object: u64) -> FileHandle {
    FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(object) }
}

const ROOT: u64 = 64;

impl Memory {
    /// `/a` (70, with a second name `/d/b`), `/d` (71), `/d/e` (72), `/d/e/f` (73); 80 is held.
    fn healthy() -> Memory {
        let file = |links| Node {
            file_type: FileType::Regular,
            links,
            parent: None,
            entries: Vec::new(),
            readable: true,
        };
        let directory = |parent, entries: &[(&'static str, u64, FileType)]| Node {
            file_type: FileType::Directory,
            parent: Some(parent),
            entries: entries.to_vec(),
            ..file(2)
        };
        let (regular, below) = (FileType::Regular, FileType::Directory);
        let mut memory = Memory::default();
        memory.nodes.insert(ROOT, directory(ROOT, &[("a", 70, regular), ("d", 71, below)]));
        memory.nodes.insert(70, file(2));
        memory.nodes.insert(71, directory(ROOT, &[("b", 70, regular), ("e", 72, below)]));
        memory.nodes.insert(72, directory(71, &[("f", 73, regular)]));
        memory.nodes.insert(73, file(1));
        memory.nodes.insert(80, Node { readable: false, ..file(1) });
        memory.held.insert(80);
        memory
    }

    fn node(&mut self, object: u64) -> &mut Node {
        self.nodes.get_mut(&object).unwrap()
    }

    fn found(&self) -> Vec<Finding> {
        check(self).unwrap().1
    }
}

impl View for Memory {
    fn root(&self) -> FileHandle {
        handle(ROOT)
    }

    fn objects(&self) -> Result<BTreeSet<FileHandle>, Box<dyn Error>> {
        self.passes.set(self.passes.get() + 1);
        let passing = if self.passes.get() == 1 { *self.passing.borrow() } else { None };
        Ok(self.nodes.keys().copied().chain(passing).map(handle).collect())
    }

    fn file(&self, file: FileHandle) -> Result<Seen, Box<dyn Error>> {
        Ok(match self.nodes.get(&file.object.0) {
            None => Seen::Nothing,
            Some(node) if !node.readable => Seen::Unreadable,
            Some(node) => Seen::File { file_type: node.file_type, links: node.links, size: 1 },
        })
    }

    fn entries(
        &self,
        directory: FileHandle,
    ) -> Result<Option<Vec<DirectoryEntry>>, Box<dyn Error>> {
        let node = &self.nodes[&directory.object.0];
        let entry = |(name, object, file_type): &(&str, u64, FileType)| DirectoryEntry {
            cookie: 3,
            handle: handle(*object),
            file_type: *file_type,
            name: Name::new(name).unwrap(),
        };
        Ok(node.parent.map(|_| node.entries.iter().map(entry).collect()))
    }

    fn parent(&self, directory: FileHandle) -> Result<Option<FileHandle>, Box<dyn Error>> {
        let node = self.nodes.get(&directory.object.0);
        Ok(node.and_then(|node| node.parent).map(handle))
    }

    fn is_held(&self, object: FileHandle) -> Result<bool, Box<dyn Error>> {
        Ok(self.held.contains(&object.object.0))
    }
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(Finding::name).collect()
}

#[test]
fn a_healthy_volume_is_counted_and_nothing_found() {
    let (counted, found) = check(&Memory::healthy()).unwrap();
    assert_eq!(found, []);
    assert_eq!((counted.directories, counted.files, counted.objects), (3, 2, 6));
}

#[test]
fn each_planted_defect_is_found_and_no_other() {
    type Plant = fn(&mut Memory);
    let cases: &[(&str, Plant)] = &[
        ("dangling-name", |memory| drop(memory.nodes.remove(&73))),
        ("unreadable-record", |memory| memory.node(73).readable = false),
        ("wrong-type", |memory| memory.node(72).entries[0].2 = FileType::Symlink),
        ("wrong-links", |memory| memory.node(70).links = 3),
        ("wrong-parent", |memory| memory.node(72).parent = Some(ROOT)),
        ("wrong-parent", |memory| memory.node(ROOT).parent = Some(71)),
        ("second-name", |memory| {
            memory.node(ROOT).entries.push(("again", 72, FileType::Directory));
        }),
        ("orphan", |memory| memory.node(72).entries.clear()),
        ("orphan", |memory| memory.held.clear()),
    ];
    for (name, plant) in cases {
        let mut memory = Memory::healthy();
        plant(&mut memory);
        assert_eq!(names(&memory.found()), [*name]);
    }
    // A directory whose contents can't be read hides what is in it: that is no orphan, nor miscounted.
    let mut memory = Memory::healthy();
    memory.node(72).parent = None;
    memory.node(72).entries.clear();
    let found = memory.found();
    assert!(names(&found).contains(&"unreadable-directory"), "{found:?}");
    assert!(!names(&found).contains(&"orphan"), "{found:?}");
    assert!(check(&memory).unwrap().0.incomplete);
}

#[test]
fn an_orphan_tree_is_one_finding() {
    let mut memory = Memory::healthy();
    memory.node(71).entries.pop();
    let found = memory.found();
    let Some(Finding::Orphan { object, kind: Some((OrphanType::Directory, _)) }) = found.first()
    else {
        panic!("{found:?}");
    };
    assert_eq!((*object, found.len()), (handle(72), 1));
}

#[test]
fn what_only_one_pass_finds_is_not_reported() {
    let memory = Memory::healthy();
    *memory.passing.borrow_mut() = Some(99);
    assert_eq!(memory.found(), []);
    assert_eq!(memory.passes.get(), 2);
}

#[test]
fn plans_say_what_is_done_in_an_order_that_works() {
    let mut memory = Memory::healthy();
    memory.nodes.remove(&73);
    memory.node(70).links = 9;
    memory.node(72).parent = Some(ROOT);
    memory.held.clear();
    memory.nodes.insert(81, Node { readable: true, ..memory.nodes[&70].clone() });
    let found = memory.found();
    let actions = |orphans| -> Vec<(RepairAction, u64)> {
        let plan = plan(&found, orphans);
        plan.iter().map(|(asked, _)| (asked.action, asked.file.object.0)).collect()
    };
    let kept = [
        (RepairAction::RemoveName, 73),
        (RepairAction::SetParent, 72),
        (RepairAction::SetLinks, 70),
        (RepairAction::AdoptOrphan, 81),
    ];
    assert_eq!(actions(Orphans::Adopt(handle(90))), kept);
    assert_eq!(
        actions(Orphans::Remove)[3..],
        [(RepairAction::RemoveOrphan, 80), (RepairAction::RemoveOrphan, 81)]
    );
    let texts: Vec<String> =
        plan(&found, Orphans::Adopt(handle(90))).into_iter().map(|(_, text)| text).collect();
    assert!(texts[0].contains("/d/e/f") && texts[3].contains("lost+found/"), "{texts:?}");
}
