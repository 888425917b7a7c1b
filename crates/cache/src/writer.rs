//! The thread that writes: all changes of a cache directory are made here, one after the other, and what they take is
//! counted before they are made.

use crate::cache::Shared;
use crate::directory::{Directory, Part, in_blocks};
use crate::head::{Head, checksum};
use crate::identity::Identity;
use crate::key::FileKey;
use crate::state::{Entry, Item, Job, Note, State};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long a head may lag behind what is known, while nobody waits for it.
const HEAD_DELAY: Duration = Duration::from_millis(250);
/// The same, while there is always something else to write.
const BUSY_HEAD_DELAY: Duration = Duration::from_secs(1);
/// How long nothing is written after the system refused a write.
const RETRY: Duration = Duration::from_secs(30);

/// What a file has on the disk, in blocks: also what is about to be removed.
#[derive(Debug, Default)]
pub struct OnDisk {
    /// Bytes of each chunk.
    pub chunks: BTreeMap<u64, u64>,
    /// Bytes of the head.
    pub head: u64,
}

/// The directory, and what lies in it.
pub struct Writer {
    pub directory: Directory,
    pub identity: Identity,
    pub limit: u64,
    pub files: HashMap<FileKey, OnDisk>,
    pub used: u64,
    /// When the system refused a write.
    pub failed: Option<Instant>,
    /// Whether the file system gives back parts of files.
    pub punches: bool,
}

impl Writer {
    /// Works until the cache is closed.
    pub fn run(mut self, shared: &Shared) {
        let mut dirty_since: Option<Instant> = None;
        let mut state = shared.lock();
        loop {
            if state.dirty.is_empty() {
                dirty_since = None;
            } else if dirty_since.is_none() {
                dirty_since = Some(Instant::now());
            }
            let late = dirty_since.map(|since| since.elapsed());
            let is_due = late.is_some_and(|late| late >= BUSY_HEAD_DELAY);
            if !is_due && let Some(job) = state.next_job() {
                drop(state);
                self.perform(shared, job);
                state = shared.lock();
                state.busy = false;
                continue;
            }
            let is_awaited = state.hurry || state.closing;
            if late.is_some_and(|late| is_awaited || late >= HEAD_DELAY) {
                state.busy = true;
                let dirty: Vec<FileKey> = state.dirty.iter().copied().collect();
                drop(state);
                dirty.iter().for_each(|file| self.write_head(shared, file));
                dirty_since = None;
                state = shared.lock();
                state.busy = false;
                continue;
            }
            if late.is_none() {
                state.hurry = false;
                shared.settled.notify_all();
                if state.closing {
                    break;
                }
            }
            let patience = late.map(|late| HEAD_DELAY.saturating_sub(late));
            state = shared.wait_for_work(state, patience);
        }
        let used = used_since(&state);
        drop(state);
        for (file, when) in used {
            // It lasts until another start alone that it was used; that is no reason to complain.
            let _ = self.directory.mark_used(&file, when);
        }
    }

    fn perform(&mut self, shared: &Shared, job: Job) {
        match job {
            Job::Put { file, number, sequence, data } => {
                self.put(shared, Item { file, number }, sequence, &data);
            }
            Job::Drop { file, numbers } => self.free(shared, &file, &numbers),
            Job::Remove { file } => {
                self.remove(shared, &file);
                let mut state = shared.lock();
                if let Some(count) = state.removing.get_mut(&file) {
                    *count -= 1;
                    if *count == 0 {
                        state.removing.remove(&file);
                    }
                }
            }
        }
    }

