//! A whole directory in memory: its blocks, an index of the names, and where there is room.
//!
//! A change is planned first, as the new bytes of one block ([`Change`]), which tells the journal's
//! steps, and then applied. Bytes of an entry are kept once, in the block; the index holds hashes and
//! places, about 20 bytes a name.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::ObjectId;
use nasd_types::limits::{BLOCK_BYTES, MAX_NAME_BYTES};

use super::{DirectoryBlock, DirectoryError, Entry, Listed};
use crate::journal::Step;

/// Blocks of the largest directory, 4 GiB: block numbers must fit a cookie with room to spare.
const MAX_BLOCKS: u64 = 1 << 20;

/// Cookies up to this one are for `.` and `..`, which are no entries.
pub(crate) const RESERVED_COOKIES: u64 = 2;

/// Index bytes that one entry costs, for the cache's budget.
const INDEX_BYTES: usize = 24;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    block: u32,
    slot: u8,
}

impl Place {
    fn cookie(self) -> u64 {
        nasd_directory::cookie(self.block, self.slot)
    }

    /// The first place whose cookie is after `cookie`.
    fn after(cookie: u64) -> (u64, u8) {
        let position = cookie.saturating_sub(RESERVED_COOKIES);
        (position >> 8, position as u8)
    }
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Entries in the order of their cookies.
    pub entries: Vec<Listed>,
    /// Whether nothing follows.
    pub end: bool,
}

/// A planned change: one write, of one block or of the directory's length.
#[derive(Clone, Debug)]
pub enum Change {
    /// Write this block.
    Write {
        /// Which block; the one after the last makes the directory longer.
        number: u32,
        /// Its new contents.
        block: DirectoryBlock,
        /// Slots whose entries go.
        removed: Vec<u8>,
        /// Slots whose entries come.
        added: Vec<u8>,
    },
    /// Set the directory's length: the blocks from `blocks` on hold nothing any more, apart from
    /// the one entry that goes with this.
    Shrink {
        /// Blocks that stay.
        blocks: u32,
    },
}

/// The index must not depend on names that users choose, so the hash has a key; the map's own
/// hash of it is then the identity.
#[derive(Clone, Copy, Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {}
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A directory's contents.
#[derive(Debug)]
pub struct Directory<H = RandomState> {
    object: ObjectId,
    blocks: Vec<DirectoryBlock>,
    index: HashMap<u64, Place, BuildHasherDefault<Identity>>,
    /// Entries whose hash another entry has: never, but for a 64-bit coincidence.
    twins: Vec<(u64, Place)>,
    /// Blocks by the longest name that they have room for.
    rooms: BTreeSet<(usize, u32)>,
    entries: usize,
    subdirectories: u32,
    hasher: H,
}

impl Directory {
    /// A directory without entries.
    pub fn empty(object: ObjectId) -> Directory {
        Directory::with_hasher(object, RandomState::new())
    }

    /// Checks and indexes the whole contents of the object.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn parse(object: ObjectId, data: &[u8]) -> Result<Directory, DirectoryError> {
        Directory::parse_with_hasher(object, data, RandomState::new())
    }
}

impl<H: BuildHasher> Directory<H> {
    pub(super) fn with_hasher(object: ObjectId, hasher: H) -> Self {
        Directory {
            object,
            blocks: Vec::new(),
            index: HashMap::default(),
            twins: Vec::new(),
            rooms: BTreeSet::new(),
            entries: 0,
            subdirectories: 0,
            hasher,
        }
    }

