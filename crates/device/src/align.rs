//! A buffer whose address and length suit direct I/O, for what does not live in frames.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::SECTOR_BYTES;

/// Heap memory aligned to [`SECTOR_BYTES`], zero at first.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the buffer owns its memory alone, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `length` zero bytes, rounded up to a whole number of sectors (at least one).
    pub fn zeroed(length: usize) -> AlignedBuffer {
        let length = length.max(1).next_multiple_of(SECTOR_BYTES);
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuffer { start, length }
    }

    fn layout(length: usize) -> Layout {
        // SECTOR_BYTES is a power of two, and a length that overflows could not be allocated.
        Layout::from_size_align(length, SECTOR_BYTES)
            .expect("invariant: the length of a buffer fits an allocation")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialized bytes that this buffer owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `length` initialized bytes that this buffer owns, borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zero_and_rounded_up() {
        for (asked, got) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            let buffer = AlignedBuffer::zeroed(asked);
            assert_eq!(buffer.len(), got);
            assert_eq!(buffer.as_ptr().addr() % SECTOR_BYTES, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }
}