    /// Writes a chunk, unless something else has come meanwhile.
    fn put(&mut self, shared: &Shared, item: Item, sequence: u64, data: &Arc<[u8]>) {
        let is_wanted = |state: &State| {
            let entry = state.files.get(&item.file);
            entry.is_some_and(|entry| entry.pending.get(&item.number) == Some(&sequence))
        };
        if !is_wanted(&shared.lock()) {
            return;
        }
        let bytes = in_blocks(data.len() as u64);
        if !self.works() || !self.make_room(shared, bytes) {
            shared.lock().left_out(item, sequence);
            return;
        }
        let there = self.files.entry(item.file).or_default();
        let before = there.chunks.insert(item.number, bytes).unwrap_or(0);
        self.count(shared, bytes, before);
        let written = self.directory.write_chunk(&item.file, item.number, data);
        let is_there = match &written {
            Ok(()) => shared.lock().written(item, sequence, checksum(data)),
            Err(_) => {
                shared.lock().left_out(item, sequence);
                false
            }
        };
        self.note_outcome(shared, written, "a chunk");
        if !is_there {
            self.free(shared, &item.file, &[item.number]);
        }
    }

    /// Gives back the space of chunks that nothing tells of any more.
    fn free(&mut self, shared: &Shared, file: &FileKey, numbers: &[u64]) {
        for number in numbers {
            let there = self.files.get(file).and_then(|there| there.chunks.get(number)).copied();
            let Some(bytes) = there else { continue };
            let punched = if self.punches {
                self.directory.punch(file, *number, 1)
            } else {
                Err(io::ErrorKind::Unsupported.into())
            };
            if punched.is_err() {
                self.punches = false;
                self.remove_data(shared, file);
                return;
            }
            if let Some(there) = self.files.get_mut(file) {
                there.chunks.remove(number);
            }
            self.count(shared, 0, bytes);
        }
        let is_empty = self.files.get(file).is_some_and(|there| there.chunks.is_empty());
        if is_empty {
            self.remove_data(shared, file);
        }
    }

    /// Removes all contents of a file, where a part of them can't be given back or none is left.
    fn remove_data(&mut self, shared: &Shared, file: &FileKey) {
        let mut state = shared.lock();
        if let Some(entry) = state.files.get_mut(file) {
            let lost: Vec<u64> = std::mem::take(&mut entry.chunks).into_keys().collect();
            if !lost.is_empty() {
                state.dirty.insert(*file);
            }
            for number in lost {
                state.disk.remove(&Item { file: *file, number });
            }
        }
        drop(state);
        if self.directory.remove(file, Part::Data).is_err() {
            // It still takes its room, and is tried again with the next chunk that goes.
            return;
        }
        let there = self.files.get_mut(file).map(|there| std::mem::take(&mut there.chunks));
        let bytes = there.into_iter().flat_map(BTreeMap::into_values).sum();
        self.forget_if_empty(file);
        self.count(shared, 0, bytes);
    }

    fn remove(&mut self, shared: &Shared, file: &FileKey) {
        self.remove_head(shared, file);
        let is_there = self.files.contains_key(file);
        if is_there && self.directory.remove(file, Part::Data).is_ok() {
            let there = self.files.remove(file);
            let bytes = there.into_iter().flat_map(|there| there.chunks.into_values()).sum();
            self.count(shared, 0, bytes);
        }
    }

    fn remove_head(&mut self, shared: &Shared, file: &FileKey) {
        let head = self.files.get(file).map_or(0, |there| there.head);
        if head > 0 && self.directory.remove(file, Part::Head).is_ok() {
            if let Some(there) = self.files.get_mut(file) {
                there.head = 0;
            }
            self.forget_if_empty(file);
            self.count(shared, 0, head);
        }
    }

    fn forget_if_empty(&mut self, file: &FileKey) {
        let is_empty =
            self.files.get(file).is_some_and(|there| there.head == 0 && there.chunks.is_empty());
        if is_empty {
            self.files.remove(file);
        }
    }

