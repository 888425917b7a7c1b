//! Buffers of a mebibyte that are used again: a fresh one costs page faults and zeroing.
//!
//! `BufferPool` lends buffers for read-ahead and bounds how many there are; `SpareBuffers` keeps
//! those of write-behind, which are bounded elsewhere (`budget`).

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Spare buffers kept at most: as much as one virtual drive may be written without a flush comes back at once.
const MAX_SPARE: usize = 512;

/// The same while nobody writes.
const MAX_IDLE: usize = 32;

/// Empty vectors with room for `BUFFER_BYTES`.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareBuffers {
    spare: Arc<Mutex<Spare>>,
}

#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    /// How few there were since the last `trim`: so many were not needed.
    fewest: usize,
}

impl SpareBuffers {
    fn lock(&self) -> MutexGuard<'_, Spare> {
        // Every change leaves it whole.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty vector with room for `BUFFER_BYTES`.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut spare = self.lock();
        let taken = spare.buffers.pop();
        spare.fewest = spare.fewest.min(spare.buffers.len());
        drop(spare);
        taken.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Gives memory back that is not needed for a while.
    pub(crate) fn calm_down(&self) {
        self.keep(|_| MAX_IDLE);
    }

    /// Called now and then while somebody writes: gives half of the memory back that was not needed since.
    pub(crate) fn trim(&self) {
        self.keep(|spare| (spare.buffers.len() - spare.fewest.div_ceil(2)).max(MAX_IDLE));
    }

    fn keep(&self, how_many: impl FnOnce(&Spare) -> usize) {
        let mut spare = self.lock();
        let kept = how_many(&spare).min(spare.buffers.len());
        // Those that were used last stay.
        let unneeded = spare.buffers.len() - kept;
        let given_back: Vec<_> = spare.buffers.drain(..unneeded).collect();
        spare.fewest = kept;
        // It takes a while, which no writer should wait for.
        drop(spare);
        drop(given_back);
    }

    /// Keeps a vector for later, if it has the room.
    pub(crate) fn give(&self, mut bytes: Vec<u8>) {
        if bytes.capacity() >= BUFFER_BYTES {
            bytes.clear();
            let mut spare = self.lock();
            if spare.buffers.len() < MAX_SPARE {
                spare.buffers.push(bytes);
            }
        }
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

    #[test]
    fn spare_buffers_are_used_again() {
        let spare = SpareBuffers::default();
        let mut bytes = spare.take();
        bytes.push(1);
        let place = bytes.as_ptr();
        spare.give(bytes);
        spare.give(vec![1, 2, 3]);
        let again = spare.take();
        assert!(again.is_empty() && again.as_ptr() == place);
        assert!(spare.take().capacity() >= BUFFER_BYTES);
    }

    #[test]
    fn what_is_not_needed_for_a_while_is_given_back() {
        let spare = SpareBuffers::default();
        let taken: Vec<_> = (0..MAX_IDLE + 8).map(|_| spare.take()).collect();
        taken.into_iter().for_each(|bytes| spare.give(bytes));
        let kept = |spare: &SpareBuffers| spare.lock().buffers.len();
        assert_eq!(kept(&spare), MAX_IDLE + 8);
        spare.calm_down();
        assert_eq!(kept(&spare), MAX_IDLE);
    }

    #[test]
    fn what_a_burst_needed_is_given_back_while_others_write() {
        let spare = SpareBuffers::default();
        let kept = |spare: &SpareBuffers| spare.lock().buffers.len();
        let turn = |count: usize| {
            let taken: Vec<_> = (0..count).map(|_| spare.take()).collect();
            taken.into_iter().for_each(|bytes| spare.give(bytes));
            spare.trim();
        };
        turn(MAX_SPARE);
        turn(MAX_SPARE);
        assert_eq!(kept(&spare), MAX_SPARE, "all are needed");
        for _ in 0..20 {
            turn(MAX_IDLE + 10);
        }
        assert!((MAX_IDLE + 10..MAX_IDLE + 20).contains(&kept(&spare)), "{}", kept(&spare));
    }
}
