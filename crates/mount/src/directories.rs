//! Open directories: listing them a page at a time.
//!
//! The position that the kernel gives back is the manager's cookie and 2, because `.` and `..`
//! come first. A cookie is good whatever is added or removed meanwhile.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError};

use nasd_clerk::{Caller, DirectoryEntry, Entry, Extended, FileHandle, FileType};
use nasd_fuse::{Attributes, Errno, FileKind, Listing};

use crate::attributes::{errno, kind};
use crate::callers::Who;
use crate::files::OpenedFile;
use crate::hint_streams::{Base, StreamOfHints};
use crate::inodes;
use crate::names::Told;
use crate::state::KnownListing;
use crate::tree::Tree;

/// Entries that are asked for at a time.
const PAGE_ENTRIES: u32 = 1024;

/// Who is not known to look at the files that he lists is told so many bytes of names first: if he looks at some of
/// these, the kernel asks for attributes with the others, and else for names alone, which take a quarter of the room.
const GLANCE_BYTES: usize = 4096;

/// Positions of `.` and `..`.
const OWN_ENTRIES: u64 = 2;

/// A directory that somebody is listing.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    ino: u64,
    handle: FileHandle,
    who: Who,
    page: Mutex<Page>,
    hints: StreamOfHints,
}

impl OpenDirectory {
    fn new(ino: u64, handle: FileHandle, who: Who) -> OpenDirectory {
        OpenDirectory { ino, handle, who, page: Mutex::default(), hints: StreamOfHints::default() }
    }
}

/// What was listed last.
#[derive(Debug, Default)]
struct Page {
    /// The cookie that the page follows.
    after: u64,
    entries: Vec<DirectoryEntry>,
    /// Whether nothing follows.
    end: bool,
}

impl Page {
    /// The entries after `cookie`, if this page can tell.
    fn rest(&self, cookie: u64) -> Option<&[DirectoryEntry]> {
        if cookie < self.after {
            return None;
        }
        let rest = &self.entries[self.entries.partition_point(|entry| entry.cookie <= cookie)..];
        (!rest.is_empty() || self.end).then_some(rest)
    }
}

/// An entry as the kernel is to be told of it.
struct Line {
    ino: u64,
    /// The number that programs are shown.
    shown: u64,
    /// Where to go on behind it.
    next: u64,
    kind: FileKind,
    name: Box<OsStr>,
    /// All there is to know of it, if that is to be told: the kernel is noted to know it then.
    told: Option<Told>,
}

/// A part of a directory with what is known of its files.
pub(crate) struct Files(Vec<Line>);

impl Files {
    /// Puts it into `listing`; `entry` makes of what is known what is told.
    pub(crate) fn tell(
        &self,
        tree: &Tree,
        listing: &mut Listing,
        entry: &dyn Fn(&Told) -> nasd_fuse::Entry,
    ) {
        for Line { ino, shown, next, kind, name, told } in &self.0 {
            let attributes = Attributes { kind: *kind, ..Attributes::default() };
            let alone = nasd_fuse::Entry { attributes, ..nasd_fuse::Entry::default() };
            let entry = told.as_ref().map_or(alone, entry);
            if !listing.add_plus(&entry, *shown, *next, name) && told.is_some() {
                tree.inodes.forget(*ino, 1);
            }
        }
    }
}

impl Tree {
    /// Begins to list a directory.
    pub(crate) fn opendir(&self, who: Who, ino: u64) -> Result<u64, Errno> {
        let handle = self.handle(ino)?;
        Ok(self.directories.insert(OpenDirectory::new(ino, handle, who)))
    }

    /// Whether the kernel may keep the names of a directory and tell them to others: as far as is known its mode tells who may be told.
    pub(crate) fn may_keep_listing(&self, ino: u64) -> bool {
        let known = self.inodes.handle(ino).and_then(|handle| self.clerk.believes(handle));
        known.is_some_and(|(told, _)| !told.extended.has(Extended::NAMES_BY_CALLER))
    }

    /// The directories that are open.
    pub(crate) fn known_listings(&self) -> Vec<KnownListing> {
        let known = |(number, open): (u64, Arc<OpenDirectory>)| {
            let Who { uid, gid, .. } = open.who;
            KnownListing { number, ino: open.ino, uid, gid }
        };
        self.directories.all().into_iter().map(known).collect()
    }

