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

type Key = (FileHandle, Name, Arc<Caller>);

/// Names found not long ago.
#[derive(Debug, Default)]
pub(crate) struct NameCache {
    found: Mutex<HashMap<Key, (FileHandle, Instant)>>,
}

impl NameCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (FileHandle, Instant)>> {
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
        let found = self.lock();
        let (handle, when) = found.get(&(dir, name.clone(), Arc::clone(caller)))?;
        (when.elapsed() < ttl).then_some(*handle)
    }

    /// `caller` found this now.
    pub(crate) fn put(
        &self,
        caller: &Arc<Caller>,
        dir: FileHandle,
        name: &Name,
        handle: FileHandle,
    ) {
        let mut found = self.lock();
        if found.len() >= MAX_NAMES {
            found.clear();
        }
        found.insert((dir, name.clone(), Arc::clone(caller)), (handle, Instant::now()));
    }

    /// A name has changed here. Answers the files that it was found to lead to.
    pub(crate) fn forget(&self, dir: FileHandle, name: &Name) -> Vec<FileHandle> {
        let mut led_to = Vec::new();
        self.lock().retain(|(its_dir, its_name, _), (handle, _)| {
            let is_other = *its_dir != dir || its_name != name;
            if !is_other && !led_to.contains(handle) {
                led_to.push(*handle);
            }
            is_other
        });
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
    use super::*;

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
