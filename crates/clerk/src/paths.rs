//! Paths, and names found on them not long ago.
//!
//! Only whole paths are resolved through this cache; a single `lookup` always asks the manager,
//! because whoever asks for one name at a time (the kernel, for a mount) has a cache of his own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wire::{Caller, FileHandle, Name};

/// Names kept at most.
const MAX_NAMES: usize = 1 << 14;

/// Callers for whom one name is kept at most.
const MAX_CALLERS: usize = 16;

/// What one caller found.
#[derive(Debug)]
struct Found {
    caller: Arc<Caller>,
    file: FileHandle,
    when: Instant,
}

/// By directory and name, so that a name that has changed is forgotten at once for everybody.
type Names = HashMap<(FileHandle, Name), Vec<Found>>;

/// Names found not long ago.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    found: Mutex<Names>,
}

impl NameCache {
    fn lock(&self) -> MutexGuard<'_, Names> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `caller` found not longer than `ttl` ago.
    pub(crate) fn get(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        ttl: Duration,
    ) -> Option<FileHandle> {
        let names = self.lock();
        let found = names.get(&(dir, name.clone()))?;
        let found = found.iter().find(|found| found.caller == *caller)?;
        (found.when.elapsed() < ttl).then_some(found.file)
    }

    /// `caller` found this now.
    pub(crate) fn put(&self, caller: &Arc<Caller>, dir: FileHandle, name: &Name, file: FileHandle) {
        let mut names = self.lock();
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        let found = names.entry((dir, name.clone())).or_default();
        found.retain(|found| found.caller != *caller);
        if found.len() >= MAX_CALLERS {
            found.remove(0);
        }
        found.push(Found { caller: Arc::clone(caller), file, when: Instant::now() });
    }

    /// A name has changed here. Answers the files that it was found to lead to.
    pub(crate) fn forget(&self, dir: FileHandle, name: &Name) -> Vec<FileHandle> {
        let found = self.lock().remove(&(dir, name.clone())).unwrap_or_default();
        let mut led_to: Vec<FileHandle> = found.iter().map(|found| found.file).collect();
        led_to.dedup();
        led_to
    }
}

/// The names of a path, without empty ones and dots. `..` is kept: the manager knows no parents,
/// so the caller takes the last name off again.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use nasd_types::{DriveId, ObjectId, PartitionId};

    use super::*;

    #[test]
    fn a_name_that_has_changed_is_forgotten_for_everybody() {
        let caller = |uid| Arc::new(Caller { uid, gid: 0, groups: Vec::new() });
        let handle = |object| FileHandle {
            drive: DriveId(1),
            partition: PartitionId(1),
            object: ObjectId(object),
        };
        let (cache, dir, minute) = (NameCache::default(), handle(1), Duration::from_secs(60));
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        for uid in 0..3 {
            cache.put(&caller(uid), dir, &a, handle(70));
            cache.put(&caller(uid), dir, &b, handle(71));
        }
        cache.put(&caller(1), dir, &a, handle(72));
        assert_eq!(cache.get(&caller(1), dir, &a, minute), Some(handle(72)));
        assert_eq!(cache.get(&caller(2), dir, &a, minute), Some(handle(70)));
        assert_eq!(cache.get(&caller(2), dir, &a, Duration::ZERO), None);
        assert_eq!(cache.get(&caller(3), dir, &a, minute), None);
        assert_eq!(cache.forget(dir, &a), [handle(70), handle(72)]);
        assert_eq!(cache.get(&caller(2), dir, &a, minute), None);
        assert_eq!(cache.get(&caller(2), dir, &b, minute), Some(handle(71)));
        assert!(cache.forget(dir, &a).is_empty());
        for uid in 0..100 {
            cache.put(&caller(uid), dir, &a, handle(70));
        }
        assert_eq!(cache.lock()[&(dir, a)].len(), MAX_CALLERS);
    }

    #[test]
    fn paths_fall_into_names() {
        let names = |path: &'static str| {
            let names = components(path.as_bytes());
            names.map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("/a//b/./c/"), ["a", "b", "c"]);
        assert!(names("/").is_empty());
        assert!(names("").is_empty());
        assert_eq!(names("a/../b"), ["a", "..", "b"]);
    }
}
