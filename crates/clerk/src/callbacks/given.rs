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
    asked: Asked,
}

/// When a file was asked for that has come with a capability, and how often what is promised had ended by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    at: Instant,
    ends: u64,
    lapses: u64,
}

impl Asked {
    /// A file is about to be asked for.
    pub(crate) fn now(promises: Option<&Promises>) -> Asked {
        let (ends, lapses) = promises.map_or((0, 0), |all| (all.ends(), all.lapses()));
        Asked { at: Instant::now(), ends, lapses }
    }

    /// How often what is promised had ended.
    pub(crate) const fn ends(&self) -> u64 {
        self.ends
    }
}

impl Given {
    /// Whether it is this caller's.
    pub(super) fn is_for(&self, caller: &Arc<Caller>) -> bool {
        self.grant.caller == *caller
    }

    /// Whether nobody else can have stored the file: not where this client was away meanwhile.
    pub(super) fn is_usable(&self, promises: &Promises) -> bool {
        let is_soon = self.asked.at.elapsed() < ALONE && !promises.good_for().is_zero();
        is_soon && self.asked.lapses == promises.lapses()
    }

    /// Whether nobody else can have changed its attributes or names either.
    fn is_good(&self, promises: &Promises) -> bool {
        self.is_usable(promises) && self.asked.ends == promises.ends()
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

    /// The same of all files: it is not known which of them are about to lose names.
    pub(crate) fn end_all_given(self: &Arc<Self>) -> Result<(), ClerkError> {
        let files: Vec<Arc<FileState>> =
            self.dirty().given.iter().map(|given| Arc::clone(&given.file)).collect();
        files.iter().try_for_each(|file| file.end_given(self))
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
        (file, asked): (&File, Asked),
        begun: Begun,
    ) {
        let Begun { version, end, time } = begun;
        let told = Writable { file: file.clone(), version, end, time, alone: true };
        let mut inner = self.lock();
        let answers = inner.answers();
        inner.note_size(file.attributes.size, answers);
        let issued = file.capability.clone();
        let grant = Grant::new(Arc::clone(caller), self.handle, issued, core.protection());
        inner.given = Some(Given { told, grant: Arc::new(grant), asked });
        drop(inner);
        core.mark_given(GivenSince { file: Arc::clone(self), since: Instant::now() });
    }

    /// What was given with the file to this caller, to be used now, and when the file was asked for.
    pub(super) fn take_given(
        &self,
        core: &Core,
        caller: &Arc<Caller>,
    ) -> Option<(Writable, Asked)> {
        let promises = core.promises()?;
        let is_for_him = |given: &mut Given| given.is_for(caller) && given.is_usable(promises);
        self.lock().given.take_if(is_for_him).map(|given| (given.told, given.asked))
    }

    /// The capability is not used: it is to be returned as that of a store that is done. Whoever calls this has the turn to store. Whether there is
    /// one.
    pub(super) fn leave_given(&self) -> bool {
        let mut inner = self.lock();
        let Some(Given { told, grant, asked }) = inner.given.take() else {
            return false;
        };
        let ends = (inner.pending.next_id(), inner.appending.next());
        let (since, failures) = ((told.file.attributes, asked), inner.errors.count());
        inner.store = Some(Store::unused((told.version, grant), since, ends, failures));
        true
    }

    /// Gives the capability back that has come with the file, if it was not used.
    pub(crate) fn end_given(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        if self.lock().given.is_none() {
            return Ok(());
        }
        let _turn = interrupt::lock(&self.store_turn)?;
        self.leave_given();
        self.end_left_anyway(core)
    }
}
