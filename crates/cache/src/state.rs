//! What the cache knows: files and their versions, chunks in memory and on the disk, what is to be written, and what gives
//! way. All of it is behind one lock, and nothing here waits for the disk.

use crate::directory::in_blocks;
use crate::head::checksum;
use crate::key::FileKey;
use crate::two_queue::TwoQueue;
use crate::{
    CHUNK_BYTES, ITEM_BYTES, MAX_FILES, MAX_NOTE_BYTES, QUEUE_BYTES, chunk_count, chunk_length,
};
use nasd_types::ByteRange;
use nasd_types::limits::MAX_OBJECT_BYTES;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

/// Most things that wait for the disk, beside their bytes.
const QUEUE_JOBS: usize = 4096;

/// A part of a file that can give way by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The file.
    pub file: FileKey,
    /// A chunk's number; [`Item::OTHER`] for what is not a chunk.
    pub number: u64,
}

impl Item {
    /// In memory: the note. On the disk: the head.
    pub const OTHER: u64 = u64::MAX;

    fn other(file: FileKey) -> Self {
        Item { file, number: Self::OTHER }
    }
}

/// Where a file's note is.
#[derive(Clone, Debug, Default)]
pub enum Note {
    /// There is none.
    #[default]
    None,
    /// At most in memory.
    Volatile,
    /// To be written with the next head.
    Unsaved(Arc<[u8]>),
    /// In the head on the disk.
    Saved,
}

/// What is known of one file.
pub struct Entry {
    /// Tells the contents of one `begin` from those of another.
    pub serial: u64,
    /// The version that all of it is of.
    pub version: u64,
    /// The file's length under that version.
    pub length: u64,
    /// Where the note is.
    pub note: Note,
    /// The note, if it is in memory.
    pub resident_note: Option<Arc<[u8]>>,
    /// Chunks in memory.
    pub resident: BTreeMap<u64, Arc<[u8]>>,
    /// Chunks on the disk, and their checksums.
    pub chunks: BTreeMap<u64, u128>,
    /// Chunks that wait to be written, each by the job that shall do it.
    pub pending: HashMap<u64, u64>,
    /// Whether anything of it may be on the disk.
    pub touched_disk: bool,
    /// When it was used last.
    pub used: SystemTime,
    /// Whether that was after its head was written.
    pub used_since: bool,
}

impl Entry {
    /// A file with nothing of its contents.
    pub fn new(serial: u64, version: u64, length: u64) -> Self {
        Entry {
            serial,
            version,
            length,
            note: Note::None,
            resident_note: None,
            resident: BTreeMap::new(),
            chunks: BTreeMap::new(),
            pending: HashMap::new(),
            touched_disk: false,
            used: SystemTime::now(),
            used_since: true,
        }
    }
}

/// Something for the writer to do, in order.
pub enum Job {
    /// Write a chunk, if nothing else has come meanwhile.
    Put {
        /// The file.
        file: FileKey,
        /// The chunk.
        number: u64,
        /// What [`Entry::pending`] must still say.
        sequence: u64,
        /// Its contents.
        data: Arc<[u8]>,
    },
    /// Give back the space of chunks.
    Drop {
        /// The file.
        file: FileKey,
        /// The chunks.
        numbers: Vec<u64>,
    },
    /// Remove all of a file.
    Remove {
        /// The file.
        file: FileKey,
    },
}

/// What has happened since the cache was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub memory_hits: u64,
    pub disk_hits: u64,
    pub misses: u64,
    pub writes: u64,
    pub writes_left_out: u64,
    pub evicted: u64,
    pub damaged: u64,
}

/// How much a cache has, and what it was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheSummary {
    /// Files of which something is known.
    pub files: u64,
    /// Bytes on the disk, in blocks of [`BLOCK_BYTES`](crate::BLOCK_BYTES).
    pub disk_bytes: u64,
    /// Bytes in memory: chunks and notes, with [`ITEM_BYTES`] for each.
    pub memory_bytes: u64,
    /// Most bytes on the disk.
    pub disk_limit: u64,
    /// Most bytes in memory.
    pub memory_limit: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Chunks that were asked for and found in memory.
    pub memory_hits: u64,
    /// Chunks that were asked for and found on the disk.
    pub disk_hits: u64,
    /// Chunks that were asked for and not found.
    pub misses: u64,
    /// Chunks that were written to the disk.
    pub writes: u64,
    /// Chunks that stayed off the disk, as too many waited, or as it could not be written.
    pub writes_left_out: u64,
    /// Chunks and heads that gave way on the disk.
    pub evicted: u64,
    /// What was found damaged, and dropped.
    pub damaged: u64,
    /// Whether what is put gets to the disk at present.
    pub disk_works: bool,
}

