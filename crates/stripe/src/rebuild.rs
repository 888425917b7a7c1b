//! Giving drives that were out what they lack: what has changed since, found by asking all drives what they have.
//!
//! A drive that is joining is written like the others from the start, so that there is an end. Object after
//! object is compared with its other copies, and what differs is written; an object that nobody has touched
//! since is not read at all. What clients may be writing at the time is read and written with orders, which
//! need no lock: what a client writes meanwhile comes either before the copying at all copies, or after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_layout::{Column, Strip};
use nasd_protocol::drive::{RemoveArguments, SeekArguments};
use nasd_protocol::limits::MAX_REGIONS;
use nasd_protocol::{Region, Status};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{
    Attributes, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, SeekTarget, SetAttributes,
    Timestamp, WriteOrder,
};

use crate::attributes::{Whole, setattr};
use crate::components::{Answer, Ask, ComponentError, Told};
use crate::data::{regions_of, runs};
use crate::mend::{Lock, columns_held, is_damage};
use crate::place::Place;
use crate::state::State;
use crate::virtual_drive::{VirtualDrive, component, component_partition, unexpected};

/// Objects that are looked up at a time.
const PAGE: usize = 256;

/// Bytes of the whole that are compared at a time.
const STEP: u64 = 8 << 20;

/// What was changed so long before a drive was known to have all the last time may be lacking there all the same:
/// clocks differ, and what is not flushed is lost.
const MARGIN_NS: u64 = 120_000_000_000;

/// How often a copy is made that comes behind what others write.
const MOST_ATTEMPTS: u32 = 64;

/// How long it is waited for who is looking for what is next.
const LOOKING: Duration = Duration::from_millis(2);

/// What is being given to drives that were out. No drive is asked while it is locked: whoever wants to know how far it
/// has come, or to stop it, does not wait for one that does not answer.
#[derive(Debug, Default)]
pub(crate) struct Rebuild(Mutex<Passes>);

#[derive(Debug, Default)]
struct Passes {
    begun: u64,
    present: Option<Pass>,
    /// How often somebody has looked for what is next, and which of these times is not over.
    looks: u64,
    looking: Option<u64>,
}

/// One way through all objects, for some drives.
#[derive(Clone, Debug)]
struct Pass {
    /// Another one for each.
    number: u64,
    begun: Timestamp,
    /// Since when each lacks what was written; of places that are another drive's yet, ever.
    drives: BTreeMap<DriveId, Timestamp>,
    /// What that follows from.
    lacked: Lacked,
    /// Which instance each was at the beginning.
    instances: BTreeMap<DriveId, u64>,
    /// Partitions that are not done, the present one first, and from which object on that is not.
    partitions: VecDeque<PartitionId>,
    from: ObjectId,
    /// Objects to look at with how many components they have, and how many somebody is looking at.
    waiting: VecDeque<(ObjectName, u64)>,
    under_way: usize,
    /// Whether somebody is making durable what was given.
    is_ending: bool,
    /// How many objects were looked at, and how many when all was durable last.
    looked_at: u64,
    durable: Option<u64>,
    progress: RebuildProgress,
}

/// The drives that are joining, with since when each was out, and the places that are to become another drive's.
#[derive(Clone, Debug)]
struct Lacked {
    joining: BTreeMap<DriveId, Timestamp>,
    /// By which place it is, and from which drive it moves to which.
    moves: BTreeSet<(PartitionId, u16, usize, DriveId, DriveId)>,
}

impl Lacked {
    fn of(state: &State) -> Lacked {
        let joining = state.absent.iter().filter(|(_, absence)| absence.is_joining);
        let joining = joining.map(|(drive, absence)| (*drive, absence.since)).collect();
        let moves = state.partitions.iter().flat_map(|(partition, record)| {
            let moves = record.moves.iter();
            moves.map(|step| (*partition, step.group.0, step.member, step.from, step.to))
        });
        Lacked { joining, moves: moves.collect() }
    }

    /// Whether the other one has all of this.
    fn is_within(&self, other: &Lacked) -> bool {
        self.joining.iter().all(|(drive, since)| other.joining.get(drive) == Some(since))
            && self.moves.is_subset(&other.moves)
    }
}

/// How far the giving has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RebuildProgress {
    /// Components that the drives are to have, as far as it is known.
    pub(crate) objects: u64,
    /// Of these so many were looked at.
    pub(crate) objects_done: u64,
    /// Bytes that were written to the drives.
    pub(crate) bytes: u64,
    /// Bytes that will be, as far as that can be told before.
    expected: u64,
    /// In so many seconds it is done, as it seems; 0 if that is not known.
    pub(crate) seconds_left: u32,
}

