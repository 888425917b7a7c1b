//! What a drive may hold after a crash: of each object every state since the last one that is
//! known to be durable, and the same of partitions and the drive's keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nasd_store::{Store, StoreError};
use nasd_types::{AppendToken, ObjectId, ObjectName, PartitionId};

use crate::common::{BLOCK, contents};

/// What is compared of one object.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    pub bytes: Arc<Vec<u8>>,
    pub version: u64,
    pub copied: ObjectId,
}

impl Content {
    pub fn empty() -> Content {
        Content { bytes: Arc::default(), version: 0, copied: ObjectId(0) }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, version {}, copy of {}", self.bytes.len(), self.version, self.copied)
    }
}

/// `None` is absent.
pub type State = Option<Content>;

/// What is compared of one partition: its quota in bytes, and the epoch of its key.
pub type Settings = (u64, Option<u32>);

/// An append.
#[derive(Clone)]
pub struct AppendMade {
    pub name: ObjectName,
    pub token: AppendToken,
    pub offset: u64,
    pub bytes: Arc<Vec<u8>>,
    /// The object with them.
    pub after: Arc<Vec<u8>>,
}

impl std::fmt::Debug for AppendMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {} of {}", self.bytes.len(), self.offset, self.name)
    }
}

/// What a drive may hold.
#[derive(Clone, Debug, Default)]
pub struct Histories {
    pub objects: BTreeMap<ObjectName, Vec<State>>,
    /// Two states only while a change is under way, or when one failed.
    pub partitions: BTreeMap<PartitionId, Vec<Option<Settings>>>,
    /// First byte of the master key, if it may be that.
    pub master: Vec<Option<u8>>,
    /// Copies under way, or whose making failed: such objects may be there.
    pub copies: Vec<Content>,
    /// Appends that were answered, and those under way, which may be there wholly.
    pub appended: Vec<AppendMade>,
    pub appending: Vec<AppendMade>,
    /// Objects of which a failing drive can't tell whether the last append was made: their newest state or the
    /// one before.
    pub unsure: BTreeSet<ObjectName>,
    /// Partitions that may not be named anew: their objects may be there still.
    pub doomed: BTreeSet<PartitionId>,
    /// Whether objects may have reserved blocks.
    pub reserves: bool,
}

impl Histories {
    /// The state that an object has now.
    pub fn now(&self, name: ObjectName) -> &Content {
        self.objects[&name].last().and_then(Option::as_ref).expect("only living objects are asked")
    }

    /// The object has another state.
    pub fn change(&mut self, name: ObjectName, state: State) {
        self.objects.entry(name).or_insert_with(|| vec![None]).push(state);
    }

    /// A flush was answered: older states are no longer possible.
    pub fn durable(&mut self, name: ObjectName) {
        if let Some(states) = self.objects.get_mut(&name) {
            states.drain(..states.len() - 1);
        }
    }

    /// Everything was flushed.
    pub fn all_durable(&mut self) {
        for states in self.objects.values_mut() {
            states.drain(..states.len() - 1);
        }
    }

    pub fn living(&self) -> Vec<ObjectName> {
        let living = self.objects.iter().filter(|(name, states)| {
            states.last().is_some_and(Option::is_some) && !self.doomed.contains(&name.partition)
        });
        living.map(|(name, _)| *name).collect()
    }

    /// Partitions that there are for certain.
    pub fn known_partitions(&self) -> Vec<PartitionId> {
        let certain =
            self.partitions.iter().filter(|(_, states)| states.iter().all(Option::is_some));
        certain.map(|(partition, _)| *partition).collect()
    }

    /// Forgets a partition that is gone.
    pub fn drop_partition(&mut self, partition: PartitionId) {
        self.partitions.remove(&partition);
        self.objects.retain(|name, _| name.partition != partition);
    }

    /// A partition was to be copied, and nobody knows whether it was: it is left alone.
    pub fn doubt_partition(&mut self, partition: PartitionId) {
        self.doomed.insert(partition);
        let its = self.objects.iter_mut().filter(|(name, _)| name.partition == partition);
        its.for_each(|(_, states)| states.insert(0, None));
    }

    /// Where the live store may be: at the newest states only, unless something failed.
    pub fn newest(&self) -> Histories {
        let mut newest = self.clone();
        newest.all_durable();
        for name in &self.unsure {
            newest.objects.insert(*name, self.objects[name].clone());
        }
        newest
    }

