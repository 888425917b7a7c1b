//! A tree in memory with the rules of POSIX for root, to compare a volume with.

use std::collections::BTreeMap;

use nasd_protocol::manager::{FileType, ManagerStatus};

use super::checker::Tree;
use super::operation::Op;

use ManagerStatus::*;

type Outcome<T> = Result<T, ManagerStatus>;

#[derive(Clone, Debug)]
pub struct RefNode {
    pub file_type: FileType,
    pub links: u32,
    pub target: Vec<u8>,
    /// Names and lengths of its extended attributes.
    pub attributes: BTreeMap<u8, usize>,
    parent: usize,
    children: BTreeMap<String, usize>,
}

/// Nodes by number; 0 is the root. Removed ones stay, without a name.
#[derive(Clone, Debug)]
pub struct Reference {
    nodes: Vec<RefNode>,
}

impl Default for Reference {
    fn default() -> Self {
        Reference::new()
    }
}

impl Reference {
    pub fn new() -> Reference {
        Reference { nodes: vec![RefNode::new(FileType::Directory, 0)] }
    }

    pub fn run(&mut self, operation: &Op) -> Outcome<()> {
        match operation {
            Op::Create { path, exclusive } => self.make(path, FileType::Regular, "", *exclusive),
            Op::Mkdir(path) => self.make(path, FileType::Directory, "", true),
            Op::Symlink { path, target } => self.make(path, FileType::Symlink, target, true),
            Op::Mkmount { path, volume } => self.make(path, FileType::MountPoint, volume, true),
            Op::Unlink(path) => self.unlink(path),
            Op::Rmdir(path) => self.rmdir(path),
            Op::Link { from, to } => self.link(from, to),
            Op::Rename { from, to, no_replace } => self.rename(from, to, *no_replace),
            Op::Exchange { from, to } => self.exchange(from, to),
            Op::Mknod(path) => self.make(path, FileType::Fifo, "", true),
            Op::Setxattr { path, name, bytes } => {
                let node = self.find(path).ok_or(NotFound)?;
                self.nodes[node].attributes.insert(*name, *bytes);
                Ok(())
            }
            Op::Chmod(path, _) => self.find(path).map(|_| ()).ok_or(NotFound),
        }
    }

