//! The virtual drive: what its parts share, and how they reach components.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use nasd_capability::SecretKey;
use nasd_client::OrderSource;
use nasd_layout::{GroupId, MemberState};
use nasd_protocol::Status;
use nasd_protocol::drive::{BatchArguments, BatchOperation, GetattrArguments};
use nasd_types::{Attributes, DriveId, ObjectId, ObjectName, PartitionId, Timestamp};

use crate::alone::Alone;
use crate::append::{Journals, is_journal};
use crate::components::{Answer, Ask, ComponentError, Components, Told};
use crate::join::Joined;
use crate::limping::Limping;
use crate::members::Health;
use crate::mend::Suspects;
use crate::moves::{Arrangement, Impossible};
use crate::numbers::Numbers;
use crate::place::Place;
use crate::rebuild::Rebuild;
use crate::state::{Keeper, Secret, State, StateError};
use crate::turns;
use crate::version::{ComponentVersion, Versions};
use crate::writers::Writers;

/// What is added to the number of a partition of the virtual drive to get that of its components: drives may
/// have partitions of their own besides.
const COMPONENT_PARTITIONS: u32 = 1 << 30;

/// Locks of objects, each of which stands for many.
const LOCKS: usize = 1024;

/// The same of journals of appends, which are written by those who have an object's lock: they come behind all others.
const JOURNAL_LOCKS: usize = 64;

/// How the striping manager is set.
#[derive(Clone, Debug)]
pub struct VirtualDriveOptions {
    /// How partitions are spread that nobody has set otherwise: bytes of a unit,
    pub unit: u64,
    /// drives that an object lies on, 0 for all there are,
    pub width: u16,
    /// and copies of each byte.
    pub copies: u16,
    /// How long component capabilities are good, at least, in nanoseconds.
    pub capability_ns: u64,
    /// The same of those that allow writing one of several copies: who dies with one is waited for so long.
    pub writing_ns: u64,
}

impl Default for VirtualDriveOptions {
    fn default() -> Self {
        VirtualDriveOptions {
            unit: 512 << 10,
            width: 0,
            copies: 1,
            capability_ns: 3600 * 1_000_000_000,
            writing_ns: 60 * 1_000_000_000,
        }
    }
}

/// Why there is no virtual drive.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is kept can't be read or written.
    #[error("the striping manager's state can't be read: {0}")]
    Keeper(String),
    /// It is not understood.
    #[error(transparent)]
    State(#[from] StateError),
}

/// See the crate.
pub struct VirtualDrive {
    pub(crate) components: Arc<dyn Components>,
    pub(crate) options: VirtualDriveOptions,
    pub(crate) keeper: Arc<dyn Keeper>,
    pub(crate) state: RwLock<State>,
    pub(crate) versions: Versions,
    pub(crate) numbers: Numbers,
    pub(crate) instances: Instances,
    pub(crate) journals: Journals,
    pub(crate) alone: Alone,
    pub(crate) writers: Writers,
    /// In nanoseconds, as timestamps are.
    clock: AtomicU64,
    pub(crate) orders: OrderSource,
    locks: Vec<Mutex<()>>,
    pub(crate) health: Health,
    pub(crate) limping: Limping,
    /// Read while something is done to objects, written while it changes who has what.
    pub(crate) changing: turns::Common,
    pub(crate) joined: Joined,
    pub(crate) rebuild: Rebuild,
    pub(crate) arrangement: RwLock<Arrangement>,
    pub(crate) impossible: Impossible,
    pub(crate) suspects: Suspects,
}

