//! Which drives are out, and how that changes: docs/decisions/0013-striping.md, "A member that is lost".
//!
//! A change of who is read and written is made durable first; then the keys of all component partitions change, so
//! that no capability of before is good anywhere but, perhaps, on drives that nobody reads any more; and where
//! one is not to be read any more, as long is waited as clients read by a map without asking whether it is
//! still the present one. Until all that is done nothing else is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard};

use nasd_layout::{Degraded, MemberState, Move};
use nasd_protocol::Status;
use nasd_protocol::drive::{self as wire, ComponentRole, ComponentStatus, MAP_LEASE, NO_QUOTA};
use nasd_types::{DriveId, PartitionId, Timestamp};

use crate::components::{Ask, ComponentError, ComponentPartition, Told};
use crate::doubts::Newcomers;
use crate::limping::Probe;
use crate::moves::{Role, Share};
use crate::rebuild::RebuildProgress;
use crate::state::{Absence, FIRST_EPOCH, PartitionRecord, State};
use crate::virtual_drive::{VirtualDrive, component_partition};

/// A drive that has not answered for so long is out, if others have what it has.
const SILENT_NS: u64 = 2_000_000_000;

/// The same where it is not the only one.
const LONG_SILENT_NS: u64 = 12_000_000_000;

/// One that answers again for so long is taken back.
const STEADY_NS: u64 = 1_000_000_000;

/// Keys are two numbers apart: setting both leaves a drive with no key that capabilities were made with before.
const EPOCH_STEP: u32 = 2;

/// What becomes of who is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Somebody is written besides.
    More,
    /// Somebody is not read any more.
    Less,
}

/// What was heard of each drive.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<DriveId, Heard>>);

