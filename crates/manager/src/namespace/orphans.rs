//! Files without a name that clients may have open, and what the volume's journal keeps of sessions
//! (`docs/decisions/0010-sessions-and-leases.md`).

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

use nasd_protocol::manager::FileHandle;

use super::{Namespace, Outcome};
use crate::caller::Caller;
use crate::journal::Step;
use crate::locks::Wants;

/// Nobody's session.
const NOBODY: u64 = 0;

/// A file that is without a name, and is there until no client has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphaned {
    /// Which.
    pub file: FileHandle,
    /// A session that says whether it has the file open; 0 if none does.
    pub session: u64,
    /// What it says.
    pub is_open: bool,
}

impl Orphaned {
    /// By somebody's request. Who has another file open than the one that the name led to does not know of
    /// this one, and is asked like the others.
    pub(super) fn by(caller: &Caller, file: FileHandle) -> Orphaned {
        let is_known = caller.keeps.is_none_or(|keeps| keeps == file);
        let session = if is_known { caller.session } else { NOBODY };
        Orphaned { file, session, is_open: caller.keeps == Some(file) }
    }
}

impl Namespace {
    pub(super) fn orphaned(&self) -> MutexGuard<'_, Vec<Orphaned>> {
        self.orphaned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the start: those that an earlier manager has left.
    pub(super) fn adopt_orphans(&self) {
        let left = self.journal.ledger(|ledger| ledger.orphans.clone());
        let orphaned = |file| Orphaned { file, session: NOBODY, is_open: false };
        self.orphaned().extend(left.into_iter().map(orphaned));
    }

    /// Files that are without a name since this was asked, and stay until [`Namespace::remove_orphans`].
    pub fn take_orphaned(&self) -> Vec<Orphaned> {
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

    /// Whether a file has no name and may get one: it never had any.
    pub(super) fn is_nameless(&self, file: FileHandle) -> bool {
        self.journal.ledger(|ledger| ledger.nameless.contains(&file))
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
