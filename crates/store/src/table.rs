//! The objects in memory: found by name, and those among them that are dirty.
//!
//! An object stays in the table for as long as it is dirty or somebody uses it, and after that until
//! there are too many. A removed object stays until the removal is durable, so that nobody finds its
//! old record in the tree.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_types::{NameHashing, ObjectName, PartitionId};

use crate::object::{Body, Object};

/// Independent parts of the table, so that look-ups of different objects rarely meet.
const SHARDS: usize = 64;

/// Objects in a shard from which on unused ones are dropped.
const SHARD_OBJECTS: usize = 1024;

struct Shard {
    objects: HashMap<ObjectName, Arc<Object>, NameHashing>,
    /// Counts removals from the shard, which make what was read from the tree before them stale.
    removals: u64,
    /// The number of objects at which to sweep next.
    sweep_at: usize,
}

#[derive(Default)]
struct Registry {
    /// Dirty objects, the longest dirty first.
    dirty: BTreeMap<u64, Arc<Object>>,
    next: u64,
}

/// All objects in memory.
pub(crate) struct ObjectTable {
    shards: Vec<Mutex<Shard>>,
    /// Who chooses the numbers of objects is the store or a holder of keys, who would slow down itself alone
    /// with names that collide.
    hashing: NameHashing,
    registry: Mutex<Registry>,
}

/// Permission to insert what was read from the tree, if nothing was removed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

impl ObjectTable {
    /// Without objects.
    pub(crate) fn new() -> ObjectTable {
        let hashing = NameHashing::new(RandomState::new().hash_one(0));
        ObjectTable {
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new(hashing))).collect(),
            hashing,
            registry: Mutex::default(),
        }
    }

    fn shard(&self, name: ObjectName) -> MutexGuard<'_, Shard> {
        // The map takes the high bits and the low ones; these are in between.
        let index = (self.hashing.hash_one(name) >> 40) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, if it is in memory.
    pub(crate) fn get(&self, name: ObjectName) -> Result<Arc<Object>, Ticket> {
        let shard = self.shard(name);
        shard.objects.get(&name).cloned().ok_or(Ticket(shard.removals))
    }

    /// Adds an object read from the tree after `ticket` was had. Returns the object that is in the
    /// table then, or `None` when the tree has to be read again.
    pub(crate) fn insert_loaded(&self, object: Arc<Object>, ticket: Ticket) -> Option<Arc<Object>> {
        let mut shard = self.shard(object.name);
        if let Some(present) = shard.objects.get(&object.name) {
            return Some(present.clone());
        }
        if shard.removals != ticket.0 {
            return None;
        }
        shard.sweep();
        shard.objects.insert(object.name, object.clone());
        Some(object)
    }

    /// Adds an object that was created just now.
    pub(crate) fn insert_created(&self, object: Arc<Object>) {
        let mut shard = self.shard(object.name);
        shard.sweep();
        shard.objects.insert(object.name, object);
    }

    /// Takes out an object whose removal is durable, or that never was.
    pub(crate) fn forget(&self, name: ObjectName) {
        let mut shard = self.shard(name);
        shard.objects.remove(&name);
        shard.removals += 1;
    }

    /// Notes that an object is dirty; its body is locked.
    pub(crate) fn register(&self, object: &Arc<Object>, body: &mut Body) {
        if body.registered.is_some() {
            return;
        }
        let mut registry = self.registry();
        let number = registry.next;
        registry.next += 1;
        registry.dirty.insert(number, object.clone());
        body.registered = Some(number);
    }

    /// Notes that an object is dirty no more; its body is locked. Whether it was.
    pub(crate) fn unregister(&self, body: &mut Body) -> bool {
        let Some(number) = body.registered.take() else {
            return false;
        };
        self.registry().dirty.remove(&number);
        true
    }

    /// How many objects are dirty.
    pub(crate) fn dirty_count(&self) -> usize {
        self.registry().dirty.len()
    }

    /// Every dirty object, the longest dirty first.
    pub(crate) fn dirty(&self) -> Vec<Arc<Object>> {
        self.registry().dirty.values().cloned().collect()
    }

    /// The objects of a partition that are in memory, in any order.
    pub(crate) fn all_of(&self, partition: PartitionId) -> Vec<Arc<Object>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let objects = shard.objects.values();
            found.extend(objects.filter(|object| object.name.partition == partition).cloned());
        }
        found
    }

    /// The dirty objects of a partition, in any order.
    pub(crate) fn dirty_of(&self, partition: PartitionId) -> Vec<Arc<Object>> {
        let registry = self.registry();
        let objects = registry.dirty.values();
        objects.filter(|object| object.name.partition == partition).cloned().collect()
    }
}

