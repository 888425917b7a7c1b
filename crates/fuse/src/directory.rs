//! Listings: entries of a directory, put together until the kernel's buffer is full.
#![allow(clippy::host_endian_bytes, reason = "the kernel and this process are one machine")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::answer::{Answer, Encoder};
use crate::wire::Writer;
use crate::{Entry, FileKind};

/// Bytes of an entry before its name: number u64, position u64, length of the name u32, kind u32.
const HEAD_BYTES: usize = 24;

/// Bytes of the attributes before an entry that has them.
const PLUS_BYTES: usize = 128;

fn entry_bytes(before: usize, name: &OsStr) -> usize {
    (before + HEAD_BYTES + name.len()).next_multiple_of(8)
}

/// A listing of at most so many bytes.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    limit: usize,
}

impl Listing {
    /// An empty one, for the size that a request tells.
    pub fn new(size: u32) -> Self {
        Listing { bytes: Vec::new(), limit: size as usize }
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds an entry; `next` is what the kernel gives back to go on behind it. False if it does not
    /// fit, and so is not in.
    pub fn add(&mut self, node: u64, next: u64, kind: FileKind, name: &OsStr) -> bool {
        self.add_after(&[], node, next, kind, name)
    }

    /// Adds an entry with attributes, for READDIRPLUS. An entry whose node is 0 is a name alone. The
    /// kernel counts each other one as a lookup, but for `.` and `..`.
    pub fn add_plus(&mut self, entry: &Entry, node: u64, next: u64, name: &OsStr) -> bool {
        let mut encoder = Encoder(Writer::new());
        entry.encode(&mut encoder);
        self.add_after(encoder.0.as_bytes(), node, next, entry.attributes.kind, name)
    }

    /// Bytes that an entry with attributes takes.
    pub fn plus_bytes(name: &OsStr) -> usize {
        entry_bytes(PLUS_BYTES, name)
    }

    fn add_after(
        &mut self,
        before: &[u8],
        node: u64,
        next: u64,
        kind: FileKind,
        name: &OsStr,
    ) -> bool {
        let end = self.bytes.len() + entry_bytes(before.len(), name);
        let name = name.as_bytes();
        if end > self.limit {
            return false;
        }
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(&node.to_ne_bytes());
        self.bytes.extend_from_slice(&next.to_ne_bytes());
        // Names that fit are far shorter than 4 GiB.
        self.bytes.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(&(kind.mode_bits() >> 12).to_ne_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// What the kernel is to get.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_end_where_the_room_does() {
        let mut listing = Listing::new(64);
        assert!(listing.add(5, 1, FileKind::Directory, OsStr::new("a")));
        assert_eq!(listing.as_bytes().len(), 32);
        assert!(!listing.add(6, 2, FileKind::Regular, OsStr::new("nine byte")));
        assert!(listing.add(6, 2, FileKind::Regular, OsStr::new("8 bytes.")));
        let bytes = listing.as_bytes();
        assert_eq!(bytes.len(), 64);
        assert_eq!(u32::from_ne_bytes(bytes[16..20].try_into().unwrap()), 1);
        assert_eq!(u32::from_ne_bytes(bytes[20..24].try_into().unwrap()), 4, "DT_DIR");
        assert_eq!(&bytes[56..], b"8 bytes.");
        assert!(!listing.add(7, 3, FileKind::Regular, OsStr::new("")));
    }

    #[test]
    fn entries_with_attributes_have_them_in_front() {
        let mut listing = Listing::new(200);
        let entry = Entry { node: 9, ..Entry::default() };
        assert!(listing.add_plus(&entry, 9, 1, OsStr::new("abc")));
        let bytes = listing.as_bytes();
        assert_eq!(bytes.len(), 128 + 32);
        assert_eq!(bytes.len(), Listing::plus_bytes(OsStr::new("abc")));
        assert_eq!(u64::from_ne_bytes(bytes[..8].try_into().unwrap()), 9);
        assert_eq!(u64::from_ne_bytes(bytes[128..136].try_into().unwrap()), 9);
        assert_eq!(&bytes[152..155], b"abc");
        assert!(!listing.add_plus(&entry, 9, 1, OsStr::new("abc")));
    }
}
