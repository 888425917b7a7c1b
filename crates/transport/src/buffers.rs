//! Memory for bulk data that can't stay where it lies: a few buffers that are used again and again.
//!
//! A fresh one of some size costs a fault of the memory for each page, which is more than
//! encrypting it; and the one that was given back last is still in the processor's cache.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that are not in use, and how many bytes are. Clones share them.
#[derive(Clone)]
pub struct BufferPool {
    buffers: Arc<Mutex<Buffers>>,
    most_idle_bytes: usize,
    most_used_bytes: usize,
}

#[derive(Default)]
struct Buffers {
    idle: Vec<Vec<u8>>,
    idle_bytes: usize,
    /// Memory that was taken and not given back.
    used_bytes: usize,
}

/// Memory of a pool, given back when dropped.
pub struct PooledBuffer {
    bytes: Vec<u8>,
    length: usize,
    /// What it counts for in the pool, in bytes.
    counted: usize,
    pool: BufferPool,
}

impl BufferPool {
    /// A pool that keeps at most so many bytes that nobody uses. What is in use is not limited.
    pub fn new(most_idle_bytes: usize) -> BufferPool {
        BufferPool::limited(most_idle_bytes, usize::MAX)
    }

    /// The same, of which [`BufferPool::try_take`] gives nothing that would make it more than
    /// `most_used_bytes` in use.
    pub fn limited(most_idle_bytes: usize, most_used_bytes: usize) -> BufferPool {
        BufferPool { buffers: Arc::default(), most_idle_bytes, most_used_bytes }
    }

    /// Memory of so many bytes, with whatever contents, however much is in use: for what is given back
    /// without waiting for anybody.
    pub fn take(&self, length: usize) -> PooledBuffer {
        let bytes = self.lock().take(length, usize::MAX).unwrap_or_default();
        self.buffer(bytes, length)
    }

    /// The same for what others may keep in use for long; `None` if too much is.
    pub fn try_take(&self, length: usize) -> Option<PooledBuffer> {
        let bytes = self.lock().take(length, self.most_used_bytes)?;
        Some(self.buffer(bytes, length))
    }

    /// Makes the memory, which is counted as used already, long enough.
    fn buffer(&self, mut bytes: Vec<u8>, length: usize) -> PooledBuffer {
        let counted = bytes.capacity().max(length);
        if bytes.len() < length {
            bytes.reserve_exact(length - bytes.len());
            bytes.resize(length, 0);
        }
        PooledBuffer { bytes, length, counted, pool: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Buffers> {
        // Whole after every statement that could panic.
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffers {
    /// The one that was given back last, if with it no more than `most` bytes are in use; else a new
    /// one, if with that no more are. What is counted is its memory, or what it will grow to.
    fn take(&mut self, length: usize, most: usize) -> Option<Vec<u8>> {
        let fits = |bytes: usize| self.used_bytes.checked_add(bytes).filter(|sum| *sum <= most);
        let last = self.idle.last().filter(|_| length > 0).map(Vec::capacity);
        let with_last = last.and_then(|capacity| fits(capacity.max(length)));
        if let Some(sum) = with_last
            && let Some(buffer) = self.idle.pop()
        {
            self.used_bytes = sum;
            self.idle_bytes -= buffer.capacity();
            return Some(buffer);
        }
        self.used_bytes = fits(length)?;
        Some(Vec::new())
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut buffers = self.pool.lock();
        buffers.used_bytes = buffers.used_bytes.saturating_sub(self.counted);
        let sum = buffers.idle_bytes + bytes.capacity();
        if bytes.capacity() > 0 && sum <= self.pool.most_idle_bytes {
            buffers.idle_bytes = sum;
            buffers.idle.push(bytes);
        }
    }
}

impl Deref for PooledBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for PooledBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("most_idle_bytes", &self.most_idle_bytes)
            .field("most_used_bytes", &self.most_used_bytes)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledBuffer").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_last_is_used_again_and_idle_bytes_are_bounded() {
        let pool = BufferPool::new(10_000);
        let (first, second) = (pool.take(6000), pool.take(4000));
        let place = second.as_ptr();
        assert_eq!((first.len(), second.len()), (6000, 4000));
        drop(first);
        drop(second);
        let again = pool.take(100);
        assert_eq!((again.as_ptr(), again.len()), (place, 100));
        drop(again);
        let many: Vec<_> = (0..5).map(|_| pool.take(3000)).collect();
        drop(many);
        let buffers = pool.lock();
        assert!(buffers.idle_bytes <= 10_000);
        assert_eq!(buffers.idle_bytes, buffers.idle.iter().map(Vec::capacity).sum::<usize>());
        assert_eq!(buffers.used_bytes, 0);
    }

    #[test]
    fn no_more_is_in_use_than_may_be() {
        let pool = BufferPool::limited(10_000, 10_000);
        let first = pool.try_take(9_000).unwrap();
        assert!(pool.try_take(1_001).is_none());
        let second = pool.try_take(1_000).unwrap();
        assert!(pool.try_take(1).is_none());
        assert_eq!(pool.try_take(0).unwrap().len(), 0);
        assert_eq!(pool.take(5_000).len(), 5_000, "nobody waits for what is given back at once");
        drop(second);
        drop(first);
        // What was given back is all used for little, and counts for all that it is.
        let many: Vec<_> = (0..100).map_while(|_| pool.try_take(1_000)).collect();
        assert!((1..=10).contains(&many.len()), "{}", many.len());
        let memory: usize = many.iter().map(|buffer| buffer.bytes.capacity()).sum();
        assert!(memory <= 10_000, "{memory}");
        drop(many);
        assert_eq!(pool.lock().used_bytes, 0);
        assert!(pool.try_take(usize::MAX).is_none());
    }

    #[test]
    fn one_that_is_too_short_grows() {
        let pool = BufferPool::new(1 << 20);
        drop(pool.take(10));
        let mut longer = pool.take(1000);
        longer.fill(7);
        assert_eq!(longer.len(), 1000);
        drop(longer);
        assert_eq!(pool.take(0).len(), 0);
    }
}
