//! Which drives an object lies on: a table of groups, so that a map is a number's remainder.
//!
//! An object belongs to the group that the lowest bits of its number say. A group is an ordered list of
//! drives, as many as the shape is wide. The table is all that has to be kept to find any object, however
//! many there are; a drive that comes, goes or fails changes some entries of it, and only the objects of
//! these groups move.

use std::collections::BTreeMap;

use nasd_types::{DriveId, ObjectId};
use thiserror::Error;

/// Which group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

/// A drive, and how much of all objects it should have, beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveWeight {
    /// The drive.
    pub drive: DriveId,
    /// In any unit, most often bytes that it can hold. With 0 it is to have none.
    pub weight: u64,
}

/// Why there is no such table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GroupError {
    /// Fewer drives than a group has members.
    #[error("a stripe of {width} drives needs as many; there are {drives}")]
    TooFewDrives {
        /// Members of a group.
        width: u16,
        /// Drives with a weight.
        drives: usize,
    },
    /// Not a power of two, too many, or lists of different lengths.
    #[error("such a table of groups has no meaning")]
    Table,
}

/// A member of a group that becomes another drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The group.
    pub group: GroupId,
    /// Which of its members, from 0.
    pub member: usize,
    /// The drive that it is.
    pub from: DriveId,
    /// The drive that it is to be.
    pub to: DriveId,
}

/// The table: the members of each group, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    width: u16,
    members: Vec<DriveId>,
}

impl Groups {
    /// Most groups of a table.
    pub const MAX: usize = 1 << 15;

    /// A table of `count` groups, which has drives in proportion to their weights, each at most once in a
    /// group; and in each position too, as small objects lie on the first member alone. Drawn from nothing
    /// else, so that it is always the same.
    ///
    /// # Errors
    ///
    /// If there are too few drives, or `count` is no power of two up to [`Groups::MAX`].
    pub fn draw(count: usize, width: u16, drives: &[DriveWeight]) -> Result<Groups, GroupError> {
        if !count.is_power_of_two() || count > Self::MAX || width == 0 {
            return Err(GroupError::Table);
        }
        let mut loads = Load::of(drives);
        if loads.len() < usize::from(width) {
            return Err(GroupError::TooFewDrives { width, drives: loads.len() });
        }
        let mut members = Vec::with_capacity(count * usize::from(width));
        for group in 0..count as u64 {
            loads.sort_by_key(|load| (load.next(load.all), mix(group, load.drive)));
            let chosen = &mut loads[..usize::from(width)];
            // Who is first least often for its weight comes first; who follows differs from group to group.
            chosen.sort_by_key(|load| (load.next(load.first), mix(!group, load.drive)));
            chosen[1..].sort_by_key(|load| mix(!group, load.drive));
            chosen[0].first += 1;
            chosen.iter_mut().for_each(|load| load.all += 1);
            members.extend(chosen.iter().map(|load| load.drive));
        }
        Ok(Groups { width, members })
    }

    /// The table with these members, those of the first group first.
    ///
    /// # Errors
    ///
    /// `Table` where that is none.
    pub fn from_members(width: u16, members: Vec<DriveId>) -> Result<Groups, GroupError> {
        let width_members = usize::from(width).max(1);
        let count = members.len() / width_members;
        let is_even = members.len().is_multiple_of(width_members) && width > 0;
        if !is_even || !count.is_power_of_two() || count > Self::MAX {
            return Err(GroupError::Table);
        }
        for group in members.chunks(width_members) {
            if group.iter().enumerate().any(|(at, drive)| group[..at].contains(drive)) {
                return Err(GroupError::Table);
            }
        }
        Ok(Groups { width, members })
    }

    /// All members, those of the first group first.
    pub fn all_members(&self) -> &[DriveId] {
        &self.members
    }

    /// Members of each group.
    pub fn width(&self) -> u16 {
        self.width
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.members.len() / usize::from(self.width)
    }

