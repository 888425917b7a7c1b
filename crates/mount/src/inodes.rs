//! The files that the kernel knows: their numbers, the names that led to them, who has them open.
//!
//! A number is the drive's index and the object's identifier, so that it is the same in every
//! mount of the volume: of identifiers that a striping manager chooses, how far they are from the
//! first of these. The root is 1, as FUSE wants. What does not fit gets a number that is good for
//! this mount.
//!
//! Files that are seen through a mount point have numbers of their own, so that the kernel can have the same volume at several
//! places: a tag of the place comes first (`forest.rs`), and less is left for the rest. Programs are shown another tag, that of the volume.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nasd_clerk::{FileAttributes, FileHandle, OpenMode, Timestamp, Volume};
use nasd_types::{DriveId, ObjectId};

use crate::accessed::Times;
use crate::state::KnownFile;

/// The root's number.
pub(crate) const ROOT: u64 = 1;

/// Bits of a number that are the object's.
const OBJECT_BITS: u32 = 48;

/// The same behind a tag.
const TAGGED_OBJECT_BITS: u32 = 42;

/// Set in numbers that have a tag.
const HAS_TAG: u64 = 1 << 63;

/// Where the tag is.
const TAG_AT: u32 = 52;

/// Tags are less.
pub(crate) const TAGS: u16 = 1 << 11;

/// The tag of a number, if it has one.
pub(crate) const fn tag(number: u64) -> Option<u16> {
    match number & HAS_TAG {
        0 => None,
        _ => Some((number >> TAG_AT) as u16 & (TAGS - 1)),
    }
}

/// The same number with another tag.
pub(crate) const fn with_tag(number: u64, tag: u16) -> u64 {
    number & ((1 << TAG_AT) - 1) | Numbers::tagged(tag).prefix
}

/// How the numbers of one volume's files are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// What all begin with.
    prefix: u64,
    /// The bits of the object's identifier, of which the highest tells whether it was chosen by a holder of keys.
    object_bits: u32,
    /// The index that stands for numbers that are good for this mount only.
    other_index: u64,
    /// The root's.
    root: u64,
}

impl Numbers {
    /// Of the mounted volume.
    pub(crate) const MOUNTED: Numbers =
        Numbers { prefix: 0, object_bits: OBJECT_BITS, other_index: 0x7fff, root: ROOT };

    /// Of a volume that is seen at a mount point.
    pub(crate) const fn tagged(tag: u16) -> Numbers {
        let prefix = HAS_TAG | (tag as u64) << TAG_AT;
        let other_index = (1 << (TAG_AT - TAGGED_OBJECT_BITS)) - 1;
        let root = prefix | other_index << TAGGED_OBJECT_BITS;
        Numbers { prefix, object_bits: TAGGED_OBJECT_BITS, other_index, root }
    }

    /// That of a file on the drive with this index; none if it does not fit.
    fn of(&self, index: u64, object: ObjectId) -> Option<u64> {
        let named = 1 << (self.object_bits - 1);
        let (bits, named_bit) = match object.is_named() {
            true => (object.0 - ObjectId::FIRST_NAMED.0, named),
            false => (object.0, 0),
        };
        let number = self.prefix | index << self.object_bits | bits | named_bit;
        (index < self.other_index && bits < named && number > ROOT).then_some(number)
    }

    /// The `given`th of those that are good for this mount only, counted from 1.
    fn other(&self, given: u64) -> u64 {
        self.prefix | self.other_index << self.object_bits | given
    }

    /// Which of these a number is.
    fn given(&self, number: u64) -> Option<u64> {
        let given = number.wrapping_sub(self.other(0));
        (given > 0 && given < 1 << self.object_bits).then_some(given)
    }
}

/// How long an opening is waited for that may be ending: the kernel tells of the end of one some time after a program has closed it.
const ENDING: Duration = Duration::from_millis(50);

/// What is known of the pages that the kernel may have of a file for one opening. All but the first is changed with the tables.
#[derive(Debug)]
pub(crate) struct PagesHeld {
    /// It goes through the kernel's cache, or could be mapped.
    may_be: bool,
    /// It is mapped, or was.
    are_mapped: AtomicBool,
    /// Whoever wants to write past the mount must mind them.
    count: AtomicBool,
}

impl PagesHeld {
    fn by(mode: OpenMode, goes_around: bool) -> Self {
        let may_be = mode.read || !goes_around;
        PagesHeld { may_be, are_mapped: AtomicBool::new(false), count: AtomicBool::new(false) }
    }

    /// Whether there may be any.
    pub(crate) fn may_be(&self) -> bool {
        self.may_be
    }
}

/// The contents of a file as of some moment, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Another one after each change, also where the time is set back.
    data: u64,
    modified: Timestamp,
    size: u64,
}

/// The version that attributes tell.
pub(crate) fn version(attributes: &FileAttributes) -> Version {
    let FileAttributes { data_version, modify_time, size, .. } = *attributes;
    Version { data: data_version, modified: modify_time, size }
}

/// The pages that the kernel has of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// There are none.
    None,
    /// All were read since the file had this version.
    Since(Version),
    /// There may be any.
    Unknown,
}

/// What a write may have met with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgot {
    No,
    /// Pages of a write before it, which were being read or written for long.
    Late,
    Some,
}

