//! Frames: 64 KiB pieces of memory that disks and sockets both read and write without a copy.
//!
//! A [`FramePool`] maps all of its memory once, so that the number of frames is a hard bound on
//! what a cache can use. A [`Frame`] has one owner who may write to it; `Arc<Frame>` shares it
//! for reading, with sockets too. The frame goes back to its pool when the last holder drops it.
//!
//! A frame that is handed out keeps whatever its last user left in it: whoever fills one only in
//! part has to clear the rest.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::DeviceError;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = 64 << 10;

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
}

#[derive(Default)]
struct FreeList {
    indices: Vec<u32>,
    waiting: usize,
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
        let free = FreeList { indices: (0..frames as u32).rev().collect(), waiting: 0 };
        let slab = Slab { start, frames, free: Mutex::new(free), returned: Condvar::new() };
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
        let index = self.slab.free().indices.pop()?;
        Some(Frame { slab: self.slab.clone(), index })
    }

    /// `count` frames or none at all, so that two who want many never hold half each.
    pub fn allocate_many(&self, count: usize) -> Option<Vec<Frame>> {
        let mut free = self.slab.free();
        let rest = free.indices.len().checked_sub(count)?;
        let taken = free.indices.drain(rest..).rev();
        Some(taken.map(|index| Frame { slab: self.slab.clone(), index }).collect())
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