    /// All of them.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupId> + use<> {
        // At most `MAX`.
        (0..self.count() as u16).map(GroupId)
    }

    /// The group of an object.
    pub fn group_of(&self, object: ObjectId) -> GroupId {
        GroupId((object.0 & (self.count() as u64 - 1)) as u16)
    }

    /// The members of a group, in order; of the last one if there are not so many.
    pub fn members(&self, group: GroupId) -> &[DriveId] {
        let width = usize::from(self.width);
        let at = usize::from(group.0).min(self.count() - 1) * width;
        &self.members[at..at + width]
    }

    /// Every drive that is a member of any group, and of how many.
    pub fn drives(&self) -> BTreeMap<DriveId, usize> {
        let mut drives = BTreeMap::new();
        for drive in &self.members {
            *drives.entry(*drive).or_default() += 1;
        }
        drives
    }

    /// Makes a member of a group another drive; tells whether it was the one that the move says.
    pub fn apply(&mut self, step: &Move) -> bool {
        let width = usize::from(self.width);
        let at = usize::from(step.group.0) * width + step.member;
        match self.members.get_mut(at).filter(|_| step.member < width) {
            Some(member) if *member == step.from => {
                *member = step.to;
                true
            }
            _ => false,
        }
    }

    /// The moves after which drives have their share again: few, as each gives only what it has too much.
    /// Drives that are not listed, or have no weight, give all they have. Nobody gets a place in a group that it can't be
    /// in, by `can_be_in`: another one does.
    ///
    /// # Errors
    ///
    /// `TooFewDrives` if somebody would be twice in a group.
    pub fn rebalance(
        &self,
        drives: &[DriveWeight],
        can_be_in: impl Fn(GroupId, DriveId) -> bool,
    ) -> Result<Vec<Move>, GroupError> {
        let mut loads = Load::of(drives);
        if loads.len() < usize::from(self.width) {
            return Err(GroupError::TooFewDrives { width: self.width, drives: loads.len() });
        }
        let mut table = self.clone();
        for load in &mut loads {
            load.all = table.members.iter().filter(|drive| **drive == load.drive).count() as u64;
        }
        let mut moves = Vec::new();
        // First whoever has to go altogether.
        for group in self.groups() {
            for member in 0..usize::from(self.width) {
                let from = table.members(group)[member];
                if loads.iter().any(|load| load.drive == from) {
                    continue;
                }
                let present = table.members(group);
                let able = loads
                    .iter_mut()
                    .filter(|load| !present.contains(&load.drive) && can_be_in(group, load.drive));
                let least = able
                    .min_by_key(|load| (load.next(load.all), mix(u64::from(group.0), load.drive)));
                let Some(taker) = least else { continue };
                taker.all += 1;
                let step = Move { group, member, from, to: taker.drive };
                table.apply(&step);
                moves.push(step);
            }
        }
        while let Some(step) = table.next_move(&mut loads, moves.len(), &can_be_in) {
            table.apply(&step);
            moves.push(step);
        }
        Ok(moves)
    }

    /// A move from a drive that has clearly more for its weight to one that has less: two more or less, or a
    /// thirty-second, move nothing. Positions take their turns, as the first has more than others.
    fn next_move(
        &self,
        loads: &mut [Load],
        turn: usize,
        can_be_in: &impl Fn(GroupId, DriveId) -> bool,
    ) -> Option<Move> {
        loads.sort_by_key(|load| (load.next(load.all), load.drive));
        for taker in 0..loads.len() {
            for giver in (taker + 1..loads.len()).rev() {
                let (to, from) = (loads[taker], loads[giver]);
                if to.next(to.all + 1 + to.all / 32) >= from.next(from.all.saturating_sub(1)) {
                    break;
                }
                let is_able = |group| can_be_in(group, to.drive);
                let place = self.place_to_give(from.drive, to.drive, turn, is_able);
                let Some((group, member)) = place else { continue };
                loads[giver].all -= 1;
                loads[taker].all += 1;
                return Some(Move { group, member, from: from.drive, to: to.drive });
            }
        }
        None
    }

    /// Where a drive is a member and another is not, with some preference for a position; anywhere in the table, as
    /// objects that are made one after the other, of which a few may be large, are in groups beside each other.
    fn place_to_give(
        &self,
        giver: DriveId,
        taker: DriveId,
        turn: usize,
        is_able: impl Fn(GroupId) -> bool,
    ) -> Option<(GroupId, usize)> {
        let wanted = turn % usize::from(self.width);
        let places = self.groups().filter_map(|group| {
            let members = self.members(group);
            let member = members.iter().position(|drive| *drive == giver)?;
            (!members.contains(&taker) && is_able(group)).then_some((group, member))
        });
        places
            .min_by_key(|(group, member)| (member.abs_diff(wanted), mix(u64::from(group.0), taker)))
    }
}

/// What a drive has so far.
#[derive(Clone, Copy, Debug)]
struct Load {
    drive: DriveId,
    weight: u64,
    /// Groups of which it is a member.
    all: u64,
    /// Groups of which it is the first.
    first: u64,
}

