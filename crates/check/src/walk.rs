//! The metadata tree's pages, read without the tree's library: every checksum is verified before
//! anything of a page is believed, so that no page, however rotten, can do more than be reported;
//! and what other pages hold can still be had.
//!
//! The layout is that of redb's `docs/design.md`, file format version 3.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_128;

use crate::bytes::{BLOCK, array, le32, le64};
use crate::pages::Pages;

const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];
const HEADER_BYTES: usize = 320;
const SLOT_BYTES: usize = 128;
const SLOTS_AT: usize = 64;
const SLOT_SUM: usize = 112;
const FORMAT_VERSION: u8 = 3;
/// A page number has 20 bits for the place within an internal region.
const REGION_PAGES_MAX: u32 = 1 << 20;
const DEPTH_MAX: u32 = 64;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;

/// A page and the checksum that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    page: u64,
    sum: u128,
}

/// What the catalogue of tables says about one.
#[derive(Clone, Copy, Debug)]
struct Definition {
    root: Option<Link>,
    fixed_key: Option<usize>,
    fixed_value: Option<usize>,
    is_plain: bool,
}

/// What a walk of all pages found.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Every damaged page, or reason why nothing can be read.
    pub(crate) problems: Vec<String>,
    /// How many there were, kept or not.
    pub(crate) problem_count: u64,
    /// Tables that lost rows.
    pub(crate) incomplete: BTreeSet<String>,
    /// Whether a table may be missing as a whole.
    pub(crate) catalogue_damaged: bool,
    /// Whether there was a root to start from.
    pub(crate) readable: bool,
    /// Pages that were read.
    pub(crate) pages: u64,
    /// End of the last page of the table `ballast`, in bytes from the region's start.
    pub(crate) ballast_end: u64,
}

impl Walked {
    fn problem(&mut self, problem: String) {
        self.problem_count += 1;
        if self.problems.len() < 1000 {
            self.problems.push(problem);
        }
    }
}

/// Called with key and value of each row of one table, and the end of the page it is in.
type Row<'a> = &'a mut dyn FnMut(&[u8], &[u8], u64);

/// Called with table, key and value of each row that can be read.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&str, &[u8], &[u8]);

/// Which commit of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// The last one; the one before it if its roots are damaged.
    Last,
    /// The one before it. Pages of it may have been written over.
    Previous,
}

/// Walks every page of the tree.
pub(crate) fn walk(
    pages: &Pages,
    commit: Commit,
    visit: Visit<'_>,
    progress: &mut dyn FnMut(u64),
) -> Walked {
    let mut walker = Walker {
        pages,
        bytes: pages.bytes,
        header_pages: 0,
        region_pages: 0,
        out: Walked::default(),
        progress,
    };
    if let Some([user, system]) = walker.roots(commit) {
        walker.out.readable = true;
        walker.tables(user, true, visit);
        walker.tables(system, false, visit);
    }
    walker.out
}

struct Walker<'a> {
    pages: &'a Pages,
    bytes: u64,
    header_pages: u32,
    region_pages: u32,
    out: Walked,
    progress: &'a mut dyn FnMut(u64),
}

