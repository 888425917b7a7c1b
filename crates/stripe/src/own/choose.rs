//! Which drives are to have copies.

use nasd_types::DriveId;

use super::MOST_COPIES;
use crate::moves::Role;

/// A component drive, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub drive: DriveId,
    /// What it is for.
    pub role: Role,
    /// Whether it has answered lately.
    pub is_reachable: bool,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The drive is to get a copy.
    TakeIn(DriveId),
    /// It needs none any more.
    LetGo(DriveId),
}

/// The next step, if any. Whoever leaves is to have a copy only where no other can, spares only where there are no
/// others; who has one keeps it otherwise.
pub(super) fn next_step(
    copies: &[DriveId],
    drives: &[Candidate],
    is_held_back: impl Fn(DriveId) -> bool,
) -> Option<Step> {
    let stays = |candidate: &&Candidate| candidate.role != Role::Leaving;
    let does_any_stay = drives.iter().any(|candidate| stays(&candidate));
    let pool: Vec<&Candidate> =
        drives.iter().filter(|candidate| !does_any_stay || stays(candidate)).collect();
    let is_in_pool = |drive: &DriveId| pool.iter().any(|candidate| candidate.drive == *drive);
    let kept = copies.iter().filter(|drive| is_in_pool(drive)).count();
    if kept >= pool.len().min(MOST_COPIES) && kept > 0 {
        let last = copies.iter().find(|drive| !is_in_pool(drive));
        return last.map(|drive| Step::LetGo(*drive));
    }
    let can_take = |candidate: &&&Candidate| {
        let drive = candidate.drive;
        candidate.is_reachable && !copies.contains(&drive) && !is_held_back(drive)
    };
    let found = pool.iter().filter(can_take);
    // The first that is named, of those that are as good.
    let found = found.min_by_key(|candidate| candidate.role == Role::Spare);
    found.map(|candidate| Step::TakeIn(candidate.drive))
}

/// Which drives get copies when there are none: in the sequence of what they are good for.
pub(super) fn first_copies(drives: &[Candidate]) -> Vec<DriveId> {
    let mut chosen = Vec::new();
    while let Some(Step::TakeIn(drive)) = next_step(&chosen, drives, |_| false) {
        chosen.push(drive);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drives(roles: &[(Role, bool)]) -> Vec<Candidate> {
        let candidate = |(number, (role, is_reachable)): (usize, &(Role, bool))| Candidate {
            drive: DriveId(number as u64 + 1),
            role: *role,
            is_reachable: *is_reachable,
        };
        roles.iter().enumerate().map(candidate).collect()
    }

    fn step(copies: &[u64], roles: &[(Role, bool)]) -> Option<Step> {
        let copies: Vec<DriveId> = copies.iter().map(|drive| DriveId(*drive)).collect();
        next_step(&copies, &drives(roles), |_| false)
    }

    const HERE: (Role, bool) = (Role::Member, true);
    const AWAY: (Role, bool) = (Role::Member, false);
    const SPARE: (Role, bool) = (Role::Spare, true);
    const LEAVING: (Role, bool) = (Role::Leaving, true);
    const TAKE_1: Option<Step> = Some(Step::TakeIn(DriveId(1)));
    const TAKE_3: Option<Step> = Some(Step::TakeIn(DriveId(3)));
    const LET_1_GO: Option<Step> = Some(Step::LetGo(DriveId(1)));

    #[test]
    fn as_many_have_copies_as_there_can_be() {
        assert_eq!(step(&[1], &[HERE]), None);
        assert_eq!(step(&[2], &[HERE, HERE]), TAKE_1);
        assert_eq!(step(&[1, 2], &[HERE, HERE]), None);
        assert_eq!(step(&[1, 2], &[HERE, HERE, HERE, HERE]), TAKE_3);
        assert_eq!(step(&[1, 2, 4], &[HERE, HERE, HERE, HERE]), None);
        assert_eq!(step(&[1, 2], &[HERE, HERE, AWAY]), None);
        assert_eq!(step(&[1, 2], &[HERE, HERE, AWAY, HERE]), Some(Step::TakeIn(DriveId(4))));
        // One that does not answer has one as long as nobody has found it out by writing.
        assert_eq!(step(&[1, 2, 3], &[AWAY, HERE, HERE, HERE]), None);
    }

    #[test]
    fn spares_come_last_and_who_leaves_is_let_go_when_others_have_them() {
        assert_eq!(step(&[2], &[SPARE, HERE, HERE]), TAKE_3);
        assert_eq!(step(&[2, 3], &[SPARE, HERE, HERE]), TAKE_1);
        assert_eq!(step(&[1, 2], &[LEAVING, HERE, HERE]), TAKE_3);
        assert_eq!(step(&[1, 2], &[LEAVING, HERE, AWAY]), None);
        assert_eq!(step(&[1, 2, 3], &[LEAVING, HERE, HERE]), LET_1_GO);
        assert_eq!(step(&[1, 2], &[LEAVING, HERE]), LET_1_GO);
        assert_eq!(step(&[1], &[LEAVING, AWAY]), None);
        // If all leave, none is let go.
        assert_eq!(step(&[1, 2], &[LEAVING, LEAVING]), None);
        // One that is a component drive no more.
        assert_eq!(step(&[2, 9], &[HERE, HERE]), TAKE_1);
        assert_eq!(step(&[1, 2, 9], &[HERE, HERE]), Some(Step::LetGo(DriveId(9))));
        assert_eq!(step(&[9], &[]), None);
    }

    #[test]
    fn whoever_has_just_failed_is_held_back() {
        let drives = drives(&[HERE, HERE, HERE]);
        let held_back = |drive| drive == DriveId(1);
        assert_eq!(next_step(&[DriveId(2)], &drives, held_back), TAKE_3);
        assert_eq!(next_step(&[DriveId(2), DriveId(3)], &drives, held_back), None);
    }

    #[test]
    fn the_first_copies_are_on_members() {
        let chosen = |roles: &[(Role, bool)]| {
            first_copies(&drives(roles)).iter().map(|drive| drive.0).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[HERE]), [1]);
        assert_eq!(chosen(&[AWAY, HERE]), [2]);
        assert_eq!(chosen(&[SPARE, HERE, HERE, HERE, HERE]), [2, 3, 4]);
        assert_eq!(chosen(&[SPARE, HERE, LEAVING]), [1, 2]);
    }
}
