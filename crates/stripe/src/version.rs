//! What the access control version of a component says, and a memory of it.
//!
//! Virtual objects have versions like others, which only file managers raise. A component's is the virtual one
//! in its upper bits, and below that whether the object is spread and how often the striping manager has
//! revoked by itself: so who may do what where changes by one change of one attribute.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::ObjectName;

/// Bits of a component's version below the virtual one.
const OWN_BITS: u32 = 20;

/// The highest of them: whether there are components for all columns.
const SPREAD: u64 = 1 << (OWN_BITS - 1);

/// The highest virtual version.
pub(crate) const MAX_VIRTUAL: u64 = u64::MAX >> OWN_BITS;

/// The access control version of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ComponentVersion(pub(crate) u64);

impl ComponentVersion {
    /// The first one of a virtual version.
    pub(crate) fn of(virtual_version: u64, is_spread: bool) -> ComponentVersion {
        let own = if is_spread { SPREAD } else { 0 };
        ComponentVersion(virtual_version.min(MAX_VIRTUAL) << OWN_BITS | own)
    }

    /// What the version of the virtual object is.
    pub(crate) fn virtual_version(self) -> u64 {
        self.0 >> OWN_BITS
    }

    /// Whether there are components for all columns.
    pub(crate) fn is_spread(self) -> bool {
        self.0 & SPREAD != 0
    }

    /// The same of an object that is spread from now on, which revokes all that was given out.
    pub(crate) fn spread(self) -> ComponentVersion {
        ComponentVersion((self.0 | (SPREAD - 1)) + 1)
    }
}

/// Most objects whose version is remembered.
const MOST: usize = 1 << 18;

/// Versions of objects, as this striping manager has set or read them: nobody else sets them.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<Generations>);

/// What was used lately, and what was used before.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<ObjectName, ComponentVersion>,
    old: HashMap<ObjectName, ComponentVersion>,
}

impl Versions {
    fn lock(&self) -> MutexGuard<'_, Generations> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: ObjectName) -> Option<ComponentVersion> {
        let mut known = self.lock();
        if let Some(version) = known.young.get(&name) {
            return Some(*version);
        }
        let version = known.old.remove(&name)?;
        known.put(name, version);
        Some(version)
    }

    /// A version that was set, or read. None falls: who has read long ago says nothing new.
    pub(crate) fn put(&self, name: ObjectName, version: ComponentVersion) {
        let mut known = self.lock();
        let old = known.old.remove(&name);
        let present = known.young.get(&name).copied().or(old);
        let version = present.map_or(version, |present| present.max(version));
        known.put(name, version);
    }

    /// The object is no more, or what became of it is not known.
    pub(crate) fn forget(&self, name: ObjectName) {
        let mut known = self.lock();
        known.young.remove(&name);
        known.old.remove(&name);
    }

    /// The partition is no more.
    pub(crate) fn forget_all(&self) {
        *self.lock() = Generations::default();
    }
}

impl Generations {
    fn put(&mut self, name: ObjectName, version: ComponentVersion) {
        if self.young.len() >= MOST / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    #[test]
    fn versions_rise_whoever_raises_them() {
        let fresh = ComponentVersion::of(1, false);
        assert_eq!((fresh.virtual_version(), fresh.is_spread()), (1, false));
        let spread = fresh.spread();
        assert!(spread > fresh && spread.is_spread() && spread.virtual_version() == 1);
        let raised = ComponentVersion::of(2, true);
        assert!(raised > spread && raised.is_spread() && raised.virtual_version() == 2);
        assert!(ComponentVersion::of(2, false) > spread);
        assert_eq!(ComponentVersion::of(u64::MAX, true).virtual_version(), MAX_VIRTUAL);
    }

    #[test]
    fn what_is_used_is_remembered() {
        let versions = Versions::default();
        let name = |number| ObjectName { partition: PartitionId(1), object: ObjectId(number) };
        let (first, second) = (ComponentVersion::of(1, false), ComponentVersion::of(2, false));
        versions.put(name(0), second);
        versions.put(name(0), first);
        assert_eq!(versions.get(name(0)), Some(second), "it does not fall");
        for number in 1..2 * MOST as u64 {
            versions.put(name(number), first);
            if number % 1000 == 0 {
                assert_eq!(versions.get(name(0)), Some(second));
            }
        }
        assert_eq!(versions.get(name(1)), None);
        let known = versions.lock();
        assert!(known.young.len() + known.old.len() <= MOST);
        drop(known);
        versions.forget(name(0));
        assert_eq!(versions.get(name(0)), None);
    }
}
