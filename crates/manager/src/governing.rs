//! A directory's list as AFS has it (`docs/afs.md`) is given to the files in it: each is a store of the file manager's own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use nasd_protocol::manager::{FileHandle, ManagerStatus};

use crate::callback_service::CallbacksOf;
use crate::caller::Caller;
use crate::namespace::{NamedFile, Outcome, TendingLists};
use crate::sessions::hub::SessionHub;
use crate::volumes::Volumes;

/// How many files of a directory are given its list side by side.
const GIVERS: usize = 8;

/// How often a file is to get a list that somebody else stores all the time, before the others have to wait no longer for whoever goes on behind.
const LIST_ATTEMPTS: usize = 8;

/// How long after lists could not be given the next ones are.
const LISTS_PAUSE: Duration = Duration::from_millis(500);

impl CallbacksOf<'_> {
    /// Gives the files of a directory the list as AFS has it that was set there, if they are still to get it, and returns when all have it: nobody has
    /// any right then by another one.
    pub(crate) fn govern(&self, directory: FileHandle) -> Outcome<()> {
        let _giving = self.names.begin_to_govern(directory);
        let Some(revision) = self.names.governing(directory) else {
            return Ok(());
        };
        let files = self.names.files_to_govern(directory)?;
        let (next, failed) = (AtomicUsize::new(0), OnceLock::new());
        let give = || {
            while let Some(named) = files.get(next.fetch_add(1, Ordering::Relaxed))
                && failed.get().is_none()
            {
                if let Err(status) = self.govern_one(directory, named) {
                    let _ = failed.set(status);
                }
            }
        };
        thread::scope(|scope| {
            // Each waits for drives, and for those who hold callbacks.
            for _ in 1..GIVERS.min(files.len()) {
                // One thread does it as well.
                let _ = thread::Builder::new().spawn_scoped(scope, give);
            }
            give();
        });
        match failed.into_inner() {
            Some(status) => Err(status),
            None => self.names.note_governed(directory, revision),
        }
    }

    fn govern_one(&self, directory: FileHandle, named: &NamedFile) -> Outcome<()> {
        for _ in 0..LIST_ATTEMPTS {
            match self.storing(named.1, None, || self.names.govern(directory, named)) {
                // Somebody else stores it.
                Err(ManagerStatus::Busy) => {}
                Err(ManagerStatus::Stale) => return Ok(()),
                outcome => return outcome,
            }
        }
        Err(ManagerStatus::Busy)
    }
}

/// Goes on with lists of directories that their files are still to get: whoever has set them does not wait for that any more. There is one thread
/// for each volume, and it tries again after a moment where it has failed.
pub(crate) fn tend_lists(hub: &Arc<SessionHub>, volumes: &Volumes) {
    for names in volumes.open_ones().filter(|names| names.has_callbacks()) {
        if names.left_governing().is_empty() {
            continue;
        }
        let Some(tending) = names.begin_to_tend_lists() else {
            continue;
        };
        let hub = Arc::clone(hub);
        let named = thread::Builder::new().name("nasd-lists".to_owned());
        if let Err(error) = named.spawn(move || give_lists(&hub, &tending)) {
            tracing::warn!(%error, "no thread to give files their lists");
            return;
        }
    }
}

fn give_lists(hub: &SessionHub, tending: &TendingLists) {
    let names = tending.names();
    for directory in names.left_governing() {
        let inside = names.door().enter();
        let caller = Caller::default();
        let all = CallbacksOf { hub, names, caller: &caller, member: "" };
        let given = all.govern(directory);
        drop(inside);
        if let Err(status) = given {
            tracing::debug!(?directory, %status, "files have no list of their directory yet");
            thread::sleep(LISTS_PAUSE);
        }
    }
}
