//! Who may still write how much: blocks in use, blocks promised, quotas.
//!
//! Space is promised when data enters the cache, so that writing it back never fails for want of
//! it. Two things can run out, and both are counted in blocks of 4 KiB:
//!
//! * *For good*: each object is charged for what it will hold when everything is written back, or
//!   for what it has reserved, whichever is more. The charges of a partition stay within its quota,
//!   and all charges together leave [`Space::reserve`] blocks of the drive uncharged.
//! * *For the moment*: live blocks are never overwritten, so a dirty block needs a free one although
//!   it replaces another, which is freed only by the commit. Dirty blocks never outnumber free ones.
//!
//! Partitions that hold the same blocks are charged for them each, and the drive counts them once. So who overwrites such a block is not
//! charged for more, and the drive has one block more in use; it may run out of the second before the first.
//!
//! When the second runs out, writing back helps: it turns dirty blocks into clean ones and frees
//! what they replaced. Then at least the reserve is free, so overwriting goes on in steps of that
//! size however full the drive is.

use std::collections::BTreeMap;

use nasd_types::PartitionId;
use nasd_types::limits::{BLOCK_BYTES, MAX_TRANSFER_BYTES};

use crate::NoSpace;
use crate::free_map::{FreeMap, Run};
use crate::metadata::record::PartitionRecord;
use crate::partitions::quota_blocks;

/// Blocks that no charge may take: two of the largest transfers.
const RESERVE_BLOCKS: u64 = 2 * (MAX_TRANSFER_BYTES / BLOCK_BYTES + 1) as u64;

/// On a small drive the reserve is one part in this many.
const RESERVE_SHARE: u64 = 16;

/// The accounts. Kept in step with the objects by whoever holds their locks.
#[derive(Debug)]
pub(crate) struct Space {
    free: FreeMap,
    data_blocks: u64,
    reserve: u64,
    /// Dirty blocks that will each take a free one.
    dirty: u64,
    /// All charges.
    charged: u64,
    /// Blocks that several partitions are charged for, once for each but one.
    common: u64,
    partitions: BTreeMap<PartitionId, Account>,
}

/// One partition's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) quota_blocks: u64,
    pub(crate) charged: u64,
    pub(crate) objects: u64,
}

impl Account {
    /// What a partition's record says.
    pub(crate) fn of(record: &PartitionRecord) -> Account {
        Account {
            quota_blocks: quota_blocks(record.quota_bytes),
            charged: record.charged_blocks,
            objects: record.objects,
        }
    }
}

/// What a change takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The object's charge before.
    pub(crate) charge_before: u64,
    /// The object's charge afterwards.
    pub(crate) charge_after: u64,
    /// Blocks that become dirty.
    pub(crate) dirty: u64,
}

impl Space {
    /// The accounts of a drive on which `free` is free.
    pub(crate) fn new(free: FreeMap, data_blocks: u64) -> Space {
        Space {
            free,
            data_blocks,
            reserve: RESERVE_BLOCKS.min(data_blocks / RESERVE_SHARE),
            dirty: 0,
            charged: 0,
            common: 0,
            partitions: BTreeMap::new(),
        }
    }

    /// Adds a partition with what its objects are charged, found when the store opens.
    pub(crate) fn add_partition(&mut self, partition: PartitionId, account: Account) {
        self.charged += account.charged;
        self.partitions.insert(partition, account);
    }

    /// Takes out a partition whose objects are all removed.
    pub(crate) fn remove_partition(&mut self, partition: PartitionId) {
        if let Some(account) = self.partitions.remove(&partition) {
            self.charged -= account.charged;
        }
    }

