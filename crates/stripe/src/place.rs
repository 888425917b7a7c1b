//! Where the components of an object are, and what each of them is good for now.

use nasd_layout::{Column, Degraded, MemberState, Shape};
use nasd_types::DriveId;

/// Who of the copies is written: who decides comes when all others have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Others,
    Deciding,
}

impl Turn {
    pub(crate) const ALL: [Turn; 2] = [Turn::Others, Turn::Deciding];
}

/// The members of an object's group, in these states.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) shape: Shape,
    pub(crate) generation: u64,
    /// In the order of columns, with those that are out; then the stand-ins.
    pub(crate) members: Vec<DriveId>,
    /// Of which members these are about to take the places, in their order.
    pub(crate) stand_ins: Vec<u16>,
    states: Vec<MemberState>,
    /// Those that have all and count as joining all the same, so that others decide; who was given all last comes first.
    doubted: Vec<DriveId>,
    /// Those that are not out: home components first, and of these the one that decides.
    present: Vec<DriveId>,
    /// How many of them have home components.
    homes: usize,
}

impl Place {
    /// `members` with their states, and the drives that are about to take the places of some.
    pub(crate) fn new(
        shape: Shape,
        generation: u64,
        (mut members, mut states): (Vec<DriveId>, Vec<MemberState>),
        stand_ins: &[(u16, DriveId)],
    ) -> Place {
        let copies = usize::from(shape.copies());
        members.extend(stand_ins.iter().map(|(_, drive)| *drive));
        states.resize(members.len(), MemberState::Joining);
        let stand_ins: Vec<u16> = stand_ins.iter().map(|(member, _)| *member).collect();
        let is_present = |at: &usize| states[*at] != MemberState::Out;
        let is_home = |at: &usize| column_of(&shape, &stand_ins, *at) < copies;
        let present = (0..members.len()).filter(is_present);
        let (mut present, others): (Vec<usize>, Vec<usize>) = present.partition(is_home);
        let homes = present.len();
        let decides = |at: &usize| states[*at] == MemberState::Current;
        if let Some(first) = present.iter().position(decides) {
            present[..=first].rotate_right(1);
        }
        let present = present.into_iter().chain(others).map(|at| members[at]).collect();
        let doubted = Vec::new();
        Place { shape, generation, members, stand_ins, states, doubted, present, homes }
    }

    /// Which member's components a drive has.
    pub(crate) fn column_of(&self, at: usize) -> usize {
        column_of(&self.shape, &self.stand_ins, at)
    }

    /// The drive that has the component which decides whether there is such an object, and how it is.
    pub(crate) fn home(&self) -> DriveId {
        // A drive is not out where it has the last copy.
        self.present.first().copied().unwrap_or(self.members[0])
    }

    /// The drives that have a component of an object whatever it holds, the one that decides first.
    pub(crate) fn homes(&self) -> &[DriveId] {
        &self.present[..self.homes]
    }

    /// The drives that have a component.
    pub(crate) fn holders(&self, is_spread: bool) -> &[DriveId] {
        if is_spread { &self.present } else { self.homes() }
    }

    /// The drives that have a component only if the object is spread.
    pub(crate) fn others(&self) -> &[DriveId] {
        &self.present[self.homes..]
    }

