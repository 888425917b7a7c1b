//! One change of the metadata tree.

use redb::{Durability, WriteTransaction};

use super::apply::{self, Effects};
use super::recent::{Touched, touched};
use super::record::{LOG_MARK, LogMark};
use super::tables::DRIVE;
use super::{Metadata, TreeError};
use crate::log::Change;

/// A transaction under way. Dropped without `commit`, it changes nothing.
pub(crate) struct Transaction<'a> {
    transaction: WriteTransaction,
    metadata: &'a Metadata,
    touched: Vec<Touched>,
    /// What was added, net where more was removed at a time, in the units of `capacity`.
    added: u64,
    /// What was added less what was removed.
    grown: i64,
}

impl<'a> Transaction<'a> {
    pub(super) fn begin(metadata: &'a Metadata) -> Result<Transaction<'a>, TreeError> {
        let transaction = metadata.database.begin_write()?;
        Ok(Transaction { transaction, metadata, touched: Vec::new(), added: 0, grown: 0 })
    }

    /// Applies changes in their order, up to and with the entry of the log that `mark` says.
    pub(crate) fn apply<'c>(
        &mut self,
        changes: impl Iterator<Item = &'c Change> + Clone,
        mark: LogMark,
    ) -> Result<Effects, TreeError> {
        self.apply_noting(changes, mark, &mut |_| ())
    }

    /// The same, and tells `note` before each change how many are applied.
    pub(super) fn apply_noting<'c>(
        &mut self,
        changes: impl Iterator<Item = &'c Change> + Clone,
        mark: LogMark,
        note: &mut dyn FnMut(usize),
    ) -> Result<Effects, TreeError> {
        let data_blocks = self.metadata.data_blocks;
        let effects = apply::apply(&self.transaction, data_blocks, changes.clone(), mark, note)?;
        self.touched.extend(touched(changes));
        self.added += effects.added.saturating_sub(effects.removed);
        self.grown += effects.added as i64 - effects.removed as i64;
        Ok(effects)
    }

    /// Lets readers see what was changed. It is durable with the next checkpoint.
    pub(crate) fn commit(mut self) -> Result<(), TreeError> {
        self.transaction.set_durability(Durability::None)?;
        self.end()
    }

    /// Makes this and all earlier transactions durable, and every write that ended before.
    pub(crate) fn checkpoint(mut self, mark: LogMark) -> Result<(), TreeError> {
        self.transaction.set_durability(Durability::Immediate)?;
        self.transaction.set_quick_repair(true);
        self.transaction.open_table(DRIVE)?.insert(LOG_MARK, &mark.encode()[..])?;
        let metadata = self.metadata;
        self.end()?;
        metadata.check_writable()
    }

    fn end(self) -> Result<(), TreeError> {
        let Transaction { transaction, metadata, touched, added, grown } = self;
        let changing = metadata.recent.change(&touched);
        let outcome = transaction.commit();
        // In this order: see `recent`.
        metadata.current.forget();
        drop(changing);
        outcome?;
        metadata.capacity.changed(added, grown);
        Ok(())
    }
}