    /// The node of a path, as names joined by slashes.
    pub fn find(&self, path: &str) -> Option<usize> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(0, |node, name| self.nodes[node].children.get(name).copied())
    }

    /// The node of the directory that a path's last name is in.
    fn parent_of(&self, path: &str) -> Option<usize> {
        self.find(path.rsplit_once('/')?.0)
    }

    fn name(path: &str) -> &str {
        path.rsplit('/').next().unwrap()
    }

    fn directory(&self, path: &str) -> Outcome<usize> {
        let node = self.parent_of(path).ok_or(NotFound)?;
        if self.nodes[node].is_directory() { Ok(node) } else { Err(NotDirectory) }
    }

    fn make(
        &mut self,
        path: &str,
        file_type: FileType,
        target: &str,
        exclusive: bool,
    ) -> Outcome<()> {
        let directory = self.directory(path)?;
        if self.find(path).is_some() {
            return if exclusive { Err(Exists) } else { Ok(()) };
        }
        let mut node = RefNode::new(file_type, directory);
        node.target = target.as_bytes().to_vec();
        self.nodes.push(node);
        let number = self.nodes.len() - 1;
        self.nodes[directory].children.insert(Self::name(path).to_owned(), number);
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        let directory = self.directory(path)?;
        let node = self.find(path).ok_or(NotFound)?;
        if self.nodes[node].is_directory() {
            return Err(IsDirectory);
        }
        self.nodes[node].links -= 1;
        self.nodes[directory].children.remove(Self::name(path));
        Ok(())
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        let directory = self.directory(path)?;
        let node = self.find(path).ok_or(NotFound)?;
        if !self.nodes[node].is_directory() {
            return Err(NotDirectory);
        }
        if !self.nodes[node].children.is_empty() {
            return Err(NotEmpty);
        }
        self.nodes[directory].children.remove(Self::name(path));
        Ok(())
    }

    fn link(&mut self, from: &str, to: &str) -> Outcome<()> {
        let node = self.find(from).ok_or(NotFound)?;
        self.parent_of(to).ok_or(NotFound)?;
        if matches!(self.nodes[node].file_type, FileType::Directory | FileType::MountPoint) {
            return Err(Permission);
        }
        let directory = self.directory(to)?;
        if self.find(to).is_some() {
            return Err(Exists);
        }
        self.nodes[node].links += 1;
        self.nodes[directory].children.insert(Self::name(to).to_owned(), node);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, no_replace: bool) -> Outcome<()> {
        self.parent_of(from).and(self.parent_of(to)).ok_or(NotFound)?;
        let old = self.directory(from)?;
        let node = self.find(from).ok_or(NotFound)?;
        let new = self.directory(to)?;
        let victim = self.find(to);
        if victim.is_some() && no_replace {
            return Err(Exists);
        }
        if victim == Some(node) {
            return Ok(());
        }
        let moved = self.nodes[node].is_directory();
        if moved && self.is_above(node, new) {
            return Err(Invalid);
        }
        if victim.is_some_and(|victim| old != new && self.is_above(victim, old)) {
            return Err(NotEmpty);
        }
        if let Some(victim) = victim {
            match (moved, self.nodes[victim].is_directory()) {
                (true, false) => return Err(NotDirectory),
                (false, true) => return Err(IsDirectory),
                (true, true) if !self.nodes[victim].children.is_empty() => return Err(NotEmpty),
                (true, true) => {}
                (false, false) if self.nodes[victim].file_type == FileType::MountPoint => {
                    return Err(Exists);
                }
                (false, false) => self.nodes[victim].links -= 1,
            }
        }
        self.nodes[old].children.remove(Self::name(from));
        self.nodes[new].children.insert(Self::name(to).to_owned(), node);
        self.nodes[node].parent = new;
        Ok(())
    }

    fn exchange(&mut self, from: &str, to: &str) -> Outcome<()> {
        self.parent_of(from).and(self.parent_of(to)).ok_or(NotFound)?;
        let old = self.directory(from)?;
        let node = self.find(from).ok_or(NotFound)?;
        let new = self.directory(to)?;
        let other = self.find(to).ok_or(NotFound)?;
        if node == other {
            return Ok(());
        }
        let into_itself =
            |moved: usize, to| self.nodes[moved].is_directory() && self.is_above(moved, to);
        if into_itself(node, new) || into_itself(other, old) {
            return Err(Invalid);
        }
        self.nodes[old].children.insert(Self::name(from).to_owned(), other);
        self.nodes[new].children.insert(Self::name(to).to_owned(), node);
        self.nodes[node].parent = new;
        self.nodes[other].parent = old;
        Ok(())
    }

    fn is_above(&self, above: usize, mut below: usize) -> bool {
        while below != above && below != 0 {
            below = self.nodes[below].parent;
        }
        below == above
    }

    /// All paths, with their nodes and the number of links that `stat` tells.
    pub fn paths(&self) -> BTreeMap<String, (usize, u32)> {
        let mut paths = BTreeMap::new();
        let mut pending = vec![(String::new(), 0)];
        while let Some((path, number)) = pending.pop() {
            let node = &self.nodes[number];
            let below = node.children.values().filter(|child| self.nodes[**child].is_directory());
            let links = if node.is_directory() { 2 + below.count() as u32 } else { node.links };
            pending.extend(
                node.children.iter().map(|(name, child)| (format!("{path}/{name}"), *child)),
            );
            paths.insert(path, (number, links));
        }
        paths
    }

    /// Whether this is the tree that was found.
    pub fn is(&self, tree: &Tree) -> bool {
        let paths = self.paths();
        paths.len() == tree.len()
            && paths.iter().all(|(path, (number, links))| {
                let expected = &self.nodes[*number];
                tree.get(path).is_some_and(|found| {
                    found.links == *links
                        && found.file_type == expected.file_type
                        && found.target == expected.target
                })
            })
    }

    pub fn node(&self, number: usize) -> &RefNode {
        &self.nodes[number]
    }
}

impl RefNode {
    fn new(file_type: FileType, parent: usize) -> RefNode {
        let (target, children, attributes) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        RefNode { file_type, links: 1, target, attributes, parent, children }
    }

    fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }
}
