//! The keys of Table 6 that requests may be made with, as the drive was started with them.
//!
//! No operation of this version changes a key while the drive runs. The one that will must put a
//! new ring in place of the old one, and empty the cache of derived keys.

use std::collections::HashMap;

use nasd_capability::{Capability, Refusal, SecretKey, WorkingKeys};
use nasd_protocol::CredentialKey;
use nasd_store::{PartitionKeys, Store, StoreError, StoredKey};
use nasd_types::PartitionId;

#[derive(Debug)]
struct PartitionRing {
    partition: SecretKey,
    working: WorkingKeys,
}

/// The drive's keys and those of its partitions.
#[derive(Debug)]
pub(crate) struct KeyRing {
    drive: SecretKey,
    partitions: HashMap<PartitionId, PartitionRing>,
}

impl KeyRing {
    pub(crate) fn read(store: &Store) -> Result<KeyRing, StoreError> {
        let partitions = store
            .partitions()
            .into_iter()
            .map(|partition| Ok((partition, PartitionRing::new(&store.keys(partition)?))))
            .collect::<Result<_, StoreError>>()?;
        Ok(KeyRing { drive: secret(&store.drive_key()), partitions })
    }

    pub(crate) fn has_partition(&self, partition: PartitionId) -> bool {
        self.partitions.contains_key(&partition)
    }

    /// The working key that a capability says it was minted with.
    pub(crate) fn working_key(&self, capability: &Capability) -> Result<&SecretKey, Refusal> {
        let ring = self.partitions.get(&capability.partition).ok_or(Refusal::Key)?;
        ring.working.of_epoch(capability.key_epoch)
    }

    /// A key that is used for itself. Capabilities have their own way, and no request here is made
    /// with the master key.
    pub(crate) fn direct_key(&self, key: &CredentialKey) -> Result<&SecretKey, Refusal> {
        let ring = |partition| self.partitions.get(partition).ok_or(Refusal::Key);
        match key {
            CredentialKey::Drive => Ok(&self.drive),
            CredentialKey::Partition(partition) => Ok(&ring(partition)?.partition),
            CredentialKey::WorkingCurrent(partition) => Ok(&ring(partition)?.working.current),
            CredentialKey::WorkingPrevious(partition) => {
                ring(partition)?.working.previous.as_ref().ok_or(Refusal::Key)
            }
            CredentialKey::None | CredentialKey::Master | CredentialKey::Capability(_) => {
                Err(Refusal::Key)
            }
        }
    }
}

impl PartitionRing {
    fn new(keys: &PartitionKeys) -> PartitionRing {
        let epoch = keys.current.epoch;
        // Epochs count: a previous key of any other epoch would be under a wrong number.
        let previous = keys
            .previous
            .as_ref()
            .filter(|previous| previous.epoch.checked_add(1) == Some(epoch))
            .map(|previous| secret(&previous.key));
        let working = WorkingKeys { epoch, current: secret(&keys.current.key), previous };
        PartitionRing { partition: secret(&keys.partition), working }
    }
}

fn secret(key: &StoredKey) -> SecretKey {
    SecretKey::new(*key.expose())
}
