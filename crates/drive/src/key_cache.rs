//! Derived keys, kept: deriving them costs more than the digest they are for.
//!
//! Only keys with which a digest was right get in, so that nobody without a key can push others
//! out. The cache has two generations: keys come into the young one; when that is full, it becomes
//! the old one, whose keys are dropped unless they were used again. So it is bounded, and what is
//! in use stays.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nasd_capability::{Capability, DigestKeys, SealedCapability, Suite};
use nasd_protocol::CredentialKey;
use nasd_types::NameHashing;

/// Separately locked parts.
const SHARDS: usize = 16;

/// What a derived key depends on, but for the access control version. Borrowed: what a credential
/// shows may be long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyName<'a> {
    /// Which key; a capability with all its public fields, as it came, and all its narrowings.
    pub(crate) key: &'a CredentialKey,
    /// For which algorithms.
    pub(crate) suite: Suite,
}

impl Hash for KeyName<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let kind = self.key.kind().code() << 8 | self.suite.code();
        state.write_u64(u64::from(kind) << 32 | u64::from(self.key.partition().0));
        if let Some(capability) = self.key.capability() {
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
        if let Some(sealed) = self.key.sealed_capability() {
            state.write_u64(some_of(sealed));
        }
        for narrowing in self.key.narrowings() {
            state.write_u64(narrowing.region.offset);
            state.write_u64(narrowing.region.length);
            state.write_u64(narrowing.expires.0 ^ u64::from(narrowing.rights.bits()) << 32);
        }
    }
}

/// The first half of a sealed capability's nonce, which is as good as a hash of the whole.
fn some_of(sealed: &SealedCapability) -> u64 {
    sealed.nonce.first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}

/// What was derived for a name.
#[derive(Clone, Debug)]
pub(crate) struct Derived {
    /// The access control version that it was derived for, where the key is a capability's; else 0.
    pub(crate) access_control_version: u64,
    /// What a sealed capability was opened to.
    pub(crate) opened: Option<Capability>,
    /// The keys.
    pub(crate) keys: Arc<DigestKeys>,
}

/// What is kept for a name.
#[derive(Debug)]
struct Kept {
    key: CredentialKey,
    suite: Suite,
    derived: Derived,
}

impl Kept {
    fn is_of(&self, name: &KeyName<'_>) -> bool {
        self.suite == name.suite && self.key == *name.key
    }
}

/// By the hash of the name; of two names with the same hash, which is a rare chance, one is kept. Names
/// are hashed for every request, and some twenty words with SipHash would cost as much as the digest.
/// They are short of secrets: who gets a key in must hold it. Whether a name is the one sought is
/// compared in full.
type Keys = HashMap<u64, Kept, NameHashing>;

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
    hashing: NameHashing,
}

impl KeyCache {
    /// For about `most` keys.
    pub(crate) fn new(most: usize) -> KeyCache {
        let hashing = NameHashing::new(RandomState::new().hash_one(most));
        let keys = || Keys::with_hasher(hashing);
        let shards = std::array::from_fn(|_| Mutex::new(Shard { young: keys(), old: keys() }));
        KeyCache { shards, generation_keys: (most / SHARDS / 2).max(1), hashing }
    }

    /// The keys for that access control version.
    pub(crate) fn find(
        &self,
        name: &KeyName<'_>,
        access_control_version: u64,
    ) -> Option<Arc<DigestKeys>> {
        let is_right = |derived: &Derived| derived.access_control_version == access_control_version;
        self.with(name, |derived| is_right(derived).then(|| Arc::clone(&derived.keys))).flatten()
    }

    /// What a sealed capability was opened to.
    pub(crate) fn opened(&self, name: &KeyName<'_>) -> Option<Capability> {
        self.with(name, |derived| derived.opened).flatten()
    }

    /// Looks at what is kept for a name, and keeps it for longer.
    fn with<T>(&self, name: &KeyName<'_>, look: impl FnOnce(&Derived) -> T) -> Option<T> {
        let (hash, mut shard) = self.place_of(name);
        if let Some(kept) = shard.young.get(&hash) {
            return kept.is_of(name).then(|| look(&kept.derived));
        }
        let kept = shard.old.remove(&hash).filter(|kept| kept.is_of(name))?;
        let found = look(&kept.derived);
        shard.insert(hash, kept, self.generation_keys);
        Some(found)
    }

