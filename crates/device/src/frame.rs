//! Frames: 64 KiB pieces of memory that disks and sockets both read and write without a copy.
//!
//! A [`FramePool`] maps all of its memory once, so that the number of frames is a hard bound on
//! what a cache can use. A [`Frame`] has one owner who may write to it; `Arc<Frame>` shares it
//! for reading, with sockets too. The frame goes back to its pool when the last holder drops it.
//!
//! A frame that is handed out keeps whatever its last user left in it: whoever fills one only in
//! part has to clear the rest.
//!
//! The system gives the memory when it is first touched, and clears it before. That takes longer than
//! a small transfer, so a background thread may do it ahead of use (`prepare`).

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::DeviceError;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 64 << 10;

/// Frames that get memory by one call (2 MiB, a huge page): meanwhile nothing else of the process can
/// get any.
const POPULATED_FRAMES: usize = 32;

#[repr(align(4096))]
struct ZeroFrame([u8; FRAME_BYTES]);

static ZEROS: ZeroFrame = ZeroFrame([0; FRAME_BYTES]);

/// One frame's length of zeros: what holes read as.
pub fn zeros() -> &'static [u8; FRAME_BYTES] {
    &ZEROS.0
}

/// A fixed number of frames.
#[derive(Clone)]
pub struct FramePool {
    slab: Arc<Slab>,
}

struct Slab {
    start: NonNull<u8>,
    frames: usize,
    free: Mutex<FreeList>,
    /// Told when a frame comes back while somebody waits for one.
    returned: Condvar,
    /// Told when many frames have been used for the first time since `prepare` looked.
    used_up: Condvar,
}

#[derive(Default)]
struct FreeList {
    indices: Vec<u32>,
    waiting: usize,
    /// Frames from this index on were never handed out.
    unused: usize,
    /// Frames below this index have memory.
    prepared: usize,
    /// With so many frames unused and prepared, or fewer, `prepare` wants to know.
    low: usize,
}

impl FreeList {
    fn note_use(&mut self, index: u32) -> bool {
        let index = index as usize;
        if index < self.unused {
            return false;
        }
        self.unused = index + 1;
        self.unused + self.low == self.prepared
    }
}

// SAFETY: the slab's memory is handed out one frame at a time: a frame's index is either in the
// free list or owned by exactly one `Frame`.
unsafe impl Send for Slab {}
// SAFETY: as above; the free list is behind its mutex.
unsafe impl Sync for Slab {}

/// A frame that belongs to the holder alone.
pub struct Frame {
    slab: Arc<Slab>,
    index: u32,
}

impl FramePool {
    /// Maps memory for `frames` frames (at least one), with huge pages where the system has them.
    pub fn new(frames: usize) -> Result<FramePool, DeviceError> {
        let frames = frames.clamp(1, u32::MAX as usize);
        let start = map(frames * FRAME_BYTES)?;
        // The lowest index last, so that it is handed out first and the slab fills from its start.
        let indices = (0..frames as u32).rev().collect();
        let free = Mutex::new(FreeList { indices, ..FreeList::default() });
        let (returned, used_up) = (Condvar::new(), Condvar::new());
        let slab = Slab { start, frames, free, returned, used_up };
        Ok(FramePool { slab: Arc::new(slab) })
    }

    /// How many frames there are, free or not.
    pub fn frames(&self) -> usize {
        self.slab.frames
    }

    /// How many frames are free now.
    pub fn free_frames(&self) -> usize {
        self.slab.free().indices.len()
    }

    /// A frame, or `None` when all are in use. Its contents are whatever its last user left.
    pub fn allocate(&self) -> Option<Frame> {
        self.allocate_many(1)?.pop()
    }

