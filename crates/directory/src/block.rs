//! One directory block: 4096 bytes, a slot table growing up, entries growing down.
//!
//! ```text
//!  0  "NDIR"            4  version (u16)        6  slots (u16)
//!  8  directory object (u64)                   16  block number (u32)
//! 20  lowest entry byte (u16)                  22  entries (u16)
//! 24  revision (u64): writes of this block so far
//! 32  slot table: per slot the offset of its entry (u16), 0 if free
//! ..  zeros
//!     entries, without gaps up to the block's end:
//!     drive (u64), partition (u32), object (u64), type (u8), name length (u8), name
//! ```
//!
//! Numbers are little-endian. An entry keeps its slot while it lives, so block and slot make a
//! cookie that stays good whatever else changes; bytes move within the block instead.

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{DriveId, ObjectId, PartitionId};

use crate::bytes::{put_u16, put_u32, put_u64, u16_at, u32_at, u64_at};
use crate::handle;
use crate::{DirectoryError, is_valid_name};

/// Version of the format.
pub const VERSION: u16 = 1;

/// First bytes of every block.
pub const MAGIC: [u8; 4] = *b"NDIR";

const HEADER_BYTES: usize = 32;
const SLOT_BYTES: usize = 2;
const ENTRY_HEAD_BYTES: usize = 22;

/// Slots are numbered in 8 bits.
const MAX_SLOTS: usize = 256;

const AT_VERSION: usize = 4;
const AT_SLOTS: usize = 6;
const AT_OBJECT: usize = 8;
const AT_NUMBER: usize = 16;
const AT_LOWEST: usize = 20;
const AT_ENTRIES: usize = 22;
const AT_REVISION: usize = 24;

const _: () = assert!(BLOCK_BYTES <= u16::MAX as usize, "offsets have 16 bits");
const _: () = assert!(
    (BLOCK_BYTES - HEADER_BYTES) / (SLOT_BYTES + ENTRY_HEAD_BYTES + 1) < MAX_SLOTS,
    "slots never run out before bytes do"
);

/// An entry as it lies in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The name, never empty.
    pub name: &'a [u8],
    /// What it names.
    pub handle: FileHandle,
    /// The named file's type, so that a listing need not ask for it.
    pub file_type: FileType,
}

/// A block whose bytes were checked, or made here.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectoryBlock {
    bytes: Box<[u8; BLOCK_BYTES]>,
}

impl std::fmt::Debug for DirectoryBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl DirectoryBlock {
    /// A block without entries.
    pub fn empty(object: ObjectId, number: u32) -> DirectoryBlock {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        put_u16(&mut bytes[..], AT_VERSION, VERSION);
        put_u64(&mut bytes[..], AT_OBJECT, object.0);
        put_u32(&mut bytes[..], AT_NUMBER, number);
        put_u16(&mut bytes[..], AT_LOWEST, BLOCK_BYTES as u16);
        DirectoryBlock { bytes }
    }

