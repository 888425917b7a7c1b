//! Giving drives that were out what they lack: what has changed since, found by asking all drives what they have.
//!
//! A drive that is joining is written like the others from the start, so that there is an end. Object after
//! object is compared with its other copies, and what differs is written; an object that nobody has touched
//! since is not read at all. What clients may be writing at the time is read and written with orders, which
//! need no lock: what a client writes meanwhile comes either before the copying at all copies, or after it.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nasd_layout::Column;
use nasd_protocol::Status;
use nasd_protocol::drive::{RemoveArguments, SeekArguments};
use nasd_types::{
    Attributes, ByteRange, DriveId, ObjectId, ObjectName, PartitionId, SeekTarget, SetAttributes,
    Timestamp,
};

use crate::attributes::{Whole, setattr};
use crate::components::{Ask, Told};
use crate::giving::Write;
use crate::giving_small;
use crate::mend::Lock;
use crate::place::Place;
use crate::state::State;
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, component, component_partition, unexpected};

/// Objects that are looked up at a time.
const PAGE: usize = 256;

/// Bytes of the whole that are compared at a time.
const STEP: u64 = 8 << 20;

/// What was changed so long before a drive was known to have all the last time may be lacking there all the same:
/// clocks differ, and what is not flushed is lost.
const MARGIN_NS: u64 = 120_000_000_000;

/// How long nobody looks, while it is waited, whether the limit is another one.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long it is waited for who is looking for what is next.
const LOOKING: Duration = Duration::from_millis(2);

/// What is being given to drives that were out. No drive is asked while it is locked: whoever wants to know how far it
/// has come, or to stop it, does not wait for one that does not answer.
#[derive(Debug, Default)]
pub(crate) struct Rebuild {
    passes: Mutex<Passes>,
    /// Whether there will be no more.
    is_over: AtomicBool,
}

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
    /// Objects to look at, and how many somebody is looking at.
    waiting: VecDeque<Waiting>,
    /// Those of them that came by themselves, each once.
    again: HashSet<ObjectName>,
    under_way: usize,
    /// How many are at it, which share what may be looked at in a second.
    givers: usize,
    /// Whether somebody is making durable what was given.
    is_ending: bool,
    /// How many objects were looked at, and how many when all was durable last.
    looked_at: u64,
    durable: Option<u64>,
    progress: RebuildProgress,
}

/// An object that is to be looked at.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    name: ObjectName,
    /// Components that there are.
    parts: u64,
    /// Whether it is looked at by itself: it is not one of those that are given together ([`crate::giving_small`]).
    is_alone: bool,
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
    objects: Vec<Waiting>,
    next: Option<ObjectId>,
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
    Object(u64, Waiting),
    /// The same for several of one partition at once.
    Together(u64, Vec<Waiting>),
    /// Others are at the last ones.
    Wait,
    /// All were looked at.
    End(Box<Pass>),
}

impl Pass {
    /// What waits the longest, which somebody looks at from now on.
    fn next_waiting(&mut self) -> Option<Next> {
        let first = self.waiting.pop_front()?;
        self.again.remove(&first.name);
        self.under_way += 1;
        self.givers += 1;
        if first.is_alone {
            return Some(Next::Object(self.number, first));
        }
        let mut together = vec![first];
        let is_like =
            |next: &mut Waiting| !next.is_alone && next.name.partition == first.name.partition;
        while together.len() < giving_small::MOST
            && let Some(next) = self.waiting.pop_front_if(is_like)
        {
            together.push(next);
        }
        self.under_way += together.len() - 1;
        Some(Next::Together(self.number, together))
    }
}

