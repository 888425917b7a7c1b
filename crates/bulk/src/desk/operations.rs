//! What is asked of names: look, list, make, rename, remove, set.

use std::io;
use std::mem::MaybeUninit;

use nasd_client::Caller;
use nasd_protocol::bulk_desk::{
    DeskPath, DeskStatus, Entry, FileFacts, ListArguments, MAX_DESK_ENTRIES, ModeArguments, Page,
    RenameArguments, SettimeArguments,
};
use nasd_protocol::manager::{FileType, Name};
use rustix::fs::{
    AtFlags, Mode, OFlags, RawDir, RawDirEntry, SeekFrom, Timespec, Timestamps, UTIME_OMIT, chmod,
    mkdirat, renameat, seek, statx, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::Desk;
use super::acl::has_default;
use super::acting::run_as;
use super::node::{Node, TOLD, facts_of};
use super::permission::{
    READ, SEARCH, WRITE, is_in_group, permits, require, require_change, require_owner,
    require_removal,
};
use super::status::status_of;
use super::walk::{Named, Spot, Walker};
use crate::directory::confined::open_name;

/// What an operation comes to.
pub(super) type Outcome<T> = Result<T, DeskStatus>;

/// Most bytes of the entries of one page.
const PAGE_BYTES: usize = 48 << 10;

/// Bytes that the kernel tells of a directory at a time.
const KERNEL_BYTES: usize = 16 << 10;

/// Permission bits, and those of them that are for running programs.
const MODE_BITS: u32 = 0o7777;
const SET_IDS: u32 = 0o6000;
const SET_GID: u32 = 0o2000;

/// A caller at the desk.
pub(super) struct Visit<'a> {
    pub(super) desk: &'a Desk,
    pub(super) caller: Caller,
}

impl Visit<'_> {
    pub(super) fn walk(&self, path: &DeskPath, follow: bool) -> Outcome<Spot> {
        let root = self.desk.directory.confined().root();
        let protects_links = self.desk.protects_links;
        Walker { root, caller: &self.caller, protects_links }.walk(path, follow)
    }

    pub(super) fn require_writable(&self) -> Outcome<()> {
        if self.desk.directory.is_read_only() { Err(DeskStatus::ReadOnly) } else { Ok(()) }
    }

    /// Does something that changes the directory: as the caller, where the system lets this process be others.
    pub(super) fn change<T: Send>(&self, work: impl FnOnce() -> Outcome<T> + Send) -> Outcome<T> {
        if self.desk.acts { run_as(&self.caller, work) } else { work() }
    }

    pub(super) fn look(&self, path: &DeskPath) -> Outcome<FileFacts> {
        Ok(self.walk(path, true)?.node()?.facts())
    }

    pub(super) fn list(&self, asked: &ListArguments) -> Outcome<Page> {
        let spot = self.walk(&asked.path, true)?;
        let directory = spot.node()?;
        if !directory.is_directory() {
            return Err(DeskStatus::NotDirectory);
        }
        require(directory, &self.caller, READ)?;
        let tells_facts = permits(directory, &self.caller, SEARCH)?;
        page(directory, asked, tells_facts).map_err(status_of)
    }

    pub(super) fn mkdir(&self, asked: &ModeArguments) -> Outcome<FileFacts> {
        self.require_writable()?;
        let spot = self.walk(&asked.path, false)?;
        let Named { directory, name, node: None } = spot.named().ok_or(DeskStatus::Exists)? else {
            return Err(DeskStatus::Exists);
        };
        require_change(directory, &self.caller)?;
        let has_default = has_default(directory).map_err(status_of)?;
        let (made, inherits) = self.change(|| {
            mkdirat(directory, name, mode_of(asked.mode & 0o1777)).map_err(status_of)?;
            let made = open_name(directory, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
            let made = made.and_then(Node::of).map_err(status_of)?;
            let inherited = made.facts().mode & SET_IDS;
            // What has the name now may be another's: the kernel knows whether the caller may change its mode.
            if self.desk.acts && !has_default {
                let mode = asked.mode & 0o1777 | inherited;
                chmod(&*made.by_descriptor(), mode_of(mode)).map_err(status_of)?;
            }
            Ok((made, inherited & SET_GID != 0))
        })?;
        let facts = made.facts_now()?;
        if inherits && facts.mode & SET_GID == 0 && self.is_as_made(&facts, directory) {
            // The kernel took it from who is not in the group, though mkdir gives it to everybody.
            let mode = facts.mode | SET_GID;
            chmod(&*made.by_descriptor(), mode_of(mode)).map_err(status_of)?;
            return made.facts_now();
        }
        Ok(facts)
    }

    /// Whether something could be what the caller has made in a directory that gives its group on.
    fn is_as_made(&self, facts: &FileFacts, directory: &Node) -> bool {
        let parent = directory.facts();
        let is_inherited = parent.mode & SET_GID != 0 && facts.gid == parent.gid;
        is_inherited && facts.uid == self.caller.uid && facts.file_type == FileType::Directory
    }

    pub(super) fn rename(&self, asked: &RenameArguments) -> Outcome<()> {
        self.require_writable()?;
        let (from, to) = (self.walk(&asked.from, false)?, self.walk(&asked.to, false)?);
        let from = from.named().ok_or(DeskStatus::Invalid)?;
        let to = to.named().ok_or(DeskStatus::Invalid)?;
        let moved = from.node.ok_or(DeskStatus::NotFound)?;
        require_removal(from.directory, moved, &self.caller)?;
        match to.node {
            Some(replaced) => require_removal(to.directory, replaced, &self.caller)?,
            None => require_change(to.directory, &self.caller)?,
        }
        // Its `..` changes.
        if moved.is_directory() && from.directory.identity() != to.directory.identity() {
            require(moved, &self.caller, WRITE)?;
        }
        self.change(|| {
            renameat(from.directory, from.name, to.directory, to.name).map_err(status_of)
        })
    }

    pub(super) fn remove(&self, path: &DeskPath) -> Outcome<()> {
        self.require_writable()?;
        let spot = self.walk(path, false)?;
        let Named { directory, name, node } = spot.named().ok_or(DeskStatus::Invalid)?;
        let node = node.ok_or(DeskStatus::NotFound)?;
        require_removal(directory, node, &self.caller)?;
        let flags = if node.is_directory() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.change(|| unlinkat(directory, name, flags).map_err(status_of))
    }

    pub(super) fn settime(&self, asked: &SettimeArguments) -> Outcome<FileFacts> {
        self.require_writable()?;
        let spot = self.walk(&asked.path, true)?;
        let node = spot.node()?;
        require_owner(node, &self.caller)?;
        let time = asked.modify_time;
        let tv_sec = i64::try_from(time.seconds()).map_err(|_| DeskStatus::Invalid)?;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec { tv_sec, tv_nsec: time.subsecond_ns().into() },
        };
        let set = || utimensat(node, "", &times, AtFlags::EMPTY_PATH).map_err(status_of);
        self.change(set)?;
        node.facts_now()
    }

    pub(super) fn setmode(&self, asked: &ModeArguments) -> Outcome<FileFacts> {
        self.require_writable()?;
        if asked.mode & !MODE_BITS != 0 {
            return Err(DeskStatus::Invalid);
        }
        let spot = self.walk(&asked.path, true)?;
        let node = spot.node()?;
        require_owner(node, &self.caller)?;
        let is_strange = self.caller.uid != 0 && !is_in_group(&self.caller, node.facts().gid);
        let mode = if is_strange { asked.mode & !SET_GID } else { asked.mode };
        let set = || chmod(&*node.by_descriptor(), mode_of(mode)).map_err(status_of);
        self.change(set)?;
        node.facts_now()
    }
}

