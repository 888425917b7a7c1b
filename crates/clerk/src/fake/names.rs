//! The fake file manager: a tree of names in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use nasd_capability::{Capability, SecretKey};
use nasd_types::{AuditId, ByteRange, CellId, DriveId, Personality, Protection, Rights, Timestamp};

use super::drive::now;
use super::{FIRST_DRIVE, FakeCell};
use crate::ClerkError;
use crate::backend::Names;
use crate::wire::{
    Caller, CellStatus, Changed, Cut, Device, DirectoryEntry, DirectoryPage, DriveAddress,
    Extended, File, FileAccess, FileAttributes, FileHandle, FilePage, FileType, IssuedCapability,
    ListedFile, ManagerStatus, Name, NewMode, Readable, Readables, RenameFlags, Returned,
    SetFileAttributes, SpaceInformation, Volume, Writable, XattrFlags,
};

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

/// All files.
#[derive(Default)]
pub(super) struct Tree {
    nodes: HashMap<FileHandle, Node>,
    root: Option<FileHandle>,
    next_cookie: u64,
}

struct Node {
    file_type: FileType,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    access_time: Timestamp,
    create_time: Timestamp,
    /// Name to (cookie, file), for directories.
    children: BTreeMap<Name, (u64, FileHandle)>,
    parent: Option<FileHandle>,
    device: Device,
    /// How often its attributes were changed.
    revision: u64,
    /// Extended attributes, lists like others.
    extended: BTreeMap<Name, Vec<u8>>,
}

fn no<T>(status: ManagerStatus) -> Result<T, ClerkError> {
    Err(ClerkError::Manager(status))
}

fn away() -> ClerkError {
    ClerkError::Manager(ManagerStatus::Unavailable)
}

impl Node {
    fn extended(&self) -> Extended {
        let kind = |name: &Name| match name.as_bytes() {
            b"system.posix_acl_access" => Extended::ACCESS_ACL,
            b"system.posix_acl_default" => Extended::DEFAULT_ACL,
            _ => Extended::ATTRIBUTES,
        };
        self.extended.keys().map(kind).fold(Extended::NONE, Extended::with)
    }

    fn allows(&self, caller: &Caller, wanted: u32) -> bool {
        if caller.uid == 0 {
            return true;
        }
        let shift = if caller.uid == self.uid {
            6
        } else if caller.gid == self.gid || caller.groups.contains(&self.gid) {
            3
        } else {
            0
        };
        (self.mode >> shift) & wanted == wanted
    }
}

impl Tree {
    fn node(&self, handle: FileHandle) -> Result<&Node, ClerkError> {
        self.nodes.get(&handle).map_or_else(|| no(ManagerStatus::Stale), Ok)
    }

    fn node_mut(&mut self, handle: FileHandle) -> Result<&mut Node, ClerkError> {
        self.nodes.get_mut(&handle).map_or_else(|| no(ManagerStatus::Stale), Ok)
    }

    /// The directory, if the caller may do this in it.
    fn directory(
        &mut self,
        caller: &Caller,
        dir: FileHandle,
        wanted: u32,
    ) -> Result<&mut Node, ClerkError> {
        let node = self.node_mut(dir)?;
        if node.file_type != FileType::Directory {
            return no(ManagerStatus::NotDirectory);
        }
        if node.allows(caller, wanted) { Ok(node) } else { no(ManagerStatus::Access) }
    }

    fn find(
        &mut self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        wanted: u32,
    ) -> Result<FileHandle, ClerkError> {
        let node = self.directory(caller, dir, wanted)?;
        match node.children.get(name) {
            Some((_, handle)) => Ok(*handle),
            None => no(ManagerStatus::NotFound),
        }
    }

    fn add(&mut self, dir: FileHandle, name: &Name, handle: FileHandle) -> Result<(), ClerkError> {
        self.next_cookie += 1;
        let cookie = self.next_cookie;
        self.node_mut(dir)?.children.insert(name.clone(), (cookie, handle));
        Ok(())
    }

    /// Takes a link away. Says whether it was the last.
    fn drop_link(&mut self, handle: FileHandle) -> Result<bool, ClerkError> {
        let node = self.node_mut(handle)?;
        node.links = node.links.saturating_sub(1);
        Ok(node.links == 0 || node.file_type == FileType::Directory)
    }