impl Walker<'_> {
    /// The roots of the users' and of the system's catalogue.
    fn roots(&mut self, commit: Commit) -> Option<[Option<Link>; 2]> {
        let header = match self.pages.read_vec(0, HEADER_BYTES) {
            Ok(header) => header,
            Err(error) => {
                self.out.problem(format!("the tree's header: {error}"));
                return None;
            }
        };
        let (header_pages, region_pages) = (le32(&header, 16), le32(&header, 20));
        let sizes_fit =
            header_pages <= REGION_PAGES_MAX && (1..=REGION_PAGES_MAX).contains(&region_pages);
        if header[..9] == MAGIC && u64::from(le32(&header, 12)) == BLOCK && sizes_fit {
            (self.header_pages, self.region_pages) = (header_pages, region_pages);
        } else {
            // A drive's tree never has others; what links lead to has checksums in any case.
            (self.header_pages, self.region_pages) = (0, REGION_PAGES_MAX);
            self.out.problem("the tree's header is damaged".to_owned());
        }
        let primary = usize::from(header[9] & 1);
        let slots = [primary, 1 - primary].into_iter();
        for slot in slots.skip(usize::from(commit == Commit::Previous)) {
            let at = SLOTS_AT + slot * SLOT_BYTES;
            let roots = parse_slot(&header[at..at + SLOT_BYTES]);
            if roots.is_some() {
                return roots;
            }
            let which = if slot == primary { "current" } else { "previous" };
            self.out.problem(format!("the {which} commit slot of the tree's header is damaged"));
        }
        None
    }

    /// Where a page is, from the region's start, if it is within the region.
    fn place(&self, page: u64) -> Option<(u64, usize)> {
        let order = (page >> 59) as u32;
        let index = page & (0x000F_FFFF >> order);
        let region = (page >> 20) & 0x000F_FFFF;
        let length = BLOCK.checked_shl(order).filter(|length| *length <= self.bytes)?;
        let region_bytes = (u64::from(self.header_pages) + u64::from(self.region_pages)) * BLOCK;
        let within = u64::from(self.header_pages) * BLOCK + index.checked_mul(length)?;
        let offset = BLOCK.checked_add(region.checked_mul(region_bytes)?)?.checked_add(within)?;
        let end = offset.checked_add(length)?;
        (end <= self.bytes).then_some((offset, usize::try_from(length).ok()?))
    }

    /// A page that matches its checksum.
    fn page(&mut self, link: Link, sizes: Sizes) -> Option<Page> {
        let Some((offset, length)) = self.place(link.page) else {
            self.out.problem(format!("page {:#x} is outside of the region", link.page));
            return None;
        };
        self.out.pages += 1;
        if self.out.pages.is_multiple_of(1024) {
            (self.progress)(self.out.pages);
        }
        let bytes = match self.pages.read_vec(offset, length) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.out.problem(format!("the page at byte {offset} of the region: {error}"));
                return None;
            }
        };
        let page = Page::parse(bytes, sizes, offset);
        let right = page.filter(|page| xxh3_128(&page.bytes[..page.end]) == link.sum);
        if right.is_none() {
            self.out.problem(format!(
                "the page at byte {offset} of the region does not match its checksum"
            ));
        }
        right
    }

    fn tables(&mut self, catalogue: Option<Link>, is_user: bool, visit: Visit<'_>) {
        let mut tables: BTreeMap<String, Definition> = BTreeMap::new();
        let mut odd = 0u64;
        let sizes = Sizes { key: None, value: None };
        let mut collect = |name: &[u8], value: &[u8], _: u64| match (
            std::str::from_utf8(name),
            parse_definition(value),
        ) {
            (Ok(name), Some(definition)) => {
                tables.insert(name.to_owned(), definition);
            }
            _ => odd += 1,
        };
        self.out.catalogue_damaged |= is_user && catalogue.is_none();
        if let Some(root) = catalogue {
            self.rows(root, sizes, 0, &mut collect);
        }
        if odd > 0 {
            self.out.problem(format!("{odd} tables have no valid definition"));
        }
        self.out.catalogue_damaged |= is_user && self.out.problem_count > 0;
        for (name, definition) in tables {
            let problems = self.out.problem_count;
            let (Some(root), true) = (definition.root, definition.is_plain) else { continue };
            let sizes = Sizes { key: definition.fixed_key, value: definition.fixed_value };
            let mut last = 0;
            self.rows(root, sizes, 0, &mut |key, value, end| {
                last = last.max(end);
                if is_user {
                    visit(&name, key, value);
                }
            });
            if is_user && self.out.problem_count > problems {
                self.out.incomplete.insert(name.clone());
            }
            if is_user && name == "ballast" {
                self.out.ballast_end = last;
            }
        }
    }

    /// Calls `row` with each key and value below a page, and the end of the page it is in.
    fn rows(&mut self, link: Link, sizes: Sizes, depth: u32, row: Row<'_>) {
        // No tree has more pages than the region, or is that deep: its links would go in circles.
        if depth > DEPTH_MAX || self.out.pages > self.bytes / BLOCK {
            self.out.problem("the tree's pages go in circles".to_owned());
            return;
        }
        let Some(page) = self.page(link, sizes) else { return };
        if page.is_leaf() {
            let end = page.offset + page.bytes.len() as u64;
            let mut whole = true;
            for index in 0..page.count {
                match page.pair(index, sizes) {
                    Some((key, value)) => row(key, value, end),
                    None => whole = false,
                }
            }
            if !whole {
                self.out.problem(format!("the page at byte {} has no valid contents", page.offset));
            }
            return;
        }
        for child in 0..=page.count {
            let link = page.child(child);
            self.rows(link, sizes, depth + 1, row);
        }
    }
}

/// Lengths of keys and values where they are fixed.
#[derive(Clone, Copy)]
struct Sizes {
    key: Option<usize>,
    value: Option<usize>,
}

/// A leaf or branch page; `end` is within `bytes`.
struct Page {
    bytes: Vec<u8>,
    /// From the region's start.
    offset: u64,
    /// Pairs of a leaf, keys of a branch.
    count: usize,
    /// End of what the checksum covers.
    end: usize,
}

impl Page {
    fn parse(bytes: Vec<u8>, sizes: Sizes, offset: u64) -> Option<Page> {
        let count = usize::from(u16::from_le_bytes(array(&bytes, 2)));
        let last = count.checked_sub(1)?;
        let end = match bytes.first() {
            Some(&LEAF) => leaf_value_end(&bytes, count, sizes, last)?,
            Some(&BRANCH) => branch_end(&bytes, count, sizes, last)?,
            _ => return None,
        };
        (end <= bytes.len()).then_some(Page { bytes, offset, count, end })
    }

    fn is_leaf(&self) -> bool {
        self.bytes.first() == Some(&LEAF)
    }