impl VirtualDrive {
    /// The virtual drive as it was kept, over the components that are made with the secret from which their
    /// partitions' keys are derived. That is the given one at the first start; with `random`, which is another
    /// one at each.
    ///
    /// # Errors
    ///
    /// If what was kept can't be read.
    pub fn start(
        components: impl FnOnce(SecretKey) -> Arc<dyn Components>,
        keeper: Arc<dyn Keeper>,
        options: VirtualDriveOptions,
        (random, secret): (u64, SecretKey),
    ) -> Result<VirtualDrive, StartError> {
        let kept = keeper.load().map_err(StartError::Keeper)?;
        let state = match kept {
            Some(bytes) => State::from_bytes(&bytes)?,
            None => {
                let state = State { secret: Secret(*secret.expose()), ..State::default() };
                keeper.save(&state.to_bytes()).map_err(StartError::Keeper)?;
                state
            }
        };
        let components = components(SecretKey::new(state.secret.0));
        let whole = VirtualDrive {
            rebuild: Rebuild::default(),
            components,
            options,
            keeper,
            numbers: Numbers::new(state.number_limit),
            state: RwLock::new(state),
            versions: Versions::default(),
            instances: Instances::new(random),
            journals: Journals::default(),
            alone: Alone::default(),
            writers: Writers::default(),
            clock: AtomicU64::new(0),
            orders: OrderSource::new(),
            locks: (0..LOCKS + JOURNAL_LOCKS).map(|_| Mutex::new(())).collect(),
            health: Health::default(),
            limping: Limping::default(),
            changing: turns::Common::default(),
            joined: Joined::default(),
            arrangement: RwLock::default(),
            impossible: Impossible::default(),
            suspects: Suspects::default(),
        };
        whole.change_keys_at_start().map_err(|status| StartError::Keeper(status.to_string()))?;
        Ok(whole)
    }

