//! Copies that may differ: saying so before anybody writes, and making them even afterwards.

use std::collections::BTreeMap;

use nasd_layout::MemberState;
use nasd_protocol::Status;
use nasd_protocol::drive::{BatchOperation, GetattrArguments};
use nasd_types::{
    Attributes, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, SetAttributes, Timestamp,
    WriteOrder,
};

use crate::attributes::{raise_failed, setattr};
use crate::components::{Ask, ComponentError, Told};
use crate::data::{columns_of, regions_of};
use crate::mend::Lock;
use crate::place::Place;
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, attributes, batches, component, component_partition};
use crate::writers::{Ended, Evened};

/// Objects that are said to be even at a time.
const MOST_AT_ONCE: usize = 512;

/// Bytes that are compared at a time: for so long nobody gets a capability for the object, and no drive is taken out.
const STEP: u64 = 4 << 20;

/// Bytes that are compared of all such objects before others are looked after, or a step of each.
const TURN: u64 = 1 << 30;

/// What came of it to look after objects that nobody writes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tended {
    /// Of so many something did.
    pub objects: usize,
    /// There may be others to be looked after at once.
    pub has_more: bool,
}

/// What came of a step in which copies are made even.
enum Step {
    /// So many bytes were compared.
    Compared(u64),
    /// All were.
    All(Evened),
    /// There is nothing to be made even any more, or not now.
    Over,
}

impl VirtualDrive {
    /// An order for a write of this striping manager's to the components of an object.
    pub(crate) fn draw_order(&self, place: &Place) -> Option<WriteOrder> {
        if !place.has_copies() {
            return None;
        }
        let times = place.members.iter().map(|drive| self.components.drive_time(*drive));
        Some(self.orders.draw(times.max().unwrap_or_default(), self.numbers.turn()))
    }

    /// Makes sure, durably, that an object's copies count as different, before somebody may make them so. For
    /// who has the object's lock.
    pub(crate) fn expect_writers(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
    ) -> Result<ComponentVersion, Status> {
        if !place.has_copies() {
            return Ok(version);
        }
        if version.has_writers() {
            self.find_writers(name);
            if self.writers.is_fenced(name) {
                return Ok(version);
            }
            let version = self.set_version(name, place, version.revoked())?;
            self.writers.fence(name);
            return Ok(version);
        }
        self.set_version(name, place, version.with_writers())
    }

    /// An object's version says that its copies may differ. Unless it was in this life, nobody knows who wrote, and what.
    pub(crate) fn find_writers(&self, name: ObjectName) {
        let until = self.now().plus_ns(2 * self.options.writing_ns);
        self.writers.find(name, self.now(), until);
    }

    /// What is done to an object's copies one after the other is done to the same bytes: nobody goes on with a capability
    /// of before, by whose writes the one that decides might have what another one lacks. For who has the object's lock.
    pub(crate) fn hold_writers(
        &self,
        name: ObjectName,
        place: &Place,
    ) -> Result<ComponentVersion, Status> {
        let version = self.known_version(name)?;
        match place.has_copies() && version.has_writers() {
            true => self.set_version(name, place, version.revoked()),
            false => Ok(version),
        }
    }

    /// Sets the version of all components of an object, durably.
    pub(crate) fn set_version(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
    ) -> Result<ComponentVersion, Status> {
        self.raise(name, place, version, |_| SetAttributes::default())
    }

    /// The same, and changes other attributes of some with it. A length is changed in no other way: what is asked of a
    /// drive may come late, from a striping manager that has died or has given up waiting for it, and would cut off what
    /// was written since. A drive that has the version already does not do it.
    pub(crate) fn raise(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
        besides: impl Fn(DriveId) -> SetAttributes,
    ) -> Result<ComponentVersion, Status> {
        let access_control_version = Some(version.0);
        let changes = |drive| SetAttributes { access_control_version, ..besides(drive) };
        let holders = place.holders(version.is_spread()).iter();
        // Where there is none yet, it will be made with the version that there is then.
        let holders = holders.filter(|drive| !self.may_lack(name, place, **drive));
        let questions = holders.map(|drive| (*drive, setattr(name, changes(*drive), true)));
        if let Err(error) = self.ask_home_last(place, questions.collect()) {
            self.versions.doubt(name);
            return Err(raise_failed(&error, true));
        }
        self.versions.put_everywhere(name, version);
        Ok(version)
    }

