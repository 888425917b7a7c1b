//! What the access control version of a component says, and a memory of it.
//!
//! Virtual objects have versions like others, which only file managers raise. A component's is the virtual one
//! in its upper bits, and below that whether the object is spread, how often the striping manager has revoked by
//! itself, and whether copies may differ: so who may do what where changes by one change of one attribute.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nasd_types::ObjectName;

use crate::recent::Recent;

/// Bits of a component's version below the virtual one.
const OWN_BITS: u32 = 32;

/// The highest of them: whether there are components for all columns.
const SPREAD: u64 = 1 << (OWN_BITS - 1);

/// The lowest of them: whether somebody may be writing copies, or has died at it, so that they may differ.
const WRITERS: u64 = 1;

/// Between these: counts what the striping manager has revoked by itself.
const COUNTER: u64 = SPREAD - 2;

/// The highest virtual version.
pub(crate) const MAX_VIRTUAL: u64 = (u64::MAX >> OWN_BITS) - 1;

/// The access control version of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ComponentVersion(pub(crate) u64);

impl ComponentVersion {
    /// The first one of a virtual version.
    pub(crate) fn of(virtual_version: u64, is_spread: bool, has_writers: bool) -> ComponentVersion {
        let spread = if is_spread { SPREAD } else { 0 };
        let writers = if has_writers { WRITERS } else { 0 };
        ComponentVersion(virtual_version.min(MAX_VIRTUAL + 1) << OWN_BITS | spread | writers)
    }

    /// What the version of the virtual object is.
    pub(crate) fn virtual_version(self) -> u64 {
        self.0 >> OWN_BITS
    }

    /// Whether there are components for all columns.
    pub(crate) fn is_spread(self) -> bool {
        self.0 & SPREAD != 0
    }

    /// Whether copies may differ.
    pub(crate) fn has_writers(self) -> bool {
        self.0 & WRITERS != 0
    }

    /// Of an object that is spread from now on, which revokes all that was given out. Of a later version it is
    /// later: so components can get it that were left by an attempt which came to nothing.
    pub(crate) fn spread(self) -> ComponentVersion {
        ComponentVersion(self.0 | SPREAD)
    }

    /// Before somebody may write copies: who was told that any copy may be read may not any more.
    pub(crate) fn with_writers(self) -> ComponentVersion {
        ComponentVersion(self.0 | WRITERS)
    }

    /// When all copies are the same, and nobody may write them any more.
    pub(crate) fn without_writers(self) -> ComponentVersion {
        if self.has_writers() { self.next(false) } else { self }
    }

    /// Revokes all that was given out.
    pub(crate) fn revoked(self) -> ComponentVersion {
        self.next(self.has_writers())
    }

    /// One that is higher, of an object that is not spread.
    pub(crate) fn above(self, has_writers: bool) -> ComponentVersion {
        match self.is_spread() {
            true => Self::of(self.virtual_version() + 1, false, has_writers),
            false => self.next(has_writers),
        }
    }

    /// The next higher one. When there are no more, capabilities of the virtual object go too.
    fn next(self, has_writers: bool) -> ComponentVersion {
        if self.0 & COUNTER == COUNTER {
            return Self::of(self.virtual_version() + 1, self.is_spread(), has_writers);
        }
        let writers = if has_writers { WRITERS } else { 0 };
        ComponentVersion(((self.0 & !WRITERS) + 2) | writers)
    }
}

/// Most objects whose version is remembered.
const MOST: usize = 1 << 18;

/// Versions of objects, as this striping manager has set or read them: nobody else sets them, but one of before.
#[derive(Debug, Default)]
pub(crate) struct Versions(Mutex<Memory>);

#[derive(Debug)]
struct Memory {
    known: Recent<Known>,
    /// Objects some of whose components may have another version than others: as few as there are failures.
    doubtful: HashSet<ObjectName>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    version: ComponentVersion,
    /// Whether all components have it, as far as is known: one that was read says nothing of others, some of which a
    /// striping manager that died may have given a later one.
    is_everywhere: bool,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { known: Recent::new(MOST), doubtful: HashSet::new() }
    }
}