impl Shard {
    fn new(hashing: NameHashing) -> Shard {
        Shard { objects: HashMap::with_hasher(hashing), removals: 0, sweep_at: SHARD_OBJECTS }
    }

    /// Drops the objects that nobody uses, when there are too many. What is left sets when to do so
    /// again, so that the cost is spread over as many insertions.
    fn sweep(&mut self) {
        if self.objects.len() < self.sweep_at {
            return;
        }
        // Only the table holds an object that is neither used nor dirty nor being flushed, and it
        // cannot be found while the shard is locked. One with frames is worth more than its memory.
        self.objects.retain(|_, object| {
            Arc::strong_count(object) > 1
                || !object.frames.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        });
        self.removals += 1;
        self.sweep_at = SHARD_OBJECTS.max(2 * self.objects.len());
    }
}

#[cfg(test)]
mod tests {
    use nasd_types::{ObjectId, SetAttributes, Timestamp};

    use super::*;
    use crate::object::initial_record;

    fn object(number: u64) -> Arc<Object> {
        let name = ObjectName { partition: PartitionId(1), object: ObjectId(number) };
        let record = initial_record(&SetAttributes::default(), Timestamp(1));
        Arc::new(Object::loaded(name, record))
    }

    #[test]
    fn what_was_read_before_a_removal_is_not_taken_after_it() {
        let table = ObjectTable::new();
        let (one, again) = (object(7), object(7));
        let early = table.get(one.name).unwrap_err();
        // Somebody else looks it up, removes it, and the removal becomes durable.
        let ticket = table.get(one.name).unwrap_err();
        assert!(table.insert_loaded(one.clone(), ticket).is_some());
        table.forget(one.name);
        assert!(table.insert_loaded(again.clone(), early).is_none());
        assert!(table.get(one.name).is_err());
        let late = table.get(one.name).unwrap_err();
        assert!(Arc::ptr_eq(&table.insert_loaded(again.clone(), late).unwrap(), &again));
        // Two who look it up at once get the same object.
        assert!(Arc::ptr_eq(&table.insert_loaded(one, late).unwrap(), &again));
    }

    #[test]
    fn unused_objects_go_when_there_are_too_many_and_used_ones_stay() {
        let table = ObjectTable::new();
        let used: Vec<Arc<Object>> = (0..100).map(object).collect();
        let dirty: Vec<Arc<Object>> = (100..200).map(object).collect();
        for object in used.iter().chain(&dirty) {
            table.insert_created(object.clone());
        }
        for object in &dirty {
            table.register(object, &mut object.write());
        }
        let names: Vec<ObjectName> = dirty.iter().map(|object| object.name).collect();
        drop(dirty);
        let early = table.get(object(1_000_000).name).unwrap_err();
        for number in 1000..200_000 {
            table.insert_created(object(number));
        }
        let left: usize = table.shards.iter().map(|s| s.lock().unwrap().objects.len()).sum();
        assert!(left <= 2 * SHARDS * SHARD_OBJECTS, "{left} objects are left");
        assert!(used.iter().all(|object| table.get(object.name).is_ok()));
        assert!(names.iter().all(|name| table.get(*name).is_ok()));
        // What was dropped may have changed since it was read.
        assert!(table.insert_loaded(object(1_000_000), early).is_none());
        assert_eq!(table.dirty_count(), 100);
        assert_eq!(table.dirty_of(PartitionId(2)).len(), 0);
    }
}
