//! What was read of files and stored in them, kept by version in memory and on this machine's disk ([`nasd_cache`]): it is good as long
//! as the version is the file's, also for a client that was away.

use std::sync::Arc;

use nasd_afs::callbacks::Version;
use nasd_cache::{CHUNK_BYTES, Cache, CacheOptions, FileKey, Identity, Missing};
use nasd_types::ByteRange;

use crate::ClerkError;
use crate::core::Core;
use crate::file::{FileState, Inner};
use crate::open_file::Reader;
use crate::pending::Piece;
use crate::settings::CacheSettings;
use crate::wire::{FileAttributes, FileHandle, Volume};

/// So long a file is kept whole, in whatever order it is read; of longer ones only what is read from begin to end.
const WHOLE_BYTES: u64 = 4 << 20;

/// So many bytes of a store are put into the cache when it is done; what is longer is read again by who wants it.
const MOST_STORED: u64 = 32 << 20;

/// Versions that others have come between are given up so often in one read.
const MOST_VERSIONS: usize = 16;

const fn key(handle: FileHandle) -> FileKey {
    FileKey { drive: handle.drive, partition: handle.partition, object: handle.object }
}

/// Opens the cache of a volume. Where its directory can't be used there is one in memory alone.
pub(super) fn open(settings: &CacheSettings, volume: &Volume) -> Option<Arc<Cache>> {
    let identity = Identity { cell: volume.cell, volume: volume.name.to_string() };
    let options = CacheOptions {
        directory: settings.directory.clone(),
        disk_bytes: settings.disk_bytes,
        memory_bytes: settings.memory_bytes,
    };
    let in_memory = CacheOptions { directory: None, disk_bytes: 0, ..options.clone() };
    let opened = Cache::open(options, &identity).or_else(|error| {
        tracing::warn!(%error, "nothing is kept on this machine's disk");
        Cache::open(in_memory, &identity)
    });
    match opened {
        Ok(cache) => Some(Arc::new(cache)),
        Err(error) => {
            tracing::warn!(%error, "nothing is cached");
            None
        }
    }
}

/// What is about to be stored, and is to be kept when that is done.
#[derive(Debug)]
pub(crate) struct Stored {
    pieces: Vec<Piece>,
    changed: Vec<ByteRange>,
}

impl Inner {
    /// What is about to be stored, if it is worth to be kept.
    pub(super) fn to_be_kept(&self) -> Option<Stored> {
        if !self.appending.is_empty() || self.pending.held_bytes() > MOST_STORED {
            return None;
        }
        let pieces = self.pending.overlay(ByteRange::ALL);
        let changed = pieces.iter().map(Piece::range).collect();
        Some(Stored { pieces, changed })
    }
}

impl FileState {
    /// Reads a range from the cache, and what is lacking into it; nothing where that is not worth it, or where something of the range was
    /// written here and is not stored.
    pub(crate) fn read_cached(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        range: ByteRange,
        into: &mut [u8],
    ) -> Result<Option<usize>, ClerkError> {
        let Some(cache) = core.promises().and_then(|promises| promises.cache()) else {
            return Ok(None);
        };
        for _ in 0..MOST_VERSIONS {
            let Some(version) = self.show_current(core, &reader.slot)? else {
                return Ok(None);
            };
            let inner = self.lock();
            // What is being stored was seen here already, and is in the file before it is in the cache.
            let is_written = !inner.pending.is_empty() || inner.emptied.is_some();
            let is_own = is_written || inner.target.is_some();
            let size = inner.size();
            if is_own || inner.shown != Some(version) {
                return Ok(None);
            }
            drop(inner);
            match cache.read(&key(self.handle), version, range.offset, into) {
                Ok(filled) => return Ok(Some(filled)),
                Err(Missing::File) => {
                    if !cache.begin(&key(self.handle), version, size) {
                        return Ok(None);
                    }
                }
                Err(Missing::Chunks(_)) => {
                    if size > WHOLE_BYTES && !reader.continues(range) {
                        return Ok(None);
                    }
                    let wanted = range.intersection(&ByteRange::new(0, size));
                    let into = &mut into[..wanted.length as usize];
                    if self.fill_cached(core, reader, (cache, version), (wanted, size), into)? {
                        return Ok(Some(into.len()));
                    }
                }
            }
        }
        Ok(None)
    }

