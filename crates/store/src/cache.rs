//! The memory for data: frames, who gives one up next, and how much is dirty.
//!
//! The frames themselves hang off their objects (see `frames`); here is what all objects share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use nasd_device::{DeviceError, FRAME_BYTES, Frame, FramePool};

use crate::frames::{FrameMap, Judged, NewSlot};
use crate::object::Object;
use crate::policy::{Policy, Verdict};

/// A writer helps to write back when one frame in this many is dirty.
const DIRTY_SHARE: usize = 2;

/// A background thread is told to write back when one frame in this many is dirty, or this many
/// (32 MiB): the device should not be idle for long before it gets what it will get anyway.
const BACKGROUND_SHARE: usize = 8;
const BACKGROUND_FRAMES: usize = 512;

/// Frames that have memory before they are first used: one in this many, or so many (64 MiB).
const PREPARED_SHARE: usize = 8;
const PREPARED_FRAMES: usize = 1024;

/// A transfer may take one frame in this many.
const TRANSFER_SHARE: usize = 4;

/// Frames given up at a time, so that not every transfer has to.
const EVICTION_BATCH: usize = 32;

/// The entry of a frame in the policy's queues.
#[derive(Debug)]
struct Key {
    object: Weak<Object>,
    slot: NewSlot,
}

/// What all objects share of the cache.
#[derive(Debug)]
pub(crate) struct Cache {
    pool: FramePool,
    policy: Mutex<Policy<Key>>,
    stamps: AtomicU64,
    /// Frames with dirty blocks or blocks being written.
    pinned: AtomicUsize,
    /// Frames that were read again not long after they were given up.
    regretted: AtomicU64,
    /// Whether the background thread was woken.
    background: Mutex<bool>,
    dirtied: Condvar,
}

/// How crowded the cache is: what a frame of it is worth to those who use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePressure {
    /// Frames, of 64 KiB each.
    pub frames: usize,
    /// Those that nothing is in.
    pub free_frames: usize,
    /// Frames that are given up at a time where there are none: so many may be free in a cache that is full.
    pub given_up_at_once: usize,
    /// Frames that were read again not long after they had been given up, since the store was opened.
    pub regretted: u64,
    /// How many of those that were given up are remembered, to know that: a cache of so many frames more would have had
    /// all of them.
    pub remembered: usize,
}

/// The frames of an object, locked. Keeps the count of pinned frames.
pub(crate) struct FramesGuard<'a> {
    frames: MutexGuard<'a, FrameMap>,
    cache: &'a Cache,
    before: usize,
}

impl Cache {
    /// A cache with `bytes` of memory, in whole frames.
    pub(crate) fn new(bytes: usize) -> Result<Cache, DeviceError> {
        let pool = FramePool::new((bytes / FRAME_BYTES).max(8))?;
        Ok(Cache {
            policy: Mutex::new(Policy::new(pool.frames())),
            pool,
            stamps: AtomicU64::new(0),
            pinned: AtomicUsize::new(0),
            regretted: AtomicU64::new(0),
            background: Mutex::new(false),
            dirtied: Condvar::new(),
        })
    }

