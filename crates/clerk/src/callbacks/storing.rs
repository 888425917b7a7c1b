//! How what was written to a file is stored: nobody else writes or reads meanwhile, and who holds a callback knows when it is done.
//!
//! ```text
//! a capability to store is asked for -> everything is written under it, durably -> it is returned
//! ```
//!
//! Where nobody else holds a callback, the store is done as soon as everything is durable: whoever closes the file goes on, and the
//! capability is returned behind him. Whoever else wants the file waits for that at the file manager, and whoever wants it here, here.
//!
//! Programs write on meanwhile: what they write comes with the next store, apart from what overwrites something that is on its way, which
//! waits.

use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use nasd_afs::callbacks::Version;
use nasd_client::interrupt;
use nasd_types::limits::MAX_OBJECT_BYTES;

use super::Promises;
use super::cached::Stored;
use super::given::{Asked, Given};
use crate::ClerkError;
use crate::backend::Grant;
use crate::core::Core;
use crate::file::{FileState, Inner};
use crate::wire::{Caller, Cut, FileAttributes, FileHandle, ManagerStatus, Writable};

/// A store under way.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) version: Version,
    /// By which everything is written.
    pub(crate) grant: Arc<Grant>,
    /// As they were when it began.
    attributes: FileAttributes,
    /// When that was.
    asked: Asked,
    /// Only what was written before this number is stored.
    pub(crate) target: u64,
    /// And only what was appended before this one.
    pub(crate) appends: u64,
    /// How far it has to reach besides what is kept here to be written.
    least_end: u64,
    /// The version that was shown before.
    before: Option<Version>,
    /// What is new in the file when it is done, to be kept.
    stored: Option<Arc<Stored>>,
    /// What was there before is cut off.
    is_emptied: bool,
    /// How many failures there had been before it.
    failures: u64,
    /// Nobody else need be told of it.
    is_alone: bool,
    /// It is done, and is being returned.
    is_left: bool,
}

/// A store that was begun and not returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished {
    version: Version,
    target: u64,
    appends: u64,
    is_emptied: bool,
    failures: u64,
}

/// What whoever stores a file waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// That nobody sees anything older any more, wherever he looks, and all is durable.
    Done,
    /// That it is returned, too, and so what the file is from then on is known.
    Returned,
}

/// So often more room is asked for, when the file has turned out to be longer than was known.
const MOST_ASKED: usize = 4;

/// Before it is asked again: the file manager has waited already.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// After that the file manager ends a store that somebody waits for.
const LONGEST_STORE: Duration = Duration::from_secs(10);

/// So often a store is begun anew whose time was over before it was returned.
const MOST_STORES: usize = 64;

/// Has the drive make durable what it has of a file, and its version. A drive that has no time just now is asked again for as long as a store may take.
fn flush_patiently(core: &Core, grant: &Grant) -> Result<(), ClerkError> {
    let until = core.deadline().min(Instant::now() + LONGEST_STORE);
    let mut is_found = false;
    loop {
        match core.objects.flush(grant) {
            Err(error) if error.wants_volume() && !is_found => {
                core.find_drives(&grant.caller)?;
                is_found = true;
            }
            Err(error) if error.is_momentary() && Instant::now() < until => {
                interrupt::pause(BUSY_PAUSE)?;
            }
            flushed => return flushed.map(drop),
        }
    }
}

impl Store {
    /// One that came with a file, and that nothing was written under. What is written and appended from these numbers on comes later, and what
    /// has failed by now was before it.
    pub(super) fn unused(
        (version, grant): (Version, Arc<Grant>),
        (attributes, asked): (FileAttributes, Asked),
        (target, appends): (u64, u64),
        failures: u64,
    ) -> Store {
        Store {
            version,
            grant,
            attributes,
            asked,
            target,
            appends,
            least_end: 0,
            before: None,
            stored: None,
            is_emptied: false,
            failures,
            is_alone: true,
            is_left: true,
        }
    }

    /// The file's attributes, unless others have changed them since it began.
    pub(super) fn attributes(&self, promises: &Promises) -> Option<FileAttributes> {
        (self.asked.ends() == promises.ends()).then_some(self.attributes)
    }

