//! How full the metadata region is: decides, before anything is promised, whether the tree can
//! take it.
//!
//! The tree is copy-on-write. A transaction that touches every page of a tree of `t` pages needs
//! `t` new ones, while the `t` old ones are still held; and `t` more may be waiting to be released,
//! if somebody was reading the state before when the last transaction ended. Nobody reads an older
//! one: a transaction begins only when such readers have ended. So a tree of at most a quarter of
//! the region always has room for any transaction, and the limit on what may be promised is that
//! quarter.
//!
//! The tree's size is measured by walking it, which is not for every write. In between it is
//! estimated from above: the tree keeps its pages at least a third full. When the estimate reaches
//! the limit, the caller measures again; only if the tree really is that large is the region full.
//!
//! Checksums of data blocks are not counted: room for those of all data blocks is set aside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::record::GROUP_BLOCKS;

/// The tree may fill one part in this many of the region.
const SHARE: u64 = 4;

/// Units of room that a page has.
const PAGE: u64 = 16;

/// Room of most records (52 bytes of key and extent), when pages are a third full.
pub(super) const RECORD: u64 = 1;

/// Room of an object's record: three or more are in a page that is a third full.
pub(super) const OBJECT: u64 = 6;

/// Room of small contents: as though each had a page.
pub(super) const SMALL: u64 = PAGE;

/// Records of checksums that fit a page when pages are split in the worst way.
const GROUPS_PER_PAGE: u64 = 3;

/// Pages that a drive that grows leaves for more records.
const SPARE_PAGES: u64 = 64;

/// Keeps the estimate.
#[derive(Debug)]
pub(crate) struct Capacity {
    limit: u64,
    /// Room that the tree takes, in units: as it was measured, and what was added since.
    taken: AtomicU64,
    /// Whether nothing was added since the tree was measured.
    exact: AtomicBool,
    /// Records promised and not yet added.
    promised: AtomicU64,
}

impl Capacity {
    /// For a region of `region_pages` pages, on a device with `data_blocks` data blocks.
    pub(crate) fn new(region_pages: u64, data_blocks: u64) -> Capacity {
        let groups = data_blocks.div_ceil(GROUP_BLOCKS);
        Capacity {
            limit: (region_pages / SHARE).saturating_sub(groups.div_ceil(GROUPS_PER_PAGE)),
            taken: AtomicU64::new(0),
            exact: AtomicBool::new(false),
            promised: AtomicU64::new(0),
        }
    }

    /// The tree was measured to have `pages` pages.
    pub(crate) fn measured(&self, pages: u64) {
        self.taken.store(pages * PAGE, Ordering::Relaxed);
        self.exact.store(true, Ordering::Relaxed);
    }

    /// The most data blocks whose checksums a region of `region_pages` pages has room for beside the
    /// tree as it is, with some to spare.
    pub(crate) fn data_blocks_max(&self, region_pages: u64) -> u64 {
        let tree = self.pages() + SPARE_PAGES;
        (region_pages / SHARE).saturating_sub(tree) * GROUPS_PER_PAGE * GROUP_BLOCKS
    }

    /// Whether measuring again would tell nothing new.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed)
    }

    /// Pages of the tree, at most.
    fn pages(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).div_ceil(PAGE)
    }

    /// A transaction was committed whose records take so many units of room (net of those it removed,
    /// if that is positive).
    pub(crate) fn added(&self, units: u64) {
        self.taken.fetch_add(units, Ordering::Relaxed);
        self.exact.store(false, Ordering::Relaxed);
    }

    /// Promises room for `records` more records of one unit each; whether there is.
    pub(crate) fn promise(&self, records: u64) -> bool {
        let promised = self.promised.fetch_add(records, Ordering::Relaxed) + records;
        let pages = self.pages();
        if pages + promised.div_ceil(PAGE) <= self.limit {
            return true;
        }
        self.release(records);
        false
    }

    /// Pages that may still be filled.
    pub(crate) fn free_pages(&self) -> u64 {
        let promised = self.promised.load(Ordering::Relaxed).div_ceil(PAGE);
        self.limit.saturating_sub(self.pages() + promised)
    }

    /// Records promised and not yet added.
    #[cfg(test)]
    pub(crate) fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// Takes back what was promised, because it was added or will not be.
    pub(crate) fn release(&self, records: u64) {
        let before = self.promised.fetch_sub(records, Ordering::Relaxed);
        debug_assert!(before >= records, "released {records} of {before} promised records");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_end_at_the_limit_and_come_back() {
        let capacity = Capacity::new(400, 0);
        capacity.measured(90);
        assert!(capacity.promise(160));
        assert!(!capacity.promise(1));
        capacity.release(160);
        capacity.added(10 * PAGE);
        assert!(!capacity.promise(1));
        capacity.measured(95);
        assert!(capacity.promise(80));
        assert!(!capacity.promise(1));
    }
}
