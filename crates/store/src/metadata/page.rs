//! The tree's pages as they lie in the region, for the walk that verifies all of them (`verify`): the
//! layout of redb's `docs/design.md`, file format version 3.
//!
//! Nothing of a page is believed before its checksum was compared, and every length and place is
//! bounded by the page's bytes and the region's: whatever is on the medium, nothing here panics.

use nasd_types::limits::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_128;

const PAGE: u64 = BLOCK_BYTES as u64;

/// No page is larger. The largest here are of the allocator's state, half a megabyte for each 4 GiB of the
/// region.
const PAGE_BYTES_MAX: u64 = 16 << 20;

const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];
/// What of the header is looked at: a head of 64 bytes and two slots.
pub(super) const HEADER_BYTES: usize = SLOTS_AT + 2 * SLOT_BYTES;
const SLOTS_AT: usize = 64;
const SLOT_BYTES: usize = 128;
const SLOT_SUM: usize = 112;
const PRIMARY_BIT: u8 = 1;
/// Set while the tree is open.
const RECOVERY_BIT: u8 = 2;
const TWO_PHASE_BIT: u8 = 4;
const FORMAT_VERSION: u8 = 3;
/// Pages of one of the tree's own regions: a page's number has 20 bits for its place there.
const REGION_PAGES: u32 = 1 << 20;
const NORMAL_TABLE: u8 = 3;
const DEFINITION_BYTES_MIN: usize = 64;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;

/// A page's number and the checksum that it must have, the latter as bytes: a million links take less
/// memory so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) page: u64,
    pub(super) sum: [u8; 16],
}

/// Where a page lies, in bytes from the region's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// What the header says of the last durable state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Catalogue of the drive's tables, and of the tree's own.
    pub(super) roots: [Option<Link>; 2],
}

/// Lengths of a table's keys and values where they are fixed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    key: Option<usize>,
    value: Option<usize>,
}

/// What a catalogue says about a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Definition {
    pub(super) root: Option<Link>,
    pub(super) sizes: Sizes,
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn link(bytes: &[u8], page_at: usize, sum_at: usize) -> Option<Link> {
    let sum = *bytes.get(sum_at..)?.first_chunk()?;
    Some(Link { page: le64(bytes, page_at)?, sum })
}

impl Header {
    /// Reads the header, if it says without any doubt which state is the last durable one.
    pub(super) fn parse(bytes: &[u8]) -> Option<Header> {
        let head = bytes.get(..HEADER_BYTES)?;
        let flags = head[MAGIC.len()];
        let is_plain = flags & !(PRIMARY_BIT | RECOVERY_BIT) == TWO_PHASE_BIT;
        // A page's size, and pages of the head and of the rest of one of the tree's own regions.
        let sizes = [le32(head, 12)?, le32(head, 16)?, le32(head, 20)?];
        if !head.starts_with(&MAGIC) || !is_plain || sizes != [PAGE as u32, 0, REGION_PAGES] {
            return None;
        }
        let at = SLOTS_AT + usize::from(flags & PRIMARY_BIT) * SLOT_BYTES;
        let slot = head.get(at..at + SLOT_BYTES)?;
        let sum = u128::from_le_bytes(*slot[SLOT_SUM..].first_chunk()?);
        if slot[0] != FORMAT_VERSION || xxh3_128(&slot[..SLOT_SUM]) != sum {
            return None;
        }
        let root = |flag: usize, at: usize| match slot[flag] {
            0 => Some(None),
            _ => Some(Some(link(slot, at, at + 8)?)),
        };
        Some(Header { roots: [root(1, 8)?, root(2, 40)?] })
    }

    /// Where a page is, if that is within a region of `region_bytes`.
    pub(super) fn place(&self, page: u64, region_bytes: u64) -> Option<Place> {
        let order = (page >> 59) as u32;
        let index = page & (u64::from(REGION_PAGES - 1) >> order);
        let region = (page >> 20) & u64::from(REGION_PAGES - 1);
        let bytes = PAGE.checked_shl(order).filter(|bytes| *bytes <= PAGE_BYTES_MAX)?;
        let start = PAGE + region * u64::from(REGION_PAGES) * PAGE;
        let offset = start.checked_add(index.checked_mul(bytes)?)?;
        let end = offset.checked_add(bytes)?;
        (end <= region_bytes).then_some(Place { offset, bytes })
    }
}

impl Definition {
    /// Reads a catalogue's entry, if it is of a plain table.
    pub(super) fn parse(value: &[u8]) -> Option<Definition> {
        if value.len() < DEFINITION_BYTES_MIN || value[0] != NORMAL_TABLE {
            return None;
        }
        let fixed = |at: usize| match value[at] {
            0 => Some(None),
            _ => Some(Some(le32(value, at + 1)? as usize)),
        };
        let root = match value[9] {
            0 => None,
            _ => Some(link(value, 10, 18)?),
        };
        Some(Definition { root, sizes: Sizes { key: fixed(42)?, value: fixed(47)? } })
    }
}