    /// All of the file, if it is short and not empty, is in the cache, and is what the file is now: that is believed, nothing was written
    /// here that is not in it, and nobody need be asked. With its attributes.
    pub(crate) fn cached_whole(&self, core: &Core) -> Option<(FileAttributes, Arc<[u8]>)> {
        let promises = core.promises()?;
        let (cache, (version, attributes)) = (promises.cache()?, promises.believed(self.handle)?);
        let inner = self.lock();
        let is_own = !inner.is_settled() || inner.target.is_some();
        if is_own || inner.shown != Some(version) || attributes.size > CHUNK_BYTES {
            return None;
        }
        drop(inner);
        let chunk = cache.chunk(&key(self.handle), version, 0)?;
        (chunk.len() as u64 == attributes.size).then_some((attributes, chunk))
    }

    /// Puts a range of the file together from the cache and the drive; whether all of it is of that version.
    fn fill_cached(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        (cache, version): (&Arc<Cache>, Version),
        (range, size): (ByteRange, u64),
        into: &mut [u8],
    ) -> Result<bool, ClerkError> {
        let mut filled = 0;
        while filled < into.len() {
            let at = range.offset + filled as u64;
            let number = at / CHUNK_BYTES;
            let known = cache.chunk(&key(self.handle), version, number);
            let chunk = match known {
                Some(chunk) => Some(chunk),
                None => self.fetch_chunk(core, reader, (cache, version), (number, size))?,
            };
            let from = (at % CHUNK_BYTES) as usize;
            let Some(part) = chunk.as_ref().and_then(|chunk| chunk.get(from..)) else {
                return Ok(false);
            };
            let count = part.len().min(into.len() - filled);
            if count == 0 {
                return Ok(false);
            }
            into[filled..filled + count].copy_from_slice(&part[..count]);
            filled += count;
        }
        Ok(true)
    }

    /// Brings a chunk into the cache, if it is of that version.
    fn fetch_chunk(
        self: &Arc<Self>,
        core: &Arc<Core>,
        reader: &Reader,
        (cache, version): (&Arc<Cache>, Version),
        (number, size): (u64, u64),
    ) -> Result<Option<Arc<[u8]>>, ClerkError> {
        let offset = number * CHUNK_BYTES;
        let length = size.saturating_sub(offset).min(CHUNK_BYTES);
        let mut data = vec![0; length as usize];
        let filled = self.read_at_drive(core, reader, ByteRange::new(offset, length), &mut data)?;
        let told = core.promises().and_then(|promises| promises.version(self.handle));
        if told != Some(version) || filled as u64 != length {
            return Ok(None);
        }
        let chunk: Arc<[u8]> = data.into();
        cache.put(&key(self.handle), version, number, Arc::clone(&chunk));
        Ok(Some(chunk))
    }

    /// A store is done, of which this was what is new in the file; before it the cache may have had what was shown.
    pub(super) fn keep_stored(
        &self,
        cache: &Cache,
        stored: Option<&Stored>,
        (before, version, length): (Option<Version>, Version, u64),
    ) {
        let file = key(self.handle);
        let Some(Stored { pieces, changed }) = stored else {
            cache.begin(&file, version, length);
            return;
        };
        let is_next = before.is_some_and(|before| before + 2 == version);
        let goes_on = is_next
            && before.is_some_and(|before| cache.advance(&file, before, version, length, changed));
        if !goes_on {
            cache.begin(&file, version, length);
        }
        for number in 0..length.div_ceil(CHUNK_BYTES) {
            let offset = number * CHUNK_BYTES;
            let range = ByteRange::new(offset, (length - offset).min(CHUNK_BYTES));
            if let Some(data) = together(pieces, range) {
                cache.put(&file, version, number, data);
            }
        }
    }
}

/// The bytes of a range, if all of them are in the pieces, which are in order and do not overlap.
fn together(pieces: &[Piece], range: ByteRange) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(range.length as usize);
    let first = pieces.partition_point(|piece| piece.range().end() <= range.offset);
    for piece in &pieces[first..] {
        let at = range.offset + data.len() as u64;
        if at == range.end() {
            break;
        }
        if piece.offset > at {
            return None;
        }
        let part = piece.range().intersection(&range);
        let from = (at - piece.offset) as usize;
        let count = (part.end() - at) as usize;
        data.extend_from_slice(&piece.data()[from..from + count]);
    }
    (data.len() as u64 == range.length).then_some(data)
}
