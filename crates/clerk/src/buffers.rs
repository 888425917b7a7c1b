//! A bounded pool of buffers for read-ahead.
//!
//! A fresh buffer of a mebibyte costs page faults and zeroing; these are used again instead.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of every buffer: the longest request that a clerk makes.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// Gives out at most a fixed number of buffers; never waits.
#[derive(Clone, Debug)]
pub(crate) struct BufferPool {
    shared: Arc<Mutex<Free>>,
}

#[derive(Debug)]
struct Free {
    buffers: Vec<Box<[u8]>>,
    /// Buffers that may still be made.
    unmade: usize,
}

/// A buffer on loan; it goes back when dropped. Its contents are whatever was there before.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    home: Arc<Mutex<Free>>,
}

impl BufferPool {
    /// A pool of `limit_bytes / BUFFER_BYTES` buffers, none of them made yet.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        let free = Free { buffers: Vec::new(), unmade: limit_bytes / BUFFER_BYTES };
        BufferPool { shared: Arc::new(Mutex::new(free)) }
    }

    /// A buffer, unless all are on loan.
    pub(crate) fn try_take(&self) -> Option<Buffer> {
        let mut free = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match free.buffers.pop() {
            Some(bytes) => bytes,
            None => {
                free.unmade = free.unmade.checked_sub(1)?;
                drop(free);
                vec![0; BUFFER_BYTES].into_boxed_slice()
            }
        };
        Some(Buffer { bytes, home: Arc::clone(&self.shared) })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.home.lock().unwrap_or_else(PoisonError::into_inner).buffers.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_bounded_and_buffers_come_back() {
        let pool = BufferPool::new(2 * BUFFER_BYTES);
        let first = pool.try_take().unwrap();
        let _second = pool.try_take().unwrap();
        assert!(pool.try_take().is_none());
        drop(first);
        assert!(pool.try_take().is_some());
    }
}