impl RebuildProgress {
    /// With an estimate of the time that is left, after so many seconds.
    fn after(self, seconds: f64) -> RebuildProgress {
        let part = |done: u64, all: u64| if all > 0 { done as f64 / all as f64 } else { 0.0 };
        // A few objects may have most of the bytes, and most objects few.
        let done = match self.expected > 0 {
            true => part(self.bytes, self.expected).max(part(self.objects_done, self.objects)),
            false => part(self.objects_done, self.objects),
        };
        let seconds_left = match done > 0.0 && seconds > 0.0 {
            true => (seconds * (1.0 - done.min(1.0)) / done).ceil() as u32,
            false => 0,
        };
        RebuildProgress { seconds_left, ..self }
    }
}

/// An object, and the drives that may lack something of it, with whether they had no component of it at all.
struct Lacking {
    whole: Whole,
    drives: Vec<(DriveId, bool)>,
}

/// Objects with how many components they have, and where to go on.
struct Page {
    objects: Vec<(ObjectName, u64)>,
    next: Option<ObjectId>,
}

/// What of a range is written to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// What is not zeros: the drive had nothing of it.
    Data,
    /// What differs.
    Differing,
    /// All.
    All,
}

/// What drives are asked, to know what there is to do.
enum Look {
    /// Which drives lack something.
    Pass,
    /// Objects of a partition from one on.
    Page(PartitionId, ObjectId),
}

/// What is next to be done.
enum Next {
    /// To find out what there is, by the look of this number.
    Look(u64, Look),
    /// Another one is finding that out.
    Looking,
    /// In the pass of this number.
    Object(u64, ObjectName, u64),
    /// Others are at the last ones.
    Wait,
    /// All were looked at.
    End(Box<Pass>),
}

impl Passes {
    /// What is next, as far as it is known.
    fn next(&mut self) -> Next {
        let look = match &mut self.present {
            None => Look::Pass,
            Some(pass) => {
                if let Some((name, parts)) = pass.waiting.pop_front() {
                    pass.under_way += 1;
                    return Next::Object(pass.number, name, parts);
                }
                match pass.partitions.front() {
                    Some(partition) => Look::Page(*partition, pass.from),
                    None if pass.under_way > 0 || pass.is_ending => return Next::Wait,
                    None => {
                        pass.is_ending = true;
                        return Next::End(Box::new(pass.clone()));
                    }
                }
            }
        };
        if self.looking.is_some() {
            return Next::Looking;
        }
        self.looks += 1;
        self.looking = Some(self.looks);
        Next::Look(self.looks, look)
    }

    /// Whether what was found is still of use: it was not stopped meanwhile.
    fn end_looking(&mut self, look: u64) -> bool {
        self.looking.take_if(|looking| *looking == look).is_some()
    }
}

impl Rebuild {
    fn lock(&self) -> MutexGuard<'_, Passes> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever joins now begins from the start.
    pub(crate) fn stop(&self) {
        let mut passes = self.lock();
        passes.present = None;
        passes.looking = None;
    }

    /// An object was made of another one, or of parts of it, by drives that may lack what these have: it is looked
    /// at after that.
    pub(crate) fn also(&self, name: ObjectName) {
        if let Some(pass) = &mut self.lock().present {
            pass.waiting.push_back((name, 0));
        }
    }

    /// So much was written of an object that is not done yet.
    fn note_bytes(&self, number: u64, bytes: u64) {
        if let Some(pass) = self.lock().present.as_mut().filter(|pass| pass.number == number) {
            pass.progress.bytes += bytes;
        }
    }

    /// Whether this is what is being done.
    fn is_present(&self, number: u64) -> bool {
        self.lock().present.as_ref().is_some_and(|pass| pass.number == number)
    }

    /// Ends a pass, if all that was looked at is durable.
    fn end(&self, number: u64) -> bool {
        let mut passes = self.lock();
        let is_over = |pass: &Pass| {
            let is_idle = pass.waiting.is_empty() && pass.partitions.is_empty();
            let is_durable = pass.durable == Some(pass.looked_at);
            pass.number == number && is_idle && pass.under_way == 0 && is_durable
        };
        passes.present.take_if(|pass| is_over(pass)).is_some()
    }
}