    /// A directory is open that the process before has opened.
    pub(crate) fn reopen_directory(&self, known: KnownListing) {
        if let Ok(handle) = self.handle(known.ino) {
            let who = Who { uid: known.uid, gid: known.gid, thread: 0, exact: false };
            let open = OpenDirectory::new(known.ino, handle, who);
            self.directories.insert_at(known.number, open);
        }
    }

    /// Takes hints of files in and under an open directory.
    pub(crate) fn hint_directory(
        &self,
        directory: &OpenDirectory,
        who: Who,
        data: &[u8],
    ) -> Result<i32, Errno> {
        let base = Base::Directory(directory.handle);
        directory.hints.take(&self.clerk, &self.callers.get(who), &base, data)
    }

    /// Takes hints of an open file.
    pub(crate) fn hint_file(&self, file: &OpenedFile, data: &[u8]) -> Result<i32, Errno> {
        file.hints.take(&self.clerk, &file.caller, &Base::File(&file.open), data)
    }

    /// Fills `listing` with the entries from `position` on.
    pub(crate) fn readdir(
        &self,
        directory: &OpenDirectory,
        position: u64,
        listing: &mut Listing,
    ) -> Result<(), Errno> {
        let ino = directory.ino;
        let own = self.shown(ino);
        if position < 1 && !listing.add(own, 1, FileKind::Directory, OsStr::new(".")) {
            return Ok(());
        }
        if position < OWN_ENTRIES {
            let parent = self.shown_above(ino);
            if !listing.add(parent, OWN_ENTRIES, FileKind::Directory, OsStr::new("..")) {
                return Ok(());
            }
        }
        let mut page = directory.page.lock().unwrap_or_else(PoisonError::into_inner);
        if position < OWN_ENTRIES {
            // From the start again: what is known may be old.
            *page = Page::default();
            self.was_read(ino, directory.handle, &self.callers.get(directory.who));
        }
        self.fill(directory, &mut page, position.saturating_sub(OWN_ENTRIES), listing)
    }

    /// The entries from `position` on that fit into `size` bytes, with what is known of their files, if the caller
    /// looks at the files that he lists. The kernel asks so when he begins, and goes on so while he looks.
    pub(crate) fn readdir_plus(
        &self,
        directory: &OpenDirectory,
        position: u64,
        size: u32,
    ) -> Result<Files, Errno> {
        let (ino, handle, who) = (directory.ino, directory.handle, directory.who);
        let caller = self.callers.get(who);
        // What comes with a listing is believed from when it is read, and not from when it was asked for.
        let may_tell = !self.clerk.has_callbacks();
        let looks = may_tell && (position > 0 || self.lookers.begins(who.uid, ino));
        let mut page = directory.page.lock().unwrap_or_else(PoisonError::into_inner);
        if position < OWN_ENTRIES {
            *page = Page::default();
            self.was_read(ino, handle, &caller);
        }
        if looks && self.clerk.begin_listing(handle) {
            // Names are believed if they were told since.
            *page = Page::default();
        }
        let cookie = position.saturating_sub(OWN_ENTRIES);
        if page.rest(cookie).is_none() {
            *page = self.fetch(directory, cookie)?;
        }
        let mut room = if looks { size as usize } else { GLANCE_BYTES.min(size as usize) };
        let mut fits = |name: &[u8]| {
            room = room.saturating_sub(Listing::plus_bytes(OsStr::from_bytes(name)));
            room > 0
        };
        let own = self.own_lines(ino).into_iter();
        let own = own.filter(|line| position < line.next && fits(line.name.as_bytes()));
        let mut lines: Vec<Line> = own.collect();
        let rest = page.rest(cookie).unwrap_or_default();
        let count = rest.iter().take_while(|entry| fits(entry.name.as_bytes())).count();
        let rest = &rest[..count];
        let known = match looks {
            true => self.clerk.listed_files(&caller, handle, cookie, rest),
            false => vec![None; count],
        };
        let tell = |(entry, known)| self.line(&caller, ino, entry, known);
        lines.extend(rest.iter().zip(known).map(tell));
        Ok(Files(lines))
    }