/// What a component drive tells of itself when it is asked how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    /// When it was started, by its own clock.
    pub started: Timestamp,
    /// Bytes that it can hold.
    pub capacity_bytes: u64,
    /// Blocks that it has found, by itself, not to be what was written, since it was started.
    pub bad_blocks: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// When it answered last that it is well; or, if it never has, when that was asked first.
    last: Timestamp,
    /// Since when it has answered each time.
    steady_since: Option<Timestamp>,
    /// Since when it has not.
    silent_since: Option<Timestamp>,
    /// When it was started, by its own clock.
    started: Option<Timestamp>,
    /// What it can hold, when it told last.
    capacity_bytes: u64,
    /// Whether it has been started anew since somebody looked.
    is_new: bool,
    /// Whether its keys may be those of before.
    has_old_keys: bool,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DriveId, Heard>> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VirtualDrive {
    /// A component drive has answered that it is well; or has not. `now` is the virtual drive's clock. To be told of
    /// each drive some times a second.
    pub fn heard(&self, drive: DriveId, sign: Option<Sign>, now: Timestamp) {
        self.is_now(now);
        let mut health = self.health.lock();
        // Whoever is not known to be out had all that was done before this striping manager was started.
        let heard = health.entry(drive).or_insert_with(|| Heard { last: now, ..Heard::default() });
        if let Some(Sign { started, capacity_bytes, bad_blocks }) = sign {
            self.suspects.heard(drive, bad_blocks);
            // The first time nobody knows what it was before.
            heard.is_new |= heard.started.replace(started) != Some(started);
            heard.capacity_bytes = capacity_bytes;
            heard.last = now;
            heard.silent_since = None;
            heard.steady_since.get_or_insert(now);
        } else {
            heard.steady_since = None;
            heard.silent_since.get_or_insert(heard.last);
        }
    }

    /// Something was heard of a small durable write to a component drive, of which there is to be one every second or so.
    pub fn probed(&self, drive: DriveId, probe: Probe, now: Timestamp) {
        self.limping.heard(drive, probe, now);
    }

    /// Does what follows from what was heard of the drives: takes those out that are away, and those back that
    /// have returned. To be called some times a second, by one thread.
    pub fn watch(&self, now: Timestamp) {
        self.is_now(now);
        self.forget_drives();
        self.change_old_keys();
        let limping = self.limping.watch(now);
        let lost = self.lost(&limping, now);
        if !lost.is_empty() {
            self.take_out(&lost, &limping);
        }
        if self.has_lost_what_it_was_given() {
            self.give_again();
        }
        let returned = self.returned(now).into_iter();
        for drive in returned.filter(|drive| !limping.contains(drive)) {
            if let Err(error) = self.take_back(drive) {
                tracing::warn!(%drive, %error, "a component drive can't be taken back yet");
            }
        }
    }

    /// The component drives; what they tell of their room is for others to find out.
    pub fn component_status(&self) -> Vec<ComponentStatus> {
        let rebuild = self.rebuild_progress();
        let state = self.state();
        let health = self.health.lock();
        let status = |drive: DriveId| {
            let share = Self::share(&state, drive);
            let absence = state.absent.get(&drive);
            let given = rebuild.as_ref().filter(|(drives, _)| drives.contains(&drive));
            let progress = given.map_or_else(RebuildProgress::default, |(_, progress)| *progress);
            ComponentStatus {
                drive,
                address: self.components.address(drive),
                reachable: health.get(&drive).is_none_or(|heard| heard.silent_since.is_none()),
                state: match absence {
                    None => wire::MemberState::Current,
                    Some(absence) if absence.is_joining => wire::MemberState::Joining,
                    Some(_) => wire::MemberState::Out,
                },
                since: absence.map_or(Timestamp(0), |absence| absence.since),
                capacity_bytes: health.get(&drive).map_or(0, |heard| heard.capacity_bytes),
                used_bytes: 0,
                objects: progress.objects,
                objects_done: progress.objects_done,
                bytes_done: progress.bytes,
                seconds_left: progress.seconds_left,
                role: match self.role(drive) {
                    Role::Member => ComponentRole::Member,
                    Role::Spare => ComponentRole::Spare,
                    Role::Leaving => ComponentRole::Leaving,
                },
                places: share.members as u32,
                places_coming: share.coming as u32,
                places_going: share.going as u32,
                width: share.width.into(),
                complaint: self.limping.complaint(drive),
            }
        };
        self.components.drives().into_iter().map(status).collect()
    }

    /// What a drive can hold, if it has told.
    pub(crate) fn capacity(&self, drive: DriveId) -> Option<u64> {
        let health = self.health.lock();
        health.get(&drive).map(|heard| heard.capacity_bytes).filter(|bytes| *bytes > 0)
    }

    /// Whether a drive has not answered for a while.
    pub(crate) fn is_silent(&self, drive: DriveId) -> bool {
        let now = self.now();
        let health = self.health.lock();
        let since = health.get(&drive).and_then(|heard| heard.silent_since);
        since.is_some_and(|since| since.0.saturating_add(SILENT_NS) <= now.0)
    }

    /// Nothing is expected of drives that are component drives no more.
    fn forget_drives(&self) {
        let known = self.components.drives();
        self.health.lock().retain(|drive, _| known.contains(drive));
        self.limping.keep(&known);
        self.suspects.keep(&known);
        let is_gone = |drive: &DriveId| !known.contains(drive);
        if self.state().absent.keys().any(is_gone) {
            let kept = self.change_state(|state| {
                let has_nothing = |drive: &DriveId| Self::share(state, *drive) == Share::default();
                let gone = state.absent.keys().copied().filter(is_gone).filter(has_nothing);
                let gone: Vec<DriveId> = gone.collect();
                state.absent.retain(|drive, _| !gone.contains(drive));
                Ok(())
            });
            if let Err(status) = kept {
                tracing::error!(%status, "that a component drive is gone can't be kept");
            }
        }
    }

    /// Held while anything is done to objects: who has what does not change meanwhile.
    pub(crate) fn steady(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.shared(&*self.components)
    }

    /// Drives that limp or have been silent for too long, and whose columns others have. Where others are silent too that have
    /// the last copy of something, and at the start, it takes longer: they may all be about to come.
    fn lost(&self, limping: &BTreeSet<DriveId>, now: Timestamp) -> BTreeSet<DriveId> {
        let state = self.state();
        let health = self.health.lock();
        let is_out = |drive: &DriveId| state.absent.get(drive).is_some_and(|it| !it.is_joining);
        let silent_for = |heard: &Heard, long: u64| {
            heard.silent_since.is_some_and(|since| since.0.saturating_add(long) <= now.0)
        };
        // What nobody reads can't be lost; who was about to have it is given up.
        let has_any = |drive: &DriveId| {
            let copied = state.partitions.values().filter(|record| record.has_copies());
            copied.flat_map(|record| record.groups.all_members()).any(|member| member == drive)
        };
        let is_candidate = |(drive, heard): &(&DriveId, &Heard)| {
            let may_be = silent_for(heard, 0) || limping.contains(drive);
            may_be && !is_out(drive) && has_any(drive)
        };
        let silent = health.iter().filter(is_candidate);
        let all: BTreeSet<DriveId> = silent.clone().map(|(drive, _)| *drive).collect();
        let are_others_well = is_whole_without(&state, &all);
        let is_lost = |heard: &Heard| {
            let is_soon = are_others_well && heard.started.is_some();
            silent_for(heard, if is_soon { SILENT_NS } else { LONG_SILENT_NS })
        };
        let silent = silent.filter(|(drive, heard)| limping.contains(drive) || is_lost(heard));
        let mut silent: Vec<_> = silent.map(|(drive, heard)| (heard.last, *drive)).collect();
        // Whoever has been away for longer goes first.
        silent.sort_unstable();
        let mut lost = BTreeSet::new();
        for (_, drive) in silent {
            lost.insert(drive);
            if !is_whole_without(&state, &lost) {
                lost.remove(&drive);
            }
        }
        lost
    }

    fn take_out(&self, lost: &BTreeSet<DriveId>, limping: &BTreeSet<DriveId>) {
        let since: BTreeMap<DriveId, Timestamp> = {
            let health = self.health.lock();
            let last = |drive: &DriveId| health.get(drive).map_or(Timestamp(0), |heard| heard.last);
            lost.iter().map(|drive| (*drive, last(drive))).collect()
        };
        for drive in lost {
            let complaint = self.limping.complaint(*drive);
            tracing::error!(%drive, ?complaint, "a component drive is out: its copies are not used any more");
            // Whoever waits for it should not any more.
            self.components.give_up(*drive);
            self.keeper.give_up(*drive);
        }
        let changed = self.change_members(Change::Less, |state| {
            let health = self.health.lock();
            // It may have taken long until nothing else went on, and another one may be lost since.
            let is_well = |drive: &DriveId| {
                let heard = health.get(drive).is_some_and(|heard| heard.silent_since.is_none());
                heard && !limping.contains(drive)
            };
            for (drive, since) in since.iter().filter(|(drive, _)| !is_well(drive)) {
                // One that was being given what it lacked lacks that yet.
                let absent = Absence { since: *since, is_joining: false };
                state.absent.entry(*drive).or_insert(absent).is_joining = false;
            }
        });
        self.rebuild.stop();
        if let Err(status) = changed {
            tracing::error!(%status, "that a component drive is out can't be kept");
        }
        let absent = self.state().absent.clone();
        let is_out = |drive: &DriveId| absent.get(drive).is_some_and(|it| !it.is_joining);
        for drive in lost.iter().filter(|drive| !is_out(drive)) {
            tracing::warn!(%drive, "a component drive is not out after all");
            self.components.call_again(*drive);
            self.keeper.call_again(*drive);
        }
    }

    /// A drive may lack what it was given, and components that everybody counts on.
    pub(crate) fn give_again(&self) {
        let again = self.change_members(Change::More, |_| {});
        self.rebuild.stop();
        if let Err(status) = again {
            tracing::error!(%status, "component drives can't be given what they lack");
        }
    }

    /// Whether a drive that is joining has been started anew.
    fn has_lost_what_it_was_given(&self) -> bool {
        let state = self.state();
        let mut health = self.health.lock();
        let is_joining = |drive: &DriveId| {
            let is_back = state.absent.get(drive).is_some_and(|it| it.is_joining);
            let mut moves = state.partitions.values().flat_map(|record| &record.moves);
            is_back || moves.any(|step| step.to == *drive)
        };
        let mut any = false;
        for (drive, heard) in health.iter_mut() {
            any |= std::mem::take(&mut heard.is_new) && is_joining(drive);
        }
        any
    }

    /// Drives that are out, and have answered for a while.
    fn returned(&self, now: Timestamp) -> Vec<DriveId> {
        let state = self.state();
        let health = self.health.lock();
        let out = state.absent.iter().filter(|(_, absence)| !absence.is_joining);
        let steady = out.filter(|(drive, _)| {
            let since = health.get(drive).and_then(|heard| heard.steady_since);
            since.is_some_and(|since| since.0 + STEADY_NS <= now.0)
        });
        steady.map(|(drive, _)| *drive).collect()
    }

    /// From now on the drive is written; it is read when it has been given what it lacks.
    fn take_back(&self, drive: DriveId) -> Result<(), ComponentError> {
        self.components.call_again(drive);
        self.keeper.call_again(drive);
        let partitions: Vec<PartitionId> = self.state().partitions.keys().copied().collect();
        for partition in partitions {
            let partition = component_partition(partition);
            let bytes = self.quota_elsewhere(drive, partition);
            self.components.make_partition(drive, &ComponentPartition { partition, bytes })?;
        }
        let kept = self.change_members(Change::More, |state| {
            if let Some(absence) = state.absent.get_mut(&drive) {
                absence.is_joining = true;
            }
        });
        kept.map_err(ComponentError::Answered)?;
        tracing::info!(%drive, "a component drive is back, and is given what it lacks");
        Ok(())
    }

    /// What another drive may hold of a partition.
    pub(crate) fn quota_elsewhere(&self, drive: DriveId, partition: PartitionId) -> Option<u64> {
        let others = self.present_drives().into_iter().filter(|other| *other != drive);
        let mut controls = others.filter_map(|other| {
            match self.components.ask_one(other, Ask::PartitionControl(partition)) {
                Ok(Told::Control(control)) => Some(control.summary.quota_bytes),
                _ => None,
            }
        });
        Some(controls.next().unwrap_or(NO_QUOTA))
    }

    /// Changes who is read and written.
    pub(crate) fn change_members(
        &self,
        kind: Change,
        change: impl FnOnce(&mut State),
    ) -> Result<(), Status> {
        let _alone = self.changing.alone(&*self.components);
        self.renew_keys(change)?;
        if kind == Change::Less {
            self.components.pause(MAP_LEASE);
        }
        Ok(())
    }

    /// Has the drives that have been given all take their places, and those that moved from there be members no more,
    /// if `end` says so when nothing else goes on. Whoever was to read the drives before can't any more, or is asked
    /// every second whether he still may.
    pub(crate) fn replace_members(
        &self,
        takers: &BTreeSet<DriveId>,
        end: impl FnOnce() -> bool,
    ) -> Result<bool, Status> {
        let _alone = self.changing.alone(&*self.components);
        self.renew_keys(|_| {})?;
        let is_taken = |step: &&Move| takers.contains(&step.to);
        let givers: BTreeSet<DriveId> = {
            let state = self.state();
            let moves = state.partitions.values().flat_map(|record| &record.moves);
            let givers = moves.filter(is_taken).map(|step| step.from);
            givers.filter(|drive| !state.absent.contains_key(drive)).collect()
        };
        let has_old_keys =
            |drive: &DriveId| self.health.lock().get(drive).is_some_and(|heard| heard.has_old_keys);
        if givers.iter().any(has_old_keys) {
            return Err(Status::Busy);
        }
        if !end() {
            return Ok(false);
        }
        let newcomers = self.change_state(|state| {
            let newcomers = Newcomers::of(state, takers);
            state.generation += 1;
            state.absent.retain(|drive, absence| !(absence.is_joining && takers.contains(drive)));
            for record in state.partitions.values_mut() {
                let done: Vec<Move> =
                    record.moves.extract_if(.., |step| is_taken(&&*step)).collect();
                for step in done {
                    record.groups.apply(&step);
                    state.strays.insert(step.from);
                }
            }
            Ok(newcomers)
        })?;
        self.doubt(&newcomers);
        self.instances.are_others();
        Ok(true)
    }

    /// Makes a change durable, and all keys with which clients reach components others.
    fn renew_keys(&self, change: impl FnOnce(&mut State)) -> Result<(), Status> {
        self.change_state(|state| {
            let guarded = |state: &State| -> BTreeSet<PartitionId> {
                let guarded = state.partitions.iter().filter(|(_, record)| record.is_guarded());
                guarded.map(|(partition, _)| *partition).collect()
            };
            let before = guarded(state);
            change(state);
            state.generation += 1;
            for partition in before.union(&guarded(state)) {
                if let Some(record) = state.partitions.get_mut(partition) {
                    record.epoch += EPOCH_STEP;
                }
            }
            Ok(())
        })?;
        self.instances.are_others();
        self.joined.clear();
        self.components.set_epochs(&self.epochs());
        for drive in self.present_drives() {
            self.change_keys(drive);
        }
        Ok(())
    }

    /// The numbers of the working keys of component partitions.
    pub(crate) fn epochs(&self) -> BTreeMap<PartitionId, u32> {
        let state = self.state();
        let epochs = state.partitions.iter();
        epochs.map(|(partition, it)| (component_partition(*partition), it.epoch)).collect()
    }

    /// Gives a drive the present keys; if it does not answer, later.
    fn change_keys(&self, drive: DriveId) {
        let its: Vec<PartitionId> = {
            let state = self.state();
            let has_strays = state.strays.contains(&drive);
            let its = state.partitions.iter();
            let its = its.filter(|(_, record)| has_strays || record.drives().contains(&drive));
            its.map(|(partition, _)| component_partition(*partition)).collect()
        };
        let change = |partition: &PartitionId| match self.components.change_key(drive, *partition) {
            // It has never had any of it.
            Err(error) if error.status() == Status::NoSuchPartition => Ok(()),
            changed => changed,
        };
        let changed = its.iter().try_for_each(change);
        if let Err(error) = &changed {
            tracing::warn!(%drive, %error, "the keys of a component drive can't be changed yet");
        }
        self.health.lock().entry(drive).or_default().has_old_keys = changed.is_err();
    }

    /// Gives those drives the present keys that did not answer when these were changed.
    fn change_old_keys(&self) {
        let has_old_keys = |heard: &Heard| heard.has_old_keys && heard.silent_since.is_none();
        let drives: Vec<DriveId> = {
            let health = self.health.lock();
            let those = health.iter().filter(|(_, heard)| has_old_keys(heard));
            those.map(|(drive, _)| *drive).collect()
        };
        for drive in drives {
            let _alone = self.changing.alone(&*self.components);
            self.change_keys(drive);
        }
    }

    /// After a start: keys may have been changed by half.
    pub(crate) fn change_keys_at_start(&self) -> Result<(), Status> {
        self.components.set_epochs(&self.epochs());
        let is_changing = {
            let state = self.state();
            let mut records = state.partitions.values();
            !state.absent.is_empty() || records.any(|record| !record.moves.is_empty())
        };
        if is_changing {
            // The striping manager before may have ended before it had waited; and who has been given what
            // by drives that are joining is not known.
            return self.change_members(Change::Less, |_| {});
        }
        for drive in self.present_drives() {
            self.health.lock().entry(drive).or_default().has_old_keys = true;
        }
        Ok(())
    }

    /// The drives that are not out.
    pub(crate) fn present_drives(&self) -> Vec<DriveId> {
        let state = self.state();
        let is_out = |drive: &DriveId| state.absent.get(drive).is_some_and(|it| !it.is_joining);
        self.components.drives().into_iter().filter(|drive| !is_out(drive)).collect()
    }

    /// The drives that are asked about all of a partition.
    pub(crate) fn drives_of(&self, partition: PartitionId) -> Vec<DriveId> {
        let state = self.state();
        let Some(record) = state.partitions.get(&partition) else { return Vec::new() };
        let is_out = |drive: &DriveId| state.absent.get(drive).is_some_and(|it| !it.is_joining);
        let has_copies = record.has_copies();
        record.drives().into_iter().filter(|drive| !(has_copies && is_out(drive))).collect()
    }
}

/// The number of the working keys of a new partition: each change of members raises the generation by one, and all
/// such numbers by [`EPOCH_STEP`].
pub(crate) fn first_epoch(generation: u64) -> u32 {
    let changes = u32::try_from(generation).unwrap_or(u32::MAX / 4);
    FIRST_EPOCH.saturating_add(changes.saturating_mul(EPOCH_STEP))
}

/// Whether each byte of each partition that has copies can be read without these drives; and whether that is
/// of use to any.
fn is_whole_without(state: &State, lost: &BTreeSet<DriveId>) -> bool {
    let copied: Vec<_> = state.partitions.values().filter(|it| it.has_copies()).collect();
    let member_state = |drive: &DriveId| match state.absent.get(drive) {
        _ if lost.contains(drive) => MemberState::Out,
        Some(absence) => absence.member_state(),
        None => MemberState::Current,
    };
    let is_whole = |record: &&PartitionRecord| {
        record.groups.groups().all(|group| {
            let members = record.groups.members(group);
            let states: Vec<_> = members.iter().map(member_state).collect();
            Degraded::new(record.shape, &states).is_whole()
        })
    };
    !copied.is_empty() && copied.iter().all(is_whole)
}
