//! What is done now and then: free space asked for, the journal brought home, objects removed and made.

use super::Namespace;

/// What housekeeping left to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Objects without a name that could not be removed yet.
    pub objects: usize,
    /// Files and directories with changes that could not be brought home yet.
    pub changes: usize,
}

impl Namespace {
    /// Does what is due; waits briefly for drives that are away. Called every few seconds by one
    /// thread; operations go on meanwhile. Nothing is changed while somebody holds the volume.
    pub fn keep_house(&self) -> Backlog {
        for drive in self.objects.drives() {
            self.partition_control(drive);
        }
        self.make_ahead();
        self.calm_down();
        // The reason was logged; it is tried again next time.
        let _ = self
            .unless_held(|| self.bring_home())
            .and_then(|()| self.unless_held(|| self.commit()));
        let objects = self.journal.ledger(|ledger| ledger.doomed.len());
        Backlog { objects, changes: self.journal.changes() }
    }

    /// Makes durable what was answered, brings it home, where others look for it, and removes what nothing
    /// names, unless somebody holds the volume. Called a few times a second by one thread.
    pub fn tend_journal(&self) {
        // The reasons were logged; who needs it, and the next round, try again.
        let _ = self
            .unless_held(|| self.commit())
            .and_then(|()| self.unless_held(|| self.bring_home()));
    }
}