    /// `count` frames or none at all, so that two who want many never hold half each.
    pub fn allocate_many(&self, count: usize) -> Option<Vec<Frame>> {
        let mut free = self.slab.free();
        let rest = free.indices.len().checked_sub(count)?;
        let taken = free.indices.split_off(rest);
        let low = taken.iter().rev().fold(false, |low, &index| free.note_use(index) | low);
        drop(free);
        if low {
            self.slab.used_up.notify_all();
        }
        let taken = taken.into_iter().rev();
        Some(taken.map(|index| Frame { slab: self.slab.clone(), index }).collect())
    }

    /// For a background thread: has memory ready for `ahead` frames beyond those that were ever used,
    /// as far as there are so many. Waits until half of that is used up, at most for `patience`.
    pub fn prepare(&self, ahead: usize, patience: Duration) {
        let ahead = ahead.max(1);
        let mut free = self.slab.free();
        free.low = ahead / 2;
        let is_enough = |free: &mut FreeList| {
            free.prepared == self.slab.frames || free.unused + ahead / 2 < free.prepared
        };
        let waited = self.slab.used_up.wait_timeout_while(free, patience, is_enough);
        let (mut free, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return;
        }
        let from = free.prepared.max(free.unused).min(self.slab.frames);
        let to = (free.unused + ahead).min(self.slab.frames);
        free.prepared = to;
        drop(free);
        let populated = || {
            let parts = (from..to).step_by(POPULATED_FRAMES);
            parts
                .map(|start| start..to.min(start + POPULATED_FRAMES))
                .all(|part| self.slab.populate(part))
        };
        if !populated() {
            // The system (before Linux 5.14) has no such call, or no memory: it is not asked again.
            self.slab.free().prepared = self.slab.frames;
        }
    }

    /// Waits until `count` frames are free at once, or until `patience` is over.
    /// Whether they are; somebody else may take them first.
    pub fn wait_for(&self, count: usize, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut free = self.slab.free();
        while free.indices.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            free.waiting += 1;
            free = match self.slab.returned.wait_timeout(free, left) {
                Ok((free, _)) => free,
                Err(poisoned) => poisoned.into_inner().0,
            };
            free.waiting -= 1;
        }
        true
    }
}

fn map(bytes: usize) -> Result<NonNull<u8>, DeviceError> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping touches no memory that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(DeviceError::Memory { bytes, source: std::io::Error::last_os_error() });
    }
    // Advice only: without huge pages everything works, with more TLB misses.
    // SAFETY: the range was mapped just now.
    unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
    Ok(NonNull::new(start.cast()).expect("invariant: mmap never maps address zero by itself"))
}

impl Slab {
    fn free(&self) -> MutexGuard<'_, FreeList> {
        // The list is whole after every statement, so a panic elsewhere leaves it usable.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the system give memory to frames, whatever is in them.
    fn populate(&self, frames: Range<usize>) -> bool {
        let bytes = frames.len() * FRAME_BYTES;
        // SAFETY: the frames lie within the mapping. What is in them stays as it is, so whoever has
        // one of them does not notice.
        unsafe {
            let start = self.start.as_ptr().add(frames.start * FRAME_BYTES);
            libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) == 0
        }
    }

    fn frame(&self, index: u32) -> *mut u8 {
        // SAFETY: `index < frames`, so the frame lies within the mapping.
        unsafe { self.start.as_ptr().add(index as usize * FRAME_BYTES) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; every frame holds the slab, so none is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.frames * FRAME_BYTES) };
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut free = self.slab.free();
        free.indices.push(self.index);
        // Telling nobody would still cost a system call.
        if free.waiting > 0 {
            self.slab.returned.notify_all();
        }
    }
}

impl Deref for Frame {
    type Target = [u8; FRAME_BYTES];

    fn deref(&self) -> &Self::Target {
        // SAFETY: the mapping is zero-filled at first, so its bytes are initialized, and the
        // frame belongs to `self` alone.
        unsafe { &*self.slab.frame(self.index).cast() }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { &mut *self.slab.frame(self.index).cast() }
    }
}

impl AsRef<[u8]> for Frame {
    fn as_ref(&self) -> &[u8] {
        &self[..]
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({})", self.index)
    }
}