    /// Asks several drives about one object, the home component's when all others have done it: a version that
    /// it has, all have. What they told, the home component first.
    pub(crate) fn ask_home_last(
        &self,
        place: &Place,
        questions: Vec<(DriveId, Ask)>,
    ) -> Result<Vec<Told>, ComponentError> {
        let is_home = |(drive, _): &(DriveId, Ask)| *drive == place.home();
        let (home, others): (Vec<_>, Vec<_>) = questions.into_iter().partition(is_home);
        let others: Result<Vec<Told>, _> = self.components.ask(others).into_iter().collect();
        let others = others?;
        let home: Result<Vec<Told>, _> = self.components.ask(home).into_iter().collect();
        Ok(home?.into_iter().chain(others).collect())
    }

    /// The version that all components of an object have; that of the home component, where they can't be made to
    /// have the same now. What a striping manager that died has raised at some components, and not at the home
    /// component, nobody remembers: so what was not set since the start is looked at once, before capabilities are
    /// given out that are good at those alone that have this version.
    pub(crate) fn version_everywhere(
        &self,
        name: ObjectName,
        place: &Place,
    ) -> Result<ComponentVersion, Status> {
        let version = self.levelled_version(name)?.ok_or(Status::NoSuchObject)?;
        let holders = place.holders(version.is_spread());
        if holders.len() == 1 || self.versions.is_everywhere(name) {
            return Ok(version);
        }
        // Nobody is about to change it.
        let _alone = self.lock(name);
        if !self.versions.is_everywhere(name) {
            self.look_at_versions(name, place);
        }
        // Where they differ they are made level now.
        self.known_version(name)
    }

    /// Finds out whether all components of an object have the same version, if all can tell.
    fn look_at_versions(&self, name: ObjectName, place: &Place) {
        let Ok(known) = self.known_version(name) else { return };
        let ask = Ask::Getattr(GetattrArguments { name: component(name) });
        let holders = place.holders(known.is_spread()).iter();
        let holders = holders.filter(|drive| !self.may_lack(name, place, **drive));
        let answers = self.components.ask(holders.map(|drive| (*drive, ask.clone())).collect());
        let version = |told: Attributes| ComponentVersion(told.access_control_version);
        let versions = answers.into_iter().map(|answer| attributes(answer).map(version));
        match versions.collect::<Result<Vec<_>, _>>() {
            Ok(versions) if versions.iter().all(|version| *version == known) => {
                self.versions.put_everywhere(name, known);
            }
            Ok(_) => self.versions.doubt(name),
            // The next one who asks for a map looks again.
            Err(_) => {}
        }
    }

    /// Gives all components of an object a higher version than any has, after an attempt to raise it at all
    /// that came to nothing at some, for who has the object's lock: what is asked one drive after the other is not
    /// changed meanwhile. If that can't be done now it is tried again later.
    pub(crate) fn level_versions(&self, name: ObjectName, place: &Place) {
        let Ok(home) = self.getattr_at(place.home(), name) else { return };
        let known = ComponentVersion(home.access_control_version);
        let mut versions = vec![known];
        let others = place.holders(known.is_spread())[1..].iter();
        for drive in others.filter(|drive| !self.may_lack(name, place, **drive)) {
            match self.getattr_at(*drive, name) {
                Ok(told) => versions.push(ComponentVersion(told.access_control_version)),
                Err(_) => return,
            }
        }
        // Later than what may still be on its way to some of them, also where none has that yet.
        let highest = versions.iter().copied().max().unwrap_or(known);
        let version = highest.revoked();
        let is_spread = highest.is_spread() && !known.is_spread();
        let levelled = match is_spread {
            // What that attempt made may have been removed since, as no object has it.
            true => self
                .make_components(name, place, version)
                .and_then(|()| self.say_spread(name, place, version)),
            false => self.set_version(name, place, version).map(drop),
        };
        if levelled.is_ok() {
            // `set_version` has put it down.
            self.versions.settle(name);
        }
    }