    /// The same as they were when it began.
    pub(crate) const fn attributes_before(&self) -> &FileAttributes {
        &self.attributes
    }
}

impl Core {
    /// The store of a file that is under way here.
    pub(crate) fn store_of(&self, handle: FileHandle) -> Option<Store> {
        self.promises()?;
        self.open_file(handle)?.lock().store.clone().filter(|store| !store.is_left)
    }
}

impl Inner {
    /// Whether the file is being stored here, so that nobody else can change it.
    pub(super) fn is_own(&self, promises: &Promises) -> bool {
        self.store.is_some() || self.is_given(promises)
    }

    /// Whether a store is done, and is being returned.
    fn is_left(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_left)
    }

    /// Whether nothing is kept that is not known to be durable, and no store is under way.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_durable() && self.store.is_none()
    }
}

impl FileState {
    /// Stores everything that was written so far. Returns any failure after the first `errors_before`; it is also kept for each open
    /// file.
    pub(crate) fn store(
        self: &Arc<Self>,
        core: &Arc<Core>,
        errors_before: u64,
        until: Until,
    ) -> Result<(), ClerkError> {
        let inner = self.lock();
        if until == Until::Done && inner.is_left() && inner.is_durable() {
            return inner.errors.since(errors_before).map_or(Ok(()), Err);
        }
        drop(inner);
        let _turn = interrupt::lock(&self.store_turn)?;
        self.end_left(core)?;
        let (has_any, is_begun) = {
            let inner = self.lock();
            (!inner.is_durable(), inner.begun.is_some())
        };
        if has_any || is_begun {
            let stored = self.begin_store(core).and_then(|()| {
                let written = self.sync_now(core, errors_before);
                match written.and_then(|()| self.failed_since_begun().map_or(Ok(()), Err)) {
                    Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
                    Ok(()) if !has_any => self.end_begun(core),
                    Ok(()) if until == Until::Done && self.leave_store(core) => Ok(()),
                    Ok(()) => self.end_store(core),
                    Err(failed) => self.end_failed(core, failed),
                }
            });
            match stored {
                Ok(()) => {}
                Err(ClerkError::Interrupted) => {
                    // What is begun is to be ended, though nobody waits for it.
                    self.sync_in_background(core);
                    return Err(ClerkError::Interrupted);
                }
                Err(error) => self.cannot_store(core, &error),
            }
        } else if self.leave_given() {
            match until {
                Until::Done => self.return_left(core),
                Until::Returned => self.end_left_anyway(core)?,
            }
        }
        self.lock().errors.since(errors_before).map_or(Ok(()), Err)
    }

    /// What a part of the store under way has failed with.
    fn failed_since_begun(&self) -> Option<ClerkError> {
        let inner = self.lock();
        let failures = inner.store.as_ref()?.failures;
        inner.errors.since(failures)
    }

    /// Ends a store that somebody has begun who was interrupted: nobody knows what the drive has of it.
    fn end_begun(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let grant = self.lock().store.as_ref().map(|store| Arc::clone(&store.grant));
        grant.map_or(Ok(()), |grant| flush_patiently(core, &grant))?;
        self.end_store(core)
    }

    /// Ends a store of which a part has failed.
    fn end_failed(
        self: &Arc<Self>,
        core: &Arc<Core>,
        failed: ClerkError,
    ) -> Result<(), ClerkError> {
        let mut inner = self.lock();
        self.forget_rest(core, &mut inner, failed);
        // What is written from now on has not failed with it.
        let failures = inner.errors.count();
        if let Some(store) = &mut inner.store {
            store.failures = failures;
            // Nobody knows here what the file has then.
            (store.before, store.stored) = (None, None);
        }
        self.after_answer(core, inner, 0);
        self.end_as_it_is(core)
    }

    /// What a part of was lost is not stored at all. Who has written something since he was told of that is told once more.
    fn forget_rest(self: &Arc<Self>, core: &Core, inner: &mut Inner, failed: ClerkError) {
        let has_written = inner.has_written();
        inner.forget_written();
        if has_written {
            self.note_failure(core, inner, failed);
        }
    }