/// One file of a cache, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedFile {
    /// The file.
    pub file: FileKey,
    /// Its version.
    pub version: u64,
    /// Its length under that version.
    pub length: u64,
    /// Bytes of its contents on the disk.
    pub disk_bytes: u64,
    /// Bytes of its contents in memory.
    pub memory_bytes: u64,
    /// Whether every byte is here.
    pub is_complete: bool,
}

/// Where a chunk was found.
pub enum Found {
    /// Here it is.
    Memory(Arc<[u8]>),
    /// On the disk.
    Disk(DiskChunk),
    /// Nowhere.
    Missing,
}

/// A chunk on the disk, and how its contents are known to be right.
#[derive(Clone, Copy, Debug)]
pub struct DiskChunk {
    /// The chunk.
    pub item: Item,
    /// What of the file's contents it is of.
    pub serial: u64,
    /// Its checksum.
    pub sum: u128,
    /// Its length.
    pub length: usize,
}

/// What the cache knows.
pub struct State {
    /// All files.
    pub files: HashMap<FileKey, Entry>,
    memory: TwoQueue<Item>,
    memory_limit: u64,
    /// What is on the disk. Its weights are bytes in blocks.
    pub disk: TwoQueue<Item>,
    disk_limit: u64,
    order: TwoQueue<FileKey>,
    /// What the writer is to do.
    pub jobs: VecDeque<Job>,
    queued_bytes: u64,
    /// Files whose head is not what is known.
    pub dirty: BTreeSet<FileKey>,
    /// Files whose removal waits in `jobs`, and how often.
    pub removing: HashMap<FileKey, u32>,
    has_disk: bool,
    /// Bytes that the writer has on the disk.
    pub disk_used: u64,
    /// Whether the last write failed.
    pub disk_failed: bool,
    /// What has happened.
    pub counters: Counters,
    serial: u64,
    /// The writer shall end when there is nothing to do.
    pub closing: bool,
    /// Somebody waits for everything to be written.
    pub hurry: bool,
    /// The writer does something.
    pub busy: bool,
}

impl State {
    /// Nothing is known yet. `disk_limit` is `None` for a cache without a disk.
    pub fn new(memory_limit: u64, disk_limit: Option<u64>) -> Self {
        State {
            files: HashMap::new(),
            memory: TwoQueue::new(memory_limit),
            memory_limit,
            disk: TwoQueue::new(disk_limit.unwrap_or(0)),
            disk_limit: disk_limit.unwrap_or(0),
            order: TwoQueue::new(MAX_FILES as u64),
            jobs: VecDeque::new(),
            queued_bytes: 0,
            dirty: BTreeSet::new(),
            removing: HashMap::new(),
            has_disk: disk_limit.is_some(),
            disk_used: 0,
            disk_failed: false,
            counters: Counters::default(),
            serial: 0,
            closing: false,
            hurry: false,
            busy: false,
        }
    }

    /// The entry of a file, if it is of this version.
    pub fn entry(&mut self, file: &FileKey, version: u64) -> Option<&mut Entry> {
        self.files.get_mut(file).filter(|entry| entry.version == version)
    }

    /// A number that was not given out before.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// The file is at this version, and that long. What is there of another version is dropped.
    pub fn begin(&mut self, file: FileKey, version: u64, length: u64) -> bool {
        if length > MAX_OBJECT_BYTES {
            self.forget(&file);
            return false;
        }
        if self.entry(&file, version).is_some_and(|entry| entry.length == length) {
            self.touch_file(&file);
            return true;
        }
        self.forget(&file);
        let serial = self.next_serial();
        self.adopt(file, Entry::new(serial, version, length));
        true
    }