#[derive(Debug)]
struct Inode {
    handle: FileHandle,
    /// How often the kernel was told of it, and has not forgotten it.
    lookups: u64,
    /// How often it is open, or being opened.
    opens: u32,
    /// How many of them may write, and how many both read and write.
    writers: u32,
    changers: u32,
    /// How many may write past the mount.
    bulk_writers: u32,
    /// For how many openings the kernel may have pages that would stay as they are where somebody writes past the mount. Those that
    /// do so, or ask whether they may, are not among them, unless they are mapped.
    page_holders: u32,
    names: Vec<(u64, Box<[u8]>)>,
    /// The pages in the kernel's cache.
    pages: Pages,
    /// How many have the kernel forget some of them now, and when somebody last had.
    forgetting: u32,
    forgot: Option<Instant>,
    /// The same of those pages that only the writes met with which had the kernel forget them.
    late: u32,
    was_late: Option<Instant>,
    /// Of those who have it forget older ones; there since the first.
    turn: Option<Arc<Mutex<()>>>,
    /// What the kernel believes: what it was told last, and its own writes since.
    told: Option<Version>,
    /// Its times, as they were when the kernel was told.
    times: Option<Times>,
    /// The kernel has written since it was told.
    wrote: bool,
    /// It has no name, and goes with its last closing.
    nameless: bool,
}

/// What the names of a directory lead to, and when the kernel was told.
type ToldNames = HashMap<Box<[u8]>, (u64, Instant)>;

#[derive(Debug)]
struct Tables {
    numbers: Numbers,
    inodes: HashMap<u64, Inode>,
    /// By directory.
    names: HashMap<u64, ToldNames>,
    indexes: HashMap<DriveId, u64>,
    others: HashMap<FileHandle, u64>,
    /// How many of these numbers were given out, or may have been by a process before this one.
    others_given: u64,
}

/// All files that the kernel knows.
#[derive(Debug)]
pub(crate) struct Inodes {
    root: FileHandle,
    root_number: u64,
    tables: Mutex<Tables>,
    /// One of whom the kernel may have had pages has ended, or asks whether it may write past the mount.
    fewer_holders: Condvar,
}

impl Inodes {
    /// Of a volume; nothing is known but the root.
    pub(crate) fn new(volume: &Volume, numbers: Numbers) -> Self {
        let root = volume.root.handle;
        let mut tables = Tables::new(numbers);
        tables.learn_drives(volume);
        tables.inodes.insert(numbers.root, Inode::new(root));
        Inodes {
            root,
            root_number: numbers.root,
            tables: Mutex::new(tables),
            fewer_holders: Condvar::new(),
        }
    }

    /// The root's number.
    pub(crate) fn root_number(&self) -> u64 {
        self.root_number
    }

    /// Whether the kernel knows no file, nor will before it is told of the root.
    pub(crate) fn is_unknown(&self) -> bool {
        let tables = self.lock();
        tables.inodes.len() == 1 && !self.is_root_known_in(&tables)
    }

    /// Whether the kernel was told of the root by a name, or somebody has it open.
    pub(crate) fn is_root_known(&self) -> bool {
        self.is_root_known_in(&self.lock())
    }

    fn is_root_known_in(&self, tables: &Tables) -> bool {
        let root = tables.inodes.get(&self.root_number);
        root.is_some_and(|root| root.lookups > 0 || root.opens > 0)
    }

    /// The kernel is about to be told that `name` in `dir` is a mount point, and leads to that root of another volume.
    pub(crate) fn remember_mount_point(&self, dir: u64, name: &[u8], root: u64) {
        self.lock().set_name(dir, name, root);
    }

