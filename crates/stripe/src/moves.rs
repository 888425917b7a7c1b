//! Which drives are to have what, and getting there: drives that were added get their share, those that are to leave
//! give all they have, and a spare takes the place of one that has been out for long.
//!
//! A member of a group becomes another drive in three steps. First that drive stands in: it is written as the
//! member is, and not read. When it has been given what the member has it takes its place ([`crate::rebuild`]). Then
//! what the drive before has left of these groups is removed. So nobody waits for a move, and one that is not done
//! can be given up at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_layout::{DriveWeight, GroupId, Move};
use nasd_protocol::Status;
use nasd_protocol::drive::RemoveArguments;
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, Timestamp};

use crate::components::{Ask, ComponentPartition, Told};
use crate::members::Change;
use crate::state::State;
use crate::virtual_drive::{VirtualDrive, component, component_partition, unexpected};

/// Objects that are looked up at a time.
const PAGE: usize = 256;

/// What a component drive is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It has its share.
    #[default]
    Member,
    /// It has nothing, until another one has been out for long.
    Spare,
    /// It gives what it has to others.
    Leaving,
}

/// How component drives are to be used.
#[derive(Clone, Debug)]
pub struct Arrangement {
    /// Those that are not named are members.
    pub roles: BTreeMap<DriveId, Role>,
    /// A drive that has been out for so many nanoseconds is replaced by a spare, if there is one.
    pub replace_after_ns: u64,
    /// Bytes a second that are looked at, at most, to give drives what they lack; 0 for as many as can be.
    pub rebuild_limit: u64,
}

impl Default for Arrangement {
    fn default() -> Self {
        let roles = BTreeMap::new();
        Arrangement { roles, replace_after_ns: 600 * 1_000_000_000, rebuild_limit: 0 }
    }
}

/// Places of groups that a drive can't have: where a group's number is that of an object which it has had, and
/// others have blocks in common with.
#[derive(Debug, Default)]
pub(crate) struct Impossible(Mutex<BTreeSet<(PartitionId, u16, DriveId)>>);

impl Impossible {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(PartitionId, u16, DriveId)>> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VirtualDrive {
    /// From now on component drives are to be used so.
    pub fn set_arrangement(&self, arrangement: Arrangement) {
        *self.arrangement.write().unwrap_or_else(PoisonError::into_inner) = arrangement;
    }

    pub(crate) fn role(&self, drive: DriveId) -> Role {
        let arrangement = self.arrangement.read().unwrap_or_else(PoisonError::into_inner);
        arrangement.roles.get(&drive).copied().unwrap_or_default()
    }

    pub(crate) fn rebuild_limit(&self) -> u64 {
        self.arrangement.read().unwrap_or_else(PoisonError::into_inner).rebuild_limit
    }

    /// Begins what is to be moved, if anything is, and gives up what can't be. To be called every second or so, by the
    /// thread that calls [`VirtualDrive::watch`]. Whether drives lack something that they are to be given
    /// ([`VirtualDrive::rebuild`]).
    pub fn arrange(&self, now: Timestamp) -> bool {
        self.is_now(now);
        if self.give_up_moves() {
            return false;
        }
        let is_under_way = {
            let state = self.state();
            let moving = state.partitions.values().any(|record| !record.moves.is_empty());
            moving || state.absent.values().any(|absence| absence.is_joining)
        };
        if is_under_way {
            return true;
        }
        let Some(weights) = self.weights(now) else { return false };
        match self.begin_moves(&weights) {
            Ok(0) => false,
            Ok(moves) => {
                tracing::info!(moves, "members of groups begin to move");
                true
            }
            Err(status) => {
                tracing::warn!(%status, "members of groups can't move yet");
                false
            }
        }
    }