impl Passes {
    /// What is next, as far as it is known.
    fn next(&mut self) -> Next {
        let look = match &mut self.present {
            None => Look::Pass,
            Some(pass) => {
                if let Some(next) = pass.next_waiting() {
                    return next;
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
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(pass) = &mut self.lock().present
            && pass.again.insert(name)
        {
            pass.waiting.push_back(Waiting { name, parts: 0, is_alone: true });
        }
    }

    /// So much was written of an object that is not done yet.
    fn note_bytes(&self, number: u64, bytes: u64) {
        if let Some(pass) = self.lock().present.as_mut().filter(|pass| pass.number == number) {
            pass.progress.bytes += bytes;
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Whether this is what is being done.
    fn is_present(&self, number: u64) -> bool {
        self.lock().present.as_ref().is_some_and(|pass| pass.number == number)
    }

    /// Ends a pass, if all that was looked at is durable.
    fn end(&self, number: u64) -> bool {
        let mut passes = self.lock();
        let is_done = |pass: &Pass| {
            let is_idle = pass.waiting.is_empty() && pass.partitions.is_empty();
            let is_durable = pass.durable == Some(pass.looked_at);
            let is_whole = pass.under_way == 0 && is_durable;
            pass.number == number && is_idle && is_whole && !self.is_over()
        };
        passes.present.take_if(|pass| is_done(pass)).is_some()
    }
}

impl VirtualDrive {
    /// Looks at one object of those that drives which are joining may lack. How many bytes were written for that;
    /// none if there is nothing to do now. Any number of threads may do so at a time.
    pub fn rebuild(&self) -> Option<u64> {
        loop {
            if self.rebuild.is_over() {
                return None;
            }
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
                Next::Object(pass, object) => return Some(self.rebuild_one(pass, object)),
                Next::Together(pass, objects) => return Some(self.rebuild_small(pass, objects)),
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
            again: HashSet::new(),
            under_way: 0,
            givers: 0,
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
        let waiting = |(object, parts)| {
            let name = ObjectName { partition, object };
            Waiting { name, parts, is_alone: false }
        };
        let objects = found.map(waiting).collect();
        Ok(Page { objects, next: until.map(|until| ObjectId(until.0 + 1)) })
    }

    /// Looks at several objects of a partition at once; those that are not small are looked at by themselves next, by
    /// anybody.
    fn rebuild_small(&self, number: u64, objects: Vec<Waiting>) -> u64 {
        let drives = match &self.rebuild.lock().present {
            Some(pass) if pass.number == number => pass.drives.clone(),
            _ => return 0,
        };
        let partition = objects[0].name.partition;
        let names: Vec<ObjectId> = objects.iter().map(|waiting| waiting.name.object).collect();
        let given = self.give_small(partition, &names, &drives);
        self.throttle(given.looked_at);
        let whole: HashSet<ObjectId> = given.whole.into_iter().collect();
        let mut passes = self.rebuild.lock();
        let pass = passes.present.as_mut().filter(|pass| pass.number == number);
        let Some(pass) = pass else { return 0 };
        pass.under_way = pass.under_way.saturating_sub(objects.len());
        pass.givers = pass.givers.saturating_sub(1);
        pass.progress.bytes += given.bytes;
        for waiting in objects.into_iter().rev() {
            if whole.contains(&waiting.name.object) {
                pass.progress.objects_done += waiting.parts;
                pass.looked_at += 1;
            } else {
                pass.waiting.push_front(Waiting { is_alone: true, ..waiting });
            }
        }
        given.bytes
    }

    fn rebuild_one(&self, number: u64, waiting: Waiting) -> u64 {
        let Waiting { name, parts, .. } = waiting;
        let (drives, before) = match &self.rebuild.lock().present {
            Some(pass) if pass.number == number => (pass.drives.clone(), pass.progress.bytes),
            _ => return 0,
        };
        let outcome = self.give(number, name, &drives);
        let mut passes = self.rebuild.lock();
        let pass = passes.present.as_mut().filter(|pass| pass.number == number);
        let Some(pass) = pass else { return 0 };
        pass.under_way = pass.under_way.saturating_sub(1);
        pass.givers = pass.givers.saturating_sub(1);
        match outcome {
            Ok(()) => {
                pass.progress.objects_done += parts;
                pass.looked_at += 1;
            }
            Err(status) => {
                tracing::debug!(%name, %status, "an object can't be given to a drive yet");
                pass.waiting.push_back(Waiting { is_alone: true, ..waiting });
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
                if self.rebuild.is_over() {
                    // It has not all of the object.
                    return Err(Status::Busy);
                }
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

    /// Waits for as long as so many bytes are to take by the limit that there is, whatever becomes of it meanwhile.
    pub(crate) fn throttle(&self, bytes: u64) {
        let mut owed = bytes as f64;
        while !self.rebuild.is_over() {
            let limit = self.rebuild_limit();
            let others = self.rebuild.lock().present.as_ref().map_or(1, |pass| pass.givers);
            let rate = limit as f64 / others.max(1) as f64;
            // Less than a clock tells is no time.
            if limit == 0 || owed / rate < 1e-6 {
                return;
            }
            let pause = Duration::from_secs_f64((owed / rate).min(LONGEST_PAUSE.as_secs_f64()));
            self.components.pause(pause);
            owed -= pause.as_secs_f64() * rate;
        }
    }

    /// Has whoever gives drives what they lack, or looks for bad blocks, end soon: the striping manager is stopped.
    pub fn end_rebuild(&self) {
        self.rebuild.is_over.store(true, Ordering::Release);
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
            let has_all = |had| self.has_all(&place, (drive, drives), &whole, had);
            if !had.as_ref().is_some_and(has_all) {
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

    /// Whether a drive lacks nothing of an object that it has a component of, as nobody has changed it since.
    pub(crate) fn has_all(
        &self,
        place: &Place,
        (drive, drives): (DriveId, &BTreeMap<DriveId, Timestamp>),
        whole: &Whole,
        had: &Attributes,
    ) -> bool {
        let since = match place.is_stand_in(drive) {
            // It has never had any of it, or nobody knows since when.
            true => Timestamp(0),
            false => drives.get(&drive).copied().unwrap_or_default(),
        };
        // The drive may have done something late, too, that was not done elsewhere.
        let changed = |told: &Attributes| told.data_modify_time.max(told.attribute_modify_time);
        let changed = changed(&whole.attributes).max(changed(had));
        had.access_control_version == whole.version.0
            && !whole.version.has_writers()
            && changed.0.saturating_add(MARGIN_NS) < since.0
    }

    /// A component that was to be cut may be longer than the whole; for who has the object's lock.
    pub(crate) fn cut(
        &self,
        name: ObjectName,
        place: &Place,
        drive: DriveId,
    ) -> Result<(), Status> {
        let is_longer = || -> Result<_, Status> {
            let whole = self.whole(name)?;
            let had = self.getattr_at(drive, name).map_err(|error| error.status())?;
            let end = whole.attributes.logical_size;
            Ok((had.logical_size > end).then_some((whole.version, end)))
        };
        let Some((version, _)) = is_longer()? else { return Ok(()) };
        // Or a client makes it longer just now, at other copies later.
        let version = self.set_version(name, place, version.revoked())?;
        let Some((_, end)) = is_longer()? else { return Ok(()) };
        self.cut_one(name, place, version, (drive, end))
    }

    /// Makes the component of one drive shorter, for who has the object's lock, and nobody writes it.
    pub(crate) fn cut_one(
        &self,
        name: ObjectName,
        place: &Place,
        version: ComponentVersion,
        (drive, end): (DriveId, u64),
    ) -> Result<(), Status> {
        let cut = |other| SetAttributes {
            logical_size: (other == drive).then_some(end),
            ..SetAttributes::default()
        };
        self.raise(name, place, version.revoked(), cut).map(drop)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done() {
        let left = |progress: RebuildProgress, seconds| progress.after(seconds).seconds_left;
        let nothing =
            RebuildProgress { objects: 100, expected: 1000, ..RebuildProgress::default() };
        assert_eq!(left(nothing, 10.0), 0, "it is not known");
        assert_eq!(left(RebuildProgress { bytes: 250, ..nothing }, 10.0), 30);
        // Large objects come late, or small ones.
        assert_eq!(left(RebuildProgress { bytes: 100, objects_done: 50, ..nothing }, 10.0), 10);
        let unknown = RebuildProgress { objects_done: 20, expected: 0, ..nothing };
        assert_eq!(left(unknown, 10.0), 40);
        assert_eq!(left(RebuildProgress { bytes: 2000, ..nothing }, 10.0), 0, "more than expected");
    }
}
