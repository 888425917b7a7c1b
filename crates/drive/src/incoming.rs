//! Data of a write on its way in: received where it will stay.
//!
//! Buffers are the scarce thing here. A write whose digest does not cover the data is verified
//! before it gets any; one whose digest does cover them can't be, so that all such writes together
//! are limited ([`Unverified`]).

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nasd_capability::Admission;
use nasd_protocol::drive::WriteArguments;
use nasd_store::IncomingFrames;
use nasd_transport::Payload;

use crate::authority::Grant;

/// A write that is being received, or has been.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) arguments: WriteArguments,
    pub(crate) buffer: Buffer,
    pub(crate) checked: Checked,
}

/// How far the checks of a write went before its data came.
#[derive(Debug)]
pub(crate) enum Checked {
    /// All of them: the digest does not cover the data.
    Granted(Grant),
    /// All that need no digest.
    Admitted(Admission, Room),
}

/// Where the data is received.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// In the places of frames where it belongs, for one contiguous range.
    InPlace(IncomingFrames),
    /// One piece after the other, in frames that only serve as memory.
    Joined(IncomingFrames),
    /// Little enough that a copy costs less than a frame.
    Small(Vec<u8>),
}

impl Buffer {
    /// The data, in order.
    pub(crate) fn slices(&self) -> Vec<&[u8]> {
        match self {
            Buffer::InPlace(frames) | Buffer::Joined(frames) => frames.slices(),
            Buffer::Small(bytes) => vec![bytes],
        }
    }
}

impl Payload for Incoming {
    fn buffers(&mut self) -> Vec<IoSliceMut<'_>> {
        match &mut self.buffer {
            Buffer::InPlace(frames) | Buffer::Joined(frames) => frames.io_slices_mut(),
            Buffer::Small(bytes) => vec![IoSliceMut::new(bytes)],
        }
    }
}

/// The limit on data that is received for whoever knows whom.
#[derive(Debug)]
pub(crate) struct Unverified {
    limit: usize,
    taken: Arc<AtomicUsize>,
}

/// A part of the limit, given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Unverified {
    pub(crate) fn new(limit: usize) -> Unverified {
        Unverified { limit, taken: Arc::default() }
    }

    /// Room for `bytes`, if there is any. A single transfer always has room.
    pub(crate) fn take(&self, bytes: usize) -> Option<Room> {
        let fits = |taken: usize| {
            let sum = taken.checked_add(bytes)?;
            (taken == 0 || sum <= self.limit).then_some(sum)
        };
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Room { taken: Arc::clone(&self.taken), bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_limited_and_comes_back() {
        let unverified = Unverified::new(100);
        let large = unverified.take(1000).expect("a single one always has room");
        assert!(unverified.take(1).is_none());
        drop(large);
        let some = [unverified.take(60), unverified.take(40)];
        assert!(some.iter().all(Option::is_some));
        assert!(unverified.take(1).is_none());
        drop(some);
        assert!(unverified.take(100).is_some());
    }
}