    /// How much of everything each drive is to have; `None` while that can't be told.
    fn weights(&self, now: Timestamp) -> Option<Vec<DriveWeight>> {
        let (roles, replace_after_ns) = {
            let arrangement = self.arrangement.read().unwrap_or_else(PoisonError::into_inner);
            (arrangement.roles.clone(), arrangement.replace_after_ns)
        };
        let role = |drive: &DriveId| roles.get(drive).copied().unwrap_or_default();
        let drives = self.components.drives();
        let absent = self.state().absent.clone();
        // Of drives that have nothing yet, those that don't answer get nothing.
        let is_of_use = |drive: &DriveId| {
            !absent.contains_key(drive) && (self.has_places(*drive) || !self.is_silent(*drive))
        };
        let spares = drives.iter().filter(|drive| role(drive) == Role::Spare);
        let spares: Vec<DriveId> = spares.copied().filter(is_of_use).collect();
        let mut needed = 0;
        let mut weights = Vec::with_capacity(drives.len());
        for drive in drives.iter().filter(|drive| role(drive) != Role::Spare) {
            let is_leaving = role(drive) == Role::Leaving;
            let weight = match absent.get(drive) {
                _ if is_leaving => 0,
                Some(absence) => {
                    let is_long = absence.since.0.saturating_add(replace_after_ns) <= now.0;
                    needed += 1;
                    if !is_long || needed > spares.len() {
                        // It may be back any time: nothing moves before.
                        return None;
                    }
                    0
                }
                None if !is_of_use(drive) => continue,
                None => self.capacity(*drive)?,
            };
            weights.push(DriveWeight { drive: *drive, weight });
        }
        for drive in spares.into_iter().take(needed) {
            weights.push(DriveWeight { drive, weight: self.capacity(drive)? });
        }
        Some(weights)
    }

    fn has_places(&self, drive: DriveId) -> bool {
        Self::share(&self.state(), drive).members > 0
    }

    /// How many members begin to move.
    fn begin_moves(&self, weights: &[DriveWeight]) -> Result<usize, Status> {
        let mut planned: BTreeMap<PartitionId, Vec<Move>> = BTreeMap::new();
        {
            let impossible = self.impossible.lock();
            let state = self.state();
            for (partition, record) in &state.partitions {
                let can_be_in = |group: GroupId, drive: DriveId| {
                    !impossible.contains(&(*partition, group.0, drive))
                };
                match record.groups.rebalance(weights, can_be_in) {
                    Ok(moves) => planned.insert(*partition, single(moves)),
                    Err(error) => {
                        // What is to be moved elsewhere stays where it is.
                        tracing::debug!(%error, %partition, "nothing can be moved");
                        continue;
                    }
                };
            }
        }
        planned.retain(|_, moves| !moves.is_empty());
        let mut count = 0;
        for (partition, moves) in &planned {
            count += moves.len();
            let made = component_partition(*partition);
            let takers: BTreeSet<DriveId> = moves.iter().map(|step| step.to).collect();
            for drive in takers {
                self.components.call_again(drive);
                let bytes = self.quota_elsewhere(drive, made);
                let wanted = ComponentPartition { partition: made, bytes };
                let told = self.components.make_partition(drive, &wanted);
                told.map_err(|error| error.status())?;
            }
        }
        if count > 0 {
            self.change_members(Change::More, |state| {
                for (partition, moves) in planned {
                    if let Some(record) = state.partitions.get_mut(&partition) {
                        record.add_moves(moves);
                    }
                }
            })?;
            self.rebuild.stop();
        }
        Ok(count)
    }

    /// A drive can't have the group of an object.
    pub(crate) fn keep_place(&self, name: ObjectName, drive: DriveId) {
        let group = {
            let state = self.state();
            let record = state.partitions.get(&name.partition);
            record.map(|record| record.groups.group_of(name.object).0)
        };
        if let Some(group) = group {
            self.impossible.lock().insert((name.partition, group, drive));
        }
    }

    /// Gives up moves to drives that are away, or not to have anything any more, or can't have it. Whether there were
    /// any.
    fn give_up_moves(&self) -> bool {
        let impossible = self.impossible.lock().clone();
        let takers: BTreeSet<DriveId> = {
            let state = self.state();
            let moves = state.partitions.values().flat_map(|record| &record.moves);
            moves.map(|step| step.to).collect()
        };
        let known = self.components.drives();
        let is_bad = |drive: &DriveId| {
            !known.contains(drive) || self.role(*drive) == Role::Leaving || self.is_silent(*drive)
        };
        let bad: BTreeSet<DriveId> = takers.into_iter().filter(is_bad).collect();
        let is_wrong = |partition: PartitionId, step: &Move| {
            bad.contains(&step.to) || impossible.contains(&(partition, step.group.0, step.to))
        };
        let wrong: BTreeSet<DriveId> = {
            let state = self.state();
            let records = state.partitions.iter();
            let moves = records.flat_map(|(partition, record)| {
                record.moves.iter().filter(|step| is_wrong(*partition, step))
            });
            moves.map(|step| step.to).collect()
        };
        if wrong.is_empty() {
            return false;
        }
        tracing::warn!(drives = ?wrong, "something is not moved to component drives after all");
        let told = self.change_members(Change::More, |state| {
            for (partition, record) in &mut state.partitions {
                record.moves.retain(|step| !is_wrong(*partition, step));
            }
            state.strays.extend(&wrong);
        });
        self.rebuild.stop();
        if let Err(status) = told {
            tracing::error!(%status, "that nothing is moved to a component drive can't be kept");
        }
        true
    }

