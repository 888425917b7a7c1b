//! One change of the metadata tree.

use std::sync::Arc;

use redb::{Database, Durability, WriteTransaction};

use super::TreeError;
use super::apply::{self, Effects};
use super::capacity::Capacity;
use super::record::{LOG_MARK, LogMark};
use super::region::Region;
use super::tables::DRIVE;
use crate::log::Change;

/// A transaction under way. Dropped without `commit`, it changes nothing.
pub(crate) struct Transaction<'a> {
    transaction: WriteTransaction,
    region: &'a Arc<Region>,
    capacity: &'a Capacity,
    data_blocks: u64,
    /// What was added, net, in the units of `capacity`.
    added: u64,
}

impl<'a> Transaction<'a> {
    pub(super) fn begin(
        database: &Database,
        region: &'a Arc<Region>,
        capacity: &'a Capacity,
        data_blocks: u64,
    ) -> Result<Transaction<'a>, TreeError> {
        let transaction = database.begin_write()?;
        Ok(Transaction { transaction, region, capacity, data_blocks, added: 0 })
    }

    /// Applies changes, up to and with the entry of the log that `mark` says.
    pub(crate) fn apply(
        &mut self,
        changes: &[Change],
        mark: LogMark,
    ) -> Result<Effects, TreeError> {
        self.apply_noting(changes, mark, &mut |_| ())
    }

    /// The same, and tells `note` before each change how many are applied.
    pub(super) fn apply_noting(
        &mut self,
        changes: &[Change],
        mark: LogMark,
        note: &mut dyn FnMut(usize),
    ) -> Result<Effects, TreeError> {
        let effects = apply::apply(&self.transaction, self.data_blocks, changes, mark, note)?;
        self.added += effects.added.saturating_sub(effects.removed);
        Ok(effects)
    }

    /// Lets readers see what was changed. It is durable with the next checkpoint.
    pub(crate) fn commit(mut self) -> Result<(), TreeError> {
        self.transaction.set_durability(Durability::None)?;
        self.transaction.commit()?;
        self.capacity.added(self.added);
        Ok(())
    }

    /// Makes this and all earlier transactions durable, and every write that ended before.
    pub(crate) fn checkpoint(mut self, mark: LogMark) -> Result<(), TreeError> {
        self.transaction.set_durability(Durability::Immediate)?;
        self.transaction.set_quick_repair(true);
        self.transaction.open_table(DRIVE)?.insert(LOG_MARK, &mark.encode()[..])?;
        self.transaction.commit()?;
        if let Some(failure) = self.region.failure() {
            return Err(TreeError::Io(std::io::Error::other(failure.to_owned())));
        }
        self.capacity.added(self.added);
        Ok(())
    }
}