    /// Does something to the file that others are to be told of, with everything that was written before. It reaches no further than
    /// `least_end`, or than the file does.
    pub(crate) fn storing<T>(
        self: &Arc<Self>,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least_end: u64,
        change: impl FnOnce() -> Result<T, ClerkError>,
    ) -> Result<T, ClerkError> {
        if core.promises().is_none() {
            return change();
        }
        let _turn = interrupt::lock(&self.store_turn)?;
        self.end_left(core)?;
        let begun = self.begin_store_as(core, caller, least_end);
        if begun == Err(ClerkError::Interrupted) {
            // What may have begun is to be ended, though nobody waits for it.
            self.sync_in_background(core);
        }
        begun?;
        // Nobody knows here what the file has then.
        if let Some(store) = &mut self.lock().store {
            (store.before, store.stored) = (None, None);
        }
        let outcome = change();
        let ended = match &outcome {
            Ok(_) => self.end_store(core),
            Err(_) => self.end_as_it_is(core),
        };
        if ended == Err(ClerkError::Interrupted) {
            self.sync_in_background(core);
        }
        outcome.and_then(|done| ended.map(|()| done))
    }

    fn begin_store(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let inner = self.lock();
        let writer = inner.emptied.clone().or_else(|| inner.pending.first_writer());
        let writer = writer.or_else(|| inner.appending.first_writer());
        let caller = writer.map(|writer| Arc::clone(&writer.0.caller));
        let Some(caller) = caller.or_else(|| inner.begun.clone()) else {
            return Ok(());
        };
        drop(inner);
        self.begin_store_as(core, &caller, 0)
    }

    fn begin_store_as(
        self: &Arc<Self>,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least_end: u64,
    ) -> Result<(), ClerkError> {
        let is_of_use = |given: &Given| {
            core.promises().is_some_and(|all| given.is_for(caller) && given.is_usable(all))
        };
        if self.lock().given.as_ref().is_some_and(|given| !is_of_use(given)) {
            self.leave_given();
            self.end_left(core)?;
        }
        // One that somebody could not return who was interrupted: it goes on with what there is now.
        let asked = self.ask_to_go_on(core, caller, least_end);
        let mut inner = self.lock();
        let store = match asked {
            Ok(store) => store,
            Err(error) => {
                if error != ClerkError::Interrupted {
                    (inner.target, inner.begun) = (None, None);
                    self.notify();
                }
                return Err(error);
            }
        };
        let before = inner.unfinished.take();
        if before.is_some_and(|before| before.version != store.version) {
            // What the drive has acknowledged others may have written over.
            inner.pending.requeue_all();
            inner.forget_read();
        }
        let is_as_shown = inner.shown.is_none_or(|shown| shown + 1 == store.version);
        if inner.emptied.take().is_some() || !is_as_shown {
            // Somebody else has stored since, or what was there is cut off.
            inner.forget_read();
        }
        let answers = inner.answers();
        inner.note_size(store.attributes.size, answers);
        inner.store = Some(store);
        Ok(())
    }

    /// Asks for a capability to store, after a store that nobody has returned if there was one. Where that was ended others may have stored
    /// since: what it has cut off is cut off again, unless all of it was durable, so that it was done.
    fn ask_to_go_on(
        self: &Arc<Self>,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least_end: u64,
    ) -> Result<Store, ClerkError> {
        let (is_emptied, before) = self.take_unfinished(core)?;
        let store = self.ask_to_store(core, caller, least_end, is_emptied)?;
        let Some(before) = before.filter(|before| before.is_emptied && !is_emptied) else {
            return Ok(store);
        };
        if before.version == store.version {
            return Ok(Store { is_emptied: true, ..store });
        }
        let is_left = {
            let inner = self.lock();
            inner.pending.has_before(before.target) || inner.appending.has_before(before.appends)
        };
        let is_cut_again = store.attributes.size > 0 && is_left;
        if is_cut_again { self.ask_to_store(core, caller, least_end, true) } else { Ok(store) }
    }