impl VirtualDrive {
    /// Looks at one object of those that drives which are joining may lack. How many bytes were written for that;
    /// none if there is nothing to do now. Any number of threads may do so at a time.
    pub fn rebuild(&self) -> Option<u64> {
        loop {
            let next = self.rebuild.lock().next();
            match next {
                Next::Look(number, look) => match self.look(number, look) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(status) => {
                        tracing::debug!(%status, "what drives lack can't be told yet");
                        return None;
                    }
                },
                Next::Looking => {
                    self.components.pause(LOOKING);
                    return Some(0);
                }
                Next::Object(pass, name, parts) => {
                    return Some(self.rebuild_one(pass, name, parts));
                }
                Next::Wait => return None,
                Next::End(pass) => {
                    self.end_pass(&pass);
                    if let Some(present) = &mut self.rebuild.lock().present {
                        present.is_ending = false;
                    }
                    return None;
                }
            }
        }
    }

    /// How far the giving has come, and to which drives, if there is any.
    pub(crate) fn rebuild_progress(&self) -> Option<(BTreeSet<DriveId>, RebuildProgress)> {
        let passes = self.rebuild.lock();
        let pass = passes.present.as_ref()?;
        let seconds = self.now().0.saturating_sub(pass.begun.0) as f64 / 1e9;
        Some((pass.drives.keys().copied().collect(), pass.progress.after(seconds)))
    }

    /// Finds out what there is to do; whether there may be something.
    fn look(&self, look: u64, what: Look) -> Result<bool, Status> {
        match what {
            Look::Pass => {
                let begun = self.begin_pass();
                let mut passes = self.rebuild.lock();
                if !passes.end_looking(look) {
                    return Ok(true);
                }
                let Some(pass) = begun? else { return Ok(false) };
                passes.begun += 1;
                passes.present = Some(Pass { number: passes.begun, ..pass });
            }
            Look::Page(partition, from) => {
                let page = self.page(partition, from);
                let mut passes = self.rebuild.lock();
                if !passes.end_looking(look) {
                    return Ok(true);
                }
                let Page { objects, next } = page?;
                let Some(pass) = &mut passes.present else { return Ok(true) };
                pass.waiting.extend(objects);
                match next {
                    Some(next) => pass.from = next,
                    None => {
                        pass.partitions.pop_front();
                        pass.from = ObjectId::FIRST_OBJECT;
                    }
                }
            }
        }
        Ok(true)
    }

    /// A way through all objects, which has no number yet, if there is a drive that lacks something.
    fn begin_pass(&self) -> Result<Option<Pass>, Status> {
        let (lacked, partitions) = {
            let state = self.state();
            let guarded = state.partitions.iter().filter(|(_, record)| record.is_guarded());
            let guarded = guarded.map(|(partition, _)| *partition).collect::<VecDeque<_>>();
            (Lacked::of(&state), guarded)
        };
        let mut drives = lacked.joining.clone();
        for (.., to) in &lacked.moves {
            drives.entry(*to).or_default();
        }
        if drives.is_empty() {
            return Ok(None);
        }
        let progress = self.foresee(&partitions)?;
        Ok(Some(Pass {
            number: 0,
            begun: self.now(),
            instances: self.flushed_instances(&drives, &partitions)?,
            drives,
            lacked,
            partitions,
            from: ObjectId::FIRST_OBJECT,
            waiting: VecDeque::new(),
            under_way: 0,
            is_ending: false,
            looked_at: 0,
            durable: None,
            progress,
        }))
    }

    /// What will have to be looked at, and written.
    fn foresee(&self, partitions: &VecDeque<PartitionId>) -> Result<RebuildProgress, Status> {
        let mut progress = RebuildProgress::default();
        for partition in partitions {
            // Of how many of its places each drive gives to another.
            let (mut going, all) = {
                let state = self.state();
                let Some(record) = state.partitions.get(partition) else { continue };
                let mut going: BTreeMap<DriveId, u64> = BTreeMap::new();
                record.moves.iter().for_each(|step| *going.entry(step.from).or_default() += 1);
                (going, record.groups.drives())
            };
            for drive in self.drives_of(*partition) {
                let ask = Ask::PartitionControl(component_partition(*partition));
                if let Told::Control(control) = self.ask(drive, ask)? {
                    progress.objects += control.summary.objects;
                    let places = all.get(&drive).copied().unwrap_or(1).max(1) as u64;
                    let gives = going.remove(&drive).unwrap_or(0);
                    let bytes = u128::from(control.summary.used_bytes) * u128::from(gives);
                    progress.expected += (bytes / u128::from(places)) as u64;
                }
            }
        }
        Ok(progress)
    }

    fn ask(&self, drive: DriveId, ask: Ask) -> Result<Told, Status> {
        self.components.ask_one(drive, ask).map_err(|error| error.status())
    }

    /// Makes all that drives have durable; which instances these are.
    fn flushed_instances(
        &self,
        drives: &BTreeMap<DriveId, Timestamp>,
        partitions: &VecDeque<PartitionId>,
    ) -> Result<BTreeMap<DriveId, u64>, Status> {
        let mut instances = BTreeMap::new();
        for drive in drives.keys() {
            for partition in partitions {
                let partition = component_partition(*partition);
                match self.ask(*drive, Ask::Flush { partition, objects: Vec::new() })? {
                    Told::Flushed(instance) => instances.insert(*drive, instance),
                    other => return Err(unexpected(&other).status()),
                };
            }
        }
        Ok(instances)
    }

    /// Some objects from a number on of which any drive has a component, with how many have, and where to go on, if
    /// anywhere.
    fn page(&self, partition: PartitionId, from: ObjectId) -> Result<Page, Status> {
        let drives = self.drives_of(partition);
        let list = Ask::List { partition: component_partition(partition), from, most: PAGE };
        let answers =
            self.components.ask(drives.iter().map(|drive| (*drive, list.clone())).collect());
        let mut found: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let mut until: Option<ObjectId> = None;
        for answer in answers {
            let objects = match answer.map_err(|error| error.status())? {
                Told::Objects(objects) => objects,
                other => return Err(unexpected(&other).status()),
            };
            if let Some(last) = objects.last().filter(|_| objects.len() >= PAGE) {
                until = Some(until.map_or(*last, |until| until.min(*last)));
            }
            objects.into_iter().for_each(|object| *found.entry(object).or_default() += 1);
        }
        let is_known = |object: &ObjectId| until.is_none_or(|until| *object <= until);
        let found = found.into_iter().filter(|(object, _)| is_known(object));
        let objects =
            found.map(|(object, parts)| (ObjectName { partition, object }, parts)).collect();
        Ok(Page { objects, next: until.map(|until| ObjectId(until.0 + 1)) })
    }

    fn rebuild_one(&self, number: u64, name: ObjectName, parts: u64) -> u64 {
        let (drives, before) = match &self.rebuild.lock().present {
            Some(pass) if pass.number == number => (pass.drives.clone(), pass.progress.bytes),
            _ => return 0,
        };
        let outcome = self.give(number, name, &drives);
        let mut passes = self.rebuild.lock();
        let pass = passes.present.as_mut().filter(|pass| pass.number == number);
        let Some(pass) = pass else { return 0 };
        pass.under_way = pass.under_way.saturating_sub(1);
        match outcome {
            Ok(()) => {
                pass.progress.objects_done += parts;
                pass.looked_at += 1;
            }
            Err(status) => {
                tracing::debug!(%name, %status, "an object can't be given to a drive yet");
                pass.waiting.push_back((name, parts));
                drop(passes);
                // Whoever is away now is waited for by everybody.
                self.components.pause(Duration::from_millis(20));
                return 0;
            }
        }
        pass.progress.bytes - before
    }

    fn end_pass(&self, pass: &Pass) {
        if pass.drives.keys().any(|drive| self.keeper.is_about_to_use(*drive)) {
            // Whoever is told that a drive has all may lose another one.
            return self.components.pause(Duration::from_millis(20));
        }
        let partitions = {
            let state = self.state();
            let guarded = state.partitions.iter().filter(|(_, record)| record.is_guarded());
            guarded.map(|(partition, _)| *partition).collect()
        };
        match self.flushed_instances(&pass.drives, &partitions) {
            Ok(instances) if instances == pass.instances => {}
            // What it was given may be lost; all is looked at once more.
            Ok(_) => return self.give_again(),
            Err(_) => return,
        }
        if let Err(status) = self.hear_of_givers(&pass.drives) {
            return tracing::debug!(%status, "drives that give their places away do not answer");
        }
        if let Some(present) = &mut self.rebuild.lock().present
            && present.number == pass.number
        {
            present.durable = Some(pass.looked_at);
        }
        // With nothing else going on, so that nothing is left to be looked at.
        let drives: BTreeSet<DriveId> = pass.drives.keys().copied().collect();
        let is_over = || {
            // Others may have begun to move meanwhile, or to join, which were not given anything.
            let is_all = Lacked::of(&self.state()).is_within(&pass.lacked);
            if !is_all && self.rebuild.is_present(pass.number) {
                self.rebuild.stop();
            }
            is_all && self.rebuild.end(pass.number)
        };
        match self.replace_members(&drives, is_over) {
            Ok(true) => {
                let RebuildProgress { objects_done, bytes, .. } = pass.progress;
                tracing::info!(?drives, objects_done, bytes, "component drives have all again");
            }
            Ok(false) => {}
            Err(status) => tracing::debug!(%status, "drives that have all can't be read yet"),
        }
    }

    /// One that gives its place away may have been started anew, and have given what it had left: nobody will ask it
    /// any more, so it is asked now which instance it is.
    fn hear_of_givers(&self, takers: &BTreeMap<DriveId, Timestamp>) -> Result<(), Status> {
        let givers: BTreeMap<DriveId, PartitionId> = {
            let state = self.state();
            let records = state.partitions.iter();
            let moves = records.flat_map(|(partition, record)| {
                record.moves.iter().map(move |step| (step, *partition))
            });
            let taken = moves.filter(|(step, _)| takers.contains_key(&step.to));
            let givers = taken.map(|(step, partition)| (step.from, partition));
            givers.filter(|(drive, _)| !state.absent.contains_key(drive)).collect()
        };
        for (drive, partition) in givers {
            let partition = component_partition(partition);
            let flush = Ask::Flush { partition, objects: vec![ObjectId::FIRST_OBJECT] };
            match self.ask(drive, flush)? {
                Told::Flushed(instance) => self.saw(drive, instance),
                other => return Err(unexpected(&other).status()),
            }
        }
        Ok(())
    }

    /// Gives drives what they lack of one object. Who has what may change between two steps.
    fn give(
        &self,
        number: u64,
        name: ObjectName,
        drives: &BTreeMap<DriveId, Timestamp>,
    ) -> Result<(), Status> {
        let lacking = {
            let _steady = self.steady();
            self.begin_giving(name, drives)?
        };
        let Some(Lacking { whole, drives }) = lacking else { return Ok(()) };
        for (drive, is_new) in drives {
            let mut at = 0;
            while self.rebuild.is_present(number) {
                let _steady = self.steady();
                let Some(range) = self.next_to_give(name, &whole, (drive, is_new), at)? else {
                    break;
                };
                let write = if is_new { Write::Data } else { Write::Differing };
                let bytes = self.give_range(name, drive, write, range, Lock::Free)?;
                self.rebuild.note_bytes(number, bytes);
                drop(_steady);
                self.throttle(range.length);
                at = range.end();
            }
            let _steady = self.steady();
            self.give_length(name, &whole, drive)?;
            match self.whole(name) {
                Ok(whole) => self.set_times(name, drive, &whole.attributes)?,
                Err(Status::NoSuchObject) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
        Ok(())
    }

    /// For who uses the file nothing has changed, when a drive has been given what others have.
    pub(crate) fn set_times(
        &self,
        name: ObjectName,
        drive: DriveId,
        times: &Attributes,
    ) -> Result<(), Status> {
        let changes = SetAttributes {
            fs_data_modify_time: Some(times.fs_data_modify_time),
            fs_attribute_modify_time: Some(times.fs_attribute_modify_time),
            ..SetAttributes::default()
        };
        match self.components.ask_one(drive, setattr(name, changes, false)) {
            Ok(_) => Ok(()),
            Err(error) if error.is_missing() => Ok(()),
            Err(error) => Err(error.status()),
        }
    }

    /// How long the whole is, its components tell, with zeros at the end too: the last byte of a column is written
    /// where the drive's component ends before it.
    fn give_length(&self, name: ObjectName, whole: &Whole, drive: DriveId) -> Result<(), Status> {
        // Else the object might be cut before the drive is made as long as it was.
        let _alone = self.lock(name);
        let place = self.place(name)?;
        let is_striped = place.is_striped(whole.version.is_spread());
        let columns: Vec<Column> = match is_striped {
            true => place.columns_on(drive).collect(),
            false => vec![Column(0)],
        };
        let length = |drive: DriveId| match self.getattr_at(drive, name) {
            Ok(told) => Ok(Some(told.logical_size)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.status()),
        };
        let mut end = 0;
        for column in columns {
            // What is removed just now needs nothing.
            let Some(length) = length(place.reader(column))? else { return Ok(()) };
            let last = if is_striped { place.shape.column_end(column, length) } else { length };
            end = end.max(last);
        }
        if length(drive)?.is_some_and(|had| had < end) {
            let last = ByteRange::new(end - 1, 1);
            self.give_range(name, drive, Write::All, last, Lock::Held)?;
        }
        Ok(())
    }

    /// The next bytes from a position on that are data anywhere.
    fn next_to_give(
        &self,
        name: ObjectName,
        whole: &Whole,
        (drive, is_new): (DriveId, bool),
        at: u64,
    ) -> Result<Option<ByteRange>, Status> {
        let length = whole.attributes.logical_size;
        let rest = |at: u64| (at < length).then(|| ByteRange::new(at, STEP.min(length - at)));
        if length <= STEP {
            return Ok(rest(at));
        }
        let is_striped = self.place(name)?.is_striped(whole.version.is_spread());
        let mut next = self.next_data(name, at, is_striped)?;
        if !is_new {
            // What it has there that is none any more.
            let seek =
                SeekArguments { name: component(name), offset: at, target: SeekTarget::Data };
            match self.components.ask_one(drive, Ask::Seek(seek)) {
                Ok(Told::Position(Some(own))) => {
                    next = Some(next.map_or(own, |next| next.min(own)));
                }
                Ok(_) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.status()),
            }
        }
        Ok(next.and_then(|next| rest(next.max(at))))
    }

    /// Waits for as long as so many bytes are to take.
    pub(crate) fn throttle(&self, bytes: u64) {
        let limit = self.rebuild_limit();
        if limit > 0 {
            let others = self.rebuild.lock().present.as_ref().map_or(1, |pass| pass.under_way);
            let seconds = bytes as f64 * others.max(1) as f64 / limit as f64;
            self.components.pause(Duration::from_secs_f64(seconds.min(60.0)));
        }
    }

    /// Makes components where there should be some, and removes those of which nobody knows anything; which drives may
    /// lack something of the data, and whether they had a component at all.
    fn begin_giving(
        &self,
        name: ObjectName,
        drives: &BTreeMap<DriveId, Timestamp>,
    ) -> Result<Option<Lacking>, Status> {
        let _alone = self.lock(name);
        let place = self.place(name)?;
        let joining: Vec<DriveId> =
            place.joining().filter(|drive| drives.contains_key(drive)).collect();
        if joining.is_empty() {
            return Ok(None);
        }
        let whole = match self.whole(name) {
            Ok(whole) => whole,
            Err(Status::NoSuchObject) => {
                self.remove_strays(name, &joining)?;
                return Ok(None);
            }
            Err(status) => return Err(status),
        };
        let mut lacking = Vec::new();
        for drive in joining {
            if !place.holders(whole.version.is_spread()).contains(&drive) {
                self.remove_strays(name, &[drive])?;
                continue;
            }
            let had = match self.getattr_at(drive, name) {
                Ok(had) => Some(had),
                Err(error) if error.is_missing() => None,
                Err(error) => return Err(error.status()),
            };
            let since = match place.is_stand_in(drive) {
                // It has never had any of it, or nobody knows since when.
                true => Timestamp(0),
                false => drives.get(&drive).copied().unwrap_or_default(),
            };
            // The drive may have done something late, too, that was not done elsewhere.
            let changed = |told: &Attributes| told.data_modify_time.max(told.attribute_modify_time);
            let is_same = had.as_ref().is_some_and(|had| {
                let changed = changed(&whole.attributes).max(changed(had));
                had.access_control_version == whole.version.0
                    && !whole.version.has_writers()
                    && changed.0.saturating_add(MARGIN_NS) < since.0
            });
            if !is_same {
                lacking.push((drive, had.is_none()));
            }
        }
        if lacking.is_empty() {
            return Ok(None);
        }
        if !self.has_joined(name) {
            self.join(name, &place, &whole)?;
        }
        for (drive, _) in &lacking {
            self.cut(name, &place, *drive)?;
        }
        Ok(Some(Lacking { whole, drives: lacking }))
    }

    /// A component that was to be cut may be longer than the whole; for who has the object's lock.
    fn cut(&self, name: ObjectName, place: &Place, drive: DriveId) -> Result<(), Status> {
        let is_longer = || -> Result<_, Status> {
            let whole = self.whole(name)?;
            let had = self.getattr_at(drive, name).map_err(|error| error.status())?;
            let end = whole.attributes.logical_size;
            Ok((had.logical_size > end).then_some((whole.version, end)))
        };
        let Some((version, _)) = is_longer()? else { return Ok(()) };
        // Or a client makes it longer just now, at other copies later.
        self.set_version(name, place, version.revoked())?;
        let Some((_, end)) = is_longer()? else { return Ok(()) };
        let changes = SetAttributes { logical_size: Some(end), ..SetAttributes::default() };
        self.ask(drive, setattr(name, changes, false)).map(drop)
    }

    fn remove_strays(&self, name: ObjectName, drives: &[DriveId]) -> Result<(), Status> {
        if name.object == ObjectId::FIRST_OBJECT {
            return Ok(());
        }
        let remove = RemoveArguments { name: component(name), durable: false };
        for drive in drives {
            match self.components.ask_one(*drive, Ask::Remove(remove)) {
                Ok(_) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.status()),
            }
        }
        Ok(())
    }

    /// Makes a drive's component of a range what the other copies are.
    pub(crate) fn give_range(
        &self,
        name: ObjectName,
        drive: DriveId,
        write: Write,
        range: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        let mut attempt = 0;
        loop {
            let before = self.orders.latest();
            match self.try_to_give(name, drive, write, range, lock) {
                Err(Status::OutOfOrder) if attempt < MOST_ATTEMPTS => {
                    self.orders.leap(before, attempt);
                }
                Err(Status::NoSuchObject) => {
                    // It was removed just now; if not, the drive has lost it, and is given it once more.
                    let is_there = self.seen_version(name)?.is_some();
                    return if is_there { Err(Status::Busy) } else { Ok(0) };
                }
                told => return told,
            }
            attempt += 1;
        }
    }

    fn try_to_give(
        &self,
        name: ObjectName,
        drive: DriveId,
        write: Write,
        range: ByteRange,
        lock: Lock,
    ) -> Result<u64, Status> {
        // Else the object might be cut, or punched, between what is read and what is written.
        let _alone = (lock == Lock::Free).then(|| self.lock(name));
        let version = self.known_version(name)?;
        // Who is given something does not say what it should be.
        let place = self.place(name)?.doubting(drive);
        // Where clients write, orders do what a lock can't.
        // It may have been cut since somebody without the lock thought of this; what is behind its end is not to be made.
        let range = match write {
            Write::All if lock == Lock::Free => {
                let length = self.whole(name)?.attributes.logical_size;
                range.intersection(&ByteRange::new(0, length))
            }
            _ => range,
        };
        if range.is_empty() {
            return Ok(0);
        }
        let order = version.has_writers().then(|| self.draw_order(&place)).flatten();
        let columns = columns_held(&place, version.is_spread(), drive, range);
        let copies = self.read_columns(name, &place, &columns, order)?;
        let mut writes = Vec::new();
        for ((_, strips), copy) in columns.iter().zip(copies) {
            let differing = match write {
                // Nothing is there but what clients have written since, which comes later by its order.
                Write::Data => differing(strips, |place| is_zeros(&copy[place])),
                Write::Differing => match self.read_strips(name, drive, strips) {
                    Ok(there) => {
                        differing(strips, |place| copy[place.clone()] == there[place.clone()])
                    }
                    Err(status) if is_damage(status) => differing(strips, |_| false),
                    Err(status) => return Err(status),
                },
                Write::All => differing(strips, |_| false),
            };
            writes.extend(writes_of(name, order, &differing, copy));
        }
        self.write_all(drive, writes)
    }

    /// Makes writes of one drive, side by side. How many bytes these are.
    fn write_all(&self, drive: DriveId, writes: Vec<Ask>) -> Result<u64, Status> {
        let questions = writes.into_iter().map(|write| (drive, write)).collect();
        let mut bytes = 0;
        for answer in self.components.ask(questions) {
            match answer.map_err(|error| error.status())? {
                Told::Written(written) => {
                    self.saw(drive, written.instance);
                    bytes += written.length;
                }
                other => return Err(unexpected(&other).status()),
            }
        }
        Ok(bytes)
    }

    /// What columns hold by those of their copies that decide, all asked at once.
    pub(crate) fn read_columns(
        &self,
        name: ObjectName,
        place: &Place,
        columns: &[(Column, Vec<Strip>)],
        order: Option<WriteOrder>,
    ) -> Result<Vec<Vec<u8>>, Status> {
        let questions = columns.iter().map(|(column, strips)| {
            let (regions, length) = regions_of(strips);
            (place.reader(*column), Ask::Read { name: component(name), order, regions, length })
        });
        let answers = self.components.ask(questions.collect());
        let whole = |(answer, (_, strips)): (Answer, &(Column, Vec<Strip>))| {
            padded(answer, regions_of(strips).1)
        };
        answers.into_iter().zip(columns).map(whole).collect()
    }

    fn read_strips(
        &self,
        name: ObjectName,
        drive: DriveId,
        strips: &[Strip],
    ) -> Result<Vec<u8>, Status> {
        let (regions, length) = regions_of(strips);
        let ask = Ask::Read { name: component(name), order: None, regions, length };
        padded(self.components.ask_one(drive, ask), length)
    }
}