impl Load {
    fn of(drives: &[DriveWeight]) -> Vec<Load> {
        let mut loads: Vec<Load> = Vec::new();
        for &DriveWeight { drive, weight } in drives.iter().filter(|drive| drive.weight > 0) {
            if loads.iter().all(|load| load.drive != drive) {
                loads.push(Load { drive, weight, all: 0, first: 0 });
            }
        }
        loads
    }

    /// What it would have for its weight with one more than `has`.
    fn next(&self, has: u64) -> u128 {
        ((u128::from(has) + 1) << 64) / u128::from(self.weight)
    }
}

/// A number that is as good as drawn (the finalizer of splitmix64).
fn mix(number: u64, drive: DriveId) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ drive.0;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anywhere(_: GroupId, _: DriveId) -> bool {
        true
    }

    fn drives(weights: &[u64]) -> Vec<DriveWeight> {
        let numbered = (1..).zip(weights);
        numbered
            .map(|(number, weight)| DriveWeight { drive: DriveId(number), weight: *weight })
            .collect()
    }

    /// Drives `1` to `weights.len()`, tables of all widths.
    fn tables(weights: &[u64]) -> impl Iterator<Item = Groups> {
        let drives = drives(weights);
        let able = drives.iter().filter(|drive| drive.weight > 0).count() as u16;
        (1..=able).map(move |width| Groups::draw(256, width, &drives).unwrap())
    }

    fn check(table: &Groups) {
        for group in table.groups() {
            let members = table.members(group);
            assert_eq!(members.len(), usize::from(table.width()));
            let mut different = members.to_vec();
            different.sort_unstable();
            different.dedup();
            assert_eq!(different.len(), members.len(), "{group:?} {members:?}");
        }
        let again = Groups::from_members(table.width(), table.all_members().to_vec()).unwrap();
        assert_eq!(again, *table);
    }

    /// Whether every drive has what its weight says, give or take so many groups; or as many as there are.
    fn is_fair(table: &Groups, drives: &[DriveWeight], slack: u64) -> bool {
        let has = table.drives();
        let weight: u64 = drives.iter().map(|drive| drive.weight).sum();
        let all = table.all_members().len() as u64;
        let mut rest: Vec<_> = drives.iter().filter(|drive| drive.weight > 0).collect();
        // Those that are in all groups leave more to the others.
        rest.retain(|drive| has.get(&drive.drive) != Some(&table.count()));
        let full = drives.len() - rest.len();
        let (all, weight) = match full {
            0 => (all, weight),
            _ => {
                let left = rest.iter().map(|drive| has.get(&drive.drive).copied().unwrap_or(0));
                (left.sum::<usize>() as u64, rest.iter().map(|drive| drive.weight).sum())
            }
        };
        rest.iter().all(|drive| {
            let has = has.get(&drive.drive).copied().unwrap_or(0) as u64;
            has.abs_diff(all * drive.weight / weight) <= slack
        })
    }

    #[test]
    fn drives_have_their_share_of_groups_and_of_first_places() {
        for weights in [&[1; 5][..], &[1, 2, 3, 4, 5], &[100, 1, 1, 1], &[7; 13], &[0, 3, 3, 0, 3]]
        {
            for table in tables(weights) {
                check(&table);
                let drives = drives(weights);
                assert!(is_fair(&table, &drives, 2), "{weights:?} {table:?}");
                assert!(table.drives().keys().all(|drive| weights[drive.0 as usize - 1] > 0));
            }
        }
        let table = Groups::draw(256, 4, &drives(&[1; 13])).unwrap();
        let mut first = BTreeMap::<_, usize>::new();
        for group in table.groups() {
            *first.entry(table.members(group)[0]).or_default() += 1;
        }
        assert!(first.len() == 13 && first.values().all(|count| (19..=20).contains(count)));
    }

    #[test]
    fn who_follows_a_drive_differs_so_that_its_load_is_spread_when_it_fails() {
        let table = Groups::draw(1024, 4, &drives(&[1; 13])).unwrap();
        let mut second = BTreeMap::<_, usize>::new();
        for group in table.groups().filter(|group| table.members(*group)[0] == DriveId(1)) {
            *second.entry(table.members(group)[1]).or_default() += 1;
        }
        assert!(second.len() == 12 && second.values().all(|count| *count < 20), "{second:?}");
    }

    #[test]
    fn an_object_belongs_to_the_group_of_its_lowest_bits() {
        let table = Groups::draw(8, 1, &drives(&[1])).unwrap();
        assert_eq!(table.group_of(ObjectId(1 << 63)), GroupId(0));
        assert_eq!(table.group_of(ObjectId((1 << 63) | 8 | 5)), GroupId(5));
        assert_eq!(table.group_of(ObjectId::FIRST_OBJECT), GroupId(4));
    }

    #[test]
    fn a_drive_more_gets_its_share_and_nothing_else_moves() {
        for before in 2..12 {
            for width in 1..=before as u16 {
                let mut table = Groups::draw(256, width, &drives(&vec![1; before])).unwrap();
                let after = drives(&vec![1; before + 1]);
                let moves = table.rebalance(&after, anywhere).unwrap();
                let new = DriveId(before as u64 + 1);
                assert!(moves.iter().all(|step| step.to == new), "{moves:?}");
                let first = moves.iter().filter(|step| step.member == 0).count();
                let part = moves.len() / usize::from(width);
                assert!(first.abs_diff(part) <= 2 + part / 2, "{first} of {}", moves.len());
                // From everywhere in the table.
                for quarter in 0..4 {
                    let here = moves.iter().filter(|step| step.group.0 / 64 == quarter).count();
                    let all = moves.len();
                    let usual = all / 16..=all / 2;
                    assert!(usual.contains(&here), "{here} of {all} in {quarter}");
                }
                assert!(moves.iter().all(|step| table.apply(step)));
                check(&table);
                assert!(is_fair(&table, &after, 10), "{before} {width} {:?}", table.drives());
                assert!(table.rebalance(&after, anywhere).unwrap().is_empty(), "it is in balance");
            }
        }
    }

    #[test]
    fn a_drive_that_goes_gives_all_and_nothing_else_moves() {
        for before in 2..12 {
            for width in 1..before as u16 {
                let mut table = Groups::draw(256, width, &drives(&vec![1; before])).unwrap();
                let had = table.drives()[&DriveId(1)];
                let mut after = drives(&vec![1; before]);
                after[0].weight = 0;
                let moves = table.rebalance(&after, anywhere).unwrap();
                assert_eq!(moves.len(), had);
                assert!(moves.iter().all(|step| step.from == DriveId(1) && table.apply(step)));
                check(&table);
                assert!(is_fair(&table, &after, 10), "{before} {width} {:?}", table.drives());
                assert!(!table.drives().contains_key(&DriveId(1)));
            }
        }
    }

    #[test]
    fn what_one_drive_can_not_have_another_one_gets() {
        let mut after = drives(&[1; 6]);
        after[0].weight = 0;
        // By numbers that have nothing to do with one another.
        let can_be_in =
            |group: GroupId, drive: DriveId| !mix(u64::from(group.0), drive).is_multiple_of(3);
        let mut table = Groups::draw(256, 3, &drives(&[1; 6])).unwrap();
        let moves = table.rebalance(&after, can_be_in).unwrap();
        assert!(moves.iter().all(|step| can_be_in(step.group, step.to) && table.apply(step)));
        check(&table);
        let stays = |group: &GroupId| table.members(*group).contains(&DriveId(1));
        for group in table.groups().filter(stays) {
            let members = table.members(group);
            let mut others =
                after.iter().map(|other| other.drive).filter(|other| !members.contains(other));
            assert!(others.all(|other| !can_be_in(group, other)), "somebody could have it");
        }
    }

    #[test]
    fn tables_without_a_meaning_are_refused() {
        let three = drives(&[1, 1, 1]);
        assert_eq!(
            Groups::draw(4, 4, &three),
            Err(GroupError::TooFewDrives { width: 4, drives: 3 })
        );
        for (count, width) in [(0, 1), (3, 1), (1 << 16, 1), (4, 0)] {
            assert_eq!(Groups::draw(count, width, &three), Err(GroupError::Table));
        }
        let [a, b] = [DriveId(1), DriveId(2)];
        for (width, members) in [
            (0, vec![]),
            (1, vec![]),
            (2, vec![a]),
            (2, vec![a, a]),
            (1, vec![a, b, a]),
            (2, vec![a, b, b]),
        ] {
            assert_eq!(Groups::from_members(width, members), Err(GroupError::Table));
        }
        let mut table = Groups::draw(4, 3, &three).unwrap();
        let members = table.members(GroupId(1)).to_vec();
        let wrong = Move { group: GroupId(1), member: 0, from: members[1], to: DriveId(9) };
        assert!(!table.apply(&wrong), "it is not that drive");
        assert!(!table.apply(&Move { member: 3, from: members[0], ..wrong }));
        assert!(!table.apply(&Move { group: GroupId(4), ..wrong }));
        let gone = table.rebalance(&drives(&[1, 1, 0]), anywhere);
        assert_eq!(gone, Err(GroupError::TooFewDrives { width: 3, drives: 2 }));
    }
}
