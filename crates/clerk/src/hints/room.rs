//! What all streams of hints of a clerk have together: memory for what was fetched and not read, and for what is known.
//!
//! Each has a share at most, which is smaller where there are more of them. Who has more then gives back what would be read
//! last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::HintStream;
use crate::ClerkError;

/// One part in this many of the memory for reading ahead is for what was hinted.
const MEMORY_SHARE: u64 = 2;

/// Of that, one part in this many is a stream's at most.
const STREAM_SHARE: u64 = 2;

/// Streams of a clerk, and of one user, at most.
const MOST_STREAMS: usize = 32;
const MOST_STREAMS_EACH: usize = 16;

/// Parts of a file that are hinted are no longer than this, however much memory there is.
const LONGEST: u64 = 1 << 20;

/// Hints that are known and not over, of all streams together and of one: at least so many, and at most.
const KNOWN: usize = 1 << 17;
const LEAST_KNOWN: usize = 1 << 12;
const MOST_KNOWN: usize = 1 << 14;

/// Bytes of paths that wait to be looked up, of all streams together, and of one at most.
const PATH_BYTES: usize = 16 << 20;
const MOST_PATH_BYTES: usize = 4 << 20;

/// There is next to nothing left below one part in this many, and enough to look again above one in so many: who looked at each
/// byte that is given back would fetch a little at a time.
const SHORT_BELOW: u64 = 128;
const ENOUGH_ABOVE: u64 = 32;

/// A stream's place among the others, until this is dropped.
pub(super) struct Member {
    room: Arc<Room>,
    stream: Arc<HintStream>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let own = Arc::as_ptr(&self.stream);
        self.room.lock().streams.retain(|(_, other)| other.as_ptr() != own);
        self.room.wake();
    }
}

/// See the module.
pub(crate) struct Room {
    bytes: u64,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The streams, and whose they are.
    streams: Vec<(u32, Weak<HintStream>)>,
    /// Bytes that all of them hold.
    held: u64,
    /// Somebody has found next to nothing left.
    is_short: bool,
}

impl Room {
    /// Of a clerk that may use so many bytes to read ahead.
    pub(crate) fn new(read_ahead_bytes: usize) -> Room {
        Room { bytes: read_ahead_bytes as u64 / MEMORY_SHARE, shared: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that a stream may hold at most, however few there are.
    pub(super) fn most(&self) -> u64 {
        self.bytes / STREAM_SHARE
    }

    /// A user's stream is one of them from now on.
    pub(super) fn enter(
        self: &Arc<Self>,
        uid: u32,
        stream: &Arc<HintStream>,
    ) -> Result<Member, ClerkError> {
        let mut shared = self.lock();
        if shared.streams.iter().filter(|(owner, _)| *owner == uid).count() >= MOST_STREAMS_EACH {
            return Err(ClerkError::TooManyOwnStreams);
        }
        if shared.streams.len() >= MOST_STREAMS {
            return Err(ClerkError::TooManyStreams);
        }
        shared.streams.push((uid, Arc::downgrade(stream)));
        drop(shared);
        // The others have less now.
        self.wake();
        Ok(Member { room: Arc::clone(self), stream: Arc::clone(stream) })
    }

    fn count(&self) -> usize {
        self.lock().streams.len().max(1)
    }

    /// Longer parts of a file are hinted in parts, so that one has room in the least share: what is more than a share is given back,
    /// and would be fetched over and over.
    pub(super) fn longest(&self) -> u64 {
        (self.bytes / MOST_STREAMS as u64).clamp(1, LONGEST)
    }

    /// Bytes that each stream may hold.
    pub(super) fn share(&self) -> u64 {
        self.most().min(self.bytes / self.count() as u64)
    }

    /// Hints that each stream may know.
    pub(super) fn known(&self) -> usize {
        (KNOWN / self.count()).clamp(LEAST_KNOWN, MOST_KNOWN)
    }

    /// Bytes of paths that may wait in each stream.
    pub(super) fn path_bytes(&self) -> usize {
        (PATH_BYTES / self.count()).min(MOST_PATH_BYTES)
    }

    /// A stream that holds so many bytes takes some more: `take` is told how many it may hold then, and tells what it takes, and
    /// how many it holds.
    pub(super) fn take<T>(
        &self,
        held: u64,
        take: impl FnOnce(u64) -> (Option<T>, u64),
    ) -> Option<T> {
        let share = self.share();
        let mut shared = self.lock();
        // A piece that is longer than all of it is let in alone.
        let limit = match shared.held {
            0 => u64::MAX,
            all => share.min(held + self.bytes.saturating_sub(all)),
        };
        let (taken, holds) = take(limit);
        shared.held += holds.saturating_sub(held);
        let left = self.bytes.saturating_sub(shared.held);
        shared.is_short |= taken.is_none() && left < self.bytes / SHORT_BELOW;
        taken
    }

    /// A stream has given back so many bytes.
    pub(super) fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut shared = self.lock();
        shared.held = shared.held.saturating_sub(bytes);
        let is_enough = self.bytes.saturating_sub(shared.held) >= self.bytes / ENOUGH_ABOVE;
        let looks_again = shared.is_short && is_enough;
        shared.is_short &= !looks_again;
        drop(shared);
        if looks_again {
            self.wake();
        }
    }

    /// Bytes that all streams hold.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u64 {
        self.lock().held
    }

    /// Has all streams look for what there is to do. Whoever is just about to wait misses it, and looks around by himself.
    fn wake(&self) {
        let streams: Vec<_> =
            self.lock().streams.iter().filter_map(|(_, stream)| stream.upgrade()).collect();
        streams.iter().for_each(|stream| stream.changed.notify_all());
    }
}