impl Versions {
    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Every change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: ObjectName) -> Option<ComponentVersion> {
        self.lock().known.get(name).map(|known| known.version)
    }

    /// Whether it is known that all components have the version that is.
    pub(crate) fn is_everywhere(&self, name: ObjectName) -> bool {
        self.lock().known.get(name).is_some_and(|known| known.is_everywhere)
    }

    /// A version that was read. None falls: who has read long ago says nothing new.
    pub(crate) fn put(&self, name: ObjectName, version: ComponentVersion) {
        self.lock().raise(name, Known { version, is_everywhere: false });
    }

    /// A version that all components were given, or have told.
    pub(crate) fn put_everywhere(&self, name: ObjectName, version: ComponentVersion) {
        self.lock().raise(name, Known { version, is_everywhere: true });
    }

    /// The object is no more, or what became of it is not known.
    pub(crate) fn forget(&self, name: ObjectName) {
        let mut memory = self.lock();
        memory.known.remove(name);
        memory.doubtful.remove(&name);
    }

    /// Not all components have got the version that they were to get, or it is not known.
    pub(crate) fn doubt(&self, name: ObjectName) {
        self.forget(name);
        self.lock().doubtful.insert(name);
    }

    /// All components have the same again.
    pub(crate) fn settle(&self, name: ObjectName) {
        self.lock().doubtful.remove(&name);
    }

    /// Whether components may have different versions.
    pub(crate) fn is_doubtful(&self, name: ObjectName) -> bool {
        self.lock().doubtful.contains(&name)
    }

    /// The partition is no more.
    pub(crate) fn forget_all(&self) {
        *self.lock() = Memory::default();
    }
}

impl Memory {
    fn raise(&mut self, name: ObjectName, told: Known) {
        let known = match self.known.get(name) {
            Some(present) if present.version > told.version => present,
            Some(present) if present.version == told.version => {
                Known { is_everywhere: present.is_everywhere || told.is_everywhere, ..told }
            }
            _ => told,
        };
        self.known.put(name, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nasd_types::{ObjectId, PartitionId};

    #[test]
    fn versions_rise_whoever_raises_them() {
        for (is_spread, has_writers) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let of = |version| ComponentVersion::of(version, is_spread, has_writers);
            let version = of(1);
            assert_eq!(version.virtual_version(), 1);
            assert_eq!((version.is_spread(), version.has_writers()), (is_spread, has_writers));
            assert!(of(2) > version.revoked() && version.revoked() > version);
            assert_eq!(version.revoked().has_writers(), has_writers);
            let written = version.with_writers();
            assert!(written >= version && written.has_writers());
            assert_eq!(written.is_spread(), is_spread);
            let even = written.without_writers();
            assert!(even > written && !even.has_writers() && even.virtual_version() == 1);
            assert!(even.with_writers() > even);
            let spread = even.spread();
            assert!(spread >= even && spread.is_spread() && spread.virtual_version() == 1);
            assert!(even.with_writers().spread() > spread && spread > written.spread());
            // After as many as there is room for, the virtual version rises.
            let last = ComponentVersion(version.0 | COUNTER);
            assert_eq!(last.revoked(), of(2));
        }
    }

    #[test]
    fn what_is_used_is_remembered() {
        let versions = Versions::default();
        let name = |number| ObjectName { partition: PartitionId(1), object: ObjectId(number) };
        let (first, second) =
            (ComponentVersion::of(1, false, false), ComponentVersion::of(2, false, false));
        versions.put(name(0), second);
        versions.put(name(0), first);
        assert_eq!(versions.get(name(0)), Some(second), "it does not fall");
        assert!(!versions.is_everywhere(name(0)), "others may have another one");
        versions.put_everywhere(name(0), first);
        assert!(!versions.is_everywhere(name(0)), "that is long ago");
        versions.put_everywhere(name(0), second);
        versions.put(name(0), second);
        assert!(versions.is_everywhere(name(0)));
        for number in 1..2 * MOST as u64 {
            versions.put(name(number), first);
            if number % 1000 == 0 {
                assert_eq!(versions.get(name(0)), Some(second));
            }
        }
        assert_eq!(versions.get(name(1)), None);
        assert!(versions.lock().known.len() <= MOST);
        versions.forget(name(0));
        assert_eq!(versions.get(name(0)), None);
    }
}