    /// Removes something that drives have kept of what is elsewhere now. Whether there was anything to do. To be
    /// called now and then, by one thread.
    pub fn sweep(&self) -> bool {
        let (drives, generation): (Vec<DriveId>, u64) = {
            let state = self.state();
            let is_present = |drive: &DriveId| !state.absent.contains_key(drive);
            (state.strays.iter().copied().filter(is_present).collect(), state.generation)
        };
        let known = self.components.drives();
        let Some(drive) = drives.into_iter().find(|drive| !self.is_silent(*drive)) else {
            return false;
        };
        let swept = match known.contains(&drive) {
            true => self.sweep_drive(drive),
            // Nobody will ever ask it again.
            false => Ok(()),
        };
        if let Err(status) = &swept {
            tracing::debug!(%drive, %status, "what a drive has kept can't be removed yet");
            return false;
        }
        let changed = self.change_state(|state| {
            // What was looked at may be elsewhere since.
            if state.generation == generation {
                state.strays.remove(&drive);
            }
            Ok(())
        });
        changed.is_ok()
    }

    fn sweep_drive(&self, drive: DriveId) -> Result<(), Status> {
        let partitions: Vec<PartitionId> = self.state().partitions.keys().copied().collect();
        for partition in partitions {
            let mut from = ObjectId::FIRST_OBJECT;
            loop {
                let list =
                    Ask::List { partition: component_partition(partition), from, most: PAGE };
                let objects = match self.components.ask_one(drive, list) {
                    Ok(Told::Objects(objects)) => objects,
                    Ok(other) => return Err(unexpected(&other).status()),
                    // It never had any of it.
                    Err(error) if error.status() == Status::NoSuchPartition => break,
                    Err(error) => return Err(error.status()),
                };
                for object in &objects {
                    self.sweep_object(ObjectName { partition, object: *object }, drive)?;
                }
                match objects.last().filter(|_| objects.len() >= PAGE) {
                    Some(last) => from = ObjectId(last.0 + 1),
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Removes a component, unless it is where it belongs.
    fn sweep_object(&self, name: ObjectName, drive: DriveId) -> Result<(), Status> {
        let _steady = self.steady();
        let _alone = self.lock(name);
        if name.object == ObjectId::FIRST_OBJECT || self.place(name)?.members.contains(&drive) {
            return Ok(());
        }
        // The drive may get it once more, which it refuses before the removal is durable.
        let remove = RemoveArguments { name: component(name), durable: true };
        match self.components.ask_one(drive, Ask::Remove(remove)) {
            Ok(_) => Ok(()),
            Err(error) if error.is_missing() => Ok(()),
            Err(error) => Err(error.status()),
        }
    }

    /// How many members of groups a drive is, is about to become, and is about to be no more.
    pub(crate) fn share(state: &State, drive: DriveId) -> Share {
        let mut share = Share::default();
        for record in state.partitions.values() {
            let members = record.groups.all_members().iter();
            let members = members.filter(|member| **member == drive).count();
            share.members += members;
            share.width = share.width.max(if members > 0 { record.shape.width() } else { 0 });
            share.coming += record.moves.iter().filter(|step| step.to == drive).count();
            share.going += record.moves.iter().filter(|step| step.from == drive).count();
        }
        share
    }
}

/// A drive's part of the groups of all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) members: usize,
    pub(crate) coming: usize,
    pub(crate) going: usize,
    /// Of the widest of the groups that it is a member of.
    pub(crate) width: u16,
}

/// Moves of which none goes on from where another one ends: that comes later. Nor does a drive come into a group
/// before it has left another place of that.
fn single(moves: Vec<Move>) -> Vec<Move> {
    let mut seen: BTreeSet<(u16, usize)> = BTreeSet::new();
    let mut first: BTreeSet<(u16, DriveId)> = BTreeSet::new();
    let mut kept = Vec::with_capacity(moves.len());
    for step in moves {
        let is_new = seen.insert((step.group.0, step.member));
        let is_there = first.contains(&(step.group.0, step.to));
        first.extend([(step.group.0, step.from), (step.group.0, step.to)]);
        if is_new && !is_there {
            kept.push(step);
        }
    }
    kept
}