    /// Whether the file is cut to nothing, and what is to go on of a store that nobody has returned.
    fn take_unfinished(
        self: &Arc<Self>,
        core: &Arc<Core>,
    ) -> Result<(bool, Option<Unfinished>), ClerkError> {
        let mut inner = self.lock();
        let under_way = inner.store.as_ref().map(|store| store.failures);
        let failures = under_way.or(inner.unfinished.map(|before| before.failures));
        if let Some(failed) = failures.and_then(|before| inner.errors.since(before)) {
            // Else it would wait to be sent again.
            while inner.pending.in_flight() > 0 {
                inner = self.wait(inner)?;
            }
            (inner.store, inner.unfinished) = (None, None);
            self.forget_rest(core, &mut inner, failed);
            self.after_answer(core, inner, 0);
            return Ok((false, None));
        }
        if let Some(store) = inner.store.take() {
            let Store { version, target, appends, is_emptied, failures, .. } = store;
            inner.unfinished = Some(Unfinished { version, target, appends, is_emptied, failures });
        }
        Ok((inner.emptied.is_some(), inner.unfinished))
    }

    fn ask_to_store(
        self: &Arc<Self>,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least_end: u64,
        is_emptied: bool,
    ) -> Result<Store, ClerkError> {
        let mut inner = self.lock();
        inner.pending.seal();
        let (end, appended) = (inner.pending.end_of_all(), inner.appending.held_bytes());
        let known = if appended > 0 { inner.drive_size } else { 0 };
        // Under the same capability no more is stored than was begun with; of what somebody has begun who was interrupted nothing is on its way.
        let stored = match inner.target {
            Some(_) => None,
            None => inner.to_be_kept().map(Arc::new),
        };
        let target = inner.store.as_ref().map_or(inner.pending.next_id(), |store| store.target);
        (inner.target, inner.begun) = (Some(target), Some(Arc::clone(caller)));
        let unfinished = inner.unfinished.map(|before| before.failures);
        let failures = unfinished.unwrap_or_else(|| inner.errors.count());
        // What was kept of it is not what it goes on from.
        let (before, appends) = (inner.shown.filter(|_| !is_emptied), inner.appending.next());
        drop(inner);
        if let Some(promises) = core.promises() {
            promises.writes(self.handle);
        }
        let least = least_end.max(known.max(end).saturating_add(appended));
        let mut asked = Asked::now(core.promises().map(AsRef::as_ref));
        let told = match self.take_given(core, caller) {
            // Nothing is in the file, and it may be written to its end.
            Some((told, since)) => {
                asked = since;
                Ok(told)
            }
            None if is_emptied => self.ask_for_nothing_before(core, caller, least),
            None => self.ask_for_enough(core, caller, least, (end, appended)),
        };
        // Where nobody has waited for the answer, the file manager may have the question before it yet.
        if let Some(promises) = core.promises().filter(|_| told != Err(ClerkError::Interrupted)) {
            promises.answered_to_write(self.handle);
        }
        let told = told?;
        let issued = told.file.capability;
        let grant = Grant::new(Arc::clone(caller), self.handle, issued, core.protection());
        let attributes = told.file.attributes;
        Ok(Store {
            version: told.version,
            grant: Arc::new(grant),
            attributes,
            asked,
            target,
            appends,
            least_end,
            before,
            stored,
            is_emptied,
            failures,
            is_alone: told.alone,
            is_left: false,
        })
    }

    /// Asks for a capability to store a file of which nothing is left: in an answer that tells of another length, others have stored since, and
    /// that is cut off as well.
    fn ask_for_nothing_before(
        &self,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least: u64,
    ) -> Result<Writable, ClerkError> {
        let known = core.promises().and_then(|promises| promises.version(self.handle));
        let mut version = known.unwrap_or_default();
        for _ in 0..MOST_STORES {
            let told = self.ask_for_room(core, caller, least, Some(Cut { length: 0, version }))?;
            if told.file.attributes.size == 0 {
                return Ok(told);
            }
            let issued = told.file.capability;
            let grant = Grant::new(Arc::clone(caller), self.handle, issued, core.protection());
            // Whoever returns it says that the drive will have that version.
            match flush_patiently(core, &grant) {
                Err(error) if error.wants_new_capability() => continue,
                flushed => flushed?,
            }
            let returned = core.ask_in_session(|names| {
                names.return_capability(caller, self.handle, told.version)
            })?;
            version = returned.version;
        }
        Err(ClerkError::Manager(ManagerStatus::Busy))
    }

