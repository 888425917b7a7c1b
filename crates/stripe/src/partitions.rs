//! Partitions of the virtual drive: one on each component drive, a table of groups, and their sum.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use nasd_drive::Facts;
use nasd_layout::{DriveWeight, Shape};
use nasd_protocol::Status;
use nasd_protocol::drive::{
    ExtensionJob, ExtensionWork, GetattrArguments, MemberState, NO_QUOTA, PartitionControl,
    SetstripingArguments,
};
use nasd_protocol::limits::MAX_EXTENSION_JOBS;
use nasd_store::{PartitionSpace, Space};
use nasd_types::{DriveId, ObjectId, ObjectName, PartitionId, SetAttributes};

use crate::append::is_journal;
use crate::attributes::setattr;
use crate::components::{Answer, Ask, ComponentPartition, Told};
use crate::members::first_epoch;
use crate::moves::{Role, Share};
use crate::state::PartitionRecord;
use crate::version::ComponentVersion;
use crate::virtual_drive::{
    VirtualDrive, attributes, component, component_partition, partition_of_components, unexpected,
};

/// Adds what the extensions of a component drive do to that of others, under the names that objects have here. It may have
/// partitions that are others'.
fn add_work(all: &mut ExtensionWork, of_drive: ExtensionWork) {
    all.memory_bytes = all.memory_bytes.saturating_add(of_drive.memory_bytes);
    all.granted_bytes = all.granted_bytes.saturating_add(of_drive.granted_bytes);
    let jobs = of_drive.jobs.into_iter().filter_map(|job| {
        let partition = partition_of_components(job.partition)?;
        Some(ExtensionJob { partition, ..job })
    });
    all.jobs.extend(jobs);
    all.jobs.sort_by_key(|job| (job.running == 0, u64::MAX - job.age));
    all.jobs.truncate(MAX_EXTENSION_JOBS);
}

impl VirtualDrive {
    pub(crate) fn create_partition_whole(&self, partition: PartitionId) -> Result<(), Status> {
        let width = self.width_of(self.options.width);
        let shape = Shape::new(self.options.unit, width, self.options.copies);
        let record = self.record_of(shape.map_err(|_| Status::BadArgument)?)?;
        let (made, bytes) = (component_partition(partition), Some(0));
        let wanted = ComponentPartition { partition: made, bytes };
        let mut epochs = self.epochs();
        epochs.insert(made, record.epoch);
        self.components.set_epochs(&epochs);
        let present = self.present_drives();
        let has_copies = record.has_copies();
        // One that is out gets it when it is back.
        let is_there = |drive: &DriveId| !has_copies || present.contains(drive);
        for drive in record.drives().into_iter().filter(is_there) {
            let made = self.components.make_partition(drive, &wanted);
            made.map_err(|error| error.status())?;
        }
        self.change_state(|state| {
            state.partitions.insert(partition, record);
            Ok(())
        })?;
        self.prepare_first_object(partition)
    }

    /// Makes a partition that the virtual drive has in its store on the component drives, unless that was done.
    ///
    /// # Errors
    ///
    /// Why that can't be done.
    pub fn adopt_partition(&self, partition: PartitionId, quota_bytes: u64) -> Result<(), Status> {
        if self.state().partitions.contains_key(&partition) {
            return Ok(());
        }
        self.create_partition_whole(partition)?;
        self.resize_partition_whole(partition, quota_bytes)
    }

    /// The First Object, which each component drive has made by itself, begins as other objects do.
    fn prepare_first_object(&self, partition: PartitionId) -> Result<(), Status> {
        let name = ObjectName { partition, object: ObjectId::FIRST_OBJECT };
        let place = self.place(name)?;
        self.note_writing(name, &place);
        let version = ComponentVersion::of(1, false, place.has_copies());
        // No version falls, and any drive may have had a home component of it before.
        let highest = self.highest_version(name)?;
        let version = match highest < version {
            true => version,
            false => highest.above(place.has_copies()),
        };
        let changes =
            SetAttributes { access_control_version: Some(version.0), ..SetAttributes::default() };
        let questions =
            place.homes().iter().map(|drive| (*drive, setattr(name, changes.clone(), true)));
        for answer in self.components.ask(questions.collect()) {
            answer.map_err(|error| error.status())?;
        }
        self.versions.put(name, version);
        Ok(())
    }

