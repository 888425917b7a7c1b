//! Where a path leads, for somebody: one name after the other, each by the descriptor of the directory before.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use nasd_client::Caller;
use nasd_protocol::bulk_desk::{DeskPath, DeskStatus};
use nasd_protocol::manager::FileType;
use rustix::fs::{Mode, OFlags, readlinkat};
use rustix::io::Errno;

use super::node::Node;
use super::permission::{SEARCH, STICKY, require};
use super::status::status_of;
use crate::directory::confined::open_name;

/// Most links on one way, as in the kernel.
const MOST_LINKS: usize = 40;

/// Most bytes of a path that the kernel takes, less the zero byte.
const MOST_BYTES: usize = 4095;

/// Most directories on one way: each takes a descriptor meanwhile.
const MOST_DEPTH: usize = 256;

/// Others may write.
const WORLD_WRITABLE: u32 = 0o002;

/// Who goes, and from where.
#[derive(Clone, Copy)]
pub(super) struct Walker<'a> {
    pub(super) root: BorrowedFd<'a>,
    pub(super) caller: &'a Caller,
    /// Whether links in sticky directories that all may write lead nobody but their owners: `fs.protected_symlinks`.
    pub(super) protects_links: bool,
}

/// Where a path led to.
pub(super) struct Spot {
    /// The directories on the way, from the one that is served on, with their names. Never empty.
    way: Vec<(Vec<u8>, Node)>,
    /// What is asked for in the last of them.
    last: Last,
}

enum Last {
    /// The directory itself.
    Here,
    /// What has this name, if anything has.
    Name(Vec<u8>, Option<Node>),
}

/// A name in a directory.
pub(super) struct Named<'a> {
    pub(super) directory: &'a Node,
    pub(super) name: &'a [u8],
    pub(super) node: Option<&'a Node>,
}

impl Spot {
    /// What is there.
    pub(super) fn node(&self) -> Result<&Node, DeskStatus> {
        let here = self.way.last().map(|(_, node)| node);
        let node = match &self.last {
            Last::Here => here,
            Last::Name(_, node) => node.as_ref(),
        };
        node.ok_or(DeskStatus::NotFound)
    }

    /// The name that it has; none where the path ends with the directory itself, `.` or `..`.
    pub(super) fn named(&self) -> Option<Named<'_>> {
        match (&self.last, self.way.last()) {
            (Last::Name(name, node), Some((_, directory))) => {
                Some(Named { directory, name, node: node.as_ref() })
            }
            _ => None,
        }
    }

    /// The path without links.
    pub(super) fn path(&self) -> Result<Vec<u8>, DeskStatus> {
        let mut names: Vec<&[u8]> = self.way.iter().skip(1).map(|(name, _)| &**name).collect();
        if let Last::Name(name, _) = &self.last {
            names.push(name);
        }
        let path = names.join(&b'/');
        if path.len() <= MOST_BYTES { Ok(path) } else { Err(DeskStatus::NameTooLong) }
    }
}

impl Walker<'_> {
    /// Goes where a path leads, as far as the caller may. A link at its end is followed if that is wanted. What the last name
    /// is for need not exist.
    pub(super) fn walk(&self, path: &DeskPath, follow: bool) -> Result<Spot, DeskStatus> {
        let components = path.components().ok_or(DeskStatus::Invalid)?;
        if path.as_bytes().len() > MOST_BYTES {
            return Err(DeskStatus::NameTooLong);
        }
        let mut left: VecDeque<Vec<u8>> = components.into_iter().map(<[u8]>::to_vec).collect();
        let root = open_name(self.root, b".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        let root = root.and_then(Node::of).map_err(status_of)?;
        let mut way = vec![(Vec::new(), root)];
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let (_, here) = way.last().ok_or(DeskStatus::CrossDevice)?;
            require(here, self.caller, SEARCH)?;
            let is_last = left.is_empty();
            match &*name {
                b"." => continue,
                b".." if way.len() == 1 => return Err(DeskStatus::CrossDevice),
                b".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let found = open_name(here, &name, OFlags::PATH, Mode::empty()).and_then(Node::of);
            let node = match found {
                Err(Errno::NOENT) if is_last => {
                    return Ok(Spot { way, last: Last::Name(name, None) });
                }
                found => found.map_err(status_of)?,
            };
            match node.facts().file_type {
                FileType::Symlink if !is_last || follow => {
                    links += 1;
                    let target = self.follow((here, &node), links, is_last)?;
                    target.into_iter().rev().for_each(|name| left.push_front(name));
                }
                _ if is_last => return Ok(Spot { way, last: Last::Name(name, Some(node)) }),
                FileType::Directory if way.len() >= MOST_DEPTH => {
                    return Err(DeskStatus::NameTooLong);
                }
                FileType::Directory => way.push((name, node)),
                _ => return Err(DeskStatus::NotDirectory),
            }
        }
        Ok(Spot { way, last: Last::Here })
    }

    /// The names that a link in a directory stands for.
    fn follow(
        &self,
        (directory, link): (&Node, &Node),
        links: usize,
        is_last: bool,
    ) -> Result<Vec<Vec<u8>>, DeskStatus> {
        if links > MOST_LINKS {
            return Err(DeskStatus::Loop);
        }
        let (directory, owner) = (directory.facts(), link.facts().uid);
        let is_common = directory.mode & (STICKY | WORLD_WRITABLE) == STICKY | WORLD_WRITABLE;
        let is_trusted = owner == self.caller.uid || owner == directory.uid;
        if self.protects_links && is_last && is_common && !is_trusted {
            return Err(DeskStatus::Access);
        }
        let target = readlinkat(link, "", Vec::new()).map_err(status_of)?.into_bytes();
        if target.is_empty() || target.starts_with(b"/") {
            return Err(DeskStatus::CrossDevice);
        }
        let names = target.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }
}
