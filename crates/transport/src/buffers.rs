//! Memory for bulk data that can't stay where it lies: a few buffers that are used again and again.
//!
//! A fresh one of some size costs a fault of the memory for each page, which is more than
//! encrypting it; and the one that was given back last is still in the processor's cache.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers that are not in use. Clones share them.
#[derive(Clone, Default)]
pub struct BufferPool {
    idle: Arc<Mutex<Idle>>,
    most_bytes: usize,
}

#[derive(Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// Memory of a pool, given back when dropped.
pub struct PooledBuffer {
    bytes: Vec<u8>,
    length: usize,
    pool: BufferPool,
}

impl BufferPool {
    /// A pool that keeps at most so many bytes that nobody uses. What is in use is not limited.
    pub fn new(most_bytes: usize) -> BufferPool {
        BufferPool { idle: Arc::default(), most_bytes }
    }

    /// Memory of so many bytes, with whatever contents.
    pub fn take(&self, length: usize) -> PooledBuffer {
        let mut bytes = self.lock().take();
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        PooledBuffer { bytes, length, pool: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        // Whole after every statement that could panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    /// The one that was given back last.
    fn take(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut idle = self.pool.lock();
        let sum = idle.bytes + bytes.capacity();
        if sum <= self.pool.most_bytes {
            idle.bytes = sum;
            idle.buffers.push(bytes);
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
        f.debug_struct("BufferPool").field("most_bytes", &self.most_bytes).finish_non_exhaustive()
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
        let idle = pool.lock();
        assert!(idle.bytes <= 10_000);
        assert_eq!(idle.bytes, idle.buffers.iter().map(Vec::capacity).sum::<usize>());
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