    /// What the store has must be one of the possible states of everything; from then on it is the
    /// only one.
    pub fn settle(&mut self, store: &Store) {
        self.settle_partitions(store);
        let mut listed = BTreeSet::new();
        for partition in store.partitions() {
            for object in store.list(partition, ObjectId(0), usize::MAX).unwrap() {
                listed.insert(ObjectName { partition, object });
            }
        }
        for name in &listed {
            let found = read_object(store, *name).unwrap().expect("a listed object is there");
            // It may have the number of one that was removed, if that was chosen.
            let is_copy = self.copies.contains(&found);
            match self.objects.get_mut(name) {
                Some(_) if is_copy && name.object.is_named() => {}
                Some(states) => assert_possible(*name, Some(&found), states),
                None => assert!(is_copy, "{name} ({found:?}) came from nowhere"),
            }
            self.objects.insert(*name, vec![Some(found)]);
        }
        for (name, states) in &mut self.objects {
            if !listed.contains(name) {
                assert_possible(*name, None, states);
                *states = vec![None];
            }
        }
        self.copies.clear();
    }

    fn settle_partitions(&mut self, store: &Store) {
        let found: BTreeSet<PartitionId> = store.partitions().into_iter().collect();
        let unknown: Vec<_> = found.iter().filter(|id| !self.partitions.contains_key(id)).collect();
        assert!(unknown.is_empty(), "{unknown:?} came from nowhere");
        for (partition, states) in self.partitions.clone() {
            let state = found.contains(&partition).then(|| settings(store, partition));
            assert!(states.contains(&state), "{partition} is {state:?}, none of {states:?}");
            if state.is_none() {
                self.drop_partition(partition);
                self.doomed.insert(partition);
                continue;
            }
            if states.contains(&None) {
                // Made by what failed: it has its first object.
                let first = ObjectName { partition, object: ObjectId::FIRST_OBJECT };
                self.objects.entry(first).or_insert_with(|| vec![Some(Content::empty())]);
            }
            self.partitions.insert(partition, vec![state]);
        }
        let master = store.drive_keys().master.map(|key| key.expose()[0]);
        assert!(self.master.contains(&master), "master key {master:?} of {:?}", self.master);
        self.master = vec![master];
    }

    /// As `settle`, with the space counted; nothing is dirty.
    pub fn settle_flushed(&mut self, store: &Store) {
        self.settle(store);
        finish_removals(store);
        count_space(store, !self.reserves);
    }

    /// Compares the live store with the newest state of everything, and changes nothing.
    pub fn compare(&self, store: &Store) {
        let mut newest = self.newest();
        newest.settle(store);
    }
}

pub fn settings(store: &Store, partition: PartitionId) -> Settings {
    let quota = store.partition_space(partition).unwrap().quota_bytes;
    (quota, store.keys(partition).unwrap().current.map(|key| key.epoch))
}

/// Objects of partitions that were removed are gone, with their blocks.
pub fn finish_removals(store: &Store) {
    // Each call is a step.
    for _ in 0..24 {
        store.wait_for_dirty(Duration::ZERO);
    }
}

/// As `check_space`, where objects may have reserved more than they hold. The first of those that
/// share blocks is charged for what it reserved and for what they share, and `blocks_allocated`
/// tells the larger of the two.
pub fn count_space(store: &Store, exact: bool) {
    let mut total = 0;
    for partition in store.partitions() {
        let objects = store.list(partition, ObjectId(0), usize::MAX).unwrap();
        let space = store.partition_space(partition).unwrap();
        assert_eq!(space.objects, objects.len() as u64, "objects of {partition}");
        let (mut used, mut least, mut most) = (0, 0, 0);
        for object in objects {
            let attributes = store.getattr(ObjectName { partition, object }).unwrap();
            used += attributes.blocks_used;
            least += attributes.blocks_allocated;
            most += attributes.blocks_allocated + attributes.blocks_used;
        }
        let charged = space.used_bytes / BLOCK;
        assert!((least..=most).contains(&charged), "{partition}: {charged} of {least} to {most}");
        if exact {
            assert_eq!(charged, least, "charges of {partition}");
        }
        total += used;
    }
    let space = store.space();
    assert_eq!(space.used_bytes, total * BLOCK - space.common_bytes, "blocks in use");
}

/// One object as it is compared.
pub fn read_object(store: &Store, name: ObjectName) -> Result<State, StoreError> {
    let attributes = match store.getattr(name) {
        Err(StoreError::NoSuchObject(_)) => return Ok(None),
        attributes => attributes?,
    };
    let bytes = Arc::new(contents(store, name)?);
    let version = attributes.access_control_version;
    Ok(Some(Content { bytes, version, copied: attributes.copied_object }))
}

fn assert_possible(name: ObjectName, found: Option<&Content>, states: &[State]) {
    if states.iter().any(|state| state.as_ref() == found) {
        return;
    }
    let mut near = Vec::new();
    for state in states.iter().flatten() {
        let bytes = found.map(|found| (&found.bytes, &state.bytes));
        near.push(bytes.map(|(one, other)| {
            let first = one.iter().zip(other.iter()).position(|(one, other)| one != other);
            let last = one.iter().zip(other.iter()).rposition(|(one, other)| one != other);
            (first, last)
        }));
    }
    panic!("{name} is {found:?}, none of {states:?}; bytes that differ: {near:?}");
}