    /// Looks after objects that nobody writes any more; `now` is the virtual drive's clock. To be called twice a second,
    /// and at once where there is more.
    pub fn tend(&self, now: Timestamp) -> Tended {
        self.is_now(now);
        let (mut even, mut uneven) = (Vec::new(), Vec::new());
        let settled = {
            let _steady = self.steady();
            self.tend_journals();
            for ended in self.writers.ended(now, MOST_AT_ONCE) {
                match ended {
                    Ended::Even(name) | Ended::Uneven(name) if self.is_removed(name) => {
                        self.writers.forget(name);
                    }
                    Ended::Even(name) => even.push(name),
                    Ended::Uneven(name) => uneven.push(name),
                }
            }
            self.settle(&even)
        };
        let is_full = even.len() + uneven.len() == MOST_AT_ONCE;
        let most = TURN / uneven.len().max(1) as u64;
        let mut made_even = 0;
        for name in uneven {
            match self.make_even(name, most) {
                Ok(()) => made_even += 1,
                Err(status) => {
                    tracing::warn!(%name, %status, "the copies of an object can't be made even");
                }
            }
        }
        let objects = settled + made_even;
        Tended { objects, has_more: is_full && objects > 0 }
    }

    /// Whether an object's partition is no more.
    fn is_removed(&self, name: ObjectName) -> bool {
        !self.state().partitions.contains_key(&name.partition)
    }

    /// Says of objects that their copies are the same; of how many.
    fn settle(&self, names: &[ObjectName]) -> usize {
        let _alone = self.lock_all(names.iter().copied());
        // What is on all copies must stay there: a drive that was started anew since shows itself here.
        let names = self.flushed(names.to_vec());
        let mut by_drive: BTreeMap<(DriveId, u32), Vec<BatchOperation>> = BTreeMap::new();
        let mut settled = Vec::new();
        for name in names {
            if !self.writers.is_still(Ended::Even(name)) {
                continue;
            }
            let known = self.component_version(name);
            let (Ok(known), Ok(place)) = (known, self.place_to_change(name)) else {
                // Later.
                continue;
            };
            let Some(version) = known else {
                self.writers.forget(name);
                continue;
            };
            if !version.has_writers() {
                self.writers.forget(name);
                continue;
            }
            let version = version.without_writers();
            let changes = SetAttributes {
                access_control_version: Some(version.0),
                ..SetAttributes::default()
            };
            let setattr = BatchOperation::Setattr(name.object, changes);
            for drive in &place.holders(version.is_spread())[1..] {
                by_drive.entry((*drive, name.partition.0)).or_default().push(setattr.clone());
            }
            settled.push((name, version, (place.home(), name.partition.0), setattr));
        }
        let mut failed = self.ask_settled(by_drive);
        // The home components last, of what all others have done.
        let mut by_drive: BTreeMap<(DriveId, u32), Vec<BatchOperation>> = BTreeMap::new();
        for (name, _, home, setattr) in &settled {
            if !failed.contains(&name.object) {
                by_drive.entry(*home).or_default().push(setattr.clone());
            }
        }
        failed.extend(self.ask_settled(by_drive));
        let mut count = 0;
        for (name, version, ..) in settled {
            if failed.contains(&name.object) {
                // Some copies may have the new version, and others not.
                self.versions.doubt(name);
                continue;
            }
            self.versions.put_everywhere(name, version);
            self.writers.forget(name);
            count += 1;
        }
        count
    }

    /// Those of some objects that are durable on all drives that have components of theirs.
    fn flushed(&self, names: Vec<ObjectName>) -> Vec<ObjectName> {
        let mut by_partition: BTreeMap<PartitionId, Vec<ObjectId>> = BTreeMap::new();
        for name in &names {
            by_partition.entry(name.partition).or_default().push(name.object);
        }
        let flush = |(partition, objects): (PartitionId, Vec<ObjectId>)| {
            self.flush_whole(partition, &objects).is_ok()
        };
        if by_partition.into_iter().all(flush) {
            return names;
        }
        // One may be lacking, which must not keep the others from it.
        let alone = |name: &ObjectName| match self.flush_whole(name.partition, &[name.object]) {
            Err(Status::NoSuchObject) => true,
            flushed => flushed.is_ok(),
        };
        names.into_iter().filter(alone).collect()
    }