    /// Makes room on the disk; false if so much can't be had.
    pub fn make_room(&mut self, shared: &Shared, bytes: u64) -> bool {
        if bytes > self.limit {
            return false;
        }
        // Heads go after what they tell of. They are held until there is room, or nothing else is left.
        let mut held: Vec<FileKey> = Vec::new();
        while self.used + bytes > self.limit {
            let victim = shared.lock().disk.victim();
            match victim {
                Some(Item { file, number: Item::OTHER }) if has_chunks(&shared.lock(), &file) => {
                    held.push(file);
                }
                Some(Item { file, number: Item::OTHER }) => self.evict_head(shared, &file),
                Some(item) => self.evict_chunk(shared, item),
                None => {
                    let Some(file) = held.pop() else { break };
                    self.evict_head(shared, &file);
                }
            }
        }
        let mut state = shared.lock();
        for file in held {
            let weight = self.files.get(&file).map_or(0, |there| there.head);
            if weight > 0 && state.files.contains_key(&file) {
                state.disk.put_back(Item { file, number: Item::OTHER }, weight);
            }
        }
        self.used + bytes <= self.limit
    }

    fn evict_chunk(&mut self, shared: &Shared, item: Item) {
        let mut state = shared.lock();
        if let Some(entry) = state.files.get_mut(&item.file) {
            entry.chunks.remove(&item.number);
            state.dirty.insert(item.file);
        }
        state.counters.evicted += 1;
        drop(state);
        self.free(shared, &item.file, &[item.number]);
    }

    /// Removes a head that tells of no contents any more.
    fn evict_head(&mut self, shared: &Shared, file: &FileKey) {
        let mut state = shared.lock();
        if let Some(entry) = state.files.get_mut(file) {
            entry.note = keep_what_is_resident(entry);
        }
        state.dirty.remove(file);
        state.counters.evicted += 1;
        drop(state);
        self.remove_head(shared, file);
    }

    /// Writes what is known of a file, or removes its head where that is nothing.
    fn write_head(&mut self, shared: &Shared, file: &FileKey) {
        let Some((mut head, serial, note)) = self.take_head(shared, file) else {
            return;
        };
        match &note {
            Note::Saved => match self.saved_note(file, head.version) {
                Some(note) => head.note = note,
                None => self.lose_note(shared, file, serial),
            },
            Note::Unsaved(note) => head.note = note.to_vec(),
            Note::None | Note::Volatile => {}
        }
        if head.note.is_empty() && head.chunks.is_empty() {
            shared.lock().disk.remove(&Item { file: *file, number: Item::OTHER });
            self.remove_head(shared, file);
            return;
        }
        let bytes = in_blocks(Head::encoded_length(head.note.len(), head.chunks.len()));
        let Some(before) = self.make_room_for_head(shared, file, bytes) else {
            self.lose_note(shared, file, serial);
            return;
        };
        let more = bytes.saturating_sub(before);
        self.files.entry(*file).or_default().head = bytes.max(before);
        self.count(shared, more, 0);
        let written = self.directory.write_head(file, &head.encode());
        if written.is_ok() {
            self.files.entry(*file).or_default().head = bytes;
            self.count(shared, 0, before.saturating_sub(bytes));
        }
        let mut state = shared.lock();
        if let Some(entry) = state.files.get_mut(file).filter(|entry| entry.serial == serial) {
            entry.used_since = false;
            match (&entry.note, &note) {
                (Note::Unsaved(now), Note::Unsaved(then)) if Arc::ptr_eq(now, then) => {
                    entry.note =
                        if written.is_ok() { Note::Saved } else { keep_what_is_resident(entry) };
                }
                _ => {}
            }
            state.disk.insert(Item { file: *file, number: Item::OTHER }, bytes.max(before));
        }
        drop(state);
        self.note_outcome(shared, written, "a head");
    }