    /// Whether a name leads to another volume, as far as the kernel was told.
    pub(crate) fn is_mount_point(&self, dir: u64, name: &[u8]) -> bool {
        let tables = self.lock();
        let found = tables.names.get(&dir).and_then(|names| names.get(name));
        found.is_some_and(|(number, _)| tag(*number) != tag(dir))
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives may have been added.
    pub(crate) fn learn_drives(&self, volume: &Volume) {
        self.lock().learn_drives(volume);
    }

    /// All files that the kernel knows.
    pub(crate) fn known_files(&self) -> Vec<KnownFile> {
        let tables = self.lock();
        let known = |(ino, inode): (&u64, &Inode)| KnownFile {
            ino: *ino,
            handle: inode.handle,
            lookups: inode.lookups,
            names: inode.names.iter().map(|(dir, name)| (*dir, name.to_vec())).collect(),
            nameless: inode.nameless,
        };
        tables.inodes.iter().map(known).collect()
    }

    /// A file that the kernel was told of by the process before.
    pub(crate) fn know(&self, known: &KnownFile) {
        let mut tables = self.lock();
        if let Some(given) = tables.numbers.given(known.ino) {
            tables.others.insert(known.handle, known.ino);
            tables.others_given = tables.others_given.max(given);
        }
        let inode = tables.inodes.entry(known.ino).or_insert_with(|| Inode::new(known.handle));
        inode.lookups = known.lookups;
        inode.pages = Pages::Unknown;
        inode.forgot = Some(Instant::now());
        inode.nameless = known.nameless;
        for (dir, name) in &known.names {
            tables.set_name(*dir, name, known.ino);
        }
    }

    /// Whether the drive of a file has an index yet.
    pub(crate) fn knows_drive(&self, drive: DriveId) -> bool {
        self.lock().indexes.contains_key(&drive)
    }

    /// The number of a file.
    pub(crate) fn number(&self, handle: FileHandle) -> u64 {
        if handle == self.root { self.root_number } else { self.lock().number(handle) }
    }

    /// The number of a file, if the kernel knows it.
    pub(crate) fn known(&self, handle: FileHandle) -> Option<u64> {
        let tables = self.lock();
        let ino = if handle == self.root { self.root_number } else { tables.find(handle)? };
        tables.inodes.contains_key(&ino).then_some(ino)
    }

    /// The file with this number, if the kernel knows it.
    pub(crate) fn handle(&self, ino: u64) -> Option<FileHandle> {
        self.lock().inodes.get(&ino).map(|inode| inode.handle)
    }

    /// The kernel is about to be told that `name` in `dir` leads to this file. Returns its number.
    pub(crate) fn remember(&self, dir: u64, name: &[u8], handle: FileHandle) -> u64 {
        let mut tables = self.lock();
        let ino = if handle == self.root { self.root_number } else { tables.number(handle) };
        let inode = tables.inodes.entry(ino).or_insert_with(|| Inode::new(handle));
        inode.lookups += 1;
        tables.set_name(dir, name, ino);
        ino
    }

    /// The kernel forgets what it was told `count` times.
    pub(crate) fn forget(&self, ino: u64, count: u64) {
        let mut tables = self.lock();
        let Some(inode) = tables.inodes.get_mut(&ino) else {
            return;
        };
        inode.lookups = inode.lookups.saturating_sub(count);
        tables.drop_unused(ino);
    }

    /// Where a name leads, as far as the kernel was told.
    #[cfg(test)]
    fn child(&self, dir: u64, name: &[u8]) -> Option<u64> {
        Some(self.lock().names.get(&dir)?.get(name)?.0)
    }

    /// Directories and names that the kernel was told of not longer ago than `age`: in these, or anywhere.
    pub(crate) fn told_within(
        &self,
        directories: Option<&[FileHandle]>,
        age: Duration,
    ) -> Vec<(u64, Box<[u8]>)> {
        let mut tables = self.lock();
        let dirs: Vec<u64> = match directories {
            None => tables.names.keys().copied().collect(),
            Some([]) => Vec::new(),
            Some(some) => {
                let number = |handle: &FileHandle| match *handle == self.root {
                    true => self.root_number,
                    false => tables.number(*handle),
                };
                some.iter().map(number).collect()
            }
        };
        let mut told = Vec::new();
        for dir in dirs {
            let names = tables.names.get(&dir).into_iter().flatten();
            let lately = names.filter(|(_, (_, since))| since.elapsed() <= age);
            told.extend(lately.map(|(name, _)| (dir, name.clone())));
        }
        told
    }

    /// A directory that has this file, or itself.
    pub(crate) fn parent(&self, ino: u64) -> u64 {
        let tables = self.lock();
        let inode = tables.inodes.get(&ino);
        inode.and_then(|inode| inode.names.first()).map_or(ino, |(dir, _)| *dir)
    }

    /// A name is gone.
    pub(crate) fn forget_name(&self, dir: u64, name: &[u8]) {
        self.lock().remove_name(dir, name);
    }

    /// A name has moved.
    pub(crate) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let mut tables = self.lock();
        tables.remove_name(to.0, to.1);
        if let Some(ino) = tables.remove_name(from.0, from.1) {
            tables.set_name(to.0, to.1, ino);
        }
    }

    /// Two names have changed places.
    pub(crate) fn exchange(&self, one: (u64, &[u8]), other: (u64, &[u8])) {
        let mut tables = self.lock();
        let first = tables.remove_name(one.0, one.1);
        let second = tables.remove_name(other.0, other.1);
        if let Some(ino) = first {
            tables.set_name(other.0, other.1, ino);
        }
        if let Some(ino) = second {
            tables.set_name(one.0, one.1, ino);
        }
    }

    /// A file is about to be opened. Every `begin_open` needs an `end_open`.
    pub(crate) fn begin_open(&self, ino: u64, handle: FileHandle, mode: OpenMode) {
        let mut tables = self.lock();
        let inode = tables.inodes.entry(ino).or_insert_with(|| Inode::new(handle));
        inode.opens += 1;
        inode.writers += u32::from(mode.write);
        inode.changers += u32::from(mode.write && mode.read);
    }

    /// A file was closed, or not opened after all. Returns true if it was the last opening of a
    /// file without a name.
    pub(crate) fn end_open(&self, ino: u64, mode: OpenMode) -> bool {
        let mut tables = self.lock();
        let Some(inode) = tables.inodes.get_mut(&ino) else {
            return false;
        };
        inode.opens = inode.opens.saturating_sub(1);
        inode.writers = inode.writers.saturating_sub(u32::from(mode.write));
        inode.changers = inode.changers.saturating_sub(u32::from(mode.write && mode.read));
        let ends = inode.opens == 0 && inode.nameless;
        tables.drop_unused(ino);
        ends
    }

    /// Whether somebody has a file open.
    pub(crate) fn is_open(&self, ino: u64) -> bool {
        self.lock().inodes.get(&ino).is_some_and(|inode| inode.opens > 0)
    }