    /// Adds an entry; another one gives way where there are too many.
    pub fn adopt(&mut self, file: FileKey, entry: Entry) {
        while self.order.len() >= MAX_FILES {
            let Some(victim) = self.order.victim() else { break };
            self.forget(&victim);
        }
        self.files.insert(file, entry);
        self.order.insert(file, 1);
    }

    /// Nothing is known of the file any more.
    pub fn forget(&mut self, file: &FileKey) -> bool {
        let Some(entry) = self.files.remove(file) else {
            return false;
        };
        self.order.remove(file);
        self.dirty.remove(file);
        self.memory.remove(&Item::other(*file));
        self.disk.remove(&Item::other(*file));
        for number in entry.resident.keys() {
            self.memory.remove(&Item { file: *file, number: *number });
        }
        for number in entry.chunks.keys() {
            self.disk.remove(&Item { file: *file, number: *number });
        }
        if entry.touched_disk {
            *self.removing.entry(*file).or_default() += 1;
            self.jobs.push_back(Job::Remove { file: *file });
        }
        true
    }

    /// What was of version `from` is of version `to`, but for chunks in the changed ranges and at an end that moved.
    pub fn advance(
        &mut self,
        file: &FileKey,
        from: u64,
        to: u64,
        length: u64,
        changed: &[ByteRange],
    ) -> bool {
        let Some(entry) = self.files.get_mut(file).filter(|entry| entry.version == from) else {
            return false;
        };
        if length > MAX_OBJECT_BYTES {
            self.forget(file);
            return false;
        }
        let before = std::mem::replace(&mut entry.length, length);
        entry.version = to;
        entry.note = Note::None;
        entry.resident_note = None;
        let changed = Changed::new(changed);
        let mut gone: BTreeSet<u64> = BTreeSet::new();
        let known = entry.resident.keys().chain(entry.chunks.keys()).chain(entry.pending.keys());
        gone.extend(known.filter(|number| {
            chunk_length(before, **number) != chunk_length(length, **number)
                || changed.has(**number)
        }));
        let touched_disk = entry.touched_disk;
        self.memory.remove(&Item::other(*file));
        self.drop_chunks(file, &gone);
        if touched_disk {
            self.dirty.insert(*file);
        }
        true
    }

    /// Chunks of a file are not there any more.
    fn drop_chunks(&mut self, file: &FileKey, numbers: &BTreeSet<u64>) {
        let Some(entry) = self.files.get_mut(file) else { return };
        let mut written = Vec::new();
        for number in numbers {
            let item = Item { file: *file, number: *number };
            if entry.resident.remove(number).is_some() {
                self.memory.remove(&item);
            }
            let on_disk = entry.chunks.remove(number).is_some();
            if on_disk {
                self.disk.remove(&item);
            }
            if entry.pending.remove(number).is_some() || on_disk {
                written.push(*number);
            }
        }
        if !written.is_empty() {
            self.dirty.insert(*file);
            self.jobs.push_back(Job::Drop { file: *file, numbers: written });
        }
    }

    /// A chunk of the file at this version. False if that is not what was begun, or is of another length.
    pub fn put(&mut self, file: &FileKey, version: u64, number: u64, data: &Arc<[u8]>) -> bool {
        let Some(entry) = self.entry(file, version) else {
            return false;
        };
        if data.is_empty() || data.len() != chunk_length(entry.length, number) {
            return false;
        }
        let sum = entry.chunks.get(&number).copied();
        let is_written = sum.is_some_and(|sum| sum == checksum(data));
        if sum.is_some() && !is_written {
            self.drop_chunks(file, &BTreeSet::from([number]));
        }
        self.keep_in_memory(Item { file: *file, number }, data);
        if self.has_disk && !is_written {
            self.queue(*file, number, data);
        }
        true
    }

    /// Has a chunk written, if not too many wait already.
    fn queue(&mut self, file: FileKey, number: u64, data: &Arc<[u8]>) {
        let sequence = self.next_serial();
        let fits = self.queued_bytes + data.len() as u64 <= QUEUE_BYTES;
        let takes = fits && self.jobs.len() < QUEUE_JOBS;
        let Some(entry) = self.files.get_mut(&file) else { return };
        if takes {
            entry.pending.insert(number, sequence);
            entry.touched_disk = true;
            self.queued_bytes += data.len() as u64;
            self.jobs.push_back(Job::Put { file, number, sequence, data: data.clone() });
        } else {
            // What waits there is of the same chunk, and maybe other contents.
            entry.pending.remove(&number);
            self.counters.writes_left_out += 1;
        }
    }