    /// Asks for a capability to store that reaches so far, and over what is appended behind all that is there.
    fn ask_for_enough(
        &self,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least: u64,
        (end, appended): (u64, u64),
    ) -> Result<Writable, ClerkError> {
        let mut told = self.ask_for_room(core, caller, least, None)?;
        for _ in 0..MOST_ASKED {
            let size = told.file.attributes.size.max(end);
            let needed = if appended > 0 { size.saturating_add(appended) } else { 0 };
            if needed <= told.end {
                break;
            }
            told = self.ask_for_room(core, caller, least.max(needed), None)?;
        }
        Ok(told)
    }

    /// Asks for a capability to store that reaches so far, when the file is cut. Where room is set aside for others, or others store, it is
    /// waited for.
    fn ask_for_room(
        &self,
        core: &Arc<Core>,
        caller: &Arc<Caller>,
        least: u64,
        cut: Option<Cut>,
    ) -> Result<Writable, ClerkError> {
        let deadline = core.deadline();
        loop {
            let told = core.ask_in_session(|names| {
                let end = (least, MAX_OBJECT_BYTES);
                names.get_write_capability(caller, self.handle, end, cut)
            });
            match told {
                Err(ClerkError::Manager(ManagerStatus::Busy)) if Instant::now() < deadline => {
                    interrupt::pause(BUSY_PAUSE)?;
                }
                told => return told,
            }
        }
    }

    /// The drive does not take the store's capability any more: another one. Where the store was ended all of it is written again.
    pub(crate) fn store_anew(
        self: &Arc<Self>,
        core: &Arc<Core>,
        stale: &Arc<Grant>,
    ) -> Result<Arc<Grant>, ClerkError> {
        let _turn = interrupt::lock(&self.store_renewal)?;
        let before = self.lock().store.clone();
        let before = before.ok_or(ClerkError::Manager(ManagerStatus::Busy))?;
        if !Arc::ptr_eq(&before.grant, stale) {
            return Ok(before.grant);
        }
        // What is not whole any more must not come over what others have stored since.
        if let Some(failed) = self.lock().errors.since(before.failures) {
            return Err(failed);
        }
        let caller = &before.grant.caller;
        let mut store = self.ask_to_store(core, caller, before.least_end, false)?;
        let is_anew = store.version != before.version;
        if is_anew && before.is_emptied && store.attributes.size > 0 {
            store = self.ask_to_store(core, caller, before.least_end, true)?;
        }
        let mut inner = self.lock();
        if is_anew {
            inner.forget_read();
            inner.pending.requeue_all();
        }
        let grant = Arc::clone(&store.grant);
        let Store { appends, stored, is_emptied, failures, .. } = before;
        inner.store = Some(Store { before: None, appends, stored, is_emptied, failures, ..store });
        Ok(grant)
    }

    /// All of the store is durable. Where nobody else need be told it is returned by another thread; whether it is.
    fn leave_store(self: &Arc<Self>, core: &Arc<Core>) -> bool {
        let mut inner = self.lock();
        let Some(store) = inner.store.as_mut().filter(|store| store.is_alone) else {
            return false;
        };
        store.is_left = true;
        drop(inner);
        self.return_left(core);
        true
    }

    /// Has another thread return a store that is done.
    fn return_left(self: &Arc<Self>, core: &Arc<Core>) {
        let (core, file) = (Arc::clone(core), Arc::clone(self));
        self.lane.senders.submit(move || {
            // Whoever has left it has the turn still. Nobody interrupts this thread.
            if let Ok(_turn) = interrupt::lock(&file.store_turn) {
                let _ = file.end_left(&core);
            }
        });
    }