impl fmt::Debug for FramePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FramePool({} of {} free)", self.free_frames(), self.frames())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_distinct_bounded_and_come_back() {
        let pool = FramePool::new(3).unwrap();
        let mut held: Vec<Frame> = (0..3).map(|_| pool.allocate().unwrap()).collect();
        assert!(pool.allocate().is_none());
        for (value, frame) in held.iter_mut().enumerate() {
            assert_eq!(frame.as_ptr().addr() % 4096, 0);
            frame.fill(value as u8);
        }
        for (value, frame) in held.iter().enumerate() {
            assert!(frame.iter().all(|&byte| byte == value as u8));
        }
        let shared = Arc::new(held.pop().unwrap());
        let reader = shared.clone();
        drop(shared);
        assert_eq!(pool.free_frames(), 0);
        drop(reader);
        assert_eq!(pool.free_frames(), 1);
        drop(held);
        assert_eq!(pool.free_frames(), 3);
    }

    #[test]
    fn many_are_had_at_once_or_not_at_all() {
        let pool = FramePool::new(4).unwrap();
        let three = pool.allocate_many(3).unwrap();
        assert!(pool.allocate_many(2).is_none());
        assert_eq!(pool.free_frames(), 1);
        assert!(!pool.wait_for(2, Duration::from_millis(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(pool.wait_for(4, Duration::from_secs(60))));
            drop(three);
        });
        assert_eq!(pool.allocate_many(4).unwrap().len(), 4);
    }

    #[test]
    fn memory_is_prepared_ahead_of_use_and_what_is_in_frames_stays() {
        let pool = FramePool::new(100).unwrap();
        let resident = |index: usize| {
            let mut pages = [0u8; FRAME_BYTES / 4096];
            // SAFETY: the frame lies within the mapping, and the array has a byte for each page.
            unsafe {
                let start = pool.slab.start.as_ptr().add(index * FRAME_BYTES);
                assert_eq!(libc::mincore(start.cast(), FRAME_BYTES, pages.as_mut_ptr()), 0);
            }
            pages.iter().all(|page| page & 1 == 1)
        };
        let mut first = pool.allocate().unwrap();
        first.fill(5);
        pool.prepare(10, Duration::ZERO);
        assert!((0..11).all(resident));
        // Enough is left, so it waits in vain.
        let few = pool.allocate_many(4).unwrap();
        pool.prepare(10, Duration::from_millis(1));
        assert_eq!(pool.slab.free().prepared, 11);
        std::thread::scope(|scope| {
            scope.spawn(|| pool.prepare(10, Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            drop(pool.allocate_many(3).unwrap());
        });
        assert_eq!(pool.slab.free().prepared, 18);
        assert!((0..18).all(resident));
        let all = pool.allocate_many(95).unwrap();
        pool.prepare(10, Duration::from_secs(60));
        assert_eq!(pool.slab.free().prepared, 100);
        pool.prepare(10, Duration::ZERO);
        assert!(first.iter().all(|&byte| byte == 5));
        drop((few, all));
    }

    #[test]
    fn frames_outlive_the_pool_value() {
        let pool = FramePool::new(1).unwrap();
        let mut frame = pool.allocate().unwrap();
        drop(pool);
        frame.fill(7);
        assert!(frame.iter().all(|&byte| byte == 7));
    }

    #[test]
    fn concurrent_users_never_share_a_frame() {
        let pool = FramePool::new(8).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let Some(mut frames) = pool.allocate_many(2) else {
                            continue;
                        };
                        for frame in &mut frames {
                            frame[0] = thread;
                            frame[FRAME_BYTES - 1] = thread;
                        }
                        std::thread::yield_now();
                        for frame in &frames {
                            assert_eq!((frame[0], frame[FRAME_BYTES - 1]), (thread, thread));
                        }
                    }
                });
            }
        });
        assert_eq!(pool.free_frames(), 8);
    }
}