    /// Keeps keys with which a digest was right, in place of those for another version.
    pub(crate) fn keep(&self, name: &KeyName<'_>, derived: Derived) {
        let (hash, mut shard) = self.place_of(name);
        let kept = Kept { key: name.key.clone(), suite: name.suite, derived };
        shard.insert(hash, kept, self.generation_keys);
    }

    /// Forgets all keys.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.young.clear();
            shard.old.clear();
        }
    }

    fn place_of(&self, name: &KeyName<'_>) -> (u64, MutexGuard<'_, Shard>) {
        let hash = self.hashing.hash_one(name);
        // A map is whole after every statement, so that a poisoned lock guards nothing broken.
        let shard = self.shards[(hash >> 32) as usize % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (hash, shard)
    }
}

impl Shard {
    fn insert(&mut self, hash: u64, kept: Kept, most: usize) {
        if self.young.len() >= most {
            self.old.clear();
            std::mem::swap(&mut self.young, &mut self.old);
        }
        self.young.insert(hash, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_capability::{CAPABILITY_BYTES, Chain, Narrowing, SealingKeys, SecretKey};
    use nasd_types::PartitionId;

    fn derived(access_control_version: u64) -> Derived {
        let keys = Arc::new(DigestKeys::new(&SecretKey::new([1; 32]), Suite::Blake3));
        Derived { access_control_version, opened: None, keys }
    }

    fn partition_key(number: u32) -> CredentialKey {
        CredentialKey::Partition(PartitionId(number))
    }

    fn name(key: &CredentialKey) -> KeyName<'_> {
        KeyName { key, suite: Suite::Blake3 }
    }

    fn keeps(cache: &KeyCache, key: &CredentialKey) -> bool {
        cache.find(&name(key), 0).is_some()
    }

    #[test]
    fn bounded_and_what_is_used_stays() {
        const MOST: usize = SHARDS * 20;
        let cache = KeyCache::new(MOST);
        let first = partition_key(0);
        cache.keep(&name(&first), derived(0));
        for number in 1..20 * MOST as u32 {
            let key = partition_key(number);
            assert!(!keeps(&cache, &key));
            cache.keep(&name(&key), derived(0));
            assert!(keeps(&cache, &first), "lost after {number}");
        }
        assert!(!keeps(&cache, &partition_key(1)));
        for shard in &cache.shards {
            let shard = shard.lock().unwrap();
            assert!(shard.young.len() + shard.old.len() <= 20);
        }
    }

    #[test]
    fn every_part_of_the_name_counts() {
        let capability = Capability::from_bytes(&[7; CAPABILITY_BYTES]);
        let widest = Narrowing::of(&capability);
        let narrowed = |count| {
            let chain = Chain::new(vec![widest; count]).unwrap();
            CredentialKey::narrowed(capability, chain)
        };
        let sealed = SealingKeys::new(&SecretKey::new([2; 32])).seal(&capability);
        let mut keys: Vec<CredentialKey> = vec![
            CredentialKey::Drive,
            partition_key(1),
            partition_key(2),
            CredentialKey::WorkingCurrent(PartitionId(1)),
            CredentialKey::sealed(sealed, Chain::default()),
            CredentialKey::sealed(sealed, Chain::new(vec![widest]).unwrap()),
        ];
        keys.extend((0..=8).map(narrowed));
        for at in 0..CAPABILITY_BYTES {
            let mut bytes = capability.to_bytes();
            bytes[at] ^= 1;
            keys.push(CredentialKey::Capability(Capability::from_bytes(&bytes)));
        }
        for kept in &keys {
            let cache = KeyCache::new(100);
            cache.keep(&name(kept), derived(0));
            for sought in &keys {
                assert_eq!(keeps(&cache, sought), sought == kept, "{sought:?} for {kept:?}");
            }
            let other_suite = KeyName { suite: Suite::Aegis, ..name(kept) };
            assert!(cache.find(&other_suite, 0).is_none());
            assert!(cache.find(&name(kept), 1).is_none());
            cache.keep(&name(kept), derived(1));
            assert!(cache.find(&name(kept), 1).is_some());
            assert!(cache.find(&name(kept), 0).is_none(), "the version before");
        }
    }
}
