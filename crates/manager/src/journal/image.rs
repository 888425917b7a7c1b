//! What a journal's steps come to.
//!
//! * The **image** is what objects shall hold and may not hold yet: the last that was assigned to each
//!   slot of a directory, to each record, to each symbolic link's data. Whatever of it an object holds
//!   already, and whatever was changed there since by later steps of the same journal, laying the image
//!   over it gives the newest state: so it does not matter how much of it has come home.
//! * The **ledger** is what is kept nowhere but in the journal: objects made ahead, objects to be
//!   removed, orphans, outcomes of requests, sessions. A new area begins with it.
//!
//! The manager folds its own changes into both as it makes them, by the same function as a journal
//! that it finds at its start.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use nasd_protocol::manager::{FileHandle, FileType};
use nasd_types::{DriveId, FsSpecific, ObjectId, Timestamp};

use super::step::{MAX_MADE, RequestKey, Step};

/// Outcomes that are kept for one client that does not say which it has got.
pub const MAX_OUTCOMES_OF_CLIENT: usize = 1024;

/// Outcomes that are kept of all clients together.
pub const MAX_OUTCOMES: usize = 16_384;

/// A name that a slot shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotName {
    /// What it names.
    pub handle: FileHandle,
    /// What that is.
    pub file_type: FileType,
    /// The name.
    pub name: Vec<u8>,
}

/// What the slots of a directory shall hold, by block and slot; `None` for a free one.
pub type Slots = BTreeMap<(u32, u8), Option<SlotName>>;

/// Names of a directory that may not be home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryImage {
    /// What its slots shall hold.
    pub slots: Slots,
    /// The sequence of the last change.
    pub sequence: u64,
}

/// A record that may not be home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordImage {
    /// The `fs_specific` attribute.
    pub record: Box<FsSpecific>,
    /// When the record, or a directory's contents, were changed.
    pub changed: Timestamp,
    /// A directory's modification time.
    pub modified: Option<Timestamp>,
    /// The sequence of the last change.
    pub sequence: u64,
}

/// What objects shall hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Directories' names.
    pub directories: HashMap<FileHandle, DirectoryImage>,
    /// Files' records.
    pub records: HashMap<FileHandle, RecordImage>,
    /// Symbolic links' targets.
    pub data: HashMap<FileHandle, Vec<u8>>,
}

/// Objects made ahead on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// The highest number of all that were ever made.
    pub highest: ObjectId,
    /// More may have been made, with numbers above that.
    pub making: bool,
    /// Those that were not taken.
    pub objects: BTreeSet<ObjectId>,
}

impl Ahead {
    /// Whether an object was made ahead, or may have been: the numbers of those that are being made are
    /// told after they were.
    pub fn may_have(&self, object: ObjectId) -> bool {
        self.objects.contains(&object) || (self.making && object > self.highest)
    }
}

/// What was answered to a client's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Requests below this number will not come again.
    pub oldest: u64,
    /// By number: the file that the answer is about, if any.
    pub done: BTreeMap<u64, Option<FileHandle>>,
}

/// What is kept in the journal alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Objects made ahead.
    pub ahead: BTreeMap<DriveId, Ahead>,
    /// Objects to be removed.
    pub doomed: HashSet<FileHandle>,
    /// Files without a name that somebody may have open.
    pub orphans: BTreeSet<FileHandle>,
    /// Those of them that never had a name, and may get one.
    pub nameless: BTreeSet<FileHandle>,
    /// Directories whose files are to get their list as AFS has it, by the revision of the record in which it was set.
    pub governing: BTreeMap<FileHandle, u64>,
    /// Clients that have a session.
    pub sessions: BTreeSet<u64>,
    /// Outcomes of requests, by peer and client.
    pub outcomes: BTreeMap<(u32, u64), Outcomes>,
    outcome_count: usize,
}

