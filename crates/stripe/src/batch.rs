//! Many operations in one call, sent on as one batch to each component drive.
//!
//! They are done each for itself, in order where they are about the same object: what needs several steps is
//! done by itself, when those before it are done.

use std::collections::{BTreeMap, HashSet};

use nasd_protocol::Status;
use nasd_protocol::drive::{BatchArguments, BatchDone, BatchOperation, BatchOutcome, Batched};
use nasd_types::limits::BLOCK_BYTES;
use nasd_types::{Attributes, DriveId, ObjectId, ObjectName, PartitionId, SetAttributes};

use crate::attributes::{askable, merged};
use crate::components::{Ask, Told};
use crate::create::initial_of;
use crate::mend::Lock;
use crate::version::ComponentVersion;
use crate::virtual_drive::{VirtualDrive, batches, component_partition, unexpected};

/// An operation that its component drives do as part of their batches.
struct Simple {
    /// Which operation of the virtual drive's batch it is.
    index: usize,
    object: ObjectId,
    /// The drives that do it, the home first, and what they do.
    drives: Vec<DriveId>,
    operation: BatchOperation,
    /// The version of the components that this was decided by; none of an object that is made.
    decided_by: Option<ComponentVersion>,
    /// The version of the components afterwards, if it is known.
    version: Option<ComponentVersion>,
    is_spread: bool,
}

impl VirtualDrive {
    pub(crate) fn batch_whole(&self, arguments: &BatchArguments) -> Result<Batched, Status> {
        if arguments.answer_bytes() > nasd_protocol::limits::MAX_BATCH_BYTES {
            return Err(Status::TooLarge);
        }
        let own = self.instances.own();
        let partition = arguments.partition;
        let named: Vec<ObjectId> =
            arguments.operations.iter().filter_map(BatchOperation::object).collect();
        if named.len() > 1 {
            self.learn_versions(partition, &named);
        }
        let mut outcomes: Vec<BatchOutcome> = Vec::new();
        outcomes.resize(arguments.operations.len(), Err(Status::DriveFault));
        let mut waiting: Vec<Simple> = Vec::new();
        let mut touched: HashSet<ObjectId> = HashSet::new();
        for (index, operation) in arguments.operations.iter().enumerate() {
            let again = operation.object().is_some_and(|object| touched.contains(&object));
            match self.simplify(partition, index, operation) {
                Ok(Some(simple)) if !again => {
                    touched.insert(simple.object);
                    waiting.push(simple);
                }
                Ok(_) => {
                    let simples = std::mem::take(&mut waiting);
                    self.do_simple(arguments, simples, &mut outcomes);
                    touched.clear();
                    outcomes[index] = self.do_alone(partition, operation, arguments.durable);
                }
                Err(status) => outcomes[index] = Err(status),
            }
        }
        self.do_simple(arguments, waiting, &mut outcomes);
        for (operation, outcome) in arguments.operations.iter().zip(&mut outcomes) {
            if let Ok(done) = outcome
                && !operation.tells_attributes(arguments.with_attributes)
            {
                done.attributes = None;
            }
        }
        Ok(Batched { instance: own, outcomes })
    }