    /// The highest version of an object that each drive has a component of.
    fn highest_version(&self, name: ObjectName) -> Result<ComponentVersion, Status> {
        let drives = self.drives_of(name.partition).into_iter();
        let ask = Ask::Getattr(GetattrArguments { name: component(name) });
        let answers = self.components.ask(drives.map(|drive| (drive, ask.clone())).collect());
        let told: Result<Vec<_>, _> = answers.into_iter().map(attributes).collect();
        let told = told.map_err(|error| error.status())?;
        let highest = told.iter().map(|told| told.access_control_version).max();
        Ok(ComponentVersion(highest.unwrap_or_default()))
    }

    /// How many drives an object lies on; 0 for all that have a share.
    fn width_of(&self, wanted: u16) -> u16 {
        let drives = self.components.drives().into_iter();
        let all = drives.filter(|drive| self.role(*drive) == Role::Member).count();
        let all = u16::try_from(all).unwrap_or(u16::MAX).min(Shape::MAX_WIDTH);
        if wanted == 0 { all } else { wanted }
    }

    fn record_of(&self, shape: Shape) -> Result<PartitionRecord, Status> {
        // By what they can hold, as `arrange` would have it; alike where one of them has not told yet.
        let drives = self.components.drives();
        let is_member = |drive: &DriveId| self.role(*drive) == Role::Member;
        let all_told =
            drives.iter().filter(|it| is_member(it)).all(|it| self.capacity(*it).is_some());
        let weight = |drive: DriveId| {
            let weight = match is_member(&drive) {
                true if all_told => self.capacity(drive).unwrap_or(1),
                is_member => u64::from(is_member),
            };
            DriveWeight { drive, weight }
        };
        let drives: Vec<_> = drives.into_iter().map(weight).collect();
        let record = PartitionRecord::draw(shape, &drives).map_err(|error| {
            tracing::error!(%error, "no partition can be spread so");
            Status::BadArgument
        })?;
        // Higher than any that a partition of the same number had before.
        let epoch = first_epoch(self.state().generation);
        Ok(PartitionRecord { epoch, ..record })
    }

    pub(crate) fn remove_partition_whole(&self, partition: PartitionId) -> Result<(), Status> {
        // One that is out keeps what it has of it.
        for drive in self.present_drives() {
            let removed = self.components.remove_partition(drive, component_partition(partition));
            removed.map_err(|error| error.status())?;
        }
        self.versions.forget_all();
        self.alone.forget_all();
        self.journals.forget_all();
        self.change_state(|state| {
            state.partitions.remove(&partition);
            Ok(())
        })?;
        self.writers.forget_partition(partition);
        self.joined.clear();
        Ok(())
    }

    /// Gives each component drive its share of what the partition may hold, with all copies.
    pub(crate) fn resize_partition_whole(
        &self,
        partition: PartitionId,
        bytes: u64,
    ) -> Result<(), Status> {
        let (copies, all) = {
            let state = self.state();
            let record = state.partitions.get(&partition).ok_or(Status::NoSuchPartition)?;
            (u64::from(record.shape.copies()), record.groups.drives().len().max(1) as u64)
        };
        let share = match bytes {
            NO_QUOTA => NO_QUOTA,
            bytes => bytes.saturating_mul(copies).div_ceil(all),
        };
        let drives = self.drives_of(partition);
        let partition = component_partition(partition);
        for drive in drives {
            let wanted = ComponentPartition { partition, bytes: Some(share) };
            let made = self.components.make_partition(drive, &wanted);
            made.map_err(|error| error.status())?;
        }
        Ok(())
    }

    pub(crate) fn set_striping_of(&self, wanted: &SetstripingArguments) -> Result<(), Status> {
        let partition = wanted.partition;
        let narrow = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let width = self.width_of(narrow(wanted.width));
        let shape = Shape::new(wanted.unit, width, narrow(wanted.copies));
        let record = self.record_of(shape.map_err(|_| Status::BadArgument)?)?;
        let others = self.list_whole(partition, ObjectId(ObjectId::FIRST_OBJECT.0 + 1), 1)?;
        // The First Object stays the same whatever the partition is; its data would have to go elsewhere.
        let first = self.whole(ObjectName { partition, object: ObjectId::FIRST_OBJECT })?;
        if !others.is_empty() || first.attributes.logical_size > 0 || first.version.is_spread() {
            return Err(Status::NotPermitted);
        }
        let before = self.state().partitions.get(&partition).cloned();
        let before = before.ok_or(Status::NoSuchPartition)?;
        let quotas = self.controls(partition)?.into_iter().map(|it| it.summary.quota_bytes);
        let quota = match quotas.fold(0_u64, u64::saturating_add) {
            NO_QUOTA => NO_QUOTA,
            sum => sum / u64::from(before.shape.copies()),
        };
        self.remove_journals(partition)?;
        let epoch = before.epoch;
        self.replace_record(partition, PartitionRecord { epoch, ..record })?;
        // There may be more copies of what it holds now, or fewer.
        if quota != NO_QUOTA
            && let Err(status) = self.resize_partition_whole(partition, quota)
        {
            // Whoever asks once more finds the quota that there was.
            self.replace_record(partition, before)?;
            return match self.resize_partition_whole(partition, quota) {
                Ok(()) => Err(status),
                Err(_) => Err(Status::DriveFault),
            };
        }
        self.prepare_first_object(partition)
    }