    /// The time on the virtual drive's clock, as it was told last.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.clock.load(Ordering::Relaxed))
    }

    /// It is so late on the virtual drive's clock.
    pub(crate) fn is_now(&self, now: Timestamp) {
        self.clock.fetch_max(now.0, Ordering::Relaxed);
    }

    /// The striping manager writes an object: of copies one may have it before the others.
    pub(crate) fn note_writing(&self, name: ObjectName, place: &Place) {
        if place.has_copies() {
            self.writers.note(name, self.now());
        }
    }

    /// Something went wrong while copies were written.
    pub(crate) fn may_differ(&self, name: ObjectName) {
        self.writers.may_differ(name, self.now());
        self.rebuild.also(name);
    }

    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        // It is replaced whole.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is kept; in memory too when it is kept.
    pub(crate) fn change_state<T>(
        &self,
        change: impl FnOnce(&mut State) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = state.clone();
        let told = change(&mut changed)?;
        if changed != *state {
            self.keeper.save(&changed.to_bytes()).map_err(|error| {
                tracing::error!(error, "the striping manager's state can't be kept");
                Status::DriveFault
            })?;
            *state = changed;
        }
        Ok(told)
    }

    /// Where an object lies.
    pub(crate) fn place(&self, name: ObjectName) -> Result<Place, Status> {
        let state = self.state();
        let record = state.partitions.get(&name.partition).ok_or(Status::NoSuchPartition)?;
        let group = record.groups.group_of(name.object);
        let members = record.groups.members(group).to_vec();
        // Where there is one copy, whoever has it is waited for, and has missed nothing when it is back.
        let has_copies = record.shape.copies() > 1;
        let states = members.iter().map(|drive| match state.absent.get(drive) {
            Some(absence) if has_copies => absence.member_state(),
            _ => MemberState::Current,
        });
        let states = states.collect();
        let stand_ins = record.stand_ins(group);
        let place = Place::new(record.shape, state.generation, (members, states), &stand_ins);
        let doubted = self.writers.doubted(name).into_iter();
        Ok(doubted.fold(place, Place::doubting_if_possible))
    }

    /// The shape of a partition's objects, and which group a new one is put in.
    pub(crate) fn next_group(&self, partition: PartitionId) -> Result<(GroupId, usize), Status> {
        let state = self.state();
        let record = state.partitions.get(&partition).ok_or(Status::NoSuchPartition)?;
        let count = record.groups.count();
        // Every group in turn: the table has drives in proportion to what they can hold.
        Ok((GroupId((self.numbers.turn() % count as u64) as u16), count))
    }

    /// A drive has answered as this instance.
    pub(crate) fn saw(&self, drive: DriveId, instance: u64) {
        if self.instances.saw(drive, instance) {
            // It may have lost what was not flushed, which other copies have.
            self.writers.all_may_differ();
        }
    }

    /// Held while something is done to an object that takes several steps.
    pub(crate) fn lock(&self, name: ObjectName) -> MutexGuard<'_, ()> {
        let held = self.lock_to_write(name);
        self.alone.changes(name);
        held
    }

    /// The same for who does nothing but to write ranges of it.
    pub(crate) fn lock_to_write(&self, name: ObjectName) -> MutexGuard<'_, ()> {
        // There is nothing within that a panic could have left broken.
        turns::lock(&self.locks[lock_of(name)], &*self.components)
    }

    /// The same for two objects, whichever they are.
    pub(crate) fn lock_both(
        &self,
        one: ObjectName,
        other: ObjectName,
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (low, high) = (lock_of(one).min(lock_of(other)), lock_of(one).max(lock_of(other)));
        let lock = |at: usize| turns::lock(&self.locks[at], &*self.components);
        let held = (lock(low), (low != high).then(|| lock(high)));
        [one, other].into_iter().for_each(|name| self.alone.changes(name));
        held
    }

    /// The same for any number of objects.
    pub(crate) fn lock_all(
        &self,
        names: impl Iterator<Item = ObjectName> + Clone,
    ) -> Vec<MutexGuard<'_, ()>> {
        let locks: std::collections::BTreeSet<usize> = names.clone().map(lock_of).collect();
        let lock = |at: usize| turns::lock(&self.locks[at], &*self.components);
        let held = locks.into_iter().map(lock).collect();
        names.for_each(|name| self.alone.changes(name));
        held
    }

    /// The version of an object's components, for who has the object's lock; `None` if there is no such object.
    pub(crate) fn component_version(
        &self,
        name: ObjectName,
    ) -> Result<Option<ComponentVersion>, Status> {
        if self.versions.is_doubtful(name) {
            self.level_versions(name, &self.place(name)?);
        }
        self.seen_version(name)
    }

    /// The same for who has not, nor that of any other object.
    pub(crate) fn levelled_version(
        &self,
        name: ObjectName,
    ) -> Result<Option<ComponentVersion>, Status> {
        if self.versions.is_doubtful(name) {
            let _alone = self.lock(name);
            return self.component_version(name);
        }
        self.seen_version(name)
    }

    /// The same as it is known, or the home component tells, though others may have another one.
    pub(crate) fn seen_version(
        &self,
        name: ObjectName,
    ) -> Result<Option<ComponentVersion>, Status> {
        if let Some(version) = self.versions.get(name) {
            return Ok(Some(version));
        }
        let place = self.place(name)?;
        let asked = self.getattr_at(place.home(), name);
        match asked {
            Ok(attributes) => {
                let version = ComponentVersion(attributes.access_control_version);
                self.versions.put(name, version);
                Ok(self.versions.get(name))
            }
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.status()),
        }
    }

    /// The version of an object that there must be, for who has its lock.
    pub(crate) fn known_version(&self, name: ObjectName) -> Result<ComponentVersion, Status> {
        self.component_version(name)?.ok_or(Status::NoSuchObject)
    }

    /// The versions of objects of a partition, by a question for each drive, as far as there are such
    /// objects.
    pub(crate) fn learn_versions(&self, partition: PartitionId, objects: &[ObjectId]) {
        let unknown = objects.iter().map(|object| ObjectName { partition, object: *object });
        let unknown: Vec<_> = unknown.filter(|name| self.versions.get(*name).is_none()).collect();
        let mut by_drive: BTreeMap<DriveId, Vec<ObjectId>> = BTreeMap::new();
        for name in &unknown {
            if let Ok(place) = self.place(*name) {
                by_drive.entry(place.home()).or_default().push(name.object);
            }
        }
        let questions = by_drive.into_iter().flat_map(|(drive, objects)| {
            let asked: Vec<_> = objects.into_iter().map(BatchOperation::Getattr).collect();
            batches(component_partition(partition), asked, false)
                .map(move |batch| (drive, Ask::Batch(batch)))
                .collect::<Vec<_>>()
        });
        for answer in self.components.ask(questions.collect()) {
            // Of what was not learned here, each is asked for by itself.
            let Ok(Told::Batched(batched)) = answer else { continue };
            for done in batched.outcomes.into_iter().flatten() {
                if let Some(attributes) = done.attributes {
                    let name = ObjectName { partition, object: done.object };
                    self.versions.put(name, ComponentVersion(attributes.access_control_version));
                }
            }
        }
    }

    pub(crate) fn getattr_at(
        &self,
        drive: DriveId,
        name: ObjectName,
    ) -> Result<Attributes, ComponentError> {
        let ask = Ask::Getattr(GetattrArguments { name: component(name) });
        attributes(self.components.ask_one(drive, ask))
    }
}