    /// The holders that have all that was written.
    pub(crate) fn current(&self, is_spread: bool) -> impl Iterator<Item = DriveId> + '_ {
        let holders = self.holders(is_spread).iter().copied();
        holders.filter(|drive| self.state_of(*drive) == MemberState::Current)
    }

    /// The same, and those that are not believed as long as others can be asked.
    pub(crate) fn settled(&self, is_spread: bool) -> impl Iterator<Item = DriveId> + '_ {
        let holders = self.holders(is_spread).iter().copied();
        let is_settled = |drive: &DriveId| {
            self.state_of(*drive) == MemberState::Current || self.is_doubted(*drive)
        };
        holders.filter(is_settled)
    }

    /// Whether bytes are on more than one drive, if all are well: as there are copies, or drives that are about to
    /// take the places of others.
    pub(crate) fn has_copies(&self) -> bool {
        self.shape.copies() > 1 || !self.stand_ins.is_empty()
    }

    /// Whether each member has all columns, so that there is nothing to be spread.
    pub(crate) fn is_full(&self) -> bool {
        self.shape.copies() == self.shape.width()
    }

    /// Whether all members have components, so that each column is what its own first member says, and lengths and
    /// times are the largest of all; else the home component says all.
    pub(crate) fn is_striped(&self, is_spread: bool) -> bool {
        is_spread || (self.shape.width() > 1 && self.is_full())
    }

    fn degraded(&self) -> Degraded<'_> {
        Degraded::new(self.shape, &self.states).with_stand_ins(&self.stand_ins)
    }

    /// The same, but that what a drive holds is not believed.
    pub(crate) fn doubting(mut self, drive: DriveId) -> Place {
        if let Some(at) = self.members.iter().position(|member| *member == drive)
            && self.states[at] == MemberState::Current
        {
            self.states[at] = MemberState::Joining;
        }
        self
    }

    /// The same, if others have all that it has: then one of them decides.
    pub(crate) fn doubting_if_possible(self, drive: DriveId) -> Place {
        let is_known = |column: Column| {
            let mut others = self.shape.members(column).filter(|at| self.members[*at] != drive);
            others.any(|at| self.states[at] == MemberState::Current)
        };
        if self.state_of(drive) != MemberState::Current || !self.columns_on(drive).all(is_known) {
            return self;
        }
        let Place { shape, generation, mut members, stand_ins, mut states, mut doubted, .. } =
            self.doubting(drive);
        let takers = members.split_off(usize::from(shape.width()));
        states.truncate(members.len());
        let takers: Vec<(u16, DriveId)> = stand_ins.into_iter().zip(takers).collect();
        doubted.push(drive);
        Place { doubted, ..Place::new(shape, generation, (members, states), &takers) }
    }

    /// Whether a drive has all, and is not believed as long as others can be asked.
    pub(crate) fn is_doubted(&self, drive: DriveId) -> bool {
        self.doubted.contains(&drive)
    }

    /// Whether there is such a drive.
    pub(crate) fn has_doubted(&self) -> bool {
        !self.doubted.is_empty()
    }

    /// The drive that a column is read from.
    pub(crate) fn reader(&self, column: Column) -> DriveId {
        let mut members = self.shape.members(column).map(|at| self.members[at]);
        let first = self.degraded().first(column).map(|at| self.members[at]);
        let is_there = |drive: &DriveId| members.clone().any(|member| member == *drive);
        // Where nobody else can be asked, who was given all first: others may have been since.
        let first = first.or_else(|| self.doubted.iter().rev().copied().find(is_there));
        // Where all copies are away, one of them is waited for.
        first.or_else(|| members.next()).unwrap_or(self.members[0])
    }

    /// The drives that a column is written to, the one that decides last.
    pub(crate) fn writers(&self, column: Column) -> Vec<DriveId> {
        self.degraded().writable(column).into_iter().map(|member| self.members[member]).collect()
    }

    /// The same in two turns: first all others at once, then the one that decides.
    pub(crate) fn writers_in(&self, column: Column, turn: Turn) -> Vec<DriveId> {
        let mut writers = self.writers(column);
        let last = writers.pop();
        match turn {
            Turn::Others => writers,
            Turn::Deciding => last.into_iter().collect(),
        }
    }

    /// What a drive is good for.
    pub(crate) fn state_of(&self, drive: DriveId) -> MemberState {
        let at = self.members.iter().position(|member| *member == drive);
        at.map_or(MemberState::Out, |at| self.states[at])
    }

    /// The members that are being given what was written before.
    pub(crate) fn joining(&self) -> impl Iterator<Item = DriveId> + '_ {
        let members = self.members.iter().zip(&self.states);
        let joining = members.filter(|(_, state)| **state == MemberState::Joining);
        joining.map(|(drive, _)| *drive).filter(|drive| !self.is_doubted(*drive))
    }

    /// Whether a drive has a component of an object whatever it holds.
    pub(crate) fn is_home(&self, drive: DriveId) -> bool {
        let at = self.members.iter().position(|member| *member == drive);
        at.is_some_and(|at| self.column_of(at) < usize::from(self.shape.copies()))
    }

    /// The columns that a member has.
    pub(crate) fn columns_on(&self, drive: DriveId) -> impl Iterator<Item = Column> + '_ {
        let at = self.members.iter().position(|member| *member == drive);
        let member = at.map(|at| self.column_of(at));
        let columns = (0..self.shape.width()).map(Column);
        columns
            .filter(move |column| self.shape.members(*column).any(|holder| Some(holder) == member))
    }

    /// Whether a drive is about to take the place of another.
    pub(crate) fn is_stand_in(&self, drive: DriveId) -> bool {
        self.members[usize::from(self.shape.width())..].contains(&drive)
    }
}

