//! Ranges of an object's blocks that were cut off or punched out, and that the tree may still have.
//! Pure.

use std::ops::Range;

use crate::metadata::record::{Extent, LOGICAL_BLOCKS_MAX};

/// A set of blocks as disjoint ranges, in order, no two of which touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clears(Vec<Range<u64>>);

impl Clears {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, in order.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Adds the blocks `[from, to)`.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let first = self.0.partition_point(|range| range.end < from);
        let behind = self.0.partition_point(|range| range.start <= to);
        let mut joined = from..to;
        for range in self.0.drain(first..behind) {
            joined.start = joined.start.min(range.start);
            joined.end = joined.end.max(range.end);
        }
        self.0.insert(first, joined);
    }

    /// Takes out the blocks `[from, to)`.
    pub(crate) fn remove(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let ranges = std::mem::take(&mut self.0);
        let parts = ranges
            .into_iter()
            .flat_map(|range| [range.start..range.end.min(from), range.start.max(to)..range.end]);
        self.0 = parts.filter(|part| !part.is_empty()).collect();
    }

    /// Adds all of another set.
    pub(crate) fn add_all(&mut self, other: &Clears) {
        other.0.iter().for_each(|range| self.add(range.start, range.end));
    }

    /// The block from which on everything is cut off.
    pub(crate) fn end(&self) -> u64 {
        match self.0.last() {
            Some(last) if last.end >= LOGICAL_BLOCKS_MAX => last.start,
            _ => u64::MAX,
        }
    }

    /// Whether a block is in the set.
    pub(crate) fn contains(&self, block: u64) -> bool {
        let index = self.0.partition_point(|range| range.end <= block);
        self.0.get(index).is_some_and(|range| range.start <= block)
    }

    /// What is left of extents, which are in order, without these blocks. A compressed extent that is
    /// touched goes as a whole.
    pub(crate) fn subtract(&self, extents: Vec<Extent>) -> Vec<Extent> {
        if self.0.is_empty() {
            return extents;
        }
        let mut left = Vec::with_capacity(extents.len());
        for extent in extents {
            let mut from = extent.logical;
            let mut touched = false;
            for range in &self.0 {
                if range.end <= from || range.start >= extent.end() {
                    continue;
                }
                touched = true;
                if !extent.is_packed() {
                    left.extend(extent.clip(from, range.start));
                }
                from = range.end;
            }
            if !touched {
                left.push(extent);
            } else if !extent.is_packed() {
                left.extend(extent.clip(from, extent.end()));
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::metadata::record::Codec;

    proptest! {
        #[test]
        fn agrees_with_a_set(ranges in prop::collection::vec((0..60u64, 0..20u64), 0..12)) {
            let (mut clears, mut model) = (Clears::default(), BTreeSet::new());
            for (number, (from, length)) in ranges.into_iter().enumerate() {
                if number % 3 == 2 {
                    clears.remove(from, from + length);
                    model.retain(|block| !(from..from + length).contains(block));
                    continue;
                }
                clears.add(from, from + length);
                model.extend(from..from + length);
            }
            for block in 0..100 {
                prop_assert_eq!(clears.contains(block), model.contains(&block));
            }
            prop_assert!(clears.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            let extents: Vec<Extent> = (0..8)
                .map(|i| Extent { logical: 10 * i, blocks: 9, physical: 100 * i, codec: Codec::Plain })
                .collect();
            let expected: Vec<(u64, u64)> = extents
                .iter()
                .flat_map(|e| (0..e.blocks).map(|i| (e.logical + i, e.physical + i)))
                .filter(|(logical, _)| !model.contains(logical))
                .collect();
            let left: Vec<(u64, u64)> = clears
                .subtract(extents)
                .iter()
                .flat_map(|e| (0..e.blocks).map(|i| (e.logical + i, e.physical + i)))
                .collect();
            prop_assert_eq!(left, expected);
        }
    }

    #[test]
    fn the_end_is_where_everything_is_cut_off() {
        let mut clears = Clears::default();
        clears.add(3, 5);
        assert_eq!(clears.end(), u64::MAX);
        clears.add(10, LOGICAL_BLOCKS_MAX);
        assert_eq!(clears.end(), 10);
        let mut other = Clears::default();
        other.add(4, 11);
        clears.add_all(&other);
        assert_eq!((clears.end(), clears.ranges().len()), (3, 1));
    }
}