    /// Checks the bytes of block `number` of the directory `object`.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn parse(
        object: ObjectId,
        number: u32,
        bytes: &[u8; BLOCK_BYTES],
    ) -> Result<DirectoryBlock, DirectoryError> {
        let block = DirectoryBlock { bytes: Box::new(*bytes) };
        block.check_header(object, number)?;
        block.check_entries(number)?;
        Ok(block)
    }

    fn check_header(&self, object: ObjectId, number: u32) -> Result<(), DirectoryError> {
        let bytes = &self.bytes[..];
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(DirectoryError::NotADirectory { block: number });
        }
        let version = u16_at(bytes, AT_VERSION);
        if version != VERSION {
            return Err(DirectoryError::UnknownVersion { block: number, version });
        }
        let found_object = ObjectId(u64_at(bytes, AT_OBJECT));
        let found_block = u32_at(bytes, AT_NUMBER);
        if found_object != object || found_block != number {
            return Err(DirectoryError::Misplaced { block: number, found_block, found_object });
        }
        let bad = |what| Err(DirectoryError::BadHeader { block: number, what });
        if self.slots() > MAX_SLOTS {
            return bad("too many slots");
        }
        if self.lowest() > BLOCK_BYTES || self.lowest() < self.table_end() {
            return bad("the lowest entry lies outside");
        }
        Ok(())
    }

    /// Entries must lie within the block, make sense, and fill it from the lowest byte to the end:
    /// then none overlaps another.
    fn check_entries(&self, number: u32) -> Result<(), DirectoryError> {
        let mut spans = Vec::with_capacity(self.slots());
        for slot in 0..self.slots() {
            let offset = self.offset(slot);
            if offset == 0 {
                continue;
            }
            let bad = |what| DirectoryError::BadEntry { block: number, slot: slot as u8, what };
            if offset < self.lowest() || offset + ENTRY_HEAD_BYTES > BLOCK_BYTES {
                return Err(bad("it lies outside"));
            }
            let end = offset + ENTRY_HEAD_BYTES + usize::from(self.bytes[offset + 21]);
            if end > BLOCK_BYTES {
                return Err(bad("its name runs out of the block"));
            }
            if !is_valid_name(&self.bytes[offset + ENTRY_HEAD_BYTES..end]) {
                return Err(bad("its name can't be one"));
            }
            if handle::file_type_from_byte(self.bytes[offset + 20]).is_none() {
                return Err(bad("its type is unknown"));
            }
            spans.push((offset, end));
        }
        spans.sort_unstable();
        let bad = |what| Err(DirectoryError::BadHeader { block: number, what });
        if spans.len() != usize::from(u16_at(&self.bytes[..], AT_ENTRIES)) {
            return bad("the number of entries is wrong");
        }
        let mut expected = self.lowest();
        for (offset, end) in spans {
            if offset != expected {
                return bad("entries overlap, or leave a gap");
            }
            expected = end;
        }
        if expected != BLOCK_BYTES { bad("entries do not reach the end") } else { Ok(()) }
    }

    /// The bytes, to be written.
    pub fn bytes(&self) -> &[u8; BLOCK_BYTES] {
        &self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        usize::from(u16_at(&self.bytes[..], AT_ENTRIES))
    }

    /// Whether it has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry in a slot, if there is one.
    pub fn entry(&self, slot: u8) -> Option<Entry<'_>> {
        let slot = usize::from(slot);
        if slot >= self.slots() || self.offset(slot) == 0 {
            return None;
        }
        let offset = self.offset(slot);
        let bytes = &self.bytes[offset..];
        let end = ENTRY_HEAD_BYTES + usize::from(bytes[21]);
        Some(Entry {
            name: &bytes[ENTRY_HEAD_BYTES..end],
            handle: FileHandle {
                drive: DriveId(u64_at(bytes, 0)),
                partition: PartitionId(u32_at(bytes, 8)),
                object: ObjectId(u64_at(bytes, 12)),
            },
            // A checked block has no unknown type.
            file_type: handle::file_type_from_byte(bytes[20]).unwrap_or(FileType::Regular),
        })
    }

    /// All entries with their slots, in the order of slots.
    pub fn entries(&self) -> impl Iterator<Item = (u8, Entry<'_>)> {
        let slots = 0..self.slots() as u16;
        slots.filter_map(|slot| self.entry(slot as u8).map(|entry| (slot as u8, entry)))
    }

    /// Bytes of the longest name that could be added.
    pub fn room(&self) -> usize {
        let slot = if self.free_slot() == self.slots() { SLOT_BYTES } else { 0 };
        (self.lowest() - self.table_end()).saturating_sub(slot + ENTRY_HEAD_BYTES)
    }

    /// Adds an entry, whose name must be valid and not longer than `room()`; returns its slot.
    pub fn insert(&mut self, entry: &Entry<'_>) -> Option<u8> {
        let slot = u8::try_from(self.free_slot()).ok()?;
        self.insert_at(slot, entry).then_some(slot)
    }

    /// Adds an entry in a slot of the caller's choice; whether that was free, and the name valid and
    /// not too long for the room there is.
    pub fn insert_at(&mut self, slot: u8, entry: &Entry<'_>) -> bool {
        let slot = usize::from(slot);
        let slots = self.slots().max(slot + 1);
        let table = HEADER_BYTES + SLOT_BYTES * slots;
        let fits = table + ENTRY_HEAD_BYTES + entry.name.len() <= self.lowest();
        let is_free = slot >= self.slots() || self.offset(slot) == 0;
        if !fits || !is_free || !is_valid_name(entry.name) {
            return false;
        }
        // Bytes between the table and the lowest entry are zeros, which stand for free slots.
        put_u16(&mut self.bytes[..], AT_SLOTS, slots as u16);
        let offset = self.lowest() - ENTRY_HEAD_BYTES - entry.name.len();
        put_u16(&mut self.bytes[..], AT_LOWEST, offset as u16);
        self.set_offset(slot, offset);
        let entries = self.len() as u16 + 1;
        put_u16(&mut self.bytes[..], AT_ENTRIES, entries);
        self.bytes[offset + 21] = entry.name.len() as u8;
        self.bytes[offset + ENTRY_HEAD_BYTES..][..entry.name.len()].copy_from_slice(entry.name);
        self.set_target(offset, entry.handle, entry.file_type);
        true
    }

    /// Makes an entry name something else.
    pub fn replace(&mut self, slot: u8, handle: FileHandle, file_type: FileType) {
        if self.entry(slot).is_some() {
            self.set_target(self.offset(usize::from(slot)), handle, file_type);
        }
    }

    /// Removes an entry; the bytes below it move up, its slot becomes free.
    pub fn remove(&mut self, slot: u8) {
        let Some(entry) = self.entry(slot) else {
            return;
        };
        let length = ENTRY_HEAD_BYTES + entry.name.len();
        let (lowest, offset) = (self.lowest(), self.offset(usize::from(slot)));
        self.bytes.copy_within(lowest..offset, lowest + length);
        self.bytes[lowest..lowest + length].fill(0);
        self.set_offset(usize::from(slot), 0);
        for other in 0..self.slots() {
            let at = self.offset(other);
            if at != 0 && at < offset {
                self.set_offset(other, at + length);
            }
        }
        put_u16(&mut self.bytes[..], AT_LOWEST, (lowest + length) as u16);
        let entries = self.len() as u16 - 1;
        put_u16(&mut self.bytes[..], AT_ENTRIES, entries);
        while self.slots() > 0 && self.offset(self.slots() - 1) == 0 {
            let slots = self.slots() as u16 - 1;
            put_u16(&mut self.bytes[..], AT_SLOTS, slots);
        }
    }

    /// Counts a write of the block.
    pub fn advance_revision(&mut self) {
        let revision = u64_at(&self.bytes[..], AT_REVISION).wrapping_add(1);
        put_u64(&mut self.bytes[..], AT_REVISION, revision);
    }

    fn set_target(&mut self, offset: usize, handle: FileHandle, file_type: FileType) {
        put_u64(&mut self.bytes[..], offset, handle.drive.0);
        put_u32(&mut self.bytes[..], offset + 8, handle.partition.0);
        put_u64(&mut self.bytes[..], offset + 12, handle.object.0);
        self.bytes[offset + 20] = handle::file_type_to_byte(file_type);
    }

    fn slots(&self) -> usize {
        usize::from(u16_at(&self.bytes[..], AT_SLOTS))
    }

    fn lowest(&self) -> usize {
        usize::from(u16_at(&self.bytes[..], AT_LOWEST))
    }

    fn table_end(&self) -> usize {
        HEADER_BYTES + SLOT_BYTES * self.slots()
    }

    fn offset(&self, slot: usize) -> usize {
        usize::from(u16_at(&self.bytes[..], HEADER_BYTES + SLOT_BYTES * slot))
    }

    fn set_offset(&mut self, slot: usize, offset: usize) {
        put_u16(&mut self.bytes[..], HEADER_BYTES + SLOT_BYTES * slot, offset as u16);
    }

    /// The lowest free slot, or the one after the last.
    fn free_slot(&self) -> usize {
        (0..self.slots()).find(|slot| self.offset(*slot) == 0).unwrap_or(self.slots())
    }
}