    fn replace_record(
        &self,
        partition: PartitionId,
        record: PartitionRecord,
    ) -> Result<(), Status> {
        self.change_state(|state| {
            let present = state.partitions.get_mut(&partition).ok_or(Status::NoSuchPartition)?;
            *present = record;
            state.generation += 1;
            Ok(())
        })
    }

    /// What component drives tell about the partition, added up.
    pub(crate) fn partition_space_whole(
        &self,
        partition: PartitionId,
    ) -> Result<PartitionSpace, Status> {
        let copies = {
            let state = self.state();
            let record = state.partitions.get(&partition).ok_or(Status::NoSuchPartition)?;
            u64::from(record.shape.copies())
        };
        let mut sum =
            PartitionSpace { partition, quota_bytes: 0, used_bytes: 0, free_bytes: 0, objects: 0 };
        for control in self.told_controls(partition)? {
            let summary = &control.summary;
            sum.quota_bytes = sum.quota_bytes.saturating_add(summary.quota_bytes);
            sum.used_bytes = sum.used_bytes.saturating_add(summary.used_bytes);
            sum.free_bytes = sum.free_bytes.saturating_add(control.free_bytes);
            sum.objects = sum.objects.saturating_add(summary.objects);
        }
        if sum.quota_bytes != NO_QUOTA {
            sum.quota_bytes /= copies;
        }
        // Each object is counted where it has components, so that this is what there are at most.
        Ok(PartitionSpace {
            used_bytes: sum.used_bytes / copies,
            free_bytes: sum.free_bytes / copies,
            objects: sum.objects / copies,
            ..sum
        })
    }

    /// What each component drive tells about a partition.
    fn controls(&self, partition: PartitionId) -> Result<Vec<PartitionControl>, Status> {
        self.ask_controls(partition, self.drives_of(partition)).into_iter().collect()
    }

    /// The same of those that answer, if any does: what is on the others is not known, and there is no room now. Who has
    /// not answered lately is not waited for.
    fn told_controls(&self, partition: PartitionId) -> Result<Vec<PartitionControl>, Status> {
        let mut drives = self.drives_of(partition);
        drives.retain(|drive| !self.is_silent(*drive));
        let (told, failed): (Vec<_>, Vec<_>) =
            self.ask_controls(partition, drives).into_iter().partition(Result::is_ok);
        match failed.into_iter().find_map(Result::err) {
            Some(status) if told.is_empty() => Err(status),
            None if told.is_empty() => Err(Status::Busy),
            _ => Ok(told.into_iter().flatten().collect()),
        }
    }

    fn ask_controls(
        &self,
        partition: PartitionId,
        drives: Vec<DriveId>,
    ) -> Vec<Result<PartitionControl, Status>> {
        let ask = Ask::PartitionControl(component_partition(partition));
        let questions = drives.into_iter().map(|drive| (drive, ask.clone()));
        let control = |answer: Answer| match answer.map_err(|error| error.status())? {
            Told::Control(control) => Ok(control),
            other => Err(unexpected(&other).status()),
        };
        self.components.ask(questions.collect()).into_iter().map(control).collect()
    }