    /// The kernel is about to be told of an opening, which goes around its page cache if it is to, or if somebody may write the
    /// file past the mount. Returns whether it does, and what pages there may be for it. Every `tell_open` needs an `end_told`.
    pub(crate) fn tell_open(
        &self,
        ino: u64,
        mode: OpenMode,
        goes_around: bool,
    ) -> (bool, PagesHeld) {
        let mut tables = self.lock();
        let mut inode = tables.inodes.get_mut(&ino);
        let goes_around = goes_around || inode.as_ref().is_some_and(|inode| inode.bulk_writers > 0);
        let pages = PagesHeld::by(mode, goes_around);
        if let Some(inode) = &mut inode {
            inode.count_pages(&pages, true);
        }
        (goes_around, pages)
    }

    /// The kernel has ended an opening that it was told of.
    pub(crate) fn end_told(&self, ino: u64, pages: &PagesHeld) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.count_pages(pages, false);
        }
        self.fewer_holders.notify_all();
    }

    /// The kernel has read a page for an opening that goes around its cache, or has written one: it is mapped.
    pub(crate) fn note_mapping(&self, ino: u64, pages: &PagesHeld) {
        if pages.are_mapped.load(Ordering::Relaxed) {
            return;
        }
        let mut tables = self.lock();
        pages.are_mapped.store(true, Ordering::Relaxed);
        if let Some(inode) = tables.inodes.get_mut(&ino) {
            inode.count_pages(pages, true);
        }
    }

    /// An opening is about to be written past the mount; not where the kernel may have pages for others. Those who ask at the same
    /// time may all. Every one that may needs an `end_bulk_write`.
    pub(crate) fn begin_bulk_write(&self, ino: u64, pages: &PagesHeld) -> bool {
        let deadline = Instant::now() + ENDING;
        let mut tables = self.lock();
        if let Some(inode) = tables.inodes.get_mut(&ino) {
            inode.count_pages(pages, pages.are_mapped.load(Ordering::Relaxed));
            self.fewer_holders.notify_all();
        }
        loop {
            let Some(inode) = tables.inodes.get_mut(&ino) else {
                return false;
            };
            let own = u32::from(pages.count.load(Ordering::Relaxed));
            if inode.page_holders <= own {
                inode.bulk_writers += 1;
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                inode.count_pages(pages, true);
                return false;
            }
            let waited = self.fewer_holders.wait_timeout(tables, left);
            tables = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// One that might does not any more.
    pub(crate) fn end_bulk_write(&self, ino: u64, pages: &PagesHeld) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.bulk_writers = inode.bulk_writers.saturating_sub(1);
            inode.count_pages(pages, true);
        }
    }

    /// Whether a file is open more than once.
    pub(crate) fn is_open_twice(&self, ino: u64) -> bool {
        self.lock().inodes.get(&ino).is_some_and(|inode| inode.opens > 1)
    }

    /// Whether somebody has a file open for writing.
    pub(crate) fn is_written(&self, ino: u64) -> bool {
        self.lock().inodes.get(&ino).is_some_and(|inode| inode.writers > 0)
    }

    /// Whether somebody may have mapped a file so that he writes into the kernel's pages of it.
    pub(crate) fn may_be_mapped_for_writing(&self, ino: u64) -> bool {
        self.lock().inodes.get(&ino).is_some_and(|inode| inode.changers > 0)
    }

    /// Whether the kernel has no pages of a file from before it had this version. If it has none at all, and is
    /// about to read some, those are not.
    pub(crate) fn are_pages_of(&self, ino: u64, version: Version, will_read: bool) -> bool {
        let mut tables = self.lock();
        let Some(inode) = tables.inodes.get_mut(&ino) else {
            return false;
        };
        if inode.pages == Pages::None && will_read {
            inode.pages = Pages::Since(version);
        }
        inode.pages == Pages::None || inode.pages == Pages::Since(version)
    }

    /// Whether a file is open but once, the kernel has no pages of it, and believes that it has this version.
    pub(crate) fn is_alone_without_pages(&self, ino: u64, version: Version) -> bool {
        let tables = self.lock();
        tables.inodes.get(&ino).is_some_and(|inode| {
            let is_alone = inode.opens == 1 && inode.writers == 0 && inode.bulk_writers == 0;
            is_alone && inode.pages == Pages::None && inode.told == Some(version)
        })
    }

    /// Whether the kernel may have pages of a file that are of this version.
    pub(crate) fn may_have_pages_of(&self, ino: u64, version: Version) -> bool {
        let tables = self.lock();
        tables.inodes.get(&ino).is_some_and(|inode| inode.pages == Pages::Since(version))
    }

    /// Whether the kernel may have any pages of a file.
    pub(crate) fn may_have_pages(&self, ino: u64) -> bool {
        self.lock().inodes.get(&ino).is_some_and(|inode| inode.pages != Pages::None)
    }

    /// The files of which the kernel may have pages.
    pub(crate) fn with_pages(&self) -> Vec<u64> {
        let tables = self.lock();
        let with = tables.inodes.iter().filter(|(_, inode)| inode.pages != Pages::None);
        with.map(|(ino, _)| *ino).collect()
    }

    /// The kernel has forgotten all pages that it had of a file when it had this version.
    pub(crate) fn forgot_pages(&self, ino: u64, version: Version) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.pages = Pages::Since(version);
        }
    }

    /// The kernel begins to forget pages of a file. Every `begin_forgetting` needs an `end_forgetting`.
    pub(crate) fn begin_forgetting(&self, ino: u64) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.forgetting += 1;
        }
    }

    /// The kernel has forgotten them.
    pub(crate) fn end_forgetting(&self, ino: u64) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.forgetting = inode.forgetting.saturating_sub(1);
            inode.forgot = Some(Instant::now());
        }
    }

    /// The kernel goes on to forget pages of a write that is about to be answered. Every `begin_late` needs an
    /// `end_late`.
    pub(crate) fn begin_late(&self, ino: u64) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.late += 1;
        }
    }

    /// The kernel has forgotten them.
    pub(crate) fn end_late(&self, ino: u64) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.late = inode.late.saturating_sub(1);
            inode.was_late = Some(Instant::now());
        }
    }

    /// Whether the kernel is forgetting pages of a file, or was at that time or later.
    pub(crate) fn forgot_since(&self, ino: u64, time: Instant) -> Forgot {
        let tables = self.lock();
        let Some(inode) = tables.inodes.get(&ino) else {
            return Forgot::No;
        };
        let since = |at: Option<Instant>| at.is_some_and(|at| at >= time);
        if inode.forgetting > 0 || since(inode.forgot) {
            Forgot::Some
        } else if inode.late > 0 || since(inode.was_late) {
            Forgot::Late
        } else {
            Forgot::No
        }
    }

    /// Held by whoever has the kernel forget a file's pages, from the moment when he looks whether it must. Whoever
    /// looks meanwhile waits until they are gone.
    pub(crate) fn forgetting(&self, ino: u64) -> Arc<Mutex<()>> {
        let mut tables = self.lock();
        let inode = tables.inodes.get_mut(&ino);
        inode.map_or_else(Arc::default, |inode| Arc::clone(inode.turn.get_or_insert_default()))
    }

    /// The kernel is about to be told these attributes.
    pub(crate) fn tell(&self, ino: u64, attributes: &FileAttributes) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.told = Some(version(attributes));
            inode.times = Some(Times::from(attributes));
            inode.wrote = false;
        }
    }

    /// The times of a file, as far as they are known: one that was written since has just changed.
    pub(crate) fn times(&self, ino: u64) -> Option<Times> {
        let tables = self.lock();
        let inode = tables.inodes.get(&ino)?;
        let times = inode.times?;
        Some(if inode.wrote { Times { changed: Timestamp::MAX, ..times } } else { times })
    }

    /// The kernel has written up to `end`, and so believes that the file is that long at least.
    pub(crate) fn written(&self, ino: u64, end: u64) {
        let mut tables = self.lock();
        let Some(inode) = tables.inodes.get_mut(&ino) else {
            return;
        };
        inode.wrote = true;
        if let Some(told) = &mut inode.told {
            told.size = told.size.max(end);
        }
    }

    /// Whether somebody else must have written since the kernel was told.
    pub(crate) fn was_changed_elsewhere(&self, ino: u64, version: Version) -> bool {
        let tables = self.lock();
        let is_other =
            |told: Version| (told.data, told.modified) != (version.data, version.modified);
        let inode = tables.inodes.get(&ino);
        inode.is_some_and(|inode| !inode.wrote && inode.told.is_some_and(is_other))
    }

    /// Whether the kernel believes the attributes of a file that it opens.
    pub(crate) fn is_believed(&self, ino: u64, version: Version) -> bool {
        let tables = self.lock();
        let told = tables.inodes.get(&ino).and_then(|inode| inode.told);
        told.is_none_or(|told| told == version)
    }

    /// A file has lost its last name, or has got one.
    pub(crate) fn set_nameless(&self, ino: u64, nameless: bool) {
        if let Some(inode) = self.lock().inodes.get_mut(&ino) {
            inode.nameless = nameless;
        }
    }

    /// Whether a file ends with its last closing.
    pub(crate) fn is_nameless(&self, ino: u64) -> bool {
        self.lock().inodes.get(&ino).is_some_and(|inode| inode.nameless)
    }

    /// The kernel is about to be told of a file that has no name. Returns its number.
    pub(crate) fn remember_nameless(&self, handle: FileHandle) -> u64 {
        let mut tables = self.lock();
        let ino = tables.number(handle);
        let inode = tables.inodes.entry(ino).or_insert_with(|| Inode::new(handle));
        inode.lookups += 1;
        inode.nameless = true;
        ino
    }

    /// The file of this name, as far as the kernel was told, if it is open.
    pub(crate) fn open_child(&self, dir: u64, name: &[u8]) -> Option<(u64, FileHandle)> {
        let tables = self.lock();
        let (ino, _) = *tables.names.get(&dir)?.get(name)?;
        let inode = tables.inodes.get(&ino).filter(|inode| inode.opens > 0)?;
        Some((ino, inode.handle))
    }
}

