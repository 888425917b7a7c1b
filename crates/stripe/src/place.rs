//! Where the components of an object are, and what each of them is good for now.

use nasd_layout::{Column, Degraded, MemberState, Shape};
use nasd_types::DriveId;

/// The members of an object's group, in these states.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) shape: Shape,
    pub(crate) generation: u64,
    /// In the order of columns, with those that are out.
    pub(crate) members: Vec<DriveId>,
    states: Vec<MemberState>,
    /// Those that are not out: home components first, and of these the one that decides.
    present: Vec<DriveId>,
    /// How many of them have home components.
    homes: usize,
}

impl Place {
    pub(crate) fn new(
        shape: Shape,
        generation: u64,
        members: Vec<DriveId>,
        states: Vec<MemberState>,
    ) -> Place {
        let copies = usize::from(shape.copies());
        let is_present = |at: &usize| states[*at] != MemberState::Out;
        let mut present: Vec<usize> = (0..members.len()).filter(is_present).collect();
        let homes = present.iter().filter(|at| **at < copies).count();
        let decides = |at: &usize| states[*at] == MemberState::Current;
        if let Some(first) = present[..homes].iter().position(decides) {
            present[..=first].rotate_right(1);
        }
        let present = present.into_iter().map(|at| members[at]).collect();
        Place { shape, generation, members, states, present, homes }
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

    /// Whether there is more than one copy of each byte, if all members are well.
    pub(crate) fn has_copies(&self) -> bool {
        self.shape.copies() > 1
    }

    /// Whether each member has all columns, so that there is nothing to be spread.
    pub(crate) fn is_full(&self) -> bool {
        self.shape.copies() == self.shape.width()
    }

    /// Whether all members have components, so that each column is what its own first member says, and lengths and
    /// times are the largest of all; else the home component says all.
    pub(crate) fn is_striped(&self, is_spread: bool) -> bool {
        is_spread || (self.members.len() > 1 && self.is_full())
    }

    fn degraded(&self) -> Degraded<'_> {
        Degraded::new(self.shape, &self.states)
    }

    /// The drive that a column is read from.
    pub(crate) fn reader(&self, column: Column) -> DriveId {
        let first = self.degraded().first(column);
        // Where all copies are away, one of them is waited for.
        self.members[first.or(self.shape.members(column).next()).unwrap_or_default()]
    }

    /// The drives that a column is written to, the one that decides last.
    pub(crate) fn writers(&self, column: Column) -> Vec<DriveId> {
        self.degraded().writable(column).into_iter().map(|member| self.members[member]).collect()
    }

    /// Whose turn it is to be written, of as many turns as there are copies: those that decide have the last.
    pub(crate) fn writer(&self, column: Column, turn: usize) -> Option<DriveId> {
        let writers = self.writers(column);
        let skipped = usize::from(self.shape.copies()).checked_sub(writers.len())?;
        writers.get(turn.checked_sub(skipped)?).copied()
    }

    /// What a drive is good for.
    pub(crate) fn state_of(&self, drive: DriveId) -> MemberState {
        let at = self.members.iter().position(|member| *member == drive);
        at.map_or(MemberState::Out, |at| self.states[at])
    }

    /// The members that are being given what was written before.
    pub(crate) fn joining(&self) -> impl Iterator<Item = DriveId> + '_ {
        let members = self.members.iter().zip(&self.states);
        members.filter(|(_, state)| **state == MemberState::Joining).map(|(drive, _)| *drive)
    }

    /// Whether a drive has a component of an object whatever it holds.
    pub(crate) fn is_home(&self, drive: DriveId) -> bool {
        self.members[..usize::from(self.shape.copies())].contains(&drive)
    }

    /// The columns that a member has.
    pub(crate) fn columns_on(&self, drive: DriveId) -> impl Iterator<Item = Column> + '_ {
        let columns = (0..self.shape.width()).map(Column);
        columns.filter(move |column| {
            self.shape.members(*column).any(|member| self.members[member] == drive)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemberState::{Current, Joining, Out};

    fn place(copies: u16, states: &[MemberState]) -> Place {
        let width = states.len() as u16;
        let members = (1..=u64::from(width)).map(DriveId).collect();
        Place::new(Shape::new(4096, width, copies).unwrap(), 1, members, states.to_vec())
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
    fn those_that_decide_are_written_last() {
        let place = place(3, &[Out, Joining, Current, Current]);
        let writer = |column, turn| place.writer(Column(column), turn).map(|it| it.0);
        let turns = |column| [0, 1, 2].map(|turn| writer(column, turn));
        assert_eq!(turns(0), [None, Some(2), Some(3)]);
        assert_eq!(turns(1), [Some(2), Some(4), Some(3)]);
        assert_eq!(turns(3), [None, Some(2), Some(4)]);
        assert_eq!(place.reader(Column(0)), DriveId(3));
        assert_eq!(
            place.columns_on(DriveId(1)).collect::<Vec<_>>(),
            [Column(0), Column(2), Column(3)]
        );
    }
}
