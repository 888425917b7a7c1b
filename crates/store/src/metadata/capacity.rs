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
//! Of a region that is all but full each measuring gives room for a few records only. There it may
//! take a small part of the time, unless much was removed, and in between the region is full.
//!
//! Objects are refused before the region is full, so that those that there are can still be written:
//! directories above all, which must take the names of the last objects.
//!
//! What is told to others is not from above, but what is likely: see [`Capacity::free_objects`].
//!
//! Checksums of data blocks are not counted: room for those of all data blocks is set aside.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// Objects' records that fit a page of the tree that is two thirds full, as most are.
const OBJECTS_PER_PAGE: u64 = 6;

/// No object more where less than one part in this many of what the tree may hold is left.
const RESERVE_SHARE: u64 = 32;

/// A region with less than one part in this many of what it may hold left is all but full.
const NEARLY: u64 = 128;

/// Then of the time one part in this many at most goes into measuring.
const MEASURING_SHARE: u32 = 10;

/// Measuring that takes no longer is done whenever somebody asks.
const QUICK: Duration = Duration::from_millis(5);

/// Keeps the estimate.
#[derive(Debug)]
pub(crate) struct Capacity {
    limit: u64,
    /// Room that the tree takes, in units: as it was measured, and what was added since.
    taken: AtomicU64,
    /// Whether nothing was added since the tree was measured.
    exact: AtomicBool,
    /// Pages when it was measured, and units of what was added since less what was removed.
    pages_measured: AtomicU64,
    grown: AtomicI64,
    /// When it was measured while all but full, and how long that took.
    measured_nearly_full: Mutex<Option<(Instant, Duration)>>,
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
            pages_measured: AtomicU64::new(0),
            grown: AtomicI64::new(0),
            measured_nearly_full: Mutex::new(None),
            promised: AtomicU64::new(0),
        }
    }

    /// The tree was measured to have `pages` pages, which took so long.
    pub(crate) fn measured(&self, pages: u64, took: Duration) {
        self.taken.store(pages * PAGE, Ordering::Relaxed);
        self.pages_measured.store(pages, Ordering::Relaxed);
        self.grown.store(0, Ordering::Relaxed);
        self.exact.store(true, Ordering::Relaxed);
        let nearly_full = self.limit_of_objects().saturating_sub(pages) < self.limit / NEARLY;
        let noted = nearly_full.then(|| (Instant::now(), took));
        *self.measured_nearly_full.lock().unwrap_or_else(PoisonError::into_inner) = noted;
    }

    /// The most data blocks whose checksums a region of `region_pages` pages has room for beside the
    /// tree as it is, with some to spare.
    pub(crate) fn data_blocks_max(&self, region_pages: u64) -> u64 {
        let tree = self.pages() + SPARE_PAGES;
        (region_pages / SHARE).saturating_sub(tree) * GROUPS_PER_PAGE * GROUP_BLOCKS
    }

    /// Whether measuring again may tell of room, and is worth its time.
    pub(crate) fn is_worth_measuring(&self) -> bool {
        if self.exact.load(Ordering::Relaxed) {
            return false;
        }
        let measured = *self.measured_nearly_full.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((at, took)) = measured else { return true };
        let much_was_removed = self.free_objects() >= self.limit / NEARLY * OBJECTS_PER_PAGE;
        took < QUICK || much_was_removed || at.elapsed() >= took * MEASURING_SHARE
    }

    /// The pages up to which objects are added.
    fn limit_of_objects(&self) -> u64 {
        self.limit - self.limit / RESERVE_SHARE
    }

    /// Whether there is room for another object.
    pub(crate) fn takes_objects(&self) -> bool {
        let promised = self.promised.load(Ordering::Relaxed).div_ceil(PAGE);
        self.pages() + promised < self.limit_of_objects()
    }

    /// Pages of the tree, at most.
    fn pages(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).div_ceil(PAGE)
    }

    /// A transaction was committed whose records take `added` units of room (net of those it removed,
    /// if that is positive), and which all in all made `grown` more of it than there was.
    pub(crate) fn changed(&self, added: u64, grown: i64) {
        self.taken.fetch_add(added, Ordering::Relaxed);
        self.grown.fetch_add(grown, Ordering::Relaxed);
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

    /// How many objects more there is room for, if pages are filled as they mostly are.
    pub(crate) fn free_objects(&self) -> u64 {
        let measured = self.pages_measured.load(Ordering::Relaxed);
        let pages = self.limit_of_objects().saturating_sub(measured);
        let promised = self.promised.load(Ordering::Relaxed) as i64;
        let grown = self.grown.load(Ordering::Relaxed).saturating_add(promised);
        (pages * OBJECTS_PER_PAGE).saturating_add_signed(-grown / OBJECT as i64)
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
        capacity.measured(90, QUICK);
        assert!(capacity.promise(160));
        assert!(!capacity.promise(1));
        capacity.release(160);
        capacity.changed(10 * PAGE, 0);
        assert!(!capacity.promise(1));
        capacity.measured(95, QUICK);
        assert!(capacity.promise(80));
        assert!(!capacity.promise(1));
    }
    #[test]
    fn a_region_that_is_all_but_full_is_measured_now_and_then() {
        let capacity = Capacity::new(4 * 1024, 0);
        let slow = Duration::from_secs(3600);
        capacity.measured(900, slow);
        assert!(!capacity.is_worth_measuring(), "nothing has changed");
        capacity.changed(1, 1);
        assert!(capacity.is_worth_measuring(), "there was room");
        capacity.measured(990, slow);
        capacity.changed(0, -1);
        assert!(!capacity.is_worth_measuring(), "an hour of measuring in a moment");
        capacity.changed(0, -100 * OBJECT as i64);
        assert!(capacity.is_worth_measuring(), "much was removed");
        capacity.measured(990, QUICK / 2);
        capacity.changed(0, -1);
        assert!(capacity.is_worth_measuring(), "it takes no time");
    }

    #[test]
    fn room_for_objects_is_told_as_it_is_likely() {
        let capacity = Capacity::new(400, 0);
        capacity.measured(90, QUICK);
        assert_eq!(capacity.free_objects(), 42);
        capacity.changed(30 * OBJECT, 30 * OBJECT as i64);
        assert_eq!(capacity.free_objects(), 12);
        capacity.changed(0, -20 * OBJECT as i64);
        assert_eq!(capacity.free_objects(), 32);
        capacity.changed(1000 * OBJECT, 1000 * OBJECT as i64);
        assert_eq!(capacity.free_objects(), 0);
    }
    #[test]
    fn the_last_room_is_not_for_objects() {
        let capacity = Capacity::new(4 * 1024, 0);
        capacity.measured(1024 - 32 - 1, QUICK);
        assert!(capacity.takes_objects());
        assert!(capacity.promise(PAGE));
        assert!(!capacity.takes_objects());
        assert!(capacity.promise(32 * PAGE));
        assert!(!capacity.promise(1));
    }
}