impl Inode {
    fn new(handle: FileHandle) -> Self {
        Inode {
            handle,
            lookups: 0,
            opens: 0,
            writers: 0,
            changers: 0,
            bulk_writers: 0,
            page_holders: 0,
            names: Vec::new(),
            pages: Pages::None,
            forgetting: 0,
            forgot: None,
            late: 0,
            was_late: None,
            turn: None,
            told: None,
            times: None,
            wrote: false,
            nameless: false,
        }
    }

    /// From now on an opening's pages count, if there may be any, or don't.
    fn count_pages(&mut self, pages: &PagesHeld, count: bool) {
        let count = count && pages.may_be;
        let before = pages.count.swap(count, Ordering::Relaxed);
        self.page_holders = self.page_holders + u32::from(count) - u32::from(before);
    }
}

impl Tables {
    fn new(numbers: Numbers) -> Tables {
        Tables {
            numbers,
            inodes: HashMap::new(),
            names: HashMap::new(),
            indexes: HashMap::new(),
            others: HashMap::new(),
            others_given: 0,
        }
    }

    fn learn_drives(&mut self, volume: &Volume) {
        for drive in &volume.drives {
            self.indexes.insert(drive.drive, u64::from(drive.index));
        }
    }

    /// The number that a file has, or can be given by itself.
    fn find(&self, handle: FileHandle) -> Option<u64> {
        if let Some(number) = self.others.get(&handle) {
            return Some(*number);
        }
        let number = self.numbers.of(*self.indexes.get(&handle.drive)?, handle.object)?;
        let is_ours = |inode: &Inode| inode.handle == handle;
        self.inodes.get(&number).is_none_or(is_ours).then_some(number)
    }

