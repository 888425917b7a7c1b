//! How appended bytes get to the drive: behind everything that was written before them, one batch at a time,
//! each once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use nasd_types::ByteRange;

use crate::ClerkError;
use crate::appending::Batch;
use crate::core::Core;
use crate::file::FileState;
use crate::grants::Writer;

impl FileState {
    /// Takes bytes to be appended, at most 1 MiB of them, which will lie together. They reach the drive
    /// later: at the latest before anything else is done with the file.
    pub(crate) fn append(
        self: &Arc<Self>,
        core: &Arc<Core>,
        writer: &Writer,
        data: &[u8],
    ) -> Result<(), ClerkError> {
        let (length, deadline) = (data.len() as u64, core.deadline());
        if data.is_empty() {
            return Ok(());
        }
        self.reserve(core, length, deadline)?;
        let mut inner = self.lock();
        while inner.gate {
            if Instant::now() >= deadline {
                drop(inner);
                self.lane.budget.release(length);
                return Err(self.away());
            }
            inner = self.wait(inner).inspect_err(|_| self.lane.budget.release(length))?;
        }
        let behind = inner.pending.next_id();
        let is_ready = inner.appending.put(data, writer, behind) && !inner.appending.is_sending();
        inner.time.forget();
        inner.charged += length;
        inner.last_write = Instant::now();
        if inner.dirty_since.is_none() {
            inner.dirty_since = Some(inner.last_write);
            core.mark_dirty(self);
        }
        self.settle(&mut inner);
        let errors_before = inner.errors.count();
        let (write_through, much) = (inner.write_through, inner.holds_much(core, &self.lane));
        drop(inner);
        if is_ready && core.promises().is_none() {
            self.commit_in_background(core);
        }
        self.go_on_after_write(core, write_through.then_some(errors_before), much)
    }

    /// Begins to send all batches but the last, which may grow further.
    fn commit_in_background(self: &Arc<Self>, core: &Arc<Core>) {
        let (core, file) = (Arc::clone(core), Arc::clone(self));
        self.lane.senders.submit(move || {
            loop {
                let inner = file.lock();
                let target = inner.appending.next().saturating_sub(1);
                let is_done = !inner.appending.has_before(target);
                drop(inner);
                // A failure is kept for those who wrote, and nobody interrupts this thread.
                if is_done || file.commit_before(&core, target).is_err() {
                    break;
                }
            }
        });
    }

    /// Waits until the drive has everything that was appended so far. Failures are kept for those who
    /// appended; the only one that is told is that nobody wants to wait any more.
    pub(crate) fn commit_appends(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        if !self.has_appends.load(Ordering::Acquire) {
            return Ok(());
        }
        match core.promises() {
            // They have their places when the file is stored.
            Some(_) => match self.sync(core) {
                Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
                _ => Ok(()),
            },
            None => self.commit_appends_now(core),
        }
    }

    /// The same without more ado: where there are callbacks, the file is being stored.
    pub(crate) fn commit_appends_now(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        if !self.has_appends.load(Ordering::Acquire) {
            return Ok(());
        }
        let target = self.lock().appended_before();
        self.commit_before(core, target)
    }

    /// The same of the batches with lower numbers.
    fn commit_before(self: &Arc<Self>, core: &Arc<Core>, target: u64) -> Result<(), ClerkError> {
        let mut inner = self.lock();
        while inner.appending.has_before(target) {
            if inner.appending.is_sending() {
                inner = self.wait(inner)?;
                continue;
            }
            if inner.pending.has_unacknowledged_before(inner.appending.behind()) {
                // The end of the file is behind what was written before.
                drop(inner);
                self.drain_writes(core)?;
                inner = self.lock();
                continue;
            }
            let Some(batch) = inner.appending.take() else {
                break;
            };
            drop(inner);
            self.send_batch(core, &batch)?;
            inner = self.lock();
        }
        Ok(())
    }

    /// Sends the oldest batch, and deals with the answer. When that is interrupted, it waits for another
    /// sender, who asks for the same append.
    fn send_batch(
        self: &Arc<Self>,
        core: &Arc<Core>,
        batch: &Batch<Writer>,
    ) -> Result<(), ClerkError> {
        let answer = core.with_grant_to_change(&batch.writer.0, |grant| {
            core.objects.append(grant, batch.identity(), batch.bytes())
        });
        core.expire(self.handle);
        let mut inner = self.lock();
        let outcome = match answer {
            Ok(appended) => {
                let range = ByteRange::new(appended.offset, batch.bytes().len() as u64);
                inner.note_appended(range, appended.attributes.logical_size);
                inner.appending.finish();
                Ok(())
            }
            Err(ClerkError::Interrupted) => {
                inner.appending.put_back();
                Err(ClerkError::Interrupted)
            }
            Err(error) => {
                inner.appending.finish();
                self.note_failure(core, &mut inner, error);
                Ok(())
            }
        };
        self.after_answer(core, inner, 0);
        outcome
    }
}