    /// What there is of room on component drives, and what they have sent to and received from holders of
    /// capabilities.
    pub(crate) fn facts_whole(&self, own: Space) -> Result<Facts, Status> {
        let mut facts =
            Facts { space: Space { capacity_bytes: 0, used_bytes: 0, ..own }, ..Facts::default() };
        let (mut free_bytes, mut free_objects) = (0_u64, own.free_objects);
        for mut component in self.component_status() {
            // What does not answer has no room now, nor has what holds nothing.
            let is_used = Self::share(&self.state(), component.drive) != Share::default();
            let is_asked = is_used && component.reachable && component.state != MemberState::Out;
            let control = is_asked.then(|| self.components.drive_control(component.drive));
            if let Some(Ok(control)) = control {
                let space = &mut facts.space;
                space.capacity_bytes = space.capacity_bytes.saturating_add(control.capacity_bytes);
                space.used_bytes = space.used_bytes.saturating_add(control.used_bytes);
                space.cache_bytes = space.cache_bytes.saturating_add(control.cache_bytes);
                let free = control.capacity_bytes.saturating_sub(control.used_bytes);
                free_bytes = free_bytes.saturating_add(free);
                facts.bytes_read = facts.bytes_read.saturating_add(control.capability_bytes_read);
                facts.bytes_written =
                    facts.bytes_written.saturating_add(control.capability_bytes_written);
                add_work(&mut facts.extension_work, control.extension_work);
                component.capacity_bytes = control.capacity_bytes;
                component.used_bytes = control.used_bytes;
            }
            facts.components.push(component);
        }
        let first = self.state().partitions.keys().next().copied();
        if let Some(partition) = first {
            let controls = self.told_controls(partition)?;
            let left = |control: &PartitionControl| {
                control.objects_supported.saturating_sub(control.summary.objects)
            };
            free_objects = controls.iter().map(left).sum();
        }
        facts.space = Space { free_bytes, free_objects, ..facts.space };
        Ok(facts)
    }

    /// Objects from a number on: those of which a drive has the component that decides.
    pub(crate) fn list_whole(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<Vec<ObjectId>, Status> {
        let (mut found, mut from) = (Vec::new(), from);
        while found.len() < most {
            let (objects, next) = self.list_page(partition, from, most)?;
            found.extend(objects);
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// Some of them, and where to go on, if anywhere: no further than every drive has told.
    fn list_page(
        &self,
        partition: PartitionId,
        from: ObjectId,
        most: usize,
    ) -> Result<(Vec<ObjectId>, Option<ObjectId>), Status> {
        let drives = self.drives_of(partition);
        let list = |drive: &DriveId| {
            let partition = component_partition(partition);
            (*drive, Ask::List { partition, from, most })
        };
        let answers = self.components.ask(drives.iter().map(list).collect());
        let mut told = Vec::with_capacity(drives.len());
        let mut until: Option<ObjectId> = None;
        for answer in answers {
            let objects = match answer.map_err(|error| error.status())? {
                Told::Objects(objects) => objects,
                other => return Err(unexpected(&other).status()),
            };
            if let Some(last) = objects.last().filter(|_| objects.len() >= most) {
                until = Some(until.map_or(*last, |until| until.min(*last)));
            }
            told.push(objects);
        }
        // Whose home is whose is looked up once: it may become another one's meanwhile.
        let mut homes: BTreeMap<ObjectId, (DriveId, bool)> = BTreeMap::new();
        for (drive, objects) in drives.iter().zip(told) {
            let is_known = |object: &ObjectId| until.is_none_or(|until| *object <= until);
            for object in objects.into_iter().filter(is_known).filter(|it| !is_journal(*it)) {
                let (home, is_there) = match homes.entry(object) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let home = self.place(ObjectName { partition, object })?.home();
                        new.insert((home, false))
                    }
                };
                *is_there |= home == drive;
            }
        }
        let found = homes.into_iter().filter(|(_, (_, is_there))| *is_there);
        let found = found.map(|(object, _)| object).collect();
        Ok((found, until.map(|until| ObjectId(until.0 + 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(drive: u64, partition: PartitionId, running: u32, age: u64) -> ExtensionJob {
        ExtensionJob {
            drive: DriveId(drive),
            extension: 2,
            partition,
            object: ObjectId(1000),
            object_bytes: 10,
            job: 1,
            running,
            waiting: 1,
            age,
            bytes_done: 0,
            bytes_left: 10,
            bytes_per_second: 0,
            memory_bytes: 0,
        }
    }

    #[test]
    fn what_extensions_of_components_do_is_told_by_the_names_of_here() {
        let (here, others) = (component_partition(PartitionId(7)), PartitionId(7));
        let of_drive = |drive, running, age| ExtensionWork {
            memory_bytes: 100,
            granted_bytes: 30,
            jobs: vec![job(drive, here, running, age), job(drive, others, 1, 99)],
        };
        let mut all = ExtensionWork::default();
        add_work(&mut all, of_drive(1, 0, 50));
        add_work(&mut all, of_drive(2, 1, 5));
        assert_eq!((all.memory_bytes, all.granted_bytes), (200, 60));
        let told: Vec<_> = all.jobs.iter().map(|job| (job.drive.0, job.partition)).collect();
        assert_eq!(told, [(2, PartitionId(7)), (1, PartitionId(7))]);
    }
}