fn column_of(shape: &Shape, stand_ins: &[u16], at: usize) -> usize {
    match at.checked_sub(usize::from(shape.width())) {
        Some(stand_in) => stand_ins.get(stand_in).copied().unwrap_or_default().into(),
        None => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemberState::{Current, Joining, Out};

    fn place(copies: u16, states: &[MemberState]) -> Place {
        let width = states.len() as u16;
        let members = (1..=u64::from(width)).map(DriveId).collect();
        let shape = Shape::new(4096, width, copies).unwrap();
        Place::new(shape, 1, (members, states.to_vec()), &[])
    }

    #[test]
    fn the_home_that_decides_comes_first_whoever_is_out() {
        let drives = |numbers: &[u64]| numbers.iter().copied().map(DriveId).collect::<Vec<_>>();
        let well = place(2, &[Current; 4]);
        assert_eq!((well.homes(), well.others()), (&drives(&[1, 2])[..], &drives(&[3, 4])[..]));
        let first_out = place(2, &[Out, Current, Current, Out]);
        assert_eq!(first_out.homes(), drives(&[2]));
        assert_eq!(first_out.holders(true), drives(&[2, 3]));
        let joining = place(3, &[Joining, Out, Current, Joining]);
        assert_eq!(joining.homes(), drives(&[3, 1]));
        assert_eq!(joining.current(true).collect::<Vec<_>>(), drives(&[3]));
        assert_eq!(joining.joining().collect::<Vec<_>>(), drives(&[1, 4]));
        assert!(joining.is_home(DriveId(2)) && !joining.is_home(DriveId(4)));
    }

    #[test]
    fn who_is_doubted_decides_only_where_nobody_else_can() {
        let doubted = place(2, &[Current; 3]).doubting_if_possible(DriveId(1));
        assert_eq!(doubted.homes(), [2, 1].map(DriveId));
        assert_eq!(doubted.reader(Column(0)), DriveId(2));
        assert_eq!(doubted.reader(Column(2)), DriveId(3));
        let alone = place(2, &[Current, Out, Current]).doubting_if_possible(DriveId(1));
        assert_eq!(alone.reader(Column(0)), DriveId(1));
        assert_eq!(alone.state_of(DriveId(1)), Current);
        // What the one that decides can't read it is given by others.
        let other = place(2, &[Current; 3]).doubting_if_possible(DriveId(2));
        assert_eq!(other.doubting(DriveId(1)).reader(Column(0)), DriveId(2));
    }

    #[test]
    fn those_that_decide_are_written_last() {
        let place = place(3, &[Out, Joining, Current, Current]);
        let writers = |column| {
            Turn::ALL.map(|turn| {
                let writers = place.writers_in(Column(column), turn);
                writers.iter().map(|drive| drive.0).collect::<Vec<_>>()
            })
        };
        assert_eq!(writers(0), [vec![2], vec![3]]);
        assert_eq!(writers(1), [vec![2, 4], vec![3]]);
        assert_eq!(writers(3), [vec![2], vec![4]]);
        assert_eq!(place.reader(Column(0)), DriveId(3));
        assert_eq!(
            place.columns_on(DriveId(1)).collect::<Vec<_>>(),
            [Column(0), Column(2), Column(3)]
        );
    }

    #[test]
    fn who_is_about_to_take_a_place_has_what_belongs_there() {
        let shape = Shape::new(4096, 3, 1).unwrap();
        let members = [1, 2, 3].map(DriveId).to_vec();
        let states = vec![Current; 3];
        let place = Place::new(shape, 1, (members, states), &[(0, DriveId(9)), (2, DriveId(8))]);
        assert!(place.has_copies() && place.is_stand_in(DriveId(9)));
        assert_eq!(place.homes(), [1, 9].map(DriveId));
        assert_eq!(place.others(), [2, 3, 8].map(DriveId));
        assert_eq!(place.writers(Column(0)), [9, 1].map(DriveId));
        assert_eq!(place.writers(Column(1)), [DriveId(2)]);
        assert!(place.is_home(DriveId(9)) && !place.is_home(DriveId(8)));
        assert!(place.columns_on(DriveId(8)).eq([Column(2)]));
        assert!(place.joining().eq([9, 8].map(DriveId)));
        assert!(place.current(true).eq([1, 2, 3].map(DriveId)));
    }
}
