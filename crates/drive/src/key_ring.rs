//! The keys of Table 6 that requests are made with, and the ring of them that is in force.
//!
//! Operations that change keys read a new ring from the store and put it in place of the old one.
//! A request is verified under one ring from the look-up of its key to the keeping of what was
//! derived from it, so that nothing derived from a key survives the key.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use nasd_capability::{
    Capability, Refusal, SealedCapability, SealingKeys, SecretKey, WorkingKey, WorkingKeys,
};
use nasd_protocol::CredentialKey;
use nasd_protocol::drive::PartitionState;
use nasd_store::{PartitionKeys, PartitionSettings, Store, StoreError, StoredKey};
use nasd_types::{NameHashing, PartitionId, Protection};

use crate::key_cache::KeyCache;

/// What is known of a partition.
#[derive(Debug)]
struct PartitionRing {
    key: Option<SecretKey>,
    working: Option<WorkingKeys>,
    /// What capabilities of an epoch are opened with.
    sealing: Vec<(u32, SealingKeys)>,
    settings: PartitionSettings,
}

/// The drive's keys and those of its partitions, with what a partition demands of requests.
#[derive(Debug)]
pub(crate) struct KeyRing {
    master: Option<SecretKey>,
    drive: Option<SecretKey>,
    /// What the drive demands of all requests.
    minimum_protection: Protection,
    /// Asked for every request; partitions are made by the drive's administrator alone.
    partitions: HashMap<PartitionId, PartitionRing, NameHashing>,
    /// How many rings were in force before this one.
    generation: u64,
}

impl KeyRing {
    pub(crate) fn read(store: &Store) -> Result<KeyRing, StoreError> {
        let keys = store.drive_keys();
        let hashing = NameHashing::new(RandomState::new().hash_one(0));
        let mut partitions = HashMap::with_hasher(hashing);
        for partition in store.partitions() {
            partitions.insert(partition, PartitionRing::read(store, partition)?);
        }
        Ok(KeyRing {
            master: keys.master.as_ref().map(secret),
            drive: keys.drive.as_ref().map(secret),
            minimum_protection: store.minimum_protection(),
            partitions,
            generation: 0,
        })
    }

    /// Another number for each ring that comes into force.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn has_partition(&self, partition: PartitionId) -> bool {
        self.partitions.contains_key(&partition)
    }

    /// The working key that a capability says it was minted with.
    pub(crate) fn working_key(&self, capability: &Capability) -> Result<&SecretKey, Refusal> {
        self.working(capability.partition)?.of_epoch(capability.key_epoch)
    }

    /// The capability that was sealed under one of the working keys.
    pub(crate) fn open(&self, sealed: &SealedCapability) -> Result<Capability, Refusal> {
        // Which says whether there is such a key, in the same words as of a plain capability.
        self.working(sealed.partition)?.of_epoch(sealed.key_epoch)?;
        let ring = self.partitions.get(&sealed.partition).ok_or(Refusal::Key)?;
        let of_epoch = ring.sealing.iter().find(|(epoch, _)| *epoch == sealed.key_epoch);
        let (_, keys) = of_epoch.ok_or(Refusal::Epoch)?;
        keys.open(sealed).ok_or(Refusal::Digest)
    }

    /// A key that is used for itself. Capabilities have their own way.
    pub(crate) fn direct_key(&self, key: &CredentialKey) -> Result<&SecretKey, Refusal> {
        let found = match key {
            CredentialKey::Master => self.master.as_ref(),
            CredentialKey::Drive => self.drive.as_ref(),
            CredentialKey::Partition(partition) => {
                self.partitions.get(partition).and_then(|ring| ring.key.as_ref())
            }
            CredentialKey::WorkingCurrent(partition) => {
                Some(&self.working(*partition)?.current.key)
            }
            CredentialKey::WorkingPrevious(partition) => {
                self.working(*partition)?.previous.as_ref().map(|previous| &previous.key)
            }
            CredentialKey::None
            | CredentialKey::Capability(_)
            | CredentialKey::Narrowed(_)
            | CredentialKey::Sealed(_) => None,
        };
        found.ok_or(Refusal::Key)
    }

    /// Which keys the partition has.
    pub(crate) fn state(&self, partition: PartitionId) -> PartitionState {
        match self.partitions.get(&partition) {
            Some(PartitionRing { working: Some(_), .. }) => PartitionState::Ready,
            Some(PartitionRing { key: Some(_), .. }) => PartitionState::WithoutWorkingKey,
            _ => PartitionState::WithoutKey,
        }
    }

    /// How the partition is set; as new ones are, if there is none.
    pub(crate) fn settings(&self, partition: PartitionId) -> PartitionSettings {
        self.partitions.get(&partition).map(|ring| ring.settings).unwrap_or_default()
    }

    fn working(&self, partition: PartitionId) -> Result<&WorkingKeys, Refusal> {
        let ring = self.partitions.get(&partition).ok_or(Refusal::Key)?;
        ring.working.as_ref().ok_or(Refusal::Key)
    }

    /// All options that any partition demands.
    fn demands(&self) -> Protection {
        let each = self.partitions.values().map(|ring| ring.settings.minimum_protection);
        each.fold(Protection::NONE, |all, one| all | one)
    }
}

