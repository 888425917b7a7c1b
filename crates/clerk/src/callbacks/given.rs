//! A store that has begun with a file that was made here: whoever writes to the file stores it without asking before.
//!
//! Whoever else wants something of the file waits at the file manager, so it is given back soon where nobody stores: when the file is closed,
//! when the file manager is about to be asked about it, or a moment later.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nasd_client::interrupt;

use super::Promises;
use super::storing::Store;
use crate::ClerkError;
use crate::backend::Grant;
use crate::core::Core;
use crate::file::{FileState, Inner};
use crate::grants::Slot;
use crate::wire::{Begun, Caller, File, FileAttributes, FileHandle, Writable};

/// So long it is kept at least.
const KEPT: Duration = Duration::from_millis(250);

/// So long nobody else can change the file: much longer than it is kept, and much shorter than the file manager lets it be used.
const ALONE: Duration = Duration::from_secs(2);

/// A capability to store that came with a file.
#[derive(Debug)]
pub(crate) struct Given {
    told: Writable,
    /// By which its caller reads the file meanwhile.
    grant: Arc<Grant>,
    since: Instant,
}

impl Given {
    /// Whether it is this caller's.
    pub(super) fn is_for(&self, caller: &Arc<Caller>) -> bool {
        self.grant.caller == *caller
    }

    /// Whether nobody else can have changed the file: not where this client was away meanwhile.
    fn is_good(&self, promises: &Promises) -> bool {
        self.since.elapsed() < ALONE && !promises.good_for().is_zero()
    }
}

/// A file that has one, or had, and since when.
pub(crate) struct GivenSince {
    file: Arc<FileState>,
    since: Instant,
}

impl GivenSince {
    /// Whether it is time to give it back.
    pub(crate) fn is_due(&self) -> bool {
        self.since.elapsed() >= KEPT
    }

    /// Has it given back, if it was not used.
    pub(crate) fn end(self, core: &Arc<Core>) {
        let (core, file) = (Arc::clone(core), self.file);
        if file.lock().given.is_some() {
            let lane = Arc::clone(&file.lane);
            // Nobody interrupts that thread.
            lane.senders.submit(move || drop(file.end_given(&core)));
        }
    }
}

impl Core {
    /// The file manager is about to be asked about a file, or to change it, and may wait for its store.
    pub(crate) fn end_given(self: &Arc<Self>, handle: FileHandle) -> Result<(), ClerkError> {
        match self.promises().and_then(|_| self.open_file(handle)) {
            Some(file) => file.end_given(self),
            None => Ok(()),
        }
    }

    /// By what the caller of a slot may use a file that he has made and may store yet.
    pub(crate) fn given_grant(&self, slot: &Slot) -> Option<Arc<Grant>> {
        self.promises()?;
        let file = self.open_file(slot.handle)?;
        let inner = file.lock();
        let given = inner.given.as_ref().filter(|given| given.is_for(&slot.caller))?;
        Some(Arc::clone(&given.grant))
    }

    /// The attributes of a file that was made here and may be stored, and for how long nobody else can have changed them.
    pub(crate) fn given_attributes(
        &self,
        handle: FileHandle,
    ) -> Option<(FileAttributes, Duration)> {
        let (promises, file) = (self.promises()?, self.open_file(handle)?);
        let inner = file.lock();
        let attributes = inner.given_attributes(promises).filter(|_| inner.is_durable())?;
        Some((attributes, promises.good_for().min(KEPT)))
    }
}

impl Inner {
    /// The file's attributes, if it may be stored since it was made.
    pub(super) fn given_attributes(&self, promises: &Promises) -> Option<FileAttributes> {
        let given = self.given.as_ref().filter(|given| given.is_good(promises))?;
        Some(given.told.file.attributes)
    }

    /// Whether the file may be stored here since it was made, and so nobody else can have changed it.
    pub(super) fn is_given(&self, promises: &Promises) -> bool {
        self.given.as_ref().is_some_and(|given| given.is_good(promises))
    }
}

impl FileState {
    /// The file was made here, and may be stored under the capability that has come with it.
    pub(crate) fn give(
        self: &Arc<Self>,
        core: &Core,
        caller: &Arc<Caller>,
        file: &File,
        begun: Begun,
    ) {
        let Begun { version, end, time } = begun;
        let told = Writable { file: file.clone(), version, end, time, alone: true };
        let mut inner = self.lock();
        let answers = inner.answers();
        inner.note_size(file.attributes.size, answers);
        let issued = file.capability.clone();
        let grant = Grant::new(Arc::clone(caller), self.handle, issued, core.protection());
        let (grant, since) = (Arc::new(grant), Instant::now());
        inner.given = Some(Given { told, grant, since });
        drop(inner);
        core.mark_given(GivenSince { file: Arc::clone(self), since: Instant::now() });
    }

    /// What was given with the file to this caller, to be used now.
    pub(super) fn take_given(&self, caller: &Arc<Caller>) -> Option<Writable> {
        let given = self.lock().given.take_if(|given| given.is_for(caller));
        given.map(|given| given.told)
    }

    /// The capability is not used: it is to be returned as that of a store that is done. Whoever calls this has the turn to store. Whether there is
    /// one.
    pub(super) fn leave_given(&self) -> bool {
        let mut inner = self.lock();
        let Some(Given { told, grant, .. }) = inner.given.take() else {
            return false;
        };
        let ends = (inner.pending.next_id(), inner.appending.next());
        inner.store = Some(Store::unused((told.version, grant), told.file.attributes, ends));
        true
    }

    /// Gives the capability back that has come with the file, if it was not used.
    pub(crate) fn end_given(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        if self.lock().given.is_none() {
            return Ok(());
        }
        let _turn = interrupt::lock(&self.store_turn)?;
        self.leave_given();
        self.end_left(core)
    }
}