    /// Memory for data, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.pool.frames() * FRAME_BYTES) as u64
    }

    /// Most bytes that one transfer may hold in frames, not counting what it wastes at its ends.
    pub(crate) fn transfer_bytes(&self) -> usize {
        (self.pool.frames() / TRANSFER_SHARE - 1) * FRAME_BYTES
    }

    /// Most frames that one call may take at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.pool.frames() / 2
    }

    /// Bytes in frames that are dirty or being written.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        (self.pinned.load(Ordering::Relaxed) * FRAME_BYTES) as u64
    }

    /// Dirty bytes at which writers have to help writing back.
    pub(crate) fn dirty_limit(&self) -> u64 {
        self.bytes() / DIRTY_SHARE as u64
    }

    /// Tells the background thread that there is something to do.
    pub(crate) fn wake_background(&self) {
        *self.background.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.dirtied.notify_all();
    }

    /// Has memory ready for some frames ahead of their first use; see `FramePool::prepare`.
    pub(crate) fn prepare(&self, patience: Duration) {
        self.pool.prepare((self.pool.frames() / PREPARED_SHARE).min(PREPARED_FRAMES), patience);
    }

    /// All frames that there are.
    pub(crate) fn frames_total(&self) -> usize {
        self.pool.frames()
    }

    /// Dirty bytes with which some should be written back.
    pub(crate) fn background_limit(&self) -> u64 {
        (self.background_frames() * FRAME_BYTES) as u64
    }

    fn background_frames(&self) -> usize {
        (self.pool.frames() / BACKGROUND_SHARE).min(BACKGROUND_FRAMES)
    }

    /// Waits until the background thread was woken, much has become dirty, or the deadline is over.
    pub(crate) fn wait_for_work(&self, deadline: Instant) {
        let mut guard = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if std::mem::take(&mut *guard) || left.is_zero() {
                return;
            }
            guard = match self.dirtied.wait_timeout(guard, left) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Locks the frames of an object. Nothing else may be locked while they are, and nothing slow
    /// done.
    pub(crate) fn frames<'a>(&'a self, object: &'a Object) -> FramesGuard<'a> {
        let frames = object.frames.lock().unwrap_or_else(PoisonError::into_inner);
        let before = frames.pinned();
        FramesGuard { frames, cache: self, before }
    }

    /// A number that no other frame that came into the cache has.
    pub(crate) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes frames that came in known to the policy. No frames may be locked.
    pub(crate) fn admit(&self, object: &Arc<Object>, slots: &[NewSlot]) {
        let regretted = self.admit_quietly(object, slots);
        if regretted > 0 {
            self.regretted.fetch_add(regretted, Ordering::Relaxed);
        }
    }

    /// The same, of frames that nobody reads yet; how many of them were given up not long ago.
    pub(crate) fn admit_quietly(&self, object: &Arc<Object>, slots: &[NewSlot]) -> u64 {
        if slots.is_empty() {
            return 0;
        }
        let mut regretted = 0;
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        for &slot in slots {
            let key = Key { object: Arc::downgrade(object), slot };
            regretted += u64::from(policy.insert(key, fingerprint(object, slot.number)));
        }
        // Frames that were dropped by cuts and removals left entries behind.
        if policy.entries() > 2 * self.pool.frames() + EVICTION_BATCH {
            policy.tidy(|key| {
                key.object.upgrade().is_some_and(|object| {
                    self.frames(&object).frames.has(key.slot.number, key.slot.stamp)
                })
            });
        }
        regretted
    }

    /// How crowded it is.
    pub(crate) fn pressure(&self) -> CachePressure {
        let remembered = {
            let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
            policy.remembered()
        };
        CachePressure {
            frames: self.pool.frames(),
            free_frames: self.pool.free_frames(),
            given_up_at_once: EVICTION_BATCH,
            regretted: self.regretted.load(Ordering::Relaxed),
            remembered,
        }
    }

    /// `count` frames that are free, or become so by giving clean ones up. No frames may be locked.
    pub(crate) fn try_allocate(&self, count: usize) -> Option<Vec<Frame>> {
        if let Some(frames) = self.pool.allocate_many(count) {
            return Some(frames);
        }
        self.evict(count.max(EVICTION_BATCH));
        self.pool.allocate_many(count)
    }

    /// Waits until frames come back from readers, at most for `patience`.
    pub(crate) fn wait_for_frames(&self, count: usize, patience: Duration) -> bool {
        self.pool.wait_for(count, patience)
    }

    fn evict(&self, wanted: usize) {
        // Frames go back to the pool when no lock is held any more.
        let mut evicted: Vec<Arc<Frame>> = Vec::with_capacity(wanted);
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        policy.evict(wanted, |key| {
            let Some(object) = key.object.upgrade() else {
                return Verdict::Gone;
            };
            let judged = self.frames(&object).judge(key.slot.number, key.slot.stamp);
            match judged {
                Judged::Gone => Verdict::Gone,
                Judged::Kept => Verdict::Busy,
                Judged::Used => Verdict::Used,
                Judged::Evicted(frame) => {
                    evicted.push(frame);
                    Verdict::Evicted
                }
            }
        });
    }
}

/// The same for the same frame of the same object, whenever it comes in.
fn fingerprint(object: &Object, number: u64) -> u64 {
    let name = object.name;
    let mut hash = (u64::from(name.partition.0) << 32) ^ name.object.0;
    for word in [number, 0x9e37_79b9_7f4a_7c15] {
        hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 32;
    }
    hash
}

impl std::ops::Deref for FramesGuard<'_> {
    type Target = FrameMap;

    fn deref(&self) -> &FrameMap {
        &self.frames
    }
}

impl std::ops::DerefMut for FramesGuard<'_> {
    fn deref_mut(&mut self) -> &mut FrameMap {
        &mut self.frames
    }
}

impl Drop for FramesGuard<'_> {
    fn drop(&mut self) {
        let (before, after) = (self.before, self.frames.pinned());
        if after > before {
            let pinned = self.cache.pinned.fetch_add(after - before, Ordering::Relaxed);
            // Now and then, since some of them may be written already.
            let step = self.cache.background_frames() / 2;
            if pinned / step.max(1) != (pinned + (after - before)) / step.max(1) {
                self.cache.wake_background();
            }
        } else if after < before {
            self.cache.pinned.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