    fn is_below(&self, handle: FileHandle, ancestor: FileHandle) -> bool {
        let mut at = Some(handle);
        while let Some(handle) = at {
            if handle == ancestor {
                return true;
            }
            at = self.nodes.get(&handle).and_then(|node| node.parent);
        }
        false
    }
}

impl FakeCell {
    pub(super) fn make_root(&self) {
        let root = self.make_node(FileType::Directory, 0o777, &Caller::default());
        let (handle, node) = root.expect("a new cell has reachable drives");
        let mut tree = self.tree();
        tree.nodes.insert(handle, node);
        tree.root = Some(handle);
    }

    fn make_node(
        &self,
        file_type: FileType,
        mode: u32,
        caller: &Caller,
    ) -> Result<(FileHandle, Node), ClerkError> {
        let index = self.next_drive.fetch_add(1, Ordering::Relaxed) % self.drives.len();
        let object = self.drives[index].create().ok_or_else(away)?;
        let drive = DriveId(FIRST_DRIVE + index as u64);
        let time = now();
        let node = Node {
            file_type,
            mode: mode & 0o7777,
            links: if file_type == FileType::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            access_time: time,
            create_time: time,
            children: BTreeMap::new(),
            parent: None,
            device: Device::NONE,
            revision: 0,
            extended: BTreeMap::new(),
        };
        Ok((FileHandle { drive, partition: self.partition, object }, node))
    }

    /// The whole answer about a file, with a new capability.
    fn answer(&self, tree: &Tree, caller: &Caller, handle: FileHandle) -> Result<File, ClerkError> {
        let node = tree.node(handle)?;
        let drive = self.find(handle.drive)?.inspect(handle.object).ok_or_else(away)?;
        let Some(drive) = drive else {
            return no(ManagerStatus::Stale);
        };
        let attributes = FileAttributes {
            file_type: node.file_type,
            mode: node.mode,
            links: node.links,
            uid: node.uid,
            gid: node.gid,
            size: drive.logical_size,
            used_bytes: drive.blocks_used * u64::from(drive.block_size),
            access_time: node.access_time,
            modify_time: drive.fs_data_modify_time,
            change_time: drive.data_modify_time.max(drive.fs_attribute_modify_time),
            data_version: drive.data_version,
            create_time: node.create_time,
            device: node.device,
            revision: node.revision,
            extended: node.extended(),
        };
        Ok(File { handle, attributes, capability: self.mint(node, caller, handle) })
    }

    fn mint(&self, node: &Node, caller: &Caller, handle: FileHandle) -> IssuedCapability {
        let owner = caller.uid == node.uid;
        let mut rights = Rights::GETATTR;
        if owner || node.allows(caller, READ) {
            rights |= Rights::READ;
        }
        let regular = node.file_type == FileType::Regular;
        if regular && (owner || node.allows(caller, WRITE)) {
            rights |= Rights::WRITE | Rights::FLUSH;
        }
        let seconds = self.capability_seconds.load(Ordering::Relaxed);
        let capability = Capability {
            drive: handle.drive,
            partition: handle.partition,
            object: handle.object,
            region: ByteRange::ALL,
            rights,
            expires: self.drives_now().plus_ns(seconds * Timestamp::SECOND_NS),
            audit_id: AuditId(self.next_capability.fetch_add(1, Ordering::Relaxed)),
            minimum_protection: Protection::NONE,
            key_epoch: 0,
        };
        IssuedCapability { capability, key: SecretKey::new([7; 32]), sealed: None }
    }

    /// Has two names change places.
    fn exchange(
        &self,
        tree: &mut Tree,
        (from, moved): ((FileHandle, &Name), FileHandle),
        (to, other): ((FileHandle, &Name), FileHandle),
    ) -> Result<(), ClerkError> {
        if tree.is_below(to.0, moved) || tree.is_below(from.0, other) {
            return no(ManagerStatus::Invalid);
        }
        for (file, old, new, name) in [(moved, from.0, to.0, to.1), (other, to.0, from.0, from.1)] {
            tree.add(new, name, file)?;
            if tree.node(file)?.file_type == FileType::Directory {
                tree.node_mut(old)?.links -= 1;
                tree.node_mut(new)?.links += 1;
                tree.node_mut(file)?.parent = Some(new);
            }
        }
        self.touch(from.0)?;
        self.touch(to.0)
    }

