//! The bytes of the protocol: numbers in the machine's own order, names that end with a NUL.
#![allow(clippy::host_endian_bytes, reason = "the kernel and this process are one machine")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Takes a message apart. Whatever is missing is `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Leaves out bytes that mean nothing.
    pub(crate) fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    /// A name, up to its NUL.
    pub(crate) fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.rest.iter().position(|byte| *byte == 0)?;
        let name = OsStr::from_bytes(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Some(name)
    }

    /// Everything that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
}

/// Longest message that is put together here, in bytes: a header and the largest fixed answer.
pub(crate) const MAX_FIXED_BYTES: usize = 320;

/// Puts a short message together, without memory from the heap. What does not fit is left out,
/// which `is_whole` tells; no answer of this crate is so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    bytes: [u8; MAX_FIXED_BYTES],
    length: usize,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Writer { bytes: [0; MAX_FIXED_BYTES], length: 0 }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        debug_assert!(end <= MAX_FIXED_BYTES, "a fixed answer that is too long");
        if let Some(place) = self.bytes.get_mut(self.length..end) {
            place.copy_from_slice(bytes);
            self.length = end;
        }
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.put(&value.to_ne_bytes());
    }

    pub(crate) fn zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.put(&[0]);
        }
    }

    /// Replaces the word at the start: the message's length is known in the end.
    pub(crate) fn set_first_word(&mut self, value: u32) {
        self.bytes[..4].copy_from_slice(&value.to_ne_bytes());
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