    /// The objects of which not all components have done what they were to.
    fn ask_settled(
        &self,
        by_drive: BTreeMap<(DriveId, u32), Vec<BatchOperation>>,
    ) -> Vec<ObjectId> {
        let (mut questions, mut objects) = (Vec::new(), Vec::new());
        for ((drive, partition), operations) in by_drive {
            let partition = component_partition(PartitionId(partition));
            for batch in batches(partition, operations, true) {
                objects.push(batch.operations.iter().filter_map(BatchOperation::object).collect());
                questions.push((drive, Ask::Batch(batch)));
            }
        }
        let mut failed = Vec::new();
        for (objects, answer) in objects.into_iter().zip(self.components.ask(questions)) {
            let objects: Vec<_> = objects;
            match answer {
                Ok(Told::Batched(batched)) => {
                    let outcomes = objects.iter().zip(&batched.outcomes);
                    let those = outcomes.filter(|(_, outcome)| outcome.is_err());
                    failed.extend(those.map(|(object, _)| *object));
                }
                _ => failed.extend(objects),
            }
        }
        failed
    }

    /// Makes all copies of an object what the first ones are, and says so; of a long one not much more than so many bytes
    /// at first.
    fn make_even(&self, name: ObjectName, most: u64) -> Result<(), Status> {
        let mut bytes = 0;
        loop {
            match self.even_step(name)? {
                Step::Compared(more) => bytes += more,
                Step::Over => return Ok(()),
                Step::All(evened) => {
                    // It takes its time: what is durable then is not waited for with the lock.
                    self.flush_steadily(name)?;
                    return self.say_even(name, evened);
                }
            }
            if bytes >= most {
                return Ok(());
            }
        }
    }

    fn flush_steadily(&self, name: ObjectName) -> Result<(), Status> {
        let _steady = self.steady();
        self.flush_whole(name.partition, &[name.object]).map(drop)
    }

    /// Compares the next part, if there is one. Between two of them drives may be taken out, and others may write the
    /// object: what they wrote is the same on all copies when they have ended, and else all begins again.
    fn even_step(&self, name: ObjectName) -> Result<Step, Status> {
        let _steady = self.steady();
        let _alone = self.lock(name);
        let Some((place, length)) = self.is_uneven_still(name)? else { return Ok(Step::Over) };
        let evened = self.writers.evened(name);
        if evened.until == 0 {
            // Whoever still has a capability can't use it any more. And drives tell which instances they are, so that it
            // is noticed when one of them has lost what was compared.
            let version = self.known_version(name)?;
            self.set_version(name, &place, version.revoked())?;
            self.flush_whole(name.partition, &[name.object])?;
            if self.writers.evened(name) != evened {
                return Err(Status::Busy);
            }
        }
        if evened.until >= length {
            return Ok(Step::All(evened));
        }
        let range = ByteRange::new(evened.until, STEP.min(length - evened.until));
        let even = || {
            let version = self.known_version(name)?;
            self.even_range(name, &place, version, range)
        };
        let differing = self.mending(name, Some(range), Lock::Held, even)?;
        if differing > 0 {
            tracing::info!(%name, ?range, differing, "copies of an object were not the same");
        }
        self.writers.made_even(name, evened, range.end());
        Ok(Step::Compared(range.length))
    }

    /// Where an object lies that is to be made even, and how long it is, for who has its lock; if that is still to be done.
    fn is_uneven_still(&self, name: ObjectName) -> Result<Option<(Place, u64)>, Status> {
        if !self.writers.is_still(Ended::Uneven(name)) {
            return Ok(None);
        }
        let place = self.place_to_change(name)?;
        let Some(version) = self.component_version(name)? else {
            self.writers.forget(name);
            return Ok(None);
        };
        if !place.has_copies() {
            // They have become one, as a move was given up: who writes that is not noted, and what is written
            // meanwhile must not be cut off.
            if version.has_writers() {
                self.set_version(name, &place, version.without_writers())?;
            }
            self.writers.forget(name);
            return Ok(None);
        }
        let length = self.whole(name)?.attributes.logical_size;
        Ok(Some((place, length)))
    }