    /// Sets the most blocks that a partition may be charged for; refused below what it is.
    pub(crate) fn set_quota(&mut self, partition: PartitionId, blocks: u64) -> Result<(), NoSpace> {
        match self.partitions.get_mut(&partition) {
            Some(account) if account.charged > blocks => Err(NoSpace::Quota(partition)),
            Some(account) => {
                account.quota_blocks = blocks;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Charges a partition for what its families share.
    pub(crate) fn charge_shared(&mut self, partition: PartitionId, change: i64) {
        if let Some(account) = self.partitions.get_mut(&partition) {
            account.charged = account.charged.saturating_add_signed(change);
            self.charged = self.charged.saturating_add_signed(change);
        }
    }

    /// So many blocks more, and less, are charged to one partition more than before.
    pub(crate) fn count_common(&mut self, joined: u64, parted: u64) {
        debug_assert!(self.common + joined >= parted);
        self.common = (self.common + joined).saturating_sub(parted);
    }

    /// A partition's account.
    pub(crate) fn account(&self, partition: PartitionId) -> Account {
        self.partitions.get(&partition).copied().unwrap_or_default()
    }

    /// Blocks that objects can take in all.
    pub(crate) fn capacity(&self) -> u64 {
        self.data_blocks - self.reserve
    }

    /// Blocks in use on the device.
    pub(crate) fn used(&self) -> u64 {
        self.data_blocks - self.free.free_blocks()
    }

    /// Blocks that several partitions are charged for, once for each but one.
    pub(crate) fn common(&self) -> u64 {
        self.common
    }

    /// Blocks that may still be charged.
    pub(crate) fn chargeable(&self) -> u64 {
        self.capacity().saturating_sub(self.charged.saturating_sub(self.common))
    }

    /// Promises what a change takes, or says what there is not enough of; nothing is changed then.
    pub(crate) fn promise(
        &mut self,
        partition: PartitionId,
        demand: Demand,
    ) -> Result<(), NoSpace> {
        let more = demand.charge_after.saturating_sub(demand.charge_before);
        if more > 0 {
            let account = self.account(partition);
            if account.charged.saturating_add(more) > account.quota_blocks {
                return Err(NoSpace::Quota(partition));
            }
            if more > self.chargeable() {
                return Err(NoSpace::Data);
            }
        }
        // The reserve is no use to a change that only frees, so that one is not refused.
        if demand.dirty > 0 && self.dirty + demand.dirty > self.free.free_blocks() {
            return Err(NoSpace::Data);
        }
        self.dirty += demand.dirty;
        self.charge(partition, demand.charge_before, demand.charge_after);
        Ok(())
    }

    /// Changes an object's charge from one number to another.
    pub(crate) fn charge(&mut self, partition: PartitionId, before: u64, after: u64) {
        // What belongs to a partition that is gone counts no more.
        if let Some(account) = self.partitions.get_mut(&partition) {
            debug_assert!(account.charged >= before && self.charged >= before);
            account.charged = account.charged - before + after;
            self.charged = self.charged - before + after;
        }
    }

    /// Counts objects created and removed.
    pub(crate) fn count_objects(&mut self, partition: PartitionId, change: i64) {
        if let Some(account) = self.partitions.get_mut(&partition) {
            account.objects = account.objects.saturating_add_signed(change);
        }
    }

    /// Dirty blocks that are dirty no more, because they were dropped.
    pub(crate) fn forget_dirty(&mut self, blocks: u64) {
        debug_assert!(self.dirty >= blocks);
        self.dirty -= blocks;
    }

    /// Takes free blocks for dirty ones. That there are enough was promised.
    pub(crate) fn allocate(&mut self, blocks: u64, hint: Option<u64>) -> Option<Vec<Run>> {
        debug_assert!(self.dirty >= blocks);
        let runs = self.free.allocate(blocks, hint)?;
        self.dirty -= blocks;
        Some(runs)
    }

    /// Takes free blocks for dirty ones of an object in a list, near block `near`, where the list is.
    pub(crate) fn allocate_clustered(
        &mut self,
        blocks: u64,
        near: Option<u64>,
    ) -> Option<Vec<Run>> {
        debug_assert!(self.dirty >= blocks);
        let runs = self.free.allocate_clustered(blocks, near)?;
        self.dirty -= blocks;
        Some(runs)
    }

    /// Takes free blocks for `blocks` that are moved, in one run if they are to stay whole.
    pub(crate) fn allocate_for_move(&mut self, blocks: u64, whole: bool) -> Option<Vec<Run>> {
        if whole {
            return self.free.allocate_whole(blocks).map(|run| vec![run]);
        }
        self.free.allocate(blocks, None)
    }

    /// Nothing from block `end` on is given out any more.
    pub(crate) fn limit(&mut self, end: u64) {
        self.free.limit(end);
    }

    /// Blocks that all objects are charged for.
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// The fewest data blocks that a drive needs for charges of `charged` blocks.
    pub(crate) fn data_blocks_for(charged: u64) -> u64 {
        // Above what the reserve's share leaves of the drive, or above the whole reserve.
        let by_share = charged + charged.saturating_sub(1) / (RESERVE_SHARE - 1);
        by_share.min(charged + RESERVE_BLOCKS)
    }

    /// Gives blocks back that were allocated and not used, while `dirty` blocks are dirty again.
    pub(crate) fn take_back(&mut self, runs: &[Run], dirty: u64) {
        self.free(runs);
        self.dirty += dirty;
    }

    /// Frees blocks that no extent names any more.
    pub(crate) fn free(&mut self, runs: &[Run]) {
        for &run in runs {
            let was_used = self.free.release(run);
            debug_assert!(was_used, "{run:?} was free already");
            if !was_used {
                tracing::error!(?run, "blocks freed twice; they stay out of use");
            }
        }
    }

    /// Dirty blocks that were promised a free one.
    #[cfg(test)]
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(1);

    fn space(data_blocks: u64, quota_blocks: u64) -> Space {
        let mut space = Space::new(FreeMap::new(data_blocks), data_blocks);
        space.add_partition(P, Account { quota_blocks, charged: 0, objects: 0 });
        space
    }

    fn demand(charge_before: u64, charge_after: u64, dirty: u64) -> Demand {
        Demand { charge_before, charge_after, dirty }
    }

    #[test]
    fn the_smallest_drive_for_a_charge_has_room_for_just_that() {
        for charged in [0, 1, 14, 15, 16, 1500, 7679, 7680, 7695, 7696, 100_000, 1 << 40] {
            let room = |blocks: u64| blocks - RESERVE_BLOCKS.min(blocks / RESERVE_SHARE);
            let least = Space::data_blocks_for(charged);
            assert!(room(least) >= charged, "{charged}");
            assert!(least == 0 || room(least - 1) < charged, "{charged}");
        }
    }

    #[test]
    fn charges_end_at_the_reserve_and_at_the_quota() {
        let mut space = space(1600, 2000);
        assert_eq!(space.capacity(), 1500);
        space.promise(P, demand(0, 1500, 0)).unwrap();
        assert_eq!(space.promise(P, demand(0, 1, 0)), Err(NoSpace::Data));
        space.charge(P, 1500, 100);
        assert_eq!(space.chargeable(), 1400);
        let mut small = self::space(1600, 10);
        assert_eq!(small.promise(P, demand(0, 11, 11)), Err(NoSpace::Quota(P)));
        assert_eq!(small.dirty(), 0, "a refused promise changes nothing");
        small.promise(P, demand(0, 10, 10)).unwrap();
        small.promise(P, demand(10, 10, 5)).unwrap();
    }

    #[test]
    fn dirty_blocks_never_outnumber_free_ones() {
        let mut space = space(1600, u64::MAX);
        space.promise(P, demand(0, 1500, 1500)).unwrap();
        assert_eq!(space.promise(P, demand(1500, 1500, 101)), Err(NoSpace::Data));
        let first = space.allocate(1500, None).unwrap();
        // The drive is as full as it gets, and the reserve is there to overwrite with.
        assert_eq!(space.promise(P, demand(1500, 1500, 101)), Err(NoSpace::Data));
        space.promise(P, demand(1500, 1500, 100)).unwrap();
        let second = space.allocate(100, None).unwrap();
        space.free(&[Run { start: first[0].start, blocks: 100 }]);
        space.promise(P, demand(1500, 1500, 100)).unwrap();
        assert_eq!(space.used(), 1500);
        space.take_back(&second, 0);
        assert_eq!(space.used(), 1400);
    }
}
