//! Buffers for requests: the arguments of a request lie right in front of a page boundary, so that
//! the data of a WRITE begin on one, and can be kept by whoever needs them without a copy.

use std::ops::{Deref, DerefMut, Range};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::request::{HEADER_BYTES, WRITE_BYTES};

/// Bytes of a page, or of several.
const PAGE_BYTES: usize = 4096;

/// Where the arguments of a request begin in its buffer.
const START: usize = PAGE_BYTES - HEADER_BYTES - WRITE_BYTES;

/// Buffers that are kept while nobody uses them.
const MAX_SPARE: usize = 64;

/// Memory of its own for one request.
struct Buffer {
    memory: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory belongs to the buffer alone.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read it.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Nothing of it takes real memory before it is used.
    fn new(length: usize) -> std::io::Result<Self> {
        let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping anywhere touches nothing that is there.
        let memory = unsafe { mmap_anonymous(ptr::null_mut(), length, flags.0, flags.1) }?;
        let memory = NonNull::new(memory.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Buffer { memory, length })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is that long, zeroed by the kernel, and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nobody refers to it any more.
        if let Err(error) = unsafe { munmap(self.memory.as_ptr().cast(), self.length) } {
            tracing::error!(%error, "unmapping a buffer");
        }
    }
}

/// Buffers of one size.
#[derive(Debug)]
pub(crate) struct Buffers {
    length: usize,
    spare: Mutex<Vec<Buffer>>,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("length", &self.length).finish()
    }
}

impl Buffers {
    /// For writes of up to `max_write` bytes.
    pub(crate) fn new(max_write: u32) -> Arc<Self> {
        let length = PAGE_BYTES + (max_write as usize).next_multiple_of(PAGE_BYTES);
        Arc::new(Buffers { length, spare: Mutex::default() })
    }

    /// A buffer.
    pub(crate) fn take(self: &Arc<Self>) -> std::io::Result<RequestBuffer> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let buffer = spare.map_or_else(|| Buffer::new(self.length), Ok)?;
        Ok(RequestBuffer { buffer: Some(buffer), pool: Arc::clone(self) })
    }

    fn give(&self, buffer: Buffer) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE {
            spare.push(buffer);
        }
    }
}

/// A buffer in use; goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct RequestBuffer {
    /// There until it is dropped.
    buffer: Option<Buffer>,
    pool: Arc<Buffers>,
}

impl RequestBuffer {
    /// Where a request is received.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().map_or(&mut [], |buffer| &mut buffer[START..])
    }

    /// A request of so many bytes.
    pub(crate) fn message(&self, length: usize) -> &[u8] {
        self.all().get(START..START + length).unwrap_or_default()
    }

    fn all(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl Drop for RequestBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give(buffer);
        }
    }
}

/// The data of a WRITE: borrowed for the time of the call, or taken by `into_owned` without a copy.
#[derive(Debug)]
pub struct Payload<'a> {
    slot: &'a mut Option<RequestBuffer>,
    range: Range<usize>,
}

impl<'a> Payload<'a> {
    /// The data of the WRITE in this buffer.
    pub(crate) fn new(slot: &'a mut Option<RequestBuffer>, size: u32) -> Self {
        Payload { slot, range: PAGE_BYTES..PAGE_BYTES + size as usize }
    }

    /// The data, to be kept for as long as need be.
    pub fn into_owned(self) -> OwnedPayload {
        OwnedPayload { buffer: self.slot.take(), range: self.range }
    }
}

impl Deref for Payload<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = self.slot.as_ref().map_or(&[][..], RequestBuffer::all);
        all.get(self.range.clone()).unwrap_or_default()
    }
}

/// The data of a WRITE, in the buffer that they were received in. They begin on a page boundary.
#[derive(Debug)]
pub struct OwnedPayload {
    buffer: Option<RequestBuffer>,
    range: Range<usize>,
}

impl Deref for OwnedPayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = self.buffer.as_ref().map_or(&[][..], RequestBuffer::all);
        all.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for OwnedPayload {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_begin_on_a_page_and_are_kept_without_a_copy() {
        let pool = Buffers::new(1 << 20);
        let mut slot = Some(pool.take().unwrap());
        let room = slot.as_mut().unwrap().room();
        assert_eq!(room.len(), HEADER_BYTES + WRITE_BYTES + (1 << 20));
        room[HEADER_BYTES + WRITE_BYTES..][..5].copy_from_slice(b"hello");
        assert_eq!(slot.as_ref().unwrap().message(85)[80..], *b"hello");
        let payload = Payload::new(&mut slot, 5);
        assert_eq!(&*payload, b"hello");
        let place = payload.as_ptr();
        assert!((place as usize).is_multiple_of(4096));
        let owned = payload.into_owned();
        assert!(slot.is_none());
        assert_eq!((&*owned, owned.as_ptr()), (&b"hello"[..], place));
        drop(owned);
        assert_eq!(pool.take().unwrap().message(80).as_ptr().wrapping_add(80), place, "used again");
    }
}