/// A page whose contents match the checksum of the link to it.
pub(super) struct Page<'a> {
    bytes: &'a [u8],
    sizes: Sizes,
    /// Pairs of a leaf, keys of a branch.
    count: usize,
    is_leaf: bool,
}

impl<'a> Page<'a> {
    /// Believes a page if its checksum is `sum`.
    pub(super) fn verified(bytes: &'a [u8], sizes: Sizes, sum: [u8; 16]) -> Option<Page<'a>> {
        let count = usize::from(u16::from_le_bytes(*bytes.get(2..)?.first_chunk()?));
        let is_leaf = bytes[0] == LEAF;
        if count == 0 || !(is_leaf || bytes[0] == BRANCH) {
            return None;
        }
        let page = Page { bytes, sizes, count, is_leaf };
        let end = if is_leaf { page.value_end(count - 1)? } else { page.branch_end()? };
        (xxh3_128(bytes.get(..end)?).to_le_bytes() == sum).then_some(page)
    }

    /// Whether nothing is below.
    pub(super) fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    /// Links to the pages below; a leaf has none.
    pub(super) fn children(&self) -> impl Iterator<Item = Option<Link>> {
        let count = if self.is_leaf { 0 } else { self.count + 1 };
        let pages_at = 8 + 16 * count;
        (0..count).map(move |index| link(self.bytes, pages_at + 8 * index, 8 + 16 * index))
    }

    /// Keys and values; a branch has none.
    pub(super) fn pairs(&self) -> impl Iterator<Item = Option<(&'a [u8], &'a [u8])>> {
        let count = if self.is_leaf { self.count } else { 0 };
        (0..count).map(move |index| self.pair(index))
    }

    fn pair(&self, index: usize) -> Option<(&'a [u8], &'a [u8])> {
        let (key_start, value_start) = match index.checked_sub(1) {
            Some(before) => (self.key_end(before)?, self.value_end(before)?),
            None => (self.keys_start(), self.key_end(self.count - 1)?),
        };
        let key = self.bytes.get(key_start..self.key_end(index)?)?;
        Some((key, self.bytes.get(value_start..self.value_end(index)?)?))
    }

    fn keys_start(&self) -> usize {
        let ends = usize::from(self.sizes.key.is_none()) + usize::from(self.sizes.value.is_none());
        4 + 4 * self.count * ends
    }

    fn key_end(&self, index: usize) -> Option<usize> {
        match self.sizes.key {
            Some(fixed) => fixed.checked_mul(index + 1)?.checked_add(self.keys_start()),
            None => Some(le32(self.bytes, 4 + 4 * index)? as usize),
        }
    }

    fn value_end(&self, index: usize) -> Option<usize> {
        if let Some(fixed) = self.sizes.value {
            return fixed.checked_mul(index + 1)?.checked_add(self.key_end(self.count - 1)?);
        }
        let skip = if self.sizes.key.is_none() { 4 * self.count } else { 0 };
        Some(le32(self.bytes, 4 + skip + 4 * index)? as usize)
    }

    fn branch_end(&self) -> Option<usize> {
        let links_end = 8 + 24 * (self.count + 1);
        match self.sizes.key {
            Some(fixed) => fixed.checked_mul(self.count)?.checked_add(links_end),
            None => {
                let end = le32(self.bytes, links_end + 4 * (self.count - 1))? as usize;
                (end >= links_end).then_some(end)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_page_is_parsed_without_a_panic(
            kind in 0u8..4, count in any::<u16>(), rest in prop::collection::vec(any::<u8>(), 0..4092),
            key in prop::option::of(0usize..40), value in prop::option::of(0usize..40),
        ) {
            let mut bytes = vec![kind, 0];
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&rest);
            let sizes = Sizes { key, value };
            prop_assert!(Page::verified(&bytes, sizes, [0; 16]).is_none());
            let page =
                Page { bytes: &bytes, sizes, count: usize::from(count.max(1)), is_leaf: kind == LEAF };
            page.children().for_each(drop);
            page.pairs().for_each(drop);
        }

        #[test]
        fn any_header_and_definition_is_parsed_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), HEADER_BYTES), pages in any::<[u64; 8]>(),
        ) {
            let mut bytes = bytes;
            Definition::parse(&bytes);
            bytes[..9].copy_from_slice(&MAGIC);
            bytes[9] = TWO_PHASE_BIT;
            bytes[12..16].copy_from_slice(&4096u32.to_le_bytes());
            bytes[16..20].fill(0);
            bytes[20..24].copy_from_slice(&REGION_PAGES.to_le_bytes());
            bytes[SLOTS_AT] = FORMAT_VERSION;
            let sum = xxh3_128(&bytes[SLOTS_AT..SLOTS_AT + SLOT_SUM]);
            bytes[SLOTS_AT + SLOT_SUM..SLOTS_AT + SLOT_BYTES].copy_from_slice(&sum.to_le_bytes());
            let header = Header::parse(&bytes).unwrap();
            for page in pages {
                if let Some(place) = header.place(page, 1 << 30) {
                    prop_assert!(place.offset + place.bytes <= 1 << 30);
                }
            }
        }
    }
}