impl Image {
    /// Whether everything is home.
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.records.is_empty() && self.data.is_empty()
    }

    /// Takes a step in.
    pub fn apply(&mut self, step: &Step, sequence: u64) {
        match step {
            Step::SetName { directory, block, slot, handle, file_type, name } => {
                let name = SlotName { handle: *handle, file_type: *file_type, name: name.clone() };
                self.set_slot(*directory, (*block, *slot), Some(name), sequence);
            }
            Step::RemoveName { directory, block, slot } => {
                self.set_slot(*directory, (*block, *slot), None, sequence);
            }
            Step::SetRecord { object, changed, modified, record } => {
                let before = self.records.get(object).and_then(|before| before.modified);
                let image = RecordImage {
                    record: record.clone(),
                    changed: *changed,
                    modified: modified.or(before),
                    sequence,
                };
                self.records.insert(*object, image);
            }
            Step::SetData { object, data } => {
                self.data.insert(*object, data.clone());
            }
            Step::Remove { object } => self.forget(*object),
            Step::Take { .. }
            | Step::Making { .. }
            | Step::Made { .. }
            | Step::Outcome { .. }
            | Step::Session { .. }
            | Step::SessionEnded { .. }
            | Step::Orphan { .. }
            | Step::Nameless { .. }
            | Step::Named { .. }
            | Step::Governing { .. }
            | Step::Governed { .. }
            | Step::Home => {}
        }
    }

    fn set_slot(
        &mut self,
        directory: FileHandle,
        place: (u32, u8),
        name: Option<SlotName>,
        sequence: u64,
    ) {
        let image = self.directories.entry(directory).or_default();
        image.slots.insert(place, name);
        image.sequence = sequence;
    }

    /// Leaves an object out.
    pub fn forget(&mut self, object: FileHandle) {
        self.directories.remove(&object);
        self.records.remove(&object);
        self.data.remove(&object);
    }

    /// Takes what a newer image says of the slots, records and data that are in this one.
    pub fn take_newer(&mut self, newer: &Image) {
        for (directory, image) in &mut self.directories {
            let found = newer.directories.get(directory);
            for (place, name) in &mut image.slots {
                if let Some(newer) = found.and_then(|found| found.slots.get(place)) {
                    *name = newer.clone();
                }
            }
        }
        for (object, image) in &mut self.records {
            if let Some(newer) = newer.records.get(object) {
                let modified = newer.modified.or(image.modified);
                *image = RecordImage { modified, ..newer.clone() };
            }
        }
        for (object, data) in &mut self.data {
            if let Some(newer) = newer.data.get(object) {
                data.clone_from(newer);
            }
        }
    }

    /// The drives that something of it lies on, some of them several times.
    pub fn drives(&self) -> impl Iterator<Item = DriveId> {
        let objects = self.directories.keys().chain(self.records.keys()).chain(self.data.keys());
        objects.map(|object| object.drive)
    }

    /// The last change of an object that is in here, or 0.
    pub fn sequence_of(&self, object: FileHandle) -> u64 {
        let names = self.directories.get(&object).map_or(0, |image| image.sequence);
        names.max(self.records.get(&object).map_or(0, |image| image.sequence))
    }

    /// Keeps what lies on the drives for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(DriveId) -> bool) {
        self.directories.retain(|object, _| keep(object.drive));
        self.records.retain(|object, _| keep(object.drive));
        self.data.retain(|object, _| keep(object.drive));
    }

    /// The steps that make it.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        let names = self.directories.iter().flat_map(|(directory, image)| {
            image.slots.iter().map(|((block, slot), name)| {
                let (directory, block, slot) = (*directory, *block, *slot);
                match name.clone() {
                    None => Step::RemoveName { directory, block, slot },
                    Some(SlotName { handle, file_type, name }) => {
                        Step::SetName { directory, block, slot, handle, file_type, name }
                    }
                }
            })
        });
        let records = self.records.iter().map(|(object, image)| Step::SetRecord {
            object: *object,
            changed: image.changed,
            modified: image.modified,
            record: image.record.clone(),
        });
        let data = self.data.iter();
        let data = data.map(|(object, data)| Step::SetData { object: *object, data: data.clone() });
        names.chain(records).chain(data)
    }
}

