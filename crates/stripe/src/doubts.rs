//! Drives that have all, and don't decide yet what is just being written.
//!
//! A drive that is joining is written before the one that decides, so that nobody reads what others don't have. A client
//! that dies between the two leaves there what nobody else has. If the drive decided from when it has been given all, that
//! would be read, and be gone when the drive is lost before the copies have been made even. So others go on deciding what
//! those objects are that somebody may be writing then, until their copies are the same.

use std::collections::{BTreeMap, BTreeSet};

use nasd_layout::{GroupId, Move};
use nasd_types::{DriveId, PartitionId};

use crate::state::State;
use crate::virtual_drive::VirtualDrive;

/// Drives that are about to count, as they have been given all.
#[derive(Debug, Default)]
pub(crate) struct Newcomers {
    /// Those that were out.
    back: BTreeSet<DriveId>,
    /// Those that take the places of others.
    moves: BTreeMap<(PartitionId, GroupId), Vec<Arrival>>,
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    step: Move,
    /// Whether it takes the place of one that did not decide.
    is_late: bool,
}

impl Newcomers {
    /// Those of `takers`, by the state before they count.
    pub(crate) fn of(state: &State, takers: &BTreeSet<DriveId>) -> Newcomers {
        let is_back = |drive: &&DriveId| state.absent.get(drive).is_some_and(|it| it.is_joining);
        let back = takers.iter().filter(is_back).copied().collect();
        let mut moves: BTreeMap<_, Vec<Arrival>> = BTreeMap::new();
        for (partition, record) in &state.partitions {
            for step in record.moves.iter().filter(|step| takers.contains(&step.to)) {
                let is_late = record.has_copies() && state.absent.contains_key(&step.from);
                let arrival = Arrival { step: *step, is_late };
                moves.entry((*partition, step.group)).or_default().push(arrival);
            }
        }
        Newcomers { back, moves }
    }

    /// The drives that don't decide what an object of a group is, by those that did not before: who was given all last comes
    /// first, as where not all others can be doubted the one before may have decided since. Whoever takes the place of one
    /// that decided has what this had, which others may lack, and decides as it did.
    fn doubted(&self, group: (PartitionId, GroupId), before: &[DriveId]) -> Vec<DriveId> {
        let arrivals = self.moves.get(&group).map_or(&[][..], Vec::as_slice);
        let is_arriving = |drive: &DriveId| arrivals.iter().any(|it| it.step.to == *drive);
        let back = self.back.iter().copied().filter(|drive| !is_arriving(drive));
        let late = arrivals.iter().filter(|it| it.is_late || before.contains(&it.step.from));
        let newly: Vec<DriveId> = back.chain(late.map(|arrival| arrival.step.to)).collect();
        // What was known of who has no place there any more, or had one before, says nothing of who gets it now.
        let is_moved =
            |drive: &DriveId| arrivals.iter().any(|it| [it.step.from, it.step.to].contains(drive));
        let before = before.iter().copied();
        let kept = before.filter(|drive| !newly.contains(drive) && !is_moved(drive));
        let kept: Vec<DriveId> = kept.collect();
        newly.into_iter().chain(kept).collect()
    }
}

impl VirtualDrive {
    /// These drives count from now on, and others decide what is just being written: nothing else goes on.
    pub(crate) fn doubt(&self, newcomers: &Newcomers) {
        let state = self.state();
        self.writers.doubt(|name, before| {
            let Some(record) = state.partitions.get(&name.partition) else { return Vec::new() };
            newcomers.doubted((name.partition, record.groups.group_of(name.object)), before)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: (PartitionId, GroupId) = (PartitionId(3), GroupId(5));

    fn newcomers(back: &[u64], arrivals: &[(u64, u64, bool)]) -> Newcomers {
        let arrival = |(from, to, is_late): &(u64, u64, bool)| {
            let (from, to) = (DriveId(*from), DriveId(*to));
            Arrival { step: Move { group: GROUP.1, member: 0, from, to }, is_late: *is_late }
        };
        Newcomers {
            back: back.iter().copied().map(DriveId).collect(),
            moves: BTreeMap::from([(GROUP, arrivals.iter().map(arrival).collect())]),
        }
    }

    #[test]
    fn who_takes_the_place_of_one_that_decided_decides() {
        let other = (GROUP.0, GroupId(6));
        let moved = newcomers(&[1, 2], &[(7, 2, false), (8, 3, true)]);
        assert_eq!(moved.doubted(GROUP, &[]), [1, 3].map(DriveId));
        // It was a member there, and not one that arrives.
        assert_eq!(moved.doubted(other, &[]), [1, 2].map(DriveId));
        // Nor did the one before it.
        assert_eq!(moved.doubted(GROUP, &[DriveId(7)]), [1, 2, 3].map(DriveId));
        // It had a place there once.
        assert_eq!(moved.doubted(GROUP, &[DriveId(2)]), [1, 3].map(DriveId));
        assert_eq!(moved.doubted(GROUP, &[9, 3, 1].map(DriveId)), [1, 3, 9].map(DriveId));
    }
}
