//! The cache as its user has it.

use crate::directory::{Directory, Part};
use crate::head::{Head, checksum};
use crate::identity::{self, Identity};
use crate::key::FileKey;
use crate::lock::DirectoryLock;
use crate::state::{CacheSummary, CachedFile, DiskChunk, Found, Item, Note, State};
use crate::{CHUNK_BYTES, CacheError, load};
use nasd_types::ByteRange;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How many of the things that were found damaged are told of in the log.
const TOLD_DAMAGES: u64 = 10;
/// How often a head is read that is being written meanwhile.
const NOTE_TRIES: u32 = 3;

/// Where a cache is, and how much it may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// The cache directory; without one everything is in memory, and gone with the cache.
    pub directory: Option<PathBuf>,
    /// Most bytes of all its files, each counted in whole blocks of [`BLOCK_BYTES`](crate::BLOCK_BYTES).
    pub disk_bytes: u64,
    /// Most bytes of contents and notes in memory, with [`ITEM_BYTES`](crate::ITEM_BYTES) for each chunk or note. What the
    /// cache knows of files (about 1.5 KB for one with a single chunk on the disk) and what waits to be written
    /// ([`QUEUE_BYTES`](crate::QUEUE_BYTES)) comes on top.
    pub memory_bytes: u64,
}

/// What was asked for and is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The file is not cached under this version.
    File,
    /// These chunks lack, of those that were asked for.
    Chunks(Vec<u64>),
}

/// What a cache and its writing thread share.
pub struct Shared {
    state: Mutex<State>,
    work: Condvar,
    /// Told when there is nothing left to write.
    pub settled: Condvar,
    directory: Option<Directory>,
    damages: AtomicU64,
}

impl Shared {
    /// Of a cache that knows nothing yet.
    pub fn new(state: State, directory: Option<Directory>) -> Self {
        Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
            settled: Condvar::new(),
            directory,
            damages: AtomicU64::new(0),
        }
    }

    /// What the cache knows. Whoever panicked while he had it has left it whole: nothing is changed in two steps between which
    /// a panic could come from elsewhere.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be something to do, or for so long.
    pub fn wait_for_work<'a>(
        &self,
        state: MutexGuard<'a, State>,
        patience: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match patience {
            None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let woken = self.work.wait_timeout(state, patience);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Says what was found damaged, unless that was said often.
    pub fn tell_damage(&self, what: &str, why: &dyn std::fmt::Display) {
        let before = self.damages.fetch_add(1, Ordering::Relaxed);
        if before < TOLD_DAMAGES {
            tracing::warn!("the cache drops {what}: {why}");
        } else {
            tracing::debug!("the cache drops {what}: {why}");
        }
    }
}

/// Contents of files, each of one version. Any number of threads may use it at the same time, by an [`Arc`].
///
/// Nothing here waits for the disk but what reads from it. When it is dropped, what waits is written first.
pub struct Cache {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    // The last to be dropped: nobody else may begin before the writer has ended.
    _lock: Option<DirectoryLock>,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("summary", &self.summary()).finish()
    }
}

impl Cache {
    /// Opens a cache; its directory is made if it is not there. What is damaged in it is dropped, and what is beyond the limit
    /// gives way.
    ///
    /// # Errors
    /// A directory that another process uses, that is of another cell or volume, of a later format, or no cache
    /// directory; what the system refuses.
    pub fn open(options: CacheOptions, identity: &Identity) -> Result<Cache, CacheError> {
        let Some(path) = &options.directory else {
            let shared = Arc::new(Shared::new(State::new(options.memory_bytes, None), None));
            return Ok(Cache { shared, writer: None, _lock: None });
        };
        identity::prepare(path)?;
        let lock = DirectoryLock::acquire(path)?;
        identity.claim(path)?;
        let directory = Directory::new(path);
        let state = State::new(options.memory_bytes, Some(options.disk_bytes));
        let shared = Arc::new(Shared::new(state, Some(directory.clone())));
        let writer = load::load(&shared, directory, identity, options.disk_bytes)?;
        let theirs = shared.clone();
        let writer = std::thread::Builder::new()
            .name("cache-writer".into())
            .spawn(move || writer.run(&theirs))
            .map_err(|source| CacheError::Thread { source })?;
        Ok(Cache { shared, writer: Some(writer), _lock: Some(lock) })
    }

    /// The file has this version and length: contents of another version, or of another length, are dropped, those of this one stay. False if
    /// no file is that long.
    pub fn begin(&self, file: &FileKey, version: u64, length: u64) -> bool {
        let mut state = self.shared.lock();
        let begun = state.begin(*file, version, length);
        self.wake(&state);
        begun
    }