    fn touch(&self, handle: FileHandle) -> Result<(), ClerkError> {
        let time = now();
        self.find(handle.drive)?.set(handle.object, None, Some(time), time).ok_or_else(away)
    }

    fn make(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        file_type: FileType,
        mode: u32,
    ) -> Result<FileHandle, ClerkError> {
        let mut tree = self.tree();
        if tree.directory(caller, dir, SEARCH)?.children.contains_key(name) {
            return no(ManagerStatus::Exists);
        }
        tree.directory(caller, dir, SEARCH | WRITE)?;
        let (handle, mut node) = self.make_node(file_type, mode, caller)?;
        if file_type == FileType::Directory {
            node.parent = Some(dir);
            tree.node_mut(dir)?.links += 1;
        }
        tree.nodes.insert(handle, node);
        tree.add(dir, name, handle)?;
        self.touch(dir)?;
        Ok(handle)
    }

    /// A file has lost its last name: it goes, unless somebody may have it open.
    fn without_name(
        &self,
        tree: &mut Tree,
        handle: FileHandle,
        open: Option<FileHandle>,
    ) -> Result<(), ClerkError> {
        let is_directory = tree.node(handle)?.file_type == FileType::Directory;
        if is_directory || self.is_unused(handle, open == Some(handle)) {
            tree.nodes.remove(&handle);
            self.remove_object(handle)?;
        }
        Ok(())
    }

    /// How many files there are besides directories, with names and without.
    pub fn files(&self) -> usize {
        let tree = self.tree();
        let files = tree.nodes.values().filter(|node| node.file_type != FileType::Directory);
        files.count()
    }

    /// Nobody has a file without a name open any more.
    pub(super) fn forget_file(&self, handle: FileHandle) {
        let mut tree = self.tree();
        if tree.node(handle).is_ok_and(|node| node.links > 0) {
            // It has got one.
            return;
        }
        tree.nodes.remove(&handle);
        drop(tree);
        // A drive that is away keeps it.
        let _ = self.remove_object(handle);
    }

    fn remove_object(&self, handle: FileHandle) -> Result<(), ClerkError> {
        self.find(handle.drive)?.remove(handle.object).ok_or_else(away)
    }
}

impl Names for FakeCell {
    /// Each clerk asks once.
    fn client(&self) -> u64 {
        self.next_client()
    }

    fn volume(&self, caller: &Caller) -> Result<Volume, ClerkError> {
        self.reach_manager()?;
        let tree = self.tree();
        let root = tree.root.expect("made with the cell");
        let drives = (0..self.drives.len())
            .map(|index| DriveAddress {
                drive: DriveId(FIRST_DRIVE + index as u64),
                address: format!("fake:{index}"),
                index: index as u32 + 1,
            })
            .collect();
        Ok(Volume {
            cell: CellId([7; 16]),
            name: Name::new("fake").expect("short"),
            root: self.answer(&tree, caller, root)?,
            drives,
            protection: Protection::NONE,
            personality: match self.has_callbacks.load(Ordering::Relaxed) {
                true => Personality::Afs,
                false => Personality::Nfs,
            },
            read_only: false,
        })
    }

    fn lookup(&self, caller: &Caller, dir: FileHandle, name: &Name) -> Result<File, ClerkError> {
        self.reach_manager()?;
        let mut tree = self.tree();
        let handle = tree.find(caller, dir, name, SEARCH)?;
        self.answer(&tree, caller, handle)
    }

    fn getattr(&self, caller: &Caller, file: FileHandle) -> Result<File, ClerkError> {
        self.reach_manager()?;
        self.answer(&self.tree(), caller, file)
    }