/// Writes of runs of a copy, each with its place there.
fn writes_of(
    name: ObjectName,
    order: Option<WriteOrder>,
    differing: &[(u64, Range<usize>)],
    mut copy: Vec<u8>,
) -> Vec<Ask> {
    let mut writes = Vec::new();
    for some in differing.chunks(MAX_REGIONS) {
        let region =
            |(offset, place): &(u64, Range<usize>)| Region::single(*offset, place.len() as u64);
        let regions = some.iter().map(region).collect();
        let length: usize = some.iter().map(|(_, place)| place.len()).sum();
        let data = match length == copy.len() {
            // All of it, in order: nothing has to be put together.
            true => std::mem::take(&mut copy),
            false => {
                let mut data = Vec::with_capacity(length);
                some.iter().for_each(|(_, place)| data.extend_from_slice(&copy[place.clone()]));
                data
            }
        };
        let name = component(name);
        writes.push(Ask::Write { name, order, regions, data, durable: false });
    }
    writes
}

/// What was read, with zeros where the component has ended before.
fn padded(answer: Answer, length: usize) -> Result<Vec<u8>, Status> {
    match answer.map_err(|error: ComponentError| error.status())? {
        Told::Read(mut read) => {
            read.data.resize(length, 0);
            Ok(read.data)
        }
        other => Err(unexpected(&other).status()),
    }
}