pub(super) fn mode_of(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// The entries of a directory from a cookie on.
fn page(directory: &Node, asked: &ListArguments, tells_facts: bool) -> Result<Page, Errno> {
    let most = match asked.most as usize {
        0 => MAX_DESK_ENTRIES,
        most => most.min(MAX_DESK_ENTRIES),
    };
    let open = open_name(directory, b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    if i64::try_from(asked.cookie).is_err() {
        return Err(Errno::INVAL);
    }
    seek(&open, SeekFrom::Start(asked.cookie))?;
    let mut page = Page { entries: Vec::new(), cookie: asked.cookie, end: false };
    let (mut bytes, mut room) = (0, vec![MaybeUninit::uninit(); KERNEL_BYTES]);
    let mut told = RawDir::new(&open, &mut room);
    while page.entries.len() < most && bytes + Entry::MOST_BYTES <= PAGE_BYTES {
        let Some(found) = told.next() else {
            page.end = true;
            break;
        };
        let found = found?;
        if let Some(entry) = entry(directory, &found, tells_facts)? {
            bytes += entry.encoded_bytes();
            page.entries.push(entry);
        }
        page.cookie = found.next_entry_cookie();
    }
    Ok(page)
}

/// An entry as it is told; `None` of what is no file's name, or no more.
fn entry(
    directory: &Node,
    found: &RawDirEntry<'_>,
    tells_facts: bool,
) -> Result<Option<Entry>, Errno> {
    let name = found.file_name();
    if matches!(name.to_bytes(), b"." | b"..") {
        return Ok(None);
    }
    let facts = match statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, TOLD) {
        Err(Errno::NOENT) => return Ok(None),
        told => facts_of(&told?),
    };
    let Ok(name) = Name::new(name.to_bytes()) else {
        return Ok(None);
    };
    let file_type = facts.file_type;
    Ok(Some(Entry { name, file_type, facts: tells_facts.then_some(facts) }))
}

/// What the system says of an error that is not a number.
pub(super) fn status_of_io(error: &io::Error) -> DeskStatus {
    status_of(Errno::from_io_error(error).unwrap_or(Errno::IO))
}