    /// All copies hold the same, if nothing went wrong meanwhile: they get the same length, and the version that says so.
    fn say_even(&self, name: ObjectName, evened: Evened) -> Result<(), Status> {
        let _steady = self.steady();
        let _alone = self.lock(name);
        let Some((place, length)) = self.is_uneven_still(name)? else { return Ok(()) };
        if length > evened.until {
            // Somebody has made it longer.
            return Ok(());
        }
        let (own, before) = (self.instances.own(), self.whole(name)?.attributes);
        // What is longest may be where nothing else is. For who uses the file nothing has changed.
        let set_lengths = || {
            let version = self.known_version(name)?;
            // How long those are that don't decide yet counts from when they do.
            let holders = place.holders(version.is_spread()).iter();
            let later = holders.filter(|drive| place.state_of(**drive) == MemberState::Joining);
            for drive in later.filter(|drive| !self.may_lack(name, &place, **drive)) {
                self.cut(name, &place, *drive)?;
            }
            let version = self.known_version(name)?;
            self.raise(name, &place, version.revoked(), |drive| {
                let home = Some(&before).filter(|_| place.is_home(drive));
                SetAttributes {
                    logical_size: home.map(|_| length),
                    fs_data_modify_time: Some(before.fs_data_modify_time),
                    fs_attribute_modify_time: home.map(|home| home.fs_attribute_modify_time),
                    ..SetAttributes::default()
                }
            })
        };
        let end = ByteRange::new(length.saturating_sub(1), 1);
        let version = self.mending(name, Some(end), Lock::Held, set_lengths)?;
        // What was copied, and what was there, is durable before the version says so, and nobody has lost it.
        self.flush_whole(name.partition, &[name.object])?;
        if self.instances.own() != own || self.writers.evened(name) != evened {
            return Err(Status::Busy);
        }
        self.set_version(name, &place, version.without_writers())?;
        self.writers.forget(name);
        tracing::info!(%name, "the copies of an object are even");
        Ok(())
    }

    /// Compares the copies of a range and writes those that differ. How many bytes these had.
    fn even_range(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
        range: ByteRange,
    ) -> Result<u64, Status> {
        let mut differing = 0;
        for (column, strips) in columns_of(place, range) {
            // The one that decides first.
            let mut members = place.writers(column);
            members.reverse();
            let there = |drive: &&DriveId| place.holders(version.is_spread()).contains(drive);
            let (regions, length) = regions_of(&strips);
            let read = |drive: &DriveId| {
                let regions = regions.clone();
                (*drive, Ask::Read { name: component(name), order: None, regions, length })
            };
            let holders: Vec<DriveId> = members.iter().filter(there).copied().collect();
            let mut copies = Vec::with_capacity(holders.len());
            for answer in self.components.ask(holders.iter().map(read).collect()) {
                match answer.map_err(|error| error.status())? {
                    Told::Read(read) => copies.push(read.data),
                    _ => return Err(Status::DriveFault),
                }
            }
            // A component that ends before others has zeros there.
            copies.iter_mut().for_each(|copy| copy.resize(length, 0));
            let Some((first, others)) = copies.split_first() else { continue };
            for (drive, copy) in holders[1..].iter().zip(others) {
                if copy == first {
                    continue;
                }
                differing += length as u64;
                let ask = Ask::Write {
                    name: component(name),
                    order: self.draw_order(place),
                    regions: regions.clone(),
                    data: first.clone(),
                    durable: false,
                };
                let times = self.getattr_at(*drive, name).map_err(|error| error.status())?;
                let before = self.orders.latest();
                let told = self.components.ask_one(*drive, ask).map_err(|error| {
                    // Whoever asks for it once more has a better order.
                    self.orders.leap(before, 10);
                    error.status()
                })?;
                if let Told::Written(written) = told {
                    self.saw(*drive, written.instance);
                }
                self.set_times(name, *drive, &times)?;
            }
        }
        Ok(differing)
    }
}