/// The runs of blocks of some strips that are not the same at two copies, each with its place in what was read of a
/// copy; `is_same` tells whether a place of that is.
fn differing(
    strips: &[Strip],
    mut is_same: impl FnMut(Range<usize>) -> bool,
) -> Vec<(u64, Range<usize>)> {
    let mut found: Vec<(u64, Range<usize>)> = Vec::new();
    let mut at = 0;
    for run in runs(strips) {
        let mut begin: Option<usize> = None;
        let mut done = 0;
        while done < run.length as usize {
            let block = (BLOCK_BYTES - (run.offset as usize + done) % BLOCK_BYTES)
                .min(run.length as usize - done);
            let from = at + done;
            match (begin, is_same(from..from + block)) {
                (None, false) => begin = Some(done),
                (Some(first), true) => {
                    found.push((run.offset + first as u64, at + first..from));
                    begin = None;
                }
                _ => {}
            }
            done += block;
        }
        if let Some(first) = begin {
            found.push((run.offset + first as u64, at + first..at + done));
        }
        at += done;
    }
    found
}

/// Whether bytes of at most a block are all zero.
fn is_zeros(bytes: &[u8]) -> bool {
    const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    bytes == &ZEROS[..bytes.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_differ_are_found_run_by_run() {
        let strip = Strip { offset: 6000, length: 10_000, stride: 40_000, count: 2 };
        let copy = vec![1; 20_000];
        let mut there = copy.clone();
        let lengths = |there: &[u8]| {
            let found = differing(&[strip], |place| copy[place.clone()] == there[place]);
            found.into_iter().map(|(at, place)| (at, place.len())).collect::<Vec<_>>()
        };
        assert!(lengths(&there).is_empty());
        there[0] = 2;
        there[9_999] = 2;
        there[10_000] = 2;
        assert_eq!(lengths(&there), [(6000, 2192), (12_288, 3712), (46_000, 3152)]);
        assert_eq!(lengths(&[0; 20_000]), [(6000, 10_000), (46_000, 10_000)]);
        assert_eq!(differing(&[strip], |place| is_zeros(&copy[place])).len(), 2);
        assert!(differing(&[strip], |place| is_zeros(&[0; 20_000][place])).is_empty());
    }
}