    fn parse_with_hasher(object: ObjectId, data: &[u8], hasher: H) -> Result<Self, DirectoryError> {
        let length = data.len() as u64;
        let (blocks, []) = data.as_chunks::<BLOCK_BYTES>() else {
            return Err(DirectoryError::PartialBlock { length });
        };
        let count = blocks.len() as u64;
        if count > MAX_BLOCKS {
            return Err(DirectoryError::TooLarge { blocks: count });
        }
        let mut directory = Directory::with_hasher(object, hasher);
        for (number, bytes) in blocks.iter().enumerate() {
            let number = number as u32;
            let block = DirectoryBlock::parse(object, number, bytes)?;
            directory.rooms.insert((block.room(), number));
            directory.blocks.push(block);
            for slot in 0..=u8::MAX {
                directory.index_new_entry(Place { block: number, slot })?;
            }
        }
        Ok(directory)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Entries that are directories: each has a `..` that names this one.
    pub fn subdirectories(&self) -> u32 {
        self.subdirectories
    }

    /// Length of the object in bytes.
    pub fn object_bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK_BYTES) as u64
    }

    #[cfg(test)]
    pub(super) fn raw_blocks(&self) -> impl Iterator<Item = &DirectoryBlock> {
        self.blocks.iter()
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES + self.entries * INDEX_BYTES + size_of::<Self>()
    }

    /// The entry of that name.
    pub fn find(&self, name: &[u8]) -> Option<Entry<'_>> {
        self.place(name).and_then(|place| self.at(place))
    }

    /// Entries after `cookie`, at most `max_entries`, and as many as have `max_bytes` bytes of name
    /// and 48 bytes each together; at least one, if there is one.
    pub fn list(&self, cookie: u64, max_entries: usize, max_bytes: usize) -> Listing {
        let (first_block, first_slot) = Place::after(cookie);
        let mut listing = Listing { entries: Vec::new(), end: true };
        let mut bytes = 0;
        let first_index = usize::try_from(first_block).unwrap_or(usize::MAX);
        for (number, block) in self.blocks.iter().enumerate().skip(first_index) {
            let from = if number == first_index { first_slot } else { 0 };
            for (slot, entry) in block.entries().filter(|(slot, _)| *slot >= from) {
                bytes += entry.name.len() + 48;
                let full = listing.entries.len() >= max_entries || bytes > max_bytes;
                if full && !listing.entries.is_empty() || max_entries == 0 {
                    listing.end = false;
                    return listing;
                }
                listing.entries.push(Listed {
                    cookie: Place { block: number as u32, slot }.cookie(),
                    name: entry.name.to_vec(),
                    handle: entry.handle,
                    file_type: entry.file_type,
                });
            }
        }
        listing
    }

    /// How many names a file has here.
    pub fn names_of(&self, file: FileHandle) -> usize {
        let entries = self.blocks.iter().flat_map(DirectoryBlock::entries);
        entries.filter(|(_, entry)| entry.handle == file).count()
    }

    /// The change that adds a name that is not there: into the fullest block that has room for it,
    /// or a new one. `None` if the name can't be one, is there, or the directory is full.
    pub fn plan_insert(&self, entry: &Entry<'_>) -> Option<Change> {
        if self.place(entry.name).is_some() || entry.name.len() > MAX_NAME_BYTES {
            return None;
        }
        let number = self.rooms.range((entry.name.len(), 0)..).next().map(|(_, number)| *number);
        let number = match number {
            Some(number) => number,
            None if (self.blocks.len() as u64) < MAX_BLOCKS => self.blocks.len() as u32,
            None => return None,
        };
        let mut block = self.block_or_new(number);
        let slot = block.insert(entry)?;
        block.advance_revision();
        Some(Change::Write { number, block, removed: Vec::new(), added: vec![slot] })
    }

    /// The change that makes a name that is there name something else.
    pub fn plan_replace(&self, entry: &Entry<'_>) -> Option<Change> {
        let place = self.place(entry.name)?;
        let mut block = self.block_or_new(place.block);
        block.replace(place.slot, entry.handle, entry.file_type);
        block.advance_revision();
        Some(Change::Write {
            number: place.block,
            block,
            removed: vec![place.slot],
            added: vec![place.slot],
        })
    }

    /// The change that removes a name that is there. Blocks at the end that hold nothing are cut
    /// off, which is one write too.
    pub fn plan_remove(&self, name: &[u8]) -> Option<Change> {
        let place = self.place(name)?;
        let last = place.block as usize + 1 == self.blocks.len();
        if last && self.blocks[place.block as usize].len() == 1 {
            let rest = &self.blocks[..place.block as usize];
            let kept = rest.iter().rposition(|block| !block.is_empty()).map_or(0, |at| at + 1);
            return Some(Change::Shrink { blocks: kept as u32 });
        }
        let mut block = self.block_or_new(place.block);
        block.remove(place.slot);
        block.advance_revision();
        Some(Change::Write {
            number: place.block,
            block,
            removed: vec![place.slot],
            added: Vec::new(),
        })
    }

    /// The change that renames within the directory, over what has the new name if anything, where
    /// one block can hold it all; `None` where it takes two.
    pub fn plan_rename(&self, from: &[u8], to: &[u8]) -> Option<Change> {
        let source = self.place(from)?;
        let entry = self.at(source)?;
        let (handle, file_type) = (entry.handle, entry.file_type);
        let mut block = self.block_or_new(source.block);
        let (mut removed, added) = (
            vec![source.slot],
            match self.place(to) {
                Some(target) if target.block == source.block => {
                    block.replace(target.slot, handle, file_type);
                    block.remove(source.slot);
                    target.slot
                }
                Some(_) => return None,
                None => {
                    block.remove(source.slot);
                    block.insert(&Entry { name: to, handle, file_type })?
                }
            },
        );
        if self.place(to).is_some() {
            removed.push(added);
        }
        block.advance_revision();
        Some(Change::Write { number: source.block, block, removed, added: vec![added] })
    }

    /// What a change says of slots, for the journal. It must have been planned on this very state.
    pub fn steps_of(&self, directory: FileHandle, change: &Change) -> Vec<Step> {
        let remove = |block: u32, slot: u8| Step::RemoveName { directory, block, slot };
        match change {
            Change::Write { number, block, removed, added } => {
                let gone = removed.iter().filter(|slot| !added.contains(slot));
                let come = added.iter().filter_map(|slot| {
                    let entry = block.entry(*slot)?;
                    Some(Step::SetName {
                        directory,
                        block: *number,
                        slot: *slot,
                        handle: entry.handle,
                        file_type: entry.file_type,
                        name: entry.name.to_vec(),
                    })
                });
                gone.map(|slot| remove(*number, *slot)).chain(come).collect()
            }
            Change::Shrink { blocks } => {
                let cut = self.blocks.iter().enumerate().skip(*blocks as usize);
                let entries = cut.flat_map(|(number, block)| {
                    block.entries().map(move |(slot, _)| (number as u32, slot))
                });
                entries.map(|(number, slot)| remove(number, slot)).collect()
            }
        }
    }

    /// The bytes of a block; `None` behind the last.
    pub(crate) fn block(&self, number: u32) -> Option<&DirectoryBlock> {
        self.blocks.get(number as usize)
    }

    /// Applies a change. It must have been planned on this very state.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Write { number, block, removed, added } => {
                if number as usize == self.blocks.len() {
                    let fresh = DirectoryBlock::empty(self.object, number);
                    self.rooms.insert((fresh.room(), number));
                    self.blocks.push(fresh);
                }
                self.forget_entries(number, &removed);
                let old_room = self.blocks[number as usize].room();
                self.rooms.remove(&(old_room, number));
                self.rooms.insert((block.room(), number));
                self.blocks[number as usize] = block;
                for slot in added {
                    self.index_entry(Place { block: number, slot });
                }
            }
            Change::Shrink { blocks } => {
                for number in blocks..self.blocks.len() as u32 {
                    let block = &self.blocks[number as usize];
                    self.rooms.remove(&(block.room(), number));
                    let slots: Vec<u8> = block.entries().map(|(slot, _)| slot).collect();
                    self.forget_entries(number, &slots);
                }
                self.blocks.truncate(blocks as usize);
            }
        }
    }

    fn block_or_new(&self, number: u32) -> DirectoryBlock {
        match self.blocks.get(number as usize) {
            Some(block) => block.clone(),
            None => DirectoryBlock::empty(self.object, number),
        }
    }

    fn at(&self, place: Place) -> Option<Entry<'_>> {
        self.blocks.get(place.block as usize)?.entry(place.slot)
    }

    fn place(&self, name: &[u8]) -> Option<Place> {
        let hash = self.hasher.hash_one(name);
        let is_it = |place: &Place| self.at(*place).is_some_and(|entry| entry.name == name);
        let first = self.index.get(&hash)?;
        if is_it(first) {
            return Some(*first);
        }
        self.twins.iter().find(|(twin, place)| *twin == hash && is_it(place)).map(|(_, at)| *at)
    }

    fn index_entry(&mut self, place: Place) {
        let Some(entry) = self.at(place) else { return };
        let (hash, file_type) = (self.hasher.hash_one(entry.name), entry.file_type);
        self.count(hash, file_type, place);
    }

    fn index_new_entry(&mut self, place: Place) -> Result<(), DirectoryError> {
        if self.at(place).is_some_and(|entry| self.place(entry.name).is_some()) {
            return Err(DirectoryError::DuplicateName { block: place.block, slot: place.slot });
        }
        self.index_entry(place);
        Ok(())
    }

    fn count(&mut self, hash: u64, file_type: FileType, place: Place) {
        self.entries += 1;
        self.subdirectories += u32::from(file_type == FileType::Directory);
        match self.index.entry(hash) {
            std::collections::hash_map::Entry::Vacant(vacant) => {
                vacant.insert(place);
            }
            std::collections::hash_map::Entry::Occupied(_) => self.twins.push((hash, place)),
        }
    }

    /// Takes entries out of the index; the block still has them.
    fn forget_entries(&mut self, number: u32, slots: &[u8]) {
        for slot in slots {
            let place = Place { block: number, slot: *slot };
            let Some(entry) = self.at(place) else {
                continue;
            };
            let (hash, file_type) = (self.hasher.hash_one(entry.name), entry.file_type);
            self.entries -= 1;
            self.subdirectories -= u32::from(file_type == FileType::Directory);
            if self.index.get(&hash) != Some(&place) {
                self.twins.retain(|twin| *twin != (hash, place));
                continue;
            }
            match self.twins.iter().position(|(twin, _)| *twin == hash) {
                Some(position) => {
                    let (_, heir) = self.twins.swap_remove(position);
                    self.index.insert(hash, heir);
                }
                None => {
                    self.index.remove(&hash);
                }
            }
        }
    }
}
