//! Which component drives there are, and what each is for: spares, drives that are drained, that are added, and that die
//! for good, whose share a spare gets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nasd_protocol::drive::{ComponentStatus, MemberState};
use nasd_stripe::{Arrangement, Role};
use nasd_types::DriveId;

use crate::drives::ComponentDrive;
use crate::network::Cables;
use crate::plan::{Plan, Sabotage};
use crate::random::Random;
use crate::run::Cell;

/// For how long all has to be well before a drive dies for good: nobody has promised anything where another one may be
/// taken for lost just then.
const CALM: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Members {
    spares: BTreeSet<DriveId>,
    leaving: BTreeSet<DriveId>,
    /// Those that never come back.
    dead: BTreeSet<DriveId>,
    /// Those of the dead that are component drives no more.
    gone: BTreeSet<DriveId>,
}

/// A drive that runs, and that is no component drive yet.
pub(crate) fn new_drive(
    cables: &Arc<Cables>,
    plan: &Plan,
    random: &mut Random,
    number: usize,
) -> Arc<ComponentDrive> {
    let skew = random.below(plan.skew + 1);
    let is_spare = (plan.drives..plan.drives + plan.spares).contains(&number);
    let sabotage = match plan.sabotage {
        Sabotage::SpareForgetsWrites if is_spare => Sabotage::ForgetsWrites,
        Sabotage::ForgetsWrites | Sabotage::MakesEmptyCopies if number > 0 => Sabotage::None,
        other => other,
    };
    let drive = DriveId(1 + number as u64);
    Arc::new(ComponentDrive::new(cables, drive, (skew, sabotage), random.fork()))
}

impl Members {
    /// As a cell begins: the last of its drives are spares.
    pub(crate) fn of(plan: &Plan) -> Members {
        let spares = plan.drives..plan.drives + plan.spares;
        Members {
            spares: spares.map(|number| DriveId(1 + number as u64)).collect(),
            ..Members::default()
        }
    }

    fn role(&self, drive: DriveId) -> Role {
        match (self.leaving.contains(&drive), self.spares.contains(&drive)) {
            (true, _) => Role::Leaving,
            (_, true) => Role::Spare,
            _ => Role::Member,
        }
    }

    /// What the striping manager is told.
    pub(crate) fn arrangement(&self, plan: &Plan) -> Arrangement {
        let named = self.spares.union(&self.leaving);
        let roles = named.map(|drive| (*drive, self.role(*drive))).collect();
        let replace_after_ns = plan.replace_after.as_nanos() as u64;
        Arrangement { roles, replace_after_ns, ..Arrangement::default() }
    }

    /// Whether it never comes back.
    pub(crate) fn is_dead(&self, drive: DriveId) -> bool {
        self.dead.contains(&drive)
    }

    /// Drives that are to have a share, or had one and are replaced: each of the dead has a spare.
    fn sharing(&self, drives: &[Arc<ComponentDrive>]) -> usize {
        let is_sharing =
            |drive: &DriveId| self.role(*drive) == Role::Member && !self.gone.contains(drive);
        drives.iter().filter(|drive| is_sharing(&drive.drive)).count()
    }

    /// Whether all who are to have a share have one, no others have anything, and nothing is on its way. Where objects have
    /// blocks in common (`are_copies`), places may stay where they are that nobody else can have.
    pub(crate) fn check_shares(
        &self,
        all: &[ComponentStatus],
        are_copies: bool,
    ) -> Result<(), String> {
        let is_replaced =
            |it: &&ComponentStatus| self.is_dead(it.drive) && self.role(it.drive) == Role::Member;
        // Spares are taken in the order of their numbers.
        let mut needed = all.iter().filter(is_replaced).count();
        for status in all {
            let is_dead = self.is_dead(status.drive);
            let is_to_share = match self.role(status.drive) {
                _ if is_dead => false,
                Role::Member => true,
                Role::Leaving => false,
                Role::Spare if needed == 0 => false,
                Role::Spare => {
                    needed -= 1;
                    true
                }
            };
            let is_whole = is_dead || status.state == MemberState::Current;
            let is_moving = status.places_coming > 0 || status.places_going > 0;
            if !is_whole || is_moving {
                return Err(format!("drive {} lacks something: {status:?}", status.drive));
            }
            let may_stay = are_copies && !is_dead && status.places > 0;
            if (status.places > 0) != is_to_share && !may_stay {
                return Err(format!("a share is to be had ({is_to_share}) by {status:?}"));
            }
        }
        Ok(())
    }

    /// Whether no drive lacks anything, nor does one that is dead have anything.
    fn is_whole(&self, all: &[ComponentStatus]) -> bool {
        all.iter().all(|status| match self.is_dead(status.drive) {
            true => status.places == 0,
            false => status.reachable && status.state == MemberState::Current,
        })
    }
}