    fn pair(&self, index: usize, sizes: Sizes) -> Option<(&[u8], &[u8])> {
        let (bytes, count) = (&self.bytes, self.count);
        let key_start = match index.checked_sub(1) {
            Some(before) => leaf_key_end(bytes, count, sizes, before)?,
            None => leaf_keys_start(count, sizes),
        };
        let value_start = match index.checked_sub(1) {
            Some(before) => leaf_value_end(bytes, count, sizes, before)?,
            None => leaf_key_end(bytes, count, sizes, count - 1)?,
        };
        let key = bytes.get(key_start..leaf_key_end(bytes, count, sizes, index)?)?;
        let value = bytes.get(value_start..leaf_value_end(bytes, count, sizes, index)?)?;
        Some((key, value))
    }

    fn child(&self, index: usize) -> Link {
        let pages_at = 8 + 16 * (self.count + 1);
        Link {
            page: le64(&self.bytes, pages_at + 8 * index),
            sum: u128::from_le_bytes(array(&self.bytes, 8 + 16 * index)),
        }
    }
}

fn leaf_keys_start(count: usize, sizes: Sizes) -> usize {
    let ends = usize::from(sizes.key.is_none()) + usize::from(sizes.value.is_none());
    4 + 4 * count * ends
}

fn number_at(bytes: &[u8], at: usize) -> Option<usize> {
    (at.checked_add(4)? <= bytes.len()).then(|| le32(bytes, at) as usize)
}

fn leaf_key_end(bytes: &[u8], count: usize, sizes: Sizes, index: usize) -> Option<usize> {
    match sizes.key {
        Some(fixed) => fixed.checked_mul(index + 1)?.checked_add(leaf_keys_start(count, sizes)),
        None => number_at(bytes, 4 + 4 * index),
    }
}

fn leaf_value_end(bytes: &[u8], count: usize, sizes: Sizes, index: usize) -> Option<usize> {
    match sizes.value {
        Some(fixed) => {
            let keys_end = leaf_key_end(bytes, count, sizes, count.checked_sub(1)?)?;
            fixed.checked_mul(index + 1)?.checked_add(keys_end)
        }
        None => {
            let skip = if sizes.key.is_none() { 4 * count } else { 0 };
            number_at(bytes, 4 + skip + 4 * index)
        }
    }
}

fn branch_end(bytes: &[u8], count: usize, sizes: Sizes, last: usize) -> Option<usize> {
    let links_end = 8 + 24 * (count + 1);
    match sizes.key {
        Some(fixed) => fixed.checked_mul(last + 1)?.checked_add(links_end),
        None => number_at(bytes, links_end + 4 * last).filter(|end| *end >= links_end),
    }
}

fn parse_slot(slot: &[u8]) -> Option<[Option<Link>; 2]> {
    let sum = u128::from_le_bytes(array(slot, SLOT_SUM));
    if slot[0] != FORMAT_VERSION || xxh3_128(&slot[..SLOT_SUM]) != sum {
        return None;
    }
    let link =
        |at: usize| Link { page: le64(slot, at), sum: u128::from_le_bytes(array(slot, at + 8)) };
    Some([(slot[1] != 0).then(|| link(8)), (slot[2] != 0).then(|| link(40))])
}

fn parse_definition(value: &[u8]) -> Option<Definition> {
    if value.len() < 64 {
        return None;
    }
    let fixed = |at: usize| (value[at] != 0).then(|| le32(value, at + 1) as usize);
    let root = Link { page: le64(value, 10), sum: u128::from_le_bytes(array(value, 18)) };
    Some(Definition {
        root: (value[9] != 0).then_some(root),
        fixed_key: fixed(42),
        fixed_value: fixed(47),
        is_plain: value[0] == 3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_device::{BlockDevice, MemoryDevice};
    use proptest::prelude::*;
    use std::sync::Arc;

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
            if let Some(page) = Page::parse(bytes, sizes, 0) {
                for index in 0..page.count {
                    if page.is_leaf() {
                        page.pair(index, sizes);
                    } else {
                        page.child(index);
                    }
                }
            }
        }

        #[test]
        fn any_header_is_walked_without_a_panic(seed in prop::collection::vec(any::<u8>(), 320)) {
            let mut image = vec![0; 1 << 18];
            image[..320].copy_from_slice(&seed);
            image[..9].copy_from_slice(&MAGIC);
            image[12..16].copy_from_slice(&4096u32.to_le_bytes());
            image[16..20].fill(0);
            image[20..24].copy_from_slice(&(1u32 << 20).to_le_bytes());
            for slot in [64, 192] {
                image[slot] = 3;
                let sum = xxh3_128(&image[slot..slot + SLOT_SUM]);
                image[slot + SLOT_SUM..slot + SLOT_BYTES].copy_from_slice(&sum.to_le_bytes());
            }
            let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_image(&image).unwrap());
            walk(&Pages::of(&device, 0, 1 << 18), Commit::Last, &mut |_, _, _| {}, &mut |_| {});
        }
    }
}
