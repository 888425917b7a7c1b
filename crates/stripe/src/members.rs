//! Which drives are out, and how that changes: docs/decisions/0013-striping.md, "A member that is lost".
//!
//! A change of who is read and written is made durable first; then the keys of all component partitions change, so
//! that no capability of before is good anywhere but, perhaps, on drives that nobody reads any more; and where
//! one is not to be read any more, as long is waited as clients read by a map without asking whether it is
//! still the present one. Until all that is done nothing else is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLockReadGuard};

use nasd_layout::{Degraded, MemberState};
use nasd_protocol::Status;
use nasd_protocol::drive::{self as wire, ComponentStatus, MAP_LEASE, NO_QUOTA};
use nasd_types::{DriveId, PartitionId, Timestamp};

use crate::components::{Ask, ComponentError, ComponentPartition, Told};
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

/// What was heard of each drive.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<BTreeMap<DriveId, Heard>>);

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
    /// A component drive has answered that it is well, and when it was started; or has not. `now` is the virtual
    /// drive's clock. To be told of each drive some times a second.
    pub fn heard(&self, drive: DriveId, started: Option<Timestamp>, now: Timestamp) {
        self.is_now(now);
        let mut health = self.health.lock();
        // Whoever is not known to be out had all that was done before this striping manager was started.
        let heard = health.entry(drive).or_insert_with(|| Heard { last: now, ..Heard::default() });
        if let Some(started) = started {
            // The first time nobody knows what it was before.
            heard.is_new |= heard.started.replace(started) != Some(started);
            heard.last = now;
            heard.silent_since = None;
            heard.steady_since.get_or_insert(now);
        } else {
            heard.steady_since = None;
            heard.silent_since.get_or_insert(heard.last);
        }
    }

    /// Does what follows from what was heard of the drives: takes those out that are away, and those back that
    /// have returned. To be called some times a second, by one thread.
    pub fn watch(&self, now: Timestamp) {
        self.is_now(now);
        self.change_old_keys();
        let lost = self.lost(now);
        if !lost.is_empty() {
            self.take_out(&lost);
        }
        if self.has_lost_what_it_was_given() {
            self.give_again();
        }
        for drive in self.returned(now) {
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
                capacity_bytes: 0,
                used_bytes: 0,
                objects: progress.objects,
                objects_done: progress.objects_done,
                bytes_done: progress.bytes,
            }
        };
        self.components.drives().into_iter().map(status).collect()
    }

    /// Held while anything is done to objects: who has what does not change meanwhile.
    pub(crate) fn steady(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives that have been silent for too long, and whose columns others have. Where others are silent too that have
    /// the last copy of something, and at the start, it takes longer: they may all be about to come.
    fn lost(&self, now: Timestamp) -> BTreeSet<DriveId> {
        let state = self.state();
        let health = self.health.lock();
        let is_out = |drive: &DriveId| state.absent.get(drive).is_some_and(|it| !it.is_joining);
        let silent_for = |heard: &Heard, long: u64| {
            heard.silent_since.is_some_and(|since| since.0.saturating_add(long) <= now.0)
        };
        let silent = health.iter().filter(|(drive, heard)| silent_for(heard, 0) && !is_out(drive));
        let all: BTreeSet<DriveId> = silent.clone().map(|(drive, _)| *drive).collect();
        let are_others_well = is_whole_without(&state, &all);
        let is_lost = |heard: &Heard| {
            let is_soon = are_others_well && heard.started.is_some();
            silent_for(heard, if is_soon { SILENT_NS } else { LONG_SILENT_NS })
        };
        let silent = silent.filter(|(_, heard)| is_lost(heard));
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

    fn take_out(&self, lost: &BTreeSet<DriveId>) {
        let since: BTreeMap<DriveId, Timestamp> = {
            let health = self.health.lock();
            let last = |drive: &DriveId| health.get(drive).map_or(Timestamp(0), |heard| heard.last);
            lost.iter().map(|drive| (*drive, last(drive))).collect()
        };
        for drive in lost {
            tracing::error!(%drive, "a component drive does not answer: its copies are not used any more");
            // Whoever waits for it should not any more.
            self.components.give_up(*drive);
        }
        let changed = self.change_members(true, |state| {
            for (drive, since) in &since {
                // One that was being given what it lacked lacks that yet.
                let absent = Absence { since: *since, is_joining: false };
                state.absent.entry(*drive).or_insert(absent).is_joining = false;
            }
        });
        self.rebuild.stop();
        if let Err(status) = changed {
            tracing::error!(%status, "that a component drive is out can't be kept");
        }
    }

    /// A drive may lack what it was given, and components that everybody counts on.
    pub(crate) fn give_again(&self) {
        let again = self.change_members(false, |_| {});
        self.rebuild.stop();
        if let Err(status) = again {
            tracing::error!(%status, "component drives can't be given what they lack");
        }
    }

    /// Whether a drive that is joining has been started anew.
    fn has_lost_what_it_was_given(&self) -> bool {
        let state = self.state();
        let mut health = self.health.lock();
        let is_joining = |drive: &DriveId| state.absent.get(drive).is_some_and(|it| it.is_joining);
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
        let partitions: Vec<PartitionId> = self.state().partitions.keys().copied().collect();
        for partition in partitions {
            let partition = component_partition(partition);
            let bytes = self.quota_elsewhere(drive, partition);
            self.components.make_partition(drive, &ComponentPartition { partition, bytes })?;
        }
        let kept = self.change_members(false, |state| {
            if let Some(absence) = state.absent.get_mut(&drive) {
                absence.is_joining = true;
            }
        });
        kept.map_err(ComponentError::Answered)?;
        tracing::info!(%drive, "a component drive is back, and is given what it lacks");
        Ok(())
    }

    /// What another drive may hold of a partition.
    fn quota_elsewhere(&self, drive: DriveId, partition: PartitionId) -> Option<u64> {
        let others = self.present_drives().into_iter().filter(|other| *other != drive);
        let mut controls = others.filter_map(|other| {
            match self.components.ask_one(other, Ask::PartitionControl(partition)) {
                Ok(Told::Control(control)) => Some(control.summary.quota_bytes),
                _ => None,
            }
        });
        Some(controls.next().unwrap_or(NO_QUOTA))
    }

    /// Changes who is read and written; `someone_less` says whether somebody is not to be read any more.
    pub(crate) fn change_members(
        &self,
        someone_less: bool,
        change: impl FnOnce(&mut State),
    ) -> Result<(), Status> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        self.change_state(|state| {
            change(state);
            state.generation += 1;
            for record in state.partitions.values_mut().filter(|record| record.has_copies()) {
                record.epoch += EPOCH_STEP;
            }
            Ok(())
        })?;
        self.joined.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.components.set_epochs(&self.epochs());
        for drive in self.present_drives() {
            self.change_keys(drive);
        }
        if someone_less {
            self.components.pause(MAP_LEASE);
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
        let copied: Vec<PartitionId> = {
            let state = self.state();
            let copied = state.partitions.iter().filter(|(_, record)| record.has_copies());
            copied.map(|(partition, _)| component_partition(*partition)).collect()
        };
        let change = |partition: &PartitionId| self.components.change_key(drive, *partition);
        let changed = copied.iter().try_for_each(change);
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
            let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
            self.change_keys(drive);
        }
    }

    /// After a start: keys may have been changed by half.
    pub(crate) fn change_keys_at_start(&self) -> Result<(), Status> {
        self.components.set_epochs(&self.epochs());
        if !self.state().absent.is_empty() {
            // The striping manager before may have ended before it had waited; and who has been given what
            // by drives that are joining is not known.
            return self.change_members(true, |_| {});
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
        let has_copies = {
            let state = self.state();
            state.partitions.get(&partition).is_some_and(PartitionRecord::has_copies)
        };
        if has_copies { self.present_drives() } else { self.components.drives() }
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