    /// `.` and `..`.
    fn own_lines(&self, ino: u64) -> [Line; OWN_ENTRIES as usize] {
        let lines = [(self.shown(ino), 1, "."), (self.shown_above(ino), OWN_ENTRIES, "..")];
        lines.map(|(shown, next, name)| {
            let (kind, name) = (FileKind::Directory, OsStr::new(name).into());
            Line { ino: 0, shown, next, kind, name, told: None }
        })
    }

    fn line(
        &self,
        caller: &Arc<Caller>,
        dir: u64,
        entry: &DirectoryEntry,
        known: Option<Entry>,
    ) -> Line {
        let (name, ino) = (entry.name.as_bytes(), self.number(caller, entry.handle));
        // Of what is written, here or elsewhere, whoever looks at it is told as it is then, and waits for its pages.
        let is_settled = |known: &Entry| {
            let version = inodes::version(&known.attributes);
            !self.inodes.is_written(ino) && !self.inodes.was_changed_elsewhere(ino, version)
        };
        // What is seen at a mount point is told to who walks over it.
        let is_mount_point = entry.file_type == FileType::MountPoint;
        let known = known.filter(|known| !is_mount_point && is_settled(known));
        let told = known.map(|known| {
            self.inodes.remember(dir, name, entry.handle);
            Told::now(self.present(ino, &known.attributes), known.age, known.belief)
        });
        let (next, kind) = (entry.cookie.saturating_add(OWN_ENTRIES), kind(entry.file_type));
        let (name, shown) = (OsStr::from_bytes(name).into(), self.shown_of(entry.handle));
        Line { ino, shown, next, kind, name, told }
    }

    fn fill(
        &self,
        directory: &OpenDirectory,
        page: &mut Page,
        mut cookie: u64,
        listing: &mut Listing,
    ) -> Result<(), Errno> {
        let mut added = false;
        loop {
            if page.rest(cookie).is_none() {
                if added {
                    // The kernel asks for more when it wants more.
                    return Ok(());
                }
                *page = self.fetch(directory, cookie)?;
            }
            let rest = page.rest(cookie).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            for entry in rest {
                let ino = self.shown_of(entry.handle);
                let name = OsStr::from_bytes(entry.name.as_bytes());
                let next = entry.cookie.saturating_add(OWN_ENTRIES);
                if !listing.add(ino, next, kind(entry.file_type), name) {
                    return Ok(());
                }
                added = true;
                cookie = entry.cookie;
            }
        }
    }

    /// The page after `cookie`.
    fn fetch(&self, directory: &OpenDirectory, cookie: u64) -> Result<Page, Errno> {
        let listed = self.with_groups(directory.who, |who| {
            let caller = self.callers.get(who);
            let listed = self.clerk.readdir(&caller, directory.handle, cookie, PAGE_ENTRIES);
            listed.map_err(|error| errno(&error))
        })?;
        let end = listed.end || listed.entries.is_empty();
        Ok(Page { after: cookie, entries: listed.entries, end })
    }
}

#[cfg(test)]
mod tests {
    use nasd_clerk::{FileType, Name};
    use nasd_types::{DriveId, ObjectId, PartitionId};

    use super::*;

    fn page(after: u64, cookies: &[u64], end: bool) -> Page {
        let handle =
            FileHandle { drive: DriveId(1), partition: PartitionId(1), object: ObjectId(70) };
        let entry = |cookie: &u64| DirectoryEntry {
            cookie: *cookie,
            handle,
            file_type: FileType::Regular,
            name: Name::new("x").unwrap(),
        };
        Page { after, entries: cookies.iter().map(entry).collect(), end }
    }

    #[test]
    fn a_page_tells_only_what_it_knows() {
        let rest = |page: &Page, cookie| page.rest(cookie).map(<[_]>::len);
        let middle = page(10, &[12, 15, 20], false);
        assert_eq!(rest(&middle, 9), None);
        assert_eq!(rest(&middle, 10), Some(3));
        assert_eq!(rest(&middle, 13), Some(2), "the entry 13 may be gone");
        assert_eq!(rest(&middle, 20), None, "there is more behind");
        let last = page(20, &[25], true);
        assert_eq!(rest(&last, 25), Some(0));
        assert_eq!(rest(&Page::default(), 0), None);
    }
}
