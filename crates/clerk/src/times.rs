//! A modification time that was set, until it is durable.
//!
//! It is set by way of the manager, behind what was written before, and no more durably than data are. A
//! drive that starts anew may have lost it, and what is written there again moves it. So it is kept here
//! like what was written: until a flush is answered by the instance of the drive that has it. If another
//! one answers, the time is set again. Whatever moves the time by itself ends that: writes, a new length.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use nasd_client::interrupt;
use nasd_types::Timestamp;

use crate::ClerkError;
use crate::core::Core;
use crate::file::{FileState, Inner};
use crate::grants::Writer;
use crate::wire::{Caller, FileAttributes, FileType, SetFileAttributes};

/// A modification time that is not known to be durable.
#[derive(Clone, Debug)]
struct SetTime {
    /// Tells it from one that was set later.
    id: u64,
    time: Timestamp,
    /// Who has set it: on his behalf it is flushed, and set again.
    writer: Writer,
    /// The instance that the drive was last heard to run as before the time was set; 0 if it was not
    /// heard. No instance comes back, so if a later flush is answered by this one, it has the time.
    instance: u64,
    /// The drive does not have it, or may have something later.
    is_lost: bool,
}

/// The time of one file, if one was set.
#[derive(Debug, Default)]
pub(crate) struct KeptTime {
    kept: Option<SetTime>,
    /// Counts what has moved the time.
    moves: u64,
    next_id: u64,
}

/// What must be known before a time is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    instance: u64,
    moves: u64,
}

impl KeptTime {
    /// Whether there is one that is not known to be durable.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether there is one that must be set again.
    pub(crate) fn is_lost(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.is_lost)
    }

    /// Something is about to move the time, or the file is gone.
    pub(crate) fn forget(&mut self) {
        self.moves += 1;
        self.kept = None;
    }

    /// The drive runs as `instance`, and something is written there again if it was `requeued`.
    pub(crate) fn heard(&mut self, instance: u64, requeued: usize) {
        if let Some(kept) = &mut self.kept {
            kept.is_lost |= requeued > 0 || kept.instance != instance;
        }
    }

    /// Names what a flush that begins now makes durable.
    pub(crate) fn mark(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.id)
    }

    /// A flush that began at `mark` was answered by `instance`.
    pub(crate) fn flushed(&mut self, instance: u64, mark: Option<u64>) {
        let is_durable =
            |kept: &SetTime| Some(kept.id) == mark && kept.instance == instance && !kept.is_lost;
        if self.kept.as_ref().is_some_and(is_durable) {
            self.kept = None;
        }
    }

    /// A flush that began at `mark` has failed for good.
    pub(crate) fn give_up(&mut self, mark: Option<u64>) {
        if self.mark() == mark {
            self.kept = None;
        }
    }

    /// On whose behalf it can be flushed.
    pub(crate) fn writer(&self) -> Option<Writer> {
        self.kept.as_ref().map(|kept| kept.writer.clone())
    }

    fn keep(&mut self, before: Before, time: Timestamp, writer: Writer) -> bool {
        let is_last = before.moves == self.moves;
        if is_last {
            let (id, instance) = (self.next_id, before.instance);
            self.next_id += 1;
            self.kept = Some(SetTime { id, time, writer, instance, is_lost: false });
        }
        is_last
    }
}

impl FileState {
    /// To be asked before a time is set, when the drive has what was written before.
    pub(crate) fn before_time(&self) -> Before {
        // In this order: what is heard later may be of a drive that has started anew after the change.
        let instance = self.lane.instance.load(Ordering::Acquire);
        Before { instance, moves: self.lock().time.moves }
    }

    /// A modification time was set, to `time` if that was given, and is to be kept until it is durable,
    /// unless something has moved it since `before`.
    pub(crate) fn keep_time(
        self: &Arc<Self>,
        core: &Core,
        caller: &Arc<Caller>,
        (attributes, time): (&FileAttributes, Option<Timestamp>),
        before: Before,
    ) {
        // Of other files it is the manager's.
        if attributes.file_type != FileType::Regular {
            return;
        }
        let writer = Writer(core.grants.slot(caller, self.handle));
        let time = time.unwrap_or(attributes.modify_time);
        let mut inner = self.lock();
        if !inner.time.keep(before, time, writer) {
            return;
        }
        inner.last_write = Instant::now();
        if inner.dirty_since.is_none() {
            inner.dirty_since = Some(inner.last_write);
            core.mark_dirty(self);
        }
    }

    /// Sets the time once more, when the drive has everything else. Failures are not kept: the time was
    /// set, and somebody may since have lost the right to it.
    pub(crate) fn set_time_again(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let _turn = interrupt::lock(&self.flush_turn)?;
        let instance = self.lane.instance.load(Ordering::Acquire);
        let mut inner = self.lock();
        let Some(lost) = inner.time.kept.clone().filter(|kept| kept.is_lost) else {
            return Ok(());
        };
        if inner.pending.has_unacknowledged_before(u64::MAX) {
            // The drive was heard to have started anew meanwhile: that comes first.
            return Ok(());
        }
        // What is written meanwhile has to come behind it. Who has closed the gate waits for this.
        let closes = !std::mem::replace(&mut inner.gate, true);
        drop(inner);
        let changes = SetFileAttributes { modify_time: Some(lost.time), ..Default::default() };
        let caller = &lost.writer.0.caller;
        let answer = core.ask_names(|names| names.setattr(caller, self.handle, &changes));
        core.forget(self.handle);
        let mut inner = self.lock();
        inner.gate &= !closes;
        let outcome = match answer {
            Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
            Ok(_) => {
                let is_same = |kept: &&mut SetTime| kept.id == lost.id;
                if let Some(kept) = inner.time.kept.as_mut().filter(is_same) {
                    (kept.instance, kept.is_lost) = (instance, false);
                }
                Ok(())
            }
            Err(error) => {
                if !error.is_gone() {
                    tracing::warn!(%error, handle = ?self.handle, "a modification time is lost");
                }
                inner.time.give_up(Some(lost.id));
                Ok(())
            }
        };
        self.after_answer(core, inner, 0);
        outcome
    }
}

impl Inner {
    /// Whether nothing is kept that is not known to be durable.
    pub(crate) fn is_durable(&self) -> bool {
        !self.has_written() && !self.time.is_kept()
    }

    /// Whether bytes, or that the file is empty, are kept that are not known to be durable.
    pub(crate) fn has_written(&self) -> bool {
        !self.pending.is_empty() || !self.appending.is_empty() || self.emptied.is_some()
    }
}
