//! What a pass over the tables collects, in compact form: about 32 bytes for each extent.

use std::collections::BTreeMap;

use crate::record::{Extent, Family, Holder, Partition, held_by};

/// An extent, by the data blocks that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) physical: u64,
    pub(crate) object: u64,
    pub(crate) logical: u64,
    pub(crate) partition: u32,
    /// Data blocks less one, and bit 15 for a compressed one.
    stored: u16,
    /// Bytes of its last block that belong to the object, if the object's size ends in it.
    pub(crate) tail: u16,
}

const COMPRESSED: u16 = 1 << 15;

impl Use {
    pub(crate) fn new(partition: u32, object: u64, logical: u64, extent: &Extent) -> Use {
        let stored = (extent.stored.saturating_sub(1) as u16) & !COMPRESSED;
        let flag = if extent.is_compressed() { COMPRESSED } else { 0 };
        let physical = extent.physical;
        Use { physical, object, logical, partition, stored: stored | flag, tail: 0 }
    }

    /// Data blocks.
    pub(crate) fn stored(&self) -> u64 {
        u64::from(self.stored & !COMPRESSED) + 1
    }

    pub(crate) fn end(&self) -> u64 {
        self.physical + self.stored()
    }

    pub(crate) fn is_compressed(&self) -> bool {
        self.stored & COMPRESSED != 0
    }

    /// Where a data block of it is in its object, in bytes; a compressed one counts as a whole.
    pub(crate) fn offset_of(&self, block: u64) -> u64 {
        let skip = if self.is_compressed() { 0 } else { block - self.physical };
        (self.logical + skip).saturating_mul(crate::bytes::BLOCK)
    }
}

/// A valid share record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) blocks: u64,
    pub(crate) holders: Vec<Holder>,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.blocks
    }
}

/// An object that has a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Membership {
    pub(crate) partition: u32,
    pub(crate) object: u64,
    pub(crate) family: u64,
}

/// A family's record, and what was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyTally {
    /// `None`: it has no valid record.
    pub(crate) record: Option<Family>,
    pub(crate) shared: u64,
    pub(crate) members: u64,
}

/// A partition's record, and what was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionTally {
    /// `None`: it has no valid record.
    pub(crate) record: Option<Partition>,
    pub(crate) objects: u64,
    pub(crate) charged: u64,
    pub(crate) has_first_object: bool,
}

/// Everything.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Every valid extent; sorted by place once the tables are read.
    pub(crate) uses: Vec<Use>,
    /// In order of place, none overlapping another.
    pub(crate) runs: Vec<Run>,
    /// In order of partition and object.
    pub(crate) memberships: Vec<Membership>,
    pub(crate) families: BTreeMap<(u32, u64), FamilyTally>,
    pub(crate) partitions: BTreeMap<u32, PartitionTally>,
    pub(crate) objects: u64,
    pub(crate) highest_object: u64,
    pub(crate) object_limit: Option<u64>,
}

impl State {
    /// The family of an object; 0 is none.
    pub(crate) fn family_of(&self, partition: u32, object: u64) -> u64 {
        let place = self.memberships.binary_search_by_key(&(partition, object), |membership| {
            (membership.partition, membership.object)
        });
        place.map_or(0, |index| self.memberships[index].family)
    }

    /// Data blocks of a range that no family of the partition shares.
    pub(crate) fn unshared(&self, partition: u32, first: u64, blocks: u64) -> u64 {
        let end = first + blocks;
        let start = self.runs.partition_point(|run| run.end() <= first);
        let within = self.runs[start..].iter().take_while(|run| run.first < end);
        let is_of_family =
            |run: &&Run| held_by(&run.holders, partition).is_some_and(|holder| holder.family != 0);
        let within = within.filter(is_of_family);
        let shared: u64 =
            within.map(|run| run.end().min(end).saturating_sub(run.first.max(first))).sum();
        blocks - shared
    }

    /// Data blocks that are in use.
    pub(crate) fn blocks_in_use(&self) -> u64 {
        let mut end = 0;
        let mut blocks = 0;
        for used in &self.uses {
            blocks += used.end().saturating_sub(used.physical.max(end));
            end = end.max(used.end());
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_small_and_keeps_what_it_was_given() {
        assert_eq!(size_of::<Use>(), 32);
        let used = Use::new(1, 2, 3, &Extent::plain(10, 32768));
        assert_eq!((used.stored(), used.end(), used.is_compressed()), (32768, 32778, false));
        assert_eq!(used.offset_of(12), 5 * 4096);
        let extent = Extent { codec: 1, physical: 10, blocks: 16, stored: 2, length: 5000 };
        let used = Use::new(1, 2, 16, &extent);
        assert_eq!((used.stored(), used.is_compressed()), (2, true));
        assert_eq!(used.offset_of(11), 16 * 4096);
    }

    #[test]
    fn blocks_outside_of_share_records_are_counted() {
        let holder = |partition, family| Holder { partition, count: 1, family };
        let run = |first, blocks| {
            let holders = vec![holder(1, 1), holder(2, 0)];
            Run { first, blocks, holders }
        };
        let state = State { runs: vec![run(10, 5), run(20, 5)], ..State::default() };
        assert_eq!(state.unshared(1, 0, 10), 10);
        assert_eq!(state.unshared(1, 8, 4), 2);
        assert_eq!(state.unshared(1, 0, 30), 20);
        assert_eq!(state.unshared(1, 11, 3), 0);
        assert_eq!(state.unshared(2, 0, 30), 30);
    }
}
