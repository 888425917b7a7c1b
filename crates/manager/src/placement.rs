//! Which drive a new object goes to.
//!
//! Files and directories go where there is free space, in proportion to it: a drive with twice the
//! free space gets twice as many. This is smooth weighted round robin, so that equal drives take
//! turns and a burst of new files does not land on one. Directories are spread in the same way as
//! files: their locality would gain nothing, as every operation names one object of one drive, and
//! keeping a tree on one drive would make it a hot spot.
//!
//! Free space is what the drives told at the last refresh. A drive that was full or away is left
//! out until the next one, unless there is no other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::DriveId;

/// Weights are free space in these units, so that drives that differ by little count as equal.
const WEIGHT_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug)]
struct Candidate {
    drive: DriveId,
    /// Free bytes at the last refresh; `None` before the first one.
    free_bytes: Option<u64>,
    /// Full or away since the last refresh.
    excluded: bool,
    /// The algorithm's state: how much the drive is owed.
    credit: i128,
}

impl Candidate {
    fn weight(&self) -> i128 {
        match self.free_bytes {
            _ if self.excluded => 0,
            None => 1,
            Some(0) => 0,
            Some(bytes) => i128::from(bytes / WEIGHT_BYTES).max(1),
        }
    }
}

/// Chooses drives for new objects.
#[derive(Debug)]
pub(crate) struct Placement {
    candidates: Mutex<Vec<Candidate>>,
}

impl Placement {
    pub(crate) fn new(drives: &[DriveId]) -> Self {
        let candidate = |drive: &DriveId| Candidate {
            drive: *drive,
            free_bytes: None,
            excluded: false,
            credit: 0,
        };
        Placement { candidates: Mutex::new(drives.iter().map(candidate).collect()) }
    }

    /// The drive whose turn it is, and the others in the order in which to fall over to them: by
    /// what they are owed, those that were full or away last.
    pub(crate) fn choose(&self) -> Vec<DriveId> {
        let mut candidates = self.candidates();
        let total: i128 = candidates.iter().map(Candidate::weight).sum();
        for candidate in candidates.iter_mut() {
            candidate.credit += candidate.weight();
        }
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|index| {
            let candidate = &candidates[*index];
            (candidate.weight() == 0, candidate.excluded, -candidate.credit)
        });
        if let Some(first) = order.first() {
            candidates[*first].credit -= total;
        }
        order.iter().map(|index| candidates[*index].drive).collect()
    }

    /// Leaves a drive out until the next refresh: it was full, or away.
    pub(crate) fn exclude(&self, drive: DriveId) {
        for candidate in self.candidates().iter_mut().filter(|other| other.drive == drive) {
            candidate.excluded = true;
            candidate.credit = 0;
        }
    }

    /// Takes note of a drive's free space; `None` if it is away.
    pub(crate) fn refresh(&self, drive: DriveId, free_bytes: Option<u64>) {
        for candidate in self.candidates().iter_mut().filter(|other| other.drive == drive) {
            candidate.excluded = free_bytes.is_none();
            // Debts from another distribution of space would last for long.
            if candidate.free_bytes.map(|bytes| bytes / WEIGHT_BYTES)
                != free_bytes.map(|bytes| bytes / WEIGHT_BYTES)
            {
                candidate.credit = candidate.credit.clamp(-1, 1);
            }
            candidate.free_bytes = free_bytes.or(candidate.free_bytes);
        }
    }

    fn candidates(&self) -> MutexGuard<'_, Vec<Candidate>> {
        self.candidates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn drives(count: u64) -> Vec<DriveId> {
        (1..=count).map(DriveId).collect()
    }

    fn spread(placement: &Placement, turns: usize) -> BTreeMap<u64, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..turns {
            *counts.entry(placement.choose()[0].0).or_default() += 1;
        }
        counts
    }

    #[test]
    fn equals_take_turns() {
        let placement = Placement::new(&drives(4));
        for free in [None, Some(10 << 30)] {
            drives(4).iter().for_each(|drive| placement.refresh(*drive, free.or(Some(1))));
            for _ in 0..5 {
                assert!(spread(&placement, 4).values().all(|count| *count == 1));
            }
        }
    }

    #[test]
    fn more_space_gets_more() {
        let placement = Placement::new(&drives(3));
        placement.refresh(DriveId(1), Some(10 << 30));
        placement.refresh(DriveId(2), Some(30 << 30));
        placement.refresh(DriveId(3), Some(0));
        let counts = spread(&placement, 400);
        assert_eq!((counts[&1], counts[&2], counts.get(&3)), (100, 300, None));
    }

    #[test]
    fn full_and_absent_drives_come_last() {
        let placement = Placement::new(&drives(3));
        drives(3).iter().for_each(|drive| placement.refresh(*drive, Some(1 << 40)));
        placement.exclude(DriveId(2));
        assert_eq!(placement.choose().last(), Some(&DriveId(2)));
        assert_eq!(spread(&placement, 10).get(&2), None);
        placement.refresh(DriveId(2), Some(1 << 40));
        let counts = spread(&placement, 30);
        assert!(counts.values().all(|count| (9..=11).contains(count)), "{counts:?}");
        placement.refresh(DriveId(1), None);
        assert_eq!(spread(&placement, 10).get(&1), None);
    }
}