    /// Takes the next job, and marks the writer as busy with it.
    pub fn next_job(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        if let Job::Put { data, .. } = &job {
            self.queued_bytes -= data.len() as u64;
        }
        self.busy = true;
        Some(job)
    }

    /// Keeps a chunk in memory; others give way before.
    pub fn keep_in_memory(&mut self, item: Item, data: &Arc<[u8]>) {
        if !self.make_room_in_memory(item, data.len()) {
            return;
        }
        if let Some(entry) = self.files.get_mut(&item.file) {
            entry.resident.insert(item.number, data.clone());
            self.memory.insert(item, data.len() as u64 + ITEM_BYTES);
        }
    }

    /// Keeps a note in memory, likewise.
    pub fn keep_note(&mut self, file: &FileKey, note: &Arc<[u8]>) {
        let item = Item::other(*file);
        if !self.make_room_in_memory(item, note.len()) {
            return;
        }
        if let Some(entry) = self.files.get_mut(file) {
            entry.resident_note = Some(note.clone());
            self.memory.insert(item, note.len() as u64 + ITEM_BYTES);
        }
    }

    fn make_room_in_memory(&mut self, item: Item, bytes: usize) -> bool {
        let weight = bytes as u64 + ITEM_BYTES;
        if self.memory.contains(&item) {
            self.memory.remove(&item);
            self.drop_resident(item);
        }
        if weight > self.memory_limit {
            return false;
        }
        while self.memory.weight() + weight > self.memory_limit {
            let Some(victim) = self.memory.victim() else { return false };
            self.drop_resident(victim);
        }
        true
    }

    fn drop_resident(&mut self, item: Item) {
        if let Some(entry) = self.files.get_mut(&item.file) {
            if item.number == Item::OTHER {
                entry.resident_note = None;
            } else {
                entry.resident.remove(&item.number);
            }
        }
    }

    /// Where a chunk of the file at this version is.
    pub fn find(&mut self, file: &FileKey, version: u64, number: u64) -> Found {
        let item = Item { file: *file, number };
        let Some(entry) = self.files.get(file).filter(|entry| entry.version == version) else {
            self.counters.misses += 1;
            return Found::Missing;
        };
        let found = if let Some(data) = entry.resident.get(&number) {
            self.counters.memory_hits += 1;
            Found::Memory(data.clone())
        } else if let Some(sum) = entry.chunks.get(&number).copied() {
            let length = chunk_length(entry.length, number);
            Found::Disk(DiskChunk { item, serial: entry.serial, sum, length })
        } else {
            self.counters.misses += 1;
            return Found::Missing;
        };
        self.memory.touch(&item);
        self.disk.touch(&item);
        self.touch_file(file);
        found
    }

    /// Whether a chunk of the file at this version is here.
    pub fn has(&self, file: &FileKey, version: u64, number: u64) -> bool {
        let entry = self.files.get(file).filter(|entry| entry.version == version);
        entry.is_some_and(|entry| {
            entry.resident.contains_key(&number) || entry.chunks.contains_key(&number)
        })
    }

    /// The file was used.
    pub fn touch_file(&mut self, file: &FileKey) {
        if let Some(entry) = self.files.get_mut(file) {
            entry.used = SystemTime::now();
            entry.used_since = true;
        }
        self.order.touch(file);
    }

    /// Whether what is known of a chunk on the disk is as it was.
    pub fn is_current(&self, chunk: &DiskChunk) -> bool {
        self.files.get(&chunk.item.file).is_some_and(|entry| {
            entry.serial == chunk.serial && entry.chunks.get(&chunk.item.number) == Some(&chunk.sum)
        })
    }

    /// A chunk on the disk is not what it was.
    pub fn drop_damaged(&mut self, chunk: &DiskChunk) {
        self.counters.damaged += 1;
        self.drop_chunks(&chunk.item.file, &BTreeSet::from([chunk.item.number]));
    }