impl std::fmt::Debug for VirtualDrive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VirtualDrive")
    }
}

/// Operations in as many batches as it takes.
pub(crate) fn batches(
    partition: PartitionId,
    mut operations: Vec<BatchOperation>,
    durable: bool,
) -> impl Iterator<Item = BatchArguments> {
    std::iter::from_fn(move || {
        if operations.is_empty() {
            return None;
        }
        let rest = operations.split_off(BatchArguments::fitting(&operations, true));
        let operations = std::mem::replace(&mut operations, rest);
        Some(BatchArguments { partition, durable, with_attributes: true, operations })
    })
}

fn lock_of(name: ObjectName) -> usize {
    let mixed = name.object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(name.partition.0);
    let mixed = (mixed >> 32) as usize;
    if is_journal(name.object) { LOCKS + mixed % JOURNAL_LOCKS } else { mixed % LOCKS }
}

/// The partition of component drives that has the components of a partition's objects.
pub(crate) fn component_partition(partition: PartitionId) -> PartitionId {
    PartitionId(partition.0.wrapping_add(COMPONENT_PARTITIONS))
}

/// Whose components a partition of component drives has, if it has any.
pub(crate) fn partition_of_components(partition: PartitionId) -> Option<PartitionId> {
    partition.0.checked_sub(COMPONENT_PARTITIONS).map(PartitionId)
}

/// What an object's components are called on their drives.
pub(crate) fn component(name: ObjectName) -> ObjectName {
    ObjectName { partition: component_partition(name.partition), object: name.object }
}

/// The answer to a question about attributes.
pub(crate) fn attributes(answer: Answer) -> Result<Attributes, ComponentError> {
    match answer? {
        Told::Attributes(attributes) => Ok(attributes),
        other => Err(unexpected(&other)),
    }
}

/// An answer to another question than was asked.
pub(crate) fn unexpected(told: &Told) -> ComponentError {
    ComponentError::Refused(format!("it answered something else: {told:?}"))
}

/// Which instance of each drive was seen last; and a number that is another one after any of them was
/// started anew, which is what the virtual drive tells as its own. A writer keeps what it wrote until a
/// flush answers with the number that the write answered with.
#[derive(Debug)]
pub(crate) struct Instances(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    own: u64,
    drives: HashMap<DriveId, u64>,
}

impl Instances {
    fn new(random: u64) -> Instances {
        Instances(Mutex::new(Seen { own: random, drives: HashMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual drive's own. A write tells what this was before it was sent: if a drive has been started
    /// anew since, a flush tells another one. A flush tells what it is when all have answered.
    pub(crate) fn own(&self) -> u64 {
        self.lock().own
    }

    /// Others have become members: those before may have been started anew, and nobody has seen that.
    pub(crate) fn are_others(&self) {
        let mut seen = self.lock();
        seen.own = seen.own.wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    /// A drive has answered as this instance; whether it was another one before.
    fn saw(&self, drive: DriveId, instance: u64) -> bool {
        let mut seen = self.lock();
        let before = seen.drives.insert(drive, instance);
        let is_another = before.is_some_and(|before| before != instance);
        if is_another {
            seen.own = seen.own.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        is_another
    }
}