    /// Makes room for a head of so many bytes in place of the one that is there, whose bytes are returned.
    fn make_room_for_head(&mut self, shared: &Shared, file: &FileKey, bytes: u64) -> Option<u64> {
        if !self.works() {
            return None;
        }
        loop {
            let before = self.files.get(file).map_or(0, |there| there.head);
            let more = bytes.saturating_sub(before);
            if self.used + more <= self.limit {
                return Some(before);
            }
            // The one that is there may be what gives way.
            if !self.make_room(shared, more) {
                return None;
            }
        }
    }

    /// What the head of a file is to say, and whose it is; `None` where it need not be written now.
    fn take_head(&self, shared: &Shared, file: &FileKey) -> Option<(Head, u64, Note)> {
        let mut state = shared.lock();
        if state.removing.contains_key(file) {
            // An earlier one is to be removed first; it comes before in the queue.
            return None;
        }
        state.dirty.remove(file);
        let entry = state.files.get_mut(file)?;
        let mut head = Head {
            cell: self.identity.cell,
            file: *file,
            version: entry.version,
            length: entry.length,
            note: Vec::new(),
            chunks: entry.chunks.iter().map(|(number, sum)| (*number, *sum)).collect(),
        };
        let note = match (&entry.note, &entry.resident_note) {
            (Note::Saved, Some(note)) => {
                head.note = note.to_vec();
                Note::None
            }
            (Note::Volatile, Some(note)) => Note::Unsaved(note.clone()),
            (note, _) => note.clone(),
        };
        entry.note = if let Note::Unsaved(_) = note { note.clone() } else { entry.note.clone() };
        Some((head, entry.serial, note))
    }

    /// The note in the head on the disk.
    fn saved_note(&self, file: &FileKey, version: u64) -> Option<Vec<u8>> {
        let (bytes, _) = self.directory.read_head(file).ok()?;
        let head = Head::decode(&bytes).ok()?;
        (head.file == *file && head.version == version).then_some(head.note)
    }

    /// A note is not on the disk, whatever was thought of it.
    fn lose_note(&self, shared: &Shared, file: &FileKey, serial: u64) {
        let mut state = shared.lock();
        if let Some(entry) = state.files.get_mut(file).filter(|entry| entry.serial == serial)
            && !matches!(entry.note, Note::None)
        {
            entry.note = keep_what_is_resident(entry);
        }
    }

    /// Whether writing is worth a try.
    fn works(&self) -> bool {
        self.failed.is_none_or(|when| when.elapsed() >= RETRY)
    }

    fn note_outcome(&mut self, shared: &Shared, written: io::Result<()>, what: &str) {
        let place = self.directory.path().display();
        match written {
            Ok(()) => {
                if self.failed.take().is_some() {
                    tracing::info!("the cache in {place} can be written again");
                    shared.lock().disk_failed = false;
                }
            }
            // One file is too long for this file system; others are not.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {}
            Err(error) => {
                if self.failed.is_none() {
                    tracing::warn!(
                        "can't write {what} to the cache in {place}: {error}; it goes on in memory, and tries again \
                         every {} seconds",
                        RETRY.as_secs()
                    );
                }
                self.failed = Some(Instant::now());
                shared.lock().disk_failed = true;
            }
        }
    }

    /// What is used on the disk changes.
    fn count(&mut self, shared: &Shared, more: u64, less: u64) {
        self.used = self.used + more - less;
        shared.lock().disk_used = self.used;
    }
}

fn has_chunks(state: &State, file: &FileKey) -> bool {
    state.files.get(file).is_some_and(|entry| !entry.chunks.is_empty())
}

/// Where a note is that is not on the disk any more.
fn keep_what_is_resident(entry: &Entry) -> Note {
    if entry.resident_note.is_some() { Note::Volatile } else { Note::None }
}

/// Files that were used after their heads were written.
fn used_since(state: &State) -> Vec<(FileKey, SystemTime)> {
    let used = state.files.iter().filter(|(_, entry)| entry.used_since && entry.touched_disk);
    used.map(|(file, entry)| (*file, entry.used)).collect()
}