    /// Version and length of what is cached of a file.
    pub fn version_of(&self, file: &FileKey) -> Option<(u64, u64)> {
        self.shared.lock().files.get(file).map(|entry| (entry.version, entry.length))
    }

    /// Fills `into` with the file's bytes from `offset` on, if all of them are here under this version; how many that are, which is less than
    /// asked for at the file's end alone.
    ///
    /// # Errors
    /// What lacks. Some of `into` may be overwritten then.
    pub fn read(
        &self,
        file: &FileKey,
        version: u64,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, Missing> {
        let found = {
            let mut state = self.shared.lock();
            let Some(entry) = state.entry(file, version) else {
                state.counters.misses += 1;
                return Err(Missing::File);
            };
            let end = entry.length.min(offset.saturating_add(into.len() as u64));
            if offset >= end {
                return Ok(0);
            }
            let numbers = offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
            let lacking: Vec<u64> =
                numbers.clone().filter(|number| !state.has(file, version, *number)).collect();
            if !lacking.is_empty() {
                state.counters.misses += lacking.len() as u64;
                return Err(Missing::Chunks(lacking));
            }
            numbers.map(|n| (n, state.find(file, version, n))).collect::<Vec<_>>()
        };
        let mut filled = 0;
        let mut lacking = Vec::new();
        for (number, found) in found {
            let Some(data) = self.take(found) else {
                lacking.push(number);
                continue;
            };
            let from = (offset + filled as u64).saturating_sub(number * CHUNK_BYTES) as usize;
            let part = data.len().saturating_sub(from).min(into.len() - filled);
            if lacking.is_empty() {
                into[filled..filled + part].copy_from_slice(&data[from..from + part]);
                filled += part;
            }
        }
        if lacking.is_empty() { Ok(filled) } else { Err(Missing::Chunks(lacking)) }
    }

    /// A chunk of the file, if it is here under this version.
    pub fn chunk(&self, file: &FileKey, version: u64, number: u64) -> Option<Arc<[u8]>> {
        let found = self.shared.lock().find(file, version, number);
        self.take(found)
    }

    /// Which of these chunks of the file are not here under this version.
    pub fn lacking(
        &self,
        file: &FileKey,
        version: u64,
        numbers: impl IntoIterator<Item = u64>,
    ) -> Vec<u64> {
        let state = self.shared.lock();
        numbers.into_iter().filter(|number| !state.has(file, version, *number)).collect()
    }

    /// Keeps a chunk of the file: in memory at once, on the disk if not too much waits to be written. False, and nothing is kept, if the file was
    /// not begun with this version, or the chunk has another length than it has in it.
    pub fn put(
        &self,
        file: &FileKey,
        version: u64,
        number: u64,
        data: impl Into<Arc<[u8]>>,
    ) -> bool {
        let data = data.into();
        let mut state = self.shared.lock();
        let kept = state.put(file, version, number, &data);
        self.wake(&state);
        kept
    }

    /// After a store: what is cached under `from` is of version `to` and so long, but for chunks with bytes in the changed
    /// ranges, or whose length is another one now; these are dropped, and so is the note. False, and nothing is done, if it is
    /// not cached under `from`.
    pub fn advance(
        &self,
        file: &FileKey,
        from: u64,
        to: u64,
        length: u64,
        changed: &[ByteRange],
    ) -> bool {
        let mut state = self.shared.lock();
        let advanced = state.advance(file, from, to, length, changed);
        self.wake(&state);
        advanced
    }

    /// Keeps a note with the file, whatever its bytes mean, in place of the one before; an empty one is none. False, and nothing is kept, if the
    /// file was not begun with this version, or the note is longer than [`MAX_NOTE_BYTES`](crate::MAX_NOTE_BYTES).
    pub fn set_note(&self, file: &FileKey, version: u64, note: impl Into<Arc<[u8]>>) -> bool {
        let note = note.into();
        let mut state = self.shared.lock();
        let kept = state.set_note(file, version, &note);
        self.wake(&state);
        kept
    }

    /// The note that was kept with the file at this version.
    pub fn note(&self, file: &FileKey, version: u64) -> Option<Arc<[u8]>> {
        for _ in 0..NOTE_TRIES {
            let serial = {
                let mut state = self.shared.lock();
                state.touch_file(file);
                let entry = state.entry(file, version)?;
                match (&entry.resident_note, &entry.note) {
                    (Some(note), _) | (None, Note::Unsaved(note)) => return Some(note.clone()),
                    (None, Note::Saved) => entry.serial,
                    (None, Note::None | Note::Volatile) => return None,
                }
            };
            let Some(note) = self.read_note(file, version) else { continue };
            let mut state = self.shared.lock();
            let entry = state.entry(file, version)?;
            if entry.serial == serial && matches!(entry.note, Note::Saved) {
                state.keep_note(file, &note);
            }
            return Some(note);
        }
        None
    }

    fn read_note(&self, file: &FileKey, version: u64) -> Option<Arc<[u8]>> {
        let (bytes, _) = self.shared.directory.as_ref()?.read_head(file).ok()?;
        let head = Head::decode(&bytes).ok()?;
        (head.file == *file && head.version == version && !head.note.is_empty())
            .then(|| head.note.into())
    }

    /// Drops all of a file.
    pub fn forget(&self, file: &FileKey) {
        let mut state = self.shared.lock();
        state.forget(file);
        self.wake(&state);
    }

    /// Drops everything.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        let files: Vec<FileKey> = state.files.keys().copied().collect();
        files.iter().for_each(|file| {
            state.forget(file);
        });
        self.wake(&state);
    }

