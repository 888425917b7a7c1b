//! The log: a ring on the device that takes what a flush changes in one sequential write, so that a
//! flush is durable long before the tree is (docs/on-disk-format.md, section 4).
//!
//! An entry is appended only when the one before it is durable, by whoever leads the flush whose turn it
//! is; so the ring needs no lock beyond that, and its mutex is never waited for.

pub(crate) mod change;
pub(crate) mod entry;
mod inlined;
mod replay;

use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_device::{AlignedBuffer, BlockDevice, DeviceError};
use nasd_types::limits::BLOCK_BYTES;

pub(crate) use change::{Change, Share};
pub(crate) use inlined::{Block as InlinedBlock, Inlined};
pub(crate) use replay::{ReplayError, replay};

use crate::geometry::Geometry;
use crate::metadata::record::LogMark;

/// An entry may take one part in this many of the log.
const ENTRY_SHARE: u64 = 4;

/// Where the ring stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ring {
    /// Sequence number of the next entry.
    next: u64,
    /// Where it goes, if it fits there.
    head: u64,
    /// Bytes that may not be overwritten.
    used: u64,
}

/// The log of an open device.
#[derive(Debug)]
pub(crate) struct Log {
    key: u64,
    start: u64,
    bytes: u64,
    ring: Mutex<Ring>,
}

/// Bytes that an entry takes in the log.
fn padded(entry: usize) -> u64 {
    entry.next_multiple_of(BLOCK_BYTES) as u64
}

impl Log {
    /// A log whose entries up to `mark` are in the durable tree.
    pub(crate) fn new(key: u64, geometry: &Geometry, mark: LogMark) -> Log {
        let ring = Ring { next: mark.applied + 1, head: mark.next_offset, used: 0 };
        Log { key, start: geometry.log_offset, bytes: geometry.log_bytes, ring: Mutex::new(ring) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry for these changes, as it would be appended now.
    pub(crate) fn encode(&self, changes: &[Change]) -> Vec<u8> {
        entry::encode(self.key, self.ring().next, changes)
    }

    /// Most bytes of one entry.
    pub(crate) fn entry_bytes_max(&self) -> usize {
        (self.bytes / ENTRY_SHARE) as usize
    }

    /// Bytes that may not be overwritten.
    pub(crate) fn used(&self) -> u64 {
        self.ring().used
    }

    /// Whether it is time for a checkpoint. From half of the log on there is no room, which is in everybody's
    /// way; that many more entries may be under way.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.used() > self.bytes / 8 * 3
    }

    /// Whether an entry of at most the allowed size fits, wherever it goes.
    pub(crate) fn has_room(&self) -> bool {
        // At worst what is left in front of the end is skipped, and that is shorter than an entry.
        self.used() + 2 * (self.bytes / ENTRY_SHARE + BLOCK_BYTES as u64) <= self.bytes
    }

    /// Writes an entry that `encode` made, and makes it durable. An error leaves unknown what is.
    pub(crate) fn append(&self, device: &dyn BlockDevice, entry: &[u8]) -> Result<(), DeviceError> {
        let length = padded(entry.len());
        let before = *self.ring();
        let (offset, skipped) = if before.head + length > self.bytes {
            (0, self.bytes - before.head)
        } else {
            (before.head, 0)
        };
        debug_assert!(before.used + skipped + length <= self.bytes);
        let mut buffer = AlignedBuffer::zeroed(length as usize);
        buffer[..entry.len()].copy_from_slice(entry);
        device.write(self.start + offset, &[IoSlice::new(&buffer)])?;
        device.sync()?;
        *self.ring() = Ring {
            next: before.next + 1,
            head: offset + length,
            used: before.used + skipped + length,
        };
        Ok(())
    }

    /// Up to where the log goes.
    pub(crate) fn mark(&self) -> LogMark {
        let ring = self.ring();
        LogMark { applied: ring.next - 1, next_offset: ring.head }
    }

    /// Everything up to the mark is in the durable tree.
    pub(crate) fn checkpointed(&self) {
        self.ring().used = 0;
    }
}