    /// Keeps a note with the file at this version. False if that is not what was begun, or the note is too long.
    pub fn set_note(&mut self, file: &FileKey, version: u64, note: &Arc<[u8]>) -> bool {
        if note.len() > MAX_NOTE_BYTES {
            return false;
        }
        let (has_disk, is_empty) = (self.has_disk && !self.disk_failed, note.is_empty());
        let Some(entry) = self.entry(file, version) else {
            return false;
        };
        entry.note = match (is_empty, has_disk) {
            (true, _) => Note::None,
            (false, true) => Note::Unsaved(note.clone()),
            (false, false) => Note::Volatile,
        };
        entry.resident_note = None;
        entry.touched_disk |= has_disk;
        let is_dirty = entry.touched_disk;
        self.memory.remove(&Item::other(*file));
        if !is_empty {
            self.keep_note(file, note);
        }
        if is_dirty {
            self.dirty.insert(*file);
        }
        true
    }

    /// How much there is.
    pub fn summary(&self) -> CacheSummary {
        let counters = &self.counters;
        CacheSummary {
            files: self.files.len() as u64,
            disk_bytes: self.disk_used,
            memory_bytes: self.memory.weight(),
            disk_limit: self.disk_limit,
            memory_limit: self.memory_limit,
            queued_bytes: self.queued_bytes,
            memory_hits: counters.memory_hits,
            disk_hits: counters.disk_hits,
            misses: counters.misses,
            writes: counters.writes,
            writes_left_out: counters.writes_left_out,
            evicted: counters.evicted,
            damaged: counters.damaged,
            disk_works: self.has_disk && !self.disk_failed,
        }
    }

    /// All files, in the order of their keys.
    pub fn list(&self) -> Vec<CachedFile> {
        let mut list: Vec<CachedFile> = self
            .files
            .iter()
            .map(|(file, entry)| {
                let disk = entry.chunks.keys().map(|n| chunk_length(entry.length, *n) as u64);
                let memory = entry.resident.values().map(|data| data.len() as u64);
                let here: HashSet<u64> =
                    entry.chunks.keys().chain(entry.resident.keys()).copied().collect();
                CachedFile {
                    file: *file,
                    version: entry.version,
                    length: entry.length,
                    disk_bytes: disk.sum(),
                    memory_bytes: memory.sum(),
                    is_complete: here.len() as u64 == chunk_count(entry.length),
                }
            })
            .collect();
        list.sort_by_key(|cached| cached.file);
        list
    }

    /// A chunk was written: from now on it is found on the disk.
    pub fn written(&mut self, item: Item, sequence: u64, sum: u128) -> bool {
        let Some(entry) = self.files.get_mut(&item.file) else {
            return false;
        };
        if entry.pending.get(&item.number) != Some(&sequence) {
            return false;
        }
        entry.pending.remove(&item.number);
        entry.chunks.insert(item.number, sum);
        let length = chunk_length(entry.length, item.number) as u64;
        self.disk.insert(item, in_blocks(length));
        self.dirty.insert(item.file);
        self.counters.writes += 1;
        true
    }

    /// A chunk will not be written.
    pub fn left_out(&mut self, item: Item, sequence: u64) {
        self.counters.writes_left_out += 1;
        if let Some(entry) = self.files.get_mut(&item.file)
            && entry.pending.get(&item.number) == Some(&sequence)
        {
            entry.pending.remove(&item.number);
        }
    }
}

/// Chunks with changed bytes in them.
struct Changed {
    /// First and last chunk of each stretch, in order, apart from each other.
    stretches: Vec<(u64, u64)>,
}

impl Changed {
    fn new(ranges: &[ByteRange]) -> Self {
        let mut all: Vec<(u64, u64)> = ranges
            .iter()
            .filter(|range| !range.is_empty())
            .map(|range| (range.offset / CHUNK_BYTES, (range.end() - 1) / CHUNK_BYTES))
            .collect();
        all.sort_unstable();
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (first, last) in all {
            match stretches.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => stretches.push((first, last)),
            }
        }
        Changed { stretches }
    }

    fn has(&self, number: u64) -> bool {
        let after = self.stretches.partition_point(|stretch| stretch.0 <= number);
        after > 0 && self.stretches[after - 1].1 >= number
    }
}