    /// How much there is, and what it was good for.
    pub fn summary(&self) -> CacheSummary {
        self.shared.lock().summary()
    }

    /// All files that something is known of, in the order of their keys.
    pub fn files(&self) -> impl Iterator<Item = CachedFile> + use<> {
        self.shared.lock().list().into_iter()
    }

    /// Waits until everything that was put before is on the disk, or will not get there.
    pub fn settle(&self) {
        if self.writer.as_ref().is_none_or(JoinHandle::is_finished) {
            return;
        }
        let mut state = self.shared.lock();
        while state.busy || !state.jobs.is_empty() || !state.dirty.is_empty() {
            state.hurry = true;
            self.shared.work.notify_one();
            // Looked at now and then all the same: a writer that died must not hang its user.
            let waited = self.shared.settled.wait_timeout(state, Duration::from_secs(1));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if self.writer.as_ref().is_none_or(JoinHandle::is_finished) {
                return;
            }
        }
    }

    fn wake(&self, state: &State) {
        if !state.jobs.is_empty() || !state.dirty.is_empty() {
            self.shared.work.notify_one();
        }
    }

    /// The contents of what was found.
    fn take(&self, found: Found) -> Option<Arc<[u8]>> {
        let chunk = match found {
            Found::Memory(data) => return Some(data),
            Found::Disk(chunk) => chunk,
            Found::Missing => return None,
        };
        let read = self.read_chunk(&chunk);
        let mut state = self.shared.lock();
        match read {
            Ok(data) => {
                state.counters.disk_hits += 1;
                if state.is_current(&chunk) {
                    state.keep_in_memory(chunk.item, &data);
                }
                Some(data)
            }
            Err(error) => {
                state.counters.misses += 1;
                // It may have given way, or been replaced, while it was read.
                if state.is_current(&chunk) {
                    state.drop_damaged(&chunk);
                    self.wake(&state);
                    drop(state);
                    let what = format!("chunk {} of {}", chunk.item.number, chunk.item.file);
                    self.shared.tell_damage(&what, &error);
                }
                None
            }
        }
    }

    /// Reads a chunk from the disk, and verifies it.
    fn read_chunk(&self, chunk: &DiskChunk) -> io::Result<Arc<[u8]>> {
        let Some(directory) = &self.shared.directory else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let Item { file, number } = chunk.item;
        let mut data: Arc<[u8]> = std::iter::repeat_n(0, chunk.length).collect();
        let into = Arc::get_mut(&mut data).expect("invariant: nobody else has it yet");
        directory.read_chunk(&file, number, into)?;
        if checksum(&data) == chunk.sum {
            return Ok(data);
        }
        let name = directory.part(&file, Part::Data);
        let told = format!("its checksum is wrong in {}", name.display());
        Err(io::Error::new(io::ErrorKind::InvalidData, told))
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has told so by itself.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CHUNK_BYTES, chunk_count};

    #[test]
    fn chunks_cover_a_file() {
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 10 * CHUNK_BYTES] {
            let lengths = (0..chunk_count(length)).map(|n| crate::chunk_length(length, n) as u64);
            assert_eq!(lengths.sum::<u64>(), length);
            assert_eq!(crate::chunk_length(length, chunk_count(length)), 0);
        }
        assert_eq!(crate::chunk_length(u64::MAX, u64::MAX), 0);
    }
}
