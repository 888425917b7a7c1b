//! What is done now and then: free space asked for, removals and changes finished that had to wait
//! for a drive. Also objects that are doomed: without a name, but not removed yet.

use std::collections::HashSet;
use std::sync::PoisonError;

use nasd_protocol::manager::FileHandle;

use super::Namespace;
use crate::handle::Shown;
use crate::objects::{ObjectError, Wait};

/// How many removals are tried in one round of housekeeping.
const REMOVALS_PER_ROUND: usize = 1024;

/// What housekeeping left to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Objects without a name that could not be removed yet.
    pub objects: usize,
    /// Changes that are decided, but could not be finished yet.
    pub changes: usize,
}

impl Namespace {
    /// Does what is due; waits briefly for drives that are away. Called every few seconds by one
    /// thread; operations go on meanwhile.
    pub fn keep_house(&self) -> Backlog {
        for drive in self.objects.drives() {
            self.partition_control(drive);
        }
        for number in self.log.pending_numbers() {
            // The reason was logged; the change stays pending.
            let _ = self.finish(number, Wait::Brief);
        }
        let doomed: Vec<FileHandle> = {
            let doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
            doomed.iter().copied().take(REMOVALS_PER_ROUND).collect()
        };
        let mut away = HashSet::new();
        for object in doomed {
            if !away.contains(&object.drive) && !self.reap(object, Wait::Brief) {
                away.insert(object.drive);
            }
        }
        let doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        Backlog { objects: doomed.len(), changes: self.log.pending_numbers().len() }
    }

    /// Takes note that nothing names an object any more: from now on it is gone. The caller holds
    /// its lock alone.
    pub(super) fn doom(&self, object: FileHandle) {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).insert(object);
        self.forget(object);
        self.directories.forget(object);
    }

    pub(super) fn is_doomed(&self, object: FileHandle) -> bool {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner).contains(&object)
    }

    /// Removes a doomed object, or leaves it to housekeeping; whether it is gone. Not durable: what
    /// a power cut brings back has no name.
    pub(super) fn reap(&self, object: FileHandle, wait: Wait) -> bool {
        match self.objects.remove(object, false, wait) {
            Ok(()) | Err(ObjectError::NoSuchObject) => {
                self.doomed.lock().unwrap_or_else(PoisonError::into_inner).remove(&object);
                true
            }
            Err(error) => {
                tracing::warn!(object = %Shown(object), %error, "could not remove the object yet");
                false
            }
        }
    }
}