    /// What an operation is to component drives; `None` if it takes several steps.
    fn simplify(
        &self,
        partition: PartitionId,
        index: usize,
        operation: &BatchOperation,
    ) -> Result<Option<Simple>, Status> {
        check(operation)?;
        let simple = |object, drives: &[DriveId], operation, version: Option<ComponentVersion>| {
            let is_spread = version.is_some_and(ComponentVersion::is_spread);
            let drives = drives.to_vec();
            Simple { index, object, drives, operation, decided_by: None, version, is_spread }
        };
        let Some(object) = operation.object() else {
            let BatchOperation::Create(_, initial) = operation else {
                return Err(Status::BadArgument);
            };
            let name = self.new_name(partition)?;
            let place = self.place(name)?;
            let (initial, version) = initial_of(initial, &place)?;
            self.note_writing(name, &place);
            let create = BatchOperation::Create(Some(name.object), initial);
            return Ok(Some(simple(name.object, place.homes(), create, Some(version))));
        };
        let name = ObjectName { partition, object };
        let version = self.levelled_version(name)?.ok_or(Status::NoSuchObject)?;
        let place = self.place(name)?;
        if version.is_spread() {
            let BatchOperation::Getattr(_) = operation else {
                return Ok(None);
            };
            let decided_by = Some(version);
            let simple = simple(object, &askable(&place, true), operation.clone(), decided_by);
            return Ok(Some(Simple { decided_by, ..simple }));
        }
        // Of some components not all that they tell counts.
        let is_any_late = place.joining().next().is_some() || place.has_doubted();
        if is_any_late && !matches!(operation, BatchOperation::Getattr(_)) {
            return Ok(None);
        }
        if let BatchOperation::Setattr(_, changes) = operation
            && (changes.logical_size.is_some()
                || changes.access_control_version.is_some() && place.has_copies())
        {
            return Ok(None);
        }
        let decided_by = Some(version);
        let simple = match operation {
            BatchOperation::Setattr(_, changes) => {
                let changes = self.component_changes(version, changes)?;
                let after = changes.access_control_version.map_or(version, ComponentVersion);
                let setattr = BatchOperation::Setattr(object, changes);
                simple(object, place.homes(), setattr, Some(after))
            }
            BatchOperation::Remove(_) => simple(object, place.homes(), operation.clone(), None),
            _ => simple(object, &askable(&place, false), operation.clone(), Some(version)),
        };
        Ok(Some(Simple { decided_by, ..simple }))
    }

    /// Does what takes one step, all drives at once. Of what has become another thing since that was decided, each does
    /// it for itself.
    fn do_simple(
        &self,
        arguments: &BatchArguments,
        simples: Vec<Simple>,
        outcomes: &mut [BatchOutcome],
    ) {
        let partition = arguments.partition;
        let name_of = |simple: &Simple| ObjectName { partition, object: simple.object };
        let alone = self.lock_all(simples.iter().map(name_of));
        // Another one may have spread an object, or raised its version, until it was locked.
        let is_as_decided = |simple: &Simple| {
            simple.decided_by.is_none() || self.versions.get(name_of(simple)) == simple.decided_by
        };
        let (simples, changed): (Vec<Simple>, Vec<Simple>) =
            simples.into_iter().partition(is_as_decided);
        let mut by_drive: BTreeMap<DriveId, Vec<(usize, BatchOperation)>> = BTreeMap::new();
        for (at, simple) in simples.iter().enumerate() {
            for drive in &simple.drives {
                by_drive.entry(*drive).or_default().push((at, simple.operation.clone()));
            }
        }
        let told = self.ask_batches((partition, arguments.durable), by_drive);
        for (at, simple) in simples.iter().enumerate() {
            outcomes[simple.index] = self.outcome(partition, simple, &told, at);
        }
        drop(alone);
        for index in changed.into_iter().map(|simple| simple.index) {
            let operation = &arguments.operations[index];
            outcomes[index] = self.do_alone(partition, operation, arguments.durable);
        }
    }

    /// Sends each drive its operations, which are about objects of one partition, and are to be durable or not; what
    /// came of each, by place and drive.
    pub(crate) fn ask_batches(
        &self,
        (partition, durable): (PartitionId, bool),
        by_drive: BTreeMap<DriveId, Vec<(usize, BatchOperation)>>,
    ) -> BTreeMap<(usize, DriveId), BatchOutcome> {
        let partition = component_partition(partition);
        let (mut questions, mut places) = (Vec::new(), Vec::new());
        for (drive, operations) in by_drive {
            let (at, operations): (Vec<usize>, Vec<_>) = operations.into_iter().unzip();
            let mut at = at.into_iter();
            for batch in batches(partition, operations, durable) {
                places.push((drive, at.by_ref().take(batch.operations.len()).collect::<Vec<_>>()));
                questions.push((drive, Ask::Batch(batch)));
            }
        }
        let mut told = BTreeMap::new();
        for ((drive, places), answer) in places.into_iter().zip(self.components.ask(questions)) {
            let outcomes = match answer {
                Ok(Told::Batched(batched)) => {
                    self.saw(drive, batched.instance);
                    batched.outcomes
                }
                Ok(other) => vec![Err(unexpected(&other).status()); places.len()],
                Err(error) => vec![Err(error.status()); places.len()],
            };
            told.extend(places.into_iter().map(|at| (at, drive)).zip(outcomes));
        }
        told
    }

