//! Derived keys, kept: deriving them costs more than the digest they are for.
//!
//! Only keys with which a digest was right get in, so that nobody without a key can push others
//! out. The cache has two generations: keys come into the young one; when that is full, it becomes
//! the old one, whose keys are dropped unless they were used again. So it is bounded, and what is
//! in use stays.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_capability::{Capability, DigestKeys, Suite};
use nasd_protocol::CredentialKey;
use nasd_types::NameHashing;

/// Separately locked parts.
const SHARDS: usize = 16;

/// What a derived key depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyName {
    /// Which key; a capability with all its public fields.
    pub(crate) key: CredentialKey,
    /// The access control version, where `key` is a capability; else 0.
    pub(crate) access_control_version: u64,
    /// For which algorithms.
    pub(crate) suite: Suite,
}

impl Hash for KeyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let kind = self.key.kind().code();
        state.write_u64(u64::from(kind) << 32 | u64::from(self.key.partition().0));
        state.write_u64(self.access_control_version ^ u64::from(self.suite.code()) << 56);
        if let CredentialKey::Capability(capability) = &self.key {
            let words = [
                capability.object.0,
                capability.audit_id.0,
                capability.expires.0,
                capability.region.offset,
                capability.region.length,
                u64::from(capability.partition.0) << 32 | u64::from(capability.rights.bits()),
            ];
            words.into_iter().for_each(|word| state.write_u64(word));
        }
    }
}

/// Names are hashed for every request, and some twenty words with SipHash would cost as much as the
/// digest. They are short of secrets: who gets a key in must hold it. Whether a name is the one sought
/// is compared in full.
type Keys = HashMap<KeyName, Arc<DigestKeys>, NameHashing>;

#[derive(Debug)]
struct Shard {
    young: Keys,
    old: Keys,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyCache {
    shards: [Mutex<Shard>; SHARDS],
    generation_keys: usize,
}

impl KeyCache {
    /// For about `most` keys.
    pub(crate) fn new(most: usize) -> KeyCache {
        let hashing = NameHashing::new(RandomState::new().hash_one(most));
        let keys = || Keys::with_hasher(hashing);
        let shards = std::array::from_fn(|_| Mutex::new(Shard { young: keys(), old: keys() }));
        KeyCache { shards, generation_keys: (most / SHARDS / 2).max(1) }
    }

    pub(crate) fn find(&self, name: &KeyName) -> Option<Arc<DigestKeys>> {
        let mut shard = self.shard(name);
        if let Some(keys) = shard.young.get(name) {
            return Some(Arc::clone(keys));
        }
        let keys = shard.old.remove(name)?;
        shard.insert(*name, Arc::clone(&keys), self.generation_keys);
        Some(keys)
    }

    /// Keeps keys with which a digest was right.
    pub(crate) fn keep(&self, name: &KeyName, keys: &Arc<DigestKeys>) {
        self.shard(name).insert(*name, Arc::clone(keys), self.generation_keys);
    }

    /// Forgets all keys.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.clear();
            shard.old.clear();
        }
    }

    fn shard(&self, name: &KeyName) -> MutexGuard<'_, Shard> {
        let number = match &name.key {
            CredentialKey::Capability(Capability { object, audit_id, .. }) => object.0 ^ audit_id.0,
            other => u64::from(other.partition().0),
        };
        // A map is whole after every statement, so that a poisoned lock guards nothing broken.
        self.shards[(number % SHARDS as u64) as usize]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    fn insert(&mut self, name: KeyName, keys: Arc<DigestKeys>, most: usize) {
        if self.young.len() >= most {
            self.old.clear();
            std::mem::swap(&mut self.young, &mut self.old);
        }
        self.young.insert(name, keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_capability::SecretKey;
    use nasd_types::PartitionId;

    fn name(number: u64) -> KeyName {
        let key = CredentialKey::Partition(PartitionId(0));
        KeyName { key, access_control_version: number, suite: Suite::Blake3 }
    }

    #[test]
    fn bounded_and_what_is_used_stays() {
        let cache = KeyCache::new(SHARDS * 20);
        let keys = Arc::new(DigestKeys::new(&SecretKey::new([1; 32]), Suite::Blake3));
        cache.keep(&name(0), &keys);
        for number in 1..1000 {
            assert!(cache.find(&name(number)).is_none());
            cache.keep(&name(number), &keys);
            assert!(cache.find(&name(0)).is_some(), "lost after {number}");
        }
        assert!(cache.find(&name(1)).is_none());
        let held = cache.shard(&name(0));
        assert!(held.young.len() + held.old.len() <= 20);
    }

    #[test]
    fn every_part_of_the_name_counts() {
        let cache = KeyCache::new(100);
        let keys = Arc::new(DigestKeys::new(&SecretKey::new([1; 32]), Suite::Blake3));
        cache.keep(&name(1), &keys);
        assert!(cache.find(&name(2)).is_none());
        assert!(cache.find(&KeyName { suite: Suite::Aegis, ..name(1) }).is_none());
        assert!(cache.find(&KeyName { key: CredentialKey::Drive, ..name(1) }).is_none());
    }
}
