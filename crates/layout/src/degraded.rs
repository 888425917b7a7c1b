//! Who is read and who is written while some members are out, or not there yet.

use crate::{Column, Shape};

/// What a member is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberState {
    /// It has all that was written: it is read and written.
    Current,
    /// It is being given what was written before: it is written, and not read yet.
    Joining,
    /// It is gone, or has missed writes: neither.
    Out,
}

/// A shape whose members are in these states.
#[derive(Clone, Copy, Debug)]
pub struct Degraded<'a> {
    shape: Shape,
    states: &'a [MemberState],
    stand_ins: &'a [u16],
}

impl<'a> Degraded<'a> {
    /// There is a state for each member; those that are lacking count as out.
    pub fn new(shape: Shape, states: &'a [MemberState]) -> Degraded<'a> {
        Degraded { shape, states, stand_ins: &[] }
    }

    /// The same with *stand-ins*: drives that are about to take the places of these members, and are joining, whatever
    /// the state of who they will replace. They are numbered behind the members.
    #[must_use]
    pub fn with_stand_ins(self, stand_ins: &'a [u16]) -> Degraded<'a> {
        Degraded { stand_ins, ..self }
    }

    /// The stand-ins of members that hold a column.
    fn stand_ins_of(&self, column: Column) -> impl Iterator<Item = usize> + '_ {
        let width = usize::from(self.shape.width());
        let those = self.stand_ins.iter().enumerate();
        let those = those.filter(move |(_, member)| self.shape.holds((**member).into(), column));
        those.map(move |(at, _)| width + at)
    }

    fn state(&self, member: usize) -> MemberState {
        self.states.get(member).copied().unwrap_or(MemberState::Out)
    }

    /// The members that a column may be read from, the one that is asked in the first place first.
    pub fn readable(&self, column: Column) -> impl Iterator<Item = usize> + '_ {
        let members = self.shape.members(column);
        members.filter(|member| self.state(*member) == MemberState::Current)
    }

    /// The member that decides what a column holds, while copies may differ: `None` when all copies are
    /// gone.
    pub fn first(&self, column: Column) -> Option<usize> {
        self.readable(column).next()
    }

    /// The members that a write of a column goes to, the deciding one last, so that what can be read is on
    /// all others already; none when there is no copy that could decide.
    pub fn writable(&self, column: Column) -> Vec<usize> {
        let Some(first) = self.first(column) else {
            return Vec::new();
        };
        let others = self
            .shape
            .members(column)
            .filter(|member| *member != first && self.state(*member) != MemberState::Out);
        others.chain(self.stand_ins_of(column)).chain([first]).collect()
    }

    /// Whether every column can be read.
    pub fn is_whole(&self) -> bool {
        self.columns().all(|column| self.first(column).is_some())
    }

    /// The least number of copies that any column can be read from.
    pub fn copies_left(&self) -> usize {
        self.columns().map(|column| self.readable(column).count()).min().unwrap_or(0)
    }

    fn columns(&self) -> impl Iterator<Item = Column> + use<> {
        (0..self.shape.width()).map(Column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemberState::{Current, Joining, Out};

    /// Every shape with up to five members, in all states.
    fn all(mut check: impl FnMut(Shape, &[MemberState])) {
        for width in 1..=5_u16 {
            for copies in 1..=width {
                let shape = Shape::of_any_unit(1, width, copies);
                for number in 0..3_u32.pow(width.into()) {
                    let state = |member: u32| match number / 3_u32.pow(member) % 3 {
                        0 => Current,
                        1 => Joining,
                        _ => Out,
                    };
                    let states: Vec<_> = (0..u32::from(width)).map(state).collect();
                    check(shape, &states);
                }
            }
        }
    }

    #[test]
    fn reads_go_to_members_that_have_all_and_writes_to_all_that_will() {
        all(|shape, states| {
            let degraded = Degraded::new(shape, states);
            for column in (0..shape.width()).map(Column) {
                let held: Vec<_> = shape.members(column).collect();
                let current: Vec<_> =
                    held.iter().copied().filter(|member| states[*member] == Current).collect();
                assert!(degraded.readable(column).eq(current.iter().copied()));
                assert_eq!(degraded.first(column), current.first().copied());
                let mut written = degraded.writable(column);
                assert_eq!(written.last().copied(), degraded.first(column));
                written.sort_unstable();
                let mut wanted: Vec<_> =
                    held.into_iter().filter(|member| states[*member] != Out).collect();
                wanted.sort_unstable();
                if current.is_empty() {
                    assert!(written.is_empty(), "nobody decides what it holds");
                } else {
                    assert_eq!(written, wanted);
                }
            }
        });
    }

    #[test]
    fn any_but_the_last_copy_may_be_out() {
        all(|shape, states| {
            let degraded = Degraded::new(shape, states);
            let gone = states.iter().filter(|state| **state != Current).count();
            if gone < usize::from(shape.copies()) {
                assert!(degraded.is_whole() && degraded.copies_left() >= 1);
            }
            assert_eq!(degraded.is_whole(), degraded.copies_left() > 0);
            if gone == 0 {
                assert_eq!(degraded.copies_left(), usize::from(shape.copies()));
            }
        });
    }

    #[test]
    fn a_stand_in_is_written_where_its_member_would_be_and_never_decides() {
        all(|shape, states| {
            let width = shape.width();
            for member in 0..width {
                let stand_ins = [member, (member + 1) % width];
                let degraded = Degraded::new(shape, states).with_stand_ins(&stand_ins);
                let without = Degraded::new(shape, states);
                assert_eq!(degraded.is_whole(), without.is_whole());
                for column in (0..width).map(Column) {
                    assert!(degraded.readable(column).eq(without.readable(column)));
                    let (mut written, before) =
                        (degraded.writable(column), without.writable(column));
                    assert_eq!(written.last(), before.last(), "who decides is the last");
                    written.retain(|at| *at < usize::from(width));
                    assert_eq!(written, before);
                    let of = |at: usize| usize::from(width) + at;
                    for (at, stood_for) in stand_ins.iter().enumerate() {
                        let holds = shape.members(column).any(|it| it == usize::from(*stood_for));
                        let is_written = degraded.writable(column).contains(&of(at));
                        assert_eq!(is_written, holds && !before.is_empty());
                    }
                }
            }
        });
    }

    #[test]
    fn a_state_that_is_lacking_is_out() {
        let shape = Shape::of_any_unit(1, 3, 2);
        let degraded = Degraded::new(shape, &[Current]);
        assert!(!degraded.is_whole());
        assert_eq!(degraded.first(Column(2)), Some(0), "its second copy");
    }
}