    /// How an operation ended of which these drives did parts.
    fn outcome(
        &self,
        partition: PartitionId,
        simple: &Simple,
        told: &BTreeMap<(usize, DriveId), BatchOutcome>,
        at: usize,
    ) -> BatchOutcome {
        let name = ObjectName { partition, object: simple.object };
        let is_removal = matches!(simple.operation, BatchOperation::Remove(_));
        let mut parts: Vec<Attributes> = Vec::new();
        let mut missing = 0;
        for drive in &simple.drives {
            match told.get(&(at, *drive)).cloned().unwrap_or(Err(Status::DriveFault)) {
                Ok(done) => parts.extend(done.attributes),
                // Of several copies one may have been removed by an attempt before.
                Err(Status::NoSuchObject) if is_removal => missing += 1,
                Err(status) if matches!(simple.operation, BatchOperation::Create(..)) => {
                    self.give_up(name, &simple.drives);
                    return Err(status);
                }
                Err(status) => {
                    self.versions.doubt(name);
                    if simple.drives.len() > 1 {
                        self.may_differ(name);
                    }
                    return Err(status);
                }
            }
        }
        if is_removal {
            self.versions.forget(name);
            self.writers.forget(name);
            let none = missing == simple.drives.len();
            let done = BatchDone { object: simple.object, attributes: None };
            return if none { Err(Status::NoSuchObject) } else { Ok(done) };
        }
        if let Some(version) = simple.version {
            match simple.operation {
                BatchOperation::Create(..) => self.versions.put_everywhere(name, version),
                _ => self.versions.put(name, version),
            }
        }
        let place = self.place(name)?;
        let attributes = match parts.is_empty() {
            false => merged(parts, &place, simple.is_spread),
            // It was made by an attempt whose answer was lost.
            true => self.getattr_whole(name)?,
        };
        let attributes = Some(attributes);
        Ok(BatchDone { object: simple.object, attributes })
    }

    /// Does what takes several steps.
    fn do_alone(
        &self,
        partition: PartitionId,
        operation: &BatchOperation,
        durable: bool,
    ) -> BatchOutcome {
        let done = |object, attributes| Ok(BatchDone { object, attributes });
        match operation {
            BatchOperation::Create(..) => Err(Status::DriveFault),
            BatchOperation::Remove(object) => {
                self.remove_whole(ObjectName { partition, object: *object }, durable)?;
                done(*object, None)
            }
            BatchOperation::Setattr(object, changes) => {
                let name = ObjectName { partition, object: *object };
                let set = || self.setattr_whole(name, changes, durable);
                done(*object, Some(self.mending(name, None, Lock::Free, set)?))
            }
            BatchOperation::Getattr(object) => {
                let name = ObjectName { partition, object: *object };
                done(*object, Some(self.getattr_whole(name)?))
            }
        }
    }
}

/// What every drive refuses, whatever it has.
fn check(operation: &BatchOperation) -> Result<(), Status> {
    let settable = |changes: &SetAttributes| match changes.block_size {
        Some(bytes) if bytes as usize != BLOCK_BYTES => Err(Status::NotAdjustable),
        _ => Ok(()),
    };
    let well_known = operation.object().is_some_and(|object| object < ObjectId::FIRST_OBJECT);
    match operation {
        _ if well_known => Err(Status::NotPermitted),
        BatchOperation::Remove(ObjectId::FIRST_OBJECT) => Err(Status::NotPermitted),
        BatchOperation::Create(Some(_), _) => Err(Status::NotPermitted),
        BatchOperation::Create(None, changes) | BatchOperation::Setattr(_, changes) => {
            settable(changes)
        }
        _ => Ok(()),
    }
}