    /// Waits until a store is returned that is done, if there is one. Who stores the file next begins with that, and is not waited for
    /// longer.
    pub(crate) fn await_return(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let mut inner = self.lock();
        while inner.is_left() {
            // The other order, but nobody is waited for.
            let turn = match self.store_turn.try_lock() {
                Ok(turn) => Some(turn),
                Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if turn.is_some() {
                drop(inner);
                self.end_left(core)?;
                inner = self.lock();
            } else {
                inner = self.wait(inner)?;
            }
        }
        Ok(())
    }

    /// Returns a store that is done. Whoever calls this has the turn to store.
    pub(super) fn end_left(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        if !self.lock().is_left() {
            return Ok(());
        }
        match self.end_store(core) {
            Err(ClerkError::Interrupted) => Err(ClerkError::Interrupted),
            Err(error) => {
                // All of it is in the file, and the file manager ends it when it hears nothing.
                tracing::debug!(%error, handle = ?self.handle, "a store is not returned");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The same, by another thread where whoever calls this does not wait for it: others may.
    pub(super) fn end_left_anyway(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let ended = self.end_left(core);
        if ended == Err(ClerkError::Interrupted) {
            self.return_left(core);
        }
        ended
    }

    /// Returns the capability of a store that has failed, as its caller is told, so that nobody knows whether anything was written and is durable: the
    /// drive is to have the version in any case. If it came back with the one before, another store would get the same, and copies of this one would
    /// be taken for copies of that.
    fn end_as_it_is(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        let error = match self.end_begun(core) {
            Ok(()) => return Ok(()),
            Err(ClerkError::Interrupted) => return Err(ClerkError::Interrupted),
            Err(error) => error,
        };
        tracing::debug!(%error, handle = ?self.handle, "a store that failed is not returned");
        // It is not returned, as whoever returns one says that all is durable: the file manager ends it when its time is over, and makes that durable.
        let mut inner = self.lock();
        (inner.store, inner.target, inner.begun, inner.shown) = (None, None, None, None);
        inner.forget_read();
        self.after_answer(core, inner, 0);
        Ok(())
    }

    /// Returns the capability, until the file manager has said that the store is done.
    fn end_store(self: &Arc<Self>, core: &Arc<Core>) -> Result<(), ClerkError> {
        for _ in 0..MOST_STORES {
            let Some(store) = self.lock().store.clone() else {
                return Ok(());
            };
            let asking = core.promises().map(|promises| promises.asking(self.handle));
            let version = store.version;
            let told = core.ask_in_session(|names| {
                names.return_capability(&store.grant.caller, self.handle, version)
            });
            let told = match told {
                // Others wait for those who wait here: so the file manager is asked again.
                Err(ClerkError::Manager(ManagerStatus::Busy)) => continue,
                // Somebody else returns it, or asks for it once more and returns that.
                Err(ClerkError::Interrupted) => return Err(ClerkError::Interrupted),
                // The drive has lost that it had begun, and so what was written.
                Err(ClerkError::Manager(ManagerStatus::Invalid)) => {
                    Err(ClerkError::Manager(ManagerStatus::Unavailable))
                }
                told => told,
            };
            let mut inner = self.lock();
            (inner.store, inner.target, inner.shown) = (None, None, None);
            inner.begun = None;
            let told = match told {
                Ok(told) => told,
                Err(error) => {
                    inner.forget_read();
                    self.after_answer(core, inner, 0);
                    return Err(error);
                }
            };
            if told.promised {
                inner.shown = Some(told.version);
            } else {
                inner.forget_read();
            }
            let answers = inner.answers();
            inner.note_size(told.file.attributes.size, answers);
            self.after_answer(core, inner, 0);
            let slot = core.grants.slot(&store.grant.caller, self.handle);
            slot.install_of(&told.file, core.protection(), Some(told.version));
            if let (Some(promises), Some(asking)) = (core.promises(), asking) {
                promises.stored(&asking, version, &told);
                if let Some(cache) = promises.cache().filter(|_| told.promised) {
                    let now = (store.before, told.version, told.file.attributes.size);
                    self.keep_stored(cache, store.stored.as_deref(), now);
                }
            }
            return Ok(());
        }
        Err(ClerkError::Manager(ManagerStatus::Busy))
    }

    /// What was written can't be stored.
    fn cannot_store(self: &Arc<Self>, core: &Arc<Core>, error: &ClerkError) {
        let mut inner = self.lock();
        (inner.store, inner.target, inner.shown) = (None, None, None);
        (inner.begun, inner.unfinished) = (None, None);
        inner.forget_written();
        inner.forget_read();
        self.note_failure(core, &mut inner, error.clone());
        self.after_answer(core, inner, 0);
    }
}
