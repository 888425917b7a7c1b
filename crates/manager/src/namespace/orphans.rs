//! Files without a name that clients may have open, and what the volume's journal keeps of sessions
//! (`docs/decisions/0010-sessions-and-leases.md`).

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

use nasd_protocol::manager::FileHandle;

use super::{Namespace, Outcome};
use crate::journal::Step;
use crate::locks::Wants;

/// Nobody's session.
const NOBODY: u64 = 0;

impl Namespace {
    pub(super) fn orphaned(&self) -> MutexGuard<'_, Vec<(FileHandle, u64)>> {
        self.orphaned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the start: those that an earlier manager has left.
    pub(super) fn adopt_orphans(&self) {
        let left = self.journal.ledger(|ledger| ledger.orphans.clone());
        self.orphaned().extend(left.into_iter().map(|file| (file, NOBODY)));
    }

    /// Files that have lost their last name since this was asked, and stay until [`Namespace::remove_orphans`];
    /// each with the session that does not have it open.
    pub fn take_orphaned(&self) -> Vec<(FileHandle, u64)> {
        std::mem::take(&mut *self.orphaned())
    }

    /// Nobody has these open any more: they go.
    ///
    /// # Errors
    /// What stands in the way of the first that can't go; it and those after it stay.
    pub fn remove_orphans(&self, files: &[FileHandle]) -> Outcome<()> {
        for file in files {
            let _held = self.hold(Wants::new().write(*file));
            if !self.journal.ledger(|ledger| ledger.orphans.contains(file)) {
                continue;
            }
            let record = self.record_if_any(*file)?;
            self.change(&[], |draft| {
                draft.remove_file(*file, record.as_ref());
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The clients that had sessions with an earlier manager, or have one.
    pub fn sessions(&self) -> HashSet<u64> {
        self.journal.ledger(|ledger| ledger.sessions.iter().copied().collect())
    }

    /// Writes down that a client has a session, before it is given anything: returns when that is durable.
    ///
    /// # Errors
    /// `Unavailable` and others, if the volume's home does not take it.
    pub fn begin_session(&self, client: u64) -> Outcome<()> {
        if !self.journal.ledger(|ledger| ledger.sessions.contains(&client)) {
            self.journal.enqueue(&[Step::Session { client }]);
        }
        self.commit()
    }

    /// Writes down, with the next change, that clients hold nothing any more.
    pub fn end_sessions(&self, clients: &[u64]) {
        let ended: Vec<Step> =
            clients.iter().map(|client| Step::SessionEnded { client: *client }).collect();
        if !ended.is_empty() {
            self.journal.enqueue(&ended);
        }
    }
}
