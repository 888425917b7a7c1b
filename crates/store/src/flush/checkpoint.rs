//! Checkpoints: the tree becomes durable by itself, and the log may be overwritten.

use std::sync::atomic::Ordering;

use crate::{Store, StoreError};

impl Store {
    /// Makes the tree durable with everything that was applied to it. Whoever calls this leads, and
    /// has settled what there was.
    pub(super) fn checkpoint_now(&self) -> Result<(), StoreError> {
        let outcome = self.write_checkpoint();
        if let Err(error) = &outcome {
            self.latch(error);
        }
        outcome
    }

    fn write_checkpoint(&self) -> Result<(), StoreError> {
        self.inlined.bring_home(&*self.device, &self.geometry)?;
        // Its first sync makes durable what was brought home.
        self.metadata.begin()?.checkpoint(self.log.mark())?;
        self.inlined.clear();
        self.log.checkpointed();
        self.tally.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