impl Ledger {
    /// Takes a step in.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Take { object } => self.take(*object),
            Step::Remove { object } => {
                self.take(*object);
                self.name(*object);
                self.governing.remove(object);
                self.doomed.insert(*object);
            }
            Step::Orphan { object } => drop(self.orphans.insert(*object)),
            Step::Nameless { object } => {
                self.orphans.insert(*object);
                self.nameless.insert(*object);
            }
            Step::Named { object } => self.name(*object),
            Step::Governing { directory, revision } => {
                let known = self.governing.entry(*directory).or_default();
                *known = (*known).max(*revision);
            }
            Step::Governed { directory, revision } => {
                self.governing.retain(|other, known| other != directory || *known > *revision);
            }
            Step::Session { client } => drop(self.sessions.insert(*client)),
            Step::SessionEnded { client } => drop(self.sessions.remove(client)),
            Step::Making { drive } => self.ahead.entry(*drive).or_default().making = true,
            Step::Made { drive, highest, objects } => {
                let ahead = self.ahead.entry(*drive).or_default();
                ahead.making = false;
                ahead.highest = ahead.highest.max(*highest);
                ahead.objects.extend(objects);
            }
            Step::Outcome { request, oldest, handle } => self.done(*request, *oldest, *handle),
            Step::SetName { .. }
            | Step::RemoveName { .. }
            | Step::SetRecord { .. }
            | Step::SetData { .. }
            | Step::Home => {}
        }
    }

    /// A file has a name, or has gone.
    fn name(&mut self, object: FileHandle) {
        self.orphans.remove(&object);
        self.nameless.remove(&object);
    }

    fn take(&mut self, object: FileHandle) {
        if let Some(ahead) = self.ahead.get_mut(&object.drive) {
            ahead.objects.remove(&object.object);
        }
    }

    /// The outcome of a request, if it was executed; what there is is the file that its answer is about.
    pub fn outcome(&self, request: &RequestKey) -> Option<Option<FileHandle>> {
        self.outcomes.get(&(request.peer, request.client))?.done.get(&request.number).copied()
    }

    fn done(&mut self, request: RequestKey, oldest: u64, handle: Option<FileHandle>) {
        let client = self.outcomes.entry((request.peer, request.client)).or_default();
        let before = client.done.len();
        client.oldest = client.oldest.max(oldest);
        client.done = client.done.split_off(&client.oldest);
        client.done.insert(request.number, handle);
        while client.done.len() > MAX_OUTCOMES_OF_CLIENT {
            client.done.pop_first();
        }
        self.outcome_count = self.outcome_count + client.done.len() - before;
        while self.outcome_count > MAX_OUTCOMES {
            self.forget_a_client((request.peer, request.client));
        }
    }

    /// Forgets the outcomes of the client that has most of them, but for one that has just come: its own
    /// go one by one.
    fn forget_a_client(&mut self, latest: (u32, u64)) {
        let others = self.outcomes.iter().filter(|(client, _)| **client != latest);
        let largest = others.max_by_key(|(_, outcomes)| outcomes.done.len());
        match largest.map(|(client, _)| *client) {
            Some(client) => {
                let gone = self.outcomes.remove(&client);
                self.outcome_count -= gone.map_or(0, |outcomes| outcomes.done.len());
            }
            None => {
                let own = self.outcomes.entry(latest).or_default();
                self.outcome_count -= usize::from(own.done.pop_first().is_some());
            }
        }
    }

    /// The steps that an area begins with.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        let ahead = self.ahead.iter().flat_map(|(drive, ahead)| {
            let (drive, highest) = (*drive, ahead.highest);
            let objects: Vec<ObjectId> = ahead.objects.iter().copied().collect();
            let none = objects.is_empty().then(|| Step::Made { drive, highest, objects: vec![] });
            let chunks: Vec<Step> = objects
                .chunks(MAX_MADE)
                .map(|objects| Step::Made { drive, highest, objects: objects.to_vec() })
                .collect();
            let making = ahead.making.then_some(Step::Making { drive });
            none.into_iter().chain(chunks).chain(making)
        });
        let doomed = self.doomed.iter().map(|object| Step::Remove { object: *object });
        let outcomes = self.outcomes.iter().flat_map(|((peer, client), outcomes)| {
            outcomes.done.iter().map(|(number, handle)| Step::Outcome {
                request: RequestKey { peer: *peer, client: *client, number: *number },
                oldest: outcomes.oldest,
                handle: *handle,
            })
        });
        // What is to be removed is not ahead, whichever was said first.
        let orphans = self.orphans.iter().map(|object| match self.nameless.contains(object) {
            true => Step::Nameless { object: *object },
            false => Step::Orphan { object: *object },
        });
        let sessions = self.sessions.iter().map(|client| Step::Session { client: *client });
        let governing = self.governing.iter().map(|(directory, revision)| Step::Governing {
            directory: *directory,
            revision: *revision,
        });
        doomed.chain(ahead).chain(outcomes).chain(orphans).chain(governing).chain(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::super::step::tests::{all_steps, handle};
    use super::*;

    fn folded(steps: &[Step]) -> (Image, Ledger) {
        let (mut image, mut ledger) = (Image::default(), Ledger::default());
        for (number, step) in steps.iter().enumerate() {
            image.apply(step, number as u64);
            ledger.apply(step);
        }
        (image, ledger)
    }

    fn named(slot: u8, name: &str) -> Step {
        Step::SetName {
            directory: handle(1),
            block: 0,
            slot,
            handle: handle(100 + u64::from(slot)),
            file_type: FileType::Regular,
            name: name.as_bytes().to_vec(),
        }
    }

    #[test]
    fn the_last_word_counts_and_repetition_changes_nothing() {
        let free = Step::RemoveName { directory: handle(1), block: 0, slot: 3 };
        let steps = [named(3, "a"), named(4, "b"), free, named(4, "c")];
        let (image, _) = folded(&steps);
        let slots = &image.directories[&handle(1)].slots;
        assert_eq!(slots[&(0, 3)], None);
        assert_eq!(slots[&(0, 4)].as_ref().unwrap().name, b"c");
        let (mut twice, _) = folded(&[&steps[..], &steps[..]].concat());
        twice.directories.get_mut(&handle(1)).unwrap().sequence = 3;
        assert_eq!(twice, image);
    }

    #[test]
    fn what_is_removed_leaves_nothing_behind() {
        let mut steps = all_steps();
        for object in [1, 2, 3] {
            steps.push(Step::Remove { object: handle(object) });
        }
        let (image, ledger) = folded(&steps);
        assert!(image.is_empty());
        assert_eq!(ledger.doomed.len(), 4);
    }

    #[test]
    fn an_image_and_a_ledger_are_made_by_their_steps() {
        let (image, ledger) = folded(&all_steps()[..6]);
        let again: Vec<Step> = image.steps().collect();
        let (mut copy, _) = folded(&again);
        for (object, directory) in &mut copy.directories {
            directory.sequence = image.directories[object].sequence;
        }
        for (object, record) in &mut copy.records {
            record.sequence = image.records[object].sequence;
        }
        assert_eq!(copy, image);
        let making = Step::Making { drive: DriveId(4) };
        let (_, full) = folded(&[all_steps(), vec![making]].concat());
        let (_, copy) = folded(&full.steps().collect::<Vec<_>>());
        assert_eq!(copy, full);
        assert!(full.ahead[&DriveId(4)].making);
        assert_ne!(full, ledger);
    }

    #[test]
    fn what_is_said_again_is_the_newest() {
        let free = Step::RemoveName { directory: handle(1), block: 0, slot: 3 };
        let older = [named(3, "a"), named(5, "e"), all_steps()[2].clone()];
        let newer = [free, named(4, "d"), all_steps()[3].clone()];
        let mut again = folded(&older).0;
        again.take_newer(&folded(&newer).0);
        let (both, _) = folded(&[&older[..], &newer[..]].concat());
        let slots = &again.directories[&handle(1)].slots;
        assert_eq!(slots.len(), 2, "the others are said elsewhere");
        for (place, name) in slots {
            assert_eq!(*name, both.directories[&handle(1)].slots[place]);
        }
        let (one, other) = (&again.records[&handle(2)], &both.records[&handle(2)]);
        assert_eq!((one.modified, &one.record), (other.modified, &other.record));
        assert_eq!(one.modified, Some(Timestamp(6)), "a chmod leaves the time of the contents");
    }

    #[test]
    fn taken_objects_are_no_longer_ahead() {
        let made = Step::Made {
            drive: DriveId(1),
            highest: ObjectId(9),
            objects: vec![ObjectId(8), ObjectId(9)],
        };
        let (_, ledger) = folded(&[made, Step::Take { object: handle(8) }]);
        let ahead = &ledger.ahead[&DriveId(1)];
        assert_eq!((ahead.objects.len(), ahead.highest, ahead.making), (1, ObjectId(9), false));
    }

    #[test]
    fn what_is_being_made_is_ahead_before_it_is_told() {
        let made =
            Step::Made { drive: DriveId(1), highest: ObjectId(9), objects: vec![ObjectId(9)] };
        let may_have =
            |steps: &[Step], object| folded(steps).1.ahead[&DriveId(1)].may_have(ObjectId(object));
        assert!(may_have(std::slice::from_ref(&made), 9));
        assert!(!may_have(std::slice::from_ref(&made), 10), "nothing is being made");
        let making = [made, Step::Making { drive: DriveId(1) }];
        assert!(may_have(&making, 10));
        assert!(!may_have(&making, 8), "it was known, and is a file or was removed");
    }

    #[test]
    fn outcomes_are_bounded_and_dropped_when_acknowledged() {
        let outcome = |client, number, oldest| Step::Outcome {
            request: RequestKey { peer: 1, client, number },
            oldest,
            handle: None,
        };
        let key = |client, number| RequestKey { peer: 1, client, number };
        let mut ledger = Ledger::default();
        (1..=2000).for_each(|number| ledger.apply(&outcome(1, number, 1)));
        assert_eq!(ledger.outcomes[&(1, 1)].done.len(), MAX_OUTCOMES_OF_CLIENT);
        assert_eq!(ledger.outcome(&key(1, 2000)), Some(None));
        assert_eq!(ledger.outcome(&key(1, 900)), None);
        ledger.apply(&outcome(1, 2001, 2000));
        assert_eq!(ledger.outcomes[&(1, 1)].done.len(), 2);
        for client in 2..100 {
            (1..=1000).for_each(|number| ledger.apply(&outcome(client, number, 1)));
            assert_eq!(ledger.outcome(&key(client, 1000)), Some(None));
            let total: usize = ledger.outcomes.values().map(|each| each.done.len()).sum();
            assert!(total <= MAX_OUTCOMES && total == ledger.outcome_count);
        }
    }
}