impl PartitionRing {
    fn read(store: &Store, partition: PartitionId) -> Result<PartitionRing, StoreError> {
        let keys = store.keys(partition)?;
        let settings = store.partition_settings(partition)?;
        let working = working_keys(&keys);
        let sealing = working.as_ref().map(sealing_keys).unwrap_or_default();
        Ok(PartitionRing { key: keys.partition.as_ref().map(secret), working, sealing, settings })
    }
}

fn working_keys(keys: &PartitionKeys) -> Option<WorkingKeys> {
    let working = |stored: &nasd_store::WorkingKey| WorkingKey {
        epoch: stored.epoch,
        key: secret(&stored.key),
    };
    let current = working(keys.current.as_ref()?);
    let previous = keys.previous.as_ref().map(working);
    Some(WorkingKeys { current, previous })
}

fn sealing_keys(working: &WorkingKeys) -> Vec<(u32, SealingKeys)> {
    let both = [Some(&working.current), working.previous.as_ref()];
    both.into_iter().flatten().map(|key| (key.epoch, SealingKeys::new(&key.key))).collect()
}

fn secret(key: &StoredKey) -> SecretKey {
    SecretKey::new(*key.expose())
}

/// The ring in force.
#[derive(Debug)]
pub(crate) struct CurrentRing {
    ring: RwLock<KeyRing>,
    /// [`KeyRing::demands`], so that most requests need not look into the ring twice.
    demands: AtomicU32,
    /// [`KeyRing::minimum_protection`].
    drive_minimum: AtomicU32,
}

impl CurrentRing {
    pub(crate) fn new(ring: KeyRing) -> CurrentRing {
        let demands = AtomicU32::new(ring.demands().bits());
        let drive_minimum = AtomicU32::new(ring.minimum_protection.bits());
        CurrentRing { ring: RwLock::new(ring), demands, drive_minimum }
    }

    /// The ring, which stays in force as long as this is held.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, KeyRing> {
        // Rings are replaced whole, so that a poisoned lock guards nothing broken.
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts another ring in force, and forgets all that was derived from the old one.
    pub(crate) fn replace(&self, ring: KeyRing, derived: &KeyCache) {
        let mut current = self.ring.write().unwrap_or_else(PoisonError::into_inner);
        self.demands.store(ring.demands().bits(), Ordering::Relaxed);
        let generation = current.generation + 1;
        self.drive_minimum.store(ring.minimum_protection.bits(), Ordering::Relaxed);
        *current = KeyRing { generation, ..ring };
        derived.clear();
    }

    /// What the drive demands of all capabilities and requests.
    pub(crate) fn drive_minimum(&self) -> Protection {
        Protection::from_bits_retain(self.drive_minimum.load(Ordering::Relaxed))
    }

    /// What the partition demands of capabilities and requests.
    pub(crate) fn minimum_protection(&self, partition: Option<PartitionId>) -> Protection {
        match partition {
            Some(partition) if self.demands.load(Ordering::Relaxed) != 0 => {
                self.read().settings(partition).minimum_protection
            }
            _ => Protection::NONE,
        }
    }
}