    fn number(&mut self, handle: FileHandle) -> u64 {
        if let Some(number) = self.find(handle) {
            return number;
        }
        self.others_given += 1;
        let number = self.numbers.other(self.others_given);
        self.others.insert(handle, number);
        number
    }

    fn set_name(&mut self, dir: u64, name: &[u8], ino: u64) {
        match self.names.get_mut(&dir).and_then(|names| names.get_mut(name)) {
            Some((known, since)) if *known == ino => {
                *since = Instant::now();
                return;
            }
            Some(_) => drop(self.remove_name(dir, name)),
            None => {}
        }
        self.names.entry(dir).or_default().insert(name.into(), (ino, Instant::now()));
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.names.push((dir, name.into()));
        }
    }

    fn remove_name(&mut self, dir: u64, name: &[u8]) -> Option<u64> {
        let names = self.names.get_mut(&dir)?;
        let (ino, _) = names.remove(name)?;
        if names.is_empty() {
            self.names.remove(&dir);
        }
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.names.retain(|(d, n)| (*d, &**n) != (dir, name));
        }
        Some(ino)
    }

    /// Forgets a file that the kernel does not know, and that nobody has open.
    fn drop_unused(&mut self, ino: u64) {
        let unused =
            |inode: &Inode| inode.lookups == 0 && inode.opens == 0 && ino != self.numbers.root;
        if !self.inodes.get(&ino).is_some_and(unused) {
            return;
        }
        let Some(inode) = self.inodes.remove(&ino) else {
            return;
        };
        for (dir, name) in &inode.names {
            if let Some(names) = self.names.get_mut(dir) {
                names.remove(name);
                if names.is_empty() {
                    self.names.remove(dir);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nasd_clerk::{Settings, fake::FakeCell};
    use nasd_types::{ObjectId, PartitionId};

    use super::*;

    fn at(time: u64, size: u64) -> Version {
        Version { data: time, modified: Timestamp(time), size }
    }

    /// The highest bit of an object's in a number.
    const NAMED: u64 = 1 << (OBJECT_BITS - 1);

    fn inodes_of(volume: &Volume) -> Inodes {
        Inodes::new(volume, Numbers::MOUNTED)
    }

    fn volume() -> Arc<Volume> {
        let cell = FakeCell::new(2, std::time::Duration::from_secs(1));
        cell.clerk(Settings::default()).volume()
    }

    /// A file on the volume's drive number `drive`.
    fn handle(volume: &Volume, drive: usize, object: u64) -> FileHandle {
        FileHandle {
            drive: volume.drives[drive].drive,
            partition: PartitionId(9),
            object: ObjectId(object),
        }
    }

    #[test]
    fn numbers_are_stable_and_unique() {
        let volume = volume();
        let (first, second) = (inodes_of(&volume), inodes_of(&volume));
        let index = u64::from(volume.drives[1].index);
        assert_eq!(first.number(handle(&volume, 1, 700)), index << 48 | 700);
        assert_eq!(first.number(volume.root.handle), ROOT);
        let ours = handle(&volume, 0, 71);
        assert_eq!(first.number(ours), second.number(ours));
        // What a striping manager has chosen.
        let chosen = handle(&volume, 0, ObjectId::FIRST_NAMED.0 + 71);
        assert_eq!(first.number(chosen), second.number(chosen));
        let huge = handle(&volume, 0, 1 << 48 | 71);
        let as_if_chosen = handle(&volume, 0, NAMED | 71);
        let chosen_huge = handle(&volume, 0, ObjectId::FIRST_NAMED.0 + (NAMED | 71));
        let stranger = FileHandle { drive: DriveId(12345), ..ours };
        let namesake = FileHandle { partition: PartitionId(10), ..ours };
        first.remember(ROOT, b"a", ours);
        let files = [ours, namesake, chosen, huge, as_if_chosen, chosen_huge, stranger];
        let mut numbers: Vec<u64> = files.map(|handle| first.number(handle)).into();
        assert_eq!(first.number(namesake), numbers[1], "the same while it is mounted");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), files.len());
    }

    #[test]
    fn numbers_with_a_tag_are_nobody_elses_and_tell_it() {
        let volume = volume();
        let mut numbers = Vec::new();
        let places = [1, 2, TAGS - 1].map(|tag| (tag, Inodes::new(&volume, Numbers::tagged(tag))));
        let misfit = handle(&volume, 1, 1 << 45 | 71);
        let chosen = handle(&volume, 0, ObjectId::FIRST_NAMED.0 + 71);
        for handle in [volume.root.handle, handle(&volume, 1, 700), chosen, misfit] {
            numbers.push(inodes_of(&volume).number(handle));
            for (at, inodes) in &places {
                let number = inodes.remember(7, b"a", handle);
                assert_eq!(tag(number), Some(*at));
                assert_eq!(tag(with_tag(number, 9)), Some(9));
                assert_eq!(with_tag(with_tag(number, 9), *at), number);
                assert_eq!(inodes.handle(number), Some(handle));
                numbers.push(number);
            }
        }
        assert!(numbers.iter().all(|number| *number != 0));
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
        let (_, inodes) = &places[0];
        let known = inodes.known_files();
        known.iter().for_each(|known| inodes.forget(known.ino, known.lookups));
        assert!(inodes.is_unknown());
        let next = Inodes::new(&volume, Numbers::tagged(1));
        known.iter().for_each(|known| next.know(known));
        assert!(next.is_root_known() && !next.is_unknown());
        let other = handle(&volume, 1, 1 << 45 | 72);
        assert!(known.iter().all(|known| known.ino != next.number(other)));
    }

    #[test]
    fn numbers_of_a_process_before_are_not_given_to_others() {
        let volume = volume();
        let (before, after) = (inodes_of(&volume), inodes_of(&volume));
        let misfit = |object: u64| handle(&volume, 0, 1 << 50 | object);
        for object in 0..3 {
            before.remember(ROOT, format!("{object}").as_bytes(), misfit(object));
        }
        before.known_files().iter().for_each(|known| after.know(known));
        for object in 0..3 {
            assert_eq!(after.number(misfit(object)), before.number(misfit(object)));
        }
        let fresh = after.number(misfit(3));
        assert!((0..3).all(|object| before.number(misfit(object)) != fresh));
    }

    #[test]
    fn files_are_forgotten_when_the_kernel_forgets_them_and_nobody_has_them_open() {
        let volume = volume();
        let inodes = inodes_of(&volume);
        let file = handle(&volume, 0, 700);
        let ino = inodes.remember(ROOT, b"a", file);
        assert_eq!(inodes.remember(ROOT, b"b", file), ino);
        inodes.forget(ino, 1);
        assert_eq!(inodes.handle(ino), Some(file));
        inodes.begin_open(ino, file, OpenMode::WRITE);
        inodes.forget(ino, 1);
        assert_eq!(inodes.child(ROOT, b"b"), Some(ino));
        assert!(!inodes.end_open(ino, OpenMode::WRITE));
        assert_eq!(inodes.handle(ino), None);
        assert_eq!(inodes.child(ROOT, b"b"), None);
        assert!(inodes.lock().names.is_empty());
        inodes.forget(ROOT, 1000);
        assert_eq!(inodes.handle(ROOT), Some(volume.root.handle));
    }

    #[test]
    fn names_follow_renames() {
        let volume = volume();
        let inodes = inodes_of(&volume);
        let first = inodes.remember(ROOT, b"a", handle(&volume, 0, 700));
        let second = inodes.remember(ROOT, b"b", handle(&volume, 0, 701));
        inodes.rename((ROOT, b"a"), (ROOT, b"b"));
        assert_eq!((inodes.child(ROOT, b"a"), inodes.child(ROOT, b"b")), (None, Some(first)));
        inodes.forget(second, 1);
        assert_eq!(inodes.child(ROOT, b"b"), Some(first), "not the forgotten one's any more");
        assert_eq!(inodes.parent(first), ROOT);
    }

    #[test]
    fn a_file_without_a_name_ends_with_its_last_closing() {
        let volume = volume();
        let inodes = inodes_of(&volume);
        let file = handle(&volume, 0, 700);
        let ino = inodes.remember(ROOT, b"a", file);
        assert_eq!(inodes.open_child(ROOT, b"a"), None);
        inodes.begin_open(ino, file, OpenMode::READ);
        inodes.begin_open(ino, file, OpenMode::WRITE);
        assert_eq!(inodes.open_child(ROOT, b"a"), Some((ino, file)));
        inodes.set_nameless(ino, true);
        inodes.forget(ino, 1);
        assert!(!inodes.end_open(ino, OpenMode::READ));
        assert!(inodes.end_open(ino, OpenMode::WRITE), "now it must go");
        assert_eq!(inodes.handle(ino), None);
        let ino = inodes.remember_nameless(file);
        inodes.begin_open(ino, file, OpenMode::WRITE);
        inodes.set_nameless(ino, false);
        assert!(!inodes.end_open(ino, OpenMode::WRITE), "it has got a name");
    }

    const BOTH: OpenMode = OpenMode::READ_WRITE;

    /// A file that was opened so, each time around the cache or not.
    fn opened(openings: &[(OpenMode, bool)]) -> (Inodes, u64, Vec<PagesHeld>) {
        let volume = volume();
        let inodes = inodes_of(&volume);
        let ino = inodes.remember(ROOT, b"a", handle(&volume, 0, 700));
        let open = |(mode, goes_around): &(OpenMode, bool)| {
            let (goes_so, pages) = open_once_more(&inodes, ino, *mode, *goes_around);
            assert_eq!(goes_so, *goes_around);
            pages
        };
        let pages = openings.iter().map(open).collect();
        (inodes, ino, pages)
    }

    fn open_once_more(
        inodes: &Inodes,
        ino: u64,
        mode: OpenMode,
        goes_around: bool,
    ) -> (bool, PagesHeld) {
        inodes.begin_open(ino, inodes.handle(ino).unwrap(), mode);
        inodes.tell_open(ino, mode, goes_around)
    }

    #[test]
    fn a_file_is_written_past_the_mount_where_the_kernel_has_no_pages_for_others() {
        for (other, goes_around, may) in [
            (OpenMode::WRITE, true, true),
            (OpenMode::WRITE, false, false),
            (BOTH, true, false),
            (BOTH, false, false),
            (OpenMode::READ, true, false),
        ] {
            for mode in [OpenMode::WRITE, BOTH] {
                let (inodes, ino, pages) = opened(&[(other, goes_around), (mode, true)]);
                let begun = inodes.begin_bulk_write(ino, &pages[1]);
                assert_eq!(begun, may, "{mode:?} beside {other:?} {goes_around}");
                inodes.end_told(ino, &pages[0]);
                assert!(begun || inodes.begin_bulk_write(ino, &pages[1]), "now it is alone");
                // Whoever comes goes around the cache, and may be mapped all the same.
                let (goes_around, later) = open_once_more(&inodes, ino, OpenMode::READ, false);
                assert!(goes_around);
                let (_, last) = open_once_more(&inodes, ino, OpenMode::WRITE, true);
                assert!(!inodes.begin_bulk_write(ino, &last));
                inodes.end_told(ino, &later);
                assert!(inodes.begin_bulk_write(ino, &last));
                for pages in [&last, &pages[1]] {
                    inodes.end_bulk_write(ino, pages);
                    inodes.end_told(ino, pages);
                }
                assert!(!inodes.tell_open(ino, OpenMode::WRITE, false).0, "it is over");
            }
        }
    }

    #[test]
    fn several_may_write_past_the_mount_that_ask_after_each_other_or_together() {
        let (inodes, ino, _) = opened(&[]);
        let mut all = Vec::new();
        for _ in 0..3 {
            let (_, pages) = open_once_more(&inodes, ino, BOTH, true);
            assert!(inodes.begin_bulk_write(ino, &pages));
            all.push(pages);
        }
        // Who maps what he has, counts.
        inodes.note_mapping(ino, &all[0]);
        let (_, pages) = open_once_more(&inodes, ino, BOTH, true);
        assert!(!inodes.begin_bulk_write(ino, &pages));
        inodes.end_bulk_write(ino, &all[0]);
        inodes.end_told(ino, &all[0]);
        assert!(inodes.begin_bulk_write(ino, &pages));

        let (inodes, ino, pages) = opened(&[(BOTH, true); 2]);
        std::thread::scope(|scope| {
            // One of them may be late for the other.
            let ask = |pages| (0..100).any(|_| inodes.begin_bulk_write(ino, pages));
            let asking = [&pages[0], &pages[1]].map(|pages| scope.spawn(move || ask(pages)));
            assert!(asking.into_iter().all(|asking| asking.join().unwrap()));
        });
    }

    #[test]
    fn an_opening_that_is_ending_is_waited_for() {
        let (inodes, ino, pages) = opened(&[(BOTH, true); 2]);
        assert!(!inodes.begin_bulk_write(ino, &pages[1]), "and no longer");
        std::thread::scope(|scope| {
            let end = || {
                std::thread::sleep(ENDING / 5);
                inodes.end_told(ino, &pages[0]);
            };
            scope.spawn(end);
            assert!(inodes.begin_bulk_write(ino, &pages[1]));
        });
        // Who has asked in vain counts as before.
        let (inodes, ino, pages) = opened(&[(BOTH, true); 2]);
        assert!(!inodes.begin_bulk_write(ino, &pages[0]));
        assert!(!inodes.begin_bulk_write(ino, &pages[1]));
    }

    #[test]
    fn pages_are_good_while_time_and_length_are_the_same() {
        let volume = volume();
        let inodes = inodes_of(&volume);
        let file = handle(&volume, 0, 700);
        let ino = inodes.remember(ROOT, b"a", file);
        assert!(inodes.are_pages_of(ino, at(4, 10), false), "there is none");
        assert!(inodes.are_pages_of(ino, at(5, 10), true), "nor was there");
        assert!(inodes.are_pages_of(ino, at(5, 10), true));
        assert!(!inodes.are_pages_of(ino, at(6, 10), true));
        assert!(!inodes.are_pages_of(ino, at(6, 11), false));
        inodes.forgot_pages(ino, at(6, 11));
        assert!(inodes.are_pages_of(ino, at(6, 11), true));
        let taken_over = inodes_of(&volume);
        inodes.known_files().iter().for_each(|known| taken_over.know(known));
        assert!(!taken_over.are_pages_of(ino, at(6, 11), true), "any may be left");
    }
}