/// A drive is drained, or gets its share again.
pub(crate) fn drain(cell: &mut Cell) {
    let drive = cell.drives[cell.random.index(cell.drives.len())].drive;
    let members = &mut cell.members;
    if members.spares.contains(&drive) || members.gone.contains(&drive) {
        return;
    }
    let are_enough = members.sharing(&cell.drives) > usize::from(cell.plan.width);
    if !members.leaving.remove(&drive) && are_enough {
        members.leaving.insert(drive);
    }
    let leaving = members.leaving.clone();
    cell.time.tell(|| format!("drives {leaving:?} are drained"));
    cell.manager.arrange(cell.members.arrangement(&cell.plan));
}

/// A drive that nobody has known joins the cell.
pub(crate) fn add(cell: &mut Cell) {
    let number = cell.drives.len();
    if number >= cell.plan.drives + cell.plan.spares + cell.plan.added {
        return;
    }
    let drive = new_drive(&cell.cables, &cell.plan, &mut cell.random, number);
    cell.time.tell(|| format!("drive {number} is added"));
    cell.drives.push(drive);
    set_drives(cell);
}

fn set_drives(cell: &Cell) {
    let gone = &cell.members.gone;
    let drives = cell.drives.iter().filter(|drive| !gone.contains(&drive.drive));
    cell.manager.set_drives(drives.cloned().collect());
}

/// What the striping manager tells just now of its drives, if it runs.
fn status(cell: &Cell) -> Option<Vec<ComponentStatus>> {
    Some(cell.manager.virtual_drive()?.component_status())
}

/// Whether one that is dead is not known to be out yet.
pub(crate) fn is_dying(cell: &Cell) -> bool {
    let is_missed = |status: &ComponentStatus| {
        let is_out = status.state == MemberState::Out;
        cell.members.is_dead(status.drive) && status.places > 0 && !is_out
    };
    match status(cell) {
        Some(all) => all.iter().any(is_missed),
        None => !cell.members.dead.is_empty(),
    }
}

/// How many drives that may have something do not run.
pub(crate) fn away(cell: &Cell) -> usize {
    let all = status(cell).unwrap_or_default();
    let has_nothing = |drive: DriveId| {
        let told = all.iter().find(|status| status.drive == drive);
        told.map_or(cell.members.gone.contains(&drive), |status| status.places == 0)
    };
    let is_away = |drive: &&Arc<ComponentDrive>| {
        let is_replaced = cell.members.is_dead(drive.drive) && has_nothing(drive.drive);
        !drive.is_running() && !is_replaced
    };
    cell.drives.iter().filter(is_away).count()
}

/// One that is dead and has been replaced is a component drive no more; the spare that has its share keeps that.
pub(crate) fn bury(cell: &mut Cell) {
    let Some(all) = status(cell) else { return };
    let has_any = |drive: &DriveId| all.iter().any(|it| it.drive == *drive && it.places > 0);
    let is_moving = all.iter().any(|it| it.places_coming + it.places_going > 0);
    let members = &mut cell.members;
    let listed: Vec<DriveId> = members.dead.difference(&members.gone).copied().collect();
    let Some(drive) = listed.into_iter().find(|drive| !is_moving && !has_any(drive)) else {
        return;
    };
    if !members.leaving.remove(&drive) && !members.spares.remove(&drive) {
        let stood_in = members.spares.iter().copied().find(has_any);
        let Some(spare) = stood_in.filter(|spare| !members.dead.contains(spare)) else { return };
        members.spares.remove(&spare);
    }
    members.gone.insert(drive);
    cell.time.tell(|| format!("{drive:?} is a component drive no more"));
    cell.manager.arrange(cell.members.arrangement(&cell.plan));
    set_drives(cell);
}

/// A drive that is to die for good.
#[derive(Debug, Default)]
pub(crate) struct Death {
    is_wanted: bool,
    calm_since: Option<Duration>,
}

impl Death {
    /// One is to die as soon as it may, if there is a spare for it.
    pub(crate) fn want(&mut self, cell: &Cell) {
        self.is_wanted |= cell.members.dead.len() < cell.plan.spares;
    }

    /// Whether nothing else is to go wrong, as a drive is about to die, or just has.
    pub(crate) fn is_near(&self, cell: &Cell) -> bool {
        self.is_wanted || is_dying(cell)
    }

    /// Which drive dies now, if one does; `is_well` says whether nothing else is wrong.
    pub(crate) fn comes(&mut self, cell: &mut Cell, is_well: bool) -> Option<usize> {
        let all = status(cell).filter(|all| is_well && cell.members.is_whole(all));
        let Some(all) = all.filter(|_| self.is_wanted) else {
            self.calm_since = None;
            return None;
        };
        let now = cell.time.now();
        if now < *self.calm_since.get_or_insert(now) + CALM {
            return None;
        }
        let with_share: Vec<DriveId> =
            all.iter().filter(|status| status.places > 0).map(|status| status.drive).collect();
        let drive = with_share[cell.random.index(with_share.len())];
        *self = Death::default();
        cell.members.dead.insert(drive);
        cell.drives.iter().position(|known| known.drive == drive)
    }
}
