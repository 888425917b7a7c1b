//! Memory that files are read into and written from: aligned, used again, and bounded.

use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_device::AlignedBuffer;

use crate::server::Room;

/// Memory of one server.
pub(super) struct Buffers {
    /// Most bytes in use for what was not asked for yet.
    most_ahead: usize,
    /// Most bytes that are kept while nobody uses them.
    most_idle: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: usize,
    idle_bytes: usize,
    /// Those that were given back last come last.
    idle: Vec<AlignedBuffer>,
}

/// A part of it.
pub struct Lent {
    /// There until it is given back.
    buffer: Option<AlignedBuffer>,
    /// Bytes of it that are of use.
    pub(super) length: usize,
    buffers: Arc<Buffers>,
}

impl Buffers {
    pub(super) fn new(most_ahead: usize, most_idle: usize) -> Arc<Buffers> {
        Arc::new(Buffers { most_ahead, most_idle, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic is done with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for `length` bytes and up to the next multiple of a sector.
    pub(super) fn lend(self: &Arc<Self>, length: usize) -> Lent {
        let mut state = self.lock();
        // The one that fits best, as others may want the longer ones.
        let fitting = state.idle.iter().enumerate().filter(|(_, buffer)| buffer.len() >= length);
        let best = fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at);
        let kept = best.map(|at| state.idle.swap_remove(at));
        state.idle_bytes -= kept.as_ref().map_or(0, |buffer| buffer.len());
        let bytes = kept.as_ref().map_or(length, |buffer| buffer.len());
        state.used += bytes;
        drop(state);
        let buffer = kept.unwrap_or_else(|| AlignedBuffer::zeroed(length));
        // A new one is as long as it was rounded up to.
        self.lock().used += buffer.len() - bytes;
        Lent { buffer: Some(buffer), length, buffers: Arc::clone(self) }
    }

    /// The same, where nobody waits for it, as long as not too much is lent.
    pub(super) fn lend_ahead(self: &Arc<Self>, length: usize) -> Option<Lent> {
        let has_room = self.lock().used.saturating_add(length) <= self.most_ahead;
        has_room.then(|| self.lend(length))
    }

    fn give_back(&self, buffer: AlignedBuffer) {
        let mut state = self.lock();
        state.used -= buffer.len();
        if state.idle_bytes + buffer.len() <= self.most_idle {
            state.idle_bytes += buffer.len();
            state.idle.push(buffer);
        }
    }
}

impl Lent {
    /// All of it, up to a multiple of a sector.
    pub(super) fn whole(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or(&mut [])
    }

    /// The bytes that are of use.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_deref().map_or(&[], |bytes| &bytes[..self.length])
    }
}

impl Room for Lent {
    fn slices(&mut self) -> Vec<IoSliceMut<'_>> {
        let length = self.length;
        vec![IoSliceMut::new(&mut self.whole()[..length])]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.buffers.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_bounded_where_nobody_waits() {
        let buffers = Buffers::new(3 << 20, 2 << 20);
        let state = || {
            let state = buffers.lock();
            (state.used, state.idle_bytes)
        };
        let (one, two) = (buffers.lend(1 << 20), buffers.lend(2 << 20));
        assert!(buffers.lend_ahead(1).is_none());
        let third = buffers.lend(1 << 20);
        assert_eq!(state(), (4 << 20, 0), "who waits gets it");
        drop((one, two, third));
        assert_eq!(state(), (0, 2 << 20));
        let again = buffers.lend(100);
        assert_eq!((again.bytes().len(), state()), (100, (1 << 20, 1 << 20)));
        drop(again);
        assert_eq!(state(), (0, 2 << 20));
    }
}