    fn setattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        changes: &SetFileAttributes,
    ) -> Result<File, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        let time = now();
        let node = tree.node_mut(file)?;
        let owner = caller.uid == 0 || caller.uid == node.uid;
        if (changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some()) && !owner {
            return no(ManagerStatus::Permission);
        }
        if changes.size.is_some() && node.file_type != FileType::Regular {
            return no(ManagerStatus::IsDirectory);
        }
        node.revision += 1;
        node.mode = changes.mode.map_or(node.mode, |mode| mode & 0o7777);
        node.uid = changes.uid.unwrap_or(node.uid);
        node.gid = changes.gid.unwrap_or(node.gid);
        node.access_time = changes.access_time.unwrap_or(node.access_time);
        if changes.access_time_now {
            node.access_time = time;
        }
        let modify_time = changes.modify_time.or(changes.modify_time_now.then_some(time));
        let drive = self.find(file.drive)?;
        drive.set(file.object, changes.size, modify_time, time).ok_or_else(away)?;
        self.answer(&tree, caller, file)
    }

    fn commit(&self, _caller: &Caller, _file: FileHandle) -> Result<(), ClerkError> {
        if self.uncommitted.load(Ordering::Relaxed) {
            self.reach_manager()?;
            self.uncommitted.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn create(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: NewMode,
        exclusive: bool,
        _stores: bool,
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let made = self.make(caller, dir, name, FileType::Regular, mode.masked());
        let mut tree = self.tree();
        let handle = match made {
            Err(ClerkError::Manager(ManagerStatus::Exists)) if !exclusive => {
                tree.find(caller, dir, name, SEARCH)?
            }
            made => made?,
        };
        self.answer(&tree, caller, handle).map(Changed::alone)
    }

    fn mkdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let handle = self.make(caller, dir, name, FileType::Directory, mode.masked())?;
        self.answer(&self.tree(), caller, handle).map(Changed::alone)
    }

    fn symlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        target: &[u8],
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let handle = self.make(caller, dir, name, FileType::Symlink, 0o777)?;
        self.find(handle.drive)?.fill(handle.object, target).ok_or_else(away)?;
        self.answer(&self.tree(), caller, handle).map(Changed::alone)
    }

    fn mkmount(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        volume: &Name,
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let handle = self.make(caller, dir, name, FileType::MountPoint, 0o777)?;
        self.find(handle.drive)?.fill(handle.object, volume.as_bytes()).ok_or_else(away)?;
        self.answer(&self.tree(), caller, handle).map(Changed::alone)
    }

    fn tmpfile(
        &self,
        caller: &Caller,
        dir: FileHandle,
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let name = Name::new("nameless").map_err(|_| ClerkError::NameTooLong)?;
        let handle = self.make(caller, dir, &name, FileType::Regular, mode.masked())?;
        let mut tree = self.tree();
        tree.node_mut(dir)?.children.remove(&name);
        tree.drop_link(handle)?;
        self.keep_nameless(handle);
        self.answer(&tree, caller, handle).map(Changed::alone)
    }

    fn unlink(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        let handle = tree.find(caller, dir, name, SEARCH | WRITE)?;
        if tree.node(handle)?.file_type == FileType::Directory {
            return no(ManagerStatus::IsDirectory);
        }
        tree.node_mut(dir)?.children.remove(name);
        if tree.drop_link(handle)? {
            self.without_name(&mut tree, handle, open)?;
        } else {
            let drive = self.find(handle.drive)?;
            drive.set(handle.object, None, None, now()).ok_or_else(away)?;
        }
        self.touch(dir).map(Changed::alone)
    }

    fn rmdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Changed<()>, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        let handle = tree.find(caller, dir, name, SEARCH | WRITE)?;
        let node = tree.node(handle)?;
        if node.file_type != FileType::Directory {
            return no(ManagerStatus::NotDirectory);
        }
        if !node.children.is_empty() {
            return no(ManagerStatus::NotEmpty);
        }
        let parent = tree.node_mut(dir)?;
        parent.children.remove(name);
        parent.links -= 1;
        tree.drop_link(handle)?;
        self.without_name(&mut tree, handle, None)?;
        self.touch(dir).map(Changed::alone)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &Name),
        to: (FileHandle, &Name),
        flags: RenameFlags,
        open: Option<FileHandle>,
    ) -> Result<Changed<()>, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        let moved = tree.find(caller, from.0, from.1, SEARCH | WRITE)?;
        let is_directory = tree.node(moved)?.file_type == FileType::Directory;
        if flags.is_exchange() {
            let other = tree.find(caller, to.0, to.1, SEARCH | WRITE)?;
            return self.exchange(&mut tree, (from, moved), (to, other)).map(Changed::alone);
        }
        if is_directory && tree.is_below(to.0, moved) {
            return no(ManagerStatus::Invalid);
        }
        match tree.find(caller, to.0, to.1, SEARCH | WRITE) {
            Ok(_) if flags.is_no_replace() => return no(ManagerStatus::Exists),
            Ok(target) if target == moved => return Ok(Changed::alone(())),
            Ok(target) => {
                let node = tree.node(target)?;
                match (is_directory, node.file_type == FileType::Directory) {
                    (true, false) => return no(ManagerStatus::NotDirectory),
                    (false, true) => return no(ManagerStatus::IsDirectory),
                    (true, true) if !node.children.is_empty() => {
                        return no(ManagerStatus::NotEmpty);
                    }
                    (true, true) => tree.node_mut(to.0)?.links -= 1,
                    (false, false) => {}
                }
                if tree.drop_link(target)? {
                    self.without_name(&mut tree, target, open)?;
                } else {
                    let drive = self.find(target.drive)?;
                    drive.set(target.object, None, None, now()).ok_or_else(away)?;
                }
            }
            Err(ClerkError::Manager(ManagerStatus::NotFound)) => {}
            Err(error) => return Err(error),
        }
        tree.node_mut(from.0)?.children.remove(from.1);
        tree.add(to.0, to.1, moved)?;
        if is_directory {
            tree.node_mut(from.0)?.links -= 1;
            tree.node_mut(to.0)?.links += 1;
            tree.node_mut(moved)?.parent = Some(to.0);
        }
        self.touch(from.0)?;
        self.touch(to.0).map(Changed::alone)
    }

    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        dir: FileHandle,
        name: &Name,
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        if tree.directory(caller, dir, SEARCH | WRITE)?.children.contains_key(name) {
            return no(ManagerStatus::Exists);
        }
        let node = tree.node_mut(file)?;
        if node.file_type == FileType::Directory {
            return no(ManagerStatus::Permission);
        }
        node.links += 1;
        tree.add(dir, name, file)?;
        let drive = self.find(file.drive)?;
        drive.set(file.object, None, None, now()).ok_or_else(away)?;
        self.touch(dir)?;
        self.answer(&tree, caller, file).map(Changed::alone)
    }

    fn mknod(
        &self,
        caller: &Caller,
        dir: FileHandle,
        name: &Name,
        (file_type, device): (FileType, Device),
        mode: NewMode,
    ) -> Result<Changed<File>, ClerkError> {
        self.change_names()?;
        let handle = self.make(caller, dir, name, file_type, mode.masked())?;
        let mut tree = self.tree();
        tree.node_mut(handle)?.device = device;
        self.answer(&tree, caller, handle).map(Changed::alone)
    }

    fn getxattr(
        &self,
        _caller: &Caller,
        file: FileHandle,
        name: &Name,
    ) -> Result<Vec<u8>, ClerkError> {
        self.reach_manager()?;
        let value = self.tree().node(file)?.extended.get(name).cloned();
        value.map_or_else(|| no(ManagerStatus::NoData), Ok)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<File, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        let node = tree.node_mut(file)?;
        match node.extended.contains_key(name) {
            true if flags.is_create() => return no(ManagerStatus::Exists),
            false if flags.is_replace() => return no(ManagerStatus::NoData),
            _ => {}
        }
        node.extended.insert(name.clone(), value.to_vec());
        node.revision += 1;
        let drive = self.find(file.drive)?;
        drive.set(file.object, None, None, now()).ok_or_else(away)?;
        self.answer(&tree, caller, file)
    }

    fn listxattr(&self, _caller: &Caller, file: FileHandle) -> Result<Vec<u8>, ClerkError> {
        self.reach_manager()?;
        let tree = self.tree();
        let names = tree.node(file)?.extended.keys();
        Ok(names.flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect())
    }

    fn removexattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &Name,
    ) -> Result<File, ClerkError> {
        self.change_names()?;
        let mut tree = self.tree();
        let node = tree.node_mut(file)?;
        if node.extended.remove(name).is_none() {
            return no(ManagerStatus::NoData);
        }
        node.revision += 1;
        let drive = self.find(file.drive)?;
        drive.set(file.object, None, None, now()).ok_or_else(away)?;
        self.answer(&tree, caller, file)
    }

    fn accessed(
        &self,
        _caller: &Caller,
        _root: FileHandle,
        accessed: &[FileAccess],
    ) -> Result<(), ClerkError> {
        self.reach_manager()?;
        let mut tree = self.tree();
        for access in accessed {
            if let Ok(node) = tree.node_mut(access.file) {
                node.access_time = node.access_time.max(access.time.min(now()));
            }
        }
        Ok(())
    }

    fn readdirplus(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
    ) -> Result<FilePage, ClerkError> {
        let page = self.readdir(caller, dir, cookie, 16)?;
        let tell = |entry: &DirectoryEntry| {
            let file = self.lookup(caller, dir, &entry.name).ok()?;
            Some(ListedFile { name: entry.name.clone(), file })
        };
        let files = page.entries.iter().filter_map(tell).collect();
        let last = page.entries.last().map_or(cookie, |entry| entry.cookie);
        Ok(FilePage { files, cookie: last, end: page.end })
    }

    fn readdir(
        &self,
        caller: &Caller,
        dir: FileHandle,
        cookie: u64,
        max_entries: u32,
    ) -> Result<DirectoryPage, ClerkError> {
        self.reach_manager()?;
        let mut tree = self.tree();
        let children = &tree.directory(caller, dir, READ)?.children;
        let mut after: Vec<(u64, Name, FileHandle)> = children
            .iter()
            .filter(|(_, (entry, _))| *entry > cookie)
            .map(|(name, (entry, handle))| (*entry, name.clone(), *handle))
            .collect();
        after.sort_unstable();
        let end = after.len() <= max_entries as usize;
        after.truncate(max_entries as usize);
        let entries = after
            .into_iter()
            .map(|(cookie, name, handle)| {
                let file_type = tree.node(handle)?.file_type;
                Ok(DirectoryEntry { cookie, handle, file_type, name })
            })
            .collect::<Result<_, ClerkError>>()?;
        Ok(DirectoryPage { entries, end })
    }

    fn get_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        _: bool,
    ) -> Result<Readable, ClerkError> {
        self.readable(caller, file)
    }

    fn get_capabilities(
        &self,
        _: &Caller,
        _: FileHandle,
        _: &[FileHandle],
    ) -> Result<Readables, ClerkError> {
        Err(ClerkError::Manager(ManagerStatus::NotSupported))
    }

    fn get_write_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        (_, best_end): (u64, u64),
        cut: Option<Cut>,
    ) -> Result<Writable, ClerkError> {
        self.writable(caller, file, (best_end, cut))
    }

    fn return_capability(
        &self,
        caller: &Caller,
        file: FileHandle,
        version: u64,
    ) -> Result<Returned, ClerkError> {
        self.return_it(caller, file, version)
    }

    fn space(&self, _caller: &Caller) -> Result<SpaceInformation, ClerkError> {
        self.reach_manager()?;
        let total_bytes = (self.drives.len() as u64) << 40;
        let (used, files) = self
            .drives
            .iter()
            .map(|drive| drive.usage())
            .fold((0, 0), |sum, usage| (sum.0 + usage.0, sum.1 + usage.1));
        let free_bytes = total_bytes - used;
        Ok(SpaceInformation { total_bytes, free_bytes, files, free_files: u64::MAX })
    }

    fn status(&self, _caller: &Caller) -> Result<CellStatus, ClerkError> {
        self.reach_manager()?;
        Ok(CellStatus {
            cell: CellId([7; 16]),
            volume: Name::new("fake").expect("short"),
            started: Timestamp(0),
            drives: Vec::new(),
            file_data_bytes: 0,
            client_bytes_received: 0,
            client_bytes_sent: 0,
            requests: self.manager_requests.load(Ordering::Relaxed),
        })
    }
}
